"""The only commit loop: optimistic concurrency by put-if-absent of the next version; rebase and
retry where another job won it. [CM1]-[CM8] [CM19]
"""

from __future__ import annotations

import contextlib
import enum
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from ..display import counted
from ..errors import (
    CorruptMetadataError,
    JobFencedError,
    ManifestCommitError,
    StoreError,
    StoreUnclearError,
    TableNotFoundError,
    UnsafeStoreError,
    UnsupportedFormatError,
)
from ..format import codec, manifest_table, object_names, values
from ..format.change import (
    Abort,
    Change,
    Inputs,
    InterveningCommit,
    MergeManifests,
    Position,
    RemovedRows,
    Retention,
    Rewind,
    Rollback,
    TagEdit,
    Write,
)
from ..format.entries import ManifestRef
from ..format.fields import Schema, assign_new_ids, relaxed
from ..format.partitioning import Matcher, PartitionPattern, bounded, check_partition_by
from ..format.snapshot import Constraint, Snapshot
from ..log.table_context import (
    TableContext,
    check_same_root,
    dropped_at,
    export_after_commit,
    find_key,
    find_record,
    gate,
    is_removed,
    removed,
)
from ..log.version_chain import (
    MAX_INTENTS,
    Head,
    VersionListing,
    beside,
    drop_marker,
    home_of,
    list_above,
    missing_version,
    newest_above,
    open_head,
    put_hint,
    put_marker,
    read_object,
)
from ..protocol import commit_group
from ..protocol.apply import above_taken, apply, create
from ..protocol.conflict import (
    CONSTRAINT_VIOLATED,
    ROWS_ARE_UNCHECKED,
    Conflict,
    find_conflict,
    needs_winners,
    unchecked,
)
from ..protocol.joint_outcome import attempt_of, state_before
from ..runtime.environment import Limits, map_concurrently, pause
from ..runtime.outcome import Kind, Meter, Outcome, Phase, committed_or_raise
from ..store import Store
from .prepared_job import (
    Decision,
    Member,
    Part,
    Spiller,
    birth_of,
    check_table,
    fenced_outcome,
    prepared_now,
    settled_outcome,
)

# Looking up what a change needs to know: entries that it takes away, paths that are live, commits
# that won. [CM12] [CF1]


def _find_winners(
    ctx: TableContext, head: Head, change: Change, seen: dict[int, Head]
) -> tuple[InterveningCommit, ...]:
    """The commits after the change's birth, or what it is based on, up to the head; none for an
    append. [CF3] [CF17] One request per version not in `seen`."""
    if not needs_winners(change):
        return ()
    seen[head.version] = head
    winners = []
    for version in range(change.since + 1, head.version + 1):
        if version in head.snapshot.void:
            continue  # a member of a joint commit that was aborted won nothing [MT8]
        if version not in seen:
            found = read_object(ctx.store, version)
            if found is None:
                # `expired` never passes `fence`, and a fenced job was stopped before: only damage
                # can bring us here.
                raise missing_version(version)
            seen[version] = found
        snapshot = seen[version].snapshot
        others = (commit for commit in snapshot.commits if commit.job != change.job)
        winners += [InterveningCommit(snapshot=snapshot, commit=each) for each in others]
    return tuple(winners)


def load_conflict_inputs(
    ctx: TableContext, head: Head, change: Change, seen: dict[int, Head] | None = None
) -> Inputs:
    """All that the rules must know of the change. seen: versions that were read before; None: what
    was committed since its birth is not looked at."""
    winners = () if seen is None else _find_winners(ctx, head, change, seen)
    return replace(_looked_up(ctx, head, change), winners=winners)


def _looked_up(ctx: TableContext, head: Head, change: Change) -> Inputs:
    """What the change takes out of manifests, and if its paths are live. [CF5] [CF7] [CF10]"""
    snapshot = head.snapshot
    match change:
        case Write():
            foreign = frozenset(entry.path for entry in change.add if change.job not in entry.path)
            found = _survey(ctx, snapshot, foreign, change)
            # what was dropped before the job began is nothing to it
            key = change.key if snapshot.version > change.birth else None
            return replace(found, dropped=dropped_at(ctx, snapshot, key)) if key else found
        case Retention():
            return _survey(ctx, snapshot, change.condemned)
        case MergeManifests():
            # Commits merge small manifests as well: what is left of them is enough.
            is_there = any(ref.path in change.paths for ref in snapshot.manifests)
            return Inputs(gone=frozenset() if is_there else change.paths)
        case Abort():
            # Below the fence its record may be gone: that it committed is known to the history
            # only.
            fenced = object_names.parse_job_id(change.aborted).birth < snapshot.fence
            # an attempt of a joint commit is in the record of the members that it committed [MT9]
            decided = any(each.attempt == change.aborted for each in snapshot.joint.values())
            return Inputs(
                committed=fenced
                or decided
                or ctx.manifests.job(snapshot, change.aborted)[0] == "committed"
            )
        case Rewind():
            return Inputs(reused=_reused(ctx, head, change))
        case TagEdit() | Rollback():
            return Inputs()  # the latest version says it all


def _reused(ctx: TableContext, head: Head, change: Rewind) -> frozenset[str]:
    """The keys that another rewind invalidated, with new work since, which this one leaves."""
    if head.version == change.birth:
        return frozenset()
    found = {key: find_key(ctx, head.snapshot, key) for key in change.keys}
    since = change.birth
    return frozenset(key for key, each in found.items() if each is None or each.version > since)


def _survey(
    ctx: TableContext, snapshot: Snapshot, foreign: frozenset[str], change: Write | None = None
) -> Inputs:
    """foreign: paths that may be live although no job of this table named them."""
    scope = change.scope if change is not None else None
    remove = change.remove if change is not None else frozenset()
    if scope is None and not remove and not foreign:
        return Inputs()  # the usual append: nothing is looked up
    matcher = Matcher(scope) if scope is not None else None
    overwrite = change.overwrite if change is not None else None
    # Emptying the whole table needs no manifest, unless the choice is to fail where there is
    # anything.
    if matcher and matcher.everything and overwrite and overwrite.conflict != "fail":
        return Inputs()
    inlined = frozenset(entry.path for entry in snapshot.added)
    taken: dict[str, RemovedRows] = {}
    live, gone = foreign & inlined, remove - inlined
    removed = ctx.manifests.removed(snapshot) if snapshot.manifests else {}
    for ref in snapshot.manifests:
        may_hold = any(_may_hold(snapshot, ref, touch) for touch in scope or ())
        first, last = ref.first_path, ref.last_path
        wanted = frozenset(path for path in gone | foreign if first <= path <= last)
        if not may_hold and not wanted:
            continue
        table = ctx.manifests.manifest(ref, snapshot.partition_by)
        before = removed.get(ref.path, 0)
        hits = ~before & manifest_table.rows_matching(
            table, snapshot, scope=matcher if may_hold else None, paths=wanted & gone
        )
        if hits:
            rows = manifest_table.live(table, ~hits & ((1 << table.num_rows) - 1))
            taken[ref.path] = RemovedRows(
                bitmap=before | hits,
                totals=manifest_table.totals(rows),
                touched=bounded(manifest_table.partitions(rows, snapshot) if remove else ()),
            )
        if wanted:
            paths = frozenset(manifest_table.live(table, before).column("path").to_pylist())
            gone -= paths
            live |= foreign & paths
    return Inputs(taken=taken, gone=gone, live=live)


def _may_hold(snapshot: Snapshot, ref: ManifestRef, touch: PartitionPattern) -> bool:
    types = manifest_table.partition_types(snapshot)
    bounds = zip(snapshot.partition_by, types, ref.lower, ref.upper, ref.nulls, strict=True)
    for id, kind, lower, upper, has_nulls in bounds:
        value = touch.get(id)
        if value is None:
            if id in touch and not has_nulls:
                return False
        elif lower is not None and upper is not None:  # unknown ones rule nothing out
            low, wanted, high = (values.order_key(each, kind) for each in (lower, value, upper))
            if not low <= wanted <= high:
                return False
    return True


def check_based_on(ctx: TableContext, head: Head, change: Write) -> None:
    """Refuse now what no later commit can make right: a version behind the fence, or one that
    others have written over since. [CF17]"""
    if change.based_on is None:
        return
    url = ctx.store.url
    if change.since < head.snapshot.fence:
        raise JobFencedError(
            f"{url}: the rows of this write were read from version {change.based_on}, which "
            "is below the table's fence, version "
            f"{head.snapshot.fence}: what was committed since then can no longer be compared "
            "with it. Nothing was done. Read the table "
            "again and recompute the rows. To replace the data whatever was committed since, "
            'overwrite with conflict="blind"; if you '
            "know that the rows are right for a newer version, say which one: "
            f"based_on={head.version}."
        )
    conflict = find_conflict(head.snapshot, change, load_conflict_inputs(ctx, head, change, {}))
    final = ("partition_was_touched", "read_partition_was_touched")
    if conflict is not None and conflict.rule in final:
        committed_or_raise(Outcome(kind="conflict", job_id=change.job, conflict=conflict), url)


# Writers that help each other: who lost, or sees others wait, publishes its change; who wins next
# carries it. Costs nothing where nobody is in the way: intents are seen in the lists that opening
# and committing make, and read by those only who lost a create or published. [CM19] [CM20] [CM22]

_Result = TypeVar("_Result")

LOG = logging.getLogger("manifestcommit.jobs")
# intents that are read for one create: many in front that can not be carried shall hide none behind
# them
_READS = 4 * commit_group.MAX_CARRIED
_READERS = 16
_TURNS = 8  # that a job waits for at most, once it has asked for help, before it contends by itself
_TURNS_OF_EACH = 2  # who goes before it
_REQUESTS_OF_A_TURN = 4  # a list, intents, a create, a list
# each turn is waited for longer than the one before: where many wait, nothing is as fast as one
# request tells
_LONGER = 1.5


class Committers(enum.Enum):
    """Who may commit a job. [CM19] [CM21] [AB3]"""

    THIS_PROCESS = "this process, which never publishes the change"
    GROUP = "this process, and once it has published the change, any writer"
    ANY_PROCESS = "any process that knows the job's id, now and before"
    ANY_WRITER = "any process that knows the job's id, and any writer: it may have been published"

    @property
    def is_shared(self) -> bool:
        """Whether others may commit the job, or have tried to, before it is published here."""
        return self in (Committers.ANY_PROCESS, Committers.ANY_WRITER)


class GroupCommit:
    """What one commit knows of intents: its own, and those of others. meter: what it has cost so
    far, for the record of who carries it; is_published: whether others may have seen the job's
    intent, so that it may be committed by them from then on."""

    def __init__(self, ctx: TableContext, job: str, committers: Committers, meter: Meter) -> None:
        self._ctx = ctx
        self._job = job
        self._meter = meter
        self._may_publish = committers is Committers.GROUP
        self._waiting: Mapping[str, int] = {}
        self._request_s = 0.0
        self._settled: list[str] = []  # jobs that a version of this job carried
        self.is_published = committers is Committers.ANY_WRITER
        self._is_there = self.is_published  # the job's own intent, as far as is known
        # they never change; None: nothing that can be carried
        self._read: dict[str, commit_group.Intent | None] = {}

    def saw(self, intents: Mapping[str, int]) -> None:
        """What the last list showed: job -> bytes of its intent."""
        # by those in front of it, behind which a list is not looked at
        is_hidden = len(intents) >= MAX_INTENTS
        self._waiting = intents
        self._is_there = self._job in intents or (self._is_there and is_hidden)

    def is_crowded(self, head: Snapshot) -> bool:
        """Whether others wait for help already, so that this job had better wait, too. [CM19]"""
        others = (job for job in self._waiting if job != self._job and self._can_wait(head, job))
        return any(commit_group.crowds(head, job) for job in others)

    def _ahead(self, head: Snapshot) -> int:
        """How many who may still be carried go before this job, having begun earlier; none where it
        has not asked, or is decided. [CM20]"""
        if not self.is_published or not commit_group.may_wait(head, self._job):
            return 0
        waiting = {self._job, *(job for job in self._waiting if self._can_wait(head, job))}
        return commit_group.in_order(waiting).index(self._job)

    def ask_first(self, head: Head, change: Change) -> bool:
        """Where the list with which the table was opened showed that others wait, ask before any
        create. Whether it asked now. [CM19] That list may be old, and is good for nothing else: who
        wins its first create reads nothing of others."""
        if self.is_published:
            return False
        self._waiting = head.waiting
        asked = self.is_crowded(head.snapshot) and self.publish(change)
        self._waiting = self._waiting if asked else {}
        return asked

    def publish(self, change: Change) -> bool:
        """Ask others to carry this change; once, best effort: a job that is not heard goes on
        alone. Whether it asked now. [CM19] One request, none where the change is not plain or too
        large for others."""
        if not self._may_publish:
            return False
        self._may_publish = False
        if not commit_group.is_plain(change):
            return False
        prepared = prepared_now(self._ctx, replace(change, summary=self._meter.summary()))
        if (data := codec.encode_intent(prepared)) is None:
            return False
        # also where the store says that it failed: the request may land later
        self.is_published = self._is_there = True
        name = object_names.intent_name(self._job)
        with contextlib.suppress(StoreError):
            self._timed(partial(self._ctx.store.put_if_absent, name, data))
        return True

    def wait_for_turn(self, head: Head, limits: Limits) -> VersionListing | None:
        """A job that has asked for help lets those go first that began earlier: one of them carries
        it along. [CM20]

        It waits for two turns of each who is ahead, and for a few at most: they may be dead, or in
        conflict with what is there. It waits no longer than its intent is there, which its carrier
        takes away. One list for each turn, of which it returns the last; None: it need not wait.
        """
        env, above = self._ctx.env, None
        for waited in range(_TURNS):
            if waited >= _TURNS_OF_EACH * self._ahead(head.snapshot):
                break
            turn_s = max(limits.first_pause_s, _REQUESTS_OF_A_TURN * self._request_s)
            lap_s = min(turn_s * _LONGER**waited, limits.longest_pause_s)
            env.sleep(lap_s * (0.5 + env.jitter()))
            above = self._timed(partial(list_above, self._ctx.store, head.version))
            self.saw(above.intents)
            if not above.versions or not self._is_there:
                break
        return above

    def settled(self, version: Snapshot) -> None:
        """This version, which the job created, counts: those it carried need not ask. [CM22]"""
        self._settled = [each.job for each in version.commits if each.job != self._job]

    def retract(self) -> None:
        """The job is decided, in a head: nobody needs its intent, nor those that its version
        carried. Best effort. [CM22] One request, none where there is nothing to remove; gc takes
        what stays."""
        jobs = [*self._settled, *([self._job] if self._is_there else [])]
        self._settled, self._is_there = [], False
        if jobs:
            with contextlib.suppress(StoreError):
                self._ctx.store.delete([object_names.intent_name(job) for job in jobs])

    def carry(self, head: Snapshot, own: Write, found: Inputs) -> commit_group.CombinedCommit:
        """The head with those changes on top that others have published and that may come before
        this one's own. [CM20] One request for each intent that is seen for the first time; more
        where many are waiting that do not apply, up to a bound."""
        alone = carried = commit_group.CombinedCommit(snapshot=head)
        if not self._waiting or not commit_group.carries_others(own):
            return alone
        env, room, reads = self._ctx.env, commit_group.MAX_CARRIED_BYTES, _READS
        others = (job for job in self._waiting if job != self._job)
        jobs = commit_group.in_order(job for job in others if self._can_wait(head, job))
        for start in range(0, len(jobs), commit_group.MAX_CARRIED):
            reads -= self._fetch(jobs[start : start + commit_group.MAX_CARRIED], reads)
            for job in jobs[start : start + commit_group.MAX_CARRIED]:
                waiting = self._read.get(job)
                if waiting is None or waiting.size_bytes > room:
                    continue
                if not self._applies(carried.snapshot, waiting.change):
                    continue
                carried = commit_group.carry(
                    carried,
                    waiting.change,
                    commit_id=f"{waiting.change.job}.{env.randomness(8).hex()}",
                    now_us=env.now_us(),
                    writer=self._ctx.writer,
                )
                room -= waiting.size_bytes
                if len(carried.commits) == commit_group.MAX_CARRIED:
                    break
            if len(carried.commits) == commit_group.MAX_CARRIED or reads <= 0:
                break
        holds = carried.commits and self._still_holds(carried.snapshot, own, found)
        return carried if holds else alone

    def _timed(self, request: Callable[[], _Result]) -> _Result:
        began_us = self._ctx.env.now_us()
        try:
            return request()
        finally:
            self._request_s = (self._ctx.env.now_us() - began_us) / 1e6

    def _can_wait(self, head: Snapshot, job: str) -> bool:
        return (
            0 < self._waiting[job] <= codec.MAX_INTENT_BYTES
            and self._read.get(job, True) is not None
            and commit_group.may_wait(head, job)
        )

    def _fetch(self, jobs: list[str], most: int) -> int:
        """Read those that were not read yet, up to so many; how many that were."""
        new = [job for job in jobs if job not in self._read][: max(0, most)]
        store = self._ctx.store
        found = map_concurrently(store, partial(_readable_intent, store), new, limit=_READERS)
        self._read.update(zip(new, found, strict=True))
        return len(new)

    def _applies(self, state: Snapshot, change: Write) -> bool:
        record = find_record(self._ctx, state, change.key) if change.key is not None else None
        fits = commit_group.applies(state, change, record)
        return fits and self._ctx.manifests.job(state, change.job)[0] is None

    def _still_holds(self, state: Snapshot, own: Write, found: Inputs) -> bool:
        """Whether what is carried leaves the own change right: nobody who helps loses by it."""
        is_new = own.key is None or find_key(self._ctx, state, own.key) is None
        return is_new and find_conflict(state, own, found) is None


def read_intent(store: Store, job: str) -> commit_group.Intent | None:
    """What a job has published; None only where that is gone; else an error. [CM21]"""
    name = object_names.intent_name(job)
    try:
        data = store.get(name, 0, codec.MAX_INTENT_BYTES + 1)
    except FileNotFoundError:
        return None
    prepared, size_bytes = codec.decode_intent(data, name=name)
    return commit_group.Intent(change=prepared.change, size_bytes=size_bytes)


def _readable_intent(store: Store, job: str) -> commit_group.Intent | None:
    """As `read_intent`, for who helps: what cannot be read holds up nobody. [CM20]"""
    try:
        return read_intent(store, job)
    except (CorruptMetadataError, UnsupportedFormatError, StoreError) as error:
        LOG.debug("%r: an intent is skipped: %s", store.url, error)
        return None


# One version's object: created by this job, or by another. A create has one of three outcomes: this
# job created the version; it lost the race, because another job created it first; or the response
# was lost, which is resolved here by a re-put and a read. [CM3] [CM4] [CM6] [CM13]


def create_table(
    ctx: TableContext,
    *,
    schema: Schema,
    partition_by: tuple[int, ...],
    properties: dict[str, str],
    sources: Mapping[str, Position] | None = None,
    provisional: bool = False,
    rank: int = 0,
    constraints: Mapping[str, Constraint] | None = None,
) -> Head:
    """Version 1, by this call or by the one that won the race for it: the loser joins. [CM13]"""
    ctx.prove(())
    table_id = ctx.env.randomness(8).hex()
    job = object_names.job_id(1, table_id, ctx.env.randomness(16))
    snapshot = create(
        table_id=table_id,
        job=job,
        commit_id=f"{job}.{ctx.env.randomness(8).hex()}",
        schema=schema,
        partition_by=partition_by,
        properties=properties,
        sources=sources,
        provisional=provisional,
        now_us=ctx.commit_time_us(0),
        writer=ctx.writer,
        store=ctx.store.identity,
        note=ctx.note,
        author=ctx.who(),
        rank=rank,
        constraints=constraints,
    )
    data = codec.encode_snapshot(snapshot)
    put_marker(ctx.store, table_id, ctx.env)
    verdict, reason, _ = create_version(ctx, snapshot, data)
    if verdict == "unknown":
        text = f"it is not known whether the table was created: {reason}. Trying again is safe."
        raise StoreUnclearError(f"{ctx.store.url}: {text}")
    if verdict == "mine":
        put_hint(ctx.store, 1, codec.digest(data))
    # Versions never restart at a root: an object of version 1 that could be created says nothing if
    # later ones are above it.
    head = ctx.learn(open_head(ctx.store))
    if head.snapshot.table_id != table_id:
        drop_marker(ctx.store, table_id)
    export_after_commit(ctx)
    return head


def create_version(
    ctx: TableContext, snapshot: Snapshot, data: bytes
) -> tuple[Literal["mine", "lost", "unknown"], str, Head | None]:
    """Create the version's object, or learn who did. After an unclear answer only the SAME bytes
    are put again. [CM3] [CM4] [CM6] The verdict, why it is not known, and the winner where there
    was one to read."""
    name, commit_id = object_names.version_name(snapshot.version), snapshot.commits[-1].commit_id
    reason, limits = "", ctx.tuning.limits
    for tried in range(limits.unclear_tries):
        ctx.tally.resent += tried > 0
        try:
            if ctx.store.put_if_absent(name, data):
                return "mine", "", None
        except StoreUnclearError as error:
            ctx.tally.unknowns += 1
            reason = str(error)
        except UnsafeStoreError as error:
            # It was proved, and is another store by now: what it did with this create no one can
            # say, and once more is too often.
            return "unknown", str(error), None
        except StoreError as error:
            if not reason:
                raise  # refused before anything was sent
            reason = f"{reason}; then {error}"
        else:
            # Taken; perhaps by this very call, if something below retried it by itself.
            try:
                winner = read_object(ctx.store, snapshot.version)
            except (CorruptMetadataError, UnsupportedFormatError) as error:
                if not reason:
                    raise  # someone else's, and damaged
                reason = f"{reason}; then {error}"
            except StoreError as error:
                reason = str(error)
            else:
                # A winner that is expired already, or that someone else created for this job, is
                # seen in the head.
                commits = () if winner is None else winner.snapshot.commits
                is_mine = any(each.commit_id == commit_id for each in commits)
                return ("mine", "", None) if is_mine else ("lost", "", winner)
        if tried + 1 < limits.unclear_tries:
            pause(ctx.env, tried, limits.first_unclear_pause_s, limits.longest_unclear_pause_s)
    return "unknown", reason, None


# how long a joint commit may stay undecided before a writer that needs the table aborts it [MT9]
_PATIENCE_US = 2_000_000
_LOOK_S = 0.5
_LOOKS = 4


def commit(
    ctx: TableContext,
    head: Head,
    change: Change,
    *,
    committers: Committers = Committers.GROUP,
    meter: Meter | None = None,
    is_signed: bool = False,
    part: Part | None = None,
) -> Outcome:
    """Commit the change once, whatever else commits beside it, or say why not. [CM1]-[CM8] [CM19]
    [CM21]

    committers: who else may commit the same job; meter: what measures this call, if not one of its
    own; is_signed: another process made the change, and said who it is [OB15]; part: what this
    commit is of a joint commit: that a member is committed means that it has been placed, and a
    decision whose attempt was aborted is "aborted" under the attempt's id. [MT3] [MT4]

    One create, one list and one put of the hint if nobody is in the way and nothing spills. A crash
    at any point leaves the table at its old state or at its new one.
    """
    change = change if is_signed else ctx.signed(change, head.snapshot.properties)
    if meter is None:
        phase: Phase = "second" if committers.is_shared else "both"
        meter = Meter(ctx.tally, change.job, change.operation, change.summary, phase)
    group = GroupCommit(ctx, change.job, committers, meter)
    try:
        outcome = _CommitLoop(ctx, head, change, committers, meter, group, part).run()
        if group.is_published:
            outcome = _decided(ctx, outcome)
    except Exception as error:
        if not group.is_published or isinstance(error, TableNotFoundError):
            meter.end("failed")
            raise
        text = "%r: %s failed, and others may still commit it"
        LOG.debug(text, ctx.store.url, change.job, exc_info=error)
        reason = f"others may still commit it for this job, which failed: {error}"
        outcome = Outcome(kind="unknown", job_id=change.job, reason=reason)
    if outcome.kind != "unknown":
        group.retract()
    outcome = measured(outcome, meter, committers)
    if outcome.kind == "committed" and not isinstance(part, Member):
        export_after_commit(ctx)
    return outcome


def measured(
    outcome: Outcome, meter: Meter, committers: Committers = Committers.THIS_PROCESS
) -> Outcome:
    """The outcome with its figures, which are reported. [OB10]"""
    kind, version, is_shared = outcome.kind, outcome.version, committers.is_shared
    rule = outcome.conflict.rule if outcome.conflict else ""
    figures = meter.end(kind, version=version, rule=rule, shared=is_shared)
    return replace(outcome, metrics=figures)


def first_schema(
    ctx: TableContext, head: Head, data: Schema, partition_by: tuple[str, ...], *, job: str
) -> Head:
    """Give a table its first schema; who loses that race fits the winner's. [CF8]"""
    schema = assign_new_ids(relaxed(data), ctx.new_field_id)
    change = Write(
        job=ctx.new_job(head),
        birth=head.version,
        operation="schema",
        initial=schema,
        partition_by=check_partition_by(schema, partition_by),
    )
    outcome = commit(ctx, head, change)
    found = ctx.open()
    if not found.snapshot.schema.fields:
        if outcome.committed:
            taken_back = Conflict(
                rule="schema",
                mine="gives the table its first columns",
                winner=f"a rollback up to version {found.version} took them back",
            )
            outcome = Outcome(kind="conflict", job_id=job, conflict=taken_back)
        committed_or_raise(outcome, ctx.store.url)
    return found


def record_abort(ctx: TableContext, job: str) -> Outcome:
    """Commit that a job which others can finish never commits, or learn that it has: one create
    decides. [AB4] [CM21] The outcome is of that job: aborted, committed, fenced; a conflict where
    nothing could be decided for all the others who commit."""
    while True:
        head = ctx.open()
        check_table(ctx, head.snapshot, job)
        state, version = ctx.manifests.job(head.snapshot, job)
        if state is not None:
            return Outcome(kind=state, job_id=job, version=version)
        if birth_of(job) < head.snapshot.fence:
            return fenced_outcome(ctx, head, job)
        own = ctx.new_job(head)
        outcome = commit(ctx, head, Abort(job=own, birth=head.version, aborted=job))
        if outcome.committed:
            return Outcome(kind="aborted", job_id=job, attempts=outcome.attempts)
        overtaken = outcome.kind == "fenced" or (
            outcome.conflict is not None and outcome.conflict.rule == "job_is_committed"
        )
        if not overtaken:
            return replace(outcome, job_id=job)


def _decided(ctx: TableContext, outcome: Outcome) -> Outcome:
    """The outcome of a job that others may carry: an abort needs a record in the head. [CM21]"""
    if outcome.kind not in ("conflict", "key_reused", "already_committed"):
        # that it is committed, aborted or fenced is in a head; where it is not known, nothing is
        # to be decided
        return outcome
    job, attempts = outcome.job_id, outcome.attempts
    recorded = record_abort(ctx, job)
    if recorded.kind in ("aborted", "fenced"):
        return outcome
    if recorded.kind == "committed":
        return replace(recorded, attempts=attempts)
    reason = recorded.reason or "others won every version in which it was to be aborted"
    reason = f"others may still commit it: {reason}"
    return Outcome(kind="unknown", job_id=job, attempts=attempts, reason=reason)


def abort_attempt(ctx: TableContext, attempt: str) -> None:
    """Record in the home, which this is the context of, that an attempt of a joint commit never
    commits, unless its fate is known there by now. The caller asks for that afterwards. A create,
    a list and a put of the hint, where the home's head is known. [MT9]"""
    head = ctx.known or ctx.open()
    snapshot = head.snapshot
    is_known = any(each.attempt == attempt for each in snapshot.joint.values())
    if is_known or birth_of(attempt) < snapshot.fence or ctx.manifests.job(snapshot, attempt)[0]:
        return
    change = Abort(job=ctx.new_job(head), birth=head.version, aborted=attempt)
    outcome = commit(ctx, head, change, committers=Committers.THIS_PROCESS)
    if outcome.kind == "unknown":
        raise StoreError(
            f"{ctx.store.url}: it is not known whether attempt {attempt} of a joint commit was "
            f"aborted: {outcome.reason}. Trying again is safe."
        )
    if outcome.committed:
        LOG.info("%r: %s does not go on, and was aborted", ctx.store.url, attempt)


def settle_first(ctx: TableContext, head: Head) -> Head:
    """What to build the next version on, where the newest object is a member of a joint commit that
    was not committed when `head` was read: the member, if it is committed by now, or else the state
    before it. [MT5] [MT9]

    An undecided one gets the time that its commit needs; then its attempt is aborted, in its home.
    Homes come before their members in the order of tables, so that this ends.
    """
    waited, began_us = 0, ctx.env.now_us()
    while head.top is not None and not head.is_void:
        member = head.top.snapshot
        assert member.pending is not None
        is_late = ctx.env.now_us() - began_us >= _PATIENCE_US and waited >= _LOOKS
        if is_late:
            home = ctx.at(home_of(ctx.store, member.pending))
            abort_attempt(home, attempt_of(member.pending))
        else:
            ctx.env.sleep(_LOOK_S * (0.5 + ctx.env.jitter()))
        waited += 1
        newest = newest_above(ctx.store, head.version, head)
        if newest is None:
            raise removed(ctx, head, None)
        is_same = newest.top is not None and newest.top.digest == head.top.digest
        began_us = began_us if is_same else ctx.env.now_us()
        waited = waited if is_same else 0
        head = newest
    if head.top is None:
        return head
    state = state_before(head.top.snapshot, head.snapshot)
    return Head(snapshot=state, digest=head.top.digest, taken=head.taken)


class _CommitLoop:
    """One job's attempts to commit: judge the head, create the next version, rebase and retry."""

    def __init__(
        self,
        ctx: TableContext,
        head: Head,
        change: Change,
        committers: Committers,
        meter: Meter,
        group: GroupCommit,
        part: Part | None,
    ) -> None:
        self._ctx = ctx
        self._part = part
        self._head = head
        self._is_fresh = False  # whether this loop has read the head, not its caller
        self._change = change
        self._limits = ctx.tuning.limits
        self._is_shared = committers.is_shared
        self._meter = meter
        self._group = group
        self._spiller = Spiller(ctx, change.job)
        self._versions: dict[int, Head] = {}  # read to judge the change
        self._creates = 0

    def run(self) -> Outcome:
        """The outcome, after as many creates as the limits allow."""
        self._ctx.prove(self._head.snapshot.proven)
        if isinstance(self._change, Write):
            self._change = self._spiller.stage(self._change)
        while self._creates < self._limits.attempts:
            try:
                step = self._next_step()
                made = self._next_version(step) if isinstance(step, Inputs) else None
            except CorruptMetadataError:
                newest = newest_above(self._ctx.store, self._head.version, self._head)
                if newest is None or not self._may_lack(newest):
                    raise
                self._rebase(newest)
                continue
            outcome = self._contend(*made) if made is not None else step
            if isinstance(outcome, Outcome):
                return outcome
        winner = f"others won {self._creates} times in a row"
        conflict = Conflict(rule="contention", mine="wants to commit", winner=winner)
        return self._outcome("conflict", conflict=conflict)

    def _next_step(self) -> Outcome | Inputs | None:
        """What the head decides, or else what may be contended; None: rebased, judge again."""
        if (top := self._head.top) is not None:
            member = self._part if isinstance(self._part, Member) else None
            if member is not None and member.is_placed(top.snapshot):
                return self._outcome("committed", version=top.version)
            if member is not None and member.is_behind(top.snapshot):
                return Outcome(kind="aborted", job_id=member.id)
            self._rebase(settle_first(self._ctx, self._head))
            if member is not None and member.is_over(top.snapshot, self._head.snapshot):
                return Outcome(kind="aborted", job_id=member.id)
            return None
        judged = self._judge()
        if isinstance(judged, Outcome):
            changeable = judged.kind in ("conflict", "already_committed", "key_reused")
            if changeable and not self._is_fresh:
                # A known head may be outdated: the conflict may be resolved by now, such as a gap
                # that was closed, and the work of a key may have been undone since.
                store, head = self._ctx.store, self._head
                self._rebase(newest_above(store, head.version, head) or head)
                return None
            self._ctx.learn(self._head)
            return replace(judged, attempts=self._creates)
        if not self._creates and self._group.ask_first(self._head, self._change):
            self._rebase(self._wait_for_turn(self._head))
            return None
        self._ctx.tally.attempts += 1
        return judged

    def _contend(self, snapshot: Snapshot, data: bytes) -> Outcome | None:
        """Create the version. None: another job won it, or this create does not count; rebased.
        [CM5] [CM7] [CM22]"""
        self._creates += 1
        verdict, reason, winner = create_version(self._ctx, snapshot, data)
        self._meter.tried(snapshot.commits[-1].summary, is_mine=verdict == "mine")
        if verdict == "unknown":
            return self._outcome("unknown", reason=reason)
        if verdict == "mine":
            mine = Head(snapshot=snapshot, digest=codec.digest(data), data=data)
            try:
                counted, newest = self._confirm(mine)
            except (StoreError, CorruptMetadataError, UnsupportedFormatError) as error:
                reason = f"it was created, but could not be counted: {error}"
                return self._outcome("unknown", reason=reason)
            if counted is not None:
                if not isinstance(self._part, Member):  # it is no state of the table yet
                    self._ctx.learn(newest)
                    if counted == snapshot.version:
                        self._group.settled(snapshot)
                return self._outcome("committed", version=counted)
        else:
            newest = self._lost(snapshot.version, winner)
        if self._group.is_crowded(newest.snapshot):
            self._group.publish(self._change)
        self._rebase(self._wait_for_turn(newest))
        return None

    def _rebase(self, head: Head) -> None:
        self._head, self._is_fresh = head, True

    def _judge(self) -> Outcome | Inputs:
        """What this head says of the job: an outcome, or what may be contended. [CM1] [CF1]"""
        ctx, head, change = self._ctx, self._head, self._change
        sent = self._is_shared or self._creates > 0 or self._group.is_published
        settled = settled_outcome(ctx, head, change, sent=sent)
        if settled is not None:
            return settled
        if isinstance(self._part, Decision) and self._part.is_over(ctx, head.snapshot):
            return Outcome(kind="aborted", job_id=self._part.attempt)
        inputs = load_conflict_inputs(ctx, head, change, self._versions)
        conflict = find_conflict(head.snapshot, change, inputs)
        if conflict is not None and conflict.rule == ROWS_ARE_UNCHECKED:
            assert isinstance(change, Write)
            conflict = self._check_rows(head.snapshot, change)
        return inputs if conflict is None else self._outcome("conflict", conflict=conflict)

    def _check_rows(self, head: Snapshot, change: Write) -> Conflict | None:
        """Check the job's files against the constraints that its rows were not checked against, by
        their bounds, else by reading them. None: they keep them, and the change says so. [CK2]"""
        names = unchecked(head, change)
        found = gate().check_change(self._ctx, head, change, names)
        if found is None:
            ids = {*change.checked, *(head.constraints[name].id for name in names)}
            self._change = replace(change, checked=tuple(sorted(ids)))
            return None
        return Conflict(
            rule=CONSTRAINT_VIOLATED,
            mine=f"adds {counted(found.rows, 'row')} that violate it",
            winner=f"the table has the constraint {found.constraint!r}: {found.condition}",
            violation=found,
        )

    def _may_lack(self, newest: Head) -> bool:
        """Whether an object that was missing at the head may be gone by right. [CM2] What a head
        lists that was known for long, and the versions since the birth, may be expired; what the
        job itself has written may be deleted, since it is fenced. Where `expired` is above the
        birth, so is the fence."""
        moved = newest.version != self._head.version
        return moved and newest.snapshot.fence > self._change.since

    def _next_version(self, inputs: Inputs) -> tuple[Snapshot, bytes]:
        """The snapshot to be created, with what it carries for others, and its bytes. Where that
        cannot be made, without them. [CM17] [CM20]"""
        ctx, head, part = self._ctx, self._head, self._part
        change = replace(self._change, summary=self._meter.summary())
        merge = change.paths if isinstance(change, MergeManifests) else frozenset[str]()
        state = above_taken(head.snapshot, head.taken) if head.taken else head.snapshot
        alone = below = commit_group.CombinedCommit(snapshot=state)
        if part is None and isinstance(change, Write):
            below = self._group.carry(state, change, inputs)
        while True:
            try:
                made = apply(
                    below.snapshot,
                    change,
                    inputs,
                    parent_digest=head.digest,
                    commit_id=f"{change.job}.{ctx.env.randomness(8).hex()}",
                    now_us=ctx.commit_time_us(below.snapshot.committed_at),
                    writer=ctx.writer,
                    store=ctx.store.identity,
                )
                if part is not None:
                    made = part.made(state, made)
                elif below.commits:
                    made = commit_group.complete(below, made)
                snapshot = self._spiller.settle(made, merge)
                return snapshot, codec.encode_snapshot(snapshot)
            # as pyarrow's errors of values are
            except (ManifestCommitError, ValueError, TypeError, OverflowError) as error:
                if not below.commits:
                    raise
                text = "%r: %s carries nothing for others this time: %s"
                LOG.warning(text, ctx.store.url, change.job, error)
                below = alone

    def _lost(self, version: int, winner: Head | None) -> Head:
        """The newest head after a lost create: publish the change, pause, then read. What was read
        before the pause would be old by its end, and would lose again. [CM8] [CM19]"""
        ctx, limits, group = self._ctx, self._limits, self._group
        ctx.tally.conflicts += 1
        text = "%r: another job won version %d, for which %s contended"
        LOG.debug(text, ctx.store.url, version, self._change.job)
        if self._creates >= limits.lost_alone:
            group.publish(self._change)
        # A job that has published is in a queue, which spaces its creates better than any pause.
        tried = 0 if group.is_published else self._creates
        pause(ctx.env, tried, limits.first_pause_s, limits.longest_pause_s)
        return self._newest(self._head, winner)

    def _confirm(self, mine: Head) -> tuple[int | None, Head]:
        """The version that counts as this job's, if one does, and the newest head: a create counts
        only by what is above it. [CM5]"""
        ctx, base, made = self._ctx, self._head, mine.snapshot
        own, start = made.version, base.snapshot.version
        if isinstance(self._part, Member):  # it has no hint before its home has decided [MT7]
            above = list_above(ctx.store, start)
        else:  # the hint decides nothing [CM7]
            with beside(ctx.store, partial(put_hint, ctx.store, own, mine.digest)) as put:
                above = list_above(ctx.store, start)
                put()
        versions = above.versions
        if (not versions or versions[-1] <= own) and start not in versions:
            raise removed(ctx, base, mine)
        if above.tables != {made.table_id}:
            check_same_root(ctx, base, mine, above)
        if versions[-1] == own:
            return own, replace(mine, etag=above.etag)
        newest = self._newest(base, None)
        if newest.snapshot.table_id != made.table_id:
            raise removed(ctx, base, mine)
        if (newest.top or newest).version < own:
            raise StoreError(f"version {own} is gone; is the table being removed?")
        state, version = ctx.manifests.job(newest.snapshot, made.commits[-1].job)
        if state == "committed":
            # not of necessity mine: that may be one that was deleted, and others carried the job
            # before
            return version, newest
        # void: others have skipped an object there that was deleted since [LY15]
        is_void = own in newest.snapshot.void and not isinstance(self._part, Member)
        counts = own >= newest.snapshot.expired and not is_void
        return (own if counts else None), newest

    def _wait_for_turn(self, head: Head) -> Head:
        """The newest head, after those who go before this job had time to carry it along. [CM20]"""
        above = self._group.wait_for_turn(head, self._limits)
        return head if above is None else self._newest(head, head, above)

    def _newest(self, base: Head, got: Head | None, above: VersionListing | None = None) -> Head:
        """The newest head, and the intents beside it. got: what was got from the base on before
        this call, if anything; above: a list made after that. [RD1] [CM20]"""
        try:
            newest = newest_above(self._ctx.store, base.version, got, above)
        except CorruptMetadataError:
            if is_removed(self._ctx, base):
                raise removed(self._ctx, base, None) from None
            raise
        if newest is None:
            raise removed(self._ctx, base, None)
        self._group.saw(newest.waiting)
        return newest

    def _outcome(self, kind: Kind, **more: Any) -> Outcome:
        return Outcome(kind=kind, job_id=self._change.job, attempts=self._creates, **more)
