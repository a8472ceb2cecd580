"""Where a stream stands in a table's history, and which commits are data to it. [SP8]

Pure. Not here: which files that makes (engine.feed), how Spark asks for them (spark.stream_reader).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import msgspec

from .evolution import can_widen
from .schema import ArrayType, Field, FieldType, MapType, StructType, type_text
from .snapshot import REPLACE, Commit

OnOverwrite = Literal["fail", "files", "skip"]
ON_OVERWRITE: tuple[str, ...] = get_args(OnOverwrite)


class Offset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a stream was given: all files of the versions below `version`, and so many `files` of that one, in their order. [SP8]

    table: its id; began: the version with which the stream began; whole: with all files that were live there, else with those
    that it added. A batch that has to be repeated knows by these where the very first one began.
    """

    table: str
    began: int
    whole: bool
    version: int
    files: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether the files of `version` are all that are live there."""
        return self.whole and self.version == self.began

    def after(self, files: int) -> Offset:
        """So many more files of the same version."""
        return msgspec.structs.replace(self, files=self.files + files)

    def next_version(self) -> Offset:
        """The version is done."""
        return msgspec.structs.replace(self, version=self.version + 1, files=0)

    def start(self) -> Offset:
        """Where the stream began."""
        return msgspec.structs.replace(self, version=self.began, files=0)


def parse_offset(given: Any) -> Offset:
    """The offset that a checkpoint holds; ValueError where it is none of ours. [SP8]"""
    offset = msgspec.convert(given, Offset)
    if not (1 <= offset.began <= offset.version and offset.files >= 0):
        raise ValueError(f"no version is {offset.version}, or no count is {offset.files}")
    return offset


def verdict(commit: Commit, on_overwrite: OnOverwrite) -> Literal["data", "passed over", "refused"]:
    """What a stream does with the files that a commit added. [SP8]"""
    if commit.operation == REPLACE:
        return "passed over"
    if commit.summary.removed_files == 0 or on_overwrite == "files":
        return "data"
    return "passed over" if on_overwrite == "skip" else "refused"


def unreadable_columns(columns: Iterable[Field], there: Sequence[Field], *, later: bool) -> list[str]:
    """Why files of a version with the columns `there` cannot be given as `columns`, one clause per column; [] where they can. [SP8]

    later: the version is younger than the one that `columns` are of, so that a column which is not there was dropped since;
    in an older one it is null.
    """
    by_id = {field.id: field for field in there}
    found = []
    for column in columns:
        other = by_id.get(column.id)
        if other is None:
            if later:
                found.append(f"the column {column.name!r} was dropped")
        elif not _reads_as(other.type, column.type):
            found.append(f"the column {column.name!r} is {type_text(other.type)} there and {type_text(column.type)} in the stream")
    return found


def _reads_as(file: FieldType, column: FieldType) -> bool:
    """Whether every value of a file's type is one of the column's."""
    match file, column:
        case StructType(fields=old), StructType(fields=new):
            by_id = {field.id: field for field in old}
            return all(field.id not in by_id or _reads_as(by_id[field.id].type, field.type) for field in new)
        case ArrayType(element=old_element), ArrayType(element=new_element):
            return _reads_as(old_element.type, new_element.type)
        case ((MapType() as old_map), (MapType() as new_map)):
            return _reads_as(old_map.key.type, new_map.key.type) and _reads_as(old_map.value.type, new_map.value.type)
        case _:
            return file == column or can_widen(file, column)
