"""Clients of Iceberg's REST catalog read a lake by names, each by its own library, those of the page among them. [LK5] [LK6] [LK7]"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.catalog.conftest import ICEBERG, TOKEN, Server
from tests.clients.environments import REPO, python_of
from tests.export.clients import duck
from tests.kit.web import stored

import manifestcommit as mc


@pytest.fixture
def server(lake: mc.Lake, start: Callable[..., Server]) -> Server:
    return start(lake, token=TOKEN)


@pytest.fixture
def catalog(server: Server) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("lake", type="rest", uri=server.address, token=TOKEN)


@pytest.fixture
def session(server: Server) -> Iterator[duckdb.DuckDBPyConnection]:
    """With the lake attached, for this test alone: `SHOW ALL TABLES` asks every server that is attached, also one that has ended."""
    found = duck().cursor()
    found.execute(f"CREATE OR REPLACE TEMPORARY SECRET lake (TYPE iceberg, TOKEN '{TOKEN}')")
    found.execute(f"ATTACH OR REPLACE 'lake' AS lake (TYPE iceberg, ENDPOINT '{server.address}', SECRET lake)")
    yield found
    found.execute("DETACH lake")


def test_pyiceberg_finds_and_reads_each_table(lake: mc.Lake, catalog: Any) -> None:
    assert catalog.list_namespaces() == [("default",), ("sales",)] and catalog.list_namespaces("sales") == [("sales", "eu")]
    assert catalog.list_tables("sales") == [("sales", "orders"), ("sales", "plain")]
    assert catalog.table_exists("sales.orders") and not catalog.table_exists("sales.none") and catalog.namespace_exists("sales.eu")
    for name in ("default.flights", "sales.orders", "sales.eu.orders"):
        assert catalog.load_table(name).scan().to_arrow() == lake.table(name.removeprefix("default.")).to_arrow()
    table, first = catalog.load_table("sales.orders"), lake.table("sales.orders")
    mc.write(pa.table({"n": [4]}), first.url)
    assert table.refresh().scan().to_arrow().num_rows == 4
    assert table.scan(snapshot_id=first.version - 1).to_arrow().num_rows == 3


def test_pyiceberg_is_told_how_to_export_a_table(catalog: Any) -> None:
    from pyiceberg.exceptions import NoSuchTableError

    with pytest.raises(NoSuchTableError, match=r"manifestcommit export \S+/sales/plain --to iceberg"):
        catalog.load_table("sales.plain")


def test_pyiceberg_refuses_to_write(lake: mc.Lake, catalog: Any) -> None:
    """By itself: what is offered are GET and HEAD. [LK7]"""
    table, before = catalog.load_table("sales.orders"), stored(lake)
    calls = [
        lambda: catalog.drop_table("sales.orders"),
        lambda: catalog.purge_table("sales.orders"),
        lambda: catalog.create_namespace("other"),
        lambda: catalog.rename_table("sales.orders", "sales.other"),
        lambda: catalog.create_table("sales.other", table.schema()),
        lambda: catalog.register_table("sales.other", table.metadata_location),
    ]
    for call in calls:
        with pytest.raises(NotImplementedError, match="does not support endpoint"):
            call()
    assert stored(lake) == before


def test_duckdb_reads_tables_by_their_names(lake: mc.Lake, session: duckdb.DuckDBPyConnection) -> None:
    for name in ("lake.sales.orders", 'lake."default".flights', 'lake."sales.eu".orders'):
        assert session.execute(f"SELECT sum(n) FROM {name}").fetchall() == [(6,)], name
    version = lake.table("sales.orders").version
    mc.write(pa.table({"n": [4]}), lake.table("sales.orders").url)
    at = f"SELECT sum(n) FROM lake.sales.orders AT (VERSION => {version})"
    assert session.execute(at).fetchall() == [(6,)]
    joined = 'SELECT count(*) FROM lake.sales.orders a JOIN lake."default".flights b USING (n)'
    assert session.execute(joined).fetchall() == [(3,)]
    shown = {(row[1], row[2]) for row in session.execute("SHOW ALL TABLES").fetchall() if row[0] == "lake"}
    assert {("sales", "orders"), ("sales", "plain"), ("default", "flights")} <= shown


def test_duckdb_cannot_commit(session: duckdb.DuckDBPyConnection, lake: mc.Lake) -> None:
    """It writes files before it asks: only credentials that may not write keep it from that. [LK7]"""
    version = lake.table("sales.orders").version
    for statement in ("INSERT INTO lake.sales.orders VALUES (9)", "CREATE SCHEMA lake.other", "DROP TABLE lake.sales.orders"):
        with pytest.raises(duckdb.Error):
            session.execute(statement)
    assert lake.table("sales.orders").version == version and lake.table("sales.orders").to_arrow().num_rows == 3


# Client -> the heading of its session in the docs, which is run in an environment of its own.
SESSIONS = {"chdb": "ClickHouse", "daft": "Daft", "sail": "Sail"}


def session_on_the_page(client: str) -> str:
    """The block below the client's heading."""
    page = (REPO / "docs" / "how-to" / "run-a-lake.md").read_text("utf-8")
    return page.partition(f"\n### {SESSIONS[client]}: tested here, on S3\n")[2].partition("```\n")[2].partition("```\n")[0]


@pytest.mark.thorough  # installs them
@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", SESSIONS)
def test_the_session_of_a_client_on_the_page_finds_and_reads_a_table(
    tmp_path: Path, rgw: Any, start: Callable[..., Server], client: str
) -> None:
    bucket, options = rgw.bucket(), rgw.storage_options
    lake = mc.lake(f"s3://{bucket}/lake", options)
    made = lake.create("sales.orders", pa.schema([("amount", pa.float64())]), properties=ICEBERG)
    mc.write(pa.table({"amount": [1.5, 2.0, 4.0]}), made.url, storage_options=options)
    server, program = start(lake, token=TOKEN, options=options), session_on_the_page(client)
    for shown, here in {
        "http://lake.example:8181": server.address,
        "https://s3.example": rgw.endpoint,
        "/bucket": f"/{bucket}",
        "a-token-of-32": TOKEN,
        "KEY": rgw.key,
        "SECRET": rgw.secret,
    }.items():
        program = program.replace(shown, here)
    (tmp_path / "program.py").write_text(program)
    of_s3 = {**rgw.environment, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"} if client == "sail" else {}
    env = {"PATH": os.environ["PATH"], **of_s3}  # this process' has settings of another Spark
    done = subprocess.run([python_of(client), tmp_path / "program.py"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.split()[-1:] == ["7.5"], done.stderr
