"""Decimals travel from Spark as the whole numbers that it holds them as, and arrive as the decimals that they are. [SP12]"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType

import manifestcommit as mc
from manifestcommit.errors import SchemaMismatchError
from manifestcommit.spark.decimals import narrow, widen

VALUES: dict[tuple[int, int], list[str | None]] = {
    (1, 0): ["9", "-9", "0", None],
    (9, 9): ["0.999999999", "-0.999999999", None, "0.000000001"],
    (15, 2): ["9999999999999.99", None, "-9999999999999.99", "-0.01"],
    (18, 0): ["999999999999999999", "-999999999999999999", "-1", "0"],
    (18, 18): [None, None, None, None],
}


def widened(longs: pa.Array, precision: int, scale: int) -> pa.Array:
    """What becomes of the longs of one column on their way."""
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(longs))), longs], ["a.b", "d"])
    (found,) = widen([batch], {1: (precision, scale)})
    assert found.schema.names == ["a.b", "d"] and found.column(0) == batch.column(0)
    found.validate(full=True)
    return found.column(1)


@pytest.mark.parametrize("kind", VALUES)
def test_every_decimal_is_the_one_that_was_sent(kind: tuple[int, int]) -> None:
    """[SP12] The largest, the smallest, negative ones, nulls."""
    wanted = pa.array([None if value is None else Decimal(value) for value in VALUES[kind]], pa.decimal128(*kind))
    longs = pa.array([None if value is None else int(Decimal(value).scaleb(kind[1])) for value in VALUES[kind]], pa.int64())
    assert widened(longs, *kind) == wanted


def test_a_slice_of_a_batch_keeps_its_own_values_and_nulls() -> None:
    """[SP12] Neither the values nor the bits of its nulls begin where the memory does; what lies below a null is no value."""
    whole = pa.array([None if n % 3 == 0 else n - 20 for n in range(40)], pa.int64())
    for start, length in ((0, 40), (1, 9), (7, 17), (13, 0), (39, 1)):
        part = whole.slice(start, length)
        assert widened(part, 4, 1).to_pylist() == [None if n is None else Decimal(n).scaleb(-1) for n in part.to_pylist()]
    junk = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.array([5, 2**62]).buffers()[1]])
    assert widened(junk, 3, 0).to_pylist() == [Decimal(5), None]


@pytest.mark.parametrize("value", [100, -100, 2**63 - 1, -(2**63)])
def test_a_value_with_more_digits_than_its_type_is_refused(value: int) -> None:
    """[SP12] A source that lies about its type would have some of its digits cut off, or its values turned into null."""
    assert widened(pa.array([99, -99]), 2, 1).to_pylist() == [Decimal("9.9"), Decimal("-9.9")]
    with pytest.raises(SchemaMismatchError, match=r"'d' is a decimal\(2,1\)"):
        widened(pa.array([1, value]), 2, 1)


def test_spark_sends_longs_and_every_value_is_written(spark: Any, tmp_path: Path) -> None:
    """[SP12] Names with dots and quotes, a partition column, nested and wide decimals; and Spark's side is really done by longs."""
    quoted = "q`1.x y"
    data = spark.range(0, 100, 1, 2).selectExpr(
        "id",
        "cast(if(id % 7 = 0, null, (id - 50) / 100) as decimal(15,2)) as `a.b`",
        f"cast(-id as decimal(18,0)) as `{quoted.replace('`', '``')}`",
        "cast(id % 3 as decimal(5,1)) as part",
        "named_struct('d', cast(id as decimal(7,3))) as inside",
        "cast(id as decimal(38,10)) as wide",
    )
    frame, narrowed = narrow(data)
    assert narrowed == {1: (15, 2), 2: (18, 0), 3: (5, 1)}
    assert frame.columns == data.columns
    assert [type(field.dataType) is LongType for field in frame.schema.fields] == [True, True, True, True, False, False]
    root = tmp_path / "table"
    mc.write(data, str(root), partition_by=["part"])
    rows = mc.read_committed(str(root), spark=spark)
    assert rows.dtypes == data.dtypes
    assert sorted(map(str, rows.collect())) == sorted(map(str, data.collect()))
    folders = {path.parent.name for path in root.glob("part=*/*.parquet")}
    assert folders == {"part=0.0", "part=1.0", "part=2.0"}
    (file,) = root.glob("part=1.0/00000-*.parquet")
    assert pq.read_schema(file).field("a.b").type == pa.decimal128(15, 2)
