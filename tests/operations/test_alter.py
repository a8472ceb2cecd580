"""A table's columns change and its old files stay: every reader sees the new columns over old rows, and no value in a wrong place."""

import itertools
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.sizes import SetBudgets, rounds
from tests.kit.tables import table_with

import manifestcommit as mc

Rows = list[dict[str, Any]]


def by_duckdb(dataset: ds.Dataset) -> Rows:
    with duckdb.connect() as connection:
        connection.register("dataset", dataset)
        return connection.sql("select * from dataset").to_arrow_table().to_pylist()


READERS: dict[str, Callable[[ds.Dataset], Rows]] = {
    "pyarrow": lambda dataset: dataset.to_table().to_pylist(),
    "batches": lambda dataset: pa.Table.from_batches(dataset.to_batches(batch_size=1), dataset.schema).to_pylist(),
    "duckdb": by_duckdb,
    "polars": lambda dataset: pl.scan_pyarrow_dataset(dataset).collect().to_arrow().to_pylist(),
    "pickled": lambda dataset: pickle.loads(pickle.dumps(dataset)).to_table().to_pylist(),
}


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: row.get("id", 0))


def check(table: mc.Table, wanted: Rows, **choice: Any) -> None:
    """Every reader gives these rows."""
    dataset = table.dataset(**choice)
    for name, read in READERS.items():
        assert in_order(read(dataset)) == wanted, name
    assert dataset.count_rows() == len(wanted)


@pytest.fixture(params=[False, True], ids=["inlined", "spilled"])
def spilling(request: pytest.FixtureRequest, set_budgets: SetBudgets) -> bool:
    """Whether entries go to manifests at once."""
    if request.param:
        set_budgets(inline_entry_bytes=1)
    return bool(request.param)


# --- adding and widening ---------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("spilling")
def test_merging_adds_columns_which_are_null_in_old_rows(root: Path) -> None:
    """[SC4] [SC5]"""
    mc.write(pa.table({"id": [1]}), root)
    mc.write(pa.table({"id": [2], "s": ["x"], "n": [{"a": 1, "b": [1.5]}]}), root, merge_schema=True)
    table = table_with(pa.table({"id": [3]}), root)
    check(table, [{"id": 1, "s": None, "n": None}, {"id": 2, "s": "x", "n": {"a": 1, "b": [1.5]}}, {"id": 3, "s": None, "n": None}])
    check(table, [{"id": 1}], version=2)
    assert table.files(filter=pc.field("s").is_null()).num_rows == 2 or table.files(filter=pc.field("s").is_null()).num_rows == 3
    assert table.files(filter=pc.field("s") == "x").num_rows >= 1


@pytest.mark.usefixtures("spilling")
def test_a_partition_column_can_be_widened_and_renamed(root: Path) -> None:
    """Its folders stay, its values are the same, overwrites and filters find them. [SC5] [SC6] [PT2]"""
    mc.write(pa.table({"id": [1, 2], "p": pa.array([7, None], pa.int8())}), root, partition_by="p")
    table = table_with(pa.table({"id": [3], "p": pa.array([2**40], pa.int64())}), root, merge_schema=True)
    table.rename_column("p", "part")
    mc.write(pa.table({"id": [4], "part": pa.array([7], pa.int64())}), root)
    check(table, [{"id": 1, "part": 7}, {"id": 2, "part": None}, {"id": 3, "part": 2**40}, {"id": 4, "part": 7}])
    assert sorted(table.files()["part"].to_pylist(), key=str) == [2**40, 7, 7, None]
    assert table.files(filter=pc.field("part") == 7).num_rows == 2
    assert table.files(filter=pc.field("part").is_null()).num_rows == 1
    assert sorted(table.dataset().to_table(filter=pc.field("part") == 7)["id"].to_pylist()) == [1, 4]
    mc.write(pa.table({"id": [5], "part": [7]}), root, mode="overwrite", overwrite={"part": 7})
    check(table, [{"id": 2, "part": None}, {"id": 3, "part": 2**40}, {"id": 5, "part": 7}])


def test_merging_reaches_into_structs_and_lists(root: Path) -> None:
    """[SC4] [SC5]"""
    mc.write(pa.table({"id": [1], "s": pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))}), root)
    kind = pa.struct([("a", pa.int64()), ("b", pa.string())])
    mc.write(pa.table({"id": [2], "s": pa.array([{"a": 2**40, "b": "x"}], kind)}), root, merge_schema=True)
    check(mc.Table(root), [{"id": 1, "s": {"a": 1, "b": None}}, {"id": 2, "s": {"a": 2**40, "b": "x"}}])


# --- renaming and dropping -------------------------------------------------------------------------------------------
@pytest.fixture
def renamed(root: Path) -> mc.Table:
    """v was called u and is now w; files of every time; u is a column again, of another type."""
    table = mc.create_table(root, pa.schema([("id", pa.int64()), ("u", pa.int64()), ("p", pa.string())]), partition_by="p")
    mc.write(pa.table({"id": [1], "u": [10], "p": ["a"]}), root)
    table.rename_column("u", "v")
    mc.write(pa.table({"id": [2], "v": [20], "p": ["b"]}), root)
    table.add_column("u", pa.string())
    mc.write(pa.table({"id": [3], "v": [30], "p": [None], "u": ["x"]}), root)
    table.rename_column("v", "w")
    mc.write(pa.table({"id": [4], "w": [40], "p": ["a"], "u": ["y"]}), root)
    return table


RENAMED = [
    {"id": 1, "w": 10, "p": "a", "u": None},
    {"id": 2, "w": 20, "p": "b", "u": None},
    {"id": 3, "w": 30, "p": None, "u": "x"},
    {"id": 4, "w": 40, "p": "a", "u": "y"},
]


def test_a_renamed_column_keeps_its_values_in_every_file(renamed: mc.Table) -> None:
    """Written before, between and after; an old name that is used again shows no old value. [SC6]"""
    check(renamed, RENAMED)
    check(renamed, [{"id": 1, "u": 10, "p": "a"}], version=2)
    check(renamed, [{"id": 1, "v": 10, "p": "a"}, {"id": 2, "v": 20, "p": "b"}], version=4)


CONDITIONS: dict[str, tuple[ds.Expression, str, Callable[[dict[str, Any]], bool]]] = {
    "renamed": (pc.field("w") > 10, "w > 10", lambda row: row["w"] > 10),
    "reused name": (pc.field("u") == "x", "u = 'x'", lambda row: row["u"] == "x"),
    "reused name null": (pc.field("u").is_null(), "u is null", lambda row: row["u"] is None),
    "partition": (pc.field("p") == "a", "p = 'a'", lambda row: row["p"] == "a"),
    "both": ((pc.field("p") == "a") & (pc.field("w") < 40), "p = 'a' and w < 40", lambda row: row["p"] == "a" and row["w"] < 40),
    "member": (pc.field("w").isin([10, 40]), "w in (10, 40)", lambda row: row["w"] in (10, 40)),
    "nothing": (pc.field("w") > 99, "w > 99", lambda row: False),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_filters_and_columns_name_what_users_see(renamed: mc.Table, name: str) -> None:
    """In pyarrow, DuckDB, polars and `files`; filtering on a column that is not read. [RD7] [SC6] [RD6]"""
    expression, sql, keep = CONDITIONS[name]
    wanted = [row for row in RENAMED if keep(row)]
    ids = [row["id"] for row in wanted]
    dataset = renamed.dataset()
    assert in_order(dataset.to_table(filter=expression).to_pylist()) == wanted
    assert sorted(dataset.to_table(columns=["id"], filter=expression)["id"].to_pylist()) == ids
    assert dataset.to_table(columns={"double": pc.multiply(pc.field("w"), 2)}, filter=expression).num_rows == len(ids)
    assert sorted(row["id"] for batch in dataset.to_batches(filter=expression) for row in batch.to_pylist()) == ids
    assert dataset.count_rows(filter=expression) == len(ids)
    assert dataset.scanner(columns=["w", "id"], filter=expression).to_table().column_names == ["w", "id"]
    with duckdb.connect() as connection:
        connection.register("dataset", dataset)
        assert connection.sql(f"select id from dataset where {sql} order by id").fetchall() == [(each,) for each in ids]
        assert connection.sql(f"select count(*) from dataset where {sql}").fetchall() == [(len(ids),)]
    lazy = pl.scan_pyarrow_dataset(dataset)
    assert sorted(lazy.sql(f"select id from self where {sql}").collect()["id"].to_list()) == ids
    listed = renamed.files(filter=expression)
    assert sum(listed["rows"].to_pylist()) >= len(ids)
    assert set(ids) <= {row["bounds"]["id"]["min"] for row in listed.to_pylist()}


def test_a_name_may_change_in_case_only(root: Path) -> None:
    """[SC6]"""
    table = table_with(pa.table({"id": [1], "a": [10]}), root)
    table.rename_column("a", "A")
    check(table, [{"id": 1, "A": 10}])


@pytest.mark.usefixtures("spilling")
@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.list_(pa.int64())])
def test_a_dropped_column_does_not_come_back_with_its_name(root: Path, kind: pa.DataType) -> None:
    """Neither by add_column nor by merging; not in rows, not in filters, not in bounds. [SC6] [SC1]"""
    value = {pa.int64(): 99, pa.string(): "x"}.get(kind, [1])
    table = table_with(pa.table({"id": [1], "a": [10]}), root)
    table.drop_column("a")
    check(table, [{"id": 1}])
    mc.write(pa.table({"id": [2]}), root)
    with pytest.raises(mc.errors.SchemaMismatchError, match="'a'"):
        mc.write(pa.table({"id": [3], "a": pa.array([value], kind)}), root)
    mc.write(pa.table({"id": [3], "a": pa.array([value], kind)}), root, merge_schema=True)
    check(table, [{"id": 1, "a": None}, {"id": 2, "a": None}, {"id": 3, "a": value}])
    if not pa.types.is_nested(kind):
        assert 4 not in table.files(filter=pc.field("a").is_null())["added_version"].to_pylist()[3:]
        assert {1, 2} <= set(table.dataset().to_table(filter=pc.field("a").is_null())["id"].to_pylist())
        shown = [row["bounds"]["a"]["min"] for row in table.files().to_pylist()]
        assert shown.count(None) == 2 and value in shown
    table.drop_column("a")
    table.add_column("a", pa.bool_())
    check(table, [{"id": 1, "a": None}, {"id": 2, "a": None}, {"id": 3, "a": None}])
    check(table, [{"id": 1, "a": 10}], version=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.rename_column("nope", "x"), "no column 'nope'; it has 'id', 'p', 'v'"),
        (lambda t: t.rename_column("v", "P"), "'P' already"),
        (lambda t: t.rename_column("v", ""), "invalid new_name ''"),
        (lambda t: t.drop_column("nope"), "no column 'nope'"),
        (lambda t: t.drop_column("p"), "'p' partitions the table"),
        (lambda t: t.add_column("V", "long"), "'v' already"),
        (lambda t: t.add_column("", "long"), "invalid name ''"),
        (lambda t: t.add_column("x", pa.time32("s")), "'x'"),
        (lambda t: t.add_column("x", int), "invalid type"),
        (lambda t: t.add_column("x", "decimal(39,0)"), r"invalid type 'decimal\(39,0\)'"),
    ],
)
def test_a_change_that_no_table_can_take_is_refused(root: Path, change: Callable[[mc.Table], Any], message: str) -> None:
    """Nothing is committed; the message names the column. [SC1] [SC2] [SC6]"""
    table = table_with(pa.table({"id": [1], "p": ["x"], "v": [1]}), root, partition_by="p")
    with pytest.raises((mc.errors.UsageError, mc.errors.SchemaMismatchError), match=message):
        change(table)
    assert table.snapshot().version == 2


def test_columns_are_added_by_every_spelling_of_a_type(root: Path) -> None:
    """[SC2]"""
    table = table_with(pa.table({"id": [1]}), root)
    table.add_column("a", "decimal(5,2)")
    table.add_column("b", pa.decimal128(5, 2))
    table.add_column("c", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.map_(pa.string(), pa.date32()))])))
    kinds = {field.name: field.type for field in table.dataset().schema}
    assert kinds["a"] == kinds["b"] == pa.decimal128(5, 2)
    assert table.dataset().to_table().to_pylist() == [{"id": 1, "a": None, "b": None, "c": None}]
    ids = [field.id for field in table.snapshot().schema.fields]  # type: ignore[union-attr]
    assert len(set(ids)) == 4


# --- beside jobs under way -------------------------------------------------------------------------------------------
def test_files_of_a_job_under_way_fit_a_renaming(root: Path) -> None:
    """Written under the old name, committed after the renaming: read under the new one. [CF8] [SC6]"""
    mc.write(pa.table({"id": [1], "a": [10]}), root)
    job = mc.begin(root)
    job.write(pa.table({"id": [2], "a": [20]}))
    table = mc.Table(root)
    table.rename_column("a", "b")
    table.add_column("a", pa.int64())
    job.commit()
    check(table, [{"id": 1, "b": 10, "a": None}, {"id": 2, "b": 20, "a": None}])


def test_files_of_a_job_under_way_that_hold_a_dropped_column_conflict(root: Path) -> None:
    """[CF8] [CF1]"""
    mc.write(pa.table({"id": [1], "a": [10]}), root)
    job = mc.begin(root)
    job.write(pa.table({"id": [2], "a": [20]}))
    mc.Table(root).drop_column("a")
    with pytest.raises(mc.errors.CommitConflictError, match=r"'a'.*dropped"):
        job.commit()
    check(mc.Table(root), [{"id": 1}])


def test_a_job_that_writes_twice_may_add_columns_in_between(root: Path) -> None:
    """[SC5] [SC4]"""
    with mc.begin(root) as job:
        job.write(pa.table({"id": [1]}))
        job.write(pa.table({"id": [2], "a": pa.array([20], pa.int32())}), merge_schema=True)
        job.write(pa.table({"id": [3], "a": [2**40]}), merge_schema=True)
    check(mc.Table(root), [{"id": 1, "a": None}, {"id": 2, "a": 20}, {"id": 3, "a": 2**40}])


# --- the dataset of a table with renamed columns is a dataset in every respect -----------------------------------------
PROGRAM = """
import sys
import duckdb, polars as pl, pyarrow as pa, pyarrow.compute as pc, pyarrow.dataset as ds
import manifestcommit as mc
dataset, copy = mc.Table(sys.argv[1]).dataset(), sys.argv[2]
def right_or_refused(read):
    try:
        found = read()
    except (NotImplementedError, OSError) as error:
        assert 'to_table' in str(error), error
    else:
        assert sorted(found.to_pylist(), key=str) == sorted(dataset.to_table().to_pylist(), key=str), found
for line in sys.stdin:
    print(line.strip(), flush=True)
    exec(line)
"""
WHOLE_READS = """
assert str(dataset.partition_expression) == 'true'
assert dataset.take([0, 2], columns=['w']).num_rows == 2
ds.write_dataset(dataset, copy + '/plain', format='parquet'); assert ds.dataset(copy + '/plain').count_rows() == 4
mc.write(dataset, copy + '/table'); assert mc.Table(copy + '/table').dataset().to_table().num_rows == 4
right_or_refused(lambda: dataset.sort_by('w').to_table())
right_or_refused(lambda: dataset.join(ds.dataset(pa.table({'w': [10, 20, 30, 40]})), 'w').to_table())
right_or_refused(lambda: ds.Scanner.from_dataset(dataset).to_table())
right_or_refused(lambda: ds.dataset([dataset, dataset]).to_table().slice(0, 4))
right_or_refused(lambda: dataset.filter(pc.field('w') > 0).to_table())
right_or_refused(lambda: pa.concat_tables([each.to_table() for each in dataset.get_fragments()]))
right_or_refused(lambda: dataset.replace_schema(dataset.schema).to_table())
"""


def _run(statements: str, table: mc.Table, copy: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, table.url, str(copy)]
    done = subprocess.run(command, input=statements.strip(), capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, f"{done.returncode} in or after {done.stdout.strip().splitlines()[-1:]}: {done.stderr[-1500:]}"
    assert done.stdout.strip() == statements.strip()


@pytest.mark.thorough
def test_no_call_on_the_dataset_of_a_renamed_table_ends_the_process(renamed: mc.Table, tmp_path: Path) -> None:
    """Each works, or says what to call instead; none crashes, and none shows other names or rows. [RD2] [RD7]"""
    _run(WHOLE_READS, renamed, tmp_path / "copy")


BROKEN_OFF_READS = """
assert dataset.head(9, columns=['w'], filter=pc.field('w') > 10, batch_size=10).num_rows == 9
assert next(iter(dataset.to_batches(batch_size=10, filter=pc.field('w') > 10))).num_rows <= 10
assert len(duckdb.from_arrow(dataset).limit(1).fetchall()) == 1
assert pl.scan_pyarrow_dataset(dataset).head(1).collect().height == 1
assert dataset.head(1, batch_size=10).num_rows == 1
"""


@pytest.mark.thorough
@pytest.mark.parametrize("time", range(2))  # what a race decides may go well once
def test_a_read_of_a_renamed_table_that_is_broken_off_lets_the_process_end(root: Path, tmp_path: Path, time: int) -> None:
    """The rest is not read ahead while the interpreter ends: no abort, no hang. [RD2]"""
    table = table_with(pa.table({"id": range(100_000), "u": range(100_000)}), root)
    table.rename_column("u", "w")
    _run(BROKEN_OFF_READS, table, tmp_path / "copy")


def test_reading_one_column_of_a_renamed_table_reads_only_that_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renaming does not make every later query read the whole table. [RD7]"""
    table = table_with(pa.table({"id": [1], "a": [10], "huge": ["x" * 100]}), root)
    table.rename_column("a", "b")
    dataset = table.dataset()
    asked: list[Any] = []
    inner = dataset._dataset
    monkeypatch.setattr(dataset, "_dataset", _Recording(inner, asked))
    assert dataset.to_table(columns=["id"], filter=pc.field("b") == 10).to_pylist() == [{"id": 1}]
    assert asked and "huge" not in asked[0]


class _Recording:
    """The dataset inside, and which columns were asked of it."""

    def __init__(self, inner: ds.Dataset, asked: list[Any]) -> None:
        self._inner, self._asked = inner, asked

    def scanner(self, columns: Any = None, **options: Any) -> ds.Scanner:
        self._asked.append(list(columns) if columns is not None else self._inner.schema.names)
        return self._inner.scanner(columns=columns, **options)


# --- any sequence of changes -----------------------------------------------------------------------------------------
_KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "byte": (pa.int8(), 7),
    "long": (pa.int64(), 2**40),
    "string": (pa.string(), "x"),
    "double": (pa.float64(), 0.5),
}
_WIDENS = {("byte", "long")}
names = st.sampled_from(["a", "b", "c", "a b", "A%41"])
operations = st.one_of(
    st.tuples(st.just("write"), st.lists(st.tuples(names, st.sampled_from(list(_KINDS))), max_size=3, unique_by=lambda each: each[0])),
    st.tuples(st.just("rename"), st.tuples(names, names)),
    st.tuples(st.just("drop"), names),
    st.tuples(st.just("add"), st.tuples(names, st.sampled_from(list(_KINDS)))),
)
_counter = itertools.count()


class _Model:
    """What the table must show: rows by column identity, and which name each identity has now."""

    def __init__(self) -> None:
        self.columns: dict[str, tuple[int, str]] = {}
        self.rows: Rows = []
        self._ids = itertools.count()

    def add(self, name: str, kind: str) -> None:
        self.columns[name] = (next(self._ids), kind)

    def shown(self) -> Rows:
        return [{"id": at, **{name: row.get(each) for name, (each, _) in self.columns.items()}} for at, row in enumerate(self.rows)]


@pytest.mark.thorough
@settings(max_examples=rounds(10, 400))
@given(st.lists(operations, max_size=7))
def test_any_sequence_of_changes_shows_what_a_model_of_columns_shows(steps: list[tuple[str, Any]]) -> None:
    """Writes that merge, renamings, drops and additions in any order: each value stays with its column. [SC4]-[SC6] [RD7]"""
    root = f"memory://evolution/{next(_counter)}"
    model = _Model()
    table = table_with(pa.table({"id": pa.array([], pa.int64())}), root)
    for step in steps:
        _step(table, root, model, *step)
    dataset = table.dataset()
    for read in (READERS["pyarrow"], by_duckdb, READERS["polars"]):
        assert in_order(read(dataset)) == model.shown()
    for name, (_, kind) in model.columns.items():
        condition = pc.field(name) == pa.scalar(_KINDS[kind][1])
        wanted = [row["id"] for row in model.shown() if row[name] == _KINDS[kind][1]]
        assert sorted(dataset.to_table(columns=["id"], filter=condition)["id"].to_pylist()) == wanted
        assert sum(table.files(filter=condition)["rows"].to_pylist()) >= len(wanted)


def _step(table: mc.Table, root: str, model: _Model, kind: str, given: Any) -> None:
    taken = {name.lower() for name in model.columns}
    if kind == "write":
        fitting = [(n, k) for n, k in given if n not in model.columns or model.columns[n][1] == k or (model.columns[n][1], k) in _WIDENS]
        for name, each in fitting:
            if name not in model.columns:
                model.add(name, each)
            model.columns[name] = (model.columns[name][0], each)
        data = {"id": pa.array([len(model.rows)], pa.int64())} | {n: pa.array([_KINDS[k][1]], _KINDS[k][0]) for n, k in fitting}
        mc.write(pa.table(data), root, merge_schema=True)
        model.rows.append({model.columns[n][0]: _KINDS[k][1] for n, k in fitting})
    elif kind == "rename" and given[0] in model.columns and (given[1].lower() not in taken):
        table.rename_column(*given)
        model.columns = {given[1] if name == given[0] else name: each for name, each in model.columns.items()}
    elif kind == "drop" and given in model.columns:
        table.drop_column(given)
        del model.columns[given]
    elif kind == "add" and given[0].lower() not in taken:
        table.add_column(given[0], _KINDS[given[1]][0])
        model.add(*given)


def test_members_of_structs_are_added_and_widened_by_their_paths(root: Path) -> None:
    """A column called `s.a` comes before the member a of s. [SC5] [SC6]"""
    inner = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.struct([("x", pa.int8())])))])
    table = table_with(pa.table({"id": [1], "s": pa.array([{"a": 1, "l": [{"x": 2}]}], inner), "S.A": ["own"]}), root)
    table.add_column("s.b", "string")
    table.add_column("s.l.element.y", "int")
    table.widen_column("S.L.element.x", "long")
    table.add_column("s.c", "bigint")
    table.comment_column("s.b", "by path")
    assert [(each["name"], each["comment"]) for each in table.describe()["columns"]][1:3] == [("s", None), ("s.b", "by path")]
    old = {"a": 1, "l": [{"x": 2, "y": None}], "b": None, "c": None}
    new = {"a": 2, "l": [{"x": 2**40, "y": 3}], "b": "new", "c": 4}
    mc.write(pa.table({"id": [2], "s": pa.array([new], table.schema.field("s").type), "S.A": ["other"]}), root)
    check(table, [{"id": 1, "s": old, "S.A": "own"}, {"id": 2, "s": new, "S.A": "other"}])
    table.drop_column("s.a")  # the column
    for call, words in {
        lambda: table.widen_column("s.a", "string"): "'s.a' cannot become",
        lambda: table.add_column("s.B", "int"): "already",
        lambda: table.add_column("s.l.z", "int"): "only a struct",
        lambda: table.add_column("z.a", "int"): "is no column",
        lambda: table.add_column("s.q.z", "int"): "is no column",
        lambda: table.add_column("s.", "int"): "path of a member",
        lambda: table.add_column(".", "int"): "path of a member",
        lambda: table.drop_column("s.l.element"): "no name of its own",
        lambda: table.rename_column("s.b", "C"): "The struct of 's.b' has a column 'C'",
        lambda: table.add_column("s.n\0", "int"): "NUL",
    }.items():
        with pytest.raises(mc.errors.ManifestCommitError, match=words):
            call()
    check(table, [{"id": 1, "s": old}, {"id": 2, "s": new}])
