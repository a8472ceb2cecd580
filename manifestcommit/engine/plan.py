"""Which files a reader must open: a snapshot's entries, pruned by partition values and bounds, column-wise. [RD6] [RD8]

Not here: reading rows (engine.dataset, spark.reader), the three-valued logic (core.predicate).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..core import manifest_table, values
from ..core.manifest import ManifestRef, WireValue
from ..core.predicate import ColumnBounds, Predicate, columns_of, may_match
from ..core.schema import Field, Schema, StructType
from ..core.snapshot import Snapshot
from ..core.spark_types import has_own_order
from .head import while_readable
from .session import Session

_BOOKKEEPING = ("path", "rows", "bytes", "digest", "added", "job")


def entries_table(session: Session, snapshot: Snapshot, predicate: Predicate | None = None) -> pa.Table:
    """Every live entry that may hold a row for which the predicate is true, in the form of a manifest's table. [RD6]

    One request per manifest whose partition bounds may match. SnapshotExpiredError where gc took one because the version expired.
    """
    if snapshot.schema is None:
        return pa.table({name: pa.array([], kind) for name, kind in manifest_table.FIXED})
    schema, partition_by = snapshot.schema, snapshot.partition_by
    tables = [session.manifests.inlined(snapshot)]
    references = snapshot.manifests if predicate is None else _matching_manifests(snapshot, predicate)
    with while_readable(session.store, snapshot.version):
        removed = session.manifests.removed(snapshot) if references else {}
        tables += [session.manifests.live(ref, snapshot, removed.get(ref.path, 0)) for ref in references]
    together = manifest_table.unite(tables, schema=schema, partition_by=partition_by)
    if predicate is None:
        return together
    return together.filter(may_match(predicate, EntrySource(together, schema, partition_by, predicate)))


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
        columns["bounds"] = pa.StructArray.from_arrays([array.combine_chunks() for array in bounds.values()], names=list(bounds))
    return pa.table(columns)


class EntrySource:
    """What the entries of a table say of each column that a predicate names."""

    def __init__(self, table: pa.Table, schema: Schema, partition_by: Sequence[int], predicate: Predicate) -> None:
        self._table = table.select([n for n in table.column_names if "." in n or n == "rows"])
        self._leaves = leaf_fields(schema)
        self._partition_by = partition_by
        self._named = columns_of(predicate)

    @property
    def rows(self) -> pa.Array:
        return _whole(self._table.column("rows"))

    def bounds(self, column: tuple[str, ...]) -> ColumnBounds | None:
        field = self._leaves.get(column)
        if field is None or column not in self._named or has_own_order(field):
            return None
        if field.id in self._partition_by:
            value = _whole(self._table.column(f"partition.{field.id}"))
            nulls = pc.if_else(value.is_null(), self.rows, 0)
            return ColumnBounds(min=value, max=value, nulls=nulls, nans=_zeros(len(value)))
        if f"min.{field.id}" not in self._table.column_names:
            return None
        low, high, nulls, nans = (_whole(self._table.column(f"{name}.{field.id}")) for name in ("min", "max", "nulls", "nans"))
        return ColumnBounds(min=low, max=high, nulls=nulls, nans=nans if field.type in ("float", "double") else _zeros(len(low)))


class ManifestSource:
    """What the references say of each partition column: the bounds of all entries of a manifest together."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._references = snapshot.manifests
        self._partition_by = snapshot.partition_by
        self._leaves = leaf_fields(snapshot.schema or Schema(fields=()))

    @property
    def rows(self) -> pa.Array:
        return pa.array([ref.rows for ref in self._references], pa.int64())

    def bounds(self, column: tuple[str, ...]) -> ColumnBounds | None:
        field = self._leaves.get(column)
        if field is None or field.id not in self._partition_by or has_own_order(field):
            return None
        index = self._partition_by.index(field.id)
        low = values.to_array([_at(ref.lower, index) for ref in self._references], field.type)
        high = values.to_array([_at(ref.upper, index) for ref in self._references], field.type)
        nulls = pa.array([self._nulls(ref, index) for ref in self._references], pa.int64())
        return ColumnBounds(min=low, max=high, nulls=nulls, nans=_zeros(len(low)))

    def _nulls(self, ref: ManifestRef, index: int) -> int | None:
        return 0 if index < len(ref.nulls) and not ref.nulls[index] else None


def leaf_fields(schema: Schema) -> dict[tuple[str, ...], Field]:
    """Every primitive column by the path of names that users see, reached through structs only."""
    found: dict[tuple[str, ...], Field] = {}

    def walk(fields: Sequence[Field], above: tuple[str, ...]) -> None:
        for field in fields:
            if isinstance(field.type, StructType):
                walk(field.type.fields, (*above, field.name))
            elif isinstance(field.type, str):
                found[(*above, field.name)] = field

    walk(schema.fields, ())
    return found


def _matching_manifests(snapshot: Snapshot, predicate: Predicate) -> tuple[ManifestRef, ...]:
    if not snapshot.manifests:
        return ()
    keep = may_match(predicate, ManifestSource(snapshot)).to_pylist()
    return tuple(ref for ref, kept in zip(snapshot.manifests, keep, strict=True) if kept)


def _bounds_struct(table: pa.Table, field: Field) -> pa.ChunkedArray:
    names = ("nulls", "nans", "min", "max")
    arrays = [_whole(table.column(f"{name}.{field.id}")) for name in names]
    cuts = _whole(table.column(f"cuts.{field.id}"))
    exact = pc.equal(cuts, 0)
    return pa.chunked_array([pa.StructArray.from_arrays([*arrays, exact], names=[*names, "exact"])])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _zeros(length: int) -> pa.Array:
    return pa.array([0] * length, pa.int64())


def _at(items: Sequence[WireValue], index: int) -> WireValue:
    return items[index] if index < len(items) else None


def differing_entries(session: Session, start: Snapshot, end: Snapshot) -> tuple[pa.Table, pa.Table]:
    """(entries only in `start`, entries only in `end`), by path. Manifests that both list alike are not even opened. [RD8]"""
    before, after = unshared_entries(session, start, end)
    old, new = (table.column("path").combine_chunks() for table in (before, after))
    return (
        before.filter(pc.invert(pc.is_in(before.column("path"), value_set=new))),
        after.filter(pc.invert(pc.is_in(after.column("path"), value_set=old))),
    )


def unshared_entries(session: Session, start: Snapshot, end: Snapshot) -> tuple[pa.Table, pa.Table]:
    """The live entries of both, without those of manifests that both list alike, which are not even opened. [RD8]"""
    shared = _shared_manifests(session, start, end)
    before, after = (
        entries_table(session, msgspec.structs.replace(each, manifests=tuple(r for r in each.manifests if r.path not in shared)))
        for each in (start, end)
    )
    return before, after


def _shared_manifests(session: Session, start: Snapshot, end: Snapshot) -> frozenset[str]:
    common = {ref.path for ref in start.manifests} & {ref.path for ref in end.manifests}
    if not common:
        return frozenset()
    gone_before, gone_after = session.manifests.removed(start), session.manifests.removed(end)
    return frozenset(path for path in common if gone_before.get(path, 0) == gone_after.get(path, 0))
