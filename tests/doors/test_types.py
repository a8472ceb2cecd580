"""Every public call over every type that `write` takes, at its extremes: an answer, or an error of this package. [SE3]"""

import shutil
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.kit.schemas import foreign
from tests.kit.sizes import rest_thorough

import manifestcommit as mc
from manifestcommit.cli.main import main

INT32, INT64 = 2**31, 2**63


def raw(numbers: list[int | None], storage: pa.DataType, kind: pa.DataType) -> pa.Array:
    """Values that Python may not be able to hold."""
    return pa.array(numbers, storage).view(kind)


def dictionary(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([*range(len(values)), None], pa.uint8()), values)


MOMENTS = [-INT64, -62_135_596_800_000_001, 0, 253_402_300_800_000_000, INT64 - 1, None]
TEXTS = ["", "\0", "'\"\\%_", "\U0010ffff", "é" * 300, "null", None]
DAYS = [-INT32, -719_529, -1, 0, 2_932_897, INT32 - 1, None]
ARRAYS: dict[str, pa.Array] = {
    "null": pa.nulls(2),
    "bool": pa.array([True, False, None]),
    **{f"int{bits}": pa.array([-(2 ** (bits - 1)), 0, 2 ** (bits - 1) - 1, None], f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": pa.array([0, 2**bits - 1, None], f"uint{bits}") for bits in (8, 16, 32, 64)},
    "float16": pa.array(np.array([np.nan, -0.0, np.inf, 65504], np.float16)),
    "float32": pa.array([float("nan"), -0.0, 0.0, float("inf"), float("-inf"), 3.4e38, 1e-45, None], pa.float32()),
    "float64": pa.array([float("nan"), -0.0, 0.0, float("inf"), float("-inf"), 1.7e308, 5e-324, None]),
    "decimal38": pa.array([Decimal("9" * 38), Decimal("-" + "9" * 38), None], pa.decimal128(38, 0)),
    "decimal38,38": pa.array([Decimal("0." + "9" * 38), Decimal(0), None], pa.decimal128(38, 38)),
    "decimal32": pa.array([Decimal("9.99"), None], pa.decimal32(3, 2)),
    "decimal256": pa.array([Decimal("-9.99"), None], pa.decimal256(38, 2)),
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "binary": pa.array([b"", b"\0", b"\xff" * 300, None]),
    "binary_view": pa.array([b"", b"\xff\xfe", None], pa.binary_view()),
    "fixed": pa.array([b"\xff\xff", b"\0\0", None], pa.binary(2)),
    "date32": raw(DAYS, pa.int32(), pa.date32()),
    "date64": raw([-86_400_000, 0, 253_402_300_800_000, None], pa.int64(), pa.date64()),
    "timestamp": raw(MOMENTS, pa.int64(), pa.timestamp("us")),
    "timestamp UTC": raw(MOMENTS, pa.int64(), pa.timestamp("us", "UTC")),
    "timestamp zone": raw([0, 1, None], pa.int64(), pa.timestamp("ms", "+05:30")),
    "timestamp s": raw([-62_135_596_801, 253_402_300_800, None], pa.int64(), pa.timestamp("s")),
    "timestamp ns": raw([-INT64 + 808, 0, INT64 - 807 - INT64 % 1000, None], pa.int64(), pa.timestamp("ns")),
    "duration": raw([-INT64 + 1, 0, INT64 - 1, None], pa.int64(), pa.duration("us")),
    "dictionary": dictionary(pa.array(["a", "b"])),
    "dictionary of views": dictionary(pa.array(["a", "b"], pa.string_view())),
    "dictionary of binary views": dictionary(pa.array([b"a", b"b"], pa.binary_view())),
    "dictionary of dates": dictionary(raw([-INT32, INT32 - 1], pa.int32(), pa.date32())),
    "run ends": pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", None])),
    "categorical": pl.Series(["a", "b", None], dtype=pl.Categorical).to_arrow(),
    "enum": pl.Series(["b", "a", None], dtype=pl.Enum(["a", "b"])).to_arrow(),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8())),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"\xff" * 16, None], pa.binary(16))),
    "not UTF-8": pa.array([b"\xff", b"x"]).view(pa.string()),
}


def _nested(array: pa.Array) -> dict[str, pa.Array]:
    count = len(array)
    offsets = pa.array(range(count + 1), pa.int32())
    made = {
        "struct": lambda: pa.StructArray.from_arrays([array], names=["m"]),
        "list": lambda: pa.ListArray.from_arrays(offsets, array),
        "map": lambda: pa.MapArray.from_arrays(offsets, pa.array([str(n) for n in range(count)]), array),
    }
    return {f"{name} of": make() for name, make in made.items()}


CASES = ARRAYS | {f"{outer} {name}": array for name, plain in ARRAYS.items() for outer, array in _nested(plain).items()}
SOME = ("date32", "timestamp UTC", "dictionary of views", "not UTF-8", "null", "struct of categorical")
# each is made on a copy of the table, whose rows are these, with their ids
Call = Callable[[mc.Table, pa.Table, str], Any]
CALLS: dict[str, Call] = {
    "append": lambda table, rows, at: mc.write(rows, at),
    "merge_schema": lambda table, rows, at: mc.write(rows.append_column("new", rows["k"]), at, merge_schema=True),
    "merge by it": lambda table, rows, at: table.merge(rows.slice(0, 1), on="k"),
    "merge twice": lambda table, rows, at: table.merge(pa.concat_tables([rows, rows]), on="k"),
    "merge by id": lambda table, rows, at: table.merge(rows, on="id"),
    "clauses": lambda table, rows, at: table.merge(
        rows, on="id", when_matched=mc.Update(where="source.k IS NOT NULL"), when_not_matched=mc.Insert()
    ),
    "clauses by it": lambda table, rows, at: table.merge(
        rows.slice(0, 1), on="k", when_matched=mc.Update(set={"id": "source.id"}), when_not_matched=None
    ),
    "update": lambda table, rows, at: table.update({"k": pc.field("k")}),
    "update sql": lambda table, rows, at: table.update({"k": "k"}, where="k IS NOT NULL", key="u"),
    "update null": lambda table, rows, at: table.update({"k": None}, where="id = 0"),
    "update other": lambda table, rows, at: table.update({"k": "id"}, where="id = 0"),
    "update value": lambda table, rows, at: table.update({"k": rows["k"][0]}),
    "delete": lambda table, rows, at: table.delete(pc.field("k") == rows["k"][0], key="d"),
    "delete sql": lambda table, rows, at: table.delete("k = 0"),
    "delete date": lambda table, rows, at: table.delete("k = '2020-01-01'"),
    "overwrite_where": lambda table, rows, at: table.overwrite_where(rows, "id >= 0"),
    "overwrite where it": lambda table, rows, at: table.overwrite_where(rows, "k = 1 OR k IS NULL OR NOT k = 1"),
    "filter": lambda table, rows, at: table.to_arrow(filter=pc.field("k") >= rows["k"][0]),
    "filter in": lambda table, rows, at: table.to_arrow(filter=pc.field("k").isin(rows["k"].combine_chunks())),
    "filter sql": lambda table, rows, at: table.to_arrow(filter="k <=> k AND k > 0"),
    "partition overwrite": lambda table, rows, at: mc.write(rows, at, mode="overwrite", overwrite="dynamic"),
    "partitions": lambda table, rows, at: (repr(table.partitions()), repr(table.files())),
    "command line": lambda table, rows, at: [main([word, at]) for word in ("partitions", "files", "head")],
    "changes": lambda table, rows, at: (table.merge(rows, on="id"), table.changed_rows(1).read_all()),
    "filter by value": lambda table, rows, at: table.to_arrow(filter="1 / (id - 1) > 0"),
    "polars": lambda table, rows, at: table.to_polars().collect(),
    "duckdb": lambda table, rows, at: table.duckdb().to_arrow_table(),
    "pandas": lambda table, rows, at: table.to_pandas(),
    "compact": lambda table, rows, at: (mc.write(rows, at), table.compact()),
    "verify": lambda table, rows, at: (table.verify(deep=True), table.describe(), table.create_table_sql("t")),
    "report": lambda table, rows, at: table.report(f"{at}.html"),
    "delta": lambda table, rows, at: table.export("delta"),
    "iceberg": lambda table, rows, at: table.export("iceberg"),
    "columns": lambda table, rows, at: (table.rename_column("k", "n"), table.drop_column("n")),
    "adopt": lambda table, rows, at: adopted(f"{at}-files", rows, rewrite=False),
    "adopt and rewrite": lambda table, rows, at: adopted(f"{at}-files", rows, rewrite=True),
    "add files": lambda table, rows, at: add_file(at, rows),
    "widen": lambda table, rows, at: table.widen_column("k", "long"),
}


def file_of(path: str, rows: pa.Table) -> bool:
    """Whether pyarrow can write such a file at all."""
    Path(path).parent.mkdir(exist_ok=True)
    try:
        pq.write_table(rows, path)
    except pa.ArrowException:
        return False
    return True


def adopted(folder: str, rows: pa.Table, *, rewrite: bool) -> Any:
    """A folder of another program becomes a table, which is read, changed and exported."""
    if not file_of(f"{folder}/x.parquet", rows):
        return None
    table = mc.Table(folder)
    table.adopt(rewrite=rewrite)
    assert table.to_arrow().num_rows == rows.num_rows
    table.delete("id = 0")
    assert table.to_arrow().num_rows == rows.num_rows - 1
    return [*map(table.export, ("delta", "iceberg")), table.to_pandas()]


def add_file(at: str, rows: pa.Table) -> None:
    if file_of(f"{at}/x.parquet", rows):
        with mc.begin(at) as job:
            job.add_files(["x.parquet"])


@pytest.mark.parametrize("partition_by", [(), "k"], ids=["plain", "partitioned"])
@pytest.mark.parametrize("name", rest_thorough(CASES, *SOME))
def test_no_error_of_another_library_leaves_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, partition_by: Any) -> None:
    """[SE3]"""
    for module in [each for each in sys.modules if each.startswith("pyspark.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    rows = pa.table({"id": pa.array(range(len(CASES[name])), pa.int64()), "k": CASES[name]})
    base, found = tmp_path / "base", {}
    if (ended := foreign(lambda: mc.write(rows, base, partition_by=partition_by))) is not None:
        found["write"] = ended
    for number, (title, call) in enumerate(CALLS.items()):
        at = str(tmp_path / str(number))
        if (base / "_manifest").exists():
            shutil.copytree(base, at)
            if (ended := foreign(lambda at=at, call=call: call(mc.Table(at), rows, at))) is not None:
                found[title] = ended
    assert found == {}
