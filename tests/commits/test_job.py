"""A job from begin to outcome, over a store in memory: keys, watermarks, overwrites, added files. [KY1]-[KY3] [KY5] [WM2] [PT3] [AF1]"""

import datetime as dt
import random
import re
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.sizes import SetBudgets
from tests.kit.tables import begin, check_table, job_on, job_with, memory, positions, read_ids, rows, session, write

import manifestcommit as mc
from manifestcommit.commits.two_phase import commit_prepared
from manifestcommit.format import object_names
from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import open_head
from manifestcommit.scan import planning
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore, FaultCall, FaultStore


# --- keys ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("what", ["nothing", "overwrite", "advance", "first"])
@pytest.mark.parametrize("fingerprint", [None, "f"])
@pytest.mark.parametrize("way", ["commit", "prepare"])
def test_a_rerun_that_declares_nothing_is_that_rerun(store: MemoryStore, what: str, fingerprint: str | None, way: str) -> None:
    """`if not job.already_committed:` around the work: whatever the first run declared, and whichever phase follows. [KY3]"""
    job = begin(store, "k", fingerprint)
    if what == "overwrite":
        job.overwrite(None)
    elif what == "advance":
        job.advance("s", 0, 5)
    elif what == "first":
        job._first = "error"
    job.write(rows([1]))
    first = job.commit()
    again = begin(store, "k", fingerprint)
    assert again.already_committed
    again.note("a note is no declaration")
    outcome = again.commit() if way == "commit" else commit_prepared(session(store), again.prepare())
    assert (outcome.kind, outcome.version) == ("already_committed", first.version) and read_ids(store) == [1]


def test_a_rerun_that_declares_nothing_has_its_fingerprint_compared(store: MemoryStore) -> None:
    """It was said when the work began, and says that the input is another. [KY2] [KY3]"""
    write(store, rows([1]), key="k", fingerprint="f")
    for other in ("g", None):
        with pytest.raises(mc.errors.KeyReusedError, match="already_committed"):
            begin(store, "k", other).commit()
    late = begin(store, "k", "f")
    late.advance("s", 0, 5)
    with pytest.raises(mc.errors.KeyReusedError):
        late.commit()


@pytest.mark.parametrize("key", ["__unknown__", "a/b", "é🦆", " ", '"', "\x01", "x" * 10_000, "null"])
def test_any_text_is_a_key(store: MemoryStore, key: str) -> None:
    """[KY1] [OB12]"""
    assert write(store, rows([1]), key=key, watermarks={key: (key, key + "'")}).kind == "committed"
    assert write(store, rows([1]), key=key, watermarks={key: (key, key + "'")}).already_committed
    write(store, rows([2]))
    assert write(store, rows([1]), key=key, watermarks={key: (key, key + "'")}).version == 2
    assert positions(store) == {key: key + "'"} and read_ids(store) == [1, 2]


def test_of_two_jobs_with_one_key_one_commits(store: MemoryStore) -> None:
    """Both began before either was done. [KY5]"""
    write(store, rows([0]))
    first, second = begin(store, "k"), begin(store, "k")
    first.write(rows([1]))
    second.write(rows([2]))
    assert second.commit().kind == "committed"
    outcome = first.commit()
    assert (outcome.kind, outcome.version) == ("already_committed", 3)
    assert read_ids(store) == [0, 2]
    check_table(store)


# --- watermarks ---------------------------------------------------------------------------------------------------------
def test_a_winner_that_consumed_the_same_range_is_an_overlap_not_twice_the_rows(store: MemoryStore) -> None:
    """iceberg#17340: a watermark was overwritten instead of advanced, and 111,927 rows were there twice. [WM2]"""
    write(store, rows([0]), watermarks={"s": (0, 5)})
    first, second = begin(store), begin(store)
    for number, job in enumerate((first, second)):
        job.advance("s", 5, 9)
        job.write(rows([10 + number]))
    first.commit()
    with pytest.raises(mc.errors.WatermarkOverlapError):
        second.commit()
    assert read_ids(store) == [0, 10] and positions(store) == {"s": 9}


def test_a_gap_that_closes_while_the_job_runs_is_none(store: MemoryStore) -> None:
    """[WM2]"""
    write(store, rows([0]), watermarks={"s": (0, 5)})
    late = begin(store)
    late.advance("s", 7, 9)
    late.write(rows([7]))
    write(store, rows([5]), watermarks={"s": (5, 7)})
    late.commit()
    assert read_ids(store) == [0, 5, 7] and positions(store) == {"s": 9}


# --- jobs without rows, without a table, without a schema ------------------------------------------------------------------
def test_a_job_without_rows_does_not_meet_a_partitioning_that_came_meanwhile(store: MemoryStore) -> None:
    """It lays out no file, so there is nothing that another partitioning could contradict. [CF2] [CF9] [CM16]"""
    early = begin(store, "k")
    early.advance("s", 0, 5)
    assert early.id  # the table exists from here on, without columns
    write(store, rows([1], day="a"), partition_by=["day"])
    assert early.commit().committed
    assert positions(store) == {"s": 5} and read_ids(store) == [1]


def test_a_job_commits_once_and_not_after_it_was_given_up(store: MemoryStore) -> None:
    """[AB1] [CM10]"""
    job = job_with(store, rows([1]))
    job.commit()
    with pytest.raises(mc.errors.UsageError):
        job.commit()
    given_up = job_with(store, rows([2]))
    given_up.abort()
    with pytest.raises((mc.errors.UsageError, mc.errors.JobAbortedError)):
        given_up.commit()
    assert read_ids(store) == [1]


def test_columns_of_a_first_write_that_commits_nothing_bind_nobody(store: MemoryStore) -> None:
    """It may have died; the next one writes other columns, in other partitions, and the first then conflicts. [CM13] [CF8]"""
    maker, other = begin(store), begin(store)
    maker.write(pa.table({"id": ["text"]}))
    assert open_head(store).snapshot.provisional
    other.write(rows([1], day="a"), partition_by=["day"])
    other.commit()
    assert read_ids(store) == [1] and not open_head(store).snapshot.provisional
    with pytest.raises(mc.errors.CommitConflictError) as caught:
        maker.commit()
    assert caught.value.rule == "schema" and read_ids(store) == [1]
    check_table(store)


@pytest.mark.parametrize("moment", [3, 4])
def test_a_table_that_appears_while_a_first_write_looks_around_is_joined(store: MemoryStore, moment: int) -> None:
    """Its data files are no "folder of plain files": they are the table's. [CM13] [LY6]"""

    def other(call: FaultCall) -> None:
        if call.number == moment:
            write(store, rows([2], day="b"), partition_by=["day"])

    try:
        outcome = write(FaultStore(store, on_call=other), rows([1], day="a"), partition_by=["day"])
    except mc.errors.NotATableError as error:
        pytest.fail(f"the other writer's table was taken for a folder of files: {error}")
    assert outcome.committed and read_ids(store) == [1, 2]


# --- overwrites ---------------------------------------------------------------------------------------------------------
def test_an_overwrite_of_a_table_that_has_no_columns_yet_waits_for_them(store: MemoryStore) -> None:
    """[PT3] [CM13]"""
    assert begin(store).id
    outcome = write(store, rows([1], day="a"), partition_by=["day"], overwrite={"day": "a"}, conflict="fail")
    assert outcome.committed and read_ids(store) == [1]


@pytest.mark.parametrize("year", [-5000, 12000])
def test_a_date_that_python_cannot_hold_partitions_a_table_that_goes_on(store: MemoryStore, set_budgets: SetBudgets, year: int) -> None:
    """If its manifest cannot be described, no commit ever succeeds again once the head is full. [PT1] [SC7] [CM12]"""
    days = (year - 1970) * 365
    data = pa.table({"id": pa.array([1, 2], pa.int64()), "day": pa.array([days, 5], pa.int32()).cast(pa.date32())})
    write(store, data, partition_by=["day"])
    set_budgets(inline_entry_bytes=0)
    write(store, data.slice(1).set_column(0, "id", pa.array([3], pa.int64())))
    write(store, data.slice(1).set_column(0, "id", pa.array([4], pa.int64())), overwrite={"day": dt.date(1970, 1, 6)})
    assert read_ids(store) == [1, 4]
    check_table(store)


# --- files that something else wrote ----------------------------------------------------------------------------------------
def put_parquet(store: Store, path: str, data: pa.Table) -> None:
    output = store.create_output(path)
    pq.write_table(data, output)
    output.close()


@pytest.mark.parametrize("spilled", [False, True])
def test_a_file_that_is_live_is_not_added_again(store: MemoryStore, set_budgets: SetBudgets, spilled: bool) -> None:
    """Its rows would be there twice; also where a manifest lists it. [CF10] [IV6]"""
    if spilled:
        set_budgets(inline_entry_bytes=0)
    write(store, rows([1]))
    put_parquet(store, "from/a b%2F.parquet", rows([2]))
    with begin(store) as job:
        job.add_files(["from/a b%2F.parquet"])
    assert read_ids(store) == [1, 2]
    assert bool(open_head(store).snapshot.manifests) == spilled
    written = session(store)
    own = next(p for p in planning.entries_table(written, written.open().snapshot).column("path").to_pylist() if not p.startswith("from/"))
    for path in ("from/a b%2F.parquet", own):
        again = begin(store)
        again.add_files([path])
        with pytest.raises(mc.errors.CommitConflictError, match=re.escape(path), check=lambda error: error.rule == "path_is_live"):
            again.commit()
    with pytest.raises(mc.errors.UsageError):
        begin(store).add_files(["from/a b%2F.parquet", "from/a b%2F.parquet"])
    assert read_ids(store) == [1, 2]
    check_table(store)


def test_of_two_jobs_that_add_one_file_one_commits(store: MemoryStore) -> None:
    """[CF10]"""
    write(store, rows([1]))
    put_parquet(store, "x.parquet", rows([2]))
    jobs = [begin(store), begin(store)]
    for job in jobs:
        job.add_files(["x.parquet"])
    jobs[0].commit()
    with pytest.raises(mc.errors.CommitConflictError, match="path_is_live"):
        jobs[1].commit()
    assert read_ids(store) == [1, 2]


# --- schemas ---------------------------------------------------------------------------------------------------------------
def test_a_job_that_creates_its_table_each_time_outlives_changes_of_columns(tmp_path: Path) -> None:
    """`exist_ok`: there is such a table, and rows of the given columns fit it. [CM13]"""
    path, given = str(tmp_path / "t"), pa.schema([("id", pa.int32()), ("day", pa.string())])
    table = mc.create_table(path, given, partition_by="day", exist_ok=True)
    table.add_column("more", "string")
    table.widen_column("id", "long")
    with pytest.raises(mc.errors.SchemaMismatchError, match="exist_ok=True"):
        mc.create_table(path, given, partition_by="day")
    version = table.version
    for same in (given, pa.schema([given.field(1), given.field(0)])):
        assert mc.create_table(path, same, partition_by="day", exist_ok=True).version == version
    for other, partition_by in (
        (pa.schema([*given, ("other", pa.string())]), "day"),
        (pa.schema([("id", pa.string()), ("day", pa.string())]), "day"),
        (given, None),
    ):
        with pytest.raises(mc.errors.SchemaMismatchError, match="is a table already"):
            mc.create_table(path, other, partition_by=partition_by, exist_ok=True)
    assert mc.Table(path).version == version


def test_jobs_that_begin_at_once_have_ids_of_their_own(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPARK-33402: two jobs of one second shared an id. Neither the clock nor a program's own seed makes it. [LY4]"""
    write(store, rows([1]))
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    ids = set()
    for _ in range(50):
        random.seed(7)
        ids.add(job_on(TableContext(store), key=None, fingerprint=None).id)
    assert len(ids) == 50 and len({object_names.parse_job_id(each).birth for each in ids}) == 1


def test_to_begin_makes_no_table_and_the_id_is_known_with_it() -> None:
    """[LY4] [CM13]"""
    store = CountingStore(memory())
    job = Job(TableContext(store), key="k")
    assert job.job_id == "" and not job.already_committed and "put_if_absent" not in store.requests() and not list(store.list(""))
    made = job.id
    assert made and job.job_id == made and open_head(store).version == object_names.parse_job_id(made).birth == 1
    before = store.requests()
    assert job.id == made and store.requests() == before


def test_a_job_that_could_not_look_for_its_key_begins_when_it_is_asked_again() -> None:
    """The table was made, and the list of earlier attempts failed: the job has no id without a look for them. [AB6] [CM13]"""
    failed = []

    def beat(call: FaultCall) -> None:
        if call.kind == "list" and call.name == object_names.key_marks_prefix("k") and not failed:
            failed.append(call.number)
            raise mc.errors.StoreError("no answer")

    store = FaultStore(memory(), on_call=beat)
    job = Job(TableContext(store), key="k", fingerprint="f", recoverable=True)
    with pytest.raises(mc.errors.StoreError, match="no answer"):
        _ = job.id
    assert failed and job.job_id == ""
    assert job.id == job.job_id != "" and open_head(store).version == 1


# --- what it costs -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("files", [1, 100])
def test_a_warm_commit_is_one_create_one_list_and_one_put(store: MemoryStore, files: int) -> None:
    """[CM11] [IV10]"""
    write(store, rows([0], day="x"), partition_by=["day"])
    counting = CountingStore(store)
    job = begin(counting, "k")
    assert counting.requests() == {"get": 2, "list": 1}, "opening"
    job.advance("s", 0, 1)
    job.write(pa.concat_tables([rows([number], day=f"{number}") for number in range(files)]))
    assert counting.requests(under="day=") == {"output": files}
    counting.reset()
    assert job.commit().committed
    assert counting.requests() == {"put_if_absent": 1, "list": 1, "put": 1}
    assert counting.requests(under=object_names.HINT) == {"put": 1}
