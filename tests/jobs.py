"""Public jobs on a context that a test has made: a store with faults, a clock of its own."""

from __future__ import annotations

from typing import Any

from manifestcommit.engine.job import job as engine_job
from manifestcommit.engine.metadata.table_context import TableContext
from manifestcommit.job import Job


def job_on(session: TableContext, **options: Any) -> Job:
    """As `manifestcommit.begin` makes it. options: those of the engine's `Job.begin`."""
    return Job(engine_job.Job.begin(session, **options))
