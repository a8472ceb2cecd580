#!/usr/bin/env bash
# DuckLake skips a file for `x <> 1` though it knows that the file holds NaN.
#
# Guess:     DuckLake records contains_nan beside a file's least and greatest value, since these leave NaN out, and DuckDB orders NaN above
#            all numbers. So a file with NaN is skipped for no condition that NaN fulfils.
# Behaviour: `x > 5` finds the row with NaN. `x <> 1` and `NOT x = 1` find nothing in a file of [1, NaN], where the same file read by
#            read_parquet, or a table in memory, gives one row; DELETE ... WHERE x <> 1 deletes nothing. `x IS DISTINCT FROM 1`,
#            `x NOT BETWEEN 1 AND 1` and `x <> 1 OR x IS NULL` find it.
# Versions:  duckdb 1.5.5 with its extension ducklake 1.5.5; the file is DuckDB's own
# Date:      2026-11-30
# Matters:   a clean-up deletes "all that is not 1" and leaves rows; a copy by two conditions, x = 1 and x <> 1, loses them. The flag in the
#            catalog is right, so that neither the writer nor a check of the metadata shows it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'duckdb==1.5.5' 'duckdb_extension_ducklake==1.5.5'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
from pathlib import Path

import duckdb
import duckdb_extension_ducklake

folder = sys.argv[1]
session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
(extension,) = Path(duckdb_extension_ducklake.__file__).parent.rglob("*.duckdb_extension")
session.execute(f"LOAD '{extension}'")
session.execute(f"ATTACH 'ducklake:{folder}/lake.ducklake' AS lake (DATA_PATH '{folder}/data', DATA_INLINING_ROW_LIMIT 0)")
session.execute("CREATE TABLE lake.readings (x DOUBLE)")
session.execute("INSERT INTO lake.readings VALUES (1), ('nan')")
stats = "SELECT min_value, max_value, contains_nan FROM __ducklake_metadata_lake.ducklake_file_column_stats"
print("the catalog says ", session.sql(stats).fetchall())
(file,) = Path(folder, "data").rglob("*.parquet")
sides = {"lake": "lake.readings", "file": f"read_parquet('{file}')"}
conditions = ("x > 5", "x <> 1", "NOT x = 1", "x IS DISTINCT FROM 1", "x <> 1 OR x IS NULL")
seen = {
    condition: {side: session.sql(f"SELECT count(*) FROM {of} WHERE {condition}").fetchall()[0][0] for side, of in sides.items()}
    for condition in conditions
}
for condition, counts in seen.items():
    print(f"{condition:21}", counts)
session.execute("DELETE FROM lake.readings WHERE x <> 1")
left = session.sql("SELECT count(*) FROM lake.readings").fetchall()[0][0]
print("after the delete ", left, "rows")
lost = {condition for condition, counts in seen.items() if counts != {"lake": 1, "file": 1}}
assert lost == {"x <> 1", "NOT x = 1"} and left == 2, "it has changed"
PYTHON
