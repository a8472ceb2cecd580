"""What a job finds when it begins: the version that it is based on, its id, the record of its key.
[CM15] [KY3]
"""

from __future__ import annotations

import msgspec

from ...core.table.snapshot import KeyRecord
from ..metadata.job_and_key_lookup import find_key_at
from ..metadata.table_context import TableContext
from ..metadata.version_chain import Head
from .task_recovery import Recovery


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a job found when it began. head: the table's latest version; job: the job's id; record:
    that of its key, if an earlier run has committed it."""

    head: Head
    job: str
    record: KeyRecord | None = None


def begun(session: TableContext, head: Head, key: str | None, recovery: Recovery | None) -> Start:
    """Begin a job under this version; a recoverable one goes on under the id of an earlier attempt.
    [AB6]"""
    record = None
    if key is not None:
        head, record = find_key_at(session, head, key)
    job = session.new_job(head)
    if recovery is not None and record is None:
        job = recovery.find(head.snapshot) or job
    return Start(head=head, job=job, record=record)
