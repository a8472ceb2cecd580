"""What a change of rows would do, and where, with nothing done. [RC13]"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.rows.row_change import RowOutcome
from manifestcommit.table import Table

ROWS = pa.table({"id": [2, 3, 50, None], "day": ["a", "b", "b", "b"], "x": [20, 30, 500, 0]})
DAY_B = pa.table({"id": [7], "day": ["b"], "x": [1]})

WORKS: dict[str, Callable[[Table, bool], RowOutcome]] = {
    "delete": lambda table, dry: table.delete("id <= 2", dry_run=dry),
    "delete a partition": lambda table, dry: table.delete("day = 'a'", dry_run=dry),
    "update": lambda table, dry: table.update({"x": "x + 1"}, "id = 3", dry_run=dry),
    "merge": lambda table, dry: table.merge(ROWS, on="id", dry_run=dry),
    "merge that inserts": lambda table, dry: table.merge(ROWS, on="id", when_matched=None, dry_run=dry),
    "merge that deletes": lambda table, dry: table.merge(ROWS, on="id", when_matched="delete", when_not_matched=None, dry_run=dry),
    "merge by clauses": lambda table, dry: table.merge(
        ROWS,
        on="id",
        when_matched=mc.Update(set={"x": "source.x"}, where="target.day = 'a'"),
        when_not_matched=mc.Insert(where="x > 0"),
        when_not_matched_by_source=mc.Delete(where="id = 4"),
        dry_run=dry,
    ),
    "overwrite_where": lambda table, dry: table.overwrite_where(DAY_B, "day = 'b' AND id > 3", dry_run=dry),
}
TOLD = ("rows_deleted", "rows_updated", "rows_inserted", "rows_rewritten", "files_removed", "files_rewritten", "executor")


@pytest.mark.parametrize("work", WORKS)
def test_it_says_what_is_done_then_and_leaves_nothing(tmp_path: Path, work: str) -> None:
    """The same numbers, the files that go, and no object more than before. [RC13] [RC1]"""
    for ids, day in (([1, 2], "a"), ([3, 4], "b"), ([5], "b"), ([6], "c")):
        mc.write(pa.table({"id": ids, "day": [day] * len(ids), "x": ids}), tmp_path / "t", partition_by="day")
    table = mc.Table(tmp_path / "t")
    WORKS[work](table, True)  # what a first change leaves of a store's proof
    objects, version = sorted(path for path in tmp_path.rglob("*") if path.is_file()), table.version
    planned = WORKS[work](table, True)
    assert (planned.kind, planned.version, table.version) == ("planned", version, version)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == objects
    files = set(table.files()["path"].to_pylist())
    done = WORKS[work](table, False)
    assert done.committed and done.reads == done.rewrites == ()
    assert [getattr(planned, name) for name in TOLD] == [getattr(done, name) for name in TOLD]
    assert set(planned.rewrites) == files - set(table.files()["path"].to_pylist())
    assert set(planned.rewrites) <= set(planned.reads) <= files


def test_files_that_cannot_hold_such_rows_are_not_among_those_it_reads(tmp_path: Path) -> None:
    """[RC13]"""
    for start in range(0, 40, 10):
        mc.write(pa.table({"id": range(start, start + 10), "x": range(10)}), tmp_path / "t")
    table, source = mc.Table(tmp_path / "t"), pa.table({"id": [12, 15], "x": [0, 0]})
    found: Any = table.merge(source, on="id", dry_run=True)
    assert len(found.reads) == len(found.rewrites) == 1
    assert table.to_arrow(filter="id = 12").to_pylist() == [{"id": 12, "x": 2}]
