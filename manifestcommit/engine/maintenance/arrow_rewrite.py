"""Rewrites the groups of a compaction in this process, with Arrow. [GC11] [GC16]"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from ...core.filter.sql_expression import compile_condition
from ...core.filter.sql_syntax import NotUnderstoodError
from ...core.schema.fields import Schema
from ...core.schema.spark_json import has_own_order
from ...core.table.snapshot import Snapshot
from ...errors import UsageError
from ...store.base import is_remote
from ..metadata.table_context import TableContext
from ..row_changes.arrow_rows import scan, size_of, write_rows
from ..row_changes.conditions import complete
from ..runtime.concurrency import parallel_writers
from .compaction import Choose, NewFiles, Rewrite, Rewriting, choose_by, misplaced

_MOST_AT_ONCE = 2  # groups; each takes a reader's and a writer's memory
MOST_SORTED = 128 << 20  # bytes of files whose rows are sorted in memory, several times as many


def rewriter(session: TableContext, *, sort_by: Sequence[str] = ()) -> Rewrite:
    """A function that rewrites groups of files in streams. sort_by: columns by which the rows of
    each new file are sorted, nulls first; such a group is held in memory. [GC11]"""

    def rewrite(snapshot: Snapshot, groups: Sequence[Rewriting]) -> Iterator[NewFiles]:
        attempts = [session.env.randomness(8).hex() for _ in groups]

        def one(number: int) -> NewFiles:
            group = groups[number]
            rows = scan(session, snapshot, group.entries)
            if sort_by:
                rows = _sorted(rows, sort_by)
            size = size_of(group.entries)
            entries, intake = write_rows(
                session, group.plan, rows, task=number, attempt=attempts[number], size=size
            )
            return NewFiles(entries=tuple(entries), intake=intake)

        largest = max((size_of(group.entries) for group in groups), default=0)
        writers = _MOST_AT_ONCE if is_remote(session.store) else parallel_writers(largest)
        threads = min(_MOST_AT_ONCE, len(groups), writers)
        if threads < 2:  # a thread has memory of its own; two of a large group fill two cores
            yield from map(one, range(len(groups)))
            return
        with ThreadPoolExecutor(threads, thread_name_prefix="manifestcommit-rewrite") as pool:
            yield from pool.map(one, range(len(groups)))

    return rewrite


def sorts_here(schema: Schema, sort_by: Sequence[str], size: int) -> bool:
    """Whether this process sorts such files: by columns whose order it knows, and in memory.
    size: bytes of a file at most."""
    fields = {field.name: field for field in schema.fields}
    return not sort_by or (
        size <= MOST_SORTED
        and all(
            isinstance(fields[name].type, str) and not has_own_order(fields[name])
            for name in sort_by
        )
    )


def choose_by_sql(text: str, snapshot: Snapshot, spark: Callable[[Exception], Choose]) -> Choose:
    """The partitions for which a condition in SQL is true; spark: asked for what only Spark can
    evaluate. [GC16]"""
    schema = snapshot.schema or Schema(fields=())
    by = Schema(fields=tuple(f for f in schema.fields if f.id in snapshot.partition_by))

    def choose(partitions: pa.Table) -> Sequence[bool]:
        try:
            with complete(text, "where"):
                form = compile_condition(text, by)
        except NotUnderstoodError as error:
            return spark(error)(partitions)
        except UsageError as error:
            if error.argument is not None:
                raise
            raise UsageError(misplaced(partitions, str(error))) from None
        return choose_by(form)(partitions)

    return choose


def _sorted(rows: Iterator[pa.RecordBatch], sort_by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    batches = list(rows)
    if batches:
        table = pa.Table.from_batches(batches)
        keys: dict[str, pa.ChunkedArray] = {}
        for number, name in enumerate(sort_by):  # nulls first, NaN last, as in Spark
            keys[f"{number} is valid"] = table.column(name).is_valid()
            keys[f"{number}"] = table.column(name)
        order = pc.sort_indices(pa.table(keys), sort_keys=[(key, "ascending") for key in keys])
        del batches
        yield from table.take(order).to_batches()
