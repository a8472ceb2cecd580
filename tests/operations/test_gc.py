"""gc as callers and the command line meet it: policy, plan, report, keys, foreign and unfinished files. [GC1] [GC5] [GC6] [GC9]"""

import datetime as dt
import json
import os
import shutil
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.clocks import DAY_S, Clock
from tests.kit.sizes import SetBudgets
from tests.kit.tables import begin, check_head, check_table, memory, read_ids, rollback, rows, session, table_with, write

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.errors import CommitConflictError, JobFencedError, SnapshotExpiredError
from manifestcommit.format import object_names
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import open_head
from manifestcommit.operations import store_inventory
from manifestcommit.operations.gc import run
from manifestcommit.operations.gc import run as gc_run
from manifestcommit.protocol.apply import _dated
from manifestcommit.protocol.retention import Policy
from manifestcommit.runtime.validation import parse_age
from manifestcommit.store import LocalStore, ObjectInfo, open_store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore, FaultCall, FaultStore

DAY = "a b%2F+=#'é🦆"
HARSH: dict[str, Any] = {"grace": "0s", "keep_for": "0s"}


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Four versions: what 2 and 3 added, 4 has replaced. One file that something else wrote."""
    path = str(tmp_path / "a table%+é")
    mc.write(rows([1], day=DAY), path, partition_by=["day"])
    mc.write(rows([2], day=None), path)
    mc.write(rows([3], day="x"), path, mode="overwrite")
    Path(path, "notes é.csv").write_bytes(b"1,2")
    return path


def files(root: str) -> set[str]:
    return {os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names}


def ids(root: str, **options: Any) -> list[int]:
    return sorted(mc.Table(root).dataset(**options).to_table()["id"].to_pylist())


def make_older(root: str, age_s: float) -> None:
    """As if everything in it had been written so long ago."""
    moment = time.time() - age_s
    for name in files(root):
        os.utime(os.path.join(root, name), (moment, moment))


# --- policy ---------------------------------------------------------------------------------------------------------------
def test_by_default_nothing_young_goes(root: str) -> None:
    """[GC1]"""
    before = files(root)
    report = mc.gc(root)
    assert isinstance(report, mc.GcReport)
    assert (report.version, report.fence, report.expired, report.deleted) == (4, 1, 1, {})
    assert files(root) == before and ids(root, version=2) == [1]


def test_what_stays_is_told_with_its_bytes(root: str) -> None:
    """Everything that is there afterwards, but foreign files, and nothing twice. [GC5]"""
    report = mc.gc(root, **HARSH)
    assert isinstance(report, mc.GcReport) and report.deleted and report.foreign.count == 1
    left = files(root) - {"notes é.csv"}
    assert (report.kept.count, report.kept.bytes) == (len(left), sum(os.path.getsize(os.path.join(root, name)) for name in left))


def test_old_versions_and_what_only_they_list_go(root: str) -> None:
    """[GC1] [GC2] [GC5] [GC7]"""
    make_older(root, 8 * 86_400)
    report = mc.gc(root)
    assert isinstance(report, mc.GcReport)
    assert (report.version, report.fence, report.expired) == (5, 4, 4)
    assert {kind: tally.count for kind, tally in report.deleted.items()} == {"data file": 2, "version": 3}
    assert report.foreign.count == 1
    assert ids(root) == ids(root, version=4) == [3]
    with pytest.raises(SnapshotExpiredError):
        mc.Table(root).snapshot(version=3)
    assert mc.Table(root).history()[0]["operation"] == "gc"
    assert len(files(root)) == 6, "two versions, the marker, the hint, a data file and a foreign one"


def test_a_version_that_was_the_newest_one_within_the_age_stays(root: str) -> None:
    """Version 3 is old, but its successor is young: it could be read a moment ago. [GC1]"""
    make_older(root, 8 * 86_400)
    os.utime(os.path.join(root, "_manifest/versions/00000000000000000004.json.zst"))
    report = mc.gc(root)
    assert isinstance(report, mc.GcReport) and (report.fence, report.expired) == (3, 3)
    assert ids(root, version=3) == [1, 2]


def test_a_tagged_version_stays_until_its_time_has_come(root: str) -> None:
    """What only a tagged version lists is not deleted. [GC4] [GC10] [IV7]"""
    table = mc.Table(root)
    table.tag("ever é", 2)
    table.tag("an hour", 3, keep_for="1h")
    for _ in range(2):
        table.gc(**HARSH)
    assert ids(root, tag="ever é") == [1] and ids(root, tag="an hour") == [1, 2]
    table.tag("an hour", 3, keep_for=dt.timedelta(microseconds=1))
    for _ in range(2):
        table.gc(**HARSH)
    assert ids(root, tag="ever é") == [1] and set(table.snapshot().tags) == {"ever é"}
    with pytest.raises(SnapshotExpiredError):
        table.snapshot(version=3)
    table.untag("ever é")
    table.gc(**HARSH)
    assert sum(name.endswith(".parquet") for name in files(root)) == 1


def test_ages() -> None:
    """[GC1]"""
    known = {"0s": 0, "90m": 5400, "24h": 86_400, "7d": 604_800, "2w": 1_209_600, dt.timedelta(hours=1): 3600}
    assert {age: parse_age(age) for age in known} == known


# --- plan, report, foreign files ------------------------------------------------------------------------------------------
def test_a_plan_says_what_would_go_and_touches_nothing(root: str) -> None:
    """[GC5]"""
    before = {name: os.stat(os.path.join(root, name)).st_mtime_ns for name in files(root)}
    plan = mc.Table(root).plan_gc(foreign=True, **HARSH)
    assert plan.column_names == ["name", "bytes", "reason", "action"]
    assert {name: os.stat(os.path.join(root, name)).st_mtime_ns for name in files(root)} == before
    assert all(plan["reason"].to_pylist())
    told = {each["name"] for each in plan.to_pylist() if each["action"] == "delete"}
    mc.gc(root, foreign=True, **HARSH)
    assert before.keys() - files(root) == told and "notes é.csv" in told
    assert mc.Table(root).plan_gc(grace="1h").num_rows == 0


def test_foreign_files_go_on_demand_only_and_only_old_ones(root: str) -> None:
    """[GC6]"""
    for name in ("_SUCCESS", "_delta_log/0.json", "day=x/.part.crc", "young.csv"):
        Path(root, name).parent.mkdir(exist_ok=True)
        Path(root, name).write_bytes(b"?")
    make_older(root, 90_000)
    os.utime(os.path.join(root, "young.csv"))
    before = files(root)
    mc.gc(root)
    assert {name for name in before ^ files(root) if not name.startswith("_manifest/versions/")} == set()
    plan = mc.Table(root).plan_gc(foreign=True)
    why = {each["name"]: "never deletes it" in each["reason"] for each in plan.to_pylist() if each["action"] == "leave"}
    assert why == {"_SUCCESS": True, "_delta_log/0.json": True, "day=x/.part.crc": True, "young.csv": False}
    report = mc.gc(root, foreign=True)
    assert isinstance(report, mc.GcReport) and report.deleted["foreign file"].count == 1
    assert report.foreign.count == 4
    assert "notes é.csv" not in files(root) and "young.csv" in files(root)


def test_gc_by_another_spelling_of_the_root_deletes_nothing_that_is_live(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are compared below the root, as they were written: what differs between two spellings of a place is not in them. [ST4] [GC5]"""
    monkeypatch.chdir(os.path.dirname(root))
    os.symlink(root, "a link")
    spellings: list[Any] = [
        Path(root), f"{root}/", f"file://{root}", os.path.basename(root), f"{root}/../{os.path.basename(root)}", "a link",
    ]  # fmt: skip
    for spelling in spellings:
        assert isinstance(mc.gc(spelling, foreign=True, **HARSH), mc.GcReport) and ids(root) == [3]
        mc.write(rows([4], day=DAY), spelling, mode="overwrite")
        mc.write(rows([3], day="x"), root, mode="overwrite")
    assert sum(name.endswith(".parquet") for name in files(root)) == 3, "the head's, and two that were replaced a moment ago"


def test_gc_of_dataset1_takes_nothing_of_dataset10(tmp_path: Path) -> None:
    """Neither finished files, nor such as are being written, not even under the names of this table's own dead jobs. [GC5] [GC9]"""
    one, ten = str(tmp_path / "dataset1"), tmp_path / "dataset10"
    mc.write(rows([1], day="x"), one, partition_by=["day"])
    mc.write(rows([2], day="x"), str(ten), partition_by=["day"])
    job = mc.begin(one)
    left = [f"day=x/00000-{'0' * 16}-0-{job.id}.parquet", "day=x/.mc-tmp-0123456789abcdef", "notes"]
    left.append(f"day=x/.mc-tmp-0123456789abcdef-00001-{'0' * 16}-0-{job.id}.parquet")
    for folder in (Path(one), ten):
        for name in left:
            (folder / name).write_bytes(b"?")
    before = files(str(ten))
    for number in range(3):
        mc.write(rows([number], day="y"), one, mode="overwrite")
        mc.gc(one, foreign=True, **HARSH)
    assert files(str(ten)) == before and ids(str(ten)) == [2]
    assert not files(one) & set(left), "in the table itself all of it was dead"


def copy_within(root: str) -> set[str]:
    """What people do below a root to keep a copy; the names of all that they made, the table's own order of columns included."""
    before = files(root)
    shutil.copytree(root, Path(root).parent / "copy")
    shutil.move(Path(root).parent / "copy", Path(root, "backup=2013-01-01"))
    folders = [name for name in sorted(os.listdir(root)) if name.startswith("day=")]
    for folder in folders:
        for copied in (f"{folder}.bak", f"old-{folder}", f"Copy of {folder}", f"{folder}/{folder}", f"{folder}/backup"):
            if not copied.startswith(f"{folder}/"):
                shutil.copytree(Path(root, folder), Path(root, copied))
            else:
                target = Path(root, copied)
                target.mkdir()
                for each in Path(root, folder).glob("*.parquet"):
                    shutil.copy2(each, target)
        for each in list(Path(root, folder).glob("*.parquet")):
            shutil.copy2(each, each.with_name(f"copy-{each.name}"))
            shutil.copy2(each, each.with_name(f"{each.stem} (1).parquet"))
            shutil.copy2(each, Path(root, each.name))
    return files(root) - before


def test_a_copy_that_somebody_makes_below_the_root_stays_whole(tmp_path: Path) -> None:
    """Of the whole table, of a folder, of a file: gc takes the names that the table writes, and no other. [GC5] [GC6] [RD10]"""
    root = str(tmp_path / "a table%+é")
    mc.write(rows([1], day="d1"), root, partition_by=["day"])
    mc.write(rows([2], day=DAY), root)
    made = copy_within(root)
    plan = {row["name"]: row for row in table_with(rows([3], day="d3"), root).plan_gc(**HARSH).to_pylist()}
    assert {plan[name]["action"] for name in made} == {"leave"} and sum("a copy" in row["reason"] for row in plan.values()) == 2
    report = mc.gc(root, **HARSH)
    assert made <= files(root) and ids(root) == [1, 2, 3]
    assert isinstance(report, mc.GcReport) and report.foreign.count == len(made) and report.deleted.keys() == {"version"}
    assert ids(str(Path(root, "backup=2013-01-01"))) == [1, 2]
    told = {each.kind: each.problem for each in mc.Table(root).verify().findings}
    inner = sum(name.startswith("backup=2013-01-01/_manifest/") for name in made)
    assert f": {len(made) - inner - 2:,} of " in told["foreign_files"] and f": {inner:,} of " in told["other_table"]
    assert ": 2 of " in told["untracked_parquet"]  # whose names no longer show that they are copies
    assert {"orphans", "unlisted"}.isdisjoint(told)
    mc.gc(root, foreign=True, **HARSH)
    whole = {name for name in made if name.startswith("backup=2013-01-01/")}
    assert whole <= files(root) and not (made - whole) & files(root) and ids(root) == [1, 2, 3]


def test_a_copy_is_told_from_what_is_missing(path: str) -> None:
    """Whoever moved a file away finds it: gc leaves it, and verify says so. [GC5] [RD10]"""
    mc.write(rows([1], day="d1"), path, partition_by=["day"])
    Path(path, "day=d1").rename(Path(path, "day=moved"))
    for _ in range(2):
        report = mc.gc(path, **HARSH)
        assert isinstance(report, mc.GcReport) and (report.foreign.count, report.deleted.get("data file")) == (1, None)
    kinds = [each.kind for each in mc.Table(path).verify().findings]
    assert sorted(kinds) == ["file_missing", "foreign_files"]


def test_a_table_that_lists_no_file_any_more_is_cleaned(path: str) -> None:
    """All rows overwritten by none: no version that stays lists a file, and the old ones go. [GC5]"""
    mc.write(pa.table({"id": [1]}), path)
    mc.write(pa.table({"id": pa.array([], pa.int64())}), path, mode="overwrite")
    for _ in range(2):
        assert isinstance(mc.gc(path, **HARSH), mc.GcReport)
    assert ids(path) == [] and not [name for name in files(path) if name.endswith(".parquet")]


def test_a_set_of_many_paths_in_eight_bytes_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """[GC18]"""
    monkeypatch.setattr(store_inventory, "_BUFFER", 10)
    found = store_inventory.Names()
    assert found.holds(["x", ""]) == [False, False] and found.holds([]) == []
    found.add([])
    assert found.holds(["x"]) == [False] and len(found._sorted) == 0
    for number in [*range(1000), *range(500), 7]:
        found.add([f"day=é \udcff/{number}"])
    assert found.holds(f"day=é \udcff/{number}" for number in range(1002)) == [True] * 1000 + [False] * 2
    assert len(found._sorted) == 1000


def test_names_that_share_a_hash_are_kept_for_each_others_sake(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[GC18] [IV7]"""
    before = {name for name in files(root) if name.endswith(".parquet")}
    monkeypatch.setattr(store_inventory, "hash", lambda name: 7, raising=False)
    report = mc.gc(root, **HARSH)
    assert isinstance(report, mc.GcReport) and report.deleted.keys() == {"version"} and ids(root) == [3]
    assert before <= files(root)
    monkeypatch.undo()
    mc.gc(root, **HARSH)
    assert before - files(root) and ids(root) == [3]


def test_nothing_of_what_is_listed_stays_in_memory(tmp_path: Path) -> None:
    """A million objects that were looked at must not be a million names in memory. [GC18]"""
    alive = weakref.WeakSet[Name]()
    most = 0

    class Watched(LocalStore):
        def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
            nonlocal most
            for info in super().list(prefix, start_from=start_from):
                most = max(most, len(alive))
                named = Name(info.name)
                alive.add(named)
                yield msgspec.structs.replace(info, name=named)
                del named

    root = tmp_path / "t"
    mc.write(pa.table({"id": [1]}), root)
    store = Watched(str(root))
    dead, count = object_names.job_id(1, mc.Table(root).snapshot().table_id, bytes(16)), 3_500
    for number in range(count):
        (root / f"{number:05d}-{'0' * 16}-0-{dead}.parquet").touch()
    for number in range(count):
        (root / f"{number}.csv").touch()
    mc.write(pa.table({"id": [2]}), root)
    policy = Policy(grace_s=0, keep_for_s=0)
    report = run(TableContext(store), policy)
    assert report.deleted["data file"].count == count and report.foreign.count == count
    assert 900 < most < 1_700, "a request's worth of names that are to be deleted, those being compared, the hundred that the report tells"


@pytest.mark.thorough
def test_requests_follow_versions_and_manifests_and_not_files(tmp_path: Path, set_budgets: SetBudgets) -> None:
    """Ten times as many files cost one more list of nothing, and deletes of what is dead. [GC4] [GC5]"""
    set_budgets(inline_entry_bytes=0)
    asked = []
    for count in (30, 300):
        store = CountingStore(LocalStore(str(tmp_path / f"{count}")))
        mc.create_table(store.url, pa.schema([("id", pa.int64())]))
        with mc.begin(store.url) as job:
            for number in range(count):
                path = f"{number:05d}.parquet"
                pq.write_table(pa.table({"id": [number]}), tmp_path / f"{count}" / path)
            job.add_files([f"{number:05d}.parquet" for number in range(count)])
        mc.write(pa.table({"id": [1]}), store.url)
        report = run(TableContext(store), Policy(grace_s=0, keep_for_s=0))
        assert (report.version, report.fence, report.expired) == (4, 3, 3)
        asked.append((store.requests(), store.requests(under="_manifest/manifests/")["get"]))
    assert asked[0] == asked[1]
    assert asked[0][1] == 2, "each manifest of the versions that stay, once"
    assert asked[0][0]["delete"] == 2, "two versions"
    assert (asked[0][0]["list"], asked[0][0]["get"]) == (9, 8), "one after the versions where nobody else commits"


class Name(str):
    """A text that can be watched."""


# --- the command line -----------------------------------------------------------------------------------------------------
def test_the_command_keeps_the_versions_ages_tags_and_keys_that_it_is_told_to(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[GC1] [GC10] [KY4]"""
    mc.write(rows([5], day="x"), root, key="k 1")
    mc.write(rows([6], day="x"), root, key="k 2")

    def collected(*options: str) -> int:
        assert main(["gc", root, "--json", "--yes", *options]) == 0
        return int(json.loads(capsys.readouterr().out)["expired"])

    assert main(["tag", root, "keep é", "--version", "2"]) == 0
    capsys.readouterr()
    assert collected("--grace", "1h", "--keep-for", "0s") == 1
    assert collected("--grace", "0s", "--keep-for", "1h") == 1, "version 8"
    assert collected("--grace", "0s", "--keep-for", "0s", "--keep-versions", "6", "--keep-keys", "1") == 3
    assert ids(root, version=3) == [1, 2] and ids(root, tag="keep é") == [1]
    assert set(mc.Table(root).snapshot().keys) == {"k 2"}
    assert collected("--grace", "0s", "--keep-for", "0s") > 6 and ids(root, tag="keep é") == [1]


# --- a real S3 server -----------------------------------------------------------------------------------------------------
@pytest.mark.thorough
def test_on_s3_with_uploads_that_were_never_finished(rgw: Any) -> None:
    """[GC1] [GC5] [GC9] [IV7]"""
    place, options = f"s3://{rgw.bucket()}/lake/a b%+é", rgw.storage_options
    for number in range(3):
        mc.write(rows([number], day=DAY), place, partition_by=["day"], mode="overwrite", storage_options=options)
    store = open_store(place, options)
    job = mc.begin(place, storage_options=options)
    left = [f"day=x/00000-{'0' * 16}-0-{job.id}.parquet", "someone else's.bin"]
    beside = open_store(f"{place}0", options)
    for each, name in ((store, left[0]), (store, left[1]), (beside, left[0])):
        output: Any = each.create_output(name)
        output.write(b"x" * 9_000_000)
        output._await(0)  # parts are sent in the background
    young = mc.begin(place, storage_options=options)
    for _ in range(2):
        assert {each.name for each in store.unfinished()} == set(left)
        report = mc.gc(place.replace("s3://", "s3n://"), grace="0s", keep_for="0s", storage_options=options)
        time.sleep(1)
    assert isinstance(report, mc.GcReport)
    deadline = time.time() + 20
    while {each.name for each in store.unfinished()} != {left[1]} and time.time() < deadline:
        mc.gc(place.replace("s3://", "s3a://"), grace="0s", keep_for="0s", storage_options=options)
        time.sleep(1)
    assert {each.name for each in store.unfinished()} == {left[1]}, "the other is not this table's"
    assert {each.name for each in beside.unfinished()} == {left[0]}, "nor is what lies beside it, under a name that begins alike"
    young.write(rows([9], day="x"))
    with pytest.raises(JobFencedError):
        young.commit()
    assert mc.Table(place, options).dataset().to_table()["id"].to_pylist() == [2]
    names = [info.name for info in store.list("")]
    assert sum(name.endswith(".parquet") for name in names) <= 2
    check_table(store)


# --- Keys are forgotten by number and by age, and gc says how many and how old they are.

ROW = pa.table({"n": [1]})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Also that of the store, as gc asks for it."""
    clock = Clock(monkeypatch)
    from manifestcommit.operations import gc

    monkeypatch.setattr(gc, "store_time", lambda session, head, writing: session.env.now_us() / 1e6)
    monkeypatch.setattr(gc, "_times", lambda session, head: [(head.version, 0.0)])  # a store without a clock of its own
    return clock


def daily(table: mc.Table, clock: Clock, days: int) -> None:
    """A key a day, and a gc that keeps one version and all keys."""
    for _ in range(days):
        day = len(table.history(1)) and (table.snapshot().totals.rows)
        mc.write(ROW, table.url, key=f"day {day}")
        table.gc(grace="0s", keep_for="0s")
        clock.days(1)


@pytest.fixture
def table(tmp_path: Path) -> mc.Table:
    return mc.create_table(tmp_path / "t", ROW.schema)


@pytest.mark.parametrize("spilled", [False, True])
def test_keys_stay_while_they_are_young_however_many(table: mc.Table, clock: Clock, set_budgets: SetBudgets, spilled: bool) -> None:
    """Also where the versions that recorded them were expired long ago. [KY4] [OB18]"""
    if spilled:
        set_budgets(inline_keys=0)
    daily(table, clock, 12)
    report = table.gc(grace="0s", keep_for="0s", keep_keys=2, keep_keys_for="100d")
    assert report.keys_forgotten == 0
    report = table.gc(grace="0s", keep_for="0s", keep_keys=2, keep_keys_for="5d")
    assert report.keys_forgotten == 8
    for day in range(12):
        assert mc.write(ROW, table.url, key=f"day {day}").already_committed == (day >= report.keys_forgotten), day
    assert table.verify(deep=True).is_sound


def test_a_number_that_is_not_exceeded_forgets_nothing(table: mc.Table, clock: Clock) -> None:
    """However old they are. [KY4]"""
    daily(table, clock, 4)
    clock.days(1000)
    assert table.gc(grace="0s", keep_for="0s", keep_keys=4, keep_keys_for="1d").keys_forgotten == 0


def test_the_dates_of_versions_are_few_and_reach_back_to_the_first_gc(table: mc.Table) -> None:
    """[OB18]"""
    head = open_head(open_store(table.url)).snapshot
    first = head.committed_at
    for day in range(5000):
        head = msgspec.structs.replace(head, version=head.version + 1, committed_at=first + day * DAY_S * 1_000_000)
        head = msgspec.structs.replace(head, dated=_dated(head))
        assert head.dated == _dated(head), "not twice a day"
    assert len(head.dated) <= 64 and list(head.dated) == sorted(head.dated)
    assert head.dated[0] == (2, first) and head.dated[-1] == (head.version, head.committed_at)
    for age in (1, 7, 30):
        cut = head.committed_at - age * DAY_S * 1_000_000
        newest = max(time for _, time in head.dated if time <= cut)
        assert cut - newest <= DAY_S * 1_000_000, "exact to a day where it is young"


# --- Files that lie in the folders of partition columns which the table no longer has are its own: gc still deletes them.

AT_ONCE = Policy(grace_s=0.0, keep_for_s=0.0, prepared_grace_s=0.0)
BY_DAY = (("day é", "string"),)


def data_files(store: MemoryStore) -> list[str]:
    return sorted(info.name for info in store.list("") if not info.name.startswith("_manifest/"))


def without_columns() -> MemoryStore:
    """A table whose version 1 has no columns yet."""
    store = memory()
    with begin(store) as job:
        job.advance("s", 0, 1)
    assert not open_head(store).snapshot.schema.fields
    return store


def test_gc_deletes_what_lies_in_folders_from_before_a_rollback() -> None:
    """Back to a version without columns, and on with others: twice, and each former partitioning is kept once. [GC5] [CF13] [PT1]"""
    store = without_columns()
    for folders in ((), (BY_DAY,)):
        assert open_head(store).snapshot.former_folders == folders
        empty = open_head(store).version
        write(store, rows([1], **{"day é": "x"}), partition_by=["day é"])
        late = begin(store)
        late.write(rows([2], **{"day é": "y"}))
        rollback(session(store), empty, reason="é")
        assert open_head(store).snapshot.former_folders == (BY_DAY,)
        assert len(data_files(store)) == 2
        gc_run(session(store), AT_ONCE)
        report = gc_run(session(store), AT_ONCE)
        assert data_files(store) == [] and report.foreign.count == 0
    write(store, rows([3], n=5), partition_by=["n"])
    made = open_head(store).snapshot
    assert made.former_folders == (BY_DAY,) and made.partition_by != () and read_ids(store) == [3]
    check_head(store)


def test_a_copy_in_a_former_folder_stays_while_its_original_is_listed() -> None:
    """[GC5]"""
    store = without_columns()
    write(store, rows([1], **{"day é": "x"}), partition_by=["day é"])
    rollback(session(store), 1, reason="é")
    write(store, rows([2]))
    (original,) = [name for name in data_files(store) if "/" not in name]
    copy = f"day é=x/{original}"
    store.put(copy, store.get(original))
    gc_run(session(store), AT_ONCE)
    gc_run(session(store), AT_ONCE)
    assert data_files(store) == [original, copy] or data_files(store) == [copy, original]


def test_a_first_write_whose_columns_a_rollback_takes_back_at_once_is_told_so() -> None:
    """[CF8] [CF13]"""
    store = without_columns()
    done = False

    def back(call: FaultCall) -> None:
        nonlocal done
        if not done and open_head(store).snapshot.schema.fields:
            done = True
            rollback(session(store), 1, reason="é")

    late = begin(FaultStore(store, on_call=back))
    with pytest.raises(CommitConflictError, match="took them back") as caught:
        late.write(rows([1], day="x"), partition_by=["day"])
    assert done and caught.value.rule == "schema"
    write(store, rows([2], day="x"), partition_by=["day"])
    assert read_ids(store) == [2]
