"""Batches that are decoded before anybody takes them: all of them, in order, and never many. [RD40]"""

import itertools
import random
import threading
import time
from collections.abc import Generator, Iterator

import pyarrow as pa
import pytest

from manifestcommit.scan import parallel_decode as module
from manifestcommit.scan.parallel_decode import decode_ahead

WAIT_S = 30


def batch(number: int, size_bytes: int = 8) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array([number] * (size_bytes // 8), pa.int64())})


def numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    return (each.column("n")[0].as_py() for each in batches)


def counted(*portions: range) -> Generator[range]:
    yield from portions


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("manifestcommit-decode")]


@pytest.mark.parametrize("room", [0, 64, 1 << 20])
def test_every_batch_comes_once_and_in_order(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Also of portions without any, and where not even one batch fits."""
    monkeypatch.setattr(module, "DECODED_BYTES", max(room, 1))
    draw = random.Random(room)
    ends = [0]
    for _ in range(60):
        ends.append(ends[-1] + draw.choice([0, 0, 1, 2, 9]))

    def decode(portion: range) -> Iterator[pa.RecordBatch]:
        for number in portion:
            time.sleep(draw.choice([0, 0, 0.001]))
            yield batch(number)

    portions = counted(*(range(start, end) for start, end in itertools.pairwise(ends)))
    assert list(numbers(decode_ahead(portions, decode))) == list(range(ends[-1]))
    assert not threads()


def test_batches_are_decoded_while_the_caller_has_one() -> None:
    made = [threading.Event() for _ in range(3)]

    def decode(portion: range) -> Iterator[pa.RecordBatch]:
        for number in portion:
            made[number].set()
            yield batch(number)

    for number in numbers(decode_ahead(counted(range(3)), decode)):
        assert made[min(number + 1, 2)].wait(WAIT_S)


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow consumer must not find the whole table in memory."""
    size, room = 1000 * 8, 4
    monkeypatch.setattr(module, "DECODED_BYTES", room * size)
    made, taken, most = 0, 0, 0
    lock = threading.Lock()

    def decode(portion: range) -> Iterator[pa.RecordBatch]:
        nonlocal made, most
        for number in portion:
            with lock:
                made += 1
                most = max(most, made - taken)
            yield batch(number, size)

    for number in numbers(decode_ahead(counted(*(range(at, at + 5) for at in range(0, 200, 5))), decode)):
        time.sleep(0.001)
        with lock:
            assert number == taken
            taken += 1
    assert taken == 200 and most <= room - 1 + 2 + 1  # what fits, one of each thread, and the caller's


@pytest.mark.parametrize("place", ["decoding", "fetching"])
def test_an_error_comes_in_its_turn(place: str) -> None:
    """After all that is in front of it, and never as a shorter table. [SP4]"""

    def portions() -> Generator[range]:
        yield from (range(3), range(3, 6))
        if place == "fetching":
            raise FileNotFoundError("the third file")
        yield from (range(6, 9), range(9, 12))

    def decode(portion: range) -> Iterator[pa.RecordBatch]:
        for number in portion:
            if number == 7:
                raise FileNotFoundError("the third file")
            yield batch(number)

    seen: list[int] = []
    with pytest.raises(FileNotFoundError, match="the third file"):
        seen.extend(numbers(decode_ahead(portions(), decode)))
    assert seen == list(range(7 if place == "decoding" else 6)) and not threads()


def test_who_stops_early_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `limit` does: Spark closes what it reads from, and keeps its worker."""
    monkeypatch.setattr(module, "DECODED_BYTES", 3 * 8)
    closed, begun = threading.Event(), []

    def portions() -> Generator[range]:
        try:
            for at in range(0, 10_000, 10):
                begun.append(at)
                yield range(at, at + 10)
        finally:
            closed.set()

    batches = decode_ahead(portions(), lambda portion: map(batch, portion))
    next(batches)
    batches.close()  # type: ignore[attr-defined]  # a generator
    assert closed.is_set() and len(begun) <= 3 and not threads()
