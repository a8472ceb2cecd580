"""Properties by which a table says how it is looked after: what gc keeps of it, which steps
`maintain` takes, and in which order compaction puts its rows. [UK1] [GC20]"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import UsageError
from ..files.footer_stats import UNORDERED
from ..format.evolution import find_column
from ..format.fields import Field, Schema, has_own_order, shown, type_text
from ..format.snapshot import Snapshot
from ..protocol.retention import Policy
from ..runtime.validation import parse_age

# property -> the field of `Policy` that it sets
RETENTION = {
    "gc.grace": "grace_s",
    "gc.keep-versions": "keep_versions",
    "gc.keep-for": "keep_for_s",
    "gc.keep-keys": "keep_keys",
    "gc.keep-keys-for": "keep_keys_for_s",
}
MAINTAIN_STEPS = "maintain.steps"
STEPS = ("export", "compact", "manifests", "verify", "gc")  # in the order in which they are taken
UPKEEP = (*RETENTION, MAINTAIN_STEPS)
SORT_BY = "layout.sort-by"


def retention_of(snapshot: Snapshot, asked: Mapping[str, Any] | None = None) -> Policy:
    """What gc keeps: what is asked for, else what the properties say, else the defaults. asked:
    argument -> its value, or None. [GC1] [UK1]"""
    chosen: dict[str, Any] = {}
    for name, field in RETENTION.items():
        value = (asked or {}).get(argument_of(name))
        value = snapshot.properties.get(name) if value is None else value
        if value is not None:
            chosen[field] = retention_value(name, value)
    return Policy(**chosen)


def argument_of(name: str) -> str:
    """The argument of gc that a property is the default of."""
    return name.removeprefix("gc.").replace("-", "_")


def retention_value(name: str, value: Any) -> float | int:
    """The value of a property of retention, or of its argument; UsageError if it cannot be one."""
    if RETENTION[name].endswith("_s"):
        return parse_age(value, argument_of(name))
    return int(value)


def retention_text(kept: Policy) -> str:
    """What gc keeps, as the arguments that say so."""
    texts = []
    for name, field in RETENTION.items():
        value = getattr(kept, field)
        if isinstance(value, float):
            value = f"{value / 3600:g}h" if value and value % 3600 == 0 else f"{value:g}s"
        texts.append(f"--{argument_of(name).replace('_', '-')} {value}")
    return ", ".join(texts)


def steps_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The steps that the table lets `maintain` take; UsageError for no such step. [UK1]"""
    value = properties.get(MAINTAIN_STEPS, ",".join(STEPS))
    named = {part.strip() for part in value.split(",")}
    if named != {"none"} and not named <= {*STEPS}:
        raise UsageError(
            f"property {MAINTAIN_STEPS!r} is 'none', or any of {', '.join(STEPS)}, split by "
            f"commas; not {shown(value)}"
        )
    return tuple(step for step in STEPS if step in named)


def sort_fields(names: Sequence[str], schema: Schema, partition_by: Collection[str]) -> list[Field]:
    """The columns by which rows are to be sorted; UsageError for what is no column, or has no order
    by which files are skipped. partition_by: names of columns. [GC20]"""
    fields: list[Field] = []
    for name in names:
        field, why = find_column(schema, name), ""
        if field.name in partition_by:
            why = "is a partition column, of which a file has one value"
        elif not isinstance(field.type, str) or field.type in UNORDERED or has_own_order(field):
            why = f"is a {type_text(field.type)}, by whose bounds no file is skipped"
        elif field in fields:
            why = "is named twice"
        if why:
            raise UsageError(f"{shown(name)} {why}.")
        fields.append(field)
    return fields


def property_fields(text: str, schema: Schema, partition_by: Collection[str]) -> list[Field]:
    """The columns that the property of a table's order names; UsageError if none. [GC20]"""
    names = [name.strip() for name in text.split(",") if name.strip()]
    try:
        if not names:
            raise UsageError("that names no column.")
        return sort_fields(names, schema, partition_by)
    except UsageError as error:
        raise UsageError(
            f"property {SORT_BY!r} is {shown(text)}, columns split by commas: {error} Set it to "
            "other columns, or remove it: its value is None then"
        ) from None


class Sorting(NamedTuple):
    """The columns by which compaction sorts. passed_over: why the table's property is not applied:
    since it was set, a write or a rollback has left the table without what it names."""

    fields: tuple[Field, ...] = ()
    passed_over: str = ""


def sorting_of(snapshot: Snapshot, asked: Sequence[str] | None = None) -> Sorting:
    """By what compaction sorts: by what is asked for, else by the table's property. [GC20]"""
    schema = snapshot.schema
    partitions = {field.name for field in schema.fields if field.id in snapshot.partition_by}
    if asked is not None:
        try:
            return Sorting((*sort_fields(asked, schema, partitions),))
        except UsageError as error:
            raise UsageError(str(error), argument="sort_by") from None
    text = snapshot.properties.get(SORT_BY)
    try:
        return Sorting(() if text is None else (*property_fields(text, schema, partitions),))
    except UsageError:
        return Sorting(
            passed_over=f"the property {SORT_BY!r} ({shown(text)}) is not applied, since the table "
            "has other columns now: set it to some of these, or remove it"
        )


def check_unsorted(snapshot: Snapshot, changed: Collection[int]) -> None:
    """UsageError where a column that the table's property names, by its id, is to be dropped or
    renamed, or to partition the table, whether or not the property is applied. [GC20]"""
    text = snapshot.properties.get(SORT_BY, "")
    named = {name.strip().lower() for name in text.split(",")}
    for field in snapshot.schema.fields:
        if field.id in changed and field.name.lower() in named:
            raise UsageError(
                f"the property {SORT_BY!r} ({text}) names the column {field.name!r}; nothing was "
                f"changed. Remove the property first: Table.set_properties({{{SORT_BY!r}: None}})"
            )


def check_upkeep(name: str, value: str) -> None:
    """UsageError for a value that one of these properties cannot have. [UK1]"""
    if name == MAINTAIN_STEPS:
        steps_of({name: value})
        return
    least = {"keep_versions": 1, "keep_keys": 0}.get(RETENTION[name])
    if least is None:
        retention_value(name, value)
    elif not (value.isascii() and value.isdecimal() and int(value) >= least):
        raise UsageError(f"property {name!r} is a number from {least} on, not {shown(value)}")
