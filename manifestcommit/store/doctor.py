"""Tests whether a store keeps what commits rely on: `prove` checks the essentials, `examine`
everything. [ST12]

Some stores accept `If-None-Match` and ignore it, or only for bodies of some sizes, or in some
buckets; only concurrent puts show that. Checks can only find faults: a few rounds without one are
evidence, not a proof. Probes lie below `_manifest/doctor/<random>/`, where no reader looks; anyone
may delete what a crash leaves of them, at any time. [LY12]
"""

from __future__ import annotations

import random
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, TypeVar

import msgspec

from ..errors import StoreDeniedError, StoreError, StoreUnclearError, UnsafeStoreError
from .base import ObjectInfo, Store

T = TypeVar("T")

PROBES = "_manifest/doctor/"  # format.object_names has it, too: neither may import the other
KIB, MIB = 1024, 1024 * 1024
_CREATORS = 32
_AT_ONCE = 5  # rounds of a race, each of so many creators
_SAMPLES = 10
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
    *("a b", "100%", "%2F", "%41", "a+b", "day=1", "#x", "a?b", "a&b", "'single'", '"double"'),
    *("~", "a:b;c", "(x)[y]{z}", "*", "Case", "case", "é", "e\u0301", "日本/語", "🦆", "x" * 200),
)
# Such as versions, markers and intents have: only their order matters.
_ORDER = (
    *(f"{number:020}.json.zst" for number in (2, 9, 10, 11, 10**6)),
    *(f"{kind}-{digits}" for kind in ("TABLE", "i") for digits in ("0a", "a0", "b", "ff")),
    *("B.x", "_z", "a-b", "a.b", "a0"),
)
# Some servers list a folder where its name stands, and not its slash: `a/` before `a-b/`.
_TREE = ("a/x", "a/y/z", "a-b/x", "a0/x", "b")

Result = Literal["passed", "failed", "unclear", "remark"]
Reply = Literal["won", "lost", "perhaps", "unclear"]


class _FaultError(Exception):
    """The store breaks what commits rely on: what was seen, and what follows from it."""


class _RemarkError(Exception):
    """Worth knowing, and no matter of safety."""


class DoctorCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check of a store.

    Attributes:
        check: the name of the check.
        result: "passed", "failed", "unclear" if the store gave no answer, or "remark", which does
            not affect the verdict.
        detail: what the check found.
    """

    check: str
    result: Result
    detail: str


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `Table.doctor`.

    Attributes:
        url: the table path.
        store: the store that the verdict is about.
        verdict: "safe", "unsafe" if any check failed, else "unknown" if any was unclear.
        findings: the result of each check.

    Spec: ST12.
    """

    url: str
    store: str
    verdict: Literal["safe", "unsafe", "unknown"]
    findings: tuple[DoctorCheck, ...]


def prove(store: Store) -> None:
    """UnsafeStoreError unless the store's create lets exactly one of many concurrent creators win,
    and keeps its bytes. [ST12] 85 calls if every response is clear: 71 creates, 4 gets, 4 lists,
    and 6 deletes, which are one request on S3. StoreError if the result is inconclusive."""
    site = Site(store, creators=_CREATORS, rounds=2)
    failed = ""
    try:
        for _, check in ESSENTIAL:
            result, detail = _result(check, site)
            if result == "failed":
                failed = detail
                break
    finally:
        cleaned = site.clean()
    if failed:
        left = f"of which some may be left below {site.folder}/ and may be deleted"
        left = "which were removed" if cleaned else left
        raise UnsafeStoreError(
            f"{store.identity or store.url} is not safe for commits: {failed}. Nothing was written "
            f"but probes, {left}. Use another store; `manifestcommit doctor {store.url}` shows "
            "more."
        )


def examine(
    store: Store,
    *,
    rounds: int = 10,
    progress: Callable[[str], None] | None = None,
) -> DoctorReport:
    """Test everything that commits rely on; never raises for what it is meant to find. Some 700
    requests, 85 MB. [ST12] progress: called with the name of each check before it runs. Raises
    StoreError if the store cannot be reached, and StoreDeniedError if writing is not allowed: then
    there is no result."""
    site = Site(store, creators=_CREATORS, rounds=rounds)
    findings = []
    try:
        store.put(site.name("reached"), b"")
        for name, check in CHECKS:
            if progress is not None:
                progress(name)
            result, detail = _whatever_happens(check, site)
            findings.append(DoctorCheck(check=name, result=result, detail=detail))
    finally:
        site.clean()
    results = {finding.result for finding in findings}
    return DoctorReport(
        url=store.url,
        store=store.identity or store.url,
        verdict="unsafe" if "failed" in results else "unknown" if "unclear" in results else "safe",
        findings=tuple(findings),
    )


# --- How a check is made --------------------------------------------------------------------------


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
        found = self.store.list(f"{self.folder}/{folder}", start_from=start_from)
        return [info.name for info in found]

    def written(self, texts: Iterable[str], *, own_names: bool = False) -> list[str]:
        """Put probes of these names, all at once, empty or with their own names as content."""
        put, names = self.store.put, [self.name(text) for text in texts]
        _at_once([partial(put, name, name.encode() if own_names else b"") for name in names])
        return names

    def content(self, name: str) -> bytes | None:
        """The bytes that a get returns; None if it says that there is no such object."""
        try:
            return self.store.get(name)
        except FileNotFoundError:
            return None

    def delete(self, names: Sequence[str]) -> None:
        """Delete; a remark if the caller's credentials do not allow it."""
        try:
            self.store.delete(names)
        except StoreDeniedError:
            text = "nothing can be cleaned up with them, and the probes stay"
            raise _RemarkError(f"these credentials may not delete: {text}") from None

    def clean(self) -> bool:
        """Remove every probe; False if some may be left, which are harmless: no error."""
        try:
            self.store.delete(dict.fromkeys(self._names))
            # rclone's server keeps listing objects after concurrent creates
            return not self.listed("")
        # as in `_whatever_happens`: any error that a faulty store causes in its client
        except Exception:
            return False


Check = Callable[[Site], str]


def _result(check: Check, site: Site) -> tuple[Result, str]:
    """The result of the check; a missing object that the check had put is a result, too."""
    try:
        return "passed", check(site)
    except (_FaultError, UnsafeStoreError) as error:
        return "failed", str(error)
    except FileNotFoundError as error:
        text = f"an object that was just written is said to be missing ({error})"
        return "failed", f"{text}: {_STALE}"
    except _RemarkError as error:
        return "remark", str(error)


def _hold(holds: bool, fault: str) -> None:
    """_FaultError unless it holds. fault: what was seen, and what follows from it."""
    if not holds:
        raise _FaultError(fault)


def _whatever_happens(check: Check, site: Site) -> tuple[Result, str]:
    """The result of the check, whatever goes wrong in it."""
    try:
        return _result(check, site)
    except StoreError as error:
        return "unclear", str(error)
    # a response that no client can read: its text may contain anything, so only the error's type is
    # shown
    except Exception as error:
        return "unclear", f"the store's answer made no sense ({type(error).__name__})"


def _rounds(site: Site, creators: int, rounds: int, size: int) -> str:
    """Rounds of concurrent creates, all creators of a round for one name, some rounds at once:
    servers keep creators of one name waiting for seconds, and not those of others."""
    for begun in range(0, rounds, _AT_ONCE):
        _at_once([partial(_race, site, creators, size)] * min(_AT_ONCE, rounds - begun))
    return f"{rounds} {'rounds' if rounds > 1 else 'round'} of {creators} with {size:,} bytes"


def _race(site: Site, creators: int, size: int) -> None:
    """One round. One with neither a fault nor a winner is repeated. [ST1] A creator with an
    ambiguous response may have won. Responses to half of them are enough, if the bytes belong to
    one that may have won."""
    is_clear = True
    for _ in range(_REPEATED):
        name = site.name(f"race-{secrets.token_hex(4)}")
        bodies = [(f"{number:04}".encode() * (size // 4 + 1))[:size] for number in range(creators)]
        replies = _at_once([partial(_ask, site.store, name, body) for body in bodies])
        won = [number for number, reply in enumerate(replies) if reply == "won"]
        perhaps = [at for at, reply in enumerate(replies) if reply in ("perhaps", "unclear")]
        several = f"{len(won)} of {creators} concurrent creators of one name"
        _hold(len(won) < 2, f"{several} were answered that they won; {_ONE_IS_LOST}")
        if (won or perhaps) and replies.count("unclear") * 2 <= creators:
            found = site.store.get(name)
            if any(found == bodies[number] for number in won or perhaps):
                return
            if won:
                raise _FaultError(f"the winner's object holds the bytes of another; {_ONE_IS_LOST}")
        is_clear = is_clear and not perhaps
    none = f"none of {creators} concurrent creators of one name was answered that it won"
    _hold(not is_clear, f"{none}, {_REPEATED} times; {_ONE_IS_LOST}")
    which = f"whether one of {creators} concurrent creators wins"
    raise StoreError(f"{site.store.url}: {which} could not be found out: too few clear answers")


def _ask(store: Store, name: str, body: bytes) -> Reply:
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
    reply = _ask(store, name, body)
    if reply == "unclear":
        text = f"could not be found out: the store gave no clear answer {_ASKED} times"
        raise StoreError(f"{store.url}: whether a create wins {text}")
    return reply == "won" or (reply == "perhaps" and store.get(name) == body)


def _at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of calls that run in as many threads, started together."""
    barrier = threading.Barrier(len(calls), timeout=60.0)

    def one(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


# --- Checks: each makes probes of its own, and returns what it tried ------------------------------


def _a_taken_name_stays(site: Site) -> str:
    """S3's multipart uploads know no condition, and clients choose them by size."""
    name = site.name("taken")
    fault = f"a create of a free name was answered that it is taken: {_HISTORY_IS_LOST}"
    _hold(_create(site.store, name, b"first"), fault)
    for size in (0, MIB):
        fault = f"a second create of a name, with {size:,} bytes, was answered that it won: "
        _hold(not _create(site.store, name, b"2" * size), fault + _HISTORY_IS_LOST)
    fault = f"a create that was refused replaced the object nevertheless: {_HISTORY_IS_LOST}"
    _hold(site.store.get(name) == b"first", fault)
    return "0 bytes and 1 MiB were refused"


def _an_empty_object_is_there(site: Site) -> str:
    name = site.name("empty")
    is_kept = _create(site.store, name, b"") and not _create(site.store, name, b"second")
    is_kept = is_kept and site.store.get(name) == b""
    _hold(is_kept, f"an empty object does not keep its name: {_HISTORY_IS_LOST}")
    return ""


def _a_list_shows_at_once(site: Site) -> str:
    fault = f"a list did not show what had just been written, and nothing else: {_STALE}"
    expected: list[str] = []
    for number in range(3):
        if number:
            expected.append(site.name(f"new/{number}"))
            _create(site.store, expected[-1], b"x")
        _hold(site.listed("new/") == expected, fault)
    return ""


def _a_list_forgets_what_is_deleted(site: Site) -> str:
    names = site.written(f"gone/{number}" for number in range(3))
    site.listed("gone/")
    site.delete(names[:2])
    fault = "a list still showed what had been deleted: cleaning up would go wrong"
    _hold(site.listed("gone/") == names[2:], fault)
    return ""


def _a_list_is_in_order(site: Site) -> str:
    """In one folder; of names in several folders it is only complete. [ST3]"""
    names = sorted(site.written(f"order/{text}" for text in _ORDER))
    fault = f"a list is not complete, or not in the order of code points: {_STALE}"
    _hold(site.listed("order/") == names, fault)
    fault = f"a list from a given name on shows other names than those: {_STALE}"
    for start in (names[0], names[7], f"{names[3]}!", f"{names[-1]}x"):
        later = [name for name in names if name >= start]
        _hold(site.listed("order/", start_from=start) == later, fault)
    tree = sorted(site.written(f"tree/{text}" for text in _TREE))
    fault = "a list of several folders is not complete: cleaning up would go wrong"
    _hold(sorted(site.listed("tree/")) == tree, fault)
    return f"{len(names) + len(tree)} names"


def _a_prefix_ends_where_it_says(site: Site) -> str:
    """A listing of /output/dataset1 without /output/dataset10, which would be deleted with it."""
    names = site.written(f"{folder}/a" for folder in ("t1", "t1-x", "t10"))
    found = [sorted(site.listed(prefix)) for prefix in ("t1/", "t1", "t1/a", "t1/b")]
    fault = "a list of t1/ is not the names that begin so: one table would touch another's files"
    _hold(found == [names[:1], sorted(names), names[:1], []], fault)
    return ""


def _a_get_shows_what_was_written(site: Site) -> str:
    name = site.name("written")
    _hold(site.content(name) is None, f"an object that never was is there: {_STALE}")
    _create(site.store, name, b"x" * KIB)
    for _ in range(2):
        fault = f"a get right after a create did not give its bytes: {_STALE}"
        _hold(site.content(name) == b"x" * KIB, fault)
    return ""


def _a_get_shows_the_last_put(site: Site) -> str:
    name, count = site.name("overwritten"), 6
    fault = f"a get after an overwrite gave other bytes than the last ones: {_STALE}"
    for number in range(count):
        body, get = str(number).encode() * (number + 1), partial(site.store.get, name)
        site.store.put(name, body)
        found = {get(), *_at_once([get] * 4), *_at_once([get] * 4)}
        _hold(found == {body}, fault)
    return f"{count} times from several threads"


def _a_missing_object_is_reported(site: Site) -> str:
    trusted = "readers would trust it"
    for text in ("absent", "no/such/folder/absent"):
        name = f"{site.folder}/{text}"
        fault = f"a get of an object that is not there gave bytes: {trusted}"
        _hold(site.content(name) is None, fault)
        try:
            site.store.open_input(name).close()
        except FileNotFoundError:
            continue
        raise _FaultError(f"an object that is not there could be opened: {trusted}")
    return ""


def _a_range_is_what_was_asked_for(site: Site) -> str:
    name, body = site.name("ranged"), secrets.token_bytes(1000)
    site.store.put(name, body)
    for start, end in ((0, 10), (3, None), (990, 2000), (500, 501), (1000, 1001)):
        fault = f"bytes {start} to {end} of an object of 1,000 are others: reads would be wrong"
        _hold(site.store.get(name, start, end) == body[start:end], fault)
    return ""


def _a_delete_deletes(site: Site) -> str:
    name = site.name("deleted")
    site.store.put(name, b"x")
    site.delete([f"{site.folder}/never-was", name])
    site.delete([name])
    fault = "an object is there after it was deleted: nothing could ever be cleaned up"
    _hold(site.content(name) is None, fault)
    _hold(_create(site.store, name, b"again"), "a name stays taken after its object was deleted")
    return "also of what is not there"


def _a_name_is_kept_as_written(site: Site) -> str:
    names = site.written((f"names/{text}" for text in _HOSTILE), own_names=True)
    found = _at_once([partial(site.content, name) for name in names])
    changed = [name for name, body in zip(names, found, strict=True) if body != name.encode()]
    if not changed:
        changed = sorted(set(names).symmetric_difference(site.listed("names/")))
    if changed:
        shown = ", ".join(repr(name.removeprefix(f"{site.folder}/names/")) for name in changed[:3])
        raise _FaultError(
            f"{len(changed)} of {len(names)} names are not kept as they are written, such as "
            f"{shown}: files would not be found"
        )
    return f"{len(names)} names with spaces, %, +, #, unicode, both cases"


def _an_output_appears_whole(site: Site) -> str:
    name, body = site.name("output"), secrets.token_bytes(_STREAM_BYTES)
    output = site.store.create_output(name)
    try:
        for start in range(0, len(body), MIB):
            output.write(body[start : start + MIB])
        is_seen = site.content(name) is not None or site.listed("output")
        _hold(not is_seen, "a file can be seen before it is complete")
        output.close()
    finally:
        output.discard()
    _hold(site.store.get(name) == body, f"a file of {len(body):,} bytes is not what was written")
    return f"{len(body):,} bytes"


def _clocks_agree(site: Site) -> str:
    """For people who read times in listings: correctness does not depend on clocks. [ST6]"""
    name = site.name("clock")
    site.store.put(name, b"x")
    found: list[ObjectInfo] = list(site.store.list(name))
    if not found:
        raise StoreError("the object was not listed")
    ahead_s = found[0].modified - time.time()
    if abs(ahead_s) >= _CLOCK_S:
        apart = f"the store's clock and this machine's are {abs(ahead_s):,.0f} s apart"
        raise _RemarkError(f"{apart}; no commit depends on either")
    return ""


def _small_requests_take_time(site: Site) -> str:
    """Of such requests one after another, for people: no rule depends on it."""
    calls: dict[str, Callable[[str], object]] = {
        "put_if_absent": lambda name: site.store.put_if_absent(name, b"x" * KIB),
        "get": site.store.get,
        "list": lambda name: list(site.store.list(name)),
    }
    names = [site.name(f"timed/{number}") for number in range(_SAMPLES)]
    found = []
    for kind, call in calls.items():
        taken_ms = []
        for name in names:
            began = time.perf_counter()
            try:
                call(name)
            except Exception:  # as in `_whatever_happens`
                raise _RemarkError("the store failed while they were measured") from None
            taken_ms.append((time.perf_counter() - began) * 1000)
        found.append(f"{kind} {statistics.median(taken_ms):.1f} ms (at most {max(taken_ms):.1f})")
    return ", ".join(found)


# The essential checks come first, the concurrent creates before all others.
ESSENTIAL: tuple[tuple[str, Check], ...] = (
    ("one of many creators wins", lambda site: _rounds(site, site.creators, site.rounds, KIB)),
    ("a taken name keeps its object", _a_taken_name_stays),
    ("an empty object takes its name", _an_empty_object_is_there),
    ("a list shows what was written", _a_list_shows_at_once),
)
CHECKS: tuple[tuple[str, Check], ...] = (
    *ESSENTIAL,
    ("one of many empty creators wins", lambda site: _rounds(site, site.creators, 1, 0)),
    ("one of many large creators wins", lambda site: _rounds(site, 4, 1, 8 * MIB)),
    ("a list forgets what was deleted", _a_list_forgets_what_is_deleted),
    ("a list is in order", _a_list_is_in_order),
    ("a prefix ends where it says", _a_prefix_ends_where_it_says),
    ("a get shows what was written", _a_get_shows_what_was_written),
    ("a get shows the last put", _a_get_shows_the_last_put),
    ("a missing object is reported", _a_missing_object_is_reported),
    ("a range is what was asked for", _a_range_is_what_was_asked_for),
    ("a delete deletes", _a_delete_deletes),
    ("names are kept as written", _a_name_is_kept_as_written),
    ("a file appears whole", _an_output_appears_whole),
    ("clocks agree", _clocks_agree),
    ("small requests take", _small_requests_take_time),
)
