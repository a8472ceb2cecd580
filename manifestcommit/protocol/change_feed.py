"""A stream's position in a table's history, and which commits bring it new data; the columns of
changed rows. [SP8] [CH2] Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from ..errors import UsageError
from ..format.change import StreamBatch
from ..format.evolution import can_widen
from ..format.fields import Field, FieldType, members, type_text, walk
from ..format.snapshot import REPLACE, Commit, StreamRecord

OnOverwrite = Literal["fail", "files", "skip", "changes"]
ON_OVERWRITE: tuple[str, ...] = get_args(OnOverwrite)
# What happened to a row, and the columns that tell it: the names that Delta's change data feed has.
ChangeType = Literal["insert", "delete", "update_preimage", "update_postimage"]
INSERT: ChangeType = "insert"
DELETE: ChangeType = "delete"
PREIMAGE: ChangeType = "update_preimage"
POSTIMAGE: ChangeType = "update_postimage"
CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")

# Batches of streaming queries: which batch a table expects next.


def record_of(streams: Mapping[str, StreamRecord], batch: StreamBatch) -> StreamRecord | None:
    """The record that decides on this batch: another query's under its name, or else the last one
    of its own query under any name, since a checkpoint can be restarted with another key. [KY6]"""
    named = streams.get(batch.name)
    if named is not None and named.query != batch.query and named.batch >= 0:
        return named
    own = (record for record in streams.values() if record.query == batch.query)
    return max(own, key=lambda record: record.batch, default=named)


def held(record: StreamRecord) -> str:
    """Describe which batches the table holds, for messages."""
    return f"batches up to {record.batch}" if record.batch >= 0 else "no batches, since a rollback,"


def judge(
    record: StreamRecord | None, batch: StreamBatch
) -> Literal["next", "done", "behind", "gap", "reused"]:
    """Classify this batch: the next one, in the table already, from a checkpoint older than the
    table, one that skips some, or of another query under the same name. A query's batches are
    numbered without gaps, and only the last one is run again. A name without a record may begin
    anywhere; one whose batches a rollback took back serves another query from its first batch on.
    [KY6]"""
    if record is None:
        return "next"
    if record.query != batch.query:
        return "next" if record.batch < 0 and batch.batch == 0 else "reused"
    if batch.batch < record.batch:
        return "behind"
    if batch.batch == record.batch:
        return "done"
    return "next" if batch.batch == record.batch + 1 else "gap"


class Offset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream's position: all files of the versions below `version`, and the first `files` of that
    version, in their order. began: the version with which the stream began; whole: with all files
    live then, else those that it added: where the first batch began, for a batch that is repeated.
    [SP8]"""

    table: str
    began: int
    whole: bool
    version: int
    files: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether `version` contributes all its live files, not only those that it added."""
        return self.whole and self.version == self.began

    @property
    def seen(self) -> int:
        """The version whose live files are known, because the stream began with or after them."""
        return self.began if self.whole else self.began - 1

    def after(self, files: int) -> Offset:
        """The offset this many files further in the same version."""
        return msgspec.structs.replace(self, files=self.files + files)

    def next_version(self) -> Offset:
        """The offset at the beginning of the next version."""
        return msgspec.structs.replace(self, version=self.version + 1, files=0)

    def start(self) -> Offset:
        """Where the stream began."""
        return msgspec.structs.replace(self, version=self.began, files=0)


def parse_offset(given: Any) -> Offset:
    """Parse an offset from a checkpoint; ValueError if it is not an offset of this format. [SP8]"""
    offset = msgspec.convert(given, Offset)
    if not (1 <= offset.began <= offset.version and offset.files >= 0):
        raise ValueError(f"no version is {offset.version}, or no count is {offset.files}")
    return offset


def verdict(
    commit: Commit, on_overwrite: OnOverwrite, seen: int
) -> Literal["data", "skipped", "refused"]:
    """Decide what a stream does with the files that a commit added. seen: the version of its
    offset's `seen`; on_overwrite: not "changes", which asks no verdict. [SP8]"""
    if commit.operation == REPLACE:
        return "skipped"
    adds_only = commit.summary.removed_files == 0 or on_overwrite == "files"
    if adds_only and not reaches_back(commit, seen):
        return "data"
    return "skipped" if on_overwrite == "skip" else "refused"


def reaches_back(commit: Commit, seen: int) -> bool:
    """Whether the commit is a rollback that restores files from before the stream. [CF13]"""
    return commit.restored is not None and commit.restored < seen and commit.summary.files > 0


def brings_back(commit: Commit, added_files: int) -> bool:
    """Whether a commit other than a rollback made files live besides the `added_files` that it
    added: its record counts all, whatever the operation is called. [SP8] [CM9]"""
    is_other = commit.restored is None and commit.operation != REPLACE
    return is_other and commit.summary.files > added_files


def unreadable_columns(
    columns: Iterable[Field], there: Sequence[Field], *, later: bool, void: bool = False
) -> list[str]:
    """Why files of a version with the columns `there` cannot be read as `columns`, one clause per
    column. later: the version is newer than theirs: a column missing from it was dropped since,
    while in an older one it reads as null. void: columns without a type yet are read as any, as
    Arrow does. [SP8] [SC11]"""
    by_id = {field.id: field for field in there}
    reasons = []
    for column in columns:
        other = by_id.get(column.id)
        if other is None:
            if later:
                reasons.append(f"the column {column.name!r} was dropped")
        elif not _reads_as(other.type, column.type, void):
            reasons.append(
                f"the column {column.name!r} is {type_text(other.type)} there and "
                f"{type_text(column.type)} in the stream"
            )
    return reasons


def check_change_columns(columns: Iterable[Field]) -> None:
    """UsageError if one of the columns has a name that changed rows need for themselves. [CH2]"""
    for column in columns:
        if column.name.lower() in CHANGE_COLUMNS:
            raise UsageError(
                f"the table has a column {column.name!r}, and changes have one of that name, "
                "for what happened to a row; nothing was read. Rename the table's column "
                "(rename_column), or leave it out (columns=…)."
            )


def changes_every_row(
    columns: Iterable[Field],
    before: Sequence[Field],
    there: Sequence[Field],
    commits: Sequence[Commit],
) -> bool:
    """Whether a version may change these columns in rows whose files it leaves alone, since it
    dropped one of them, or a rollback brought one back that files hold. before, there: the columns
    of the version before, and of it. [CH6]"""
    shown = _ids(columns)
    old, new = shown & _ids(before), shown & _ids(there)
    return bool(old - new) or (new > old and any(commit.restored is not None for commit in commits))


def _ids(fields: Iterable[Field]) -> set[int]:
    return {field.id for _, field in walk(tuple(fields))}


def _reads_as(file: FieldType, column: FieldType, void: bool) -> bool:
    """Whether the column can hold every value of the file's type."""
    old, new = members(file), members(column)
    if not (old and new and type(file) is type(column)):
        return file == column or can_widen(file, column) or (void and file == "void")
    there = {field.id: field.type for field in old}
    return all(
        field.id not in there or _reads_as(there[field.id], field.type, void) for field in new
    )
