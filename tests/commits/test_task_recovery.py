"""Recoverable jobs: a rerun goes on under the old job's id and takes over what was finished; each row once, whoever runs. [AB6] [LY5]"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator, ValidationError
from referencing import Registry, Resource
from tests.kit.tables import check_table, clone, job_on, memory, put_version, read, read_ids, rewind, rollback, rows, session, unread, write

import manifestcommit as mc
from manifestcommit.commits.commit_loop import create_table
from manifestcommit.commits.two_phase import commit_prepared, give_up, list_jobs
from manifestcommit.files.writer import WritePlan
from manifestcommit.format import codec, object_names
from manifestcommit.format.entries import ManifestRef, SourceRange
from manifestcommit.format.fields import NO_COLUMNS
from manifestcommit.format.snapshot import Constraint
from manifestcommit.job import Job
from manifestcommit.log.version_chain import open_head
from manifestcommit.store import LocalStore, Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore, Died, FaultCall, FaultStore

HOSTILE_KEY = "a/../key\n\"'日本% +=#🦆"
SCHEMAS = Path(__file__).resolve().parents[2] / "spec" / "v1" / "schemas"


def table(store: MemoryStore | None = None) -> MemoryStore:
    """Version 2 has the id 1 in day a."""
    store = store or memory()
    write(store, rows([1], day="a"), partition_by=["day"])
    return store


@pytest.fixture
def store() -> MemoryStore:
    return table()


def begin(store: Store, key: str = HOSTILE_KEY, fingerprint: str = "the same") -> Job:
    return job_on(session(store), key=key, fingerprint=fingerprint, recoverable=True)


def written(store: Store, *ids: int, size: int | None = None, **options: Any) -> Job:
    """A recoverable job that has written these rows, and whose process ends here. size: of files, which makes it another write."""
    job = begin(store, **options)
    job.write(rows(ids, day="a"), target_file_size=size)
    return job


def failing(data: pa.Table) -> pa.RecordBatchReader:
    """Data whose source breaks after its first batch."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from data.to_batches()
        raise ZeroDivisionError

    return pa.RecordBatchReader.from_batches(data.schema, batches())


def left(store: Store, kind: str = "") -> list[str]:
    """The names of the objects that jobs have left for others."""
    return sorted(info.name for info in store.list(object_names.JOBS) if f"/{kind}" in info.name)


# --- a rerun goes on ----------------------------------------------------------------------------------------------------
def test_a_rerun_goes_on_under_the_old_id_and_reads_nothing_that_was_finished(store: MemoryStore) -> None:
    """[AB6] [LY5] [IV3]"""
    lost = written(store, 7, 8)
    files = {info.name for info in store.list("day=")}
    assert read_ids(store) == [1], "what is finished is as invisible as before"
    assert [each.state for each in list_jobs(session(store))] == ["running"]
    rerun = begin(store)
    assert rerun.id == lost.id
    rerun.write(unread(rows([7, 8], day="a")))
    outcome = rerun.commit()
    assert (outcome.kind, outcome.job_id) == ("committed", lost.id)
    assert outcome.metrics is not None and outcome.metrics.rows_read == outcome.metrics.rows_committed == 2
    assert read_ids(store) == [1, 7, 8] and {info.name for info in store.list("day=")} == files
    assert [each.state for each in list_jobs(session(store))] == ["committed"]
    check_table(store)


@pytest.mark.parametrize("recoverable", [True, False])
def test_what_is_left_by_an_exception_is_there_for_the_rerun(recoverable: bool, store: MemoryStore) -> None:
    """[AB1] [AB6]"""
    with contextlib.suppress(ZeroDivisionError), job_on(session(store), key="k", fingerprint="f", recoverable=recoverable) as job:
        job.write(rows([7], day="a"))
        raise ZeroDivisionError
    assert (begin(store, "k", "f").id == job.id) is recoverable
    assert [name.split("/")[2:] for name in left(store, "key-")] == ([[ANY, job.id]] if recoverable else [])
    assert len(left(store, "task-")) == recoverable
    assert job.metrics.kind == ("left" if recoverable else "aborted")


def test_it_needs_a_key_and_a_fingerprint() -> None:
    """Nothing else tells whether the rows of a rerun are the same. [AB6]"""
    store = FaultStore(memory())
    with pytest.raises(mc.errors.UsageError, match="needs a key"):
        job_on(session(store), key=None, fingerprint="f", recoverable=True)
    with pytest.raises(mc.errors.UsageError, match="needs a fingerprint: a text that names all that decides the rows"):
        job_on(session(store), key="k", fingerprint=None, recoverable=True)
    assert store.count == 0


def test_the_public_calls_are_recoverable(tmp_path: Path) -> None:
    """[AB6]"""
    root = str(tmp_path / "a b%20c")
    with contextlib.suppress(ZeroDivisionError), mc.begin(root, key="k", fingerprint="f", recoverable=True) as job:
        job.write(rows([7]))
        raise ZeroDivisionError
    outcome = mc.write(unread(rows([7])), root, key="k", fingerprint="f", recoverable=True)
    assert outcome.job_id == job.id and read_ids(LocalStore(root)) == [7]


def test_what_it_costs() -> None:
    """One list more to begin; for each write a list, and a get of what is finished, or a create of what is finished now. [AB6]"""
    counting = CountingStore(table())
    job = begin(counting)
    begun = counting.requests()
    job.write(rows([7], day="a"))
    job.commit()
    whole = counting.requests()
    plain = CountingStore(table())
    usual = job_on(session(plain), key="k", fingerprint="f")
    assert begun["list"] == plain.requests()["list"] + 1
    usual.write(rows([7], day="a"))
    usual.commit()
    more = {kind: count - plain.requests().get(kind, 0) for kind, count in whole.items()}
    assert {kind: count for kind, count in more.items() if count} == {"list": 2, "put_if_absent": 2}


# --- only the same work ---------------------------------------------------------------------------------------------------
PLANS: dict[str, Callable[[WritePlan], WritePlan]] = {
    "schema": lambda plan: msgspec.structs.replace(plan, schema=msgspec.structs.replace(plan.schema, fields=plan.schema.fields[:1])),
    "partitioning": lambda plan: msgspec.structs.replace(plan, partition_by=()),
    "size of files": lambda plan: msgspec.structs.replace(plan, target_file_size=plan.target_file_size + 1),
    "bounds": lambda plan: msgspec.structs.replace(plan, bounds_columns=plan.bounds_columns + 1),
    "Bloom filters": lambda plan: msgspec.structs.replace(plan, bloom_columns=(plan.schema.fields[0].id,)),
    "constraints": lambda plan: msgspec.structs.replace(
        plan, constraints={"c": Constraint(id="0" * 16, condition="id > 0", columns={"id": 1})}
    ),
    "sources": lambda plan: msgspec.structs.replace(plan, sources=(SourceRange(source="s", start=0, end=1),)),
    "job": lambda plan: msgspec.structs.replace(plan, job=plan.job[:-1] + ("0" if plan.job[-1] != "0" else "1")),
}


def test_every_part_of_a_write_is_in_its_name() -> None:
    """But the root's spelling, since a table may be reached another way by a rerun, and that others may run the job. [AB6]"""
    assert len(PLANS) + 2 == len(WritePlan.__struct_fields__), "what is added to a plan is tried here, and named as added later"
    store = table()
    job = begin(store)
    recovery = job.recovery
    assert recovery is not None
    plan = job.plan_write(_schema(store))
    name = recovery.work(plan, tasks=4, same="s").name
    assert plan.shared
    for other in ({"url": "s3://else/where"}, {"shared": False}):
        assert recovery.work(msgspec.structs.replace(plan, **other), tasks=4, same="s").name == name
    others = [recovery.work(each(plan), tasks=4, same="s").name for each in PLANS.values()]
    others += [recovery.work(plan, tasks=5, same="s").name, recovery.work(plan, tasks=4, same="S").name]
    job.plan_write(_schema(store))
    others.append(recovery.work(plan, tasks=4, same="s").name)  # the second write of the job
    assert len({name, *others}) == 1 + len(others)
    assert len(name) == 32 and set(name) <= set("0123456789abcdef")


def _schema(store: Store) -> Any:
    return open_head(store).snapshot.schema


def test_another_fingerprint_takes_nothing_over_and_is_another_declaration(store: MemoryStore) -> None:
    """[AB6] [KY2]"""
    lost = written(store, 7)
    rerun = written(store, 8, fingerprint="something else")
    assert rerun.id == lost.id and len(left(store, "task-")) == 2
    rerun.commit()
    assert read_ids(store) == [1, 8]
    with pytest.raises(mc.errors.KeyReusedError):
        lost.commit()
    with pytest.raises(mc.errors.KeyReusedError):
        begin(store).commit()


def test_new_columns_of_two_writes_of_a_job_have_ids_of_their_own_in_every_run(store: MemoryStore) -> None:
    """At the same place of their rows; what one write brings says nothing of the ids of another's. [SC1] [AB6]"""
    x, y, none = rows([7], day="a", x=1), rows([8], day="a", y="b"), rows([7], day="a")
    jobs = []
    for writes in ((x, y), (x, y), (none, y)):
        jobs.append(begin(store))
        for each in writes:
            jobs[-1].write(each, merge_schema=True)
    ids = [[edit.id for edit in job.change().edits] for job in jobs]
    assert ids[0] == ids[1] and len(set(ids[0])) == 2 and ids[2] == ids[0][1:]
    assert len(left(store, "task-")) == 4, "the second took the first's files over"
    jobs[1].commit()
    found = read(store).filter(pa.compute.field("id") > 1).sort_by("id").to_pylist()
    assert found == [{"id": 7, "day": "a", "x": 1, "y": None}, {"id": 8, "day": "a", "x": None, "y": "b"}]
    check_table(store)


# --- two drivers at once --------------------------------------------------------------------------------------------------
def test_whoever_comes_second_lists_the_files_of_the_first(store: MemoryStore) -> None:
    """Both have looked before either had finished; the second's own file stays unlisted. [AB6] [SP2]"""
    held: list[Job] = []

    def between(call: FaultCall) -> None:
        if call.kind == "put_if_absent" and "/task-" in call.name and not held:
            held.append(written(store, 7))

    slow = FaultStore(store, on_call=between)
    written(store, 1, fingerprint="a mark to find")
    job = begin(slow)
    job.write(rows([7], day="a"))
    (quick,) = held
    assert job.id == quick.id
    assert job.change().add == quick.change().add
    assert sum(job.id in info.name for info in store.list("day=")) == 3, "its own is there, and of no use"
    assert {job.commit().version, quick.commit().version} == {3} and read_ids(store) == [1, 7]


# --- jobs that are not gone on with ---------------------------------------------------------------------------------------
def committed(store: Store, job: Job) -> None:
    """By its own driver, whose key was dropped since: a rewind does that."""
    job.commit()
    head = open_head(store)
    put_version(store, head, keys={})


def given_up(store: Store, job: Job) -> None:
    assert give_up(session(store), job.id).kind == "aborted"


def fenced(store: Store, job: Job) -> None:
    head = open_head(store)
    put_version(store, head, fence=head.version + 1)


def renamed(name_of: Callable[[Store, str], str]) -> Callable[[Store, Job], None]:
    """Its tasks say another job."""

    def rename(store: Store, job: Job) -> None:
        names = left(store)
        for name in names:
            store.put(name.replace(job.id, name_of(store, job.id)), store.get(name))
        store.delete(names)

    return rename


FATES: dict[str, Callable[[Store, Job], object]] = {
    "committed": committed,
    "given_up": given_up,
    "fenced": fenced,
    "prepared": lambda store, job: job.prepare(),
    "unmarked": lambda store, job: store.delete(left(store, "key-")),
    "of_another_table": renamed(lambda store, job: job.replace(open_head(store).snapshot.table_id, "0" * 16)),
    "of_a_later_version": renamed(lambda store, job: "v99" + job[job.index("-") :]),
    "of_no_job": renamed(lambda store, job: "v2-no job"),
}


@pytest.mark.parametrize("fate", FATES)
def test_a_job_that_is_settled_fenced_prepared_or_none_is_left_alone(fate: str) -> None:
    """Its finished tasks are not taken over under another id either: gc may part them from their commit. [AB6]"""
    store = table()
    old = written(store, 7)
    FATES[fate](store, old)
    before = read_ids(store)
    rerun = begin(store)
    head = open_head(store)
    assert rerun.id != old.id and object_names.parse_job_id(rerun.id) == object_names.JobName(
        birth=head.version, table_id=head.snapshot.table_id
    )
    rerun.write(rows([8], day="a"))
    rerun.commit()
    assert read_ids(store) == sorted([*before, 8])


@pytest.mark.usefixtures("tight")
def test_a_job_whose_end_is_spilled_is_left_alone(store: MemoryStore) -> None:
    """[AB6] [CM1]"""
    old = written(store, 7)
    given_up(store, old)
    for number in range(6):
        write(store, rows([100 + number], day="b"))
    assert old.id not in open_head(store).snapshot.recent_jobs, "or this tests nothing"
    assert begin(store).id != old.id


def test_the_youngest_attempt_is_gone_on_with(store: MemoryStore) -> None:
    """[AB6]"""
    written(store, 7)
    old = left(store, "key-")[0]
    kept = store.get(old)
    store.delete([old])
    write(store, rows([2], day="b"))
    young = written(store, 7)
    store.put(old, kept)
    assert begin(store).id == young.id


# --- giving up ------------------------------------------------------------------------------------------------------------
def test_a_recoverable_job_can_be_prepared(store: MemoryStore) -> None:
    """[AB3] [AB6]"""
    written(store, 7)
    rerun = begin(store)
    rerun.write(unread(rows([7], day="a")))
    job = rerun.prepare()
    assert read_ids(store) == [1] and [each.state for each in list_jobs(session(store))] == ["prepared"]
    assert commit_prepared(session(store), job).committed and read_ids(store) == [1, 7]
    assert begin(store).already_committed


# --- a conflict that would not end ----------------------------------------------------------------------------------------
def replacing(store: Store, *ids: int) -> Job:
    job = begin(store)
    job.overwrite({"day": "a"})
    job.write(rows(ids, day="a"))
    return job


def test_after_a_conflict_about_its_partitions_the_rerun_is_a_new_job(store: MemoryStore) -> None:
    """Its birth, since which nobody may have written there, stays what it is. Only its mark goes. [CF3] [AB6]"""
    old = replacing(store, 7)
    write(store, rows([2], day="a"))
    before = left(store)
    with pytest.raises(mc.errors.CommitConflictError, check=lambda error: error.rule == "partition_was_touched"):
        replacing(store, 7).commit()
    assert left(store) == [name for name in before if "/key-" not in name]
    rerun = replacing(store, 7)
    assert rerun.id != old.id and rerun.commit().committed and read_ids(store) == [7]


def set_back(store: Store, what: str) -> None:
    """Somebody does the work of the key, and it is undone: by a rewind of its source, or by a rollback, which drops the key."""
    before = open_head(store).version
    if what == "source":
        write(store, rows([2], day="b"), watermarks={"s": (0, 5)})
        assert rewind(session(store), "s", 0, reason="x").committed
    else:
        write(store, rows([2], day="b"), key=HOSTILE_KEY)
        assert rollback(session(store), before, reason="x").dropped_keys == (HOSTILE_KEY,)


@pytest.mark.parametrize("what", ["source", "key"])
def test_after_a_conflict_with_what_was_set_back_no_mark_of_the_attempt_is_left(what: str, store: MemoryStore) -> None:
    """It could never commit; nobody shall wait for it. [WM6] [KY7] [AB6]"""
    old = begin(store)
    old.advance("s", 0, 5)
    old.write(rows([7], day="a"))
    if what == "key":
        write(store, rows([3], day="b"), watermarks={"s": (0, 0)})  # so that the source is known, and stays where it is
    set_back(store, what)
    assert [each.job for each in list_jobs(session(store))] == [old.id]
    with pytest.raises(mc.errors.CommitConflictError, check=lambda error: error.rule == f"{what}_was_set_back"):
        old.commit()
    assert left(store, "key-") == []
    rerun = written(store, 7)
    assert rerun.id != old.id and rerun.commit().committed


@pytest.mark.parametrize("what", ["source", "key"])
def test_an_attempt_that_began_right_after_a_set_back_is_gone_on_with_and_none_from_before(what: str, store: MemoryStore) -> None:
    """[WM6] [KY7] [AB6]"""
    old = written(store, 7)
    set_back(store, what)
    young = written(store, 7)
    assert young.id != old.id and object_names.parse_job_id(young.id).birth == open_head(store).version
    rerun = begin(store)
    assert rerun.id == young.id
    rerun.write(unread(rows([7], day="a")))
    assert rerun.commit().committed and read_ids(store).count(7) == 1
    check_table(store)


def test_a_mark_that_cannot_be_removed_costs_another_conflict_and_nothing_else() -> None:
    """[AB6]"""
    base = table()
    replacing(base, 7)
    write(base, rows([2], day="a"))
    calls = FaultStore(clone(base))
    with pytest.raises(mc.errors.CommitConflictError):
        replacing(calls, 7).commit()
    (number,) = (call.number for call in calls.calls if call.kind == "delete")
    store = clone(base)
    with pytest.raises(mc.errors.CommitConflictError):
        replacing(FaultStore(store, {number: "refused"}), 7).commit()
    with pytest.raises(mc.errors.CommitConflictError):
        replacing(store, 7).commit()
    assert replacing(store, 7).commit().committed and read_ids(store) == [7]


@pytest.mark.parametrize("day", ["b", None])
def test_other_conflicts_keep_the_mark(day: str | None, store: MemoryStore) -> None:
    """A gap may close; then the rerun goes on. [WM2] [AB6]"""
    old = begin(store)
    old.advance("s", 0, 5)
    write(store, rows([2], day=day), watermarks={"s": (0, 3)})
    old.write(rows([7], day="a"))
    with pytest.raises(mc.errors.ManifestCommitError, match="is at"):
        old.commit()
    assert len(left(store, "key-")) == 1


# --- crashes and lost answers -----------------------------------------------------------------------------------------------
def run(store: Store) -> None:
    written(store, 7).commit()


@pytest.mark.thorough
def test_a_crash_at_any_call_and_the_rerun_is_exact() -> None:
    """And from the finished task on it reads nothing again. [IV3] [AB6]"""
    base = table()
    healthy = FaultStore(clone(base))
    run(healthy)
    finished = next(call.number for call in healthy.calls if "/task-" in call.name and call.kind == "put_if_absent")
    for number in range(1, healthy.count + 1):
        for fault in ("dies_before", "dies_after"):
            store = clone(base)
            with contextlib.suppress(Died):
                run(FaultStore(store, {number: fault}))
            rerun = begin(store)
            adopts = rerun.already_committed or number > finished or (number, fault) == (finished, "dies_after")
            rerun.write(unread(rows([7], day="a")) if adopts else rows([7], day="a"))
            assert rerun.commit().committed and read_ids(store) == [1, 7], (number, fault)
            check_table(store)


def test_a_create_without_an_answer_that_another_attempt_won_yields_the_others_files(store: MemoryStore) -> None:
    """[AB6]"""
    written(store, 1, fingerprint="a mark to find")
    others: list[Job] = []

    def between(call: FaultCall) -> None:
        if call.kind == "put_if_absent" and "/task-" in call.name and not others:
            others.append(written(store, 7))

    healthy = FaultStore(clone(store))
    written(healthy, 7)
    (number,) = (call.number for call in healthy.calls if "/task-" in call.name and call.kind == "put_if_absent")
    mine = written(FaultStore(store, {number: "request_lost"}, on_call=between), 7)
    assert mine.change().add == others[0].change().add


def test_a_write_that_failed_and_is_repeated_is_not_taken_for_the_next_one(store: MemoryStore) -> None:
    """The rerun, in which nothing fails, has the rows of both writes, each once. [AB6] [IV3]"""
    for died in (True, False):
        job = begin(store)
        for first in (10, 20):
            if died and first == 10:
                with pytest.raises(ZeroDivisionError):
                    job.write(failing(rows([first], day="a")))
            job.write(rows([first], day="a"))
    assert job.commit().committed
    assert read_ids(store) == [1, 10, 20]


def test_files_that_were_added_first_do_not_count_as_a_write() -> None:
    """A table without columns gets them from the first run's files; the rerun finds them there. [AB6] [AF1]"""
    store = memory()
    create_table(session(store), schema=NO_COLUMNS, partition_by=(), properties={})
    output = store.create_output("given.parquet")
    pq.write_table(rows([1]), output)
    output.close()
    for _ in range(2):
        job = begin(store)
        job.add_files(["given.parquet"])
        for first in (10, 20):
            job.write(rows([first]))
    assert len(left(store, "task-")) == 2, "the rerun took them over"
    assert job.commit().committed and read_ids(store) == [1, 10, 20]


def test_adopted_files_that_are_gone_are_told_and_nothing_is_committed(store: MemoryStore) -> None:
    """Something else cleaned the folder up between the two runs. [AB6] [IV6]"""
    lost = written(store, 7)
    (path,) = [info.name for info in store.list("day=") if lost.id in info.name]
    for damage in (None, b"short"):
        store.delete([path])
        if damage is not None:
            store.put(path, damage)
        with pytest.raises(mc.errors.StoreError, match="is gone", check=lambda error: path in str(error) and lost.id in str(error)):
            begin(store).write(rows([7], day="a"))
    assert give_up(session(store), lost.id).kind == "aborted"
    rerun = begin(store)
    rerun.write(rows([7], day="a"))
    assert rerun.commit().committed and rerun.id != lost.id and read_ids(store) == [1, 7]


# --- objects that are not to be believed ------------------------------------------------------------------------------------
ELSEWHERE = "v2-0123456789abcdef-" + "0" * 32
Spoil = Callable[[dict[str, Any], str], Any]


def _listing(path: str, job: str | None = None) -> Spoil:
    def spoil(task: dict[str, Any], own: str) -> None:
        task["entries"][0].update(path=path.replace("JOB", own), job=job or own)

    return spoil


def _manifest(path: str) -> Spoil:
    def spoil(task: dict[str, Any], own: str) -> None:
        ref = ManifestRef(
            path=path.replace("JOB", own), files=1, rows=1, data_bytes=1, bytes=1, digest="sha256:", first_path="a", last_path="a",
            lower=("a",), upper=("a",), nulls=(False,),
        )  # fmt: skip
        task["manifests"] = [msgspec.to_builtins(ref, str_keys=True)]

    return spoil


SPOILED: dict[str, Spoil] = {
    "outside the root": _listing("../x-JOB.parquet"),
    "absolute": _listing("/etc/x-JOB.parquet"),
    "metadata": _listing("_Manifest/x-JOB.parquet"),
    "a file of another job": _listing(f"day=a/00000-0123456789abcdef-0-{ELSEWHERE}.parquet"),
    "a file of no job": _listing("day=a/x.parquet"),
    "an entry of another job": _listing("day=a/00000-0123456789abcdef-0-JOB.parquet", ELSEWHERE),
    "a manifest of another job": _manifest(f"_manifest/manifests/{ELSEWHERE}-{'0' * 32}.parquet"),
    "a manifest elsewhere": _manifest(f"_manifest/manifests/../JOB-{'0' * 32}.parquet"),
    "another task": lambda task, own: task.update(task=1),
    "a wrong type": lambda task, own: task.update(entries=[1]),
    "an unknown member": lambda task, own: task.update(gives_up="x"),
    "no entries' list": lambda task, own: task.update(entries={}),
    "a file twice": lambda task, own: task["entries"].append(task["entries"][0]),
    "negative counts": lambda task, own: task["entries"][0].update(rows=-1),
    "more than can be counted": lambda task, own: task["entries"][0].update(rows=2**63),
    "a value of another type": lambda task, own: task["entries"][0].update(partition=[5]),
    "a bound of another type": lambda task, own: next(iter(task["entries"][0]["columns"].values())).update(min={}),
    "a file without a digest": lambda task, own: task["entries"][0].pop("digest"),
    "another width": lambda task, own: task["entries"][0].update(partition=[]),
}


def spoiled(store: Store, data: Callable[[dict[str, Any]], bytes]) -> str:
    (name,) = left(store, "task-")
    store.put(name, data(json.loads(codec.decompress(store.get(name), name=name))))
    return name


@pytest.mark.parametrize("how", SPOILED)
def test_a_hostile_task_is_refused_by_name(how: str, store: MemoryStore) -> None:
    """By the rerun before anything is written, and by an attempt that lost to it. [AB6] [SE2] [OB4]"""
    lost = written(store, 7)

    def spoil(task: dict[str, Any]) -> bytes:
        SPOILED[how](task, lost.id)
        return codec.compress(json.dumps(task).encode())

    name = spoiled(store, spoil)
    with pytest.raises(
        mc.errors.CorruptMetadataError, match="damaged", check=lambda error: error.object_name == name and name in str(error)
    ):
        begin(store).write(rows([7], day="a"))
    assert lost.recovery is not None
    plan = lost.plan_write(_schema(store))
    lost.recovery._write = (1, 0)
    work = lost.recovery.work(plan, tasks=1, same="the same")
    assert object_names.task_name(lost.id, work.name, 0) == name
    with pytest.raises(mc.errors.CorruptMetadataError, match="damaged"):
        work.finish(store, session(store).env, 0, ())


def test_a_task_of_a_later_format_is_refused(store: MemoryStore) -> None:
    """[OB3]"""
    written(store, 7)
    spoiled(store, lambda task: codec.compress(json.dumps(task | {"format_version": 2}).encode()))
    with pytest.raises(mc.errors.UnsupportedFormatError):
        begin(store).write(rows([7], day="a"))


def test_the_json_schemas_accept_what_is_written_and_no_more(store: MemoryStore) -> None:
    """[AB6] [OB12]"""
    written(store, 7)
    registry: Registry[Any] = Registry()
    for file in ("snapshot.json", "prepared.json"):
        registry = registry.with_resource(file, Resource.from_contents(json.loads((SCHEMAS / file).read_text("utf-8"))))
    name, mark = left(store, "task-")[0], left(store, "key-")[0]
    validator = Draft202012Validator(json.loads((SCHEMAS / "task.json").read_text("utf-8")), registry=registry)
    document = json.loads(codec.decompress(store.get(name), name=name))
    validator.validate(document)
    for wrong in ({**document, "more": 1}, {**document, "format_version": 2}, {"format_version": 1}):
        with pytest.raises(ValidationError):
            validator.validate(wrong)
    assert store.get(mark) == HOSTILE_KEY.encode()
