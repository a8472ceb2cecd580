"""Files that something else wrote, checked before a commit lists them. [AF1]

Not here: files that this package writes (engine.files), who may add which path (engine.job).
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core import values
from ..core.arrow import FIELD_ID, SPARK_SCHEMA, from_arrow, is_list, plain_type
from ..core.conform import Conformer
from ..core.evolution import can_widen
from ..core.manifest import ColumnStats, Entry, WireValue
from ..core.partition import NULL_FOLDER, parse_static
from ..core.paths import UnsafePathError, check_path
from ..core.schema import INTERVALS, ArrayType, Field, MapType, Schema, StructType, relaxed, show_path, type_text, walk
from ..core.spark_types import from_spark
from ..errors import SchemaMismatchError, StoreError, UnsupportedTypeError, UsageError
from ..store.base import ObjectInfo, Store
from .footer import column_stats, parquet_columns, tracked_leaves


def inspect_file(
    store: Store,
    path: str,
    *,
    schema: Schema,
    partition_by: tuple[int, ...],
    job: str,
    partition: tuple[WireValue, ...] | None = None,
    bounds_columns: int = 32,
    outside: bool = False,
) -> Entry:
    """The entry of a Parquet file that is there already, once it surely fits the table; an error that names it otherwise. [AF1]

    The file's partition columns must be constant, and equal to `partition` (wire values) where that is given. A file that lacks
    them is refused, since readers look for them in files only [DF4]; with `outside` their values come from `partition` or else
    from the hive-style folders of the path. NaNs and the digest stay unknown. One or two ranged reads; a column is read only
    where its statistics do not tell whether it is constant or free of nulls.
    """
    try:
        check_path(path)
    except UnsafePathError as error:
        raise UsageError(str(error)) from error
    name = f"{store.url}/{path}"
    try:
        with store.open_input(path) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            parquet = pq.ParquetFile(_Input(stream, name), coerce_int96_timestamp_unit="us")
            file = _Candidate(name, parquet, schema, partition_by)
            file.check_columns()
            values_of = tuple(file.partition_value(index, path, partition, outside) for index in range(len(partition_by)))
            return Entry(path=path, partition=values_of, rows=file.rows, bytes=size, job=job, columns=file.column_stats(bounds_columns))
    except FileNotFoundError as error:
        raise UsageError(f"There is no file {name}. Nothing was added.") from error
    except (pa.ArrowException, OSError) as error:  # Arrow calls a damaged footer an OSError
        raise UsageError(f"{name} cannot be read as a Parquet file: {error}. Nothing was added.") from error


def footer_schema(store: Store, path: str) -> pa.Schema:
    """The columns of a Parquet file that is there already, for a table that has none yet. One or two ranged reads. [AF1]"""
    try:
        with store.open_input(path) as stream:
            file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
            old = {column.path for column in file.schema if column.physical_type == "INT96"}
            instants = [field.with_type(pa.timestamp("us", "UTC")) if field.name in old else field for field in file.schema_arrow]
            return pa.schema(instants)  # INT96, as Spark writes it, is always an instant
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UsageError(f"{store.url}/{path} cannot be read as a Parquet file: {error}. Nothing was added.") from error


_FAR = 1 << 30  # field ids from here on are in no file by chance


class UnreadableFileError(UsageError):
    """A file that is no Parquet file, or a damaged one. [AF1]"""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of itself, for a table that is yet to be made. schema: its columns, with the ids that they shall have there;
    inside: the one value of each partition column that it holds. [AF2]"""

    path: str
    rows: int
    bytes: int
    schema: Schema
    columns: dict[int, ColumnStats]
    inside: dict[str, WireValue]


def read_facts(
    store: Store, info: ObjectInfo, *, columns_of: Callable[[pq.ParquetFile], Schema], partition_names: Sequence[str], bounds_columns: int
) -> FileFacts:
    """What a Parquet file holds, where every reader of a table can read it; else an error that names it. One or two ranged reads. [AF2]

    columns_of: its schema, by `own_columns`, under ids of the caller's. UnreadableFileError where it is no Parquet file. A partition column
    that is in the file must be constant there; it is read only where its statistics do not tell.
    """
    name = f"{store.url}/{info.name}"
    try:
        with store.open_input(info.name) as stream:
            size = stream.seek(0, os.SEEK_END)
            if size != info.size_bytes:
                raise UsageError(f"{name} was replaced while it was looked at. Nothing was adopted; run it again when no one writes there.")
            stream.seek(0)
            parquet = pq.ParquetFile(_Input(stream, name), coerce_int96_timestamp_unit="us")
            try:
                schema = columns_of(parquet)
            except SchemaMismatchError as error:  # a type that no table has, among others
                raise type(error)(f"{name}: {error} Nothing was adopted.") from error
            file = _Candidate(name, parquet, schema, ())
            inside = {
                field.name: file.only_value(field)
                for field in schema.fields
                if field.name in partition_names and file.rows and isinstance(field.type, str)
            }
            stats = file.column_stats(bounds_columns)
            return FileFacts(path=info.name, rows=file.rows, bytes=size, schema=schema, columns=stats, inside=inside)
    except FileNotFoundError as error:
        raise UsageError(f"{name} was removed while it was looked at. Nothing was adopted; run it again.") from error
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFileError(f"{name} cannot be read as a Parquet file: {error}") from error


def own_columns(file: pq.ParquetFile) -> Schema:
    """The columns of a file, nullable throughout: as Spark's own schema in the footer says where the file bears that out, else as Parquet
    does; SchemaMismatchError where not every reader could take them. INT96 is an instant, as Spark writes it. [AF2] [SC2]"""
    ids = itertools.count(_FAR).__next__
    found: pa.Schema = file.schema_arrow
    declared = _declared(file, found.names)
    fields = []
    for column in found:
        plain = pa.schema([column])
        spark = relaxed(declared[column.name]) if column.name in declared else None
        # A variant that is stored otherwise than in two members is no struct of what it is stored in: it is refused below.
        if spark is None or not (_bears_out(file, spark) or any(field.type == "variant" for _, field in walk(spark.fields))):
            spark = relaxed(from_arrow(plain, ids))
        fields.append(spark.fields[0])
    leaves = list(parquet_columns(found))
    if len(leaves) != len(file.schema):
        raise SchemaMismatchError("it has columns that Arrow cannot tell apart.")
    instants = frozenset(leaf.path for leaf in leaves if file.schema.column(leaf.position).physical_type == "INT96")
    schema = Schema(fields=tuple(_with_instants(field, (field.name,), instants) for field in fields))
    _Candidate("a file like this", file, schema, ()).check_columns()
    return schema


def _declared(file: pq.ParquetFile, names: Sequence[str]) -> dict[str, Schema]:
    """By name the columns that Spark's own schema in the footer declares, of those that the file has."""
    try:
        members = json.loads((file.metadata.metadata or {}).get(SPARK_SCHEMA, b"{}"))["fields"]
        given = {member["name"]: member for member in members}
    except (ValueError, KeyError, TypeError):
        return {}
    ids = itertools.count(_FAR).__next__
    return {name: from_spark({"type": "struct", "fields": [given[name]]}, ids) for name in names if name in given}


def _bears_out(file: pq.ParquetFile, declared: Schema) -> bool:
    """Whether the file stores what it declares: who rewrites a file with another tool may leave an old declaration in it."""
    try:
        _Candidate("", file, declared, ()).check_stored()
    except SchemaMismatchError:
        return False
    return True


def _with_instants(field: Field, path: tuple[str, ...], instants: frozenset[tuple[str, ...]]) -> Field:
    kind = field.type
    match kind:
        case StructType():
            kind = StructType(fields=tuple(_with_instants(each, (*path, each.name), instants) for each in kind.fields))
        case ArrayType():
            kind = ArrayType(element=_with_instants(kind.element, (*path, "element"), instants))
        case MapType():
            key, value = (_with_instants(each, (*path, each.name), instants) for each in (kind.key, kind.value))
            kind = MapType(key=key, value=value)
        case _:
            kind = "timestamp" if path in instants else kind
    return msgspec.structs.replace(field, type=kind)


class _Input:
    """The file for Arrow, whose own errors are about its content while those of the stream below are the store's. [ST5]"""

    closed = False

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream, self._name = stream, name

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except OSError as error:
            raise StoreError(f"{self._name} could not be read: {error}. Nothing was added.") from error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing is written."""

    def close(self) -> None:
        """Its opener closes the stream."""


class _Candidate:
    """An opened file beside the table that it shall join."""

    def __init__(self, name: str, file: Any, schema: Schema, partition_by: tuple[int, ...]) -> None:
        self._name, self._file, self._schema = name, file, schema
        self._metadata = file.metadata
        self._found: pa.Schema = file.schema_arrow
        self._inside = {field.name: field for field in self._found}
        by_id = {field.id: field for field in schema.fields}
        self._partition_fields = tuple(by_id[id] for id in partition_by)
        self._int96 = self._int96_paths()
        self.rows: int = self._metadata.num_rows

    def check_columns(self) -> None:
        """Every column is the table's, under its name inside files and with a type that readers take for the table's. [AF1]"""
        if len(self._inside) != len(self._found):
            raise SchemaMismatchError(f"{self._name} has two columns of one name. Nothing was added; rewrite the file.")
        self._check_members(self._found, self._schema.fields, ())
        for field in self._schema.fields:
            if field.file_name in self._inside:
                self._check_nulls(field, self._inside[field.file_name])

    def check_stored(self) -> None:
        """The columns of the schema, all of which are in the file, have types there that readers take for the schema's. [AF2]"""
        for field in self._schema.fields:
            self._check_member(self._inside[field.file_name], field, (field.name,))

    def column_stats(self, limit: int) -> dict[int, ColumnStats]:
        """What the footer says; another writer may have cut its texts, so that text bounds count as cut. [OB7]"""
        leaves = tracked_leaves(self._schema, self._found, limit)
        found = column_stats(self._metadata, leaves, None)
        for leaf in leaves:
            stats = found.get(leaf.id)
            if stats is not None and leaf.type in ("string", "binary") and stats.min != stats.max:
                found[leaf.id] = msgspec.structs.replace(stats, min_cut=stats.min is not None, max_cut=stats.max is not None)
        return found

    def partition_value(self, index: int, path: str, given: tuple[WireValue, ...] | None, outside: bool) -> WireValue:
        """The one value of the partition column in this file. [AF1]"""
        field = self._partition_fields[index]
        if field.file_name in self._inside:
            if not self.rows:
                return given[index] if given else None  # whatever is said of no rows is true
            value = self.only_value(field)
            if given is not None and value != given[index]:
                raise self._mismatch((field.file_name,), f"holds {value!r} where the partition's value is {given[index]!r}")
            return value
        if not outside:
            raise self._mismatch((field.file_name,), "partitions the table and is not in the file, where readers look for it")
        return given[index] if given is not None else self._from_folder(field, path)

    def _int96_paths(self) -> frozenset[tuple[str, ...]]:
        columns = list(parquet_columns(self._found))
        if len(columns) != self._metadata.num_columns:  # positions would be wrong
            raise SchemaMismatchError(f"{self._name} has columns that Arrow cannot tell apart. Nothing was added; rewrite it.")
        parquet = self._metadata.schema
        return frozenset(column.path for column in columns if parquet.column(column.position).physical_type == "INT96")

    def _check_members(self, found: Iterable[pa.Field], wanted: tuple[Field, ...], parent: tuple[str, ...]) -> None:
        by_name = {field.file_name: field for field in wanted}
        by_id = {field.id: field for field in wanted}
        seen = set()
        for member in found:
            path = (*parent, member.name)
            bearer = by_id.get(_field_id(member) or 0)
            if bearer is not None and bearer.file_name != member.name:
                raise self._mismatch(path, f"carries the field id of the table's {show_path((*parent, bearer.name))}")
            if member.name not in by_name:
                raise self._mismatch(path, f"is not the table's; its files have {', '.join(map(repr, list(by_name)[:20]))}")
            self._check_member(member, by_name[member.name], path)
            seen.add(member.name)
        for name, field in by_name.items():
            if name not in seen and not field.nullable and field not in self._partition_fields:
                raise self._mismatch((*parent, name), "is missing and may not be null")

    def _check_member(self, found: pa.Field, wanted: Field, path: tuple[str, ...]) -> None:
        type = plain_type(found.type)
        match wanted.type:
            case StructType() if pa.types.is_struct(type):
                self._check_members(type, wanted.type.fields, path)
            case ArrayType() if is_list(type):
                self._check_member(type.value_field, wanted.type.element, (*path, "element"))
            case MapType() if pa.types.is_map(type):
                self._check_member(type.key_field, wanted.type.key, (*path, "key"))
                self._check_member(type.item_field, wanted.type.value, (*path, "value"))
            case str() if self._reads_as(type, wanted.type, path):
                pass
            case _:
                text = type_text(wanted.type)
                raise self._mismatch(path, f"has the type {found.type}, which not every reader can take for the table's {text}")

    def _reads_as(self, type: pa.DataType, wanted: str, path: tuple[str, ...]) -> bool:
        """True if every reader of the table, Spark's among them, gets the table's type from what this file stores."""
        if wanted in INTERVALS and type in (pa.int64(), pa.duration("us")):
            # Both are the same plain numbers in the file; whether they are whole hours, say, only Spark's schema there tells.
            return bool(self._spark_type(path) == wanted) or (type != pa.int64() and wanted == "interval day to second")
        if wanted == "variant":
            return _is_variant_storage(type)
        if path in self._int96:
            return wanted == "timestamp"
        if pa.types.is_timestamp(type) and type.unit not in ("ms", "us"):
            return False
        if pa.types.is_duration(type) or pa.types.is_float16(type):
            return False
        try:
            found = from_arrow(pa.schema([pa.field("column", type)]), lambda: 1).fields[0].type
        except UnsupportedTypeError:
            return False
        return found == wanted or can_widen(found, wanted)

    def _spark_type(self, path: tuple[str, ...]) -> Any:
        """What Spark's own schema in the footer says of a top-level column."""
        try:
            fields = json.loads((self._metadata.metadata or {}).get(SPARK_SCHEMA, b"{}"))["fields"]
            return next(field["type"] for field in fields if (field["name"],) == path)
        except (ValueError, KeyError, TypeError, StopIteration):
            return None

    def _check_nulls(self, field: Field, found: pa.Field) -> None:
        if not _may_break_promise(found, field):
            return
        if isinstance(field.type, str) and field.type != "variant":
            stats = self._stats(field)
            if stats.nulls:
                raise self._mismatch((field.file_name,), f"has {stats.nulls} nulls and may not be null")
            if stats.nulls == 0:
                return
        for _ in self._read(field):
            pass  # reading checks

    def _stats(self, field: Field) -> ColumnStats:
        leaves = tracked_leaves(Schema(fields=(field,)), self._found, 1)
        return column_stats(self._metadata, leaves, None).get(field.id, ColumnStats())

    def only_value(self, field: Field) -> WireValue:
        """The only value in a column that partitions the table; from statistics if they tell, else from the column. [AF1]"""
        stats = self._stats(field)
        if stats.nulls == self.rows:
            return None
        if stats.nulls == 0 and stats.min is not None and stats.min == stats.max and not stats.min_cut:
            return stats.min
        found: set[WireValue] = set()
        for array in self._read(msgspec.structs.replace(field, nullable=True)):
            found.update(values.from_array(pc.unique(array), field.type))
            if len(found) > 1:
                shown = " and ".join(repr(value) for value in list(found)[:2])
                raise self._mismatch((field.file_name,), f"partitions the table and has several values, {shown} among them")
        return found.pop()

    def _read(self, field: Field) -> Iterator[pa.Array]:
        """The column as the table would hold it; SchemaMismatchError for a null that it may not have."""
        name = field.file_name
        conformer = Conformer(Schema(fields=(msgspec.structs.replace(field, name=name, physical=None),)))
        for batch in self._file.iter_batches(columns=[name]):
            array = batch.column(name)
            if (name,) in self._int96:
                array = array.cast(pa.timestamp("us", "UTC"))
            try:
                yield conformer.conform(pa.RecordBatch.from_arrays([array], names=[name])).column(0)
            except SchemaMismatchError as error:
                raise SchemaMismatchError(f"{self._name}: {error} Nothing was added.") from error

    def _from_folder(self, field: Field, path: str) -> WireValue:
        components = (component.partition("=") for component in path.split("/")[:-1])
        texts = {text for name, equals, text in components if equals and unquote(name) in (field.file_name, field.name)}
        if len(texts) != 1:
            raise self._mismatch((field.file_name,), "partitions the table, but neither the file nor its folders tell its value")
        text = texts.pop()
        if text == NULL_FOLDER:
            return None
        try:
            return parse_static(self._schema, (field.id,), {field.name: unquote(text, errors="strict")})[field.id]
        except ValueError as error:
            what = f"has the folder value {text!r}, which is no {type_text(field.type)}"
            raise self._mismatch((field.file_name,), what) from error

    def _mismatch(self, path: tuple[str, ...], what: str) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"{self._name}: column {show_path(path)} {what}. Nothing was added. Rewrite the file to fit, or write its rows through a job."
        )


def _may_break_promise(found: pa.Field, wanted: Field) -> bool:
    """True if the file's own schema allows a null where the table's does not."""
    if found.nullable and not wanted.nullable:
        return True
    type = plain_type(found.type)
    match wanted.type:
        case StructType():
            inside = {child.name: child for child in type}
            return any(_may_break_promise(inside[field.file_name], field) for field in wanted.type.fields if field.file_name in inside)
        case ArrayType():
            return _may_break_promise(type.value_field, wanted.type.element)
        case MapType():
            return _may_break_promise(type.item_field, wanted.type.value)
        case _:
            return False


def _is_variant_storage(type: pa.DataType) -> bool:
    """True for exactly the two members that Spark stores a variant in; a shredded one has more and not every reader takes it."""
    if not pa.types.is_struct(type) or sorted(child.name for child in type) != ["metadata", "value"]:
        return False
    return all(pa.types.is_binary(plain_type(child.type)) for child in type)


def _field_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(FIELD_ID, b"")
    return int(text) if text.isdigit() else None
