"""That the replay of row changes sees each kind of damage, and that it says what the library does, change by change."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest
from tests.chaos.changes import SCHEMA, TABLE, Change, Replay, carry_out, draw_change
from tests.chaos.check import Link
from tests.chaos.check_changes import check_heard

import manifestcommit as mc


def notes(*changes: Change) -> list[dict[str, object]]:
    return [{"what": "changing", "change": msgspec.to_builtins(change)} for change in changes]


def test_the_replay_is_what_the_library_does() -> None:
    """One after the other, of every kind. [RC2] [RC3] [RC7] [RC9] [RC10]"""
    url, dice, replay = f"memory://{TABLE}/replay", random.Random(1), Replay()
    table = mc.create_table(url, SCHEMA, partition_by="shelf")
    replay.follow([None])
    kinds = set()
    for number in range(25):
        there = table.to_arrow(columns=["id", "shelf"])
        change = draw_change(f"c {number}", dice, dict(zip(there["id"].to_pylist(), there["shelf"].to_pylist(), strict=True)))
        replay.learn(notes(change))
        version, _ = carry_out(url, {}, change)
        assert carry_out(url, {}, change) == (version, True)
        replay.follow([change.key])
        assert replay.version == version and replay.compare(version, table.to_arrow()) == []
        kinds.add(change.kind)
    assert kinds == {"add", "update", "delete", "merge", "overwrite"} and table.snapshot().totals.rows > 20


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda rows: rows.slice(1), "1 rows lost"),
        (lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), "1 rows there twice"),
        (lambda rows: rows.set_column(3, "n", pa.array([each + 1 for each in rows["n"].to_pylist()])), "3 rows changed too often"),
        (
            lambda rows: rows.set_column(0, "id", pa.array([each + 9 for each in rows["id"].to_pylist()])),
            "3 rows there, which should not be",
        ),
    ],
    ids=["lost", "twice", "updated again", "not known"],
)
def test_damage_is_found(damage: Callable[[pa.Table], pa.Table], said: str) -> None:
    change, replay = Change(name="c", kind="add", shelf="%", ids=(1, 2, 3)), Replay()
    replay.learn(notes(change))
    replay.follow(["c"])
    rows = pa.table([[1, 2, 3], ["%"] * 3, [1, 2, 0], [1] * 3, ["c"] * 3], schema=SCHEMA)
    assert replay.compare(1, rows) == []
    assert any(said in each for each in replay.compare(1, damage(rows)))


def test_a_version_that_was_told_and_is_another_is_found() -> None:
    links = [Link(version=1, digest="", snapshot={"commits": [{"key": "c"}]})]
    asked = notes(Change(name="c", kind="add", shelf=""))
    assert check_heard(links, [*asked, {"what": "changed", "key": "c", "version": 1}]) == []
    assert check_heard(links, [*asked, {"what": "changed", "key": "c", "version": 2}])
    assert check_heard(links, [*asked, {"what": "changed", "key": "d", "version": 1}])
    assert check_heard(links, [])
