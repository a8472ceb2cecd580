#!/usr/bin/env bash
# Lance's merge_insert adds rows with a null key to a table without an index on the key, and drops them once the key has an index.
#
# Guess:     An index makes a merge faster and changes nothing of its result. A null equals nothing, so a row whose key is null is inserted.
# Behaviour: Without an index such a row is inserted. With a B-tree or a bitmap on the key column it is neither inserted nor counted nor
#            refused: num_inserted_rows is one less, and the row is nowhere. Zone maps and bloom filters, which only prune, change nothing.
#            The same holds for "insert what is not there" without updates, and in a table that has no null itself.
# Versions:  pylance 14.0.2, pyarrow 19.0.1; a table on a local disk
# Date:      2026-11-29
# Matters:   Somebody adds an index to make readers faster, and a writer that has worked for a year loses rows from then on. Whoever publishes
#            by upserts must count what was inserted and updated against what was given, or refuse null keys before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pylance==14.0.2' 'pyarrow==19.0.1'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import lance
import pyarrow as pa

COLUMNS = pa.schema([("id", pa.int64()), ("item", pa.string())])
SOURCE = pa.table({"id": [None, 1, 7], "item": ["no key", "changed", "new"]}, COLUMNS)
found = {}
for index in (None, "BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"):
    place = f"{sys.argv[1]}/{index}"
    table = lance.write_dataset(pa.table({"id": [1, 2], "item": ["old", "stays"]}, COLUMNS), place)
    if index is not None:
        table.create_scalar_index("id", index)
    merge = lance.dataset(place).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    counted = merge.execute(SOURCE)
    rows = sorted(lance.dataset(place).to_table()["item"].to_pylist())
    found[index] = (counted["num_inserted_rows"], rows)
    print(f"index {index}: {counted['num_inserted_rows']} inserted, {counted['num_updated_rows']} updated, then {rows}")
whole, short = (2, ["changed", "new", "no key", "stays"]), (1, ["changed", "new", "stays"])
expected = {None: whole, "BTREE": short, "BITMAP": short, "ZONEMAP": whole, "BLOOMFILTER": whole}
sys.exit(0 if found == expected else f"that has changed: {found}")
PYTHON
