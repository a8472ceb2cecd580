"""A folder of Parquet files becomes a table, where it is: each file is looked at, none is moved or rewritten, one commit lists all. [AF2]

First every footer is read, and nothing is written; then version 1 is created, which says in a property that the adoption is unfinished, and
the next commit lists the files and takes that property away. A rerun after a crash between the two goes on under the same table.
Not here: which files count (engine.folder), what is in one (engine.inspect), how their columns unite (engine.union).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from ..core import format, hive, spill
from ..core.change import Change, Overwrite, declaration
from ..core.evolution import SchemaEdit, fit, leaves
from ..core.manifest import Entry, ManifestRef, WireValue
from ..core.partition import check_partition_by
from ..core.schema import Field, Schema, check_schema
from ..core.snapshot import KeyRecord, Snapshot, Summary
from ..errors import CommitConflictError, NotATableError, SchemaMismatchError, TableNotFoundError, UsageError
from ..store import ObjectInfo
from .at_once import ahead
from .commit import commit, create_table
from .files import DEFAULT_BOUNDS_COLUMNS
from .folder import data_files
from .gathered import Gathered, GatheredFile
from .head import Head
from .inspect import FileFacts, UnreadableFileError, read_facts
from .lookup import find_key_at
from .manifests import write_manifest
from .outcome import Outcome, committed_or_raise
from .plan import entries_table
from .session import Session
from .union import Columns, Union

KEY = "manifestcommit.adopt"  # of the commit that lists the files
UNFINISHED = "manifestcommit.adoption"  # a property, as long as they are not listed
_THREADS = 16
_AHEAD = 64  # files that are being read, or were read and wait for an earlier one
_NAMED = 10  # files that an error names
_SKIPS_KEPT = 100
_TRIES = 5

Progress = Callable[[int, int], None]  # rows, files so far


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the folder that is none of the table's. name: relative to the root."""

    name: str
    reason: str


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a folder. version: that lists its files; already_adopted: an earlier call did it, and this one changed nothing;
    files, rows, bytes: that were adopted; skipped: the first 100 files that were passed over, of skipped_files. [AF2]"""

    url: str
    version: int
    already_adopted: bool
    files: int = 0
    rows: int = 0
    bytes: int = 0
    partition_by: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    skipped_files: int = 0


def adopt(session: Session, *, partition_by: Sequence[str] | None = None, progress: Progress | None = None) -> Adoption:
    """Make a table of the Parquet files of a folder in one commit, where they are; none is moved, rewritten or deleted. [AF2]

    partition_by: the columns that partition it, by default those of the folders. A crash at any point leaves no table, or one that the
    next call completes; from the commit on, each call finds it done. Anything that is unfit raises before a table is made.
    """
    for _ in range(_TRIES):
        head, record = _open(session)
        if head is not None and (done := _done(session, head, record)) is not None:
            return done
        with Gathered() as gathered:
            pending = _Pending(session, head, partition_by, gathered)
            pending.gather(progress)
            outcome = pending.commit()
        if outcome is not None:
            found = committed_or_raise(outcome, session.store.url)
            if found.kind == "committed" and found.version is not None:
                return pending.told(found.version)
    raise CommitConflictError(
        f"{session.store.url}: others changed the table {_TRIES} times while its files were adopted. Nothing was adopted; run it again.",
        rule="contention", mine="adopts a folder", winner="others",
    )  # fmt: skip


def _open(session: Session) -> tuple[Head | None, KeyRecord | None]:
    try:
        return find_key_at(session, session.open(), KEY)
    except TableNotFoundError:
        return None, None


def _done(session: Session, head: Head, record: KeyRecord | None) -> Adoption | None:
    """What is there already; None where an adoption is to be completed. [AF2]"""
    snapshot = head.snapshot
    if record is not None:
        return Adoption(url=session.store.url, version=record.version, already_adopted=True, partition_by=_names(snapshot))
    if UNFINISHED not in snapshot.properties:
        raise UsageError(
            f"{session.store.url} is a table already: there is nothing to do, and nothing was done. Files that lie there and are not "
            "listed are added with `add_files` of a job."
        )
    return None


def _names(snapshot: Snapshot) -> tuple[str, ...]:
    by_id = {field.id: field.name for field in snapshot.schema.fields} if snapshot.schema else {}
    return tuple(by_id[each] for each in snapshot.partition_by)


class _Pending:
    """One attempt: what was found in the folder, and how it is committed."""

    def __init__(self, session: Session, head: Head | None, partition_by: Sequence[str] | None, gathered: Gathered) -> None:
        self._session = session
        self._head = head
        self._names = None if partition_by is None else tuple(partition_by)
        self._gathered = gathered
        self._kinds: dict[str, str | None] = {}  # folder column -> the type that its values have so far
        self._first: str | None = None  # the file whose folders the others' must be like
        self._skipped: list[Skipped] = []
        self._skipped_files = 0
        known = head.snapshot.schema if head is not None else None
        self._columns = Columns(session.new_field_id, known)
        self._union = Union(known)
        self._by: tuple[int, ...] = ()

    # --- looking at the files ---------------------------------------------------------------------------------------------

    def gather(self, progress: Progress | None) -> None:
        """Every file of the folder, in the order of names; an error that names what is unfit. Nothing is written."""
        unreadable: list[str] = []
        for info, found in ahead(self._read, self._candidates(), threads=_THREADS, most=_AHEAD):
            try:
                facts = found.result()
            except UnreadableFileError as error:
                unreadable.append(str(error))
                if len(unreadable) == _NAMED:
                    break
                continue
            self._take(info.name, facts)
            if progress is not None:
                progress(self._gathered.rows, self._gathered.files)
        if unreadable:
            raise UsageError(
                "Nothing was adopted: a table's folder holds Parquet files only. Move these away, or give them a name that begins with _. "
                + "; ".join(unreadable)
            )
        if not self._gathered.files:
            raise NotATableError(
                f"{self._session.store.url} holds no Parquet files to adopt. A table without files is made by create_table."
            )
        self._settle()

    def _candidates(self) -> Iterator[ObjectInfo]:
        own = self._head.snapshot.table_id if self._head is not None else None
        for info in data_files(self._session.store, self._pass_over):
            job = format.job_of_data_file(info.name)
            if own is not None and job is not None and format.parse_job_id(job).table_id == own:
                self._pass_over(info.name, "a job of this table wrote it")
                continue
            yield info

    def _pass_over(self, name: str, reason: str) -> None:
        self._skipped_files += 1
        if len(self._skipped) < _SKIPS_KEPT:
            self._skipped.append(Skipped(name=name, reason=reason))

    def _read(self, info: ObjectInfo) -> FileFacts:
        names = _folders(self._session.store.url, info.name) if self._names is None else self._names
        return read_facts(
            self._session.store, info, columns_of=self._columns.of, partition_names=tuple(names), bounds_columns=DEFAULT_BOUNDS_COLUMNS
        )

    def _take(self, path: str, facts: FileFacts) -> None:
        folders = _folders(self._session.store.url, path)
        if self._names is None:
            self._names, self._first = tuple(folders), path
        elif self._first is not None and tuple(folders) != self._names:
            raise SchemaMismatchError(
                f"{path!r} lies in folders of {', '.join(folders) or 'no column'}, and {self._first!r} in those of "
                f"{', '.join(self._names) or 'no column'}. Nothing was adopted: move one of them, or name the columns with partition_by."
            )
        self._union.take(facts.schema, path)
        inside = {field.name for field in facts.schema.fields}
        for name in self._names:
            if name not in inside:
                if name not in folders:
                    raise self._mismatch(path, name, "partitions the table, but neither the file nor its folders tell its value")
                self._kinds[name] = hive.widen(self._kinds.get(name), folders[name])
        if lost := [name for name in folders if name not in self._names and name not in inside]:
            raise self._mismatch(path, lost[0], "stands in its folders only, and is not among those of partition_by: it would be lost")
        self._gathered.add(
            GatheredFile(path=path, rows=facts.rows, bytes=facts.bytes, columns=facts.columns, inside=facts.inside, folders=folders)
        )

    def _settle(self) -> None:
        """The table's columns and partitioning; those that stand in folders only come last, as in Spark."""
        schema, names = self._union.schema, self._names or ()
        assert schema is not None
        there = {field.name for field in schema.fields}
        missing = [name for name in names if name not in there]
        added = (Field(id=self._columns.id_of((name,)), name=name, type=self._kinds.get(name) or "string") for name in missing)
        after = Union(schema)
        after.take(Schema(fields=(*schema.fields, *added)), "the folders")
        assert after.schema is not None
        check_schema(after.schema)
        self._schema = after.schema
        self._by = check_partition_by(self._schema, names)
        head = self._head
        if head is not None and head.snapshot.partition_by != self._by:
            raise UsageError(
                f"{self._session.store.url}: an earlier call began to adopt this folder as a table that is partitioned by "
                f"{', '.join(_names(head.snapshot)) or 'nothing'}; say the same now. Nothing was adopted."
            )

    def _mismatch(self, path: str, column: str, what: str) -> SchemaMismatchError:
        return SchemaMismatchError(f"{self._session.store.url}/{path}: column {column!r} {what}. Nothing was adopted.")

    # --- listing them -------------------------------------------------------------------------------------------------------

    def commit(self) -> Outcome | None:
        """The outcome; None: the table is another one by now, look again. [CM1]"""
        self._check_partitions()  # all that can be refused is refused before there is a table
        head = self._head
        if head is None:
            head = create_table(
                self._session, schema=self._schema, partition_by=self._by, properties={UNFINISHED: "its files are not listed yet"}
            )
            if head.snapshot.schema != self._schema:
                return None  # someone else made it: its columns have other ids, and a commit would conflict
        job = self._session.new_job(head)
        edits = self._edits(head)
        if head.snapshot.totals.files:
            outcome = commit(self._session, head, self._change(head, job, edits, self._unlisted(head, job), ()))
        else:
            entries, references = self._staged(job)
            empty = Overwrite(scope=({},), conflict="fail")  # of an empty table: no path can be live that these manifests list
            outcome = commit(self._session, head, self._change(head, job, edits, entries, references, empty))
        rule = outcome.conflict.rule if outcome.conflict is not None else ""
        return None if rule in ("partition_is_filled", "path_is_live", "schema") else outcome

    def told(self, version: int) -> Adoption:
        """What the caller is told of a commit."""
        gathered = self._gathered
        return Adoption(
            url=self._session.store.url, version=version, already_adopted=False, files=gathered.files, rows=gathered.rows,
            bytes=gathered.bytes, partition_by=self._names or (), skipped=tuple(self._skipped), skipped_files=self._skipped_files,
        )  # fmt: skip

    def _edits(self, head: Head) -> tuple[SchemaEdit, ...]:
        """What a later look at the folder found beyond the columns that the table was made with."""
        assert head.snapshot.schema is not None
        return () if head.snapshot.schema == self._schema else fit(head.snapshot.schema, self._schema, merge=True)

    def _change(
        self, head: Head, job: str, edits: tuple[SchemaEdit, ...], add: tuple[Entry, ...], references: tuple[ManifestRef, ...],
        overwrite: Overwrite | None = None,
    ) -> Change:  # fmt: skip
        found = self._gathered
        return Change(
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
            properties={UNFINISHED: None},
            summary=Summary(
                rows_read=found.rows, bytes_read=found.bytes, files_written=found.files, rows_written=found.rows, bytes_written=found.bytes
            ),
        )

    def _staged(self, job: str) -> tuple[tuple[Entry, ...], tuple[ManifestRef, ...]]:
        """The entries, or manifests of them where they are many: in the memory of one manifest at a time. [CM12]"""
        references = []
        for files in self._gathered:
            entries = tuple(self._entry(each, job) for each in files)
            if len(entries) == self._gathered.files and not spill.entries_overflow(entries):
                return entries, ()
            references.append(
                write_manifest(
                    self._session.store, entries, schema=self._schema, partition_by=self._by, job=job, env=self._session.env
                )
            )  # fmt: skip
        return (), tuple(references)

    def _unlisted(self, head: Head, job: str) -> tuple[Entry, ...]:
        """All entries whose files the table does not list: others wrote into it before its adoption was completed."""
        listed = set(entries_table(self._session, head.snapshot, in_order=False).column("path").to_pylist())
        return tuple(self._entry(each, job) for files in self._gathered for each in files if each.path not in listed)

    def _entry(self, found: GatheredFile, job: str) -> Entry:
        tracked = {leaf.id for leaf in leaves(self._schema)[:DEFAULT_BOUNDS_COLUMNS]}
        columns = {each: stats for each, stats in found.columns.items() if each in tracked}
        return Entry(path=found.path, partition=self._partition(found), rows=found.rows, bytes=found.bytes, job=job, columns=columns)

    def _check_partitions(self) -> None:
        if self._by:
            for files in self._gathered:
                for each in files:
                    self._partition(each)

    def _partition(self, found: GatheredFile) -> tuple[WireValue, ...]:
        """The values of the partition columns: those in the file, else those of its folders; both agree where there are both. [AF2]"""
        by_id = {field.id: field.name for field in self._schema.fields}
        return tuple(self._value(found, each, by_id[each]) for each in self._by)

    def _value(self, found: GatheredFile, field_id: int, name: str) -> WireValue:
        if name in found.inside:
            value = found.inside[name]
            if not hive.agrees(self._schema, field_id, found.folders, value):
                raise self._mismatch(found.path, name, f"holds {value!r} where its folder says {found.folders[name]!r}")
            return value
        if name not in found.folders:
            return None  # a file without rows: whatever is said of them is true
        try:
            return hive.parse(self._schema, field_id, found.folders[name])
        except UsageError as error:
            raise self._mismatch(found.path, name, f"cannot have what its folder says: {error}") from error


def _folders(url: str, path: str) -> dict[str, str | None]:
    try:
        return hive.folder_values(path)
    except ValueError as error:
        raise SchemaMismatchError(f"{url}/{path} lies in folders that tell no partition: {error}. Nothing was adopted.") from None
