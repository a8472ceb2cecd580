"""Puts a log of Spark's file sink that names a table's files: Spark's catalog reads it. Beside it
are two objects that stop mistakes: a file where a committer of Spark wants its folder, so that an
INSERT INTO fails, and one that is no Parquet file, so that who lists the folder instead of reading
the log gets an error and not an empty table. [EX10]"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from ..format import sink_log
from ..format.fields import (
    FLOATS,
    PRIMITIVES,
    Field,
    Schema,
    comment_of,
    has_collation,
    show_path,
    type_text,
    walk,
)
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext
from ..log.version_chain import Head, raise_if_expired
from ..scan.planning import entries_table
from ..store import ObjectInfo, Store
from . import file_columns
from .file_columns import check_ours, entries_since

_TYPES = {name: each.sql for name, each in PRIMITIVES.items() if each.sql}


def check_schema(schema: Schema) -> None:
    """UnsupportedTypeError or UsageError if Spark's catalog cannot have a column. [EX9]"""
    lacking = "tables of Parquet files in Spark's catalog cannot have on every version"
    file_columns.check_types(schema, _TYPES, lacking)
    for path, field in walk(schema.fields):
        name = show_path(path)
        if field.physical is not None:
            raise UsageError(
                f"column {name} has another name in the data files, since it was renamed or added "
                "again: Spark's catalog finds columns by the names in files, so the table cannot "
                "be exported to it"
            )
        if has_collation(field):
            raise UsageError(
                f"column {name} has a collation, which Spark's catalog would not apply to files: "
                "the table cannot be exported to it"
            )


def _options(schema: Schema) -> Iterable[tuple[str, str]]:
    """What Spark's scan needs so that no setting of a session changes rows, now or later."""
    floats = any(field.type in FLOATS for _, field in walk(schema.fields))
    options = sink_log.SCAN_OPTIONS | {"recursiveFileLookup": "true"}
    return (options | (sink_log.UNPRUNED | sink_log.TWO_ZEROS if floats else {})).items()


def _quoted_name(name: str) -> str:
    parts = name.split(".")
    if not all(map(str.strip, parts)):
        raise UsageError(
            f"name: {name!r} is no name of a table: expected one such as flights or lake.flights"
        )
    return ".".join(map(_identifier, parts))


def _column(field: Field) -> str:
    comment = comment_of(field)
    shown = f"{_identifier(field.name)} {type_text(field.type, _type_word, _identifier)}"
    return shown if comment is None else f"{shown} COMMENT {_text(comment)}"


def _type_word(word: str) -> str:
    return _TYPES.get(word, word.upper())


def _identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    """A text as Spark's SQL has it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


FOLDER = "_spark_catalog/"
# The greatest compacted batch that Spark reads by itself, whatever its settings: a streaming query
# that is pointed at the folder finds its own batches done, and adds no files.
LOG = f"{FOLDER}{sink_log.FOLDER}/999999999.compact"
GUARD = f"{FOLDER}_temporary"
NOT_A_TABLE = f"{FOLDER}not-a-table.parquet"
_SAYS = (
    b"This folder is read through the log in _spark_metadata, by Spark only. Without the log there "
    b"is no table here.\n"
)
# Spark that would find partitions in folders stops here: two columns that do not go together.
_NOT_BY_FOLDERS = ("option_recursiveFileLookup=is_missing/x", "values_of_partitions=are_in_files/x")
_HEADER = re.compile(
    rb'v1\n\{"manifestcommit":\{"table":"([0-9A-Za-z-]{1,100})","version":([1-9]\d{0,18})\},',
)


class _Shown(msgspec.Struct, frozen=True):
    """What the log says of itself: the table's id and version; empty and 0: it is another's."""

    table_id: str = ""
    version: int = 0


def check(ctx: TableContext, schema: Schema) -> None:
    """UsageError or UnsupportedTypeError if Spark's catalog cannot express or reach it. [EX9]"""
    _base(ctx.store)
    check_schema(schema)


def check_files(ctx: TableContext, entries: pa.Table, snapshot: Snapshot) -> None:
    """UsageError if Spark's catalog would not read one of these files as readers do. [EX9]"""
    _check_names(ctx.store, entries)
    file_columns.check_partition_columns(ctx, entries, snapshot, "Spark's catalog", by_spark=True)


def _check_names(store: Store, entries: pa.Table) -> None:
    for path in entries.column("path").to_pylist():
        if sink_log.is_skipped(path):
            raise UsageError(
                f"{store.url}/{path} has a name that Spark skips: the table cannot be "
                "exported to its catalog. Rewrite the file first, as by an overwrite"
            )


def check_owner(ctx: TableContext, snapshot: Snapshot) -> None:
    """UsageError if the log is another table's. One request. [EX9]"""
    check_ours(ctx.store, FOLDER, _shown(ctx.store), snapshot)


def location(store: Store) -> str:
    """The folder, as Spark's catalog is given it."""
    return f"{_base(store)}/{FOLDER.rstrip('/')}"


def _base(store: Store) -> str:
    base = sink_log.hadoop_url(store.url)
    if base is None:
        raise UsageError(
            f"Spark has no file system for {store.url}: the table cannot be exported to its "
            "catalog. Local disks, S3, Google Cloud Storage and Azure can"
        )
    return base


def exported_version(store: Store, _: int = 0) -> int | None:
    """The version that the log shows; None: there is no log. One request."""
    shown = _shown(store)
    return shown.version if shown is not None and shown.version else None


def _shown(store: Store) -> _Shown | None:
    try:
        found = _HEADER.match(store.get(LOG, 0, 256))
    except FileNotFoundError:
        return None
    return _Shown() if found is None else _Shown(found[1].decode(), int(found[2]))


def export(ctx: TableContext, head: Head) -> int:
    """Show this version, unless a later one is; returns the version that is shown. [EX10]"""
    shown = _shown(ctx.store)
    check_ours(ctx.store, FOLDER, shown, head.snapshot)
    if shown is not None and shown.version >= head.version:
        return shown.version
    _put(ctx, head, shown)
    return head.version


def _put(ctx: TableContext, head: Head, shown: _Shown | None) -> None:
    store, snapshot = ctx.store, head.snapshot
    check(ctx, snapshot.schema)
    with raise_if_expired(store, snapshot.version):
        entries = entries_table(ctx, snapshot, in_order=False)
    _check_names(store, entries)
    if snapshot.partition_by and file_columns.of_others(entries).num_rows:
        shown_version = 0 if shown is None else shown.version
        check_files(ctx, entries_since(ctx, head, shown_version, snapshot, entries), snapshot)
    data = "".join(_lines(_base(store), snapshot, entries)).encode()
    if shown is None:  # also after an INSERT OVERWRITE, which empties the folder
        store.put(NOT_A_TABLE, _SAYS)
        store.put(GUARD, _SAYS)
    store.put(LOG, data)


def _lines(base: str, snapshot: Snapshot, entries: pa.Table) -> Iterator[str]:
    """The log: a file without bytes that says what it shows, and the files that have rows."""
    files = entries.filter(pc.greater(entries.column("rows"), 0))
    names = [GUARD, *(f"{FOLDER}{name}" for name in _NOT_BY_FOLDERS)]
    listed = [(name, 0) for name in names]  # Spark opens no file without bytes
    sizes = zip(files.column("path").to_pylist(), files.column("bytes").to_pylist(), strict=True)
    first = f'"manifestcommit":{{"table":"{snapshot.table_id}","version":{snapshot.version}}},'
    return sink_log.lines(base, [*listed, *sizes], first=first)


def create_table_sql(ctx: TableContext, schema: Schema, name: str) -> str:
    """The statement that makes a table in Spark's catalog, to read the export through. [EX10]"""
    quoted = _quoted_name(name)
    check(ctx, schema)
    columns = ",\n".join(f"  {_column(field)}" for field in schema.fields)
    options = ", ".join(f"{_text(option)} {_text(value)}" for option, value in _options(schema))
    return (
        f"CREATE TABLE {quoted} (\n{columns}\n)\nUSING parquet\n"
        f"OPTIONS ({options})\nLOCATION {_text(location(ctx.store))}"
    )


def unreached(
    ctx: TableContext, decided: Snapshot, cut_s: float, is_dead: Callable[[int], bool]
) -> Iterator[tuple[ObjectInfo, str]]:
    """The log, where the version that it shows is dead. What makes its readers fail stays. [EX4]"""
    for info in ctx.store.list(f"{FOLDER}{sink_log.FOLDER}/"):
        if info.name != LOG or not 0 < info.modified <= cut_s:
            continue
        shown = _shown(ctx.store)
        if shown is not None and shown.table_id == decided.table_id and is_dead(shown.version):
            yield info, f"version {shown.version}, which Spark's catalog shows, is expired"
