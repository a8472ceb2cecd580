"""Small tables over any store, wrapped or not: write them, read them back, copy them, and check what must always hold of them."""

import itertools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pyarrow as pa

import manifestcommit as mc
from manifestcommit.format import codec, object_names
from manifestcommit.format.change import StreamBatch, Write
from manifestcommit.format.snapshot import Commit, Snapshot
from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext, find_key
from manifestcommit.log.version_chain import Head, list_above, open_head, read_object
from manifestcommit.operations.compaction import Rewrite, rewriter
from manifestcommit.operations.rollback import plan_rewind, plan_rollback, undo
from manifestcommit.runtime.environment import Env, Limits, Tuning
from manifestcommit.runtime.outcome import Outcome
from manifestcommit.scan import planning
from manifestcommit.scan.arrow_dataset import open_dataset
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore


class Hasty(Env):
    """The real outside, but nobody waits. slept: how often someone wanted to."""

    def __init__(self) -> None:
        self.slept = 0

    def sleep(self, seconds: float) -> None:
        self.slept += 1


def memory() -> MemoryStore:
    """An empty root that no other test has."""
    return MemoryStore(secrets.token_hex(8))


class Service(MemoryStore):
    """Memory that has to be proved before a first write, as if it were a service. [ST12]"""

    name = "s3://lake at http://127.0.0.1:9000"

    @property
    def identity(self) -> str:
        return self.name


def clone(store: Store, fresh: Callable[[], Store] = memory) -> Store:
    """Every object of a store below a new root, by default in memory."""
    copy = fresh()
    for info in store.list(""):
        copy.put(info.name, store.get(info.name))
    return copy


def objects_of(store: Store) -> dict[str, bytes]:
    """A backup of all that is below a root."""
    return {info.name: store.get(info.name) for info in store.list("")}


def put_back(store: Store, objects: Mapping[str, bytes] = MappingProxyType({})) -> None:
    """The root as its backup has it; without an object: gone."""
    store.delete([info.name for info in store.list("")])
    for name, data in objects.items():
        store.put(name, data)


def session(store: Store, limits: Limits | None = None) -> TableContext:
    return TableContext(store, Hasty(), None if limits is None else Tuning(limits=limits))


def begin(store: Store, key: str | None = None, fingerprint: str | None = None) -> Job:
    """A job as `manifestcommit.begin` makes it, over a store of the test's own."""
    return job_on(session(store), key=key, fingerprint=fingerprint)


def rows(ids: Iterable[int], **parts: Any) -> pa.Table:
    """Rows with these ids, and constant further columns."""
    each = list(ids)
    columns: dict[str, Any] = {"id": pa.array(each, pa.int64())}
    for name, value in parts.items():
        columns[name] = pa.array([value] * len(each), pa.string() if value is None or isinstance(value, str) else None)
    return pa.table(columns)


def write(
    store: Store,
    data: pa.Table,
    *,
    key: str | None = None,
    fingerprint: str | None = None,
    partition_by: list[str] | None = None,
    watermarks: Mapping[str, tuple[Any, Any]] | None = None,
    overwrite: Any = "no",
    conflict: str = "serializable",
    merge_schema: bool = False,
) -> Outcome:
    """One job from begin to outcome; errors come out as the public call's. overwrite="no": an append."""
    with begin(store, key, fingerprint) as job:
        if overwrite != "no":
            job.overwrite(overwrite, conflict=conflict)  # type: ignore[arg-type]
        for source, (start, end) in (watermarks or {}).items():
            job.advance(source, start, end)
        job.write(data, partition_by=partition_by, merge_schema=merge_schema)
    assert job.outcome is not None
    return job.outcome


def job_with(store: Store, data: pa.Table, *, key: str | None = None, **options: Any) -> Job:
    """A job that has written these rows."""
    job = begin(store, key)
    job.write(data, **options)
    return job


def table_with(data: Any, root: Any, **options: Any) -> mc.Table:
    """The table at the root, once these rows are written to it."""
    mc.write(data, root, **options)
    return mc.Table(root)


def write_each(store: Store, ids: Iterable[int]) -> None:
    """A commit for each id, of the one row that has it."""
    for number in ids:
        write(store, rows([number]))


def read(store: Store, version: int | None = None) -> pa.Table:
    """All rows of a version, the head by default."""
    each = session(store)
    head = open_head(store)
    found = head if version is None else read_object(store, version)
    assert found is not None
    return open_dataset(each, found.snapshot, planning.entries_table(each, found.snapshot)).to_table()


def read_ids(store: Store, version: int | None = None) -> list[int]:
    """The ids of all rows, sorted; twice what is there twice. [] for a table without columns, or no table."""
    if not list_above(store, 0).versions:
        return []
    table = read(store, version)
    return sorted(table.column("id").to_pylist()) if "id" in table.column_names else []


def positions(store: Store) -> dict[str, Any]:
    """Where every source stands."""
    if not list_above(store, 0).versions:
        return {}
    return dict(open_head(store).snapshot.watermarks)


def key_version(store: Store, key: str) -> int | None:
    """The version that the head records for a key, inlined or spilled."""
    each = session(store)
    record = find_key(each, each.open().snapshot, key)
    return None if record is None else record.version


def all_snapshots(store: Store) -> Iterator[Head]:
    """Every version whose object exists, ascending."""
    for info in list(store.list(object_names.VERSIONS)):
        version = object_names.parse_version(info.name)
        if version is not None:
            found = read_object(store, version)
            assert found is not None
            yield found


def check_table(store: Store) -> None:
    """What must hold of every table: no gap, an unbroken chain, totals that are true, no path twice, every file as it was listed."""
    newest = open_head(store).snapshot
    heads = [head for head in all_snapshots(store) if head.snapshot.table_id == newest.table_id]
    first = heads[0].version
    taken = {version for version in newest.void if version > first}  # others may have left objects there [LY15]
    assert sorted({head.version for head in heads} | taken) == list(range(first, heads[-1].version + 1)), "[IV1]"
    for parent, child in itertools.pairwise(heads):
        assert child.snapshot.parent_digest == parent.digest, "[OB1]"
        assert child.snapshot.table_id == parent.snapshot.table_id
        assert child.snapshot.committed_at >= parent.snapshot.committed_at, "[CM14]"
    jobs = [commit.job for head in heads for commit in head.snapshot.commits]
    assert len(jobs) == len(set(jobs)), "a job in two versions"
    check_head(store)


def check_head(store: Store) -> None:
    """The head's files: no path twice, all there with their length, and totals that are true of them. [IV6] [OB2]"""
    each = session(store)
    snapshot = each.open().snapshot
    table = planning.entries_table(each, snapshot)
    paths = table.column("path").to_pylist()
    assert len(paths) == len(set(paths)), "a path is live twice [IV6]"
    sizes = {info.name: info.size_bytes for info in store.list("")}
    assert {path: sizes.get(path) for path in paths} == dict(zip(paths, table.column("bytes").to_pylist(), strict=True)), "[IV6] [CM18]"
    totals = (len(paths), sum(table.column("rows").to_pylist()), sum(table.column("bytes").to_pylist()))
    assert (snapshot.totals.files, snapshot.totals.rows, snapshot.totals.bytes) == totals, "[OB2]"
    assert read(store).num_rows == totals[1]


def head_of(store: Store) -> tuple[str, dict[str, Any]]:
    """The name of the newest version, and its document."""
    name = max(info.name for info in store.list(object_names.VERSIONS) if object_names.parse_version(info.name))
    return name, msgspec.json.decode(codec.decompress(store.get(name), name=name))


def put_version(store: Store, head: Head, *, commit: Commit | None = None, **changes: Any) -> Head:
    """The version after `head` by another writer: its snapshot with these members changed."""
    version = head.version + 1
    job = object_names.job_id(head.version, head.snapshot.table_id, secrets.token_bytes(16))
    record = commit or Commit(job=job, commit_id=f"{job}.{secrets.token_hex(8)}", operation="gc")
    recent = changes.pop("recent_jobs", {**head.snapshot.recent_jobs, record.job: version})
    snapshot: Snapshot = msgspec.structs.replace(
        head.snapshot, version=version, parent_digest=head.digest, commits=(record,), recent_jobs=recent, **changes
    )
    data = codec.encode_snapshot(snapshot)
    assert store.put_if_absent(object_names.version_name(version), data)
    return Head(snapshot=snapshot, digest=codec.digest(data))


def change_of(job: Job) -> Write:
    """What the job would commit now."""
    return job.change()


def rewrite_here(store: Store) -> Rewrite:
    """What a compaction does without Spark."""
    return rewriter(session(store))


def job_on(session: TableContext, **options: Any) -> Job:
    """As `manifestcommit.begin` makes it. options: of `Job`."""
    job = Job(session, **options)
    job._process = os.getpid()
    return job


def in_chain(store: Store, job: str) -> list[int]:
    """The versions that carry the job."""
    return [head.version for head in all_snapshots(store) if any(each.job == job for each in head.snapshot.commits)]


def unread(data: pa.Table) -> pa.RecordBatchReader:
    """Data whose first batch must not be asked for."""

    def batches() -> Iterator[pa.RecordBatch]:
        raise AssertionError("it was read")
        yield

    return pa.RecordBatchReader.from_batches(data.schema, batches())


def rollback(ctx: Any, *given: Any, **named: Any) -> Outcome:
    return undo(ctx, *plan_rollback(ctx, *given, **named))


def rewind(ctx: Any, *given: Any, **named: Any) -> Outcome:
    return undo(ctx, *plan_rewind(ctx, *given, **named))


NAME = "flights %=+#'é🦆"


def commit_batch(store: object, number: int, *, query: str = "q1", name: str = NAME, id: int | None = None) -> Outcome:
    """One row per batch, its id the batch's number."""
    job = begin(store)  # type: ignore[arg-type]
    job.take_batch(StreamBatch(name=name, query=query, batch=number))
    job.write(rows([number if id is None else id]))
    return job.commit_now()
