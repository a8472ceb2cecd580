"""Which files and manifests are rewritten together. [GC16] [GC11] [OB8]"""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.sizes import rounds

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.format.entries import MAX_SOURCES, ManifestRef, SourceRange, from_rows
from manifestcommit.protocol import compaction_plan
from manifestcommit.protocol.apply import Budgets
from manifestcommit.protocol.compaction_plan import Group, SmallFile, batches, is_small, plan_files, plan_manifests, unite_ranges
from manifestcommit.rows.row_change import union_of
from manifestcommit.runtime.validation import size as size_of

TARGET = 100
DAYS = [None, "", "a b%"]
BOUNDS = st.one_of(st.none(), st.integers(0, 20))


def source_range(start: Any, end: Any, source: str = "s") -> SourceRange:
    return SourceRange(source=source, start=start, end=end)


RANGES = st.lists(st.builds(lambda s, a, n: source_range(a, (a or 0) + n, s), st.sampled_from("st"), BOUNDS, st.integers(1, 9)), max_size=3)
FILES = st.lists(st.tuples(st.sampled_from(DAYS), st.integers(0, 130), st.integers(0, 9), RANGES), max_size=40)


def small_files(given_files: list[Any]) -> list[SmallFile]:
    return [
        SmallFile(path=f"{number}", partition=(day,), rows=rows, bytes=size, sources=tuple(ranges))
        for number, (day, size, rows, ranges) in enumerate(sorted(given_files, key=lambda file: DAYS.index(file[0])))
    ]


def planned(files: list[SmallFile], target: int = TARGET) -> tuple[Group, ...]:
    return tuple(plan_files(files, target=target, max_bytes=10**9))


@settings(max_examples=rounds(50, 500))
@given(given_files=FILES, max_bytes=st.integers(1, 2000))
def test_no_file_is_lost_doubled_or_mixed_and_the_work_is_bounded(given_files: list[Any], max_bytes: int) -> None:
    """[GC16] Every file is in one group at most; groups stay within a partition, the target and the bound."""
    files = small_files(given_files)
    everything = list(plan_files(files, target=TARGET, max_bytes=max_bytes))
    assert all(count == 1 for count in Counter(path for group in everything for path in group.paths).values())
    for group in everything:
        members = [files[int(path)] for path in group.paths]
        assert len(members) > 1 and all(is_small(each.bytes, TARGET) for each in members)
        assert {each.partition for each in members} == {group.partition}
        assert (group.rows, group.bytes) == (sum(each.rows for each in members), sum(each.bytes for each in members))
        assert group.bytes <= TARGET
        assert len({bool(each.sources) for each in members}) == 1
        assert covered(group.sources) == covered([r for each in members for r in each.sources])
    total = 0
    for group in everything:
        assert group.left == (total + group.bytes > max_bytes), "whatever still fits is done"
        total += 0 if group.left else group.bytes
    assert total <= max_bytes


def covered(ranges: Any) -> set[tuple[str, int]]:
    """Every position that they hold; an unknown start is far below."""
    return {(each.source, at) for each in ranges for at in range(-5 if each.start is None else each.start, each.end)}


@settings(max_examples=rounds(30, 300))
@given(sizes=st.lists(st.integers(0, 130), min_size=1, max_size=60))
def test_runs_come_to_an_end(sizes: list[int]) -> None:
    """[GC16] Each run leaves fewer files than it found, also where what it wrote is larger than what it read."""
    for _ in range(len(sizes)):
        groups = planned([SmallFile(path=f"{at}", rows=1, bytes=size) for at, size in enumerate(sizes)])
        if not groups:
            break
        gone = {int(path) for group in groups for path in group.paths}
        before = len(sizes)
        sizes = [size for at, size in enumerate(sizes) if at not in gone] + [group.bytes + 3 for group in groups]
        assert len(sizes) < before
    smalls = [size for size in sizes if is_small(size, TARGET)]
    assert all(one + other > TARGET for one, other in itertools.pairwise(smalls))


def test_files_that_are_large_enough_are_left() -> None:
    """[GC16] Three quarters of the target is large enough."""
    assert [is_small(size, TARGET) for size in (0, 74, 75, 76, 1000)] == [True, True, False, False, False]


def test_neighbours_stay_neighbours_so_that_their_ranges_join() -> None:
    """[OB8] [GC16]"""
    files = [SmallFile(path=f"{n}", rows=1, bytes=10, sources=(source_range(n * 5, n * 5 + 5),)) for n in range(25)]
    groups = planned(files)
    assert [[(r.start, r.end) for r in group.sources] for group in groups] == [[(0, 50)], [(50, 100)], [(100, 125)]]


def test_ranges_are_joined_only_where_that_is_true() -> None:
    """[OB8] No position that none of them holds; texts, which have no order, stay as they are; what a later release added does not."""
    later = msgspec.structs.replace(source_range(6, 7), extra={"new": 1})
    ranges = [source_range(None, 3), source_range(3, 7), source_range(8, 9), source_range("a", "b"), source_range("b", "c")]
    ranges += [source_range("a", "b"), source_range(None, "z"), source_range(0, 5, "t"), later]
    assert list(unite_ranges(ranges)) == [
        source_range(None, 7), source_range(8, 9), source_range(0, 5, "t"), source_range("a", "b"), source_range("b", "c"),
        source_range(None, "z"),
    ]  # fmt: skip


def test_a_file_names_no_more_ranges_than_an_entry_should_carry(monkeypatch) -> None:
    """[GC16] [IV10] Ranges far apart do not pile up in one entry; one file that names more than that is no obstacle."""
    monkeypatch.setattr(compaction_plan, "MAX_SOURCES", 4)
    far = [SmallFile(path=f"{n}", rows=1, bytes=1, sources=(source_range(n * 10, n * 10 + 1),)) for n in range(10)]
    assert [len(group.sources) for group in planned(far)] == [4, 4, 2]
    many = tuple(source_range(n * 10, n * 10 + 1) for n in range(9))
    alike = [SmallFile(path=f"{n}", rows=1, bytes=1, sources=many) for n in range(3)]
    assert [group.sources for group in planned(alike)] == [many]


def test_what_compaction_says_of_sources_is_not_lost_by_the_next_delete() -> None:
    """[GC16] [RC5] Else lineage could not tell any more where the rows of a compacted file came from."""
    far = [SmallFile(path=f"{n}", rows=1, bytes=1, sources=(source_range(n * 10, n * 10 + 1),)) for n in range(600)]
    groups = planned(far, 10**6)
    assert [len(group.sources) for group in groups] == [MAX_SOURCES, MAX_SOURCES, 600 - 2 * MAX_SOURCES]
    assert all(union_of([group.sources]) == group.sources for group in groups)


def test_commits_are_of_bounded_size() -> None:
    """[GC11] A crash loses one batch at most; none is empty, and their order is the plan's."""
    groups = planned([SmallFile(path=f"{n}", partition=(n // 2,), rows=1, bytes=(n // 2) * 5) for n in range(14)])
    made = list(batches(groups, Budgets(batch_groups=3, batch_bytes=100)))
    assert [[group.bytes for group in batch] for batch in made] == [[0, 10, 20], [30, 40], [50], [60]]
    assert tuple(group for batch in made for group in batch) == groups


def ref(number: int, files: int, path: str = "") -> ManifestRef:
    return ManifestRef(path=f"m{number}", files=files, rows=files, data_bytes=0, bytes=1, digest="d", first_path=path or f"p{number:03d}",
                       last_path="z")  # fmt: skip


def test_small_manifests_are_merged_with_their_neighbours_and_thinned_ones_are_written_anew() -> None:
    """[GC16] A quarter gone is reason enough; whole ones of a good size are left."""
    small = Budgets(manifest_entries=100)
    refs = [ref(0, 10, "c"), ref(1, 10, "a"), ref(2, 80, "b"), ref(3, 99, "d"), ref(4, 30, "e"), ref(5, 70, "f"), ref(6, 400, "g")]
    groups = plan_manifests(refs, {"m3": from_rows(list(range(25))), "m6": from_rows(list(range(99)))}, small)
    assert [[each.path for each in group] for group in groups] == [["m1", "m0", "m3"], ["m4", "m5"]]
    groups = plan_manifests(refs[6:], {"m6": from_rows(list(range(100)))}, small)
    assert [[each.path for each in group] for group in groups] == [["m6"]]
    assert plan_manifests([ref(0, 10)], {}, small) == ()


# --- the command and its plan: no Spark is needed to look -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "size"),
    [("128MB", 128_000_000), ("1GiB", 1 << 30), (" 1.5 kib ", 1536), ("7", 7), ("2t", 2 * 10**12), ("64 B", 64), ("3Kb", 3000)],
)
def test_sizes_mean_what_they_say(text: str, size: int) -> None:
    """[GC16]"""
    assert size_of("target_file_size", text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1e3", "0", "1iB", "0.1", "1 MB x", "\u0661MB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """[GC16]"""
    with pytest.raises(mc.errors.UsageError, match=r"invalid max_bytes .*128MB"):
        size_of("max_bytes", text)


def test_a_dry_run_names_every_file_with_its_reason_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[GC16]"""
    root = tmp_path / "a b%+é"
    for number in range(3):
        for day in ("x \x1b[31m", None):
            mc.write(pa.table({"day": pa.array([day], pa.string()), "id": [number]}), root, partition_by="day")
    table = mc.Table(root)
    before = sorted(path for path in root.rglob("*"))
    assert main(["compact", str(root), "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [(each["action"], each["files"], each["rows"], each["partition"]) for each in plan] == [
        ("rewrite", 3, 3, "day=x \x1b[31m"), ("rewrite", 3, 3, "day=null"),
    ]  # fmt: skip
    assert sorted(path for each in plan for path in each["paths"]) == sorted(table.files().column("path").to_pylist())
    assert all("3 files" in each["reason"] for each in plan)
    assert main(["compact", str(root), "--dry-run", "--max-bytes", str(max(each["bytes"] for each in plan))]) == 0
    shown = capsys.readouterr()
    assert "left" in shown.out and "beyond max_bytes of this run" in shown.out and "\x1b" not in shown.out
    assert "3 files" in shown.err
    assert main(["compact", str(root), "--only-manifests", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] is None
    assert main(["compact", str(root), "--only-manifests"]) == 0
    assert "no small files or manifests that could become fewer were found" in capsys.readouterr().err
    assert sorted(path for path in root.rglob("*")) == before


def test_frequent_runs_rewrite_a_row_as_often_as_its_file_can_double() -> None:
    """Not once for each file that comes, and the small files stay few. [GC16] [UK2]"""
    files, rewritten, most = [], 0, 0
    for number in range(400):
        files.append(SmallFile(path=f"{number:04}", rows=1, bytes=100))
        for group in plan_files(files, target=1_000_000, max_bytes=10**9, min_files=8):
            rewritten += group.bytes
            files = [file for file in files if file.path not in group.paths]
            files.append(SmallFile(path=f"{number:04}-new", rows=group.rows, bytes=group.bytes))
        most = max(most, len(files))
    assert sum(file.bytes for file in files) == 400 * 100
    assert rewritten <= 400 * 100 * 8, "log2(400) is 8.6; a rewrite for each eighth file would be 25 times as many"
    assert most <= 16
