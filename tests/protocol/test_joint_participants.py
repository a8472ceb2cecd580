"""Which table of a joint commit decides."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.format.snapshot import MOST_TABLES
from manifestcommit.protocol.joint_outcome import Participant, in_order

IDS = st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}")
TABLES = st.lists(st.tuples(st.integers(-2, 2), IDS), min_size=2, max_size=MOST_TABLES, unique_by=lambda each: each[1])


@given(TABLES, st.randoms())
def test_the_home_follows_from_the_tables_and_not_from_their_order(tables: list[Participant], random) -> None:
    mixed = list(tables)
    random.shuffle(mixed)
    assert in_order(mixed) == in_order(tables) == sorted(tables)


@given(st.lists(TABLES, min_size=2, max_size=5))
def test_homes_that_wait_for_each_other_are_no_circle(groups: list[list[Participant]]) -> None:
    """Every member waits for a home before it in one order of all tables, so that the lowest home waits for nobody."""
    waits = {(member, home) for home, *members in map(in_order, groups) for member in members}
    assert all(home < member for member, home in waits)
    assert all((home, member) not in waits for member, home in waits)


@pytest.mark.parametrize("count", [0, 1, MOST_TABLES + 1])
def test_a_joint_commit_has_2_to_32_tables(count: int) -> None:
    with pytest.raises(ValueError, match=f"has 2 to 32 tables, not {count}"):
        in_order((0, f"{number:016x}") for number in range(count))


def test_no_table_takes_part_twice() -> None:
    for ranks in itertools.product((0, 1), repeat=2):
        with pytest.raises(ValueError, match="takes part twice"):
            in_order((rank, "0" * 16) for rank in ranks)
