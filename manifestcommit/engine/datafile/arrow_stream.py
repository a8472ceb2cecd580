"""Reads rows from any object that holds Arrow data, without Spark: one schema and a stream of
batches. [SC3]"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...errors import SchemaMismatchError, UsageError

_ACCEPTED = (
    "a pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, a pandas (2.2 or "
    "later) or polars DataFrame, a DuckDB "
    "relation, or anything else with __arrow_c_stream__ that yields columns"
)


def record_batches(data: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches of `data`, read once and in order; UsageError names the
    accepted types. [SC3]

    Named levels of a pandas index become columns, an unnamed index is dropped. The iterator passes
    on errors of the source unchanged.
    """
    reader = _reader(data)
    schema = reader.schema
    if b"pandas" in (schema.metadata or {}):
        schema = schema.with_metadata(
            {key: value for key, value in schema.metadata.items() if key != b"pandas"} or None
        )
    return schema, iter(reader)


def _reader(data: Any) -> pa.RecordBatchReader:
    kind = f"{type(data).__module__}.{type(data).__qualname__}"
    if type(data).__module__.startswith("polars") and hasattr(data, "collect"):
        raise UsageError(f"data is a {kind}, which holds no rows yet: call .collect() on it first.")
    if type(data).__qualname__ == "DuckDBPyConnection":  # the type that its execute() returns
        raise UsageError(
            f"data is a {kind}, which is no rows by itself: give the relation that its "
            ".sql(…) returns."
        )
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatchReader):
        return data
    # detected without an import
    if any(base.__module__.startswith("pyarrow._dataset") for base in type(data).__mro__):
        scanner = data.scanner() if hasattr(data, "scanner") else data
        return scanner.to_reader()
    is_pandas = type(data).__module__.startswith("pandas") and hasattr(data, "reset_index")
    is_pandas = is_pandas and hasattr(data, "columns")
    if is_pandas:
        data = _without_index(data)
    if not hasattr(data, "__arrow_c_stream__"):
        raise UsageError(f"data is a {kind}. Accepted: {_ACCEPTED}.")
    _check_names(data)
    try:
        if is_pandas:  # as its stream does, whose names end at a NUL
            return pa.Table.from_pandas(data).to_reader()
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, ValueError) as error:
        raise UsageError(
            f"data is a {kind}, whose Arrow stream could not be opened: {error}. Accepted: "
            f"{_ACCEPTED}."
        ) from error


def _check_names(data: Any) -> None:
    """SchemaMismatchError for a NUL in a name: Arrow's C interface would cut the name there."""
    names = [name for name in getattr(data, "columns", ()) if isinstance(name, str)]
    kinds = list(getattr(data, "dtypes", ()))
    while kinds:  # of Polars, nested
        kind = kinds.pop()
        for member in getattr(kind, "fields", None) or ():
            names.append(getattr(member, "name", ""))
            kinds.append(getattr(member, "dtype", None))
        if (inner := getattr(kind, "inner", None)) is not None:
            kinds.append(inner)
    for name in names:
        if "\0" in name:
            raise SchemaMismatchError(
                f"The column name {name!r} has the character NUL, at which other programs end a "
                "name. Rename the column."
            )


def _without_index(frame: Any) -> Any:
    """The frame with the named levels of its index as columns. pandas itself would also write
    unnamed levels, and would omit a named range."""
    named = [name for name in frame.index.names if name is not None]
    try:
        return (frame.reset_index(level=named) if named else frame).reset_index(drop=True)
    except ValueError as error:
        raise UsageError(
            f"data has an index that cannot become columns: {error}. Rename or reset the "
            "index first."
        ) from error
