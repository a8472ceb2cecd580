"""What a change of rows would do, and where, with nothing done. [RC13]"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.errors import UsageError
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
        ROWS, on="id", when_matched=mc.Update(set={"x": "source.x"}, where="target.day = 'a'"), when_not_matched=mc.Insert(where="x > 0"),
        when_not_matched_by_source=mc.Delete(where="id = 4"), dry_run=dry,
    ),
    "overwrite_where": lambda table, dry: table.overwrite_where(DAY_B, "day = 'b' AND id > 3", dry_run=dry),
}  # fmt: skip
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


def _failing(rows: int, error: Exception) -> pa.RecordBatchReader:
    """Rows of which files are complete, since no encoding makes them small, then an error."""
    values = pa.array(random.Random(0).sample(range(1 << 60), rows))
    days = [pa.record_batch({"id": range(rows), "day": [day] * rows, "x": values}) for day in "ac"]

    def batches() -> Iterator[pa.RecordBatch]:
        yield from days
        raise error

    return pa.RecordBatchReader.from_batches(days[0].schema, batches())


TWICE = pa.table({"id": [1, 1], "day": ["a", "a"], "x": [5, 6]})
TIE = TWICE.set_column(2, "x", pa.array([5, 5]))
BY_ZERO = pa.table({"id": [8, 9], "day": ["c", "c"], "x": [1, 0]})
REFUSED: dict[str, tuple[type[Exception], Callable[[Table], RowOutcome]]] = {
    "a key twice": (UsageError, lambda table: table.merge(TWICE, "id", dry_run=True)),
    "a key twice, by clauses": (UsageError, lambda table: table.merge(TWICE, "id", when_matched=mc.Update(), dry_run=True)),
    "a tie": (UsageError, lambda table: table.merge(TIE, "id", keep="last", by="x", dry_run=True)),
    "rows outside": (UsageError, lambda table: table.overwrite_where(DAY_B, "day = 'a'", dry_run=True)),
    "values that are none": (
        UsageError,
        lambda table: table.merge(
            BY_ZERO, "id", when_not_matched=mc.Insert(values={"id": "source.id", "day": "source.day", "x": "1 % source.x"}), dry_run=True
        ),
    ),
    "half a source": (OSError, lambda table: table.merge(_failing(60_000, OSError("gone")), "id", dry_run=True)),
    "half of the data": (OSError, lambda table: table.overwrite_where(_failing(60_000, OSError("gone")), "id >= 0", dry_run=True)),
    "stopped": (KeyboardInterrupt, lambda table: table.merge(_failing(60_000, KeyboardInterrupt()), "id", dry_run=True)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("error", "work"), REFUSED.values(), ids=REFUSED)
def test_one_that_fails_leaves_nothing_either(tmp_path: Path, error: type[Exception], work: Callable[[Table], RowOutcome]) -> None:
    """[RC13]"""
    mc.write(pa.table({"id": [1, 2], "day": ["a", "b"], "x": [1, 2]}), tmp_path / "t", partition_by="day")
    table = mc.Table(tmp_path / "t")
    table.set_properties({"write.target-file-size-bytes": "65536"})
    table.delete("id = 99", dry_run=True)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(error):
        work(table)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


def test_files_that_cannot_hold_such_rows_are_not_among_those_it_reads(tmp_path: Path) -> None:
    """[RC13]"""
    for start in range(0, 40, 10):
        mc.write(pa.table({"id": range(start, start + 10), "x": range(10)}), tmp_path / "t")
    table, source = mc.Table(tmp_path / "t"), pa.table({"id": [12, 15], "x": [0, 0]})
    found: Any = table.merge(source, on="id", dry_run=True)
    assert len(found.reads) == len(found.rewrites) == 1
    assert table.to_arrow(filter="id = 12").to_pylist() == [{"id": 12, "x": 2}]
