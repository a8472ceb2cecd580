"""Writers of a streaming engine that share out vnodes and die: from the table alone each knows what to replay and what its log may forget.

The case is RisingWave's file sink: a log store keeps the rows of every vnode by epoch, a writer owns some vnodes and puts the
rows of several epochs into a file, and who owns which vnode changes with the number of writers. Here each vnode is a source
whose position is the epoch, and the log is truncated for real: a wrong answer of the table loses rows or doubles them. [WM2] [WM4] [IV3]
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
from tests.kit.sizes import at_calls
from tests.kit.tables import all_snapshots, begin, check_table, clone, memory, positions, read_ids, rows, session

import manifestcommit as mc
from manifestcommit.errors import WatermarkGapError, WatermarkOverlapError
from manifestcommit.operations.describe import trace
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import Died, FaultCall, FaultStore

FIRST = 7  # the epoch with which the sink begins
PER_EPOCH, PER_VNODE = 1_000_000, 1000  # a row's id tells its epoch, its vnode and its number


def source(vnode: int) -> str:
    return f"vnode:{vnode}"


class Log:
    """The rows of every vnode by epoch until they are truncated; produced: everything that ever was in it."""

    def __init__(self, vnodes: int) -> None:
        self.kept: list[dict[int, list[int]]] = [{} for _ in range(vnodes)]
        self.produced: list[int] = []
        self.next_epoch = FIRST

    def produce(self, dice: random.Random) -> None:
        """One epoch; some vnodes have no rows in it."""
        for vnode, epochs in enumerate(self.kept):
            count = dice.choice([0, 1, 1, 2])
            epochs[self.next_epoch] = [self.next_epoch * PER_EPOCH + vnode * PER_VNODE + n for n in range(count)]
            self.produced += epochs[self.next_epoch]
        self.next_epoch += 1

    def replay(self, vnode: int, start: int, end: int) -> list[int]:
        """What is still there of [start, end): it does not complain of what is not."""
        return [row for epoch in range(start, end) for row in self.kept[vnode].get(epoch, [])]

    def truncate(self, vnode: int, before: int) -> None:
        self.kept[vnode] = {epoch: kept for epoch, kept in self.kept[vnode].items() if epoch >= before}

    def copy(self) -> Log:
        made = Log(0)
        made.kept = [dict(each) for each in self.kept]
        made.produced, made.next_epoch = list(self.produced), self.next_epoch
        return made


def shares(vnodes: int, writers: int) -> list[list[int]]:
    """Who owns which vnode: runs of neighbours, as even as can be."""
    return [list(range(vnodes * each // writers, vnodes * (each + 1) // writers)) for each in range(writers)]


def stands(store: Store) -> dict[int, int]:
    """Of each vnode the epoch from which it is to be replayed, and before which its log may be truncated."""
    return {int(name.removeprefix("vnode:")): int(position) for name, position in positions(store).items()}


def gather(store: Store, log: Log, own: Iterable[int], until: int, *, after: int = 0) -> mc.Job:
    """A writer up to its checkpoint: it forgets and replays as the table tells it, and writes one file of all its epochs and vnodes.

    after: up to where it has gathered already, in a job that it has not committed.
    """
    job = begin(store)
    found: list[int] = []
    ranges = {}
    marks = stands(store)
    for vnode in own:
        log.truncate(vnode, marks[vnode])
        start = max(marks[vnode], after)
        if start < until:
            ranges[source(vnode)] = (start, until)
            found += log.replay(vnode, start, until)
            job.advance(source(vnode), start, until)
    job.write(rows(found), sources=ranges)
    return job


def checkpoint(store: Store, log: Log, own: Sequence[int], until: int) -> None:
    """A writer's turn: gather, commit with the advances of all its vnodes, forget what was committed."""
    gather(store, log, own, until).commit()
    for vnode in own:
        log.truncate(vnode, until)


def check(store: Store, log: Log, *, every_version: bool = True) -> None:
    """The table has of each vnode exactly the rows before its epoch, each once, and the log still has all the others. [WM1] [IV3]"""
    for head in list(all_snapshots(store)) if every_version else [session(store).open()]:
        marks = head.snapshot.watermarks
        expected = [row for row in log.produced if row // PER_EPOCH < int(marks.get(source(row % PER_EPOCH // PER_VNODE), FIRST))]
        assert read_ids(store, head.version) == sorted(expected), f"version {head.version}"
    marks = positions(store)
    for row in log.produced:
        epoch, vnode = row // PER_EPOCH, row % PER_EPOCH // PER_VNODE
        if epoch >= int(marks.get(source(vnode), FIRST)):
            assert row in log.kept[vnode][epoch], f"a row of {source(vnode)}, epoch {epoch}, is neither in the table nor in the log"


def finish(store: Store, log: Log, owners: Iterable[Sequence[int]]) -> None:
    """Whoever owns the vnodes now brings everything into the table. Then every row is there once, and the log is empty."""
    for own in owners:
        checkpoint(store, log, own, log.next_epoch)
    check(store, log)
    check_table(store)
    assert read_ids(store) == sorted(log.produced)
    assert not any(kept for each in log.kept for kept in each.values())


def begun(vnodes: int, epochs: int = 3, seed: int = 1) -> tuple[MemoryStore, Log]:
    """A table that knows where each vnode begins (a source that it did not know might begin anywhere), and three epochs in the log."""
    store, log = memory(), Log(vnodes)
    with begin(store) as job:
        job.write(rows([]))
        for vnode in range(vnodes):
            job.advance(source(vnode), FIRST, FIRST)
    dice = random.Random(seed)
    for _ in range(epochs):
        log.produce(dice)
    return store, log


def test_a_file_spans_epochs_and_vnodes_and_says_so() -> None:
    """Rows of the epochs 7 to 9 for the vnodes 0 to 63: one file, and every position leads to it. [OB8] [RD9]"""
    store, log = begun(64)
    checkpoint(store, log, range(64), 10)
    (entry,) = session(store).open().snapshot.added
    assert len(entry.sources) == 64 and {(each.start, each.end) for each in entry.sources} == {(7, 10)}
    for vnode, epoch in ((0, 7), (5, 8), (63, 9)):
        found = trace(session(store), source(vnode), epoch)
        assert found is not None and found.exact
        assert [(file.path, file.start, file.end) for file in found.files] == [(entry.path, 7, 10)]
    assert trace(session(store), source(5), 10) is None and trace(session(store), source(5), 6) is None
    finish(store, log, [range(64)])


@pytest.mark.parametrize("late", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["died first", "died second"])
@at_calls
def test_writers_die_before_any_call_and_their_vnodes_change_hands(late: bool, step: int) -> None:
    """Two writers become three: each of them replays and forgets by what the table says of each of its vnodes. [WM2] [WM4] [IV3]"""
    base, full = begun(64)
    old, new = shares(64, 2), shares(64, 3)
    dying, living = old[late], old[not late]
    if late:
        checkpoint(base, full, living, 10)
    calls = FaultStore(clone(base))
    checkpoint(calls, full.copy(), dying, 10)
    starts = set()
    for number in range(1, calls.count + 2, step):
        store, log = clone(base), full.copy()

        def look(call: FaultCall, number: int = number) -> None:
            if call.number >= number:
                raise Died(f"before {call.kind} {call.name}")

        try:
            checkpoint(FaultStore(store, on_call=look), log, dying, 10)
        except Died:
            assert number <= calls.count
        check(store, log)
        starts.add(tuple(sorted({stands(store)[vnode] for vnode in new[1]})))  # the one that has vnodes of both
        log.produce(random.Random(number))
        for own in new:
            checkpoint(store, log, own, 10)
        finish(store, log, new)
    assert starts == ({(7, 10), (10,)} if late else {(7,), (7, 10)}), "the middle one replays some vnodes from 7 and others from 10"


def test_a_zombie_of_the_old_scale_adds_nothing() -> None:
    """It commits after the new owners of some of its vnodes did, or without what it had committed before. [WM2] [CF1]"""
    store, log = begun(8, epochs=6)
    old, new = shares(8, 2), shares(8, 3)
    checkpoint(store, log, old[1], 10)
    stalled = gather(store, log, old[0], 10)
    ahead = gather(store, log, old[0], 13, after=10)  # and its next one, which it did not wait with

    before = session(store).open().version
    with pytest.raises(WatermarkGapError, check=lambda error: (error.have, error.want) == (7, 10)):
        ahead.commit()
    checkpoint(store, log, new[0], 13)  # has some of the zombie's vnodes, not all
    with pytest.raises(WatermarkOverlapError, check=lambda error: error.source in {source(vnode) for vnode in new[0]}):
        stalled.commit()
    assert session(store).open().version == before + 1, "nothing of the zombie's, not even of the vnodes that nobody took over"
    check(store, log)
    finish(store, log, new)


WRONG: list[tuple[int, bool, type[Exception]]] = [
    (1, True, WatermarkGapError),
    (-1, True, WatermarkOverlapError),
    (1, False, AssertionError),
]


@pytest.mark.parametrize(("wrong", "known", "caught"), WRONG)
def test_a_wrong_answer_would_be_seen(wrong: int, known: bool, caught: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Had the table told one epoch too many or too few, its own rule or the check of these tests would find it. [WM2]"""
    store, log = begun(4)
    if not known:
        store = memory()
        with begin(store) as job:
            job.write(rows([]))
    monkeypatch.setattr(f"{__name__}.stands", lambda store: dict.fromkeys(range(4), FIRST + wrong))
    with pytest.raises(caught):
        finish(store, log, [range(4)])
