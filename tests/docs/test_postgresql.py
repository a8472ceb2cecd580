"""The page's statements for PostgreSQL, run by a real server: none of the rows of several writers is lost, whenever it commits.

Needs Debian's package postgresql, which is not installed for it.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.docs.blocks import REPO, run
from tests.servers.postgresql import Server, running

import manifestcommit as mc

FOLDER = REPO / "docs" / "examples" / "postgresql"
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.int64())])


def statement(name: str) -> str:
    """As the page shows it."""
    return (FOLDER / f"{name}.sql").read_text("utf-8")


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as found:
        found.run("CREATE TABLE orders (id bigserial PRIMARY KEY, amount bigint);" + statement("prepare"))
        yield found


def settled(server: Server) -> int:
    return int(server.run(statement("settled"))[0][0])


def read_between(server: Server, start: int, end: int) -> pa.Table:
    rows = server.run(statement("read").replace("':start'", f"'{start}'").replace("':end'", f"'{end}'"))
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, map(int, row), strict=True)) for row in rows], SCHEMA)


def load(server: Server, table: mc.Table) -> None:
    start, end = int(table.watermarks().get("orders", 0)), settled(server)
    rows = read_between(server, start, end)
    if rows.num_rows:
        table.merge(rows, on="id", watermarks={"orders": (start, end)})


@pytest.mark.thorough
def test_no_row_of_four_writers_is_lost_whenever_it_commits(server: Server, tmp_path: Path) -> None:
    """By the serial id, read at the same moments, some are."""
    table = mc.create_table(tmp_path / "orders", SCHEMA)

    def write(number: int) -> None:
        work = f"BEGIN; INSERT INTO orders (amount) VALUES (1); SELECT pg_sleep({0.1 * number}); UPDATE orders SET amount = {number} WHERE "
        server.run((work + "id = lastval(); COMMIT;\n") * (24 // number))

    writers = [threading.Thread(target=write, args=(number,)) for number in (1, 2, 4, 8)]
    for each in writers:
        each.start()
    by_id: set[int] = set()
    while any(each.is_alive() for each in writers):
        by_id |= {int(row[0]) for row in server.run(f"SELECT id FROM orders WHERE id > {max(by_id, default=0)}")}
        load(server, table)
    by_id |= {int(row[0]) for row in server.run(f"SELECT id FROM orders WHERE id > {max(by_id, default=0)}")}
    load(server, table)
    there = {(int(row[0]), int(row[1])) for row in server.run("SELECT id, amount FROM orders")}
    assert len(there) == 24 + 12 + 6 + 3 > len(by_id)
    assert {tuple(row.values()) for row in table.to_arrow().to_pylist()} == there


@pytest.mark.thorough
def test_a_server_that_crashed_gives_no_row_an_id_below_the_position(server: Server, tmp_path: Path) -> None:
    """Of transactions that changed nothing, ids are given again, but for what the page's second statement makes durable."""
    table = mc.create_table(tmp_path / "orders", SCHEMA)
    server.run("INSERT INTO orders (amount) VALUES (1)")
    server.run("CHECKPOINT")
    server.run("BEGIN; SELECT pg_current_xact_id(); ROLLBACK;\n" * 20)
    load(server, table)
    server.stop("immediate")
    server.start()
    server.run("INSERT INTO orders (amount) VALUES (2)")
    load(server, table)
    assert sorted(row["amount"] for row in table.to_arrow().to_pylist()) == [1, 2]


@pytest.mark.thorough
def test_the_page_on_loads_loads_what_is_written_and_what_is_updated(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "services").write_text(f"[shop]\nhost={server.folder}\nuser=me\ndbname=postgres\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.chdir(tmp_path)
    page = run(REPO / "docs" / "how-to" / "load.md", {"mc": mc}, "PostgreSQL")
    for text in ("INSERT INTO orders (amount, tx) VALUES (1, '3'), (2, '4')", "UPDATE orders SET amount = 5 WHERE id = 1"):
        server.run(text)
        assert mc.load(page["source"], "shop-orders").chunks == 1
    found = mc.Table("shop-orders").to_arrow(["id", "amount"]).to_pylist()
    assert sorted((row["id"], row["amount"]) for row in found) == [(1, 1), (1, 5), (2, 2)]


@pytest.mark.thorough
def test_the_page_on_loads_applies_what_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with running() as server:
        (tmp_path / "services").write_text(f"[shop]\nhost={server.folder}\nuser=me\ndbname=postgres\n")
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        server.run("CREATE TABLE orders (id bigserial PRIMARY KEY, amount bigint);" + statement("publish"))
        server.run("INSERT INTO orders (amount) VALUES (1), (2)")
        page = run(REPO / "docs" / "how-to" / "load.md", {"mc": mc}, "PostgreSQL, with deletes")
        mc.load(page["source"], "shop-orders")
        server.run("DELETE FROM orders WHERE id = 1; UPDATE orders SET amount = 5 WHERE id = 2")
        mc.load(page["source"], "shop-orders")
    assert mc.Table("shop-orders").to_arrow(["id", "amount"]).to_pylist() == [{"id": 2, "amount": 5}]


@pytest.mark.thorough
def test_the_page_on_loads_loads_whole_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[LD12]"""
    monkeypatch.chdir(tmp_path)
    with running() as server:
        (tmp_path / "services").write_text(f"[shop]\nhost={server.folder}\nuser=me\ndbname=postgres\n")
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        server.run("CREATE TABLE orders (id bigint PRIMARY KEY); CREATE TABLE items (id bigint PRIMARY KEY, of bigint);")
        server.run(statement("publish-together"))
        page = run(REPO / "docs" / "how-to" / "load.md", {"mc": mc}, "PostgreSQL, several tables")
        mc.load(page["source"], "shop")
        server.run("BEGIN; INSERT INTO orders VALUES (1); INSERT INTO items VALUES (7, 1); COMMIT")
        mc.load(page["source"], "shop")
    orders, items = mc.read_together(["shop/orders", "shop/items"])
    assert orders.to_arrow().to_pylist() == [{"id": 1}] and items.to_arrow().to_pylist() == [{"id": 7, "of": 1}]
