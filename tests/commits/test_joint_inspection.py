"""What people and programs are told of joint commits: history, describe, resolve, the report, and verify. [MT1]"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.commits.tables import DAY, DECIDED, Lake, aborted_attempt, append, sound, stopped
from tests.kit.tables import objects_of, put_back

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.commits.joint_commit import commit_jointly
from manifestcommit.commits.two_phase import resolve_job
from manifestcommit.errors import StoreDeniedError, StoreError
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import open_head
from manifestcommit.operations.rollback import settle
from manifestcommit.operations.verify import verify
from manifestcommit.report.data import read_report
from manifestcommit.store import open_store
from manifestcommit.store.local import MemoryStore
from manifestcommit.transactions import PreparedTransaction


@pytest.fixture
def written(tmp_path: Path) -> list[str]:
    """Paths of tables that a joint commit made and another wrote to, the one that decides first; then a commit of that one alone."""
    paths = [f"{tmp_path}/table {name} %+=#é" for name in "abc"]
    for key in ("day 1", "day 2"):
        with mc.transaction(paths, key=key) as tx:
            for path in paths:
                tx[path].write(DAY)
    (home,) = (path for path in paths if mc.Table(path).history(1)[0]["joint"]["decided_by"] == mc.Table(path).url)
    mc.write(DAY, home)
    return [home, *(path for path in paths if path != home)]


def test_what_never_took_part_shows_no_column_of_it(written: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for path, is_joint in ((f"{written[0]} alone", False), (written[1], True)):
        mc.write(DAY, path)
        for verb in ("history", "describe"):
            assert main([verb, path, *["--version", "2"] * (is_joint and verb == "describe")]) == 0
            assert ("together with" in capsys.readouterr().out) == is_joint
        assert ("together with" in repr(mc.Table(path).history())) == is_joint
        mc.Table(path).report(f"{path}.html")
        assert ("together with" in Path(f"{path}.html").read_text()) == is_joint


def test_the_report_names_the_other_tables_of_commits_and_jobs(written: list[str]) -> None:
    prepare(written[:2])
    data = read_report(TableContext(open_store(written[1])), last=9, with_gc=False, ends=None)
    home = mc.Table(written[0]).url.rpartition("/")[2]
    assert data.history.commits[0]["together"] == f"{home} (decides)" and data.history.commits[-1]["together"] == ""
    assert [job.together for job in data.jobs] == [(mc.Table(written[0]).url, mc.Table(written[1]).url)]
    assert f"<td>{home}</td>" in mc.Table(written[1]).report().html.replace(' class="name"', "")


def test_what_became_of_a_job_names_the_tables_that_are_known(written: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As far as the version or the prepared job says. [CM23] [MT11]"""
    home, *members = (mc.Table(path) for path in written)
    alone, decision, *_ = home.history()
    found = home.resolve(decision["job"])
    assert (found, found.version, found.together) == ("committed", decision["version"], (home.url, *(each.url for each in members)))
    assert home.resolve(alone["job"]).together == ()
    at = members[0].resolve(members[0].history()[0]["job"])
    assert at == "committed" and at.together == (home.url, members[0].url)
    assert main(["resolve", written[1], members[0].history()[0]["job"]]) == 0
    assert capsys.readouterr().out == f"committed at version 3, together with {home.url.rpartition('/')[2]}\n"
    assert main(["resolve", written[1], members[0].history()[0]["job"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["together"] == [home.url, members[0].url]
    prepared = prepare(written[:2])
    for url, job_id in prepared.jobs.items():
        waits = mc.Table(url).resolve(job_id)
        assert waits == "pending" and waits.together == (home.url, members[0].url)
    prepared.abort()
    assert mc.Table(members[0].url).resolve(prepared.jobs[members[0].url]).together == (home.url, members[0].url)


def test_an_undecided_job_names_its_home(lake: Lake) -> None:
    """[MT8] [CM23]"""
    parts = lake.parts()
    stopped(parts, DECIDED - 1)
    found = resolve_job(lake.at(lake.urls[1]), parts[1].change.job)
    assert found == "pending" and found.together == tuple(lake.at(url).store.url for url in lake.urls)


def test_a_second_attempt_is_named_as_such(lake: Lake) -> None:
    """[MT9]"""
    parts = lake.parts()
    attempt = aborted_attempt(lake, parts)
    commit_jointly(parts)
    said = [mc.Table(url).history()[0]["joint"]["attempt"] for url in lake.urls]
    assert said[0] == said[1] != attempt


def prepare(paths: list[str]) -> PreparedTransaction:
    """A joint commit of a row for each."""
    jobs = [mc.begin(path) for path in paths]
    for job in jobs:
        job.write(DAY)
    return mc.transaction(jobs).prepare()


def torn(lake: Lake, which: int) -> list[str]:
    report = verify(lake.at(lake.urls[which]))
    found = [each.problem for each in report.findings if each.kind == "joint_commit_torn"]
    assert report.is_sound == (not found)
    return found


def test_verify_says_where_a_member_was_settled_by_hand_against_the_decision() -> None:
    """Both tables name the other, until both commit together again. [MT1] [MT10] [RD10]"""
    lake = Lake(3)
    stopped(lake.parts([0, 1]), DECIDED)
    home = open_store(lake.urls[0])
    kept = objects_of(home)
    put_back(home)
    settle(lake.at(lake.urls[1]), "aborted", reason="lost")
    put_back(home, kept)
    (said,) = torn(lake, 0)
    assert said.startswith(f"this table committed version 2 of {lake.at(lake.urls[1]).store.url} with its own, and there it is void")
    assert torn(lake, 2) == []
    commit_jointly(lake.parts([0, 1]))
    assert torn(lake, 0) == torn(lake, 1) == []


def test_verify_says_where_one_of_the_tables_was_put_back(lake: Lake) -> None:
    """To a state before their joint commit, or to another version of that number. [MT1] [RD10]"""
    home, member = stores = [open_store(url) for url in lake.urls]
    kept, urls = [objects_of(store) for store in stores], [store.url for store in stores]
    commit_jointly(lake.parts())
    after = objects_of(home)
    assert torn(lake, 0) == torn(lake, 1) == []
    append(lake, 1)
    settled = objects_of(member)
    put_back(home, kept[0])
    assert torn(lake, 1) == [f"version 2 counts here as part of a joint commit that {urls[0]} decided, which does not list it"]
    put_back(home, after)
    put_back(member, kept[1])
    assert torn(lake, 0) == [f"this table committed version 2 of {urls[1]} with its own, and the newest version there is 1"]
    append(lake, 1)
    assert torn(lake, 0) == [f"this table committed version 2 of {urls[1]} with its own, and there is another version of that number"]
    put_back(member, settled)
    sound(lake)


def test_verify_says_nothing_of_tables_that_it_cannot_read(monkeypatch: pytest.MonkeyPatch, lake: Lake) -> None:
    """The one that decides is out of reach: that is not known to be wrong. [MT10]"""
    commit_jointly(lake.parts())
    append(lake, 1)

    def refused(store: object, **_: object) -> None:
        raise StoreError("out of reach")

    sound(lake)
    monkeypatch.setattr("manifestcommit.commits.joint_commit.open_head", refused)
    assert torn(lake, 1) == [] == torn(lake, 0)


def test_describe_says_which_table_decides_for_which(tmp_path: Path) -> None:
    """[MT2]"""
    gold = mc.create_table(tmp_path / "gold", DAY.schema, rank=-1)
    for _ in range(2):
        with mc.transaction([tmp_path / "silver", gold]) as tx:
            for name in tx:
                tx[name].write(DAY)
    mc.write(DAY, gold.url)
    silver = mc.Table(tmp_path / "silver")
    decided, deciding = silver.describe(), gold.describe()
    assert (decided["rank"], decided["decided_by"], decided["decides_for"]) == (0, [gold.url], [])
    assert (deciding["rank"], deciding["decided_by"], deciding["decides_for"]) == (-1, [], [silver.url])


@pytest.mark.parametrize("end", ["commit", "prepare"])
def test_a_table_that_decides_by_chance_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, end: str) -> None:
    """[MT2]"""

    def together(*names: str) -> list[str]:
        caplog.clear()
        tx = mc.transaction([tmp_path / name for name in names])
        for name in names:
            tx[name].write(DAY)
        tx.commit() if end == "commit" else tx.prepare().abort()
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING" and "decides" in record.getMessage()]

    (told,) = together("a", "b")
    home = min((mc.Table(tmp_path / name) for name in "ab"), key=lambda table: table.describe()["table_id"])
    assert told.startswith(f"{home.url!r} decides the joint commits with") and "rank=-1" in told
    assert together("a", "b") == [] == together("b", "a")
    mc.create_table(tmp_path / "gold", DAY.schema, rank=-1)
    assert together("gold", "a", "b") == [], "it was chosen"
    assert len(together("a", "c")) == 1


def test_who_may_not_read_the_table_that_decides_is_told_which_that_is(monkeypatch: pytest.MonkeyPatch, lake: Lake) -> None:
    """[MT6] [ST5]"""
    stopped(lake.parts(), 2)
    home, member = lake.urls
    for name in ("get", "list"):

        def denied(store: MemoryStore, *given: Any, call: Any = getattr(MemoryStore, name), **more: Any) -> Any:  # noqa: B008
            if store.url == home:
                raise StoreDeniedError("403 on it")
            return call(store, *given, **more)

        monkeypatch.setattr(MemoryStore, name, denied)
    with pytest.raises(StoreDeniedError, match="403 on it") as refused:
        open_head(open_store(member))
    for text in (member, f"the table at {home} decides", "has to be able to read that one", "read version 1"):
        assert text in str(refused.value)
