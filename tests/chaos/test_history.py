"""What the history checker is told of a run by those who take part in it: what each job brought, what each read showed, what was heard."""

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.chaos import questions
from tests.chaos.check import read_chain
from tests.chaos.history import commits_of, items_of, judge, part_does, slots_do, witness
from tests.chaos.log import Log
from tests.chaos.schedule import draw
from tests.chaos.work import fingerprint_of, halves, part_of, pieces_of, rows
from tests.chaos.world import EVENTS, STATE, histories_folder

import manifestcommit as mc
from manifestcommit.testing.history.operation import Operation, Recorder, read_history, write_history

SOURCE = "größe #0 %"


def look(recorder: Recorder, url: str, version: int | None = None) -> None:
    table = mc.Table(url)
    with recorder.read(at=version) as running:
        snapshot = table.snapshot(version=version)
        found = questions.read(table, snapshot.version)
        running.saw(snapshot.version, items=items_of(table, snapshot.version, found), watermarks=snapshot.watermarks)


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A run in which nothing is wrong: three units, the second of them unheard, the last one in two files; and an overwritten slot."""
    url, slots, log = str(tmp_path / "plain"), str(tmp_path / "state"), Log(tmp_path / "log", [SOURCE])
    log.append(SOURCE, log.invent(SOURCE, 30, random.Random(1)))
    mc.create_table(url, EVENTS)
    mc.create_table(slots, STATE, partition_by=["slot"])
    with Recorder(histories_folder(tmp_path, "plain") / "writer 0.0.jsonl", process="writer 0.0") as recorder:
        for number in range(3):
            part = part_of("plain", {SOURCE: (10 * number, 10 * number + 10)})
            with recorder.commit("publish", key=part.key) as running, mc.begin(url, key=part.key) as job:
                running.note(**part_does(job, part))
                pieces = [(20, 24), (24, 30)] if number == 2 else [(10 * number, 10 * number + 10)]
                for piece in pieces:
                    job.write(rows(log, {SOURCE: piece}))
                job.advance(SOURCE, 10 * number, 10 * number + 10)
                outcome = job.commit()
                if number != 1:
                    running.told(outcome)
            look(recorder, url)
        look(recorder, url, 2)
        witness(recorder, commits_of(read_chain(mc.Table(url)._ctx.store)), set())
    with Recorder(histories_folder(tmp_path, "state") / "writer 0.0.jsonl", process="writer 0.0") as recorder:
        for generation in (1, 2):
            job = mc.begin(slots)
            does = slots_do("state", job, ["a b%"], empties=("a b%",), scope=("a b%",))
            with recorder.commit("overwrite", **does) as running, job:
                job.overwrite({"slot": "a b%"})
                job.write(pieces_of({"a b%": generation}))
                running.told(job.commit())
            look(recorder, slots)
    return tmp_path


def test_a_run_in_which_nothing_is_wrong_is_explained(told: Path) -> None:
    """[IV2] [IV4]"""
    assert judge(told, ["plain", "state"]) == ([], 7 + 4 + 4)
    shown = [each for each in read_history(histories_folder(told, "plain") / "writer 0.0.jsonl") if each.items is not None]
    assert [len(each.items or ()) for each in shown] == [1, 2, 3, 1]
    assert [each.version for each in shown] == [2, 3, 4, 2] and shown[-1].at == 2


def lie(kind: str, **changes: object) -> Callable[[list[Operation]], list[Operation]]:
    def change(history: list[Operation]) -> list[Operation]:
        last = [each for each in history if each.name == kind][-1]
        return [msgspec.structs.replace(each, **changes) if each is last else each for each in history]

    return change


LIES: dict[str, tuple[str, Callable[[list[Operation]], list[Operation]], str]] = {
    "a read that lost a job": ("plain", lie("read", at=None, version=4, items=()), "different rows"),
    "a stale read": ("plain", lie("read", at=None), "stale"),
    "a job that was told to be refused": ("plain", lie("publish", outcome="refused", version=None, rule="conflict"), "never to be"),
    "a job that was told to be aborted": ("plain", lie("publish", outcome="refused", version=None, rule="aborted"), "never to be"),
    "a job that was told to come too late": ("plain", lie("publish", outcome="refused", version=None, rule="overlap"), "never to be"),
    "another version": ("plain", lie("publish", version=3), "at version"),
    "a version that is not there": ("plain", lie("publish", version=99), "at version 99"),
    "a job that is in no version": ("plain", lie("publish", job="v3-no-such-job"), "which does not carry it"),
    "a range that does not fit": ("plain", lie("publish", advances={SOURCE: (19, 30)}), "while it is at 20"),
    "a key that was committed before": ("plain", lie("publish", key=f"{SOURCE} [0,10)"), "again"),
    "a slot of two generations": ("state", lie("overwrite", empties=()), "lacks"),
    "an update of what was not seen": ("state", lie("overwrite", birth=1), "an update is lost"),
}


@pytest.mark.parametrize("name", LIES)
def test_what_cannot_be_is_found(told: Path, name: str) -> None:
    """[IV2] [IV4] [KY3] [WM2] [CF3] [RD1]"""
    table, change, said = LIES[name]
    path = histories_folder(told, table) / "writer 0.0.jsonl"
    write_history(path, change(read_history(path)))
    findings, _ = judge(told, ["plain", "state"])
    assert len(findings) == 1 and findings[0].startswith(table) and said in findings[0], findings


def test_half_of_a_job_and_one_twice_are_items_that_nobody_wrote(told: Path) -> None:
    """[IV1] [RD2]"""
    table = mc.Table(str(told / "plain"))
    whole = questions.read(table, 4)
    for read in (whole.slice(1), pa.concat_tables([whole, whole.slice(0, 1)])):
        with Recorder(histories_folder(told, "plain") / "reader.jsonl") as recorder, recorder.read() as running:
            running.saw(4, items=items_of(table, 4, read))
        (finding,) = judge(told, ["plain"])[0]
        assert "nobody wrote" in finding or "different rows" in finding
        (histories_folder(told, "plain") / "reader.jsonl").unlink()


# --- the log, the schedule of a seed, and what a key stands for ---------------------------------------------------------
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
