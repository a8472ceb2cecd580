"""When things move out of the head, and how much one commit may rewrite for it. [CM12]"""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifestcommit.format.entries import Entry, ManifestRef
from manifestcommit.format.snapshot import RunRef, Snapshot
from manifestcommit.protocol.apply import Budgets, entries_overflow, inlined_overflow, manifests_to_merge, removed_overflow, runs_to_merge

USUAL = Budgets()
EMPTY = Snapshot(format_version=1, table_id="0" * 16, version=1, committed_at=0, writer="w", commits=())


def ref(files: int, number: int = 0) -> ManifestRef:
    return ManifestRef(path=f"m{number}", files=files, rows=files, data_bytes=0, bytes=1, digest="d", first_path="a", last_path="z")


def run(rows: int, number: int = 0) -> RunRef:
    return RunRef(path=f"r{number}", rows=rows, bytes=1, digest="d", first="a", last="z")


@given(sizes=st.lists(st.integers(1, 200_000), max_size=60))
def test_what_one_commit_merges_is_bounded(sizes: list[int]) -> None:
    """[CM12] [IV10]"""
    refs = tuple(ref(size, number) for number, size in enumerate(sizes))
    groups = manifests_to_merge(msgspec.structs.replace(EMPTY, manifests=refs), USUAL)
    assert len(groups) <= 1, "one at a time, unless very many have piled up"
    assert all(len(group) == USUAL.fan_in and len({each.path for each in group}) == len(group) for group in groups)
    assert sum(each.files for group in groups for each in group) <= USUAL.max_merged_files
    runs = runs_to_merge([run(size, number) for number, size in enumerate(sizes)], USUAL)
    assert len(runs) in (0, USUAL.fan_in) and len({each.path for each in runs}) == len(runs)
    assert sum(each.rows for each in runs) <= USUAL.max_merged_rows


@pytest.mark.parametrize(
    ("count", "size", "groups"), [(255, 10, 1), (256, 10, 2), (800, 10, 4), (5000, 10, 8), (5000, 8192, 1), (800, 2500, 3)]
)
def test_the_more_manifests_pile_up_the_more_are_merged_and_never_more_than_the_bound(count: int, size: int, groups: int) -> None:
    """Jobs of a thousand tasks each add a thousand at once: merging eight of them would let heads grow for ever. [CM12]"""
    found = manifests_to_merge(msgspec.structs.replace(EMPTY, manifests=tuple(ref(size, number) for number in range(count))), USUAL)
    assert len(found) == groups
    assert len({each.path for group in found for each in group}) == groups * USUAL.fan_in, "none is merged twice"
    assert sum(each.files for group in found for each in group) <= USUAL.max_merged_files


def test_objects_too_large_to_be_merged_at_once_are_left_to_compaction() -> None:
    """A commit that finds a table full of them would pay for all that came before it. [CM12] [IV10]"""
    most = USUAL.max_merged_files // USUAL.fan_in
    for size, count in ((most, USUAL.fan_in), (most + 1, 0), (USUAL.max_merged_files, 0), (10_000_000, 0)):
        refs = tuple(ref(size, number) for number in range(20))
        assert sum(len(group) for group in manifests_to_merge(msgspec.structs.replace(EMPTY, manifests=refs), USUAL)) == count
        assert len(runs_to_merge([run(size, number) for number in range(20)], USUAL)) == count


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(1, 500), min_size=1, max_size=400))
def test_objects_do_not_pile_up(sizes: list[int]) -> None:
    """With a merge after every new one, their number grows with the logarithm of what they hold. [CM12]"""
    refs: tuple[ManifestRef, ...] = ()
    rewritten = 0
    for number, size in enumerate(sizes):
        refs = (*refs, ref(size, number))
        for group in manifests_to_merge(msgspec.structs.replace(EMPTY, manifests=refs), USUAL):
            whole = sum(each.files for each in group)
            rewritten += whole
            refs = (*(each for each in refs if each not in group), ref(whole, 10_000 + number))
        assert len(refs) <= 6 * USUAL.fan_in
    assert sum(each.files for each in refs) == sum(sizes)
    assert rewritten <= 7 * sum(sizes), "each entry is rewritten a few times at most"


def test_budgets_are_crossed_by_more_not_by_as_much() -> None:
    """[CM12]"""
    entry = Entry(path="x" * 1000, rows=1, bytes=1, added=9, job="j")
    size = len(msgspec.json.encode((entry,))) - 2
    fits = (USUAL.inline_entry_bytes - 2) // (size + 1)
    assert not entries_overflow((), USUAL) and not entries_overflow((entry,) * fits, USUAL)
    assert entries_overflow((entry,) * (fits + 1), USUAL)
    # Of earlier commits a quarter stays: each commit reads and writes it again.
    for kept, own, over in (
        (fits // 4, 0, False),
        (fits // 4 + 1, 0, True),
        (0, fits, False),
        (fits // 4, fits - fits // 4, False),
        (0, fits + 1, True),
    ):
        stamped = (*(msgspec.structs.replace(entry, added=1),) * kept, *(msgspec.structs.replace(entry, added=2),) * own)
        assert inlined_overflow(msgspec.structs.replace(EMPTY, version=2, added=stamped), USUAL) == over, (kept, own)
    for text, over in (("x" * USUAL.inline_removed_bytes, False), ("x" * (USUAL.inline_removed_bytes + 1), True)):
        assert removed_overflow(msgspec.structs.replace(EMPTY, removed={"m": text}), USUAL) == over
