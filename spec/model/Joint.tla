-------------------------------- MODULE Joint -------------------------------
(* Joint commits: one commit of several tables, which the chain of one of them decides. A model of its own: of each table it has what    *)
(* other tables see. What a deleted version's name, an unclear answer or a removed table do to one chain is in Table and Roots.           *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Plan,        \* process -> what it does; the operators below make such records
    MaxVersion,  \* no table gets a version above it
    Off,         \* the rules that are switched off
    Gone         \* the hint that says nothing

VARIABLES
    chain,  \* table -> its snapshots, in the order of their versions
    hint,   \* table -> the member that its hint says is committed: version, job and attempt
    s       \* process -> where it stands, and what it remembers

vars == <<chain, hint, s>>

Procs == DOMAIN Plan
On(rule) == rule \notin Off
Tables == UNION {Plan[p].tables : p \in Procs}
Rank == [a |-> 1, b |-> 2, c |-> 3]

First(tables) == CHOOSE t \in tables : \A u \in tables : Rank[t] <= Rank[u]

----------------------------------------------------------------------------
(* What a process does. dies: it may take no more steps at any time; it makes one attempt.                                               *)

Together(tables) == [kind |-> "joint", tables |-> tables, home |-> First(tables), dies |-> FALSE]
At(home, plan) == [plan EXCEPT !.home = home]         \* the home that it would choose, if it could
Dying(plan) == [plan EXCEPT !.dies = TRUE]
Alone(t) == [kind |-> "alone", tables |-> {t}, home |-> t, dies |-> FALSE]  \* commits to one table
Gc(t) == [Alone(t) EXCEPT !.kind = "gc"]                \* raises the fence as far as it may
Look(tables) == [Together(tables) EXCEPT !.kind = "read"]

\* [MT2] protocol.joint_outcome.in_order
Home(p) == IF On("order of homes") THEN First(Plan[p].tables) ELSE Plan[p].home

----------------------------------------------------------------------------
(* Snapshots [OB16]. by: whose commit it is; done: the jobs whose work is in this state; pend: the job and attempt that it is a member   *)
(* of, with the birth that is in the job's id; joint: what this table has decided, by partner; rec: attempts that are recorded as          *)
(* aborted, with the birth in their ids.                                                                                                   *)

None == [v |-> 0, job |-> "", n |-> 0]
NotPending == [job |-> "", n |-> 0, home |-> "", base |-> 0, birth |-> 0]

FirstVersion == [by |-> "", done |-> {}, pend |-> NotPending, void |-> {}, joint |-> [t \in Tables |-> None],
                 homes |-> [t \in Tables |-> 0], rec |-> {}, fence |-> 1]

Top(t) == Len(chain[t])
Newest(t) == chain[t][Top(t)]
IsPending(o) == o.pend # NotPending
IsAborted(o, h) == \/ <<o.pend.job, o.pend.n, o.pend.birth>> \in h.rec
                   \/ On("home's fence") /\ o.pend.birth < h.fence

\* [MT6] protocol.joint_outcome.member_outcome: what the home's newest object, whatever that is, says of the member at version v.
Fate(t, v) ==
    LET o == chain[t][v]
        h == Newest(o.pend.home)
    IN CASE ~IsPending(o) -> "committed"
         [] IsPending(o) /\ h.joint[t].v = v -> "committed"
         [] IsPending(o) /\ h.joint[t].v > v -> "newer"
         [] OTHER -> IF IsAborted(o, h) THEN "aborted" ELSE "undecided"

\* [MT5] protocol.joint_outcome.state_before: what the next version of the table is built on.
Before(t) == [chain[t][Newest(t).pend.base] EXCEPT !.pend = NotPending, !.void = Newest(t).void \cup {Top(t)}]
After(t) == [Newest(t) EXCEPT !.pend = NotPending]

\* [MT3] protocol.joint_outcome.last_state: the version whose state this is.
LastState(build, v) == CHOOSE w \in 1..v : w \notin build.void /\ \A x \in (w + 1)..v : x \in build.void

\* [MT8] log.version_chain.settled_head: the version that a reader gets now.
Shown(t) == IF Fate(t, Top(t)) = "committed" THEN Top(t) ELSE Newest(t).pend.base
Shows(t) == chain[t][Shown(t)].done

Init ==
    /\ chain = [t \in Tables |-> <<FirstVersion>>]
    /\ hint = [t \in Tables |-> Gone]
    /\ s = [p \in Procs |-> [pc |-> "idle"]]

----------------------------------------------------------------------------
(* Writers. goals: what is to be created before anything else, the first one first: to abort what is in the way may need the same of     *)
(* another table. build: what the version to create is built on.                                                                          *)

Goal(what, t, job, n, birth) == [what |-> what, t |-> t, job |-> job, n |-> n, birth |-> birth]
Done(kind) == [pc |-> "done", kind |-> kind]

\* [CM15] [MT8] job.Job: the birth is the version of the home that a reader gets.
Begin(p) ==
    /\ s[p].pc = "idle" /\ Plan[p].kind # "read"
    /\ s' = [s EXCEPT ![p] = [pc |-> "work", goals |-> <<>>, n |-> 1, placed |-> [t \in Tables |-> 0],
                              birth |-> Shown(Home(p)), base |-> 0, build |-> FirstVersion]]
    /\ UNCHANGED <<chain, hint>>

Unplaced(p) == {t \in Plan[p].tables \ {Home(p)} : s[p].placed[t] = 0}
Own(p, what, t) == Goal(what, t, p, s[p].n, s[p].birth)

\* [MT3] [MT4] commits.joint_commit.commit_jointly: members in any order, the decision after all of them.
Options(p) ==
    IF s[p].goals # <<>> THEN {Head(s[p].goals)}
    ELSE IF Plan[p].kind # "joint" THEN {Own(p, Plan[p].kind, Home(p))}
    ELSE {Own(p, "member", t) : t \in Unplaced(p)}
         \cup (IF Unplaced(p) = {} \/ ~On("all members first") THEN {Own(p, "decide", Home(p))} ELSE {})

Rest(p) == IF s[p].goals = <<>> THEN <<>> ELSE Tail(s[p].goals)

\* What a process does once it knows the state that it would build on.
Judged(p, g, build) ==
    LET isKnown == \/ <<g.job, g.n, g.birth>> \in build.rec \/ g.birth < build.fence
                   \/ \E t \in Tables : build.joint[t].job = g.job /\ build.joint[t].n = g.n
        ready == [s[p] EXCEPT !.pc = "send", !.goals = <<g>> \o Rest(p), !.base = Top(g.t), !.build = build]
    IN CASE g.what = "abort" /\ isKnown -> [s[p] EXCEPT !.goals = Rest(p)]
         [] g.what = "decide" /\ On("fenced") /\ g.birth < build.fence -> Done("fenced")
         [] g.what = "decide" /\ On("attempt looked for") /\ <<g.job, g.n, g.birth>> \in build.rec ->
                IF Plan[p].dies THEN Done("aborted")
                ELSE [s[p] EXCEPT !.n = @ + 1, !.placed = [t \in Tables |-> 0], !.goals = <<>>]
         [] OTHER -> ready

\* [MT5] [MT9] commits.commit_loop.settle_first: the head, and where it is pending, its home after it. What is undecided is aborted
\* in its home first: how long a writer waits before that is nothing that safety depends on.
Settle(p) ==
    /\ s[p].pc = "work"
    /\ \E g \in Options(p) :
        LET t == g.t
            o == Newest(t)
            fate == Fate(t, Top(t))
            abort == Goal("abort", o.pend.home, o.pend.job, o.pend.n, o.pend.birth)
            isOwn == g.what = "member" /\ o.pend.job = p /\ o.pend.n = g.n
        IN CASE isOwn -> s' = [s EXCEPT ![p].placed[t] = Top(t), ![p].goals = Rest(p)]
             [] ~isOwn /\ fate = "committed" -> s' = [s EXCEPT ![p] = Judged(p, g, After(t))]
             [] ~isOwn /\ fate = "aborted" -> s' = [s EXCEPT ![p] = Judged(p, g, Before(t))]
             [] ~isOwn /\ fate = "undecided" /\ ~On("settle first") -> s' = [s EXCEPT ![p] = Judged(p, g, Before(t))]
             [] OTHER -> /\ fate = "undecided" /\ On("settle first")
                         /\ \A i \in DOMAIN s[p].goals : s[p].goals[i].t # o.pend.home  \* it would wait for itself
                         /\ s' = [s EXCEPT ![p].goals = <<abort, g>> \o Rest(p)]
    /\ UNCHANGED <<chain, hint>>

Decided(p, build) ==
    [t \in Tables |-> IF s[p].placed[t] # 0 THEN [v |-> s[p].placed[t], job |-> p, n |-> s[p].n]
                      ELSE IF On("joint kept") THEN build.joint[t] ELSE None]

Made(p, g) ==
    LET build == [s[p].build EXCEPT !.by = "", !.joint = IF On("joint kept") THEN @ ELSE [t \in Tables |-> None]]
        mine == [build EXCEPT !.by = p, !.done = @ \cup {p}]
        last == LastState(build, s[p].base)
    IN CASE g.what = "member" -> [mine EXCEPT !.pend = [job |-> p, n |-> g.n, home |-> Home(p), base |-> last, birth |-> g.birth],
                                              !.homes[Home(p)] = s[p].base + 1]
         [] g.what = "decide" -> [mine EXCEPT !.joint = Decided(p, build)]
         [] g.what = "abort" -> [build EXCEPT !.rec = @ \cup {<<g.job, g.n, g.birth>>}]
         [] g.what = "alone" -> mine
         [] g.what = "gc" -> [build EXCEPT !.fence = last, !.rec = {each \in @ : each[3] >= build.fence}]

Sent(p, g) ==
    CASE g.what = "member" -> [s[p] EXCEPT !.pc = "work", !.goals = Rest(p), !.placed[g.t] = s[p].base + 1]
      [] g.what = "abort" -> [s[p] EXCEPT !.pc = "work", !.goals = Rest(p)]
      [] g.what = "decide" -> [pc |-> "hint", placed |-> s[p].placed, n |-> s[p].n]
      [] OTHER -> Done("committed")

\* [CM3] [MT3] [MT4] [MT9] commits.commit_loop.create_version: one of several creators has the version; the others look again.
Send(p) ==
    /\ s[p].pc = "send" /\ s[p].base < MaxVersion
    /\ LET g == Head(s[p].goals)
       IN IF Top(g.t) = s[p].base
          THEN /\ chain' = [chain EXCEPT ![g.t] = Append(@, Made(p, g))]
               /\ s' = [s EXCEPT ![p] = Sent(p, g)]
          ELSE /\ s' = [s EXCEPT ![p].pc = "work"]
               /\ UNCHANGED chain
    /\ UNCHANGED hint

Hinted(p) == [t \in Tables |-> IF s[p].placed[t] = 0 THEN hint[t] ELSE [v |-> s[p].placed[t], job |-> p, n |-> s[p].n]]

\* [MT7] log.version_chain.put_hint: what is decided is said in the hints of the members, and then reported.
PutHints(p) ==
    /\ s[p].pc = "hint"
    /\ hint' = Hinted(p)
    /\ s' = [s EXCEPT ![p] = Done("committed")]
    /\ UNCHANGED chain

\* [MT7] log.version_chain.put_hint, by a program that puts them before.
HintEarly(p) ==
    /\ ~On("hint after the decision")
    /\ s[p].pc = "work" /\ Plan[p].kind = "joint" /\ Unplaced(p) = {} /\ hint # Hinted(p)
    /\ hint' = Hinted(p)
    /\ UNCHANGED <<chain, s>>

----------------------------------------------------------------------------
(* A reader of several tables. seen: the newest object of each, as far as it has been got; got: the version that is read of it.            *)

IsAcknowledged(q) == s[q].pc = "done" /\ s[q].kind = "committed" /\ Plan[q].kind = "joint"

\* [MT12] commits.joint_commit.read_jointly
BeginReading(p) ==
    /\ s[p].pc = "idle" /\ Plan[p].kind = "read"
    /\ s' = [s EXCEPT ![p] = [pc |-> "reading", seen |-> [t \in Tables |-> 0], got |-> [t \in Tables |-> 0],
                              owed |-> {q \in Procs : IsAcknowledged(q)}]]
    /\ UNCHANGED <<chain, hint>>

Got(p) == {t \in Tables : s[p].got[t] # 0}
ReadAt(p, t) == chain[t][s[p].got[t]]
NamedHomes(p) == {h \in Tables : \E t \in Got(p) : ReadAt(p, t).homes[h] # 0}
Wanted(p) == Plan[p].tables \cup (IF On("members with their home") THEN NamedHomes(p) ELSE {})

\* [RD1] [MT7] log.version_chain.open_head
GetHead(p) ==
    /\ s[p].pc = "reading"
    /\ \E t \in Wanted(p) :
        /\ s[p].got[t] = 0 /\ s[p].seen[t] = 0
        /\ LET pend == Newest(t).pend
               isTold == hint[t] = [v |-> Top(t), job |-> pend.job, n |-> pend.n]
           IN s' = [s EXCEPT ![p].seen[t] = Top(t), ![p].got[t] = IF ~IsPending(Newest(t)) \/ isTold THEN Top(t) ELSE 0]
    /\ UNCHANGED <<chain, hint>>

\* [MT6] [MT8] log.version_chain.ask_fate: the home, after the member was got.
AskHome(p) ==
    /\ s[p].pc = "reading"
    /\ \E t \in Tables :
        /\ s[p].got[t] = 0 /\ s[p].seen[t] # 0
        /\ LET v == s[p].seen[t]
               fate == Fate(t, v)
           IN s' = [s EXCEPT ![p] =
                CASE fate = "committed" -> [@ EXCEPT !.got[t] = v]
                  [] fate = "newer" -> [@ EXCEPT !.seen[t] = 0]
                  [] fate = "undecided" /\ ~On("reader settles") -> [@ EXCEPT !.got[t] = v]
                  [] OTHER -> [@ EXCEPT !.got[t] = chain[t][v].pend.base]]
    /\ UNCHANGED <<chain, hint>>

Behind(p) == {<<h, t>> \in Got(p) \X Got(p) : ReadAt(p, h).joint[t].v > s[p].got[t]}
Ahead(p) == {<<h, t>> \in Got(p) \X Got(p) : ReadAt(p, t).homes[h] > ReadAt(p, h).joint[t].v}
IsTooLow(p, t, v) == \E h \in Got(p) : ReadAt(p, h).joint[t].v > v

\* [MT12] protocol.joint_outcome.find_mismatch: one table that does not fit moves; where it cannot go back, its home is read again.
Mend(p) ==
    /\ s[p].pc = "reading" /\ Wanted(p) \subseteq Got(p)
    /\ CASE ~On("mend") \/ (Behind(p) = {} /\ Ahead(p) = {}) -> s' = [s EXCEPT ![p].pc = "done"]
         [] On("mend") /\ Behind(p) # {} ->
                LET pair == CHOOSE each \in Behind(p) : TRUE
                IN s' = [s EXCEPT ![p].got[pair[2]] = ReadAt(p, pair[1]).joint[pair[2]].v]
         [] OTHER ->
                LET pair == CHOOSE each \in Ahead(p) : TRUE
                    h == pair[1]
                    t == pair[2]
                    base == chain[t][ReadAt(p, t).homes[h]].pend.base
                IN s' = [s EXCEPT ![p] = IF IsTooLow(p, t, base) THEN [@ EXCEPT !.got[h] = 0, !.seen[h] = 0]
                                         ELSE [@ EXCEPT !.got[t] = base]]
    /\ UNCHANGED <<chain, hint>>

Step(p) ==
    Begin(p) \/ Settle(p) \/ Send(p) \/ PutHints(p) \/ HintEarly(p) \/ BeginReading(p) \/ GetHead(p) \/ AskHome(p) \/ Mend(p)

Next == \E p \in Procs : Step(p)

Spec == Init /\ [][Next]_vars

FairSpec == Spec /\ \A p \in Procs : Plan[p].dies \/ WF_vars(Step(p))

----------------------------------------------------------------------------
Joint == {p \in Procs : Plan[p].kind = "joint"}
Reads == {p \in Procs : Plan[p].kind = "read" /\ s[p].pc = "done"}

\* [MT1] [IV3] At every moment readers of each of its tables get a joint commit, or readers of none.
AllOrNothing == \A p \in Joint : \A t, u \in Plan[p].tables : (p \in Shows(t)) = (p \in Shows(u))

\* [MT1] [IV2] What was acknowledged is in every table for ever, also what was committed to one.
AcknowledgedStays == \A p \in Procs : (s[p].pc = "done" /\ Plan[p].kind \in {"joint", "alone"} /\ s[p].kind = "committed") =>
    \A t \in Plan[p].tables : p \in Shows(t)

\* [MT4] [IV4] A job is committed once in each of its tables.
CommittedOnce == \A p \in Procs : \A t \in Tables :
    Cardinality({v \in 1..Shown(t) : chain[t][v].by = p /\ v \notin chain[t][Shown(t)].void}) <= 1

\* [MT5] The void versions are members, and none of them is one that its home has committed.
VoidIsAborted == \A t \in Tables : \A v \in Newest(t).void :
    IsPending(chain[t][v]) /\ ~\E w \in 1..Top(chain[t][v].pend.home) : chain[chain[t][v].pend.home][w].joint[t].v = v

\* [MT12] In what a reader gets of several tables each joint commit is in all of them or in none.
ReadsFit == \A q \in Reads : \A p \in Joint : \A t, u \in Plan[p].tables \cap Plan[q].tables :
    (p \in ReadAt(q, t).done) = (p \in ReadAt(q, u).done)

\* [MT8] [IV5] Readers get what is committed.
ReadsAreCommitted == \A q \in Reads : \A t \in Plan[q].tables : \A p \in ReadAt(q, t).done : p \in Shows(t)

\* [MT12] [RD1] What was acknowledged before a reader began is in what it gets.
ReadsAreRecent == \A q \in Reads : \A p \in s[q].owed : \A t \in Plan[p].tables \cap Plan[q].tables : p \in ReadAt(q, t).done

\* [MT9] [IV9] Whoever does not die comes to an outcome, whatever the dead have left.
EveryoneIsDone == \A p \in Procs : Plan[p].dies \/ <>(s[p].pc = "done")

(* What the checker is told to check, in each configuration:
INVARIANTS: AllOrNothing AcknowledgedStays CommittedOnce VoidIsAborted ReadsFit ReadsAreCommitted ReadsAreRecent
*)

=============================================================================
