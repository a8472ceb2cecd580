"""Reads the chain of versions: the latest in three requests, any older one, by its number, tag or
time, and the second look that makes an older one trustworthy. [RD1]-[RD5] [MT8]

A request for the latest version returns a state of the table: where the newest object is a member
of a joint commit, its home is asked (log.version_chain).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ..errors import (
    CorruptMetadataError,
    SnapshotExpiredError,
    StoreDeniedError,
    StoreError,
    TableNotFoundError,
    UndecidedError,
    UnsupportedFormatError,
    UsageError,
    VersionNotFoundError,
)
from ..format import codec, object_names
from ..format.codec import Hint
from ..format.snapshot import Pending, Snapshot, is_far
from ..protocol.conflict import is_readable
from ..protocol.joint_outcome import attempt_of, member_outcome
from ..runtime.environment import Env
from ..runtime.validation import to_datetime, to_micros, wrong
from ..store import Store
from ..store.base import store_beside
from .manifests import ManifestReader, create_own

# The marker of a table: an object named by the table's id, which disappears when the table path
# is deleted.


def put_marker(store: Store, table_id: str, env: Env) -> None:
    """Create the marker of a table that has no version yet. One request. [LY14] [CM13]"""
    create_own(store, object_names.marker_name(table_id), table_id.encode("ascii"), env)


def drop_marker(store: Store, table_id: str) -> None:
    """Delete a marker if another creator was faster: no job has its id. Best effort. [CM13]"""
    with contextlib.suppress(StoreError):
        store.delete([object_names.marker_name(table_id)])


def misplaced(url: str, snapshot: Snapshot, tables: Set[str]) -> CorruptMetadataError | None:
    """Why this snapshot is not a version of the table at this path; None: it is one. tables: the
    ids of markers in a later listing. It is the error where no version of the table is there, above
    which this one could be skipped. [LY14]"""
    table_id = snapshot.table_id
    if table_id in tables:
        return None
    name, own = object_names.version_name(snapshot.version), object_names.marker_name(table_id)
    wrong, what = own, f"is missing, and {name} belongs to its table"
    if tables:
        others = ", ".join(object_names.marker_name(table) for table in sorted(tables))
        what = f"belongs to table {table_id}, whose marker {own} is missing, and {others} is there"
        wrong = name
    return CorruptMetadataError(
        f"{wrong} at {url} {what}, so no table can be read or written here. Nothing was changed. "
        f"If only the marker was lost, create {own} again with the text {table_id} as its content. "
        f"If the table was removed, a job of it left {name}, and no other table is here yet: "
        f"delete {name} by hand while no job runs.",
        object_name=wrong,
    )


# Asks the home of a joint commit what became of one of its members.


_T = TypeVar("_T")


def ask_fate(
    store: Store, member: Snapshot, hint: Hint | None
) -> Literal["committed", "aborted", "undecided", "newer"]:
    """What became of a member that is the newest object of its table. [MT6] hint: that of its
    table, which may say without a request that the member is committed, and is believed: who may
    put it may create the table's next version, too [MT7]. An error where the answer is not known.
    Three requests, and one for each run that may record the attempt or its job."""
    pending = member.pending
    assert pending is not None
    said = None if hint is None else (hint.version, hint.attempt)
    if said == (member.version, attempt_of(pending)):
        return "committed"
    at = home_of(store, pending)
    try:
        home = open_head(at, is_member_too=True).snapshot
    except TableNotFoundError:
        raise _unknown(store, member, "there is no table there") from None
    except StoreDeniedError as error:
        raise StoreDeniedError(
            f"{store.url}: its newest version is a member of a joint commit that the table at "
            f"{at.url} decides, and these credentials may not read that one: {error}. Nothing was "
            "changed. Who reads this table has to be able to read that one, too: permit it, or "
            f"read version {pending.base}. To be free of it until the next joint commit, "
            "commit here with credentials that may read both (`manifestcommit settle`)."
        ) from error
    if home.table_id != pending.table_id:
        raise _unknown(store, member, f"another table is there, {home.table_id}")
    if (home.rank, home.table_id) >= (member.rank, member.table_id):
        # no writer makes it; followed, homes might name each other without end
        name = object_names.version_name(member.version)
        raise CorruptMetadataError(
            f"{name} at {store.url} names {at.url} as its home, which does not come before it in "
            "the order of tables; nothing was changed.",
            object_name=name,
        )
    reader = ManifestReader(at)

    def is_over(job: str) -> bool:
        state, version = reader.job(home, job)
        is_undecided = home.pending is not None and version == home.version
        return state is not None and not is_undecided

    fate = member_outcome(member, home, is_over)
    if fate == "diverged":
        raise diverged(store, member)
    return fate


def home_of(store: Store, pending: Pending) -> Store:
    """The store of the home; an error where it is not in the store of this table. [MT6] [SE2]"""
    at = store_beside(store, pending.home)
    if at is None:
        raise UndecidedError(
            f"{store.url}: its newest version is a member of a joint commit that the table at "
            f"{pending.home} decides, which is not in the same store; what became of it is not "
            "known. Nothing was changed. Read an earlier version, or ask where both are reachable."
        )
    return at


def diverged(store: Store, member: Snapshot) -> CorruptMetadataError:
    """The error for a member that its home knows as one of another table with the same id. [MT6]"""
    assert member.pending is not None
    name = object_names.version_name(member.version)
    return CorruptMetadataError(
        f"{name} at {store.url} is a member of a joint commit of another table with the same id, "
        f"as {member.pending.home} says: this table is a copy, or was put back. Nothing was "
        f"changed. Read version {member.pending.base}, which does not depend on it.",
        object_name=name,
    )


def _unknown(store: Store, member: Snapshot, why: str) -> UndecidedError:
    assert member.pending is not None
    return UndecidedError(
        f"{store.url}: its newest version is a member of a joint commit that the table at "
        f"{member.pending.home} decides, and {why}; what became of it is not known. Nothing was "
        f"changed. Restore that table, or read version {member.pending.base}; where it is lost for "
        "good, settle this one with an outcome (`manifestcommit settle`)."
    )


# the highest listed version is gone when it is fetched: the table was removed, or the version
# expired very fast
_RESTARTS = 20
_CALM = 3  # number of concurrent commits after which a version that they were built on is accepted


# objects of other tables above the newest version that are skipped; each is of a job that began
# before its table was removed
_MOST_OTHERS = 256
# intents of one listing that are read; a table with more of them waiting needs gc
MAX_INTENTS = 1024


class VersionListing(msgspec.Struct, frozen=True, kw_only=True):
    """One listing from a version on. versions: ascending; tables: the ids of markers; intents: job
    -> size in bytes of its intent; etag: what the store calls the last version's content. [LY2]
    [LY11] [LY14]"""

    versions: list[int]
    tables: frozenset[str] = frozenset()
    intents: dict[str, int] = {}
    etag: str = ""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot and the digest of its object; it was the latest version when it was read. [OB1]

    top: a member of a joint commit above it, which was not committed when this was read; is_void:
    whether that member is known to be aborted, so that it never will be [MT8]; taken: how many
    names right above it (above `top`, where there is one) jobs of a removed table have taken, so
    that the next version's is the one after these [LY15]; data: the object's bytes, if they are
    kept; etag: what the store calls them, waiting: job -> size in bytes of its intent, as the list
    says by which they are the newest object [CM20].
    """

    snapshot: Snapshot
    digest: str
    data: bytes = b""
    top: Head | None = None
    is_void: bool = False
    taken: int = 0
    etag: str = ""
    waiting: Mapping[str, int] = {}

    @property
    def version(self) -> int:
        return self.snapshot.version


def open_head(store: Store, known: Head | None = None, *, is_member_too: bool = False) -> Head:
    """The latest version as of this call: hint; get beside list. TableNotFoundError if there is no
    version at all. [RD1]

    Two more requests if the hint is out of date, one more if there is none; one list if `known`,
    from an earlier call, is still the latest, and one get if it is not. is_member_too: the newest
    object will do, perhaps a member of a joint commit; no home is asked. [MT6]
    """
    if known is not None and known.data and known.top is None and known.snapshot.pending is None:
        # decoded anew: callers own what they were told of it. An error counts in the whole list, as
        # with a hint.
        with contextlib.suppress(CorruptMetadataError):
            name = object_names.version_name(known.version)
            snapshot = codec.decode_snapshot(known.data, name=name)
            own = replace(known, snapshot=snapshot, taken=0)
            if (newest := _newest_object(store, own.version, own)) is not None:
                return settled_head(store, newest)
    hint, glanced, head, above = _hinted(store), None, None, None
    # an error counts in the whole list: a hint may name anything, proves nothing, and may name what
    # a job of a removed table has left [LY7]
    with contextlib.suppress(CorruptMetadataError, UnsupportedFormatError):
        if hint is not None and hint.digest is not None:
            with beside(store, partial(list_above, store, hint.version)) as look:
                glanced, above = read_object(store, hint.version), look()
            # The list may come first. If nothing is above the version there, its object of that
            # moment was never deleted. One of this digest was there before the hint was put: it is
            # that one.
            if glanced is None or glanced.digest != hint.digest:
                above = None
        elif hint is not None:
            glanced = read_object(store, hint.version)
        if hint is not None:
            head = _newest_object(store, hint.version, glanced, above)
    if head is None and (head := _newest_object(store, 0)) is None:
        raise TableNotFoundError(
            f"there is no table at {store.url}; check the path, create the table by a first "
            "write, or `adopt` the Parquet files there"
        )
    return head if is_member_too else settled_head(store, head, hint, glanced)


def newest_above(
    store: Store, base: int, known: Head | None = None, above: VersionListing | None = None
) -> Head | None:
    """The latest version for certain, where a version of at least `base` is known to have existed.
    None: there is none from `base` on. [CM5] [RD1] [MT8]

    known: what was fetched before, if anything; above: a list from `base` on, made after that. One
    list request if it is still the latest, otherwise list and get, and a list once more where the
    store does not tell whether it is what was listed; and those that `settled_head` makes.
    """
    if known is not None and known.top is not None:
        base, known = known.top.version, known.top
    newest = _newest_object(store, base, known, above)
    return None if newest is None else settled_head(store, newest)


def settled_head(
    store: Store, newest: Head, hint: Hint | None = None, got: Head | None = None
) -> Head:
    """The state of the table at its newest object: of a member of a joint commit that is not
    committed, that of its base, and the member as `top`. [MT6] [MT8] No request unless the object
    is a member. Then three to its home, unless the hint says what became of it, and one for the
    base, if that is what is read and not what was `got` before."""
    for _ in range(_RESTARTS):
        pending = newest.snapshot.pending
        if pending is None:
            return newest
        fate, base = ask_fate(store, newest.snapshot, hint), None
        if fate == "committed":
            return newest
        if fate != "newer":
            is_known = got is not None and got.version == pending.base and _is_beneath(got, newest)
            base = got if is_known else read_object(store, pending.base)
            if base is not None and _is_beneath(base, newest):
                return _below(base, newest, fate)
        again = _newest_object(store, newest.version, newest)
        if again is None:
            raise TableNotFoundError(f"the table at {store.url} was removed while it was read")
        if again.version == newest.version:
            if fate == "newer":
                raise diverged(store, newest.snapshot)
            if base is None:
                raise missing_version(pending.base)
            # got before a list that shows that nobody has gone on, so that it cannot be expired
            return _below(base, newest, fate)
        newest = again
    raise StoreError(f"{store.url}: {_RESTARTS} joint commits were made while its head was read")


def _below(base: Head, member: Head, fate: str) -> Head:
    """The state below a member that was not committed. [MT8]"""
    return Head(
        snapshot=base.snapshot,
        digest=base.digest,
        top=member,
        is_void=fate == "aborted",
        taken=member.taken,
        waiting=member.waiting,
    )


def _is_beneath(base: Head, member: Head) -> bool:
    """Whether the member was built on these very bytes."""
    return base.version == member.version - 1 and member.snapshot.parent_digest == base.digest


def _newest_object(
    store: Store, start: int, head: Head | None = None, above: VersionListing | None = None
) -> Head | None:
    """The newest object of the table for certain, None: no version from `start` on. [RD1] [CM5]

    head: an object that was fetched before, if any; above: a list from `start` on that counts as
    made after that, if there is one. The latest version is never deleted. So an
    object that was fetched before a listing that shows nothing above it is the latest; one that was
    fetched after the listing may have been deleted between the two, and created again by a stalled
    writer. Objects of other tables are skipped, as long as there is one of the table that has
    its marker; else CorruptMetadataError. [LY10] [LY14] [LY15]
    """
    others: dict[int, Head] = {}  # read before the listing that counts
    for tried in range(_RESTARTS):
        if above is None or tried:
            above = list_above(store, start)
        if not above.versions:
            return None
        strays = _strays(above, others)
        left = [version for version in above.versions if version not in strays]
        if strays and not (left and above.tables and len(strays) <= _MOST_OTHERS):
            stray = misplaced(store.url, others[max(strays)].snapshot, above.tables)
            raise cast("CorruptMetadataError", stray)
        # one of another table that was fetched long ago does not count: the present table may have
        # this version since
        if head is not None and head.snapshot.table_id not in above.tables:
            head = None
        if head is not None and left[-1] == head.version:
            etag = "" if strays else above.etag
            if head.etag in ("", etag):
                return _beside_others(head, others, above, etag)
            head = None  # others put another object in its place, as one who restores a table does
        # the next version was built on these bytes, as on no expired one made again
        next_one = read_object(store, head.version + 1) if head and tried > _CALM else None
        if head and next_one is not None and next_one.snapshot.parent_digest == head.digest:
            return _beside_others(head, others, above, "")
        head = _highest_own(store, above, left, others, head)
        if head is not None:
            start = head.version
            _check_unbroken(above.versions, head)
            # it is what the list has shown, and nothing was above it there
            if head.version == above.versions[-1] and head.etag and head.etag == above.etag:
                return _beside_others(head, others, above, above.etag)
    text = f"the newest version vanished {_RESTARTS} times between list and get"
    raise StoreError(f"{store.url}: {text}; is the table being removed?")


def _strays(above: VersionListing, others: Mapping[int, Head]) -> set[int]:
    """Which of these objects, read before the listing, are of tables that have no marker there."""
    listed = others.keys() & {*above.versions}
    return {each for each in listed if others[each].snapshot.table_id not in above.tables}


def _highest_own(
    store: Store,
    above: VersionListing,
    left: Sequence[int],
    others: dict[int, Head],
    known: Head | None,
) -> Head | None:
    """The highest of these versions whose table has its marker, None: there is none, or it is gone;
    those above it are added to `others`. [LY14] [LY15]"""
    for version in reversed(left):
        is_known = known is not None and known.version == version
        found = known if is_known else read_object(store, version, above.etag)
        if found is None or found.snapshot.table_id in above.tables:
            return found
        others[version] = found
        if not above.tables or len(others) > _MOST_OTHERS:
            break
    return None


def _beside_others(
    head: Head, others: Mapping[int, Head], above: VersionListing, etag: str
) -> Head:
    taken = 0
    while head.version + taken + 1 in others:
        taken += 1
    return replace(head, taken=taken, etag=etag, waiting=above.intents)


def _check_unbroken(listed: list[int], head: Head) -> None:
    """CorruptMetadataError if a listing that shows the latest version lacks readable versions below
    it: none of this table's jobs made that version. A void one may be gone: others left it. [OB4]
    [LY15]"""
    first, end = (bisect_left(listed, at) for at in (head.snapshot.expired, head.version + 1))
    chain = listed[first:end]
    if not chain:
        return
    missing = head.version - chain[0] + 1 - len(chain)
    void = head.snapshot.void
    if missing > len(void) or missing > len({each for each in void if each > chain[0]} - {*chain}):
        name = object_names.version_name(head.version)
        said = f"it says that versions are readable from {head.snapshot.expired} on"
        raise codec.damaged(name, f"{said}, and of those from {chain[0]} on some are missing")


def list_above(store: Store, start: int) -> VersionListing:
    """Every version from `start` on, and the markers and intents, which the listing returns after
    them. One request. [LY2] [LY11] [LY14] [ST3] Intents beyond the first `MAX_INTENTS` are ignored.
    """
    versions: list[int] = []
    tables: list[str] = []
    intents: dict[str, int] = {}
    etag = ""
    for info in store.list(object_names.VERSIONS, start_from=object_names.version_name(start)):
        found = object_names.LISTED.fullmatch(info.name)
        if found is None:
            continue
        if found["version"]:
            versions.append(int(found["version"]))
            etag = info.etag.strip('"')
        elif found["table"]:
            tables.append(found["table"])
        else:
            intents[found["job"]] = info.size_bytes
            if len(intents) == MAX_INTENTS:
                break  # versions come first
    return VersionListing(versions=versions, tables=frozenset(tables), intents=intents, etag=etag)


def read_object(store: Store, version: int, listed: str = "") -> Head | None:
    """The snapshot object of `version`, checked; None if it does not exist. This does not say
    whether it is readable, nor whether it is a state of the table: `void` of a later version and
    `settled_head` show it. listed: its ETag in a list; the head has it if that is what was got.
    [OB3] [OB4] [OB16]"""
    name = object_names.version_name(version)
    try:
        data, etag = store.get_tagged(name, codec.MAX_OBJECT_BYTES + 1)
    except FileNotFoundError:
        return None
    snapshot = codec.decode_snapshot(data, name=name)
    is_listed = etag == listed
    etag = etag if is_listed else ""
    return Head(snapshot=snapshot, digest=codec.digest(data), data=data, etag=etag)


def read_version(store: Store, head: Head, version: int) -> Head:
    """A readable version; SnapshotExpiredError or VersionNotFoundError otherwise. [RD3] [RD4] An
    object with an expired name may come from a stalled writer: after reading a version below the
    head, the head is read again."""
    if version == head.version:
        return head
    if version > head.version:
        head = open_head(store)
        if version == head.version:
            return head
    _check_readable(store, head, version)
    stored = read_object(store, version)
    newest = newest_above(store, head.version, head)
    if newest is None or newest.snapshot.table_id != head.snapshot.table_id:
        text = f"the table at {store.url} was removed while version {version} was read"
        raise TableNotFoundError(text)
    _check_readable(store, newest, version)
    if stored is None:
        raise missing_version(version)
    _check_beside(store, newest, stored)
    return stored


def next_state(head: Snapshot, version: int) -> int:
    """This version, or the next one above it that is not void. [MT5] [LY15]"""
    at = bisect_left(head.void, version)
    while at < len(head.void) and head.void[at] == version:
        at, version = at + 1, version + 1
    return version


def walk_back(store: Store, head: Head) -> Iterator[Head]:
    """The head and its predecessors, newest first, down to the oldest readable version. One request
    each. [RD3] A version that expired during the walk, and was created again by a stalled writer,
    is left out: its successor was not built on it."""
    lowest, child = head.snapshot.expired, head
    yield head
    for version in range(head.version - 1, lowest - 1, -1):
        stored = read_object(store, version)
        is_void = version in head.snapshot.void
        if is_void and (stored is None or stored.digest != child.snapshot.parent_digest):
            continue  # others left it: nothing was built on it [LY15]
        if stored is None or stored.digest != child.snapshot.parent_digest:
            newest = open_head(store)
            if version < newest.snapshot.expired:
                return  # it expired during the walk: the history now ends here
        if stored is None:
            raise missing_version(version)
        if not is_void:
            yield stored
        child = stored


@contextlib.contextmanager
def raise_if_expired(store: Store, version: int) -> Iterator[None]:
    """Run code that reads the files of a version. If the version expires meanwhile, a missing file
    is not damage: SnapshotExpiredError. [RD3] [GC5]"""
    try:
        yield
    except CorruptMetadataError:
        newest = newest_above(store, version)
        if newest is not None and newest.snapshot.version > version:
            _check_readable(store, newest, version)
        raise


def missing_version(version: int) -> CorruptMetadataError:
    """The error for a version that must exist and does not. [OB4] [IV1]"""
    name = object_names.version_name(version)
    return codec.damaged(name, "it is missing although the version is not expired")


def _hinted(store: Store) -> Hint | None:
    """What the hint says, None: it names no version. [LY7] [MT7]"""
    try:
        hint = codec.decode_hint(store.get(object_names.HINT, 0, codec.MAX_HINT_BYTES + 1))
    except FileNotFoundError:
        return None
    return hint if hint is not None and hint.version else None


def put_hint(store: Store, version: int, digest: str | None, attempt: str | None = None) -> None:
    """Best effort: it only shortens a list. [CM7]"""
    with contextlib.suppress(StoreError):
        store.put(object_names.HINT, codec.encode_hint(version, digest, attempt))


@contextlib.contextmanager
def beside(store: Store, request: Callable[[], _T]) -> Iterator[Callable[[], _T]]:
    """What returns the result of a request that may take effect before or after those that are made
    in the block: it is sent at once, if the store is behind a network, and answered when the block
    ends, whatever ends it; a simulated store draws which one goes first."""
    if getattr(store, "goes_second_first", bool)():
        found = request()
        yield lambda: found
    elif not store.is_remote:
        yield request
    else:
        with ThreadPoolExecutor(1, thread_name_prefix="manifestcommit-beside") as pool:
            yield pool.submit(request).result


def _check_beside(store: Store, head: Head, other: Head) -> None:
    """Check that two readable versions belong to one table: an object with an expired name may have
    been left by a stalled job of any table. [OB2] [LY10]"""
    lower, higher = sorted((head.snapshot, other.snapshot), key=lambda each: each.version)
    if lower.table_id == higher.table_id or not is_readable(higher, lower.version):
        return
    name = object_names.version_name(higher.version)
    raise CorruptMetadataError(
        f"{name} at {store.url} is of table {higher.table_id}, and version {lower.version} below "
        f"it of table {lower.table_id}: a job of a removed table left one of them. Nothing was "
        "changed. Find out which table belongs here (`manifestcommit verify`), and delete the "
        "versions of the other one by hand while no job runs.",
        object_name=name,
    )


def _check_readable(store: Store, head: Head, version: int) -> None:
    snapshot = head.snapshot
    if version < 1 or version > snapshot.version:
        raise VersionNotFoundError(
            f"{store.url} has no version {version}; it has {snapshot.expired} to "
            f"{snapshot.version}{_tagged(snapshot)}"
        )
    if version in snapshot.void:
        raise VersionNotFoundError(
            f"version {version} of {store.url} is void: it was never a state of the table, but a "
            "member of a joint commit that was aborted, or left by a job of a table that was "
            "removed. Choose another version."
        )
    if not is_readable(snapshot, version):
        raise SnapshotExpiredError(
            f"version {version} of {store.url} was expired and its files may be gone; the oldest "
            f"readable version is {snapshot.expired}{_tagged(snapshot)}"
        )


def _tagged(snapshot: Snapshot) -> str:
    """Describe the newest few expired versions that tags keep readable."""
    tagged = {tag.version for tag in snapshot.tags.values()}
    kept = sorted((each for each in tagged if each < snapshot.expired), reverse=True)
    return f", beside {', '.join(map(str, kept[:10]))} by a tag" if kept else ""


# Time travel: which version a reader asks for, by number, tag or time. [RD4] [RD5]

LOG = logging.getLogger("manifestcommit.jobs")


def choose_version(
    store: Store,
    head: Head,
    *,
    version: int | None,
    as_of: str | dt.datetime | None,
    tag: str | None,
) -> int | None:
    """The requested version; None: the latest. At most one argument is given. [RD4] [RD5]"""
    choices = {"version": version, "as_of": as_of, "tag": tag}
    given = [name for name, value in choices.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"give one of version, as_of and tag, not {' and '.join(given)}")
    if version is not None:
        if isinstance(version, bool) or not isinstance(version, int):
            raise wrong("version", version, "a whole number from 1 on")
        return version
    if tag is not None:
        if tag not in head.snapshot.tags:
            known = ", ".join(sorted(head.snapshot.tags)) or "none"
            raise VersionNotFoundError(f"{store.url} has no tag {tag!r}; it has: {known}")
        return head.snapshot.tags[tag].version
    return None if as_of is None else _version_at(store, head, to_micros(as_of))


def _version_at(store: Store, head: Head, moment: int) -> int:
    """The highest readable version not committed after that time: a binary search, since times
    never decrease along the chain. [CM14]"""
    if head.snapshot.committed_at <= moment:
        return head.version
    none = f"{store.url} has no readable version as old as {to_datetime(moment).isoformat()}"
    low, high = head.snapshot.expired, head.version  # the answer lies in [low, high)
    if (oldest := _committed_at(store, head, low)) > moment:
        _check_undisputed(store, head, moment, low, oldest)
        raise VersionNotFoundError(f"{none}; the oldest is {low}")
    while high - low > 1:
        middle = (low + high) // 2
        if _committed_at(store, head, middle) <= moment:
            low = middle
        else:
            high = middle
    _check_undisputed(store, head, moment, high, _committed_at(store, head, high))
    for void in reversed(head.snapshot.void):  # was never a state of the table [MT8]
        low -= void == low
    if low < head.snapshot.expired:
        raise VersionNotFoundError(none)
    return low


def _check_undisputed(store: Store, head: Head, moment: int, above: int, said: int) -> None:
    """VersionNotFoundError if the version above the answer was certainly not committed at its
    recorded time, a warning if that is possible. [CM27] The recorded time is certainly wrong if it
    lies in the future, or if the clocks of later writers have reached it. If their clocks jumped
    over it, theirs may be the wrong ones."""
    env: Env = getattr(store, "env", None) or Env()
    now = store.now_s
    now_us = env.now_us() if now is None else int(now * 1e6)
    disputes = head.snapshot.disputed_times
    dispute = next((each for each in disputes if each.first == above), None)
    is_ahead = said > now_us and is_far(said, now_us)
    if dispute is None and not is_ahead:
        return
    last = head.version if dispute is None else dispute.last
    text = (
        f"{store.url}: which version was the newest at {to_datetime(moment).isoformat()} is not "
        f"known. Versions {above} to {last} say that they were committed at "
        f"{to_datetime(said).isoformat()}, by a clock that is far from the others'. Choose one of "
        "them, or one before them, by its number: version=…."
    )
    if is_ahead or (dispute is not None and not is_far(dispute.said, dispute.clock)):
        raise VersionNotFoundError(text)
    LOG.warning("%s Version %d is read.", text, above - 1)


def _committed_at(store: Store, head: Head, version: int) -> int:
    """When a version was committed; of a void one, when the next that is a state was: its object
    may be of another table. [LY15]"""
    version = next_state(head.snapshot, version)
    stored = head if version == head.version else read_object(store, version)
    if stored is not None:
        return stored.snapshot.committed_at
    if version < (oldest := open_head(store).snapshot.expired):
        raise SnapshotExpiredError(
            f"{store.url}: versions below {oldest} expired while the time was looked up; ask again"
        )
    raise missing_version(version)
