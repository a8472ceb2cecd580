"""Loads from one kind of source for minutes: its writers at work, two loaders at once, each killed at random moments, then every row of the
source compared with the table. `python -m tests.sources.soak kafka --minutes 5` [LD1] [LD2]"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from tests.clients.environments import REPO, python_of
from tests.servers.postgresql import running

import manifestcommit as mc

# A loader: it says when it begins, with all that it imports, and loads until it is killed.
LOADER = """
import contextlib, random, sys, time
import manifestcommit as mc
source, how = eval(sys.argv[1]), {}
if len(sys.argv) > 3:
    from pyspark.sql import SparkSession
    how["spark"] = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
with contextlib.suppress(mc.errors.SourceError):
    mc.load(source, sys.argv[2], dry_run=True)
print("ready", flush=True)
while True:
    try:
        mc.load(source, sys.argv[2], max_bytes=random.choice([200, 5_000, 1_000_000]), **how)
    except mc.errors.SourceError as error:
        if "were faster" not in str(error):  # the other loader
            raise
    time.sleep(random.random() / 10)
"""

# A pipeline of dlt, likewise; or what is left. Its working folder is lost now and then.
PIPELINE = """
import json, random, shutil, sys
import dlt
from manifestcommit_dlt import manifestcommit
api, lake, working = sys.argv[1:4]

@dlt.resource
def events(n=dlt.sources.incremental("n", initial_value=-1)):
    with open(api) as lines:
        yield [row for row in map(json.loads, lines) if row["n"] > n.last_value]

if random.random() < 0.3:
    shutil.rmtree(working, ignore_errors=True)
print("ready", flush=True)
for _ in range(2) if sys.argv[4] == "the rest" else iter(int, 1):  # a run that finds a package loads that alone
    dlt.pipeline("shop", destination=manifestcommit(lake), dataset_name="shop", pipelines_dir=working).run(events())
"""

Rows = Counter[tuple[Any, ...]]


class Origin(NamedTuple):
    """A source with its writers. code: makes the source, in any process; write: one step of the writers; expected: the rows that the table
    has to have, as often as it has to have them; columns: these; pipeline: of dlt: the command that loads, but for its last word, and the
    table that it loads."""

    code: str
    write: Callable[[], None]
    expected: Callable[[], Rows]
    columns: tuple[str, ...]
    pipeline: tuple[list[str], Path] | None = None


class Report(NamedTuple):
    """kills: loaders that were ended by force; loads: versions that hold a chunk."""

    kills: int
    rows: int
    loads: int
    missing: Rows
    doubled: Rows
    damages: int


@contextmanager
def files(folder: Path, chance: random.Random) -> Iterator[Origin]:
    """Files of three formats, some late in a folder of their own, some uploaded again with other rows, which replace theirs."""
    landing = folder / "landing"
    landing.mkdir()
    sent: dict[str, list[int]] = {}
    formats = {
        "csv": lambda rows: "".join(["id\n", *(f"{row}\n" for row in rows)]).encode(),
        "jsonl": lambda rows: "".join(f'{{"id": {row}}}\n' for row in rows).encode(),
        "parquet": lambda rows: _parquet(pa.table({"id": pa.array(rows, pa.int64())})),
    }

    def write() -> None:
        name = chance.choice(list(sent)) if sent and chance.random() < 0.15 else f"{len(sent)}.{chance.choice(list(formats))}"
        rows = [chance.randrange(2**40) for _ in range(chance.randrange(1, 60))]
        hidden = landing / f".{name}"
        hidden.write_bytes(formats[name.rpartition(".")[2]](rows))
        os.rename(hidden, landing / name)
        sent[name] = rows

    def expected() -> Rows:
        return Counter((name, row) for name, rows in sent.items() for row in rows)

    code = f"mc.sources.files({str(landing)!r}, file_column='file', on_changed='replace', settle='0s')"
    yield Origin(code, write, expected, ("file", "id"))


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


@contextmanager
def kafka(folder: Path, chance: random.Random) -> Iterator[Origin]:
    """Four partitions; some records in transactions, whose ends are offsets without a record."""
    brokers = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "these", "log_level": 0})
    servers = ",".join(f"{each.host}:{each.port}" for each in brokers.list_topics(timeout=10).brokers.values())
    plain = Producer({"bootstrap.servers": servers, "log_level": 0})
    joint = Producer({"bootstrap.servers": servers, "transactional.id": "soak", "log_level": 0})
    joint.init_transactions(10)
    sent: list[tuple[Any, ...]] = []

    def write() -> None:
        rows = [(len(sent) + at, chance.randrange(4)) for at in range(chance.randrange(1, 200))]
        producer = joint if chance.random() < 0.3 else plain
        if producer is joint:
            joint.begin_transaction()
        for number, partition in rows:
            producer.produce("orders", value=json.dumps({"id": number}).encode(), partition=partition)
        if producer is joint:
            joint.commit_transaction(10)
        assert producer.flush(10) == 0
        sent.extend(rows)

    yield Origin(
        f"mc.sources.kafka({servers!r}, 'orders', record_columns=['partition'])", write, lambda: Counter(sent), ("id", "_partition")
    )


@contextmanager
def postgres(folder: Path, chance: random.Random) -> Iterator[Origin]:
    """Transactions that commit in another order than they take their ids, and some that are rolled back."""
    with running() as server, ExitStack() as stack:
        server.run("CREATE TABLE orders (id bigint, xid xid8 NOT NULL DEFAULT pg_current_xact_id()); CREATE INDEX ON orders (xid)")
        sessions = [stack.enter_context(psycopg.connect(server.dsn)) for _ in range(3)]
        begun: list[psycopg.Connection] = []
        count = iter(range(10**9))

        def write() -> None:
            session = chance.choice(sessions)
            session.cursor().executemany("INSERT INTO orders (id) VALUES (%s)", [(next(count),) for _ in range(chance.randrange(1, 50))])
            begun.append(session)
            if len(begun) > 3:
                for each in chance.sample(begun, len(begun)):
                    each.rollback() if chance.random() < 0.2 else each.commit()
                begun.clear()

        def expected() -> Rows:
            for each in sessions:
                each.commit()
            return Counter(sessions[0].execute("SELECT id, xid::text::bigint FROM orders").fetchall())

        yield Origin(f"mc.sources.postgres({server.dsn!r}, 'orders')", write, expected, ("id", "xid"))


@contextmanager
def decoded(folder: Path, chance: random.Random) -> Iterator[Origin]:
    """Inserts, updates, also of keys, deletes, truncates, and long values that do not change, in transactions that commit in another order
    than they begin; of a slot, which makes the table what the source is."""
    with running() as server, ExitStack() as stack:
        server.run("CREATE TABLE orders (id bigint PRIMARY KEY, n bigint, note text); ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
        server.run("CREATE PUBLICATION orders FOR TABLE orders; ALTER TABLE orders REPLICA IDENTITY FULL")
        sessions = [stack.enter_context(psycopg.connect(server.dsn)) for _ in range(3)]
        begun: list[psycopg.Connection] = []
        count = iter(range(10**9))

        def write() -> None:
            at = chance.randrange(len(sessions))
            session, mine = sessions[at], f"abs(id) % 3 = {at}"  # so that none waits for another one
            some = f"{mine} AND abs(id) % 7 = {chance.randrange(7)}"
            rows = [(next(count) * 3 + at, "x" * chance.choice([5, 9000])) for _ in range(chance.randrange(1, 30))]
            session.cursor().executemany("INSERT INTO orders VALUES (%s, 0, %s)", rows)
            session.execute(f"UPDATE orders SET n = n + 1 WHERE {some}")
            session.execute(f"DELETE FROM orders WHERE {mine} AND abs(id) % 11 = {chance.randrange(11)}")
            session.execute(f"UPDATE orders SET id = -id, n = n + 1 WHERE {mine} AND abs(id) % 13 = {chance.randrange(13)}")
            begun.append(session)
            if len(begun) > 3:
                for each in chance.sample(begun, len(begun)):
                    each.rollback() if chance.random() < 0.2 else each.commit()
                begun.clear()
                if chance.random() < 0.02:
                    server.run("TRUNCATE orders")

        def expected() -> Rows:
            for each in sessions:
                each.commit()
            return Counter(sessions[0].execute("SELECT id, n, note FROM orders").fetchall())

        yield Origin(f"mc.sources.postgres({server.dsn!r}, 'orders', slot='orders')", write, expected, ("id", "n", "note"))


@contextmanager
def table(folder: Path, chance: random.Random) -> Iterator[Origin]:
    """Another table: appends, updates, deletes, merges, compaction; each of its changes of rows is a row."""
    followed = folder / "followed"
    mc.write(pa.table({"id": pa.array([0], pa.int64()), "n": pa.array([0], pa.int64())}), followed)
    of, numbers = mc.Table(followed), iter(range(1, 10**9))

    def write() -> None:
        ids = [next(numbers) for _ in range(chance.randrange(1, 20))]
        some = chance.randrange(ids[0])
        kind = chance.random()
        if kind < 0.5:
            mc.write(pa.table({"id": ids, "n": ids}), followed)
        elif kind < 0.7:
            of.update({"n": "n + 1"}, f"id BETWEEN {some} AND {some + 5}")
        elif kind < 0.8:
            of.delete(f"id = {some}")
        elif kind < 0.95:
            of.merge(pa.table({"id": [*ids, some], "n": [*ids, -some]}), on="id")
        else:
            of.compact()

    def expected() -> Rows:
        names = ("id", "n", "_change_type", "_commit_version")
        changes = of.changed_rows(0).read_all().select(list(names)).to_pylist()
        return Counter(tuple(row[name] for name in names) for row in changes)

    yield Origin(f"mc.sources.table({str(followed)!r})", write, expected, ("id", "n", "_change_type", "_commit_version"))


@contextmanager
def dlt(folder: Path, chance: random.Random) -> Iterator[Origin]:
    """Rows of an API, of which dlt keeps in its state how far it has read; one pipeline at a time, since dlt keeps no two apart."""
    api, sent = folder / "api.jsonl", Counter[tuple[Any, ...]]()
    api.touch()

    def write() -> None:
        rows = [{"n": len(sent) + at} for at in range(chance.randrange(1, 60))]
        with api.open("a") as lines:
            lines.write("".join(f"{json.dumps(row)}\n" for row in rows))
        sent.update((row["n"],) for row in rows)

    paths = os.pathsep.join([str(REPO), str(REPO / "integrations" / "dlt")])
    setting = ["env", f"PYTHONPATH={paths}", "RUNTIME__DLTHUB_TELEMETRY=false"]
    command = [*setting, python_of("dlt"), "-c", PIPELINE, str(api), str(folder / "lake"), str(folder / "working")]
    yield Origin("", write, lambda: sent, ("n",), (command, folder / "lake" / "shop" / "events"))


ORIGINS = {"dlt": dlt, "files": files, "kafka": kafka, "postgres": postgres, "postgres-slot": decoded, "table": table}


def found_in(target: Path, origin: Origin) -> Rows:
    """The rows that a table has."""
    rows = mc.Table(target).to_arrow(list(origin.columns)).to_pylist()
    return Counter(tuple(row[name] for name in origin.columns) for row in rows)


def soak(kind: str, folder: Path, *, seconds: float, seed: int, spark: bool = False) -> Report:
    """Write, load and kill for so long, load what is left, and compare. spark: loaders have a session, whose JVM dies with them."""
    chance = random.Random(seed)
    target = folder / "target"
    with ORIGINS[kind](folder, random.Random(chance.random())) as origin, ExitStack() as stack:
        until, kills = time.monotonic() + seconds, [0]
        command, loaders = [sys.executable, "-c", LOADER, origin.code, str(target), *["spark"] * spark], 2
        if origin.pipeline is not None:
            command, target, loaders = [*origin.pipeline[0], "on and on"], origin.pipeline[1], 1
        failed: list[str] = []

        def keep_loading(moments: random.Random) -> None:
            while time.monotonic() < until and not failed:
                begun = time.monotonic()
                with subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=spark
                ) as loader:
                    assert loader.stdout is not None and loader.stderr is not None
                    if loader.stdout.readline() == "ready\n":
                        time.sleep(moments.random() * max(6, 2 * (time.monotonic() - begun)))
                    if loader.poll() is None:
                        (os.killpg if spark else os.kill)(loader.pid, signal.SIGKILL)
                    said = loader.stderr.read()
                if loader.returncode == -signal.SIGKILL:
                    kills[0] += 1
                else:
                    failed.append(said)

        threads = [threading.Thread(target=keep_loading, args=(random.Random(chance.random()),)) for _ in range(loaders)]
        for thread in threads:
            thread.start()
        stack.callback(lambda: [thread.join() for thread in threads])
        while time.monotonic() < until and not failed:
            origin.write()
            time.sleep(chance.random() / 5)
        for thread in threads:
            thread.join()
        assert not failed, failed[0]
        expected = origin.expected()
        if origin.pipeline is None:
            mc.load(eval(origin.code), target)
        else:
            subprocess.run([*origin.pipeline[0], "the rest"], check=True, stdout=subprocess.DEVNULL)
        found = mc.Table(target)
        got = found_in(target, origin)
        return Report(kills[0], expected.total(), found.version, expected - got, got - expected, found.verify().damages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=[*ORIGINS])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--spark", action="store_true", help="loads by Spark's tasks, of files, kafka and table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = soak(options.kind, Path(folder), seconds=options.minutes * 60, seed=options.seed, spark=options.spark)
    print(f"{options.kind}: seed {options.seed}, {report.kills} loaders killed, {report.loads} versions, {report.rows:,} rows")
    print(f"missing {report.missing.total()}, doubled {report.doubled.total()}, damages {report.damages}")
    sys.exit(bool(report.missing or report.doubled or report.damages))


if __name__ == "__main__":
    main()
