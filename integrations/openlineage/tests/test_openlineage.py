"""Events as OpenLineage's own client sends them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from manifestcommit_openlineage import dataset_name, run
from openlineage.client import OpenLineageClient
from openlineage.client.transport.file import FileConfig, FileTransport

import manifestcommit as mc

ROWS = pa.table({"day": ["2013-01-01"] * 2, "flight": [1545, 1714]})


class Sent:
    def __init__(self, folder: Path) -> None:
        self._file = folder / "events.jsonl"
        self.client = OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=str(self._file), append=True)))

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.read_text("utf-8").splitlines()] if self._file.exists() else []


@pytest.fixture
def sent(tmp_path: Path) -> Sent:
    return Sent(tmp_path)


def test_a_run_names_what_it_read_and_what_it_committed(sent: Sent, tmp_path: Path) -> None:
    flights, daily = tmp_path / "flights", tmp_path / "daily"
    mc.write(ROWS, flights)
    for _ in range(2):  # the second time the key is committed
        with run("daily", namespace="tests", inputs=[flights], client=sent.client) as run_id:
            mc.write(ROWS, daily, key="2013-01-01")
            with pytest.raises(mc.errors.ManifestCommitError):
                mc.Table(daily).delete("no such column = 1")
    first, done, _, again = sent.events
    assert [each["eventType"] for each in sent.events] == ["START", "COMPLETE"] * 2
    assert again["run"]["runId"] == run_id and first["run"]["runId"] == done["run"]["runId"]
    assert done["job"]["namespace"] == "tests" and done["job"]["name"] == "daily"
    (read,), (made,) = done["inputs"], done["outputs"]
    assert (read["namespace"], read["name"], read["facets"]["version"]["datasetVersion"]) == ("file", str(flights), "2")
    assert (made["name"], made["facets"]["version"]["datasetVersion"]) == (str(daily), "2")
    assert [(each["name"], each["type"]) for each in made["facets"]["schema"]["fields"]] == [("day", "string"), ("flight", "int64")]
    figures = made["outputFacets"]["outputStatistics"]
    assert (figures["rowCount"], figures["fileCount"]) == (2, 1) and figures["size"] > 0
    (made,) = again["outputs"]
    assert (made["facets"]["version"]["datasetVersion"] == "2" and "outputFacets" not in made) or not made["outputFacets"]


def test_a_run_that_fails_says_so_with_what_it_had_committed(sent: Sent, tmp_path: Path) -> None:
    def fails() -> None:
        with run("daily", client=sent.client):
            mc.write(ROWS, tmp_path / "t")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    _, failed = sent.events
    assert failed["eventType"] == "FAIL" and "ZeroDivisionError" in failed["run"]["facets"]["errorMessage"]["message"]
    assert [each["name"] for each in failed["outputs"]] == [str(tmp_path / "t")]
    mc.write(ROWS, tmp_path / "t")  # after the block
    assert len(sent.events) == 2


def test_an_input_that_is_no_table_is_refused_before_any_event(sent: Sent, tmp_path: Path) -> None:
    with pytest.raises(mc.errors.TableNotFoundError), run("daily", inputs=[tmp_path / "none"], client=sent.client):
        pass
    assert sent.events == []


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("s3://bucket/lake/t", ("s3://bucket", "lake/t")),
        ("gs://bucket", ("gs://bucket", "/")),
        ("abfs://c@a.dfs.core.windows.net/t", ("abfs://c@a.dfs.core.windows.net", "t")),
        ("file:///lake/t", ("file", "/lake/t")),
    ],
)
def test_datasets_are_named_as_openlineage_asks(url: str, named: tuple[str, str]) -> None:
    assert dataset_name(url) == named
