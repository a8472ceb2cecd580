"""Puts a Delta log of a table beside its data files. [EX1]-[EX4]

One object for each version, by put-if-absent and in their order, so that the log never has a hole.
Where the log ends before the readable versions begin, a checkpoint comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pyarrow as pa

from ..errors import SnapshotExpiredError, UnsupportedTypeError, UsageError
from ..files.foreign_footer import FooterJudge
from ..format.fields import Schema
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext
from ..log.version_chain import Head, raise_if_expired, read_version, walk_back
from ..scan.planning import differing_entries
from ..store import ObjectInfo, Store
from . import file_columns
from .delta_log import (
    FOLDER,
    LAST_CHECKPOINT,
    Checkpoint,
    check_schema,
    checkpoint_name,
    commit_bytes,
    commit_name,
    last_checkpoint_bytes,
    metadata_id,
    table_in,
    version_of,
)
from .shared_objects import not_ours, put_shared

MOST_COMMITS = 20  # versions that the log gets as commits when it begins, or after a gap
MOST_CAUGHT_UP = 100  # versions that follow the log's newest one as commits
MOST_ACTIONS = 100_000  # of a commit; a version with more of them becomes a checkpoint


def check(ctx: TableContext, schema: Schema | None) -> None:
    """UnsupportedTypeError if Delta cannot express these columns. [EX9]"""
    if schema is not None:
        check_schema(schema)


def check_files(ctx: TableContext, entries: pa.Table, snapshot: Snapshot) -> None:
    """UsageError if one of these files cannot be read through Delta. [EX9]"""
    fields = (snapshot.schema or _NONE).fields
    names = [field.file_name for field in fields if field.id in snapshot.partition_by]
    file_columns.check_delta(ctx, entries, names)


def check_owner(ctx: TableContext, snapshot: Snapshot) -> None:
    """UsageError if the log is another table's. [EX9]"""
    newest = exported_version(ctx.store, snapshot.version)
    if newest is not None and not is_of_table(ctx.store, newest, snapshot.table_id):
        raise not_ours(ctx.store, FOLDER)


def is_of_table(store: Store, version: int, table_id: str) -> bool:
    """Whether this version of the log is of this table. One request, if it is a commit."""
    try:
        return table_in(store.get(commit_name(version), 0, 256)) == table_id
    except FileNotFoundError:
        pass
    try:
        with store.open_input(checkpoint_name(version)) as stream, FooterJudge() as judge:
            heads = judge.open(stream)[0].read_row_group(0, columns=["metaData.id"])
        ids = {row["metaData"]["id"] for row in heads.to_pylist() if row["metaData"] is not None}
    except (pa.ArrowException, OSError, KeyError, TypeError):
        return False
    return ids == {metadata_id(table_id)}


def location(store: Store) -> str:
    """What readers of Delta are given."""
    return store.url


def exported_version(store: Store, head: int = 0) -> int | None:
    """The newest version in the log; None: no log. One list, from `head` on if that is near."""
    for start in (max(head - 1, 0), 0):
        listed = store.list(FOLDER, start_from=f"{FOLDER}{start:020d}")
        versions = [found for info in listed if (found := version_of(info.name)) is not None]
        if versions or not start:
            return max(versions, default=None)
    return None


def export(ctx: TableContext, head: Head) -> int:
    """Export this version and those since the log's newest; returns the newest. [EX1] [EX2]"""
    newest = exported_version(ctx.store, head.version)
    if newest is not None and not is_of_table(ctx.store, newest, head.snapshot.table_id):
        raise not_ours(ctx.store, FOLDER)
    if newest is not None and newest >= head.version:
        return newest
    check(ctx, head.snapshot.schema)
    exporter = _Log(ctx)
    chain = exporter.checked(_expressible(ctx, head, newest), newest)
    # a log begins with a whole version
    if newest is None or chain[0].version != newest:
        exporter.put_checkpoint(chain[0])
    for before, after in pairwise(chain):
        exporter.put_commit(before, after)
    return head.version


def _expressible(ctx: TableContext, head: Head, newest: int | None) -> list[Snapshot]:
    """The versions from the log's newest one to the head, ascending; or, if one of these cannot be
    read or expressed, or they are too many, the last few that can."""
    found: list[Snapshot] = []
    follows = newest is not None and head.version - newest <= MOST_CAUGHT_UP
    most = head.version - newest + 1 if follows and newest is not None else MOST_COMMITS
    for old in walk_back(ctx.store, head):
        try:
            check(ctx, old.snapshot.schema)
        except UnsupportedTypeError:
            break
        is_gap = bool(found) and found[-1].version != old.version + 1  # a void version [MT8]
        if old.snapshot.schema is None or is_gap:
            break
        found.append(old.snapshot)
        if len(found) == most:
            break
    return found[::-1]


def before_deletion(ctx: TableContext, head: Head) -> None:
    """Begin the log, by a checkpoint, with the oldest readable version or later. [EX4]"""
    oldest = head.snapshot.expired
    commits, checkpoints, _ = _objects(ctx.store)
    starts = [version for version in (*commits, *checkpoints) if version < oldest]
    if starts and oldest in commits and oldest not in checkpoints:
        _Log(ctx).put_checkpoint(read_version(ctx.store, head, oldest).snapshot)


def unreached(
    ctx: TableContext, decided: Snapshot, cut_s: float, is_dead: Callable[[int], bool]
) -> Iterator[tuple[ObjectInfo, str]]:
    """Commits and checkpoints below the newest checkpoint that is older than `cut_s` and no later
    than the oldest readable version; all of the log, where its newest version is dead; none of
    another table's. [EX4]

    Younger ones do not count: each gc that expires a version puts one.
    """
    commits, checkpoints, hint = _objects(ctx.store)
    newest = max((*commits, *checkpoints), default=0)
    if not newest or not is_of_table(ctx.store, newest, decided.table_id):
        return
    latest = [objects[newest] for objects in (commits, checkpoints) if newest in objects]
    if max(info.modified for info in latest) <= cut_s and is_dead(newest):
        for info in (*hint, *commits.values(), *checkpoints.values()):
            if 0 < info.modified <= cut_s:
                yield info, f"version {newest}, which the Delta log shows, is expired"
        return
    old = [each for each, info in checkpoints.items() if 0 < info.modified <= cut_s]
    start = max((each for each in old if each <= decided.expired), default=0)
    for objects in (commits, checkpoints):
        for version, info in sorted(objects.items()):
            if version < start and 0 < info.modified <= cut_s:
                yield info, f"the Delta log begins with the checkpoint of version {start}"


def _objects(
    store: Store,
) -> tuple[dict[int, ObjectInfo], dict[int, ObjectInfo], list[ObjectInfo]]:
    """Commits and checkpoints in the log, by version, and the object that names a checkpoint."""
    hint: list[ObjectInfo] = []
    commits: dict[int, ObjectInfo] = {}
    checkpoints: dict[int, ObjectInfo] = {}
    for info in store.list(FOLDER):
        if (version := version_of(info.name)) is not None:
            (commits if info.name == commit_name(version) else checkpoints)[version] = info
        elif info.name == LAST_CHECKPOINT:
            hint.append(info)
    return commits, checkpoints, hint


class _Log:
    """Puts commits and checkpoints of one table."""

    def __init__(self, ctx: TableContext) -> None:
        self._ctx = ctx

    def checked(self, chain: list[Snapshot], newest: int | None) -> list[Snapshot]:
        """Those last versions of the chain whose files can all be read through Delta; UsageError if
        the last one's cannot. All are looked at before the first object is put: a log that ends
        too early is read as a table with other rows. [EX9]"""
        follows = newest is not None and chain[0].version == newest
        self._check_beyond(chain[0] if follows else None, chain[-1])
        for at in range(len(chain) - 2, 0 if follows else -1, -1):
            try:
                self._check_beyond(chain[at + 1], chain[at])
            except (SnapshotExpiredError, UsageError):
                return chain[at + 1 :]
        return chain

    def _check_beyond(self, known: Snapshot | None, snapshot: Snapshot) -> None:
        """UsageError if a file that a version has beyond the known one cannot be read through
        Delta. Where these are many, all of its files are looked at, manifest by manifest."""
        if known is None or abs(snapshot.totals.files - known.totals.files) > MOST_ACTIONS:
            for table in self._tables(snapshot):
                check_files(self._ctx, table, snapshot)
            return
        with raise_if_expired(self._ctx.store, snapshot.version):
            _, added = differing_entries(self._ctx, known, snapshot)
        check_files(self._ctx, added, snapshot)

    def put_commit(self, before: Snapshot, after: Snapshot) -> None:
        """Put the actions that lead from one version to the next, or a checkpoint where they are
        many; where their number shows that, they are not loaded."""
        if abs(after.totals.files - before.totals.files) > MOST_ACTIONS:
            self.put_checkpoint(after)
            return
        with raise_if_expired(self._ctx.store, after.version):
            removed, added = differing_entries(self._ctx, before, after)
        if removed.num_rows + added.num_rows > MOST_ACTIONS:
            self.put_checkpoint(after)
            return
        data = commit_bytes(before, after, removed, added)
        put_shared(self._ctx, commit_name(after.version), data)

    def put_checkpoint(self, snapshot: Snapshot) -> None:
        """Put the whole state of a version."""
        made = Checkpoint(snapshot)
        for table in self._tables(snapshot):
            made.add(table)
        put_shared(self._ctx, checkpoint_name(snapshot.version), made.close())
        hint = last_checkpoint_bytes(snapshot.version, made.actions)
        self._ctx.store.put(LAST_CHECKPOINT, hint)

    def _tables(self, snapshot: Snapshot) -> Iterator[pa.Table]:
        """The live entries, manifest by manifest."""
        manifests = self._ctx.manifests
        with raise_if_expired(self._ctx.store, snapshot.version):
            removed = manifests.removed(snapshot) if snapshot.manifests else {}
            for ref in snapshot.manifests:
                # read once: a table's manifests together may be more than memory holds
                yield manifests.live(ref, snapshot, removed.get(ref.path, 0), keep=False)
            if snapshot.schema is not None:
                yield manifests.inlined(snapshot)


_NONE = Schema(fields=())
