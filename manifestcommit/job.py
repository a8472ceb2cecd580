"""A job from begin to outcome: what it declares, the files that it gathers, and its one commit; the
calls `write` and `begin`. [CM1] [CM10] [KY3] [SC3]

Spark is touched only when a Spark DataFrame is handed in.

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast, overload

import msgspec

from . import telemetry as telemetry  # observes jobs
from .commits import commit_loop, prepared_job
from .commits.commit_loop import Committers
from .commits.prepared_job import NEXT, Act, JobState, JointUnit, Pinned, TablePart
from .commits.task_recovery import Recovery, intake_of
from .errors import CommitConflictError, TableNotFoundError, UsageError
from .files import writer as files
from .files.foreign_file import footer_schema, inspect_file, open_noted
from .files.writer import record_batches
from .format import change as changes
from .format import object_names, partitioning, values
from .format.change import Advance, ConflictChoice, StreamBatch, Write
from .format.entries import MAX_SOURCES, Entry
from .format.fields import NO_COLUMNS, Schema, arrow_marks, assign_new_ids, relaxed
from .format.partitioning import PartitionPattern, bounded
from .format.snapshot import Note, TogetherJob
from .log import registry
from .log.table_context import LATEST_READ, TableContext, find_job_at, find_key_at, open_or_free
from .log.version_chain import Head, read_version
from .protocol.apply import MISSING_COLUMNS, Layout, check_inside, check_missing, lay_out, replaced
from .protocol.conflict import find_conflict
from .runtime import validation
from .runtime.outcome import InputTotals, Meter, Outcome, WriteTotals, committed_or_raise
from .runtime.validation import Ranges, checked, is_spark_dataframe, source_ranges_of, wrong
from .store import StorageOptions, open_store
from .store.base import NO_OPTIONS
from .terminal import live_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .staging import Staged

Path = str | os.PathLike[str]
Overwritten = Mapping[str, Any] | Literal["dynamic"] | None
_FINAL_EARLY = ("partition_is_filled", "table_exists", "watermark_overlap")


class _Options(TypedDict, total=False):
    """The other arguments of `write`."""

    mode: Literal["append", "overwrite", "error", "ignore"]
    key: str | None
    watermarks: Ranges | None
    partition_by: list[str] | str | None
    overwrite: Overwritten
    message: str | None
    metadata: Mapping[str, str] | None
    storage_options: Mapping[str, Any] | None
    merge_schema: bool
    replace_schema: bool
    target_file_size: int | str | None
    conflict: Literal["serializable", "blind", "fail"]
    based_on: int | None
    fingerprint: str | None
    recoverable: bool
    on_violation: Literal["error", "quarantine"]
    quarantine: Path | None
    max_violations: int | float | None


@overload
def write(
    data: Any, path: Path, *, publish: Literal[True] = ..., **options: Unpack[_Options]
) -> Outcome: ...


@overload
def write(
    data: Any, path: Path, *, publish: Literal[False], **options: Unpack[_Options]
) -> Staged: ...


@checked()
def write(
    data: Any,
    path: Path,
    *,
    mode: Literal["append", "overwrite", "error", "ignore"] = "append",
    key: str | None = None,
    watermarks: Ranges | None = None,
    partition_by: list[str] | str | None = None,
    overwrite: Overwritten = None,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    merge_schema: bool = False,
    replace_schema: bool = False,
    target_file_size: int | str | None = None,
    conflict: Literal["serializable", "blind", "fail"] = "serializable",
    based_on: int | None = None,
    fingerprint: str | None = None,
    recoverable: bool = False,
    publish: bool = True,
    on_violation: Literal["error", "quarantine"] = "error",
    quarantine: Path | None = None,
    max_violations: int | float | None = None,
) -> Outcome | Staged:
    """Write rows and commit them with their watermarks, atomically and exactly once.

    All of it is visible at once, or none of it. A rerun with the same `key` does nothing and
    returns the first version. Where the outcome is ambiguous, nothing is deleted, and a rerun with
    the same key is safe.

    Args:
        data: a Spark DataFrame, or anything with `__arrow_c_stream__`: pyarrow, pandas, polars,
            DuckDB. Each partition column has to be in it, and every column where the whole table
            is replaced; another one that is missing is null, unless the property
            `write.missing-columns` says otherwise.
        path: the table path, a local path or a URL; the first write makes it a table.
        mode: "append", the default; "overwrite"; "error": fail if the table exists; "ignore": do
            nothing then. Of several such first writes at once one creates the table. It exists once
            anything was committed to it, even if it is empty; what a first write that has not
            committed left behind does not count.
        key: an idempotency key: a text that is the same on every rerun of this work; by default
            none, and a rerun commits again.
        watermarks: source -> (start, end), half-open, which advance with the commit; by default
            none. Up to 256 of them are also kept with each file, for `Table.lineage`.
        partition_by: the columns that partition the table, or transforms of columns such as
            "day(ts)", "bucket(16, user)" or "truncate(3, name)", for its first write, or with
            `replace_schema`; by default none, or those that it has.
        overwrite: what mode="overwrite" replaces: the whole table (None, the default), the
            partitions that are written ("dynamic"), or those named ({"day": "2013-01-01"}).
        message: what the commit is for, a text of up to 2,000 characters, kept in the commit's
            record and shown by `Table.history`; by default none.
        metadata: name -> text, such as {"airflow_run": "…", "git": "…"}, kept and shown likewise;
            by default none. Up to 32 entries of 8 KiB together. Neither is declared with
            the key. What looks like a credential is refused.
        storage_options: what reaches the object store, as for s3fs, adlfs or gcsfs; by default the
            environment. They reach Spark's tasks, and no plan, log, manifest or error.

        merge_schema: add the columns that the data has and the table has not; by default False.
        replace_schema: with mode="overwrite", for the whole table: it gets the data's columns and
            types, and the partitioning of `partition_by` ([]: none; left out: its own), in the same
            commit; older versions stay as they were. By default False.
        target_file_size: bytes, or a text such as "128MB"; by default the table's own.
        conflict: when an overwrite conflicts: "serializable", the default: if others committed into
            what it replaces; "fail": also if there is anything to replace; "blind": never.
        based_on: the version of this table that the rows were read from, if they were: an overwrite
            then conflicts with every commit since, not only with those since the job began. By
            default what the rows carry: DataFrames of `read_committed` and
            `format("manifestcommit")`, and Arrow data of `Table.dataset` and `Table.to_arrow`,
            carry it: in Arrow, as long as the schema's metadata is kept, which `filter`, `select`
            and `slice` do, and joins, `group_by` and `concat_tables` of other tables do not. Rows
            that went through pandas, Polars, DuckDB, an RDD or a checkpoint do not. Give it where
            the rows are computed.
        fingerprint: declared with the key: the same key with another one is a KeyReusedError.
            recoverable=True needs it, as a promise: wherever and whenever computed under this key
            and fingerprint, each partition has the same rows. Name in it all that decides them,
            such as the input and the program's release. By default nothing is declared.
        recoverable: keep finished tasks for a rerun of this key and fingerprint, which computes the
            others only. Where Spark cuts partitions by samples (a global sort, repartitionByRange)
            it is refused; it cannot be seen where an RDD, a checkpoint too, was made from a sorted
            DataFrame. By default False.
        publish: False stages the job: the rows are written, and nobody reads them before `publish`
            of the staged job that is returned. It can be read and checked before, from any process.
            By default True.
        on_violation: "error", the default: rows that violate a constraint of the table are an
            error; "quarantine": they go into another table, with the names of the constraints, the
            job and the time, in one commit with the rest, in mode append or overwrite. Spark's
            tasks write both. A rerun by key does neither twice.
        quarantine: the path of that table; by default the table's with ".refused" at its end.
        max_violations: how many rows may be refused so, or, below 1.0, which share of the rows;
            more are an error. By default any number.

    Returns:
        The outcome: the version that holds the rows, and whether an earlier run committed them.
        With mode="ignore", where the table exists: of the kind "unchanged", with its version. With
        publish=False the staged job.

    Raises:
        UsageError: an argument is wrong; no task has started.
        SchemaMismatchError: the data does not fit the table; no task has started.
        VersionNotFoundError: of `based_on`; no task has started.
        NotATableError: the folder holds files but no table.
        CommitConflictError: others committed what this overwrite depends on, or mode is "error" and
            the table exists (`rule` "table_exists"); nothing is committed.
        WatermarkGapError: a range starts after the current watermark; nothing is committed.
        WatermarkOverlapError: a range starts before the current watermark; nothing is committed.
        KeyReusedError: the key was committed with another declaration.
        JobFencedError: the job took longer than gc's grace period; nothing is committed.
        OutcomeUnknownError: the store did not say whether it was committed: rerun the same key.
        UnsafeStoreError: the store cannot be trusted with commits.

    Example:
        `write(df, "/lake/flights", key="flights:2013-01", watermarks={"faa": (0, 27004)})`

    Spec: CM1, CM10, CF17, CF18, KY1, OB15, SC10, SE5, WM2.
    """
    _check_mode(mode, overwrite, conflict)
    is_plain = mode in ("append", "overwrite") and not recoverable
    if not publish and not is_plain:
        raise _only_plain("publish=False")
    how: dict[str, Any] = {
        "partition_by": partition_by,
        "merge_schema": merge_schema,
        "target_file_size": target_file_size,
        # files say which ranges their rows come from, unless that would make each entry long
        "sources": watermarks if watermarks and len(watermarks) <= MAX_SOURCES else None,
    }
    work: dict[str, Any] = {"key": key, "fingerprint": fingerprint, "message": message}
    work |= {"metadata": metadata, "storage_options": storage_options}
    if on_violation == "quarantine":
        if not (is_plain and publish and based_on is None and not replace_schema):
            raise _only_plain('on_violation="quarantine"')
        done: Outcome = registry.registered("quarantine")().write_quarantined(
            data,
            path,
            (quarantine, max_violations),
            overwrite={"overwrite": overwrite, "conflict": conflict} if mode == "overwrite" else {},
            watermarks=watermarks,
            how=how,
            work=work,
        )
        return done
    if quarantine is not None or max_violations is not None:
        goes = 'quarantine and max_violations go with on_violation="quarantine"'
        raise UsageError(f"{goes}; nothing was done")
    job = _begin(path, recoverable=recoverable, based_on=based_on, **work)
    try:
        with job:
            if mode == "overwrite":
                job.overwrite(overwrite, conflict=conflict)
            elif mode != "append":
                job._first = mode  # [CF18]
            if watermarks is not None:
                job.advances += validation.advances_of(watermarks)
            job._write(data, replace_schema=replace_schema, **how)
            if publish:
                return job.commit()
            staged = registry.registered("staging")().Staged
            return cast("Staged", staged(path, job.make_durable(), storage_options))
    except CommitConflictError as error:
        if mode != "ignore" or error.rule != "table_exists":
            raise
        return Outcome(kind="unchanged", job_id=job.id, version=job.ctx.open().version)


def _check_mode(mode: str, overwrite: Overwritten, conflict: str) -> None:
    """UsageError where an argument of mode="overwrite" is given with another mode."""
    given = "overwrite" if overwrite is not None else "conflict"
    if mode != "overwrite" and (overwrite is not None or conflict != "serializable"):
        raise UsageError(f'{given}=… is for mode="overwrite"; with mode="{mode}" leave it out')


def _only_plain(argument: str) -> UsageError:
    return UsageError(
        f"{argument} is for mode append or overwrite, without recoverable, and a quarantine "
        "without based_on, replace_schema and publish=False; nothing was done"
    )


@checked()
def begin(
    path: Path,
    key: str | None = None,
    *,
    recoverable: bool = False,
    fingerprint: str | None = None,
    based_on: int | None = None,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Job:
    """Begin a job: leaving its `with` block commits, leaving it by an exception aborts.

    `begin` writes nothing. A job with work that is dropped without `commit`, `prepare` or
    `abort` gives a DroppedJobWarning. Other arguments and errors are as for `write`.

    Args:
        recoverable: each task that finishes is durable, and a rerun of the same key and fingerprint
            after a crash computes the others only; what is left by an exception is kept for the
            rerun. By default False.
        message: what the commit is for; by default none, and `Job.note` sets it later.
        metadata: name -> text; by default none, and `Job.note` adds to it later.

    Returns:
        The job.

    Example:
        `with begin("/lake/flights", key="2013-01-02") as job: job.write(rows)`

    Spec: CM1, AB1, AB6, CF17, OB15.
    """
    options = NO_OPTIONS if storage_options is None else StorageOptions(storage_options)
    note = Note(message=message, metadata=dict(metadata or {}))
    job = Job(
        TableContext(open_store(path, options), note=note),
        key=key,
        fingerprint=fingerprint,
        recoverable=recoverable,
        based_on=based_on,
        storage_options=options,
    )
    job._process = os.getpid()
    return job


# for `write`, which has checked the arguments
_begin: Callable[..., Job] = inspect.unwrap(begin)


class DroppedJobWarning(UserWarning):
    """A job that had something to commit was dropped without `commit`, `prepare` or `abort`.

    Nothing of it is visible.

    Remedy: use the job as a context manager, `with begin(…) as job:`, or call one of these.

    Spec: CM10.
    """


# What users call. The other members are for this package, and may change in any release.
PUBLIC = (
    *("abort", "add_files", "advance", "already_committed", "commit", "id", "metrics", "note"),
    *("outcome", "overwrite", "prepare", "write"),
)


class Job(JointUnit):
    """One attempt to change a table, made by `begin`; leave its block to commit.

    Nothing is visible before the commit. The work of a job that failed never becomes visible.

    Attributes:
        outcome: what became of it; None until it was committed.

    Errors of several methods:

    - `UsageError`: an argument is wrong, or the job is over, or belongs to a transaction, which
      alone ends it.
    - `StoreError`: the store failed.

    Spec: CM10.
    """

    def __init__(
        self,
        ctx: TableContext,
        *,
        key: str | None = None,
        fingerprint: str | None = None,
        recoverable: bool = False,
        based_on: int | None = None,
        storage_options: StorageOptions = NO_OPTIONS,
    ) -> None:
        ctx.who()  # a misspelled switch is an error before anything is written
        super().__init__(ctx, based_on)
        self.outcome: Outcome | None = None
        self.key, self._fingerprint = key, fingerprint
        self.recovery = Recovery(ctx, key, fingerprint) if recoverable else None
        self.operation = "append"
        self.appends_what_it_read = False  # an append, too, has read all rows of the table [SP41]
        self.storage_options = storage_options
        self._process: int | None = None  # in which `begin` returned it, and which ends it
        self.in_transaction = False  # a transaction alone ends its jobs [MT1]
        self._overwrite: Overwritten = None
        self._conflict: ConflictChoice = "serializable"
        self._first: Literal["error", "ignore"] | None = None
        self._layout = Layout()
        self._found: list[Entry] = []  # files of others, whose columns were not compared yet
        self.advances: list[Advance] = []
        self._stream: StreamBatch | None = None
        self._checked: frozenset[str] | None = None  # constraints that all plans check
        self._read: tuple[PartitionPattern, ...] | None = None  # of the table at its birth [MT16]
        self.is_declared = False  # whether anything was, or rows were handed in
        self._finished = self._failed = 0  # writes
        self._writing = False
        self.state = JobState.OPEN
        self._head: Head | None = None  # there is no table yet
        if (head := open_or_free(ctx)) is not None:
            self._begin_under(head)
        if based_on is not None and not self.already_committed:
            self.read_at(self._head)

    def __getstate__(self) -> dict[str, Any]:
        if self._process is not None:
            raise UsageError(
                "a job cannot be pickled: no commit would include what its copy writes. Hand the "
                "data to the process that began the job, and write there"
            )
        return vars(self)  # Spark plans in one process, and commits in another

    def __dir__(self) -> list[str]:
        return [*PUBLIC]

    def __repr__(self) -> str:
        is_made = hasattr(self, "outcome")
        return f"Job({self.url!r}, outcome={self.outcome!r})" if is_made else "Job(…)"

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():  # everything is dropped then, this module's names among the first
            return
        if vars(self).get("_process") != os.getpid():  # not set, where the constructor raised
            return
        if self._is_over or self.recovery is not None or not self.has_work:
            return
        dropped = (
            f"job {self.job_id} of {self.url} was dropped without commit, prepare or abort: "
            "nothing of it is visible, and gc removes the files that it wrote. Use it as a context "
            "manager, `with manifestcommit.begin(…) as job:`, or call one of these"
        )
        warnings.warn(DroppedJobWarning(dropped), stacklevel=2, source=self)

    def _begin_under(self, head: Head) -> None:
        """A recoverable job goes on under the id of an earlier attempt. [AB6]"""
        record = None
        if self.key is not None:
            head, record = find_key_at(self.ctx, head, self.key)
        job = self.ctx.new_job(head)
        if self.recovery is not None and record is None:
            job = self.recovery.find(head.snapshot) or job
        self._head, self.job_id, self.key_record = head, job, record  # at once: a look may fail

    @property
    def id(self) -> str:
        """Return the job's id, for `Table.resolve`; a table that does not exist yet is created.

        Returns:
            The id, a text.

        Spec: LY4.
        """
        self.base_head()
        return self.job_id

    @property
    def _is_over(self) -> bool:
        """Whether it was committed, refused, prepared or aborted."""
        return self.state is not JobState.OPEN

    @property
    def has_work(self) -> bool:
        """Whether there is something that it would commit, or whose writing has begun."""
        declared = self.entries or self.manifests or self.advances or self.operation == "overwrite"
        return bool(declared or self._writing) and not self.already_committed

    def read_base(self) -> Head:
        """The table as of the job's birth. TableNotFoundError where there is none. [MT16]"""
        head = self._head
        if head is None:
            raise TableNotFoundError(
                f"there is no table at {self.url}, so that there is nothing to read; nothing was "
                "done. Make it first: create_table(…, exist_ok=True)."
            )
        return read_version(self.ctx.store, head, object_names.parse_job_id(self.job_id).birth)

    def pin(self, partitions: Iterable[PartitionPattern]) -> Pinned:
        """Rest on these partitions, too, as of the job's birth. [MT16]"""
        self._read = bounded((*(self._read or ()), *partitions))
        return object_names.parse_job_id(self.job_id).birth, self._read

    # --- what it declares -------------------------------------------------------------------------

    @checked()
    def overwrite(
        self,
        overwrite: Overwritten = None,
        *,
        conflict: Literal["serializable", "blind", "fail"] = "serializable",
    ) -> None:
        """Replace rows of the table with those that this job writes.

        Args:
            overwrite: the whole table (None, the default), the partitions that this job writes
                ("dynamic"), or those named, such as {"day": "2013-01-01"}.
            conflict: as for the function `write`.

        Spec: CF3, CF4, CF5.
        """
        self._check_open()
        is_dynamic = isinstance(overwrite, str) and overwrite == "dynamic"
        if not (overwrite is None or isinstance(overwrite, Mapping) or is_dynamic):
            expected = 'None for the whole table, "dynamic", or a mapping'
            raise wrong("overwrite", overwrite, expected, '{"day": "2013-01-01"}')
        if overwrite == {}:
            none = "overwrite={} names no partition"
            raise UsageError(f"{none}; give None to replace the whole table")
        if self.operation == "overwrite" and self._overwrite != overwrite:
            what = f"this job overwrites {self._overwrite!r} already"
            raise UsageError(f"{what}; one job replaces one set of partitions. Use a second job.")
        self.operation, self._overwrite, self._conflict = "overwrite", overwrite, conflict
        self._check_missing()

    @checked()
    def advance(self, source: str, start: int | str | None, end: int | str) -> None:
        """Move a source's watermark, together with the data or not at all.

        Args:
            source: the source's name.
            start: where the range begins, which has to be the current watermark when the job
                commits; None: the source has none yet.
            end: where it ends, itself not included.

        Raises:
            UsageError: the range runs backwards, or the source was advanced by this job before.

        Spec: WM2.
        """
        self._check_open()
        self.advances.append(validation.advance_of(source, start, end))

    @checked()
    def note(
        self, message: str | None = None, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        """Record what the job's commit is for, before it is committed or prepared.

        What is only known once the work is done, such as how many rows were rejected, can be
        recorded so. Another process that commits the prepared job records the same.

        Args:
            message: as for the function `write`, in place of the one before; by default that stays.
            metadata: as for the function `write`, added to the entries before; by default nothing.

        Spec: OB15, SE5.
        """
        self.check_home()
        self.enter(Act.WORK)  # a note is no part of the declaration
        before = self.ctx.note
        together = validation.metadata("metadata", {**before.metadata, **(metadata or {})})
        self.ctx = self.ctx.noting(message or before.message, together)

    def take_batch(self, batch: StreamBatch) -> None:
        """This job is one batch of a streaming query, committed once and in order. [KY6]"""
        self._check_open()
        self._stream = batch

    def resume(self, planned: Write, *, began_us: int) -> None:
        """Go on under the id of a job that planned one write in another process, before anything
        was written: take over its plan. [SP7] Only for jobs without a key that append or replace
        the whole table, as a streaming query's batches do."""
        if self._head is None:
            raise TableNotFoundError(
                f"the table at {self.url} was removed while this job ran; nothing was "
                "committed. Run it again."
            )
        self.job_id, self.ctx = planned.job, self.ctx.signing_as(planned)
        self.ledger = WriteTotals(self.ctx.tally, began_us)
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

    @checked()
    def write(
        self,
        data: Any,
        partition_by: list[str] | str | None = None,
        *,
        merge_schema: bool = False,
        replace_schema: bool = False,
        target_file_size: int | str | None = None,
        sources: Ranges | None = None,
    ) -> None:
        """Write rows straight to the destination, invisible until the job commits.

        May be called again. Where an earlier run committed the job's key, nothing is written. Other
        arguments and errors are as for the function `write`.

        Args:
            replace_schema: of a job that overwrites the whole table; by default False.
            sources: source -> (start, end), half-open: where these rows come from, kept with each
                file for `Table.lineage`; it moves no watermark. By default nothing is kept.

        Spec: SP1, DF1.
        """
        self._write(
            data,
            partition_by=partition_by,
            merge_schema=merge_schema,
            replace_schema=replace_schema,
            target_file_size=target_file_size,
            sources=sources,
        )

    def _write(self, data: Any, **options: Any) -> None:
        """Write the rows in this process, as tasks do, or have Spark's tasks write those of a
        DataFrame. options: of `plan_write`. [SP1] [DF1]"""
        if self.already_committed:
            self.check_home()
            self.is_declared = True
            return
        if is_spark_dataframe(data):
            self._write_dataframe(data, options)
            return
        schema, batches = record_batches(data)
        self.marks += arrow_marks(schema.metadata) if schema.metadata else ()
        columns = values.from_arrow(schema)  # they get other ids
        plan, store = self.plan_write(columns, **options), self.ctx.store
        work = done = None
        if self.recovery is not None:
            work = self.recovery.work(plan, tasks=1, same=self.recovery.fingerprint)
            done = work.finished(store).get(0)
        if done is None:
            rows = getattr(data, "num_rows", None)  # of a pyarrow table, not of a stream
            total = rows if isinstance(rows, int) else None
            attempt = self.ctx.env.randomness(8).hex()
            with live_progress(f"writing to {self.url}", total) as progress:
                entries, intake = files.write_files(
                    store, plan, batches, task=self.tasks, attempt=attempt, progress=progress
                )
            if work is None:
                self.add_written(entries, intake=intake)
                return
            done = work.finish(store, self.ctx.env, 0, entries, intake=intake)
        self.add_written(done.entries, done.manifests, intake=intake_of(done))

    def _write_dataframe(self, df: DataFrame, options: Mapping[str, Any]) -> None:
        """Have Spark's tasks write the rows. [SP1] [SP5] [SC3]"""
        from .format.fields import from_spark  # late, as pyspark is an extra
        from .spark.scan import check_running, marks_of
        from .spark.writing import check_recoverable, write_dataframe, write_recoverable

        check_running(df.sparkSession)
        self.marks += marks_of(df)
        if self.recovery is not None:
            check_recoverable(df)
        plan = self.plan_write(from_spark(df.schema.jsonValue()), **options)
        given, recovery = self.storage_options, self.recovery
        if recovery is None:
            write_dataframe(df, plan, storage_options=given).register(self)
        else:
            write_recoverable(df, plan, recovery, storage_options=given).register(self)

    @checked()
    def add_files(self, paths: Iterable[str], *, sources: Ranges | None = None) -> None:
        """List Parquet files that something else wrote below the table path, where they are.

        Args:
            paths: the files, relative to the table path.
            sources: as for `write`.

        Raises:
            UsageError: a path is not a file below the table path, or is listed already.
            SchemaMismatchError: a file does not fit the table.

        Spec: AF1, OB8.
        """
        self._check_open()
        ranges = source_ranges_of(sources)
        if self.already_committed:
            return
        for path in paths:
            entry = self._add_file(path)
            self.entries.append(msgspec.structs.replace(entry, sources=ranges) if ranges else entry)
            self.ledger.take(InputTotals(rows=entry.rows, bytes=entry.bytes))

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
        [SC3] [SC5] [PT1] sources: the ranges that the rows come from, kept with every file.
        [OB8]"""
        self._check_open()
        names = [partition_by] if isinstance(partition_by, str) else partition_by
        head = self._fitting_head(data, tuple(names or ()), replaces=replace_schema)
        new_id = self.ctx.new_field_id
        if self.recovery is not None:
            self._failed += self._writing
            new_id = self.recovery.start(self.job_id, finished=self._finished, failed=self._failed)
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
            job=self.job_id,
            schema=layout.schema,
            partition_by=layout.partition_by,
            target_file_size=target_file_size,
            sources=source_ranges_of(sources) if sources else (),
            shared=self.recovery is not None,
        )
        ids = frozenset(each.id for each in plan.constraints.values())
        self._checked = ids if self._checked is None else self._checked & ids
        return plan

    def _fitting_head(self, data: Schema, names: tuple[str, ...], *, replaces: bool) -> Head:
        """The head for data of this schema, which gives a table without columns its own; refused
        now is what no later commit can make right. [SC3]"""
        if replaces and (self.operation != "overwrite" or self._overwrite is not None):
            raise UsageError(
                "replace_schema is for rows that replace the whole table: overwrite it, and name "
                "no partitions; nothing was done"
            )
        head = self.base_head(data, names)
        if not head.snapshot.schema.fields and self._first is None:
            # the job's base version stays what its id says
            self._head = head = commit_loop.first_schema(
                self.ctx, head, data, names, job=self.job_id
            )
        self._check_early(head)
        return head

    def takes(self) -> tuple[Schema | None, tuple[int, ...] | None]:
        self._check_open()
        self._finished, self._writing = self._finished + 1, False
        return self._layout.schema, self._layout.partition_by

    def _add_file(self, path: str) -> Entry:
        """The entry of a file that something else wrote. [AF1]"""
        head, store = self.base_head(), self.ctx.store
        if self._layout.schema is None and not head.snapshot.schema.fields:
            self.plan_write(values.from_arrow(footer_schema(store, path)))
            self._writing = False
        schema = self._layout.schema or head.snapshot.schema
        if any(entry.path == path for entry in self.entries):
            raise UsageError(f"{path!r} is added twice by this job; its rows would be doubled")
        self._check_settled(path, head)
        chosen = self._layout.partitioning(head.snapshot)
        entry = inspect_file(
            store,
            path,
            schema=schema,
            partition_by=chosen,
            job=self.job_id,
            bounds_columns=files.bounds_columns_of(head.snapshot),
        )
        self._layout = msgspec.structs.replace(self._layout, schema=schema, partition_by=chosen)
        self._found.append(entry)
        self._checked = frozenset()
        self._check_missing()
        return entry

    # --- how it ends ------------------------------------------------------------------------------

    def commit(self) -> Outcome:
        """Commit now instead of on leaving the block. Other errors are as for the function `write`.

        Returns:
            The outcome.

        Raises:
            JobAbortedError: the job was aborted.
            OutcomeUnknownError: the store did not say whether it was committed: ask
                `Table.resolve`.

        Spec: CM10.
        """
        self.check_home()
        self.check_alone()
        try:
            self.outcome = committed_or_raise(self.commit_now(), self.url)
        except BaseException as error:
            maybe = "it may have been, or others may still commit it"
            self._note_fate(error, f"was being committed: {maybe}")
            raise
        return self.outcome

    def prepare(self) -> str:
        """Make all that the job needs to commit durable in one object: the first of two phases.

        From then on `mc.commit(path, job_id)` or `Table.abort(job_id)` finish it, from any
        process on any machine; leaving the block does neither. If it fails, the only valid next
        call is `prepare`.

        Returns:
            The job's id.

        Raises:
            JobFencedError: the job took longer than gc's grace period.

        Spec: AB3.
        """
        self.check_home()
        self.check_alone()
        return self.make_durable()

    def abort(self) -> None:
        """Abort: nothing of the job becomes visible, and nothing is deleted.

        A prepared job is aborted by `Table.abort`.

        Raises:
            UsageError: the job is prepared, or belongs to a transaction. Of one that was committed
                or aborted it is no error, and changes nothing.

        Spec: AB1, AB2.
        """
        self.check_alone()
        self.stop()

    def check_home(self) -> None:
        if self._process not in (None, os.getpid()):
            raise UsageError(
                "this job was begun in the process that forked this one, and commits there; "
                "begin a job of your own here"
            )

    def check_alone(self) -> None:
        if self.in_transaction:
            raise UsageError(
                f"{self.url}: this job belongs to a transaction, which commits all of its "
                "tables or none; nothing was committed. Write into the job, and leave the block of "
                "the transaction, or call the transaction's commit() or abort()."
            )

    def __enter__(self) -> Job:
        self.check_alone()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._is_over:
            return
        if self.recovery is not None:
            again = "run the same work with the same key to go on, or abort it"
            self._note_fate(error, f"is recoverable: {again}")
        if kind is not None:
            self.abort()
        else:
            self.commit()

    def _note_fate(self, error: BaseException | None, what: str) -> None:
        """Have an interrupt (Ctrl-C) say what became of the job, if that is known. [CM23]"""
        if error is not None and not isinstance(error, Exception) and (id := self.job_id):
            url = self.url
            error.add_note(
                f"manifestcommit: job {id} {what}. Table({url!r}).resolve({id!r}) returns what "
                f"became of it; where that is pending, commit({url!r}, {id!r}) finishes it and "
                f"Table({url!r}).abort({id!r}) stops it for good."
            )

    def commit_now(self) -> Outcome:
        """Everything that the job declared and wrote becomes visible at once, or nothing does.
        [CM1]-[CM8]"""
        self.enter(Act.COMMIT)
        ctx, change, base = self.ctx, self.change(), self._newest_known()
        self.meter = meter = Meter(ctx.tally, change.job, change.operation, change.summary)
        if self.key_record is not None:
            return commit_loop.measured(prepared_job.found_outcome(ctx, base, change), meter)
        is_compared = change.overwrite is not None and change.overwrite.conflict == "serializable"
        if is_compared and self.read_at(base) is None:
            ctx.check_read(base.snapshot.table_id, change.birth)
        committers = Committers.GROUP if self.recovery is None else Committers.ANY_PROCESS
        outcome = commit_loop.commit(ctx, base, change, committers=committers, meter=meter)
        if outcome.kind == "committed":
            LATEST_READ.pop(base.snapshot.table_id, None)
        return outcome if self.recovery is None else self.recovery.judged(change, outcome)

    def _newest_known(self) -> Head:
        newest = self.ctx.known or self._head
        assert newest is not None
        return newest

    def take_part(self) -> TablePart:
        part = self.part()
        self.enter(Act.COMMIT)
        return part

    def part(self) -> TablePart:
        return TablePart(
            ctx=self.ctx,
            change=self.change(),
            head=self._newest_known(),
            found=self.key_record is not None,
            is_recoverable=self.recovery is not None,
        )

    def forget_if_final(self, outcome: Outcome) -> None:
        if self.recovery is not None:
            self.recovery.forget_if_final(outcome)

    def make_durable(self) -> str:
        if not self.sealed:
            self.seal()
        self.enter(Act.SEAL)
        super().make_durable()
        self.enter(Act.PREPARE)
        if self.meter is not None and self.meter.ended is None:
            self.meter.end("prepared")
        return self.job_id

    def seal(self, together: tuple[TogetherJob, ...] = ()) -> None:
        if self.state is JobState.OPEN:
            self.base_head()
            self.meter = self.measure("first")
        if self.state is JobState.OPEN or self.sealed:
            super().seal(together)

    def stop(self) -> None:
        """Stop. What was written stays unlisted, and gc collects it. [AB1] [AB2]"""
        if (self.state, Act.ABORT) not in NEXT:
            way_out = f"abort({self.url!r}, {self.job_id!r}) aborts it"
            raise UsageError(f"this job {self.state.value}; {way_out}")
        if self.state is JobState.OPEN:
            self.meter = self.measure()
            self.meter.end("aborted" if self.recovery is None else "left")
        self.enter(Act.ABORT)

    def change(self) -> Write:
        head = self._head or self.base_head()
        layout, overwrite = self._layout, None
        advances = tuple(self.advances)
        by_id = layout.partitioning(head.snapshot)
        touched = self.touches(by_id)
        if self.operation == "overwrite":
            overwrite = replaced(self._overwrite, layout, head.snapshot, self._conflict)
            check_inside(overwrite, touched, layout.schema or head.snapshot.schema, self._overwrite)
        birth = object_names.parse_job_id(self.job_id).birth
        declared = changes.declaration(
            mode=self._first or self.operation,
            scope=overwrite and changes.declared_scope(overwrite),
            advances=advances,
            fingerprint=self._fingerprint,
        )
        if not self.is_declared and self.already_committed:
            declared = changes.as_begun(declared)
        read_at = self.read_at(head)
        reads: tuple[PartitionPattern, ...] = ()
        # the whole table, where it is rows of the table that Spark does not say more of
        if overwrite is None and read_at is not None and self.appends_what_it_read:
            reads = ({},) if self.based_on is None else ()
        reads = bounded((*reads, *self._read)) if self._read else reads
        return Write(
            job=self.job_id,
            birth=birth,
            based_on=read_at and prepared_job.below(read_at, birth, overwrite, reads),
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
            add=tuple(self.entries),
            add_manifests=tuple(self.manifests),
            touched=touched,
            overwrite=overwrite,
            advances=advances,
            stream=self._stream,
            first=self._first is not None,
            checked=tuple(sorted(self._checked or ())),
            summary=self.ledger.summary(self.tasks, self.entries, self.manifests),
        )

    def _check_missing(self) -> None:
        """SchemaMismatchError unless what was written so far has all needed columns. [SC8]"""
        if self._head is None or (schema := self._layout.schema) is None:
            return
        properties = self._head.snapshot.properties
        whole = self.operation == "overwrite" and self._overwrite is None
        if self._layout.missing:
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

    def base_head(self, data: Schema = NO_COLUMNS, partition_by: tuple[str, ...] = ()) -> Head:
        """The head that this job began under; a table is created if need be. [CM13] [ST12]"""
        if self._head is None:
            # What happens to hold no null in the first data may well hold one in the next: only
            # create_table binds columns.
            schema = assign_new_ids(relaxed(data), self.ctx.new_field_id) if data.fields else data
            chosen = partitioning.check_partition_by(schema, partition_by)
            created = commit_loop.create_table(
                self.ctx, schema=schema, partition_by=chosen, properties={}, provisional=True
            )
            self._begin_under(created)
        assert self._head is not None
        self.ctx.prove(self._head.snapshot.proven)
        return self._head

    def _check_early(self, head: Head) -> None:
        """Refuse now, before any task starts, what no later commit of others can make right. [SC3]
        [WM2] [CF5] [CF18] A gap may close while this job runs; an overlap stays. What holds files
        already will not be empty."""
        if self.based_on is not None or self.marks:
            commit_loop.check_based_on(self.ctx, head, self.change())
        was, began = head.snapshot.watermarks, head.snapshot.origins
        mismatch = self.advances and changes.find_mismatch(was, began, self.advances)
        if not mismatch and self._first is None and self._conflict != "fail":
            return
        change = self.change()
        inputs = commit_loop.load_conflict_inputs(self.ctx, head, change)
        conflict = find_conflict(head.snapshot, change, inputs)
        if conflict is not None and conflict.rule in _FINAL_EARLY:
            outcome = Outcome(kind="conflict", job_id=self.job_id, conflict=conflict)
            committed_or_raise(outcome, self.url)

    def _check_open(self) -> None:
        self.check_home()
        self.enter(Act.WORK)
        self.is_declared = True

    def enter(self, act: Act) -> None:
        if (state := NEXT.get((self.state, act))) is None:
            raise UsageError(f"this job {self.state.value}; begin a new one for other work")
        self.state = state
