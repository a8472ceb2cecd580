"""The objects that a recoverable job leaves for its rerun: a mark with its idempotency key, and one
object for each finished task. [AB6] [LY5]

Pure.
"""

from __future__ import annotations

import msgspec

from .entries import Count, Entry, ManifestRef, Time


class KeyMark(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Marks a job as a recoverable attempt at this key; begun_at: microseconds since the epoch, for
    people. The name of the object says everything that counts. [AB6]"""

    format_version: int
    key: str
    begun_at: Time
    writer: str


class FinishedTask(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The output of the one attempt of a task that is committed. Its object is created with
    put-if-absent, so there is never a second. [AB6]

    task: the number of its partition; entries, manifests: its files, all complete and durable;
    rows_read, bytes_read: its input, if known.
    """

    format_version: int
    task: Count
    entries: tuple[Entry, ...] = ()
    manifests: tuple[ManifestRef, ...] = ()
    rows_read: Count | None = None
    bytes_read: Count | None = None
    writer: str
