"""What differs between versions of Spark, in one place: which version has a feature, and the
classes and signatures that have moved. [SP45]
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
import pyspark

from ..errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

# What has moved.
__all__ = ["DataSource", "DataSourceArrowWriter", "DataSourceReader", "DataSourceStreamReader"]
__all__ += ["DataSourceStreamArrowWriter", "InputPartition", "WriterCommitMessage"]
__all__ += ["ReadAllAvailable", "ReadLimit", "ReadMaxFiles", "SupportsTriggerAvailableNow"]

Version = tuple[int, int]
Name = Literal[
    "library", "row changes", "recoverable", "format", "discovery", "limit", "queries", "variant"
]
OLDEST: Version = (3, 5)


class Feature(NamedTuple):
    """One thing that not every supported Spark can do. what: as users name it; since: the first
    version; instead: the way round; connect: the first with which Spark Connect sessions have it,
    too, None: none yet."""

    what: str
    since: Version
    instead: str = ""
    connect: Version | None = OLDEST


FEATURES: dict[Name, Feature] = {
    "library": Feature("`mc.write`, `mc.read_committed`, also in `foreachBatch`", OLDEST),
    "row changes": Feature("`delete`, `merge`, `compact` with Spark's tasks", OLDEST),
    "recoverable": Feature(
        "`recoverable=True`", (4, 0), "leave it out: a rerun computes all tasks", connect=None
    ),
    "format": Feature(
        '`format("manifestcommit")`, for batches and for streams as sink and source',
        (4, 0),
        "use mc.write, in foreachBatch with a key, and mc.read_committed",
    ),
    "limit": Feature(
        '`option("maxFilesPerTrigger", …)` of a stream that reads a table',
        (4, 2),
        "leave it out: a batch takes all files that are there",
    ),
    "discovery": Feature(
        '`format("manifestcommit")` without `mc.register(spark)`',
        (4, 1),
        "call mc.register(spark) once for each session",
    ),
    "queries": Feature(
        "queries of tables by `mc.sql`", OLDEST, "use spark.sql over the names of mc.attach", (4, 0)
    ),
    "variant": Feature(
        "columns of the type variant", (4, 0), "keep the JSON text in a column of the type string"
    ),
}
# From which version of pandas on Spark's tasks receive Arrow batches.
_PANDAS = (((4, 1), (2, 2)), ((4, 0), (2, 0)), (OLDEST, (1, 0)))


def version_of(text: str) -> Version:
    """The first two numbers of a version."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(text)
    return int(found[1]), int(found[2])


SPARK = version_of(pyspark.__version__)
# Types that this Spark's own scan of Parquet refuses, so that tasks read them.
UNREAD_TYPES = frozenset(("void", "variant") if SPARK < (4, 1) else ())
# Patterns of plans with Python in them, besides those that all versions have.
_SINCE = (("EVAL_PYTHON_UDTF", (4, 1)), ("TRANSPILED_PYTHON_UDF", (4, 3)))
NEWER_PATTERNS = tuple(name for name, since in _SINCE if since <= SPARK)


def has(name: Name) -> bool:
    """Whether this Spark has the feature."""
    return FEATURES[name].since <= SPARK


def is_connect(spark: Any) -> bool:
    """Whether the session (or DataFrame, or Column) uses Spark Connect, without a JVM here."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def check_feature(name: Name, spark: Any = None) -> None:
    """UsageError if this Spark lacks the feature: which has it, and what to do. spark: the session,
    or a DataFrame of it, where it makes a difference whether that is one of Connect. [SP45]"""
    feature, place = FEATURES[name], "Spark"
    since: Version | None = feature.since
    if spark is not None and is_connect(spark):
        since, place = feature.connect, "Spark Connect"
    what = feature.what.replace("`", "")
    if since is None:
        raise UsageError(
            f"{what} is not available in Spark Connect sessions; nothing was done. Use a classic "
            f"session, or {feature.instead}."
        )
    if since > SPARK:
        raise UsageError(
            f"{what} needs {place} {_shown(since)} or newer, and this is Spark "
            f"{pyspark.__version__}; nothing was done. Use a newer one, or {feature.instead}."
        )


def has_pandas() -> bool:
    """Whether the pandas is there that Spark's mapInArrow asks for."""
    try:
        import pandas
    except ImportError:
        return False
    return version_of(pandas.__version__) >= _oldest_pandas()


def check_pandas(what: str) -> None:
    """UsageError if Spark's tasks cannot receive Arrow batches; nothing has been done then. what:
    the feature that needs them."""
    if not has_pandas():
        shown = _shown(_oldest_pandas())
        raise UsageError(
            f"{what} Spark's mapInArrow, which needs pandas {shown} or newer; nothing was done: "
            f"pip install 'pandas>={shown},<3'"
        )


def _oldest_pandas() -> Version:
    return next(pandas for spark, pandas in _PANDAS if spark <= SPARK)


def _shown(version: Version) -> str:
    return ".".join(map(str, version))


# --- What has moved -------------------------------------------------------------------------------

if TYPE_CHECKING or SPARK >= (4, 0):
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
        WriterCommitMessage,
    )
else:

    class DataSource:
        """In place of Spark's own: what our sources use of it."""

        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

    class _Missing: ...

    DataSourceArrowWriter = DataSourceReader = DataSourceStreamReader = _Missing
    InputPartition = WriterCommitMessage = _Missing


if TYPE_CHECKING or SPARK >= (4, 1):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
elif SPARK >= (4, 0):
    from pyspark.sql.datasource import DataSourceStreamWriter

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Spark 4.0 gives Arrow batches to every writer of this second kind, also to a stream's."""

else:
    DataSourceStreamArrowWriter = _Missing


if TYPE_CHECKING or SPARK >= (4, 2):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit: ...

    class ReadAllAvailable(ReadLimit): ...

    class ReadMaxFiles(ReadLimit): ...

    class SupportsTriggerAvailableNow: ...


def arrow_schema_of(struct: StructType) -> pa.Schema:
    """The Arrow schema in which Spark takes rows of these columns from tasks."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if SPARK >= (4, 2):
        return to_arrow_schema(struct, timezone="UTC")
    return to_arrow_schema(struct)  # in UTC always


def sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that a task was given, in buffers that pyarrow can measure. Before 4.2 Spark leaves
    out the offsets of lists and maps inside others that are empty: pyarrow's `nbytes` crashes."""
    if SPARK >= (4, 2) or not any(map(pa.types.is_nested, batch.schema.types)):
        return batch
    every, is_nested = pa.array(range(batch.num_rows), pa.int64()), pa.types.is_nested
    columns = [each.take(every) if is_nested(each.type) else each for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def frame_of(spark: SparkSession, table: pa.Table, struct: StructType | None = None) -> Any:
    """A small DataFrame of an Arrow table. struct: its columns; by default the table's."""
    if SPARK >= (4, 0):
        return spark.createDataFrame(table, *([] if struct is None else [struct]))
    from pyspark.sql.pandas.types import from_arrow_schema

    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return spark.createDataFrame(rows, struct or from_arrow_schema(table.schema))
