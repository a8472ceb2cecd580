"""Values in Avro, as objects, and their columns. [LD9]"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from ..errors import UsageError
from ..runtime.validation import wrong
from ..version import install

_HEADER = 5  # bytes of a schema registry: a zero, and the id of the schema
_KINDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    **{f"timestamp-{unit}": pa.timestamp("us", "UTC") for unit in ("millis", "micros")},
    **{f"local-timestamp-{unit}": pa.timestamp("us") for unit in ("millis", "micros")},
}


def avro_decoder(given: Any) -> tuple[Callable[[bytes], Mapping[str, Any]], pa.Schema]:
    """What makes an object of a value, and the columns.

    given: a schema of Avro, or several by the ids that a registry's header begins values with; the
    last one has the columns.
    """
    try:
        import fastavro
    except ImportError as error:
        raise UsageError(f"value='avro' needs fastavro: {install('kafka')}") from error
    read: Any = fastavro.schemaless_reader
    has_header = isinstance(given, Mapping) and given and all(type(id) is int for id in given)
    try:
        texts = dict(given) if has_header else {0: given}
        objects = {id: json.loads(x) if isinstance(x, str) else x for id, x in texts.items()}
        parsed = {id: fastavro.parse_schema(_plain(each)) for id, each in objects.items()}
        reader = [*parsed.values()][-1]
        columns = pa.schema(list(_kind(reader, {})))
    except (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        raise wrong(
            "schema",
            given,
            f"a schema of a record in Avro, or id -> schema ({' '.join(str(error).split())})",
            '{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}',
        ) from None

    def decode(value: bytes) -> Mapping[str, Any]:
        stream, id = io.BytesIO(value), 0
        if has_header:
            header = stream.read(_HEADER)
            if len(header) < _HEADER or header[0]:
                raise ValueError("the value does not begin with the header of a schema registry")
            id = int.from_bytes(header[1:], "big")
            if id not in parsed:
                raise ValueError(f"the id of its schema is {id}: add that to schema=")
        writer = parsed[id]
        found: dict[str, Any] = read(stream, writer, None if writer is reader else reader)
        if stream.read(1):
            raise ValueError("bytes are left behind the record: its schema is another one")
        return found

    return decode, columns


def _plain(schema: Any) -> Any:
    """Without the annotation of texts as UUIDs, which columns do not have."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: _plain(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if (name, value) != ("logicalType", "uuid")
    }


def _kind(schema: Any, named: dict[str, pa.DataType]) -> pa.DataType:
    """The type of a column. ValueError for a type that no column has. named: those before it."""
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) == 1:
            return _kind(kinds[0], named)
        raise ValueError("a union of more than null and one type is no column")
    if isinstance(schema, str):
        schema = {"type": schema}
    type, logical = schema["type"], str(schema.get("logicalType", ""))
    if not isinstance(type, str):
        return _kind(type, named)
    if type in named:
        return named[type]
    if logical.startswith("time-") or logical.endswith("-nanos"):
        raise ValueError(f"no column has the type {logical}")
    if logical == "decimal":
        found = pa.decimal128(schema["precision"], schema.get("scale", 0))
    elif type == "record":
        found = pa.struct([(each["name"], _kind(each["type"], named)) for each in schema["fields"]])
    elif type == "array":
        found = pa.list_(_kind(schema["items"], named))
    elif type == "map":
        found = pa.map_(pa.string(), _kind(schema["values"], named))
    elif type in _KINDS:
        found = _LOGICAL.get(logical, _KINDS[type])
    else:
        raise ValueError(f"no column has the type {type}, or it holds itself")
    if "name" in schema:
        named[schema["name"]] = found
    return found
