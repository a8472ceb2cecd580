"""The table whose sources are set back: its slots are brought again, while jobs of every kind that began before are still in flight.

A rewind leaves the rows of a slot, so it is overwritten then; a rollback takes them, so it is appended. An append has no partition
that it replaces and need not have a key: nothing but its advance, and its birth, keeps it from doubling a slot. [WM6] [KY7] [KY8]
"""

import time
import zlib
from typing import Any, Literal

import msgspec
from tests.chaos.history import birth_of, slots_do
from tests.chaos.work import pieces_of
from tests.chaos.worker import StumbleError, Worker
from tests.chaos.world import AGAIN, AGAIN_SOURCES, put_file

import manifestcommit as mc
from manifestcommit.format.snapshot import Snapshot
from manifestcommit.testing.history.operation import UNDONE, Running

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
    """Sets back, and brings again what was set back."""

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
