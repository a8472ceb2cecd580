"""Tables that gc runs on, and what must hold of them afterwards: all that is readable is there, and nothing else. [GC5] [GC7] [IV7]"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from tests.kit.footers import parquet_bytes
from tests.kit.tables import begin, check_head, clone, memory, put_back, read, read_ids, rows, session, write

from manifestcommit.commits.commit_loop import commit
from manifestcommit.errors import ManifestCommitError
from manifestcommit.format import object_names
from manifestcommit.format.change import TagEdit
from manifestcommit.log.version_chain import open_head, read_object
from manifestcommit.operations.gc import GcReport, run
from manifestcommit.protocol.conflict import is_readable
from manifestcommit.protocol.retention import Policy
from manifestcommit.runtime.outcome import committed_or_raise
from manifestcommit.scan import planning
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import FaultCall, FaultStore

HARSH = Policy(grace_s=0, keep_for_s=0, keep_versions=1)
DAY = "a b%2F+=#'é🦆"
Act = Callable[[Store], object]


def gc(store: Store, **options: Any) -> GcReport:
    """One gc without any grace: whatever it may not take by the protocol, it must not take now."""
    foreign = options.pop("foreign", False)
    return run(session(store), msgspec.structs.replace(HARSH, **options), foreign=foreign)


def sizes(store: Store) -> dict[str, int]:
    return {info.name: info.size_bytes for info in store.list("")}


def check_readable(store: Store) -> None:
    """Every readable version can be read in full, and the head is a sound table. [IV2] [IV7]"""
    head, there = open_head(store), sizes(store)
    tagged = {tag.version for tag in head.snapshot.tags.values()}
    for version in sorted(tagged | set(range(head.snapshot.expired, head.version + 1))):
        assert is_readable(head.snapshot, version)
        found = read_object(store, version)
        assert found is not None, f"version {version} is gone"
        entries = planning.entries_table(session(store), found.snapshot)
        listed = dict(zip(entries["path"].to_pylist(), entries["bytes"].to_pylist(), strict=True))
        assert {path: there.get(path) for path in listed} == listed, f"files of version {version}"
        assert read(store, version).num_rows == found.snapshot.totals.rows
        for run_ref in (*found.snapshot.key_runs, *found.snapshot.job_runs, *found.snapshot.removed_runs):
            assert there.get(run_ref.path) == run_ref.bytes
    check_head(store)


def needed(store: Store) -> set[str]:
    """The chain, and what its readable versions list: nothing else has to be there."""
    head = open_head(store)
    names = {object_names.HINT, object_names.marker_name(head.snapshot.table_id)}
    for version in {tag.version for tag in head.snapshot.tags.values()} | set(range(head.snapshot.expired, head.version + 1)):
        snapshot = read_object(store, version).snapshot
        names |= {object_names.version_name(version), *(ref.path for ref in snapshot.manifests)}
        names |= {each.path for runs in (snapshot.key_runs, snapshot.job_runs, snapshot.removed_runs) for each in runs}
        names |= set(planning.entries_table(session(store), snapshot)["path"].to_pylist())
    return names


def check_clean(store: Store, *left: str) -> None:
    """Two gcs on, the folder is the chain and what it lists, and nothing of it is lost. [GC7]"""
    before = read_ids(store)
    gc(store)
    gc(store)
    check_readable(store)
    assert read_ids(store) == before
    assert set(sizes(store)) == needed(store) | set(left)


def table() -> MemoryStore:
    """Partitions, overwrites, removed files, a tag far back, keys, watermarks, orphans of dead jobs, a prepared job that was given up."""
    store = memory()
    write(store, rows([1], day=DAY), key="k 1%", watermarks={"s": (0, 5)}, partition_by=["day"])
    write(store, rows([2], day=None))
    tag(store, "first é", 2)
    write(store, rows([3], day=DAY), overwrite={"day": DAY}, key="k2")
    orphan(store, 4)
    write(store, rows([5], day="x"))
    write(store, rows([6], day="x"), overwrite="dynamic")
    return store


_turns = itertools.count()


def check_now_and_then(store: Store) -> None:
    """`check_clean`, for some of many that are alike: it takes most of the time."""
    if next(_turns) % 8 == 0:
        check_clean(store)


def tag(store: Store, name: str, version: int | None) -> None:
    each = session(store)
    head = each.open()
    change = TagEdit(job=each.new_job(head), birth=head.version, operation="tag", name=name, version=version)
    committed_or_raise(commit(each, head, change), store.url)


def orphan(store: Store, number: int, **parts: Any) -> None:
    """A job that writes and never commits."""
    with contextlib.suppress(ZeroDivisionError), begin(store) as job:
        job.write(rows([number], **(parts or {"day": "orphan"})))
        raise ZeroDivisionError


def interleaved(base: Store, work: Act, act: Act, step: int = 1) -> Iterator[tuple[Store, object, object]]:
    """`work` with the whole of `act` before one of its calls, for each `step`-th of them: the store, and what both returned or raised."""
    calls = FaultStore(clone(base))
    work(calls)
    for number in range(1, calls.count + 1, step):
        store, acted = clone(base), []

        def between(call: FaultCall, number: int = number, store: Store = store, acted: list[object] = acted) -> None:
            if call.number == number:
                acted.append(told(lambda: act(store)))

        done = told(lambda store=store, between=between: work(FaultStore(store, on_call=between)))
        assert acted
        yield store, done, acted[0]
        put_back(store)  # a list of memory looks at everything that the process has in it


def told(work: Callable[[], object]) -> object:
    try:
        return work()
    except ManifestCommitError as error:
        return error


def parquet(store: Store, name: str, number: int) -> None:
    """A file that fits the table and that no job of it wrote."""

    store.put(name, parquet_bytes(rows([number], day="x")))


def paused(store: Store, act: Callable[[], object]) -> FaultStore:
    """A store whose gc stops after its last list of everything, before it deletes anything, until `act` is done."""
    lists: list[int] = []

    def stop(call: FaultCall) -> None:
        if len(lists) == 3:
            lists.append(0)
            act()
        elif (call.kind, call.name) == ("list", ""):
            lists.append(0)

    return FaultStore(store, on_call=stop)


def add_foreign(store: Store) -> object:
    """Makes a table list the file that gc is about to condemn."""
    with begin(store) as job:
        job.add_files(["day=x/foreign.parquet"])
    return job.outcome
