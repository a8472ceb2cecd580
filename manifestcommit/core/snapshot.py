"""The Snapshot value: the whole state of a table at one version. [OB1] [OB2]

Pure. Not here: how a change makes the next one (core.change), its bytes (core.format), how it grows and is cut (core.spill).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from .manifest import Entry, ManifestRef, WireValue
from .schema import Schema

FORMAT_VERSION = 1

# The partitions that a commit touched: per pattern, partition field id -> value; ids left out stand for every value.
Touch: TypeAlias = dict[int, WireValue]
REPLACE = "replace"  # the one operation that changes no row, whatever files it removes and adds [GC11]
Operation: TypeAlias = str  # "create" | "append" | "overwrite" | "replace" | "schema" | "properties" | … (open set, [CM9])


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a commit did, for people and monitoring; no rule of committing reads it. [OB10]

    rows_*, bytes_*, files_*: what the job was handed, and what its files hold, None where it did not count; attempts to unknowns: as
    far as they are known before the create; seconds: from begin to the create; prepare_s: of them, making the prepared object;
    checks: reserved, writers leave it empty.
    """

    files: int = 0
    rows: int = 0
    bytes: int = 0
    removed_files: int = 0
    removed_rows: int = 0
    removed_bytes: int = 0
    rows_read: int | None = None
    bytes_read: int | None = None
    files_written: int | None = None
    rows_written: int | None = None
    bytes_written: int | None = None
    tasks: int = 0
    seconds: float = 0.0
    prepare_s: float = 0.0
    attempts: int = 0
    conflicts: int = 0
    retries: int = 0
    unknowns: int = 0
    checks: dict[str, bool] = {}
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One job that this version carries. commit_id begins with the job id; touched: the partitions added to or removed from;
    reason: why, where a person had to say so; restored: the version that a rollback went back to; advanced: source -> start and end, where
    the version carries several commits, so that its watermarks do not tell which of them moved what. [OB10] [CM24]"""

    job: str
    commit_id: str
    key: str | None = None
    operation: Operation
    touched: tuple[Touch, ...] = ()
    reason: str | None = None
    restored: int | None = None
    advanced: dict[str, tuple[int | str | None, int | str]] = {}
    summary: Summary = Summary()
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """version: the commit that carried the key; digest: sha256 of what was declared with it. [KY1]

    An empty digest: a rewind at this version dropped the key, whatever older records of it say. [WM5]
    """

    version: int
    digest: str
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class StreamRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The last batch of a streaming query that the table holds. query: the id of the query; version: the commit that carried it. [KY6]

    batch -1: a rollback at this version took all of them. [CF13]
    """

    query: str
    batch: int
    version: int
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Tag(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A version kept readable by name; until: microseconds since the epoch, None = for ever. [RD5]"""

    version: int
    until: int | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class RunRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Spilled keys, jobs or removals: a Parquet object sorted by its first column, whose bounds are first and last. [OB11]"""

    path: str
    rows: int
    bytes: int
    digest: str
    first: str
    last: str
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Totals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Live files, rows and bytes at this version. [OB2]"""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The state of a table at `version`. [OB2]

    parent_digest: sha256 of the parent object's bytes (None at version 1); committed_at: microseconds since the epoch, never below
    the parent's; schema: None until the first data arrives; partition_by: field ids; added: entries inlined; removed: manifest path
    -> bitmap; *_runs: what was spilled; recent_jobs: job -> version, or None for a job that was given up; fence: jobs born below it can
    never commit; watermarks: source -> position, origins: source -> where its first advance began; expired: the lowest readable version;
    condemned: name of a file that gc deletes although the library did not name it -> the version that saw it gone, None: not yet;
    keys, recent_jobs: those that are not spilled; streams: name -> the last batch; provisional: a first write made the table and
    nothing has been committed since;
    proven: the stores whose create was raced before a commit went through them.
    """

    format_version: int
    table_id: str
    version: int
    parent_digest: str | None = None
    committed_at: int
    writer: str
    commits: tuple[Commit, ...]
    schema: Schema | None = None
    partition_by: tuple[int, ...] = ()
    manifests: tuple[ManifestRef, ...] = ()
    added: tuple[Entry, ...] = ()
    removed: dict[str, str] = {}
    removed_runs: tuple[RunRef, ...] = ()
    watermarks: dict[str, int | str] = {}
    origins: dict[str, int | str | None] = {}
    keys: dict[str, KeyRecord] = {}
    key_runs: tuple[RunRef, ...] = ()
    streams: dict[str, StreamRecord] = {}
    recent_jobs: dict[str, int | None] = {}
    job_runs: tuple[RunRef, ...] = ()
    fence: int = 1
    expired: int = 1
    tags: dict[str, Tag] = {}
    condemned: dict[str, int | None] = {}
    properties: dict[str, str] = {}
    totals: Totals = Totals()
    provisional: bool = False
    proven: tuple[str, ...] = ()
    participants: tuple[str, ...] = ()
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


def job_state(snapshot: Snapshot, job: str) -> Literal["committed", "given_up"] | None:
    """What the head itself says of a job; None: nothing that is inlined here. [CM1]"""
    if job not in snapshot.recent_jobs:
        return None
    return "given_up" if snapshot.recent_jobs[job] is None else "committed"
