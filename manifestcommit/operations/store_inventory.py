"""One listing of everything below a table path, kept as twenty-five bytes per object, and sets of
names in eight bytes each, by Python's hashes of texts: two names that share one (one pair in 2⁶⁴)
look like one, and callers explain why that is harmless. [RD10] [IV10] [GC18]"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..format import object_names
from ..format.snapshot import Snapshot
from ..log.table_context import is_export
from ..protocol.audit import VerifyFinding, finding
from ..protocol.retention import (
    Verdict,
    classify,
    horizon_of,
    is_condemnable,
    is_of_another_table,
    job_in,
    own_job,
)
from ..store import Store

Hashes: TypeAlias = "array[int]"

_BUFFER = 1 << 20
# The hash of our data file's name takes these bits from the folder, and all others from the file's
# own name, which is practically unique in 48 bits: so the file is found in any folder.
_FOLDER_BITS = 0xFFFF
_LEAST = 84  # characters of `<task>-<attempt>-<n>-v<birth>-<table>-<random>.parquet`
_TABLE_AT, _RANDOM_AT = -58, -41  # the dashes before the last two parts


def hashes(names: Iterable[str]) -> Hashes:
    """A hash for each name; also for one that UTF-8 cannot encode, as file systems may have."""
    return array("q", map(hash, names))


def in_arrow(numbers: Hashes) -> pa.Array:
    """The same numbers, whose memory is shared."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def out_of_arrow(numbers: pa.Array) -> Hashes:
    """The same numbers, none of them null."""
    found = array("q")
    at = numbers.offset * found.itemsize
    found.frombytes(memoryview(numbers.buffers()[1])[at : at + len(numbers) * found.itemsize])
    return found


def _key(name: str) -> int:
    if len(name) < _LEAST or name[_RANDOM_AT] != "-" or name[_TABLE_AT] != "-":
        return hash(name)
    folder, _, own = name.rpartition("/")
    return hash(own) & ~_FOLDER_BITS | hash(folder) & _FOLDER_BITS


class Names:
    """A set of names, sorted; new ones are merged only now and then, to stay cheap."""

    def __init__(self) -> None:
        self._sorted, self._new = array("q"), array("q")

    def add(self, names: Iterable[str]) -> None:
        """Add names."""
        self._new.extend(map(_key, names))
        if len(self._new) > max(_BUFFER, len(self._sorted) // 4):
            self._settle()

    def holds(self, names: Iterable[str]) -> list[bool]:
        """For each name, whether it is in the set."""
        self._settle()
        ordered, count = self._sorted, len(self._sorted)
        return [
            (at := bisect_left(ordered, key)) < count and ordered[at] == key
            for key in map(_key, names)
        ]

    def holds_elsewhere(self, name: str) -> bool:
        """Whether the file name of this data file of ours is in the set, in any folder. [GC5]"""
        self._settle()
        wanted = _key(name) & ~_FOLDER_BITS
        at = bisect_left(self._sorted, wanted)
        return at < len(self._sorted) and self._sorted[at] & ~_FOLDER_BITS == wanted

    def _settle(self) -> None:
        if self._new:
            self._sorted.extend(self._new)
            ordered = _sorted(self._sorted)
            others = ordered[1:].filter(pc.not_equal(ordered[1:], ordered[:-1]))
            self._sorted = out_of_arrow(pa.concat_arrays([ordered[:1], others]))
            self._new = array("q")


def repeated(some: Hashes) -> set[int]:
    """Those of these hashes that are there more than once."""
    ordered = _sorted(some)
    return set(ordered[1:].filter(pc.equal(ordered[1:], ordered[:-1])).to_pylist())


def _sorted(numbers: Hashes) -> pa.Array:
    every = in_arrow(numbers)
    return every.take(pc.array_sort_indices(every))


_EVERY = 5000  # objects that are processed together, between two calls of `progress`
# Classes of objects that no version lists: kind, and a description. Their number is kept.
_CLASSES: tuple[tuple[str, str] | None, ...] = (
    None,  # already checked by name
    ("orphans", "objects of jobs that can not commit any more"),
    ("unlisted", "objects of jobs that may still run, or what ended ones have left"),
    ("foreign_files", "files that no job of this table wrote there"),
    ("other_table", "objects of another table"),
    ("probes", "probes of the store"),
    ("untracked_parquet", "Parquet files that no version lists and no job of this table wrote"),
)
_SEEN, _ORPHAN, _UNLISTED, _FOREIGN, _OTHER_TABLE, _PROBE, _PARQUET = range(len(_CLASSES))
_NAMED = 100  # strange names that are reported one by one, at most
_JOBS = 4096  # jobs whose class is cached
_ROOM = f"{object_names.ROOM}/"
_MISSING = 100_000  # names of missing data files that are kept, at most
_NOWHERE: frozenset[str] = frozenset()


class Looked(NamedTuple):
    """What an inventory says of a name. size: None, not there; fresh: looked up just now."""

    size: int | None
    fresh: bool


class Inventory:
    """The objects below a table path at one moment, after `head` was read. youngest: the highest
    base version in a name of this table, once the latest, and that name. [LY4]"""

    def __init__(self, store: Store, head: Snapshot, progress: Callable[[str], None]) -> None:
        self.versions: list[int] = []
        self.findings: list[VerifyFinding] = []
        self.youngest = (0, "")
        self._horizon = horizon_of(head)
        self._strange = 0
        self._of_jobs: dict[str, int] = {}
        hashed_names, sizes, own, classes = array("q"), array("q"), array("q"), bytearray()
        objects, count = store.list(""), 0
        while some := list(islice(objects, _EVERY)):
            progress(f"listing: {count:,} objects")
            count += len(some)
            names = [info.name for info in some]
            hashed_names.extend(hashes(names))
            sizes.extend(info.size_bytes for info in some)
            classes.extend(map(self._class_of, names))
            own.extend(_own_names(names))
        order = pc.array_sort_indices(in_arrow(hashed_names))
        self._hashes, self._sizes, self._own_names = (
            out_of_arrow(in_arrow(each).take(order)) for each in (hashed_names, sizes, own)
        )
        self._classes = _bytes(classes).take(order)
        self._missing: list[str] = []
        self._listed = bytearray(count)

    @property
    def objects(self) -> int:
        """The number of objects."""
        return len(self._hashes)

    def look(self, wanted: Iterable[int]) -> Iterator[Looked]:
        """Look up the names with these hashes; from now on each counts as listed by a version."""
        for each in wanted:
            at = bisect_left(self._hashes, each)
            if at == len(self._hashes) or self._hashes[at] != each:
                yield Looked(None, True)
            else:
                fresh, self._listed[at] = not self._listed[at], True
                yield Looked(self._sizes[at], fresh)

    def note_missing(self, path: str) -> None:
        """A version lists this data file: one of its name in another folder counts as a copy."""
        if len(self._missing) < _MISSING:
            self._missing.append(path)

    def left_over(self) -> list[VerifyFinding]:
        """The objects that no version lists, by class. Call it once all versions are checked."""
        own, is_listed = in_arrow(self._own_names), _bytes(self._listed).cast(pa.bool_())
        is_left = pc.invert(is_listed)
        listed = pa.concat_arrays([own.filter(is_listed), in_arrow(_own_names(self._missing))])
        of_jobs = pc.is_in(self._classes, pa.array((_ORPHAN, _UNLISTED), pa.uint8()))
        copied = pc.and_(pc.and_(is_left, of_jobs), pc.is_in(own, listed))
        classes = pc.if_else(copied, pa.scalar(_FOREIGN, pa.uint8()), self._classes)
        found = []
        for number, described in enumerate(_CLASSES):
            of_it = pc.and_(pc.equal(classes, number), is_left)
            if described is not None and (count := of_it.true_count):
                size = pc.sum(in_arrow(self._sizes).filter(of_it)).as_py()
                text = f"{described[1]}: {count:,} of {size:,} bytes together"
                found.append(finding(described[0], "", text))
        return found

    def _class_of(self, name: str) -> int:
        """Like `_classify`, once for all that a job of this table wrote where data files lie."""
        own = None if name.startswith(_ROOM) else own_job(name, self._horizon)
        if own is None:
            return self._classify(name)
        known = self._of_jobs.get(own)
        if known is None:
            if len(self._of_jobs) >= _JOBS:
                self._of_jobs.clear()
            known = self._of_jobs[own] = self._classify(name)
        return known

    def _classify(self, name: str) -> int:
        """gc's verdict on a name that no version lists: `protocol.retention` reads names. [GC5]"""
        is_version = name.startswith(object_names.VERSIONS)
        if is_version and (version := object_names.parse_version(name)) is not None:
            self.versions.append(version)
            return _SEEN
        if is_export(name):
            return _SEEN
        verdict = classify(name, self._horizon, _NOWHERE.__contains__, is_old=True)
        if verdict.action == "leave" or name in self._horizon.condemned:
            return self._left(name, verdict)
        if verdict.kind == "probe":
            return _PROBE
        job = job_in(name)
        if job is None:
            return _SEEN  # the hint
        if name.startswith(object_names.INTENTS):
            text = "a writer with others in its way has published what it wants to commit"
            self._note(finding("intent", name, text))
            return _SEEN
        birth = object_names.parse_job_id(job).birth
        if birth > self.youngest[0]:
            self.youngest = birth, name
        return _ORPHAN if verdict.action == "delete" else _UNLISTED

    def _left(self, name: str, verdict: Verdict) -> int:
        if is_of_another_table(name, self._horizon.own):
            return _OTHER_TABLE
        if verdict.kind == "unknown":
            self._note(finding("foreign_name", name, f"gc leaves it: {verdict.reason}"))
            return _SEEN
        # not a copy of a job's file
        is_plain = name.endswith(".parquet") and is_condemnable(name) and job_in(name) is None
        return _PARQUET if is_plain else _FOREIGN

    def _note(self, note: VerifyFinding) -> None:
        self._strange += 1
        if self._strange <= _NAMED:
            self.findings.append(note)
        elif self._strange == _NAMED + 1:
            text = "and more such names, which are not listed here"
            self.findings.append(finding("foreign_name", note.object, text))


def _own_names(names: Sequence[str]) -> Hashes:
    """For each name, the hash of the file's own name; for a metadata object, of the whole name."""
    return hashes(name if name.startswith(_ROOM) else name.rpartition("/")[2] for name in names)


def _bytes(some: bytearray) -> pa.Array:
    return pa.Array.from_buffers(pa.uint8(), len(some), [None, pa.py_buffer(some)])
