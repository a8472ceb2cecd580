"""Turns a sound object into a hostile one: bytes that flip, documents whose members lie, Parquet whose columns are others."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pyarrow as pa

# What has broken readers of metadata: numbers at the edges, names that lead elsewhere, text that is none, depth, and wrong kinds.
HOSTILE: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 1.5, 1e308),
    *("", "NaN", "Infinity", ".", "..", "/", "../x", "/etc/passwd", "a//b", "a/./b", "_manifest/hint", "_MANIFEST/x", "x\\y"),
    *("\u0000", "\U0010ffff", "é", "e\u0301", "%2e%2e", "day=1", "__HIVE_DEFAULT_PARTITION__", "__unknown__", "x" * 70_000, "1" * 400),
    *("sha256:", "sha256:" + "0" * 64, "v1-0123456789abcdef-" + "0" * 32, "v" + "9" * 30 + "-" + "f" * 16 + "-" + "0" * 32),
    *("decimal(38,38)", "decimal(39,0)", "array<int>", "AA==", "!", "@", "@99999999999", "9999-12-31", "0000-00-00"),
    *([], {}, [[]], [{}], {"": None}, [0] * 3, {"version": 1}, {"a": {"b": {"c": {}}}}),
]


def mutate_bytes(data: bytes, dice: random.Random) -> bytes:
    """A few bytes flipped, cut, doubled or put in."""
    mutated = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(len(mutated) + 1)
        what = dice.randrange(5)
        if what == 0 and at < len(mutated):
            mutated[at] ^= 1 << dice.randrange(8)
        elif what == 1:
            del mutated[at:]
        elif what == 2:
            mutated[at:at] = dice.randbytes(dice.choice([1, 4, 64]))
        elif what == 3:
            mutated[at:at] = mutated[max(0, at - dice.randrange(1, 65)) : at]
        else:
            del mutated[at : at + dice.randrange(1, 33)]
    return bytes(mutated)


def mutate_document(document: Any, dice: random.Random) -> Any:
    """The same document with one to three members replaced, removed, copied from elsewhere, renamed or repeated."""
    mutated = msgspec.json.decode(msgspec.json.encode(document))
    for _ in range(dice.choice([1, 1, 2, 3])):
        places = list(_places(mutated))
        if not places:
            return dice.choice(HOSTILE)
        holder, key = dice.choice(places)
        what = dice.randrange(8)
        if what <= 3:
            holder[key] = dice.choice(HOSTILE)
        elif what == 4:
            del holder[key]
        elif what == 5:
            other, its = dice.choice(places)
            holder[key] = msgspec.json.decode(msgspec.json.encode(other[its])) if _has(other, its) else None
        elif isinstance(holder, dict):
            holder[_text(dice)] = holder[key] if what == 6 else holder.pop(key)
        elif isinstance(holder, list):
            holder.extend([holder[key]] * dice.choice([1, 2, 300]))
    return mutated


def nested(depth: int) -> bytes:
    """A document deeper than any reader should follow."""
    return b'{"format_version":1,"x":' + b"[" * depth + b"]" * depth + b"}"


def mutate_table(table: pa.Table, dice: random.Random) -> pa.Table:
    """The same rows with a column that is gone, of another type, all null, repeated, or with hostile values in it."""
    at = dice.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    what = dice.randrange(6)
    if what == 0:
        return table.remove_column(at)
    if what == 1:
        return table.set_column(at, name, pa.nulls(len(table), column.type))
    if what == 2:
        kind = dice.choice([pa.string(), pa.int64(), pa.float64(), pa.binary(), pa.bool_(), pa.list_(pa.string()), pa.null()])
        return table.set_column(at, name, pa.nulls(len(table), kind))
    if what == 3:
        return pa.concat_tables([table, table])
    values = column.to_pylist()
    if values:
        values[dice.randrange(len(values))] = dice.choice(HOSTILE)
    try:
        return table.set_column(at, name, pa.array(values, column.type if what == 4 else None))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return table.append_column(_text(dice) or "x", pa.nulls(len(table), pa.int8()))


def _places(value: Any) -> Any:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield value, key
            yield from _places(inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield value, index
            yield from _places(inner)


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _text(dice: random.Random) -> str:
    return dice.choice([each for each in HOSTILE if isinstance(each, str)])
