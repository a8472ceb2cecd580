"""Decimals from Spark's JVM to its Python processes as the whole numbers that Spark holds them as. [SP12]

Spark gives Arrow each decimal by way of a BigDecimal, one object and several loops for every value, which costs more than all else on that
way. Up to 18 digits it holds a decimal as a long, though; so that long travels, and the task makes a decimal of it again, without looking
at single values. Not here: what else becomes of a batch (core.conform), where they go (writer).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.sql.types import DecimalType

from ..errors import SchemaMismatchError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Narrowed = Mapping[int, tuple[int, int]]  # position of a column -> precision and scale of the decimals that its longs stand for
_LONG_DIGITS = 18


def narrow(df: DataFrame) -> tuple[DataFrame, dict[int, tuple[int, int]]]:
    """The same rows, the columns of decimals that fit a long as longs, and which these are; as it is where Spark offers no way. [SP12]

    By Spark's own expression for it, which its optimizer puts into sums; it has no public name, and Connect sessions none at all.
    """
    found = {
        at: (field.dataType.precision, field.dataType.scale)
        for at, field in enumerate(df.schema.fields)
        if isinstance(field.dataType, DecimalType) and field.dataType.precision <= _LONG_DIGITS
    }
    if not found or not hasattr(df.sparkSession, "_jvm"):
        return df, {}
    try:
        from pyspark.sql.classic.column import Column

        jvm: Any = df.sparkSession._jvm
        sql = jvm.org.apache.spark.sql
        numbered = df.toDF(*(f"c{at}" for at in range(len(df.columns))))  # Spark takes a dot in a column's name for a member's
        columns = []
        for at, name in enumerate(df.columns):
            column = numbered[f"c{at}"]
            if at in found:
                long = sql.catalyst.expressions.UnscaledValue(sql.classic.ExpressionUtils.expression(column._jc))
                column = Column(sql.classic.ExpressionUtils.column(long))
            columns.append(column.alias(name))
        return numbered.select(*columns), found
    except (Py4JError, AttributeError, ImportError, TypeError):  # another release of Spark
        return df, {}


def widen(batches: Iterable[pa.RecordBatch], narrowed: Narrowed) -> Iterator[pa.RecordBatch]:
    """The batches with decimals where `narrow` put longs. [SP12]"""
    for batch in batches:
        for at, (precision, scale) in narrowed.items():
            name = batch.schema.field(at).name
            batch = batch.set_column(at, name, _decimals(batch.column(at), precision, scale, name))
        yield batch


def _decimals(longs: pa.Array, precision: int, scale: int, name: str) -> pa.Array:
    """The decimals of these unscaled values; SchemaMismatchError for one that has more digits than its type. [SP12]"""
    ends = pc.min_max(longs)
    largest = max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0))
    if largest >= 10**precision:
        raise SchemaMismatchError(
            f"Column {name!r} is a decimal({precision},{scale}) and holds {largest} units of its last place, which has more digits. "
            "Nothing was committed; cast the column to a type that holds its values."
        )
    values = np.frombuffer(longs.buffers()[1], np.int64, len(longs), longs.offset * 8) if len(longs) else np.empty(0, np.int64)
    words = np.empty((len(longs), 2), "<i8")  # 128 bits, the lower half first
    words[:, 0] = values
    np.right_shift(values, 63, out=words[:, 1])  # the sign, in every bit of the upper half
    valid = pa.array(longs.is_valid()).buffers()[1] if longs.null_count else None
    return pa.Array.from_buffers(pa.decimal128(precision, scale), len(longs), [valid, pa.py_buffer(words)], longs.null_count)
