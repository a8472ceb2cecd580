"""Rows of a real PostgreSQL are loaded once each, in whatever order its transactions commit, and through its crashes. [LD7] [LD8]"""

import itertools
import logging
import os
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.kit.sources import PREPARE, TYPES
from tests.servers.postgresql import Server, running

import manifestcommit as mc
from manifestcommit.errors import SourceError, UsageError
from manifestcommit.sources import PostgresRows, postgres_server, postgresql

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        yield found


@pytest.fixture
def orders(server: Server) -> str:
    """The name of an empty table."""
    name = f"orders{next(numbers)}"
    server.run(PREPARE.format(name))
    return name


def source_of(server: Server, table: str, **more: Any) -> PostgresRows:
    return mc.sources.postgres(server.dsn, table, **more)


def rows(table: Path) -> list[int]:
    return sorted(mc.Table(table).to_arrow(["id"]).column("id").to_pylist())


# --- the order of transactions ------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_each_row_is_loaded_once_and_a_rerun_finds_nothing(server: Server, orders: str, tmp_path: Path) -> None:
    source = source_of(server, orders)
    assert mc.load(source, tmp_path / "t").chunks == 0
    server.run(f"INSERT INTO {orders} (id, note) VALUES (1, 'a'), (2, NULL)")
    first = mc.load(source, tmp_path / "t")
    assert (first.chunks, first.rows) == (1, 2)
    assert mc.load(source, tmp_path / "t").chunks == 0
    server.run(f"INSERT INTO {orders} (id) VALUES (3)")
    assert mc.load(source_of(server, orders), tmp_path / "t").rows == 1
    assert rows(tmp_path / "t") == [1, 2, 3]
    assert mc.Table(tmp_path / "t").schema.field("xid").type == pa.int64()


def test_transactions_that_commit_in_another_order_than_they_take_ids_lose_no_row(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD7]"""
    source, insert = source_of(server, orders), f"INSERT INTO {orders} (id) VALUES (%s)"
    with psycopg.connect(server.dsn) as early, psycopg.connect(server.dsn) as late:
        for number in range(0, 20, 4):
            early.execute(insert, [number])  # takes the lower id
            late.execute(insert, [number + 1])
            late.commit()
            assert mc.load(source, tmp_path / "t").chunks == 0  # the lower one may still commit
            with early.transaction():
                early.execute(insert, [number + 2])  # of a savepoint: the id of the whole transaction
            late.execute(insert, [number + 3])
            early.commit()
            mc.load(source, tmp_path / "t")
            late.commit()
            mc.load(source, tmp_path / "t")
            assert rows(tmp_path / "t") == list(range(number + 4))


def test_an_open_transaction_is_named_and_its_rows_come_once(
    server: Server, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgresql, "_LONG_OPEN_S", 0.2)
    source, insert = source_of(server, orders), f"INSERT INTO {orders} (id) VALUES (%s)"
    server.run(f"INSERT INTO {orders} (id) VALUES (1)")
    with psycopg.connect(server.dsn, application_name="forgotten") as opened:
        opened.execute(insert, [2])
        pid = opened.info.backend_pid
        server.run(f"INSERT INTO {orders} (id) VALUES (3)")
        time.sleep(0.3)
        planned = mc.load(source, tmp_path / "t", dry_run=True)
        assert planned.chunks == 1 and len(planned.planned) == 2
        assert re.search(rf"\(pid {pid} of me in postgres with forgotten\), open for \d+ s, holds back", planned.planned[1])
        assert [record.levelno for record in caplog.records if f"pid {pid}" in record.getMessage()] == [logging.WARNING]
        mc.load(source, tmp_path / "t")
        assert rows(tmp_path / "t") == [1]
        assert len([record for record in caplog.records if f"pid {pid}" in record.getMessage()]) == 1
    mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t") == [1, 2, 3]
    assert mc.load(source, tmp_path / "t", dry_run=True).planned == ()


def test_a_prepared_transaction_holds_back_too(server: Server, orders: str, tmp_path: Path) -> None:
    source = source_of(server, orders)
    server.run(f"BEGIN; INSERT INTO {orders} (id) VALUES (1); PREPARE TRANSACTION 'held'; INSERT INTO {orders} (id) VALUES (2)")
    planned = mc.load(source, tmp_path / "t", dry_run=True)
    assert planned.chunks == 0 and "the prepared transaction held" in planned.planned[0]
    server.run("COMMIT PREPARED 'held'")
    mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t") == [1, 2]


def test_an_id_that_comes_back_after_a_crash_is_not_below_the_position(server: Server, orders: str, tmp_path: Path) -> None:
    """Ids of transactions that wrote nothing are in no log that is on the disk, unless the end waits for it. [LD7]"""
    source = source_of(server, orders)
    for number in range(1, 4):
        server.run(f"INSERT INTO {orders} (id) VALUES ({number}); CHECKPOINT")
        server.run("BEGIN; SELECT pg_current_xact_id(); ROLLBACK;\n" * 20)
        mc.load(source, tmp_path / "t")
        server.kill()
        server.start()
    server.run(f"INSERT INTO {orders} (id) VALUES (4)")
    mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t") == [1, 2, 3, 4]


def test_a_server_that_cannot_write_its_log_is_not_waited_for_for_ever(
    server: Server, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_server, "_is_flushed", lambda *given: False)
    monkeypatch.setattr(postgres_server, "_FLUSH_TIMEOUT_S", 0.1)
    server.run(f"INSERT INTO {orders} (id) VALUES (1)")
    with pytest.raises(SourceError, match="did not write its log"):
        mc.load(source_of(server, orders), tmp_path / "t")


# --- chunks -------------------------------------------------------------------------------------------------------------------------------


def test_chunks_are_bounded_and_no_transaction_is_split(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD7]"""
    server.run(
        "".join(f"INSERT INTO {orders} (id, note) SELECT {n}, repeat('x', 100) FROM generate_series(1, {n});" for n in (1, 2, 300, 1, 1))
    )
    source = source_of(server, orders)
    chunks = list(source.chunks({}, max_bytes=600))
    ranges = [chunk.ranges[source.name] for chunk in chunks]
    assert ranges[0][0] is None and all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
    counts = [sorted(set(pa.table(source.rows(chunk)).column("id").to_pylist())) for chunk in chunks]
    assert counts == [[1, 2], [300], [1]]
    assert [pa.table(source.rows(chunk)).num_rows for chunk in chunks] == [3, 300, 2]
    assert mc.load(source, tmp_path / "t", max_bytes=600).rows == 305


@pytest.mark.thorough
def test_all_chunks_are_asked_for_by_one_connection(server: Server, orders: str) -> None:
    def connections() -> tuple[int, ...]:
        asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'manifestcommit'"
        with psycopg.connect(server.dsn) as connection:
            return tuple(pid for (pid,) in connection.execute(asked))

    server.run("".join(f"INSERT INTO {orders} (id, note) VALUES ({n}, repeat('x', 100));" for n in range(20)))
    source, seen = source_of(server, orders), []
    chunks = source.chunks({}, max_bytes=300)
    for chunk in chunks:
        seen += [connections(), *(connections() for _ in source.rows(chunk)), connections()]
    assert len(seen) > 12 and len(set(seen)) == 1 and len(seen[0]) == 1
    chunk = next(abandoned := source.chunks({}, max_bytes=300))
    next(iter(source.rows(chunk)))
    abandoned.close()
    while connections():  # it ends a moment after it was closed
        time.sleep(0.01)


@pytest.mark.thorough
def test_rows_come_in_batches_of_bounded_bytes(server: Server, orders: str) -> None:
    server.run(f"ALTER TABLE {orders} ALTER note SET STORAGE EXTERNAL")
    server.run(f"INSERT INTO {orders} SELECT n, repeat('x', 1000000) FROM generate_series(1, 40) n")
    source = source_of(server, orders)
    (chunk,) = source.chunks({}, max_bytes=10**9)
    assert max(batch.num_rows for batch in source.rows(chunk)) <= 4
    assert sum(batch.num_rows for batch in source.rows(chunk)) == 40


def test_all_rows_at_once_replace_the_table(server: Server, orders: str, tmp_path: Path) -> None:
    source = source_of(server, orders)
    server.run(f"INSERT INTO {orders} (id) VALUES (1), (2)")
    mc.load(source, tmp_path / "t")
    server.run(f"DELETE FROM {orders} WHERE id = 1; INSERT INTO {orders} (id) VALUES (3)")
    mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t") == [1, 2, 3]  # deletes are not seen
    for _ in range(2):
        mc.load(source, tmp_path / "t", restart=True)
        assert rows(tmp_path / "t") == [2, 3]
    assert mc.load(source, tmp_path / "t").chunks == 0


# --- the same loader twice, and killed ----------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_two_loaders_at_once_load_each_row_once(server: Server, orders: str, tmp_path: Path) -> None:
    server.run("".join(f"INSERT INTO {orders} (id, note) VALUES ({number}, repeat('x', 100));" for number in range(30)))
    outcomes: list[Any] = []
    source = source_of(server, orders)  # one, which both ask at once
    loaders = [threading.Thread(target=lambda: outcomes.append(mc.load(source, tmp_path / "t", max_bytes=700))) for _ in range(2)]
    for each in loaders:
        each.start()
    for each in loaders:
        each.join()
    assert sum(outcome.rows for outcome in outcomes) == 30 and rows(tmp_path / "t") == list(range(30))


# --- whose ids they are -------------------------------------------------------------------------------------------------------------------


def test_a_table_that_is_made_again_is_another_source(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD8]"""
    source = source_of(server, orders)
    server.run(f"INSERT INTO {orders} (id) VALUES (1)")
    mc.load(source, tmp_path / "t")
    before = source.name
    server.run(f"DROP TABLE {orders};" + PREPARE.format(orders) + f"INSERT INTO {orders} (id) VALUES (2)")
    assert set(mc.load(source, tmp_path / "t").positions) == {before, source.name} and before != source.name
    system = server.run("SELECT system_identifier FROM pg_control_system()")[0][0]
    assert source.name.startswith(f"postgresql:{system}/1/postgres/public/{orders}/")
    assert rows(tmp_path / "t") == [1, 2]


def test_a_table_that_is_replaced_during_a_load_commits_nothing(server: Server, orders: str) -> None:
    server.run(f"INSERT INTO {orders} (id) VALUES (1)")
    source = source_of(server, orders)
    (chunk,) = source.chunks({}, max_bytes=1000)
    server.run(f"DROP TABLE {orders};" + PREPARE.format(orders))
    with pytest.raises(SourceError, match="was replaced during the load"):
        source.rows(chunk).read_all()


def test_ids_of_another_cluster_are_refused(server: Server, orders: str, tmp_path: Path) -> None:
    server.run(f"INSERT INTO {orders} (id, xid) VALUES (1, '900000000000')")
    with pytest.raises(SourceError, match="rows of another cluster were restored with its ids"):
        mc.load(source_of(server, orders), tmp_path / "t")


def test_a_cluster_that_went_back_is_refused(server: Server, orders: str) -> None:
    source = source_of(server, orders)
    with pytest.raises(SourceError, match="it was restored to an earlier state"):
        list(source.chunks({source.name: 10**12}, max_bytes=1000))


def test_a_promoted_standby_is_refused_unless_it_had_all_transactions(tmp_path: Path) -> None:
    """A real one: its timeline is in the source's name. [LD8]"""
    with running() as old:
        old.run(PREPARE.format("orders") + "INSERT INTO orders (id) VALUES (1)")
        mc.load(source_of(old, "orders"), tmp_path / "t")
        standby = Server.standby_of(old, old.folder.parent / "standby")
        try:
            with pytest.raises(SourceError, match="the server is a standby"):
                mc.load(source_of(standby, "orders"), tmp_path / "t")
            standby.promote()
            standby.run("INSERT INTO orders (id) VALUES (2)")
            with pytest.raises(SourceError, match=r"from timeline 1 to 2.*on_failover='continue'.*restart=True"):
                mc.load(source_of(standby, "orders"), tmp_path / "t")
            mc.load(source_of(standby, "orders", on_failover="continue"), tmp_path / "t")
            assert rows(tmp_path / "t") == [1, 2]
            assert mc.load(source_of(standby, "orders"), tmp_path / "t").chunks == 0
            mc.load(source_of(old, "orders"), tmp_path / "whole")
            mc.load(source_of(standby, "orders"), tmp_path / "whole", restart=True)
            assert rows(tmp_path / "whole") == [1, 2]
            for restart in (False, True):
                with pytest.raises(SourceError, match="another one has taken its place"):
                    mc.load(source_of(old, "orders"), tmp_path / "t", restart=restart)
        finally:
            standby.stop("immediate")


# --- columns ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_types_and_values_are_kept(server: Server, orders: str, tmp_path: Path) -> None:
    server.run("CREATE TYPE mood AS ENUM ('ok'); CREATE DOMAIN positive AS int4 CHECK (VALUE > 0)")
    for index, kind in enumerate(TYPES):
        server.run(f'ALTER TABLE {orders} ADD "c {index}" {kind}')
    values = ", ".join(value for value, _, _ in TYPES.values())
    names = ", ".join(f'"c {index}"' for index in range(len(TYPES)))
    server.run(f"INSERT INTO {orders} (id, {names}) VALUES (1, {values}); INSERT INTO {orders} (id) VALUES (2)")
    mc.load(source_of(server, orders), tmp_path / "t")
    found = mc.Table(tmp_path / "t").to_arrow().sort_by("id")
    full, empty = found.to_pylist()
    for index, (kind, (_, expected, value)) in enumerate(TYPES.items()):
        assert found.schema.field(f"c {index}").type == expected, kind
        assert full[f"c {index}"] == value, kind
        assert empty[f"c {index}"] is None, kind


REFUSED = {
    "numeric": ("1", r"numeric without a precision and a scale"),
    "numeric(60,2)": ("1", "more than 38 digits"),
    "numeric(2,5)": ("0.00001", "a scale outside of them"),
    "numeric(3,-2)": ("100", "a scale outside of them"),
    "numeric(5,2)": ("'NaN'", r"does not fit decimal128\(5, 2\)"),
    "date": ("'infinity'", "does not fit date32.*'infinity'"),
    "date[]": ("'{-infinity}'", "does not fit list<.*'-infinity'"),
    "timestamp": ("'10000-01-01'", "does not fit timestamp.*'10000-01-01 00:00:00'"),
    "timestamptz": ("'0001-12-31 BC'", "does not fit timestamp.*BC'"),
    "interval": ("'1 day'", "the type interval has no counterpart"),
    "point": ("'1,2'", "the type point has no counterpart"),
    "inet": ("'::1'", "the type inet has no counterpart"),
    "int4[]": ("'{{1},{2}}'", r"does not fit list<"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_represented_is_refused_and_a_query_casts_it(server: Server, orders: str, tmp_path: Path, kind: str) -> None:
    value, message = REFUSED[kind]
    server.run(f'ALTER TABLE {orders} ADD "a b" {kind}; INSERT INTO {orders} (id, "a b") VALUES (1, {value})')
    with pytest.raises(SourceError, match=rf"the column 'a b' cannot be loaded: .*{message}.*::text"):
        mc.load(source_of(server, orders), tmp_path / "t")
    assert not (tmp_path / "t").exists() or mc.Table(tmp_path / "t").to_arrow().num_rows == 0
    query = f'SELECT id, "a b"::text AS "a b", xid FROM {orders} WHERE note IS NULL OR note LIKE \'%s%\'; '
    assert mc.load(source_of(server, query, query_name="orders"), tmp_path / "t").rows == 1


def test_a_query_may_change_and_goes_on(server: Server, orders: str, tmp_path: Path) -> None:
    server.run(f"INSERT INTO {orders} (id) VALUES (1)")
    mc.load(source_of(server, f"SELECT id, xid AS tx FROM {orders} -- all", xid_column="tx", query_name="a/b"), tmp_path / "t")
    server.run(f"INSERT INTO {orders} (id) VALUES (2)")
    changed = source_of(server, f"WITH o AS (SELECT * FROM {orders}) SELECT id, xid AS tx FROM o", xid_column="tx", query_name="a/b")
    assert changed.name.endswith("/1/postgres/a%2Fb")
    mc.load(changed, tmp_path / "t")
    assert rows(tmp_path / "t") == [1, 2]


def test_what_cannot_be_followed_is_refused(server: Server, orders: str, tmp_path: Path) -> None:
    server.run(f"CREATE TABLE plain{orders} (id int, xid bigint); CREATE MATERIALIZED VIEW seen{orders} AS SELECT * FROM {orders}")
    server.run(f"ALTER TABLE {orders} ALTER xid DROP NOT NULL; INSERT INTO {orders} (id, xid) VALUES (1, NULL)")
    for given, options, message in (
        (orders, {}, "rows without a transaction"),
        (orders, {"xid_column": "tx"}, "no column 'tx'.*xid8 NOT NULL DEFAULT"),
        (f"plain{orders}", {}, "a column of the type int8, 'xid'"),
        (f"seen{orders}", {}, "neither a table nor a view"),
        ("Nothing.There", {}, "no table 'Nothing.There' that this role can see"),
        ("SELECT 1 FROM", {"query_name": "q"}, "syntax error"),
    ):
        with pytest.raises(SourceError, match=message):
            mc.load(source_of(server, given, **options), tmp_path / "t")
    with pytest.raises(UsageError, match="a query needs query_name"):
        source_of(server, "select * from orders")
    with pytest.raises(UsageError, match="has its own"):
        source_of(server, "orders", query_name="orders")


# --- secrets ------------------------------------------------------------------------------------------------------------------------------

SECRET = "hunter2 geheim"


@pytest.mark.parametrize(
    "dsn",
    [SECRET, f"password={SECRET}", "postgresql://me:hunter2%zzgeheim@/x", f"password='{SECRET}", f"password='{SECRET}' hunter2=geheim"],
)
def test_a_dsn_that_is_wrong_is_not_shown(dsn: str) -> None:
    with pytest.raises(UsageError, match="invalid dsn") as caught:
        mc.sources.postgres(dsn, "orders")
    assert caught.value.argument == "dsn"
    assert "hunter2" not in "".join(traceback.format_exception(caught.value)) + repr(caught.value.__context__)


def test_no_password_is_in_any_error_log_or_file(server: Server, orders: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server.run("CREATE ROLE guarded LOGIN PASSWORD 'another'")
    hba = server.folder / "data" / "pg_hba.conf"
    hba.write_text("local all guarded scram-sha-256\n" + hba.read_text("utf-8"))
    server.run("SELECT pg_reload_conf()")
    server.run(f"INSERT INTO {orders} (id) VALUES (1)")
    time.sleep(0.3)
    told = []
    for dsn in (
        f"host={server.folder} user=guarded dbname=postgres password='{SECRET}'",
        f"host={server.folder}/{SECRET.replace(' ', '')} user=me password='{SECRET}'".replace(SECRET.replace(" ", ""), "nowhere"),
        f"postgresql://nobody:{SECRET.replace(' ', '%20')}@/postgres?host={server.folder}",
    ):
        with pytest.raises(SourceError) as caught:
            mc.load(mc.sources.postgres(dsn, orders), tmp_path / "t")
        told.append("".join(traceback.format_exception(caught.value)))
    source = mc.sources.postgres(f"{server.dsn} password='{SECRET}'", orders)
    mc.load(source, tmp_path / "t")
    told += [repr(source), source.name, caplog.text]
    assert "hunter2" not in "\n".join(told)
    files = [path for path in (tmp_path / "t").rglob("*") if path.is_file()]
    assert files and not [path for path in files if b"hunter2" in path.read_bytes()]


@pytest.mark.thorough
def test_a_server_that_goes_away_is_an_error_of_this_package(tmp_path: Path) -> None:
    with running() as server:
        server.run(PREPARE.format("orders") + "INSERT INTO orders SELECT n, 'x' FROM generate_series(1, 50000) n")
        source = source_of(server, "orders")
        (chunk,) = source.chunks({}, max_bytes=10**9)
        batches = iter(source.rows(chunk))
        next(batches)
        server.kill()
        with pytest.raises(SourceError, match=r"PostgreSQL: .*What was committed before stays"):
            list(batches)
        with pytest.raises(SourceError, match="PostgreSQL: connection"):
            mc.load(source, tmp_path / "t")
        server.start()
        assert mc.load(source, tmp_path / "t").rows == 50000


# --- the command line ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_command_takes_the_connection_from_a_file_or_the_environment(server: Server, orders: str, tmp_path: Path) -> None:
    server.run(f"INSERT INTO {orders} (id) VALUES (1)")
    (tmp_path / "dsn").write_text(server.dsn + "\n")

    def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        given = [sys.executable, "-m", "manifestcommit", "load", str(tmp_path / "t"), *arguments]
        return subprocess.run(given, env={**os.environ, **environment}, capture_output=True, text=True, check=False)

    done = command(f"postgres:{orders}", "--dsn-file", str(tmp_path / "dsn"))
    assert done.returncode == 0 and "loaded 1 row in 1 commit" in done.stdout, done.stderr
    server.run(f"INSERT INTO {orders} (id) VALUES (2)")
    done = command(f"postgres:{orders}", "--xid-column", "xid", PGHOST=str(server.folder), PGUSER="me", PGDATABASE="postgres")
    assert done.returncode == 0 and "loaded 1 row in 1 commit" in done.stdout, done.stderr
    query = f"SELECT id, note, xid FROM {orders} WHERE id > 1"
    done = command(f"postgres:{query}", "--query-name", "big", "--dsn-file", str(tmp_path / "dsn"))
    assert done.returncode == 0 and "loaded 1 row in 1 commit" in done.stdout, done.stderr
    for source in ("postgres://me:hunter2@db/shop", "postgresql://me:hunter2@db/shop"):
        done = command(source, "--dsn-file", str(tmp_path / "dsn"))
        assert done.returncode != 0 and "--dsn-file" in done.stderr and "hunter2" not in done.stdout + done.stderr
    done = command(f"postgres:{orders}", "--dsn-file", str(tmp_path / "nothing"))
    assert done.returncode == 2 and "invalid --dsn-file: expected" in done.stderr  # the name may be a connection string
