-------------------------------- MODULE Gate --------------------------------
(* What may be published: constraints that are added and dropped beside jobs of all kinds. A model of its own: of a table it has its     *)
(* constraints and its rows. That a create counts once is shown by Table, that a joint commit is one by Joint: here they are one step.    *)
EXTENDS Integers, FiniteSets, Sequences, TLC

CONSTANTS
    Plan,        \* process -> what it does; the operators below make such records
    MaxVersion,  \* no version is above it
    Off,         \* the rules that are switched off
    Gone         \* nobody's

VARIABLES
    chain,    \* the table's snapshots, in the order of their versions
    refused,  \* the rows that its quarantine holds
    s         \* process -> where it stands, and what it remembers

vars == <<chain, refused, s>>

Procs == DOMAIN Plan
On(rule) == rule \notin Off

----------------------------------------------------------------------------
(* What a process does. A row is a kind of value; a constraint refuses kinds.                                                            *)

Nothing == [kind |-> "", rows |-> {}, name |-> "", refuses |-> {}, to |-> 0, key |-> ""]
Write(rows) == [Nothing EXCEPT !.kind = "write", !.rows = rows]            \* the writer checks its rows
Unseen(rows) == [Write(rows) EXCEPT !.kind = "unseen"]                       \* nobody has: files of others
Keyed(key, rows) == [Write(rows) EXCEPT !.kind = "quarantine", !.key = key]   \* refused rows go into the quarantine
Audited(rows) == [Write(rows) EXCEPT !.kind = "audited"]                     \* staged, and checked as the table that it would make
Replace == [Nothing EXCEPT !.kind = "replace"]                               \* a file with the same row in place of another one
Add(name, refuses) == [Nothing EXCEPT !.kind = "add", !.name = name, !.refuses = refuses]
Drop(name) == [Nothing EXCEPT !.kind = "drop", !.name = name]
Back(to) == [Nothing EXCEPT !.kind = "rollback", !.to = to]

Writers == {p \in Procs : Plan[p].rows # {}}
WhoseRows(p) == IF Plan[p].key = "" THEN p ELSE Plan[p].key

----------------------------------------------------------------------------
(* Snapshots. held: the constraints, each with its name, its id, which is who added it, and what it refuses; live: files of one row      *)
(* each, with whose row it is, its kind, and who wrote the file; by: whose commits it has; touched: whether it changes rows [OB8].    *)

FirstVersion == [held |-> {}, live |-> {}, by |-> {}, keys |-> {}, touched |-> FALSE]
Top == Len(chain)
Newest == chain[Top]
Ids(held) == {c.id : c \in held}
Row(f) == <<f.of, f.row>>
Rows(h) == {Row(f) : f \in h.live}
Violates(rows, held) == \E c \in held : rows \cap c.refuses # {}
RowsThere(h) == {f.row : f \in h.live}
Mine(p) == {c \in Newest.held : c.name = Plan[p].name}

Init ==
    /\ chain = <<FirstVersion>>
    /\ refused = {}
    /\ s = [p \in Procs |-> [pc |-> "idle"]]

Done(kind) == [pc |-> "done", kind |-> kind, v |-> Top]

\* Whether a winner since version v has changed rows.
Came(v) == \E w \in (v + 1)..Top : chain[w].touched

----------------------------------------------------------------------------
(* A job reads the head, creates the next version, and where that is taken, judges the newest head. me.at: the head that it has judged;   *)
(* me.checked: the constraints that none of its rows violates; me.proven: the version of which it knows the rows; me.waits: published.   *)

\* [CK2] protocol.conflict.rows_are_unchecked: what the rows were not checked against.
Lacking(me) ==
    IF ~On("rows checked") THEN {}
    ELSE {c \in Newest.held : IF On("ids") THEN c.id \notin Ids(me.checked) ELSE c.name \notin {d.name : d \in me.checked}}

\* What a process knows once it has looked at the head. [CK2] commits.commit_loop.commit: rows are checked again, and it goes on or ends.
Judged(p, me) ==
    LET plan == Plan[p]
        ready == [me EXCEPT !.pc = "send", !.at = Top]
        \* [CK3] gate.constraints.add: rows that came since are proven, too. [CK6] staging.Staged.publish: the checks are repeated.
        again == [ready EXCEPT !.proven = Top, !.seen = Rows(Newest)]
        isHeld == IF plan.kind = "add" THEN On("rows since the proof") ELSE On("rows since the audit")
        isOld == me.proven = 0 \/ (Came(me.proven) /\ isHeld)
    IN CASE plan.key \in Newest.keys /\ On("key of a split") -> Done("already")
         [] plan.kind = "rollback" -> IF me.at = 0 THEN ready ELSE Done("conflict")
         [] plan.kind = "replace" -> IF me.file \in Newest.live THEN ready ELSE Done("conflict")
         [] plan.kind = "drop" -> IF Mine(p) = {} THEN Done("conflict") ELSE ready
         [] plan.kind = "add" ->
                IF Mine(p) # {} /\ On("one of a name") THEN Done("conflict")
                ELSE IF isOld THEN IF RowsThere(Newest) \cap plan.refuses # {} THEN Done("refused") ELSE again
                ELSE ready
         [] Violates(me.rows, Lacking(me)) -> Done("refused")
         [] OTHER -> [(IF plan.kind = "audited" /\ isOld THEN again ELSE ready) EXCEPT !.checked = @ \cup Lacking(me)]

Fresh(p) == [pc |-> "idle", at |-> 0, proven |-> 0, seen |-> {}, waits |-> FALSE, file |-> Gone,
             rows |-> Plan[p].rows, bad |-> {}, checked |-> {}]

\* [CK7] quarantine.write_quarantined: rows are split by the constraints of the head, and so many are checked.
Split(p) ==
    LET bad == {r \in Plan[p].rows : \E c \in Newest.held : r \in c.refuses}
    IN [Fresh(p) EXCEPT !.rows = Plan[p].rows \ bad, !.bad = bad, !.checked = Newest.held]

\* [CM15] [CK2] job.Job: the head is read; a writer checks its rows while it writes them.
Begin(p) ==
    /\ s[p].pc = "idle"
    /\ Plan[p].kind = "rollback" => Top > Plan[p].to
    /\ IF Plan[p].kind = "replace"
       THEN \E f \in Newest.live : s' = [s EXCEPT ![p] = Judged(p, [Fresh(p) EXCEPT !.file = f])]
       ELSE s' = [s EXCEPT ![p] = Judged(p, IF Plan[p].kind = "quarantine" THEN Split(p) ELSE Fresh(p))]
    /\ UNCHANGED <<chain, refused>>

\* [CM19] commits.commit_loop.GroupCommit.publish: an append that has lost may be carried by others.
Publish(p) ==
    /\ s[p].pc = "send" /\ s[p].at < Top /\ ~s[p].waits
    /\ Plan[p].kind \in {"write", "unseen"}
    /\ s' = [s EXCEPT ![p].waits = TRUE]
    /\ UNCHANGED <<chain, refused>>

Files(p) == {[of |-> WhoseRows(p), row |-> r, who |-> p] : r \in s[p].rows}

\* [CM20] [CK2] commits.commit_loop.GroupCommit.carry: those whose rows were checked against all that the table holds to.
Carriable(p) ==
    {q \in Procs \ (Newest.by \cup {p}) :
        /\ s[q].pc = "send" /\ s[q].waits /\ \A v \in 1..Top : q \notin chain[v].by
        /\ On("carry what is checked") => Lacking(s[q]) = {}}
Carries(p) == Plan[p].kind \in {"write", "unseen"} \/ (Plan[p].kind = "audited" /\ ~On("audited alone"))

\* [CK3] [CK4] protocol.apply.apply: the next version.
Made(p, others) ==
    LET plan == Plan[p]
        h == Newest
        jobs == {p} \cup others
        next == [h EXCEPT !.by = jobs, !.touched = plan.rows # {}, !.keys = @ \cup ({plan.key} \ {""})]
    IN CASE plan.kind = "add" ->
              [next EXCEPT !.held = (@ \ Mine(p)) \cup {[name |-> plan.name, id |-> p, refuses |-> plan.refuses]}]
         [] plan.kind = "drop" -> [next EXCEPT !.held = @ \ Mine(p)]
         [] plan.kind = "replace" -> [next EXCEPT !.live = (@ \ {s[p].file}) \cup {[s[p].file EXCEPT !.who = p]}]
         [] plan.kind = "rollback" ->
              [next EXCEPT !.live = chain[plan.to].live, !.touched = TRUE,
                           !.held = IF On("constraints of the target") THEN chain[plan.to].held ELSE @]
         [] OTHER -> [next EXCEPT !.live = @ \cup UNION {Files(q) : q \in jobs}]

\* [CM3] [CK7] commits.commit_loop.create_version: the create, of the refused rows as well.
Send(p) ==
    /\ s[p].pc = "send" /\ s[p].at = Top /\ Top < MaxVersion
    /\ \A v \in 1..Top : p \notin chain[v].by
    /\ \E others \in IF Carries(p) THEN SUBSET Carriable(p) ELSE {{}} : chain' = Append(chain, Made(p, others))
    /\ refused' = IF On("one commit") THEN refused \cup {<<WhoseRows(p), r>> : r \in s[p].bad} ELSE refused
    /\ s' = [s EXCEPT ![p].pc = IF On("one commit") THEN "done" ELSE "second", ![p] = @ @@ [kind |-> "committed", v |-> Top + 1]]

\* [CK7] quarantine.write_quarantined: what a commit of its own would do, if the process lives to make it.
SendRefused(p) ==
    /\ s[p].pc = "second"
    /\ refused' = refused \cup {<<WhoseRows(p), r>> : r \in s[p].bad}
    /\ s' = [s EXCEPT ![p].pc = "done"]
    /\ UNCHANGED chain

\* [CM4] [CM21] commits.commit_loop.create_version: the name is taken. The newest head is judged, which may have the job already.
Lost(p) ==
    /\ s[p].pc = "send" /\ s[p].at < Top
    /\ LET mine == {v \in 1..Top : p \in chain[v].by}
       IN s' = [s EXCEPT ![p] = IF mine = {} THEN Judged(p, s[p])
                                ELSE [pc |-> "done", kind |-> "committed", v |-> CHOOSE v \in mine : TRUE]]
    /\ UNCHANGED <<chain, refused>>

Next == \E p \in Procs : Begin(p) \/ Publish(p) \/ Send(p) \/ SendRefused(p) \/ Lost(p)

Spec == Init /\ [][Next]_vars

Versions == 1..Top
Told(p) == s[p].pc = "done" /\ s[p].kind \in {"committed", "already"}

\* [CK1] No version holds a row that violates a constraint of it.
NoRowViolates == \A v \in Versions : ~Violates(RowsThere(chain[v]), chain[v].held)

\* [CK3] A constraint stays until it is dropped, or a rollback takes it back.
ConstraintsStay ==
    \A v \in Versions \ {1} : (\A p \in chain[v].by : Plan[p].kind \notin {"drop", "rollback"}) => chain[v - 1].held \subseteq chain[v].held

\* [CK7] No row is both in the table and in its quarantine, and one that is acknowledged is in one of them.
IsLive(r) == \E v \in Versions : r \in Rows(chain[v])
NoRowInBoth == \A r \in refused : ~IsLive(r)
AcknowledgedRowsStay == \A p \in Writers : Told(p) => \A r \in Plan[p].rows : IsLive(<<WhoseRows(p), r>>) \/ <<WhoseRows(p), r>> \in refused

\* [CK6] What was checked as the table that a job would make is the table that it has made.
AuditsHold == \A p \in Writers : (Told(p) /\ Plan[p].kind = "audited") =>
    Rows(chain[s[p].v]) = s[p].seen \cup {<<p, r>> : r \in Plan[p].rows}

(* What the checker is told to check, in each configuration:
INVARIANTS: NoRowViolates ConstraintsStay NoRowInBoth AcknowledgedRowsStay AuditsHold
*)

=============================================================================
