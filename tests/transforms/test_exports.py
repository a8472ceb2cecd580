"""Exports of tables that are partitioned by transforms: Iceberg's readers take the transforms for their own. [EX6] [PT5]"""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, In, IsNull, LessThan, StartsWith
from pyiceberg.table import StaticTable
from tests.export.clients import DELTA, ICEBERG, expected, local
from tests.export.clients import rows as texts_of
from tests.kit.transforms import BY, NAME, TS, USER, moment, rows

import manifestcommit as mc

DAY = "1970-01-01T00:00:00+00:00"
FILTERS = [
    (And(GreaterThanOrEqual("ts", DAY), LessThan("ts", "1970-01-02T00:00:00+00:00")), (moment(0) <= TS) & (moment(1) > TS)),
    (LessThan("ts", DAY), moment(0) > TS),
    (EqualTo("user", 3), USER == 3),
    (In("user", [3, -7]), USER.isin([3, -7])),
    (IsNull("user"), USER.is_null()),
    (StartsWith("name", "bb"), pa.compute.starts_with(NAME, "bb")),
    (EqualTo("name", "éé"), NAME == "éé"),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mc.Table:
    path = str(tmp_path_factory.mktemp("transforms") / "t")
    mc.create_table(path, rows(1).schema, partition_by=BY, properties={"write.bounds-columns": "1"})
    mc.write(rows(), path)
    found = mc.Table(path)
    found.add_column("ts_day", "int")
    found.export("iceberg")
    found.export("delta")
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("client", [*ICEBERG, *DELTA])
def test_other_engines_read_the_rows(table: mc.Table, client: str) -> None:
    """Delta, which has no transforms, as a table without partitions. [EX6] [EX3]"""
    wanted, schema = expected(table)
    assert texts_of((ICEBERG | DELTA)[client](local(table)), schema) == wanted


def test_the_spec_has_the_transforms(table: mc.Table) -> None:
    """A name that is a column's, too, is another one in Iceberg. [EX6] [PT5]"""
    spec = StaticTable.from_metadata(f"{local(table)}/_iceberg").spec()
    assert [(str(field.transform), field.name) for field in spec.fields] == [
        ("day", "ts_day_"),
        ("bucket[4]", "user_bucket"),
        ("truncate[1]", "name_trunc"),
    ]


@pytest.mark.parametrize("number", range(len(FILTERS)))
def test_pyiceberg_skips_by_the_transforms_what_we_skip(table: mc.Table, number: int) -> None:
    """Its own projections of its own transforms find the same files as ours. [PT5] [PT7]"""
    theirs, ours = FILTERS[number]
    scan = StaticTable.from_metadata(f"{local(table)}/_iceberg").scan(row_filter=theirs)
    planned = {task.file.file_path.removeprefix(f"{table.url}/") for task in scan.plan_files()}
    assert planned == set(table.files(filter=ours).column("path").to_pylist()) and 0 < len(planned) < len(table.files())
    assert sorted(scan.to_arrow().column("n").to_pylist()) == sorted(table.to_arrow(filter=ours).column("n").to_pylist())


@pytest.mark.thorough
def test_every_transform_of_every_type_is_read_back(tmp_path: Path) -> None:
    """Values in Iceberg's manifests have the type that Iceberg gives them. [EX6] [PT5]"""
    columns = {
        "y": ("year", rows().column("ts")),
        "m": ("month", rows().column("ts").cast(pa.timestamp("us"))),
        "d": ("day", pa.array([None, -1, 0, 20_000] * 50, pa.int32()).cast(pa.date32())),
        "h": ("hour", rows().column("ts")),
        "t": ("truncate(10, {})", pa.array([None, -1, 0, 127] * 50, pa.int8())),
        "p": ("truncate(50, {})", pa.array([None, Decimal("-1.25"), Decimal(0), Decimal("99.99")] * 50, pa.decimal128(9, 2))),
        "b": ("truncate(2, {})", pa.array([None, b"", b"abc", bytes(range(250, 256))] * 50, pa.binary())),
    }
    by = [(text if "{" in text else text + "({})").format(name) for name, (text, _) in columns.items()]
    for name, call in zip(columns, by, strict=True):
        path = str(tmp_path / name)
        mc.write(pa.table({name: columns[name][1]}), path, partition_by=[call])
        table = mc.Table(path)
        table.export("iceberg")
        wanted, schema = expected(table)
        for read in ICEBERG.values():
            assert texts_of(read(local(table)), schema) == wanted, call
