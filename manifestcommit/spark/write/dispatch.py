"""Writes a Spark DataFrame into a job: checks it, writes its rows in tasks, and hands the files to
the job. [SP1] [SP5]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...commits.job import Job
from ...format.spark_json import from_spark
from ..read.provenance import check_running, marks_of
from .arrow_writer import write_dataframe
from .recoverable import check_recoverable, write_recoverable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_into(
    job: Job,
    df: DataFrame,
    *,
    storage_options: Mapping[str, Any] | None,
    **options: Any,
) -> None:
    """Write every row of `df` into the job, still invisible; a mismatch is raised before any task
    starts. [SP1] [SC3]

    options: as for `commits.job.Job.plan_write`.
    """
    check_running(df.sparkSession)
    job.based_on.take(marks_of(df))
    if job.recovery is not None:
        check_recoverable(df)
    plan = job.plan_write(from_spark(df.schema.jsonValue()), **options)
    if job.recovery is None:
        written = write_dataframe(df, plan, storage_options=storage_options)
    else:
        written = write_recoverable(df, plan, job.recovery, storage_options=storage_options)
    written.add_to(job)
