"""The version of its own table that a job's rows were read from: with its successors an overwrite
is compared. [CF17]
"""

from __future__ import annotations

from collections.abc import Iterable

from ...core.commit.change import Overwrite, Write
from ...core.commit.conflict import find_conflict
from ...core.schema.read_mark import lowest_version
from ...core.table.partition_pattern import PartitionPattern
from ...errors import JobFencedError, VersionNotFoundError
from ..metadata.table_context import TableContext
from ..metadata.version_chain import Head
from ..runtime.outcome import Outcome, committed_or_raise
from .conflict_inputs import find_winners, load_conflict_inputs


class BasedOn:
    """said: what the caller says, a whole number from 1 on; it takes the place of all that the data
    says. [CF17]"""

    def __init__(self, said: int | None = None) -> None:
        self._said = said
        self._marks: list[str] = []
        self._appends = False

    def take(self, marks: Iterable[str], *, appends: bool = False) -> None:
        """What data says that is written. appends: also an append of it counts as having read the
        whole table. [SP41]"""
        self._marks += marks
        self._appends |= appends

    def version(self, head: Head | None, url: str) -> int | None:
        """The version; None: nothing is known. VersionNotFoundError where the caller says one that
        the table does not have."""
        if self._said is None:
            return (
                None if head is None else lowest_version(self._marks, head.snapshot.table_id, url)
            )
        if head is None or self._said > head.version:
            has = (
                "there is no table"
                if head is None
                else f"the table's newest version is {head.version}"
            )
            raise VersionNotFoundError(
                f"{url}: this write is based on version {self._said}, but {has}. Nothing was done."
            )
        return self._said

    def reads(self, version: int | None) -> tuple[PartitionPattern, ...]:
        """What an append of this data has read: the whole table, where it is rows of the table that
        Spark does not say more of."""
        return ({},) if version is not None and self._said is None and self._appends else ()


def below(
    version: int | None,
    birth: int,
    overwrite: Overwrite | None,
    reads: tuple[PartitionPattern, ...],
) -> int | None:
    """What the change of a job has to say of it; None where it changes nothing: its birth is older,
    or it is compared with nobody."""
    is_compared = bool(reads) or (overwrite is not None and overwrite.conflict == "serializable")
    return version if version is not None and version < birth and is_compared else None


def check_based_on(session: TableContext, head: Head, change: Write) -> None:
    """Refuse now what no later commit can make right: a version behind the fence, or one that
    others have written over since. [CF17]"""
    if change.based_on is None:
        return
    url = session.store.url
    if change.since < head.snapshot.fence:
        raise JobFencedError(
            f"{url}: the rows of this write were read from version {change.based_on}, which "
            "is below the table's fence, version "
            f"{head.snapshot.fence}: what was committed since then can no longer be compared "
            "with it. Nothing was done. Read the table "
            "again and recompute the rows. To replace the data whatever was committed since, "
            'overwrite with conflict="blind"; if you '
            "know that the rows are right for a newer version, say which one: "
            f"based_on={head.version}."
        )
    conflict = find_conflict(
        head.snapshot,
        change,
        find_winners(session, head, change, {}),
        load_conflict_inputs(session, head, change),
    )
    if conflict is not None and conflict.rule in (
        "partition_was_touched",
        "read_partition_was_touched",
    ):
        committed_or_raise(Outcome(kind="conflict", job_id=change.job, conflict=conflict), url)
