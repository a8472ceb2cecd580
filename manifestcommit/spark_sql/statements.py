"""A text in SQL as one statement: what is to be done, to which table, with which texts. [SP48]
[SP49]

Pure: nothing is read or looked up. What it does not know is a UsageError that names the call which
does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from ..errors import UsageError
from ..format.fields import parse_type
from ..rows.clauses import constant
from .queries import Name, Scanner, Travel, key_columns, parse_query, refusal, requalified


class Select(msgspec.Struct, frozen=True, kw_only=True):
    """A query."""

    query: str


class Insert(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a query into a table. columns: of the query, in its order; empty: the table's;
    replaced: a condition on the rows that they replace; evolves: whether the table's columns may
    change."""

    target: Name
    query: str
    overwrite: bool = False
    columns: tuple[str, ...] = ()
    by_name: bool = False
    evolves: bool = False
    replaced: str | None = None


class When(msgspec.Struct, frozen=True, kw_only=True):
    """A clause of a merge. kind: "update", "delete" or "insert"; values: None: all (`*`)."""

    kind: str
    where: str | None = None
    values: tuple[tuple[str, str], ...] | None = None

    @property
    def is_simple(self) -> bool:
        """Whether whole rows are meant, whichever they are."""
        return self.where is None and self.values is None


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a query to merge by key. on: column of the target -> of the source; null_safe: of the
    target, those of which nulls are equal; where: the whole condition, if it has more than these;
    evolves: whether the table's columns may change."""

    target: Name
    source: str
    on: dict[str, str]
    null_safe: tuple[str, ...] = ()
    where: str | None = None
    evolves: bool = False
    matched: tuple[When, ...] = ()
    unmatched: tuple[When, ...] = ()
    by_source: tuple[When, ...] = ()


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A method of `Table`, with its arguments."""

    target: Name
    method: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = {}


Statement: TypeAlias = Select | Insert | Merge | Call

# First words of statements that are not done here -> the call that does it.
_ELSEWHERE = {
    "TRUNCATE": "DELETE FROM, or mc.Table(path).delete('true')",
    "RESTORE": "mc.Table(path).rollback(version, reason=…)",
    "CONVERT": "mc.Table(path).adopt()",
    "COPY": "mc.write(df, path)",
    "LOAD": "mc.write(df, path)",
    "DROP": "spark.sql, for a view; a table is its folder",
    "MSCK": "mc.Table(path).adopt()",
    "REPAIR": "mc.Table(path).adopt()",
    "FSCK": "mc.Table(path).verify()",
    **dict.fromkeys(("DESC", "DESCRIBE"), "mc.Table(path).history(), schema or describe()"),
    "CREATE": "mc.write(df, path, partition_by=…), mc.create_table(path, schema), or spark.sql",
    "OPTIMIZE": "mc.Table(path).compact(where=…, sort_by=…)",
    "VACUUM": "mc.Table(path).gc(keep_for=…, grace=…), or plan_gc",
    "REFRESH": "mc.attach(spark, {name: path}) once more",
    "EXPLAIN": "mc.sql(spark, query).explain(), or dry_run=True of a method of mc.Table(path)",
}


def parse(text: str) -> Statement:
    """The statement. UsageError where any part of it is not understood."""
    scanner = Scanner(text)
    first = scanner.next_word()
    if first in _KNOWN:
        return _KNOWN[first](scanner)
    if first in ("SELECT", "VALUES", "FROM", "("):
        return _select(scanner)
    instead = _ELSEWHERE.get(first, "spark.sql, if Spark is meant to do it")
    raise refusal(f"{first or text[:20]!r} begins no statement that is understood", instead)


def _select(scanner: Scanner) -> Select:
    query = scanner.rest()
    parse_query(query)
    return Select(query=query)


def _with(scanner: Scanner) -> Statement:
    ctes = scanner.until("SELECT", "INSERT", "FROM", "VALUES")
    if scanner.next_word() == "INSERT":
        found = _insert(scanner, ctes)
        assert isinstance(found, Insert)
        return found
    query = ctes + " " + scanner.rest()
    parse_query(query)
    return Select(query=query)


def _insert(scanner: Scanner, ctes: str = "") -> Statement:
    scanner.instead = "mc.write(df, path, mode=…, overwrite=…), or mc.Table(path).overwrite_where"
    scanner.expect("INSERT")
    evolves = scanner.take("WITH", "SCHEMA", "EVOLUTION")
    overwrite = scanner.take("OVERWRITE")
    if not overwrite:
        scanner.expect("INTO")
    scanner.take("TABLE")
    target = scanner.name()
    if scanner.next_word() == "PARTITION":
        raise refusal(
            "PARTITION is not understood", "INSERT INTO … REPLACE WHERE condition SELECT …"
        )
    by_name = scanner.take("BY", "NAME")
    columns, replaced = [], None
    if not overwrite and scanner.take("REPLACE", "WHERE"):
        where = scanner.until("SELECT", "VALUES", "FROM", "WITH")
        replaced = requalified(where, {target[-1].lower(): ""}, scanner.instead)
    elif scanner.next_word() == "(" and scanner.next_word(1) not in ("SELECT", "WITH", "FROM", "("):
        columns = scanner.listed(scanner.column)
    if scanner.next_word() not in ("SELECT", "VALUES", "FROM", "WITH", "("):
        raise scanner.unclear()
    query = f"{ctes} {scanner.rest()}".strip()
    parse_query(query)
    if columns and by_name:
        raise refusal("BY NAME takes no list of columns", scanner.instead)
    if evolves and not by_name:
        raise refusal("WITH SCHEMA EVOLUTION needs BY NAME", scanner.instead)
    return Insert(
        target=target,
        query=query,
        overwrite=overwrite,
        columns=tuple(columns),
        by_name=by_name,
        evolves=evolves,
        replaced=replaced,
    )


def _delete(scanner: Scanner) -> Statement:
    scanner.instead = "mc.Table(path).delete(where), or its merge for conditions on other tables"
    scanner.expect("DELETE", "FROM")
    target, sides = _target(scanner, ("WHERE",))
    where = scanner.rest() if scanner.take("WHERE") else None
    scanner.expect_end()
    where = "true" if where is None else requalified(where, sides, scanner.instead)
    return Call(target=target, method="delete", arguments=(where,))


def _update(scanner: Scanner) -> Statement:
    scanner.instead = "mc.Table(path).update(set, where), or its merge with other tables' values"
    scanner.expect("UPDATE")
    target, sides = _target(scanner, ("SET",))
    scanner.expect("SET")
    values = _assignments(scanner, sides, ("WHERE",))
    where = None
    if scanner.take("WHERE"):
        where = requalified(scanner.rest(), sides, scanner.instead)
    scanner.expect_end()
    return Call(target=target, method="update", arguments=(dict(values), where))


def _target(scanner: Scanner, ends: tuple[str, ...]) -> tuple[Name, dict[str, str]]:
    """A table that changes; its columns may be named with its name, or its alias, before them."""
    target = scanner.name()
    alias = target[-1]
    if scanner.take("AS") or not (scanner.is_over or scanner.next_word() in ends):
        alias = scanner.column()
    return target, {alias.lower(): ""}


def _assignments(
    scanner: Scanner, sides: dict[str, str], ends: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """`a = expression, …`"""
    found: list[tuple[str, str]] = []
    while not found or scanner.take(","):
        column = _set_column(scanner, sides)
        scanner.expect("=")
        text = requalified(scanner.until(",", *ends), sides, scanner.instead)
        found.append((column, text))
    if len({name.lower() for name, _ in found}) < len(found):
        raise refusal("SET names a column twice", scanner.instead)
    return tuple(found)


def _set_column(scanner: Scanner, sides: dict[str, str]) -> str:
    """A column that gets a value: of the table that changes, and of no other."""
    name = scanner.name()
    changes = {side for side, words in sides.items() if words != "source."}
    if len(name) > 2 or (len(name) == 2 and name[0].lower() not in changes):
        raise refusal(
            f"{'.'.join(name)} gets a value: only whole columns of the table are set",
            scanner.instead,
        )
    return name[-1]


def _merge(scanner: Scanner) -> Statement:
    scanner.instead = "mc.Table(path).merge(source, on=[…], when_matched=…)"
    scanner.expect("MERGE")
    evolves = scanner.take("WITH", "SCHEMA", "EVOLUTION")
    scanner.expect("INTO")
    target, ours = _target(scanner, ("USING",))
    (our,) = ours
    scanner.expect("USING")
    source, their = _merge_source(scanner)
    if our == their.lower():
        raise refusal("both sides of the MERGE have one name: give one an alias", scanner.instead)
    scanner.expect("ON")
    condition = scanner.until("WHEN")
    on = key_columns(condition, our, their, scanner.instead)
    sides = {our: "target.", their.lower(): "source."}
    clauses: dict[str, list[When]] = {"matched": [], "unmatched": [], "by_source": []}
    while not scanner.is_over:
        kind, clause = _when(scanner, sides)
        clauses[kind].append(clause)
    if not any(clauses.values()):
        raise scanner.unclear()
    kinds = {name: tuple(found) for name, found in clauses.items()}
    return Merge(
        target=target,
        source=source,
        on=on.columns,
        null_safe=tuple(on.null_safe),
        where=None if on.is_all else requalified(condition, sides, scanner.instead),
        evolves=evolves,
        **kinds,
    )


def _merge_source(scanner: Scanner) -> tuple[str, str]:
    """The query of a merge's source, and its name in the statement."""
    if scanner.next_word() == "(":
        scanner.expect("(")
        query = scanner.until()
        scanner.expect(")")
        parse_query(query)
        scanner.take("AS")
        return query, scanner.column()
    begin = scanner.position
    alias = scanner.name()[-1]
    text = scanner.text[begin : scanner.last_end]
    before = scanner.position
    if scanner.next_word() in ("FOR", "VERSION", "TIMESTAMP"):
        scanner.until("OF")
        scanner.expect("OF")
        scanner.take("TIMESTAMP")
        scanner.literal()
        text += " " + scanner.text[before : scanner.last_end]
    if scanner.take("AS") or scanner.next_word() != "ON":
        alias = scanner.column()
    return f"SELECT * FROM {text}", alias


def _when(scanner: Scanner, sides: dict[str, str]) -> tuple[str, When]:
    scanner.expect("WHEN")
    negated = scanner.take("NOT")
    scanner.expect("MATCHED")
    kind = "unmatched" if negated else "matched"
    if negated and scanner.take("BY", "SOURCE"):
        kind = "by_source"
    elif negated:
        scanner.take("BY", "TARGET")
    where = None
    if scanner.take("AND"):
        where = requalified(scanner.until("THEN"), sides, scanner.instead)
    scanner.expect("THEN")
    if kind == "unmatched":
        return kind, _insert_clause(scanner, sides, where)
    if scanner.take("DELETE"):
        return kind, When(kind="delete", where=where)
    scanner.expect("UPDATE")
    scanner.expect("SET")
    if scanner.take("*"):
        if kind == "by_source":
            raise refusal("UPDATE SET * needs a row of the source", scanner.instead)
        return kind, When(kind="update", where=where)
    values = _assignments(scanner, sides, ("WHEN",))
    return kind, When(kind="update", where=where, values=values)


def _insert_clause(scanner: Scanner, sides: dict[str, str], where: str | None) -> When:
    scanner.expect("INSERT")
    if scanner.take("*"):
        return When(kind="insert", where=where)
    names = scanner.listed(lambda: _set_column(scanner, sides))
    scanner.expect("VALUES")
    texts = scanner.listed(lambda: scanner.until(","))
    if len(names) != len(texts) or len({name.lower() for name in names}) < len(names):
        raise refusal("INSERT has one value for each column, each named once", scanner.instead)
    values = (requalified(text, sides, scanner.instead) for text in texts)
    return When(kind="insert", where=where, values=tuple(zip(names, values, strict=True)))


def _column_or_call(scanner: Scanner) -> str:
    """A column, or a transform of one as it was written. [PT4]"""
    return scanner.until(",") if scanner.next_word(1) == "(" else scanner.column()


def _alter(scanner: Scanner) -> Statement:
    scanner.instead = (
        "mc.Table(path).add_column(name, type, default=…), rename_column, drop_column, "
        "widen_column, comment_column, each one column; set_partitioning, add_constraint, "
        "drop_constraint, set_not_null, drop_not_null or set_properties"
    )
    scanner.expect("ALTER", "TABLE")
    target = scanner.name()
    if scanner.take("ADD", "COLUMN") or scanner.take("ADD", "COLUMNS"):
        return _added(scanner, target)
    if scanner.take("ADD", "CONSTRAINT"):
        return _constrained(scanner, target)
    if scanner.take("RENAME", "COLUMN"):
        column = ".".join(scanner.name())
        scanner.expect("TO")
        found = Call(target=target, method="rename_column", arguments=(column, scanner.column()))
    elif scanner.take("DROP", "COLUMN") or scanner.take("DROP", "COLUMNS"):
        in_parentheses = scanner.take("(")
        found = Call(target=target, method="drop_column", arguments=(".".join(scanner.name()),))
        if in_parentheses:
            scanner.expect(")")
    elif scanner.take("DROP", "CONSTRAINT"):
        found = Call(target=target, method="drop_constraint", arguments=(scanner.column(),))
    elif scanner.take("ALTER", "COLUMN") or scanner.take("CHANGE", "COLUMN"):
        column = ".".join(scanner.name())
        if scanner.take("SET", "NOT", "NULL"):
            found = Call(target=target, method="set_not_null", arguments=(column,))
        elif scanner.take("DROP", "NOT", "NULL"):
            found = Call(target=target, method="drop_not_null", arguments=(column,))
        elif scanner.take("COMMENT"):
            found = Call(
                target=target, method="comment_column", arguments=(column, scanner.string())
            )
        else:
            scanner.expect("TYPE")
            found = Call(target=target, method="widen_column", arguments=(column, scanner.rest()))
    elif scanner.take("SET", "PARTITIONED", "BY"):
        by = [] if scanner.take("NONE") else scanner.listed(lambda: _column_or_call(scanner))
        found = Call(target=target, method="set_partitioning", arguments=(by,))
    else:
        properties = _properties(scanner)
        found = Call(target=target, method="set_properties", arguments=(properties,))
    scanner.expect_end()
    return found


def _added(scanner: Scanner, target: Name) -> Statement:
    in_parentheses = scanner.take("(")
    column = ".".join(scanner.name())
    ends = (",", "NOT", "COMMENT", "DEFAULT", "FIRST", "AFTER")
    kind, options = scanner.until(*ends, angles=True), {}
    if scanner.take("DEFAULT"):
        text = scanner.until(*ends)
        try:
            value = constant(column, parse_type(kind), text)
        except UsageError as error:
            raise refusal(f"DEFAULT {text}: {str(error).split('; ')[0]}", scanner.instead) from None
        options = {"default": value} if value.is_valid else {}
    if in_parentheses:
        scanner.expect(")")
    scanner.expect_end()
    return Call(target=target, method="add_column", arguments=(column, kind), options=options)


def _constrained(scanner: Scanner, target: Name) -> Statement:
    """`name CHECK (condition)`"""
    name = scanner.column()
    scanner.expect("CHECK")
    scanner.expect("(")
    condition = scanner.until()
    scanner.expect(")")
    scanner.expect_end()
    return Call(target=target, method="add_constraint", arguments=(name, condition))


def _properties(scanner: Scanner) -> dict[str, str | None]:
    """Properties; None removes one."""
    found: dict[str, str | None] = {}
    if scanner.take("UNSET", "TBLPROPERTIES"):
        scanner.take("IF", "EXISTS")
        return dict.fromkeys(scanner.listed(scanner.string))
    scanner.expect("SET", "TBLPROPERTIES")

    def pair() -> None:
        name = scanner.string()
        scanner.expect("=")
        found[name] = scanner.string()

    scanner.listed(pair)
    return found


_KNOWN: dict[str, Callable[[Any], Statement]] = {
    "ALTER": _alter,
    "DELETE": _delete,
    "INSERT": _insert,
    "MERGE": _merge,
    "UPDATE": _update,
    "WITH": _with,
}

__all__ = ["Statement", "Travel", "parse"]
