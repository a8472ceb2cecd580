"""Who evaluates a condition and rewrites the files of a row change: this process with Arrow, or
Spark. [RC8]
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ...core.filter.sql_syntax import NotUnderstoodError
from ...core.schema.fields import Schema
from ..operations.row_change import Executor, RowChange
from .conditions import Condition, needs_spark

LOG = logging.getLogger("manifestcommit.jobs")
# Bytes of the files that may have to be rewritten. With less, one machine does well; what is more
# is left to an active session.
FEW_BYTES = 1 << 30


class RowExecutor(Protocol):
    """Evaluates conditions for the rows of files, and rewrites files."""

    @property
    def name(self) -> Executor: ...

    def understand(self, condition: Any, schema: Schema, argument: str) -> Condition:
        """The condition; UsageError, with the name of the argument, if it is not one."""
        ...

    def chosen(self, partitions: pa.Table, schema: Schema, condition: Condition) -> list[bool]:
        """For each partition, one row each, whether the condition is true. schema: the partition
        columns."""
        ...

    def count(
        self, change: RowChange, entries: pa.Table, condition: Condition, *, keep: bool = False
    ) -> dict[str, int]:
        """How many rows of each file match; a file without any may be left out. keep: the files
        are rewritten next, without rows that match this condition."""
        ...

    def rewrite_without(self, change: RowChange, entries: pa.Table, condition: Condition) -> int:
        """Write the rows of these files that do not match, register the new files, and return how
        many rows they have. [RC1]"""
        ...


class HereExecutor(RowExecutor, Protocol):
    """The executor in this process, which shares its memory."""

    def memory(self, entries: pa.Table) -> int:
        """About how many bytes it takes at most to rewrite these files."""
        ...


class Choice:
    """Who does the work. here: this process; spark: makes Spark's executor, and raises UsageError
    where it is not installed; is_given: the caller chose Spark; is_active: a session is active.
    [RC8]"""

    def __init__(
        self,
        here: HereExecutor,
        spark: Callable[[], RowExecutor],
        *,
        is_given: bool,
        is_active: bool,
    ) -> None:
        self._here, self._make_spark = here, spark
        self._is_given, self._is_active = is_given, is_active

    def by_language(
        self, condition: Any, schema: Schema, argument: str
    ) -> tuple[RowExecutor, Condition]:
        """This process, unless Spark was chosen or is needed to understand the condition."""
        if not self._is_given:
            try:
                return self._here, self._here.understand(condition, schema, argument)
            except NotUnderstoodError as error:
                if not self._is_active:
                    raise needs_spark(condition, argument, error) from error
        spark = self._make_spark()
        return spark, spark.understand(condition, schema, argument)

    def by_size(
        self,
        entries: pa.Table,
        what: str,
        executor: RowExecutor,
        wanted: Condition,
        schema: Schema,
    ) -> tuple[RowExecutor, Condition]:
        """The executor for these files, with the condition as it evaluates it: what is large is
        left to an active session."""
        size = pc.sum(entries.column("bytes")).as_py() or 0
        if executor is self._here and self._is_active and size > FEW_BYTES:
            executor = self._make_spark()
            wanted = executor.understand(wanted.given, schema, "where")
        if executor is self._here:
            room = f"this process, in up to {self._here.memory(entries) / 1e6:.0f} MB of memory"
        else:
            room = "Spark"
        LOG.info(
            "%s: %d files of %.1f MB may hold such rows; they are read and rewritten by %s",
            what,
            entries.num_rows,
            size / 1e6,
            room,
        )
        return executor, wanted
