"""What dlt calls to load a package: nothing is written before the end of the package, and that is one commit."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dlt.common import json, logger
from dlt.common.configuration import configspec
from dlt.common.configuration.container import Container
from dlt.common.configuration.specs import CredentialsConfiguration
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.capabilities import DataTypeMapper
from dlt.common.destination.client import (
    DestinationClientDwhConfiguration,
    JobClientBase,
    LoadJob,
    StateInfo,
    StorageSchemaInfo,
    WithStateSync,
)
from dlt.common.destination.exceptions import DestinationTerminalException, DestinationUndefinedEntity
from dlt.common.libs.pyarrow import columns_to_arrow
from dlt.common.schema import Schema
from dlt.common.schema.utils import (
    get_columns_names_with_prop,
    get_dedup_sort_tuple,
    get_first_column_name_with_prop,
    get_nested_tables,
    get_root_table,
    has_table_seen_data,
)
from dlt.common.storages import ParsedLoadJobFileName
from dlt.common.storages.load_package import LoadPackageStateInjectableContext, PackageStorage
from dlt.destinations.job_impl import FinalizedLoadJob
from dlt.destinations.utils import verify_schema_merge_disposition

import manifestcommit as mc
from manifestcommit.errors import TableNotFoundError

MOST_TABLES = 32  # of one commit
SYSTEM_TABLES = 3  # loads, versions of the schema, state


@configspec
class Configuration(DestinationClientDwhConfiguration):
    """What dlt resolves from arguments, files and the environment."""

    destination_type: Final[str] = dataclasses.field(default="manifestcommit_dlt.manifestcommit", init=False, repr=False, compare=False)  # type: ignore[misc]
    credentials: CredentialsConfiguration | None = None
    lake: str = None  # type: ignore[assignment]  # None: dlt asks for it
    storage_options: dict[str, Any] | None = None

    def data_location(self) -> str:
        """Return the prefix of the tables."""
        return self.lake

    def fingerprint(self) -> str:
        """Return nothing that dlt's telemetry could send."""
        return ""

    def __str__(self) -> str:
        return self.lake


class Types(DataTypeMapper):
    """Refuses before anything is loaded what no table can hold."""

    def ensure_supported_type(self, column: Any, table: Any, loader_file_format: Any) -> None:
        """Raise where a column has a type that tables have not."""
        if column.get("data_type") == "time":
            raise DestinationTerminalException(
                f"{table['name']}.{column['name']}: tables of manifestcommit have no time of day. Declare the column as text "
                'in the resource: columns={"' + column["name"] + '": {"data_type": "text"}}.'
            )

    def to_destination_type(self, column: Any, table: Any) -> str:
        """Return dlt's name of the type: files are Parquet, and no SQL is made."""
        return str(column["data_type"])

    def from_destination_type(self, db_type: str, precision: int | None, scale: int | None) -> Any:
        """Return the type of that name."""
        return {"data_type": db_type}


class Client(JobClientBase, WithStateSync):
    """Loads the packages of one schema into the tables of one dataset.

    Jobs of single files do nothing: dlt keeps their files until the package is complete, and
    `complete_load` commits them all, with the load id as key.
    """

    config: Configuration

    def __init__(self, schema: Schema, config: Configuration, capabilities: DestinationCapabilitiesContext) -> None:
        super().__init__(schema, config, capabilities)
        self._dataset = f"{config.lake.rstrip('/')}/{config.normalize_dataset_name(schema)}"
        self._options = config.storage_options

    def initialize_storage(self, truncate_tables: Iterable[str] | None = None) -> None:
        """Create the table of loads, which decides each commit; tables are truncated by the commit."""
        loads = self.schema.loads_table_name
        mc.create_table(self._path(loads), self._arrow(loads), rank=-1, exist_ok=True, storage_options=self._options)

    def is_storage_initialized(self) -> bool:
        """Return whether there is a table of loads."""
        return self._exists(self.schema.loads_table_name)

    def drop_tables(self, *tables: str, delete_schema: bool = True) -> None:
        """Do nothing: tables that a refresh drops are emptied by the commit of the package."""

    def drop_storage(self) -> None:
        """Refuse to delete tables."""
        raise DestinationTerminalException(f"{self._dataset}: this destination deletes no tables. Delete the folder or prefix yourself.")

    def verify_schema(self, only_tables: Iterable[str] | None = None, new_jobs: Iterable[ParsedLoadJobFileName] | None = None) -> list[Any]:
        """Raise before anything is loaded where a table has types or hints that cannot be kept."""
        tables = super().verify_schema(only_tables, new_jobs)  # type: ignore[arg-type]  # dlt passes None
        for error in verify_schema_merge_disposition(self.schema, tables, self.capabilities, warnings=False):
            raise error
        return tables

    def create_load_job(self, table: Any, file_path: str, load_id: str, restore: bool = False) -> LoadJob:
        """Return a job that is done: the file is loaded with its package."""
        return FinalizedLoadJob(file_path)

    def should_truncate_table_before_load(self, table_name: str) -> bool:
        """Return False: rows are replaced by the commit."""
        return False

    def complete_load(self, load_id: str) -> None:
        """Commit the package: each of its rows, dlt's state and its load id, all or none.

        Called again for a package that is committed, it does nothing.
        """
        package = self._files(load_id)
        state = self.schema.state_table_name
        # in an order that is the same when the package is loaded again: each commit has the same tables then
        data = sorted(name for name in package if name != state)
        room = MOST_TABLES - SYSTEM_TABLES
        groups = -(-len(data) // room) or 1
        if groups > 1:
            logger.warning(
                f"Package {load_id} changes {len(data)} tables, and one commit takes {room}: it becomes {groups} commits, the state in the "
                "last. Each is recognised when the package is loaded again."
            )
        for at in range(groups):
            tables = data[at::groups]
            is_last = at == groups - 1
            if is_last and state in package:
                tables.append(state)
            self._commit(load_id, load_id if is_last else f"{load_id}/{at}", tables, package, is_last)

    def _commit(self, load_id: str, key: str, tables: Sequence[str], package: Mapping[str, Sequence[str]], is_last: bool) -> None:
        """Commit some tables of a package together, the last of them with the load id."""
        own = dict(self._own_rows(load_id, alone=not tables)) if is_last else {}
        paths = [self._path(name) for name in (*own, *tables)]
        options: Any = {"key": key, "metadata": {"dlt_load_id": load_id, "dlt_schema": self.schema.name}, "storage_options": self._options}
        first = mc.begin(paths[0], **options)
        if first.already_committed:
            first.abort()
            return
        for name in tables:
            if self._disposition(name) == "merge" and not self._exists(name):
                mc.create_table(self._path(name), self._arrow(name), exist_ok=True, storage_options=self._options)
        emptied = self._emptied()
        with mc.transaction([first, *(mc.begin(path, **options) for path in paths[1:])]) as tx:
            for name, rows in own.items():
                tx[name].write(rows, merge_schema=True)
            for name in tables:
                self._load(tx, name, package, is_emptied=name in emptied)

    def _load(self, tx: mc.Transaction, name: str, package: Mapping[str, Sequence[str]], *, is_emptied: bool) -> None:
        """Write what a package has of one table. Its root may be in another commit of the package."""
        files, disposition = package[name], self._disposition(name)
        if is_emptied or disposition == "replace":
            tx[name].overwrite()
        if disposition != "merge":
            if files:
                tx[name].write(self._stream(name, files), merge_schema=True)
            return
        root = self._root(name)
        staged, gone = self._latest(root, package.get(root, ()), has_nested=len(get_nested_tables(self.schema.tables, root)) > 1)
        if name == root:
            rows, deleted = staged, gone
            on = get_columns_names_with_prop(self.schema.get_table(root), "primary_key")
        else:
            rows, deleted, on = self._nested(tx, name, files, staged, gone)
        if is_emptied:
            tx[name].write(rows.filter(pc.invert(pa.array(deleted, pa.bool_()))), merge_schema=True)
            return
        marker = "_manifestcommit_deleted"
        rows = rows.append_column(marker, pa.array(deleted, pa.bool_()))
        values = {column: f"source.{_quoted(column)}" for column in rows.column_names if column != marker}
        tx.rows(name).merge(
            rows,
            on=on,
            merge_schema=True,
            when_matched=[mc.Delete(where=f"source.{marker}"), mc.Update(set=values)],
            when_not_matched=mc.Insert(values=values, where=f"NOT source.{marker}"),
        )

    def _latest(self, root: str, files: Sequence[str], *, has_nested: bool) -> tuple[pa.Table, list[bool]]:
        """The rows of a root table, one for each primary key, and whether each is to be deleted."""
        table, rows = self.schema.get_table(root), self._stream(root, files).read_all()
        keys = get_columns_names_with_prop(table, "primary_key")
        if sort := get_dedup_sort_tuple(table):
            order = [(sort[0], "ascending" if sort[1] == "desc" else "descending")]
            rows = rows.take(pc.sort_indices(rows, order, null_placement="at_start"))
        last = {key: at for at, key in enumerate(zip(*(rows[key].to_pylist() for key in keys), strict=True))}
        if has_nested and len(last) < rows.num_rows:
            raise DestinationTerminalException(
                f"Package of {root}: rows with the same primary key {keys}, and nested tables whose rows do not say which of them they "
                "belong to. Let the resource yield each key once."
            )
        rows = rows.take(pa.array(sorted(last.values()), pa.int64()))
        column = get_first_column_name_with_prop(table, "hard_delete")
        if column is None or not rows.num_rows:
            return rows, [False] * rows.num_rows
        marks = rows[column]
        deleted = pc.fill_null(marks, False) if pa.types.is_boolean(marks.type) else pc.is_valid(marks)
        return rows, deleted.to_pylist()

    def _nested(
        self, tx: mc.Transaction, name: str, files: Sequence[str], staged: pa.Table, gone: Sequence[bool]
    ) -> tuple[pa.Table, list[bool], list[str]]:
        """The rows of a nested table, then those of the same roots that are there and no longer nested, to be deleted."""
        table = self.schema.get_table(name)
        root_key, row_key = (get_first_column_name_with_prop(table, prop) for prop in ("root_key", "row_key"))
        root_row = get_first_column_name_with_prop(self.schema.get_table(self._root(name)), "row_key")
        if root_key is None or row_key is None or root_row is None:
            raise DestinationTerminalException(
                f"{name}: merge needs to know the root of each nested row. Set root_key=True for the source, or max_table_nesting=0."
            )
        roots = staged[root_row].combine_chunks()
        alive = roots.filter(pc.invert(pa.array(gone, pa.bool_())))
        rows = self._stream(name, files).read_all()
        rows = rows.filter(pc.is_in(rows[root_key], alive))
        there = tx.read(name).to_arrow(columns=[row_key, root_key])
        is_old = pc.and_(pc.is_in(there[root_key], roots), pc.invert(pc.is_in(there[row_key], rows[row_key].combine_chunks())))
        old = _fitted(there.filter(is_old).select([row_key]), rows.schema)
        return pa.concat_tables([rows, old]), [False] * rows.num_rows + [True] * old.num_rows, [row_key]

    def _files(self, load_id: str) -> dict[str, list[str]]:
        """The package's tables, roots before their nested ones, and the files of each."""
        package: PackageStorage = Container()[LoadPackageStateInjectableContext].storage
        jobs = package.get_load_package_jobs(load_id)
        unfinished = [job.file_name() for state, some in jobs.items() if state != package.COMPLETED_JOBS_FOLDER for job in some]
        if unfinished:
            raise DestinationTerminalException(
                f"Package {load_id} is not committed, since these files were not loaded: {', '.join(unfinished)}. The package would "
                "be incomplete, and the state behind it."
            )
        files: dict[str, list[str]] = defaultdict(list)
        folder = package.get_job_state_folder_path(load_id, package.COMPLETED_JOBS_FOLDER)
        for job in jobs[package.COMPLETED_JOBS_FOLDER]:
            files[job.table_name].append(package.storage.make_full_path(f"{folder}/{job.file_name()}"))
        tables = dict.fromkeys(name for name in self._emptied() if self._exists(name))
        for root in dict.fromkeys(self._root(name) for name in files):
            for table in get_nested_tables(self.schema.tables, root):
                name = str(table["name"])
                is_left = self._disposition(name) != "append" and has_table_seen_data(table) and self._exists(name)
                if name in files or is_left:
                    tables[name] = None
        return {name: sorted(files.get(name, ())) for name in tables}

    def _emptied(self) -> set[str]:
        """The tables that a refresh drops or truncates."""
        state: Mapping[str, Any] = Container()[LoadPackageStateInjectableContext].state
        return {table["name"] for key in ("dropped_tables", "truncated_tables") for table in state.get(key, ())}

    def _root(self, name: str) -> str:
        return str(get_root_table(self.schema.tables, name)["name"])

    def _disposition(self, name: str) -> str:
        if name not in self.schema.tables:  # dropped
            return "replace"
        return str(self.prepare_load_table(name)["write_disposition"])

    def _own_rows(self, load_id: str, *, alone: bool) -> Iterator[tuple[str, pa.Table]]:
        """What dlt keeps of a load, and of a schema that is new."""
        now, schema = dt.datetime.now(dt.UTC), self.schema
        load = {
            "load_id": load_id,
            "schema_name": schema.name,
            "status": 0,
            "inserted_at": now,
            "schema_version_hash": schema.version_hash,
        }
        yield schema.loads_table_name, self._row(schema.loads_table_name, load)
        is_known = self.get_stored_schema_by_hash(schema.stored_version_hash) is not None
        if alone or not is_known:  # a commit of several tables has at least two
            info = StorageSchemaInfo(
                schema.stored_version_hash, schema.name, schema.version, schema.ENGINE_VERSION, now, json.dumps(schema.to_dict())
            )
            rows = self._row(schema.version_table_name, info._asdict())
            yield schema.version_table_name, rows[:0] if is_known else rows

    def _row(self, name: str, values: Mapping[str, Any]) -> pa.Table:
        naming = self.schema.naming
        return pa.Table.from_pylist([{naming.normalize_identifier(key): value for key, value in values.items()}], self._arrow(name))

    def get_stored_schema(self, schema_name: str | None = None) -> StorageSchemaInfo | None:
        """Return the newest schema of that name, or of any."""
        return self._schema("schema_name", schema_name)

    def get_stored_schema_by_hash(self, version_hash: str) -> StorageSchemaInfo | None:  # type: ignore[override]
        """Return the schema of that hash."""
        return self._schema("version_hash", version_hash)

    def _schema(self, column: str, value: str | None) -> StorageSchemaInfo | None:
        naming, at = self.schema.naming, self.schema.naming.normalize_identifier("inserted_at")
        rows = self._stored(self.schema.version_table_name, column, value)
        newest = max(rows or (), key=lambda row: row[at], default=None)
        return None if newest is None else StorageSchemaInfo.from_normalized_mapping(newest, naming)

    def get_stored_state(self, pipeline_name: str) -> StateInfo | None:
        """Return the state of the newest package that is committed."""
        rows = self._stored(self.schema.state_table_name, "pipeline_name", pipeline_name)
        if rows is None:
            raise DestinationUndefinedEntity(self.schema.state_table_name)
        naming = self.schema.naming
        newest = max(rows, key=lambda row: float(row[naming.normalize_identifier("_dlt_load_id")]), default=None)
        return None if newest is None else StateInfo.from_normalized_mapping(newest, naming)

    def _stored(self, name: str, column: str, value: str | None) -> list[dict[str, Any]] | None:
        """The rows of one of dlt's own tables; None where there is none."""
        condition = None if value is None else pc.field(self.schema.naming.normalize_identifier(column)) == value
        try:
            rows: list[dict[str, Any]] = mc.Table(self._path(name), storage_options=self._options).to_arrow(filter=condition).to_pylist()
        except TableNotFoundError:
            return None
        return rows

    def _path(self, name: str) -> str:
        return f"{self._dataset}/{name}"

    def _exists(self, name: str) -> bool:
        try:
            return bool(mc.Table(self._path(name), storage_options=self._options).version)
        except TableNotFoundError:
            return False

    def _arrow(self, name: str) -> pa.Schema:
        """The columns of a table, as Arrow has them."""
        columns: Any = self.prepare_load_table(name)["columns"]
        return pa.schema([pa.field(field.name, field.type) for field in columns_to_arrow(columns, self.capabilities, "UTC")])

    def _stream(self, name: str, files: Sequence[str]) -> pa.RecordBatchReader:
        """The rows of some files, with the table's columns."""
        schema = self._arrow(name)

        def batches() -> Iterator[pa.RecordBatch]:
            for file in files:
                with pq.ParquetFile(file) as parquet:
                    for batch in parquet.iter_batches():
                        yield from _fitted(pa.Table.from_batches([batch]), schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with these columns: those that they have not are null."""
    have = set(rows.column_names)
    return pa.table(
        [rows[field.name].cast(field.type) if field.name in have else pa.nulls(rows.num_rows, field.type) for field in schema],
        schema=schema,
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
