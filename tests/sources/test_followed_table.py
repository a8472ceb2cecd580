"""Another table is followed through whatever its versions do. [LD5]"""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.errors import SchemaMismatchError, SourceError


def applied(changes: list[dict[str, object]]) -> list[object]:
    """The rows that the changes leave."""
    bag: Counter[object] = Counter()
    for change in changes:
        bag[change["id"]] += 1 if change["_change_type"] in ("insert", "update_postimage") else -1
    assert all(count >= 0 for count in bag.values())
    return sorted(bag.elements(), key=str)


def test_a_follower_has_what_the_table_has_after_every_kind_of_change(tmp_path: Path) -> None:
    followed, copy = tmp_path / "orders", tmp_path / "changes"
    table, source = mc.Table(followed), mc.sources.table(followed)
    with pytest.raises(SourceError, match=r"orders: there is no table.*Look at its path"):
        mc.load(source, copy)
    mc.write(pa.table({"id": [1, 2, 3]}), followed)
    mc.load(source, copy)
    mc.write(pa.table({"id": [4]}), followed)
    table.delete("id = 2")
    table.update({"id": "id + 10"}, "id = 3")
    mc.load(source, copy)
    table.compact()
    before = table.version
    table.rename_column("id", "id2")
    table.rename_column("id2", "id")
    mc.write(pa.table({"id": [7]}), followed, mode="overwrite")
    mc.load(source, copy)
    table.rollback(before, reason="wrong overwrite")
    outcome = mc.load(source, copy)
    assert [*outcome.positions.values()] == [table.version]
    rows = sorted(table.to_arrow().column("id").to_pylist(), key=str)
    assert applied(mc.Table(copy).to_arrow().to_pylist()) == rows == [1, 13, 4]
    assert mc.load(source, copy).chunks == 0


def test_a_follower_behind_what_expired_is_told_how_to_begin_again(tmp_path: Path) -> None:
    followed, copy = tmp_path / "orders", tmp_path / "changes"
    source = mc.sources.table(followed)
    mc.write(pa.table({"id": [1]}), followed)
    mc.load(source, copy)
    for number in (2, 3):
        mc.write(pa.table({"id": [number]}), followed)
    mc.gc(followed, grace="0s", keep_for="0s", keep_versions=1)
    with pytest.raises(SourceError, match=r"can no longer be read.*restart=True"):
        mc.load(source, copy)
    assert mc.Table(copy).to_arrow().num_rows == 1
    outcome = mc.load(source, copy, restart=True)
    assert outcome.chunks == 1 and applied(mc.Table(copy).to_arrow().to_pylist()) == [1, 2, 3]
    mc.write(pa.table({"id": [4]}), followed)
    mc.load(source, copy)
    assert applied(mc.Table(copy).to_arrow().to_pylist()) == [1, 2, 3, 4]


@pytest.mark.parametrize("versions", [1, 2, 5])
def test_a_table_that_was_made_again_is_refused(tmp_path: Path, versions: int) -> None:
    followed, copy = tmp_path / "orders", tmp_path / "changes"
    mc.write(pa.table({"id": [1]}), followed)
    mc.load(mc.sources.table(followed), copy)
    followed.rename(tmp_path / "old")
    for _ in range(versions):
        mc.write(pa.table({"id": [1]}), followed)
    with pytest.raises(SourceError, match="was made again, or restored"):
        mc.load(mc.sources.table(followed), copy)


def test_a_column_of_another_type_is_loaded_by_a_restart(tmp_path: Path) -> None:
    followed, copy = tmp_path / "orders", tmp_path / "changes"
    source = mc.sources.table(followed)
    mc.write(pa.table({"id": [1], "day": ["a"]}), followed)
    mc.load(source, copy, partition_by="day")
    mc.write(pa.table({"id": ["x"], "day": ["b"]}), followed, mode="overwrite", replace_schema=True)
    for merge_schema in (False, True):
        with pytest.raises(SchemaMismatchError, match=r"'id' is long.*restart=True replaces the loaded table, also its columns"):
            mc.load(source, copy, merge_schema=merge_schema)
    for _ in range(2):  # also where it is the same already
        mc.load(source, copy, restart=True)
        assert mc.Table(copy).to_arrow().select(["id", "day"]).to_pylist() == [{"id": "x", "day": "b"}]
    mc.write(pa.table({"id": ["y"], "day": ["c"]}), followed)
    assert mc.load(source, copy).rows == 1


def followed_and_cloned(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A table that was followed up to version 2, its clone at version 4, and what was loaded."""
    followed, clone, copy = tmp_path / "orders", tmp_path / "standby", tmp_path / "changes"
    mc.write(pa.table({"id": [1, 2]}), followed)
    mc.load(mc.sources.table(followed), copy)
    mc.clone(followed, clone)
    mc.Table(followed).delete("id = 1")
    mc.write(pa.table({"id": [3]}), followed)
    mc.clone(followed, clone)
    return followed, clone, copy


def test_a_follower_goes_on_in_a_clone(tmp_path: Path) -> None:
    """Each change once, also where the first table is followed again, and in a clone of the clone. [LD5] [CN1]"""
    followed, clone, copy = followed_and_cloned(tmp_path)
    last, early = tmp_path / "last", tmp_path / "early"
    mc.clone(clone, last)
    mc.load(mc.sources.table(followed), early)
    mc.write(pa.table({"id": [4]}), clone)
    source = mc.sources.table(clone)
    for _ in range(2):
        mc.load(source, copy)
        assert applied(mc.Table(copy).to_arrow().to_pylist()) == [2, 3, 4]
    mc.clone(clone, last)
    mc.write(pa.table({"id": [5]}), last)
    outcome = mc.load(mc.sources.table(last), copy)
    assert applied(mc.Table(copy).to_arrow().to_pylist()) == [2, 3, 4, 5]
    shared, newest = mc.Table(followed).version, mc.Table(last).version
    assert sorted(outcome.positions.values()) == [shared, newest - 1, newest]
    assert mc.load(mc.sources.table(followed), copy).chunks == 0
    mc.load(mc.sources.table(last), early)
    assert mc.load(source, early).chunks == 0, "what came by the clone of the clone came again"
    assert applied(mc.Table(early).to_arrow().to_pylist()) == [2, 3, 4, 5]


def test_a_follower_ahead_of_a_clone_is_refused(tmp_path: Path) -> None:
    """It has rows that the clone lacks. [LD5]"""
    followed, clone, copy = followed_and_cloned(tmp_path)
    mc.write(pa.table({"id": [4]}), followed)
    mc.load(mc.sources.table(followed), copy)
    before = mc.Table(copy).version
    with pytest.raises(SourceError, match=r"it is a clone that has .*orders#.* up to version \d, .*what it lacks is loaded"):
        mc.load(mc.sources.table(clone), copy)
    assert mc.Table(copy).version == before


def test_files_cannot_be_restarted(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    with pytest.raises(SourceError, match="cannot be loaded as a whole"):
        mc.load(mc.sources.files(tmp_path / "landing"), tmp_path / "t", restart=True)
