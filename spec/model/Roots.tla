-------------------------------- MODULE Roots -------------------------------
(* A root whose table is removed while jobs of it run, and where another table is made: versions of both have the same names. A model   *)
(* of its own, since nothing of the rest matters for it: no gc runs, and each job creates one version.                                  *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Plan,        \* process -> what it does
    MaxVersion,
    Off,         \* the rules that are switched off
    Gone         \* no object has this name

VARIABLES
    objects,  \* version -> Gone, or what stands there: its table, who created it, and what it was built upon
    markers,  \* the tables whose markers are there
    s         \* process -> where it stands, and what it remembers

vars == <<objects, markers, s>>

Procs == DOMAIN Plan
On(rule) == rule \notin Off

Remove == "remove"  \* a person removes the root: all that a list shows, one by one, in any order
Make == "make"      \* makes a table where a list shows none
Add == "add"        \* commits to the table that it finds
Look == "look"      \* opens the head

Nothing == <<"", "">>
Object(table, who, upon) == [id |-> <<table, who>>, table |-> table, upon |-> upon]
There == {v \in 1..MaxVersion : objects[v] # Gone}
Highest == CHOOSE v \in There : \A w \in There : w <= v
IdAt(v) == IF v \notin There THEN Nothing ELSE objects[v].id

\* The first table, "old", has its marker and one version.
Init ==
    /\ objects = [v \in 1..MaxVersion |-> IF v = 1 THEN Object("old", "", Nothing) ELSE Gone]
    /\ markers = {"old"}
    /\ s = [p \in Procs |-> [pc |-> "idle"]]

\* Whether the removal of the first table is over. Before that, parts of it are there.
IsRemoved == \A p \in Procs : Plan[p] = Remove => s[p].pc = "done"

\* [LY14] log.version_chain.misplaced: what a list shows as the head is of the table whose marker it shows.
IsPlaced(v) == ~On("marker of the head") \/ objects[v].table \in markers

\* [LY10] What a person removes: what is there when they begin.
BeginRemoving(p) ==
    /\ Plan[p] = Remove /\ s[p].pc = "idle"
    /\ s' = [s EXCEPT ![p] = [pc |-> "removing", left |-> There, marks |-> markers]]
    /\ UNCHANGED <<objects, markers>>

RemoveNext(p) ==
    /\ s[p].pc = "removing"
    /\ \/ \E v \in s[p].left : objects' = [objects EXCEPT ![v] = Gone] /\ s' = [s EXCEPT ![p].left = @ \ {v}] /\ UNCHANGED markers
       \/ \E t \in s[p].marks : markers' = markers \ {t} /\ s' = [s EXCEPT ![p].marks = @ \ {t}] /\ UNCHANGED objects
       \/ s[p].left = {} /\ s[p].marks = {} /\ s' = [s EXCEPT ![p] = [pc |-> "done", kind |-> "removed"]] /\ UNCHANGED <<objects, markers>>

\* [CM13] [LY14] commits.commit_loop.create_table: the marker comes before version 1.
PutMarker(p) ==
    /\ Plan[p] = Make /\ s[p].pc = "idle" /\ There = {}
    /\ markers' = markers \cup {p}
    /\ s' = [s EXCEPT ![p] = [pc |-> "marked"]]
    /\ UNCHANGED objects

\* [CM13] commits.commit_loop.create_table: of several creators one has version 1. The others take their markers away.
CreateTable(p) ==
    /\ s[p].pc = "marked"
    /\ IF objects[1] = Gone
       THEN objects' = [objects EXCEPT ![1] = Object(p, p, Nothing)] /\ UNCHANGED markers
       ELSE markers' = markers \ {p} /\ UNCHANGED objects
    /\ s' = [s EXCEPT ![p] = [pc |-> "done", kind |-> "made"]]

\* [RD1] log.version_chain.newest_above. A writer begins with the head: its table is that of the job from then on.
Open(p) ==
    /\ Plan[p] \in {Add, Look} /\ s[p].pc = "idle" /\ There # {}
    /\ LET head == objects[Highest]
           \* Of a table that is being removed, anything may be left; once it is gone, a head is built upon what is there.
           isTrue == ~IsRemoved \/ head.upon = Nothing \/ IdAt(Highest - 1) \in {head.upon, Nothing}
       IN s' = [s EXCEPT ![p] =
             CASE ~IsPlaced(Highest) -> [pc |-> "done", kind |-> "refused"]
               [] Plan[p] = Look -> [pc |-> "done", kind |-> "read", isTrue |-> isTrue]
               [] OTHER -> [pc |-> "send", table |-> head.table, base |-> Highest, upon |-> head.id]]
    /\ UNCHANGED <<objects, markers>>

\* [CM3] commits.commit_loop.create_version: a version's name says nothing of its table. Where it is taken, the model's job stops.
Send(p) ==
    /\ s[p].pc = "send" /\ s[p].base < MaxVersion
    /\ IF objects[s[p].base + 1] = Gone
       THEN /\ objects' = [objects EXCEPT ![s[p].base + 1] = Object(s[p].table, p, s[p].upon)]
            /\ s' = [s EXCEPT ![p].pc = "won"]
       ELSE s' = [s EXCEPT ![p] = [pc |-> "done", kind |-> "lost"]] /\ UNCHANGED objects
    /\ UNCHANGED markers

\* [CM5] [LY14] log.table_context.check_same_root: a create counts after a list that shows the base and the marker of the job's own table. Where it shows
\* others, too, the base is read again, later, and has to be what it was.
Count(p) ==
    /\ s[p].pc = "won"
    /\ LET v == s[p].base + 1
           isThere == objects[v] # Gone /\ objects[s[p].base] # Gone
           isMissing == s[p].table \notin markers
           isClear == markers \subseteq {s[p].table}
           told == [pc |-> "done", kind |-> "committed", isTrue |-> IdAt(s[p].base) = s[p].upon]
       IN s' = [s EXCEPT ![p] = CASE ~isThere \/ isMissing -> [pc |-> "done", kind |-> "removed"]
                                  [] ~isClear /\ On("base again") -> [@ EXCEPT !.pc = "again"]
                                  [] OTHER -> told]
    /\ UNCHANGED <<objects, markers>>

\* [CM5] log.table_context.check_same_root: the base, read again.
ReadBase(p) ==
    /\ s[p].pc = "again"
    /\ s' = [s EXCEPT ![p] = IF IdAt(s[p].base) = s[p].upon THEN [pc |-> "done", kind |-> "committed", isTrue |-> TRUE]
                             ELSE [pc |-> "done", kind |-> "removed"]]
    /\ UNCHANGED <<objects, markers>>

Next ==
    \E p \in Procs :
        BeginRemoving(p) \/ RemoveNext(p) \/ PutMarker(p) \/ CreateTable(p) \/ Open(p) \/ Send(p) \/ Count(p) \/ ReadBase(p)

Spec == Init /\ [][Next]_vars

\* [LY10] [CM5] [IV2] A job is acknowledged in its own table only: on top of what it was built upon.
AcknowledgedInItsTable == \A p \in Procs : (s[p].pc = "done" /\ s[p].kind = "committed") => s[p].isTrue

\* [LY10] [RD2] Once a table is removed, none of its jobs' versions is read at that root: what is read is built upon what is there.
ReadsAreOfTheRoot == \A p \in Procs : (s[p].pc = "done" /\ s[p].kind = "read") => s[p].isTrue

(* What the checker is told to check, in each configuration:
INVARIANTS: AcknowledgedInItsTable ReadsAreOfTheRoot
*)

=============================================================================
