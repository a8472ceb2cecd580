"""The decision of a gc: what it takes to make it, and the commit that it stands in. [GC1] [GC3] [KY4] [AB5]

Not here: the choice itself (core.retention), what is deleted by it (engine.gc).
"""

from __future__ import annotations

from collections.abc import Callable, Set

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..core import format, retention
from ..core.change import Change, Found, Retention, Rewritten, apply
from ..core.retention import Horizon, Policy, horizon_of
from ..core.snapshot import RunRef, Snapshot
from ..errors import SnapshotExpiredError, StoreError, UsageError
from ..store import ObjectInfo
from .adopt import UNFINISHED
from .commit import commit
from .head import Head, read_object, while_readable
from .lookup import find_job
from .manifests import JOB_RUN, KEY_RUN, put_run
from .outcome import committed_or_raise
from .prepare import read_prepared
from .reach import Reach, Tell, collect
from .session import Session
from .spilling import newest_records

_TRIES = 20
# Who looks for foreign files: `look_for_foreign` in this process, or Spark's tasks.
Look = Callable[[Session, Horizon, frozenset[str], float | None, Tell], tuple[frozenset[str], frozenset[str]]]


def store_time(session: Session, head: Head, *, writing: bool) -> float:
    """The time by the store's own clock: of the one object that may be put anew. This machine's where the store tells none. [GC1]"""
    if writing:
        session.store.put(format.HINT, format.encode_hint(head.version))
        hint = next((info for info in session.store.list(format.HINT) if info.name == format.HINT), None)
        if hint is not None and hint.modified > 0:
            return hint.modified
    return session.env.now_us() / 1e6


def commit_decision(session: Session, policy: Policy, now_s: float, *, foreign: bool, look: Look, tell: Tell) -> Snapshot:
    """The newest head, in which the decision stands, by this commit or an earlier one. Chosen anew where others decide first. [GC3]"""
    for _ in range(_TRIES):
        head = session.open()
        tell("deciding what stays")
        try:
            with while_readable(session.store, head.version):
                change = _change(session, head, policy, now_s, foreign=foreign, writing=True, look=look, tell=tell)
        except SnapshotExpiredError:
            continue  # two other gcs went by, and took what this head lists
        if _changes_nothing(head.snapshot, _after(session, head, change), change.job):
            return head.snapshot
        outcome = commit(session, head, change)
        if outcome.committed:
            assert session.known is not None
            return session.known.snapshot
        choose_anew = outcome.conflict is not None and outcome.conflict.rule in ("condemned_file_is_live", "forgotten_keys_came_back")
        # Whether a decision landed that others went beyond is not asked for: theirs counts.
        if not choose_anew and session.open().snapshot.fence <= head.version:
            committed_or_raise(outcome, session.store.url)
    raise StoreError(f"{session.store.url}: other gcs decided first {_TRIES} times; nothing was deleted. Try again later.")


def foresee(session: Session, head: Head, policy: Policy, now_s: float, *, foreign: bool, look: Look, tell: Tell) -> Horizon:
    """How far the decision would go at this head; nothing is written. [GC5]"""
    change = _change(session, head, policy, now_s, foreign=foreign, writing=False, look=look, tell=tell)
    return msgspec.structs.replace(horizon_of(_after(session, head, change)), version=head.version)


def _change(session: Session, head: Head, policy: Policy, now_s: float, *, foreign: bool, writing: bool, look: Look, tell: Tell) -> Change:
    snapshot = head.snapshot
    job = session.new_job(head)
    times = _times(session, head)
    at_grace, at_keep_for = (_created_by(session, head, times, now_s - age_s) for age_s in (policy.grace_s, policy.keep_for_s))
    prepared = _young_prepared(session, head, now_s - policy.prepared_grace_s, below=at_grace)
    fence, expired = retention.choose(snapshot, policy, at_grace=at_grace, at_keep_for=at_keep_for, prepared=prepared)
    keys_from = min(_keys_from(session, snapshot, policy.keep_keys), fence)
    if keys_from and _is_rolled_back_above(session, head, fence):
        keys_from = 0  # the next gc forgets
    horizon = msgspec.structs.replace(horizon_of(snapshot), fence=fence, expired=expired)
    pending = frozenset(name for name, seen in snapshot.condemned.items() if seen is None)
    if foreign and UNFINISHED in snapshot.properties:
        raise UsageError(
            f"{session.store.url}: the adoption of this folder is unfinished, so no version lists its files yet, and they would count as "
            "foreign. Nothing was deleted: finish it with `adopt` first, or run gc without foreign."
        )
    condemned, gone = _foreign(session, horizon, pending, now_s - policy.grace_s, condemn=foreign, look=look, tell=tell)
    return Change(
        job=job,
        birth=head.version,
        operation="gc",
        retention=Retention(
            fence=fence,
            expired=expired,
            keys_from=keys_from,
            now_us=int(now_s * 1e6),
            condemned=condemned,
            gone=gone,
            key_runs=_rewritten(session, snapshot.key_runs, KEY_RUN, _newer(keys_from), job) if writing and keys_from else None,
            job_runs=_rewritten(session, snapshot.job_runs, JOB_RUN, _born_from(snapshot.fence), job) if writing else None,
        ),
    )


def _after(session: Session, head: Head, change: Change) -> Snapshot:
    """The snapshot as this commit alone would make it."""
    return apply(
        head.snapshot, change, Found(), parent_digest=head.digest, commit_id=change.job, now_us=session.env.now_us(), writer=session.writer
    )


def _changes_nothing(before: Snapshot, after: Snapshot, job: str) -> bool:
    names = ("fence", "expired", "tags", "keys", "key_runs", "job_runs", "condemned")
    return before.recent_jobs.keys() == after.recent_jobs.keys() - {job} and all(getattr(before, n) == getattr(after, n) for n in names)


def _times(session: Session, head: Head) -> list[tuple[int, float]]:
    """Each version from the oldest readable one on, and when its object was made, by the store's clock. One list."""
    found = session.store.list(format.VERSIONS, start_from=format.version_name(head.snapshot.expired))
    return [(version, info.modified) for info in found if (version := format.parse_version(info.name)) and version <= head.version]


def _created_by(session: Session, head: Head, times: list[tuple[int, float]], moment_s: float) -> int:
    """The highest version that was there at that moment, 0 where none surely was: by the store's clock, or where it says nothing by the
    times that the versions say themselves, which never decrease. [GC1] [CM14]"""
    if all(created_s > 0 for _, created_s in times):
        return retention.newest_by(times, moment_s)
    lowest = head.snapshot.expired
    low, high = lowest - 1, head.version  # the answer lies in [low, high]
    while low < high:
        middle = (low + high + 1) // 2
        each = read_object(session.store, middle)
        if each is not None and each.snapshot.committed_at <= moment_s * 1e6:
            low = middle
        else:
            high = middle - 1
    return low if low >= lowest else 0


def _young_prepared(session: Session, head: Head, since_s: float, *, below: int) -> list[int]:
    """The births of prepared jobs that nobody has decided, and that are younger than that, as far as they would hold the fence. [AB5]"""
    births = []
    for info in session.store.list(format.JOBS):
        job = format.job_of_handed(info.name)
        birth = _birth(job, head.snapshot)
        if info.name != format.prepared_name(job) or birth is None or not head.snapshot.fence <= birth < below:
            continue
        if _prepared_at(session, job, info) > since_s and find_job(session, head.snapshot, job)[0] is None:
            births.append(birth)
    return births


def _prepared_at(session: Session, job: str, info: ObjectInfo) -> float:
    if info.modified > 0:
        return info.modified
    prepared = read_prepared(session, job)
    return prepared.prepared_at / 1e6 if prepared is not None else 0.0


def _birth(job: str, snapshot: Snapshot) -> int | None:
    try:
        name = format.parse_job_id(job)
    except ValueError:
        return None
    return name.birth if name.table_id == snapshot.table_id else None


def _keys_from(session: Session, snapshot: Snapshot, keep_keys: int) -> int:
    """The version below which keys are forgotten. The runs are read only where there are too many keys. [KY4]"""
    if len(snapshot.keys) + sum(run.rows for run in snapshot.key_runs) <= keep_keys:
        return 0
    versions = {key: record.version for key, record in snapshot.keys.items()}
    for run in snapshot.key_runs:
        table = session.manifests.run(run, KEY_RUN)
        for key, version in zip(table.column("key").to_pylist(), table.column("version").to_pylist(), strict=True):
            versions[key] = max(version, versions.get(key, 0))
    return retention.oldest_key_kept(versions.values(), keep_keys)


def _is_rolled_back_above(session: Session, head: Head, fence: int) -> bool:
    """Whether a rollback may stand above the fence: keys that it brought back have old records, and a job that can still commit may have
    begun without them. One request per version, where there are keys to forget. [KY4]"""
    for version in range(head.version, fence, -1):
        each = head if version == head.version else read_object(session.store, version)
        if each is None or any(commit.restored is not None for commit in each.snapshot.commits):
            return True
    return False


def _newer(version: int) -> Callable[[pa.Table], pa.Array]:
    return lambda table: pc.greater_equal(table.column("version"), version)


def _born_from(fence: int) -> Callable[[pa.Table], pa.Array]:
    def is_born_from(job: str) -> bool:
        try:
            return format.parse_job_id(job).birth >= fence
        except ValueError:
            return True  # not ours to forget

    return lambda table: pa.array([is_born_from(job) for job in table.column("job").to_pylist()], pa.bool_())


def _rewritten(
    session: Session, runs: tuple[RunRef, ...], kind: pa.Schema, keep: Callable[[pa.Table], pa.Array], job: str
) -> Rewritten | None:
    """One run in the place of all that hold a row which is to be forgotten; None where none does. [KY4] [GC8] [OB11]"""
    old, kept = [], []
    for run in runs:
        table = session.manifests.run(run, kind)
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
    new = (put_run(session.store, columns, job=job, env=session.env),) if together.num_rows else ()
    return Rewritten(old=frozenset(old), new=new)


def _foreign(
    session: Session, horizon: Horizon, pending: frozenset[str], cut_s: float, *, condemn: bool, look: Look, tell: Tell
) -> tuple[frozenset[str], frozenset[str]]:
    """(foreign files to condemn, condemned ones that are gone). Nothing is listed where neither is asked for. [GC6]"""
    if not condemn and not pending:
        return frozenset(), frozenset()
    there, chosen = look(session, horizon, pending, cut_s if condemn else None, tell)
    return chosen - pending, pending - there


def look_for_foreign(
    session: Session, horizon: Horizon, pending: frozenset[str], cut_s: float | None, tell: Tell
) -> tuple[frozenset[str], frozenset[str]]:
    """(those of `pending` that are there, foreign files to condemn): none where cut_s is None. Two lists of everything. [GC6]

    Condemned is what no readable version lists, is older than the grace period for sure, and lies in no other table, up to 10,000.
    """
    there, inner = set[str](), set[str]()
    for info in session.store.list(""):
        if info.name in pending:
            there.add(info.name)
        if root := retention.inner_root(info.name):
            inner.add(root)
    reach = collect(session, horizon, tell, Reach()) if cut_s is not None else None
    if cut_s is None or reach is None:  # where another gc goes further at this moment, this one condemns nothing
        return frozenset(there), frozenset()
    chosen: set[str] = set()
    for info in session.store.list(""):
        if is_to_condemn(info, horizon, reach.__contains__, cut_s, inner):
            chosen.add(info.name)
        if len(chosen) >= retention.MAX_CONDEMNED:
            break
    return frozenset(there), frozenset(chosen)


def is_to_condemn(info: ObjectInfo, horizon: Horizon, is_reached: Callable[[str], bool], cut_s: float, inner: Set[str]) -> bool:
    """Whether an object is foreign, old, and no part of another table. One that is condemned already is not. inner: their roots. [GC6]"""
    verdict = retention.classify(info.name, horizon, is_reached, is_old=False)
    if verdict.kind != "foreign" or not 0 < info.modified <= cut_s or not retention.is_condemnable(info.name):
        return False
    return not any(info.name.startswith(root) for root in inner)
