"""Changers: add, update, delete, merge and overwrite rows of one table, each change under a key, until it is known to be committed.

Watchers compare what they read with a replay of all changes; the sweeper compacts and collects meanwhile. All of them are killed at
random moments, and right before and after versions are created.
"""

import msgspec
from tests.chaos.changes import TABLE, Change, Replay, carry_out, draw_change
from tests.chaos.work import Board
from tests.chaos.world import DyingActor, NoteReader, Phase, World

import manifestcommit as mc

_RERUNS = 25
_KEPT = 40  # versions that a watcher can compare


class Changer(DyingActor):
    """Several of them, in the same partitions: who meets another one's commit does it again."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self.board = Board(self.folder, name, Change)
        self._count = 0

    def turn(self, phase: Phase) -> None:
        unfinished = self.board.own()
        try:
            if unfinished:
                for change in unfinished:
                    self.note("rerun", table=TABLE, key=change.key)
                    self.persist(change)
                self.board.clear()
            elif phase == "drain":
                self.pause(0.2)
            else:
                self.work()
                self.pause(0.6 if self.world.faulty else 0.3)
        except mc.errors.StoreError as error:  # while nothing of it had been sent that counts
            self.failed(error)

    def work(self) -> None:
        """A new change, or what somebody else is doing right now, or was doing when it died: the same key, the same change."""
        others = self.board.others()
        if others and self.likely(0.2):
            change = self.dice.choice(others)
            self.note("twin", table=TABLE, key=change.key)
        else:
            self._count += 1
            there = self.table(TABLE).to_arrow(columns=["id", "shelf"])
            by_id = dict(zip(there["id"].to_pylist(), there["shelf"].to_pylist(), strict=True))
            change = draw_change(f"{self.name}.{self.incarnation}/{self._count}", self.dice, by_id)
            self.note("changing", change=msgspec.to_builtins(change))
        self.board.put([change])
        self.persist(change)
        self.board.clear()

    def persist(self, change: Change) -> None:
        """The same key again until it is known to be committed: nothing refuses it for good."""
        for tried in range(_RERUNS):
            if tried:
                self.pause(0.1 * tried)
            if self.attempt(change):
                return
        self.violation(f"{change.kind} {change.key!r} did not get through in {_RERUNS} attempts")

    def attempt(self, change: Change) -> bool:
        try:
            version, already = carry_out(self.world.urls[TABLE], self.world.options, change)
        except (mc.errors.CommitConflictError, mc.errors.JobFencedError, mc.errors.DataFileMissingError) as error:
            self.note("conflict", error=type(error).__name__, kind=change.kind)
            return False
        except mc.errors.OutcomeUnknownError as error:
            if not self.world.faulty:
                self.violation(f"a store without faults gave no answer to job {error.job_id}")
            self.note("unknown", table=TABLE, job=error.job_id)
            return False
        except mc.errors.StoreError as error:
            self.failed(error)
            return False
        self.maybe_die("committed, and nobody was told", 0.03)
        self.note("changed", key=change.key, version=version, already=already, kind=change.kind)
        return True


class Watcher(DyingActor):
    """Whatever happens, each version holds what the changes up to it do, one after the other."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self._replay, self._notes_of_all = Replay(), NoteReader(self.folder)

    def turn(self, phase: Phase) -> None:
        direct = not self.world.faulty or self.likely(0.5)
        try:
            self.look(self.world.table(TABLE, direct=direct))
        except (mc.errors.StoreError, OSError) as error:  # pyarrow's own reading tells what the store said as an OSError
            if direct:
                raise
            self.note("unread", error=type(error).__name__)
        self.pause(1.0 if self.world.faulty else 0.4)

    def look(self, table: mc.Table) -> None:
        head = table.version
        self._replay.learn(list(self._notes_of_all.new()))  # after the head, so that all that is in it was noted before
        while self._replay.version < head:
            commits = table.snapshot(version=self._replay.version + 1).commits
            self._replay.follow([commit.key for commit in commits], keep=_KEPT)
        version = self.dice.randint(max(1, head - _KEPT + 1), head) if self.likely(0.5) else head
        rows = table.to_arrow(version=version)
        for each in self._replay.compare(version, rows):
            self.violation(f"{each} (head {head})")
        self.note("read", table=TABLE, version=version, rows=rows.num_rows)


class Sweeper(DyingActor):
    """Compaction, which no change may meet unharmed, and gc, which fences and deletes, but expires nothing: all of it is compared."""

    def turn(self, phase: Phase) -> None:
        try:
            if self.likely(0.5):
                done = self.table(TABLE).compact()
                self.note("compacted", table=TABLE, groups=done.groups, lost=done.lost_groups)
            else:
                grace = self.dice.choice(("0s", "1s", "3s")) if phase == "run" else "3s"
                mc.gc(self.world.urls[TABLE], grace=grace, keep_versions=1_000_000, storage_options=self.world.options)
                self.note("collected", table=TABLE)
        except mc.errors.StoreError as error:
            self.failed(error)
        except (mc.errors.CommitConflictError, mc.errors.JobFencedError, mc.errors.OutcomeUnknownError) as error:
            self.note("not swept", error=type(error).__name__)
        self.pause(1.5)
