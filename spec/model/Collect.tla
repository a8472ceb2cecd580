------------------------------ MODULE Collect -------------------------------
(* What gc does once its decision stands in the chain: read what stays, look again, delete (section 12).                             *)
EXTENDS Commit

Begins(g) == [Collecting(chain[Top], Top) EXCEPT !.pc = "collect"]

\* [GC4] operations.gc.collect: every version that may be read. Whether they are read at one moment or one by one is the same for what
\* follows (`OneByOne` tries both): the look that comes after tells whether any of them may have been gone, or a stranger, when it was read.
ReadVersions(g) ==
    /\ s[g].pc = "collect"
    /\ LET now == IF OneByOne THEN {CHOOSE v \in s[g].todo : \A w \in s[g].todo : v <= w} ELSE s[g].todo
           isMissing == \E v \in now : objects[v] = Gone
           reached == UNION {Object(v).live : v \in {w \in now : objects[w] # Gone}}
           rest == s[g].todo \ now
       IN s' = [s EXCEPT ![g] =
             IF isMissing /\ On("no version gone") THEN Begins(g)
             ELSE [@ EXCEPT !.todo = rest, !.reach = @ \cup reached, !.pc = IF rest = {} THEN "again" ELSE "collect"]]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

\* [GC4] operations.gc.collect: the head again. If it says that one of them may no longer be read, another gc went further: start over.
LookAgain(g) ==
    /\ s[g].pc = "again"
    /\ LET mine == [expired |-> s[g].expired, tag |-> s[g].tag]
           wereRead == {v \in 1..s[g].v : IsReadable(mine, s[g].v, v)}
       IN s' = [s EXCEPT ![g] =
             IF On("gc looks again") /\ \E v \in wereRead : ~Readable(v) THEN Begins(g)
             ELSE [@ EXCEPT !.pc = "delete", !.todo = {}]]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

\* [GC5] [GC7] operations.gc._delete_dead, protocol.retention.classify: files of jobs born below the fence that nothing reaches. All at one moment: no
\* process looks at a file but through a snapshot, so that what counts is for each file alone whether it is there.
DeleteFiles(g) ==
    /\ s[g].pc = "delete"
    /\ files' = {f \in files : f \in s[g].reach \/ FileBirth(f, births) >= s[g].fence}
    /\ s' = [s EXCEPT ![g].pc = "expire", ![g].reach = {}]
    /\ UNCHANGED <<chain, objects, births, intents, flying, lost>>

\* [GC7] operations.gc._delete_batch: versions that are expired and not tagged, the lowest first.
DeleteVersion(g) ==
    /\ s[g].pc = "expire"
    /\ LET dead == {v \in 1..Top : objects[v] # Gone /\ v < s[g].expired /\ (v # s[g].tag \/ ~On("tags"))} IN
       /\ dead # {}
       /\ objects' = [objects EXCEPT ![CHOOSE v \in dead : \A w \in dead : v <= w] = Gone]
    /\ UNCHANGED <<chain, files, births, s, intents, flying, lost>>

CollectStep(g) == ReadVersions(g) \/ LookAgain(g) \/ DeleteFiles(g) \/ DeleteVersion(g)

=============================================================================
