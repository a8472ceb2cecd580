"""The simulator's own rules on histories that are known to be right, or wrong: no false alarm, and no silence."""

import msgspec
import pytest
from tests.commits.tables import DECIDED, Lake, append, stopped
from tests.kit.undo import rollback
from tests.simulator.oracle import Oracle
from tests.simulator.version_rules import State, Step, broken

from manifestcommit.commits.joint_commit import commit_jointly
from manifestcommit.format import object_names
from manifestcommit.operations.rollback import plan_joint_rollback, undo_together
from manifestcommit.store import open_store
from manifestcommit.testing.scheduler import Choices, Scheduler


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
