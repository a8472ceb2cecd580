"""Constraints that are added and dropped beside writers, merges, updates, streams, loads, staged jobs and quarantines of one table.

Fillers bring rows, each under an id that no other row has, in every way that there is; rulers add and drop constraints; the loader
loads files of a landing folder; inspectors read; the keeper compacts and collects. Nobody deletes a row; rulers roll all tables back
together. So at the end each row that no rollback took away is once in the table or in its quarantine, and no version has a row that
violates a constraint of it. [CK1]-[CK7]
"""

import io
import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from tests.chaos.check import check_chain, check_counts, check_files, read_chain, waiting
from tests.chaos.work import Board
from tests.chaos.world import Actor, DyingActor, Phase, World, get_file, put_file

import manifestcommit as mc
from manifestcommit.store import Store, open_store

TABLE, REFUSED = "gated", "refused"
SCHEMA = pa.schema([("id", pa.int64()), ("shelf", pa.string()), ("n", pa.int64()), ("batch", pa.string())])
SHELVES = ("a b", "%", "it's")
# Each condition, and the same in plain Python; all of them keep 20.
HOLDS: dict[str, Callable[[int], bool]] = {
    "n < 70": lambda n: n < 70,
    "n < 40": lambda n: n < 40,
    "n >= 0": lambda n: n >= 0,
    "n >= 10 OR n = 5": lambda n: n >= 10 or n == 5,
    "n % 7 <> 3": lambda n: n < 0 or n % 7 != 3,  # in SQL the remainder of a negative number is negative
    "n BETWEEN -5 AND 80": lambda n: -5 <= n <= 80,
}
CONDITIONS = {"most": ("n < 70", "n < 40"), "least": ("n >= 0", "n >= 10 OR n = 5"), "odd": ("n % 7 <> 3", "n BETWEEN -5 AND 80")}
_GOOD, _FEED, _KINDS = 20, "feed of ", ("split", "split", "strict", "merge", "update", "staged", "stream", "return")
_RERUNS, _SHOWN = 40, 5
# What a rerun of the key is for: the others were faster, or the versions that it rests on are gone.
_AGAIN = (
    mc.errors.CommitConflictError,
    mc.errors.JobFencedError,
    mc.errors.JobAbortedError,
    mc.errors.DataFileMissingError,
    mc.errors.SnapshotExpiredError,
)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that somebody brings, and how. start: of a stream, where its source stands before it; None: it has no position."""

    key: str
    kind: Literal["split", "strict", "merge", "update", "staged", "stream", "return"]
    ids: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    shelf: str = ""
    start: int | None = None

    @property
    def rows(self) -> pa.Table:
        count = len(self.ids)
        return pa.table([self.ids, [self.shelf] * count, self.numbers, [self.key] * count], schema=SCHEMA)


class Filler(DyingActor):
    """Brings batches, each until it is known what became of it."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self.board, self._count = Board(self.folder, name, Batch), itertools.count()

    def turn(self, phase: Phase) -> None:
        try:
            for batch in (unfinished := self.board.own()):
                self.note("rerun", key=batch.key)
                self.persist(batch)
            if not unfinished and phase == "run" and self.likely(0.04):
                self.set_back()
            elif not unfinished and phase == "run":
                batch = self.draw()
                self.note("bringing", key=batch.key, ids=batch.ids)
                self.board.put([batch])
                self.persist(batch)
            self.board.clear()
        except mc.errors.StoreError as error:
            self.failed(error)
        self.pause(0.6 if self.world.faulty else 0.15)

    def draw(self) -> Batch:
        kind = self.dice.choice(_KINDS)
        key = f"{self.name}.{self.incarnation}/{next(self._count)} {kind}"
        ids = tuple(self.dice.randrange(1 << 62) for _ in range(0 if kind in ("update", "return") else self.dice.randint(1, 6)))
        bad = 0.3 if kind in ("split", "stream") else 0.05
        numbers = tuple(self.dice.randint(-12, 95) if self.likely(bad) else _GOOD + self.dice.randrange(3) for _ in ids)
        stands = self.table(TABLE).watermarks().get(_FEED + self.name) if kind == "stream" else None
        start = None if stands is None else int(stands)
        return Batch(key=key, kind=kind, ids=ids, numbers=numbers, shelf=self.dice.choice(SHELVES), start=start)

    def set_back(self) -> None:
        """Its source begins anew a little earlier: what was read from there stays. [WM5]"""
        table, source = self.table(TABLE), _FEED + self.name
        stands = int(table.watermarks().get(source) or 0)
        if stands:
            try:
                table.rewind(source, max(0, stands - 2), reason="chaos", alone=True)
                self.note("set back", source=source)
            except (*_AGAIN, mc.errors.OutcomeUnknownError, mc.errors.UsageError) as error:
                if isinstance(error, mc.errors.UsageError) and "has never been" not in str(error):
                    raise
                self.note("conflict", error=type(error).__name__, kind="rewind")

    def persist(self, batch: Batch) -> None:
        for tried in range(_RERUNS):
            self.pause(0.1 * tried)
            try:
                self.bring(batch)
                self.maybe_die("committed, and nobody was told", 0.03)
                return self.note("brought", key=batch.key, kind=batch.kind)
            except mc.errors.ConstraintError as error:
                return self.note("violated", key=batch.key, kind=batch.kind, constraint=error.constraint)
            except mc.errors.WatermarkOverlapError as error:
                if batch.kind != "stream" or not error.all_covered:
                    raise
                return self.note("brought", key=batch.key, kind=batch.kind)
            except mc.errors.WatermarkGapError:
                return self.note("gone back", key=batch.key)  # by a rollback: nothing waits for it
            except _AGAIN as error:
                self.note("conflict", error=type(error).__name__, kind=batch.kind)
            except mc.errors.OutcomeUnknownError as error:
                self.note("unknown", job=error.job_id)
                if not self.world.faulty:
                    self.violation(f"a store without faults gave no answer to job {error.job_id}")
            except mc.errors.StoreError as error:
                self.failed(error)
        return self.violation(f"{batch.key} did not get through in {_RERUNS} attempts")

    def bring(self, batch: Batch) -> None:
        url, options = self.world.urls[TABLE], self.world.options
        if batch.kind == "split":
            mc.write(batch.rows, url, key=batch.key, on_violation="quarantine", storage_options=options)
        elif batch.kind == "strict":
            mc.write(batch.rows, url, key=batch.key, storage_options=options)
        elif batch.kind == "merge":
            known = self.table(TABLE).to_arrow(["id", "shelf", "n", "batch"], filter="n < 30").slice(0, 3)
            rows = pa.concat_tables([batch.rows, known.cast(SCHEMA)])
            update = mc.Update(set={"n": "target.n + 1"})
            self.table(TABLE).merge(rows, "id", when_matched=[update], when_not_matched="insert", key=batch.key)
        elif batch.kind == "update":
            self.table(TABLE).update({"n": "n + 2"}, f"n < 30 AND id % 5 = {len(batch.key) % 5}", key=batch.key)
        elif batch.kind == "stream":
            marks = {_FEED + self.name: (batch.start, (batch.start or 0) + 1)}
            mc.write(batch.rows, url, watermarks=marks, on_violation="quarantine", storage_options=options)
        elif batch.kind == "staged":
            self.publish(batch)
        else:
            self.give_back(batch)

    def publish(self, batch: Batch) -> None:
        """Written, looked at and published, each by what is known of the job by its id."""
        url, options = self.world.urls[TABLE], self.world.options
        job = mc.write(batch.rows, url, key=batch.key, publish=False, storage_options=options).job_id
        self.maybe_die("staged, and nobody knows", 0.05)
        self.pause(0.3)
        staged = mc.Staged(url, job, storage_options=options)
        try:
            staged.check(mc.checks.expect("n < 1000"), mc.checks.expect_rows(at_least=1))
            staged.publish()
        except mc.errors.ConstraintError:
            staged.abort()
            raise

    def give_back(self, batch: Batch) -> None:
        """Refused rows are repaired, and go back in one commit."""
        names = {"rows": self.world.urls[TABLE], "refused": self.world.urls[REFUSED]}
        with mc.transaction(names, key=batch.key, storage_options=self.world.options) as tx:
            if tx["rows"].already_committed:
                return
            there = tx.read("refused").to_arrow(columns=SCHEMA.names)
            some = there.slice(0, 2)
            if some.num_rows:
                good = some.set_column(2, "n", pa.array([_GOOD] * some.num_rows))
                tx["rows"].write(good.cast(SCHEMA))
                tx.rows("refused").delete(f"id IN ({', '.join(map(str, some['id'].to_pylist()))})")
        self.note("returned", rows=some.num_rows)


class Ruler(DyingActor):
    """Adds and drops constraints, and rolls back. While the rest is finished, drops them."""

    def turn(self, phase: Phase) -> None:
        table, name = self.table(TABLE), self.dice.choice(sorted(CONDITIONS))
        try:
            if phase != "run":
                for each in table.constraints():
                    table.drop_constraint(each)
            elif self.likely(0.2):
                self.undo()
            elif self.likely(0.4):
                table.drop_constraint(name)
                self.note("dropped", name=name)
            else:
                condition = self.dice.choice(CONDITIONS[name])
                if self.likely(0.7):
                    table.update({"n": str(_GOOD)}, f"NOT ({condition})")
                table.add_constraint(name, condition)
                self.note("added", name=name, condition=condition)
        except mc.errors.ConstraintError:
            self.note("not added", name=name)
        except mc.errors.UsageError as error:
            if f"constraint {name!r}" not in str(error) and "no constraint" not in str(error):
                raise
        except (*_AGAIN, mc.errors.OutcomeUnknownError) as error:
            self.note("conflict", error=type(error).__name__, kind="rule")
        except mc.errors.StoreError as error:
            self.failed(error)
        self.pause(0.5)

    def undo(self) -> None:
        """All tables go back together to what they were a moment ago: rows, constraints, keys and positions. [CK4]"""
        url, options = self.world.urls[TABLE], self.world.options
        try:
            pinned = mc.read_together([url, self.world.urls[REFUSED], f"{url}.files"], storage_options=options)
        except mc.errors.TableNotFoundError:
            return  # nothing was loaded yet
        self.pause(0.5)
        moved = {each.url: each.version for each in pinned if mc.Table(each.url, options).version > each.version}
        try:
            if len(moved) > 1:
                mc.rollback_together(moved, reason="chaos", storage_options=options)
            for place, version in moved.items() if len(moved) == 1 else ():
                mc.Table(place, options).rollback(version, reason="chaos")
        except mc.errors.UsageError as error:  # another ruler was faster
            if "nothing to roll back" not in str(error):
                raise
        self.note("rolled back", tables=len(moved))


class Lander(DyingActor):
    """Files land in a folder of its own, and all that landed is in the table at the end."""

    kind, bad = "", 0.0

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self.landing = self.folder / self.kind
        self.landing.mkdir(exist_ok=True)
        self._count = itertools.count()

    def land(self) -> None:
        """One more file."""
        key = f"{self.name}.{self.incarnation}-{next(self._count)}"
        ids = tuple(self.dice.randrange(1 << 62) for _ in range(4))
        numbers = tuple(self.dice.randint(-12, 95) if self.likely(self.bad) else _GOOD for _ in ids)
        self.note("bringing", key=key, ids=ids)
        data = io.BytesIO()
        pq.write_table(Batch(key=key, kind="strict", ids=ids, numbers=numbers, shelf=SHELVES[0]).rows, data)
        part = self.landing / f".{key}"
        part.write_bytes(data.getvalue())
        self.note("brought", key=key, kind=self.kind)
        part.rename(self.landing / f"{key}.parquet")


class Loader(Lander):
    """Loads what landed; a file with a row that violates a constraint waits until that is dropped."""

    kind, bad = "load", 0.02

    def turn(self, phase: Phase) -> None:
        if phase == "run":
            self.land()
        try:
            source = mc.sources.files(str(self.landing), settle="0s")
            loaded = mc.load(source, self.world.urls[TABLE], storage_options=self.world.options)
            self.note("loaded", rows=loaded.rows)
            if phase != "run":
                put_file(self.folder / "caught up", True)
        except mc.errors.ConstraintError:
            self.note("not loaded")
        except (*_AGAIN, mc.errors.OutcomeUnknownError) as error:
            self.note("conflict", error=type(error).__name__, kind="load")
        except mc.errors.StoreError as error:
            self.failed(error)
        self.pause(1.0)


class Streamer(Lander):
    """A query of Spark streams what landed, a file a batch, by writes with a quarantine. It dies where commits do, and before its
    checkpoint."""

    kind, bad = "stream of Spark", 0.3
    _session: Any = None

    def turn(self, phase: Phase) -> None:
        for _ in range(self.dice.randint(1, 5) if phase == "run" else 0):
            self.land()
        try:
            self.query()
            if phase != "run":
                put_file(self.folder / "streamed up", True)
        except Exception as error:  # as Spark shows what the batch raised
            known = (*_AGAIN, mc.errors.OutcomeUnknownError, mc.errors.ConstraintError, mc.errors.StoreError)
            found = next((each.__name__ for each in known if each.__name__ in str(error)), None)
            if found is None:
                raise
            self.note("conflict", error=found, kind=self.kind)
        self.pause(1.0)

    def query(self) -> None:
        """One run of the query, over all that is there."""
        landed = self.spark().readStream.schema("id long, shelf string, n long, batch string").option("maxFilesPerTrigger", 1)
        rows = landed.parquet(str(self.landing))
        sink = rows.writeStream.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(availableNow=True)
        sink.foreachBatch(self.take).start().awaitTermination()

    def take(self, rows: Any, number: int) -> None:
        key, options = f"{self.name} {number}", self.world.options
        for left in reversed(range(5)):  # a query that begins anew takes longer
            try:
                outcome = mc.write(rows, self.world.urls[TABLE], key=key, on_violation="quarantine", storage_options=options)
                self.note("streamed", batch=number, already=outcome.already_committed)
                break
            except (*_AGAIN, mc.errors.ConstraintError) as error:
                self.note("conflict", error=type(error).__name__, kind=self.kind)
                if not left:
                    raise
        self.maybe_die("streamed, and no checkpoint says so", 0.1)

    def spark(self) -> Any:
        """The session of this process, from its first query on."""
        if self._session is None:
            from examples.flights.java import ensure_java
            from tests.spark.clusters import environment

            ensure_java()
            scratch = self.folder / f"spark-{self.incarnation}"
            scratch.mkdir(exist_ok=True)
            os.environ.update(environment(scratch, hooks=False))
            from pyspark.sql import SparkSession

            made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
            self._session = made.config("spark.sql.shuffle.partitions", "1").config("spark.driver.memory", "600m").getOrCreate()
        return self._session


class Inspector(Actor):
    """Whoever reads a version finds no row that violates a constraint of it."""

    def turn(self, phase: Phase) -> None:
        table = self.world.table(TABLE, direct=True)
        head = table.version
        version = self.dice.randint(max(1, head - 20), head)
        numbers = set(table.to_arrow(["n"], version=version).column("n").to_pylist())
        for name, each in table.snapshot(version=version).constraints.items():
            wrong = [n for n in numbers if not HOLDS[each.condition](n)]
            if wrong:
                self.violation(f"version {version} holds {wrong[:_SHOWN]} beside {name}: {each.condition}")
        self.note("read", table=TABLE, version=version)
        self.pause(0.5)


class Keeper(DyingActor):
    """Compaction and gc, which expires nothing; the last one aborts what stayed staged."""

    def turn(self, phase: Phase) -> None:
        table, refused = self.table(TABLE), self.table(REFUSED)
        try:
            if phase == "end":
                for job in [info.job for info in table.jobs() if info.state == "prepared"]:
                    self.note("aborted", job=job)
                    mc.Staged(self.world.urls[TABLE], job, storage_options=self.world.options).abort()
            elif self.likely(0.5):
                done = [each.compact() for each in (table, refused)]
                self.note("compacted", groups=sum(each.groups for each in done))
            else:
                grace = "2m" if self.world.spark else "3s"  # a batch of Spark takes longer than most of this
                for each in (TABLE, REFUSED):
                    mc.gc(self.world.urls[each], grace=grace, keep_versions=1_000_000, storage_options=self.world.options)
                self.note("collected")
        except (*_AGAIN, mc.errors.OutcomeUnknownError) as error:
            self.note("not swept", error=type(error).__name__)
        except mc.errors.StoreError as error:
            self.failed(error)
        self.pause(1.5)

    def run(self) -> None:
        super().run()
        self.turn("end")


class Gate:
    """The scene."""

    passed = "no version holds a row that violates a constraint of it; each row is once in the table or in its quarantine"
    last = "keeper"
    judged = 0  # pairs of a file and a constraint beside it

    def actors(self, crew: Any) -> list[str]:
        many = {"filler": crew.writers + 1, "ruler": 2, "inspector": crew.readers, "loader": 1}
        return [*(f"{role} {number}" for role, count in many.items() for number in range(count)), "keeper"]

    def folders(self, crew: Any) -> dict[str, str]:
        return {TABLE: f"lake %20+=/{TABLE}", REFUSED: f"lake %20+=/{TABLE}.{REFUSED}"}

    def create(self, world: World, *, exports: bool) -> None:
        mc.create_table(world.urls[TABLE], SCHEMA, partition_by="shelf", storage_options=world.options)
        mc.write(SCHEMA.empty_table(), world.urls[TABLE], on_violation="quarantine", storage_options=world.options)

    def is_drained(self, world: World) -> bool:
        folder = Path(world.folder)
        up = bool(get_file(folder / "caught up")) and (bool(get_file(folder / "streamed up")) or not world.spark)
        return up and not any((folder / "units").glob("*.json"))

    def check(self, world: World, told: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
        findings = []
        for name in (TABLE, REFUSED):
            store, table = open_store(world.urls[name], world.direct), world.table(name, direct=True)
            wrong, _ = check_files(store, table.files())
            wrong += [*check_chain(read_chain(store)), *check_counts(table), *waiting(table)]
            findings += [f"{name}: {each}" for each in wrong]
        if findings:  # a table that is damaged may not be readable
            return findings, 0
        table = world.table(TABLE, direct=True)
        self.judged, wrong = violating(table, open_store(world.urls[TABLE], world.direct))
        return [*wrong, *misplaced(table, world.table(REFUSED, direct=True), told)], 0

    def progress(self, world: World) -> str:
        return f"rows {world.table(TABLE, direct=True).snapshot().totals.rows}, constraints {world.table(TABLE, direct=True).constraints()}"

    def counts(self, world: World) -> dict[str, int]:
        return {"files": world.table(TABLE, direct=True).snapshot().totals.files, "files beside a constraint": self.judged}


def violating(table: mc.Table, store: Store) -> tuple[int, list[str]]:
    """How many pairs of a file and a constraint there are in all versions, and the rows that violate the constraint beside them."""
    numbers: dict[str, list[int]] = {}
    judged: dict[tuple[str, str], list[int]] = {}
    findings = []
    for version in range(1, table.version + 1):
        held = table.snapshot(version=version).constraints
        if not held:
            continue
        for path, (name, each) in itertools.product(table.files(version=version).column("path").to_pylist(), held.items()):
            if path not in numbers:
                numbers[path] = pq.read_table(io.BytesIO(store.get(path)), columns=["n"]).column("n").to_pylist()
            pair = (path, each.condition)
            if pair not in judged:
                judged[pair] = [n for n in numbers[path] if not HOLDS[each.condition](n)]
            if judged[pair]:
                findings.append(f"version {version}: {path!r} has {judged[pair][:_SHOWN]} beside {name}: {each.condition}")
    return len(judged), findings[:_SHOWN]


def misplaced(table: mc.Table, refused: mc.Table, told: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows that are lost, doubled or where they should not be."""
    kept = refused.to_arrow(["id", "n", "refused_by"]).to_pylist()
    gone = taken_back(table) | taken_back(refused)
    there = Counter(table.to_arrow(["id"]).column("id").to_pylist())
    there.update(row["id"] for row in kept)
    brought = {note["key"]: note["ids"] for note in told if note["what"] == "bringing"}
    done = {note["key"] for note in told if note["what"] == "brought"}
    ended = {note["key"] for note in told if note["what"] == "violated"}
    wrong = {
        "doubled": [each for each, times in there.items() if times > 1],
        "lost": [each for key in done for each in brought[key] if not there[each] and each not in gone],
        "there, and were refused": [each for key in ended - done for each in brought[key] if there[each]],
        "brought by nobody": sorted(there.keys() - {each for ids in brought.values() for each in ids}),
        "refused for nothing": [row["id"] for row in kept if not row["refused_by"] or any(map(_keeps(row["n"]), row["refused_by"]))],
    }
    return [f"{len(ids)} rows are {what}: {ids[:_SHOWN]}" for what, ids in wrong.items() if ids]


def taken_back(table: mc.Table) -> set[int]:
    """The ids of rows that a rollback took away."""
    history = [(row["version"], row["operation"]) for row in table.history()]
    gone: set[int] = set()
    for version in [version for version, operation in history if operation == "rollback"]:
        before = max(each for each, _ in history if each < version)
        there, left = (table.to_arrow(["id"], version=each).column("id").to_pylist() for each in (before, version))
        gone |= {*there} - {*left}
    return gone


def _keeps(number: int) -> Callable[[str], bool]:
    """Of a constraint's name, whether the number keeps all conditions that it stood for."""
    return lambda name: all(HOLDS[condition](number) for condition in CONDITIONS[name])
