------------------------------ MODULE Reading -------------------------------
(* A reader of any version that may be read, by number or by tag (section 10). isTrue: whether what it got is what won the version.  *)
EXTENDS Collect

\* What is got with the ETag that the list gave it was there when the list was made: as if Choose, Get and SecondLook came at once.
\* [RD1] [RD4] [RD5] log.version_chain.newest_above, log.version_chain.choose_version. The head, which a list shows, or any other version that may be read.
Choose(r) ==
    /\ s[r] = Idle
    /\ Plan[r].kind = "read"
    /\ \E v \in {w \in 1..Top : Readable(w)} : s' = [s EXCEPT ![r] = [pc |-> "get", v |-> v, isHead |-> v = Top]]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

\* [RD1] [RD3] log.version_chain.read_object: the object of that name, whoever made it. One that is gone has expired meanwhile.
Get(r) ==
    /\ s[r].pc = "get"
    /\ objects[s[r].v] # Gone
    /\ LET isRead == IF s[r].isHead THEN ~On("list after the get") ELSE ~On("reader looks again") IN
       s' = [s EXCEPT ![r] = [pc |-> IF isRead THEN "read" ELSE "second look", v |-> s[r].v, isHead |-> s[r].isHead,
                              isTrue |-> objects[s[r].v] = Stands]]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

\* [RD1] log.version_chain.newest_above: what was got is the head if a list that comes after shows nothing above it; otherwise the highest is got.
\* [RD3] log.version_chain.read_version: the head again; a version that may not be read any more is not taken.
SecondLook(r) ==
    /\ s[r].pc = "second look"
    /\ s' = [s EXCEPT ![r] = IF s[r].isHead /\ Top # s[r].v THEN [pc |-> "get", v |-> Top, isHead |-> TRUE]
                             ELSE [@ EXCEPT !.pc = IF Readable(s[r].v) THEN "read" ELSE "expired"]]
    /\ UNCHANGED <<chain, objects, files, births, intents, flying, lost>>

ReadStep(r) == Choose(r) \/ Get(r) \/ SecondLook(r)

=============================================================================
