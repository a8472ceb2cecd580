"""What a recoverable job leaves for its rerun: a mark that names its key, and one object for each finished task. [AB6] [LY5]

Pure. Not here: their names and bytes (core.format), when they are put and believed (engine.recovery).
"""

from __future__ import annotations

import msgspec

from .manifest import Entry, ManifestRef


class KeyMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job is a recoverable attempt at this key; begun_at: microseconds since the epoch, for people. Its name says it all. [AB6]"""

    format_version: int
    key: str
    begun_at: int
    writer: str


class FinishedTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the one attempt of a task that counts has written; its object is created once, so that there is never a second. [AB6]

    task: the number of its partition; entries, manifests: its files, all of them whole and durable; rows_read, bytes_read: what it was
    handed, where it said.
    """

    format_version: int
    task: int
    entries: tuple[Entry, ...] = ()
    manifests: tuple[ManifestRef, ...] = ()
    rows_read: int | None = None
    bytes_read: int | None = None
    writer: str
