#!/usr/bin/env bash
# DuckDB's delta_scan reads lists of two levels as lists of nulls, and read_parquet reads the same file right.
#
# Guess:     Parquet's rules for lists of old writers (l.array, of Spark's legacy format and parquet-avro; a plain repeated field, of
#            protobuf and parquetjs) are part of the reader. What read_parquet reads, delta_scan reads, or it refuses the file.
# Behaviour: read_parquet gives [1, 2]; delta_scan over the same file gives [NULL, NULL], as many nulls as elements, without an error.
#            delta-rs and Polars read the Delta table right. (DuckDB's iceberg_scan does as delta_scan does.)
# Versions:  duckdb 1.5.5 with its extension delta 1.5.5, deltalake 1.6.6; the file by Spark 4 with spark.sql.parquet.writeLegacyFormat
# Date:      2026-11-28
# Matters:   CONVERT TO DELTA and add_files publish such files as they are. Lengths are right, so that a check of counts passes, and every
#            value in the lists is gone for one of the engines that read the table.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'duckdb==1.5.5' 'duckdb_extension_delta==1.5.5' 'deltalake==1.6.6' 'pyarrow==26.0.1' 'polars==2.1.0'
mkdir "$folder/table"
base64 -d > "$folder/table/x.parquet" <<'FILE'
UEFSMRUAFTwVNhWa+IuBBRwVBhUAFQYVCAAAHhwCAAAAAwcBAAkBAQ4sAAAAAAMAAAAAAAAAFQAVKhUuFdHOir4EHBUIFQAVBhUG
AAAVUAIAAAADAgMAAAADSgABAAAAAgAAABkRAhkYCAEAAAAAAAAAGRgIAwAAAAAAAAAVAhkWAAAZEQIZGAQBAAAAGRgEAgAAABUC
GRYEGSYGAhk2AgIEABkcFggVZBYAAAAZHBZsFVwWAAAAFQIZTEgMc3Bhcmtfc2NoZW1hFQQAFQQlAhgBbgA1AhgBbBUCFQZMPAAA
ABUCJQQYBWFycmF5ABYGGRwZLCYAHBUEGTUGCAAZGAFuFQIWBhZqFmQmCDwYCAMAAAAAAAAAGAgBAAAAAAAAABYAKAgDAAAAAAAA
ABgIAQAAAAAAAAAAGRwVABUAFQIAPAAAFsYCFRQWyAEVPgAmABwVAhklBgAZKAFsBWFycmF5FQIWCBZYFlwmbDwYBAIAAAAYBAEA
AAAWBCgEAgAAABgEAQAAAAAZHBUAFQAVAgA8KSYGAhk2AgIEAAAW2gIVFBaGAhVAABbCARYGJggWwAEUAAAZLBgYb3JnLmFwYWNo
ZS5zcGFyay52ZXJzaW9uGAU0LjMuMAAYKW9yZy5hcGFjaGUuc3Bhcmsuc3FsLnBhcnF1ZXQucm93Lm1ldGFkYXRhGMUBeyJ0eXBl
Ijoic3RydWN0IiwiZmllbGRzIjpbeyJuYW1lIjoibiIsInR5cGUiOiJsb25nIiwibnVsbGFibGUiOnRydWUsIm1ldGFkYXRhIjp7
fX0seyJuYW1lIjoibCIsInR5cGUiOnsidHlwZSI6ImFycmF5IiwiZWxlbWVudFR5cGUiOiJpbnRlZ2VyIiwiY29udGFpbnNOdWxs
IjpmYWxzZX0sIm51bGxhYmxlIjp0cnVlLCJtZXRhZGF0YSI6e319XX0AGEpwYXJxdWV0LW1yIHZlcnNpb24gMS4xNy4wIChidWls
ZCBmYWMwYzc0NjUzMmUxMzNiZWI5MjhhN2Y2YTdlNTdiNTEwYjQ3N2ExKRksHAAAHAAAAGsCAABQQVIx
FILE
"$folder/venv/bin/python" - "$folder/table" <<'PYTHON'
import sys
from pathlib import Path

import deltalake
import duckdb
import duckdb_extension_delta
import polars as pl
import pyarrow.parquet as pq

path = sys.argv[1]
session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
(extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
session.execute(f"LOAD '{extension}'")
deltalake.convert_to_deltalake(path)
print("stored as", [pq.ParquetFile(f"{path}/x.parquet").schema.column(at).path for at in range(2)])
seen = {
    "read_parquet": [row[0] for row in session.sql(f"SELECT l FROM read_parquet('{path}/x.parquet') ORDER BY n").fetchall()],
    "delta_scan": [row[0] for row in session.sql(f"SELECT l FROM delta_scan('{path}') ORDER BY n").fetchall()],
    "polars": pl.scan_delta(path).sort("n").collect()["l"].to_list(),
}
for name, found in seen.items():
    print(f"{name:12}", found)
right = [[1, 2], None, []]
assert seen == {"read_parquet": right, "delta_scan": [[None, None], None, []], "polars": right}, "it has changed"
PYTHON
