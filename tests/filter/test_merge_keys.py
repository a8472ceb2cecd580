"""Keys of a merge: what can be one, and which files can hold it; ranges of sources taken together. [RC3] [RC5]"""

from typing import Any

import pytest

from manifestcommit.errors import UsageError
from manifestcommit.filter.predicate import (
    MAX_FILES,
    And,
    Compare,
    Constant,
    MergeKeys,
    Or,
    Predicate,
    key_columns,
    may_hold,
    partitions_of_keys,
)
from manifestcommit.format.entries import MAX_SOURCES, ColumnStats, Entry, SourceRange
from manifestcommit.format.fields import ArrayType, Field, Schema
from manifestcommit.rows.row_change import union_of

DAY, ID, TEXT = Field(id=1, name="day", type="string"), Field(id=2, name="id", type="long"), Field(id=3, name="text", type="string")
SCHEMA = Schema(
    fields=(
        DAY, ID, TEXT, Field(id=4, name="x", type="double"),
        Field(id=5, name="tags", type=ArrayType(element=Field(id=6, name="element", type="string"))),
        Field(id=7, name="code", type="string", metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}), Field(id=8, name="at", type="date"),
    )
)  # fmt: skip


def entry(day: str | None, low: Any = None, high: Any = None, *, nulls: int | None = None, rows: int = 10, each: int = 2) -> Entry:
    stats = {each: ColumnStats(nulls=nulls, min=low, max=high)} if low is not None or nulls is not None else {}
    return Entry(path=f"{day} {low}", partition=(day,), rows=rows, bytes=1, job="j", columns=stats)


def keys(*fields: Field) -> MergeKeys:
    return MergeKeys(fields, tuple(field.name for field in fields))


def holds(predicate: Predicate, row: dict[str, Any]) -> bool:
    match predicate:
        case And(args=args):
            return all(holds(arg, row) for arg in args)
        case Or(args=args):
            return any(holds(arg, row) for arg in args)
        case Constant(value=value):
            return bool(value)
        case Compare(op=op, column=(name,), value=value):
            return bool(row[name] >= value if op == ">=" else row[name] <= value)
    raise AssertionError(predicate)


@pytest.mark.parametrize("on", [["x"], ["tags"], ["code"], [], ["id", "ID"], ["nope"]])
def test_columns_whose_values_are_not_equal_as_they_are_stored_are_no_key(on: list[str]) -> None:
    """NaN and -0.0, padded texts: a row would match in one engine and not in another. [RC3]"""
    with pytest.raises(UsageError):
        key_columns(SCHEMA, on)


def test_names_of_a_key_may_be_spelled_in_any_case() -> None:
    assert key_columns(SCHEMA, ["Day", "id"]) == (DAY, ID) and key_columns(SCHEMA, "text") == (TEXT,)


def test_rows_outside_of_all_bounds_hold_no_key() -> None:
    """[RC3]"""
    found = may_hold(keys(DAY, ID), [entry("a", 1, 5), entry("b", 100, 100), entry(None, 7, 7)], (1,))
    for day, number, expected in (("a", 5, True), ("a", 6, False), ("b", 100, True), ("b", 5, False), ("c", 5, False), ("", 7, False)):
        assert holds(found, {"day": day, "id": number}) == expected, (day, number)
    assert not holds(may_hold(keys(ID), [], ()), {"id": 1})


def test_what_a_file_does_not_say_rules_nothing_out() -> None:
    """[RC3] [RD6]"""
    for unknown in (entry("a"), entry("a", nulls=3), entry("a", 5, None)):
        assert holds(may_hold(keys(ID), [unknown], (1,)), {"id": 77})
    assert not holds(may_hold(keys(ID), [entry("a", nulls=10)], (1,)), {"id": 77}), "only nulls, which are equal to nothing"
    at = SCHEMA.fields[-1]
    assert holds(may_hold(keys(at), [entry("a", "@-800000", "2013-01-01", each=8)], (1,)), {"at": None}), "beyond what Python can compare"


def test_many_files_are_taken_together() -> None:
    """Work stays bounded, and no key is missed. [RC3]"""
    files = [entry("a", 10 * number, 10 * number + 1) for number in range(MAX_FILES + 1)]
    found = may_hold(keys(ID), files, (1,))
    assert isinstance(found, Or) and len(found.args) == 1
    assert all(holds(found, {"id": 10 * number}) for number in range(MAX_FILES + 1)) and not holds(found, {"id": -1})
    assert holds(may_hold(keys(ID), [*files, entry("a")], (1,)), {"id": -1})


def test_partitions_are_read_where_the_key_names_their_columns() -> None:
    """[CF16]"""
    files = [entry("a", 1, 5), entry("a", 9, 9), entry(None, 1, 1), entry("b", 1, 1, rows=0)]
    assert partitions_of_keys(keys(DAY, ID), files, (1,), (1,)) == ({1: "a"},)
    assert partitions_of_keys(keys(ID), files, (1,), (1,)) == ({},)
    assert partitions_of_keys(keys(DAY, ID), files, (1,), ()) == ({},)
    assert partitions_of_keys(keys(DAY, ID), [], (1,), (1,)) == ()


def ranged(*ranges: tuple[str, Any, Any]) -> tuple[SourceRange, ...]:
    return tuple(SourceRange(source=source, start=start, end=end) for source, start, end in ranges)


def test_ranges_of_files_are_joined_where_they_touch_and_never_guessed() -> None:
    """[RC5] [OB8]"""
    found = union_of([ranged(("s", 0, 5)), ranged(("s", 5, 9), ("t", 1, 2)), ranged(("s", 20, 21))])
    assert sorted(found, key=repr) == list(ranged(("s", 0, 9), ("s", 20, 21), ("t", 1, 2)))
    assert union_of([ranged(("s", 0, 9)), ranged(("s", 2, 3))]) == ranged(("s", 0, 9))
    mixed = union_of([ranged(("s", "a", "b")), ranged(("s", "a", "b")), ranged(("s", None, 4))])
    assert sorted(mixed, key=repr) == sorted(ranged(("s", None, 4), ("s", "a", "b")), key=repr)
    assert union_of([ranged(("s", 0, 5)), ()]) == union_of([]) == ()
    many = [ranged(("s", 10 * number, 10 * number + 1)) for number in range(MAX_SOURCES + 1)]
    assert len(union_of(many[:-1])) == MAX_SOURCES and union_of(many) == ()
