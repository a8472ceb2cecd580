"""What may be published and carried, and what one version makes of it. [CM20] [CM24]"""

from typing import Any

import msgspec
import pytest

from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Advance, Inputs, InterveningCommit, Overwrite, Rewind, StreamBatch, Write, advanced_of
from manifestcommit.format.entries import Entry, ManifestRef
from manifestcommit.format.evolution import SchemaEdit
from manifestcommit.format.fields import Field, Schema
from manifestcommit.format.snapshot import KeyRecord, Snapshot, TogetherJob
from manifestcommit.protocol import commit_group
from manifestcommit.protocol.apply import apply, create
from manifestcommit.protocol.audit import check_step, check_version
from manifestcommit.protocol.commit_group import CombinedCommit, carries_others, carry, complete, crowds, in_order, is_plain, may_wait
from manifestcommit.protocol.conflict import find_conflict

SCHEMA = Schema(fields=(Field(id=1, name="day", type="string"), Field(id=2, name="id", type="long")))
TABLE = "0a1b2c3d4e5f6071"


def job(number: int, birth: int = 7, table: str = TABLE) -> str:
    return object_names.job_id(birth, table, number.to_bytes(16, "big"))


def entry(of: str, at: int = 0) -> Entry:
    return Entry(path=f"day=a%/{at:05d}-0-{of}.parquet", partition=("a%",), rows=3, bytes=9, job=of)


def ref(of: str, at: int = 0) -> ManifestRef:
    return ManifestRef(
        path=object_names.manifest_name(of, bytes([at] * 16)), files=1, rows=3, data_bytes=9, bytes=1, digest="d",
        lower=("a",), upper=("a",), nulls=(False,), first_path="a", last_path="z",
    )  # fmt: skip


def head(**members: Any) -> Snapshot:
    made = create(
        table_id=TABLE, job=job(0, 1), commit_id=f"{job(0, 1)}.c", schema=SCHEMA, partition_by=(1,), properties={}, now_us=5, writer="w"
    )
    return msgspec.structs.replace(made, version=7, parent_digest="sha256:p", watermarks={"s": 5}, origins={"s": 0}, **members)


def change(number: int, birth: int = 7, **members: Any) -> Write:
    own = job(number, birth)
    given = {"operation": "append", "schema": SCHEMA, "partition_by": (1,), "add": (entry(own),), "touched": ({1: "a%"},), **members}
    return Write(job=own, birth=birth, **given)


def applies(state: Snapshot, made: Write) -> bool:
    """With the record that the state itself has of the key."""
    return commit_group.applies(state, made, state.keys.get(made.key or ""))


PLAIN: dict[str, dict[str, Any]] = {
    "files": {},
    "nothing": {"add": (), "schema": None, "partition_by": None, "touched": ()},
    "a key": {"key": "k %", "declared": "d"},
    "advances": {"advances": (Advance(source="s", start=5, end=7), Advance(source="new", end="x"))},
    "manifests of its own": {"add": (), "add_manifests": (ref(job(1)), ref(job(1), 1))},
}
OTHER: dict[str, dict[str, Any]] = {
    "an audit": {"audited": 7}, "a constraint": {"constrain": {"positive": None}}, "another operation": {"operation": "adopt"},
    "rows of an earlier version": {"based_on": 3}, "an overwrite": {"operation": "overwrite", "overwrite": Overwrite(scope=({},))},
    "an overwrite that calls itself an append": {"overwrite": Overwrite(dynamic=True, conflict="blind")},
    "a removal": {"remove": frozenset({"x"})},
    "new columns": {"edits": (SchemaEdit(kind="add", id=9, column="c", field=Field(id=9, name="c", type="long")),)},
    "first columns": {"initial": SCHEMA}, "properties": {"properties": {"a": "b"}},
    "a batch of a stream": {"stream": StreamBatch(name="n", query="q", batch=1)}, "a reason": {"reason": "x"},
    "a first write": {"first": True}, "another partitioning": {"repartitions": True},
    "a part of a joint commit": {"together": (TogetherJob(root="a%", table_id="0" * 16, job=job(2)),)},
    "what it has read": {"reads": ({},)}, "another job's file": {"add": (entry(job(2)),)},
    "a file named after another job": {"add": (msgspec.structs.replace(entry(job(2)), job=job(1)),)},
    "a file that no job named": {"add": (msgspec.structs.replace(entry(job(1)), path="day=a%/some.parquet"),)},
    "another job's manifest": {"add_manifests": (ref(job(2)),)}, "a manifest twice": {"add_manifests": (ref(job(1)), ref(job(1)))},
    "files without columns": {"schema": None}, "files without a partitioning": {"partition_by": None},
}  # fmt: skip


@pytest.mark.parametrize("what", PLAIN)
def test_a_plain_append_can_be_published_and_carried(what: str) -> None:
    """[CM19] [CM20]"""
    made = change(1, **PLAIN[what])
    assert is_plain(made) and applies(head(), made) and carries_others(made)


@pytest.mark.parametrize("what", OTHER)
def test_nothing_else_can(what: str) -> None:
    """[CM19] [CM20]"""
    made = change(1, **OTHER[what])
    assert not is_plain(made) and not applies(head(), made)


def test_every_member_of_a_change_that_is_not_known_to_be_plain_makes_it_other() -> None:
    """A later release that adds a member finds this test, not a carrier that passes over what the member says. [CM19]"""
    plain = {
        "job", "birth", "operation", "key", "declared", "schema", "partition_by", "add", "add_manifests", "touched", "advances", "summary",
        "message", "metadata", "author", "checked",  # a carrier keeps them as they are [OB15]
    }  # fmt: skip
    tried = {name for members in OTHER.values() for name in members}
    assert {field.name for field in msgspec.structs.fields(Write)} == plain | tried


def test_who_overwrites_or_does_anything_else_carries_nobody() -> None:
    """What it carried might be what it conflicts with. [CM20]"""
    assert not any(
        carries_others(change(1, **OTHER[what])) for what in ("an overwrite", "another operation", "a removal", "a first write", "an audit")
    )
    assert carries_others(change(1, **OTHER["new columns"])) and not carries_others(
        change(1, **OTHER["an overwrite that calls itself an append"])
    )


SETTLED: dict[str, tuple[dict[str, Any], Write]] = {
    "committed": ({"recent_jobs": {job(1): 7}}, change(1)),
    "given up": ({"recent_jobs": {job(1): None}}, change(1)),
    "below the fence": ({"fence": 6}, change(1, birth=5)),
    "born after the head": ({}, change(1, birth=8)),
    "of another table": ({"table_id": "f" * 16}, change(1)),
    "with a key that is there": ({"keys": {"k": KeyRecord(version=3, digest="d")}}, change(1, key="k", declared="other")),
    "with a range that is there": ({}, change(1, advances=(Advance(source="s", start=0, end=5),))),
    "behind a gap": ({}, change(1, advances=(Advance(source="s", start=6, end=7),))),
    "written with a column that was dropped": ({"schema": Schema(fields=SCHEMA.fields[:1])}, change(1)),
    "laid out otherwise": ({"partition_by": ()}, change(1)),
}


def test_those_born_long_ago_tell_nobody_that_others_wait() -> None:
    """They may be dead, and whoever made way for them would do so for ever. [CM19]"""
    state = msgspec.structs.replace(head(fence=20, recent_jobs={job(5, 90): 95}), version=100)
    assert [crowds(state, job(1, birth)) for birth in (19, 20, 91, 92, 100, 101)] == [False, False, False, True, True, False]
    assert may_wait(state, job(1, 20)) and not crowds(state, job(5, 90)), "carried they may be; who is settled waits for nothing"


@pytest.mark.parametrize("what", SETTLED)
def test_a_job_that_is_settled_or_does_not_fit_is_not_carried(what: str) -> None:
    """[CM20]"""
    members, made = SETTLED[what]
    assert is_plain(made) and not applies(msgspec.structs.replace(head(), **members), made)


def test_a_job_at_the_fence_and_a_key_that_was_dropped_are_carried() -> None:
    """[CM20] [WM5] [CM2]"""
    assert applies(head(fence=6), change(1, birth=6)) and may_wait(head(fence=6), job(1, 6)) and not may_wait(head(fence=6), job(1, 5))
    assert applies(head(keys={"k": KeyRecord(version=3, digest="")}), change(1, key="k", declared="d"))


def test_the_lowest_birth_comes_first_by_number() -> None:
    """[CM20]"""
    assert in_order([job(1, 10), job(3, 9), job(2, 9), job(9, 2)]) == [job(9, 2), job(2, 9), job(3, 9), job(1, 10)]


def put(*changes: Write, own: Write, base: Snapshot | None = None) -> Snapshot:
    carried = CombinedCommit(snapshot=base or head())
    for each in changes:
        assert applies(carried.snapshot, each)
        carried = carry(carried, each, commit_id=f"{each.job}.1", now_us=9, writer="w")
    made = apply(carried.snapshot, own, Inputs(), parent_digest="sha256:q", commit_id=f"{own.job}.1", now_us=9, writer="w")
    return complete(carried, made)


def test_one_version_holds_what_each_would_have_made_of_it() -> None:
    """Files, totals, keys, jobs and watermarks as after one version for each; only the version is one. [CM24] [CM17]"""
    one = change(1, key="k1", declared="d", advances=(Advance(source="s", start=5, end=6), Advance(source="s", start=6, end=7)))
    two, own = change(2, advances=(Advance(source="s", start=7, end=9), Advance(source="t", end="x"))), change(3, key="k3", declared="e")
    made = put(one, two, own=own)
    assert (made.version, made.parent_digest, [each.job for each in made.commits]) == (8, "sha256:q", [one.job, two.job, own.job])
    assert {e.path for e in made.added} == {e.path for each in (one, two, own) for e in each.add} and {e.added for e in made.added} == {8}
    assert (made.totals.files, made.totals.rows, made.totals.bytes) == (3, 9, 27) and made.watermarks == {"s": 9, "t": "x"}
    assert {key: record.version for key, record in made.keys.items()} == {"k1": 8, "k3": 8}
    assert {each.job: 8 for each in (one, two, own)}.items() <= made.recent_jobs.items()
    assert [each.advanced for each in made.commits] == [{"s": (5, 7)}, {"s": (7, 9), "t": (None, "x")}, {}]
    assert [each.summary.rows for each in made.commits] == [3, 3, 3]
    decoded = codec.decode_snapshot(codec.encode_snapshot(made), name=object_names.version_name(8))
    assert decoded == made and not [*check_version(made), *check_step(head(), made)]


def test_a_version_of_one_job_is_what_it_always_was() -> None:
    """[CM24] [CM17]"""
    own = change(3, advances=(Advance(source="s", start=5, end=6),))
    alone = apply(head(), own, Inputs(), parent_digest="sha256:q", commit_id=f"{own.job}.1", now_us=9, writer="w")
    assert put(own=own) == alone and alone.commits[0].advanced == advanced_of(own) == {"s": (5, 6)}


def test_each_is_judged_on_what_comes_before_it() -> None:
    """[CM20] [KY5] [WM2]"""
    state = carry(CombinedCommit(snapshot=head()), change(1, key="k", declared="d"), commit_id="c", now_us=9, writer="w").snapshot
    assert not applies(state, change(2, key="k", declared="d")) and not applies(state, change(1)) and applies(state, change(2))
    moved = carry(
        CombinedCommit(snapshot=head()), change(1, advances=(Advance(source="s", start=5, end=6),)), commit_id="c", now_us=9, writer="w"
    )
    assert applies(moved.snapshot, change(2, advances=(Advance(source="s", start=6, end=7),)))
    assert not applies(moved.snapshot, change(2, advances=(Advance(source="s", start=5, end=6),)))


def test_a_rewind_sees_that_a_source_moved_and_came_back_within_one_version() -> None:
    """Its keys were found before that: those of the two commits are not among them. [CM24] [WM5]"""
    base = head()
    base = msgspec.structs.replace(base, watermarks={"t": "a"}, origins={"t": None})
    there, back = (Advance(source="t", start="a", end="b"),), (Advance(source="t", start="b", end="a"),)
    made = put(change(1, advances=there), change(2, advances=back), own=change(3), base=base)
    assert made.watermarks == base.watermarks
    rewinding = Rewind(job=job(4), birth=7, source="t", have="a", to=None, reason="x")
    winners = tuple(InterveningCommit(snapshot=made, commit=each) for each in made.commits)
    found = find_conflict(made, rewinding, Inputs(winners=winners))
    assert found is not None and found.rule == "watermark_was_moved"
    assert find_conflict(made, rewinding, Inputs(winners=winners[2:])) is None


def test_a_record_of_a_single_job_that_does_not_add_up_is_damage() -> None:
    """[CM24] [RD10]"""
    made = put(own=change(2, advances=(Advance(source="s", start=5, end=5),)))
    assert made.commits[0].advanced == {"s": (5, 5)} and not list(check_step(head(), made))
    for wrong in ({"s": (5, 8)}, {"s": (5, 5), "other": (0, 1)}):
        damaged = msgspec.structs.replace(made, commits=(msgspec.structs.replace(made.commits[0], advanced=wrong),))
        assert [each.kind for each in check_step(head(), damaged)] == ["record_false"], wrong


def test_records_that_do_not_add_up_are_damage() -> None:
    """A rewind would drop the wrong keys. [CM24] [RD10]"""
    one, own = change(1, advances=(Advance(source="s", start=5, end=7),)), change(2, advances=(Advance(source="s", start=7, end=9),))
    made = put(one, own=own)
    assert not list(check_step(head(), made))
    for wrong in ({}, {"s": (5, 8)}, {"s": (6, 7)}, {"s": (5, 7), "other": (0, 1)}):
        record = msgspec.structs.replace(made.commits[0], advanced=wrong)
        damaged = msgspec.structs.replace(made, commits=(record, made.commits[1]))
        assert [each.kind for each in check_step(head(), damaged)] == ["record_false"], wrong
