"""The read mark: it records the version at which data was read, so that a write of that data is
checked against all commits since. [CF17]

Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

# The key of a mark in the metadata of an Arrow schema and of a Spark column.
MARK = "manifestcommit.read"
_FORM = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})-v([1-9][0-9]{0,17})")


def mark_of(table_id: str, url: str, version: int) -> str:
    """The mark of rows that were read at this version. The table's URL is included only as a
    digest, to compare it with another."""
    return f"{table_id}-{_place(url)}-v{version}"


def lowest_version(marks: Iterable[str], table_id: str, url: str) -> int | None:
    """The lowest version of this table in the marks; None: no mark. Marks of other tables and of
    copies are ignored."""
    matches = (_FORM.fullmatch(mark) for mark in marks)
    return min(
        (
            int(match[3])
            for match in matches
            if match and match[1] == table_id and match[2] == _place(url)
        ),
        default=None,
    )


def arrow_metadata(mark: str) -> dict[bytes, bytes]:
    """The mark as metadata of an Arrow schema, which slices, filters and added columns keep."""
    return {MARK.encode(): mark.encode()}


def arrow_marks(metadata: Mapping[bytes, bytes] | None) -> tuple[str, ...]:
    """The mark in the metadata of an Arrow schema, if there is one."""
    mark = (metadata or {}).get(MARK.encode())
    return () if mark is None else (mark.decode("utf-8", "replace"),)


def _place(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:16]
