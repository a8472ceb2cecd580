"""One unit of work from its records to its outcome: what any writer does with it, in one of several ways."""

import secrets
from collections.abc import Iterator
from typing import Literal, TypeAlias

import pyarrow as pa
from tests.chaos.history import part_does
from tests.chaos.work import Board, Part, fingerprint_of, halves, rows
from tests.chaos.world import AGAIN, EXTRAS, Actor, World
from tests.kit.footers import parquet_bytes

import manifestcommit as mc
from manifestcommit.store import open_store
from manifestcommit.testing.history.operation import Running

Ended: TypeAlias = Literal["done", "lost", "again"]
UNHEARD = "committed, and nobody was told"
_RERUNS = 4


class StumbleError(Exception):
    """What a writer's own code raises."""


class Worker(Actor):
    """Brings parts to their end."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self.board = Board(self.folder, name, Part)
        self.extras: list[str] = []

    # --- one unit -------------------------------------------------------------------------------------------------------

    def persist(self, part: Part) -> None:
        """The same key again until it is known what became of it. What has no key is left to the watermarks."""
        for tried in range(_RERUNS):
            if tried:
                self.note("rerun", table=part.table, key=part.key)
            if self.attempt(part) != "again" or part.key is None:
                return

    def attempt(self, part: Part) -> Ended:
        with self.record(part.table).commit("publish", key=part.key) as running:
            return self._attempt(part, running)

    def _attempt(self, part: Part, running: Running) -> Ended:
        job, recoverable = None, fingerprint_of(part.key) is not None and self.likely(0.8)
        try:
            job = self.begin(part.table, part.key, recoverable=recoverable)
            running.note(**part_does(job, part), shared=recoverable)
            with job:
                self.fill(job, part, recoverable=recoverable)
                self.maybe_die("before the commit", 0.03)
                if self.likely(0.03):
                    self.pause(2.0)
                if self.likely(0.3):
                    job.commit()
            if job.outcome is not None and not job.outcome.already_committed:
                self.maybe_die(UNHEARD, 0.06)
            self.committed(part.table, part, job, running)
            return "done"
        except StumbleError:
            self.note("left", table=part.table, key=part.key)
            return "again"
        except mc.errors.ManifestCommitError as error:
            return self.ended(part, job, error, running, shared=recoverable)

    def ended(
        self, part: Part, job: mc.Job | None, error: mc.errors.ManifestCommitError, running: Running, *, shared: bool = False
    ) -> Ended:
        """How a job that did not commit is to be taken. Raises what should not have happened, such as a gap before a range without one.

        shared: others may run this very job, and commit it where this one failed, unless its ranges are in the table.
        """
        if isinstance(error, mc.errors.OutcomeUnknownError):
            self.unknown(part.table, error.job_id, running)
            return "again"
        if isinstance(error, mc.errors.StoreError):
            self.failed(error)
            return "again"
        fenced = isinstance(error, mc.errors.JobFencedError)
        if job is None or not (isinstance(error, mc.errors.WatermarkOverlapError | mc.errors.CommitConflictError) or fenced):
            raise error
        running.refused(error)
        if not shared or isinstance(error, mc.errors.WatermarkOverlapError):
            self.refused(part.table, job.id, error, running, part.key)
        if isinstance(error, mc.errors.WatermarkOverlapError):
            self.check_covered(part, error)
        return "again" if fenced or (isinstance(error, mc.errors.CommitConflictError) and error.rule == "schema") else "lost"

    def filled(self, part: Part, running: Running) -> mc.Job | None:
        """A job with everything in it; None where the store failed, or where it was too late already."""
        job = None
        try:
            job = self.begin(part.table, part.key)
            running.note(**part_does(job, part))
            self.fill(job, part)
            return job
        except mc.errors.ManifestCommitError as error:
            self.ended(part, job, error, running)
            return None

    def begin(self, table: str, key: str | None = None, *, recoverable: bool = False) -> mc.Job:
        # Whoever brings a slot again declares the same of it, in whichever way: two may do so at once.
        url, fingerprint = self.world.urls[table], fingerprint_of(key) or (key if table == AGAIN else None)
        return mc.begin(url, key=key, fingerprint=fingerprint, recoverable=recoverable, storage_options=self.world.options)

    def fill(self, job: mc.Job, part: Part, *, recoverable: bool = False) -> None:
        """Its advances and its records: in one write or several, some of them as files that something else wrote."""
        for source, (start, end) in part.ranges.items() if part.advances else ():
            job.advance(source, start, end)
        if recoverable:
            self.fill_alike(job, part)
            return
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

    def fill_alike(self, job: mc.Job, part: Part) -> None:
        """The same two writes in every run of the key, whatever comes between: a failure of one, which is repeated, an error, the end."""
        for piece in halves(part.ranges):
            data = rows(self.log, piece)
            try:
                job.write(pa.RecordBatchReader.from_batches(data.schema, stumbling(data)) if self.likely(0.3) else data)
            except StumbleError:
                self.note("stumbled", table=part.table, key=part.key)
                job.write(data)
            self.maybe_die("in a recoverable job", 0.03)
        if self.likely(0.2) and not job.already_committed:
            raise StumbleError
        self.note("filled alike", table=part.table)

    def loose_files(self, table: str, data: pa.Table) -> list[str]:
        """Files below the root that no job knows, one per partition."""
        store = open_store(self.world.urls[table], self.world.options)
        kinds = set(data.column("kind").to_pylist()) if table == "parted" else {...}
        paths = []
        for kind in kinds:
            chosen = data if kind is ... else pa.Table.from_pylist([row for row in data.to_pylist() if row["kind"] == kind], data.schema)
            paths.append(f"loose files/{secrets.token_hex(8)} %20.parquet")
            store.put(paths[-1], parquet_bytes(chosen))
        return paths

    def prepared(self, part: Part) -> str | None:
        """The id of a job that others can finish; None where there is none."""
        with self.record(part.table).commit("prepare", key=part.key, shared=True) as running:
            job = self.filled(part, running)
            try:
                return self.durable(part.table, job) if job is not None else None
            except mc.errors.JobFencedError as error:  # stalled before it was prepared, and gc came by
                self.ended(part, job, error, running)
                return None

    def durable(self, table: str, job: mc.Job) -> str | None:
        """The id of the job, which is prepared; None where preparing failed."""
        self.maybe_die("before it was prepared", 0.02)
        for _ in range(3):
            try:
                found = job.prepare()
                self.note("prepared", table=table, job=found)
                return found
            except mc.errors.StoreError as error:
                self.failed(error)
        return None

    # --- what became of it ----------------------------------------------------------------------------------------------

    def committed(self, table: str, part: Part | None, job: mc.Job, running: Running) -> None:
        """Acknowledged: from here on the table must have it for ever."""
        outcome = job.outcome
        assert outcome is not None
        assert outcome.version is not None
        running.committed(outcome.version, already=outcome.already_committed)
        ranges = part.ranges if part is not None and part.advances else {}
        key = part.key if part is not None else None
        already = outcome.already_committed
        self.note("committed", table=table, job=outcome.job_id, version=outcome.version, key=key, already=already, ranges=ranges)
        if self.likely(0.1):
            self.check_own(table, ranges, outcome.version)

    def refused(self, table: str, job: str, error: Exception, running: Running, key: str | None = None) -> None:
        """Acknowledged, too: nothing of this job may ever be in the table; and where it was an overlap, nothing of its key."""
        running.refused(error)
        self.note("refused", table=table, job=job, error=type(error).__name__, key=key)

    def unknown(self, table: str, job: str, running: Running) -> None:
        """The store did not say, or has forgotten it. Sometimes it is asked what became of the job, as the error advises."""
        self.note("unknown", table=table, job=job)
        if not self.world.faulty and not self.is_fenced(table, job):
            self.violation(f"a store without faults gave no answer to job {job}")
        if self.likely(0.5):
            try:
                found = mc.Table(self.world.urls[table], storage_options=self.world.options).resolve(job)
            except mc.errors.StoreError as error:
                return self.failed(error)
            if found not in ("committed", "not_committed") and not (found in ("fenced", "forgotten") and self.is_fenced(table, job)):
                self.violation(f"job {job} of {table} was never prepared or fenced, and is said to be {found}")
            if found == "committed":
                assert found.version is not None
                running.committed(found.version)
                self.note("committed", table=table, job=job, version=found.version, key=None, already=False, ranges={})
        return None

    def is_fenced(self, table: str, job: str) -> bool:
        """Whether gc has given it up: then nobody may know any more what became of it."""
        return int(job.partition("-")[0][1:]) < self.world.table(table, direct=True).snapshot().fence

    def check_own(self, table: str, ranges: dict[str, tuple[int, int]], version: int) -> None:
        """Who was told of a commit sees it from then on."""
        try:
            snapshot = self.table(table).snapshot()
        except mc.errors.StoreError as error:
            return self.failed(error)
        behind = {source: end for source, (_, end) in ranges.items() if int(snapshot.watermarks.get(source, -1)) < end}
        if snapshot.version < version or behind:
            self.violation(f"{table}: version {version} was acknowledged, then the head is {snapshot.version} and lacks {behind}")
        return None

    def check_covered(self, part: Part, error: mc.errors.WatermarkError) -> None:
        """What an error says to be in the table already must be there."""
        if not error.all_covered:
            return
        self.note("covered", table=part.table)
        if self.likely(0.2):
            self.check_own(part.table, part.ranges, 1)


def stumbling(data: pa.Table) -> Iterator[pa.RecordBatch]:
    """All of the rows, and then no end."""
    yield from data.to_batches()
    raise StumbleError
