"""Changed rows with Spark's tasks, at once and as a stream. [CH1] [CH2] [CH7]"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.kit.change_tables import check, new_table, overwrite, rows

import manifestcommit as mc
from manifestcommit import register


def told(rows: list[Any]) -> Counter[str]:
    return Counter(repr(row.asDict(recursive=True)) for row in rows)


def busy_table(tmp_path: Path) -> mc.Table:
    """An append, a rewrite, a deletion of whole files, a compaction and a rollback."""
    table = new_table(tmp_path)
    mc.write(rows(1, 2, 2, 3, None), table.url)
    mc.write(rows(6, 7, 11), table.url)
    table.update({"dec": "dec + 1"}, "id = 2 OR id = 7")
    table.delete("id = 3")
    table.compact()
    overwrite(table, rows(1, 12))
    table.rollback(4, reason="by mistake")
    table.rename_column("x", "Der Wert, %")
    return table


@pytest.mark.thorough
def test_a_data_frame_has_the_rows_that_arrow_has(spark, tmp_path: Path) -> None:
    """With all types, whose values Spark shows as those of the table. [CH1] [CH2] [CH4]"""
    table = busy_table(tmp_path)
    expected = check(table, 1, table.version, "id")
    found = table.changed_rows(1, on="id", spark=spark)
    assert found.columns == table.changed_rows(1).schema.names
    chosen = ["id", "day", "dec", "tags", "_change_type", "_commit_version"]
    of_spark = Counter(repr(tuple(row)) for row in found.select(*chosen).collect())
    assert of_spark == Counter(repr(tuple(row[name] for name in chosen)) for row in expected)
    of_nested = Counter(map(repr, (row.m for row in found.select("m").collect())))
    assert of_nested == Counter(repr(row["m"] if row["m"] is None else dict(row["m"])) for row in expected)
    assert table.changed_rows(table.version, spark=spark).count() == 0


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("format")
def test_a_stream_of_changes_gives_each_change_once_and_a_repeated_batch_the_same_rows(spark, tmp_path: Path) -> None:
    """[CH7]"""
    register(spark)
    table = busy_table(tmp_path)
    found: dict[int, Counter[str]] = {}

    def run(checkpoint: str, **options: Any) -> list[tuple[int, Counter[str]]]:
        batches: list[tuple[int, Counter[str]]] = []
        stream = spark.readStream.format("manifestcommit").options(onOverwrite="changes", on="ID", startingVersion=2, **options)
        writer = stream.load(table.url).writeStream.foreachBatch(lambda df, number: batches.append((number, told(df.collect()))))
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return batches

    found = dict(run("c"))
    expected = told(table.changed_rows(1, on="id", spark=spark).collect())
    assert sum(found.values(), Counter()) == expected
    for path in (tmp_path / "c" / "commits").iterdir():  # planned, and not known to be done
        path.unlink()
    assert dict(run("c"))[0] == found[0]
    table.delete("id = 6")
    (later,) = [batch for _, batch in run("c") if batch]
    assert sum(later.values()) == 1 and "'_change_type': 'delete'" in next(iter(later))
