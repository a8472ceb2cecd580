"""A job from begin to outcome: what it declares, the files it gathers, and its one commit. [CM1]
[KY3] [SC3]

No Spark here: `plan_write` says how files must be written, `add_written` takes what came of it.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import msgspec
import pyarrow as pa

from ..errors import TableNotFoundError, UsageError
from ..files import writer as files
from ..files.foreign_file import footer_schema, inspect_file
from ..files.foreign_footer import FooterJudge, open_noted
from ..files.row_buffer import bytes_of
from ..format import arrow_schema, object_names, partitioning
from ..format.change import (
    ConflictChoice,
    StreamBatch,
    Write,
    as_begun,
    declaration,
    declared_scope,
)
from ..format.entries import Entry, ManifestRef
from ..format.evolution import assign_new_ids
from ..format.fields import Schema, arrow_marks, relaxed, shown
from ..format.partitioning import PartitionPattern, bounded, dedupe, of_partition
from ..format.snapshot import KeyRecord, TogetherJob
from ..format.watermark import Advance, find_mismatch
from ..log.table_context import LATEST_READ, TableContext, find_job_at, find_key_at, open_or_free
from ..log.version_chain import Head, read_version
from ..protocol.conflict import Conflict, find_conflict
from ..protocol.write_layout import (
    MISSING_COLUMNS,
    Layout,
    check_inside,
    check_missing,
    lay_out,
    replaced,
)
from ..runtime.outcome import (
    InputTotals,
    JobMetrics,
    Meter,
    Outcome,
    WriteTotals,
    committed_or_raise,
)
from ..runtime.validation import Ranges, advance_of, check_work, source_ranges_of, wrong
from ..runtime.validation import metadata as check_metadata
from .commit_loop import BasedOn, below, check_based_on, commit, load_conflict_inputs, measured
from .create_version import create_table, found_outcome
from .group_commit import Committers
from .joint_commit import TablePart
from .joint_two_phase import prepared_together
from .prepared_job import put_prepared, seal
from .task_recovery import Recovery, intake_of
from .two_phase import check_turn

# The version of a table that a commit rests on, and what of it was read. [MT16]
Pinned: TypeAlias = tuple[int, tuple[PartitionPattern, ...]]


class JointUnit:
    """One table's work before its commit: a job, or a change of rows. What it has written so far,
    what makes it durable, and what it contributes to a joint commit."""

    operation: str

    def __init__(self, ctx: TableContext) -> None:
        self.ctx, self.id = ctx, ""
        self.record: KeyRecord | None = None  # of its key, if an earlier run has committed it
        self.is_declared = True  # False: a rerun that declares no more than was said when it began
        self._ledger = WriteTotals(ctx.tally, ctx.env.now_us)
        self._entries: list[Entry] = []
        self._manifests: list[ManifestRef] = []
        self._touched: list[PartitionPattern] = []  # by the files in manifests
        self._tasks = 0
        self._meter: Meter | None = None
        self._sealed = b""
        self._together: tuple[TogetherJob, ...] = ()

    @property
    def already_committed(self) -> bool:
        """Whether an earlier run committed its key, so that nothing is left to do. [KY3]"""
        return self.record is not None

    @property
    def metrics(self) -> JobMetrics:
        """The work in numbers: when it ended, or so far. [OB10]"""
        if self._meter is not None and self._meter.ended is not None:
            return self._meter.ended
        summary = self._ledger.summary(self._tasks)
        return self.ctx.meter(self.id, self.operation, summary).metrics("running")

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
        of a manifest is held. [SP2] [CM26]

        touched: the partitions of what is in the manifests; left out, they are looked for there.
        intake: what the tasks were handed.
        """
        (schema, partition_by), files = self.takes(), list(entries)
        self._ledger.take(files, manifests, intake)
        self._entries += files
        self._manifests += manifests
        if (touched or manifests) and schema is not None and partition_by is not None:
            touched = touched or self.ctx.manifests.touched(
                manifests, schema=schema, partition_by=partition_by
            )
            self._touched = list(dedupe([*self._touched, *touched]))
        self._tasks += tasks

    def touched(self, partition_by: tuple[int, ...]) -> tuple[PartitionPattern, ...]:
        """The partitions of all that it has written."""
        own = (of_partition(partition_by, entry.partition) for entry in self._entries)
        return dedupe([*self._touched, *own])

    def began_at(self) -> Head:
        """The head that it began under."""
        raise NotImplementedError

    def part(self) -> TablePart:
        """What it would take to commit it together with others, as of now. [MT3]"""
        raise NotImplementedError

    def as_part(self) -> TablePart:
        """The same; it is over then. [MT3]"""
        return self.part()

    def forget_if_final(self, outcome: Outcome) -> None:
        """What follows from the outcome of a joint commit for reruns: of a change of rows nothing,
        since a rerun looks at the rows again. [AB6]"""

    def seal(self, together: tuple[TogetherJob, ...] = (), *, held: bool = False) -> None:
        """Fix what `prepare` makes durable. together: the jobs that it is committed with [MT11];
        held: it waits for a process that publishes it. [CK5]"""
        if not self._sealed:
            head, change = self.began_at(), prepared_together(self.change(), together)
            self._sealed = seal(self.ctx, head, change, self.record, held=held)
            self._together = together
        elif together != self._together:
            url = self.ctx.store.url
            raise UsageError(f"{url}: this job was prepared in another way; nothing was done")

    def change(self) -> Write:
        """What would be committed now."""
        raise NotImplementedError

    def prepare(self) -> str:
        """Make it durable, so that any process can commit it or abort it; returns its id. Nothing
        is visible yet. The same bytes may be put again. [AB3]"""
        put_prepared(self.ctx, self.id, self._sealed)
        return self.id


def prepare_jointly(units: Mapping[str, JointUnit], together: Sequence[TogetherJob]) -> None:
    """Make jobs durable that are committed together, also again. units: by job id. [MT11] [AB3]"""
    for unit in units.values():
        unit.seal(tuple(together))
    for each in reversed(together):  # once the home's is there, all are
        units[each.job].prepare()


# The states of a job in its own process and the acts that lead from one to another, as data.


class JobState(enum.Enum):
    """Where a job is; the value continues the sentence "this job …"."""

    OPEN = "is open"
    CHANGING = "changes rows of its table in a transaction, which allows one change"
    ENDED = "was committed or refused"
    SEALED = "may have been prepared, and others may finish it: prepare it again to be sure"
    PREPARED = "was prepared, and takes no more rows: commit it or abort it by its id"
    ABORTED = "was aborted"


class Act(enum.Enum):
    """What is done with a job."""

    WORK = "declare or write"
    CHANGE = "change rows in place of what it would write"
    COMMIT = "commit"
    RETRY = "commit again"
    SEAL = "begin to prepare"
    PREPARE = "prepare"
    ABORT = "abort"


NEXT: Mapping[tuple[JobState, Act], JobState] = {
    (JobState.OPEN, Act.WORK): JobState.OPEN,
    (JobState.OPEN, Act.COMMIT): JobState.ENDED,
    (JobState.OPEN, Act.SEAL): JobState.SEALED,
    (JobState.OPEN, Act.ABORT): JobState.ABORTED,
    # A change of rows takes the job's place, and its transaction says how that ends.
    (JobState.OPEN, Act.CHANGE): JobState.CHANGING,
    (JobState.CHANGING, Act.ABORT): JobState.ABORTED,
    # A failed commit may be repeated; whatever of it landed counts.
    (JobState.ENDED, Act.RETRY): JobState.ENDED,
    (JobState.ENDED, Act.ABORT): JobState.ENDED,
    # From the first request on, the same bytes only.
    (JobState.SEALED, Act.SEAL): JobState.SEALED,
    (JobState.SEALED, Act.PREPARE): JobState.PREPARED,
    (JobState.PREPARED, Act.SEAL): JobState.SEALED,
    (JobState.ABORTED, Act.ABORT): JobState.ABORTED,
}


def after(state: JobState, act: Act) -> JobState | None:
    """The state that the act leads to; None where the job does not allow it."""
    return NEXT.get((state, act))


LOG = logging.getLogger("manifestcommit.jobs")
Progress = Callable[[int, int], None]  # rows, bytes so far
_FINAL_EARLY = ("partition_is_filled", "table_exists", "watermark_overlap")


class Job(JointUnit):
    """One attempt to change a table. Nothing of it is visible before `commit` returns a committed
    outcome. [DF1] [CM10]

    key: the caller's name for this unit of work, the same on every rerun; fingerprint: anything
    else that makes it the same work; recoverable: a rerun goes on under the id of an earlier
    attempt [AB6]; based_on: the version of the table that its rows were read from. A table that
    does not exist is not created. [KY3] [LY6]
    """

    def __init__(
        self,
        ctx: TableContext,
        *,
        key: str | None = None,
        fingerprint: str | None = None,
        recoverable: bool = False,
        based_on: int | None = None,
    ) -> None:
        check_work(key=key, fingerprint=fingerprint)
        ctx.who()  # a misspelled switch is an error before anything is written
        super().__init__(ctx)
        self.key = None if key is None else str(key)
        self._fingerprint = None if fingerprint is None else str(fingerprint)
        self.recovery = Recovery(ctx, self.key, self._fingerprint) if recoverable else None
        self.based_on, self.operation = BasedOn(based_on), "append"
        self._overwrite: Mapping[str, Any] | Literal["dynamic"] | None = None
        self._conflict: ConflictChoice = "serializable"
        self._first: Literal["error", "ignore"] | None = None
        self._layout = Layout()
        self._found: list[Entry] = []  # files of others, whose columns were not compared yet
        self._advances: list[Advance] = []
        self._stream: StreamBatch | None = None
        self._change: Write | None = None
        self._checked: frozenset[str] | None = None  # constraints that all plans check
        self._read: tuple[PartitionPattern, ...] | None = None  # of the table at its birth [MT16]
        self.is_declared = False  # whether anything was, or rows were handed in
        self._finished = self._failed = 0  # writes
        self._writing = False
        self._state = JobState.OPEN
        self._committers = Committers.GROUP  # who may have committed it, should it be tried again
        self._head: Head | None = None  # there is no table yet
        if (head := open_or_free(ctx)) is not None:
            self._begin_under(head)
        if not self.already_committed:
            self.based_on.version(self._head, self.url)

    def _begin_under(self, head: Head) -> None:
        """A recoverable job goes on under the id of an earlier attempt. [AB6]"""
        record = None
        if self.key is not None:
            head, record = find_key_at(self.ctx, head, self.key)
        job = self.ctx.new_job(head)
        if self.recovery is not None and record is None:
            job = self.recovery.find(head.snapshot) or job
        self._head, self.id, self.record = head, job, record  # at once: a look may fail

    def ensure_id(self) -> str:
        """The job's id; a table that does not exist yet is created for it. [LY4]"""
        self._table(None, ())
        return self.id

    @property
    def was_tried(self) -> bool:
        """Whether it was to be committed before, as `commit_again` counts it. [CM6]"""
        return self._state is JobState.ENDED

    @property
    def is_over(self) -> bool:
        """Whether it was committed, refused, prepared or aborted."""
        return self._state is not JobState.OPEN

    @property
    def has_work(self) -> bool:
        """Whether there is something that it would commit, or whose writing has begun."""
        declared = (
            self._entries or self._manifests or self._advances or self.operation == "overwrite"
        )
        return bool(declared or self._writing) and not self.already_committed

    @property
    def url(self) -> str:
        return self.ctx.store.url

    def at_birth(self) -> Head:
        """The table as of the job's birth. TableNotFoundError where there is none. [MT16]"""
        head = self._head
        if head is None:
            raise TableNotFoundError(
                f"there is no table at {self.url}, so that there is nothing to read; nothing was "
                "done. Make it first: create_table(…, exist_ok=True)."
            )
        birth = object_names.parse_job_id(self.id).birth
        return read_version(self.ctx.store, head, birth)

    def pin(self, partitions: Iterable[PartitionPattern]) -> Pinned:
        """Rest on these partitions, too, as of the job's birth. [MT16]"""
        self._read = bounded((*(self._read or ()), *partitions))
        return object_names.parse_job_id(self.id).birth, self._read

    # --- what it declares -------------------------------------------------------------------------

    def overwrite(
        self,
        overwrite: Mapping[str, Any] | Literal["dynamic"] | None,
        *,
        conflict: str = "serializable",
    ) -> None:
        """Replace the whole table (None), the partitions that the job writes ("dynamic"), or those
        given. [CF3] [CF4] [CF5]"""
        self._check_open()
        if (
            overwrite is not None
            and not isinstance(overwrite, Mapping)
            and not (isinstance(overwrite, str) and overwrite == "dynamic")
        ):
            raise wrong(
                "overwrite",
                overwrite,
                'None for the whole table, "dynamic", or a mapping',
                '{"day": "2013-01-01"}',
            )
        if conflict not in get_args(ConflictChoice):
            raise UsageError(
                f"conflict is one of {', '.join(get_args(ConflictChoice))}, not {shown(conflict)}"
            )
        if overwrite == {}:
            raise UsageError(
                "overwrite={} names no partition; give None to replace the whole table"
            )
        if self.operation == "overwrite" and self._overwrite != overwrite:
            raise UsageError(
                f"this job overwrites {self._overwrite!r} already; one job replaces one set "
                "of partitions. Use a second job."
            )
        self.operation, self._overwrite = "overwrite", overwrite
        self._conflict = cast(ConflictChoice, conflict)
        self._check_missing()

    def be_first(self, mode: Literal["error", "ignore"]) -> None:
        """Commit as the table's first, or not at all. mode: as declared with the key. [CF18]"""
        self._check_open()
        self._first = mode

    def advance(self, source: str, start: int | str | None, end: int | str) -> None:
        """Move a source's watermark from `start` to `end` together with the data. [WM2]"""
        self._check_open()
        self._advances.append(advance_of(source, start, end))

    @property
    def placed_advances(self) -> tuple[Advance, ...]:
        """What it advances, each source named together with its table. [WM7]"""
        return tuple(
            msgspec.structs.replace(each, source=f"{self.url} {each.source}")
            for each in self._advances
        )

    def check_turn(self, earlier: Iterable[Job]) -> None:
        """Raise WatermarkGapError where one of these, not committed yet, goes first. [WM7]"""
        check_turn(
            self.ctx,
            self._advances,
            [other._advances for other in earlier if other.url == self.url],
        )

    def note(self, message: str | None, metadata: Mapping[str, str]) -> None:
        """Replace the message, and add to the metadata, that its commit carries. [OB15] [SE5]"""
        self.enter(Act.WORK)  # a note is no part of the declaration
        before = self.ctx.note
        together = check_metadata("metadata", {**before.metadata, **metadata})
        self.ctx = self.ctx.noting(message or before.message, together)

    def take_batch(self, batch: StreamBatch) -> None:
        """This job is one batch of a streaming query, committed once and in order. [KY6]"""
        self._check_open()
        self._stream = batch

    def resume(self, planned: Write, *, began_us: int) -> None:
        """Go on under the id of a job that planned one write in another process, before anything
        was written: take over its plan. [SP7]

        Only for jobs without a key that append or replace the whole table, as a streaming query's
        batches do.
        """
        if self._head is None:
            raise TableNotFoundError(
                f"the table at {self.url} was removed while this job ran; nothing was "
                "committed. Run it again."
            )
        self.id, self.ctx = planned.job, self.ctx.signing_as(planned)
        self._ledger = WriteTotals(self.ctx.tally, self.ctx.env.now_us, began_us=began_us)
        self._layout = Layout(
            schema=planned.schema,
            partition_by=planned.partition_by,
            initial=planned.initial,
            edits=planned.edits,
        )
        self._checked = frozenset(planned.checked)
        if planned.overwrite is not None:
            self.overwrite(None, conflict=planned.overwrite.conflict)

    # --- what it writes ---------------------------------------------------------------------------

    def plan_write(
        self,
        data: Schema,
        *,
        partition_by: Sequence[str] | str | None = None,
        merge_schema: bool = False,
        replace_schema: bool = False,
        target_file_size: int | None = None,
        sources: Ranges | None = None,
    ) -> files.WritePlan:
        """How tasks must write data of this schema; SchemaMismatchError before any of them starts.
        [SC3] [SC5] [PT1]

        sources: the ranges that the rows come from, kept with every file. [OB8]
        """
        self._check_open()
        names = [partition_by] if isinstance(partition_by, str) else partition_by
        if replace_schema and (self.operation != "overwrite" or self._overwrite is not None):
            raise UsageError(
                "replace_schema is for rows that replace the whole table: overwrite it, and name "
                "no partitions; nothing was done"
            )
        head = self._table(data, tuple(names or ()))
        if head.snapshot.schema is None and self._first is None:
            head = self._first_schema(head, data, tuple(names or ()))
        self._check_early(head)
        new_id = self.ctx.new_field_id
        if self.recovery is not None:
            self._failed += self._writing
            new_id = self.recovery.start(self.id, finished=self._finished, failed=self._failed)
        layout = lay_out(
            self._layout,
            head.snapshot,
            data,
            names,
            merge=merge_schema,
            new_id=new_id,
            url=self.url,
            replaces=replace_schema,
        )
        assert layout.schema is not None and layout.partition_by is not None
        if self.operation == "overwrite":
            # refuses what names no partition, before anything is written
            replaced(self._overwrite, layout, head.snapshot, self._conflict)
        self._layout = layout
        self._check_missing()
        self._writing = True
        plan = files.plan_for(
            head.snapshot,
            url=self.url,
            job=self.id,
            schema=layout.schema,
            partition_by=layout.partition_by,
            target_file_size=target_file_size,
            sources=source_ranges_of(sources),
            shared=self.recovery is not None,
        )
        ids = frozenset(each.id for each in plan.constraints.values())
        self._checked = ids if self._checked is None else self._checked & ids
        return plan

    def takes(self) -> tuple[Schema | None, tuple[int, ...] | None]:
        self._check_open()
        self._finished, self._writing = self._finished + 1, False
        return self._layout.schema, self._layout.partition_by

    def write_stream(
        self,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        *,
        progress: Progress | None = None,
        **options: Any,
    ) -> None:
        """Write an Arrow stream in this process, as tasks do. options: of `plan_write`. [DF1]"""
        if self.already_committed:
            self.is_declared = True
            return
        self.based_on.take(arrow_marks(schema.metadata))
        plan = self.plan_write(arrow_schema.from_arrow(schema, self.ctx.new_field_id), **options)
        work = None
        if self.recovery is not None:
            work = self.recovery.work(plan, tasks=1, same=self.recovery.fingerprint)
            if done := work.finished(self.ctx.store).get(0):
                self.add_written(done.entries, done.manifests, intake=intake_of(done))
                return
        attempt = self.ctx.env.randomness(8).hex()
        rows = size = 0
        with files.DataFileWriter(
            self.ctx.store, plan, task=self._tasks, attempt=attempt
        ) as writer:
            for batch in batches:
                writer.write(batch)
                rows += batch.num_rows
                if progress is not None:
                    size += bytes_of(batch)
                    progress(rows, size)
            entries = writer.close()
            if work is None:
                self.add_written(entries, intake=writer.intake)
            else:
                done = work.finish(self.ctx.store, self.ctx.env, 0, entries, intake=writer.intake)
                self.add_written(done.entries, done.manifests, intake=intake_of(done))

    def add_files(self, paths: Iterable[str], *, sources: Ranges | None = None) -> None:
        """List files that something else wrote below the root; each is checked now. [AF1] [OB8]"""
        self._check_open()
        ranges = source_ranges_of(sources)
        if self.already_committed:
            return
        with FooterJudge() as judge:
            for path in paths:
                entry = self._add_file(path, judge)
                self._entries.append(
                    msgspec.structs.replace(entry, sources=ranges) if ranges else entry
                )
                self._ledger.take([entry], (), InputTotals(rows=entry.rows, bytes=entry.bytes))

    def _add_file(self, path: str, judge: FooterJudge) -> Entry:
        """The entry of a file that something else wrote. [AF1]"""
        head, store = self._table(None, ()), self.ctx.store
        if (self._layout.schema or head.snapshot.schema) is None:
            columns = footer_schema(store, path, judge)
            self.plan_write(arrow_schema.from_arrow(columns, self.ctx.new_field_id))
            self._writing = False
        schema = self._layout.schema or head.snapshot.schema
        assert schema is not None
        if any(entry.path == path for entry in self._entries):
            raise UsageError(f"{path!r} is added twice by this job; its rows would be doubled")
        self._check_settled(path, head)
        chosen = self._layout.partitioning(head.snapshot)
        entry = inspect_file(
            store,
            path,
            schema=schema,
            partition_by=chosen,
            job=self.id,
            judge=judge,
            bounds_columns=files.bounds_columns_of(head.snapshot),
        )
        self._layout = msgspec.structs.replace(self._layout, schema=schema, partition_by=chosen)
        self._found.append(entry)
        self._checked = frozenset()
        self._check_missing()
        return entry

    # --- how it ends ------------------------------------------------------------------------------

    def commit(self, *, publishing: bool = True) -> Outcome:
        """Everything that the job declared and wrote becomes visible at once, or nothing does.
        [CM1]-[CM8]

        publishing: whether other writers may be asked to commit it, after which nobody but a head
        can say that it has failed. [CM19]
        """
        self.enter(Act.COMMIT)
        return self._commit_first(Committers.GROUP if publishing else Committers.THIS_PROCESS)

    def _commit_first(self, committers: Committers) -> Outcome:
        if self.recovery is not None:
            committers = Committers.ANY_PROCESS
        self._committers = committers.again()
        self._change = change = self.change()
        self._meter = meter = self.ctx.meter(change.job, change.operation, change.summary)
        base = self._newest_known()
        if self.record is not None:
            return measured(found_outcome(self.ctx, base, change), meter)
        return self._commit(base, change, meter, committers)

    def _newest_known(self) -> Head:
        assert self._head is not None
        known = self.ctx.known
        return known if known is not None and known.version > self._head.version else self._head

    def as_part(self) -> TablePart:
        part = self.part()
        self.enter(Act.COMMIT)
        self._change, self._committers = self.change(), Committers.ANY_PROCESS
        return part

    def part(self) -> TablePart:
        return TablePart(
            ctx=self.ctx,
            change=self.change(),
            head=self._newest_known(),
            found=self.record is not None,
            is_recoverable=self.recovery is not None,
        )

    def forget_if_final(self, outcome: Outcome) -> None:
        if self.recovery is not None:
            self.recovery.forget_if_final(outcome)

    def commit_again(self) -> Outcome:
        """The same change again, where the store failed: what landed before counts. [CM1] [CM6]"""
        self.enter(Act.RETRY)
        if self._change is None or self.record is not None:  # nothing was sent
            return self._commit_first(Committers.GROUP)
        change = self._change
        self._meter = meter = self.ctx.meter(change.job, change.operation, change.summary, "second")
        return self._commit(self.ctx.open(), change, meter, self._committers)

    def _commit(self, base: Head, change: Write, meter: Meter, committers: Committers) -> Outcome:
        is_compared = change.overwrite is not None and change.overwrite.conflict == "serializable"
        if is_compared and self.based_on.version(base, self.url) is None:
            self.ctx.check_read(base.snapshot.table_id, change.birth)
        outcome = commit(self.ctx, base, change, committers=committers, meter=meter)
        if outcome.kind == "committed":
            LATEST_READ.pop(base.snapshot.table_id, None)
        return outcome if self.recovery is None else self.recovery.judged(change, outcome)

    def prepare(self) -> str:
        if not self._sealed:
            self.seal()
        self.enter(Act.SEAL)
        super().prepare()
        self.enter(Act.PREPARE)
        if self._meter is not None and self._meter.ended is None:
            self._meter.end("prepared")
        return self.id

    def seal(self, together: tuple[TogetherJob, ...] = (), *, held: bool = False) -> None:
        if self._state is JobState.OPEN:
            summary = self._ledger.summary(self._tasks)
            self._meter = self.ctx.meter(self.ensure_id(), self.operation, summary, "first")
        if self._state is JobState.OPEN or self._sealed:
            super().seal(together, held=held)

    def abort(self) -> None:
        """Stop. What was written stays unlisted, and gc collects it. [AB1] [AB2]"""
        if after(self._state, Act.ABORT) is None:
            raise UsageError(
                f"this job {self._state.value}; abort({self.url!r}, {self.id!r}) aborts it"
            )
        if self._state is JobState.OPEN:
            summary = self._ledger.summary(self._tasks)
            self._meter = self.ctx.meter(self.id, self.operation, summary)
            self._meter.end("aborted" if self.recovery is None else "left")
        self.enter(Act.ABORT)

    def change(self) -> Write:
        head = self.began_at()
        layout, overwrite = self._layout, None
        if self.operation == "overwrite":
            overwrite = replaced(self._overwrite, layout, head.snapshot, self._conflict)
        advances = tuple(self._advances)
        by_id = layout.partitioning(head.snapshot)
        touched = self.touched(by_id)
        check_inside(overwrite, touched, layout.schema or head.snapshot.schema, self._overwrite)
        birth = object_names.parse_job_id(self.id).birth
        declared = declaration(
            mode=self._first or self.operation,
            scope=declared_scope(overwrite),
            advances=advances,
            fingerprint=self._fingerprint,
        )
        if self.already_committed and not self.is_declared:
            declared = as_begun(declared)
        read_at = self.based_on.version(head, self.url)
        reads = self.based_on.reads(read_at) if overwrite is None else ()
        reads = bounded((*reads, *self._read)) if self._read else reads
        return Write(
            job=self.id,
            birth=birth,
            based_on=below(read_at, birth, overwrite, reads),
            reads=reads,
            operation=self.operation,
            key=self.key,
            declared=declared,
            schema=layout.schema,
            # a job that lays out no file fits any partitioning
            partition_by=by_id if layout.schema is not None else None,
            repartitions=layout.repartitions,
            edits=layout.edits,
            initial=layout.initial,
            add=tuple(self._entries),
            add_manifests=tuple(self._manifests),
            touched=touched,
            overwrite=overwrite,
            advances=advances,
            stream=self._stream,
            first=self._first is not None,
            checked=tuple(sorted(self._checked or ())),
            summary=self._ledger.summary(self._tasks),
        )

    def _check_missing(self) -> None:
        """SchemaMismatchError unless what was written so far has all needed columns. [SC8]"""
        if self._head is None or (schema := self._layout.schema) is None:
            return
        properties = self._head.snapshot.properties
        whole = self.operation == "overwrite" and self._overwrite is None
        check_missing(self._layout.missing, properties, whole=whole)
        if self._found and (whole or MISSING_COLUMNS in properties):
            for entry in self._found:
                with self.ctx.store.open_input(entry.path) as stream:
                    inside = open_noted(stream, entry.bytes, entry.footer).schema_arrow.names
                lacking = [field.name for field in schema.fields if field.file_name not in inside]
                check_missing(lacking, properties, whole=whole)
            self._found = []

    def _check_settled(self, path: str, head: Head) -> None:
        """A file of a job that may still commit would be listed twice: a job does not look for its
        own paths. [CF10] [AF1]"""
        writer = object_names.job_of_data_file(path)
        if writer is None or object_names.parse_job_id(writer).table_id != head.snapshot.table_id:
            return
        if find_job_at(self.ctx, head, writer)[1][0] != "committed":
            raise UsageError(
                f"{path!r} was written by job {writer}, which has not committed and may "
                "still do so. Nothing was added."
            )

    def _table(self, data: Schema | None, partition_by: tuple[str, ...]) -> Head:
        """The head that this job began under; a table is created if need be. [CM13] [ST12]"""
        if self._head is None:
            # What happens to hold no null in the first data may well hold one in the next: only
            # create_table binds columns.
            new_id = self.ctx.new_field_id
            schema = None if data is None else assign_new_ids(relaxed(data), new_id)
            chosen = () if schema is None else partitioning.check_partition_by(schema, partition_by)
            created = create_table(
                self.ctx, schema=schema, partition_by=chosen, properties={}, provisional=True
            )
            self._begin_under(created)
        assert self._head is not None
        self.ctx.prove(self._head.snapshot.proven)
        return self._head

    def began_at(self) -> Head:
        return self._table(None, ())

    def _first_schema(self, head: Head, data: Schema, partition_by: tuple[str, ...]) -> Head:
        """Give a table its first schema; who loses that race fits the winner's. [CF8]"""
        schema = assign_new_ids(relaxed(data), self.ctx.new_field_id)
        change = Write(
            job=self.ctx.new_job(head),
            birth=head.version,
            operation="schema",
            initial=schema,
            partition_by=partitioning.check_partition_by(schema, partition_by),
        )
        outcome = commit(self.ctx, head, change)
        found = self.ctx.open()
        if found.snapshot.schema is None:
            if outcome.committed:
                taken_back = Conflict(
                    rule="schema",
                    mine="gives the table its first columns",
                    winner=f"a rollback up to version {found.version} took them back",
                )
                outcome = Outcome(kind="conflict", job_id=self.id, conflict=taken_back)
            committed_or_raise(outcome, self.url)
        self._head = found  # the job's base version stays what its id says
        return found

    def _check_early(self, head: Head) -> None:
        """Refuse now, before any task starts, what no later commit of others can make right. [SC3]
        [WM2] [CF5] [CF18]

        A gap may close while this job runs; an overlap stays. What holds files already will not be
        empty.
        """
        if self.based_on.version(head, self.url) is not None:
            check_based_on(self.ctx, head, self.change())
        mismatch = find_mismatch(head.snapshot.watermarks, head.snapshot.origins, self._advances)
        if mismatch is None and self._first is None and self._conflict != "fail":
            return
        change = self.change()
        inputs = load_conflict_inputs(self.ctx, head, change)
        conflict = find_conflict(head.snapshot, change, (), inputs)
        if conflict is not None and conflict.rule in _FINAL_EARLY:
            outcome = Outcome(kind="conflict", job_id=self.id, conflict=conflict)
            committed_or_raise(outcome, self.url)

    def _check_open(self) -> None:
        self.enter(Act.WORK)
        self.is_declared = True

    def enter(self, act: Act) -> None:
        if (state := after(self._state, act)) is None:
            raise UsageError(f"this job {self._state.value}; begin a new one for other work")
        self._state = state
