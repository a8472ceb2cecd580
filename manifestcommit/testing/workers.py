"""What an actor of a theme does: jobs of every kind over the real engine, each told to the oracle, and logged. [IV1]-[IV8]

Data files are some bytes with an entry that is made up: no rule of the protocol opens them.
Not here: who does what (themes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ..core import format
from ..core.manifest import Entry
from ..core.retention import Policy
from ..core.schema import Field, Schema
from ..core.watermark import Advance
from ..engine import gc
from ..engine.head import Head, read_version
from ..engine.job import Job
from ..engine.lineage import rewind
from ..engine.outcome import Outcome
from ..engine.prepare import commit_prepared, give_up, settle_prepared
from ..engine.recovery import Recovery, intake_of
from ..engine.rollback import rollback
from ..engine.session import Session
from ..engine.tags import tag, untag
from ..errors import (
    CommitConflictError,
    JobAbortedError,
    JobFencedError,
    KeyReusedError,
    OutcomeUnknownError,
    SnapshotExpiredError,
    StoreError,
    UsageError,
    VersionNotFoundError,
    WatermarkError,
)
from .history import History
from .oracle import Oracle
from .scheduler import Actor, Died, Scheduler
from .simulated_store import SimulatedStore, Space
from .steps import Declared
from .trace import Trace

SCHEMA = Schema(fields=(Field(id=1, name="id", type="long"), Field(id=2, name="day", type="string")))
DAYS: tuple[str | None, ...] = ("a b", None, "é%=+#'")
SOURCE = "topic: 0"
ADVANCING = 4  # keys with these numbers advance the source, each by one; others have nothing but their key to be told by
# What may happen to an operation where requests fail and others are faster. Anything else is a violation.
EXPECTED = (
    StoreError,
    OutcomeUnknownError,
    CommitConflictError,
    JobAbortedError,
    JobFencedError,
    KeyReusedError,
    WatermarkError,
    SnapshotExpiredError,
    VersionNotFoundError,
    UsageError,
)
_Result = TypeVar("_Result")


class World(msgspec.Struct, kw_only=True):
    """What the actors of a run share. prepared: ids of jobs that any of them may finish."""

    scheduler: Scheduler
    trace: Trace
    space: Space
    oracle: Oracle
    history: History
    prepared: list[str] = []


class Work(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job to be done. number: of its key, which says the rest of it, and what it advances, up to ADVANCING; None: without a key;
    replaces: "", "day", "all", "dynamic"."""

    number: int | None = None
    day: int = 0
    files: int = 1
    replaces: str = ""
    serializable: bool = False
    recoverable: bool = False

    @property
    def key(self) -> str | None:
        return None if self.number is None else f"k{self.number} %é"


class Worker:
    """An actor that works on the table, in one life after another."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world, self.actor = world, actor
        self._lives = self._asked = 0
        self.begin_life()

    def begin_life(self) -> None:
        """Nothing is remembered of an earlier life."""
        self._lives += 1
        self.actor.is_dead = False
        self.store = SimulatedStore(self._world.space, self.actor)
        self.session = Session(self.store, self.actor)

    def attempt(self, operation: str, arguments: dict[str, Any], work: Callable[[], _Result]) -> _Result | None:
        """One operation, logged: what it returns, or None where it failed as it may."""
        world = self._world
        record = world.history.begin(f"{self.actor.name}.{self._lives}", operation, world.scheduler.steps, arguments)
        world.trace.note(self.actor.name, f"{operation} {arguments or ''}")
        try:
            result = work()
        except Died:
            world.trace.note(self.actor.name, f"{operation} died")
            raise
        except EXPECTED as error:
            record.end, record.outcome = world.scheduler.steps, {"kind": "failed", "error": type(error).__name__}
            world.trace.note(self.actor.name, f"{operation}: {type(error).__name__}")
            return None
        record.end, record.outcome = world.scheduler.steps, _outcome(result)
        world.trace.note(self.actor.name, f"{operation}: {record.outcome}")
        return result

    # --- jobs ---------------------------------------------------------------------------------------------------------------

    def publish(self, work: Work) -> None:
        """One job from begin to outcome; where the store failed or did not say, it may be tried again."""
        self.attempt("publish", msgspec.to_builtins(work), lambda: self._publish(work))

    def _publish(self, work: Work) -> Outcome:
        job, told = self._written(work)
        try:
            outcome = job.commit()
        except StoreError as error:
            if not self._says("again"):
                if not told.shared:
                    self._world.oracle.told_not(told.job, f"not committed ({type(error).__name__})")
                raise
            outcome = job.commit_again()
        if outcome.kind == "unknown" and self._says("again"):
            outcome = job.commit_again()
        return self._settled(outcome, told)

    def prepare(self, work: Work) -> None:
        """One job's first phase: from its first request on others may finish it."""
        self.attempt("prepare", msgspec.to_builtins(work), lambda: self._prepare(work))

    def _prepare(self, work: Work) -> str:
        job, _ = self._written(work, shared=True)
        self._world.prepared.append(job.id)
        return job.prepare()

    def _written(self, work: Work, *, shared: bool = False) -> tuple[Job, Declared]:
        """The job with all that it is to commit, which is told to the oracle."""
        job = Job(self.session, key=work.key, fingerprint=work.key, recoverable=work.recoverable)
        advances: tuple[Advance, ...] = ()
        if work.number is not None and work.number < ADVANCING:
            advances = (Advance(source=SOURCE, start=work.number, end=work.number + 1),)
            job.advance(SOURCE, work.number, work.number + 1)
        if work.replaces:
            scope = {"day": {"day": DAYS[work.day]}, "all": None, "dynamic": "dynamic"}[work.replaces]
            job.overwrite(scope, conflict="serializable" if work.serializable else "blind")  # type: ignore[arg-type]  # one of three
        adds = {} if job.already_committed else self._write(job, work)
        told = Declared(
            job=job.id,
            key=work.key,
            advances=advances,
            adds=adds,
            replaces=None if not work.replaces else () if work.replaces == "all" else ((DAYS[work.day],),),
            serializable=work.serializable,
            shared=shared or work.recoverable,
        )
        self._world.oracle.declare(told)
        return job, told

    def _write(self, job: Job, work: Work) -> dict[str, tuple[object, ...]]:
        plan = job.plan_write(SCHEMA, partition_by=["day"])
        recovery: Recovery | None = job.recovery
        if recovery is None:
            entries = tuple(self._put_file(job, work, number) for number in range(work.files))
            job.add_written(entries)
        else:
            same = recovery.work(plan, tasks=1, same=str(work.key))
            done = same.finished(self.store).get(0)
            if done is None:
                entries = tuple(self._put_file(job, work, number) for number in range(work.files))
                done = same.finish(self.store, self.actor, 0, entries)
            job.add_written(done.entries, done.manifests, intake=intake_of(done))
            entries = done.entries
        return {entry.path: tuple(entry.partition) for entry in entries}

    def _put_file(self, job: Job, work: Work, number: int) -> Entry:
        day = DAYS[work.day]
        folder = "__HIVE_DEFAULT_PARTITION__" if day is None else day.replace("%", "%25").replace("=", "%3D").replace("#", "%23")
        attempt = self.actor.randomness(8).hex()
        path = f"day={folder}/00000-{attempt}-{number}-{job.id}.parquet"
        data = f"{job.id} {number}".encode()
        output = self.store.create_output(path)
        output.write(data)
        output.close()
        return Entry(path=path, partition=(day,), rows=1, bytes=len(data), digest=format.digest(data), job=job.id)

    def _settled(self, outcome: Outcome, told: Declared) -> Outcome:
        oracle = self._world.oracle
        if outcome.kind == "committed":
            oracle.told_committed(told.job, outcome.version)
        elif outcome.kind == "already_committed":
            oracle.told_done(told.job, told.key, outcome.version)
        elif outcome.kind in ("fenced", "aborted") or (outcome.kind in ("conflict", "key_reused") and not told.shared):
            oracle.told_not(told.job, outcome.kind)
        return outcome

    # --- what others have prepared ------------------------------------------------------------------------------------------

    def finish(self, which: int, *, abort: bool) -> None:
        """Commit a prepared job, or give it up."""
        if job := self._prepared(which):
            act = give_up if abort else commit_prepared
            self.attempt("abort" if abort else "commit", {"job": job}, lambda: self._settled(act(self.session, job), self._told(job)))

    def recover(self, *, abort: bool) -> None:
        """Settle all that is prepared."""
        self.attempt("recover", {"abort": abort}, lambda: self._recover(abort=abort))

    def _recover(self, *, abort: bool) -> int:
        results = list(settle_prepared(self.session, abort=abort))
        for result in results:
            if result.outcome is not None:
                self._settled(result.outcome, self._told(result.job_id))
            elif isinstance(result.error, JobAbortedError | JobFencedError):
                self._world.oracle.told_not(result.job_id, type(result.error).__name__)
        return len(results)

    def _prepared(self, which: int) -> str | None:
        prepared = self._world.prepared
        return prepared[which % len(prepared)] if prepared else None

    def _told(self, job: str) -> Declared:
        return self._world.oracle.declared(job) or Declared(job=job, shared=True)

    # --- the table's history ------------------------------------------------------------------------------------------------

    def tag(self, name: str, back: int) -> None:
        """Name the version so far behind the head."""
        self._alone("tag", {"name": name, "back": back}, lambda: tag(self.session, name, max(1, self.session.open().version - back)))

    def untag(self, name: str) -> None:
        """Take a name away."""
        self._alone("untag", {"name": name}, lambda: untag(self.session, name))

    def rollback(self, back: int) -> None:
        """Go so many versions back."""
        self._alone(
            "rollback", {"back": back}, lambda: rollback(self.session, max(1, self.session.open().version - 1 - back), reason="a reason")
        )

    def rewind(self, to: int) -> None:
        """Set the source back."""
        self._alone("rewind", {"to": to}, lambda: rewind(self.session, SOURCE, to, reason="a reason"))

    def _alone(self, operation: str, arguments: dict[str, Any], act: Callable[[], Outcome]) -> None:
        self.attempt(operation, arguments, lambda: self._settled_alone(act()))

    def _settled_alone(self, outcome: Outcome) -> Outcome:
        return self._settled(outcome, Declared(job=outcome.job_id))

    # --- gc, readers, time --------------------------------------------------------------------------------------------------

    def collect(self, policy: Policy) -> None:
        """One gc."""
        self.attempt("gc", msgspec.to_builtins(policy), lambda: gc.run(self.session, policy))

    def read(self, back: int | None) -> None:
        """Read the head, or a version so far behind it, file by file; others may act between any two."""
        self.attempt("read", {"back": back}, lambda: self._read(back))

    def _read(self, back: int | None) -> int:
        oracle = self._world.oracle
        known = len(oracle.chain)
        head = self.session.open()
        oracle.read(head, known)
        if back is not None:
            version = max(1, head.version - back)
            try:
                head = read_version(self.store, head, version)
            except SnapshotExpiredError:
                oracle.told_expired(version)
                raise
            oracle.read(head)
        self._read_files(head)
        return head.version

    def _read_files(self, head: Head) -> None:
        for path in sorted(self._world.oracle.chain[head.version - 1].files):
            try:
                self.store.get(path, 0, 1)
            except FileNotFoundError:
                self._world.oracle.found_missing(head.version, path)

    def wait(self, hours: int) -> None:
        """Let time pass."""
        self.actor.sleep(hours * 3600.0)

    def _says(self, what: str) -> bool:
        self._asked += 1
        return bool(self._world.scheduler.choices.pick(f"{what} {self.actor.name}.{self._asked}", 2))


def _outcome(result: object) -> dict[str, Any]:
    if isinstance(result, Outcome):
        rule = {"rule": result.conflict.rule} if result.conflict is not None else {}
        return {"kind": result.kind, "job": result.job_id, "version": result.version, **rule}
    if isinstance(result, gc.GcReport):
        return {"kind": "collected", "version": result.version, "fence": result.fence, "expired": result.expired}
    return {"kind": "done", "value": result}
