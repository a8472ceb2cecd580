"""Manifests: entries that move out of a snapshot come back as they were, and a wrong manifest is damage, never fewer files."""

import io
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec import golden

from manifestcommit.errors import CorruptMetadataError
from manifestcommit.format import codec, manifest_table, object_names, values
from manifestcommit.format.entries import ColumnStats, Entry, ManifestRef, SourceRange
from manifestcommit.format.fields import Field, Partitioned, Schema
from manifestcommit.log.manifests import ManifestReader, put_manifest, to_parquet
from manifestcommit.runtime.environment import Env
from manifestcommit.store import open_store

PARTITIONS = (golden.DAY, golden.CARRIER)
INT64 = st.integers(-(2**63), 2**63 - 1)

# Every type that may partition a table, and any value that its column can hold.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(), "byte": st.integers(-128, 127), "long": INT64, "string": st.text(max_size=8),
    "date": st.integers(-(2**31), 2**31 - 1).map(lambda days: values.encode(days, "date")), "timestamp": INT64, "timestamp_ntz": INT64,
    "decimal(5,2)": st.decimals(-999, 999, places=2).map(lambda number: values.encode(Decimal(number), "decimal(5,2)")),
}  # fmt: skip
MORE = {
    "float": st.floats(width=32, allow_nan=False).map(lambda number: values.encode(number, "float")),
    "double": st.floats(allow_nan=False).map(lambda number: values.encode(number, "double")),
    "binary": st.binary(max_size=8).map(lambda data: values.encode(data, "binary")),
    "interval day to second": INT64,
}
TYPES = [*VALUES, *MORE]
SCHEMA = Schema(fields=tuple(Field(id=index + 1, name=f"column {index}", type=type) for index, type in enumerate(TYPES)))
IDS = {type: index + 1 for index, type in enumerate(TYPES)}


COUNT = st.none() | st.integers(0, 2**40)
POSITION = INT64 | st.text(max_size=3)


def stats_of(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[ColumnStats]:
    bound, cut = st.none() | strategy, st.booleans()
    return st.builds(ColumnStats, nulls=COUNT, nans=COUNT, min=bound, max=bound, min_cut=cut, max_cut=cut)


def entries_of(partition_types: list[str]) -> st.SearchStrategy[list[Entry]]:
    """Entries of one table, any two with different paths; of each, a few columns are known."""
    stats = st.sampled_from(TYPES).flatmap(lambda type: st.tuples(st.just(IDS[type]), stats_of((VALUES | MORE)[type])))
    entry = st.builds(
        Entry,
        path=st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
        partition=st.tuples(*(st.none() | VALUES[type] for type in partition_types)),
        rows=st.integers(0, 2**40),
        bytes=st.integers(0, 2**40),
        digest=st.none() | st.just("sha256:" + "0" * 64),
        added=st.integers(0, 2**40),
        job=st.just(golden.JOB),
        columns=st.lists(stats, max_size=2).map(lambda known: {each: stats for each, stats in known if stats != ColumnStats()}),
        sources=st.lists(st.builds(SourceRange, source=st.text(max_size=3), start=st.none() | POSITION, end=POSITION), max_size=2).map(
            tuple
        ),
        extra=st.sampled_from([{}, {"later": golden.UNKNOWN}]),
    )
    return st.lists(entry, min_size=1, max_size=4, unique_by=lambda each: each.path)


def by_path(entries: list[Entry]) -> dict[str, Entry]:
    return {entry.path: entry for entry in entries}


PARTITION_TYPES = st.lists(st.sampled_from(list(VALUES)), max_size=3, unique=True)


@pytest.mark.thorough
@given(PARTITION_TYPES.flatmap(lambda types: st.tuples(st.just(types), entries_of(types))))
def test_entries_come_back_from_a_manifest_as_they_were(drawn: tuple[list[str], list[Entry]]) -> None:
    """Years outside Python's, infinities, hostile texts, nulls, members of a later release. [OB13] [OB5] [SC7] [OB12]"""
    types, entries = drawn
    partition_by = [IDS[type] for type in types]
    table = pq.read_table(io.BytesIO(to_parquet(manifest_table.to_table(entries, Partitioned(SCHEMA, partition_by)))))
    again = manifest_table.from_table(table, Partitioned(SCHEMA, partition_by), inherited=7)
    assert by_path(again) == by_path([msgspec.structs.replace(entry, added=entry.added or 7) for entry in entries])


def _with(name: str, column: list[Any], type: pa.DataType | None = None) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.column_names.index(name), name, pa.array(column, type))


WRONG: dict[str, Callable[[pa.Table], pa.Table]] = {
    "an entry less": lambda table: table.slice(1),
    "an entry twice": lambda table: pa.concat_tables([table, table.slice(0, 1)]),
    "no paths": lambda table: table.drop_columns(["path"]),
    "no jobs": lambda table: table.drop_columns(["job"]),
    "no partition column": lambda table: table.drop_columns([f"partition.{golden.DAY}"]),
    "a partition column of another type": _with(f"partition.{golden.DAY}", ["x", "y", "z"]),
    "rows as text": _with("rows", ["1", "2", "3"]),
    "negative rows": _with("rows", [1, -1, 2], pa.int64()),
    "negative bytes": _with("bytes", [1, -1, 2], pa.int64()),
    "a path that is null": _with("path", ["a", None, "b"]),
    "a path above the root": _with("path", ["a", "x/../../b", "c"]),
    "an absolute path": _with("path", ["a", "/etc/passwd", "c"]),
    "a path among the metadata": _with("path", ["a", "_Manifest/hint", "c"]),
    "a path with a backslash": _with("path", ["a", "..\\b", "c"]),
    "a path twice": _with("path", ["a", "a", "c"]),
    "members that are no JSON": _with("extra", ["{", None, None], pa.string()),
    "members that are no object": _with("extra", ["[1]", None, None], pa.string()),
    "minima without maxima": lambda table: table.drop_columns(["max.101"]),
    "minima of another type": _with("min.101", ["a", "b", "c"]),
    "null counts as text": _with("nulls.101", ["a", "b", "c"]),
}


def _stored(data: bytes) -> tuple[ManifestReader, ManifestRef]:
    """A reader over a store whose only manifest has these bytes, and the reference that a hostile head would have to it."""
    store = open_store(f"memory://spec-manifest/{codec.digest(data)}")
    store.put(golden.MANIFEST, data)
    ref = msgspec.structs.replace(golden.manifest_ref(), bytes=len(data), digest=codec.digest(data))
    return ManifestReader(store), ref


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_manifest_is_damage(what: str) -> None:
    """Never a foreign exception, and never a table with fewer files. [OB4] [LY1] [SE2]"""
    reader, ref = _stored(to_parquet(WRONG[what](pq.read_table(io.BytesIO(golden.stored(golden.MANIFEST))))))
    snapshot = msgspec.structs.replace(golden.full(), removed={}, removed_runs=())
    with pytest.raises(CorruptMetadataError, check=lambda error: error.object_name == golden.MANIFEST and golden.MANIFEST in str(error)):
        reader.live(ref, snapshot, 0)


@given(st.integers(0, 13_000), st.integers(1, 255), st.booleans())
def test_a_damaged_manifest_is_told_by_its_digest(at: int, value: int, cut: bool) -> None:
    """[OB4] [OB6]"""
    data = golden.stored(golden.MANIFEST)
    at = min(at, len(data) - 1)
    damaged = data[:at] if cut else data[:at] + bytes([data[at] ^ value]) + data[at + 1 :]
    store = open_store("memory://spec-manifest/damaged")
    store.put(golden.MANIFEST, damaged)
    with pytest.raises(CorruptMetadataError):
        ManifestReader(store).manifest(golden.manifest_ref(), PARTITIONS)


def test_a_missing_manifest_is_damage() -> None:
    """[OB4]"""
    with pytest.raises(CorruptMetadataError, match="missing"):
        ManifestReader(open_store("memory://spec-manifest/empty")).manifest(golden.manifest_ref(), PARTITIONS)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 100])
def test_bytes_that_are_no_parquet_are_damage(data: bytes) -> None:
    """Even if a hostile head lists them with their digest. [OB4]"""
    reader, ref = _stored(data)
    with pytest.raises(CorruptMetadataError):
        reader.manifest(ref, PARTITIONS)


def test_a_manifest_is_written_under_its_jobs_name_and_read_back() -> None:
    """[LY3] [LY8] [OB6]"""
    store = open_store("memory://spec-manifest/written")
    ref = put_manifest(store, golden.LISTED, Partitioned(golden.SCHEMA, PARTITIONS), job=golden.OLD_JOB, env=Env())
    assert ref.path.startswith(f"{object_names.MANIFESTS}{golden.OLD_JOB}-") and ref.digest == codec.digest(store.get(ref.path))
    snapshot = msgspec.structs.replace(golden.full(), removed={}, removed_runs=())
    stamped = msgspec.structs.replace(ref, added=golden.MANIFEST_ADDED)
    expected = [msgspec.structs.replace(entry, added=entry.added or golden.MANIFEST_ADDED) for entry in golden.LISTED]
    assert manifest_table.from_table(ManifestReader(store).live(stamped, snapshot, 0), snapshot, inherited=stamped.added) == expected
