#!/usr/bin/env bash
# Daft writes rows into Iceberg partitions in which no filter looks for them: buckets of decimals, hours before 1970, prefixes of texts.
#
# Guess:     values of partitions are those of Iceberg's specification, as they are for Daft's days, months and years and for its buckets of
#            integers, texts and dates: whoever filters by a value finds the row, whichever engine wrote it.
# Behaviour: bucket of a decimal is another number wherever its unscaled value is zero, negative, or has the top bit of its first byte set
#            (1.28 is 128; 1.27 is right). hour of an instant before 1970 with a fraction is rounded to zero: the last half second of 1969 is
#            hour 0, though its day is right. truncate of a text counts bytes, where the specification counts code points. pyiceberg prunes
#            such a file when it is asked for the value, and so does Daft itself where it filters at all: a count without filter has the
#            rows, a filter by their own value has not.
# Versions:  daft 0.7.26, pyiceberg 0.12.0 (its transforms by pyiceberg-core 0.11.0), pyarrow 25.0.1
# Date:      2026-11-29
# Matters:   a table with one of these partitions that Daft appends to loses rows for every reader that prunes, and a delete or an upsert by
#            another engine passes them by. A day in place of an hour, or a bucket of a text or an integer, is right everywhere.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'daft==0.7.26' 'pyiceberg==0.12.0' 'pyiceberg-core==0.11.0' \
  'pyarrow==25.0.1' 'sqlalchemy==2.0.44'
"$folder/venv/bin/python" - "$folder" 2>"$folder/log" <<'PYTHON' || { cat "$folder/log" >&2; exit 1; }
import datetime as dt
import sys
from decimal import Decimal

import daft
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, TruncateTransform
from pyiceberg.types import DecimalType, NestedField, StringType, TimestampType

folder = sys.argv[1]
catalog = SqlCatalog("shop", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("shop")
columns = Schema(NestedField(1, "price", DecimalType(9, 2)), NestedField(2, "at", TimestampType()), NestedField(3, "item", StringType()))
prices = [Decimal(each) for each in ("0.00", "1.27", "1.28", "2.55", "12.34", "100.00", "-1.05", "-99999.99")]
instants = [dt.datetime(1969, 12, 31, 23, 59, 59, 500_000), dt.datetime(1970, 1, 1, 0, 30)] * 4
items = ["pear", "apple", "g\u00fcrtel", "quince"] * 2
rows = pa.table({"price": pa.array(prices, pa.decimal128(9, 2)), "at": pa.array(instants, pa.timestamp("us")), "item": items})
partitions = {
    "bucket": ("price", BucketTransform(16)),
    "hour": ("at", HourTransform()),
    "day": ("at", DayTransform()),
    "truncate": ("item", TruncateTransform(3)),
}

lost = {}
for name, (column, transform) in partitions.items():
    spec = PartitionSpec(PartitionField(columns.find_field(column).field_id, 1000, transform, "p"))
    made = catalog.create_table(f"shop.{name}", columns, partition_spec=spec)
    daft.from_arrow(rows).write_iceberg(made)
    table = catalog.load_table(f"shop.{name}")
    values = sorted(set(rows[column].to_pylist()))
    found = {}
    for value in values:
        text = value.isoformat() if column == "at" else value
        by_daft = daft.read_iceberg(table).where(daft.col(column) == value).count_rows()
        found[str(value)] = (table.scan(row_filter=EqualTo(column, text)).to_arrow().num_rows, by_daft)
    lost[name] = [value for value, (by_pyiceberg, by_daft) in found.items() if by_pyiceberg == 0]
    print(f"{name}: {table.scan().count()} rows; found by pyiceberg, by Daft:", found)
print("values whose rows pyiceberg does not find:", lost)
assert lost["bucket"] == ["-99999.99", "-1.05", "0.00", "1.28", "2.55"], "Daft's buckets of decimals have changed"
assert lost["hour"] == ["1969-12-31 23:59:59.500000"], "Daft's hours before 1970 have changed"
assert lost["day"] == [], "Daft's days have changed"
assert lost["truncate"] == ["g\u00fcrtel"], "Daft's prefixes of texts have changed"
PYTHON
