"""Updates rows: files with matching rows are rewritten, with new values in these rows
(copy-on-write). [RC7] [RC1]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...core.filter.partitions_read import partitions_of
from ...core.filter.sql_expression import columns_of
from ...core.filter.sql_syntax import NotUnderstoodError
from ...core.schema.arrow_schema import arrow_schema
from ...core.schema.fields import Schema
from ...errors import UsageError
from ..datafile.writer import check_rows
from ..metadata.table_context import TableContext
from ..operations.row_change import NOTHING, Declared, RowChange, RowOutcome
from ..scan import planning
from .arrow_rows import ArrowRows, by_file, read_once, rewrite, scan
from .assignments import Assignments, changed_rows, declared_set
from .conditions import Condition, evaluating, session_of, shown, text_of, understand
from .removal import TouchedFiles, by_sources, finish, rows_by_partition, touched_files


class Update(NamedTuple):
    """An update that has looked and written, and has not committed. files: None: an earlier run did
    it."""

    change: RowChange
    files: TouchedFiles | None = None


def update_where(
    session: TableContext,
    values: Mapping[str, Any],
    condition: Any,
    declared: Declared = NOTHING,
    *,
    dry_run: bool = False,
) -> RowOutcome:
    """Set columns of exactly the rows for which the condition is true; None: of all rows. [RC7]"""
    change, files = begin_update(session, values, condition, declared, dry_run=dry_run)
    rows = files.rows if files is not None else 0
    return finish(change, session, files, executor="arrow", planned=dry_run, rows_updated=rows)


def begin_update(
    session: TableContext,
    values: Mapping[str, Any],
    condition: Any,
    declared: Declared = NOTHING,
    *,
    dry_run: bool = False,
) -> Update:
    """Find the rows and, unless it is a dry run, write the files that take the place of others.
    [RC1]"""
    condition = pc.scalar(True) if condition is None else condition
    texts = ["where", text_of(condition), "set", *declared_set(values)]
    change = RowChange(session, "update", texts, declared)
    if change.already_committed:
        return Update(change)
    schema = change.snapshot.schema
    assert schema is not None
    inputs = arrow_schema(schema, physical=False, ids=False)
    assignments = Assignments(
        values, schema, columns_of(schema), inputs, session_of(now_us=session.env.now_us())
    )
    wanted = understood(condition, schema)
    change.read(partitions_of(wanted.predicate, schema, change.snapshot.partition_by))
    entries = planning.entries_table(session, change.snapshot, wanted.predicate)
    here = ArrowRows(session)
    rows = rows_by_partition(
        entries, change, wanted.predicate, lambda some, by: here.chosen(some, by, wanted)
    )
    work = _Changes(session, change, wanted, assignments)
    if rows is None:
        rows = None if dry_run else work.counted_at_once(entries)
    if rows is None:
        rows = here.count(change, entries, wanted)
    files = touched_files(entries, rows)
    if not dry_run and files.rows:
        work.rewrite(files)
    return Update(change, files)


def understood(condition: Any, schema: Schema) -> Condition:
    """A condition that this process evaluates; UsageError for any other. [RC8]"""
    try:
        return understand(condition, schema, "where", session_of())
    except NotUnderstoodError as error:
        refusal = UsageError(
            f"invalid where {shown(condition)}: {error}, and this is done without Spark; nothing "
            "was done. Give other SQL, or a pyarrow expression, such as "
            "pyarrow.compute.field('flight') == 1545"
        )
        refusal.argument = "where"
        raise refusal from error


class _Changes:
    """The rows of files with their new values."""

    def __init__(
        self, session: TableContext, change: RowChange, wanted: Condition, assignments: Assignments
    ) -> None:
        self._session, self._change = session, change
        self._wanted, self._assignments = wanted, assignments
        self._kept: dict[str, tuple[pa.Table, int]] = {}  # path -> its rows, how many are new
        self._updated: list[int] = []  # of each batch, from several threads

    def counted_at_once(self, entries: pa.Table) -> dict[str, int] | None:
        """How many rows of each file match, where the files are so small that their rows with new
        values are kept; None: they are not."""
        with evaluating(self._wanted.given):
            files = read_once(self._session, self._change.snapshot, entries)
            if files is None:
                return None
            everything = pa.concat_tables(files.values())
            columns = [column.combine_chunks() for column in everything.columns]
            batch = pa.RecordBatch.from_arrays(columns, schema=everything.schema)
            rows, mask = changed_rows(batch, self._wanted.form, self._assignments)
        counts, start = {}, 0
        for path, before, matches in by_file(files, mask):
            counts[path] = matches.true_count
            if counts[path]:
                self._kept[path] = (rows.slice(start, before.num_rows), counts[path])
            start += before.num_rows
        return counts

    def rewrite(self, files: TouchedFiles) -> None:
        """Rewrite these files with all of their rows. [RC1]"""
        change = self._change
        with evaluating(self._wanted.given):
            written = sum(
                rewrite(self._session, change, some, self._changed)
                for some in by_sources(files.entries)
            )
        check_rows(files.entries, files.rows + files.rows_kept, written, what="the condition")
        check_rows(files.entries, files.rows, sum(self._updated), what="the condition")
        change.remove(files.entries)

    def _changed(self, some: pa.Table) -> Iterator[pa.RecordBatch]:
        paths = some.column("path").to_pylist()
        if all(path in self._kept for path in paths):
            for path in paths:
                rows, count = self._kept.pop(path)
                self._updated.append(count)
                yield from rows.to_batches()
            return
        for batch in scan(self._session, self._change.snapshot, some):
            if batch.num_rows:
                rows, mask = changed_rows(batch, self._wanted.form, self._assignments)
                self._updated.append(mask.true_count)
                yield from rows.to_batches()
