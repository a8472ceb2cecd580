"""A merge that is said clause by clause, which `Table.merge_into` begins. [RC9]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..arguments import checked
from ..errors import UsageError
from ..rows.clauses import Clause, Clauses, Delete, Insert, Update
from ..rows.row_change import RowOutcome
from ..runtime.validation import mapping
from .conditions import Condition

_NO_CLAUSES = Clauses()
_VALUES = mapping("a mapping of each column to its value", "{'delay': 'late'}")


class MergeBuilder:
    """A merge that is said clause by clause, made by `Table.merge_into`.

    Each method returns a new builder with one more clause; `execute` merges, and nothing is done
    before. Of the clauses for the same rows the first applies whose condition is true.

    Spec: RC9.
    """

    def __init__(self, run: Callable[..., RowOutcome], clauses: Clauses = _NO_CLAUSES) -> None:
        self._run, self._clauses = run, clauses

    def __repr__(self) -> str:
        said = (clause for some in self._clauses for clause in some)
        return f"<merge of {', '.join(map(repr, said)) or 'no clause'}; not executed>"

    @checked()
    def when_matched_update(
        self, set: Mapping[str, Any], where: Condition | None = None
    ) -> MergeBuilder:
        """Set columns of the table's rows whose key the source has.

        Args:
            set: column -> its new value, as for `Table.update`, from the columns of both sides.
            where: SQL or a pyarrow expression; by default all such rows.

        Returns:
            The builder with this clause.

        Raises:
            UsageError: an argument is not what is expected.

        Spec: RC9.
        """
        return self._with(matched=Update(set=set, where=where))

    @checked()
    def when_matched_update_all(self, where: Condition | None = None) -> MergeBuilder:
        """Set each column that the source has, of the table's rows whose key the source has.

        Args:
            where: as for `when_matched_update`.

        Returns:
            The builder with this clause.

        Raises:
            UsageError: an argument is not what is expected.

        Spec: RC9.
        """
        return self._with(matched=Update(where=where))

    @checked()
    def when_matched_delete(self, where: Condition | None = None) -> MergeBuilder:
        """Delete the table's rows whose key the source has.

        Args:
            where: as for `when_matched_update`.

        Returns:
            The builder with this clause.

        Raises:
            UsageError: an argument is not what is expected.

        Spec: RC9.
        """
        return self._with(matched=Delete(where=where))

    @checked(values=_VALUES)
    def when_not_matched_insert(
        self, values: Mapping[str, Any], where: Condition | None = None
    ) -> MergeBuilder:
        """Insert rows of the source whose key no row of the table has.

        Args:
            values: column -> its value, from the source's columns; the other columns are null.
            where: as for `when_matched_update`.

        Returns:
            The builder with this clause.

        Raises:
            UsageError: an argument is not what is expected.

        Spec: RC9.
        """
        return self._with(unmatched=Insert(values=values, where=where))

    @checked()
    def when_not_matched_insert_all(self, where: Condition | None = None) -> MergeBuilder:
        """Insert rows of the source whose key no row of the table has, with all its columns.

        Args:
            where: as for `when_matched_update`.

        Returns:
            The builder with this clause.

        Raises:
            UsageError: an argument is not what is expected.

        Spec: RC9.
        """
        return self._with(unmatched=Insert(where=where))

    @checked()
    def when_not_matched_by_source_update(
        self, set: Mapping[str, Any], where: Condition | None = None
    ) -> MergeBuilder:
        """Set columns of the table's rows whose key the source lacks. The whole table is read.

        Args:
            set: column -> its new value, as for `Table.update`.
            where: as for `when_matched_update`.

        Returns:
            The builder with this clause.

        Raises:
            UsageError: an argument is not what is expected.

        Spec: RC9.
        """
        return self._with(by_source=Update(set=set, where=where))

    @checked()
    def when_not_matched_by_source_delete(self, where: Condition | None = None) -> MergeBuilder:
        """Delete the table's rows whose key the source lacks. The whole table is read.

        Args:
            where: as for `when_matched_update`.

        Returns:
            The builder with this clause.

        Raises:
            UsageError: an argument is not what is expected.

        Spec: RC9.
        """
        return self._with(by_source=Delete(where=where))

    @checked()
    def execute(self) -> RowOutcome:
        """Merge, in one commit, as `Table.merge` does with these clauses.

        Returns:
            What was deleted, updated and inserted.

        Raises:
            CommitConflictError: as for `Table.merge`.
            WatermarkGapError: a range starts after the current watermark.
            WatermarkOverlapError: a range starts before the current watermark.
            KeyReusedError: the key was committed with another declaration.
            SchemaMismatchError: the source does not fit the table.
            UsageError: there is no clause, one cannot be evaluated, or the source has a key twice.
            TableNotFoundError: there is no table at the path.
            DataFileMissingError: a file that holds such rows is gone, as where gc expired the
                version meanwhile: run it again.
            OutcomeUnknownError: the store did not say whether it was committed.

        Spec: RC9, RC3, RC6, RC8.
        """
        if not any(self._clauses):
            raise UsageError(
                "this merge has no clause; nothing was done. Say what becomes of which rows, such "
                "as when_matched_update_all()"
            )
        return self._run(**dict(self._clauses.by_argument()))

    def _with(self, **added: Clause) -> MergeBuilder:
        clauses = self._clauses._replace(
            **{name: (*getattr(self._clauses, name), clause) for name, clause in added.items()}
        )
        return MergeBuilder(self._run, clauses)
