"""Runs statements over the tables that a session has names for. [SP47] [SP48] [SP50]

Names are kept for each session, as long as it lives, and nowhere else: no other session, and no
file, learns of a name, a path or an option.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from .. import job
from ..errors import SchemaMismatchError, UsageError
from ..filter.sql_expression import compile_condition
from ..format import fields
from ..format.evolution import find_column, fit
from ..format.fields import FLOATS, Field, Schema, check_has_columns, is_number, mark_of
from ..format.snapshot import Snapshot
from ..format.values import integer_range
from ..rows.clauses import Delete, Insert, Update
from ..runtime.outcome import Outcome
from ..spark.features import check_feature
from ..spark.scan import check_running, marks_of, quoted
from ..spark.spark_internals import session_of
from ..store import StorageOptions
from ..table import Table
from ..table.reading import is_for_spark, without_spark
from . import statements as sql
from .statements import Name, Reference, Travel, refusal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PATHS = "manifestcommit"  # before a path, as in manifestcommit.`/lake/flights`
_LOCK = threading.Lock()
_ATTACHED: weakref.WeakKeyDictionary[Any, dict[str, dict[str, Place]]] = weakref.WeakKeyDictionary()


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a table is, and how its store is reached. name: in the session, as it was given; empty:
    it has none; mark: of the version that its view shows ([CF17]); empty: it has no view."""

    path: str
    options: StorageOptions
    name: str = ""
    mark: str = ""

    def table(self) -> Table:
        return Table(self.path, self.options)


def attach_all(
    spark: SparkSession,
    tables: Mapping[str, str | os.PathLike[str]],
    options: Mapping[str, Any] | None,
) -> dict[str, int]:
    """Make a temporary view of the newest version of each table, and keep their names. All tables
    are read before any name is known. [SP50]"""
    places = [place_of(name, path, options) for name, path in tables.items()]
    found = [_newest(spark, place) for place in places]
    for place, _, df in found:
        df.createOrReplaceTempView(quoted(place.name))
    with _LOCK:
        known = _known(spark)
        known.update({place.name.lower(): place for place, _, _ in found})
    return {place.name: version for place, version, _ in found}


def place_of(name: str, path: str | os.PathLike[str], options: Mapping[str, Any] | None) -> Place:
    """The table as it is known by a name, whatever this process's folder is later."""
    known = os.fspath(path)
    known = known if "://" in known else os.path.abspath(known)
    return Place(path=known, options=StorageOptions(options), name=name)


class Names:
    """One statement's names: the session's, and paths. marks: of the session's views."""

    def __init__(self, spark: SparkSession, options: Mapping[str, Any] | None) -> None:
        self._options = options
        with _LOCK:
            self._known = dict(_known(spark))
        self.marks = {place.mark for place in self._known.values() if place.mark}

    def find(self, name: Name) -> Place | None:
        """The table of that name; None: it is Spark's to know."""
        if len(name) == 1:
            return self._known.get(name[0].lower())
        if len(name) == 2 and name[0].lower() == _PATHS:
            return Place(path=name[1], options=StorageOptions(self._options))
        return None

    def changed(self, name: Name) -> Place:
        """The table of that name, which a statement changes. UsageError if there is none."""
        place = self.find(name)
        if place is None:
            shown = ".".join(name)
            raise UsageError(
                f"{shown!r} is no table that is attached to this session, and "
                "only such tables are changed; nothing was done. Attach it with "
                f"mc.attach(spark, {{{name[-1]!r}: path}}), or write manifestcommit.`path`",
                argument="statement",
            )
        return place


def _known(spark: SparkSession) -> dict[str, Place]:
    owner, session = session_of(spark)
    return _ATTACHED.setdefault(owner, {}).setdefault(session, {})


def _newest(spark: SparkSession, place: Place) -> tuple[Place, int, Any]:
    table = place.table()
    version = table.version
    df = table.read(version=version, spark=spark)
    return msgspec.structs.replace(place, mark=next(iter(marks_of(df)), "")), version, df


_INSTEAD = "mc.write(df, path, mode=…, overwrite=…), which takes columns by their names"


def rows_to_insert(df: DataFrame, statement: sql.Insert, schema: Schema) -> DataFrame:
    """The query's rows with the table's columns. By position, as SQL has it, or BY NAME. UsageError
    where there are too few columns or too many, unless they may change the table."""
    if statement.evolves:  # what the table lacks becomes a column of it
        return df
    if statement.by_name:
        names = [find_column(schema, name).name for name in df.columns]
    else:
        given = [find_column(schema, name).name for name in statement.columns]
        names = given or [field.name for field in schema.fields]
    if len(set(names)) < len(names):
        raise refusal("a column is named twice", _INSTEAD)
    if len(names) != len(df.columns):
        takes = f"the table takes {len(names)}: {', '.join(names)}"
        raise refusal(f"the query has {len(df.columns)} columns, and {takes}", _INSTEAD)
    df = df.toDF(*names)
    given_fields = {field.name: field for field in fields.from_spark(df.schema.jsonValue()).fields}
    expressions = [_fitted(find_column(schema, name), given_fields[name]) for name in names]
    if expressions == [quoted(name) for name in names]:
        return df
    return df.selectExpr(*expressions)


def sql_type(field: Field) -> str:
    """The column's type as Spark's SQL has it."""
    assert isinstance(field.type, str)
    known = fields.PRIMITIVES[field.type] if field.type in fields.INTEGERS else None
    return field.type if known is None else known.sql.lower()


def _fitted(column: Field, given: Field) -> str:
    """The given column as an expression with a type that the table takes: as it is, or a number or
    null that becomes one of its type, by a cast that loses nothing, or fails."""
    name = quoted(given.name)
    if given.type == "void" and fields.is_primitive(column.type):
        return f"CAST({name} AS {sql_type(column)}) AS {name}"
    if not (is_number(column.type) and is_number(given.type)):
        return name
    exact = ""
    try:
        fit(Schema(fields=(column,)), Schema(fields=(given,)), merge=False, converted=False)
    except SchemaMismatchError:
        there = f"try_cast({name} AS {sql_type(column)})"
        back = f"try_cast({there} AS {sql_type(given)})"
        what = f"a value of the column {column.name} does not fit its type"
        text = f"{what} {fields.type_text(column.type)} without loss; nothing was committed"
        text = text.replace("\\", "\\\\").replace("'", "\\'")
        if column.type in FLOATS or given.type in FLOATS:
            value = f"CAST({there if column.type in FLOATS else name} AS double)"
            ranges = filter(None, map(integer_range, (column.type, given.type)))
            exact = "".join(f" AND coalesce({value} < {high + 1}D, true)" for _, high in ranges)
        return f"IF({name} <=> {back}{exact}, {there}, raise_error('{text}')) AS {name}"
    return name


class Reads:
    """What one statement has read. The newest version of a table is looked up once, whatever names
    it has in the statement, and however often it is named."""

    def __init__(self, spark: SparkSession, names: Names) -> None:
        check_running(spark)
        self._spark, self._names = spark, names
        self._snapshots: dict[tuple[str, Travel], Snapshot] = {}
        self._frames: dict[tuple[Any, ...], tuple[str, DataFrame]] = {}
        self._marks: set[str] = set()

    def snapshot(self, place: Place, travel: Travel | None = None) -> Snapshot:
        """The version of the table that the statement reads."""
        table, travel = place.table(), travel or Travel()
        key = (table.url, travel)
        if key not in self._snapshots:
            self._snapshots[key] = table.snapshot(travel.version, travel.as_of, travel.tag)
        return self._snapshots[key]

    def query(self, text: str) -> DataFrame:
        """The query's DataFrame. Nothing runs yet. UsageError where it reads an attached table at a
        version besides, through a view of the session."""
        tree = sql.parse_query(text)
        need = sql.needs(text, tree)
        places = []
        for each in sql.references(text, tree):
            if (place := self._names.find(each.name)) is not None:
                places.append((each.start, each.end, self._words(each, place, need)))
        frames: dict[str, Any] = dict(self._frames.values())
        if places:
            check_feature("queries", self._spark)
            text = sql.spliced(text, places, braces=True)
        df = self._spark.sql(text, **frames) if places else self._spark.sql(text)
        self._check(marks_of(df))
        return df

    def reads(self, df: DataFrame, snapshot: Snapshot, url: str) -> bool:
        """Whether the DataFrame reads any version of this table."""
        prefix = _table_of(mark_of(snapshot.table_id, url, 1))
        return any(_table_of(mark) == prefix for mark in marks_of(df))

    def _words(self, reference: Reference, place: Place, need: sql.Need) -> str:
        """What Spark's text has in place of the table: a DataFrame of the rows and columns that the
        query needs, where Spark would read all of them in Python."""
        name = ".".join(reference.name)
        if reference.problem:
            raise refusal(f"{name!r}: {reference.problem}", "a query that says it otherwise")
        table, snapshot = place.table(), self.snapshot(place, reference.travel)
        check_has_columns(snapshot.schema, table.url)
        columns, where = _needed(need, snapshot.schema)
        key = (table.url, snapshot.version, columns, where)
        if key not in self._frames:
            df = table.read(
                version=snapshot.version,
                columns=None if columns is None else [*columns],
                filter=where,
                spark=self._spark,
            )
            self._frames[key] = (f"t{len(self._frames)}", df)
            self._marks.add(mark_of(snapshot.table_id, table.url, snapshot.version))
        words = "{" + self._frames[key][0] + "}"
        if reference.has_alias:
            return words
        alias = quoted(reference.name[-1]).replace("{", "{{").replace("}", "}}")
        return f"{words} AS {alias}"

    def _check(self, marks: Iterable[str]) -> None:
        known = {_table_of(mark) for mark in self._marks | self._names.marks}
        others = [mark for mark in marks if _table_of(mark) in known and mark not in self._marks]
        if others:
            versions = ", ".join(sorted({mark.rpartition("-v")[2] for mark in others}))
            raise UsageError(
                "it reads an attached table through a view that was made of its version "
                f"{versions}; nothing was done. Name the table itself, with VERSION AS OF for a "
                "version that is not the newest",
                argument="statement",
            )


def _needed(need: sql.Need, schema: Schema) -> tuple[tuple[str, ...] | None, str | None]:
    """The columns and the condition of a query's rows. Spark evaluates the condition once more, so
    one that it could answer otherwise then is left out."""
    columns, where = None, need.where
    if need.words is not None:
        named = tuple(field.name for field in schema.fields if field.name.lower() in need.words)
        columns = named or (schema.fields[0].name,)
    if where is not None:
        try:
            compile_condition(where, schema)
        except UsageError:
            where = None
    return columns, where


def _table_of(mark: str) -> str:
    return mark.rpartition("-v")[0]


_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_NOTED = ("message", "metadata")
# What may be declared with a statement, by its name below; the others are refused, not ignored.
_DECLARED: dict[str, tuple[str, ...]] = {
    "insert": ("key", "watermarks", "based_on", "publish", *_NOTED),
    "merge": ("key", "watermarks", "publish", *_NOTED),
    "delete": ("key", "publish", *_NOTED),
    "update": ("key", "publish", *_NOTED),
    "select": (),
}


class Execution:
    """One statement in a session. declared: what is, by the arguments' names, if given."""

    def __init__(self, spark: SparkSession, names: Names, declared: Mapping[str, Any]) -> None:
        self._spark, self._names = spark, names
        self._declared = {name: value for name, value in declared.items() if value is not None}
        self._note: dict[str, Any] = {}
        self._reads = Reads(spark, names)

    def run(self, statement: sql.Statement) -> Any:
        """Do it, and return what the call of the library returns."""
        done = _DONE_BY[type(statement)]
        name = statement.method if isinstance(statement, sql.Call) else done.__name__
        for each in self._declared:
            if each not in _DECLARED.get(name, _NOTED):
                what = f"{each}=… is not declared with this statement ({name}); nothing was done"
                raise UsageError(f"{what}. Leave it out")
        self._note = {each: self._declared.pop(each) for each in _NOTED if each in self._declared}
        return done(self, statement)

    def select(self, statement: sql.Select) -> DataFrame:
        return self._reads.query(statement.query)

    def insert(self, statement: sql.Insert) -> Outcome:
        place = self._names.changed(statement.target)
        snapshot = self._reads.snapshot(place)
        schema = snapshot.schema
        check_has_columns(schema, place.table().url)
        df = rows_to_insert(self._reads.query(statement.query), statement, schema)
        if statement.replaced is not None:
            return self._noted(place).overwrite_where(
                df,
                statement.replaced,
                merge_schema=statement.evolves,
                spark=self._spark,
                **self._declared,
            )
        options: dict[str, Any] = {"merge_schema": True} if statement.evolves else {}
        if statement.overwrite:
            mode = str(self._spark.conf.get(_OVERWRITE_MODE, "static"))
            dynamic = mode.lower() == "dynamic" and bool(snapshot.partition_by)
            options |= {"mode": "overwrite", "overwrite": "dynamic" if dynamic else None}
        return self._write(df, place, **options)

    def merge(self, statement: sql.Merge) -> Outcome:
        place = self._names.changed(statement.target)
        snapshot, table = self._reads.snapshot(place), self._noted(place)
        source = self._reads.query(statement.source)
        if self._reads.reads(source, snapshot, table.url):
            raise refusal(
                "the source of the MERGE reads the table that it changes, of which another version "
                "may be newest by then",
                "a source without it, or mc.write(df, path, mode='overwrite', based_on=version)",
            )
        clauses = (statement.matched, statement.unmatched, statement.by_source)
        changing = [each for some in clauses for each in some if each.kind != "delete"]
        if any(each.values is None for each in changing):
            _check_all_columns(source, snapshot.schema)
        simple = [len(some) < 2 and all(each.is_simple for each in some) for some in clauses]
        is_whole = all(simple) and not statement.by_source and statement.where is None
        matched, unmatched, by_source = (
            [each.kind if is_whole else _clause(each) for each in some] or None for some in clauses
        )
        found: Any = {"when_matched": matched, "when_not_matched": unmatched}
        found["when_not_matched_by_source"] = by_source
        found |= {"null_safe": list(statement.null_safe), "merge_schema": statement.evolves}
        found["where"] = statement.where
        return table.merge(source, statement.on, spark=self._spark, **found, **self._declared)

    def call(self, statement: sql.Call) -> Any:
        place, options = self._names.changed(statement.target), dict(statement.options)
        if statement.method == "delete":
            options["spark"] = self._needed("where", statement.arguments[0], place)
        method = getattr(self._noted(place), statement.method)
        return method(*statement.arguments, **options, **self._declared)

    def _write(self, df: DataFrame, place: Place, **options: Any) -> Outcome:
        given = {**options, **self._declared, **self._note}
        made: Outcome = job.write(df, place.path, storage_options=place.options, **given)
        return made

    def _noted(self, place: Place) -> Table:
        """The table, whose commits carry the note of the call."""
        return place.table().noting(**self._note)

    def _needed(self, name: str, condition: str, place: Place) -> SparkSession | None:
        """This session, where only Spark can evaluate the condition. [RC8]"""
        here, _ = without_spark(name, condition, self._reads.snapshot(place), self._spark)
        return self._spark if is_for_spark(here) else None


_DONE_BY: dict[type, Any] = {
    sql.Select: Execution.select,
    sql.Insert: Execution.insert,
    sql.Merge: Execution.merge,
    sql.Call: Execution.call,
}


def _check_all_columns(source: DataFrame, schema: Schema) -> None:
    """UsageError unless the source has all columns of the table, which `*` means."""
    names = {name.lower() for name in source.columns}
    missing = [field.name for field in schema.fields if field.name.lower() not in names]
    if missing:
        raise refusal(
            f"* means all columns of the table, and the source lacks {', '.join(missing)}",
            "UPDATE SET and INSERT with the columns that it has",
        )


def _clause(clause: sql.When) -> Any:
    values = None if clause.values is None else dict(clause.values)
    if clause.kind == "delete":
        return Delete(where=clause.where)
    if clause.kind == "insert":
        return Insert(values=values, where=clause.where)
    return Update(set=values, where=clause.where)
