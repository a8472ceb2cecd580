"""Which files a filter leaves: by partition values and bounds, never one fewer than hold a matching row."""

import datetime as dt
import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.sizes import SetBudgets, budgets, rounds
from tests.kit.tables import begin, memory, session, table_with

import manifestcommit as mc
from manifestcommit.filter.arrow_expression import spark_order
from manifestcommit.format import manifest_table
from manifestcommit.scan import planning
from manifestcommit.testing.faults import CountingStore

UTC = dt.UTC


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> mc.Table:
    """A file for each of three carriers on each of four days, and one of an unknown carrier."""
    root = tmp_path_factory.mktemp("planning") / "flights"
    for on in range(1, 5):
        rows = {
            "day": [dt.date(2013, 1, on)] * 4, "carrier": ["AA", "UA", "9E", None], "flight": [on * 100 + n for n in range(4)],
            "delay": [float(on), math.nan, None, -math.inf], "at": [dt.datetime(2013, 1, on, hour, tzinfo=UTC) for hour in (6, 12, 18, 23)],
            "plane": [{"tail": f"N{on}", "seats": 100 + on}] * 4, "stops": [[on], [], None, [None]],
        }  # fmt: skip
        mc.write(pa.table(rows), root, partition_by=["day", "carrier"])
    return mc.Table(root)


day = pc.field("day")
carrier = pc.field("carrier")
number = pc.field("flight")


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        (day == dt.date(2013, 1, 2), 4),
        (dt.date(2013, 1, 2) == day, 4),
        (day.isin([dt.date(2013, 1, 1), dt.date(2014, 1, 1)]), 4),
        ((day > dt.date(2013, 1, 1)) & (day <= dt.date(2013, 1, 3)), 8),
        (carrier == "UA", 4),
        (carrier.is_null(), 4),
        (carrier.is_valid(), 12),
        (~(carrier == "UA"), 8),
        ((carrier == "UA") | (day == dt.date(2013, 1, 1)), 7),
        (pc.starts_with(carrier, "9"), 4),
        (number == 302, 1),
        (number < 200, 4),
        ((number >= 200) & (carrier == "AA"), 3),
        (number.isin([100, 401, 999]), 2),
        (number > 9_999, 0),
        (pc.field("delay") > 1e9, 4),  # the files of NaN: to Spark it is the greatest number
        (pc.field("delay").is_null(), 4),
        (pc.field("delay").is_null(nan_is_null=True), 8),
        (pc.field("at") < dt.datetime(2013, 1, 1, 7, tzinfo=UTC), 1),
        (pc.field("plane", "tail") == "N3", 4),
        (pc.field("plane", "seats") > 103, 4),
        (pc.scalar(True), 16),
        (pc.scalar(False), 0),
    ],
    ids=str,
)
def test_a_filter_leaves_exactly_the_files_that_can_match(flights: mc.Table, condition: Any, count: int) -> None:
    """[RD6]"""
    assert flights.files(filter=condition).num_rows == count


@pytest.mark.parametrize(
    "condition",
    [
        pc.list_value_length(pc.field("stops")) > 0, pc.utf8_upper(carrier) == "ua", number + 1 == 101,
        number == pc.field("plane", "seats"), pc.field("stops").is_null(), pc.match_substring_regex(carrier, "A"),
        pc.if_else(number > 100, True, False),
    ],
    ids=str,
)  # fmt: skip
def test_what_bounds_cannot_decide_leaves_every_file(flights: mc.Table, condition: Any) -> None:
    """A part that is not understood skips nothing, and hides nothing beside it. [RD6]"""
    assert flights.files(filter=condition).num_rows == 16
    assert flights.files(filter=condition & (day == dt.date(2013, 1, 2))).num_rows == 4
    assert flights.files(filter=~condition | (day == dt.date(2013, 1, 2))).num_rows == 16


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (pc.field("flights") == 1, "'flights'.*Did you mean 'flight'"),
        (pc.field("plane", "tale") == "x", r"'plane\.tale'.*'plane\.tail'"),
        (lambda row: True, "pyarrow expression"),
        (1, "pyarrow expression"),
    ],
)
def test_a_filter_that_names_nothing_of_the_table_is_an_error(flights: mc.Table, condition: Any, message: str) -> None:
    """Not every file: a typing error must not read as "no restriction". [RD6]"""
    with pytest.raises(mc.errors.UsageError, match=message):
        flights.files(filter=condition)


def test_a_filter_is_read_by_the_columns_of_the_version_asked_for(root: Path) -> None:
    """[RD4] [RD6]"""
    mc.write(pa.table({"a": [1]}), root)
    table = table_with(pa.table({"a": [2]}), root)
    table.rename_column("a", "b")
    assert table.files(filter=pc.field("a") == 1, version=3).num_rows == 1
    assert table.files(filter=pc.field("b") == 1).num_rows == 1
    with pytest.raises(mc.errors.UsageError, match="'a'"):
        table.files(filter=pc.field("a") == 1)


def test_the_bounds_that_files_shows_are_those_of_the_rows(flights: mc.Table) -> None:
    """Minimum, maximum, nulls and NaNs of every leaf; nothing for lists. [OB7]"""
    whole = flights.dataset().to_table()
    for row in flights.files().to_pylist():
        is_carrier = pc.is_null(whole["carrier"]) if row["carrier"] is None else pc.equal(whole["carrier"], row["carrier"])
        rows = whole.filter(pc.and_(pc.equal(whole["day"], row["day"]), pc.fill_null(is_carrier, False)))
        assert rows.num_rows == row["rows"] == 1
        assert set(row["bounds"]) == {"day", "carrier", "flight", "delay", "at", "plane.tail", "plane.seats"}
        delay, bounds = rows["delay"][0].as_py(), row["bounds"]["delay"]
        is_number = delay is not None and not math.isnan(delay)
        assert (bounds["min"], bounds["max"]) == ((delay, delay) if is_number else (None, None))
        assert (bounds["nulls"], bounds["nans"]) == (int(delay is None), int(delay is not None and math.isnan(delay)))
        assert row["bounds"]["flight"]["min"] == rows["flight"][0].as_py() and row["bounds"]["flight"]["exact"]
        assert row["bounds"]["plane.tail"]["max"] == rows["plane"][0].as_py()["tail"]


def test_long_texts_are_cut_and_still_found(tmp_path: Path) -> None:
    """A cut bound is marked; the value just beside it is not lost. [OB7] [RD6]"""
    texts = ["a" * 200, "a" * 64 + "\U0010ffff" * 3, "\U0010ffff" * 100, "z" * 63 + "\ud7ff" * 2]
    for text in texts:
        mc.write(pa.table({"s": [text]}), tmp_path / "t")
    table = mc.Table(tmp_path / "t")
    for row in table.files().to_pylist():
        shown = row["bounds"]["s"]
        assert not shown["exact"] and (shown["max"] is None or len(shown["max"]) <= 64)
    for text in texts:
        assert table.dataset().to_table(filter=pc.field("s") == text).num_rows == 1
        assert table.files(filter=pc.field("s") == text).num_rows >= 1
        assert table.files(filter=pc.field("s") >= text).num_rows >= 1


def test_a_column_beyond_those_with_bounds_prunes_nothing(root: Path) -> None:
    """[OB7] [RD6]"""
    mc.create_table(root, pa.schema([("a", pa.int64()), ("b", pa.int64())]), properties={"write.bounds-columns": "1"})
    for at in (1, 2):
        mc.write(pa.table({"a": [at], "b": [at]}), root)
    table = mc.Table(root)
    assert table.files(filter=pc.field("a") == 1).num_rows == 1
    assert table.files(filter=pc.field("b") == 1).num_rows == 2
    assert table.dataset().to_table(filter=pc.field("b") == 1).to_pylist() == [{"a": 1, "b": 1}]


def test_a_filter_on_the_partition_opens_no_other_file(root: Path) -> None:
    """pyarrow is told the partition values: files of other partitions may even be unreadable. [RD6]"""
    table = table_with(pa.table({"p": ["a", "b", None], "v": [1, 2, 3]}), root, partition_by="p")
    for row in table.files().to_pylist():
        if row["p"] != "a":
            (root / row["path"]).write_bytes(b"damaged")
    assert table.dataset().to_table(filter=pc.field("p") == "a").to_pylist() == [{"p": "a", "v": 1}]
    with pytest.raises(mc.errors.CorruptMetadataError, match=r"data file p=.* is damaged"):
        table.dataset().to_table()


# --- whatever the rows and the filter are ------------------------------------------------------------------------------
_MOMENTS = [
    dt.datetime(2013, 1, 1, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    dt.datetime(2999, 1, 1, tzinfo=UTC),
]
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "p": (pa.string(), st.sampled_from(["", "a", "a/b", "é"])),
    "q": (pa.int32(), st.sampled_from([-1, 0, 2**31 - 1])),
    "i": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1])),
    "d": (pa.float64(), st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 1.0, 5e-324])),
    "f": (pa.float32(), st.sampled_from([math.nan, math.inf, -0.0, 0.5, 16777216.0])),
    "n": (pa.decimal128(9, 2), st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("1234567.89")])),
    "s": (pa.string(), st.sampled_from(["", "a", "ab", "a" * 70, "a" * 70 + "b", "\U0010ffff" * 70, "é"])),
    "b": (pa.bool_(), st.booleans()),
    "t": (pa.timestamp("us", "UTC"), st.sampled_from(_MOMENTS)),
    "x": (pa.binary(), st.sampled_from([b"", b"\x00", b"\xff" * 70])),
    "m.a": (pa.int16(), st.sampled_from([-7, 0, 7])),
}
_OPS = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]


def _field(name: str) -> Any:
    return pc.field(*name.split("."))


def _comparison(name: str) -> st.SearchStrategy[Any]:
    kind, values = COLUMNS[name]
    typed = values.map(lambda value: pa.scalar(value, kind))
    literal = values if name in ("i", "d", "q", "m.a", "p", "s", "b") else typed
    if name == "m.a":  # pyarrow refuses to compare large integers with floats
        literal = literal | st.sampled_from([0.5, -0.0, 1e300, math.nan])
    if name in ("d", "f"):
        literal = literal | st.sampled_from([0, 1, 2**24 + 1] if name == "d" else [0, 1])
    compare = st.builds(lambda op, value: getattr(_field(name), op)(value), st.sampled_from(_OPS if name != "b" else _OPS[:2]), literal)
    member = st.lists(st.none() | values, min_size=1, max_size=3).map(lambda many: _field(name).isin(pa.array(many, kind)))
    tests = st.sampled_from([_field(name).is_null(), _field(name).is_valid(), _field(name).is_null(nan_is_null=True)])
    extra: list[st.SearchStrategy[Any]] = []
    if kind == pa.string():
        extra.append(values.map(lambda value: pc.starts_with(_field(name), value[:2])))
    if pa.types.is_floating(kind):
        extra.append(st.just(pc.is_nan(_field(name))))
    if kind == pa.bool_():
        extra.append(st.just(_field(name)))
    return st.one_of(compare, member, tests, *extra)


conditions = st.recursive(
    st.sampled_from(list(COLUMNS)).flatmap(_comparison),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner), st.builds(lambda a, b: a | b, inner, inner), inner.map(lambda a: ~a)
    ),
    max_leaves=4,
)
rows = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()})
_counter = itertools.count()


def _table(given_rows: list[dict[str, Any]]) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for name, (kind, _) in COLUMNS.items():
        array = pa.array([row[name] for row in given_rows], kind)
        if name == "m.a":
            columns["m"] = pa.StructArray.from_arrays([array], names=["a"], mask=pa.array([row["b"] is None for row in given_rows]))
        else:
            columns[name] = array
    return pa.table(columns)


@pytest.mark.thorough
@pytest.mark.parametrize("spilled", [False, True])
@settings(max_examples=rounds(6, 100))
@given(st.lists(st.lists(rows, min_size=1, max_size=3), min_size=1, max_size=3), st.lists(conditions, min_size=1, max_size=4))
def test_a_filter_gives_the_same_rows_over_the_pruned_files_as_over_all(
    spilled: bool, files: list[list[dict[str, Any]]], wanted: list[Any]
) -> None:
    """No file with a matching row is left out, inlined or spilled; the dataset finds the same rows. [RD6] [RD7]"""
    root = f"memory://planning/{spilled}/{next(_counter)}"
    with budgets(**{"inline_entry_bytes": 1} if spilled else {}):
        for each in files:
            mc.write(_table(each), root, partition_by=["p", "q"])
    table = mc.Table(root)
    assert bool(table.snapshot().manifests) is spilled
    dataset = table.dataset()
    below = table._ctx.store.filesystem()[1] + "/"
    whole = {each.path.removeprefix(below): each.to_table(schema=dataset.schema) for each in dataset.get_fragments()}
    assert sorted(whole) == sorted(table.files()["path"].to_pylist())
    for condition in wanted:
        kept = table.files(filter=condition)["path"].to_pylist()
        by_order = spark_order(condition, dataset.schema)  # NaN is above all numbers
        matching = {path: rows.filter(by_order) for path, rows in whole.items()}
        assert {path for path, found in matching.items() if found.num_rows} <= set(kept), condition
        # with a zero pyarrow's own pruning of row groups loses rows (apache/arrow#46183: a minimum of 0.0 is stored as -0.0)
        if not any(row[name] == 0 for row in itertools.chain(*files) for name in ("d", "f")):
            assert _shown([dataset.to_table(filter=condition)]) == _shown(list(matching.values())), condition


def _shown(tables: list[pa.Table]) -> list[str]:
    return sorted(repr(row) for table in tables for row in table.to_pylist())


def test_files_of_overlapping_manifests_are_listed_without_being_sorted_and_read_by_partition(
    monkeypatch: pytest.MonkeyPatch, set_budgets: SetBudgets
) -> None:
    """Listing a million files would take four times as long. What reads their rows is given them by partition, then path. [RD41]"""
    root = f"memory://planning/order/{next(_counter)}"
    set_budgets(inline_entry_bytes=1)
    days = pa.array([dt.date(2013, 1, day) for day in (2, 10, 3)])
    for _ in range(3):
        mc.write(pa.table({"day": days, "x": [1, 2, 3]}), root, partition_by=["day"])
    table = mc.Table(root)
    assert len(table.snapshot().manifests) == 3
    assert table.dataset().to_table().column("day").to_pylist() == sorted(days.to_pylist() * 3)
    entries = planning.entries_table(table._ctx, table.snapshot())
    assert entries.column("path").to_pylist() == sorted(entries.column("path").to_pylist())
    added = table.changed_files(2)["added"]
    assert added.column("day").to_pylist() == sorted(days.to_pylist() * 2), "changes, too, which are few"
    assert added.column("path").to_pylist() == sorted(added.column("path").to_pylist())
    monkeypatch.setattr(manifest_table, "unite", lambda *_, **__: pytest.fail("files were sorted"))
    listed = table.files()
    assert sorted(listed.column("path").to_pylist()) == sorted(entries.column("path").to_pylist())
    assert table.files(filter=pc.field("x") > 2).num_rows == 3
    assert listed.column("day").to_pylist() == sorted(days.to_pylist()) * 3, "each manifest's in its order"
    assert table.rollback(2, reason="nor what goes back").committed


def test_each_file_of_a_manifest_is_found_by_its_path_alone(set_budgets: SetBudgets) -> None:
    """The first and the last one, too, and no other manifest is read: a plan of files that are rewritten would lose them. [OB6]"""
    set_budgets(inline_entry_bytes=0, fan_in=99)
    store = memory()
    for first in (1, 4, 7):
        with begin(store) as job:
            for day in range(first, first + 3):
                job.write(pa.table({"day": [str(day)]}), partition_by=["day"])
    snapshot = session(store).open().snapshot
    assert [ref.files for ref in snapshot.manifests] == [3, 3, 3]
    for path in planning.entries_table(session(store), snapshot).column("path").to_pylist():
        own = session(calls := CountingStore(store))
        assert planning.entries_of(own, snapshot, [path]).column("path").to_pylist() == [path]
        assert len({call.name for call in calls.calls}) == 1
    assert planning.entries_of(session(store), snapshot, ["day=1/", "day=9/~"]).num_rows == 0
