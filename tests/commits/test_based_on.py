"""A write whose rows were read from its own table is compared with every commit since they were read. [CF17]"""

import contextlib
import subprocess
import sys
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit.tables import put_version, session, table_with

import manifestcommit as mc
from manifestcommit.commits.prepared_job import below
from manifestcommit.errors import CommitConflictError, CorruptMetadataError, JobFencedError, UsageError, VersionNotFoundError
from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Overwrite
from manifestcommit.format.fields import arrow_marks, lowest_version, mark_of
from manifestcommit.job import Job
from manifestcommit.log.version_chain import open_head
from manifestcommit.runtime.outcome import error_of
from manifestcommit.store import open_store

DAY = "2013-01-01"


def rows(*ids: int, day: str = DAY) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": [day] * len(ids)})


def ids(root: str) -> list[int]:
    return sorted(mc.Table(root).dataset().to_table().column("id").to_pylist())


@pytest.fixture
def root(tmp_path: Any) -> str:
    """Version 3: two rows in one partition."""
    root = str(tmp_path / "a b%20+='é")
    for number in (1, 2):
        mc.write(rows(number), root, partition_by="day")
    return root


def append(root: str, *numbers: int, day: str = DAY) -> int:
    version = mc.write(rows(*numbers, day=day), root).version
    assert version is not None
    return version


MADE = {
    "dataset": lambda data: data,
    "scanner": lambda data: data.scanner(columns=["id", "day"], filter=pc.field("id") > 1),
    "filtered dataset": lambda data: data.filter(pc.field("id") > 1),
    "reader": lambda data: data.scanner().to_reader(),
    "table": lambda data: data.to_table(),
    "changed table": lambda data: data.to_table().set_column(0, "id", pa.array([7, 8], pa.int64())).sort_by("id").slice(1),
    "two tables": lambda data: pa.concat_tables([data.to_table(), rows(9)]),
    "batch": lambda data: data.to_table().to_batches()[0],
}


@pytest.mark.parametrize("made", MADE)
def test_a_data_set_of_the_table_and_what_is_made_of_it_tells_its_version(root: str, made: str) -> None:
    """The append is not lost. [CF17]"""
    data = MADE[made](mc.Table(root).dataset())
    append(root, 3)
    with pytest.raises(CommitConflictError, match=r"version 4 \(append by job .*\) wrote there since 3") as raised:
        mc.write(data, root, mode="overwrite")
    assert raised.value.rule == "partition_was_touched" and ids(root) == [1, 2, 3]
    assert mc.write(MADE["table"](mc.Table(root).dataset()), root, mode="overwrite").committed


def test_commits_since_that_change_no_row_are_no_conflict(root: str) -> None:
    """[CF15] [CF17]"""
    data = mc.Table(root).dataset().to_table()
    mc.Table(root).set_properties({"owner": "us"})
    assert mc.write(data.filter(pc.field("id") == 2), root, mode="overwrite").committed and ids(root) == [2]


def test_the_lowest_of_several_versions_counts(root: str) -> None:
    """Whichever is written first. [CF17]"""
    old = mc.Table(root).dataset().to_table()
    append(root, 3)
    new = mc.Table(root).dataset().to_table()
    for first, second in ((old, new), (new, old)):
        job = mc.begin(root)
        job.overwrite(None)
        if first is new:
            job.write(first)
        with pytest.raises(CommitConflictError, match="since 3"):
            job.write(second if first is new else first)
    assert ids(root) == [1, 2, 3]


@pytest.mark.parametrize("by", ["write", "begin"])
def test_the_caller_says_it_where_the_rows_do_not(root: str, by: str) -> None:
    """What is said takes the place of what the rows tell. [CF17]"""
    read_at = mc.Table(root).snapshot().version
    plain = mc.Table(root).dataset().to_table().to_pandas()
    marked = mc.Table(root).dataset().to_table()
    head = append(root, 3)

    def overwrite(data: Any, version: int | None) -> Any:
        if by == "write":
            return mc.write(data, root, mode="overwrite", based_on=version)
        with mc.begin(root, based_on=version) as job:
            job.overwrite(None)
            job.write(data)
        return job.outcome

    for data in (plain, marked):
        with pytest.raises(CommitConflictError, match="since 3"):
            overwrite(data, read_at)
    assert ids(root) == [1, 2, 3]
    assert overwrite(marked, head).committed and ids(root) == [1, 2]


def test_what_is_said_must_be_a_version_of_the_table(root: str, tmp_path: Any) -> None:
    """[CF17]"""
    with pytest.raises(VersionNotFoundError, match="based on version 9, but the table's newest version is 3"):
        mc.begin(root, based_on=9)
    with pytest.raises(VersionNotFoundError, match="based on version 4"):
        mc.begin(root, based_on=4)
    with pytest.raises(VersionNotFoundError, match="there is no table"):
        mc.write(rows(1), str(tmp_path / "none"), based_on=1)
    for wrong in (0, -1, True, "3", 2.0):
        with pytest.raises(UsageError, match="based_on"):
            mc.begin(root, based_on=wrong)  # type: ignore[arg-type]
    assert mc.begin(root, based_on=1).read_at(open_head(open_store(root))) == 1


def test_a_version_at_the_fence_is_compared(root: str) -> None:
    """Only one below the fence is refused. [CF17] [CM2]"""
    data = mc.Table(root).dataset().to_table()
    mc.Table(root).set_properties({"owner": "us"})
    store = open_store(root)
    put_version(store, open_head(store), fence=3, expired=3)
    assert mc.write(data.filter(pc.field("id") == 2), root, mode="overwrite").committed and ids(root) == [2]


def test_what_later_commits_can_make_right_is_refused_by_the_commit_only(root: str) -> None:
    """A gap of a source may close while the job runs. [CF17] [WM2]"""
    data = table_with(rows(3, day="other"), root, watermarks={"s é": (0, 5)}).dataset().to_table(filter=pc.field("day") == DAY)
    mc.Table(root).set_properties({"owner": "us"})
    job = mc.begin(root)
    job.overwrite({"day": DAY})
    job.advance("s é", 8, 9)
    job.write(data)
    mc.write(rows(4, day="other"), root, watermarks={"s é": (5, 8)})
    assert job.commit().committed and ids(root) == [1, 2, 3, 4]


def test_a_version_that_is_the_jobs_birth_says_nothing_more(root: str) -> None:
    """[CF17]"""
    blind, serializable = Overwrite(conflict="blind"), Overwrite()
    assert [below(version, 4, serializable, ()) for version in (None, 3, 4, 5)] == [None, 3, None, None]
    assert [below(3, 4, blind, ()), below(3, 4, None, ()), below(3, 4, None, ({},))] == [None, None, 3]
    with mc.begin(root) as job:
        job.overwrite(None)
        job.write(mc.Table(root).dataset().to_table())
        name = object_names.prepared_name(job.prepare())
    assert codec.decode_prepared(open_store(root).get(name), name=name).change.based_on is None


def test_a_fence_that_passes_the_version_while_the_job_runs_fences_the_job(root: str) -> None:
    """Its own birth is above the fence. [CF17] [CM2]"""
    data = mc.Table(root).dataset().to_table()
    mc.Table(root).set_properties({"owner": "us"})
    store = open_store(root)
    job = mc.begin(root)
    job.overwrite(None)
    job.write(data)
    put_version(store, open_head(store), fence=4, expired=4)
    with pytest.raises(JobFencedError):
        job.commit()
    assert object_names.parse_job_id(job.id).birth == 4 and ids(root) == [1, 2]


def test_a_prepared_job_keeps_it(root: str) -> None:
    """[AB3] [CF17]"""
    data = mc.Table(root).dataset().to_table()
    mc.Table(root).set_properties({"owner": "us"})
    with mc.begin(root) as job:
        job.overwrite(None)
        job.write(data)
        prepared = job.prepare()
    name = object_names.prepared_name(prepared)
    store = open_store(root)
    made = codec.decode_prepared(store.get(name), name=name)
    assert (made.change.birth, made.change.based_on) == (4, 3)
    append(root, 3)
    with pytest.raises(CommitConflictError, match="since 3"):
        mc.commit(root, prepared)
    for wrong in (0, 5):
        damaged = msgspec.structs.replace(made, change=msgspec.structs.replace(made.change, based_on=wrong))
        with pytest.raises(CorruptMetadataError, match=f"based on version {wrong}"):
            codec.decode_prepared(codec.compress(msgspec.json.encode(damaged)), name=name)


def test_a_rerun_of_a_key_that_has_committed_does_nothing_whatever_its_rows_were_read_at(root: str) -> None:
    """[KY3] [CF17]"""
    data = mc.Table(root).dataset().to_table()
    version = mc.write(data.filter(pc.field("id") == 2), root, mode="overwrite", key="k").version
    append(root, 3)
    again = mc.write(data.filter(pc.field("id") == 2), root, mode="overwrite", key="k")
    assert (again.kind, again.version) == ("already_committed", version) and ids(root) == [2, 3]


def test_rows_that_are_appended_as_having_read_the_table_conflict(root: str) -> None:
    """As an INSERT through a view: Spark does not tell whether its rows come from there. [SP41] [CF16]"""
    table = session(open_store(root))
    marks = arrow_marks(mc.Table(root).dataset().schema.metadata)

    def insert(said: int | None = None) -> Any:
        job = Job(table, based_on=said)
        job.marks, job.appends_what_it_read = [*marks], True
        job.write(rows(8))
        return job.commit_now()

    assert insert().committed
    with pytest.raises(CommitConflictError, match=r"\(append\) has read day=2013") as raised:
        insert()
    assert raised.value.rule == "read_partition_was_touched"
    assert insert(3).committed, "what is said takes its place, and an append commutes"
    assert ids(root) == [1, 2, 8, 8]
    assert error_of(insert(4), root) is None
    job = Job(table)
    job.appends_what_it_read = True
    job.write(rows(9))
    append(root, 10)
    assert job.commit().committed, "rows that tell no version have read nothing"


def test_a_recoverable_append_that_has_read_the_table_is_a_new_job_after_its_conflict(root: str) -> None:
    """Under the old job's id it would conflict with the same commit for ever. [AB6] [CF16] [CF17]"""
    table = session(open_store(root))

    def insert(*, append_between: bool) -> Any:
        job = Job(table, key="K", fingerprint="the same rows", recoverable=True)
        job.marks, job.appends_what_it_read = [*arrow_marks(mc.Table(root).dataset().schema.metadata)], True
        job.write(rows(8))
        if append_between:
            append(root, 3)
        return job.commit_now()

    with pytest.raises(CommitConflictError, check=lambda error: error.rule == "read_partition_was_touched"):
        raise error_of(insert(append_between=True), root) or AssertionError("committed")
    assert insert(append_between=False).committed and ids(root) == [1, 2, 3, 8]


def test_marks_of_other_tables_and_copies_are_passed_over(root: str, tmp_path: Any) -> None:
    """[CF17]"""
    other = str(tmp_path / "other")
    data = table_with(rows(5), other, partition_by="day").dataset().to_table()
    append(root, 3)
    assert mc.write(data, root, mode="overwrite").committed and ids(root) == [5]
    mine, url = "a" * 16, "file:///a"
    assert lowest_version([mark_of(mine, url, 7), mark_of(mine, url, 5)], mine, url) == 5
    strangers = [mark_of("b" * 16, url, 1), mark_of(mine, "file:///b", 2), "", "x", mark_of(mine, url, 3) + "\n", mark_of(mine, url, 0)]
    assert lowest_version(strangers, mine, url) is None
    assert lowest_version([*strangers, mark_of(mine, url, 9)], mine, url) == 9
    assert lowest_version([mark_of(mine, url, int("9" * 18))], mine, url) == int("9" * 18)
    assert lowest_version([mark_of(mine, url, 1) + "0" * zeros for zeros in (18, 5000)], mine, url) is None, "no version is so high"
    assert mark_of(mine, url, 7) == f"{mine}-49f9160320a550b5-v7", "other releases and other programs read it"
    assert arrow_marks({b"manifestcommit.read": b"\xff"}) == ("\ufffd",) and arrow_marks(None) == ()


def test_gc_keeps_the_history_that_a_prepared_job_is_based_on(root: str) -> None:
    """Not only from its birth on. [AB5] [CF17]"""
    version = append(root, 7)
    mc.Table(root).tag("a commit that changes no row")
    with mc.begin(root, based_on=version) as job:
        job.overwrite(None)
        job.write(rows(8), partition_by="day")
        prepared = job.prepare()
    report = mc.gc(root, grace="0s", keep_for="0s", keep_versions=1)
    assert isinstance(report, mc.GcReport) and report.fence <= version
    assert mc.commit(root, prepared).kind == "committed" and ids(root) == [8]


APPEND = "import sys, pyarrow, manifestcommit; manifestcommit.write(pyarrow.table({'id': [3], 'day': ['x']}), sys.argv[1])"


@pytest.mark.thorough
@pytest.mark.parametrize("lost", ["metadata", "polars", "kept", "given", "own commit", "older version", "append"])
def test_rows_that_lost_their_version_are_warned_of(root: str, caplog: pytest.LogCaptureFixture, lost: str) -> None:
    """Where another process has committed since they were read: only then something is lost. [CF17]"""
    data = mc.Table(root).to_arrow(version=2 if lost == "older version" else None)
    if lost == "own commit":
        append(root, 3)
    else:
        subprocess.run([sys.executable, "-c", APPEND, root], check=True)
    if lost == "polars":
        data = pl.from_arrow(data).to_arrow()  # type: ignore[union-attr]  # a frame
    elif lost != "kept":
        data = data.replace_schema_metadata()
    conflict: Any = pytest.raises(CommitConflictError) if lost in ("kept", "given") else contextlib.nullcontext()
    with conflict:
        mc.write(data, root, mode="append" if lost == "append" else "overwrite", based_on=3 if lost == "given" else None)
    warned = [each.getMessage() for each in caplog.records if "this process has read version" in each.getMessage()]
    assert len(warned) == (lost in ("metadata", "polars"))
    assert all("has read version 3, and others have committed since" in each and "Pass based_on=3" in each for each in warned)
