"""What gc keeps and what it deletes, as pure functions. [GC1] [GC2] [GC5] [KY4] [AB5]"""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.format import object_names
from manifestcommit.format.change import Inputs, Retention, Rewritten
from manifestcommit.format.object_names import writer_of
from manifestcommit.format.snapshot import Commit, KeyRecord, RunRef, Snapshot, Tag
from manifestcommit.protocol import retention
from manifestcommit.protocol.apply import apply
from manifestcommit.protocol.retention import (
    Horizon,
    Policy,
    choose,
    classify,
    classify_unfinished,
    inner_root,
    is_condemnable,
    is_of_another_table,
    newest_by,
    oldest_key_kept,
    own_job,
)

TABLE = "0123456789abcdef"
OTHER = "fedcba9876543210"


def job(birth: int, table: str = TABLE) -> str:
    return object_names.job_id(birth, table, b"r" * 16)


def data(birth: int, folder: str = "", table: str = TABLE) -> str:
    return f"{folder}00003-{'a' * 16}-0-{job(birth, table)}.parquet"


def head(version: int = 20, **changes: Any) -> Snapshot:
    commits = (Commit(job=job(version - 1), commit_id=f"{job(version - 1)}.x", operation="append"),)
    made = Snapshot(
        format_version=1, table_id=TABLE, version=version, committed_at=1, writer="t", commits=commits, parent_digest="x", fence=5,
        expired=3,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def after(before: Snapshot, **decided: Any) -> Snapshot:
    change = Retention(job=job(before.version), birth=before.version, **decided)
    return apply(before, change, Inputs(), parent_digest="d", commit_id="c", now_us=1, writer="t")


# --- the choice -----------------------------------------------------------------------------------------------------------
@given(
    at_grace=st.integers(0, 30), at_keep_for=st.integers(0, 30), keep=st.integers(1, 40), prepared=st.lists(st.integers(1, 20)),
    fence=st.integers(3, 20),
)  # fmt: skip
def test_fence_and_expired_never_go_back_and_keep_their_order(
    at_grace: int, at_keep_for: int, keep: int, prepared: list[int], fence: int
) -> None:
    """[GC1] [GC2] [AB5]"""
    before = head(fence=fence)
    chosen, expired = choose(before, Policy(keep_versions=keep), at_grace=at_grace, at_keep_for=at_keep_for, prepared=prepared)
    assert before.expired <= expired <= chosen <= before.version and chosen >= before.fence
    assert all(chosen <= birth for birth in prepared) or chosen == before.fence
    assert expired == before.expired or expired <= before.version - keep + 1
    made = after(before, fence=chosen, expired=expired)
    assert (made.fence, made.expired) == (chosen, expired)


@pytest.mark.parametrize(
    ("policy", "at_grace", "at_keep_for", "prepared", "expected"),
    [
        (Policy(), 20, 20, (), (20, 20)), (Policy(), 0, 0, (), (5, 3)), (Policy(), 12, 20, (), (12, 12)), (Policy(), 20, 12, (), (20, 12)),
        (Policy(keep_versions=4), 20, 20, (), (20, 17)), (Policy(keep_versions=99), 20, 20, (), (20, 3)),
        (Policy(), 20, 20, (9, 15), (9, 9)), (Policy(), 20, 20, (2,), (5, 5)),
    ],
)  # fmt: skip
def test_the_choice(policy: Policy, at_grace: int, at_keep_for: int, prepared: tuple[int, ...], expected: tuple[int, int]) -> None:
    """[GC1] [AB5]"""
    assert choose(head(), policy, at_grace=at_grace, at_keep_for=at_keep_for, prepared=prepared) == expected


def test_the_newest_version_at_a_moment() -> None:
    """[GC1]"""
    times = [(3, 10.0), (4, 20.0), (5, 20.0), (6, 15.0), (7, 30.0)]
    assert [newest_by(times, moment, 99) for moment in (9, 10, 19, 20, 29, 99)] == [0, 3, 3, 5, 5, 7]


YEARS = 10 * 366 * 86_400.0


@pytest.mark.parametrize("wild", range(1, 7))
def test_one_wild_clock_neither_expires_what_is_young_nor_holds_gc_back(wild: int) -> None:
    """Where versions lie in folders, their times are those of the machines that wrote them. [GC1]"""
    true = [(version, 100.0 * version) for version in range(1, 7)]
    for off in (YEARS, -YEARS):
        times = [(version, at + off * (version == wild)) for version, at in true]
        for now in (650.0, 601.0, 1e6):
            for moment in (50.0, 150.0, 350.0, 550.0, 600.0):
                expected = newest_by(true, moment, now)
                assert expected - 1 <= newest_by(times, moment, now) <= max(expected, 1), "no more than the wild one is kept longer"


def test_a_time_that_came_to_pass_holds_gc_back_no_longer_than_any_other() -> None:
    """[GC1]"""
    times = [(1, 100.0), (2, YEARS), (3, 200.0), (4, YEARS + 50)]
    assert [newest_by(times, now - 10, now) for now in (500.0, YEARS + 5, YEARS + 10, YEARS + 59, YEARS + 60)] == [3, 1, 2, 2, 4]


def test_keys_are_kept_by_their_number() -> None:
    """[KY4]"""
    assert [oldest_key_kept([3, 1, 2, 2], keep) for keep in (0, 1, 2, 3, 4, 9)] == [4, 3, 2, 2, 0, 0]
    assert oldest_key_kept([], 0) == 0


# --- the commit -----------------------------------------------------------------------------------------------------------
def test_what_a_decision_leaves_of_the_head() -> None:
    """Tags whose time has come, keys and jobs that are to be forgotten, and condemned names. [GC1] [GC6] [GC8] [GC10] [KY4]"""
    before = head(
        tags={"old": Tag(version=4, until=100), "young": Tag(version=4, until=101), "ever": Tag(version=2)},
        keys={"a": KeyRecord(version=7, digest="x"), "b": KeyRecord(version=8, digest="x"), "c": KeyRecord(version=15, digest="x")},
        recent_jobs={job(4): 6, job(5): 7, job(9): None, job(12): 13},
        condemned={"pending": None, "gone at 9": 9, "gone at 13": 13, "seen": None},
        set_back={"at the fence": 12, "above it": 13},
        set_back_queries={"at the fence": 12, "above it": 13},
    )
    made = after(before, fence=12, expired=10, keys_from=15, now_us=100, condemned=frozenset({"new"}), gone=frozenset({"seen", "never"}))
    assert made.tags.keys() == {"young", "ever"}
    assert made.keys.keys() == {"c"}, "below the fence, and below keys_from"
    assert made.recent_jobs.keys() == {job(5), job(9), job(12), job(20)}, "the fence that the head had counts [GC8]"
    assert made.condemned == {"pending": None, "gone at 13": 13, "seen": 21, "new": None}
    assert made.set_back == made.set_back_queries == {"above it": 13}, "no job from before can commit [WM6] [KY7]"
    again = after(made, fence=0, expired=0, keys_from=99)
    assert (again.fence, again.expired) == (12, 10)
    assert again.recent_jobs.keys() == {job(12), job(20), job(21)}
    assert again.keys.keys() == {"c"}, "the fence has not reached it"


@pytest.mark.parametrize(("keys_from", "kept"), [(0, "abc"), (11, "abc"), (12, "bc"), (13, "c"), (14, "c"), (99, "c")])
def test_a_key_is_forgotten_below_both_the_fence_and_the_first_that_is_kept(keys_from: int, kept: str) -> None:
    """One that was recorded at either of them stays. [KY4]"""
    keys = {name: KeyRecord(version=version, digest="x") for name, version in zip("abc", (11, 12, 13), strict=True)}
    assert "".join(after(head(keys=keys), fence=13, expired=10, keys_from=keys_from).keys) == kept


@pytest.mark.parametrize("keys_from", [0, 13, 99])
def test_that_a_key_was_dropped_is_forgotten_at_the_fence_and_not_above_it(keys_from: int) -> None:
    """Whatever keys are forgotten: a job that was born below that version can still commit. [KY7]"""
    keys = {name: KeyRecord(version=version, digest="") for name, version in zip("abc", (12, 13, 14), strict=True)}
    assert after(head(keys=keys), fence=13, expired=10, keys_from=keys_from).keys.keys() == {"c"}


def test_no_key_is_forgotten_where_others_have_merged_the_runs() -> None:
    """A record in the head hides an older one in a run: it must not go before that. [KY4] [OB11]"""

    def run(name: str) -> RunRef:
        return RunRef(path=f"_manifest/manifests/{name}", rows=1, bytes=1, digest="x", first="a", last="z")

    before = head(keys={"a": KeyRecord(version=4, digest="x"), "dropped": KeyRecord(version=4, digest="")}, key_runs=(run("r1"), run("r2")))
    rewritten = Rewritten(old=frozenset({run("r1").path}), new=(run("r3"),))
    made = after(before, fence=20, expired=20, keys_from=10, key_runs=rewritten)
    assert (made.keys.keys(), made.key_runs) == ({"dropped"}, (run("r2"), run("r3")))
    merged = msgspec.structs.replace(before, key_runs=(run("merged"),))
    made = after(merged, fence=20, expired=20, keys_from=10, key_runs=rewritten)
    assert (made.keys.keys(), made.key_runs) == ({"a", "dropped"}, (run("merged"),))
    alone = msgspec.structs.replace(before, key_runs=(run("r1"),))
    made = after(alone, fence=20, expired=20, keys_from=10, key_runs=Rewritten(old=frozenset({run("r1").path})))
    assert (made.keys, made.key_runs) == ({}, ()), "nothing is left that a dropped key would have to hide"


# --- a name ---------------------------------------------------------------------------------------------------------------
HORIZON = Horizon(
    table_id=TABLE, own=frozenset({TABLE}), version=20, fence=10, expired=8, tagged=frozenset({2, 12}), condemned=frozenset({"x/é%.csv"}),
                  layouts=((("day", "string"),),))  # fmt: skip
LISTED = data(3, "day=1/")
MANIFEST = object_names.manifest_name(job(3), b"m" * 16)


def verdict(name: str, *, is_old: bool = True) -> tuple[str, str]:
    found = classify(name, HORIZON, {LISTED, MANIFEST, "x/added.parquet"}.__contains__, is_old=is_old)
    assert (found.action == "delete") <= bool(found.reason)
    return found.action, found.kind


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (LISTED, ("keep", "data file")), (data(9, "day=2/"), ("delete", "data file")), (data(10, "day=2/"), ("keep", "data file")),
        (data(9, "day=a b%2F+%3D%23%27é🦆/"), ("delete", "data file")), (data(9, "day=a b%2F+=#'é🦆/"), ("leave", "foreign")),
        (data(9, "day=__HIVE_DEFAULT_PARTITION__/"), ("delete", "data file")), (data(9, "day=1/n=1/"), ("leave", "foreign")),
        (data(9), ("leave", "foreign")), (data(10), ("leave", "foreign")), (data(9, "day=1/", OTHER), ("leave", "foreign")),
        (data(9, "backup/"), ("leave", "foreign")), (data(9, "inner/day=1/"), ("leave", "foreign")),
        (data(9) + ".crc", ("leave", "foreign")), ("inner/_manifest/versions/00000000000000000001.json.zst", ("leave", "foreign")),
        ("x/added.parquet", ("keep", "data file")), ("x/é%.csv", ("delete", "foreign file")), ("x/other.csv", ("leave", "foreign")),
        ("_manifestation/x", ("leave", "foreign")), (object_names.HINT, ("keep", "metadata")),
        (object_names.version_name(7), ("delete", "version")), (object_names.version_name(2), ("keep", "metadata")),
        (object_names.version_name(8), ("keep", "metadata")), (object_names.version_name(99), ("keep", "metadata")),
        (object_names.intent_name(job(9)), ("delete", "intent")), (object_names.intent_name(job(10)), ("keep", "metadata")),
        (object_names.intent_name(job(3, OTHER)), ("leave", "unknown")), (f"{object_names.INTENTS}x", ("leave", "unknown")),
        (f"{object_names.VERSIONS}1.json.zst", ("leave", "unknown")), (MANIFEST, ("keep", "metadata")),
        (object_names.manifest_name(job(3), b"n" * 16), ("delete", "manifest")),
        (object_names.manifest_name(job(10), b"n" * 16), ("keep", "metadata")),
        (object_names.manifest_name(job(3, OTHER), b"n" * 16), ("leave", "unknown")),
        (f"{object_names.MANIFESTS}something.parquet", ("leave", "unknown")),
        (object_names.prepared_name(job(9)), ("delete", "job object")), (object_names.prepared_name(job(10)), ("keep", "metadata")),
        (f"{object_names.JOBS}{job(9)}/other", ("delete", "job object")),
        (object_names.key_mark_name(job(9), "k é"), ("delete", "job object")),
        (object_names.key_mark_name(job(10), "k"), ("keep", "metadata")),
        (object_names.task_name(job(9), "0" * 32, 7), ("delete", "job object")),
        (object_names.prepared_name(job(9, OTHER)), ("leave", "unknown")), (f"{object_names.PROBES}{'0' * 32}/race", ("delete", "probe")),
        ("_manifest/of a later release", ("leave", "unknown")),
    ],
)  # fmt: skip
def test_the_verdict_on_a_name(name: str, expected: tuple[str, str]) -> None:
    """[GC5] [GC6] [GC7] [LY11] [LY12] [CM22]"""
    assert verdict(name) == expected


def test_a_file_that_is_listed_is_kept_whatever_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the names of most files of a large table are not taken apart. [GC5] [GC18]"""
    monkeypatch.setattr(retention, "own_job", lambda *_: pytest.fail("its name was taken apart"))
    for name in (data(1), data(15), data(1, "day=x/"), data(1, "copy/"), data(1, table=OTHER), "x/é%.csv", "_hidden.csv"):
        assert classify(name, HORIZON, lambda _: True, is_old=True).action == "keep"


def test_whether_a_version_reaches_a_name_is_asked_once() -> None:
    """Among the names of all readable versions, of each object that stands below the root. [GC5] [GC18]"""
    for name in (data(1), data(15), data(1, table=OTHER), "x.csv", MANIFEST):
        asked: list[str] = []
        classify(name, HORIZON, lambda each, asked=asked: bool(asked.append(each)), is_old=True)
        assert asked == [name]


def test_a_probe_of_unknown_age_stays() -> None:
    """[GC5] [LY12]"""
    assert verdict(f"{object_names.PROBES}{'0' * 32}/race", is_old=False) == ("keep", "metadata")


@given(
    st.text(max_size=40), st.sampled_from(["", "_manifest/", object_names.VERSIONS, object_names.MANIFESTS, object_names.JOBS, "day=1/"])
)
def test_nothing_is_deleted_by_chance(text: str, folder: str) -> None:
    """[GC5]"""
    name = folder + text
    if classify(name, HORIZON, lambda _: False, is_old=False).action == "delete":
        assert name in HORIZON.condemned or TABLE in name or object_names.parse_version(name)


def test_whose_a_data_file_is() -> None:
    """A copy in another folder is nobody's; folders whose names were cut are ours. [DF1] [GC5]"""
    assert writer_of(data(3, "a=1/b=2/"), TABLE) == job(3) and writer_of(data(3), TABLE) == job(3)
    assert writer_of(data(3, f"{'c' * 150}{'é' * 20}-0123456789abcdef/"), TABLE) == job(3)
    assert writer_of(data(3, "a=1/copy/"), TABLE) is None and writer_of(data(3), OTHER) is None and writer_of("x", TABLE) is None


NO_COLUMNS = msgspec.structs.replace(HORIZON, layouts=((),))
MADE_ANEW = msgspec.structs.replace(HORIZON, layouts=((("n", "long"),), *HORIZON.layouts))
TWO_COLUMNS = msgspec.structs.replace(HORIZON, layouts=((("day", "date"), ("n", "long")),))


@pytest.mark.parametrize(
    ("name", "horizon", "is_own"),
    [
        (data(3), NO_COLUMNS, True),
        (data(3, "day=1/"), NO_COLUMNS, False),
        (data(3, "day=1/"), HORIZON, True),
        (data(3, "day=1.bak/"), HORIZON, True),  # as far as the name goes: one may be the value
        (data(3, "Day=1/"), HORIZON, False),
        (data(3, "day=1/"), MADE_ANEW, True),  # of before a rollback
        (data(3, "n=1/"), MADE_ANEW, True),
        (data(3), MADE_ANEW, False),
        (data(3, "n=1/day=1/"), MADE_ANEW, False),
        (data(3, "old-day=1/"), HORIZON, False),
        (data(3, "day=2013-01-01/n=-5/"), TWO_COLUMNS, True),
        (data(3, "day=2013-01-01.bak/n=-5/"), TWO_COLUMNS, False),
        (data(3, "day=2013-01-01/n=05/"), TWO_COLUMNS, False),
        (data(3, "n=-5/day=2013-01-01/"), TWO_COLUMNS, False),
        (data(3, "day=2013-01-01/"), TWO_COLUMNS, False),
        (data(3, "backup=1/day=2013-01-01/n=5/"), TWO_COLUMNS, False),
        (data(3, "day=2013-01-01/n=5/inner/"), TWO_COLUMNS, False),
        ("day=1/copy-" + data(3), HORIZON, False),
        ("day=1/" + data(3).replace("00003-", "3-"), HORIZON, False),
        ("day=1/" + data(3).replace("00003-", "000003-"), HORIZON, False),
        ("day=1/" + data(3).replace("00003-", "123456-"), HORIZON, True),
        ("day=1/" + data(3).replace("-0-v3", "-00-v3"), HORIZON, False),
        ("day=1/" + data(3).replace("a" * 16, "A" * 16), HORIZON, False),
        ("day=1/" + data(3).replace("a" * 16, "a" * 17), HORIZON, False),
        ("day=1/" + data(3).replace(".parquet", " (1).parquet"), HORIZON, False),
        (data(3, "day=1/", OTHER), HORIZON, False),
    ],
)
def test_only_a_name_that_the_table_writes_is_its_own(name: str, horizon: Horizon, is_own: bool) -> None:
    """The whole of it: whatever else carries a job of the table is a copy. What is its own is also what no change may list. [GC5] [CM2]"""
    assert own_job(name, horizon) == (job(3) if is_own else None)
    assert not is_own or writer_of(name, TABLE) == job(3)


def test_a_copy_of_what_is_listed_stays() -> None:
    """A file of ours has one place; where that is listed, one of its name elsewhere is somebody's copy. [GC5] [GC6]"""
    copy = data(3, "day=1.bak/")
    asked: list[str] = []

    def is_copy(name: str) -> bool:
        asked.append(name)
        return True

    found = classify(copy, HORIZON, lambda _: False, is_copy, is_old=True)
    assert (found.action, found.kind) == ("leave", "foreign") and "a copy" in found.reason
    condemned = msgspec.structs.replace(HORIZON, condemned=frozenset([copy]))
    assert classify(copy, condemned, lambda _: False, is_copy, is_old=True).kind == "foreign file"
    assert classify(copy, HORIZON, lambda _: False, lambda _: False, is_old=True).action == "delete"
    assert asked == [copy] * 2
    assert classify("x.csv", HORIZON, lambda _: False, is_copy, is_old=True).kind == "foreign" and asked == [copy] * 2


_ENDS = re.compile(r"-(v[1-9]\d{0,18}-[0-9a-f]{16}-[0-9a-f]{32})\.parquet\Z", re.ASCII)
_PIECES = ["v3-", "-v", "v03-", "-", ".parquet", "a=v/", "\n", "é", "0" * 16, "0" * 32, "٣", job(3), f"-{job(7, OTHER)}.parquet"]


@given(st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), max_size=6).map("".join))
def test_the_job_of_a_data_file_is_the_one_that_its_name_ends_with(name: str) -> None:
    """A file whose job is read wrongly is deleted, or kept for ever. [DF1]"""
    match = _ENDS.search(name)
    assert object_names.job_of_data_file(name) == (match[1] if match else None)


def test_what_shows_another_table() -> None:
    """By its folder or by an id, also of an object that is no file; this one's own, and copies of its files, show none. [GC5] [LY6]"""
    manifest = object_names.manifest_name(job(3, OTHER), b"n" * 16)
    others = [data(3, "a=1/", OTHER), data(3, "backup/", OTHER), manifest, object_names.prepared_name(job(3, OTHER)),
              object_names.intent_name(job(3, OTHER)), object_names.key_mark_name(job(3, OTHER), "k é"),
              "é b/_manifest/hint", f"backup/{MANIFEST}"]  # fmt: skip
    assert [name for name in others if not is_of_another_table(name, TABLE)] == []
    own = [data(3), data(3, "backup/"), MANIFEST, object_names.prepared_name(job(3)), object_names.intent_name(job(3)),
           "x.csv", object_names.HINT,
           "_manifest/else where", f"{object_names.MANIFESTS}no job.parquet", "_manifest/x/_manifest/hint"]  # fmt: skip
    assert [name for name in own if is_of_another_table(name, TABLE)] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("é b/_manifest/hint", "é b/"), ("a/b/_delta_log/0.json", "a/b/"), ("a/.hoodie/x", "a/"), ("a/_spark_metadata/0", "a/"),
        ("a/metadata/v1.metadata.json", "a/"), ("a/metadata/x.gz.metadata.json", "a/"), ("a/_manifest/x/_manifest/hint", "a/"),
        ("a\nb/_manifest/hint", "a\nb/"), ("a/metadata/x.json", None), ("_delta_log/0.json", None), ("metadata/v1.metadata.json", None),
        ("a/_manifestation/x", None), ("a/_manifest", None), ("x.csv", None),
    ],
)  # fmt: skip
def test_the_folder_of_another_table(name: str, expected: str | None) -> None:
    """What lies in it is never condemned. [GC6] [LY6]"""
    assert inner_root(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x/é%+=.csv", True), ("_SUCCESS", False), ("_delta_log/0.json", False), ("a/.hidden/b", False), ("inner/_manifest/hint", False),
        ("_MANIFEST/x", False), ("a\\b", False), ("\ud800", False),
    ],
)  # fmt: skip
def test_what_may_be_condemned(name: str, expected: bool) -> None:
    """[GC6]"""
    assert is_condemnable(name) is expected


@pytest.mark.parametrize(
    ("name", "is_temporary", "is_old", "expected"),
    [
        (data(9, "day=1/"), False, False, True), (data(10, "day=1/"), False, True, False), (data(9, "day=1/", OTHER), False, True, False),
        ("someone's.bin", False, True, False), (object_names.manifest_name(job(9), b"n" * 16), False, False, True),
        (object_names.manifest_name(job(9, OTHER), b"n" * 16), False, True, False), (data(9, "day=1/"), True, False, True),
        (data(10, "day=1/"), True, True, False), (data(9, "day=1/", OTHER), True, True, False),
        (data(9, "backup/day=1/"), True, True, False), ("day=1/someone's.bin", True, True, True),
        ("day=1/someone's.bin", True, False, False), ("_manifest/manifests/.mc-tmp-0123456789abcdef", True, True, True),
        ("_manifest/manifests/.mc-tmp-0123456789abcdef", True, False, False), ("day=1/.mc-tmp-0", True, True, True),
        ("day=1/.mc-tmp-0", True, False, False), (".mc-tmp-0", True, True, False), ("backup=1/.mc-tmp-0", True, True, False),
        (data(9, "backup=1/"), True, True, False), ("_manifest/versions/.mc-tmp-0", True, True, True),
        ("inner/.mc-tmp-0", True, True, False), ("inner/_manifest/versions/.mc-tmp-0", True, True, False),
    ],
)  # fmt: skip
def test_what_was_never_finished(name: str, is_temporary: bool, is_old: bool, expected: bool) -> None:
    """[GC9]"""
    found = classify_unfinished(name, HORIZON, is_temporary=is_temporary, is_old=is_old)
    assert (found.action == "delete") is expected and bool(found.reason) is expected


def test_versions_are_readable_at_a_head_only_if_each_of_them_is() -> None:
    """Not if only the lowest of them has a tag by then. [GC4] [RD3]"""
    horizon = Horizon(table_id="0" * 16, own=frozenset({"0" * 16}), version=12, fence=8, expired=8, tagged=frozenset({2}))

    def at(expired: int, *tagged: int) -> bool:
        tags = {str(each): Tag(version=each) for each in tagged}
        return horizon.is_readable_at(msgspec.structs.replace(head(), version=30, fence=expired, expired=expired, tags=tags))

    assert at(8, 2) and not at(8) and not at(12, 2, 8) and not at(11, 2, 8, 10)
    assert at(11, 2, 8, 9, 10) and at(20, 2, 8, 9, 10, 11, 12) and not at(20, 2, 8, 9, 10, 11)
