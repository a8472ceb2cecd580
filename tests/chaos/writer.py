"""A writer: reads watermarks, takes partitions, and commits their records with the advances, in one of several ways."""

import time
from typing import Any

import pyarrow as pa
from tests.chaos.again import Again
from tests.chaos.history import slots_do
from tests.chaos.work import Part, after, batch_of, choose, pieces_of
from tests.chaos.world import AT_ONCE, BATCH, COUNTER, EXTRAS, FED, HANDED, KEYED, SLOT, SLOTS, Actor, Phase, put_file

import manifestcommit as mc
from manifestcommit.testing.history.operation import EVERYTHING, Running

_MOST = 40  # records of one source in a unit
_MOST_AT_END = 2000


class Writer(Again):
    """Several of them share the work without telling each other: who loses a race reads the watermarks anew."""

    def turn(self, phase: Phase) -> None:
        unfinished = self.board.own()
        try:
            if unfinished:
                for part in unfinished:
                    self.note("rerun", table=part.table, key=part.key)
                    self.persist(part)
                self.board.clear()
            elif phase == "drain":
                self.drain()
            else:
                self.dice.choices([*WEIGHTS], [*WEIGHTS.values()])[0](self)
                self.pause(0.15)
        except mc.errors.StoreError as error:  # while nothing of it had been sent that counts
            self.failed(error)

    # --- ways to work ---------------------------------------------------------------------------------------------------

    def one(self) -> None:
        """One table, one commit."""
        part = self.choose(self.dice.choice(FED))
        if part is not None:
            self.work([part])

    def both(self) -> None:
        """One run that feeds two tables, each from where it stands."""
        parts = [part for table in FED if (part := self.choose(table)) is not None]
        self.work(parts)

    def join(self) -> None:
        """What somebody else is doing right now, or was doing when it died: the same key, the same ranges."""
        others = self.board.others()
        if not others:
            return self.one()
        part = self.dice.choice(others)
        self.note("twin", table=part.table, key=part.key)
        return self.work([part])

    def prepare(self) -> None:
        """The first phase here, the second elsewhere; sometimes a second unit upon the first, handed over before it."""
        table = self.dice.choice(FED)
        marks = self.table(table).watermarks()
        first = choose(table, marks, self.log, self.dice, _MOST)
        if first is None:
            return
        known = first.ranges.keys() <= marks.keys()  # of a new source any start holds, so nothing may come before the first
        second = after(first, self.log, self.dice) if known and self.likely(0.3) else None
        self.hand_over(table, [part for part in (first, second) if part is not None])

    def hand_over(self, table: str, parts: list[Part]) -> None:
        """The last one first."""
        self.board.put(parts[:1])
        jobs = [job for part in parts if (job := self.prepared(part)) is not None]
        for job in reversed(jobs):
            self.maybe_die("prepared, and not handed over", 0.04)
            put_file(self.folder / "queue" / f"{job}.json", {"table": table, "job": job})
        if self.likely(0.8):  # else it is run again as a job of its own, beside the prepared one
            self.board.clear()
            self.await_all(jobs)

    def by_key(self) -> None:
        """A batch that no watermark guards: mostly a new one, which others may be writing; now and then one that was written long ago."""
        full = {source: end // BATCH for source, end in self.log.ends().items() if end >= BATCH}
        if not full:
            return
        source = self.dice.choice(sorted(full))
        oldest = 0 if self.likely(0.3) else max(0, full[source] - 4)
        part = batch_of(KEYED, source, self.dice.randrange(oldest, full[source]))
        if self.likely(0.7):
            self.work([part])
        else:
            self.hand_over(KEYED, [part])

    def state(self) -> None:
        """A small overwrite that compares and sets: a slot's rows are those of the generation that its watermark tells."""
        slots = self.dice.sample(SLOTS, self.dice.choice((1, 1, 2, len(SLOTS))))
        whole = len(slots) == len(SLOTS)
        scope = None if whole else "dynamic" if len(slots) > 1 or self.likely(0.5) else {"slot": slots[0]}
        job, marks = self.begin("state"), self.table("state").watermarks()
        blind = self.likely(0.5)
        job.overwrite(scope, conflict="blind" if blind else "serializable")  # type: ignore[arg-type]  # a mapping or so
        generations = {slot: int(marks.get(SLOT + slot, 0)) + 1 for slot in slots}
        for slot, generation in generations.items():
            job.advance(SLOT + slot, generation - 1, generation)
        self.replace("state", job, generations, whole=whole, blind=blind)

    def count(self) -> None:
        """Reads a number and replaces it by the next: of two at once one must be refused, and no watermark does that."""
        job = self.begin(COUNTER)
        found = self.table(COUNTER).dataset().to_table().column("generation").to_pylist()
        self.pause(0.1)
        job.overwrite()
        self.replace(COUNTER, job, {COUNTER: max(found, default=0) + 1}, whole=True)

    def replace(
        self, table: str, job: mc.Job, generations: dict[str, int], *, whole: bool = False, blind: bool = False, **does: Any
    ) -> None:
        """Write the pieces of these generations, and commit. does: what the history is to know of the job besides what it empties."""
        emptied = (EVERYTHING,) if whole else tuple(generations)
        if table == "state":
            does["advances"] = {SLOT + slot: (generation - 1, generation) for slot, generation in generations.items()}
        does |= {"empties": emptied, "scope": () if blind else emptied}
        with self.record(table).commit("overwrite", **slots_do(table, job, generations), **does) as running:
            self._replace(table, job, generations, running)

    def _replace(self, table: str, job: mc.Job, generations: dict[str, int], running: Running) -> None:
        try:
            with job:
                job.write(pieces_of(generations))
                self.maybe_die("before an overwrite", 0.02)
            self.committed(table, None, job, running)
        except (mc.errors.WatermarkError, mc.errors.CommitConflictError, mc.errors.JobFencedError) as error:
            self.refused(table, job.id, error, running)
        except mc.errors.OutcomeUnknownError as error:
            self.unknown(table, error.job_id, running)

    def by_job(self) -> None:
        """Neither key nor advances: only the job's id keeps committers, all of whom take it at one moment, from committing it twice."""
        job = self.begin(HANDED)
        with self.record(HANDED).commit("prepare", **slots_do(HANDED, job, [job.id]), shared=True):
            job.write(pieces_of({job.id: 1}))
            found = self.durable(HANDED, job)
        self.maybe_die("prepared, and not handed over", 0.04)
        if found is not None:
            put_file(self.folder / "queue" / f"{AT_ONCE}{found}.json", {"table": HANDED, "job": found})

    def add_column(self) -> None:
        """A column more, while others write; no write has to wait for it."""
        name = self.dice.choice(FED)
        column = f"extra {self.dice.randrange(EXTRAS)}"
        try:
            with self.record(name).commit("add a column"):
                outcome = self.table(name).add_column(column, pa.string())
            self.note("column", table=name, version=outcome.version)
            self.extras.append(column)
        except (mc.errors.UsageError, mc.errors.CommitConflictError, mc.errors.OutcomeUnknownError, mc.errors.JobFencedError):
            # Somebody else did; perhaps this one, unheard; or nobody, and then a write adds it.
            self.extras.append(column)

    def drain(self) -> None:
        """Whatever is left, until there is nothing."""
        for table in FED:
            part = self.choose(table, most=_MOST_AT_END)
            if part is not None:
                self.work([part])
                return
        self.pause(0.2)

    def choose(self, table: str, most: int = _MOST) -> Part | None:
        return choose(table, self.table(table).watermarks(), self.log, self.dice, most, keyed=self.likely(0.8))

    def work(self, parts: list[Part]) -> None:
        self.board.put([part for part in parts if part.key is not None])
        for part in parts:
            self.persist(part)
        self.board.clear()

    def await_all(self, jobs: list[str]) -> None:
        """Give the committers some time; whether they took it, the watermarks tell."""
        until = time.monotonic() + self.dice.uniform(0, 1.5)
        while time.monotonic() < until and any((self.folder / "queue" / f"{job}.json").exists() for job in jobs):
            time.sleep(0.02)


WEIGHTS = {
    Writer.one: 25,
    Writer.both: 10,
    Writer.join: 15,
    Writer.prepare: 22,
    Writer.by_key: 15,
    Writer.by_job: 10,
    Writer.state: 7,
    Writer.count: 9,
    Writer.again: 20,
    Writer.add_column: 2,
}


class Producer(Actor):
    """The only one that appends; it may be killed, too."""

    def run(self) -> None:
        while self.phase() == "run":
            self.turn("run")

    def turn(self, phase: Phase) -> None:
        source = self.dice.choice(self.world.sources)
        count = self.dice.choice((1, 2, 5, 20))
        self.log.append(source, self.log.invent(source, count, self.dice))
        time.sleep(count / self.world.per_second * self.dice.uniform(0.5, 1.5))
