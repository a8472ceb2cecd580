"""Looking up what a change needs to know: entries that it takes away, paths that are live, commits
that won. [CM12] [CF1]

Reads only manifests whose bounds can matter.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..format import manifest_table, object_names, values
from ..format.change import (
    Abort,
    Change,
    ConflictInputs,
    MergeManifests,
    RemovedRows,
    Retention,
    Rewind,
    Rollback,
    TagEdit,
    Write,
)
from ..format.entries import ManifestRef
from ..format.fields import FieldType, WireValue
from ..format.partitioning import Matcher, PartitionPattern, bounded
from ..format.snapshot import Snapshot
from ..format.watermark import VERSIONS_SEARCHED, Advance, find_mismatch
from ..log.table_context import TableContext
from ..log.time_travel import committed_ranges, dropped_at, find_job, find_key
from ..log.version_chain import Head, missing_version, read_object
from ..protocol.conflict import InterveningCommit, needs_winners


def find_winners(
    ctx: TableContext, head: Head, change: Change, seen: dict[int, Head]
) -> list[InterveningCommit]:
    """The commits after the change's birth, or what it is based on, up to the head; none for an
    append. [CF3] [CF17]

    One request per version not in `seen`.
    """
    if not needs_winners(change):
        return []
    seen[head.version] = head
    winners = []
    for version in range(change.since + 1, head.version + 1):
        if version in head.snapshot.void:
            continue  # a member of a joint commit that was aborted won nothing [MT8]
        if version not in seen:
            found = read_object(ctx.store, version)
            if found is None:
                # `expired` never passes `fence`, and a fenced job was stopped before: only damage
                # can bring us here.
                raise missing_version(version)
            seen[version] = found
        snapshot = seen[version].snapshot
        others = (commit for commit in snapshot.commits if commit.job != change.job)
        winners += [
            InterveningCommit(version=version, commit=commit, watermarks=snapshot.watermarks)
            for commit in others
        ]
    return winners


def load_conflict_inputs(ctx: TableContext, head: Head, change: Change) -> ConflictInputs:
    """What the change takes out of every manifest, and which of its paths are live or gone. [CF5]
    [CF7] [CF10]"""
    snapshot = head.snapshot
    match change:
        case Write():
            foreign = frozenset(entry.path for entry in change.add if change.job not in entry.path)
            found = _survey(ctx, snapshot, foreign, change)
            dropped = dropped_at(ctx, snapshot, change.key)
            advanced = _advanced(ctx, head, change)
            if not dropped and not advanced:
                return found
            return msgspec.structs.replace(found, dropped=dropped, advanced=advanced)
        case Retention():
            return _survey(ctx, snapshot, change.condemned)
        case MergeManifests():
            # Commits merge small manifests as well: what is left of them is enough.
            is_there = any(ref.path in change.paths for ref in snapshot.manifests)
            return ConflictInputs(gone=frozenset() if is_there else change.paths)
        case Abort():
            # Below the fence its record may be gone: that it committed is known to the history
            # only.
            fenced = object_names.parse_job_id(change.aborted).birth < snapshot.fence
            # an attempt of a joint commit is in the record of the members that it committed [MT9]
            decided = any(each.attempt == change.aborted for each in snapshot.joint.values())
            return ConflictInputs(
                committed=fenced
                or decided
                or find_job(ctx, snapshot, change.aborted)[0] == "committed"
            )
        case Rewind():
            return ConflictInputs(reused=_reused(ctx, head, change))
        case TagEdit() | Rollback():
            return ConflictInputs()  # the latest version says it all


def _advanced(ctx: TableContext, head: Head, change: Write) -> frozenset[Advance]:
    """The change's ranges of texts that one of the latest versions committed, if it cannot commit:
    a rerun may take them as done. [WM2]"""
    texts = [advance for advance in change.advances if isinstance(advance.end, str)]
    known = head.snapshot
    if not texts or find_mismatch(known.watermarks, known.origins, change.advances) is None:
        return frozenset()
    return committed_ranges(ctx, head, texts, head.version - VERSIONS_SEARCHED)


def _reused(ctx: TableContext, head: Head, change: Rewind) -> frozenset[str]:
    """The keys that another rewind invalidated, and that were given to other work since: that work
    is not undone by this one."""
    if head.version == change.birth:
        return frozenset()
    records = {key: find_key(ctx, head.snapshot, key) for key in change.keys}
    return frozenset(
        key for key, record in records.items() if record is None or record.version > change.birth
    )


def _survey(
    ctx: TableContext,
    snapshot: Snapshot,
    foreign: frozenset[str],
    change: Write | None = None,
) -> ConflictInputs:
    """foreign: paths that may be live although no job of this table named them."""
    scope = change.scope if change is not None else None
    remove = change.remove if change is not None else frozenset()
    if scope is None and not remove and not foreign:
        return ConflictInputs()  # the usual append: nothing is looked up
    inlined = frozenset(entry.path for entry in snapshot.added)
    matcher = Matcher(scope) if scope is not None else None
    # Emptying the whole table needs no manifest, unless the choice is to fail where there is
    # anything.
    if (
        matcher is not None
        and matcher.everything
        and change is not None
        and change.overwrite is not None
        and change.overwrite.conflict != "fail"
    ):
        return ConflictInputs(live=frozenset())
    taken: dict[str, RemovedRows] = {}
    live = foreign & inlined
    gone = remove - inlined
    removed = ctx.manifests.removed(snapshot) if snapshot.manifests else {}
    for ref in snapshot.manifests:
        may_hold = matcher is not None and any(
            _may_hold(snapshot, ref, touch) for touch in scope or ()
        )
        wanted = frozenset(
            path for path in gone | foreign if ref.first_path <= path <= ref.last_path
        )
        if not may_hold and not wanted:
            continue
        table = ctx.manifests.manifest(ref, snapshot.partition_by)
        before = removed.get(ref.path, 0)
        hits = _rows(snapshot, table, matcher if may_hold else None, wanted & gone) & ~before
        if hits:
            rows = manifest_table.live(table, ~hits & ((1 << table.num_rows) - 1))
            taken[ref.path] = RemovedRows(
                bitmap=before | hits,
                files=hits.bit_count(),
                rows=pc.sum(rows.column("rows")).as_py() or 0,
                bytes=pc.sum(rows.column("bytes")).as_py() or 0,
                touched=_partitions(snapshot, rows) if remove else (),
            )
        paths = (
            frozenset(manifest_table.live(table, before).column("path").to_pylist())
            if wanted
            else frozenset()
        )
        gone -= paths
        live |= foreign & paths
    return ConflictInputs(taken=taken, gone=gone, live=live)


def _partitions(snapshot: Snapshot, table: pa.Table) -> tuple[PartitionPattern, ...]:
    assert snapshot.schema is not None
    return bounded(manifest_table.partitions(table, snapshot.schema, snapshot.partition_by))


def _rows(
    snapshot: Snapshot, table: pa.Table, matcher: Matcher | None, paths: frozenset[str]
) -> int:
    assert snapshot.schema is not None
    return manifest_table.rows_matching(
        table,
        schema=snapshot.schema,
        partition_by=snapshot.partition_by,
        scope=matcher,
        paths=paths,
    )


def _may_hold(snapshot: Snapshot, ref: ManifestRef, touch: PartitionPattern) -> bool:
    types = manifest_table.partition_types(snapshot.schema, snapshot.partition_by)
    for index, (each, kind) in enumerate(zip(snapshot.partition_by, types, strict=True)):
        if each in touch and not _between(ref, index, touch[each], kind):
            return False
    return True


def _between(ref: ManifestRef, index: int, value: WireValue, kind: FieldType) -> bool:
    if value is None:
        return ref.nulls[index] if index < len(ref.nulls) else True
    if index >= len(ref.lower) or ref.lower[index] is None or ref.upper[index] is None:
        return True  # bounds that are not known rule nothing out
    low, high, wanted = (
        values.order_key(each, kind) for each in (ref.lower[index], ref.upper[index], value)
    )
    return bool(low <= wanted <= high)
