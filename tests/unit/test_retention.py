"""What gc keeps and what it deletes, as pure functions. [GC1] [GC2] [GC5] [KY4] [AB5]"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.core import format, retention
from manifestcommit.core.change import Change, Found, Retention, Rewritten, apply
from manifestcommit.core.retention import (
    Horizon,
    Policy,
    choose,
    classify,
    classify_unfinished,
    is_condemnable,
    is_of_another_table,
    newest_by,
    oldest_key_kept,
    writer_of,
)
from manifestcommit.core.snapshot import Commit, KeyRecord, RunRef, Snapshot, Tag

TABLE = "0123456789abcdef"
OTHER = "fedcba9876543210"


def job(birth: int, table: str = TABLE) -> str:
    return format.job_id(birth, table, b"r" * 16)


def data(birth: int, folder: str = "", table: str = TABLE) -> str:
    return f"{folder}00003-{'a' * 16}-0-{job(birth, table)}.parquet"


def head(version: int = 20, **changes: Any) -> Snapshot:
    commits = (Commit(job=job(version - 1), commit_id=f"{job(version - 1)}.x", operation="append"),)
    made = Snapshot(
        format_version=1, table_id=TABLE, version=version, committed_at=1, writer="t", commits=commits, parent_digest="x", fence=5,
        expired=3,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def after(before: Snapshot, retention: Retention) -> Snapshot:
    change = Change(job=job(before.version), birth=before.version, operation="gc", retention=retention)
    return apply(before, change, Found(), parent_digest="d", commit_id="c", now_us=1, writer="t")


# --- the choice -----------------------------------------------------------------------------------------------------------


@given(
    at_grace=st.integers(0, 30),
    at_keep_for=st.integers(0, 30),
    keep=st.integers(1, 40),
    prepared=st.lists(st.integers(1, 20)),
    fence=st.integers(3, 20),
)
def test_fence_and_expired_never_go_back_and_keep_their_order(
    at_grace: int, at_keep_for: int, keep: int, prepared: list[int], fence: int
) -> None:
    """[GC1] [GC2] [AB5]"""
    before = head(fence=fence)
    chosen, expired = choose(before, Policy(keep_versions=keep), at_grace=at_grace, at_keep_for=at_keep_for, prepared=prepared)
    assert before.expired <= expired <= chosen <= before.version and chosen >= before.fence
    assert all(chosen <= birth for birth in prepared) or chosen == before.fence
    assert expired == before.expired or expired <= before.version - keep + 1
    made = after(before, Retention(fence=chosen, expired=expired))
    assert (made.fence, made.expired) == (chosen, expired)


@pytest.mark.parametrize(
    ("policy", "at_grace", "at_keep_for", "prepared", "expected"),
    [
        (Policy(), 20, 20, (), (20, 20)),
        (Policy(), 0, 0, (), (5, 3)),
        (Policy(), 12, 20, (), (12, 12)),
        (Policy(), 20, 12, (), (20, 12)),
        (Policy(keep_versions=4), 20, 20, (), (20, 17)),
        (Policy(keep_versions=99), 20, 20, (), (20, 3)),
        (Policy(), 20, 20, (9, 15), (9, 9)),
        (Policy(), 20, 20, (2,), (5, 5)),
    ],
)
def test_the_choice(policy: Policy, at_grace: int, at_keep_for: int, prepared: tuple[int, ...], expected: tuple[int, int]) -> None:
    """[GC1] [AB5]"""
    assert choose(head(), policy, at_grace=at_grace, at_keep_for=at_keep_for, prepared=prepared) == expected


def test_the_newest_version_at_a_moment() -> None:
    """[GC1]"""
    times = [(3, 10.0), (4, 20.0), (5, 20.0), (6, 15.0), (7, 30.0)]
    assert [newest_by(times, moment) for moment in (9, 10, 19, 20, 29, 99)] == [0, 3, 6, 6, 6, 7]


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
    )
    made = after(
        before,
        Retention(fence=12, expired=10, keys_from=15, now_us=100, condemned=frozenset({"new"}), gone=frozenset({"seen", "never"})),
    )
    assert made.tags.keys() == {"young", "ever"}
    assert made.keys.keys() == {"c"}, "below the fence, and below keys_from"
    assert made.recent_jobs.keys() == {job(5), job(9), job(12), job(20)}, "the fence that the head had counts [GC8]"
    assert made.condemned == {"pending": None, "gone at 13": 13, "seen": 21, "new": None}
    again = after(made, Retention(fence=0, expired=0, keys_from=99))
    assert (again.fence, again.expired) == (12, 10)
    assert again.recent_jobs.keys() == {job(12), job(20), job(21)}
    assert again.keys.keys() == {"c"}, "the fence has not reached it"


def test_no_key_is_forgotten_where_others_have_merged_the_runs() -> None:
    """A record in the head hides an older one in a run: it must not go before that. [KY4] [OB11]"""

    def run(name: str) -> RunRef:
        return RunRef(path=f"_manifest/manifests/{name}", rows=1, bytes=1, digest="x", first="a", last="z")

    before = head(keys={"a": KeyRecord(version=4, digest="x"), "dropped": KeyRecord(version=4, digest="")}, key_runs=(run("r1"), run("r2")))
    rewritten = Rewritten(old=frozenset({run("r1").path}), new=(run("r3"),))
    made = after(before, Retention(fence=20, expired=20, keys_from=10, key_runs=rewritten))
    assert (made.keys.keys(), made.key_runs) == ({"dropped"}, (run("r2"), run("r3")))
    merged = msgspec.structs.replace(before, key_runs=(run("merged"),))
    made = after(merged, Retention(fence=20, expired=20, keys_from=10, key_runs=rewritten))
    assert (made.keys.keys(), made.key_runs) == ({"a", "dropped"}, (run("merged"),))
    alone = msgspec.structs.replace(before, key_runs=(run("r1"),))
    made = after(alone, Retention(fence=20, expired=20, keys_from=10, key_runs=Rewritten(old=frozenset({run("r1").path}))))
    assert (made.keys, made.key_runs) == ({}, ()), "nothing is left that a dropped key would have to hide"


# --- a name ---------------------------------------------------------------------------------------------------------------

HORIZON = Horizon(table_id=TABLE, version=20, fence=10, expired=8, tagged=frozenset({2, 12}), condemned=frozenset({"x/é%.csv"}))
LISTED = data(3, "day=1/")
MANIFEST = format.manifest_name(job(3), b"m" * 16)


def verdict(name: str, *, is_old: bool = True) -> tuple[str, str]:
    found = classify(name, HORIZON, {LISTED, MANIFEST, "x/added.parquet"}.__contains__, is_old=is_old)
    assert (found.action == "delete") <= bool(found.reason)
    return found.action, found.kind


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (LISTED, ("keep", "data file")),
        (data(9), ("delete", "data file")),
        (data(10), ("keep", "data file")),
        (data(9, "day=a b%2F+=#'é🦆/n=__HIVE_DEFAULT_PARTITION__/"), ("delete", "data file")),
        (data(9, "day=1/", OTHER), ("leave", "foreign")),
        (data(9, "backup/"), ("leave", "foreign")),
        (data(9, "inner/day=1/"), ("leave", "foreign")),
        (data(9) + ".crc", ("leave", "foreign")),
        ("inner/_manifest/versions/00000000000000000001.json.zst", ("leave", "foreign")),
        ("x/added.parquet", ("keep", "data file")),
        ("x/é%.csv", ("delete", "foreign file")),
        ("x/other.csv", ("leave", "foreign")),
        ("_manifestation/x", ("leave", "foreign")),
        (format.HINT, ("keep", "metadata")),
        (format.version_name(7), ("delete", "version")),
        (format.version_name(2), ("keep", "metadata")),
        (format.version_name(8), ("keep", "metadata")),
        (format.version_name(99), ("keep", "metadata")),
        (format.intent_name(job(9)), ("delete", "intent")),
        (format.intent_name(job(10)), ("keep", "metadata")),
        (format.intent_name(job(3, OTHER)), ("leave", "unknown")),
        (f"{format.INTENTS}x", ("leave", "unknown")),
        (f"{format.VERSIONS}1.json.zst", ("leave", "unknown")),
        (MANIFEST, ("keep", "metadata")),
        (format.manifest_name(job(3), b"n" * 16), ("delete", "manifest")),
        (format.manifest_name(job(10), b"n" * 16), ("keep", "metadata")),
        (format.manifest_name(job(3, OTHER), b"n" * 16), ("leave", "unknown")),
        (f"{format.MANIFESTS}something.parquet", ("leave", "unknown")),
        (format.prepared_name(job(9)), ("delete", "job object")),
        (format.prepared_name(job(10)), ("keep", "metadata")),
        (format.written_name(job(9), "w"), ("delete", "job object")),
        (format.key_mark_name(job(9), "k é"), ("delete", "job object")),
        (format.key_mark_name(job(10), "k"), ("keep", "metadata")),
        (format.task_name(job(9), "0" * 32, 7), ("delete", "job object")),
        (format.prepared_name(job(9, OTHER)), ("leave", "unknown")),
        (f"{format.PROBES}{'0' * 32}/race", ("delete", "probe")),
        ("_manifest/of a later release", ("leave", "unknown")),
    ],
)
def test_the_verdict_on_a_name(name: str, expected: tuple[str, str]) -> None:
    """[GC5] [GC6] [GC7] [LY11] [LY12] [CM22]"""
    assert verdict(name) == expected


def test_a_file_that_is_listed_is_kept_whatever_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the names of most files of a large table are not taken apart. [GC5] [GC18]"""
    monkeypatch.setattr(retention, "writer_of", lambda *_: pytest.fail("its name was taken apart"))
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
    assert verdict(f"{format.PROBES}{'0' * 32}/race", is_old=False) == ("keep", "metadata")


@given(st.text(max_size=40), st.sampled_from(["", "_manifest/", format.VERSIONS, format.MANIFESTS, format.JOBS, "day=1/"]))
def test_nothing_is_deleted_by_chance(text: str, folder: str) -> None:
    """[GC5]"""
    name = folder + text
    if classify(name, HORIZON, lambda _: False, is_old=False).action == "delete":
        assert name in HORIZON.condemned or TABLE in name or format.parse_version(name)


def test_whose_a_data_file_is() -> None:
    """A copy in another folder is nobody's; folders whose names were cut are ours. [DF1] [GC5]"""
    assert writer_of(data(3, "a=1/b=2/"), TABLE) == job(3) and writer_of(data(3), TABLE) == job(3)
    assert writer_of(data(3, f"{'c' * 150}{'é' * 20}-0123456789abcdef/"), TABLE) == job(3)
    assert writer_of(data(3, "a=1/copy/"), TABLE) is None and writer_of(data(3), OTHER) is None and writer_of("x", TABLE) is None


_ENDS = re.compile(r"-(v[1-9]\d{0,18}-[0-9a-f]{16}-[0-9a-f]{32})\.parquet\Z", re.ASCII)
_PIECES = ["v3-", "-v", "v03-", "-", ".parquet", "a=v/", "\n", "é", "0" * 16, "0" * 32, "٣", job(3), f"-{job(7, OTHER)}.parquet"]


@given(st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), max_size=6).map("".join))
def test_the_job_of_a_data_file_is_the_one_that_its_name_ends_with(name: str) -> None:
    """A file whose job is read wrongly is deleted, or kept for ever. [DF1]"""
    match = _ENDS.search(name)
    assert format.job_of_data_file(name) == (match[1] if match else None)


def test_what_shows_another_table() -> None:
    """By its folder or by an id, also of an object that is no file; this one's own, and copies of its files, show none. [GC5] [LY6]"""
    manifest = format.manifest_name(job(3, OTHER), b"n" * 16)
    others = [data(3, "a=1/", OTHER), data(3, "backup/", OTHER), manifest, format.prepared_name(job(3, OTHER)),
              format.intent_name(job(3, OTHER)), format.key_mark_name(job(3, OTHER), "k é"),
              "é b/_manifest/hint", f"backup/{MANIFEST}"]  # fmt: skip
    assert [name for name in others if not is_of_another_table(name, TABLE)] == []
    own = [data(3), data(3, "backup/"), MANIFEST, format.prepared_name(job(3)), format.intent_name(job(3)), "x.csv", format.HINT,
           "_manifest/else where", f"{format.MANIFESTS}no job.parquet", "_manifest/x/_manifest/hint"]  # fmt: skip
    assert [name for name in own if is_of_another_table(name, TABLE)] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x/é%+=.csv", True),
        ("_SUCCESS", False),
        ("_delta_log/0.json", False),
        ("a/.hidden/b", False),
        ("inner/_manifest/hint", False),
        ("_MANIFEST/x", False),
        ("a\\b", False),
        ("\ud800", False),
    ],
)
def test_what_may_be_condemned(name: str, expected: bool) -> None:
    """[GC6]"""
    assert is_condemnable(name) is expected


@pytest.mark.parametrize(
    ("name", "is_temporary", "is_old", "expected"),
    [
        (data(9, "day=1/"), False, False, True),
        (data(10, "day=1/"), False, True, False),
        (data(9, "day=1/", OTHER), False, True, False),
        ("someone's.bin", False, True, False),
        (format.manifest_name(job(9), b"n" * 16), False, False, True),
        (format.manifest_name(job(9, OTHER), b"n" * 16), False, True, False),
        (data(9, "day=1/"), True, False, True),
        (data(10, "day=1/"), True, True, False),
        (data(9, "day=1/", OTHER), True, True, False),
        (data(9, "backup/day=1/"), True, True, False),
        ("day=1/someone's.bin", True, True, True),
        ("day=1/someone's.bin", True, False, False),
        ("_manifest/manifests/.mc-tmp-0123456789abcdef", True, True, True),
        ("_manifest/manifests/.mc-tmp-0123456789abcdef", True, False, False),
        ("day=1/.mc-tmp-0", True, True, True),
        ("day=1/.mc-tmp-0", True, False, False),
        (".mc-tmp-0", True, True, True),
        ("_manifest/versions/.mc-tmp-0", True, True, True),
        ("inner/.mc-tmp-0", True, True, False),
        ("inner/_manifest/versions/.mc-tmp-0", True, True, False),
    ],
)
def test_what_was_never_finished(name: str, is_temporary: bool, is_old: bool, expected: bool) -> None:
    """[GC9]"""
    found = classify_unfinished(name, HORIZON, is_temporary=is_temporary, is_old=is_old)
    assert (found.action == "delete") is expected and bool(found.reason) is expected
