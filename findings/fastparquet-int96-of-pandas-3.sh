#!/usr/bin/env bash
# fastparquet writes the timestamps of pandas 3 as INT96 a thousand times too small.
#
# Guess:     times="int96" writes the instants of the frame, whatever the unit of its column is; pandas 3 has microseconds by default.
# Behaviour: 2020-01-01 01:02:03 becomes 1970-01-19 06:17:20.523 in the file: the number of microseconds is taken for nanoseconds. Only
#            datetime64[ns], the default of pandas 2, is right. pyarrow and fastparquet itself read the wrong instant back; times="int64",
#            the default, writes the right one.
# Versions:  fastparquet 2026.9.0, pandas 3.1.1, pyarrow 26.0.1
# Date:      2026-11-28
# Matters:   INT96 is chosen for old readers (Hive, Impala, Spark 2). With the same code, an upgrade of pandas puts a whole feed into 1970,
#            and partitions or watermarks that follow the time go wrong with it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'fastparquet==2026.9.0' 'pandas==3.1.1' 'pyarrow==26.0.1'
"$folder/venv/bin/python" - "$folder/x.parquet" <<'PYTHON'
import sys

import fastparquet
import pandas as pd
import pyarrow.parquet as pq

path = sys.argv[1]
frame = pd.DataFrame({"t": pd.to_datetime(["2020-01-01 01:02:03"])})
print("pandas has", frame["t"].dtype, frame["t"][0])
seen = {}
for unit in ("ns", "us"):
    for times in ("int96", "int64"):
        fastparquet.write(path, frame.astype({"t": f"datetime64[{unit}]"}), times=times)
        read = pq.read_table(path, coerce_int96_timestamp_unit="us")["t"].cast("timestamp[us]")[0].as_py()
        assert read == fastparquet.ParquetFile(path).to_pandas()["t"][0].to_pydatetime().replace(tzinfo=None)
        seen[unit, times] = str(read)
        print(f"{unit:2} as {times}: {read}")
assert str(frame["t"].dtype) == "datetime64[us]", "it has changed"
right, wrong = "2020-01-01 01:02:03", "1970-01-19 06:17:20.523000"
expected = {(unit, times): wrong if (unit, times) == ("us", "int96") else right for unit, times in seen}
assert seen == expected, "it has changed"
PYTHON
