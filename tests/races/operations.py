"""What processes of a round try: each operation by the library's public calls, its outcome in the words of `records`."""

from __future__ import annotations

import datetime as dt
import io
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from tests.kit.tables import change_of
from tests.races.history import item, items
from tests.races.records import Outcome, Record

import manifestcommit as mc
from manifestcommit.commits.commit_loop import commit as engine_commit
from manifestcommit.runtime.outcome import committed_or_raise
from manifestcommit.store.object_store import ObjectStore

if TYPE_CHECKING:
    from tests.races.actor import Process

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def perform(process: Process, record: Record) -> Outcome:
    """Do it. What it was told stands in the record's result; errors come out."""
    return OPERATIONS[record.operation](process, record)


def outcome_of(error: mc.errors.ManifestCommitError) -> Outcome:
    """What an error says of what was tried."""
    if isinstance(error, mc.errors.OutcomeUnknownError):
        return "unknown"
    return "failed" if isinstance(error, mc.errors.StoreError) else "refused"


def table_of(rows: list[list[Any]]) -> pa.Table:
    """Rows as they stand in a log."""
    return pa.table([[each for each, _ in rows], [day for _, day in rows]], schema=SCHEMA)


def rows_in(table: pa.Table) -> list[list[Any]]:
    return [list(row) for row in zip(table.column("id").to_pylist(), table.column("day").to_pylist(), strict=True)]


def parquet(rows: list[list[Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table_of(rows), sink)
    return sink.getvalue()


# --- jobs -----------------------------------------------------------------------------------------------------------------
def begin(process: Process, record: Record) -> mc.Job:
    """A job that has written the record's rows, and that the log knows."""
    given = record.arguments
    job = mc.begin(process.url, key=given.get("key"), storage_options=process.options)
    if scope := given.get("scope"):
        chosen: Any = {"all": None, "dynamic": "dynamic", "day": {"day": scope.get("day")}}[scope["kind"]]
        job.overwrite(chosen, conflict=given["conflict"])
    process.learn(record, job=job.id)
    if given.get("advance"):
        job.advance(*given["advance"])
        process.learn(record, moved=given["advance"])
    elif source := given.get("source"):
        have = process.table().watermarks().get(source)
        moved = [source, have, int(have or 0) + 5]
        process.learn(record, moved=moved)
        job.advance(*moved)
    job.write(table_of(given.get("rows", [])), partition_by=["day"])
    time.sleep(given.get("slow_s", 0.0))
    return job


def told(record: Record, outcome: mc.Outcome) -> Outcome:
    record.result.update(told=outcome.job_id, version=outcome.version, already=outcome.already_committed)
    return "committed"


def write(process: Process, record: Record) -> Outcome:
    return told(record, begin(process, record).commit())


def repeat(process: Process, record: Record) -> Outcome:
    """A rerun of a key when all is over: it commits, with nothing, only if nobody knows the key."""
    process.table().snapshot()  # a table that is not there is none to be made
    job = mc.begin(process.url, key=record.arguments["key"], storage_options=process.options)
    if not job.already_committed:
        process.learn(record, job=job.id, rows=[])
        job.write(table_of([]), partition_by=["day"])
    return told(record, job.commit())


def orphan(process: Process, record: Record) -> Outcome:
    """A job that writes and gives up, and an upload that nobody finishes."""
    job = begin(process, record)
    store = process.table()._ctx.store
    inner = getattr(store, "_inner", None)
    if record.arguments.get("uploads") and isinstance(inner, ObjectStore):
        inner._backend.upload(inner._key(f"day=x/00000-{'0' * 16}-0-{job.id}.parquet")).send(1, b"half a file")
    job.abort()
    return "refused"


def prepare(process: Process, record: Record) -> Outcome:
    process.learn(record, prepared=begin(process, record).prepare())
    return "prepared"


def settle(process: Process, record: Record) -> Outcome:
    """One prepared job, or all."""
    decided: list[list[Any]] = []
    record.result["decided"] = decided
    if (verb := record.arguments["verb"]) == "recover":
        for each in process.table().recover():
            if each.outcome is not None:
                decided.append([each.job_id, "committed" if each.outcome.committed else "aborted", each.outcome.version])
        return "done"
    waiting = [info.job for info in process.table().jobs() if info.state == "prepared"]
    if not waiting:
        return "done"
    job = process.dice.choice(waiting)
    if verb == "commit":
        outcome = mc.commit(process.url, job, storage_options=process.options)
        decided.append([job, "committed", outcome.version])
    else:
        found = mc.Table(process.url, storage_options=process.options).abort(job)
        decided.append([job, str(found), found.version])
    return "done"


def close(process: Process, record: Record) -> Outcome:
    """Nothing is prepared afterwards."""
    process.table().recover()
    process.table().recover(abort=True)
    return "done"


def add_files(process: Process, record: Record) -> Outcome:
    """Files that no job wrote, which lie there for a while before they are listed."""
    store, files = process.store(), record.arguments["files"]
    for path, rows in files.items():
        store.put(path, parquet(rows))
    time.sleep(record.arguments["slow_s"])
    return _add(process, record, files)


def add_again(process: Process, record: Record) -> Outcome:
    """A file that the oldest readable version lists and the head does not."""
    table = process.table()
    live = set(table.files().column("path").to_pylist())
    old = table.files(version=table.snapshot().expired).column("path").to_pylist()
    gone = sorted(set(old) - live)
    if not gone:
        return "done"
    path = process.dice.choice(gone)
    try:
        data = process.store().get(path)
    except FileNotFoundError:
        return "done"
    return _add(process, record, {path: rows_in(pq.read_table(io.BytesIO(data)))})


def _add(process: Process, record: Record, files: dict[str, list[list[Any]]]) -> Outcome:
    job = mc.begin(process.url, storage_options=process.options)
    process.learn(record, job=job.id, rows=[row for rows in files.values() for row in rows])
    job.add_files(list(files))
    return told(record, job.commit())


def replace(process: Process, record: Record) -> Outcome:
    """All files of one partition become one with the same rows: what compaction does to a table, without the Spark that it takes."""
    table = process.table()
    listed = [each for each in table.files().to_pylist() if each["day"] == record.arguments["day"]]
    files = [each["path"] for each in listed]
    if not files:
        return "done"
    store = process.store()
    try:
        parts = [pq.read_table(io.BytesIO(store.get(path))).select(["id", "day"]) for path in files]
    except FileNotFoundError:
        return "gone"
    removes = [name for each, part in zip(listed, parts, strict=True) for name in items(each["job"], rows_in(part))]
    data = pa.concat_tables(parts)
    job = mc.begin(process.url, storage_options=process.options)
    process.learn(record, job=job.id, rows=rows_in(data), removes=removes)
    job.write(data, partition_by=["day"])
    change = msgspec.structs.replace(change_of(job), operation="replace", remove=frozenset(files))
    session = job._ctx
    return told(record, committed_or_raise(engine_commit(session, session.known or session.open(), change), process.url))


# --- the chain ------------------------------------------------------------------------------------------------------------
def create(process: Process, record: Record) -> Outcome:
    mc.create_table(process.url, SCHEMA, partition_by=["day"], storage_options=process.options)
    return "done"


def adopt(process: Process, record: Record) -> Outcome:
    found = mc.Table(process.url, storage_options=process.options).adopt(partition_by=["day"])
    record.result.update(version=found.version, already=found.already_adopted, count=found.rows)
    return "committed"


def tag(process: Process, record: Record) -> Outcome:
    snapshot, back = process.table().snapshot(), record.arguments["back"]
    version = max(snapshot.expired, snapshot.version - back)
    process.learn(record, tagged=version)
    return told(record, process.table().tag(record.arguments["name"], version))


def untag(process: Process, record: Record) -> Outcome:
    return told(record, process.table().untag(record.arguments["name"]))


def rollback(process: Process, record: Record) -> Outcome:
    table, name = process.table(), record.arguments["tag"]
    snapshot = table.snapshot()
    version = None if name else max(snapshot.expired, snapshot.version - record.arguments["back"])
    return told(record, table.rollback(version, tag=name, reason=record.id))


def rewind(process: Process, record: Record) -> Outcome:
    source, by = record.arguments["source"], record.arguments["by"]
    have = process.table().watermarks().get(source)
    to = int(have) - by if have is not None and by is not None else None
    process.learn(record, moved=[source, have, to])
    outcome = process.table().rewind(source, to, reason=record.id)
    record.result["dropped"] = list(outcome.dropped_keys)
    return told(record, outcome)


# --- reading and gc -------------------------------------------------------------------------------------------------------
def read(process: Process, record: Record) -> Outcome:
    """One version, file by file and slowly."""
    table = process.table()
    snapshot = table.snapshot()
    version = max(snapshot.expired, snapshot.version - record.arguments["back"])
    process.learn(record, head=snapshot.version, version=version)
    try:
        marks = (snapshot if version == snapshot.version else table.snapshot(version=version)).watermarks
        shown = items_of(table, version, record.arguments["slow_s"])
    except (mc.errors.SnapshotExpiredError, OSError) as error:
        record.result.update(error=type(error).__name__, message=str(error))
        return "gone" if isinstance(error, mc.errors.SnapshotExpiredError | FileNotFoundError) else "failed"
    record.result.update(marks=marks, items=shown)
    return "read"


def items_of(table: mc.Table, version: int, slow_s: float = 0.0) -> list[str]:
    """What is read of a version, each row by its file, and each file by the job that it is listed for."""
    # No two files of a round have one name.
    jobs = {each["path"].rpartition("/")[2]: each["job"] for each in table.files(version=version).to_pylist()}
    dataset, shown = table.dataset(version=version), list[str]()
    for fragment in dataset.get_fragments():
        name = fragment.path.rpartition("/")[2]
        shown += [item(jobs.get(name, name), *row) for row in rows_in(fragment.to_table(schema=dataset.schema))]
        time.sleep(slow_s)
    return shown


def gc(process: Process, record: Record) -> Outcome:
    given = record.arguments
    table = mc.Table(process.url, storage_options=process.options)
    call = table.plan_gc if given.get("dry_run", False) else table.gc
    found = call(
        grace=dt.timedelta(seconds=given.get("grace_s", 0.0)),
        keep_versions=given.get("keep_versions", 1),
        keep_for=dt.timedelta(seconds=given.get("keep_for_s", 0.0)),
        foreign=given["foreign"],
    )
    if isinstance(found, mc.GcReport):
        deleted = {kind: tally.count for kind, tally in found.deleted.items()}
        record.result.update(version=found.version, fence=found.fence, expired=found.expired, deleted=deleted)
    return "done"


def verify(process: Process, record: Record) -> Outcome:
    report = process.table().verify(deep=process.dice.random() < 0.3)
    record.result["damage"] = [f"{each.object}: {each.problem}" for each in report.findings if each.severity == "damage"]
    return "done"


OPERATIONS: dict[str, Callable[[Process, Record], Outcome]] = {
    each.__name__: each
    for each in (
        write, repeat, orphan, prepare, settle, close, add_files, add_again, replace, create, adopt, tag, untag, rollback, rewind, read,
        gc, verify,
    )
}  # fmt: skip
