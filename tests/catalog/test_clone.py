"""A clone: the versions of a table at another place, and a standby that goes on exactly once. [CN1]-[CN7]"""

import contextlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commits.tables import Hurried, Lake, stopped
from tests.kit.faults import dying, lives
from tests.kit.sizes import at_calls, budgets, rest_thorough
from tests.store.conftest import KINDS, QUICK_KINDS, root_of
from tests.store.conftest import azure_root as azure_root
from tests.store.conftest import gcs_root as gcs_root
from tests.store.conftest import s3_root as s3_root
from tests.store.places import Place

import manifestcommit as mc
from manifestcommit.catalog.clone import CLAIM, _Cloning
from manifestcommit.cli.main import main
from manifestcommit.errors import CorruptMetadataError, NotATableError, SnapshotExpiredError, TableNotFoundError, UsageError
from manifestcommit.format import object_names
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import open_head
from manifestcommit.scan.change_feed import Feed
from manifestcommit.store import Store, open_store
from manifestcommit.testing import FaultStore
from manifestcommit.testing.faults import Died, Fault

_NUMBERS = itertools.count()
DAY = pa.table({"id": [1, 2, 3], "day": ["a", "b ü/%", "a"]})


@pytest.fixture
def pair() -> tuple[str, str]:
    """A place with a table, and one without."""
    number = next(_NUMBERS)
    source, to = f"memory://clones{number}/from %+=#é", f"memory://standby{number}/to %+=#é"
    mc.write(DAY, source, key="day 1", partition_by="day", watermarks={"s": (0, 5)})
    return source, to


def ids(path: str, **choice: Any) -> list[int]:
    return sorted(mc.Table(path).to_arrow(**choice)["id"].to_pylist())


def check_same(source: str, to: str) -> None:
    """Both have the same state, and the clone is whole."""
    theirs, own = mc.Table(source).snapshot(), mc.Table(to).snapshot()
    for name in ("version", "schema", "partition_by", "watermarks", "origins", "keys", "streams", "properties", "constraints"):
        assert getattr(own, name) == getattr(theirs, name), name
    assert own.totals == theirs.totals and own.table_id != theirs.table_id and own.cloned[theirs.table_id].root == mc.Table(source).url
    assert ids(source) == ids(to)
    check_whole(to)


def check_whole(to: str) -> None:
    """But for what gc lets go, where a call ended before it had deleted or listed that."""
    found = mc.Table(to).verify(deep=True)
    left = [each for each in found.findings if each.kind not in ("version_leftover", "orphans", "unlisted")]
    assert found.is_sound and not left, left


def change(source: str, number: int) -> None:
    """The table has one version more; of each kind of change one in turn."""
    table, row = mc.Table(source), pa.table({"id": [10 + number], "day": ["a"]})
    acts: list[Callable[[], Any]] = [
        lambda: mc.write(row, source, key=f"k{number}", watermarks={"s": (table.watermarks()["s"], 9 + number)}),
        lambda: table.delete("id = 2"),
        lambda: table.tag(f"t{number}"),
        lambda: table.add_column(f"c{number}", "long"),
        lambda: table.add_constraint("positive", "id > 0"),
        lambda: table.rewind("s", to=3, reason="again"),
        lambda: table.rollback(2, reason="wrong"),
    ]
    acts[number % len(acts)]()


# --- what is copied -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=rest_thorough([kind for kind in KINDS if kind != "seaweedfs"], *QUICK_KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return root_of(request.param, request, tmp_path)


@pytest.mark.thorough
def test_a_table_is_copied_into_each_kind_of_store_and_followed(place: Place, pair: tuple[str, str]) -> None:
    """[CN1] [CN3]"""
    source, _ = pair
    options = place.options or None
    made = mc.clone(source, place.url, to_options=options)
    assert (made.version, made.versions, made.files) == (2, 1, 2) and made.bytes > 0
    mc.write(DAY, source, key="day 2")
    made = mc.clone(source, place.url, to_options=options)
    assert (made.version, made.versions, made.files) == (3, 1, 2)
    assert mc.clone(source, place.url, to_options=options).versions == 0
    table = mc.Table(place.url, options)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 1, 2, 2, 3, 3] and table.watermarks() == {"s": 5}
    assert table.snapshot().proven == ((identity,) if (identity := place.open().identity) else ())
    again = mc.clone(place.url, f"memory://back{next(_NUMBERS)}/t", storage_options=options, to_options={})
    assert again.version == 3 and ids(again.url) == [1, 1, 2, 2, 3, 3]


def test_every_kind_of_change_arrives_under_its_number(pair: tuple[str, str]) -> None:
    """[CN1] [CN3]"""
    source, to = pair
    mc.clone(source, to)
    for number in range(7):
        change(source, number)
        if number % 2:
            mc.clone(source, to)
            check_same(source, to)
    mc.clone(source, to)
    check_same(source, to)
    for version in range(2, mc.Table(source).version + 1):
        assert ids(source, version=version) == ids(to, version=version)
    assert mc.Table(to).snapshot().tags == mc.Table(source).snapshot().tags
    for told, there in zip(mc.Table(to).history(), mc.Table(source).history(), strict=False):
        assert (told["version"], told["operation"], told["key"]) == (there["version"], there["operation"], there["key"])


@pytest.mark.thorough
def test_manifests_runs_and_what_comes_back_are_copied(pair: tuple[str, str]) -> None:
    """Of a version with manifests only live files; those that a rollback brings back as soon as it does. [CN1]"""
    source, to = pair
    with budgets(inline_entry_bytes=2_000, inline_keys=4, inline_jobs=4, inline_removed_bytes=1):
        for number in range(30):
            mc.write(pa.table({"id": [number], "day": [f"{number % 3}"]}), source, key=f"key {number}")
        mc.Table(source).delete("day = '0'")
    head = mc.Table(source).snapshot()
    assert head.manifests and head.key_runs and head.job_runs and head.removed_runs
    mc.clone(source, to)
    check_same(source, to)
    live = head.totals.files
    assert sum(info.name.endswith(".parquet") and not info.name.startswith("_") for info in open_store(to).list("")) == live
    mc.Table(source).rollback(head.version - 1, reason="back")
    assert mc.clone(source, to).files > 0
    check_same(source, to)


def test_a_rehearsal_counts_and_writes_nothing(pair: tuple[str, str]) -> None:
    source, to = pair
    for _ in range(2):
        planned = mc.clone(source, to, dry_run=True)
        before = {info.name for info in open_store(to).list("")}
        assert planned.versions > 0 and before == {info.name for info in open_store(to).list("")}
        done = mc.clone(source, to)
        assert (planned.versions, planned.files, planned.bytes) == (done.versions, done.files, done.bytes)
        mc.write(DAY, source)
    open_store(f"{to}x").put("x.parquet", b"1")
    with pytest.raises(NotATableError):
        mc.clone(source, f"{to}x", dry_run=True)


def test_the_command_says_what_it_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mc.write(DAY, tmp_path / "a")
    options = tmp_path / "options.json"
    options.write_text("{}")
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert main(["clone", *paths, "--dry-run", "--json"]) == 0 and json.loads(capsys.readouterr().out)["files"] == 1
    assert main(["clone", *paths, "--to-options", str(options)]) == 0 and "version" in capsys.readouterr().out
    assert repr(mc.clone(*paths)).startswith("CloneReport(")


# --- faults -------------------------------------------------------------------------------------------------------------


def cloning(source: Store, to: Store) -> Any:
    return _Cloning(TableContext(source, Hurried()), TableContext(to, Hurried()), None, False).run()


def check_state(source: str, to: str) -> None:
    """What readers of the clone get: nothing yet, or a version of the table, whole."""
    with contextlib.suppress(TableNotFoundError):
        version = mc.Table(to).version
        assert ids(to) == ids(source, version=version)
        assert mc.Table(to).watermarks() == mc.Table(source).snapshot(version=version).watermarks


@pytest.mark.thorough
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("fault", ["dies_before", "dies_after", "answer_lost"])
@at_calls
def test_a_call_that_ends_at_any_request_leaves_nothing_half_visible_and_is_repeated(
    pair: tuple[str, str], fault: Fault, is_first: bool, step: int
) -> None:
    """[CN2] [CN5]"""
    source, _ = pair
    for number in itertools.count(1, step):
        to = f"memory://kills{next(_NUMBERS)}/to"
        if not is_first:
            source = f"{to}/source"
            mc.write(DAY, source, key="day 1", partition_by="day", watermarks={"s": (0, 5)})
            to = f"{to}-clone"
            mc.clone(source, to)
            grown_by = [lambda s=source: change(s, 0), lambda s=source: change(s, 1)]
            for act in grown_by:
                act()
            mc.clone(source, to)
            collect(source)
        store = FaultStore(open_store(to), {number: fault})
        try:
            cloning(open_store(source), store)
        except (Died, mc.errors.StoreError):
            check_state(source, to)
        cloning(open_store(source), open_store(to))
        check_same(source, to)
        assert not list(open_store(to).list(CLAIM))
        if store.count < number:
            assert number > 8
            return


def clone_and_die(kind: str, name: str, source: str, to: str) -> None:
    with dying(1, "before", [kind], name=name, root="/to"):
        mc.clone(source, to)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("put_if_absent", CLAIM),
        ("create_output", ""),
        ("put_if_absent", object_names.MARKERS),
        ("put_if_absent", f"{object_names.VERSIONS}0"),
        ("put", object_names.HINT),
    ],
)
def test_a_process_that_is_killed_is_followed_by_another(tmp_path: Path, kind: str, name: str) -> None:
    """[CN2]"""
    source, to = str(tmp_path / "from"), str(tmp_path / "to")
    mc.write(DAY, source, key="day 1", partition_by="day", watermarks={"s": (0, 5)})
    assert not lives(clone_and_die, kind, name, source, to)
    check_state(source, to)
    mc.write(DAY, source, key="day 2")
    mc.clone(source, to)
    check_same(source, to)


@pytest.mark.thorough
def test_calls_at_once_have_one_result() -> None:
    """Whatever the table does meanwhile, and wherever they stop. [CN2]"""
    for number in range(1, 40):
        source, to = (f"memory://at-once{number}/{name}" for name in ("from", "to"))
        mc.write(DAY, source)
        is_over: list[int] = []

        def meet(call: Any, number: int = number, source: str = source, to: str = to, is_over: list[int] = is_over) -> None:
            if call.number == number:
                mc.write(DAY.slice(0, 1), source)
                is_over.append(mc.clone(source, to).version)

        first = cloning(open_store(source), FaultStore(open_store(to), on_call=meet))
        if not is_over:
            return
        assert first.version <= is_over[0] == mc.clone(source, to).version
        check_same(source, to)
    raise AssertionError("it never ended")


def test_a_clone_that_began_long_ago_takes_no_place_above_what_was_written_since(pair: tuple[str, str]) -> None:
    """It began before another call made the clone, and the table went on meanwhile. [CN2] [CN6]"""
    source, to = pair

    def overtake(call: Any) -> None:
        if call.kind == "put_if_absent" and call.name.startswith(object_names.MARKERS) and not overtaken:
            overtaken.append(mc.clone(source, to).version)
            mc.write(DAY, to, key="at the standby")
            mc.write(DAY, source, key="at the source")

    overtaken: list[int] = []
    with pytest.raises(UsageError, match="a table of its own at version 3"):
        cloning(open_store(source), FaultStore(open_store(to), on_call=overtake))
    assert ids(to) == [1, 1, 2, 2, 3, 3]
    check_whole(to)


def test_the_first_version_is_the_one_that_was_claimed(pair: tuple[str, str]) -> None:
    """A call claimed version 2 and stalled; the table went on, and while a second call makes the first version, the stalled one goes on,
    and the clone is written to. [CN2] [CN6]"""
    source, to = pair
    stalled = _Cloning(TableContext(open_store(source), Hurried()), TableContext(open_store(to), Hurried()), None, False)
    assert stalled._claimed() is not None
    for _ in range(3):
        mc.write(DAY, source)

    def overtake(call: Any) -> None:
        if call.kind == "put_if_absent" and object_names.parse_version(call.name) and not overtaken:
            overtaken.append(stalled.run().version)
            mc.write(DAY, to, key="at the standby")

    overtaken: list[int] = []
    with pytest.raises(UsageError, match="a table of its own at version 3"):
        cloning(open_store(source), FaultStore(open_store(to), on_call=overtake))
    assert overtaken == [2] and ids(to) == [1, 1, 2, 2, 3, 3]
    check_whole(to)


def interrupted(source: str, to: str) -> None:
    """The first call has claimed the place and copied a file."""

    def die(call: Any) -> None:
        if call.kind == "put_if_absent" and call.name.startswith(object_names.MARKERS):
            raise Died

    with pytest.raises(Died):
        cloning(open_store(source), FaultStore(open_store(to), on_call=die))
    assert any(info.name.endswith(".parquet") for info in open_store(to).list(""))


def test_a_place_that_is_claimed_is_no_strangers(pair: tuple[str, str]) -> None:
    """A call that looked for the claim before it was there finds files; a rehearsal finds both. [CN2]"""
    source, to = pair
    interrupted(source, to)
    left = mc.clone(source, to, dry_run=True)
    assert (left.versions, left.files) == (1, 0)
    late, claim = open_store(f"{to}-late"), open_store(to).get(CLAIM)

    def overtake(call: Any) -> None:
        if call.kind == "list" and not call.name and not list(late.list(CLAIM)):
            late.put("day=a/part.parquet", b"1")
            late.put(CLAIM, claim)

    assert cloning(open_store(source), FaultStore(late, on_call=overtake)).version == 2


def test_a_claim_goes_also_from_a_table_of_its_own(pair: tuple[str, str]) -> None:
    """[CN2] [CN6]"""
    source, to = pair
    interrupted(source, to)
    claim = open_store(to).get(CLAIM)
    mc.clone(source, to)
    mc.write(DAY, to, key="at the standby")
    open_store(to).put(CLAIM, claim)
    with pytest.raises(UsageError, match="a table of its own at version 3"):
        mc.clone(source, to)
    assert not list(open_store(to).list(CLAIM))


@pytest.mark.parametrize("is_expired", [True, False])
def test_a_manifest_that_goes_while_it_is_copied_is_an_expired_version_or_damage(pair: tuple[str, str], is_expired: bool) -> None:
    """[CN1] [SE2]"""
    source, to = pair
    with budgets(inline_entry_bytes=500):
        for number in range(8):
            mc.write(pa.table({"id": [number], "day": [f"{number % 3}"]}), source)

    def lose(call: Any) -> None:
        if call.kind == "get" and call.name.startswith(object_names.MANIFESTS) and not lost:
            lost.append(call.name)
            if is_expired:
                mc.Table(source).delete("id >= 0")
                collect(source)
            open_store(source).delete([call.name])

    lost: list[str] = []
    store = FaultStore(open_store(source), on_call=lose)
    with pytest.raises(SnapshotExpiredError if is_expired else CorruptMetadataError, match="lacks version" if is_expired else "missing"):
        cloning(store, open_store(to))
    assert lost


def test_a_clone_of_a_clone_follows_one_of_the_two(pair: tuple[str, str]) -> None:
    """Where both have the same versions, either; once it has gone on with one, the other is refused. [CN3] [CN6]"""
    source, to = pair
    last = f"{to}-last"
    mc.clone(source, to)
    mc.clone(to, last)
    assert {each.version for each in mc.Table(last).snapshot().cloned.values()} == {2} and len(mc.Table(last).snapshot().cloned) == 2
    mc.write(DAY, source, key="at the source")
    assert mc.clone(source, last).version == 3
    check_same(source, last)
    mc.write(DAY, to, key="at the standby")
    with pytest.raises(UsageError, match="no clone of"):
        mc.clone(to, last)
    check_same(source, last)
    other = f"{to}-other"
    mc.clone(to, other)
    with pytest.raises(UsageError, match="a table of its own at version 3"):
        mc.clone(source, other)
    check_same(to, other)
    assert mc.write(DAY, other, key="day 1", watermarks={"s": (0, 5)}).already_committed


# --- a standby ----------------------------------------------------------------------------------------------------------


def test_a_standby_goes_on_exactly_once(pair: tuple[str, str]) -> None:
    """[CN3] [CN6]"""
    source, to = pair
    mc.clone(source, to)
    assert mc.write(DAY, to, key="day 1", watermarks={"s": (0, 5)}).kind == "already_committed"
    with pytest.raises(mc.errors.WatermarkError):
        mc.write(DAY, to, key="day 2", watermarks={"s": (0, 5)})
    assert mc.write(DAY, to, key="day 2", watermarks={"s": (5, 9)}).version == 3
    mc.write(DAY, source, key="elsewhere")
    with pytest.raises(UsageError, match=r"was a clone of .* up to version 2, .*failover.* at version 3"):
        mc.clone(source, to)
    assert mc.Table(to).watermarks() == {"s": 9}
    for _ in range(2):
        mc.gc(to, grace="0s", keep_versions=1, keep_for="0s")
    back = f"{to}-back"
    mc.clone(to, back)
    check_same(to, back)


def feed_of(path: str) -> Feed:
    ctx = TableContext(open_store(path))
    schema = ctx.open().snapshot.schema
    return Feed(ctx, columns=schema.fields, pinned=ctx.open().version)


def test_a_stream_goes_on_in_a_clone(pair: tuple[str, str]) -> None:
    """Each file once, from any offset up to what both have; one beyond that is refused. [SP8] [CN3]"""
    source, to = pair
    mc.clone(source, to)
    mc.write(DAY, source)
    mc.write(DAY, source)
    mc.clone(source, to)
    mc.write(DAY, to)
    first = feed_of(source)
    at, offsets = first.beginning(), []
    while (after := first.advance(at, 1)) != at:
        offsets.append(at)
        at = after
    offsets.append(at)
    mc.write(DAY, source)
    beyond = feed_of(source).advance(at, 1)
    for start in offsets:
        there = feed_of(to)
        end = there.advance(start)
        files = there.between(start, end)
        assert end.table == mc.Table(to).snapshot().table_id and feed_of(to).between(start, end) == files
        given = [path for path, _ in (*(first.between(offsets[0], start) if start != offsets[0] else ()), *files)]
        assert sorted(given) == sorted(each.path for each in mc.Table(to).snapshot().added)
        assert there.advance(end) == end
        with pytest.raises(TableNotFoundError, match="its clone up to version 4 only"):
            feed_of(to).between(start, beyond)
    with pytest.raises(TableNotFoundError, match="its clone up to version 4 only"):
        feed_of(to).advance(beyond)
    with pytest.raises(TableNotFoundError):
        feed_of(source).advance(end)


def test_another_file_of_the_same_name_and_length_is_copied(tmp_path: Path) -> None:
    """Names of files that were added are not the table's own. [CN1]"""
    source, to, name = tmp_path / "a", tmp_path / "b", "part.parquet"
    mc.write(pa.table({"id": pa.array([1], pa.int64())}), source)
    for value in (10, 20):
        table = pa.table({"id": pa.array([value] * 3, pa.int64())})
        pq.write_table(table, source / name, compression="none", write_statistics=False, use_dictionary=False)
        with mc.begin(source) as job:
            job.add_files([name])
        mc.clone(source, to)
        assert mc.Table(to).to_arrow().sort_by("id") == mc.Table(source).to_arrow().sort_by("id")
        mc.Table(source).delete(f"id = {value}")
        mc.clone(source, to)
        (source / name).unlink()


def test_files_of_others_are_copied_once_whichever_manifest_lists_them(tmp_path: Path) -> None:
    """[CN1]"""
    source, to = tmp_path / "a", tmp_path / "b"
    with budgets(inline_entry_bytes=0):
        mc.write(pa.table({"id": pa.array([1], pa.int64())}), source)
        for number in range(3):
            pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), source / f"part{number}.parquet")
            with mc.begin(source) as job:
                job.add_files([f"part{number}.parquet"])
        assert mc.clone(source, to).files == 4
        mc.Table(source).compact(only_manifests=True)
    done = mc.clone(source, to)
    assert (done.versions, done.files) == (1, 0) and mc.Table(to).to_arrow().num_rows == 4


@pytest.mark.parametrize("claim", [b"", b'{"table_id": "\xca"}', b"[" * 1000, b"{}", b'{"table_id": "x", "source_id": "y", "version": -1}'])
def test_a_claim_that_is_none_is_damage(pair: tuple[str, str], claim: bytes) -> None:
    """[CN2] [OB4]"""
    source, to = pair
    open_store(to).put(CLAIM, claim)
    with pytest.raises(mc.errors.CorruptMetadataError, match="clone is damaged"):
        mc.clone(source, to)


def test_gc_makes_no_table_of_its_own_of_a_clone(pair: tuple[str, str]) -> None:
    """[CN6]"""
    source, to = pair
    mc.clone(source, to)
    for call in (mc.gc, lambda path: mc.Table(path).plan_gc()):
        with pytest.raises(UsageError, match="is a clone, and gc would make a table of its own"):
            call(to)
    mc.write(DAY, source)
    assert mc.clone(source, to).versions == 1


def test_gc_of_a_clone_takes_what_jobs_of_its_source_wrote(pair: tuple[str, str]) -> None:
    """[CN4]"""
    source, to = pair
    mc.clone(source, to)
    mc.Table(to).delete("id > 0")
    for _ in range(2):
        report = mc.gc(to, grace="0s", keep_versions=1, keep_for="0s")
    assert report.foreign.count == report.unknown.count == 0
    assert not [info.name for info in open_store(to).list("") if info.name.endswith(".parquet")]
    check_whole(to)


def collect(source: str, **kept: Any) -> mc.GcReport:
    return mc.gc(source, grace="0s", **{"keep_versions": 1, "keep_for": "0s", **kept})


def test_what_gc_of_the_source_decided_goes_from_the_clone() -> None:
    """[CN5]"""
    source, to = pair = [f"memory://swept{next(_NUMBERS)}/{name}" for name in ("from", "to")]
    mc.write(DAY, source, partition_by="day")
    mc.clone(source, to)
    mc.Table(source).delete("id = 1")
    mc.Table(source).set_properties({"export.formats": "iceberg"})
    mc.clone(source, to)
    for _ in range(2):
        collect(source)
        made = mc.clone(source, to)
    assert made.deleted > 0
    check_same(source, to)
    theirs, own = ({info.name for info in open_store(path).list("") if info.name.endswith(".parquet")} for path in pair)
    assert own == theirs and mc.Table(to).snapshot().expired == mc.Table(source).snapshot().expired


@pytest.mark.parametrize("tag", ["old", None])
def test_nothing_goes_that_the_source_may_bring_back(pair: tuple[str, str], tag: str | None) -> None:
    """Another call has copied it already, for a version that goes back to one that the clone never had. [CN5]"""
    source, to = pair
    old = mc.Table(source).snapshot()
    if tag:
        mc.Table(source).tag(tag)
    mc.Table(source).delete("id > 0")
    for _ in range(2):
        mc.write(DAY, source)
        mc.clone(source, to)
    collect(source, keep_versions=1 if tag else 100, keep_for="0s" if tag else "1d")
    for entry in old.added:
        open_store(to).put(entry.path, open_store(source).get(entry.path))
    assert mc.clone(source, to).deleted == 0
    mc.Table(source).rollback(old.version, reason="back")
    mc.clone(source, to)
    check_same(source, to)


def test_maintain_leaves_a_standby_to_clone(pair: tuple[str, str]) -> None:
    """[CN6]"""
    source, to = pair
    mc.clone(source, to)
    states = {row["step"]: row["reason"] for row in mc.maintain(to, dry_run=True).to_pylist()}
    assert all("it is a clone" in states[step] for step in ("compact", "manifests", "gc"))
    mc.write(DAY, to)
    assert not any("it is a clone" in row["reason"] for row in mc.maintain(to, dry_run=True).to_pylist())


@pytest.mark.parametrize("what", ["another table", "files", "itself", "another clone"])
def test_only_an_empty_place_becomes_a_clone(pair: tuple[str, str], what: str) -> None:
    """[CN2] [CN6]"""
    source, to = pair
    if what == "another table":
        mc.write(DAY, to)
    elif what == "files":
        open_store(to).put("x.parquet", b"1")
    elif what == "itself":
        to = source
    else:
        mc.write(DAY, f"{source}-other")
        mc.clone(f"{source}-other", to)
    before = {info.name for info in open_store(to).list("")}
    with pytest.raises((UsageError, NotATableError)):
        mc.clone(source, to)
    assert before == {info.name for info in open_store(to).list("")}


def test_versions_that_the_source_has_lost_are_an_error(pair: tuple[str, str]) -> None:
    """[CN1]"""
    source, to = pair
    mc.clone(source, to)
    for _ in range(3):
        mc.write(DAY, source)
        collect(source)
    with pytest.raises(SnapshotExpiredError, match=r"lacks version 3.*more often"):
        mc.clone(source, to)
    check_whole(to)


def test_a_source_that_was_put_back_is_not_continued(pair: tuple[str, str]) -> None:
    """Its versions have the numbers of others that the clone has. [CN6]"""
    source, to = pair
    store = open_store(source)
    backup = {info.name: store.get(info.name) for info in store.list("")}
    mc.write(DAY, source)
    mc.clone(source, to)
    store.delete([info.name for info in store.list("")])
    for name, data in backup.items():
        store.put(name, data)
    with pytest.raises(UsageError, match="restored to an earlier state"):
        mc.clone(source, to)
    for _ in range(2):
        mc.write(DAY.slice(0, 1), source)
    with pytest.raises(UsageError, match="was not built on"):
        mc.clone(source, to)


def test_other_bytes_than_a_version_says_are_not_copied(pair: tuple[str, str]) -> None:
    """[CN1]"""
    source, to = pair
    store = open_store(source)
    (entry, *_) = mc.Table(source).snapshot().added
    data = store.get(entry.path)
    store.put(entry.path, data[:-5] + b"xxxxx")
    with pytest.raises(CorruptMetadataError, match="sha256"):
        mc.clone(source, to)
    store.delete([entry.path])
    with pytest.raises(mc.errors.DataFileMissingError):
        mc.clone(source, to)
    with pytest.raises(TableNotFoundError):
        mc.Table(to).snapshot()
    store.put(entry.path, data)
    mc.clone(source, to)
    check_same(source, to)


# --- joint commits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_aborted", [True, False])
def test_a_member_is_copied_once_it_is_decided(is_aborted: bool) -> None:
    """[CN7]"""
    lake = Lake()
    member, home, to = lake.urls[1], lake.urls[0], f"memory://joint{next(_NUMBERS)}/to"
    mc.clone(member, to)
    assert stopped(lake.parts(), 2 if is_aborted else 99) is None or not is_aborted
    if is_aborted:
        assert open_head(open_store(member)).top is not None
        assert mc.clone(member, to).versions == 0
        mc.write(pa.table({"id": [1]}), member)
        assert mc.Table(member).snapshot().void == (2,)
    mc.clone(member, to)
    own = mc.Table(to).snapshot()
    assert own.format_version == 1 and not own.joint and not own.homes and own.watermarks == mc.Table(member).watermarks()
    open_store(home).delete([info.name for info in open_store(home).list("")])
    check_same(member, to) if is_aborted else check_whole(to)
    mc.write(pa.table({"id": [2]}), to)
    assert 2 in ids(to)
