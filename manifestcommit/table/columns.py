"""Columns and properties of a table: `Table.add_column` and its neighbours. [SC6] [CM9]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ..argument_checks import checked, part_of
from ..core.schema import arrow_schema, evolution
from ..core.schema.fields import parse_type
from ..engine.metadata.table_context import TableContext
from ..engine.operations import alter
from ..engine.runtime.outcome import Outcome, committed_or_raise
from ..engine.runtime.validation import message as note
from ..engine.runtime.validation import optional


@part_of("Table")
class ColumnChanges:
    """The methods of a table that change its columns and properties."""

    _session: TableContext

    @checked()
    def add_column(
        self,
        name: str,
        type: str | pa.DataType,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Add a nullable column; it is null in every row that is there.

        Args:
            name: the column's name.
            type: a pyarrow type, or the name of a type of Spark or SQL, such as "bigint",
                "numeric(10,2)" or "struct<a: int, b: array<string>>".
            message: as for the function `write`; by default none.
            metadata: as for the function `write`; by default none.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: the table has a column of that name, or it is a member's, such as `s.b`; or
                the text names no type.
            UnsupportedTypeError: values of that type cannot be stored.
            SchemaMismatchError: a column cannot have that name, such as one with a NUL.
            TableNotFoundError: there is no table at the path.
            OutcomeUnknownError: the store did not say whether it was committed.

        Spec: SC6.
        """
        kind = _kind_of(name, type)
        return self._alter(
            lambda schema, _: evolution.add_column(
                schema, name, kind, new_id=self._session.new_field_id
            ),
            self._session.noting(message, metadata),
        )

    @checked()
    def rename_column(
        self,
        name: str,
        new_name: str,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Rename a column; its values stay, in old files and new ones.

        Args:
            name: the column's name now.
            new_name: its name then.
            message: as for the function `write`; by default none.
            metadata: as for the function `write`; by default none.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: there is no such column, or one that has the new name.
            SchemaMismatchError: a column cannot have that name, such as one with a NUL.
            TableNotFoundError: there is no table at the path.
            OutcomeUnknownError: the store did not say whether it was committed.

        Spec: SC6.
        """
        return self._alter(
            lambda schema, _: evolution.rename_column(schema, name, new_name),
            self._session.noting(message, metadata),
        )

    @checked()
    def widen_column(
        self,
        name: str,
        type: str | pa.DataType,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Widen a column's type; no file is rewritten, and no value changes.

        byte → short → integer → long, float → double, and a decimal to more digits before the point
        and as many after it. A write with `merge_schema=True` does the same for its own data.

        Args:
            name: the column's name.
            type: the wider type, as for `add_column`.
            message: as for the function `write`; by default none.
            metadata: as for the function `write`; by default none.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: there is no such column, or its type does not widen to that one.
            UnsupportedTypeError: values of that type cannot be stored.
            CommitConflictError: others gave the column another type meanwhile.
            TableNotFoundError: there is no table at the path.
            OutcomeUnknownError: the store did not say whether it was committed.

        Example:
            `table.widen_column("flight", "long")`

        Spec: SC5.
        """
        kind = _kind_of(name, type)
        return self._alter(
            lambda schema, _: evolution.widen_column(schema, name, kind),
            self._session.noting(message, metadata),
        )

    @checked(comment=optional(note))
    def comment_column(
        self,
        name: str,
        comment: str | None,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Set a column's comment, for people; it stays when the column is renamed.

        Spark's DataFrames of the table have it as theirs, and comments of a DataFrame that brings a
        column are taken over.

        Args:
            name: the column's name.
            comment: a text of up to 2,000 characters without credentials; None removes it.
            message: as for the function `write`; by default none.
            metadata: as for the function `write`; by default none.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: there is no such column, or the text is none.
            CommitConflictError: others set another comment meanwhile.
            TableNotFoundError: there is no table at the path.
            OutcomeUnknownError: the store did not say whether it was committed.

        Spec: SC9.
        """
        return self._alter(
            lambda schema, _: evolution.comment_column(schema, name, comment),
            self._session.noting(message, metadata),
        )

    @checked()
    def drop_column(
        self,
        name: str,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Drop a column; a later column of the same name does not show its values.

        Args:
            name: the column's name.
            message: as for the function `write`; by default none.
            metadata: as for the function `write`; by default none.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: there is no such column, or it partitions the table.
            TableNotFoundError: there is no table at the path.
            OutcomeUnknownError: the store did not say whether it was committed.

        Spec: SC6.
        """
        return self._alter(
            lambda schema, partition_by: evolution.drop_column(
                schema, name, partition_by=partition_by
            ),
            self._session.noting(message, metadata),
        )

    @checked()
    def set_properties(
        self,
        properties: Mapping[str, str | None],
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Set properties of the table.

        Known: `write.target-file-size-bytes`; `write.bounds-columns`, how many columns have bounds;
        `write.bloom-filter-columns`, split by commas: new files carry Bloom filters of these, by
        which Spark and DuckDB skip row groups; `write.missing-columns`: data that lacks a column is
        refused ("error"), or the column is null ("null"; by default so, but for overwrites of the
        whole table); `write.author`: which of user, host, program and software commits record,
        split by commas, or "none"; by default all; `export.formats`: "iceberg", "delta",
        "spark-catalog" or several, in which commits are exported.

        Args:
            properties: name -> value; None removes the property.
            message: as for the function `write`; by default none.
            metadata: as for the function `write`; by default none.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: a known property has a value that it cannot have, or a format of
                `export.formats` cannot express the table.
            UnsupportedTypeError: a format of `export.formats` does not have a column's type.
            TableNotFoundError: there is no table at the path.
            OutcomeUnknownError: the store did not say whether it was committed.

        Spec: CM9, DF11, EX2, EX9, OB15, SC8.
        """
        session = self._session.noting(message, metadata)
        return committed_or_raise(alter.set_properties(session, properties), session.store.url)

    def _alter(self, edit: alter.Editing, session: TableContext) -> Outcome:
        return committed_or_raise(alter.edit_schema(session, edit), session.store.url)


def _kind_of(name: str, type: str | pa.DataType) -> Any:
    """The type of a column, as a schema holds it."""
    if isinstance(type, str):
        return parse_type(type)
    if not isinstance(type, pa.DataType):
        return type
    named = arrow_schema.from_arrow(pa.schema([(name, type)]), itertools.count(1).__next__)
    return named.fields[0].type
