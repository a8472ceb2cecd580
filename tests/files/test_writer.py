"""Rows become Parquet files: what a task writes, what it says of it, and what it leaves when it fails."""

import errno
import gc
import hashlib
import itertools
import os
import pickle
import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.export.kinds import whole_numbers
from tests.kit.tables import memory

import manifestcommit as mc
from manifestcommit.errors import ManifestCommitError, SchemaMismatchError, StoreError, UsageError
from manifestcommit.files import writer as files
from manifestcommit.files.writer import SAMPLE_ROWS, DataFileWriter, WritePlan
from manifestcommit.format.entries import Entry
from manifestcommit.format.fields import ArrayType, Field, Schema, StructType
from manifestcommit.format.values import arrow_schema, arrow_type, from_arrow
from manifestcommit.store.local import LocalStore, MemoryStore

JOB = f"v1-{'7' * 16}-{'a' * 32}"
ATTEMPT = "0123456789abcdef"


def schema_of(data: pa.Schema) -> Schema:
    ids = itertools.count(1)
    return from_arrow(data, lambda: next(ids))


def plan_for(store: Any, schema: Schema, *names: str, **options: Any) -> WritePlan:
    ids = {field.name: field.id for field in schema.fields}
    return WritePlan(url=store.url, job=JOB, schema=schema, partition_by=tuple(ids[name] for name in names), **options)


def write(store: Any, plan: WritePlan, batches: Iterable[pa.RecordBatch], task: int = 3) -> tuple[Entry, ...]:
    with DataFileWriter(store, plan, task=task, attempt=ATTEMPT) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


def read(store: Any, entry: Entry) -> pa.Table:
    with store.open_input(entry.path) as stream:
        return pq.ParquetFile(stream).read()


def footer(store: Any, entry: Entry) -> Any:
    with store.open_input(entry.path) as stream:
        return pq.ParquetFile(stream).metadata


def check_told_exactly(store: Any, entries: Sequence[Entry]) -> None:
    """Rows, bytes and digest of every entry are those of its file, and no other file is there. [DF3]"""
    assert sorted(info.name for info in store.list("")) == sorted(entry.path for entry in entries)
    for entry in entries:
        data = store.get(entry.path)
        assert entry.bytes == len(data)
        assert entry.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert entry.rows == footer(store, entry).num_rows == read(store, entry).num_rows
        assert entry.job == JOB


# --- rows in, rows out ----------------------------------------------------------------------------------------------------
HOSTILE = st.one_of(
    st.none(),
    st.sampled_from(["", " ", "a b", "a/b", "..", ".", "%", "%2F", "+", "=", "a=b", "#", "?", "'", '"', "\\", "\n", "\x00", "ü", "日本"]),
    st.sampled_from(["😀", "__HIVE_DEFAULT_PARTITION__", "_manifest", "x" * 300, "ü" * 200, "\U0010ffff" * 70]),
    st.text(max_size=8),
)


@pytest.mark.thorough
@given(
    batches=st.lists(st.lists(st.tuples(HOSTILE, st.none() | st.booleans()), max_size=12), max_size=5),
    partitioned=st.sampled_from([(), ("p",), ("q", "p")]),
)
def test_every_row_is_in_one_file_of_its_partition_in_order(
    batches: list[list[tuple[str | None, bool | None]]], partitioned: tuple[str, ...]
) -> None:
    """No hostile partition value loses, doubles, moves or reorders a row. [DF3] [DF4] [LY1]"""
    fields = Field(id=9, name="p", type="string"), Field(id=8, name="q", type="boolean"), Field(id=7, name="n", type="long")
    schema = Schema(fields=fields)
    store = memory()
    serial = itertools.count()
    expected: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    given_batches = []
    for batch in batches:
        numbers = [next(serial) for _ in batch]
        for (p, q), n in zip(batch, numbers, strict=True):
            expected[tuple({"p": p, "q": q}[name] for name in partitioned)].append(n)
        p_column, q_column = pa.array([p for p, _ in batch], pa.string()), pa.array([q for _, q in batch], pa.bool_())
        given_batches.append(pa.record_batch([p_column, q_column, pa.array(numbers, pa.int64())], names=["p", "q", "n"]))
    entries = write(store, plan_for(store, schema, *partitioned), given_batches)
    check_told_exactly(store, entries)
    found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for entry in entries:
        table = read(store, entry)
        found[entry.partition] += table.column("n").to_pylist()
        for name, value in zip(partitioned, entry.partition, strict=True):
            assert set(table.column(name).to_pylist()) == {value}
    assert found == expected


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, "x", ""])), max_size=8), max_size=6), st.integers(1, 400))
def test_order_survives_a_full_buffer(batches: list[list[tuple[int, str | None]]], budget: int) -> None:
    """Whatever the buffer does when it is full, each partition's rows come out once and in order. [DF3]"""
    patch = pytest.MonkeyPatch()
    with patch.context() as context:
        context.setattr(files, "BUFFER_BYTES", budget)
        context.setattr(files, "_MAX_BATCHES", 3)
        context.setattr(files, "_MAX_JOINED_APART", 2)
        columns = [files.PartitionSource(*each) for each in (("p", "integer"), ("s", "string"))]
        buffer = files.RowBuffer(tuple(columns), row_group_bytes=64)
        out: dict[Any, list[int]] = defaultdict(list)
        expected: dict[Any, list[int]] = defaultdict(list)
        serial = itertools.count()
        for batch in filter(None, batches):
            numbers = [next(serial) for _ in batch]
            for key, n in zip(batch, numbers, strict=True):
                expected[key].append(n)
            columns = [pa.array(column) for column in zip(*batch, strict=True)]
            columns[0], columns[1] = columns[0].cast(pa.int32()), columns[1].cast(pa.string())
            for key, table in buffer.add(pa.record_batch([*columns, pa.array(numbers)], names=["p", "s", "n"])):
                out[key] += table.column("n").to_pylist()
            assert buffer.bytes < budget + 64  # a batch here is smaller than a row group
        drained = [(key, table.column("n").to_pylist()) for key, table in buffer.drain()]
        assert len({key for key, _ in drained}) == len(drained)
        for key, numbers in drained:
            out[key] += numbers
        assert out == expected
        assert buffer.bytes == 0


class CountingStore:
    """A store that counts the outputs that are open at a time."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.open = self.most_open = 0
        self.order: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_output(self, name: str) -> Any:
        output = self._inner.create_output(name)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        close = output.close

        def counted() -> None:
            self.open -= not output.closed
            close()
            self.order.append(("durable", name))

        output.close = counted
        return output


# --- names and durability ---------------------------------------------------------------------------------------------------
def test_names_tell_task_attempt_number_and_job(store: MemoryStore) -> None:
    """Two attempts never share a name; folders are layout. [DF1]"""
    batch = pa.record_batch({"p": ["b", "a", "a/b"], "n": [1, 2, 3]})
    plan = plan_for(store, schema_of(batch.schema), "p")
    first = write(store, plan, [batch])
    pattern = re.compile(rf"p=[ab%2F]+/00003-{ATTEMPT}-(\d+)-{JOB}\.parquet")
    matches = [pattern.fullmatch(entry.path) for entry in first]
    assert sorted(match[1] for match in matches if match) == ["0", "1", "2"]
    with DataFileWriter(store, plan, task=3, attempt="f" * 16) as writer:
        writer.write(batch)
        second = writer.close()
    assert not {entry.path for entry in first} & {entry.path for entry in second}
    check_told_exactly(store, [*first, *second])


def test_close_returns_after_every_file_is_durable(tmp_path: Any) -> None:
    """Nothing is there under its name before `close`, everything after it. [DF2]"""
    store = CountingStore(LocalStore(str(tmp_path)))
    batch = pa.record_batch({"p": ["a", "b"], "n": [1, 2]})
    writer = DataFileWriter(store, plan_for(store, schema_of(batch.schema), "p"), task=0, attempt=ATTEMPT)
    writer.write(batch)
    assert list(store.list("")) == []
    entries = writer.close()
    assert writer.close() is entries
    assert sorted(name for _, name in store.order) == sorted(entry.path for entry in entries)
    assert store.open == 0
    check_told_exactly(store, entries)


def test_no_rows_make_no_file(store: MemoryStore) -> None:
    """An empty task has no files, and that is no error. [DF3]"""
    batch = pa.record_batch({"n": pa.array([], pa.int64())})
    plan = plan_for(store, schema_of(batch.schema), "n")
    assert write(store, plan, []) == ()
    assert write(store, plan, [batch, batch]) == ()
    assert list(store.list("")) == []


def test_a_discarded_attempt_leaves_nothing_and_deletes_nothing(tmp_path: Any) -> None:
    """An exception in the block gives up; the files of others stay. [AB2]"""
    store = LocalStore(str(tmp_path))
    batch = pa.record_batch({"p": ["a", "b"], "n": [1, 2]})
    plan = plan_for(store, schema_of(batch.schema), "p")
    kept = write(store, plan, [batch])
    writer = DataFileWriter(store, plan, task=4, attempt="e" * 16)

    def fail_midway() -> None:
        with writer:
            writer.write(batch)
            writer._files.write(("a",), pa.Table.from_batches([writer._conformer.conform(batch)]), {})  # a file that is open
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_midway()
    check_told_exactly(store, kept)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == len(kept)  # no temporary file either
    with pytest.raises(ManifestCommitError, match="discarded"):
        writer.close()
    with pytest.raises(ManifestCommitError, match="discarded"):
        writer.write(batch)


@pytest.mark.parametrize("in_background", [False, True])
def test_a_writer_that_nobody_holds_any_more_completes_nothing(in_background: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow closes what it wrote to. [DF2]"""
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 10)
    store = memory()
    batch = pa.record_batch({"n": list(range(100))})
    writer = DataFileWriter(store, plan_for(store, schema_of(batch.schema)), task=0, attempt=ATTEMPT, in_background=in_background)
    writer.write(batch)
    del writer
    gc.collect()
    assert list(store.list("")) == []


@pytest.mark.parametrize("in_background", [False, True])
def test_a_refused_batch_gives_the_attempt_up(in_background: bool, store: MemoryStore) -> None:
    """After a null in a non-nullable column no entry comes out, not even of the rows before. [DF3] [SC3]"""
    schema = Schema(fields=(Field(id=1, name="n", type="long", nullable=False),))
    writer = DataFileWriter(store, plan_for(store, schema), task=0, attempt=ATTEMPT, in_background=in_background)
    writer.write(pa.record_batch({"n": [1]}))
    with pytest.raises(SchemaMismatchError, match="'n'"):
        writer.write(pa.record_batch({"n": pa.array([None], pa.int64())}))
    with pytest.raises(ManifestCommitError):
        writer.close()
    assert list(store.list("")) == []


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("failing", ["write", "close"])
@pytest.mark.parametrize("error", [OSError("disk full"), StoreError("refused")])
def test_a_store_that_fails_is_a_store_error_that_names_the_file(failing: str, error: Exception, in_background: bool) -> None:
    """A file that did not become durable is never listed. [DF2]"""
    store = memory()
    create = store.create_output

    def broken(name: str) -> Any:
        output = create(name)

        def fail(*_: Any) -> Any:
            raise error

        setattr(output, failing, fail)
        return output

    store.create_output = broken  # type: ignore[method-assign]  # the fault that is tested
    batch = pa.record_batch({"n": [1, 2]})
    writer = DataFileWriter(store, plan_for(store, schema_of(batch.schema)), task=0, attempt=ATTEMPT, in_background=in_background)
    writer.write(batch)
    with pytest.raises(StoreError) as caught:
        writer.close()
    assert "refused" in str(caught.value) or f"{store.url}/00000-{ATTEMPT}-0-{JOB}.parquet" in str(caught.value)
    with pytest.raises(ManifestCommitError, match="discarded"):  # the rows are gone: never () as if there had been none
        writer.close()
    assert list(store.list("")) == []


@pytest.mark.parametrize("names", [(), ("p",)], ids=str)
@pytest.mark.parametrize("target", [1, 1 << 30])
def test_files_are_the_same_whether_their_row_groups_are_encoded_beside_their_making_or_not(
    names: tuple[str, ...], target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[DF2] [DF3]"""
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 50)
    batches = [pa.record_batch({"p": [f"{i % 3}" for i in range(n)], "x": [i / 7 for i in range(n)]}) for n in (40, 70, 1, 0, 300)]
    written = []
    for in_background in (False, True):
        store = memory()
        plan = plan_for(store, schema_of(batches[0].schema), *names, target_file_size=target)
        with DataFileWriter(store, plan, task=3, attempt=ATTEMPT, in_background=in_background) as writer:
            for batch in batches:
                writer.write(batch)
            entries = writer.close()
        check_told_exactly(store, entries)
        written.append({entry.path: store.get(entry.path) for entry in entries})
    assert written[0] == written[1] and (len(written[0]) > 1) == bool(names or target == 1)


def test_an_error_of_a_row_group_ends_the_attempt_at_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are lost, and nothing comes out. [DF2] [DF3]"""
    monkeypatch.setattr(files, "ROW_GROUP_ROWS", 10)
    store = memory()

    def refused(name: str) -> Any:
        raise StoreError("refused")

    store.create_output = refused  # type: ignore[method-assign]  # the fault that is tested
    batch = pa.record_batch({"n": list(range(10))})
    writer = DataFileWriter(store, plan_for(store, schema_of(batch.schema)), task=0, attempt=ATTEMPT, in_background=True)
    writer.write(batch)
    with pytest.raises(StoreError, match="refused"):
        writer.write(batch)
    with pytest.raises(ManifestCommitError, match="discarded"):
        writer.close()


def test_a_store_that_takes_half_a_write_is_an_error(store: MemoryStore) -> None:
    """A short write never becomes a file that is listed. [DF2] [DF3]"""
    create = store.create_output

    def short(name: str) -> Any:
        output = create(name)
        whole = output.write
        output.write = lambda data: whole(data[: len(data) // 2])  # type: ignore[method-assign]  # the fault that is tested
        return output

    store.create_output = short  # type: ignore[method-assign]  # the fault that is tested
    batch = pa.record_batch({"n": [1, 2]})
    with pytest.raises(StoreError, match="took"):
        write(store, plan_for(store, schema_of(batch.schema)), [batch])
    assert list(store.list("")) == []


# --- how files look ---------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
def test_small_batches_make_full_row_groups(store: MemoryStore) -> None:
    """10,000-row batches do not become 10,000-row groups. [DF3]"""
    batches = [pa.record_batch({"n": pa.array(range(at, at + 10_000), pa.int64())}) for at in range(0, 2_500_000, 10_000)]
    (entry,) = write(store, plan_for(store, schema_of(batches[0].schema)), batches)
    metadata = footer(store, entry)
    assert [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)] == [1_000_000, 1_000_000, 500_000]
    assert read(store, entry).column("n").to_pylist() == list(range(2_500_000))


def test_row_groups_are_bounded_in_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One large batch becomes several row groups of about the limit."""
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 1 << 20)
    store = memory()
    batch = pa.record_batch({"s": pa.array([f"{n:>100}" for n in range(50_000)])})
    (entry,) = write(store, plan_for(store, schema_of(batch.schema)), [batch])
    metadata = footer(store, entry)
    sizes = [metadata.row_group(at).num_rows * 104 for at in range(metadata.num_row_groups)]
    assert len(sizes) >= 4
    assert max(sizes) <= 1.5 * (1 << 20)
    assert read(store, entry).column("s").to_pylist() == batch.column("s").to_pylist()


def incompressible(count: int) -> pa.RecordBatch:
    source = random.Random(1)
    return pa.record_batch({"n": pa.array([source.getrandbits(63) for _ in range(count)], pa.int64())})


def test_files_roll_over_near_the_target_size(store: MemoryStore) -> None:
    """Files are about the target size, none far above it, and together hold the rows in order. [DF3]"""
    batch = incompressible(200_000)
    entries = write(store, plan_for(store, schema_of(batch.schema), target_file_size=256 * 1024), batch_slices(batch, 1_000))
    assert len(entries) >= 5
    assert all(entry.bytes <= 1.5 * 256 * 1024 for entry in entries)
    assert all(entry.bytes >= 0.4 * 256 * 1024 for entry in entries[:-1])
    found = [n for entry in sorted(entries, key=number) for n in read(store, entry).column("n").to_pylist()]
    assert found == batch.column("n").to_pylist()
    check_told_exactly(store, entries)


def number(entry: Entry) -> int:
    return int(entry.path.rpartition("/")[2].split("-")[2])


def batch_slices(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, batch.num_rows, size):
        yield batch.slice(at, size)


def test_a_file_has_ids_statistics_page_index_zstd_and_sparks_schema() -> None:
    """A data file carries physical names, field ids at every depth, everything nullable, and Spark's schema. [DF5]"""
    schema = Schema(
        fields=(
            Field(id=11, name="new", physical="old", type="decimal(12,2)", nullable=False),
            Field(id=12, name="s", type=StructType(fields=(Field(id=13, name="inner", type="string", nullable=False),)), nullable=False),
            Field(id=14, name="a", type=ArrayType(element=Field(id=15, name="element", type="float"))),
        )
    )
    store = memory()
    logical = arrow_schema(schema, physical=False, ids=False)
    batch = pa.RecordBatch.from_pylist([{"new": Decimal("1.20"), "s": {"inner": "x"}, "a": [1.5, None]}], schema=logical)
    (entry,) = write(store, plan_for(store, schema), [batch])
    with store.open_input(entry.path) as stream:
        file = pq.ParquetFile(stream)
        assert file.schema_arrow.names == ["old", "s", "a"]
        assert file.schema_arrow.equals(arrow_schema(schema, physical=True), check_metadata=True) or all(
            found.equals(wanted, check_metadata=True)
            for found, wanted in zip(file.schema_arrow, arrow_schema(schema, physical=True), strict=True)
        )
        assert b"org.apache.spark.sql.parquet.row.metadata" in file.metadata.metadata and file.metadata.format_version == "2.6"
        for column in (file.metadata.row_group(0).column(at) for at in range(file.metadata.num_columns)):
            assert (column.compression, column.has_offset_index) == ("ZSTD", True)
            # Footers bound floats without NaN, and readers would prune by that: those have none.
            assert column.is_stats_set == column.has_column_index == (column.physical_type not in ("FLOAT", "DOUBLE"))
        assert file.schema.column(0).physical_type == "INT64"


# --- the plan -----------------------------------------------------------------------------------------------------------
def test_a_plan_travels_as_pickle_and_as_json() -> None:
    """Spark's tasks get the plan that the caller made, and it holds no secret. [DF1]"""
    schema = schema_of(pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.list_(pa.string()))]))]))
    plan = WritePlan(url="file:///t", job=JOB, schema=schema, partition_by=(1,), target_file_size=5, bounds_columns=3, bloom_columns=(1,))
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert msgspec.json.decode(msgspec.json.encode(plan), type=WritePlan) == plan
    known = "url job schema partition_by target_file_size bounds_columns bloom_columns sources shared constraints"
    assert set(plan.__struct_fields__) == set(known.split())


def test_a_target_size_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="target_file_size"):
        WritePlan(url="file:///t", job=JOB, schema=Schema(fields=()), target_file_size=0)


@pytest.mark.parametrize("type", ["string", "binary", "integer", "variant", "interval day to second", "void"])
def test_a_column_of_nulls_only_is_written(type: str) -> None:
    """A column that the data lacks is null in the file, whatever its type. [DF5]"""
    schema = Schema(fields=(Field(id=1, name="n", type="long"), Field(id=2, name="missing", type=type)))
    store = memory()
    (entry,) = write(store, plan_for(store, schema), [pa.record_batch({"n": [1, 2]})])
    assert read(store, entry).column("missing").null_count == 2
    assert read(store, entry).schema.field("missing").type == arrow_type(type)


class SlowStore(LocalStore):
    """Whose files get their names late. ended: those that have; fails: the number of one that does not."""

    def __init__(self, root: str, *, fails: int = -1) -> None:
        super().__init__(root)
        self.ended: list[str] = []
        self.fails, self._begun = fails, 0

    def create_output(self, name: str) -> Any:
        output: Any = super().create_output(name)
        close, number = output.close, self._begun
        self._begun += 1

        def slowly() -> None:
            time.sleep(0.004)
            if number == self.fails:
                raise OSError(errno.EIO, "Input/output error")
            close()
            self.ended.append(name)

        output.close = slowly  # type: ignore[method-assign]  # of this one output
        return output


MANY = pa.table({"part": [number % 90 for number in range(270)], "v": range(270)})


def test_files_of_many_partitions_are_durable_when_they_are_reported(tmp_path: Any) -> None:
    """Though they become so side by side. [DF2] [DF3]"""
    store = SlowStore(str(tmp_path))
    entries = write(store, plan_for(store, schema_of(MANY.schema), "part"), MANY.to_batches(max_chunksize=40))
    assert sorted(store.ended) == [entry.path for entry in entries] and len(entries) == 90
    check_told_exactly(store, entries)
    assert pa.concat_tables([read(store, entry) for entry in entries]).sort_by("v").equals(MANY)


@pytest.mark.parametrize("number", [0, 40, 89])
def test_a_file_that_cannot_be_made_durable_ends_the_attempt(tmp_path: Any, number: int) -> None:
    """No thread goes on behind it, and no file that is not whole is left. [DF2] [AB2]"""
    store, before = SlowStore(str(tmp_path), fails=number), threading.active_count()
    with pytest.raises(StoreError, match=r"could not be written: .*Input/output error"):
        write(store, plan_for(store, schema_of(MANY.schema), "part"), MANY.to_batches())
    ended = list(store.ended)
    assert threading.active_count() == before
    time.sleep(0.01)
    assert store.ended == ended and sorted(info.name for info in store.list("")) == sorted(ended)
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.startswith(".mc-tmp-")]


# --- dictionaries that will be given up ---------------------------------------------------------------------------------
def rows(count: int) -> pa.Table:
    few = [f"a rather long text of which there are few, {n % 50}" for n in range(count)]
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()), "few": few,
            "sparse": pa.array([n if n % 100 == 0 else None for n in range(count)], pa.int64()), "none": pa.nulls(count, pa.string()),
            "inside": [{"few": text, "many": [text, None]} for text in few],
            "pairs": pa.array([[("k", text)] for text in few], pa.map_(pa.string(), pa.string())), "a.b": few,
        }
    )  # fmt: skip


def encodings(file: Path) -> dict[str, str]:
    chunk, kinds = pq.read_metadata(file).row_group(0), ("RLE_DICTIONARY", "DELTA_BINARY_PACKED", "PLAIN")
    columns = [chunk.column(at) for at in range(chunk.num_columns)]
    return {column.path_in_schema: next(kind for kind in kinds if kind in column.encodings) for column in columns}


def dictionaries(file: Path) -> dict[str, bool]:
    return {name: kind == "RLE_DICTIONARY" for name, kind in encodings(file).items()}


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


def test_whole_numbers_without_a_dictionary_are_written_by_their_differences(tmp_path: Path) -> None:
    """[DF12] Those that Parquet stores as integers, at the top; a name with a dot may be the name of a member, too."""
    data: Any = whole_numbers()
    more = {"text": [str(n) for n in range(200)], "double": [n / 7 for n in range(200)], "large": data["c5"].cast(pa.decimal128(38))}
    mc.write(data, tmp_path / "t")
    mc.write(pa.table({**more, "day": [1] * 200, "a.b": range(200), "a": [{"b": text} for text in more["text"]]}), tmp_path / "u")
    (file,), (other,) = ((tmp_path / name).glob("*.parquet") for name in "tu")
    assert set(encodings(file)) == set(data.column_names) and set(encodings(file).values()) == {"DELTA_BINARY_PACKED"}
    assert set(encodings(other).values()) == {"PLAIN", "RLE_DICTIONARY"}
    assert mc.Table(tmp_path / "t").to_arrow().equals(data)


def test_few_rows_speak_for_files_of_as_many_only(tmp_path: Path) -> None:
    """What a file of twenty rows lacks others have, where thousands repeat a value; of one row a dictionary is larger than the value."""
    parts, values = ["a"] * 20 + ["b"] * 10_000 + ["c"], [n % 20 for n in range(10_021)]
    mc.write(pa.table({"part": parts, "v": values}), tmp_path / "t", partition_by="part")
    few, many, one = sorted((tmp_path / "t").rglob("*.parquet"))
    assert dictionaries(few) == {"part": True, "v": False} and all(dictionaries(many).values()) and not any(dictionaries(one).values())


def test_a_file_is_smaller_than_with_a_dictionary_that_was_given_up(tmp_path: Path) -> None:
    """[DF12] Of more values than a dictionary's page holds, those until then would be written as numbers of entries, and as entries too."""
    data: Any = pa.table({"id": pa.array(range(300_000), pa.int64())})
    mc.write(data, tmp_path / "t")
    (file,) = (tmp_path / "t").glob("*.parquet")
    pq.write_table(data, tmp_path / "with", compression="zstd", compression_level=3, write_page_index=True)
    assert file.stat().st_size < 0.02 * (tmp_path / "with").stat().st_size
