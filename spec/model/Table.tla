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

\* Whether a version sets time back, for the source or for a key.
SetsBack(v) == \E j \in chain[v].by : PlanOf(j).kind \in {"rewind", "rollback"}
MovesSource(v) == SetsBack(v) /\ chain[v].wm # chain[v - 1].wm
Drops(v, k) == SetsBack(v) /\ chain[v - 1].keys[k] # 0 /\ chain[v].keys[k] = 0

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

\* Whether the work of a key is in the table at a version, whatever gc has forgotten: a rewind drops it, a rollback restores what was.
RECURSIVE IsDone(_, _)
IsDone(v, k) ==
    CASE v = 1 -> FALSE
      [] chain[v].back # 0 -> IsDone(chain[v].back, k)
      [] Drops(v, k) -> FALSE
      [] \E j \in chain[v].by : PlanOf(j).key = k -> TRUE
      [] OTHER -> IsDone(v - 1, k)

\* [KY3] [KY4] [KY5] [IV3] One key, one commit, whatever crashed and was run again, unless a rewind or a rollback has undone it.
KeyOnce ==
    \A v \in Versions \ {1} : \A k \in Keys :
        LET mine == {j \in chain[v].by : PlanOf(j).key = k} IN Cardinality(mine) <= 1 /\ (mine # {} => ~IsDone(v - 1, k))

\* [KY6] One batch of a query, one commit, unless a rollback has undone it.
BatchOnce ==
    \A v, w \in Versions : \A i \in chain[v].by, j \in chain[w].by :
        (i # j /\ v <= w /\ PlanOf(i).batch # 0 /\ PlanOf(i).batch = PlanOf(j).batch) => \E u \in (v + 1)..w : chain[u].back \in 1..(v - 1)

\* [KY3] Who is told that the key is committed finds it there, and found the head holding it.
AlreadyIsTrue ==
    \A p \in Procs : (Told(p) /\ s[p].kind = "already") =>
        s[p].isHeld /\ \E i \in chain[s[p].v].by : PlanOf(i).key = PlanOf(s[p].job).key

\* [CF13] [WM5] What a rewind or a rollback took back is not done again by who had begun before: it has not seen why.
NothingFromBefore ==
    \A v \in Versions : \A j \in chain[v].by : \A u \in (births[j] + 1)..(v - 1) :
        LET plan == PlanOf(j) IN
        /\ plan.end # 0 => ~MovesSource(u)
        /\ plan.key # "" => ~Drops(u, plan.key)
        /\ plan.batch # 0 /\ SetsBack(u) => chain[u].batch = chain[u - 1].batch

\* [RD2] A read is exactly one committed snapshot.
ReadsAreCommitted == \A r \in Procs : s[r].pc = "read" => s[r].isTrue

\* [WM2] [WM4] Watermarks move by advances from where they stood, or by a rollback.
Range(job) == PlanOf(job).start..(PlanOf(job).end - 1)
WatermarksAdvance ==
    \A v \in Versions \ {1} :
        LET moving == {j \in chain[v].by : PlanOf(j).end # 0}
            before == IF SetsBack(v) THEN chain[v].wm ELSE IF chain[v - 1].wm = New /\ moving # {} THEN chain[v].origin ELSE chain[v - 1].wm
        IN /\ UNION {Range(j) : j \in moving} = before..(chain[v].wm - 1)
           /\ chain[v].back # 0 => chain[v].wm \in {chain[chain[v].back].wm, chain[v - 1].origin}
           /\ \A i, j \in moving : i # j => Range(i) \cap Range(j) = {}

\* [CM3] [WM4] Data and watermark change together: the rows that a snapshot holds are those up to its watermark, from where the source's first
\* advance ever began. (Not where an overwrite took some, or a rewind left some.)
Began ==
    LET advances == {v \in Versions : \E j \in chain[v].by : PlanOf(j).end # 0}
    IN IF Declared \/ advances = {} THEN 0 ELSE chain[CHOOSE v \in advances : \A w \in advances : v <= w].origin
RowsMatchWatermark ==
    (\A p \in Procs : Plan[p].kind \notin {"overwrite", "rewind"}) =>
        \A v \in Versions :
            UNION {Range(f[1]) : f \in {each \in chain[v].live \ {OldFile} : PlanOf(each[1]).end # 0}} = Began..(chain[v].wm - 1)

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
INVARIANTS: VersionsStand FilesAreThere AcknowledgedStands CommittedOnce RefusedStaysOut KeyOnce BatchOnce AlreadyIsTrue NothingFromBefore ReadsAreCommitted WatermarksAdvance RowsMatchWatermark NoRowTwice OverwritesSawAll RollbacksSawAll FencesRise OpenJobsAreKept
*)

\* [IV9] Someone always gets through: under fair scheduling every writer comes to an outcome. (Where no answer is lost, and the versions
\* suffice.)
EveryoneIsDone == <>(\A p \in Procs : s[p].pc = "done")
FairSpec == Spec /\ \A p \in Procs : WF_vars(CommitStep(p) \/ CollectStep(p) \/ ReadStep(p))

=============================================================================
