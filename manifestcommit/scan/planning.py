"""Plans which files a reader must open: a snapshot's entries, pruned by partition values and
bounds, column by column. [RD6] [RD8]"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..filter.predicate import ColumnBounds, Predicate, columns_of, may_match, virtual_fields
from ..filter.transforms import with_transforms
from ..format import codec, manifest_table, values
from ..format.entries import ManifestRef, pack_bins
from ..format.fields import (
    FLOATS,
    MAX_FIELD_ID,
    Field,
    Schema,
    StructType,
    WireValue,
    has_own_order,
)
from ..format.manifest_table import is_live
from ..format.snapshot import Snapshot
from ..format.transforms import partition_fields
from ..format.values import arrow_type
from ..log.manifests import PART_BYTES, ManifestParts, aligned, check_removed
from ..log.table_context import TableContext
from ..log.version_chain import raise_if_expired
from ..runtime.environment import map_concurrently

_End = Literal["min", "max"]
_ENDS: tuple[_End, _End] = ("min", "max")


class EntrySource:
    """The statistics of the entries of a table, column by column."""

    def __init__(self, table: pa.Table, schema: Schema, partition_by: Sequence[int]) -> None:
        self._table = table.select([n for n in table.column_names if "." in n or n == "rows"])
        self._leaves = _comparable_fields(schema, partition_by)
        self._partition_by = partition_by

    @property
    def rows(self) -> pa.Array:
        return whole(self._table.column("rows"))

    def bounds(self, column: tuple[str, ...]) -> ColumnBounds | None:
        field = self._leaves.get(column)
        if field is None:
            return None
        if field.id in self._partition_by:
            value = whole(self._table.column(f"partition.{field.id}"))
            nulls = pc.if_else(value.is_null(), self.rows, 0)
            return ColumnBounds(min=value, max=value, nulls=nulls)
        if f"min.{field.id}" not in self._table.column_names:
            return None
        low, high, nulls, nans = (
            whole(self._table.column(f"{name}.{field.id}"))
            for name in ("min", "max", "nulls", "nans")
        )
        nans = nans if field.type in FLOATS else None
        return ColumnBounds(min=low, max=high, nulls=nulls, nans=nans)


class RowGroupSource:
    """The statistics of the entries in each row group, from the footers of one or more manifests,
    in order. A bound is unknown where a manifest lacks the column, or where an entry has null:
    statistics of a row group skip nulls. [RD12]"""

    def __init__(
        self, footers: Sequence[ManifestParts], schema: Schema, partition_by: Sequence[int]
    ) -> None:
        self._footers = [
            (each, list(map(each.metadata.row_group, range(each.metadata.num_row_groups))))
            for each in footers
        ]
        self._leaves = _comparable_fields(schema, partition_by)
        self._partition_by = partition_by

    @property
    def rows(self) -> pa.Array:
        """The number of entries, which serves as that of rows, unless none has any."""
        entries = (group.num_rows for _, groups in self._footers for group in groups)
        counts = (
            0 if stats is not None and stats.has_min_max and stats.max == 0 else count
            for stats, count in zip(self._statistics("rows"), entries, strict=True)
        )
        return pa.array(counts, pa.int64())

    def bounds(self, column: tuple[str, ...]) -> ColumnBounds | None:
        field = self._leaves.get(column)
        if field is None:
            return None
        if field.id in self._partition_by:
            name = f"partition.{field.id}"
            nulls = [
                stats.null_count if stats is not None and stats.has_null_count else None
                for stats in self._statistics(name)
            ]
            low, high = (self._ends(name, field, end, with_nulls=True) for end in _ENDS)
            return ColumnBounds(min=low, max=high, nulls=pa.array(nulls, pa.int64()))
        low, high = (self._ends(f"{end}.{field.id}", field, end, with_nulls=False) for end in _ENDS)
        nans = self._no_rows(f"nans.{field.id}") if field.type in FLOATS else None
        return ColumnBounds(min=low, max=high, nulls=self._no_rows(f"nulls.{field.id}"), nans=nans)

    def _statistics(self, name: str) -> Iterator[Any]:
        for footer, groups in self._footers:
            at = footer.positions.get(name)
            yield from (None if at is None else group.column(at).statistics for group in groups)

    def _ends(self, name: str, field: Field, end: _End, *, with_nulls: bool) -> pa.Array:
        """The least or greatest value of each row group in the column's type; null: unknown."""
        kind = arrow_type(field.type)
        told = (
            stats if _tells(stats, with_nulls=with_nulls) else None
            for stats in self._statistics(name)
        )
        stored = (_stored(footer.schema, name) for footer, groups in self._footers for _ in groups)
        # one run, unless the column was widened between two manifests
        runs = groupby(zip(stored, told, strict=True), key=itemgetter(0))
        return pa.concat_arrays(
            [_typed([stats for _, stats in run], end, as_stored, kind) for as_stored, run in runs]
        )

    def _no_rows(self, name: str) -> pa.Array:
        """0 if every entry counts none, otherwise unknown."""
        told = ((_tells(each, with_nulls=False), each) for each in self._statistics(name))
        return pa.array(
            [0 if tells and each.max == 0 else None for tells, each in told], pa.int64()
        )


class ManifestSource:
    """The statistics in references, by partition column: bounds of a manifest's entries."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._references = snapshot.manifests
        self._partition_by = snapshot.partition_by
        self._leaves = _comparable_fields(snapshot.schema, snapshot.partition_by)

    @property
    def rows(self) -> pa.Array:
        return pa.array([ref.rows for ref in self._references], pa.int64())

    def bounds(self, column: tuple[str, ...]) -> ColumnBounds | None:
        field = self._leaves.get(column)
        if field is None or field.id not in self._partition_by:
            return None
        index, references = self._partition_by.index(field.id), self._references
        lows, highs = ([ref.lower for ref in references], [ref.upper for ref in references])
        low, high = (
            values.to_array([_at(each, index) for each in ends], field.type)
            for ends in (lows, highs)
        )
        nulls = [0 if _at(ref.nulls, index) is False else None for ref in references]
        return ColumnBounds(min=low, max=high, nulls=pa.array(nulls, pa.int64()))


def leaf_fields(schema: Schema) -> dict[tuple[str, ...], Field]:
    """Each primitive column that only structs lead to, by its path of visible names."""

    def below(fields: Sequence[Field], above: tuple[str, ...]) -> Columns:
        for field in fields:
            if isinstance(field.type, StructType):
                yield from below(field.type.fields, (*above, field.name))
            elif isinstance(field.type, str):
                yield (*above, field.name), field

    return dict(below(schema.fields, ()))


Columns = Iterator[tuple[tuple[str, ...], Field]]


def _comparable_fields(schema: Schema, partition_by: Sequence[int]) -> dict[tuple[str, ...], Field]:
    """Of these columns those whose values engines compare as they are stored: bounds say nothing
    of the others. [RD6] And the transforms of columns. [PT7]"""
    fields = {path: each for path, each in leaf_fields(schema).items() if not has_own_order(each)}
    return fields | virtual_fields(schema, partition_by)


def columns_for(
    predicate: Predicate, schema: Schema, partition_by: Sequence[int]
) -> frozenset[str]:
    """The columns of a manifest that decide what may match; some lack some of them. [RD12]"""
    known, named = leaf_fields(schema) | virtual_fields(schema, partition_by), {"rows"}
    for id in {known[path].id for path in columns_of(predicate) if path in known}:
        kinds = ("partition",) if id in partition_by else ("min", "max", "nulls", "nans")
        named |= {f"{kind}.{id}" for kind in kinds}
    return frozenset(named)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """The column as one chunk."""
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _tells(statistics: Any, *, with_nulls: bool) -> bool:
    """Whether these statistics bound all values, and, if nulls count, there are none."""
    if statistics is None or not statistics.has_min_max:
        return False
    return with_nulls or bool(statistics.has_null_count and statistics.null_count == 0)


def _stored(schema: pa.Schema, name: str) -> pa.DataType | None:
    at = schema.get_field_index(name)
    return None if at < 0 else schema.field(at).type


def _typed(
    told: Sequence[Any], end: _End, stored: pa.DataType | None, kind: pa.DataType
) -> pa.Array:
    """One end of statistics, all from columns stored in one type, in the column's present type."""
    if stored is None:
        return pa.nulls(len(told), kind)
    try:
        if pa.types.is_temporal(stored):  # Python cannot represent all of these times
            raw, width = [getattr(stats, f"{end}_raw", None) for stats in told], stored.bit_width
            numbers = pa.array(raw, pa.int32() if width == 32 else pa.int64())
            return numbers.view(stored).cast(kind)
        return pa.array([getattr(stats, end, None) for stats in told], stored).cast(kind)
    # out of the column's range: reading it will raise the error
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.nulls(len(told), kind)


def _at(items: Sequence[WireValue], index: int) -> WireValue:
    return items[index] if index < len(items) else None


_FOOTERS = 64  # manifests whose footers are evaluated together
_FOOTERS_BYTES = 16 << 20  # bytes of these footers, as stored
_BOOKKEEPING = ("path", "rows", "bytes", "digest", "added", "job")


def entries_table(
    ctx: TableContext,
    snapshot: Snapshot,
    predicate: Predicate | None = None,
    *,
    in_order: bool = True,
) -> pa.Table:
    """Every live entry that may hold a row for which the predicate is true, as a manifest's table.
    One request per manifest whose partition bounds may match, several if a filter reads it by
    parts. SnapshotExpiredError if gc deleted a manifest because the version expired. [RD6]

    in_order: sort the result as one table, which takes longer than everything else if manifests
    overlap; otherwise it is sorted per manifest. [RD41]
    """
    if predicate is None:
        tables = _of_each(ctx, snapshot, snapshot.manifests, lambda live: live)
    else:
        if any(field_id > MAX_FIELD_ID for field_id in snapshot.partition_by):
            predicate = with_transforms(predicate, snapshot.schema, snapshot.partition_by)
        tables = _matching(ctx, snapshot, predicate)
    # without entries, only the columns
    tables = [table for table in tables if table.num_rows] or tables[:1]
    inlined = ctx.manifests.inlined(snapshot)
    tables.append(inlined if predicate is None else _matching_entries(inlined, snapshot, predicate))
    join = manifest_table.unite if in_order else manifest_table.stack
    return join(tables, snapshot)


def entries_of(ctx: TableContext, snapshot: Snapshot, paths: Sequence[str]) -> pa.Table:
    """The live entries with these paths, in no order. One request per manifest with some. [OB6]"""
    ordered, wanted = sorted(paths), pa.array(paths, pa.string())

    def may_have(ref: ManifestRef) -> bool:
        at = bisect_left(ordered, ref.first_path)
        return at < len(ordered) and ordered[at] <= ref.last_path

    def having(table: pa.Table) -> pa.Table:
        return table.filter(pc.is_in(table.column("path"), value_set=wanted))

    tables = _of_each(ctx, snapshot, [ref for ref in snapshot.manifests if may_have(ref)], having)
    tables.append(having(ctx.manifests.inlined(snapshot)))
    return manifest_table.stack(tables, snapshot)


def _of_each(
    ctx: TableContext,
    snapshot: Snapshot,
    references: Sequence[ManifestRef],
    take: Callable[[pa.Table], pa.Table],
) -> list[pa.Table]:
    """Apply `take` to each manifest's live entries, all bytes read: perhaps much work."""
    if not references:
        return []
    with raise_if_expired(ctx.store, snapshot.version):
        removed = ctx.manifests.removed(snapshot)
        return map_concurrently(
            ctx.store,
            lambda ref: take(ctx.manifests.live(ref, snapshot, removed.get(ref.path, 0))),
            references,
            is_much=sum(ref.bytes for ref in references) > PART_BYTES,
        )


def _matching(ctx: TableContext, snapshot: Snapshot, predicate: Predicate) -> list[pa.Table]:
    """The entries that may match, by manifest; footers of many are evaluated at once. [RD12]"""
    tables: list[pa.Table] = []
    if not snapshot.manifests:
        return tables
    kept = may_match(predicate, ManifestSource(snapshot)).to_pylist()
    references = [ref for ref, may in zip(snapshot.manifests, kept, strict=True) if may]
    with raise_if_expired(ctx.store, snapshot.version):
        removed = ctx.manifests.removed(snapshot) if references else {}

        def parts_of(ref: ManifestRef) -> ManifestParts | None:
            check_removed(ref, removed.get(ref.path, 0))
            return ctx.manifests.parts(ref, snapshot.partition_by)

        def rows_of(asked: _Asked) -> pa.Table:
            return _matching_rows(ctx, snapshot, predicate, removed.get(asked[0].path, 0), *asked)

        for some in pack_bins(((ref, _room(ref)) for ref in references), _FOOTERS_BYTES):
            parts = map_concurrently(ctx.store, parts_of, some)
            known = [part for part in parts if part is not None]
            groups = _matching_groups(known, snapshot, predicate)
            asked = [
                (ref, part, [] if part is None else next(groups))
                for ref, part in zip(some, parts, strict=True)
            ]
            # the first manifest supplies the columns if nothing matches
            asked = asked[:1] + [each for each in asked[1:] if each[1] is None or each[2]]
            tables += map_concurrently(ctx.store, rows_of, asked)
    return tables


def _room(ref: ManifestRef) -> int:
    """A manifest's share of `_FOOTERS_BYTES`: its footer, and room for `_FOOTERS` such."""
    return max(ref.footer.bytes if ref.footer is not None else 0, _FOOTERS_BYTES // _FOOTERS)


# one manifest and, if it is read by parts, these and the row groups that may match
_Asked = tuple[ManifestRef, ManifestParts | None, list[int]]


def _matching_groups(
    parts: Sequence[ManifestParts], snapshot: Snapshot, predicate: Predicate
) -> Iterator[list[int]]:
    """The numbers of the row groups of each manifest that may match, by their statistics. [RD12]"""
    if not parts:
        return
    may_have = may_match(predicate, RowGroupSource(parts, snapshot.schema, snapshot.partition_by))
    at = 0
    for part in parts:
        yield pc.indices_nonzero(may_have.slice(at, len(part.sizes))).to_pylist()
        at += len(part.sizes)


def _matching_entries(table: pa.Table, snapshot: Snapshot, predicate: Predicate) -> pa.Table:
    source = EntrySource(table, snapshot.schema, snapshot.partition_by)
    return table.filter(may_match(predicate, source))


def _matching_rows(
    ctx: TableContext,
    snapshot: Snapshot,
    predicate: Predicate,
    removed: int,
    ref: ManifestRef,
    parts: ManifestParts | None,
    groups: Sequence[int],
) -> pa.Table:
    """Read the filter's columns of the row groups that may match, then the other columns of the
    entries that remain. [RD12]"""
    if parts is None:
        return _matching_entries(ctx.manifests.live(ref, snapshot, removed), snapshot, predicate)
    schema, partition_by = snapshot.schema, snapshot.partition_by
    if not groups:
        return parts.schema.empty_table()
    wanted = columns_for(predicate, schema, partition_by)
    asked = [name for name in parts.schema.names if name in wanted]
    few = _aligned_part(parts, groups, asked, ref, snapshot)
    mask = may_match(predicate, EntrySource(few, schema, partition_by))
    left = _split(mask, parts, groups, is_live(removed, ref.files) if removed else None)
    if not left:
        return parts.schema.empty_table()
    names, kept = manifest_table.known_columns(parts.schema.names, schema), list(left.values())
    return _aligned_part(parts, list(left), names, ref, snapshot, pa.concat_arrays(kept))


def _split(
    mask: pa.BooleanArray, parts: ManifestParts, groups: Sequence[int], live: pa.BooleanArray | None
) -> dict[int, pa.BooleanArray]:
    """Split the mask by row group, without entries that are not live, and empty groups. [OB9]"""
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
    except (ValueError, pa.ArrowException) as error:
        raise codec.damaged(ref.path, error) from None
    return aligned(table, ref, snapshot)


def describe_files(table: pa.Table, snapshot: Snapshot) -> pa.Table:
    """The entries as users see them: path, partition columns, rows, bytes, digest, version, job,
    bounds by column name. A partition column named like another is called `partition.<name>`."""
    schema = snapshot.schema
    columns: dict[str, pa.ChunkedArray | pa.Array] = {"path": table.column("path")}
    for each in partition_fields(schema, snapshot.partition_by):
        is_taken = each.name in (*_BOOKKEEPING, "added_version", "bounds")
        name = f"partition.{each.name}" if is_taken else each.name
        columns[name] = table.column(f"partition.{each.id}")
    columns |= {name: table.column(name) for name in ("rows", "bytes", "digest")}
    columns |= {"added_version": table.column("added"), "job": table.column("job")}
    bounds = {}
    for path, field in leaf_fields(schema).items():
        if f"min.{field.id}" in table.column_names:
            name = ".".join(f"`{part}`" if "." in part else part for part in path)
            bounds[name] = _bounds_struct(table, field)
    if bounds:
        pieces = pa.table(list(bounds.values()), list(map(str, range(len(bounds))))).to_batches()
        kind = pa.struct([(name, array.type) for name, array in bounds.items()])
        members = list(kind)
        found = [pa.StructArray.from_arrays(piece.columns, fields=members) for piece in pieces]
        columns["bounds"] = pa.chunked_array(found, kind)
    return pa.table(columns)


def describe_partitions(table: pa.Table, snapshot: Snapshot) -> pa.Table:
    """The entries of each partition together: its columns, files, rows and bytes, in no certain
    order. A column named like one of the counts is called `partition.<name>`. [PT1]"""
    sums = {name: table.column(name) for name in ("rows", "bytes")}
    sums = {"files": pa.repeat(pa.scalar(1, pa.int64()), table.num_rows), **sums}
    keys = [f"partition.{each}" for each in snapshot.partition_by]
    counted = pa.table({**{key: table.column(key) for key in keys}, **sums})
    if table.num_rows:  # no files: no partition
        counted = counted.group_by(keys).aggregate([(name, "sum") for name in sums])
        counted = counted.select([*keys, *(f"{name}_sum" for name in sums)])
    names = [each.name for each in partition_fields(snapshot.schema, snapshot.partition_by)]
    shown = [f"partition.{name}" if name in sums else name for name in names]
    return counted.rename_columns([*shown, *sums])


def _bounds_struct(table: pa.Table, field: Field) -> pa.ChunkedArray:
    """The statistics of one column as a struct, chunk by chunk: nothing is copied."""
    names = ["nulls", "nans", "min", "max", "exact"]
    some = table.select([f"{name}.{field.id}" for name in (*names[:4], "cuts")])
    shown = [
        pa.StructArray.from_arrays([*piece.columns[:4], pc.equal(piece.column(4), 0)], names)
        for piece in some.to_batches()
    ]
    kinds = [*some.schema.types[:4], pa.bool_()]
    return pa.chunked_array(shown, pa.struct(list(zip(names, kinds, strict=True))))


def differing_entries(
    ctx: TableContext, start: Snapshot, end: Snapshot
) -> tuple[pa.Table, pa.Table]:
    """(entries only in `start`, those only in `end`), by partition, then path. [RD8]"""
    before, after = unshared_entries(ctx, start, end)

    def without(entries: pa.Table, others: pa.Table, of: Snapshot) -> pa.Table:
        known = others.column("path").combine_chunks()
        is_other = pc.is_in(entries.column("path"), value_set=known)
        return manifest_table.unite([entries.filter(pc.invert(is_other))], of)

    return without(before, after, start), without(after, before, end)


def unshared_entries(
    ctx: TableContext, start: Snapshot, end: Snapshot
) -> tuple[pa.Table, pa.Table]:
    """The live entries of both, unordered, without manifests that both list, not opened. [RD8]"""
    shared = {ref.path for ref in start.manifests} & {ref.path for ref in end.manifests}
    if shared:
        gone_before, gone_after = ctx.manifests.removed(start), ctx.manifests.removed(end)
        shared = {path for path in shared if gone_before.get(path, 0) == gone_after.get(path, 0)}

    def own(snapshot: Snapshot) -> pa.Table:
        manifests = tuple(ref for ref in snapshot.manifests if ref.path not in shared)
        some = msgspec.structs.replace(snapshot, manifests=manifests)
        return entries_table(ctx, some, in_order=False)

    return own(start), own(end)
