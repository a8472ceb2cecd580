"""Properties by which a table says how it is looked after: what gc keeps of it, which steps
`maintain` takes, and in which order compaction puts its rows. [UK1] [GC20]"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..errors import UsageError
from ..files.footer_stats import UNORDERED
from ..format.fields import Schema, type_text
from ..format.snapshot import Snapshot
from ..format.spark_json import has_own_order
from ..log.time_travel import parse_age
from ..protocol.retention import Policy

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
    """What gc keeps: what is asked for, or else what the table's properties say, or else the
    defaults. asked: argument -> its value; None: not asked for. [GC1] [UK1]"""
    given = {
        name: value
        for name in RETENTION
        if (value := (asked or {}).get(argument_of(name))) is not None
    }
    texts = {name: given.get(name, snapshot.properties.get(name)) for name in RETENTION}
    chosen: dict[str, Any] = {
        RETENTION[name]: retention_value(name, text)
        for name, text in texts.items()
        if text is not None
    }
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
    """The steps of upkeep that the table lets `maintain` take, in their order; UsageError for a
    value that names no such step. [UK1]"""
    value = properties.get(MAINTAIN_STEPS, ",".join(STEPS))
    named = {part.strip() for part in value.split(",")}
    if named != {"none"} and not named <= {*STEPS}:
        raise UsageError(
            f"property {MAINTAIN_STEPS!r} is 'none', or any of {', '.join(STEPS)}, split by "
            f"commas; not {value!r}"
        )
    return tuple(step for step in STEPS if step in named)


def sorting(text: str, schema: Schema, partition_by: Collection[str]) -> list[str]:
    """The columns that the property of a table's order names; UsageError for what is no column, or
    has no order. partition_by: names of columns. [GC20]"""
    fields = {field.name: field for field in schema.fields}
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        field, why = fields.get(name), ""
        if field is None:
            why = "which is no column of the table (several are split by commas)"
        elif name in partition_by:
            why = "a partition column, of which a file has one value"
        elif not isinstance(field.type, str) or field.type in UNORDERED or has_own_order(field):
            why = f"a {type_text(field.type)}, by whose bounds no file is skipped"
        elif names.count(name) > 1:
            why = "twice"
        if why:
            raise UsageError(
                f"property {SORT_BY!r} names {name!r}, {why}. Set it to other columns, or remove "
                "it: its value is None then"
            )
    return names


def sorting_of(snapshot: Snapshot) -> list[str]:
    """The columns by which the table's property has compaction sort its rows. [GC20]"""
    schema = snapshot.schema or Schema(fields=())
    partitions = {field.name for field in schema.fields if field.id in snapshot.partition_by}
    return sorting(snapshot.properties.get(SORT_BY, ""), schema, partitions)


def check_upkeep(name: str, value: str | None) -> None:
    """UsageError for a value that one of these properties cannot have. [UK1]"""
    if value is None:
        return
    if name == MAINTAIN_STEPS:
        steps_of({name: value})
        return
    least = {"keep_versions": 1, "keep_keys": 0}.get(RETENTION[name])
    if least is None:
        retention_value(name, value)
    elif not (value.isascii() and value.isdecimal() and int(value) >= least):
        raise UsageError(f"property {name!r} is a number from {least} on, not {value!r}")
