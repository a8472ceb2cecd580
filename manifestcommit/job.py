"""The library call at job end: `write`, `begin` and its job, `commit`, `commit_all`. [CM10]

Spark is touched only when a Spark DataFrame is handed in.
Not here: tables and readers (table), the protocol (engine).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, get_args

import msgspec

from .core.manifest import MAX_SOURCES
from .engine import job as engine_job
from .engine.figures import Figures
from .engine.given import Ranges, advances_of
from .engine.outcome import JobResult, JobResults, Outcome, committed_or_raise
from .engine.prepare import commit_prepared
from .engine.session import Session
from .engine.streams import stream_batches
from .errors import CommitConflictError, ManifestCommitError, OutcomeUnknownError, StoreError, UsageError, WatermarkGapError
from .progress import Progress
from .store import StorageOptions, open_store

Path = str | os.PathLike[str]
Overwritten = Mapping[str, Any] | Literal["dynamic"] | None
Writer = Literal["arrow", "jvm"]


def write(
    data: Any,
    df_path: Path,
    *,
    mode: Literal["append", "overwrite"] = "append",
    partition_by: list[str] | str | None = None,
    overwrite: Overwritten = None,
    conflict: Literal["serializable", "blind", "fail"] = "serializable",
    key: str | None = None,
    fingerprint: str | None = None,
    watermarks: Ranges | None = None,
    merge_schema: bool = False,
    target_file_size: int | None = None,
    recoverable: bool = False,
    writer: Writer = "arrow",
    storage_options: Mapping[str, Any] | None = None,
) -> Outcome:
    """Write `data` and commit it with its watermarks: all of it is visible at once and exactly once, or none of it. [CM1]-[CM10]

    data: a Spark DataFrame, or whatever has `__arrow_c_stream__` (pyarrow, pandas, polars, DuckDB); df_path: the table's root, made a
    table by the first write. mode="overwrite" replaces the whole table (overwrite=None), the partitions that are written ("dynamic"),
    or those named ({"day": "2013-01-01"}). key: a name for this work that is the same on every rerun: the second run is a no-op that
    returns the first version. watermarks: source -> (start, end), half-open; up to 256 of them are also kept with each file, for
    `Table.lineage`. target_file_size: bytes. recoverable: keep finished tasks for a rerun of this key: it computes the others only, where
    Spark's plan, its input files and the code of Python functions are the same; what such a function itself reads (clocks, random
    numbers, services, files) is not looked at. writer="jvm": where the table is a local or mounted folder, let Spark's own Parquet writer
    write a DataFrame, which costs less; files are then as large as the tasks make them.

    fingerprint: part of what is declared with the key: the same key with another one is a KeyReusedError. With recoverable=True it is
    also a promise, which is believed instead of looking into the plan: wherever and whenever computed under this key and fingerprint,
    each partition has the same rows. Name in it all that decides them, such as the input and the program's release; with less, rows of
    a rerun are lost or doubled. The ranges of a global sort are refused even then, but cannot be seen where an RDD, a checkpoint too, was
    made from a sorted DataFrame: do not promise it of these.

    Raises what stops a commit (see `manifestcommit.errors`): SchemaMismatchError and UsageError before any task starts,
    CommitConflictError, WatermarkGapError, WatermarkOverlapError, KeyReusedError, JobFencedError with nothing committed, and
    OutcomeUnknownError when the store did not say: then nothing is deleted, and a rerun with the same key is safe.
    """
    if mode not in ("append", "overwrite"):
        raise UsageError(f'mode is "append" or "overwrite", not {mode!r}')
    if mode == "append" and overwrite is not None:
        raise UsageError('overwrite=… names what mode="overwrite" replaces; with mode="append" leave it out')
    if mode == "append" and conflict != "serializable":
        raise UsageError(f'conflict={conflict!r} says when mode="overwrite" gives up; an append conflicts with nothing that was written')
    if target_file_size is not None and target_file_size < 1:
        raise UsageError(f"target_file_size is a number of bytes above 0, not {target_file_size}")
    job = begin(df_path, key=key, fingerprint=fingerprint, recoverable=recoverable, storage_options=storage_options)
    with job:
        if mode == "overwrite":
            job.overwrite(overwrite, conflict=conflict)
        for each in advances_of(watermarks):
            job.advance(each.source, each.start, each.end)
        # All rows of the job come from these ranges, and its files say so, unless that would make each entry long.
        sources = watermarks if watermarks and len(watermarks) <= MAX_SOURCES else None
        options: dict[str, Any] = {"merge_schema": merge_schema, "target_file_size": target_file_size, "sources": sources}
        job.write(data, partition_by=partition_by, writer=writer, **options)
    assert job.outcome is not None
    return job.outcome


def begin(
    df_path: Path,
    key: str | None = None,
    recoverable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    *,
    fingerprint: str | None = None,
) -> Job:
    """A job whose block commits when it is left, and gives up when it is left by an exception. [CM1] [AB1]

    recoverable: each task that finishes is durable, and a rerun of the same key after a crash computes the others only, as far as it
    can know that they are the same work. What is left by an exception is kept for the rerun. [AB6]
    fingerprint: declared with the key and, with recoverable=True, the promise that each partition has the same rows in every run of
    this key and fingerprint: see `write`.
    NotATableError where the folder holds plain files. Nothing is written by beginning.
    """
    session = Session(open_store(df_path, storage_options))
    return Job(session, key=key, fingerprint=fingerprint, recoverable=recoverable, storage_options=storage_options)


class Job:
    """One attempt to change a table: gather with `write`, `add_files`, `overwrite`, `advance`; leave the block to commit. [CM10]

    outcome: None until the block was left. Nothing is visible before, and nothing of a job that raised is visible ever.
    """

    def __init__(
        self,
        session: Session,
        *,
        key: str | None,
        fingerprint: str | None,
        recoverable: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._job = engine_job.Job(session, key=key, fingerprint=fingerprint, recoverable=recoverable)
        self._storage_options = StorageOptions(storage_options)
        self._process = os.getpid()
        self.outcome: Outcome | None = None

    def __reduce__(self) -> Any:
        raise UsageError(
            "a job cannot leave its process: what a copy of it writes would be in no commit. Hand the data to the process that began the "
            "job, and write there"
        )

    def __repr__(self) -> str:
        return f"Job({self._job.url!r}, outcome={self.outcome!r})"

    @property
    def id(self) -> str:
        """The job's id, for `resolve`; a table that does not exist yet is created. [LY4]"""
        return self._job.id

    @property
    def already_committed(self) -> bool:
        """Whether an earlier run committed this key: writes do nothing, the outcome is the first version. [KY3]"""
        return self._job.already_committed

    @property
    def figures(self) -> Figures:
        """The job in numbers, as it ended, also where it raised; as it stands, while it runs. [OB10]"""
        return self._job.figures

    def write(
        self,
        data: Any,
        partition_by: list[str] | str | None = None,
        *,
        merge_schema: bool = False,
        target_file_size: int | None = None,
        sources: Ranges | None = None,
        writer: Writer = "arrow",
    ) -> None:
        """Write rows straight to the destination, invisible until the job commits; may be called again. [SP1] [DF1]

        sources: source -> (start, end), half-open: where these rows come from, kept with each file for `Table.lineage`; it moves no
        watermark. writer: as for `mc.write`. SchemaMismatchError, before any task starts, where the data does not fit the table.
        """
        self._check_home()
        if writer not in get_args(Writer):
            raise UsageError(f'writer is "arrow" or "jvm", not {writer!r}')
        if writer == "jvm" and not is_spark_dataframe(data):
            raise UsageError('writer="jvm" is for Spark DataFrames; nothing was done. Leave it out.')
        if self.already_committed:
            return
        options: dict[str, Any] = {"partition_by": partition_by, "merge_schema": merge_schema, "target_file_size": target_file_size}
        options["sources"] = sources
        if is_spark_dataframe(data):
            from .spark.write import write_into  # late: pyspark is an extra

            write_into(self._job, data, storage_options=self._storage_options, by_jvm=writer == "jvm", **options)
            return
        schema, batches = stream_batches(data)
        with Progress(f"writing to {self._job.url}") as progress:
            self._job.write_stream(schema, batches, progress=progress, **options)

    def add_files(self, paths: Iterable[str], *, sources: Ranges | None = None) -> None:
        """List Parquet files that something else wrote below the root; paths are relative to it; sources as for `write`. [AF1] [OB8]"""
        self._job.add_files(paths, sources=sources)

    def overwrite(self, overwrite: Overwritten = None, *, conflict: Literal["serializable", "blind", "fail"] = "serializable") -> None:
        """Replace the whole table (None), the partitions that this job writes ("dynamic"), or {"day": …}. [CF3] [CF4] [CF5]"""
        self._job.overwrite(overwrite, conflict=conflict)

    def advance(self, source: str, start: int | str | None, end: int | str) -> None:
        """Move a source's watermark from `start` to `end`, together with the data or not at all. [WM2]"""
        self._job.advance(source, start, end)

    def commit(self) -> Outcome:
        """Commit now instead of on leaving the block. Raises what the outcome says where it is not a commit. [CM10]"""
        self._check_home()
        self.outcome = committed_or_raise(self._job.commit(), self._job.url)
        return self.outcome

    def _try_commit(self, tried: int) -> JobResult:
        result = JobResult(url=self._job.url, job_id="", key=self._job.key, tries=tried)
        try:
            self._check_home()
            outcome = self.outcome  # its block may have been left before
            if outcome is None:
                outcome = committed_or_raise(
                    self._job.commit_again() if self._job.was_tried else self._job.commit(publishing=False), self._job.url
                )
        except ManifestCommitError as error:
            return msgspec.structs.replace(result, job_id=self._job.known_id, error=error)
        except Exception as error:  # one job's failure, of whatever kind, is not the others'
            told = ManifestCommitError(f"{self._job.url}: {type(error).__name__}: {error}")
            told.__cause__ = error
            return msgspec.structs.replace(result, job_id=self._job.known_id, error=told)
        self.outcome = outcome
        return msgspec.structs.replace(result, job_id=outcome.job_id, outcome=outcome)

    def prepare(self) -> str:
        """First phase: all that the job needs to commit is durable in one object; returns the job's id. [AB3]

        From then on `mc.commit(df_path, job_id)` or `mc.abort(df_path, job_id)` finish it, from any process on any machine; leaving the
        block does neither. What was prepared survives this process. Where it failed it may be called again, and nothing else may.
        """
        self._check_home()
        return self._job.prepare()

    def abandon(self) -> None:
        """Give up: nothing of the job becomes visible, and nothing is deleted; a prepared job is given up by `abort`. [AB1] [AB2]"""
        self._job.abandon()

    def _check_home(self) -> None:
        if os.getpid() != self._process:
            raise UsageError("this job was begun in the process that forked this one, and commits there; begin a job of your own here")

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._job.is_over:
            return
        if kind is not None:
            self.abandon()
        else:
            self.commit()


def commit(df_path: Path, job_id: str, *, storage_options: Mapping[str, Any] | None = None) -> Outcome:
    """Second phase: commit a prepared job, once, whoever calls this how often and from where; also one that is published. [AB3] [CM10]

    Raises what the outcome says: JobAbortedError once it was given up, JobFencedError, CommitConflictError and the watermark errors, after
    which it is still prepared: commit it again when what is in the way is gone, or give it up.
    """
    session = Session(open_store(df_path, storage_options))
    return committed_or_raise(commit_prepared(session, job_id), session.store.url)


def commit_all(jobs: Iterable[Job], *, tries: int = 3) -> JobResults:
    """Commit each job on its own: one that keeps failing holds up no other, and the result says which are to be done again. [CM10]

    For several datasets that are fed by one run. There is no transaction across them: each is committed once or not at all. What a
    store failed to do, or did not say, is tried again, as is what may clear up by itself (a gap that another of the jobs closes), up to
    `tries` times each, after all others had their turn. Raises nothing for a job that is not committed. One result for each job, which
    may have been committed before; given twice, it counts once.
    """
    given = list(dict.fromkeys(jobs)) if isinstance(jobs, Iterable) else []
    if tries < 1 or not isinstance(jobs, Iterable) or not all(isinstance(job, Job) for job in given):
        raise UsageError("commit_all takes jobs, as begin returns them, and at least one try")
    results: dict[int, JobResult] = {}
    for tried in range(1, tries + 1):
        for index, job in enumerate(given):
            if tried == 1 or _may_pass(results[index].error):
                results[index] = job._try_commit(tried)
    return JobResults(results[index] for index in range(len(given)))


def _may_pass(error: ManifestCommitError | None) -> bool:
    """Whether it may be otherwise a moment later."""
    if isinstance(error, CommitConflictError):
        return error.rule == "contention"
    return isinstance(error, StoreError | OutcomeUnknownError | WatermarkGapError)


def is_spark_dataframe(data: Any) -> bool:
    """Whether it is a Spark DataFrame, classic or Connect, told without importing pyspark."""
    return any(
        f"{each.__module__}.{each.__qualname__}".startswith("pyspark.sql.") and each.__name__ == "DataFrame" for each in type(data).__mro__
    )


def is_spark_column(value: Any) -> bool:
    """Whether it is a Spark Column, classic or Connect, told without importing pyspark."""
    return any(each.__module__.startswith("pyspark.sql.") and each.__name__ == "Column" for each in type(value).__mro__)
