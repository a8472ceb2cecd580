"""Several jobs open at once, beside everything that moves a table, against a model that was written from the specification alone.

In memory and on a disk; any call may be a process' last one. [CM17] [RC1] [RD2] [RD4] [RD8] [SC6] [GC11]
[CM1] [CM2] [CM10] [CM21] [CM23] [KY2] [KY3] [KY4] [KY6] [CF2]-[CF13] [WM2] [WM5] [AB3] [AB4] [AB5] [AB6] [GC1] [GC2] [GC8] [GC10]

reference.py says what each call may answer and what the table holds after it; here the calls are made, and both are compared.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.kit.faults import put_intent
from tests.kit.sizes import budgets, rounds
from tests.kit.tables import begin, change_of, check_head, rewrite_here, session
from tests.stateful.lengths import in_two_lengths
from tests.stateful.reference import ANY, Advance, Batch, Day, Job, Position, Reference, Row, Touched

import manifestcommit as mc
from manifestcommit.errors import CommitConflictError, ManifestCommitError, SnapshotExpiredError, WatermarkError
from manifestcommit.format import object_names
from manifestcommit.format.change import StreamBatch
from manifestcommit.log.version_chain import open_head, read_object
from manifestcommit.operations import gc
from manifestcommit.operations.compaction import CompactionOptions, compact
from manifestcommit.operations.rollback import rollback
from manifestcommit.protocol.conflict import FINAL
from manifestcommit.protocol.retention import Policy
from manifestcommit.store import Store, open_store
from manifestcommit.testing.faults import Died, FaultStore

DAYS: list[Day] = ["a", "", "x=y/z %é", None]
KEYS = ["k1", "k 2%+=#'é", "k3"]
NAMES = ["x", "Y y", "é"]
SOURCES = ["s", "n é", "t"]
TAGS = ["t", "a tag 'é'"]
KINDS = ["append", "append", "append", "append", "dynamic", "static", "all"]
SMALL = {"inline_entry_bytes": 1200, "inline_keys": 1, "inline_jobs": 2, "inline_removed_bytes": 8, "fan_in": 2}  # everything spills [CM12]
REWRITES = {"replace", "rollback", "update", "delete", "merge", "overwrite"}  # files come whose rows were there before
DAY_FOLDERS = {"a": "day=a", "x=y/z %é": "day=x%3Dy%2Fz %25é", None: "day=__HIVE_DEFAULT_PARTITION__"}
Death = tuple[int, bool] | None  # at which call a process dies, and whether after its effect
DEATHS: st.SearchStrategy[Death] = st.none() | st.tuples(st.integers(1, 40), st.booleans())
MARK_IS_REMOVED = {f"conflict {name}_was_{what}" for name, what in [("partition", "touched"), ("source", "set_back"), ("key", "set_back")]}
DECLARES_SOURCES = "sources" in inspect.signature(mc.create_table).parameters


def told(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call says, in one word or two, and its outcome or error."""
    try:
        outcome = call()
    except CommitConflictError as error:
        return f"conflict {error.rule}", error
    except ManifestCommitError as error:
        return type(error).__name__, error
    kind = {"committed": "committed", "already_committed": "already"}[outcome.kind]
    return f"{kind} {outcome.version}", outcome


def comes_before(one: Advance, other: Advance) -> bool:
    """Whether, of two advances of a source, one has to be committed before the other. [WM7]"""
    start, end, next_start = one[1], one[2], other[1]
    if isinstance(end, int) and isinstance(next_start, int):
        return start is None or (isinstance(start, int) and start < next_start)
    return isinstance(end, str) and end == next_start


def tried(call: Callable[[], Any]) -> tuple[Any, ManifestCommitError | None]:
    """What a call returns, or the error that it raises."""
    try:
        return call(), None
    except ManifestCommitError as error:
        return None, error


@contextlib.contextmanager
def dying(url: str, at: int, after: bool) -> Iterator[Store]:
    """The table for a process that dies at its n-th call, before or after its effect."""
    with contextlib.suppress(Died):
        yield FaultStore(open_store(url), {at: "dies_after" if after else "dies_before"})


@dataclass
class Plan:
    """What a job is to do, as drawn."""

    key: str | None
    fingerprint: str | None
    kind: str
    day: Day
    mode: str
    advances: list[Advance]
    rows: list[Row]
    columns: dict[int, str]
    adds: dict[int, str]
    path: str | None
    batch: Batch | None


class Model(RuleBasedStateMachine):
    """handles: the jobs whose process still runs, by id; files: what something else wrote below the root; rewritten: versions in which
    files came whose rows were there before."""

    local = False

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(budgets(**SMALL))
        folder = self.stack.enter_context(tempfile.TemporaryDirectory()) if self.local else ""
        self.url = f"{folder}/a table" if self.local else f"memory://{secrets.token_hex(8)}"
        self.adopted, self.rewritten = False, set[int]()
        self.store = open_store(self.url)
        self.ref = Reference()
        self.handles: dict[str, mc.Job] = {}
        self.begun: list[mc.Job] = []
        self.declared: dict[str, Plan] = {}
        self.files: dict[str, Row] = {}
        self.numbers = iter(range(1, 1_000_000))
        self.table: mc.Table

    def teardown(self) -> None:
        for handle in self.begun:
            with contextlib.suppress(ManifestCommitError):
                handle.abort()
        if self.ref.version:
            check_head(self.store)
            report = self.table.verify(deep=True)
            assert report.is_sound, report.findings
            assert self.table.verify().is_sound
        self.stack.close()

    @initialize(declared=st.sampled_from([None, {}, {}, {"s": 0}, {"s": 3, "n é": None}]))
    def create(self, declared: dict[str, Position] | None) -> None:
        """With sources; or of somebody's folder, without."""
        if declared is None:
            return self.adopt()
        schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
        more: dict[str, Any] = {"sources": declared} if DECLARES_SOURCES and declared else {}
        if more:
            self.ref.now.marks, self.ref.now.origins = dict(declared), dict(declared)
        self.table = mc.create_table(self.url, schema, partition_by=["day"], **more)
        self.ref.seal()

    def adopt(self) -> None:
        self.adopted = True
        for day, folder in DAY_FOLDERS.items():
            number = next(self.numbers)
            row = Row(number, day, path=f"{folder}/é {number}.parquet")
            self.put_file(row, ["id"])
            self.ref.now.rows.append(row)
        self.table = mc.Table(self.url)
        assert self.table.adopt(partition_by=["day"]).version == 2
        assert self.table.adopt().already_adopted
        self.ref.seal()
        self.ref.states[1].rows = []
        self.ref.seal(Touched(frozenset(DAY_FOLDERS)))

    def put_file(self, row: Row, columns: list[str]) -> None:
        assert row.path is not None
        sink = pa.BufferOutputStream()
        pq.write_table(self.arrow([row], {}).select(columns), sink)
        self.store.put(row.path, sink.getvalue().to_pybytes())

    # --- what happened ---------------------------------------------------------------------------------------------------

    def absorb(
        self, effect: Callable[[], None] | None = None, *, operation: str = "", watched: Sequence[Job] = (), giving_up: bool = False
    ) -> dict[str, set[str]]:
        """Follow the versions since the last look. Each is a job's, which has to be one that may commit there; or the effect of this
        call's own operation; or gives a job up. Returns what the watched jobs could have been told meanwhile."""
        could: dict[str, set[str]] = {job.id: self.ref.answers(job) for job in watched}
        for version in range(self.ref.version + 1, open_head(self.store).version + 1):
            found = read_object(self.store, version)
            assert found is not None
            carried = [self.ref.jobs[each.job] for each in found.snapshot.commits if each.job in self.ref.jobs]
            for job in carried:
                assert any(each.startswith("committed") for each in self.ref.answers(job)), (version, job, self.ref.answers(job))
                assert job.id not in self.ref.decided, f"{job} twice"
                self.ref.apply(job, version, seal=False)
            if carried:
                assert len(carried) == len(found.snapshot.commits)
                self.ref.seal(self.ref.touched[version])
            else:
                (record,) = found.snapshot.commits
                if record.operation == "give_up":
                    assert giving_up, record
                    self.ref.seal()
                else:
                    assert record.operation == operation and effect is not None, record
                    effect()
                    self.rewritten |= {version} if operation in REWRITES else set()
            assert self.ref.version == version
            for job in watched:
                could[job.id] |= self.ref.answers(job)
        return could

    def note_given_up(self, may: set[str]) -> None:
        """Those of these that were given up, which anyone may do. [AB4]"""
        for each in may:
            if self.table.resolve(each) == "aborted":
                self.ref.decided[each] = None

    def waiting(self, keys: set[str], sources: set[str]) -> set[str]:
        return {
            job.id
            for job in self.ref.jobs.values()
            if job.left == "published" and job.id not in self.ref.decided and job.birth >= self.ref.fence
            if job.key in keys or sources & {source for source, _, _ in job.advances}
        }

    def check(self, job: Job, allowed: set[str], said: str, result: Any) -> None:
        """Whether the answer is one of those, and tells the truth."""
        state = f"{said} is none of {sorted(allowed)}: {result!r} for {job} at version {self.ref.version}"
        word = said.split(" ")[0]
        if word in ("committed", "already"):
            assert said in allowed or word in allowed, state
        else:
            assert said in allowed or ANY in allowed, state
        if isinstance(result, WatermarkError) and job.batch is None:
            mismatches = self.ref.mismatches(job)
            assert mismatches.get(result.source) == (result.have, result.want), (state, mismatches)
            assert result.all_covered in self.ref.covered(job), (state, result.all_covered)

    # --- plans -------------------------------------------------------------------------------------------------------------

    def draw_advances(self, data: st.DataObject) -> list[Advance]:
        found: list[Advance] = []
        for _ in range(data.draw(st.sampled_from([0, 1, 1, 1, 2]))):
            source = data.draw(st.sampled_from(SOURCES))
            mine = [end for name, _, end in found if name == source]
            waiting = [
                end for job in self.ref.jobs.values() if job.id not in self.ref.decided for name, _, end in job.advances if name == source
            ]
            known: list[Position] = [self.ref.now.marks[source]] * 3 if source in self.ref.now.marks else []
            firsts: dict[str, list[Position]] = {"s": [0, 3], "n é": [None], "t": [None, "t0"]}
            first = firsts[source]
            start = mine[-1] if mine else data.draw(st.sampled_from([*known, *waiting[-3:], *first]))
            end: Position = (
                f"t{next(self.numbers)}" if source == "t" else (start if isinstance(start, int) else 0) + data.draw(st.integers(1, 3))
            )
            found.append((source, start, end))
        return found

    def draw_plan(self, data: st.DataObject, *, recoverable: bool = False, batch: Batch | None = None) -> Plan:
        key = data.draw(st.sampled_from(KEYS if recoverable else [None, *KEYS])) if batch is None else None
        kind = data.draw(st.sampled_from(KINDS)) if batch is None else "append"
        day = data.draw(st.sampled_from(DAYS))
        plan = Plan(key, None, kind, day, "serializable", [], [], {}, {}, None, batch)
        if kind != "append":
            plan.mode = data.draw(st.sampled_from(["serializable", "serializable", "blind", "fail"]))
        before = self.declared.get(key) if key is not None else None
        if before is not None and data.draw(st.sampled_from([True, True, True, False])):
            plan.kind, plan.day, plan.mode, plan.fingerprint, plan.advances = (
                before.kind,
                before.day,
                before.mode,
                before.fingerprint,
                before.advances,
            )
            if recoverable:
                plan.fingerprint = "f"
        elif batch is None:
            plan.advances = self.draw_advances(data)
            plan.fingerprint = "f" if recoverable else None if key is None else data.draw(st.sampled_from([None, None, "f"]))
        days = data.draw(st.lists(st.sampled_from(DAYS), max_size=3))
        if plan.kind == "static":
            days = [plan.day] * len(days)
        plan.columns = dict(self.ref.now.columns) if data.draw(st.sampled_from([True, True, plan.kind == "all", False])) else {}
        if not recoverable and days:
            taken = {name.lower() for name in self.ref.now.columns.values()}
            free = [name for name in NAMES if name.lower() not in taken]
            if free and batch is None and data.draw(st.sampled_from([False, False, False, True])):
                plan.adds = {next(self.numbers): data.draw(st.sampled_from(free))}
        for each in days:
            number = next(self.numbers)
            values = tuple((column, f"{column} of {number}") for column in plan.columns | plan.adds)
            plan.rows.append(Row(number, each, values))
        if plan.kind == "append" and batch is None and not recoverable and data.draw(st.sampled_from([False, False, False, True])):
            plan.path = self.draw_file(data)
        if key is not None:
            self.declared[key] = plan
        return plan

    def draw_file(self, data: st.DataObject) -> str | None:
        """A file that something else wrote: a new one, or one that was added before."""
        there = sorted(self.files.keys() & {info.name for info in self.store.list("from elsewhere/")})
        again = data.draw(st.booleans())
        if there and again:
            return str(data.draw(st.sampled_from(there)))
        number = next(self.numbers)
        name = f"from elsewhere/{number} é.parquet"
        self.files[name] = Row(number, data.draw(st.sampled_from(DAYS)), path=name)
        self.put_file(self.files[name], ["id", "day"])
        return name

    def arrow(self, rows: list[Row], columns: dict[int, str]) -> pa.Table:
        schema = pa.schema([("id", pa.int64()), ("day", pa.string())] + [(name, pa.string()) for name in columns.values()])
        found = [{"id": row.id, "day": row.day} | {columns[column]: value for column, value in row.values} for row in rows]
        return pa.Table.from_pylist(found, schema=schema)

    # --- jobs --------------------------------------------------------------------------------------------------------------

    def begin(self, plan: Plan, *, recoverable: bool = False) -> Job | None:
        """Begin and fill a job; None: it was refused while it was filled."""
        ref = self.ref
        running = ref.resumable(plan.key) if recoverable and plan.key is not None else []
        handle = mc.begin(self.url, key=plan.key, fingerprint=plan.fingerprint, recoverable=recoverable)
        self.begun.append(handle)
        done = ref.now.keys.get(plan.key) if plan.key is not None else None
        assert handle.already_committed == (done is not None), (plan.key, done)
        job = self.modelled(handle, plan, running, recoverable=recoverable)
        # What is known before any work MAY be told before it; but not a gap, which another job may close until this one commits.
        early = self.ref.answers(job) - {"committed", "WatermarkGapError"}
        if plan.path is not None and plan.path in ref.now.paths:
            early.add(ANY)  # AF1: anything else is refused before the commit
        lacks = plan.kind == "all" and job.done is None and not ref.now.columns.keys() <= plan.columns.keys()
        early |= {"SchemaMismatchError"} if lacks else set()  # its rows would be null in a whole column [SC8]
        _, error = tried(lambda: self.fill(handle, plan))
        if error is not None:
            said = f"conflict {error.rule}" if isinstance(error, CommitConflictError) else type(error).__name__
            assert said in early or ANY in early, (said, error, plan)
            handle.abort()
            if job.left == "running" and job.id not in ref.jobs:
                # Whether its mark is there already is not told: it is created before the first write [AB6].
                job.left = "running" if mc.begin(self.url, key=plan.key, fingerprint="f", recoverable=True).id == job.id else ""
                ref.jobs[job.id] = job
            return None
        assert not lacks, plan
        ref.jobs[job.id] = job
        self.handles[job.id] = handle
        return job

    def fill(self, handle: mc.Job, plan: Plan) -> None:
        if plan.batch is not None:
            handle._job.take_batch(StreamBatch(name=plan.batch.name, query=plan.batch.query, batch=plan.batch.number))
        if plan.kind != "append":
            chosen: Any = {"dynamic": "dynamic", "static": {"day": plan.day}, "all": None}[plan.kind]
            handle.overwrite(chosen, conflict=plan.mode)  # type: ignore[arg-type]
        for source, start, end in plan.advances:
            handle.advance(source, start, end)  # type: ignore[arg-type]
        size = 1_000_000 + next(self.numbers)  # another write each time: the rows of a recoverable job's runs are not the same [AB6]
        handle.write(self.arrow(plan.rows, plan.columns | plan.adds), merge_schema=bool(plan.adds), target_file_size=size)
        if plan.path is not None:
            handle.add_files([plan.path])

    def modelled(self, handle: mc.Job, plan: Plan, running: list[Job], *, recoverable: bool) -> Job:
        """The model's job for it."""
        ref, birth = self.ref, self.ref.version
        done = ref.now.keys.get(plan.key) if plan.key is not None else None
        if recoverable and done is None:
            birth = max((job.birth for job in running), default=birth)
            assert not running or handle.id in {job.id for job in running if job.birth == birth}, (handle.id, running)
        made = object_names.parse_job_id(handle.id)
        assert made is not None and made.birth == birth, (handle.id, birth)
        job = Job(
            handle.id, birth, plan.key, plan.fingerprint, plan.kind, plan.day, plan.mode, plan.advances, list(plan.rows), batch=plan.batch
        )
        job.done = done
        if plan.rows:
            job.took = set(plan.columns)
            job.perhaps_took = ref.states[birth].columns.keys() - job.took
            job.adds = dict(plan.adds)
        else:
            job.perhaps_took = set(plan.columns)  # whether data without a row has columns that can conflict is not told [CF8]
        if plan.path is not None:
            job.rows.append(self.files[plan.path])
        if recoverable and done is None:
            job.left = "running"
        return job

    def commit_who_was_set_back(self, data: st.DataObject) -> None:
        """One that is open now and began before: by itself, or prepared and then by anyone."""
        touched = [
            each for each in self.open_jobs() if self.ref.jobs[each].advances or self.ref.jobs[each].key or self.ref.jobs[each].batch
        ]
        if touched and data.draw(st.booleans()):
            chosen = data.draw(st.sampled_from(touched))
            self.commit_it(self.handles[chosen], self.ref.jobs[chosen])

    def open_jobs(self) -> list[str]:
        return sorted(self.handles, key=lambda each: list(self.ref.jobs).index(each))

    def draw_open(self, data: st.DataObject) -> tuple[mc.Job, Job]:
        chosen = data.draw(st.sampled_from(self.open_jobs()))
        return self.handles[chosen], self.ref.jobs[chosen]

    @rule(data=st.data(), recoverable=st.sampled_from([False, False, False, True]))
    def begin_job(self, data: st.DataObject, recoverable: bool) -> None:
        """Sometimes somebody does the same work at once, and is faster."""
        if len(self.handles) < 6:
            plan = self.draw_plan(data, recoverable=recoverable)
            job = self.begin(plan, recoverable=recoverable)
            if job is not None and plan.key is not None and not recoverable and data.draw(st.booleans()):
                faster = self.begin(replace(plan, rows=[], adds={}, path=None, columns=dict(self.ref.now.columns)))
                if faster is not None:
                    self.commit_it(self.handles[faster.id], faster)

    @rule(data=st.data())
    def write_now(self, data: st.DataObject) -> None:
        job = self.begin(self.draw_plan(data))
        if job is not None:
            self.commit_it(self.handles[job.id], job)

    @rule(data=st.data(), at_once=st.booleans())
    def begin_batch(self, data: st.DataObject, at_once: bool) -> None:
        """A batch of a stream: mostly the next one, as its query's checkpoint goes on. [KY6]"""
        name, query = data.draw(st.sampled_from(["flights", "é n"])), data.draw(st.sampled_from(["q1", "q1", "q2"]))
        last = [number for each, number, _ in self.ref.now.streams.values() if each == query]
        number = max(0, max(last, default=-1) + data.draw(st.sampled_from([1, 1, 1, 0, 2, -1])))
        job = self.begin(self.draw_plan(data, batch=Batch(name, query, number)))
        if job is not None and at_once:
            self.commit_it(self.handles[job.id], job)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.commit_it(*self.draw_open(data))

    def commit_it(self, handle: mc.Job, job: Job) -> None:
        allowed = self.ref.answers(job)
        self.ended(job)
        said, result = told(handle.commit)
        if said.startswith("already") and job.batch is not None and "already" in allowed:
            said = "already"
        self.check(job, allowed, said, result)
        self.settle(job, said)

    def ended(self, job: Job) -> None:
        """The process that began it does no more for it."""
        del self.handles[job.id]
        job.tried = True

    def settle(self, job: Job, said: str) -> None:
        self.absorb(giving_up=True)
        if said.startswith("committed"):
            assert said == f"committed {self.ref.decided[job.id]}", (said, job)
        elif job.id not in self.ref.decided and not job.birth < self.ref.fence and self.table.resolve(job.id) == "aborted":
            assert job.left in ("", "published"), f"{job} was given up for nothing"
            self.ref.decided[job.id] = None  # it was published, before it was begun or by its own process [CM21]
        if said in MARK_IS_REMOVED and job.left == "running":
            job.left = ""  # the mark is removed [AB6]

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def prepare(self, data: st.DataObject) -> None:
        handle, job = self.draw_open(data)
        if job.batch is not None or job.id in self.ref.decided:
            return
        self.ended(job)
        found, error = tried(handle.prepare)
        if error is not None:
            assert job.birth < self.ref.fence, (error, job)
            return
        assert found == job.id
        job.left = "prepared"

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        """Its process asks others to commit it, and dies. [CM19]"""
        handle, job = self.draw_open(data)
        if job.kind != "append" or job.adds or job.batch or job.done or job.left or any(row.path for row in job.rows):
            return
        self.ended(job)
        put_intent(self.store, change_of(handle))
        job.left = "published"

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Its process dies, or gives up."""
        handle, job = self.draw_open(data)
        self.ended(job)
        handle.abort()

    @rule(data=st.data(), death=st.tuples(st.integers(1, 16), st.booleans()))
    def die_writing(self, data: st.DataObject, death: tuple[int, bool]) -> None:
        """The old state or the new one, and the key tells which. [CM17]"""
        key, kind = data.draw(st.sampled_from([None, *KEYS])), data.draw(st.sampled_from(["append", "dynamic"]))
        if key in self.ref.now.keys:
            return
        rows = [Row(next(self.numbers), day) for day in data.draw(st.lists(st.sampled_from(DAYS), max_size=3))]
        plan = Plan(key, None, kind, None, "serializable", [], rows, {}, {}, None, None)
        with dying(self.url, *death) as store:
            handle = begin(store, key)
            job = self.modelled(handle, plan, [], recoverable=False)
            self.ref.jobs[job.id], job.tried = job, True
            self.fill(handle, plan)
            handle.commit()
        self.absorb()

    # --- rows --------------------------------------------------------------------------------------------------------------

    def change_rows(self, change: Callable[[], mc.RowOutcome], after: list[Row], operation: str) -> mc.RowOutcome:
        """Whatever it has done, the table holds these rows now; where none had to change, there is no version for it. [RC1]"""
        before, outcome = self.ref.now.rows, change()

        def effect() -> None:
            days = frozenset(row.day for row in {*before} ^ {*after})
            self.ref.now.rows = self.without_former_paths(after)
            self.ref.seal(Touched(days, "all"))  # how much more its patterns cover is not told [OB10]

        if outcome.kind == "unchanged":
            assert {*before} == {*after}
        self.absorb(effect, operation=operation)
        return outcome

    @rule(day=st.sampled_from(DAYS), odd=st.integers(0, 2))
    def delete_rows(self, day: Day, odd: int) -> None:
        gone = [row for row in self.ref.now.rows if row.day == day and row.id % 3 == odd]
        condition = pc.field("id").isin(pa.array([row.id for row in gone], pa.int64()))
        stay = [row for row in self.ref.now.rows if row.id not in {each.id for each in gone}]
        outcome = self.change_rows(lambda: self.table.delete(condition), stay, "delete")
        assert outcome.rows_deleted == len(self.ref.states[self.ref.version - (outcome.kind != "unchanged")].rows) - len(stay)

    @rule(day=st.sampled_from(DAYS), odd=st.integers(0, 2))
    def update_rows(self, day: Day, odd: int) -> None:
        """Columns of some rows, of which one is the partition: the rows move."""
        columns = dict([*self.ref.now.columns.items()][:1])
        sets = {"day": pc.scalar(pa.scalar(day, pa.string()))} | {name: pc.scalar(f"new {name}") for name in columns.values()}
        condition = pc.field("id").isin(pa.array([row.id for row in self.ref.now.rows if row.id % 3 == odd], pa.int64()))
        values = {column: f"new {name}" for column, name in columns.items()}
        after = [
            replace(row, day=day, values=tuple({**dict(row.values), **values}.items())) if row.id % 3 == odd else row
            for row in self.ref.now.rows
        ]
        self.change_rows(lambda: self.table.update(sets, condition), after, "update")

    @rule(days=st.lists(st.sampled_from(DAYS), max_size=3), odd=st.integers(0, 2), day=st.sampled_from(DAYS), deletes=st.booleans())
    def merge_rows(self, days: list[Day], odd: int, day: Day, deletes: bool) -> None:
        """New rows are inserted; of those that are there the day changes, and the other columns stay; the rest stays, or goes."""
        added = [Row(next(self.numbers), each) for each in days]
        known = [row for row in self.ref.now.rows if row.id % 3 == odd]
        source = self.arrow([*added, *{row.id: Row(row.id, day) for row in known}.values()], self.ref.now.columns)
        rest: Any = "delete" if deletes else None
        stay = [] if deletes else [row for row in self.ref.now.rows if row.id % 3 != odd]

        def merge() -> mc.RowOutcome:
            return self.table.merge(source, on="id", when_matched=mc.Update(set={"day": "source.day"}), when_not_matched_by_source=rest)

        self.change_rows(merge, [*stay, *(replace(row, day=day) for row in known), *added], "merge")

    @rule(day=st.sampled_from(DAYS), count=st.integers(0, 2))
    def overwrite_rows(self, day: Day, count: int) -> None:
        """The later half of the rows by their ids, whatever their days."""
        ids = sorted(row.id for row in self.ref.now.rows)
        first = ids[len(ids) // 2] if ids else 0
        added = [Row(next(self.numbers), day) for _ in range(count)]
        data = self.arrow(added, self.ref.now.columns)
        after = [*(row for row in self.ref.now.rows if row.id < first), *added]
        self.change_rows(lambda: self.table.overwrite_where(data, pc.field("id") >= first), after, "overwrite")

    # --- finished by others ------------------------------------------------------------------------------------------------

    def draw_job(self, data: st.DataObject) -> Job:
        """Mostly one that has left something for others."""
        every = list(self.ref.jobs)
        left = [job.id for job in self.ref.jobs.values() if job.left]
        mostly = data.draw(st.sampled_from([True, True, True, False]))
        return self.ref.jobs[data.draw(st.sampled_from(left[-6:] if left and mostly else every[-8:]))]

    @precondition(lambda self: self.ref.jobs)
    @rule(data=st.data())
    def commit_by_id(self, data: st.DataObject) -> None:
        job = self.draw_job(data)
        allowed = self.ref.answers(job)
        if job.left not in ("prepared", "published"):
            allowed = {each for each in allowed if job.id in self.ref.decided} | {ANY}  # nothing of it is there for others
        elif job.birth < self.ref.fence:
            allowed = allowed | {ANY}  # gc may have taken what it had left [GC5]
        elif job.left == "published" and job.id in self.ref.decided:
            allowed = allowed | {ANY}
        said, result = told(lambda: mc.commit(self.url, job.id))
        self.check(job, allowed, said, result)
        self.settle(job, said)

    @precondition(lambda self: self.ref.jobs)
    @rule(data=st.data())
    def abort_by_id(self, data: st.DataObject) -> None:
        job = self.draw_job(data)
        decided = self.ref.decided.get(job.id, "no")
        found, error = tried(lambda: mc.Table(self.url).abort(job.id))
        if error is not None:
            self.absorb()
            assert not job.left or job.birth < self.ref.fence, (error, job)
            return
        self.absorb(giving_up=True)
        if found == "committed":
            assert found.version == decided, (found.version, job)
        else:
            assert found == "aborted" and (decided is None or decided == "no"), (found, decided, job)
            if job.birth >= self.ref.fence:
                self.ref.decided[job.id] = None

    @rule(abort=st.sampled_from([False, False, False, True]))
    def recover(self, abort: bool) -> None:
        self.recover_all(abort=abort)

    def recover_all(self, *, abort: bool = False) -> None:
        known = set(self.ref.now.origins)
        jobs = [job for job in self.ref.jobs.values() if job.left == "prepared" and job.id not in self.ref.decided]
        results = self.table.recover(abort=abort)
        # One that finds its key committed holds nothing to commit: whoever recovers may give it up, as anyone may. [AB4]
        could = self.absorb(watched=jobs, giving_up=True)
        by_id = {result.job_id: result for result in results}
        self.judge_order([job for job in jobs if job.id in by_id], {each for each in by_id if by_id[each].error is not None}, known)
        for job in jobs:
            if job.id not in by_id:
                assert job.birth < self.ref.fence, f"{job} was left out"
                continue
            if abort:
                if job.birth >= self.ref.fence:
                    assert by_id[job.id].error is None or by_id[job.id].error.__class__.__name__ == "JobAbortedError", by_id[job.id]
                    assert self.table.resolve(job.id) == "aborted"
                    self.ref.decided[job.id] = None
            else:
                self.judge_result(job, by_id[job.id], could[job.id] | ({ANY} if job.birth < self.ref.fence else set()))
                if job.id not in self.ref.decided and self.table.resolve(job.id) == "aborted" and job.birth >= self.ref.fence:
                    found, refused = by_id[job.id].outcome, by_id[job.id].error
                    is_over = isinstance(refused, CommitConflictError) and refused.rule in FINAL
                    assert found is not None and (found.already_committed or is_over), f"{job} was given up for nothing"
                    self.ref.decided[job.id] = None

    def judge_order(self, jobs: Sequence[Job], failed: set[str], known: set[str]) -> None:
        """Of a source that the table did not know, the first advance is that of no job which comes after another one of these. [WM7]"""
        done = {job.id: self.ref.decided[job.id] for job in jobs if self.ref.decided.get(job.id) is not None}
        for source in {source for job in jobs for source, _, _ in job.advances} - known:
            mine = {job.id: next((each for each in job.advances if each[0] == source), None) for job in jobs if job.done is None}
            firsts = [move for move in self.ref.now.moves if move.source == source][:1]
            for job, advance in mine.items():
                if not firsts or advance is None or done.get(job) != firsts[0].version or advance[1] != firsts[0].start:
                    continue
                before = {other for other, each in mine.items() if each is not None and other != job and comes_before(each, advance)}
                assert not before & failed, f"{job} begins {source!r}, and {before & failed} before it failed"

    def judge_result(self, job: Job, result: Any, could: set[str]) -> str:
        """One of several results: what could be told at any time meanwhile; and nobody is left behind a gap that others have closed."""

        def tell() -> Any:
            if result.error is not None:
                raise result.error
            return result.outcome

        said, found = told(tell)
        if said.startswith("committed"):
            assert said == f"committed {self.ref.decided[job.id]}"
            return said
        allowed = could | self.ref.answers(job)
        unknown = any(source not in self.ref.now.marks for source, _, _ in job.advances)
        if unknown:
            allowed.add("WatermarkGapError")  # an earlier range of the source has failed, and this one may not be its first [WM7]
        word = said.split(" ")[0]
        assert said in allowed or ANY in allowed or (word == "already" and job.batch is not None and word in allowed), (
            said,
            allowed,
            found,
            job,
        )
        assert unknown or said != "WatermarkGapError" or self.ref.answers(job) != {"committed"}, (
            f"{job} was left behind a gap that is closed"
        )
        return said

    @precondition(lambda self: len(self.handles) > 1)
    @rule(data=st.data())
    def commit_all(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.open_jobs()), min_size=2, max_size=4, unique=True))
        self.commit_these([self.ref.jobs[each] for each in chosen], [self.handles[each] for each in chosen])

    def commit_these(self, jobs: list[Job], handles: list[mc.Job]) -> None:
        known = set(self.ref.now.origins)
        for job in jobs:
            self.ended(job)
        results = mc.commit_all(handles)
        could = self.absorb(watched=jobs)
        self.judge_order(jobs, {job.id for job, result in zip(jobs, results, strict=True) if result.error is not None}, known)
        for job, result in zip(jobs, results, strict=True):
            said = self.judge_result(job, result, could[job.id])
            if said in MARK_IS_REMOVED and job.left == "running":
                job.left = ""

    def resolve(self, data: st.DataObject) -> None:
        if not self.ref.jobs:
            return
        job = self.draw_job(data)
        found = self.table.resolve(job.id)
        said = f"committed {found.version}" if found == "committed" else str(found)
        assert said in self.ref.resolutions(job), (said, self.ref.resolutions(job), job)

    # --- set-backs ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.ref.now.marks)
    @rule(data=st.data(), keep=st.sampled_from([False, False, False, True]))
    def rewind(self, data: st.DataObject, keep: bool) -> None:
        ref = self.ref
        source = data.draw(st.sampled_from(sorted(ref.now.marks)))
        mark = ref.now.marks[source]
        mine = [move for move in ref.now.moves if move.source == source]
        choices: list[Position] = [None]
        if isinstance(mark, int):
            choices += [mark - 1, max(mark - 3, 0), *(move.start for move in mine)]
        elif isinstance(mark, str):
            choices += [position for move in mine for position in (move.start, move.end) if position != mark]
        # Mostly to where a job that is open would fit then, had it not begun before.
        waiting = [job for job in ref.jobs.values() if job.id in self.handles or (job.left and job.id not in ref.decided)]
        starts = [start for job in waiting for name, start, _ in job.advances if name == source and start in choices]
        to = data.draw(st.sampled_from([*choices, *starts * 3]))
        if isinstance(mark, int) and isinstance(to, int) and to >= mark:
            return
        if self.rewind_to(source, to, keep=keep):
            self.commit_who_was_set_back(data)

    def rewind_to(self, source: str, to: Position, *, keep: bool) -> bool:
        """Whether it was done."""
        ref, mark = self.ref, self.ref.now.marks[source]
        gone, _ = ref.undone(source, to)
        must = set() if keep else ref.dropped(gone)
        # Those of commits that an earlier rewind had undone and left their keys: whether this one undoes them too is not told. [WM5]
        may = set() if keep else ref.dropped([move for move in ref.now.loose if move.source == source])
        path = ref.walk(source, to)
        certain = min(path) >= ref.expired  # who walks back need not go on with a version that only a tag keeps
        told_of = all(ref.now.keys[key].version in ref.readable for key in must)
        outcome, error = tried(lambda: self.table.rewind(source, to, reason="é", keep_keys=keep))
        if error is not None:
            # Whether a source that is known, but has no position, can be forgotten is not told. [WM1] [WM5]
            assert not certain or isinstance(to, str) or mark is None, (error, path, ref.readable)
            self.absorb(giving_up=True)
            self.note_given_up(self.waiting(must | may, {source}))
            return False
        dropped = set(outcome.dropped_keys)
        assert told_of and must <= dropped <= must | may, (outcome, must, may)
        published = self.waiting(dropped, {source})
        self.absorb(lambda: ref.rewind(source, to, dropped, kept=keep), operation="rewind", giving_up=True)
        self.note_given_up(published)
        return True

    def targets(self) -> list[int]:
        """What can be rolled back to; not to before the folder was adopted, which would have to be done again."""
        return [version for version in self.ref.readable if 1 + self.adopted <= version < self.ref.version]

    @precondition(lambda self: self.targets())
    @rule(data=st.data(), by_tag=st.booleans(), death=DEATHS)
    def roll_back(self, data: st.DataObject, by_tag: bool, death: Death) -> None:
        ref = self.ref
        tags = sorted(name for name, version in ref.tags.items() if version in self.targets())
        if by_tag and tags:
            tag = data.draw(st.sampled_from(tags))
            target = ref.tags[tag]
            self.roll_back_to(target, tag=tag)
        else:
            self.roll_back_to(data.draw(st.sampled_from(self.targets())), death=death)
        self.commit_who_was_set_back(data)

    def roll_back_to(self, target: int, *, tag: str | None = None, death: Death = None) -> None:
        ref = self.ref
        given: dict[str, Any] = {"version": target} if tag is None else {"tag": tag}
        base, then = ref.now, ref.states[target]
        moved = {source for source, mark in base.marks.items() if source not in then.marks or then.marks[source] != mark}
        moved |= then.marks.keys() - base.marks.keys()
        dropped = base.keys.keys() - then.keys.keys()
        waiting = self.waiting(dropped, moved)
        if death is None:
            outcome = self.table.rollback(**given, reason="é")
            assert set(outcome.dropped_keys) == dropped, (outcome.dropped_keys, dropped)
        else:
            with dying(self.url, *death) as store:
                rollback(session(store), target, reason="é")

        def effect() -> None:
            assert ref.roll_back(target) == dropped

        self.absorb(effect, operation="rollback", giving_up=True)
        self.note_given_up(waiting)
        if ref.rollbacks[-1:] == [ref.version]:
            self.take_streams_without_batches()

    def take_streams_without_batches(self) -> None:
        """Which of its names keeps the record of a query that only the base knew is not told, nor whether several do. [CF13]"""
        streams = self.ref.now.streams
        found = {name: each for name, each in open_head(self.store).snapshot.streams.items() if each.batch == -1}
        assert {each.query for each in found.values()} == {query for query, number, _ in streams.values() if number == -1}, (found, streams)
        for name in [name for name, (_, number, _) in streams.items() if number == -1]:
            del streams[name]
        streams |= {name: (each.query, -1, each.version) for name, each in found.items()}
        self.ref.states[self.ref.version].streams = dict(streams)

    @precondition(lambda self: len(self.handles) < 5)
    @rule(data=st.data())
    def overtake(self, data: st.DataObject) -> None:
        """A job is open while another does its work, which is then undone: nothing but its birth tells that it began before. [WM6] [KY7]

        Or it begins when that work is done, and holds no rows. [KY8]
        """
        ref, before = self.ref, self.ref.version
        advances = self.draw_next(data)
        key = data.draw(st.sampled_from([None, *KEYS])) if advances else data.draw(st.sampled_from(KEYS))
        if key in ref.now.keys:
            return
        rows = [Row(next(self.numbers), data.draw(st.sampled_from(DAYS)))]
        done = Plan(key, None, "append", None, "serializable", advances, [], {}, {}, None, None)
        late = key is not None and data.draw(st.booleans())
        slower = None if late else self.begin(replace(done, rows=rows))
        # Declared otherwise, it drops the key of the same name and not the source.
        theirs = replace(done, key=data.draw(st.sampled_from([key, key, None]))) if advances else done
        faster = self.begin(theirs)
        if faster is None or self.ref.answers(faster) != {"committed"}:
            return
        self.commit_it(self.handles[faster.id], faster)
        slower = self.begin(done) if late else slower
        if advances and data.draw(st.booleans()):
            source, start, _ = advances[0]
            self.rewind_to(source, start, keep=data.draw(st.sampled_from([False, False, True])))
        elif before in ref.readable:
            self.roll_back_to(before)
        if slower is not None and slower.id in self.handles:
            self.end_somehow(data, self.handles[slower.id], slower)
        if self.ref.keys_set_back and self.ref.now.keys and data.draw(st.booleans()):
            self.gc_but_for_live_keys()

    def draw_next(self, data: st.DataObject) -> list[Advance]:
        """None, or one that fits: of a source that the table knows, or of one that it does not."""
        source = data.draw(st.sampled_from([None, *SOURCES[:2], *SOURCES[:2], f"new {next(self.numbers)}"]))
        start = self.ref.now.marks.get(source, 0) if source is not None else None
        return [(source, start, start + 2)] if source is not None and isinstance(start, int) else []

    def end_somehow(self, data: st.DataObject, handle: mc.Job, job: Job) -> None:
        """By itself, or prepared and then by others."""
        if data.draw(st.booleans()):
            return self.commit_it(handle, job)
        self.ended(job)
        _, error = tried(handle.prepare)
        assert error is None, (error, job)
        job.left = "prepared"
        if data.draw(st.booleans()):
            return self.recover_all()
        allowed = self.ref.answers(job)
        said, result = told(lambda: mc.commit(self.url, job.id))
        self.check(job, allowed, said, result)
        return self.settle(job, said)

    @precondition(lambda self: len(self.handles) < 4)
    @rule(data=st.data(), texts=st.booleans(), fails=st.sampled_from([False, False, True]), at_once=st.booleans())
    def follow(self, data: st.DataObject, texts: bool, fails: bool, at_once: bool) -> None:
        """Jobs that advance a source that the table does not know, one from where another ends, begun in any order. [WM7]

        fails: the first of them conflicts, so that none of the others may begin the source.
        """
        number = next(self.numbers)
        ends: list[Any] = [f"{number} at {place}" for place in range(4)] if texts else [0, 2, 3, 7]
        ranges: list[Advance] = [(f"row {number}", start, end) for start, end in itertools.pairwise(ends[: data.draw(st.integers(3, 4))])]
        jobs = []
        for each in data.draw(st.permutations(ranges)):
            first = fails and each == ranges[0]
            columns = dict(self.ref.now.columns) if first else {}
            kind, day = ("static", "a") if first else ("append", None)
            rows = [Row(next(self.numbers), "a", tuple((column, "") for column in columns))]
            jobs.append(self.begin(Plan(None, None, kind, day, "serializable", [each], rows, columns, {}, None, None)))
        found = [job for job in jobs if job is not None]
        handles = [self.handles[job.id] for job in found]
        other = self.begin(Plan(None, None, "append", None, "serializable", [], [Row(next(self.numbers), "a")], {}, {}, None, None))
        if fails and other is not None:
            self.commit_it(self.handles[other.id], other)
        if at_once:
            return self.commit_these(found, handles)
        for job, handle in zip(found, handles, strict=True):
            self.ended(job)
            handle.prepare()
            job.left = "prepared"
        return self.recover_all()

    @rule(data=st.data())
    def others(self, data: st.DataObject) -> None:
        """What moves no row, key or position, one of it."""
        calls = [self.resolve, self.resolve, self.tag, self.untag, self.add_column, self.alter_column, self.travel]
        data.draw(st.sampled_from([*calls, self.create_again, self.write_without_partition]))(data)

    # --- upkeep ------------------------------------------------------------------------------------------------------------

    def tag(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(TAGS))
        version = data.draw(st.sampled_from(self.ref.readable))

        def effect() -> None:
            self.ref.tags[name] = version
            self.ref.seal()

        self.table.tag(name, version)
        self.absorb(effect, operation="tag")

    def untag(self, data: st.DataObject) -> None:
        if not self.ref.tags:
            return
        name = data.draw(st.sampled_from(sorted(self.ref.tags)))

        def effect() -> None:
            del self.ref.tags[name]
            self.ref.seal()

        self.table.untag(name)
        self.absorb(effect, operation="untag")

    @rule(keep=st.integers(1, 5), keys=st.sampled_from([0, 1, 2, 2, 9]), foreign=st.booleans(), death=DEATHS)
    def gc(self, keep: int, keys: int, foreign: bool, death: Death) -> None:
        self.collect(keep, keys, foreign=foreign, death=death)

    @precondition(lambda self: self.ref.keys_set_back and self.ref.now.keys)
    @rule()
    def gc_but_for_live_keys(self) -> None:
        """Those that a set-back has dropped do not count. [KY4]"""
        self.collect(5, len(self.ref.now.keys), foreign=False)

    def collect(self, keep: int, keys: int, *, foreign: bool, death: Death = None) -> None:
        ref, before, old = self.ref, self.ref.version, self.ref.fence
        fence, may = ref.held_fence(), ref.may_forget(keys, ref.held_fence())
        if death is None:
            self.table.gc(grace="0s", keep_for="0s", keep_versions=keep, keep_keys=keys, foreign=foreign)
        else:
            with dying(self.url, *death) as store:
                gc.run(session(store), Policy(grace_s=0, keep_for_s=0, keep_versions=keep, keep_keys=keys))
        self.absorb(lambda: ref.seal(), operation="gc")
        head = open_head(self.store).snapshot
        if death is not None and ref.version == before:
            assert (head.fence, head.expired) == (ref.fence, ref.expired)
            return
        assert head.fence == fence, (head.fence, fence)
        # The versions that count are those before the gc's own, or with it.
        assert head.expired in {max(ref.expired, min(fence, before - keep + more)) for more in (1, 2)}, (
            head.expired,
            ref.expired,
            before,
            keep,
        )
        if ref.version > before:
            ref.lost_records_below = old
        ref.fence, ref.expired = head.fence, head.expired
        for key in sorted(ref.now.keys):
            if not self.is_live(key):
                assert key in may, f"{key} was forgotten: {ref.now.keys}, fence {fence}"
                del ref.now.keys[key]
        ref.states[ref.version].keys = dict(ref.now.keys)
        listed = {path for version in ref.readable for path in ref.states[version].paths}
        assert listed.isdisjoint(head.condemned)
        ref.condemned = dict.fromkeys(head.condemned, ref.version)
        for version in [each for each in ref.states if each not in ref.readable]:
            ref.states[version].rows = []

    @rule(manifests=st.booleans(), death=DEATHS)
    def compact(self, manifests: bool, death: Death) -> None:
        """Versions whose rows are those of the one before. [GC11]"""
        if death is not None:
            with dying(self.url, *death) as store:
                compact(session(store), CompactionOptions(), rewrite_here(store))
        elif manifests:
            self.table.compact(only_manifests=True)
        else:
            compact(session(self.store), CompactionOptions(), rewrite_here(self.store))

        def effect() -> None:
            self.ref.now.rows = self.without_former_paths(self.ref.now.rows)
            self.ref.seal(Touched(replaced=True))

        self.absorb(effect, operation="replace")

    def without_former_paths(self, rows: list[Row]) -> list[Row]:
        """The rows, those without a path whose file has become another one."""
        live = set(mc.Table(self.url).files().column("path").to_pylist())
        return [row if row.path in live else replace(row, path=None) for row in rows]

    def add_column(self, data: st.DataObject) -> None:
        ref, name = self.ref, data.draw(st.sampled_from(NAMES))
        if name.lower() in {each.lower() for each in ref.now.columns.values()}:
            with pytest.raises(ManifestCommitError):
                self.table.add_column(name, pa.string())
            return
        self.table.add_column(name, pa.string())
        self.absorb(lambda: ref.alter(ref.now.columns | {next(self.numbers): name}, {name.lower()}), operation="schema")

    def alter_column(self, data: st.DataObject) -> None:
        """Rename one, or drop it."""
        ref, columns = self.ref, dict(self.ref.now.columns)
        if not columns:
            return
        to = data.draw(st.sampled_from([*NAMES, None]))
        column = data.draw(st.sampled_from(sorted(columns)))
        if to is None:
            self.table.drop_column(columns.pop(column))
        elif to.lower() in {each.lower() for each in columns.values()}:
            return
        else:
            self.table.rename_column(columns[column], to)
            columns[column] = to
        self.absorb(lambda: ref.alter(columns, {"*"}), operation="schema")

    def create_again(self, data: st.DataObject) -> None:
        """It joins the table that is there, or is refused; it changes nothing. [CM13]"""
        with contextlib.suppress(ManifestCommitError):
            mc.create_table(self.url, pa.schema([("id", pa.int64()), ("day", pa.string())]), partition_by=["day"])
        self.absorb()

    def write_without_partition(self, data: st.DataObject) -> None:
        with pytest.raises(ManifestCommitError):
            mc.write(pa.table({"id": [0]}), self.url)
        self.absorb()

    # --- what is read ------------------------------------------------------------------------------------------------------

    def is_live(self, key: str) -> bool:
        return mc.begin(self.url, key=key).already_committed

    def travel(self, data: st.DataObject) -> None:
        version = data.draw(st.integers(1, self.ref.version))
        if version in self.ref.readable:
            self.compare(version)
        else:
            with pytest.raises(SnapshotExpiredError):
                self.table.dataset(version)

    def compare(self, version: int) -> None:
        state = self.ref.states[version]
        found = self.table.dataset(version).to_table().to_pylist()
        empty = dict.fromkeys(state.columns.values())
        wanted = [
            {"id": row.id, "day": row.day} | empty | {state.columns[each]: value for each, value in row.values if each in state.columns}
            for row in state.rows
        ]
        assert sorted(repr(sorted(row.items())) for row in found) == sorted(repr(sorted(row.items())) for row in wanted)

    @rule(data=st.data())
    def changes(self, data: st.DataObject) -> None:
        """The rows of the files that came and went are the difference of the two states. [RD8]"""
        start, end = sorted(data.draw(st.sampled_from(self.ref.readable)) for _ in range(2))
        found = self.table.changed_files(start, end)
        before, after = ([row.id for row in self.ref.states[version].rows] for version in (start, end))
        added, removed = (sum(found[which].column("rows").to_pylist()) for which in ("added", "removed"))
        assert added - removed == len(after) - len(before)
        if not {*after} - {*before} and self.rewritten.isdisjoint(range(start + 1, end + 1)):
            assert not added or len({*after}) < len(after)

    @invariant()
    def the_head_is_the_model(self) -> None:
        ref = self.ref
        if not ref.version:
            return
        snapshot = open_head(self.store).snapshot
        assert snapshot.version == ref.version
        self.compare(ref.version)
        marks = {source: mark for source, mark in ref.now.marks.items() if mark is not None}
        found = {source: mark for source, mark in self.table.watermarks().items() if mark is not None}
        assert found == marks, (found, marks)
        live = {key for key in KEYS if self.is_live(key)}
        assert live == ref.now.keys.keys(), (live, ref.now.keys)
        streams = {name: (each.query, each.batch) for name, each in snapshot.streams.items()}
        assert streams == {name: (query, number) for name, (query, number, _) in ref.now.streams.items()}, (streams, ref.now.streams)
        assert {name: tag.version for name, tag in snapshot.tags.items()} == ref.tags


class OnDisk(Model):
    local = True


TestReference, TestReferenceAtLength = in_two_lengths(Model, steps=40, quick=5, usual=50, proof=3_000)
TestReferenceOnDisk = in_two_lengths(OnDisk, steps=40, quick=rounds(2, 150), usual=2, proof=150)[0]
