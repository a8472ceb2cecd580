"""gc races with everything else, in processes that are killed, stopped and lied to: nothing live goes, and nothing dead stays.

More rounds are `python -m tests.chaos --about races`. Here also: that a round's checks find what they are there for.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.chaos import __main__ as command
from tests.kit.sizes import rounds
from tests.races import check
from tests.races import run as races
from tests.races.actor import Place
from tests.races.draw import Actor, Moment, Round, Step, draw
from tests.races.operations import parquet
from tests.races.records import Log, Record, merge
from tests.races.run import Settings, Stage, Summary, Total, place_of, pool_of, report
from tests.servers.servers import S3Server

from manifestcommit.format import object_names


def test_nothing_live_is_deleted_and_nothing_dead_is_left_on_a_local_disk() -> None:
    """[IV1] [IV2] [IV3] [IV5] [IV7] [IV8] [CM2] [CM5] [KY3] [RD2] [RD3] [GC1]-[GC10] [GC12] [AB4] [AB5]"""
    summary = races.run(Settings(seed=13, rounds=rounds(3, 60)), print)
    report(summary, print)
    assert not summary.findings
    assert summary.stops > 0 and summary.told["write committed"] > 5 and summary.told["gc done"] > 10


@pytest.mark.thorough
def test_nothing_live_is_deleted_and_nothing_dead_is_left_on_a_real_s3_server(rgw: S3Server) -> None:
    """[IV4] [IV7] [IV8] [GC7] [GC9] [GC12] [ST3]"""
    summary = races.run(Settings(seed=14, rounds=rounds(1, 30), store="s3"), print, rgw)
    report(summary, print)
    assert not summary.findings
    assert summary.told["write committed"] > 0 and summary.told["gc done"] > 0 and summary.requests > 100


def test_a_violation_is_told_by_the_exit_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told = Summary(seed=5, store="local", rounds=3, seconds=1.0)
    for findings, status in (((), 0), (("a live file is gone",), 1)):
        summary = msgspec.structs.replace(told, findings=findings, round=3, folder="/remains")
        monkeypatch.setattr(races, "run", lambda settings, say, server, summary=summary: summary)
        assert command.main(["--about", "races", "--store", "local", "--rounds", "3", "--seed", "5", "--json"]) == status
        written = capsys.readouterr()
        assert msgspec.json.decode(written.out)[0]["findings"] == list(findings) and "seed 5" in written.err
        assert ("a live file is gone" in written.err and "/remains" in written.err and "--only 3" in written.err) == bool(findings)


def test_a_seed_draws_the_same_rounds_and_another_one_others() -> None:
    assert draw(7, 3, "local") == draw(7, 3, "local") != draw(8, 3, "local")
    drawn = [draw(1, number, "s3") for number in range(1, 60)]
    names = {actor.name.partition(" ")[0] for each in drawn for actor in each.actors}
    assert names >= {"gc", "writer", "sleeper", "reader", "adopter", "tagger", "undoer", "preparer", "settler", "adder", "twin", "verifier"}
    assert any(each.windows for each in drawn) and any(each.kills for each in drawn) and any(each.foreign for each in drawn)
    assert {actor.clock for each in drawn for actor in each.actors} > {"right", "silent", "ahead"}


def test_what_a_process_was_not_told_is_known_to_have_been_tried(tmp_path: Path) -> None:
    log = Log(tmp_path / "writer 0.0.jsonl", "writer 0")
    done, killed = log.begin("write", {"rows": [[1, None]]}), log.begin("tag", {"name": "é %"})
    log.learn(killed, job="v1-x")
    log.end(done, "committed", {"version": 2})
    lines = [msgspec.json.decode(line) for line in (tmp_path / "writer 0.0.jsonl").read_bytes().splitlines()]
    first, second = merge(lines)
    assert (first.operation, first.outcome, first.result, first.arguments) == ("write", "committed", {"version": 2}, {"rows": [[1, None]]})
    assert (second.outcome, second.end_s, second.result) == (None, None, {"job": "v1-x"})
    assert first.begin_s <= second.begin_s <= first.ended_s < second.ended_s


# --- what the checks find -------------------------------------------------------------------------------------------------
ROWS = [[1, "a b"], [2, None], [3, "%2F+=#'é"]]
FOUNDING = (
    Step(operation="create"),
    Step(operation="write", arguments={"rows": ROWS, "key": "k é", "advance": ["größe %", None, 5]}),
    Step(operation="tag", arguments={"name": "t", "back": 0}),
)
SLEEPS = Moment(step=0, kind="put_if_absent", name=object_names.VERSIONS)
GC = Step(operation="gc", arguments={"grace_s": 0.0, "keep_versions": 1, "keep_for_s": 0.0, "foreign": False}, pause_s=0.05)
OVERWRITE = {"rows": [[4, "a b"]], "scope": {"kind": "all"}, "conflict": "blind"}
ACTORS = (
    Actor(name="writer 0", steps=(Step(operation="write", arguments=OVERWRITE),)),
    Actor(name="reader 0", steps=(Step(operation="read", arguments={"back": 0, "slow_s": 0.0}, pause_s=0.1),)),
    Actor(name="gc 0", steps=(GC, GC, GC)),
    Actor(name="sleeper 0", steps=(Step(operation="write", arguments={"rows": [[5, "b"]]}),), stop=SLEEPS),
    Actor(name="orphan 0", steps=(Step(operation="orphan", arguments={"rows": [[6, "b"]]}),)),
)


def play(folder: Path, actors: tuple[Actor, ...]) -> tuple[Place, list[Record]]:
    """A round of these actors in which nothing is wrong, as it was left."""
    drawn = Round(seed=1, number=1, store="local", tight=True, foreign=False, founding=FOUNDING, actors=actors)
    place = place_of(folder, drawn, "1", "", None, None)
    with closing(pool_of(folder, "local")) as pool:
        stage = Stage(place, "1", pool, None, Total())
        assert stage.play() == []
    return place, stage.records


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, list[Record]]:
    return play(tmp_path_factory.mktemp("races"), ACTORS)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, list[Record]]:
    """Without gc, which may expire the version of which something else is said."""
    return play(tmp_path_factory.mktemp("races"), tuple(actor for actor in ACTORS if actor.name != "gc 0"))


def changed(records: Sequence[Record], operation: str, **changes: Any) -> list[Record]:
    """The records, with other results where this operation was acknowledged; a function makes one from the true one."""
    found = [each for each in records if each.operation == operation and each.outcome in ("committed", "read")][-1]
    results = {name: new(found.result[name]) if callable(new) else new for name, new in changes.items()}
    return [msgspec.structs.replace(each, result={**each.result, **results}) if each is found else each for each in records]


def test_a_round_in_which_nothing_is_wrong_has_no_findings(played: tuple[Place, list[Record]]) -> None:
    place, records = played
    assert check.check_live(place, records) == check.check_end(place, records) == []


LIES: dict[str, tuple[Callable[[list[Record]], list[Record]], str]] = {
    "an acknowledged commit is lost": (lambda records: changed(records, "write", told="v1-0"), "was acknowledged as"),
    "another version was acknowledged": (lambda records: changed(records, "write", version=2), "was reported as committed at version"),
    "another version was tagged": (lambda records: changed(records, "tag", tagged=1), "another one has the name"),
    "a reader lost rows": (lambda records: changed(records, "read", items=[]), "lacks"),
    "a reader saw rows twice": (lambda records: changed(records, "read", items=lambda shown: [*shown, *shown]), "more than once"),
    "a reader went back": (lambda records: changed(records, "read", head=1, version=1, items=[]), "a stale read"),
    "a watermark did not move": (lambda records: changed(records, "write", moved=["s é", None, 5]), "the commits make it 5"),
    "a watermark stood elsewhere": (lambda records: changed(records, "write", moved=["größe %", 3, 9]), "from 3 while it is at 5"),
    "a key was forgotten": (lambda records: changed(records, "repeat", already=False, told="v3-0"), "was acknowledged as"),
    "an error that nobody can explain": (lambda records: changed(records, "write", error="CorruptMetadataError"), "CorruptMetadataError"),
    "verify found damage": (lambda records: changed(records, "tag", damage=["x"]), "verify found"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_was_told_and_is_not_so_is_found(calm: tuple[Place, list[Record]], lie: str) -> None:
    place, records = calm
    change, said = LIES[lie]
    assert any(said in each for each in check.check_live(place, change(records)))


def test_a_refused_job_that_is_in_the_history_is_found(played: tuple[Place, list[Record]]) -> None:
    place, records = played
    refused = [msgspec.structs.replace(each, outcome="refused") if each.operation == "write" else each for each in records]
    assert any("and never to be" in each for each in check.check_live(place, refused))


def test_an_overwrite_of_what_it_was_to_leave_is_found(calm: tuple[Place, list[Record]]) -> None:
    place, records = calm
    for conflict, birth, said in (("fail", "v3-", "lacks"), ("serializable", "v1-", "an update is lost")):
        told = []
        for each in records:
            is_it = each.arguments.get("scope") is not None
            told.append(msgspec.structs.replace(each, arguments={**each.arguments, "conflict": conflict}) if is_it else each)
        history, _ = check.read_history(place, told)
        assert history is not None
        born = int(birth[1:-1])  # before the rows came
        job = next(each.result["job"] for each in told if each.arguments.get("scope") is not None)
        operations = [
            msgspec.structs.replace(each, birth=born) if each.job == job and each.birth is not None else each for each in history.operations
        ]
        assert any(said in each for each in check.check_table(place, msgspec.structs.replace(history, operations=operations)))


def live_file(root: Path) -> Path:
    return next(path for path in sorted(root.rglob("*.parquet")) if "_manifest" not in path.parts)


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a live file is gone": (lambda root: live_file(root).unlink(), "cannot be read"),
    "a live file has other rows": (lambda root: live_file(root).write_bytes(parquet([[99, "a b"]])), "which nobody wrote"),
    "a tagged version is gone": (lambda root: (root / object_names.version_name(2)).unlink(), "version 2 is readable, and cannot be read"),
    "a file of a dead job": (lambda root: put(root / f"day=b/00000-{'0' * 16}-0-v1-{'0' * 16}-{'0' * 32}.parquet", b"x"), "are left"),
    "a temporary file": (lambda root: put(root / "day=b/.mc-tmp-0", b"x"), "are left"),
    "an expired version": (lambda root: put(root / object_names.version_name(1), b"x"), "are left"),
    "a manifest that nothing lists": (lambda root: put(root / object_names.MANIFESTS / "x.parquet", b"x"), "are left"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_gone_and_what_is_left_is_found(played: tuple[Place, list[Record]], damage: str, tmp_path: Path) -> None:
    place, records = played
    shutil.copytree(place.url, tmp_path / "table")
    do, said = DAMAGE[damage]
    do(tmp_path / "table")
    findings = check.check_end(msgspec.structs.replace(place, url=str(tmp_path / "table")), records)
    assert any(said in each for each in findings), findings
