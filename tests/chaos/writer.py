"""A writer: reads watermarks, takes partitions, and commits their records with the advances, in one of several ways."""

from __future__ import annotations

import io
import secrets
import time
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

import manifestcommit as mc
from manifestcommit.store import open_store
from tests.chaos.work import Board, Part, after, batch_of, choose, rows
from tests.chaos.world import BATCH, COUNTER, EXTRAS, FED, KEYED, PIECES, SLOT, SLOTS, STATE, Actor, Phase, World, put_file

Ended: TypeAlias = Literal["done", "lost", "again"]
UNHEARD = "committed, and nobody was told"
_RERUNS = 4
_MOST = 40  # records of one source in a unit
_MOST_AT_END = 2000


class Writer(Actor):
    """Several of them share the work without telling each other: who loses a race reads the watermarks anew."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self.board = Board(self.folder, name)
        self.extras: list[str] = []

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
                self.dice.choices(WAYS, WEIGHTS)[0](self)
                self.pause(0.15)
        except mc.StoreError as error:  # while nothing of it had been sent that counts
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """A store that fails is no surprise behind a proxy that makes it fail."""
        if not self.world.faulty:
            self.violation(f"a store without faults: {type(error).__name__}: {error}")
        self.note("failed", error=type(error).__name__)
        self.pause(0.3)

    # --- ways to work ---------------------------------------------------------------------------------------------------

    def one(self) -> None:
        """One table, one commit."""
        part = self.choose(self.dice.choice(FED))
        if part is not None:
            self.work([part])

    def both(self) -> None:
        """One run that feeds two tables, each from where it stands."""
        parts = [part for table in FED if (part := self.choose(table)) is not None]
        self.board.put([part for part in parts if part.key is not None])
        self.all_of(parts)
        self.board.clear()

    def in_a_row(self) -> None:
        """Two units of one table, the second first: the gap before it is closed by the other."""
        table = self.dice.choice(FED)
        marks = self.table(table).watermarks()
        first = choose(table, marks, self.log, self.dice, _MOST)
        second = after(first, self.log, self.dice) if first is not None and first.ranges.keys() <= marks.keys() else None
        if first is not None and second is not None:
            self.all_of([second, first])

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
        job.overwrite(scope, conflict=self.dice.choice(("serializable", "blind")))  # type: ignore[arg-type]  # a mapping or so
        generations = {slot: int(marks.get(SLOT + slot, 0)) + 1 for slot in slots}
        for slot, generation in generations.items():
            job.advance(SLOT + slot, generation - 1, generation)
        self.replace("state", job, generations)

    def count(self) -> None:
        """Reads a number and replaces it by the next: of two at once one must be refused, and no watermark does that."""
        job = self.begin(COUNTER)
        found = self.table(COUNTER).dataset().to_table().column("generation").to_pylist()
        self.pause(0.1)
        job.overwrite()
        self.replace(COUNTER, job, {COUNTER: max(found, default=0) + 1})

    def replace(self, table: str, job: mc.Job, generations: dict[str, int]) -> None:
        """Write the pieces of these generations, and commit."""
        found = [(slot, generation, piece) for slot, generation in generations.items() for piece in range(PIECES)]
        try:
            with job:
                job.write(pa.table([pa.array(column) for column in zip(*found, strict=True)], schema=STATE))
                self.maybe_die("before an overwrite", 0.02)
            self.committed(table, None, job)
        except (mc.WatermarkError, mc.CommitConflictError) as error:
            self.refused(table, job.id, error)
        except mc.OutcomeUnknownError as error:
            self.unknown(table, error.job_id)

    def add_column(self) -> None:
        """A column more, while others write; no write has to wait for it."""
        name = self.dice.choice(FED)
        column = f"extra {self.dice.randrange(EXTRAS)}"
        try:
            outcome = self.table(name).add_column(column, pa.string())
            self.note("column", table=name, version=outcome.version)
            self.extras.append(column)
        except (mc.UsageError, mc.CommitConflictError, mc.OutcomeUnknownError):  # somebody else did; perhaps this one, unheard
            self.extras.append(column)

    def drain(self) -> None:
        """Whatever is left, until there is nothing."""
        for table in FED:
            part = self.choose(table, most=_MOST_AT_END)
            if part is not None:
                self.work([part])
                return
        self.pause(0.2)

    # --- one unit -------------------------------------------------------------------------------------------------------

    def choose(self, table: str, most: int = _MOST) -> Part | None:
        return choose(table, self.table(table).watermarks(), self.log, self.dice, most, keyed=self.likely(0.8))

    def work(self, parts: list[Part]) -> None:
        self.board.put([part for part in parts if part.key is not None])
        for part in parts:
            self.persist(part)
        self.board.clear()

    def persist(self, part: Part) -> None:
        """The same key again until it is known what became of it. What has no key is left to the watermarks."""
        for tried in range(_RERUNS):
            if tried:
                self.note("rerun", table=part.table, key=part.key)
            if self.attempt(part) != "again" or part.key is None:
                return

    def all_of(self, parts: list[Part]) -> None:
        """One call that commits several jobs."""
        filled = [(part, job) for part in parts if (job := self.filled(part)) is not None]
        self.maybe_die("before all are committed", 0.03)
        results = mc.commit_all([job for _, job in filled])
        if any(result.outcome is not None and not result.outcome.already_committed for result in results):
            self.maybe_die(UNHEARD, 0.06)
        for (part, job), result in zip(filled, results, strict=True):
            if result.error is None:
                self.note("committed with others", table=part.table)
                self.committed(part.table, part, job)
            elif isinstance(result.error, mc.WatermarkGapError):  # the first of the row was beaten
                self.refused(part.table, job.id, result.error)
            elif self.ended(part, job, result.error) == "again" and part.key is not None:
                self.note("rerun", table=part.table, key=part.key)
                self.persist(part)

    def attempt(self, part: Part) -> Ended:
        job = None
        try:
            job = self.begin(part.table, part.key)
            with job:
                self.fill(job, part)
                self.maybe_die("before the commit", 0.03)
                if self.likely(0.03):
                    self.pause(2.0)
                if self.likely(0.3):
                    job.commit()
            if job.outcome is not None and not job.outcome.already_committed:
                self.maybe_die(UNHEARD, 0.06)
            self.committed(part.table, part, job)
            return "done"
        except mc.ManifestCommitError as error:
            return self.ended(part, job, error)

    def ended(self, part: Part, job: mc.Job | None, error: mc.ManifestCommitError) -> Ended:
        """How a job that did not commit is to be taken. Raises what should not have happened, such as a gap before a range without one."""
        if isinstance(error, mc.OutcomeUnknownError):
            self.unknown(part.table, error.job_id)
            return "again"
        if isinstance(error, mc.StoreError):
            self.failed(error)
            return "again"
        fenced = isinstance(error, mc.JobFencedError) and self.world.collects
        if job is None or not (isinstance(error, mc.WatermarkOverlapError | mc.CommitConflictError) or fenced):
            raise error
        self.refused(part.table, job.id, error)
        if isinstance(error, mc.WatermarkOverlapError):
            self.check_covered(part, error)
        return "again" if fenced or (isinstance(error, mc.CommitConflictError) and error.rule == "schema") else "lost"

    def filled(self, part: Part) -> mc.Job | None:
        """A job with everything in it; None where the store failed, or where it was too late already."""
        job = None
        try:
            job = self.begin(part.table, part.key)
            self.fill(job, part)
            return job
        except mc.ManifestCommitError as error:
            self.ended(part, job, error)
            return None

    def begin(self, table: str, key: str | None = None) -> mc.Job:
        return mc.begin(self.world.urls[table], key=key, storage_options=self.world.options)

    def fill(self, job: mc.Job, part: Part) -> None:
        """Its advances and its records: in one write or several, some of them as files that something else wrote."""
        for source, (start, end) in part.ranges.items() if part.advances else ():
            job.advance(source, start, end)
        loose = self.likely(0.1) and not job.already_committed
        pieces = [{source: reach} for source, reach in part.ranges.items()] if loose or self.likely(0.3) else [part.ranges]
        extras = list(dict.fromkeys(self.extras)) if self.likely(0.5) else []
        merges = self.likely(0.01)
        if merges:
            extras = list(dict.fromkeys([*extras, f"extra {self.dice.randrange(EXTRAS)}"]))
        for number, piece in enumerate(pieces):
            if loose and number == 0:
                job.add_files(self.loose_files(part.table, rows(self.log, piece)), sources=piece)
                self.note("added files", table=part.table)
            else:
                job.write(rows(self.log, piece, extras), merge_schema=merges or bool(extras), sources=piece if self.likely(0.5) else None)
        if merges:
            self.note("merged schema", table=part.table)

    def loose_files(self, table: str, data: pa.Table) -> list[str]:
        """Files below the root that no job knows, one per partition."""
        store = open_store(self.world.urls[table], self.world.options)
        kinds = set(data.column("kind").to_pylist()) if table == "parted" else {...}
        paths = []
        for kind in kinds:
            chosen = data if kind is ... else pa.Table.from_pylist([row for row in data.to_pylist() if row["kind"] == kind], data.schema)
            body = io.BytesIO()
            pq.write_table(chosen, body)
            paths.append(f"loose files/{secrets.token_hex(8)} %20.parquet")
            store.put(paths[-1], body.getvalue())
        return paths

    def prepared(self, part: Part) -> str | None:
        """The id of a job that others can finish; None where preparing failed."""
        job = self.filled(part)
        self.maybe_die("before it was prepared", 0.02)
        for _ in range(3 if job is not None else 0):
            try:
                assert job is not None
                found = job.prepare()
                self.note("prepared", table=part.table, job=found)
                return found
            except mc.StoreError as error:
                self.failed(error)
        return None

    def await_all(self, jobs: list[str]) -> None:
        """Give the committers some time; whether they took it, the watermarks tell."""
        until = time.monotonic() + self.dice.uniform(0, 1.5)
        while time.monotonic() < until and any((self.folder / "queue" / f"{job}.json").exists() for job in jobs):
            time.sleep(0.02)

    # --- what became of it ----------------------------------------------------------------------------------------------

    def committed(self, table: str, part: Part | None, job: mc.Job) -> None:
        """Acknowledged: from here on the table must have it for ever."""
        outcome = job.outcome
        assert outcome is not None
        assert outcome.version is not None
        ranges = part.ranges if part is not None and part.advances else {}
        key = part.key if part is not None else None
        already = outcome.already_committed
        self.note("committed", table=table, job=outcome.job_id, version=outcome.version, key=key, already=already, ranges=ranges)
        if self.likely(0.1):
            self.check_own(table, ranges, outcome.version)

    def refused(self, table: str, job: str, error: Exception) -> None:
        """Acknowledged, too: nothing of this job may ever be in the table."""
        self.note("refused", table=table, job=job, error=type(error).__name__)

    def unknown(self, table: str, job: str) -> None:
        """The store did not say. Sometimes it is asked what became of the job, as the error advises."""
        self.note("unknown", table=table, job=job)
        if not self.world.faulty:
            self.violation(f"a store without faults gave no answer to job {job}")
        if self.likely(0.5):
            try:
                found = mc.resolve(self.world.urls[table], job, storage_options=self.world.options)
            except mc.StoreError as error:
                return self.failed(error)
            if found not in ("committed", "not_committed"):
                self.violation(f"job {job} of {table} was never prepared or fenced, and is said to be {found}")
            if found == "committed":
                self.note("committed", table=table, job=job, version=found.version, key=None, already=False, ranges={})
        return None

    def check_own(self, table: str, ranges: dict[str, tuple[int, int]], version: int) -> None:
        """Who was told of a commit sees it from then on."""
        try:
            snapshot = self.table(table).snapshot()
        except mc.StoreError as error:
            return self.failed(error)
        behind = {source: end for source, (_, end) in ranges.items() if int(snapshot.watermarks.get(source, -1)) < end}
        if snapshot.version < version or behind:
            self.violation(f"{table}: version {version} was acknowledged, then the head is {snapshot.version} and lacks {behind}")
        return None

    def check_covered(self, part: Part, error: mc.WatermarkError) -> None:
        """What an error says to be in the table already must be there."""
        if not error.all_covered:
            return
        self.note("covered", table=part.table)
        if self.likely(0.2):
            self.check_own(part.table, part.ranges, 1)


WAYS = (Writer.one, Writer.both, Writer.in_a_row, Writer.join, Writer.prepare, Writer.by_key, Writer.state, Writer.count, Writer.add_column)
WEIGHTS = (25, 10, 6, 15, 22, 15, 7, 9, 2)
