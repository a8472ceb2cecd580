"""What `verify` says of tables that are whole, however they came about; its rules, its report, its cost. [RD10]"""

import contextlib
import datetime as dt
import math
import re
import secrets
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kit.sizes import at_calls, budgets, rounds
from tests.kit.tables import all_snapshots, begin, check_table, clone, job_on, memory, put_version, rows, session, write

import manifestcommit as mc
from manifestcommit.errors import SnapshotExpiredError
from manifestcommit.format import object_names
from manifestcommit.format.snapshot import KeyRecord, Snapshot, Summary, Tag, Totals
from manifestcommit.log.version_chain import list_above, open_head, read_object
from manifestcommit.operations import store_inventory
from manifestcommit.operations import verify as contents_room
from manifestcommit.operations import verify as engine
from manifestcommit.operations.verify import VerifyReport, verify
from manifestcommit.protocol import audit
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore, FaultCall, FaultStore

MOMENT = dt.datetime(2013, 1, 31, 23, 59, 59, 999_999)
# One column of every type: its extremes.
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-(2**7), 2**7 - 1]),
    "short": (pa.int16(), [-(2**15), 2**15 - 1]),
    "integer": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "unsigned": (pa.uint64(), [0, 2**64 - 1]),
    "float": (pa.float32(), [math.nan, -0.0]),
    "double": (pa.float64(), [math.inf, 5e-324]),
    "decimal": (pa.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0123456789"), Decimal("1E-10")]),
    "string": (pa.string(), ["'\"%\x1b\n\x00", "\U0010ffff" * 70]),
    "binary": (pa.binary(), [b"", b"\x00\xff" * 40]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 4)]),
    "timestamp": (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=dt.UTC), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)]),
    "timestamp_ntz": (pa.timestamp("us"), [MOMENT, dt.datetime(1582, 10, 4)]),
    "interval": (pa.duration("us"), [dt.timedelta(days=-1, microseconds=1), dt.timedelta(0)]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("k", 1.5), ("", None)], []]),
    "nested": (pa.list_(pa.struct([("a", pa.int32()), ("b c", pa.string())])), [[{"a": 1, "b c": None}, None], []]),
}
PARTS = ["a", "", None, "x=y/z %41 +#é🦆\"'"]


def check(store: Any, *, deep: bool = False) -> VerifyReport:
    report = verify(session(store), deep=deep)
    assert report.is_sound, report.findings
    return report


def damaged(report: VerifyReport) -> set[tuple[str, str]]:
    return {(each.kind, each.object) for each in report.findings if each.severity == "damage"}


# --- whole tables -----------------------------------------------------------------------------------------------------
def overwritten(store: MemoryStore) -> None:
    for number in range(6):
        write(store, rows([number], p=PARTS[number % 4]), partition_by=["p"], overwrite={"p": PARTS[number % 4]} if number > 3 else "no")
    write(store, rows([9], p="a"), overwrite=None)


def spilled(store: MemoryStore) -> None:
    with budgets(inline_entry_bytes=1, inline_keys=1, inline_jobs=1, inline_removed_bytes=1, fan_in=2):
        for number in range(9):
            data = pa.concat_tables([rows([number], p=part) for part in PARTS])
            write(store, data, partition_by=["p"], key=f"k{number}", watermarks={"s": (number, number + 1)})
            write(store, rows([number], p="a"), overwrite="dynamic", conflict="blind")


def rewound(store: MemoryStore) -> None:
    for start in (0, 10):
        write(store, rows([start]), key=f"k{start}", watermarks={"s": (start, start + 10), "t": (f"{start}", f"{start + 10}")})
    table = mc.Table(store.url)
    table.rewind("s", 5, reason="x")
    table.rewind("t", None, reason="x")
    write(store, rows([3]), watermarks={"s": (5, 7), "t": ("anew", "x")})


def prepared(store: MemoryStore) -> None:
    write(store, rows([1]))
    jobs = []
    for number in range(3):
        with begin(store, f"p{number}") as job:
            job.write(rows([number]))
            jobs.append(job.prepare())
    mc.commit(store.url, jobs[0])
    mc.Table(store.url).abort(jobs[1])


def recoverable(store: MemoryStore) -> None:
    write(store, rows([1]))
    for _ in range(2):
        job = job_on(session(store), key="r é/%", fingerprint="f", recoverable=True)
        job.write(rows([2]))
    with contextlib.suppress(ZeroDivisionError), begin(store) as aborted:
        aborted.write(rows([3]))
        raise ZeroDivisionError


def altered(store: MemoryStore) -> None:
    mc.create_table(store.url, pa.schema([("id", pa.int32()), ("a b", pa.float32()), ("gone", pa.string())]))
    write(store, pa.table({"id": pa.array([1, None], pa.int32()), "a b": pa.array([float("nan"), -0.0], pa.float32()), "gone": ["x", "y"]}))
    table = mc.Table(store.url)
    table.rename_column("a b", "c")
    table.drop_column("gone")
    table.add_column("gone", pa.int64())
    table.set_properties({"owner": "é"})
    write(store, pa.table({"id": [2**40], "c": [1e300], "gone": [1], "s": [{"x": None}]}), merge_schema=True)


def expired(store: MemoryStore) -> None:
    overwritten(store)
    put_version(store, open_head(store), expired=4, fence=5, tags={"first": Tag(version=2), "again": Tag(version=3)})
    store.delete([object_names.version_name(1)])
    write(store, rows([10], p="a"))


def provisional(store: MemoryStore) -> None:
    mc.write(rows([]), store.url)


HISTORIES = [overwritten, spilled, rewound, prepared, recoverable, altered, expired, provisional]


@pytest.mark.parametrize("live", HISTORIES, ids=lambda live: live.__name__)
def test_tables_are_whole_whatever_they_have_lived_through(live: Callable[[MemoryStore], None], store: MemoryStore) -> None:
    """[RD10]"""
    live(store)
    for deep in (False, True):
        report = check(store, deep=deep)
        assert report.last == open_head(store).version and report.objects == len(list(store.list("")))


@pytest.mark.parametrize("name", TYPES)
def test_the_statistics_of_every_type_are_true(name: str, tmp_path: Path) -> None:
    """[OB7] [DF6]"""
    kind, values = TYPES[name]
    mc.write(pa.table({"v": pa.array([*values, None], kind), "id": range(len(values) + 1)}), tmp_path / "t")
    assert mc.Table(tmp_path / "t").verify(deep=True).findings == ()


# --- a random life, then one blow ---------------------------------------------------------------------------------------
def live(store: MemoryStore, steps: Iterable[int]) -> None:
    """One operation per number."""
    table = mc.Table(store.url)
    for at, step in enumerate(steps):
        head = open_head(store).snapshot if list_above(store, 0).versions else None
        data = rows([at, at + 1], p=PARTS[step % 4])
        small = {"inline_entry_bytes": 1, "inline_keys": 1, "inline_jobs": 1, "inline_removed_bytes": 1, "fan_in": 2}
        with budgets(**small if step % 3 == 0 else {}):
            if head is None or step < 8:
                mark = (head.watermarks if head else {}).get("s")
                write(store, data, partition_by=["p"], key=f"k{at}", watermarks={"s": (mark, (mark or 0) + 5)})  # type: ignore[operator]
            elif step < 16:
                write(store, data, overwrite={"p": PARTS[step % 4]}, conflict="blind")
            elif step == 16:
                write(store, data, overwrite=None)
            elif step == 17 and head.watermarks.get("s"):
                with contextlib.suppress(SnapshotExpiredError):  # gc may have taken what tells which keys to drop: it is refused
                    table.rewind("s", 0, reason="x")
            elif step == 18:
                table.tag(f"t{at}")
            elif step == 19:
                table.rollback(max(head.expired, head.version - 2), reason="x") if head.version > head.expired + 1 else None
            elif step == 20:
                table.gc(grace="0s", keep_for="0s", keep_versions=3)
            elif step == 21:
                with begin(store) as job:
                    job.write(data)
                    job.prepare()
            else:
                table.set_properties({"at": f"{at}"})


AT = st.integers(0, 2**40)  # which of many: taken modulo their number, which random ids change


def listed_objects(store: MemoryStore) -> set[str]:
    """What readable versions list, and they themselves."""
    head = open_head(store).snapshot
    each = session(store)
    found = set()
    for one in all_snapshots(store):
        snapshot = one.snapshot
        if snapshot.version < head.expired and snapshot.version not in {tag.version for tag in head.tags.values()}:
            continue
        found.add(object_names.version_name(snapshot.version))
        found |= {run.path for run in (*snapshot.key_runs, *snapshot.job_runs, *snapshot.removed_runs)}
        found |= {ref.path for ref in snapshot.manifests}
        found |= {entry.path for entry in snapshot.added}
        removed = each.manifests.removed(snapshot)
        for ref in snapshot.manifests:
            found |= {*each.manifests.live(ref, snapshot, removed.get(ref.path, 0)).column("path").to_pylist()}
    return found


@pytest.mark.thorough
@settings(max_examples=rounds(6, 40), deadline=None, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(st.lists(st.integers(0, 24), min_size=5, max_size=10), st.sampled_from(["delete", "cut", "flip"]), AT, AT, st.integers(0, 7))
def test_of_any_history_nothing_is_found_and_one_blow_is_found_by_name(steps: list[int], blow: str, which: int, at: int, bit: int) -> None:
    """[RD10] [IV6]"""
    store = memory()
    live(store, steps)
    check(store, deep=True)
    names = sorted(listed_objects(store))
    name = names[which % len(names)]
    content = bytearray(store.get(name))
    is_head = name == object_names.version_name(open_head(store).version)
    if blow == "delete":
        store.delete([name])
    elif blow == "cut":
        store.put(name, bytes(content[: at % len(content)]))
    else:
        content[at % len(content)] ^= 1 << bit
        store.put(name, bytes(content))
    if len(list_above(store, 0).versions) == 0:
        return  # it had one version, and that is deleted
    report = verify(session(store), deep=True)
    if is_head and blow == "delete":  # nothing but the hint, or a job born since, tells of it
        assert {object_names.HINT, name} & {each.object for each in report.findings}
    else:
        assert name in {found for _, found in damaged(report)}, (blow, report.findings)


@pytest.mark.parametrize("spills", [False, True])
def test_what_only_an_older_version_lists_has_to_be_there(spills: bool, store: MemoryStore) -> None:
    """Inlined or in a manifest; also where the oldest version had it removed, and a rollback brought it back. [RD10] [IV2]"""
    with budgets(**{"inline_entry_bytes": 1} if spills else {}):
        write(store, pa.concat_tables([rows([n], p=part) for n, part in enumerate(PARTS)]), partition_by=["p"])
    (path,) = mc.Table(store.url).files(pc.field("p") == "a")["path"].to_pylist()
    write(store, rows([9], p="a"), overwrite={"p": "a"})
    mc.Table(store.url).rollback(2, reason="x")
    put_version(store, open_head(store), expired=3, fence=3)
    write(store, rows([9], p="a"), overwrite={"p": "a"})
    check(store, deep=True)
    store.delete([path])
    assert damaged(verify(session(store))) == {("file_missing", path)}


# --- beside others ------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
@at_calls
def test_commits_and_gc_at_any_moment_are_no_damage(step: int) -> None:
    """What is expired and deleted while it is verified makes it start over. [RD10] [RD3]"""
    base = memory()
    with budgets(inline_entry_bytes=1):
        for number in range(3):
            write(base, pa.concat_tables([rows([number], p=part) for part in PARTS]), partition_by=["p"])
    write(base, rows([7], p="a"))
    calls = FaultStore(clone(base))
    verify(session(calls), deep=True)
    started_over = 0
    for number in range(1, calls.count + 1, step):
        store = clone(base)

        def act(call: FaultCall, store: Any = store, number: int = number) -> None:
            if call.number == number:
                write(store, rows([100], p="a"), overwrite=None)
                mc.Table(store.url).gc(grace="0s", keep_for="0s")
                mc.Table(store.url).gc(grace="0s", keep_for="0s")

        watched = FaultStore(store, on_call=act)
        report = verify(session(watched), deep=True)
        assert report.is_sound, (number, report.findings)
        started_over += sum(call.kind == "list" and call.name == "" for call in watched.calls) > 1
    assert started_over > 3, "the interleavings that matter were met"


@pytest.mark.thorough
def test_requests_do_not_grow_with_the_number_of_files() -> None:
    """One list; each version, manifest and run once; no request for a data file, unless deep. [IV10]"""
    inner = memory()
    spilled(inner)
    store = CountingStore(inner)
    steps: list[str] = []
    report = verify(session(store), progress=steps.append)
    requests = store.requests()
    assert requests["list"] == 2 and [call.name for call in store.calls if call.kind == "list"] == [object_names.VERSIONS, ""]
    # The head and the hint twice: to begin, and as objects among the others.
    assert requests["get"] == report.versions + report.manifests + 3 and set(requests) == {"list", "get"}
    assert steps and all(isinstance(step, str) for step in steps)
    store.reset()
    verify(session(store), deep=True)
    assert store.requests()["get"] == report.versions + report.manifests + 3 + report.files


@pytest.mark.thorough
def test_no_more_files_than_a_batch_wait_to_be_read_however_many_there_are(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    """Their entries would all be in memory otherwise, of each manifest and of each version. [RD10] [IV10]"""
    spilled(store)
    for number in range(9):
        write(store, rows([number], p="inlined"))
    waited: list[int] = []
    finish = contents_room.Contents._examine
    monkeypatch.setattr(contents_room, "_AT_ONCE", 3)
    monkeypatch.setattr(contents_room.Contents, "_examine", lambda self: waited.append(len(self._waiting)) or finish(self))
    report = verify(session(store), deep=True)
    assert report.is_sound and sum(waited) == report.files > 30 and max(waited) == 3


def test_findings_are_bounded_and_all_are_counted(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    """[RD10] [IV10]"""
    write(store, pa.concat_tables([rows([n], p=f"{n}") for n in range(30)]), partition_by=["p"])
    store.delete([info.name for info in list(store.list("p="))])
    monkeypatch.setattr(engine, "_REPORTED", 7)
    report = verify(session(store))
    assert (len(report.findings), report.damages) == (7, 30)


def test_equal_hashes_of_paths_are_no_path_listed_twice(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    """[IV6]"""
    overwritten(store)
    monkeypatch.setattr(contents_room, "hash", lambda path: 7, raising=False)
    monkeypatch.setattr(engine, "repeated", lambda some: {7})
    check(store)


# --- the rules ----------------------------------------------------------------------------------------------------------
def test_files_of_very_many_jobs_are_told_apart_by_their_jobs(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    """What is known of a job is remembered of few at a time; an orphan is an orphan in whatever order names come. [RD10] [GC5]"""
    write(store, rows([1], p="a"), partition_by=["p"])
    table_id = open_head(store).snapshot.table_id
    for number in range(20):  # births from 1 on, each with two files in different folders; the fence is 1
        for folder in ("p=a/", "p=b/", "copies/"):
            store.put(f"{folder}00001-{number:016x}-0-{object_names.job_id(1 + number % 2, table_id, bytes([number]) * 16)}.parquet", b"xx")
    found = []
    for most in (1, 4096):
        monkeypatch.setattr(store_inventory, "_JOBS", most)
        report = verify(session(store))
        found.append([(each.kind, each.problem) for each in report.findings])
        assert report.objects == 60 + len(list(store.list("_manifest/"))) + 1
    assert found[0] == found[1]
    told = dict(found[0])
    assert told["unlisted"].endswith("40 of 80 bytes together") and told["foreign_files"].endswith("20 of 40 bytes together")


def two(operation: str = "append", **changes: Any) -> tuple[Snapshot, Snapshot]:
    """A version and the next, which fit."""
    store = memory()
    write(store, rows([1]), key="k", watermarks={"s": (0, 5), "t": (None, "x")})
    write(store, rows([2]))
    parent, child = (read_object(store, version) for version in (2, 3))
    assert parent is not None and child is not None and not list(audit.check_step(parent.snapshot, child.snapshot))
    commits = tuple(msgspec.structs.replace(commit, operation=operation) for commit in child.snapshot.commits)
    return parent.snapshot, msgspec.structs.replace(child.snapshot, **{"commits": commits, **changes})


def kinds(found: Iterator[audit.VerifyFinding]) -> set[str]:
    return {each.kind for each in found}


@pytest.mark.parametrize("operation", ["gc", "rewind", "rollback"])
def test_only_gc_rewinds_and_rollbacks_forget_keys(operation: str) -> None:
    """[KY1] [WM5]"""
    parent, child = two(keys={})
    assert kinds(audit.check_step(parent, child)) == {"record_lost"}
    parent, child = two(operation, keys={})
    assert not kinds(audit.check_step(parent, child))
    parent, child = two(keys={"k": KeyRecord(version=2, digest="other")})
    assert not kinds(audit.check_step(parent, child))


def test_totals_are_those_before_with_what_came_and_went() -> None:
    """[OB10]"""
    parent, child = two()
    (commit,) = child.commits
    summary: Summary = msgspec.structs.replace(commit.summary, removed_rows=1)
    child = msgspec.structs.replace(child, commits=(msgspec.structs.replace(commit, summary=summary),))
    assert kinds(audit.check_step(parent, child)) == {"totals_differ"}
    parent, child = two(totals=Totals())
    assert kinds(audit.check_step(parent, child)) == {"totals_differ"}


def test_every_kind_has_a_way_out_and_a_severity() -> None:
    """[RD10]"""
    named = {
        kind for path in Path(mc.__file__).parent.rglob("*.py") for kind in re.findall(r"\bfinding\(\s*\"(\w+)\"", path.read_text("utf-8"))
    }
    named |= {*re.findall(r"yield \"(\w+)\",", Path(audit.__file__).read_text("utf-8"))}
    assert len(named) > 20 and named <= audit.REMEDIES.keys(), "a kind without a remedy, which ends verify"
    assert all(text.endswith(".") for text in audit.REMEDIES.values())


# --- for people and scripts ---------------------------------------------------------------------------------------------
def test_a_key_that_looks_like_a_path_leads_nowhere(store: MemoryStore) -> None:
    """[LY1] [SE2]"""
    write(store, rows([1]), key="../../" + secrets.token_hex(4))
    check(store, deep=True)
    check_table(store)


def test_plain_parquet_beside_a_table_is_named_with_what_to_do(tmp_path: Path) -> None:
    """[RD10] Such as `spark.write.parquet(root)` leaves: a note, whatever is listed."""
    mc.write(pa.table({"id": [1]}), tmp_path)
    for number in range(30):
        pq.write_table(pa.table({"id": [2]}), tmp_path / f"part-{number:02} é.parquet")
    (tmp_path / "_SUCCESS").touch()
    size = sum(each.stat().st_size for each in tmp_path.glob("part-*"))
    report = mc.Table(tmp_path).verify()
    told = {each.kind: each for each in report.findings}
    assert report.is_sound and told.keys() == {"untracked_parquet", "foreign_files"}
    found = told["untracked_parquet"]
    assert f": 30 of {size:,} bytes together" in found.problem and found.severity == "note" and "add_files" in found.remedy
    with mc.begin(tmp_path) as job:
        job.add_files([f"part-{number:02} é.parquet" for number in range(29)])
    [left] = [each for each in mc.Table(tmp_path).verify().findings if each.kind == "untracked_parquet"]
    assert ": 1 of " in left.problem


def test_a_large_row_group_is_read_in_pieces(tmp_path: Path) -> None:
    """By its own setting pyarrow would hold all column chunks of it. [RD10]"""
    rows = pa.table({f"n{at}": pc.random(1_000_000, initializer=at) for at in range(6)})
    (tmp_path / "t").mkdir()
    pq.write_table(rows, tmp_path / "t" / "a.parquet", row_group_size=rows.num_rows, compression="none", use_dictionary=False)
    mc.Table(tmp_path / "t").adopt()
    tracemalloc.start()  # what a file gives pyarrow is bytes of Python's
    try:
        assert mc.Table(tmp_path / "t").verify(deep=True).is_sound
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < rows.nbytes / 3
