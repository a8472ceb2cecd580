"""What chaos finds wrong with tables that were read together, and with members at the end: each kind of damage, planted."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from tests.chaos.bank import BANKS, ROWS, Moves, compare_banks, draw_transfer, jobs_in, rows_of
from tests.chaos.check import Link
from tests.chaos.check_bank import check_members

A, B, _ = BANKS


def banks() -> tuple[dict[str, pa.Table], dict[str, Moves]]:
    """All banks after some transfers, which were acknowledged."""
    dice, tables = random.Random(3), dict.fromkeys(BANKS, ROWS.empty_table())
    told = {}
    for number in range(30):
        transfer = draw_transfer(f"teller 0.0/{number}", dice, keyed=True, banks=1 + number % 3)
        told[transfer.name] = transfer.moves
        for bank in transfer.banks:
            tables[bank] = pa.concat_tables([tables[bank], rows_of(transfer, bank, f"v1-{number}")])
    return tables, told


def test_banks_that_are_as_they_should_be_have_no_findings() -> None:
    tables, told = banks()
    assert compare_banks(tables, told) == [] == compare_banks({A: tables[A], B: tables[B]}, told)
    assert sum(sum(table.column("amount").to_pylist()) for table in tables.values()) == 0 < tables[A].num_rows
    assert sum(count for _, count in jobs_in(tables[A])) == tables[A].num_rows


@pytest.mark.parametrize("damage", ["half", "twice", "changed", "lost", "elsewhere"])
def test_each_damage_is_found(damage: str) -> None:
    """[MT1] [MT12]"""
    tables, told = banks()
    name = next(name for name, moves in told.items() if {A, B} == moves.keys())
    own = [each == name for each in tables[A].column("transfer").to_pylist()]
    without, rows = tables[A].filter(pa.array([not each for each in own])), tables[A].filter(pa.array(own))
    if damage == "changed":
        rows = rows.set_column(2, "amount", pa.array([0], pa.int64()))
    changed = {"half": [without], "twice": [without, rows, rows], "changed": [without, rows], "lost": [without], "elsewhere": [tables[A]]}
    tables[A] = pa.concat_tables(changed[damage])
    if damage == "lost":
        tables[B] = tables[B].filter(pa.array([each != name for each in tables[B].column("transfer").to_pylist()]))
    if damage == "elsewhere":
        third = BANKS[2]
        tables[third] = pa.concat_tables([tables[third], rows])
    found = compare_banks(tables, told)
    assert any(name in each for each in found), found
    if damage in ("half", "twice", "changed", "elsewhere"):
        assert any("the total is" in each for each in found) and compare_banks(tables), found


def link(version: int, table: str, **more: Any) -> Link:
    return Link(version=version, digest="", snapshot={"version": version, "table_id": table, "commits": [], **more})


def test_members_are_void_if_and_only_if_no_home_has_decided_them() -> None:
    """[MT4] [MT5] [MT6]"""
    member, home = {"pending": {"table_id": "h"}}, [link(1, "h"), link(2, "h", joint={"m": {"version": 2}})]
    good = [link(1, "m"), link(2, "m", **member), link(3, "m", **member), link(4, "m", void=[3])]
    assert check_members(good, {"m": good, "h": home}) == []
    for void, said in (([], "version 3 is not void"), ([2, 3], "version 2 was committed")):
        wrong = [*good[:-1], link(4, "m", void=void)]
        assert [said in each for each in check_members(wrong, {"m": wrong, "h": home})] == [True]
    undecided = good[:3]
    assert "version 3" in check_members(undecided, {"m": undecided, "h": home})[0], "the last word of a table is an undecided member"
