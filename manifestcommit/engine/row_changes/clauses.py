"""The clauses of a merge: what becomes of the rows that it compares. [RC9]"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ...core.filter.sql_expression import Resolve, columns_of
from ...core.filter.sql_syntax import NotUnderstoodError
from ...core.schema.evolution import find_column
from ...core.schema.fields import Field, Schema, shown
from ...errors import UsageError
from .assignments import declared_set
from .conditions import text_of


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
    """The clauses of one argument: a name such as "update", a clause, several, or None. UsageError
    for any other."""
    known = {kind.__name__.lower(): kind for kind in kinds}
    several = given if isinstance(given, list | tuple) else [] if given is None else [given]
    found = [known[each]() if isinstance(each, str) and each in known else each for each in several]
    if not all(isinstance(each, kinds) for each in found):
        names = " or ".join(f"{kind.__name__}(…)" for kind in kinds)
        refusal = UsageError(
            f"invalid {name} {shown(given)}: expected {' or '.join(map(repr, known))}, {names}, "
            "several of these in a list, or None"
        )
        refusal.argument = name
        raise refusal
    return tuple(found)


def both_sides(table: Schema, source: Schema) -> Resolve:
    """The columns of a merge, by their names: `target.x`, `source.x`, or `x` where only one side
    has it. A row has them as the columns "target.x" and "source.x"."""
    sides = {
        side: columns_of(columns)
        for side, columns in (("target", table), ("source", source))
        if columns.fields
    }

    def resolve(names: tuple[str, ...]) -> tuple[tuple[str, ...], Field]:
        side = names[0].lower()
        if len(names) > 1 and side in ("target", "source"):
            if side not in sides:
                raise UsageError(f"{'.'.join(names)!r}: there is no row of the {side} there")
            path, field = sides[side](names[1:])
            return (f"{side}.{path[0]}", *path[1:]), field
        having = [
            each
            for each, columns in (("target", table), ("source", source))
            if any(field.name.lower() == side for field in columns.fields)
        ]
        if len(having) > 1:
            shown = ".".join(names)
            raise UsageError(
                f"both sides have the column {shown!r}: say target.{shown} or source.{shown}"
            )
        if not having:
            find_column(table if table.fields else source, names[0])
            raise NotUnderstoodError(f"{'.'.join(names)!r} is no column")
        return resolve((having[0], *names))

    return resolve


def source_values(table: Schema, source: Schema) -> dict[str, Any]:
    """Each column that both have, by the source's value in SQL."""
    names = {field.name.lower(): field.name for field in source.fields}
    return {
        field.name: "source.`" + names[field.name.lower()].replace("`", "``") + "`"
        for field in table.fields
        if field.name.lower() in names
    }


def check_not_empty(clauses: Sequence[Sequence[Clause]]) -> None:
    """UsageError for a merge that does nothing."""
    if not any(clauses):
        raise UsageError(
            "when_matched, when_not_matched and when_not_matched_by_source are all None: nothing "
            "would be done"
        )
