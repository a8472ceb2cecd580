"""What data fits a table, which edits make it fit, and how edits meet concurrent ones. [SC3] [SC5] [SC6]"""

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.schemas import conform, counter, names, primitives, schemas

from manifestcommit.errors import SchemaMismatchError, UnsupportedTypeError, UsageError
from manifestcommit.format import fields
from manifestcommit.format.evolution import (
    SchemaConflict,
    SchemaEdit,
    add_column,
    apply_edits,
    comment_column,
    drop_column,
    fit,
    relax_column,
    rename_column,
    widen_column,
)
from manifestcommit.format.fields import ArrayType, Field, FieldType, Leaf, MapType, Schema, StructType, check_schema, leaves, walk
from manifestcommit.format.values import arrow_schema

TABLE = Schema(
    fields=(
        Field(id=1, name="a", type="integer"),
        Field(id=2, name="s", type=StructType(fields=(Field(id=3, name="x", type="float"),))),
        Field(id=4, name="k", type="string", nullable=False),
    )
)


def ids_from(start: int) -> Callable[[], int]:
    numbers = counter()
    return lambda: start + numbers()


def column(type: FieldType, *, nullable: bool = True, id: int = 1, name: str = "c") -> Schema:
    return Schema(fields=(Field(id=id, name=name, type=type, nullable=nullable),))


def nest(kind: str, type: FieldType, first_id: int) -> FieldType:
    """The type below a struct, an array or a map."""
    if kind == "struct":
        return StructType(fields=(Field(id=first_id, name="x", type=type),))
    if kind == "array":
        return ArrayType(element=Field(id=first_id, name="element", type=type))
    key = Field(id=first_id, name="key", type="string", nullable=False)
    return MapType(key=key, value=Field(id=first_id + 1, name="value", type=type))


# Schemas that share names and types often, so that their columns meet.
ALIKE = schemas(
    st.sampled_from(["byte", "integer", "long", "float", "double", "decimal(5,2)", "decimal(9,2)", "void", "interval day"]),
    st.sampled_from(["a", "A", "b", "c"]),
)


# --- fit ------------------------------------------------------------------------------------------------------------------
@given(schemas())
def test_a_table_s_own_columns_fit(schema: Schema) -> None:
    """[SC3] With other ids, in another order, in another case where no two names then look alike."""
    other = fields.assign_new_ids(Schema(fields=schema.fields[::-1]), ids_from(10_000))
    assert fit(schema, other, merge=False) == ()


@pytest.mark.thorough
@given(ALIKE, ALIKE)
def test_after_the_edits_the_data_fits(table: Schema, data: Schema) -> None:
    """[SC3] [SC5] Or the two cannot be merged; never does an edit touch what it need not."""
    data = fields.assign_new_ids(data, ids_from(10_000))
    try:
        edits = fit(table, data, merge=True)
    except SchemaMismatchError:
        return
    merged = apply_edits(table, edits)
    check_schema(merged)
    assert fit(merged, data, merge=False) == ()
    if not any(edit.kind == "drop" for edit in edits):  # a void column was replaced
        assert fit(merged, table, merge=False) == ()
        assert apply_edits(merged, edits) == merged
    empty = arrow_schema(data, physical=False).empty_table().to_batches(max_chunksize=1)
    for each in empty or [pa.RecordBatch.from_pylist([], schema=arrow_schema(data, physical=False))]:
        assert conform(each, merged).schema == arrow_schema(merged, physical=True)


WIDER = [
    ("byte", "short"), ("byte", "long"), ("short", "integer"), ("integer", "long"), ("float", "double"),
    ("decimal(5,2)", "decimal(9,2)"), ("decimal(1,0)", "decimal(38,0)"),
]  # fmt: skip


@pytest.mark.parametrize(("narrow", "wide"), WIDER)
@pytest.mark.parametrize("kind", ["column", "struct", "array", "map"])
def test_a_type_widens_only_where_asked(narrow: str, wide: str, kind: str) -> None:
    """[SC5] And narrower data always fits."""
    table = column(narrow if kind == "column" else nest(kind, narrow, 2))
    data = column(wide if kind == "column" else nest(kind, wide, 12), id=11)
    assert fit(data, table, merge=False) == ()
    with pytest.raises(SchemaMismatchError, match=r"Column 'c.*merge_schema=True"):
        fit(table, data, merge=False)
    (edit,) = fit(table, data, merge=True)
    assert (edit.kind, edit.was, edit.to) == ("widen", narrow, wide)
    widened = apply_edits(table, [edit])
    assert [field.id for _, field in walk(widened.fields)] == [field.id for _, field in walk(table.fields)]
    assert fit(widened, data, merge=False) == ()


@pytest.mark.parametrize(("table", "data"), [("long", "double"), ("byte", "float"), ("double", "long"), ("float", "integer")])
def test_numbers_that_stay_the_same_fit_where_they_are_converted(table: FieldType, data: FieldType) -> None:
    """[SC3] Integers that pandas made floats; the values are looked at when they are written. Files that stay as they are do not fit."""
    for merge in (False, True):
        assert fit(column(table), column(data), merge=merge) == ()
        with pytest.raises(SchemaMismatchError, match="'c'"):
            fit(column(table), column(data), merge=merge, converted=False)


@pytest.mark.parametrize(
    ("table", "data"),
    [
        ("decimal(10,2)", "double"), ("double", "decimal(10,2)"), ("boolean", "double"), ("string", "long"), ("string", "binary"),
        ("timestamp", "timestamp_ntz"), ("date", "timestamp_ntz"), ("decimal(5,2)", "decimal(5,3)"), ("decimal(38,2)", "decimal(38,0)"),
        ("long", "decimal(20,0)"), ("boolean", "byte"), ("variant", "string"), ("long", "interval day"),
        ("string", StructType(fields=(Field(id=9, name="x", type="string"),))),
        (StructType(fields=(Field(id=9, name="x", type="string"),)), ArrayType(element=Field(id=9, name="element", type="string"))),
    ],
    ids=str,
)  # fmt: skip
def test_types_that_do_not_widen_are_refused_even_with_merge(table: FieldType, data: FieldType) -> None:
    """[SC5] No value changes."""
    for merge in (False, True):
        with pytest.raises(SchemaMismatchError, match="'c'"):
            fit(column(table), column(data), merge=merge)


@pytest.mark.parametrize(
    ("table", "data"), [("decimal(10,4)", "decimal(5,2)"), ("interval day", "interval day to second"), ("long", "void"), ("string", "void")]
)
def test_data_whose_values_the_column_takes_fits(table: str, data: str) -> None:
    """[SC3]"""
    assert fit(column(table), column(data), merge=False) == fit(column(table), column(data), merge=True) == ()


def test_a_decimal_grows_to_hold_both() -> None:
    """[SC5] The scale stays, so that values are spelled as before."""
    (edit,) = fit(column("decimal(5,2)"), column("decimal(6,1)"), merge=True)
    assert edit.to == "decimal(7,2)"


def test_new_columns_are_added_only_where_asked() -> None:
    """[SC5] Nullable whatever the data says: the rows that are there have no value."""
    nested = StructType(fields=(Field(id=1, name="x", type="float"), Field(id=2, name="y", type="long", nullable=False)))
    data = Schema(
        fields=(
            Field(id=3, name="K", type="string"),
            Field(id=4, name="new", type="date", nullable=False),
            Field(id=5, name="s", type=nested),
        )
    )
    with pytest.raises(SchemaMismatchError, match="'new'"):
        fit(TABLE, data, merge=False)
    with pytest.raises(SchemaMismatchError, match=r"'s\.y'"):
        fit(TABLE, Schema(fields=data.fields[::2]), merge=False)
    merged = apply_edits(TABLE, fit(TABLE, data, merge=True))
    assert [field.name for field in merged.fields] == ["a", "s", "k", "new"]
    assert merged.fields[3].nullable and merged.fields[3].type == "date"
    member = dict(walk(merged.fields))["s", "y"]
    assert member.type == "long" and member.nullable
    check_schema(merged)  # the ids of the data were those of the table's own columns


def test_a_missing_or_nullable_column_relaxes_only_where_asked() -> None:
    """[SC3] [SC5]"""
    without = Schema(fields=TABLE.fields[:2])
    with pytest.raises(SchemaMismatchError, match="'k' is missing"):
        fit(TABLE, without, merge=False)
    nullable = Schema(fields=(*TABLE.fields[:2], Field(id=9, name="k", type="string")))
    assert fit(TABLE, nullable, merge=False) == ()  # whether a value is null only the values tell
    with pytest.raises(SchemaMismatchError, match="'k' is null"):
        fit(TABLE, Schema(fields=(*TABLE.fields[:2], Field(id=9, name="k", type="void"))), merge=False)
    for data in (without, nullable):
        (edit,) = fit(TABLE, data, merge=True)
        assert (edit.kind, edit.id) == ("relax", 4)
        assert apply_edits(TABLE, [edit]).fields[2].nullable


def test_a_void_column_is_replaced_not_widened() -> None:
    """[SC5] Measured on Spark 4.3: a file's void column fails to read as a string and reads as an empty array."""
    table = Schema(fields=(Field(id=1, name="c", type="void"), Field(id=2, name="d", type="long")))
    data = Schema(fields=(Field(id=11, name="C", type="string"), Field(id=12, name="d", type="long")))
    with pytest.raises(SchemaMismatchError, match="'c' is void"):
        fit(table, data, merge=False)
    merged = apply_edits(table, fit(table, data, merge=True))
    (found,) = [field for field in merged.fields if field.name == "c"]
    assert found.type == "string" and found.id != 1 and found.file_name != "c"
    assert merged.retired == ("c",)
    with pytest.raises(SchemaMismatchError, match="Give it a type first"):
        fit(column(nest("struct", "void", 2)), column(nest("struct", "long", 2)), merge=True)


def test_a_merged_column_never_takes_another_s_place_in_files() -> None:
    """[SC6] A dropped or renamed column's values would come back under the new one's name."""
    dropped = apply_edits(TABLE, drop_column(TABLE, "a"))
    renamed = apply_edits(TABLE, rename_column(TABLE, "a", "b"))
    data = Schema(fields=(Field(id=50, name="A", type="date"), *TABLE.fields[1:]))
    for table in (dropped, renamed):
        merged = apply_edits(table, fit(table, data, merge=True))
        (found,) = [field for field in merged.fields if field.name == "A"]
        assert found.file_name == "A-50"


# --- edits ----------------------------------------------------------------------------------------------------------------
def test_a_dropped_column_that_comes_back_is_another_column() -> None:
    """[SC6] Its old values, which live files still hold, never show again."""
    dropped = apply_edits(TABLE, drop_column(TABLE, "a"))
    assert [field.name for field in dropped.fields] == ["s", "k"]
    again = apply_edits(dropped, add_column(dropped, "a", "integer", new_id=ids_from(100)))
    found = again.fields[-1]
    assert (found.name, found.id, found.file_name) == ("a", 101, "a-101")
    once_more = apply_edits(again, drop_column(again, "a"))
    assert once_more.retired == ("a", "a-101")
    assert msgspec.json.decode(msgspec.json.encode(once_more), type=Schema) == once_more


def test_added_columns_get_ids_never_used_here() -> None:
    """[SC1]"""
    nested = nest("map", "long", 1)
    (edit,) = add_column(TABLE, "n", nested, new_id=lambda: 1)
    added = apply_edits(TABLE, [edit])
    check_schema(added)
    assert added.fields[-1].nullable


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: add_column(TABLE, "A", "long", new_id=counter()), UsageError),
        (lambda: add_column(TABLE, "n", "int", new_id=counter()), UnsupportedTypeError),
        (lambda: add_column(TABLE, "", "long", new_id=counter()), SchemaMismatchError),
        (lambda: add_column(TABLE, "a\0b", "long", new_id=counter()), SchemaMismatchError),
        (lambda: add_column(TABLE, "s.X", "long", new_id=counter()), UsageError),
        (lambda: rename_column(TABLE, "a", "a\0b"), SchemaMismatchError),
        (lambda: rename_column(TABLE, "s.x", ""), UsageError),
        (lambda: rename_column(TABLE, "a", "S"), UsageError),
        (lambda: rename_column(TABLE, "nope", "b"), UsageError),
        (lambda: rename_column(TABLE, "a", ""), UsageError),
        (lambda: drop_column(TABLE, "nope"), UsageError),
        (lambda: drop_column(TABLE, "a", partition_by=(1,)), UsageError),
        (lambda: drop_column(column("long"), "c"), UsageError),
        (lambda: widen_column(TABLE, "a", "short"), UsageError),
        (lambda: widen_column(TABLE, "s", "long"), UsageError),
    ],
)
def test_an_impossible_change_is_refused_before_any_work(wrong: Callable[[], Any], error: type[Exception]) -> None:
    """[SC5] [SC6]"""
    with pytest.raises(error):
        wrong()


def test_widening_and_relaxing_one_column() -> None:
    """[SC5]"""
    wide = apply_edits(TABLE, (*widen_column(TABLE, "A", "long"), *relax_column(TABLE, "k")))
    assert wide.fields[0].type == "long" and wide.fields[2].nullable
    assert widen_column(wide, "a", "long") == relax_column(wide, "k") == ()


# --- concurrent edits -----------------------------------------------------------------------------------------------------
def add(name: str = "n", id: int = 100, type: FieldType = "long", **more: Any) -> SchemaEdit:
    return SchemaEdit(kind="add", id=id, column=name, field=Field(id=id, name=name, type=type, **more))


WIDEN = SchemaEdit(kind="widen", id=1, column="a", was="integer", to="long")
RENAME = SchemaEdit(kind="rename", id=1, column="a", was="a", to="b")
DROP = SchemaEdit(kind="drop", id=1, column="a")
RELAX = SchemaEdit(kind="relax", id=4, column="k")
MEMBER = SchemaEdit(kind="add", id=101, column="s.y", field=Field(id=101, name="y", type="long"), parent=2)
FLOAT = SchemaEdit(kind="widen", id=3, column="s.x", was="float", to="double")
COMMENT = SchemaEdit(kind="comment", id=1, column="a", to="one")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (add("n"), add("m", 200)), (add("n"), WIDEN), (add("n"), DROP), (WIDEN, RENAME), (WIDEN, RELAX), (RENAME, MEMBER), (MEMBER, FLOAT),
        (DROP, FLOAT), (RENAME, add("n", type=nest("map", "long", 200))), (COMMENT, RENAME), (COMMENT, WIDEN),
    ],
    ids=str,
)  # fmt: skip
def test_edits_of_different_things_commute(one: SchemaEdit, other: SchemaEdit) -> None:
    """[CF8] [SC9] Whichever wins, the same columns come out (added ones in the order in which they came)."""
    left, right = apply_edits(apply_edits(TABLE, [one]), [other]), apply_edits(apply_edits(TABLE, [other]), [one])
    assert {field.id: field for field in left.fields} == {field.id: field for field in right.fields}
    assert left == apply_edits(TABLE, [one, other])


@pytest.mark.parametrize("edit", [add(), WIDEN, RENAME, RELAX, MEMBER, FLOAT, COMMENT], ids=str)
def test_an_equal_edit_changes_nothing(edit: SchemaEdit) -> None:
    """[CF8]"""
    once = apply_edits(TABLE, [edit])
    assert once != TABLE
    assert apply_edits(once, [edit]) == once


@pytest.mark.parametrize(
    ("winner", "mine"),
    [
        (add("n", 100), add("N", 200)), (add("n", 100), add("n", 100, "string")), (add("n", 100), add("m", 100)),
        (add("n", 100), add("m", 200, "long", physical="n")), (add("n", 100, "long", physical="x"), add("m", 200, "long", physical="X")),
        (RENAME, msgspec.structs.replace(RENAME, to="c")), (RENAME, add("b", 200)), (RENAME, add("a", 200)), (add("b", 200), RENAME),
        (DROP, WIDEN), (DROP, RENAME), (DROP, DROP), (DROP, COMMENT), (COMMENT, msgspec.structs.replace(COMMENT, to="another")),
        (DROP, add("a", 200)), (SchemaEdit(kind="drop", id=2, column="s"), MEMBER), (SchemaEdit(kind="drop", id=2, column="s"), FLOAT),
        (MEMBER, msgspec.structs.replace(MEMBER, field=Field(id=102, name="Y", type="date"))),
        (add("m", 200), add("n", 100, nest("struct", "long", 200))),
    ],
    ids=str,
)  # fmt: skip
def test_edits_that_contradict_are_conflicts(winner: SchemaEdit, mine: SchemaEdit) -> None:
    """[CF8]"""
    after = apply_edits(TABLE, [winner])
    with pytest.raises(SchemaConflict):
        apply_edits(after, [mine])


def test_another_widening_is_a_conflict() -> None:
    """[CF8] In either order: what a column becomes never depends on who was first."""
    table = column("byte")
    short, long = (SchemaEdit(kind="widen", id=1, column="c", was="byte", to=to) for to in ("short", "long"))
    for winner, mine in ((short, long), (long, short)):
        with pytest.raises(SchemaConflict, match="'c' became"):
            apply_edits(apply_edits(table, [winner]), [mine])


def test_the_last_column_is_never_dropped() -> None:
    left = apply_edits(Schema(fields=TABLE.fields[:2]), [DROP])
    with pytest.raises(SchemaConflict):
        apply_edits(left, [SchemaEdit(kind="drop", id=2, column="s")])


@pytest.mark.parametrize(
    "edit",
    [
        SchemaEdit(kind="add", id=9, column="n"),
        SchemaEdit(kind="add", id=9, column="a.n", field=Field(id=9, name="n", type="long"), parent=1),
        SchemaEdit(kind="widen", id=1, column="a", was="integer", to="short"),
        SchemaEdit(kind="widen", id=1, column="a", was="integer"),
        SchemaEdit(kind="rename", id=1, column="a", was="a"),
        SchemaEdit(kind="rename", id=3, column="s.x", was="z", to="y"),
        add("n", type="nonsense"),
    ],
    ids=str,
)
def test_a_malformed_edit_is_a_conflict_not_a_damaged_table(edit: SchemaEdit) -> None:
    with pytest.raises(SchemaConflict):
        apply_edits(TABLE, [edit])


def change(schema: Schema, kind: str, target: str, name: str, type: str, new_id: Callable[[], int]) -> tuple[SchemaEdit, ...]:
    match kind:
        case "add":
            return add_column(schema, name, type, new_id=new_id)
        case "drop":
            return drop_column(schema, target)
        case "rename":
            return rename_column(schema, target, name)
        case "widen":
            return widen_column(schema, target, type)
        case "comment":
            return comment_column(schema, target, name)
        case _:
            return relax_column(schema, target)


@given(
    schemas(),
    st.lists(st.tuples(st.sampled_from(["add", "drop", "rename", "widen", "relax", "comment"]), names, primitives), max_size=8),
    st.data(),
)
def test_one_name_inside_files_is_one_column_for_ever(start: Schema, plan: list[tuple[str, str, str]], data: st.DataObject) -> None:
    """[SC6] Through any history of changes made one after another."""
    draw, schema = ids_from(10_000), start
    owners = {field.file_name.lower(): field.id for field in start.fields}
    for kind, name, type in plan:
        target = data.draw(st.sampled_from(schema.fields)).name
        try:
            edits = change(schema, kind, target, name, type, draw)
        except UsageError:
            continue
        schema = apply_edits(schema, edits)
        check_schema(schema)
        for field in schema.fields:
            assert owners.setdefault(field.file_name.lower(), field.id) == field.id


# --- the rest -------------------------------------------------------------------------------------------------------------
def test_leaves_are_reached_through_structs_only() -> None:
    """[OB7] By their names inside files."""
    collation = {"__COLLATIONS": {"y": "spark.UTF8_LCASE"}}
    inner = StructType(fields=(Field(id=3, name="x", type="long"), Field(id=4, name="y", type="string", metadata=collation)))
    schema = Schema(
        fields=(
            Field(id=1, name="new", physical="old", type="long"),
            Field(id=2, name="s", type=inner),
            Field(id=5, name="l", type=nest("array", "long", 6)),
            Field(id=7, name="m", type=nest("map", "long", 8)),
            Field(id=10, name="v", type="variant"),
        )
    )
    assert leaves(schema) == [
        Leaf(id=1, path=("old",), type="long"),
        Leaf(id=3, path=("s", "x"), type="long"),
        Leaf(id=4, path=("s", "y"), type="string", metadata=collation),
        Leaf(id=10, path=("v",), type="variant"),
    ]
