"""Files that land in a folder or a bucket are loaded once each, whatever happens to them meanwhile. [LD3] [LD4]"""

import contextlib
import io
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.kit.sources import put

import manifestcommit as mc
from manifestcommit.errors import SchemaMismatchError, SourceError, StoreError, UnsafeStoreError, UsageError
from manifestcommit.sources import Chunk, landing_files, loading
from manifestcommit.sources.chunk import ChangedInputError
from manifestcommit.store import open_store
from manifestcommit.store.local import OBJECTS, LocalStore

HOSTILE = ["a=b/ %+#é.csv", "quote'd.csv", 'double".csv', "back\\slash.csv", "día=1/x.csv"]


def ids(table: Path) -> list[int]:
    return sorted(mc.Table(table).to_arrow(["id"]).column("id").to_pylist())


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    (tmp_path / "landing").mkdir()
    return tmp_path / "landing"


def test_each_file_is_loaded_once_and_a_rerun_finds_nothing(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "id,note\n1,x\n2,y\n")
    put(landing, "b.jsonl", '{"id": 3, "note": "z"}\n')
    pq.write_table(pa.table({"id": [4], "note": ["p"]}), landing / "c.parquet")
    source = mc.sources.files(landing, file_column="_file", settle="0s")
    first = mc.load(source, tmp_path / "t")
    assert (first.chunks, first.rows, first.version) == (1, 4, mc.Table(tmp_path / "t").version)
    assert mc.load(source, tmp_path / "t").chunks == 0
    put(landing, "d.csv", "id,note\n5,q\n")
    assert mc.load(source, tmp_path / "t").rows == 1
    assert ids(tmp_path / "t") == [1, 2, 3, 4, 5]
    assert first.positions == {source.name: 1}
    of = {row["id"]: row["_file"] for row in mc.Table(tmp_path / "t").to_arrow().to_pylist()}
    assert of == {1: "a.csv", 2: "a.csv", 3: "b.jsonl", 4: "c.parquet", 5: "d.csv"}


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_kept_exactly(tmp_path: Path, landing: Path, name: str) -> None:
    put(landing, name, "id\n1\n")
    source = mc.sources.files(landing, file_column="_file", on_changed="replace")
    mc.load(source, tmp_path / "t")
    put(landing, name, "id\n2\n3\n")
    mc.load(source, tmp_path / "t")
    assert mc.Table(tmp_path / "t").to_arrow().sort_by("id").to_pylist() == [{"id": 2, "_file": name}, {"id": 3, "_file": name}]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_column_of_the_schema_that_a_file_has_not_is_named(tmp_path: Path, landing: Path, name: str) -> None:
    """[LD4]"""
    put(landing, "a.csv", "id\n1\n")
    pq.write_table(pa.table({"id": [1]}), landing / "a.parquet")
    schema = pa.schema([("id", pa.int64()), ("idd", pa.int64())])
    with pytest.raises(SourceError, match=f"{name}: it has no column 'idd', which schema has"):
        mc.load(mc.sources.files(landing, schema=schema, pattern=name), tmp_path / "t")


@pytest.mark.parametrize(("on_changed", "expected"), [("append", [1, 2, 7]), ("replace", [2, 7])])
def test_a_file_that_is_uploaded_again_is_another_one(tmp_path: Path, landing: Path, on_changed: Any, expected: list[int]) -> None:
    put(landing, "a.csv", "id\n1\n")
    put(landing, "b.csv", "id\n2\n")
    source = mc.sources.files(landing, file_column="_file", on_changed=on_changed)
    mc.load(source, tmp_path / "t")
    put(landing, "a.csv", "id\n7\n", seconds_ago=50)
    assert mc.load(source, tmp_path / "t").chunks == 1
    assert ids(tmp_path / "t") == expected
    assert mc.load(source, tmp_path / "t").chunks == 0


def test_changed_files_whose_rows_are_added_share_a_commit_with_new_ones(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "id\n1\n")
    source = mc.sources.files(landing)
    mc.load(source, tmp_path / "t")
    put(landing, "a.csv", "id\n7\n", seconds_ago=50)
    put(landing, "b.csv", "id\n2\n")
    assert mc.load(source, tmp_path / "t").chunks == 1
    assert ids(tmp_path / "t") == [1, 2, 7]


def test_a_changed_file_ends_the_load_where_that_is_asked_for(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "id\n1\n")
    source = mc.sources.files(landing, on_changed="error")
    mc.load(source, tmp_path / "t")
    put(landing, "a.csv", "id\n9\n", seconds_ago=50)
    with pytest.raises(SourceError, match=r"1 file changed after being loaded, such as 'a\.csv'.*on_changed='replace'"):
        mc.load(source, tmp_path / "t")
    assert ids(tmp_path / "t") == [1]


@pytest.mark.parametrize("given", [{}, {"on_changed": "replace", "file_column": "_file"}], ids=["append", "replace"])
def test_a_file_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, landing: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    """What is recorded is what was read: the rows of one content under the name of another would never be mended."""
    put(landing, "a.csv", "id\n1\n")
    source = mc.sources.files(landing, **given)
    if given:  # then its rows are replaced
        mc.load(source, tmp_path / "t")
        put(landing, "a.csv", "id\n333\n", seconds_ago=60)
    opened = landing_files.LandingFiles._opened
    times = []

    def replaced(self: Any, file: Any, *others: Any) -> Any:
        found = opened(self, file, *others)
        times.append(file.name)
        if len(times) == 1:
            put(landing, "a.csv", "id\n22\n", seconds_ago=40)
        return found

    monkeypatch.setattr(landing_files.LandingFiles, "_opened", replaced)
    outcome = mc.load(source, tmp_path / "t")
    assert (len(times), outcome.chunks, ids(tmp_path / "t")) == (2, 1, [22])
    assert mc.load(source, tmp_path / "t").chunks == 0


def test_what_cannot_be_decoded_since_it_changed_meanwhile_is_read_again(
    tmp_path: Path, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As half of a file that is uploaded again. [LD3]"""
    put(landing, "a.csv", "id\n1,2\n")
    put(tmp_path, "whole.csv", "id\n3\n", seconds_ago=50)
    decoded = landing_files._text_reader

    def replaced(*given: Any) -> Any:
        with contextlib.suppress(FileNotFoundError):
            (tmp_path / "whole.csv").rename(landing / "a.csv")
        return decoded(*given)

    monkeypatch.setattr(landing_files, "_text_reader", replaced)
    assert mc.load(mc.sources.files(landing), tmp_path / "t").rows == 1
    assert ids(tmp_path / "t") == [3]


def test_a_file_that_is_removed_before_it_is_read_is_passed_over(tmp_path: Path, landing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower goes on, as where it is removed later. [LD3]"""
    put(landing, "a.csv", "id\n1\n")
    put(landing, "b.csv", "id\n2\n")
    opened = landing_files.LandingFiles._opened

    def removed(self: Any, *given: Any) -> Any:
        (landing / "b.csv").unlink(missing_ok=True)
        return opened(self, *given)

    monkeypatch.setattr(landing_files.LandingFiles, "_opened", removed)
    assert mc.load(mc.sources.files(landing), tmp_path / "t").rows == 1
    assert ids(tmp_path / "t") == [1]
    assert mc.Table(tmp_path / "t.files").to_arrow().column("name").to_pylist() == ["a.csv"]


def test_a_file_that_is_missing_for_a_moment_is_not_recorded_as_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back is the same content, which would never be tried again. [LD4]"""
    store = open_store("memory://moment/landing")
    store.put("a.csv", b"id\n1\n")
    source = mc.sources.files("memory://moment/landing")
    opened = type(store).open_input

    def missing(self: Any, name: str) -> Any:
        found = OBJECTS.pop("/moment/landing/a.csv")
        try:
            return opened(self, name)
        finally:
            OBJECTS["/moment/landing/a.csv"] = found

    monkeypatch.setattr(type(store), "open_input", missing)
    with pytest.raises(StoreError, match=r"a\.csv could not be read"):
        mc.load(source, tmp_path / "t", max_errors=1)
    monkeypatch.undo()
    assert mc.load(source, tmp_path / "t").rows == 1


def test_a_broken_file_ends_the_load_and_nothing_of_its_chunk_is_committed(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "id\n1\n")
    source = mc.sources.files(landing)
    mc.load(source, tmp_path / "t")
    put(landing, "b.csv", "id\n2\n")
    put(landing, "c.csv", "id\nnot a number\n")
    with pytest.raises(SourceError, match=r"c\.csv: .*not a number.*max_errors=1"):
        mc.load(source, tmp_path / "t")
    assert ids(tmp_path / "t") == [1]


def _damaged_page() -> bytes:
    """A file whose footer is sound and whose first page is none."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2]}), sink, use_dictionary=False)
    data = bytearray(sink.getvalue())
    data[4:12] = b"\xff" * 8
    return bytes(data)


BROKEN: Mapping[str, bytes] = {
    "types.csv": b"id\nnot a number\n",
    "columns.csv": b"id\n1,2,3\n",
    "text.csv": b"id,note\n1,\xff\xfe\xfa\n",
    "half.json": b'{"id": 1}\n{"id": ',
    "half.parquet": b"PAR1" + b"\0" * 40,
    "empty.parquet": b"",
    "page.parquet": _damaged_page(),
    "unknown.ending": b"id\n1\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_recorded_and_tried_again_when_it_changes(tmp_path: Path, landing: Path, name: str) -> None:
    put(landing, "a.csv", "id,note\n1,x\n")
    put(landing, name, BROKEN[name])
    source = mc.sources.files(landing)
    outcome = mc.load(source, tmp_path / "t", max_errors=1)
    assert list(outcome.broken) == [name] and ids(tmp_path / "t") == [1]
    assert mc.load(source, tmp_path / "t").chunks == 0
    told = mc.Table(tmp_path / "t.files").to_arrow(filter="NOT loaded").to_pylist()
    assert [row["name"] for row in told] == [name] and told[0]["error"]
    if name.endswith(".csv"):
        put(landing, name, "id,note\n2,y\n", seconds_ago=50)
        assert mc.load(source, tmp_path / "t").rows == 1
        assert ids(tmp_path / "t") == [1, 2]


def test_no_more_files_are_passed_over_than_allowed(tmp_path: Path, landing: Path) -> None:
    for name in ("a.csv", "b.csv"):
        put(landing, name, "id\nx\n" if name == "a.csv" else "id\n1,2\n")
    with pytest.raises(SourceError, match="max_errors=2"):
        mc.load(mc.sources.files(landing, schema=pa.schema([("id", pa.int64())])), tmp_path / "t", max_errors=1)
    outcome = mc.load(mc.sources.files(landing, schema=pa.schema([("id", pa.int64())])), tmp_path / "t", max_errors=2)
    assert sorted(outcome.broken) == ["a.csv", "b.csv"] and outcome.rows == 0


def test_a_file_that_may_still_grow_is_waited_for(tmp_path: Path, landing: Path) -> None:
    put(landing, "old.csv", "id\n1\n")
    put(landing, "new.csv", "id\n2\n", seconds_ago=-30)
    source = mc.sources.files(landing, settle="20s")
    assert mc.load(source, tmp_path / "t").rows == 1
    put(landing, "new.csv", "id\n2\n", seconds_ago=21)
    assert mc.load(source, tmp_path / "t").rows == 1
    assert ids(tmp_path / "t") == [1, 2]


def test_nothing_in_memory_is_waited_for(tmp_path: Path) -> None:
    """An object there is whole from the moment on at which it is there."""
    open_store("memory://settled/landing").put("a.csv", b"id\n1\n")
    began = time.monotonic()
    assert mc.load(mc.sources.files("memory://settled/landing"), tmp_path / "t").rows == 1
    assert time.monotonic() - began < 5


def test_files_land_where_no_table_could_lie(tmp_path: Path, landing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By fsspec; one that does not tell contents apart is refused. [LD3]"""
    put(landing, "day=1/a.csv", "id\n1\n")
    options = {"path": str(tmp_path), "target_protocol": "file"}
    source = mc.sources.files("dir://landing", file_column="_file", on_changed="replace", storage_options=options)
    assert (mc.load(source, tmp_path / "t").rows, mc.load(source, tmp_path / "t").rows) == (1, 0)
    put(landing, "day=1/a.csv", "id\n2\n", seconds_ago=60)
    put(landing, "b.csv", "id\n3", seconds_ago=0)  # may still grow
    with monkeypatch.context() as patch:
        patch.setattr(landing_files, "pause", lambda seconds: put(landing, "b.csv", "id\n3\n4\n", seconds_ago=0))
        assert mc.load(source, tmp_path / "t").rows == 1 and ids(tmp_path / "t") == [2]
    put(landing, "b.csv", "id\n3\n4\n")
    assert mc.load(source, tmp_path / "t").rows == 2 and ids(tmp_path / "t") == [2, 3, 4]
    with pytest.raises(UnsafeStoreError, match="Nothing was read or written"):
        mc.write(pa.table({"id": [1]}), "dir://t", storage_options=options)
    shutil.make_archive(str(tmp_path / "archive"), "zip", tmp_path, "landing")
    archive = mc.sources.files("zip://landing", storage_options={"fo": str(tmp_path / "archive.zip")})
    with pytest.raises(StoreError, match="tells neither a time nor an ETag"):
        mc.load(archive, tmp_path / "u")


def test_markers_hidden_files_and_other_names_are_passed_over(tmp_path: Path, landing: Path) -> None:
    for name in ("_SUCCESS", ".a.csv.crc", "_temporary/0/b.csv", "other.txt", "in/c.csv"):
        put(landing, name, "id\n1\n")
    outcome = mc.load(mc.sources.files(landing, pattern="*.csv"), tmp_path / "t")
    assert outcome.rows == 1 and outcome.positions == {f"files:file://{landing}": 1}


def test_files_of_other_columns_come_with_merge_schema_only(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "id\n1\n")
    source = mc.sources.files(landing)
    mc.load(source, tmp_path / "t")
    put(landing, "b.csv", "id,extra\n2,x\n")
    with pytest.raises(mc.errors.SchemaMismatchError, match="extra"):
        mc.load(source, tmp_path / "t")
    assert mc.load(source, tmp_path / "t", merge_schema=True).rows == 1
    assert mc.Table(tmp_path / "t").to_arrow().sort_by("id").to_pylist() == [{"id": 1, "extra": None}, {"id": 2, "extra": "x"}]


def test_a_chunk_takes_as_many_files_as_fit(tmp_path: Path, landing: Path) -> None:
    for number in range(5):
        put(landing, f"{number}.csv", f"id\n{number}\n" + "\n" * 100)
    source = mc.sources.files(landing)
    plan = mc.load(source, tmp_path / "t", max_bytes=250, dry_run=True)
    assert (plan.chunks, plan.planned[0][:7], plan.version) == (3, "2 files", None)
    assert not (tmp_path / "t").exists()
    assert mc.load(source, tmp_path / "t", max_bytes=250).chunks == 3
    assert mc.load(source, tmp_path / "t").positions == {source.name: 3}


def test_long_rows_of_parquet_are_not_held_by_the_thousand(tmp_path: Path, landing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held at once is bounded in bytes, and files of the same columns become one."""
    monkeypatch.setattr(landing_files, "_BATCH_BYTES", 100_000)
    for number in range(2):
        rows = pa.table({"text": [os.urandom(500).hex() for _ in range(1_000)]})
        pq.write_table(rows, landing / f"{number}.parquet", row_group_size=600, compression=None)
    source = mc.sources.files(landing, settle="0s").open(tmp_path / "t", {})
    (chunk,) = source.chunks({}, max_bytes=10_000_000)
    sizes = [batch.nbytes for reader in source.rows(chunk) for batch in reader]
    assert len(sizes) > 20 and max(sizes) < 150_000
    outcome = mc.load(source, tmp_path / "t")
    assert (outcome.rows, outcome.files) == (2_000, 1)


def test_options_of_csv_reach_its_reader(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "1;x\n2;NULL\n")
    options = {"delimiter": ";", "column_names": ["id", "note"], "null_values": ["NULL"], "strings_can_be_null": True}
    source = mc.sources.files(landing, csv_options=options)
    mc.load(source, tmp_path / "t")
    assert mc.Table(tmp_path / "t").to_arrow().sort_by("id").column("note").to_pylist() == ["x", None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "xml"}, "invalid format 'xml': expected .csv. or .json. or .parquet."),
        ({"on_changed": "skip"}, "invalid on_changed"),
        ({"on_changed": "replace"}, "give file_column"),
        ({"csv_options": {"separator": ";"}}, "invalid csv_options"),
        ({"schema": {"id": "long"}}, "invalid schema"),
        ({"settle": "soon"}, "invalid settle"),
        ({"pattern": ""}, "invalid pattern"),
    ],
)
def test_wrong_arguments_are_named(landing: Path, arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        mc.sources.files(landing, **arguments)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"delimiter": ";;"}, "delimiter as"),
        ({"quote_char": "''"}, "quote_char as"),
        ({"escape_char": True}, "escape_char as"),
        ({"decimal_point": ".."}, "decimal_point as"),
        ({"column_types": {"id": "strng"}}, "column_types as .*strng"),
        ({"default_column_type": "strng"}, "default_column_type as .*strng"),
        ({"encoding": "utf-99"}, "encoding as"),
        ({"encoding": "hex"}, "encoding as .*is not a text encoding"),
        ({"null_values": 3}, "null_values as"),
        ({"null_values": "NULL"}, "null_values as .*not a text"),
        ({"column_names": 3}, "column_names as"),
        ({"skip_rows": "x"}, "skip_rows as"),
        ({"skip_rows": -1}, "skip_rows as"),
        ({"block_size": 2**70}, "block_size as"),
        ({"use_threads": "no"}, "use_threads as .*not a text"),
        ({"column_names": ["a"], "autogenerate_column_names": True}, "options that go together"),
        ({"validate": 1}, "validate as"),
        ({3: 1, "equals": 2}, "3 as .*name"),
        ([3], "options of pyarrow.csv"),
    ],
)
def test_values_of_csv_options_are_checked_before_anything_is_read(landing: Path, options: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=rf"invalid csv_options .*expected {expected}"):
        mc.sources.files(landing, csv_options=options)


@pytest.mark.parametrize(
    "options",
    [{"quote_char": False}, {"escape_char": "\\"}, {"encoding": "latin-1"}, {"column_types": {"id": pa.int32()}}, {"skip_rows": 0}],
)
def test_values_of_csv_options_that_pyarrow_takes_are_taken(tmp_path: Path, landing: Path, options: Any) -> None:
    put(landing, "a.csv", "id\n1\n")
    assert mc.load(mc.sources.files(landing, csv_options=options), tmp_path / "t").rows == 1


@pytest.mark.parametrize("place", ["landing", "landing/t", "."])
def test_a_table_inside_of_what_it_loads_is_refused(tmp_path: Path, landing: Path, place: str) -> None:
    put(landing, "a.csv", "id\n1\n")
    with pytest.raises(UsageError, match="one folder, or one is inside the other"):
        mc.load(mc.sources.files(landing), tmp_path / place)


@pytest.mark.thorough
def test_files_of_a_bucket_are_loaded_by_their_content(tmp_path: Path, rgw: Any) -> None:
    """On a real S3 server."""
    bucket, options = rgw.bucket(), rgw.storage_options
    store = open_store(f"s3://{bucket}/landing", options)
    store.put("a.csv", b"id\n1\n")
    store.put("day=1/b.jsonl", json.dumps({"id": 2}).encode())
    source = mc.sources.files(f"s3://{bucket}/landing", storage_options=options)
    table = f"s3://{bucket}/lake/t"
    assert mc.load(source, table, storage_options=options).rows == 2
    assert mc.load(source, table, storage_options=options).chunks == 0
    store.put("a.csv", b"id\n3\n")  # as long, and perhaps within the same second
    assert mc.load(source, table, storage_options=options).rows == 1
    assert sorted(mc.Table(table, storage_options=options).to_arrow().column("id").to_pylist()) == [1, 2, 3]
    assert "secret" not in repr([*mc.Table(table, storage_options=options).history()]).lower()


def test_the_loaded_table_decides_joint_commits_with_that_of_its_files(tmp_path: Path, landing: Path) -> None:
    """Whatever its own rank is. [LD3] [MT2]"""
    mc.create_table(tmp_path / "t", pa.schema([("id", pa.int64())]), rank=7)
    put(landing, "a.csv", "id\n1\n")
    mc.load(mc.sources.files(landing), tmp_path / "t")
    assert mc.Table(f"{tmp_path / 't'}.files")._ctx.open().snapshot.rank == 8


def test_a_bucket_has_no_place_beside_it(rgw: Any, landing: Path) -> None:
    put(landing, "a.csv", "id\n1\n")
    bucket = rgw.bucket()
    with pytest.raises(UsageError, match=rf"s3://{bucket} is the root of a bucket.*\.files.*Load into a path below it"):
        mc.load(mc.sources.files(landing), f"s3://{bucket}", storage_options=rgw.storage_options)


def test_two_folders_and_two_patterns_feed_one_table_each_file_once(tmp_path: Path, landing: Path) -> None:
    """Also files of one name, of which one is replaced; a file that both patterns match is one file."""
    put(landing, "day.csv", "id\n1\n")
    put(tmp_path / "other", "day.csv", "id\n2\n")
    ours = [mc.sources.files(landing, file_column="_file", on_changed="replace", pattern=each) for each in ("*", "*.csv")]
    for source in (*ours, other := mc.sources.files(tmp_path / "other", file_column="_file")):
        mc.load(source, tmp_path / "t")
    assert ids(tmp_path / "t") == [1, 2]
    put(tmp_path / "other", "day.csv", "id\n3\n", seconds_ago=50)
    for source in (other, *ours, other, *ours):
        mc.load(source, tmp_path / "t")
    assert ids(tmp_path / "t") == [1, 2, 3]


def test_rows_of_a_namesake_are_never_replaced(tmp_path: Path, landing: Path) -> None:
    """What a name alone tells would take those of both folders. [LD3]"""
    for folder, number in ((landing, 1), (tmp_path / "other", 2)):
        put(folder, "day.csv", f"id\n{number}\n")
    ours, theirs = (mc.sources.files(each, file_column="_file", on_changed="replace") for each in (landing, tmp_path / "other"))
    for source in (ours, theirs):
        mc.load(source, tmp_path / "t")
    put(landing, "day.csv", "id\n3\n", seconds_ago=50)
    with pytest.raises(SourceError, match=r"'day\.csv' changed, and file://.*/other has a file of this name"):
        mc.load(ours, tmp_path / "t")
    assert ids(tmp_path / "t") == [1, 2]


def test_a_new_file_beside_one_that_changed_leaves_its_namesake_alone(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "id\n1\n")
    put(tmp_path / "other", "b.csv", "id\n2\n")
    source = mc.sources.files(landing, file_column="_file", on_changed="replace")
    for each in (source, mc.sources.files(tmp_path / "other", file_column="_file")):
        mc.load(each, tmp_path / "t")
    put(landing, "a.csv", "id\n3\n", seconds_ago=50)
    put(landing, "b.csv", "id\n4\n")
    assert mc.load(source, tmp_path / "t").rows == 2
    assert ids(tmp_path / "t") == [2, 3, 4]


def test_a_file_that_changed_into_a_broken_one_keeps_its_rows(tmp_path: Path, landing: Path) -> None:
    """[LD4]"""
    put(landing, "a.csv", "id\n1\n")
    source = mc.sources.files(landing, file_column="_file", on_changed="replace")
    mc.load(source, tmp_path / "t")
    put(landing, "a.csv", "", seconds_ago=50)
    assert list(mc.load(source, tmp_path / "t", max_errors=1).broken) == ["a.csv"] and ids(tmp_path / "t") == [1]
    put(landing, "a.csv", "id\n2\n", seconds_ago=20)
    assert mc.load(source, tmp_path / "t").rows == 1 and ids(tmp_path / "t") == [2]


def test_one_source_feeds_two_tables(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "id\n1\n")
    source = mc.sources.files(landing)
    rounds = [mc.follow(source, tmp_path / name, every="1s") for name in "tu"]
    assert [next(each).rows for each in rounds] == [1, 1]
    for each in reversed(rounds):
        each.close()  # type: ignore[attr-defined]
    assert mc.load(source, tmp_path / "t").chunks == mc.load(source, tmp_path / "u").chunks == 0


def test_a_table_that_went_back_alone_is_told_from_one_that_has_nothing_new(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "id\n1\n")
    source = mc.sources.files(landing)
    mc.load(source, tmp_path / "t")
    (tmp_path / "t").rename(tmp_path / "gone")
    with pytest.raises(SourceError, match="was removed or rolled back alone"):
        mc.load(source, tmp_path / "t")


def test_a_column_without_values_at_first_gets_values_later(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "id,note\n1,\n")
    put(landing, "b.jsonl", '{"id": 2, "note": null}\n')
    put(landing, "c.csv", "id,note\n3,x\n")
    mc.load(mc.sources.files(landing), tmp_path / "t", max_bytes=1)
    assert sorted(mc.Table(tmp_path / "t").to_arrow().column("id").to_pylist()) == [1, 2, 3]


def test_members_of_objects_and_lists_without_values_at_first_get_values_later(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.jsonl", '{"id": 1, "tags": [], "at": {"city": null, "of": [[]]}}\n')
    put(landing, "b.jsonl", '{"id": 2, "tags": ["x"], "at": {"city": "Ulm", "of": [["y"]]}}\n')
    mc.load(mc.sources.files(landing), tmp_path / "t", max_bytes=1)
    row = {"id": 2, "tags": ["x"], "at": {"city": "Ulm", "of": [["y"]]}}
    assert mc.Table(tmp_path / "t").to_arrow(filter="id = 2").to_pylist() == [row]


@pytest.mark.parametrize("name", ["b.jsonl", "b.csv"])
@pytest.mark.parametrize("value", [None, 5])
def test_a_column_of_nulls_of_the_table_says_nothing_of_what_a_file_has(
    tmp_path: Path, landing: Path, name: str, value: int | None
) -> None:
    """As Parquet has them: what a file has instead is for merge_schema."""
    mc.write(pa.table({"id": [1], "note": pa.nulls(1)}), tmp_path / "t")
    text = "id,note\n2," + ("" if value is None else str(value)) + "\n"
    put(landing, name, text if name == "b.csv" else json.dumps({"id": 2, "note": value}))
    if value is not None:
        with pytest.raises(SchemaMismatchError, match=r"'note' is void in the table and long in the data.*merge_schema"):
            mc.load(mc.sources.files(landing), tmp_path / "t")
    mc.load(mc.sources.files(landing), tmp_path / "t", merge_schema=True)
    assert mc.Table(tmp_path / "t").to_arrow().sort_by("id").column("note").to_pylist() == [None, value]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_column_may_be_declared_as_nulls(tmp_path: Path, landing: Path, name: str) -> None:
    put(landing, name, "id,note\n1,\n" if name == "a.csv" else '{"id": 1, "note": null}')
    schema = pa.schema([("id", pa.int64()), ("note", pa.null())])
    mc.load(mc.sources.files(landing, schema=schema, csv_options={"column_types": {"note": pa.null()}}), tmp_path / "t")
    assert mc.Table(tmp_path / "t").to_arrow().to_pylist() == [{"id": 1, "note": None}]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize("given", [{}, {"schema": pa.schema([("id", pa.int64())])}, {"file_column": "_file"}])
def test_a_name_of_a_column_that_is_no_text_is_a_broken_file(tmp_path: Path, landing: Path, name: str, given: Any) -> None:
    put(landing, name, b"id,n\xe9\n1,2\n" if name == "a.csv" else b'{"id": 1, "n\xe9": 2}\n')
    with pytest.raises(SourceError, match=rf"{name}: .*0xe9.*max_errors=1"):
        mc.load(mc.sources.files(landing, **given), tmp_path / "t")


@pytest.mark.parametrize("data", [b'{"n\xe9": 1}', b'{"o": {"n\xe9": 1}}', b'{"o": [{"n\xe9": 1}]}'])
def test_data_with_a_name_that_is_no_text_is_refused(tmp_path: Path, data: bytes) -> None:
    """By whatever door. [SC1]"""
    from pyarrow import json as arrow_json

    rows = arrow_json.read_json(io.BytesIO(data))
    mc.create_table(tmp_path / "t", pa.schema([("id", pa.int64())]))
    for refused in (
        lambda: mc.write(rows, tmp_path / "new"),
        lambda: mc.write(rows, tmp_path / "t", merge_schema=True),
        lambda: mc.create_table(tmp_path / "new", rows.schema),
        lambda: mc.Table(tmp_path / "t").merge(rows, on="id"),
    ):
        with pytest.raises(SchemaMismatchError, match=r"A name or zone is not UTF-8: b'n\\xe9'"):
            refused()


def test_a_file_that_is_not_of_the_given_encoding_is_named(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "id\n1\n")
    with pytest.raises(SourceError, match=r"a\.csv: UTF-16 stream does not start with BOM.*max_errors=1"):
        mc.load(mc.sources.files(landing, csv_options={"encoding": "utf-16"}), tmp_path / "t")


def test_columns_of_tsv_are_parted_by_tabs(tmp_path: Path, landing: Path) -> None:
    """Unless something else is said."""
    put(landing, "a.tsv", "id\tnote\n1\tx,y\n")
    mc.load(mc.sources.files(landing), tmp_path / "t")
    assert mc.Table(tmp_path / "t").to_arrow().to_pylist() == [{"id": 1, "note": "x,y"}]
    put(landing, "b.TSV", "id;note\n2;z\n")
    mc.load(mc.sources.files(landing, csv_options={"delimiter": ";"}), tmp_path / "t")
    assert ids(tmp_path / "t") == [1, 2]


def test_a_time_that_no_table_can_hold_is_no_error(tmp_path: Path, landing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some disks have them."""
    listed = LocalStore.list

    def aged(self: Any, *given: Any, **how: Any) -> Any:
        for file in listed(self, *given, **how):
            yield msgspec.structs.replace(file, modified=1e12 if file.name == "a.csv" else -1e12) if file.name.endswith(".csv") else file

    monkeypatch.setattr(LocalStore, "list", aged)
    put(landing, "a.csv", "id\n1\n")
    put(landing, "b.csv", "id\n2\n")
    mc.load(mc.sources.files(landing, settle="0s"), tmp_path / "t")
    assert [time.year for time in mc.Table(tmp_path / "t.files").to_arrow().sort_by("name").column("modified").to_pylist()] == [9999, 1]


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("a.csv", f"id,note\n1,{'x' * 3_000_000}\n", r"csv_options=\{'block_size'"),
        ("a.jsonl", json.dumps({"id": "x" * 3_000_000}), "a row of JSON has at most 1 MB"),
        ("a.jsonl", '{"id": 1}\n' * 150_000 + '{"id": 2, "late": 3}\n', "not in the file's first MB: add the column, or give schema="),
    ],
)
def test_errors_of_pyarrow_say_what_helps(tmp_path: Path, landing: Path, name: str, text: str, advice: str) -> None:
    put(landing, name, text)
    with pytest.raises(SourceError, match=rf"{name}: .*{advice}"):
        mc.load(mc.sources.files(landing), tmp_path / "t")


def test_folder_markers_are_skipped_and_names_with_an_empty_part_are_errors(tmp_path: Path, rgw: Any) -> None:
    """As consoles make them, on a real S3 server: no other name reaches a file of a table."""
    bucket, options = rgw.bucket(), rgw.storage_options
    store = open_store(f"s3://{bucket}/landing", options)
    store.put("in/a.csv", b"id\n1\n")
    for key, body in (("landing/", b""), ("landing/in/", b""), ("landing/out//", b"")):
        rgw.call("put_object", Bucket=bucket, Key=key, Body=body)
    source = mc.sources.files(f"s3://{bucket}/landing", "csv", storage_options=options)
    assert mc.load(source, tmp_path / "t").rows == 1
    for key in ("landing/in//b.csv", "landing//c.csv", "landing/d.csv/"):
        rgw.call("put_object", Bucket=bucket, Key=key, Body=b"id\n2\n")
        with pytest.raises(SourceError, match=r"has an empty part, and cannot be recorded.*Rename"):
            mc.load(source, tmp_path / "t")
        rgw.call("delete_object", Bucket=bucket, Key=key)
    assert ids(tmp_path / "t") == [1]


@pytest.mark.parametrize("name", ["a\rb.csv", "\x07.csv", "a\nb.csv"])
def test_names_that_a_terminal_would_obey_are_loaded(tmp_path: Path, landing: Path, name: str) -> None:
    put(landing, name, "id\n1\n")
    assert mc.load(mc.sources.files(landing), tmp_path / "t").rows == 1


def test_a_store_tells_contents_apart_that_are_as_long_and_as_old(rgw: Any) -> None:
    """By their ETags, by which the same content that is uploaded again is the same file. [LD3]"""
    store = open_store(f"s3://{rgw.bucket()}/landing", rgw.storage_options)
    seen = []
    for body in (b"id\n1\n", b"id\n2\n", b"id\n1\n"):
        store.put("a.csv", body)
        (info,) = store.list("")
        seen.append(landing_files.content_of(msgspec.structs.replace(info, modified=0.0)))
    assert seen[0] == seen[2] != seen[1]


def test_files_from_the_future_are_named(tmp_path: Path, landing: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They may still grow by the clock of a machine that is behind. [LD3]"""
    put(landing, "a.csv", "id\n1\n")
    put(landing, "late.csv", "id\n2\n", seconds_ago=-3600)
    planned = mc.load(mc.sources.files(landing), tmp_path / "t", dry_run=True).planned
    assert len(planned) == 2 and "time in the future, such as late.csv" in planned[1]
    assert mc.load(mc.sources.files(landing), tmp_path / "t").rows == 1 and "late.csv" in caplog.text
    assert mc.load(mc.sources.files(landing, settle="0s"), tmp_path / "t").rows == 1


def test_a_file_whose_columns_do_not_fit_is_named(tmp_path: Path, landing: Path) -> None:
    put(landing, "a.csv", "id\n1\n")
    put(landing, "b.csv", "id,note\n2,x\n")
    with pytest.raises(SchemaMismatchError, match=r"^b\.csv: .*note"):
        mc.load(mc.sources.files(landing), tmp_path / "t")
    assert mc.load(mc.sources.files(landing), tmp_path / "t", merge_schema=True).rows == 2


def test_rows_of_a_load_are_those_of_its_files(tmp_path: Path, landing: Path) -> None:
    """Also where rows beside them are written anew."""
    put(landing, "a.csv", "id\n1\n")
    put(landing, "b.csv", "id\n2\n3\n")
    source = mc.sources.files(landing, file_column="_file", on_changed="replace")
    assert mc.load(source, tmp_path / "t").rows == 3
    put(landing, "a.csv", "id\n4\n", seconds_ago=50)
    assert mc.load(source, tmp_path / "t").rows == 1
    assert ids(tmp_path / "t") == [2, 3, 4]


class Numbers:
    """The numbers to 5, two a chunk."""

    name = "numbers"

    def chunks(self, positions: Mapping[str, Any], *, max_bytes: int) -> Any:
        start = positions.get(self.name)
        for number in range(start or 0, 6, 2):
            yield Chunk(ranges={self.name: (number or start, number + 2)}, what=f"{number}, {number + 1}")

    def rows(self, chunk: Chunk) -> pa.Table:
        start, end = chunk.ranges[self.name]
        return pa.table({"id": list(range(start or 0, end))})


def test_a_source_that_gives_a_range_again_is_told_at_once(tmp_path: Path) -> None:
    """[LD2]"""

    class Again(Numbers):
        def chunks(self, positions: Mapping[str, Any], *, max_bytes: int) -> Any:
            return iter([Chunk(ranges={self.name: (None, 2)})] * 2)

    with pytest.raises(SourceError, match="numbers is loaded up to 2, and the source gave a chunk from None to 2"):
        mc.load(Again(), tmp_path / "t")
    assert ids(tmp_path / "t") == [0, 1]


def test_a_source_without_tables_beside_replaces_rows(tmp_path: Path) -> None:
    class Last(Numbers):
        def change(self, chunk: Chunk) -> Any:
            return "overwrite_where", {"where": pc.field("id") < chunk.ranges[self.name][1]}

    outcome = mc.load(Last(), tmp_path / "t")
    assert (outcome.rows, outcome.positions, ids(tmp_path / "t")) == (6, {"numbers": 6}, [4, 5])


def test_follows_that_end_in_the_order_in_which_they_began_give_the_signals_back(tmp_path: Path) -> None:
    """[LD6]"""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    rounds = [mc.follow(Numbers(), tmp_path / name, every="1s") for name in "tu"]
    assert [next(each).rows for each in rounds] == [6, 6]
    rounds[0].close()  # type: ignore[attr-defined]
    assert signal.getsignal(signal.SIGINT) not in before
    signal.raise_signal(signal.SIGINT)
    assert list(rounds[1]) == []
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.thorough
def test_a_follow_that_others_outrun_waits_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[LD6]"""
    monkeypatch.setattr(loading, "_LONGEST_WAIT_S", 0.001)
    monkeypatch.setattr(loading, "STARTS", 3)
    left = 4

    class Outrun(Numbers):
        def rows(self, chunk: Chunk) -> pa.Table:
            nonlocal left
            left -= 1
            if left > 0:
                raise ChangedInputError("another loader was faster")
            return super().rows(chunk)

    with pytest.raises(SourceError, match="were faster 3 times"):
        mc.load(Outrun(), tmp_path / "t")
    left = 4
    rounds = mc.follow(Outrun(), tmp_path / "t", every="1s")
    assert next(rounds).rows == 6 and ids(tmp_path / "t") == [0, 1, 2, 3, 4, 5]
    rounds.close()  # type: ignore[attr-defined]


def test_a_source_of_ones_own_is_two_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source: Callable[[], Any] = Numbers
    outcome = mc.load(source(), tmp_path / "t")
    assert (outcome.chunks, outcome.positions, ids(tmp_path / "t")) == (3, {"numbers": 6}, [0, 1, 2, 3, 4, 5])
    assert mc.load(source(), tmp_path / "t").chunks == 0
    with pytest.raises(UsageError, match="invalid source 'numbers': expected a source"):
        mc.load("numbers", tmp_path / "t")  # type: ignore[arg-type]
    for wrong, kind in ((lambda *_, **__: 5, "int"), (lambda *_, **__: iter([(0, 1)]), "tuple")):
        monkeypatch.setattr(Numbers, "chunks", wrong)
        with pytest.raises(UsageError, match=rf"Numbers\.chunks yields sources\.Chunk, not {kind}"):
            mc.load(source(), tmp_path / "t")


def test_a_folder_that_is_not_there_is_no_empty_one(tmp_path: Path) -> None:
    """A typo in a schedule would load nothing for ever. [LD3]"""
    (tmp_path / "file").touch()
    for name, told in (("none", "there is no such folder"), ("file", "it is a file")):
        with pytest.raises(SourceError, match=rf"{name}: {told}; nothing was loaded"):
            mc.load(mc.sources.files(tmp_path / name), tmp_path / "t")
    (tmp_path / "empty").mkdir()
    assert mc.load(mc.sources.files(tmp_path / "empty"), tmp_path / "t").chunks == 0


def test_a_plan_beside_a_faster_loader_is_made_again(landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[LD3] It writes nothing, so nothing speaks against asking again."""
    put(landing, "a.csv", "id\n1\n")
    real, met = loading._Loader.positions, []

    def positions(self: Any) -> dict[str, Any]:
        found = real(self)
        if not met:
            met.append(1)
            mc.load(mc.sources.files(landing), tmp_path / "t")
        return found

    mc.load(mc.sources.files(landing), tmp_path / "t")
    put(landing, "b.csv", "id\n2\n")
    monkeypatch.setattr(loading._Loader, "positions", positions)
    assert mc.load(mc.sources.files(landing), tmp_path / "t", dry_run=True).planned == ()
    assert met
