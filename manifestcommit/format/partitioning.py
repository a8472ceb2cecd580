"""Partition columns, their folders, and the partitions that an overwrite names. [PT1] [PT2] [PT3]
Pure. Folders are only layout: they are written for people and other tools, and never parsed back;
the entry of a file holds its partition values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias
from urllib.parse import unquote

from ..errors import UsageError
from . import transforms
from .evolution import find_column
from .fields import (
    INTEGERS,
    MAX_FIELD_ID,
    MAX_PRECISION,
    MOMENTS,
    Field,
    FieldType,
    Schema,
    WireValue,
    decimal_parts,
    has_collation,
    is_exact,
    shown,
    type_text,
)
from .values import decode, encode, integer_range

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
MAX_COMPONENT_BYTES = 200
_HASH_LENGTH = 16
_HASH = re.compile(rf"[0-9a-f]{{{_HASH_LENGTH}}}")
# the cut may lose up to three bytes of a character and two of an escape
_LEAST_CUT_BYTES = MAX_COMPONENT_BYTES - 5

# Hive's list (Spark's ExternalCatalogUtils.escapePathName), and NUL, which no file system accepts.
_ESCAPED = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{[]^"))}

_ESCAPE = re.compile(r"%([0-9A-F]{2})")
_NUMBER = r"0|-?[1-9]\d*"
_MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{0,5}[1-9])?"
_B = "[A-Za-z0-9+/]"
# The form in which `value_text` writes the values of a type; for a string, any text.
_TEXTS = {
    "boolean": re.compile("true|false"),
    "date": re.compile(r"\d{4}-\d\d-\d\d|@-?\d+", re.ASCII),
    **dict.fromkeys(INTEGERS, re.compile(_NUMBER, re.ASCII)),
    **dict.fromkeys(MOMENTS, re.compile(rf"{_MOMENT}|@-?\d+", re.ASCII)),
    "string": re.compile(r".+", re.DOTALL),
    "binary": re.compile(rf"(?:{_B}{_B}{_B}{_B})*(?:{_B}{_B}==|{_B}{_B}{_B}=)?"),
    **transforms.TEXTS,
}


# A partition column, as its folders show it: its name in data files, which renaming does not
# change, and its present type, or the function of a transform whose folders show a year, a month
# or an hour. [PT2] [PT5]
PartitionColumn: TypeAlias = tuple[str, str]


def check_partition_by(schema: Schema, names: Sequence[str]) -> tuple[int, ...]:
    """The ids of these columns and transforms; UsageError if one cannot partition. [PT1] [PT4]"""
    if isinstance(names, str):
        raise UsageError(
            f"partition_by takes a list of column names, not the text {names!r}: write [{names!r}]."
        )
    ids: list[int] = []
    for name in names:
        exact = any(field.name == name for field in schema.fields)
        call = None if exact or not isinstance(name, str) else transforms.parse_call(name)
        if call is not None:
            function, width, column = call
            field = find_column(schema, column, "partition_by: the table")
            ids.append(transforms.of_column(field, function, width).id)
            continue
        field = find_column(schema, str(name), "partition_by: the table")
        if not is_exact(field.type) or field.type == "binary":
            raise UsageError(
                f"partition_by: the column {field.name!r} has the type {type_text(field.type)}; a "
                "partition column is boolean, an integer, string, date, timestamp or decimal."
            )
        if has_collation(field):
            raise UsageError(
                f"partition_by: the column {field.name!r} has a collation, so that different "
                "values may be equal; partitions are distinguished by their bytes."
            )
        ids.append(field.id)
    _check_distinct(schema, ids)
    return tuple(ids)


def _check_distinct(schema: Schema, ids: Sequence[int]) -> None:
    """UsageError where two partition columns would make folders of one name."""
    names: set[str] = set()
    for field in transforms.partition_fields(schema, ids):
        if field.file_name.lower() in names:
            raise UsageError(
                f"partition_by: two of its columns or transforms are called {field.name!r} in the "
                "names of folders; leave one of them out."
            )
        names.add(field.file_name.lower())


def folder(schema: Schema, partition_by: tuple[int, ...], values: tuple[WireValue, ...]) -> str:
    """The Hive-style folders of a partition, "" or "a=1/b=2/": always a safe relative path. Null
    and "" become __HIVE_DEFAULT_PARTITION__, timestamps are in UTC, and a component over 200 bytes
    is cut and ends with a hash of the whole. [PT2]"""
    fields = transforms.partition_fields(schema, partition_by)
    return "".join(f"{_component(*pair)}/" for pair in zip(fields, values, strict=True))


def folder_columns(schema: Schema, partition_by: tuple[int, ...]) -> tuple[PartitionColumn, ...]:
    """The columns that the table's folders are made of, outermost first. [PT2]"""
    fields = transforms.partition_fields(schema, partition_by)
    return tuple((field.file_name, type_text(transforms.text_type(field))) for field in fields)


def is_folder_column(name: str, type: str) -> bool:
    """Whether a column of this name and type may make folders. [PT1]"""
    return bool(name) and (is_exact(type) or type in transforms.CALENDAR)


def is_folder(columns: Sequence[PartitionColumn], path: str) -> bool:
    """Whether `folder` makes exactly this path, without its last slash, from some values of these
    columns. Of a component that was cut, only the remaining text can be checked. [PT2] [GC5]"""
    components = path.split("/") if path else []
    return len(components) == len(columns) and all(map(_is_component, columns, components))


def parse_static(
    schema: Schema, partition_by: tuple[int, ...], overwrite: Mapping[str, Any]
) -> dict[int, WireValue]:
    """The partitions that an overwrite names, by field id; UsageError if a value is ambiguous.
    overwrite: column name -> a Python value, its text, or None for null. The text of a timestamp
    has its zone. [PT3]"""
    columns = Schema(fields=transforms.partition_fields(schema, partition_by))
    static: dict[int, WireValue] = {}
    for name, value in overwrite.items():
        field = find_column(columns, str(name), "overwrite: the partitioning")
        if field.id in static:
            raise UsageError(f"overwrite names the column {field.name!r} twice.")
        try:
            static[field.id] = _parse(value, transforms.text_type(field))
        except UsageError as error:
            raise UsageError(f"overwrite, column {field.name!r}: {error}") from error
    return static


def value_text(value: WireValue, type: FieldType) -> str:
    """A partition value as folders and messages show it. type: as `text_type` says."""
    if value is None:
        return "null"
    if type in transforms.CALENDAR and isinstance(value, int) and isinstance(type, str):
        return transforms.calendar_text(value, type)
    if isinstance(value, bool):
        return "true" if value else "false"
    if type in MOMENTS:
        moment = decode(value, type)
        if isinstance(moment, datetime):
            text = moment.replace(tzinfo=None).isoformat(sep=" ")
            return text.rstrip("0") if moment.microsecond else text
        return f"@{moment}"
    return str(value)


def _component(field: Field, value: WireValue) -> str:
    text = NULL_FOLDER
    if value is not None and value != "":
        text = value_text(value, transforms.text_type(field)).translate(_ESCAPED)
    component = _start(field.file_name) + text
    data = component.encode()
    if len(data) <= MAX_COMPONENT_BYTES:
        return component
    digest = hashlib.sha256(data).hexdigest()[:_HASH_LENGTH]
    cut = data[: MAX_COMPONENT_BYTES - _HASH_LENGTH - 1].decode(errors="ignore")
    return re.sub(r"%[0-9A-F]?\Z", "", cut) + "-" + digest


def _start(name: str) -> str:
    """The beginning of every folder of a column."""
    start = f"{name.translate(_ESCAPED)}="
    # many tools ignore folders that begin with a dot
    return "%2E" + start[1:] if start.startswith(".") else start


def _is_component(column: PartitionColumn, component: str) -> bool:
    name, type = column
    start = _start(name)
    size = len(component.encode("utf-8", "surrogatepass"))
    if size > MAX_COMPONENT_BYTES:
        return False
    if component.startswith(start):
        text = component[len(start) :]
        value = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
        if text == NULL_FOLDER or (
            value.translate(_ESCAPED) == text and _texts(type).fullmatch(value)
        ):
            return True
    cut, _, digest = component.rpartition("-")
    is_cut = size >= _LEAST_CUT_BYTES and _HASH.fullmatch(digest) is not None
    return is_cut and (start.startswith(cut) or cut.startswith(start))


def _texts(type: str) -> re.Pattern[str]:
    if type in _TEXTS:
        return _TEXTS[type]
    _, scale = decimal_parts(type) or (0, 0)
    point = rf"\.\d{{{scale}}}" if scale else ""
    return re.compile(rf"(?!-[0.]+\Z)-?(?:0|[1-9]\d*){point}", re.ASCII)


def _parse(value: Any, type: FieldType) -> WireValue:
    if isinstance(type, str) and type in transforms.CALENDAR:
        number = transforms.calendar_value(value.strip(), type) if isinstance(value, str) else value
        if number is None and value is not None:
            raise UsageError(f"{shown(value)} is no {type} as its folders write it.")
        return encode(number, "integer")
    if not isinstance(value, str) or type in ("string", "binary"):
        return encode(value, type)
    text = value.strip()
    try:
        return encode(_from_text(text, type), type)
    except (ValueError, InvalidOperation) as error:
        advice = " A timestamp needs its zone, as in 2013-01-01T00:00:00Z."
        said = advice if type == "timestamp" else ""
        raise UsageError(f"{shown(value)} is no {type_text(type)}.{said}") from error


def _from_text(text: str, type: FieldType) -> Any:
    if type == "boolean":
        return {"true": True, "false": False}.get(text.lower(), text)
    if type == "date":
        return date.fromisoformat(text)
    if type in MOMENTS:
        return datetime.fromisoformat(text)
    if not text.isascii() or "_" in text:  # Python's parsers accept more than any engine writes
        raise ValueError(text)
    return int(text) if integer_range(type) is not None else Decimal(text)


# Reads Hive-style folders that other programs wrote: the partition values of the files below
# them, typed as Spark infers them where their names follow from the typed values.

_INFERRED = ("integer", "long", f"decimal({MAX_PRECISION},0)", "date", "timestamp_ntz")
_DIGITS = {"integer": 10, "long": 20}


def folder_values(path: str) -> dict[str, str | None]:
    """Name -> unescaped value of each `name=value` folder of a path, outermost first; None for
    null. ValueError if a folder is damaged. Percent signs escape UTF-8, of which Spark escapes only
    ASCII."""
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
    """The type of a partition column after one more value, as Spark infers it: integer, long,
    decimal(p,0), date, else string; None: only nulls so far. What has another form than its type's
    own, as 007 or +5, stays text, and so do floating-point numbers; a timestamp becomes one without
    zone, since its folder names none. [AF2] [PT1]"""
    return kind if text is None else _wider(kind, _kind(text))


def parse(schema: Schema, field_id: int, text: str | None) -> WireValue:
    """The wire value of a folder's text; UsageError (a ValueError) if it has none. [SC7]"""
    if text is None:
        return None
    name = next(field.name for field in schema.fields if field.id == field_id)
    return parse_static(schema, (field_id,), {name: text})[field_id]


def agrees(
    schema: Schema, field_id: int, folders: Mapping[str, str | None], value: WireValue
) -> bool:
    """Whether a file that holds `value` in every row may lie below these folders. A missing folder
    does not contradict; nor does that of a timestamp, whose zone it does not name. [AF2]"""
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
    """The first type of which this text is exactly what a folder of a value shows."""
    for kind in _INFERRED:
        with suppress(UsageError):
            if value_text(_parse(text, kind), kind) == text:
                is_decimal = kind.startswith("decimal")
                return f"decimal({len(text.lstrip('-'))},0)" if is_decimal else kind
    return "string"  # among others 01234, which would become 1234


def _wider(one: str | None, other: str) -> str:
    if one is None or one == other:
        return other
    kinds = {one, other}
    if kinds == {"integer", "long"}:
        return "long"
    digits = [_DIGITS.get(kind) or (decimal_parts(kind) or (0, 0))[0] for kind in kinds]
    return f"decimal({max(digits)},0)" if all(digits) else "string"


# Patterns of touched partitions, and whether two changes overlap.

PartitionPattern: TypeAlias = dict[int, WireValue]

# more patterns than this are recorded as "everything", which is safe and keeps the record small
MAX_TOUCHED = 10_000


def of_partition(partition_by: Sequence[int], values: Sequence[WireValue]) -> PartitionPattern:
    """The pattern of exactly one partition."""
    return dict(zip(partition_by, values, strict=True))


def touch_texts(schema: Schema, touch: PartitionPattern) -> list[str]:
    """A pattern in the table's terms: "day=2013-01-01"; a column that it lacks by its id."""
    texts = []
    for id, value in touch.items():
        name, text = str(id), "null" if value is None else str(value)
        with suppress(ValueError):
            (field,) = transforms.partition_fields(schema, (id,))
            name = field.name
            text = value_text(value, transforms.text_type(field)) if id > MAX_FIELD_ID else text
        texts.append(f"{name}={text}")
    return texts


def dedupe(touched: Iterable[PartitionPattern]) -> tuple[PartitionPattern, ...]:
    """The same patterns without duplicates."""
    return tuple(by_content(touched).values())


def by_content(
    touched: Iterable[PartitionPattern],
) -> dict[tuple[tuple[int, WireValue], ...], PartitionPattern]:
    """The same patterns without duplicates, each by a key, for collecting them in steps."""
    return {tuple(sorted(touch.items())): touch for touch in touched}


def bounded(touched: Iterable[PartitionPattern]) -> tuple[PartitionPattern, ...]:
    """The same patterns without duplicates; everything, if there are too many to record. [OB10]"""
    patterns = by_content(touched)
    return ({},) if len(patterns) > MAX_TOUCHED or () in patterns else tuple(patterns.values())


def first_overlap(
    mine: Sequence[PartitionPattern], theirs: Sequence[PartitionPattern]
) -> PartitionPattern | None:
    """A pattern of `theirs` that shares a partition with `mine`; None: they commute. [CF6]"""
    matcher = Matcher(mine)
    return next((touch for touch in theirs if matcher.meets(touch)), None)


class Matcher:
    """Tests quickly whether a partition, or another pattern, overlaps any of many patterns."""

    # True == 1 in Python, but the wire keeps booleans and integers apart, and a field has one type:
    # values need no tags of their types.

    def __init__(self, patterns: Iterable[PartitionPattern]) -> None:
        self._by_ids: dict[tuple[int, ...], set[tuple[WireValue, ...]]] = {}
        for pattern in patterns:
            ids = tuple(sorted(pattern))
            self._by_ids.setdefault(ids, set()).add(tuple(pattern[field_id] for field_id in ids))

    @property
    def everything(self) -> bool:
        """Whether one pattern covers the whole table."""
        return () in self._by_ids

    def holds(self, partition: PartitionPattern) -> bool:
        """Whether the patterns cover this partition; one by other ids covers none. [CF9]"""
        return any(
            tuple(partition[field_id] for field_id in ids) in values
            for ids, values in self._by_ids.items()
            if all(field_id in partition for field_id in ids)
        )

    def meets(self, other: PartitionPattern) -> bool:
        """Whether some partition matches both one of these patterns and `other`."""
        for ids, values in self._by_ids.items():
            if all(field_id in other for field_id in ids):
                if tuple(other[field_id] for field_id in ids) in values:
                    return True
                continue
            common = [index for index, field_id in enumerate(ids) if field_id in other]
            wanted = tuple(other[ids[index]] for index in common)
            if any(tuple(value[index] for index in common) == wanted for value in values):
                return True
        return False
