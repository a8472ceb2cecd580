"""Changes of a real PostgreSQL, deletes among them, by logical decoding. [LD8] [LD10]"""

import itertools
import logging
import random
import shutil
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.kit.faults import execute, lives
from tests.kit.sources import TYPES
from tests.servers.postgresql import Server, running

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.errors import SchemaMismatchError, SourceError, UsageError
from manifestcommit.sources import PostgresChanges, postgres_changes

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        yield found


@pytest.fixture
def orders(server: Server) -> Iterator[str]:
    """The name of an empty table, of its publication and of its slot."""
    name = f"orders{next(numbers)}"
    server.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, note text, n int); CREATE PUBLICATION {name} FOR TABLE {name}")
    yield name
    server.run(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{name}'")


def source_of(server: Server, table: str, **more: Any) -> PostgresChanges:
    return mc.sources.postgres(server.dsn, table, **{"slot": table, **more})


def rows(table: Path) -> list[tuple[Any, ...]]:
    found = mc.Table(table).to_arrow(["id", "note", "n"]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def at_the_source(server: Server, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.dsn) as connection:
        return sorted(connection.execute(f"SELECT id, note, n FROM {table}").fetchall())


# --- a mirror -----------------------------------------------------------------------------------------------------------------------------


def test_a_table_becomes_what_the_source_is(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD10]"""
    source = source_of(server, orders)
    server.run(f"INSERT INTO {orders} VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    first = mc.load(source, tmp_path / "t")
    assert (first.chunks, first.rows) == (1, 3)
    assert mc.load(source, tmp_path / "t").chunks == 0
    server.run(
        f"UPDATE {orders} SET n = 20 WHERE id = 2; DELETE FROM {orders} WHERE id = 1; INSERT INTO {orders} VALUES (4, NULL, NULL);"
        f"UPDATE {orders} SET id = 30 WHERE id = 3; UPDATE {orders} SET n = 21 WHERE id = 2;"
        f"INSERT INTO {orders} VALUES (5, 'x', 5); DELETE FROM {orders} WHERE id = 5; INSERT INTO {orders} VALUES (1, 'again', 0)"
    )
    assert mc.load(source, tmp_path / "t").chunks == 1
    assert rows(tmp_path / "t") == at_the_source(server, orders) == [(1, "again", 0), (2, "b", 21), (4, None, None), (30, "c", 3)]
    assert mc.load(source_of(server, orders), tmp_path / "t").chunks == 0


@pytest.mark.thorough
def test_rows_of_one_transaction_are_in_one_commit_however_small_it_may_be(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD10]"""
    source = source_of(server, orders)
    mc.load(source, tmp_path / "t")
    server.run(f"INSERT INTO {orders} SELECT n, repeat('x', 100), n FROM generate_series(1, 25000) n")
    server.run(f"BEGIN; DELETE FROM {orders} WHERE id <= 24990; UPDATE {orders} SET n = -n; COMMIT; INSERT INTO {orders} VALUES (0)")
    planned = mc.load(source, tmp_path / "t", max_bytes=8, dry_run=True)
    assert [each.split(" up to ")[0] for each in planned.planned] == [
        "25,000 changes of 1 transaction",
        "25,000 changes of 1 transaction",
        "1 change of 1 transaction",
    ]
    assert mc.load(source, tmp_path / "t", max_bytes=8).chunks == 3
    assert rows(tmp_path / "t") == at_the_source(server, orders)
    counts = [len(mc.Table(tmp_path / "t").to_arrow(version=version)) for version in range(2, 6)]
    assert counts == [0, 25000, 10, 11]


@pytest.mark.thorough
def test_random_changes_leave_the_same_rows_after_every_commit(server: Server, orders: str, tmp_path: Path) -> None:
    """Every state of the mirror is one that the source had: each transaction keeps the sum. [LD10]"""
    chance, source = random.Random(5), source_of(server, orders)
    server.run(f"INSERT INTO {orders} SELECT n, NULL, 100 FROM generate_series(1, 10) n")
    for _ in range(12):
        for _ in range(chance.randrange(1, 8)):
            a, b, by = [*chance.sample(range(1, 11), 2), chance.randrange(50)]
            move = f"UPDATE {orders} SET n = n - {by} WHERE id = {a}; UPDATE {orders} SET n = n + {by} WHERE id = {b};"
            key = f"UPDATE {orders} SET id = -{a} WHERE id = {a}; UPDATE {orders} SET id = {a} WHERE id = -{a};"
            again = f"INSERT INTO {orders} SELECT id + 100, note, n FROM {orders} WHERE id = {a}; DELETE FROM {orders} WHERE id = {a}; "
            again += f"UPDATE {orders} SET id = {a} WHERE id = {a} + 100;"
            server.run(f"BEGIN; {move} {key if chance.random() < 0.3 else again if chance.random() < 0.4 else ''} COMMIT;")
        mc.load(source, tmp_path / "t", max_bytes=chance.choice([8, 500, 100_000]))
        assert rows(tmp_path / "t") == at_the_source(server, orders)
    table = mc.Table(tmp_path / "t")
    for version in range(2, table.version + 1):
        assert sum(table.to_arrow(version=version).column("n").to_pylist()) == 1000


@pytest.mark.thorough
def test_types_and_values_are_the_same_as_those_of_the_first_copy(server: Server, orders: str, tmp_path: Path) -> None:
    server.run(
        "DO $$ BEGIN CREATE TYPE mood AS ENUM ('ok'); CREATE DOMAIN positive AS int4 CHECK (VALUE > 0); CREATE DOMAIN price AS"
        " numeric(9,2); CREATE DOMAIN cheap AS price; EXCEPTION WHEN duplicate_object THEN END $$"
    )
    kinds = {**{kind: value for kind, (value, _, _) in TYPES.items()}, "cheap": "1.5", "bool[]": "'{t,f,NULL}'", "bytea[]": r"'{\\xff}'"}
    kinds |= {"float8[]": "'{NaN,1e300}'", "xid8": "'7'", "timestamp(0)": "'0001-01-01'"}
    for index, kind in enumerate(kinds):
        server.run(f'ALTER TABLE {orders} ADD "c {index}" {kind}')
    server.run(
        "ALTER ROLE me SET datestyle = 'German'; ALTER ROLE me SET timezone = 'Asia/Kathmandu'; ALTER ROLE me SET bytea_output = 'escape'"
    )
    server.run("ALTER ROLE me SET extra_float_digits = -3")
    values, names = ", ".join(kinds.values()), ", ".join(f'"c {index}"' for index in range(len(kinds)))
    insert = f"INSERT INTO {orders} (id, {names}) VALUES"
    try:
        server.run(f"{insert} (1, {values}); INSERT INTO {orders} (id) VALUES (2)")
        mc.load(source_of(server, orders), tmp_path / "t")
        server.run(f"{insert} (3, {values}); INSERT INTO {orders} (id) VALUES (4)")
        mc.load(source_of(server, orders), tmp_path / "t")
    finally:
        server.run("ALTER ROLE me RESET ALL")
    found = {row.pop("id"): repr(row) for row in mc.Table(tmp_path / "t").to_arrow().to_pylist()}
    assert found[1] == found[3] and found[2] == found[4]


@pytest.mark.parametrize(
    ("kind", "value"), [("date", "'infinity'"), ("numeric(5,2)", "'NaN'"), ("timestamptz", "'0001-12-31 BC'"), ("int4[]", "'{{1},{2}}'")]
)
def test_a_value_that_cannot_be_represented_is_refused_with_its_column(
    server: Server, orders: str, tmp_path: Path, kind: str, value: str
) -> None:
    server.run(f'ALTER TABLE {orders} ADD "a b" {kind}')
    mc.load(source_of(server, orders), tmp_path / "t")
    server.run(f'INSERT INTO {orders} (id, "a b") VALUES (1, {value})')
    for _ in range(2):
        with pytest.raises(SourceError, match=r"the column 'a b' cannot be loaded: a value does not fit"):
            mc.load(source_of(server, orders), tmp_path / "t")
    assert rows(tmp_path / "t") == []


# --- values that are stored aside ---------------------------------------------------------------------------------------------------------


def test_a_long_value_that_did_not_change_stays_what_it_is(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD10]"""
    source = source_of(server, orders)
    server.run(f"ALTER TABLE {orders} ALTER note SET STORAGE EXTERNAL")
    server.run(f"INSERT INTO {orders} SELECT n, repeat(n::text, 9000), n FROM generate_series(1, 4) n")
    mc.load(source, tmp_path / "t")
    server.run(
        f"UPDATE {orders} SET n = -1 WHERE id = 1; UPDATE {orders} SET note = repeat('z', 9000) WHERE id = 2;"
        f"UPDATE {orders} SET n = -2 WHERE id = 2; INSERT INTO {orders} VALUES (9, repeat('9', 9000), 9);"
        f"UPDATE {orders} SET n = -9 WHERE id = 9; UPDATE {orders} SET n = -10 WHERE id = 9;"
        f"UPDATE {orders} SET note = 'short' WHERE id = 3"
    )
    mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t") == at_the_source(server, orders)
    assert mc.Table(tmp_path / "t").to_arrow().column("note").null_count == 0


def test_a_long_value_beside_a_key_that_changes_needs_the_whole_old_row(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD10]"""
    source = source_of(server, orders)
    server.run(f"ALTER TABLE {orders} ALTER note SET STORAGE EXTERNAL; INSERT INTO {orders} VALUES (1, repeat('x', 9000), 1)")
    mc.load(source, tmp_path / "t")
    mc.load(source_of(server, orders), tmp_path / "t")
    before = rows(tmp_path / "t")
    server.run(f"UPDATE {orders} SET id = 2")
    with pytest.raises(SourceError, match=r"long value of 'note' did not change.*REPLICA IDENTITY FULL, and then restart=True"):
        mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t") == before
    server.run(f"ALTER TABLE {orders} REPLICA IDENTITY FULL")
    mc.load(source, tmp_path / "t", restart=True)
    server.run(f"UPDATE {orders} SET id = 3; UPDATE {orders} SET n = 7")
    mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t") == at_the_source(server, orders) == [(3, "x" * 9000, 7)]


@pytest.mark.thorough
def test_a_table_that_is_truncated_is_emptied(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD10]"""
    source = source_of(server, orders)
    server.run(f"INSERT INTO {orders} VALUES (1, 'a', 1), (2, 'b', 2)")
    mc.load(source, tmp_path / "t")
    server.run(f"INSERT INTO {orders} VALUES (3); TRUNCATE {orders}; INSERT INTO {orders} VALUES (2, 'new', 0), (4, 'x', 4)")
    mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t") == [(2, "new", 0), (4, "x", 4)]
    server.run(f"TRUNCATE {orders}")
    mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t") == []


# --- a history ----------------------------------------------------------------------------------------------------------------------------


def test_each_change_is_a_row_of_a_history(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD10]"""
    source = source_of(server, orders, history=True)
    server.run(f"INSERT INTO {orders} VALUES (1, 'a', 1)")
    mc.load(source, tmp_path / "t")
    server.run(f"BEGIN; UPDATE {orders} SET n = 2; UPDATE {orders} SET id = 2; COMMIT; DELETE FROM {orders}; TRUNCATE {orders}")
    assert mc.load(source, tmp_path / "t").rows == 5
    found = mc.Table(tmp_path / "t").to_arrow().to_pylist()
    found.sort(key=lambda row: (row["_commit_lsn"] or 0, row["_change_number"] or 0))
    assert [(row["_change_type"], row["id"], row["note"], row["n"], row["_change_number"]) for row in found] == [
        ("insert", 1, "a", 1, None),
        ("update", 1, "a", 2, 0),
        ("delete", 1, None, None, 1),
        ("insert", 2, "a", 2, 2),
        ("delete", 2, None, None, 0),
        ("truncate", None, None, None, 0),
    ]
    moments = [row["_commit_timestamp"] for row in found[1:]]
    (now,) = server.run("SELECT extract(epoch FROM now())")[0]
    assert moments == sorted(moments) and all(abs(moment.timestamp() - float(now)) < 60 for moment in moments)
    assert mc.load(source, tmp_path / "t").chunks == 0


@pytest.mark.thorough
def test_a_history_refuses_a_long_value_that_the_server_does_not_give(server: Server, orders: str, tmp_path: Path) -> None:
    server.run(f"ALTER TABLE {orders} ALTER note SET STORAGE EXTERNAL; INSERT INTO {orders} VALUES (1, repeat('x', 9000), 1)")
    source = source_of(server, orders, history=True)
    mc.load(source, tmp_path / "t")
    server.run(f"UPDATE {orders} SET n = 2")
    with pytest.raises(SourceError, match="REPLICA IDENTITY FULL"):
        mc.load(source, tmp_path / "t")
    server.run(f"ALTER TABLE {orders} REPLICA IDENTITY FULL")
    mc.load(source, tmp_path / "t", restart=True)
    server.run(f"UPDATE {orders} SET n = 3; DELETE FROM {orders}")
    mc.load(source, tmp_path / "t")
    found = mc.Table(tmp_path / "t").to_arrow().to_pylist()
    assert sorted((row["_change_type"], row["n"], len(row["note"])) for row in found) == [
        ("delete", 3, 9000),
        ("insert", 2, 9000),
        ("update", 3, 9000),
    ]


# --- the slot -----------------------------------------------------------------------------------------------------------------------------


def lost(server: Server, orders: str) -> None:
    server.run(f"SELECT pg_drop_replication_slot('{orders}')")


def made_anew(server: Server, orders: str) -> None:
    server.run(f"SELECT pg_drop_replication_slot('{orders}'); INSERT INTO {orders} VALUES (50)")
    server.run(f"SELECT pg_create_logical_replication_slot('{orders}', 'pgoutput')")


def moved(server: Server, orders: str) -> None:
    server.run(f"INSERT INTO {orders} VALUES (50); SELECT pg_replication_slot_advance('{orders}', pg_current_wal_lsn())")


@pytest.mark.parametrize(("what", "told"), [(lost, "is gone"), (made_anew, "was made again"), (moved, "moved by somebody else")])
def test_a_slot_that_has_not_what_follows_ends_the_load(server: Server, orders: str, tmp_path: Path, what: Any, told: str) -> None:
    """[LD10]"""
    source = source_of(server, orders)
    server.run(f"INSERT INTO {orders} VALUES (1)")
    mc.load(source, tmp_path / "t")
    what(server, orders)
    for _ in range(2):
        with pytest.raises(SourceError, match=rf"{told}.*restart=True"):
            mc.load(source, tmp_path / "t")
        server.run(f"INSERT INTO {orders} (id) SELECT max(id) + 1 FROM {orders}")
    mc.load(source, tmp_path / "t", restart=True)
    assert rows(tmp_path / "t") == at_the_source(server, orders)
    server.run(f"DELETE FROM {orders} WHERE id = 1")
    mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t") == at_the_source(server, orders)


def test_a_table_that_was_set_back_is_behind_its_slot(server: Server, orders: str, tmp_path: Path) -> None:
    source = source_of(server, orders)
    mc.load(source, tmp_path / "t")
    server.run(f"INSERT INTO {orders} VALUES (1)")
    mc.load(source, tmp_path / "t")
    mc.Table(tmp_path / "t").rollback(2, reason="a test")
    server.run(f"INSERT INTO {orders} VALUES (2)")
    with pytest.raises(SourceError, match=r"the table was set back.*restart=True"):
        mc.load(source, tmp_path / "t")


def test_a_slot_goes_on_only_behind_what_is_committed(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD10]"""

    def at() -> int:
        return int(server.run(f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{orders}'")[0][0])

    source = source_of(server, orders)
    (position,) = mc.load(source, tmp_path / "t").positions.values()
    assert at() == position
    server.run(f"INSERT INTO {orders} VALUES (1)")
    mc.load(source, tmp_path / "t", dry_run=True)
    mc.Table(tmp_path / "t").add_constraint("small", "id < 2")
    server.run(f"INSERT INTO {orders} VALUES (2)")
    with pytest.raises(mc.errors.ConstraintError):
        mc.load(source, tmp_path / "t")
    assert at() == position
    mc.Table(tmp_path / "t").drop_constraint("small")
    (position,) = mc.load(source, tmp_path / "t").positions.values()
    assert at() == position
    assert rows(tmp_path / "t") == at_the_source(server, orders)


def test_what_a_slot_gives_again_after_a_crash_comes_once(tmp_path: Path) -> None:
    """An advance of a slot is forgotten by a crash. [LD10]"""
    with running() as server:
        server.run("CREATE TABLE orders (id bigint PRIMARY KEY, note text, n int); CREATE PUBLICATION orders FOR TABLE orders")
        history = source_of(server, "orders", history=True)
        again = 0
        for number in range(1, 5):
            server.run(f"INSERT INTO orders VALUES ({number}, NULL, 0); UPDATE orders SET n = n + 1")
            mc.load(history, tmp_path / "h", max_bytes=8)
            server.kill()
            server.start()
            (position,) = mc.Table(tmp_path / "h").watermarks().values()
            (at,) = server.run("SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots")[0]
            again += int(at) < position
            assert mc.load(history, tmp_path / "h").chunks == 0
        assert again
        found = mc.Table(tmp_path / "h").to_arrow().to_pylist()
        changes = sorted((row["id"], row["_change_type"], row["n"]) for row in found if row["_commit_lsn"])
        assert changes == sorted(
            [(number, "insert", 0) for number in range(2, 5)] + [(a, "update", b - a + 1) for b in range(2, 5) for a in range(1, b + 1)]
        )


@pytest.mark.thorough
def test_a_position_moves_on_behind_the_log_of_others(
    server: Server, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the log has nothing for the table, the slot does not keep it for ever. [LD10]"""
    monkeypatch.setattr(postgres_changes, "_IDLE_BYTES", 100_000)
    monkeypatch.setattr(postgres_changes, "_LAG_BYTES", 100_000)
    source = source_of(server, orders)
    mc.load(source, tmp_path / "t")
    server.run(f"CREATE TABLE big{orders} AS SELECT n, repeat('x', 100) FROM generate_series(1, 5000) n")
    source = source_of(server, orders)
    planned = mc.load(source, tmp_path / "t", dry_run=True).planned
    assert f"the slot {orders} keeps 0.0 GB" in planned[-1]
    done = mc.load(source, tmp_path / "t")
    assert (done.chunks, done.rows) == (1, 0) and mc.load(source, tmp_path / "t").chunks == 0
    assert len([each for each in caplog.records if each.levelno == logging.WARNING and "keeps" in each.getMessage()]) == 1
    server.run(f"INSERT INTO {orders} VALUES (1)")
    mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t") == [(1, None, None)]


# --- the first copy -----------------------------------------------------------------------------------------------------------------------


def test_the_first_copy_fits_the_changes_whatever_commits_meanwhile(server: Server, orders: str, tmp_path: Path) -> None:
    """A history has each row once: in the copy or in the changes. [LD10]"""
    stop = threading.Event()

    def write(part: int) -> None:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            for number in itertools.count():
                if stop.is_set():
                    return
                connection.execute(f"SET synchronous_commit = {'off' if number % 2 else 'on'}")
                connection.execute(f"INSERT INTO {orders} (id) VALUES (%s)", [number * 3 + part])

    writers = [threading.Thread(target=write, args=(part,)) for part in range(3)]
    for each in writers:
        each.start()
    try:
        for name in ("a", "b"):
            server.run(f"CREATE PUBLICATION {name}{orders} FOR TABLE {orders}")
            source = source_of(server, orders, slot=f"{name}{orders}", history=True)
            mc.load(source, tmp_path / name)
            mc.load(source, tmp_path / name, restart=True)
            mc.load(source, tmp_path / name)
    finally:
        stop.set()
        for each in writers:
            each.join()
    for name in ("a", "b"):
        mc.load(source_of(server, orders, slot=f"{name}{orders}", history=True), tmp_path / name)
        assert sorted(mc.Table(tmp_path / name).to_arrow(["id"]).column("id").to_pylist()) == [
            id for id, _, _ in at_the_source(server, orders)
        ]
        server.run(f"SELECT pg_drop_replication_slot('{name}{orders}')")


@pytest.mark.thorough
def test_two_loaders_at_once_make_one_copy_and_load_each_change_once(server: Server, orders: str, tmp_path: Path) -> None:
    server.run("".join(f"INSERT INTO {orders} VALUES ({number}, repeat('x', 100));" for number in range(20)))
    source = source_of(server, orders, history=True)
    failed: list[BaseException] = []

    def load() -> None:
        try:
            for _ in range(3):
                mc.load(source, tmp_path / "t", max_bytes=300)
        except BaseException as error:
            failed.append(error)

    loaders = [threading.Thread(target=load) for _ in range(2)]
    for each in loaders:
        each.start()
    server.run("".join(f"INSERT INTO {orders} VALUES ({number}, repeat('x', 100));" for number in range(20, 60)))
    for each in loaders:
        each.join()
    assert not failed
    mc.load(source, tmp_path / "t")
    assert sorted(mc.Table(tmp_path / "t").to_arrow(["id"]).column("id").to_pylist()) == list(range(60))


@pytest.mark.thorough
def test_an_open_transaction_that_keeps_a_slot_from_being_made_is_told_of(
    server: Server, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_changes, "_WAIT_S", 1.0)
    with psycopg.connect(server.dsn) as opened:
        opened.execute(f"INSERT INTO {orders} VALUES (1)")
        with pytest.raises(SourceError, match="transactions that are open for more than 1 s"):
            mc.load(source_of(server, orders), tmp_path / "t")
    mc.load(source_of(server, orders), tmp_path / "t")
    assert rows(tmp_path / "t") == [(1, None, None)]


def test_a_table_with_rows_of_others_is_not_made_a_mirror(server: Server, orders: str, tmp_path: Path) -> None:
    mc.write(pa.table({"id": [7]}), tmp_path / "t")
    with pytest.raises(SourceError, match=r"has rows, and no position of this source.*restart=True"):
        mc.load(source_of(server, orders), tmp_path / "t")
    assert mc.Table(tmp_path / "t").version == 2


def test_a_table_is_a_mirror_or_a_history(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD10]"""
    for history in (False, True):
        server.run(f"INSERT INTO {orders} VALUES ({history:d}, 'a', 1)")
        mc.load(source_of(server, orders, history=history), tmp_path / f"{history}")
        before = mc.Table(tmp_path / f"{history}").to_arrow()
        server.run(f"UPDATE {orders} SET n = n + 1")
        for options in ({}, {"merge_schema": True}):
            with pytest.raises(SourceError, match=f"was loaded with history={history}, and it cannot be both"):
                mc.load(source_of(server, orders, history=not history), tmp_path / f"{history}", **options)
        assert mc.Table(tmp_path / f"{history}").to_arrow().equals(before)
        mc.load(source_of(server, orders, history=history), tmp_path / f"{history}")


@pytest.mark.thorough
def test_a_table_that_is_made_again_is_not_added_to_a_mirror(server: Server, orders: str, tmp_path: Path) -> None:
    """[LD8]"""
    server.run(f"INSERT INTO {orders} VALUES (1)")
    mc.load(source_of(server, orders), tmp_path / "t")
    server.run(f"DROP TABLE {orders}; CREATE TABLE {orders} (id bigint PRIMARY KEY, note text, n int)")
    server.run(f"ALTER PUBLICATION {orders} ADD TABLE {orders}; INSERT INTO {orders} VALUES (2)")
    with pytest.raises(SourceError, match=r"no position of this source.*restart=True"):
        mc.load(source_of(server, orders), tmp_path / "t")
    mc.load(source_of(server, orders), tmp_path / "t", restart=True)
    assert rows(tmp_path / "t") == [(2, None, None)]


# --- columns ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_new_column_and_a_wider_type_are_followed_where_the_load_says_so(server: Server, orders: str, tmp_path: Path) -> None:
    source = source_of(server, orders)
    server.run(f"INSERT INTO {orders} VALUES (1, 'a', 1), (2, 'b', 2)")
    mc.load(source, tmp_path / "t")
    server.run(f"INSERT INTO {orders} VALUES (3, 'c', 3); ALTER TABLE {orders} ADD tip int; ALTER TABLE {orders} ALTER n TYPE bigint")
    server.run(f"UPDATE {orders} SET tip = 5, n = 5000000000 WHERE id = 1")
    with pytest.raises(SchemaMismatchError, match=r"merge_schema.*restart=True"):
        mc.load(source, tmp_path / "t")
    assert [row[0] for row in rows(tmp_path / "t")] == [1, 2, 3]
    mc.load(source, tmp_path / "t", merge_schema=True)
    assert rows(tmp_path / "t") == at_the_source(server, orders)
    assert mc.Table(tmp_path / "t").to_arrow(["id", "tip"]).sort_by("id").column("tip").to_pylist() == [5, None, None]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("RENAME note TO remark", "'note' was dropped or renamed"),
        ("DROP note", "'note' was dropped or renamed"),
        ("ADD tip int DEFAULT 3", "'tip' was added with a default"),
        ("ADD tip serial", "'tip' was added with a default"),
        ("ALTER n TYPE text", "string in the data"),
    ],
)
def test_columns_by_which_a_mirror_would_differ_end_the_load(server: Server, orders: str, tmp_path: Path, change: str, told: str) -> None:
    source = source_of(server, orders)
    server.run(f"INSERT INTO {orders} VALUES (1, 'a', 1), (2, 'b', 2)")
    mc.load(source, tmp_path / "t")
    server.run(f"ALTER TABLE {orders} {change}; UPDATE {orders} SET n = '4' WHERE id = 1")
    with pytest.raises((SourceError, SchemaMismatchError), match=f"{told}.*restart=True"):
        mc.load(source, tmp_path / "t", merge_schema=True)
    mc.load(source, tmp_path / "t", restart=True)
    with psycopg.connect(server.dsn) as connection:
        cursor = connection.execute(f"SELECT * FROM {orders} ORDER BY id")
        expected = [dict(zip([each.name for each in cursor.description or ()], row, strict=True)) for row in cursor]
    assert mc.Table(tmp_path / "t").to_arrow().sort_by("id").to_pylist() == expected


def test_columns_that_change_within_a_transaction_end_the_load(server: Server, orders: str, tmp_path: Path) -> None:
    source = source_of(server, orders)
    mc.load(source, tmp_path / "t")
    server.run(f"BEGIN; INSERT INTO {orders} VALUES (1); ALTER TABLE {orders} ADD tip int; INSERT INTO {orders} VALUES (2); COMMIT")
    with pytest.raises(SourceError, match=r"changed within a transaction.*restart=True"):
        mc.load(source, tmp_path / "t", merge_schema=True)


KEYS = {
    "uuid": ("gen_random_uuid()", "gen_random_uuid()"),
    "numeric(9,2)": ("1.50", "2.5"),
    "timestamptz": ("'2024-01-01 00:00:00.5+02'", "'0001-01-01 00:00+00'"),
    "date": ("'2024-02-29'", "'9999-12-31'"),
    "bytea": (r"'\\x00ff'", r"'\\x'"),
    "boolean": ("true", "false"),
    "char(5)": ("'a'", "'bc'"),
    "text": ("''", "'ä`''😀'"),
    "xid8": ("'7'", "'8'"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KEYS)
def test_keys_and_names_of_every_kind(server: Server, tmp_path: Path, kind: str) -> None:
    name = f"keys{next(numbers)}"
    server.run(
        f'CREATE TABLE {name} ("a b" {kind}, "ti`ck" int, source text, _deleted bool, "SELECT" int, _kept text);'
        f'ALTER TABLE {name} ADD PRIMARY KEY ("ti`ck", "a b");'
        f"CREATE PUBLICATION {name} FOR TABLE {name}"
    )
    first, second = KEYS[kind]
    insert = f"INSERT INTO {name} VALUES"
    server.run(f"{insert} ({first}, 1, 'x', true, 1, 'k'), ({second}, 2, 'y', NULL, 2, ''), ({second}, 3, 'z', false, 3, NULL)")
    mc.load(source_of(server, name), tmp_path / "t")
    server.run(
        f'UPDATE {name} SET source = \'new\', "SELECT" = 7 WHERE "ti`ck" = 1; DELETE FROM {name} WHERE "ti`ck" = 2;'
        f'UPDATE {name} SET "a b" = {first} WHERE "ti`ck" = 3; {insert} ({first}, 4, NULL, true, 4, \'q\')'
    )
    mc.load(source_of(server, name), tmp_path / "t")
    mc.load(source_of(server, name), tmp_path / "whole", restart=True)
    found, whole = (mc.Table(tmp_path / each).to_arrow().sort_by("ti`ck").to_pylist() for each in ("t", "whole"))
    assert found == whole and [row["ti`ck"] for row in found] == [1, 3, 4] and found[0]["source"] == "new"
    server.run(f"SELECT pg_drop_replication_slot('{name}')")


def test_rows_move_between_partitions(server: Server, orders: str, tmp_path: Path) -> None:
    source = source_of(server, orders)
    server.run(f"INSERT INTO {orders} SELECT n, 'x', n % 3 FROM generate_series(1, 9) n")
    mc.load(source, tmp_path / "t", partition_by="n")
    server.run(f"UPDATE {orders} SET n = n + 1 WHERE id < 5; DELETE FROM {orders} WHERE id = 9; UPDATE {orders} SET n = NULL WHERE id = 7")
    mc.load(source, tmp_path / "t")
    found = sorted(rows(tmp_path / "t"), key=lambda row: row[0])
    assert found == [(1, "x", 2), (2, "x", 3), (3, "x", 1), (4, "x", 2), (5, "x", 2), (6, "x", 0), (7, "x", None), (8, "x", 2)]


# --- several tables -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(server: Server) -> Iterator[str]:
    """The name of a slot and of the publication of two tables, `NAME_orders` and `NAME_items`."""
    name = f"shop{next(numbers)}"
    for each in ("orders", "items"):
        server.run(f"CREATE TABLE {name}_{each} (id bigint PRIMARY KEY, note text, n int)")
    server.run(f"CREATE PUBLICATION {name} FOR TABLE {name}_orders, {name}_items")
    yield name
    server.run(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{name}'")


def shop_of(server: Server, name: str, **more: Any) -> PostgresChanges:
    tables = {f"public.{name}_orders": "orders", f"{name}_items": "deep/items"}
    found: PostgresChanges = mc.sources.postgres(server.dsn, tables, slot=name, **more)
    return found


def both(folder: Path, **version: Any) -> list[list[tuple[Any, ...]]]:
    found = mc.read_together([folder / "orders", folder / "deep" / "items"])
    return [sorted(tuple(row.values()) for row in each.to_arrow(["id", "note", "n"]).to_pylist()) for each in found]


def test_a_transaction_over_several_tables_is_one_commit(server: Server, shop: str, tmp_path: Path) -> None:
    """[LD12]"""
    orders, items = f"{shop}_orders", f"{shop}_items"
    server.run(f"INSERT INTO {orders} SELECT n, 'o', 100 FROM generate_series(1, 5) n; INSERT INTO {items} VALUES (1, 'i', 500)")
    assert mc.load(shop_of(server, shop), tmp_path).rows == 6
    for number in range(1, 6):
        server.run(f"BEGIN; UPDATE {orders} SET n = n - {number} WHERE id = {number}; UPDATE {items} SET n = n + {number}; COMMIT")
    server.run(f"INSERT INTO {orders} VALUES (6, 'alone', 0)")
    planned = mc.load(shop_of(server, shop), tmp_path, max_bytes=8, dry_run=True).planned
    assert [each.split(" up to ")[0] for each in planned] == ["2 changes of 1 transaction"] * 5 + ["1 change of 1 transaction"]
    done = mc.load(shop_of(server, shop), tmp_path, max_bytes=8)
    assert (done.chunks, done.rows) == (6, 11)
    assert both(tmp_path) == [at_the_source(server, orders), at_the_source(server, items)]
    tables = [mc.Table(tmp_path / "orders"), mc.Table(tmp_path / "deep" / "items")]
    assert len({*done.positions.values()}) == 1 and len(done.positions) == 2  # the last transaction has no item, and both go on
    for version in range(2, tables[0].version + 1):
        assert sum(sum(each.to_arrow(version=version).column("n").to_pylist()) for each in tables) == 1000
    server.run(f"BEGIN; TRUNCATE {orders}, {items}; INSERT INTO {items} VALUES (9); COMMIT")
    mc.load(shop_of(server, shop), tmp_path)
    assert both(tmp_path) == [[], [(9, None, None)]]
    assert mc.load(shop_of(server, shop), tmp_path).chunks == 0


def test_histories_of_several_tables_are_in_one_order(server: Server, shop: str, tmp_path: Path) -> None:
    """[LD12]"""
    source = shop_of(server, shop, history=True)
    mc.load(source, tmp_path)
    server.run(f"BEGIN; INSERT INTO {shop}_orders VALUES (1); INSERT INTO {shop}_items VALUES (2); DELETE FROM {shop}_orders; COMMIT")
    mc.load(source, tmp_path)
    found = [row for each in ("orders", "deep/items") for row in mc.Table(tmp_path / each).to_arrow().to_pylist()]
    found.sort(key=lambda row: (row["_commit_lsn"], row["_change_number"]))
    assert [(row["_change_type"], row["id"]) for row in found] == [("insert", 1), ("insert", 2), ("delete", 1)]


def test_a_conflict_in_one_table_commits_none(server: Server, shop: str, tmp_path: Path) -> None:
    """[LD12]"""
    mc.load(shop_of(server, shop), tmp_path)
    mc.Table(tmp_path / "deep" / "items").add_constraint("small", "n < 10")
    server.run(f"BEGIN; INSERT INTO {shop}_orders VALUES (1, 'x', 1); INSERT INTO {shop}_items VALUES (1, 'x', 10); COMMIT")
    before = mc.Table(tmp_path / "orders").watermarks()
    with pytest.raises(mc.errors.ConstraintError):
        mc.load(shop_of(server, shop), tmp_path)
    assert both(tmp_path) == [[], []] and mc.Table(tmp_path / "orders").watermarks() == before


def test_tables_of_one_slot_that_are_not_at_one_position_are_refused(server: Server, shop: str, tmp_path: Path) -> None:
    """One that was set back, or removed; a whole copy of all goes on. [LD12]"""
    mc.load(shop_of(server, shop), tmp_path)
    server.run(f"INSERT INTO {shop}_orders VALUES (1)")
    mc.load(shop_of(server, shop), tmp_path)
    mc.Table(tmp_path / "orders").rollback(2, reason="a test", alone=True)
    for _ in range(2):
        with pytest.raises(SourceError, match=r"are loaded up to different positions.*restart=True"):
            mc.load(shop_of(server, shop), tmp_path)
    mc.load(shop_of(server, shop), tmp_path, restart=True)
    server.run(f"INSERT INTO {shop}_items VALUES (2)")
    mc.load(shop_of(server, shop), tmp_path)
    assert both(tmp_path) == [[(1, None, None)], [(2, None, None)]]


@pytest.mark.parametrize("gone", ["orders", "deep/items", "neither"])
def test_a_table_that_a_slot_lost_or_got_comes_with_all_others_again(server: Server, shop: str, tmp_path: Path, gone: str) -> None:
    """Removed, the first one or the last; or added to the slot. [LD12]"""
    mc.load(shop_of(server, shop), tmp_path)
    tables = {f"{shop}_orders": "orders", f"{shop}_items": "deep/items"}
    if gone == "neither":
        server.run(f"CREATE TABLE {shop}_new (id int PRIMARY KEY); ALTER PUBLICATION {shop} ADD TABLE {shop}_new")
        tables[f"{shop}_new"] = gone
    else:
        shutil.rmtree(tmp_path / gone)
    for name in tables:
        server.run(f"INSERT INTO {name} VALUES (1)")
    source = mc.sources.postgres(server.dsn, tables, slot=shop)
    with pytest.raises(SourceError, match=r"are loaded up to different positions.*restart=True"):
        mc.load(source, tmp_path)
    assert not (tmp_path / gone).exists()
    assert mc.load(source, tmp_path, restart=True).rows == len(tables)
    for name in tables:
        server.run(f"INSERT INTO {name} VALUES (2)")
    mc.load(source, tmp_path)
    assert all(sorted(mc.Table(tmp_path / each).to_arrow(["id"]).column("id").to_pylist()) == [1, 2] for each in tables.values())


@pytest.mark.thorough
def test_two_loaders_of_several_tables_load_each_change_once(server: Server, shop: str, tmp_path: Path) -> None:
    """[LD2] [LD12]"""
    failed: list[BaseException] = []

    def load() -> None:
        try:
            for _ in range(3):
                mc.load(shop_of(server, shop, history=True), tmp_path, max_bytes=200)
        except BaseException as error:
            failed.append(error)

    loaders = [threading.Thread(target=load) for _ in range(2)]
    for each in loaders:
        each.start()
    for number in range(30):
        server.run(f"BEGIN; INSERT INTO {shop}_orders VALUES ({number}); INSERT INTO {shop}_items VALUES ({-number}); COMMIT")
    for each in loaders:
        each.join()
    assert not failed
    mc.load(shop_of(server, shop, history=True), tmp_path)
    found = [sorted(mc.Table(tmp_path / each).to_arrow(["id"]).column("id").to_pylist()) for each in ("orders", "deep/items")]
    assert found == [[*range(30)], [*range(-29, 1)]]


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_loader_of_several_tables_that_dies_at_any_request_leaves_whole_transactions(
    server: Server, shop: str, tmp_path: Path, moment: str
) -> None:
    """At each request of its first copy and of its changes; readers see the sum of a whole transaction after each death. [LD12]"""
    orders, items = f"{shop}_orders", f"{shop}_items"
    server.run(f"INSERT INTO {orders} SELECT n, 'o', 100 FROM generate_series(1, 5) n; INSERT INTO {items} VALUES (1, 'i', 500)")
    tables = {orders: "orders", items: "deep/items"}
    code, deaths = f"mc.sources.postgres({server.dsn!r}, {tables!r}, slot={shop!r})", 0
    for at, again in itertools.product(range(1, 12, 2), range(2)):
        folder = tmp_path / f"t{at}"  # its first copy, and then changes
        died = not lives(execute, f"mc.load({code}, {str(folder)!r}, max_bytes=8)", at, moment)
        deaths += died
        try:
            found = both(folder)
        except mc.errors.TableNotFoundError:
            found = [[], []]
        assert sum(row[2] for each in found for row in each) in (0, 1000)
        mc.load(eval(code), folder, restart=bool(again) and not died)
        assert both(folder) == [at_the_source(server, orders), at_the_source(server, items)]
        server.run(f"BEGIN; UPDATE {orders} SET n = n - 1; UPDATE {items} SET n = n + 5; COMMIT; UPDATE {orders} SET note = 'x'")
    assert deaths > 4


# --- what is refused ----------------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_followed_is_refused(server: Server, orders: str, tmp_path: Path) -> None:
    server.run(f"CREATE TABLE bare{orders} (id int); CREATE PUBLICATION bare{orders} FOR TABLE bare{orders}")
    server.run(f"CREATE PUBLICATION some{orders} FOR TABLE {orders} WITH (publish = 'insert')")
    server.run(f"CREATE PUBLICATION more{orders} FOR TABLE {orders}, bare{orders}; CREATE VIEW seen{orders} AS SELECT * FROM {orders}")
    server.run(f"CREATE PUBLICATION part{orders} FOR TABLE {orders} WHERE (id > 1)")
    server.run(f"SELECT pg_create_logical_replication_slot('other{orders}', 'test_decoding')")
    server.run(f"CREATE PUBLICATION other{orders} FOR TABLE {orders}")
    try:
        for table, options, message in (
            (f"bare{orders}", {}, "has no primary key.*history=True"),
            (orders, {"slot": "nothing"}, "no publication 'nothing'.*CREATE PUBLICATION nothing FOR TABLE"),
            (orders, {"slot": f"some{orders}"}, "lacks inserts, updates, deletes or truncates"),
            (orders, {"slot": f"more{orders}"}, f"other tables, too.*bare{orders}"),
            (orders, {"slot": f"part{orders}"}, "has only some rows"),
            (orders, {"slot": f"bare{orders}"}, "has other tables, too"),
            (f"seen{orders}", {"slot": orders}, "is neither a table"),
            (orders, {"slot": f"other{orders}"}, "is of the plugin test_decoding"),
        ):
            with pytest.raises(SourceError, match=message):
                mc.load(source_of(server, table, **options), tmp_path / "t")
        assert not (tmp_path / "t").exists()
    finally:
        server.run(f"SELECT pg_drop_replication_slot('other{orders}')")
    for options, argument in (
        ({"slot": "Orders"}, "slot"),
        ({"slot": "a b"}, "slot"),
        ({"xid_column": "xid"}, "xid_column"),
        ({"query_name": "q"}, "query_name"),
        ({"slot": None, "history": True}, "history"),
    ):
        with pytest.raises(UsageError) as caught:
            source_of(server, orders, **options)
        assert caught.value.argument == argument


def test_a_list_of_columns_and_generated_ones_are_what_the_slot_gives(server: Server, orders: str, tmp_path: Path) -> None:
    server.run(f"ALTER TABLE {orders} ADD odd interval, ADD twice int GENERATED ALWAYS AS (n * 2) STORED")
    with pytest.raises(SourceError, match=r"'odd' cannot be loaded.*SET TABLE"):
        mc.load(source_of(server, orders), tmp_path / "t")
    server.run(f"ALTER PUBLICATION {orders} SET TABLE {orders} (id, note, n); INSERT INTO {orders} VALUES (1, 'a', 1)")
    mc.load(source_of(server, orders), tmp_path / "t")
    server.run(f"UPDATE {orders} SET n = 2; INSERT INTO {orders} VALUES (2, 'b', 3)")
    mc.load(source_of(server, orders), tmp_path / "t")
    assert rows(tmp_path / "t") == [(1, "a", 2), (2, "b", 3)]
    assert mc.Table(tmp_path / "t").schema.names == ["id", "note", "n"]


def test_a_partitioned_table_is_one_table(server: Server, tmp_path: Path) -> None:
    name = f"parts{next(numbers)}"
    server.run(
        f"CREATE TABLE {name} (id int PRIMARY KEY, note text, n int) PARTITION BY RANGE (id);"
        f"CREATE TABLE {name}a PARTITION OF {name} FOR VALUES FROM (0) TO (10);"
        f"CREATE TABLE {name}b PARTITION OF {name} FOR VALUES FROM (10) TO (20); CREATE PUBLICATION {name} FOR TABLE {name}"
    )
    with pytest.raises(SourceError, match="publish_via_partition_root"):
        mc.load(source_of(server, name), tmp_path / "t")
    server.run(f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true); INSERT INTO {name} VALUES (1, 'a', 1), (11, 'b', 2)")
    mc.load(source_of(server, name), tmp_path / "t")
    server.run(f"UPDATE {name} SET id = 12 WHERE id = 1; DELETE FROM {name} WHERE id = 11; INSERT INTO {name} VALUES (2, 'c', 3)")
    mc.load(source_of(server, name), tmp_path / "t")
    assert rows(tmp_path / "t") == at_the_source(server, name) == [(2, "c", 3), (12, "a", 1)]
    server.run(f"SELECT pg_drop_replication_slot('{name}')")


# --- servers, secrets, and the command line -----------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_server_that_goes_away_is_an_error_of_this_package(tmp_path: Path) -> None:
    """[SE1]"""
    with running() as server:
        server.run("CREATE TABLE orders (id bigint PRIMARY KEY, note text, n int); CREATE PUBLICATION orders FOR TABLE orders")
        source = mc.sources.postgres(f"{server.dsn} password='hunter2'", "orders", slot="orders")
        mc.load(source, tmp_path / "t")
        server.run("INSERT INTO orders VALUES (1)")
        server.kill()
        with pytest.raises(SourceError, match="PostgreSQL: connection") as caught:
            mc.load(source, tmp_path / "t")
        server.start()
        mc.load(source, tmp_path / "t")
        assert rows(tmp_path / "t") == [(1, None, None)]
        assert "hunter2" not in "".join(traceback.format_exception(caught.value)) + repr(source)
        files = [path for path in (tmp_path / "t").rglob("*") if path.is_file()]
        assert files and not [path for path in files if b"hunter2" in path.read_bytes()]


@pytest.mark.thorough
def test_the_command_takes_a_slot(server: Server, orders: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dsn").write_text(server.dsn)
    server.run(f"INSERT INTO {orders} VALUES (1), (2)")
    command = ["load", str(tmp_path / "t"), f"postgres:{orders}", "--dsn-file", str(tmp_path / "dsn"), "--slot", orders]
    assert main(command) == 0 and "loaded 2 rows in 1 commit" in capsys.readouterr().out
    server.run(f"DELETE FROM {orders} WHERE id = 1")
    assert main([*command, "--dry-run"]) == 0 and "1 change of 1 transaction up to" in capsys.readouterr().out
    assert main(command) == 0 and "loaded 1 row in 1 commit" in capsys.readouterr().out
    assert rows(tmp_path / "t") == [(2, None, None)]
    assert main([*command, "--xid-column", "xid"]) == 2 and "a slot gives the changes of a table" in capsys.readouterr().err
    assert main(["load", str(tmp_path / "t"), str(tmp_path), "--slot", "x"]) == 2 and "it is for postgres:" in capsys.readouterr().err
