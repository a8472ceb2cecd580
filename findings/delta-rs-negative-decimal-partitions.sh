#!/usr/bin/env bash
# delta-rs neither writes a partition of a negative decimal nor reads one that another engine wrote.
#
# Guess:     a Delta table can be partitioned by any decimal, such as a price or a balance; what Daft writes by the protocol, delta-rs reads.
# Behaviour: writing -1.05 fails in the kernel, which cannot parse "-1.-5": the sign stands before the whole part and before the cents. To
#            read the table that Daft made, whose log has "-1.05", fails likewise in to_pyarrow_table, while count and delta-rs' own SQL
#            answer right. Positive values and whole negative ones, such as -7.00, work.
# Versions:  deltalake 1.6.6, daft 0.7.26, pyarrow 25.0.1
# Date:      2026-11-29
# Matters:   a table of balances is written for months and fails with the first one below zero; one made elsewhere can be opened, counted
#            and queried, and not read into Arrow, which is what pandas and Polars users call. Export such a table unpartitioned.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'deltalake==1.6.6' 'daft==0.7.26' 'pyiceberg==0.12.0' \
  'pyarrow==25.0.1'
"$folder/venv/bin/python" - "$folder" 2>"$folder/log" <<'PYTHON' || { cat "$folder/log" >&2; exit 1; }
import glob
import json
import sys
from decimal import Decimal

import daft
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

folder = sys.argv[1]


def outcome(call) -> str:
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def rows_of(path: str) -> list[Decimal]:
    return DeltaTable(path).to_pyarrow_table()["balance"].to_pylist()


def by_sql(path: str) -> list[Decimal]:
    answer = QueryBuilder().register("t", DeltaTable(path)).execute("select balance from t").read_all()
    return pa.table(answer)["balance"].to_pylist()


for number, text in enumerate(("1.05", "-7.00", "-1.05", "-0.05")):
    value = Decimal(text)
    rows = pa.table({"balance": pa.array([value], pa.decimal128(9, 2)), "account": [1]})
    own, others = f"{folder}/{number}-delta-rs", f"{folder}/{number}-daft"
    written = outcome(lambda: write_deltalake(own, rows, partition_by=["balance"]))
    daft.from_arrow(rows).write_deltalake(others, partition_cols=["balance"])
    log = [json.loads(line) for name in glob.glob(f"{others}/_delta_log/*.json") for line in open(name)]
    (logged,) = [line["add"]["partitionValues"]["balance"] for line in log if "add" in line]
    read, counted, queried = outcome(lambda: rows_of(others)), DeltaTable(others).count(), by_sql(others)
    print(f"{text}: write: {written}\n    Daft's log has {logged!r}; read: {read}; count: {counted}; SQL: {queried}")
    fails = value < 0 and value % 1 != 0
    assert logged == text and counted == 1 and queried == [value]
    assert ("Failed to parse value" in written) == fails, "delta-rs' writer has changed"
    assert ("is not a valid decimal" in read) == fails, "delta-rs' reader has changed"
PYTHON
