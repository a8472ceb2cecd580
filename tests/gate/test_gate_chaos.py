"""Constraints come and go beside processes that are killed; and what a run checks at its end finds what it is there for. [CK1]-[CK7]"""

from pathlib import Path

import pytest
from tests.chaos import gate
from tests.chaos.gate import SCHEMA, misplaced, violating
from tests.chaos.run import Settings, report, run

import manifestcommit as mc
from manifestcommit.store import open_store

BRINGING = {"what": "bringing", "key": "k", "ids": [1, 2]}


@pytest.mark.thorough
def test_no_row_violates_is_lost_or_doubled_whoever_is_killed() -> None:
    """Writers, merges, updates, streams, loads, staged jobs, rollbacks, a quarantine and what is returned from it. [CK1]-[CK5] [CK7]"""
    wanted = {
        "kill": 4,
        "died": 3,
        "rerun": 2,
        "added": 6,
        "dropped": 3,
        "rolled back": 1,
        "brought": 40,
        "violated": 1,
        "returned": 1,
        "loaded": 2,
        "read": 10,
    }
    summary = run(Settings(seed=5, seconds=14, about="gate", wanted=wanted | {"compacted": 1, "collected": 1, "read": 10}), print)
    report(summary, print)
    assert not summary.findings and summary.rows["gated"] > 20 and summary.counts["files beside a constraint"] > 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    mc.create_table(tmp_path / "t", SCHEMA, constraints={"least": "n >= 0"})
    return tmp_path / "t"


def rows(*numbers: int, first: int = 1) -> gate.pa.Table:
    return gate.Batch(key="k", kind="split", ids=tuple(range(first, first + len(numbers))), numbers=numbers).rows


def test_a_row_that_violates_a_constraint_is_found_in_each_version_that_has_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CK1]"""
    mc.write(rows(5), path)
    assert violating(mc.Table(path), open_store(path)) == (1, [])
    monkeypatch.setattr("manifestcommit.gate.rows.RowChecks.take", lambda self, rows: True)
    mc.write(rows(-5), path)
    mc.write(rows(6), path)
    judged, found = violating(mc.Table(path), open_store(path))
    assert judged == 3 and [each.partition(":")[0] for each in found] == ["version 3", "version 4"] and "[-5] beside least" in found[0]


def test_rows_that_are_lost_doubled_or_out_of_place_are_found(path: Path) -> None:
    """[CK7]"""

    def wrong(*told: dict[str, object]) -> list[str]:
        found = misplaced(mc.Table(path), mc.Table(f"{path}.refused"), [BRINGING, *told])
        return [each.partition(" rows are ")[2].partition(":")[0] for each in found]

    mc.write(rows(5, -5), path, on_violation="quarantine")
    brought = {"what": "brought", "key": "k"}
    assert wrong(brought) == []
    assert wrong(brought, {**BRINGING, "key": "l", "ids": [3]}, {**brought, "key": "l"}) == ["lost"]
    assert wrong({"what": "violated", "key": "k"}) == ["there, and were refused"]
    mc.write(rows(5, first=2), path)
    assert wrong(brought) == ["doubled"]
    mc.Table(path).delete("id = 2")
    mc.write(rows(5, first=9), path)
    assert wrong(brought) == ["brought by nobody"]
    mc.Table(path).delete("id = 9")
    mc.Table(f"{path}.refused").update({"n": "20"}, "true")
    assert wrong(brought) == ["refused for nothing"]


def test_rows_that_a_rollback_took_away_are_not_lost(path: Path) -> None:
    """[CK4] [CF13]"""
    table = mc.Table(path)
    mc.write(rows(5), path)
    mc.write(rows(6, first=2), path)
    table.rollback(table.version - 1, reason="wrong")
    mc.create_table(f"{path}.refused", SCHEMA.append(gate.pa.field("refused_by", gate.pa.list_(gate.pa.string()))))
    brought = [BRINGING, {"what": "brought", "key": "k"}]
    assert misplaced(table, mc.Table(f"{path}.refused"), brought) == []
    table.delete("id = 1")
    assert misplaced(table, mc.Table(f"{path}.refused"), brought) == ["1 rows are lost: [1]"]
