-------------------------------- MODULE Rules -------------------------------
(* What the next snapshot is, and when a change no longer holds: the pure part (section 8 of the specification).                     *)
EXTENDS Base

\* The plan of a job, whoever works for it: its owner has its name.
PlanOf(job) == IF Plan[job].kind = "rerun" THEN [Plan[job] EXCEPT !.kind = "append"] ELSE Plan[job]

Writes(job) == PlanOf(job).kind \in {"append", "quick", "overwrite", "replace"}

\* A rerun that takes finished tasks over lists them as what they are: files of the old job. Under that job's id it always does so
\* [AB6]; under an id of its own it must not, and does so only where the rule is switched off.
FileOf(job, n) == IF ~On("same id") /\ Plan[job].kind = "rerun" THEN <<Plan[job].of, 1>> ELSE <<job, n>>

\* [OB10] core.change._touched: whether a job's commit added to or removed from a partition.
Touches(job, part) ==
    \/ Writes(job) /\ PlanOf(job).part = part
    \/ PlanOf(job).kind = "rollback"

\* [WM2] core.watermark.find_misfit
Fits(plan, st) == plan.end = 0 \/ plan.start = st.wm \/ ~On("advance")

\* Which rule is broken by applying the job's change to `st`: the head of version v, with what the same create applies before.
\* [CF1] core.conflict.find_conflict
IsConflict(job, v, st, birth, arg) ==
    LET plan == PlanOf(job) IN
    CASE plan.kind = "append" ->
            \/ ~Fits(plan, st)                                                                   \* [WM2]
            \/ FileOf(job, 1)[1] # job /\ FileOf(job, 1) \in st.live                            \* [CF10] core.conflict.path_is_live
      [] plan.kind = "overwrite" ->                                                              \* [CF3] core.conflict.partition_was_touched
            /\ On("overwrite")
            /\ \/ \E w \in (birth + 1)..v : \E other \in chain[w].by : Touches(other, plan.part)
               \/ st.by # chain[v].by /\ \E other \in st.by : Touches(other, plan.part)
      [] plan.kind = "replace" -> On("replace") /\ ~(plan.replaces \subseteq st.live)            \* [CF7] core.conflict.replaced_file_is_gone
      [] plan.kind = "rollback" ->                                                               \* [CF13] core.conflict.rolled_back_over
            \/ On("rollback alone") /\ v > birth
            \/ ~IsReadable(chain[v], v, arg[1])
      [] plan.kind = "tag" -> arg[1] # 0 /\ On("tag readable") /\ ~IsReadable(chain[v], v, arg[1])  \* [CF12] core.conflict.tagged_version_is_gone
      [] OTHER -> FALSE

PartOf(f) == IF f = OldFile THEN "x" ELSE PlanOf(f[1]).part

Taken(job, st) ==
    LET plan == PlanOf(job) IN
    CASE plan.kind = "overwrite" -> {f \in st.live : PartOf(f) = plan.part}
      [] plan.kind = "replace" -> plan.replaces
      [] OTHER -> {}

\* [GC2] [GC3] [GC8] [KY4] core.change._retained: the higher of both counts; `expired` never passes the fence; a job leaves the record one
\* gc after its birth fell below the fence; a key is forgotten once the fence has passed the version that recorded it.
Retained(st, v, forgets, arg, bs) ==
    LET chosen == IF arg[1] < v - 1 THEN arg[1] ELSE v - 1
        fence == IF On("monotone") /\ chosen < st.fence THEN st.fence ELSE chosen
        below == IF On("expired below fence") /\ arg[2] > fence THEN fence ELSE arg[2]
        expired == IF On("monotone") /\ below < st.expired THEN st.expired ELSE below
        isOut(j) == bs[j] # 0 /\ (bs[j] < st.fence \/ ~On("recent jobs"))
        isOld(k) == forgets /\ st.keys[k] > 0 /\ (st.keys[k] < fence \/ ~On("keys kept"))
    IN [st EXCEPT !.fence = fence, !.expired = expired,
                  !.rec = [j \in Procs |-> IF isOut(j) THEN 0 ELSE @[j]],
                  !.keys = [k \in Keys |-> IF isOld(k) THEN -1 ELSE @[k]]]

\* [CF13] core.change._rolled_back: data, watermarks and keys of the target; what belongs to the chain stays.
RolledBack(st, to) ==
    LET target == chain[to] IN
    [st EXCEPT !.live = target.live, !.wm = target.wm, !.keys = target.keys, !.back = to,
               !.fence = IF On("rollback keeps the fence") THEN @ ELSE target.fence,
               !.expired = IF On("rollback keeps the fence") THEN @ ELSE target.expired,
               !.rec = IF On("rollback keeps the jobs") THEN @ ELSE target.rec]

\* [CM17] core.change.apply: the job's change on top of `st`, as a part of version v. What it does not name is carried over.
Apply(st, job, v, n, arg, bs) ==
    LET plan == PlanOf(job)
        wrote == IF Writes(job) THEN {FileOf(job, n)} ELSE {}
        base == CASE plan.kind = "rollback" -> RolledBack(st, arg[1])
                  [] plan.kind = "gc" -> Retained(st, v, plan.forgets, arg, bs)
                  [] plan.kind = "tag" -> [st EXCEPT !.tag = arg[1]]
                  [] plan.kind = "giveup" -> [st EXCEPT !.rec[plan.of] = -1]                     \* [AB4] engine.prepare.give_up
                  [] OTHER -> st
    IN [base EXCEPT !.by = @ \cup {job},
                    !.live = (@ \ Taken(job, st)) \cup wrote,
                    !.wm = IF plan.end # 0 THEN plan.end ELSE @,
                    !.keys = IF plan.key # "" THEN [@ EXCEPT ![plan.key] = v] ELSE @,
                    !.rec = [@ EXCEPT ![job] = v]]

\* The state to which a create of the version after v applies its first change: the base, with no commit record of its own yet.
Fresh(v) == [chain[v] EXCEPT !.by = {}, !.back = 0]

=============================================================================
