"""Huge tables without a single data file: manifests made column by column, and the commits that list them.

What is made looks as if jobs had written it: digests and job ids are random, so they do not compress; five columns have bounds; each
partition is a day, and the files of a day stand together. Millions of entries take seconds, since none of them is ever a Python object.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import manifestcommit as mc
from manifestcommit.commits.commit_loop import commit
from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Advance, Write
from manifestcommit.format.entries import ManifestRef
from manifestcommit.format.fields import Partitioned, Schema, leaves
from manifestcommit.format.manifest_table import FIXED
from manifestcommit.format.values import arrow_type
from manifestcommit.log.manifests import put_manifest
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import Head
from manifestcommit.runtime.environment import Env
from manifestcommit.runtime.outcome import committed_or_raise
from manifestcommit.store import Store

# Five columns with bounds: one that grows with the files, the others all over the place.
SCHEMA = pa.schema(
    [
        ("day", pa.int32()),
        ("id", pa.int64()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        ("code", pa.int32()),
    ]
)
COLUMNS = ("id", "price", "at", "name", "code")
MANIFEST_FILES = 65_536
ROWS = 1_000_000
DATA_BYTES = 128 << 20


def make_table(
    store: Store, files: int, *, partitions: int = 1_000, sources: int = 0, manifest_files: int = MANIFEST_FILES, shuffled: bool = False
) -> Head:
    """A new table at the store's root with so many files, in one commit after its creation; its head.

    manifest_files: entries of a manifest; sources: how many watermarks it has; shuffled: the files of a partition are all over the
    manifests, as many small commits leave them.
    """
    session = made_up_session(store)
    head = session.open()
    job = session.new_job(head)
    change = append(head, job, refs=tuple(put_manifests(session, head, job, files, partitions, manifest_files, shuffled)), sources=sources)
    committed_or_raise(commit(session, head, change), store.url)
    return session.open()


def made_up_session(store: Store, partition_by: str | None = "day") -> TableContext:
    """An empty table of these columns, and a session on it."""
    mc.create_table(store.url, SCHEMA, partition_by=[partition_by] if partition_by else [])
    return TableContext(store)


def append(head: Head, job: str, *, refs: tuple[ManifestRef, ...] = (), sources: int = 0) -> Write:
    """A change that lists manifests and has read so many sources for the first time."""
    snapshot = head.snapshot
    return Write(
        job=job,
        birth=head.version,
        operation="append",
        schema=snapshot.schema,
        partition_by=snapshot.partition_by,
        add_manifests=refs,
        advances=tuple(Advance(source=f"orders/partition-{n:05d}", start=0, end=10**6 + 2_654_435_761 * n % 10**9) for n in range(sources)),
    )


def put_manifests(
    session: TableContext, head: Head, job: str, files: int, partitions: int, manifest_files: int = MANIFEST_FILES, shuffled: bool = False
) -> Iterator[ManifestRef]:
    """References to new manifests of the job, with so many entries together."""
    schema, partition_by = head.snapshot.schema, head.snapshot.partition_by
    numbers = np.random.default_rng(7).permutation(files) if shuffled else np.arange(files)
    for start in range(0, files, manifest_files):
        table = entries(numbers[start : start + manifest_files], schema, job, files=files, partitions=partitions)
        yield put_manifest(session.store, table, Partitioned(schema, partition_by), job=job, env=Env())


def entries(numbers: np.ndarray, schema: Schema, job: str, *, files: int, partitions: int) -> pa.Table:
    """The files with these numbers, of so many in all, as a manifest's table: sorted by day, then path."""
    numbers = np.sort(numbers)
    count = len(numbers)
    days = (numbers * partitions // max(files, 1)).astype("int32")
    rng = np.random.default_rng(int(numbers[0]) if count else 0)
    sizes = (rng.integers(usual // 2, usual, count) for usual in (ROWS, DATA_BYTES))
    table = listed(paths(days, numbers, job), days, *sizes, job=job, schema=schema)
    columns: dict[str, pa.Array] = {}
    for leaf in leaves(schema):
        name = leaf.path[0]
        if name in COLUMNS:
            low, high = bounds(name, numbers, rng)
            kind = arrow_type(leaf.type)
            columns[f"nulls.{leaf.id}"] = pa.array(np.zeros(count, "int64"))
            columns[f"nans.{leaf.id}"] = pa.array(np.zeros(count, "int64")) if name == "price" else pa.nulls(count, pa.int64())
            columns[f"min.{leaf.id}"], columns[f"max.{leaf.id}"] = low.cast(kind), high.cast(kind)
            columns[f"cuts.{leaf.id}"] = pa.array(np.zeros(count, "int8"))
    for column, values in columns.items():
        table = table.append_column(column, values)
    return table


def listed(paths: pa.Array, days: np.ndarray, rows: np.ndarray, data_bytes: np.ndarray, *, job: str, schema: Schema) -> pa.Table:
    """Files of these names in these partitions of `day`, which are sorted, without bounds."""
    count = len(days)
    known = {
        "path": paths,
        "rows": pa.array(rows, pa.int64()),
        "bytes": pa.array(data_bytes, pa.int64()),
        "digest": with_prefix("sha256:", random_hex(count, 32)),
        "job": repeated(job, count),
    }
    columns = {name: known[name] if name in known else pa.nulls(count, kind) for name, kind in FIXED}
    day = next(field for field in schema.fields if field.name == "day")
    return pa.table(columns).append_column(f"partition.{day.id}", pa.array(days, pa.int32()))


def bounds(name: str, numbers: np.ndarray, rng: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    """Smallest and largest value of a column in each file."""
    count = len(numbers)
    if name == "id":  # each file has its own range, as a table has that is written in order
        return pa.array(numbers * ROWS), pa.array((numbers + 1) * ROWS - 1)
    if name == "at":
        low = 1_700_000_000_000_000 + numbers.astype("int64") * 60_000_000 + rng.integers(0, 10**7, count)
        return pa.array(low, pa.int64()), pa.array(low + rng.integers(10**6, 10**8, count), pa.int64())
    if name == "name":
        return with_prefix("a", random_hex(count, 6)), with_prefix("z", random_hex(count, 6))
    low = rng.integers(0, 1000, count)
    return pa.array(low), pa.array(low + rng.integers(1000, 100_000, count))


# --- columns of text, without a loop over rows ------------------------------------------------------------------------------


def paths(days: np.ndarray, numbers: np.ndarray, job: str) -> pa.Array:
    """Names as tasks give them."""
    return joined("day=", pa.array(days).cast(pa.string()), "/", digits(numbers), "-", random_hex(len(days), 8), f"-0-{job}.parquet")


def digits(numbers: np.ndarray) -> pa.Array:
    """Eight digits each."""
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 8, "0")


def joined(*parts: str | pa.Array) -> pa.Array:
    """Texts and columns side by side."""
    return pc.binary_join_element_wise(*parts, "")


def with_prefix(prefix: str, column: pa.Array) -> pa.Array:
    return joined(prefix, column)


def repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def random_hex(count: int, size_bytes: int) -> pa.Array:
    """Hex digits of random bytes."""
    text = os.urandom(count * size_bytes).hex().encode("ascii")
    offsets = np.arange(count + 1, dtype="int32") * (2 * size_bytes)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def made_up_refs(head: Head, files: int, manifest_files: int) -> tuple[ManifestRef, ...]:
    """References as `put_manifests` returns them, to manifests that nobody has made: what a head is like that lists so many files."""
    job = object_names.job_id(head.version, head.snapshot.table_id, os.urandom(16))
    refs = []
    for start in range(0, files, manifest_files):
        count = min(manifest_files, files - start)
        day = start * 1_000 // files
        first, last = (f"day={day}/{n:08d}-{os.urandom(8).hex()}-0-{job}.parquet" for n in (start, start + count - 1))
        refs.append(
            ManifestRef(
                path=object_names.manifest_name(job, os.urandom(16)),
                files=count,
                rows=count * ROWS - start % 1009,
                data_bytes=count * DATA_BYTES - start % 7919,
                bytes=count * 130 + start % 997,
                digest=codec.digest(os.urandom(16)),
                added=head.version,
                lower=(day,),
                upper=(day + 1,),
                nulls=(False,),
                first_path=first,
                last_path=last,
            )
        )
    return tuple(refs)
