------------------------------- MODULE Table --------------------------------
(* The whole: all steps of all processes, and what must always hold (section 13). Of its invariants IV5 needs no check here, since     *)
(* nobody sees a file but through a snapshot, and IV10 speaks of costs, which a model has none of.                                    *)
EXTENDS Reading

Next ==
    \/ \E p \in Procs : CommitStep(p) \/ CollectStep(p) \/ ReadStep(p)
    \/ \E m \in flying : Arrive(m)

Spec == Init /\ [][Next]_vars

Versions == 1..Top
Told(p) == s[p].pc = "done"
Carriers(job) == {v \in Versions : job \in chain[v].by}

\* [IV1] One winner per version, and what may be read is there: contiguous from `expired` to the head, and what is tagged below.
VersionsStand == \A v \in Versions : Readable(v) => objects[v] = Stands

\* [IV2] [IV6] [IV7] Every file that a readable version lists is there.
FilesAreThere == \A v \in Versions : Readable(v) => chain[v].live \subseteq files

\* [IV2] [IV8] An acknowledged commit is in the history, at the version that was told, with the bytes that were meant.
AcknowledgedStands ==
    \A p \in Procs : (Told(p) /\ s[p].kind = "committed") =>
        /\ s[p].v \in Versions
        /\ s[p].job \in chain[s[p].v].by
        /\ chain[s[p].v].who = p => chain[s[p].v].n = s[p].n

\* [IV4] Whatever answers were lost, a job is committed once.
CommittedOnce == \A job \in Procs : Cardinality(Carriers(job)) <= 1

\* [IV4] [CM21] [AB4] Who is told that nothing was committed is told the truth, also of what happens later. A conflict of a job that others
\* can finish leaves it as it is (AB3).
IsFinal(p) == s[p].kind \in {"fenced", "aborted"} \/ (s[p].kind = "conflict" /\ ~Plan[p].shared)
RefusedStaysOut == \A p \in Procs : (Told(p) /\ IsFinal(p)) => Carriers(s[p].job) = {}

\* [KY3] [KY5] [IV3] One key, one commit, whatever crashed and was run again, unless a rollback has undone it.
KeyOnce ==
    \A v, w \in Versions : \A i \in chain[v].by, j \in chain[w].by :
        (i # j /\ v <= w /\ PlanOf(i).key # "" /\ PlanOf(i).key = PlanOf(j).key) => \E u \in (v + 1)..w : chain[u].back \in 1..(v - 1)

\* [KY3] Who is told that the key is committed finds it there.
AlreadyIsTrue ==
    \A p \in Procs : (Told(p) /\ s[p].kind = "already") => \E i \in chain[s[p].v].by : PlanOf(i).key = PlanOf(s[p].job).key

\* [RD2] A read is exactly one committed snapshot.
ReadsAreCommitted == \A r \in Procs : s[r].pc = "read" => s[r].isTrue

\* [WM2] [WM4] Watermarks move by advances from where they stood, or by a rollback.
Range(job) == PlanOf(job).start..(PlanOf(job).end - 1)
WatermarksAdvance ==
    \A v \in Versions \ {1} :
        LET moving == {j \in chain[v].by : PlanOf(j).end # 0}
            before == IF chain[v].back # 0 THEN chain[chain[v].back].wm ELSE chain[v - 1].wm
        IN /\ UNION {Range(j) : j \in moving} = before..(chain[v].wm - 1)
           /\ \A i, j \in moving : i # j => Range(i) \cap Range(j) = {}

\* [CM3] [WM4] Data and watermark change together: the rows that a snapshot holds are those up to its watermark. (Not where an overwrite took some.)
RowsMatchWatermark ==
    (\A p \in Procs : Plan[p].kind # "overwrite") =>
        \A v \in Versions :
            UNION {Range(f[1]) : f \in {each \in chain[v].live \ {OldFile} : PlanOf(each[1]).end # 0}} = 0..(chain[v].wm - 1)

\* [IV6] No row is live twice: a replacing file has the rows of those that it replaces.
RowsOf(f) == IF f # OldFile /\ PlanOf(f[1]).kind = "replace" THEN {OldFile} ELSE {f}
NoRowTwice == \A v \in Versions : \A f, g \in chain[v].live : f # g => RowsOf(f) \cap RowsOf(g) = {}

\* [CF3] A serializable overwrite has seen everything that it took away.
OverwritesSawAll ==
    \A v \in Versions : \A j \in chain[v].by : PlanOf(j).kind = "overwrite" =>
        /\ \A w \in (births[j] + 1)..(v - 1) : \A i \in chain[w].by : ~Touches(i, PlanOf(j).part)
        /\ \A i \in chain[v].by \ {j} : ~Touches(i, PlanOf(j).part)

\* [CF13] A rollback undoes only what it has seen.
RollbacksSawAll == \A v \in Versions : chain[v].back # 0 => \A j \in chain[v].by : births[j] = v - 1

\* [GC2] Neither `expired` nor the fence ever decreases, and `expired` does not pass the fence.
FencesRise ==
    \A v \in Versions :
        /\ chain[v].expired <= chain[v].fence /\ chain[v].fence <= v
        /\ v > 1 => chain[v - 1].expired <= chain[v].expired /\ chain[v - 1].fence <= chain[v].fence

\* [IV7] [GC2] A job that can still commit finds its birth, and what it has written.
IsOpen(p) ==
    /\ s[p].pc \in {"send", "unclear", "taken", "won"}
    /\ births[s[p].job] >= chain[Top].fence
    /\ Writes(s[p].job) => FileBirth(FileOf(s[p].job, s[p].n), births) >= chain[Top].fence
OpenJobsAreKept ==
    \A p \in Procs : IsOpen(p) =>
        objects[births[s[p].job]] = Stands /\ (Writes(s[p].job) => FileOf(s[p].job, s[p].n) \in files)

(* What the checker is told to check, in each configuration:
INVARIANTS: VersionsStand FilesAreThere AcknowledgedStands CommittedOnce RefusedStaysOut KeyOnce AlreadyIsTrue ReadsAreCommitted WatermarksAdvance RowsMatchWatermark NoRowTwice OverwritesSawAll RollbacksSawAll FencesRise OpenJobsAreKept
*)

\* [IV9] Someone always gets through: under fair scheduling every writer comes to an outcome. (Where no answer is lost, and the versions
\* suffice.)
EveryoneIsDone == <>(\A p \in Procs : s[p].pc = "done")
FairSpec == Spec /\ \A p \in Procs : WF_vars(CommitStep(p) \/ CollectStep(p) \/ ReadStep(p))

=============================================================================
