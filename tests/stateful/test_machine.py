"""The public calls in any order against a model of a few lines. [CM17] [RD2] [RD4] [RD8] [KY3] [WM2] [SC6]"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import manifestcommit as mc
from manifestcommit.core import spill
from manifestcommit.engine.compact import Aim, compact
from manifestcommit.engine.head import open_head
from manifestcommit.errors import KeyReusedError, SchemaMismatchError, UsageError, WatermarkError
from manifestcommit.store import open_store
from tests.faults.tables import check_table, rewrite_here, session

DAYS = st.sampled_from(["a", "", "__HIVE_DEFAULT_PARTITION__", "x=y/z", None])
KEYS = st.none() | st.sampled_from(["k1", "k2", "k3"])
NAMES = st.sampled_from(["x", "X2", "y z", "é"])
Row = dict[str, Any]


class PublicCalls(RuleBasedStateMachine):
    """model: all rows; states: the rows at each version, under the names of that version; keys: key -> (version, declaration)."""

    local = False

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in (
            ("INLINE_ENTRY_BYTES", 1200),
            ("INLINE_KEYS", 1),
            ("INLINE_JOBS", 2),
            ("INLINE_REMOVED_BYTES", 8),
            ("FAN_IN", 2),
        ):
            patch.setattr(spill, name, value)
        folder = self.stack.enter_context(tempfile.TemporaryDirectory()) if self.local else ""
        self.url = f"{folder}/a table" if self.local else f"memory://{secrets.token_hex(8)}"
        self.next_id = 0
        self.version = 0
        self.columns: list[str] = []  # besides id and day
        self.model: list[Row] = []
        self.states: dict[int, tuple[list[str], list[Row]]] = {}
        self.keys: dict[str, tuple[int, object]] = {}
        self.marks: dict[str, int] = {}
        self.compacted: set[int] = set()
        self.table: mc.Table

    def teardown(self) -> None:
        if self.version:
            check_table(open_store(self.url))
        self.stack.close()

    @initialize()
    def create(self) -> None:
        schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
        self.table = mc.create_table(self.url, schema, partition_by=["day"])
        self.remember(1)

    def remember(self, version: int | None) -> None:
        assert version == self.version + 1
        self.version = version
        self.states[version] = (list(self.columns), [dict(row) for row in self.model])

    def new_rows(self, days: list[str | None]) -> tuple[pa.Table, list[Row]]:
        found = []
        for day in days:
            self.next_id += 1
            found.append({"id": self.next_id, "day": day} | {name: f"{name}{self.next_id}" for name in self.columns})
        schema = pa.schema([("id", pa.int64()), ("day", pa.string())] + [(name, pa.string()) for name in self.columns])
        return pa.Table.from_pylist(found, schema=schema), found

    @rule(
        days=st.lists(DAYS, max_size=4),
        kind=st.sampled_from(["append", "append", "append", "dynamic", "static", "all"]),
        day=DAYS,
        key=KEYS,
        start=st.none() | st.integers(0, 3),
        mode=st.sampled_from(["serializable", "blind"]),
    )
    def write(self, days: list[str | None], kind: str, day: str | None, key: str | None, start: int | None, mode: Any) -> None:
        if kind == "static":
            days = [day] * len(days)
        data, added = self.new_rows(days)
        given: dict[str, Any] = {"append": {}, "dynamic": {"overwrite": "dynamic"}, "static": {"overwrite": {"day": day}}, "all": {}}[kind]
        if kind != "append":
            given |= {"mode": "overwrite", "conflict": mode}
        ranges = {} if start is None else {"s": (start, start + 1)}
        declared = (kind, day if kind == "static" else None, start)
        reused = key is not None and key in self.keys and self.keys[key][1] != declared
        done = key is not None and key in self.keys and not reused
        misfit = bool(ranges) and "s" in self.marks and self.marks["s"] != start
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
            assert key is not None and outcome.already_committed and outcome.version == self.keys[key][0]
            return
        assert not misfit and outcome.kind == "committed"
        gone = {"append": [], "dynamic": days, "static": [day], "all": None}[kind]
        self.model = [row for row in self.model if gone is not None and row["day"] not in gone] + added
        self.remember(outcome.version)
        assert outcome.version is not None
        if key is not None:
            self.keys[key] = (outcome.version, declared)
        if start is not None:
            self.marks["s"] = start + 1

    @rule(name=NAMES)
    def add_column(self, name: str) -> None:
        if any(name.lower() == other.lower() for other in self.columns):
            with pytest.raises((UsageError, SchemaMismatchError)):
                self.table.add_column(name, pa.string())
            return
        outcome = self.table.add_column(name, pa.string())
        self.columns.append(name)
        self.model = [row | {name: None} for row in self.model]
        self.remember(outcome.version)

    @precondition(lambda self: self.columns)
    @rule(data=st.data(), to=NAMES)
    def rename_column(self, data: st.DataObject, to: str) -> None:
        name = data.draw(st.sampled_from(self.columns))
        if any(to.lower() == other.lower() for other in self.columns):
            return
        outcome = self.table.rename_column(name, to)
        self.columns = [to if each == name else each for each in self.columns]
        self.model = [{to if column == name else column: value for column, value in row.items()} for row in self.model]
        self.remember(outcome.version)

    @precondition(lambda self: self.columns)
    @rule(data=st.data())
    def drop_column(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.columns))
        outcome = self.table.drop_column(name)
        self.columns.remove(name)
        self.model = [{column: value for column, value in row.items() if column != name} for row in self.model]
        self.remember(outcome.version)

    @rule()
    def a_job_that_fails(self) -> None:
        data, _ = self.new_rows(["a", None])
        with contextlib.suppress(ZeroDivisionError), mc.begin(self.url, key="never") as job:
            job.advance("never", 0, 1)
            job.write(data)
            raise ZeroDivisionError
        assert not mc.begin(self.url, key="never").already_committed

    @rule()
    def compact(self) -> None:
        """Versions whose rows are those of the one before. [GC11]"""
        store = open_store(self.url)
        compact(session(store), Aim(), rewrite_here(store))
        for version in range(self.version + 1, open_head(store).version + 1):
            self.remember(version)
            self.compacted.add(version)

    @rule()
    def reopen(self) -> None:
        self.table = mc.Table(self.url)

    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.states)))
        assert self.found(version) == self.states[version]

    @rule(data=st.data())
    def changes(self, data: st.DataObject) -> None:
        """The rows of the files that came and went are the difference of the two states. [RD8]"""
        start, end = sorted((data.draw(st.sampled_from(sorted(self.states))), data.draw(st.sampled_from(sorted(self.states)))))
        found = self.table.changes(start, end)
        before, after = ({row["id"] for row in self.states[version][1]} for version in (start, end))
        assert sum(found["added"].column("rows").to_pylist()) - sum(found["removed"].column("rows").to_pylist()) == len(after) - len(before)
        if not after - before and self.compacted.isdisjoint(range(start + 1, end + 1)):
            assert sum(found["added"].column("rows").to_pylist()) == 0

    @invariant()
    def the_head_is_the_model(self) -> None:
        if self.version:
            head = open_head(open_store(self.url))
            assert head.version == self.version and head.snapshot.totals.rows == len(self.model)
            assert self.table.watermarks() == self.marks
            assert self.found(None) == self.states[self.version]

    def found(self, version: int | None) -> tuple[list[str], list[Row]]:
        table = self.table.dataset(version=version).to_table()
        return [name for name in table.column_names if name not in ("id", "day")], sorted(table.to_pylist(), key=lambda row: row["id"])


class LocalPublicCalls(PublicCalls):
    local = True


QUICK = settings(max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
TestInMemory = PublicCalls.TestCase
TestInMemory.settings = QUICK
TestLocal = LocalPublicCalls.TestCase
TestLocal.settings = settings(QUICK, max_examples=15)
