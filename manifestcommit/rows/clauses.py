"""Conditions on rows and clauses of a merge, what becomes of which rows: as they are declared with
a key, and as this process evaluates them with Arrow. [RC2] [RC6] [RC8] [RC9]"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

# pyarrow.acero, which exports these, loads pyarrow.dataset, which takes longer than a small change
from pyarrow._acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

from ..errors import SchemaMismatchError, UsageError
from ..filter.arrow_expression import (
    columns_in,
    expression_text,
    parse_expression,
    spark_order,
    spell,
)
from ..filter.predicate import MergeKeys, Predicate
from ..filter.sql_expression import (
    Resolve,
    Session,
    columns_of,
    compile_value,
    literal,
    to_type,
    truth_of,
)
from ..filter.sql_syntax import IncompleteError, NotUnderstoodError
from ..format.evolution import find_column
from ..format.fields import Field, FieldType, Schema, hidden, is_text, type_text
from ..format.fields import shown as text
from ..format.transforms import source_ids
from ..format.values import ADVICE, arrow_schema, arrow_type, converted, exactly, is_number
from ..version import install

_REFUSED = re.compile("'(.* is not done without Spark)'")
_COMPARE = (
    "Compare a column with a value of its own type, texts and dates in quotes: day = '2026-01-31'"
)


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """schema: the columns of its rows; given: by the caller; predicate: for pruning; form: as its
    executor evaluates it, true for the selected rows, false or null for all others."""

    schema: Schema
    given: Any
    predicate: Predicate
    form: Any


def text_of(condition: Any) -> str:
    """The condition as declared with a key: the same text in every run. [RC6]"""
    if isinstance(condition, str):
        return f"sql {condition}"
    if isinstance(condition, pc.Expression):
        return f"arrow {spell(condition)}"
    return f"spark {condition}"


def running_session() -> Any:
    """The active Spark session, if there is one; Spark is not loaded for that."""
    sql = sys.modules.get("pyspark.sql")
    return None if sql is None else sql.SparkSession.getActiveSession()


def session_of(
    spark: Any = None, now_us: int | None = None, *, falls_back: bool = False
) -> Session:
    """What SQL takes from its surroundings: the zone of this Spark session, else of the active one,
    else of the process, which a new session would have. now_us: where the time may be asked for;
    falls_back: Spark evaluates what this process cannot. [RC8]"""
    spark = spark if spark is not None else running_session()
    zone = time.tzname if spark is None else [spark.conf.get("spark.sql.session.timeZone")]
    is_utc = {*zone} <= {"UTC", "Etc/UTC", "Z", "+00:00"}
    since = datetime(1970, 1, 1, tzinfo=UTC)
    now = None if now_us is None else since + timedelta(microseconds=now_us)
    return Session(is_utc, now, has_spark=falls_back and spark is not None)


def understand(
    condition: Any, schema: Schema, argument: str, session: Session | None = None
) -> Condition:
    """SQL or a pyarrow expression over tables of this schema; session: by default without a time.
    NotUnderstoodError where only Spark can evaluate it; UsageError, with the name of the argument,
    if it is not a condition. [RC8]"""
    columns = arrow_schema(schema, physical=False, ids=False)
    session = session or session_of(falls_back=True)
    form = _compiled_condition(condition, columns_of(schema), session, argument)
    predicate = parse_expression(form, columns, argument)
    form = _checked(condition, form, columns)
    return Condition(schema=schema, given=condition, predicate=predicate, form=form)


def _compiled_condition(
    condition: Any, resolve: Resolve, session: Session, argument: str
) -> pc.Expression:
    """SQL as a pyarrow expression, or the one that was given."""
    if isinstance(condition, pc.Expression):
        return condition
    if not isinstance(condition, str):
        raise NotUnderstoodError(f"{argument} is a Spark Column")
    with complete(condition, argument):
        return truth_of(compile_value(condition, resolve, session))


def _checked(condition: Any, form: pc.Expression, inputs: pa.Schema) -> pc.Expression:
    """The expression in Spark's order of floats, whose types fit, before any row is read."""
    form = spark_order(form, inputs)
    with evaluating(condition):
        mask_of(inputs.empty_table(), form)
    return form


def needs_spark(condition: Any, argument: str, why: Exception) -> UsageError:
    """The refusal of a condition that this process cannot evaluate while no Spark session is
    active: none is started for it, which would take half a minute. [RC8]"""
    return UsageError(
        f"{why}; nothing was done. Give SQL that docs/reference/conditions.md lists, or a pyarrow "
        "expression (pyarrow.compute.field('flight') == 1545). No Spark session is active: "
        "with one, Spark evaluates the condition (SparkSession.builder.getOrCreate(); "
        f"{install('spark')})",
        argument=argument,
        given=shown(condition),
    )


@contextmanager
def complete(text: str, argument: str) -> Iterator[None]:
    """Inside, a text is compiled; UsageError names the argument if it is incomplete."""
    try:
        yield
    except IncompleteError as error:
        what = f"{error}; nothing was done"
        raise UsageError(what, argument=argument, given=shown(text)) from error


def mask_of(rows: pa.Table, form: pc.Expression) -> pa.ChunkedArray:
    """For each row, in order: true, false or null. ArrowInvalid if it is not a condition."""
    number = max(rows.column_names, key=len, default="") + "#"  # a name that no column has
    rows = rows.append_column(number, pa.nulls(rows.num_rows))  # some column, to have rows
    mask = evaluated(rows, {"mask": form}).column("mask")
    if not pa.types.is_boolean(mask.type):
        raise pa.ArrowInvalid(f"its values are of the type {mask.type}, not true or false")
    return mask


def evaluated(rows: pa.Table, columns: Mapping[str, pc.Expression]) -> pa.Table:
    """These expressions for each row, in order."""
    source = Declaration("table_source", TableSourceNodeOptions(rows))
    project = ProjectNodeOptions(list(columns.values()), list(columns))
    return Declaration("project", project, [source]).to_table(use_threads=False)


@contextmanager
def evaluating(condition: Any, what: str = "the condition") -> Iterator[None]:
    """Inside this block, Arrow evaluates the condition; UsageError if it cannot. [RC8]"""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        told = str(error).partition("\n")[0]
        advice, refused = _COMPARE, _REFUSED.search(told)
        if refused is not None:  # the only way in which an expression can fail
            told, advice = refused[1], "With a Spark session, Spark evaluates it."
        raise UsageError(
            f"{what} {shown(condition)} cannot be evaluated: {told}; nothing was done. {advice}"
        ) from error


def shown(condition: Any) -> str:
    """The condition for a message, without the end of a long one."""
    try:
        text = hidden(str(condition))
    except (OverflowError, ValueError):  # a day or a text that Python cannot hold
        text = f"a {type(condition).__name__} with a value that Python cannot hold"
    return repr(text if len(text) <= 300 else text[:300] + "…")


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """Updates rows of the table, in `Table.merge`.

    Attributes:
        set: column -> its new value, as for `Table.update`; None, the default: each column that the
            source has becomes the source's.
        where: a condition in SQL, or a pyarrow expression; None, the default: all such rows.

    Spec: RC9.
    """

    set: Mapping[str, Any] | None = None
    where: Any = None


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Deletes rows of the table, in `Table.merge`.

    Attributes:
        where: a condition in SQL, or a pyarrow expression; None, the default: all such rows.

    Spec: RC9.
    """

    where: Any = None


class Insert(msgspec.Struct, frozen=True, kw_only=True):
    """Inserts rows of the source, in `Table.merge`.

    Attributes:
        values: column -> its value, computed from the source's row; the other columns are null.
            None, the default: each column that the source has.
        where: a condition in SQL, or a pyarrow expression; None, the default: all such rows.

    Spec: RC9.
    """

    values: Mapping[str, Any] | None = None
    where: Any = None


Clause = Update | Delete | Insert


class Clauses(NamedTuple):
    """What becomes of rows of the table whose key the source has, of the source's other rows, and
    of the table's other rows: the first clause whose condition is true, or nothing."""

    matched: tuple[Clause, ...] = ()
    unmatched: tuple[Clause, ...] = ()
    by_source: tuple[Clause, ...] = ()

    def by_argument(self) -> Iterator[tuple[str, tuple[Clause, ...]]]:
        """The clauses of each argument of `Table.merge`."""
        names = ("when_matched", "when_not_matched", "when_not_matched_by_source")
        return zip(names, self, strict=True)

    def declared(self) -> list[str]:
        """The same texts for the same clauses. [RC6]"""
        texts = []
        for name, clauses in zip(("matched", "not matched", "by source"), self, strict=True):
            for clause in clauses:
                texts += [name, type(clause).__name__.lower()]
                texts += [] if clause.where is None else ["where", text_of(clause.where)]
                given = given_values(clause)
                texts += [] if given is None else ["set", *declared_set(given)]
        return texts


def given_values(clause: Clause) -> Mapping[str, Any] | None:
    """The values that a clause names."""
    if isinstance(clause, Update):
        return clause.set
    return clause.values if isinstance(clause, Insert) else None


def clause_texts(clause: Clause) -> list[Any]:
    """The condition and the values of a clause, those in SQL among them."""
    return [clause.where, *(given_values(clause) or {}).values()]


def as_clauses(name: str, given: Any, kinds: tuple[type[Clause], ...]) -> tuple[Clause, ...]:
    """One argument's clauses: a name such as "update", one, several, or None; else UsageError."""
    known = {kind.__name__.lower(): kind for kind in kinds}
    several = given if isinstance(given, list | tuple) else [] if given is None else [given]
    found = [known[each]() if isinstance(each, str) and each in known else each for each in several]
    if not all(isinstance(each, kinds) for each in found):
        names = " or ".join(f"{kind.__name__}(…)" for kind in kinds)
        names = f"{' or '.join(map(repr, known))}, {names}"
        what = f"expected {names}, several of these in a list, or None"
        raise UsageError(what, argument=name, given=text(given))
    for values in map(given_values, found):
        if not isinstance(values, Mapping | None):
            what = "expected column -> value, such as {'amount': 'source.amount'}, or None"
            raise UsageError(what, argument=name, given=text(values))
    return tuple(found)


def check_not_empty(clauses: Sequence[Sequence[Clause]]) -> None:
    """UsageError for a merge that does nothing."""
    if not any(clauses):
        raise UsageError(
            "when_matched, when_not_matched and when_not_matched_by_source are all None: nothing "
            "would be done"
        )


def declared_set(given: Mapping[str, Any]) -> list[str]:
    """`set` as it is declared with a key, in whatever order it was given. [RC6]"""
    _check_names(given)
    return [each for name in sorted(given) for each in (name, value_text(given[name]))]


def _check_names(given: Mapping[str, Any]) -> None:
    """UsageError unless columns are named by texts."""
    for name in given:
        if not is_text(name):
            what = f"expected names of columns, with a value for each, not {text(name)}"
            raise UsageError(f"{what}; nothing was done", argument="set")


class SourceColumn(NamedTuple):
    """A value of `set` that is a column of the source as it is, by its name in rows of a merge."""

    column: str


def value_text(value: Any) -> str:
    """One value of `set` as text."""
    if isinstance(value, SourceColumn):
        return value.column
    if isinstance(value, str | pc.Expression):
        return text_of(value)
    try:
        return f"value {value!r}"
    except (OverflowError, ValueError):  # a value of Arrow that Python cannot hold
        return f"value of the type {type(value).__name__}"


def _value_shown(value: Any) -> str:
    """One value of `set` in a message, as it was given."""
    if isinstance(value, pc.Expression):
        return expression_text(value)
    return value if isinstance(value, str) else value_text(value).removeprefix("value ")


class Assignments:
    """The values of `set`: column -> SQL, a pyarrow expression, or a value of Python. inputs: the
    columns that they are computed from; None: unknown."""

    def __init__(
        self,
        given: Mapping[str, Any],
        schema: Schema,
        resolve: Resolve,
        inputs: pa.Schema,
        session: Session,
    ) -> None:
        """schema: the table's; resolve: the names that SQL may use; inputs: the columns of the rows
        that expressions are evaluated for; session: of SQL."""
        _check_names(given)
        pairs = [(find_column(schema, name), value) for name, value in given.items()]
        if not pairs or len({field.id for field, _ in pairs}) < len(pairs):
            raise UsageError(
                f"set names one or more columns, each once, not {list(given)}; nothing was done"
            )
        self._fields, self._schema = {field.name: field for field, _ in pairs}, schema
        columns = {field.name: value for field, value in pairs if isinstance(value, SourceColumn)}
        computed = {
            field.name: _compiled(field, value, resolve, inputs, session)
            for field, value in pairs
            if field.name not in columns
        }
        self._set = {name: pc.field(value.column) for name, value in columns.items()} | computed
        self._text = ", ".join(f"{field.name} = {_value_shown(value)}" for field, value in pairs)
        named, taken = _named(computed.values()), {value.column for value in columns.values()}
        self.inputs = None if named is None else named | taken
        self.new_values(inputs.empty_table())  # types are checked before any row is read

    def new_values(self, rows: pa.Table, *, whole: bool = False) -> pa.Table:
        """The columns that are set, for these rows, in the same order; whole: as rows of the table,
        whose other columns are null. UsageError where one cannot be computed or does not fit."""
        nulls = {
            field.name: pc.scalar(pa.scalar(None, arrow_type(field.type)))
            for field in (self._schema.fields if whole else ())
        }
        with evaluating(self._text, "set"):
            made = evaluated(rows, nulls | self._set)
        columns = dict(zip(made.column_names, made.columns, strict=True))
        for name, field in self._fields.items():
            columns[name] = _fitting(field, columns[name], shown(self._text))
        return pa.table(columns)  # at once: a table that takes them one by one is made anew


def constant(column: str, kind: FieldType, text: str) -> pa.Scalar:
    """What SQL that names no column is as a new column's value; UsageError if it is none. [SP48]"""
    field = Field(id=1, name=column, type=kind)
    row = pa.table({column: pa.nulls(1, arrow_type(kind))})
    none, schema = columns_of(Schema(fields=()), "a default"), Schema(fields=(field,))
    values = Assignments({column: text}, schema, none, row.schema, session_of())
    return values.new_values(row).column(0)[0]


def _named(expressions: Iterable[pc.Expression]) -> frozenset[str] | None:
    """The columns that these name; None: unknown."""
    found = [columns_in(each) for each in expressions]
    if any(paths is None for paths in found):
        return None
    return frozenset(path[0] for paths in found for path in paths or ())


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
    """A literal in the column's type, all of whose digits a float column has to keep."""
    if not pa.types.is_floating(wanted) or not pa.types.is_floating(number.type):
        return exactly(number, wanted)
    made = number.cast(wanted, safe=False)
    if made.cast(pa.string()) != number.cast(pa.string()):
        raise pa.ArrowInvalid(f"a {wanted} keeps {made.cast(pa.string())[0]} of it")
    return made


def _fitting(field: Field, values: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Computed values as values of the column; UsageError where one would change. [RC7]"""
    kind = arrow_schema(Schema(fields=(field,)), physical=False, ids=False).field(0).type
    if values.type.equals(kind):
        return values
    try:
        chunks = [converted(chunk, field) for chunk in values.chunks or [values.combine_chunks()]]
        return pa.chunked_array(chunks).cast(kind)
    except SchemaMismatchError as error:
        raise UsageError(
            f"set {field.name!r}: {what} cannot be evaluated: {str(error).removesuffix(ADVICE)} "
            "Nothing was done. Cast or round it in the expression."
        ) from error


class Rule(NamedTuple):
    """A clause as it is applied. where: as given; form: None: all rows; set: None: delete."""

    where: Any = None
    form: pc.Expression | None = None
    set: Assignments | None = None

    def selected(self, rows: pa.Table) -> pa.BooleanArray:
        """For each row whether the condition is true; null is not. [RC2]"""
        with evaluating(self.where):
            return pc.fill_null(mask_of(rows, self.form), False).combine_chunks()


def first_that_applies(
    rows: pa.Table, rules: Sequence[Rule]
) -> Iterator[tuple[Rule, pa.BooleanArray]]:
    """For each rule the rows for which it is the first one whose condition is true. It is evaluated
    for the rows only that no earlier one has taken. [RC9]"""
    left = pa.repeat(True, rows.num_rows)
    for rule in rules:
        chosen = left
        if rule.form is not None:
            chosen = _within(left, rule.selected(taken(rows, left)))
        left = pc.and_not(left, chosen)
        yield rule, chosen


def taken(rows: pa.Table, mask: pa.BooleanArray) -> pa.Table:
    """The rows for which the mask is true."""
    return rows if mask.true_count == rows.num_rows else rows.filter(mask)


def _within(mask: pa.BooleanArray, inner: pa.BooleanArray) -> pa.BooleanArray:
    """The mask of all rows of what `inner` is for those for which the mask is true."""
    return inner if len(inner) == len(mask) else pc.replace_with_mask(mask, mask, inner)


class Decided(NamedTuple):
    """What becomes of rows. rows: all of them, with their new values; found: for each the number of
    the source's row with its key, or null."""

    rows: pa.Table
    updated: pa.BooleanArray
    deleted: pa.BooleanArray
    found: pa.Array | None = None

    def remaining(self) -> pa.Table:
        """The rows that are not deleted."""
        return taken(self.rows, pc.invert(self.deleted))

    def changed(self, start: int, count: int) -> tuple[int, int]:
        """How many of these rows get new values, and how many are deleted."""
        updated, deleted = (each.slice(start, count) for each in (self.updated, self.deleted))
        return updated.true_count, deleted.true_count


class Rules:
    """What becomes of rows of the table. others: rules for rows without a row of the source;
    matched: for the others; keys: of the source; source: its columns that rules may name; prefix:
    of the table's columns; paired: is true of a row and of the source's where they belong together,
    beside the key."""

    def __init__(
        self,
        others: Sequence[Rule],
        matched: Sequence[Rule] = (),
        keys: Keys | None = None,
        source: pa.Table | None = None,
        prefix: str = "",
        paired: Rule | None = None,
    ) -> None:
        self._others, self._matched, self._keys, self._paired = others, matched, keys, paired
        self._source, self._prefix = source, prefix
        self._lock = threading.Lock()
        # how many rows of the table have the key of each row of the source
        self.times = pa.repeat(pa.scalar(0, pa.int64()), 0 if keys is None else keys.rows)
        every = self._every()
        named = [_named([rule.form]) for rule in every if rule.form is not None]
        named += [rule.set.inputs for rule in every if rule.set is not None]
        self._inputs = None if None in named else frozenset().union(*(each or () for each in named))

    def _every(self) -> list[Rule]:
        paired = [] if self._paired is None else [self._paired]
        return [*self._others, *self._matched, *paired]

    @property
    def only(self) -> Rule | None:
        """The only rule, where it is for all rows for which its condition is true."""
        return self._others[0] if self._keys is None and len(self._others) == 1 else None

    @property
    def filter(self) -> pc.Expression | None:
        """What is true of every row that changes."""
        return None if self._others or self._keys is None else self._keys.filter

    def columns(self, schema: Schema) -> list[str]:
        """The columns of the table by which it is known which rows change."""
        named = _named([rule.form for rule in self._every() if rule.form is not None])
        names = [field.name for field in schema.fields]
        keys = () if self._keys is None else self._keys.names
        if named is not None:
            some = [name for name in names if name in keys or self._prefix + name in named]
            names = some or names[:1]
        return names

    @property
    def at_once(self) -> int:
        """How many rows to decide together: each time all keys of the source are hashed."""
        return 0 if self._keys is None else self._keys.rows

    def count(self, decided: Decided) -> None:
        """Count the keys of the source that were found, from any thread."""
        if decided.found is not None:
            found, size = decided.found.drop_null(), len(self.times)
            times = places_of(found, size).is_valid().cast(pa.int64())
            if pc.sum(times).as_py() != len(found):  # some of them more than once
                every = pa.concat_arrays([_numbered(size), found])
                times = pc.subtract(pc.value_counts(every).field("counts"), 1)  # as `every` begins
            with self._lock:
                self.times = pc.add(self.times, times)

    def decide(self, rows: pa.Table, *, new: bool = True, found: pa.Array | None = None) -> Decided:
        """Apply the rules to rows of the table. new: with new values; found: of an earlier look."""
        if self._keys is not None and (found is None or len(found) != rows.num_rows):
            found = self._pairs(rows, self._keys.find(rows))
        updated = deleted = pa.repeat(False, rows.num_rows)
        made = rows
        for rules, side, theirs in self._sides(rows.num_rows, found):
            if not side.true_count or not rules:
                continue
            beside = self._beside(rows, side, theirs)
            for rule, chosen in first_that_applies(beside, rules):
                at = _within(side, chosen)
                if rule.set is None:
                    deleted = pc.or_(deleted, at)
                    continue
                updated = pc.or_(updated, at)
                if new and at.true_count:
                    made = _replaced(made, at, rule.set.new_values(taken(beside, chosen)))
        return Decided(made, updated, deleted, found)

    def _pairs(self, rows: pa.Table, found: pa.Array) -> pa.Array:
        """The source's rows with the keys of these, without those that do not belong to them."""
        side = found.is_valid()
        if self._paired is None or not side.true_count:
            return found
        together = self._paired.selected(self._beside(rows, side, found.drop_null()))
        return pc.if_else(_within(side, together), found, pa.scalar(None, found.type))

    def _sides(
        self, count: int, found: pa.Array | None
    ) -> Iterator[tuple[Sequence[Rule], pa.BooleanArray, pa.Array | None]]:
        """The rows with a key of the source, and the source's rows for them, and the other rows."""
        if found is None:
            yield self._others, pa.repeat(True, count), None
            return
        yield self._matched, found.is_valid(), found.drop_null()
        yield self._others, found.is_null(), None

    def _beside(self, rows: pa.Table, side: pa.BooleanArray, theirs: pa.Array | None) -> pa.Table:
        """Rows of the table, beside the source's, in the columns that rules name."""

        def needed(table: pa.Table, prefix: str) -> pa.Table:
            names = table.column_names
            if self._inputs is not None:
                names = [name for name in names if prefix + name in self._inputs] or names[:1]
            return table.select(names).rename_columns([prefix + name for name in names])

        ours = taken(needed(rows, self._prefix), side)
        if theirs is None or self._source is None:
            return ours
        source = needed(self._source, "source.").take(theirs)
        names = [*ours.column_names, *source.column_names]
        return pa.Table.from_arrays([*ours.columns, *source.columns], names)


def inserted(source: pa.Table, rules: Sequence[Rule]) -> Iterator[pa.Table]:
    """The rows of the table that clauses make of rows of the source. [RC9]"""
    rows = source.rename_columns([f"source.{name}" for name in source.column_names])
    for rule, chosen in first_that_applies(rows, rules):
        if rule.set is not None and chosen.true_count:
            yield rule.set.new_values(taken(rows, chosen), whole=True)


class Keys(Protocol):
    """The keys of a source. filter: true for every row with one of them."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def rows(self) -> int: ...

    @property
    def filter(self) -> pc.Expression | None: ...

    def find(self, rows: pa.Table) -> pa.Array:
        """For each row the number of the source's row that has its key; null: none has."""
        ...


def places_of(numbers: pa.Array, size: int) -> pa.Array:
    """For each number below `size` the last place that it has, or null."""
    more = pa.nulls(max(0, size - len(numbers)), numbers.type)
    return pc.inverse_permutation(pa.concat_arrays([numbers, more])).slice(0, size)


def _numbered(rows: int) -> pa.Array:
    """The numbers of so many rows, from 0."""
    return pc.indices_nonzero(pa.repeat(True, rows)).cast(pa.int64())


def _replaced(rows: pa.Table, mask: pa.BooleanArray, new: pa.Table) -> pa.Table:
    """The rows with these columns' values, in order, where the mask is true."""
    columns = rows.columns
    for name, values in zip(new.column_names, new.columns, strict=True):
        place = rows.schema.get_field_index(name)
        new_values = values.cast(rows.schema.field(place).type).combine_chunks()
        if len(new_values) < rows.num_rows:
            new_values = _replaced_in(columns[place].combine_chunks(), mask, new_values)
        columns[place] = new_values
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _replaced_in(column: pa.Array, mask: pa.Array, values: pa.Array) -> pa.Array:
    """The column with these values, in order, where the mask is true."""
    try:
        return pc.replace_with_mask(column, mask, values)
    except pa.ArrowNotImplementedError:  # nested types
        theirs = pc.add(_numbered(len(values)), len(column))
        places = pc.replace_with_mask(_numbered(len(column)), mask, theirs)
        return pa.concat_arrays([column, values]).take(places)


class Compiled(NamedTuple):
    """The clauses of a merge as rules. paired: the condition beside the key."""

    matched: list[Rule]
    unmatched: list[Rule]
    by_source: list[Rule]
    paired: Rule | None = None


def compile_clauses(
    clauses: Clauses,
    table: Schema,
    source: Schema,
    partition_by: Sequence[int],
    now_us: int,
    keys: MergeKeys,
    where: Any,
) -> Compiled:
    """The rules over rows with the columns `target.x` and `source.x`. [RC9]"""
    pairs = zip(keys.fields, keys.names, strict=True)
    everything = source_values(table, source, {field.name: name for field, name in pairs})
    nothing, session = Schema(fields=()), session_of(now_us=now_us)

    def rules(some: Sequence[Clause], ours: Schema, theirs: Schema) -> list[Rule]:
        resolve, inputs = both_sides(ours, theirs), _inputs(ours, theirs)

        def rule(clause: Clause) -> Rule:
            form = None if clause.where is None else _condition(clause.where, resolve, inputs)
            if isinstance(clause, Delete):
                return Rule(clause.where, form)
            given = given_values(clause)
            values = everything if given is None else given
            return Rule(clause.where, form, Assignments(values, table, resolve, inputs, session))

        return list(map(rule, some))

    for each in clauses.unmatched:
        _check_partitions(each, table, everything, partition_by)
    return Compiled(
        rules(clauses.matched, table, source),
        rules(clauses.unmatched, nothing, source),
        rules(clauses.by_source, table, nothing),
        None if where is None else rules([Delete(where=where)], table, source)[0],
    )


def both_sides(table: Schema, source: Schema) -> Resolve:
    """The columns of a merge, by their names: `target.x`, `source.x`, or `x` where only one side
    has it. A row has them as the columns "target.x" and "source.x"."""
    sides = {
        side: columns_of(columns, of)
        for side, columns, of in (("target", table, "The table"), ("source", source, "The source"))
        if columns.fields
    }
    both = {"target": table, "source": source}
    named = {side: {each.name.lower() for each in both[side].fields} for side in both}

    def resolve(names: tuple[str, ...]) -> tuple[tuple[str, ...], Field]:
        side = names[0].lower()
        if len(names) > 1 and side in ("target", "source"):
            if side not in sides:
                raise UsageError(f"{'.'.join(names)!r}: there is no row of the {side} there")
            path, field = sides[side](names[1:])
            return (f"{side}.{path[0]}", *path[1:]), field
        having = [each for each, columns in named.items() if side in columns]
        if len(having) > 1:
            shown = ".".join(names)
            raise UsageError(
                f"both sides have the column {shown!r}: say target.{shown} or source.{shown}"
            )
        if not having:
            find_column(table if table.fields else source, names[0], in_sql=len(names) == 1)
            raise NotUnderstoodError(f"{'.'.join(names)!r} is no column")
        return resolve((having[0], *names))

    return resolve


def source_values(table: Schema, source: Schema, keys: Mapping[str, str]) -> dict[str, Any]:
    """Each column that both have, which becomes the source's. keys: of the table, by name -> the
    column of the source that is compared with it."""
    names = {field.name.lower(): field.name for field in source.fields}
    names |= {mine.lower(): name for mine, name in keys.items()}
    return {
        field.name: SourceColumn("source." + names[field.name.lower()])
        for field in table.fields
        if field.name.lower() in names
    }


def _check_partitions(
    clause: Clause, table: Schema, everything: Mapping[str, Any], partition_by: Sequence[int]
) -> None:
    """SchemaMismatchError where inserted rows would lack a partition column. [SC8] [RC9]"""
    values = given_values(clause)
    names = everything if values is None else values
    given = {find_column(table, name).id for name in names}
    lacking = [f.name for f in table.fields if f.id in source_ids(partition_by) - given]
    if lacking:
        raise SchemaMismatchError(
            f"Column {lacking[0]!r} partitions the table and Insert gives it no value: all new "
            "rows would go to the partition of null. Nothing was done. Add it to the source, or "
            f"give it in values; where they are to go there, as {{{lacking[0]!r}: None}}."
        )


def _inputs(table: Schema, source: Schema) -> pa.Schema:
    """The columns of a row that clauses see."""
    return pa.schema(
        [
            field.with_name(f"{side}.{field.name}")
            for side, columns in (("target", table), ("source", source))
            for field in arrow_schema(columns, physical=False, ids=False)
        ]
    )


def _condition(condition: Any, resolve: Resolve, inputs: pa.Schema) -> pc.Expression:
    try:
        form = _compiled_condition(condition, resolve, session_of(), "where")
    except NotUnderstoodError as error:
        raise UsageError(
            f"{error}, and clauses are evaluated without Spark; nothing was done",
            argument="where",
            given=shown(condition),
        ) from error
    return _checked(condition, form, inputs)
