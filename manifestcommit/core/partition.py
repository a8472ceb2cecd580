"""Partition columns, their folders, and the partitions that an overwrite names. [PT1] [PT2] [PT3]

Pure. Folders are layout: they are written so that people and old tools find their way, and never parsed back; a file's partition
values stand in its entry. Not here: pruning (core.predicate).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from manifestcommit.core.manifest import WireValue
from manifestcommit.core.schema import Field, FieldType, Schema, decimal_parts, type_text
from manifestcommit.core.spark_types import has_collation
from manifestcommit.core.values import decode, encode, integer_range
from manifestcommit.errors import UsageError

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
MAX_COMPONENT_BYTES = 200
_HASH_LENGTH = 16

_PARTITION_TYPES = frozenset({"boolean", "byte", "short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz"})

# Hive's list (Spark's ExternalCatalogUtils.escapePathName), and NUL, which no file system takes.
_ESCAPED = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{[]^"))}


def check_partition_by(schema: Schema, names: Sequence[str]) -> tuple[int, ...]:
    """The field ids of the named partition columns; UsageError where a column cannot partition a table. [PT1]

    Top-level columns only, of type boolean, byte, short, integer, long, string, date, timestamp, timestamp_ntz or decimal.
    """
    if isinstance(names, str):
        raise UsageError(f"partition_by takes a list of column names, not the text {names!r}: write [{names!r}].")
    ids: list[int] = []
    for name in names:
        field = _column(schema.fields, name, "partition_by")
        if field.id in ids:
            raise UsageError(f"partition_by names the column {field.name!r} twice.")
        if not _can_partition(field.type):
            raise UsageError(
                f"partition_by: the column {field.name!r} has the type {type_text(field.type)}; a partition column is boolean, "
                "an integer, string, date, timestamp or decimal."
            )
        if has_collation(field):
            raise UsageError(
                f"partition_by: the column {field.name!r} has a collation, so that different values may be equal; partitions are "
                "told apart by their bytes."
            )
        ids.append(field.id)
    return tuple(ids)


def folder(schema: Schema, partition_by: tuple[int, ...], values: tuple[WireValue, ...]) -> str:
    """The hive-style folders of a partition: "" or "a=1/b=2/", always a safe relative path of non-empty components. [PT2]

    Escaped as Hive does; null and the empty string become __HIVE_DEFAULT_PARTITION__; timestamps are in UTC; a component over 200
    bytes is cut and ends in a hash of all of it.
    """
    fields = _partition_fields(schema, partition_by)
    return "".join(_component(field, value) + "/" for field, value in zip(fields, values, strict=True))


def parse_static(schema: Schema, partition_by: tuple[int, ...], overwrite: Mapping[str, Any]) -> dict[int, WireValue]:
    """The partitions that an overwrite names, by field id; UsageError rather than a guess at what was meant. [PT3]

    overwrite: column name -> a Python value, a text of it (`{"day": "2013-01-01"}`), or None for null. A timestamp's text carries
    its zone (`2013-01-01T00:00:00Z`).
    """
    fields = _partition_fields(schema, partition_by)
    static: dict[int, WireValue] = {}
    for name, value in overwrite.items():
        field = _column(fields, name, "overwrite")
        if field.id in static:
            raise UsageError(f"overwrite names the column {field.name!r} twice.")
        try:
            static[field.id] = _parse(value, field.type)
        except UsageError as error:
            raise UsageError(f"overwrite, column {field.name!r}: {error}") from error
    return static


def matches(static: Mapping[int, WireValue], partition_by: tuple[int, ...], values: tuple[WireValue, ...]) -> bool:
    """True if a partition lies in those that `parse_static` named: null matches null only. [PT3]"""
    return all(id not in static or static[id] == value for id, value in zip(partition_by, values, strict=True))


def value_text(value: WireValue, type: FieldType) -> str:
    """A partition value as folders and messages show it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if type in ("timestamp", "timestamp_ntz"):
        moment = decode(value, type)
        if isinstance(moment, datetime):
            text = moment.replace(tzinfo=None).isoformat(sep=" ")
            return text.rstrip("0") if moment.microsecond else text
        return f"@{moment}"
    return str(value)


def _can_partition(type: FieldType) -> bool:
    return isinstance(type, str) and (type in _PARTITION_TYPES or decimal_parts(type) is not None)


def _column(fields: Sequence[Field], name: str, argument: str) -> Field:
    """The column of that name; exactly, or failing that in any case (names are unique in any case)."""
    for same in (lambda field: field.name == name, lambda field: field.name.lower() == str(name).lower()):
        found = next(filter(same, fields), None)
        if found is not None:
            return found
    known = ", ".join(repr(field.name) for field in fields[:20]) or "none"
    raise UsageError(f"{argument}: there is no column {name!r} to choose from; there are: {known}.")


def _partition_fields(schema: Schema, partition_by: tuple[int, ...]) -> tuple[Field, ...]:
    if not partition_by:
        return ()
    by_id = {field.id: field for field in schema.fields if field.id in partition_by}
    return tuple(by_id[id] for id in partition_by)


def _component(field: Field, value: WireValue) -> str:
    text = NULL_FOLDER if value is None or value == "" else value_text(value, field.type).translate(_ESCAPED)
    component = f"{field.file_name.translate(_ESCAPED)}={text}"
    if component.startswith("."):  # a column's own name; many tools do not see such folders
        component = "%2E" + component[1:]
    data = component.encode()
    if len(data) <= MAX_COMPONENT_BYTES:
        return component
    digest = hashlib.sha256(data).hexdigest()[:_HASH_LENGTH]
    cut = data[: MAX_COMPONENT_BYTES - _HASH_LENGTH - 1].decode(errors="ignore")
    return re.sub(r"%[0-9A-F]?\Z", "", cut) + "-" + digest


def _parse(value: Any, type: FieldType) -> WireValue:
    if not isinstance(value, str) or type == "string":
        return encode(value, type)
    text = value.strip()
    try:
        return encode(_from_text(text, type), type)
    except (ValueError, InvalidOperation) as error:
        advice = " A timestamp needs its zone, as in 2013-01-01T00:00:00Z." if type == "timestamp" else ""
        raise UsageError(f"{value!r} is no {type_text(type)}.{advice}") from error


def _from_text(text: str, type: FieldType) -> Any:
    if type == "boolean":
        return {"true": True, "false": False}.get(text.lower(), text)
    if type == "date":
        return date.fromisoformat(text)
    if type in ("timestamp", "timestamp_ntz"):
        return datetime.fromisoformat(text)
    if not text.isascii() or "_" in text:  # Python's parsers take more than any engine writes
        raise ValueError(text)
    return int(text) if integer_range(type) is not None else Decimal(text)
