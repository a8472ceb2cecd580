"""Which names may stand in an entry: one relative path below the root, never above it, never among the metadata. [LY1]

Pure. Not here: hive-style folders and their escaping (core.partition), names of metadata objects (core.format).
"""

from __future__ import annotations

import re

from .text import is_unicode

_METADATA_FOLDER = "_manifest"
# What nearly every path is, and what nothing below speaks against: a head with 500 of them is opened in half the time.
_PLAIN = re.compile(r"[0-9A-Za-z][\w=.%+-]*(?:/[0-9A-Za-z][\w=.%+-]*)*", re.ASCII)


class UnsafePathError(ValueError):
    """A path that could leave the root or touch the metadata. Callers say whose path it is and raise what fits. [LY1]"""


def check_path(path: str) -> None:
    """Accept the path of a data file below the root, exactly as written; `UnsafePathError` for any other. [LY1]

    A backslash is refused wherever it stands: it separates folders on some systems and is a letter on others. So is any
    spelling of the metadata folder, since some file systems do not tell upper from lower case.
    """
    if _PLAIN.fullmatch(path):
        return
    reason = _objection(path)
    if reason:
        raise UnsafePathError(f"{path!r} is not a path of a data file below the table's root: {reason}")


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
