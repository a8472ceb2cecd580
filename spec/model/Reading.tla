------------------------------ MODULE Reading -------------------------------
(* A reader of any version that may be read, by number or by tag (section 10). isTrue: whether what it got is what won the version.  *)
EXTENDS Collect

\* [RD1] [RD4] [RD5] engine.head.open_head, engine.times.choose_version. The head itself is read in this step: its list and its get count
\* as one. Where they do not ("open at once" is off), a reader may sleep between them.
Choose(r) ==
    /\ s[r] = Idle
    /\ Plan[r].kind = "read"
    /\ \E v \in {w \in 1..Top : Readable(w)} :
          s' = [s EXCEPT ![r] = IF v = Top /\ On("open at once") THEN [pc |-> "read", v |-> v, isTrue |-> TRUE]
                                ELSE [pc |-> "get", v |-> v, isHead |-> v = Top]]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

\* [RD3] engine.head.read_version: the object of that name, whoever made it. One that is gone has expired meanwhile.
Get(r) ==
    /\ s[r].pc = "get"
    /\ objects[s[r].v] # Gone
    /\ s' = [s EXCEPT ![r] = [pc |-> IF s[r].isHead \/ ~On("reader looks again") THEN "read" ELSE "second look",
                              v |-> s[r].v, isTrue |-> objects[s[r].v] = Stands]]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

\* [RD3] engine.head.read_version: the head again; a version that may not be read any more is not taken.
SecondLook(r) ==
    /\ s[r].pc = "second look"
    /\ s' = [s EXCEPT ![r].pc = IF Readable(s[r].v) THEN "read" ELSE "expired"]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

ReadStep(r) == Choose(r) \/ Get(r) \/ SecondLook(r)

=============================================================================
