"""Constraints in histories of what processes were told: right ones are explained, wrong ones are not. [CK1] [CK2] [CK3] [CK4]"""

import pytest
from tests.kit.histories import append, found, op, read
from tests.mutants.mutant import SIMULATED, taken_out
from tests.mutants.run import SEEDS
from tests.simulator.oracle import Oracle
from tests.simulator.simulator import run_theme

from manifestcommit.testing.history.checker import check
from manifestcommit.testing.history.operation import Operation

DAY = "day=1"  # what `append` puts its items into


def add(begin: float, version: int | None, outcome: str = "committed", name: str = "c", refused: str = DAY) -> Operation:
    return op("add", begin, begin + 1, outcome, version, constrains={name: refused})


def drop(begin: float, version: int) -> Operation:
    return op("drop", begin, begin + 1, "committed", version, constrains={"c": ""})


def test_a_constraint_comes_and_goes_beside_writers() -> None:
    """[CK3]"""
    kept = append(2, 3, 2, "a", partition="day=2")
    late = op("late", 2, 3, "refused", None, adds={"b": DAY}, rule="constraint")
    history = [
        add(0, 1),
        kept,
        late,
        read(4, 2, "a", constraints={"c": DAY}),
        drop(5, 3),
        append(7, 8, 4, "d"),
        read(9, 4, "a", "d", constraints={}),
    ]
    assert check(history) is None


def test_no_version_holds_an_item_that_a_constraint_refuses() -> None:
    """Whichever of the two came first. [CK1] [CK2] [CK3]"""
    for history in ([add(0, 1), append(0, 3, 2, "a")], [append(0, 1, 1, "a"), add(0, 2)]):
        assert "leaves 'a' there, which the constraint 'c' refuses" in found(*history).problem


def test_one_whose_outcome_nobody_knows_is_shown_by_reads() -> None:
    """[CK3]"""
    unknown = add(0, None, "unknown")
    assert check([unknown, append(5, 6, 2, "a"), read(7, 2, "a", constraints={})]) is None
    assert check([unknown, append(5, 6, 2, "a", partition="day=2"), read(7, 2, "a", constraints={"c": DAY})]) is None
    assert "leaves 'a'" in found(unknown, read(3, 1, constraints={"c": DAY}), append(5, 6, 2, "a")).problem


def test_a_constraint_stays_until_somebody_takes_it_away() -> None:
    """[CK3] [CK4]"""
    gone = [add(0, 1), append(2, 3, 2, "a", partition="day=2"), read(4, 2, "a", constraints={})]
    assert "shows the constraints {}" in found(*gone).problem
    back = op("rollback", 4, 5, "committed", 3, restores=1)
    assert check([append(0, 1, 1, "a"), add(2, 2, refused="day=2"), back, read(6, 3, "a", constraints={})]) is None
    assert (
        "shows the constraints"
        in found(append(0, 1, 1, "a"), add(2, 2, refused="day=2"), back, read(6, 3, "a", constraints={"c": "day=2"})).problem
    )


def test_nobody_takes_the_name_of_another_one() -> None:
    """[CK3]"""
    assert "over another one" in found(add(0, 1), add(0.5, 2, refused="day=2")).problem
    assert check([add(0, 1), add(0.5, 2, name="d", refused="day=2")]) is None


@pytest.mark.parametrize(
    "others",
    [[], [add(0, 1, refused="day=2")], [append(0, 1, 1, "a")], [add(0, 1), drop(2, 2)]],
    ids=["nobody", "of other rows", "rows, and no constraint", "one that was dropped before"],
)
def test_who_learns_of_a_violation_has_met_one(others: list[Operation]) -> None:
    """[CK2] [CK3]"""
    refused = op("append", 5, 6, "refused", None, adds={"b": DAY}, rule="constraint")
    assert "nobody had added these rows, or that constraint" in found(*others, refused).problem
    if others:
        assert check([add(0, 1), drop(4.5, 2), refused]) is check([add(0, 1), drop(2, 2), add(3.5, 3), refused]) is None
        back = op("back", 3, 4, "committed", 3, restores=1)
        assert check([add(0, 1), drop(2, 2), back, refused]) is None
    adding = op("add", 5, 6, "refused", None, rule="constraint", constrains={"c": DAY})
    assert check([*others, append(2, 3, 3, "x"), adding]) is None


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["unproven rows", "checked by name", "constraints of the base", "two of one name"])
def test_the_history_alone_shows_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nobody who looks at objects: by what actors were told, and readers read. [CK1] [CK2] [CK3] [CK4]"""
    monkeypatch.setattr(Oracle, "fail", lambda self, said: None)
    with taken_out(SIMULATED[name]):
        shown = next((run for seed in range(SEEDS) if (run := run_theme("gate", seed)).kind == "history"), None)
    assert shown is not None and "constraint" in str(shown.violation)
