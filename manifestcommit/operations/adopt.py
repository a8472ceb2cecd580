"""Adopts a folder of Parquet files as a table, in place: every file is inspected, none is changed,
and one commit registers all. [AF2]

First it reads every footer and writes nothing. Then it creates version 1, with a property that
marks the adoption as unfinished; the next commit registers the files and removes that property. A
rerun after a crash between the two continues with the same table.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import zstandard

from ..commits.commit_loop import commit, create_table
from ..errors import (
    CommitConflictError,
    NotATableError,
    SchemaMismatchError,
    StoreDeniedError,
    TableNotFoundError,
    UsageError,
)
from ..files.foreign_file import (
    Columns,
    FileFacts,
    Union,
    UnreadableFileError,
    count_fitting,
    inspect_file,
    read_facts,
    read_rows,
)
from ..files.writer import DEFAULT_BOUNDS_COLUMNS, DataFileWriter, plan_for
from ..format import object_names
from ..format.change import Overwrite, Write, declaration
from ..format.entries import Entry, ManifestRef
from ..format.evolution import SchemaEdit, fit
from ..format.fields import (
    MAX_FIELD_ID,
    Field,
    Partitioned,
    Schema,
    WireValue,
    check_schema,
    is_text,
    leaves,
    shown,
)
from ..format.object_names import UnsafePathError, check_path
from ..format.partitioning import agrees, check_partition_by, folder_values, parse, widen
from ..format.snapshot import Constraint, KeyRecord, Snapshot, Summary
from ..format.transforms import parse_call, spelled
from ..format.values import to_array
from ..log.manifests import put_manifest
from ..log.table_context import (
    OtherFormat,
    TableContext,
    check_not_inside,
    find_key_at,
    format_at,
    format_of,
    gate,
)
from ..log.version_chain import Head
from ..protocol.apply import entries_overflow
from ..runtime.environment import STARTS, prefetch
from ..runtime.outcome import Outcome, committed_or_raise
from ..scan.planning import entries_table
from ..store import ObjectInfo, Store
from ..store.base import split_url

Pass = Callable[[str, str], None]  # called with a skipped file and the reason
SINK_LOG = "_spark_metadata"
_PORTION_BYTES = 1 << 20
_LINE_BYTES = 64 << 10  # a path of 4,096 bytes takes 12,288 if every byte is escaped


def data_files(store: Store, pass_over: Pass) -> Iterator[ObjectInfo]:
    """Yield every data file of the folder, in the order of names, but what readers of folders skip;
    if Spark's streaming sink wrote it, exactly the files in its log. NotATableError if the folder,
    or one inside it, is a table: its log decides which files are live, not the folder. [AF2]"""
    check_not_inside(store)
    _check_not_of_other_format(store)
    listed = _sink_files(store)
    for info in store.list(""):
        name = info.name
        if name.startswith((f"{object_names.ROOM}/", f"{SINK_LOG}/")):
            continue
        _refuse_other_format(store, name)
        reason = _reason_to_pass(name)
        if reason is None and listed is not None:
            reason = None if name in listed else f"the log in {SINK_LOG} does not list it"
            listed.discard(name)
        if reason is not None:
            pass_over(name, reason)
            continue
        try:
            check_path(name)
        except UnsafePathError as error:
            what = f"{store.url}: {error}. Nothing was adopted; rename the file."
            raise UsageError(what) from None
        yield info
    if listed:
        raise UsageError(
            f"{store.url}: {shown(min(listed))} is listed in {SINK_LOG} and is not there, nor are "
            f"{len(listed) - 1} others. Nothing was adopted."
        )


def _reason_to_pass(name: str) -> str | None:
    """Decide as Spark's and pyarrow's readers of folders do. [AF2]"""
    if name.endswith(("/", "_$folder$")):
        return "marks a folder"
    for part in name.split("/"):
        if part.startswith(".") or (part.startswith("_") and "=" not in part):
            return "hidden: its name, or that of a folder above it, begins with _ or ."
        if part.endswith("._COPYING_"):
            return "a copy that was not finished"
    return None


def _refuse_other_format(store: Store, name: str) -> None:
    inner, _, rest = name.partition(f"/{object_names.VERSIONS}")
    if rest and object_names.parse_version(object_names.VERSIONS + rest) is not None:
        what = f"has a table inside it, at {inner!r}; tables do not nest. Nothing was adopted."
        raise NotATableError(f"{store.url} {what}")
    parts = name.split("/")
    if (other := format_of(name)) is not None:
        raise _other_format(store, other)
    for at, part in enumerate(parts[:-1]):
        if part == SINK_LOG and at:
            raise NotATableError(
                f"{store.url}: {'/'.join(parts[:at])!r} in it was written by a streaming "
                f"query of Spark, whose log in {SINK_LOG} says "
                "which of its files count. Nothing was adopted; adopt that folder by itself."
            )


def _other_format(store: Store, other: OtherFormat) -> NotATableError:
    return NotATableError(
        f"{other.said_of(store)}: its log in {other.log} says which files count, and others in the "
        "folder hold rows that were deleted or replaced. Nothing was adopted. "
        f"{other.remedy(store)}"
    )


def _check_not_of_other_format(store: Store) -> None:
    """NotATableError if the folder, or one above it, is a table of another format: its data folder
    by itself looks like plain files. One list request for each format and level. [AF2]"""
    above: Store | None = store
    while above is not None:
        with contextlib.suppress(StoreDeniedError):  # such a parent cannot be checked
            if (other := format_at(above)) is not None:
                raise _other_format(above, other)
        above = above.parent()


# --- The log of Spark's streaming sink ------------------------------------------------------------


def _sink_files(store: Store) -> set[str] | None:
    """The names in the log of Spark's streaming sink; None: there is none. [AF2]"""
    names = [info.name.rpartition("/")[2] for info in store.list(f"{SINK_LOG}/")]
    found = [re.fullmatch(r"(\d+)(\.compact)?", name, re.ASCII) for name in names]
    batches = [(int(each[1]), bool(each[2])) for each in found if each is not None]
    if not batches:
        return None
    first = max((batch for batch, is_whole in batches if is_whole), default=-1)
    files = set[str]()
    for batch in range(max(first, 0), max(batches)[0] + 1):
        name = f"{SINK_LOG}/{batch}.compact" if batch == first else f"{SINK_LOG}/{batch}"
        try:
            with store.open_input(name) as stream:
                _apply_batch(store, _lines(stream), files)
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(
                f"{store.url}/{name}, the log of the streaming query that wrote this folder, "
                f"is missing or cannot be read ({error}). Which "
                "files count is not known, and nothing was adopted."
            ) from error
    return files


def _lines(stream: BinaryIO) -> Iterator[str]:
    """The lines of a log file, a portion at a time; ValueError if one has no end. [OB4]"""
    rest = b""
    while portion := stream.read(_PORTION_BYTES):
        *lines, rest = (rest + portion).split(b"\n")
        yield from (line.decode() for line in lines)
        if len(rest) > _LINE_BYTES:
            raise ValueError(f"it has a line of more than {_LINE_BYTES} bytes")
    yield rest.decode()


def _apply_batch(store: Store, lines: Iterator[str], files: set[str]) -> None:
    version = next(lines)
    if version.strip() != "v1":
        raise ValueError(f"it is of the version {shown(version)}")
    for line in filter(None, lines):
        entry = json.loads(line)
        if not isinstance(entry, dict) or not is_text(entry.get("path")):
            raise ValueError("a line of it lists no file")
        name = _name_below(store, entry["path"])
        if entry["action"] == "delete":
            files.discard(name)
        elif entry["action"] == "add" and not entry["isDir"]:
            files.add(name)


def _name_below(store: Store, path: str) -> str:
    """A path as Spark writes it, a URI, as a name relative to the table path."""
    plain = unquote(path)
    scheme, rest = split_url(plain if "://" in path else "file://" + plain.removeprefix("file:"))
    whole, root = f"{scheme}://{rest}", f"{store.url}/"
    if not whole.startswith(root):
        raise ValueError(f"it lists {shown(path)}, which is not below the folder: was it moved?")
    return whole.removeprefix(root)


class SpilledFileList(contextlib.AbstractContextManager["SpilledFileList"]):
    """Files in the order of addition, in groups of one manifest, of which one is in memory at a
    time. files, rows, bytes: totals; rewritten: how many of them are not listed themselves, with
    rewritten_bytes."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._spilled = tempfile.TemporaryFile(prefix="manifestcommit-")  # noqa: SIM115  # closed by __exit__
        self._sizes: list[int] = []
        self._last: list[FileFacts] = []
        self.files = self.rows = self.bytes = 0
        self.rewritten = self.rewritten_bytes = 0

    def add(self, file: FileFacts) -> None:
        """Add one file."""
        if len(self._last) == self._group:
            packed = zstandard.ZstdCompressor(level=1).compress(msgspec.msgpack.encode(self._last))
            self._spilled.write(packed)
            self._sizes.append(len(packed))
            self._last = []
        self._last.append(file)
        self.files += 1
        self.rows += file.rows
        self.bytes += file.bytes
        if file.rewrite:
            self.rewritten += 1
            self.rewritten_bytes += file.bytes

    def __iter__(self) -> Iterator[list[FileFacts]]:
        at = 0
        for size in self._sizes:
            self._spilled.seek(at)
            packed = self._spilled.read(size)
            yield msgspec.msgpack.decode(
                zstandard.ZstdDecompressor().decompress(packed), type=list[FileFacts]
            )
            at += size
        if self._last:
            yield self._last

    def __exit__(self, *raised: object) -> None:
        self._spilled.close()


KEY = "manifestcommit.adopt"  # of the commit that registers the files
UNFINISHED = "manifestcommit.adoption"  # a property that exists until they are registered
SOURCE = "manifestcommit.adopted-from"  # a property: the version of the other format's table
_THREADS = 16
_AHEAD = 64  # files that are being read, or wait for an earlier one
_NAMED = 10  # files that an error names
_SKIPS_KEPT = 100
_SOME_UNREADABLE = (
    "a table's folder holds Parquet files only. Move these away, or give them a name that begins "
    "with _. "
)
_NONE_READABLE = (
    "there is no Parquet file among those that were looked at, and adopting takes no other. Read "
    "these files with their own reader, and write the rows to a new table with "
    "manifestcommit.write. "
)

Progress = Callable[[int, int], None]  # called with rows and bytes so far


class SkippedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an adopted folder that does not belong to the table.

    Attributes:
        name: the file, relative to the table path.
        reason: why it was skipped.
    """

    name: str
    reason: str


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an adoption.

    Attributes:
        url: the table path.
        version: the version that registered the files.
        already_adopted: whether an earlier call did it; then this one changed nothing.
        files: how many files were adopted.
        rows: how many rows they have.
        bytes: how many bytes they have.
        partition_by: the columns that partition the table.
        skipped: the first 100 skipped files.
        skipped_files: how many files were skipped.
        rewritten_files: how many files were not listed, but their rows written into new ones.

    Spec: AF2.
    """

    url: str
    version: int
    already_adopted: bool
    files: int = 0
    rows: int = 0
    bytes: int = 0
    partition_by: tuple[str, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    skipped_files: int = 0
    rewritten_files: int = 0


class ListedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of another format's table. partition: the values of the partition columns; rewrite:
    it names columns otherwise than the table, so that its rows go into a new file; bytes: of one
    that is rewritten."""

    path: str
    partition: tuple[WireValue, ...]
    rewrite: bool = False
    bytes: int = 0


class ListedTable(msgspec.Struct, frozen=True, kw_only=True):
    """What a table of another format has: all its files, and the columns as these hold them.
    version: of that table, in words; named: rows of a file that is rewritten, under the names of
    the table; constraints: name -> the condition that no row of it violates."""

    schema: Schema
    partition_by: tuple[int, ...]
    files: tuple[ListedFile, ...]
    version: str
    named: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch
    constraints: Mapping[str, str] = msgspec.field(default_factory=dict)


class Source(NamedTuple):
    """A table of another format. listed: what it has, for the columns of an adoption that was not
    completed; current: its version now, for the id of the table that was made of it; None: it is
    gone, or an export of that table has taken its place."""

    listed: Callable[[Schema | None], ListedTable]
    current: Callable[[str], str | None]


def adopt(
    ctx: TableContext,
    *,
    partition_by: Sequence[str] | None = None,
    progress: Progress | None = None,
    source: Source | None = None,
    rewrite: bool = False,
) -> Adoption:
    """Make a table of the Parquet files in a folder with one commit; no file is moved, changed or
    deleted, and an unfit one is an error before there is a table. A crash leaves no table, or one
    that the next call completes. [AF2]

    partition_by: by default the columns of the folders; source: whose files to adopt instead of all
    [AF4]; rewrite: write the rows of files that cannot be listed as they are into new ones.
    """
    for _ in range(STARTS):
        head, record = _open(ctx)
        if head is not None and (done := _done(ctx, head, record)) is not None:
            _check_source(ctx, head.snapshot, source)
            return done
        with SpilledFileList(ctx.tuning.budgets.adopted_entries) as gathered:
            if source is None:
                pending = _Pending(ctx, head, partition_by, gathered, rewrite)
            else:
                known = None if head is None else head.snapshot.schema
                pending = _Listed(ctx, head, gathered, source.listed(known))
            pending.gather(progress)
            outcome = pending.commit()
        if outcome is not None:
            committed = committed_or_raise(outcome, ctx.store.url)
            if committed.kind == "committed" and committed.version is not None:
                return pending.result(committed.version)
    raise CommitConflictError(
        f"{ctx.store.url}: others changed the table {STARTS} times while its files were adopted. "
        "Nothing was adopted; run it again.",
        rule="contention",
        mine="adopts a folder",
        winner="others",
    )


def _open(ctx: TableContext) -> tuple[Head | None, KeyRecord | None]:
    try:
        return find_key_at(ctx, ctx.open(), KEY)
    except TableNotFoundError:
        return None, None


def _done(ctx: TableContext, head: Head, record: KeyRecord | None) -> Adoption | None:
    """The result of an earlier adoption; None: it is to be completed. [AF2]"""
    snapshot = head.snapshot
    if record is not None:
        return Adoption(
            url=ctx.store.url,
            version=record.version,
            already_adopted=True,
            partition_by=tuple(spelled(snapshot.schema, snapshot.partition_by)),
        )
    if UNFINISHED not in snapshot.properties:
        raise UsageError(
            f"{ctx.store.url} is a table already: there is nothing to do, and nothing was "
            "done. Files that lie there and are not listed are added with `add_files` of a job."
        )
    return None


def _check_source(ctx: TableContext, snapshot: Snapshot, source: Source | None) -> None:
    """UsageError if the other format's table has left the version that was adopted. [AF4]"""
    now = None if source is None else source.current(snapshot.table_id)
    adopted = snapshot.properties.get(SOURCE, "a folder of files")
    if now is not None and now != adopted:
        raise UsageError(
            f"{ctx.store.url} was adopted from {adopted}, and the other format's table there "
            f"is {now} now. This table has nothing of what was committed there since, and nothing "
            "was changed. Stop the jobs that write there; then add the files that came since with "
            "`add_files` of a job, and delete the rows that were deleted with `delete`"
        )


class _Pending:
    """One attempt: the files of the folder, and their commit."""

    def __init__(
        self,
        ctx: TableContext,
        head: Head | None,
        partition_by: Sequence[str] | None,
        gathered: SpilledFileList,
        rewrite: bool,
    ) -> None:
        self._ctx, self._head, self._gathered, self._rewrite = ctx, head, gathered, rewrite
        self._names = None if partition_by is None else tuple(partition_by)
        self._kinds: dict[str, str | None] = {}  # folder column -> the type of its values so far
        self._first: str | None = None  # the file whose folders all others must match
        self._skipped: list[SkippedFile] = []
        self._skipped_files = 0
        self._properties: dict[str, str | None] = {}  # of a table that is adopted
        self._constraints: Mapping[str, str] = {}
        known = None if head is None else head.snapshot.schema
        self._columns = Columns(ctx.new_field_id, known, nanoseconds=rewrite)
        self._union = Union(known)
        self._by: tuple[int, ...] = ()
        self._written: tuple[Entry, ...] = ()  # new files with the rows of those that are rewritten

    def gather(self, progress: Progress | None) -> None:
        """Inspect all files of the folder, by name; errors name the unfit one. Writes nothing."""
        unreadable: list[str] = []
        for _, gathered in prefetch(self._read, self._candidates(), threads=_THREADS, limit=_AHEAD):
            try:
                self._take(*gathered.result())
            except UnreadableFileError as error:
                unreadable.append(str(error))
                if len(unreadable) == _NAMED:
                    break
            else:
                self._say(progress)
        if unreadable:
            what = _NONE_READABLE if not self._gathered.files else _SOME_UNREADABLE
            raise UsageError(f"Nothing was adopted: {what}{'; '.join(unreadable)}")
        if not self._gathered.files:
            raise NotATableError(
                f"{self._ctx.store.url} holds no Parquet files to adopt. A table without "
                "files is made by create_table."
            )
        self._settle()

    def _say(self, progress: Progress | None) -> None:
        if progress is not None:
            progress(self._gathered.rows, self._gathered.bytes)

    def _candidates(self) -> Iterator[ObjectInfo]:
        own = self._head.snapshot.table_id if self._head is not None else None
        for info in data_files(self._ctx.store, self._pass_over):
            job = object_names.job_of_data_file(info.name)
            if own and job is not None and object_names.parse_job_id(job).table_id == own:
                self._pass_over(info.name, "a job of this table wrote it")
                continue
            yield info

    def _pass_over(self, name: str, reason: str) -> None:
        self._skipped_files += 1
        if len(self._skipped) < _SKIPS_KEPT:
            self._skipped.append(SkippedFile(name=name, reason=reason))

    def _read(self, info: ObjectInfo) -> tuple[Schema, FileFacts]:
        folders = _folders(self._ctx.store.url, info.name)
        return read_facts(
            self._ctx.store,
            info,
            columns_of=self._columns.of,
            folders=folders,
            partition_names=tuple(folders) if self._names is None else self._names,
            bounds_columns=DEFAULT_BOUNDS_COLUMNS,
            rewrite=self._rewrite,
        )

    def _take(self, schema: Schema, facts: FileFacts) -> None:
        path, folders = facts.path, facts.folders
        if self._names is None:
            self._names, self._first = tuple(folders), path
        elif self._first is not None and tuple(folders) != self._names:
            raise SchemaMismatchError(
                f"{path!r} lies in folders of {', '.join(folders) or 'no column'}, and "
                f"{self._first!r} in those of {', '.join(self._names) or 'no column'}. Nothing was "
                "adopted: move one of them, or name the columns with partition_by."
            )
        self._union.take(schema, path)
        inside = {field.name for field in schema.fields}
        for name in self._names:
            if name not in inside:
                if name not in folders:
                    _check_is_column(name)
                    what = (
                        "partitions the table, but neither the file nor its folders have its value"
                    )
                    raise self._mismatch(path, name, what)
                self._kinds[name] = widen(self._kinds.get(name), folders[name])
        if lost := [name for name in folders if name not in self._names and name not in inside]:
            what = "is in its folders only, and not in partition_by: it would be lost"
            raise self._mismatch(path, lost[0], what)
        self._gathered.add(facts)

    def _settle(self) -> None:
        """The table's columns and partitioning; columns of folders alone come last, as in Spark."""
        schema, names = self._union.schema, self._names or ()
        assert schema is not None
        there = {field.name for field in schema.fields}
        kinds = {name: self._kinds.get(name) or "string" for name in names if name not in there}
        added = [
            Field(id=self._columns.id_of((name,)), name=name, type=kind)
            for name, kind in kinds.items()
        ]
        after = Union(schema)
        after.take(Schema(fields=(*schema.fields, *added)), "the folders")
        assert after.schema is not None
        check_schema(after.schema)
        self._schema, self._by = after.schema, check_partition_by(after.schema, names)
        known = None if self._head is None else self._head.snapshot
        if known is not None and known.partition_by != self._by:
            before = ", ".join(spelled(known.schema, known.partition_by))
            raise UsageError(
                f"{self._ctx.store.url}: an earlier call began to adopt this folder as a table "
                f"that is partitioned by {before or 'nothing'}; say the same now. Nothing was "
                "adopted."
            )

    def _mismatch(self, path: str, column: str, what: str) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"{self._ctx.store.url}/{path}: column {column!r} {what}. Nothing was adopted."
        )

    def commit(self) -> Outcome | None:
        """The outcome; None: the table has changed, start again. [CM1]"""
        # refuse everything that can be refused before there is a table
        for file in chain.from_iterable(self._gathered) if self._by else ():
            self._partition(file)
        head = self._head
        if head is None:
            head = create_table(
                self._ctx,
                schema=self._schema,
                partition_by=self._by,
                properties={UNFINISHED: "its files are not listed yet"},
                constraints=self._bound(),
            )
            if head.snapshot.schema != self._schema:
                # another writer created it: its columns have other ids, and a commit would conflict
                return None
        job = self._ctx.new_job(head)
        self._written = self._rewritten(head, job) if self._gathered.rewritten else ()
        overwrite, references = None, tuple[ManifestRef, ...]()
        if head.snapshot.totals.files:
            entries = self._unlisted(head, job)
        else:
            entries, references = self._staged(job)
            # the table was empty, so no path in these manifests can be live
            overwrite = Overwrite(scope=({},), conflict="fail")
        change = self._change(head, job, entries + self._written, references, overwrite)
        outcome = commit(self._ctx, head, change)
        rule = outcome.conflict.rule if outcome.conflict is not None else ""
        return None if rule in ("partition_is_filled", "path_is_live", "schema") else outcome

    def _bound(self) -> dict[str, Constraint]:
        """The constraints that the other table had. UsageError for what would be lost."""
        if not self._constraints:
            return {}
        try:
            bound = gate().bind(self._ctx, self._constraints, self._schema)
        except UsageError as error:
            raise UsageError(f"{self._ctx.store.url}: {error}. Drop it in Delta first") from None
        return bound

    def result(self, version: int) -> Adoption:
        """The result for the caller."""
        gathered = self._gathered
        return Adoption(
            url=self._ctx.store.url,
            version=version,
            already_adopted=False,
            files=gathered.files,
            rows=gathered.rows,
            bytes=gathered.bytes,
            partition_by=self._names or (),
            skipped=tuple(self._skipped),
            skipped_files=self._skipped_files,
            rewritten_files=gathered.rewritten,
        )

    def _change(
        self,
        head: Head,
        job: str,
        add: tuple[Entry, ...],
        references: tuple[ManifestRef, ...],
        overwrite: Overwrite | None,
    ) -> Write:
        files, new, edits = self._gathered, self._written, tuple[SchemaEdit, ...]()
        if head.snapshot.schema != self._schema:  # columns beyond those it was created with
            edits = fit(head.snapshot.schema, self._schema, merge=True, converted=False)
        return Write(
            job=job,
            birth=head.version,
            operation="adopt",
            key=KEY,
            declared=declaration(mode="adopt", scope=None, advances=(), fingerprint=None),
            schema=self._schema,
            partition_by=self._by,
            edits=edits,
            add=add,
            add_manifests=references,
            touched=({},),
            overwrite=overwrite,
            properties={UNFINISHED: None, **self._properties},
            summary=Summary(
                rows_read=files.rows,
                bytes_read=files.bytes,
                files_written=files.files - files.rewritten + len(new),
                rows_written=files.rows,
                bytes_written=files.bytes - files.rewritten_bytes + sum(each.bytes for each in new),
            ),
        )

    def _staged(self, job: str) -> tuple[tuple[Entry, ...], tuple[ManifestRef, ...]]:
        """The entries, or if many manifests of them, one in memory at a time. [CM12]"""
        budgets, references = self._ctx.tuning.budgets, []
        shape = Partitioned(self._schema, self._by)
        for files in self._gathered:
            entries = tuple(self._entry(file, job) for file in files if not file.rewrite)
            if len(files) == self._gathered.files and not entries_overflow(entries, budgets):
                return entries, ()
            made = put_manifest(self._ctx.store, entries, shape, job=job, env=self._ctx.env)
            references.append(made)
        return (), tuple(references)

    def _unlisted(self, head: Head, job: str) -> tuple[Entry, ...]:
        """All entries whose files the table does not list, as other jobs wrote to it first."""
        entries = entries_table(self._ctx, head.snapshot, in_order=False)
        listed, files = set(entries.column("path").to_pylist()), chain.from_iterable(self._gathered)
        unlisted = (each for each in files if each.path not in listed and not each.rewrite)
        return tuple(self._entry(each, job) for each in unlisted)

    def _rewritten(self, head: Head, job: str) -> tuple[Entry, ...]:
        """The entries of new files with the rows of those that are rewritten. [AF2] [DF1]"""
        url, schema, by = self._ctx.store.url, self._schema, self._by
        plan = plan_for(head.snapshot, url=url, job=job, schema=schema, partition_by=by)
        attempt = self._ctx.env.randomness(8).hex()
        with DataFileWriter(self._ctx.store, plan, task=0, attempt=attempt) as writer:
            for file in chain.from_iterable(self._gathered):
                for batch in self._rows(file.path) if file.rewrite else ():
                    writer.write(self._with_partition(file, batch))
            return writer.close()

    def _rows(self, path: str) -> Iterator[pa.RecordBatch]:
        """The rows of a file, under the names of the table."""
        return read_rows(self._ctx.store, path)

    def _with_partition(self, file: FileFacts, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the partition columns that their file lacks."""
        fields = {field.id: field for field in self._schema.fields}
        for field, value in zip(map(fields.get, self._by), self._partition(file), strict=True):
            if field is not None and field.name not in batch.schema.names:  # None: a transform
                column = to_array([value] * batch.num_rows, field.type)
                batch = batch.append_column(field.name, column)
        return batch

    def _entry(self, file: FileFacts, job: str) -> Entry:
        tracked = {leaf.id for leaf in leaves(self._schema)[:DEFAULT_BOUNDS_COLUMNS]}
        columns = {id: stats for id, stats in file.columns.items() if id in tracked}
        return Entry(
            path=file.path,
            partition=self._partition(file),
            rows=file.rows,
            bytes=file.bytes,
            footer=file.footer,
            job=job,
            columns=columns,
        )

    def _partition(self, file: FileFacts) -> tuple[WireValue, ...]:
        """The partition columns' values, from file or folders, which must agree. [AF2]"""
        return tuple(map(partial(self._value, file), self._by, spelled(self._schema, self._by)))

    def _value(self, file: FileFacts, field_id: int, name: str) -> WireValue:
        if name in file.inside:
            value = file.inside[name]
            if field_id <= MAX_FIELD_ID and not agrees(self._schema, field_id, file.folders, value):
                what = f"holds {value!r} where its folder says {file.folders[name]!r}"
                raise self._mismatch(file.path, name, what)
            return value
        if name not in file.folders or field_id > MAX_FIELD_ID:
            return None  # anything is true of a file without rows
        try:
            return parse(self._schema, field_id, file.folders[name])
        except UsageError as error:
            what = f"cannot have what its folder says: {error}"
            raise self._mismatch(file.path, name, what) from error


def _check_is_column(name: str) -> None:
    """UsageError if it is a transform of a column. [PT4]"""
    if parse_call(name) is not None:
        raise UsageError(
            f"partition_by: files are adopted by the values of columns, not of transforms such as "
            f"{name}. Nothing was adopted; leave it out, or write the rows to a new table"
        )


class _Listed(_Pending):
    """One attempt with the files of another format's table, which says what they hold. [AF4]"""

    def __init__(
        self, ctx: TableContext, head: Head | None, gathered: SpilledFileList, listed: ListedTable
    ) -> None:
        by = spelled(listed.schema, listed.partition_by)
        super().__init__(ctx, head, by, gathered, rewrite=False)  # the source has decided it
        self._listed = listed
        self._unknown: set[str] = set()  # names in files of columns that the table does not have
        self._properties = {SOURCE: listed.version}
        self._constraints = listed.constraints

    def gather(self, progress: Progress | None) -> None:
        """Inspect every listed file; errors name the unfit file. Nothing is written."""
        check_not_inside(self._ctx.store)
        self._schema, self._by = self._listed.schema, self._listed.partition_by
        files = self._listed.files
        for _, inspected in prefetch(self._inspect, files, threads=_THREADS, limit=_AHEAD):
            self._gathered.add(inspected.result())
            self._say(progress)
        retired = tuple(sorted(self._unknown))
        self._schema = msgspec.structs.replace(self._schema, retired=retired)
        check_schema(self._schema)

    def _rows(self, path: str) -> Iterator[pa.RecordBatch]:
        return map(self._listed.named, super()._rows(path))

    def _inspect(self, file: ListedFile) -> FileFacts:
        store, path, schema = self._ctx.store, file.path, self._listed.schema
        if file.rewrite:
            rows = count_fitting(f"{store.url}/{path}", self._rows(path), schema)
            entry = Entry(path=path, partition=file.partition, rows=rows, bytes=file.bytes, job="")
        else:
            entry = inspect_file(
                store,
                path,
                schema=schema,
                partition_by=self._listed.partition_by,
                job="",
                partition=file.partition,
                bounds_columns=DEFAULT_BOUNDS_COLUMNS,
                unknown=self._unknown,
            )
        return FileFacts(
            path=path,
            rows=entry.rows,
            bytes=entry.bytes,
            footer=entry.footer,
            columns=dict(entry.columns),
            inside=dict(zip(self._names or (), entry.partition, strict=True)),
            rewrite=file.rewrite,
        )


def _folders(url: str, path: str) -> dict[str, str | None]:
    try:
        return folder_values(path)
    except ValueError as error:
        raise SchemaMismatchError(
            f"{url}/{path} lies in folders that name no partition: {error}. Nothing was adopted."
        ) from None
