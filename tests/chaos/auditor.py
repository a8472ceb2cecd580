"""Who looks at the banks while transfers are made: auditors read several of them together, the janitor collects and compacts them."""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa
from tests.chaos.bank import BANKS, Moves, compare_banks, jobs_in
from tests.chaos.committer import Collector
from tests.chaos.history import item
from tests.chaos.world import Actor, NoteReader, Phase, World, die_inside

import manifestcommit as mc


class Auditor(Actor):
    """Whatever happens, banks that are read together hold each transfer in all of them or in none, and what was acknowledged before."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self._heard, self._told = dict[str, Moves](), NoteReader(self.folder)
        self._seen: dict[str, int] = {}
        self._pinned: list[mc.PinnedTable] = []

    def turn(self, phase: Phase) -> None:
        banks = self.dice.sample(BANKS, self.dice.choice((2, 3, 3)))
        direct = not self.world.faulty or self.likely(0.5)
        try:
            self.look(banks, direct)
        except (mc.errors.StoreError, OSError) as error:  # pyarrow's own reading tells what the store said as an OSError
            if direct and not self.has_expired(banks):
                raise
            self.note("unread", banks=banks, error=type(error).__name__)
        self.pause(1.2 if self.world.faulty else 0.4)

    def look(self, banks: list[str], direct: bool) -> None:
        """One version of each, and what is wrong with them together."""
        self.listen()
        self._pinned = []
        joint = self.unique()
        with ExitStack() as stack:
            running = {bank: stack.enter_context(self.record(bank).read("read together")) for bank in banks}
            for each in running.values():
                each.note(joint=joint)
            self._pinned = mc.read_together([self.world.table(bank, direct=direct) for bank in banks])
            versions = {bank: pinned.version for bank, pinned in zip(banks, self._pinned, strict=True)}
            rows = {bank: pinned.to_arrow() for bank, pinned in zip(banks, self._pinned, strict=True)}
            for bank, pinned in zip(banks, self._pinned, strict=True):
                items = [item(job, count) for job, count in jobs_in(rows[bank])]
                running[bank].saw(pinned.version, items=items, watermarks=pinned.watermarks())
        self.judge(versions, rows)

    def listen(self) -> None:
        """What was acknowledged until now."""
        self._heard |= {note["transfer"]: note["moves"] for note in self._told.new() if note["what"] == "transferred"}

    def judge(self, versions: dict[str, int], rows: dict[str, pa.Table]) -> None:
        findings = compare_banks(rows, self._heard)
        behind = {bank: self._seen[bank] for bank, version in versions.items() if version < self._seen.get(bank, 0)}
        findings += [f"read before at {behind}"] if behind else []
        self._seen |= versions
        for each in findings:
            self.violation(f"{versions}: {each}")
        self.note("read together", versions=versions, rows={bank: table.num_rows for bank, table in rows.items()})

    def has_expired(self, banks: list[str]) -> bool:
        """Whether gc has taken a version that this auditor, perhaps stopped for a while, is still reading."""
        expired = (self.world.table(bank, direct=True).snapshot().expired for bank in banks)
        return any(pinned.version < each for pinned, each in zip(self._pinned, expired, strict=False))


class Janitor(Collector):
    """gc, and compaction, without which each read would open a file for every transfer."""

    spared = frozenset[str]()

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        die_inside(self)

    def turn(self, phase: Phase) -> None:
        if self.likely(0.5):
            super().turn(phase)
            return
        bank = self.dice.choice(BANKS)
        try:
            with self.record(bank).commit("compact") as running:
                done = self.table(bank).compact()
                if done.version is not None:
                    running.committed(done.version)
            self.note("compacted", table=bank, groups=done.groups, lost=done.lost_groups)
        except mc.errors.StoreError as error:
            if not self.world.faulty:
                raise
            self.note("failed", error=type(error).__name__)
        except (mc.errors.CommitConflictError, mc.errors.JobFencedError) as error:
            self.note("not compacted", error=type(error).__name__)
        self.pause(1.0)
