"""The next snapshot: exactly the change, and nothing else. [CM17] [OB2] [WM4]"""

from typing import Any, get_args

import msgspec
import pytest

from manifestcommit.format import partitioning as partition_pattern
from manifestcommit.format.change import Advance, Change, Inputs, Overwrite, RemovedRows, Rewind, Rollback, StreamBatch, Write, declaration
from manifestcommit.format.entries import Entry, ManifestRef, encode
from manifestcommit.format.fields import NO_COLUMNS, Field, Schema
from manifestcommit.format.snapshot import KeyRecord, RunRef, Snapshot, StreamRecord, Tag, Totals
from manifestcommit.protocol.apply import apply, create

SCHEMA = Schema(
    fields=(Field(id=1, name="day", type="string"), Field(id=2, name="hour", type="integer"), Field(id=3, name="id", type="long"))
)
BY = (1, 2)


def entry(path: str, *partition: Any, rows: int = 10) -> Entry:
    return Entry(path=path, partition=partition, rows=rows, bytes=rows * 2, job="v1-x", added=2)


def ref(path: str, files: int) -> ManifestRef:
    return ManifestRef(
        path=path, files=files, rows=10 * files, data_bytes=20 * files, bytes=1, digest="d", added=2, first_path="a", last_path="z"
    )


def head() -> Snapshot:
    made = create(
        table_id="0" * 16, job="j1", commit_id="c", schema=SCHEMA, partition_by=BY, properties={"p": "1"}, now_us=1000, writer="old"
    )
    return msgspec.structs.replace(
        made, version=7, parent_digest="sha256:parent",
        added=(entry("a1", "a", 1), entry("a2", "a", 2), entry("n1", None, 1), entry("e1", "", 1)), manifests=(ref("m1", 3), ref("m2", 2)),
        removed={"m1": encode(0b001)}, removed_runs=(RunRef(path="r", rows=1, bytes=1, digest="d", first="m1", last="m1"),),
        watermarks={"s": 5, "t": "p9"}, origins={"s": 0, "t": None}, keys={"old": KeyRecord(version=3, digest="d")},
        key_runs=(RunRef(path="k", rows=1, bytes=1, digest="d", first="a", last="b"),),
        streams={"q %é": StreamRecord(query="q", batch=4, version=6, extra={"deep": 2})}, recent_jobs={"j1": 1, "given up": None},
        job_runs=(RunRef(path="q", rows=1, bytes=1, digest="d", first="a", last="b"),), fence=3, expired=2, tags={"t": Tag(version=2)},
        totals=Totals(files=8, rows=80, bytes=160, extra={"deep": 1}), extra={"future": {"x": 1}},
    )  # fmt: skip


def change(**given: Any) -> Write:
    return Write(**({"job": "mine", "birth": 7, "operation": "append", "schema": SCHEMA, "partition_by": BY} | given))


def after(made: Change, found: Inputs | None = None, *, now_us: int = 2000) -> Snapshot:
    return apply(head(), made, found or Inputs(), parent_digest="sha256:head", commit_id="mine.1", now_us=now_us, writer="new")


def paths(snapshot: Snapshot) -> set[str]:
    return {each.path for each in snapshot.added}


def test_an_append_carries_over_everything_that_it_does_not_name() -> None:
    """[CM17] [WM4] [OB12]"""
    made = after(
        change(
            add=(entry("new", "b", 1),),
            touched=({1: "b", 2: 1},),
            key="k",
            declared="said",
            advances=(Advance(source="s", start=5, end=6),),
        )
    )
    expected = msgspec.structs.replace(
        head(), version=8, parent_digest="sha256:head", committed_at=2000, writer="new", commits=made.commits,
        added=(*head().added, msgspec.structs.replace(entry("new", "b", 1), added=8)),
        watermarks={"s": 6, "t": "p9"},
        keys={"old": KeyRecord(version=3, digest="d"), "k": KeyRecord(version=8, digest="said")},
        recent_jobs={"j1": 1, "given up": None, "mine": 8},
        totals=Totals(files=9, rows=90, bytes=180, extra={"deep": 1}),
        data_at=2000, advanced_at={"s": 2000},
    )  # fmt: skip
    assert made == expected
    (record,) = made.commits
    assert (record.job, record.commit_id, record.key, record.operation, record.touched) == (
        "mine", "mine.1", "k", "append", ({1: "b", 2: 1},),
    )  # fmt: skip
    assert (record.summary.files, record.summary.rows, record.summary.removed_files) == (1, 10, 0)


def test_a_job_without_rows_moves_its_watermark_and_records_its_key() -> None:
    """[CM16]"""
    made = after(change(key="k", declared="d", advances=(Advance(source="s", start=5, end=9),)))
    assert made.added == head().added and made.totals == head().totals and made.commits[0].touched == ()
    assert made.watermarks["s"] == 9 and "k" in made.keys


def test_time_does_not_run_backwards_along_the_chain() -> None:
    """[CM14]"""
    assert after(change(), now_us=1).committed_at == 1000
    assert after(change(), now_us=5000).committed_at == 5000


def test_manifests_are_stamped_with_their_version_and_counted() -> None:
    """[OB6]"""
    made = after(change(add_manifests=(msgspec.structs.replace(ref("mine-1", 4), added=0),)))
    assert made.manifests[-1] == msgspec.structs.replace(ref("mine-1", 4), added=8)
    assert made.totals.files == 12 and made.totals.rows == 120


@pytest.mark.parametrize(
    ("scope", "gone"),
    [
        ({1: "a"}, {"a1", "a2"}), ({1: "a", 2: 2}, {"a2"}), ({2: 1}, {"a1", "n1", "e1"}), ({1: None}, {"n1"}), ({1: ""}, {"e1"}),
        ({1: "zzz"}, set()), ({1: "None"}, set()),
    ],
)  # fmt: skip
def test_an_overwrite_takes_the_named_partitions_and_no_other(scope: dict[int, Any], gone: set[str]) -> None:
    """[CF3] [PT3]"""
    made = after(change(operation="overwrite", overwrite=Overwrite(scope=(scope,)), add=(entry("new", "a", 1),), touched=({1: "a", 2: 1},)))
    assert paths(made) == paths(head()) - gone | {"new"}
    assert made.manifests == head().manifests and made.removed == head().removed
    assert made.totals.files == 8 - len(gone) + 1
    assert scope in made.commits[0].touched, "recorded even where nothing was there: a later overwrite must see it"
    assert made.commits[0].summary.removed_files == len(gone)


def test_what_goes_out_of_manifests_is_marked_and_a_manifest_without_files_leaves() -> None:
    """[OB9]"""
    taken = {
        "m1": RemovedRows(bitmap=0b011, totals=Totals(files=1, rows=10, bytes=20)),
        "m2": RemovedRows(bitmap=0b11, totals=Totals(files=2, rows=20, bytes=40)),
    }
    made = after(change(operation="overwrite", overwrite=Overwrite(scope=({1: "q"},))), Inputs(taken=taken))
    assert [each.path for each in made.manifests] == ["m1"]
    assert made.removed == {"m1": encode(0b011)}
    assert made.removed_runs == head().removed_runs
    assert made.totals.files == 5 and made.totals.rows == 50 and made.totals.bytes == 100


def test_emptying_the_whole_table_takes_everything_and_keeps_what_is_no_data() -> None:
    """[CF3] [WM4] [KY1]"""
    made = after(change(operation="overwrite", overwrite=Overwrite(scope=({},)), add=(entry("new", "b", 1),)))
    assert paths(made) == {"new"} and made.manifests == () and made.removed == {} and made.removed_runs == ()
    assert made.totals == Totals(files=1, rows=10, bytes=20, extra={"deep": 1})
    assert (made.watermarks, made.keys, made.key_runs, made.fence, made.tags) == (
        head().watermarks, head().keys, head().key_runs, head().fence, head().tags,
    )  # fmt: skip
    assert made.commits[0].touched == ({},)


def test_a_dynamic_overwrite_takes_what_it_writes() -> None:
    """[CF3]"""
    dynamic = Overwrite(dynamic=True)
    made = after(change(operation="overwrite", overwrite=dynamic, add=(entry("new", "a", 1),), touched=({1: "a", 2: 1},)))
    assert paths(made) == {"a2", "n1", "e1", "new"}
    made = after(change(operation="overwrite", overwrite=dynamic))
    assert made.added == head().added, "no rows, no partitions, nothing taken"


def test_a_dynamic_overwrite_of_very_many_partitions_takes_those_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording "everything" instead of too many patterns is safe for a conflict; emptying everything is the loss of a table. [CF3]"""
    monkeypatch.setattr(partition_pattern, "MAX_TOUCHED", 3)
    new = tuple(entry(f"new{number}", "b", number) for number in range(5))
    written = tuple(partition_pattern.of_partition(BY, each.partition) for each in new)
    made = after(change(operation="overwrite", overwrite=Overwrite(dynamic=True), add=new, touched=written))
    assert paths(made) == paths(head()) | {each.path for each in new}
    assert made.manifests == head().manifests
    assert made.commits[0].touched == ({},)


def test_replacing_files_takes_those_paths() -> None:
    """[CF7]"""
    made = after(change(operation="replace", remove=frozenset({"a1", "n1"}), add=(entry("new", "a", 1),)))
    assert paths(made) == {"a2", "e1", "new"} and made.totals.files == 7
    assert {1: "a", 2: 1} in made.commits[0].touched and {1: None, 2: 1} in made.commits[0].touched


def test_replacing_files_needs_no_partitioning_of_its_own() -> None:
    """The head's counts where the change states none. [CF7]"""
    made = after(change(operation="replace", partition_by=None, schema=None, remove=frozenset({"a1"})))
    assert paths(made) == {"a2", "n1", "e1"}
    assert made.commits[0].touched == ({1: "a", 2: 1},)


def test_files_replaced_inside_manifests_touch_their_own_partitions_only() -> None:
    """As the whole table they would be in the way of every overwrite elsewhere. [OB10] [CF6]"""
    taken = {"m1": RemovedRows(bitmap=0b011, totals=Totals(files=1, rows=10, bytes=20), touched=({1: "q", 2: 1},))}
    made = after(change(operation="replace", remove=frozenset({"a1", "in m1"})), Inputs(taken=taken))
    assert made.commits[0].touched == ({1: "a", 2: 1}, {1: "q", 2: 1})


@pytest.mark.parametrize("has_runs", [True, False])
def test_a_dropped_key_leaves_a_record(has_runs: bool) -> None:
    """A job that began before finds it, also where no run holds an older one. [WM5] [KY7] [WM6]"""
    before = head() if has_runs else msgspec.structs.replace(head(), key_runs=())
    back = Rewind(job="mine", birth=7, source="s", have=5, to=2, keys=frozenset({"old"}))
    made = apply(before, back, Inputs(), parent_digest="d", commit_id="c", now_us=0, writer="w")
    assert made.keys == {"old": KeyRecord(version=8, digest="")} and made.set_back == {"s": 8}
    assert (made.watermarks, made.origins, made.key_runs) == ({"s": 2, "t": "p9"}, {"s": 0, "t": None}, before.key_runs)


def test_a_batch_replaces_the_record_of_its_own_stream_and_no_other() -> None:
    """[KY6] [OB12]"""
    made = after(change(stream=StreamBatch(name="another", query="r", batch=0)))
    assert made.streams == {**head().streams, "another": StreamRecord(query="r", batch=0, version=8)}
    made = after(change(stream=StreamBatch(name="q %é", query="q", batch=5)))
    assert made.streams == {"q %é": StreamRecord(query="q", batch=5, version=8)}


def test_the_first_schema_is_set_once() -> None:
    """[CF8]"""
    bare = msgspec.structs.replace(head(), schema=NO_COLUMNS, partition_by=(), added=(), manifests=(), removed={}, removed_runs=())
    made = apply(bare, change(operation="schema", initial=SCHEMA), Inputs(), parent_digest="d", commit_id="c", now_us=0, writer="w")
    assert made.schema == SCHEMA and made.partition_by == BY


RESTORED = {
    "schema", "partition_by", "manifests", "added", "removed", "removed_runs",
    "watermarks", "origins", "keys", "key_runs", "streams", "totals",
}  # fmt: skip
OWN = {
    "version", "parent_digest", "committed_at", "writer", "commits", "recent_jobs", "provisional", "proven", "set_back", "set_back_queries",
    "former_folders",
}  # fmt: skip


def test_a_rollback_restores_what_is_data_and_nothing_else() -> None:
    """Every member of a snapshot is the target's, the head's or the commit's own: a new one has to be put somewhere. [CF13] [OB2]"""
    target = create(
        table_id="0" * 16, job="j1", commit_id="c", schema=NO_COLUMNS, partition_by=(), properties={"p": "then"}, now_us=500, writer="old"
    )
    streams = {"other": StreamRecord(query="q", batch=1, version=1)}
    target = msgspec.structs.replace(target, watermarks={"s": 1, "t": "p1"}, origins={"s": 0, "t": None}, streams=streams)
    taken, given = Totals(files=8, rows=80, bytes=160), Totals(files=1)
    made = after(Rollback(job="mine", birth=7, target=target, taken=taken, given=given, reason="why"), now_us=5000)
    for name in msgspec.structs.asdict(target):
        if name not in OWN:
            assert getattr(made, name) == getattr(target if name in RESTORED else head(), name), name
    (commit,) = made.commits
    assert (commit.restored, commit.reason, commit.summary.files, commit.summary.removed_files) == (1, "why", 1, 8)
    assert made.recent_jobs == {**head().recent_jobs, commit.job: 8}
    assert made.set_back == {"s": 8, "t": 8} and made.set_back_queries == {"q": 8}


def test_what_only_the_head_knows_of_stands_at_its_beginning_after_a_rollback() -> None:
    """A source that began at null is known and has no position. [CF13] [WM1] [WM2] [KY6]"""
    target = msgspec.structs.replace(head(), version=2, watermarks={}, origins={}, streams={})
    made = after(Rollback(job="mine", birth=7, target=target))
    assert made.watermarks == {"s": 0} and made.origins == {"s": 0, "t": None}
    assert made.streams == {"q %é": StreamRecord(query="q", batch=-1, version=8)}


# --- what a job declares, and what is stored of its change --------------------------------------------------------------
def test_a_declaration_tells_other_work_and_no_other_files() -> None:
    """[KY1]"""
    one, two = Advance(source="a", start=0, end=5), Advance(source="b", start=None, end="x")
    base: dict[str, Any] = {"mode": "append", "scope": None, "advances": (one, two), "fingerprint": None}
    said = declaration(**base)
    assert declaration(**{**base, "advances": (two, one)}) == said, "the order in which sources were named says nothing"
    others = [
        {"mode": "overwrite"}, {"scope": "dynamic"}, {"scope": [[("1", "a")]]}, {"scope": [[("1", None)]]}, {"scope": [[("1", "None")]]},
        {"advances": (one,)}, {"advances": (Advance(source="a", start=0, end=6), two)}, {"fingerprint": "f"}, {"fingerprint": "None"},
        {"advances": (one, Advance(source="b", start="None", end="x"))},
    ]  # fmt: skip
    assert len({said, *(declaration(**{**base, **other}) for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("kind", [kind for kind in get_args(Change) if kind is not Write])
def test_a_stored_change_is_of_one_kind(kind: type[msgspec.Struct]) -> None:
    """What only other kinds have makes readers refuse it, alone or beside files. [AB3]"""
    own = set(kind.__struct_fields__) - set(Write.__struct_fields__)
    assert own
    stored = {"job": "j", "birth": 1, "operation": "append"}
    assert msgspec.convert(stored, Write) == Write(job="j", birth=1, operation="append")
    for name in own:
        with pytest.raises(msgspec.ValidationError, match=f"unknown field `{name}`"):
            msgspec.convert({**stored, name: None}, Write)


def test_every_kind_says_whose_it_is_and_is_measured() -> None:
    """[OB10]"""
    for kind in get_args(Change):
        assert kind.__struct_fields__[:3] == ("job", "birth", "operation") and kind.__struct_fields__[-1] == "summary"
