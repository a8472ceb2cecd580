#!/usr/bin/env bash
# ClickHouse 26.9 (chdb) finds no rows of older files by a column whose name belonged to another column when they were written.
#
# Guess:     Columns of Iceberg are found by their ids: renaming a column and giving its old name to a new one changes what is shown and
#            what is found alike, as the specification says and as a read without a condition shows.
# Behaviour: SELECT * is right: the new column is null in the older file. With a condition on it, the older file's statistics of the column
#            that had the name are asked instead: IS NULL finds none of the rows that SELECT * shows as null, and after two columns have
#            swapped names an equal finds nothing. Conditions on the renamed column itself are right. The setting
#            input_format_parquet_filter_push_down = 0 mends the first, not the second.
# Versions:  chdb 4.4.0 (ClickHouse 26.9.2.1), pyiceberg 0.12.0, pyarrow 19.0.1; tables on a local disk
# Date:      2026-11-29
# Matters:   Whoever renames a column and adds one under the old name, or drops one and adds it again, must not let ClickHouse filter on it
#            before the older files have been rewritten (compacted) under the new columns.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'chdb==4.4.0' 'pyiceberg[sql-sqlite]==0.12.0' 'pyarrow==19.0.1'
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import os
import sys

import chdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

place = os.getcwd()
catalog = SqlCatalog("shop", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
catalog.create_namespace("shop")

again = catalog.create_table("shop.again", pa.schema([("id", pa.int64()), ("price", pa.int64())]))
again.append(pa.table({"id": [1, 2], "price": [10, 20]}))
with again.update_schema() as change:
    change.rename_column("price", "old_price")
with again.update_schema() as change:
    change.add_column("price", LongType())
again.append(pa.table({"id": [3], "old_price": [30], "price": [7]}))

swapped = catalog.create_table("shop.swapped", pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())]))
swapped.append(pa.table({"id": [1], "a": ["first"], "b": ["second"]}))
for old, new in (("a", "held"), ("b", "a"), ("held", "b")):
    with swapped.update_schema() as change:
        change.rename_column(old, new)


def rows(table: str, condition: str) -> list[list[object]]:
    text = str(chdb.query(f"SELECT * FROM icebergLocal('{place}/shop/{table}') WHERE {condition} ORDER BY id", "JSONCompactEachRow"))
    return [json.loads(line) for line in text.splitlines()]


found = {}
for table, condition in (
    ("again", "1"),
    ("again", "price IS NULL"),
    ("again", "price = 7"),
    ("again", "old_price > 15"),
    ("swapped", "1"),
    ("swapped", "a = 'second'"),
):
    found[table, condition] = rows(table, condition)
    print(f"{table} WHERE {condition}: {found[table, condition]}")
expected = [
    [[1, 10, None], [2, 20, None], [3, 30, 7]],
    [],
    [[3, 30, 7]],
    [[2, 20, None], [3, 30, 7]],
    [[1, "first", "second"]],
    [],
]
sys.exit(0 if [*found.values()] == expected else f"that has changed: {found}")
PYTHON
