"""Checks of a store: each creates probes, runs concurrent creates, and reports what it saw. [ST12]

Some stores accept `If-None-Match` and ignore it, or only for bodies of some sizes, or in some
buckets; only concurrent puts show that. They can only find faults: a few rounds without one are
evidence, not a proof. Probes lie below `_manifest/doctor/<random>/`, where no reader looks; anyone
may delete what a crash leaves of them, at any time. [LY12]
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

from ..errors import StoreDeniedError, StoreError, StoreUnclearError, UnsafeStoreError
from .base import ObjectInfo, Store

T = TypeVar("T")

PROBES = "_manifest/doctor/"  # format.object_names has it, too: neither may import the other
KIB, MIB = 1024, 1024 * 1024
# requests of a creator that gets an ambiguous response, such as S3's 409 under contention
_ASKED = 3
_REPEATED = 3  # repeats of an inconclusive round
_FIRST_PAUSE_S = 0.05
_STREAM_BYTES = 20_000_000  # several parts of an upload
_CLOCK_S = 3600.0

_ONE_IS_LOST = "of two jobs that commit at once, one would be lost without an error"
_HISTORY_IS_LOST = "a commit could replace another one"
_STALE = "jobs and readers would act on an older state of the table"

# Names such as tables have: without a backslash, which Azure takes for a slash. [LY1]
_HOSTILE = (
    "a b",
    "100%",
    "%2F",
    "%41",
    "a+b",
    "day=1",
    "#x",
    "a?b",
    "a&b",
    "'single'",
    '"double"',
    "~",
    "a:b;c",
    "(x)[y]{z}",
    "*",
    "Case",
    "case",
    "é",
    "e\u0301",
    "日本/語",
    "🦆",
    "x" * 200,
)
# A folder is ordered by its slash; UTF-16 would order 🦆 before \ue000.
_ORDER = (
    "a!",
    "a-b",
    "a/x",
    "a/y/z",
    "a0",
    "a.b",
    "a b",
    "a+",
    "a%",
    "B",
    "Z",
    "_",
    "~",
    "é",
    "\ue000",
    "🦆",
)

Result = Literal["passed", "failed", "unclear", "remark"]
Answer = tuple[Result, str]
Told = Literal["won", "lost", "perhaps", "unclear"]


class Site:
    """A private place for probes, and the number of concurrent creates there."""

    def __init__(self, store: Store, *, creators: int, rounds: int) -> None:
        self.store, self.creators, self.rounds = store, creators, rounds
        self.folder = f"{PROBES}{secrets.token_hex(16)}"
        self._names: list[str] = []

    def name(self, text: str) -> str:
        """The name of a probe, which is removed in the end."""
        name = f"{self.folder}/{text}"
        self._names.append(name)
        return name

    def listed(self, folder: str, *, start_from: str = "") -> list[str]:
        """The probes that a listing of a folder returns."""
        return [
            info.name for info in self.store.list(f"{self.folder}/{folder}", start_from=start_from)
        ]

    def is_missing(self, name: str) -> bool:
        """Whether a get says that there is no such object."""
        try:
            self.store.get(name)
        except FileNotFoundError:
            return True
        return False

    def may_delete(self, names: Sequence[str]) -> bool:
        """Delete; False if the caller's credentials do not allow it."""
        try:
            self.store.delete(names)
        except StoreDeniedError:
            return False
        return True

    def clean(self) -> bool:
        """Remove every probe; False if some may be left: they are harmless, and the answer matters
        more than an error."""
        try:
            self.store.delete(dict.fromkeys(self._names))
            # rclone's server keeps listing objects after concurrent creates
            return not self.listed("")
        # as in `answer`: any error that a faulty store causes in its client
        except Exception:
            return False


# --- Checks: each makes probes of its own ---------------------------------------------------------


def _one_creator_wins(site: Site) -> Answer:
    return _rounds(site, site.creators, site.rounds, KIB)


def _one_empty_creator_wins(site: Site) -> Answer:
    return _rounds(site, site.creators, 1, 0)


def _one_large_creator_wins(site: Site) -> Answer:
    return _rounds(site, 4, 1, 8 * MIB)


def _a_taken_name_stays(site: Site) -> Answer:
    """S3's multipart uploads know no condition, and clients choose them by size."""
    name = site.name("taken")
    if not _create(site.store, name, b"first"):
        return (
            "failed",
            f"a create of a free name was answered that it is taken: {_HISTORY_IS_LOST}",
        )
    for size in (0, MIB):
        if _create(site.store, name, b"2" * size):
            return "failed", (
                f"a second create of a name, with {size:,} bytes, was answered that it won: "
                f"{_HISTORY_IS_LOST}"
            )
    if site.store.get(name) != b"first":
        return (
            "failed",
            f"a create that was refused replaced the object nevertheless: {_HISTORY_IS_LOST}",
        )
    return "passed", "0 bytes and 1 MiB were refused"


def _an_empty_object_is_there(site: Site) -> Answer:
    name = site.name("empty")
    created = _create(site.store, name, b"")
    if not created or _create(site.store, name, b"second") or site.store.get(name) != b"":
        return "failed", f"an empty object does not keep its name: {_HISTORY_IS_LOST}"
    return "passed", ""


def _a_list_shows_at_once(site: Site) -> Answer:
    expected: list[str] = []
    for number in range(3):
        if number:
            expected.append(site.name(f"new/{number}"))
            _create(site.store, expected[-1], b"x")
        if site.listed("new/") != expected:
            return (
                "failed",
                f"a list did not show what had just been written, and nothing else: {_STALE}",
            )
    return "passed", ""


def _a_list_forgets_what_is_deleted(site: Site) -> Answer:
    names = [site.name(f"gone/{number}") for number in range(3)]
    for name in names:
        site.store.put(name, b"x")
    site.listed("gone/")
    if not site.may_delete(names[:2]):
        return _MAY_NOT_DELETE
    if site.listed("gone/") != names[2:]:
        return "failed", "a list still showed what had been deleted: cleaning up would go wrong"
    return "passed", ""


def _a_list_is_in_order(site: Site) -> Answer:
    names = sorted(site.name(f"order/{text}") for text in _ORDER)
    for name in names:
        site.store.put(name, b"")
    if site.listed("order/") != names:
        return "failed", f"a list is not complete, or not in the order of code points: {_STALE}"
    for start in (names[0], names[7], f"{site.folder}/order/a/y", f"{names[-1]}x"):
        if site.listed("order/", start_from=start) != [name for name in names if name >= start]:
            return "failed", f"a list from a given name on shows other names than those: {_STALE}"
    return "passed", f"{len(names)} names"


def _a_prefix_ends_where_it_says(site: Site) -> Answer:
    """A listing of /output/dataset1 must not return /output/dataset10: deleting by such a prefix
    loses data."""
    names = [site.name(f"{folder}/a") for folder in ("t1", "t1-x", "t10")]
    for name in names:
        site.store.put(name, b"")
    found = [sorted(site.listed(prefix)) for prefix in ("t1/", "t1", "t1/a", "t1/b")]
    if found != [names[:1], sorted(names), names[:1], []]:
        return "failed", (
            "a list of t1/ is not the names that begin so: one table would touch the files "
            "of another"
        )
    return "passed", ""


def _a_get_shows_what_was_written(site: Site) -> Answer:
    name = site.name("written")
    if not site.is_missing(name):
        return "failed", f"an object that never was is there: {_STALE}"
    _create(site.store, name, b"x" * KIB)
    if site.is_missing(name) or site.store.get(name) != b"x" * KIB:
        return "failed", f"a get right after a create did not give its bytes: {_STALE}"
    return "passed", ""


def _a_get_shows_the_last_put(site: Site) -> Answer:
    name, count = site.name("overwritten"), 6
    for number in range(count):
        body = str(number).encode() * (number + 1)
        site.store.put(name, body)
        found = {site.store.get(name)}.union(
            *_at_once([lambda: {site.store.get(name), site.store.get(name)}] * 4)
        )
        if found != {body}:
            return (
                "failed",
                f"a get after an overwrite gave other bytes than the last ones: {_STALE}",
            )
    return "passed", f"{count} times from several threads"


def _a_missing_object_is_told(site: Site) -> Answer:
    for text in ("absent", "no/such/folder/absent"):
        name = f"{site.folder}/{text}"
        if not site.is_missing(name):
            return (
                "failed",
                "a get of an object that is not there gave bytes: readers would trust them",
            )
        try:
            site.store.open_input(name).close()
        except FileNotFoundError:
            continue
        return "failed", "an object that is not there could be opened: readers would trust it"
    return "passed", ""


def _a_range_is_what_was_asked_for(site: Site) -> Answer:
    name, body = site.name("ranged"), secrets.token_bytes(1000)
    site.store.put(name, body)
    for start, end in ((0, 10), (3, None), (990, 2000), (500, 501), (1000, 1001)):
        if site.store.get(name, start, end) != body[start:end]:
            return "failed", (
                f"bytes {start} to {end} of an object of 1,000 are not those: readers would "
                "see wrong data"
            )
    return "passed", ""


def _a_delete_deletes(site: Site) -> Answer:
    name = site.name("deleted")
    site.store.put(name, b"x")
    if not (site.may_delete([f"{site.folder}/never-was", name]) and site.may_delete([name])):
        return _MAY_NOT_DELETE
    if not site.is_missing(name):
        return "failed", "an object is there after it was deleted: nothing could ever be cleaned up"
    if not _create(site.store, name, b"again"):
        return "failed", "a name stays taken after its object was deleted"
    return "passed", "also of what is not there"


def _a_name_is_kept_as_written(site: Site) -> Answer:
    names = [site.name(f"names/{text}") for text in _HOSTILE]
    for name in names:
        site.store.put(name, name.encode())
    changed = [
        name for name in names if site.is_missing(name) or site.store.get(name) != name.encode()
    ]
    if not changed and site.listed("names/") != sorted(names):
        changed = sorted(set(names).symmetric_difference(site.listed("names/")))
    if changed:
        shown = ", ".join(repr(name.removeprefix(f"{site.folder}/names/")) for name in changed[:3])
        return "failed", (
            f"{len(changed)} of {len(names)} names are not kept as they are written, such as "
            f"{shown}: files would not be found"
        )
    return "passed", f"{len(names)} names with spaces, %, +, #, unicode, both cases"


def _an_output_appears_whole(site: Site) -> Answer:
    name, body = site.name("output"), secrets.token_bytes(_STREAM_BYTES)
    output = site.store.create_output(name)
    try:
        for start in range(0, len(body), MIB):
            output.write(body[start : start + MIB])
        if not site.is_missing(name) or site.listed("output"):
            return "failed", "a file can be seen before it is complete"
        output.close()
    finally:
        output.discard()
    if site.store.get(name) != body:
        return "failed", f"a file of {len(body):,} bytes is not what was written"
    return "passed", f"{len(body):,} bytes"


def _clocks_agree(site: Site) -> Answer:
    """For people who read times in listings: correctness does not depend on clocks. [ST6]"""
    name = site.name("clock")
    site.store.put(name, b"x")
    found: list[ObjectInfo] = list(site.store.list(name))
    if not found:
        return "unclear", "the object was not listed"
    ahead_s = found[0].modified - time.time()
    if abs(ahead_s) < _CLOCK_S:
        return "passed", ""
    return "remark", (
        f"the store's clock and this machine's are {abs(ahead_s):,.0f} s apart; no commit "
        "depends on either"
    )


Check = Callable[[Site], Answer]

# The essential checks come first, the concurrent creates before all others.
ESSENTIAL: tuple[tuple[str, Check], ...] = (
    ("one of many creators wins", _one_creator_wins),
    ("a taken name keeps its object", _a_taken_name_stays),
    ("an empty object takes its name", _an_empty_object_is_there),
    ("a list shows what was written", _a_list_shows_at_once),
)
CHECKS: tuple[tuple[str, Check], ...] = (
    *ESSENTIAL,
    ("one of many empty creators wins", _one_empty_creator_wins),
    ("one of many large creators wins", _one_large_creator_wins),
    ("a list forgets what was deleted", _a_list_forgets_what_is_deleted),
    ("a list is in order", _a_list_is_in_order),
    ("a prefix ends where it says", _a_prefix_ends_where_it_says),
    ("a get shows what was written", _a_get_shows_what_was_written),
    ("a get shows the last put", _a_get_shows_the_last_put),
    ("a missing object is reported", _a_missing_object_is_told),
    ("a range is what was asked for", _a_range_is_what_was_asked_for),
    ("a delete deletes", _a_delete_deletes),
    ("names are kept as written", _a_name_is_kept_as_written),
    ("a file appears whole", _an_output_appears_whole),
    ("clocks agree", _clocks_agree),
)

_MAY_NOT_DELETE: Answer = (
    "remark",
    "these credentials may not delete: nothing can be cleaned up with them, and the probes stay",
)


# --- How a check is made --------------------------------------------------------------------------


def seen(check: Check, site: Site) -> Answer:
    """The result of the check; a missing object that the check had put is a result, too."""
    try:
        return check(site)
    except FileNotFoundError as error:
        return (
            "failed",
            f"an object that was just written is said to be missing ({error}): {_STALE}",
        )
    except UnsafeStoreError as error:
        return "failed", str(error)


def answer(check: Check, site: Site) -> Answer:
    """The result of the check, whatever goes wrong in it."""
    try:
        return seen(check, site)
    except StoreError as error:
        return "unclear", str(error)
    # a response that no client can read: its text may contain anything, so only the error's type is
    # shown
    except Exception as error:
        return "unclear", f"the store's answer made no sense ({type(error).__name__})"


def _rounds(site: Site, creators: int, rounds: int, size: int) -> Answer:
    """Rounds of concurrent creates, all creators of a round for one name."""
    for _ in range(rounds):
        fault = _race(site, creators, size)
        if fault:
            return "failed", f"{fault}; {_ONE_IS_LOST}"
    return (
        "passed",
        f"{rounds} {'rounds' if rounds > 1 else 'round'} of {creators} with {size:,} bytes",
    )


def _race(site: Site, creators: int, size: int) -> str:
    """One round: its fault, or nothing. A round with neither a fault nor a winner is repeated.
    [ST1]

    A creator with an ambiguous response may have won. Responses to half of them are enough, if the
    bytes belong to one that may have won.
    """
    is_clear = True
    for _ in range(_REPEATED):
        name = site.name(f"race-{secrets.token_hex(4)}")
        bodies = [(f"{number:04}".encode() * (size // 4 + 1))[:size] for number in range(creators)]
        told = _at_once([_creator(site.store, name, body) for body in bodies])
        won = [number for number, result in enumerate(told) if result == "won"]
        perhaps = [number for number, result in enumerate(told) if result in ("perhaps", "unclear")]
        if len(won) > 1:
            return (
                f"{len(won)} of {creators} concurrent creators of one name were answered that they "
                "won"
            )
        if (won or perhaps) and told.count("unclear") * 2 <= creators:
            found = site.store.get(name)
            if any(found == bodies[number] for number in won or perhaps):
                return ""
            if won:
                return "the winner's object holds the bytes of another"
        is_clear = is_clear and not perhaps
    if is_clear:
        return (
            f"none of {creators} concurrent creators of one name was answered that it won, "
            f"{_REPEATED} times"
        )
    raise StoreError(
        f"{site.store.url}: whether one of {creators} concurrent creators wins could not be "
        "found out: too few clear answers"
    )


def _creator(store: Store, name: str, body: bytes) -> Callable[[], Told]:
    return lambda: _ask(store, name, body)


def _ask(store: Store, name: str, body: bytes) -> Told:
    """Create, and repeat after an ambiguous response: a creator that then learns that the name is
    taken may have taken it itself. [ST5]"""
    for tried in range(_ASKED):
        try:
            created = store.put_if_absent(name, body)
        except StoreUnclearError:
            time.sleep(_FIRST_PAUSE_S * 2**tried * random.uniform(0.5, 1.0))
            continue
        return "won" if created else "perhaps" if tried else "lost"
    return "unclear"


def _create(store: Store, name: str, body: bytes) -> bool:
    told = _ask(store, name, body)
    if told == "unclear":
        raise StoreError(
            f"{store.url}: whether a create wins could not be found out: the store gave no "
            f"clear answer {_ASKED} times"
        )
    return told == "won" or (told == "perhaps" and store.get(name) == body)


def _at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of calls that run in as many threads, started together."""
    barrier = threading.Barrier(len(calls), timeout=60.0)

    def one(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))
