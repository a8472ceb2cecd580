"""Recognizes tables of other formats by the names of their logs: their folders hold files that are
no longer live. [AF2] [LY6]
"""

from __future__ import annotations

import re

import msgspec

from ...store import Store

_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
_HUDI_PARTITION = ".hoodie_partition_metadata"  # in each folder of its files
_ADOPTED = {"Delta Lake": "delta", "Iceberg": "iceberg"}
_ICEBERG = re.compile(r"(?:(.*)/)?metadata/[^/]*\.metadata\.json(?:\.gz)?")


class OtherFormat(msgspec.Struct, frozen=True, kw_only=True):
    """inner: the folder of that table, relative to the table path; name: of the format; log: the
    folder that identifies it."""

    inner: str
    name: str
    log: str

    def said_of(self, store: Store) -> str:
        """Describe where it is, and its format."""
        return f"{f'{store.url}/{self.inner}'.rstrip('/')} is a table of {self.name}"

    def remedy(self, store: Store) -> str:
        """What to do instead of adopting its folder as plain files."""
        if self.name not in _ADOPTED:
            return "Read it with its own reader, and write the rows to a new table."
        where = f"{store.url}/{self.inner}".rstrip("/")
        return (
            f"Adopt the table itself: manifestcommit.adopt({where!r}, from_="
            f"{_ADOPTED[self.name]!r}), or read it with its own reader, and write the rows to a "
            "new table."
        )


def format_of(name: str) -> OtherFormat | None:
    """The format whose log has an object of this name; None: no format."""
    parts = name.split("/")
    if parts[-1] == _HUDI_PARTITION:
        return OtherFormat(inner="/".join(parts[:-1]), name="Hudi", log=_HUDI_PARTITION)
    for at, part in enumerate(parts[:-1]):
        if part in _LOGS:
            return OtherFormat(inner="/".join(parts[:at]), name=_LOGS[part], log=part)
    match = _ICEBERG.fullmatch(name)
    return (
        None if match is None else OtherFormat(inner=match[1] or "", name="Iceberg", log="metadata")
    )


def format_at(store: Store) -> OtherFormat | None:
    """The format of the table at this path; None: there is none. One list request for each
    format."""
    names = (info.name for log in (*_LOGS, "metadata") for info in store.list(f"{log}/"))
    return next(filter(None, map(format_of, names)), None)
