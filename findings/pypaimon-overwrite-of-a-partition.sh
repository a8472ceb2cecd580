#!/usr/bin/env bash
# pypaimon's overwrite of a named partition leaves that partition alone, and deletes the partitions that the rows belong to.
#
# Guess:     overwrite({"day": "mon"}) replaces the rows of that partition: with rows of another day it is refused, and with no rows it
#            empties the partition.
# Behaviour: The name is not looked at. Rows of another day take the place of that other day's rows, which are gone, and the named day keeps
#            its own. With no rows at all nothing is deleted and no error is raised. Only with the table's option
#            dynamic-partition-overwrite = false does the name count: then rows of another day are refused.
# Versions:  pypaimon 2.1.0, pyarrow 19.0.1; a table without primary key and without buckets, on a local disk
# Date:      2026-11-29
# Matters:   A backfill that names the day which it replaces, and computes a row of the day after by a wrong time zone, deletes a whole day
#            that it never named. A day that has no rows any more cannot be emptied so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pypaimon==2.1.0' 'pyarrow==19.0.1'
"$folder/venv/bin/python" - "$folder/warehouse" <<'PYTHON'
import sys

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

catalog = CatalogFactory.create({"warehouse": sys.argv[1]})
catalog.create_database("shop", True)
COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.string())])


def result(name: str, ids: list[int], days: list[str], options: dict[str, str]) -> list[tuple[int, str]] | str:
    catalog.create_table(f"shop.{name}", Schema.from_pyarrow_schema(COLUMNS, partition_keys=["day"], options=options), False)
    table = catalog.get_table(f"shop.{name}")
    for builder, rows in (
        (table.new_batch_write_builder(), pa.table({"id": [1, 2], "day": ["mon", "tue"]}, COLUMNS)),
        (table.new_batch_write_builder().overwrite({"day": "mon"}), pa.table({"id": ids, "day": days}, COLUMNS)),
    ):
        writer, committer = builder.new_write(), builder.new_commit()
        writer.write_arrow(rows)
        try:
            committer.commit(writer.prepare_commit())
        except (ValueError, RuntimeError) as error:
            return f"refused by {type(error).__name__}"
        finally:
            writer.close()
            committer.close()
    reader = catalog.get_table(f"shop.{name}").new_read_builder()
    rows = reader.new_read().to_arrow(reader.new_scan().plan().splits())
    return sorted(zip(rows["id"].to_pylist(), rows["day"].to_pylist(), strict=True))


static = {"dynamic-partition-overwrite": "false"}
found = {
    "a row of another day": result("other", [9], ["tue"], {}),
    "no rows": result("none", [], [], {}),
    "a row of the day": result("same", [9], ["mon"], {}),
    "a row of another day, static": result("other_static", [9], ["tue"], static),
}
for name, rows in found.items():
    print(f"overwrite of mon with {name}: {rows}")
first = [(1, "mon"), (2, "tue")]
expected = [[(1, "mon"), (9, "tue")], first, [(2, "tue"), (9, "mon")], "refused by RuntimeError"]
sys.exit(0 if [*found.values()] == expected else f"that has changed: {found}")
PYTHON
