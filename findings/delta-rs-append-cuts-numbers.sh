#!/usr/bin/env bash
# An append by delta-rs cuts the fractions of numbers off, and refuses decimals whose fractions it would have to cut.
#
# Guess:     an append whose columns have other types is cast where every value stays what it is, and is refused with the name of the
#            column otherwise, as it is for a decimal with more places and as Spark's store assignment does.
# Behaviour: 1.5 in a double becomes 1 in a column of type long, 2^53 + 1 in a long becomes 2^53 in a double column, and nanoseconds are
#            cut to microseconds, all without an error or a warning. A decimal of three places for a column of two is refused, and so is a
#            number that does not fit at all.
# Versions:  deltalake 1.6.6, pyarrow 26.0.1
# Date:      2026-11-30
# Matters:   a column that is whole in one file of a source and has fractions in the next (an integer with nulls by way of pandas becomes
#            double) is published with other values, and a count of rows and of nulls says that all went well.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'deltalake==1.6.6' 'pyarrow==26.0.1'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

CASES: dict[str, tuple[pa.DataType, pa.DataType, Any]] = {
    "double to long": (pa.int64(), pa.float64(), 1.5),
    "long to double": (pa.float64(), pa.int64(), 2**53 + 1),
    "nanoseconds": (pa.timestamp("us"), pa.timestamp("ns"), 1_704_067_200_000_000_999),
    "decimal": (pa.decimal128(5, 2), pa.decimal128(6, 3), Decimal("1.239")),
    "too large": (pa.int32(), pa.int64(), 2**40),
}


def appended(path: str, column: pa.DataType, given: pa.DataType, value: Any) -> Any:
    write_deltalake(path, pa.table({"x": pa.array([None], column)}))
    try:
        write_deltalake(path, pa.table({"x": pa.array([value], given)}), mode="append")
    except Exception as error:
        return type(error).__name__
    return next(each for each in DeltaTable(path).to_pyarrow_table().column("x").to_pylist() if each is not None)


seen = {what: appended(f"{sys.argv[1]}/{what}", *case) for what, case in CASES.items()}
for what, value in seen.items():
    print(f"{what:15} {CASES[what][2]!s:20} became {value}")
assert seen["double to long"] == 1 and seen["long to double"] == 2.0**53 and seen["nanoseconds"].microsecond == 0, "it has changed"
assert isinstance(seen["decimal"], str) and isinstance(seen["too large"], str), "it has changed"
PYTHON
