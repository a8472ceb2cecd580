"""Rows at the extremes of what a filter compares, the conditions on them, and the tables that hold them."""

import contextlib
import datetime as dt
import io
import math
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.kit.footers import changed, parquet_bytes

import manifestcommit as mc
from manifestcommit.store import open_store

NAN, INF = math.nan, math.inf
LONG = "a" * 5000
EARLY = dt.datetime(2, 1, 1, tzinfo=dt.UTC)
FIRST, LAST = dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
MOST = Decimal("9" * 36 + ".99")
OLD = b"parquet-mr version 1.8.2 (build c6522788629e590a53eb79874b95f6c3ff11f16c)"
_WIDE = Context(prec=38)
_FLOATS = [1.0, NAN, -0.0, 0.0, INF, -INF, None, 7.5]  # two in a row group: 1.0 and NaN share one
_DECIMALS = ["1.00", "400.00", "-1.00", "0.01", MOST, MOST.copy_negate(), None, "5.00"]
ROWS = pa.table(
    {
        "n": pa.array(range(8), pa.int64()),
        "x": pa.array(_FLOATS, pa.float64()),
        "f": pa.array(_FLOATS, pa.float32()),
        "s": pa.array([{"y": value} for value in _FLOATS], pa.struct([("y", pa.float64())])),
        "t": [LONG, LONG + "b", "", "ü", "z", "a", None, "\U0010ffff"],
        "d": pa.array([None if each is None else Decimal(each) for each in _DECIMALS], pa.decimal128(38, 2)),
        "moment": pa.array([FIRST, LAST, FIRST, LAST, FIRST, LAST, None, LAST], pa.timestamp("us", "UTC")),
    }
)


class Case(NamedTuple):
    """sql: for every reader of SQL; arrow, frame: the same for pyarrow and Polars; found: the values of `n`."""

    sql: str
    arrow: pc.Expression
    frame: pl.Expr
    found: set[int]


def _of(name: str, *path: str) -> tuple[str, pc.Expression, pl.Expr]:
    frame = pl.col(name)
    for each in path:
        frame = frame.struct.field(each)
    return ".".join((name, *path)), pc.field(name, *path) if path else pc.field(name), frame


def _of_floats() -> list[Case]:
    cases = []
    for sql, arrow, frame in (_of("x"), _of("f"), _of("s", "y")):
        cases += [
            Case(f"{sql} > 5", arrow > 5, frame > 5, {1, 4, 7}),
            Case(f"{sql} >= 7.5", arrow >= 7.5, frame >= 7.5, {1, 4, 7}),
            Case(f"{sql} != 1", arrow != 1, frame != 1, {1, 2, 3, 4, 5, 7}),
            Case(f"NOT ({sql} <= 1)", ~(arrow <= 1), ~(frame <= 1), {1, 4, 7}),
            Case(f"{sql} < 1", arrow < 1, frame < 1, {2, 3, 5}),
            Case(f"{sql} = 0", arrow == 0, frame == 0, {2, 3}),
            Case(f"{sql} < 0", arrow < 0, frame < 0, {5}),
            Case(f"isnan({sql})", pc.is_nan(arrow), frame.is_nan(), {1}),
            Case(f"isnan({sql})", arrow == NAN, frame == NAN, {1}),
            Case(f"NOT isnan({sql}) AND {sql} IS NOT NULL", arrow < NAN, frame < NAN, {0, 2, 3, 4, 5, 7}),
            Case(f"{sql} IS NULL", arrow.is_null(), frame.is_null(), {6}),
            Case(f"{sql} > 5 AND n < 4", (arrow > 5) & (pc.field("n") < 4), (frame > 5) & (pl.col("n") < 4), {1}),
            Case(f"{sql} > 5 OR n = 0", (arrow > 5) | (pc.field("n") == 0), (frame > 5) | (pl.col("n") == 0), {0, 1, 4, 7}),
        ]
    return cases


CASES = [
    *_of_floats(),
    Case(f"t = '{LONG}'", pc.field("t") == LONG, pl.col("t") == LONG, {0}),
    Case(f"t > '{LONG}'", pc.field("t") > LONG, pl.col("t") > LONG, {1, 3, 4, 7}),
    Case("t < 'b'", pc.field("t") < "b", pl.col("t") < "b", {0, 1, 2, 5}),
    Case("d = 1.00", pc.field("d") == Decimal("1.00"), pl.col("d") == Decimal("1.00"), {0}),
    Case("d > 100", pc.field("d") > Decimal("100.00"), pl.col("d") > Decimal("100.00"), {1, 4}),
    Case("d < 0", pc.field("d") < Decimal("0.00"), pl.col("d") < Decimal("0.00"), {2, 5}),
    Case(f"d = {MOST}", pc.field("d") == MOST, pl.col("d") == MOST, {4}),
    Case("moment < timestamp '0002-01-01 00:00:00+00:00'", pc.field("moment") < EARLY, pl.col("moment") < EARLY, {0, 2, 4}),
    Case("moment >= timestamp '9999-12-31 00:00:00+00:00'", pc.field("moment") >= LAST, pl.col("moment") >= LAST, {1, 3, 5, 7}),
]


def foreign_file(rows: pa.Table = ROWS) -> bytes:
    """A file of another program: its texts' statistics are cut, its decimals' are compared as signed bytes."""
    data = changed(parquet_bytes(rows, row_group_size=2), 6, to=OLD)
    columns = {leaf.path: leaf.position for leaf in _leaves(rows)}
    for group in range(pq.read_metadata(io.BytesIO(data)).num_row_groups):
        held = [each for each in rows.column("d").slice(2 * group, 2).to_pylist() if each is not None]
        stored = sorted((_stored(each) for each in held), key=lambda raw: [byte - 256 * (byte > 127) for byte in raw])
        data = _with_bounds(data, group, columns["d",], stored[0], stored[-1])
    return data


def _stored(value: Decimal) -> bytes:
    return int(value.scaleb(2, _WIDE)).to_bytes(16, "big", signed=True)


def _with_bounds(data: bytes, group: int, position: int, low: bytes, high: bytes) -> bytes:
    """The file with other bounds of a column, as of before there was an order of columns."""
    at = (4, group, 1, position, 3, 12)
    for member, value in ((1, high), (2, low), (5, None), (6, None)):
        data = changed(data, *at, member, to=value, type=8)
    return changed(data, 7, to=None)


def _leaves(rows: pa.Table) -> Any:
    from manifestcommit.files.footer_stats import parquet_columns

    return parquet_columns(rows.schema)


def own(url: str) -> mc.Table:
    for start in range(0, 8, 2):
        mc.write(ROWS.slice(start, 2), url)
    return mc.Table(url)


def adopted(url: str) -> mc.Table:
    if url.startswith("memory:"):
        store = open_store(url)
        with contextlib.closing(store.create_output("a.parquet")) as sink:
            sink.write(foreign_file())
    else:
        Path(url).mkdir()
        (Path(url) / "a.parquet").write_bytes(foreign_file())
    mc.Table(url).adopt()
    return mc.Table(url)


def mixed(url: str) -> mc.Table:
    """Half of the rows in a file of another program, the other half in one of this one."""
    Path(url).mkdir()
    (Path(url) / "a.parquet").write_bytes(foreign_file(ROWS.slice(0, 4)))
    mc.Table(url).adopt()
    mc.write(ROWS.slice(4), url)
    return mc.Table(url)


def renamed(url: str) -> mc.Table:
    table = adopted(url)
    for name in ("x", "f", "d"):
        table.rename_column(name, f"{name}2")
        table.rename_column(f"{name}2", f"{name}3")
    for name in ("x", "f", "d"):
        table.rename_column(f"{name}3", name)
    return table


KINDS = {"own": own, "adopted": adopted, "mixed": mixed, "renamed": renamed}


WIDE = "ü" * 2000
PARTS: list[dict[str, list[object]]] = [
    {"f": [1.0, 2.0], "t": ["a", "b"], "d": [dt.date(2013, 1, 1), None]},
    {"f": [NAN, 3.0], "t": ["", None], "d": [dt.date(1, 1, 1), dt.date(9999, 12, 31)]},
    {"f": [NAN, NAN], "t": [WIDE, "z" * 2000], "d": [None, None]},
    {"f": [-0.0, None], "t": ["'", '"'], "d": [dt.date(1969, 12, 31), dt.date(1970, 1, 1)]},
    {"f": [0.0, float("-inf")], "t": ["\\", "%"], "d": [dt.date(2013, 6, 1), dt.date(2013, 6, 2)]},
]


def table_of_bounds(path: str) -> mc.Table:
    """A table of five files whose bounds are hard to get right, exported to both formats; `n` is unique."""
    moments = [dt.datetime(2013, 1, 1, 0, 0, 0, 123 + number, dt.UTC) for number in range(len(PARTS))]
    for number, part in enumerate(PARTS):
        columns = {
            **part,
            "m": pa.array([Decimal("123456789012345678901234.56") * (number - 2), None], pa.decimal128(38, 2)),
            "s": pa.array([Decimal("99.99") if number == 3 else Decimal("1.20") - number, None], pa.decimal128(4, 2)),
            "moment": pa.array([moments[number], None], pa.timestamp("us", "UTC")),
            "l": pa.array([2**63 - 1 - number, -(2**63) + number], pa.int64()),
            "b": [number % 2 == 0, None],
        }
        mc.write(pa.table({"n": pa.array([2 * number, 2 * number + 1], pa.int64()), **columns}), path)
    made = mc.Table(path)
    for format in ("iceberg", "delta"):
        made.export(format)
    return made
