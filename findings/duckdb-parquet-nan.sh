#!/usr/bin/env bash
# DuckDB gives other answers for a Parquet file of pyarrow or Polars that holds NaN than for the table that it loads from that file.
#
# Guess:     DuckDB orders NaN above all numbers, and a footer's min and max leave NaN out. So DuckDB uses no maximum of a float column to
#            prune or to answer max(): a file and a table of its rows give the same.
# Behaviour: of a file of [1.0, NaN] by pyarrow max(x) is 1.0, of the table NaN; `WHERE x > 5` and `x <> 1` find 0 rows in the file, 1 in
#            the table. In one and the same file, `count(*) FILTER (x > 5)` and `x IS DISTINCT FROM 1` find it. Files that DuckDB wrote are
#            right: its own writer leaves bounds out where there is NaN. Files of Polars lose the rows as well.
# Versions:  duckdb 1.5.5; files by pyarrow 26.0.1, polars 2.1.0 and duckdb 1.5.5
# Date:      2026-11-28
# Matters:   the answer depends on who wrote the file of a table; an incremental load that takes what is above the last maximum never sees
#            the rows of NaN, and a compaction by DuckDB changes what queries return.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'duckdb==1.5.5' 'pyarrow==26.0.1' 'polars==2.1.0'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

values = [1.0, float("nan")]
duckdb.sql("CREATE TABLE rows AS SELECT unnest([1.0::DOUBLE, 'nan'::DOUBLE]) AS x")
paths = {name: f"{sys.argv[1]}/{name}.parquet" for name in ("pyarrow", "polars", "duckdb")}
pq.write_table(pa.table({"x": values}), paths["pyarrow"])
pl.DataFrame({"x": values}).write_parquet(paths["polars"])
duckdb.sql(f"COPY rows TO '{paths['duckdb']}' (FORMAT parquet)")
queries = {
    "max": "SELECT max(x)::TEXT FROM {}",
    "x > 5": "SELECT count(*) FROM {} WHERE x > 5",
    "x <> 1": "SELECT count(*) FROM {} WHERE x <> 1",
    "FILTER (x > 5)": "SELECT count(*) FILTER (x > 5) FROM {}",
    "IS DISTINCT FROM 1": "SELECT count(*) FROM {} WHERE x IS DISTINCT FROM 1",
}
seen = {}
sources = {"table": "rows"} | {name: f"'{path}'" for name, path in paths.items()}
for name, source in sources.items():
    seen[name] = {what: duckdb.sql(query.format(source)).fetchone()[0] for what, query in queries.items()}
    print(f"{name:8}", seen[name])
right = {"max": "nan", "x > 5": 1, "x <> 1": 1, "FILTER (x > 5)": 1, "IS DISTINCT FROM 1": 1}
lost = right | {"x > 5": 0, "x <> 1": 0}
assert seen == {"table": right, "pyarrow": lost | {"max": "1.0"}, "polars": lost, "duckdb": right}, "it has changed"
PYTHON
