"""Properties by which a table says how it is looked after: what gc keeps of it, and which steps
`maintain` takes. [UK1]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UsageError
from ..format.snapshot import Snapshot
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
