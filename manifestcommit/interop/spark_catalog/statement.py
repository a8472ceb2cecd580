"""The CREATE TABLE by which Spark's catalog reads an export, and which columns it can have. [EX10]

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...core.format import sink_log
from ...core.schema.fields import (
    ArrayType,
    Field,
    FieldType,
    MapType,
    Schema,
    StructType,
    decimal_parts,
    show_path,
    type_text,
    walk,
)
from ...core.schema.spark_json import comment_of, has_collation
from ...errors import UnsupportedTypeError, UsageError

_TYPES = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "binary": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP_LTZ",
    "timestamp_ntz": "TIMESTAMP_NTZ",
}
_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def check_schema(schema: Schema) -> None:
    """UnsupportedTypeError or UsageError if Spark's catalog cannot have a column. [EX9]"""
    for path, field in walk(schema.fields):
        kind, name = field.type, show_path(path)
        if isinstance(kind, str) and kind not in _TYPES and decimal_parts(kind) is None:
            raise UnsupportedTypeError(
                f"column {name} has the type {type_text(kind)}, which tables of Parquet files in "
                "Spark's catalog cannot have on every version: the table cannot be exported to it "
                "as long as the column is there"
            )
        if field.physical is not None:
            raise UsageError(
                f"column {name} has another name in the data files, since it was renamed or added "
                "again: Spark's catalog finds columns by the names in files, so the table cannot "
                "be exported to it"
            )
        if has_collation(field):
            raise UsageError(
                f"column {name} has a collation, which Spark's catalog would not apply to files: "
                "the table cannot be exported to it"
            )


def check_name(name: str) -> None:
    """UsageError if it is no name of a table in Spark's catalog."""
    _quoted_name(name)


def create_table(name: str, schema: Schema, location: str, from_folders: Sequence[int] = ()) -> str:
    """The statement that makes a table of the exported folder.

    from_folders: the partition columns whose values Spark reads from folders. They are not
    declared: Spark adds them, and drops all declared types where they are.
    """
    declared = (_column(field) for field in schema.fields if field.id not in from_folders)
    columns = ",\n".join(f"  {column}" for column in declared)
    chosen = _options(schema, bool(from_folders)).items()
    options = ", ".join(f"{_text(option)} {_text(value)}" for option, value in chosen)
    return (
        f"CREATE TABLE {_quoted_name(name)} (\n{columns}\n)\nUSING parquet\n"
        f"OPTIONS ({options})\nLOCATION {_text(location)}"
    )


def _options(schema: Schema, partitioned: bool) -> Mapping[str, str]:
    """What Spark's scan needs so that no setting of a session changes rows: other programs' files
    with float columns may be added later."""
    floats = any(field.type in ("float", "double") for _, field in walk(schema.fields))
    options = sink_log.SCAN_OPTIONS | {
        "recursiveFileLookup": "false" if partitioned else "true",
    }
    return options | (sink_log.UNPRUNED | sink_log.TWO_ZEROS if floats else {})


def _quoted_name(name: str) -> str:
    parts, at = list[str](), 0
    while match := _PART.match(name, at):
        quoted, plain = match[1], match[2]
        parts.append(quoted.replace("``", "`") if plain is None else plain.strip())
        at = match.end()
        if name[at : at + 1] != ".":
            break
        at += 1
    if at != len(name) or not parts or not all(parts) or name.endswith("."):
        raise UsageError(
            f"name: {name!r} is no name of a table: expected one such as flights or lake.flights; "
            "a part with a dot or a backtick is quoted with backticks"
        )
    return ".".join(map(_identifier, parts))


def _column(field: Field) -> str:
    comment = comment_of(field)
    shown = f"{_identifier(field.name)} {_type(field.type)}"
    return shown if comment is None else f"{shown} COMMENT {_text(comment)}"


def _type(kind: FieldType) -> str:
    match kind:
        case StructType():
            inner = (f"{_identifier(each.name)}: {_type(each.type)}" for each in kind.fields)
            return f"STRUCT<{', '.join(inner)}>"
        case ArrayType():
            return f"ARRAY<{_type(kind.element.type)}>"
        case MapType():
            return f"MAP<{_type(kind.key.type)}, {_type(kind.value.type)}>"
        case _:
            parts = decimal_parts(kind)
            return f"DECIMAL({parts[0]}, {parts[1]})" if parts else _TYPES[kind]


def _identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    """A text as Spark's SQL has it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
