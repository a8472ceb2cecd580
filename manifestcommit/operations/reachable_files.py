"""Collects what the readable versions of a table reach: manifests and runs by name, data files by
hash. [GC4] [GC5]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress

from ..errors import CorruptMetadataError, TableNotFoundError
from ..format import codec, object_names
from ..format.entries import ManifestRef, to_mask
from ..log.table_context import TableContext
from ..log.version_chain import Head, missing_version, newest_above, read_object
from ..protocol.retention import Horizon
from ..runtime.concurrency import map_in_batches
from ..runtime.name_set import Names

Progress = Callable[[str], None]
_TOLD = 100


class ReachableObjects:
    """Every object that a readable version lists, data files included; and for each manifest the
    entries that all of them have removed. [GC5]"""

    def __init__(self) -> None:
        self.objects: set[str] = set()
        self.manifests: dict[str, tuple[ManifestRef, int]] = {}
        self.files = Names()
        self._inlined: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return bool(self.among((name,)))

    def among(self, names: Sequence[str]) -> frozenset[str]:
        """The names that are reached. Two files with equal hashes count as one: a file may be kept
        because of another, but none is lost."""
        return frozenset(compress(names, self.files.holds(names))).union(
            self.objects.intersection(names)
        )

    def is_copy(self, name: str) -> bool:
        """Whether a data file of this name, which is not reached itself, is reached in another
        folder. [GC5]"""
        return self.files.holds_elsewhere(name)

    def take(self, ctx: TableContext, head: Head) -> None:
        """Add what one version lists; its manifests are read later, each once."""
        snapshot = head.snapshot
        inlined = frozenset(entry.path for entry in snapshot.added)
        # neighbouring versions inline mostly the same entries
        self.files.add(inlined - self._inlined)
        self._inlined = inlined
        self.objects.update(
            run.path
            for runs in (snapshot.key_runs, snapshot.job_runs, snapshot.removed_runs)
            for run in runs
        )
        removed = ctx.manifests.removed(snapshot) if snapshot.manifests else {}
        for ref in snapshot.manifests:
            self.objects.add(ref.path)
            # An entry is reached as long as one readable version has not removed it.
            _, before = self.manifests.get(ref.path, (ref, -1))
            self.manifests[ref.path] = ref, before & removed.get(ref.path, 0)

    def read(self, ctx: TableContext, progress: Progress) -> None:
        """Add the files of all manifests. One request each, with one in memory at a time."""
        for number, (ref, removed) in enumerate(self.manifests.values()):
            if number % _TOLD == 0:
                progress(f"reading manifests: {number:,} of {len(self.manifests):,}")
            self.files.add(_live_paths(ctx, ref, removed))
        self.manifests.clear()


def _live_paths(ctx: TableContext, ref: ManifestRef, removed: int) -> Iterator[str]:
    """The paths of a manifest's entries that at least one readable version has not removed. One
    request. [OB9]"""
    paths = ctx.manifests.paths(ref)
    gone = removed & ((1 << ref.files) - 1)
    return (
        compress(paths, (not is_removed for is_removed in to_mask(gone, ref.files)))
        if gone
        else iter(paths)
    )


def collect(ctx: TableContext, horizon: Horizon, progress: Progress) -> ReachableObjects | None:
    """What the readable versions list, all of them read now; None: another gc has gone further,
    start over. [GC4]

    One request for each version and manifest, and one list request; two more if other jobs
    committed meanwhile. A version that is missing, or that its successor was not built on, is never
    skipped: that is damage, and an error.
    """
    listed, last, damage = ReachableObjects(), None, None
    try:
        last = _read_all(ctx, horizon, listed, progress)
    except CorruptMetadataError as error:
        damage = error
    newest = newest_above(ctx.store, horizon.version, last)
    if newest is None or newest.snapshot.table_id != horizon.table_id:
        raise TableNotFoundError(
            f"the table at {ctx.store.url} was removed while gc ran; gc deleted nothing more"
        )
    if not horizon.is_readable_at(newest.snapshot):
        return None
    if damage is not None:
        raise damage
    return listed


def _read_all(
    ctx: TableContext, horizon: Horizon, listed: ReachableObjects, progress: Progress
) -> Head | None:
    """Read all versions; returns the last one."""
    parent: Head | None = None
    void: list[Head] = []  # those right below the version that comes next
    versions = horizon.readable
    heads = map_in_batches(ctx.store, partial(read_object, ctx.store), versions)
    for number, (version, head) in enumerate(zip(versions, heads, strict=True)):
        if number % _TOLD == 0:
            progress(f"reading versions: {number:,} of {len(versions):,}")
        if version in horizon.void:
            void += [] if head is None else [head]
            continue
        if head is None:
            raise missing_version(version)
        below = head.snapshot.parent_digest
        for each in reversed(void):
            if each.digest == below:  # else others left it: nothing was built on it [LY15]
                listed.take(ctx, each)
                below = each.snapshot.parent_digest
        void.clear()
        _check_child(parent, head, below, horizon)
        listed.take(ctx, head)
        parent = head
    listed.read(ctx, progress)
    return parent


def _check_child(parent: Head | None, child: Head, below: str | None, horizon: Horizon) -> None:
    """Check the link between two versions: if another program replaced the true version, gc would
    delete what the true one lists. below: the digest of what the child, and the void versions
    between the two, were built on. [IV1]"""
    snapshot = child.snapshot
    reason, name = "", object_names.version_name(snapshot.version)
    if snapshot.table_id != horizon.table_id:
        reason = f"it belongs to another table, {snapshot.table_id}"
    elif (
        parent is not None
        and below != parent.digest
        and all(each in horizon.void for each in range(parent.version + 1, snapshot.version))
    ):
        reason, name = (
            "its bytes are not those that the next version was built on",
            object_names.version_name(parent.version),
        )
    if reason:
        raise CorruptMetadataError(codec.damaged(name, reason), object_name=name)
