"""A small reader of Avro containers, written from Avro's specification alone: it shares nothing with the writer."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any


def avro_rows(data: bytes) -> list[Any]:
    """The records of a container."""
    stream = io.BytesIO(data)
    assert stream.read(4) == b"Obj\x01", "no Avro container"
    header = _value(stream, {"type": "map", "values": "bytes"})
    schema, sync, rows = json.loads(header["avro.schema"]), stream.read(16), []
    while stream.tell() < len(data):
        count, block = _long(stream), _value(stream, "bytes")
        assert stream.read(16) == sync, "a block has another end"
        if header.get("avro.codec") == b"deflate":
            block = zlib.decompress(block, -15)
        records = io.BytesIO(block)
        rows += [_value(records, schema) for _ in range(count)]
        assert records.tell() == len(block), "a block has more than its records"
    return rows


def _long(stream: io.BytesIO) -> int:
    number = shift = 0
    while True:
        (byte,) = stream.read(1)
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number >> 1 ^ -(number & 1)


def _value(stream: io.BytesIO, kind: Any) -> Any:
    if isinstance(kind, list):
        return _value(stream, kind[_long(stream)])
    name = kind if isinstance(kind, str) else kind["type"]
    if name in ("array", "map"):
        return _blocks(stream, kind, name)
    if name in ("bytes", "string"):
        found = stream.read(_long(stream))
        return found if name == "bytes" else found.decode()
    read: dict[str, Callable[[], Any]] = {
        "null": lambda: None,
        "boolean": lambda: stream.read(1) == b"\x01",
        "int": lambda: _long(stream),
        "long": lambda: _long(stream),
        "float": lambda: struct.unpack("<f", stream.read(4))[0],
        "double": lambda: struct.unpack("<d", stream.read(8))[0],
        "fixed": lambda: stream.read(kind["size"]),
        "record": lambda: {field["name"]: _value(stream, field["type"]) for field in kind["fields"]},
    }
    return read[name]()


def _blocks(stream: io.BytesIO, kind: Any, name: str) -> Any:
    items: list[Any] = []
    while count := _long(stream):
        if count < 0:
            count = -count
            _long(stream)  # the block's size
        for _ in range(count):
            key = _value(stream, "string") if name == "map" else None
            item = _value(stream, kind["values"] if name == "map" else kind["items"])
            items.append(item if name == "array" else (key, item))
    return items if name == "array" else dict(items)
