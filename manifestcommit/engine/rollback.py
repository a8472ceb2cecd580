"""Going back to an earlier version, in a commit of its own: the history stays, and what was undone can be done again. [CF13]

Not here: what the next snapshot is (core.change), when it no longer holds (core.conflict).
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..core import manifest_table
from ..core.change import Change, Rollback
from ..core.snapshot import Snapshot, Totals
from ..core.touch import Touch, once
from ..errors import UsageError
from . import plan
from .commit import commit
from .given import check_reason
from .head import read_version, while_readable
from .manifests import KEY_RUN
from .outcome import Outcome
from .session import Session
from .times import choose_version
from .undone import give_up_published


def rollback(session: Session, version: int | None = None, *, tag: str | None = None, reason: str) -> Outcome:
    """The table as it was at a readable version, in one commit; a conflict if anything else is committed meanwhile. [CF13]

    One request for the target, and one for each manifest and run that only one of the two versions lists. Deletes nothing.
    """
    check_reason("rollback", reason)
    head = session.open()
    chosen = choose_version(session.store, head, version=version, as_of=None, tag=tag)
    if chosen is None:
        raise UsageError("a rollback needs the version, or the tag, to go back to")
    target = read_version(session.store, head, chosen).snapshot
    if chosen >= head.version:
        raise UsageError(f"{session.store.url}: version {head.version} is the newest already; there is nothing to roll back")
    with while_readable(session.store, head.version), while_readable(session.store, chosen):
        taken, given = _differing(session, head.snapshot, target)
        dropped = _dropped_keys(session, head.snapshot, target)
    moved = [source for source, have in head.snapshot.watermarks.items() if target.watermarks.get(source) != have]
    if give_up_published(session, head, keys=dropped, sources=moved):
        return rollback(session, chosen, reason=reason)
    change = Change(
        job=session.new_job(head),
        birth=head.version,
        operation="rollback",
        touched=_touched(head.snapshot, target, taken, given),
        rollback=Rollback(target=target, taken=_totals(taken), given=_totals(given)),
        reason=reason,
    )
    outcome = commit(session, head, change)
    return msgspec.structs.replace(outcome, dropped_keys=dropped) if outcome.committed else outcome


def _differing(session: Session, head: Snapshot, target: Snapshot) -> tuple[pa.Table, pa.Table]:
    """(entries only at the head, entries only at the target): a path that was taken away and added again is another entry."""
    before, after = plan.unshared_entries(session, head, target)
    old, new = (_identity(table) for table in (before, after))
    return before.filter(pc.invert(pc.is_in(old, value_set=new))), after.filter(pc.invert(pc.is_in(new, value_set=old)))


def _identity(table: pa.Table) -> pa.Array:
    whole = table.select(["added", "path"]).combine_chunks()
    if not whole.num_rows:
        return pa.array([], pa.string())
    added, path = (whole.column(name).chunk(0) for name in ("added", "path"))
    return pc.binary_join_element_wise(added.cast(pa.string()), path.cast(pa.string()), " ")


def _totals(table: pa.Table) -> Totals:
    rows, size = (pc.sum(table.column(name)).as_py() or 0 for name in ("rows", "bytes"))
    return Totals(files=table.num_rows, rows=rows, bytes=size)


def _touched(head: Snapshot, target: Snapshot, taken: pa.Table, given: pa.Table) -> tuple[Touch, ...]:
    if head.partition_by != target.partition_by:
        return ({},)
    return once(touch for snapshot, table in ((head, taken), (target, given)) for touch in _partitions(snapshot, table))


def _partitions(snapshot: Snapshot, table: pa.Table) -> Iterator[Touch]:
    if snapshot.schema is not None:
        yield from manifest_table.partitions(table, snapshot.schema, snapshot.partition_by)


def _dropped_keys(session: Session, head: Snapshot, target: Snapshot) -> tuple[str, ...]:
    """The keys that the head records and the target does not: their work is undone, and a rerun does it again. [CF13]"""
    shared = {run.path for run in head.key_runs} & {run.path for run in target.key_runs}
    # Not by the versions of their records: what another rollback brought back, or a rewind dropped, has older ones than that.
    suspects = {*head.keys, *target.keys}
    for run in (*head.key_runs, *target.key_runs):
        if run.path not in shared:
            suspects.update(session.manifests.run(run, KEY_RUN).column("key").to_pylist())
    recorded = _recorded(session, head, suspects)
    return tuple(sorted(recorded - _recorded(session, target, recorded)))


def _recorded(session: Session, snapshot: Snapshot, keys: AbstractSet[str]) -> frozenset[str]:
    """Those of the keys that the snapshot records. Reads no run that can have none of them."""
    newest: dict[str, tuple[int, str]] = {}
    names = pa.array(sorted(keys), pa.string())
    for run in snapshot.key_runs:
        if any(run.first <= key <= run.last for key in keys):
            table = session.manifests.run(run, KEY_RUN)
            for row in table.filter(pc.is_in(table.column("key"), value_set=names)).to_pylist():
                newest[row["key"]] = max(newest.get(row["key"], (0, "")), (row["version"], row["digest"]))
    newest |= {key: (record.version, record.digest) for key, record in snapshot.keys.items() if key in keys}
    return frozenset(key for key, (_, digest) in newest.items() if digest)
