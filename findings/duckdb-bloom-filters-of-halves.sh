#!/usr/bin/env bash
# DuckDB finds no row by equality in a Parquet column of half floats that has a Bloom filter, and joins by it find none either.
#
# Guess:     A Bloom filter only spares work: whatever type a column is stored as (decimals as integers, small and unsigned numbers, instants,
#            half floats), DuckDB counts the same rows with a filter as without.
# Behaviour: It does for the others that were tried. A column of FLOAT16 is read as FLOAT, and `h = 0.5`, `h IN (0.5)`, `h IN (0.5, 3)` and
#            an inner join by h have no rows, as if the filter were asked for another form of the number than the two stored bytes. `h >= 0.5`
#            and `h + 0 = 0.5` find them. DataFusion and Polars find them by `h = 0.5`.
# Versions:  duckdb 2.0.1, pyarrow 25.0.1 (the writer), datafusion 55.0.0, polars 2.1.0
# Date:      2026-12-01
# Matters:   A Bloom filter, meant to speed up look-ups, makes them miss all rows in one engine, without an error, while its statistics and
#            row counts are right. Publish half floats without Bloom filters, or as floats.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'duckdb==2.0.1' 'pyarrow==25.0.1' 'datafusion==55.0.0' 'polars==2.1.0' 'numpy<3'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

folder = sys.argv[1]
rows = pa.table({"h": np.array([-0.5, 0.5, 3.0] * 10, dtype=np.float16)})
pq.write_table(rows, f"{folder}/plain.parquet")
pq.write_table(rows, f"{folder}/bloom.parquet", bloom_filter_options={"h": {"ndv": 3, "fpp": 0.01}})
engine = duckdb.connect()
conditions = ("h = 0.5", "h IN (0.5)", "h IN (0.5, 3)", "h >= 0.5", "h + 0 = 0.5")
found, others = {}, {}
for name in ("plain", "bloom"):
    path = f"{folder}/{name}.parquet"
    found[name] = [engine.execute(f"SELECT count(*) FROM '{path}' WHERE {each}").fetchone()[0] for each in conditions]
    join = f"SELECT count(*) FROM '{path}' JOIN (SELECT 0.5::FLOAT AS h) USING (h)"
    found[name].append(engine.execute(join).fetchone()[0])
    session = datafusion.SessionContext()
    session.register_parquet("t", path)
    by_datafusion = session.sql("SELECT count(*) AS n FROM t WHERE h = 0.5").to_pydict()["n"][0]
    others[name] = (by_datafusion, pl.scan_parquet(path).filter(pl.col("h") == 0.5).collect().height)
    print(f"{name} DuckDB:", dict(zip((*conditions, "join"), found[name])), "h = 0.5 by DataFusion, Polars:", others[name])
assert found["plain"] == [10, 10, 20, 20, 10, 10] and set(others.values()) == {(10, 10)}
assert found["bloom"] == [0, 0, 0, 20, 10, 0], "DuckDB has changed"
PYTHON
