"""Batches of streaming queries: which one a table waits for. [KY6]

Pure. Not here: where the record is kept (core.snapshot), what follows from the answer (engine.commit, core.conflict).
"""

from __future__ import annotations

from typing import Literal

from .change import StreamBatch
from .snapshot import StreamRecord


def judge(record: StreamRecord | None, batch: StreamBatch) -> Literal["next", "done", "gap", "reused"]:
    """Whether this batch is the next one, is in the table already, leaves some out, or is of another query under the same name. [KY6]

    A query's batches are numbered without gaps. A name without a record may begin anywhere.
    """
    if record is None:
        return "next"
    if record.query != batch.query:
        return "reused"
    if batch.batch <= record.batch:
        return "done"
    return "next" if batch.batch == record.batch + 1 else "gap"
