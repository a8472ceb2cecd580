"""The programs of a theme's actors: jobs of every kind over the real engine, each reported to the oracle, and recorded. [IV1]-[IV8]

Data files are all the same few bytes: only constraints open them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
import pyarrow as pa
from tests.kit.footers import parquet_bytes
from tests.kit.tables import rewind, rollback
from tests.simulator.oracle import Oracle, WatchedSpace
from tests.simulator.run_history import History
from tests.simulator.version_rules import birth_of, refusing

from manifestcommit import errors
from manifestcommit.commits.commit_loop import create_table
from manifestcommit.commits.task_recovery import Recovery, intake_of
from manifestcommit.commits.two_phase import commit_prepared, give_up
from manifestcommit.format import codec, object_names, partitioning
from manifestcommit.format.change import StreamBatch
from manifestcommit.format.entries import Entry
from manifestcommit.format.fields import Field, Schema
from manifestcommit.format.partitioning import of_partition
from manifestcommit.format.snapshot import Constraint, Snapshot
from manifestcommit.gate import constraints
from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import raise_if_expired, read_version
from manifestcommit.operations import alter, gc
from manifestcommit.operations.rollback import tag, untag
from manifestcommit.protocol.retention import Policy
from manifestcommit.rows.row_change import Declared as DeclaredRows
from manifestcommit.rows.row_change import RowChange, is_lost
from manifestcommit.runtime.outcome import Outcome
from manifestcommit.scan import planning
from manifestcommit.testing.faults import Died
from manifestcommit.testing.history.operation import ANY_FENCE, EVERYTHING, FOR_EVER, UNDONE, Operation, Running
from manifestcommit.testing.scheduler import Actor, Scheduler, Trace
from manifestcommit.testing.simulated_store import SimulatedStore

SCHEMA = Schema(fields=(Field(id=1, name="id", type="long"), Field(id=2, name="day", type="string")))
DAYS: tuple[str | None, ...] = ("a b", None, "é%=+#'")
# the condition of a constraint that refuses a day -> the partition
_REFUSED = {refusing(day): repr((day,)) for day in DAYS}
SOURCE = "topic: 0"
QUERY = "q: 0"
# keys with these numbers advance the source, each by one; the others are identified only by their key
ADVANCING = 4
_ROW_TRIES = 3
# Expected errors of an operation when requests fail and others are faster. Anything else is a violation.
EXPECTED = (
    errors.StoreError, errors.OutcomeUnknownError, errors.CommitConflictError, errors.JobAbortedError, errors.JobFencedError,
    errors.KeyReusedError, errors.WatermarkError, errors.SnapshotExpiredError, errors.VersionNotFoundError, errors.UsageError,
    errors.SchemaMismatchError, errors.ConstraintError,
)  # fmt: skip


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A write of a row of each day with a quarantine. jobs: in the table, and in the quarantine; key: None: without one."""

    key: str | None
    jobs: tuple[str, ...]


class World(msgspec.Struct, kw_only=True):
    """What the actors of a run share. prepared: ids of jobs that any of them may finish; beside: path -> the world of each table of the
    run; joint: table id -> job of each joint commit that was tried; together: the same of those that any of them may finish; splits:
    writes with a quarantine. All three are the same in all of these."""

    scheduler: Scheduler
    trace: Trace
    space: WatchedSpace
    history: History
    prepared: list[str] = []
    url: str = "sim://table"
    beside: dict[str, World] = {}
    joint: list[dict[str, str]] = []
    together: list[dict[str, str]] = []
    splits: list[Split] = []

    @property
    def oracle(self) -> Oracle:
        return self.space.oracle


class Work(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The work of a job. number: of its key, which determines the rest of it, and what it advances, up to ADVANCING; None: without a key;
    batch: of the one streaming query; replaces: "", "day", "all", "dynamic"."""

    number: int | None = None
    batch: int | None = None
    day: int = 0
    files: int = 1
    replaces: str = ""
    serializable: bool = False
    recoverable: bool = False
    advances: bool = True

    @property
    def key(self) -> str | None:
        return None if self.number is None else f"k{self.number} %é"


RowOperation = Literal["delete", "update", "merge", "overwrite"]


class Edit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row change in one day, by the files that it leaves of those that it finds: a delete takes files out or rewrites them, an update
    rewrites them, a merge rewrites and adds, an overwrite by a condition takes out and adds. number: of its key; None: without one."""

    operation: RowOperation
    number: int | None = None
    day: int = 0
    most: int = 1

    @property
    def key(self) -> str | None:
        return None if self.number is None else f"{self.operation} {self.number} %é"

    def written(self, removed: int) -> int:
        """How many files it writes in the place of so many."""
        return {"delete": removed // 2, "update": removed, "merge": removed + 1, "overwrite": 1}[self.operation]


class Worker:
    """An actor that works on the table, in one life after another."""

    def __init__(self, world: World, actor: Actor) -> None:
        self.world, self.actor = world, actor
        self._lives = self._asked = self._since = 0
        self.begin_life()

    def begin_life(self) -> None:
        """Forget everything of an earlier life."""
        self._lives += 1
        self.actor.is_dead = False
        self.store = self._store_of(self.world)
        self.ctx = TableContext(self.store, self.actor)

    @property
    def table_id(self) -> str:
        """The id of its table."""
        return self.world.oracle.head.snapshot.table_id

    def _store_of(self, world: World) -> SimulatedStore:
        def beside(path: str) -> SimulatedStore:
            return self._store_of(world.beside[path])

        return SimulatedStore(world.space, self.actor, world.url, beside)

    def attempt(self, name: str, arguments: dict[str, Any], work: Callable[[Running], object], **what: Any) -> None:
        """One recorded operation, which may fail as operations do. what: fields of its record that are known before."""
        with self.attempting(name, arguments, **what) as running:
            result = work(running)
            self.note(f"{name}: {_shown(result)}")

    def note(self, said: str) -> None:
        """Put it into the trace."""
        self.world.trace.note(self.actor.name, said)

    @contextlib.contextmanager
    def attempting(self, name: str, arguments: dict[str, Any], **what: Any) -> Iterator[Running]:
        """The same as a block. An expected error ends the block, and leaves it only where others are around it."""
        world = self.world
        running = world.history.begin(f"{self.actor.name}.{self._lives}", name, **what)
        world.trace.note(self.actor.name, f"{name} {arguments or ''}")
        try:
            yield running
        except Died:
            world.trace.note(self.actor.name, f"{name} died")
            raise
        except (*EXPECTED, errors.TableNotFoundError, errors.NotATableError, errors.CorruptMetadataError) as error:
            if (
                isinstance(error, errors.TableNotFoundError | errors.NotATableError | errors.CorruptMetadataError)
                and not world.oracle.removed_tables
            ):
                raise
            if isinstance(error, errors.UsageError) and isinstance(error.__context__, errors.CorruptMetadataError):
                world.oracle.fail(f"{name} would have written what no reader accepts: {error.__context__} [OB4]")
            if isinstance(error, errors.TableNotFoundError):
                world.oracle.told_gone(running.operation.job)
            running.refused(error)
            world.trace.note(self.actor.name, f"{name}: {type(error).__name__}")
        world.history.end(running)

    # --- Jobs -------------------------------------------------------------------------------------

    def publish(self, work: Work) -> None:
        """One job from begin to outcome; if the store failed or the outcome is ambiguous, it may be retried."""
        self.attempt("publish", msgspec.to_builtins(work), lambda running: self._publish(running, work))

    def _publish(self, running: Running, work: Work) -> Outcome:
        job, told = self.written(running, work)
        self._since = len(self.world.oracle.chain)
        try:
            return self.settled(running, job.commit_now(), told)
        except errors.StoreError as error:
            if not told.shared:
                self.world.oracle.told_not(told.job, f"not committed ({type(error).__name__})")
                running.refused("store")
            raise

    def prepare(self, work: Work) -> None:
        """One job's first phase: from its first request on others may finish it."""
        self.attempt("prepare", msgspec.to_builtins(work), lambda running: self._prepare(running, work))

    def _prepare(self, running: Running, work: Work) -> str:
        job, _ = self.written(running, work, shared=True)
        self.world.prepared.append(job.id)
        return job.make_durable()

    def written(self, running: Running, work: Work, *, shared: bool = False) -> tuple[Job, Operation]:
        """The job with everything that it is to commit, reported to the oracle and recorded in the history."""
        job = Job(self.ctx, key=work.key, fingerprint=work.key, recoverable=work.recoverable)
        advances = {}
        if work.advances and work.number is not None and work.number < ADVANCING:
            advances[SOURCE] = (work.number, work.number + 1)
        batch = None if work.batch is None else StreamBatch(name=f"{QUERY} %é", query=QUERY, batch=work.batch)
        key = work.key if batch is None else f"{QUERY}, batch {batch.batch}"
        running.note(**_identity(job.id), key=key, advances=advances, shared=shared or work.recoverable)
        if batch is not None:
            job.take_batch(batch)
        for source, (start, end) in advances.items():
            job.advance(source, start, end)
        day = DAYS[work.day]
        if work.replaces:
            scope = {"day": {"day": day}, "all": None, "dynamic": "dynamic"}[work.replaces]
            job.overwrite(scope, conflict="serializable" if work.serializable else "blind")  # type: ignore[arg-type]  # one of three
        adds = {} if job.already_committed else self._write(job, work)
        emptied = () if not work.replaces else (EVERYTHING if work.replaces == "all" else repr((day,)),)
        running.note(adds=adds, empties=emptied, scope=emptied if work.serializable else ())
        self.world.oracle.declare(running.operation)
        return job, running.operation

    def declare_job(self, running: Running, job: Job) -> tuple[Job, Operation]:
        """Report and record a job that has written all that it is to commit."""
        running.note(**_identity(job.id), key=job.key, adds=_added(job.change().add))
        self.world.oracle.declare(running.operation)
        return job, running.operation

    def _write(self, job: Job, work: Work) -> dict[str, str]:
        plan = job.plan_write(SCHEMA, partition_by=["day"])
        recovery: Recovery | None = job.recovery
        if recovery is None:
            entries = self._put_files(job, plan.constraints, work.day, work.files)
            job.add_written(entries)
        else:
            same = recovery.work(plan, tasks=1, same=str(work.key))
            done = same.finished(self.store).get(0)
            if done is None:
                entries = self._put_files(job, plan.constraints, work.day, work.files)
                done = same.finish(self.store, self.actor, 0, entries)
            job.add_written(done.entries, done.manifests, intake=intake_of(done))
            entries = done.entries
        return _added(entries)

    # --- Row changes ------------------------------------------------------------------------------

    def change_rows(self, edit: Edit) -> None:
        """One delete, update, merge or overwrite by a condition, from its look at the files to its outcome; one that others were faster
        than is done again, as an operation of its own. [RC11]"""
        outcome: Outcome | None = None

        def once(running: Running) -> Outcome:
            nonlocal outcome
            return self._change_rows(running, edit)

        for _ in range(_ROW_TRIES):
            outcome = None
            self.attempt(edit.operation, msgspec.to_builtins(edit), once)
            if outcome is None or not is_lost(outcome):
                return

    def _change_rows(self, running: Running, edit: Edit) -> Outcome:
        oracle, day = self.world.oracle, DAYS[edit.day]
        change = RowChange(self.ctx, edit.operation, [repr(day)], DeclaredRows(key=edit.key))
        rewritten = {} if change.already_committed else self._rewritten(change, edit)
        running.note(**_identity(change.job_id), key=edit.key, **rewritten)
        told = running.operation
        oracle.declare(told)
        self._since = len(oracle.chain)
        try:
            outcome = change.commit()
        except errors.StoreError as error:
            oracle.told_not(told.job, f"not committed ({type(error).__name__})")
            running.refused("store")
            raise
        return self.settled(running, outcome, told)

    def _rewritten(self, change: RowChange, edit: Edit) -> dict[str, Any]:
        """What it commits: files of its day go, and new ones take their place."""
        snapshot, day = change.snapshot, DAYS[edit.day]
        change.read((of_partition(snapshot.partition_by, (day,)),))
        entries = planning.entries_table(self.ctx, snapshot)
        days = entries.column(f"partition.{snapshot.partition_by[0]}").to_pylist()
        found = [row for row, its in enumerate(days) if its == day][: edit.most]
        gone = entries.take(pa.array(found, pa.int64()))
        change.remove(gone)
        count = edit.written(len(found))
        new = self._put_files(change, snapshot.constraints, edit.day, count)
        if new:
            change.plan()
            change.add_written(new)
        return {"adds": _added(new), "removes": tuple(gone.column("path").to_pylist()), "scope": (repr((day,)),)}

    def _put_files(self, job: Job | RowChange, held: Mapping[str, Constraint], which: int, count: int) -> tuple[Entry, ...]:
        """As writers do, who check their rows against what the table held to when they began. [CK2]"""
        for name, each in held.items() if count else ():
            if each.condition == refusing(DAYS[which]):
                raise errors.ConstraintError(each.condition, constraint=name)
        return tuple(self._put_file(job, DAYS[which], number) for number in range(count))

    def _put_file(self, job: Job | RowChange, day: str | None, number: int) -> Entry:
        attempt = self.actor.randomness(8).hex()
        path = partitioning.folder(SCHEMA, (2,), (day,)) + object_names.data_file_name(0, attempt, number, job.job_id)
        data = _one_row()
        output = self.store.create_output(path)
        output.write(data)
        output.close()
        return Entry(path=path, partition=(day,), rows=1, bytes=len(data), digest=codec.digest(data), job=job.job_id)

    def settled(self, running: Running, outcome: Outcome, told: Operation) -> Outcome:
        oracle = self.world.oracle
        _tell(running, outcome, told)
        is_final = outcome.kind in ("fenced", "aborted") or (outcome.conflict is not None and outcome.conflict.rule in FOR_EVER)
        if outcome.kind == "already_committed":
            oracle.told_done(told, outcome.version, self._since)
        elif is_final or (outcome.kind in ("conflict", "key_reused") and not told.shared):
            oracle.told_not(told.job, outcome.kind)
        return outcome

    # --- Jobs that others have prepared -----------------------------------------------------------

    def finish(self, which: int, *, abort: bool) -> None:
        """Commit or abort a prepared job."""
        if job := self._prepared(which):
            act, name, gives_up = (give_up, "abort", job) if abort else (commit_prepared, "commit", "")
            self._since = len(self.world.oracle.chain)
            self.attempt(
                name,
                {"job": job},
                lambda running: self.settled(running, act(self.ctx, job), self.declared(job)),
                gives_up=gives_up,
                **shared_job(job),
            )

    def audit(self, which: int) -> None:
        """Look at a prepared job as a change of the newest version, and commit it only as long as no rows change. [CK6]"""
        if job := self._prepared(which):
            self._since = len(self.world.oracle.chain)
            self.attempt("commit", {"job": job}, lambda running: self._audit(running, job), **shared_job(job))

    def _audit(self, running: Running, job: str) -> Outcome:
        version = self.ctx.open().version
        with self.world.oracle.publishing(self.actor, version):
            outcome = commit_prepared(self.ctx, job, audited=version)
        return self.settled(running, outcome, self.declared(job))

    def _prepared(self, which: int) -> str | None:
        prepared = self.world.prepared
        return prepared[which % len(prepared)] if prepared else None

    def declared(self, job: str) -> Operation:
        """What is known of a job that others may have begun."""
        return self.world.oracle.declared(job) or Operation(id=job, process="", name="", begin=0, **shared_job(job))

    # --- The table's history ----------------------------------------------------------------------

    def tag(self, name: str, back: int) -> None:
        """Tag the version that far behind the latest."""
        self._alone("tag", {"name": name, "back": back}, lambda _: tag(self.ctx, name, max(1, self.ctx.open().version - back)))

    def untag(self, name: str) -> None:
        """Remove a tag."""
        self._alone("untag", {"name": name}, lambda _: untag(self.ctx, name))

    def rollback(self, back: int) -> None:
        """Go back that many versions."""

        def act(running: Running) -> Outcome:
            version = max(1, self.ctx.open().version - 1 - back)
            running.note(restores=version)
            return rollback(self.ctx, version, reason="a reason")

        self._alone("rollback", {"back": back}, act)

    def rewind(self, to: int | None) -> None:
        """Set the source back, or forget it."""
        self._alone("rewind", {"to": to}, lambda _: rewind(self.ctx, SOURCE, to, reason="a reason"), rewinds={SOURCE: to})

    def constrain(self, name: str, which: int) -> None:
        """Add a constraint that refuses a day, once all rows are found to keep it. [CK3]"""
        condition = refusing(DAYS[which])
        adds = {name: _REFUSED[condition]}

        def act(running: Running) -> Outcome:
            try:
                outcome = constraints.add(self.ctx, name, condition)
            except errors.DataFileMissingError as error:  # gc expired the version whose rows it read
                running.refused("expired")
                raise errors.SnapshotExpiredError(str(error)) from error
            if outcome.kind == "already_committed":
                running.saw(outcome.version or 0)
            return outcome

        self._alone("constrain", adds, act, constrains=adds)

    def unconstrain(self, name: str) -> None:
        """Drop a constraint. [CK3]"""
        drops = {name: ""}
        self._alone("drop", drops, lambda _: constraints.drop(self.ctx, name), constrains=drops)

    def _alone(self, name: str, arguments: dict[str, Any], act: Callable[[Running], Outcome], **what: Any) -> None:
        def settled(running: Running) -> Outcome:
            try:
                outcome = act(running)
            except errors.UsageError:  # nothing was changed
                running.refused("usage")
                raise
            if outcome.kind == "already_committed":  # nothing to do, and no job of its own
                return outcome
            running.note(**_identity(outcome.job_id))
            return self.settled(running, outcome, running.operation)

        self.attempt(name, arguments, settled, **what)

    # --- Table paths and sources ------------------------------------------------------------------

    def remake(self) -> None:
        """Remove all objects below the path, once in a run, and create a new table there. [LY10] [LY14]"""

        def act(running: Running) -> int:
            if not self.world.oracle.removed_tables:
                self.store.remove_root()
            self.ctx = TableContext(self.store, self.actor)
            return create_table(self.ctx, schema=SCHEMA, partition_by=(2,), properties={}).version

        self.attempt("remake", {}, act)

    def declare(self, position: int) -> None:
        """Create a table with the beginning of the source, or declare it in the existing one. [WM7]"""

        def act(running: Running) -> int:
            ctx = TableContext(self.store, self.actor)
            head = alter.create(ctx, SCHEMA, ["day"], {}, {SOURCE: position})
            looked = self.world.history.begin(running.operation.process, "declared", outcome="failed")
            looked.note(begin=running.operation.begin + 0.5)
            looked.saw(head.version)
            # The reported beginning; nobody forgets a source in a theme that declares one.
            looked.note(origins={**head.snapshot.origins, SOURCE: position})
            self.world.history.end(looked)
            return head.version

        self.attempt("declare", {"position": position}, act, advances={SOURCE: (position, position)})

    # --- gc, readers, time ------------------------------------------------------------------------

    def collect(self, policy: Policy) -> None:
        """One gc."""

        def act(running: Running) -> gc.GcReport:
            report = gc.run(self.ctx, policy)
            running.collected(report.version, report.fence)
            return report

        forgets = (EVERYTHING,) if policy.keep_keys < Policy().keep_keys else ()
        keeps = policy.keep_keys if forgets else 0
        self.attempt("gc", msgspec.to_builtins(policy), act, outcome="failed", fence=ANY_FENCE, forgets=forgets, keeps=keeps)

    def read(self, back: int | None) -> None:
        """Read the latest version, or one that far behind it, file by file; others may act between any two."""
        self.attempt("read", {"back": back}, lambda running: self._read(running, back), outcome="failed")

    def _read(self, running: Running, back: int | None) -> int:
        oracle = self.world.oracle
        known, removed = oracle.latest, len(oracle.removed_tables)
        head = self.ctx.open()
        running.note(table=head.snapshot.table_id)
        oracle.read(head, known if len(oracle.removed_tables) == removed else 0)
        version = head.version if back is None else max(1, head.version - back)
        try:
            if back is not None:
                running.note(at=version)
                head = read_version(self.store, head, version)
                oracle.read(head)
            with raise_if_expired(self.store, version):
                files = sorted(oracle.state_of(head.snapshot, head.digest).files)
        except errors.SnapshotExpiredError:
            if head.snapshot.table_id not in oracle.removed_tables:
                oracle.told_expired(version)
            raise
        missing = [path for path in files if not self._is_there(path)]
        for path in missing if head.snapshot.table_id not in oracle.removed_tables else ():
            oracle.found_missing(head.version, path)
        if not missing:  # otherwise it has expired meanwhile
            held = refused_by(head.snapshot)
            running.saw(head.version, items=files, watermarks=head.snapshot.watermarks, constraints=held)
        return head.version

    def _is_there(self, path: str) -> bool:
        try:
            self.store.get(path, 0, 1)
        except FileNotFoundError:
            return False
        return True

    def wait(self, hours: int) -> None:
        """Let time pass."""
        self.actor.sleep(hours * 3600.0)

    def asks(self) -> None:
        """Results from now on are true of some version since."""
        self._since = len(self.world.oracle.chain)

    def says(self, what: str) -> bool:
        """Whether it does what it may do."""
        self._asked += 1
        return bool(self.world.scheduler.choices.pick(f"{what} {self.actor.name}.{self._asked}", 2))


@functools.cache
def _one_row() -> bytes:
    """A data file. [DF1]"""
    return parquet_bytes(pa.table({"id": [1]}))


def refused_by(snapshot: Snapshot) -> dict[str, str]:
    """Each constraint, and the partition that it refuses."""
    return {name: _REFUSED[each.condition] for name, each in snapshot.constraints.items()}


def _table_of(job: str) -> str:
    return object_names.parse_job_id(job).table_id


def shared_job(job: str) -> dict[str, Any]:
    """What is recorded of a job that others can finish."""
    return {"job": job, "table": _table_of(job), "shared": True}


def _identity(job: str) -> dict[str, Any]:
    return {"job": job, "table": _table_of(job), "birth": birth_of(job)}


def _added(entries: Iterable[Entry]) -> dict[str, str]:
    return {entry.path: repr(tuple(entry.partition)) for entry in entries}


def _tell(running: Running, outcome: Outcome, told: Operation) -> None:
    """The engine's result, in the terms of a record."""
    if outcome.committed:
        assert outcome.version is not None
        running.committed(outcome.version, already=outcome.already_committed)
    elif outcome.conflict is not None:
        mismatch, rule = outcome.conflict.mismatch, outcome.conflict.rule
        running.refused(mismatch.kind if mismatch is not None else rule if rule in UNDONE else "conflict")
    elif outcome.kind != "unknown":
        running.refused("behind" if (told.key or "").startswith(QUERY) and outcome.kind == "key_reused" else outcome.kind)


def _shown(result: object) -> str:
    if isinstance(result, Outcome):
        rule = f" ({result.conflict.rule})" if result.conflict is not None else ""
        return f"{result.kind}{rule}, job {result.job_id}, version {result.version}"
    if isinstance(result, gc.GcReport):
        return f"version {result.version}, fence {result.fence}, expired {result.expired}"
    return f"done: {result}"
