"""How a job lays out its files: their columns and partitioning, and the partitions that they replace. [SC3] [PT1] [PT3]

Pure. Not here: whether that still holds when it commits (core.conflict), how files are written (engine.files).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..errors import UsageError
from .change import ConflictChoice, Overwrite
from .evolution import SchemaEdit, apply_edits, assign_new_ids, fit
from .partition import check_partition_by, parse_static
from .schema import Schema, relaxed, type_text
from .snapshot import Snapshot
from .touch import Touch

NewId = Callable[[], int]


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """schema, partition_by: what a job's files are written with, None before its first; initial: the same, where the job gives the
    table its columns; edits: how the table's schema must change for them, where it has one. [CM9]"""

    schema: Schema | None = None
    partition_by: tuple[int, ...] | None = None
    initial: Schema | None = None
    edits: tuple[SchemaEdit, ...] = ()

    def partitioning(self, snapshot: Snapshot) -> tuple[int, ...]:
        """The job's own partitioning, else the table's."""
        return snapshot.partition_by if self.partition_by is None else self.partition_by


def lay_out(
    layout: Layout, snapshot: Snapshot, data: Schema, names: Sequence[str] | None, *, merge: bool, new_id: NewId, url: str
) -> Layout:
    """The layout with which rows of this schema are written, after those before; names: partition columns, None for the table's.

    SchemaMismatchError where the data does not fit, UsageError where the table is partitioned otherwise. [SC3] [SC5] [PT1]
    """
    schema, initial, own = layout.schema, layout.initial, layout.partition_by
    if schema is None and snapshot.provisional and not _suits(snapshot, data, names):
        # Whoever made the table has committed nothing: of such first writes the first to commit gives it its columns.
        initial = schema = assign_new_ids(relaxed(data), new_id)
        own = check_partition_by(initial, names or ())
    before = schema or snapshot.schema
    assert before is not None
    edits = fit(before, assign_new_ids(data, new_id), merge=merge)
    after = apply_edits(before, edits)
    chosen = snapshot.partition_by if initial is None or own is None else own
    if names is not None and check_partition_by(after, names) != chosen:
        by_id = {field.id: field.name for field in after.fields}
        table = ", ".join(by_id[each] for each in chosen) or "nothing"
        raise UsageError(
            f"{url} is partitioned by {table}, not by {', '.join(names) or 'nothing'}; leave partition_by out, or write another table"
        )
    if initial is not None:
        return Layout(schema=after, partition_by=chosen, initial=after)
    return Layout(schema=after, partition_by=chosen, edits=(*layout.edits, *edits))


def replaced(
    given: Mapping[str, Any] | Literal["dynamic"] | None, layout: Layout, snapshot: Snapshot, conflict: ConflictChoice
) -> Overwrite:
    """What an overwrite replaces: the whole table (None), what the job writes ("dynamic"), or the partitions named. [CF3] [PT3]"""
    if given == "dynamic":
        return Overwrite(dynamic=True, conflict=conflict)
    if given is None:
        return Overwrite(scope=({},), conflict=conflict)
    schema = layout.schema or snapshot.schema
    if schema is None:
        raise UsageError("overwrite names partitions, but the table has no columns yet")
    return Overwrite(scope=(parse_static(schema, layout.partitioning(snapshot), given),), conflict=conflict)


def check_inside(overwrite: Overwrite | None, touched: Sequence[Touch], schema: Schema | None, given: object) -> None:
    """Refuse rows outside the partitions that a static overwrite names: its rerun would double them. [PT3]"""
    if overwrite is None or overwrite.dynamic or overwrite.scope == ({},):
        return
    static = overwrite.scope[0]
    for touch in touched:
        if any(touch.get(each) != value for each, value in static.items()):
            names = {field.id: field.name for field in schema.fields} if schema else {}
            wrote = ", ".join(f"{names.get(each)}={value}" for each, value in touch.items()) or "several partitions"
            raise UsageError(
                f"the job overwrites {given!r} but wrote rows of {wrote}; nothing was committed. "
                'Filter the data, or use overwrite="dynamic".'
            )


def _suits(snapshot: Snapshot, data: Schema, names: Sequence[str] | None) -> bool:
    """Whether the columns that an earlier first write, one that committed nothing, gave the table do for this data."""
    assert snapshot.schema is not None
    by_id = {field.id: field.name for field in snapshot.schema.fields}
    there, here = ([(field.name, type_text(field.type)) for field in each.fields] for each in (snapshot.schema, data))
    return there == here and [by_id[each] for each in snapshot.partition_by] == list(names or ())
