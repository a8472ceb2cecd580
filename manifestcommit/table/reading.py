"""Reading a table: `Table`'s schema, versions, files, rows and history, and what callers mean by a
condition: SQL, a pyarrow expression or a Spark Column. [RD1]-[RD9]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import pyarrow as pa
import pyarrow.compute as pc

from ..commits.two_phase import JobInfo, Resolution, list_jobs, resolve_job
from ..errors import UsageError
from ..filter.predicate import Predicate
from ..filter.sql_syntax import NotUnderstoodError
from ..format import evolution
from ..format.fields import arrow_metadata, mark_of
from ..format.snapshot import Snapshot
from ..format.values import arrow_schema
from ..job import Path
from ..log.table_context import TableContext, gate
from ..log.version_chain import Head, choose_version, read_version, walk_back
from ..operations import describe as figures
from ..operations.describe import Lineage, TableMetrics, values
from ..operations.verify import VerifyReport, verify
from ..rows.clauses import Condition as RowsRead
from ..rows.clauses import evaluating, needs_spark, running_session, session_of, shown, understand
from ..runtime import validation
from ..runtime.environment import Env
from ..runtime.validation import checked, optional, part_of, whole
from ..scan import planning
from ..store import StorageOptions, open_store
from ..telemetry import record_table
from .history import History

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow.dataset as ds
    from pyspark.sql import Column, DataFrame, SparkSession

    from ..report.page import Report

Condition: TypeAlias = "str | pc.Expression | Column"
Moment: TypeAlias = str | dt.datetime
Names: TypeAlias = list[str] | str

# A setting of a session -> the sign in a text that it gives another meaning, and what to write.
_OTHER_MEANINGS = {
    "spark.sql.ansi.doubleQuotedIdentifiers": ('"', "`…` for names and '…' for texts"),
    "spark.sql.parser.escapedStringLiterals": ("\\", "a pyarrow expression"),
}
_HIDDEN = {
    '"': re.compile(r"'(?:[^'\\]|\\.|'')*'|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/", re.DOTALL),
    "\\": re.compile(r"`(?:[^`]|``)*`"),
}


def check_meaning(name: str, texts: Iterable[Any], spark: SparkSession | None = None) -> None:
    """UsageError, which names the argument, where a setting of the session, by default the active
    one, gives SQL another meaning than this process does. Anything but texts passes. [RC8]"""
    ctx = spark if spark is not None else running_session()
    if ctx is None:
        return
    for text in texts:
        for setting, (sign, instead) in _OTHER_MEANINGS.items():
            if not isinstance(text, str) or sign not in _HIDDEN[sign].sub("", text):
                continue
            if str(ctx.conf.get(setting, "false")).lower() == "true":
                why = f"with {setting}=true Spark reads {sign} in it otherwise than this process"
                why = f"{why}; nothing was done. Give {instead}"
                raise UsageError(why, argument=name, given=shown(text))


def without_spark(
    name: str,
    condition: Any,
    snapshot: Snapshot,
    spark: SparkSession | None = None,
    env: Env | None = None,
) -> tuple[Any, Predicate | None]:
    """The condition and what planning may take from it, where this process evaluates it: SQL as a
    pyarrow expression. What only Spark can evaluate, as it is and without a predicate, where a
    session is active. UsageError where it is not a condition, or none is. env: tells the time to a
    read, which evaluates it once. [RC8]"""
    if not isinstance(condition, str | pc.Expression):
        return condition, None
    check_meaning(name, [condition], spark)
    session = session_of(spark, None if env is None else env.now_us(), falls_back=True)
    try:
        found = understand(condition, snapshot.schema, name, session)
    except NotUnderstoodError as error:
        if spark is None and running_session() is None:
            raise needs_spark(condition, name, error) from error
        return condition, None
    return found.form if isinstance(condition, str) else condition, found.predicate


def is_for_spark(condition: Any) -> bool:
    """Whether only Spark can evaluate it: SQL, or a Spark Column."""
    return not (condition is None or isinstance(condition, pc.Expression))


def predicate_of(
    condition: Any, snapshot: Snapshot, spark: SparkSession | None = None
) -> Predicate | None:
    """What planning may take from the condition; None: all rows. UsageError where it is none over
    this snapshot's columns. [RD6]"""
    if condition is None:
        return None
    if isinstance(condition, pc.Expression):
        return understand(condition, snapshot.schema, "filter").predicate
    check_meaning("filter", [condition], spark)
    from ..spark.conditions import understand as by_spark

    return by_spark(session(spark), condition, snapshot.schema, "filter").predicate


def session(spark: SparkSession | None) -> SparkSession:
    """The one given, the active one, or a new one."""
    from ..spark.dataframe import active_session  # late: pyspark is an extra

    return spark or active_session()


# twice as many as pyarrow has threads for requests; all rows come into memory anyway
_FILES_AT_ONCE = 16


@part_of("Table")
class TableReads:
    """The methods of a table that read it and change nothing."""

    @checked()
    def __init__(self, path: Path, storage_options: Mapping[str, Any] | None = None) -> None:
        """Name a table; nothing is read before a method is called.

        Args:
            path: the table path: a local path, or a URL such as `s3://bucket/lake/flights`.
            storage_options: what reaches the object store, as for s3fs, adlfs or gcsfs; by default
                the environment. They appear in no error, log or `repr`.

        Raises:
            UsageError: `path` is no path or URL of a store that is supported.
        """
        self._storage_options = StorageOptions(storage_options)
        self._ctx = TableContext(open_store(path, self._storage_options))

    def __repr__(self) -> str:
        # in a traceback of its own constructor
        return f"Table({self.url!r})" if hasattr(self, "_ctx") else "Table(…)"

    @property
    def url(self) -> str:
        """Return the canonical URL of the table path; no request is sent."""
        return self._ctx.store.url

    @property
    def version(self) -> int:
        """Return the number of the newest version, as of this call.

        Returns:
            A number from 1 on.

        Spec: RD1.
        """
        return self._ctx.open().snapshot.version

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the newest version, as of this call.

        Returns:
            A pyarrow schema without metadata; without columns, where the table never had data.

        Spec: RD1, SC1.
        """
        return _arrow_schema(self._ctx.open().snapshot)

    @checked()
    def snapshot(
        self, version: int | None = None, as_of: Moment | None = None, tag: str | None = None
    ) -> Snapshot:
        """Read exactly one committed state of the table.

        Commits that follow change nothing in it. Three requests, two more below the newest version.

        Returns:
            The snapshot: the members of the version's object, as the specification has them.

        Spec: RD2, RD4, RD5, CM27.
        """
        return self._at(version, as_of, tag).snapshot

    @checked()
    def files(
        self,
        filter: Condition | None = None,
        version: int | None = None,
        as_of: Moment | None = None,
        tag: str | None = None,
    ) -> pa.Table:
        """List the live files of one version.

        No order is guaranteed: sort by the columns that you need.

        Args:
            filter: a condition on the table's columns: a pyarrow expression, a Spark Column, or
                SQL. Files that cannot hold a matching row are left out; by default none.

        Returns:
            One row for each file: path, partition columns, rows, bytes, digest, added_version, job
            and bounds. A partition column with one of these names is called `partition.<name>`.

        Raises:
            UsageError: `filter` names a column that the table does not have, or cannot be
                understood, or needs Spark while no session is active.

        Spec: RD6, RD41.
        """
        snapshot = self.snapshot(version, as_of, tag)
        filter, predicate = without_spark("filter", filter, snapshot, env=self._ctx.env)
        if is_for_spark(filter):
            predicate = predicate_of(filter, snapshot)
        entries = planning.entries_table(self._ctx, snapshot, predicate, in_order=False)
        return planning.describe_files(entries, snapshot)

    @checked()
    def partitions(
        self, version: int | None = None, as_of: Moment | None = None, tag: str | None = None
    ) -> pa.Table:
        """List the partitions of one version that have live files.

        No order is guaranteed. A partition whose files hold no rows is listed with `rows` 0.

        Returns:
            One row for each partition: its columns' values, null among them, and how many files,
            rows and bytes it has. A partition column called files, rows or bytes is called
            `partition.<name>`. A table that is not partitioned is one partition without columns.

        Spec: PT1, RD6.
        """
        snapshot = self.snapshot(version, as_of, tag)
        entries = planning.entries_table(self._ctx, snapshot, in_order=False)
        return planning.describe_partitions(entries, snapshot)

    @checked()
    def dataset(
        self, version: int | None = None, as_of: Moment | None = None, tag: str | None = None
    ) -> ds.Dataset:
        """Open one version as a pyarrow dataset, which DuckDB, Polars and pandas read, too.

        It has exactly the rows of that version, whatever is committed later; a file that is gone
        is an error when it is read, never fewer rows. Its own methods take columns and filters.

        Returns:
            A `pyarrow.dataset.Dataset`. Its schema carries the version, so that an overwrite with
            its rows conflicts with every commit since.

        Example:
            `table.dataset().to_table(columns=["flight"], filter=pyarrow.compute.field("day") == d)`

        Spec: RD2, RD7, CF17.
        """
        from ..scan.arrow_dataset import open_dataset  # late: pyarrow.dataset loads pandas

        snapshot = self._rows_of(version, as_of, tag)
        return open_dataset(self._ctx, snapshot, planning.entries_table(self._ctx, snapshot))

    @checked()
    def to_arrow(
        self,
        columns: Names | None = None,
        filter: Condition | None = None,
        version: int | None = None,
        as_of: Moment | None = None,
        tag: str | None = None,
    ) -> pa.Table:
        """Read the rows of one version into memory, as a pyarrow table.

        Files and row groups that cannot hold a matching row are not read. No order is guaranteed.

        Args:
            columns: the columns to read, in this order; by default all.
            filter: which rows: a pyarrow expression, a Spark Column, or SQL, with Spark's meaning;
                by default all. Columns, and SQL that only Spark can evaluate, are evaluated by
                Spark in the active session.

        Returns:
            A `pyarrow.Table`. Its schema carries the version, as that of `dataset` does.

        Raises:
            UsageError: a column is not the table's, or `filter` cannot be understood, or needs
                Spark while no session is active.

        Example:
            `table.to_arrow(["day", "flight"], filter=pyarrow.compute.field("flight") == 1545)`

        Spec: RD2, RD7, CF17.
        """
        from ..scan.arrow_dataset import open_dataset  # late: pyarrow.dataset loads pandas

        snapshot = self._rows_of(version, as_of, tag)
        names = chosen(snapshot, columns)
        given = filter
        filter, predicate = without_spark("filter", filter, snapshot, env=self._ctx.env)
        if is_for_spark(filter):
            return self._through_spark(names, filter, snapshot)
        entries = planning.entries_table(self._ctx, snapshot, predicate)
        dataset = open_dataset(self._ctx, snapshot, entries)
        with evaluating(given, "filter:") if given is not None else contextlib.nullcontext():
            return dataset.to_table(columns=names, filter=filter, fragment_readahead=_FILES_AT_ONCE)

    @checked()
    def to_pandas(
        self,
        columns: Names | None = None,
        filter: Condition | None = None,
        version: int | None = None,
        as_of: Moment | None = None,
        tag: str | None = None,
    ) -> pandas.DataFrame:
        """Read the rows of one version into memory, as a pandas DataFrame.

        Other arguments are as for `to_arrow`. Values become what `pyarrow.Table.to_pandas` makes of
        them. pandas keeps no metadata: give `write` the version with `based_on` if these rows are
        to replace others.

        Returns:
            A `pandas.DataFrame`.

        Raises:
            UsageError: pandas is not installed; or as for `to_arrow`.

        Spec: RD2, RD7.
        """
        with _needed("pandas", "to_pandas"):
            import pandas  # noqa: F401  # before anything is read
        rows = self.to_arrow(columns, filter, version, as_of, tag)
        try:
            return rows.to_pandas()
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise UsageError(
                f"{self.url}: pandas cannot hold a value: {error}. Use Table.to_arrow, and for "
                "days before the year 1 or after 9999 its to_pandas(date_as_object=False)."
            ) from error

    @checked()
    def to_polars(
        self,
        columns: Names | None = None,
        version: int | None = None,
        as_of: Moment | None = None,
        tag: str | None = None,
    ) -> polars.LazyFrame:
        """Open one version as a LazyFrame of Polars; nothing is read before it is collected.

        It reads with Polars' own Parquet reader where that shows the same rows, and through
        `dataset` elsewhere, as `duckdb` does. `polars.from_arrow` makes a DataFrame of what
        `to_arrow` returns. Polars keeps no metadata: give `write` the version with `based_on` if
        these rows are to replace others.

        Args:
            columns: the columns to read, in this order; by default all.

        Returns:
            A `polars.LazyFrame`.

        Raises:
            UsageError: Polars is not installed, or a column is not the table's.

        Example:
            `table.to_polars().filter(polars.col("flight") == 1545).collect()`

        Spec: RD2, RD7, RD42.
        """
        with _needed("polars", "to_polars"):
            import polars  # noqa: F401  # before anything is read
        from ..scan.engine_readers import polars_frame  # late: Polars is not always there

        snapshot = self._rows_of(version, as_of, tag)
        names = chosen(snapshot, columns)
        frame = polars_frame(self._ctx, snapshot)
        return frame if names is None else frame.select(names)

    @checked()
    def duckdb(
        self,
        connection: duckdb.DuckDBPyConnection | None = None,
        version: int | None = None,
        as_of: Moment | None = None,
        tag: str | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """Open one version as a relation of DuckDB, which reads it with its own Parquet reader.

        It has exactly the rows, names and types of `dataset`. DuckDB reads the listed files itself
        where this library wrote them, on a file system, and their types are DuckDB's: up to 10,000
        of them, or 1,000 of a partitioned table. Everything else goes through `dataset`, which
        skips partitions before it opens a file. A file that is gone is an error of DuckDB that
        names it, never fewer rows.

        Args:
            connection: DuckDB's connection that the relation belongs to; by default the one of the
                module `duckdb`.

        Returns:
            A `duckdb.DuckDBPyRelation`; `create_view` gives it a name in SQL. DuckDB keeps no
            metadata: give `write` the version with `based_on` if its rows are to replace others.

        Raises:
            UsageError: DuckDB is not installed, or the table has no columns yet.

        Example:
            `table.duckdb(connection).aggregate("day, count(*)")`

        Spec: RD2, RD42.
        """
        with _needed("duckdb", "duckdb"):
            import duckdb
        from ..scan.engine_readers import duckdb_relation  # late: DuckDB is not always there

        snapshot = self._rows_of(version, as_of, tag)
        connection = duckdb.connect(":default:") if connection is None else connection
        return duckdb_relation(self._ctx, snapshot, connection)

    @checked()
    def read(
        self,
        *,
        version: int | None = None,
        as_of: Moment | None = None,
        tag: str | None = None,
        columns: Names | None = None,
        filter: Condition | None = None,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Read one version as a Spark DataFrame, as the function `read_committed` does.

        Other arguments are as for `read_committed`.

        Returns:
            A `pyspark.sql.DataFrame`, as `read_committed` returns it.

        Spec: RD2, SP4, CF17.
        """
        return self._dataframe(self._rows_of(version, as_of, tag), columns, filter, spark)

    @overload
    def changed_rows(
        self,
        start_version: int,
        end_version: int | None = ...,
        *,
        on: Names | None = ...,
        columns: Names | None = ...,
        spark: None = ...,
    ) -> pa.RecordBatchReader: ...

    @overload
    def changed_rows(
        self,
        start_version: int,
        end_version: int | None = ...,
        *,
        on: Names | None = ...,
        columns: Names | None = ...,
        spark: SparkSession,
    ) -> DataFrame: ...

    @checked(start_version=whole(0), on=optional(validation.names))
    def changed_rows(
        self,
        start_version: int,
        end_version: int | None = None,
        *,
        on: Names | None = None,
        columns: Names | None = None,
        spark: SparkSession | None = None,
    ) -> pa.RecordBatchReader | DataFrame:
        """Read the rows that were inserted, deleted and updated after one version, up to another.

        Applied to the rows of `start_version` they give exactly the rows of `end_version`, in the
        columns of `end_version`. What a version rewrote unchanged is no change, so compaction has
        none; an overwrite has what really differs, and a rollback what it took back and restored.
        Rows come version by version, within a version in no particular order, and are read as they
        are asked for: memory holds a batch, and up to 64 MB of rows of a version that rewrote
        files; more of these, as many as differ, wait in unnamed temporary files. Rows with one key
        are held together.

        Args:
            start_version: the version whose rows are known already: its own changes are not read. 0
                reads from the beginning of the table.
            end_version: the last version whose changes are read; by default the newest.
            on: the columns of a key, as for `merge`. Where a version takes away one row with a key
                and brings one, they are the two images of an update; by default, and for other
                rows, they are a deletion and an insertion.
            columns: the columns to compare and to read, in this order; by default all. A change in
                others is none.
            spark: a session whose tasks read and compare, one version in one task where it rewrote
                files; by default this process does.

        Returns:
            A `pyarrow.RecordBatchReader`, with `spark` a `pyspark.sql.DataFrame`, of the columns,
            and of `_change_type` ("insert", "delete", "update_preimage" or "update_postimage"),
            `_commit_version` and `_commit_timestamp`.

        Raises:
            UsageError: `start_version` is newer than `end_version`; a column is not the table's, or
                has the name of one of those three; rows cannot be distinguished by `on`.
            SnapshotExpiredError: a version from `start_version` on was expired; it names the oldest
                one from which changes can be read.
            SchemaMismatchError: files of a version between cannot be read as the columns of
                `end_version`, which a rollback brought back.

        Example:
            `table.changed_rows(41, 45, on="id").read_all()`

        Spec: CH1, CH2, CH3, CH4.
        """
        from ..rows.read_changes import plan_changes, read_changes  # late: rarely used

        plan = plan_changes(self._ctx, start_version, end_version, on=on, columns=columns)
        if spark is not None:
            from ..spark.dataframe import changes_frame  # late: pyspark is an extra

            return changes_frame(spark, self._ctx.store.url, plan, self._storage_options)
        return read_changes(self._ctx, plan)

    @checked()
    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """List the commits, newest first, back to the oldest readable version.

        Args:
            limit: at most so many commits; by default all. One request for each version.

        Returns:
            A list, which prints as a table, of one dict for each commit: version, committed_at,
            operation, key, job, reason, message, metadata, author (a dict of what is known of
            user, host, program and software), restored, joint, summary, totals and writer. joint
            is None, or says of a commit of several tables which table decided it (`decided_by`), in
            which attempt, and with which `partners`: path -> version, None where only the table
            that decided knows it; a member names only that table.

        Spec: RD3, OB15.
        """
        found = History(itertools.islice(self._history(), limit))
        found.url = self.url
        return found

    def constraints(self) -> dict[str, str]:
        """List the constraints of the table.

        Returns:
            Name -> the SQL condition that no row violates, with the columns' names of now.

        Spec: CK1.
        """
        snapshot = self._ctx.open().snapshot
        return gate().texts_of(snapshot) if snapshot.constraints else {}

    def watermarks(self) -> dict[str, int | str]:
        """Return how far every source has been read, as of this call.

        Returns:
            Source -> position: the end of the last range that was committed.

        Spec: WM1.
        """
        return self._ctx.open().snapshot.watermarks

    @checked()
    def lineage(self, source: str, position: int) -> Lineage | None:
        """Find the version that brought a position of a source, and the live files that hold it.

        The files are exact where they were written with `sources` (or with few watermarks, by
        `write`); elsewhere they are those that came with the version.

        Args:
            source: the source's name.
            position: a whole number; positions that are texts have no order.

        Returns:
            The version and its files; None: no version has the position.

        Raises:
            UsageError: the source's positions are texts.

        Spec: RD9.
        """
        return figures.trace(self._ctx, source, position)

    @checked()
    def changed_files(
        self, start_version: int, end_version: int | None = None
    ) -> dict[str, pa.Table]:
        """Compare the files of two versions.

        Args:
            start_version: the older version.
            end_version: the newer version; by default the newest.

        Returns:
            The files, as `files` describes them, that are in `end_version` only ("added"), and
            those that are in `start_version` only ("removed").

        Raises:
            UsageError: `start_version` is newer than `end_version`.

        Spec: RD8.
        """
        head = self._ctx.open()
        start = read_version(self._ctx.store, head, start_version).snapshot
        if end_version is not None:
            head = read_version(self._ctx.store, head, end_version)
        end = head.snapshot
        if start.version > end.version:
            newer = f"version {start.version} is newer than {end.version}"
            raise UsageError(f"changes lead from an older version to a newer one, and {newer}")
        before, after = planning.differing_entries(self._ctx, start, end)
        added, removed = planning.describe_files(after, end), planning.describe_files(before, start)
        return {"added": added, "removed": removed}

    @checked()
    def describe(
        self, version: int | None = None, as_of: Moment | None = None, tag: str | None = None
    ) -> dict[str, Any]:
        """Return one version in plain values, as `manifestcommit describe --json` prints it.

        Returns:
            Columns, partitioning, totals, commits, properties and tags, by name; `joint` as in
            `history`.

        Spec: RD2.
        """
        return figures.describe(self.snapshot(version, as_of, tag), self.url)

    def jobs(self) -> list[JobInfo]:
        """List the jobs that left something for others, and what became of each.

        Returns:
            The jobs that are prepared, published, running, committed, aborted or fenced. One that
            was prepared by `Transaction.prepare` names its tables in `together`.

        Spec: AB3.
        """
        return list(list_jobs(self._ctx))

    @checked()
    def resolve(self, job_id: str) -> Resolution:
        """Return what became of a job, from any process and at any time.

        Args:
            job_id: the job's id, as `OutcomeUnknownError`, `Job.id` and `jobs` name it.

        Returns:
            A text: "committed" (with `version`), by itself or, while it was staged, by another job
            with its key; "not_committed": nothing of it is in the table as of this call, and a
            process that still runs it may commit it later, unless it is fenced;
            "pending": it is prepared, or was published to others that commit at the same time, and
            any process may commit or abort it; "aborted"; "fenced": it began so long ago that it
            cannot commit any more, and never did; or "forgotten": as well, and whether it did is
            not known any more, since those versions have expired. `jobs` says the same.

        Raises:
            UsageError: the id is not of a job of this table.

        Fenced, it costs a request for each version since the job began.

        Spec: CM23, CK5.
        """
        return resolve_job(self._ctx, job_id)

    @checked()
    def metrics(self, ends: Mapping[str, int | str] | None = None) -> TableMetrics:
        """Measure size, age, waiting jobs and watermarks, for monitoring.

        The numbers are also logged, and set as OpenTelemetry gauges.

        Args:
            ends: source -> its end as the caller knows it, such as {"topic:0": 12345}: `lag` of the
                result is how far the table is behind each. A source that the table has never read
                lags by all it has, counted from 0; below 0, the source ends before what the table
                has read of it. By default there is no lag.

        Returns:
            The numbers.

        Spec: WM1.
        """
        found = figures.table_metrics(self._ctx, ends)
        record_table(found)
        return found

    @checked(path=optional(validation.file_name), gc=validation.flag, last=whole(1))
    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        last: int = 200,
        gc: bool = False,
        ends: Mapping[str, int | str] | None = None,
    ) -> Report:
        """Describe the table in one HTML page: growth, partitions, file sizes, watermarks, commits.

        The page has no script, needs no server and no network, and shows in notebooks. Names and
        texts of the table are escaped and shortened. Nothing is changed. Memory and the page's
        size are bounded, whatever the table's size.

        Args:
            path: also write the page to this file, which is replaced if it is there; by default no
                file is written.
            last: read the newest versions, at most so many: one request for each; by default 200.
                Besides, one request for each manifest, 1,000 at most, and for the objects of jobs.
            gc: with what gc would delete by its default retention, which lists the whole store; by
                default False.
            ends: as for `metrics`, for the lag of each source.

        Returns:
            The report: its page is `html`, and `save` writes it.

        Raises:
            UsageError: Jinja2, of the extra `report`, is not installed, or the file cannot
                be written.
            CorruptMetadataError: an object of the table is damaged.

        Example:
            `table.report("report.html", last=1000)`

        Spec: RD3, RD6.
        """
        from ..report import page  # late: Jinja2 is an extra
        from ..report.data import read_report

        page.check_installed()
        data = read_report(self._ctx, last=last, with_gc=gc, ends=ends)
        made = page.Report(html=page.render(data), version=data.snapshot.version)
        if path is not None:
            made.save(path)
        return made

    @checked()
    def verify(
        self, *, deep: bool = False, progress: Callable[[str], None] | None = None
    ) -> VerifyReport:
        """Check that everything that readable versions list is there as listed; changes nothing.

        Also that all counts match: read, written and committed by each job, the totals, and what is
        listed. Damage is reported, not raised. One listing of the table path, and one request for
        each readable version and manifest.

        Args:
            deep: read every data file, too: digest, footer, rows, partition and statistics; by
                default False.
            progress: called with what is looked at next; by default nothing is.

        Returns:
            What was looked at, and what was found.

        Spec: RD10, OB10.
        """
        return verify(self._ctx, deep=deep, progress=progress)

    def _rows_of(self, version: int | None, as_of: Moment | None, tag: str | None) -> Snapshot:
        """The version whose rows the caller gets."""
        snapshot = self._at(version, as_of, tag).snapshot
        if version is None and as_of is None and tag is None:
            self._ctx.note_read(snapshot)
        return snapshot

    def _at(self, version: int | None, as_of: Moment | None, tag: str | None) -> Head:
        head = self._ctx.open()
        chosen = choose_version(self._ctx.store, head, version=version, as_of=as_of, tag=tag)
        return head if chosen is None else read_version(self._ctx.store, head, chosen)

    def _history(self) -> Iterator[dict[str, Any]]:
        for each in walk_back(self._ctx.store, self._ctx.open()):
            snapshot = each.snapshot
            joint = figures.joint_of(snapshot, self.url)
            for commit in snapshot.commits:
                yield {
                    "version": snapshot.version,
                    "committed_at": validation.to_datetime(snapshot.committed_at),
                    "operation": commit.operation,
                    "key": commit.key,
                    "job": commit.job,
                    "reason": commit.reason,
                    **figures.said_of(commit),
                    "restored": commit.restored,
                    "joint": joint,
                    "summary": values(commit.summary),
                    "totals": values(snapshot.totals),
                    "writer": snapshot.writer,
                }

    def _dataframe(
        self,
        snapshot: Snapshot,
        columns: Names | None,
        filter: Condition | None,
        spark: SparkSession | None,
    ) -> DataFrame:
        predicate = predicate_of(filter, snapshot, spark)
        from ..spark.dataframe import read_snapshot  # late: pyspark is an extra

        entries = planning.entries_table(self._ctx, snapshot, predicate)
        return read_snapshot(
            session(spark),
            self.url,
            snapshot,
            entries,
            columns=chosen(snapshot, columns),
            filter=filter,
            predicate=predicate,
            storage_options=self._storage_options,
        )

    def _through_spark(
        self, columns: list[str] | None, filter: Condition | None, snapshot: Snapshot
    ) -> pa.Table:
        """The rows that Spark finds, as the dataset would show them."""
        df = self._dataframe(snapshot, columns, filter, None)
        from ..spark.conditions import evaluating as by_spark  # late: pyspark is an extra

        with by_spark(filter):
            found = df.toArrow()
        schema = _arrow_schema(snapshot)
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        mark = arrow_metadata(mark_of(snapshot.table_id, self.url, snapshot.version))
        return found.cast(schema).replace_schema_metadata(mark)


class StateReads:
    """Reads the rows of one state of a table, as the methods of `Table` of these names do."""

    _state: TableReads
    _at: int | None = None  # its version; None: the newest
    _read: RowsRead | None = None  # which of its rows; None: all

    def dataset(self) -> ds.Dataset:
        """Open it as a pyarrow dataset, as `Table.dataset` does.

        Returns:
            A `pyarrow.dataset.Dataset`, which DuckDB, Polars and pandas read, too.

        Spec: RD2, CK5.
        """
        rows = self._state.dataset(self._at)
        return rows if self._read is None else rows.filter(self._read.form)

    @checked()
    def to_arrow(self, columns: Names | None = None, filter: Condition | None = None) -> pa.Table:
        """Read it into memory. Other arguments and errors are as for `Table.to_arrow`.

        Returns:
            A `pyarrow.Table`.

        Spec: RD2, CK5.
        """
        return self._state.to_arrow(columns, self._chosen(filter), self._at)

    @checked()
    def read(
        self,
        spark: SparkSession | None = None,
        *,
        columns: Names | None = None,
        filter: Condition | None = None,
    ) -> DataFrame:
        """Read it with Spark. Other arguments and errors are as for `Table.read`.

        Returns:
            A `pyspark.sql.DataFrame`.

        Spec: RD2, CK5.
        """
        filter = self._chosen(filter)
        return self._state.read(version=self._at, columns=columns, filter=filter, spark=spark)

    def _chosen(self, filter: Condition | None) -> Condition | None:
        if self._read is not None and filter is not None:
            why = f"{self._state.url} was read with a filter, {shown(self._read.given)}"
            instead = "filter what it returns, or read it again"
            raise UsageError(f"{why}; {instead}", argument="filter")
        return filter if self._read is None else self._read.given


def chosen(snapshot: Snapshot, columns: Names | None) -> list[str] | None:
    """The columns as the table names them; None: all. UsageError where it has no such column."""
    names = [columns] if isinstance(columns, str) else columns
    return names and [evolution.find_column(snapshot.schema, name).name for name in names]


def _arrow_schema(snapshot: Snapshot) -> pa.Schema:
    return arrow_schema(snapshot.schema, physical=False, ids=False)


@contextlib.contextmanager
def _needed(library: str, method: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{method}() needs {library}, which is not installed; nothing was read. "
            f"pip install {library}, or use to_arrow()"
        ) from error
