#!/usr/bin/env bash
# pyarrow's datasets lose the rows of NaN in a file that holds one number and NaN, even for is_nan().
#
# Guess:     a Parquet footer's min and max leave NaN out, as the format demands, so a reader must not conclude from min = max = 1.0 that
#            each value is 1.0. `is_nan(x)` and `x != 1` on a dataset of [1.0, NaN] find 1 row, as on the table that was read before.
# Behaviour: the dataset finds 0 rows for both, and for not (x == 1); is_nan alone is folded to false by the row group's bounds.
#            Filtering after reading finds 1 row. No error, no warning.
# Versions:  pyarrow 26.0.1
# Date:      2026-11-28
# Matters:   DuckDB, Polars and pandas are commonly given a table as a pyarrow dataset; a job that deletes or counts NaN through it sees none
#            of them, and a copy made with a filter and its negation lacks rows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyarrow==26.0.1'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

path = f"{sys.argv[1]}/x.parquet"
rows = pa.table({"x": [1.0, float("nan")]})
pq.write_table(rows, path)
x = pc.field("x")
conditions = {"is_nan(x)": pc.is_nan(x), "x != 1": x != 1, "not (x == 1)": ~(x == 1), "x == 1": x == 1}
seen = {}
for text, condition in conditions.items():
    seen[text] = (ds.dataset(path).to_table(filter=condition).num_rows, rows.filter(condition).num_rows)
    print(f"{text:14} {seen[text][0]} of the dataset's rows, {seen[text][1]} of the table's")
assert seen == {"is_nan(x)": (0, 1), "x != 1": (0, 1), "not (x == 1)": (0, 1), "x == 1": (1, 1)}, "it has changed"
PYTHON
