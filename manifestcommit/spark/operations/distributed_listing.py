"""Lists everything below a table path and what its readable versions reach, as one DataFrame that
no process holds as a whole. [GC13]

Tasks list disjoint ranges of names, and read the manifests and versions that list data files; Spark
joins both by name. It is safe if tasks repeat or run late: whatever tasks read is identified by its
digest, so the result is the same each time, or an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from manifestcommit.core.format import codec
from manifestcommit.core.table import object_names
from manifestcommit.core.table.entries import ManifestRef, decode, encode
from manifestcommit.engine.maintenance.reachable_files import ListedObjects, live_paths
from manifestcommit.engine.metadata.table_context import TableContext
from manifestcommit.engine.metadata.version_chain import Head, missing_version, read_object
from manifestcommit.errors import CorruptMetadataError, StoreError
from manifestcommit.spark.runtime.registered_options import StoreSource
from manifestcommit.store import ObjectInfo, Store, open_store
from manifestcommit.store.backends.object_store import ObjectStore
from manifestcommit.store.local.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS = 8192  # in a batch that a task gives to Spark
# names that the driver gets in order to divide the work evenly, and one more for each manifest
_SAMPLED = 1000
NAMES_PER_TASK = 10_000
_SIDE = pa.schema(
    [
        # equal for a data file of ours and its copies in any folder; for other objects the name
        ("alike", pa.binary()),
        ("name", pa.binary()),
        ("bytes", pa.int64()),  # null: the name was listed by a version, not by the store
        ("modified", pa.float64()),
        ("is_reached", pa.bool_()),
        ("is_condemned", pa.bool_()),
    ]
)
_SAID = pa.schema([("said", pa.binary())])


class Manifest(msgspec.Struct, frozen=True, kw_only=True, tag="manifest"):
    """A manifest to read. removed: the entries that no readable version lists any more."""

    ref: ManifestRef
    removed: str


class Version(msgspec.Struct, frozen=True, kw_only=True, tag="version"):
    """A version whose inlined entries are to be read. digest: of the bytes that the driver has
    checked. [IV1]"""

    version: int
    digest: str


class Range(msgspec.Struct, frozen=True, kw_only=True, tag="range"):
    """The names from `start` on and before `end`; an empty `end`: to the last."""

    start: str
    end: str


class Names(msgspec.Struct, frozen=True, kw_only=True, tag="names"):
    """Names that the driver itself knows: of manifests and runs, and of condemned untracked files.
    Never those of data files."""

    names: list[str]
    is_condemned: bool


Item = Manifest | Version | Range | Names


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """How many names a task has read, and some of them."""

    count: int
    names: list[str]


class Sources(ListedObjects):
    """What the readable versions list themselves, and where to read the data files that they reach:
    never the files' names. [GC4]"""

    def __init__(self) -> None:
        super().__init__()
        self.versions: list[Version] = []
        self.files = 0  # number of entries in the sources, with duplicates

    def take(self, session: TableContext, head: Head) -> None:
        super().take(session, head)
        if head.snapshot.added:
            self.versions.append(Version(version=head.version, digest=head.digest))
            self.files += len(head.snapshot.added)

    def work(self) -> list[Manifest | Version]:
        """The items for tasks to read."""
        read: list[Manifest | Version] = [
            Manifest(ref=ref, removed=encode(_own(removed, ref)))
            for ref, removed in self.manifests.values()
        ]
        return read + self.versions

    def count(self) -> int:
        """How many names the tasks must find."""
        return self.files + sum(
            ref.files - _own(removed, ref).bit_count() for ref, removed in self.manifests.values()
        )


class Place:
    """A table path as tasks reach it. Pickled by value if it carries options, and then within the
    task itself. [SE1]"""

    def __init__(self, url: str, carrier: type[StoreSource]) -> None:
        self.url, self.carrier = url, carrier

    def session(self) -> TableContext:
        """Called in a task."""
        return TableContext(open_store(self.url, self.carrier.storage_options))


def encode_name(name: str) -> bytes:
    """A name as Spark compares it; some file systems have names that are not Unicode."""
    return name.encode("utf-8", "surrogateescape")


def decode_name(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def sample(spark: SparkSession, place: Place, sources: Sources) -> list[str]:
    """An even sample of the names that the sources list; StoreError unless tasks read exactly as
    many as the versions say. [GC13]"""
    expected = sources.count()
    stride = max(1, expected // _SAMPLED)
    frame = _work(spark, sources.work()).mapInArrow(partial(_sample, place, stride), "said binary")
    found = [msgspec.json.decode(row.said, type=Sample) for row in frame.collect()]
    if (read := sum(sample.count for sample in found)) != expected:
        raise StoreError(
            f"Spark's tasks read {read} of {expected} entries of {place.url}; gc deleted "
            "nothing. Run it again."
        )
    return [name for sample in found for name in sample.names]


def facts(
    spark: SparkSession,
    place: Place,
    ranges: Sequence[Range],
    sources: Sources,
    condemned: Iterable[str],
) -> DataFrame:
    """Every object below the table path except versions, each once: name, bytes, modified,
    is_reached, is_copy, is_condemned. [GC13]

    Tasks list disjoint ranges, and read what readable versions list. Both are grouped, not joined:
    a join that Spark considers small would send all names through the driver. A file and its copies
    reach the same task.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    items: list[Item] = [
        *ranges,
        *sources.work(),
        *_known(sources.objects, False),
        *_known(condemned, True),
    ]
    both = _work(spark, items).mapInArrow(
        partial(_gather, place),
        (
            "alike binary, name binary, bytes long, modified double, is_reached boolean, "
            "is_condemned boolean"
        ),
    )
    item = (
        both.repartition("alike")
        .groupBy("alike", "name")
        .agg(
            F.max("bytes").alias("bytes"),
            F.max("modified").alias("modified"),
            F.bool_or("is_reached").alias("is_reached"),
            F.bool_or("is_condemned").alias("is_condemned"),
        )
    )
    is_copy = F.bool_or("is_reached").over(Window.partitionBy("alike")) & ~F.col("is_reached")
    return item.withColumn("is_copy", is_copy).drop("alike").where("bytes is not null")


def cut(store: Store, names: Iterable[str], tasks: int) -> list[Range]:
    """At most this many ranges that cover every possible name once, with about as many of `names`
    each. [GC13]

    It cuts where a listing can begin without reading what comes before: at any name, or at the
    beginning of a folder, or nowhere.
    """
    if isinstance(store, LocalStore):
        places = sorted({f"{folder}/" for name in names if (folder := name.rpartition("/")[0])})
    elif isinstance(store, ObjectStore) and store.lists_from_any_name:
        places = sorted(set(names))
    else:
        places = []
    steps = min(tasks - 1, len(places))
    ends = sorted({places[(index + 1) * len(places) // (steps + 1)] for index in range(steps)})
    return [
        Range(start=start, end=end) for start, end in zip(["", *ends], [*ends, ""], strict=True)
    ]


def _own(removed: int, ref: ManifestRef) -> int:
    return removed & ((1 << ref.files) - 1)


def _known(names: Iterable[str], is_condemned: bool) -> Iterator[Names]:
    waiting = iter(sorted(names))
    while some := list(islice(waiting, _ROWS)):
        yield Names(names=some, is_condemned=is_condemned)


def _work(spark: SparkSession, items: Sequence[Item]) -> DataFrame:
    """Each item in a row; at most as many tasks as Spark makes of a shuffle."""
    frame = spark.createDataFrame([(msgspec.json.encode(item),) for item in items], "said binary")
    return frame.repartition(
        max(1, min(len(items), int(spark.conf.get("spark.sql.shuffle.partitions") or 1)))
    )


# --- In tasks -------------------------------------------------------------------------------------


def _gather(place: Place, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    session = place.session()
    yield from in_batches((row for item in _items(batches) for row in _sides(session, item)), _SIDE)


def _sides(session: TableContext, item: Item) -> Iterator[dict[str, Any]]:
    if isinstance(item, Range):
        for info in _between(session.store, item):
            if not info.name.startswith(object_names.VERSIONS):
                yield _side(info.name, info.size_bytes, info.modified)
    elif isinstance(item, Names):
        for name in item.names:
            yield _side(name, is_reached=not item.is_condemned, is_condemned=item.is_condemned)
    else:
        for path in paths_of(session, item):
            yield _side(path, is_reached=True)


def _side(
    name: str,
    size_bytes: int | None = None,
    modified: float | None = None,
    *,
    is_reached: bool = False,
    is_condemned: bool = False,
) -> dict[str, Any]:
    alike = (
        name.rpartition("/")[2]
        if object_names.job_of_own_name(name) is not None
        and not name.startswith(f"{object_names.ROOM}/")
        else name
    )
    return {
        "alike": encode_name(alike),
        "name": encode_name(name),
        "bytes": size_bytes,
        "modified": modified,
        "is_reached": is_reached,
        "is_condemned": is_condemned,
    }


def _between(store: Store, names: Range) -> Iterator[ObjectInfo]:
    prefix = os.path.commonprefix([names.start, names.end])  # noqa: RUF071  # a list goes by characters, too
    for info in store.list(prefix, start_from=names.start):
        if names.end and info.name >= names.end:
            return
        yield info


def _sample(
    place: Place, stride: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    session = place.session()
    count, names = 0, []
    for item in _items(batches):
        for path in paths_of(session, item):
            if count % stride == 0:
                names.append(path)
            count += 1
    yield said(Sample(count=count, names=names))


def paths_of(session: TableContext, item: Item) -> Iterator[str]:
    """The data files that a manifest or a version lists."""
    if isinstance(item, Manifest):
        yield from live_paths(session, item.ref, decode(item.removed))
    elif isinstance(item, Version):
        head = read_object(session.store, item.version)
        if head is None:
            raise missing_version(item.version)
        if head.digest != item.digest:
            name = object_names.version_name(item.version)
            raise CorruptMetadataError(
                codec.damaged(name, "its bytes are others than a moment ago"), object_name=name
            )
        yield from (entry.path for entry in head.snapshot.added)


def _items(batches: Iterable[pa.RecordBatch]) -> Iterator[Item]:
    for batch in batches:
        for text in batch.column(0).to_pylist():
            yield msgspec.json.decode(text, type=Item)


def said(value: Any) -> pa.RecordBatch:
    """One row that holds this value for the driver."""
    return pa.RecordBatch.from_pylist([{"said": msgspec.json.encode(value)}], schema=_SAID)


def in_batches(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows in batches of a few thousand."""
    some: list[dict[str, Any]] = []
    for row in rows:
        some.append(row)
        if len(some) == _ROWS:
            yield pa.RecordBatch.from_pylist(some, schema=schema)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema=schema)
