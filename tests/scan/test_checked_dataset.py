"""Data files of other programs are checked before `Table.dataset()` reads rows of them. [AF3] [RD2]

The lie is a value that pyarrow ignores, so that a reader that does not compare the footer reads on.
"""

import pickle
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.kit.footers import changed, parquet_bytes

import manifestcommit as mc
from manifestcommit.log.table_context import TableContext
from manifestcommit.scan.arrow_dataset import open_dataset
from manifestcommit.scan.planning import entries_table
from manifestcommit.store import open_store

NULLS = (4, 0, 1, 0, 3, 12, 3)  # of the first column's statistics
ROWS = 3
READS: dict[str, Callable[[ds.Dataset], Any]] = {
    "to_table": lambda found: found.to_table(),
    "no columns": lambda found: found.to_table(columns=[]),
    "filter": lambda found: found.to_table(filter=pc.field("id") > 1),
    "to_batches": lambda found: list(found.to_batches()),
    "scanner": lambda found: found.scanner().to_table(),
    "Scanner": lambda found: ds.Scanner.from_dataset(found).to_table(),
    "head": lambda found: found.head(1),
    "take": lambda found: found.take(pa.array([0])),
    "count_rows": lambda found: found.count_rows(),
    "count with a filter": lambda found: found.count_rows(filter=pc.field("id") > 1),
    "filtered": lambda found: found.filter(pc.field("id") > 1).to_table(),
    "filtered twice": lambda found: found.filter(pc.field("id") > 1).filter(pc.field("id") < 9).count_rows(),
    "sort_by": lambda found: found.sort_by("id").to_table(),
    "join": lambda found: found.join(ds.dataset(pa.table({"id": [1]})), "id").to_table(),
    "joined to": lambda found: ds.dataset(pa.table({"id": [1]})).join(found, "id").to_table(),
    "fragments": lambda found: [fragment.to_table() for fragment in found.get_fragments()],
    "other schema": lambda found: found.replace_schema(found.schema).to_table(),
    "file names": lambda found: found.to_table(columns=["__filename"]),
    "pickled": lambda found: pickle.loads(pickle.dumps(found)).to_table(),
    "duckdb": lambda found: duckdb.from_arrow(found).fetchall(),
    "duckdb filter": lambda found: duckdb.from_arrow(found).filter("id > 1").fetchall(),
    "duckdb count": lambda found: duckdb.sql("select count(*) from found").fetchall(),
    "polars": lambda found: pl.scan_pyarrow_dataset(found).collect(),
    "polars filter": lambda found: pl.scan_pyarrow_dataset(found).filter(pl.col("id") > 1).select("id").collect(),
}


def written(day: str) -> bytes:
    return parquet_bytes(pa.table({"id": pa.array(range(ROWS), pa.int64()), "day": [day] * ROWS}))


@pytest.fixture
def adopted(tmp_path: Path) -> mc.Table:
    """A table of two files that it did not write, in partitions a and b, and one that it did, in c."""
    for name in "ab":
        (tmp_path / f"{name}.parquet").write_bytes(written(name))
    mc.Table(str(tmp_path)).adopt(partition_by=["day"])
    mc.write(pa.table({"id": [7], "day": ["c"]}), str(tmp_path))
    return mc.Table(str(tmp_path))


def lie(table: mc.Table, name: str = "b.parquet", **told: Any) -> None:
    path = Path(table.url.removeprefix("file://")) / name
    path.write_bytes(changed(path.read_bytes(), *NULLS, to=-1))


@pytest.mark.parametrize("read", sorted(READS))
def test_no_door_of_a_dataset_leads_past_the_check(adopted: mc.Table, read: str) -> None:
    """[AF3] [OB4] The error names the file; DuckDB and Polars put it into one of theirs. Sound files are read as ever."""
    READS[read](adopted.dataset())
    lie(adopted)
    with pytest.raises(Exception, match=r"data file b\.parquet is damaged") as raised:
        READS[read](adopted.dataset())
    if "duckdb" not in read and "polars" not in read:
        assert isinstance(raised.value, mc.errors.CorruptMetadataError) and raised.value.object_name == "b.parquet"


@pytest.mark.parametrize("read", ["to_table", "count_rows", "duckdb", "polars"])
def test_columns_that_were_renamed_lead_past_no_check(adopted: mc.Table, read: str) -> None:
    """[AF3] [SC6]"""
    adopted.rename_column("id", "number")
    READS[read](adopted.dataset())
    lie(adopted)
    with pytest.raises(Exception, match=r"data file b\.parquet"):
        READS[read](adopted.dataset())


def test_only_files_that_the_filter_leaves_are_checked(adopted: mc.Table) -> None:
    """[AF3] A damaged partition hinders no read of another one; each file is checked once."""
    lie(adopted)
    dataset = adopted.dataset()
    for found in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert found.to_table(filter=pc.field("day") == "a").num_rows == ROWS
        assert found.filter(pc.field("day") == "c").to_table()["id"].to_pylist() == [7]
        assert found.filter(pc.field("day") != "b").count_rows(filter=pc.field("id") >= 0) == ROWS + 1
        assert [Path(each.path).name for each in found.get_fragments(pc.field("day") == "a")] == ["a.parquet"]
        with pytest.raises(mc.errors.CorruptMetadataError, match=r"b\.parquet"):
            found.to_table(filter=pc.field("day") != "a")
    lie(adopted, "a.parquet")
    assert dataset.to_table(filter=pc.field("day") == "a").num_rows == ROWS  # looked at before


@pytest.mark.parametrize("replaced", ["a sound file", "a longer file", "a shorter file", "no file", "endless rows"])
def test_a_file_that_was_replaced_is_no_file_of_the_table(adopted: mc.Table, tmp_path: Path, replaced: str) -> None:
    """[AF3] [RD2] Also by a sound one: the entry says nothing of it. pyarrow gets to see none of them."""
    file, data = tmp_path / "b.parquet", written("b")
    endless = changed(changed(parquet_bytes(pa.table({})), 3, to=2**62), 4, to=[12, [[[1, 9, [12, []]], [2, 6, 0], [3, 6, 2**62]]]])
    others = {
        "a sound file": written("c"), "a longer file": data + b"x", "a shorter file": data[:-1], "no file": b"", "endless rows": endless,
    }  # fmt: skip
    file.write_bytes(others[replaced])
    for read in (lambda: adopted.dataset().count_rows(), lambda: adopted.dataset().to_table(columns=[])):
        with pytest.raises(
            mc.errors.CorruptMetadataError, match=r"b\.parquet is damaged: its Parquet footer is not the one .* Restore the file"
        ):
            read()
    file.write_bytes(data)
    assert adopted.dataset().count_rows() == 2 * ROWS + 1


def test_an_entry_without_any_digest_is_refused(adopted: mc.Table) -> None:
    """[AF3] [OB5] Nothing would show that the file is the one that was added."""
    session = TableContext(open_store(adopted.url))
    snapshot = session.open().snapshot
    snapshot = msgspec.structs.replace(snapshot, added=tuple(msgspec.structs.replace(each, footer=None) for each in snapshot.added))
    with pytest.raises(mc.errors.CorruptMetadataError, match=r"data file a\.parquet has neither .* add it again"):
        open_dataset(session, snapshot, entries_table(session, snapshot))


def spoil(path: Path) -> None:
    """The pages of the first column become nonsense; the footer stays as it was."""
    chunk = pq.read_metadata(path).row_group(0).column(0)
    start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    data = bytearray(path.read_bytes())
    data[start + 2 : start + chunk.total_compressed_size] = b"\xee" * (chunk.total_compressed_size - 2)
    path.chmod(0o644)
    path.write_bytes(data)


NAMED: dict[str, Callable[[mc.Table], Any]] = {
    "to_arrow": lambda table: table.to_arrow(),
    "to_arrow of floats": lambda table: table.to_arrow(filter="x > 0"),
    "to_pandas": lambda table: table.to_pandas(),
    "to_table": lambda table: table.dataset().to_table(),
    "to_batches": lambda table: list(table.dataset().to_batches()),
    "head": lambda table: table.dataset().head(9),
    "take": lambda table: table.dataset().take(pa.array([3])),
    "count_rows": lambda table: table.dataset().count_rows(filter=pc.field("id") != 1),
    "to_table with a filter": lambda table: table.dataset().to_table(["x"], filter=pc.field("id") != 1),
    "pickled": lambda table: pickle.loads(pickle.dumps(table.dataset())).to_table(),
    "delete": lambda table: table.delete("id = 1"),
    "update": lambda table: table.update({"x": "x + 1"}, "id = 1"),
    "merge": lambda table: table.merge(pa.table({"id": [1], "x": [0.5]}), on="id"),
    "compact": lambda table: table.compact(),
}


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("read", list(NAMED))
def test_a_damaged_page_is_an_error_that_names_the_file(tmp_path: Path, read: str, own: bool, renamed: bool) -> None:
    """[RD2] Whoever wrote the file: pyarrow says only that some page header is wrong."""
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "former" if renamed else "x": [0.5, 1.5]})
    if own:
        mc.write(rows, str(tmp_path))
        mc.write(rows, str(tmp_path))
    else:
        pq.write_table(rows, tmp_path / "a.parquet")
        pq.write_table(rows, tmp_path / "b.parquet")
        mc.Table(str(tmp_path)).adopt()
    table = mc.Table(str(tmp_path))
    if renamed:
        table.rename_column("former", "x")
    path = max(table.files()["path"].to_pylist())
    spoil(tmp_path / path)
    with pytest.raises(mc.errors.CorruptMetadataError, match=f"data file {path} is damaged", check=lambda error: error.object_name == path):
        NAMED[read](table)


def test_a_file_of_others_that_is_gone_is_named(adopted: mc.Table, tmp_path: Path) -> None:
    """[RD2] Also where it goes after the dataset was made."""
    dataset = adopted.dataset()
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(mc.errors.DataFileMissingError, match=r"data file b\.parquet is listed") as raised:
        dataset.to_table()
    assert raised.value.path == "b.parquet"


def test_a_file_that_is_longer_than_listed_is_damaged() -> None:
    """Its length is not asked for: whoever reads it compares what comes with what is listed. [RD2] [RD14]"""
    url = f"memory://{secrets.token_hex(8)}/t"
    mc.write(pa.table({"id": [1, 2]}), url)
    (path,) = mc.Table(url).files().column("path").to_pylist()
    store = open_store(url)
    whole = store.get(path)
    store.put(path, whole + b"more")
    with pytest.raises(mc.errors.CorruptMetadataError, match=path):
        mc.Table(url).to_arrow()
    store.delete([path])
    with pytest.raises(mc.errors.DataFileMissingError, match=path):
        mc.Table(url).to_arrow()
