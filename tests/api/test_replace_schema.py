"""An overwrite of the whole table that gives it other columns and another partitioning. [SC10]"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from tests.kit.sizes import SetBudgets

import manifestcommit as mc

OLD = pa.table({"day": ["a", "b"], "n": pa.array([1, 2], pa.int32()), "gone": [True, False], "kind": [1, 2]})
NEW = pa.table({"n": [2**40, 5], "kind": ["x", "y"], "new": [{"m": 1}, None]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for at in range(2):
        mc.write(OLD.slice(at, 1), tmp_path / "t", partition_by="day")
    return tmp_path / "t"


def rows(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=str)


def replace(path: Path, data: pa.Table = NEW, **given: Any) -> mc.Outcome:
    return mc.write(data, path, mode="overwrite", replace_schema=True, **given)


@pytest.mark.parametrize("spilled", [False, True])
def test_a_table_gets_the_columns_and_partitions_of_what_replaces_it(path: Path, set_budgets: SetBudgets, spilled: bool) -> None:
    """In one commit; a column that only gets wider stays itself, and one of another type is another column. [SC10] [SC6]"""
    if spilled:  # manifests of both partitionings
        set_budgets(inline_entry_bytes=0)
        mc.write(OLD.slice(0, 0), path)
    table = mc.Table(path)
    before, ids = table.snapshot().version, {field.name: field.id for field in table.snapshot().schema.fields}
    outcome = replace(path, partition_by="kind", key="k")
    assert outcome.version == before + 1 and replace(path, partition_by="kind", key="k").already_committed
    snapshot = table.snapshot()
    now = {field.name: field for field in snapshot.schema.fields}
    assert set(now) == {"n", "kind", "new"} and now["n"].id == ids["n"] and now["kind"].id != ids["kind"]
    assert now["n"].type == "long" and snapshot.partition_by == (now["kind"].id,)
    assert rows(table.to_arrow().select(NEW.column_names)) == rows(NEW)
    assert rows(table.to_arrow(version=before)) == rows(OLD)
    assert {each.split("/")[0] for each in table.files().column("path").to_pylist()} == {f"{now['kind'].file_name}={each}" for each in "xy"}
    mc.write(NEW.slice(0, 1), path)
    assert table.to_arrow(filter="kind = 'x'").num_rows == 2 and table.verify(deep=True).is_sound
    assert table.delete("kind = 'y'").rows_deleted == 1 and table.verify(deep=True).is_sound


@pytest.mark.parametrize("names", [[], None])
def test_its_partitioning_goes_or_stays(path: Path, names: list[str] | None) -> None:
    """[SC10]"""
    data = OLD.drop_columns(["gone"])
    replace(path, data, partition_by=names)
    snapshot = mc.Table(path).snapshot()
    assert len(snapshot.partition_by) == (0 if names == [] else 1) and rows(mc.Table(path).to_arrow()) == rows(data)


def test_what_is_not_meant_is_refused(path: Path) -> None:
    """[SC10] [PT1]"""
    for given in ({"mode": "append"}, {"mode": "overwrite", "overwrite": "dynamic"}, {"mode": "overwrite", "overwrite": {"day": "a"}}):
        with pytest.raises(mc.errors.UsageError, match=r"the whole table|overwrite=… names"):
            mc.write(OLD, path, replace_schema=True, **given)
    with pytest.raises(mc.errors.UsageError, match="no column 'day', which partitions"):
        replace(path)
    with pytest.raises(mc.errors.UsageError, match="replace_schema=True"):
        mc.write(OLD, path, mode="overwrite", partition_by="kind")
    assert rows(mc.Table(path).to_arrow()) == rows(OLD)


def test_several_writes_of_one_job_share_the_new_columns(path: Path) -> None:
    """[SC10]"""
    with mc.begin(path) as job:
        job.overwrite(None)
        job.write(NEW.slice(0, 1), "kind", replace_schema=True)
        job.write(NEW.slice(1, 1))
    assert rows(mc.Table(path).to_arrow()) == rows(NEW)
    with mc.begin(path) as job:
        job.overwrite(None)
        job.write(OLD, [], replace_schema=True)
        waiting = job.prepare()
    mc.commit(path, waiting)
    assert rows(mc.Table(path).to_arrow()) == rows(OLD) and mc.Table(path).snapshot().partition_by == ()


def test_changed_rows_and_exports_follow(path: Path) -> None:
    """[SC10] [CH1]"""
    table = mc.Table(path)
    table.set_properties({"export.formats": "iceberg,delta"})
    version = table.snapshot().version
    replace(path, partition_by="kind")
    log = max((path / "_delta_log").glob("*.json")).read_text("utf-8")
    assert '"metaData"' in log and log.count('"remove"') == 2 and log.count('"add"') == 2
    newest = max((path / "_iceberg" / "metadata").glob("*.metadata.json"), key=lambda each: each.stat().st_mtime_ns)
    assert sorted(StaticTable.from_metadata(str(newest)).scan().to_arrow()["n"].to_pylist()) == [5, 2**40]
    assert table.changed_rows(version).read_all().num_rows == 4
