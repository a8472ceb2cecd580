#!/usr/bin/env bash
# Two overwrites by delta-rs that began at one empty version of a table are both committed, and the table holds the rows of both.
#
# Guess:     The second of two overwrites that began at one version is refused, also where the table was empty; one that began before another
#            writer's append landed is refused, or takes the appended rows away too.
# Behaviour: The second is refused only where the table had a file, which both remove. On an empty table both are committed, and no order of
#            the two gives the rows of both. An overwrite beside an append keeps the appended rows as if it had come first, with
#            `delta.isolationLevel` Serializable as well, for which the order of the log counts. With `predicate="id >= 0"`, which is true of
#            all rows, the overwrite is refused in both cases.
# Versions:  deltalake 1.6.6, pyarrow 25.0.1; on a local disk
# Date:      2026-12-01
# Matters:   A job that replaces a table, started twice for its first run or after the table was emptied, publishes every row twice, without an
#            error. A condition that is true of every row brings the check back.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'deltalake==1.6.6' 'pyarrow==25.0.1'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

folder = sys.argv[1]
columns = pa.schema([("id", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=columns)


def race(name: str, before: list[int], mode: str, predicate: str | None = None, isolation: str | None = None) -> tuple[bool, list[int]]:
    path = f"{folder}/{name}"
    settings = {"delta.isolationLevel": isolation} if isolation else None
    deltalake.DeltaTable.create(path, schema=deltalake.Schema.from_arrow(columns), configuration=settings)
    if before:
        deltalake.write_deltalake(path, rows(*before), mode="append")
    first, second = deltalake.DeltaTable(path), deltalake.DeltaTable(path)
    deltalake.write_deltalake(first, rows(1), mode=mode)
    try:
        deltalake.write_deltalake(second, rows(2), mode="overwrite", predicate=predicate)
        committed = True
    except CommitFailedError:
        committed = False
    ids = sorted(pa.table(deltalake.DeltaTable(path).to_pyarrow_table())["id"].to_pylist())
    print(f"{name:32} overwrite with 2 committed: {committed!s:5} ids: {ids}")
    return committed, ids


append = race("append, overwrite", [0], "append")
strict = race("the same, Serializable", [0], "append", isolation="Serializable")
condition = race("the same, with id >= 0", [0], "append", predicate="id >= 0")
empty = race("two overwrites, empty before", [], "overwrite")
guarded = race("the same two, with id >= 0", [], "overwrite", predicate="id >= 0")
filled = race("two overwrites, one file before", [0], "overwrite")
assert condition == (False, [0, 1]) and filled == guarded == (False, [1])
assert append == strict == empty == (True, [1, 2]), "delta-rs has changed"
PYTHON
