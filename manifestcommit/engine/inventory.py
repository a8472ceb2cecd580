"""What stands below a root: one listing, kept as seventeen bytes an object. [RD10] [IV10]

Names are not kept: an object is found again by the hash of its name, and told apart, where no version lists it, by what gc would make of
its name (core.retention). Not here: what should be there (engine.verify).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core import format
from ..core.audit import Finding, Kind, finding
from ..core.retention import Verdict, classify, horizon_of, is_of_another_table, job_in
from ..core.snapshot import Snapshot
from ..store import Store
from ..store.base import ObjectInfo

Status = Literal["there", "missing", "size_differs"]

_EVERY = 5000  # objects from one word of progress to the next
# Of what no version lists, by its name: kind, and what it is in words. The number is what is kept of it.
_CLASSES: tuple[tuple[Kind, str] | None, ...] = (
    None,  # looked at by name already
    ("orphans", "objects of jobs that can not commit any more"),
    ("unlisted", "objects of jobs that may still run"),
    ("foreign_files", "files that no job of this table wrote there"),
    ("other_table", "objects of another table"),
    ("probes", "probes of the store"),
)
_SEEN, _ORPHAN, _UNLISTED, _FOREIGN, _OTHER_TABLE, _PROBE = range(len(_CLASSES))
_NAMED = 100  # strange names that are reported one by one


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What an inventory says of some names. status, size: of each, -1 where there is none; fresh: looked for the first time."""

    status: list[Status]
    sizes: Any
    fresh: Any


class Youngest(msgspec.Struct, frozen=True, kw_only=True):
    """The highest birth in a name of this table, and that name: a version that was the head once. [LY4]"""

    birth: int = 0
    name: str = ""


class Inventory:
    """The objects below a root at one moment, after `head` had been read. Two names that share a hash (one pair in 2⁶⁴) look like one."""

    def __init__(self, store: Store, head: Snapshot, progress: Callable[[str], None]) -> None:
        self.versions: list[int] = []
        self.findings: list[Finding] = []
        self.youngest = Youngest()
        self._horizon = horizon_of(head)
        self._strange = 0
        hashes, sizes, classes = array("Q"), array("q"), array("B")
        for count, info in enumerate(store.list("")):
            if count % _EVERY == 0:
                progress(f"listing: {count:,} objects")
            hashes.append(hash_of(info.name))
            sizes.append(info.size_bytes)
            classes.append(self._classify(info))
        order = np.argsort(np.frombuffer(hashes, np.uint64), kind="stable")
        self._hashes = np.frombuffer(hashes, np.uint64)[order]
        self._sizes = np.frombuffer(sizes, np.int64)[order]
        self._classes = np.frombuffer(classes, np.uint8)[order]
        self._listed = np.zeros(len(order), bool)

    @property
    def objects(self) -> int:
        """How many objects there are."""
        return len(self._hashes)

    def look(self, names: Iterable[str], sizes: Any) -> Looked:
        """Which of these are there, with their size; each counts as listed by a version from now on."""
        wanted = np.frombuffer(array("Q", (hash_of(name) for name in names)), np.uint64)
        at = np.searchsorted(self._hashes, wanted)
        there = np.zeros(len(wanted), bool)
        inside = at < len(self._hashes)
        there[inside] = self._hashes[at[inside]] == wanted[inside]
        found = np.full(len(wanted), -1, np.int64)
        found[there] = self._sizes[at[there]]
        fresh = np.ones(len(wanted), bool)
        fresh[there] = ~self._listed[at[there]]
        self._listed[at[there]] = True
        fits = found == np.asarray(sizes, np.int64)
        status: list[Status] = ["missing" if not here else "there" if ok else "size_differs" for here, ok in zip(there, fits, strict=True)]
        return Looked(status=status, sizes=found, fresh=fresh)

    def left_over(self) -> list[Finding]:
        """What no version lists, counted by what it is. To be asked after every version was looked through."""
        found = []
        for number, described in enumerate(_CLASSES):
            of_it = (self._classes == number) & ~self._listed
            count = int(of_it.sum())
            if described is not None and count:
                kind, what = described
                text = f"{what}: {count:,} of {int(self._sizes[of_it].sum()):,} bytes together"
                found.append(finding(kind, "", text))
        return found

    def _classify(self, info: ObjectInfo) -> int:
        """What gc would make of the name if no version lists it: `core.retention` alone knows names. [GC5]"""
        name = info.name
        if (version := format.parse_version(name)) is not None:
            self.versions.append(version)
            return _SEEN
        verdict = classify(name, self._horizon, lambda _: False, is_old=True)
        if verdict.action == "leave" or name in self._horizon.condemned:
            return self._left(name, verdict)
        if verdict.kind == "probe":
            return _PROBE
        job = job_in(name)
        if job is None:
            return _SEEN  # the hint
        if name.startswith(format.INTENTS):
            self._note(finding("intent", name, "a writer that lost a race has published what it wants to commit"))
            return _SEEN
        birth = format.parse_job_id(job).birth
        if birth > self.youngest.birth:
            self.youngest = Youngest(birth=birth, name=name)
        return _ORPHAN if verdict.action == "delete" else _UNLISTED

    def _left(self, name: str, verdict: Verdict) -> int:
        if is_of_another_table(name, self._horizon.table_id):
            return _OTHER_TABLE
        if verdict.kind == "unknown":
            self._note(finding("foreign_name", name, f"gc leaves it: {verdict.reason}"))
            return _SEEN
        return _FOREIGN

    def _note(self, note: Finding) -> None:
        self._strange += 1
        if self._strange <= _NAMED:
            self.findings.append(note)
        elif self._strange == _NAMED + 1:
            self.findings.append(finding("foreign_name", note.object, "and more such names, which are not listed here"))


class Multiset:
    """Paths, eight bytes each: which of them may have been added twice."""

    def __init__(self) -> None:
        self._hashes = array("Q")

    def add(self, paths: Iterable[str]) -> None:
        self._hashes.extend(hash_of(path) for path in paths)

    def repeated(self) -> frozenset[int]:
        """Hashes that were added more than once."""
        times = pa.array(memoryview(self._hashes), pa.uint64()).value_counts()
        return frozenset(times.filter(pc.greater(times.field("counts"), 1)).field("values").to_pylist())


def hash_of(name: str) -> int:
    """64 bits of a name; also of one that UTF-8 cannot carry, as a file system may list it."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
