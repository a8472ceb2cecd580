"""The matrix of clients is that of the last run, holds nothing unexpected, and its comparison finds what is wrong."""

import datetime as dt
import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.clients import run
from tests.clients.environments import DEV, DISTRIBUTIONS, REQUIREMENTS, clients_in
from tests.clients.faults import FAULTS, objections
from tests.clients.readers import READERS
from tests.clients.results import PAGE, PLACES, recorded, replaced

RIGHT = frozenset({run.SAME, run.REFUSED})


def test_the_page_shows_the_last_run() -> None:
    text = PAGE.read_text("utf-8")
    assert replaced(text, recorded()) == text, "python -m tests.clients --page rewrites it"


@pytest.mark.parametrize("place", recorded()["verdicts"])
def test_each_client_reads_what_it_is_known_to_read(place: str) -> None:
    """[EX1] [EX3] [EX6] [EX8] [EX9]"""
    verdicts = recorded()["verdicts"][place]
    assert place in PLACES and "disk" in recorded()["verdicts"]
    assert verdicts.keys() == READERS.keys()
    assert not objections(place, verdicts, RIGHT)
    for client, kinds in verdicts.items():
        assert len(kinds) >= 25 and list(kinds.values()).count(run.SAME) >= 25, client


def test_every_client_has_an_environment_and_a_version() -> None:
    found = [client for environment in (DEV, *REQUIREMENTS) for client in clients_in(environment)]
    assert sorted(found) == sorted(READERS) == sorted(recorded()["versions"])
    assert {client.partition(" ")[0] for client in READERS} == DISTRIBUTIONS.keys()
    assert FAULTS.keys() <= READERS.keys()


def test_an_unexpected_fault_and_one_that_is_gone_are_objected_to() -> None:
    assert objections("disk", {"pyiceberg": {"empty": "wrong: 1 rows instead of 0"}}, RIGHT)
    assert objections("disk", {"pyiceberg": {"null list of structs": run.SAME}}, RIGHT)
    assert objections("disk", {"pyiceberg": {"null list of structs": "error: something else"}}, RIGHT)
    assert not objections("disk", {"pyiceberg": {"null list of structs": "wrong values: items", "empty": run.SAME}}, RIGHT)


@pytest.mark.thorough
def test_what_is_wrong_with_rows_is_found(tmp_path: Path) -> None:
    """Values, columns, numbers of rows, and values of one row in another."""
    made = run.make(str(tmp_path), names=["all types"], large=False)["all types"]
    path = str(tmp_path / "jobs.json")
    out = tmp_path / "0.arrow"
    Path(path).write_text(json.dumps([{"client": "pyiceberg", "root": made.root, "s3": None, "where": None, "out": str(out)}]))
    run.run_readers(sys.executable, Path(path), 1)
    table = pa.ipc.open_file(out).read_all()
    assert run.verdict(table, made) == run.SAME
    assert run.verdict(table.slice(1), made) == "wrong: 7 rows instead of 8"
    assert run.verdict(table.drop_columns(["date"]), made).startswith("wrong columns: n, bool")
    days = pa.array([dt.date(2013, 1, 1)] * 8)
    assert run.verdict(table.set_column(table.column_names.index("date"), "date", days), made) == "wrong values: date"
    turned = pa.concat_arrays([*table["text"].chunks[::-1]]).take(pa.array([1, 0, 2, 3, 4, 5, 6, 7]))
    assert (
        run.verdict(table.set_column(table.column_names.index("text"), "text", turned), made)
        == "wrong: the values of several rows are mixed"
    )
