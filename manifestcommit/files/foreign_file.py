"""Parquet files of other programs: they are checked before a commit registers them [AF1]. Their
footers are judged once, in a process that may die of one, and compared with what was noted then
before each later use: a forged one can crash pyarrow, and no `except` helps. [AF3]
"""

from __future__ import annotations

import atexit
import contextlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import replace

from ..errors import (
    CorruptMetadataError,
    SchemaMismatchError,
    StoreError,
    UnsupportedTypeError,
    UsageError,
)
from ..format import codec, values
from ..format.entries import ColumnStats, Entry, FooterRef
from ..format.evolution import apply_edits, can_widen, fit
from ..format.fields import (
    INTERVALS,
    MAX_FIELD_ID,
    ArrayType,
    Field,
    MapType,
    Path,
    Schema,
    StructType,
    WireValue,
    from_spark,
    map_field,
    members,
    relaxed,
    show_path,
    type_text,
    unique_ids,
    walk,
)
from ..format.manifest_table import footers_in
from ..format.object_names import UnsafePathError, check_path
from ..format.transforms import maker, partition_fields, source_of
from ..format.values import (
    SPARK_SCHEMA,
    Conformer,
    field_id,
    from_arrow,
    has_required,
    is_list,
    is_plain_variant,
    plain_type,
)
from ..runtime import footer_child
from ..runtime.footer_child import MAGIC, SIZE_BYTES, metadata_of, put, take
from ..store.base import ObjectInfo, Store
from .footer_stats import column_stats, parquet_columns, tracked_leaves

TAIL_BYTES = 8  # at the end of a footer: its length and the magic
MAX_FOOTER_BYTES = 128 << 20  # pyarrow's object takes about eight times as much as the footer
_READ_BYTES = 64 * 1024  # most footers are no longer
_MOST_SECONDS = 60.0  # for one footer
# Options of pyarrow's `ParquetFile` for batches of a large file: by default it holds whole column
# chunks, and from some version on those of all columns.
STREAMED: Mapping[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 20}
_CHILD = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    f"from {footer_child.__name__} import answer; answer(sys.stdin.buffer, sys.stdout.buffer)"
)


class _Judge:
    """The child process that reads footers, one for this process. It starts with the first footer,
    again after one that it died of, and ends once it has had none for a while. [AF3]"""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, footer: bytes, file_bytes: int) -> str:
        """What is wrong with the footer; empty: nothing. Safe for threads."""
        with self._lock:
            if self._child is not None and self._child.poll() is not None:
                self._end()  # of idleness, or of a signal to all processes of this terminal
            answer = self._answer(footer, file_bytes)
            if answer is None and self._end() == 0:  # idle until just now
                answer = self._answer(footer, file_bytes)
            if answer is None:
                self._end()
                how = "crashed, or did not come to an end"
                return f"pyarrow {how}, when it read it in another process"
            return answer.decode("utf-8", "replace")

    def end(self) -> None:
        """End the child, which a later footer starts again."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """In a process that was forked: the child is another process's."""
        child, self._child, self._lock = self._child, None, threading.Lock()
        if child is not None:
            child.returncode = 0  # nothing to wait for
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()

    def _answer(self, footer: bytes, file_bytes: int) -> bytes | None:
        child = self._child = self._child or _started()
        timer = threading.Timer(_MOST_SECONDS, child.kill)
        timer.start()
        try:
            assert child.stdin is not None and child.stdout is not None
            put(cast(BinaryIO, child.stdin), file_bytes.to_bytes(SIZE_BYTES, "big"), footer)
            return take(cast(BinaryIO, child.stdout))
        except OSError:  # it ended before it had read all
            return None
        finally:
            timer.cancel()

    def _end(self) -> int | None:
        """Its exit code."""
        child, self._child = self._child, None
        if child is None:
            return None
        with contextlib.suppress(OSError):
            try:
                child.communicate(timeout=_MOST_SECONDS)  # it ends where its questions do
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()
        return child.returncode


_JUDGE = _Judge()
atexit.register(_JUDGE.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_JUDGE.forget)


def open_foreign(source: Any, **options: Any) -> tuple[pq.ParquetFile, FooterRef]:
    """The file in this seekable stream, and its footer; `pa.ArrowInvalid` if that is damaged, which
    a child process finds out. One or two reads. options: as for pyarrow's `ParquetFile`. [AF3]"""
    footer, size = _read_footer(source)
    if reason := _JUDGE.ask(footer, size):
        raise pa.ArrowInvalid(f"its Parquet footer is damaged: {reason}")
    file = pq.ParquetFile(source, metadata=metadata_of(footer), **options)
    return file, FooterRef(bytes=len(footer), digest=codec.digest(footer))


def _started() -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _CHILD, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, ValueError) as error:
        raise StoreError(
            f"Parquet footers of other programs are read in a process of their own, and "
            f"{sys.executable!r} could not be started: {error}. Nothing was changed."
        ) from error


def footers_of(entries: pa.Table, url: str) -> dict[str, FooterRef]:
    """Path -> footer of each file of another program; CorruptMetadataError if an entry has none.
    [AF3] entries: as a manifest's table."""
    foreign = entries.filter(entries.column("digest").is_null())
    found = dict(zip(foreign.column("path").to_pylist(), footers_in(foreign), strict=True))
    for path, footer in found.items():
        if footer is None:
            raise CorruptMetadataError(
                f"{url}: the entry of data file {path} has neither the digest of the file nor that "
                "of its Parquet footer, so that nothing shows whether the file is what was added. "
                "No row of it was read. Remove the file from the table (overwrite its partition, "
                "or roll back to a version that does not list it), and add it again.",
                object_name=path,
            )
    return cast(dict[str, FooterRef], found)


def noted_footer(source: Any, file_bytes: int, footer: FooterRef) -> bytes:
    """The footer of the file in this seekable stream; `pa.ArrowInvalid` unless it is the one that
    was noted when the file was added. One read. [AF3]"""
    if not 0 <= footer.bytes <= min(file_bytes, MAX_FOOTER_BYTES):
        raise pa.ArrowInvalid(f"its entry says that its footer has {footer.bytes} bytes")
    source.seek(file_bytes - footer.bytes)
    return same_footer(bytes(source.read(footer.bytes + 1)), footer)


def same_footer(data: bytes, footer: FooterRef) -> bytes:
    """These bytes; `pa.ArrowInvalid` unless they are the footer that was noted. [AF3]"""
    if len(data) != footer.bytes or codec.digest(data) != footer.digest:
        text = "its Parquet footer is not the one that it had when it was added to the table"
        raise pa.ArrowInvalid(text)
    return data


def open_noted(source: Any, size: int, footer: FooterRef | None, **options: Any) -> pq.ParquetFile:
    """The data file in this seekable stream. size: its bytes; footer: as its entry notes it; None:
    this project wrote the file. options: as for pyarrow's `ParquetFile`. [AF3]"""
    if footer is not None:
        options["metadata"] = metadata_of(noted_footer(source, size, footer))
        source.seek(0)
    return pq.ParquetFile(source, **options)


def damaged_file(url: str, name: str, what: object) -> CorruptMetadataError:
    """The error for a data file that cannot be decoded, or whose footer is another one. [RD2]"""
    text = (
        f"{url}: data file {name} is damaged: {str(what).strip().removesuffix('.')}. No row of it "
        "was read. Restore the file, or remove it from the table: overwrite its partition, or roll "
        "back to a version that does not list it."
    )
    return CorruptMetadataError(text, object_name=name)


def _read_footer(source: Any) -> tuple[bytes, int]:
    """The end of a Parquet file from where its footer begins, and the length of the file."""
    size = source.seek(0, os.SEEK_END)
    source.seek(max(0, size - _READ_BYTES))
    tail = bytes(source.read(_READ_BYTES))
    if len(tail) < TAIL_BYTES or tail[-len(MAGIC) :] != MAGIC:
        raise pa.ArrowInvalid("it does not end as a Parquet file does")
    length = int.from_bytes(tail[-TAIL_BYTES : -len(MAGIC)], "little") + TAIL_BYTES
    if not TAIL_BYTES < length <= min(size - len(MAGIC), MAX_FOOTER_BYTES):
        raise pa.ArrowInvalid(
            f"it claims a footer of {length - TAIL_BYTES} bytes, and has {size} bytes itself "
            f"(at most {MAX_FOOTER_BYTES} are read)"
        )
    if length <= len(tail):
        return tail[-length:], size
    source.seek(size - length)
    return bytes(source.read(length)), size


def inspect_file(
    store: Store,
    path: str,
    *,
    schema: Schema,
    partition_by: tuple[int, ...],
    job: str,
    partition: tuple[WireValue, ...] | None = None,
    bounds_columns: int = 32,
    unknown: set[str] | None = None,
) -> Entry:
    """Return the entry of an existing Parquet file if it certainly fits the table; otherwise raise
    an error that names the file. [AF1]

    The file's partition columns must be constant, and equal to `partition` (wire values) if given.
    A file that lacks them is refused where it is not: readers would show null in them [DF4].
    With `unknown` it may have columns that the table does not have; their names are added to it.
    NaN counts and the digest stay unknown; the footer's is noted. It takes one or two ranged reads,
    and reads a column only if its statistics do not say whether it is constant or free of nulls.
    """
    try:
        check_path(path)
    except UnsafePathError as error:
        raise UsageError(str(error)) from error
    name, count = f"{store.url}/{path}", len(partition_by)
    gone = f"There is no file {name}. Nothing was added."
    with opened(store, path, gone, ". Nothing was added.") as (parquet, footer, size):
        _refuse_deletes(name, parquet, "Nothing was added")
        file = _Candidate(name, parquet, schema, partition_by)
        file.check_columns(unknown)
        return Entry(
            path=path,
            partition=tuple(file.partition_value(at, partition) for at in range(count)),
            rows=file.rows,
            bytes=size,
            footer=footer,
            job=job,
            columns=file.column_stats(bounds_columns),
        )


def footer_schema(store: Store, path: str) -> pa.Schema:
    """The columns of a Parquet file, for a table without any. One or two ranged reads. [AF1]"""
    gone = f"There is no file {store.url}/{path}. Nothing was added."
    with opened(store, path, gone, ". Nothing was added.") as (file, _, _):
        return _with_int96_instants(file)


@contextlib.contextmanager
def opened(
    store: Store, path: str, gone: str, outcome: str = ""
) -> Iterator[tuple[pq.ParquetFile, FooterRef, int]]:
    """The file, its footer and its length. gone: the text of the UsageError where it is not there;
    outcome: the end of that of the UnreadableFileError where it is no Parquet file. [AF1]"""
    name = f"{store.url}/{path}"
    try:
        with store.open_input(path) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            file, footer = open_foreign(_Input(stream, name), coerce_int96_timestamp_unit="us")
            yield file, footer, size
    except FileNotFoundError as error:
        raise UsageError(gone) from error
    except (pa.ArrowException, OSError) as error:  # Arrow reports a damaged footer as an OSError
        text = f"{name} cannot be read as a Parquet file: {error}{outcome}"
        raise UnreadableFileError(text) from error


_VARIANT_GROUP = re.compile(r" group .* \(Variant(?:\(\d+\))?\) \{$", re.MULTILINE)
_DELETE_IDS = {2147483546, 2147483545}  # that Iceberg reserves for file_path and pos
_FAR = 1 << 30  # files do not have field ids from here on by chance


class UnreadableFileError(UsageError):
    """The file is not a Parquet file, or is damaged. [AF1]"""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a file that is adopted. inside: the one value of each partition column in it;
    folders: partition values of its folders; rewrite: its rows go into new files instead; footer:
    None: that was never noted, since they do. [AF2]"""

    path: str
    rows: int
    bytes: int
    footer: FooterRef | None
    columns: dict[int, ColumnStats]
    inside: dict[str, WireValue]
    folders: dict[str, str | None] = {}
    rewrite: bool = False


def read_facts(
    store: Store,
    info: ObjectInfo,
    *,
    columns_of: Callable[[pq.ParquetFile], Schema],
    folders: dict[str, str | None],
    partition_names: Sequence[str],
    bounds_columns: int,
    rewrite: bool,
) -> tuple[Schema, FileFacts]:
    """Return the columns and the contents of a Parquet file if every reader of a table can read it;
    otherwise raise an error that names it. One or two ranged reads. [AF2]

    columns_of: maps a schema from `own_columns` to one with the caller's ids. UnreadableFileError
    if it is not a Parquet file. A partition column in the file must be constant there; it is read
    only if its statistics do not say so. rewrite: take a file with nanoseconds, too, if all its
    values are whole microseconds, for which it is read whole.
    """
    name = f"{store.url}/{info.name}"
    gone = f"{name} was removed while it was looked at. Nothing was adopted; run it again."
    with opened(store, info.name, gone) as (parquet, footer, size):
        if size != info.size_bytes:
            advice = "Nothing was adopted; run it again when no one writes there."
            raise UsageError(f"{name} was replaced while it was looked at. {advice}")
        _refuse_deletes(name, parquet, "Nothing was adopted")
        try:
            schema = columns_of(parquet)
        except SchemaMismatchError as error:  # among others, a type that no table has
            raise type(error)(f"{name}: {error} Nothing was adopted.") from error
        file = _Candidate(name, parquet, schema, ())
        is_rewritten = rewrite and any(map(_has_nanoseconds, parquet.schema_arrow.types))
        if is_rewritten:
            count_fitting(name, _batches(parquet), schema)
        fields = [] if is_rewritten or not file.rows else schema.fields
        plain = [field for field in fields if isinstance(field.type, str)]
        named = [field for field in plain if field.name in partition_names]
        return schema, FileFacts(
            path=info.name,
            rows=file.rows,
            bytes=size,
            footer=footer,
            columns={} if is_rewritten else file.column_stats(bounds_columns),
            inside={field.name: file.only_value(field) for field in named},
            folders=folders,
            rewrite=is_rewritten,
        )


def _refuse_deletes(name: str, file: pq.ParquetFile, outcome: str) -> None:
    """UsageError for a delete file of Iceberg: its rows are no rows of a table, but say which rows
    of other files are deleted. [AF1] [AF2]"""
    ids = {field_id(column) for column in file.schema_arrow}
    kind = (file.metadata.metadata or {}).get(b"delete-type")
    if kind in (b"position", b"equality") or ids >= _DELETE_IDS:
        raise UsageError(
            f"{name} is a delete file of Iceberg: its rows say which rows of other files are "
            f"deleted. {outcome}. Compact the Iceberg table first, as by rewrite_data_files, and "
            'adopt it with from_="iceberg", or write its rows to a new table'
        )


def read_rows(store: Store, path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file that was looked at, under the file's names. [AF2]"""
    gone = (
        f"{store.url}/{path} was removed while it was rewritten. Nothing was adopted; run it again."
    )
    with opened(store, path, gone) as (file, _, _):
        yield from _batches(file)


def count_fitting(name: str, batches: Iterable[pa.RecordBatch], schema: Schema) -> int:
    """How many rows the file has; SchemaMismatchError if one of them does not fit the table."""
    conformer, rows = Conformer(schema), 0
    for batch in batches:
        try:
            rows += conformer.conform(batch).num_rows
        except SchemaMismatchError as error:
            raise SchemaMismatchError(f"{name}: {error} Nothing was adopted.") from error
    return rows


def _int96_paths(file: pq.ParquetFile, name: str = "it", outcome: str = "") -> frozenset[Path]:
    """The columns that are INT96; SchemaMismatchError where it is not known which are."""
    columns, schema = parquet_columns(file.schema_arrow), file.schema
    if len(columns) != len(schema):  # the positions would be wrong
        raise SchemaMismatchError(f"{name} has columns that Arrow cannot distinguish.{outcome}")
    kinds = ((each.path, schema.column(each.position).physical_type) for each in columns)
    return frozenset(path for path, kind in kinds if kind == "INT96")


def _with_int96_instants(file: pq.ParquetFile) -> pa.Schema:
    """The columns in Arrow. INT96, as Spark writes it, is always an instant."""
    instant, old, fields = pa.timestamp("us", "UTC"), _int96_paths(file), file.schema_arrow
    return pa.schema([f.with_type(instant) if (f.name,) in old else f for f in fields])


def _batches(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    schema = _with_int96_instants(file)
    return (batch.cast(schema) for batch in file.iter_batches())


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_nanoseconds(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def own_columns(file: pq.ParquetFile, nanoseconds: bool) -> Schema:
    """The columns of a file, all nullable: as Spark's own schema in the footer declares them if the
    file confirms it, else as Parquet does; SchemaMismatchError if some readers could not read them.
    INT96 is an instant, as Spark writes it. nanoseconds: take them for microseconds. [AF2] [SC2]"""
    ids = itertools.count(_FAR).__next__
    arrow: pa.Schema = file.schema_arrow
    declared = _spark_fields(file)
    fields = []
    for column in arrow:
        plain, spark = pa.schema([column]), None
        if (said := declared.get(column.name)) is not None:
            spark = relaxed(from_spark({"type": "struct", "fields": [said]}, ids))
        # A variant that is not stored in its two members does not match its storage type: it is
        # refused below.
        has_variant = spark and any(field.type == "variant" for _, field in walk(spark.fields))
        if spark is None or not (_bears_out(file, spark) or has_variant):
            spark = relaxed(from_arrow(plain, ids))
        fields.append(spark.fields[0])
    instants = _int96_paths(file)

    def typed(path: Path, field: Field) -> Field:
        return replace(field, type="timestamp") if path in instants else field

    schema = Schema(fields=tuple(map_field(field, typed) for field in fields))
    _Candidate("a file like this", file, schema, (), nanoseconds).check_columns()
    return schema


def _spark_fields(file: pq.ParquetFile) -> dict[str, Any]:
    """Name -> what Spark's own schema in the footer declares for a top-level column."""
    try:
        fields = json.loads((file.metadata.metadata or {}).get(SPARK_SCHEMA, b"{}"))["fields"]
        return {field["name"]: field for field in fields if "type" in field}
    except (ValueError, KeyError, TypeError):
        return {}


def _bears_out(file: pq.ParquetFile, declared: Schema) -> bool:
    """Whether the file stores what it declares: who rewrites a file may keep an old declaration."""
    try:
        _Candidate("", file, declared, ()).check_stored()
    except SchemaMismatchError:
        return False
    return True


class _Input(io.RawIOBase):
    """The file as Arrow reads it, which does not close it. Arrow's own errors concern the content;
    those of the stream below come from the store. [ST5]"""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream, self._name = stream, name

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except OSError as error:
            text = f"{self._name} could not be read: {error}. Nothing was added."
            raise StoreError(text) from error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class _Candidate:
    """An opened file, compared with the table that it is added to."""

    def __init__(
        self,
        name: str,
        file: Any,
        schema: Schema,
        partition_by: tuple[int, ...],
        nanoseconds: bool = False,
    ) -> None:
        self._name, self._file, self._schema = name, file, schema
        self._units = ("ms", "us", "ns") if nanoseconds else ("ms", "us")
        self._metadata = file.metadata
        self._found: pa.Schema = file.schema_arrow
        self._inside = {field.name: field for field in self._found}
        self._partition_fields = partition_fields(schema, partition_by)
        self._int96 = _int96_paths(file, name, " Nothing was added; rewrite it.")
        self.rows: int = self._metadata.num_rows

    def check_columns(self, unknown: set[str] | None = None) -> None:
        """Check that every column belongs to the table, with its name in files and a type that
        readers accept for the table's. unknown: gets the names of others instead, but for those
        that only some readers take for a column of the table, by their case. [AF1] [AF4]"""
        if len(self._inside) != len(self._found):
            advice = "Nothing was added; rewrite the file."
            raise SchemaMismatchError(f"{self._name} has two columns of one name. {advice}")
        found = list(self._found)
        if unknown is not None:
            taken = {field.file_name.lower() for field in self._schema.fields}
            unknown |= {field.name for field in found if field.name.lower() not in taken}
            found = [field for field in found if field.name not in unknown]
        self._check_members(found, self._schema.fields, ())
        self._check_variants()
        for field in self._schema.fields:
            if field.file_name in self._inside:
                self._check_nulls(field)

    def _check_variants(self) -> None:
        """Check that no struct of the table is a variant in the file, which Arrow shows as a struct
        and Spark does not read as one. [AF1] [AF2]"""
        doubtful = [
            path
            for path, field in walk(self._schema.fields)
            if isinstance(field.type, StructType)
            and {"metadata", "value"} <= {member.name for member in field.type.fields}
        ]
        if doubtful and _VARIANT_GROUP.search(str(self._metadata.schema)):
            why = "may be a variant in this file, of which the table would have the bytes as a "
            raise self._mismatch(doubtful[0], f"{why}struct, and which Spark cannot read as one")

    def check_stored(self) -> None:
        """Check that the columns of the schema, all of which are in the file, have types that
        readers accept for the schema's. [AF2]"""
        for field in self._schema.fields:
            self._check_member(self._inside[field.file_name], field, (field.name,))

    def column_stats(self, limit: int) -> dict[int, ColumnStats]:
        """The footer's statistics. Others may have cut texts: they count as truncated. [OB7]"""
        leaves = tracked_leaves(self._schema, parquet_columns(self._found), limit)
        by_id = column_stats(self._metadata, leaves, None)
        for leaf in leaves:
            stats = by_id.get(leaf.id)
            if stats is not None and leaf.type in ("string", "binary") and stats.min != stats.max:
                cuts = {"min_cut": stats.min is not None, "max_cut": stats.max is not None}
                by_id[leaf.id] = replace(stats, **cuts)
        return by_id

    def partition_value(self, index: int, given: tuple[WireValue, ...] | None) -> WireValue:
        """The one value of the partition column in this file. [AF1]"""
        field = self._partition_fields[index]
        is_inside = source_of(self._schema, field.id).file_name in self._inside
        if is_inside:
            if not self.rows:
                return given[index] if given else None  # anything is true of a file without rows
            value = self.only_value(field)
            if given is not None and value != given[index]:
                why = f"holds {value!r} where the partition's value is {given[index]!r}"
                raise self._mismatch((field.file_name,), why)
            return value
        # of a transform: a column that the file does not have is null in it
        if given is None or (field.id > MAX_FIELD_ID and given[index] is not None):
            why = "partitions the table and is not in the file, where readers look for it"
            raise self._mismatch((field.file_name,), why)
        return given[index]

    def _check_members(
        self, members: Iterable[pa.Field], wanted: tuple[Field, ...], parent: Path
    ) -> None:
        by_name = {field.file_name: field for field in wanted}
        by_id = {field.id: field for field in wanted}
        seen = set()
        for member in members:
            path = (*parent, member.name)
            bearer = by_id.get(field_id(member) or 0)
            if bearer is not None and bearer.file_name != member.name:
                shown = show_path((*parent, bearer.name))
                raise self._mismatch(path, f"carries the field id of the table's {shown}")
            if member.name not in by_name:
                known = ", ".join(map(repr, list(by_name)[:20]))
                raise self._mismatch(path, f"is not the table's; its files have {known}")
            self._check_member(member, by_name[member.name], path)
            seen.add(member.name)
        for name, field in by_name.items():
            if name not in seen and not field.nullable and field not in self._partition_fields:
                raise self._mismatch((*parent, name), "is missing and may not be null")

    def _check_member(self, member: pa.Field, wanted: Field, path: Path) -> None:
        type = plain_type(member.type)
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
                why = f"has the type {member.type}, which not every reader can take for the table's"
                raise self._mismatch(path, f"{why} {type_text(wanted.type)}{_remedy(member.type)}")

    def _reads_as(self, type: pa.DataType, wanted: str, path: Path) -> bool:
        """True if all readers of the table, Spark too, get the table's type from this file."""
        if wanted in INTERVALS and type in (pa.int64(), pa.duration("us")):
            # Both are stored as the same plain numbers. Only Spark's schema says whether, for
            # example, they are whole hours.
            said = _spark_fields(self._file).get(path[0], {}) if len(path) == 1 else {}
            is_duration = type != pa.int64() and wanted == "interval day to second"
            return is_duration or bool(said.get("type") == wanted)
        if wanted == "variant":
            return is_plain_variant(type)  # one that is shredded has more members
        if path in self._int96:
            return wanted == "timestamp"
        if pa.types.is_timestamp(type) and type.unit not in self._units:
            return False
        if pa.types.is_duration(type) or pa.types.is_float16(type):
            return False
        try:
            read_as = from_arrow(pa.schema([pa.field("column", type)])).fields[0].type
        except UnsupportedTypeError:
            return False
        return read_as == wanted or can_widen(read_as, wanted)

    def _check_nulls(self, field: Field) -> None:
        if field.nullable and not has_required(field.type):
            return
        if isinstance(field.type, str) and field.type != "variant":
            stats = self._stats(field)
            if stats.nulls:
                why = f"has {stats.nulls} nulls and may not be null"
                raise self._mismatch((field.file_name,), why)
            if stats.nulls == 0:
                return
        for _ in self._read(field):
            pass  # reading checks it

    def _stats(self, field: Field) -> ColumnStats:
        leaves = tracked_leaves(Schema(fields=(field,)), parquet_columns(self._found), 1)
        return column_stats(self._metadata, leaves, None).get(field.id, ColumnStats())

    def only_value(self, field: Field) -> WireValue:
        """The only value in a partition column; by statistics, or else by the column. [AF1]"""
        source, made = source_of(self._schema, field.id), maker(self._schema, field.id)
        stats = self._stats(source)
        if stats.nulls == self.rows:
            return None
        is_one = stats.min is not None and stats.min == stats.max and not stats.min_cut
        if source is field and stats.nulls == 0 and is_one:
            return stats.min
        distinct: set[WireValue] = set()
        for array in self._read(replace(source, nullable=True)):
            distinct.update(values.from_array(pc.unique(made(array)), field.type))
            if len(distinct) > 1:
                shown = " and ".join(repr(value) for value in list(distinct)[:2])
                why = f"partitions the table and has several values, {shown} among them"
                raise self._mismatch((field.file_name,), why)
        return distinct.pop()

    def _read(self, field: Field) -> Iterator[pa.Array]:
        """The column in the table's form; SchemaMismatchError for a null that is not allowed."""
        name = field.file_name
        conformer = Conformer(Schema(fields=(replace(field, name=name, physical=None),)))
        for batch in self._file.iter_batches(columns=[name]):
            array = batch.column(name)
            if (name,) in self._int96:
                array = array.cast(pa.timestamp("us", "UTC"))
            try:
                yield conformer.conform(pa.RecordBatch.from_arrays([array], names=[name])).column(0)
            except SchemaMismatchError as error:
                raise SchemaMismatchError(f"{self._name}: {error} Nothing was added.") from error

    def _mismatch(self, path: Path, what: str) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"{self._name}: column {show_path(path)} {what}. Nothing was added. Rewrite the "
            "file to fit, or write its rows through a job."
        )


def _remedy(type: pa.DataType) -> str:
    """For a type of pandas 2 and Polars how a folder of such files is adopted."""
    if not pa.types.is_timestamp(type) or type.unit != "ns":
        return ""
    return (
        ". Spark, for one, reads no nanoseconds. Where all values are whole microseconds, "
        "adopt(rewrite=True) writes the rows of such files into new ones"
    )


# Computes one schema for untracked files: the union of their columns, if every file can be read
# with it.


class Columns:
    """The columns of each file, with the same id for the same path of names in all files. Safe for
    many threads. [SC1] known: the columns that the table has already; nanoseconds: take them for
    microseconds."""

    def __init__(self, new_id: Callable[[], int], known: Schema | None, nanoseconds: bool) -> None:
        self._nanoseconds = nanoseconds
        self._lock = threading.Lock()
        fields = known.fields if known else ()
        self._ids: dict[Path, int] = {path: field.id for path, field in walk(fields)}
        self._draw = unique_ids(new_id, self._ids.values())
        self._known: dict[tuple[bytes, bytes, str], Schema] = {}

    def of(self, file: pq.ParquetFile) -> Schema:
        """The file's columns; the same object for all files with equal columns."""
        spark = (file.metadata.metadata or {}).get(SPARK_SCHEMA, b"")
        kinds = "".join(file.schema.column(at).physical_type[:4] for at in range(len(file.schema)))
        key = (file.schema_arrow.remove_metadata().serialize().to_pybytes(), spark, kinds)
        with self._lock:
            if key not in self._known:
                own = own_columns(file, self._nanoseconds).fields
                fields = tuple(map_field(field, self._identified) for field in own)
                self._known[key] = Schema(fields=fields)
            return self._known[key]

    def id_of(self, path: Path) -> int:
        """The id of the column."""
        if path not in self._ids:
            self._ids[path] = self._draw()
        return self._ids[path]

    def _identified(self, path: Path, field: Field) -> Field:
        return replace(field, id=self.id_of(path))


class Union:
    """The columns of all files so far, as first seen. schema: None before the first. [SC5]"""

    def __init__(self, schema: Schema | None) -> None:
        self.schema = schema
        self._taken: set[int] = set()
        self._kept: list[Schema] = []  # keeps the object alive, so that no other one gets its id()
        self._origin: dict[Path, str] = {}  # column -> the file that gave it its type

    def take(self, columns: Schema, path: str) -> None:
        """Widen the union by a file's columns; SchemaMismatchError names two files if it cannot."""
        if id(columns) in self._taken:
            return
        self._taken.add(id(columns))
        self._kept.append(columns)
        before = self.schema
        if before is None:
            self.schema = columns
        else:
            self._check(columns, before, path)
            try:
                self.schema = apply_edits(before, fit(before, columns, merge=True, converted=False))
            except SchemaMismatchError as error:
                raise SchemaMismatchError(f"{path!r}: {error} Nothing was adopted.") from error
        there = {} if before is None else {at: field.type for at, field in walk(before.fields)}
        for at, field in walk(self.schema.fields):
            if there.get(at) != field.type or at not in self._origin:
                self._origin[at] = path

    def _check(self, columns: Schema, table: Schema, path: str) -> None:
        """If two types differ, one must be the wider, as which both files are read."""
        misread = _misread(columns.fields, table.fields, ())
        if misread is None:
            return
        at, own, other = misread
        above = (at[:count] for count in range(len(at), 0, -1))
        where = next((self._origin[each] for each in above if each in self._origin), "the table")
        raise SchemaMismatchError(
            f"column {show_path(at)} is {own} in {path!r} and {other} in {where!r}, and no column "
            "of a table is read from both. Nothing was adopted: rewrite one of the two files, or "
            "write their rows to a new table."
        )


def _misread(
    own: tuple[Field, ...], table: tuple[Field, ...], parent: Path
) -> tuple[Path, str, str] | None:
    """The first column that readers could not read as the table's: its path and both types."""
    by_name = {field.file_name: field for field in table}
    by_lower = {field.name.lower(): field for field in table}
    for field in own:
        path, wanted = (*parent, field.name), by_name.get(field.name)
        if wanted is None:
            if (twin := by_lower.get(field.name.lower())) is not None:
                return (*parent, twin.name), f"spelled {field.name!r}", f"spelled {twin.name!r}"
            continue  # it would be a new column
        one, other = field.type, wanted.type
        if isinstance(one, str) or isinstance(other, str):
            if one != other and not can_widen(one, other) and not can_widen(other, one):
                return path, type_text(one), type_text(other)
        elif type(one) is not type(other):
            return path, type_text(one), type_text(other)
        elif (inner := _misread(members(one), members(other), path)) is not None:
            return inner
    return None
