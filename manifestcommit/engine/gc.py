"""Expiry and gc: commit what may go, read what must stay, delete the rest. [GC1]-[GC9] [GC12]

Deletes nothing before the decision stands in the chain, and nothing that a readable version lists or a job that can still commit has
written, whatever runs beside it and whatever any clock says. A crash anywhere leaves a table that the next gc finishes. [IV7]

Not here: which name may go (core.retention), what the readable versions list (engine.reach), the decision itself (engine.retain).
"""

from __future__ import annotations

import contextlib
import logging
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from ..core import retention
from ..core.retention import Horizon, Policy, Verdict, horizon_of
from ..errors import StoreDeniedError, StoreError, TableNotFoundError
from ..store import KeepsUnfinished, ObjectInfo, Unfinished
from .head import open_head
from .reach import Reach, Tell, collect
from .retain import commit_decision, foresee, look_for_foreign, store_time
from .session import Session

LOG = logging.getLogger("manifestcommit.jobs")
_TRIES = 20  # at reading the versions: another gc that goes further makes this one start over
_BATCH = 1000
_COMPARED = 250  # objects of a list that are compared together
_NAMES_TOLD = 100
PLAN = pa.schema([("name", pa.string()), ("bytes", pa.int64()), ("reason", pa.string()), ("action", pa.string())])


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How many objects, and how large they are together."""

    count: int = 0
    bytes: int = 0


class GcReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one gc did. version: the one that the decision stands in; fence: jobs born below it are given up; expired: the oldest version
    that is readable now; kept: what stays, young objects included; deleted: by kind; foreign: files that this table's jobs did not
    write, and that were left; foreign_names: the first of them; unknown: objects below `_manifest/` that this release does not know,
    left as well. [GC5] [GC6]"""

    url: str
    version: int
    fence: int
    expired: int
    kept: Tally = Tally()
    deleted: dict[str, Tally] = {}
    foreign: Tally = Tally()
    foreign_names: tuple[str, ...] = ()
    unknown: Tally = Tally()


class Ledger:
    """Counts what is decided on, while it is; of the names of foreign files it keeps the first hundred."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], list[int]] = {}
        self.foreign_names: list[str] = []

    @property
    def tallies(self) -> dict[tuple[str, str], Tally]:
        """How many of which action and kind; what is kept is of one kind."""
        return {place: Tally(count=count, bytes=bytes) for place, (count, bytes) in self._sums.items()}

    def note(self, name: str, size_bytes: int, verdict: Verdict) -> None:
        place = verdict.action, "" if verdict.action == "keep" else verdict.kind
        self._count(place, 1, size_bytes)
        if place == ("leave", "foreign"):
            self._tell(name)

    def add(self, tallies: Mapping[tuple[str, str], Tally], foreign_names: Iterable[str]) -> None:
        """What another ledger says."""
        for place, tally in tallies.items():
            self._count(place, tally.count, tally.bytes)
        for name in foreign_names:
            self._tell(name)

    def _count(self, place: tuple[str, str], count: int, bytes: int) -> None:
        sums = self._sums.setdefault(place, [0, 0])
        sums[0] += count
        sums[1] += bytes

    def _tell(self, name: str) -> None:
        if len(self.foreign_names) < _NAMES_TOLD or name < self.foreign_names[-1]:
            insort(self.foreign_names, name)
            del self.foreign_names[_NAMES_TOLD:]

    def report(self, url: str, horizon: Horizon) -> GcReport:
        tallies = self.tallies
        return GcReport(
            url=url,
            version=horizon.version,
            fence=horizon.fence,
            expired=horizon.expired,
            kept=tallies.get(("keep", ""), Tally()),
            deleted={kind: tally for (action, kind), tally in sorted(tallies.items()) if action == "delete"},
            foreign=tallies.get(("leave", "foreign"), Tally()),
            foreign_names=tuple(self.foreign_names),
            unknown=tallies.get(("leave", "unknown"), Tally()),
        )


class Comparison(Protocol):
    """Who lists everything below the root and compares it with what the readable versions reach: this process, or Spark. [GC13]

    The order of steps, and what follows for a name, are the same for all.
    """

    def look(
        self, session: Session, horizon: Horizon, pending: frozenset[str], cut_s: float | None, tell: Tell
    ) -> tuple[frozenset[str], frozenset[str]]:
        """As `retain.look_for_foreign`. [GC6]"""
        ...

    def collect(self, session: Session, horizon: Horizon, tell: Tell) -> Any:
        """What the readable versions reach, in a form of its own; None where another gc has gone further. [GC4]"""
        ...

    def delete(self, session: Session, horizon: Horizon, reach: Any, cut_s: float, ledger: Ledger, tell: Tell) -> None:
        """Everything that is dead, expired versions last, lowest first. [GC5] [GC7]"""
        ...

    def plan(self, session: Session, horizon: Horizon, reach: Any, cut_s: float, unfinished: list[dict[str, object]], tell: Tell) -> Any:
        """The rows of a plan, in a form of its own. [GC5]"""
        ...


class Alone:
    """This process lists and compares: eight bytes in memory for each live file, and for each object nothing. [GC18]"""

    def look(
        self, session: Session, horizon: Horizon, pending: frozenset[str], cut_s: float | None, tell: Tell
    ) -> tuple[frozenset[str], frozenset[str]]:
        return look_for_foreign(session, horizon, pending, cut_s, tell)

    def collect(self, session: Session, horizon: Horizon, tell: Tell) -> Reach | None:
        return collect(session, horizon, tell, Reach())

    def delete(self, session: Session, horizon: Horizon, reach: Reach, cut_s: float, ledger: Ledger, tell: Tell) -> None:
        delete_dead(session, horizon, verdicts(session, horizon, reach.among, cut_s, tell), ledger)

    def plan(
        self, session: Session, horizon: Horizon, reach: Reach, cut_s: float, unfinished: list[dict[str, object]], tell: Tell
    ) -> pa.Table:
        found = verdicts(session, horizon, reach.among, cut_s, tell)
        told = ((shown(info.name), info.size_bytes, verdict.reason, verdict.action) for info, verdict in found if verdict.action != "keep")
        batches = []
        while some := list(islice(told, _BATCH)):  # as columns they take less than half the memory
            columns = [pa.array(column, field.type) for column, field in zip(zip(*some, strict=True), PLAN, strict=True)]
            batches.append(pa.Table.from_arrays(columns, schema=PLAN))
        return pa.concat_tables([PLAN.empty_table(), *batches, pa.Table.from_pylist(unfinished, schema=PLAN)])


ALONE = Alone()


def run(session: Session, policy: Policy, *, foreign: bool = False, by: Comparison = ALONE, tell: Tell = lambda _: None) -> GcReport:
    """Expire by policy and delete what is dead; what readers, tags and jobs still need stays. [GC1]-[GC9] [IV7]

    One commit, unless it would change nothing; then one request for each readable version and each of their manifests, one list of
    everything below the root, and one delete for each 1,000 objects.
    """
    now_s = store_time(session, session.open(), writing=True)
    decided = commit_decision(session, policy, now_s, foreign=foreign, look=by.look, tell=tell)
    horizon, reach = _settle(session, horizon_of(decided), by, tell)
    ledger = Ledger()
    cut_s = now_s - policy.grace_s
    by.delete(session, horizon, reach, cut_s, ledger, tell)
    _discard_unfinished(session, horizon, cut_s, ledger)
    report = ledger.report(session.store.url, horizon)
    told = (report.url, report.version, report.fence, report.expired, report.deleted)
    LOG.info("%r: version %d, fence %d, readable from %d; deleted %s", *told)
    return report


def plan(session: Session, policy: Policy, *, foreign: bool = False, by: Comparison = ALONE, tell: Tell = lambda _: None) -> Any:
    """What `run` would delete or leave alone, each name with its reason; nothing is written, deleted or committed. [GC5]

    By this machine's clock: the store's own cannot be asked without a write.
    """
    for _ in range(_TRIES):
        head = session.open()
        now_s = store_time(session, head, writing=False)
        horizon = foresee(session, head, policy, now_s, foreign=foreign, look=by.look, tell=tell)
        reach = by.collect(session, horizon, tell)
        if reach is None:
            continue
        rows: list[dict[str, object]] = []
        with contextlib.suppress(StoreDeniedError):
            unfinished = _unfinished(session, horizon, now_s - policy.grace_s)
            rows = [plan_row(each.temporary or each.name, each.size_bytes, verdict) for each, verdict in unfinished]
        return by.plan(session, horizon, reach, now_s - policy.grace_s, rows, tell)
    raise _overtaken(session)


def plan_row(name: str, size_bytes: int, verdict: Verdict) -> dict[str, object]:
    """One name of a plan."""
    return {"name": shown(name), "bytes": size_bytes, "reason": verdict.reason, "action": verdict.action}


def shown(name: str) -> str:
    """A name as a plan has it. One that is no unicode, as some file systems have, is escaped."""
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def _settle(session: Session, horizon: Horizon, by: Comparison, tell: Tell) -> tuple[Horizon, Any]:
    """A committed decision, this gc's or one that went further, with all that its readable versions reach. [GC4]"""
    for _ in range(_TRIES):
        reach = by.collect(session, horizon, tell)
        if reach is not None:
            return horizon, reach
        horizon = horizon_of(session.open().snapshot)
    raise _overtaken(session)


def _overtaken(session: Session) -> StoreError:
    return StoreError(f"{session.store.url}: other gcs went further {_TRIES} times while this one read the versions; nothing was deleted")


def verdicts(
    session: Session, horizon: Horizon, among: Callable[[Sequence[str]], Set[str]], cut_s: float, tell: Tell, *, prefix: str = ""
) -> Iterator[tuple[ObjectInfo, Verdict]]:
    """Every object with what becomes of it, in the order of the list. among: which of some names a readable version lists. [GC5]"""
    objects, number, told = session.store.list(prefix), 0, 0
    while some := list(islice(objects, _COMPARED)):
        if number >= told:
            tell(f"comparing: {number:,} objects")
            told += _BATCH
        number += len(some)
        is_reached = among([info.name for info in some]).__contains__
        for info in some:
            yield info, judge(info, horizon, is_reached, cut_s)


def judge(info: ObjectInfo, horizon: Horizon, is_reached: Callable[[str], bool], cut_s: float) -> Verdict:
    """What becomes of one object. [GC5]"""
    return retention.classify(info.name, horizon, is_reached, is_old=0 < info.modified <= cut_s)


def delete_dead(session: Session, horizon: Horizon, found: Iterable[tuple[ObjectInfo, Verdict]], ledger: Ledger) -> None:
    """Everything that is dead, while it is found; expired versions last, lowest first. [GC5] [GC7]"""
    batch: list[tuple[ObjectInfo, Verdict]] = []
    versions: list[tuple[ObjectInfo, Verdict]] = []
    kept = kept_bytes = 0  # most are
    for info, verdict in found:
        if verdict.action == "keep":
            kept, kept_bytes = kept + 1, kept_bytes + info.size_bytes
            continue
        if verdict.action == "leave":
            ledger.note(info.name, info.size_bytes, verdict)
            continue
        (versions if verdict.kind == "version" else batch).append((info, verdict))
        if len(batch) == _BATCH:
            _delete_batch(session, horizon, batch, ledger)
            batch = []
    ledger.add({("keep", ""): Tally(count=kept, bytes=kept_bytes)}, ())
    _delete_batch(session, horizon, batch, ledger)
    for start in range(0, len(versions), _BATCH):  # a list is in order, and so are they
        _delete_batch(session, horizon, versions[start : start + _BATCH], ledger)


def _delete_batch(session: Session, horizon: Horizon, batch: list[tuple[ObjectInfo, Verdict]], ledger: Ledger) -> None:
    """Names that carry a job's id are never used again. Versions and foreign files are: before them it is asked whether still so."""
    if any(verdict.kind in ("version", "foreign file") for _, verdict in batch):
        snapshot = open_head(session.store).snapshot
        if snapshot.table_id != horizon.table_id:
            url = session.store.url
            raise TableNotFoundError(f"the table at {url} was removed and another one stands there now; gc deleted nothing more")
        condemned = horizon_of(snapshot).condemned
        batch = [(info, verdict) for info, verdict in batch if verdict.kind != "foreign file" or info.name in condemned]
    if not batch:
        return
    session.store.delete([info.name for info, _ in batch])
    for info, verdict in batch:
        ledger.note(info.name, info.size_bytes, verdict)


def _unfinished(session: Session, horizon: Horizon, cut_s: float) -> Iterator[tuple[Unfinished, Verdict]]:
    """Uploads and temporary files that no one can finish. [GC9]"""
    if not isinstance(session.store, KeepsUnfinished):
        return
    for each in session.store.unfinished():
        is_old = 0 < each.started <= cut_s
        verdict = retention.classify_unfinished(each.name, horizon, is_temporary=bool(each.temporary), is_old=is_old)
        if verdict.action == "delete":
            yield each, verdict


def _discard_unfinished(session: Session, horizon: Horizon, cut_s: float, ledger: Ledger) -> None:
    """Credentials that may not do this need not: the rest is done."""
    try:
        for each, verdict in _unfinished(session, horizon, cut_s):
            assert isinstance(session.store, KeepsUnfinished)
            session.store.discard_unfinished(each)
            ledger.note(each.name, each.size_bytes, verdict)
    except StoreDeniedError as error:
        LOG.warning("%r: uploads that were never finished could not be listed or removed: %s", session.store.url, error)
