"""Constraints where Spark makes rows: in tasks, in streams, in merges and by SQL. [CK2]"""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import manifestcommit as mc

COLUMNS = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("day", pa.string())])


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = f"file://{tmp_path}/t"
    mc.create_table(made, COLUMNS, partition_by="day", constraints={"positive": "amount > 0 OR day = 'free'"})
    mc.write(pa.table({"id": [1, 2], "amount": [1.0, 2.0], "day": ["a", "b"]}, schema=COLUMNS), made)
    return made


def amounts(path: str) -> list[float]:
    return sorted(mc.Table(path).to_arrow().column("amount").to_pylist())


@pytest.mark.thorough
def test_tasks_refuse_rows_that_violate_a_constraint(spark: SparkSession, path: str) -> None:
    """[CK2] [SP6]"""
    good = spark.sql("SELECT id + 10 AS id, double(id + 1) AS amount, 'c' AS day FROM range(4)")
    mc.write(good, path)
    why = r"violate.* the constraint 'positive'.*such as amount = (-1|0)\.0, day = 'c'"
    with pytest.raises(mc.errors.ConstraintError, match=why) as said:
        mc.write(good.selectExpr("id", "amount - 2 AS amount", "day"), path)
    assert said.value.constraint == "positive" and said.value.violations in (1, 2)  # of one task
    mc.write(good.selectExpr("id", "amount - 2 AS amount", "'free' AS day"), path)
    assert amounts(path) == [-1.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 4.0]


def test_the_commit_reads_nothing_of_what_tasks_checked(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[CK2]"""
    monkeypatch.setattr("manifestcommit.gate.rows.scan", None)  # to read a file is an error
    mc.write(spark.sql("SELECT 7L AS id, 5D AS amount, 'c' AS day"), path)
    assert len(amounts(path)) == 3


def test_statements_and_merges_are_held_to_it(spark: SparkSession, path: str) -> None:
    """[CK2] [SP48]"""
    mc.attach(spark, {"orders": path})
    for statement in (
        "INSERT INTO orders VALUES (9, -1.0, 'a')",
        "UPDATE orders SET amount = amount - 5 WHERE id = 1",
        "MERGE INTO orders t USING (SELECT 1L AS id, -3D AS amount, 'a' AS day) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
    ):
        with pytest.raises(mc.errors.ConstraintError, match="positive"):
            mc.sql(spark, statement)
    with pytest.raises(mc.errors.ConstraintError):  # all of its rows come into the table, which is known only then
        mc.Table(path).merge(spark.sql("SELECT 9L AS id, -3D AS amount, 'a' AS day"), on="id", when_matched=None, spark=spark)
    assert amounts(path) == [1.0, 2.0]


def test_constraints_are_added_and_dropped_by_statements(spark: SparkSession, path: str) -> None:
    """[CK3] [SP48]"""
    mc.attach(spark, {"orders": path})
    mc.sql(spark, "ALTER TABLE orders ADD CONSTRAINT known CHECK ((id) IN (1, 2) OR (id) > 5)")
    assert mc.Table(path).constraints()["known"] == "(id) IN (1, 2) OR (id) > 5"
    with pytest.raises(mc.errors.ConstraintError):
        mc.sql(spark, "ALTER TABLE orders ADD CONSTRAINT most CHECK (amount < 2)")
    mc.sql(spark, "ALTER TABLE orders DROP CONSTRAINT known")
    assert list(mc.Table(path).constraints()) == ["positive"]


@pytest.mark.thorough
def test_a_staged_job_is_read_by_spark(spark: SparkSession, path: str) -> None:
    """[CK5]"""
    staged = mc.write(spark.sql("SELECT 7L AS id, 5D AS amount, 'c' AS day"), path, publish=False)
    assert sorted(row.id for row in staged.read(spark).collect()) == [1, 2, 7] and len(amounts(path)) == 2
    assert staged.publish().committed and len(amounts(path)) == 3


@pytest.mark.thorough
def test_a_transaction_reads_a_part_and_its_own_rows_by_spark(spark: SparkSession, path: str, tmp_path: Path) -> None:
    """[MT16] [MT17]"""
    with mc.transaction({"t": path, "other": mc.create_table(tmp_path / "other", COLUMNS)}) as tx:
        tx["t"].write(spark.sql("SELECT 7L AS id, 5D AS amount, 'c' AS day"))
        for own, part, found in ((False, None, 2), (True, None, 3), (True, "day <> 'a'", 2)):
            assert tx.read("t", own=own, filter=part).read(spark=spark).count() == found
