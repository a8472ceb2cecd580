"""Expires snapshots and removes orphan files: commits the decision, reads what must stay, deletes
the rest. [GC1]-[GC9] [GC12]

It deletes nothing before the decision is committed. It never deletes an object that a readable
version lists, or that a job wrote which can still commit, whatever runs concurrently and whatever
any clock says. After a crash anywhere the next gc finishes the work. [IV7]
"""

from __future__ import annotations

import contextlib
import logging
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec
import pyarrow as pa

from ..commits.joint_commit import unsettled_partners
from ..display import ReprMixin, html_members, html_table, line
from ..errors import (
    StoreDeniedError,
    StoreError,
    StoreFullError,
    TableNotFoundError,
    UsageError,
)
from ..format.snapshot import Snapshot, is_standby
from ..log import exports
from ..log.table_context import TableContext
from ..log.version_chain import Head, open_head
from ..protocol import retention
from ..protocol.retention import Horizon, Policy, Verdict, horizon_of
from ..runtime.environment import STARTS
from ..store import KeepsUnfinished, ObjectInfo, Unfinished
from .gc_decision import (
    ForgottenKeys,
    Progress,
    ReachableObjects,
    collect,
    commit_decision,
    preview,
    store_time,
)

LOG = logging.getLogger("manifestcommit.jobs")
_BATCH = 1000
_COMPARED = 250  # listed objects that are compared together
_NAMES_TOLD = 100
PLAN = pa.schema(
    [("name", pa.string()), ("bytes", pa.int64()), ("reason", pa.string()), ("action", pa.string())]
)


class ObjectTotals(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """How many objects there are, and how large they are.

    Attributes:
        count: the number of objects.
        bytes: their total size.
    """

    count: int = 0
    bytes: int = 0


class GcReport(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """What one gc decided and deleted.

    Attributes:
        url: the table path.
        version: the version that holds the decision.
        fence: jobs with a base version below this are fenced.
        expired: the oldest version that is readable now.
        kept: retained objects, young ones included.
        deleted: deleted objects, by kind.
        foreign: untracked files, which were left.
        foreign_names: the first hundred names of them.
        unknown: objects below `_manifest/` that this release does not know, left as well.
        keys_forgotten: how many idempotency keys this run has forgotten: a rerun of one of them
            would append its rows again.
        keys_age_s: how long ago the newest of these was recorded, at least, in seconds; None: none
            was forgotten.
        unsettled: paths of tables whose newest version this one has decided: they cannot be read
            without it, until something is committed there.

    Spec: GC5, GC6.
    """

    url: str
    version: int
    fence: int
    expired: int
    kept: ObjectTotals = ObjectTotals()
    deleted: dict[str, ObjectTotals] = {}
    foreign: ObjectTotals = ObjectTotals()
    foreign_names: tuple[str, ...] = ()
    unknown: ObjectTotals = ObjectTotals()
    keys_forgotten: int = 0
    keys_age_s: float | None = None
    unsettled: tuple[str, ...] = ()

    def __repr__(self) -> str:
        deleted = sum(each.count for each in self.deleted.values())
        members = {
            "version": self.version,
            "fence": self.fence,
            "expired": self.expired,
            "deleted": deleted,
            "deleted_bytes": sum(each.bytes for each in self.deleted.values()),
            "kept": self.kept.count,
            "foreign": self.foreign.count,
        }
        return line("GcReport", members.items())

    def _repr_html_(self) -> str:
        """Objects and bytes by what became of them."""
        rows = [(f"deleted: {kind}", each.count, each.bytes) for kind, each in self.deleted.items()]
        named = {"kept": self.kept, "foreign": self.foreign, "unknown": self.unknown}
        rows += [(name, each.count, each.bytes) for name, each in named.items()]
        heads = {"version": self.version, "fence": self.fence, "oldest readable": self.expired}
        return html_members(heads.items()) + html_table(("objects", "count", "bytes"), rows)


class GcCounts:
    """Counts verdicts as they are made; of untracked files it keeps the first hundred names."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], list[int]] = {}
        self.foreign_names: list[str] = []

    @property
    def tallies(self) -> dict[tuple[str, str], ObjectTotals]:
        """Counts by action and kind; all retained objects have one kind."""
        return {
            place: ObjectTotals(count=count, bytes=bytes)
            for place, (count, bytes) in self._sums.items()
        }

    def note(self, name: str, size_bytes: int, verdict: Verdict) -> None:
        place = verdict.action, "" if verdict.action == "keep" else verdict.kind
        self.add(place, 1, size_bytes)
        names = self.foreign_names
        if place == ("leave", "foreign") and (len(names) < _NAMES_TOLD or name < names[-1]):
            insort(names, name)
            del names[_NAMES_TOLD:]

    def add(self, place: tuple[str, str], count: int, bytes: int) -> None:
        sums = self._sums.setdefault(place, [0, 0])
        sums[0] += count
        sums[1] += bytes

    def report(self, url: str, horizon: Horizon) -> GcReport:
        tallies = self.tallies
        kept = [tallies.get(place, ObjectTotals()) for place in (("keep", ""), _EXPORTED)]
        return GcReport(
            url=url,
            version=horizon.version,
            fence=horizon.fence,
            expired=horizon.expired,
            kept=ObjectTotals(
                count=sum(each.count for each in kept), bytes=sum(each.bytes for each in kept)
            ),
            deleted={
                kind: tally
                for (action, kind), tally in sorted(tallies.items())
                if action == "delete"
            },
            foreign=tallies.get(("leave", "foreign"), ObjectTotals()),
            foreign_names=tuple(self.foreign_names),
            unknown=tallies.get(("leave", "unknown"), ObjectTotals()),
        )


_EXPORT = Verdict(action="keep", kind="export")
_EXPORTED = ("keep", "export")  # counted apart: where there is none, nothing is listed again


def run(
    ctx: TableContext,
    policy: Policy,
    *,
    foreign: bool = False,
    progress: Progress = lambda _: None,
) -> GcReport:
    """Expire versions by policy and delete orphan files; whatever readers, tags and jobs still need
    stays. [GC1]-[GC9] [IV7]

    One commit, unless it would change nothing; then one request for each readable version and each
    of their manifests, one listing of everything below the table path, and one delete request per
    1,000 objects.
    """
    head = ctx.known or ctx.open()
    _check_not_standby(ctx, head)
    now_s = store_time(ctx, head, writing=True)
    ledger = GcCounts()
    forgotten: list[ForgottenKeys] = []
    cut_s = now_s - policy.grace_s

    def decide() -> Snapshot:
        return commit_decision(
            ctx,
            policy,
            now_s,
            foreign=foreign,
            progress=progress,
            forget=forgotten.append,
        )

    try:
        decided = decide()
    except StoreFullError:
        sweep(ctx, cut_s, ledger, progress)
        decided = _decide_again(ctx, decide, ledger)
    exports.before_deletion(ctx, decided)
    horizon, reach = _settle(ctx, horizon_of(decided), progress)
    _delete_dead(ctx, horizon, verdicts(ctx, horizon, reach, cut_s, progress), ledger)
    _discard_unfinished(ctx, horizon, cut_s, ledger)
    if exports.PROPERTY in decided.properties or _EXPORTED in ledger.tallies:
        delete_exports(ctx, decided, cut_s, ledger)
    unsettled = tuple(sorted(unsettled_partners(ctx.store, decided)))
    report = msgspec.structs.replace(ledger.report(ctx.store.url, horizon), unsettled=unsettled)
    told = (report.url, report.version, report.fence, report.expired, report.deleted)
    LOG.info("%r: version %d, fence %d, readable from %d; deleted %s", *told)
    for keys in forgotten:
        report = msgspec.structs.replace(report, keys_forgotten=keys.number, keys_age_s=keys.age_s)
        LOG.info("%r: forgot %d keys, %.0f s old or older", report.url, keys.number, keys.age_s)
    return report


def _check_not_standby(ctx: TableContext, head: Head) -> None:
    """UsageError where a commit would end a clone. [CN6]"""
    if is_standby(head.snapshot):
        raise UsageError(
            f"{ctx.store.url} is a clone, and gc would make a table of its own of it: `clone` "
            "deletes there what gc of its source has decided; nothing was deleted. After a "
            "failover, write to it first."
        )


def sweep(ctx: TableContext, cut_s: float, ledger: GcCounts, progress: Progress) -> None:
    """Delete what an earlier gc has permitted; the ledger gets what is deleted. [GC19] [CN5]"""
    progress("deleting what an earlier gc has decided on")
    horizon, reach = _settle(ctx, horizon_of(ctx.open().snapshot), progress)
    freed = GcCounts()
    _delete_dead(ctx, horizon, verdicts(ctx, horizon, reach, cut_s, progress), freed)
    _discard_unfinished(ctx, horizon, cut_s, freed)
    for place, tally in freed.tallies.items():
        if place[0] == "delete":
            ledger.add(place, tally.count, tally.bytes)


def _decide_again(ctx: TableContext, decide: Callable[[], Snapshot], ledger: GcCounts) -> Snapshot:
    try:
        return decide()
    except StoreFullError as error:
        freed = sum(tally.bytes for tally in ledger.tallies.values())
        raise StoreFullError(
            f"{error}. gc writes its decision, a new version, before it deletes anything by it, "
            f"and there is no room for that. It deleted {freed:,} bytes that an earlier gc had "
            "decided on, and nothing else. Make room for about as much as the newest version has "
            "(see the files in _manifest/versions), outside of the table, and run gc again."
        ) from error


def plan(
    ctx: TableContext,
    policy: Policy,
    *,
    foreign: bool = False,
    progress: Progress = lambda _: None,
) -> pa.Table:
    """Return what `run` would delete or leave, every name with its reason; nothing is written,
    deleted or committed. [GC5]

    It uses this machine's clock: the store's clock cannot be read without a write.
    """
    for _ in range(STARTS):
        head = ctx.open()
        _check_not_standby(ctx, head)
        now_s = store_time(ctx, head, writing=False)
        horizon = preview(ctx, head, policy, now_s, foreign=foreign, progress=progress)
        reach = collect(ctx, horizon, progress)
        if reach is None:
            continue
        cut_s = now_s - policy.grace_s
        judged = verdicts(ctx, horizon, reach, cut_s, progress)
        return _planned(ctx, head.snapshot, horizon, judged, cut_s)
    raise _overtaken(ctx)


def _planned(
    ctx: TableContext,
    snapshot: Snapshot,
    horizon: Horizon,
    judged: Iterable[tuple[ObjectInfo, Verdict]],
    cut_s: float,
) -> pa.Table:
    exported = False

    def listed() -> Iterator[tuple[str, int, str, str]]:
        nonlocal exported
        for info, verdict in judged:
            exported = exported or verdict is _EXPORT
            if verdict.action != "keep":
                yield _shown(info.name), info.size_bytes, verdict.reason, verdict.action

    rows, batches = listed(), []
    while some := list(islice(rows, _BATCH)):  # as columns they take less than half the memory
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*some, strict=True), PLAN, strict=True)
        ]
        batches.append(pa.Table.from_arrays(columns, schema=PLAN))
    others = _other_rows(ctx, snapshot, horizon, cut_s, exported)
    return pa.concat_tables(
        [PLAN.empty_table(), *batches, pa.Table.from_pylist(others, schema=PLAN)]
    )


def _other_rows(
    ctx: TableContext, snapshot: Snapshot, horizon: Horizon, cut_s: float, exported: bool
) -> list[dict[str, object]]:
    """The rows of a plan that the listing does not give: uploads that were not completed, and
    objects of exports, where it may have shown any."""
    rows: list[dict[str, object]] = []
    with contextlib.suppress(StoreDeniedError):
        rows = [
            _plan_row(upload.temporary or upload.name, upload.size_bytes, verdict)
            for upload, verdict in _unfinished(ctx, horizon, cut_s)
        ]
    if exported:
        rows += [
            _plan_row(info.name, info.size_bytes, _of_export(reason))
            for info, reason in exports.unreached(ctx, snapshot, cut_s)
        ]
    return rows


def _plan_row(name: str, size_bytes: int, verdict: Verdict) -> dict[str, object]:
    return {
        "name": _shown(name),
        "bytes": size_bytes,
        "reason": verdict.reason,
        "action": verdict.action,
    }


def _shown(name: str) -> str:
    """A name as a plan shows it: escaped where it is not Unicode, as file systems allow."""
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def _settle(
    ctx: TableContext, horizon: Horizon, progress: Progress
) -> tuple[Horizon, ReachableObjects]:
    """A committed decision, of this gc or a later one, and all that it leaves. [GC4]"""
    for _ in range(STARTS):
        reach = collect(ctx, horizon, progress)
        if reach is not None:
            return horizon, reach
        horizon = horizon_of(ctx.open().snapshot)
    raise _overtaken(ctx)


def _overtaken(ctx: TableContext) -> StoreError:
    return StoreError(
        f"{ctx.store.url}: other gcs went further {STARTS} times while this one read the "
        "versions; nothing was deleted"
    )


def verdicts(
    ctx: TableContext,
    horizon: Horizon,
    reach: ReachableObjects,
    cut_s: float,
    progress: Progress,
) -> Iterator[tuple[ObjectInfo, Verdict]]:
    """Each object with its verdict, in order. reach: what readable versions list. [GC5]"""
    objects, number, told = ctx.store.list(""), 0, 0
    while some := list(islice(objects, _COMPARED)):
        if number >= told:
            progress(f"comparing: {number:,} objects")
            told += _BATCH
        number += len(some)
        is_reached = reach.among([info.name for info in some]).__contains__
        for info in some:
            yield info, _judge(info, horizon, is_reached, reach.is_copy, cut_s)


def _judge(
    info: ObjectInfo,
    horizon: Horizon,
    is_reached: Callable[[str], bool],
    is_copy: Callable[[str], bool],
    cut_s: float,
) -> Verdict:
    """The verdict on one object. [GC5] [EX4]"""
    if exports.is_export(info.name):
        return _EXPORT
    return retention.classify(
        info.name, horizon, is_reached, is_copy, is_old=0 < info.modified <= cut_s
    )


def delete_exports(ctx: TableContext, decided: Snapshot, cut_s: float, ledger: GcCounts) -> None:
    """Delete the objects of exports that no exported version needs. [EX4]"""
    chosen = exports.unreached(ctx, decided, cut_s)
    while some := list(islice(chosen, _BATCH)):
        ctx.store.delete([info.name for info, _ in some])
        for info, reason in some:
            ledger.note(info.name, info.size_bytes, _of_export(reason))


def _of_export(reason: str) -> Verdict:
    return Verdict(action="delete", kind="export", reason=reason)


def _delete_dead(
    ctx: TableContext,
    horizon: Horizon,
    judged: Iterable[tuple[ObjectInfo, Verdict]],
    ledger: GcCounts,
) -> None:
    """Delete orphans as they are found; expired versions last, lowest first. [GC5] [GC7]"""
    batch: list[tuple[ObjectInfo, Verdict]] = []
    versions: list[tuple[ObjectInfo, Verdict]] = []
    kept = kept_bytes = 0  # most objects are kept
    for info, verdict in judged:
        if verdict is _EXPORT:
            ledger.add(_EXPORTED, 1, info.size_bytes)
            continue
        if verdict.action == "keep":
            kept, kept_bytes = kept + 1, kept_bytes + info.size_bytes
            continue
        if verdict.action == "leave":
            ledger.note(info.name, info.size_bytes, verdict)
            continue
        (versions if verdict.kind == "version" else batch).append((info, verdict))
        if len(batch) == _BATCH:
            _delete_batch(ctx, horizon, batch, ledger)
            batch = []
    ledger.add(("keep", ""), kept, kept_bytes)
    _delete_batch(ctx, horizon, batch, ledger)
    for start in range(0, len(versions), _BATCH):  # a listing is sorted, and so are they
        _delete_batch(ctx, horizon, versions[start : start + _BATCH], ledger)


def _delete_batch(
    ctx: TableContext,
    horizon: Horizon,
    batch: list[tuple[ObjectInfo, Verdict]],
    ledger: GcCounts,
) -> None:
    """Names with a job's id are never reused. Versions and untracked files can be: before they are
    deleted, the decision is checked again."""
    if any(verdict.kind in ("version", "foreign file") for _, verdict in batch):
        snapshot = open_head(ctx.store).snapshot
        if snapshot.table_id != horizon.table_id:
            url = ctx.store.url
            raise TableNotFoundError(
                f"the table at {url} was removed and another one was made there; gc "
                "deleted nothing more"
            )
        condemned = horizon_of(snapshot).condemned
        batch = [
            (info, verdict)
            for info, verdict in batch
            if verdict.kind != "foreign file" or info.name in condemned
        ]
    if not batch:
        return
    ctx.store.delete([info.name for info, _ in batch])
    for info, verdict in batch:
        ledger.note(info.name, info.size_bytes, verdict)


def _unfinished(
    ctx: TableContext, horizon: Horizon, cut_s: float
) -> Iterator[tuple[Unfinished, Verdict]]:
    """Uploads and temporary files that no job can finish. [GC9]"""
    if not isinstance(ctx.store, KeepsUnfinished):
        return
    for upload in ctx.store.unfinished():
        is_old = 0 < upload.started <= cut_s
        verdict = retention.classify_unfinished(
            upload.name, horizon, is_temporary=bool(upload.temporary), is_old=is_old
        )
        if verdict.action == "delete":
            yield upload, verdict


def _discard_unfinished(
    ctx: TableContext, horizon: Horizon, cut_s: float, ledger: GcCounts
) -> None:
    """Without permission for this, gc does the rest."""
    try:
        for upload, verdict in _unfinished(ctx, horizon, cut_s):
            assert isinstance(ctx.store, KeepsUnfinished)
            ctx.store.discard_unfinished(upload)
            ledger.note(upload.name, upload.size_bytes, verdict)
    except StoreDeniedError as error:
        LOG.warning(
            "%r: uploads that were never finished could not be listed or removed: %s",
            ctx.store.url,
            error,
        )
