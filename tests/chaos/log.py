"""A source as streams are: append-only partitions in files, an offset per record. What it holds is the truth that tables are held to."""

import itertools
import json
import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

_KINDS_EACH = 4  # how many kinds a source has
_WIDTH = 8  # bytes per record in the index: where the record ends in the data

KINDS = ("", "plain", "a b", "x=y/..", "%2F%20+", "größe ∆", "quote\"'`", "#?&", None)
_PIECES = (
    "", " ", "\n", "\r\n", "\t", "\x00", "\x1f", "'", '"', "\\", "\\u0000", "%20", "+", "=", "#", "?", "&", "/", "../", ";", "{}", "[",
    "null", "NaN", "ü", "é", "e\u0301", "\u2028", "\ufeff", "\ufffd", "\U0001f6eb", "\U0010ffff", "\u202e", "日本語", "a" * 70,
)  # fmt: skip


class Record(NamedTuple):
    """One record: the id is unique in the whole log; kind: what one table is partitioned by."""

    position: int
    id: int
    kind: str | None
    payload: str


class Log:
    """A folder with two files per source: the records, and where each ends. A record exists once it is in the index."""

    def __init__(self, folder: Path, sources: Sequence[str]) -> None:
        self._folder, self.sources = folder, tuple(sources)
        folder.mkdir(parents=True, exist_ok=True)

    def end(self, source: str) -> int:
        """The offset after the last record."""
        try:
            return self._index(source).stat().st_size // _WIDTH
        except FileNotFoundError:
            return 0

    def ends(self) -> dict[str, int]:
        """The end of every source that has records."""
        return {source: end for source in self.sources if (end := self.end(source))}

    def read(self, source: str, start: int, end: int) -> list[Record]:
        """The records from `start` on, below `end` and below the log's end."""
        end = min(end, self.end(source))
        if start >= end:
            return []
        with self._index(source).open("rb") as index:
            index.seek(max(0, start - 1) * _WIDTH)
            raw = index.read((end - max(0, start - 1)) * _WIDTH)
        stops = [int.from_bytes(raw[at : at + _WIDTH], "big") for at in range(0, len(raw), _WIDTH)]
        starts = [0, *stops] if start == 0 else stops
        with self._data(source).open("rb") as data:
            data.seek(starts[0])
            body = data.read(starts[-1] - starts[0])
        spans = itertools.pairwise(starts)
        return [Record(start + number, *json.loads(body[a - starts[0] : b - starts[0]])) for number, (a, b) in enumerate(spans)]

    def append(self, source: str, records: Iterable[tuple[int, str | None, str]]) -> None:
        """Only for the one producer; survives its death at any moment: what is not in the index yet is cut off."""
        with self._index(source).open("ab") as index, self._data(source).open("ab") as data:
            at = self._stop(source)
            data.truncate(at)
            os.truncate(self._index(source), self.end(source) * _WIDTH)
            stops = []
            for record in records:
                at += data.write(json.dumps(record).encode())
                stops.append(at.to_bytes(_WIDTH, "big"))
            data.flush()
            index.write(b"".join(stops))

    def invent(self, source: str, count: int, dice: random.Random) -> list[tuple[int, str | None, str]]:
        """The next records of a source: unlike any other, and hostile."""
        first, number = self.end(source), self.sources.index(source)
        kinds = [KINDS[(number * _KINDS_EACH + each) % len(KINDS)] for each in range(_KINDS_EACH)]
        return [(identity(number, first + each), dice.choice(kinds), _payload(dice)) for each in range(count)]

    def _stop(self, source: str) -> int:
        end = self.end(source)
        if not end:
            return 0
        with self._index(source).open("rb") as index:
            index.seek((end - 1) * _WIDTH)
            return int.from_bytes(index.read(_WIDTH), "big")

    def _data(self, source: str) -> Path:
        return self._folder / f"{quote(source, safe='')}.records"

    def _index(self, source: str) -> Path:
        return self._folder / f"{quote(source, safe='')}.index"


def _payload(dice: random.Random) -> str:
    return "".join(dice.choices(_PIECES, k=dice.randint(0, 6))) + dice.randbytes(4).hex()


def identity(source: int, position: int) -> int:
    """A number that no other record has, and that does not tell where it comes from: an odd factor permutes the numbers below 2^62."""
    return (((source + 1) << 40) | position) * 0x9E37_79B9_7F4A_7C15 % (1 << 62)
