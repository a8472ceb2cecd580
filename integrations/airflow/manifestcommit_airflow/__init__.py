"""Airflow operators and a sensor for tables of manifestcommit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

import manifestcommit as mc

__all__ = ["MaintainOperator", "PublishOperator", "WatermarkSensor", "provider_info", "storage_options"]


def provider_info() -> dict[str, Any]:
    """Return what Airflow lists of this provider."""
    return {
        "package-name": "manifestcommit-airflow",
        "name": "manifestcommit",
        "description": "Exactly-once publishing of Parquet tables to object stores.",
    }


def storage_options(conn_id: str | None) -> dict[str, Any] | None:
    """Return the storage options of a connection, its extra; None: the environment counts."""
    return None if conn_id is None else dict(BaseHook.get_connection(conn_id).extra_dejson)


class PublishOperator(BaseOperator):
    """Check a staged job and publish it.

    A check that fails leaves the job staged, and fails the task without a retry. A job that is
    published already is done.

    Args:
        table: the table path.
        job_id: the job's id, as `Staged.job_id` has it: mostly the result of the task that wrote.
        checks: what has to hold, as for `Staged.check`.
        conn_id: the connection whose extra is the storage options; by default the environment.
    """

    template_fields = ("table", "job_id")

    def __init__(
        self,
        *,
        table: str,
        job_id: Any,
        checks: Sequence[Any] = (),
        conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table, self.job_id, self.checks, self.conn_id = table, job_id, checks, conn_id

    def execute(self, context: Any) -> int | None:
        """Return the version that holds the job."""
        staged = mc.Staged(self.table, self.job_id, storage_options=storage_options(self.conn_id))
        try:
            if self.checks:
                staged.check(*self.checks)
            return staged.publish().version
        except mc.errors.CheckFailedError as error:
            raise AirflowFailException(str(error)) from None


class WatermarkSensor(BaseSensorOperator):
    """Wait until a table's watermark of a source has reached a position.

    A table that is not there yet is waited for, too.

    Args:
        table: the table path.
        source: the source's name.
        at_least: the position, of the watermark's own type; as a template it is a text, which is
            compared as a number where the watermark is one.
        conn_id: as for `PublishOperator`.
    """

    template_fields = ("table", "source", "at_least")

    def __init__(
        self,
        *,
        table: str,
        source: str,
        at_least: int | str,
        conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table, self.source, self.at_least, self.conn_id = table, source, at_least, conn_id

    def poke(self, context: Any) -> bool:
        """Return whether it is reached."""
        try:
            table = mc.Table(self.table, storage_options=storage_options(self.conn_id))
            reached = table.watermarks().get(self.source)
        except mc.errors.TableNotFoundError:
            return False
        self.log.info("%s of %s is at %s", self.source, self.table, reached)
        if reached is None:
            return False
        return reached >= type(reached)(self.at_least)


class MaintainOperator(BaseOperator):
    """Run what is due for tables: `manifestcommit.maintain`.

    Args:
        tables: a table path, a prefix of tables, or a list of these.
        max_time: begin no step after this time, such as "30m"; by default there is no limit.
        max_bytes: how many bytes compaction may rewrite, such as "10GB"; by default the function's.
        conn_id: as for `PublishOperator`.
    """

    template_fields = ("tables",)

    def __init__(
        self,
        *,
        tables: str | list[str],
        max_time: str | None = None,
        max_bytes: int | str | None = None,
        conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables, self.max_time, self.max_bytes, self.conn_id = tables, max_time, max_bytes, conn_id

    def execute(self, context: Any) -> list[dict[str, Any]]:
        """Return a row for each table and step."""
        limits = {} if self.max_bytes is None else {"max_bytes": self.max_bytes}
        progress: Callable[[str], None] = self.log.info
        done = mc.maintain(
            self.tables,
            max_time=self.max_time,
            progress=progress,
            storage_options=storage_options(self.conn_id),
            **limits,
        )
        rows: list[dict[str, Any]] = done.to_pylist()
        if failed := [row for row in rows if row["state"] == "failed"]:
            first = failed[0]
            raise AirflowException(
                f"{len(failed)} of {len(rows)} steps failed, first {first['step']} of {first['table']}: {first['result']}"
            )
        return rows
