"""A job's change to a table, and the snapshot that results: `apply(head, change) -> next`. [CM9]
[OB2]

Pure: whatever must be looked up is passed in as `ConflictInputs`. Not here: whether a change still
applies (core.commit.conflict), when inlined parts are spilled (core.commit.spill_policy).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec

from ..schema.evolution import SchemaEdit, apply_edits
from ..schema.fields import Schema
from ..schema.partitioning import folder_columns
from ..table import clock_skew, row_bitmap
from ..table.entries import Entry, ManifestRef
from ..table.partition_pattern import Matcher, PartitionPattern, bounded, of_partition
from ..table.snapshot import (
    FORMAT_VERSION,
    Commit,
    KeyRecord,
    RunRef,
    Snapshot,
    StreamRecord,
    Summary,
    Tag,
    Totals,
)
from ..table.watermark import (
    Advance,
    Position,
    move,
    note_origins,
    rewind_origins,
    rewind_watermarks,
)
from .rolled_back import free_name, rolled_back

ConflictChoice = Literal["serializable", "blind", "fail"]
_STORES_KEPT = 8


class Overwrite(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Replace everything in these partitions. dynamic: the scope is the partitions that the job
    writes, known only when it finishes. [CF3]"""

    scope: tuple[PartitionPattern, ...] = ()
    dynamic: bool = False
    conflict: ConflictChoice = "serializable"


class StreamBatch(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One batch of a streaming query. name: the user's key or else the query's id; the last batch
    is recorded under it. [KY6]"""

    name: str
    query: str
    batch: int


class Rewind(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Set a source's watermark back. have: its position when the rewind was decided; to: its new
    position, None: as if the source had never been read; keys: the idempotency keys to invalidate,
    whose advances the rewind undoes. [WM5]"""

    source: str
    have: Position
    to: Position = None
    keys: frozenset[str] = frozenset()


class TagEdit(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Set a tag to a version, or remove the tag (version: None). until: microseconds since the
    epoch, None: no end. [GC10]"""

    name: str
    version: int | None = None
    until: int | None = None


class Rollback(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Restore the table to an earlier version. target: that version's snapshot; taken, given:
    totals that the table loses and regains; dropped: the keys to invalidate, whose work is undone;
    dropped_before: records of keys that were invalidated after the target and stay so. [CF13]
    [KY7]"""

    target: Snapshot
    dropped: frozenset[str] = frozenset()
    dropped_before: dict[str, KeyRecord] = {}
    taken: Totals = Totals()
    given: Totals = Totals()


class Retention(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What gc retains. fence, expired: lower bounds of the new values; keys_from: keys recorded
    below this version are forgotten; now_us: tags that end by then are removed; condemned:
    untracked files to delete; gone: condemned files that no longer exist; key_runs, job_runs:
    replacements for the runs that the latest version had when gc decided, without the records to
    forget. [GC1] [GC6] [GC8] [KY4]"""

    fence: int
    expired: int
    keys_from: int = 0
    now_us: int = 0
    condemned: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    key_runs: Rewritten | None = None
    job_runs: Rewritten | None = None


class Rewritten(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Runs that replace others. old: paths of the replaced ones."""

    old: frozenset[str]
    new: tuple[RunRef, ...] = ()


class Change(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a job adds, removes, advances and has read. [CM9]

    schema: of the files that it wrote; edits: the changes of the table's schema that these files
    need; initial: schema and partitioning for a table that has none yet; touched: the partitions of
    the added files; remove: paths that it replaces; merge_manifests: paths of manifests that one
    manifest with the same files replaces; reads: the partitions whose rows it read to decide what
    to remove and add; birth: its base version, the latest when the job began; based_on: the version
    below `birth` that its rows were read from [CF17]; declared: digest of what the caller declared
    with the key; stream: the streaming batch that it is; gives_up: a job to abort; rewind, tag,
    rollback, retention: commits of their own kind; reason: a text for people.
    """

    job: str
    birth: int
    operation: str
    key: str | None = None
    declared: str | None = None
    schema: Schema | None = None
    partition_by: tuple[int, ...] | None = None
    edits: tuple[SchemaEdit, ...] = ()
    initial: Schema | None = None
    add: tuple[Entry, ...] = ()
    add_manifests: tuple[ManifestRef, ...] = ()
    touched: tuple[PartitionPattern, ...] = ()
    overwrite: Overwrite | None = None
    remove: frozenset[str] = frozenset()
    merge_manifests: frozenset[str] = frozenset()
    reads: tuple[PartitionPattern, ...] = ()
    based_on: int | None = None
    advances: tuple[Advance, ...] = ()
    properties: dict[str, str | None] = {}
    stream: StreamBatch | None = None
    gives_up: str | None = None
    rewind: Rewind | None = None
    tag: TagEdit | None = None
    rollback: Rollback | None = None
    retention: Retention | None = None
    reason: str | None = None
    summary: Summary = Summary()

    @property
    def since(self) -> int:
        """The change is checked for conflicts with every commit after this version. [CF17]"""
        return self.birth if self.based_on is None else min(self.birth, self.based_on)

    @property
    def scope(self) -> tuple[PartitionPattern, ...] | None:
        """The partitions that the change empties first; None: it is not an overwrite."""
        if self.overwrite is None:
            return None
        return self.touched if self.overwrite.dynamic else self.overwrite.scope


class RemovedRows(msgspec.Struct, frozen=True, kw_only=True):
    """What a change removes from one manifest. bitmap: all removed rows, including those removed
    earlier; files, rows, bytes: newly removed; touched: the partitions of files that were removed
    by name."""

    bitmap: int
    files: int
    rows: int
    bytes: int
    touched: tuple[PartitionPattern, ...] = ()


class ConflictInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked up for a change. taken: manifest path -> what is removed from it; gone: paths
    to remove that are not live; live: paths to add that are live already; committed: the job to
    abort has committed, or may have committed below the fence; reused: keys of a rewind that were
    recorded again; dropped: the version at which the change's own key was invalidated, 0: it was
    not."""

    taken: dict[str, RemovedRows] = {}
    gone: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    committed: bool = False
    reused: frozenset[str] = frozenset()
    dropped: int = 0


class Prepared(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A change that any process can now commit or abort. [AB3]

    done: the record of its key, if the key had been committed before the job began: such a job has
    no work and never commits any; prepared_at: microseconds since the epoch, for people.
    """

    format_version: int
    change: Change
    done: KeyRecord | None = None
    prepared_at: int
    writer: str


def create(
    *,
    table_id: str,
    job: str,
    commit_id: str,
    schema: Schema | None,
    partition_by: tuple[int, ...],
    properties: Mapping[str, str],
    sources: Mapping[str, Position] | None = None,
    provisional: bool = False,
    now_us: int,
    writer: str,
    store: str = "",
) -> Snapshot:
    """Build version 1: the table's id, its partitioning, its schema if known, and the start
    positions of its sources. [CM13] [WM7]"""
    origins = dict(sources or {})
    return Snapshot(
        format_version=FORMAT_VERSION,
        table_id=table_id,
        version=1,
        committed_at=now_us,
        writer=writer,
        commits=(Commit(job=job, commit_id=commit_id, operation="create"),),
        schema=schema,
        partition_by=partition_by,
        properties=dict(properties),
        watermarks={source: origin for source, origin in origins.items() if origin is not None},
        origins=origins,
        provisional=provisional,
        marked=True,
        proven=(store,) if store else (),
        recent_jobs={job: 1},
    )


def apply(
    head: Snapshot,
    change: Change,
    inputs: ConflictInputs,
    *,
    parent_digest: str,
    commit_id: str,
    now_us: int,
    writer: str,
    store: str = "",
) -> Snapshot:
    """Return the snapshot after `head` with exactly this change; everything else is carried over.
    [OB2] [WM4]

    Call it only for a change that `find_conflict` has passed against this `head`. store: the proven
    store that the commit goes through. [ST12]
    """
    base = head
    if change.rollback is not None:
        head = rolled_back(
            head, change.rollback.target, change.rollback.dropped, change.rollback.dropped_before
        )
    version = head.version + 1
    kept, dropped = _without(head.added, change, head.partition_by)
    everything = Matcher(change.scope or ()).everything
    manifests, bitmaps = _remaining(head, inputs, everything)
    added = tuple(msgspec.structs.replace(entry, added=version) for entry in change.add)
    references = tuple(msgspec.structs.replace(ref, added=version) for ref in change.add_manifests)
    gained, taken = _given(change), _taken(head, inputs, dropped, everything)
    record = _record(
        head, change, commit_id, _touched(head, change, inputs, dropped), gained, taken
    )
    made = msgspec.structs.replace(
        head,
        version=version,
        parent_digest=parent_digest,
        committed_at=max(now_us, head.committed_at),
        clock=now_us if now_us < head.committed_at else None,
        disputed_times=clock_skew.disputed(head, now_us),
        writer=writer,
        commits=(record,),
        schema=_schema(head, change),
        partition_by=_partition_by(head, change),
        former_folders=_former_folders(base, _partition_by(head, change)),
        manifests=(*manifests, *references),
        added=(*kept, *added),
        removed=bitmaps,
        removed_runs=() if everything else head.removed_runs,
        watermarks=_watermarks(head, change),
        origins=_origins(head, change),
        forgotten=_forgotten(head, change, version),
        keys=_keys(head, change, version),
        streams=_streams(head, change, version),
        set_back=_set_back(head, change, version),
        recent_jobs=_recent_jobs(head, change, version),
        tags=_tags(head, change),
        properties=_properties(head, change),
        totals=_totals(head.totals, gained, taken),
        provisional=False,
        proven=_proven(head, store),
    )
    return made if change.retention is None else _retained(head, made, change.retention)


def _set_back(head: Snapshot, change: Change, version: int) -> Mapping[str, int]:
    if change.rewind is None:
        return head.set_back
    return {**head.set_back, change.rewind.source: version}


def _recent_jobs(head: Snapshot, change: Change, version: int) -> dict[str, int | None]:
    aborted = {change.gives_up: None} if change.gives_up else {}
    return {**head.recent_jobs, **aborted, change.job: version}


def _proven(head: Snapshot, store: str) -> tuple[str, ...]:
    if not store or store in head.proven:
        return head.proven
    return (*head.proven, store)[-_STORES_KEPT:]


def _totals(before: Totals, gained: Totals, taken: Totals) -> Totals:
    return Totals(
        files=before.files + gained.files - taken.files,
        rows=before.rows + gained.rows - taken.rows,
        bytes=before.bytes + gained.bytes - taken.bytes,
        extra=before.extra,
    )


def _record(
    head: Snapshot,
    change: Change,
    commit_id: str,
    touched: tuple[PartitionPattern, ...],
    gained: Totals,
    taken: Totals,
) -> Commit:
    """The commit record of this change. A rollback brings its own totals instead of gained and
    taken. [OB10]"""
    if change.rollback is not None:
        gained, taken = change.rollback.given, change.rollback.taken
    summary = msgspec.structs.replace(
        change.summary,
        files=gained.files,
        rows=gained.rows,
        bytes=gained.bytes,
        removed_files=taken.files,
        removed_rows=taken.rows,
        removed_bytes=taken.bytes,
    )
    return Commit(
        job=change.job,
        commit_id=commit_id,
        key=change.key,
        operation=change.operation,
        touched=touched,
        reason=change.reason,
        summary=summary,
        restored=None if change.rollback is None else change.rollback.target.version,
        advanced=_untold(head, change),
    )


def advanced_of(change: Change) -> dict[str, tuple[Position, int | str]]:
    """Source -> the positions where this change starts and ends. [CM24]"""
    spans: dict[str, tuple[Position, int | str]] = {}
    for advance in change.advances:
        start, _ = spans.get(advance.source, (advance.start, advance.end))
        spans[advance.source] = (start, advance.end)
    return spans


def _untold(head: Snapshot, change: Change) -> dict[str, tuple[Position, int | str]]:
    """The advances that do not move the watermark. Only the record of a version's single commit can
    show them. [CM24]"""
    return {
        source: (start, end)
        for source, (start, end) in advanced_of(change).items()
        if head.watermarks.get(source) == end
    }


def declared_scope(overwrite: Overwrite | None) -> object:
    """The partitions that an overwrite names, in the form that `declaration` compares. [KY1]"""
    if overwrite is None:
        return None
    return (
        "dynamic"
        if overwrite.dynamic
        else [sorted((str(k), v) for k, v in touch.items()) for touch in overwrite.scope]
    )


def declaration(
    *, mode: str, scope: object, advances: tuple[Advance, ...], fingerprint: str | None
) -> str:
    """The digest of what a caller declares with a key: mode, partitions, advances and fingerprint.
    Files are not compared. [KY1]"""
    said = [
        mode,
        scope,
        sorted(msgspec.to_builtins(advances), key=lambda a: (a["source"], str(a.get("start")))),
        fingerprint,
    ]
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()[:32]


def _watermarks(head: Snapshot, change: Change) -> dict[str, int | str]:
    moved = move(head.watermarks, change.advances)
    return (
        rewind_watermarks(moved, change.rewind.source, change.rewind.to) if change.rewind else moved
    )


def _origins(head: Snapshot, change: Change) -> dict[str, Position]:
    noted = note_origins(head.origins, head.watermarks, change.advances)
    return rewind_origins(noted, change.rewind.source, change.rewind.to) if change.rewind else noted


def _forgotten(
    head: Snapshot, change: Change, version: int
) -> dict[str, tuple[tuple[int, Position], ...]]:
    rewind = change.rewind
    if rewind is None or rewind.to is not None or rewind.source not in head.origins:
        return head.forgotten
    lives = (*head.forgotten.get(rewind.source, ()), (version, head.origins[rewind.source]))
    return {**head.forgotten, rewind.source: lives}


def _keys(head: Snapshot, change: Change, version: int) -> dict[str, KeyRecord]:
    keys = dict(head.keys)
    for key in change.rewind.keys if change.rewind else ():
        keys[key] = KeyRecord(version=version, digest="")
    if change.key is not None:
        assert change.declared, "an empty digest would say that the key was dropped"
        keys[change.key] = KeyRecord(version=version, digest=change.declared)
    return keys


def _streams(head: Snapshot, change: Change, version: int) -> dict[str, StreamRecord]:
    batch = change.stream
    if batch is None:
        return head.streams
    before = head.streams.get(batch.name)
    streams = {
        **head.streams,
        batch.name: StreamRecord(query=batch.query, batch=batch.batch, version=version),
    }
    # a rollback took back its batches
    if before is not None and all(record.query != before.query for record in streams.values()):
        streams[free_name(streams, batch.name, before.query)] = before
    return streams


def _tags(head: Snapshot, change: Change) -> dict[str, Tag]:
    edit = change.tag
    if edit is None:
        return head.tags
    others = {name: tag for name, tag in head.tags.items() if name != edit.name}
    return (
        others
        if edit.version is None
        else {**others, edit.name: Tag(version=edit.version, until=edit.until)}
    )


def _retained(head: Snapshot, made: Snapshot, retention: Retention) -> Snapshot:
    """The snapshot after gc's decision. A job's record is forgotten one gc after its birth fell
    below the fence: the fence of `head` counts. [GC1] [GC2] [GC8]"""
    fence = max(head.fence, min(retention.fence, head.version))
    # Where others have merged the runs meanwhile, forgetting a record here would uncover an older
    # one there. The next gc forgets it.
    is_whole = retention.key_runs is None or retention.key_runs.old <= {
        run.path for run in made.key_runs
    }
    forgotten = min(retention.keys_from, fence) if is_whole else 0
    condemned = {
        name: seen for name, seen in head.condemned.items() if seen is None or seen > fence
    }
    condemned |= {name: made.version for name in retention.gone if condemned.get(name, 0) is None}
    condemned |= dict.fromkeys(retention.condemned)
    key_runs = _rewritten(made.key_runs, retention.key_runs)
    expired = max(head.expired, min(retention.expired, fence))
    tags = {
        name: tag
        for name, tag in made.tags.items()
        if tag.until is None or tag.until > retention.now_us
    }
    return msgspec.structs.replace(
        made,
        fence=fence,
        expired=expired,
        tags=tags,
        forgotten=_above(made.forgotten, min([expired, *(tag.version for tag in tags.values())])),
        keys={
            key: record
            for key, record in made.keys.items()
            if _is_kept(record, forgotten, fence, key_runs)
        },
        key_runs=key_runs,
        set_back={source: version for source, version in made.set_back.items() if version > fence},
        set_back_queries={
            query: version for query, version in made.set_back_queries.items() if version > fence
        },
        recent_jobs={
            job: version
            for job, version in made.recent_jobs.items()
            if not _is_born_below(job, head.fence)
        },
        job_runs=_rewritten(made.job_runs, retention.job_runs),
        condemned=condemned,
    )


def _above(
    forgotten: Mapping[str, tuple[tuple[int, Position], ...]], version: int
) -> dict[str, tuple[tuple[int, Position], ...]]:
    """What a rollback may still need: it never goes back to a version below this one. [WM5]"""
    kept = {
        source: tuple(life for life in lives if life[0] > version)
        for source, lives in forgotten.items()
    }
    return {source: lives for source, lives in kept.items() if lives}


def _is_kept(record: KeyRecord, forgotten: int, fence: int, runs: tuple[RunRef, ...]) -> bool:
    """The record of an invalidated key is kept while a job from before can commit, and while a run
    may hold an older record of the key. [KY4] [KY7]"""
    return record.version >= forgotten if record.digest else record.version > fence or bool(runs)


def _is_born_below(job: str, fence: int) -> bool:
    birth = job[1:].partition("-")[0]
    return birth.isdecimal() and int(birth) < fence


def _rewritten(runs: tuple[RunRef, ...], by: Rewritten | None) -> tuple[RunRef, ...]:
    if by is None or not by.old <= {run.path for run in runs}:
        return runs  # others have merged them meanwhile; the next gc forgets the records
    return (*(run for run in runs if run.path not in by.old), *by.new)


def _without(
    entries: tuple[Entry, ...], change: Change, partition_by: tuple[int, ...]
) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    if change.scope is None and not change.remove:
        return entries, ()
    matcher = Matcher(change.scope or ())
    goes = [
        entry.path in change.remove or matcher.holds(of_partition(partition_by, entry.partition))
        for entry in entries
    ]
    kept = tuple(entry for entry, gone in zip(entries, goes, strict=True) if not gone)
    return kept, tuple(entry for entry, gone in zip(entries, goes, strict=True) if gone)


def _remaining(
    head: Snapshot, inputs: ConflictInputs, everything: bool
) -> tuple[tuple[ManifestRef, ...], dict[str, str]]:
    if everything:
        return (), {}
    if not inputs.taken:
        return head.manifests, head.removed
    empty = {
        ref.path
        for ref in head.manifests
        if ref.path in inputs.taken and inputs.taken[ref.path].bitmap.bit_count() == ref.files
    }
    bitmaps = {path: text for path, text in head.removed.items() if path not in empty}
    bitmaps |= {
        path: row_bitmap.encode(taken.bitmap)
        for path, taken in inputs.taken.items()
        if path not in empty
    }
    return tuple(ref for ref in head.manifests if ref.path not in empty), bitmaps


def given_and_taken(
    head: Snapshot, change: Change, inputs: ConflictInputs
) -> tuple[Totals, Totals]:
    """The files, rows and bytes that a change adds, and those that it removes."""
    _, dropped = _without(head.added, change, head.partition_by)
    return _given(change), _taken(head, inputs, dropped, Matcher(change.scope or ()).everything)


def _given(change: Change) -> Totals:
    add, refs = change.add, change.add_manifests
    return Totals(
        files=len(add) + sum(ref.files for ref in refs),
        rows=sum(entry.rows for entry in add) + sum(ref.rows for ref in refs),
        bytes=sum(entry.bytes for entry in add) + sum(ref.data_bytes for ref in refs),
    )


def _taken(
    head: Snapshot, inputs: ConflictInputs, dropped: tuple[Entry, ...], everything: bool
) -> Totals:
    if everything:
        return head.totals
    taken = inputs.taken.values()
    return Totals(
        files=len(dropped) + sum(removal.files for removal in taken),
        rows=sum(entry.rows for entry in dropped) + sum(removal.rows for removal in taken),
        bytes=sum(entry.bytes for entry in dropped) + sum(removal.bytes for removal in taken),
    )


def _touched(
    head: Snapshot, change: Change, inputs: ConflictInputs, dropped: tuple[Entry, ...]
) -> tuple[PartitionPattern, ...]:
    partition_by = _partition_by(head, change)
    patterns = [*change.touched, *(change.scope or ())]
    patterns += [of_partition(partition_by, entry.partition) for entry in dropped]
    patterns += [touch for taken in inputs.taken.values() for touch in taken.touched]
    return bounded(patterns)


def _schema(head: Snapshot, change: Change) -> Schema | None:
    if change.initial is not None or head.schema is None:
        return change.initial  # the table has no schema, or no commit has used the one that it has
    return apply_edits(head.schema, change.edits) if change.edits else head.schema


def _partition_by(head: Snapshot, change: Change) -> tuple[int, ...]:
    return (
        head.partition_by
        if change.initial is None or change.partition_by is None
        else change.partition_by
    )


def _former_folders(
    base: Snapshot, partition_by: tuple[int, ...]
) -> tuple[tuple[tuple[str, str], ...], ...]:
    """By what else than its partition columns the folders of the table's files were made: where
    they become others, gc must still know its own. [GC5] [CF13]"""
    if base.schema is None or base.partition_by == partition_by:
        return base.former_folders
    before = tuple(
        (column.name, column.type) for column in folder_columns(base.schema, base.partition_by)
    )
    return base.former_folders if before in base.former_folders else (*base.former_folders, before)


def _properties(head: Snapshot, change: Change) -> dict[str, str]:
    merged = {**head.properties, **change.properties}
    return {name: value for name, value in merged.items() if value is not None}
