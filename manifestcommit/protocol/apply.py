"""The snapshot that results from a change: `apply(head, change) -> next`. [CM9] [OB2] Pure:
whatever must be looked up is passed in as `Inputs`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from ..errors import SchemaMismatchError, UsageError
from ..format.change import (
    Abort,
    Change,
    ConflictChoice,
    Inputs,
    MergeManifests,
    Overwrite,
    Position,
    Retention,
    Rewind,
    Rewritten,
    Rollback,
    TagEdit,
    Write,
    advanced_of,
    first_origin,
    merged,
    move,
    note_origins,
    rewind_origins,
)
from ..format.entries import Entry, ManifestRef, encode
from ..format.evolution import SchemaEdit, apply_edits, fit, replace
from ..format.fields import DAY_US, Schema, assign_new_ids, relaxed, type_text
from ..format.partitioning import (
    Matcher,
    PartitionPattern,
    bounded,
    check_partition_by,
    folder_columns,
    of_partition,
    parse_static,
    touch_texts,
)
from ..format.snapshot import (
    FORMAT_VERSION,
    REPLACE,
    Author,
    Commit,
    Constraint,
    KeyRecord,
    Note,
    RunRef,
    Snapshot,
    StreamRecord,
    Summary,
    Tag,
    Totals,
    allowed,
    disputed,
    totals_of,
)
from ..format.transforms import source_ids, spelled

_STORES_KEPT = 8
_NO_NOTE = Note()
_DATED = 64

# The state after a rollback: the data as it was, the chain of versions as it is.


def rolled_back(
    head: Snapshot, target: Snapshot, keys: Iterable[str], dropped_before: Mapping[str, KeyRecord]
) -> Snapshot:
    """Return `head` with its data, schema, positions and keys as they were at `target`; what
    belongs to the chain stays. keys: those to invalidate; dropped_before: records of keys that were
    invalidated after the target, and stay so. A source or a query that the target does not know is
    set to where it began since then: a job that continued after the data that is removed now would
    lose it. [CF13]"""
    version = head.version + 1
    fresh = _begun_since(head, target)
    watermarks = {
        **{source: origin for source, origin in fresh.items() if origin is not None},
        **target.watermarks,
    }
    origins = {**fresh, **target.origins}
    streams = _emptied(head, target)
    dropped = {key: KeyRecord(version=version, digest="") for key in sorted(keys)}
    return msgspec.structs.replace(
        head,
        schema=target.schema,
        partition_by=target.partition_by,
        manifests=target.manifests,
        added=target.added,
        removed=target.removed,
        removed_runs=target.removed_runs,
        watermarks=watermarks,
        origins=origins,
        # Records that the target's runs hold included: what was invalidated after the target is in
        # the table again, so its work must not be repeated.
        keys={**target.keys, **dropped_before, **dropped},
        key_runs=target.key_runs,
        streams=streams,
        set_back={
            **head.set_back,
            **_moved((head.watermarks, head.origins), (watermarks, origins), version),
            # Texts have no order: a source may have left its position since the target and returned
            # to it.
            **{
                source: version
                for source, position in head.watermarks.items()
                if isinstance(position, str)
            },
        },
        set_back_queries={
            **head.set_back_queries,
            **_moved((_batches(head.streams),), (_batches(streams),), version),
        },
        totals=target.totals,
        # the rows are the target's: its constraints hold for them, later ones perhaps not [CK4]
        constraints=target.constraints,
    )


def _begun_since(head: Snapshot, target: Snapshot) -> dict[str, Position]:
    """The sources that the target does not know, and where each then began. [CF13] [WM5]"""
    began = {
        source: [origin for version, origin in lives if version > target.version]
        for source, lives in head.forgotten.items()
    }
    for source, origin in head.origins.items():
        began.setdefault(source, []).append(origin)
    return {
        source: first_origin(origins)
        for source, origins in began.items()
        if origins and source not in target.origins
    }


def _moved(
    before: tuple[Mapping[str, object], ...], after: tuple[Mapping[str, object], ...], version: int
) -> dict[str, int]:
    """The names whose value differs between these mappings, with that version. [WM6] [KY7]"""
    changed = (old.items() ^ new.items() for old, new in zip(before, after, strict=True))
    return {name: version for items in changed for name, _ in items}


def _batches(streams: Mapping[str, StreamRecord]) -> dict[str, tuple[int, int]]:
    """Streaming query -> its last batch, and its version: a number may occur in two plans. [KY7]"""
    last: dict[str, tuple[int, int]] = {}
    for record in streams.values():
        batch = (record.batch, record.version if record.batch >= 0 else 0)
        last[record.query] = max(batch, last.get(record.query, batch))
    return last


def _emptied(head: Snapshot, target: Snapshot) -> dict[str, StreamRecord]:
    """The target's streams, and every query that began after it, without any batch."""
    streams = dict(target.streams)
    for name, record in head.streams.items():
        if all(record.query != other.query for other in streams.values()):
            streams[free_name(streams, name, record.query)] = StreamRecord(
                query=record.query, batch=-1, version=head.version + 1
            )
    return streams


def free_name(streams: Mapping[str, StreamRecord], name: str, query: str) -> str:
    """A name for the record of a query, which is found by its query: its own, or another one."""
    while name in streams:
        name = f"{name} {query}"
    return name


def create(
    *,
    table_id: str,
    job: str,
    commit_id: str,
    schema: Schema,
    partition_by: tuple[int, ...],
    properties: Mapping[str, str],
    sources: Mapping[str, Position] | None = None,
    provisional: bool = False,
    now_us: int,
    writer: str,
    store: str = "",
    note: Note = _NO_NOTE,
    author: Author | None = None,
    rank: int = 0,
    constraints: Mapping[str, Constraint] | None = None,
) -> Snapshot:
    """Build version 1. sources: where each begins; rank: for joint commits. [CM13] [WM7] [CK1]"""
    origins = dict(sources or {})
    record = Commit(
        job=job,
        commit_id=commit_id,
        operation="create",
        message=note.message,
        metadata=note.metadata,
        author=allowed(author, properties),
    )
    return Snapshot(
        format_version=FORMAT_VERSION,
        table_id=table_id,
        version=1,
        committed_at=now_us,
        writer=writer,
        commits=(record,),
        schema=schema,
        partition_by=partition_by,
        properties=dict(properties),
        watermarks={source: origin for source, origin in origins.items() if origin is not None},
        origins=origins,
        provisional=provisional,
        proven=(store,) if store else (),
        recent_jobs={job: 1},
        rank=rank,
        constraints=dict(constraints or {}),
    )


def apply(
    head: Snapshot,
    change: Change,
    inputs: Inputs,
    *,
    parent_digest: str,
    commit_id: str,
    now_us: int,
    writer: str,
    store: str = "",
) -> Snapshot:
    """Return the snapshot after `head` with exactly this change, which `find_conflict` has passed
    against it; everything else is carried over. store: the proven store that the commit goes
    through. [OB2] [WM4] [ST12]"""
    record = Commit(
        job=change.job,
        commit_id=commit_id,
        operation=change.operation,
        message=change.message,
        metadata=change.metadata,
        summary=change.summary,
    )
    made, record = _changed(head, change, inputs, record)
    known = head.proven if not store or store in head.proven else (*head.proven, store)
    at = max(now_us, head.committed_at)
    data_at, advanced_at = _fed(head, made, change, record, at)
    # also where the change was prepared before the property was set
    record = msgspec.structs.replace(record, author=allowed(change.author, made.properties))
    return msgspec.structs.replace(
        made,
        # where `head` is a member of a joint commit, that was committed [MT5]
        format_version=FORMAT_VERSION,
        pending=None,
        version=head.version + 1,
        parent_digest=parent_digest,
        committed_at=at,
        clock=now_us if now_us < head.committed_at else None,
        disputed_times=disputed(head, now_us),
        writer=writer,
        commits=(record,),
        former_folders=_former_folders(head, made.partition_by),
        data_at=data_at,
        advanced_at=advanced_at,
        recent_jobs={**made.recent_jobs, change.job: head.version + 1},
        provisional=False,
        proven=known[-_STORES_KEPT:],
    )


def above_taken(head: Snapshot, taken: int) -> Snapshot:
    """The state to build on where names right above the head are taken: these are void. [LY15]"""
    last = head.version + taken
    void = (*head.void, *range(head.version + 1, last + 1))
    return msgspec.structs.replace(head, version=last, void=void)


def _fed(
    head: Snapshot, made: Snapshot, change: Change, record: Commit, at: int
) -> tuple[int | None, dict[str, int]]:
    """When rows were added or a watermark moved last, and when that of each source did. What
    rewrites or removes rows that were there, or goes back, brings nothing. [OB17]"""
    kept = {source: time for source, time in head.advanced_at.items() if source in made.origins}
    if not isinstance(change, Write):
        return head.data_at, kept
    went = made.watermarks.items() - head.watermarks.items()
    moved = {source: at for source, _ in went}
    brings = record.summary.rows > 0 and change.operation not in (REPLACE, "delete", "update")
    return at if moved or brings else head.data_at, {**kept, **moved}


def _changed(
    head: Snapshot, change: Change, inputs: Inputs, record: Commit
) -> tuple[Snapshot, Commit]:
    """The latest snapshot and the commit's record, with what this kind of change says."""
    match change:
        case Write():
            return _written(head, change, inputs, record)
        case Rollback():
            made = rolled_back(head, change.target, change.dropped, change.dropped_before)
            return made, msgspec.structs.replace(
                record,
                touched=bounded(change.touched),
                reason=change.reason,
                restored=change.target.version,
                summary=_summary(change.summary, change.given, change.taken),
            )
        case Rewind():
            return _rewound(head, change), msgspec.structs.replace(record, reason=change.reason)
        case TagEdit():
            tag = change.version and Tag(version=change.version, until=change.until)
            tags = merged(head.tags, {change.name: tag or None})
            return msgspec.structs.replace(head, tags=tags), record
        case Retention():
            return _retained(head, change), record
        case Abort():
            jobs = {**head.recent_jobs, change.aborted: None}
            return msgspec.structs.replace(head, recent_jobs=jobs), record
        case MergeManifests():
            return head, record  # the spiller merges them, as after any commit


def _written(
    head: Snapshot, change: Write, inputs: Inputs, record: Commit
) -> tuple[Snapshot, Commit]:
    version = head.version + 1
    scope, steps, edits = change.scope, change.advances, change.properties
    kept, dropped, everything = _without(head, change, scope)
    manifests, bitmaps = _remaining(head, inputs, everything)
    added = tuple(msgspec.structs.replace(entry, added=version) for entry in change.add)
    references = tuple(msgspec.structs.replace(ref, added=version) for ref in change.add_manifests)
    gained = totals_of(change.add, change.add_manifests)
    taken = _taken(head, inputs, dropped, everything)
    touched = [*change.touched, *(scope or ())]
    touched += [of_partition(head.partition_by, entry.partition) for entry in dropped]
    touched += [touch for gone in inputs.taken.values() for touch in gone.touched]
    is_own, by = change.initial is not None or change.repartitions, change.partition_by
    made = msgspec.structs.replace(
        head,
        schema=_schema(head, change),
        partition_by=head.partition_by if by is None or not is_own else by,
        manifests=(*manifests, *references),
        added=(*kept, *added),
        removed=bitmaps,
        removed_runs=() if everything else head.removed_runs,
        watermarks=move(head.watermarks, steps) if steps else head.watermarks,
        origins=note_origins(head.origins, head.watermarks, steps) if steps else head.origins,
        keys=_keys(head, change),
        streams=_streams(head, change),
        properties=merged(head.properties, edits) if edits else head.properties,
        constraints=constraints_after(head, change),
        totals=head.totals.after(gained, taken),
    )
    return made, msgspec.structs.replace(
        record,
        key=change.key,
        touched=bounded(touched),
        reason=change.reason,
        summary=_summary(change.summary, gained, taken),
        advanced=advanced_of(change) if steps else {},
    )


def _rewound(head: Snapshot, change: Rewind) -> Snapshot:
    version, source = head.version + 1, change.source
    dropped = {key: KeyRecord(version=version, digest="") for key in sorted(change.keys)}
    return msgspec.structs.replace(
        head,
        watermarks=merged(head.watermarks, {source: change.to}),
        origins=rewind_origins(head.origins, source, change.to),
        forgotten=_forgotten(head, change),
        keys={**head.keys, **dropped},
        set_back={**head.set_back, source: version},
    )


def _summary(summary: Summary, gained: Totals, taken: Totals) -> Summary:
    counts = {what: getattr(gained, what) for what in ("files", "rows", "bytes")}
    counts |= {f"removed_{what}": getattr(taken, what) for what in ("files", "rows", "bytes")}
    return msgspec.structs.replace(summary, **counts)


def _forgotten(head: Snapshot, change: Rewind) -> dict[str, tuple[tuple[int, Position], ...]]:
    if change.to is not None or change.source not in head.origins:
        return head.forgotten
    life = (head.version + 1, head.origins[change.source])
    return {**head.forgotten, change.source: (*head.forgotten.get(change.source, ()), life)}


def _keys(head: Snapshot, change: Write) -> dict[str, KeyRecord]:
    if change.key is None:
        return head.keys
    assert change.declared, "an empty digest would say that the key was dropped"
    return {**head.keys, change.key: KeyRecord(version=head.version + 1, digest=change.declared)}


def _streams(head: Snapshot, change: Write) -> dict[str, StreamRecord]:
    batch = change.stream
    if batch is None:
        return head.streams
    before = head.streams.get(batch.name)
    record = StreamRecord(query=batch.query, batch=batch.batch, version=head.version + 1)
    streams = {**head.streams, batch.name: record}
    # a rollback took back its batches
    if before is not None and all(record.query != before.query for record in streams.values()):
        streams[free_name(streams, batch.name, before.query)] = before
    return streams


def _retained(head: Snapshot, retention: Retention) -> Snapshot:
    """What gc leaves of the latest snapshot. A job's record is forgotten one gc after its birth
    fell below the fence: the fence of `head` counts. [GC1] [GC2] [GC8]"""
    fence = max(head.fence, min(retention.fence, head.version))
    # Where others have merged the runs meanwhile, forgetting a record here would uncover an older
    # one there. The next gc forgets it.
    is_whole = retention.key_runs is None or retention.key_runs.old <= {
        run.path for run in head.key_runs
    }
    forgotten = min(retention.keys_from, fence) if is_whole else 0
    condemned = {name: at for name, at in head.condemned.items() if at is None or at > fence}
    gone = [name for name in retention.gone if condemned.get(name, 0) is None]
    condemned |= dict.fromkeys(gone, head.version + 1) | dict.fromkeys(retention.condemned)
    key_runs = _rewritten(head.key_runs, retention.key_runs)
    expired = max(head.expired, min(retention.expired, fence))
    now_us, all_tags = retention.now_us, head.tags.items()
    tags = {name: tag for name, tag in all_tags if tag.until is None or tag.until > now_us}
    return msgspec.structs.replace(
        head,
        fence=fence,
        expired=expired,
        tags=tags,
        forgotten=_above(head.forgotten, min([expired, *(tag.version for tag in tags.values())])),
        keys={
            key: record
            for key, record in head.keys.items()
            if _is_kept(record, forgotten, fence, key_runs)
        },
        key_runs=key_runs,
        set_back=_later(head.set_back, fence),
        set_back_queries=_later(head.set_back_queries, fence),
        recent_jobs={
            job: version
            for job, version in head.recent_jobs.items()
            if not _is_born_below(job, head.fence)
        },
        job_runs=_rewritten(head.job_runs, retention.job_runs),
        condemned=condemned,
        void=tuple(version for version in head.void if version >= expired),
        dated=_dated(head),
    )


def _dated(head: Snapshot) -> tuple[tuple[int, int], ...]:
    """With the latest version, where the last one is a day older; of many, every second one of the
    older half goes, so that gaps are wide where ages are great. [OB18]"""
    known = head.dated
    if known and head.committed_at < known[-1][1] + DAY_US:
        return known
    known = (*known, (head.version, head.committed_at))
    return known if len(known) <= _DATED else (*known[: _DATED // 2 : 2], *known[_DATED // 2 :])


def _later(versions: Mapping[str, int], fence: int) -> dict[str, int]:
    return {name: version for name, version in versions.items() if version > fence}


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
    head: Snapshot, change: Write, scope: Sequence[PartitionPattern] | None
) -> tuple[tuple[Entry, ...], tuple[Entry, ...], bool]:
    """The inlined entries that stay, those that go, and whether the whole table is emptied."""
    if scope is None and not change.remove:
        return head.added, (), False
    matcher, by = Matcher(scope or ()), head.partition_by
    goes = [
        entry.path in change.remove or matcher.holds(of_partition(by, entry.partition))
        for entry in head.added
    ]
    kept = tuple(entry for entry, gone in zip(head.added, goes, strict=True) if not gone)
    dropped = tuple(entry for entry, gone in zip(head.added, goes, strict=True) if gone)
    return kept, dropped, matcher.everything


def _remaining(
    head: Snapshot, inputs: Inputs, everything: bool
) -> tuple[tuple[ManifestRef, ...], dict[str, str]]:
    if everything:
        return (), {}
    if not inputs.taken:
        return head.manifests, head.removed
    bits = {path: taken.bitmap for path, taken in inputs.taken.items()}
    left = tuple(ref for ref in head.manifests if bits.get(ref.path, 0).bit_count() != ref.files)
    empty = {ref.path for ref in head.manifests} - {ref.path for ref in left}
    bitmaps = head.removed | {path: encode(bitmap) for path, bitmap in bits.items()}
    return left, {path: text for path, text in bitmaps.items() if path not in empty}


def given_and_taken(head: Snapshot, change: Write, inputs: Inputs) -> tuple[Totals, Totals]:
    """The files, rows and bytes that a change adds, and those that it removes."""
    _, dropped, everything = _without(head, change, change.scope)
    given = totals_of(change.add, change.add_manifests)
    return given, _taken(head, inputs, dropped, everything)


def _taken(head: Snapshot, inputs: Inputs, dropped: tuple[Entry, ...], everything: bool) -> Totals:
    if everything:
        return head.totals
    totals = totals_of(dropped) if dropped else Totals()
    for removal in inputs.taken.values():
        totals = totals.after(removal.totals)
    return totals


def _schema(head: Snapshot, change: Write) -> Schema:
    if change.initial is not None:
        return change.initial  # the table has no columns, or no commit has used those that it has
    return apply_edits(head.schema, change.edits) if change.edits else head.schema


def _former_folders(
    base: Snapshot, partition_by: tuple[int, ...]
) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The columns that folders were made of before: gc must know them. [GC5] [CF13]"""
    if not base.schema.fields or base.partition_by == partition_by:
        return base.former_folders
    before = folder_columns(base.schema, base.partition_by)
    return base.former_folders if before in base.former_folders else (*base.former_folders, before)


def constraints_after(head: Snapshot, change: Write) -> dict[str, Constraint]:
    """The constraints of the version after `head` with this change. [CK3]"""
    return merged(head.constraints, change.constrain) if change.constrain else head.constraints


# When inlined parts of a snapshot move to objects of their own, and when small objects are merged.
# [CM12] [OB11]


_Ref = TypeVar("_Ref", ManifestRef, RunRef)


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """How much a snapshot carries inline, and how much one commit rewrites. inline_entry_bytes: of
    JSON of the inlined entries, before zstd; fan_in: objects of one size class that are merged into
    one of the next; pile: a commit merges one more group for this many small manifests;
    max_merged_files, max_merged_rows: entries, or keys and jobs, that a commit rewrites at most,
    `compact` may more; manifest_entries, adopted_entries: of one manifest; batch_groups,
    batch_bytes: what one commit of `compact` replaces; condemned: untracked files that one gc
    names, which snapshots carry until they are known to be gone. [CM12]"""

    inline_entry_bytes: int = 256 * 1024
    inline_keys: int = 512
    inline_jobs: int = 512
    inline_removed_bytes: int = 64 * 1024
    fan_in: int = 8
    pile: int = 256
    max_merged_files: int = 65_536
    max_merged_rows: int = 65_536
    manifest_entries: int = 65_536
    adopted_entries: int = 16_384
    batch_groups: int = 64
    batch_bytes: int = 16 << 30
    condemned: int = 10_000


def entries_overflow(entries: Sequence[Entry], budgets: Budgets) -> bool:
    """Whether these entries are too many to inline. [CM12]"""
    return len(entries) > 0 and len(msgspec.json.encode(entries)) > budgets.inline_entry_bytes


def inlined_overflow(snapshot: Snapshot, budgets: Budgets) -> bool:
    """Whether the snapshot inlines too many entries: more than the budget, or more than a quarter
    of it from earlier commits, since every commit reads and writes those again. [CM12]"""
    size, allowed = len(msgspec.json.encode(snapshot.added)), budgets.inline_entry_bytes // 4 + 2
    if not allowed < size <= budgets.inline_entry_bytes:
        return size > allowed
    earlier = [entry for entry in snapshot.added if entry.added < snapshot.version]
    return len(msgspec.json.encode(earlier)) > allowed


def removed_overflow(snapshot: Snapshot, budgets: Budgets) -> bool:
    """Whether the inlined bitmaps are too large. [CM12]"""
    return sum(len(text) for text in snapshot.removed.values()) > budgets.inline_removed_bytes


def manifests_to_merge(snapshot: Snapshot, budgets: Budgets) -> tuple[tuple[ManifestRef, ...], ...]:
    """Groups of `fan_in` manifests of one size class each: one where a class is full, more where
    many small manifests have accumulated, as of many tasks or jobs. [CM12]"""
    sized = [(ref, ref.files) for ref in snapshot.manifests]
    fan_in, limit = budgets.fan_in, budgets.max_merged_files
    small = sum(files * fan_in <= limit for _, files in sized)
    allowed = min(fan_in, 1 + small // budgets.pile)
    groups: list[tuple[ManifestRef, ...]] = []
    left, files_left = sized, limit
    while len(groups) < allowed and (group := _full_tier(left, limit, fan_in)):
        files_left -= sum(ref.files for ref in group)
        if files_left < 0:
            break
        groups.append(group)
        taken = {ref.path for ref in group}
        left = [(ref, files) for ref, files in left if ref.path not in taken]
    return tuple(groups)


def runs_to_merge(runs: Sequence[RunRef], budgets: Budgets) -> tuple[RunRef, ...]:
    """Up to `fan_in` runs of one size class, or none. [CM12]"""
    return _full_tier([(run, run.rows) for run in runs], budgets.max_merged_rows, budgets.fan_in)


def _full_tier(sized: Sequence[tuple[_Ref, int]], limit: int, fan_in: int) -> tuple[_Ref, ...]:
    tiers: dict[int, list[_Ref]] = {}
    for ref, size in sized:
        if size * fan_in <= limit:
            tier = 0
            while size >= fan_in:
                size, tier = size // fan_in, tier + 1
            tiers.setdefault(tier, []).append(ref)
    full = (members for _, members in sorted(tiers.items()) if len(members) >= fan_in)
    return tuple(next(full, ())[:fan_in])


# How a job lays out its files: their columns and partitioning, and the partitions that they
# replace. [SC3] [PT1] [PT3]


NewId = Callable[[], int]
MISSING_COLUMNS = "write.missing-columns"  # a table property: "error" or "null"


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """schema, partition_by: of the job's files, None before its first file; initial: the same, if
    the job gives the table its columns; edits: the changes of the table's schema that the job
    needs; missing: columns of the table that some of the job's data lacks; repartitions: whether
    the table's partitioning becomes the job's. [CM9] [SC8] [SC10]"""

    schema: Schema | None = None
    partition_by: tuple[int, ...] | None = None
    initial: Schema | None = None
    edits: tuple[SchemaEdit, ...] = ()
    missing: tuple[str, ...] = ()
    repartitions: bool = False

    def partitioning(self, snapshot: Snapshot) -> tuple[int, ...]:
        """The job's own partitioning, else the table's."""
        return snapshot.partition_by if self.partition_by is None else self.partition_by


def lay_out(
    layout: Layout,
    snapshot: Snapshot,
    data: Schema,
    names: Sequence[str] | None,
    *,
    merge: bool,
    new_id: NewId,
    url: str,
    replaces: bool = False,
) -> Layout:
    """Return the layout for writing rows of this schema after those before. names: partition
    columns, None: the table's; replaces: the table gets these columns and this partitioning.
    SchemaMismatchError or UsageError where they do not fit. [SC3] [SC5] [PT1]"""
    schema, initial, own = layout.schema, layout.initial, layout.partition_by
    if schema is None and snapshot.provisional and not _suits(snapshot, data, names):
        # The job that created the table has committed nothing. Among such first writes, the first
        # to commit sets the table's columns.
        initial = schema = assign_new_ids(relaxed(data), new_id)
        own = check_partition_by(initial, names or ())
    before = schema or snapshot.schema
    if replaces and schema is None:
        return _replacing(snapshot, assign_new_ids(data, new_id), names)
    is_own = initial is not None or layout.repartitions
    chosen = own if is_own and own is not None else snapshot.partition_by
    lacking = _lacking(before, data, chosen)
    edits = fit(before, assign_new_ids(data, new_id) if merge else data, merge=merge)
    _check_common(before, data, lacking)
    after = apply_edits(before, edits) if edits else before
    if names is not None and check_partition_by(after, names) != chosen:
        table = ", ".join(spelled(after, chosen)) or "nothing"
        raise UsageError(
            f"{url} is partitioned by {table}, not by {', '.join(names) or 'nothing'}; leave "
            'partition_by out, or replace the table: mode="overwrite", replace_schema=True'
        )
    missing = tuple(dict.fromkeys((*layout.missing, *lacking)))
    made = msgspec.structs.replace(layout, schema=after, partition_by=chosen, missing=missing)
    if initial is not None:
        return msgspec.structs.replace(made, initial=after)
    return msgspec.structs.replace(made, edits=(*layout.edits, *edits))


def _replacing(snapshot: Snapshot, data: Schema, names: Sequence[str] | None) -> Layout:
    """The layout of rows that replace all, with the table's columns and partitions. [SC10]"""
    edits = replace(snapshot.schema, data)
    after = apply_edits(snapshot.schema, edits)
    if names is None:
        used = source_ids(snapshot.partition_by)
        old = [field for field in snapshot.schema.fields if field.id in used]
        gone = {field.name for field in old} - {field.name for field in after.fields}
        if gone:
            raise UsageError(
                f"the data has no column {min(gone)!r}, which partitions the table; nothing was "
                "done. Say how the table is to be partitioned: partition_by=[…], or [] for not at "
                "all"
            )
        names = spelled(snapshot.schema, snapshot.partition_by)
    chosen = check_partition_by(after, names)
    repartitions = chosen != snapshot.partition_by
    return Layout(schema=after, partition_by=chosen, edits=edits, repartitions=repartitions)


def check_missing(missing: Sequence[str], properties: Mapping[str, str], *, whole: bool) -> None:
    """SchemaMismatchError if data may not lack these. whole: it replaces the table. [SC8]"""
    said = properties.get(MISSING_COLUMNS)
    if not missing or said == "null" or not (whole or said == "error"):
        return
    shown = ", ".join(map(repr, missing[:10]))
    why = "an overwrite of the whole table would leave it all null"
    if said == "error":
        why = f"the table's property {MISSING_COLUMNS} is error"
    raise SchemaMismatchError(
        f"Column {shown} of the table is missing from the data, and {why}. Nothing was committed. "
        "Add it to the data (for no value, as an explicit column of nulls), drop it from the table "
        f'(drop_column), or set the property {MISSING_COLUMNS} to "null".'
    )


def _lacking(table: Schema, data: Schema, partition_by: tuple[int, ...]) -> tuple[str, ...]:
    """The columns that data lacks; SchemaMismatchError if one partitions the table. [SC8]"""
    names = {field.name.lower() for field in data.fields}
    lacking = [field for field in table.fields if field.name.lower() not in names]
    for field in lacking:
        if field.id in source_ids(partition_by):
            before = f" (it was {field.physical!r} before: rename it in the data as well)"
            renamed = before if field.file_name.lower() in names else ""
            raise SchemaMismatchError(
                f"Column {field.name!r} partitions the table and is missing from the "
                f"data{renamed}: all rows would go to the partition of null. Add it to the data; "
                "where they are to go there, as an explicit column of nulls."
            )
    return tuple(field.name for field in lacking)


def _check_common(table: Schema, data: Schema, lacking: Sequence[str]) -> None:
    """SchemaMismatchError if no column of the table would have a value in the data. [SC8]"""
    if lacking and len(lacking) == len(table.fields):
        have, want = (
            ", ".join(repr(field.name) for field in schema.fields[:10]) or "none"
            for schema in (data, table)
        )
        raise SchemaMismatchError(
            f"The data has no column in common with the table. It has {have}; the table has {want}."
            " Is this the right table? Rename the data's columns, or add one of them to the table "
            "first (add_column)."
        )


def replaced(
    given: Mapping[str, Any] | Literal["dynamic"] | None,
    layout: Layout,
    snapshot: Snapshot,
    conflict: ConflictChoice,
) -> Overwrite:
    """What an overwrite replaces: all (None), what is written, or named partitions. [CF3] [PT3]"""
    if given == "dynamic":
        return Overwrite(dynamic=True, conflict=conflict)
    if given is None:
        return Overwrite(scope=({},), conflict=conflict)
    static = parse_static(layout.schema or snapshot.schema, layout.partitioning(snapshot), given)
    return Overwrite(scope=(static,), conflict=conflict)


def check_inside(
    overwrite: Overwrite | None, touched: Sequence[PartitionPattern], schema: Schema, given: object
) -> None:
    """Refuse rows outside a static overwrite's partitions: a rerun would repeat them. [PT3]"""
    if overwrite is None or overwrite.dynamic or overwrite.scope == ({},):
        return
    static = overwrite.scope[0]
    for touch in touched:
        if any(touch.get(field_id) != value for field_id, value in static.items()):
            wrote = ", ".join(touch_texts(schema, touch)) or "several partitions"
            raise UsageError(
                f"the job overwrites {given!r} but wrote rows of {wrote}; nothing was committed. "
                'Filter the data, or use overwrite="dynamic".'
            )


def _suits(snapshot: Snapshot, data: Schema, names: Sequence[str] | None) -> bool:
    """Whether the columns that an earlier, uncommitted first write gave the table fit this data."""
    there, here = (
        [(field.name, type_text(field.type)) for field in schema.fields]
        for schema in (snapshot.schema, data)
    )
    by = snapshot.partition_by
    return there == here and check_partition_by(snapshot.schema, names or ()) == by
