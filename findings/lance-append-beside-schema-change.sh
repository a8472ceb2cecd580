#!/usr/bin/env bash
# A Lance append that began before another writer changed a column's type is committed, and its rows read as null there.
#
# Guess:     The append began at version 1 with the table's columns. Another writer changes the type of a column, or drops one, as version 2.
#            Handing in the append is then a conflict, as it is for Delta and Iceberg, since its files have other columns than the table.
# Behaviour: It is committed without a word as version 3. Where the type was changed (int64 to int32), the rows are there and their value
#            of that column is null: 5 was written, nothing is read. Where the column was dropped, the values are gone with it. Where it was
#            renamed, they are read under the new name. Only drop and add is a conflict. An append that opens the table after the change is
#            refused for a column too many.
# Versions:  pylance 14.0.2, pyarrow 19.0.1; a table on a local disk
# Date:      2026-11-29
# Matters:   Jobs run for hours while somebody widens or narrows a column. A key that reads as null is a lost row to all that join on it,
#            and no count of rows shows it.
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
changes = {
    "type": lambda table: table.alter_columns({"path": "id", "data_type": pa.int32()}),
    "drop": lambda table: table.drop_columns(["item"]),
    "rename": lambda table: table.alter_columns({"path": "item", "name": "article"}),
}
found = {}
for name, change in changes.items():
    place = f"{sys.argv[1]}/{name}"
    table = lance.write_dataset(pa.table({"id": [1], "item": ["a"]}, COLUMNS), place)
    began = lance.dataset(place)
    change(table)
    lance.write_dataset(pa.table({"id": [5], "item": ["b"]}, COLUMNS), began, mode="append")
    now = lance.dataset(place)
    found[name] = now.to_table().to_pylist()
    print(f"{name}: version {now.version}, {found[name]}")
expected = {
    "type": [{"id": 1, "item": "a"}, {"id": None, "item": "b"}],
    "drop": [{"id": 1}, {"id": 5}],
    "rename": [{"id": 1, "article": "a"}, {"id": 5, "article": "b"}],
}
sys.exit(0 if found == expected else f"that has changed: {found}")
PYTHON
