"""A row change as one table's part of a joint commit. [RC1] [MT3]"""

from __future__ import annotations

from ...core.table.joint_members import TogetherJob
from ...errors import UsageError
from ..commit.prepared_job import put_prepared, seal
from ..operations.row_change import RowChange
from ..runtime.outcome import Outcome
from .joint_commit import TablePart
from .joint_two_phase import prepared_together


class RowChangePart:
    """A row change that has written its files, and that its transaction commits or prepares."""

    def __init__(self, change: RowChange) -> None:
        self._change = change
        self._sealed = b""
        self._together: tuple[TogetherJob, ...] = ()

    def part(self) -> TablePart:
        """What it takes to commit it together with others. [MT3]"""
        change = self._change
        return TablePart(
            session=change.session,
            head=change.head,
            change=change.change(),
            found=change.already_committed,
        )

    def as_part(self) -> TablePart:
        """The same: a row change is held once, and is over then."""
        return self.part()

    def repeat(self, *, as_begun: bool) -> None:
        """Of a rerun whose key is committed: whether it declares no more than was said when it
        began. [KY3]"""
        self._change.is_as_begun = as_begun

    def forget_if_final(self, outcome: Outcome) -> None:
        """Nothing: a rerun looks at the rows again."""

    def seal(self, together: tuple[TogetherJob, ...]) -> None:
        """Fix what `prepare` makes durable. together: the jobs that it is committed with. [MT11]"""
        session, change = self._change.session, self._change
        if not self._sealed:
            sealed = prepared_together(change.change(), together)
            self._sealed = seal(session, change.head, sealed, change.record)
            self._together = together
        elif together != self._together:
            url = session.store.url
            raise UsageError(f"{url}: this job was prepared in another way; nothing was done")

    def prepare(self) -> str:
        """Make it durable; the same bytes may be put again. [AB3]"""
        put_prepared(self._change.session, self._change.id, self._sealed)
        return self._change.id
