"""DuckDB and Polars read the files of `writer="jvm"` as the dataset does. [RD42] [SP13]"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.write.test_jvm_writer import COLUMNS, PARTS, everything

import manifestcommit as mc

FLOATS = ("b c", "inside", "pairs")


@pytest.mark.thorough
@pytest.mark.parametrize("floats", [False, True])
def test_engines_show_the_rows_of_the_dataset(spark: Any, tmp_path: Path, floats: bool) -> None:
    """[RD42] [DF10] Hostile partitions and every type, before and after columns change, beside files of the usual writer. Files with
    statistics of floats have no digest: they go through the dataset."""
    from tests.api.test_engine_readers import check_duckdb, check_polars

    path = str(tmp_path / "it's ü %20+=#")
    data = everything(spark)
    data = data if floats else data.drop(*FLOATS)
    mc.write(data, path, partition_by=["part"], writer="jvm")
    table = mc.Table(path)
    assert table.to_arrow().num_rows == 56 and len(COLUMNS) == 12 and len(PARTS) == 14
    own = table.files().column("digest").null_count == 0

    def check() -> None:
        plans = check_duckdb(table).upper(), check_polars(table)
        assert ("READ_PARQUET" in plans[0], "Parquet SCAN" in plans[1]) == (own or table.snapshot().version > 2,) * 2

    check()
    table.rename_column("price", "the 'price'")
    table.rename_column("part", "PART")
    table.drop_column("ntz")
    mc.write(pa.table({"id": [1000], "PART": ["é漢"], "ntz": [7]}), path, merge_schema=True)
    check()
    assert table.duckdb().filter("id = 1000").project("ntz").fetchall() == [(7,)]
