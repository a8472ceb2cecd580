"""A reader: whatever happens, every version that it reads holds each record below its watermarks exactly once."""

from __future__ import annotations

import manifestcommit as mc
from tests.chaos.check import compare, compare_batches, compare_state, last_of
from tests.chaos.world import COUNTER, FED, KEYED, SLOT, Actor, Phase, World


class Reader(Actor):
    """Reads heads and older versions, through the faults and past them."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self._heads: dict[str, int] = {}

    def turn(self, phase: Phase) -> None:
        name = self.dice.choice((*FED, KEYED, COUNTER, "state"))
        direct = not self.world.faulty or self.likely(0.5)
        try:
            self.look(name, direct)
        except mc.SnapshotExpiredError:
            if not self.world.collects:
                raise
        except (mc.StoreError, OSError) as error:  # pyarrow's own reading tells what the store said as an OSError
            if direct:
                raise
            self.note("unread", table=name, error=type(error).__name__)
        self.pause(0.6 if self.world.faulty else 0.1)  # a read of all files is most of the requests to a server

    def look(self, name: str, direct: bool) -> None:
        """One version, and what is wrong with it."""
        table = self.world.table(name, direct=direct)
        head = table.snapshot()
        if head.version < self._heads.get(name, 0):
            self.violation(f"the head of {name} was {self._heads[name]}, and is {head.version}")
        self._heads[name] = max(head.version, self._heads.get(name, 0))
        older = self.likely(0.5)
        snapshot = table.snapshot(version=self.dice.randint(head.expired, head.version)) if older else head
        rows = table.dataset(version=snapshot.version).to_table()
        marks = snapshot.watermarks
        if name in ("state", COUNTER):
            numbers = marks if name == "state" else dict.fromkeys([SLOT + COUNTER][: rows.num_rows], last_of(rows))
            findings = compare_state(rows, numbers)
        else:
            findings = compare_batches(rows, self.log) if name == KEYED else compare(rows, self.log, marks)
        if snapshot.totals.rows != rows.num_rows:
            findings.append(f"it says that it has {snapshot.totals.rows} rows, and {rows.num_rows} were read")
        for each in findings:
            self.violation(f"{name} at version {snapshot.version} (head {head.version}): {each}")
        self.note("read", table=name, version=snapshot.version, older=older, rows=rows.num_rows)
