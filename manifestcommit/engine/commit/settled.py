"""What a table already holds of a job, of its key, or of its batch of a streaming query: the
outcome without another create. [CM1] [CM2] [KY2] [KY3] [KY6] [KY8]
"""

from __future__ import annotations

from ...core.commit.change import Change, Write, is_declared
from ...core.commit.conflict import Conflict
from ...core.commit.retention import writer_of
from ...core.commit.stream_batches import held, judge, record_of
from ...core.table import object_names
from ...core.table.snapshot import KeyRecord, Snapshot
from ...errors import TableNotFoundError
from ..metadata.job_and_key_lookup import find_job, find_key, find_key_at
from ..metadata.removed_table import removed
from ..metadata.table_context import TableContext
from ..metadata.version_chain import Head, newest_above, read_object
from ..runtime.outcome import Outcome


def settled_outcome(
    session: TableContext, head: Head, change: Change, *, sent: bool
) -> Outcome | None:
    """What the head already says of this job or its key; None: it may contend. [CM1] [CM2] [KY2]
    [KY3]"""
    snapshot = head.snapshot
    check_table(session, snapshot, change.job)
    # Before a create was sent, no one but the head itself can know of the job: the runs need not be
    # asked.
    state, version = find_job(session, snapshot, change.job, runs=sent)
    if state == "given_up":
        return Outcome(kind="aborted", job_id=change.job)
    if state == "committed":
        return Outcome(kind="committed", job_id=change.job, version=version)
    done = _work_outcome(session, snapshot, change) if isinstance(change, Write) else None
    # Behind the fence its own record may be gone: it may have committed, and others have gone on
    # from there.
    if done is not None and not (
        done.kind == "key_reused" and sent and change.birth < snapshot.fence
    ):
        return done
    if not is_fenced(snapshot, change):
        return None
    return (
        fenced_outcome(session, head, change.job)
        if sent
        else Outcome(kind="fenced", job_id=change.job)
    )


def is_fenced(snapshot: Snapshot, change: Change) -> bool:
    """Whether the change, or what it lists, is of before the fence: it cannot commit. [CM2]"""
    return change.since < snapshot.fence or any(
        birth_of(job) < snapshot.fence for job in _jobs_listed(change)
    )


def _work_outcome(session: TableContext, snapshot: Snapshot, change: Write) -> Outcome | None:
    record = find_key(session, snapshot, change.key) if change.key is not None else None
    if record is not None:
        return key_outcome(change, record)
    return batch_outcome(snapshot, change) if change.stream is not None else None


def fenced_outcome(session: TableContext, head: Head, job: str) -> Outcome:
    """Of a job that may have sent a create and has no record any more: only the whole history since
    its birth can rule it out. [CM2]"""
    since, carrier = birth_of(job) + 1, None
    for version in range(since, head.version + 1):
        # An object below `expired` may be one that this very job brought back after gc had deleted
        # the version.
        found = read_object(session.store, version) if version >= head.snapshot.expired else None
        if found is None:
            return Outcome(
                kind="unknown", job_id=job, reason=f"version {version}, which may carry it, is gone"
            )
        if version not in head.snapshot.void and any(
            each.job == job for each in found.snapshot.commits
        ):
            carrier = version
            break
    # They may have expired since the head was read, been deleted, and one of them brought back.
    newest = newest_above(session.store, head.version, head)
    if (
        newest is None
        or newest.snapshot.table_id != head.snapshot.table_id
        or newest.snapshot.expired > since
    ):
        return Outcome(
            kind="unknown",
            job_id=job,
            reason=f"versions from {since} on, which may carry it, expired while they were read",
        )
    return (
        Outcome(kind="fenced", job_id=job)
        if carrier is None
        else Outcome(kind="committed", job_id=job, version=carrier)
    )


def found_outcome(session: TableContext, head: Head, change: Write) -> Outcome:
    """The outcome of a job that holds no work, since its key was committed when it began: what the
    newest head says of the key. [KY8]

    head: one that was read before.
    """
    newest = newest_above(session.store, head.version, head)
    if newest is None:
        raise removed(session, head, None)
    check_table(session, newest.snapshot, change.job)
    newest, record = find_key_at(session, newest, str(change.key))
    if record is not None:
        return key_outcome(change, record)
    mine = f"found its key {change.key!r} committed when it began, and holds no rows"
    winner = (
        "the table does not record that key any more: a rewind or a rollback undid its work, or "
        "gc forgot the key"
    )
    return Outcome(
        kind="conflict",
        job_id=change.job,
        conflict=Conflict(rule="key_is_gone", mine=mine, winner=winner),
    )


def key_outcome(change: Write, record: KeyRecord) -> Outcome:
    """The same key again: the first version, if the same was declared; otherwise the key was
    reused. [KY2] [KY3]"""
    if is_declared(record.digest, change.declared):
        return Outcome(kind="already_committed", job_id=change.job, version=record.version)
    reason = (
        f"the key {change.key!r} was committed at version {record.version} with another "
        "declaration (mode, partitions, watermark ranges or "
        "fingerprint differ); nothing was committed now. Use the same declaration for a "
        "rerun, or none at all: put all of a block's work below `if not job.already_committed:`, "
        "or call skip() of a transaction. Use another key for other work."
    )
    return Outcome(kind="key_reused", job_id=change.job, version=record.version, reason=reason)


def batch_outcome(snapshot: Snapshot, change: Write) -> Outcome | None:
    """What the table's record of a streaming query says of this batch; None: it may be committed.
    [KY6]"""
    assert change.stream is not None
    record = record_of(snapshot.streams, change.stream)
    verdict = judge(record, change.stream)
    if record is None or verdict in ("next", "gap"):
        return None
    if verdict == "done":
        return Outcome(kind="already_committed", job_id=change.job, version=record.version)
    mine = change.stream
    if verdict == "behind":
        reason = (
            f"the table holds {held(record)} of query {record.query} (version "
            f"{record.version}), and this is batch "
            f"{mine.batch}: its checkpoint is older than the table, such as one restored "
            "from a backup, or another driver has gone on with "
            "it. Nothing was committed now. Start a new query, with a new checkpoint and "
            "key, from the table's current state."
        )
        return Outcome(kind="key_reused", job_id=change.job, version=record.version, reason=reason)
    reason = (
        f"under the key {mine.name!r} the table holds {held(record)} of query {record.query} "
        f"(version {record.version}), and "
        f"this is batch {mine.batch} of query {mine.query}: another query, or the same one "
        "without its checkpoint. Nothing was committed "
        "now. Start it with the old checkpoint, or, if its input is not in the table yet, "
        "under another key."
    )
    return Outcome(kind="key_reused", job_id=change.job, version=record.version, reason=reason)


def check_table(session: TableContext, snapshot: Snapshot, job: str) -> None:
    """A job commits to its own table only. [LY10]"""
    if object_names.parse_job_id(job).table_id != snapshot.table_id:
        raise TableNotFoundError(
            f"the table at {session.store.url} was removed and another one is there now; "
            "nothing of this job "
            "was committed. Run it again."
        )


def birth_of(job: str) -> int:
    return object_names.parse_job_id(job).birth


def _jobs_listed(change: Change) -> list[str]:
    """The jobs that wrote what the change newly lists: adopted work may be older than the job, and
    so may a file that was in the table before, which gc takes by the job in its name whichever
    job lists it. [CM2] [GC5]"""
    if not isinstance(change, Write):
        return []
    table_id = object_names.parse_job_id(change.job).table_id
    jobs = [entry.job for entry in change.add] + [
        object_names.job_of_manifest(ref.path) for ref in change.add_manifests
    ]
    writers = [writer_of(entry.path, table_id) for entry in change.add]
    return list(dict.fromkeys([*jobs, *(job for job in writers if job is not None)]))
