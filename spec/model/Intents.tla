------------------------------- MODULE Intents ------------------------------
(* Helping: a writer with others in its way publishes its change, and whoever commits next carries it.                               *)
EXTENDS Rules

MaxCarried == 2

\* [CM19] commits.commit_loop.GroupCommit.publish. Only plain appends, by a writer whose job nobody else can finish; whether it has lost a create, or saw
\* others wait before its first one, makes no difference to what is right.
Publish(p) ==
    /\ Helping
    /\ s[p].pc = "send" /\ ~s[p].pub
    /\ Plan[p].kind = "append" /\ ~Plan[p].shared /\ Plan[p].batch = 0
    /\ intents' = intents \cup {p}
    /\ s' = [s EXCEPT ![p].pub = TRUE]
    /\ UNCHANGED <<chain, objects, files, births, flying, lost>>

\* [CM20] protocol.commit_group.applies. Whether a create on top of version v may carry the intent, after what it carries before.
MayCarry(job, v, st, bs) ==
    LET key == PlanOf(job).key IN
    /\ On("carry undecided") => st.rec[job] = 0
    /\ On("carry unfenced") => bs[job] >= st.fence
    /\ (key # "" /\ On("carry new keys")) => st.keys[key] <= 0
    /\ On("carry without conflict") => ~IsConflict(job, v, st, bs[job], <<0, 0>>)

RECURSIVE Carried(_, _, _, _)
Carried(st, jobs, v, bs) ==
    IF jobs = <<>> THEN st ELSE Carried(Apply(st, jobs[1], v + 1, 1, <<0, 0>>, bs), Tail(jobs), v, bs)

\* [CM20] protocol.commit_group.in_order, commits.commit_loop.GroupCommit.carry. What a create on top of version v may carry: the lowest births first, no job twice.
Bundles(own, v, bs) ==
    LET one == {i \in intents \ {own} : MayCarry(i, v, Fresh(v), bs)}
        two == {<<i, k>> \in one \X (intents \ {own}) :
                   i # k /\ bs[i] <= bs[k] /\ MayCarry(k, v, Carried(Fresh(v), <<i>>, v, bs), bs)}
    IN {<<>>} \cup {<<i>> : i \in one} \cup two

=============================================================================
