"""The public calls in any order, dying anywhere, against a model of a few lines. [CM17] [RD2] [RD4] [RD8] [KY3] [WM2] [SC6] [CF13] [GC10]

append, overwrite, delete, update, merge, overwrite by a condition, advance, rerun, rollback, tag, expire, gc, compact, adopt, columns that
change, crash, reopen: in memory and on a disk. [RC1]
"""

from __future__ import annotations

import contextlib
import copy
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.budgets import budgets
from tests.faults.tables import begin, check_head, rewrite_here, session
from tests.sizes import rounds

import manifestcommit as mc
from manifestcommit.core.commit.retention import Policy
from manifestcommit.engine.maintenance import gc
from manifestcommit.engine.maintenance.compaction import CompactionOptions, compact
from manifestcommit.engine.metadata.version_chain import open_head
from manifestcommit.engine.operations.rollback import rollback
from manifestcommit.errors import KeyReusedError, SchemaMismatchError, SnapshotExpiredError, UsageError, WatermarkError
from manifestcommit.store import Store, open_store
from manifestcommit.testing.faults import Died, FaultStore

DAYS = st.sampled_from(["a", "", "__HIVE_DEFAULT_PARTITION__", "x=y/z", None])
KEYS = st.none() | st.sampled_from(["k1", "k2", "k3"])
KINDS = st.sampled_from(["append", "append", "append", "dynamic", "static", "all"])
NAMES = st.sampled_from(["x", "X2", "y z", "é"])
TAGS = st.sampled_from(["t", "a tag 'é'"])
SMALL = {"inline_entry_bytes": 1200, "inline_keys": 1, "inline_jobs": 2, "inline_removed_bytes": 8, "fan_in": 2}
Row = dict[str, Any]


@dataclass
class State:
    """A table, in the model: the columns besides id and day, all rows, key -> (version, declaration), how far the source "s" was read."""

    columns: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    keys: dict[str, tuple[int, object]] = field(default_factory=dict)
    mark: int | None = None
    origin: int | None = None

    def written(self, rows: list[Row], gone: list[str | None] | None, start: int | None) -> State:
        """With these rows; gone: the days whose rows they replace, None: all."""
        kept = [row for row in self.rows if gone is not None and row["day"] not in gone]
        origin = start if self.mark is None and start is not None else self.origin
        return State(self.columns, kept + rows, dict(self.keys), self.mark if start is None else start + 1, origin)

    def back_at(self, target: State) -> State:
        """What it was; a source that was not known then begins anew."""
        known = target.mark is not None
        return State(
            target.columns, target.rows, target.keys, target.mark if known else self.origin, target.origin if known else self.origin
        )


@contextlib.contextmanager
def dying(url: str, at: int, *, after: bool) -> Iterator[Store]:
    """The table for a process that dies at its n-th call, before or after its effect."""
    with contextlib.suppress(Died):
        yield FaultStore(open_store(url), {at: "dies_after" if after else "dies_before"})


class PublicCalls(RuleBasedStateMachine):
    """now: what the table is to be; states: what it was at each version; tags: name -> version; all below `expired` but those is gone."""

    local = False

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(budgets(**SMALL))
        folder = self.stack.enter_context(tempfile.TemporaryDirectory()) if self.local else ""
        self.url = f"{folder}/a table" if self.local else f"memory://{secrets.token_hex(8)}"
        self.next_id = 0
        self.version = 0
        self.now = State()
        self.states: dict[int, State] = {}
        self.tags: dict[str, int] = {}
        self.expired = 1
        self.rewritten: set[int] = set()  # versions in which files came whose rows were there before
        self.adopted = False
        self.table: mc.Table

    def teardown(self) -> None:
        if self.version:
            check_head(open_store(self.url))
            report = self.table.verify(deep=True)
            assert report.is_sound, report.findings
            assert self.table.verify().is_sound
        self.stack.close()

    @initialize(adopted=st.booleans())
    def create(self, adopted: bool) -> None:
        """Empty, or somebody's folder."""
        self.adopted = adopted
        if not adopted:
            schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
            self.table = mc.create_table(self.url, schema, partition_by=["day"])
            self.remember(1)
            return
        for day in ("a", "x=y/z", None):
            _, found = self.new_rows([day])
            place = {"a": "day=a", "x=y/z": "day=x%3Dy%2Fz"}.get(str(day), "day=__HIVE_DEFAULT_PARTITION__")
            self.put_file(f"{place}/é {self.next_id}.parquet", found, ["id"])
            self.now.rows += found
        self.table = mc.Table(self.url)
        assert self.table.adopt(partition_by=["day"]).version == 2
        self.states[1] = State()
        self.version = 1
        self.remember(2)

    def put_file(self, name: str, found: list[Row], columns: list[str]) -> None:
        schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(found, schema=schema).select(columns), sink)
        open_store(self.url).put(name, sink.getvalue().to_pybytes())

    # --- what the model knows --------------------------------------------------------------------------------------------

    def remember(self, version: int | None) -> None:
        assert version == self.version + 1
        self.version = version
        self.states[version] = copy.deepcopy(self.now)

    def catch_up(self, *, most: int = 1_000, rewritten: bool = False) -> bool:
        """Whether versions were added since the last look: up to so many, each of them what is now."""
        head = open_head(open_store(self.url)).version
        added = range(self.version + 1, head + 1)
        assert len(added) <= most
        for version in added:
            self.remember(version)
            self.rewritten |= {version} if rewritten else set()
        return bool(added)

    @property
    def readable(self) -> list[int]:
        return sorted({*range(self.expired, self.version + 1), *self.tags.values()})

    def new_rows(self, days: list[str | None]) -> tuple[pa.Table, list[Row]]:
        found = []
        for day in days:
            self.next_id += 1
            found.append({"id": self.next_id, "day": day} | {name: f"{name}{self.next_id}" for name in self.now.columns})
        schema = pa.schema([("id", pa.int64()), ("day", pa.string())] + [(name, pa.string()) for name in self.now.columns])
        return pa.Table.from_pylist(found, schema=schema), found

    # --- rows --------------------------------------------------------------------------------------------------------------

    @rule(
        days=st.lists(DAYS, max_size=4),
        kind=KINDS,
        day=DAYS,
        key=KEYS,
        start=st.none() | st.integers(0, 3),
        mode=st.sampled_from(["serializable", "blind"]),
    )
    def write(self, days: list[str | None], kind: str, day: str | None, key: str | None, start: int | None, mode: Any) -> None:
        """Append or overwrite, with a key or without."""
        if kind == "static":
            days = [day] * len(days)
        data, added = self.new_rows(days)
        given: dict[str, Any] = {"append": {}, "dynamic": {"overwrite": "dynamic"}, "static": {"overwrite": {"day": day}}, "all": {}}[kind]
        if kind != "append":
            given |= {"mode": "overwrite", "conflict": mode}
        ranges = {} if start is None else {"s": (start, start + 1)}
        declared = (kind, day if kind == "static" else None, start)
        reused = key is not None and key in self.now.keys and self.now.keys[key][1] != declared
        done = key is not None and key in self.now.keys and not reused
        misfit = bool(ranges) and self.now.mark not in (None, start)
        try:
            outcome = mc.write(data, self.url, key=key, watermarks=ranges, **given)
        except KeyReusedError:
            assert reused
            return
        except WatermarkError:
            assert misfit and not done and not reused
            return
        assert not reused
        if done:
            assert key is not None and outcome.already_committed and outcome.version == self.now.keys[key][0]
            return
        assert not misfit and outcome.kind == "committed"
        self.now = self.now.written(added, {"append": [], "dynamic": days, "static": [day], "all": None}[kind], start)
        if key is not None:
            self.now.keys[key] = (self.version + 1, declared)
        self.remember(outcome.version)

    @precondition(lambda self: self.now.keys)
    @rule(data=st.data())
    def rerun(self, data: st.DataObject) -> None:
        """The same work again, which does nothing."""
        key = data.draw(st.sampled_from(sorted(self.now.keys)))
        kind, day, start = self.now.keys[key][1]  # type: ignore[misc]
        version = self.version
        self.write([day], kind, day, key, start, "serializable")
        assert self.version == version

    @rule()
    def advance(self) -> None:
        """From where the source stands, without a row."""
        start = 0 if self.now.mark is None else self.now.mark
        with mc.begin(self.url) as job:
            job.advance("s", start, start + 1)
        self.now = self.now.written([], [], start)
        assert job.outcome is not None
        self.remember(job.outcome.version)

    @rule(day=DAYS)
    def add_file(self, day: str | None) -> None:
        """One that something else wrote, before columns were added or renamed."""
        _, found = self.new_rows([day])
        name = f"from elsewhere/{self.next_id} é.parquet"
        self.put_file(name, found, ["id", "day"])
        with mc.begin(self.url) as job:
            job.add_files([name])
        self.now.rows.append({**dict.fromkeys(self.now.columns), "id": self.next_id, "day": day})
        assert job.outcome is not None
        self.remember(job.outcome.version)

    @precondition(lambda self: self.adopted)
    @rule()
    def adopt_again(self) -> None:
        assert self.table.adopt().already_adopted

    @rule()
    def a_job_that_fails(self) -> None:
        data, _ = self.new_rows(["a", None])
        with contextlib.suppress(ZeroDivisionError), mc.begin(self.url, key="never") as job:
            job.advance("never", 0, 1)
            job.write(data)
            raise ZeroDivisionError
        assert not mc.begin(self.url, key="never").already_committed

    # --- single rows -------------------------------------------------------------------------------------------------------

    def changed(self, outcome: mc.RowOutcome, rows: list[Row]) -> None:
        """Whatever it has done, the table holds these rows now; where none had to change, there is no version for it."""
        self.now.rows = rows
        if outcome.kind == "unchanged":
            assert rows == self.states[self.version].rows
            return
        self.rewritten.add(self.version + 1)
        self.remember(outcome.version)

    @rule(day=DAYS, odd=st.integers(0, 2))
    def delete_rows(self, day: str | None, odd: int) -> None:
        def goes(row: Row) -> bool:
            return bool(row["day"] == day and row["id"] % 3 == odd)

        gone = [row["id"] for row in self.now.rows if goes(row)]
        outcome = self.table.delete(pc.field("id").isin(pa.array(gone, pa.int64())))
        assert outcome.rows_deleted == len(gone)
        self.changed(outcome, [row for row in self.now.rows if not goes(row)])

    @rule(day=DAYS, odd=st.integers(0, 2))
    def update_rows(self, day: str | None, odd: int) -> None:
        """Columns of some rows, of which one is the partition: the rows move."""
        some = [row["id"] for row in self.now.rows if row["id"] % 3 == odd]
        new = {"day": pa.scalar(day, pa.string())} | {name: pa.scalar(f"new {name}") for name in self.now.columns[:1]}
        expressions = {name: pc.scalar(value) for name, value in new.items()}
        outcome = self.table.update(expressions, pc.field("id").isin(pa.array(some, pa.int64())))
        values = {name: value.as_py() for name, value in new.items()}
        self.changed(outcome, [row | values if row["id"] in some else row for row in self.now.rows])

    @rule(days=st.lists(DAYS, max_size=3), odd=st.integers(0, 2), day=DAYS, deletes=st.booleans())
    def merge_rows(self, days: list[str | None], odd: int, day: str | None, deletes: bool) -> None:
        """New rows are inserted; of those that are there the day changes, and the other columns stay; the rest stays, or goes."""
        data, added = self.new_rows(days)
        known = [row for row in self.now.rows if row["id"] % 3 == odd]
        source = pa.Table.from_pylist([*data.to_pylist(), *(row | {"day": day} for row in known)], schema=data.schema)
        outcome = self.table.merge(
            source, on="id", when_matched=mc.Update(set={"day": "source.day"}), when_not_matched_by_source="delete" if deletes else None
        )
        stay = [] if deletes else [row for row in self.now.rows if row["id"] % 3 != odd]
        self.changed(outcome, [*stay, *(row | {"day": day} for row in known), *added])

    @rule(day=DAYS, count=st.integers(0, 2))
    def overwrite_rows(self, day: str | None, count: int) -> None:
        """The later half of the rows by their ids, whatever their days."""
        ids = sorted(row["id"] for row in self.now.rows)
        first = ids[len(ids) // 2] if ids else 0
        data, added = self.new_rows([day] * count)
        outcome = self.table.overwrite_where(data, pc.field("id") >= first)
        self.changed(outcome, [*(row for row in self.now.rows if row["id"] < first), *added])

    # --- columns -----------------------------------------------------------------------------------------------------------

    @rule(name=NAMES)
    def add_column(self, name: str) -> None:
        if any(name.lower() == other.lower() for other in self.now.columns):
            with pytest.raises((UsageError, SchemaMismatchError)):
                self.table.add_column(name, pa.string())
            return
        outcome = self.table.add_column(name, pa.string())
        self.now.columns = [*self.now.columns, name]
        self.now.rows = [row | {name: None} for row in self.now.rows]
        self.remember(outcome.version)

    @precondition(lambda self: self.now.columns)
    @rule(data=st.data(), to=NAMES)
    def rename_column(self, data: st.DataObject, to: str) -> None:
        name = data.draw(st.sampled_from(self.now.columns))
        if any(to.lower() == other.lower() for other in self.now.columns):
            return
        outcome = self.table.rename_column(name, to)
        self.now.columns = [to if each == name else each for each in self.now.columns]
        self.now.rows = [{to if column == name else column: value for column, value in row.items()} for row in self.now.rows]
        self.remember(outcome.version)

    @precondition(lambda self: self.now.columns)
    @rule(data=st.data())
    def drop_column(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.now.columns))
        outcome = self.table.drop_column(name)
        self.now.columns = [each for each in self.now.columns if each != name]
        self.now.rows = [{column: value for column, value in row.items() if column != name} for row in self.now.rows]
        self.remember(outcome.version)

    # --- versions ----------------------------------------------------------------------------------------------------------

    def targets(self) -> list[int]:
        """What can be rolled back to; not to before the folder was adopted, which would have to be done again."""
        return [version for version in self.readable if 1 + self.adopted <= version < self.version]

    @precondition(lambda self: self.targets())
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from(self.targets()))
        before = self.now.keys
        outcome = self.table.rollback(target, reason="é")
        self.now = self.now.back_at(copy.deepcopy(self.states[target]))
        assert outcome.dropped_keys == tuple(sorted(before.keys() - self.now.keys.keys()))
        self.rewritten.add(self.version + 1)
        self.remember(outcome.version)

    @rule(data=st.data(), name=TAGS)
    def tag(self, data: st.DataObject, name: str) -> None:
        version = data.draw(st.sampled_from(self.readable))
        outcome = self.table.tag(name, version)
        self.tags[name] = version
        self.remember(outcome.version)

    @precondition(lambda self: self.tags)
    @rule(data=st.data())
    def untag(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tags)))
        outcome = self.table.untag(name)
        del self.tags[name]
        self.remember(outcome.version)

    @rule(keep=st.integers(1, 6))
    def expire(self, keep: int) -> None:
        """gc deletes what only expired versions list; a run that has nothing to decide adds no version."""
        report = self.table.gc(grace="0s", keep_for="0s", keep_versions=keep)
        assert isinstance(report, mc.GcReport)
        self.expired = max(self.expired, self.version - keep + 1)
        assert (report.expired, report.fence) == (self.expired, max(self.version, report.fence))
        self.catch_up(most=1)

    @precondition(lambda self: self.expired > 1)
    @rule(data=st.data())
    def look_at_what_expired(self, data: st.DataObject) -> None:
        version = data.draw(st.integers(1, self.expired - 1))
        if version not in self.tags.values():
            with pytest.raises(SnapshotExpiredError):
                self.table.snapshot(version)

    @rule()
    def compact(self) -> None:
        """Versions whose rows are those of the one before. [GC11]"""
        store = open_store(self.url)
        compact(session(store), CompactionOptions(), rewrite_here(store))
        self.catch_up(rewritten=True)

    # --- a process that dies -------------------------------------------------------------------------------------------------

    @rule(days=st.lists(DAYS, max_size=3), overwrites=st.booleans(), key=KEYS, at=st.integers(1, 16), after=st.booleans())
    def die_writing(self, days: list[str | None], overwrites: bool, key: str | None, at: int, after: bool) -> None:
        """The old state or the new one, and the key tells which."""
        if key in self.now.keys:
            return
        data, added = self.new_rows(days)
        with dying(self.url, at, after=after) as store, begin(store, key) as job:
            if overwrites:
                job.overwrite("dynamic")
            job.write(data)
        landed = self.now.written(added, days if overwrites else [], None)
        if key is not None:
            landed.keys[key] = (self.version + 1, ("dynamic" if overwrites else "append", None, None))
        if open_head(open_store(self.url)).version > self.version:
            self.now = landed
            self.catch_up(most=1)

    @rule(keep=st.integers(1, 6), at=st.integers(1, 40), after=st.booleans())
    def die_expiring(self, keep: int, at: int, after: bool) -> None:
        with dying(self.url, at, after=after) as store:
            gc.run(session(store), Policy(grace_s=0, keep_for_s=0, keep_versions=keep))
        expired = open_head(open_store(self.url)).snapshot.expired
        assert expired in (self.expired, self.version - keep + 1)
        self.expired = expired
        self.catch_up(most=1)

    @rule(at=st.integers(1, 40), after=st.booleans())
    def die_compacting(self, at: int, after: bool) -> None:
        with dying(self.url, at, after=after) as store:
            compact(session(store), CompactionOptions(), rewrite_here(store))
        self.catch_up(rewritten=True)

    @precondition(lambda self: self.targets())
    @rule(data=st.data(), at=st.integers(1, 12), after=st.booleans())
    def die_rolling_back(self, data: st.DataObject, at: int, after: bool) -> None:
        target = data.draw(st.sampled_from(self.targets()))
        with dying(self.url, at, after=after) as store:
            rollback(session(store), target, reason="é")
        if open_head(open_store(self.url)).version > self.version:
            self.now = self.now.back_at(copy.deepcopy(self.states[target]))
            self.catch_up(most=1, rewritten=True)

    # --- what is read --------------------------------------------------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        self.table = mc.Table(self.url)

    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(self.readable))
        assert self.found(version) == self.wanted(version)

    @rule(data=st.data())
    def changes(self, data: st.DataObject) -> None:
        """The rows of the files that came and went are the difference of the two states. [RD8]"""
        start, end = sorted((data.draw(st.sampled_from(self.readable)), data.draw(st.sampled_from(self.readable))))
        found = self.table.changed_files(start, end)
        before, after = ({row["id"] for row in self.states[version].rows} for version in (start, end))
        assert sum(found["added"].column("rows").to_pylist()) - sum(found["removed"].column("rows").to_pylist()) == len(after) - len(before)
        if not after - before and self.rewritten.isdisjoint(range(start + 1, end + 1)):
            assert sum(found["added"].column("rows").to_pylist()) == 0

    @invariant()
    def the_head_is_the_model(self) -> None:
        if self.version:
            head = open_head(open_store(self.url))
            assert head.version == self.version and head.snapshot.totals.rows == len(self.now.rows)
            assert head.snapshot.watermarks == ({} if self.now.mark is None else {"s": self.now.mark})
            assert {name: tag.version for name, tag in head.snapshot.tags.items()} == self.tags
            assert self.found(None) == self.wanted(self.version)

    def wanted(self, version: int) -> tuple[list[str], list[Row]]:
        state = self.states[version]
        return state.columns, sorted(state.rows, key=lambda row: row["id"])

    def found(self, version: int | None) -> tuple[list[str], list[Row]]:
        table = self.table.dataset(version=version).to_table()
        return [name for name in table.column_names if name not in ("id", "day")], sorted(table.to_pylist(), key=lambda row: row["id"])


class LocalPublicCalls(PublicCalls):
    local = True


QUICK = settings(
    max_examples=rounds(6, 400), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
TestInMemory = PublicCalls.TestCase
TestInMemory.settings = QUICK
TestLocal = LocalPublicCalls.TestCase
TestLocal.settings = settings(QUICK, max_examples=rounds(5, 150))
