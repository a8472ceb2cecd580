"""One round: an object made hostile by a seed, every reader, and what none of them may do."""

import random
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
from tests.fuzz import exports, folders, targets
from tests.fuzz.child import Ended, each_in_child
from tests.fuzz.folders import HOSTILE_FOLDERS
from tests.fuzz.parquet import fuzz_parquet, prepare_parquet
from tests.fuzz.targets import HOSTILE_OBJECTS, SOUND, Table, without_waiting

import manifestcommit as mc

SECONDS = 60.0  # of a round on the processor
KINDS = (*HOSTILE_OBJECTS, *HOSTILE_FOLDERS, "export")  # what is run in any process
EVERY = (*KINDS, "parquet")
# What callers do wrong is theirs to see as these; hostile bytes are never the caller's mistake.
ALLOWED = (mc.errors.ManifestCommitError,)
# Rows come through pyarrow, which raises its own errors where a file holds other columns than its table lists.
THROUGH_PYARROW = ("rows", "rows of a day", "rows of values")


@dataclass(frozen=True, slots=True)
class Finding:
    """A reader that let hostile bytes through to somewhere. place: where; equal for findings of one kind."""

    place: tuple[str, str]
    text: str


@cache
def _table() -> Table:
    return Table()


def fuzz_apart(seeds: Sequence[int], kinds: Sequence[str]) -> Iterator[tuple[int, Ended]]:
    """The same in child processes, many rounds in each: for each seed how that ended, and how much memory it took."""
    _table()
    folders.folder()
    exports.exported()
    prepare_parquet()
    return each_in_child(lambda seed: [(*finding.place, finding.text) for finding in fuzz(seed, kinds)], seeds, SECONDS)


def fuzz(seed: int, kinds: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with the readers of one hostile object."""
    dice = random.Random(seed)
    kind = dice.choice(list(kinds))
    if kind == "parquet":
        yield from (Finding((error, where), text) for error, where, text in fuzz_parquet(dice))
        return
    with without_waiting():
        yield from _attempts(kind, _world(kind, dice))
        if kind in SOUND:
            table = _table()
            yield from _attempts(kind, {"afterwards": lambda: _still_opens(table)}, allowed=())


def _world(kind: str, dice: random.Random) -> Mapping[str, Callable[[], Any]]:
    """The hostile object, put where it is read, and who reads it."""
    if kind == "export":
        exported = exports.exported()
        exported.restore()
        exports.hostile_export(exported, dice)
        return exports.readers(exported)
    if kind in HOSTILE_FOLDERS:
        place = folders.folder()
        place.restore()
        HOSTILE_FOLDERS[kind](place, dice)
        return folders.readers(place, kind)
    table = _table()
    table.restore()
    HOSTILE_OBJECTS[kind](table, dice)
    return targets.chosen(kind, table, dice)


def _still_opens(table: Table) -> None:
    """What was committed meanwhile can be read."""
    opened = mc.Table(table.url)
    opened.files()
    opened.dataset()
    opened.history()


def _attempts(kind: str, readers: Mapping[str, Callable[[], Any]], allowed: tuple[type[Exception], ...] = ALLOWED) -> Iterator[Finding]:
    for name, reader in readers.items():
        expected = (*allowed, pa.ArrowException) if name in THROUGH_PYARROW else allowed
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reader()
        except expected as error:
            if len(str(error)) > 20_000:
                yield Finding((kind, f"{name}: endless message"), f"{kind}: {name}: a message of {len(str(error))} characters")
        except Exception as error:
            frame = next((f for f in reversed(traceback.extract_tb(error.__traceback__)) if "/manifestcommit/" in f.filename), None)
            where = f"{frame.filename.rpartition('/manifestcommit/')[2]}:{frame.lineno} {frame.name}" if frame else "?"
            yield Finding((type(error).__name__, where), f"{kind}: {name}: {type(error).__name__}: {str(error)[:200]!r} at {where}")
