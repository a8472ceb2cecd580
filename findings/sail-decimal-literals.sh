#!/usr/bin/env bash
# Sail compares a DOUBLE column with a literal such as 2.5 as decimals of 15 digits after the point: it fails, or finds other rows.
#
# Guess:     `f > 2.5` on a DOUBLE column compares doubles: 2.5 is a decimal literal in Spark's SQL, and Spark makes a double of it.
# Behaviour: the column is cast to decimal(30,15) instead. Infinities and numbers from 1e15 on end the query with a cast error; numbers that are
#            nearer to each other than 1e-15 become equal: `f > 0.0` does not find 1e-20. `f > 2` and `f > 2.5D` are right. typeof says double
#            for 1.0D + 2.5 and decimal(30,15) for coalesce(1.0D, 2.5), which is a double in Spark.
# Versions:  pysail 0.7.2, pyspark-client 4.2.0, pyarrow 26.0.1
# Date:      2026-11-28
# Matters:   Sail is offered in Spark's place: the same filter on the same table fails or loses rows, depending on values that no schema
#            shows. A publisher who tests with tidy numbers does not see it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pysail==0.7.2' 'pyspark-client==4.2.0' 'pyarrow==26.0.1' 'pandas==2.3.3'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

server = SparkConnectServer()
server.start(background=True)
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()


def rows(values, condition):
    path = f"{sys.argv[1]}/rows.parquet"
    pq.write_table(pa.table({"f": values}), path)
    try:
        said = spark.read.parquet(path).where(condition).toArrow()["f"].to_pylist()
    except Exception as error:
        said = "error" if "Cannot cast to Decimal128" in str(error) else f"another error: {error}"
    print(f"{values!s:20} {condition:10} {said}")
    return said


seen = [
    rows([1.0, 3.0], "f > 2.5"),
    rows([1.0, float("inf")], "f > 2.5"),
    rows([1.0, float("inf")], "f > 2.5D"),
    rows([1.0, 1e300], "f > 2.5"),
    rows([0.0, 1e-20], "f > 0.0"),
    rows([0.0, 1e-20], "f > 0.0D"),
    rows([0.0, 1e-20], "f > 0"),
]
kinds = spark.sql("SELECT typeof(1.0D + 2.5) AS x, typeof(coalesce(1.0D, 2.5)) AS y").toArrow().to_pylist()[0]
print(kinds)
as_seen = [[3.0], "error", [float("inf")], "error", [], [1e-20], [1e-20]] == seen and kinds == {"x": "double", "y": "decimal(30,15)"}
print("as described" if as_seen else "it has changed")
sys.stdout.flush()
os._exit(not as_seen)  # the server's threads go on
PYTHON
