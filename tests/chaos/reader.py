"""A reader: whatever happens, every version that it reads holds each record below its watermarks exactly once.

Now and then it also asks for the files that a filter leaves, and where a position came from.
"""

import pyarrow as pa
from tests.chaos import questions
from tests.chaos.check import compare, compare_again, compare_batches, compare_jobs, compare_state, last_of
from tests.chaos.history import items_of
from tests.chaos.world import AGAIN, COUNTER, FED, HANDED, KEYED, PARTITIONED, SLOT, Actor, Phase, World

import manifestcommit as mc
from manifestcommit.format.snapshot import Snapshot
from manifestcommit.testing.history.operation import Running


class Reader(Actor):
    """Reads heads and older versions, through the faults and past them."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self._heads: dict[str, int] = {}
        self._version = 0  # that is being read

    def turn(self, phase: Phase) -> None:
        name = self.dice.choice(sorted(PARTITIONED))
        direct = not self.world.faulty or self.likely(0.5)
        try:
            self.look(name, direct)
        except mc.errors.SnapshotExpiredError:
            pass
        except (mc.errors.StoreError, OSError) as error:  # pyarrow's own reading tells what the store said as an OSError
            if direct and not self.has_expired(name):
                raise
            self.note("unread", table=name, error=type(error).__name__)
        self.pause(0.6 if self.world.faulty else 0.1)  # a read of all files is most of the requests to a server

    def look(self, name: str, direct: bool) -> None:
        """One version, and what is wrong with it."""
        with self.record(name).read() as running:
            self._look(name, self.world.table(name, direct=direct), running)

    def _look(self, name: str, table: mc.Table, running: Running) -> None:
        head = table.snapshot()
        if head.version < self._heads.get(name, 0):
            self.violation(f"the head of {name} was {self._heads[name]}, and is {head.version}")
        self._heads[name] = max(head.version, self._heads.get(name, 0))
        older = self.likely(0.5)
        snapshot = table.snapshot(version=self.dice.randint(head.expired, head.version)) if older else head
        self._version = snapshot.version
        if older:
            running.note(at=snapshot.version)
        rows = questions.read(table, snapshot.version)
        running.saw(snapshot.version, items=items_of(table, snapshot.version, rows), watermarks=snapshot.watermarks)
        findings = self.compare(name, table, snapshot, rows)
        if snapshot.totals.rows != rows.num_rows:
            findings.append(f"it says that it has {snapshot.totals.rows} rows, and {rows.num_rows} were read")
        for each in findings:
            self.violation(f"{name} at version {snapshot.version} (head {head.version}): {each}")
        self.note("read", table=name, version=snapshot.version, older=older, rows=rows.num_rows)

    def has_expired(self, name: str) -> bool:
        """Whether gc has taken the version that this reader, perhaps stopped for a while, is still reading."""
        return self._version < self.world.table(name, direct=True).snapshot().expired

    def compare(self, name: str, table: mc.Table, snapshot: Snapshot, rows: pa.Table) -> list[str]:
        """What is wrong with the rows of a version, and with what the library answers to questions about them."""
        marks, findings = snapshot.watermarks, list[str]()
        if name in FED:
            findings += compare(rows, self.log, marks)
        elif name == KEYED:
            findings += compare_batches(rows, self.log)
        elif name == HANDED:
            findings += compare_jobs(rows, table.files(version=snapshot.version).column("job").unique().to_pylist())
        elif name == AGAIN:
            findings += compare_again(rows, marks)
        else:
            findings += compare_state(rows, marks if name == "state" else dict.fromkeys([SLOT + COUNTER][: rows.num_rows], last_of(rows)))
        if rows.num_rows and self.likely(0.4):
            findings += questions.compare_filtered(table, snapshot.version, rows, questions.draw_filter(rows, self.dice))
            self.note("filtered", table=name)
        if name in FED and self.likely(0.1 if self.world.faulty else 0.5):
            for source in sorted(source for source, mark in marks.items() if int(mark) > 0):
                findings += questions.compare_lineage(table, rows, source, self.dice.randrange(int(marks[source])))
                self.note("traced", table=name)
        return findings
