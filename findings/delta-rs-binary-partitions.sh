#!/usr/bin/env bash
# delta-rs escapes binary partition values as Delta's protocol says, and takes the escapes for the value when it reads them.
#
# Guess:     binary values of partitions, which the log has as texts of escapes, come back as the bytes that were written, as texts, dates and
#            floats do; a filter, a merge and a compaction see these bytes.
# Behaviour: b"a" is written as \u0061 and read as the six bytes of that text, by to_pyarrow_table and by SQL. A filter for the value
#            finds nothing, a merge by it inserts the row that it should update, and a compaction escapes the escapes, so that the value of
#            the rows changes once more. Nothing raises or warns.
# Versions:  deltalake 1.6.6, pyarrow 25.0.1
# Date:      2026-11-29
# Matters:   a table that is partitioned by a digest or a binary id cannot be kept by delta-rs, and what other writers of Delta made by the
#            protocol is read wrong. Partition by a text of it, in hex.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'deltalake==1.6.6' 'pyarrow==25.0.1'
"$folder/venv/bin/python" - "$folder/table" <<'PYTHON'
import glob
import json
import sys

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

path = sys.argv[1]
columns = pa.schema([("id", pa.binary()), ("amount", pa.int64())])


def sql(text: str) -> list[dict]:
    return pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(text).read_all()).to_pylist()


def ids() -> list[bytes]:
    read = sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist())
    assert read == sorted(row["id"] for row in sql("select id from t"))
    return read


write_deltalake(path, pa.table({"id": [b"a", b"\x00\xff"], "amount": [1, 2]}, schema=columns), partition_by=["id"])
lines = [json.loads(line) for name in glob.glob(f"{path}/_delta_log/*.json") for line in open(name)]
written = sorted(line["add"]["partitionValues"]["id"] for line in lines if "add" in line)
read = ids()
found = sql("select count(*) as n from t where id = X'61'")[0]["n"]
print("in the log:", written, "- read:", read, "- rows where id is the byte 61:", found)
assert written == ["\\u0000\\u00FF", "\\u0061"]
assert read == [b"\\u0000\\u00FF", b"\\u0061"] and found == 0, "delta-rs has changed"

source = pa.table({"id": [b"a"], "amount": [9]}, schema=columns)
merge = DeltaTable(path).merge(source, "s.id = t.id", source_alias="s", target_alias="t")
done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
print("a merge by the id: updated", done["num_target_rows_updated"], "- inserted", done["num_target_rows_inserted"])
assert (done["num_target_rows_updated"], done["num_target_rows_inserted"]) == (0, 1), "delta-rs has changed"

DeltaTable(path).optimize.compact()
after = ids()
print("read after a compaction:", after)
assert after == [b"\\u0000\\u00FF"] + [b"\\u005C\\u0075\\u0030\\u0030\\u0036\\u0031"] * 2, "delta-rs has changed"
PYTHON
