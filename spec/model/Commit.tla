------------------------------- MODULE Commit -------------------------------
(* The only commit loop: contend for the version after the head, rebase on the winner, count only what stands (section 6).           *)
EXTENDS Intents

\* What a process remembers of a commit. job: for which it works; base: the head that it builds on; sent: whether a create may have been
\* sent before; pub: its intent is published; giving: its create enters the job as given up; arg: what gc, a rollback or a tag has chosen.
Starting(job, sent, arg) ==
    [pc |-> "send", job |-> job, base |-> 0, sent |-> sent, n |-> 1, pub |-> FALSE, giving |-> FALSE, carry |-> <<>>, arg |-> arg]

\* What gc reads and deletes by: the snapshot in which its decision stands.
Collecting(b, at) ==
    [pc |-> "collect", v |-> at, fence |-> b.fence, expired |-> b.expired, tag |-> b.tag,
     todo |-> {w \in 1..at : IsReadable(b, at, w)}, reach |-> {}]

\* The job of which the outcome tells: a process that gives a job up tells of that one.
Concerns(p, me) == IF Plan[p].kind = "giveup" THEN Plan[p].of ELSE me.job

\* The create counts, or the head records the job as committed: what it says, or does next.
Counted(p, me, v) ==
    CASE Plan[p].kind = "gc" -> Collecting(chain[Top], Top)
      [] Plan[p].kind = "giveup" -> Done(Plan[p].of, "aborted", 0, me.n)
      [] me.giving -> Done(me.job, "conflict", 0, me.n)
      [] OTHER -> Done(me.job, "committed", v, me.n)

\* [CM2] commits.prepared_job._jobs_listed: the job and whatever it lists anew carry a birth, and gc goes by each of them.
IsFenced(p, me, b, bs) ==
    /\ On("fence")
    /\ \/ bs[me.job] < b.fence
       \/ On("fence of files") /\ Writes(me.job) /\ FileBirth(FileOf(me.job, me.n), bs) < b.fence

\* [AB4] commits.two_phase.give_up
DecideGiveUp(p, me, v, bs) ==
    LET b == chain[v]
        job == Plan[p].of
    IN CASE b.rec[job] > 0 -> {Done(job, "committed", b.rec[job], me.n)}
         [] b.rec[job] = -1 -> {Done(job, "aborted", 0, me.n)}
         [] bs[job] < b.fence /\ On("give up before the fence") -> {[me EXCEPT !.pc = "history", !.base = v]}
         [] ~On("abort in the chain") -> {Done(job, "aborted", 0, me.n)}
         [] bs[me.job] < b.fence -> {Done(job, "stopped", 0, me.n)}  \* it would begin again; the model's has no second job
         [] OTHER -> {[me EXCEPT !.pc = "send", !.base = v]}

\* [KY3] [AB3] job.Job: whether the key was committed when the job began. Such a job has no work to commit, whoever tries.
FoundDone(job, bs) == PlanOf(job).key # "" /\ On("key") /\ bs[job] # 0 /\ chain[bs[job]].keys[PlanOf(job).key] > 0

\* What the head says of the job, and whether it may contend for the next version: where the process can stand after having read it.
\* [CM1] [CM2] [KY3] [KY5] commits.prepared_job.settled_outcome
Decide(p, me, v, bs) ==
    LET b == chain[v]
        job == me.job
        key == PlanOf(job).key
        birth == bs[job]
        blocked(st) == IsConflict(job, v, st, birth, me.arg)
        after(jobs) == Carried(Fresh(v), jobs, v, bs)
    IN CASE Plan[p].kind = "giveup" -> DecideGiveUp(p, me, v, bs)
         [] b.rec[job] > 0 /\ On("own job") -> {Counted(p, [me EXCEPT !.giving = FALSE], b.rec[job])}
         [] b.rec[job] = -1 -> {Done(job, IF me.pub THEN "conflict" ELSE "aborted", 0, me.n)}
         [] key # "" /\ On("key") /\ b.keys[key] > 0 -> {Already(job, key, b.keys[key], me.n)}
         [] FoundDone(job, bs) ->
               {IF On("key is gone") THEN Done(job, "conflict", 0, me.n) ELSE Already(job, key, chain[birth].keys[key], me.n)}
         [] IsFenced(p, me, b, bs) ->
               IF me.sent \/ me.pub \/ Plan[p].shared
               THEN IF On("history") THEN {[me EXCEPT !.pc = "history", !.base = v]} ELSE {Done(job, "fenced", 0, me.n)}
               ELSE {Done(job, "fenced", 0, me.n)}
         [] blocked(Fresh(v)) ->
               \* [CM21] commits.commit_loop.GroupCommit. A published job may be carried by others until the chain says that it is given up.
               IF me.pub /\ On("conflict in the chain")
               THEN {[me EXCEPT !.pc = "send", !.base = v, !.giving = TRUE, !.carry = <<>>]}
               ELSE {Done(job, "conflict", 0, me.n)}
         [] OTHER ->
               {[me EXCEPT !.pc = "send", !.base = v, !.giving = FALSE, !.carry = jobs] :
                   jobs \in IF Writes(job) THEN {each \in Bundles(job, v, bs) : ~blocked(after(each))
                                                     /\ (key # "" /\ On("key") => after(each).keys[key] <= 0)}
                                           ELSE {<<>>}}

\* [CM17] protocol.apply.apply: the bytes that a process sends are a function of its base and the changes.
Bytes(p) ==
    LET me == s[p]
        v == me.base + 1
        st == Carried(Fresh(me.base), me.carry, me.base, births)
        made == IF me.giving THEN [st EXCEPT !.rec = [@ EXCEPT ![me.job] = -1]]
                ELSE Apply(st, me.job, v, me.n, me.arg, births)
    IN [made EXCEPT !.who = p, !.n = me.n]

\* What gc, a rollback and a tag choose from the head at their birth. [GC1] [GC2] protocol.retention.choose
Choices(p) ==
    LET h == chain[Top] IN
    CASE Plan[p].kind = "gc" /\ Plan[p].part = "most" -> {<<Top, Top>>}
      [] Plan[p].kind = "gc" /\ Plan[p].part = "fence" -> {<<Top, h.expired>>}
      [] Plan[p].kind = "gc" /\ Wide ->
            {<<f, e>> \in (h.fence..Top) \X (h.expired..Top) : e <= f \/ ~On("expired below fence")}
      [] Plan[p].kind = "gc" -> {<<Top, Top>>, <<Top, h.expired>>}
                                \cup (IF On("expired below fence") THEN {} ELSE {<<h.fence, Top>>})
      [] Plan[p].kind = "rollback" -> {<<v, 0>> : v \in {w \in 1..(Top - 1) : Readable(w)}}
      [] Plan[p].kind = "rewind" -> {<<to, 0>> : to \in (IF Plan[p].part = "all" THEN {New} ELSE h.origin..(h.wm - 1))} \ {<<h.wm, 0>>}
      [] Plan[p].kind = "tag" -> {<<v, 0>> : v \in {w \in 1..Top : Readable(w)}} \cup {<<0, 0>>}
      [] OTHER -> {<<0, 0>>}

\* [GC3] operations.gc._changes_nothing: a decision that stands in the chain already is not committed again.
ChangesNothing(p, arg) ==
    LET h == chain[Top]
        after == Retained(h, Top + 1, Plan[p].forgets, arg, births)
    IN Plan[p].kind = "gc" /\ after = h

\* [AB4] Whether others can finish a job: it is prepared, recoverable or published.
IsHanded(job) == births[job] # 0 /\ (Plan[job].shared \/ job \in intents)

\* [CM15] job.Job: the birth is the head, read afresh; the file is written at any time from then on, here at once: nobody but a gc
\* looks at a file before it is listed, and a gc that takes it has fenced the job.
Begin(p) ==
    /\ s[p] = Idle
    /\ Plan[p].kind \in {"append", "overwrite", "replace", "rollback", "rewind", "tag", "gc", "giveup"}
    /\ Plan[p].key # "" => chain[Top].keys[Plan[p].key] # -1  \* who reruns after a key was forgotten, by policy, does the work anew
    /\ Plan[p].kind = "giveup" => IsHanded(Plan[p].of)
    /\ births' = [births EXCEPT ![p] = Top]
    /\ \E arg \in Choices(p) :
          \E me \in IF ChangesNothing(p, arg) \/ (Plan[p].kind = "gc" /\ ~On("decision first"))
                    THEN {Collecting([chain[Top] EXCEPT !.fence = arg[1], !.expired = arg[2]], Top)}
                    ELSE IF FoundDone(p, births') THEN {[pc |-> "found", job |-> p]}
                    ELSE Decide(p, Starting(p, FALSE, arg), Top, births') :
             s' = [s EXCEPT ![p] = me]
    /\ files' = IF Writes(p) THEN files \cup {<<p, 1>>} ELSE files
    /\ UNCHANGED <<chain, objects, intents, flying, lost>>

\* [KY3] job.Job.commit: who found its key done when it began says so of a head that it reads when it commits.
Confirm(p) ==
    /\ s[p].pc = "found"
    /\ \E me \in Decide(p, Starting(p, FALSE, <<0, 0>>), Top, births) : s' = [s EXCEPT ![p] = me]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

\* [AB3] commits.two_phase.commit_prepared: another process commits a job that has been made durable, under the same id.
\* [AB6] commits.task_recovery.Recovery.find: a rerun goes on under the id of a job that is in no record and not fenced, or begins its own.
Join(p) ==
    /\ s[p] = Idle
    /\ Plan[p].kind \in {"finish", "rerun"}
    /\ IsHanded(Plan[p].of)
    /\ Plan[p].key # "" => chain[Top].keys[Plan[p].key] # -1
    /\ LET job == Plan[p].of
           h == chain[Top]
           joins == Plan[p].kind = "finish" \/ (On("same id") /\ h.rec[job] = 0 /\ births[job] >= h.fence)
       IN /\ births' = IF joins THEN births ELSE [births EXCEPT ![p] = Top]
          /\ files' = IF joins \/ ~On("same id") THEN files ELSE files \cup {<<p, 1>>}
          /\ \E me \in Decide(p, Starting(IF joins THEN job ELSE p, joins, <<0, 0>>), Top, births') : s' = [s EXCEPT ![p] = me]
    /\ UNCHANGED <<chain, objects, intents, flying, lost>>

\* A commit of which only that it took a version matters to the others, in one step: what makes versions grow old in small models.
Overtake(p) ==
    /\ s[p] = Idle
    /\ Plan[p].kind \in {"other", "quick"}
    /\ Top < MaxVersion
    /\ Plan[p].key # "" => chain[Top].keys[Plan[p].key] = 0
    /\ Fits(Plan[p], chain[Top])
    /\ births' = [births EXCEPT ![p] = Top]
    /\ Create(Top + 1, [Apply(Fresh(Top), p, Top + 1, 1, <<0, 0>>, births') EXCEPT !.who = p, !.n = 1])
    /\ files' = IF Writes(p) THEN files \cup {<<p, 1>>} ELSE files
    /\ s' = [s EXCEPT ![p] = Done(p, "committed", Top + 1, 1)]
    /\ UNCHANGED <<intents, flying, lost>>

IsSending(p) == s[p].pc \in {"send", "unclear"}
Wanted(p) == s[p].base + 1

\* [CM3] commits.commit_loop.create_version: the create, which succeeds. After an unclear answer the same bytes again. [CM6]
Send(p) ==
    /\ IsSending(p)
    /\ Wanted(p) <= MaxVersion
    /\ Create(Wanted(p), Bytes(p))
    /\ s' = [s EXCEPT ![p].pc = "won", ![p].sent = TRUE]
    /\ UNCHANGED <<files, births, intents, flying, lost>>

\* [CM4] commits.commit_loop.create_version: the name is taken.
SendTaken(p) ==
    /\ IsSending(p)
    /\ Wanted(p) <= MaxVersion
    /\ ~IsFree(Wanted(p))
    /\ s' = [s EXCEPT ![p].pc = "taken", ![p].sent = TRUE]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

\* [ST5] [CM6] commits.commit_loop.create_version: no answer. The create took effect, or it has not yet and may at any later time.
SendUnclear(p) ==
    /\ IsSending(p)
    /\ Wanted(p) <= MaxVersion
    /\ lost < MaxLost
    /\ lost' = lost + 1
    /\ s' = [s EXCEPT ![p].pc = "unclear", ![p].sent = TRUE]
    /\ \/ Create(Wanted(p), Bytes(p)) /\ flying' = flying
       \/ flying' = flying \cup {[v |-> Wanted(p), bytes |-> Bytes(p)]} /\ UNCHANGED <<chain, objects>>
    /\ UNCHANGED <<files, births, intents>>

\* A create that was thought lost arrives, its sender being alive or not.
Arrive(m) ==
    /\ Create(m.v, m.bytes)
    /\ flying' = flying \ {m}
    /\ UNCHANGED <<files, births, s, intents, lost>>

\* What goes wrong where an unclear answer is taken for a failure: other bytes for the same name (CM6), or own files deleted (AB1).
Misjudge(p) ==
    /\ s[p].pc = "unclear"
    /\ \/ /\ ~On("same bytes") /\ s[p].n = 1 /\ Writes(s[p].job)
          /\ s' = [s EXCEPT ![p].n = 2]
          /\ files' = files \cup {<<s[p].job, 2>>}
       \/ /\ ~On("delete nothing") /\ Writes(s[p].job)
          /\ files' = files \ {<<s[p].job, s[p].n>>}
          /\ s' = [s EXCEPT ![p] = Done(s[p].job, "unknown", 0, 1)]
    /\ UNCHANGED <<chain, objects, births, intents, flying, lost>>

\* [CM4] commits.commit_loop.create_version: the snapshot that took the version has the own commit id, or not; then the head is read, later.
LookAtWinner(p) ==
    /\ s[p].pc = "taken"
    /\ LET v == Wanted(p)
           isMine == objects[v] # Gone /\ Object(v).who = p
           \* What the outcome of a process without the look above would be.
           trusting == isMine /\ ~On("look above after a loss")
       IN \E me \in CASE trusting -> {Counted(p, s[p], v)}
                      [] isMine -> {[s[p] EXCEPT !.pc = "won"]}
                      [] OTHER -> Decide(p, s[p], IF On("head after a loss") THEN Top ELSE s[p].base, births) :
             s' = [s EXCEPT ![p] = me]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

\* [CM5] commits.commit_loop._CommitLoop._confirm: a list from the base on, and the head if anything stands above. That something stands above stays
\* true, so that both requests are one step. The version that is told is one whose record holds the job.
LookAbove(p) ==
    /\ s[p].pc = "won"
    /\ LET v == Wanted(p)
           h == chain[Top]
           job == s[p].job
       IN \E me \in CASE Top = v \/ ~On("look above") -> {Counted(p, s[p], v)}
                      [] v >= h.expired -> {Counted(p, s[p], v)}
                      [] h.rec[job] > 0 /\ ~s[p].giving -> {Counted(p, s[p], IF On("recorded version") THEN h.rec[job] ELSE v)}
                      [] OTHER -> Decide(p, s[p], Top, births) :
             s' = [s EXCEPT ![p] = me]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

\* [CM2] commits.prepared_job.fenced_outcome: of a job behind the fence that may have sent a create, only all versions since its birth can tell.
\* They are read after the head that said so; none of them may have expired by the time they all are read, since an object of an expired
\* version may be a stranger.
ReadHistory(p) ==
    /\ s[p].pc = "history"
    /\ LET job == Concerns(p, s[p])
           since == (births[job] + 1)..s[p].base
           isGone == \E v \in since : v < chain[s[p].base].expired \/ objects[v] = Gone
           isOver == On("history again") /\ \E v \in since : v < chain[Top].expired
           carries == {v \in since : objects[v] # Gone /\ job \in Object(v).by}
       IN s' = [s EXCEPT ![p] =
             CASE isGone \/ isOver -> Done(job, "unknown", 0, s[p].n)
               [] carries # {} -> Done(job, "committed", CHOOSE v \in carries : TRUE, s[p].n)
               [] OTHER -> Done(job, "fenced", 0, s[p].n)]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

CommitStep(p) ==
    \/ Begin(p) \/ Confirm(p) \/ Join(p) \/ Overtake(p) \/ Send(p) \/ SendTaken(p) \/ SendUnclear(p) \/ Misjudge(p) \/ LookAtWinner(p) \/ LookAbove(p)
    \/ ReadHistory(p) \/ Publish(p)

=============================================================================
