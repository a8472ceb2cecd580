"""A unit of work: which records of which sources go to which tables, and how it is written down so that others can run it again."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa
from tests.chaos.log import Log
from tests.chaos.world import BATCH, EVENTS, PIECES, STATE, get_file, put_file

Ranges = dict[str, tuple[int, int]]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one table gets of a unit. The same ranges have the same key, whoever runs it. advances: whether watermarks guard it, too."""

    table: str
    key: str | None
    ranges: Ranges
    advances: bool = True


def part_of(table: str, ranges: Ranges, *, keyed: bool = True) -> Part:
    """The part with these ranges."""
    return Part(table=table, key=key_of(ranges) if keyed else None, ranges=ranges)


def key_of(ranges: Ranges) -> str:
    """The same for the same work."""
    return " & ".join(f"{source} [{start},{end})" for source, (start, end) in sorted(ranges.items()))


def fingerprint_of(key: str | None) -> str | None:
    """Some keys declare one, always the same; whatever runs such a key has the same rows in the same writes, and may be recoverable."""
    return key if key is not None and hashlib.sha256(key.encode()).digest()[0] % 2 else None


def halves(ranges: Ranges) -> list[Ranges]:
    """The same two pieces, whoever cuts them."""
    middles = {source: (start + end) // 2 for source, (start, end) in ranges.items()}
    first = {source: (start, middles[source]) for source, (start, _) in ranges.items()}
    return [first, {source: (middles[source], end) for source, (_, end) in ranges.items()}]


def batch_of(table: str, source: str, number: int) -> Part:
    """A batch: the same records whenever it is written, and only its key knows whether it was."""
    ranges = {source: (number * BATCH, (number + 1) * BATCH)}
    return Part(table=table, key=key_of(ranges), ranges=ranges, advances=False)


def choose(table: str, marks: Mapping[str, Any], log: Log, dice: random.Random, most: int, *, keyed: bool = True) -> Part | None:
    """Some partitions that have records beyond their watermarks, and some of those records."""
    behind = [source for source, end in log.ends().items() if end > marks.get(source, 0)]
    if not behind:
        return None
    ranges = {}
    for source in sorted(dice.sample(behind, min(len(behind), dice.randint(1, 3)))):
        start = marks.get(source, 0)
        ranges[source] = (start, min(log.end(source), start + dice.randint(1, most)))
    return part_of(table, ranges, keyed=keyed)


def after(part: Part, log: Log, dice: random.Random) -> Part | None:
    """The part that begins where this one ends, where there are records for it."""
    ranges = {
        source: (end, min(log.end(source), end + dice.randint(1, 30))) for source, (_, end) in part.ranges.items() if log.end(source) > end
    }
    return part_of(part.table, ranges) if ranges else None


def rows(log: Log, ranges: Ranges, extras: Sequence[str] = ()) -> pa.Table:
    """The records of these ranges as a table has them; extras: columns whose values tell where they belong."""
    found = [(source, record) for source, (start, end) in ranges.items() for record in log.read(source, start, end)]
    columns: dict[str, list[Any]] = {
        "id": [record.id for _, record in found],
        "source": [source for source, _ in found],
        "position": [record.position for _, record in found],
        "kind": [record.kind for _, record in found],
        "payload": [record.payload for _, record in found],
    }
    schema = EVENTS
    for name in extras:
        columns[name] = [extra(name, record.position) for _, record in found]
        schema = schema.append(pa.field(name, pa.string()))
    return pa.table(columns, schema=schema)


def extra(column: str, position: int) -> str:
    """What an added column holds in the row of this position, if anything."""
    return f"{column}:{position}"


def pieces_of(generations: Mapping[str, int]) -> pa.Table:
    """The rows of a slot's generation, of several at once."""
    found = [(slot, generation, piece) for slot, generation in generations.items() for piece in range(PIECES)]
    return pa.table([pa.array(column) for column in zip(*found, strict=True)], schema=STATE)


class Unit(Protocol):
    """What a board holds: a struct."""

    @property
    def key(self) -> str | None: ...


Held = TypeVar("Held", bound=Unit)


class Board(Generic[Held]):
    """The units that are being worked on: one file per writer, which outlives it."""

    def __init__(self, folder: Path, name: str, kind: type[Held]) -> None:
        self._kind, self._folder = kind, folder / "units"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._own = self._folder / f"{name}.json"

    def put(self, units: Sequence[Held]) -> None:
        put_file(self._own, msgspec.to_builtins(units))

    def clear(self) -> None:
        self._own.unlink(missing_ok=True)

    def own(self) -> list[Held]:
        """What this writer, or the one before it, has not finished."""
        return self._units(self._own)

    def others(self) -> list[Held]:
        """What others are at, or were when they died."""
        return [unit for path in sorted(self._folder.glob("*.json")) if path != self._own for unit in self._units(path) if unit.key]

    def _units(self, path: Path) -> list[Held]:
        return [msgspec.convert(each, self._kind) for each in get_file(path) or []]
