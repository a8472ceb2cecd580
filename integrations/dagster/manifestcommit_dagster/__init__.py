"""Dagster assets as tables of manifestcommit: an IO manager and a resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pydantic import Field

import dagster as dg
import manifestcommit as mc

__all__ = ["ManifestCommit", "ManifestCommitIOManager"]


class ManifestCommit(dg.ConfigurableResource):
    """Tables below a prefix, for assets that read and write by themselves.

    Args:
        lake: the prefix, a local path or a URL such as `s3://lake`.
        storage_options: what reaches the object store; by default the environment. Give secrets
            as `dagster.EnvVar`.
    """

    lake: str = Field(description="The prefix of the tables: a local path, or a URL such as s3://lake.")
    storage_options: dict[str, Any] = Field(
        default_factory=dict,
        description="What reaches the object store; by default the environment.",
    )

    def path(self, *name: str) -> str:
        """Return the path of a table, from the parts of its name."""
        return "/".join([self.lake.rstrip("/"), *name])

    def table(self, *name: str) -> mc.Table:
        """Return a table, from the parts of its name."""
        return mc.Table(self.path(*name), storage_options=self.storage_options or None)

    def write(self, data: Any, *name: str, **options: Any) -> mc.Outcome:
        """Write to a table in one commit; options: as for `manifestcommit.write`."""
        return mc.write(data, self.path(*name), storage_options=self.storage_options or None, **options)


class ManifestCommitIOManager(dg.ConfigurableIOManager):
    """Publish what an asset returns in one commit, and read an input from one version.

    The table of an asset is its key below `lake`. A partition replaces the rows of its value in
    the column that the asset's metadata `partition_column` names; an asset without partitions
    replaces all rows. The idempotency key is the asset, the partition and the run, so that a step
    that runs again within a run commits once.

    Args:
        lake: as for `ManifestCommit`.
        storage_options: as for `ManifestCommit`.
    """

    lake: str = Field(description="The prefix of the tables: a local path, or a URL such as s3://lake.")
    storage_options: dict[str, Any] = Field(
        default_factory=dict,
        description="What reaches the object store; by default the environment.",
    )

    @property
    def _tables(self) -> ManifestCommit:
        return ManifestCommit(lake=self.lake, storage_options=self.storage_options)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Commit what the asset returned; None: the asset has written by itself."""
        if obj is None:
            return
        parts = _partitions(context)
        column = _column(context) if parts else None
        with mc.begin(
            self._tables.path(*context.asset_key.path),
            key="/".join([*context.asset_key.path, ",".join(parts), context.run_id]),
            metadata={"dagster_run": context.run_id},
            storage_options=self.storage_options or None,
        ) as job:
            for part in parts:
                job.overwrite({column: part})
            if not parts:
                job.overwrite()
            if not job.already_committed:
                job.write(obj, partition_by=column)
        outcome = job.outcome
        shown = {"version": outcome.version, "already committed": outcome.already_committed}
        if (metrics := outcome.metrics) is not None:
            shown |= {"rows": metrics.rows_committed, "bytes": metrics.bytes_committed}
        context.add_output_metadata({name: value for name, value in shown.items() if value is not None})

    def load_input(self, context: dg.InputContext) -> Any:
        """Return the rows of the input's partition, or all rows, in the form that its type asks for."""
        parts = _partitions(context)
        filter = None
        if parts:
            source = context.upstream_output
            filter = pa.compute.field(_column(source or context)).isin(parts)
        rows = self._tables.table(*context.asset_key.path).to_arrow(filter=filter)
        return _in_the_form_of(context.dagster_type.typing_type, rows)


def _partitions(context: dg.OutputContext | dg.InputContext) -> list[str]:
    return list(context.asset_partition_keys) if context.has_asset_partitions else []


def _column(context: dg.OutputContext | dg.InputContext) -> str:
    metadata: Mapping[str, Any] = (context.definition_metadata if isinstance(context, dg.OutputContext) else {}) or {}
    column = metadata.get("partition_column")
    if not isinstance(column, str):
        raise dg.DagsterInvalidDefinitionError(
            f"{context.asset_key.to_user_string()} has partitions: give "
            '@asset(metadata={"partition_column": …}) the name of the column that holds their keys'
        )
    return column


def _in_the_form_of(form: Any, rows: pa.Table) -> Any:
    module = getattr(form, "__module__", "").partition(".")[0]
    if module == "pandas":
        return rows.to_pandas()
    if module == "polars":
        import polars

        return polars.from_arrow(rows)
    return rows
