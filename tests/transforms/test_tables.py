"""Tables that are partitioned by transforms: written, filtered, changed and looked after as any other. [PT4] [PT6] [PT7]"""

import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator
from tests.kit.transforms import BY, NAME, TS, USER, moment, numbers, rows

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.errors import CommitConflictError, CorruptMetadataError, SchemaMismatchError, UsageError
from manifestcommit.format import codec
from manifestcommit.format.fields import MAX_FIELD_ID
from manifestcommit.format.object_names import version_name


@pytest.fixture
def table(tmp_path: Path) -> mc.Table:
    """Without bounds of anything but `n`: what a filter on another column skips, it skips by the transforms."""
    path = str(tmp_path / "t")
    mc.create_table(path, rows(1).schema, partition_by=BY, properties={"write.bounds-columns": "1"})
    mc.write(rows(), path)
    return mc.Table(path)


AT = "timestamp '1970-01-01 00:00:00Z'"
FILTERS = {
    "<": (moment(0) > TS, 0.5),
    "<=": (moment(0) >= TS, 0.8),
    ">=": (moment(0) <= TS, 0.8),
    ">": (moment(1, 23) < TS, 0.6),
    "not <": (~(moment(0) > TS), 0.8),
    "between": ((moment(0) <= TS) & (moment(1) > TS), 0.3),
    "=": (moment(0, 3) == TS, 0.3),
    "null": (TS.is_null(), 0.2),
    "valid": (TS.is_valid(), 0.99),
    "bucket =": (USER == 3, 0.5),
    "bucket null": (USER.is_null(), 0.3),
    "bucket in": (USER.isin([3, -7]), 0.7),
    "bucket not": (USER != 3, 1.0),
    "bucket <": (USER < 3, 1.0),
    "text =": (NAME == "éé", 0.4),
    "text <": (NAME < "b", 0.8),
    "text >": (NAME > "b", 0.8),
    "prefix": (pc.starts_with(NAME, "bb"), 0.4),
    "no prefix": (pc.starts_with(NAME, ""), 1.0),
    "or": ((USER == 3) | (moment(-1) > TS), 0.7),
}


@pytest.mark.parametrize("filter", FILTERS)
def test_a_filter_on_the_column_skips_partitions_and_no_row(table: mc.Table, filter: str) -> None:
    """[PT7] [RD6]"""
    expression, most = FILTERS[filter]
    assert numbers(table.to_arrow(filter=expression)) == numbers(table.to_arrow().filter(expression))
    assert len(table.files(filter=expression)) <= most * len(table.files())


IN_SQL = {
    "ts < timestamp '1970-01-01 00:00:00+00:00'": moment(0) > TS,
    "user in (3, 5)": USER.isin([3, 5]),
    "name like 'b%'": pc.starts_with(NAME, "b"),
    "not (name > 'a')": ~(NAME > "a"),
}


@pytest.mark.parametrize("filter", IN_SQL)
def test_a_filter_in_sql_skips_partitions(table: mc.Table, filter: str) -> None:
    """[PT7]"""
    assert numbers(table.to_arrow(filter=filter)) == numbers(table.to_arrow().filter(IN_SQL[filter]))
    assert len(table.files(filter=filter)) < 0.8 * len(table.files())


def test_rows_are_in_folders_for_people_and_files_hold_the_columns(table: mc.Table, tmp_path: Path) -> None:
    """[PT5] [PT6] [DF4]"""
    for path in table.files().column("path").to_pylist():
        names = [component.partition("=")[0] for component in path.split("/")[:-1]]
        assert names == ["ts_day", "user_bucket", "name_trunc"]
        assert pq.ParquetFile(tmp_path / "t" / path).schema_arrow.names == ["n", "ts", "user", "name"]
    parts = table.partitions()
    assert parts.column_names[:3] == ["ts_day", "user_bucket", "name_trunc"] and sum(parts.column("rows").to_pylist()) == 200
    assert table.describe()["partition_by"] == BY and table.to_arrow().column_names == ["n", "ts", "user", "name"]


def test_a_version_is_json_of_the_schema(table: mc.Table) -> None:
    """Numbers of transforms are where ids of columns are. [PT4] [OB2] [OB10]"""
    table.delete("user = 3")
    snapshot = table.snapshot()
    assert min(min(touch) for touch in snapshot.commits[0].touched) > MAX_FIELD_ID
    said = json.loads(codec.encode_json(snapshot))
    schema = Path(__file__).parents[2] / "spec" / "v1" / "schemas" / "snapshot.json"
    Draft202012Validator(json.loads(schema.read_text("utf-8"))).validate(said)


def test_every_reader_gets_the_columns_as_they_are(table: mc.Table) -> None:
    """[PT6]"""
    wanted = rows().sort_by("n")
    for found in (
        table.to_arrow(),
        table.dataset().to_table(),
        pa.Table.from_pandas(table.to_pandas(), schema=wanted.schema),
        table.to_polars().collect().to_arrow().cast(wanted.schema),
        table.duckdb().to_arrow_table().cast(wanted.schema),
    ):
        assert found.sort_by("n").equals(wanted)


def test_an_overwrite_of_one_day_replaces_that_day(table: mc.Table) -> None:
    """A static overwrite names the transform as its folder does. [PT3] [PT5]"""
    day = rows(80, 1000, seed=2).filter((moment(0) <= TS) & (moment(1) > TS))
    kept = table.to_arrow().filter((moment(0) > TS) | (moment(1) <= TS) | TS.is_null())
    with pytest.raises(UsageError, match="ts_day=1969-12-30"):
        mc.write(rows(5, 2000), table.url, mode="overwrite", overwrite={"ts_day": "1970-01-01"})
    mc.write(day, table.url, mode="overwrite", overwrite={"ts_day": "1970-01-01"})
    assert numbers(table.to_arrow()) == sorted(numbers(kept) + numbers(day))
    with pytest.raises(UsageError, match="no column 'ts'"):
        mc.write(day, table.url, mode="overwrite", overwrite={"ts": "1970-01-01"})


def test_a_dynamic_overwrite_replaces_the_transforms_partitions(table: mc.Table) -> None:
    """[CF3] [PT7]"""
    one = pa.table({"n": [1000], "ts": [moment(0, 5).as_py()], "user": [3], "name": ["bz"]}, schema=rows(1).schema)
    bucket = USER.isin([user for user in range(-20, 20) if _bucket(user) == _bucket(3)])
    same = (moment(0) <= TS) & (moment(1) > TS) & bucket & pc.starts_with(NAME, "b")
    gone = numbers(table.to_arrow().filter(same))
    before = numbers(table.to_arrow())
    mc.write(one, table.url, mode="overwrite", overwrite="dynamic")
    assert numbers(table.to_arrow()) == sorted({*before} - {*gone} | {1000})


def _bucket(user: int) -> int:
    from pyiceberg.transforms import BucketTransform
    from pyiceberg.types import LongType

    return BucketTransform(4).transform(LongType())(user)


@pytest.mark.thorough
def test_row_changes_and_upkeep(table: mc.Table) -> None:
    """[RC1] [GC11] [PT6]"""
    wanted = {row["n"]: row for row in rows().to_pylist()}
    table.update({"name": "'zz'"}, where="user = 3")
    wanted |= {n: row | {"name": "zz"} for n, row in wanted.items() if row["user"] == 3}
    table.delete("ts < timestamp '1969-12-31 00:00:00+00:00'")
    wanted = {n: row for n, row in wanted.items() if row["ts"] is None or row["ts"] >= moment(-1).as_py()}
    source = rows(30, 190, seed=3)
    table.merge(source, on="n")
    wanted |= {row["n"]: row for row in source.to_pylist()}
    for first in (1000, 1030):
        mc.write(rows(30, first, seed=first), table.url)
        wanted |= {row["n"]: row for row in rows(30, first, seed=first).to_pylist()}
    assert table.compact().files_before > 0
    assert table.compact(where="ts_day = '1970-01-01'").groups == 0
    assert {row["n"]: row for row in table.to_arrow().to_pylist()} == wanted
    assert table.verify(deep=True).damages == 0
    deleted = table.gc(keep_versions=1, keep_for="0s", grace="0s")
    assert deleted.deleted and not deleted.foreign.count and {row["n"]: row for row in table.to_arrow().to_pylist()} == wanted


def test_verify_reads_what_a_partition_holds(table: mc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose rows have another value of the transform is found. [DF3] [PT5]"""
    from manifestcommit.format import transforms

    honest = transforms._VALUES["bucket"]
    with monkeypatch.context() as patch:
        patch.setitem(transforms._VALUES, "bucket", lambda array, type, width: pc.add(honest(array, type, width), 1))
        mc.write(rows(5, 1000), table.url)
    found = table.verify(deep=True)
    assert found.damages and {each.kind for each in found.findings if each.severity != "note"} == {"file_partition_differs"}


@pytest.mark.parametrize(
    ("where", "other", "commutes"),
    [
        ("user = 3", {"user": 3}, False),
        ("user = 3", {"user": next(u for u in range(50) if _bucket(u) != _bucket(3))}, True),
        ("ts = timestamp '1970-01-01 05:00:00+00:00'", {"day": 0}, False),
        ("ts = timestamp '1970-01-01 05:00:00+00:00'", {"day": 1}, True),
        ("ts is null", {"day": 0}, True),
        (f"ts >= {AT} and ts < timestamp '1970-01-03 00:00:00Z'", {"day": 2}, True),
        (f"name > 'a' and (ts >= {AT} and ts < timestamp '1970-01-03 00:00:00Z')", {"day": 1}, False),
        (f"ts >= {AT}", {"day": -1}, False),
        ("name = 'bb'", {"name": "cb"}, True),
        ("name = 'bb'", {"name": "bc"}, False),
    ],
)
def test_what_a_change_has_read_is_judged_by_transforms(table: mc.Table, where: str, other: dict, commutes: bool) -> None:
    """[CF16] [PT7]"""
    row = {"n": 5000, "ts": moment(other.get("day", 0), 7).as_py(), "user": other.get("user", 3), "name": other.get("name", "bz")}
    new, version = table.to_arrow(filter=where), table.version
    mc.write(pa.Table.from_pylist([row], rows(1).schema), table.url)
    if commutes:
        assert table.overwrite_where(new, where, based_on=version).committed
        return
    with pytest.raises(CommitConflictError) as caught:
        table.overwrite_where(new, where, based_on=version)
    assert caught.value.rule == "read_partition_was_touched" and "name_trunc=" in str(caught.value)


def test_the_column_of_a_transform_stays_and_may_get_another_name(table: mc.Table) -> None:
    """[PT6] [SC6] [SC8]"""
    with pytest.raises(UsageError, match="'user' partitions the table and cannot be dropped"):
        table.drop_column("user")
    with pytest.raises(SchemaMismatchError, match="'user' partitions the table and is missing"):
        mc.write(rows(3).drop_columns(["user"]), table.url)
    table.rename_column("ts", "moment")
    assert table.describe()["partition_by"][0] == "day(moment)"
    mc.write(rows(20, 1000, seed=9).rename_columns(["n", "moment", "user", "name"]), table.url)
    filter = pc.field("moment") < moment(0)
    assert numbers(table.to_arrow(filter=filter)) == numbers(table.to_arrow().filter(filter))
    assert set(table.files().column("path").to_pylist()) and table.verify(deep=True).damages == 0
    table.add_column("ts_day", "int")
    assert len(table.files(filter=filter)) < len(table.files())


def test_a_wider_column_keeps_its_transforms(tmp_path: Path) -> None:
    """bucket and truncate of an integer are those of a long. [PT5] [SC5]"""
    path = str(tmp_path / "t")
    data = pa.table({"i": pa.array(range(-30, 30), pa.int32())})
    mc.write(data, path, partition_by=["bucket(3, i)", "truncate(10, i)"])
    table = mc.Table(path)
    table.widen_column("i", "bigint")
    mc.write(pa.table({"i": pa.array([-5, 2**40], pa.int64())}), path)
    for value in (-5, 7, 2**40):
        found = table.to_arrow(filter=pc.field("i") == value)
        assert found.column("i").to_pylist().count(value) == (2 if value == -5 else 1)
    assert table.verify(deep=True).damages == 0
    assert len(table.files(filter=pc.field("i") > 20)) < len(table.files())


def test_the_partitioning_is_stated_again_or_replaced(table: mc.Table) -> None:
    """[PT1] [SC10] [GC5]"""
    mc.write(rows(3, 1000), table.url, partition_by=["days(TS)", *BY[1:]])
    with pytest.raises(UsageError, match=r"is partitioned by day\(ts\), bucket\(4, user\), truncate\(1, name\), not by day\(ts\)"):
        mc.write(rows(3, 1000), table.url, partition_by=["day(ts)"])
    mc.write(rows(30), table.url, mode="overwrite", replace_schema=True, partition_by=["month(ts)", "n"])
    assert table.describe()["partition_by"] == ["month(ts)", "n"]
    assert "1969-12" in {str(path).split("/")[0].partition("=")[2] for path in table.files().column("path").to_pylist()}
    mc.write(rows(30), table.url, mode="overwrite", replace_schema=True)
    assert table.describe()["partition_by"] == ["month(ts)", "n"]
    assert numbers(table.to_arrow(version=2)) == list(range(200))


def test_what_has_no_value_is_refused_before_anything_is_committed(tmp_path: Path) -> None:
    """[PT5]"""
    path = str(tmp_path / "t")
    mc.write(pa.table({"i": pa.array([1], pa.int32())}), path, partition_by=["truncate(10, i)"])
    with pytest.raises(UsageError, match="column 'i' is too far from zero for truncate"):
        mc.write(pa.table({"i": pa.array([1, -(2**31)], pa.int32())}), path)
    assert mc.Table(path).to_arrow().num_rows == 1


@pytest.mark.thorough
def test_files_are_added_where_all_rows_have_one_value(table: mc.Table, tmp_path: Path) -> None:
    """[AF1] [PT5]"""
    fits = pa.table(
        {"n": [1, 2], "ts": [moment(0, 1).as_py(), moment(0, 2).as_py()], "user": [3, 3], "name": ["bx", "by"]}, schema=rows(1).schema
    )
    spans = fits.set_column(1, "ts", pa.array([moment(0, 1).as_py(), moment(1, 2).as_py()], fits.schema.field("ts").type))
    for name, data in (("fits", fits), ("spans", spans)):
        pq.write_table(data, tmp_path / "t" / f"{name}.parquet")
    with pytest.raises(SchemaMismatchError, match="several values"), mc.begin(table.url) as job:
        job.add_files(["spans.parquet"])
    with mc.begin(table.url) as job:
        job.add_files(["fits.parquet"])
    assert table.to_arrow(filter=USER == 3).num_rows == 2 + rows().filter(USER == 3).num_rows


@pytest.mark.parametrize("id", [7 << 31 | 1, 2**40 | 1 << 31 | 1, 1 << 31 | 1, 3 << 31 | MAX_FIELD_ID])
def test_a_version_with_an_impossible_transform_is_damaged(table: mc.Table, id: int) -> None:
    """No such function, a width where there is none, a column of another type, no column. [PT4] [OB4] [SE2]"""
    snapshot = table.snapshot()
    assert snapshot.schema.fields[0].type == "long"
    broken = id if id & MAX_FIELD_ID == MAX_FIELD_ID else id - 1 + snapshot.schema.fields[0].id
    wrong = msgspec.structs.replace(snapshot, partition_by=(broken,), manifests=(), added=())
    name = version_name(snapshot.version)
    with pytest.raises(CorruptMetadataError, match="damaged"):
        codec.decode_snapshot(codec.compress(codec.encode_json(wrong)), name=name)


def test_a_merge_has_read_the_transforms_partitions_of_its_keys(table: mc.Table) -> None:
    """[CF16] [PT7] [RC3]"""
    far = next(user for user in range(50) if _bucket(user) != _bucket(3))
    source = pa.Table.from_pylist([{"n": 1, "ts": None, "user": 3, "name": "q"}], rows(1).schema)
    for user, is_touched in ((far, False), (3, True)):
        version = table.version
        row = {"n": 5000 + user, "ts": None, "user": user, "name": "a"}
        mc.write(pa.Table.from_pylist([row], rows(1).schema), table.url)
        if not is_touched:
            assert table.merge(source, on="user", when_not_matched=None, based_on=version).committed
            continue
        with pytest.raises(CommitConflictError) as caught:
            table.merge(source, on="user", when_not_matched=None, based_on=version)
        assert caught.value.rule == "read_partition_was_touched"


@pytest.mark.thorough
def test_the_command_line_loads_into_transforms(tmp_path: Path) -> None:
    """[PT4] [LD1]"""
    (tmp_path / "in").mkdir()
    pq.write_table(rows(), tmp_path / "in" / "a.parquet")
    path = str(tmp_path / "t")
    assert main(["load", path, str(tmp_path / "in"), "--partition-by", "day(ts), bucket(4, user), truncate(1, name)"]) == 0
    assert mc.Table(path).describe()["partition_by"] == BY and numbers(mc.Table(path).to_arrow()) == list(range(200))


def test_files_are_adopted_by_columns_only(tmp_path: Path) -> None:
    """[AF2] [PT4]"""
    (tmp_path / "t").mkdir()
    pq.write_table(rows(), tmp_path / "t" / "a.parquet")
    with pytest.raises(UsageError, match=r"not of transforms such as day\(ts\)"):
        mc.Table(str(tmp_path / "t")).adopt(partition_by=["day(ts)"])
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["a.parquet"]
