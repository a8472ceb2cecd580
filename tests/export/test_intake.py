"""Tables of Iceberg and Delta that are adopted where they are: exactly the files of the current snapshot, or nothing. [AF4]"""

import contextlib
import datetime as dt
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    UUIDType,
)
from tests.export.clients import duckdb_iceberg, expected, rows
from tests.export.ice_tables import ice_table
from tests.export.kinds import HOSTILE, KINDS, numbered

import manifestcommit as mc
from manifestcommit.intake import parsed, source_of
from manifestcommit.log.table_context import TableContext
from manifestcommit.operations.adopt import adopt
from manifestcommit.store import open_store
from manifestcommit.testing import Died, FaultStore

N, PART = NestedField(1, "n", LongType()), NestedField(2, "part", StringType())


def by(*fields: tuple[int, Transform[Any, Any], str]) -> PartitionSpec:
    return PartitionSpec(*(PartitionField(source, 1000 + at, transform, name) for at, (source, transform, name) in enumerate(fields)))


TEXTS = [each for each in HOSTILE if each is None or len(each) < 100]  # others make a folder of each
BY_PART = by((2, IdentityTransform(), "part"))


def check(root: str, wanted: pa.Table, from_: str, **other: Any) -> mc.Table:
    """The adopted table has the rows, its files are where they were, and a third client reads them from an export."""
    before = {each: each.read_bytes() for each in Path(root).rglob("*.parquet") if "_delta_log" not in each.parts}
    adopted = mc.Table(root).adopt(from_=from_)
    table = mc.Table(root)
    found, schema = expected(table)
    assert found == rows(wanted, schema) and adopted.rows == wanted.num_rows
    assert {each: each.read_bytes() for each in before} == before
    again = mc.Table(root).adopt(from_=from_)
    assert again.already_adopted and again.version == adopted.version == table.version
    assert not {each["path"] for each in table.files().to_pylist()} - {str(each.relative_to(root)) for each in before}
    if not set("%#?") & set(root):
        table.export("iceberg")
        assert rows(duckdb_iceberg(root), schema) == found
    assert table.verify(deep=True).is_sound
    return table


# --- Iceberg ------------------------------------------------------------------------------------------------------------
def document(table: Any) -> str:
    return str(table.metadata_location)


def test_an_iceberg_table_with_renamed_dropped_and_added_columns(tmp_path: Path) -> None:
    """Ids are kept, and the names that files have. [AF4]"""
    root = str(tmp_path / "a b")
    ice = ice_table(
        root,
        Schema(N, PART, NestedField(3, "old", StringType()), NestedField(4, "gone", IntegerType()), NestedField(5, "away", IntegerType())),
        BY_PART,
    )
    numbers = pa.array(range(len(TEXTS)), pa.int32())
    ice.append(numbered(len(TEXTS), part=pa.array(TEXTS), old=pa.array(TEXTS), gone=numbers, away=numbers))
    with ice.update_schema() as update:
        update.rename_column("old", "new")
        update.rename_column("part", "ü part")
        update.delete_column("gone")
        update.delete_column("away")
        update.add_column("later", LongType())
        update.add_column("gone", StringType())
    table = check(root, ice.scan().to_arrow(), document(ice))
    columns: Any = table.describe()["columns"]
    assert [(each["id"], each["name"]) for each in columns] == [(1, "n"), (2, "ü part"), (3, "new"), (6, "later"), (7, "gone")]
    assert table.describe()["partition_by"] == ["ü part"]
    mc.write(pa.table({"n": [9], "ü part": ["x"], "new": ["y"], "later": [1], "gone": ["z"]}), root)
    for name, type in (("old", "string"), ("away", "int")):
        table.add_column(name, type)
        assert set(table.to_arrow().column(name).to_pylist()) == {None}
    table.export("iceberg")
    found, schema = expected(table)
    assert rows(duckdb_iceberg(root), schema) == found


PARTITIONS: list[tuple[IcebergType, pa.Array]] = [
    (LongType(), pa.array([-(2**63), None, 2**63 - 1])),
    (DateType(), pa.array([dt.date(1969, 1, 1), None, dt.date(2013, 2, 28)])),
    (BooleanType(), pa.array([True, False, None])),
    (DecimalType(9, 2), pa.array([Decimal("-1.20"), None, Decimal("3.00")], pa.decimal128(9, 2))),
    (TimestampType(), pa.array([dt.datetime(1960, 1, 1, 1, 1, 1, 7), None, dt.datetime(2013, 1, 1)], pa.timestamp("us"))),
]


@pytest.mark.parametrize(("kind", "values"), PARTITIONS, ids=lambda each: str(getattr(each, "type", each)))
def test_partitions_of_iceberg(tmp_path: Path, kind: IcebergType, values: pa.Array) -> None:
    """[AF4]"""
    ice = ice_table(str(tmp_path / "t"), Schema(N, NestedField(2, "p", kind)), by((2, IdentityTransform(), "p")))
    ice.append(numbered(3, p=values))
    assert check(str(tmp_path / "t"), numbered(3, p=values), document(ice)).describe()["partition_by"] == ["p"]


def test_a_partitioning_that_changed_is_in_the_files(tmp_path: Path) -> None:
    """[AF4]"""
    ice = ice_table(str(tmp_path / "t"), Schema(N, PART), BY_PART)
    ice.append(numbered(2, part=["a", None]))
    with ice.update_spec() as update:
        update.remove_field("part")
    ice.append(numbered(2, part=["c", "d"]))
    assert check(str(tmp_path / "t"), ice.scan().to_arrow(), document(ice)).describe()["partition_by"] == []


TRANSFORMED: dict[str, tuple[IcebergType, list[Transform[Any, Any]], pa.Array]] = {
    "ts": (
        TimestampType(),
        [YearTransform(), MonthTransform(), DayTransform(), HourTransform()],
        pa.array([dt.datetime(1969, 12, 31, 23, 59), None, dt.datetime(2013, 1, 1)], pa.timestamp("us")),
    ),
    "date": (
        DateType(),
        [YearTransform(), DayTransform(), BucketTransform(4)],
        pa.array([dt.date(1969, 12, 31), None, dt.date(2013, 1, 1)]),
    ),
    "long": (LongType(), [BucketTransform(5), TruncateTransform(10)], pa.array([-1, None, 2**40])),
    "text": (StringType(), [BucketTransform(3), TruncateTransform(2)], pa.array(["éé!", None, ""])),
    "decimal": (DecimalType(9, 2), [TruncateTransform(50)], pa.array([Decimal("-1.20"), None, Decimal("99.99")], pa.decimal128(9, 2))),
}


def add_without_column(ice: Any, name: str, data: pa.Table, *partition: Any) -> None:
    """Append a file that lacks the columns which only its partition values hold, as Hive-style writers make them."""
    root = ice.location().removeprefix("file://")
    Path(f"{root}/data").mkdir(parents=True, exist_ok=True)
    path = Path(f"{root}/data/{name}.parquet")
    pq.write_table(data, path)
    made = DataFile.from_args(
        content=DataFileContent.DATA, file_path=f"file://{path}", file_format=FileFormat.PARQUET, partition=Record(*partition),
        record_count=data.num_rows, file_size_in_bytes=path.stat().st_size,
    )  # fmt: skip
    made.spec_id = ice.spec().spec_id
    with ice.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        update.append_data_file(made)


NAMED = {"schema.name-mapping.default": json.dumps([{"field-id": 1, "names": ["n"]}, {"field-id": 2, "names": ["p"]}])}

NAMED_PART = {
    "schema.name-mapping.default": json.dumps([{"field-id": at, "names": [name]} for at, name in enumerate(("n", "part", "other"), 1)])
}
MEMBERS = [{"field-id": 3, "names": ["x"]}, {"field-id": 4, "names": ["y"]}]
NESTED = {"schema.name-mapping.default": json.dumps([{"field-id": 1, "names": ["n"]}, {"field-id": 2, "names": ["s"], "fields": MEMBERS}])}


def iceberg_value(transform: Transform[Any, Any], kind: IcebergType, value: pa.Scalar) -> Any:
    """What pyiceberg's own transform makes of a value, which it takes as Iceberg keeps it: moments and days as numbers."""
    known = value.cast(pa.int32() if pa.types.is_date(value.type) else pa.int64()) if pa.types.is_temporal(value.type) else value
    return transform.transform(kind)(known.as_py())


@pytest.mark.thorough
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms_of_iceberg(tmp_path: Path, name: str) -> None:
    """Each file is checked to hold the values that Iceberg says; what is written later goes on by them. [AF4] [PT5]"""
    kind, transforms, values = TRANSFORMED[name]
    for number, transform in enumerate(transforms):
        root = str(tmp_path / str(number))
        ice = ice_table(root, Schema(N, NestedField(2, "p", kind)), by((2, transform, "part"), (1, IdentityTransform(), "n")), **NAMED)
        data = numbered(3, p=values)
        for at in range(3):
            add_without_column(ice, str(at), data.slice(at, 1), iceberg_value(transform, kind, values[at]), at)
        table = check(root, data, document(ice))
        call, _, width = str(transform).rstrip("]").partition("[")
        assert table.describe()["partition_by"] == [f"{call}({width and width + ', '}p)", "n"]
        mc.write(data, root)
        found = pc.field("p") == values[2]
        assert table.to_arrow(filter=found).num_rows == 2 and len(table.files(filter=found)) < 6
        assert table.verify(deep=True).is_sound


def test_a_value_of_a_transform_that_the_file_contradicts_is_refused(tmp_path: Path) -> None:
    """Filters would skip its rows. [AF4] [AF1] [PT5]"""
    ice = ice_table(str(tmp_path / "t"), Schema(N, NestedField(2, "p", LongType())), by((2, TruncateTransform(10), "part")), **NAMED)
    add_without_column(ice, "false", numbered(1, p=[25]), 30)
    with pytest.raises(mc.errors.SchemaMismatchError, match="holds 20 where the partition's value is 30"):
        mc.Table(tmp_path / "t").adopt(from_=document(ice))
    assert not (tmp_path / "t" / "_manifest").exists()


def test_transforms_that_no_table_has_are_in_the_files(tmp_path: Path) -> None:
    """With folders of one name, of some files only, of files that lack the column: the rest partitions. [AF4] [PT4]"""
    parts = {"b4": (2, BucketTransform(4)), "b8": (2, BucketTransform(8)), "t": (2, TruncateTransform(2))}
    spec = by(*((*part, called) for called, part in parts.items()), (2, VoidTransform(), "v"))
    ice = ice_table(str(tmp_path / "t"), Schema(N, NestedField(2, "p", StringType())), spec, **NAMED)
    made = [transform.transform(StringType())("abc") for _, transform in parts.values()]
    add_without_column(ice, "a", numbered(1, p=["abc"]), *made, None)
    with ice.update_spec() as update:
        update.remove_field("t")
    add_without_column(ice, "b", numbered(1), *([None] * len(ice.spec().fields)))
    table = check(str(tmp_path / "t"), ice.scan().to_arrow(), document(ice))
    assert table.describe()["partition_by"] == ["bucket(4, p)"]


def test_values_of_partitions_are_taken_from_the_metadata(path: str) -> None:
    """Also where the partitioning changed: by the columns that partition every file. [AF4]"""
    ice = ice_table(path, Schema(N, PART, NestedField(3, "other", LongType())), BY_PART, **NAMED_PART)
    add_without_column(ice, "a", numbered(2, other=[1, 2]), "a")
    with ice.update_spec() as update:
        update.add_identity("other")
    add_without_column(ice, "b", numbered(1, other=[7]), "b", 7)
    add_without_column(ice, "c", numbered(1, other=[7]), None, 7)
    table = check(path, pa.table({"n": [0, 1, 0, 0], "part": ["a", "a", "b", None], "other": [1, 2, 7, 7]}), document(ice))
    assert table.describe()["partition_by"] == ["part"]


ONLY_IN_METADATA = [
    (FloatType(), 1.5), (DoubleType(), 0.0), (BinaryType(), b"x"), (TimestampType(), 0), (LongType(), 0), (StringType(), ""),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), ONLY_IN_METADATA, ids=str)
@pytest.mark.parametrize("evolved", [False, True], ids=["", "evolved"])
def test_a_value_that_only_iceberg_has_is_taken_or_refused(kind: IcebergType, value: Any, evolved: bool, path: str) -> None:
    """Never read as null. [AF4]"""
    ice = ice_table(path, Schema(N, NestedField(2, "p", kind)), by((2, IdentityTransform(), "p")), **NAMED)
    add_without_column(ice, "a", numbered(2), None)
    add_without_column(ice, "b", numbered(2), value)
    if evolved:
        with ice.update_spec() as update:
            update.remove_field("p")
        ice.append(numbered(1, p=pa.nulls(1, arrow_type_of(kind))))
    if evolved or str(kind) in ("float", "double", "binary"):
        with pytest.raises(
            mc.errors.UsageError, match=r"b\.parquet does not hold the column 'p': its value is only in the Iceberg metadata"
        ):
            mc.Table(path).adopt(from_=document(ice))
        assert not Path(path, "_manifest").exists()
    else:
        mc.Table(path).adopt(from_=document(ice))
        assert mc.Table(path).to_arrow().column("p").null_count == 2


def arrow_type_of(kind: IcebergType) -> pa.DataType:
    return schema_to_pyarrow(Schema(NestedField(1, "x", kind)), include_field_ids=False).field("x").type


@pytest.mark.parametrize("held", [False, True])
def test_a_member_that_partitions_in_iceberg_is_in_the_files(held: bool, path: str) -> None:
    """[AF4]"""
    inner = StructType(NestedField(3, "x", LongType()), NestedField(4, "y", LongType()))
    ice = ice_table(path, Schema(N, NestedField(2, "s", inner)), by((3, IdentityTransform(), "x")), **NESTED)
    values = [{"x": 5, "y": 1}] if held else [{"y": 1}]
    add_without_column(ice, "a", numbered(1, s=values), 5)
    if held:
        assert check(path, numbered(1, s=values), document(ice)).describe()["partition_by"] == []
    else:
        with pytest.raises(mc.errors.UsageError, match=r"does not hold the column 's\.x': its value is only in"):
            mc.Table(path).adopt(from_=document(ice))


def test_only_the_current_snapshot_is_taken(path: str) -> None:
    """Neither what was overwritten nor what no snapshot lists. [AF4]"""
    ice = ice_table(path, Schema(N))
    ice.append(numbered(3))
    ice.overwrite(numbered(2))
    pq.write_table(numbered(5), f"{path}/data/orphan.parquet")
    assert check(path, numbered(2), document(ice)).files().num_rows == 1


def test_an_empty_iceberg_table(tmp_path: Path) -> None:
    """[AF4]"""
    ice = ice_table(str(tmp_path / "t"), Schema(N, PART), BY_PART)
    table = check(str(tmp_path / "t"), pa.table({"n": pa.array([], pa.int64()), "part": pa.array([], pa.string())}), document(ice))
    mc.write(numbered(1, part=["a"]), table.url)


def test_files_without_ids_are_read_by_the_mapping_of_names(path: str) -> None:
    """[AF4]"""
    ice = ice_table(path, Schema(N, PART))
    Path(f"{path}/data").mkdir(parents=True)
    pq.write_table(numbered(2, part=["a", None]), f"{path}/data/plain.parquet")
    ice.add_files([f"file://{path}/data/plain.parquet"])
    with ice.update_schema() as update:
        update.rename_column("part", "other")
    check(path, numbered(2, other=["a", None]), document(ice))


def test_the_document_of_a_table_without_a_catalog_is_found(root: Path) -> None:
    """By the hint, or by a later one; with a catalog it has to be named. [AF4]"""
    ice = ice_table(str(root), Schema(N))
    ice.append(numbered(3))
    with pytest.raises(mc.errors.UsageError, match=r"only its catalog knows .* from_='file:.*/metadata/00001-"):
        mc.Table(root).adopt(from_="iceberg")
    documents = sorted((root / "metadata").glob("*.metadata.json"))
    for number, each in enumerate(documents, 1):
        each.rename(root / "metadata" / f"v{number}.metadata.json")
    (root / "metadata" / "version-hint.text").write_text("1")
    check(str(root), numbered(3), "iceberg")


def with_two_names(ice: Any) -> None:
    ice.append(numbered(1, part=["a"]))
    with ice.update_schema() as update:
        update.rename_column("part", "new")
    ice.append(numbered(1, new=["b"]))


def with_a_name_for_two(ice: Any) -> None:
    ice.append(numbered(1, part=["a"]))
    with ice.update_schema() as update:
        update.delete_column("part")
    with ice.update_schema() as update:
        update.add_column("part", StringType())
    ice.append(numbered(1, part=["b"]))


def with_a_file_elsewhere(ice: Any) -> None:
    elsewhere = Path(ice.location().removeprefix("file://") + "-elsewhere.parquet")
    pq.write_table(numbered(2, part=["a", None]), elsewhere)
    ice.add_files([f"file://{elsewhere}"])


def with_a_file_that_is_gone(ice: Any) -> None:
    ice.append(numbered(1, part=["a"]))
    next(Path(ice.location().removeprefix("file://")).rglob("*.parquet")).unlink()


def with_files_without_ids(ice: Any) -> None:
    root = ice.location().removeprefix("file://")
    Path(f"{root}/data").mkdir(parents=True)
    pq.write_table(numbered(2, part=["a", None]), f"{root}/data/plain.parquet")
    ice.add_files([f"file://{root}/data/plain.parquet"])
    with ice.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")


def with_a_delete_file(ice: Any) -> None:
    ice.append(numbered(3, part=["a"] * 3))
    (task,) = ice.scan().plan_files()
    fields = {name: getattr(task.file, name) for name in ("file_path", "file_format", "partition", "record_count", "file_size_in_bytes")}
    deleted = DataFile.from_args(content=DataFileContent.POSITION_DELETES, **fields)
    deleted.spec_id = 0
    with ice.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        update.append_data_file(deleted)


def rewritten(**members: Any) -> Callable[[Any], None]:
    """Its document says other things."""

    def rewrite(ice: Any) -> None:
        path = Path(document(ice).removeprefix("file://"))
        path.write_text(json.dumps({**json.loads(path.read_text()), **members} if members else {}))

    return rewrite


REFUSED: dict[str, tuple[Callable[[Any], None], str]] = {
    "with_two_names": (with_two_names, "since it was renamed between them"),
    "with_a_name_for_two": (with_a_name_for_two, "a column 'part' that was dropped, and other files have a new column"),
    "with_a_file_elsewhere": (with_a_file_elsewhere, "is outside of file:"),
    "with_a_file_that_is_gone": (with_a_file_that_is_gone, "is listed and is not there"),
    "with_files_without_ids": (with_files_without_ids, "has no field ids, and the table has no mapping"),
    "with_a_delete_file": (with_a_delete_file, "has delete files"),
    "with_a_newer_format": (rewritten(**{"format-version": 3, "next-row-id": 0}), "version 3 of the format"),
    "with_a_damaged_mapping": (
        rewritten(properties={"schema.name-mapping.default": '{"n": 1}'}),
        "the property 'schema.name-mapping.default' is no list of names",
    ),
    "damaged": (rewritten(), "the Iceberg table of the document .* cannot be read: "),
}


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED)
def test_an_iceberg_table_that_cannot_be_taken_is_refused_whole(tmp_path: Path, make: Callable[[Any], None], reason: str) -> None:
    """[AF4]"""
    ice = ice_table(str(tmp_path / "t"), Schema(N, PART))
    make(ice)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(mc.errors.UsageError, match=reason):
        mc.Table(tmp_path / "t").adopt(from_=document(ice))
    assert sorted(tmp_path.rglob("*")) == before


ROW = StructType(NestedField(20, "x", IntegerType()), NestedField(21, "y", StringType()))
WITH_MEMBERS = Schema(
    N,
    PART,
    NestedField(3, "s", ROW),
    NestedField(4, "list", ListType(22, StructType(NestedField(23, "x", LongType()), NestedField(24, "y", StringType())))),
    NestedField(5, "map", MapType(30, StringType(), 31, StructType(NestedField(32, "x", LongType()), NestedField(33, "y", StringType())))),
)


def nested(ice: Any) -> pa.Table:
    """Rows with the names that the table has now, some of whose members and elements are null."""
    schema = schema_to_pyarrow(ice.schema(), include_field_ids=False)

    def made(kind: pa.DataType, at: int) -> Any:
        if at % 5 == 4:
            return None
        if pa.types.is_struct(kind):
            return {field.name: made(field.type, at + 1) for field in kind}
        if pa.types.is_map(kind):
            return [(f"k{each}", made(kind.item_type, at + each)) for each in range(at % 3)]
        if pa.types.is_large_list(kind) or pa.types.is_list(kind):
            return [made(kind.value_type, at + each) for each in range(at % 4)]
        return str(at) if pa.types.is_large_string(kind) or pa.types.is_string(kind) else at

    data = {field.name: pa.array([made(field.type, at) for at in range(9)], field.type) for field in schema}
    return pa.table(data, schema)


def with_renamed_members(ice: Any) -> None:
    """Renamed, dropped, added again and widened, within structs, lists and maps."""
    ice.append(nested(ice))
    with ice.update_schema() as update:
        update.rename_column("s.x", "new")
        update.update_column("s.x", LongType())
        update.rename_column("list.element.y", "Y")
        update.delete_column("map.value.y")
    with ice.update_schema() as update:
        update.add_column(("map", "value", "y"), LongType())
    ice.append(nested(ice))


FLAT = PartitionSpec()
RENAMED = [
    (with_two_names, Schema(N, PART), FLAT), (with_two_names, Schema(N, PART), BY_PART), (with_a_name_for_two, Schema(N, PART), FLAT),
    (with_renamed_members, WITH_MEMBERS, FLAT), (with_renamed_members, WITH_MEMBERS, BY_PART),
]  # fmt: skip


@pytest.mark.parametrize(("make", "columns", "spec"), RENAMED)
def test_columns_that_were_renamed_are_adopted_by_their_ids(
    tmp_path: Path, make: Callable[[Any], None], columns: Schema, spec: PartitionSpec
) -> None:
    """The rows of files with other names go into new files, and those files stay. [AF4]"""
    ice = ice_table(str(tmp_path / "t"), columns, spec)
    make(ice)
    table = mc.Table(tmp_path / "t")
    with pytest.raises(
        mc.errors.UsageError, match=r"Nothing was adopted\. With adopt\(\.\.\., rewrite=True\) the rows of such files go into new ones"
    ):
        table.adopt(from_=document(ice))
    wanted, before = ice.scan().to_arrow(), {each: each.read_bytes() for each in (tmp_path / "t").rglob("*.parquet")}
    adopted = table.adopt(from_=document(ice), rewrite=True)
    found, schema = expected(table)
    assert found == rows(wanted, schema) and schema.names == wanted.column_names
    assert adopted.rows == wanted.num_rows and 0 < adopted.rewritten_files < adopted.files == len(before)
    assert {each: each.read_bytes() for each in before} == before
    assert table.verify(deep=True).is_sound
    assert table.adopt(from_=document(ice), rewrite=True).already_adopted
    table.export("iceberg")
    assert rows(duckdb_iceberg(str(tmp_path / "t")), schema) == found


@pytest.mark.parametrize("kind", [UUIDType(), TimeType()], ids=str)
def test_types_that_a_table_cannot_have_are_refused(tmp_path: Path, kind: IcebergType) -> None:
    """[AF4]"""
    ice = ice_table(str(tmp_path / "t"), Schema(N, NestedField(3, "odd", kind)))
    with pytest.raises(mc.errors.UnsupportedTypeError, match=f"column 'odd' has the type {kind}"):
        mc.Table(tmp_path / "t").adopt(from_=document(ice))


EXPORTED = ["all types", "nested", "renamed", "partitions of text", "rows changed", "removed from manifests", "columns added"]


@pytest.mark.parametrize("format", ["iceberg", "delta"])
@pytest.mark.parametrize("kind", EXPORTED)
def test_what_this_library_exported_comes_back(tmp_path: Path, kind: str, format: str) -> None:
    """Without its own metadata the table is what its export says. [AF4] [EX1]"""
    table = KINDS[kind](str(tmp_path / "t"))
    table.export(format)
    wanted, schema = expected(table)
    ids = [each["id"] for each in table.describe()["columns"]]
    newest = tmp_path / "t" / "_iceberg" / "metadata" / f"v{table.version}.metadata.json"
    shutil.rmtree(tmp_path / "t" / "_manifest")
    mc.Table(tmp_path / "t").adopt(from_=str(newest) if format == "iceberg" else "delta")
    found, columns = expected(mc.Table(str(tmp_path / "t")))
    assert columns.names == schema.names and found == wanted
    assert format == "delta" or [each["id"] for each in mc.Table(tmp_path / "t").describe()["columns"]] == ids


# --- Delta --------------------------------------------------------------------------------------------------------------
def test_a_delta_table_with_hostile_partitions(tmp_path: Path) -> None:
    """Paths in its log are percent-encoded, and the values are only there. [AF4]"""
    root = str(tmp_path / "a b")
    texts = [each for each in TEXTS if each != ""]  # which Delta takes for null
    data = numbered(len(texts), part=pa.array(texts))
    deltalake.write_deltalake(root, data, partition_by=["part"])
    deltalake.write_deltalake(root, data.slice(2, 3), mode="append")
    wanted = pa.table(deltalake.QueryBuilder().register("t", deltalake.DeltaTable(root)).execute("SELECT * FROM t").read_all())
    table = check(root, wanted, "delta")
    assert table.describe()["partition_by"] == ["part"]
    with pytest.raises(mc.errors.UsageError, match="is of another table or program"):
        table.export("delta")


def test_a_delta_table_of_many_versions(path: str) -> None:
    """With a checkpoint, removed files, columns that were added, and nothing of what lies about. [AF4]"""
    for number in range(3):
        deltalake.write_deltalake(path, numbered(2, number=[number] * 2), mode="append")
    delta = deltalake.DeltaTable(path)
    delta.create_checkpoint()
    delta.delete("number = 0")
    deltalake.write_deltalake(path, numbered(2, number=[7, None], more=["a", None]), mode="append", schema_mode="merge")
    pq.write_table(numbered(5), f"{path}/orphan.parquet")
    wanted = pa.table(deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path)).execute("SELECT * FROM t").read_all())
    assert wanted.num_rows == 6
    check(path, wanted, "delta")


def test_a_delta_table_with_a_change_data_feed(path: str) -> None:
    """Its files have a column that the table does not; a later column of that name reads nothing of it. [AF4] [SC6]"""
    deltalake.write_deltalake(path, numbered(3), configuration={"delta.enableChangeDataFeed": "true"})
    deltalake.DeltaTable(path).update(updates={"n": "7"}, predicate="n = 1")
    name = deltalake.DeltaTable(path).file_uris()[0].removeprefix("file://")
    data = pq.read_table(name)
    pq.write_table(data.append_column("_change_type", pa.array(["insert"] * data.num_rows)), name)
    check(path, numbered(3).set_column(0, "n", pa.array([0, 7, 2])), "delta")
    table = mc.Table(path)
    table.add_column("_change_type", "string")
    assert table.to_arrow().column("_change_type").null_count == 3


def test_constraints_of_delta_hold_here_too(path: str) -> None:
    """[AF4] [CK1] [CK2]: a null result is a violation in Delta, and so it stays."""
    types = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("price", pa.float64())])
    deltalake.write_deltalake(path, pa.table({"id": [1, 2], "price": [1.0, 2.0]}, schema=types))
    deltalake.DeltaTable(path).alter.add_constraint({"positive": "price > 0"})
    table = mc.Table(path)
    assert table.adopt(from_="delta").rows == 2
    assert table.constraints() == {"positive": "(price > 0) IS TRUE"}
    free = pa.schema([("id", pa.int64()), ("price", pa.float64())])
    for refused in (-1.0, None):
        with pytest.raises(mc.errors.ConstraintError, match="positive"):
            mc.write(pa.table({"id": [3], "price": [refused]}, schema=free), path, key="k")
    with pytest.raises(mc.errors.SchemaMismatchError, match="'id' may not be null"):
        mc.write(pa.table({"id": [None], "price": [1.0]}, schema=free), path, key="k")
    assert mc.write(pa.table({"id": [3], "price": [3.0]}, schema=free), path, key="k").version == 3


def test_a_file_that_breaks_a_constraint_of_delta_is_not_adopted(path: str) -> None:
    """[AF4] [CK2]: another program may have written it. Dropping the constraint lets it in."""
    deltalake.write_deltalake(path, pa.table({"price": [1.0, 2.0]}))
    deltalake.DeltaTable(path).alter.add_constraint({"low": "price < 100"})
    for entry in Path(path, "_delta_log").glob("*.json"):
        entry.write_text(entry.read_text().replace("price < 100", "price < 2"))
    table = mc.Table(path)
    with pytest.raises(mc.errors.ConstraintError, match=r"'low'.*price = 2\.0"):
        table.adopt(from_="delta")
    assert table.to_arrow().num_rows == 0
    table.drop_constraint("low")
    assert table.adopt(from_="delta").rows == 2
    assert table.constraints() == {}


def test_a_constraint_that_is_evaluated_nowhere_here_is_refused(path: str) -> None:
    """[AF4]: it would be lost otherwise."""
    deltalake.write_deltalake(path, pa.table({"price": [1.0]}))
    deltalake.DeltaTable(path).alter.add_constraint({"low": "price < 100"})
    for entry in Path(path, "_delta_log").glob("*.json"):
        entry.write_text(entry.read_text().replace("price < 100", "my_function(price)"))
    with pytest.raises(mc.errors.UsageError, match=r"'low'.*my_function.*Drop it in Delta first"):
        mc.Table(path).adopt(from_="delta")
    assert not Path(path, "_manifestcommit").exists()


def test_a_required_column_of_iceberg_stays_so(path: str) -> None:
    """[AF4] [SC3]"""
    ice = ice_table(path, Schema(NestedField(1, "n", LongType(), required=True)))
    ice.append(pa.table({"n": [1]}, schema=pa.schema([pa.field("n", pa.int64(), False)])))
    table = check(path, pa.table({"n": [1]}), document(ice))
    with pytest.raises(mc.errors.SchemaMismatchError, match="'n' may not be null"):
        mc.write(pa.table({"n": pa.array([None], pa.int64())}), table.url, key="k")


def test_a_column_that_differs_by_case_is_no_unknown_one(path: str) -> None:
    """Some readers of Delta take it for the table's, others read nulls. [AF4]"""
    deltalake.write_deltalake(path, numbered(3))
    (name,) = deltalake.DeltaTable(path).file_uris()
    pq.write_table(numbered(3).rename_columns(["N"]), name.removeprefix("file://"))
    with pytest.raises(mc.errors.SchemaMismatchError, match="column 'N' is not the table's"):
        mc.Table(path).adopt(from_="delta")


@pytest.mark.parametrize("error", [ValueError("x"), StopIteration(), type("PanicException", (BaseException,), {})("x")], ids=repr)
def test_no_error_of_another_library_leaves_an_adoption(error: BaseException) -> None:
    """Also a panic of Rust code, which is no Exception. [AF4]"""
    with pytest.raises(mc.errors.UsageError, match="the log cannot be read: "), parsed("the log"):
        raise error
    with pytest.raises(KeyboardInterrupt), parsed("the log"):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "part",
    [
        pa.array([1, None], pa.int64()),
        pa.array([dt.date(2013, 1, 1), None]),
        pa.array([True, None]),
        pa.array([Decimal("1.20"), None], pa.decimal128(5, 2)),
    ],
)
def test_partitions_of_delta(tmp_path: Path, part: pa.Array) -> None:
    """[AF4]"""
    deltalake.write_deltalake(str(tmp_path / "t"), numbered(2, part=part), partition_by=["part"])
    check(str(tmp_path / "t"), numbered(2, part=part), "delta")


@pytest.mark.parametrize("part", [pa.array([1.5]), pa.array([1.5], pa.float32()), pa.array([b"x"])], ids=lambda each: str(each.type))
def test_partitions_of_delta_that_no_table_has_are_refused(tmp_path: Path, part: pa.Array) -> None:
    """[AF4]"""
    deltalake.write_deltalake(str(tmp_path / "t"), numbered(1, part=part), partition_by=["part"])
    with pytest.raises(mc.errors.UsageError, match=r"cannot partition a table here: .*'part'.*Nothing was adopted"):
        mc.Table(tmp_path / "t").adopt(from_="delta")
    assert not (tmp_path / "t" / "_manifest").exists()


@pytest.mark.parametrize("value", ["1::VARIANT", "{'a': 1}::VARIANT"])
def test_variants_of_parquet_are_not_adopted_as_structs(tmp_path: Path, value: str) -> None:
    """Which Spark could not read; a plain struct with these members is one. [AF1] [AF2]"""
    duckdb.sql(f"COPY (SELECT {value} AS v) TO '{tmp_path}/x.parquet'")
    with pytest.raises(mc.errors.SchemaMismatchError, match=r"x\.parquet.*column 'v.*may be a variant in this file"):
        mc.Table(tmp_path).adopt()
    pq.write_table(pa.table({"v": [{"metadata": b"a", "value": b"b"}]}), tmp_path / "x.parquet")
    assert mc.Table(tmp_path).adopt().rows == 1


def test_an_empty_delta_table(tmp_path: Path) -> None:
    """[AF4]"""
    deltalake.DeltaTable.create(str(tmp_path / "t"), pa.schema([("n", pa.int64())]))
    check(str(tmp_path / "t"), pa.table({"n": pa.array([], pa.int64())}), "delta")


VECTORS = ["deletionVectors"]
WITH_VECTORS = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": VECTORS, "writerFeatures": VECTORS}


@pytest.mark.parametrize(
    ("action", "change", "reason"),
    [
        ("protocol", WITH_VECTORS, "requires deletionVectors"),
        ("add", {"path": "s3://elsewhere/a.parquet"}, "outside of the table"),
        ("add", {"path": "/etc/a.parquet"}, "outside of the table"),
        ("add", {"path": "../a.parquet"}, "a.parquet"),
        ("add", {"path": "gone.parquet"}, "There is no file"),
        ("metaData", {"configuration": {"delta.columnMapping.mode": "id"}}, "maps columns by ids"),
    ],
)
def test_a_delta_table_that_cannot_be_taken_is_refused_whole(tmp_path: Path, action: str, change: dict[str, Any], reason: str) -> None:
    """[AF4]"""
    root = str(tmp_path / "t")
    deltalake.write_deltalake(root, numbered(2))
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text(
        "\n".join(json.dumps({name: {**value, **change} if name == action else value for name, value in each.items()}) for each in actions)
    )
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(mc.errors.UsageError, match=reason):
        mc.Table(root).adopt(from_="delta")
    assert sorted(tmp_path.rglob("*")) == before


# --- both ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("from_", ["iceberg", "delta"])
def test_where_no_such_table_is_nothing_is_made(tmp_path: Path, from_: str) -> None:
    """[AF4]"""
    pq.write_table(numbered(1), tmp_path / "a.parquet")
    with pytest.raises(mc.errors.NotATableError, match=r"holds no (Iceberg table|Delta log)"):
        mc.Table(tmp_path).adopt(from_=from_)
    with pytest.raises(mc.errors.UsageError, match="invalid from_ 'hudi': expected 'iceberg', 'delta', or the path"):
        mc.Table(tmp_path).adopt(from_="hudi")
    with pytest.raises(mc.errors.UsageError, match="partition_by: with from_"):
        mc.Table(tmp_path).adopt(from_=from_, partition_by="a")
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("from_", ["iceberg", "delta"])
def test_a_data_folder_of_another_format_is_no_plain_one(from_: str, root: Path) -> None:
    """It has replaced files and delete files; the error names the call that adopts the table. [AF2]"""
    if from_ == "iceberg":
        ice_table(str(root), Schema(N)).append(numbered(2))
        data = root / "data"
    else:
        deltalake.write_deltalake(str(root), numbered(2, part=["a", "b"]), partition_by=["part"])
        data = root / "part=a"
    for folder in (data, root):
        with pytest.raises(mc.errors.NotATableError, match=rf"/t is a table of .*Table\('file://{root}'\)\.adopt\(from_='{from_}'\)"):
            mc.Table(folder).adopt()
    assert not (data / "_manifest").exists()
    if from_ == "delta":
        assert mc.Table(f"file://{root}").adopt(from_=from_).rows == 2


@pytest.mark.thorough
@pytest.mark.parametrize("rewrite", [False, True])
def test_a_killed_adoption_is_completed(tmp_path: Path, rewrite: bool) -> None:
    """After every call of the store: nothing is listed twice, nothing is missing. [AF2] [AF4]"""
    data, from_ = numbered(3, part=["a", "b", None]), "delta"
    for number in range(1, 60):
        root = str(tmp_path / str(number))
        if rewrite:
            ice = ice_table(root, Schema(N, PART))
            with_two_names(ice)
            data, from_ = ice.scan().to_arrow(), document(ice)
        else:
            deltalake.write_deltalake(root, data, partition_by=["part"])
        store = FaultStore(open_store(root), {number: "dies_after"})
        session = TableContext(store)
        with contextlib.suppress(Died):
            adopt(session, source=source_of(session, from_, rewrite=rewrite))
        mc.Table(root).adopt(from_=from_, rewrite=rewrite)
        found, schema = expected(mc.Table(root))
        assert found == rows(data, schema)
        if len(store.calls) < number:
            break
    assert number > 10


def test_an_iceberg_table_that_has_moved_on_is_told(path: str) -> None:
    """[AF4]"""
    ice = ice_table(path, Schema(N))
    ice.append(numbered(2))
    adopted = mc.Table(path).adopt(from_=document(ice))
    before = ice.current_snapshot().snapshot_id
    ice.append(numbered(1))
    now = ice.current_snapshot().snapshot_id
    with pytest.raises(
        mc.errors.UsageError, match=rf"adopted from snapshot {before} of the Iceberg table.* is snapshot {now} of .*`add_files`"
    ):
        mc.Table(path).adopt(from_=document(ice))
    assert mc.Table(path).version == adopted.version and mc.Table(path).to_arrow().num_rows == 2
    assert mc.Table(path).adopt(from_=str(sorted(Path(path, "metadata").glob("*.metadata.json"))[1])).already_adopted


def test_a_delta_table_that_has_moved_on_is_told(path: str) -> None:
    """Also where a checkpoint is all that says so; not where the log is gone, or that of this table's exports. [AF4]"""
    deltalake.write_deltalake(path, numbered(2))
    mc.Table(path).adopt(from_="delta")
    deltalake.write_deltalake(path, numbered(1), mode="append")
    deltalake.DeltaTable(path).create_checkpoint()
    commit = Path(path, "_delta_log", f"{1:020d}.json")
    for _ in range(2):
        with pytest.raises(mc.errors.UsageError, match=r"adopted from version 0 of the Delta table.* is version 1 of .*Stop the jobs"):
            mc.Table(path).adopt(from_="delta")
        commit.unlink(missing_ok=True)
    assert mc.Table(path).to_arrow().num_rows == 2
    shutil.rmtree(commit.parent)
    assert mc.Table(path).adopt(from_="delta").already_adopted
    mc.Table(path).export("delta")
    assert mc.Table(path).adopt(from_="delta").already_adopted


def test_a_folder_that_was_adopted_was_not_adopted_from_a_format(path: str) -> None:
    """[AF4]"""
    Path(path).mkdir()
    pq.write_table(numbered(2), f"{path}/a.parquet")
    mc.Table(path).adopt()
    deltalake.write_deltalake(path, numbered(1))
    with pytest.raises(mc.errors.UsageError, match=r"adopted from a folder of files, and .* is version 0 of the Delta table now"):
        mc.Table(path).adopt(from_="delta")
