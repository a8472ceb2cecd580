"""dbt-duckdb's plugin: sources are committed versions, and a model is one commit for each key."""

from __future__ import annotations

import json
from typing import Any

from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.duckdb.utils import SourceConfig, TargetConfig

import manifestcommit as mc


class Plugin(BasePlugin):  # type: ignore[misc]  # dbt-duckdb comes without types
    def configure_connection(self, connection: Any) -> None:
        self._connection = connection

    def default_materialization(self) -> str:
        return "view"

    def load(self, source: SourceConfig) -> Any:
        """The newest version, or the one that the source's `meta` names by `version` or `tag`."""
        table = mc.Table(source["location"], storage_options=source.get("storage_options"))
        return table.dataset(version=source.get("version"), tag=source.get("tag"))

    def store(self, target: TargetConfig) -> None:
        """Commits the staged rows under the model's key, unless a commit has that key already."""
        config, model = target.config, target.relation
        location, key = config.get("location"), config.get("key")
        options, partition_by = config.get("storage_options"), config.get("partition_by")
        stage_to = config.get("stage_to")
        staged = model.incorporate(path={"identifier": f"{model.identifier}__staged"})
        rows = self._connection.cursor().sql(f"FROM {staged}").to_arrow_reader(100_000)
        if on := config.get("merge_on"):
            table = mc.create_table(
                location, rows.schema, partition_by=partition_by, storage_options=options
            )
            made: Any = table.merge(rows, on=on, key=key, publish=stage_to is None)
        else:
            made = mc.write(
                rows,
                location,
                mode=config.get("mode") or "append",
                overwrite=config.get("overwrite"),
                partition_by=partition_by,
                key=key,
                watermarks=config.get("watermarks"),
                storage_options=options,
                publish=stage_to is None,
            )
        cursor = self._connection.cursor()  # another: what is committed already leaves rows unread
        cursor.execute(f"DROP TABLE {staged}")
        table: Any = mc.Table(location, storage_options=options)
        if stage_to is not None:
            table = mc.Staged(location, made.job_id, storage_options=options)
            with open(stage_to, "a") as file:
                file.write(json.dumps([location, made.job_id]) + "\n")
        self._show(cursor, table, model)

    def _show(self, cursor: Any, table: Any, model: Any) -> None:
        """Lets `ref` read it: its files, or a copy if DuckDB cannot read them itself."""
        relation = table.duckdb(cursor)
        query = relation.sql_query()
        cursor.execute("BEGIN")
        cursor.execute(
            "SELECT table_type FROM information_schema.tables WHERE table_catalog = ? "
            "AND table_schema = ? AND table_name = ?",
            [model.database, model.schema, model.identifier],
        )
        for (kind,) in cursor.fetchall():
            cursor.execute(f"DROP {'VIEW' if kind == 'VIEW' else 'TABLE'} {model}")
        if query.startswith("SELECT * FROM read_parquet("):  # of nothing else: no part is Arrow's
            cursor.execute(f"CREATE VIEW {model} AS {query}")
        else:
            relation.create(str(model))
        cursor.execute("COMMIT")
