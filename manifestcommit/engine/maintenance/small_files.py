"""Yields the small live files of a snapshot in the order of compaction, without holding all of them
in memory. [GC16]

It reads every manifest to count, and again for each window of that order in which the manifest has
files; a window is sorted as a whole. Few files are one window, for which nothing is read again. Not
here: which of the files become one (core.commit.compaction_plan).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.commit.compaction_plan import SmallFile, largest_small
from ...core.format.manifest_table import partition_types, source_ranges
from ...core.schema import values
from ...core.schema.wire import WireValue
from ...core.table.entries import ManifestRef
from ...core.table.snapshot import Snapshot
from ..metadata.table_context import TableContext
from ..metadata.version_chain import raise_if_expired
from ..runtime.concurrency import map_in_batches

WINDOW_FILES = 1 << 16
# parts of a partition, by version, so that a partition larger than a window need not be in memory
# as a whole
_AGES = 64
_VALUES_AT_ONCE = 4096
_MANIFESTS_AT_ONCE = 4  # concurrent requests; eight held 40 % more
_MOST = (1 << 63) - 1
_COUNTED = ("added", "bytes")
_PLANNED = [*_COUNTED, "path", "rows", "sources"]
_RANK = "#"  # of a partition

Partition = tuple[WireValue, ...]
Numbers = npt.NDArray[np.int64]


class _Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The number of small files in a manifest by place, each place once. ref: None, the entries
    inlined in the snapshot; table: the files, if they are kept."""

    ref: ManifestRef | None
    places: Numbers
    counts: Numbers
    table: pa.Table | None = None


class SmallFiles:
    """The live files below three quarters of the target size. partitions: of those files, in order.

    One request per manifest; with more than 65,536 files, another one for each window. Memory: one
    window (65,536 files, more only if one place has more), the planning data of at most four
    manifests, a tuple for each partition. A place is a partition's number, in the order of
    discovery, and a part of its versions.
    """

    def __init__(self, session: TableContext, snapshot: Snapshot, target: int) -> None:
        self._session, self._snapshot = session, snapshot
        self._largest = min(largest_small(target), _MOST)
        self._by = tuple(f"partition.{field_id}" for field_id in snapshot.partition_by)
        self._numbers: dict[Partition, int] = {}
        self._lock = threading.Lock()
        self._keep = (
            sum(ref.files for ref in snapshot.manifests) + len(snapshot.added) <= WINDOW_FILES
        )
        self._removed: dict[str, int] = {}
        self._counted: list[_Counted] = []
        if snapshot.schema is not None:  # otherwise it has no files
            self._types = partition_types(snapshot.schema, snapshot.partition_by)
            with raise_if_expired(session.store, snapshot.version):
                self._removed = session.manifests.removed(snapshot) if snapshot.manifests else {}
                self._counted = list(
                    map_in_batches(
                        session.store,
                        self._count,
                        [None, *snapshot.manifests],
                        few=_MANIFESTS_AT_ONCE,
                    )
                )
        self.partitions = self._in_order()

    def files(self, chosen: Collection[Partition]) -> Iterator[SmallFile]:
        """The files of these partitions, by partition, version and path; partitions with a single
        file are left out."""
        begins = self._begins(frozenset(chosen))
        with raise_if_expired(self._session.store, self._snapshot.version):
            for window in self._windows(begins):
                matching = [
                    counted
                    for counted in self._counted
                    if _between(_moved(counted.places, begins), window).any()
                ]
                put = partial(self._in_window, begins, window)
                # No variable refers to the window here: the unsorted form is freed once it is
                # sorted.
                yield from self._in_values(
                    pa.concat_tables(
                        map_in_batches(self._session.store, put, matching, few=_MANIFESTS_AT_ONCE)
                    )
                )

    def _count(self, ref: ManifestRef | None) -> _Counted:
        table = self._table(ref, _PLANNED if self._keep else _COUNTED)
        places, counts = np.unique(self._places(table), return_counts=True)
        return _Counted(ref=ref, places=places, counts=counts, table=table if self._keep else None)

    def _table(self, ref: ManifestRef | None, columns: Sequence[str]) -> pa.Table:
        """The small files of a manifest, with their partitions and these columns."""
        names, reader = [*self._by, *columns], self._session.manifests
        if ref is None:
            table = reader.inlined(self._snapshot).select(names)
        else:
            table = reader.columns(ref, self._snapshot, self._removed.get(ref.path, 0), names)
        return table.filter(pc.less_equal(table.column("bytes"), self._largest))

    def _places(self, table: pa.Table) -> Numbers:
        newest = self._snapshot.version
        ages = np.clip(table.column("added").to_numpy(), 0, newest) // (newest // _AGES + 1)
        codes = np.zeros(table.num_rows, np.int64)
        for name in self._by:
            coded = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
            codes = codes * len(coded.dictionary) + coded.indices.to_numpy()
            codes = np.unique(codes, return_inverse=True)[1]
        _, first, which = np.unique(codes, return_index=True, return_inverse=True)
        few = table.take(pa.array(first))
        wires = [
            values.from_array(few.column(name), kind)
            for name, kind in zip(self._by, self._types, strict=True)
        ]
        with self._lock:
            numbers = [
                self._numbers.setdefault(row, len(self._numbers))
                for row in _tuples(wires, len(first))
            ]
        places: Numbers = np.array(numbers, np.int64)[which] * _AGES + ages
        return places

    def _in_order(self) -> list[Partition]:
        every = list(self._numbers)
        if not self._by or not every:
            return every
        arrays = [
            values.to_array([partition[at] for partition in every], kind)
            for at, kind in enumerate(self._types)
        ]
        order = pc.sort_indices(
            pa.table(arrays, list(self._by)), [(name, "ascending") for name in self._by]
        )
        return [every[number] for number in order.to_pylist()]

    def _begins(self, chosen: frozenset[Partition]) -> Numbers:
        """Where the places of each partition begin in the order, by the partition's number; -1: it
        is skipped."""
        files = np.zeros(len(self._numbers), np.int64)
        for counted in self._counted:
            np.add.at(files, counted.places // _AGES, counted.counts)
        begins = np.full(len(files), -1, np.int64)
        for rank, partition in enumerate(self.partitions):
            number = self._numbers[partition]
            if partition in chosen and files[number] > 1:
                begins[number] = rank * _AGES
        return begins

    def _windows(self, begins: Numbers) -> Iterator[tuple[int, int]]:
        """The first and the last place of each window, in order."""
        none = np.array([], np.int64)
        moved = np.concatenate(
            [none, *(_moved(counted.places, begins) for counted in self._counted)]
        )
        counts = np.concatenate([none, *(counted.counts for counted in self._counted)])
        places, which = np.unique(moved[moved >= 0], return_inverse=True)
        files = np.bincount(which, counts[moved >= 0], len(places)).astype(np.int64)
        begun = np.flatnonzero(np.diff((np.cumsum(files) - files) // WINDOW_FILES, prepend=-1))
        for first, last in pairwise([*begun, len(places)]):
            yield int(places[first]), int(places[last - 1])

    def _in_window(self, begins: Numbers, window: tuple[int, int], counted: _Counted) -> pa.Table:
        groups = self._of_window(begins, window, counted)
        _give_back()
        return groups

    def _of_window(self, begins: Numbers, window: tuple[int, int], counted: _Counted) -> pa.Table:
        table = counted.table if counted.table is not None else self._table(counted.ref, _PLANNED)
        places = _moved(self._places(table), begins)
        ranked = table.select(_PLANNED).append_column(_RANK, pa.array(places // _AGES))
        return ranked.filter(pa.array(_between(places, window)))

    def _in_values(self, table: pa.Table) -> Iterator[SmallFile]:
        table = table.sort_by([(name, "ascending") for name in (_RANK, "added", "path")])
        _give_back()
        for start in range(0, table.num_rows, _VALUES_AT_ONCE):
            some = table.slice(start, _VALUES_AT_ONCE)
            columns = (
                some.column(name).to_pylist()
                for name in (_RANK, "path", "rows", "bytes", "sources")
            )
            for rank, path, rows, bytes, sources in zip(*columns, strict=True):
                ranges = source_ranges(sources) if sources else ()
                yield SmallFile(
                    partition=self.partitions[rank],
                    path=path,
                    rows=rows,
                    bytes=bytes,
                    sources=ranges,
                )


def _give_back() -> None:
    """Return unused memory to the system: the allocator would keep as much as several windows."""
    pa.default_memory_pool().release_unused()


def _tuples(columns: Sequence[Sequence[WireValue]], rows: int) -> Sequence[Partition]:
    return list(zip(*columns, strict=True)) if columns else [()] * rows


def _moved(places: Numbers, begins: Numbers) -> Numbers:
    """Places in the order, -1 for those that are skipped."""
    begin = begins[places // _AGES]
    moved: Numbers = np.where(begin < 0, -1, begin + places % _AGES)
    return moved


def _between(places: Numbers, window: tuple[int, int]) -> npt.NDArray[np.bool_]:
    inside: npt.NDArray[np.bool_] = (places >= window[0]) & (places <= window[1])
    return inside
