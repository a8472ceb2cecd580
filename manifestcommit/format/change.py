"""What a job's commit changes in a table: one struct for each kind of commit. [CM9] Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

import msgspec

from .entries import Count, Entry, ManifestRef, Time
from .evolution import SchemaEdit
from .fields import Closed, Schema, is_text, is_unicode, shown
from .partitioning import PartitionPattern
from .snapshot import (
    REPLACE,
    Author,
    Commit,
    Constraint,
    KeyRecord,
    RunRef,
    Snapshot,
    Summary,
    TogetherJob,
    Totals,
)

# Watermarks: how far each source has been read, and the only ways in which they move. [WM1]-[WM5]


Position: TypeAlias = int | str | None
_T = TypeVar("_T")


class Advance(Closed, frozen=True, kw_only=True):
    """The half-open range [start, end) of a source whose rows a change adds. [WM2]"""

    source: str
    start: Position = None
    end: int | str


class WatermarkMismatch(msgspec.Struct, frozen=True, kw_only=True):
    """How an advance differs from the current watermark of its source.

    Attributes:
        kind: "gap", "overlap", or "mismatch" for watermarks that are texts.
        source: the source's name.
        have: the current watermark; None: the source has none.
        want: where the advance starts.
        all_covered: whether the table already contains every advance of the job.

    Spec: WM2.
    """

    kind: Literal["gap", "overlap", "mismatch"]
    source: str
    have: Position
    want: Position
    all_covered: bool


def find_mismatch(
    watermarks: Mapping[str, int | str],
    origins: Mapping[str, Position],
    advances: Sequence[Advance],
) -> WatermarkMismatch | None:
    """The first advance that does not start at its source's watermark; None: all do. [WM2]"""
    # A source with an origin and no position was rolled back to before its first advance. [WM1]
    position: dict[str, Position] = {**dict.fromkeys(origins), **watermarks}
    for advance in advances:
        have = position.get(advance.source)
        if advance.source in position and have != advance.start:
            return WatermarkMismatch(
                kind=_kind(have, advance.start),
                source=advance.source,
                have=have,
                want=advance.start,
                all_covered=all(_covered(watermarks, origins, other) for other in advances),
            )
        position[advance.source] = advance.end
    return None


def move(watermarks: Mapping[str, int | str], advances: Sequence[Advance]) -> dict[str, int | str]:
    """The watermarks after matching advances; all other sources keep theirs. [WM2]"""
    return {**watermarks, **{advance.source: advance.end for advance in advances}}


def note_origins(
    origins: Mapping[str, Position],
    watermarks: Mapping[str, int | str],
    advances: Sequence[Advance],
) -> dict[str, Position]:
    """The origins, with those of new sources added: where the first advance of each began. [WM1]"""
    new: dict[str, Position] = {}
    for advance in advances:
        if advance.source not in watermarks:
            new.setdefault(advance.source, advance.start)
    return {**origins, **new}


def merged(before: Mapping[str, _T], edits: Mapping[str, _T | None]) -> dict[str, _T]:
    """The members with these edits, of which None takes one away."""
    return {name: each for name, each in {**before, **edits}.items() if each is not None}


def rewind_origins(
    origins: Mapping[str, Position], source: str, to: Position
) -> dict[str, Position]:
    """The origins after a rewind, which may lie before those of now. [WM1] [WM5]"""
    if to is None:
        return {name: origin for name, origin in origins.items() if name != source}
    origin = origins.get(source)
    is_earlier = isinstance(origin, int) and isinstance(to, int) and to < origin
    return {**origins, source: to} if is_earlier else dict(origins)


def first_origin(origins: Sequence[Position]) -> Position:
    """Where a source first began, of all its beginnings: the lowest; of texts the oldest. [CF13]"""
    whole = [origin for origin in origins if isinstance(origin, int)]
    return min(whole) if len(whole) == len(origins) else None if None in origins else origins[0]


def is_left_by(to: Position, end: Position) -> bool:
    """Whether a rewind to `to` keeps an advance that ended at `end`, and so everything before it.
    Texts have no order: a rewind leads to an earlier position of the source. [WM5]"""
    return end == to or (isinstance(end, int) and isinstance(to, int) and end <= to)


def check_advance(source: object, start: object, end: object) -> Advance:
    """Check that an advance is well-formed: the source is a text, the positions are int or str of
    one kind, and it does not go backwards; ValueError otherwise. [WM3]"""
    if not is_text(source):
        raise ValueError(f"a watermark's source is a non-empty text, not {shown(source)}")
    texts = [position for position in (start, end) if isinstance(position, str)]
    if isinstance(end, bool) or not isinstance(end, int | str) or not all(map(is_unicode, texts)):
        raise ValueError(f"watermark {source!r}: the end is an integer or a text, not {shown(end)}")
    if start is not None and (isinstance(start, bool) or not isinstance(start, type(end))):
        raise ValueError(
            f"watermark {source!r}: start {shown(start)} and end {shown(end)} are not of one kind"
        )
    if isinstance(end, int):
        if any(isinstance(p, int) and not -(2**63) <= p < 2**63 for p in (start, end)):
            why = "positions are signed 64-bit integers; give larger ones as text"
            raise ValueError(f"watermark {source!r}: {why}")
        if isinstance(start, int) and end < start:
            why = f"the end {end} lies before the start {start}; a range never runs backwards"
            raise ValueError(f"watermark {source!r}: {why}")
    assert start is None or isinstance(start, int | str)
    return Advance(source=str(source), start=start, end=end)


def _kind(have: Position, want: Position) -> Literal["gap", "overlap", "mismatch"]:
    # Opaque texts have no order, so gaps and overlaps cannot be detected. [WM3]
    if isinstance(have, str) or isinstance(want, str):
        return "mismatch"
    return "gap" if have is None or (want is not None and have < want) else "overlap"


def _covered(
    watermarks: Mapping[str, int | str], origins: Mapping[str, Position], advance: Advance
) -> bool:
    have, origin = watermarks.get(advance.source), origins.get(advance.source)
    if isinstance(have, int) and isinstance(advance.end, int):
        # What lies before the origin was never read: a caller who took it as done would lose it.
        reached = origin is None or (
            isinstance(advance.start, int) and isinstance(origin, int) and advance.start >= origin
        )
        return reached and advance.end <= have
    return False  # texts have no order, so the beginning is unknown


# What one commit changes.

_HALF = 16  # hex digits of a digest
ConflictChoice = Literal["serializable", "blind", "fail"]


class Overwrite(Closed, frozen=True, kw_only=True):
    """Replace everything in these partitions. dynamic: the scope is the partitions that the job
    writes, known only when it finishes. [CF3]"""

    scope: tuple[PartitionPattern, ...] = ()
    dynamic: bool = False
    conflict: ConflictChoice = "serializable"


class StreamBatch(Closed, frozen=True, kw_only=True):
    """A batch of a streaming query. name: the user's key or the query's id, of the record. [KY6]"""

    name: str
    query: str
    batch: int


class Rewritten(Closed, frozen=True, kw_only=True):
    """Runs that replace others. old: paths of the replaced ones."""

    old: frozenset[str]
    new: tuple[RunRef, ...] = ()


class _OfJob(Closed, frozen=True, kw_only=True):
    """What every change says: whose it is. birth: the job's base version, the latest when it began;
    operation: the kind of work, as the version records it; message, metadata, author: what the
    caller says of it, and who made it: those of the process that made the change. [OB15]

    Each kind has a `summary` of its own, as its last member: prepared jobs are stored in the order
    of the members. [AB3]
    """

    job: str
    birth: Count
    operation: str
    message: str | None = None
    metadata: dict[str, str] = {}
    author: Author | None = None

    @property
    def since(self) -> int:
        """The change is checked for conflicts with every commit after this version."""
        return self.birth


class Write(_OfJob, frozen=True, kw_only=True):
    """Adds and removes files, and changes columns, properties and watermarks with them. The only
    kind that is stored outside of a version: in prepared jobs and intents. [AB3] [CM19]

    schema: of the files that it wrote; edits: the changes of the table's schema that these files
    need; initial: schema and partitioning for a table that has none yet; touched: the partitions of
    the added files; remove: paths that it replaces; reads: the partitions whose rows it read to
    decide what to remove and add; based_on: the version below `birth` that its rows were read from
    [CF17]; declared: digest of what the caller declared with the key; stream: the streaming batch
    that it is; first: nothing may have been committed before [CF18]; reason: a text for people;
    repartitions: it replaces all files, and the table's partitioning becomes `partition_by` [SC10];
    together: where it is prepared as a part of a joint commit, the jobs of all its tables, the
    home's first [MT11]; checked: ids of the constraints that none of its rows violates [CK2];
    constrain: constraints that it adds to the table, None: drops [CK3]; audited: the version of the
    table on which checks of what it would be were made. [CK6]
    """

    key: str | None = None
    declared: str | None = None
    schema: Schema | None = None
    partition_by: tuple[int, ...] | None = None
    repartitions: bool = False
    edits: tuple[SchemaEdit, ...] = ()
    initial: Schema | None = None
    add: tuple[Entry, ...] = ()
    add_manifests: tuple[ManifestRef, ...] = ()
    touched: tuple[PartitionPattern, ...] = ()
    overwrite: Overwrite | None = None
    remove: frozenset[str] = frozenset()
    reads: tuple[PartitionPattern, ...] = ()
    based_on: Count | None = None
    advances: tuple[Advance, ...] = ()
    properties: dict[str, str | None] = {}
    stream: StreamBatch | None = None
    first: bool = False
    reason: str | None = None
    together: tuple[TogetherJob, ...] = ()
    checked: tuple[str, ...] = ()
    constrain: dict[str, Constraint | None] = {}
    audited: Count | None = None
    summary: Summary = Summary()

    @property
    def since(self) -> int:
        """The version that rows were read from, or checked on, if below the base. [CF17] [CK6]"""
        below = (each for each in (self.based_on, self.audited) if each is not None)
        return min((self.birth, *below))

    @property
    def scope(self) -> tuple[PartitionPattern, ...] | None:
        """The partitions that the change empties first; None: it is not an overwrite."""
        if self.overwrite is None:
            return None
        return self.touched if self.overwrite.dynamic else self.overwrite.scope


class MergeManifests(_OfJob, frozen=True, kw_only=True):
    """Replaces these manifests by one with the same files. [GC11] [GC17]"""

    operation: str = REPLACE
    paths: frozenset[str]
    summary: Summary = Summary()


class Abort(_OfJob, frozen=True, kw_only=True):
    """Records that another job never commits. [AB4]"""

    operation: str = "give_up"
    aborted: str
    summary: Summary = Summary()


class Rewind(_OfJob, frozen=True, kw_only=True):
    """Sets a source's watermark back. have: its position when the rewind was decided; to: its new
    position, None: as if the source had never been read; keys: the idempotency keys to invalidate,
    whose advances the rewind undoes [WM5]; undone_jointly: keys among these that were committed in
    other tables by the same joint commit; alone: undo these in this table alone. [MT14]"""

    operation: str = "rewind"
    source: str
    have: Position
    to: Position = None
    keys: frozenset[str] = frozenset()
    undone_jointly: frozenset[str] = frozenset()
    alone: bool = False
    reason: str | None = None
    summary: Summary = Summary()


class TagEdit(_OfJob, frozen=True, kw_only=True):
    """Sets a tag to a version, or removes it (None). until: microseconds, None: no end. [GC10]"""

    name: str
    version: int | None = None
    until: int | None = None
    summary: Summary = Summary()


class Rollback(_OfJob, frozen=True, kw_only=True):
    """Restores the table to an earlier version. target: that version's snapshot; touched: the
    partitions whose files change; taken, given: totals that the table loses and regains; dropped:
    the keys to invalidate, whose work is undone; dropped_before: records of keys that were
    invalidated after the target and stay so [CF13] [KY7]; beside: ids of the tables that are rolled
    back by the same joint commit; alone: undo joint commits in this table alone. [MT14]"""

    operation: str = "rollback"
    target: Snapshot
    touched: tuple[PartitionPattern, ...] = ()
    dropped: frozenset[str] = frozenset()
    dropped_before: dict[str, KeyRecord] = {}
    taken: Totals = Totals()
    given: Totals = Totals()
    beside: frozenset[str] = frozenset()
    alone: bool = False
    reason: str | None = None
    summary: Summary = Summary()


class Retention(_OfJob, frozen=True, kw_only=True):
    """Records what gc retains. fence, expired: lower bounds of the new values; keys_from: keys
    recorded below this version are forgotten; now_us: tags that end by then are removed; condemned:
    untracked files to delete; gone: condemned files that no longer exist; key_runs, job_runs:
    replacements for the runs that the latest version had when gc decided, without the records to
    forget. [GC1] [GC6] [GC8] [KY4]"""

    operation: str = "gc"
    fence: int
    expired: int
    keys_from: int = 0
    now_us: int = 0
    condemned: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    key_runs: Rewritten | None = None
    job_runs: Rewritten | None = None
    summary: Summary = Summary()


Change = Write | MergeManifests | Abort | Rewind | TagEdit | Rollback | Retention


class RemovedRows(msgspec.Struct, frozen=True, kw_only=True):
    """What a change removes from one manifest. bitmap: all removed rows, including those removed
    earlier; totals: of what is newly removed; touched: the partitions of files that were removed by
    name."""

    bitmap: int
    totals: Totals
    touched: tuple[PartitionPattern, ...] = ()


class InterveningCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit above the change's base, and the version that carries it."""

    snapshot: Snapshot
    commit: Commit

    @property
    def version(self) -> int:
        return self.snapshot.version


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked up for a change. winners: the commits since its base, as far as its kind is
    compared with them; taken: manifest path -> what is removed from it; gone: paths
    to remove that are not live; live: paths to add that are live already; committed: the job to
    abort has committed, or may have committed below the fence; reused: keys of a rewind that were
    recorded again; dropped: the version at which the change's own key was invalidated, 0: it was
    not."""

    winners: tuple[InterveningCommit, ...] = ()
    taken: dict[str, RemovedRows] = {}
    gone: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    committed: bool = False
    reused: frozenset[str] = frozenset()
    dropped: int = 0


class Prepared(Closed, frozen=True, kw_only=True):
    """A change that any process can now commit or abort. done: the record of its key, if that was
    committed before the job began: such a job never commits; prepared_at: microseconds since the
    epoch, for people. [AB3]"""

    format_version: int
    change: Write
    done: KeyRecord | None = None
    prepared_at: Time
    writer: str


def advanced_of(change: Write) -> dict[str, tuple[Position, int | str]]:
    """Source -> the positions where this change starts and ends. [CM24]"""
    spans: dict[str, tuple[Position, int | str]] = {}
    for advance in change.advances:
        start, _ = spans.get(advance.source, (advance.start, advance.end))
        spans[advance.source] = (start, advance.end)
    return spans


def declared_scope(overwrite: Overwrite | None) -> object:
    """The partitions that an overwrite names, in the form that `declaration` compares. [KY1]"""
    if overwrite is None or overwrite.dynamic:
        return overwrite and "dynamic"
    return [sorted((str(k), v) for k, v in touch.items()) for touch in overwrite.scope]


def declaration(
    *, mode: str, scope: object, advances: tuple[Advance, ...], fingerprint: str | None
) -> str:
    """The digest of what a caller declares with a key: mode, partitions, advances and fingerprint.
    Files are not compared. Its second half is of what was said when the work began, which alone a
    rerun that declares nothing repeats. [KY1] [KY3]"""
    said = [
        mode,
        scope,
        sorted(msgspec.to_builtins(advances), key=lambda a: (a["source"], str(a.get("start")))),
        fingerprint,
    ]
    return _half(said) + _half([fingerprint])


def joint_declaration(declared: str, table_ids: Sequence[str]) -> str:
    """The digest of what a joint commit's key is declared with, for one table. [MT13]"""
    ids = sorted(table_ids)
    halves = (declared,) if len(declared) == _HALF else (declared[:_HALF], declared[_HALF:])
    return "".join(_half([half, ids]) for half in halves)


def as_begun(declared: str) -> str:
    """What a rerun of a committed key declares if its block did not: as it began. [KY3]"""
    return declared[-_HALF:]


def is_declared(recorded: str, declared: str | None) -> bool:
    """Whether the work that a key records is the one that is declared now. [KY2] [KY3]"""
    if declared is not None and len(declared) == _HALF:
        return recorded[_HALF:] == declared
    return declared is not None and recorded[:_HALF] == declared[:_HALF]


def _half(said: object) -> str:
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()[:_HALF]
