"""Keys are forgotten by number and by age, and gc says how many and how old they are. [KY4] [OB18]"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.kit.clocks import DAY_S, Clock
from tests.kit.sizes import SetBudgets

import manifestcommit as mc
from manifestcommit.log.version_chain import open_head
from manifestcommit.protocol.apply import _dated
from manifestcommit.store import open_store

ROW = pa.table({"n": [1]})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Also that of the store, as gc asks for it."""
    clock = Clock(monkeypatch)
    from manifestcommit.operations import gc

    monkeypatch.setattr(gc, "store_time", lambda session, head, writing: session.env.now_us() / 1e6)
    monkeypatch.setattr(gc, "_times", lambda session, head: [(head.version, 0.0)])  # a store without a clock of its own
    return clock


def daily(table: mc.Table, clock: Clock, days: int) -> None:
    """A key a day, and a gc that keeps one version and all keys."""
    for _ in range(days):
        day = len(table.history(1)) and (table.snapshot().totals.rows)
        mc.write(ROW, table.url, key=f"day {day}")
        table.gc(grace="0s", keep_for="0s")
        clock.days(1)


@pytest.fixture
def table(tmp_path: Path) -> mc.Table:
    return mc.create_table(tmp_path / "t", ROW.schema)


@pytest.mark.parametrize("spilled", [False, True])
def test_keys_stay_while_they_are_young_however_many(table: mc.Table, clock: Clock, set_budgets: SetBudgets, spilled: bool) -> None:
    """Also where the versions that recorded them were expired long ago. [KY4] [OB18]"""
    if spilled:
        set_budgets(inline_keys=0)
    daily(table, clock, 12)
    report = table.gc(grace="0s", keep_for="0s", keep_keys=2, keep_keys_for="100d")
    assert (report.keys_forgotten, report.keys_age_s) == (0, None)
    report = table.gc(grace="0s", keep_for="0s", keep_keys=2, keep_keys_for="5d")
    assert report.keys_forgotten == 8 and report.keys_age_s is not None and 5 * DAY_S <= report.keys_age_s < 6 * DAY_S
    for day in range(12):
        again = mc.write(ROW, table.url, key=f"day {day}")
        assert again.already_committed == (day >= report.keys_forgotten), day
    assert table.verify(deep=True).is_sound


def test_a_number_that_is_not_exceeded_forgets_nothing(table: mc.Table, clock: Clock) -> None:
    """However old they are. [KY4]"""
    daily(table, clock, 4)
    clock.days(1000)
    assert table.gc(grace="0s", keep_for="0s", keep_keys=4, keep_keys_for="1d").keys_forgotten == 0


def test_the_dates_of_versions_are_few_and_reach_back_to_the_first_gc(table: mc.Table) -> None:
    """[OB18]"""
    head = open_head(open_store(table.url)).snapshot
    first = head.committed_at
    for day in range(5000):
        head = msgspec.structs.replace(head, version=head.version + 1, committed_at=first + day * DAY_S * 1_000_000)
        head = msgspec.structs.replace(head, dated=_dated(head))
        assert head.dated == _dated(head), "not twice a day"
    assert len(head.dated) <= 64 and list(head.dated) == sorted(head.dated)
    assert head.dated[0] == (2, first) and head.dated[-1] == (head.version, head.committed_at)
    for age in (1, 7, 30):
        cut = head.committed_at - age * DAY_S * 1_000_000
        newest = max(time for _, time in head.dated if time <= cut)
        assert cut - newest <= DAY_S * 1_000_000, "exact to a day where it is young"
