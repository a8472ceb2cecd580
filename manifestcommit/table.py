"""Tables and readers: `Table`, `read_committed`, `resolve`, `create_table`. [RD1]-[RD8]

Not here: writing (job), the protocol (engine).
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from .compaction import compact, planned
from .core import arrow, evolution
from .core.compaction import DEFAULT_MAX_BYTES
from .core.expression import parse_expression
from .core.predicate import Predicate
from .core.retention import Policy
from .core.schema import FieldType, Schema
from .core.snapshot import Snapshot
from .engine import alter, plan
from .engine import gc as gc_engine
from .engine.adopt import Adoption
from .engine.adopt import adopt as _adopt
from .engine.compact import Aim, Compaction, merge_manifests
from .engine.counts import CountReport, compare
from .engine.describe import describe, values
from .engine.gc import GcReport
from .engine.head import Head, read_version, walk_back
from .engine.lineage import Lineage, rewind, trace
from .engine.outcome import JobResults, Outcome, committed_or_raise
from .engine.prepare import JobInfo, give_up, list_jobs, settle_prepared
from .engine.resolve import Resolution as Resolution  # the command names it
from .engine.resolve import resolve_job
from .engine.rollback import rollback
from .engine.session import Session
from .engine.standing import TableFigures, stand
from .engine.tags import tag, untag
from .engine.times import choose_version, parse_age, parse_moment
from .engine.verify import VerifyReport, verify
from .errors import UsageError
from .job import Path, is_spark_column
from .progress import Progress
from .store import StorageOptions, open_store
from .store.doctor import Report, examine
from .table_rows import RowChanges
from .telemetry import record_table

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession


class Table(RowChanges):
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

        filter: a pyarrow expression on columns of the table; files that cannot hold a matching row are left out. No order is promised:
        `sort_by` what you need. [RD41]
        """
        snapshot = self.snapshot(version, as_of, tag)
        entries = plan.entries_table(self._session, snapshot, self._predicate(filter, snapshot), in_order=False)
        return plan.describe_files(entries, snapshot)

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

    def rollback(self, version: int | None = None, *, tag: str | None = None, reason: str) -> Outcome:
        """Make the table what it was at a readable version, in a commit of its own; nothing is deleted, the history stays. [CF13]

        Rows, columns, watermarks, batches of streams and keys go back together, so that what was done since is done again by a rerun:
        `dropped_keys` of the outcome. CommitConflictError if anything else is committed meanwhile. A rollback can be rolled back.
        """
        return committed_or_raise(rollback(self._session, version, tag=tag, reason=reason), self.url)

    def tag(self, name: str, version: int | None = None, keep_for: str | dt.timedelta | None = None) -> Outcome:
        """Keep a version readable under this name, by default the head; a tag of that name moves. [GC10] [RD5]

        keep_for: a timedelta or a text such as "30d", after which gc may take tag and version; by default they stay until `untag`.
        """
        return committed_or_raise(tag(self._session, name, version, keep_for=keep_for), self.url)

    def untag(self, name: str) -> Outcome:
        """Take a tag away; its version is kept no longer than others are. VersionNotFoundError if there is none of that name. [GC10]"""
        return committed_or_raise(untag(self._session, name), self.url)

    def changes(self, start_version: int, end_version: int | None = None) -> dict[str, pa.Table]:
        """The files that lie in `end_version` and not in `start_version` ("added"), and the reverse ("removed"). [RD8]"""
        head = self._session.open()
        start = read_version(self._session.store, head, start_version).snapshot
        end = read_version(self._session.store, head, end_version).snapshot if end_version is not None else head.snapshot
        if start.version > end.version:
            raise UsageError(f"changes lead from an older version to a newer one, and version {start.version} is newer than {end.version}")
        before, after = plan.differing_entries(self._session, start, end)
        return {"added": plan.describe_files(after, end), "removed": plan.describe_files(before, start)}

    def describe(self, version: int | None = None, as_of: str | dt.datetime | None = None, tag: str | None = None) -> dict[str, Any]:
        """A version in plain values, as `manifestcommit show` prints it: columns, partitioning, totals, commits. [RD2]"""
        return describe(self.snapshot(version, as_of, tag), self.url)

    def resolve(self, job_id: str) -> Resolution:
        """What became of a job, asked from anywhere and at any time: see `resolve`. [CM23]"""
        return resolve_job(self._session, job_id)

    def jobs(self) -> list[JobInfo]:
        """The jobs that left something for others, and what became of each: prepared, published, running, given up, fenced. [AB3]"""
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

    def verify(self, *, deep: bool = False, progress: Callable[[str], None] | None = None) -> VerifyReport:
        """Whether the chain is whole and everything that readable versions list is there as listed; `findings` name what is not. [RD10]

        One list of the root and one request per readable version and manifest. deep: reads every data file, too: digest, footer, rows,
        partition, statistics. Changes nothing; damage is reported (`is_sound`), not raised. progress: called with what is looked at next.
        """
        return verify(self._session, deep=deep, progress=progress)

    def gc(
        self,
        *,
        grace: str | dt.timedelta = "24h",
        keep_versions: int = 1,
        keep_for: str | dt.timedelta = "7d",
        keep_keys: int = 10_000,
        foreign: bool = False,
        dry_run: bool = False,
        spark: Any = None,
        progress: Callable[[str], None] | None = None,
    ) -> GcReport | pa.Table | DataFrame:
        """Expire what is older and delete what nothing needs any more: see `gc`. [GC1]-[GC9]"""
        for name, least, number in (("keep_versions", 1, keep_versions), ("keep_keys", 0, keep_keys)):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise UsageError(f"{name} is a number from {least} on, not {number!r}")
        ages = {"grace_s": parse_age(grace, "grace"), "keep_for_s": parse_age(keep_for, "keep_for")}
        policy = Policy(keep_versions=keep_versions, keep_keys=keep_keys, **ages)
        made = gc_engine.plan if dry_run else gc_engine.run
        by: gc_engine.Comparison = gc_engine.ALONE
        if spark is not None:
            from .spark.gc import on_spark  # late: pyspark is an extra

            by = on_spark(spark, self.url, self._storage_options)
        return made(self._session, policy, foreign=foreign, by=by, tell=progress or (lambda _: None))

    def compact(
        self,
        *,
        target_file_size: int | None = None,
        where: Any = None,
        sort_by: list[str] | str | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        only_manifests: bool = False,
        dry_run: bool = False,
        spark: SparkSession | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Compaction | pa.Table:
        """Rewrite small files together, partition by partition, and merge small manifests; no row, key or watermark changes. [GC11] [GC16]

        Files below three quarters of the target (by default the table's own file size) become files of about the target. Commits of
        others may go on: appends never collide with it, and what others replace or remove meanwhile is left as it is (`lost`). Each
        commit stays done, and a run after a crash goes on. The old files stay until gc takes them.
        where: which partitions: a pyarrow expression, a Spark Column or Spark SQL on partition columns. sort_by: sort the rows of each new
        file by these columns. max_bytes: rewrite no more in this run; `left_groups` tells what the next one will do. only_manifests:
        read no data file, and need no Spark. dry_run: change nothing, and return the groups as a table. spark: by default the active
        session.
        """
        aim, tell = Aim(target=target_file_size, max_bytes=max_bytes), progress or (lambda _: None)
        if dry_run:
            return planned(self._session, aim, where=where, spark=spark, only_manifests=only_manifests)
        if only_manifests:
            return merge_manifests(self._session, tell=tell)
        options: dict[str, Any] = {"spark": spark, "storage_options": self._storage_options}
        return compact(self._session, aim, where=where, sort_by=sort_by, tell=tell, **options)

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
        """Set the table's properties; None takes one away. [CM9] [DF11]

        Known: `write.target-file-size-bytes`; `write.bounds-columns`, how many columns have bounds; `write.bloom-filter-columns`, names
        split by commas: new files carry Bloom filters of these, by which Spark and DuckDB pass over row groups that lack a value.
        """
        return committed_or_raise(alter.set_properties(self._session, properties), self.url)

    def read(self, **options: Any) -> DataFrame:
        """`read_committed` of this table."""
        return read_committed(self.url, storage_options=self._storage_options, **options)

    def adopt(self, *, partition_by: list[str] | str | None = None) -> Adoption:
        """Make this folder of Parquet files a table: see `adopt`. [AF2]"""
        names = [partition_by] if isinstance(partition_by, str) else partition_by
        with Progress(f"reading the footers of {self.url}") as progress:
            return _adopt(self._session, partition_by=names, progress=progress)

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
                    "restored": commit.restored,
                    "summary": values(commit.summary),
                    "totals": values(snapshot.totals),
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
    columns: list[str] | str | None = None,
    filter: Any = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A Spark DataFrame of exactly one committed snapshot; what commits later changes nothing in it. [RD2] [SP4]

    Once its files are expired and deleted it raises; it never has fewer rows. columns: the ones to read; filter: a pyarrow expression or
    a Spark Column: files that cannot match are not even handed to Spark, the rest is filtered by row. Where tasks read with pyarrow (on a
    store that Spark's JVM does not reach) both must be said here: a later `select` or `where` reads all the same. spark: the session, by
    default the active one.
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
    has passed its birth. "pending": it is prepared, or was published to others that commit at the same time, and any process may commit it
    or give it up. "forgotten": it began so long ago that the table no longer records what became of it.
    """
    return Table(df_path, storage_options).resolve(job_id)


def abort(df_path: Path, job_id: str, *, storage_options: Mapping[str, Any] | None = None) -> Resolution:
    """Give a prepared or published job up for good, or learn that it has committed: "aborted", or "committed" with .version. [AB4]

    Of any number of calls of `commit` and `abort`, at once and from anywhere, one decides, and all report the same. Nothing is deleted.
    """
    session = Session(open_store(df_path, storage_options))
    outcome = give_up(session, job_id)
    if outcome.kind in ("aborted", "fenced"):  # fenced: it can not commit any more, and never did
        return Resolution("aborted")
    return Resolution("committed", committed_or_raise(outcome, session.store.url).version)


def gc(
    df_path: Path,
    *,
    grace: str | dt.timedelta = "24h",
    keep_versions: int = 1,
    keep_for: str | dt.timedelta = "7d",
    keep_keys: int = 10_000,
    foreign: bool = False,
    dry_run: bool = False,
    spark: SparkSession | Literal[True] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> GcReport | pa.Table | DataFrame:
    """Delete what no readable version lists and no job that can still commit has written, and nothing else, whatever runs beside it.

    Readable stay the last keep_versions, those that were the newest one within keep_for, and tagged ones; jobs that began longer than
    `grace` ago are given up (JobFencedError), so it must be longer than the longest job; prepared ones have 7 days. What is dead now is
    gone after a second run a grace period later. keep_keys: how many of the last keys are remembered at least. foreign: delete files,
    too, that something else wrote below the root longer than `grace` ago and that no version lists, up to 10,000 in a run, and never
    hidden ones (`_SUCCESS`). dry_run: write and delete nothing, and return what would go, and what is foreign, as a table of names,
    bytes, reasons and actions.

    One process needs eight bytes for each live file. spark: a session, or True for the active one, whose tasks list, compare and delete
    where even that, or the time that one process takes, is too much; the plan of a dry run is a Spark DataFrame then. [GC1]-[GC9] [GC13]
    [GC18] [IV7]
    """
    return Table(df_path, storage_options).gc(
        grace=grace,
        keep_versions=keep_versions,
        keep_for=keep_for,
        keep_keys=keep_keys,
        foreign=foreign,
        dry_run=dry_run,
        spark=spark,
    )


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


def adopt(
    df_path: Path,
    *,
    partition_by: list[str] | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Adoption:
    """Make a table of a folder of Parquet files, where they are, in one commit; no file is rewritten, moved or deleted. [AF2]

    partition_by: by default the columns of the `name=value` folders, typed as Spark infers them; a column that stands in folders only need
    not be in the files. The table's columns are the union of the files'. Hidden and temporary files are passed over and reported; a file
    that is no Parquet file, or one whose columns do not unite with the others', is an error that names it, and nothing was done. Where
    Spark's streaming sink wrote the folder, exactly the files of its log are taken; a table of another format is refused.
    Run again after a crash it completes what was begun; run again after that, it does nothing. Files that appear later are not listed.
    """
    return Table(df_path, storage_options).adopt(partition_by=partition_by)


def _schema_of(schema: Any) -> Schema:
    if isinstance(schema, pa.Schema):
        return arrow.from_arrow(schema, itertools.count(1).__next__)
    if hasattr(schema, "jsonValue"):
        from .core.spark_types import from_spark

        return from_spark(schema.jsonValue())
    raise UsageError(f"schema is a pyarrow.Schema or a Spark StructType, not a {type(schema).__qualname__}")


def _limited(rows: Iterator[dict[str, Any]], limit: int | None) -> Iterator[dict[str, Any]]:
    for count, row in enumerate(rows):
        if limit is not None and count >= limit:
            return
        yield row
