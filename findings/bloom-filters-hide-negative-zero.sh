#!/usr/bin/env bash
# DataFusion, and with it delta-rs, finds no row of -0.0 for `f = 0.0` where the Parquet file has a Bloom filter, which DuckDB writes unasked.
#
# Guess:     A Bloom filter only spares work: DataFusion, delta-rs and DuckDB find -0.0 for `f = 0.0` with one as without one, since writers
#            hash both zeros alike or readers do not ask the filter for a zero.
# Behaviour: DataFusion takes -0.0 and 0.0 for equal, and counts 1000 rows without a filter. It counts none in the same rows by DuckDB, which
#            gives a column with a dictionary a Bloom filter by default, nor by pyarrow or delta-rs with a filter. delta-rs' delete with this
#            condition leaves all rows of such a table, and returns 0 deleted rows. DuckDB finds the rows in all of these files.
# Versions:  datafusion 55.0.0, deltalake 1.6.6, duckdb 2.0.1, pyarrow 25.0.1
# Date:      2026-12-01
# Matters:   Whether measurements of zero are found, or deleted, depends on the program that wrote the file. Statistics stay right, so that no
#            check of bounds shows it. Publishers who write no Bloom filters for floats, or no -0.0, are safe.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'datafusion==55.0.0' 'deltalake==1.6.6' 'duckdb==2.0.1' 'pyarrow==25.0.1'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import datafusion
import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

folder = sys.argv[1]
rows = pa.table({"f": [-1.0, -0.0, 1.0] * 1000})
engine = duckdb.connect()
engine.register("rows", rows)
engine.execute(f"COPY rows TO '{folder}/duckdb.parquet' (FORMAT parquet)")
pq.write_table(rows, f"{folder}/pyarrow.parquet", bloom_filter_options={"f": {"ndv": 3, "fpp": 0.01}})
pq.write_table(rows, f"{folder}/plain.parquet")
counts = {}
for name in ("plain", "duckdb", "pyarrow"):
    path = f"{folder}/{name}.parquet"
    session = datafusion.SessionContext()
    session.register_parquet("t", path)
    (filtered,) = engine.execute(f"SELECT count(bloom_filter_offset) > 0 FROM parquet_metadata('{path}')").fetchone()
    by_datafusion = session.sql("SELECT count(*) AS n FROM t WHERE f = 0.0").to_pydict()["n"][0]
    (by_duckdb,) = engine.execute(f"SELECT count(*) FROM '{path}' WHERE f = 0.0").fetchone()
    counts[name] = (filtered, by_datafusion, by_duckdb)
    print(f"{name:8} Bloom filter: {filtered!s:5} rows by DataFusion: {by_datafusion:4} by DuckDB: {by_duckdb}")

blooms = deltalake.ColumnProperties(bloom_filter_properties=deltalake.BloomFilterProperties(True))
found, deleted = {}, {}
for name, properties in {"plain": None, "bloom": deltalake.WriterProperties(default_column_properties=blooms)}.items():
    deltalake.write_deltalake(f"{folder}/{name}", rows, writer_properties=properties)
    table = deltalake.DeltaTable(f"{folder}/{name}")
    query = deltalake.QueryBuilder().register("t", table).execute("SELECT count(*) AS n FROM t WHERE f = 0.0")
    found[name] = pa.table(query.read_all())["n"][0].as_py()
    deleted[name] = table.delete("f = 0.0")["num_deleted_rows"]
    print(f"delta-rs, {name}: rows found: {found[name]:4} deleted: {deleted[name]}")
assert counts == {"plain": (False, 1000, 1000), "duckdb": (True, 0, 1000), "pyarrow": (True, 0, 1000)}, "it has changed"
assert found == deleted == {"plain": 1000, "bloom": 0}, "delta-rs has changed"
PYTHON
