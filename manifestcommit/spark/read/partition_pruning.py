"""Lets Spark's own scan prune partitions: it reads the values from the folders' names, and what it
has read is compared with the entries before a row is. [RD43]
"""

from __future__ import annotations

import json
import uuid
from datetime import date
from typing import TYPE_CHECKING

from manifestcommit.core.schema.wire import WireValue
from manifestcommit.engine.scan.partition_folders import PartitionFolders
from manifestcommit.spark.runtime.spark_internals import file_index, jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark reads partitions from paths only without this option.
PRUNING_OPTIONS = {"recursiveFileLookup": "false"}
_EPOCH = date(1970, 1, 1).toordinal()


def spark_agrees(df: DataFrame, base: str, folders: PartitionFolders) -> bool:
    """Whether the DataFrame's file index has exactly these partition columns, folders and values.
    [RD43]

    base: the table path in Hadoop's form. Only the index's text is compared: 2,000 partitions take
    one call of the JVM instead of 10,000.
    """
    spec = file_index(df).partitionSpec()
    fields = json.loads(spec.partitionColumns().json())["fields"]
    if [(field["name"], field["type"]) for field in fields] != list(folders.columns):
        return False
    types = [type for _, type in folders.columns]
    root = jvm(df.sparkSession).org.apache.hadoop.fs.Path(base).toString()
    between = uuid.uuid4().hex  # in no value
    found = spec.partitions().mkString(between).split(between)
    expected = {
        f"PartitionPath([{','.join(map(_text, values, types))}],{root}/{name})"
        for name, values in folders.values.items()
    }
    return len(found) == len(expected) and set(found) == expected


def _text(value: WireValue, type: str) -> str:
    """The value as a row of Spark shows it."""
    if type == "date" and isinstance(value, str):
        return str(date.fromisoformat(value).toordinal() - _EPOCH)
    return "null" if value is None else str(value)
