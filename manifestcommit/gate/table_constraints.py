"""The methods of `Table` that hold every row to conditions. [CK1] [CK3] [CK8]

Little is loaded with it: what evaluates conditions comes with the first table that has one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..arguments import checked, part_of
from ..log.table_context import TableContext, gate
from ..runtime.outcome import Outcome, committed_or_raise


@part_of("Table")
class Constrained:
    """The constraints of a table."""

    url: str
    _ctx: TableContext

    def constraints(self) -> dict[str, str]:
        """List the constraints of the table.

        Returns:
            Name -> the SQL condition that no row violates, with the columns' names of now.

        Spec: CK1.
        """
        snapshot = self._ctx.open().snapshot
        return gate().texts_of(snapshot) if snapshot.constraints else {}

    @checked()
    def add_constraint(
        self,
        name: str,
        condition: str,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Add a condition that every row has to keep from now on, once the rows of the table do.

        A row keeps it where it is true or null, as with CHECK in SQL. Every write is checked,
        however it is made and whenever it began: one that violates a constraint raises
        ConstraintError, and nothing of it is committed. Of the rows that are there, only files are
        read whose bounds leave it open.

        Args:
            name: its name: letters, digits and underscores.
            condition: SQL on one row, such as "amount > 0", that is evaluated without Spark; times
                are in UTC, and what changes with the time, such as current_timestamp, is refused.

        Returns:
            The outcome of the commit; "already_committed" where the table has it.

        Raises:
            ConstraintError: rows of the table violate it; it was not added.
            UsageError: the condition names no column of the table or cannot be evaluated so, or the
                table has another constraint of that name.
            CommitConflictError: others added rows all the time while these were examined.

        Example:
            `table.add_constraint("positive", "amount > 0")`

        Spec: CK1, CK2, CK3.
        """
        from . import constraints  # late: few tables have any

        ctx = self._ctx.noting(message, metadata)
        return committed_or_raise(constraints.add(ctx, name, condition), self.url)

    @checked()
    def drop_constraint(
        self,
        name: str,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Drop a constraint of the table.

        Args:
            name: its name.

        Returns:
            The outcome of the commit.

        Raises:
            UsageError: the table has no constraint of that name.
            CommitConflictError: it was dropped meanwhile.

        Spec: CK3.
        """
        from . import constraints  # late: few tables have any

        ctx = self._ctx.noting(message, metadata)
        return committed_or_raise(constraints.drop(ctx, name), self.url)

    @checked()
    def set_not_null(
        self,
        name: str,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Keep nulls out of a column from now on, once no row of the table has one there.

        It is a constraint, `not_null_` and the column's name, and holds as `add_constraint` says.

        Args:
            name: the column's name.

        Returns:
            The outcome of the commit; "already_committed" where the column holds no null already.

        Raises:
            ConstraintError: rows of the table have a null there; it was not added.
            UsageError: there is no such column.
            CommitConflictError: others added rows all the time while these were examined.

        Example:
            `table.set_not_null("amount")`

        Spec: CK8.
        """
        from . import constraints  # late: few tables have any

        ctx = self._ctx.noting(message, metadata)
        return committed_or_raise(constraints.require(ctx, name), self.url)

    @checked()
    def drop_not_null(
        self,
        name: str,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Drop what keeps nulls out of a column, whether its schema or a constraint.

        Args:
            name: the column's name.

        Returns:
            The outcome of the commit; "already_committed" where a null is allowed already.

        Raises:
            UsageError: there is no such column.
            CommitConflictError: the column was dropped meanwhile.

        Example:
            `table.drop_not_null("amount")`

        Spec: CK8, SC5.
        """
        from . import constraints  # late: few tables have any

        ctx = self._ctx.noting(message, metadata)
        return committed_or_raise(constraints.relax(ctx, name), self.url)
