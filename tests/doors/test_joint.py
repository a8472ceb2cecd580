"""Several tables through the public calls: committed together, read together. [MT1] [MT12]"""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.commits.tables import stopped

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.cli.options import NO, USAGE
from manifestcommit.log.version_chain import open_head
from manifestcommit.store import open_store

DAY = pa.table({"id": [1, 2], "note": ["a=b/ %+#é", None]})


@pytest.fixture
def lake(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("orders %+=#é", "rejects", "empty ’")]


def rows(paths: list[str]) -> list[int]:
    return [table.to_arrow().num_rows for table in mc.read_together(paths)]


def test_leaving_the_block_commits_all_tables(lake: list[str]) -> None:
    """Tables that do not exist yet are made, a table without rows takes part. [MT1] [MT3] [MT13] [KY3]"""

    def nightly() -> mc.Transaction:
        with mc.transaction(lake, key="day 1 é", message="m", metadata={"run": "1"}) as tx:
            tx["orders %+=#é"].write(DAY)
            tx[lake[1]].write(DAY.slice(0, 1))
            tx["rejects"].advance("topic: 0", 0, 5)
            tx["empty ’"].write(DAY.slice(0, 0))
        return tx

    first, again = nightly(), nightly()
    assert first.outcome is not None and list(first.outcome.versions.values()) == [2, 2, 2] and not first.outcome.already_committed
    assert again.already_committed and again.outcome is not None and again.outcome.already_committed
    assert again.outcome.versions == first.outcome.versions == {mc.Table(path).url: 2 for path in lake}
    assert rows(lake) == [2, 1, 0] and list(first) == lake
    assert [table.watermarks() for table in mc.read_together(lake)] == [{}, {"topic: 0": 5}, {}]
    for path in lake:
        table = mc.Table(path)
        assert table.verify(deep=True).is_sound and table.history()[0]["message"] == "m"
        assert mc.Table(path).resolve(table.snapshot().commits[0].job) == "committed"


def test_a_rerun_of_a_transaction_declares_all_or_nothing_or_skips(lake: list[str]) -> None:
    """Rows changed or computed below `if not tx.already_committed:`: the crash after it is what keys are for. [KY3] [KY2] [MT13]"""
    orders, rejects = mc.write(DAY, lake[0]), mc.write(DAY, lake[1])
    assert orders.committed and rejects.committed

    def begun(fingerprint: str = "f") -> mc.Transaction:
        return mc.transaction(lake[:2], key="day 1", fingerprint=fingerprint)

    with begun() as tx:
        with pytest.raises(mc.errors.UsageError, match="is not committed, so that nothing can be skipped"):
            tx.skip()
        tx.rows("rejects").merge(DAY, on="id")
        tx[lake[0]].advance("s", 0, 5)
        tx[lake[0]].write(DAY)
    before = rows(lake[:2])
    with begun() as tx:
        assert tx.already_committed
    assert tx.outcome is not None and tx.outcome.already_committed
    for declare in (lambda tx: tx[lake[0]].write(DAY), lambda tx: tx.rows("rejects").delete(where="id = 1")):
        less = begun()
        declare(less)
        with pytest.raises(mc.errors.KeyReusedError, match=r"skip\(\)"):
            less.commit()
        skipped = begun()
        skipped.skip()
        declare(skipped)
        assert skipped.commit().already_committed
    prepared = begun()
    prepared.skip()
    assert prepared.prepare().commit().already_committed
    with pytest.raises(mc.errors.KeyReusedError), begun("g") as tx:
        tx.skip()
    with pytest.raises(mc.errors.KeyReusedError), mc.transaction(lake[:2], key="day 1"):
        pass
    with pytest.raises(mc.errors.UsageError, match="is over"):
        skipped.skip()
    assert rows(lake[:2]) == before


def test_an_exception_commits_nothing(lake: list[str]) -> None:
    """[MT1] [AB1]"""
    tx = mc.transaction(lake[:2])

    def careless() -> None:
        with tx:
            tx[lake[0]].write(DAY)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        careless()
    assert tx.outcome is None and mc.Table(lake[0]).version == 1
    mc.write(DAY, lake[1])
    assert rows(lake[:2]) == [0, 2]


@pytest.mark.parametrize("end", ["commit", "prepare", "abort", "__enter__"])
def test_no_job_of_a_transaction_is_ended_alone(lake: list[str], end: str) -> None:
    """The other tables would lack their half, and leaving the block would say nothing of it. [MT1]"""

    def careless() -> None:
        with mc.transaction(lake[:2], key="day 1 é") as tx:
            for name in tx:
                tx[name].write(DAY)
            getattr(tx["rejects"], end)()

    with pytest.raises(mc.errors.UsageError, match="rejects: this job belongs to a transaction"):
        careless()
    assert rows(lake[:2]) == [0, 0] and not mc.Table(lake[1]).jobs()
    with mc.transaction(lake[:2], key="day 1 é") as tx:
        for name in tx:
            tx[name].write(DAY)
        with pytest.raises(mc.errors.UsageError, match="belongs to a transaction"):
            mc.transaction([tx[name] for name in tx]).commit()
    assert rows(lake[:2]) == [2, 2]


def test_a_conflict_names_its_table_and_commits_nothing(lake: list[str]) -> None:
    """[MT1] [CF1] [WM2]"""
    for path in lake[:2]:
        mc.write(DAY, path, watermarks={"s": (0, 5)})
    tx = mc.transaction(lake[:2])
    for name in tx:
        tx[name].write(DAY)
    tx["rejects"].advance("s", 9, 10)
    with pytest.raises(mc.errors.WatermarkGapError, match="rejects"):
        tx.commit()
    assert rows(lake[:2]) == [2, 2]
    mc.write(DAY, lake[1])


def test_jobs_at_hand_are_committed_together(lake: list[str]) -> None:
    """Of tables that are there, whatever the mode. [MT1] [MT4]"""
    for path in lake[:2]:
        mc.write(DAY, path)
    first, second = mc.begin(lake[0]), mc.begin(lake[1])
    first.overwrite()
    first.write(DAY.slice(0, 1))
    second.write(DAY)
    outcome = mc.transaction([first, second]).commit()
    assert [each.version for each in outcome.outcomes.values()] == [3, 3] and first.outcome is not None and first.outcome.committed
    assert rows(lake[:2]) == [1, 4] and outcome.outcomes[mc.Table(lake[0]).url] == first.outcome


def test_named_tables_and_table_objects(lake: list[str]) -> None:
    """[MT1]"""
    with mc.transaction({"facts": lake[0], "dimensions": mc.Table(lake[1])}) as tx:
        tx["facts"].write(DAY)
        tx["dimensions"].write(DAY)
    assert rows(lake[:2]) == [2, 2]
    with pytest.raises(mc.errors.UsageError, match="has no table 'orders'; it has 'facts', 'dimensions'"):
        tx["orders"]


def test_the_rank_chooses_the_table_that_decides(lake: list[str]) -> None:
    """[MT2]"""
    mc.create_table(lake[1], DAY.schema, rank=-3)
    mc.create_table(lake[1], DAY.schema, rank=-3)
    with pytest.raises(mc.errors.UsageError, match=r"rank cannot be changed \(is -3, got "):
        mc.create_table(lake[1], DAY.schema, rank=0)
    with mc.transaction(lake) as tx:
        for name in tx:
            tx[name].write(DAY)
    assert len(mc.Table(lake[1]).snapshot().joint) == 2 and mc.Table(lake[1]).snapshot().rank == -3


@pytest.mark.thorough
def test_changes_of_rows_pass_a_void_version_over(lake: list[str]) -> None:
    """[MT8] [CH1]"""
    for path in lake[:2]:
        mc.write(DAY, path)
    coordinator = mc.transaction(lake[:2])
    for name in coordinator:
        coordinator[name].write(DAY)
    parts = [coordinator[name].take_part() for name in coordinator]
    assert stopped(parts, 2) is None
    member = next(path for path in lake[:2] if open_head(open_store(path)).top is not None)
    mc.write(DAY.slice(0, 1), member)
    assert mc.Table(member).snapshot().void == (3,)
    assert mc.Table(member).changed_files(2)["added"].num_rows == 1
    assert mc.Table(member).changed_rows(2).read_all().num_rows == 1
    with pytest.raises(mc.errors.VersionNotFoundError, match="is void"):
        mc.Table(member).changed_rows(3)


WRONG: dict[str, Any] = {
    "one path": "x", "no tables": [], "one table": ["x"], "a table twice": ["x", "x"], "a number": ["x", 1], "nothing": None,
    "names that are no texts": {1: "x", 2: "y"},
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_are_no_tables_is_refused(what: str) -> None:
    """[SE3] [MT2]"""
    with pytest.raises(mc.errors.UsageError, match="invalid tables"):
        mc.transaction(WRONG[what])


def test_no_tables_are_not_read() -> None:
    """[SE3]"""
    with pytest.raises(mc.errors.UsageError, match="invalid tables"):
        mc.read_together([])


APART = {
    "one place, spelled twice": (["{}/a", "{}/a/"], "a takes part twice"),
    "a path and its URL": (["{}/a", "file://{}/a"], "a takes part twice"),
    "two stores": (["{}/a", "memory://elsewhere/apart"], "not in the same object store"),
    "too many": ([f"{{}}/{number}" for number in range(33)], "2 to 32 tables, not 33"),
}


@pytest.mark.parametrize("what", APART)
def test_tables_that_cannot_be_committed_together_are_refused_before_rows_are_written(tmp_path: Path, what: str) -> None:
    """[SE3] [MT2] [MT6]"""
    paths, problem = APART[what]
    with pytest.raises(mc.errors.UsageError, match=problem):
        mc.transaction([path.format(tmp_path) for path in paths])
    assert not list(tmp_path.iterdir())


def test_a_table_and_its_copy_are_not_read_as_one(lake: list[str], tmp_path: Path) -> None:
    """Both have one table id, and each its own versions: neither is read at a version of the other. [MT12]"""
    for path in lake[:2]:
        mc.create_table(path, DAY.schema)
    copy = str(shutil.copytree(lake[0], tmp_path / "copy"))
    for _ in range(2):
        mc.write(DAY, copy)
    mc.write(DAY, lake[0])
    for tables in ([lake[0], copy], [copy, lake[1], lake[0]]):
        with pytest.raises(mc.errors.UsageError, match="hold the same table"):
            mc.read_together(tables)
    assert rows([copy]) == [4] and rows([lake[0], f"{lake[0]}/"]) == [2, 2]


def test_an_empty_path_of_another_table_is_not_the_first_table(lake: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Such as that of a variable of the shell that is not set. [SE3]"""
    mc.create_table(lake[0], DAY.schema)
    mc.Table(lake[0]).tag("t")
    assert main(["rollback", lake[0], "--tag", "t", "--reason", "r", "--dry-run", "--together-with", ""]) == USAGE
    assert "it is empty" in capsys.readouterr().err


def test_what_are_no_jobs_of_several_tables_is_refused(lake: list[str]) -> None:
    """[SE3] [MT2]"""
    with pytest.raises(mc.errors.UsageError, match="invalid jobs"):
        mc.transaction([mc.begin(lake[0]), 1])  # type: ignore[list-item]
    with pytest.raises(mc.errors.UsageError, match="give the transaction none"):
        mc.transaction([mc.begin(lake[0]), mc.begin(lake[1])], key="k")
    with pytest.raises(mc.errors.UsageError, match="expected 2 to 32 jobs, got 1"):
        mc.transaction([mc.begin(lake[0])])
    with pytest.raises(mc.errors.UsageError, match="takes part twice"):
        mc.transaction([mc.begin(lake[0]), mc.begin(lake[0])]).commit()
    with pytest.raises(mc.errors.UsageError, match=f"{lake[1]} has no key"):
        mc.transaction([mc.begin(lake[0], key="k", recoverable=True, fingerprint="f"), mc.begin(lake[1])]).commit()
    with pytest.raises(mc.errors.UsageError, match=f"{lake[1]} has no key"):
        mc.transaction([mc.begin(lake[0], key="k"), mc.begin(lake[1])]).commit()
    with pytest.raises(mc.errors.UsageError, match="are not in the same object store"):
        mc.transaction([mc.begin(lake[0]), mc.begin("memory://elsewhere/t")]).commit()
    with mc.begin(lake[0]) as refused:  # what a transaction refuses to take stays its owner's
        with pytest.raises(mc.errors.UsageError, match="takes part twice"):
            mc.transaction([refused, refused])
        refused.write(DAY)
    assert refused.outcome is not None and rows(lake[:1]) == [2]


def test_a_pinned_version_never_changes(lake: list[str]) -> None:
    """[MT12] [RD2]"""
    for path in lake[:2]:
        mc.write(DAY, path)
    orders, rejects = mc.read_together([lake[0], mc.Table(lake[1])])
    mc.write(DAY, lake[0])
    assert (orders.version, rejects.version) == (2, 2) and "version=2" in repr(orders)
    assert orders.dataset().count_rows() == 2 and orders.to_arrow(columns=["id"], filter="id = 1").num_rows == 1


def test_an_export_of_a_member_shows_it_once_it_is_decided(lake: list[str]) -> None:
    """And the log of Delta begins anew after a void version. [MT8] [EX2]"""
    plain = [f"{lake[1]}-1", f"{lake[1]}-2"]
    for path in plain:
        mc.write(DAY, path)
        mc.Table(path).set_properties({"export.formats": "delta,iceberg"})
    with mc.transaction(plain) as tx:
        for name in tx:
            tx[name].write(DAY)
    for path in plain:
        assert (Path(path) / "_iceberg" / "metadata" / "version-hint.text").read_text() == str(mc.Table(path).version)
        assert (Path(path) / "_delta_log" / f"{mc.Table(path).version:020d}.json").exists()


def test_a_joint_commit_is_undone_in_all_tables_or_where_that_is_said(lake: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Through the library and the command line, of which a rehearsal says the same. [MT14]"""
    names = dict.fromkeys(lake[:2])
    for path in names:
        mc.write(DAY, path)
    with mc.transaction(lake[:2], key="day 2") as tx:
        for name in tx:
            tx[name].write(DAY)
            tx[name].advance("s", 0, 5)
    with pytest.raises(
        mc.errors.CommitConflictError, match=r"roll back all of its tables by rollback_together.* was committed\.$"
    ) as refused:
        mc.Table(lake[0]).rollback(2, reason="r")
    assert refused.value.rule == "undoes_a_joint_commit" and rows(lake[:2]) == [4, 4]
    for command in (["rollback", lake[0], "2"], ["rewind", lake[0], "s", "--to", "0"]):
        for more in (["--dry-run"], ["--yes"]):
            assert main([*command, "--reason", "r", *more]) == NO
            assert "--alone" in capsys.readouterr().err
        assert main([*command, "--reason", "r", "--alone", "--dry-run"]) == 0
    outcome = mc.rollback_together({lake[0]: 2, mc.Table(lake[1]): 2}, reason="wrong é", message="m")
    assert rows(lake[:2]) == [2, 2] and [each.dropped_keys for each in outcome.outcomes.values()] == [("day 2",)] * 2
    assert all(mc.Table(path).history()[0]["reason"] == "wrong é" for path in names)
    for wrong in ({lake[0]: 2}, {lake[0]: True, lake[1]: 2}, [lake[0], lake[1]], None):
        with pytest.raises(mc.errors.UsageError, match="invalid versions"):
            mc.rollback_together(wrong, reason="r")  # type: ignore[arg-type]
