"""A Spark DataFrame as the data of an overwrite by a condition. [RC10]"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.schema.spark_json import from_spark
from ...core.table.entries import Entry
from ...engine.datafile.writer import WritePlan
from ...engine.metadata.table_context import TableContext
from ...engine.operations.row_change import RowChange
from ...engine.row_changes.overwrite import NewRows
from ..read.provenance import check_running, marks_of
from ..runtime.task_errors import check_reachable
from .delete import Options, files_of, take
from .rewrite import write_entries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def spark_data(session: TableContext, df: DataFrame, *, storage_options: Options) -> NewRows:
    """A DataFrame, which Spark's tasks write and evaluate once. [SP1]"""
    check_running(df.sparkSession)
    check_reachable(session.store.url)

    def write(change: RowChange, plan: WritePlan) -> Sequence[Entry]:
        written = write_entries(df, plan, storage_options=storage_options)
        take(change, written)
        return files_of(session, plan, written)

    schema = from_spark(df.schema.jsonValue())
    return NewRows(schema=schema, marks=marks_of(df), write=write)
