"""Tables and readers: `Table`, `read_committed`, `resolve`, `create_table`. [RD1]-[RD8]

Not here: writing (job), the protocol (engine).
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from .core import arrow, evolution, format
from .core.conflict import describe_touch
from .core.expression import parse_expression
from .core.predicate import Predicate
from .core.schema import FieldType, Schema, type_text
from .core.snapshot import Snapshot
from .engine import alter, plan
from .engine.counts import CountReport, compare
from .engine.head import Head, read_version, walk_back
from .engine.lineage import Lineage, rewind, trace
from .engine.lookup import find_job
from .engine.outcome import JobResults, Outcome, committed_or_raise
from .engine.prepare import JobInfo, give_up, list_jobs, read_prepared, settle_prepared
from .engine.session import Session
from .engine.standing import TableFigures, stand
from .engine.times import choose_version, parse_moment
from .errors import UsageError
from .job import Path, is_spark_column
from .store import StorageOptions, open_store
from .store.doctor import Report, examine
from .telemetry import record_table

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession


class Resolution(str):
    """The answer of `resolve`, a text; version: where it is "committed"."""

    version: int | None

    def __new__(cls, status: str, version: int | None = None) -> Resolution:
        made = super().__new__(cls, status)
        made.version = version
        return made


class Table:
    """A table at a root. Every method looks at the head as of its call; nothing is kept but what never changes. [RD1]"""

    def __init__(self, df_path: Path, storage_options: Mapping[str, Any] | None = None) -> None:
        self._storage_options = StorageOptions(storage_options)
        self._session = Session(open_store(df_path, self._storage_options))

    def __repr__(self) -> str:
        return f"Table({self.url!r})"

    @property
    def url(self) -> str:
        """The canonical root URL."""
        return self._session.store.url

    def snapshot(self, version: int | None = None, as_of: str | dt.datetime | None = None, tag: str | None = None) -> Snapshot:
        """Exactly one committed state: the head, or the one chosen. Three requests, two more below the head. [RD2] [RD4] [RD5]

        Raises TableNotFoundError, VersionNotFoundError, SnapshotExpiredError.
        """
        return self._at(version, as_of, tag).snapshot

    def files(
        self, filter: Any = None, version: int | None = None, as_of: str | dt.datetime | None = None, tag: str | None = None
    ) -> pa.Table:
        """The live files, one row each: path, partition columns, rows, bytes, digest, added_version, job, bounds. [RD6]

        filter: a pyarrow expression on columns of the table; files that cannot hold a matching row are left out.
        """
        snapshot = self.snapshot(version, as_of, tag)
        return plan.describe_files(plan.entries_table(self._session, snapshot, self._predicate(filter, snapshot)), snapshot)

    def dataset(self, version: int | None = None, as_of: str | dt.datetime | None = None, tag: str | None = None) -> ds.Dataset:
        """The rows of exactly one snapshot for pyarrow, DuckDB, Polars and pandas; a file that is gone is an error. [RD2] [RD7]"""
        from .engine.dataset import open_dataset  # late: pyarrow.dataset loads pandas

        snapshot = self.snapshot(version, as_of, tag)
        return open_dataset(self._session, snapshot, plan.entries_table(self._session, snapshot))

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The commits, newest first, back to the oldest readable version. One request per version. [RD3]"""
        return list(_limited(self._history(), limit))

    def watermarks(self) -> dict[str, int | str]:
        """How far every source has been read. [WM1]"""
        return self._session.open().snapshot.watermarks

    def lineage(self, source: str, position: int) -> Lineage | None:
        """Which version brought a position of a source, and which live files hold it; None: no version has it. [RD9]

        The files are exact where they were written with `sources` (or with few watermarks, by `write`); elsewhere they are those that came
        with the version. For integer positions only.
        """
        return trace(self._session, source, position)

    def rewind(self, source: str, to: int | str | None, *, reason: str, keep_keys: bool = False) -> Outcome:
        """Set a source's watermark back, so that it can be read again from there; None: as if it had never been read. [WM5]

        The keys whose advances that undoes are dropped, so that their work can be done again: `dropped_keys` of the outcome. Rows that
        were read after the position stay until they are overwritten or deleted. keep_keys: drop none, where the history that tells which
        is expired. CommitConflictError if the source moves meanwhile.
        """
        return committed_or_raise(rewind(self._session, source, to, reason=reason, keep_keys=keep_keys), self.url)

    def changes(self, start_version: int, end_version: int | None = None) -> dict[str, pa.Table]:
        """The files that lie in `end_version` and not in `start_version` ("added"), and the reverse ("removed"). [RD8]"""
        head = self._session.open()
        start = read_version(self._session.store, head, start_version).snapshot
        end = read_version(self._session.store, head, end_version).snapshot if end_version is not None else head.snapshot
        if start.version > end.version:
            raise UsageError(f"changes goes forward: start_version {start.version} lies after end_version {end.version}")
        before, after = plan.differing_entries(self._session, start, end)
        return {"added": plan.describe_files(after, end), "removed": plan.describe_files(before, start)}

    def describe(self, version: int | None = None, as_of: str | dt.datetime | None = None, tag: str | None = None) -> dict[str, Any]:
        """A version in plain values, as `manifestcommit show` prints it: columns, partitioning, totals, commits. [RD2]"""
        return _describe(self.snapshot(version, as_of, tag), self.url)

    def resolve(self, job_id: str) -> Resolution:
        """What became of a job, asked from anywhere and at any time: see `resolve`. [CM23]"""
        return _resolve(self._session, job_id)

    def jobs(self) -> list[JobInfo]:
        """The jobs that left something for other processes, and what became of each: prepared, running, given up, fenced. [AB3]"""
        return list(list_jobs(self._session))

    def recover(self, *, abort: bool = False) -> JobResults:
        """Commit every prepared job that nobody has decided, or give each up; one that fails stays prepared and holds up no other. [AB3]

        For a coordinator that comes back after a crash. Others may do the same at once: each job is decided once.
        """
        return JobResults(settle_prepared(self._session, abort=abort))

    def figures(self, ends: Mapping[str, int | str] | None = None) -> TableFigures:
        """Size, age, waiting jobs and watermarks in numbers, for monitoring; also logged, and set as OpenTelemetry gauges. [WM1]

        ends: source -> its end as the caller knows it, such as {"topic:0": 12345}: `lag` tells how far the table is behind each. A source
        that the table has never read lags by all it has, counted from 0; below 0, the source ends before what the table has read of it.
        """
        found = stand(self._session, ends)
        record_table(found)
        return found

    def counts(self, *, progress: Callable[[str], None] | None = None) -> CountReport:
        """Whether all counts match: read, written and committed by each job, the running totals, and what the head lists. [OB2] [OB10]

        One request for each readable version and each manifest of the head. progress: called with what is counted next.
        """
        return compare(self._session, progress=progress)

    def doctor(self, *, progress: Callable[[str], None] | None = None) -> Report:
        """Whether the store keeps what commits rely on, found out with probes; there need be no table. [ST12]

        Some 700 requests and 85 MB. progress: called with the name of each check. Raises StoreError where nothing can be written.
        """
        return examine(self._session.store, progress=progress)

    def add_column(self, name: str, type: FieldType | pa.DataType) -> Outcome:
        """Add a nullable column; it is null in every row that is there. [SC6]"""
        kind = type
        if isinstance(type, pa.DataType):
            kind = arrow.from_arrow(pa.schema([(name, type)]), itertools.count(1).__next__).fields[0].type
        return self._alter(lambda schema, _: evolution.add_column(schema, name, kind, new_id=self._session.new_field_id))

    def rename_column(self, name: str, new_name: str) -> Outcome:
        """Rename a column; its values stay, in old files and new ones. [SC6]"""
        return self._alter(lambda schema, _: evolution.rename_column(schema, name, new_name))

    def drop_column(self, name: str) -> Outcome:
        """Drop a column; a later column of the same name does not show its values. [SC6]"""
        return self._alter(lambda schema, partition_by: evolution.drop_column(schema, name, partition_by=partition_by))

    def set_properties(self, properties: Mapping[str, str | None]) -> Outcome:
        """Set the table's properties; None takes one away. Known: `write.target-file-size-bytes`, `write.bounds-columns`. [CM9]"""
        return committed_or_raise(alter.set_properties(self._session, properties), self.url)

    def read(self, **options: Any) -> DataFrame:
        """`read_committed` of this table."""
        return read_committed(self.url, storage_options=self._storage_options, **options)

    def _at(self, version: int | None, as_of: str | dt.datetime | None, tag: str | None) -> Head:
        head = self._session.open()
        chosen = choose_version(self._session.store, head, version=version, as_of=as_of, tag=tag)
        return head if chosen is None else read_version(self._session.store, head, chosen)

    def _history(self) -> Iterator[dict[str, Any]]:
        for each in walk_back(self._session.store, self._session.open()):
            snapshot = each.snapshot
            for commit in snapshot.commits:
                yield {
                    "version": snapshot.version,
                    "committed_at": parse_moment(snapshot.committed_at),
                    "operation": commit.operation,
                    "key": commit.key,
                    "job": commit.job,
                    "reason": commit.reason,
                    "summary": _values(commit.summary),
                    "totals": _values(snapshot.totals),
                    "writer": snapshot.writer,
                }

    def _predicate(self, filter: Any, snapshot: Snapshot) -> Predicate | None:
        if filter is None or snapshot.schema is None:
            return None
        if is_spark_column(filter):
            from .spark.columns import from_column

            return from_column(filter)
        return parse_expression(filter, arrow.arrow_schema(snapshot.schema, physical=False, ids=False))

    def _alter(self, edit: alter.Editing) -> Outcome:
        return committed_or_raise(alter.edit_schema(self._session, edit), self.url)


def read_committed(
    df_path: Path,
    *,
    version: int | None = None,
    as_of: str | dt.datetime | None = None,
    tag: str | None = None,
    columns: list[str] | None = None,
    filter: Any = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A Spark DataFrame of exactly one committed snapshot; what commits later changes nothing in it. [RD2] [SP4]

    Once its files are expired and deleted it raises; it never has fewer rows. columns: the ones to read; filter: a pyarrow expression or
    a Spark Column: files that cannot match are not even handed to Spark, the rest is filtered by row. spark: the session, by default
    the active one.
    """
    from .spark.read import active_session, read_snapshot  # late: pyspark is an extra

    table = Table(df_path, storage_options)
    snapshot = table.snapshot(version, as_of, tag)
    predicate = table._predicate(filter, snapshot)
    entries = plan.entries_table(table._session, snapshot, predicate)
    return read_snapshot(
        spark or active_session(),
        table.url,
        snapshot,
        entries,
        columns=columns,
        filter=filter,
        predicate=predicate,
        storage_options=storage_options,
    )


def resolve(df_path: Path, job_id: str, *, storage_options: Mapping[str, Any] | None = None) -> Resolution:
    """What became of a job: "committed" (with .version), "not_committed", "pending", "aborted" or "forgotten". [CM23]

    "not_committed": nothing of it is in the table as of this call; a process that still runs it may commit it later, unless the fence
    has passed its birth. "pending": it is prepared, and any process may commit it or give it up. "forgotten": it began so long ago that
    the table no longer records what became of it.
    """
    return Table(df_path, storage_options).resolve(job_id)


def abort(df_path: Path, job_id: str, *, storage_options: Mapping[str, Any] | None = None) -> Resolution:
    """Give a prepared job up for good, or learn that it has committed: "aborted", or "committed" with .version. [AB4]

    Of any number of calls of `commit` and `abort`, at once and from anywhere, one decides, and all report the same. Nothing is deleted.
    """
    session = Session(open_store(df_path, storage_options))
    outcome = give_up(session, job_id)
    if outcome.kind in ("aborted", "fenced"):  # fenced: it can not commit any more, and never did
        return Resolution("aborted")
    return Resolution("committed", committed_or_raise(outcome, session.store.url).version)


def create_table(
    df_path: Path,
    schema: Any,
    *,
    partition_by: list[str] | str | None = None,
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """An empty table with this schema (a pyarrow schema or a Spark StructType), or the one that is there already. [CM13]"""
    table = Table(df_path, storage_options)
    alter.create(
        table._session,
        _schema_of(schema),
        [partition_by] if isinstance(partition_by, str) else partition_by or [],
        properties or {},
    )
    return table


def _schema_of(schema: Any) -> Schema:
    if isinstance(schema, pa.Schema):
        return arrow.from_arrow(schema, itertools.count(1).__next__)
    if hasattr(schema, "jsonValue"):
        from .core.spark_types import from_spark

        return from_spark(schema.jsonValue())
    raise UsageError(f"schema is a pyarrow.Schema or a Spark StructType, not a {type(schema).__qualname__}")


def _resolve(session: Session, job_id: str) -> Resolution:
    head = session.open()
    try:
        name = format.parse_job_id(job_id)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if name.table_id != head.snapshot.table_id:
        raise UsageError(f"job {job_id} belongs to another table than the one at {session.store.url}")
    state, version = find_job(session, head.snapshot, job_id)
    if state == "committed":
        return Resolution("committed", version)
    if state == "given_up":
        return Resolution("aborted")
    if name.birth < head.snapshot.fence:
        return Resolution("forgotten")
    return Resolution("not_committed" if read_prepared(session, job_id) is None else "pending")


def _describe(snapshot: Snapshot, url: str) -> dict[str, Any]:
    fields = snapshot.schema.fields if snapshot.schema else ()
    names = {field.id: field.name for field in fields}
    return {
        "url": url,
        "version": snapshot.version,
        "committed_at": parse_moment(snapshot.committed_at).isoformat(),
        "table_id": snapshot.table_id,
        "format_version": snapshot.format_version,
        "writer": snapshot.writer,
        "files": snapshot.totals.files,
        "rows": snapshot.totals.rows,
        "bytes": snapshot.totals.bytes,
        "partition_by": [names[each] for each in snapshot.partition_by],
        "sources": len(snapshot.watermarks),
        "streams": {name: {"query": each.query, "batch": each.batch, "version": each.version} for name, each in snapshot.streams.items()},
        "oldest_readable_version": snapshot.expired,
        "fence": snapshot.fence,
        "tags": {name: tag.version for name, tag in snapshot.tags.items()},
        "properties": snapshot.properties,
        "columns": [{"id": f.id, "name": f.name, "type": type_text(f.type), "nullable": f.nullable} for f in fields],
        "commits": [
            {
                "job": commit.job,
                "operation": commit.operation,
                "key": commit.key,
                "touched": [describe_touch(snapshot, touch) for touch in commit.touched],
                "summary": _values(commit.summary),
            }
            for commit in snapshot.commits
        ],
    }


def _values(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields by name, zeros included, unknown ones left out."""
    return {name: value for name, value in msgspec.structs.asdict(struct).items() if name != "extra"}


def _limited(rows: Iterator[dict[str, Any]], limit: int | None) -> Iterator[dict[str, Any]]:
    for count, row in enumerate(rows):
        if limit is not None and count >= limit:
            return
        yield row
