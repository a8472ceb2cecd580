"""The Snapshot value: the whole state of a table at one version. [OB1] [OB2]

Pure.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from ..schema.fields import Schema
from ..schema.wire import WireValue
from .authorship import Author
from .entries import Count, Entry, Int64, ManifestRef, Time

FORMAT_VERSION = 1
# of a version that takes part in a joint commit and is not yet decided by itself [MT3] [OB16]
PENDING_FORMAT_VERSION = 2

# The partitions that a commit touched: each pattern maps partition field ids to values; an omitted
# id matches every value.
Touch: TypeAlias = dict[int, WireValue]
# the one operation that changes no row, whatever files it adds and removes [GC11]
REPLACE = "replace"
# "create" | "append" | "overwrite" | "replace" | "schema" | "properties" | … (open set, [CM9])
Operation: TypeAlias = str


class Summary(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a commit did, for people and monitoring; no commit rule reads it. [OB10]

    rows_*, bytes_*, files_*: the job's input, and the contents of its files, None: not counted;
    attempts to unknowns: as known before the create; seconds: from begin to the create; prepare_s:
    the part spent on the prepared object; checks: reserved, writers leave it empty.
    """

    files: Count = 0
    rows: Count = 0
    bytes: Count = 0
    removed_files: Count = 0
    removed_rows: Count = 0
    removed_bytes: Count = 0
    rows_read: Count | None = None
    bytes_read: Count | None = None
    files_written: Count | None = None
    rows_written: Count | None = None
    bytes_written: Count | None = None
    tasks: Count = 0
    seconds: float = 0.0
    prepare_s: float = 0.0
    attempts: Count = 0
    conflicts: Count = 0
    retries: Count = 0
    unknowns: Count = 0
    checks: dict[str, bool] = {}
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Commit(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One job that this version carries. commit_id begins with the job id; touched: the partitions
    added to or removed from; reason: a text from a person; message, metadata: what the caller says
    of it; author: who made it; restored: the target of a rollback; advanced: source -> start and
    end, where the version's watermarks do not show it: for each of several commits, and for a
    single one that leaves a watermark unchanged. [OB10] [OB15] [CM24]"""

    job: str
    commit_id: str
    key: str | None = None
    operation: Operation
    touched: tuple[Touch, ...] = ()
    reason: str | None = None
    message: str | None = None
    metadata: dict[str, str] = {}
    author: Author | None = None
    restored: Count | None = None
    advanced: dict[str, tuple[Int64 | str | None, Int64 | str]] = {}
    summary: Summary = Summary()
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class KeyRecord(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The record of an idempotency key. version: the commit that carried the key; digest: sha256 of
    what was declared with it. [KY1]

    An empty digest: a rewind or a rollback at this version invalidated the key, whatever older
    records of it say. [KY7]
    """

    version: Count
    digest: str
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class StreamRecord(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The last batch of a streaming query in the table. query: the query's id; version: the commit
    that carried the batch. [KY6]

    batch -1: a rollback at this version took back all of them. [CF13]
    """

    query: str
    batch: Int64
    version: Count
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Tag(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A version kept readable under a name; until: microseconds since the epoch, None: no end.
    [RD5]"""

    version: Count
    until: int | None = None  # of any size: shown as the last of times
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class RunRef(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Spilled keys, jobs or removals: a Parquet object sorted by its first column, whose bounds are
    `first` and `last`. [OB11]"""

    path: str
    rows: Count
    bytes: Count
    digest: str
    first: str
    last: str
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Totals(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Live files, rows and bytes at this version. [OB2]"""

    files: Count = 0
    rows: Count = 0
    bytes: Count = 0
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class DisputedTime(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Versions whose `committed_at` is not the time of their commit, because clocks were far apart.
    [CM27]

    first: the version that the fast clock committed; last: the last version that inherited its
    time; said: that time; clock: the highest time by the own clocks of those after `first`. All in
    microseconds since the epoch.
    """

    first: Count
    last: Count
    said: Time
    clock: Time
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Pending(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The mark of a member of a joint commit: its fate is decided in the chain of another table.
    [MT3]

    home, table_id: the root and the id of that table; job: the job there that decides; attempt: the
    number of the attempt, from 1 on; base: the version of this table to which the member's change
    was applied.
    """

    home: str
    table_id: str
    job: str
    attempt: Count
    base: Count
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class JointRecord(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """In a home: the last member of a partner table that committed. version: the member's; attempt:
    the id of its attempt; root: the partner's path. [MT4]"""

    version: Count
    attempt: str
    root: str
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class HomeRecord(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """In a member's table: its last member under one home. version: the member's; root: the home's
    path. [MT12]"""

    version: Count
    root: str
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Snapshot(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The state of a table at one version: the members of the version's object.

    Attributes:
        format_version: the version of the format.
        table_id: the table's id.
        version: the version's number, from 1 on.
        parent_digest: sha256 of the bytes of the version before; None: version 1.
        committed_at: when it was committed, in microseconds since the epoch; never below the
            version before.
        clock: the writer's own time, where it is below `committed_at`.
        writer: the program that wrote it.
        commits: the jobs that this version carries.
        schema: the columns; None: no data has arrived yet.
        partition_by: the ids of the columns that partition the table.
        manifests: the manifests that list files.
        added: the entries of files that are listed here instead of in a manifest.
        removed: path of a manifest -> bitmap of its removed files.
        removed_runs: spilled parts of `removed`.
        watermarks: source -> how far it has been read.
        origins: source -> start of its first advance.
        forgotten: source -> each version that forgot it, with its origin then.
        keys: idempotency key -> its record, those that are not spilled.
        key_runs: spilled parts of `keys`.
        streams: name of a stream -> its last batch.
        set_back: source -> the version of the last rewind or rollback that moved it.
        set_back_queries: streaming query -> the version of the last rollback that moved it.
        recent_jobs: job -> its version, those that are not spilled; None: aborted.
        job_runs: spilled parts of `recent_jobs`.
        fence: jobs with a base version below it can never commit.
        expired: the oldest readable version.
        tags: tag -> the version that it keeps readable.
        condemned: name of an untracked file that gc deletes -> the version that saw it gone; None:
            not yet.
        properties: name -> value of each property of the table.
        totals: the number of files, rows and bytes.
        provisional: whether a first write created the table and nothing has been committed since.
        proven: the stores that passed the probes of put-if-absent before a commit went through
            them.
        participants: reserved; empty.
        disputed_times: the times at which clocks were far apart.
        former_folders: (name, type) of the columns that named folders before `partition_by`
            changed.
        pending: the joint commit of which this version is a member, which another table decides;
            None: this version is no member.
        joint: id of a table -> its last member that this table's commits decided.
        homes: id of a table -> the last version of this table that was a member under it.
        void: the versions whose joint commit was aborted, ascending; they are no state of the
            table.
        rank: the place of this table in the order in which joint commits choose their home.
        extra: the members that this release does not know, unchanged.

    Spec: OB2.
    """

    format_version: Count
    table_id: str
    version: Count
    parent_digest: str | None = None
    committed_at: Time
    clock: Time | None = None
    writer: str
    commits: tuple[Commit, ...]
    schema: Schema | None = None
    partition_by: tuple[Count, ...] = ()
    manifests: tuple[ManifestRef, ...] = ()
    added: tuple[Entry, ...] = ()
    removed: dict[str, str] = {}
    removed_runs: tuple[RunRef, ...] = ()
    watermarks: dict[str, Int64 | str] = {}
    origins: dict[str, Int64 | str | None] = {}
    forgotten: dict[str, tuple[tuple[Count, Int64 | str | None], ...]] = {}
    keys: dict[str, KeyRecord] = {}
    key_runs: tuple[RunRef, ...] = ()
    streams: dict[str, StreamRecord] = {}
    set_back: dict[str, Count] = {}
    set_back_queries: dict[str, Count] = {}
    recent_jobs: dict[str, Count | None] = {}
    job_runs: tuple[RunRef, ...] = ()
    fence: Count = 1
    expired: Count = 1
    tags: dict[str, Tag] = {}
    condemned: dict[str, Count | None] = {}
    properties: dict[str, str] = {}
    totals: Totals = Totals()
    provisional: bool = False
    proven: tuple[str, ...] = ()
    participants: tuple[str, ...] = ()
    disputed_times: tuple[DisputedTime, ...] = ()
    former_folders: tuple[tuple[tuple[str, str], ...], ...] = ()
    pending: Pending | None = None
    joint: dict[str, JointRecord] = {}
    homes: dict[str, HomeRecord] = {}
    void: tuple[Count, ...] = ()
    rank: Int64 = 0
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


def job_state(snapshot: Snapshot, job: str) -> Literal["committed", "given_up"] | None:
    """What the snapshot itself records about a job; None: nothing is inlined. [CM1]"""
    if job not in snapshot.recent_jobs:
        return None
    return "given_up" if snapshot.recent_jobs[job] is None else "committed"
