"""What is asked of a table in one call: `read_committed`, `resolve`, `abort`, `gc`. [RD2] [CM23]

Internal: import from `manifestcommit`. Not here: how (table.table, table.reading, engine).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..argument_checks import checked
from ..engine.job.resolve import Resolution, tables_beside
from ..engine.job.two_phase import give_up
from ..engine.maintenance.gc import GcReport
from ..engine.metadata.table_context import TableContext
from ..engine.runtime.outcome import committed_or_raise
from ..engine.runtime.validation import optional
from ..job import Path
from ..store import open_store
from .conditions import Condition
from .listing import Listing
from .table import Table, spark_of_gc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@checked()
def read_committed(
    path: Path,
    *,
    version: int | None = None,
    as_of: str | dt.datetime | None = None,
    tag: str | None = None,
    columns: list[str] | str | None = None,
    filter: Condition | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read exactly one committed version as a Spark DataFrame; later commits change nothing in it.

    If gc has deleted its files, reading raises; a read never returns part of a version. Where tasks
    read with pyarrow (on a store that Spark's JVM does not reach) give `columns` and `filter` here:
    a later `select` or `where` reads all the same.

    Args:
        path: the table path, a local path or a URL.
        version: as for `Table.snapshot`.
        as_of: as for `Table.snapshot`.
        tag: as for `Table.snapshot`.
        columns: the columns to read, in this order; by default all.
        filter: which rows: SQL, a pyarrow expression or a Spark Column; by default all. Files that
            cannot hold a matching row are not handed to Spark.
        spark: the session; by default the active one, or a new one, with a warning in the log
            `manifestcommit.spark`.
        storage_options: what reaches the object store, as for s3fs, adlfs or gcsfs; by default the
            environment.

    Returns:
        A `pyspark.sql.DataFrame`, which carries the version: an overwrite with its rows conflicts
        with every commit since.

    Raises:
        TableNotFoundError: there is no table at the path.
        SnapshotExpiredError: the version was expired.
        VersionNotFoundError: there is no such version, tag or time, or clocks dispute it.
        UsageError: a column is not the table's, `filter` cannot be understood, Spark is not
            installed, or its session was stopped.

    Example:
        `read_committed("/lake/flights", columns=["flight"], filter="day = '2013-01-01'")`

    Spec: RD2, SP4, CF17.
    """
    return Table(path, storage_options).read(
        version=version, as_of=as_of, tag=tag, columns=columns, filter=filter, spark=spark
    )


@checked()
def resolve(
    path: Path, job_id: str, *, storage_options: Mapping[str, Any] | None = None
) -> Resolution:
    """Return what became of a job, from any process and at any time.

    Args:
        path: the table path, a local path or a URL.
        job_id: the job's id, as `OutcomeUnknownError`, `Job.id` and `Table.jobs` name it.
        storage_options: what reaches the object store; by default the environment.

    Returns:
        A text: "committed" (with `version`); "not_committed": nothing of it is in the table as of
        this call, and a process that still runs it may commit it later, unless it is fenced;
        "pending": it is prepared, or was published to others that commit at the same time, and any
        process may commit or abort it; "aborted"; or "forgotten": it began so long ago that the
        table no longer records what became of it.

    Raises:
        TableNotFoundError: there is no table at the path.
        UsageError: the id is not of a job of this table.

    Spec: CM23.
    """
    return Table(path, storage_options).resolve(job_id)


@checked()
def abort(
    path: Path,
    job_id: str,
    *,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Resolution:
    """Abort a prepared, published or recoverable job for good, from any process.

    The first decision counts: all callers see one result, and the call is idempotent. Nothing is
    deleted.

    Args:
        path: the table path, a local path or a URL.
        job_id: the job's id, as `Job.prepare` returned it and `Table.jobs` lists it.
        message: as for `write`, for the commit that aborts the job; by default none.
        metadata: as for `write`, likewise; by default none.
        storage_options: what reaches the object store; by default the environment.

    Returns:
        "aborted", or "committed" with `version` where a commit came first. `together` names the
        tables whose jobs were prepared together with this one, which share its fate.

    Raises:
        TableNotFoundError: there is no table at the path.
        UsageError: the id is not of a job of this table.
        OutcomeUnknownError: the store did not say what was decided: ask again.

    Spec: AB3, AB4.
    """
    session = TableContext(open_store(path, storage_options)).noting(message, metadata)
    outcome = give_up(session, job_id)
    beside = tables_beside(session, job_id)
    if outcome.kind in ("aborted", "fenced"):  # fenced: it can not commit any more, and never did
        return Resolution("aborted", together=beside)
    return Resolution("committed", committed_or_raise(outcome, session.store.url).version, beside)


@checked(spark=optional(spark_of_gc))
def gc(
    path: Path,
    *,
    grace: str | dt.timedelta = "24h",
    keep_versions: int = 1,
    keep_for: str | dt.timedelta = "7d",
    keep_keys: int = 10_000,
    foreign: bool = False,
    spark: SparkSession | Literal[True] | None = None,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> GcReport:
    """Expire old versions, and remove orphan files, which no version lists and no live job wrote.

    Nothing else is deleted, whatever runs beside it. The newest versions and tagged versions stay
    readable; orphan files are removed by the second run, a grace period later. One process needs
    eight bytes of memory for each live file.

    Args:
        path: the table path, a local path or a URL.
        grace: jobs that began longer ago are fenced (`JobFencedError`), so it must be longer than
            the longest job: a timedelta or a text such as "24h", which is the default. Prepared
            jobs have 7 days.
        keep_versions: how many of the newest versions stay readable; by default 1.
        keep_for: versions that were the newest one within this time stay readable; by default "7d".
        keep_keys: how many of the newest keys are remembered at least; by default 10,000. Dropped
            ones do not count.
        foreign: also delete files that something else wrote below the table path longer than
            `grace` ago and that no version lists, up to 10,000 in a run, and never hidden ones
            (`_SUCCESS`); by default False: they are skipped and reported.
        spark: a session, or True for the active one, whose tasks list, compare and delete; by
            default this process does.
        message: as for `write`; by default none.
        metadata: as for `write`; by default none.
        storage_options: what reaches the object store; by default the environment.

    Returns:
        What was deleted and what stays.

    Raises:
        TableNotFoundError: there is no table at the path.
        StoreFullError: the store has no room for the decision.
        StoreError: the store failed; run it again.
        UsageError: Spark is needed and not installed.

    Spec: GC1, GC5, GC9, GC13, GC18, GC19, IV7.
    """
    return Table(path, storage_options).gc(
        grace=grace,
        keep_versions=keep_versions,
        keep_for=keep_for,
        keep_keys=keep_keys,
        foreign=foreign,
        spark=spark,
        message=message,
        metadata=metadata,
    )


@checked(spark=optional(spark_of_gc))
def plan_gc(
    path: Path,
    *,
    grace: str | dt.timedelta = "24h",
    keep_versions: int = 1,
    keep_for: str | dt.timedelta = "7d",
    keep_keys: int = 10_000,
    foreign: bool = False,
    spark: SparkSession | Literal[True] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Listing | DataFrame:
    """List what `gc` would delete now, and what it would leave although the table does not know it.

    Each object comes with the reason. Nothing is written or deleted.

    Args:
        path: the table path, a local path or a URL.
        grace: as for `gc`.
        keep_versions: as for `gc`.
        keep_for: as for `gc`.
        keep_keys: as for `gc`.
        foreign: as for `gc`.
        spark: a session, or True for the active one, whose tasks list and compare; by default this
            process does.
        storage_options: what reaches the object store; by default the environment.

    Returns:
        The columns `name`, `bytes`, `reason` and `action` ("delete" or "leave"); with `spark`, a
        Spark DataFrame.

    Raises:
        TableNotFoundError: there is no table at the path.
        StoreError: the store failed; run it again.
        UsageError: Spark is needed and not installed.

    Spec: GC5, GC13.
    """
    return Table(path, storage_options).plan_gc(
        grace=grace,
        keep_versions=keep_versions,
        keep_for=keep_for,
        keep_keys=keep_keys,
        foreign=foreign,
        spark=spark,
    )
