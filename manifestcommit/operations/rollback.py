"""Restores an earlier version, with a commit of its own: the history stays, and the undone work can
be repeated. [CF13]"""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Sequence, Set
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..commits.commit_loop import Committers, commit, settle_first
from ..commits.joint_commit import commit_jointly
from ..commits.prepared_job import Part, Settlement, TablePart
from ..errors import CorruptMetadataError, SnapshotExpiredError, StoreError, UsageError
from ..format import manifest_table
from ..format.change import (
    Inputs,
    Position,
    Rewind,
    Rollback,
    TagEdit,
    Write,
    check_advance,
    is_left_by,
)
from ..format.fields import is_text
from ..format.partitioning import PartitionPattern, dedupe
from ..format.snapshot import KeyRecord, Snapshot
from ..log.manifests import KEY_RUN
from ..log.table_context import TableContext, find_key_at, steps
from ..log.version_chain import (
    Head,
    choose_version,
    missing_version,
    open_head,
    raise_if_expired,
    read_object,
    read_version,
    settled_head,
)
from ..protocol.conflict import find_conflict, undoes_a_joint_commit
from ..protocol.joint_outcome import find_mismatch, state_before
from ..runtime.outcome import Outcome, committed_or_raise
from ..runtime.validation import parse_age
from ..scan import planning
from .describe import unknown_source

Said = Literal["committed", "aborted"]


def settle(ctx: TableContext, said: Said | None, *, reason: str | None = None) -> Outcome:
    """Commit a version that is no member, on top of one that is; "unchanged" where none is. [MT10]

    said: what became of the member, as an operator decides; only where its home cannot be asked.
    """
    newest = open_head(ctx.store, is_member_too=True)
    if newest.snapshot.pending is None:
        return Outcome(kind="unchanged", job_id="", version=newest.version)
    part: Part | None = None
    if said is None:
        head = ctx.open()
    else:
        _check_unknown(ctx, newest)
        head, part = _as_said(ctx, newest, said), Settlement(newest.snapshot.pending.table_id)
    reason, job = reason if said is None else f"as {said}: {reason}", ctx.new_job(head)
    change = Write(job=job, birth=head.version, operation="settle", reason=reason)
    return commit(ctx, head, change, committers=Committers.THIS_PROCESS, part=part)


def _check_unknown(ctx: TableContext, newest: Head) -> None:
    """UsageError where the home can be asked, and may still decide."""
    assert newest.snapshot.pending is not None
    try:
        settled_head(ctx.store, newest)
    except (StoreError, CorruptMetadataError):
        return
    raise UsageError(
        f"{ctx.store.url}: what became of version {newest.version} is for the table at "
        f"{newest.snapshot.pending.home} to tell, which can be asked; nothing was changed. Settle "
        "without an outcome"
    )


def _as_said(ctx: TableContext, newest: Head, said: Said) -> Head:
    """What to build the next version on."""
    if said == "committed":
        return newest
    assert newest.snapshot.pending is not None
    below = newest.snapshot.pending.base
    base = read_object(ctx.store, below)
    if base is None:
        raise missing_version(below)
    return Head(snapshot=state_before(newest.snapshot, base.snapshot), digest=newest.digest)


_LATEST_US = 253_402_300_799_000_000  # the end of the year 9999, the limit of Python's dates


def tag(
    ctx: TableContext,
    name: str,
    version: int | None = None,
    *,
    keep_for: str | dt.timedelta | None = None,
) -> Outcome:
    """Give a readable version this name, and take it from another version that has it; it conflicts
    if the version expires meanwhile. [CF12] [GC10]

    version: None: the latest; keep_for: how long from now gc has to keep it, None: until `untag`.
    """
    until = _ends(ctx, name, keep_for)
    head = ctx.open()
    chosen = choose_version(ctx.store, head, version=version, as_of=None, tag=None)
    number = head.version if chosen is None else read_version(ctx.store, head, chosen).version
    edit = TagEdit(
        job=ctx.new_job(head),
        birth=head.version,
        operation="tag",
        name=name,
        version=number,
        until=until,
    )
    return commit(ctx, head, edit)


def untag(ctx: TableContext, name: str) -> Outcome:
    """Remove a tag, for which gc keeps no version then. VersionNotFoundError without it. [GC10]"""
    if not isinstance(name, str):
        raise UsageError(f"a tag's name is a text, not {name!r}")
    head = ctx.open()
    choose_version(ctx.store, head, version=None, as_of=None, tag=name)
    job = ctx.new_job(head)
    return commit(ctx, head, TagEdit(job=job, birth=head.version, operation="untag", name=name))


def _ends(ctx: TableContext, name: object, keep_for: str | dt.timedelta | None) -> int | None:
    """When this tag ends, if ever, in microseconds; UsageError for no name or time. [GC10]"""
    if not is_text(name) or any(unicodedata.category(letter) == "Cc" for letter in name):
        raise UsageError(
            f"a tag's name is a non-empty text without control characters, not {name!r}"
        )
    if keep_for is None:
        return None
    seconds = parse_age(keep_for, "keep_for")
    until = ctx.env.now_us() + round(seconds * 1_000_000)
    if seconds <= 0 or until > _LATEST_US:
        raise UsageError(
            f"keep_for is a time from now on, such as 30d, not {keep_for!r}; without it a "
            "tag stays until `untag` deletes it"
        )
    return until


_NONE = KeyRecord(version=0, digest="")


def undo(ctx: TableContext, head: Head, back: Rollback | Rewind) -> Outcome:
    """Commit a rollback or a rewind as it was planned at this head. [CF13] [WM5]"""
    return _dropping(commit(ctx, head, back), back)


def _dropping(outcome: Outcome, back: Rollback | Rewind) -> Outcome:
    keys = back.dropped if isinstance(back, Rollback) else back.keys
    dropped = tuple(sorted(keys)) if outcome.committed else ()
    return msgspec.structs.replace(outcome, dropped_keys=dropped)


def plan_rollback(
    ctx: TableContext,
    version: int | None = None,
    *,
    tag: str | None = None,
    reason: str,
    alone: bool = False,
) -> tuple[Head, Rollback]:
    """The latest version, and what would restore the table to a readable one, in one commit, which
    conflicts with anything else that is committed meanwhile; nothing is written. alone: undo joint
    commits in this table alone. One request for the target, and one for each manifest and run that
    only one of the two versions lists. [CF13] [MT14]"""
    head = ctx.open()
    chosen = choose_version(ctx.store, head, version=version, as_of=None, tag=tag)
    if chosen is None:
        raise UsageError("a rollback needs the version, or the tag, to go back to")
    target = read_version(ctx.store, head, chosen).snapshot
    if chosen >= head.version:
        raise UsageError(
            f"{ctx.store.url}: version {head.version} is the newest already; there is "
            "nothing to roll back; where several tables are rolled back, leave this one out"
        )
    with raise_if_expired(ctx.store, head.version), raise_if_expired(ctx.store, chosen):
        taken, given = _differing(ctx, head.snapshot, target)
        dropped, dropped_before = _dropped_keys(ctx, head.snapshot, target)
    return head, Rollback(
        job=ctx.new_job(head),
        birth=head.version,
        target=target,
        touched=_touched(head.snapshot, target, taken, given),
        taken=manifest_table.totals(taken),
        given=manifest_table.totals(given),
        alone=alone,
        dropped=dropped,
        dropped_before=dropped_before,
        reason=reason,
    )


def check_alone(url: str, head: Head, change: Rollback | Rewind) -> None:
    """The error for undoing a joint commit in one table only, before it is committed. [MT14]"""
    conflict = find_conflict(head.snapshot, change, Inputs(), (undoes_a_joint_commit,))
    if conflict is not None:
        committed_or_raise(Outcome(kind="conflict", job_id=change.job, conflict=conflict), url)


def _differing(ctx: TableContext, head: Snapshot, target: Snapshot) -> tuple[pa.Table, pa.Table]:
    """(entries only in the latest version, entries only in the target): a path that was removed and
    added again counts as another entry."""
    before, after = planning.unshared_entries(ctx, head, target)
    old, new = (_identity(table) for table in (before, after))
    taken, given = pc.is_in(old, value_set=new), pc.is_in(new, value_set=old)
    return before.filter(pc.invert(taken)), after.filter(pc.invert(given))


def _identity(table: pa.Table) -> pa.Array:
    added, path = (table.column(name).cast(pa.string()) for name in ("added", "path"))
    return planning.whole(pc.binary_join_element_wise(added, path, " "))


def _touched(
    head: Snapshot, target: Snapshot, taken: pa.Table, given: pa.Table
) -> tuple[PartitionPattern, ...]:
    if head.partition_by != target.partition_by:
        return ({},)
    return dedupe(
        touch
        for snapshot, table in ((head, taken), (target, given))
        for touch in manifest_table.partitions(table, snapshot)
    )


def _dropped_keys(
    ctx: TableContext, head: Snapshot, target: Snapshot
) -> tuple[frozenset[str], dict[str, KeyRecord]]:
    """(keys that the latest version records and the target does not, whose work is undone: no job
    from before the rollback may commit any of them; records of keys that were invalidated after the
    target and stay so: a job that began after that may still commit one). [CF13] [KY7]"""
    shared = {run.path for run in head.key_runs} & {run.path for run in target.key_runs}
    # Not by the versions of their records: keys that another rollback restored, or a rewind
    # invalidated, have older records.
    suspects = {*head.keys, *target.keys}
    for run in (*head.key_runs, *target.key_runs):
        if run.path not in shared:
            suspects.update(ctx.manifests.run(run, KEY_RUN).column("key").to_pylist())
    before = _records(ctx, head, suspects)
    after = _records(ctx, target, before.keys())
    gone = {
        key: record
        for key, record in before.items()
        if record != after.get(key) and not after.get(key, _NONE).digest
    }
    dropped = frozenset(key for key, record in gone.items() if record.digest)
    return dropped, {key: record for key, record in gone.items() if key not in dropped}


def _records(ctx: TableContext, snapshot: Snapshot, keys: Set[str]) -> dict[str, KeyRecord]:
    """Key -> its newest record, if any. Reads only runs that may hold one of them."""
    newest: dict[str, KeyRecord] = {}
    names = pa.array(sorted(keys), pa.string())
    for run in snapshot.key_runs:
        if any(run.first <= key <= run.last for key in keys):
            table = ctx.manifests.run(run, KEY_RUN)
            for row in table.filter(pc.is_in(table.column("key"), value_set=names)).to_pylist():
                if row["version"] > newest.get(row["key"], _NONE).version:
                    newest[row["key"]] = KeyRecord(version=row["version"], digest=row["digest"])
    return newest | {key: record for key, record in snapshot.keys.items() if key in keys}


def plan_rewind(
    ctx: TableContext,
    source: str,
    to: Position,
    *,
    reason: str,
    keep_keys: bool = False,
    alone: bool = False,
) -> tuple[Head, Rewind]:
    """The latest version, and what would set a source's watermark back and invalidate the keys
    whose advances that undoes, in one commit, which conflicts if the source moves meanwhile;
    nothing is written. alone: undo joint commits in this table alone. One request for each version
    back to the one that last had this watermark. [WM5] [MT14]"""
    head = ctx.open()
    have = head.snapshot.watermarks.get(source)
    if source not in head.snapshot.origins and have is None:
        raise UsageError(unknown_source(ctx, head.snapshot, source))
    _check_target(source, have, to)
    # Only the history knows whether a source was ever at a text; a source without a position has
    # nothing to undo.
    is_walked = have is not None and (isinstance(to, str) or not keep_keys)
    undone = _undone_keys(ctx, head, source, to) if is_walked else {}
    undone = {} if keep_keys else undone
    return head, Rewind(
        job=ctx.new_job(head),
        birth=head.version,
        source=source,
        have=have,
        to=to,
        keys=frozenset(undone),
        undone_jointly=frozenset(key for key, is_joint in undone.items() if is_joint),
        alone=alone,
        reason=reason,
    )


def _check_target(source: str, have: Position, to: Position) -> None:
    """UsageError unless the source, now at `have`, can be set back to `to`."""
    if to is None:
        return
    if have is None:
        raise UsageError(
            f"source {source!r} has no position, since a rollback to before its first "
            "advance: rewind it to None to forget it"
        )
    is_number = isinstance(to, int) and not isinstance(to, bool)
    try:
        check_advance(source, have, to)  # of one kind, and representable
    except ValueError as error:
        if isinstance(have, int) and is_number and -(2**63) <= int(to) < have:
            return
        raise UsageError(str(error)) from None
    if isinstance(have, int) or to == have:
        raise UsageError(
            f"source {source!r} is at {have!r}; a rewind sets it back, and {to!r} is not "
            "before that"
        )


def _undone_keys(ctx: TableContext, head: Head, source: str, to: Position) -> dict[str, bool]:
    """The keys that a rewind drops, and whether a joint commit has them in other tables, too: of
    the commits that moved the source past `to`, newest first, unless the key was recorded again
    since. [WM5] [MT14]"""
    keys: dict[str, bool] = {}
    try:
        for step in steps(ctx, head, source):
            if is_left_by(to, step.end):
                return keys
            key = step.commit.key
            record = find_key_at(ctx, head, key)[1] if key is not None else None
            if record is not None and record.version == step.version:
                keys[str(key)] = step.is_joint
            if is_left_by(to, step.start):  # versions before that need not be readable
                return keys
    except SnapshotExpiredError as error:
        raise SnapshotExpiredError(
            f"{error}, nor which keys a rewind to {to!r} has to drop. Nothing was changed. Rewind "
            "with keep_keys=True and give new keys to the work that is done again."
        ) from None
    if isinstance(to, str) and to != head.snapshot.origins.get(source):
        raise UsageError(
            f"source {source!r} was never at {to!r}; texts have no order, so that a rewind "
            "leads to a position that it once had"
        )
    return keys


def undo_together(parts: Sequence[TablePart]) -> tuple[Outcome, ...]:
    """Roll all tables back as planned, or none; one outcome for each. [MT1] [MT14]"""
    outcomes = commit_jointly(parts)
    return tuple(
        _dropping(outcome, part.change) if isinstance(part.change, Rollback) else outcome
        for outcome, part in zip(outcomes, parts, strict=True)
    )


def plan_joint_rollback(
    contexts: Sequence[TableContext],
    targets: Sequence[int | str],
    *,
    reason: str,
    settle: bool = True,
) -> list[TablePart]:
    """The rollback of each table to its target, a version or a tag; nothing of it is written, but
    attempts of joint commits that their coordinators left are aborted, unless `settle` is False:
    the commit may conflict with them then. UsageError where the targets hold a joint commit in some
    of the tables only. [MT9] [MT14] [CF13]"""
    for ctx in contexts if settle else ():  # an abort in a home is a version, to be seen
        settle_first(ctx, ctx.open())
    plans = [
        plan_rollback(ctx, None, tag=target, reason=reason)
        if isinstance(target, str)
        else plan_rollback(ctx, target, reason=reason)
        for ctx, target in zip(contexts, targets, strict=True)
    ]
    ids = frozenset(head.snapshot.table_id for head, _ in plans)
    _check_targets(contexts, [back for _, back in plans])
    parts = []
    for ctx, (head, back) in zip(contexts, plans, strict=True):
        change = msgspec.structs.replace(back, beside=ids - {head.snapshot.table_id})
        parts.append(TablePart(ctx=ctx, head=head, change=change))
    return parts


def _check_targets(contexts: Sequence[TableContext], plans: Sequence[Rollback]) -> None:
    urls = {back.target.table_id: ctx.store.url for ctx, back in zip(contexts, plans, strict=True)}
    mismatch = find_mismatch({back.target.table_id: back.target for back in plans})
    if mismatch is not None:
        raise UsageError(
            f"version {mismatch.version} of {urls[mismatch.table_id]} is part of a joint commit "
            f"that {urls[mismatch.home]} decided, and only one of the two targets is before it; "
            "nothing was changed. Choose versions that have it in all tables or in none, as "
            "read_together returns them."
        )
