"""What is asked of a table in one call: `read_committed` and `gc`. [RD2] [GC1]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..arguments import checked
from ..job import Path
from ..operations.gc import GcReport
from .conditions import Condition
from .table import Table

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
        version: the version's number; by default the newest. Give at most one of `version`,
            `as_of` and `tag`.
        as_of: a time at which the version was the newest one: a datetime or an ISO 8601 text,
            without a zone in UTC. By default none.
        tag: a tag of the version; by default none.
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
def gc(
    path: Path,
    *,
    grace: str | dt.timedelta | None = None,
    keep_versions: int | None = None,
    keep_for: str | dt.timedelta | None = None,
    keep_keys: int | None = None,
    keep_keys_for: str | dt.timedelta | None = None,
    foreign: bool = False,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> GcReport:
    """Expire old versions, and remove orphan files, which no version lists and no live job wrote.

    Nothing else is deleted, whatever runs beside it. The newest versions and tagged versions stay
    readable; orphan files are removed by the second run, a grace period later. One process needs
    eight bytes of memory for each live file. Other arguments are as for `write`.

    Args:
        path: the table path, a local path or a URL.
        grace: jobs that began longer ago are fenced (`JobFencedError`), so it must be longer than
            the longest job: a timedelta or a text such as "24h". Prepared jobs have 7 days. By
            default the table's property `gc.grace`, or else "24h".
        keep_versions: how many of the newest versions stay readable; by default `gc.keep-versions`,
            or else 1.
        keep_for: versions that were the newest one within this time stay readable; by default
            `gc.keep-for`, or else "7d".
        keep_keys: how many of the newest keys are remembered at least, dropped ones not counted; by
            default `gc.keep-keys`, or else 10,000.
        keep_keys_for: keys that were recorded within this time are remembered, too, however many;
            by default `gc.keep-keys-for`, or else "0s": the number alone decides.
        foreign: also delete files that something else wrote below the table path longer than
            `grace` ago and that no version lists, up to 10,000 in a run, and never hidden ones
            (`_SUCCESS`); by default False: they are skipped and reported.

    Returns:
        What was deleted and what stays.

    Raises:
        TableNotFoundError: there is no table at the path.
        StoreFullError: the store has no room for the decision.
        StoreError: the store failed; run it again.
        UsageError: a duration or a count is invalid.

    Spec: GC1, GC5, GC9, GC18, GC19, IV7.
    """
    return Table(path, storage_options).gc(
        grace=grace,
        keep_versions=keep_versions,
        keep_for=keep_for,
        keep_keys=keep_keys,
        keep_keys_for=keep_keys_for,
        foreign=foreign,
        message=message,
        metadata=metadata,
    )
