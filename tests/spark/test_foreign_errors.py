"""Every public call with rows of Spark, over every type of Spark at its extremes: an answer, or an error of this package. [SE3]"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.kit.schemas import foreign

import manifestcommit as mc
from manifestcommit.spark.features import has

LONG = "9223372036854775807L"
# Expressions of one type; the rows of a table, and those that are written into it.
EXTREMES: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "byte": ("-128y", "127y"),
    "short": ("-32768s", "32767s"),
    "int": ("int(-2147483648)", "2147483647"),
    "bigint": (f"-{LONG} - 1", LONG),
    "float": ("float('NaN')", "float('-Infinity')", "float('-0.0')", "float('1.4e-45')"),
    "double": ("double('NaN')", "double('Infinity')", "double('-0.0')", "double('4.9e-324')"),
    "decimal(38,0)": (f"cast('{'9' * 38}' as decimal(38,0))", f"cast('-{'9' * 38}' as decimal(38,0))"),
    "decimal(38,38)": (f"cast('0.{'9' * 38}' as decimal(38,38))", "cast(0 as decimal(38,38))"),
    "string": ("''", "'\\0'", "concat('é', char(0), '\\'\"%')", "repeat('é', 2000)"),
    "binary": ("x''", "x'00ff'", "unhex(repeat('ff', 2000))"),
    "date": ("date_add(date'1970-01-01', -2147483647)", "date_add(date'1970-01-01', 2147483647)", "date'0001-01-01'"),
    "timestamp": (f"timestamp_micros(-{LONG} - 1)", f"timestamp_micros({LONG})", "timestamp'0001-01-01 00:00:00 UTC'"),
    "timestamp_ntz": ("timestamp_ntz'0001-01-01 00:00:00'", "timestamp_ntz'294247-01-10 04:00:54.775807'"),
    "interval day to second": ("interval '106751991 04:00:54.775807' day to second", "interval '-1' second"),
    "interval year to month": ("interval '178956970-7' year to month", "interval '-1' month"),
    "void": ("null",),
    "array": ("array(float('NaN'), null)", "array()", "null"),
    "struct": ("named_struct('a', date_add(date'1970-01-01', 2147483647))", "null"),
    "map": ("map('', timestamp_micros(0), 'k', null)", "map()", "null"),
}
if has("variant"):
    EXTREMES["variant"] = ("parse_json('{\"a\": [1, null]}')", "parse_json('null')", "null")

# each is made on a table of its own, which has these rows
Call = Callable[[SparkSession, mc.Table, DataFrame], Any]
CALLS: dict[str, Call] = {
    "append": lambda spark, table, df: mc.write(df, table.url),
    "partition overwrite": lambda spark, table, df: mc.write(df, table.url, mode="overwrite", overwrite="dynamic"),
    "merge by it": lambda spark, table, df: table.merge(df.limit(1), on="k"),
    "merge by id": lambda spark, table, df: table.merge(df, on="id"),
    "clauses": lambda spark, table, df: table.merge(df, on="id", when_matched=mc.Update(), when_not_matched=mc.Insert()),
    "overwrite_where": lambda spark, table, df: table.overwrite_where(df, "id >= 0"),
    "overwrite where it": lambda spark, table, df: table.overwrite_where(df, F.col("k").isNotNull() | F.col("k").isNull()),
    "delete by column": lambda spark, table, df: table.delete((F.col("k") == F.col("k")) & (F.col("id") == 0)),
    "update by column": lambda spark, table, df: table.update({"k": F.col("k")}, where=F.col("id") == 0),
    "read": lambda spark, table, df: mc.read_committed(table.url, filter=F.col("k").isNotNull()).toArrow(),
    "read sql": lambda spark, table, df: mc.read_committed(table.url, filter="k <=> k AND id >= 0").toArrow(),
    "format": lambda spark, table, df: spark.read.format("manifestcommit").load(table.url).where("k IS NOT NULL").toArrow(),
    "sql": lambda spark, table, df: mc.sql(spark, f"SELECT k FROM manifestcommit.`{table.url}` WHERE id >= 0").count(),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", EXTREMES)
def test_no_error_of_spark_leaves_a_call(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """[SE3]"""
    values = ", ".join(f"({number}L, {value})" for number, value in enumerate(EXTREMES[kind]))
    df = spark.sql(f"SELECT col1 AS id, col2 AS k FROM VALUES {values}")
    found = {}
    for title, by in {"partitioned": ["k"], "plain": []}.items():
        if (ended := foreign(partial(mc.write, df, tmp_path / title, partition_by=by))) is not None:
            found[f"write, {title}"] = ended
    base = next((tmp_path / title for title in ("partitioned", "plain") if (tmp_path / title / "_manifest").exists()), None)
    for number, (title, call) in enumerate(CALLS.items()):
        if base is not None:
            shutil.copytree(base, tmp_path / str(number))
            table = mc.Table(tmp_path / str(number))
            if (ended := foreign(partial(call, spark, table, df))) is not None:
                found[title] = ended
    assert found == {}
