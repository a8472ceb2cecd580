"""Each safeguard of the protocol is taken out of the library in turn, and the simulator alone says what is lost by that. [IV1]-[IV8]"""

import pytest
from tests.kit.sizes import PROOF, rest_thorough, some
from tests.mutants.__main__ import recorded
from tests.mutants.mutant import SIMULATED, taken_out
from tests.mutants.run import SEEDS, first_found
from tests.simulator import simulator
from tests.simulator.__main__ import shrink
from tests.simulator.oracle import Oracle
from tests.simulator.simulator import run_theme

USUAL = 100  # the usual run tries some of those that were last found by one of so many seeds


def is_found_soon(name: str) -> bool:
    seed = recorded().get(name, {}).get("seed")
    return isinstance(seed, int) and seed < USUAL


@pytest.mark.parametrize("name", some(sorted(SIMULATED) if PROOF else [name for name in sorted(SIMULATED) if is_found_soon(name)], 5))
def test_a_safeguard_that_is_gone_is_missed(name: str) -> None:
    """[CM1] [CM2] [CM5] [CM6] [GC2] [GC3] [GC4] [WM2] [WM5] [CF3] [CF12] [CF13] [AB1] [AB4] [RD3]"""
    seeds = SEEDS if PROOF else 3 * USUAL
    assert first_found(SIMULATED[name], seeds) is not None, f"{seeds} seeds of {SIMULATED[name].theme} have not shown that it is gone"


def test_what_no_object_shows_but_what_actors_were_told_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is refused for nothing leaves a table that is as it should be: only the history contradicts itself. [CM2] [IV2]"""
    mutant = SIMULATED["fenced early"]
    found = first_found(mutant, SEEDS)
    assert found is not None and found.kind == "history"
    assert "learned that it is fenced, and no gc had put the fence above its birth" in str(found.violation)
    monkeypatch.setattr(simulator, "check", lambda history: None)
    with taken_out(mutant):
        assert run_theme(mutant.theme, found.seed).violation is None, "the oracle sees it, too"


@pytest.mark.parametrize(
    ("name", "said"),
    rest_thorough(
        [
            ("key", "again"),
            ("serializable", "an update is lost"),
            ("watermark", "while it is at"),
            ("look above", "committed at version"),
            ("fence", "below the fence"),
            ("rollback", "goes back over version"),
            ("declared meanwhile", "learned that 'topic: 0' begins at"),
            ("keys that count", "recorded at None"),
        ],
        ("key", "again"),
        ("serializable", "an update is lost"),
        ("fence", "below the fence"),
    ),
)
def test_the_history_alone_shows_it_to_the_checker(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nobody who looks at objects: by what actors were told, and readers read. [CM1] [CM2] [CM5] [WM2] [WM7] [KY4] [CF3] [CF13]"""
    monkeypatch.setattr(Oracle, "fail", lambda self, said: None)
    with taken_out(SIMULATED[name]):
        found = next((run for seed in range(SEEDS) if (run := run_theme(SIMULATED[name].theme, seed)).kind == "history"), None)
    assert found is not None and said in str(found.violation)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["fence", "rollback", "tags"])
def test_what_was_found_is_made_small_and_is_still_the_same(name: str) -> None:
    """A trace of a few dozen lines tells what happened; the same choices do no harm to the whole library. [IV3]"""
    mutant = SIMULATED[name]
    found = first_found(mutant, SEEDS)
    assert found is not None
    with taken_out(mutant):
        small = shrink(found, lambda choices: run_theme(mutant.theme, given=choices))
        again = run_theme(mutant.theme, given=small.choices)
    assert again.trace == small.trace and again.kind == small.kind == found.kind
    assert len(small.choices) < len(found.choices) / 2
    assert run_theme(mutant.theme, given=small.choices).violation is None, "the library as it is does this, too"
