"""The library call at job end: `write`, `begin` and its job, `commit`, `commit_all`. [CM10]

Spark is touched only when a Spark DataFrame is handed in.

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import msgspec

from . import telemetry as telemetry  # observes jobs
from .commits import job as engine_job
from .commits.two_phase import commit_prepared
from .errors import (
    CommitConflictError,
    ManifestCommitError,
    OutcomeUnknownError,
    StoreError,
    UsageError,
    WatermarkGapError,
)
from .files.row_buffer import record_batches
from .format.entries import MAX_SOURCES
from .format.watermark import in_order_of_advances, predecessors
from .log import export_hook
from .log.table_context import TableContext
from .runtime.outcome import JobMetrics, JobResult, JobResults, Outcome, committed_or_raise
from .runtime.validation import Ranges, advances_of, checked, is_spark, wrong
from .store import StorageOptions, open_store
from .terminal import Progress

if TYPE_CHECKING:
    from .staging import Staged

Path = str | os.PathLike[str]
Overwritten = Mapping[str, Any] | Literal["dynamic"] | None


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
    # All rows of the job come from these ranges, and its files say so, unless that would make each
    # entry long.
    sources = watermarks if watermarks and len(watermarks) <= MAX_SOURCES else None
    if on_violation == "quarantine":
        if not (is_plain and publish and based_on is None and not replace_schema):
            raise _only_plain('on_violation="quarantine"')
        done: Outcome = export_hook.registered("quarantine")().write_quarantined(
            data,
            path,
            (quarantine, max_violations),
            overwrite={"overwrite": overwrite, "conflict": conflict} if mode == "overwrite" else {},
            watermarks=watermarks,
            layout=(partition_by, merge_schema, target_file_size, sources),
            work=(key, fingerprint, message, metadata, storage_options),
        )
        return done
    _check_no_refusal(quarantine, max_violations)
    ctx = TableContext(open_store(path, storage_options)).noting(message, metadata)
    begun = engine_job.Job(
        ctx, key=key, fingerprint=fingerprint, recoverable=recoverable, based_on=based_on
    )
    job = Job(begun, storage_options)
    try:
        with job:
            _declare(job, mode, overwrite, conflict, watermarks)
            job.write(
                data,
                partition_by=partition_by,
                merge_schema=merge_schema,
                target_file_size=target_file_size,
                sources=sources,
                **({"replace_schema": True} if replace_schema else {}),
            )
            if not publish:
                begun.seal(held=True)
                begun.prepare()
    except CommitConflictError as error:
        if mode != "ignore" or error.rule != "table_exists":
            raise
        return Outcome(kind="unchanged", job_id=begun.id, version=ctx.open().version)
    if not publish:
        opened: Staged = export_hook.registered("staging")().Staged(path, begun.id, storage_options)
        return opened
    assert job.outcome is not None
    return job.outcome


def _check_mode(mode: str, overwrite: Overwritten, conflict: str) -> None:
    """UsageError where what mode="overwrite" takes is given with another mode."""
    if mode != "overwrite" and overwrite is not None:
        raise UsageError(
            f'overwrite=… names what mode="overwrite" replaces; with mode="{mode}" leave it out'
        )
    if mode != "overwrite" and conflict != "serializable":
        raise UsageError(
            f'conflict={conflict!r} says when mode="overwrite" aborts; with mode="{mode}" leave it '
            "out"
        )


def _check_no_refusal(quarantine: Path | None, max_violations: int | float | None) -> None:
    if quarantine is not None or max_violations is not None:
        raise UsageError(
            'quarantine and max_violations go with on_violation="quarantine"; nothing was done'
        )


def _declare(
    job: Job, mode: Any, overwrite: Overwritten, conflict: Any, watermarks: Ranges | None
) -> None:
    if mode == "overwrite":
        job.overwrite(overwrite, conflict=conflict)
    elif mode in ("error", "ignore"):
        job._job.be_first(mode)
    for each in advances_of(watermarks):
        job.advance(each.source, each.start, each.end)


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
        path: the table path, a local path or a URL.
        recoverable: each task that finishes is durable, and a rerun of the same key and fingerprint
            after a crash computes the others only; what is left by an exception is kept for the
            rerun. By default False.
        message: what the commit is for; by default none, and `Job.note` sets it later.
        metadata: name -> text; by default none, and `Job.note` adds to it later.

    Returns:
        The job.

    Raises:
        UsageError: an argument is invalid; the message names it.
        NotATableError: the folder holds plain files.

    Example:
        `with begin("/lake/flights", key="2013-01-02") as job: job.write(rows)`

    Spec: CM1, AB1, AB6, CF17, OB15.
    """
    ctx = TableContext(open_store(path, storage_options)).noting(message, metadata)
    job = engine_job.Job(
        ctx, key=key, fingerprint=fingerprint, recoverable=recoverable, based_on=based_on
    )
    return Job(job, storage_options)


class DroppedJobWarning(UserWarning):
    """A job that had something to commit was dropped without `commit`, `prepare` or `abort`.

    Nothing of it is visible.

    Remedy: use the job as a context manager, `with begin(…) as job:`, or call one of these.

    Spec: CM10.
    """


class Job:
    """One attempt to change a table, made by `begin`; leave its block to commit.

    Nothing is visible before the commit. The work of a job that failed never becomes visible.

    Attributes:
        outcome: what became of it; None until it was committed.

    Spec: CM10.
    """

    def __init__(
        self,
        job: engine_job.Job,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._job = job
        self._storage_options = StorageOptions(storage_options)
        self._process = os.getpid()
        self._in_transaction = False  # then that alone ends it [MT1]
        self.outcome: Outcome | None = None

    def __reduce__(self) -> Any:
        raise UsageError(
            "a job cannot be pickled: no commit would include what its copy writes. "
            "Hand the data to the process that began the "
            "job, and write there"
        )

    def __repr__(self) -> str:
        return (
            f"Job({self._job.url!r}, outcome={self.outcome!r})"
            if hasattr(self, "outcome")
            else "Job(…)"
        )

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():  # everything is dropped then, this module's names among the first
            return
        job = getattr(self, "_job", None)  # none, where the constructor was called wrongly
        if (
            job is None
            or job.is_over
            or job.recovery is not None
            or not job.has_work
            or os.getpid() != self._process
        ):
            return
        warnings.warn(DroppedJobWarning(dropped(job)), stacklevel=2, source=self)

    @property
    def id(self) -> str:
        """Return the job's id, for `Table.resolve`; a table that does not exist yet is created.

        Returns:
            The id, a text.

        Raises:
            StoreError: the table had to be created, and the store failed.

        Spec: LY4.
        """
        return self._job.ensure_id()

    @property
    def already_committed(self) -> bool:
        """Return whether an earlier run committed this key: writes do nothing then.

        Returns:
            True where the outcome is the first run's version.

        Spec: KY3.
        """
        return self._job.already_committed

    @property
    def metrics(self) -> JobMetrics:
        """Return the job in numbers: as it ended, also where it raised; while it runs, as of now.

        Returns:
            The numbers.

        Spec: OB10.
        """
        return self._job.metrics

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

        Raises:
            UsageError: an argument is wrong, or the job is over.
            StoreError: the store failed.

        Spec: SP1, DF1.
        """
        self._check_home()
        if self.already_committed:
            self._job.is_declared = True
            return
        options: dict[str, Any] = {
            "partition_by": partition_by,
            "merge_schema": merge_schema,
            "replace_schema": replace_schema,
            "target_file_size": target_file_size,
        }
        options["sources"] = sources
        if is_spark_dataframe(data):
            from .spark.writing import write_into  # late: pyspark is an extra

            write_into(self._job, data, storage_options=self._storage_options, **options)
            return
        schema, batches = record_batches(data)
        total = getattr(data, "num_rows", None)  # of a pyarrow table, not of a stream
        with Progress(
            f"writing to {self._job.url}", total if isinstance(total, int) else None
        ) as progress:
            self._job.write_stream(schema, batches, progress=progress, **options)

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
        self._job.add_files(paths, sources=sources)

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

        Raises:
            UsageError: an argument is wrong, or the job is over.

        Spec: CF3, CF4, CF5.
        """
        self._job.overwrite(overwrite, conflict=conflict)

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
        self._job.advance(source, start, end)

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

        Raises:
            UsageError: an argument is wrong, or the job is over.

        Spec: OB15, SE5.
        """
        self._job.note(message, metadata or {})

    def commit(self) -> Outcome:
        """Commit now instead of on leaving the block. Other errors are as for the function `write`.

        Returns:
            The outcome.

        Raises:
            JobAbortedError: the job was aborted.
            OutcomeUnknownError: the store did not say whether it was committed: ask
                `Table.resolve`.
            UsageError: the job is over, or belongs to a transaction.

        Spec: CM10.
        """
        self._check_home()
        self._check_own()
        with _noting(
            self._job, "was being committed: it may have been, or others may still commit it"
        ):
            self.outcome = committed_or_raise(self._job.commit(), self._job.url)
        return self.outcome

    def _try_commit(self, tried: int, earlier: Sequence[Job]) -> JobResult:
        result = JobResult(url=self._job.url, job_id="", key=self._job.key, tries=tried)
        try:
            self._check_home()
            self._check_own()
            outcome = self.outcome  # its block may have been left before
            if outcome is None:
                self._job.check_turn(other._job for other in earlier)
                outcome = committed_or_raise(
                    self._job.commit_again()
                    if self._job.was_tried
                    else self._job.commit(publishing=False),
                    self._job.url,
                )
        except ManifestCommitError as error:
            return msgspec.structs.replace(result, job_id=self._job.id, error=error)
        except Exception as error:  # one job's failure, of whatever kind, is not the others'
            failure = ManifestCommitError(f"{self._job.url}: {type(error).__name__}: {error}")
            failure.__cause__ = error
            return msgspec.structs.replace(result, job_id=self._job.id, error=failure)
        self.outcome = outcome
        return msgspec.structs.replace(result, job_id=outcome.job_id, outcome=outcome)

    def prepare(self) -> str:
        """Make all that the job needs to commit durable in one object: the first of two phases.

        From then on `mc.commit(path, job_id)` or `Table.abort(job_id)` finish it, from any
        process on any machine; leaving the block does neither. If it fails, the only valid next
        call is `prepare`.

        Returns:
            The job's id.

        Raises:
            UsageError: the job is over, or belongs to a transaction.
            JobFencedError: the job took longer than gc's grace period.
            StoreError: the store failed: call it again.

        Spec: AB3.
        """
        self._check_home()
        self._check_own()
        self._job.seal()
        return self._job.prepare()

    def abort(self) -> None:
        """Abort: nothing of the job becomes visible, and nothing is deleted.

        A prepared job is aborted by `Table.abort`.

        Raises:
            UsageError: the job is prepared, is over, or belongs to a transaction.

        Spec: AB1, AB2.
        """
        self._check_own()
        self._job.abort()

    def _check_home(self) -> None:
        if os.getpid() != self._process:
            raise UsageError(
                "this job was begun in the process that forked this one, and commits there; "
                "begin a job of your own here"
            )

    def _check_own(self) -> None:
        if self._in_transaction:
            raise UsageError(
                f"{self._job.url}: this job belongs to a transaction, which commits all of its "
                "tables or none; nothing was committed. Write into the job, and leave the block of "
                "the transaction, or call the transaction's commit() or abort()."
            )

    def __enter__(self) -> Job:
        self._check_own()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if (
            error is not None
            and not isinstance(error, Exception)
            and (self._job.recovery is not None)
            and not self._job.is_over
        ):
            _note(
                error,
                self._job,
                "is recoverable: run the same work with the same key to go on, or abort it",
            )
        if self._job.is_over:
            return
        if kind is not None:
            self.abort()
        else:
            self.commit()


def dropped(job: engine_job.Job) -> str:
    """What a job that nobody has ended says of itself."""
    return (
        f"job {job.id} of {job.url} was dropped without commit, prepare or abort: "
        "nothing of it is visible, and gc removes the files that it "
        "wrote. Use it as a context manager, `with manifestcommit.begin(…) as job:`, or call "
        "one of these"
    )


@contextlib.contextmanager
def _noting(job: engine_job.Job, what: str) -> Iterator[None]:
    """Within, an interrupt (Ctrl-C) notes what became of the job, if that is known. [CM23]"""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception):
            _note(error, job, what)
        raise


def _note(error: BaseException, job: engine_job.Job, what: str) -> None:
    url, id = job.url, job.id
    if id:
        error.add_note(
            f"manifestcommit: job {id} {what}. Table({url!r}).resolve({id!r}) returns what became "
            f"of it; where that is pending, commit({url!r}, {id!r}) finishes it and "
            f"Table({url!r}).abort({id!r}) stops it for good."
        )


@checked()
def commit(path: Path, job_id: str, *, storage_options: Mapping[str, Any] | None = None) -> Outcome:
    """Commit a prepared or published job: the second of two phases, from any process.

    The job is committed once; all callers see one result.

    Args:
        path: the table path, a local path or a URL.
        job_id: the job's id, as `Job.prepare` returned it and `Table.jobs` lists it.
        storage_options: what reaches the object store; by default the environment.

    Returns:
        The outcome.

    Raises:
        JobAbortedError: the job was aborted.
        JobFencedError: the job was prepared too long ago.
        CommitConflictError: others committed what it depends on; it is still prepared: commit it
            again when the conflict is resolved, or abort it.
        WatermarkGapError: as for a conflict.
        WatermarkOverlapError: as for a conflict.
        TableNotFoundError: there is no table at the path.
        UsageError: the id is not of a job of this table.
        OutcomeUnknownError: the store did not say whether it was committed: call it again.

    Spec: AB3, CM10.
    """
    ctx = TableContext(open_store(path, storage_options))
    return committed_or_raise(commit_prepared(ctx, job_id), ctx.store.url)


@checked()
def commit_all(jobs: Iterable[Job], *, tries: int = 3) -> JobResults:
    """Commit each job on its own: one that keeps failing holds up no other.

    For several tables that are fed by one run. Each is committed once or not at all, and
    `transaction` commits all of them or none. Of each source the lower range is committed
    first, in whatever order the jobs are given, and no later range becomes the first one of a
    source that the table does not know.

    Args:
        jobs: the jobs, as `begin` returns them; one given twice counts once.
        tries: how often each is tried at most, after all others had their turn: what a store failed
            to do or did not say, and what may clear up by itself, such as a gap that another of the
            jobs closes; by default 3.

    Returns:
        One result for each job, in their order, also for one that was committed before. A job that
        is not committed raises nothing: its result has the `error`.

    Raises:
        UsageError: `jobs` are no jobs.

    Spec: CM10, WM7.
    """
    given = list(jobs) if isinstance(jobs, Iterable) else [None]
    if not all(isinstance(job, Job) for job in given):
        raise wrong("jobs", jobs, "a list of jobs, as begin returns them")
    given = list(dict.fromkeys(given))
    results: dict[int, JobResult] = {}
    before = predecessors([job._job.placed_advances for job in given])
    waiting, tried = in_order_of_advances(before), 1
    while waiting and tried <= tries:
        for index in waiting:
            earlier = [
                given[each]
                for each in before[index]
                if each in results and results[each].error is not None
            ]
            results[index] = given[index]._try_commit(tried, earlier)
        waiting, tried = [index for index in waiting if _may_pass(results[index].error)], tried + 1
    return JobResults(results[index] for index in range(len(given)))


def _may_pass(error: ManifestCommitError | None) -> bool:
    """Whether it may be otherwise a moment later."""
    if isinstance(error, CommitConflictError):
        return error.rule == "contention"
    return isinstance(error, StoreError | OutcomeUnknownError | WatermarkGapError)


def is_spark_dataframe(data: Any) -> bool:
    """Whether it is a Spark DataFrame, classic or Connect, without importing pyspark."""
    return is_spark(data, "DataFrame")
