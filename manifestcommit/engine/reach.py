"""What the readable versions of a table reach: manifests and runs by name, data files by hash. [GC4] [GC5]

Not here: what follows for an object that is not reached (core.retention).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress
from typing import TypeVar

from ..core import format
from ..core.bitmap import to_mask
from ..core.conflict import is_readable
from ..core.manifest import ManifestRef
from ..core.retention import Horizon
from ..errors import CorruptMetadataError, TableNotFoundError
from .at_once import a_few_at_once
from .head import Head, missing_version, newest_above, read_object
from .names import Names
from .session import Session

Tell = Callable[[str], None]
_TOLD = 100


class Listed:
    """What the readable versions list themselves: manifests and runs, and what of each manifest all of them have taken away. [GC5]"""

    def __init__(self) -> None:
        self.objects: set[str] = set()
        self.manifests: dict[str, tuple[ManifestRef, int]] = {}

    def take(self, session: Session, head: Head) -> None:
        """What one version lists; its manifests are read later, each once."""
        snapshot = head.snapshot
        self.objects.update(run.path for runs in (snapshot.key_runs, snapshot.job_runs, snapshot.removed_runs) for run in runs)
        removed = session.manifests.removed(snapshot) if snapshot.manifests else {}
        for ref in snapshot.manifests:
            self.objects.add(ref.path)
            # An entry is reached as long as one readable version has not taken it away.
            _, before = self.manifests.get(ref.path, (ref, -1))
            self.manifests[ref.path] = ref, before & removed.get(ref.path, 0)

    def read(self, session: Session, tell: Tell) -> None:
        """What is to be read once every version is known."""


class Reach(Listed):
    """Every object that a readable version lists, its data files included. [GC5]"""

    def __init__(self) -> None:
        super().__init__()
        self.files = Names()
        self._inlined: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return bool(self.among((name,)))

    def among(self, names: Sequence[str]) -> frozenset[str]:
        """Those that are reached. Two files that share a hash are taken for one: a file may be kept for another's sake, none is lost."""
        return frozenset(compress(names, self.files.holds(names))).union(self.objects.intersection(names))

    def take(self, session: Session, head: Head) -> None:
        inlined = frozenset(entry.path for entry in head.snapshot.added)
        self.files.add(inlined - self._inlined)  # versions next to each other carry mostly the same
        self._inlined = inlined
        super().take(session, head)

    def read(self, session: Session, tell: Tell) -> None:
        """The files that all manifests list. One request each, one at a time in memory."""
        for number, (ref, removed) in enumerate(self.manifests.values()):
            if number % _TOLD == 0:
                tell(f"reading manifests: {number:,} of {len(self.manifests):,}")
            self.files.add(live_paths(session, ref, removed))
        self.manifests.clear()


_Listed = TypeVar("_Listed", bound=Listed)


def live_paths(session: Session, ref: ManifestRef, removed: int) -> Iterator[str]:
    """The paths of a manifest's entries that not every readable version has taken away. One request. [OB9]"""
    paths = session.manifests.paths(ref)
    gone = removed & ((1 << ref.files) - 1)
    return compress(paths, (not each for each in to_mask(gone, ref.files))) if gone else iter(paths)


def collect(session: Session, horizon: Horizon, tell: Tell, found: _Listed) -> _Listed | None:
    """`found`, with what the readable versions list, all of them read anew; None where another gc has gone further: start over. [GC4]

    One request for each version and manifest, and one list; two more where others committed meanwhile. A version that is missing, or not
    the one that its successor was built on, is never passed over: that is damage, and an error.
    """
    last, damage = None, None
    try:
        last = _read_all(session, horizon, found, tell)
    except CorruptMetadataError as error:
        damage = error
    newest = newest_above(session.store, horizon.version, last)
    if newest is None or newest.snapshot.table_id != horizon.table_id:
        raise TableNotFoundError(f"the table at {session.store.url} was removed while gc ran; gc deleted nothing more")
    if not all(is_readable(newest.snapshot, version) for version in horizon.readable):
        return None
    if damage is not None:
        raise damage
    return found


def _read_all(session: Session, horizon: Horizon, found: Listed, tell: Tell) -> Head | None:
    """All of them, the last one of which is returned."""
    parent: Head | None = None
    versions = horizon.readable
    heads = a_few_at_once(session.store, partial(read_object, session.store), versions)
    for number, (version, head) in enumerate(zip(versions, heads, strict=True)):
        if number % _TOLD == 0:
            tell(f"reading versions: {number:,} of {len(versions):,}")
        if head is None:
            raise missing_version(version)
        _check_child(parent, head, horizon)
        found.take(session, head)
        parent = head
    found.read(session, tell)
    return parent


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
