"""What is asked of a table in one call: `create_table`, `read_committed`, `gc` and `commit`. [RD2]
[GC1] [AB3]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..commits.two_phase import commit_prepared
from ..errors import TableNotFoundError, UsageError
from ..format import values
from ..format.fields import Schema
from ..job import Path
from ..log.table_context import TableContext
from ..operations import alter
from ..operations.gc import GcReport
from ..runtime.outcome import Outcome, committed_or_raise
from ..runtime.validation import RULES, checked, mapping, optional, within
from ..store import open_store
from .reading import Condition, Moment, Names
from .table import Age, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@checked(
    properties=optional(RULES["properties"]),
    constraints=optional(mapping("a mapping of names to conditions", "{'positive': 'amount > 0'}")),
    rank=optional(within(-(2**31), 2**31 - 1)),
    sources=optional(mapping("a mapping of sources to where they begin", "{'orders': 0}")),
)
def create_table(
    path: Path,
    schema: pa.Schema | StructType,
    *,
    partition_by: list[str] | str | None = None,
    properties: Mapping[str, str] | None = None,
    sources: Mapping[str, int | str | None] | None = None,
    constraints: Mapping[str, str] | None = None,
    rank: int | None = None,
    exist_ok: bool = False,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """Create an empty table, or open the one that is there already.

    At the head of a job that runs again and again, give `exist_ok=True`: by default the call fails
    once a column was added to the table. Other arguments and errors are as for `write`.

    Args:
        path: the table path, a local path or a URL.
        schema: its columns: a pyarrow schema or a Spark StructType.
        partition_by: the columns that partition it, or transforms such as "day(ts)", in this order;
            by default none.
        properties: name -> value, as for `Table.set_properties`; by default none.
        sources: source -> the position where it begins, such as {"orders": 0}: only a range that
            starts there can be its first. Of any other source, and by default of all, the first
            range to be committed says where it begins. In a table that is there already, sources
            that it does not know are declared by a commit.
        constraints: name -> condition, as for `Table.add_constraint`; by default none. A table that
            is there already has to have them.
        rank: which table decides a commit of several: the one of the lowest rank, from -2147483648
            to 2147483647. Who reads any of the others has to be able to read that one: give the
            lowest to the table that all readers may read. It cannot be changed later. By default
            0; of tables of one rank the lowest id decides, which is chance.
        exist_ok: whether a table that is there may have more columns, in any order, and wider types
            than `schema`, as later changes give it. By default it has exactly these columns.

    Returns:
        The table.

    Raises:
        SchemaMismatchError: the table that is there has other columns or another partitioning; with
            `exist_ok`, it lacks a column of `schema` or has a type that cannot hold its values.
        UsageError: the table that is there knows one of the sources with another beginning, has
            another rank or lacks a constraint, or a condition cannot be evaluated.

    Spec: CK1, CM13, MT2, WM7.
    """
    table = Table(path, storage_options)
    alter.create(
        table._ctx.noting(message, metadata),
        _schema_of(schema),
        [partition_by] if isinstance(partition_by, str) else partition_by or [],
        properties or {},
        sources,
        rank,
        exist_ok=exist_ok,
        constraints=constraints,
    )
    return table


def open_companion(
    url: str, schema: pa.Schema | Schema, beside: Table, storage_options: Mapping[str, Any] | None
) -> Table:
    """The table at this path, made where there is none, of a rank by which the one that it lies
    beside decides joint commits of the two. [MT2]"""
    table = Table(url, storage_options)
    try:
        table._ctx.open()
    except TableNotFoundError:
        try:
            decides = beside._ctx.open().snapshot.rank
        except TableNotFoundError:
            decides = 0
        rank = min(decides + 1, 2**31 - 1)
        create_table(url, schema, rank=rank, exist_ok=True, storage_options=storage_options)
    return table


def _schema_of(schema: Any) -> Schema:
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, pa.Schema):
        return values.from_arrow(schema)
    if hasattr(schema, "jsonValue"):
        from ..format.fields import from_spark

        return from_spark(schema.jsonValue())
    expected = "schema is a pyarrow.Schema or a Spark StructType"
    raise UsageError(f"{expected}, not a {type(schema).__qualname__}")


@checked()
def read_committed(
    path: Path,
    *,
    version: int | None = None,
    as_of: Moment | None = None,
    tag: str | None = None,
    columns: Names | None = None,
    filter: Condition | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read exactly one committed version as a Spark DataFrame; later commits change nothing in it.

    If gc has deleted its files, reading raises; a read never returns part of a version. Where tasks
    read with pyarrow (on a store that Spark's JVM does not reach) give `columns` and `filter` here:
    a later `select` or `where` reads all the same. Other arguments are as for `write`.

    Args:
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
    grace: Age | None = None,
    keep_versions: int | None = None,
    keep_for: Age | None = None,
    keep_keys: int | None = None,
    keep_keys_for: Age | None = None,
    foreign: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> GcReport:
    """Expire old versions, and remove orphan files, which no version lists and no live job wrote.

    Nothing else is deleted, whatever runs beside it. The newest versions and tagged versions stay
    readable; orphan files are removed by the second run, a grace period later. One process needs
    eight bytes of memory for each live file. Other arguments are as for `write`.

    Args:
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
    )


@checked()
def commit(path: Path, job_id: str, *, storage_options: Mapping[str, Any] | None = None) -> Outcome:
    """Commit a prepared or published job: the second of two phases, from any process.

    The job is committed once; all callers see one result. After a conflict, and where a range does
    not start at the watermark, it is still prepared: commit it again when that is resolved, or
    abort it. Other arguments and errors are as for `write`.

    Args:
        job_id: the job's id, as `Job.prepare` returned it and `Table.jobs` lists it.

    Returns:
        The outcome.

    Raises:
        JobAbortedError: the job was aborted.
        TableNotFoundError: there is no table at the path.
        UsageError: the id is not of a job of this table.

    Spec: AB3, CM10.
    """
    ctx = TableContext(open_store(path, storage_options))
    return committed_or_raise(commit_prepared(ctx, job_id), ctx.store.url)
