"""Turns a sound object into a hostile one: bytes that flip, documents whose members lie, Parquet whose columns are others."""

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

# Of members that many readers compute with: what is no value of theirs, or one that is, and is out of all reason.
_TIMES = [0, -1, 1, 2**53 + 1, 2**63 - 1, -(2**63), 253_402_300_800_000_000, -62_135_596_800_000_001, 2**64, "2013-01-01", 1.5, None]
_BOUNDS = [
    *(None, "", 0, -1, 2**31, 2**63 - 1, -(2**63), 2**63, 1.5, 1e308, "NaN", "-Infinity", "1e400", "-0.00", "9" * 39, "0." + "9" * 39),
    *("9999-12-31", "10000-01-01", "-0001-01-01", "+999999999-01-01", "2013-02-30", "0000-00-00", "AA==", "A", "\x7f", True, [], {}),
]
_RANGES: list[Any] = [
    *(None, 1, "s", {}, [None], [[]], [{}], [{"source": "s"}], [{"source": 1, "start": None, "end": 1}]),
    *([{"source": "s", "start": {}, "end": []}], [{"source": "s", "start": "a", "end": 1}], [{"source": "s", "start": 9, "end": 1}]),
    *(
        [{"source": "", "start": 2**64, "end": -(2**64)}],
        [{"source": "s", "start": True, "end": False}],
        {"source": {"start": 1, "end": 2}},
    ),
]
_TYPES: list[Any] = [
    *(
        "decimal(38,38)", "decimal(1,0)", "decimal(0,0)", "date", "timestamp", "void", "variant", "binary", "byte", "boolean",
        "interval day",
    ),
    *({"type": "struct", "fields": []}, {"type": "array", "element": {}}, {"type": "map", "key": {}, "value": {}}, {"type": "struct"}),
]  # fmt: skip
_POINTED: dict[str, list[Any]] = {
    **dict.fromkeys(("committed_at", "clock", "until", "prepared_at", "said", "modificationTime"), _TIMES),
    **dict.fromkeys(("min", "max", "partition", "lower", "upper", "start", "end", "seconds", "prepare_s"), _BOUNDS),
    **dict.fromkeys(("sources", "advances", "watermarks", "origins", "advanced"), _RANGES),
    "type": _TYPES,
}


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
        if dice.random() < 0.4 and _mutate_pointed(places, dice):
            continue
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


def _mutate_pointed(places: list[tuple[Any, Any]], dice: random.Random) -> bool:
    """A member whose meaning readers rely on: one that is out of range, of two bounds only one, a column that comes twice."""
    kind = dice.choice(sorted({key for _, key in places if isinstance(key, str) and (key in _POINTED or key == "fields")}) or [""])
    holders = [holder for holder, key in places if key == kind and isinstance(holder, dict)]
    if not holders:
        return False
    holder = dice.choice(holders)
    value = holder.get(kind)
    if kind == "fields" and isinstance(value, list) and value:
        twice = dice.choice(value)
        others = [{"id": dice.randrange(1, 2**31)}, {"name": "other"}, {}] if isinstance(twice, dict) else []
        value.append({**twice, **dice.choice(others)} if others else twice)
    elif kind in ("min", "max") and dice.random() < 0.4:
        del holder[kind]
    elif isinstance(value, list) and value and dice.random() < 0.7:
        value[dice.randrange(len(value))] = dice.choice(_POINTED.get(kind, HOSTILE))
    elif isinstance(value, dict) and value and dice.random() < 0.7:
        value[dice.choice(sorted(value))] = dice.choice(_POINTED.get(kind, HOSTILE))
    else:
        holder[kind] = dice.choice(_POINTED.get(kind, HOSTILE))
    return True


def nested(depth: int) -> bytes:
    """A document deeper than any reader should follow."""
    return b'{"format_version":1,"x":' + b"[" * depth + b"]" * depth + b"}"


def mutate_table(table: pa.Table, dice: random.Random) -> pa.Table:
    """The same rows with a column that is gone, of another type, all null, repeated, or with hostile values in it."""
    at = dice.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    what = dice.randrange(8)
    if what == 6:  # the same name twice, or another column's
        return table.append_column(dice.choice(table.column_names), column)
    if what == 7:
        return _of_other_type(table, at, dice)
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


def _of_other_type(table: pa.Table, at: int, dice: random.Random) -> pa.Table:
    """The same rows, of which one column holds values, none of them null, of a type that it must not have."""
    some = [
        *(pa.scalar({"a": 1}), pa.scalar([1]), pa.scalar(["x"]), pa.scalar([{"source": "s", "start": "x", "end": None}])),
        *(pa.scalar(b"0" * 16, pa.binary(16)), pa.scalar(b"\xff"), pa.scalar(2**62, pa.timestamp("us")), pa.scalar(-(2**31), pa.date32())),
        *(pa.scalar([("k", 1)], pa.map_(pa.string(), pa.int64())), pa.scalar(1.5), pa.scalar(True), pa.scalar(7, pa.duration("us"))),
        *(pa.scalar(1, pa.time64("us")), pa.scalar(1, pa.decimal128(38, 10)), pa.scalar("x", pa.large_string()), pa.scalar(1, pa.uint64())),
    ]
    value = dice.choice(some)
    return table.set_column(at, table.column_names[at], pa.repeat(value, len(table)))


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
