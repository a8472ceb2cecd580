"""One table's work before its commit: what the table already holds of it, what it has written, what
of that outgrows a snapshot, its part in a joint commit, and the object that lets any process commit
it. [CM2] [CM12] [MT3] [AB3]"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from ..errors import TableNotFoundError, UsageError, VersionNotFoundError
from ..format import codec, manifest_table, object_names
from ..format.change import (
    Change,
    Overwrite,
    Prepared,
    Rollback,
    Write,
    is_declared,
    joint_declaration,
    merged,
)
from ..format.entries import Entry, ManifestRef, encode
from ..format.fields import Partitioned, Schema, lowest_version
from ..format.object_names import attempt_id
from ..format.partitioning import PartitionPattern, dedupe, of_partition
from ..format.snapshot import FORMAT_VERSION, JointRecord, KeyRecord, RunRef, Snapshot, TogetherJob
from ..log.manifests import JOB_RUN, KEY_RUN, create_own, put_manifest, put_run
from ..log.table_context import TableContext, find_key, find_key_at, removed
from ..log.version_chain import Head, newest_above, read_object
from ..protocol.apply import (
    entries_overflow,
    inlined_overflow,
    manifests_to_merge,
    removed_overflow,
    runs_to_merge,
)
from ..protocol.change_feed import held, judge, record_of
from ..protocol.conflict import Conflict
from ..protocol.joint_outcome import as_decision, as_member, attempt_of, last_state
from ..runtime.outcome import (
    InputTotals,
    JobMetrics,
    Meter,
    Outcome,
    Phase,
    WriteTotals,
    fenced_error,
)

# What a table already holds of a job, of its key, or of its batch of a streaming query: the
# outcome without another create.


def settled_outcome(ctx: TableContext, head: Head, change: Change, *, sent: bool) -> Outcome | None:
    """What the head says already of this job or key; None: nothing. [CM1] [CM2] [KY2] [KY3]"""
    snapshot = head.snapshot
    check_table(ctx, snapshot, change.job)
    # Before a create was sent, no one but the head itself can know of the job: the runs need not be
    # asked.
    state, version = ctx.manifests.job(snapshot, change.job, runs=sent)
    if state is not None:
        return Outcome(kind=state, job_id=change.job, version=version)
    done = None
    if isinstance(change, Write):
        record = find_key(ctx, snapshot, change.key) if change.key is not None else None
        done = batch_outcome(snapshot, change) if record is None else key_outcome(change, record)
    # Behind the fence its own record may be gone: it may have committed, and others have gone on
    # from there.
    if done is not None and not (
        done.kind == "key_reused" and sent and change.birth < snapshot.fence
    ):
        return done
    if not is_fenced(snapshot, change):
        return None
    fenced = Outcome(kind="fenced", job_id=change.job)
    return fenced_outcome(ctx, head, change.job) if sent else fenced


def is_fenced(snapshot: Snapshot, change: Change) -> bool:
    """Whether the change, or what it lists, is of before the fence: it cannot commit. [CM2]"""
    return change.since < snapshot.fence or any(
        birth_of(job) < snapshot.fence
        for job in _jobs_listed(change, (snapshot.table_id, *snapshot.cloned))
    )


def fenced_outcome(ctx: TableContext, head: Head, job: str) -> Outcome:
    """Of a job that may have sent a create: only the history since its birth rules it out. [CM2]"""
    since, carrier = birth_of(job) + 1, None
    for version in range(since, head.version + 1):
        if version in head.snapshot.void:
            continue  # no job has committed with it, whoever left it [MT8] [LY15]
        # An object below `expired` may be one that this very job brought back after gc had deleted
        # the version.
        found = read_object(ctx.store, version) if version >= head.snapshot.expired else None
        if found is None:
            reason = f"it has expired, and version {version}, which may carry it, is gone"
            return Outcome(kind="unknown", job_id=job, reason=reason)
        if any(each.job == job for each in found.snapshot.commits):
            carrier = version
            break
    # They may have expired since the head was read, been deleted, and one of them brought back.
    newest = newest_above(ctx.store, head.version, head)
    table_id = head.snapshot.table_id
    if newest is None or newest.snapshot.table_id != table_id or newest.snapshot.expired > since:
        reason = f"versions from {since} on, which may carry it, expired while they were read"
        return Outcome(kind="unknown", job_id=job, reason=reason)
    return Outcome(kind="fenced" if carrier is None else "committed", job_id=job, version=carrier)


def found_outcome(ctx: TableContext, head: Head, change: Write) -> Outcome:
    """The outcome of a job that holds no work, since its key was committed when it began: what the
    newest head says of the key. [KY8] head: one that was read before."""
    newest = newest_above(ctx.store, head.version, head)
    if newest is None:
        raise removed(ctx, head, None)
    check_table(ctx, newest.snapshot, change.job)
    newest, record = find_key_at(ctx, newest, str(change.key))
    if record is not None:
        return key_outcome(change, record)
    mine = f"found its key {change.key!r} committed when it began, and holds no rows"
    winner = (
        "the table does not record that key any more: a rewind or a rollback undid its work, or "
        "gc forgot the key"
    )
    conflict = Conflict(rule="key_is_gone", mine=mine, winner=winner)
    return Outcome(kind="conflict", job_id=change.job, conflict=conflict)


def key_outcome(change: Write, record: KeyRecord) -> Outcome:
    """The same key again: the first version, if declared the same; else reused. [KY2] [KY3]"""
    if is_declared(record.digest, change.declared):
        return Outcome(kind="already_committed", job_id=change.job, version=record.version)
    reason = (
        f"the key {change.key!r} was committed at version {record.version} with another declaration"
        " (mode, partitions, watermark ranges or fingerprint differ); nothing was committed now. "
        "Use the same declaration for a rerun, or none at all: put all of a block's work below `if "
        "not job.already_committed:`, or call skip() of a transaction. Use another key for other "
        "work."
    )
    return Outcome(kind="key_reused", job_id=change.job, version=record.version, reason=reason)


def batch_outcome(snapshot: Snapshot, change: Write) -> Outcome | None:
    """What the table's record of a query says of this batch; None: it is none, or may commit.
    [KY6]"""
    if change.stream is None:
        return None
    record = record_of(snapshot.streams, change.stream)
    verdict = judge(record, change.stream)
    if record is None or verdict in ("next", "gap"):
        return None
    job, version, mine = change.job, record.version, change.stream
    if verdict == "done":
        return Outcome(kind="already_committed", job_id=job, version=version)
    if verdict == "behind":
        reason = (
            f"the table holds {held(record)} of query {record.query} (version {version}), and this "
            f"is batch {mine.batch}: its checkpoint is older than the table, such as one restored "
            "from a backup, or another driver has gone on with it. Nothing was committed now. "
            "Start a new query, with a new checkpoint and key, from the table's current state."
        )
    else:
        reason = (
            f"under the key {mine.name!r} the table holds {held(record)} of query {record.query} "
            f"(version {version}), and this is batch {mine.batch} of query {mine.query}: another "
            "query, or the same one without its checkpoint. Nothing was committed now. Start it "
            "with the old checkpoint, or, if its input is not in the table yet, under another key."
        )
    return Outcome(kind="key_reused", job_id=job, version=version, reason=reason)


def check_table(ctx: TableContext, snapshot: Snapshot, job: str) -> None:
    """A job commits to its own table only. [LY10]"""
    if object_names.parse_job_id(job).table_id != snapshot.table_id:
        raise TableNotFoundError(
            f"the table at {ctx.store.url} was removed and another one is there now; nothing of "
            "this job was committed. Run it again."
        )


def birth_of(job: str) -> int:
    return object_names.parse_job_id(job).birth


def _jobs_listed(change: Change, own: Sequence[str]) -> list[str]:
    """The other jobs that wrote what the change newly lists: adopted work may be older than the
    job, and so may a file that was in the table before, which gc takes by the job in its name
    whichever job lists it. [CM2] [GC5]"""
    if not isinstance(change, Write):
        return []
    mine = change.job
    others = [each for each in change.add if each.job != mine or mine not in each.path]
    jobs = [entry.job for entry in others]
    jobs += [object_names.job_of_manifest(ref.path) for ref in change.add_manifests]
    writers = [object_names.writer_of(entry.path, own) for entry in others]
    return list(dict.fromkeys([*jobs, *(job for job in writers if job is not None)]))


def below(
    version: int | None,
    birth: int,
    overwrite: Overwrite | None,
    reads: tuple[PartitionPattern, ...],
) -> int | None:
    """What the change of a job has to say of it; None where it changes nothing: its birth is older,
    or it is compared with nobody."""
    is_compared = bool(reads) or (overwrite is not None and overwrite.conflict == "serializable")
    return version if version is not None and version < birth and is_compared else None


# Moving what outgrew the head into objects of its own, within a bounded amount of work. [CM12]
# [OB11]


class Spiller:
    """Does for one job's commit what `protocol.apply` asks for; what it wrote for a lost
    attempt is used again where it still fits. [CM12]"""

    def __init__(self, ctx: TableContext, job: str) -> None:
        self._ctx = ctx
        self._job = job
        self._budgets = ctx.tuning.budgets
        self._merged: dict[tuple[tuple[str, int, int], ...], ManifestRef] = {}

    def stage(self, change: Write) -> Write:
        """The change, its many entries in manifests that are written only once. [CM12]"""
        foreign = any(change.job not in entry.path for entry in change.add)
        if change.schema is None or foreign or not entries_overflow(change.add, self._budgets):
            return change  # the paths of foreign files stay where the rules look for live ones
        entries = sorted(change.add, key=lambda entry: entry.path)
        size = self._budgets.manifest_entries
        starts = range(0, len(entries), size)
        refs = [self._put(entries[at : at + size], change) for at in starts]
        return replace(change, add=(), add_manifests=(*change.add_manifests, *refs))

    def settle(self, snapshot: Snapshot, merge: frozenset[str] = frozenset()) -> Snapshot:
        """The snapshot with everything that is over its budget spilled, and a bounded number of
        manifests merged. [CM12] merge: manifests that are merged instead, as far as they are still
        listed. [GC11]"""
        if inlined_overflow(snapshot, self._budgets):
            snapshot = self._spill_entries(snapshot)
        if len(snapshot.keys) > self._budgets.inline_keys:
            snapshot = self._spill_keys(snapshot)
        if len(snapshot.recent_jobs) > self._budgets.inline_jobs:
            snapshot = self._spill_jobs(snapshot)
        if snapshot.removed and removed_overflow(snapshot, self._budgets):
            snapshot = self._spill_removed(snapshot)
        if merge:
            group = tuple(ref for ref in snapshot.manifests if ref.path in merge)
            return self._merge_manifests(snapshot, group) if group else snapshot
        for group in manifests_to_merge(snapshot, self._budgets) if snapshot.manifests else ():
            snapshot = self._merge_manifests(snapshot, group)
        return snapshot

    def _put(self, entries: Sequence[Entry] | pa.Table, of: Write | Snapshot) -> ManifestRef:
        assert of.schema is not None
        shape = Partitioned(of.schema, of.partition_by or ())
        return put_manifest(self._ctx.store, entries, shape, job=self._job, env=self._ctx.env)

    def _spill_entries(self, snapshot: Snapshot) -> Snapshot:
        ref = self._put(snapshot.added, snapshot)
        stamped = replace(ref, added=snapshot.version)
        return replace(snapshot, added=(), manifests=(*snapshot.manifests, stamped))

    def _spill_keys(self, snapshot: Snapshot) -> Snapshot:
        names = sorted(snapshot.keys)
        columns = {
            "key": pa.array(names, pa.string()),
            "version": pa.array([snapshot.keys[name].version for name in names], pa.int64()),
            "digest": pa.array([snapshot.keys[name].digest for name in names], pa.string()),
        }
        runs = (*snapshot.key_runs, self._put_run(columns))
        return replace(snapshot, keys={}, key_runs=self._merge_runs(runs, KEY_RUN))

    def _spill_jobs(self, snapshot: Snapshot) -> Snapshot:
        # The newest stay inline: they are what a stalled writer asks the head for.
        carried = {commit.job for commit in snapshot.commits}
        own = {job: version for job, version in snapshot.recent_jobs.items() if job in carried}
        names = sorted(snapshot.recent_jobs.keys() - own.keys())
        versions = pa.array([snapshot.recent_jobs[name] for name in names], pa.int64())
        columns = {"job": pa.array(names, pa.string()), "version": versions}
        runs = (*snapshot.job_runs, self._put_run(columns))
        return replace(snapshot, recent_jobs=own, job_runs=self._merge_runs(runs, JOB_RUN))

    def _spill_removed(self, snapshot: Snapshot) -> Snapshot:
        united = self._ctx.manifests.removed(snapshot)
        live = {ref.path for ref in snapshot.manifests}
        names = sorted(path for path in united if path in live)
        bitmaps = pa.array([encode(united[name]) for name in names], pa.string())
        columns = {"path": pa.array(names, pa.string()), "bitmap": bitmaps}
        return replace(snapshot, removed={}, removed_runs=(self._put_run(columns),))

    def _put_run(self, columns: dict[str, pa.Array]) -> RunRef:
        return put_run(self._ctx.store, columns, job=self._job, env=self._ctx.env)

    def _merge_runs(self, runs: tuple[RunRef, ...], kind: pa.Schema) -> tuple[RunRef, ...]:
        group = runs_to_merge(runs, self._budgets)
        if not group:
            return runs
        tables = [self._ctx.manifests.run(run, kind) for run in group]
        together = pa.concat_tables(tables)
        if kind is KEY_RUN:
            together = newest_records(together)
        columns = {name: together.column(name).combine_chunks() for name in kind.names}
        merged = self._put_run(columns)
        return (*(run for run in runs if run not in group), merged)

    def _merge_manifests(self, snapshot: Snapshot, group: tuple[ManifestRef, ...]) -> Snapshot:
        removed = self._ctx.manifests.removed(snapshot)
        # a staged one is added where it lands
        inputs = tuple((ref.path, removed.get(ref.path, 0), ref.added) for ref in group)
        if inputs not in self._merged:
            self._merged[inputs] = self._merge(snapshot, group, removed)
        merged = self._merged[inputs]
        paths = {ref.path for ref in group}
        kept = tuple(ref for ref in snapshot.manifests if ref.path not in paths)
        bitmaps = {path: text for path, text in snapshot.removed.items() if path not in paths}
        stamped = replace(merged, added=snapshot.version)
        # Runs go with the last manifest of which they tell something.
        runs = snapshot.removed_runs if any(ref.path in removed for ref in kept) else ()
        return replace(snapshot, manifests=(*kept, stamped), removed=bitmaps, removed_runs=runs)

    def _merge(
        self, snapshot: Snapshot, group: tuple[ManifestRef, ...], removed: dict[str, int]
    ) -> ManifestRef:
        live = self._ctx.manifests.live
        tables = [live(ref, snapshot, removed.get(ref.path, 0)) for ref in group]
        return self._put(manifest_table.unite(tables, snapshot), snapshot)


def newest_records(keys: pa.Table) -> pa.Table:
    """Each key once, by its newest record: a commit may record a dropped key again. [OB11] [WM5]"""
    ordered = keys.sort_by([("key", "ascending"), ("version", "descending")])
    names = ordered.column("key").to_pylist()
    return ordered.filter(
        pa.array([row == 0 or name != names[row - 1] for row, name in enumerate(names)], pa.bool_())
    )


# What one table's commit does as a part of a joint commit.


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """The commit makes a version that is pending until the home decides. home: its root; job: the
    job there; attempt: the attempt's number; is_recoverable: other runs make the same attempts, and
    may have written other rows. [MT3] [AB6]"""

    home: str
    job: str
    attempt: int
    is_recoverable: bool = False

    @property
    def id(self) -> str:
        """The id of the attempt. [MT9]"""
        return attempt_id(self.job, self.attempt)

    def made(self, head: Snapshot, snapshot: Snapshot) -> Snapshot:
        """The next version after `head`, as this member."""
        home, job, number = self.home, self.job, self.attempt
        return as_member(snapshot, home=home, job=job, attempt=number, base=last_state(head))

    def is_placed(self, newest: Snapshot) -> bool:
        """Whether this object is this very member already, by any process. [MT3]"""
        return self._is_of(newest) and not self.is_recoverable

    def is_over(self, newest: Snapshot, settled: Snapshot) -> bool:
        """Whether this object, with its attempt, was aborted. settled: a state above it. [MT9]"""
        return self._is_of(newest) and newest.version in settled.void

    def is_behind(self, newest: Snapshot) -> bool:
        """Whether this object is a member of a later attempt of the same jobs, which begins only
        once this one was aborted. [MT9] [MT11]"""
        pending = newest.pending
        return pending is not None and pending.job == self.job and pending.attempt > self.attempt

    def _is_of(self, newest: Snapshot) -> bool:
        return newest.pending is not None and attempt_of(newest.pending) == self.id


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The commit decides for these. attempt: its id; members: table id -> member. [MT4]"""

    attempt: str
    members: dict[str, JointRecord]

    def made(self, head: Snapshot, snapshot: Snapshot) -> Snapshot:
        """The next version of the home, as this decision."""
        return as_decision(snapshot, self.members)

    def is_over(self, ctx: TableContext, head: Snapshot) -> bool:
        """Whether the home records the attempt as aborted: it must not be decided. [MT4]"""
        return ctx.manifests.job(head, self.attempt)[0] == "aborted"


class Settlement(msgspec.Struct, frozen=True):
    """The commit settles a member whose home cannot decide any more. home: its id. [MT10]"""

    home: str

    def made(self, head: Snapshot, snapshot: Snapshot) -> Snapshot:
        """The next version, which no reader compares with that home."""
        return replace(snapshot, homes=merged(snapshot.homes, {self.home: None}))


Part = Member | Decision | Settlement


def seal(ctx: TableContext, head: Head, change: Write, done: KeyRecord | None) -> bytes:
    """All that the change's commit needs, as the one object that `put_prepared` makes durable.
    JobFencedError where it cannot commit any more. [AB3] [CM2] head: the version at which the job
    began, or a later one. A list, and one request for every 65,536 files of more than some hundred.
    """
    began_us = ctx.env.now_us()
    newest = newest_above(ctx.store, head.version, head)
    if newest is not None and is_fenced(newest.snapshot, change):
        raise fenced_error(ctx.store.url, change.job)
    staged = Spiller(ctx, change.job).stage(ctx.signed(change, head.snapshot.properties))
    prepare_s = max(0, ctx.env.now_us() - began_us) / 1e6
    staged = replace(staged, summary=replace(staged.summary, prepare_s=prepare_s))
    return codec.encode_prepared(prepared_now(ctx, staged, done))


def prepared_now(ctx: TableContext, change: Write, done: KeyRecord | None = None) -> Prepared:
    return Prepared(
        format_version=FORMAT_VERSION,
        change=change,
        done=done,
        prepared_at=ctx.env.now_us(),
        writer=ctx.writer,
    )


def put_prepared(ctx: TableContext, job: str, sealed: bytes) -> None:
    """The job is durable: any process can end it. Idempotent. One request. [AB3]"""
    create_own(ctx.store, object_names.prepared_name(job), sealed, ctx.env)


def read_prepared(ctx: TableContext, job: str) -> Prepared | None:
    """The prepared job; None where there is none, or it has been collected. One request. [AB3]"""
    name = object_names.prepared_name(job)
    try:
        data = ctx.store.get(name, 0, codec.MAX_OBJECT_BYTES + 1)
    except FileNotFoundError:
        return None
    return codec.decode_prepared(data, name=name)


def done_at(ctx: TableContext, head: Head, prepared: Prepared) -> int | None:
    """The version with a prepared job's work by another; None: it may commit. [AB4] [AB5]"""
    found = settled_outcome(ctx, head, prepared.change, sent=False)
    return found.version if found is not None and found.committed else None


class TablePart(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a joint commit. head: the version at which its job began, or a later one; found:
    whether the job's key was committed when it began, so that the job holds no rows [KY8];
    is_prepared: any process may commit the job, and the one that began it has said who it is;
    is_recoverable: other runs of the job may commit it, each with what it has written. [MT11]
    [OB15] [AB6]"""

    ctx: TableContext
    head: Head
    change: Write | Rollback
    found: bool = False
    is_prepared: bool = False
    is_recoverable: bool = False

    @property
    def url(self) -> str:
        return self.ctx.store.url

    @property
    def table_id(self) -> str:
        return self.head.snapshot.table_id

    @property
    def key(self) -> str | None:
        return self.change.key if isinstance(self.change, Write) else None


# One table's work before its commit.

# The version of a table that a commit rests on, and what of it was read. [MT16]
Pinned: TypeAlias = tuple[int, tuple[PartitionPattern, ...]]


def prepared_together(change: Write, together: Sequence[TogetherJob]) -> Write:
    """The change of a job as it is prepared with these, if there are any. [MT11] [MT13]"""
    if not together:
        return change
    ids = [each.table_id for each in together]
    declared = joint_declaration(change.declared or "", ids)
    return replace(change, declared=declared, together=tuple(together))


class JointUnit:
    """One table's work before its commit: a job, or a change of rows. What it has written so far,
    what makes it durable, and what it contributes to a joint commit."""

    operation: str

    def __init__(self, ctx: TableContext, based_on: int | None = None) -> None:
        """based_on: the version that its rows were read from, as the caller says, in place of all
        that the rows say. [CF17]"""
        self.ctx, self.job_id, self.url = ctx, "", ctx.store.url
        self.based_on, self.marks = based_on, list[str]()  # marks: what the rows say
        self.key_record: KeyRecord | None = None  # of its key, if an earlier run has committed it
        self.is_declared = True  # False: a rerun that declares no more than was said when it began
        self.ledger = WriteTotals(ctx.tally)
        self.entries: list[Entry] = []
        self.manifests: list[ManifestRef] = []
        self.touched: list[PartitionPattern] = []  # by the files in manifests
        self.tasks = 0
        self.meter: Meter | None = None
        self.sealed = b""
        self._together: tuple[TogetherJob, ...] = ()

    @property
    def already_committed(self) -> bool:
        """Return whether an earlier run committed this key: writes do nothing then.

        Returns:
            True where the outcome is the first run's version.

        Spec: KY3.
        """
        return self.key_record is not None

    @property
    def metrics(self) -> JobMetrics:
        """Return the job in numbers: as it ended, also where it raised; while it runs, as of now.

        Returns:
            The numbers.

        Spec: OB10.
        """
        if self.meter is not None and self.meter.ended is not None:
            return self.meter.ended
        return self.measure().metrics("running")

    def read_at(self, head: Head | None) -> int | None:
        """The version of its own table that its rows were read from, with whose successors they are
        compared; None: unknown. VersionNotFoundError where the caller's does not exist. [CF17]"""
        said = self.based_on
        if said is None:
            if head is None or not self.marks:
                return None
            return lowest_version(self.marks, head.snapshot.table_id, self.url)
        if head is None or said > head.version:
            newest = "" if head is None else f"the table's newest version is {head.version}"
            raise VersionNotFoundError(
                f"{self.url}: this write is based on version {said}, but "
                f"{newest or 'there is no table'}. Nothing was done."
            )
        return said

    def measure(self, phase: Phase = "both") -> Meter:
        summary = self.ledger.summary(self.tasks, self.entries, self.manifests)
        return Meter(self.ctx.tally, self.job_id, self.operation, summary, phase)

    def takes(self) -> tuple[Schema | None, tuple[int, ...] | None]:
        """The columns and the partitioning of what tasks write; UsageError where it is over."""
        raise NotImplementedError

    def add_written(
        self,
        entries: Iterable[Entry],
        manifests: Sequence[ManifestRef] = (),
        *,
        touched: Sequence[PartitionPattern] = (),
        tasks: int = 1,
        intake: InputTotals | None = None,
    ) -> None:
        """Take over what tasks wrote; it is this job's from now on, and still invisible. No entry
        of a manifest is held. [SP2] [CM26] touched: the partitions of what is in the manifests;
        left out, they are looked for there. intake: what the tasks were handed."""
        schema, partition_by = self.takes()
        self.ledger.take(intake)
        self.entries += entries
        self.manifests += manifests
        if (touched or manifests) and schema is not None and partition_by is not None:
            shape = Partitioned(schema, partition_by)
            touched = touched or self.ctx.manifests.touched(manifests, shape)
            self.touched = list(dedupe([*self.touched, *touched]))
        self.tasks += tasks

    def touches(self, partition_by: tuple[int, ...]) -> tuple[PartitionPattern, ...]:
        """The partitions of all that it has written."""
        if not partition_by:
            return ({},) if self.entries or self.touched else ()
        own = (of_partition(partition_by, entry.partition) for entry in self.entries)
        return dedupe([*self.touched, *own])

    def base_head(self) -> Head:
        """The head that it began under."""
        raise NotImplementedError

    def part(self) -> TablePart:
        """What it would take to commit it together with others, as of now. [MT3]"""
        raise NotImplementedError

    def take_part(self) -> TablePart:
        """The same; it is over then. [MT3]"""
        return self.part()

    def forget_if_final(self, outcome: Outcome) -> None:
        """What follows from the outcome of a joint commit for reruns: of a change of rows nothing,
        since a rerun looks at the rows again. [AB6]"""

    def seal(self, together: tuple[TogetherJob, ...] = ()) -> None:
        """Fix what `make_durable` writes. together: the jobs that it is committed with. [MT11]"""
        if not self.sealed:
            head, change = self.base_head(), prepared_together(self.change(), together)
            self.sealed = seal(self.ctx, head, change, self.key_record)
            self._together = together
        elif together != self._together:
            raise UsageError(f"{self.url}: this job was prepared in another way; nothing was done")

    def change(self) -> Write:
        """What would be committed now."""
        raise NotImplementedError

    def make_durable(self) -> str:
        """Make it durable, so that any process can look at it, commit it or abort it; returns its
        id. Nothing is visible yet. The same bytes may be put again. [AB3] [CK5]"""
        if not self.sealed:
            self.seal()
        put_prepared(self.ctx, self.job_id, self.sealed)
        return self.job_id


def prepare_jointly(units: Mapping[str, JointUnit], together: Sequence[TogetherJob]) -> None:
    """Make jobs durable that are committed together, also again. units: by job id. [MT11] [AB3]"""
    for unit in units.values():
        unit.seal(tuple(together))
    for each in reversed(together):  # once the home's is there, all are
        units[each.job].make_durable()


# The states of a job in its own process and the acts that lead from one to another, as data.


class JobState(enum.Enum):
    """Where a job is; the value continues the sentence "this job …"."""

    OPEN = "is open"
    CHANGING = "changes rows of its table in a transaction, which allows one change"
    ENDED = "was committed or refused"
    SEALED = "may have been prepared, and others may finish it: prepare it again to be sure"
    PREPARED = "was prepared, and takes no more rows: commit it or abort it by its id"
    ABORTED = "was aborted"


# CHANGE: change rows in place of what it would write; SEAL: begin to prepare
Act = enum.Enum("Act", "WORK CHANGE COMMIT SEAL PREPARE ABORT")


# what is not here, the job does not allow
NEXT: Mapping[tuple[JobState, Act], JobState] = {
    (JobState.OPEN, Act.WORK): JobState.OPEN,
    (JobState.OPEN, Act.COMMIT): JobState.ENDED,
    (JobState.OPEN, Act.SEAL): JobState.SEALED,
    (JobState.OPEN, Act.ABORT): JobState.ABORTED,
    # A change of rows takes the job's place, and its transaction says how that ends.
    (JobState.OPEN, Act.CHANGE): JobState.CHANGING,
    (JobState.CHANGING, Act.ABORT): JobState.ABORTED,
    (JobState.ENDED, Act.ABORT): JobState.ENDED,
    # From the first request on, the same bytes only.
    (JobState.SEALED, Act.SEAL): JobState.SEALED,
    (JobState.SEALED, Act.PREPARE): JobState.PREPARED,
    (JobState.PREPARED, Act.SEAL): JobState.SEALED,
    (JobState.ABORTED, Act.ABORT): JobState.ABORTED,
}
