"""The paths that an entry may have: relative, below the table path, and outside the metadata. [LY1]

Pure.
"""

from __future__ import annotations

import re

from ..schema.text import is_unicode

_METADATA_FOLDER = "_manifest"
# Matches nearly every path and accepts nothing that the checks below refuse: a snapshot with 500 of
# them is opened in half the time.
_PLAIN = re.compile(r"[0-9A-Za-z][\w=.%+-]*(?:/[0-9A-Za-z][\w=.%+-]*)*", re.ASCII)


class UnsafePathError(ValueError):
    """A path that could leave the table path or reach the metadata. Callers name the path's origin
    and raise the fitting error. [LY1]"""


def check_path(path: str) -> None:
    """Accept the path of a data file below the table path, exactly as written; `UnsafePathError`
    for any other. [LY1]

    A backslash is refused everywhere: it separates folders on some systems and is an ordinary
    character on others. So is any spelling of the metadata folder, because some file systems ignore
    case.
    """
    if _PLAIN.fullmatch(path):
        return
    reason = _objection(path)
    if reason:
        raise UnsafePathError(
            f"{path!r} is not a path of a data file below the table path: {reason}"
        )


def _objection(path: str) -> str | None:
    if not path:
        return "it is empty"
    if "\0" in path or "\\" in path:
        return "it has a NUL or a backslash"
    if not is_unicode(path):
        return "it is not text that UTF-8 can carry"
    components = path.split("/")
    if "" in components:
        return "it begins or ends with a slash, or has two in a row"
    if "." in components or ".." in components:
        return "it has a '.' or '..' folder"
    if components[0].casefold() == _METADATA_FOLDER:
        return f"{components[0]}/ is the table's own metadata"
    return None
