"""Several jobs open at once, beside everything that moves a table, over real files: the history checker explains what each was told.

In memory and on a disk; any call may be a process' last one. [CM17] [RC1] [RD2] [RD4] [RD8] [SC6] [GC11]
[CM1] [CM2] [CM10] [CM21] [CM23] [KY2] [KY3] [KY4] [CF2]-[CF13] [WM2] [WM5] [AB3] [AB4] [AB5] [GC1] [GC2] [GC8] [GC10]
"""

import contextlib
import itertools
import secrets
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.kit.faults import put_intent
from tests.kit.footers import parquet_bytes
from tests.kit.sizes import budgets, rounds
from tests.kit.tables import begin, change_of, check_head, rewrite_here, rollback, session
from tests.simulator.run_history import History

import manifestcommit as mc
from manifestcommit.errors import CommitConflictError, ManifestCommitError, OutcomeUnknownError, SnapshotExpiredError
from manifestcommit.format import object_names
from manifestcommit.log.version_chain import open_head
from manifestcommit.operations import gc
from manifestcommit.operations.compaction import CompactionOptions, compact
from manifestcommit.protocol.retention import Policy
from manifestcommit.store import Store, open_store
from manifestcommit.testing.faults import Died, FaultStore
from manifestcommit.testing.history.checker import check
from manifestcommit.testing.history.operation import ANY_FENCE, EVERYTHING, Running


def in_two_lengths(machine: type[RuleBasedStateMachine], *, steps: int, quick: int, usual: int, proof: int) -> tuple[Any, Any]:
    """The test of `quick` histories of so many steps, and that of `usual` ones, `proof` in `make proof`."""

    class AtLength(machine):  # type: ignore[misc,valid-type]
        pass

    at_length = settings(
        max_examples=rounds(usual, proof),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    short, long = machine.TestCase, AtLength.TestCase
    short.settings, long.settings = settings(at_length, max_examples=quick), at_length
    return short, pytest.mark.timeout(rounds(600, 3 * 3600))(pytest.mark.thorough(long))


Days = list[str | None]
Row = tuple[int, str | None, int]  # its id, where it lies, and the number of the change that has written it
FOLDERS = {"a": "day=a", "x=y/z %é": "day=x%3Dy%2Fz %25é", None: "day=__HIVE_DEFAULT_PARTITION__"}
SMALL = {"inline_entry_bytes": 1200, "inline_keys": 1, "inline_jobs": 2, "inline_removed_bytes": 8, "fan_in": 2}  # everything spills [CM12]
DAY = st.sampled_from(["a", "", "x=y/z %é", None])
KEYS = ["k1", "k 2%+=#'é", "k3"]
KEY = st.sampled_from([None, *KEYS])
NAME = st.sampled_from(["x", "Y y", "é"])
KIND = st.sampled_from(["append", "append", "append", "append", "dynamic", "static", "all"])
MODE: Any = st.sampled_from(["serializable", "serializable", "blind", "fail"])
DEATH = st.none() | st.tuples(st.integers(1, 40), st.booleans())  # at which call a process dies, and whether after its effect
ONE_IN_THREE = st.integers(0, 2)


def item(row: Row) -> str:
    return repr(row)


def done(running: Running, outcome: mc.Outcome) -> None:
    """What it was told, if no error; by whom its key was committed may be forgotten."""
    if not outcome.committed:
        running.refused(outcome.kind)
    elif outcome.version is not None:
        running.committed(outcome.version, already=outcome.already_committed)


@contextlib.contextmanager
def dying(url: str, at: int, after: bool) -> Iterator[Store]:
    """The table for a process that dies at its n-th call, before or after its effect."""
    with contextlib.suppress(Died):
        yield FaultStore(open_store(url), {at: "dies_after" if after else "dies_before"})


class Life(RuleBasedStateMachine):
    """open: the jobs whose process still runs, by id; left: ids of those that others may finish; columns: of each version, name → number;
    wrote: id → the numbers of the columns that have a value for it; keys: version → those that count as committed."""

    local = False

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(budgets(**SMALL))
        folder = self.stack.enter_context(tempfile.TemporaryDirectory()) if self.local else ""
        self.url = f"{folder}/a table" if self.local else f"memory://{secrets.token_hex(8)}"
        self.store, self.table, self.history = open_store(self.url), mc.Table(self.url), History()
        self.open: dict[str, tuple[mc.Job, Running]] = {}
        self.left: list[str] = []
        self.columns: list[dict[str, int]] = [{}]
        self.wrote: dict[int, set[int]] = {}
        self.keys: dict[int, set[str]] = {}
        self.numbers = itertools.count(1)
        self.first = 1

    def teardown(self) -> None:
        for job, _ in self.open.values():
            with contextlib.suppress(ManifestCommitError):
                job.abort()
        check_head(self.store)
        report = self.table.verify(deep=True)
        assert report.is_sound and self.table.verify().is_sound, report.findings
        wrong = check(self.history.operations)
        assert wrong is None, str(wrong)
        self.stack.close()

    @contextlib.contextmanager
    def told(self, name: str, **what: Any) -> Iterator[Running]:
        """One operation, from here to the end of the block."""
        running = self.history.begin("one", name, **what)
        with self.ends(running):
            yield running

    @contextlib.contextmanager
    def ends(self, running: Running) -> Iterator[None]:
        """The block is the last of the operation. Whatever refuses it has a rule, unless gc has taken what would tell."""
        try:
            yield
        except ManifestCommitError as error:
            is_filled = isinstance(error, CommitConflictError) and error.rule == "partition_is_filled"
            running.refused("filled" if is_filled else error)  # which needs nobody beside it [CF5]
            if running.operation.outcome != "refused" and not isinstance(error, OutcomeUnknownError):
                raise
        self.history.end(running)

    @initialize(sources=st.sampled_from([None, {}, {"s": 0}, {"s": 3, "n é": None}]))
    def create(self, sources: dict[str, Any] | None) -> None:
        """With sources; or of somebody's folder, without."""
        if sources is not None:
            with self.told("create", advances={name: (at, at) for name, at in sources.items() if at is not None}) as running:
                self.table = mc.create_table(self.url, self.arrow([]).schema, partition_by=["day"], sources=sources)
                return running.committed(1)
        rows = [self.row(day) for day in FOLDERS]
        for row, folder in zip(rows, FOLDERS.values(), strict=True):
            self.store.put(f"{folder}/é {row[0]}.parquet", parquet_bytes(self.arrow([row]).select(["id", "n"])))
        with self.told("adopt", **self.adds(rows)) as running:
            running.committed(self.table.adopt(partition_by=["day"]).version)
        self.first = 2
        assert self.table.adopt().already_adopted

    # --- rows ---------------------------------------------------------------------------------------------------------------

    def row(self, day: str | None, id: int | None = None) -> Row:
        number = next(self.numbers)
        return (number if id is None else id, day, number)

    def adds(self, rows: list[Row]) -> dict[str, Any]:
        return {"adds": {item(row): repr(row[1]) for row in rows}}

    def arrow(self, rows: list[Row], columns: dict[str, int] | None = None) -> pa.Table:
        fixed = [("id", pa.int64()), ("day", pa.string()), ("n", pa.int64())]
        found: list[dict[str, Any]] = [dict(zip(("id", "day", "n"), row, strict=True)) for row in rows]
        for each in found:
            each |= {name: f"{number} of {each['id']}" for name, number in (columns or {}).items()}
            self.wrote.setdefault(each["id"], set()).update((columns or {}).values())
        return pa.Table.from_pylist(found, schema=pa.schema([*fixed, *((name, pa.string()) for name in columns or {})]))

    def shown(self, version: int) -> list[Row]:
        """The rows of a version; each has the values that were written for it, in the columns that there are. [SC6]"""
        columns = self.columns[version]
        found = self.table.dataset(version).to_table().to_pylist()
        for each in found:
            wanted = {name: f"{number} of {each['id']}" if number in self.wrote[each["id"]] else None for name, number in columns.items()}
            assert {name: value for name, value in each.items() if name not in ("id", "day", "n")} == wanted, version
        return [(each["id"], each["day"], each["n"]) for each in found]

    def live(self) -> set[str]:
        return {key for key in KEYS if mc.begin(self.url, key=key).already_committed}

    @property
    def version(self) -> int:
        return open_head(self.store).version

    @property
    def readable(self) -> list[int]:
        head = open_head(self.store).snapshot
        tagged = {tag.version for tag in head.tags.values()}
        return [version for version in range(1, head.version + 1) if version >= head.expired or version in tagged]

    # --- jobs ---------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.open) < 5)
    @rule(data=st.data(), key=KEY, kind=KIND, mode=MODE, day=DAY, days=st.lists(DAY, max_size=3))
    def begin_job(self, data: st.DataObject, key: str | None, kind: str, mode: Any, day: str | None, days: Days) -> None:
        self.fill(mc.begin(self.url, key=key), data, key, kind, mode, day, days)

    @rule(data=st.data(), key=KEY, kind=KIND, mode=MODE, day=DAY, days=st.lists(DAY, min_size=1, max_size=3))
    def write(self, data: st.DataObject, key: str | None, kind: str, mode: Any, day: str | None, days: Days) -> None:
        self.write_by(mc.begin(self.url, key=key), data, key, kind, mode, day, days)

    def write_by(self, job: mc.Job, *work: Any) -> None:
        self.fill(job, *work)
        if job.id in self.open:
            _, running = self.open.pop(job.id)
            with self.ends(running):
                done(running, job.commit())

    def fill(self, job: mc.Job, data: st.DataObject, key: str | None, kind: str, mode: Any, day: str | None, days: Days) -> None:
        rows = [self.row(day if kind == "static" else each) for each in days]
        advances = self.advances(data)
        emptied = {"append": (), "dynamic": tuple({repr(row[1]) for row in rows}), "static": (repr(day),), "all": (EVERYTHING,)}[kind]
        parts = object_names.parse_job_id(job.id)
        what: dict[str, Any] = {"job": job.id, "birth": parts.birth, "key": key, "advances": advances}
        if mode != "fail":  # which is to find nothing there
            what |= {"empties": emptied, "scope": emptied if mode == "serializable" else ()}
        running = self.history.begin(job.id, kind, **what, **self.adds(rows))
        try:
            if kind != "append":
                job.overwrite({"dynamic": "dynamic", "static": {"day": day}, "all": None}[kind], conflict=mode)
            for source, (start, end) in advances.items():
                job.advance(source, start, end)
            whole = data.draw(st.booleans()) or not self.columns[-1]
            job.write(self.arrow(rows, self.columns[-1] if whole else None))
            assert whole or kind != "all" or job.already_committed, "rows would be null in a whole column [SC8]"
        except ManifestCommitError as refusal:
            with self.ends(running):
                job.abort()
                raise refusal
        else:
            self.open[job.id] = (job, running)

    def advances(self, data: st.DataObject) -> dict[str, tuple[Any, Any]]:
        """None; or of a source, mostly from where it is."""
        source = data.draw(st.sampled_from([None, "s", "s", "n é", "t"]))
        if source is None:
            return {}
        at = self.table.watermarks().get(source)
        start: Any = data.draw(st.sampled_from([at, at, at, {"s": 0, "n é": None, "t": "t0"}[source]]))
        step = data.draw(st.integers(1, 3))
        return {source: (start, f"t{next(self.numbers)}" if source == "t" else (start or 0) + step)}

    def draw_open(self, data: st.DataObject) -> tuple[mc.Job, Running]:
        return self.open.pop(data.draw(st.sampled_from(list(self.open))))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        job, running = self.draw_open(data)
        with self.ends(running):
            done(running, job.commit())

    @precondition(lambda self: self.open)
    @rule(data=st.data(), how=st.sampled_from(["prepare", "publish", "die"]))
    def leave(self, data: st.DataObject, how: str) -> None:
        """Its process leaves it to others, asks them for it and dies [CM19], or gives up."""
        job, running = self.draw_open(data)
        if how == "die":
            job.abort()
            running.refused("dead")
        elif how == "publish" and running.operation.name == "append" and not job.already_committed:
            running.note(shared=True)
            put_intent(self.store, change_of(job))
            self.left.append(job.id)
        else:
            running.note(shared=True)
            with self.ends(running):
                job.prepare()
                self.left.append(job.id)
            return
        self.history.end(running)

    @precondition(lambda self: self.left)
    @rule(data=st.data(), aborts=st.sampled_from([False, False, True]))
    def finish(self, data: st.DataObject, aborts: bool) -> None:
        job = data.draw(st.sampled_from(self.left))
        with self.told("finish", job=job, shared=True, gives_up=job if aborts else "") as running:
            if not aborts:
                done(running, mc.commit(self.url, job))
            elif (found := self.table.abort(job)) == "committed":
                assert found.version is not None
                running.committed(found.version)
            else:
                running.refused("aborted")

    @rule(data=st.data(), key=KEY, days=st.lists(DAY, max_size=3), death=st.tuples(st.integers(1, 16), st.booleans()))
    def die_writing(self, data: st.DataObject, key: str | None, days: Days, death: tuple[int, bool]) -> None:
        """The old state or the new one, and the key tells which. [CM17]"""
        with dying(self.url, *death) as store:
            self.write_by(begin(store, key), data, key, "append", "blind", None, days)

    # --- changes of rows ------------------------------------------------------------------------------------------------------

    def change(self, name: str, act: Callable[[], mc.RowOutcome], gone: list[Row], new: list[Row]) -> None:
        """Where no row has to change, there is no version for it. [RC1]"""
        with self.told(name, removes=tuple(map(item, gone)), **self.adds(new)) as running:
            outcome = act()
            assert (outcome.kind == "unchanged") == (not gone and not new), outcome
            running.refused("unchanged") if outcome.kind == "unchanged" else done(running, outcome)

    def third(self, rest: int, *days: str | None) -> list[Row]:
        return [row for row in self.shown(self.version) if row[0] % 3 == rest and (not days or row[1] in days)]

    def among(self, rows: list[Row]) -> pc.Expression:
        return pc.field("id").isin(pa.array([row[0] for row in rows], pa.int64()))

    @rule(data=st.data(), day=DAY, rest=ONE_IN_THREE)
    def change_rows(self, data: st.DataObject, day: str | None, rest: int) -> None:
        if data.draw(st.booleans()):
            data.draw(st.sampled_from([self.delete, self.update, self.overwrite]))(day, rest)
        else:
            self.merge(data.draw(st.lists(DAY, max_size=3)), rest, day, data.draw(st.booleans()))

    def delete(self, day: str | None, rest: int) -> None:
        gone = self.third(rest, day)
        self.change("delete", lambda: self.table.delete(self.among(gone)), gone, [])

    def update(self, day: str | None, rest: int) -> None:
        """Of the partition, too: the rows move."""
        gone, number = self.third(rest), next(self.numbers)
        sets = {"day": pc.scalar(pa.scalar(day, pa.string())), "n": pc.scalar(number)}
        new = [(id, day, number) for id, _, _ in gone]
        self.change("update", lambda: self.table.update(sets, self.among(gone)), gone, new)

    def merge(self, days: Days, rest: int, day: str | None, deletes: bool) -> None:
        """New rows are inserted; of those that are there the day changes; the rest stays, or goes."""
        known = self.third(rest)
        changed, added = [self.row(day, id) for id, _, _ in known], [self.row(each) for each in days]
        rest_too: Any = "delete" if deletes else None
        values = mc.Update(set={"day": "source.day", "n": "source.n"})
        source = self.arrow([*added, *changed])
        gone = self.shown(self.version) if deletes else known
        self.change(
            "merge",
            lambda: self.table.merge(source, on="id", when_matched=values, when_not_matched_by_source=rest_too),
            gone,
            [*added, *changed],
        )

    def overwrite(self, day: str | None, count: int) -> None:
        """The later half of the rows by their ids, whatever their days."""
        rows = sorted(self.shown(self.version), key=lambda row: row[0])
        first, added = rows[len(rows) // 2][0] if rows else 0, [self.row(day) for _ in range(count)]
        data, gone = self.arrow(added), [row for row in rows if row[0] >= first]
        self.change("overwrite", lambda: self.table.overwrite_where(data, pc.field("id") >= first), gone, added)

    # --- what sets back, and upkeep ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.table.watermarks())
    @rule(data=st.data(), back=st.integers(0, 3))
    def rewind(self, data: st.DataObject, back: int) -> None:
        source, at = data.draw(st.sampled_from(sorted(self.table.watermarks().items())))
        to = at - back if isinstance(at, int) and 0 < back <= at else None
        with self.told("rewind", rewinds={source: to}) as running, contextlib.suppress(SnapshotExpiredError):
            outcome = self.table.rewind(source, to, reason="é")
            running.note(job=outcome.job_id)
            done(running, outcome)

    @precondition(lambda self: self.version > self.first)
    @rule(data=st.data(), death=DEATH)
    def roll_back(self, data: st.DataObject, death: tuple[int, bool] | None) -> None:
        to = data.draw(st.sampled_from([version for version in self.readable if version >= self.first]))
        if to == self.version:
            return
        running = self.history.begin("one", "rollback", restores=to)
        before = self.version
        if death is not None:
            with dying(self.url, *death) as store:
                rollback(session(store), to, reason="é")
        else:
            with self.ends(running):
                done(running, self.table.rollback(to, reason="é"))
        if self.version > before:
            self.columns += [self.columns[-1]] * (self.version - len(self.columns)) + [self.columns[to]]
            assert self.live() == self.keys.get(to, self.live()), "keys go back, too [CF13]"

    @rule(keep=st.integers(1, 5), keys=st.sampled_from([0, 1, 2, 2, 9]), foreign=st.booleans(), death=DEATH)
    def collect(self, keep: int, keys: int, foreign: bool, death: tuple[int, bool] | None) -> None:
        running = self.history.begin("one", "gc", outcome="failed", fence=ANY_FENCE, forgets=(EVERYTHING,), keeps=keys)
        if death is not None:
            with dying(self.url, *death) as store:
                gc.run(session(store), Policy(grace_s=0, keep_for_s=0, keep_versions=keep, keep_keys=keys))
            return
        report = self.table.gc(grace="0s", keep_for="0s", keep_versions=keep, keep_keys=keys, foreign=foreign)
        running.collected(report.version, report.fence)
        self.history.end(running)

    @rule(manifests=st.booleans(), death=DEATH)
    def compact(self, manifests: bool, death: tuple[int, bool] | None) -> None:
        """Versions whose rows are those of the one before. [GC11]"""
        if manifests:
            self.table.compact(only_manifests=True)
        else:
            with dying(self.url, *(death or (1_000, False))) as store:
                compact(session(store), CompactionOptions(), rewrite_here(store))

    @rule(data=st.data())
    def others(self, data: st.DataObject) -> None:
        """What moves no row, key or position, one of it."""
        data.draw(st.sampled_from([self.tag, self.alter, self.alter, self.alter, self.travel, self.changes]))(data)

    def tag(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(["t", "a tag 'é'"]))
        if data.draw(st.booleans()):
            self.table.tag(name, data.draw(st.sampled_from(self.readable)))
        elif name in open_head(self.store).snapshot.tags:
            self.table.untag(name)

    def alter(self, data: st.DataObject) -> None:
        old, name, how = data.draw(NAME), data.draw(NAME), data.draw(st.sampled_from(["add", "rename", "drop"]))
        columns = {**self.columns[-1]}
        if (old in columns) != (how != "add") or (how == "rename" and name in columns):
            return
        self.the_table_is_read()
        if how == "add":
            self.table.add_column(old, pa.string())
            columns[old] = next(self.numbers)
        elif how == "drop":
            self.table.drop_column(old)
            del columns[old]
        else:
            self.table.rename_column(old, name)
            columns[name] = columns.pop(old)
        self.columns.append(columns)
        assert len(self.columns) == self.version + 1

    # --- what is read ---------------------------------------------------------------------------------------------------------

    def travel(self, data: st.DataObject) -> None:
        version = data.draw(st.integers(1, self.version))
        if version not in self.readable:
            with pytest.raises(SnapshotExpiredError):
                self.table.dataset(version)
            return
        with self.told("read", outcome="failed", at=version) as running:
            running.saw(version, items=map(item, self.shown(version)))

    def changes(self, data: st.DataObject) -> None:
        """The rows of the files that came and went are the difference of the two states. [RD8]"""
        start, end = sorted(data.draw(st.sampled_from(self.readable)) for _ in range(2))
        found = self.table.changed_files(start, end)
        added, removed = (sum(found[which].column("rows").to_pylist()) for which in ("added", "removed"))
        assert added - removed == len(self.shown(end)) - len(self.shown(start))

    @invariant()
    def the_table_is_read(self) -> None:
        if self.history.operations:
            self.columns += [self.columns[-1]] * (self.version + 1 - len(self.columns))
            with self.told("read", outcome="failed") as running:
                running.saw(self.version, items=map(item, self.shown(self.version)), watermarks=self.table.watermarks())
            self.keys[self.version] = self.live()


class OnDisk(Life):
    local = True


TestHistory, TestHistoryAtLength = in_two_lengths(Life, steps=40, quick=2, usual=50, proof=3_000)
TestHistoryOnDisk = in_two_lengths(OnDisk, steps=40, quick=rounds(1, 150), usual=2, proof=150)[0]
