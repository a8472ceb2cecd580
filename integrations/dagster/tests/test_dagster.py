"""Assets as tables, by Dagster itself, which reads annotations as they are."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from manifestcommit_dagster import ManifestCommit, ManifestCommitIOManager

import dagster as dg
import manifestcommit as mc

DAYS = dg.StaticPartitionsDefinition(["2013-01-01", "2013-01-02"])
FAILS = []


@dg.asset(partitions_def=DAYS, metadata={"partition_column": "day"})
def flights(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"day": [context.partition_key] * 2, "flight": [1545, 1714]})


@dg.asset(partitions_def=DAYS, metadata={"partition_column": "day"}, key_prefix="gold")
def daily(flights: pd.DataFrame) -> pd.DataFrame:
    return flights.groupby("day", as_index=False).agg(n=("flight", "count"))


@dg.asset
def whole(flights: pa.Table) -> pa.Table:
    return flights.select(["flight"])


@dg.asset(deps=[flights])
def by_itself(lake: ManifestCommit) -> None:
    lake.write(lake.table("flights").to_arrow(filter="flight = 1545"), "by", "itself", mode="overwrite")


def run(lake: Path, *assets: dg.AssetsDefinition, partition: str | None = None) -> dg.ExecuteInProcessResult:
    resources = {"io_manager": ManifestCommitIOManager(lake=str(lake)), "lake": ManifestCommit(lake=str(lake))}
    return dg.materialize([*assets], selection=[*assets], resources=resources, partition_key=partition)


def rows(path: Path) -> list[dict[str, object]]:
    return sorted(mc.Table(path).to_arrow().to_pylist(), key=repr)


def test_a_partition_replaces_its_rows_and_an_input_reads_its_own(tmp_path: Path) -> None:
    for day in DAYS.get_partition_keys() * 2:
        assert run(tmp_path, flights, daily, partition=day).success
    assert rows(tmp_path / "flights") == [{"day": day, "flight": n} for day in DAYS.get_partition_keys() for n in (1545, 1714)]
    assert rows(tmp_path / "gold" / "daily") == [{"day": day, "n": 2} for day in DAYS.get_partition_keys()]
    assert mc.Table(tmp_path / "flights").to_arrow(version=3).num_rows == 4, "a day leaves the other one alone"
    done = run(tmp_path, flights, partition="2013-01-01")
    (shown,) = [event.step_materialization_data.materialization.metadata for event in done.all_events if event.is_step_materialization]
    assert shown["rows"].value == 2 and shown["version"].value == mc.Table(tmp_path / "flights").version
    assert mc.Table(tmp_path / "flights").history()[0]["metadata"] == {"dagster_run": done.run_id}


def test_an_asset_without_partitions_replaces_all_rows(tmp_path: Path) -> None:
    for day in DAYS.get_partition_keys():
        run(tmp_path, flights, partition=day)
    for _ in range(2):
        assert dg.materialize(
            [flights, whole], selection=[whole], resources={"io_manager": ManifestCommitIOManager(lake=str(tmp_path))}
        ).success
    assert rows(tmp_path / "whole") == [{"flight": 1545}] * 2 + [{"flight": 1714}] * 2
    assert run(tmp_path, by_itself).success and len(rows(tmp_path / "by" / "itself")) == 2


def test_a_step_that_runs_again_within_its_run_commits_once(tmp_path: Path) -> None:
    manager = ManifestCommitIOManager(lake=str(tmp_path))
    for _ in range(2):
        context = dg.build_output_context(asset_key=["flights"], run_id="r-1", name="result")
        manager.handle_output(context, pa.table({"flight": [1545]}))
    assert mc.Table(tmp_path / "flights").version == 2
    assert context.get_logged_metadata()["already committed"].value is True


def test_a_partitioned_asset_that_names_no_column_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    @dg.asset(partitions_def=DAYS)
    def nameless() -> pa.Table:
        return pa.table({"a": [1]})

    with pytest.raises(dg.DagsterInvalidDefinitionError, match="partition_column"):
        run(tmp_path, nameless, partition="2013-01-01")
    assert list(tmp_path.iterdir()) == []
