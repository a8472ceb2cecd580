"""Committers: finish what writers have prepared, more than once, against each other, and after each other's deaths."""

import time
from typing import Literal, TypeAlias

from tests.chaos.history import witness
from tests.chaos.world import AGAIN, AT_ONCE, FED, HANDED, KEYED, Actor, Phase, World, get_file

import manifestcommit as mc
from manifestcommit.testing.history.operation import UNDONE, Running

Told: TypeAlias = Literal["committed", "aborted", "already", "gap", "refused", "unknown"]
PREPARED = (*FED, KEYED, HANDED, AGAIN)
_KINDS: dict[str, Literal["committed", "already"]] = {"committed": "committed", "already_committed": "already"}
_STROKE_S = 0.15


class Committer(Actor):
    """Several of them share one queue, and nothing keeps two from taking the same job. What is left in the table they find there."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self.queue = self.folder / "queue"
        self.queue.mkdir(parents=True, exist_ok=True)
        self._gaps: dict[str, int] = {}
        self._looks = incarnation > 0  # what the one before left behind is in the table only

    def turn(self, phase: Phase) -> None:
        try:
            if self._looks or self.likely(0.01):
                self._looks = False
                self.look()
                return
        except mc.errors.StoreError as error:
            self.failed(error)
        at_once, waiting = (sorted(self.queue.glob(f"{begin}*.json")) for begin in (AT_ONCE, "v"))
        if not at_once and not waiting:
            self.pause(0.1)
            return
        path = self.dice.choice(at_once[:1] or waiting)
        found = get_file(path)
        if at_once:
            time.sleep(-time.time() % _STROKE_S)  # until the next stroke of the clock, as all others do
        if found is None:
            return  # another committer was faster
        if self.decide(found["table"], found["job"]):
            self.maybe_die("decided, and still in the queue", 0.05)
            path.unlink(missing_ok=True)

    def look(self) -> None:
        """The jobs that were prepared, and whose writer or committer died before the queue had them or after."""
        for table in PREPARED:
            for info in self.table(table).jobs():
                if info.state == "prepared":
                    self.note("found", table=table, job=info.job)
                    self.decide(table, info.job)

    def decide(self, table: str, job: str) -> bool:
        """Whether it is decided."""
        plan = self.dice.choice(PLANS)
        told = [self.ask(table, job, verb) for verb in plan]
        if told[-1] == "gap":
            self._gaps[job] = self._gaps.get(job, 0) + 1
            self.pause(0.05)
            return self._gaps[job] > 40 and self.ask(table, job, "abort") in ("committed", "aborted")
        if told[-1] in ("refused", "already"):  # still prepared: it may be given up now, or be found in the table later
            return self.likely(0.3) or self.ask(table, job, "abort") in ("committed", "aborted")
        return told[-1] in ("committed", "aborted")

    def ask(self, table: str, job: str, verb: str) -> Told:
        with self.record(table).commit(verb, job=job, shared=True, gives_up=job if verb == "abort" else "") as running:
            return self._ask(table, job, verb, running)

    def _ask(self, table: str, job: str, verb: str, running: Running) -> Told:
        url, options = self.world.urls[table], self.world.options
        try:
            if verb == "abort":
                found = mc.Table(url, storage_options=options).abort(job)
                self.maybe_die("given up, and nobody was told", 0.03)
                return self.told(table, job, found, found.version, running)
            outcome = mc.commit(url, job, storage_options=options)
            self.maybe_die("finished, and nobody was told", 0.05)
            return self.told(table, job, _KINDS[outcome.kind], outcome.version, running)
        except mc.errors.ManifestCommitError as error:
            return self.undecided(table, job, error, running)

    def undecided(self, table: str, job: str, error: mc.errors.ManifestCommitError, running: Running) -> Told:
        """It is not committed, or nobody said so."""
        running.refused(error)
        if isinstance(error, mc.errors.JobAbortedError):
            return self.told(table, job, "aborted", None, running)
        if isinstance(error, mc.errors.WatermarkGapError):
            self.note("gap", table=table, job=job)
            return "gap"
        if isinstance(error, mc.errors.WatermarkOverlapError | mc.errors.CommitConflictError):
            self.note("prepared refused", table=table, job=job, error=type(error).__name__)
            if isinstance(error, mc.errors.CommitConflictError) and error.rule in UNDONE:
                self.note("undone", table=table, job=job)
                self.note("refused", table=table, job=job, error=error.rule)  # for ever
            return "refused"
        if isinstance(error, mc.errors.JobFencedError):  # stalled before it was prepared, and gc came by
            self.note("refused", table=table, job=job, error="JobFencedError")
            return "refused"
        if isinstance(error, mc.errors.OutcomeUnknownError):
            self.note("unknown", table=table, job=job)
        elif isinstance(error, mc.errors.StoreError):
            self.failed(error)
        else:
            raise error
        return "unknown"

    def told(self, table: str, job: str, kind: str, version: int | None, running: Running) -> Told:
        """Acknowledged, whichever it is: all others have to be told the same."""
        if kind == "aborted":
            running.refused("aborted")
            self.note("aborted", table=table, job=job)
            return "aborted"
        already = kind == "already"
        assert version is not None
        running.committed(version, already=already)
        self.note("committed", table=table, job=job, version=version, key=None, already=already, ranges={}, twice=True)
        return "already" if already else "committed"

    def failed(self, error: Exception) -> None:
        if not self.world.faulty:
            self.violation(f"a store without faults: {type(error).__name__}: {error}")
        self.note("failed", error=type(error).__name__)
        self.pause(0.3)


class Closer(Committer):
    """The last one: when nothing runs any more it finishes all that is still prepared, by committing it, or else by giving it up.

    It gives up, too, what was recoverable, and whose writers found their work done by others. What a set-back has stopped has no mark any
    more, so that nobody can give it up, nor go on with it: gc puts the fence above it, and takes what it has left. [AB6]
    """

    def run(self) -> None:
        for table in self.world.urls:
            for info in self.table(table).jobs():
                if info.state not in ("prepared", "running"):
                    continue
                self.note("found", table=table, job=info.job)
                if info.state == "running":
                    self.end_running(table, info.job)
                elif self.ask(table, info.job, "commit") not in ("committed", "aborted"):
                    self.ask(table, info.job, "abort")
        with self.record(AGAIN).gc(forgets=False) as running:
            report = self.table(AGAIN).gc(grace="0s", keep_versions=1_000_000)
            running.collected(report.version, report.fence)

    def end_running(self, table: str, job: str) -> None:
        try:
            self.ask(table, job, "abort")
        except mc.errors.UsageError:
            if table != AGAIN:
                raise
            self.note("without a mark", table=table, job=job)


PLANS = (*[("commit",)] * 8, *[("commit", "commit")] * 2, ("commit", "abort"), *[("abort",)] * 2, ("abort", "commit"), ("abort", "abort"))


class Collector(Actor):
    """Expires all but a few versions and deletes what nobody can reach: stalled writers are fenced, now and then all who are at work."""

    # What must be in these two is told by all of their history, which gc would expire.
    spared = frozenset({AGAIN, HANDED})

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self._known: set[str] = set()

    def look_back(self, name: str) -> None:
        """What the table says of jobs whose processes never knew, before that expires."""
        try:
            commits = [(each["version"], each["job"]) for each in self.table(name).history()]
        except mc.errors.SnapshotExpiredError:  # the gc of this actor's earlier life was still under way
            return
        witness(self.record(name), commits, self._known)

    def turn(self, phase: Phase) -> None:
        name = self.dice.choice(sorted(self.world.urls.keys() - self.spared))
        try:
            grace = self.dice.choice(("0s", "1s", "3s")) if phase == "run" else "3s"
            self.look_back(name)
            with self.record(name).gc(forgets=False) as running:
                report = mc.gc(self.world.urls[name], grace=grace, keep_versions=20, keep_for="3s", storage_options=self.world.options)
                running.collected(report.version, report.fence)
            self.note("collected", table=name)
        except mc.errors.StoreError as error:
            if not self.world.faulty:
                raise
            self.note("failed", error=type(error).__name__)
        self.pause(2.0)
