"""The simulator's own rules on histories that are known to be right, or wrong: no false alarm, and no silence."""

from __future__ import annotations

import msgspec
import pytest
from tests.commits.tables import DECIDED, Lake, append, stopped
from tests.simulator.oracle import Oracle
from tests.simulator.version_rules import RULES_OF_ANY_TABLE, Declared, State, Step, broken

from manifestcommit.commits.joint_commit import commit_jointly
from manifestcommit.format import object_names
from manifestcommit.format.watermark import Advance
from manifestcommit.operations.rollback import plan_joint_rollback, rollback
from manifestcommit.store import open_store
from manifestcommit.testing.choices import Choices
from manifestcommit.testing.scheduler import Scheduler


def judged(lake: Lake, which: int) -> Oracle:
    """The oracle that has seen the table's versions, void ones included, one after another."""
    store = open_store(lake.urls[which])
    oracle = Oracle(Scheduler(Choices(0, None)), store, RULES_OF_ANY_TABLE)
    for info in sorted(store.list("_manifest/"), key=lambda each: each.name):
        if object_names.parse_version(info.name) is None:
            oracle.appeared(info.name, store.get(info.name), "somebody")
    for version in range(1, lake.newest(which).version + 1):
        name = object_names.version_name(version)
        oracle.appeared(name, store.get(name), "somebody")
    return oracle


@pytest.mark.parametrize("calls", range(DECIDED))
def test_tables_that_go_back_behind_a_coordinator_that_died_are_no_violation(calls: int) -> None:
    """Above a void member the last state is older than the version below. [MT5] [MT8] [MT14] [CF13]"""
    lake = Lake(3)
    commit_jointly(lake.parts())
    stopped(lake.parts(), calls)
    sessions = [lake.at(url) for url in lake.urls]
    assert {each.kind for each in plan_joint_rollback(sessions, [1, 1, 1], reason="r").commit()} == {"committed"}
    for which in range(3):
        oracle = judged(lake, which)
        assert oracle.head.commit.restored == 1 and oracle.head.snapshot.watermarks.get("s", 0) == 0
    assert bool(lake.newest(1).void) == (calls > 0)


def test_a_rollback_of_several_tables_that_was_aborted_has_set_nothing_back() -> None:
    """A job that began before it may go on: nothing was undone. [WM6] [MT5] [MT8]"""
    lake = Lake(3)
    commit_jointly(lake.parts())
    (later,) = lake.parts([1], key="k")  # born before the attempt
    sessions = [lake.at(url) for url in lake.urls]
    stopped(plan_joint_rollback(sessions, [1, 1, 1], reason="r").parts, DECIDED - 1)
    member = judged(lake, 1).head
    assert member.snapshot.pending is not None and member.commit.restored == 1
    append(lake, 1)
    chain = judged(lake, 1).chain
    assert chain[-1].snapshot.void == (chain[-2].version,)
    assert chain[-2].is_void and chain[-2].snapshot.watermarks == chain[-3].snapshot.watermarks == {"s": 1}
    told = Declared(job=later.change.job, advances=(Advance(source="s", start=1, end=2),))
    assert said(chain, told) == []
    # The same versions, had the attempt been committed.
    counted = [*chain[:-2], member, changed(chain[-1], void=())]
    assert any("[WM6]" in each for each in said(counted, told))


def test_what_a_rollback_undoes_is_told_by_the_last_state_and_not_by_a_void_version() -> None:
    """A rollback above a void member that had moved a source has not set that source back. [WM6] [MT8]"""
    lake = Lake(3)
    append(lake, 1)
    (early,) = lake.parts([1])
    stopped(lake.parts(), DECIDED - 1)
    member = judged(lake, 1).head
    assert member.snapshot.pending is not None and member.snapshot.watermarks == {"s": 1}
    assert rollback(lake.at(lake.urls[1]), 1, reason="r").committed
    chain = judged(lake, 1).chain
    told = Declared(job=early.change.job, advances=(Advance(source="s", start=None, end=1),))
    assert said(chain, told) == []
    assert any("[WM6]" in each for each in said([*chain[:-2], member, changed(chain[-1], void=())], told))


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
        found.append(any("which it has not seen" in each for each in broken(step, RULES_OF_ANY_TABLE)))
    assert found == [True, False]


def changed(state: State, **what: object) -> State:
    return msgspec.structs.replace(state, snapshot=msgspec.structs.replace(state.snapshot, **what))


def said(chain: list[State], told: Declared) -> list[str]:
    """What is said of a job that commits right above these versions, as to what was set back."""
    last = chain[-1]
    made = msgspec.structs.replace(last.snapshot.commits[0], job=told.job, operation="append", key=None, restored=None)
    new = changed(last, version=last.version + 1, commits=(made,))
    step = Step(chain=chain, old=last, new=new, declared=[told], earlier={})
    return [each for each in broken(step, RULES_OF_ANY_TABLE) if "since" in each or "set it back" in each]
