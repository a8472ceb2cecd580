"""Files as a Delta log has them, with their statistics, for a whole table of entries at once. [EX8]

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from ..format.fields import FLOATS, INTEGERS, MOMENTS, Leaf, Schema, decimal_parts, leaves

TEXTS = pa.map_(pa.string(), pa.string())
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
    ]
)
_EXACT_DIGITS = 15  # of a decimal that readers keep who parse JSON numbers as floats
_PLAIN_PATH = r"^[A-Za-z0-9_.~/=-]*$"
_TO_ESCAPE = r'[\x00-\x1f"\\]'
# the days and microseconds of the years that texts have: 1 to 9999
_DAYS = (-719_162, 2_932_896)
_MICROS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)


def adds(entries: pa.Table, schema: Schema, committed_ms: int, *, changes: bool) -> pa.StructArray:
    """The actions that add these files. entries: a manifest's table in the schema's types."""
    rows = entries.num_rows
    none = pa.array([], pa.string())
    columns = [
        paths(entries.column("path")),
        pa.MapArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows + 1), none, none),
        entries.column("bytes").combine_chunks(),
        pa.repeat(pa.scalar(committed_ms, pa.int64()), rows),
        pa.repeat(changes, rows),
        _stats(entries, schema),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(ADD))


def paths(names: pa.ChunkedArray) -> pa.Array:
    """The names as Delta has them, percent-encoded."""
    whole = names.combine_chunks()
    if pc.all(pc.match_substring_regex(whole, _PLAIN_PATH)).as_py() is not False:
        return whole
    return pa.array([quote(name, safe="/=") for name in whole.to_pylist()], pa.string())


def _stats(entries: pa.Table, schema: Schema) -> pa.Array:
    """What Delta's readers may know of each file, as JSON: nothing to be misunderstood. [EX8]"""
    entries = _with_partition_bounds(entries)
    known = [leaf for leaf in leaves(schema) if f"min.{leaf.id}" in entries.column_names]
    values: dict[str, dict[tuple[str, ...], pa.Array]] = {
        "minValues": {leaf.path: _bound(entries, leaf, "min") for leaf in known},
        "maxValues": {leaf.path: _bound(entries, leaf, "max") for leaf in known},
        "nullCount": {
            leaf.path: _column(entries, f"nulls.{leaf.id}").cast(pa.string()) for leaf in known
        },
    }
    members = [_member("numRecords", _column(entries, "rows").cast(pa.string()))]
    members += [_member(name, _object(found)) for name, found in values.items()]
    return _braced(members)


def _with_partition_bounds(entries: pa.Table) -> pa.Table:
    """The entries, with the partition value as both bounds of a partition column: each row of the
    file has it, whether or not the column's values were counted."""
    ids = [name.partition(".")[2] for name in entries.column_names if name.startswith("partition.")]
    for id in ids:
        value = entries.column(f"partition.{id}")
        made = {
            "min": value,
            "max": value,
            "nulls": pc.if_else(pc.is_valid(value), 0, entries.column("rows")),
            "cuts": pa.repeat(pa.scalar(0, pa.int8()), len(value)),
        }
        for kind, column in made.items():
            name = f"{kind}.{id}"
            if name in entries.column_names:
                entries = entries.drop_columns([name])
            entries = entries.append_column(name, column)
    return entries


def _object(values: Mapping[tuple[str, ...], pa.Array]) -> pa.Array:
    """A JSON object of these members, by their paths; null where it would have none."""
    own: dict[str, pa.Array] = {}
    inner: dict[str, dict[tuple[str, ...], pa.Array]] = {}
    for path, texts in values.items():
        if len(path) == 1:
            own[path[0]] = texts
        else:
            inner.setdefault(path[0], {})[path[1:]] = texts
    own |= {name: _object(members) for name, members in inner.items()}
    if not own:
        return pa.scalar(None, pa.string())
    made = _braced([_member(name, texts) for name, texts in own.items()])
    return pc.if_else(pc.equal(made, "{}"), pa.scalar(None, pa.string()), made)


def _member(name: str, texts: Any) -> pa.Array:
    """The member of an object; null where it has no value."""
    return pc.binary_join_element_wise(json.dumps(name, ensure_ascii=False) + ":", texts, "")


def _braced(members: Sequence[pa.Array]) -> pa.Array:
    # With nulls skipped, pyarrow's join leaves out a row of nulls only: an empty text begins each.
    joined = pc.binary_join_element_wise("", *members, ",", null_handling="skip")
    inner = pc.utf8_slice_codeunits(joined, 1)
    return pc.binary_join_element_wise("{", inner, "}", "")


def _column(entries: pa.Table, name: str) -> pa.Array:
    return entries.column(name).combine_chunks()


def _bound(entries: pa.Table, leaf: Leaf, end: str) -> pa.Array:
    """A bound of each file as JSON, where it is exact: some readers answer `max(…)` from it."""
    kind, bound = leaf.type, _column(entries, f"{end}.{leaf.id}")
    cuts = pc.bit_wise_and(_column(entries, f"cuts.{leaf.id}"), 1 if end == "min" else 2)
    known = pc.fill_null(pc.equal(cuts, 0), True)
    if kind in FLOATS:
        known = pc.and_(known, pc.is_finite(pc.fill_null(bound, 0.0)))
        if end == "max":  # Delta orders NaN above every number
            nans = _column(entries, f"nans.{leaf.id}")
            known = pc.and_(known, pc.fill_null(pc.equal(nans, 0), False))
        texts = bound.cast(pa.float64()).cast(pa.string())
        texts = pc.if_else(pc.equal(bound, 0.0), "-0.0" if end == "min" else "0.0", texts)
    elif kind == "string":
        texts = _quoted(bound)
    elif kind == "date":
        known = pc.and_(known, _between(bound.cast(pa.int32()), _DAYS))
        texts = _in_quotes(pc.if_else(known, bound, pa.scalar(None, bound.type)).cast(pa.string()))
    elif kind in MOMENTS:
        known = pc.and_(known, _between(bound.cast(pa.int64()), _MICROS))
        plain = pc.if_else(known, bound, pa.scalar(None, bound.type)).cast(pa.string())
        texts = _in_quotes(pc.replace_substring(plain, " ", "T", max_replacements=1))
    elif isinstance(kind, str) and _is_number(kind):
        texts = bound.cast(pa.string())
    else:
        return pa.nulls(len(bound), pa.string())
    return pc.if_else(known, texts, pa.scalar(None, pa.string()))


def _is_number(kind: str) -> bool:
    parts = decimal_parts(kind)
    is_whole = kind in INTEGERS
    return is_whole or (parts is not None and parts[0] <= _EXACT_DIGITS)


def _between(numbers: pa.Array, ends: tuple[int, int]) -> pa.Array:
    inside = pc.and_(pc.greater_equal(numbers, ends[0]), pc.less_equal(numbers, ends[1]))
    return pc.fill_null(inside, False)


def _quoted(texts: pa.Array) -> pa.Array:
    """Texts as JSON."""
    if pc.any(pc.match_substring_regex(texts, _TO_ESCAPE)).as_py():
        made = [
            None if text is None else json.dumps(text, ensure_ascii=False)
            for text in texts.to_pylist()
        ]
        return pa.array(made, pa.string())
    return _in_quotes(texts)


def _in_quotes(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")
