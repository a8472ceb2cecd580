"""Makes the table of a long life: python tests/compat/live.py tests/compat/fixtures/lived-v0.1

Run once per release that changes what is written, by the release itself, into a folder of its own, like freeze.py: what it made is never
edited or made again. The table began as a folder of somebody's Parquet files and has everything behind it that tables go through; beside it
stands expected.json, with what it must read as. Ids of rows, watermarks and outcomes of jobs are kept account of while it lives, and what
the release reads is held against that account before it is written down.

Clock and randomness are made up, so that versions lie days apart, and a life is always the same.
Not here: what is read back (read_back.py).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.budgets import budgets
from tests.compat.read_back import ARCHIVE, EXPECTATIONS, pack, read_back
from tests.jobs import job_on

import manifestcommit as mc
from manifestcommit.core.commit.change import StreamBatch
from manifestcommit.core.filter.merge_keys import key_columns, may_hold, partitions_of_keys
from manifestcommit.core.table import object_names
from manifestcommit.core.table.authorship import Author
from manifestcommit.core.table.snapshot import Snapshot
from manifestcommit.engine.datafile.writer import DataFileWriter
from manifestcommit.engine.job.job import Transaction
from manifestcommit.engine.maintenance.compaction import CompactionOptions, NewFiles, Rewriting, compact
from manifestcommit.engine.metadata import table_context as engine_session
from manifestcommit.engine.metadata.table_context import TableContext
from manifestcommit.engine.operations.row_change import Declared, RowChange, ranges_of
from manifestcommit.engine.runtime.environment import SystemEnv
from manifestcommit.engine.runtime.outcome import committed_or_raise
from manifestcommit.engine.scan import planning
from manifestcommit.engine.scan.arrow_dataset import open_dataset
from manifestcommit.store import Store, open_store
from manifestcommit.testing.faults import Died, FaultCall, FaultStore

DAYS = [dt.date(2013, 1, 1), dt.date(1582, 10, 4), None]
HOSTILE = ["a b", None, "%41", "a/b", "é 日本", "a=b+c#'\""]
FOLDERS = ["a b", "__HIVE_DEFAULT_PARTITION__", "%2541", "a%2Fb", "é 日本", "a%3Db+c%23%27%22"]  # as others spell these
TOPIC, LOG, LATE = "MyTopic:0", "log 'é' 100%", "late:é"


class MadeUp(SystemEnv):
    """A clock that goes on by a second a look, and dice that always fall the same way."""

    def __init__(self) -> None:
        self._us = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp() * 1_000_000)
        self._dice = random.Random(2026)

    def now_us(self) -> int:
        self._us += 1_000_000
        return self._us

    def pass_a_day(self) -> None:
        self._us += 86_400 * 1_000_000

    def randomness(self, count: int) -> bytes:
        return self._dice.randbytes(count)

    def sleep(self, seconds: float) -> None:
        """Nobody waits."""

    def jitter(self) -> float:
        return 0.5

    def author(self) -> Author:
        return Author()


class Life:
    """A table, and the account that is kept of it. ids: of all rows by version; marks: the watermarks by version; jobs: what became of
    each job that is not simply committed; keys: key -> version, of reruns that must do nothing."""

    def __init__(self, root: Path, env: MadeUp) -> None:
        self.root, self.env = root, env
        self.store = open_store(str(root))
        self.alive: set[int] = set()
        self.stand: dict[str, Any] = {}
        self.ids: dict[int, list[int]] = {}
        self.marks: dict[int, dict[str, Any]] = {}
        self.jobs: dict[str, str] = {}
        self.keys: dict[str, int] = {}
        self.part, self.columns = "p", {"v": "v", "s": "s"}  # what they are called by now

    @property
    def table(self) -> mc.Table:
        return mc.Table(self.root)

    @property
    def version(self) -> int:
        return max(self.ids, default=0)

    def session(self, store: Store | None = None) -> TableContext:
        return TableContext(store or self.store, self.env)

    def note(self) -> int:
        """All versions since the last look hold what is alive now."""
        for version in range(self.version + 1, self.session().open().version + 1):
            self.ids[version], self.marks[version] = sorted(self.alive), dict(self.stand)
        self.env.pass_a_day()
        return self.version

    def rows(self, ids: Sequence[int], plus: int = 0) -> pa.Table:
        """Rows whose ids say which partitions they lie in, and whether the rest of them is null."""
        columns: dict[str, Any] = {
            "id": pa.array(ids, pa.int64()),
            self.part: pa.array([HOSTILE[id % len(HOSTILE)] for id in ids], pa.string()),
            "day": pa.array([DAYS[id % len(DAYS)] for id in ids], pa.date32()),
        }
        for column, name in self.columns.items():
            given = [None if id % 3 == 2 else f"'{id}\n%" if column == "s" else 10 * id + plus for id in ids]
            columns[name] = pa.array(given, {"v": pa.int32(), "s": pa.string()}.get(column, pa.int64()))
        return pa.table(columns)

    def append(self, ids: Sequence[int], *, store: Store | None = None, **options: Any) -> int:
        """One append of these rows, or of `data` with these ids; store: over which it is made; brings: rows of others that it carries."""
        brings, marks, key = options.pop("brings", ()), options.pop("watermarks", {}), options.pop("key", None)
        with job_on(self.session(store), key=key, fingerprint=options.pop("fingerprint", None)) as job:
            for source, (start, end) in marks.items():
                job.advance(source, start, end)
            data = options.pop("data", None)
            job.write(self.rows(ids) if data is None else data, sources=marks or None, **options)
        self.alive |= {*ids, *brings}
        self.stand |= {source: end for source, (_, end) in marks.items()}
        version = self.note()
        if key is not None:
            self.keys[key] = version
        return version

    def overwrite(self, ids: Sequence[int], overwrite: Any, **options: Any) -> int:
        """overwrite: the partition value whose rows go, or "dynamic": every partition in which a new row lies."""
        mc.write(self.rows(ids), self.root, mode="overwrite", overwrite=overwrite, **options)
        places = {_place(id) for id in ids}
        gone = {id for id in self.alive if (_place(id) in places if overwrite == "dynamic" else _place(id)[0] == overwrite["p"])}
        self.alive = (self.alive - gone) | set(ids)
        return self.note()

    def began(self, ids: Sequence[int], **options: Any) -> mc.job.Job:
        """A job that has written these rows and decided nothing."""
        job = mc.begin(self.root, **options)
        job.write(self.rows(ids))
        return job


def _place(id: int) -> tuple[str | None, dt.date | None]:
    return HOSTILE[id % len(HOSTILE)], DAYS[id % len(DAYS)]


def live(root: Path, env: MadeUp) -> Life:
    """From a folder of somebody's files to a table with everything behind it and something in flight."""
    life = Life(root, env)
    be_adopted(life)
    be_loaded(life)
    change_columns(life)
    stream(life)
    spill(life)
    change_rows(life)
    be_collected(life)
    go_back(life)
    share(life)
    be_collected_again(life)
    go_on(life)
    leave_in_flight(life)
    return life


def be_adopted(life: Life) -> None:
    """Versions 1 and 2: files of others, one without one of the columns."""
    for at, folder in enumerate(FOLDERS):
        day = DAYS[at % len(DAYS)]
        path = life.root / f"p={folder}" / f"day={day or '__HIVE_DEFAULT_PARTITION__'}"
        path.mkdir(parents=True)
        table = life.rows([at]).drop_columns(["p", "day"])
        pq.write_table(table.drop_columns(["s"]) if at == 4 else table, path / f"part-0000{at} é #+.parquet")
    (life.root / "_SUCCESS").write_bytes(b"")
    mc.Table(life.root).adopt()
    life.alive = set(range(len(FOLDERS)))
    life.note()
    life.ids[1] = []


def be_loaded(life: Life) -> None:
    """Keys, positions of all kinds, properties, a job that failed, files with source ranges."""
    life.append(range(10, 16), key="load:1 é", watermarks={TOPIC: (0, 100), "MyTopic:1": (7, 7), LOG: (None, "opaque-1")})
    life.append(range(16, 20), key="load:2", fingerprint="f", watermarks={TOPIC: (100, 2**62), LOG: ("opaque-1", "opaque-2")})
    life.table.set_properties({"owner": "é 'x'", "write.bounds-columns": "4", "gone": "soon"})
    life.note()
    life.table.set_properties({"gone": None})
    life.note()
    with contextlib.suppress(ZeroDivisionError), mc.begin(life.root, key="load:3") as job:
        job.write(life.rows([999]))
        raise ZeroDivisionError
    life.append([], key="no rows", watermarks={LATE: (0, 10)})


def change_columns(life: Life) -> None:
    """Added, renamed, widened, dropped; and one more under the name of the one that was dropped."""
    life.table.add_column("added", pa.int64())
    life.columns["added"] = "added"
    life.note()
    life.append(range(20, 24))
    life.table.rename_column("v", "v 'renamed'")
    life.columns["v"] = "v 'renamed'"
    life.note()
    data = life.rows(range(24, 27))
    wide = data.set_column(data.column_names.index("v 'renamed'"), "v 'renamed'", pa.array([2**40, None, -(2**40)]))
    life.append(range(24, 27), data=wide.append_column("merged", pa.array([float("nan"), None, 1.5])), merge_schema=True)
    life.table.drop_column("s")
    life.note()
    del life.columns["s"]
    life.table.add_column("s", pa.int64())
    life.columns["s again"] = "s"
    life.note()
    life.append(range(27, 31))


def stream(life: Life) -> None:
    """Three batches of a query, and a tag on each of two versions."""
    for batch in range(3):
        job = Transaction.begin(life.session())
        job.take_batch(StreamBatch(name="query é", query="0e8f", batch=batch))
        data = life.rows([40 + batch])
        job.write_stream(data.schema, data.to_batches())
        committed_or_raise(job.commit(), str(life.root))
        life.alive.add(40 + batch)
        life.note()
    life.table.tag("first load é=%", 3)
    life.note()
    life.table.tag("for a hundred years", life.version - 1, keep_for="36500d")
    life.note()
    life.table.tag("a tag too many")
    life.note()
    life.table.untag("a tag too many")
    life.note()


def spill(life: Life) -> None:
    """Entries, keys, jobs and removals move out of the head, and what is outside is merged."""
    with budgets(inline_entry_bytes=1):
        life.append([50, 51], key="spilled")
        life.overwrite([52], {"p": _place(52)[0]}, key="replace:1")
    with budgets(inline_keys=1, inline_jobs=1, inline_removed_bytes=1):
        life.overwrite([53, 54], "dynamic", conflict="blind")
    with budgets(inline_entry_bytes=1, fan_in=2):
        life.append([55, 56], watermarks={LATE: (10, 30)})
    life.append([57])


def change_rows(life: Life) -> None:
    """Deleted, merged, forgotten, compacted."""
    delete(life, [14, 15, 20, 21], key="forget:1", reason="asked for by 'é'")
    merge(life, [22, 23, 60], plus=1, key="merge:1", watermarks={LATE: (30, 40)})
    life.table.drop_removed()
    life.note()
    compact(life.session(), CompactionOptions(), lambda snapshot, groups: rewrite(life, snapshot, groups))
    life.note()


def put(life: Life, plan: Any, table: pa.Table) -> tuple[Any, Any]:
    """Rows in files that are planned so."""
    with DataFileWriter(life.store, plan, task=0, attempt=life.env.randomness(8).hex()) as writer:
        for batch in table.to_batches():
            writer.write(batch)
        return writer.close(), writer.intake


def rewrite(life: Life, snapshot: Snapshot, groups: Sequence[Rewriting]) -> Iterator[NewFiles]:
    """What Spark does for a compaction."""
    for group in groups:
        table = open_dataset(life.session(), snapshot, group.entries).to_table()
        entries, intake = put(life, group.plan, table)
        yield NewFiles(entries=tuple(entries), intake=intake)


def take_out(life: Life, change: RowChange, entries: pa.Table, ids: Sequence[int]) -> None:
    """What Spark does for a deletion: these files without the rows of these ids."""
    for at in range(entries.num_rows):
        entry = entries.slice(at, 1)
        table = open_dataset(life.session(), change.snapshot, entry).to_table()
        kept = table.filter(pa.array([id not in ids for id in table.column("id").to_pylist()], pa.bool_()))
        if kept.num_rows < table.num_rows:
            if kept.num_rows:
                made, intake = put(life, change.plan(sources=ranges_of(entry)), kept)
                change.take(made, intake=intake)
            change.remove(entry)


def delete(life: Life, ids: Sequence[int], **options: Any) -> None:
    change = RowChange(life.session(), "delete", ["where", f"id in {ids}"], Declared(**options))
    take_out(life, change, planning.entries_table(life.session(), change.snapshot), ids)
    committed_or_raise(change.commit(), str(life.root))
    life.alive -= set(ids)
    life.keys[options["key"]] = life.note()


def merge(life: Life, ids: Sequence[int], *, plus: int, **options: Any) -> None:
    """An upsert by id."""
    change = RowChange(life.session(), "merge", ["on", "id"], Declared(**options))
    assert change.snapshot.schema is not None
    keys, by = key_columns(change.snapshot.schema, ["id"]), change.snapshot.partition_by
    files, intake = put(life, change.plan(sources=change.sources), life.rows(ids, plus))
    change.take(files, intake=intake)
    change.read(partitions_of_keys(keys, files, by, by))
    take_out(life, change, planning.entries_table(life.session(), change.snapshot, may_hold(keys, files, by)), ids)
    committed_or_raise(change.commit(), str(life.root))
    life.alive |= set(ids)
    life.stand |= {source: end for source, (_, end) in options["watermarks"].items()}
    life.keys[options["key"]] = life.note()


def be_collected(life: Life) -> None:
    """The first half of the history expires, keys are forgotten, tags hold what they name."""
    for _ in range(2):
        life.table.gc(grace="0s", keep_for="0s", keep_versions=3, keep_keys=5)
        life.note()
    life.append([61, 62], key="after gc", watermarks={"MyTopic:1": (7, 9)})


def go_back(life: Life) -> None:
    """A rewind and what is read again, a bad load and its rollback."""
    life.append([63], watermarks={LATE: (40, 42)})
    life.append([64], key="read twice", watermarks={LATE: (42, 45)})
    assert life.table.rewind(LATE, 42, reason="rows of 'é' were wrong").dropped_keys == ("read twice",)
    life.stand[LATE] = 42
    life.note()
    life.append([65], key="read twice", watermarks={LATE: (42, 45)})
    good = life.version
    stood, alive = dict(life.stand), set(life.alive)
    life.append([998], key="bad", watermarks={LATE: (45, 99)})
    life.keys.pop("bad")
    life.table.rollback(good, reason="a bad load")
    life.stand, life.alive = stood, alive
    life.note()


def beaten(life: Life, times: int, ids: Sequence[int], then: Any = None) -> FaultStore:
    """The store of a writer that loses its first creates to others, who write these rows; then: called with each call besides."""
    left = list(ids[:times])

    def beat(call: FaultCall) -> None:
        if call.kind == "put_if_absent" and object_names.parse_version(call.name) is not None and left:
            life.append([left.pop(0)])
        if then is not None:
            then(call)

    return FaultStore(life.store, on_call=beat)


def intents(life: Life) -> set[str]:
    return {job for info in life.store.list(object_names.INTENTS) if (job := object_names.parse_intent(info.name)) is not None}


def publish(life: Life, id: int, lost_to: Sequence[int], **options: Any) -> str:
    """A writer that loses twice, asks others for help, and dies at once. The job that it leaves waiting."""
    before = intents(life)

    def die(call: FaultCall) -> None:
        if intents(life) - before:
            raise Died("with its change published")

    with contextlib.suppress(Died):
        life.append([id], store=beaten(life, 2, lost_to, die), **options)
    (job,) = intents(life) - before
    return job


def share(life: Life) -> None:
    """One version that carries the job of another, and prepared jobs that were committed and given up."""
    helped = publish(life, 70, [71, 72], key="helped é")
    # Who loses the next version sees it waiting, and brings it along with his own.
    life.append([73], store=beaten(life, 1, [74]), brings=[70])
    life.keys["helped é"] = life.version
    assert life.session().open().snapshot.commits[0].job == helped
    prepared, other = life.began([75], key="prepared é").prepare(), life.began([997]).prepare()
    life.keys["prepared é"] = mc.commit(life.root, prepared).version or 0
    life.alive.add(75)
    life.note()
    mc.Table(life.root).abort(other)
    life.jobs[other] = "forgotten"  # once gc has come by
    life.note()


def be_collected_again(life: Life) -> None:
    """Another gc, which also takes what others left below the root; both are behind the jobs that are still out."""
    (life.root / "notes of others").mkdir()
    (life.root / "notes of others" / "é 1.txt").write_bytes(b"to be condemned")
    for foreign in (False, True):
        life.table.gc(grace="0s", keep_for="0s", keep_versions=14, foreign=foreign)
        life.note()


def go_on(life: Life) -> None:
    """What stands in the head when the life ends: inlined and spilled, a file of others, an empty batch, a version that brings nothing."""
    (life.root / "from elsewhere").mkdir()
    pq.write_table(life.rows([80]).select(["id", "p", "day"]), life.root / "from elsewhere" / "é 1.parquet")
    with mc.begin(life.root, key="added by hand") as job:
        job.add_files(["from elsewhere/é 1.parquet"], sources={"files of others": (0, 1)})
    life.alive.add(80)
    life.keys["added by hand"] = life.note()
    life.append(range(81, 87), key="load:4", watermarks={TOPIC: (2**62, 2**62 + 60)})
    with budgets(inline_entry_bytes=1, inline_keys=1, inline_jobs=1, inline_removed_bytes=1):
        life.append([87, 88], key="load:5", watermarks={TOPIC: (2**62 + 60, 2**62 + 80)})
        life.overwrite([90], "dynamic")
    life.overwrite([89], "dynamic")
    life.append([], watermarks={LATE: (45, 46)})
    life.table.rename_column("p", "part of 'it'")
    life.part = "part of 'it'"
    life.note()


def leave_in_flight(life: Life) -> None:
    """A prepared job, one given up, a recoverable one that died, one that left files only, one whose change waits to be carried."""
    life.jobs[life.began([91], key="prepared, undecided").prepare()] = "pending"
    mc.Table(life.root).abort(given_up := life.began([995]).prepare())
    life.jobs[given_up] = "aborted"
    life.note()
    with contextlib.suppress(ZeroDivisionError), mc.begin(life.root, "daily é", recoverable=True, fingerprint="one row") as job:
        job.write(life.rows([92]))
        raise ZeroDivisionError
    life.jobs[job.id] = "not_committed"
    died = life.began([996])
    life.jobs[died.id] = "not_committed"
    life.jobs[publish(life, 93, [94, 95], key="waiting é")] = "pending"
    life.table.set_properties({"note": "last"})
    life.note()


def main(folder: Path) -> None:
    """Make the table and what is expected of it; refuses a folder that is there already."""
    folder.mkdir(parents=True)
    env = MadeUp()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as scratch:
        patch.setattr(engine_session, "SystemEnv", lambda: env)
        life = live(Path(scratch, "lived"), env)
        expected = read_back(life)
        pack(life.root, folder / ARCHIVE)
    text = json.dumps(expected, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    (folder / EXPECTATIONS).write_text(text + "\n", encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {len(expected['objects'])} objects, {size:,} bytes, {len(text):,} of them expectations")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
