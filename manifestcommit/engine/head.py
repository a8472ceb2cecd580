"""Reading the chain: the head in three requests, any version, and the second look that makes an older one trustworthy. [RD1]-[RD5]

Not here: files inside a snapshot (engine.plan), writing a version (engine.commit).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from ..core import format
from ..core.conflict import is_readable
from ..core.snapshot import Snapshot
from ..errors import (
    CorruptMetadataError,
    SnapshotExpiredError,
    StoreError,
    TableNotFoundError,
    UnsupportedFormatError,
    VersionNotFoundError,
)
from ..store import Store

_RESTARTS = 20  # a LIST whose highest name is gone by the GET: someone removed the table, or expired it very fast
_CALM = 3  # how often others may commit meanwhile before a version that they built upon will do


MAX_INTENTS = 1024  # of one list that are looked at: whoever has more of them waiting needs gc


class Above(msgspec.Struct, frozen=True, kw_only=True):
    """What one list shows from a version on. versions: ascending; intents: job -> bytes of what it has published. [LY2] [LY11]"""

    versions: list[int]
    intents: dict[str, int] = {}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot and the digest of the object that it was read from; head when it was read. [OB1]"""

    snapshot: Snapshot
    digest: str

    @property
    def version(self) -> int:
        return self.snapshot.version


def open_head(store: Store) -> Head:
    """The head as of this call: hint, get, list. TableNotFoundError where there is no version at all. [RD1]

    Two more requests where the hint is older than the head, one more where there is none.
    """
    return open_above(store)[0]


def open_above(store: Store) -> tuple[Head, dict[str, int]]:
    """The head as of this call, and the intents that its list showed: job -> bytes. Requests as `open_head`. [RD1] [CM19]"""
    hinted = _hinted(store)
    head, intents = look_above(store, hinted, _glance(store, hinted)) if hinted else (None, {})
    if head is None:
        head, intents = look_above(store, 0)
    if head is None:
        raise TableNotFoundError(
            f"there is no table at {store.url}; check the path, create the table by a first write, or `adopt` the Parquet files there"
        )
    return head, intents


def newest_above(store: Store, base: int, known: Head | None = None) -> Head | None:
    """The head, where a version of at least `base` is known to have existed. None: nothing from `base` on. [CM5] [RD1]

    known: version `base` as it was got before; a list where it is still the head, otherwise list, get, list.
    """
    return look_above(store, base, known)[0]


def look_above(store: Store, start: int, head: Head | None = None) -> tuple[Head | None, dict[str, int]]:
    """The head for sure, None: no version from `start` on; and the intents that the list showed: job -> bytes. [RD1] [CM5] [CM20]

    head: an object that was got before, if one was. The head is never deleted. So what was got, before a list that shows nothing above
    it, is the head; what was got after one that showed it may have been deleted between the two, and brought back by a stalled writer.
    """
    for tried in range(_RESTARTS):
        above = list_above(store, start)
        if not above.versions:
            return None, above.intents
        if head is not None and (above.versions[-1] == head.version or (tried > _CALM and _is_built_upon(store, head))):
            return head, above.intents
        start = above.versions[-1]
        head = read_object(store, start)
    raise StoreError(f"{store.url}: the newest version vanished {_RESTARTS} times between list and get; is the table being removed?")


def _is_built_upon(store: Store, head: Head) -> bool:
    """Whether the next version was made from these bytes: nobody builds upon a version that came back."""
    above = read_object(store, head.version + 1)
    return above is not None and above.snapshot.parent_digest == head.digest


def list_versions(store: Store, start: int = 0) -> list[int]:
    """Every version whose object exists, from `start` on, ascending. One request. [LY2] [ST3]"""
    return list_above(store, start).versions


def list_above(store: Store, start: int, *, most_intents: int | None = MAX_INTENTS) -> Above:
    """Every version from `start` on, and the intents, which a list shows after them. One request. [LY2] [LY11] [ST3]

    most_intents: those behind them are not looked at; None: all are.
    """
    versions: list[int] = []
    intents: dict[str, int] = {}
    for info in store.list(format.VERSIONS, start_from=format.version_name(start)):
        if (version := format.parse_version(info.name)) is not None:
            versions.append(version)
        elif (job := format.parse_intent(info.name)) is not None:
            intents[job] = info.size_bytes
            if len(intents) == most_intents:
                break  # versions come first
    return Above(versions=versions, intents=intents)


def read_object(store: Store, version: int) -> Head | None:
    """The snapshot object of `version`, checked; None where it does not exist. Says nothing of whether it may be read. [OB3] [OB4]"""
    name = format.version_name(version)
    try:
        data = store.get(name, 0, format.MAX_OBJECT_BYTES + 1)
    except FileNotFoundError:
        return None
    return Head(snapshot=format.decode_snapshot(data, name=name), digest=format.digest(data))


def read_version(store: Store, head: Head, version: int) -> Head:
    """A readable version; SnapshotExpiredError or VersionNotFoundError otherwise. [RD3] [RD4]

    An object of an expired name may be a stalled writer's: after reading one below the head, the head is read again.
    """
    if version == head.version:
        return head
    if version > head.version:
        head = open_head(store)
        if version == head.version:
            return head
    _check_readable(store, head, version)
    found = read_object(store, version)
    newest = newest_above(store, head.version, head)
    if newest is None:
        raise TableNotFoundError(f"the table at {store.url} was removed while version {version} was read")
    _check_readable(store, newest, version)
    if found is None:
        raise missing_version(version)
    return found


def walk_back(store: Store, head: Head) -> Iterator[Head]:
    """The head and its predecessors, newest first, down to the oldest readable version. One request each. [RD3]

    None that expired while we walked and came back from the dead since: that is not what its successor was built on.
    """
    lowest, child = head.snapshot.expired, head
    yield head
    for version in range(head.version - 1, lowest - 1, -1):
        found = read_object(store, version)
        if found is None or found.digest != child.snapshot.parent_digest:
            newest = open_head(store)
            if version < newest.snapshot.expired:
                return  # expired while we walked: the history now ends here
        if found is None:
            raise missing_version(version)
        yield found
        child = found


@contextlib.contextmanager
def while_readable(store: Store, version: int) -> Iterator[None]:
    """What a version lists is read here; where it expires meanwhile, what is gone is no damage: SnapshotExpiredError. [RD3] [GC5]"""
    try:
        yield
    except CorruptMetadataError:
        newest = newest_above(store, version)
        if newest is not None and newest.snapshot.version > version:
            _check_readable(store, newest, version)
        raise


def missing_version(version: int) -> CorruptMetadataError:
    """The error of a version that must be there and is not. [OB4] [IV1]"""
    name = format.version_name(version)
    return CorruptMetadataError(format.damaged(name, "it is missing although the version is not expired"), object_name=name)


def _hinted(store: Store) -> int:
    """What the hint says, 0 where it says nothing. [LY7]"""
    try:
        return format.decode_hint(store.get(format.HINT, 0, 64)) or 0
    except FileNotFoundError:
        return 0


def _glance(store: Store, version: int) -> Head | None:
    """The version that the hint names, if it can be read: it may be anything, and proves nothing. [LY7]"""
    with contextlib.suppress(CorruptMetadataError, UnsupportedFormatError):
        return read_object(store, version)
    return None


def _check_readable(store: Store, head: Head, version: int) -> None:
    snapshot = head.snapshot
    if version < 1 or version > snapshot.version:
        raise VersionNotFoundError(
            f"{store.url} has no version {version}; it has {snapshot.expired} to {snapshot.version}{_tagged(snapshot)}"
        )
    if not is_readable(snapshot, version):
        raise SnapshotExpiredError(
            f"version {version} of {store.url} was expired and its files may be gone; the oldest readable version is {snapshot.expired}"
            f"{_tagged(snapshot)}"
        )


def _tagged(snapshot: Snapshot) -> str:
    """Of the expired versions those that tags keep readable, in words, the newest few."""
    kept = sorted({tag.version for tag in snapshot.tags.values() if tag.version < snapshot.expired}, reverse=True)
    return f", beside {', '.join(map(str, kept[:10]))} by a tag" if kept else ""
