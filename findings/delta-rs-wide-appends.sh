#!/usr/bin/env bash
# delta-rs 1.6.6 (deltalake) appends to wide tables in a time that grows with the square of the columns.
#
# Guess:     Eight times the columns, of ten rows, take eight times the CPU, as the Parquet file itself does and as creating the table
#            does: only the schema and the first 32 columns' statistics are of the log.
# Behaviour: From some 2,000 columns on, twice the columns take about four times the CPU: 8,000 whole numbers take 27 to 42 times as long as
#            1,000 (6 s for 0.2 s on the machine tried), the file of the same rows by pyarrow 8 to 10 times. Creating the table, reading it
#            and a delete that finds nothing grow with the columns.
# Versions:  deltalake 1.6.6, pyarrow 25.0.0, Python 3.11; a table on a local disk
# Date:      2026-11-30
# Matters:   Feature stores and sensor tables have thousands of columns. A micro-batch of them that costs seconds in Delta costs as much
#            in every append, however few its rows: gather more rows for each append, or split the columns over tables.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'deltalake==1.6.6' 'pyarrow==25.0.0'
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake


def cpu_s(call):
    took = []
    for _ in range(3):
        began = time.process_time()
        call()
        took.append(time.process_time() - began)
    return min(took)


found = {}
for columns in (1_000, 8_000):
    rows = pa.table({f"c{number}": pa.array([number] * 10, pa.int64()) for number in range(columns)})
    place = f"wide-{columns}"
    DeltaTable.create(place, rows.schema)
    found[columns] = (
        cpu_s(lambda: write_deltalake(place, rows, mode="append")),
        cpu_s(lambda: pq.write_table(rows, "rows.parquet")),
    )
    print(f"{columns} columns: an append by deltalake {found[columns][0]:.3f} s of CPU, pyarrow's file {found[columns][1]:.3f} s")
append, file = (found[8_000][side] / found[1_000][side] for side in (0, 1))
print(f"eight times the columns: the append takes x{append:.0f}, the file x{file:.0f}")
if not (append > 16 and append > 1.5 * file):
    sys.exit("this has changed: appends no longer grow with the square of the columns")
PYTHON
