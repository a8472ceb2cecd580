"""The values of transforms, which are Iceberg's. [PT4] [PT5]"""

from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, MonthTransform, TruncateTransform, YearTransform
from pyiceberg.types import BinaryType, DateType, DecimalType, IntegerType, LongType, StringType, TimestampType

from manifestcommit.errors import UsageError
from manifestcommit.format import transforms
from manifestcommit.format.fields import MAX_FIELD_ID, Field, Schema
from manifestcommit.format.partitioning import check_partition_by, folder, folder_columns, is_folder, parse_static
from manifestcommit.format.transforms import Transform, apply, calendar_text, calendar_value, parse_call, split_calls, transform_of
from manifestcommit.format.values import arrow_type, from_array

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
DAYS = st.integers(-719_162, 2_932_896)  # the years 1 to 9999, which pyiceberg can hold
MICROS = st.integers(-719_162 * 86_400_000_000, 2_932_896 * 86_400_000_000)
DECIMALS = st.integers(-(10**20), 10**20).map(lambda number: Context(prec=60).scaleb(Decimal(number), -3))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)

KINDS = {
    "integer": (INTS, IntegerType()),
    "long": (LONGS, LongType()),
    "date": (DAYS, DateType()),
    "timestamp_ntz": (MICROS, TimestampType()),
    "decimal(25,3)": (DECIMALS, DecimalType(25, 3)),
    "string": (TEXTS, StringType()),
    "binary": (st.binary(max_size=40), BinaryType()),
}
ICEBERG = {"year": YearTransform, "month": MonthTransform, "day": DayTransform, "hour": HourTransform}


def array_of(values: list, type: str) -> pa.Array:
    kind = arrow_type(type)
    if type == "date":
        return pa.array(values, pa.int32()).cast(kind)
    return pa.array(values, pa.int64()).cast(kind) if type.startswith("timestamp") else pa.array(values, kind)


def ours(function: str, width: int, type: str, values: list) -> list:
    made = apply(Transform(1, function, width), Field(id=1, name="c", type=type), array_of(values, type))
    return (made.cast(pa.int32()) if made.type == pa.date32() else made).to_pylist()


CASES = [(function, type) for function in ("bucket", "truncate", "year", "month", "day", "hour") for type in KINDS]
CASES = [case for case in CASES if transforms.result_type(*case) is not None]


@pytest.mark.parametrize(("function", "type"), CASES)
def test_values_are_those_of_pyiceberg(function: str, type: str) -> None:
    """[PT5]"""
    values, iceberg_type = KINDS[type]

    @given(st.lists(st.none() | values, max_size=6), st.sampled_from([1, 2, 3, 7, 16, 1000]))
    def check(rows: list, width: int) -> None:
        if function == "truncate" and type in ("integer", "long"):
            least = -(2**31) if type == "integer" else -(2**63)
            rows = [None if row is None else max(row, least + width) for row in rows]
        width = width if function in ("bucket", "truncate") else 0
        made = ICEBERG[function]() if not width else {"bucket": BucketTransform, "truncate": TruncateTransform}[function](width)
        theirs = made.transform(iceberg_type)
        assert ours(function, width, type, rows) == [theirs(row) for row in rows]

    check()


@given(st.binary(max_size=600))
@example(b"a" * 255)
@example(b"a" * 256)
@example(b"a" * 260)
def test_one_hash_and_many_hashes_agree(data: bytes) -> None:
    """The hash of a value does not depend on its length's way, nor on its neighbours. [PT5]"""
    column = pa.array([data, b"", None, data + b"x", data])
    made = apply(Transform(1, "bucket", 2**20), Field(id=1, name="c", type="binary"), column).to_pylist()
    wanted = [(transforms.murmur3(value) & 0x7FFFFFFF) % 2**20 for value in (data, b"", data + b"x")]
    assert made == [wanted[0], wanted[1], None, wanted[2], wanted[0]]


@pytest.mark.parametrize(
    ("value", "type", "hashed"),
    [
        (34, "integer", 2017239379),
        (34, "long", 2017239379),
        (Decimal("14.20"), "decimal(9,2)", -500754589),
        (17486, "date", -653330422),  # 2017-11-16
        (81068000000 + 17486 * 86400000000, "timestamp_ntz", -2047944441),  # 2017-11-16T22:31:08
        (81068000000 + 17486 * 86400000000, "timestamp", -2047944441),
        ("iceberg", "string", 1210000089),
        (b"\x00\x01\x02\x03", "binary", -188683207),
    ],
)
def test_hashes_are_those_of_icebergs_page(value: object, type: str, hashed: int) -> None:
    """The table of appendix B of Iceberg's specification. [PT5]"""
    for width in (7, 16, 1000, transforms.MAX_WIDTH):
        assert ours("bucket", width, type, [value]) == [(hashed & 0x7FFFFFFF) % width]


@given(LONGS)
@example(-(2**63))
@example(2**63 - 1)
def test_far_instants_have_their_calendar(micros: int) -> None:
    """Years, months and days of all instants that a column holds, by 400 years of days that repeat. [PT5]"""
    (year,), (month,), (day,) = (ours(function, 0, "timestamp_ntz", [micros]) for function in ("year", "month", "day"))
    assert day == micros // 86_400_000_000 and year == month // 12
    cycles = day // 146_097
    near = day - cycles * 146_097
    assert year == YearTransform().transform(DateType())(near) + 400 * cycles
    assert month == MonthTransform().transform(DateType())(near) + 4800 * cycles


@pytest.mark.parametrize(
    ("function", "width", "type", "value"),
    [
        ("hour", 0, "timestamp_ntz", 2**63 - 1),
        ("hour", 0, "timestamp", -(2**63)),
        ("truncate", 10, "integer", -(2**31)),
        ("truncate", 10, "long", -(2**63)),
        ("truncate", 10, "decimal(3,1)", Decimal("-99.9")),
    ],
)
def test_a_value_without_a_transform_is_refused(function: str, width: int, type: str, value: object) -> None:
    """Where Iceberg's own value would wrap around, or does not fit its type. [PT5]"""
    with pytest.raises(UsageError, match="Nothing was written"):
        ours(function, width, type, [value])


@pytest.mark.parametrize(("function", "type"), [(f, t) for f in transforms.FUNCTIONS for t in ("boolean", "float", "double", "variant")])
def test_types_without_exact_values_are_refused(function: str, type: str) -> None:
    """NaN and two zeros have no place in a partition. [PT4]"""
    schema = Schema(fields=(Field(id=1, name="c", type=type),))
    width = "4, " if function in ("bucket", "truncate") else ""
    with pytest.raises(UsageError, match=rf"{function} takes .* the column 'c' has the type {type}"):
        check_partition_by(schema, [f"{function}({width}c)"])


SCHEMA = Schema(
    fields=(
        Field(id=5, name="ts", type="timestamp"),
        Field(id=6, name="user", type="long"),
        Field(id=7, name="odd, `name`)", type="string"),
        Field(id=8, name="day(ts)", type="integer"),
        Field(id=MAX_FIELD_ID, name="Late", type="date"),
    )
)


@pytest.mark.parametrize(
    ("text", "wanted", "again"),
    [
        ("month(ts)", Transform(5, "month"), "month(ts)"),
        (" MONTHS ( TS ) ", Transform(5, "month"), "month(ts)"),
        ("bucket(16, user)", Transform(6, "bucket", 16), "bucket(16, user)"),
        ("bucket(268435455,user)", Transform(6, "bucket", transforms.MAX_WIDTH), "bucket(268435455, user)"),
        ("truncate(3, `odd, ``name``)`)", Transform(7, "truncate", 3), "truncate(3, `odd, ``name``)`)"),
        ("year(late)", Transform(MAX_FIELD_ID, "year"), "year(Late)"),
    ],
)
def test_a_transform_is_one_number(text: str, wanted: Transform, again: str) -> None:
    """[PT4]"""
    (id,) = check_partition_by(SCHEMA, [text])
    assert id == wanted.id and transform_of(id) == wanted and MAX_FIELD_ID < id < 2**63
    assert transforms.spelled(SCHEMA, [id]) == [again]
    assert check_partition_by(SCHEMA, [again]) == (id,)


def test_a_column_of_that_name_is_meant() -> None:
    """[PT4]"""
    assert check_partition_by(SCHEMA, ["day(ts)"]) == (8,)


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["week(ts)"], "calls no transform"),
        (["bucket(user)"], r"write bucket\(16, c\)"),
        (["bucket(0, user)"], "from 1 to"),
        (["bucket(-1, user)"], "from 1 to"),
        (["bucket(²,user)"], "from 1 to"),
        (["truncate(268435456, user)"], "from 1 to 268435455"),
        (["hour(late)"], "hour takes timestamps"),
        (["month(gone)"], "has no column 'gone'"),
        (["month(ts)", "months(TS)"], "are called 'ts_month'"),
        (["bucket(4, user)", "bucket(8, user)"], "are called 'user_bucket'"),
    ],
)
def test_what_is_no_transform_is_refused(names: list[str], match: str) -> None:
    """[PT4]"""
    with pytest.raises(UsageError, match=match):
        check_partition_by(SCHEMA, names)


@pytest.mark.parametrize("id", [2**31, 7 << 31, 2**34 | 1 << 31 | 5, 5 << 31 | 5, 2**62 | 5 << 31 | 5, 2**63 - 1])
def test_other_numbers_are_no_transforms(id: int) -> None:
    """[PT4]"""
    with pytest.raises(ValueError, match=r"is the id of|is partitioned by field"):
        transforms.partition_fields(SCHEMA, (id,))


def test_parts_of_a_list_are_those_outside_of_brackets() -> None:
    """[PT4]"""
    assert split_calls("day(ts), bucket(16, user) ,a") == ["day(ts)", "bucket(16, user)", "a"]
    assert split_calls("truncate(3, `a,b)`),c") == ["truncate(3, `a,b)`)", "c"]
    assert parse_call("plain") is None


@given(st.sampled_from(["year", "month", "hour"]), INTS)
def test_folders_of_the_calendar_are_read_back(function: str, value: int) -> None:
    """[PT5] [GC5]"""
    text = calendar_text(value, function)
    assert calendar_value(text, function) == value
    schema = Schema(fields=(Field(id=1, name="t", type="timestamp"),))
    by = (Transform(1, function).id,)
    assert folder(schema, by, (value,)) == f"t_{function}={text}/"
    assert folder_columns(schema, by) == ((f"t_{function}", function),)
    assert is_folder(folder_columns(schema, by), f"t_{function}={text}")
    assert parse_static(schema, by, {f"t_{function}": text}) == {by[0]: value}


@pytest.mark.parametrize(
    ("function", "text"),
    [("year", "26"), ("year", "+2026"), ("month", "2026-13"), ("month", "2026-1"), ("hour", "2026-02-30-00"), ("hour", "2026-01-01-24")],
)
def test_other_texts_are_no_folders_of_the_calendar(function: str, text: str) -> None:
    """[PT5]"""
    schema = Schema(fields=(Field(id=1, name="t", type="timestamp"),))
    with pytest.raises(UsageError, match="as its folders write it"):
        parse_static(schema, (Transform(1, function).id,), {f"t_{function}": text})


def test_folders_of_all_kinds() -> None:
    """What a person reads. [PT5]"""
    schema = Schema(
        fields=(
            Field(id=1, name="ts", type="timestamp"),
            Field(id=2, name="user", type="integer"),
            Field(id=3, name="s", type="string", physical="old"),
            Field(id=4, name="b", type="binary"),
        )
    )
    by = check_partition_by(schema, ["hour(ts)", "day(ts)", "bucket(8, user)", "truncate(2, s)", "truncate(2, b)"])
    columns = {"ts": [-1], "user": [7], "s": ["né/"], "b": [b"\xff\xfe\xfd"]}
    values = []
    for field in transforms.partition_fields(schema, by):
        source = transforms.source_of(schema, field.id)
        made = transforms.maker(schema, field.id)(array_of(columns[source.name], source.type))
        values += from_array(made, field.type)
    shown = folder(schema, by, tuple(values))
    assert shown == "ts_hour=1969-12-31-23/ts_day=1969-12-31/user_bucket=3/old_trunc=né/b_trunc=%2F%2F4%3D/"
    assert is_folder(folder_columns(schema, by), shown[:-1])
