"""Each safeguard is taken out of the library in turn, and the simulator says what is lost by that. [IV1]-[IV8]"""

from __future__ import annotations

import pytest

from manifestcommit.testing import simulator
from manifestcommit.testing.explore import explore
from manifestcommit.testing.oracle import Oracle
from manifestcommit.testing.shrink import shrink
from manifestcommit.testing.simulator import Run, run_theme
from tests.simulator.mutants import MUTANTS
from tests.sizes import some

SEEDS = 1000  # the last of them is found by seed 277


def first_found(theme: str) -> Run | None:
    return next((run for seed in range(SEEDS) if (run := run_theme(theme, seed)).violation is not None), None)


@pytest.mark.parametrize("name", some(sorted(MUTANTS), 9))
def test_a_safeguard_that_is_gone_is_missed(name: str) -> None:
    """[CM1] [CM2] [CM5] [CM6] [GC2] [GC3] [GC4] [WM2] [WM5] [CF3] [CF12] [CF13] [AB1] [AB4] [RD3]"""
    mutant, theme = MUTANTS[name]
    with mutant():
        found = first_found(theme)
    assert found is not None, f"{SEEDS} seeds of {theme} have not shown that it is gone"


def test_what_no_object_shows_but_what_actors_were_told_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is refused for nothing leaves a table that is as it should be: only the history contradicts itself. [CM2] [IV2]"""
    mutant, theme = MUTANTS["fenced early"]
    with mutant():
        found = first_found(theme)
        assert found is not None and found.kind == "history"
        assert "was told that it is fenced, and no gc had put the fence above its birth" in str(found.violation)
        monkeypatch.setattr(simulator, "check", lambda history: None)
        assert run_theme(theme, found.seed).violation is None, "the oracle sees it, too"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("key", "again"),
        ("serializable", "an update is lost"),
        ("watermark", "while it stands at"),
        ("look above", "committed at version"),
        ("fence", "below the fence"),
        ("rollback", "goes back over version"),
    ],
)
def test_the_history_alone_shows_it_to_the_checker(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nobody who looks at objects: by what actors were told, and readers read. [CM1] [CM2] [CM5] [WM2] [CF3] [CF13]"""
    monkeypatch.setattr(Oracle, "_fail", lambda self, said: None)
    mutant, theme = MUTANTS[name]
    with mutant():
        found = next((run for seed in range(SEEDS) if (run := run_theme(theme, seed)).kind == "history"), None)
    assert found is not None and said in str(found.violation)


@pytest.mark.parametrize("name", ["fence", "rollback", "tags"])
def test_what_was_found_is_made_small_and_is_still_the_same(name: str) -> None:
    """A trace of a few dozen lines tells what happened; the same choices do no harm to the whole library. [IV3]"""
    mutant, theme = MUTANTS[name]
    with mutant():
        found = first_found(theme)
        assert found is not None
        small = shrink(found, lambda choices: run_theme(theme, given=choices))
        again = run_theme(theme, given=small.choices)
    assert again.trace == small.trace and again.kind == small.kind == found.kind
    assert len(small.choices) < len(found.choices) / 2
    assert run_theme(theme, given=small.choices).violation is None, "the library as it is does this, too"


@pytest.mark.parametrize(
    ("name", "case", "switches"),
    [
        ("look above", "a stalled writer, a writer and gc", 1),
        ("fence", "a stalled writer, a writer and gc", 1),
        ("key", "two writers", 1),
        ("serializable", "two overwriters", 1),
    ],
)
def test_enumeration_misses_it_too(name: str, case: str, switches: int) -> None:
    """[CM1] [CM2] [CM5] [CF3]"""
    with MUTANTS[name][0]():
        assert explore(case, switches=switches).found is not None
