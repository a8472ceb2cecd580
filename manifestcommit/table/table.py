"""`Table`: columns, tags, rollback, maintenance, exports. [RD1] [SC6] [WM5] [CF13] [GC1] [EX1]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..arguments import REASON, checked
from ..commits.two_phase import (
    JobInfo,
    Resolution,
    give_up,
    list_jobs,
    resolve_job,
    settle_prepared,
    tables_beside,
)
from ..errors import UsageError
from ..format import arrow_schema, evolution
from ..format.evolution import Editing, SchemaEdit
from ..format.fields import Schema, parse_type
from ..format.snapshot import Snapshot
from ..gate.table_constraints import Constrained
from ..log.table_context import TableContext
from ..operations import alter
from ..operations import compaction as engine
from ..operations import gc as gc_engine
from ..operations.adopt import Adoption
from ..operations.adopt import adopt as _adopt
from ..operations.compaction import (
    Choose,
    Compaction,
    CompactionOptions,
    choose_by_sql,
    merge_manifests,
    rewriter,
)
from ..operations.describe import TableMetrics, table_metrics
from ..operations.gc import GcReport
from ..operations.rollback import rewind, rollback, settle, tag, untag
from ..operations.upkeep_properties import retention_of, sorting_of
from ..operations.verify import VerifyReport, verify
from ..protocol.compaction_plan import DEFAULT_MAX_BYTES, Group
from ..rows.conditions import needs_spark, running_session
from ..rows.find import is_for_spark
from ..rows.row_change import RowOutcome, drop_removed
from ..rows.where import rewrite_all
from ..runtime.outcome import JobResults, Outcome, committed_or_raise
from ..runtime.validation import file_name, flag, names, one_of, optional, whole
from ..runtime.validation import message as note
from ..store import StorageOptions
from ..store.doctor import DoctorReport, examine
from ..telemetry import record_table
from ..terminal.screen import Progress
from .conditions import Condition, check_meaning, check_spark
from .erasing import Erases
from .listing import Listing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..export.export_result import Export
    from ..report.page import Report

# `Table.compact` and `Table.plan_compaction`. [GC11] [GC16]

LOG = logging.getLogger("manifestcommit.jobs")


def compact(
    ctx: TableContext,
    aim: CompactionOptions,
    *,
    where: Any,
    sort_by: list[str] | str | None,
    spark: SparkSession | None,
    storage_options: StorageOptions,
    progress: Callable[[str], None],
) -> Compaction:
    """Rewrite small files together, then merge small manifests. [GC11] [RC8]"""
    snapshot = ctx.open().snapshot
    columns, aim = _sorting(snapshot, sort_by, aim)
    if spark is None and not is_for_spark(snapshot.totals.bytes):
        LOG.info("compact: files are read and rewritten by this process")
        rewrite = rewriter(ctx, sort_by=columns)
    else:
        from ..spark.operations.rewrite import rewriter as with_spark  # late: an extra

        spark = _session(spark)
        rewrite = with_spark(spark, sort_by=columns, storage_options=storage_options)
    choose = chosen(where, spark, snapshot)
    return engine.compact(ctx, aim, rewrite, choose=choose, progress=progress)


def _sorting(
    snapshot: Snapshot, sort_by: list[str] | str | None, aim: CompactionOptions
) -> tuple[list[str], CompactionOptions]:
    """The columns to sort by, asked for or by the table's property, and the goals with them.
    [GC20]"""
    fields = sorting_of(snapshot, [sort_by] if isinstance(sort_by, str) else sort_by).fields
    ids = tuple(field.id for field in fields)
    return [field.name for field in fields], msgspec.structs.replace(aim, sort_by=ids)


def plan_compaction(
    ctx: TableContext,
    aim: CompactionOptions,
    *,
    where: Any,
    sort_by: list[str] | str | None,
    spark: SparkSession | None,
    only_manifests: bool,
) -> pa.Table:
    """What a compaction would do now, group by group; nothing is changed. [GC16]"""
    snapshot = ctx.open().snapshot
    groups: Iterable[Group] = ()
    if not only_manifests:
        _, aim = _sorting(snapshot, sort_by, aim)
        groups = engine.find_groups(ctx, snapshot, aim, chosen(where, spark, snapshot))
    return engine.describe_plan(ctx, snapshot, groups)


def chosen(where: Any, spark: SparkSession | None, snapshot: Snapshot) -> Choose | None:
    """Which partitions a condition chooses; Spark evaluates it if it was given or is needed."""
    if where is None:
        return None
    if isinstance(where, pc.Expression):
        return engine.choose_by(where)
    check_meaning("where", [where], spark)

    def with_spark(why: Exception | None = None) -> Choose:
        if why is not None and running_session() is None:
            raise needs_spark(where, "where", why) from why
        check_spark("where", where)
        from ..spark.operations.rewrite import choose_with

        return choose_with(_session(spark), where)

    if spark is None and isinstance(where, str):
        return choose_by_sql(where, snapshot, with_spark)
    return with_spark()


def _session(spark: SparkSession | None) -> SparkSession:
    """The one given, the active one, or a new one."""
    from ..spark.dataframe import active_session

    return spark or active_session()


class Table(Constrained, Erases):
    """A table at a path. Every method looks at the newest version as of its call.

    Arguments of several methods, by default none:

    - `version`, `as_of`, `tag`: which version, by its number, by a time at which it was the newest
      one (a datetime or an ISO 8601 text; one without a zone is UTC), or by its tag. At most one of
      them may be given; by default the newest.
    - `message`, `metadata`: as for the function `write`, for each commit that the method makes.
    - `reason`: why; recorded in the history.
    - `key`, `fingerprint`: an idempotency key: a rerun with the same key does nothing; and what is
      declared with it, beside the condition and the values.
    - `watermarks`: source -> (start, end), half-open, as for `write`: they advance with the commit.
    - `publish`: False stages the change: `staged` opens it by `job_id` of the outcome. By default
      True.
    - `progress`: called with what is done next.

    Errors of several methods:

    - `UsageError`: an argument is not what is expected; the message names it.
    - `TableNotFoundError`: there is no table at the path.
    - `VersionNotFoundError`: there is no such version, tag or time, or clocks dispute which version
      the time means: choose one by its number then.
    - `SnapshotExpiredError`: the version was expired.
    - `DataFileMissingError`: a file is gone, as where gc expired its version meanwhile.
    - `KeyReusedError`: the key was committed with another declaration.
    - `JobFencedError`: `based_on`, or what the rows carry, is below the table's fence.
    - `WatermarkGapError`, `WatermarkOverlapError`: a range starts after the current watermark, or
      before it.
    - `OutcomeUnknownError`: the store did not say whether it was committed.

    Spec: RD1.
    """

    @checked(keep_keys=flag)
    def rewind(
        self,
        source: str,
        to: int | str | None,
        *,
        reason: str,
        keep_keys: bool = False,
        alone: bool = False,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Set a source's watermark back, so that it can be read again from there.

        The idempotency keys of the undone work are invalidated, so that it can be done again. Rows
        that were read after the position stay until they are overwritten or deleted. A job that
        advances this source, or has one of the dropped keys, and began before the rewind cannot
        commit any more: run it again.

        Args:
            source: the source's name.
            to: the position; None: as if the source had never been read.
            keep_keys: drop no key, where the history that shows which is expired; by default False.
            alone: undo also what was committed in several tables by one commit, here only; by
                default False, which refuses that.

        Returns:
            The outcome; `dropped_keys` are the keys that are dropped.

        Raises:
            CommitConflictError: the source moved meanwhile, or the work of a joint commit would be
                undone in this table only.
            UsageError: the source has never been at that position.
            SnapshotExpiredError: the history that shows which keys to drop is expired.

        Spec: WM5, WM6, KY7, MT14.
        """
        ctx = self._ctx.noting(message, metadata)
        return committed_or_raise(
            rewind(ctx, source, to, reason=reason, keep_keys=keep_keys, alone=alone), self.url
        )

    @checked()
    def rollback(
        self,
        version: int | None = None,
        *,
        tag: str | None = None,
        reason: str,
        alone: bool = False,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Make the table what it was at a readable version, in a commit of its own.

        Rows, columns, watermarks, batches of streams and keys go back together, so that what was
        done since is done again by a rerun. Nothing is deleted, the history stays, and a rollback
        can be rolled back. Jobs that began before it cannot commit what it sets back: run them
        again.

        Args:
            version: the version's number; by default `tag` names it.
            tag: a tag of the version; by default `version` names it.
            alone: undo also what was committed in several tables by one commit, here only; by
                default False, which refuses that. `rollback_together` undoes it everywhere.

        Returns:
            The outcome; `dropped_keys` are the keys that are dropped.

        Raises:
            CommitConflictError: anything else was committed meanwhile, or a joint commit would be
                undone in this table only.
            UsageError: neither or both of `version` and `tag` were given.

        Spec: CF13, WM6, KY7, MT14.
        """
        ctx = self._ctx.noting(message, metadata)
        outcome = rollback(ctx, version, tag=tag, reason=reason, alone=alone)
        return committed_or_raise(outcome, self.url)

    @checked()
    def tag(
        self,
        name: str,
        version: int | None = None,
        keep_for: str | dt.timedelta | None = None,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Keep a version readable under a name; a tag of that name moves.

        Args:
            name: the tag.
            version: the version's number; by default the newest.
            keep_for: for how long: a timedelta or a text such as "30d", after which gc may delete
                tag and version; by default they stay until `untag`.

        Returns:
            The outcome of the commit that sets the tag.

        Raises:
            UsageError: the name, the version or `keep_for` is invalid.

        Spec: GC10, RD5.
        """
        ctx = self._ctx.noting(message, metadata)
        return committed_or_raise(tag(ctx, name, version, keep_for=keep_for), self.url)

    @checked()
    def untag(
        self,
        name: str,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Delete a tag; its version is kept no longer than others are.

        Args:
            name: the tag.

        Returns:
            The outcome of the commit that deletes the tag.

        Raises:
            VersionNotFoundError: there is no tag of that name.

        Spec: GC10.
        """
        return committed_or_raise(untag(self._ctx.noting(message, metadata), name), self.url)

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
            any process may commit or abort it; "aborted"; or "forgotten": it began so long ago that
            the table no longer records what became of it.

        Raises:
            UsageError: the id is not of a job of this table.

        Spec: CM23, CK5.
        """
        return resolve_job(self._ctx, job_id)

    @checked()
    def abort(
        self,
        job_id: str,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Resolution:
        """Abort a prepared, published or recoverable job for good, from any process.

        The first decision counts: all callers see one result, and the call is idempotent. Nothing
        is deleted.

        Args:
            job_id: the job's id, as `Job.prepare` returned it and `jobs` lists it.

        Returns:
            "aborted", or "committed" with `version` where a commit came first. `together` names the
            tables whose jobs were prepared together with this one, which share its fate.

        Raises:
            UsageError: the id is not of a job of this table.
            OutcomeUnknownError: the store did not say what was decided: ask again.

        Spec: AB3, AB4.
        """
        ctx = self._ctx.noting(message, metadata)
        outcome = give_up(ctx, job_id)
        beside = tables_beside(ctx, job_id)
        if outcome.kind in ("aborted", "fenced"):  # fenced: it can not commit, and never did
            return Resolution("aborted", together=beside)
        return Resolution("committed", committed_or_raise(outcome, self.url).version, beside)

    def jobs(self) -> list[JobInfo]:
        """List the jobs that left something for others, and what became of each.

        Returns:
            The jobs that are prepared, published, running, committed, aborted or fenced. One that
            was prepared by `Transaction.prepare` names its tables in `together`.

        Spec: AB3.
        """
        return list(list_jobs(self._ctx))

    @checked()
    def recover(self, *, abort: bool = False) -> JobResults:
        """Commit every prepared job that nobody has decided, or abort each.

        For a coordinator that comes back after a crash. One that fails holds up no other, and
        others may do the same at once: each job is decided once. Of each source the lower range is
        committed first. A job that may commit later, such as when a gap has closed, stays prepared;
        one that never can is aborted: its result has both `outcome` and `error`, and its work is
        for a new job. A job that gc has fenced is reported, too. What was prepared by
        `Transaction.prepare` is committed or aborted in all of its tables.

        Args:
            abort: abort each instead of committing it; by default False.

        Returns:
            One result for each job that was prepared, fenced ones among them.

        Spec: AB3, AB4, WM7.
        """
        return JobResults(settle_prepared(self._ctx, abort=abort))

    @checked(outcome=optional(one_of("committed", "aborted")), reason=optional(REASON))
    def settle(
        self,
        outcome: Literal["committed", "aborted"] | None = None,
        *,
        reason: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Make a table independent of the table that decided its newest version.

        A reader of one of several tables that were committed together may have to ask another until
        the next commit: this one. Settle them before you remove the other; its `gc` names them.

        Args:
            outcome: where the table that decides is lost, "committed" or "aborted", the same for
                all tables. By default that table is asked; what nobody goes on with is aborted.
            reason: how you know; recorded in the history; by default, without an outcome, none.

        Returns:
            The outcome; "unchanged" where the newest version depends on no other table.

        Raises:
            UndecidedError: the table that decides is gone: give an outcome.
            UsageError: an outcome is given, and the table that decides can be asked.

        Spec: MT10.
        """
        if (outcome is None) != (reason is None):
            raise UsageError("outcome: expected together with reason, or neither; nothing was done")
        done = settle(self._ctx.noting(message, metadata), outcome, reason=reason)
        return done if done.kind == "unchanged" else committed_or_raise(done, self.url)

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

        Raises:
            UsageError: an end is neither a whole number nor a text.

        Spec: WM1.
        """
        found = table_metrics(self._ctx, ends)
        record_table(found)
        return found

    @checked(path=optional(file_name), gc=flag, last=whole(1))
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
        from ..report import page, reading  # late: Jinja2 is an extra

        page.check_installed()
        data = reading.read_report(self._ctx, last=last, with_gc=gc, ends=ends)
        made = page.Report(html=page.render(data), version=data.version)
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

    @checked()
    def gc(
        self,
        *,
        grace: str | dt.timedelta | None = None,
        keep_versions: int | None = None,
        keep_for: str | dt.timedelta | None = None,
        keep_keys: int | None = None,
        keep_keys_for: str | dt.timedelta | None = None,
        foreign: bool = False,
        progress: Callable[[str], None] | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> GcReport:
        """Expire old versions and delete what nothing needs any more, as the function `gc` does.

        Other arguments and errors are as for the function `gc`.

        Returns:
            What was deleted and what stays.

        Raises:
            StoreFullError: the store has no room for the decision.
            StoreError: the store failed; run it again.

        Spec: GC1, GC5, GC9.
        """
        ctx = self._ctx.noting(message, metadata)
        asked = _asked(grace, keep_versions, keep_for, keep_keys, keep_keys_for)
        kept = retention_of(ctx.open().snapshot, asked)
        return gc_engine.run(ctx, kept, foreign=foreign, progress=progress or (lambda _: None))

    @checked()
    def plan_gc(
        self,
        *,
        grace: str | dt.timedelta | None = None,
        keep_versions: int | None = None,
        keep_for: str | dt.timedelta | None = None,
        keep_keys: int | None = None,
        keep_keys_for: str | dt.timedelta | None = None,
        foreign: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> Listing:
        """List what `gc` would delete now, and what it would leave though the table lacks it.

        Each object comes with the reason. Nothing is written or deleted. Other arguments
        and errors are as for the function `gc`.

        Returns:
            The columns `name`, `bytes`, `reason` and `action` ("delete" or "leave").

        Raises:
            StoreError: the store failed; run it again.

        Spec: GC5.
        """
        asked = _asked(grace, keep_versions, keep_for, keep_keys, keep_keys_for)
        kept, say = retention_of(self._ctx.open().snapshot, asked), progress or (lambda _: None)
        return Listing(gc_engine.plan(self._ctx, kept, foreign=foreign, progress=say))

    @checked()
    def compact(
        self,
        *,
        target_file_size: int | str | None = None,
        where: Condition | None = None,
        sort_by: list[str] | str | None = None,
        max_bytes: int | str = DEFAULT_MAX_BYTES,
        min_files: int = 2,
        only_manifests: bool = False,
        spark: SparkSession | None = None,
        progress: Callable[[str], None] | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Compaction:
        """Rewrite small files together, partition by partition, and merge small manifests.

        No row, key or watermark changes. Files below three quarters of the target become files of
        about the target. Appends never conflict with it, and what others replace or remove
        meanwhile is left as it is. Each of its commits stays done: a run after a crash goes on. The
        old files stay until gc deletes them.

        Args:
            target_file_size: bytes, or a text such as "128MB"; by default the table's own.
            where: which partitions, by a condition on partition columns: a pyarrow expression, a
                Spark Column, or SQL; by default all.
            sort_by: sort the rows by these columns, nulls first, and rewrite files of any size up
                to 1 GiB that are not sorted so yet; by default by those of the table's property
                `layout.sort-by`, else not. An empty list: not, whatever the property says.
            max_bytes: bytes, or a text, that one run rewrites at most; by default 64 GiB.
                `left_groups` of the result is what the next run will do.
            min_files: rewrite no fewer files into one; by default 2. With more, a file larger than
                the others of its group together is left alone, too, so that frequent runs do not
                rewrite the same rows again and again.
            only_manifests: merge manifests only: no data file is read; by default False.
            spark: the session that rewrites; by default this process does, in streams, but for a
                table of more than 1 GB while a session is active, and what only Spark can evaluate.

        Returns:
            What was done.

        Raises:
            UsageError: `where` is no condition on partition columns, `sort_by` names a partition
                column, one without an order (nested, char or with a collation) or one twice, or
                Spark is needed and not installed.

        Spec: GC11, GC16, GC20, RC8.
        """
        progress = progress or (lambda _: None)
        ctx = self._ctx.noting(message, metadata)
        if only_manifests:
            return merge_manifests(ctx, progress=progress)
        return compact(
            ctx,
            _goals(target_file_size, max_bytes, min_files),
            where=where,
            sort_by=sort_by,
            spark=spark,
            storage_options=self._storage_options,
            progress=progress,
        )

    @checked()
    def plan_compaction(
        self,
        *,
        target_file_size: int | str | None = None,
        where: Condition | None = None,
        sort_by: list[str] | str | None = None,
        max_bytes: int | str = DEFAULT_MAX_BYTES,
        min_files: int = 2,
        only_manifests: bool = False,
        spark: SparkSession | None = None,
    ) -> pa.Table:
        """List the groups of files and manifests that `compact` would replace.

        Nothing is changed. Other arguments are as for `compact`.

        Args:
            where: as for `compact`; a pyarrow expression needs no Spark.
            only_manifests: plan manifests only; by default False.
            spark: the session that reads `where`, if that is a Column or SQL; by default the active
                one, or a new one.

        Returns:
            A table with one row for each group: what is done, how much it has, why, and its paths.

        Raises:
            UsageError: `where` is no condition on partition columns, or Spark is needed and not
                installed.

        Spec: GC16, GC20.
        """
        return plan_compaction(
            self._ctx,
            _goals(target_file_size, max_bytes, min_files),
            where=where,
            sort_by=sort_by,
            spark=spark,
            only_manifests=only_manifests,
        )

    @checked()
    def drop_removed(
        self,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Rewrite each manifest from which files were removed, so that none names them any more.

        For forgetting rows: a manifest goes on to hold the bounds and partitions of files that were
        removed from it. Changes no row.

        Returns:
            How many manifests were rewritten.

        Raises:
            CommitConflictError: others committed without end meanwhile: run it again.

        Spec: GC17.
        """
        return drop_removed(self._ctx.noting(message, metadata))

    @checked()
    def doctor(self, *, progress: Callable[[str], None] | None = None) -> DoctorReport:
        """Probe whether the store keeps what commits rely on; there need be no table.

        Some 700 requests and 85 MB; the probes are deleted.

        Args:
            progress: called with the name of each check; by default nothing is.

        Returns:
            The verdict, and what each check found.

        Raises:
            StoreError: nothing can be written there.

        Spec: ST12.
        """
        return examine(self._ctx.store, progress=progress)

    @checked()
    def adopt(
        self,
        *,
        partition_by: list[str] | str | None = None,
        from_: str | None = None,
        rewrite: bool = False,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Adoption:
        """Make this folder of Parquet files a table, where they are, in one commit.

        No file is changed, moved or deleted. The table's columns are the union of the files'.
        Where Spark's streaming sink wrote the folder, exactly the files of its log are registered.
        The call is idempotent: after a crash it completes what was begun. Files that appear later
        are not listed.

        Args:
            partition_by: the columns that partition it; by default those of the `name=value`
                folders, typed as Spark infers them, or text where that would lose a name (`01`). A
                column of folders need not be in the files.
            from_: "iceberg" or "delta": exactly the files of that table's current snapshot, with
                its columns, their ids and partitions. Where only a catalog knows the current
                document of an Iceberg table, that document (`….metadata.json`). By default a folder
                of files.
            rewrite: write the rows of files that cannot be listed as they are into new files, and
                leave those alone: files with nanoseconds, where all are whole microseconds, and
                files of an Iceberg table with other names of columns. By default they are refused.

        Returns:
            What was adopted, and what was skipped: hidden and temporary files.

        Raises:
            NotATableError: there are no Parquet files, or they are a table of another format.
            SchemaMismatchError: the columns of two files do not unite.
            UsageError: a file is no Parquet file, or the other format's table has what a table here
                cannot have: delete files, deletion vectors, files elsewhere, a column under two
                names; or it was adopted already, and has changed since.
            UnsupportedTypeError: the other format's table has a column of such a type.

        Spec: AF2, AF4.
        """
        names = [partition_by] if isinstance(partition_by, str) else partition_by
        with Progress(f"reading the footers of {self.url}") as progress:
            ctx = self._ctx.noting(message, metadata)
            if from_ is None:
                return _adopt(ctx, partition_by=names, progress=progress, rewrite=rewrite)
            if names is not None:
                raise UsageError("partition_by: with from_ the partition columns are the table's")
            from ..intake.formats import source_of  # late: most programs do without

            source = source_of(ctx, from_, rewrite)
            return _adopt(ctx, progress=progress, source=source)

    @checked()
    def add_column(
        self,
        name: str,
        type: str | pa.DataType,
        *,
        default: Any = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Add a nullable column, or a member of a struct.

        Args:
            name: the column's name; a member's path, such as `s.b`.
            type: a pyarrow type, or the name of a type of Spark or SQL, such as "bigint",
                "numeric(10,2)" or "struct<a: int, b: array<string>>".
            default: the value of a new column in every row that is there, such as `0`, `"none"` or
                a date; a text is itself, not SQL. It is written into the table's files, all of
                which are rewritten in the same commit, so that every engine and export has it.
                Older versions do not have the column, and a later write that lacks it leaves it
                null. By default the column is null, and no file is rewritten.

        Returns:
            The outcome of the commit.

        Raises:
            CommitConflictError: with a default, others wrote meanwhile, in each of the tries that
                the property `write.row-change-tries` allows.
            UsageError: the table has such a column, the text names no type, or the default is no
                value of that type, or that of a member.
            UnsupportedTypeError: values of that type cannot be stored.
            SchemaMismatchError: a column cannot have that name, such as one with a NUL.

        Example:
            `table.add_column("gates", "int", default=0)`

        Spec: SC6, SC11.
        """
        kind = _kind_of(name, type)

        def edit(schema: Schema, _: tuple[int, ...]) -> tuple[SchemaEdit, ...]:
            found = evolution.add_column(schema, name, kind, new_id=self._ctx.new_field_id)
            if default is not None and found[0].parent is not None:
                what = "only whole columns have one; nothing was done. Add the member, then set the"
                raise UsageError(f"{what} column: Table.update", argument="default")
            return found

        return self._alter(edit, self._ctx.noting(message, metadata), default)

    @checked()
    def rename_column(
        self,
        name: str,
        new_name: str,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Rename a column; its values stay, in old files and new ones.

        A member of a struct is renamed by rewriting all files of the table in the same commit,
        since files and engines know members by their names; no row changes.

        Args:
            name: the column's name now, or a member's path, such as `s.b` or `l.element.b`.
            new_name: its name then; of a member without the path.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: there is no such column, or one that has the new name; or the property
                `layout.sort-by` names the column.
            SchemaMismatchError: a column cannot have that name, such as one with a NUL.
            CommitConflictError: of a member, others changed the table each time meanwhile.

        Spec: SC6, SC12.
        """
        return self._alter(
            lambda schema, _: evolution.rename_column(schema, name, new_name),
            self._ctx.noting(message, metadata),
        )

    @checked()
    def widen_column(
        self,
        name: str,
        type: str | pa.DataType,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Widen a column's type; no value changes.

        byte → short → integer → long, float → double, and a decimal to more digits before the point
        and as many after it, also inside lists, maps and structs: no file is rewritten. A write
        with `merge_schema=True` does the same for its own data. What has no type yet (void: a
        column that was null, the elements of lists that were empty) gets one that is not nested;
        then all files are rewritten in the same commit.

        Args:
            name: the column's name, or a member's path, such as `s.b`, `l.element` or `m.value`.
            type: the wider type, as for `add_column`.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: there is no such column, or its type does not widen to that one.
            UnsupportedTypeError: values of that type cannot be stored.
            CommitConflictError: others gave the column another type meanwhile; from void, as for
                `add_column` with a default.

        Example:
            `table.widen_column("flight", "long")`

        Spec: SC5, SC11.
        """
        kind = _kind_of(name, type)
        return self._alter(
            lambda schema, _: evolution.widen_column(schema, name, kind),
            self._ctx.noting(message, metadata),
        )

    @checked(comment=optional(note))
    def comment_column(
        self,
        name: str,
        comment: str | None,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Set a column's comment, for people; it stays when the column is renamed.

        Spark's DataFrames of the table have it as theirs, and comments of a DataFrame that brings a
        column are taken over.

        Args:
            name: the column's name, or a member's path, such as `s.b`.
            comment: a text of up to 2,000 characters without credentials; None removes it.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: there is no such column, or the text is none.
            CommitConflictError: others set another comment meanwhile.

        Spec: SC9.
        """
        return self._alter(
            lambda schema, _: evolution.comment_column(schema, name, comment),
            self._ctx.noting(message, metadata),
        )

    @checked()
    def drop_column(
        self,
        name: str,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Drop a column; a later column of the same name does not show its values.

        A member of a struct goes with its values: all files of the table are rewritten in the same
        commit. Older versions keep it.

        Args:
            name: the column's name, or a member's path, such as `s.b` or `l.element.b`.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: there is no such column, it partitions the table, or a constraint or the
                property `layout.sort-by` names it; or nothing would be beside it.
            CommitConflictError: of a member, others changed the table each time meanwhile.

        Spec: SC6, SC12.
        """
        return self._alter(
            lambda schema, partition_by: evolution.drop_column(
                schema, name, partition_by=partition_by
            ),
            self._ctx.noting(message, metadata),
        )

    @checked(partition_by=names)
    def set_partitioning(
        self,
        partition_by: list[str] | str,
        *,
        dry_run: bool = False,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> RowOutcome:
        """Set by what the table is partitioned, in one commit that changes no row.

        All files are rewritten, which takes as long as reading and writing the table, in this
        process and in bounded memory; old versions keep their files and their partitions. Streams
        and readers of changes skip the commit. Where others add or change rows meanwhile, it
        is done again; jobs that began before it and have files for the former partitions conflict.

        Args:
            partition_by: the columns, or transforms of columns such as "day(ts)", "bucket(16,
                user)" or "truncate(3, name)", in this order; []: none.
            dry_run: say what it would take, and write nothing; by default False.

        Returns:
            The outcome; `rows_rewritten` and `files_rewritten` say what it took, or would take.
            kind "unchanged": the table is partitioned so.

        Raises:
            UsageError: there is no such column, or it cannot partition a table.
            CommitConflictError: others were faster as often as `write.row-change-tries` says.

        Example:
            `table.set_partitioning(["month(day)", "carrier"])`

        Spec: SC13, PT4.
        """
        by = [partition_by] if isinstance(partition_by, str) else partition_by
        ctx = self._ctx.noting(message, metadata)
        return rewrite_all(ctx, partition_by=by, dry_run=dry_run)

    @checked()
    def set_properties(
        self,
        properties: Mapping[str, str | None],
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Set properties of the table.

        Known: `write.target-file-size-bytes`; `write.bounds-columns`, how many columns have bounds;
        `write.bloom-filter-columns`, split by commas: new files carry Bloom filters of these, by
        which Spark and DuckDB skip row groups; `write.missing-columns`: data that lacks a column is
        refused ("error"), or the column is null ("null"; by default so, but for overwrites of the
        whole table); `write.author`: which of user, host, program and software commits record,
        split by commas, or "none"; by default all; `write.row-change-tries`: how often a change of
        rows that others were faster than is done at most, by default 10; `export.formats`:
        "iceberg", "delta", "spark-catalog" or several, in which commits are exported;
        `gc.grace`, `gc.keep-versions`, `gc.keep-for`, `gc.keep-keys` and `gc.keep-keys-for`: what
        gc keeps where its caller does not say it; `maintain.steps`: which steps `maintain` takes.

        Args:
            properties: name -> value; None removes the property.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: a known property has a value that it cannot have, or a format of
                `export.formats` cannot express the table.
            UnsupportedTypeError: a format of `export.formats` does not have a column's type.

        Spec: CM9, DF11, EX2, EX9, OB15, SC8, UK1.
        """
        ctx = self._ctx.noting(message, metadata)
        return committed_or_raise(alter.set_properties(ctx, properties), ctx.store.url)

    def _alter(self, edit: Editing, ctx: TableContext, default: Any = None) -> Outcome:
        return committed_or_raise(alter.edit_schema(ctx, edit, default), ctx.store.url)

    @checked(to=one_of("iceberg", "delta", "spark-catalog"))
    def export(self, to: str, version: int | None = None) -> Export:
        """Export a version to other engines: as an Iceberg or Delta table, or to Spark's catalog.

        Metadata is put beside the data files, which are not copied. Readers see this version until
        the next export; the property `export.formats` exports each commit. They must only read.
        What an export shows as the newest never goes back.

        Args:
            to: "iceberg" (version 2 of the format), "delta", or "spark-catalog", for the table that
                `create_table_sql` makes.
            version: a readable version; by default the newest. Spark's catalog shows no other.

        Returns:
            The exported version, and where readers of the format find it.

        Raises:
            UsageError: the format cannot express the table, or shows a later version than the given
                one already.
            UnsupportedTypeError: the format does not have a column's type.
            StoreError: the store failed; export again.

        Example:
            `duckdb.sql(f"select * from iceberg_scan('{table.export('iceberg').location}')")`

        Spec: EX1, EX2, EX9, EX10.
        """
        from ..export.exporter import export_format  # late: most programs do without

        return export_format(self._ctx, self._ctx.open(), to, version)

    @checked()
    def create_table_sql(self, name: str) -> str:
        """Export to "spark-catalog", and return the CREATE TABLE statement for Spark's catalog.

        `spark.sql` runs it, once: the export to "spark-catalog" changes what the table shows, and
        `REFRESH TABLE` makes a session see it. After a change of columns, drop the table in the
        catalog and make it again. Nothing is read through it that is not committed.

        Args:
            name: the table's name in the catalog, such as "flights" or "lake.flights".

        Returns:
            The statement, with the table's columns and the options that its reads need.

        Raises:
            UsageError: the name is none, or Spark's catalog cannot express the table.
            UnsupportedTypeError: it does not have a column's type.
            StoreError: the store failed.

        Example:
            `spark.sql(mc.Table("s3://lake/flights").create_table_sql("flights"))`

        Spec: EX10.
        """
        from ..export.exporter import create_table_sql  # late: most programs do without

        return create_table_sql(self._ctx, name)


def _kind_of(name: str, type: str | pa.DataType) -> Any:
    """The type of a column, as a schema holds it."""
    if isinstance(type, str):
        return parse_type(type)
    if not isinstance(type, pa.DataType):
        return type
    named = arrow_schema.from_arrow(pa.schema([(name, type)]), itertools.count(1).__next__)
    return named.fields[0].type


def _asked(*given: str | dt.timedelta | int | None) -> dict[str, Any]:
    """What the caller asks gc to keep, by the names of the arguments."""
    names = ("grace", "keep_versions", "keep_for", "keep_keys", "keep_keys_for")
    return dict(zip(names, given, strict=True))


def _goals(
    target_file_size: int | str | None, max_bytes: int | str, min_files: int
) -> CompactionOptions:
    # `checked` has made bytes of them
    assert not isinstance(target_file_size, str) and not isinstance(max_bytes, str)
    return CompactionOptions(target=target_file_size, max_bytes=max_bytes, min_files=min_files)
