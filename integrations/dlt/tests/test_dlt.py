"""Packages of dlt itself, loaded into tables, and loaded again after kills."""

import datetime as dt
import decimal
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from dlt.common.storages.load_package import PackageStorage
from dlt.pipeline.exceptions import PipelineStepFailed
from manifestcommit_dlt import manifestcommit
from manifestcommit_dlt.client import Client
from tests.docs.blocks import REPO, run

import dlt
import manifestcommit as mc
from manifestcommit.errors import TableNotFoundError

os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
KILL_EVERY = 50  # file operations
OWN = ("_dlt_loads", "_dlt_version", "_dlt_pipeline_state")


def pipeline(root: Path, working: str = "working", name: str = "shop") -> dlt.Pipeline:
    return dlt.pipeline(name, destination=manifestcommit(str(root / "lake")), dataset_name="shop", pipelines_dir=str(root / working))


def table(root: Path, name: str) -> mc.Table:
    return mc.Table(root / "lake" / "shop" / name)


def rows(root: Path, name: str, *columns: str) -> list[tuple[object, ...]]:
    found = table(root, name).to_arrow().select([*columns]).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def orders(*given: dict[str, object], **hints: object):  # dlt's own type
    hints = {"primary_key": "id", "write_disposition": "merge", "name": "orders", **hints}
    return dlt.resource([*given], **hints)


@dlt.resource
def events(until: int = 3, n=dlt.sources.incremental("n", initial_value=-1)):  # noqa: B008  # dlt reads the default
    yield [{"n": at} for at in range(n.last_value + 1, n.last_value + 1 + until)]


def test_a_package_and_its_state_are_one_commit(tmp_path: Path) -> None:
    for _ in range(2):
        info = pipeline(tmp_path).run([events(), orders({"id": 1, "items": [{"sku": "a"}]}, write_disposition="append")])
    assert rows(tmp_path, "events", "n") == [(n,) for n in range(6)]
    assert [row[0] for row in rows(tmp_path, "_dlt_loads", "load_id")][-1] == info.loads_ids[0]
    for name in ("events", "orders", "orders__items", "_dlt_loads", "_dlt_pipeline_state"):
        newest = table(tmp_path, name).history()[0]
        assert newest["key"] == info.loads_ids[0] and newest["metadata"] == {"dlt_load_id": info.loads_ids[0], "dlt_schema": "shop"}, name
    assert len(rows(tmp_path, "_dlt_version", "version")) == 1


def test_a_working_folder_that_is_lost_is_restored(tmp_path: Path) -> None:
    pipeline(tmp_path, "first").run(events())
    again = pipeline(tmp_path, "second")
    again.run(events())
    assert rows(tmp_path, "events", "n") == [(n,) for n in range(6)]
    assert again.default_schema.version_hash == pipeline(tmp_path, "first").default_schema.version_hash


def test_merge_replaces_rows_and_what_is_nested_in_them(tmp_path: Path) -> None:
    one = {"id": 1, "items": [{"sku": "a", "tags": ["x", "y"]}, {"sku": "b"}]}
    pipeline(tmp_path).run(orders(one, {"id": 2, "items": [{"sku": "c"}]}, {"id": 3}))
    pipeline(tmp_path).run(orders({"id": 1, "note": "new", "items": [{"sku": "d", "tags": ["z"]}]}, {"id": 4}))
    assert rows(tmp_path, "orders", "id", "note") == [(1, "new"), (2, None), (3, None), (4, None)]
    assert rows(tmp_path, "orders__items", "sku") == [("c",), ("d",)]
    assert rows(tmp_path, "orders__items__tags", "value") == [("z",)]
    pipeline(tmp_path).run(orders({"id": 1, "note": "no items"}))
    assert rows(tmp_path, "orders__items", "sku") == [("c",)], "no file of the package is of this table"


def test_merge_deletes_what_is_marked(tmp_path: Path) -> None:
    marked = {"gone": {"hard_delete": True, "data_type": "bool"}}
    pipeline(tmp_path).run(orders(*({"id": n, "items": [n]} for n in range(3)), columns=marked))
    pipeline(tmp_path).run(orders({"id": 1, "gone": True, "items": [7]}, {"id": 5, "gone": True}, {"id": 2, "gone": False}, columns=marked))
    assert rows(tmp_path, "orders", "id") == [(0,), (2,)]
    assert rows(tmp_path, "orders__items", "value") == [(0,)]


def test_of_rows_with_one_key_the_last_counts(tmp_path: Path) -> None:
    given = [{"id": 1, "at": at} for at in (2, 3, 1)]
    pipeline(tmp_path).run(orders(*given))
    assert rows(tmp_path, "orders", "id", "at") == [(1, 1)]
    for order, kept in (("desc", 3), ("asc", 1)):
        pipeline(tmp_path).run(orders(*given, columns={"at": {"dedup_sort": order}}))
        assert rows(tmp_path, "orders", "id", "at") == [(1, kept)]
    with pytest.raises(PipelineStepFailed, match="yield each key once"):
        pipeline(tmp_path).run(orders({"id": 2, "items": [1, 2]}, {"id": 2, "items": [3]}))
    assert rows(tmp_path, "orders", "id", "at") == [(1, 1)]


def test_replace_replaces_all_in_the_commit(tmp_path: Path) -> None:
    pipeline(tmp_path).run(orders({"id": 1, "items": [1]}, write_disposition="replace"))
    before = table(tmp_path, "orders").dataset()
    pipeline(tmp_path).run(orders({"id": 2}, write_disposition="replace"))
    assert before.to_table().num_rows == 1, "who reads sees the rows of one package"
    assert rows(tmp_path, "orders", "id") == [(2,)]
    assert rows(tmp_path, "orders__items", "value") == []
    pipeline(tmp_path).run(orders(write_disposition="replace"))
    assert rows(tmp_path, "orders", "id") == []


def test_types_and_columns_that_are_new(tmp_path: Path) -> None:
    day, moment = dt.date(2013, 1, 1), dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
    row = {"id": 1, "price": decimal.Decimal("9.500000000"), "day": day, "at": moment, "raw": b"\0x", "ok": True, "ratio": 0.5}
    pipeline(tmp_path).run(orders(row))
    pipeline(tmp_path).run(orders({"id": 2, "price": "cheap", "about": {"colour": "red"}}))
    found = {row.pop("id"): row for row in table(tmp_path, "orders").to_arrow().to_pylist()}
    assert {**row, "id": 1} == {**{name: found[1][name] for name in row if name != "id"}, "id": 1}
    assert found[2]["price"] is None and found[2]["price__v_text"] == "cheap" and found[2]["about__colour"] == "red"
    arrow = pa.table({"id": pa.array([7], pa.int32()), "at": [{"lat": 1.5}], "name": pa.array(["x"], pa.large_string())})
    pipeline(tmp_path).run(dlt.resource(arrow, name="arrow"))
    assert rows(tmp_path, "arrow", "id", "at", "name") == [(7, {"lat": 1.5}, "x")]
    with pytest.raises(PipelineStepFailed, match="no time of day"):
        pipeline(tmp_path).run(dlt.resource([{"at": dt.time(5)}], name="times"))


def test_what_is_not_supported_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(PipelineStepFailed, match="`delete-insert` merge strategy not supported"):
        pipeline(tmp_path).run(orders({"id": 1}, write_disposition={"disposition": "merge", "strategy": "delete-insert"}))
    with pytest.raises(PipelineStepFailed, match="No primary key defined"):
        pipeline(tmp_path, "other").run(dlt.resource([{"id": 1}], name="bare", write_disposition="merge"))
    for name in ("orders", "bare"):
        with pytest.raises(TableNotFoundError):
            rows(tmp_path, name, "id")
    with pytest.raises(PipelineStepFailed, match=r"Missing 1 field.*`lake`"):
        dlt.pipeline("none", destination=manifestcommit(), pipelines_dir=str(tmp_path)).run([1], table_name="t")


def test_a_refresh_empties_tables_in_the_commit(tmp_path: Path) -> None:
    @dlt.source
    def shop(n: int):
        return orders({"id": n, "items": [n]}, write_disposition="append")

    for n in (1, 2):
        pipeline(tmp_path).run(shop(n))
    pipeline(tmp_path).run(shop(3), refresh="drop_data")
    assert rows(tmp_path, "orders", "id") == [(3,)] and rows(tmp_path, "orders__items", "value") == [(3,)]
    pipeline(tmp_path).run(shop(4), refresh="drop_sources")
    assert rows(tmp_path, "orders", "id") == [(4,)] and rows(tmp_path, "orders__items", "value") == [(4,)]


def test_a_refresh_of_what_is_merged_keeps_one_row_of_each_key(tmp_path: Path) -> None:
    @dlt.source
    def shop(*given: dict[str, object]):
        return orders(*given, columns={"gone": {"hard_delete": True, "data_type": "bool"}})

    pipeline(tmp_path).run(shop({"id": 1, "items": [1]}, {"id": 2, "items": [2]}))
    pipeline(tmp_path).run(shop({"id": 1, "items": [3]}, {"id": 3, "gone": True, "items": [4]}), refresh="drop_data")
    assert rows(tmp_path, "orders", "id") == [(1,)] and rows(tmp_path, "orders__items", "value") == [(3,)]
    pipeline(tmp_path, "flat").run(
        dlt.resource([{"id": 1, "at": 1}, {"id": 1, "at": 2}], name="flat", primary_key="id", write_disposition="merge")
    )
    pipeline(tmp_path, "flat").run(
        dlt.resource([{"id": 1, "at": 3}, {"id": 1, "at": 4}], name="flat", primary_key="id", write_disposition="merge"),
        refresh="drop_data",
    )
    assert rows(tmp_path, "flat", "id", "at") == [(1, 4)]


def test_a_package_that_two_machines_load_is_loaded_once(tmp_path: Path) -> None:
    one = pipeline(tmp_path, "one")
    one.extract(events())
    one.normalize()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    one.load()
    version = table(tmp_path, "events").version
    pipeline(tmp_path, "two").load()
    assert rows(tmp_path, "events", "n") == [(n,) for n in range(3)]
    assert table(tmp_path, "events").version == version


def test_a_package_with_a_file_that_failed_is_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOAD__RAISE_ON_FAILED_JOBS", "false")
    one = pipeline(tmp_path)
    one.extract(events())
    one.normalize()
    (load_id,) = one.list_normalized_load_packages()
    folder = Path(one.get_load_package_info(load_id).package_path)
    job = next((folder / "new_jobs").glob("events.*"))
    job.rename(folder / "failed_jobs" / job.name)
    with pytest.raises(PipelineStepFailed, match="these files were not loaded"):
        one.load()
    with pytest.raises(TableNotFoundError):
        rows(tmp_path, "events", "n")


def test_more_tables_than_one_commit_takes_have_their_state_in_the_last(tmp_path: Path) -> None:
    many = [dlt.resource([{"n": n}], name=f"t{n:02}") for n in range(40)]
    info = pipeline(tmp_path).run([*many, events()])
    assert all(rows(tmp_path, f"t{n:02}", "n") == [(n,)] for n in range(40))
    keys = [table(tmp_path, name).history()[0]["key"] for name in ("events", *OWN)]
    assert keys == [f"{info.loads_ids[0]}/0", *[info.loads_ids[0]] * 3]


def test_a_package_of_several_commits_goes_on_where_it_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit has the same tables again, in whatever order their files are listed, and nested rows find their roots in another."""
    many = [orders({"id": 1, "items": [1, 2]}, name=f"t{n:02}") for n in range(20)]
    one, real, commits = pipeline(tmp_path), Client._commit, []

    def dying(self: Client, load_id: str, key: str, tables: list[str], *given: object) -> None:
        if len(commits) == 1:
            raise OSError("the process died")
        commits.append((key, tables))
        real(self, load_id, key, tables, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "_commit", dying)
        with pytest.raises(PipelineStepFailed, match="the process died"):
            one.run(many)
    listed = PackageStorage.get_load_package_jobs
    monkeypatch.setattr(
        PackageStorage, "get_load_package_jobs", lambda self, load_id: {name: some[::-1] for name, some in listed(self, load_id).items()}
    )
    pipeline(tmp_path).load()
    for n in range(20):
        assert rows(tmp_path, f"t{n:02}", "id") == [(1,)]
        assert rows(tmp_path, f"t{n:02}__items", "value") == [(1,), (2,)]


def test_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(REPO / "docs" / "how-to" / "dlt.md", {})


KILLED = """
import os, signal, sys
import dlt
from pathlib import Path
from test_dlt import events, orders, pipeline

root, working, at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
seen = 0

def hook(event, args):
    global seen
    if event in ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree") and str(root) in str(args):
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

loaded = pipeline(root, working)
sys.addaudithook(hook)
loaded.run([events(), orders({"id": 1, "items": [1, 2]}), dlt.resource([{"id": 1}], name="whole", write_disposition="replace")])
print(seen)
"""


def _run(root: Path, working: str, at: int) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", KILLED, str(root), working, str(at)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize("is_lost", [False, True], ids=["working folder kept", "working folder lost"])
def test_rows_and_state_agree_after_kills_anywhere(tmp_path: Path, is_lost: bool) -> None:
    """Killed before its nth file operation, in dlt's working folder or in the lake, and run again."""
    counted = _run(tmp_path / "counted", "working", 0)
    total = int(counted.stdout.split()[-1])
    assert total > 100, counted.stderr
    rng, killed = random.Random(39), 0
    for at in range(0, total, KILL_EVERY):
        working = f"working{at}" if is_lost else "working"
        died = _run(tmp_path, working, at + rng.randint(1, KILL_EVERY))
        assert died.returncode in (0, -signal.SIGKILL), died.stderr[-3000:]
        killed += died.returncode != 0
    done = _run(tmp_path, "last" if is_lost else "working", 0)
    assert done.returncode == 0 and killed > 3, done.stderr[-3000:]
    found = [row[0] for row in rows(tmp_path, "events", "n")]
    assert sorted(found) == list(range(len(found))), "each row once, none left out"
    assert len(found) == 3 * len(rows(tmp_path, "_dlt_loads", "load_id"))
    assert pipeline(tmp_path, "restored").run(events()) and len(rows(tmp_path, "events", "n")) == len(found) + 3
    assert rows(tmp_path, "orders", "id") == [(1,)] and rows(tmp_path, "whole", "id") == [(1,)]
    assert rows(tmp_path, "orders__items", "value") == [(1,), (2,)]
