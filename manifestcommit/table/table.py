"""`Table`: columns, constraints, tags, rollback, erasure, maintenance, exports. Reading it and
changing its rows are roles. [RD1] [SC6] [CK1] [WM5] [CF13] [GC1] [ER1] [EX1]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import copy
import datetime as dt
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..commits.two_phase import Resolution, give_up, tables_beside
from ..errors import UsageError
from ..format import evolution
from ..format.evolution import Editing, SchemaEdit
from ..format.fields import Schema
from ..format.snapshot import Snapshot
from ..operations import alter
from ..operations import compaction as engine
from ..operations import gc as gc_engine
from ..operations.adopt import Adoption
from ..operations.adopt import adopt as _adopt
from ..operations.compaction import Compaction, CompactionOptions
from ..operations.gc import GcReport
from ..operations.rollback import plan_rewind, plan_rollback, settle, tag, undo, untag
from ..operations.upkeep_properties import retention_of, sorting_of
from ..protocol.compaction_plan import DEFAULT_MAX_BYTES, Group
from ..protocol.retention import Policy
from ..rows.find import is_for_spark
from ..rows.row_change import RowOutcome
from ..rows.where import rewrite_all
from ..runtime.outcome import Outcome, committed_or_raise
from ..runtime.validation import REASON, checked, condition, flag, names, one_of, optional
from ..runtime.validation import message as note
from ..store.doctor import DoctorReport, examine
from ..terminal import live_progress
from .reading import Condition, TableReads, check_meaning, session
from .row_changes import RowChanges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..export.exporter import Export
    from ..job import Path
    from .erasing import Erasure


LOG = logging.getLogger("manifestcommit.jobs")
Age: TypeAlias = str | dt.timedelta


class Table(RowChanges, TableReads):
    """A table at a path. Every method looks at the newest version as of its call.

    Its methods that read also read what a transaction has written so far (`Transaction.read` with
    `own`), and those that change rows also do so in a transaction (`Transaction.rows`).

    Arguments of several methods, by default none:

    - `version`, `as_of`, `tag`: which version, by its number, by a time at which it was the newest
      one (a datetime or an ISO 8601 text; one without a zone is UTC), or by its tag. At most one of
      them may be given; by default the newest.
    - `reason`: why; recorded in the history.
    - `key`, `fingerprint`: an idempotency key: a rerun with the same key does nothing; and what is
      declared with it, beside the condition and the values.
    - `watermarks`: source -> (start, end), half-open, as for `write`: they advance with the commit.
    - `publish`: False stages the change: `Staged` opens it by `job_id` of the outcome. By default
      True.
    - `progress`: called with what is done next.

    Errors of several methods:

    - `UsageError`: an argument is not what is expected, such as a column that the table does not
      have; the message names it.
    - `TableNotFoundError`: there is no table at the path.
    - `VersionNotFoundError`: there is no such version, tag or time, or clocks dispute which version
      the time means: choose one by its number then.
    - `SnapshotExpiredError`: the version was expired.
    - `DataFileMissingError`: a file is gone, as where gc expired its version meanwhile.
    - `KeyReusedError`: the key was committed with another declaration.
    - `JobFencedError`: `based_on`, or what the rows carry, is below the table's fence.
    - `WatermarkGapError`, `WatermarkOverlapError`: a range starts after the current watermark, or
      before it.
    - `CommitConflictError`: others changed meanwhile what the call depends on, each time that it
      tried.
    - `SchemaMismatchError`: data does not fit the table.
    - `UnsupportedTypeError`: values of a type cannot be stored, or a format of exports lacks it.
    - `StoreError`: the store failed; call it again.
    - `OutcomeUnknownError`: the store did not say whether it was committed.

    Spec: RD1.
    """

    @checked()
    def noting(
        self, message: str | None = None, *, metadata: Mapping[str, str] | None = None
    ) -> Table:
        """Return this table with a note, which each commit that is made with it records.

        Args:
            message: as for the function `write`; by default none.
            metadata: as for the function `write`; by default none.

        Returns:
            The table; the one that the method belongs to is as before.

        Raises:
            UsageError: the note has in it what looks like a credential.

        Example:
            `table.noting("late corrections", metadata={"git": "4d6b4d9"}).merge(rows, on="id")`

        Spec: OB15, SE5.
        """
        noted = copy.copy(self)
        noted._ctx = self._ctx.noting(message, metadata)
        return noted

    @checked(keep_keys=flag)
    def rewind(
        self,
        source: str,
        to: int | str | None,
        *,
        reason: str,
        keep_keys: bool = False,
        alone: bool = False,
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
        planned = plan_rewind(
            self._ctx, source, to, reason=reason, keep_keys=keep_keys, alone=alone
        )
        return committed_or_raise(undo(self._ctx, *planned), self.url)

    @checked()
    def rollback(
        self,
        version: int | None = None,
        *,
        tag: str | None = None,
        reason: str,
        alone: bool = False,
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
        planned = plan_rollback(self._ctx, version, tag=tag, reason=reason, alone=alone)
        return committed_or_raise(undo(self._ctx, *planned), self.url)

    @checked()
    def tag(self, name: str, version: int | None = None, keep_for: Age | None = None) -> Outcome:
        """Keep a version readable under a name; a tag of that name moves.

        Args:
            name: the tag.
            version: the version's number; by default the newest.
            keep_for: for how long: a timedelta or a text such as "30d", after which gc may delete
                tag and version; by default they stay until `untag`.

        Returns:
            The outcome of the commit that sets the tag.

        Spec: GC10, RD5.
        """
        return committed_or_raise(tag(self._ctx, name, version, keep_for=keep_for), self.url)

    @checked()
    def untag(self, name: str) -> Outcome:
        """Delete a tag; its version is kept no longer than others are.

        Args:
            name: the tag.

        Returns:
            The outcome of the commit that deletes the tag.

        Raises:
            VersionNotFoundError: there is no tag of that name.

        Spec: GC10.
        """
        return committed_or_raise(untag(self._ctx, name), self.url)

    @checked()
    def abort(self, job_id: str) -> Resolution:
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

        Spec: AB3, AB4.
        """
        outcome = give_up(self._ctx, job_id)
        beside = tables_beside(self._ctx, job_id)
        if outcome.kind in ("aborted", "fenced"):  # fenced: it cannot commit, and never did
            return Resolution("aborted", together=beside)
        return Resolution("committed", committed_or_raise(outcome, self.url).version, beside)

    @checked(outcome=optional(one_of("committed", "aborted")), reason=optional(REASON))
    def settle(
        self, outcome: Literal["committed", "aborted"] | None = None, *, reason: str | None = None
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
        done = settle(self._ctx, outcome, reason=reason)
        return done if done.kind == "unchanged" else committed_or_raise(done, self.url)

    @checked()
    def gc(
        self,
        *,
        grace: Age | None = None,
        keep_versions: int | None = None,
        keep_for: Age | None = None,
        keep_keys: int | None = None,
        keep_keys_for: Age | None = None,
        foreign: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> GcReport:
        """Expire old versions and delete what nothing needs any more, as the function `gc` does.

        Other arguments and errors are as for the function `gc`.

        Returns:
            What was deleted and what stays.

        Raises:
            StoreFullError: the store has no room for the decision.

        Spec: GC1, GC5, GC9.
        """
        kept = self._retention(
            grace=grace,
            keep_versions=keep_versions,
            keep_for=keep_for,
            keep_keys=keep_keys,
            keep_keys_for=keep_keys_for,
        )
        return gc_engine.run(self._ctx, kept, foreign=foreign, progress=progress or _silent)

    @checked()
    def plan_gc(
        self,
        *,
        grace: Age | None = None,
        keep_versions: int | None = None,
        keep_for: Age | None = None,
        keep_keys: int | None = None,
        keep_keys_for: Age | None = None,
        foreign: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> pa.Table:
        """List what `gc` would delete now, and what it would leave though the table lacks it.

        Each object comes with the reason. Nothing is written or deleted. Other arguments
        and errors are as for the function `gc`.

        Returns:
            The columns `name`, `bytes`, `reason` and `action` ("delete" or "leave").

        Spec: GC5.
        """
        kept = self._retention(
            grace=grace,
            keep_versions=keep_versions,
            keep_for=keep_for,
            keep_keys=keep_keys,
            keep_keys_for=keep_keys_for,
        )
        return gc_engine.plan(self._ctx, kept, foreign=foreign, progress=progress or _silent)

    def _retention(self, **asked: Any) -> Policy:
        """What gc keeps where it is asked to by these of its arguments."""
        return retention_of(self._ctx.open().snapshot, asked)

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
        progress = progress or _silent
        if only_manifests:
            return engine.merge_manifests(self._ctx, progress=progress)
        snapshot = self._ctx.open().snapshot
        columns, aim = self._goals(
            snapshot, target_file_size, max_bytes, min_files, sort_by, where, spark
        )
        if spark is None and not is_for_spark(snapshot.totals.bytes):
            LOG.info("compact: files are read and rewritten by this process")
            rewrite = engine.rewriter(self._ctx, sort_by=columns)
        else:
            from ..spark.row_changes import rewriter  # late: pyspark is an extra

            given = self._storage_options
            rewrite = rewriter(session(spark), sort_by=columns, storage_options=given)
        return engine.compact(self._ctx, aim, rewrite, progress=progress)

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
        snapshot, groups = self._ctx.open().snapshot, list[Group]()
        if not only_manifests:
            _, aim = self._goals(
                snapshot, target_file_size, max_bytes, min_files, sort_by, where, spark
            )
            groups = list(engine.find_groups(self._ctx, snapshot, aim))
        return engine.describe_plan(self._ctx, snapshot, groups)

    def _goals(
        self,
        snapshot: Snapshot,
        target: int | str | None,
        max_bytes: int | str,
        min_files: int,
        sort_by: list[str] | str | None,
        where: Condition | None,
        spark: SparkSession | None,
    ) -> tuple[list[str], CompactionOptions]:
        """The columns to sort by, asked for or by the table's property, and the goals with them.
        [GC20]"""
        check_meaning("where", [where], spark)
        assert not isinstance(target, str) and not isinstance(max_bytes, str)  # `checked` made them
        fields = sorting_of(snapshot, [sort_by] if isinstance(sort_by, str) else sort_by).fields
        return [field.name for field in fields], CompactionOptions(
            target=target,
            max_bytes=max_bytes,
            min_files=min_files,
            sort_by=tuple(field.id for field in fields),
            where=where,
            choice=self._choice(spark),
        )

    @checked(where=condition)
    def holders(self, where: str | pc.Expression) -> pa.Table:
        """Find every object that holds rows for which a condition is true, or may; changes nothing.

        All objects below the table path are looked at: data files of all versions, of jobs that
        have not committed and of other programs; manifests, versions and exports, which have bounds
        and partitions of files; jobs, tags and unfinished uploads; and the table of refused rows
        beside. The whole table is read, but files whose bounds exclude such rows.

        Args:
            where: SQL or a pyarrow expression that this process evaluates, as for `delete`,
                over the columns of the newest version, whatever they were called before.

        Returns:
            A row for each: `table`, `name`, `kind`, `rows` (null: it may hold some, or tells of
            them) and `why` it is there. No row: nothing holds any. Texts that are no rows, such as
            keys, messages and names of sources, are not looked at.

        Raises:
            UsageError: the condition cannot be understood, or needs Spark.
            CorruptMetadataError: a version is damaged.

        Example:
            `assert not len(table.holders("person = 'Ada'"))`

        Spec: ER1.
        """
        from . import erasing  # late: rarely used

        return erasing.Eraser(self._ctx, self._storage_options).found(where)

    @checked(where=condition)
    def erase(
        self,
        where: str | pc.Expression,
        *,
        reason: str,
        drop_tags: bool = False,
        abort_jobs: bool = False,
        followers: Iterable[Path] = (),
        clones: Iterable[Path] = (),
        grace: Age | None = None,
        foreign: bool = False,
        dry_run: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> Erasure:
        """Delete rows, and everything that holds them or tells of them; call it until it is done.

        The first call deletes the rows. Every call then lets gc expire the versions below and
        delete what its grace period allows, and looks at every object: once none holds such a row,
        that is recorded, and the erasure is done. So call it again after the grace period. It may
        be killed at any moment and repeated. Rows in the table beside, of refused rows, go as well.

        Rows that are committed later under the same condition are not deleted by a repeated call,
        which stays open and says so: erase them under another reason.

        Args:
            where: which rows, as for `holders`; the table keeps only a salted hash of it.
            reason: as which request it is recorded, the same in each call. The history keeps it: do
                not name in it what is erased.
            drop_tags: delete the tags of versions that tell of such rows; by default an error.
            abort_jobs: abort undecided jobs with such rows; by default an error.
            followers: paths of tables that follow this one: nothing expires before their watermarks
                have passed `version`; by default none.
            clones: paths of clones of this table, likewise; and it is done once they hold no such
                row, either. `waiting` says when to call `clone`; by default none.
            grace: as for the function `gc`; by default the table's. "0s" where no job runs.
            foreign: as for the function `gc`; by default False.
            dry_run: change nothing, and say what holds such rows; by default False.

        Returns:
            How far it is.

        Raises:
            UsageError: tags or jobs hold such rows (see `drop_tags`, `abort_jobs`); or the table is
                a clone: erase them in its source. Nothing was done.
            KeyReusedError: the reason was used with another condition.
            CommitConflictError: others were faster each time, as for `delete`; repeat the call.

        Example:
            `table.erase("person = 'Ada'", reason="request 17", drop_tags=True)`

        Spec: ER2, ER3, ER4.
        """
        from . import erasing  # late: rarely used

        return erasing.Eraser(self._ctx, self._storage_options).erase(
            where,
            reason,
            drop_tags=drop_tags,
            abort_jobs=abort_jobs,
            followers=followers,
            clones=clones,
            grace=grace,
            foreign=foreign,
            dry_run=dry_run,
            progress=progress or _silent,
        )

    @checked()
    def erasure(self, reason: str) -> Erasure:
        """Look up how far an erasure is, without its condition; changes nothing.

        Args:
            reason: the reason that it was begun with.

        Returns:
            How far it is: where it is open, by what the table knows without reading rows.

        Spec: ER3.
        """
        from . import erasing  # late: rarely used

        return erasing.Eraser(self._ctx, self._storage_options).erasure(reason)

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
        with live_progress(f"reading the footers of {self.url}") as progress:
            if from_ is None:
                return _adopt(self._ctx, partition_by=names, progress=progress, rewrite=rewrite)
            if names is not None:
                raise UsageError("partition_by: with from_ the partition columns are the table's")
            from ..intake import source_of  # late: most programs do without

            source = source_of(self._ctx, from_, rewrite)
            return _adopt(self._ctx, progress=progress, source=source)

    @checked()
    def add_column(self, name: str, type: str | pa.DataType, *, default: Any = None) -> Outcome:
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
            UsageError: the table has such a column, the text names no type, or the default is no
                value of that type, or that of a member.
            SchemaMismatchError: a column cannot have that name, such as one with a NUL.

        Example:
            `table.add_column("gates", "int", default=0)`

        Spec: SC6, SC11.
        """
        kind = alter.type_of(name, type)

        def edit(schema: Schema, _: tuple[int, ...]) -> tuple[SchemaEdit, ...]:
            found = evolution.add_column(schema, name, kind, new_id=self._ctx.new_field_id)
            if default is not None and found[0].parent is not None:
                what = "only whole columns have one; nothing was done. Add the member, then set the"
                raise UsageError(f"{what} column: Table.update", argument="default")
            return found

        return self._alter(edit, default)

    @checked()
    def rename_column(self, name: str, new_name: str) -> Outcome:
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

        Spec: SC6, SC12.
        """
        return self._alter(lambda schema, _: evolution.rename_column(schema, name, new_name))

    @checked()
    def widen_column(self, name: str, type: str | pa.DataType) -> Outcome:
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

        Example:
            `table.widen_column("flight", "long")`

        Spec: SC5, SC11.
        """
        kind = alter.type_of(name, type)
        return self._alter(lambda schema, _: evolution.widen_column(schema, name, kind))

    @checked(comment=optional(note))
    def comment_column(self, name: str, comment: str | None) -> Outcome:
        """Set a column's comment, for people; it stays when the column is renamed.

        Spark's DataFrames of the table have it as theirs, and comments of a DataFrame that brings a
        column are taken over.

        Args:
            name: the column's name, or a member's path, such as `s.b`.
            comment: a text of up to 2,000 characters without credentials; None removes it.

        Returns:
            The outcome of the commit.

        Spec: SC9.
        """
        return self._alter(lambda schema, _: evolution.comment_column(schema, name, comment))

    @checked()
    def drop_column(self, name: str) -> Outcome:
        """Drop a column; a later column of the same name does not show its values.

        A member of a struct goes with its values: all files of the table are rewritten in the same
        commit. Older versions keep it.

        Args:
            name: the column's name, or a member's path, such as `s.b` or `l.element.b`.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: there is no such column, it partitions the table, or a constraint or the
                property `layout.sort-by` names it; or it is the only column.

        Spec: SC6, SC12.
        """
        return self._alter(lambda schema, by: evolution.drop_column(schema, name, partition_by=by))

    @checked(partition_by=names)
    def set_partitioning(
        self, partition_by: list[str] | str, *, dry_run: bool = False
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
            kind "unchanged": the table has this partitioning.

        Raises:
            UsageError: there is no such column, it cannot partition a table, or `layout.sort-by`
                names it.

        Example:
            `table.set_partitioning(["month(day)", "carrier"])`

        Spec: SC13, PT4.
        """
        by = [partition_by] if isinstance(partition_by, str) else partition_by
        return rewrite_all(self._ctx, partition_by=partial(alter.partitioned, by), dry_run=dry_run)

    @checked()
    def add_constraint(self, name: str, condition: str) -> Outcome:
        """Add a condition that every row has to keep from now on, once the rows of the table do.

        A row keeps it where it is true or null, as with CHECK in SQL. Every write is checked,
        however it is made and whenever it began: one that violates a constraint raises
        ConstraintError, and nothing of it is committed. Of the rows that are there, only files are
        read whose bounds leave it open.

        Args:
            name: its name: letters, digits and underscores.
            condition: SQL on one row, such as "amount > 0", that is evaluated without Spark; times
                are in UTC, and what changes with the time, such as current_timestamp, is refused.

        Returns:
            The outcome of the commit; "already_committed" where the table has it.

        Raises:
            ConstraintError: rows of the table violate it; it was not added.
            UsageError: the condition names no column of the table or cannot be evaluated so, or the
                table has another constraint of that name.

        Example:
            `table.add_constraint("positive", "amount > 0")`

        Spec: CK1, CK2, CK3.
        """
        from ..gate import constraints  # late: few tables have any

        return committed_or_raise(constraints.add(self._ctx, name, condition), self.url)

    @checked()
    def drop_constraint(self, name: str) -> Outcome:
        """Drop a constraint of the table.

        Args:
            name: its name.

        Returns:
            The outcome of the commit.

        Spec: CK3.
        """
        from ..gate import constraints  # late: few tables have any

        return committed_or_raise(constraints.drop(self._ctx, name), self.url)

    @checked()
    def set_not_null(self, name: str) -> Outcome:
        """Keep nulls out of a column from now on, once no row of the table has one there.

        It is a constraint, `not_null_` and the column's name, and holds as `add_constraint` says.

        Args:
            name: the column's name.

        Returns:
            The outcome of the commit; "already_committed" where the column holds no null already.

        Raises:
            ConstraintError: rows of the table have a null there; it was not added.

        Example:
            `table.set_not_null("amount")`

        Spec: CK8.
        """
        from ..gate import constraints  # late: few tables have any

        return committed_or_raise(constraints.require(self._ctx, name), self.url)

    @checked()
    def drop_not_null(self, name: str) -> Outcome:
        """Drop what keeps nulls out of a column, whether its schema or a constraint.

        Args:
            name: the column's name.

        Returns:
            The outcome of the commit; "already_committed" where a null is allowed already.

        Example:
            `table.drop_not_null("amount")`

        Spec: CK8, SC5.
        """
        from ..gate import constraints  # late: few tables have any

        return committed_or_raise(constraints.relax(self._ctx, name), self.url)

    @checked()
    def set_properties(self, properties: Mapping[str, str | None]) -> Outcome:
        """Set properties of the table.

        Known: `write.target-file-size-bytes`; `write.bounds-columns`, how many columns have bounds;
        `write.bloom-filter-columns`, split by commas: new files carry Bloom filters of these, by
        which Spark and DuckDB skip row groups; `write.missing-columns`: data that lacks a column is
        refused ("error"), or the column is null ("null"; by default so, but for overwrites of the
        whole table); `write.author`: which of user, host, program and software commits record,
        split by commas, or "none"; by default all; `write.row-change-tries`: how often a change of
        rows that others were faster than is done at most, by default 10; `export.formats`:
        "iceberg", "delta", "spark-catalog" or several, in which commits are exported;
        `gc.grace`, `gc.keep-versions`, `gc.keep-for`, `gc.keep-keys` and `gc.keep-keys-for`: gc's
        retention by default; `maintain.steps`: which steps `maintain` takes.

        Args:
            properties: name -> value; None removes the property.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: a known property has a value that it cannot have, or a format of
                `export.formats` cannot express the table.

        Spec: CM9, DF11, EX2, EX9, OB15, SC8, UK1.
        """
        return committed_or_raise(alter.set_properties(self._ctx, properties), self._ctx.store.url)

    def _alter(self, edit: Editing, default: Any = None) -> Outcome:
        return committed_or_raise(alter.edit_schema(self._ctx, edit, default), self.url)

    @checked(to=one_of("iceberg", "delta", "spark-catalog"))
    def export(self, to: str) -> Export:
        """Export the newest version: as an Iceberg or Delta table, or to Spark's catalog.

        Metadata is put beside the data files, which are not copied. Readers see this version until
        the next export; the property `export.formats` exports each commit. They must only read.
        What an export shows as the newest never goes back.

        Args:
            to: "iceberg" (version 2 of the format), "delta", or "spark-catalog", for the table that
                `create_table_sql` makes.

        Returns:
            The exported version, and where readers of the format find it.

        Raises:
            UsageError: the format cannot express the table.

        Example:
            `duckdb.sql(f"select * from iceberg_scan('{table.export('iceberg').location}')")`

        Spec: EX1, EX2, EX9, EX10.
        """
        from ..export.exporter import export_format  # late: most programs do without

        return export_format(self._ctx, self._ctx.open(), to)

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
            UsageError: the name is invalid, or Spark's catalog cannot express the table.

        Example:
            `spark.sql(mc.Table("s3://lake/flights").create_table_sql("flights"))`

        Spec: EX10.
        """
        from ..export.exporter import export_format  # late: most programs do without
        from ..export.spark_catalog import create_table_sql

        head = self._ctx.open()
        statement = create_table_sql(self._ctx, head.snapshot.schema, name)
        export_format(self._ctx, head, "spark-catalog")
        return statement


def _silent(step: str) -> None:
    """Say nothing of what is done next."""
