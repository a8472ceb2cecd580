"""Rollbacks and rewinds that would undo a joint commit in one of its tables only, and rollbacks of all of them."""

from typing import Any

import pytest
from tests.commits.tables import Lake, append, sound
from tests.kit.undo import rewind, rollback

from manifestcommit.commits.commit_loop import commit
from manifestcommit.commits.joint_commit import commit_jointly
from manifestcommit.errors import UsageError
from manifestcommit.operations.rollback import plan_joint_rollback, undo_together
from manifestcommit.runtime.outcome import Outcome

RULE = "undoes_a_joint_commit"


def rule_of(outcome: Outcome) -> str:
    return outcome.conflict.rule if outcome.conflict is not None else outcome.kind


def back(lake: Lake, targets: dict[int, Any]) -> tuple[Outcome, ...]:
    return undo_together(plan_joint_rollback([lake.at(lake.urls[each]) for each in targets], list(targets.values()), reason="wrong é"))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_joint_commit_is_not_undone_in_one_table(which: int) -> None:
    """Neither in the home nor in a member, by a rollback or by a rewind, unless that is asked for. [MT14]"""
    lake = Lake(3)
    url = lake.urls[which]
    append(lake, which)
    commit_jointly(lake.parts(key="day"))
    append(lake, which)
    refused = rollback(lake.at(url), 2, reason="r"), rewind(lake.at(url), "s", None, reason="r")
    assert [rule_of(each) for each in refused] == [RULE] * 2 and lake.moved() == [1, 1, 1]
    roots = {lake.at(each).store.url for each in ([lake.urls[0]] if which else lake.urls[1:])}
    assert refused[0].conflict is not None and all(root in refused[0].conflict.winner for root in roots)
    assert refused[1].conflict is not None and "'day'" in refused[1].conflict.winner
    before = lake.head(which).snapshot
    assert rollback(lake.at(url), 3, reason="it keeps the joint commit").committed
    assert rewind(lake.at(url), "s", 0, reason="r", keep_keys=True).committed
    assert rollback(lake.at(url), 2, reason="r", alone=True).committed
    after = lake.head(which).snapshot
    for name in ("joint", "homes", "void", "rank"):
        assert getattr(after, name) == getattr(before, name)
    sound(lake)


def test_a_rewind_drops_the_keys_of_joint_commits_only_where_that_is_asked_for(lake: Lake) -> None:
    """What was committed in this table only is rewound as ever. [MT14] [WM5]"""
    url = lake.urls[1]
    commit_jointly(lake.parts(key="day"))
    (part,) = lake.parts([1], key="alone")
    assert commit(part.ctx, part.head, part.change).committed
    assert rewind(lake.at(url), "s", 1, reason="r").dropped_keys == ("alone",)
    assert rule_of(rewind(lake.at(url), "s", 0, reason="r")) == RULE
    assert rewind(lake.at(url), "s", 0, reason="r", alone=True).dropped_keys == ("day",)


def test_a_table_of_the_joint_commit_that_is_not_rolled_back_is_missed() -> None:
    """In the home, which knows all of them. [MT14]"""
    lake = Lake(3)
    commit_jointly(lake.parts())
    outcomes = back(lake, {0: 1, 1: 1})
    assert [rule_of(outcome) for outcome in outcomes] == [RULE, "aborted"]
    assert outcomes[0].conflict is not None and lake.at(lake.urls[2]).store.url in outcomes[0].conflict.winner
    assert RULE in [rule_of(outcome) for outcome in back(lake, {1: 1, 2: 1})], "their home stays"
    assert lake.moved() == [1, 1, 1]
    sound(lake)


def test_targets_belong_together(lake: Lake) -> None:
    """[MT14] [MT12]"""
    commit_jointly(lake.parts())
    commit_jointly(lake.parts())
    for targets in ({0: 2, 1: 1}, {0: 1, 1: 2}):
        with pytest.raises(UsageError, match="Choose versions that have it in all tables"):
            back(lake, targets)
    assert lake.moved() == [2, 2]
    assert [outcome.kind for outcome in back(lake, {0: 2, 1: 2})] == ["committed"] * 2
    assert lake.moved() == [1, 1]
