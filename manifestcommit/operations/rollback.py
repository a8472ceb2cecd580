"""Restores an earlier version, with a commit of its own: the history stays, and the undone work can
be repeated. [CF13]
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..commits.commit_loop import commit
from ..errors import UsageError
from ..format import manifest_table
from ..format.change import ConflictInputs, Rewind, Rollback
from ..format.partitioning import PartitionPattern, dedupe
from ..format.snapshot import KeyRecord, Snapshot, Totals
from ..log.manifests import KEY_RUN
from ..log.table_context import TableContext
from ..log.time_travel import choose_version
from ..log.version_chain import Head, raise_if_expired, read_version
from ..protocol.conflict import undoes_a_joint_commit
from ..runtime.outcome import Outcome, committed_or_raise
from ..runtime.validation import check_reason
from ..scan import planning

_NONE = KeyRecord(version=0, digest="")


def rollback(
    ctx: TableContext,
    version: int | None = None,
    *,
    tag: str | None = None,
    reason: str,
    alone: bool = False,
) -> Outcome:
    """Restore the table to a readable version, in one commit; it conflicts with anything else that
    is committed meanwhile. alone: undo joint commits in this table alone. [CF13] [MT14]

    One request for the target, and one for each manifest and run that only one of the two versions
    lists. Deletes nothing.
    """
    head, back = plan_rollback(ctx, version, tag=tag, reason=reason, alone=alone)
    outcome = commit(ctx, head, back)
    return (
        msgspec.structs.replace(outcome, dropped_keys=tuple(sorted(back.dropped)))
        if outcome.committed
        else outcome
    )


def plan_rollback(
    ctx: TableContext,
    version: int | None = None,
    *,
    tag: str | None = None,
    reason: str,
    alone: bool = False,
) -> tuple[Head, Rollback]:
    """The latest version, and the change that a rollback would commit now; nothing is written.
    [CF13]"""
    check_reason("rollback", reason)
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
        taken=_totals(taken),
        given=_totals(given),
        alone=alone,
        dropped=dropped,
        dropped_before=dropped_before,
        reason=reason,
    )


def check_alone(url: str, head: Head, change: Rollback | Rewind) -> None:
    """The error that this change would end with because it undoes a joint commit in one table only,
    before it is committed. [MT14]"""
    conflict = undoes_a_joint_commit(head.snapshot, change, (), ConflictInputs())
    if conflict is not None:
        committed_or_raise(Outcome(kind="conflict", job_id=change.job, conflict=conflict), url)


def _differing(ctx: TableContext, head: Snapshot, target: Snapshot) -> tuple[pa.Table, pa.Table]:
    """(entries only in the latest version, entries only in the target): a path that was removed and
    added again counts as another entry."""
    before, after = planning.unshared_entries(ctx, head, target)
    old, new = (_identity(table) for table in (before, after))
    return before.filter(pc.invert(pc.is_in(old, value_set=new))), after.filter(
        pc.invert(pc.is_in(new, value_set=old))
    )


def _identity(table: pa.Table) -> pa.Array:
    whole = table.select(["added", "path"]).combine_chunks()
    if not whole.num_rows:
        return pa.array([], pa.string())
    added, path = (whole.column(name).chunk(0) for name in ("added", "path"))
    return pc.binary_join_element_wise(added.cast(pa.string()), path.cast(pa.string()), " ")


def _totals(table: pa.Table) -> Totals:
    rows, size = (pc.sum(table.column(name)).as_py() or 0 for name in ("rows", "bytes"))
    return Totals(files=table.num_rows, rows=rows, bytes=size)


def _touched(
    head: Snapshot, target: Snapshot, taken: pa.Table, given: pa.Table
) -> tuple[PartitionPattern, ...]:
    if head.partition_by != target.partition_by:
        return ({},)
    return dedupe(
        touch
        for snapshot, table in ((head, taken), (target, given))
        for touch in _partitions(snapshot, table)
    )


def _partitions(snapshot: Snapshot, table: pa.Table) -> Iterator[PartitionPattern]:
    if snapshot.schema is not None:
        yield from manifest_table.partitions(table, snapshot.schema, snapshot.partition_by)


def _dropped_keys(
    ctx: TableContext, head: Snapshot, target: Snapshot
) -> tuple[frozenset[str], dict[str, KeyRecord]]:
    """(keys that the latest version records and the target does not, records of keys that were
    invalidated after the target and stay so). [CF13] [KY7]

    The work of the former is undone, and a rerun repeats it; no job from before the rollback may
    commit any of them. For the latter nothing is undone now: a job that began after they were
    invalidated may still commit one.
    """
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


def _records(ctx: TableContext, snapshot: Snapshot, keys: AbstractSet[str]) -> dict[str, KeyRecord]:
    """Key -> its newest record, for keys that have one. Reads only runs that may hold one of
    them."""
    newest: dict[str, KeyRecord] = {}
    names = pa.array(sorted(keys), pa.string())
    for run in snapshot.key_runs:
        if any(run.first <= key <= run.last for key in keys):
            table = ctx.manifests.run(run, KEY_RUN)
            for row in table.filter(pc.is_in(table.column("key"), value_set=names)).to_pylist():
                if row["version"] > newest.get(row["key"], _NONE).version:
                    newest[row["key"]] = KeyRecord(version=row["version"], digest=row["digest"])
    return newest | {key: record for key, record in snapshot.keys.items() if key in keys}
