"""Consistent versions of several tables, compared with a plain history of joint commits."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.spec import golden

from manifestcommit.format import object_names
from manifestcommit.format.snapshot import HomeRecord, JointRecord, Snapshot
from manifestcommit.protocol.joint_outcome import Mismatch, find_mismatch, lowest_allowed

IDS = [f"{number:016x}" for number in range(3)]


def histories(commits: list[list[int]]) -> tuple[list[list[Snapshot]], list[tuple[int, ...]]]:
    """The versions of three tables, and after each commit the number of versions of each: a commit of several tables is decided by the
    first of them."""
    chains = [[msgspec.structs.replace(golden.minimal(), table_id=table_id)] for table_id in IDS]
    moments = [(1, 1, 1)]
    for number, tables in enumerate(commits):
        home, *members = sorted(set(tables))
        attempt = object_names.attempt_id(f"v1-{IDS[home]}-{number:032x}", 1)
        decided = {}
        for table in members:
            above = chains[table][-1]
            version = above.version + 1
            homes = {**above.homes, IDS[home]: HomeRecord(version=version, root="s3://h")}
            chains[table].append(msgspec.structs.replace(above, version=version, homes=homes))
            decided[IDS[table]] = JointRecord(version=version, attempt=attempt, root="s3://m")
        above = chains[home][-1]
        chains[home].append(msgspec.structs.replace(above, version=above.version + 1, joint={**above.joint, **decided}))
        moments.append(tuple(len(chain) for chain in chains))
    return chains, moments


def is_cut(commits: list[list[int]], lengths: tuple[int, ...]) -> bool:
    """Whether each commit is in all of its tables or in none."""
    at, kept = [1, 1, 1], []
    for tables in commits:
        inside = []
        for table in set(tables):
            at[table] += 1
            inside.append(at[table] <= lengths[table])
        kept.append(len(set(inside)) == 1)
    return all(kept)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=10), st.data())
def test_versions_fit_exactly_where_each_joint_commit_is_in_all_or_in_none(commits: list[list[int]], data: st.DataObject) -> None:
    chains, _ = histories(commits)
    lengths = tuple(data.draw(st.integers(1, len(chain))) for chain in chains)
    chosen = {table_id: chain[length - 1] for table_id, chain, length in zip(IDS, chains, lengths, strict=True)}
    if find_mismatch(chosen) is None:
        # a commit of two members under a home is in both or in neither, since the home is among them
        assert is_cut(commits, lengths)
    else:
        assert not is_cut(commits, lengths)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=10))
def test_every_moment_of_the_history_is_consistent(commits: list[list[int]]) -> None:
    chains, moments = histories(commits)
    for lengths in moments:
        chosen = {table_id: chain[length - 1] for table_id, chain, length in zip(IDS, chains, lengths, strict=True)}
        assert find_mismatch(chosen) is None
        for table_id, length in zip(IDS, lengths, strict=True):
            assert lowest_allowed(chosen, table_id) <= length


def test_a_misfit_says_where_to_go() -> None:
    chains, _ = histories([[0, 1], [0, 1, 2], [1]])
    home, member, other = chains
    late = {IDS[0]: home[2], IDS[1]: member[1], IDS[2]: other[1]}
    assert find_mismatch(late) == Mismatch(table_id=IDS[1], home=IDS[0], version=3, move="up") and lowest_allowed(late, IDS[1]) == 3
    early = {IDS[0]: home[1], IDS[1]: member[3], IDS[2]: other[0]}
    assert find_mismatch(early) == Mismatch(table_id=IDS[1], home=IDS[0], version=3, move="down") and lowest_allowed(early, IDS[1]) == 2
    assert find_mismatch({IDS[1]: member[3]}) is None and lowest_allowed({}, IDS[1]) == 0
