"""The source of a merge: checked against the table, written once, and read back from its files.
[RC3] [RC4]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...core.schema import arrow_schema
from ...core.schema.evolution import find_column, fit
from ...core.schema.fields import Field, Schema, arrow_marks
from ...core.table.entries import Entry
from ...errors import SchemaMismatchError, UsageError
from ..datafile.row_buffer import record_batches
from ..datafile.writer import WritePlan
from ..metadata.table_context import TableContext
from ..runtime.outcome import InputTotals
from .arrow_rows import write_rows


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """The source as files of this job, which nothing lists yet. marks: what its rows say of the
    version that they were read from."""

    plan: WritePlan
    files: tuple[Entry, ...]
    intake: InputTotals | None = None
    marks: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.files)


def check_actions(when_matched: Any, when_not_matched: Any) -> None:
    """UsageError for what a merge cannot do. [RC3]"""
    known = when_matched in ("update", "delete", None) and when_not_matched in ("insert", None)
    if not known or (when_matched is None and when_not_matched is None):
        raise UsageError(
            'when_matched is "update", "delete" or None, when_not_matched "insert" or None, '
            f"and not both None; these are {when_matched!r} and {when_not_matched!r}"
        )


def keys_only(plan: WritePlan, keys: Sequence[Field]) -> WritePlan:
    """The plan of a source of which only the keys are needed."""
    fields = tuple(msgspec.structs.replace(field, nullable=True) for field in keys)
    ids = {field.id for field in keys}
    by = tuple(field_id for field_id in plan.partition_by if field_id in ids)
    return msgspec.structs.replace(plan, schema=Schema(fields=fields), partition_by=by)


def check_columns(table: Schema, data: Schema, only_keys: bool) -> list[str]:
    """The source's columns that are needed, by name: all of the table's and no others, so that an
    update loses none. [RC3]"""
    chosen = []
    for field in table.fields:
        try:
            chosen.append(find_column(data, field.name))
        except UsageError:
            what = (
                "a merge compares. Nothing was done."
                if only_keys
                else "a merge replaces whole rows. Nothing was done. Add the column, or merge the "
                "source's columns only, from Arrow data: when_matched=mc.Update(), "
                "when_not_matched=mc.Insert()"
            )
            raise SchemaMismatchError(f"the source has no column {field.name!r}: {what}") from None
    extra = [field.name for field in data.fields if field not in chosen]
    if extra and not only_keys:
        raise SchemaMismatchError(
            "the source has columns that the table does not have: "
            f"{', '.join(map(repr, extra[:10]))}. Drop them, or add them to the table "
            "(add_column). Nothing was done."
        )
    fit(table, Schema(fields=tuple(chosen)), merge=False)
    return [field.name for field in chosen]


def stage(session: TableContext, plan: WritePlan, source: Any, *, only_keys: bool) -> Staged:
    """Write a source of Arrow data, evaluating it once; SchemaMismatchError before any of it is
    read. [RC4]"""
    given, batches = record_batches(source)
    data = arrow_schema.from_arrow(given, session.new_field_id)
    chosen = check_columns(plan.schema, data, only_keys)
    attempt = session.env.randomness(8).hex()
    rows = (batch.select(chosen) for batch in batches)
    files, intake = write_rows(session, plan, rows, task=0, attempt=attempt)
    marks = arrow_marks(given.metadata)
    return Staged(plan=plan, files=tuple(files), intake=intake, marks=marks)


def staged_rows(
    session: TableContext, staged: Staged, fields: Sequence[Field]
) -> Iterator[pa.RecordBatch]:
    """These columns of the source, each value as it was stored, in the order of the files."""
    names = [field.name for field in fields]
    for entry in staged.files:
        with session.store.open_input(entry.path) as opened:
            columns = [field.file_name for field in fields]
            for batch in pq.ParquetFile(opened).iter_batches(columns=columns):
                yield batch.select(columns).rename_columns(names)


class KeyIndex:
    """The keys of the source, numbered as its rows are; a key with a null is equal to nothing.
    [RC3]"""

    def __init__(self, keys: Sequence[Field], rows: pa.Table) -> None:
        """rows: the key columns of the source. UsageError that names a key which comes twice."""
        self._names = [field.name for field in keys]
        self._steps: list[tuple[pa.Array, pa.Array | None]] = []
        code: Any = None
        for name in self._names:
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
        self._rows = pc.index_in(self._distinct, value_set=code).cast(pa.int64())

    def values(self, name: str) -> pa.Array:
        """The different values of a key column."""
        return self._steps[self._names.index(name)][0]

    def python_values(self, name: str) -> list[Any] | None:
        """The same as values of Python; None where it cannot hold one: a day before the year 1 or
        after 9999."""
        try:
            return list(self.values(name).to_pylist())
        except (OverflowError, ValueError):
            return None

    def find(self, rows: pa.RecordBatch) -> pa.Array:
        """For each row the number of the source's row that has its key; null: none has."""
        code: Any = None
        for name, (values, known) in zip(self._names, self._steps, strict=True):
            found = pc.index_in(rows.column(name), value_set=values).cast(pa.int64())
            if known is None:
                code = found
            else:
                both = pc.add(pc.multiply(code, len(values)), found)
                code = pc.index_in(both, value_set=known).cast(pa.int64())
        return self._rows.take(pc.index_in(code, value_set=self._distinct))

    def _refuse(self, rows: pa.Table, code: pa.Array) -> None:
        counts = pc.value_counts(code.drop_null())
        twice = counts.filter(pc.greater(counts.field("counts"), 1))[0].as_py()
        row = pc.index(code, twice["values"]).as_py()
        key = ((name, rows.column(name)[row]) for name in self._names)
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
