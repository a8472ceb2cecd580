"""One process' view of one table: the store, the environment, and what is known already. [CM11]

This value holds everything that the engine's functions share.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, pairwise
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from ..errors import (
    CorruptMetadataError,
    NotATableError,
    SnapshotExpiredError,
    StoreDeniedError,
    StoreError,
    TableNotFoundError,
)
from ..format import object_names
from ..format.change import Change, Position, Write
from ..format.fields import Schema
from ..format.snapshot import Author, Commit, Constraint, KeyRecord, Note, Snapshot, allowed, is_far
from ..protocol.conflict import Violation
from ..protocol.joint_outcome import is_part
from ..runtime.environment import Env, Tuning
from ..runtime.environment import tuning as process_tuning
from ..runtime.outcome import StoreCounters
from ..store import ObjectInfo, Store
from ..version import WRITER
from . import registry
from .manifests import KEY_RUN, ManifestReader
from .version_chain import (
    Head,
    VersionListing,
    list_above,
    misplaced,
    open_head,
    read_object,
    read_version,
    walk_back,
)

LOG = logging.getLogger("manifestcommit.jobs")
_SLOW_PROOF_S = 2.0
_SLOW_PROOF = (
    "%r: testing whether a create has one winner on this store, once before the first commit. "
    "Servers that keep creators of one name waiting take 10 s and more"
)

_NO_NOTE = Note()
_Change = TypeVar("_Change", bound=Change)
_Found = TypeVar("_Found")


# table id -> the URL and the version that this process has read last, and has not committed since
LATEST_READ: dict[str, tuple[str, int]] = {}
_MOST_READ = 1000
# tables of one store whose newest version this process keeps, and bytes of each
_MOST_KEPT = 32
_LARGEST_KEPT = 64 * 1024


class Gate(Protocol):
    """What checks rows against constraints, above the engine: `gate.rows`. [CK2]"""

    RowChecks: Any  # of a plan, which is from above, too

    def bind(
        self, ctx: TableContext, conditions: Mapping[str, str], schema: Schema, /
    ) -> dict[str, Constraint]: ...
    def check_schema(self, snapshot: Snapshot, schema: Schema, /) -> None: ...
    def check_change(
        self, ctx: TableContext, head: Snapshot, change: Write, names: Sequence[str], /
    ) -> Violation | None: ...
    def first_violation(
        self, ctx: TableContext, snapshot: Snapshot, constraints: Mapping[str, Constraint], /
    ) -> Violation | None: ...
    def texts_of(self, snapshot: Snapshot, /) -> dict[str, str]: ...


def gate() -> Gate:
    """The registered gate, loaded for a table with constraints. RuntimeError without one."""
    found: Gate = registry.registered("gate")()
    return found


class TableContext:
    """A store with its environment, a manifest cache, and the newest version that this process has
    seen. Not shared between threads. note: what the caller says of the commits that are made with
    it; author: who makes them, if not this process."""

    def __init__(
        self,
        store: Store,
        env: Env | None = None,
        tuning: Tuning | None = None,
        *,
        note: Note = _NO_NOTE,
        author: Author | None = None,
    ) -> None:
        self.store = store
        self._tuning = tuning
        # a simulated store brings its own environment
        self.env: Env = env or getattr(store, "env", None) or Env()
        self.manifests = ManifestReader(store)
        self.known: Head | None = None  # the newest version that it has seen
        self._has_proven = False
        self.writer = WRITER
        self.note = note
        self.author = author
        self._warned: set[str] = set()

    @cached_property
    def tuning(self) -> Tuning:
        """What commits of this table are tuned by: what was passed in, or the process' values."""
        return self._tuning or process_tuning()

    def learn(self, head: Head) -> Head:
        """Keep the newest version as known; where the store keeps such, for the whole process."""
        self.known, kept = head, self.store.heads
        if kept is not None:
            kept.pop(self.store.url, None)
            if head.etag and len(head.data) <= _LARGEST_KEPT:
                for oldest in list(kept)[: max(0, len(kept) + 1 - _MOST_KEPT)]:
                    kept.pop(oldest, None)
                kept[self.store.url] = head
        return head

    @cached_property
    def tally(self) -> StoreCounters:
        """Counts what its commits ask of the store."""
        return StoreCounters(self.store, self.env.now_us)

    def new_field_id(self) -> int:
        """A random field id; the caller ensures that no two fields of a schema share one. [SC1]"""
        return (int.from_bytes(self.env.randomness(4), "big") & 0x7FFFFFFF) or 1

    def new_job(self, head: Head) -> str:
        """A new unique id of a job whose base version is this head. [LY4] [CM15]"""
        return object_names.job_id(head.version, head.snapshot.table_id, self.env.randomness(16))

    def noting(self, message: str | None, metadata: Mapping[str, str] | None) -> TableContext:
        """This context for one call, whose commits carry this note; it shares caches. [OB15]"""
        if message is None and metadata is None:
            return self
        other = copy.copy(self)
        other.note = Note(message=message, metadata=dict(metadata or {}))
        return other

    def at(self, store: Store) -> TableContext:
        """A context of another table, for what this process does there on behalf of this one. Its
        commits carry no note. [MT9]"""
        return TableContext(store, self.env, self._tuning, author=self.author)

    def signed(self, change: _Change, properties: Mapping[str, str]) -> _Change:
        """The change with what the caller says of it, and who makes it, as far as a table with
        these properties records that. [OB15]"""
        return msgspec.structs.replace(
            change,
            message=self.note.message,
            metadata=self.note.metadata,
            author=allowed(self.who(), properties),
        )

    def signing_as(self, change: Change) -> TableContext:
        """This context for what the process that signed this change began. [OB15]"""
        other = copy.copy(self)
        other.note = Note(message=change.message, metadata=change.metadata)
        other.author = change.author or Author()
        return other

    def who(self) -> Author:
        """Who makes the changes that this process commits. [OB15]"""
        return self.env.author() if self.author is None else self.author

    def prove(self, proven: Sequence[str]) -> None:
        """Check that put-if-absent on this store has one winner; UnsafeStoreError otherwise, before
        anything is written. [ST7] [ST12] proven: the stores that the table's latest version records
        as proven. On any other store (a new table, a copy on another store) concurrent
        put-if-absent probes run once."""
        if self.store.identity and self.store.identity not in proven and not self._has_proven:
            from ..store.doctor import prove

            slow = threading.Timer(_SLOW_PROOF_S, LOG.warning, (_SLOW_PROOF, self.store.url))
            slow.daemon = True
            slow.start()
            try:
                prove(self.store)
            finally:
                slow.cancel()
            self._has_proven = True

    def commit_time_us(self, parent_us: int) -> int:
        """The time of a commit: this clock, or the store's if both disagree. [CM14] [CM27]"""
        now_us, told_s = self.env.now_us(), self.store.now_s
        if told_s is not None and is_far(now_us, store_us := int(told_s * 1e6)):
            self._warn_once(
                "clock",
                f"this machine's clock is {_apart(now_us, store_us)} the store's, whose time is "
                "used. Synchronize this machine's clock (NTP)",
            )
            now_us = store_us
        if parent_us > now_us and is_far(now_us, parent_us):
            self._warn_once(
                "parent",
                "the newest version says that it was committed later than now, by a clock that is "
                f"{_apart(parent_us, now_us)} this one. One of them is wrong. Versions say the "
                "same time until then, so that as_of cannot choose between them: use version=",
            )
        return now_us

    def note_read(self, snapshot: Snapshot) -> None:
        """The caller gets the latest rows, which an overwrite may be computed from. [CF17]"""
        while len(LATEST_READ) >= _MOST_READ:
            del LATEST_READ[next(iter(LATEST_READ))]
        LATEST_READ[snapshot.table_id] = self.store.url, snapshot.version

    def check_read(self, table_id: str, base_version: int) -> None:
        """Warn where an overwrite, whose rows do not say from which version they are, begins at a
        later one than this process has read last. [CF17]"""
        url, version = LATEST_READ.get(table_id, ("", 0))
        if url == self.store.url and version < base_version:
            self._warn_once(
                "read",
                f"this process has read version {version}, and others have committed since. The "
                "rows of this overwrite do not say which version they were computed from (joins, "
                "group_by, concat_tables and other libraries lose it): if it is that one, what was "
                f"committed since is lost. Pass based_on={version} to be safe",
            )

    def _warn_once(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            LOG.warning("%r: %s", self.store.url, text)

    def open(self) -> Head:
        """The latest version as of this call. Three requests, of which two go side by side; one
        where the last one that this context has seen is still the latest, or, where the store
        keeps that, the last one that this process has seen. [RD1]"""
        known = self.known or (self.store.heads or {}).get(self.store.url)
        return self.learn(open_head(self.store, known))


def _apart(mine_us: int, other_us: int) -> str:
    hours = (mine_us - other_us) / 3.6e9
    return f"{abs(hours):,.1f} hours {'ahead of' if hours > 0 else 'behind'}"


# Whether a table may be created at a path: not in a folder of plain files, not inside or around
# another table. [LY6] And whether the path was deleted while a job ran, or has another table now.


def check_same_root(ctx: TableContext, base: Head, mine: Head, above: VersionListing) -> None:
    """Check that what a job created belongs to its own table, and not to another one that was
    created at the same path, where its own marker is not the only one. above: a listing made since.
    [CM5] [LY10] The base version must be unchanged, unless it may have expired since."""
    wrong = misplaced(ctx.store.url, mine.snapshot, above.tables)
    stored = read_object(ctx.store, base.version)
    if stored is None and (wrong is not None or above.versions[-1] <= mine.version):
        raise removed(ctx, base, mine)
    if stored is not None and stored.digest != base.digest:
        raise removed(ctx, base, mine)
    if wrong is not None:
        raise wrong


def is_removed(ctx: TableContext, base: Head) -> bool:
    """Whether both the marker of the base version's table and the base version itself are gone, so
    that a problem concerns another table. [LY14]"""
    if misplaced(ctx.store.url, base.snapshot, list_above(ctx.store, base.version).tables) is None:
        return False
    stored = read_object(ctx.store, base.version)
    return stored is None or stored.digest != base.digest


def removed(ctx: TableContext, base: Head, mine: Head | None) -> Exception:
    """Raise the error of a removed table, but only if the table is removed: a wrong listing must
    not lead anyone to delete a table in use. [CM5] mine: what this job has created, if anything.
    The error names it only if it exists and is not a version of another table."""
    url = ctx.store.url
    stored = read_object(ctx.store, base.version)
    if stored is not None and stored.digest == base.digest:
        text = f"the store's list does not show version {base.version}, which is there"
        return StoreError(f"{url}: {text}")
    left = read_object(ctx.store, mine.version) if mine is not None else None
    if mine is None or left is None or left.digest != mine.digest:
        text = f"the table at {url} was removed while this job committed"
        return TableNotFoundError(f"{text}; nothing of it counts. Run it again.")
    name = object_names.version_name(mine.version)
    what = (
        "the table that is there now skips it. Leave it there, and run the job again."
        if _is_skipped(ctx.store, mine)
        else "as long as it is, no table can be created there. Delete that object by hand while no "
        "other job runs, and run the job again."
    )
    return TableNotFoundError(
        f"the table at {url} was removed while this job committed. Nothing of the job counts; "
        f"{name}, which it created, is there, and {what}"
    )


def _is_skipped(store: Store, mine: Head) -> bool:
    """Whether another table is there, whose readers and writers skip this object. [LY15]"""
    try:
        return open_head(store, is_member_too=True).snapshot.table_id != mine.snapshot.table_id
    except (CorruptMetadataError, TableNotFoundError):
        return False


# Recognizes tables of other formats by the names of their logs: their folders hold files that are
# no longer live.

_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
_HUDI_PARTITION = ".hoodie_partition_metadata"  # in each folder of its files
_ADOPTED = {"Delta Lake": "delta", "Iceberg": "iceberg"}
_ICEBERG = re.compile(r"(?:(.*)/)?metadata/[^/]*\.metadata\.json(?:\.gz)?")


class OtherFormat(msgspec.Struct, frozen=True, kw_only=True):
    """inner: the folder of that table, relative to the table path; name: of the format; log: the
    folder that identifies it."""

    inner: str
    name: str
    log: str

    def said_of(self, store: Store) -> str:
        """Describe where it is, and its format."""
        return f"{f'{store.url}/{self.inner}'.rstrip('/')} is a table of {self.name}"

    def remedy(self, store: Store) -> str:
        """What to do instead of adopting its folder as plain files."""
        if self.name not in _ADOPTED:
            return "Read it with its own reader, and write the rows to a new table."
        where = f"{store.url}/{self.inner}".rstrip("/")
        return (
            f"Adopt the table itself: manifestcommit.Table({where!r}).adopt(from_="
            f"{_ADOPTED[self.name]!r}), or read it with its own reader, and write the rows to a "
            "new table."
        )


def format_of(name: str) -> OtherFormat | None:
    """The format whose log has an object of this name; None: no format."""
    parts = name.split("/")
    if parts[-1] == _HUDI_PARTITION:
        return OtherFormat(inner="/".join(parts[:-1]), name="Hudi", log=_HUDI_PARTITION)
    for at, part in enumerate(parts[:-1]):
        if part in _LOGS:
            return OtherFormat(inner="/".join(parts[:at]), name=_LOGS[part], log=part)
    if (match := _ICEBERG.fullmatch(name)) is None:
        return None
    return OtherFormat(inner=match[1] or "", name="Iceberg", log="metadata")


def format_at(store: Store) -> OtherFormat | None:
    """The format of the table here; None: there is none. One list for each format."""
    names = (info.name for log in (*_LOGS, "metadata") for info in store.list(f"{log}/"))
    return next(filter(None, map(format_of, names)), None)


_LOOKED_AT = 1000  # names to examine for a better error message


def open_or_free(ctx: TableContext) -> Head | None:
    """Open the table; None if one may be created, else NotATableError. [LY6] [CM13]"""
    with contextlib.suppress(TableNotFoundError):
        return ctx.open()
    try:
        check_free_root(ctx.store)
    except NotATableError:
        # another writer may have created the table in the meantime
        with contextlib.suppress(TableNotFoundError):
            return ctx.open()
        raise
    return None


def check_free_root(store: Store) -> None:
    """NotATableError unless a table may be made here. A list, and one per parent. [LY6]"""
    for info in store.list(""):
        inner, _, rest = info.name.partition(f"/{object_names.VERSIONS}")
        if (other := format_of(info.name)) is not None:
            raise _of_another_format(store, other)
        version = f"{object_names.VERSIONS}{rest}" if rest else ""
        is_version = object_names.parse_version(version) is not None
        # names that every reader of a folder skips, such as _SUCCESS or .DS_Store
        if not is_version and any(part.startswith(("_", ".")) for part in info.name.split("/")):
            continue
        around = inner if is_version else _table_around(store, info.name)
        if around is not None:
            text = f"{store.url} has a table inside it, at {around!r}; tables do not nest"
            raise NotATableError(f"{text}. Choose a path beside it.")
        if (other := format_at(store)) is not None:
            raise _of_another_format(store, other)
        or_else = "; adopting takes a folder of Parquet files, and this is another folder"
        if _holds_parquet(store, info):
            or_else = ", or make a table of these files, where they are: Table.adopt, or "
            or_else += "`manifestcommit adopt`"
        raise NotATableError(
            f"{store.url} holds files already (the first is {info.name!r}) but no table. Writing "
            f"here would mix the two, so nothing was written. Write to a new path{or_else}."
        )
    check_not_inside(store)


def _of_another_format(store: Store, other: OtherFormat) -> NotATableError:
    return NotATableError(
        f"{other.said_of(store)}, as its log in {other.log} shows. Writing here would mix the two, "
        "so nothing was written. Write to a new path; to bring its rows along, read it with a "
        f"reader of {other.name} and write them there."
    )


def _holds_parquet(store: Store, first: ObjectInfo) -> bool:
    """Whether one of the first files has a Parquet name, or the very first one is Parquet by
    content, as Hive's files without a suffix are."""
    if any(info.name.endswith(".parquet") for info in islice(store.list(""), _LOOKED_AT)):
        return True
    try:
        return store.get(first.name, 0, 4) in (b"PAR1", b"PARE")
    except FileNotFoundError:
        return False


def check_not_inside(store: Store) -> None:
    """NotATableError if a parent folder is a table. One list request per level. [LY6]"""
    above = store.parent()
    while above is not None:
        # without permission to list the parents, they cannot be checked
        with contextlib.suppress(StoreDeniedError):
            if _holds_versions(above, ""):
                raise NotATableError(
                    f"{store.url} lies inside the table at {above.url}; tables do not nest. "
                    "Choose a path outside of it."
                )
        above = above.parent()


def _table_around(store: Store, name: str) -> str | None:
    """The folder above the object that is a table; None: there is none."""
    parts = name.split("/")[:-1]
    roots = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((root for root in roots if _holds_versions(store, f"{root}/")), None)


def _holds_versions(store: Store, folder: str) -> bool:
    """Whether a table exists there. Intents, and the marker of a table that was never created, do
    not count. One list request. [LY9]"""
    found = store.list(folder + object_names.VERSIONS)
    return any(object_names.parse_version(info.name.removeprefix(folder)) for info in found)


# Looks up the record of an idempotency key or a job, in the latest version or in the runs that it
# spilled.


def find_key(ctx: TableContext, snapshot: Snapshot, key: str) -> KeyRecord | None:
    """The record of a key, inlined or spilled; None: never committed, invalidated or forgotten.
    [KY1] [WM5]"""
    record = find_record(ctx, snapshot, key)
    return record if record is not None and record.digest else None


def find_record(ctx: TableContext, snapshot: Snapshot, key: str) -> KeyRecord | None:
    """The newest record of a key, inlined or spilled, or that invalidates it. [KY7]"""
    if key in snapshot.keys or not snapshot.key_runs:
        return snapshot.keys.get(key)
    # a key that was invalidated is in several runs [OB11]
    rows = (ctx.manifests.lookup((run,), key, KEY_RUN) for run in snapshot.key_runs)
    records = (KeyRecord(version=row["version"], digest=row["digest"]) for row in rows if row)
    return max(records, key=lambda record: record.version, default=None)


def dropped_at(ctx: TableContext, snapshot: Snapshot, key: str | None) -> int:
    """Where a rewind or a rollback invalidated this key; 0: recorded, or unknown. [KY7]"""
    record = find_record(ctx, snapshot, key) if key is not None else None
    return record.version if record is not None and not record.digest else 0


def find_key_at(ctx: TableContext, head: Head, key: str) -> tuple[Head, KeyRecord | None]:
    """A key's record at this head, or a newer one if gc deleted its runs since. [KY1] [RD3]"""
    return _at(ctx, head, lambda snapshot: find_key(ctx, snapshot, key))


def find_job_at(
    ctx: TableContext, head: Head, job: str
) -> tuple[Head, tuple[Literal["committed", "aborted"] | None, int | None]]:
    """A job's record at this head, or a newer one if its runs are gone. [CM1] [RD3]"""
    return _at(ctx, head, lambda snapshot: ctx.manifests.job(snapshot, job))


def _at(ctx: TableContext, head: Head, look: Callable[[Snapshot], _Found]) -> tuple[Head, _Found]:
    while True:
        try:
            return head, look(head.snapshot)
        except CorruptMetadataError:
            before, head = head, ctx.open()
            if head.version <= before.version:
                raise


# Moves of a source's watermark.


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that advanced a source from `start` to `end`; None: unknown to the table; is_joint:
    whether it is part of a commit of several tables. [WM1] [CM24] [MT14]"""

    version: int
    commit: Commit
    start: Position
    end: Position
    is_joint: bool = False


def steps(ctx: TableContext, head: Head, source: str) -> Iterator[Step]:
    """Every move of a source's watermark, newest first, back to the first one. One request per
    version. [WM1] SnapshotExpiredError if the readable history ends before that."""
    first = head.snapshot
    if source not in first.watermarks:
        return
    for newer, older in pairwise(chain(_ancestors(ctx, head), (None,))):
        if newer is None or (older is None and newer.version > 1):
            break
        yield from _moves(newer, source, older)
        if older is None or source not in older.watermarks:
            return
        first = older
    raise SnapshotExpiredError(
        f"{ctx.store.url}: the readable history begins at version {first.version}, where source "
        f"{source!r} was at {first.watermarks[source]!r} already; what moved it before is no "
        "longer known"
    )


def _moves(snapshot: Snapshot, source: str, older: Snapshot | None) -> Iterator[Step]:
    """The commits of a version that moved the source, last first. Each records what it advanced; a
    rewind and a rollback record nothing. [CM24]"""
    version, before = snapshot.version, None if older is None else older.watermarks.get(source)
    is_joint = older is not None and is_part(snapshot, older)
    for record in reversed(snapshot.commits):
        if source in record.advanced:
            start, end = record.advanced[source]
            yield Step(version=version, commit=record, start=start, end=end, is_joint=is_joint)
    is_told = any(source in record.advanced for record in snapshot.commits)
    if not is_told and (now := snapshot.watermarks.get(source)) != before:
        first = snapshot.commits[0]
        yield Step(version=version, commit=first, start=before, end=now, is_joint=is_joint)


def _ancestors(ctx: TableContext, head: Head) -> Iterator[Snapshot]:
    """This version and those before it whose work is in it, newest first: the version that a
    rollback restored precedes the rollback. [CF13]"""
    start: Head | None = head
    while start is not None:
        restored: int | None = None
        for older in walk_back(ctx.store, start):
            if older.version < head.snapshot.expired and older is not start:
                break  # a tagged start is readable, but nothing before it
            yield older.snapshot
            targets = (commit.restored for commit in older.snapshot.commits)
            if (restored := next((at for at in targets if at is not None), None)) is not None:
                break
        try:
            start = None if restored is None else read_version(ctx.store, head, restored)
        except SnapshotExpiredError:
            return


# The hook by which a commit is followed by its exports, and gc spares them. What is exported, and
# how, is decided above the engine, by the registered exporter, which is loaded only for a table
# that has the property `export.formats`. [EX2] [EX4]

EXPORT_FORMATS = "export.formats"
_EXPORT_FOLDERS = ("_iceberg/", "_delta_log/", "_spark_catalog/")
_EXPORT_OBJECT = re.compile(
    r"_iceberg/metadata/(?:version-hint\.text|v[1-9]\d*\.metadata\.json"
    r"|snap-\d{20}-[0-9a-f]{40}\.avro|m-[0-9a-f]{40}-[0-9a-f]{16}\.avro)"
    r"|_delta_log/(?:_last_checkpoint|\d{20}\.(?:json|checkpoint\.parquet))"
    r"|_spark_catalog/(?:_temporary|not-a-table\.parquet|_spark_metadata/999999999\.compact)",
    re.ASCII,
)


class ExportLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far an export is behind the table. version: the newest one that it shows; behind: how
    many versions that is; age_s: seconds since the first version that it lacks was committed, 0.0
    if it lacks none. None: there is no export."""

    version: int | None = None
    behind: int | None = None
    age_s: float | None = None


def is_export(name: str) -> bool:
    """Whether an object has a name that only exports have. [EX4]"""
    return name.startswith(_EXPORT_FOLDERS) and _EXPORT_OBJECT.fullmatch(name) is not None


def export_after_commit(ctx: TableContext) -> None:
    """Export the newest version that this process knows. A failed export never fails the commit.
    Without the property, nothing is asked or loaded. [EX2]"""
    head = ctx.known
    if head is None or EXPORT_FORMATS not in head.snapshot.properties:
        return
    registry.registered()  # outside `try`: without an exporter no export is ever made
    try:
        exporter().export_formats(ctx, head)
    except Exception as error:
        text = "%r: version %d is committed, and its export failed: %s. The next commit, or "
        text += "`manifestcommit export`, exports it."
        LOG.warning(text, ctx.store.url, head.version, error)


def export_lags(ctx: TableContext, snapshot: Snapshot) -> dict[str, ExportLag]:
    """Format of the property -> how far its export is behind. At most two requests for each, and
    one more where it is behind. [EX2]"""
    if EXPORT_FORMATS not in snapshot.properties:
        return {}
    return exporter().lags(ctx, snapshot)


def export_before_deletion(ctx: TableContext, decided: Snapshot) -> None:
    """Export the newest version of a table with the property; StoreError, if after that an export
    still shows a version that is no longer readable: then nothing may be deleted. [EX4]"""
    if EXPORT_FORMATS in decided.properties:
        exporter().keep_whole(ctx, decided)


class Exporter(Protocol):
    """What shows tables to other engines: `export.exporter`. [EX2]"""

    def check_formats(
        self, ctx: TableContext, snapshot: Snapshot | None, schema: Schema, value: str, /
    ) -> None: ...
    def export_formats(self, ctx: TableContext, head: Head, /) -> Sequence[object]: ...
    def keep_whole(self, ctx: TableContext, decided: Snapshot, /) -> None: ...
    def lags(self, ctx: TableContext, snapshot: Snapshot, /) -> dict[str, ExportLag]: ...
    def unreached(
        self, ctx: TableContext, decided: Snapshot, cut_s: float, /
    ) -> Iterator[tuple[ObjectInfo, str]]: ...


def exporter() -> Exporter:
    """The registered exporter; RuntimeError without one."""
    found: Exporter = registry.registered()()
    return found
