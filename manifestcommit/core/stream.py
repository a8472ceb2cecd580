"""Batches of streaming queries: which one a table waits for. [KY6]

Pure. Not here: where the record is kept (core.snapshot), what follows from the answer (engine.commit, core.conflict).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from .change import StreamBatch
from .snapshot import StreamRecord


def record_of(streams: Mapping[str, StreamRecord], batch: StreamBatch) -> StreamRecord | None:
    """The record that decides on this batch: another query's of its name, or else the last of its own query under any name. [KY6]

    The same checkpoint may be started with a key, without it, or with another one: its batches stay what they are.
    """
    named = streams.get(batch.name)
    if named is not None and named.query != batch.query:
        return named
    return max((each for each in streams.values() if each.query == batch.query), key=lambda each: each.batch, default=None)


def held(record: StreamRecord) -> str:
    """Which batches the table holds, for messages."""
    return f"batches up to {record.batch}" if record.batch >= 0 else "no batches, since a rollback,"


def judge(record: StreamRecord | None, batch: StreamBatch) -> Literal["next", "done", "behind", "gap", "reused"]:
    """Whether this batch is the next one, is in the table already, comes from a checkpoint that is older than the table, leaves some out,
    or is of another query under the same name. [KY6]

    A query's batches are numbered without gaps, and only its last one is run again. A name without a record may begin anywhere; one
    whose batches a rollback has taken, all of them, may be another query's from its first batch on.
    """
    if record is None:
        return "next"
    if record.query != batch.query:
        return "next" if record.batch < 0 and batch.batch == 0 else "reused"
    if batch.batch < record.batch:
        return "behind"
    if batch.batch == record.batch:
        return "done"
    return "next" if batch.batch == record.batch + 1 else "gap"
