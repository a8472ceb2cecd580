"""Patterns of partitions against brute force over a small world of partitions. [CF3] [CF6]"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.format import partitioning as partition_pattern
from manifestcommit.format.partitioning import Matcher, PartitionPattern, bounded, first_overlap, of_partition

VALUES = [None, "", "a", "b"]
WORLD = [dict(zip((1, 2, 3), each, strict=True)) for each in itertools.product(VALUES, repeat=3)]
patterns = st.lists(st.dictionaries(st.sampled_from([1, 2, 3]), st.sampled_from(VALUES), max_size=3), max_size=5)


def meant(found: list[PartitionPattern] | tuple[PartitionPattern, ...]) -> list[PartitionPattern]:
    return [each for each in WORLD if any(all(each[k] == v for k, v in pattern.items()) for pattern in found)]


@given(mine=patterns)
def test_a_partition_is_held_if_a_pattern_means_it(mine: list[PartitionPattern]) -> None:
    """Null is no empty string. [CF3] [PT3]"""
    matcher = Matcher(mine)
    assert [each for each in WORLD if matcher.holds(each)] == meant(mine)
    assert matcher.everything == ({} in mine)


@given(mine=patterns, theirs=patterns)
def test_two_changes_meet_if_they_share_a_partition(mine: list[PartitionPattern], theirs: list[PartitionPattern]) -> None:
    """[CF3] [CF6]"""
    shared = first_overlap(mine, theirs)
    both = [each for each in meant(mine) if each in meant(theirs)]
    assert (shared is not None) == bool(both)
    if shared is not None:
        assert shared in theirs
    assert (first_overlap(theirs, mine) is not None) == bool(both)


@given(found=patterns)
def test_compacting_means_the_same_partitions(found: list[PartitionPattern]) -> None:
    """[OB10]"""
    assert meant(bounded(found)) == meant(found)
    assert len(bounded(found)) == len({tuple(sorted(each.items())) for each in bounded(found)})


def test_too_many_patterns_are_recorded_as_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conflict too many is safe, one too few is not. [OB10]"""
    monkeypatch.setattr(partition_pattern, "MAX_TOUCHED", 3)
    assert bounded([{1: value} for value in "abc"]) == ({1: "a"}, {1: "b"}, {1: "c"})
    assert bounded([{1: value} for value in "abcd"]) == ({},)


def test_the_pattern_of_a_partition_has_a_value_for_each_field() -> None:
    assert of_partition((7, 3), ("x", None)) == {7: "x", 3: None}
    assert of_partition((), ()) == {}
    with pytest.raises(ValueError):
        of_partition((7,), ())
