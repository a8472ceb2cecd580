"""A run that copies topics into tables, killed at every point: data and positions change together or not at all.

The case is the one that Gobblin's commit step store was made for: files of two days, rows of two partitions in each, two
high watermarks, and several datasets that one run feeds. [IV3] [WM2] [WM4] [KY3] [CM10]
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.sizes import rest_thorough
from tests.kit.tables import all_snapshots, begin, check_table, clone, memory, positions, read, session

import manifestcommit as mc
from manifestcommit.errors import ManifestCommitError, OutcomeUnknownError, StoreError
from manifestcommit.operations.describe import trace
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import Died, FaultCall, FaultStore

ENDS = {0: 100, 1: 200}  # the high watermarks of the two partitions
STOOD = {0: 40, 1: 150}  # where an earlier run had come to
NEW_DAY = {0: 90, 1: 180}  # the offsets from which on records are of the second day


class Topic:
    """A log of two partitions that can be read from any offset. fetched: every offset that a run has read from it."""

    def __init__(self, name: str = "My Topic%20=#") -> None:
        self.name = name
        self.fetched: list[tuple[int, int]] = []

    def source(self, partition: int) -> str:
        return f"{self.name}:{partition}"

    def fetch(self, ranges: Mapping[int, tuple[int, int]]) -> pa.Table:
        """One task's rows, of all partitions and days."""
        found = [(partition, offset) for partition, (start, end) in ranges.items() for offset in range(start, end)]
        self.fetched += found
        days = ["2015-12-10" if offset >= NEW_DAY[partition] else "2015-12-09" for partition, offset in found]
        numbers = {"partition": [each for each, _ in found], "offset": [each for _, each in found]}
        return pa.table({**{name: pa.array(values, pa.int64()) for name, values in numbers.items()}, "day": pa.array(days, pa.string())})


def extract(topic: Topic, store: Store, ends: Mapping[int, int]) -> mc.Job | None:
    """Everything of a run but its commit: read where the table stands, and write two tasks' files. None: there is nothing to do."""
    stands = positions(store)
    todo = {each: (int(stands.get(topic.source(each), 0)), end) for each, end in ends.items()}
    todo = {each: (start, end) for each, (start, end) in todo.items() if start < end}
    if not todo:
        return None
    job = begin(store, key=f"{topic.name} {sorted(todo.items())}")
    for each, (start, end) in todo.items():
        job.advance(topic.source(each), start, end)
    halves = {each: (start, (start + end) // 2, end) for each, (start, end) in todo.items()}
    for task in range(2):
        ranges = {each: (points[task], points[task + 1]) for each, points in halves.items()}
        job.write(topic.fetch(ranges), partition_by=["day"], sources={topic.source(each): given for each, given in ranges.items()})
    return job


def ingest(topic: Topic, store: Store, ends: Mapping[int, int] = ENDS) -> mc.Outcome | None:
    """One run of one topic into its table."""
    job = extract(topic, store, ends)
    return None if job is None else job.commit()


def check_every_version(store: Store, topic: Topic) -> None:
    """At each version that was ever visible: of each partition exactly the records below its watermark, each once. [WM1] [IV3]"""
    if next(all_snapshots(store), None) is None:
        return  # no table yet
    for head in all_snapshots(store):
        marks = head.snapshot.watermarks
        table = read(store, head.version)
        found = list(zip(*(table[name].to_pylist() for name in ("partition", "offset")), strict=True)) if marks else []
        expected = [(each, offset) for each in ENDS for offset in range(int(marks.get(topic.source(each), 0)))]
        assert sorted(found) == expected, f"version {head.version} and its watermarks {marks}"
    check_table(store)


def check_done(store: Store, topic: Topic) -> None:
    check_every_version(store, topic)
    assert positions(store) == {topic.source(each): end for each, end in ENDS.items()}


def earlier() -> MemoryStore:
    """A table that an earlier run has brought to where the partitions stood."""
    store = memory()
    ingest(Topic(), store, STOOD)
    return store


BEFORE: dict[str, Callable[[], MemoryStore]] = {"an earlier run": earlier, "no table yet": memory}


class Machine:
    """A process that dies before its n-th call of any of its stores, and makes none from then on. count: of its calls."""

    def __init__(self, dies_at: int | None = None) -> None:
        self._dies_at = dies_at
        self.count = 0

    def over(self, store: Store) -> FaultStore:
        return FaultStore(store, on_call=self._look)

    def _look(self, call: FaultCall) -> None:
        self.count += 1
        if self._dies_at is not None and self.count >= self._dies_at:
            raise Died(f"before call {self.count}, {call.kind} {call.name}")


def calls_of(work: Callable[[Machine], Any]) -> int:
    """How many calls the work takes where nothing goes wrong. Dying before the one after the last is dying after all of them."""
    machine = Machine()
    work(machine)
    return machine.count


def died(work: Callable[[], Any]) -> bool:
    try:
        work()
    except Died:
        return True
    return False


def test_the_case_itself() -> None:
    """Three files of two days, each with rows of both partitions, and each says which ones. [OB8] [RD9]"""
    store, topic = earlier(), Topic()
    outcome = ingest(topic, store)
    assert outcome is not None and outcome.kind == "committed"
    head = list(all_snapshots(store))[-1].snapshot
    new = [entry for entry in head.added if entry.added == head.version]
    assert sorted(entry.partition[0] for entry in new) == ["2015-12-09", "2015-12-09", "2015-12-10"]
    assert all(len(entry.sources) == 2 for entry in new)
    found = trace(session(store), topic.source(1), 160)
    assert found is not None and found.exact and [(file.start, file.end) for file in found.files] == [(150, 175)]
    check_done(store, topic)


@pytest.mark.parametrize("before", rest_thorough(BEFORE, next(iter(BEFORE))))
def test_killed_before_any_call_the_next_run_redoes_exactly_what_is_missing(before: str) -> None:
    """[IV3] [WM2] [WM4] [CM3]"""
    base = BEFORE[before]()
    total = calls_of(lambda machine: ingest(Topic(), machine.over(clone(base))))
    landed = 0
    for number in range(1, total + 2):
        store, dead, next_run = clone(base), Topic(), Topic()
        assert died(lambda: ingest(dead, Machine(number).over(store))) is (number <= total)  # noqa: B023  # called at once
        stood = {each: int(positions(store).get(next_run.source(each), 0)) for each in ENDS}
        assert stood in ({each: STOOD[each] if before == "an earlier run" else 0 for each in ENDS}, ENDS)
        landed += stood == ENDS
        check_every_version(store, next_run)
        again = ingest(next_run, store)
        assert sorted(next_run.fetched) == [(each, offset) for each in ENDS for offset in range(stood[each], ENDS[each])]
        assert (again is None) is (stood == ENDS)
        check_done(store, next_run)
    assert 2 <= landed < total, "some deaths came after the create, most before it"


@pytest.mark.thorough
def test_a_rerun_that_does_not_look_is_told_by_its_key() -> None:
    """An orchestrator that starts the very same run again, whatever became of the first. [KY3] [KY5] [IV3]"""
    base = earlier()
    ranges = {each: (STOOD[each], ENDS[each]) for each in ENDS}

    def the_same_run(store: Store) -> mc.Outcome:
        topic = Topic()
        with begin(store, key="run of 2015-12-10") as job:
            for each, (start, end) in ranges.items():
                job.advance(topic.source(each), start, end)
            if not job.already_committed:
                job.write(topic.fetch(ranges), partition_by=["day"])
        assert job.outcome is not None
        return job.outcome

    total = calls_of(lambda machine: the_same_run(machine.over(clone(base))))
    for number in range(1, total + 1):
        store = clone(base)
        assert died(lambda: the_same_run(Machine(number).over(store)))  # noqa: B023  # called at once
        landed = positions(store)[Topic().source(0)] == ENDS[0]
        first, second = the_same_run(store), the_same_run(store)
        assert first.already_committed is landed and second.already_committed and second.version == first.version
        check_done(store, Topic())


# --- several datasets that one run feeds --------------------------------------------------------------------------------
def run_of(*parts: tuple[Topic, Store]) -> dict[str, mc.Outcome | ManifestCommitError]:
    """One run that feeds each topic's table; one that fails holds up no other: URL of a table -> what became of it."""
    told: dict[str, mc.Outcome | ManifestCommitError] = {}
    for topic, store in parts:
        try:
            job = extract(topic, store, ENDS)
            if job is not None:
                told[store.url] = job.commit()
        except ManifestCommitError as error:
            told[store.url] = error
    return told


def two() -> tuple[tuple[Topic, MemoryStore], tuple[Topic, MemoryStore]]:
    """The same as ever, and a dataset of another topic that is new."""
    return (Topic(), earlier()), (Topic("other"), memory())


@pytest.mark.thorough
def test_one_run_that_feeds_two_tables_is_killed_before_any_call() -> None:
    """Each table is whole at any time, whatever became of the other; the next run does what is missing in each. [IV3] [CM10]"""
    parts = two()
    total = calls_of(lambda machine: run_of(*((topic, machine.over(clone(store))) for topic, store in parts)))
    seen = set()
    for number in range(1, total + 2):
        stores = [clone(store) for _, store in parts]
        topics = [topic for topic, _ in two()]
        machine = Machine(number)
        died(lambda: run_of(*((topic, machine.over(store)) for topic, store in zip(topics, stores, strict=True))))  # noqa: B023
        for topic, store in zip(topics, stores, strict=True):
            check_every_version(store, topic)
        done = [positions(store).get(topic.source(0)) == ENDS[0] for topic, store in zip(topics, stores, strict=True)]
        seen.add(tuple(done))
        again = [Topic(topic.name) for topic in topics]
        told = run_of(*zip(again, stores, strict=True))
        assert len(told) == done.count(False) and all(isinstance(each, mc.Outcome) for each in told.values())
        assert [bool(topic.fetched) for topic in again] == [not each for each in done], "only what is missing is read again"
        for topic, store in zip(topics, stores, strict=True):
            check_done(store, topic)
    assert seen == {(False, False), (True, False), (True, True)}


def creates(call: FaultCall) -> bool:
    return call.kind == "put_if_absent" and "/versions/" in call.name


def broken(store: Store, what: Callable[[FaultCall], bool], error: type[StoreError], *, since: str) -> FaultStore:
    """A store that fails such calls for good, once it has had a first call of the kind `since`."""
    calls: list[str] = []

    def look(call: FaultCall) -> None:
        calls.append(call.kind)
        if since in calls and what(call):
            raise error(f"{call.kind} {call.name}: by the test")

    return FaultStore(store, on_call=look)


FOR_GOOD: dict[str, tuple[Callable[[FaultCall], bool], type[StoreError], str, type[ManifestCommitError]]] = {
    "refuses everything after the files": (lambda call: True, StoreError, "put_if_absent", StoreError),
    "refuses creates": (creates, StoreError, "get", StoreError),
    "does not answer creates": (creates, mc.errors.StoreUnclearError, "get", OutcomeUnknownError),
}


@pytest.mark.parametrize("how", FOR_GOOD)
@pytest.mark.parametrize("comes_first", [True, False])
def test_a_dataset_that_keeps_failing_holds_up_no_other_and_is_the_only_one_to_be_done_again(how: str, comes_first: bool) -> None:
    """[CM10] [CM8] [KY3]"""
    what, error, since, expected = FOR_GOOD[how]
    (topic, store), (other, beside) = two()
    faulty = broken(store, what, error, since=since)
    parts: list[tuple[Topic, Store]] = [(topic, faulty), (other, beside)]
    told = run_of(*(parts if comes_first else reversed(parts)))
    assert isinstance(told[store.url], expected) and isinstance(told[beside.url], mc.Outcome)
    assert sum(creates(call) for call in faulty.calls) <= 10, "a bounded number of creates"
    check_every_version(store, topic)
    assert positions(store) == {topic.source(each): stood for each, stood in STOOD.items()}
    check_done(beside, other)

    again, other_again = Topic(), Topic("other")
    told = run_of((again, store), (other_again, beside))
    assert [*told] == [store.url] and isinstance(told[store.url], mc.Outcome)
    assert again.fetched and not other_again.fetched
    check_done(store, topic)
    check_done(beside, other)
