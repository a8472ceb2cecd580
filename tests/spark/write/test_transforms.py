"""Tables that are partitioned by transforms, written and read by Spark. [PT4] [PT7] [SP47]"""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.kit.transforms import BY, TS, USER, moment, numbers, rows

import manifestcommit as mc

CONDITIONS = {"user = 3": USER == 3, "ts >= timestamp '1970-01-01 00:00:00Z'": moment(0) <= TS, "ts is null": TS.is_null()}


@pytest.fixture
def frame(spark: Any, tmp_path: Path) -> Any:
    pq.write_table(rows(), tmp_path / "rows.parquet")
    return spark.read.parquet(str(tmp_path / "rows.parquet"))


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["write", "format"])
def test_spark_writes_and_reads_transforms(spark: Any, frame: Any, tmp_path: Path, way: str) -> None:
    """Tasks of both writers put rows where a process without Spark does. [PT5] [PT7]"""
    path, twin = str(tmp_path / "t"), str(tmp_path / "twin")
    if way == "write":
        mc.write(frame, path, partition_by=BY)
    else:
        frame.write.format("manifestcommit").mode("append").option("partitionBy", ", ".join(BY)).save(path)
    table = mc.Table(path)
    assert table.describe()["partition_by"] == BY and table.verify(deep=True).damages == 0
    mc.write(rows(), twin, partition_by=BY)
    assert _partitions(table) == _partitions(mc.Table(twin))
    for condition, expression in CONDITIONS.items():
        wanted = numbers(rows().filter(expression))
        for read in (spark.read.format("manifestcommit").load(path), mc.read_committed(path)):
            assert sorted(row.n for row in read.filter(condition).collect()) == wanted
            assert read.columns == ["n", "ts", "user", "name"]


def _partitions(table: mc.Table) -> list[str]:
    return sorted({path.rpartition("/")[0] for path in table.files().column("path").to_pylist()})


@pytest.mark.thorough
def test_a_large_change_by_tasks(spark: Any, frame: Any, path: str) -> None:
    """Spark's own finders and rewriters keep each row in its partition. [RC1] [PT6]"""
    mc.write(frame, path, partition_by=BY)
    table = mc.Table(path)
    table.delete("user = 3", spark=spark)
    table.merge(frame.filter("n < 10"), on="n", spark=spark)
    wanted = {row["n"] for row in rows().to_pylist() if row["user"] != 3} | {*range(10)}
    assert numbers(table.to_arrow()) == sorted(wanted) and table.verify(deep=True).damages == 0
