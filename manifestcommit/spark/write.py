"""A Spark DataFrame into a job: checked first, then written by tasks, then the job's own. [SP1] [SP5]

Not here: what runs inside Spark (spark.writer), the commit, which is the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.spark_types import from_spark
from ..engine.job import Job
from .own_writer import check_own_writer, write_with_own_writer
from .recoverable import check_recoverable, write_recoverable
from .writer import write_dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_into(job: Job, df: DataFrame, *, storage_options: Mapping[str, Any] | None, by_jvm: bool = False, **options: Any) -> None:
    """Every row of `df` belongs to the job, still invisible; a misfit is raised before any task starts. [SP1] [SC3]

    by_jvm: let Spark's own Parquet writer write; options: as for `engine.job.Job.plan_write`.
    """
    if by_jvm:
        check_own_writer(job.url, df, target_file_size=options.get("target_file_size"), recoverable=job.recovery is not None)
    if job.recovery is not None:
        check_recoverable(df)
    plan = job.plan_write(from_spark(df.schema.jsonValue()), **options)
    if by_jvm:
        written = write_with_own_writer(df, plan)
    elif job.recovery is None:
        written = write_dataframe(df, plan, storage_options=storage_options)
    else:
        written = write_recoverable(df, plan, job.recovery, storage_options=storage_options)
    job.add_written(written.entries, written.manifests, touched=written.touched, tasks=written.tasks, intake=written.intake)
