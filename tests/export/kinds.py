"""Tables of every kind, each made by the calls that users make."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from functools import partial

import pyarrow as pa
from tests.kit.footers import parquet_bytes
from tests.kit.sizes import budgets

import manifestcommit as mc
from manifestcommit.store import open_store

HOSTILE = ["", " ", "a b", "%41", "+", "=", "#?&", "ü𝄞", "'\"`\\", "null", "__HIVE_DEFAULT_PARTITION__", "\n\t\x01", "a/b", "x" * 300, None]
KINDS: dict[str, Callable[[str], mc.Table]] = {}


def kind(make: Callable[[str], mc.Table]) -> Callable[[str], mc.Table]:
    KINDS[make.__name__.replace("_", " ")] = make
    return make


def numbered(rows: int, **columns: list[object] | pa.Array) -> pa.Table:
    return pa.table({"n": pa.array(range(rows), pa.int64()), **columns})


def every_type() -> pa.Table:
    utc, days = dt.UTC, [dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1970, 1, 1)]
    times = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None, dt.datetime(2013, 1, 1, 0, 0, 0, 1)]
    digits = [Decimal("9" * 28 + "." + "9" * 10), Decimal("-" + "9" * 28 + "." + "9" * 10), None, Decimal("0.0000000001")]
    columns = {
        "bool": pa.array([True, False, None, True]), "byte": pa.array([-128, 127, None, 0], pa.int8()),
        "short": pa.array([-(2**15), 2**15 - 1, None, 0], pa.int16()), "int": pa.array([-(2**31), 2**31 - 1, None, 0], pa.int32()),
        "long": pa.array([-(2**63), 2**63 - 1, None, 0], pa.int64()),
        "float": pa.array([float("-inf"), float("nan"), None, -0.0], pa.float32()),
        "double": pa.array([float("inf"), float("nan"), None, 0.0]), "numbers": pa.array([1.5, -0.0, None, 0.0]),
        "small": pa.array([Decimal("-1.20"), Decimal("99.99"), None, Decimal("0.00")], pa.decimal128(4, 2)),
        "middle": pa.array([Decimal("-12345678.90"), None, None, Decimal("1.00")], pa.decimal128(15, 2)),
        "large": pa.array(digits, pa.decimal128(38, 10)), "text": pa.array(["", "ü𝄞", None, "x" * 500]),
        "bytes": pa.array([b"", b"\x00\xff", None, b"\xff" * 500]), "date": pa.array(days),
        "instant": pa.array([each and each.replace(tzinfo=utc) for each in times], pa.timestamp("us", "UTC")),
        "local": pa.array(times, pa.timestamp("us")),
    }  # fmt: skip
    return numbered(4, **columns)


@kind
def all_types(path: str) -> mc.Table:
    mc.write(every_type(), path)
    mc.write(every_type(), path)
    return mc.Table(path)


def distinct(type: pa.DataType, least: int, greatest: int) -> pa.Array:
    """200 different values, alternating between both ends of the range, some of them null: no dictionary is made of them."""
    step = (greatest - least) // 200
    ends = [greatest - n // 2 * step if n % 2 else least + n // 2 * step for n in range(200)]
    through = {"date32[day]": pa.int32()}.get(str(type), pa.decimal128(19) if pa.types.is_decimal(type) else pa.int64())
    return pa.array([None if n % 7 == 3 else each for n, each in enumerate(ends)], pa.int64()).cast(through).cast(type)


def whole_numbers() -> pa.Table:
    """Distinct ones of every type that Parquet stores as an integer."""
    days, micros = (-719_162, 2_932_896), (-62_135_596_800_000_000, 253_402_300_799_999_999)  # the years 1 to 9999
    bits = {type: 2 ** (type.bit_width - 1) for type in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}
    digits = {type: 10**type.precision for type in (pa.decimal128(9), pa.decimal128(18))}
    limits = {type: (-limit, limit - 1) for type, limit in bits.items()} | {type: (1 - limit, limit - 1) for type, limit in digits.items()}
    limits |= {pa.date32(): days, pa.timestamp("us", "UTC"): micros, pa.timestamp("us"): micros}
    return numbered(200, **{f"c{at}": distinct(type, *limit) for at, (type, limit) in enumerate(limits.items())})


@kind
def distinct_whole_numbers(path: str) -> mc.Table:
    mc.write(whole_numbers(), path)
    return mc.Table(path)


@kind
def nested(path: str) -> mc.Table:
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    columns = {
        "struct": pa.array([{"x": 1, "y": "a"}, {"x": None, "y": None}, None], inner),
        "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int32())),
        "map of lists": pa.array([[("b", [1.5])], [("c", None)], None], pa.map_(pa.string(), pa.list_(pa.float64()))),
        "deep": pa.array([{"s": {"x": 2, "y": "b"}}, {"s": None}, None], pa.struct([("s", inner)])),
    }
    mc.write(numbered(3, **columns), path)
    return mc.Table(path)


XY = pa.struct([("x", pa.int32()), ("y", pa.string())])
STRUCTS: dict[str, pa.Array] = {
    "list of structs": pa.array([[{"x": 1, "y": "a"}, {"x": None, "y": "b"}], []], pa.list_(XY)),
    "null list of structs": pa.array([[{"x": 1, "y": "a"}], None], pa.list_(XY)),
    "null map of structs": pa.array([[("a", {"x": 1, "y": "a"})], None], pa.map_(pa.string(), XY)),
}


def with_items(path: str, items: pa.Array) -> mc.Table:
    mc.write(numbered(2, items=items), path)
    return mc.Table(path)


for _what, _values in STRUCTS.items():
    KINDS[_what] = partial(with_items, items=_values)


@kind
def only_nulls(path: str) -> mc.Table:
    mc.write(numbered(3, text=pa.nulls(3, pa.string()), number=pa.nulls(3, pa.float64())), path)
    return mc.Table(path)


@kind
def empty(path: str) -> mc.Table:
    mc.create_table(path, every_type().schema)
    return mc.Table(path)


@kind
def emptied(path: str) -> mc.Table:
    mc.write(numbered(3), path)
    mc.write(numbered(0), path, mode="overwrite")
    return mc.Table(path)


@kind
def no_rows_and_some(path: str) -> mc.Table:
    mc.write(numbered(0), path)
    mc.write(numbered(2), path)
    return mc.Table(path)


def partitioned(path: str, values: pa.Array) -> mc.Table:
    data = numbered(len(values), part=values)
    mc.write(data, path, partition_by=["part"])
    mc.write(data, path)
    return mc.Table(path)


PARTITIONS: dict[str, pa.Array] = {
    "text": pa.array(HOSTILE),
    "numbers": pa.array([-(2**63), 2**63 - 1, 0, None], pa.int64()),
    "small numbers": pa.array([-128, 127, 0, None], pa.int8()),
    "days": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(2013, 2, 28)]),
    "bools": pa.array([True, False, None]),
    "instants": pa.array([dt.datetime(2013, 1, 1, 5, 0, 0, 7, dt.UTC), None], pa.timestamp("us", "UTC")),
    "local times": pa.array([dt.datetime(1960, 1, 1, 5, 0, 0, 7), None], pa.timestamp("us")),
    "decimals": pa.array([Decimal("-1.20"), Decimal("12345678901234567890.99"), None], pa.decimal128(30, 2)),
}
for _what, _values in PARTITIONS.items():
    KINDS[f"partitions of {_what}"] = partial(partitioned, values=_values)


@kind
def partitions_of_two_columns(path: str) -> mc.Table:
    data = numbered(4, a=pa.array(["x", "x", None, "y"]), b=pa.array([1, None, 2, 1], pa.int32()))
    mc.write(data, path, partition_by=["a", "b"])
    return mc.Table(path)


@kind
def hostile_names(path: str) -> mc.Table:
    names = ["a b", "c.d", "e%41", "f#g", "ü𝄞", "q'\"`", "back\\slash", "1st", "select"]
    mc.write(numbered(2, **{name: pa.array([name, None]) for name in names}), path, partition_by=["a b"])
    return mc.Table(path)


@kind
def hostile_texts(path: str) -> mc.Table:
    mc.write(numbered(len(HOSTILE), text=pa.array(HOSTILE)), path)
    return mc.Table(path)


@kind
def renamed(path: str) -> mc.Table:
    mc.write(numbered(2, old=["a", "b"], part=["p", None]), path, partition_by=["part"])
    mc.Table(path).rename_column("old", "new")
    mc.Table(path).rename_column("part", "old")
    mc.write(numbered(2, new=["c", "d"], old=["p", "q"]), path)
    return mc.Table(path)


@kind
def dropped_and_added_again(path: str) -> mc.Table:
    mc.write(numbered(2, gone=["a", "b"]), path)
    mc.Table(path).drop_column("gone")
    mc.write(numbered(2), path)
    mc.Table(path).add_column("gone", "string")
    mc.write(numbered(2, gone=["c", None]), path)
    return mc.Table(path)


@kind
def widened(path: str) -> mc.Table:
    narrow = {"a": pa.array([1, None], pa.int8()), "b": pa.array([-5, 2], pa.int32()), "c": pa.array([1.5, float("nan")], pa.float32())}
    mc.write(numbered(2, **narrow, d=pa.array([Decimal("1.20"), None], pa.decimal128(5, 2))), path)
    wide = {"a": pa.array([2**31 - 1, 0], pa.int32()), "b": pa.array([2**62, 0], pa.int64()), "c": pa.array([0.1, -0.0])}
    data = numbered(2, **wide, d=pa.array([Decimal("12345678901234.50"), None], pa.decimal128(20, 2)))
    mc.write(data, path, merge_schema=True)
    return mc.Table(path)


@kind
def widened_partitions(path: str) -> mc.Table:
    mc.write(numbered(2, part=pa.array([1, None], pa.int8())), path, partition_by=["part"])
    mc.write(numbered(2, part=pa.array([2**40, 7], pa.int64())), path, merge_schema=True)
    return mc.Table(path)


@kind
def columns_added(path: str) -> mc.Table:
    mc.write(numbered(2), path)
    mc.write(numbered(2, more=["a", None], s=pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))), path, merge_schema=True)
    return mc.Table(path)


@kind
def overwritten(path: str) -> mc.Table:
    data = numbered(4, part=["a", "b", "c", None])
    mc.write(data, path, partition_by=["part"])
    mc.write(data.slice(0, 1), path, mode="overwrite", overwrite={"part": "a"})
    mc.write(data.slice(3, 1), path, mode="overwrite", overwrite={"part": None})
    return mc.Table(path)


@kind
def removed_from_manifests(path: str) -> mc.Table:
    """Files that bitmaps take out of manifests, in runs as well."""
    with budgets(inline_entry_bytes=500, inline_removed_bytes=1):
        for number in range(6):
            data = pa.table({"n": [number] * 3, "part": [f"p{each}" for each in range(3)]})
            mc.write(data, path, **({"partition_by": ["part"]} if number == 0 else {}))
        for part in ("p0", "p2"):
            mc.write(pa.table({"n": [100], "part": [part]}), path, mode="overwrite", overwrite={"part": part})
    return mc.Table(path)


@kind
def rows_changed(path: str) -> mc.Table:
    """Deleted, updated and merged; some of the files are rewritten, and keep the rows that nobody changed."""
    data = numbered(9, text=pa.array(["a", None, "b"] * 3), part=pa.array(["p", "p", "p", "q", "q", "q", None, None, None]))
    mc.write(data, path, partition_by=["part"])
    table = mc.Table(path)
    table.delete("n = 1 OR n = 4")
    table.update({"text": "'ü b'"}, "text = 'b'")
    changed = pa.table({"n": [0, 100], "text": [None, "new"], "part": ["p", None]})
    table.merge(changed, on=["n"])
    return table


@kind
def compacted(path: str) -> mc.Table:
    for number in range(4):
        data = pa.table({"n": [number, number + 10], "part": ["p q", None]})
        mc.write(data, path, **({"partition_by": ["part"]} if number == 0 else {}))
    table = mc.Table(path)
    table.rename_column("n", "number")
    assert table.compact().version == table.version
    return table


@kind
def rolled_back(path: str) -> mc.Table:
    for _ in range(3):
        mc.write(numbered(2), path)
    mc.Table(path).rollback(2, reason="a test")
    mc.write(numbered(1), path)
    return mc.Table(path)


@kind
def merged_manifests(path: str) -> mc.Table:
    with budgets(inline_entry_bytes=100):
        for _ in range(5):
            mc.write(numbered(2), path)
        mc.Table(path).compact(only_manifests=True)
    return mc.Table(path)


def foreign(path: str, name: str, data: pa.Table, **options: object) -> None:
    open_store(path).put(name, parquet_bytes(data, **options))


@kind
def adopted(path: str) -> mc.Table:
    foreign(path, "a.parquet", every_type())
    foreign(path, "sub/b c.parquet", every_type())
    mc.Table(path).adopt()
    return mc.Table(path)


@kind
def adopted_and_renamed(path: str) -> mc.Table:
    foreign(path, "a.parquet", numbered(2, old=["a", None], gone=[1, 2]))
    mc.Table(path).adopt()
    mc.Table(path).rename_column("old", "new")
    mc.Table(path).drop_column("gone")
    mc.write(numbered(1, new=["c"]), path)
    return mc.Table(path)


@kind
def adopted_folders(path: str) -> mc.Table:
    """Files that lack the partition column, which only folders tell."""
    for part in ("p%20q", "r", "__HIVE_DEFAULT_PARTITION__"):
        foreign(path, f"part={part}/a.parquet", numbered(2))
    mc.Table(path).adopt()
    mc.write(numbered(1, part=["s"]), path)
    return mc.Table(path)


@kind
def adopted_old_instants(path: str) -> mc.Table:
    moment = pa.array([dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC"))
    foreign(path, "a.parquet", numbered(2, at=moment), use_deprecated_int96_timestamps=True)
    mc.Table(path).adopt()
    return mc.Table(path)


@kind
def adopted_with_ids(path: str) -> mc.Table:
    fields = [pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"}), pa.field("t", pa.string(), metadata={"PARQUET:field_id": "2"})]
    foreign(path, "a.parquet", pa.table({"n": [1, 2], "t": ["a", None]}, schema=pa.schema(fields)))
    mc.Table(path).adopt()
    return mc.Table(path)


@kind
def many_files(path: str) -> mc.Table:
    data = pa.table({"n": range(300), "part": [f"{number:03}" for number in range(300)]})
    mc.write(data, path, partition_by=["part"])
    return mc.Table(path)


@kind
def path_with_spaces(path: str) -> mc.Table:
    mc.write(numbered(3, part=["a b", "ü", None]), f"{path}/a b ü", partition_by=["part"])
    return mc.Table(f"{path}/a b ü")
