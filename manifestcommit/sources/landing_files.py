"""Files that land in a folder or a bucket: each is loaded once, by its name and its content. [LD3]

What was loaded is a set, not a range: a small table beside the loaded one, written in the same
commit. The position is the number of that commit, so that two loaders cannot load one file.
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import fnmatch
import logging
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, BinaryIO, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..display import counted, visible
from ..errors import (
    ManifestCommitError,
    SourceError,
    StoreError,
    TableNotFoundError,
    UnsafeStoreError,
    UsageError,
)
from ..files.foreign_file import STREAMED, open_foreign
from ..format.fields import is_unicode
from ..format.object_names import FILES, companion_url
from ..runtime.validation import (
    checked,
    mapping,
    one_of,
    optional,
    parse_age,
    text,
    to_datetime,
    wrong,
)
from ..store import ObjectInfo, StorageOptions, Store, open_store
from ..store.base import etag_of, modified_s, split_url
from ..table.table import Table
from ..terminal import size
from ..version import install
from .chunk import BrokenInputError, ChangedInputError, Chunk, Position
from .ending import pause
from .json_rows import arrow_schema, has_null, reason_of

LOG = logging.getLogger("manifestcommit.sources")

Format = Literal["csv", "json", "parquet"]
_ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
_LEDGER = pa.schema(
    [
        ("source", pa.string()),
        ("name", pa.string()),
        ("content", pa.string()),
        ("bytes", pa.int64()),
        ("modified", pa.timestamp("us", "UTC")),
        ("loaded", pa.bool_()),
        ("error", pa.string()),
        ("chunk", pa.int64()),
    ]
)
_MOST_FILES = 10_000  # of one commit
_BATCH_ROWS, _BATCH_BYTES = 16_384, 8 << 20  # of Parquet, at once
_WHOLE = ("s3:", "gs:", "abfs:", "memory:")  # where a file is seen once it is whole
_SETTLE_ELSEWHERE_S = 5.0
# of a file's content, as filesystems of fsspec have them: a time of its creation says nothing
_TIMES = ("mtime", "LastModified", "last_modified")
_HINTS = {
    "straddling": " (a row of JSON has at most 1 MB; for CSV give csv_options={'block_size': …})",
    "unexpected field": " (not in the file's first MB: add the column, or give schema=)",
}
_CSV_GROUPS = ("read_options", "parse_options", "convert_options")


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """files: to load, in order; replaces: whether their rows replace those of the same files;
    failed: file -> why it could not be decoded."""

    files: tuple[ObjectInfo, ...]
    replaces: bool = False
    failed: tuple[tuple[ObjectInfo, str], ...] = ()


def content_of(file: ObjectInfo) -> str:
    """What tells a name's contents apart: the store's ETag, or the size and time of writing."""
    return file.etag or f"{file.size_bytes}-{file.modified!r}"


class LandingFiles:
    """Files below a path; made by `files`.

    Attributes:
        url: where they land.
        name: what the table's position of this source is called.
        held_back: which files are not loaded, because their time is in the future.
        reading: the file that was opened last.
        updates: whether a file that changed replaces its rows.

    Spec: LD3.
    """

    companions: Mapping[str, pa.Schema] = {FILES: _LEDGER}

    def __init__(
        self,
        url: str,
        format: Format | None,
        *,
        pattern: str,
        schema: pa.Schema | None,
        file_column: str | None,
        settle_s: float | None,
        on_changed: Literal["append", "replace", "error"],
        csv_options: Mapping[str, Any],
        storage_options: StorageOptions,
    ) -> None:
        self._store = _landing_place(url, storage_options)
        self.url = self._store.url
        self.name = f"files:{self.url}"  # of all patterns: a file may match two of them
        self._format, self._pattern, self._schema = format, pattern, schema
        self._file_column, self._on_changed = file_column, on_changed
        self.updates = on_changed == "replace"
        usual_s = 0.0 if self.url.startswith(_WHOLE) else _SETTLE_ELSEWHERE_S
        self._settle_s = usual_s if settle_s is None else settle_s
        self._csv_options = csv_options
        self._table: Table | None = None
        self._ledger: Table | None = None
        self._columns: pa.Schema | None = None  # that are known, of the chunk that is read
        self._began = time.time()
        self.held_back = self.reading = ""

    def open(self, path: str | os.PathLike[str], options: StorageOptions) -> LandingFiles:
        """This source, for one table: what it has loaded decides what is new."""
        table = Table(path, options)
        if f"{table.url}/".startswith(f"{self.url}/") or f"{self.url}/".startswith(f"{table.url}/"):
            raise UsageError(
                f"{table.url} and the files at {self.url} are one folder, or one is inside the "
                "other: the table's own files would be loaded. Use two folders side by side."
            )
        beside = companion_url(table.url, FILES, "Load into a path below it.")
        scheme, place = split_url(self.url)
        if scheme == "file" and not os.path.isdir(place):
            told = "there is no such folder; nothing was loaded. Make it, or mend the path."
            if os.path.exists(place):
                told = "it is a file; nothing was loaded. Give its folder, and its name as pattern."
            raise SourceError(f"{self.name}: {told}")
        own = copy.copy(self)  # one source may be loaded into several tables at once
        own._table, own._ledger = table, Table(beside, options)
        own._began = time.time()
        return own

    def chunks(self, positions: Mapping[str, Position], *, max_bytes: int) -> Iterator[Chunk]:
        """Yield what is new, in order of names: as many files a chunk as fit its bytes."""
        start = positions.get(self.name)
        number = start if isinstance(start, int) else 0
        known, newest = self._known()  # after the position was read, so that it is at least as new
        if newest > number:
            raise self._ahead(newest)
        fresh = (f for f in self._settled() if known.get(f.name, ("", True))[0] != content_of(f))
        for files in _groups(fresh, max_bytes):
            changed = {f.name for f in files if known.get(f.name, ("", False))[1]}
            if changed:
                self._check_changed(changed)
            replaced = changed if self.updates else ()
            for replaces in (False, True):  # apart: a new file may have a namesake elsewhere
                if part := tuple(f for f in files if (f.name in replaced) is replaces):
                    plan = _Plan(files=part, replaces=replaces)
                    yield self._chunk(plan, number if number else start, number + 1)
                    number += 1

    def _check_changed(self, names: Collection[str]) -> None:
        """SourceError where files that changed cannot be loaded. [LD3]"""
        if self._on_changed == "error":
            raise SourceError(
                f"{self.name}: {counted(len(names), 'file')} changed after being loaded, such as "
                f"{min(names)!r}; nothing more was loaded. Give on_changed='replace' to replace "
                "their rows, or 'append' to load them as other files."
            )
        if self.updates:  # rows are found by the name alone
            assert self._ledger is not None
            theirs = pc.field("name").isin([*names]) & (pc.field("source") != self.url)
            namesakes = self._ledger.to_arrow(filter=theirs & pc.field("loaded")).to_pylist()
            if namesakes:
                raise SourceError(
                    f"{self.name}: {namesakes[0]['name']!r} changed, and {namesakes[0]['source']} "
                    "has a file of this name, whose rows would go, too; nothing more was loaded. "
                    "Load one of the folders into another table, or give on_changed='append'."
                )

    def _chunk(self, plan: _Plan, start: Position | None, end: Position) -> Chunk:
        total = sum(file.size_bytes for file in plan.files)
        first = f", {plan.files[0].name}" if plan.files else ""
        more = " …" if len(plan.files) > 1 else ""
        return Chunk(
            ranges={self.name: (start, end)},
            what=visible(f"{counted(len(plan.files), 'file')}, {size(total)}{first}{more}"),
            bytes=total,
            plan=plan,
        )

    def _settled(self) -> Iterator[ObjectInfo]:
        """The files that are there, but for those that may still be written. Those that were there
        when the load began are waited for once."""
        if self._settle_s <= 0:
            yield from self._listed()
            return
        moments = (file.modified for file in self._listed() if file.modified <= self._began)
        wait_s = max(moments, default=0.0) + self._settle_s - time.time()
        pause(min(max(0.0, wait_s), self._settle_s))
        now, early = time.time(), 0
        self.held_back = ""
        for file in self._listed():
            if file.modified + self._settle_s <= now:
                yield file
            elif file.modified > now + self._settle_s:
                early += 1
                self.held_back = visible(
                    f"{counted(early, 'file')} with a time in the future, such as {file.name}, "
                    "which may still be written: set it, or give settle='0s'"
                )
        if early:
            LOG.warning("%s: %s", self.name, self.held_back)

    def _listed(self) -> Iterator[ObjectInfo]:
        for file in self._store.list(""):
            parts = file.name.split("/")
            is_folder = not parts[-1] and not file.size_bytes
            if is_folder or any(part.startswith((".", "_")) for part in parts):
                continue  # markers and temporary files, as other tools write them
            if not is_unicode(file.name) or "" in parts:
                raise SourceError(
                    f"{self.name}: the name {visible(file.name)} is no Unicode text, or has an "
                    "empty part, and cannot be recorded; nothing more was loaded. Rename the file."
                )
            if fnmatch.fnmatchcase(file.name, self._pattern):
                yield file

    def _ahead(self, newest: int) -> Exception:
        """The table of loaded files knows more than the table that is loaded says: another loader
        has committed meanwhile, or the table went back alone."""
        assert self._table is not None and self._ledger is not None
        now: Position | None = None
        with contextlib.suppress(TableNotFoundError):
            now = self._table.watermarks().get(self.name)
        if isinstance(now, int) and now >= newest:
            return ChangedInputError(f"{self.name}: another loader was faster")
        return SourceError(
            f"{self._table.url} is at chunk {now or 0} of {self.name}, and {self._ledger.url} "
            f"lists files up to chunk {newest}: the loaded table was removed or rolled back alone. "
            "Nothing was loaded. Roll both back together, or remove both and load again."
        )

    def _known(self) -> tuple[dict[str, tuple[str, bool]], int]:
        """Name of a file of this source -> its content when it was loaded or failed last, and
        whether it was ever loaded; and the number of the last chunk."""
        assert self._ledger is not None
        try:
            columns = ["name", "content", "loaded", "chunk"]
            rows = self._ledger.to_arrow(columns, filter=pc.field("source") == self.url)
        except TableNotFoundError:
            return {}, 0
        rows, known = rows.sort_by("chunk"), dict[str, tuple[str, bool]]()
        for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):  # not all of a million at once
            for name, content, is_loaded, _ in zip(*map(pa.Array.to_pylist, batch), strict=True):
                known[name] = (content, is_loaded or known.get(name, ("", False))[1])
        return known, rows.column("chunk")[-1].as_py() if rows.num_rows else 0

    def parts(self, chunk: Chunk, *, count: int) -> list[Chunk]:
        """Return the chunk's files as about so many chunks of files that follow each other."""
        plan: _Plan = chunk.plan
        most = sum(file.size_bytes for file in plan.files) // count + 1
        plans = [_Plan(files=each) for each in _groups(plan.files, most)]
        if plan.failed:
            plans.append(_Plan(files=(), failed=plan.failed))
        return [self._chunk(each, *chunk.ranges[self.name]) for each in plans]

    def rows(self, chunk: Chunk) -> Iterator[pa.RecordBatchReader]:
        """Yield the rows of each of the chunk's files."""
        plan: _Plan = chunk.plan
        self._columns = self._schema
        for file in plan.files:
            with contextlib.ExitStack() as streams:
                yield self._opened(file, streams)
        self._check_unchanged(plan.files)

    def _opened(self, file: ObjectInfo, streams: contextlib.ExitStack) -> pa.RecordBatchReader:
        format = self._format or _ENDINGS.get(os.path.splitext(file.name)[1].lower())
        if format is None:
            raise BrokenInputError((file.name,), "its ending says no format: give format=")
        self.reading = file.name
        with self._reading(file):
            stream = streams.enter_context(self._store.open_input(file.name))
            opened = self._rows_of(stream, file, format)
        for name in [] if self._schema is None else self._schema.names:
            if name not in opened.schema.names:
                raise BrokenInputError((file.name,), f"it has no column {name!r}, which schema has")
        return opened

    def _rows_of(self, stream: BinaryIO, file: ObjectInfo, format: Format) -> pa.RecordBatchReader:
        assert self._table is not None
        if self._columns is None:  # the first rows of a chunk give a new table its own
            with contextlib.suppress(TableNotFoundError):
                self._columns = self._table.schema or None
        expected, column = self._columns, self._file_column
        if column is not None and expected is not None and column in expected.names:
            expected = expected.remove(expected.get_field_index(column))
        if format == "parquet":
            parquet, _ = open_foreign(stream, **STREAMED)
            schema = parquet.schema_arrow
            given = parquet.iter_batches(batch_size=_batch_rows(parquet.metadata))
        else:
            tabs = {"delimiter": "\t"} if file.name.lower().endswith(".tsv") else {}
            given = _text_reader(stream, format, expected, {**tabs, **self._csv_options})
            schema = given.schema
        schema = schema.remove_metadata()
        if column in schema.names:  # a UnicodeDecodeError where one is not UTF-8
            raise BrokenInputError((file.name,), f"it has a column {column!r} of its own")
        if column is not None:
            schema = schema.append(pa.field(column, pa.string()))

        def batches() -> Iterator[pa.RecordBatch]:
            with self._reading(file):
                for batch in given:
                    names = [] if column is None else [pa.repeat(file.name, len(batch))]
                    yield pa.RecordBatch.from_arrays([*batch.columns, *names], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    @contextlib.contextmanager
    def _reading(self, file: ObjectInfo) -> Iterator[None]:
        """Within, what a decoder says of the bytes names the file, if these are still there."""
        try:
            yield
        except ManifestCommitError:
            raise
        except (OSError, pa.ArrowException, UnicodeError, OverflowError) as error:
            self._check_unchanged([file])
            # pyarrow tells damage by an OSError without a number; what was missing is there again
            if isinstance(error, FileNotFoundError) or getattr(error, "errno", None) is not None:
                raise StoreError(f"{file.name} could not be read: {error}") from error
            reason = reason_of(error)
            reason += "".join(hint for words, hint in _HINTS.items() if words in reason)
            raise BrokenInputError((file.name,), reason) from error

    def _check_unchanged(self, files: Sequence[ObjectInfo]) -> None:
        """The files are what they were when they were listed: what was read is recorded. [LD3]"""
        before = {file.name: content_of(file) for file in files}
        if not before:
            return
        least, most = min(before), max(before)
        now: dict[str, str] = {}
        shared = os.path.commonprefix([least, most])  # noqa: RUF071  # of texts
        for file in self._store.list(shared, start_from=least):
            if file.name > most:
                break
            if file.name in before:
                now[file.name] = content_of(file)
        for name in before.keys() - now.keys():  # in several folders a list need not be in order
            now |= {f.name: content_of(f) for f in self._store.list(name) if f.name == name}
        changed = sorted(name for name in before if now.get(name) != before[name])
        if changed:
            raise ChangedInputError(f"{self.name}: {changed[0]} was changed or removed meanwhile")

    def beside(self, chunk: Chunk) -> dict[str, pa.Table]:
        """Return what the table of loaded files gets with the chunk."""
        plan: _Plan = chunk.plan
        number = chunk.ranges[self.name][1]
        entries = [(file, None) for file in plan.files] + list(plan.failed)
        rows = [
            {
                "source": self.url,
                "name": file.name,
                "content": content_of(file),
                "bytes": file.size_bytes,
                "modified": to_datetime(round(file.modified * 1e6)),
                "loaded": error is None,
                "error": error,
                "chunk": number,
            }
            for file, error in entries
        ]
        return {FILES: pa.Table.from_pylist(rows, schema=_LEDGER)}

    def without(self, chunk: Chunk, broken: BrokenInputError) -> Chunk:
        """Return the chunk without files that cannot be decoded; they are recorded."""
        plan: _Plan = chunk.plan
        failed = tuple((f, broken.reason) for f in plan.files if f.name in broken.parts)
        kept = tuple(f for f in plan.files if f.name not in broken.parts)
        start, end = chunk.ranges[self.name]
        reduced = _Plan(files=kept, replaces=plan.replaces, failed=plan.failed + failed)
        return self._chunk(reduced, start, end)

    def change(self, chunk: Chunk) -> tuple[str, Mapping[str, Any]] | None:
        """Say how the rows of files that were loaded with another content are replaced; or None."""
        plan: _Plan = chunk.plan
        if not plan.replaces or not plan.files:
            return None
        names = [file.name for file in plan.files]
        return "overwrite_where", {"where": pc.field(self._file_column).isin(names)}


class FsspecFiles:
    """Files on whatever filesystem fsspec has, which are only read: no table can lie there. [LD3]
    url: what names their source."""

    def __init__(self, url: str, options: StorageOptions) -> None:
        self.url, self._options = url.rstrip("/"), options
        fresh = {"use_listings_cache": False, "skip_instance_cache": True}
        try:
            fsspec = import_module("fsspec.core")
        except ImportError:
            raise UsageError(f"{url} needs fsspec, which is missing: {install('fsspec')}") from None
        with self._raising_ours():
            self._files, root = fsspec.url_to_fs(url, **{**fresh, **options})
        self._base = f"{root.rstrip('/')}/"

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        with self._raising_ours():
            found = self._files.find(self._base, detail=True)
        for path, info in sorted(found.items()):
            name = path.removeprefix(self._base)
            if info["type"] == "file" and name.startswith(prefix) and name >= start_from:
                yield self._described(name, info)

    def open_input(self, name: str) -> BinaryIO:
        with self._raising_ours():
            stream: BinaryIO = self._files.open(f"{self._base}{name}", "rb")
        return stream

    def _described(self, name: str, info: dict[str, Any]) -> ObjectInfo:
        with self._raising_ours():
            modified, etag, size = (modified_s(info, _TIMES), etag_of(info), int(info["size"]))
        if modified is None and not etag:
            raise StoreError(
                f"{self.url}/{name}: the filesystem tells neither a time nor an ETag of it, by "
                "which another content would be known; nothing more was loaded"
            )
        return ObjectInfo(name=name, size_bytes=size, modified=modified or 0.0, etag=etag)

    @contextlib.contextmanager
    def _raising_ours(self) -> Iterator[None]:
        """Whatever a filesystem raises becomes this package's error, without secrets. [SE1]"""
        try:
            yield
        except FileNotFoundError:
            raise
        except Exception as error:
            text = self._options.scrub(f"{type(error).__name__}: {error}")
            raise StoreError(f"{self.url} cannot be read by fsspec: {text}") from None


def _landing_place(url: str, options: StorageOptions) -> Store | FsspecFiles:
    """Files are only read: they may land where no table could lie."""
    try:
        return open_store(url, options)
    except UnsafeStoreError:
        return FsspecFiles(url, options)


def _batch_rows(footer: pq.FileMetaData) -> int:
    """How many rows have about `_BATCH_BYTES`, in the row group with the longest."""
    groups = map(footer.row_group, range(footer.num_row_groups))
    longest = max((each.total_byte_size // max(1, each.num_rows) for each in groups), default=0)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, longest)))


def _text_reader(
    stream: BinaryIO, format: Format, expected: pa.Schema | None, csv_options: Mapping[str, Any]
) -> Any:
    """What reads the rows. A column without a value so far is of texts, as later files may be."""
    from pyarrow import csv, json  # late: most loads read one format

    declared = set(expected.names if expected else ())
    fields = [f for f in expected or () if not pa.types.is_null(f.type)]  # of nulls: as in the file
    if format == "json":
        parse = json.ParseOptions(pa.schema(fields), unexpected_field_behavior="infer")
        reader = json.open_json(stream, parse_options=parse)
    else:
        options = _csv_options(csv_options)
        given = options["convert_options"].column_types or {}
        options["convert_options"].column_types = {f.name: f.type for f in fields} | given
        reader = csv.open_csv(stream, **options)
        declared |= given.keys()
    empty = [each for each in reader.schema if has_null(each.type) and each.name not in declared]
    if not empty:
        return reader
    texts = [each.with_type(_of_texts(each.type)) for each in empty]
    stream.seek(0)
    return _text_reader(stream, format, pa.schema([*(expected or []), *texts]), csv_options)


def _of_texts(type: pa.DataType) -> pa.DataType:
    """The type, with texts where it has no value: inside of objects and lists, too."""
    if pa.types.is_struct(type):
        return pa.struct([each.with_type(_of_texts(each.type)) for each in type])
    if pa.types.is_list(type):
        return pa.list_(_of_texts(type.value_type))
    return pa.string() if pa.types.is_null(type) else type


def _csv_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of pyarrow's reader of CSV by their groups. TypeError for one that there is not."""
    from pyarrow import csv

    left, groups = dict(given), {}
    for group, kind in zip(
        _CSV_GROUPS, (csv.ReadOptions, csv.ParseOptions, csv.ConvertOptions), strict=True
    ):
        usual = kind()
        names = [each for each in left if hasattr(usual, each) and not each.startswith("_")]
        groups[group] = kind(**{name: left.pop(name) for name in names})
    if left:
        raise TypeError(f"there is no option {next(iter(left))!r}")
    return groups


def _groups(files: Iterable[ObjectInfo], max_bytes: int) -> Iterator[tuple[ObjectInfo, ...]]:
    group: list[ObjectInfo] = []
    total = 0
    for file in files:
        if group and (total + file.size_bytes > max_bytes or len(group) >= _MOST_FILES):
            yield tuple(group)
            group, total = [], 0
        group.append(file)
        total += file.size_bytes
    if group:
        yield tuple(group)


def _csv_choice(name: str, value: Any) -> Any:
    """Options that pyarrow takes. It checks some late, or takes the letters of a text for texts."""
    given = mapping("options of pyarrow.csv", "{'delimiter': ';'}")(name, value)
    for option, chosen in [*given.items(), ("", None)]:
        tried = {option: chosen} if option else given  # and all of them together
        try:
            for group in _csv_options(tried).values():
                usual = getattr(type(group)(), str(option), None)
                takes_text = not isinstance(usual, list | bool) or option == "escape_char"
                if isinstance(chosen, str) and not takes_text:
                    raise TypeError(f"not a text, but {type(usual).__name__}")
                group.validate()
            if option == "encoding":
                "".encode(chosen)
        except (ValueError, TypeError, LookupError, OverflowError, pa.ArrowException) as error:
            what = f"{option} as" if option else "options that go together, as"
            told = f"{what} pyarrow.csv takes it ({reason_of(error)})"
            raise wrong(name, chosen if option else given, told) from None
    return given


@checked(
    format=optional(one_of("csv", "json", "parquet")),
    pattern=text("a pattern of names", "'*.csv'"),
    schema=optional(arrow_schema),
    file_column=optional(text("the name of a column", "'_file'")),
    on_changed=one_of("append", "replace", "error"),
    csv_options=optional(_csv_choice),
)
def files(
    path: str | os.PathLike[str],
    format: Format | None = None,
    *,
    pattern: str = "*",
    schema: pa.Schema | None = None,
    file_column: str | None = None,
    settle: str | dt.timedelta | None = None,
    on_changed: Literal["append", "replace", "error"] = "append",
    csv_options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> LandingFiles:
    """Name the files below a folder or a prefix, as a source of `load`.

    Each file is loaded once, by its name and its content: one that is uploaded again is another
    one. A file that is replaced while it is read is read again. Names with a part that begins with
    a dot or an underscore are skipped, as markers and temporary files.

    Args:
        path: where the files land: a folder, or a URL of a store that tables can lie in, or of
            another filesystem of fsspec that tells times or ETags, such as "sftp://host/orders".
        format: "csv", "json" (one object a line) or "parquet"; by default what the ending of each
            file says.
        pattern: only files whose name below `path` matches it, such as "orders/*.csv"; `*` is
            any text, also with slashes; by default all.
        schema: columns that each file has, with their types; by default those of the table, and for
            its first files what pyarrow infers from their beginning.
        file_column: the name of a column that gets the name of each row's file; by default none.
        settle: how old a file has to be, for stores on which files grow while they are written:
            a text such as "30s", or a timedelta; by default none on S3, Azure and Google's store,
            and 5 seconds elsewhere.
        on_changed: what a file that was loaded before with another content does: "append", the
            default: its rows are added; "replace": they replace those of the same file, which needs
            `file_column`; "error": the load ends.
        csv_options: options of `pyarrow.csv` by name, such as {"delimiter": ";"}; by default none.
        storage_options: what reaches the object store; by default the environment.

    Returns:
        The source.

    Raises:
        UsageError: an argument is wrong.

    Example:
        `load(files("s3://landing/orders", "csv", file_column="_file"), "s3://lake/orders")`

    Spec: LD3.
    """
    if on_changed == "replace" and file_column is None:
        raise UsageError(
            "on_changed='replace' finds the rows of a file by a column: give file_column, such as "
            "'_file'"
        )
    return LandingFiles(
        os.fspath(path),
        format,
        pattern=pattern,
        schema=schema,
        file_column=file_column,
        settle_s=None if settle is None else parse_age(settle, "settle"),
        on_changed=on_changed,
        csv_options=csv_options or {},
        storage_options=StorageOptions(storage_options),
    )
