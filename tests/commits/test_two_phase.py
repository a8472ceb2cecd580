"""Two-phase commit as callers and the command line meet it: prepare, then commit or give up, from anywhere. [AB3] [AB4]"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tests.kit.tables import check_table, job_on, job_with, read_ids, rows, session, write
from tests.spec.golden import replaced

import manifestcommit as mc
from manifestcommit.commits.two_phase import commit_prepared, give_up
from manifestcommit.errors import CorruptMetadataError, TableNotFoundError, UnsupportedFormatError, UsageError
from manifestcommit.format import codec, object_names
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import open_head
from manifestcommit.operations.alter import set_properties
from manifestcommit.runtime.environment import Env
from manifestcommit.store import LocalStore
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Versions 1 to 3: rows 1 and 2, a source at 5."""
    root = str(tmp_path / "a table%20")
    mc.write(rows([1], day="a"), root, partition_by=["day"], watermarks={"s": (0, 5)})
    mc.write(rows([2], day="b"), root)
    return root


def aborted(root: str, job: str) -> Any:
    return mc.Table(root).abort(job)


def ids(root: str) -> list[int]:
    return read_ids(LocalStore(root))


def head(root: str) -> int:
    return open_head(LocalStore(root)).version


def prepared(root: str, *numbers: int, key: str | None = None, day: str = "a") -> str:
    """A prepared append of these rows."""
    with mc.begin(root, key=key) as job:
        job.write(rows(numbers, day=day))
        return job.prepare()


class LongAgo(Env):
    """A clock that stands in 1970."""

    def now_us(self) -> int:
        return 1


# --- prepare, then commit -----------------------------------------------------------------------------------------------
def test_what_is_prepared_is_invisible_and_pending_until_someone_commits_it(root: str) -> None:
    """[AB3] [CM3] [CM23]"""
    job = prepared(root, 7, 8)
    assert (head(root), ids(root), mc.Table(root).resolve(job)) == (3, [1, 2], "pending")
    outcome = mc.commit(root, job)
    assert (outcome.kind, outcome.version, outcome.job_id) == ("committed", 4, job)
    assert ids(root) == [1, 2, 7, 8]
    assert (mc.Table(root).resolve(job), mc.Table(root).resolve(job).version) == ("committed", 4)
    assert mc.Table(root).history()[0]["job"] == job, "under its own id"


@pytest.mark.parametrize("fate", ["collected", "damaged"])
def test_a_settled_job_needs_its_prepared_object_no_more(root: str, fate: str) -> None:
    """gc may have taken it. [AB3] [AB4]"""
    done, given_up = prepared(root, 7), prepared(root, 8)
    mc.commit(root, done)
    mc.Table(root).abort(given_up)
    names = [object_names.prepared_name(done), object_names.prepared_name(given_up)]
    LocalStore(root).delete(names)
    if fate == "damaged":
        for name in names:
            LocalStore(root).put(name, b"garbage")
    assert mc.commit(root, done).version == mc.Table(root).abort(done).version == 4
    assert mc.Table(root).abort(given_up) == "aborted"
    with pytest.raises(mc.errors.JobAbortedError):
        mc.commit(root, given_up)


@pytest.mark.parametrize("use", ["commit", "write", "add_files", "overwrite", "advance", "abort"])
def test_a_prepared_job_is_out_of_its_owners_hands(root: str, use: str) -> None:
    """Its own process would not know that others may have committed it, or given it up. [AB3]"""
    job = mc.begin(root)
    job.write(rows([7], day="a"))
    name = job.prepare()
    uses: dict[str, Callable[[], Any]] = {
        "commit": job.commit, "write": lambda: job.write(rows([8], day="a")), "add_files": lambda: job.add_files(["x.parquet"]),
        "overwrite": lambda: job.overwrite(None), "advance": lambda: job.advance("s", 5, 6), "abort": job.abort,
    }  # fmt: skip
    with pytest.raises(UsageError, match="prepared"):
        uses[use]()
    assert head(root) == 3 and mc.Table(root).resolve(name) == "pending"
    assert mc.commit(root, name).committed and ids(root) == [1, 2, 7]


def test_a_job_that_is_over_cannot_be_prepared(root: str) -> None:
    done, given_up = mc.begin(root), mc.begin(root)
    done.write(rows([7], day="a"))
    done.commit()
    given_up.abort()
    for job in (done, given_up):
        with pytest.raises(UsageError, match="begin a new one"):
            job.prepare()
    assert mc.Table(root).jobs() == []


def test_a_first_write_is_prepared_and_makes_the_table_on_commit(tmp_path: Path) -> None:
    """[AB3] [CM13]"""
    root = str(tmp_path / "new")
    job = prepared(root, 7, 8)
    assert ids(root) == []
    assert mc.commit(root, job).version == 2 and ids(root) == [7, 8]
    check_table(LocalStore(root))


def test_prepare_costs_a_list_and_a_put_and_commit_what_a_commit_costs(store: MemoryStore) -> None:
    """[AB3] [CM11]"""
    write(store, rows([1]))
    job = job_with(store, rows([2]))
    job.ctx.store = counted = CountingStore(store)
    job.prepare()
    assert counted.requests() == {"list": 1, "put_if_absent": 1}
    counted = CountingStore(store)
    assert commit_prepared(session(counted), job.id).committed
    # Hint, head and prepared object; the lists that find the head and what stands above the create.
    assert counted.requests() == {"get": 3, "list": 2, "put_if_absent": 1, "put": 1}


# --- keys ---------------------------------------------------------------------------------------------------------------
def test_a_second_prepared_job_with_the_same_key_tells_the_first_version_and_doubles_nothing(root: str) -> None:
    """[KY3] [KY5] [AB3]"""
    first, second = prepared(root, 7, key="k"), prepared(root, 7, key="k")
    assert mc.commit(root, second).kind == "committed"
    for _ in range(2):
        outcome = mc.commit(root, first)
        assert (outcome.kind, outcome.version, outcome.job_id) == ("already_committed", 4, first)
    assert head(root) == 4 and ids(root) == [1, 2, 7]
    assert mc.Table(root).abort(first) == "aborted", "the job, not the key"
    assert mc.write(rows([7], day="a"), root, key="k").version == 4 and ids(root) == [1, 2, 7]


def test_a_prepared_job_whose_key_was_used_for_other_work_is_refused_each_time(root: str) -> None:
    """[KY2]"""
    job = prepared(root, 7, key="k")
    mc.write(rows([8], day="a"), root, key="k", watermarks={"s": (5, 6)})
    for _ in range(2):
        with pytest.raises(mc.errors.KeyReusedError):
            mc.commit(root, job)
    assert ids(root) == [1, 2, 8] and mc.Table(root).abort(job) == "aborted"


# --- whatever a job can hold ---------------------------------------------------------------------------------------------
def test_files_of_others_are_added_from_elsewhere(root: str) -> None:
    """[AF1] [AB3] [CF10]"""
    name = "from outside/100% #1 'x'=+.parquet"
    path = Path(root) / name
    path.parent.mkdir()
    pq.write_table(pa.table({"id": [7], "day": ["a"]}), path)
    with mc.begin(root) as job:
        job.add_files([name])
        first = job.prepare()
    with mc.begin(root) as job:
        job.add_files([name])
        second = job.prepare()
    mc.commit(root, first)
    with pytest.raises(mc.errors.CommitConflictError):
        mc.commit(root, second)
    assert ids(root) == [1, 2, 7]


def test_a_prepared_job_rebases_on_what_was_committed_since(root: str) -> None:
    """[CM3] [AB3]"""
    job = prepared(root, 7)
    set_properties(session(LocalStore(root)), {"owner": "x"})
    mc.write(rows([8], day="c", more="y"), root, merge_schema=True)
    assert mc.commit(root, job).version == 6 and ids(root) == [1, 2, 7, 8]
    check_table(LocalStore(root))


def test_what_was_prepared_waits_as_long_as_it_takes(root: str) -> None:
    """Years, by the clock of who prepared it and by the store's, and many commits of others. [AB3]"""
    store = LocalStore(root)
    with job_on(TableContext(store, LongAgo()), key="k", fingerprint=None) as job:
        job.write(rows([7], day="a"))
        waiting = job.prepare()
    os.utime(Path(root, object_names.prepared_name(waiting)), (0, 0))
    others = range(100, 140)
    for number in others:
        mc.write(rows([number], day="a"), root, key=f"{number}")
    assert [(each.job, each.state, each.since) for each in mc.Table(root).jobs()] == [(waiting, "prepared", 0.0)]
    assert mc.commit(root, waiting).kind == "committed"
    assert ids(root) == [1, 2, 7, *others]
    check_table(store)


# --- abort --------------------------------------------------------------------------------------------------------------
def test_what_was_given_up_stays_given_up(root: str) -> None:
    """[AB4] [AB1]"""
    job = prepared(root, 7)
    files = {info.name for info in LocalStore(root).list("")}
    for _ in range(2):
        status = mc.Table(root).abort(job)
        assert (status, status.version) == ("aborted", None)
    assert head(root) == 4, "the second time nothing had to be committed"
    for _ in range(2):
        with pytest.raises(mc.errors.JobAbortedError, match=job):
            mc.commit(root, job)
    assert mc.Table(root).resolve(job) == "aborted" and ids(root) == [1, 2] and head(root) == 4
    assert files <= {info.name for info in LocalStore(root).list("")}, "nothing is deleted"
    assert mc.Table(root).history()[0]["operation"] == "give_up"
    check_table(LocalStore(root))


# --- what cannot be committed ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("finish", [mc.commit, aborted])
@pytest.mark.parametrize("which", ["unknown", "malformed", "hostile", "empty", "of another table", "not prepared", "committed by itself"])
def test_a_job_that_cannot_be_finished_is_named_and_nothing_changes(
    root: str, tmp_path: Path, finish: Callable[[str, str], Any], which: str
) -> None:
    """[AB4] [CM10] [LY4]"""
    running = mc.begin(root)
    running.write(rows([9], day="a"))
    other = str(tmp_path / "another")
    mc.write(rows([1], day="x"), other)
    version, files = head(root), {info.name for info in LocalStore(root).list("")}
    job, error, match = {
        "unknown": (re.sub("[0-9a-f]{32}$", "0" * 32, running.id), UsageError, "holds no prepared job"),
        "malformed": ("job-1", UsageError, "invalid job_id .* expected the id of a job"),
        "hostile": ("../../etc/passwd\n%00", UsageError, "invalid job_id .* expected the id of a job"),
        "empty": ("", UsageError, "invalid job_id ''"),
        "of another table": (prepared(other, 2), TableNotFoundError, "another table"),
        "not prepared": (running.id, UsageError, "holds no prepared job"),
        "committed by itself": (mc.Table(root).history()[0]["job"], None, ""),
    }[which]
    if error is None:  # a job that its own process committed is told as what it is
        assert finish(root, job).version == version
    else:
        with pytest.raises(error, match=match, check=lambda error: repr(job)[1:-1] in str(error)):
            finish(root, job)
    assert head(root) == version and {info.name for info in LocalStore(root).list("")} == files
    running.commit()
    assert ids(root) == [1, 2, 9]


@pytest.mark.parametrize("finish", [mc.commit, aborted])
def test_where_there_is_no_table_there_is_nothing_to_finish(tmp_path: Path, finish: Callable[[str, str], Any]) -> None:
    with pytest.raises(TableNotFoundError):
        finish(str(tmp_path / "none"), f"v1-{'0' * 16}-{'0' * 32}")
    assert list(tmp_path.iterdir()) == []


# --- damage and strangers -------------------------------------------------------------------------------------------------
def stored_document(store: MemoryStore, job: str) -> Any:
    return json.loads(zstandard.ZstdDecompressor().decompress(store.get(object_names.prepared_name(job))))


def _twice(document: Any) -> None:
    document["change"]["add"] *= 2


OTHER = f"v2-{'0' * 16}-{'1' * 32}"
WRONG: dict[str, Callable[[Any], None]] = {
    "another job": replaced("change", "job", OTHER),
    "another birth": replaced("change", "birth", 1),
    "a job that is none": replaced("change", "job", "../x"),
    "no change": lambda document: document.pop("change"),
    "a change of no job": lambda document: document["change"].pop("job"),
    "a path above the root": replaced("change", "add", 0, "path", "a/../../b.parquet"),
    "an absolute path": replaced("change", "add", 0, "path", "/etc/passwd"),
    "a path among the metadata": replaced("change", "add", 0, "path", "_manifest/versions/x"),
    "a removed path above the root": replaced("change", "remove", ["../b"]),
    "negative rows": replaced("change", "add", 0, "rows", -1),
    "a file of no job": replaced("change", "add", 0, "job", "who?"),
    "a path twice": _twice,
    "partition values that the table has not": replaced("change", "add", 0, "partition", ["x"]),
    "a manifest outside its folder": replaced("change", "add_manifests", [{
        "path": "elsewhere.parquet", "files": 1, "rows": 1, "data_bytes": 1, "bytes": 1, "digest": "sha256:" + "0" * 64,
        "first_path": "a", "last_path": "a"}]),
    "a manifest of no job": replaced("change", "add_manifests", [{
        "path": "_manifest/manifests/x.parquet", "files": 1, "rows": 1, "data_bytes": 1, "bytes": 1, "digest": "sha256:" + "0" * 64,
        "first_path": "a", "last_path": "a"}]),
    "a manifest of nothing": lambda document: document["change"].update(add_manifests=[{
        "path": f"_manifest/manifests/{document['change']['job']}-{'0' * 32}.parquet", "files": 0, "rows": 1, "data_bytes": 1, "bytes": 1,
        "digest": "sha256:" + "0" * 64, "first_path": "a", "last_path": "a"}]),
    "two fields of one id": lambda document: document["change"]["schema"]["fields"].append(document["change"]["schema"]["fields"][0]),
    "a job that it gives up": replaced("change", "gives_up", OTHER),
    "manifests that it merges": replaced("change", "merge_manifests", ["m"]),
    "a source that it rewinds": replaced("change", "rewind", {"source": "s", "have": 5, "to": 0}),
    "a batch of a stream": replaced("change", "stream", {"name": "n", "query": "q", "batch": 0}),
    "an unknown member": replaced("later", 1),
    "an unknown member of the change": replaced("change", "later", 1),
    "an unknown member of an overwrite": replaced("change", "overwrite", {"dynamic": True, "later": 1}),
    "an unknown member of an advance": replaced("change", "advances", [{"source": "s", "end": 1, "later": 1}]),
    "an unknown member of an edit": replaced("change", "edits", [{"kind": "drop", "id": 1, "column": "x", "later": 1}]),
    "an unknown kind of edit": replaced("change", "edits", [{"kind": "fold", "id": 1, "column": "x"}]),
    "the reserved member": replaced("change", "__unknown__", {}),
    "a number for a text": replaced("change", "key", 1),
    "a key without what was declared": lambda document: document["change"].update(key="k", declared=""),
    "a key that was done and dropped": replaced("done", {"version": 2, "digest": ""}),
    "a reason": replaced("change", "reason", "why"),
    "more rows than can be counted": replaced("change", "add", 0, "rows", 2**63),
    "a bound of another type": lambda document: next(iter(document["change"]["add"][0]["columns"].values())).update(min=[]),
}  # fmt: skip


def one_prepared(store: MemoryStore) -> tuple[str, dict[str, Any]]:
    """A job of a table with one row that brings another, and what its object says."""
    write(store, rows([1]))
    name = job_with(store, rows([2])).prepare()
    return name, stored_document(store, name)


@pytest.mark.parametrize("finish", [commit_prepared, give_up])
@pytest.mark.parametrize("what", WRONG)
def test_a_prepared_object_that_no_writer_writes_is_refused_by_name(what: str, finish: Callable[..., Any], store: MemoryStore) -> None:
    """Nothing is committed, and nothing else than the object's name is blamed. [AB3] [OB3] [OB4] [SE2]"""
    name, document = one_prepared(store)
    WRONG[what](document)
    store.put(object_names.prepared_name(name), codec.compress(json.dumps(document).encode()))
    with pytest.raises(CorruptMetadataError) as caught:
        finish(session(store), name)
    assert caught.value.object_name == object_names.prepared_name(name) and object_names.prepared_name(name) in str(caught.value)
    assert open_head(store).version == 2 and read_ids(store) == [1]


@pytest.mark.parametrize("format_version", [0, 2, 99])
def test_a_prepared_object_of_another_format_is_not_guessed_at(format_version: int, store: MemoryStore) -> None:
    """[OB3] [AB3]"""
    name, document = one_prepared(store)
    document |= {"format_version": format_version, "change": {"what": "else"}}
    store.put(object_names.prepared_name(name), codec.compress(json.dumps(document).encode()))
    for finish in (commit_prepared, give_up):
        with pytest.raises(UnsupportedFormatError, match=re.escape(object_names.prepared_name(name))):
            finish(session(store), name)
    assert open_head(store).version == 2


def test_what_later_releases_know_of_files_and_schemas_is_kept(store: MemoryStore) -> None:
    """As in a snapshot. [OB12] [AB3]"""
    name, document = one_prepared(store)
    document["change"]["add"][0]["later"] = {"a": [1, None]}
    store.put(object_names.prepared_name(name), codec.compress(json.dumps(document).encode()))
    assert commit_prepared(session(store), name).committed
    head = json.loads(zstandard.ZstdDecompressor().decompress(store.get(object_names.version_name(3))))
    assert [entry.get("later") for entry in head["added"]] == [None, {"a": [1, None]}] and read_ids(store) == [1, 2]


def test_a_job_too_large_for_any_reader_is_refused_before_anything_is_put(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    """[OB4] [AB3]"""
    write(store, rows([1]))
    job = job_with(store, rows([2]), key="k" * 3000)
    monkeypatch.setattr(codec, "MAX_RAW_BYTES", 2000)
    with pytest.raises(UsageError, match="more than readers accept"):
        job.prepare()
    assert list(store.list(object_names.JOBS)) == []


# --- the list of jobs ------------------------------------------------------------------------------------------------------
def test_jobs_tells_what_became_of_each(root: str) -> None:
    """[AB3] [LY5]"""
    store = LocalStore(root)
    names = [prepared(root, number) for number in (7, 8, 9)]
    store.put(f"{object_names.JOBS}a stranger/x", b"x")
    store.put(f"{object_names.JOBS}{re.sub('[0-9a-f]{32}$', '0' * 32, names[0])}/x", b"xyz")
    store.put(object_names.prepared_name(f"v1-{'0' * 16}-{'0' * 32}"), b"of another table")
    mc.commit(root, names[0])
    mc.Table(root).abort(names[1])
    found = {each.job: (each.state, each.version) for each in mc.Table(root).jobs()}
    assert found == {
        names[0]: ("committed", 4),
        names[1]: ("aborted", None),
        names[2]: ("prepared", None),
        re.sub("[0-9a-f]{32}$", "0" * 32, names[0]): ("running", None),
    }
    sizes = {each.job: each.size_bytes for each in mc.Table(root).jobs()}
    assert sizes[names[2]] == len(store.get(object_names.prepared_name(names[2]))) and 3 in sizes.values()


# --- the command ------------------------------------------------------------------------------------------------------------
