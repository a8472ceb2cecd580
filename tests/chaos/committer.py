"""Committers: finish what writers have prepared, more than once, against each other, and after each other's deaths."""

from __future__ import annotations

from typing import Literal, TypeAlias

import manifestcommit as mc
from tests.chaos.world import FED, KEYED, Actor, Phase, World, get_file

Told: TypeAlias = Literal["committed", "aborted", "already", "gap", "refused", "unknown"]


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
        except mc.StoreError as error:
            self.failed(error)
        waiting = sorted(self.queue.glob("v*.json"))
        if not waiting:
            self.pause(0.1)
            return
        path = self.dice.choice(waiting)
        found = get_file(path)
        if found is None:
            return  # another committer was faster
        if self.decide(found["table"], found["job"]):
            self.maybe_die("decided, and still in the queue", 0.05)
            path.unlink(missing_ok=True)

    def look(self) -> None:
        """The jobs that were prepared, and whose writer or committer died before the queue had them or after."""
        for table in (*FED, KEYED):
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
        url, options = self.world.urls[table], self.world.options
        try:
            if verb == "abort":
                found = mc.abort(url, job, storage_options=options)
                self.maybe_die("given up, and nobody was told", 0.03)
                return self.told(table, job, found, found.version)
            outcome = mc.commit(url, job, storage_options=options)
            self.maybe_die("finished, and nobody was told", 0.05)
            return self.told(table, job, "already" if outcome.already_committed else "committed", outcome.version)
        except mc.JobAbortedError:
            return self.told(table, job, "aborted", None)
        except mc.WatermarkGapError:
            self.note("gap", table=table, job=job)
            return "gap"
        except (mc.WatermarkOverlapError, mc.CommitConflictError) as error:
            self.note("prepared refused", table=table, job=job, error=type(error).__name__)
            return "refused"
        except mc.OutcomeUnknownError:
            self.note("unknown", table=table, job=job)
        except mc.StoreError as error:
            self.failed(error)
        return "unknown"

    def told(self, table: str, job: str, kind: str, version: int | None) -> Told:
        """Acknowledged, whichever it is: all others have to be told the same."""
        if kind == "aborted":
            self.note("aborted", table=table, job=job)
            return "aborted"
        already = kind == "already"
        self.note("committed", table=table, job=job, version=version, key=None, already=already, ranges={}, twice=True)
        return "already" if already else "committed"

    def failed(self, error: Exception) -> None:
        if not self.world.faulty:
            self.violation(f"a store without faults: {type(error).__name__}: {error}")
        self.note("failed", error=type(error).__name__)
        self.pause(0.3)


class Closer(Committer):
    """The last one: when nothing runs any more it finishes all that is still prepared, by committing it, or else by giving it up."""

    def run(self) -> None:
        for table in (*FED, KEYED):
            for info in self.table(table).jobs():
                if info.state != "prepared":
                    continue
                self.note("found", table=table, job=info.job)
                if self.ask(table, info.job, "commit") not in ("committed", "aborted"):
                    self.ask(table, info.job, "abort")


PLANS = (
    *[("commit",)] * 8,
    *[("commit", "commit")] * 2,
    ("commit", "abort"),
    *[("abort",)] * 2,
    ("abort", "commit"),
    ("abort", "abort"),
)
