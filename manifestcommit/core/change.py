"""What a job wants to do to a table, and the snapshot that results: `apply(head, change) -> next`. [CM9] [OB2]

Pure: everything that had to be looked up comes in as `Found`. Not here: whether a change still holds (core.conflict), when
inlined parts are spilled (core.spill).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec

from . import bitmap
from .evolution import SchemaEdit, apply_edits
from .manifest import Entry, ManifestRef
from .schema import Schema
from .snapshot import FORMAT_VERSION, Commit, KeyRecord, RunRef, Snapshot, StreamRecord, Summary, Tag, Totals
from .touch import Matcher, Touch, compact, of_partition
from .watermark import Advance, Position, move, note_origins, rewind_origins, rewind_watermarks

ConflictChoice = Literal["serializable", "blind", "fail"]
_STORES_KEPT = 8


class Overwrite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Replace everything in these partitions. dynamic: the scope is what the job writes, known only when it is done. [CF3]"""

    scope: tuple[Touch, ...] = ()
    dynamic: bool = False
    conflict: ConflictChoice = "serializable"


class StreamBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One batch of a streaming query. name: the user's key, else the query's id, under which the last batch is kept. [KY6]"""

    name: str
    query: str
    batch: int


class Rewind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Set a source's watermark back. have: where it stood when that was decided; to: where it shall stand, None: as if never read;
    keys: those whose advances it undoes. [WM5]"""

    source: str
    have: int | str
    to: Position = None
    keys: frozenset[str] = frozenset()


class TagEdit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A name for a version, or none any more (version: None). until: microseconds since the epoch, None: for ever. [GC10]"""

    name: str
    version: int | None = None
    until: int | None = None


class Rollback(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The table as it was. target: that version's snapshot; taken, given: what the table loses and gets back by that. [CF13]"""

    target: Snapshot
    taken: Totals = Totals()
    given: Totals = Totals()


class Retention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What gc keeps. fence, expired: at least these; keys_from: keys recorded below it are forgotten; now_us: tags that end by then go;
    condemned: foreign files to be deleted; gone: condemned ones that are not there any more; key_runs, job_runs: what takes the place of
    the runs that the head had when this was decided, with nothing in them that is to be forgotten. [GC1] [GC6] [GC8] [KY4]"""

    fence: int
    expired: int
    keys_from: int = 0
    now_us: int = 0
    condemned: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    key_runs: Rewritten | None = None
    job_runs: Rewritten | None = None


class Rewritten(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Runs that others take the place of. old: their paths."""

    old: frozenset[str]
    new: tuple[RunRef, ...] = ()


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a job adds, removes, advances and has read. [CM9]

    schema: what its files were written with; edits: how the table's schema must change for them; initial: schema and partitioning
    for a table that has none yet; touched: the partitions of what it adds; remove: paths that it replaces; merge_manifests: paths of
    manifests that one takes the place of, which lists the same files; reads: the partitions whose rows it looked at to decide what to
    remove and add; declared: digest of what the caller declared with the key; stream: the batch that it is; gives_up: a job that shall
    never commit; rewind: a watermark set back; tag, rollback, retention: commits of their own, too; reason: why, in a person's words.
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
    touched: tuple[Touch, ...] = ()
    overwrite: Overwrite | None = None
    remove: frozenset[str] = frozenset()
    merge_manifests: frozenset[str] = frozenset()
    reads: tuple[Touch, ...] = ()
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
    def scope(self) -> tuple[Touch, ...] | None:
        """The partitions that it empties first; None where it empties none."""
        if self.overwrite is None:
            return None
        return self.touched if self.overwrite.dynamic else self.overwrite.scope


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What a change takes out of one manifest. bitmap: rows gone, those taken earlier included; files, rows, bytes: newly taken; touched:
    the partitions of files that were removed by name."""

    bitmap: int
    files: int
    rows: int
    bytes: int
    touched: tuple[Touch, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What had to be looked up for a change. taken: manifest path -> what goes; gone: paths to remove that are not live; live: paths to
    add that are live already; committed: the job that it gives up has committed, or may have behind the fence; reused: keys of a rewind
    that are recorded anew."""

    taken: dict[str, Taken] = {}
    gone: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    committed: bool = False
    reused: frozenset[str] = frozenset()


class Prepared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A change that any process can commit or give up from now on. [AB3]

    done: where its key had been committed before it began, so that it holds no work and never commits any; prepared_at:
    microseconds since the epoch, for people.
    """

    format_version: int
    change: Change
    done: KeyRecord | None = None
    prepared_at: int
    writer: str


def create(*, table_id: str, job: str, commit_id: str, schema: Schema | None, partition_by: tuple[int, ...],
           properties: Mapping[str, str], provisional: bool = False, now_us: int, writer: str, store: str = "") -> Snapshot:  # fmt: skip
    """Version 1: a table's id, its partitioning, and its schema if it is known. [CM13]"""
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
        provisional=provisional,
        proven=(store,) if store else (),
        recent_jobs={job: 1},
    )


def apply(head: Snapshot, change: Change, found: Found, *, parent_digest: str, commit_id: str, now_us: int, writer: str,
          store: str = "") -> Snapshot:  # fmt: skip
    """The snapshot after `head` with exactly this change; what the change does not name is carried over. [OB2] [WM4]

    Only for a change that `find_conflict` has passed against this very head. store: the proved store that it goes through. [ST12]
    """
    if change.rollback is not None:
        head = _rolled_back(head, change.rollback)
    version = head.version + 1
    kept, dropped = _without(head.added, change, head.partition_by)
    everything = Matcher(change.scope or ()).everything
    manifests, bitmaps = _remaining(head, found, everything)
    added = tuple(msgspec.structs.replace(entry, added=version) for entry in change.add)
    references = tuple(msgspec.structs.replace(ref, added=version) for ref in change.add_manifests)
    gained, taken = _given(change), _taken(head, found, dropped, everything)
    totals = Totals(
        files=head.totals.files + gained.files - taken.files,
        rows=head.totals.rows + gained.rows - taken.rows,
        bytes=head.totals.bytes + gained.bytes - taken.bytes,
        extra=head.totals.extra,
    )
    if change.rollback is not None:
        gained, taken = change.rollback.given, change.rollback.taken
    summary = msgspec.structs.replace(
        change.summary, files=gained.files, rows=gained.rows, bytes=gained.bytes,
        removed_files=taken.files, removed_rows=taken.rows, removed_bytes=taken.bytes,
    )  # fmt: skip
    commit = Commit(
        job=change.job, commit_id=commit_id, key=change.key, operation=change.operation,
        touched=_touched(head, change, found, dropped), reason=change.reason, summary=summary,
        restored=None if change.rollback is None else change.rollback.target.version,
    )  # fmt: skip
    made = msgspec.structs.replace(
        head,
        version=version,
        parent_digest=parent_digest,
        committed_at=max(now_us, head.committed_at),
        writer=writer,
        commits=(commit,),
        schema=_schema(head, change),
        partition_by=_partition_by(head, change),
        manifests=(*manifests, *references),
        added=(*kept, *added),
        removed=bitmaps,
        removed_runs=() if everything else head.removed_runs,
        watermarks=_watermarks(head, change),
        origins=_origins(head, change),
        keys=_keys(head, change, version),
        streams=_streams(head, change, version),
        recent_jobs={**head.recent_jobs, **({change.gives_up: None} if change.gives_up else {}), change.job: version},
        tags=_tags(head, change),
        properties=_properties(head, change),
        totals=totals,
        provisional=False,
        proven=head.proven if not store or store in head.proven else (*head.proven, store)[-_STORES_KEPT:],
    )
    return made if change.retention is None else _retained(head, made, change.retention)


def declaration(*, mode: str, scope: object, advances: tuple[Advance, ...], fingerprint: str | None) -> str:
    """The digest of what a caller declares with a key: mode, partitions, advances, fingerprint; files are not compared. [KY1]"""
    said = [mode, scope, sorted(msgspec.to_builtins(advances), key=lambda a: (a["source"], str(a.get("start")))), fingerprint]
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()[:32]


def _watermarks(head: Snapshot, change: Change) -> dict[str, int | str]:
    moved = move(head.watermarks, change.advances)
    return rewind_watermarks(moved, change.rewind.source, change.rewind.to) if change.rewind else moved


def _origins(head: Snapshot, change: Change) -> dict[str, Position]:
    noted = note_origins(head.origins, head.watermarks, change.advances)
    return rewind_origins(noted, change.rewind.source, change.rewind.to) if change.rewind else noted


def _keys(head: Snapshot, change: Change, version: int) -> dict[str, KeyRecord]:
    keys = dict(head.keys)
    for key in change.rewind.keys if change.rewind else ():
        keys.pop(key, None)
        if head.key_runs:  # a run, which never changes, may still have it
            keys[key] = KeyRecord(version=version, digest="")
    if change.key is not None:
        assert change.declared, "an empty digest would say that the key was dropped"
        keys[change.key] = KeyRecord(version=version, digest=change.declared)
    return keys


def _streams(head: Snapshot, change: Change, version: int) -> dict[str, StreamRecord]:
    batch = change.stream
    if batch is None:
        return head.streams
    return {**head.streams, batch.name: StreamRecord(query=batch.query, batch=batch.batch, version=version)}


def _rolled_back(head: Snapshot, rollback: Rollback) -> Snapshot:
    """The head with its data, schema, positions and keys as they were; what belongs to the chain stays. [CF13]

    A source or a query that the target does not know may not begin just anywhere, as a new one may: who goes on behind what is taken
    now would lose it. It stands where its first advance, or batch, began.
    """
    target = rollback.target
    fresh = {source: origin for source, origin in head.origins.items() if origin is not None and source not in target.watermarks}
    return msgspec.structs.replace(
        head,
        schema=target.schema,
        partition_by=target.partition_by,
        manifests=target.manifests,
        added=target.added,
        removed=target.removed,
        removed_runs=target.removed_runs,
        watermarks={**target.watermarks, **fresh},
        origins={**target.origins, **fresh},
        # With what the target's runs say of them: what was dropped meanwhile is in the table again, so its work is not to be done again.
        keys=target.keys,
        key_runs=target.key_runs,
        streams=_emptied(head, target),
        totals=target.totals,
    )


def _emptied(head: Snapshot, target: Snapshot) -> dict[str, StreamRecord]:
    """The target's streams, and each query that began since, without any batch."""
    streams = dict(target.streams)
    for name, record in head.streams.items():
        if all(record.query != each.query for each in streams.values()):
            while name in streams:  # of another query by then; a record is found by its query under any name
                name = f"{name} {record.query}"
            streams[name] = StreamRecord(query=record.query, batch=-1, version=head.version + 1)
    return streams


def _tags(head: Snapshot, change: Change) -> dict[str, Tag]:
    edit = change.tag
    if edit is None:
        return head.tags
    others = {name: tag for name, tag in head.tags.items() if name != edit.name}
    return others if edit.version is None else {**others, edit.name: Tag(version=edit.version, until=edit.until)}


def _retained(head: Snapshot, made: Snapshot, retention: Retention) -> Snapshot:
    """What gc leaves of it. A job leaves the record one gc after its birth fell below the fence: `head`'s counts. [GC1] [GC2] [GC8]"""
    fence = max(head.fence, min(retention.fence, head.version))
    # Where others have merged the runs meanwhile, a record forgotten here would uncover an older one there: the next gc forgets.
    is_whole = retention.key_runs is None or retention.key_runs.old <= {run.path for run in made.key_runs}
    forgotten = min(retention.keys_from, fence) if is_whole else 0
    condemned = {name: seen for name, seen in head.condemned.items() if seen is None or seen > fence}
    condemned |= {name: made.version for name in retention.gone if condemned.get(name, 0) is None}
    condemned |= dict.fromkeys(retention.condemned)
    key_runs = _rewritten(made.key_runs, retention.key_runs)
    return msgspec.structs.replace(
        made,
        fence=fence,
        expired=max(head.expired, min(retention.expired, fence)),
        tags={name: tag for name, tag in made.tags.items() if tag.until is None or tag.until > retention.now_us},
        # That a key was dropped is kept as long as a run may say otherwise.
        keys={key: each for key, each in made.keys.items() if each.version >= forgotten or (not each.digest and key_runs)},
        key_runs=key_runs,
        recent_jobs={job: version for job, version in made.recent_jobs.items() if not _is_born_below(job, head.fence)},
        job_runs=_rewritten(made.job_runs, retention.job_runs),
        condemned=condemned,
    )


def _is_born_below(job: str, fence: int) -> bool:
    birth = job[1:].partition("-")[0]
    return birth.isdecimal() and int(birth) < fence


def _rewritten(runs: tuple[RunRef, ...], by: Rewritten | None) -> tuple[RunRef, ...]:
    if by is None or not by.old <= {run.path for run in runs}:
        return runs  # others have merged them meanwhile; the next gc forgets
    return (*(run for run in runs if run.path not in by.old), *by.new)


def _without(entries: tuple[Entry, ...], change: Change, partition_by: tuple[int, ...]) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    if change.scope is None and not change.remove:
        return entries, ()
    matcher = Matcher(change.scope or ())
    goes = [entry.path in change.remove or matcher.holds(of_partition(partition_by, entry.partition)) for entry in entries]
    kept = tuple(entry for entry, gone in zip(entries, goes, strict=True) if not gone)
    return kept, tuple(entry for entry, gone in zip(entries, goes, strict=True) if gone)


def _remaining(head: Snapshot, found: Found, everything: bool) -> tuple[tuple[ManifestRef, ...], dict[str, str]]:
    if everything:
        return (), {}
    if not found.taken:
        return head.manifests, head.removed
    empty = {ref.path for ref in head.manifests if ref.path in found.taken and found.taken[ref.path].bitmap.bit_count() == ref.files}
    bitmaps = {path: text for path, text in head.removed.items() if path not in empty}
    bitmaps |= {path: bitmap.encode(taken.bitmap) for path, taken in found.taken.items() if path not in empty}
    return tuple(ref for ref in head.manifests if ref.path not in empty), bitmaps


def given_and_taken(head: Snapshot, change: Change, found: Found) -> tuple[Totals, Totals]:
    """The files, rows and bytes that a change adds, and those that it takes away."""
    _, dropped = _without(head.added, change, head.partition_by)
    return _given(change), _taken(head, found, dropped, Matcher(change.scope or ()).everything)


def _given(change: Change) -> Totals:
    add, refs = change.add, change.add_manifests
    return Totals(
        files=len(add) + sum(ref.files for ref in refs),
        rows=sum(entry.rows for entry in add) + sum(ref.rows for ref in refs),
        bytes=sum(entry.bytes for entry in add) + sum(ref.data_bytes for ref in refs),
    )


def _taken(head: Snapshot, found: Found, dropped: tuple[Entry, ...], everything: bool) -> Totals:
    if everything:
        return head.totals
    taken = found.taken.values()
    return Totals(
        files=len(dropped) + sum(each.files for each in taken),
        rows=sum(entry.rows for entry in dropped) + sum(each.rows for each in taken),
        bytes=sum(entry.bytes for entry in dropped) + sum(each.bytes for each in taken),
    )


def _touched(head: Snapshot, change: Change, found: Found, dropped: tuple[Entry, ...]) -> tuple[Touch, ...]:
    partition_by = _partition_by(head, change)
    patterns = [*change.touched, *(change.scope or ())]
    patterns += [of_partition(partition_by, entry.partition) for entry in dropped]
    patterns += [touch for taken in found.taken.values() for touch in taken.touched]
    return compact(patterns)


def _schema(head: Snapshot, change: Change) -> Schema | None:
    if change.initial is not None or head.schema is None:
        return change.initial  # of a table that has no schema, or whose schema no commit has used
    return apply_edits(head.schema, change.edits) if change.edits else head.schema


def _partition_by(head: Snapshot, change: Change) -> tuple[int, ...]:
    return head.partition_by if change.initial is None or change.partition_by is None else change.partition_by


def _properties(head: Snapshot, change: Change) -> dict[str, str]:
    merged = {**head.properties, **change.properties}
    return {name: value for name, value in merged.items() if value is not None}
