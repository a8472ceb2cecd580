"""Hive-style folders that something else wrote: what they say of the files below, typed as Spark infers it. [AF2]

Pure. Of this project's own tables the folders are never read (core.partition writes them). Not here: which files there are (engine.folder).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from urllib.parse import unquote

from ..errors import UsageError
from .manifest import WireValue
from .partition import NULL_FOLDER, folder, parse_static
from .schema import Schema, decimal_parts

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_DIGITS = {"integer": 10, "long": 20}


def folder_values(path: str) -> dict[str, str | None]:
    """Name -> value, unescaped, of each `name=value` folder of a path, outermost first; None for null. ValueError where they are damaged.

    A folder without `=` tells nothing. Percent signs escape UTF-8 (Spark's own files hold no other escapes than ASCII).
    """
    found: dict[str, str | None] = {}
    for component in path.split("/")[:-1]:
        name, equals, text = component.partition("=")
        if not equals:
            continue
        name = unquote(name, errors="strict")
        if not name:
            raise ValueError(f"the folder {component!r} has no name before its '='")
        if name in found:
            raise ValueError(f"two of its folders are called {name!r}")
        found[name] = None if text == NULL_FOLDER else unquote(text, errors="strict")
    return found


def widen(kind: str | None, text: str | None) -> str | None:
    """The type of a partition column after one more value of it: as Spark infers it, where this project can partition by that. [AF2] [PT1]

    integer, long, decimal(p,0), date, else string; a timestamp is one without zone, since its folder names none. What Spark takes for a
    floating-point number stays text. None: only nulls so far.
    """
    return kind if text is None else _wider(kind, _kind(text))


def parse(schema: Schema, field_id: int, text: str | None) -> WireValue:
    """The wire value that a folder's text has in the column; UsageError (a ValueError) where it has none. [SC7]"""
    if text is None:
        return None
    name = next(field.name for field in schema.fields if field.id == field_id)
    return parse_static(schema, (field_id,), {name: text})[field_id]


def agrees(schema: Schema, field_id: int, folders: Mapping[str, str | None], value: WireValue) -> bool:
    """Whether a file that holds `value` throughout may lie below these folders. [AF2]

    A folder that is not there says nothing; nor does that of a timestamp, whose zone it does not tell.
    """
    field = next(field for field in schema.fields if field.id == field_id)
    if field.name not in folders or field.type == "timestamp":
        return True
    text = folders[field.name]
    if text is None:
        return value is None or value == ""  # Hive spells both so
    try:
        if parse(schema, field_id, text) == value:
            return True
    except UsageError:
        pass
    written = folder(schema, (field_id,), (value,))  # this project cuts long ones
    return folder_values(written + "x").get(field.name) == text


def _kind(text: str) -> str:
    if _INTEGER.fullmatch(text):
        number = int(text) if len(text) <= 39 else 10**39
        if -(2**31) <= number < 2**31:
            return "integer"
        if -(2**63) <= number < 2**63:
            return "long"
        digits = len(str(abs(number)))
        return f"decimal({digits},0)" if digits <= 38 else "string"
    try:
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return "date"
        if _TIMESTAMP.fullmatch(text):
            datetime.fromisoformat(text)
            return "timestamp_ntz"
    except ValueError:  # such as the 30th of February
        pass
    return "string"


def _wider(one: str | None, other: str) -> str:
    if one is None or one == other:
        return other
    kinds = {one, other}
    if kinds == {"integer", "long"}:
        return "long"
    if kinds == {"date", "timestamp_ntz"}:
        return "timestamp_ntz"
    digits = [_DIGITS.get(each) or (decimal_parts(each) or (0, 0))[0] for each in kinds]
    return f"decimal({max(digits)},0)" if all(digits) else "string"
