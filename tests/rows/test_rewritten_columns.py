"""New columns with a value in the rows that are there, and types for what had none: files are rewritten in the same commit. [SC11]"""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import StaticTable
from tests.kit.row_works import before_its_create
from tests.kit.sizes import rounds
from tests.kit.tables import table_with

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.scan.planning import entries_table

DAY, MOMENT = dt.date(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)
TYPES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1), "bigint": st.integers(-(2**63), 2**63 - 1), "double": st.floats(),
    "string": st.text() | st.sampled_from(["", "NULL", "it's", "a = b", "\0"]), "binary": st.binary(), "boolean": st.booleans(),
    "decimal(38,10)": st.decimals(-(10**27), 10**27, places=10), "date": st.dates() | st.just(DAY),
    "timestamp_ntz": st.datetimes() | st.just(MOMENT), "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "array<int>": st.lists(st.integers(0, 9) | st.none()),
    "struct<a: int, b: string>": st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.text()}),
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for ids in ([1, 2], [3]):
        mc.write(pa.table({"id": ids, "day": ["a", None][: len(ids)]}), tmp_path / "t", partition_by="day")
    return tmp_path / "t"


@pytest.mark.parametrize("name", TYPES)
def test_a_default_is_in_every_row_that_is_there(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Itself, of whatever type; versions before lack the column. [SC11]"""

    @settings(max_examples=rounds(6, 100), deadline=None)
    @given(TYPES[name])
    def check(value: Any) -> None:
        path = tmp_path_factory.mktemp("t")
        table = table_with(pa.table({"id": [1, 2]}), path)
        table.add_column("c", name, default=value)
        kind = table.schema.field("c").type
        wanted = pa.array([value, value], kind)
        for found in (table.to_arrow(), table.dataset().to_table()):
            assert found.column("c").combine_chunks().equals(wanted) or value != value  # NaN is equal to nothing
            assert found.column("c").null_count == 0 and found.column("c").type == kind
        assert table.to_arrow(version=table.version - 1).column_names == ["id"]
        assert table.verify(deep=True).is_sound

    check()


def test_every_engine_and_export_reads_it_and_later_rows_are_null(path: Path) -> None:
    """Filters, changes of rows, streams of changes and other formats know of nothing but the files. [SC11] [EX1]"""
    table = mc.Table(path)
    outcome = table.noting("why").add_column("c", "int", default=7)
    assert (outcome.version, table.history(1)[0]["message"]) == (table.version, "why")
    mc.write(pa.table({"id": [4], "day": ["b"]}), path)
    wanted = [(1, 7), (2, 7), (3, 7), (4, None)]

    def pairs(rows: Any) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["c"]) for row in rows)

    table.export("delta")
    with duckdb.connect() as connection:
        by_duckdb = table.duckdb(connection).to_arrow_table().to_pylist()
    delta = pa.table(deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path))).execute("SELECT * FROM t").read_all())
    for rows in (table.to_arrow().to_pylist(), table.to_polars().collect().to_dicts(), by_duckdb, delta.to_pylist()):
        assert pairs(rows) == wanted
    assert table.to_arrow(filter="c = 7").num_rows == 3 and table.to_arrow(filter=pc.field("c").is_null()).num_rows == 1
    assert table.update({"c": "c + 1"}, where="c = 7 AND id < 3").rows_updated == 2
    changes = table.changed_rows(outcome.version).read_all()
    assert sorted(changes.column("c").drop_null().to_pylist()) == [7, 7, 8, 8]
    assert table.verify(deep=True).is_sound


@pytest.mark.parametrize(
    ("name", "kind", "value", "says"),
    [
        ("c", "int", 2**31, "invalid default '2147483648': it is no value of the type integer"),
        ("c", "int", "7", "no value of the type integer"),
        ("c", "date", "2020-01-01", "no value of the type date"),
        ("c", "timestamp", MOMENT, "no value of the type timestamp"),
        ("c", "decimal(3,1)", Decimal("1.23"), "no value of the type"),
        ("c", "string", "\ud800", "no value of the type string"),
        ("c", "int", object(), "no value of the type integer"),
        ("c", "void", 1, "no value of the type void"),
        ("s.b", "int", 1, "only whole columns have one"),
    ],
)
def test_what_is_no_value_of_the_column_is_refused(tmp_path: Path, name: str, kind: str, value: Any, says: str) -> None:
    """Before anything is written. [SC11]"""
    table = table_with(pa.table({"id": [1], "s": [{"a": 1}]}), tmp_path / "t")
    before = (table.version, sorted(tmp_path.rglob("*")))
    with pytest.raises(mc.errors.UsageError, match=says):
        table.add_column(name, kind, default=value)
    assert (table.version, sorted(tmp_path.rglob("*"))) == before


UNTYPED = pa.table(
    {
        "id": [1, 2],
        "l": pa.array([[], [None]], pa.list_(pa.null())),
        "n": pa.nulls(2),
        "s": pa.array([{"a": None, "b": 1}, None], pa.struct([("a", pa.null()), ("b", pa.int64())])),
        "m": pa.array([[("x", None)], []], pa.map_(pa.string(), pa.null())),
    }
)
TYPED = {"l": "array<bigint>", "n": "string", "s.a": "double", "m.value": "int"}


def test_what_was_null_so_far_gets_a_type(tmp_path: Path) -> None:
    """Lists that were empty, members, values of maps: each value stays, beside those that need the type. [SC11]"""
    table = table_with(UNTYPED, tmp_path / "t")
    more = pa.table(
        {"id": [3], "l": [[7]], "n": ["x"], "s": [{"a": 0.5, "b": 2}], "m": pa.array([[("y", 1)]], pa.map_(pa.string(), pa.int32()))}
    )
    with pytest.raises(mc.errors.SchemaMismatchError, match=r"widen_column\('l.element'"):
        mc.write(more.drop_columns(["n"]), tmp_path / "t", merge_schema=True)
    start = table.version
    for name, kind in TYPED.items():
        assert table.widen_column(name, kind).committed
        assert table.widen_column(name, kind).already_committed
    mc.write(more, tmp_path / "t")
    assert table.to_arrow().sort_by("id").to_pylist() == [*UNTYPED.to_pylist(), *more.to_pylist()]
    assert table.to_arrow(version=start).to_pylist() == UNTYPED.to_pylist() and table.verify(deep=True).is_sound
    changed = table.changed_rows(start - 1).read_all()
    assert sorted(changed.column("id").to_pylist()) == [1, 2, 3], "rows that only got a type did not change"
    mc.write(UNTYPED.select(["id", "n"]), tmp_path / "u")
    with pytest.raises(mc.errors.UsageError, match="void to any that is not nested"):
        mc.Table(tmp_path / "u").widen_column("n", "array<int>")


def test_types_widen_inside_lists_and_maps_and_no_file_is_rewritten(tmp_path: Path) -> None:
    """[SC5]"""
    inside = pa.table({"l": pa.array([[1]], pa.list_(pa.int32())), "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int16()))})
    table = table_with(inside, tmp_path / "t")
    files = table.files()["path"].to_pylist()
    table.widen_column("l", pa.list_(pa.int64()))
    table.widen_column("m", "map<string, int>")
    assert table.files()["path"].to_pylist() == files and table.to_arrow().to_pylist() == inside.to_pylist()
    assert table.schema.field("l").type.value_type == pa.int64() and table.schema.field("m").type.item_type == pa.int32()


@pytest.mark.parametrize("work", ["default", "type"])
def test_no_file_that_others_add_meanwhile_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    """It is done again; a job that wrote before and commits after has null in the column, or conflicts. [SC11] [CF16] [CF8] [RC11]"""
    path, rows = tmp_path / "t", UNTYPED.select(["id", "l"])
    table, job = table_with(rows, path), mc.begin(path)
    job.write(rows)
    with before_its_create(monkeypatch, lambda: mc.write(rows, path)):
        table.add_column("c", "int", default=1) if work == "default" else table.widen_column("l", "array<int>")
    assert table.to_arrow().num_rows == 4 and table.verify(deep=True).is_sound
    assert len(entries_table(table._ctx, table.snapshot()).column("added").unique()) == 1, "all files are new"
    if work == "type":
        with pytest.raises(mc.errors.CommitConflictError, check=lambda error: error.rule == "schema"):
            job.commit()
        return
    job.commit()
    assert sorted(table.to_arrow()["c"].to_pylist(), key=str) == [1, 1, 1, 1, None, None]


def test_a_table_without_rows_gets_the_column_alone(tmp_path: Path) -> None:
    """And one that others have added meanwhile is refused. [SC11]"""
    table = mc.create_table(tmp_path / "t", pa.schema([("id", pa.int64()), ("n", pa.null())]))
    assert table.add_column("c", "int", default=1).committed and table.widen_column("n", "int").committed
    mc.write(pa.table({"id": [1], "n": pa.array([1], pa.int32()), "c": pa.array([2], pa.int32())}), tmp_path / "t")
    with pytest.raises(mc.errors.UsageError, match="has a column 'c' already"):
        table.add_column("c", "int", default=1)
    assert table.to_arrow().to_pylist() == [{"id": 1, "n": 1, "c": 2}]


INSIDE = pa.table(
    {
        "id": [1, 2, 3],
        "s": pa.array(
            [{"a": 1, "b": {"c": "x", "d": [1]}}, None, {"a": None, "b": None}],
            pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string()), ("d", pa.list_(pa.int64()))]))]),
        ),
        "l": [[{"k": 1, "v": "y"}, None], [], None],
        "m": pa.array([[("k", {"u": 1, "w": 2})], [], None], pa.map_(pa.string(), pa.struct([("u", pa.int64()), ("w", pa.int64())]))),
    }
)


def test_members_get_names_and_go_with_their_values(root: Path) -> None:
    """However deep, in structs of lists and maps; ids stay, another member of a dropped name is new. [SC12] [SC9] [CH6] [EX6]"""
    mc.write(INSIDE.slice(0, 2), root)
    table = table_with(INSIDE.slice(2), root)
    start, ids = table.version, {column["name"]: column["id"] for column in table.describe()["columns"]}
    table.comment_column("s.b.c", "a text")
    for name, to in (("s.b.c", "C"), ("S.B", "b"), ("l.element.v", "k2"), ("m.value.u", "ü b")):
        assert table.rename_column(name, to).committed
    assert table.rename_column("s.b.C", "C").already_committed
    for name in ("s.a", "l.element.k", "m.value.w", "s.b.d"):
        assert table.drop_column(name).committed
    wanted = [
        {"id": 1, "s": {"b": {"C": "x"}}, "l": [{"k2": "y"}, None], "m": [("k", {"ü b": 1})]},
        {"id": 2, "s": None, "l": [], "m": []},
        {"id": 3, "s": {"b": None}, "l": None, "m": None},
    ]
    assert table.to_arrow().sort_by("id").to_pylist() == wanted and table.verify(deep=True).is_sound
    assert table.to_arrow(version=start).sort_by("id").to_pylist() == INSIDE.to_pylist()
    columns: Any = {column["name"]: column for column in table.describe()["columns"]}
    assert {name: column["id"] for name, column in columns.items() if column["comment"] is None} == ids
    assert columns["s.b.C"]["comment"] == "a text"
    assert table.to_arrow(filter=pc.field("s", "b", "C") == "x").num_rows == 1 == table.to_arrow(filter="s.b.C = 'x'").num_rows
    table.add_column("s.a", "string")
    assert [row and row["a"] for row in table.to_arrow().sort_by("id")["s"].to_pylist()] == [None, None, None]
    assert table.history()[-1]["version"] == 1 and table.changed_rows(start - 2).read_all().num_rows == 3
    table.rollback(start, reason="back")
    assert table.to_arrow().sort_by("id").to_pylist() == INSIDE.to_pylist()


@pytest.mark.parametrize("names", [("x.y", "x"), ("x", "x.y")])
@pytest.mark.parametrize(("above", "wrap"), [("s", lambda value: value), ("l.element", lambda value: [value])])
def test_a_path_of_two_members_changes_neither(tmp_path: Path, names: tuple[str, str], above: str, wrap: Callable[[Any], Any]) -> None:
    """Whatever their order; a column of that name comes before both. [SC12]"""
    values = {"x.y": {"k": 1, "n": 0}, "x": {"y": 2, "z": 3}}
    data = [{"id": 1, above.partition(".")[0]: wrap({name: values[name] for name in names})}]
    table = table_with(pa.Table.from_pylist(data), tmp_path / "t")
    for change in (
        lambda: table.drop_column(f"{above}.x.y"),
        lambda: table.rename_column(f"{above}.X.y", "new"),
        lambda: table.comment_column(f"{above}.x.y", "text"),
        lambda: table.widen_column(f"{above}.x.y", "double"),
        lambda: table.add_column(f"{above}.x.y", "long"),
        lambda: table.add_column(f"{above}.x.y.new", "long"),
    ):
        with pytest.raises(mc.errors.UsageError, match=r"path of two members.*Rename what is above"):
            change()
    assert main(["drop-column", table.url, f"{above}.x.y"]) == 2 and table.version == 2
    mc.write(table.to_arrow().append_column(f"{above}.x.y", pa.array([7])), tmp_path / "t", mode="overwrite", merge_schema=True)
    table.drop_column(f"{above}.x.y")
    table.drop_column(f"{above}.x.y.k")
    table.rename_column(f"{above}.x", "w")
    table.rename_column(f"{above}.x.y", "v")
    left = {"v": {"n": 0}, "w": {"y": 2, "z": 3}}
    assert table.to_arrow().to_pylist() == [{"id": 1, above.partition(".")[0]: wrap(left)}]


def test_other_engines_know_members_by_their_new_names(tmp_path: Path) -> None:
    """[SC12] [EX1]"""
    table = table_with(INSIDE.select(["id", "s"]), tmp_path / "t")
    table.set_properties({"export.formats": "iceberg,delta"})
    table.rename_column("s.b.c", "text")
    table.drop_column("s.a")
    mc.write(pa.table({"id": [4], "s": [{"b": {"text": "new", "d": [2]}}]}), tmp_path / "t")
    wanted = table.to_arrow().sort_by("id").to_pylist()
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path / "t")))
    delta = pa.table(query.execute("SELECT * FROM t ORDER BY id").read_all())
    iceberg = StaticTable.from_metadata(f"{tmp_path}/t/_iceberg").scan().to_arrow().sort_by("id")
    assert delta.to_pylist() == iceberg.to_pylist() == wanted
    with duckdb.connect() as connection:
        assert sorted(table.duckdb(connection).to_arrow_table().to_pylist(), key=lambda row: row["id"]) == wanted
    assert sorted(table.to_polars().collect().to_dicts(), key=lambda row: row["id"]) == wanted


@pytest.mark.parametrize("act", [lambda table: table.rename_column("s.a", "z"), lambda table: table.drop_column("s.a")])
def test_files_with_the_former_name_of_a_member_conflict(tmp_path: Path, act: Callable[[mc.Table], Any]) -> None:
    """Whoever began before. [SC12] [CF8]"""
    rows = INSIDE.select(["id", "s"])
    mc.write(rows, tmp_path / "t")
    job = mc.begin(tmp_path / "t")
    job.write(rows)
    table = mc.Table(tmp_path / "t")
    act(table)
    with pytest.raises(mc.errors.CommitConflictError) as caught:
        job.commit()
    assert caught.value.rule == "schema" and table.to_arrow().num_rows == 3


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda table: table.rename_column("s.a", "B"), "The struct of 's.a' has a column 'B' already"),
        (lambda table: table.rename_column("s.nope", "x"), "no column 's.nope'"),
        (lambda table: table.rename_column("l.element", "x"), "has no name of its own"),
        (lambda table: table.rename_column("m.value", "x"), "has no name of its own"),
        (lambda table: table.drop_column("m.key"), "has no name of its own"),
        (lambda table: table.drop_column("o.only"), "'o.only' is the struct's only one"),
        (lambda table: table.drop_column("s.b.d"), "constraint 'known'"),
    ],
)
def test_members_that_stay(tmp_path: Path, act: Callable[[mc.Table], Any], says: str) -> None:
    """[SC12] [CK3]"""
    table = table_with(INSIDE.append_column("o", pa.array([{"only": 1}] * 3)), tmp_path / "t")
    table.add_constraint("known", "s.b.d IS NULL OR id < 9")
    before = table.version
    with pytest.raises(mc.errors.UsageError, match=says):
        act(table)
    assert table.version == before


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "7", 7), ("string", "it's", "it's"), ("double", "0.5", 0.5), ("decimal(5,2)", "1.50", Decimal("1.50")),
        ("date", "2020-02-29", dt.date(2020, 2, 29)), ("timestamp", "2020-01-01T00:00:00Z", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("boolean", "true", True), ("int", "7x", None), ("byte", "300", None), ("array<int>", "[1]", None),
    ],
)  # fmt: skip
def test_a_default_on_the_command_line(tmp_path: Path, kind: str, text: str, value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Its text is the value, in the column's type, or the error is that of Python. [SC11]"""
    mc.write(pa.table({"id": [1]}), tmp_path / "t")
    status = main(["add-column", str(tmp_path / "t"), "c", kind, "--default", text])
    if value is not None:
        assert status == 0 and mc.Table(tmp_path / "t").to_arrow()["c"].to_pylist() == [value]
    else:
        assert status == 2 and "default" in capsys.readouterr().err and mc.Table(tmp_path / "t").schema.names == ["id"]
