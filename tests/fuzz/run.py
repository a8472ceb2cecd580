"""One round: an object made hostile by a seed, every reader, and what none of them may do."""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import manifestcommit as mc
from tests.fuzz.targets import HOSTILE_OBJECTS, Table, readers

# What callers do wrong is theirs to see as these; hostile bytes are never the caller's mistake.
ALLOWED = (mc.ManifestCommitError,)


@dataclass(frozen=True, slots=True)
class Finding:
    """A reader that let hostile bytes through to somewhere. place: where; equal for findings of one kind."""

    place: tuple[str, str]
    text: str


@cache
def _table() -> Table:
    return Table()


def fuzz(seed: int, kinds: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with the readers of one hostile object."""
    dice = random.Random(seed)
    kind = dice.choice(list(kinds))
    table = _table()
    table.restore()
    HOSTILE_OBJECTS[kind](table, dice)
    for name, reader in readers(table).items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reader()
        except ALLOWED as error:
            if len(str(error)) > 20_000:
                yield Finding((kind, f"{name}: endless message"), f"{kind}: {name}: a message of {len(str(error))} characters")
        except Exception as error:
            frame = next((f for f in reversed(traceback.extract_tb(error.__traceback__)) if "/manifestcommit/" in f.filename), None)
            where = f"{frame.filename.rpartition('/manifestcommit/')[2]}:{frame.lineno} {frame.name}" if frame else "?"
            yield Finding((type(error).__name__, where), f"{kind}: {name}: {type(error).__name__}: {str(error)[:200]!r} at {where}")
