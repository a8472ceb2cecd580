"""Frames and attempts of Spark that several tests ask about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manifestcommit as mc
from manifestcommit.files.writer import WritePlan
from manifestcommit.format.fields import Field, Schema, StructType, from_spark
from manifestcommit.format.values import arrow_schema, footer_metadata

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


NAN, INF = math.nan, math.inf
MOMENT = datetime(2024, 2, 29, 12, 30, 0, 1)
OLD = datetime(1, 1, 1)
D = Decimal
SCHEMA = Schema(
    fields=(
        Field(id=1, name="i", type="integer"), Field(id=2, name="l", type="long"), Field(id=3, name="f", type="float"),
        Field(id=4, name="d", type="double"), Field(id=5, name="s", type="string"), Field(id=6, name="digits", type="string"),
        Field(id=7, name="b", type="binary"), Field(id=8, name="m", type="decimal(10,2)"), Field(id=9, name="day", type="date"),
        Field(id=10, name="ts", type="timestamp"), Field(id=11, name="ntz", type="timestamp_ntz"), Field(id=12, name="ok", type="boolean"),
        Field(id=13, name="gap", type="interval day to second"), Field(id=18, name="row", type="long"),
        Field(id=14, name="c", type="string", metadata={"__COLLATIONS": {"c": "spark.UTF8_LCASE"}}),
        Field(
            id=15, name="a.b`c", type=StructType(fields=(Field(id=16, name="x", type="integer"), Field(id=17, name="y z.", type="double")))
        ),
    )
)  # fmt: skip
ARROW = arrow_schema(SCHEMA, physical=False, ids=False)
COLUMNS: dict[str, list[Any]] = {
    "i": [0, 1, 5, -(2**24), 2**24 - 1], "l": [0, 1, 5, 2**24 - 1, -(2**24)], "f": [0.0, -0.0, 1.5, NAN, INF, -INF, 0.10000000149011612],
    "d": [0.0, -0.0, 1.5, NAN, INF, -INF, 0.1, 0.10000000149011612],
    "s": ["", "a", "ab", "A", "a\U0010ffff", "é", "\ud7ff", "%_\\", "\x00"], "digits": ["5", "05", " 5", "50", "-5"],
    "b": [b"", b"a", b"\xff", b"\x00a"], "m": [D("0.00"), D("1.50"), D("5.00"), D("-99999999.99")],
    "day": [date(2024, 2, 29), date(2024, 3, 1), date(1, 1, 1), date(9999, 12, 31)],
    "ts": [m.replace(tzinfo=UTC) for m in (MOMENT, datetime(2024, 2, 29), datetime(2024, 2, 28, 18, 15), OLD)],
    "ntz": [MOMENT, datetime(2024, 2, 29), OLD], "ok": [True, False],
    "gap": [timedelta(0), timedelta(days=-1, microseconds=1), timedelta(days=400)], "c": ["a", "A", "b"],
    "a.b`c": [{"x": 1, "y z.": NAN}, {"x": None, "y z.": 1.5}, {"x": 5, "y z.": None}],
}  # fmt: skip
ROWS = [{name: ([*values, None] * 9)[at] for name, values in COLUMNS.items()} for at in range(10)]
NUMBERED = pa.table({**{name: [row[name] for row in ROWS] for name in COLUMNS}, "row": range(len(ROWS))}, schema=ARROW)


@pytest.fixture(scope="module")
def frame(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The rows as Spark reads them from one of our files, numbered."""
    path: Path = tmp_path_factory.mktemp("columns") / "rows.parquet"
    pq.write_table(NUMBERED.replace_schema_metadata(footer_metadata(SCHEMA)), path)
    return spark.read.parquet(str(path)).cache()


def matches(frame: DataFrame, columns: Sequence[Column]) -> list[set[int]]:
    """Per Column the rows for which Spark finds it true."""
    asked = [column.alias(f"q{at}") for at, column in enumerate(columns)]
    found: list[set[int]] = [set() for _ in columns]
    for row in frame.select("row", *asked).collect():
        for at in range(len(columns)):
            if row[f"q{at}"] is True:
                found[at].add(row["row"])
    return found


def data_files(path: str, task: int | None = None) -> set[str]:
    """Data files that are on the disk, listed or not; those of one task if it is named."""
    files = [file for file in Path(path).rglob("*.parquet") if "_manifest" not in file.parts]
    return {str(f.relative_to(path)) for f in files if task is None or f.name.startswith(f"{task:05d}-")}


def listed_files(path: str) -> set[str]:
    return set(mc.Table(path).files().column("path").to_pylist())


def attempts(paths: set[str], task: int) -> set[str]:
    names = [path.rpartition("/")[2] for path in paths]
    return {name.split("-")[1] for name in names if name.startswith(f"{task:05d}-")}


JOB = "v1-0123456789abcdef-00112233445566778899aabbccddeeff"


def plan_for(df: Any, root: str, **changes: Any) -> WritePlan:
    ids = iter(range(1, 1000))
    schema = from_spark(df.schema.jsonValue(), lambda: next(ids))
    names = changes.pop("partition_by", ())
    by_name = {field.name: field.id for field in schema.fields}
    return WritePlan(url=f"file://{root}", job=JOB, schema=schema, partition_by=tuple(by_name[name] for name in names), **changes)
