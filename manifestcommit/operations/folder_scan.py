"""Finds the data files of a folder that is not a table yet, and folders that belong to tables of
other formats. [AF2] [LY6]
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO
from urllib.parse import unquote

from ..errors import NotATableError, StoreDeniedError, UsageError
from ..format import object_names
from ..format.fields import is_text, shown
from ..format.object_names import UnsafePathError, check_path
from ..log.table_root import OtherFormat, check_not_inside, format_at, format_of
from ..store import ObjectInfo, Store
from ..store.options import split_url

Pass = Callable[[str, str], None]  # called with a skipped file and the reason
SINK_LOG = "_spark_metadata"
_PORTION_BYTES = 1 << 20
# of a log file: a path of 4,096 bytes takes 12,288 if every byte is escaped
_LINE_BYTES = 64 * 1024


def data_files(store: Store, pass_over: Pass) -> Iterator[ObjectInfo]:
    """Yield every data file of the folder, in the order of names; files that readers of folders
    skip are skipped here. [AF2]

    NotATableError if the folder, or one inside it, is a table of this or another format: its log
    decides which files are live, not the folder. If Spark's streaming sink wrote the folder,
    exactly the files in its log are returned.
    """
    check_not_inside(store)
    _check_not_of_other_format(store)
    listed = _sink_files(store)
    for info in store.list(""):
        name = info.name
        if name.startswith((f"{object_names.ROOM}/", f"{SINK_LOG}/")):
            continue
        _refuse_other_format(store, name)
        reason = _reason_to_pass(name)
        if reason is None and listed is not None:
            reason = None if name in listed else f"the log in {SINK_LOG} does not list it"
            listed.discard(name)
        if reason is not None:
            pass_over(name, reason)
            continue
        try:
            check_path(name)
        except UnsafePathError as error:
            raise UsageError(
                f"{store.url}: {error}. Nothing was adopted; rename the file."
            ) from None
        yield info
    if listed:
        raise UsageError(
            f"{store.url}: {shown(min(listed))} is listed in {SINK_LOG} and is not there, nor are "
            f"{len(listed) - 1} others. Nothing was adopted."
        )


def _reason_to_pass(name: str) -> str | None:
    """Decide as Spark's and pyarrow's readers of folders do. [AF2]"""
    if name.endswith(("/", "_$folder$")):
        return "marks a folder"
    for part in name.split("/"):
        if part.startswith(".") or (part.startswith("_") and "=" not in part):
            return "hidden: its name, or that of a folder above it, begins with _ or ."
        if part.endswith("._COPYING_"):
            return "a copy that was not finished"
    return None


def _refuse_other_format(store: Store, name: str) -> None:
    inner, _, rest = name.partition(f"/{object_names.VERSIONS}")
    if rest and object_names.parse_version(object_names.VERSIONS + rest) is not None:
        raise NotATableError(
            f"{store.url} has a table inside it, at {inner!r}; tables do not nest. Nothing "
            "was adopted."
        )
    parts = name.split("/")
    if (other := format_of(name)) is not None:
        raise _other_format(store, other)
    for at, part in enumerate(parts[:-1]):
        if part == SINK_LOG and at:
            raise NotATableError(
                f"{store.url}: {'/'.join(parts[:at])!r} in it was written by a streaming "
                f"query of Spark, whose log in {SINK_LOG} says "
                "which of its files count. Nothing was adopted; adopt that folder by itself."
            )


def _other_format(store: Store, other: OtherFormat) -> NotATableError:
    return NotATableError(
        f"{other.said_of(store)}: its log in {other.log} says which files count, and others in the "
        "folder hold rows that were deleted or replaced. Nothing was adopted. "
        f"{other.remedy(store)}"
    )


def _check_not_of_other_format(store: Store) -> None:
    """NotATableError if the folder, or one above it, is a table of another format: its data folder
    by itself looks like plain files. One list request for each format and level. [AF2]"""
    above: Store | None = store
    while above is not None:
        with contextlib.suppress(StoreDeniedError):  # such a parent cannot be checked
            if (other := format_at(above)) is not None:
                raise _other_format(above, other)
        above = above.parent()


# --- The log of Spark's streaming sink ------------------------------------------------------------


def _sink_files(store: Store) -> set[str] | None:
    """The names in the log of Spark's streaming sink; None: there is none. [AF2]"""
    batches = [info.name.rpartition("/")[2] for info in store.list(f"{SINK_LOG}/")]
    whole = {
        int(text.removesuffix(".compact"))
        for text in batches
        if re.fullmatch(r"\d+\.compact", text, re.ASCII)
    }
    single = {int(text) for text in batches if re.fullmatch(r"\d+", text, re.ASCII)}
    if not whole and not single:
        return None
    first = max(whole, default=-1)
    last = max(single | whole)
    files: set[str] = set()
    for batch in range(max(first, 0), last + 1):
        name = f"{SINK_LOG}/{batch}.compact" if batch == first else f"{SINK_LOG}/{batch}"
        try:
            with store.open_input(name) as stream:
                _apply_batch(store, _lines(stream), files)
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(
                f"{store.url}/{name}, the log of the streaming query that wrote this folder, "
                f"is missing or cannot be read ({error}). Which "
                "files count is not known, and nothing was adopted."
            ) from error
    return files


def _lines(stream: BinaryIO) -> Iterator[str]:
    """The lines of a log file, with one portion in memory: the log of a long query is large.
    ValueError if a line has no end. [OB4]"""
    rest = b""
    while portion := stream.read(_PORTION_BYTES):
        *lines, rest = (rest + portion).split(b"\n")
        yield from (line.decode() for line in lines)
        if len(rest) > _LINE_BYTES:
            raise ValueError(f"it has a line of more than {_LINE_BYTES} bytes")
    yield rest.decode()


def _apply_batch(store: Store, lines: Iterator[str], files: set[str]) -> None:
    version = next(lines)
    if version.strip() != "v1":
        raise ValueError(f"it is of the version {shown(version)}")
    for line in filter(None, lines):
        entry = json.loads(line)
        if not isinstance(entry, dict) or not is_text(entry.get("path")):
            raise ValueError("a line of it lists no file")
        name = _name_below(store, entry["path"])
        if entry["action"] == "delete":
            files.discard(name)
        elif entry["action"] == "add" and not entry["isDir"]:
            files.add(name)


def _name_below(store: Store, path: str) -> str:
    """A path as Spark writes it, a URI, as a name relative to the table path."""
    scheme, rest = split_url(
        unquote(path) if "://" in path else "file://" + unquote(path).removeprefix("file:")
    )
    below = f"{scheme}://{rest}".removeprefix(f"{store.url}/")
    if below == f"{scheme}://{rest}":
        raise ValueError(f"it lists {shown(path)}, which is not below the folder: was it moved?")
    return below
