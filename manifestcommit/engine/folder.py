"""Which files of a folder that is no table yet are its data, and which folders are another format's. [AF2] [LY6]

Not here: what is in the files (engine.probe), what becomes of them (engine.adopt).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from ..core import format
from ..core.paths import UnsafePathError, check_path
from ..errors import NotATableError, UsageError
from ..store import ObjectInfo, Store
from ..store.names import split_url
from .roots import check_not_inside

Pass = Callable[[str, str], None]  # a file that is passed over, and why
SINK_LOG = "_spark_metadata"
_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
_ICEBERG = re.compile(r"(?:(.*)/)?metadata/[^/]*\.metadata\.json(?:\.gz)?")


def data_files(store: Store, pass_over: Pass) -> Iterator[ObjectInfo]:
    """Every file of the folder that holds its rows, in the order of names; what no reader of a folder takes is passed over. [AF2]

    NotATableError where the folder, or one in it, is a table of this or another format: its log says which files count, not the folder.
    Where Spark's streaming sink wrote the folder, its log says so, and exactly what that lists is taken.
    """
    check_not_inside(store)
    for log in (*_LOGS, "metadata"):
        for info in store.list(f"{log}/"):
            _refuse_other_format(store, info.name)
    listed = _sink_files(store)
    for info in store.list(""):
        name = info.name
        if name.startswith((f"{format.ROOM}/", f"{SINK_LOG}/")):
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
            raise UsageError(f"{store.url}: {error}. Nothing was adopted; rename the file.") from None
        yield info
    if listed:
        raise UsageError(
            f"{store.url}/{min(listed)} is listed in {SINK_LOG} and is not there, nor are {len(listed) - 1} others. Nothing was adopted."
        )


def _reason_to_pass(name: str) -> str | None:
    """As Spark's and pyarrow's readers of folders decide. [AF2]"""
    if name.endswith(("/", "_$folder$")):
        return "marks a folder"
    for part in name.split("/"):
        if part.startswith(".") or (part.startswith("_") and "=" not in part):
            return "hidden: its name, or that of a folder above it, begins with _ or ."
        if part.endswith("._COPYING_"):
            return "a copy that was not finished"
    return None


def _refuse_other_format(store: Store, name: str) -> None:
    inner, _, rest = name.partition(f"/{format.VERSIONS}")
    if rest and format.parse_version(format.VERSIONS + rest) is not None:
        raise NotATableError(f"{store.url} has a table inside it, at {inner!r}; tables do not nest. Nothing was adopted.")
    parts = name.split("/")
    for at, part in enumerate(parts[:-1]):
        if part in _LOGS:
            raise _other_format(store, "/".join(parts[:at]), _LOGS[part], part)
        if part == SINK_LOG and at:
            raise NotATableError(
                f"{store.url}: {'/'.join(parts[:at])!r} in it was written by a streaming query of Spark, whose log in {SINK_LOG} says "
                "which of its files count. Nothing was adopted; adopt that folder by itself."
            )
    if found := _ICEBERG.fullmatch(name):
        raise _other_format(store, found[1] or "", "Iceberg", "metadata")


def _other_format(store: Store, inner: str, format_name: str, log: str) -> NotATableError:
    where = f"{store.url}/{inner}".rstrip("/")
    return NotATableError(
        f"{where} is a table of {format_name}: its log in {log} says which files count, and others in the folder hold rows that were "
        "deleted or replaced. Nothing was adopted. Read it with its own reader and write the rows to a new table."
    )


# --- the log of Spark's streaming sink ----------------------------------------------------------------------------------


def _sink_files(store: Store) -> set[str] | None:
    """The names that the log of Spark's streaming sink lists; None where there is none. [AF2]"""
    batches = [info.name.rpartition("/")[2] for info in store.list(f"{SINK_LOG}/")]
    whole = {int(each.removesuffix(".compact")) for each in batches if re.fullmatch(r"\d+\.compact", each, re.ASCII)}
    single = {int(each) for each in batches if re.fullmatch(r"\d+", each, re.ASCII)}
    if not whole and not single:
        return None
    first = max(whole, default=-1)
    last = max(single | whole)
    files: set[str] = set()
    for batch in range(max(first, 0), last + 1):
        name = f"{SINK_LOG}/{batch}.compact" if batch == first else f"{SINK_LOG}/{batch}"
        try:
            _apply_batch(store, store.get(name).decode(), files)
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{store.url}/{name}, the log of the streaming query that wrote this folder, is missing or cannot be read ({error}). Which "
                "files count is not known, and nothing was adopted."
            ) from error
    return files


def _apply_batch(store: Store, text: str, files: set[str]) -> None:
    version, *lines = text.split("\n")
    if version.strip() != "v1":
        raise ValueError(f"it is of the version {version!r}")
    for line in filter(None, lines):
        entry = json.loads(line)
        name = _name_below(store, entry["path"])
        if entry["action"] == "delete":
            files.discard(name)
        elif entry["action"] == "add" and not entry["isDir"]:
            files.add(name)


def _name_below(store: Store, path: str) -> str:
    """A path as Spark writes it, a URI, as a name below the root."""
    scheme, rest = split_url(unquote(path) if "://" in path else "file://" + unquote(path).removeprefix("file:"))
    below = f"{scheme}://{rest}".removeprefix(f"{store.url}/")
    if below == f"{scheme}://{rest}":
        raise ValueError(f"it lists {path}, which is not below the folder: was it moved?")
    return below
