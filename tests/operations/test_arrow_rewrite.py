"""Small files rewritten in this process, without Spark. [GC11] [GC16] [RC8]"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.kit.row_tables import NAN, content, copy

import manifestcommit as mc
from manifestcommit.table import Table


@pytest.mark.parametrize("name", ["partitioned", "plain"])
def test_every_row_is_there_once_whatever_its_values(base: Any, tmp_path: Path, name: str) -> None:
    """In a file for each partition, of files with columns renamed and added. [GC11] [SC4] [SC6]"""
    table, _ = copy(base, name, tmp_path)
    before, files = content(table), table.files().num_rows
    done = table.compact()
    assert (done.files_before, done.files_after, done.rows, done.lost) == (files, 5 if name == "partitioned" else 1, 40, ())
    assert content(table) == before and table.files().num_rows == done.files_after
    assert table.verify(deep=True).is_sound
    assert table.compact().version is None


def test_partitions_are_chosen_and_rows_sorted_on_request(base: Any, tmp_path: Path) -> None:
    """By SQL and by a pyarrow expression; a column that is none is refused before any work. [GC16]"""
    table, _ = copy(base, "partitioned", tmp_path)
    version = table.version
    for wrong in ({"sort_by": "nowhere"}, {"where": "id > 3"}, {"where": pc.field("id") == 3}):
        with pytest.raises(mc.errors.UsageError, match=r"nowhere|where"):
            table.compact(**wrong)  # type: ignore[arg-type]
    for where in ("day IS NULL", "day = '''\"ü漢+'", pc.field("day") == "a b%20"):
        assert table.plan_compaction(where=where).column("files").to_pylist() == [4]
    assert table.version == version
    done = table.compact(where="day IS NULL", sort_by=["x", "ID"])
    path = next(each.path for each in table.snapshot().added if each.added == done.version)
    found = pq.read_table(f"{table.url.removeprefix('file://')}/{path}", partitioning=None).column("id").to_pylist()
    assert found == [8, 18, 28, 38, 3, 13, 23, 33], "nulls first"
    assert table.files().num_rows == 4 * 4 + 1


def test_adopted_files_get_the_partition_that_only_their_folder_names(tmp_path: Path) -> None:
    """[DF4]"""
    folder = tmp_path / "adopted" / "day=k%3Dv%23x%3F"
    folder.mkdir(parents=True)
    for first in (0, 10):
        pq.write_table(pa.table({"id": [first, None], "x": [NAN, -0.0]}), folder / f"from {first}.parquet")
    mc.Table(tmp_path / "adopted").adopt()
    table = Table(tmp_path / "adopted")
    before = content(table)
    assert table.compact().files_after == 1
    assert content(table) == before and {row["day"] for row in table.dataset().to_table().to_pylist()} == {"k=v#x?"}
