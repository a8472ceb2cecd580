"""A writer: reads watermarks, takes partitions, and commits their records with the advances, in one of several ways."""

import time
import zlib
from typing import Any, Literal

import msgspec
import pyarrow as pa
from tests.chaos.history import birth_of, slots_do
from tests.chaos.work import Part, after, batch_of, choose, pieces_of
from tests.chaos.worker import StumbleError, Worker
from tests.chaos.world import AGAIN, AGAIN_SOURCES, AT_ONCE, BATCH, COUNTER, EXTRAS, FED, HANDED, KEYED, SLOT, SLOTS, Actor, Phase, put_file

import manifestcommit as mc
from manifestcommit.format.snapshot import Snapshot
from manifestcommit.testing.history.operation import EVERYTHING, UNDONE, Running

_LONGEST_S = 2.5  # in flight


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot and how it is brought. ahead: how many slots before it are missing; appends: nothing of it is in the table."""

    source: str
    position: int
    ahead: int
    appends: bool
    how: Literal["now", "later", "prepared", "recoverable"]
    keyed: bool

    @property
    def name(self) -> str:
        return f"{self.source} {self.position}"

    @property
    def key(self) -> str | None:
        """Those who append and those who overwrite declare different things, which one key does not allow."""
        return (f"{self.name} appended" if self.appends else self.name) if self.keyed else None

    @property
    def advances(self) -> dict[str, tuple[int, int]]:
        return {self.source: (self.position, self.position + 1)}


class Again(Worker):
    """Sets sources back, and brings their slots again, while jobs of every kind that began before are still in flight.

    A rewind leaves the rows of a slot, so it is overwritten then; a rollback takes them, so it is appended. An append has no partition
    that it replaces and need not have a key: nothing but its advance, and its birth, keeps it from doubling a slot. [WM6] [KY7] [KY8]
    """

    def again(self) -> None:
        """The next slot of a source; or the source, or all of the table, goes back."""
        source, snapshot = self.dice.choice(AGAIN_SOURCES), self.table(AGAIN).snapshot()
        mark = int(snapshot.watermarks.get(source, 0))
        if mark and self.likely(0.25):
            self.set_back(source, mark, snapshot)
            return
        how: Any = self.dice.choice(("now", "later", "prepared", "recoverable"))
        # Where the source is not known, any range can be its first.
        ahead = int(how == "prepared" and source in snapshot.watermarks and self.likely(0.2))
        slot = Slot(
            source=source, position=mark + ahead, ahead=ahead, appends=False, how=how, keyed=how == "recoverable" or self.likely(0.6)
        )
        self.bring(msgspec.structs.replace(slot, appends=not self.holds(slot, snapshot.version)))

    def holds(self, slot: Slot, version: int) -> bool:
        """Whether rows of the slot are in that version."""
        return slot.name in self.table(AGAIN).files(version=version).column("slot").to_pylist()

    def bring(self, slot: Slot) -> None:
        """One job for it, which is begun now and committed now, later, by others, or by a rerun."""
        shared = slot.how in ("prepared", "recoverable")
        job = self.begin(AGAIN, slot.key, recoverable=slot.how == "recoverable")
        with self.record(AGAIN).commit("again", shared=shared, key=slot.key) as running:
            if not self.is_next(slot, job):
                job.abort()
                return
            if job.already_committed:
                self.violation(f"{slot.name!r} is not in version {birth_of(job.id)}, whose key {slot.key!r} counts as committed")
            emptied = () if slot.appends else (slot.name,)
            running.note(**slots_do(AGAIN, job, [slot.name], advances=slot.advances, empties=emptied, scope=emptied))
            try:
                self.carry_out(slot, job, running)
            except StumbleError:
                self.note("left", table=AGAIN, key=slot.key)
            except (mc.errors.WatermarkError, mc.errors.CommitConflictError, mc.errors.JobFencedError, mc.errors.JobAbortedError) as error:
                self.stopped(job, error, running, shared=shared)
            except mc.errors.OutcomeUnknownError as error:
                self.unknown(AGAIN, error.job_id, running)

    def is_next(self, slot: Slot, job: mc.Job) -> bool:
        """Whether the head that the job began at is as it was when the slot was chosen; a recoverable one may have begun long ago."""
        birth = birth_of(job.id)
        marks = self.table(AGAIN).snapshot(version=birth).watermarks
        known = slot.source in marks or not slot.ahead
        return known and int(marks.get(slot.source, 0)) == slot.position - slot.ahead and self.holds(slot, birth) != slot.appends

    def carry_out(self, slot: Slot, job: mc.Job, running: Running) -> None:
        """Write the slot's rows, and commit them in the way that was chosen."""
        if not slot.appends:
            job.overwrite({"slot": slot.name})
        job.advance(slot.source, slot.position, slot.position + 1)
        alike = slot.how == "recoverable"  # all runs of it have the same rows
        job.write(pieces_of({slot.name: zlib.crc32(slot.name.encode()) if alike else self.dice.randrange(1, 1 << 40)}))
        self.maybe_die("before what was set back is brought again", 0.03)
        if slot.how == "prepared":
            return self.leave_to_others(slot, job)
        if slot.how != "now":
            self.meanwhile(slot)
        if alike and self.likely(0.3):
            raise StumbleError
        job.commit()
        return self.committed(AGAIN, None, job, running)

    def leave_to_others(self, slot: Slot, job: mc.Job) -> None:
        """Prepared now, in the queue later."""
        found = self.durable(AGAIN, job)
        if self.likely(0.6):
            self.meanwhile(slot)
        self.maybe_die("prepared, and not handed over", 0.04)
        if found is not None:
            put_file(self.folder / "queue" / f"{found}.json", {"table": AGAIN, "job": found})

    def meanwhile(self, slot: Slot) -> None:
        """Others go on while the job is in flight; or this writer itself sets its source back."""
        if self.likely(0.6):
            time.sleep(self.dice.uniform(0, _LONGEST_S))
            return
        snapshot = self.table(AGAIN).snapshot()
        mark = int(snapshot.watermarks.get(slot.source, 0))
        if mark:
            self.set_back(slot.source, mark, snapshot)

    def stopped(self, job: mc.Job, error: mc.errors.ManifestCommitError, running: Running, *, shared: bool) -> None:
        """Refused. Of a job that others may finish, it is for ever only where it came too late or was set back."""
        running.refused(error)
        undone = isinstance(error, mc.errors.CommitConflictError) and error.rule in UNDONE
        if undone:
            self.note("undone", table=AGAIN, job=job.id)
        if not shared or undone or isinstance(error, mc.errors.WatermarkOverlapError):
            self.refused(AGAIN, job.id, error, running)

    def set_back(self, source: str, mark: int, snapshot: Snapshot) -> None:
        if self.likely(0.6):
            self.rewind(source, mark)
        else:
            self.roll_back(max(1, snapshot.expired, snapshot.version - self.dice.randint(1, 4)))

    def roll_back(self, version: int) -> None:
        """What was brought since, the watermarks and the keys of all sources: others are at them meanwhile."""
        try:
            with self.record(AGAIN).commit("rollback", restores=version) as running:
                outcome = self.table(AGAIN).rollback(version, reason="chaos")
                running.note(job=outcome.job_id, birth=birth_of(outcome.job_id))
                running.told(outcome)
            self.note("rolled back", table=AGAIN, version=outcome.version)
        except (
            mc.errors.UsageError,
            mc.errors.CommitConflictError,
            mc.errors.OutcomeUnknownError,
            mc.errors.SnapshotExpiredError,
        ) as error:
            self.note("not rolled back", table=AGAIN, error=type(error).__name__)

    def rewind(self, source: str, mark: int) -> None:
        to = None if self.likely(0.1) else self.dice.randrange(max(0, mark - 4), mark)
        try:
            with self.record(AGAIN).commit("rewind", rewinds={source: to}) as running:
                outcome = self.table(AGAIN).rewind(source, to, reason="chaos")
                running.note(job=outcome.job_id, birth=birth_of(outcome.job_id))
                running.told(outcome)
            self.note("rewound", table=AGAIN, version=outcome.version, dropped=len(outcome.dropped_keys))
        except (
            mc.errors.UsageError,
            mc.errors.CommitConflictError,
            mc.errors.OutcomeUnknownError,
        ) as error:  # others moved it, or perhaps this one, unheard
            self.note("not rewound", table=AGAIN, error=type(error).__name__)
        except mc.errors.SnapshotExpiredError:  # the history that tells which keys to drop is gone: nothing was changed
            self.note("not rewound", table=AGAIN, error="expired")


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
    Writer.one: 25, Writer.both: 10, Writer.join: 15, Writer.prepare: 22, Writer.by_key: 15, Writer.by_job: 10, Writer.state: 7,
    Writer.count: 9, Writer.again: 20, Writer.add_column: 2,
}  # fmt: skip


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
