"""Which files a reader must open: a snapshot's entries, pruned by partition values and bounds, column-wise. [RD6] [RD8]

Not here: reading rows (engine.dataset, spark.reader, spark.task_reader), row groups of data files (engine.row_groups), the three-valued
logic (core.predicate).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..core import format, manifest_table
from ..core.manifest import ManifestRef
from ..core.manifest_table import is_live
from ..core.packing import filled
from ..core.predicate import Predicate, may_match
from ..core.schema import Field, Schema
from ..core.snapshot import Snapshot
from ..errors import CorruptMetadataError
from .at_once import at_once
from .head import while_readable
from .manifests import PART_BYTES, aligned, check_removed
from .parts import ManifestParts
from .session import Session
from .sources import EntrySource, ManifestSource, RowGroupSource, columns_for, leaf_fields

_FOOTERS = 64  # of manifests that are asked together
_FOOTERS_BYTES = 16 << 20  # of these, as stored
_BOOKKEEPING = ("path", "rows", "bytes", "digest", "added", "job")


def entries_table(session: Session, snapshot: Snapshot, predicate: Predicate | None = None, *, in_order: bool = True) -> pa.Table:
    """Every live entry that may hold a row for which the predicate is true, in the form of a manifest's table. [RD6]

    in_order: sorted as one, too, which takes longer than all the rest where manifests overlap; else manifest by manifest. [RD41]
    One request per manifest whose partition bounds may match, several where a filter reads it by parts. SnapshotExpiredError where gc took
    one because the version expired.
    """
    if snapshot.schema is None:
        return pa.table({name: pa.array([], kind) for name, kind in manifest_table.FIXED})
    if predicate is None:
        found = _of_each(session, snapshot, snapshot.manifests, lambda live: live)
    else:
        found = _matching(session, snapshot, predicate)
    found = [table for table in found if table.num_rows] or found[:1]  # of those without entries no more than the columns
    inlined = session.manifests.inlined(snapshot)
    found.append(inlined if predicate is None else _matching_entries(inlined, snapshot, predicate))
    join = manifest_table.unite if in_order else manifest_table.stack
    return join(found, schema=snapshot.schema, partition_by=snapshot.partition_by)


def entries_of(session: Session, snapshot: Snapshot, paths: Sequence[str]) -> pa.Table:
    """Those of the live entries that have one of these paths, in no certain order. One request per manifest that may have any. [OB6]"""
    assert snapshot.schema is not None
    ordered, wanted = sorted(paths), pa.array(paths, pa.string())

    def may_have(ref: ManifestRef) -> bool:
        at = bisect_left(ordered, ref.first_path)
        return at < len(ordered) and ordered[at] <= ref.last_path

    def having(table: pa.Table) -> pa.Table:
        return table.filter(pc.is_in(table.column("path"), value_set=wanted))

    tables = _of_each(session, snapshot, [ref for ref in snapshot.manifests if may_have(ref)], having)
    tables.append(having(session.manifests.inlined(snapshot)))
    return manifest_table.stack(tables, schema=snapshot.schema, partition_by=snapshot.partition_by)


def _of_each(
    session: Session, snapshot: Snapshot, references: Sequence[ManifestRef], take: Callable[[pa.Table], pa.Table]
) -> list[pa.Table]:
    """What is taken of the live entries of each manifest, of which all bytes are read: that may be much work."""
    with while_readable(session.store, snapshot.version):
        removed = session.manifests.removed(snapshot) if references else {}
        return at_once(
            session.store,
            lambda ref: take(session.manifests.live(ref, snapshot, removed.get(ref.path, 0))),
            references,
            is_much=sum(ref.bytes for ref in references) > PART_BYTES,
        )


def _matching(session: Session, snapshot: Snapshot, predicate: Predicate) -> list[pa.Table]:
    """Those that may match, manifest by manifest. What footers say of row groups is asked of many manifests together. [RD12]"""
    references = _matching_manifests(snapshot, predicate)
    found: list[pa.Table] = []
    with while_readable(session.store, snapshot.version):
        removed = session.manifests.removed(snapshot) if references else {}
        for some in filled(((ref, _room(ref)) for ref in references), _FOOTERS_BYTES):
            asked = [_Asked(ref=ref, removed=removed.get(ref.path, 0)) for ref in some]
            parts = at_once(session.store, lambda each: _parts(session, snapshot, each), asked)
            groups = _matching_groups([each for each in parts if each is not None], snapshot, predicate)
            asked = [each._replace(parts=of, groups=[] if of is None else next(groups)) for each, of in zip(asked, parts, strict=True)]
            # The first one tells the columns, should nothing be found.
            asked = [each for at, each in enumerate(asked) if each.parts is None or each.groups or at == 0]
            found += at_once(session.store, lambda each: _matching_rows(session, snapshot, each, predicate), asked)
    return found


def _room(ref: ManifestRef) -> int:
    """What a manifest takes of `_FOOTERS_BYTES`: its footer, and enough that no more than `_FOOTERS` have room."""
    return max(ref.footer.bytes if ref.footer is not None else 0, _FOOTERS_BYTES // _FOOTERS)


class _Asked(NamedTuple):
    """One manifest: which of its rows were taken out, and where it is read by parts, which of its row groups may match."""

    ref: ManifestRef
    removed: int
    parts: ManifestParts | None = None
    groups: Sequence[int] = ()


def _parts(session: Session, snapshot: Snapshot, asked: _Asked) -> ManifestParts | None:
    check_removed(asked.ref, asked.removed)
    return session.manifests.parts(asked.ref, snapshot.partition_by)


def _matching_groups(parts: Sequence[ManifestParts], snapshot: Snapshot, predicate: Predicate) -> Iterator[list[int]]:
    """The numbers of the row groups of each manifest that may match, by their statistics. [RD12]"""
    if not parts:
        return
    assert snapshot.schema is not None
    may_have = may_match(predicate, RowGroupSource(parts, snapshot.schema, snapshot.partition_by))
    at = 0
    for each in parts:
        yield pc.indices_nonzero(may_have.slice(at, len(each.sizes))).to_pylist()
        at += len(each.sizes)


def _matching_entries(table: pa.Table, snapshot: Snapshot, predicate: Predicate) -> pa.Table:
    assert snapshot.schema is not None
    return table.filter(may_match(predicate, EntrySource(table, snapshot.schema, snapshot.partition_by, predicate)))


def _matching_rows(session: Session, snapshot: Snapshot, asked: _Asked, predicate: Predicate) -> pa.Table:
    """The columns that the filter asks of the row groups that may match, then the rest of the entries that it leaves. [RD12]"""
    ref, removed, parts, groups = asked
    if parts is None:
        return _matching_entries(session.manifests.live(ref, snapshot, removed), snapshot, predicate)
    schema, partition_by = snapshot.schema, snapshot.partition_by
    assert schema is not None
    if not groups:
        return parts.schema.empty_table()
    wanted = columns_for(predicate, schema, partition_by)
    few = _aligned_part(parts, groups, [name for name in parts.schema.names if name in wanted], ref, snapshot)
    mask = may_match(predicate, EntrySource(few, schema, partition_by, predicate))
    left = _split(mask, parts, groups, is_live(removed, ref.files) if removed else None)
    if not left:
        return parts.schema.empty_table()
    names = manifest_table.known_columns(parts.schema.names, schema)
    return _aligned_part(parts, list(left), names, ref, snapshot, pa.concat_arrays(list(left.values())))


def _split(mask: pa.BooleanArray, parts: ManifestParts, groups: Sequence[int], live: pa.BooleanArray | None) -> dict[int, pa.BooleanArray]:
    """The mask by row group, without entries that are no longer live, and without row groups in which none is left. [OB9]"""
    starts = [0, *itertools.accumulate(parts.sizes)]
    left, at = {}, 0
    for group in groups:
        first, size = starts[group], parts.sizes[group]
        piece = mask.slice(at, size)
        piece = piece if live is None else pc.and_(piece, live.slice(first, size))
        if piece.true_count:
            left[group] = piece
        at += size
    return left


def _aligned_part(
    parts: ManifestParts,
    groups: Sequence[int],
    columns: Sequence[str],
    ref: ManifestRef,
    snapshot: Snapshot,
    mask: pa.BooleanArray | None = None,
) -> pa.Table:
    table = parts.read(groups, columns)
    if mask is not None:
        table = table.filter(mask)
    try:
        manifest_table.check_rows(table)
    except (ValueError, msgspec.DecodeError) as error:
        raise CorruptMetadataError(format.damaged(ref.path, str(error)), object_name=ref.path) from None
    return aligned(table, ref, snapshot)


def describe_files(table: pa.Table, snapshot: Snapshot) -> pa.Table:
    """The entries as users see them: path, partition columns, rows, bytes, digest, version, job, bounds by column name.

    A partition column named like one of ours is called `partition.<name>`.
    """
    schema = snapshot.schema or Schema(fields=())
    columns: dict[str, pa.ChunkedArray | pa.Array] = {"path": table.column("path")}
    by_id = {field.id: field for field in schema.fields}
    for each in snapshot.partition_by:
        name = by_id[each].name
        columns[f"partition.{name}" if name in (*_BOOKKEEPING, "added_version", "bounds") else name] = table.column(f"partition.{each}")
    columns |= {name: table.column(name) for name in ("rows", "bytes", "digest")}
    columns["added_version"] = table.column("added")
    columns["job"] = table.column("job")
    bounds = {}
    for path, field in leaf_fields(schema).items():
        if f"min.{field.id}" in table.column_names:
            bounds[".".join(f"`{name}`" if "." in name else name for name in path)] = _bounds_struct(table, field)
    if bounds:
        pieces = pa.table(list(bounds.values()), names=[str(number) for number in range(len(bounds))]).to_batches()
        kind = pa.struct([(name, array.type) for name, array in bounds.items()])
        columns["bounds"] = pa.chunked_array([pa.StructArray.from_arrays(each.columns, fields=list(kind)) for each in pieces], kind)
    return pa.table(columns)


def _matching_manifests(snapshot: Snapshot, predicate: Predicate) -> tuple[ManifestRef, ...]:
    if not snapshot.manifests:
        return ()
    keep = may_match(predicate, ManifestSource(snapshot)).to_pylist()
    return tuple(ref for ref, kept in zip(snapshot.manifests, keep, strict=True) if kept)


def _bounds_struct(table: pa.Table, field: Field) -> pa.ChunkedArray:
    """The statistics of one column side by side, chunk by chunk: nothing is copied."""
    names = ("nulls", "nans", "min", "max")
    pieces = table.select([f"{name}.{field.id}" for name in (*names, "cuts")]).to_batches()
    shown = [pa.StructArray.from_arrays([*each.columns[:4], pc.equal(each.column(4), 0)], names=[*names, "exact"]) for each in pieces]
    kinds = [*(table.schema.field(f"{name}.{field.id}").type for name in names), pa.bool_()]
    return pa.chunked_array(shown, pa.struct(list(zip([*names, "exact"], kinds, strict=True))))


def differing_entries(session: Session, start: Snapshot, end: Snapshot) -> tuple[pa.Table, pa.Table]:
    """(entries only in `start`, those only in `end`), by partition, then path. Manifests that both list alike are not even opened. [RD8]"""
    before, after = unshared_entries(session, start, end)
    old, new = (table.column("path").combine_chunks() for table in (before, after))
    return (
        _in_order(before.filter(pc.invert(pc.is_in(before.column("path"), value_set=new))), start),
        _in_order(after.filter(pc.invert(pc.is_in(after.column("path"), value_set=old))), end),
    )


def _in_order(entries: pa.Table, snapshot: Snapshot) -> pa.Table:
    schema = snapshot.schema
    return entries if schema is None else manifest_table.unite([entries], schema=schema, partition_by=snapshot.partition_by)


def unshared_entries(session: Session, start: Snapshot, end: Snapshot) -> tuple[pa.Table, pa.Table]:
    """The live entries of both, in no certain order, without those of manifests that both list alike, which are not even opened. [RD8]"""
    shared = _shared_manifests(session, start, end)
    own = [msgspec.structs.replace(each, manifests=tuple(r for r in each.manifests if r.path not in shared)) for each in (start, end)]
    before, after = (entries_table(session, each, in_order=False) for each in own)
    return before, after


def _shared_manifests(session: Session, start: Snapshot, end: Snapshot) -> frozenset[str]:
    common = {ref.path for ref in start.manifests} & {ref.path for ref in end.manifests}
    if not common:
        return frozenset()
    gone_before, gone_after = session.manifests.removed(start), session.manifests.removed(end)
    return frozenset(path for path in common if gone_before.get(path, 0) == gone_after.get(path, 0))
