"""What rewrites data files of a table, here or in Spark's tasks: row changes, and compaction.
[RC1]-[RC12] [GC11] [GC16]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..errors import UsageError
from ..log.table_context import TableContext
from ..rows import clauses as rules
from ..rows.clauses import Delete, Insert, Update, as_clauses
from ..rows.find import ArrowRows, ExecutorChoice, MergeOn, RowExecutor, merge
from ..rows.row_change import Declared, NewRows, RowChange, RowOutcome, arrow_data
from ..rows.where import delete_where, overwrite_where, update_where
from ..runtime import validation
from ..runtime.validation import REASON, Ranges, anything, checked, condition, optional, rows
from ..store import StorageOptions
from .reading import Condition, check_meaning, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("manifestcommit.jobs")


def is_simple(given: Any) -> bool:
    """Whether whole rows are meant, or nothing."""
    several = given if isinstance(given, list | tuple) else [given]
    return all(each is None or isinstance(each, str) for each in several)


@validation.part_of("Table")
class RowChanges:
    """The methods of a table that change single rows, by rewriting files (copy-on-write)."""

    _ctx: TableContext
    _storage_options: StorageOptions

    def _declared(self, given: Declared, *, publish: bool) -> Declared:
        """What a row change is declared with, and who commits it."""
        if not publish and given.reason is not None:
            why = "of what is staged (publish=False), a message is recorded instead"
            raise UsageError(f"{why}; nothing was done", argument="reason")
        hold = None if publish else RowChange.make_durable
        return msgspec.structs.replace(given, hold=hold)

    @checked(where=condition, reason=optional(REASON))
    def delete(
        self,
        where: Condition,
        *,
        spark: SparkSession | None = None,
        key: str | None = None,
        fingerprint: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        based_on: int | None = None,
        publish: bool = True,
    ) -> RowOutcome:
        """Delete exactly the rows for which a condition is true, in one commit.

        A row for which it is null stays. Files that cannot hold such a row are not read, those of
        which all rows are deleted are only removed, the others are rewritten (copy-on-write). The
        rows stay in older versions until gc expires these.

        As every change of rows, it is done again at the newest version where others were faster,
        up to 10 times in all, unless it has `based_on` or is part of a transaction: `tries` of the
        outcome. The table's property `write.row-change-tries` sets another number.

        Args:
            where: SQL, such as `"flight = 1545 AND day < '2013-01-02'"`, a pyarrow expression or a
                Spark Column.
            spark: the session that evaluates and rewrites; by default this process does, in bounded
                memory, but for SQL that only Spark can evaluate, Columns, and files of more than
                1 GB while a session is active. `executor` of the outcome says who did.
            dry_run: count only, and change nothing; by default False.
            based_on: the version that the condition was chosen from, where it comes from rows of
                the table: what others wrote since then, where the condition can be true, is a
                conflict, and it is tried once. By default the newest.

        Returns:
            What was deleted. Where no row matches and there is no key to be recorded, nothing is
            committed, and `kind` is "unchanged".

        Raises:
            CommitConflictError: others wrote into a partition in which the condition can be true,
                or replaced a file that holds such rows, in each of the tries that the property
                `write.row-change-tries` allows, or since `based_on`: run it again.
            UsageError: the condition cannot be understood or evaluated, or Spark is needed and not
                installed.

        Spec: RC2, RC6, RC8, RC11, CF17.
        """
        check_meaning("where", [where], spark)
        given = Declared(key, fingerprint, reason, None, based_on)
        declared = self._declared(given, publish=publish)
        return delete_where(self._ctx, where, self._choice(spark), declared, dry_run=dry_run)

    @checked(where=optional(condition), reason=optional(REASON))
    def update(
        self,
        set: Mapping[str, Any],
        where: Condition | None = None,
        *,
        key: str | None = None,
        fingerprint: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        based_on: int | None = None,
        publish: bool = True,
    ) -> RowOutcome:
        """Set columns of exactly the rows for which a condition is true, in one commit.

        A row for which it is null stays. New values are computed from the row as it was, in this
        process and in bounded memory; files with such a row are rewritten (copy-on-write), no other
        file is touched. A partition column may be set: the rows move.

        Args:
            set: column -> its new value: SQL of the row's columns, such as `"delay + 1"` or
                `"'late'"`, a pyarrow expression, or a number, date or other value that is no text.
                One that does not fit its column, or would lose digits, is an error.
            where: SQL or a pyarrow expression, as for `delete`; by default all rows.
            dry_run: count only, and change nothing: no new value is computed, so one that cannot
                be, or that a constraint refuses, is an error of the update alone; by default False.
            based_on: the version that the condition and the values come from, as for `delete`; by
                default the newest.

        Returns:
            What was updated. Where no row matches and there is no key to be recorded, nothing is
            committed, and `kind` is "unchanged".

        Raises:
            SchemaMismatchError: a new value is null in a column that is not nullable.
            UsageError: the condition or a value cannot be understood or evaluated without Spark.

        Example:
            `table.update({"delay": "delay + 5"}, where="day = '2013-01-01' AND carrier = 'UA'")`

        Spec: RC7, RC6, RC8, RC11, CF17.
        """
        check_meaning("where", [where])
        check_meaning("set", set.values())
        given = Declared(key, fingerprint, reason, None, based_on)
        declared = self._declared(given, publish=publish)
        return update_where(self._ctx, set, where, declared, dry_run=dry_run)

    @checked(
        source=rows,
        where=optional(condition),
        reason=optional(REASON),
        when_matched=anything,
        when_not_matched=anything,
        when_not_matched_by_source=anything,
    )
    def merge(
        self,
        source: Any,
        on: Sequence[str] | str | Mapping[str, str],
        *,
        null_safe: bool | Sequence[str] | str = False,
        where: Condition | None = None,
        keep: Literal["last"] | None = None,
        by: str | None = None,
        merge_schema: bool = False,
        when_matched: Literal["update", "delete"]
        | Update
        | Delete
        | Sequence[Update | Delete]
        | None = "update",
        when_not_matched: Literal["insert"] | Insert | Sequence[Insert] | None = "insert",
        when_not_matched_by_source: Literal["update", "delete"]
        | Update
        | Delete
        | Sequence[Update | Delete]
        | None = None,
        spark: SparkSession | None = None,
        key: str | None = None,
        fingerprint: str | None = None,
        reason: str | None = None,
        watermarks: Ranges | None = None,
        dry_run: bool = False,
        based_on: int | None = None,
        publish: bool = True,
    ) -> RowOutcome:
        """Merge rows by key (upsert), in one commit.

        Rows whose key the source has become its row, or are deleted; its other rows are inserted.
        The source is evaluated once. Two merges of one key at once are done one after the other.

        Args:
            source: a Spark DataFrame, or anything with `__arrow_c_stream__`, with the table's
                columns, or with at least `on` where rows are only deleted.
            on: the columns of the key, or for other names in the source, column of the table ->
                column of the source; a null in one is equal to nothing.
            null_safe: a null in a key is equal to a null (SQL's `<=>`): True, for all columns of
                the key, or the table's columns for which that is so; by default False.
            where: a condition beside the key: SQL such as `"target.day >= source.since"`, or a
                pyarrow expression. Where it is not true of two rows with one key, neither has the
                other: they count as not matched. Rows are merged as by `Update()` and `Insert()`
                then, never as a whole. By default none.
            keep: "last": of several rows of the source with one key, the one with the highest value
                of `by` counts, and it is an error if two have that; by default the source has each
                key once.
            by: with `keep`, a column of the source: numbers that are no floats, dates, timestamps
                or texts; a null is the lowest. The table need not have it. By default none.
            merge_schema: let the table's schema change in the same commit, as the function `write`
                does: new columns, which are null in other rows, wider types, members of structs. Of
                a source whose clauses name their columns, only these count. By default the source
                has to fit.
            when_matched: what becomes of the table's rows whose key the source has: "update", the
                default: they become the source's rows; "delete"; None: they stay; or `Update(…)`
                and `Delete(…)`, one or a list: the first whose condition is true applies.
            when_not_matched: what becomes of the source's other rows: "insert", the default; None:
                nothing; or `Insert(…)`, one or a list.
            when_not_matched_by_source: what becomes of the table's other rows: None, the default:
                they stay; "delete"; or `Update(…)` and `Delete(…)`, one or a list. The whole table
                is read then.
            spark: the session that compares and rewrites; by default that of a DataFrame, and for
                other sources this process does it, unless a session is active and the table has
                more than 1 GB; in memory are then the source's keys, and a source of up to 128 MB.
            dry_run: say what would be done and where, with the paths of the files, and commit
                nothing; a source that is not held in memory is written, and deleted again. New
                values of rows of the table are not computed, and not all constraints checked: what
                fails there is an error of the merge alone. By default False.
            based_on: the version of the table that the source's rows were read from, if they were,
                as for the function `write`: what others wrote since then, where such a key can lie,
                is a conflict. By default what the rows carry, else the newest.

        Returns:
            What was deleted, updated and inserted.

        Raises:
            CommitConflictError: others wrote into a partition in which such a key can lie (the
                whole table, unless `on` names the partition columns) in each try, as for `delete`,
                or since `based_on`: run it again.
            UsageError: the source has a key twice, or twice with the highest value of `by`.

        Example:
            `table.merge(corrections, on=["day", "flight"], key="corrections:7")`

        Spec: RC3, RC4, RC6, RC8, RC9, RC11, RC12, CF17, WM2.
        """
        is_spark = validation.is_spark_dataframe(source)
        given = Declared(key, fingerprint, reason, watermarks, based_on)
        declared = self._declared(given, publish=publish)
        clauses = rules.Clauses(
            as_clauses("when_matched", when_matched, (Update, Delete)),
            as_clauses("when_not_matched", when_not_matched, (Insert,)),
            as_clauses("when_not_matched_by_source", when_not_matched_by_source, (Update, Delete)),
        )
        rules.check_not_empty(clauses)
        if where is not None:
            check_meaning("where", [where])
        for name, some in clauses.by_argument():
            check_meaning(name, (text for clause in some for text in rules.clause_texts(clause)))
        is_whole = is_simple(when_matched) and is_simple(when_not_matched)
        is_whole = is_whole and not clauses.by_source and where is None
        spark = spark or (source.sparkSession if is_spark else None)
        choice, new = self._choice(spark), self._new_rows(source)
        if (keep is None) != (by is None):
            raise UsageError('keep="last" and by="…" go together: the row of a key that is kept')
        compared = MergeOn(on, null_safe, by, merge_schema, where)
        return merge(
            self._ctx, new, compared, clauses, choice, declared, whole=is_whole, dry_run=dry_run
        )

    @checked(data=rows, where=condition, reason=optional(REASON))
    def overwrite_where(
        self,
        data: Any,
        where: Condition,
        *,
        merge_schema: bool = False,
        spark: SparkSession | None = None,
        key: str | None = None,
        fingerprint: str | None = None,
        reason: str | None = None,
        watermarks: Ranges | None = None,
        dry_run: bool = False,
        based_on: int | None = None,
        publish: bool = True,
    ) -> RowOutcome:
        """Replace exactly the rows for which a condition is true, in one commit (`replaceWhere`).

        Every row of the data has to match, too: a row for which the condition is false or null is
        an error before anything is visible, because a rerun would duplicate it. A row of the table
        for which it is null stays.

        Args:
            data: as for the function `write`; without a row, it only deletes.
            where: SQL, a pyarrow expression or a Spark Column, as for `delete`.
            merge_schema: as for the function `write`; by default False.
            spark: as for `delete`; by default that of a DataFrame.
            dry_run: as for `merge`.
            based_on: the version that the rows were read from, as for the function `write`; by
                default what the data carries.

        Returns:
            What was deleted and inserted.

        Raises:
            UsageError: a row of the data does not match, or the condition cannot be understood.

        Example:
            `table.overwrite_where(may, "day >= '2013-05-01' AND day < '2013-06-01'", key="may:2")`

        Spec: RC10, RC6, RC8, RC11, RC12, CF16, CF17, WM2.
        """
        spark = spark or (data.sparkSession if validation.is_spark_dataframe(data) else None)
        check_meaning("where", [where], spark)
        new, choice = self._new_rows(data), self._choice(spark)
        given = Declared(key, fingerprint, reason, watermarks, based_on)
        declared = self._declared(given, publish=publish)
        return overwrite_where(
            self._ctx, new, where, choice, declared, merge_schema=merge_schema, dry_run=dry_run
        )

    def _new_rows(self, data: Any) -> NewRows:
        """Rows of a caller."""
        if not validation.is_spark_dataframe(data):
            return arrow_data(self._ctx, data)
        from ..spark.row_changes import spark_data  # late: pyspark is an extra

        return spark_data(self._ctx, data, storage_options=self._storage_options)

    def _choice(self, spark: SparkSession | None) -> ExecutorChoice:
        """Who does the work: this process, or Spark. [RC8]"""

        def with_spark() -> RowExecutor:
            from ..spark.row_changes import SparkRows  # late: pyspark is an extra

            return SparkRows(session(spark), self._ctx, self._storage_options)

        return ExecutorChoice(ArrowRows(self._ctx), with_spark, is_given=spark is not None)
