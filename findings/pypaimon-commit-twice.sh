#!/usr/bin/env bash
# pypaimon's stream commit takes the same messages under the same user and identifier twice, and lists their files twice.
#
# Guess:     Who did not hear whether a commit landed may hand it in again: user and identifier are what Paimon's snapshots keep to
#            recognise it, so the second call adds nothing, or fails since its files are in the table already.
# Behaviour: The second call returns as the first did, and makes a second snapshot with the same user and identifier, which lists the same
#            data file once more. Each row is read twice. The same holds for another commit object of the same builder. Only a retry inside
#            one call looks for an earlier snapshot of its own.
# Versions:  pypaimon 2.1.0, pyarrow 19.0.1; a table without primary key and without buckets, on a local disk
# Date:      2026-11-29
# Matters:   A publisher whose answer was lost, or that starts again from a checkpoint, has to look for its identifier among the snapshots
#            before it commits; the identifier alone makes nothing exactly once.
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
columns = pa.schema([("id", pa.int64()), ("item", pa.string())])
catalog.create_table("shop.orders", Schema.from_pyarrow_schema(columns), True)


def state() -> tuple[list[int], list[tuple[str, int]]]:
    table = catalog.get_table("shop.orders")
    reader = table.new_read_builder()
    ids = reader.new_read().to_arrow(reader.new_scan().plan().splits())["id"].to_pylist()
    snapshots = table.snapshot_manager()
    latest = snapshots.get_latest_snapshot()
    every = [snapshots.get_snapshot_by_id(number) for number in range(1, latest.id + 1)]
    return sorted(ids), [(each.commit_user, each.commit_identifier) for each in every]


builder = catalog.get_table("shop.orders").new_stream_write_builder()
writer, commit = builder.new_write(), builder.new_commit()
writer.write_arrow(pa.table({"id": [1, 2], "item": ["pear", "plum"]}, schema=columns))
messages = writer.prepare_commit(7)
files = [file.file_name for message in messages for file in message.new_files]

commit.commit(messages, 7)
once, first = state()
commit.commit(messages, 7)
twice, second = state()
builder.new_commit().commit(messages, 7)
thrice, third = state()

print("data files handed in:", len(files))
print("rows after the first commit: ", once)
print("rows after the second commit:", twice, "- snapshots:", len(second))
print("rows after another object's: ", thrice, "- snapshots:", len(third))
print("users and identifiers of the snapshots are equal:", len(set(third)) == 1)
assert len(files) == 1 and once == [1, 2] and len(first) == 1
assert twice == [1, 1, 2, 2] and thrice == [1, 1, 1, 2, 2, 2], "pypaimon has changed"
assert len(third) == 3 and {identifier for _, identifier in third} == {7} and len(set(third)) == 1, "pypaimon has changed"
PYTHON
