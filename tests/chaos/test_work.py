"""What the actors of a run share: the log that they feed from, the schedule of a seed, and what a key stands for."""

from __future__ import annotations

import random
from pathlib import Path

from tests.chaos.log import Log
from tests.chaos.schedule import draw
from tests.chaos.work import fingerprint_of, halves

SOURCES = ("a b%", "größe #0")


def test_the_log_gives_back_what_was_appended_whatever_the_producer_died_of(tmp_path: Path) -> None:
    log, dice = Log(tmp_path, SOURCES), random.Random(2)
    first = log.invent(SOURCES[0], 7, dice)
    log.append(SOURCES[0], first)
    (data,) = tmp_path.glob("*.records")
    with data.open("ab") as file:
        file.write(b'[1, "half a rec')  # appended, and not in the index
    second = log.invent(SOURCES[0], 40, dice)
    log.append(SOURCES[0], second)
    found = log.read(SOURCES[0], 0, 1000)
    assert [(record.id, record.kind, record.payload) for record in found] == [*first, *second]
    assert [record.position for record in found] == list(range(47)) and len({record.id for record in found}) == 47
    assert log.read(SOURCES[0], 5, 9) == found[5:9] and log.read(SOURCES[0], 46, 47) == found[46:]
    assert log.read(SOURCES[0], 9, 9) == [] == log.read(SOURCES[1], 0, 9)
    assert log.ends() == {SOURCES[0]: 47}


def test_whoever_runs_a_key_has_the_same_fingerprint_and_the_same_writes() -> None:
    """What the library may take for the same work has to be. [AB6]"""
    told = {key: fingerprint_of(key) for key in map(str, range(40))}
    assert 10 < sum(each is None for each in told.values()) < 30 and all(each in (None, key) for key, each in told.items())
    assert fingerprint_of(None) is None
    assert halves({"a": (0, 5), "b": (7, 8)}) == [{"a": (0, 2), "b": (7, 7)}, {"a": (2, 5), "b": (7, 8)}]


def test_a_seed_has_one_schedule() -> None:
    actors = ["producer", "writer 0", "writer 1"]
    assert draw(7, 600, actors) == draw(7, 600, actors) != draw(8, 600, actors)
    schedule = draw(7, 600, actors)
    assert {blow.actor for blow in schedule.blows} == set(actors) and {blow.kind for blow in schedule.blows} == {"kill", "stop"}
    assert all(0 <= at_s < 600 for at_s in [*(blow.at_s for blow in schedule.blows), *(window.at_s for window in schedule.windows)])
    assert len({window.mood for window in schedule.windows}) == 8
    longer = draw(7, 1200, actors)
    assert longer.windows[: len(schedule.windows)] == schedule.windows
    assert tuple(blow for blow in longer.blows if blow.at_s < 600) == schedule.blows
    short = draw(7, 0.1, actors)
    assert {blow.kind for blow in short.blows} == {"kill", "stop"} and short.windows, "something goes wrong in every run"
