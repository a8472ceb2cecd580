"""New values of columns, computed from the rows that they replace, with Arrow. [RC7]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.filter.arrow_expression import columns_in, parse_expression
from ...core.filter.sql_expression import Resolve, Session, compile_value, literal, to_type
from ...core.filter.sql_syntax import IncompleteError, NotUnderstoodError
from ...core.schema.arrow_schema import (
    ADVICE,
    arrow_schema,
    arrow_type,
    converted,
    exactly,
    is_number,
)
from ...core.schema.evolution import find_column
from ...core.schema.fields import Field, Schema, is_text, type_text
from ...core.schema.fields import shown as text
from ...errors import SchemaMismatchError, UsageError
from .conditions import evaluated, evaluating, mask_of, shown, text_of


class Assignments:
    """The values of `set`: column -> SQL, a pyarrow expression, or a value of Python."""

    def __init__(
        self,
        given: Mapping[str, Any],
        schema: Schema,
        resolve: Resolve,
        inputs: pa.Schema,
        session: Session,
        *,
        stays: str | None = "",
    ) -> None:
        """schema: the table's; resolve: the names that SQL may use; inputs: the columns of the rows
        that expressions are evaluated for; session: of SQL; stays: with this before its name, a
        column that is not set is among them; None: it becomes null."""
        _check_names(given)
        pairs = [(find_column(schema, name), value) for name, value in given.items()]
        if not pairs or len({field.id for field, _ in pairs}) < len(pairs):
            raise UsageError(
                f"set names one or more columns, each once, not {list(given)}; nothing was done"
            )
        self._set = [field.name for field, _ in pairs]
        compiled = {
            field.name: _compiled(field, value, resolve, inputs, session) for field, value in pairs
        }
        self._fields = {field.name: field for field, _ in pairs}
        self._columns = {
            field.name: compiled[field.name]
            if field.name in compiled
            else pc.scalar(pa.scalar(None, arrow_type(field.type)))
            if stays is None
            else pc.field(stays + field.name)
            for field in schema.fields
        }
        self._inputs: set[str] | None = set()  # None: unknown
        for name in self._set:
            paths = columns_in(self._columns[name])
            if paths is None:
                self._inputs = None
                break
            self._inputs |= {path[0] for path in paths}
        self._text = ", ".join(f"{field.name} = {value_text(value)}" for field, value in pairs)
        self.changed(inputs.empty_table())  # types are checked before any row is read

    def inputs(self, rows: pa.Table) -> list[str]:
        """The columns of the rows that new values are computed from, one at least."""
        names = self._inputs
        if names is None:
            return list(rows.column_names)
        return [name for name in rows.column_names if name in names] or rows.column_names[:1]

    def new_values(self, rows: pa.Table) -> pa.Table:
        """The columns that are set, for these rows, in the same order; errors as for `changed`."""
        return self._evaluated(rows, {name: self._columns[name] for name in self._set})

    def changed(self, rows: pa.Table) -> pa.Table:
        """The rows with new values, in the table's columns and in the same order. UsageError where
        one cannot be computed or does not fit its column."""
        return self._evaluated(rows, self._columns)

    def _evaluated(self, rows: pa.Table, columns: Mapping[str, pc.Expression]) -> pa.Table:
        with evaluating(self._text, "set"):
            made = evaluated(rows, columns)
        columns_made = dict(zip(made.column_names, made.columns, strict=True))
        for name, field in self._fields.items():
            columns_made[name] = _fitting(field, columns_made[name], shown(self._text))
        # at once: a table that takes them one by one is made anew for each
        return pa.table(columns_made)


def declared_set(given: Mapping[str, Any]) -> list[str]:
    """`set` as it is declared with a key, in whatever order it was given. [RC6]"""
    _check_names(given)
    return [text for name in sorted(given) for text in (name, value_text(given[name]))]


def _check_names(given: Mapping[str, Any]) -> None:
    """UsageError unless columns are named by texts."""
    for name in given:
        if not is_text(name):
            refusal = UsageError(
                f"invalid set: expected names of columns, with a value for each, not {text(name)}; "
                "nothing was done"
            )
            refusal.argument = "set"
            raise refusal


def value_text(value: Any) -> str:
    """One value of `set` as text."""
    if isinstance(value, str | pc.Expression):
        return text_of(value)
    try:
        return f"value {value!r}"
    except (OverflowError, ValueError):  # a value of Arrow that Python cannot hold
        return f"value of the type {type(value).__name__}"


def changed_rows(
    batch: pa.RecordBatch, form: pc.Expression, assignments: Assignments
) -> tuple[pa.Table, pa.BooleanArray]:
    """The batch with new values in the rows for which the condition is true, in the same order, and
    which these are. Expressions are evaluated for these rows only."""
    rows = pa.Table.from_batches([batch])
    mask = pc.fill_null(mask_of(rows, form), False).combine_chunks()
    count = mask.true_count
    if not count:
        return rows, mask
    new = assignments.new_values(rows.select(assignments.inputs(rows)).filter(mask))
    for name, values in zip(new.column_names, new.columns, strict=True):
        place = rows.schema.get_field_index(name)
        field = rows.schema.field(place)
        values = values.cast(field.type).combine_chunks()
        column = _replaced(batch.column(place), mask, values) if count < len(mask) else values
        rows = rows.set_column(place, field, column)
    return rows, mask


def _replaced(column: pa.Array, mask: pa.Array, values: pa.Array) -> pa.Array:
    """The column with these values, in order, where the mask is true."""
    try:
        return pc.replace_with_mask(column, mask, values)
    except pa.ArrowNotImplementedError:  # nested types
        places = np.arange(len(column))
        places[pc.indices_nonzero(mask).to_numpy()] = len(column) + np.arange(len(values))
        return pa.concat_arrays([column, values]).take(pa.array(places))


def _compiled(
    field: Field, value: Any, resolve: Resolve, inputs: pa.Schema, session: Session
) -> pc.Expression:
    """The value, a number in whatever numeric type it has by itself."""
    if isinstance(value, pc.Expression):
        parse_expression(value, inputs, f"set {field.name!r}")
        return value
    try:
        found = compile_value(value, resolve, session) if isinstance(value, str) else literal(value)
        given, wanted = arrow_type(found.type), arrow_type(field.type)
        if not (is_number(given) and is_number(wanted)):
            return to_type(found, field.type)
        if found.is_literal:
            return pc.scalar(_literal_number(pa.array([found.value], given), wanted)[0])
        return found.expression
    except (IncompleteError, NotUnderstoodError, pa.ArrowException, OverflowError) as error:
        kind_text = type_text(field.type)
        raise UsageError(
            f"set {field.name!r}: {shown(value)} is no value of the type {kind_text}: {error}; "
            "nothing was done. Give SQL of the columns, in which a text has quotes of its own "
            "(\"'late'\"), a pyarrow expression, or a value"
        ) from error


def _literal_number(number: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A literal in the column's type, all of whose digits a float column has to keep: 0.1 becomes
    the nearest float."""
    if not pa.types.is_floating(wanted) or not pa.types.is_floating(number.type):
        return exactly(number, wanted)
    made = number.cast(wanted, safe=False)
    if made.cast(pa.string()) != number.cast(pa.string()):
        raise pa.ArrowInvalid(f"a {wanted} keeps {made.cast(pa.string())[0]} of it")
    return made


def _fitting(field: Field, values: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Computed values as values of the column; UsageError where one would change. [RC7]"""
    wanted = arrow_schema(Schema(fields=(field,)), physical=False, ids=False).field(0).type
    if values.type.equals(wanted):
        return values
    try:
        chunks = [converted(chunk, field) for chunk in values.chunks or [values.combine_chunks()]]
        return pa.chunked_array(chunks).cast(wanted)
    except SchemaMismatchError as error:
        raise UsageError(
            f"set {field.name!r}: {what} cannot be evaluated: {str(error).removesuffix(ADVICE)} "
            "Nothing was done. Cast or round it in the expression."
        ) from error
