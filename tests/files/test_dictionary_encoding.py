"""Dictionaries where they pay: neither CPU nor bytes are spent on one that will be given up."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manifestcommit as mc
from manifestcommit.files.writer import SAMPLE_ROWS


def rows(count: int) -> pa.Table:
    few = [f"a rather long text of which there are few, {n % 50}" for n in range(count)]
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "few": few,
            "sparse": pa.array([n if n % 100 == 0 else None for n in range(count)], pa.int64()),
            "none": pa.nulls(count, pa.string()),
            "inside": [{"few": text, "many": [text, None]} for text in few],
            "pairs": pa.array([[("k", text)] for text in few], pa.map_(pa.string(), pa.string())),
            "a.b": few,
        }
    )


def dictionaries(file: Path) -> dict[str, bool]:
    chunk = pq.read_metadata(file).row_group(0)
    return {chunk.column(at).path_in_schema: chunk.column(at).has_dictionary_page for at in range(chunk.num_columns)}


@pytest.mark.thorough
@pytest.mark.parametrize("part", [None, "few"])
def test_what_repeats_has_a_dictionary_and_what_does_not_has_none(tmp_path: Path, part: str | None) -> None:
    """[DF5] Nested columns, names with dots and columns with few values keep theirs; every row comes back."""
    data = rows(2 * SAMPLE_ROWS)
    mc.write(data, tmp_path / "t", partition_by=part)
    files = sorted((tmp_path / "t").rglob("*.parquet"))
    assert len(files) == (50 if part else 1)
    found = dictionaries(files[-1])
    assert not found.pop("id") and not found.pop("sparse")
    assert found and all(found.values())
    assert mc.Table(tmp_path / "t").dataset().to_table().sort_by("id").equals(data)


def test_few_rows_speak_for_files_of_as_many_only(tmp_path: Path) -> None:
    """Of ten rows each value may be another one, where thousands repeat it: what the first file lacks others have."""
    parts, values = ["a"] * 10 + ["b"] * 10_000, [n % 10 for n in range(10_010)]
    mc.write(pa.table({"part": parts, "v": values}), tmp_path / "t", partition_by="part")
    few, many = sorted((tmp_path / "t").rglob("*.parquet"))
    assert dictionaries(few) == {"part": True, "v": False} and all(dictionaries(many).values())


def test_a_file_is_smaller_than_with_a_dictionary_that_was_given_up(tmp_path: Path) -> None:
    """Of more values than a dictionary's page holds, those until then would be written as numbers of entries, and as entries too."""
    data: Any = pa.table({"id": pa.array(range(300_000), pa.int64())})
    mc.write(data, tmp_path / "t")
    (file,) = (tmp_path / "t").glob("*.parquet")
    pq.write_table(data, tmp_path / "with", compression="zstd", compression_level=3, write_page_index=True)
    assert file.stat().st_size < 0.6 * (tmp_path / "with").stat().st_size
