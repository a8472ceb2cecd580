"""The only commit loop: contend for head+1 with a conditional create, rebase on the winner, count only what stands. [CM1]-[CM8] [CM19]

Not here: the rules (core.conflict), the next snapshot (core.change), how a job gathers its change (engine.job), what is carried for
others (engine.intents).
"""

from __future__ import annotations

import contextlib
import logging
from typing import Literal

import msgspec

from ..core import format, intent
from ..core.change import Change, Found, apply, create
from ..core.conflict import Conflict, find_conflict
from ..core.intent import Carried
from ..core.retention import writer_of
from ..core.schema import Schema
from ..core.snapshot import KeyRecord, Snapshot
from ..core.stream import held, judge, record_of
from ..errors import (
    CorruptMetadataError,
    ManifestCommitError,
    StoreError,
    StoreUnclearError,
    TableNotFoundError,
    UnsafeStoreError,
    UnsupportedFormatError,
)
from .figures import Meter
from .head import Head, list_above, look_above, newest_above, open_head, read_object
from .intents import Helping
from .lookup import find_job, find_key
from .outcome import Outcome
from .session import Session
from .spilling import Spiller
from .survey import find_winners, survey

LOG = logging.getLogger("manifestcommit.jobs")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a commit tries. attempts: versions contended for; lost_alone: of them lost before it asks for help where nobody else does;
    unclear_tries: puts of the same bytes; *_s: seconds. [CM8] [CM19]

    The pauses double up to the longest: between versions they let others pass, after unclear answers they let the store recover.
    """

    attempts: int = 1000
    lost_alone: int = 2
    first_pause_s: float = 0.005
    longest_pause_s: float = 0.5
    unclear_tries: int = 10
    first_unclear_pause_s: float = 0.1
    longest_unclear_pause_s: float = 8.0


DEFAULT_LIMITS = Limits()


def commit(
    session: Session,
    head: Head,
    change: Change,
    limits: Limits | None = None,
    *,
    shared: bool = False,
    publishing: bool = True,
    published: bool = False,
    meter: Meter | None = None,
) -> Outcome:
    """Commit the change once, whatever else commits beside it, or say why not. [CM1]-[CM8] [CM19] [CM21]

    shared: whether another process may commit the same job, or have tried to; publishing: whether others may be asked to carry it,
    published: whether they have been; meter: what measures this call, if not one of its own.

    One create, one list and one put of the hint if nobody is in the way and nothing spills. A crash at any point leaves the
    table at its old state or at its new one.
    """
    limits = limits or DEFAULT_LIMITS
    meter = meter or session.meter(change.job, change.operation, change.summary, "second" if shared else "both")
    helping = Helping(session, change.job, may_publish=publishing and not shared, is_published=published)
    try:
        outcome = _contest(session, head, change, limits, shared, meter, helping)
        if helping.is_published:
            outcome = _decided(session, outcome, limits)
    except Exception as error:
        if not helping.is_published or isinstance(error, TableNotFoundError):
            meter.end("failed")
            raise
        LOG.debug("%r: %s failed, and others may still commit it", session.store.url, change.job, exc_info=error)
        outcome = Outcome(kind="unknown", job_id=change.job, reason=f"others may still commit it for this job, which failed: {error}")
    if outcome.kind != "unknown":
        helping.retract()
    return measured(outcome, meter, shared=shared)


def measured(outcome: Outcome, meter: Meter, *, shared: bool = False) -> Outcome:
    """The outcome with its figures, which are reported. [OB10]"""
    rule = outcome.conflict.rule if outcome.conflict else ""
    return msgspec.structs.replace(outcome, figures=meter.end(outcome.kind, version=outcome.version, rule=rule, shared=shared))


def enter_given_up(session: Session, job: str, limits: Limits | None = None) -> Outcome:
    """Commit that a job which others can finish never commits, or learn that it has: one create decides. [AB4] [CM21]

    The outcome is of that job: aborted, committed, fenced; a conflict where nothing could be decided for all the others who commit.
    """
    while True:
        head = session.open()
        _check_table(session, head.snapshot, job)
        state, version = find_job(session, head.snapshot, job)
        if state is not None:
            return Outcome(kind="committed" if state == "committed" else "aborted", job_id=job, version=version)
        if _birth(job) < head.snapshot.fence:
            return fenced_outcome(session, head, job)
        own = session.new_job(head)
        outcome = commit(session, head, Change(job=own, birth=head.version, operation="give_up", gives_up=job), limits)
        if outcome.committed:
            return Outcome(kind="aborted", job_id=job, attempts=outcome.attempts)
        overtaken = outcome.kind == "fenced" or (outcome.conflict is not None and outcome.conflict.rule == "job_is_committed")
        if not overtaken:
            return msgspec.structs.replace(outcome, job_id=job)


def _decided(session: Session, outcome: Outcome, limits: Limits) -> Outcome:
    """What may be told of a job whose intent others may carry: nothing but commits before a head holds it as given up. [CM21]"""
    if outcome.kind not in ("conflict", "key_reused", "already_committed"):
        return outcome  # that it is committed, given up or fenced is in a head; where it is not known, nothing is to be decided
    found = enter_given_up(session, outcome.job_id, limits)
    if found.kind in ("aborted", "fenced"):
        return outcome
    if found.kind == "committed":
        return msgspec.structs.replace(found, attempts=outcome.attempts)
    reason = found.reason or "others won every version in which it was to be given up"
    return Outcome(kind="unknown", job_id=outcome.job_id, attempts=outcome.attempts, reason=f"others may still commit it: {reason}")


def _contest(session: Session, head: Head, change: Change, limits: Limits, shared: bool, meter: Meter, helping: Helping) -> Outcome:
    session.prove(head.snapshot.proven)
    spiller = Spiller(session, change.job)
    change = spiller.stage(change)
    seen: dict[int, Head] = {}
    creates, fresh = 0, False
    while creates < limits.attempts:
        try:
            settled = settled_outcome(session, head, change, sent=shared or creates > 0 or helping.is_published)
            if settled is not None:
                session.known = head
                return msgspec.structs.replace(settled, attempts=creates)
            found = survey(session, head, change)
            conflict = find_conflict(head.snapshot, change, find_winners(session, head, change, seen), found)
            if conflict is not None and not fresh:
                # A known head may be old news: what is in the way there may be out of the way by now, such as a gap that was closed.
                head, fresh = newest_above(session.store, head.version, head) or head, True
                continue
            if conflict is not None:
                session.known = head
                return Outcome(kind="conflict", job_id=change.job, conflict=conflict, attempts=creates)
            if not creates and helping.ask_first(head.snapshot, change, meter.summary()):
                head, fresh = _wait_for_turn(session, head, helping, limits), True
                continue
            session.tally.attempts += 1
            told = msgspec.structs.replace(change, summary=meter.summary())
            snapshot, data = _next_version(session, head, told, found, spiller, helping)
        except CorruptMetadataError:
            # What a head lists that was known for long, and the versions since the birth, may be gone because they are expired; what this
            # job has written, because it is fenced. Where `expired` is above the birth, so is the fence.
            newest = newest_above(session.store, head.version, head)
            if newest is None or newest.version == head.version or newest.snapshot.fence <= change.birth:
                raise
            head, fresh = newest, True
            continue
        creates += 1
        verdict, reason, winner = _contend(session, snapshot, data, limits)
        meter.tried(snapshot.commits[-1].summary, is_mine=verdict == "mine")
        if verdict == "unknown":
            return Outcome(kind="unknown", job_id=change.job, attempts=creates, reason=reason)
        if verdict == "mine":
            outcome, newest = _won(session, head, Head(snapshot=snapshot, digest=format.digest(data)), helping)
            if outcome is not None:
                return msgspec.structs.replace(outcome, attempts=creates)
        else:
            session.tally.conflicts += 1
            LOG.debug("%r: another job won version %d, for which %s contended", session.store.url, snapshot.version, change.job)
            if creates >= limits.lost_alone:
                helping.publish(change, meter.summary())
            # Wait first, then look: what was read before a pause is old by its end, and would lose again. Who has asked for help is
            # in a queue, which spaces its creates better than any pause.
            tried = 0 if helping.is_published else creates
            session.env.sleep(_pause(session, tried, limits.first_pause_s, limits.longest_pause_s))
            newest = _look(session, head, helping, winner)
        if helping.is_crowded(newest.snapshot):
            helping.publish(change, meter.summary())
        head, fresh = _wait_for_turn(session, newest, helping, limits), True
    contention = Conflict(rule="contention", mine="wants to commit", winner=f"others won {limits.attempts} times in a row")
    return Outcome(kind="conflict", job_id=change.job, conflict=contention, attempts=limits.attempts)


def _next_version(session: Session, head: Head, change: Change, found: Found, spiller: Spiller, helping: Helping) -> tuple[Snapshot, bytes]:
    """The snapshot to be created, with what it carries for others, and its bytes. Where that cannot be made, without them. [CM17] [CM20]"""
    for carried in (helping.carry(head.snapshot, change, found), Carried(snapshot=head.snapshot)):
        made = apply(
            carried.snapshot,
            change,
            found,
            parent_digest=head.digest,
            commit_id=f"{change.job}.{session.env.randomness(8).hex()}",
            now_us=session.env.now_us(),
            writer=session.writer,
            store=session.store.identity,
        )
        try:
            snapshot = spiller.settle(intent.complete(carried, made, change), change.merge_manifests)
            return snapshot, format.encode_snapshot(snapshot)
        except (ManifestCommitError, ValueError, TypeError, OverflowError) as error:  # as pyarrow's errors of values are
            if not carried.commits:
                raise
            LOG.warning("%r: %s carries nothing for others this time: %s", session.store.url, change.job, error)
    raise AssertionError("unreachable")


def create_table(
    session: Session,
    *,
    schema: Schema | None,
    partition_by: tuple[int, ...],
    properties: dict[str, str],
    provisional: bool = False,
) -> Head:
    """Version 1, by this call or by whoever won the race for it: the loser joins. [CM13]"""
    session.prove(())
    table_id = session.env.randomness(8).hex()
    job = format.job_id(1, table_id, session.env.randomness(16))
    snapshot = create(
        table_id=table_id,
        job=job,
        commit_id=f"{job}.{session.env.randomness(8).hex()}",
        schema=schema,
        partition_by=partition_by,
        properties=properties,
        provisional=provisional,
        now_us=session.env.now_us(),
        writer=session.writer,
        store=session.store.identity,
    )
    data = format.encode_snapshot(snapshot)
    verdict, reason, _ = _contend(session, snapshot, data, DEFAULT_LIMITS)
    if verdict == "unknown":
        raise StoreUnclearError(f"{session.store.url}: it is not known whether the table was created: {reason}. Trying again is safe.")
    if verdict == "mine":
        _put_hint(session, 1)
    # Versions never restart at a root: an object of version 1 that could be created says nothing if later ones stand above it.
    session.known = open_head(session.store)
    return session.known


def settled_outcome(session: Session, head: Head, change: Change, *, sent: bool) -> Outcome | None:
    """What the head already says of this job or its key; None: it may contend. [CM1] [CM2] [KY2] [KY3]"""
    snapshot = head.snapshot
    _check_table(session, snapshot, change.job)
    # Before a create was sent, no one but the head itself can know of the job: the runs need not be asked.
    state, version = find_job(session, snapshot, change.job, runs=sent)
    if state == "given_up":
        return Outcome(kind="aborted", job_id=change.job)
    if state == "committed":
        return Outcome(kind="committed", job_id=change.job, version=version)
    record = find_key(session, snapshot, change.key) if change.key is not None else None
    if record is not None:
        return key_outcome(change, record)
    if change.stream is not None and (batch := _batch_outcome(snapshot, change)) is not None:
        return batch
    if change.birth >= snapshot.fence and all(_birth(job) >= snapshot.fence for job in _jobs_listed(change)):
        return None
    return fenced_outcome(session, head, change.job) if sent else Outcome(kind="fenced", job_id=change.job)


def fenced_outcome(session: Session, head: Head, job: str) -> Outcome:
    """Of a job that may have sent a create and has no record any more: only the whole history since its birth can rule it out. [CM2]"""
    since, carrier = _birth(job) + 1, None
    for version in range(since, head.version + 1):
        # An object below `expired` may be one that this very job brought back after gc had deleted the version.
        found = read_object(session.store, version) if version >= head.snapshot.expired else None
        if found is None:
            return Outcome(kind="unknown", job_id=job, reason=f"version {version}, which may carry it, is gone")
        if any(each.job == job for each in found.snapshot.commits):
            carrier = version
            break
    # They may have expired since the head was read, been deleted, and one of them brought back.
    newest = newest_above(session.store, head.version, head)
    if newest is None or newest.snapshot.expired > since:
        return Outcome(kind="unknown", job_id=job, reason=f"versions from {since} on, which may carry it, expired while they were read")
    return Outcome(kind="fenced", job_id=job) if carrier is None else Outcome(kind="committed", job_id=job, version=carrier)


def key_outcome(change: Change, record: KeyRecord) -> Outcome:
    """The same key again: the first version, if the same was declared; otherwise the key was reused. [KY2] [KY3]"""
    if record.digest == change.declared:
        return Outcome(kind="already_committed", job_id=change.job, version=record.version)
    reason = (
        f"the key {change.key!r} was committed at version {record.version} with another declaration (mode, partitions, watermark ranges or "
        "fingerprint differ); nothing was committed now. Use the same declaration for a rerun, or another key for other work."
    )
    return Outcome(kind="key_reused", job_id=change.job, version=record.version, reason=reason)


def _batch_outcome(snapshot: Snapshot, change: Change) -> Outcome | None:
    """What the table's record of a streaming query says of this batch; None: it may be committed. [KY6]"""
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
            f"the table holds {held(record)} of query {record.query} (version {record.version}), and this is batch "
            f"{mine.batch}: its checkpoint is older than the table, such as one restored from a backup, or another driver has gone on with "
            "it. Nothing was committed now. Start a new query, with a new checkpoint and key, from where the table stands."
        )
        return Outcome(kind="key_reused", job_id=change.job, version=record.version, reason=reason)
    reason = (
        f"under the key {mine.name!r} the table holds {held(record)} of query {record.query} (version {record.version}), and "
        f"this is batch {mine.batch} of query {mine.query}: another query, or the same one without its checkpoint. Nothing was committed "
        "now. Start it with the old checkpoint, or, if its input is not in the table yet, under another key."
    )
    return Outcome(kind="key_reused", job_id=change.job, version=record.version, reason=reason)


def _contend(
    session: Session, snapshot: Snapshot, data: bytes, limits: Limits
) -> tuple[Literal["mine", "lost", "unknown"], str, Head | None]:
    """Create the version's object, or learn who did. After an unclear answer only the SAME bytes are put again. [CM3] [CM4] [CM6]

    The verdict, why it is not known, and the winner where there was one to read.
    """
    name, commit_id = format.version_name(snapshot.version), snapshot.commits[-1].commit_id
    reason = ""
    for tried in range(limits.unclear_tries):
        session.tally.resent += tried > 0
        try:
            if session.store.put_if_absent(name, data):
                return "mine", "", None
        except StoreUnclearError as error:
            session.tally.unknowns += 1
            reason = str(error)
        except UnsafeStoreError as error:
            # It was proved, and is another store by now: what it did with this create no one can say, and once more is too often.
            return "unknown", str(error), None
        except StoreError as error:
            if not reason:
                raise  # refused before anything was sent
            reason = f"{reason}; then {error}"
        else:
            # Taken; perhaps by this very call, if something below retried it by itself.
            try:
                winner = read_object(session.store, snapshot.version)
            except (CorruptMetadataError, UnsupportedFormatError) as error:
                if not reason:
                    raise  # someone else's, and damaged
                reason = f"{reason}; then {error}"
            except StoreError as error:
                reason = str(error)
            else:
                # A winner that is expired already, or that someone else created for this job, is seen in the head.
                is_mine = winner is not None and any(each.commit_id == commit_id for each in winner.snapshot.commits)
                return ("mine", "", None) if is_mine else ("lost", "", winner)
        if tried + 1 < limits.unclear_tries:
            session.env.sleep(_pause(session, tried, limits.first_unclear_pause_s, limits.longest_unclear_pause_s))
    return "unknown", reason, None


def _wait_for_turn(session: Session, head: Head, helping: Helping, limits: Limits) -> Head:
    """The newest head for sure, after those who go before this job had time to carry it along. [CM20]"""
    version = helping.wait_for_turn(head, limits.first_pause_s, limits.longest_pause_s)
    return head if version == head.version else _look(session, head, helping, read_object(session.store, version) if version else None)


def _won(session: Session, base: Head, mine: Head, helping: Helping) -> tuple[Outcome | None, Head]:
    """What a create that was this job's own has come to, and the newest head; None: it does not count, contend again. [CM5] [CM7] [CM22]"""
    job = mine.snapshot.commits[-1].job
    try:
        counted, newest = _count(session, base, mine, helping)
    except (StoreError, CorruptMetadataError, UnsupportedFormatError) as error:
        return Outcome(kind="unknown", job_id=job, reason=f"it was created, but could not be counted: {error}"), base
    if counted is None:
        return None, newest
    session.known = newest
    if counted == mine.version:
        helping.settled(mine.snapshot)
    _put_hint(session, counted)
    return Outcome(kind="committed", job_id=job, version=counted), newest


def _count(session: Session, base: Head, mine: Head, helping: Helping) -> tuple[int | None, Head]:
    """The version that counts as this job's, if one does, and the newest head: a create counts only by what stands above it. [CM5]"""
    versions = list_above(session.store, base.version).versions
    if base.version not in versions and (not versions or versions[-1] <= mine.version):
        raise _removed(session, base, mine.version)
    if versions[-1] == mine.version:
        return mine.version, mine
    newest = _look(session, base, helping, None)
    if newest.version < mine.version:
        raise StoreError(f"version {mine.version} is gone; is the table being removed?")
    state, version = find_job(session, newest.snapshot, mine.snapshot.commits[-1].job)
    if state == "committed":
        return version, newest  # not of necessity mine: that may be one that was deleted, and others carried the job before
    return (mine.version if mine.version >= newest.snapshot.expired else None), newest


def _look(session: Session, base: Head, helping: Helping, got: Head | None) -> Head:
    """The newest head, and the intents beside it. got: what was got from the base on before this call, if anything. [RD1] [CM20]"""
    newest, intents = look_above(session.store, base.version, got)
    if newest is None:
        raise _removed(session, base, None)
    helping.saw(intents)
    return newest


def _removed(session: Session, base: Head, created: int | None) -> Exception:
    """The table is told to be removed only if it is: a list that is no list must not make anyone delete what stands. [CM5]"""
    url = session.store.url
    if read_object(session.store, base.version) is not None:
        return StoreError(f"{url}: the store's list does not show version {base.version}, which is there")
    if created is None:
        return TableNotFoundError(f"the table at {url} was removed while this job committed")
    return TableNotFoundError(
        f"the table at {url} was removed while this job committed. Version {created}, which this job created, may stand "
        "there alone and list files that are gone: remove it, and run the job again"
    )


def _check_table(session: Session, snapshot: Snapshot, job: str) -> None:
    """A job commits to its own table only. [LY10]"""
    if format.parse_job_id(job).table_id != snapshot.table_id:
        raise TableNotFoundError(
            f"the table at {session.store.url} was removed and another one stands there now; nothing of this job "
            "was committed. Run it again."
        )


def _put_hint(session: Session, version: int) -> None:
    with contextlib.suppress(StoreError):  # it only shortens a LIST [CM7]
        session.store.put(format.HINT, format.encode_hint(version))


def _pause(session: Session, tried: int, first_s: float, longest_s: float) -> float:
    return min(longest_s, first_s * 2.0 ** min(tried, 20)) * session.env.jitter()


def _jobs_listed(change: Change) -> list[str]:
    """The jobs that wrote what the change lists anew: adopted work may be older than the job, and so may a file that was in the table
    before, which gc takes by the job in its name whoever lists it. [CM2] [GC5]"""
    table_id = format.parse_job_id(change.job).table_id
    jobs = [entry.job for entry in change.add] + [format.job_of_manifest(ref.path) for ref in change.add_manifests]
    writers = [writer_of(entry.path, table_id) for entry in change.add]
    return list(dict.fromkeys([*jobs, *(job for job in writers if job is not None)]))


def _birth(job: str) -> int:
    return format.parse_job_id(job).birth
