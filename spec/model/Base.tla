-------------------------------- MODULE Base --------------------------------
(* The store, the chain of versions, and what the processes of a run are to do.                                                  *)
(*                                                                                                                                 *)
(* One step is one request that takes effect, together with what its sender works out from the answer by itself. A process that     *)
(* has crashed, or sleeps for ever, is one that takes no more steps: every state is one that a crash can leave.                     *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Plan,        \* process -> what it does; the operators at the end make such records
    MaxVersion,  \* no version above it is created
    MaxLost,     \* how many creates may get no answer
    Helping,     \* whether writers publish intents and carry those of others
    Declared,    \* whether the source begins at 0 from the first version on, or wherever its first advance begins
    Wide,        \* whether gc may choose any fence and any expiry, or only those that take the most
    OneByOne,    \* whether gc reads the versions one by one, or all at one moment
    Off,         \* the rules that are switched off: what would go wrong without them
    Gone,        \* no object has this name
    Stands       \* the object of this name is the one that won it

VARIABLES
    chain,    \* the snapshots that won their versions, the first of version 1. Nobody sees it as a whole; readers see `objects`
    objects,  \* version -> Gone, Stands, or the snapshot of a writer that brought a deleted version back
    files,    \* the data files that exist
    births,   \* job -> its birth, 0 before
    s,        \* process -> where it stands, and what it remembers
    intents,  \* the jobs that have ever been published: whoever once listed an intent may carry it much later
    flying,   \* creates that got no answer and may still arrive
    lost      \* how many creates have had no answer

vars == <<chain, objects, files, births, s, intents, flying, lost>>

Procs == DOMAIN Plan
Keys == {Plan[p].key : p \in Procs} \ {""}
On(rule) == rule \notin Off

----------------------------------------------------------------------------
(* Snapshots [OB2]. by: the jobs whose commit records it holds; who, n: whose create it is, with which bytes (the commit id);        *)
(* rec: `recent_jobs`, 0 for unknown, -1 for given up; keys: 0 for unknown, -1 for forgotten by policy, so that the model can tell    *)
(* that from a key which was never recorded; back: the version that a rollback restored; wm: where the source stands, New before its *)
(* first advance; origin: where that began; batch: the last one of the query. What time was set back for: set, of the source;       *)
(* dropped, of each key (its tombstone); stream, of the query: the version that did it, 0 for none that anybody needs to know.       *)

OldFile == <<"old", 1>>

New == -1

First == [by |-> {}, who |-> "", n |-> 0, live |-> {OldFile}, fence |-> 1, expired |-> 1, tag |-> 0,
          wm |-> IF Declared THEN 0 ELSE New, origin |-> IF Declared THEN 0 ELSE New, batch |-> 0,
          keys |-> [k \in Keys |-> 0], rec |-> [j \in Procs |-> 0], back |-> 0,
          set |-> 0, dropped |-> [k \in Keys |-> 0], stream |-> 0]

Top == Len(chain)

\* [RD3] protocol.conflict.is_readable
IsReadable(b, at, v) == (b.expired <= v /\ v <= at) \/ b.tag = v
Readable(v) == IsReadable(chain[Top], Top, v)

\* What one gets who asks for the object of a version now.
Object(v) == IF objects[v] = Stands THEN chain[v] ELSE objects[v]

\* [LY4] [DF1]: a file is named after the job that wrote it, and so carries its birth.
FileBirth(f, bs) == IF f = OldFile THEN 1 ELSE bs[f[1]]

Done(job, kind, v, n) == [pc |-> "done", job |-> job, kind |-> kind, v |-> v, n |-> n]
\* isHeld: whether the head holds the key at that version when it is told.
Already(job, key, v, n) == Done(job, "already", v, n) @@ [isHeld |-> chain[Top].keys[key] = v]
Idle == [pc |-> "idle"]

IsFree(v) == v = Top + 1 \/ (v <= Top /\ objects[v] = Gone)

\* [ST1] store.base.Store.put_if_absent: of all creators one has the name. If the name is that of a deleted version, the true one
\* stays what it was (`chain`), and the object is a stranger.
Create(v, snapshot) ==
    /\ IsFree(v)
    /\ IF v = Top + 1
       THEN /\ chain' = Append(chain, snapshot)
            /\ objects' = [objects EXCEPT ![v] = Stands]
       ELSE /\ objects' = [objects EXCEPT ![v] = snapshot]
            /\ chain' = chain

Init ==
    /\ chain = <<First>>
    /\ objects = [v \in 1..MaxVersion |-> IF v = 1 THEN Stands ELSE Gone]
    /\ files = {OldFile}
    /\ births = [j \in Procs |-> 0]
    /\ s = [p \in Procs |-> Idle]
    /\ intents = {}
    /\ flying = {}
    /\ lost = 0

----------------------------------------------------------------------------
(* What a process does. Its own job has its name. part: the partition of its file; of: the job that it has to do with.               *)

Write == [kind |-> "append", key |-> "", start |-> 0, end |-> 0, part |-> "x", replaces |-> {}, of |-> "", shared |-> FALSE,
            forgets |-> FALSE, batch |-> 0]
Keyed(k, plan) == [plan EXCEPT !.key = k]
Advancing(from, to, plan) == [plan EXCEPT !.start = from, !.end = to]
Batch(n) == [Write EXCEPT !.batch = n]                                         \* of the one streaming query
In(part, plan) == [plan EXCEPT !.part = part]
Shared(plan) == [plan EXCEPT !.shared = TRUE]                                     \* prepared, or recoverable: others can finish it
Overwrite == [Write EXCEPT !.kind = "overwrite"]                                \* serializable: all of its partition
Replace == [Write EXCEPT !.kind = "replace", !.replaces = {OldFile}]            \* such as compaction
Rollback == [Write EXCEPT !.kind = "rollback"]                                    \* to any version that may be read
Rewind == [Write EXCEPT !.kind = "rewind"]                                        \* to any position before the one at its birth
Forget == [Rewind EXCEPT !.part = "all"]                                          \* to none: the source is as new
Tag == [Write EXCEPT !.kind = "tag"]                                            \* sets, moves or takes away the one tag of the model
Gc == [Write EXCEPT !.kind = "gc"]                                                \* takes all that it may, or all but versions; any, if `Wide`
FencingGc == [Gc EXCEPT !.part = "fence"]                                         \* raises the fence, and expires nothing
GreedyGc == [Gc EXCEPT !.part = "most"]                                           \* takes all that it may
ForgetfulGc == [Gc EXCEPT !.forgets = TRUE]                                       \* keeps no more keys than it must
Finish(job, plan) == [plan EXCEPT !.kind = "finish", !.of = job, !.shared = TRUE] \* another process that commits a prepared job
GiveUp(job) == [Write EXCEPT !.kind = "giveup", !.of = job]                     \* another process that aborts it
Rerun(job, plan) == [plan EXCEPT !.kind = "rerun", !.of = job, !.shared = TRUE]   \* a rerun of a recoverable job's key
Other == [Write EXCEPT !.kind = "other"]                                          \* a commit in one step, that changes nothing
Quick == [Write EXCEPT !.kind = "quick"]                                          \* an append in one step
Soon(plan) == [plan EXCEPT !.kind = "quick"]                                      \* the same in one step
Read == [Write EXCEPT !.kind = "read"]                                          \* a reader, of any version that may be read

=============================================================================
