"""Row changes and compactions without Spark that are killed around their commit, or meet others there; with Spark:
tests/spark/operations/test_killed.py. [CM1] [KY3] [RC1] [GC11]"""

from pathlib import Path

import pytest
from tests.kit.faults import dying, lives
from tests.kit.row_works import WINNERS, WORKS, check_race, check_repeated, check_rerun, make, run
from tests.kit.sizes import rest_thorough


def change(work: str, path: Path, moment: str) -> None:
    with dying(1, moment, ["put_if_absent"]):
        run(work, path)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("work", rest_thorough(list(WORKS), "merge by clauses"))
def test_a_process_that_is_killed_around_its_commit_has_done_all_or_nothing(root: Path, work: str, moment: str) -> None:
    """And a rerun with its key completes it, once."""
    make(root)
    assert not lives(change, work, root, moment)
    check_rerun(work, root, None, committed=moment == "after")


@pytest.mark.parametrize("winner", WINNERS)
@pytest.mark.parametrize("work", rest_thorough(list(WORKS), "merge by clauses", "compact"))
def test_a_row_change_that_meets_a_winner_at_its_create_loses_or_is_done_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, winner: str
) -> None:
    """[CF16] [CF7] [RC1]"""
    check_race(monkeypatch, work, winner, tmp_path / "t")


@pytest.mark.parametrize("winner", [name for name, winner in WINNERS.items() if winner.rules])
@pytest.mark.parametrize("work", rest_thorough([work for work in WORKS if work != "compact"], "merge", "update"))
def test_a_row_change_that_lost_to_others_is_done_again_at_their_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, winner: str
) -> None:
    """[RC11]"""
    check_repeated(monkeypatch, work, winner, tmp_path / "t")
