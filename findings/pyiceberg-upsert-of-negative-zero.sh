#!/usr/bin/env bash
# An upsert by pyiceberg drops the row with the key -0.0, or inserts it beside 0.0, depending on the rows that come with it.
#
# Guess:     0.0 and -0.0 are equal keys, as SQL has it, or are different ones; in either case the row is updated or inserted, and the
#            result of the call counts it.
# Behaviour: into a table with the key 0.0, an upsert of -0.0 alone does nothing: 0 rows updated, 0 inserted, and the table keeps its old
#            value. With two more rows in the same call the row of -0.0 is inserted, and the table has both keys. Two key columns of which
#            the other one is equal do as one does.
# Versions:  pyiceberg 0.12.0, pyarrow 26.0.1
# Date:      2026-11-30
# Matters:   a negative number that is rounded gives -0.0. The change that came last is lost without an error, or the key is there twice
#            from then on, and a run that repeats the batch in other pieces comes to another table.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' 'pyarrow==26.0.1'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
catalog.create_namespace("shop")


def rows(keys: list[float], value: int) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.float64()), "part": [1] * len(keys), "value": [value] * len(keys)})


def upserted(name: str, keys: list[float], by: list[str]) -> tuple[int, int, list[tuple[float, int]]]:
    table = catalog.create_table(f"shop.{name}", rows([], 0).schema.set(1, pa.field("part", pa.int64())).set(2, pa.field("value", pa.int64())))
    table.append(rows([0.0, 1.0], 10))
    result = table.upsert(rows(keys, 20), join_cols=by)
    found = table.refresh().scan().to_arrow().to_pylist()
    return result.rows_updated, result.rows_inserted, sorted((str(row["key"]), row["value"]) for row in found)


seen = {
    "alone": upserted("alone", [-0.0], ["key"]),
    "alone, two keys": upserted("two", [-0.0], ["key", "part"]),
    "beside others": upserted("beside", [-0.0, 1.0, 2.0], ["key"]),
}
for what, (updated, inserted, found) in seen.items():
    print(f"{what:16} updated {updated}, inserted {inserted}: {found}")
lost = (0, 0, [("0.0", 10), ("1.0", 10)])
both = (1, 2, [("-0.0", 20), ("0.0", 10), ("1.0", 20), ("2.0", 20)])
assert seen == {"alone": lost, "alone, two keys": lost, "beside others": both}, "it has changed"
PYTHON
