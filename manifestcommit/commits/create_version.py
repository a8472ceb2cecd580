"""One version's object: created by this job, or by another. [CM3] [CM4] [CM6] [CM13]

A create has one of three outcomes: this job created the version; it lost the race, because another
job created it first; or the response was lost, which is resolved here by a re-put and a read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ..errors import (
    CorruptMetadataError,
    StoreError,
    StoreUnclearError,
    TableNotFoundError,
    UnsafeStoreError,
    UnsupportedFormatError,
)
from ..format import codec, object_names
from ..format.change import Change, Position, Write, is_declared
from ..format.fields import Schema
from ..format.snapshot import Constraint, KeyRecord, Snapshot
from ..log.table_context import (
    TableContext,
    export_after_commit,
    find_key,
    find_key_at,
    removed,
)
from ..log.version_chain import (
    Head,
    drop_marker,
    newest_above,
    open_head,
    put_hint,
    put_marker,
    read_object,
)
from ..protocol.apply import create
from ..protocol.change_feed import held, judge, record_of
from ..protocol.conflict import Conflict
from ..runtime.environment import Limits, pause
from ..runtime.outcome import Outcome

# What a table already holds of a job, of its key, or of its batch of a streaming query: the
# outcome without another create.


def settled_outcome(ctx: TableContext, head: Head, change: Change, *, sent: bool) -> Outcome | None:
    """What the head says already of this job or key; None: nothing. [CM1] [CM2] [KY2] [KY3]"""
    snapshot = head.snapshot
    check_table(ctx, snapshot, change.job)
    # Before a create was sent, no one but the head itself can know of the job: the runs need not be
    # asked.
    state, version = ctx.manifests.job(snapshot, change.job, runs=sent)
    if state is not None:
        return Outcome(kind=state, job_id=change.job, version=version)
    done = _work_outcome(ctx, snapshot, change) if isinstance(change, Write) else None
    # Behind the fence its own record may be gone: it may have committed, and others have gone on
    # from there.
    if done is not None and not (
        done.kind == "key_reused" and sent and change.birth < snapshot.fence
    ):
        return done
    if not is_fenced(snapshot, change):
        return None
    return (
        fenced_outcome(ctx, head, change.job) if sent else Outcome(kind="fenced", job_id=change.job)
    )


def is_fenced(snapshot: Snapshot, change: Change) -> bool:
    """Whether the change, or what it lists, is of before the fence: it cannot commit. [CM2]"""
    return change.since < snapshot.fence or any(
        birth_of(job) < snapshot.fence
        for job in _jobs_listed(change, (snapshot.table_id, *snapshot.cloned))
    )


def _work_outcome(ctx: TableContext, snapshot: Snapshot, change: Write) -> Outcome | None:
    record = find_key(ctx, snapshot, change.key) if change.key is not None else None
    if record is not None:
        return key_outcome(change, record)
    return batch_outcome(snapshot, change) if change.stream is not None else None


def fenced_outcome(ctx: TableContext, head: Head, job: str) -> Outcome:
    """Of a job that may have sent a create: only the history since its birth rules it out. [CM2]"""
    since, carrier = birth_of(job) + 1, None
    for version in range(since, head.version + 1):
        if version in head.snapshot.void:
            continue  # no job has committed with it, whoever left it [MT8] [LY15]
        # An object below `expired` may be one that this very job brought back after gc had deleted
        # the version.
        found = read_object(ctx.store, version) if version >= head.snapshot.expired else None
        if found is None:
            reason = f"it has expired, and version {version}, which may carry it, is gone"
            return Outcome(kind="unknown", job_id=job, reason=reason)
        if any(each.job == job for each in found.snapshot.commits):
            carrier = version
            break
    # They may have expired since the head was read, been deleted, and one of them brought back.
    newest = newest_above(ctx.store, head.version, head)
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


def found_outcome(ctx: TableContext, head: Head, change: Write) -> Outcome:
    """The outcome of a job that holds no work, since its key was committed when it began: what the
    newest head says of the key. [KY8]

    head: one that was read before.
    """
    newest = newest_above(ctx.store, head.version, head)
    if newest is None:
        raise removed(ctx, head, None)
    check_table(ctx, newest.snapshot, change.job)
    newest, record = find_key_at(ctx, newest, str(change.key))
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
    """The same key again: the first version, if declared the same; else reused. [KY2] [KY3]"""
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
    """What the table's record of a query says of this batch; None: it may commit. [KY6]"""
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


def check_table(ctx: TableContext, snapshot: Snapshot, job: str) -> None:
    """A job commits to its own table only. [LY10]"""
    if object_names.parse_job_id(job).table_id != snapshot.table_id:
        raise TableNotFoundError(
            f"the table at {ctx.store.url} was removed and another one is there now; "
            "nothing of this job "
            "was committed. Run it again."
        )


def birth_of(job: str) -> int:
    return object_names.parse_job_id(job).birth


def _jobs_listed(change: Change, own: Sequence[str]) -> list[str]:
    """The jobs that wrote what the change newly lists: adopted work may be older than the job, and
    so may a file that was in the table before, which gc takes by the job in its name whichever
    job lists it. [CM2] [GC5]"""
    if not isinstance(change, Write):
        return []
    jobs = [entry.job for entry in change.add]
    jobs += [object_names.job_of_manifest(ref.path) for ref in change.add_manifests]
    writers = [object_names.writer_of(entry.path, own) for entry in change.add]
    return list(dict.fromkeys([*jobs, *(job for job in writers if job is not None)]))


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
    verdict, reason, _ = create_version(ctx, snapshot, data, ctx.tuning.limits)
    if verdict == "unknown":
        raise StoreUnclearError(
            f"{ctx.store.url}: it is not known whether the table was created: {reason}. "
            "Trying again is safe."
        )
    if verdict == "mine":
        put_hint(ctx.store, 1, codec.digest(data))
    # Versions never restart at a root: an object of version 1 that could be created says nothing if
    # later ones are above it.
    ctx.known = open_head(ctx.store)
    if ctx.known.snapshot.table_id != table_id:
        drop_marker(ctx.store, table_id)
    export_after_commit(ctx)
    return ctx.known


def create_version(
    ctx: TableContext, snapshot: Snapshot, data: bytes, limits: Limits
) -> tuple[Literal["mine", "lost", "unknown"], str, Head | None]:
    """Create the version's object, or learn who did. After an unclear answer only the SAME bytes
    are put again. [CM3] [CM4] [CM6]

    The verdict, why it is not known, and the winner where there was one to read.
    """
    name, commit_id = object_names.version_name(snapshot.version), snapshot.commits[-1].commit_id
    reason = ""
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
                is_mine = winner is not None and any(
                    each.commit_id == commit_id for each in winner.snapshot.commits
                )
                return ("mine", "", None) if is_mine else ("lost", "", winner)
        if tried + 1 < limits.unclear_tries:
            pause(ctx.env, tried, limits.first_unclear_pause_s, limits.longest_unclear_pause_s)
    return "unknown", reason, None
