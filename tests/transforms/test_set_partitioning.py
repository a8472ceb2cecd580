"""Tables that get another partitioning: no row changes, and whatever reads or writes them goes on. [SC13] [PT4]"""

import contextlib
import datetime as dt
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.export.clients import DELTA, ICEBERG, expected, local
from tests.export.clients import rows as texts_of
from tests.kit.faults import carried, carry, publish
from tests.kit.row_works import before_its_create
from tests.kit.sizes import SetBudgets, rounds
from tests.kit.tables import memory as new_memory
from tests.kit.tables import rows as kit_rows
from tests.kit.tables import session, write
from tests.kit.transforms import BY, NAME, TS, USER, moment, numbers, rows

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.errors import CommitConflictError, UsageError
from manifestcommit.format.change import Inputs, Overwrite, Write
from manifestcommit.log.version_chain import open_head
from manifestcommit.operations.alter import partitioned
from manifestcommit.operations.verify import verify
from manifestcommit.protocol.conflict import find_conflict
from manifestcommit.rows import row_change
from manifestcommit.rows.where import rewrite_all

OTHERS = ["month(ts)", "bucket(3, user)"]
FILTERS = [(moment(0) <= TS) & (moment(1) > TS), USER == 3, USER.is_null(), NAME == "éé", moment(0) > TS]


@pytest.fixture
def table(tmp_path: Path) -> mc.Table:
    path = str(tmp_path / "t")
    for at in range(4):
        mc.write(rows(50, 50 * at, seed=at), path, partition_by=BY)
    return mc.Table(path)


@pytest.mark.thorough
def test_all_rows_lie_in_the_new_partitions_and_old_versions_in_theirs(table: mc.Table, set_budgets: SetBudgets) -> None:
    """In one commit, which changes no row: filters skip by the new partitions, files in manifests, too. [SC13] [PT7] [GC5]"""
    set_budgets(inline_entry_bytes=0)
    mc.write(rows(10, 200), table.url)
    everything, before = table.to_arrow(), table.version
    planned = table.set_partitioning(OTHERS, dry_run=True)
    assert (planned.kind, planned.rows_rewritten, table.version) == ("planned", 210, before)
    done = table.noting("why", metadata={"a": "b"}).set_partitioning(OTHERS)
    assert (done.version, done.rows_rewritten, done.files_rewritten) == (before + 1, 210, len(planned.rewrites))
    assert table.set_partitioning(["months(TS)", OTHERS[1]]).kind == "unchanged" and table.version == before + 1
    assert table.describe()["partition_by"] == OTHERS and table.describe(version=before)["partition_by"] == BY
    for version in (before, None):
        for wanted in FILTERS:
            assert numbers(table.to_arrow(filter=wanted, version=version)) == numbers(everything.filter(wanted))
            assert len(table.files(filter=wanted, version=version)) < len(table.files(version=version))
    line = table.history(1)[0]
    assert (line["operation"], line["message"]) == ("replace", "why")
    assert table.changed_rows(before).read_all().num_rows == 0
    table.rollback(before, reason="back")
    assert table.describe()["partition_by"] == BY and numbers(table.to_arrow()) == numbers(everything)
    table.set_partitioning([])
    assert {"/" in path for path in table.files().column("path").to_pylist()} == {False}
    assert table.gc(grace="0s", keep_versions=1, keep_for="0s").deleted["data file"].count > 0 and not table.verify(deep=True).findings


Row = tuple[int, int | None, str]
TEXTS = st.sampled_from(["a", "ab", "b", ""])
USERS = st.none() | st.integers(-3, 3)
PARTS = ["user", "name", "bucket(2, user)", "truncate(2, user)", "truncate(1, name)"]
STEPS: dict[str, st.SearchStrategy[Any]] = {
    "write": st.lists(st.tuples(USERS, TEXTS), min_size=1, max_size=5),
    "delete": USERS,
    "update": USERS,
    "dynamic": st.lists(st.tuples(USERS, TEXTS), min_size=1, max_size=3),
    "compact": st.none(),
    "partition": st.lists(
        st.sampled_from(["user", "name", "bucket(2, user)", "truncate(2, user)", "truncate(1, name)"]), max_size=2, unique=True
    ),
    "rollback": st.integers(0, 5),
    "gc": st.none(),
}
STEP = st.sampled_from([*STEPS, "partition", "partition"]).flatmap(lambda name: st.tuples(st.just(name), STEPS[name]))


@pytest.mark.thorough
@settings(max_examples=rounds(8, 300), deadline=None)
@given(st.lists(STEP, min_size=4, max_size=12))
def test_it_is_a_plain_table_whatever_partitions_it(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]) -> None:
    """Writes, changes of rows, overwrites, compaction, rollbacks and gc between changes of the partitioning. [SC13] [CF3] [RC2] [GC5]"""
    path = str(tmp_path_factory.mktemp("t") / "t")
    schema = pa.schema([("n", pa.int64()), ("user", pa.int32()), ("name", pa.string())])
    table = mc.create_table(path, schema)
    plain: list[Row] = []
    past, number = {table.version: plain}, 0

    def arrow(pairs: list[tuple[int | None, str]]) -> pa.Table:
        nonlocal number
        made = [(number + at, user, name) for at, (user, name) in enumerate(pairs)]
        number += len(made)
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in made], schema=schema)

    def tuples(found: pa.Table) -> list[Row]:
        return sorted((row["n"], row["user"], row["name"]) for row in found.to_pylist())

    for name, what in steps:
        if name == "write":
            data = arrow(what)
            mc.write(data, path)
            plain = [*plain, *tuples(data)]
        elif name in ("delete", "update"):
            where = pc.field("user").is_null() if what is None else pc.field("user") == what
            mine = [row for row in plain if row[1] == what]
            plain = [row for row in plain if row[1] != what]
            if name == "delete":
                table.delete(where)
            else:
                table.update({"user": 3, "name": pc.scalar("ab")}, where=where)
                plain += [(row[0], 3, "ab") for row in mine]
        elif name == "dynamic":
            data = arrow(what)
            by = table.describe()["partition_by"]
            gone = {part_of(row, by) for row in tuples(data)}
            mc.write(data, path, mode="overwrite", overwrite="dynamic")
            plain = [row for row in plain if part_of(row, by) not in gone] + tuples(data)
        elif name == "compact":
            table.compact(min_files=2)
        elif name == "partition":
            with contextlib.suppress(UsageError):  # two folders of one name
                table.set_partitioning(what)
        elif name == "rollback":
            target = sorted(past)[what % len(past)]
            plain = past[target]
            if target != table.version:
                table.rollback(target, reason="back")
        else:
            table.gc(grace="0s", keep_versions=1, keep_for="0s")
            past = {}
        past[table.version] = plain
        for version, wanted in past.items():
            assert tuples(table.to_arrow(version=version)) == sorted(wanted, key=lambda row: row[0])
        for user in (None, -1, 3):
            condition = pc.field("user").is_null() if user is None else pc.field("user") == user
            assert tuples(table.to_arrow(filter=condition)) == sorted(row for row in plain if row[1] == user)
    assert table.verify(deep=True).is_sound


def part_of(row: Row, by: list[str]) -> tuple[Any, ...]:
    """The partition of a row, by the functions' definitions; one bucket of two stands for itself by its hash."""
    _, user, name = row
    made = {
        "user": user,
        "name": name,
        "truncate(2, user)": None if user is None else user - user % 2,
        "truncate(1, name)": name[:1],
        "bucket(2, user)": None if user is None else BUCKETS[user],
    }
    return tuple(made[each] for each in by)


# Murmur3 of the number as eight bytes, modulo 2: computed by pyiceberg-core, the reference of Iceberg's values.
def _buckets() -> dict[int, int]:
    from pyiceberg.transforms import BucketTransform
    from pyiceberg.types import LongType

    bucket = BucketTransform(2).transform(LongType())
    return {number: bucket(number) for number in range(-3, 4)}


BUCKETS = _buckets()


def _append(path: str) -> None:
    mc.write(rows(10, 500), path)


def _delete(path: str) -> None:
    mc.Table(path).delete("n < 10")


def _compact(path: str) -> None:
    mc.Table(path).compact(min_files=2)


def _partition(path: str) -> None:
    mc.Table(path).set_partitioning(["user"])


@pytest.mark.parametrize("theirs", [_append, _delete, _compact, _partition])
def test_what_others_do_meanwhile_is_in_the_new_partitions_too(
    table: mc.Table, monkeypatch: pytest.MonkeyPatch, theirs: Callable[[str], None]
) -> None:
    """It is done again on top of them. [SC13] [CF16] [CF7] [RC11]"""
    with before_its_create(monkeypatch, lambda: theirs(table.url)):
        done = table.set_partitioning(OTHERS)
    wanted = {_append: [*range(200), *range(500, 510)], _delete: [*range(10, 200)]}.get(theirs, [*range(200)])
    assert done.tries == 2 and numbers(table.to_arrow()) == wanted and table.verify(deep=True).is_sound
    assert table.describe()["partition_by"] == OTHERS


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["append", "serializable", "blind", "dynamic"])
def test_files_for_the_former_partitions_conflict(table: mc.Table, kind: str) -> None:
    """Of writes of every kind, and of changes of rows that are published later. [CF9] [SC13]"""
    job = mc.begin(table.url)
    if kind != "append":
        job.overwrite("dynamic" if kind == "dynamic" else None, conflict="blind" if kind == "blind" else "serializable")
    job.write(rows(5, 900))
    staged = table.update({"user": 1}, where="n = 3", publish=False)
    table.set_partitioning(OTHERS)
    for act in (job.commit, mc.Staged(table.url, staged.job_id).publish):
        with pytest.raises(CommitConflictError) as caught:
            act()
        assert caught.value.rule in ("partitioning", "replaced_file_is_gone")
    assert numbers(table.to_arrow()) == list(range(200)) and table.verify(deep=True).is_sound


@pytest.mark.parametrize("conflict", ["serializable", "blind", "fail"])
@pytest.mark.parametrize("replaces", [False, True])
def test_an_overwrite_without_files_names_partitions_of_its_time(table: mc.Table, conflict: Any, replaces: bool) -> None:
    """By the values of the former ones it deletes nothing. [CF9] [PT3]"""
    table.set_partitioning(["user"])
    job = mc.begin(table.url)
    job.overwrite({"user": 3}, conflict=conflict)
    if replaces:
        mc.write(rows(), table.url, mode="overwrite", replace_schema=True, partition_by=["name"])
    else:
        table.set_partitioning(["name"])
    with pytest.raises(CommitConflictError) as caught:
        job.commit()
    assert caught.value.rule == "partitioning" and numbers(table.to_arrow()) == list(range(200))


def test_no_file_is_left_in_the_former_partitions(table: mc.Table) -> None:
    """Whatever a change says that replaces some of the files. [SC13] [CF9]"""
    head = table.snapshot()
    some = frozenset(table.files().column("path").to_pylist()[1:])
    change = Write(
        job="v1-x", birth=head.version, operation="overwrite", partition_by=(), repartitions=True, remove=some, schema=head.schema
    )
    found = find_conflict(head, change, Inputs())
    assert found is not None and (found.rule, found.mine) == ("partitioning", "partitions the table by nothing")
    assert find_conflict(head, msgspec.structs.replace(change, overwrite=Overwrite(scope=({},))), Inputs()) is None


@pytest.mark.thorough
@pytest.mark.parametrize("client", [*ICEBERG, *DELTA])
def test_other_engines_read_it_after_each_commit(table: mc.Table, client: str) -> None:
    """Iceberg gets another spec; Delta, which has no transforms, is no longer partitioned, or is by the columns. [SC13] [EX3] [EX6]"""
    table.set_properties({"export.formats": "iceberg,delta"})
    for by in (OTHERS, ["user"], []):
        table.set_partitioning(by)
        mc.write(rows(10, 500 + table.version * 10), table.url)
        wanted, schema = expected(table)
        assert texts_of((ICEBERG | DELTA)[client](local(table)), schema) == wanted


def test_files_that_lack_their_partition_column_get_it(tmp_path: Path) -> None:
    """Of an adopted table, whose folders alone have the values. [DF4] [SC13]"""
    for day in ("2020-01-01", "2020-02-01"):
        folder = tmp_path / "t" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2]}), folder / "x.parquet")
    table = mc.Table(tmp_path / "t")
    table.adopt()
    everything = table.to_arrow().sort_by([("day", "ascending"), ("n", "ascending")])
    table.set_partitioning(["month(day)"])
    assert table.to_arrow().sort_by([("day", "ascending"), ("n", "ascending")]) == everything
    assert table.files(filter=pc.field("day") == dt.date(2020, 2, 1)).num_rows == 1 and table.verify(deep=True).is_sound


def test_what_files_say_of_their_sources_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with ranges and without are not mixed, and no range is lost, however many there are. [GC11] [OB8]"""
    monkeypatch.setattr(row_change, "MAX_SOURCES", 2)
    path = tmp_path / "t"
    for at in range(5):
        mc.write(rows(10, 10 * at), path, watermarks={f"s{at}": (at, at + 1)})
    mc.write(rows(10, 50), path)
    table = mc.Table(path)
    table.set_partitioning(["bucket(2, user)"])
    for at in range(5):
        found = table.lineage(f"s{at}", at)
        assert found is not None and found.files
    assert numbers(table.to_arrow()) == list(range(60))


def test_what_cannot_partition_is_refused_before_anything_is_read(table: mc.Table, tmp_path: Path) -> None:
    """[SC13] [PT1] [PT4]"""
    before = sorted(tmp_path.rglob("*"))
    for by, says in ((["nope"], "no column 'nope'"), (["day(user)"], "day takes"), (["user", "user"], "twice|two"), ([""], "empty")):
        with pytest.raises(UsageError, match=says):
            table.set_partitioning(by)
    mc.begin(tmp_path / "u").commit()
    with pytest.raises(UsageError, match="no columns yet"):
        mc.Table(tmp_path / "u").set_partitioning(["a"])
    assert [each for each in sorted(tmp_path.rglob("*")) if tmp_path / "u" not in (each, *each.parents)] == before


@pytest.mark.thorough
def test_on_the_command_line(table: mc.Table, capsys: pytest.CaptureFixture[str]) -> None:
    """[SC13]"""
    assert main(["set-partitioning", table.url, "--partition-by", "month(ts), bucket(3, user)", "--dry-run", "--json"]) == 0
    assert table.describe()["partition_by"] == BY
    assert main(["set-partitioning", table.url, "--partition-by", "month(ts), bucket(3, user)", "--message", "m"]) == 0
    assert table.describe()["partition_by"] == OTHERS and table.history(1)[0]["message"] == "m"
    assert main(["set-partitioning", table.url, "--partition-by", ""]) == 0 and table.describe()["partition_by"] == []
    assert main(["set-partitioning", table.url, "--partition-by", "week(ts)"]) == 2 and "calls no transform" in capsys.readouterr().err


# --- beside loads, recoverable jobs, joint commits, groups of commits and clones ------------------------------------------


@pytest.mark.thorough
def test_loads_go_on_into_the_new_partitions(tmp_path: Path) -> None:
    """Each file once; `follow` reads the table through the change of its source's partitions. [LD1] [SC13]"""
    landing, path = tmp_path / "landing", tmp_path / "t"
    landing.mkdir()
    source = mc.sources.files(landing, settle="0s")
    mc.create_table(path, rows(1).schema, partition_by=["day(ts)"])
    copied = mc.sources.table(path)
    for at, by in enumerate((OTHERS, ["truncate(1, name)"], [])):
        pq.write_table(rows(20, 20 * at, seed=at), landing / f"{at}.parquet")
        assert mc.load(source, path).rows == 20
        assert mc.load(copied, tmp_path / "copy").rows == 20
        mc.Table(path).set_partitioning(by)
        assert mc.load(source, path).rows == 0 == mc.load(copied, tmp_path / "copy").rows
    for each in (path, tmp_path / "copy"):
        assert numbers(mc.Table(each).to_arrow()) == list(range(60)) and mc.Table(each).verify(deep=True).is_sound


@pytest.mark.thorough
def test_a_recoverable_job_begun_before_writes_its_files_anew(table: mc.Table) -> None:
    """Its tasks' files are for the former partitions: the first run conflicts, the second one commits the key once. [AB6] [CF9]"""
    more = rows(20, 200)

    def run() -> mc.Outcome:
        return mc.write(more, table.url, key="k", fingerprint="f", recoverable=True)

    first = mc.begin(table.url, key="k", fingerprint="f", recoverable=True)
    first.write(more)
    table.set_partitioning(OTHERS)
    with pytest.raises(CommitConflictError) as caught:
        first.commit()
    assert caught.value.rule == "partitioning"
    assert run().committed and run().already_committed
    assert numbers(table.to_arrow()) == list(range(220)) and table.verify(deep=True).is_sound


@pytest.mark.thorough
def test_joint_commits_of_tables_with_transforms(table: mc.Table, tmp_path: Path) -> None:
    """Both or none, where one of them gets other partitions meanwhile. [MT3] [CF9] [SC13]"""
    other = mc.Table(tmp_path / "other")
    mc.write(rows(10), other.url, partition_by=["hour(ts)"])
    with mc.transaction({"a": table.url, "b": other.url}) as tx:
        for name in tx:
            tx[name].write(rows(10, 200))
    late = mc.transaction({"a": table.url, "b": other.url})
    for name in late:
        late[name].write(rows(10, 300))
    other.set_partitioning(["bucket(2, user)"])
    with pytest.raises(CommitConflictError):
        late.commit()
    assert (numbers(table.to_arrow())[-1], numbers(other.to_arrow())[-1]) == (209, 209)
    with mc.transaction({"a": table.url, "b": other.url}) as tx:
        for name in tx:
            tx[name].write(rows(10, 300))
    assert (numbers(table.to_arrow())[-1], numbers(other.to_arrow())[-1]) == (309, 309)
    assert table.verify(deep=True).is_sound and other.verify(deep=True).is_sound


def test_a_group_leaves_out_what_was_written_for_the_former_partitions() -> None:
    """A waiting writer's files of the same partitioning are committed with another's, of the former one they are not. [CM19] [CF9]"""
    memory = new_memory()
    write(memory, kit_rows(range(9)))
    waiting = publish(memory, 100)
    assert carry(memory, 101).committed and waiting in carried(memory, open_head(memory).version)
    waiting = publish(memory, 102)
    rewrite_all(session(memory), partition_by=partial(partitioned, ["truncate(2, id)"]))
    assert carry(memory, 103).committed and waiting not in carried(memory, open_head(memory).version)
    assert verify(session(memory), deep=True).is_sound


@pytest.mark.thorough
def test_a_clone_has_each_version_in_its_partitions(table: mc.Table, tmp_path: Path) -> None:
    """[CN1] [SC13]"""
    target = str(tmp_path / "clone")
    first = table.version
    mc.clone(table.url, target)
    table.set_partitioning(OTHERS)
    mc.write(rows(10, 200), table.url)
    assert mc.clone(table.url, target).versions == 2
    copy = mc.Table(target)
    for version in range(first, table.version + 1):
        assert copy.describe(version=version)["partition_by"] == table.describe(version=version)["partition_by"]
        assert numbers(copy.to_arrow(version=version, filter=USER == 3)) == numbers(table.to_arrow(version=version, filter=USER == 3))
    copy.set_partitioning([])
    assert numbers(copy.to_arrow()) == list(range(210)) and copy.verify(deep=True).is_sound
