#!/usr/bin/env bash
# Two upserts of one new key that began at the same version are both committed by pyiceberg and by Lance: the key is there twice.
#
# Guess:     Each read that the key is not there. The second commit conflicts with the first, or is repeated against it and becomes an update,
#            as both libraries do for two updates of one row: a key is there once.
# Behaviour: Both repeat the second commit by themselves after the lost race, without looking for the key again, and it is inserted once more.
#            pyiceberg prints "Commit failed due to a concurrent update, retrying"; Lance says nothing, and has the row twice with and
#            without an index on the key. delta-rs ends the second merge with an error.
# Versions:  pyiceberg 0.12.0 (its catalog in SQLite), pylance 14.0.2, deltalake 1.6.6, pyarrow 19.0.1
# Date:      2026-11-29
# Matters:   The retry of a job whose first attempt is still running is exactly this case: idempotent by key is what one thinks an upsert is.
#            Such jobs need a key of their own, or one writer; a check for repeated keys belongs behind them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' 'pylance==14.0.2' 'deltalake==1.6.6' 'pyarrow==19.0.1'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import lance
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyiceberg.catalog.sql import SqlCatalog

place = sys.argv[1]
COLUMNS = pa.schema([("id", pa.int64()), ("item", pa.string())])
BASE, NEW = pa.table({"id": [1], "item": ["old"]}, COLUMNS), pa.table({"id": [2], "item": ["new"]}, COLUMNS)

catalog = SqlCatalog("shop", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
catalog.create_namespace("shop")
catalog.create_table("shop.orders", COLUMNS).append(BASE)
for each in [catalog.load_table("shop.orders"), catalog.load_table("shop.orders")]:
    each.upsert(NEW, join_cols=["id"])
ids = {"pyiceberg": catalog.load_table("shop.orders").scan().to_arrow()["id"].to_pylist()}

for name in ("lance", "lance with an index"):
    table = lance.write_dataset(BASE, f"{place}/{name}")
    if name != "lance":
        table.create_scalar_index("id", "BTREE")
    for each in [lance.dataset(f"{place}/{name}"), lance.dataset(f"{place}/{name}")]:
        each.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(NEW)
    ids[name] = lance.dataset(f"{place}/{name}").to_table()["id"].to_pylist()

write_deltalake(f"{place}/delta", BASE)
first, second = DeltaTable(f"{place}/delta"), DeltaTable(f"{place}/delta")
refused = []
for each in (first, second):
    merge = each.merge(NEW, "t.id = s.id", source_alias="s", target_alias="t").when_matched_update_all().when_not_matched_insert_all()
    try:
        merge.execute()
    except CommitFailedError as error:
        refused.append(type(error).__name__)
ids["delta-rs"] = DeltaTable(f"{place}/delta").to_pyarrow_table()["id"].to_pylist()

found = {name: sorted(each) for name, each in ids.items()}
print(found, "refused by delta-rs:", refused)
expected = {"pyiceberg": [1, 2, 2], "lance": [1, 2, 2], "lance with an index": [1, 2, 2], "delta-rs": [1, 2]}
sys.exit(0 if (found, len(refused)) == (expected, 1) else f"that has changed: {found}")
PYTHON
