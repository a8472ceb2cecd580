"""Batches of streaming queries: which batch a table expects next. [KY6]

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ..table.snapshot import StreamRecord
from .change import StreamBatch


def record_of(streams: Mapping[str, StreamRecord], batch: StreamBatch) -> StreamRecord | None:
    """The record that decides on this batch: another query's under its name, or else the last
    record of its own query under any name. [KY6]

    A checkpoint can be restarted with a key, without it, or with another one. Its batches stay the
    same, also under the name of a query whose batches a rollback took back.
    """
    named = streams.get(batch.name)
    if named is not None and named.query != batch.query and named.batch >= 0:
        return named
    own = (record for record in streams.values() if record.query == batch.query)
    return max(own, key=lambda record: record.batch, default=named)


def held(record: StreamRecord) -> str:
    """Describe which batches the table holds, for messages."""
    return f"batches up to {record.batch}" if record.batch >= 0 else "no batches, since a rollback,"


def judge(
    record: StreamRecord | None, batch: StreamBatch
) -> Literal["next", "done", "behind", "gap", "reused"]:
    """Classify this batch: it is the next one, is in the table already, comes from a checkpoint
    that is older than the table, skips some batches, or belongs to another query under the same
    name. [KY6]

    A query's batches are numbered without gaps, and only its last one is run again. A name without
    a record may begin anywhere. A name whose batches a rollback took back, all of them, may be used
    by another query from its first batch on.
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
