"""Other engines, each by its own library, that read an export; and rows in a form in which they can be compared."""

import datetime as dt
import math
import warnings
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import polars
import pyarrow as pa
from tests.clients.readers import document, duckdb_session

import manifestcommit as mc

Reader = Callable[[str], pa.Table]


def pyiceberg_scan(root: str, version: int | None = None) -> pa.Table:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(f"{root}/_iceberg").scan(snapshot_id=version).to_arrow()


def polars_iceberg(root: str, version: int | None = None) -> pa.Table:
    with warnings.catch_warnings():  # that a faster planner is not installed
        warnings.simplefilter("ignore")
        return polars.scan_iceberg(document(root, None), snapshot_id=version).collect().to_arrow()


duck = cache(duckdb_session)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def duckdb_iceberg(root: str, version: int | None = None) -> pa.Table:
    at = "" if version is None else f", snapshot_from_id = {version}"
    return duck().execute(f"SELECT * FROM iceberg_scan({quoted(root + '/_iceberg')}{at})").to_arrow_table()


def duckdb_delta(root: str, version: int | None = None) -> pa.Table:
    at = "" if version is None else f", version = {version}"
    return duck().execute(f"SELECT * FROM delta_scan({quoted(root)}{at})").to_arrow_table()


def deltalake_query(root: str, version: int | None = None) -> pa.Table:
    import deltalake

    table = deltalake.DeltaTable(root, version=version)
    return pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def polars_delta(root: str, version: int | None = None) -> pa.Table:
    return polars.scan_delta(root, version=version).collect().to_arrow()


ICEBERG = {"pyiceberg": pyiceberg_scan, "DuckDB iceberg_scan": duckdb_iceberg, "Polars scan_iceberg": polars_iceberg}
DELTA = {"deltalake": deltalake_query, "DuckDB delta_scan": duckdb_delta, "Polars scan_delta": polars_delta}


def local(table: mc.Table) -> str:
    """The folder of a table on this machine."""
    return table.url.removeprefix("file://")


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value as it compares whichever library showed it."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [(each["key"], each["value"]) if isinstance(each, dict) else each for each in value]
        return sorted(((plain(key, kind.key_type), plain(item, kind.item_type)) for key, item in pairs), key=repr)
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [plain(each, kind.value_type) for each in value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC) if value.tzinfo is not None else value
    return value if not isinstance(value, Decimal) else (str(value),)


def rows(table: pa.Table, schema: pa.Schema) -> list[str]:
    """Each row as a text, in order, its columns in the schema's order."""
    assert table.column_names and set(table.column_names) == set(schema.names), table.column_names
    columns = [[plain(value, field.type) for value in table.column(field.name).to_pylist()] for field in schema]
    return sorted(map(repr, zip(*columns, strict=True)))


def expected(table: mc.Table, version: int | None = None) -> tuple[list[str], pa.Schema]:
    """What a reader of this library gets."""
    found = table.dataset(version=version).to_table()
    return rows(found, found.schema), found.schema
