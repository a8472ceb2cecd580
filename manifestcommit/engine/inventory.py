"""What stands below a root: one listing, kept as seventeen bytes an object. [RD10] [IV10]

Names are not kept: an object is found again by the hash of its name, and told apart, where no version lists it, by what gc would make of
its name (core.retention). Not here: what should be there (engine.verify).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from ..core import format
from ..core.audit import Finding, Kind, finding
from ..core.retention import Verdict, classify, horizon_of, is_of_another_table, job_in, writer_of
from ..core.snapshot import Snapshot
from ..store import Store
from .names import Hashes, hashes

_EVERY = 5000  # objects that are looked at together, from one word of progress to the next
# Of what no version lists, by its name: kind, and what it is in words. The number is what is kept of it.
_CLASSES: tuple[tuple[Kind, str] | None, ...] = (
    None,  # looked at by name already
    ("orphans", "objects of jobs that can not commit any more"),
    ("unlisted", "objects of jobs that may still run, or what ended ones have left"),
    ("foreign_files", "files that no job of this table wrote there"),
    ("other_table", "objects of another table"),
    ("probes", "probes of the store"),
)
_SEEN, _ORPHAN, _UNLISTED, _FOREIGN, _OTHER_TABLE, _PROBE = range(len(_CLASSES))
_NAMED = 100  # strange names that are reported one by one
_JOBS = 4096  # whose class is at hand
_ROOM = f"{format.ROOM}/"
_NOWHERE: frozenset[str] = frozenset()


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What an inventory says of some names, an array of each. there; fits: there with the length that was asked for; sizes: -1 where it
    is not there; fresh: looked for the first time."""

    there: Any
    fits: Any
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
        self._of_jobs: dict[str, int] = {}
        found, sizes, classes = ([np.array([], kind)] for kind in (np.int64, np.int64, np.uint8))
        objects, count = store.list(""), 0
        while some := list(islice(objects, _EVERY)):
            progress(f"listing: {count:,} objects")
            count += len(some)
            names = [info.name for info in some]
            found.append(hashes(names))
            sizes.append(np.array([info.size_bytes for info in some], np.int64))
            classes.append(np.fromiter(map(self._class_of, names), np.uint8, len(names)))
        self._hashes: Hashes = np.concatenate(found)
        order = np.argsort(self._hashes, kind="stable")
        self._hashes = self._hashes[order]
        self._sizes = np.concatenate(sizes)[order]
        self._classes = np.concatenate(classes)[order]
        self._listed = np.zeros(len(order), bool)

    @property
    def objects(self) -> int:
        """How many objects there are."""
        return len(self._hashes)

    def look(self, wanted: Hashes, sizes: Any) -> Looked:
        """Which of the names with these hashes are there, with their size; each counts as listed by a version from now on."""
        at = np.searchsorted(self._hashes, wanted)
        there = np.zeros(len(wanted), bool)
        inside = at < len(self._hashes)
        there[inside] = self._hashes[at[inside]] == wanted[inside]
        found = np.full(len(wanted), -1, np.int64)
        found[there] = self._sizes[at[there]]
        fresh = np.ones(len(wanted), bool)
        fresh[there] = ~self._listed[at[there]]
        self._listed[at[there]] = True
        return Looked(there=there, fits=there & (found == np.asarray(sizes, np.int64)), sizes=found, fresh=fresh)

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

    def _class_of(self, name: str) -> int:
        """As `_classify`; what a job of this table wrote where data files lie is all of one class, and is asked for once."""
        own = None if name.startswith(_ROOM) else writer_of(name, self._horizon.table_id)
        if own is None:
            return self._classify(name)
        known = self._of_jobs.get(own)
        if known is None:
            if len(self._of_jobs) >= _JOBS:
                self._of_jobs.clear()
            known = self._of_jobs[own] = self._classify(name)
        return known

    def _classify(self, name: str) -> int:
        """What gc would make of the name if no version lists it: `core.retention` alone knows names. [GC5]"""
        if name.startswith(format.VERSIONS) and (version := format.parse_version(name)) is not None:
            self.versions.append(version)
            return _SEEN
        verdict = classify(name, self._horizon, _NOWHERE.__contains__, is_old=True)
        if verdict.action == "leave" or name in self._horizon.condemned:
            return self._left(name, verdict)
        if verdict.kind == "probe":
            return _PROBE
        job = job_in(name)
        if job is None:
            return _SEEN  # the hint
        if name.startswith(format.INTENTS):
            self._note(finding("intent", name, "a writer with others in its way has published what it wants to commit"))
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
