"""`testing.check_source`, which users run on sources of their own, passes ours and says what a wrong one does. [LD1] [LD2]"""

import itertools
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.sizes import rounds
from tests.sources.soak import ORIGINS

import manifestcommit as mc
from manifestcommit.sources import Chunk
from manifestcommit.testing import check_source


class Numbers:
    """The numbers below 6, two a chunk."""

    name, end = "numbers", 6

    def chunks(self, positions: Mapping[str, Any], *, max_bytes: int) -> Iterator[Chunk]:
        start = positions.get(self.name)
        for number in range(start or 0, self.end, 2):
            yield Chunk(ranges={self.name: (number or start, number + 2)}, what=f"{number}, {number + 1}")

    def rows(self, chunk: Chunk) -> pa.Table:
        start, end = chunk.ranges[self.name]
        return pa.table({"n": range(start or 0, end)})


def numbers() -> list[dict[str, int]]:
    return [{"n": number} for number in range(6)]


class Few(Numbers):
    end = 4


@pytest.mark.thorough
def test_a_source_that_answers_both_questions_passes() -> None:
    outcome = check_source(Few, rows=lambda: numbers()[: Few.end])
    assert (outcome.chunks, outcome.rows) == (2, 4)


class Gap(Numbers):
    def chunks(self, positions: Mapping[str, Any], *, max_bytes: int) -> Iterator[Chunk]:
        return itertools.islice(super().chunks(positions, max_bytes=max_bytes), 0, None, 2)


class Endless(Numbers):
    def chunks(self, positions: Mapping[str, Any], *, max_bytes: int) -> Iterator[Chunk]:
        yield from super().chunks(positions, max_bytes=max_bytes)
        yield Chunk(ranges={self.name: (positions.get(self.name, 6), 7)})


class Moody(Numbers):
    def rows(self, chunk: Chunk) -> pa.Table:
        return pa.table({"n": [random.randrange(10**9)]})


class Twice(Numbers):
    """Forgets the position that it is asked for in chunks behind the first."""

    name = "n" * 3

    def chunks(self, positions: Mapping[str, Any], *, max_bytes: int) -> Iterator[Chunk]:
        if (start := positions.get(self.name)) is None:
            yield Chunk(ranges={self.name: (None, 6)})
        elif start == 6:
            yield Chunk(ranges={self.name: (6, 7)})

    def rows(self, chunk: Chunk) -> pa.Table:
        return pa.table({"n": range(6)})


class Lost(Numbers):
    def rows(self, chunk: Chunk) -> pa.Table:
        return super().rows(chunk).slice(1)


class Stateful(Numbers):
    """Remembers what it gave in the process, and not in the position."""

    given = 0

    def chunks(self, positions: Mapping[str, Any], *, max_bytes: int) -> Iterator[Chunk]:
        for number in range(Stateful.given, 6, 2):
            Stateful.given = number + 2
            yield Chunk(ranges={self.name: (number or None, number + 2)})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (Gap, "a chunk of numbers begins at 4, and the one before ended at 2"),
        (Endless, "behind the last chunk, which ends at .* there are more"),
        (Twice, "behind the last chunk"),
        (Moody, "are others when they are asked for again"),
        (Lost, r"lacks 3 rows, such as \[0\]"),
        (Stateful, "lacks 6 rows|there are more"),
    ],
)
def test_what_a_wrong_source_does_is_told(wrong: type[Numbers], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_source(wrong, rows=numbers)


class Empty(Numbers):
    def chunks(self, positions: Mapping[str, Any], *, max_bytes: int) -> Iterator[Chunk]:
        return iter(())


class Nameless:
    chunks, rows = Numbers.chunks, Numbers.rows


@pytest.mark.thorough
def test_a_source_without_rows_passes() -> None:
    """[LD1]"""
    assert check_source(Empty, rows=list).rows == 0
    with pytest.raises(AssertionError, match="lacks 6 rows"):
        check_source(Empty, rows=numbers)


@pytest.mark.parametrize(
    ("source", "rows"), [(Nameless, numbers), (lambda: 5, numbers), (Numbers(), numbers), (Numbers, [[]]), (lambda: Numbers, list)]
)
def test_what_is_no_source_is_said(tmp_path: Path, source: Any, rows: Any) -> None:
    """[LD1] [SE3]"""
    with pytest.raises(mc.errors.UsageError, match=r"^invalid (source|source\(\)|rows) .*expected a "):
        check_source(source, rows=rows)
    with pytest.raises(mc.errors.UsageError, match="with `name`"):
        mc.load(Nameless(), tmp_path / "t")


SLOW = ("files", "kafka", "postgres", "postgres-slot")


@pytest.mark.parametrize("kind", ["table", *(pytest.param(each, marks=pytest.mark.thorough) for each in SLOW)])
def test_the_sources_of_the_package_pass(tmp_path: Path, kind: str) -> None:
    with ORIGINS[kind](tmp_path, random.Random(3)) as origin:
        for _ in range(rounds(2, 3) if kind == "table" else 3):
            origin.write()
        expected = [dict(zip(origin.columns, row, strict=True)) for row in origin.expected().elements()]
        limit = 1_000_000 if kind == "kafka" else 1  # some chunks of each
        assert check_source(lambda: eval(origin.code), rows=lambda: expected, max_bytes=limit).rows == len(expected) > 3
