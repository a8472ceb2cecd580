"""Reads Hive-style folders that other programs wrote: the partition values of the files below them,
typed as Spark infers them where their names follow from the typed values. [AF2]

Pure. The folders of this project's own tables are never read (core.schema.partitioning writes
them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from urllib.parse import unquote

from ...errors import UsageError
from .fields import MAX_PRECISION, Schema, decimal_parts
from .partitioning import NULL_FOLDER, folder, parse_static
from .wire import WireValue

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_DIGITS = {"integer": 10, "long": 20}


def folder_values(path: str) -> dict[str, str | None]:
    """Name -> unescaped value of each `name=value` folder of a path, outermost first; None for
    null. ValueError if a folder is damaged.

    A folder without `=` is ignored. Percent signs escape UTF-8 (Spark's own files escape only
    ASCII).
    """
    values: dict[str, str | None] = {}
    for component in path.split("/")[:-1]:
        name, equals, text = component.partition("=")
        if not equals:
            continue
        name = unquote(name, errors="strict")
        if not name:
            raise ValueError(f"the folder {component!r} has no name before its '='")
        if name in values:
            raise ValueError(f"two of its folders are called {name!r}")
        values[name] = None if text == NULL_FOLDER else unquote(text, errors="strict")
    return values


def widen(kind: str | None, text: str | None) -> str | None:
    """The type of a partition column after one more value: as Spark infers it, if this project can
    partition by that type and no name is lost. [AF2] [PT1]

    integer, long, decimal(p,0), date, else string. A timestamp becomes one without zone, since its
    folder names none. What Spark would read as a floating-point number stays text, and so does a
    number or time in another form than its own, such as 007 or +5: 007 and 7 are two partitions.
    None: only nulls so far.
    """
    return kind if text is None else _wider(kind, _kind(text))


def parse(schema: Schema, field_id: int, text: str | None) -> WireValue:
    """The wire value of a folder's text in the column; UsageError (a ValueError) if it has none.
    [SC7]"""
    if text is None:
        return None
    name = next(field.name for field in schema.fields if field.id == field_id)
    return parse_static(schema, (field_id,), {name: text})[field_id]


def agrees(
    schema: Schema, field_id: int, folders: Mapping[str, str | None], value: WireValue
) -> bool:
    """Whether a file that holds `value` in every row may lie below these folders. [AF2]

    A missing folder does not contradict; nor does that of a timestamp, whose zone it does not name.
    """
    field = next(field for field in schema.fields if field.id == field_id)
    if field.name not in folders or field.type == "timestamp":
        return True
    text = folders[field.name]
    if text is None:
        return value is None or value == ""  # Hive writes both in this way
    try:
        if parse(schema, field_id, text) == value:
            return True
    except UsageError:
        pass
    written = folder(schema, (field_id,), (value,))  # this project cuts long names
    return folder_values(written + "x").get(field.name) == text


def _kind(text: str) -> str:
    if _INTEGER.fullmatch(text):
        number = int(text) if len(text) <= 39 else 10**39
        if len(text) <= 39 and str(number) != text:
            return "string"  # 01234 would become 1234
        if -(2**31) <= number < 2**31:
            return "integer"
        if -(2**63) <= number < 2**63:
            return "long"
        digits = len(str(abs(number)))
        return f"decimal({digits},0)" if digits <= MAX_PRECISION else "string"
    try:
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return "date"
        if _TIMESTAMP.fullmatch(text) and not (text[-1] == "0" and "." in text):
            datetime.fromisoformat(text)
            return "timestamp_ntz"
    except ValueError:  # such as February 30
        pass
    return "string"


def _wider(one: str | None, other: str) -> str:
    if one is None or one == other:
        return other
    kinds = {one, other}
    if kinds == {"integer", "long"}:
        return "long"
    digits = [_DIGITS.get(kind) or (decimal_parts(kind) or (0, 0))[0] for kind in kinds]
    return f"decimal({max(digits)},0)" if all(digits) else "string"
