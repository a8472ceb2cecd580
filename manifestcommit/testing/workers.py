"""What an actor of a theme does: jobs of every kind over the real engine, each told to the oracle, and logged. [IV1]-[IV8]

Data files are some bytes with an entry that is made up: no rule of the protocol opens them.
Not here: who does what (themes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..core import format
from ..core.manifest import Entry
from ..core.retention import Policy
from ..core.schema import Field, Schema
from ..core.watermark import Advance
from ..engine import gc
from ..engine.head import read_version, while_readable
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
from .operation import ANY_FENCE, EVERYTHING
from .oracle import Oracle
from .recorder import Running
from .scheduler import Actor, Died, Scheduler
from .simulated_store import SimulatedStore, Space
from .steps import Declared, birth_of
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

    def attempt(self, name: str, arguments: dict[str, Any], work: Callable[[Running], object], **what: Any) -> None:
        """One operation, logged, that may fail as operations do. what: fields of its record that are known before."""
        world = self._world
        running = world.history.begin(f"{self.actor.name}.{self._lives}", name, **what)
        world.trace.note(self.actor.name, f"{name} {arguments or ''}")
        try:
            result = work(running)
        except Died:
            world.trace.note(self.actor.name, f"{name} died")
            raise
        except EXPECTED as error:
            running.refused(error)
            world.trace.note(self.actor.name, f"{name}: {type(error).__name__}")
        else:
            world.trace.note(self.actor.name, f"{name}: {_shown(result)}")
        world.history.end(running)

    # --- jobs ---------------------------------------------------------------------------------------------------------------

    def publish(self, work: Work) -> None:
        """One job from begin to outcome; where the store failed or did not say, it may be tried again."""
        self.attempt("publish", msgspec.to_builtins(work), lambda running: self._publish(running, work))

    def _publish(self, running: Running, work: Work) -> Outcome:
        job, told = self._written(running, work)
        try:
            outcome = job.commit()
        except StoreError as error:
            if not self._says("again"):
                if not told.shared:
                    self._world.oracle.told_not(told.job, f"not committed ({type(error).__name__})")
                    running.refused("store")
                raise
            outcome = self._again(running, job)
        if outcome.kind == "unknown" and self._says("again"):
            outcome = self._again(running, job)
        return self._settled(running, outcome, told)

    def _again(self, running: Running, job: Job) -> Outcome:
        outcome = job.commit_again()
        if outcome.kind == "aborted":
            running.note(gives_up=job.id)  # as an earlier try does, unheard, where what it may have published conflicts [CM21]
        return outcome

    def prepare(self, work: Work) -> None:
        """One job's first phase: from its first request on others may finish it."""
        self.attempt("prepare", msgspec.to_builtins(work), lambda running: self._prepare(running, work))

    def _prepare(self, running: Running, work: Work) -> str:
        job, _ = self._written(running, work, shared=True)
        self._world.prepared.append(job.id)
        return job.prepare()

    def _written(self, running: Running, work: Work, *, shared: bool = False) -> tuple[Job, Declared]:
        """The job with all that it is to commit, which is told to the oracle and stands in the history."""
        job = Job(self.session, key=work.key, fingerprint=work.key, recoverable=work.recoverable)
        advances: tuple[Advance, ...] = ()
        if work.number is not None and work.number < ADVANCING:
            advances = (Advance(source=SOURCE, start=work.number, end=work.number + 1),)
        told = Declared(job=job.id, key=work.key, advances=advances, shared=shared or work.recoverable)
        running.note(**_effects(told))
        for each in advances:
            job.advance(each.source, each.start, each.end)
        if work.replaces:
            scope = {"day": {"day": DAYS[work.day]}, "all": None, "dynamic": "dynamic"}[work.replaces]
            job.overwrite(scope, conflict="serializable" if work.serializable else "blind")  # type: ignore[arg-type]  # one of three
        adds = {} if job.already_committed else self._write(job, work)
        told = msgspec.structs.replace(
            told,
            adds=adds,
            replaces=None if not work.replaces else () if work.replaces == "all" else ((DAYS[work.day],),),
            serializable=work.serializable,
        )
        self._world.oracle.declare(told)
        running.note(**_effects(told))
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
        path = f"day={folder}/{format.data_file_name(0, attempt, number, job.id)}"
        data = f"{job.id} {number}".encode()
        output = self.store.create_output(path)
        output.write(data)
        output.close()
        return Entry(path=path, partition=(day,), rows=1, bytes=len(data), digest=format.digest(data), job=job.id)

    def _settled(self, running: Running, outcome: Outcome, told: Declared) -> Outcome:
        oracle = self._world.oracle
        _tell(running, outcome)
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
            act, name, gives_up = (give_up, "abort", job) if abort else (commit_prepared, "commit", "")
            self.attempt(
                name, {"job": job}, lambda running: self._settled(running, act(self.session, job), self._told(job)),
                job=job, shared=True, gives_up=gives_up,
            )  # fmt: skip

    def recover(self, *, abort: bool) -> None:
        """Settle all that is prepared."""
        self.attempt("recover", {"abort": abort}, lambda running: self._recover(running, abort=abort), gives_up=EVERYTHING)

    def _recover(self, running: Running, *, abort: bool) -> int:
        begin = running.operation.begin
        results = list(settle_prepared(self.session, abort=abort))
        for result in results:
            # Each of the jobs is an operation of its own.
            one = self._world.history.begin(running.operation.process, "settle", job=result.job_id, shared=True)
            one.note(begin=begin)
            if result.outcome is not None:
                self._settled(one, result.outcome, self._told(result.job_id))
            else:
                one.refused(result.error or "")
                if isinstance(result.error, JobAbortedError | JobFencedError):
                    self._world.oracle.told_not(result.job_id, type(result.error).__name__)
            self._world.history.end(one)
        return len(results)

    def _prepared(self, which: int) -> str | None:
        prepared = self._world.prepared
        return prepared[which % len(prepared)] if prepared else None

    def _told(self, job: str) -> Declared:
        return self._world.oracle.declared(job) or Declared(job=job, shared=True)

    # --- the table's history ------------------------------------------------------------------------------------------------

    def tag(self, name: str, back: int) -> None:
        """Name the version so far behind the head."""
        self._alone("tag", {"name": name, "back": back}, lambda _: tag(self.session, name, max(1, self.session.open().version - back)))

    def untag(self, name: str) -> None:
        """Take a name away."""
        self._alone("untag", {"name": name}, lambda _: untag(self.session, name))

    def rollback(self, back: int) -> None:
        """Go so many versions back."""

        def act(running: Running) -> Outcome:
            version = max(1, self.session.open().version - 1 - back)
            running.note(restores=version)
            return rollback(self.session, version, reason="a reason")

        self._alone("rollback", {"back": back}, act)

    def rewind(self, to: int) -> None:
        """Set the source back."""
        self._alone("rewind", {"to": to}, lambda _: rewind(self.session, SOURCE, to, reason="a reason"), rewinds={SOURCE: to})

    def _alone(self, name: str, arguments: dict[str, Any], act: Callable[[Running], Outcome], **what: Any) -> None:
        def settled(running: Running) -> Outcome:
            outcome = act(running)
            running.note(job=outcome.job_id, birth=birth_of(outcome.job_id))
            return self._settled(running, outcome, Declared(job=outcome.job_id))

        self.attempt(name, arguments, settled, **what)

    # --- gc, readers, time --------------------------------------------------------------------------------------------------

    def collect(self, policy: Policy) -> None:
        """One gc."""

        def act(running: Running) -> gc.GcReport:
            report = gc.run(self.session, policy)
            running.collected(report.version, report.fence)
            return report

        forgets = (EVERYTHING,) if policy.keep_keys < Policy().keep_keys else ()
        self.attempt("gc", msgspec.to_builtins(policy), act, outcome="failed", fence=ANY_FENCE, forgets=forgets)

    def read(self, back: int | None) -> None:
        """Read the head, or a version so far behind it, file by file; others may act between any two."""
        self.attempt("read", {"back": back}, lambda running: self._read(running, back), outcome="failed")

    def _read(self, running: Running, back: int | None) -> int:
        oracle = self._world.oracle
        known = len(oracle.chain)
        head = self.session.open()
        oracle.read(head, known)
        version = head.version if back is None else max(1, head.version - back)
        try:
            if back is not None:
                running.note(at=version)
                head = read_version(self.store, head, version)
                oracle.read(head)
            with while_readable(self.store, version):
                files = sorted(oracle.state_of(head.snapshot, head.digest).files)
        except SnapshotExpiredError:
            oracle.told_expired(version)
            raise
        missing = [path for path in files if not self._is_there(path)]
        for path in missing:
            oracle.found_missing(head.version, path)
        if not missing:  # else it has expired meanwhile
            running.saw(head.version, items=files, watermarks=head.snapshot.watermarks)
        return head.version

    def _is_there(self, path: str) -> bool:
        try:
            self.store.get(path, 0, 1)
        except FileNotFoundError:
            return False
        return True

    def wait(self, hours: int) -> None:
        """Let time pass."""
        self.actor.sleep(hours * 3600.0)

    def _says(self, what: str) -> bool:
        self._asked += 1
        return bool(self._world.scheduler.choices.pick(f"{what} {self.actor.name}.{self._asked}", 2))


def _effects(told: Declared) -> dict[str, Any]:
    """What a job does, in the words of its record."""
    emptied = () if told.replaces is None else tuple(repr(each) for each in told.replaces) or (EVERYTHING,)
    return {
        "job": told.job,
        "birth": birth_of(told.job),
        "shared": told.shared,
        "key": told.key,
        "adds": {path: repr(partition) for path, partition in told.adds.items()},
        "empties": emptied,
        "scope": emptied if told.serializable else (),
        "advances": {each.source: (each.start, each.end) for each in told.advances},
    }


def _tell(running: Running, outcome: Outcome) -> None:
    """What the engine says, in the words of a record."""
    if outcome.committed:
        assert outcome.version is not None
        running.committed(outcome.version, already=outcome.already_committed)
    elif outcome.conflict is not None:
        running.refused(outcome.conflict.misfit.kind if outcome.conflict.misfit is not None else "conflict")
    elif outcome.kind != "unknown":
        running.refused(outcome.kind)


def _shown(result: object) -> str:
    if isinstance(result, Outcome):
        rule = f" ({result.conflict.rule})" if result.conflict is not None else ""
        return f"{result.kind}{rule}, job {result.job_id}, version {result.version}"
    if isinstance(result, gc.GcReport):
        return f"version {result.version}, fence {result.fence}, expired {result.expired}"
    return f"done: {result}"
