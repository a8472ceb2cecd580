"""What the readable versions of a table reach: manifests and runs by name, data files by hash. [GC4] [GC5]

Not here: what follows for an object that is not reached (core.retention).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from ..core import format
from ..core.bitmap import to_mask
from ..core.conflict import is_readable
from ..core.manifest import ManifestRef
from ..core.retention import Horizon
from ..core.snapshot import Snapshot
from ..errors import CorruptMetadataError, TableNotFoundError
from .head import Head, missing_version, newest_above, read_object
from .session import Session

Tell = Callable[[str], None]
_AT_ONCE = 16  # versions that are fetched at a time, where there are many
_TOLD = 100
_BUFFER = 1 << 20


class Paths:
    """A set of data files in eight bytes each: the hashes that this interpreter has for texts. Two files that share one are taken for
    one: a file may be kept for another's sake, none is lost."""

    def __init__(self) -> None:
        self._sorted: npt.NDArray[np.int64] = np.array([], np.int64)
        self._new = array("q")

    def __len__(self) -> int:
        self._settle()
        return len(self._sorted)

    def __contains__(self, path: str) -> bool:
        self._settle()
        wanted = hash(path)
        place = self._sorted.searchsorted(wanted)
        return bool(place < len(self._sorted) and self._sorted[place] == wanted)

    def add(self, path: str) -> None:
        """The path is in the set from now on."""
        self._new.append(hash(path))
        if len(self._new) > max(_BUFFER, len(self._sorted) // 4):
            self._settle()

    def _settle(self) -> None:
        if self._new:
            self._sorted = np.union1d(self._sorted, np.frombuffer(self._new, np.int64))
            self._new = array("q")


class Reach:
    """Every object that a readable version lists. [GC5]"""

    def __init__(self) -> None:
        self.objects: set[str] = set()
        self.files = Paths()
        self._manifests: dict[str, tuple[ManifestRef, int]] = {}
        self._inlined: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self.objects or name in self.files

    def take(self, session: Session, snapshot: Snapshot) -> None:
        """What one version lists; its manifests are read later, each once."""
        inlined = frozenset(entry.path for entry in snapshot.added)
        for path in inlined - self._inlined:  # versions next to each other carry mostly the same
            self.files.add(path)
        self._inlined = inlined
        self.objects.update(run.path for runs in (snapshot.key_runs, snapshot.job_runs, snapshot.removed_runs) for run in runs)
        removed = session.manifests.removed(snapshot) if snapshot.manifests else {}
        for ref in snapshot.manifests:
            self.objects.add(ref.path)
            # An entry is reached as long as one readable version has not taken it away.
            _, before = self._manifests.get(ref.path, (ref, -1))
            self._manifests[ref.path] = ref, before & removed.get(ref.path, 0)

    def read_manifests(self, session: Session, tell: Tell) -> None:
        """The files that all of them list. One request each, one at a time in memory."""
        for number, (ref, removed) in enumerate(self._manifests.values()):
            if number % _TOLD == 0:
                tell(f"reading manifests: {number:,} of {len(self._manifests):,}")
            for path, gone in zip(session.manifests.paths(ref), to_mask(removed & ((1 << ref.files) - 1), ref.files), strict=True):
                if not gone:
                    self.files.add(path)
        self._manifests.clear()


def collect(session: Session, horizon: Horizon, tell: Tell) -> Reach | None:
    """What the readable versions reach, all of them read anew; None where another gc has gone further meanwhile: start over. [GC4]

    One request for each version and manifest, and the head. A version that is missing, or not the one that its successor was built on,
    is never passed over: that is damage, and an error.
    """
    found, damage = Reach(), None
    try:
        _read_all(session, horizon, found, tell)
    except CorruptMetadataError as error:
        damage = error
    newest = newest_above(session.store, horizon.version)
    if newest is None or newest.snapshot.table_id != horizon.table_id:
        raise TableNotFoundError(f"the table at {session.store.url} was removed while gc ran; gc deleted nothing more")
    if not all(is_readable(newest.snapshot, version) for version in horizon.readable):
        return None
    if damage is not None:
        raise damage
    return found


def _read_all(session: Session, horizon: Horizon, found: Reach, tell: Tell) -> None:
    parent: Head | None = None
    versions = horizon.readable
    for number, (version, head) in enumerate(_versions(session, versions)):
        if number % _TOLD == 0:
            tell(f"reading versions: {number:,} of {len(versions):,}")
        if head is None:
            raise missing_version(version)
        _check_child(parent, head, horizon)
        found.take(session, head.snapshot)
        parent = head
    found.read_manifests(session, tell)


def _versions(session: Session, versions: Sequence[int]) -> Iterator[tuple[int, Head | None]]:
    """Each version as it is now; a few at a time where there are many, so that memory stays bounded."""
    if len(versions) <= _AT_ONCE:
        yield from ((version, read_object(session.store, version)) for version in versions)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(versions), _AT_ONCE):
            some = versions[start : start + _AT_ONCE]
            yield from zip(some, pool.map(lambda version: read_object(session.store, version), some), strict=True)


def _check_child(parent: Head | None, child: Head, horizon: Horizon) -> None:
    """A version that something else put in the place of the true one would make gc delete what the true one lists. [IV1]"""
    snapshot = child.snapshot
    reason, name = "", format.version_name(snapshot.version)
    if snapshot.table_id != horizon.table_id:
        reason = f"it belongs to another table, {snapshot.table_id}"
    elif parent is not None and parent.version == snapshot.version - 1 and snapshot.parent_digest != parent.digest:
        reason, name = "its bytes are not those that the next version was built on", format.version_name(parent.version)
    if reason:
        raise CorruptMetadataError(format.damaged(name, reason), object_name=name)
