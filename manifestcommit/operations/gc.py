"""Expires snapshots and removes orphan files: commits the decision, reads what must stay, deletes
the rest. [GC1]-[GC9] [GC12]

It deletes nothing before the decision is committed. It never deletes an object that a readable
version lists, or that a job wrote which can still commit, whatever runs concurrently and whatever
any clock says. After a crash anywhere the next gc finishes the work. [IV7]
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, compress, islice
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..commits.commit_loop import commit, settle_first
from ..commits.joint_commit import unsettled_partners
from ..commits.prepared_job import newest_records, read_prepared
from ..commits.two_phase import decision_of
from ..display import ReprMixin, line
from ..errors import (
    CorruptMetadataError,
    ManifestCommitError,
    SnapshotExpiredError,
    StoreDeniedError,
    StoreError,
    StoreFullError,
    TableNotFoundError,
    UnsupportedFormatError,
    UsageError,
)
from ..format import codec, object_names
from ..format.change import Inputs, Retention, Rewritten
from ..format.entries import ManifestRef
from ..format.manifest_table import is_live
from ..format.snapshot import RunRef, Snapshot, is_standby
from ..log.manifests import JOB_RUN, KEY_RUN, put_run
from ..log.table_context import (
    EXPORT_FORMATS,
    TableContext,
    export_before_deletion,
    exporter,
    is_export,
)
from ..log.version_chain import (
    Head,
    missing_version,
    newest_above,
    next_state,
    open_head,
    raise_if_expired,
    read_object,
)
from ..protocol import retention
from ..protocol.apply import apply
from ..protocol.joint_outcome import last_state
from ..protocol.retention import Horizon, Policy, Verdict, horizon_of
from ..runtime.environment import STARTS, map_in_batches
from ..runtime.outcome import committed_or_raise
from ..store import ObjectInfo, Unfinished
from .adopt import UNFINISHED
from .store_inventory import Names

Progress = Callable[[str], None]
_TOLD = 100


class GcTask(NamedTuple):
    """One gc of a table. now_s: its time; foreign: whether it takes untracked files, too."""

    ctx: TableContext
    policy: Policy
    now_s: float
    foreign: bool = False
    progress: Progress = lambda _: None

    @property
    def cut_s(self) -> float:
        """The time before which an object is old."""
        return self.now_s - self.policy.grace_s


class ReachableObjects:
    """Every object that a readable version lists, data files included; and for each manifest the
    entries that all of them have removed. [GC5]"""

    def __init__(self) -> None:
        self.objects: set[str] = set()
        self.manifests: dict[str, tuple[ManifestRef, int]] = {}
        self.files = Names()
        self._inlined: frozenset[str] = frozenset()

    def among(self, names: Sequence[str]) -> frozenset[str]:
        """The names that are reached. A file whose hash another one has may be kept for that."""
        files = compress(names, self.files.holds(names))
        return frozenset(files).union(self.objects.intersection(names))

    def take(self, ctx: TableContext, head: Head) -> None:
        """Add what one version lists; its manifests are read later, each once."""
        snapshot = head.snapshot
        inlined = frozenset(entry.path for entry in snapshot.added)
        # neighbouring versions inline mostly the same entries
        self.files.add(inlined - self._inlined)
        self._inlined = inlined
        runs = (*snapshot.key_runs, *snapshot.job_runs, *snapshot.removed_runs)
        self.objects.update(run.path for run in runs)
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
    """The manifest's paths that a readable version has not removed. One request. [OB9]"""
    paths = ctx.manifests.paths(ref)
    gone = removed & ((1 << ref.files) - 1)
    return compress(paths, is_live(gone, ref.files).to_pylist()) if gone else iter(paths)


def collect(ctx: TableContext, horizon: Horizon, progress: Progress) -> ReachableObjects | None:
    """What the readable versions list, all of them read now; None: another gc has gone further,
    start over. A version that is missing, or that its successor was not built on, is never skipped:
    that is damage, and an error. [GC4]

    One request for each version and manifest, and one to three to see what others did meanwhile.
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
    tagged, others = horizon.readable
    read = partial(map_in_batches, ctx.store, partial(read_object, ctx.store))
    heads = zip(chain(tagged, others), chain(read(tagged), read(others)), strict=True)
    for number, (version, head) in enumerate(heads):
        if number % _TOLD == 0:
            progress(f"reading versions: {number:,} of {len(tagged) + len(others):,}")
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
    version, table_id = child.version, child.snapshot.table_id
    if table_id != horizon.table_id:
        name = object_names.version_name(version)
        raise codec.damaged(name, f"it belongs to another table, {table_id}")
    if (
        parent is not None
        and below != parent.digest
        and all(each in horizon.void for each in range(parent.version + 1, version))
    ):
        name = object_names.version_name(parent.version)
        raise codec.damaged(name, "its bytes are not those that the next version was built on")


def store_time(ctx: TableContext, head: Head, *, writing: bool) -> float:
    """The time by the store's own clock, from rewriting the one object that may be rewritten; this
    machine's if the store reports none. If that cannot be written, as on a full disk: the time of
    an empty file, or else of the newest version, which is never too late. [GC1]"""
    if writing:
        try:
            ctx.store.put(object_names.HINT, codec.encode_hint(head.version, head.digest))
        except StoreError as error:
            LOG.warning("%r: the hint could not be put: %s", ctx.store.url, error)
            return _other_time(ctx, head)
        for info in ctx.store.list(object_names.HINT):
            if info.name == object_names.HINT and info.modified > 0:
                return info.modified
    return ctx.env.now_us() / 1e6


def _other_time(ctx: TableContext, head: Head) -> float:
    clock: Callable[[], float] | None = getattr(ctx.store, "clock", None)
    if clock is not None:
        with contextlib.suppress(StoreError):
            return clock()
    listed = ctx.store.list(object_names.version_name(head.version))
    newest = max((info.modified for info in listed), default=0.0)
    return newest if newest > 0 else head.snapshot.committed_at / 1e6


def commit_decision(task: GcTask) -> tuple[Snapshot, int]:
    """The newest version that holds the decision, by this commit or an earlier one, and how many
    keys this commit forgets. If other gcs decide first, the choice is made again. [GC3]"""
    ctx = task.ctx
    for _ in range(STARTS):
        head = settle_first(ctx, ctx.open())
        task.progress("deciding what stays")
        try:
            with raise_if_expired(ctx.store, head.version):
                change = _change(task, head, writing=True)
        except SnapshotExpiredError:
            continue  # two other gcs have run, and deleted what this version lists
        if _changes_nothing(head.snapshot, _after(ctx, head, change), change.job):
            # nobody reads the void versions above it
            return msgspec.structs.replace(head.snapshot, version=last_state(head.snapshot)), 0
        outcome = commit(ctx, head, change)
        if outcome.committed:
            assert ctx.known is not None
            decision, forgotten = ctx.known.snapshot, 0
            if change.keys_from and _has_rewritten(change, decision):
                known = _key_versions(ctx, head.snapshot)
                forgotten = sum(version < change.keys_from for version in known)
            return decision, forgotten
        choose_anew = outcome.conflict is not None and outcome.conflict.rule in (
            "condemned_file_is_live",
            "forgotten_keys_came_back",
        )
        # Whether this decision landed does not matter once others went beyond it: theirs counts.
        if not choose_anew and ctx.open().snapshot.fence <= head.version:
            committed_or_raise(outcome, ctx.store.url)
    raise StoreError(
        f"{ctx.store.url}: other gcs decided first {STARTS} times; nothing was deleted. "
        "Try again later."
    )


def _has_rewritten(change: Retention, decision: Snapshot) -> bool:
    """Whether the runs of keys are the change's: else no key is forgotten. [KY4]"""
    runs = change.key_runs
    paths = {run.path for run in decision.key_runs}
    return runs is None or ({run.path for run in runs.new} <= paths and not runs.old & paths)


def preview(task: GcTask, head: Head) -> Horizon:
    """How far the decision would go in this version; nothing is written. [GC5]"""
    after = _after(task.ctx, head, _change(task, head, writing=False))
    return msgspec.structs.replace(horizon_of(after), version=head.version)


def _change(task: GcTask, head: Head, *, writing: bool) -> Retention:
    ctx, policy, snapshot = task.ctx, task.policy, head.snapshot
    if task.foreign and UNFINISHED in snapshot.properties:
        raise UsageError(
            f"{ctx.store.url}: the adoption of this folder is unfinished, so no version "
            "lists its files yet, and they would count as foreign. Nothing was deleted: finish it "
            "with `adopt` first, or run gc without foreign."
        )
    job, times = ctx.new_job(head), _times(ctx, head)
    at_grace = _created_by(task, head, times, policy.grace_s)
    at_keep_for = _created_by(task, head, times, policy.keep_for_s)
    prepared = _young_prepared(ctx, head, task.now_s - policy.prepared_grace_s, below=at_grace)
    fence, expired = retention.choose(
        snapshot, policy, at_grace=at_grace, at_keep_for=at_keep_for, prepared=prepared
    )
    keys_from = _forgotten_below(task, head, times, fence)
    horizon = msgspec.structs.replace(horizon_of(snapshot), fence=fence, expired=expired)
    pending = frozenset(name for name, seen in snapshot.condemned.items() if seen is None)
    condemned, gone = _foreign(task, horizon, pending)
    decided = Retention(
        job=job,
        birth=head.version,
        fence=fence,
        expired=expired,
        keys_from=keys_from,
        now_us=int(task.now_s * 1e6),
        condemned=condemned,
        gone=gone,
    )
    return _with_runs(ctx, snapshot, decided) if writing else decided


def _with_runs(ctx: TableContext, snapshot: Snapshot, decided: Retention) -> Retention:
    """With the runs of keys and jobs that are kept, rewritten without what is forgotten."""
    keys_from, job = decided.keys_from, decided.job

    def newer(keys: pa.Table) -> pa.Array:
        return pc.greater_equal(keys.column("version"), keys_from)

    def born(jobs: pa.Table) -> pa.Array:
        births = (_birth(each) for each in jobs.column("job").to_pylist())
        return pa.array([birth is None or birth >= snapshot.fence for birth in births], pa.bool_())

    return msgspec.structs.replace(
        decided,
        key_runs=_rewritten(ctx, snapshot.key_runs, KEY_RUN, newer, job) if keys_from else None,
        job_runs=_rewritten(ctx, snapshot.job_runs, JOB_RUN, born, job),
    )


def _after(ctx: TableContext, head: Head, change: Retention) -> Snapshot:
    """The snapshot that this commit alone would make."""
    return apply(
        head.snapshot,
        change,
        Inputs(),
        parent_digest=head.digest,
        commit_id=change.job,
        now_us=ctx.env.now_us(),
        writer=ctx.writer,
    )


def _changes_nothing(before: Snapshot, after: Snapshot, job: str) -> bool:
    names = ("fence", "expired", "tags", "keys", "key_runs", "job_runs", "condemned")
    return before.recent_jobs.keys() == after.recent_jobs.keys() - {job} and all(
        getattr(before, n) == getattr(after, n) for n in names
    )


def _times(ctx: TableContext, head: Head) -> list[tuple[int, float]]:
    """Versions from the oldest readable one on, and their creation by the store's clock. A list."""
    listing = ctx.store.list(
        object_names.VERSIONS, start_from=object_names.version_name(head.snapshot.expired)
    )
    return [
        (version, info.modified)
        for info in listing
        if (version := object_names.parse_version(info.name)) and version <= head.version
    ]


def _created_by(task: GcTask, head: Head, times: list[tuple[int, float]], age_s: float) -> int:
    """The highest version that existed that long ago, 0: none certainly did. It uses the store's
    clock, or else the times that the versions record, which never decrease; if these lie in the
    future, the times by their writers' own clocks. [GC1] [CM14]"""
    now_s, moment_s = task.now_s, task.now_s - age_s
    if all(created_s > 0 for _, created_s in times):
        return retention.newest_by(times, moment_s, now_s)
    lowest = head.snapshot.expired
    low, high = lowest - 1, head.version  # the answer lies in [low, high]
    while low < high:
        middle = (low + high + 1) // 2
        # the object of a void version may be of another table [LY15]
        state = next_state(head.snapshot, middle)
        old = head if state == head.version else read_object(task.ctx.store, state)
        if old is not None and _said_us(old.snapshot, now_s) <= moment_s * 1e6:
            low = middle
        else:
            high = middle - 1
    return low if low >= lowest else 0


def _said_us(snapshot: Snapshot, now_s: float) -> int:
    """The time at which a version says that it was committed; its writer's own time, if the
    recorded one was inherited and lies in the future. [CM27]"""
    is_to_come = snapshot.committed_at > now_s * 1e6
    return snapshot.clock if is_to_come and snapshot.clock is not None else snapshot.committed_at


def _young_prepared(ctx: TableContext, head: Head, since_s: float, *, below: int) -> list[int]:
    """The versions from which undecided prepared jobs younger than that need the history: their
    base versions, or the versions that their rows were read from, if these would hold the fence.
    One request for each such job, four for one of a joint commit. [AB5] [CF17]"""
    births = []
    for info in ctx.store.list(object_names.JOBS):
        job = object_names.job_of_handed(info.name)
        birth = _birth(job, head.snapshot.table_id)
        is_prepared = info.name == object_names.prepared_name(job)
        if not is_prepared or birth is None or birth < head.snapshot.fence:
            continue
        state, _ = ctx.manifests.job(head.snapshot, job)
        if state is None and _prepared_at(ctx, job, info) > since_s:
            births.append(_since(ctx, head, job, birth))
    return [since for since in births if head.snapshot.fence <= since < below]


def _since(ctx: TableContext, head: Head, job: str, birth: int) -> int:
    """The version from which on a prepared job is checked for conflicts, the head where another one
    has done its work, or the home of a joint commit has decided; its base version if its object
    cannot be read. [CF17] [AB5] [MT11]"""
    with contextlib.suppress(CorruptMetadataError, UnsupportedFormatError):
        if (prepared := read_prepared(ctx, job)) is not None:
            with contextlib.suppress(ManifestCommitError):  # who cannot be asked has not decided
                if decision_of(ctx, head, job, prepared) is not None:
                    return head.version
            return prepared.change.since
    return birth


def _prepared_at(ctx: TableContext, job: str, info: ObjectInfo) -> float:
    if info.modified > 0:
        return info.modified
    prepared = read_prepared(ctx, job)
    return prepared.prepared_at / 1e6 if prepared is not None else 0.0


def _birth(job: str, table_id: str | None = None) -> int | None:
    """The base version in the id of a job, of this table or any; None: it is not one."""
    try:
        name = object_names.parse_job_id(job)
    except ValueError:
        return None
    return name.birth if table_id in (None, name.table_id) else None


def _forgotten_below(task: GcTask, head: Head, times: list[tuple[int, float]], fence: int) -> int:
    """The version below which keys are forgotten, by number and age; 0: none is. [KY4] [GC18]"""
    ctx, policy = task.ctx, task.policy
    keys_from = min(_keys_from(ctx, head.snapshot, policy.keep_keys), fence)
    if keys_from and policy.keep_keys_for_s:
        at_age = _created_by(task, head, times, policy.keep_keys_for_s)
        keys_from = min(keys_from, retention.old_enough(head.snapshot, at_age, task.now_s, policy))
    if keys_from and _is_rolled_back_above(ctx, head, fence):
        return 0  # the next gc forgets them
    return keys_from


def _keys_from(ctx: TableContext, snapshot: Snapshot, keep_keys: int) -> int:
    """The version below which keys are too many. Reads runs if they may be. [KY4]"""
    if len(snapshot.keys) + sum(run.rows for run in snapshot.key_runs) <= keep_keys:
        return 0
    return retention.oldest_key_kept(_key_versions(ctx, snapshot), keep_keys)


def _key_versions(ctx: TableContext, snapshot: Snapshot) -> list[int]:
    """The version of each key that is remembered, without dropped ones."""
    newest = {key: (record.version, record.digest) for key, record in snapshot.keys.items()}
    for run in snapshot.key_runs:
        table = ctx.manifests.run(run, KEY_RUN)
        columns = (table.column(name).to_pylist() for name in KEY_RUN.names)
        for key, version, digest in zip(*columns, strict=True):
            newest[key] = max((version, digest), newest.get(key, (0, "")))
    return [version for version, digest in newest.values() if digest]


def _is_rolled_back_above(ctx: TableContext, head: Head, fence: int) -> bool:
    """Whether there may be a rollback above the fence: keys that it restored have old records, and
    a job that can still commit may have begun without them. One request per version, if there are
    keys to forget. [KY4]"""
    for version in range(head.version, fence, -1):
        old = head if version == head.version else read_object(ctx.store, version)
        if old is None or any(commit.restored is not None for commit in old.snapshot.commits):
            return True
    return False


def _rewritten(
    ctx: TableContext,
    runs: tuple[RunRef, ...],
    kind: pa.Schema,
    keep: Callable[[pa.Table], pa.Array],
    job: str,
) -> Rewritten | None:
    """One run in place of all with a row to forget; None: there is none. [KY4] [GC8] [OB11]"""
    old, kept = [], []
    for run in runs:
        table = ctx.manifests.run(run, kind)
        rest = table.filter(keep(table))
        if rest.num_rows < table.num_rows:
            old.append(run.path)
            kept.append(rest)
    if not old:
        return None
    together = pa.concat_tables(kept)
    if kind is KEY_RUN:
        together = newest_records(together)
    columns = {name: together.column(name).combine_chunks() for name in kind.names}
    new = (put_run(ctx.store, columns, job=job, env=ctx.env),) if together.num_rows else ()
    return Rewritten(old=frozenset(old), new=new)


def _foreign(
    task: GcTask, horizon: Horizon, pending: frozenset[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """(untracked files to condemn, if requested, condemned ones that are gone): files that no
    readable version lists, that are certainly older than the grace period, and that lie in no other
    table, up to 10,000. pending: those that are condemned already. Two listings. [GC6]"""
    there, inner, chosen = set[str](), set[str](), set[str]()
    for info in task.ctx.store.list("") if task.foreign or pending else ():
        if info.name in pending:
            there.add(info.name)
        if root := retention.inner_root(info.name):
            inner.add(root)
    reach = collect(task.ctx, horizon, task.progress) if task.foreign else None
    # if another gc goes further at this moment, this one condemns nothing
    for info, verdict in () if reach is None else verdicts(task, horizon, reach):
        if (
            verdict.kind == "foreign"
            and 0 < info.modified <= task.cut_s
            and retention.is_condemnable(info.name)
            and not info.name.startswith(tuple(inner))
        ):
            chosen.add(info.name)
        if len(chosen) >= task.ctx.tuning.budgets.condemned:
            break
    return frozenset(chosen - pending), pending - there


LOG = logging.getLogger("manifestcommit.jobs")
_BATCH = 1000
_COMPARED = 250  # listed objects that are compared together
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
        foreign: untracked files, which were left; `Table.plan_gc` names them.
        unknown: objects below `_manifest/` that this release does not know, left as well.
        keys_forgotten: how many idempotency keys this run has forgotten: a rerun of one of them
            would append its rows again.
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
    unknown: ObjectTotals = ObjectTotals()
    keys_forgotten: int = 0
    unsettled: tuple[str, ...] = ()

    def __repr__(self) -> str:
        members = {name: getattr(self, name) for name in ("version", "fence", "expired")}
        members["deleted"] = sum(each.count for each in self.deleted.values())
        members["deleted_bytes"] = sum(each.bytes for each in self.deleted.values())
        members |= {"kept": self.kept.count, "foreign": self.foreign.count}
        return line("GcReport", members.items())


_Judged = tuple[ObjectInfo, Verdict]
_EXPORT = Verdict(action="keep", kind="export")
_EXPORTED = ("keep", "export")  # where there is none, nothing is listed again


class GcCounts:
    """Counts verdicts as they are made, by action and kind."""

    def __init__(self) -> None:
        self.objects, self.bytes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()

    def note(self, size_bytes: int, verdict: Verdict) -> None:
        place = verdict.action, verdict.kind
        self.objects[place] += 1
        self.bytes[place] += size_bytes

    def totals(self, *places: tuple[str, str]) -> ObjectTotals:
        return ObjectTotals(
            count=sum(self.objects[each] for each in places),
            bytes=sum(self.bytes[each] for each in places),
        )

    def report(self, url: str, horizon: Horizon) -> GcReport:
        return GcReport(
            url=url,
            version=horizon.version,
            fence=horizon.fence,
            expired=horizon.expired,
            kept=self.totals(*(each for each in self.objects if each[0] == "keep")),
            deleted={
                kind: self.totals((action, kind))
                for action, kind in sorted(self.objects)
                if action == "delete"
            },
            foreign=self.totals(("leave", "foreign")),
            unknown=self.totals(("leave", "unknown")),
        )


def run(
    ctx: TableContext, policy: Policy, *, foreign: bool = False, progress: Progress = lambda _: None
) -> GcReport:
    """Expire versions by policy and delete orphan files; whatever readers, tags and jobs still need
    stays. [GC1]-[GC9] [IV7]

    One commit, unless it would change nothing; then a request for each readable version and
    manifest, one listing of everything, and a delete request per 1,000 objects.
    """
    head = ctx.known or ctx.open()
    _check_not_standby(ctx, head)
    task = GcTask(ctx, policy, store_time(ctx, head, writing=True), foreign, progress)
    ledger = GcCounts()
    try:
        decided, forgotten = commit_decision(task)
    except StoreFullError:
        sweep(task, ledger)
        decided, forgotten = _decide_again(task, ledger)
    export_before_deletion(ctx, decided)
    horizon = _delete_unneeded(task, decided, ledger)
    if EXPORT_FORMATS in decided.properties or _EXPORTED in ledger.objects:
        delete_exports(task, decided, ledger)
    report = msgspec.structs.replace(
        ledger.report(ctx.store.url, horizon),
        unsettled=tuple(sorted(unsettled_partners(ctx.store, decided))),
        keys_forgotten=forgotten,
    )
    told = (report.url, report.version, report.fence, report.expired, report.deleted)
    LOG.info("%r: version %d, fence %d, readable from %d; deleted %s", *told)
    if forgotten:
        LOG.info("%r: forgot %d keys", report.url, forgotten)
    return report


def _check_not_standby(ctx: TableContext, head: Head) -> None:
    """UsageError where a commit would end a clone. [CN6]"""
    if is_standby(head.snapshot):
        raise UsageError(
            f"{ctx.store.url} is a clone, and gc would make a table of its own of it: `clone` "
            "deletes there what gc of its source has decided; nothing was deleted. After a "
            "failover, write to it first."
        )


def sweep(task: GcTask, ledger: GcCounts) -> None:
    """Delete what an earlier gc has permitted; the ledger gets what is deleted. [GC19] [CN5]"""
    task.progress("deleting what an earlier gc has decided on")
    freed = GcCounts()
    _delete_unneeded(task, task.ctx.open().snapshot, freed)
    for counts, of in ((ledger.objects, freed.objects), (ledger.bytes, freed.bytes)):
        counts.update({place: of[place] for place in of if place[0] == "delete"})


def _decide_again(task: GcTask, ledger: GcCounts) -> tuple[Snapshot, int]:
    try:
        return commit_decision(task)
    except StoreFullError as error:
        freed = ledger.bytes.total()
        raise StoreFullError(
            f"{error}. gc writes its decision, a new version, before it deletes anything by it, "
            f"and there is no room for that. It deleted {freed:,} bytes that an earlier gc had "
            "decided on, and nothing else. Make room for about as much as the newest version has "
            "(see the files in _manifest/versions), outside of the table, and run gc again."
        ) from error


def plan(
    ctx: TableContext, policy: Policy, *, foreign: bool = False, progress: Progress = lambda _: None
) -> pa.Table:
    """Return what `run` would delete or leave, every name with its reason; nothing is written. By
    this machine's clock: the store's cannot be read without a write. [GC5]"""
    for _ in range(STARTS):
        head = ctx.open()
        _check_not_standby(ctx, head)
        task = GcTask(ctx, policy, store_time(ctx, head, writing=False), foreign, progress)
        horizon = preview(task, head)
        reach = collect(ctx, horizon, progress)
        if reach is not None:
            return _planned(task, head.snapshot, horizon, reach)
    raise _overtaken(ctx)


def _planned(
    task: GcTask, snapshot: Snapshot, horizon: Horizon, reach: ReachableObjects
) -> pa.Table:
    def rows() -> Iterator[tuple[str, int, Verdict]]:
        exported = False
        for info, verdict in verdicts(task, horizon, reach, task.cut_s):
            exported = exported or verdict is _EXPORT
            if verdict.action != "keep":
                yield info.name, info.size_bytes, verdict
        # what the listing does not give: uploads that were not completed, and objects of exports
        with contextlib.suppress(StoreDeniedError):
            for upload, verdict in _unfinished(task, horizon):
                yield upload.temporary or upload.name, upload.size_bytes, verdict
        if exported:
            for info, reason in exporter().unreached(task.ctx, snapshot, task.cut_s):
                yield info.name, info.size_bytes, _of_export(reason)

    found, tables = rows(), [PLAN.empty_table()]
    while some := list(islice(found, _BATCH)):  # as columns they take less than half the memory
        shown = [(_shown(name), size, each.reason, each.action) for name, size, each in some]
        columns = map(pa.array, zip(*shown, strict=True), PLAN.types)
        tables.append(pa.Table.from_arrays(list(columns), schema=PLAN))
    return pa.concat_tables(tables)


def _shown(name: str) -> str:
    """A name as a plan shows it: escaped where it is not Unicode, as file systems allow."""
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def _delete_unneeded(task: GcTask, decided: Snapshot, ledger: GcCounts) -> Horizon:
    """Delete what a committed decision, of this gc or a later one, leaves unneeded. [GC4]"""
    horizon = horizon_of(decided)
    for _ in range(STARTS):
        reach = collect(task.ctx, horizon, task.progress)
        if reach is not None:
            _delete_dead(task, horizon, reach, ledger)
            _discard_unfinished(task, horizon, ledger)
            return horizon
        horizon = horizon_of(task.ctx.open().snapshot)
    raise _overtaken(task.ctx)


def _overtaken(ctx: TableContext) -> StoreError:
    return StoreError(
        f"{ctx.store.url}: other gcs went further {STARTS} times while this one read the "
        "versions; nothing was deleted"
    )


def verdicts(
    task: GcTask, horizon: Horizon, reach: ReachableObjects, cut_s: float = 0.0
) -> Iterator[tuple[ObjectInfo, Verdict]]:
    """Each object with its verdict, in order. cut_s: before which it is old. [GC5] [EX4]"""
    objects, number, told = task.ctx.store.list(""), 0, 0
    is_copy = reach.files.holds_elsewhere
    while some := list(islice(objects, _COMPARED)):
        if number >= told:
            task.progress(f"comparing: {number:,} objects")
            told += _BATCH
        number += len(some)
        is_reached = reach.among([info.name for info in some]).__contains__
        for info in some:
            if is_export(info.name):
                yield info, _EXPORT
                continue
            old = 0 < info.modified <= cut_s
            yield info, retention.classify(info.name, horizon, is_reached, is_copy, is_old=old)


def delete_exports(task: GcTask, decided: Snapshot, ledger: GcCounts) -> None:
    """Delete the objects of exports that no exported version needs. [EX4]"""
    chosen = exporter().unreached(task.ctx, decided, task.cut_s)
    while some := list(islice(chosen, _BATCH)):
        task.ctx.store.delete([info.name for info, _ in some])
        for info, reason in some:
            ledger.note(info.size_bytes, _of_export(reason))


def _of_export(reason: str) -> Verdict:
    return Verdict(action="delete", kind="export", reason=reason)


def _delete_dead(task: GcTask, horizon: Horizon, reach: ReachableObjects, ledger: GcCounts) -> None:
    """Delete orphans as they are found; expired versions last, lowest first. [GC5] [GC7]"""
    batch, versions = list[_Judged](), list[_Judged]()
    for info, verdict in verdicts(task, horizon, reach, task.cut_s):
        if verdict.action != "delete":
            ledger.note(info.size_bytes, verdict)
            continue
        (versions if verdict.kind == "version" else batch).append((info, verdict))
        if len(batch) == _BATCH:
            _delete_batch(task.ctx, horizon, batch, ledger)
            batch = []
    _delete_batch(task.ctx, horizon, batch, ledger)
    for start in range(0, len(versions), _BATCH):  # a listing is sorted, and so are they
        _delete_batch(task.ctx, horizon, versions[start : start + _BATCH], ledger)


def _delete_batch(
    ctx: TableContext, horizon: Horizon, batch: list[_Judged], ledger: GcCounts
) -> None:
    """Names with a job's id are never reused. Versions and untracked files can be: before they are
    deleted, the decision is checked again."""
    if any(verdict.kind in ("version", "foreign file") for _, verdict in batch):
        snapshot = open_head(ctx.store).snapshot
        if snapshot.table_id != horizon.table_id:
            raise TableNotFoundError(
                f"the table at {ctx.store.url} was removed and another one was made there; gc "
                "deleted nothing more"
            )
        condemned = horizon_of(snapshot).condemned
        batch = [
            each for each in batch if each[1].kind != "foreign file" or each[0].name in condemned
        ]
    if batch:
        ctx.store.delete([info.name for info, _ in batch])
    for info, verdict in batch:
        ledger.note(info.size_bytes, verdict)


def _unfinished(task: GcTask, horizon: Horizon) -> Iterator[tuple[Unfinished, Verdict]]:
    """Uploads and temporary files that no job can finish. [GC9]"""
    for upload in task.ctx.store.unfinished():
        is_old = 0 < upload.started <= task.cut_s
        verdict = retention.classify_unfinished(
            upload.name, horizon, is_temporary=bool(upload.temporary), is_old=is_old
        )
        if verdict.action == "delete":
            yield upload, verdict


def _discard_unfinished(task: GcTask, horizon: Horizon, ledger: GcCounts) -> None:
    """Without permission for this, gc does the rest."""
    store = task.ctx.store
    try:
        for upload, verdict in _unfinished(task, horizon):
            store.discard_unfinished(upload)
            ledger.note(upload.size_bytes, verdict)
    except StoreDeniedError as error:
        text = "%r: uploads that were never finished could not be listed or removed: %s"
        LOG.warning(text, store.url, error)
