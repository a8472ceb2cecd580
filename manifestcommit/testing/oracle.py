"""What must hold of a table at every moment of a run, and of everything that an actor is told. [IV1]-[IV8]

It sees every object appear and go, so it knows what is true: the chain as it was created first, whatever a stalled writer brings back.
Not here: what one version may do to the one before it (steps).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..core import format
from ..core.retention import writer_of
from ..core.snapshot import Snapshot
from ..engine import plan
from ..engine.head import Head
from ..engine.manifests import JOB_RUN, KEY_RUN
from ..engine.session import Session
from ..store import Store
from .scheduler import Scheduler
from .steps import RULES, Declared, Rule, State, birth_of, broken, carried_wrongly, is_readable, steps_of


class ViolationError(AssertionError):
    """A promise of the table did not hold."""


class Oracle:
    """Watches one space. `chain`: every version as it was created first.

    store: a view of the space for looking only; rules: for each version, by what is known of the jobs.
    """

    def __init__(self, scheduler: Scheduler, store: Store, rules: Sequence[Rule] = RULES) -> None:
        self._scheduler, self._rules = scheduler, rules
        self._session = Session(store, None)
        self.chain: list[State] = []
        self._sizes: dict[str, int] = {}
        self._declared: dict[str, list[Declared]] = {}
        self._carried: dict[str, int] = {}
        self._denied: dict[str, str] = {}
        self._needed: tuple[int, frozenset[str]] = (0, frozenset())

    def resume(self, other: Oracle) -> None:
        """Goes on from what another one has seen."""
        self.chain, self._sizes = list(other.chain), dict(other._sizes)
        self._declared, self._carried = {job: list(told) for job, told in other._declared.items()}, dict(other._carried)

    @property
    def head(self) -> State:
        return self.chain[-1]

    # --- what it is told ----------------------------------------------------------------------------------------------------

    def declare(self, told: Declared) -> None:
        """An actor is about to commit or prepare this."""
        self._declared.setdefault(told.job, []).append(told)

    def declared(self, job: str) -> Declared | None:
        """What was declared of the job first."""
        told = self._declared.get(job)
        return told[0] if told else None

    def told_committed(self, job: str, version: int | None) -> None:
        """An actor was told that its job is in that version: it is, for ever. [IV2] [IV8]"""
        if version is None or not 1 <= version <= len(self.chain) or job not in self.chain[version - 1].carried:
            self._fail(f"job {job} was acknowledged at version {version}, which does not carry it [IV2] [IV8]")

    def told_done(self, job: str, key: str | None, version: int | None) -> None:
        """An actor was told that its key was committed before. [KY3]"""
        commits = self.chain[version - 1].snapshot.commits if version is not None and 1 <= version <= len(self.chain) else ()
        if all(each.key != key for each in commits):
            self._fail(f"the key {key!r} was acknowledged at version {version}, which does not carry it [KY3]")
        carried = self._carried.get(job)
        if carried is not None and any(key not in state.keys for state in self.chain[carried - 1 : version]):
            return  # gc forgot it meanwhile, with the job's own record, and others committed it again: either is true
        if carried != version:  # by another driver, under the id that both share
            self._deny(job, "already done under its key")

    def told_not(self, job: str, why: str) -> None:
        """An actor was told that its job did not commit: it never will. [CM10]"""
        self._deny(job, why)

    def read(self, head: Head, at_least: int = 0) -> None:
        """A reader was given this snapshot: it is one that was committed. at_least: the head when it asked for it. [RD1] [RD2] [RD3]"""
        if head.version < at_least:
            self._fail(f"a reader was given version {head.version} as head, after version {at_least} had been committed [RD1]")
        true = self.chain[head.version - 1] if head.version <= len(self.chain) else None
        if true is None or true.digest != head.digest:
            self._fail(f"a reader was given another version {head.version} than the one that was committed [RD2] [RD3]")

    def found_missing(self, version: int, what: str) -> None:
        """A reader did not find something of a version. [IV2] [GC4]"""
        if is_readable(self.head.snapshot, version):
            self._fail(f"{what} of version {version} is gone, and that version can be read [IV7]")

    def told_expired(self, version: int) -> None:
        """A reader was told that a version can no longer be read. [RD3]"""
        if is_readable(self.head.snapshot, version):
            self._fail(f"a reader was told that version {version} was expired, and it can be read [RD3]")

    def _deny(self, job: str, why: str) -> None:
        if job in self._carried:
            self._fail(f"job {job} was told to be {why}, and is in version {self._carried[job]} [CM10]")
        self._denied[job] = why

    # --- what it sees -------------------------------------------------------------------------------------------------------

    def appeared(self, name: str, data: bytes, actor: str) -> None:
        """An object was put or created."""
        self._sizes[name] = len(data)
        version = format.parse_version(name)
        if version is not None and version > len(self.chain):
            self._grow(version, self.state_of(format.decode_snapshot(data, name=name), format.digest(data)))

    def gone(self, name: str, actor: str) -> None:
        """An object was deleted: nobody can need it any more. [IV7]"""
        self._sizes.pop(name, None)
        if not self.chain:
            return
        head = self.head.snapshot
        if name in self.needed():
            self._fail(f"{actor} deleted {name}, which a readable version needs [IV7]")
        waiting = format.parse_intent(name)
        if waiting is not None and waiting not in self.head.jobs and birth_of(waiting) >= head.fence:
            self._fail(f"{actor} deleted the intent of job {waiting}, which nobody has decided [CM22]")
        job = self._writer(name, head.table_id)
        if job is not None and birth_of(job) >= head.fence and job not in self._denied:
            self._fail(f"{actor} deleted {name}, of a job that can still commit [GC5] [IV7]")

    def _writer(self, name: str, table_id: str) -> str | None:
        if name.startswith(format.MARKS):
            return None  # whoever conflicts takes its own away [AB6]
        if name.startswith(format.JOBS):
            return format.job_of_handed(name)
        return format.job_of_manifest(name) if name.startswith(format.MANIFESTS) else writer_of(name, table_id)

    def _grow(self, version: int, new: State) -> None:
        if version != len(self.chain) + 1:
            self._fail(f"version {version} was created above {len(self.chain)} [IV1]")
        if self._rules is RULES and (said := carried_wrongly(new.snapshot, self._declared)) is not None:
            self._fail(f"version {version}: {said}")
        for step in steps_of(self.chain, new, self._declared) if self.chain else ():
            for said in broken(step, self._rules):
                self._fail(f"version {version} ({step.new.commit.operation} by job {step.new.commit.job}): {said}")
        for job in sorted(new.carried):
            if job in self._carried:
                self._fail(f"job {job} was committed twice, at {self._carried[job]} and {version} [IV4]")
            if job in self._denied:
                self._fail(f"job {job} was told to be {self._denied[job]}, and was committed at {version} [CM10]")
        for entry, size in self._listed(new.snapshot):
            if self._sizes.get(entry) != size:
                self._fail(f"version {version} lists {entry}, which is not there in its length [IV6] [CM18]")
        self._carried |= dict.fromkeys(new.carried, version)
        self.chain.append(new)

    def _listed(self, snapshot: Snapshot) -> Iterable[tuple[str, int]]:
        yield from ((entry.path, entry.bytes) for entry in snapshot.added)
        yield from ((ref.path, ref.bytes) for ref in snapshot.manifests)
        for runs in (snapshot.key_runs, snapshot.job_runs, snapshot.removed_runs):
            yield from ((run.path, run.bytes) for run in runs)

    def needed(self) -> frozenset[str]:
        """The chain as far as it can be read, and all that it lists."""
        head = self.head.snapshot
        if self._needed[0] != head.version:
            names = set[str]()
            for state in self.chain:
                if is_readable(head, state.version):
                    names.update(state.files, state.objects, (format.version_name(state.version),))
            self._needed = (head.version, frozenset(names))
        return self._needed[1]

    def state_of(self, snapshot: Snapshot, digest: str) -> State:
        """A version with all that it has spilled."""
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
            objects=frozenset([*(ref.path for ref in snapshot.manifests), *(each.path for each in runs)]),
        )  # fmt: skip

    def _spilled_files(self, snapshot: Snapshot) -> dict[str, tuple[object, ...]]:
        entries = plan.entries_table(self._session, snapshot)
        columns = [entries.column(f"partition.{each}").to_pylist() for each in snapshot.partition_by]
        rows: Iterable[tuple[Any, ...]] = zip(*columns, strict=True) if columns else [()] * entries.num_rows
        paths = entries.column("path").to_pylist()
        if len(paths) != len(set(paths)):
            self._fail(f"version {snapshot.version} lists a path twice [IV6]")
        return dict(zip(paths, rows, strict=True))

    def _spilled_records(self, snapshot: Snapshot) -> tuple[dict[str, int], dict[str, int | None]]:
        newest: dict[str, tuple[int, str]] = {}
        for run in snapshot.key_runs:
            for row in self._session.manifests.run(run, KEY_RUN).to_pylist():
                newest[row["key"]] = max(newest.get(row["key"], (0, "")), (row["version"], row["digest"]))
        newest |= {key: (record.version, record.digest) for key, record in snapshot.keys.items()}
        jobs = dict(snapshot.recent_jobs)
        for run in snapshot.job_runs:
            jobs |= {row["job"]: row["version"] for row in self._session.manifests.run(run, JOB_RUN).to_pylist()}
        return {key: version for key, (version, digest) in newest.items() if digest}, jobs

    # --- at the end ---------------------------------------------------------------------------------------------------------

    def check_end(self, names: Iterable[str]) -> None:
        """All that is needed is there, and, after two gcs with nobody else, nothing else is. [IV2] [GC5] [GC7]"""
        there, needed = set(names), self.needed()
        if needed - there:
            self._fail(f"{min(needed - there)} is needed and gone [IV2]")
        if dead := there - needed - {format.HINT}:
            self._fail(f"{len(dead)} dead objects are left after two gcs, such as {min(dead)} [GC5] [GC7]")

    def _fail(self, said: str) -> None:
        error = ViolationError(said)
        self._scheduler.fail(error)
        raise error
