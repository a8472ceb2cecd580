"""`rollback` of several tables, for programs; what people see is in golden/several-tables.txt. [MT1] [MT12] [MT14]"""

import json

import pyarrow as pa
import pytest
from tests.commits.tables import Lake, stopped

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.cli.options import DONE, USAGE
from manifestcommit.commits.joint_commit import commit_jointly
from manifestcommit.store import open_store


@pytest.fixture
def lake() -> Lake:
    """Two tables with a joint commit at version 2 of each."""
    made = Lake(2)
    commit_jointly(made.parts(key="day 1 é"))
    return made


def names(lake: Lake) -> list[str]:
    return [f"{url} {info.name}" for url in lake.urls for info in open_store(url).list("")]


@pytest.mark.thorough
def test_a_rehearsal_writes_nothing_although_a_coordinator_has_left_something(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the rollback itself aborts that, and it is of the table that has it. [MT9] [SE4]"""
    stopped(lake.parts(), 2)
    before = names(lake)
    command = ["rollback", lake.urls[1], "1", "--together-with", f"{lake.urls[0]}=1", "--reason", "r"]
    assert main([*command, "--dry-run", "--json"]) == DONE
    planned = json.loads(capsys.readouterr().out)["tables"]
    assert [(each["version"], each["restored"], each["dropped_keys"]) for each in planned] == [(2, 1, ["day 1 é"])] * 2
    assert names(lake) == before
    assert main([*command, "--yes", "--json"]) == DONE
    done = json.loads(capsys.readouterr().out)["tables"]
    assert [each["url"] for each in done] == [mc.Table(lake.urls[which]).url for which in (1, 0)]
    assert [each["restored"] for each in done] == [1, 1] and lake.moved() == [0, 0]
    assert [each["version"] for each in done] == [mc.Table(lake.urls[which]).version for which in (1, 0)]


def test_every_table_goes_back_to_its_version_of_the_tag(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """[GC10] [MT14]"""
    there = ["--together-with", lake.urls[1]]
    for url in lake.urls:
        assert main(["tag", url, "q1", "--keep-for", "3d", "--json"]) == DONE
        tagged = json.loads(capsys.readouterr().out)
        assert (tagged["tag"], tagged["tagged"], tagged["version"]) == ("q1", 2, 3) and tagged["until"]
    commit_jointly(lake.parts())
    assert lake.moved() == [2, 2]
    assert main(["rollback", lake.urls[0], "--tag", "q1", *there, "--reason", "r", "--yes", "--format", "csv"]) == DONE
    assert len(capsys.readouterr().out.splitlines()) == 3 and lake.moved() == [1, 1]
    assert {mc.Table(url).history(1)[0]["operation"] for url in lake.urls} == {"rollback"}


@pytest.mark.parametrize("given", ["{}", "{}=", "{}=x", "{}=-1", "=1"])
def test_what_names_no_version_of_another_table_is_refused(lake: Lake, capsys: pytest.CaptureFixture[str], given: str) -> None:
    before = names(lake)
    assert main(["rollback", lake.urls[0], "1", "--together-with", given.format("memory://lake/t"), "--reason", "r", "--yes"]) == USAGE
    assert "invalid --together-with" in capsys.readouterr().err and names(lake) == before


@pytest.mark.thorough
def test_another_tables_path_is_shown_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever writes a table's metadata chooses it. [LY1] [SE2]"""
    paths = [f"memory://hostile paths/{name}\x9b31m\u202e\u2028 é" for name in "ab"]
    with mc.transaction(paths, key="day 1") as tx:
        for path in paths:
            tx[path].write(pa.table({"id": [1]}))
    jobs = [mc.begin(path) for path in paths]
    for job in jobs:
        job.write(pa.table({"id": [2]}))
    prepared = mc.transaction(jobs).prepare().jobs
    for path, (_, waiting) in zip(paths, prepared.items(), strict=True):
        for command in (["history", path], ["describe", path], ["jobs", path], ["resolve", path, mc.Table(path).history(1)[0]["job"]]):
            assert main(command) == DONE
        main(["resolve", path, waiting])
        main(["abort", path, waiting, "--dry-run"])
        mc.Table(path).report(None)
    shown = capsys.readouterr().out
    assert "together with" in shown and all(each.isprintable() or each == "\n" for each in shown), shown
