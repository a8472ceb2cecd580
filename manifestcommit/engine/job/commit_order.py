"""Several jobs that advance the same sources: a range never becomes a source's first one while an
earlier range is uncommitted. [WM7]

Not here: the order itself (core.table.watermark), the commits (engine.job.two_phase, and
`commit_all` in job).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...core.table.watermark import Advance
from ...errors import WatermarkGapError
from ..metadata.table_context import TableContext


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
