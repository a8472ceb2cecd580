-------------------------------- MODULE Rules -------------------------------
(* What the next snapshot is, and when a change no longer holds: the pure part (section 8 of the specification).                     *)
EXTENDS Base

\* The plan of a job, whoever works for it: its owner has its name.
PlanOf(job) == IF Plan[job].kind = "rerun" THEN [Plan[job] EXCEPT !.kind = "append"] ELSE Plan[job]

Writes(job) == PlanOf(job).kind \in {"append", "quick", "overwrite", "replace"}

\* A rerun that takes finished tasks over lists them as what they are: files of the old job. Under that job's id it always does so
\* [AB6]; under an id of its own it must not, and does so only where the rule is switched off.
FileOf(job, n) == IF ~On("same id") /\ Plan[job].kind = "rerun" THEN <<Plan[job].of, 1>> ELSE <<job, n>>

\* [OB10] protocol.conflict.partition_was_touched: whether a job's commit added to or removed from a partition.
Touches(job, part) ==
    \/ Writes(job) /\ PlanOf(job).part = part
    \/ PlanOf(job).kind = "rollback"

\* [WM2] [KY6] format.change.find_mismatch
Fits(plan, st) ==
    /\ plan.end = 0 \/ st.wm = New \/ plan.start = st.wm \/ ~On("advance")
    /\ plan.batch = 0 \/ st.batch = plan.batch - 1

\* [CF13] [WM5] protocol.conflict.find_conflict. What time was set back for is done again by jobs that began after that, not by those before.
WasSetBack(plan, st, birth) ==
    \/ plan.end # 0 /\ On("source set back") /\ birth < st.set
    \/ plan.key # "" /\ On("key set back") /\ birth < st.dropped[plan.key]
    \/ plan.batch # 0 /\ On("stream set back") /\ birth < st.stream

\* Whether version w is one that moved the source.
Moves(w) == \E j \in chain[w].by : PlanOf(j).end # 0 \/ PlanOf(j).kind \in {"rewind", "rollback"}

\* Which rule is broken by applying the job's change to `st`: the head of version v, with what the same create applies before.
\* [CF1] protocol.conflict.find_conflict
IsConflict(job, v, st, birth, arg) ==
    LET plan == PlanOf(job) IN
    CASE plan.kind = "append" ->
            \/ ~Fits(plan, st)                                                                   \* [WM2]
            \/ WasSetBack(plan, st, birth)
            \/ FileOf(job, 1)[1] # job /\ FileOf(job, 1) \in st.live                            \* [CF10] protocol.conflict.path_is_live
      [] plan.kind = "overwrite" ->                                                              \* [CF3] protocol.conflict.partition_was_touched
            \/ ~Fits(plan, st) \/ WasSetBack(plan, st, birth)
            \/ /\ On("overwrite")
               /\ \/ \E w \in (birth + 1)..v : \E other \in chain[w].by : Touches(other, plan.part)
                  \/ st.by # chain[v].by /\ \E other \in st.by : Touches(other, plan.part)
      [] plan.kind = "replace" -> On("replace") /\ ~(plan.replaces \subseteq st.live)            \* [CF7] protocol.conflict.replaced_file_is_gone
      [] plan.kind = "rollback" ->                                                               \* [CF13] protocol.conflict.rolled_back_over
            \/ On("rollback alone") /\ v > birth
            \/ ~IsReadable(chain[v], v, arg[1])
      [] plan.kind = "rewind" -> \E w \in (birth + 1)..v : Moves(w)                              \* [WM5] protocol.conflict.watermark_was_moved
      [] plan.kind = "tag" -> arg[1] # 0 /\ On("tag readable") /\ ~IsReadable(chain[v], v, arg[1])  \* [CF12] protocol.conflict.tagged_version_is_gone
      [] OTHER -> FALSE

PartOf(f) == IF f = OldFile THEN "x" ELSE PlanOf(f[1]).part

Taken(job, st) ==
    LET plan == PlanOf(job) IN
    CASE plan.kind = "overwrite" -> {f \in st.live : PartOf(f) = plan.part}
      [] plan.kind = "replace" -> plan.replaces
      [] OTHER -> {}

\* [GC2] [GC3] [GC8] [KY4] protocol.apply._retained: the higher of both counts; `expired` never passes the fence; a job leaves the record one
\* gc after its birth fell below the fence; a key is forgotten once the fence has passed the version that recorded it and every rollback;
\* what time was set back for, once no job from before can commit.
Retained(st, v, forgets, arg, bs) ==
    LET chosen == IF arg[1] < v - 1 THEN arg[1] ELSE v - 1
        fence == IF On("monotone") /\ chosen < st.fence THEN st.fence ELSE chosen
        below == IF On("expired below fence") /\ arg[2] > fence THEN fence ELSE arg[2]
        expired == IF On("monotone") /\ below < st.expired THEN st.expired ELSE below
        isOut(j) == bs[j] # 0 /\ (bs[j] < st.fence \/ ~On("recent jobs"))
        isRolledBack == On("keys kept after rollbacks") /\ \E w \in (fence + 1)..(v - 1) : chain[w].back # 0
        isOld(k) == forgets /\ st.keys[k] > 0 /\ (st.keys[k] < fence \/ ~On("keys kept")) /\ ~isRolledBack
        kept(w) == IF w <= fence \/ ~On("set-backs kept") THEN 0 ELSE w
    IN [st EXCEPT !.fence = fence, !.expired = expired,
                  !.rec = [j \in Procs |-> IF isOut(j) THEN 0 ELSE @[j]],
                  !.keys = [k \in Keys |-> IF isOld(k) THEN -1 ELSE @[k]],
                  !.set = kept(@), !.dropped = [k \in Keys |-> kept(@[k])], !.stream = kept(@)]

\* [CF13] protocol.apply.rolled_back: data, watermarks and keys of the target; what belongs to the chain stays, and with it what time was set
\* back for, now and before. A source that the target does not know stands where its first advance began.
RolledBack(st, v, to) ==
    LET target == chain[to]
        back == IF On("rollback keeps the origin") /\ target.wm = New THEN st.origin ELSE target.wm
        before == IF On("rollback keeps the set-backs") THEN st ELSE target
    IN
    [st EXCEPT !.live = target.live, !.wm = back, !.keys = target.keys, !.back = to, !.batch = target.batch,
               !.set = IF back # st.wm THEN v ELSE before.set,
               !.dropped = [k \in Keys |-> IF target.keys[k] > 0 THEN 0 ELSE IF st.keys[k] > 0 \/ before.dropped[k] > 0 THEN v ELSE 0],
               !.stream = IF target.batch # st.batch THEN v ELSE before.stream,
               !.fence = IF On("rollback keeps the fence") THEN @ ELSE target.fence,
               !.expired = IF On("rollback keeps the fence") THEN @ ELSE target.expired,
               !.rec = IF On("rollback keeps the jobs") THEN @ ELSE target.rec]

\* [WM5] format.change.merged: no row goes; the keys of the advances that are undone are dropped.
Rewound(st, v, to) ==
    LET isUndone(k) == st.keys[k] > 0 /\ \E j \in chain[st.keys[k]].by : PlanOf(j).key = k /\ PlanOf(j).end > to
    IN [st EXCEPT !.wm = to, !.origin = IF to = New THEN New ELSE @, !.set = v,
                  !.keys = [k \in Keys |-> IF isUndone(k) THEN 0 ELSE @[k]],
                  !.dropped = [k \in Keys |-> IF isUndone(k) THEN v ELSE @[k]]]

\* [CM17] protocol.apply.apply: the job's change on top of `st`, as a part of version v. What it does not name is carried over.
Apply(st, job, v, n, arg, bs) ==
    LET plan == PlanOf(job)
        wrote == IF Writes(job) THEN {FileOf(job, n)} ELSE {}
        base == CASE plan.kind = "rollback" -> RolledBack(st, v, arg[1])
                  [] plan.kind = "rewind" -> Rewound(st, v, arg[1])
                  [] plan.kind = "gc" -> Retained(st, v, plan.forgets, arg, bs)
                  [] plan.kind = "tag" -> [st EXCEPT !.tag = arg[1]]
                  [] plan.kind = "giveup" -> [st EXCEPT !.rec[plan.of] = -1]                     \* [AB4] commits.two_phase.give_up
                  [] OTHER -> st
    IN [base EXCEPT !.by = @ \cup {job},
                    !.live = (@ \ Taken(job, st)) \cup wrote,
                    !.wm = IF plan.end # 0 THEN plan.end ELSE @,
                    !.origin = IF plan.end # 0 /\ st.wm = New THEN plan.start ELSE @,
                    !.batch = IF plan.batch # 0 THEN plan.batch ELSE @,
                    !.keys = IF plan.key # "" THEN [@ EXCEPT ![plan.key] = v] ELSE @,
                    !.dropped = IF plan.key # "" THEN [@ EXCEPT ![plan.key] = 0] ELSE @,
                    !.rec = [@ EXCEPT ![job] = v]]

\* The state to which a create of the version after v applies its first change: the base, with no commit record of its own yet.
Fresh(v) == [chain[v] EXCEPT !.by = {}, !.back = 0]

=============================================================================
