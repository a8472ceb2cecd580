"""When things move out of the head, and how much one commit may rewrite for it. [CM12]"""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from manifestcommit.core import spill
from manifestcommit.core.manifest import Entry, ManifestRef
from manifestcommit.core.snapshot import RunRef, Snapshot

EMPTY = Snapshot(format_version=1, table_id="0" * 16, version=1, committed_at=0, writer="w", commits=())


def ref(files: int, number: int = 0) -> ManifestRef:
    return ManifestRef(path=f"m{number}", files=files, rows=files, data_bytes=0, bytes=1, digest="d", first_path="a", last_path="z")


def run(rows: int, number: int = 0) -> RunRef:
    return RunRef(path=f"r{number}", rows=rows, bytes=1, digest="d", first="a", last="z")


@given(sizes=st.lists(st.integers(1, 200_000), max_size=60))
def test_what_one_commit_merges_is_bounded(sizes: list[int]) -> None:
    """[CM12] [IV10]"""
    refs = tuple(ref(size, number) for number, size in enumerate(sizes))
    for group, total in (
        (spill.manifests_to_merge(msgspec.structs.replace(EMPTY, manifests=refs)), spill.MAX_MERGED_FILES),
        (spill.runs_to_merge([run(size, number) for number, size in enumerate(sizes)]), spill.MAX_MERGED_ROWS),
    ):
        assert len(group) in (0, spill.FAN_IN)
        assert len({each.path for each in group}) == len(group)
        assert sum(each.files if isinstance(each, ManifestRef) else each.rows for each in group) <= total


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(1, 500), min_size=1, max_size=400))
def test_objects_do_not_pile_up(sizes: list[int]) -> None:
    """With a merge after every new one, their number grows with the logarithm of what they hold. [CM12]"""
    refs: tuple[ManifestRef, ...] = ()
    rewritten = 0
    for number, size in enumerate(sizes):
        refs = (*refs, ref(size, number))
        group = spill.manifests_to_merge(msgspec.structs.replace(EMPTY, manifests=refs))
        if group:
            whole = sum(each.files for each in group)
            rewritten += whole
            refs = (*(each for each in refs if each not in group), ref(whole, 10_000 + number))
        assert len(refs) <= 6 * spill.FAN_IN
    assert sum(each.files for each in refs) == sum(sizes)
    assert rewritten <= 7 * sum(sizes), "each entry is rewritten a few times at most"


def test_budgets_are_crossed_by_more_not_by_as_much() -> None:
    """[CM12]"""
    entry = Entry(path="x" * 1000, rows=1, bytes=1, job="j")
    size = len(msgspec.json.encode((entry,))) - 2
    fits = (spill.INLINE_ENTRY_BYTES - 2) // (size + 1)
    assert not spill.entries_overflow(()) and not spill.entries_overflow((entry,) * fits)
    assert spill.entries_overflow((entry,) * (fits + 1))
    for text, over in (("x" * spill.INLINE_REMOVED_BYTES, False), ("x" * (spill.INLINE_REMOVED_BYTES + 1), True)):
        assert spill.removed_overflow(msgspec.structs.replace(EMPTY, removed={"m": text})) == over
