"""Several jobs that advance the same sources: a range never becomes a source's first one while an
earlier range is uncommitted. [WM7]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...core.table.snapshot import Snapshot
from ...core.table.watermark import Advance, predecessors
from ...errors import WatermarkGapError
from ..commit.prepared_job import read_prepared
from ..joint.joint_two_phase import partners
from ..metadata.table_context import TableContext
from .job_list import find_jobs


def check_turn(
    session: TableContext, advances: Sequence[Advance], earlier: Iterable[Sequence[Advance]]
) -> None:
    """Raise WatermarkGapError where the table does not know a source that one of `earlier`, which
    did not commit, advances first. [WM7]

    A source that the table knows needs no check here: its watermark decides. One open of the table
    where `earlier` is not empty.
    """
    sources = {each.source for other in earlier for each in other}
    if not any(each.source in sources for each in advances):
        return
    head = session.open().snapshot
    known = head.origins.keys() | head.watermarks.keys()
    for each in advances:
        if each.source in sources and each.source not in known:
            raise WatermarkGapError(
                f"{session.store.url}: the table does not know source {each.source!r} yet, "
                "and the job that advances it before "
                f"{each.start!r} has not committed: committing this job now would lose that "
                "range. Nothing of this job was committed. "
                "Commit the other job first, or declare where the source begins: "
                "create_table(…, sources={…}).",
                source=each.source,
                have=None,
                want=each.start,
            )


def check_turn_beside(session: TableContext, job: str) -> None:
    """As `check_turn`, for a job that is prepared with others: in each of their tables, as to the
    jobs that are prepared there. Two lists and a get for each of these more, where a source is not
    known. [WM7] [MT11]"""
    prepared = read_prepared(session, job)
    if prepared is None:
        return
    for at, head, other in partners(session, prepared):
        mine = other.change.advances
        if not begins_a_source(head.snapshot, mine):
            continue
        theirs = [
            each.advances
            for each in find_jobs(at)
            if each.is_waiting and each.info.job != other.change.job
        ]
        check_turn(at, mine, [theirs[index - 1] for index in predecessors([mine, *theirs])[0]])


def begins_a_source(snapshot: Snapshot, advances: Iterable[Advance]) -> bool:
    """Whether the table does not know a source that these advance: later ranges wait for them.
    [WM7]"""
    return any(each.source not in snapshot.origins for each in advances)


def begins_a_source_beside(session: TableContext, job: str) -> bool:
    """As `begins_a_source`, in the other tables of a job that is prepared with others. [AB4]
    [MT11]"""
    prepared = read_prepared(session, job)
    return prepared is not None and any(
        begins_a_source(head.snapshot, other.change.advances)
        for _, head, other in partners(session, prepared)
    )
