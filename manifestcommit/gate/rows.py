"""Constraints: binding their text to a table's columns, and checking rows against them. [CK1] [CK2]

This module is the gate that the engine calls, for tables that have constraints.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import compress
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from ..files.writer import WritePlan
from ..filter.arrow_expression import parse_expression
from ..filter.predicate import ColumnPath, Not, Predicate
from ..filter.sql_expression import Session, columns_of, compile_value, truth_of
from ..filter.sql_syntax import NotUnderstoodError, parse
from ..format.change import Write
from ..format.evolution import apply_edits
from ..format.fields import Field, Schema, StructType, shown
from ..format.snapshot import Constraint, Snapshot, check_condition, check_constraints, never_null
from ..format.values import Conformer, arrow_schema
from ..log.table_context import Gate, TableContext
from ..protocol.conflict import Violation
from ..rows.clauses import evaluating, mask_of
from ..rows.row_change import each_of, scan
from ..runtime.environment import map_concurrently
from ..runtime.outcome import constraint_error
from ..scan.planning import entries_table

_EXAMPLES = 3
_FILES = 3
_VALUE = 60  # characters of a value in an example
# A constraint means the same in every process: no zone but UTC, no time, and nothing that only
# Spark can evaluate.
_ANYWHERE = Session(is_utc=True)


if TYPE_CHECKING:  # this module is one
    from . import rows

    _GATE: Gate = rows


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint as it is evaluated on rows with these columns. what: what errors call it; fails:
    what bounds have to rule out; columns: the top-level columns that it reads -> what the table
    calls them."""

    name: str
    what: str
    condition: str
    form: Any
    fails: Predicate
    columns: dict[str, str]


def bind(ctx: TableContext, conditions: Mapping[str, str], schema: Schema) -> dict[str, Constraint]:
    """The constraints with these names and conditions on a table with this schema. UsageError where
    one cannot be evaluated by every process at any time alike. [CK1]"""
    bound = {}
    for name, condition in conditions.items():
        if not isinstance(name, str) or not isinstance(condition, str):
            raise UsageError(
                f"{_named(name)}: expected SQL text, got {shown(condition)}; nothing was done"
            )
        bound[name] = _bound(ctx, _named(name), condition, schema)
        _check_of(name, bound[name], schema, physical=False)
    try:
        check_constraints(bound)
    except ValueError as error:
        raise UsageError(f"{error}; nothing was done") from None
    return bound


def _named(name: object) -> str:
    """What errors call a constraint."""
    return f"the constraint {shown(name)}"


def _bound(ctx: TableContext, what: str, condition: str, schema: Schema) -> Constraint:
    columns: dict[str, int] = {}
    resolve = columns_of(schema)

    def noted(names: tuple[str, ...]) -> tuple[ColumnPath, Field]:
        path, field = resolve(names)
        columns[_spelled(names)] = field.id
        return path, field

    with _readable(what, condition):
        truth_of(compile_value(condition, noted, _ANYWHERE))
    return Constraint(id=ctx.env.randomness(8).hex(), condition=condition, columns=columns)


def check_schema(snapshot: Snapshot, schema: Schema) -> None:
    """UsageError where a constraint of the table could not be evaluated on these columns. [CK3]"""
    for name, constraint in snapshot.constraints.items():
        _check_of(name, constraint, schema, physical=False)


class RowChecks:
    """Checks the rows that are written by a plan, in the form of data files, and counts those that
    violate a constraint. [CK2]"""

    def __init__(self, plan: WritePlan, url: str) -> None:
        self._checks, self._url = _checks_of(plan), url
        self._found: dict[str, Violation] = {}

    def take(self, rows: pa.RecordBatch) -> bool:
        """Whether all rows so far keep all constraints."""
        table = pa.Table.from_batches([rows])
        for check in self._checks:
            found = _violation(check, table)
            if found is not None:
                self._found[check.name] = _together([self._found.get(check.name), found])
        return not self._found

    def end(self) -> None:
        """ConstraintError with the number of rows that violate the first constraint, if any do."""
        if self._found:
            raise constraint_error(self._url, next(iter(self._found.values())))


class Splitter:
    """Splits rows by the constraints of a table, before they are written by this plan. A column
    that may not be null is a constraint, too. [CK7]"""

    def __init__(self, plan: WritePlan) -> None:
        fields = plan.schema.fields
        self._checks = _checks_of(plan)
        named = {never_null(each) for each in plan.constraints.values()}  # by the constraint's name
        bare = [field for field in fields if not field.nullable and field.id not in named]
        self._required = {not_null_name(field): field.file_name for field in bare}
        read = {column for check in self._checks for column in check.columns}
        read |= set(self._required.values())
        self._fields = tuple(
            msgspec.structs.replace(field, nullable=True)
            for field in fields
            if field.file_name in read
        )
        self._conformer = Conformer(Schema(fields=self._fields))

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch, pa.Array]:
        """The rows that keep all constraints, the others, and the names that each violates."""
        wanted = {field.name.lower() for field in self._fields}
        names = [name for name in batch.schema.names if name.lower() in wanted]
        rows = pa.Table.from_batches([self._conformer.conform(batch.select(names))])
        masks = {name: rows.column(at).is_null() for name, at in self._required.items()}
        masks |= {check.name: _failed(check, rows) for check in self._checks}
        if not any(pc.any(mask).as_py() for mask in masks.values()):
            return batch, batch.slice(0, 0), pa.array([], pa.list_(pa.string()))
        failed = reduce(pc.or_, masks.values()).combine_chunks()
        marks = zip(*(mask.filter(failed).to_pylist() for mask in masks.values()), strict=True)
        why = pa.array([list(compress(masks, each)) for each in marks], pa.list_(pa.string()))
        return batch.filter(pc.invert(failed)), batch.filter(failed), why


def _checks_of(plan: WritePlan) -> list[Check]:
    """The constraints on rows in the form of data files."""
    return [
        _check_of(name, each, plan.schema, physical=True) for name, each in plan.constraints.items()
    ]


def not_null_name(field: Field) -> str:
    """What the constraint is called by which this column is never null. [CK7]"""
    plain = re.fullmatch(r"\w{1,90}", field.name, re.ASCII)
    return f"not_null_{field.name if plain else field.id}"


def check_change(
    ctx: TableContext, head: Snapshot, change: Write, names: Sequence[str]
) -> Violation | None:
    """Check the files of a change against these constraints: by their bounds where these decide,
    else by reading them. [CK2]"""
    own = own_state(head, change, apply_edits(change.initial or head.schema, change.edits))
    constraints = {name: head.constraints[name] for name in names}
    return first_violation(ctx, own, constraints)


def own_state(head: Snapshot, change: Write, schema: Schema) -> Snapshot:
    """A state that has the files which a change adds, and no others."""
    return msgspec.structs.replace(
        head,
        schema=schema,
        partition_by=change.partition_by or (),
        added=change.add,
        manifests=change.add_manifests,
        removed={},
        removed_runs=(),
    )


def first_violation(
    ctx: TableContext,
    snapshot: Snapshot,
    constraints: Mapping[str, Constraint],
    seen: set[str] | None = None,
) -> Violation | None:
    """What violates the first of these constraints that any row of the snapshot violates. Only
    files are read whose bounds leave it open. seen: paths of files that were read and keep all of
    them, and need no second look. [CK2] [CK3]"""
    for name, constraint in constraints.items():
        check = _check_of(name, constraint, snapshot.schema, physical=False)
        found = _found(ctx, snapshot, check, set() if seen is None else seen)
        if found is not None:
            return found
    return None


def expected(ctx: TableContext, snapshot: Snapshot, condition: str) -> Violation | None:
    """What violates a condition that is no constraint of the table, among the snapshot's rows.
    UsageError as for `bind`. [CK6]"""
    what = "the check expect"
    bound = _bound(ctx, what, condition, snapshot.schema)
    try:
        check_condition(bound)
    except ValueError as error:
        raise UsageError(f"{what}: {error}; nothing was done") from None
    check = _check_of("", bound, snapshot.schema, physical=False, what=what)
    return _found(ctx, snapshot, check, set())


def texts_of(snapshot: Snapshot) -> dict[str, str]:
    """The conditions of the table's constraints, by their names."""
    named = sorted(snapshot.constraints.items())
    return {name: text_of(each, snapshot.schema) for name, each in named}


def text_of(constraint: Constraint, schema: Schema) -> str:
    """The condition with the names that its columns have in this schema. [CK1]"""
    from sqlglot import exp  # late, as in all modules

    places = {id: path for id, (path, _) in _places(schema.fields, (), physical=False)}
    text, made, at = constraint.condition, [], 0
    nodes = parse(text).find_all(exp.Column, exp.Dot)
    named = [list(node.parts) for node in nodes if not isinstance(node.parent, exp.Dot)]
    for parts in sorted(named, key=lambda parts: int(parts[0].meta["start"])):
        names = tuple(part.name for part in parts)
        path = places.get(constraint.columns.get(_spelled(names), -1), names)
        if [name.lower() for name in path] == [name.lower() for name in names]:
            continue
        made += [text[at : parts[0].meta["start"]], ".".join(map(quoted, path))]
        at = parts[-1].meta["end"] + 1
    return "".join([*made, text[at:]])


def quoted(name: str) -> str:
    """A column's name in SQL."""
    from sqlglot import exp  # late, as in all modules

    if re.fullmatch(r"[a-z_][a-z0-9_]*", name, re.ASCII | re.IGNORECASE):
        with contextlib.suppress(UsageError):  # a word of SQL's is no column by itself
            found = parse(name)
            if isinstance(found, exp.Column) and found.sql() == name:
                return name
    return "`" + name.replace("`", "``") + "`"


def _found(ctx: TableContext, snapshot: Snapshot, check: Check, seen: set[str]) -> Violation | None:
    """What violates the condition, in files whose bounds leave it open, several read at a time."""
    entries = entries_table(ctx, snapshot, check.fails, in_order=False)
    if seen:
        known = pc.is_in(entries.column("path"), value_set=pa.array(sorted(seen), pa.string()))
        entries = entries.filter(pc.invert(known))

    def one(entry: pa.Table) -> Violation | None:
        batches = scan(ctx, snapshot, entry, list(check.columns))
        found = [_violation(check, pa.Table.from_batches([batch])) for batch in batches]
        if not any(found):
            return None
        return msgspec.structs.replace(
            _together(found), files=tuple(entry.column("path").to_pylist())
        )

    found = map_concurrently(ctx.store, one, each_of(entries))
    if any(found):
        return _together(found)
    seen.update(entries.column("path").to_pylist())
    return None


def _violation(check: Check, rows: pa.Table) -> Violation | None:
    """The rows for which the condition is false, counted."""
    failed = _failed(check, rows)
    count = pc.sum(failed).as_py() or 0
    if not count:
        return None
    places = pc.indices_nonzero(failed).slice(0, _EXAMPLES)
    few = rows.select(list(check.columns)).rename_columns(list(check.columns.values()))
    return Violation(
        constraint=check.name,
        condition=check.condition,
        rows=count,
        examples=tuple(
            ", ".join(f"{name} = {_short(value)}" for name, value in row.items())
            for row in few.take(places).to_pylist()
        ),
    )


def _failed(check: Check, rows: pa.Table) -> pa.ChunkedArray:
    """For each row, whether the condition is false: true and null pass."""
    with evaluating(check.condition, f"{check.what}:"):
        mask = mask_of(rows, check.form)
    return pc.fill_null(pc.invert(mask), False)


def _together(found: Iterable[Violation | None]) -> Violation:
    first, *others = (each for each in found if each is not None)
    for other in others:
        first = msgspec.structs.replace(
            first,
            rows=first.rows + other.rows,
            examples=(*first.examples, *other.examples)[:_EXAMPLES],
            files=tuple(dict.fromkeys((*first.files, *other.files)))[:_FILES],
        )
    return first


def _short(value: Any) -> str:
    text = "null" if value is None else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"


def _check_of(
    name: str, constraint: Constraint, schema: Schema, *, physical: bool, what: str = ""
) -> Check:
    """The constraint on rows with these columns, whatever they are called by now. physical: rows
    have the names of data files; what: what errors call it; by default a constraint of that
    name."""
    what = what or _named(name)
    places = dict(_places(schema.fields, (), physical=physical))
    called = {(f.file_name if physical else f.name): f.name for f in schema.fields}
    top: dict[str, str] = {}

    def resolve(names: tuple[str, ...]) -> tuple[ColumnPath, Field]:
        found = places.get(constraint.columns.get(_spelled(names), -1))
        if found is None:
            raise UsageError(f"the table has no column {_spelled(names)!r}")
        top[found[0][0]] = called[found[0][0]]
        return found

    with _readable(what, constraint.condition):
        form = truth_of(compile_value(constraint.condition, resolve, _ANYWHERE))
    columns = arrow_schema(schema, physical=physical, ids=False)
    predicate = parse_expression(form, columns, f"{what}:")
    with evaluating(constraint.condition, f"{what}:"):  # its types, before any row is read
        mask_of(columns.empty_table(), form)
    return Check(
        name=name,
        what=what,
        condition=text_of(constraint, schema),
        form=form,
        fails=Not(arg=predicate),
        columns=top,
    )


@contextmanager
def _readable(what: str, condition: str) -> Iterator[None]:
    """Inside this block, a condition is compiled; UsageError that says of what it is."""
    try:
        yield
    except UsageError as error:
        why = str(error).rstrip(".")
        if isinstance(error, NotUnderstoodError):
            why += (
                ". It is evaluated without Spark and without a clock, with times in UTC "
                "(docs/reference/conditions.md)"
            )
        raise UsageError(f"{what}: {shown(condition)}: {why}; nothing was done") from error


def _places(
    fields: Sequence[Field], above: ColumnPath, *, physical: bool
) -> Iterable[tuple[int, tuple[ColumnPath, Field]]]:
    """Id of each column that is reached through structs only -> its path and its field."""
    for field in fields:
        path = (*above, field.file_name if physical else field.name)
        yield field.id, (path, field)
        if isinstance(field.type, StructType):
            yield from _places(field.type.fields, path, physical=physical)


def _spelled(names: Sequence[str]) -> str:
    """A column as a condition spells it, as one text."""
    return ".".join(f"`{name}`" if "." in name or "`" in name else name for name in names)
