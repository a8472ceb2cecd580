"""How a job lays out its files: their columns and partitioning, and the partitions that they
replace. [SC3] [PT1] [PT3]

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..errors import SchemaMismatchError, UsageError
from ..format.change import ConflictChoice, Overwrite
from ..format.evolution import SchemaEdit, apply_edits, assign_new_ids, fit, replace
from ..format.fields import Schema, match_names, relaxed, type_text
from ..format.partitioning import (
    PartitionPattern,
    check_partition_by,
    parse_static,
    touch_texts,
)
from ..format.snapshot import Snapshot
from ..format.transforms import source_ids, spelled

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
    """Return the layout for writing rows of this schema after those before; names: partition
    columns, None: the table's; replaces: the table gets these columns and this partitioning.

    SchemaMismatchError if the data does not fit, UsageError if the table is partitioned
    differently. [SC3] [SC5] [PT1]
    """
    schema, initial, own = layout.schema, layout.initial, layout.partition_by
    if schema is None and snapshot.provisional and not _suits(snapshot, data, names):
        # The job that created the table has committed nothing. Among such first writes, the first
        # to commit sets the table's columns.
        initial = schema = assign_new_ids(relaxed(data), new_id)
        own = check_partition_by(initial, names or ())
    before = schema or snapshot.schema
    assert before is not None
    if replaces and schema is None:
        return _replacing(snapshot, assign_new_ids(data, new_id), names)
    is_own = initial is not None or layout.repartitions
    chosen = own if is_own and own is not None else snapshot.partition_by
    lacking = _lacking(before, data, chosen)
    edits = fit(before, assign_new_ids(data, new_id), merge=merge)
    _check_common(before, data, lacking)
    after = apply_edits(before, edits)
    if names is not None and check_partition_by(after, names) != chosen:
        table = ", ".join(spelled(after, chosen)) or "nothing"
        raise UsageError(
            f"{url} is partitioned by {table}, not by {', '.join(names) or 'nothing'}; leave "
            'partition_by out, or replace the table: mode="overwrite", replace_schema=True'
        )
    missing = tuple(dict.fromkeys((*layout.missing, *lacking)))
    if initial is not None:
        return Layout(schema=after, partition_by=chosen, initial=after, missing=missing)
    return Layout(
        schema=after,
        partition_by=chosen,
        edits=(*layout.edits, *edits),
        missing=missing,
        repartitions=layout.repartitions,
    )


def _replacing(snapshot: Snapshot, data: Schema, names: Sequence[str] | None) -> Layout:
    """The layout of rows that replace all, with the table's columns and partitions. [SC10]"""
    assert snapshot.schema is not None
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
    return Layout(
        schema=after,
        partition_by=chosen,
        edits=edits,
        repartitions=chosen != snapshot.partition_by,
    )


def check_missing(missing: Sequence[str], properties: Mapping[str, str], *, whole: bool) -> None:
    """SchemaMismatchError if data that lacks these columns may not be written. whole: it replaces
    the whole table. [SC8]"""
    said = properties.get(MISSING_COLUMNS)
    if not missing or said == "null" or not (whole or said == "error"):
        return
    shown = ", ".join(map(repr, missing[:10]))
    why = (
        f"the table's property {MISSING_COLUMNS} is error"
        if said == "error"
        else "an overwrite of the whole table would leave it all null"
    )
    raise SchemaMismatchError(
        f"Column {shown} of the table is missing from the data, and {why}. Nothing was "
        "committed. Add it to the data (for no value, as an "
        "explicit column of nulls), drop it from the table (drop_column), or set the "
        f'property {MISSING_COLUMNS} to "null".'
    )


def _lacking(table: Schema, data: Schema, partition_by: tuple[int, ...]) -> tuple[str, ...]:
    """The columns that data lacks; SchemaMismatchError if one partitions the table. [SC8]"""
    names = [field.name for field in data.fields]
    positions, _ = match_names(names, table.fields)
    lacking = [field for field, at in zip(table.fields, positions, strict=True) if at is None]
    for field in lacking:
        if field.id in source_ids(partition_by):
            renamed = (
                f" (it was {field.physical!r} before: rename it in the data as well)"
                if field.physical in names
                else ""
            )
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
            f"The data has no column in common with the table. It has {have}; the table has "
            f"{want}. Is this the right table? Rename the "
            "data's columns, or add one of them to the table first (add_column)."
        )


def replaced(
    given: Mapping[str, Any] | Literal["dynamic"] | None,
    layout: Layout,
    snapshot: Snapshot,
    conflict: ConflictChoice,
) -> Overwrite:
    """What an overwrite replaces: the whole table (None), the partitions that the job writes
    ("dynamic"), or the named partitions. [CF3] [PT3]"""
    if given == "dynamic":
        return Overwrite(dynamic=True, conflict=conflict)
    if given is None:
        return Overwrite(scope=({},), conflict=conflict)
    schema = layout.schema or snapshot.schema
    if schema is None:
        raise UsageError("overwrite names partitions, but the table has no columns yet")
    return Overwrite(
        scope=(parse_static(schema, layout.partitioning(snapshot), given),), conflict=conflict
    )


def check_inside(
    overwrite: Overwrite | None,
    touched: Sequence[PartitionPattern],
    schema: Schema | None,
    given: object,
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
    assert snapshot.schema is not None
    there, here = (
        [(field.name, type_text(field.type)) for field in schema.fields]
        for schema in (snapshot.schema, data)
    )
    return there == here and (
        check_partition_by(snapshot.schema, names or ()) == snapshot.partition_by
    )
