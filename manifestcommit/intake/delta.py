"""The files, columns and partitions of a Delta table's newest version. [AF4]

The log is read by the package deltalake, from a copy: so the table's own store, with its options,
is all that is needed.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from ..errors import NotATableError, UsageError
from ..export.delta_export import is_of_table
from ..format.fields import Field, Schema, StructType, check_schema, walk
from ..format.partitioning import check_partition_by
from ..format.spark_json import from_spark
from ..format.values import from_array
from ..log.table_context import TableContext
from ..operations.adopt import ListedFile, ListedTable
from ..store import Store
from .columns import deltalake, parsed

_LOG = "_delta_log/"
_VERSION = re.compile(r"_delta_log/(\d{20})\.(?:json|checkpoint\..+)", re.ASCII)
# Features of readers that change nothing of which rows a file has, or of how its columns are found.
_READ = frozenset({"columnMapping", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
_MAPPED = "delta.columnMapping."


def listed(ctx: TableContext, known: Schema | None) -> ListedTable:
    """What the newest version has; UsageError for what this library cannot read as it is. [AF4]

    known: the columns of a table whose adoption was not completed; they keep their ids.
    """
    reader = deltalake()
    with tempfile.TemporaryDirectory(prefix="manifestcommit-") as folder:
        _copy_log(ctx, Path(folder))
        with parsed(f"the Delta log {ctx.store.url}/{_LOG}"):
            table = reader.DeltaTable(folder)
            actions = pa.table(table.get_add_actions(flatten=True))
            struct = json.loads(table.schema().to_json())
            metadata, protocol = table.metadata(), table.protocol()
            version = table.version()
    _check_features(ctx, protocol.reader_features or [], metadata.configuration)
    schema = _schema(struct, known, ctx.new_field_id)
    names = list(metadata.partition_columns)
    try:
        by = check_partition_by(schema, names)
    except UsageError as error:
        raise UsageError(
            f"{ctx.store.url} is partitioned by a column that cannot partition a table here: "
            f"{error} Nothing was adopted; write the rows to a new table"
        ) from None
    with parsed(f"the files in the Delta log {ctx.store.url}/{_LOG}"):
        files = _files(ctx, actions, schema, by, names)
    return ListedTable(schema=schema, partition_by=by, files=files, version=_in_words(version))


def current_version(store: Store, table_id: str) -> str | None:
    """The newest version of the log, in words; None: there is no log, or it is an export of this
    table. At most two requests. [AF4]"""
    found = [match for info in store.list(_LOG) if (match := _VERSION.fullmatch(info.name))]
    newest = max((int(match[1]) for match in found), default=None)
    if newest is None or is_of_table(store, newest, table_id):
        return None
    return _in_words(newest)


def _in_words(version: int) -> str:
    return f"version {version} of the Delta table"


def _copy_log(ctx: TableContext, folder: Path) -> None:
    (folder / _LOG).mkdir()
    found = False
    for info in ctx.store.list(_LOG):
        name = info.name.removeprefix(_LOG)
        if name.startswith("_sidecars/") or "/" not in name:
            found = True
            (folder / _LOG / name).parent.mkdir(exist_ok=True)
            (folder / _LOG / name).write_bytes(ctx.store.get(info.name))
    if not found:
        raise NotATableError(f"{ctx.store.url} holds no Delta log: there is no {_LOG}")


def _check_features(
    ctx: TableContext, features: list[str], configuration: Mapping[str, str | None]
) -> None:
    if unknown := sorted(set(features) - _READ):
        raise UsageError(
            f"{ctx.store.url}: its Delta log requires {', '.join(unknown)}, which a table here "
            "cannot express: with deletion vectors, for one, files hold rows that are deleted. "
            "Nothing was adopted; drop the feature there first, or write the rows to a new table"
        )
    if configuration.get(f"{_MAPPED}mode") == "id":
        raise UsageError(
            f"{ctx.store.url}: its Delta log maps columns by ids, whatever files call them. "
            "Nothing was adopted; write the rows to a new table"
        )


def _schema(struct: dict[str, Any], known: Schema | None, new_id: Callable[[], int]) -> Schema:
    """The columns, with the ids and the names in files of a column mapping."""
    fields = tuple(map(_mapped, from_spark(struct, new_id).fields))
    schema = Schema(fields=fields)
    if known is not None and [field.name for field in known.fields] == [f.name for f in fields]:
        return known
    check_schema(schema)
    return schema


def _mapped(field: Field) -> Field:
    field = _with_ids(field)
    own = {key: value for key, value in field.metadata.items() if not key.startswith("delta.")}
    physical = field.metadata.get(f"{_MAPPED}physicalName", field.name)
    return msgspec.structs.replace(
        field, physical=None if physical == field.name else physical, metadata=own, nullable=True
    )


def _with_ids(field: Field) -> Field:
    id = field.metadata.get(f"{_MAPPED}id", field.id)
    kind = field.type
    if isinstance(kind, StructType):
        kind = StructType(fields=tuple(map(_member, kind.fields)))
    elif not isinstance(kind, str) and any(
        each.metadata.get(f"{_MAPPED}physicalName", each.name) != each.name
        for _, each in walk((field,))
        if each is not field
    ):
        raise _renamed(field.name)
    return msgspec.structs.replace(field, id=id, type=kind)


def _member(field: Field) -> Field:
    if field.metadata.get(f"{_MAPPED}physicalName", field.name) != field.name:
        raise _renamed(field.name)
    return msgspec.structs.replace(_mapped(field), physical=None)


def _renamed(name: str) -> UsageError:
    return UsageError(
        f"the member {name!r} of a struct has another name in the files. Nothing was adopted; "
        "write the rows to a new table"
    )


def _files(
    ctx: TableContext, actions: pa.Table, schema: Schema, by: tuple[int, ...], names: list[str]
) -> tuple[ListedFile, ...]:
    fields = {field.id: field for field in schema.fields}
    columns = []
    for id, name in zip(by, names, strict=True):
        field = fields[id]
        found = next(
            actions.column(each)
            for each in (f"partition.{name}", f"partition.{field.file_name}")
            if each in actions.column_names
        )
        columns.append(from_array(found.combine_chunks(), field.type))
    values = zip(*columns, strict=True) if columns else [()] * actions.num_rows
    made = []
    for path, partition in zip(actions.column("path").to_pylist(), values, strict=True):
        if "://" in path or path.startswith("/"):
            raise UsageError(
                f"{ctx.store.url}: its Delta log lists {path!r}, which is outside of the "
                "table. Nothing was adopted; write the rows to a new table"
            )
        made.append(ListedFile(path=unquote(path), partition=tuple(partition)))
    return tuple(made)
