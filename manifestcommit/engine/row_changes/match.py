"""The rows of a merge's source beside those of the table, by key, in this process: the keys are in
memory, and with clauses the source's rows. [RC3] [RC4]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...core.filter.predicate import And, IsIn, Predicate
from ...core.schema import arrow_schema
from ...core.schema.fields import Field
from ...core.table.entries import Entry
from ...errors import UsageError
from ..datafile.writer import WritePlan
from ..metadata.table_context import TableContext
from ..operations.row_change import RowChange
from .clauses import Compiled, Rules, inserted
from .rewrite import NewFiles, write_rows

_FEW_KEYS = 10_000  # by whose values, besides their bounds, files are skipped


class Staged(NamedTuple):
    """The source of a merge as files of this job, which nothing lists yet. files: their entries;
    rules: what becomes of rows; whole: rows of the source take the place of others as they are."""

    plan: WritePlan
    new: NewFiles
    files: Sequence[Entry]
    keys: Sequence[Field]
    rules: Compiled
    whole: bool = False

    @property
    def rows(self) -> int:
        return self.new.rows


class ArrowMatch:
    """A source whose keys are in memory. rule: what becomes of the table's rows."""

    def __init__(self, session: TableContext, change: RowChange, staged: Staged) -> None:
        self._session, self._change, self._staged = session, change, staged
        rules, schema = staged.rules, staged.plan.schema
        fields = staged.keys if staged.whole else schema.fields
        empty = arrow_schema.arrow_schema(schema, physical=False, ids=False)
        batches = list(staged_rows(session, staged.files, fields))
        self._source = pa.Table.from_batches(batches, None if batches else empty).combine_chunks()
        # no rows: no files, and nothing is asked of the keys
        self._keys = KeyIndex(staged.keys, self._source) if batches else None
        rows = None if staged.whole else self._source
        prefix = "" if staged.whole else "target."
        self.rule = Rules(rules.by_source, rules.matched, self._keys, rows, prefix)

    @property
    def keys(self) -> int:
        return int(np.count_nonzero(self.rule.times))

    @property
    def most(self) -> int:
        return int(self.rule.times.max(initial=0))

    def members(self) -> Predicate | None:
        if self._keys is None or self._staged.rows > _FEW_KEYS:
            return None
        return self._keys.members()

    def write(self, first: int) -> NewFiles:
        times = self.rule.times
        often = np.maximum(times - (first - 1), 0) if first else (times == 0).astype(np.int64)
        start = 0

        def repeated() -> Iterator[pa.RecordBatch]:
            nonlocal start
            fields = self._staged.plan.schema.fields
            for batch in staged_rows(self._session, self._staged.files, fields):
                some = often[start : start + batch.num_rows]
                start += batch.num_rows
                yield batch.take(pa.array(np.repeat(np.arange(batch.num_rows), some)))

        return self._write(repeated())

    def insert(self) -> NewFiles:
        rows = self._source.filter(pa.array(self.rule.times == 0))
        pieces = inserted(rows, self._staged.rules.unmatched)
        return self._write(batch for piece in pieces for batch in piece.to_batches())

    def _write(self, batches: Iterator[pa.RecordBatch]) -> NewFiles:
        return write_rows(self._session, self._change.plan(sources=self._change.sources), batches)


def staged_rows(
    session: TableContext, files: Sequence[Entry], fields: Sequence[Field]
) -> Iterator[pa.RecordBatch]:
    """These columns of the source, each value as it was stored, in the order of the files."""
    names, columns = [field.name for field in fields], [field.file_name for field in fields]
    for entry in files:
        with session.store.open_input(entry.path) as opened:
            for batch in pq.ParquetFile(opened).iter_batches(columns=columns):
                yield batch.select(columns).rename_columns(names)


class KeyIndex:
    """The keys of the source, numbered as its rows are; a key with a null is equal to nothing.
    [RC3]"""

    def __init__(self, keys: Sequence[Field], rows: pa.Table) -> None:
        """rows: the key columns of the source. UsageError that names a key which comes twice."""
        self.names, self.rows = [field.name for field in keys], rows.num_rows
        self._steps: list[tuple[pa.Array, pa.Array | None]] = []
        code: Any = None
        for name in self.names:
            column = rows.column(name).combine_chunks()
            values = column.unique().drop_null()
            found = pc.index_in(column, value_set=values).cast(pa.int64())
            if code is None:
                code = found
                self._steps.append((values, None))
            else:
                # numbered again, so that a code is never larger than the product of two counts
                both = pc.add(pc.multiply(code, len(values)), found)
                known = both.unique().drop_null()
                code = pc.index_in(both, value_set=known).cast(pa.int64())
                self._steps.append((values, known))
        valid = code.drop_null()
        self._distinct = valid.unique()
        if len(self._distinct) < len(valid):
            self._refuse(rows, code)
        self._numbers = pc.index_in(self._distinct, value_set=code).cast(pa.int64())
        of_each = zip(self.names, self._steps, strict=True)
        self.filter = reduce(and_, (pc.field(name).isin(values) for name, (values, _) in of_each))

    def members(self) -> Predicate:
        """True of every row with one of these keys, but for values that Python cannot hold: a day
        before the year 1 or after 9999."""
        known = []
        for name, (values, _) in zip(self.names, self._steps, strict=True):
            with suppress(OverflowError, ValueError):
                held = tuple(values.to_pylist())
                known += [IsIn(column=(name,), values=held)] if held else []
        return And(args=tuple(known))

    def find(self, rows: pa.Table) -> pa.Array:
        """For each row the number of the source's row that has its key; null: none has."""
        code: Any = None
        for name, (values, known) in zip(self.names, self._steps, strict=True):
            column = rows.column(name).combine_chunks()
            found = pc.index_in(column, value_set=values).cast(pa.int64())
            if known is None:
                code = found
            else:
                both = pc.add(pc.multiply(code, len(values)), found)
                code = pc.index_in(both, value_set=known).cast(pa.int64())
        return self._numbers.take(pc.index_in(code, value_set=self._distinct))

    def _refuse(self, rows: pa.Table, code: pa.Array) -> None:
        counts = pc.value_counts(code.drop_null())
        twice = counts.filter(pc.greater(counts.field("counts"), 1))[0].as_py()
        row = pc.index(code, twice["values"]).as_py()
        key = ((name, rows.column(name)[row]) for name in self.names)
        shown = ", ".join(f"{name}={_value_text(value)}" for name, value in key)
        raise UsageError(
            f"the source has {twice['counts']} rows with the key {shown}; nothing "
            "was committed. Give it one row for each key."
        )


def _value_text(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):  # a day that Python cannot hold
        return f"{value.value} of the type {value.type}"
