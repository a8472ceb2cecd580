"""Checks what must hold for a table at every moment of a run, and for every result that an actor gets. [IV1]-[IV8]

It sees every object appear and disappear, so it knows the truth: the chain as it was first created, whatever a stalled writer creates
again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from tests.simulator.version_rules import State, Step, birth_of, broken, carried_wrongly, done_at, is_readable, steps_of

from manifestcommit.format import codec, object_names
from manifestcommit.format.object_names import writer_of
from manifestcommit.format.snapshot import Snapshot
from manifestcommit.log.manifests import JOB_RUN, KEY_RUN
from manifestcommit.log.table_context import TableContext, is_export
from manifestcommit.log.version_chain import Head
from manifestcommit.protocol import retention
from manifestcommit.protocol.apply import above_taken
from manifestcommit.protocol.joint_outcome import state_before
from manifestcommit.scan import planning
from manifestcommit.store import Store
from manifestcommit.testing.history.operation import Operation
from manifestcommit.testing.scheduler import Actor, Scheduler, Trace, onlooker
from manifestcommit.testing.simulated_store import SimulatedStore, Space, Watcher


class Act(msgspec.Struct, kw_only=True):
    """One commit of a job that an actor has looked at. number: the actor's; began, ended: how many random draws it had made by then, which
    identify its commits, however late they land; audited: the version that the job was looked at as a change of."""

    number: int
    began: int
    audited: int
    ended: int | None = None

    def made(self, commit_id: str) -> bool:
        """Whether this call drew the id of that commit."""
        drawn = bytes.fromhex(commit_id.rpartition(".")[2])
        number, count = int.from_bytes(drawn[:2], "big"), int.from_bytes(drawn[2:], "big")
        return number == self.number and self.began < count and (self.ended is None or count <= self.ended)


def looked_at_before(act: Act, step: Step) -> str | None:
    """A job that was looked at as a change of one version is committed only as long as no rows have changed since. [CK6]"""
    for before, later in itertools.pairwise((*step.chain[act.audited - 1 :], step.old)):
        if before.files != later.files:
            return f"it was looked at as a change of version {act.audited}, and version {later.version} has other rows [CK6]"
    return None


class ViolationError(AssertionError):
    """A guarantee of the table did not hold."""


class Oracle(Watcher):
    """Watches one space. `chain`: every version as it was first created.

    store: a read-only view of the space.
    """

    def __init__(self, scheduler: Scheduler, store: Store) -> None:
        self._scheduler = scheduler
        self._ctx = TableContext(store, None)
        self.chain: list[State] = []
        self._sizes: dict[str, int] = {}
        self._declared: dict[str, list[Operation]] = {}
        self._carried: dict[str, int] = {}
        self._denied: dict[str, str] = {}
        self._needed: tuple[int, frozenset[str]] = (0, frozenset())
        self.removed_tables: dict[str, list[State]] = {}  # id -> the chain of a removed table
        self.strays: dict[str, str] = {}  # name -> digest of what jobs of other tables have created
        self._acts: list[Act] = []
        self.homes: dict[str, Oracle] = {}  # table id -> that of a table that may decide for this

    def resume(self, other: Oracle) -> None:
        """Continue from the state of another oracle."""
        self.chain, self._sizes = list(other.chain), dict(other._sizes)
        self._declared, self._carried = ({job: list(told) for job, told in other._declared.items()}, dict(other._carried))

    @property
    def head(self) -> State:
        return self.chain[-1]

    @property
    def latest(self) -> int:
        """The version that readers get now at least: below a member that is not committed. [MT8]"""
        if not self.chain:
            return 0
        head = self.head.snapshot
        if head.pending is None or self._is_decided(head):
            return head.version
        return head.pending.base

    def _is_decided(self, member: Snapshot) -> bool:
        """Whether the home has committed a member of a joint commit. [MT4] [MT6]"""
        assert member.pending is not None
        home = self.homes.get(member.pending.table_id)
        if home is None:  # it is not watched
            return True
        record = home.head.snapshot.joint.get(member.table_id)
        return record is not None and record.version >= member.version

    def holds(self, version: int, job: str) -> bool:
        """Whether that version, which a reader got, holds a job's commit."""
        return self._carried.get(job, version + 1) <= version

    def committed(self) -> dict[str, int]:
        """Each job that has been committed, and its version."""
        latest = self.latest
        return {job: version for job, version in self._carried.items() if version <= latest}

    # --- Reports of actors ------------------------------------------------------------------------

    def declare(self, told: Operation) -> None:
        """An actor is about to commit or prepare this."""
        self._declared.setdefault(told.job, []).append(told)

    @contextlib.contextmanager
    def publishing(self, actor: Actor, audited: int) -> Iterator[None]:
        """An actor commits a job that it has looked at as a change of that version. [CK6]"""
        act = Act(number=actor.number, began=actor.drawn, audited=audited)
        self._acts.append(act)
        try:
            yield
        finally:
            actors = self._scheduler.actors[act.number - 1 : act.number]
            act.ended = actors[0].drawn if actors else None

    def declared(self, job: str) -> Operation | None:
        """What was first declared for the job."""
        told = self._declared.get(job)
        return told[0] if told else None

    def told_done(self, told: Operation, version: int | None, since: int) -> None:
        """An actor's result says that its key, or batch, was committed before: a version that it can have read holds that. [KY3] [KY6]
        [KY8]

        since: the latest version when it asked.
        """
        table_id = object_names.parse_job_id(told.job).table_id
        states = self._chain_of(table_id)[0 if table_id in self.removed_tables else max(since, 1) - 1 :]
        if version is None or all(done_at(state, told.key) != version for state in states):
            self.fail(f"{told.key!r} was acknowledged at version {version}, and no head since {since} holds it there [KY3] [KY8]")
        # Otherwise by another driver, under the shared id; if a gc or a rollback has affected that commit since, either answer is true.
        if told.job not in self._carried:
            self._deny(told.job, "already done under its key")

    def told_not(self, job: str, why: str) -> None:
        """An actor's result says that its job did not commit: it never will. [CM10]"""
        self._deny(job, why)

    def read(self, head: Head, at_least: int = 0) -> None:
        """A reader got this snapshot: it must be a committed one. at_least: the latest version when it asked. [RD1] [RD2] [RD3]"""
        chain = self._chain_of(head.snapshot.table_id)
        if head.version < at_least and chain is self.chain:
            self.fail(f"a reader was given version {head.version} as head, after version {at_least} had been committed [RD1]")
        true = chain[head.version - 1] if head.version <= len(chain) else None
        if true is None or true.is_void or true.digest != head.digest:
            self.fail(f"a reader was given another version {head.version} than the one that was committed [RD2] [RD3]")

    def found_missing(self, version: int, what: str) -> None:
        """A reader did not find some object of a version. [IV2] [GC4]"""
        if is_readable(self.head.snapshot, version):
            self.fail(f"{what} of version {version} is gone, and that version can be read [IV7]")

    def told_expired(self, version: int) -> None:
        """A reader's result says that a version can no longer be read. [RD3]"""
        if is_readable(self.head.snapshot, version):
            self.fail(f"a reader learned that version {version} was expired, and it can be read [RD3]")

    def told_gone(self, job: str) -> None:
        """An actor's result says that the table of its job was removed. [LY10]"""
        if job and object_names.parse_job_id(job).table_id not in self.removed_tables:
            self.fail(f"job {job} learned that its table was removed, and it was not [LY10]")

    def _chain_of(self, table_id: str) -> list[State]:
        """All versions of that table, removed or not."""
        if self.chain and self.chain[0].snapshot.table_id == table_id:
            return self.chain
        return self.removed_tables.get(table_id, [])

    def _deny(self, job: str, why: str) -> None:
        if object_names.parse_job_id(job).table_id in self.removed_tables:
            return  # whatever happened to it, none of its objects are left
        if job in self._carried and self._carried[job] <= self.latest:
            self.fail(f"job {job} was reported as {why}, and is in version {self._carried[job]} [CM10]")
        self._denied[job] = why

    # --- Observations -----------------------------------------------------------------------------

    def appeared(self, name: str, data: bytes, actor: str) -> None:
        """An object was put or created."""
        self._sizes[name] = len(data)
        version = object_names.parse_version(name)
        if version is None:
            return
        snapshot = codec.decode_snapshot(data, name=name)
        if self.removed_tables and self._is_stray(snapshot):
            if snapshot.parent_digest in self.strays.values():
                self.fail(f"{actor} built version {version} on what a job of another table had left [LY10] [LY14]")
            self.strays[name] = codec.digest(data)
        elif version > len(self.chain):
            self._pass_strays(version, snapshot, actor)
            self._grow(version, self.state_of(snapshot, codec.digest(data)))

    def _pass_strays(self, version: int, snapshot: Snapshot, actor: str) -> None:
        """A version comes right above the last one; names between the two are those that jobs of other tables have taken, and it says that
        they are void. [LY15]"""
        while self.chain and len(self.chain) + 1 < version:
            taken = len(self.chain) + 1
            name = object_names.version_name(taken)
            if name not in self.strays or taken not in snapshot.void:
                self.fail(f"{actor} built version {version}, and {taken} is not taken [IV1] [LY15]")
            last = self.chain[-1]
            passed = above_taken(last.snapshot, 1)
            self.chain.append(msgspec.structs.replace(last, snapshot=passed))

    def _is_stray(self, snapshot: Snapshot) -> bool:
        """Whether it belongs to another table than the present one: a removed table, or one whose creator has lost."""
        if self.chain:
            return snapshot.table_id != self.head.snapshot.table_id
        return snapshot.table_id in self.removed_tables or object_names.marker_name(snapshot.table_id) not in self._sizes

    def removed(self) -> None:
        """All objects below the path were removed; what was acknowledged for that table stays true for it. [LY10]"""
        if self.chain:
            self.removed_tables[self.head.snapshot.table_id] = self.chain
        self.chain, self._needed = [], (0, frozenset())
        self._sizes.clear()
        self.strays.clear()

    def gone(self, name: str, actor: str) -> None:
        """An object was deleted: nothing can need it any more. [IV7]"""
        self._sizes.pop(name, None)
        self.strays.pop(name, None)
        if not self.chain:
            return
        head = self.head.snapshot
        if name in self.needed():
            self.fail(f"{actor} deleted {name}, which a readable version needs [IV7]")
        if retention.is_of_another_table(name, head.table_id):
            return
        waiting = object_names.parse_intent(name)
        if waiting is not None and waiting not in self.head.jobs and birth_of(waiting) >= head.fence:
            self.fail(f"{actor} deleted the intent of job {waiting}, which nobody has decided [CM22]")
        job = self._writer(name, head.table_id)
        if job is not None and birth_of(job) >= head.fence and job not in self._denied:
            self.fail(f"{actor} deleted {name}, of a job that can still commit [GC5] [IV7]")

    def _writer(self, name: str, table_id: str) -> str | None:
        if name.startswith(object_names.MARKS):
            return None  # on a conflict a job deletes its own object [AB6]
        if name.startswith(object_names.JOBS):
            return object_names.job_of_handed(name)
        return object_names.job_of_manifest(name) if name.startswith(object_names.MANIFESTS) else writer_of(name, table_id)

    def _grow(self, version: int, new: State) -> None:
        if version != len(self.chain) + 1:
            self.fail(f"version {version} was created above {len(self.chain)} [IV1]")
        if self._declared and (said := carried_wrongly(new.snapshot, self._declared)) is not None:
            self.fail(f"version {version}: {said}")
        self._settle_member(new)
        for step in steps_of(self.chain, new, self._declared) if self.chain else ():
            commit = step.new.commit
            found = list(broken(step))
            for act in self._acts:
                if act.made(commit.commit_id) and (said := looked_at_before(act, step)) is not None:
                    found.append(said)
            for each in found:
                self.fail(f"version {version} ({commit.operation} by job {commit.job}): {each}")
        for job in sorted(new.carried):
            if job in self._carried:
                self.fail(f"job {job} was committed twice, at {self._carried[job]} and {version} [IV4]")
            if job in self._denied and new.snapshot.pending is None:  # a member is none yet [MT6]
                self.fail(f"job {job} was reported as {self._denied[job]}, and was committed at {version} [CM10]")
        for entry, size in self._listed(new.snapshot):
            if self._sizes.get(entry) != size:
                self.fail(f"version {version} lists {entry}, which is not there in its length [IV6] [CM18]")
        self._carried |= dict.fromkeys(new.carried, version)
        self.chain.append(new)

    def _settle_member(self, new: State) -> None:
        """What became of the member of a joint commit that the new version is built on: where it was aborted, what was in it has not been
        committed, and the state below it takes its place. [MT5] [MT8]"""
        last = self.chain[-1] if self.chain else None
        if last is None or last.snapshot.pending is None:
            return
        is_void = last.version in new.snapshot.void
        if last.snapshot.pending.table_id in self.homes and is_void == self._is_decided(last.snapshot):
            self.fail(
                f"member {last.version} was {'not ' * (not is_void)}taken for void, and its home "
                f"has {'not ' * (not is_void)}committed it [MT5] [MT6]"
            )
        if not is_void:
            for job in sorted(last.carried & self._denied.keys()):
                self.fail(
                    f"job {job} was reported as {self._denied[job]}, and its member, version {last.version}, was built upon [CM10] [MT5]"
                )
            return
        for job in last.carried:
            self._carried.pop(job, None)
        base = self.chain[last.snapshot.pending.base - 1]
        state = state_before(last.snapshot, base.snapshot)
        self.chain[-1] = msgspec.structs.replace(base, snapshot=state, digest=last.digest)

    def _listed(self, snapshot: Snapshot) -> Iterable[tuple[str, int]]:
        yield from ((entry.path, entry.bytes) for entry in snapshot.added)
        yield from ((ref.path, ref.bytes) for ref in snapshot.manifests)
        for runs in (snapshot.key_runs, snapshot.job_runs, snapshot.removed_runs):
            yield from ((run.path, run.bytes) for run in runs)

    def needed(self) -> frozenset[str]:
        """The readable part of the chain, and everything that it lists."""
        head = self.head.snapshot
        if self._needed[0] != head.version:
            names = {object_names.marker_name(head.table_id)}
            for state in self.chain:
                if is_readable(head, state.version):
                    names.update(state.files, state.objects, (object_names.version_name(state.version),))
            self._needed = (head.version, frozenset(names))
        return self._needed[1]

    def state_of(self, snapshot: Snapshot, digest: str) -> State:
        """A version with everything that it has spilled."""
        files: dict[str, tuple[object, ...]] = {entry.path: tuple(entry.partition) for entry in snapshot.added}
        recorded = {key: record.version for key, record in snapshot.keys.items() if record.digest}
        jobs = dict(snapshot.recent_jobs)
        runs = (*snapshot.key_runs, *snapshot.job_runs, *snapshot.removed_runs)
        if snapshot.manifests:
            files = self._spilled_files(snapshot)
        if runs:
            recorded, jobs = self._spilled_records(snapshot)
        return State(
            snapshot=snapshot, digest=digest, files=files, keys=recorded, jobs=jobs,
            objects=frozenset([*(ref.path for ref in snapshot.manifests), *(run.path for run in runs)]),
        )  # fmt: skip

    def _spilled_files(self, snapshot: Snapshot) -> dict[str, tuple[object, ...]]:
        entries = planning.entries_table(self._ctx, snapshot)
        columns = [entries.column(f"partition.{field_id}").to_pylist() for field_id in snapshot.partition_by]
        rows: Iterable[tuple[Any, ...]] = zip(*columns, strict=True) if columns else [()] * entries.num_rows
        paths = entries.column("path").to_pylist()
        if len(paths) != len(set(paths)):
            self.fail(f"version {snapshot.version} lists a path twice [IV6]")
        return dict(zip(paths, rows, strict=True))

    def _spilled_records(self, snapshot: Snapshot) -> tuple[dict[str, int], dict[str, int | None]]:
        newest: dict[str, tuple[int, str]] = {}
        for run in snapshot.key_runs:
            for row in self._ctx.manifests.run(run, KEY_RUN).to_pylist():
                newest[row["key"]] = max(newest.get(row["key"], (0, "")), (row["version"], row["digest"]))
        newest |= {key: (record.version, record.digest) for key, record in snapshot.keys.items()}
        jobs = dict(snapshot.recent_jobs)
        for run in snapshot.job_runs:
            jobs |= {row["job"]: row["version"] for row in self._ctx.manifests.run(run, JOB_RUN).to_pylist()}
        return {key: version for key, (version, digest) in newest.items() if digest}, jobs

    # --- At the end -------------------------------------------------------------------------------

    def check_end(self, names: Iterable[str]) -> None:
        """Everything needed exists, and, after two gcs without other jobs, nothing else does. [IV2] [GC5] [GC7]"""
        for job in sorted(self._denied.keys() & self._carried.keys()):
            self._deny(job, self._denied[job])
        there, needed = set(names), self.needed()
        if needed - there:
            self.fail(f"{min(needed - there)} is needed and gone [IV2]")
        # left by a dead creator: gc leaves it
        stale = {name for name in there if object_names.parse_marker(name) is not None}
        if self.removed_tables and self.chain:  # nobody may delete what jobs of other tables have left
            stale |= {name for name in there if retention.is_of_another_table(name, self.head.snapshot.table_id) or name in self.strays}
        exported = set(filter(is_export, there))
        if dead := there - needed - stale - exported - {object_names.HINT}:
            self.fail(f"{len(dead)} dead objects are left after two gcs, such as {min(dead)} [GC5] [GC7]")

    def fail(self, said: str) -> None:
        """End the run: a guarantee did not hold."""
        error = ViolationError(said)
        self._scheduler.fail(error)
        raise error


class WatchedSpace(Space):
    """A space that an oracle watches."""

    def __init__(self, scheduler: Scheduler, trace: Trace) -> None:
        super().__init__(scheduler, trace)
        self.oracle = Oracle(scheduler, SimulatedStore(self, onlooker(scheduler)))
        self.watcher = self.oracle
