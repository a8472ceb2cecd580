"""Making an empty table. [CM13]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..arguments import RULES, checked
from ..errors import TableNotFoundError, UsageError
from ..format import arrow_schema
from ..format.fields import Schema
from ..job import Path
from ..operations import alter
from ..runtime.validation import mapping, optional, within
from .table import Table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# what tables beside a table are called, behind its path: of loaded files, and of refused rows
COMPANIONS = FILES, REFUSED = ".files", ".refused"


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
        partition_by: the columns that partition it, in this order; by default none.
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


def companion_url(url: str, suffix: str, remedy: str) -> str:
    """The path of a table beside another one; UsageError where that is the root of a bucket."""
    if "/" not in url.partition("://")[2].strip("/") and not url.startswith("file:"):
        raise UsageError(
            f"{url} is the root of a bucket, beside which is no place for the table *{suffix}; "
            f"nothing was done. {remedy}"
        )
    return url + suffix


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
        return arrow_schema.from_arrow(schema, itertools.count(1).__next__)
    if hasattr(schema, "jsonValue"):
        from ..format.spark_json import from_spark

        return from_spark(schema.jsonValue())
    raise UsageError(
        f"schema is a pyarrow.Schema or a Spark StructType, not a {type(schema).__qualname__}"
    )
