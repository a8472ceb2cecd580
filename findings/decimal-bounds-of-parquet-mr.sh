#!/usr/bin/env bash
# pyarrow and DuckDB leave out rows of decimals that Spark 2 wrote; Polars finds them.
#
# Guess:     parquet-mr before 1.10 compared decimals of fixed length as signed bytes, and wrote the result into the deprecated members min
#            and max. The format says that readers must ignore these for such columns, as they do for texts: `value = 1.00` finds its row.
# Behaviour: the footer says [2.00, 24.00] for 1.00 to 24.00. pyarrow shows these as valid bounds, and its dataset finds 0 rows; DuckDB finds
#            0 rows, while its min(value) over the same file is 1.00. Polars finds 1 row.
# Versions:  pyarrow 26.0.1, duckdb 1.5.5, polars 2.1.0; the file by parquet-mr 1.8.2 (fixed_length_decimal.parquet of Apache's
#            parquet-testing, Apache License 2.0)
# Date:      2026-11-28
# Matters:   folders that Spark 2 wrote are published as tables of today without rewriting; a filter by an amount then drops rows, in some
#            engines only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyarrow==26.0.1' 'duckdb==1.5.5' 'polars==2.1.0'
base64 -d > "$folder/d.parquet" <<'FILE'
UEFSMRUAFZwEFZwELBUwFQAVBhUIHBgLAAAAAAAAAAAACWAYCwAAAAAAAAAAAADIFgAAAAACAAAAMAEAAAAAAAAAAAAAZAAAAAAA
AAAAAADIAAAAAAAAAAAAASwAAAAAAAAAAAABkAAAAAAAAAAAAAH0AAAAAAAAAAAAAlgAAAAAAAAAAAACvAAAAAAAAAAAAAMgAAAA
AAAAAAAAA4QAAAAAAAAAAAAD6AAAAAAAAAAAAARMAAAAAAAAAAAABLAAAAAAAAAAAAAFFAAAAAAAAAAAAAV4AAAAAAAAAAAABdwA
AAAAAAAAAAAGQAAAAAAAAAAAAAakAAAAAAAAAAAABwgAAAAAAAAAAAAHbAAAAAAAAAAAAAfQAAAAAAAAAAAACDQAAAAAAAAAAAAI
mAAAAAAAAAAAAAj8AAAAAAAAAAAACWAVAhksSAxzcGFya19zY2hlbWEVAgAVDhUWFQIYBXZhbHVlJQoVBBUyABYwGRwZHCYIHBUO
GTUIBgAZGAV2YWx1ZRUAFjAW/gQW/gQmCDwYCwAAAAAAAAAAAAlgGAsAAAAAAAAAAAAAyBYAABkcFQAVABUCAAAAFv4EFjAAGRwY
KW9yZy5hcGFjaGUuc3Bhcmsuc3FsLnBhcnF1ZXQucm93Lm1ldGFkYXRhGGJ7InR5cGUiOiJzdHJ1Y3QiLCJmaWVsZHMiOlt7Im5h
bWUiOiJ2YWx1ZSIsInR5cGUiOiJkZWNpbWFsKDI1LDIpIiwibnVsbGFibGUiOnRydWUsIm1ldGFkYXRhIjp7fX1dfQAYSXBhcnF1
ZXQtbXIgdmVyc2lvbiAxLjguMiAoYnVpbGQgYzY1MjI3ODg2MjllNTkwYTUzZWI3OTg3NGI5NWY2YzNmZjExZjE2YykAWgEAAFBB
UjE=
FILE
"$folder/venv/bin/python" - "$folder/d.parquet" <<'PYTHON'
import decimal
import sys

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

path = sys.argv[1]
bounds = pq.read_metadata(path).row_group(0).column(0).statistics
values = pq.read_table(path)["value"]
print("written by", pq.read_metadata(path).created_by.split(" (")[0])
print(f"values {values[0]} to {values[-1]}, bounds as pyarrow shows them {bounds.min} to {bounds.max}")
one = pa.scalar(decimal.Decimal("1.00"), values.type)
seen = {
    "pyarrow": ds.dataset(path).to_table(filter=pc.field("value") == one).num_rows,
    "duckdb": duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE value = 1").fetchone()[0],
    "duckdb's min": str(duckdb.sql(f"SELECT min(value) FROM '{path}'").fetchone()[0]),
    "polars": pl.scan_parquet(path).filter(pl.col("value") == 1).collect().height,
}
print("rows with value = 1.00:", seen)
assert (str(bounds.min), str(values[0])) == ("2.00", "1.00"), "it has changed"
assert seen == {"pyarrow": 0, "duckdb": 0, "duckdb's min": "1.00", "polars": 1}, "it has changed"
PYTHON
