"""Each safeguard of the protocol is taken out of the library in turn, and the simulator alone says what is lost by that. [IV1]-[IV8]"""

import msgspec
import pytest
from tests.commits.tables import DECIDED, Lake, append, stopped
from tests.kit.sizes import PROOF, rest_thorough, some
from tests.kit.tables import rollback
from tests.mutants.__main__ import recorded
from tests.mutants.mutant import SIMULATED, taken_out
from tests.mutants.run import SEEDS, first_found
from tests.simulator import simulator
from tests.simulator.__main__ import shrink
from tests.simulator.oracle import Oracle
from tests.simulator.simulator import run_theme
from tests.simulator.version_rules import State, Step, broken

from manifestcommit.commits.joint_commit import commit_jointly
from manifestcommit.format import object_names
from manifestcommit.operations.rollback import plan_joint_rollback, undo_together
from manifestcommit.store import open_store
from manifestcommit.testing.scheduler import Choices, Scheduler

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
            ("key", "again"), ("serializable", "an update is lost"), ("watermark", "while it is at"),
            ("look above", "committed at version"), ("fence", "below the fence"), ("rollback", "goes back over version"),
            ("declared meanwhile", "learned that 'topic: 0' begins at"), ("keys that count", "recorded at None"),
        ],
        ("key", "again"),
        ("serializable", "an update is lost"),
        ("fence", "below the fence"),
    ),
)  # fmt: skip
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


# --- the rules of versions, by themselves -------------------------------------------------------------------------------
def judged(lake: Lake, which: int) -> Oracle:
    """The oracle that has seen the table's versions, void ones included, one after another."""
    store = open_store(lake.urls[which])
    oracle = Oracle(Scheduler(Choices(0, None)), store)
    for info in sorted(store.list("_manifest/"), key=lambda each: each.name):
        if object_names.parse_version(info.name) is None:
            oracle.appeared(info.name, store.get(info.name), "somebody")
    for version in range(1, lake.newest(which).version + 1):
        name = object_names.version_name(version)
        oracle.appeared(name, store.get(name), "somebody")
    return oracle


@pytest.mark.thorough
@pytest.mark.parametrize("calls", range(DECIDED))
def test_tables_that_go_back_behind_a_coordinator_that_died_are_no_violation(calls: int) -> None:
    """Above a void member the last state is older than the version below. [MT5] [MT8] [MT14] [CF13]"""
    lake = Lake(3)
    commit_jointly(lake.parts())
    stopped(lake.parts(), calls)
    sessions = [lake.at(url) for url in lake.urls]
    assert {each.kind for each in undo_together(plan_joint_rollback(sessions, [1, 1, 1], reason="r"))} == {"committed"}
    for which in range(3):
        oracle = judged(lake, which)
        assert oracle.head.commit.restored == 1 and oracle.head.snapshot.watermarks.get("s", 0) == 0
    assert bool(lake.newest(1).void) == (calls > 0)


def test_a_rollback_has_seen_all_versions_below_it_but_void_ones() -> None:
    """[CF13] [MT5] [MT8]"""
    lake = Lake(2)
    born = [lake.at(lake.urls[1]).open()]
    append(lake, 1)
    born.append(lake.at(lake.urls[1]).open())
    stopped(lake.parts(), DECIDED - 2)
    assert rollback(lake.at(lake.urls[1]), 1, reason="r").committed
    *chain, back = judged(lake, 1).chain
    old = changed(chain[1], version=3, void=(3,))
    assert [state.version for state in chain] == [1, 2, 3] and back.snapshot.void == (3,)
    found = []
    for head in born:
        commit = msgspec.structs.replace(back.commit, job=lake.at(lake.urls[1]).new_job(head))
        step = Step(chain=chain, old=old, new=changed(back, commits=(commit,)), declared=[], earlier={})
        found.append(any("which it has not seen" in each for each in broken(step)))
    assert found == [True, False]


def changed(state: State, **what: object) -> State:
    return msgspec.structs.replace(state, snapshot=msgspec.structs.replace(state.snapshot, **what))
