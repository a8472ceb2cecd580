#!/usr/bin/env bash
# Daft takes -0.0 for a number below 0.0, and for one that does not equal it, in filters, groups and joins.
#
# Guess:     as in SQL, Spark, DuckDB and Arrow's own compute functions, -0.0 equals 0.0: `f = 0` finds both, `f < 0` neither, a group and a
#            join take them for one key.
# Behaviour: `f = 0` and `f >= 0` leave -0.0 out, `f < 0` and `f <> 0` find it, a group by f has two groups, and a join of -0.0 with 0.0 has
#            no row: from memory, from Parquet and from a Delta table alike. So it is the order of values, not statistics that prune.
# Versions:  daft 0.7.26, deltalake 1.6.6, pyarrow 25.0.1
# Date:      2026-11-28
# Matters:   a table whose measurements were rounded or negated holds -0.0; the same condition counts other rows here than in the engine that
#            wrote the table, and an upsert by such a key inserts the row twice.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'daft==0.7.26' 'deltalake==1.6.6' 'pyarrow==25.0.1'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import daft
import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

folder = sys.argv[1]
rows = pa.table({"f": [-0.0, 0.0, 1.0]})
pq.write_table(rows, f"{folder}/rows.parquet")
deltalake.write_deltalake(f"{folder}/delta", rows)
sources = {
    "memory": lambda: daft.from_arrow(rows),
    "Parquet": lambda: daft.read_parquet(f"{folder}/rows.parquet"),
    "Delta": lambda: daft.read_deltalake(f"{folder}/delta"),
}
conditions = ("f = 0", "f < 0", "f >= 0", "f <> 0")
found = {}
for name, source in sources.items():
    found[name] = [source().where(condition).count_rows() for condition in conditions]
    print(f"{name:8}", dict(zip(conditions, found[name])))
arrow = [pc.sum(each).as_py() for each in (pc.equal(rows["f"], 0), pc.less(rows["f"], 0), pc.greater_equal(rows["f"], 0), pc.not_equal(rows["f"], 0))]
groups = daft.from_arrow(rows).groupby("f").agg(daft.col("f").count().alias("n")).count_rows()
joined = daft.from_arrow(rows.slice(0, 1)).join(daft.from_arrow(rows.slice(1, 1)), on="f").count_rows()
print("Arrow   ", arrow, "; groups of Daft:", groups, "; rows of a join of -0.0 with 0.0:", joined)
assert arrow == [2, 0, 3, 1]
assert set(map(tuple, found.values())) == {(1, 1, 2, 2)} and groups == 3 and joined == 0, "it has changed"
PYTHON
