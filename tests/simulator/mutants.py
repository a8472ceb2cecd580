"""The library with one safeguard taken out: what the simulator is for is to find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import msgspec

from manifestcommit.core import change as core_change
from manifestcommit.core import conflict, format, intent, retention
from manifestcommit.core.change import Retention
from manifestcommit.core.retention import Horizon, Policy
from manifestcommit.core.snapshot import Snapshot
from manifestcommit.engine import commit, gc, intents, job, reach
from manifestcommit.engine import head as engine_head
from manifestcommit.engine.head import Head, read_object
from manifestcommit.engine.outcome import Outcome
from manifestcommit.engine.session import Session
from manifestcommit.errors import StoreError, StoreUnclearError
from manifestcommit.testing import workers


@contextmanager
def patched(*patches: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


def no_fence() -> Any:
    """A job that was born below the fence commits. [CM2]"""
    real = commit.settled_outcome

    def settled(session: Session, head: Head, change: Any, *, sent: bool) -> Outcome | None:
        outcome = real(session, head, change, sent=sent)
        return None if outcome is not None and outcome.kind in ("fenced", "unknown") else outcome

    return mock.patch.object(commit, "settled_outcome", settled)


def fenced_too_early() -> Any:
    """A job that was born at the fence is told that it is fenced. No table is the worse for it: only who was told of it is. [CM2]"""
    real = commit.settled_outcome

    def settled(session: Session, head: Head, change: Any, *, sent: bool) -> Outcome | None:
        above = msgspec.structs.replace(head.snapshot, fence=head.snapshot.fence + (head.snapshot.fence > 1))
        return real(session, msgspec.structs.replace(head, snapshot=above), change, sent=sent)

    return mock.patch.object(commit, "settled_outcome", settled)


def no_look_above() -> Any:
    """A create counts as soon as it is answered. [CM5]"""
    real = commit._look_above

    def look(session: Session, base: Head, mine: Head, helping: Any, *, won: bool) -> tuple[int | None, Head]:
        return (mine.version, mine) if won else real(session, base, mine, helping, won=won)

    return mock.patch.object(commit, "_look_above", look)


def existence_decides() -> Any:
    """After an unclear answer it is looked whether the version is there; if it is not, the create has failed. [CM6]"""
    real = commit._contend

    def contend(session: Session, snapshot: Snapshot, data: bytes, limits: Any) -> Any:
        verdict, reason = real(session, snapshot, data, msgspec.structs.replace(limits, unclear_tries=1))
        if verdict != "unknown":
            return verdict, reason
        winner = read_object(session.store, snapshot.version)
        if winner is None:
            raise StoreError(f"version {snapshot.version} was not created: {reason}")
        return ("mine" if winner.snapshot.commits[-1].commit_id == snapshot.commits[-1].commit_id else "lost"), ""

    return mock.patch.object(commit, "_contend", contend)


def unclear_is_lost() -> Any:
    """After an unclear answer the version is taken for somebody else's, and the change for not committed where it conflicts now. [CM6]"""
    real = Session.__init__

    def init(self: Session, store: Any, env: Any = None) -> None:
        real(self, _Sure(store), env)

    return mock.patch.object(Session, "__init__", init)


class _Sure:
    """A store that takes no answer for a refusal."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        try:
            return bool(self._inner.put_if_absent(name, data))
        except StoreUnclearError as error:
            raise StoreError(str(error)) from None


def gc_forgets_tags() -> Any:
    """gc reads the versions from `expired` on only. [GC4]"""
    return mock.patch.object(Horizon, "readable", property(lambda self: tuple(range(self.expired, self.version + 1))))


def gc_deletes_first() -> Any:
    """gc deletes by a decision that no version holds. [GC3]"""

    def decide(session: Session, policy: Policy, now_s: float, *, foreign: bool, tell: Any) -> Snapshot:
        head = session.open()
        horizon = gc.foresee(session, head, policy, now_s, foreign=foreign, tell=tell)
        return msgspec.structs.replace(head.snapshot, fence=horizon.fence, expired=horizon.expired)

    return mock.patch.object(gc, "commit_decision", decide)


def gc_looks_once() -> Any:
    """gc passes over versions that are gone, and does not read the head again. [GC4]"""

    def collect(session: Session, horizon: Horizon, tell: Any) -> reach.Reach:
        found = reach.Reach()
        for version in horizon.readable:
            if (head := read_object(session.store, version)) is not None:
                found.take(session, head.snapshot)
        found.read_manifests(session, tell)
        return found

    return mock.patch.object(gc, "collect", collect)


def gc_trusts_the_first_reading() -> Any:
    """gc does not ask the head whether another gc went further meanwhile. [GC4]"""
    return mock.patch.object(reach, "is_readable", return_value=True)


def no_key() -> Any:
    """The key is not looked up before a create. [CM1]"""
    return mock.patch.object(commit, "find_key", return_value=None)


def without(rule: str) -> Callable[[], Any]:
    """One rule less."""
    return lambda: mock.patch.object(conflict, "RULES", tuple(each for each in conflict.RULES if each.__name__ != rule))


def expired_above_fence() -> Any:
    """Versions stop being readable that a job which can still commit needs. [GC2]"""

    def choose(head: Snapshot, policy: Policy, *, at_grace: int, at_keep_for: int, prepared: Any = ()) -> tuple[int, int]:
        fence = max(head.fence, min(at_grace, head.version, *prepared))
        return fence, max(head.expired, min(head.version - policy.keep_versions + 1, at_keep_for))

    real = core_change._retained

    def retained(head: Snapshot, made: Snapshot, by: Retention) -> Snapshot:
        return msgspec.structs.replace(real(head, made, by), expired=max(head.expired, by.expired))

    return patched(mock.patch.object(retention, "choose", choose), mock.patch.object(core_change, "_retained", retained))


def unknown_deletes() -> Any:
    """A job whose outcome is unknown takes its files away. [CM6] [AB1]"""
    real = job.commit

    def committed(session: Session, head: Head, change: Any, *rest: Any, **options: Any) -> Outcome:
        outcome = real(session, head, change, *rest, **options)
        if outcome.kind == "unknown":
            session.store.delete([entry.path for entry in change.add])
        return outcome

    return mock.patch.object(job, "commit", committed)


def abort_deletes() -> Any:
    """Whoever gives a prepared job up takes its prepared object away at once. [AB1]"""
    real = workers.give_up

    def give_up(session: Session, job_id: str) -> Outcome:
        session.store.delete([format.prepared_name(job_id)])
        return real(session, job_id)

    return mock.patch.object(workers, "give_up", give_up)


def second_look_is_left_out() -> Any:
    """Reading an older version does not ask the head again. [RD3]"""

    def read_version(store: Any, head: Head, version: int) -> Head:
        engine_head._check_readable(store, head, version)
        found = read_object(store, version)
        if found is None:
            raise engine_head.missing_version(version)
        return found

    return mock.patch.object(workers, "read_version", read_version)


def rollback_restores_all() -> Any:
    """A rollback brings back whom the table knew, too. [CF13]"""
    real = core_change._rolled_back

    def rolled_back(head: Snapshot, by: Any) -> Snapshot:
        return msgspec.structs.replace(real(head, by), recent_jobs=by.target.recent_jobs)

    return mock.patch.object(core_change, "_rolled_back", rolled_back)


def intent_key_is_not_asked() -> Any:
    """A change is carried in spite of its key. [CM20]"""
    real = intent.applies

    def applies(snapshot: Snapshot, change: Any) -> bool:
        return real(snapshot, msgspec.structs.replace(change, key=None))

    return patched(mock.patch.object(intent, "applies", applies), mock.patch.object(intents, "find_key", return_value=None))


def intent_fence_is_not_asked() -> Any:
    """A change is carried although gc may take its files. [CM20]"""
    real = intent.may_wait
    return mock.patch.object(intent, "may_wait", lambda head, job: real(msgspec.structs.replace(head, fence=1), job))


def intent_job_is_not_asked() -> Any:
    """A change is carried although its job has committed or was given up. [CM20]"""
    real = intent.may_wait
    return patched(
        mock.patch.object(intent, "may_wait", lambda head, job: real(msgspec.structs.replace(head, recent_jobs={}), job)),
        mock.patch.object(intents, "find_job", return_value=(None, None)),
    )


def conflict_is_told_at_once() -> Any:
    """A job with a published intent tells a failure before a head holds it as given up. [CM21]"""
    return mock.patch.object(commit, "_decided", lambda session, outcome, limits: outcome)


def failure_is_told_at_once() -> Any:
    """A job with a published intent tells a failure of the store, as if nobody could commit it. [CM21]"""
    real = intents.Helping.publish

    def publish(self: Any, *given: Any) -> None:
        real(self, *given)
        self.is_published = False

    return mock.patch.object(intents.Helping, "publish", publish)


def carried_without_section_8() -> Any:
    """A change is carried whatever was committed since its birth. [CM20]"""
    return patched(
        mock.patch.object(intent, "find_conflict", return_value=None), mock.patch.object(intents, "find_conflict", return_value=None)
    )


# Safeguard -> (the library without it, the theme in which it is looked for).
MUTANTS: dict[str, tuple[Callable[[], Any], str]] = {
    "fence": (no_fence, "gc"),
    "fenced early": (fenced_too_early, "gc"),
    "look above": (no_look_above, "gc"),
    "existence decides": (existence_decides, "appends"),
    "unclear is lost": (unclear_is_lost, "appends"),
    "tags": (gc_forgets_tags, "tags"),
    "gc deletes first": (gc_deletes_first, "gc"),
    "gc looks once": (gc_looks_once, "gc"),
    "gc trusts": (gc_trusts_the_first_reading, "gc"),
    "key": (no_key, "appends"),
    "watermark": (without("watermark_misfits"), "appends"),
    "rollback": (without("rolled_back_over"), "back"),
    "serializable": (without("partition_was_touched"), "overwrites"),
    "rewind": (without("watermark_was_moved"), "back"),
    "tagged": (without("tagged_version_is_gone"), "tags"),
    "abort": (without("job_is_committed"), "phases"),
    "expired": (expired_above_fence, "gc"),
    "unknown deletes": (unknown_deletes, "everything"),
    "abort deletes": (abort_deletes, "phases"),
    "second look": (second_look_is_left_out, "gc"),
    "intent key": (intent_key_is_not_asked, "crowd"),
    "intent fence": (intent_fence_is_not_asked, "crowd"),
    "intent job": (intent_job_is_not_asked, "crowd"),
    "intent conflict": (carried_without_section_8, "crowd"),
    "conflict told": (conflict_is_told_at_once, "crowd"),
    "failure told": (failure_is_told_at_once, "crowd"),
    "rollback restores all": (rollback_restores_all, "back"),
}
