"""The Snapshot value: the whole state of a table at one version. [OB1] [OB2] Pure."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from .entries import Count, Entry, Int64, ManifestRef, Positive, Time
from .fields import (
    NO_COLUMNS,
    Closed,
    Schema,
    Stored,
    WireValue,
    is_text,
    is_unicode,
    map_fields,
    secret_in,
    shown,
)
from .object_names import parse_job_id

# Who made a commit, and what its caller says of it: author, message and metadata.

AUTHOR_PROPERTY = "write.author"
ROW_TRIES_PROPERTY = "write.row-change-tries"
DEFAULT_ROW_TRIES = 10
PARTS = ("user", "host", "program", "software")
MAX_MESSAGE = 2_000  # characters
MAX_ENTRIES = 32
MAX_NAME = 100  # characters
MAX_VALUE = 1_000
MAX_BYTES = 8_192  # of all names and values in UTF-8: every intent and head carries them
_MAX_PART = 200  # characters

# Unlikely in any text that is no credential: who meets one by chance can write it otherwise, but
# what is committed cannot be taken back.
_SECRET_NAME = re.compile(
    r"secret|passw(?:or)?d|passphrase|credential|authorization|token$|"
    r"(?:private|access|account|api|shared|signing)[-_. ]?key|connection[-_. ]?string",
    re.IGNORECASE,
)


# one part of an author, as `limited` leaves it
Part = Annotated[str, msgspec.Meta(max_length=200, pattern=r"\A[^\x00-\x1f\x7f-\x9f]*\Z")]
MOST_CONSTRAINTS = 64  # every version carries them
MAX_CONDITION = 2_000  # characters
_CONSTRAINT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
_CONSTRAINT_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)


class Author(Stored, frozen=True, kw_only=True):
    """Who made a change, as its process says, for people: no rule reads it. user: the account;
    program: the script, module or command; software: this library's release. None: not known, or
    not recorded. [OB15]"""

    user: Part | None = None
    host: Part | None = None
    program: Part | None = None
    software: Part | None = None


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller says of a commit: a message, and names with values. [OB15]"""

    message: str | None = None
    metadata: dict[str, str] = {}


def parts_of(text: str) -> frozenset[str]:
    """The parts that a text such as `user,host` or `none` lets be recorded; else ValueError."""
    named = {part.strip() for part in text.split(",")}
    if named == {"none"}:
        return frozenset()
    if not named <= set(PARTS):
        raise ValueError(f"expected none, or any of {', '.join(PARTS)}, split by commas")
    return frozenset(named)


def limited(author: Author, parts: frozenset[str]) -> Author:
    """The author with no other parts than these, each short and without control characters."""
    known = known_parts(author).items()
    told: dict[str, Any] = {part: _plain(text) for part, text in known if part in parts}
    return Author(**told)


def known_parts(author: Author | None) -> dict[str, str]:
    """The parts of an author that are known, by name. [OB15]"""
    found = ((part, getattr(author, part, None)) for part in PARTS)
    return {part: text for part, text in found if text is not None}


def allowed(author: Author | None, properties: Mapping[str, str]) -> Author | None:
    """What a version with these properties records of an author, in doubt nothing. [OB15]"""
    if author is None:
        return None
    text = properties.get(AUTHOR_PROPERTY)
    if text is not None:
        try:
            parts = parts_of(text)
        except ValueError:
            return None
        withheld = {part: None for part in PARTS if part not in parts}
        author = msgspec.structs.replace(author, **withheld)
    return author if author != Author() else None


def check_message(message: object) -> str:
    """The message, if it can be recorded; ValueError repeats no text of it. [OB15] [SE5]"""
    expected = f"expected a text of 1 to {MAX_MESSAGE:,} characters without control characters"
    if not isinstance(message, str):
        raise ValueError(f"{shown(message)}: {expected}")
    if not message.strip() or len(message) > MAX_MESSAGE or not _is_clean(message, "\n\t"):
        raise ValueError(f"of {len(message):,} characters: {expected} but line breaks and tabs")
    return message


def check_metadata(metadata: object) -> dict[str, str]:
    """The metadata, if they can be recorded; ValueError says what was expected. [OB15] [SE5]"""
    if not isinstance(metadata, Mapping):
        raise ValueError(f"{shown(metadata)}: expected a mapping of names to texts")
    size = 0
    for name, value in metadata.items():
        if not is_text(name) or len(name) > MAX_NAME or not _is_clean(name):
            raise ValueError(
                f"the name {shown(name)}: expected a text of 1 to {MAX_NAME} characters without "
                "control characters"
            )
        if not isinstance(value, str) or len(value) > MAX_VALUE or not _is_clean(value):
            raise ValueError(
                f"the value of {shown(name)}: expected a text of at most {MAX_VALUE:,} characters "
                "without control characters"
            )
        size += len(name.encode()) + len(value.encode())
    if len(metadata) > MAX_ENTRIES or size > MAX_BYTES:
        raise ValueError(
            f"{len(metadata):,} entries of {size:,} bytes: expected at most {MAX_ENTRIES} of "
            f"{MAX_BYTES:,} bytes together"
        )
    return {str(name): str(value) for name, value in metadata.items()}


def find_credential(note: Note) -> str | None:
    """Where a note holds what looks like a credential, and its kind; never itself. [SE5]"""
    for name, value in note.metadata.items():
        if kind := secret_in(name):
            return f"a name in it looks like {kind}"
        if _SECRET_NAME.search(name):
            return f"{shown(name)} is the name of a credential"
        if kind := secret_in(value):
            return f"the value of {shown(name)} looks like {kind}"
    kind = secret_in(note.message or "")
    return f"it looks like {kind}" if kind else None


def _is_clean(text: str, also: str = "") -> bool:
    return is_unicode(text) and not any(
        unicodedata.category(each) == "Cc" and each not in also for each in text
    )


def _plain(text: str) -> str:
    """A name of the system's, on one line: it may be anything that a file or a host is called."""
    kept = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text[: _MAX_PART + 1]
    )
    return kept if len(kept) <= _MAX_PART else f"{kept[: _MAX_PART - 1]}…"


FORMAT_VERSION = 1
# of a version that takes part in a joint commit and is not yet decided by itself [MT3] [OB16]
PENDING_FORMAT_VERSION = 2

# the one operation that changes no row, whatever files it adds and removes [GC11]
REPLACE = "replace"
TableId = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]  # as `is_table_id` says
# the path of another table that takes part in a joint commit: it is read as hostile
Root = Annotated[
    str, msgspec.Meta(max_length=4096, pattern=r"\A[^\x00-\x1f\x7f]*://[^\x00-\x1f\x7f]*\Z")
]


class Summary(Stored, frozen=True, kw_only=True):
    """What a commit did, for people and monitoring; no commit rule reads it. [OB10]

    rows_*, bytes_*, files_*: the job's input, and the contents of its files, None: not counted;
    attempts to unknowns: as known before the create; seconds: from begin to the create; prepare_s:
    the part spent on the prepared object; checks: name of each check that was made before the job
    was published -> whether it held. [CK6]
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


class Commit(Stored, frozen=True, kw_only=True):
    """One job that this version carries. commit_id begins with the job id; touched: the partitions
    added to or removed from, as patterns of field ids and values (an omitted id matches every
    value); reason: a text from a person; message, metadata: what the caller says
    of it; author: who made it; restored: the target of a rollback; advanced: source -> start and
    end of what it advanced. [OB10] [OB15] [CM24]"""

    job: str
    commit_id: str
    key: str | None = None
    operation: str  # "create", "append", "overwrite", "schema", … (open set, [CM9])
    touched: tuple[dict[int, WireValue], ...] = ()
    reason: str | None = None
    message: str | None = None
    metadata: dict[str, str] = {}
    author: Author | None = None
    restored: Count | None = None
    advanced: dict[str, tuple[Int64 | str | None, Int64 | str]] = {}
    summary: Summary = Summary()


class KeyRecord(Stored, frozen=True, kw_only=True):
    """The record of an idempotency key. version: the commit that carried it; digest: of what was
    declared with it. [KY1] Empty: a rewind or a rollback at this version invalidated the key,
    whatever older records of it say. [KY7]"""

    version: Count
    digest: str


class StreamRecord(Stored, frozen=True, kw_only=True):
    """The last batch of a streaming query in the table. version: the commit that carried it. [KY6]
    batch -1: a rollback at this version took back all of them. [CF13]"""

    query: str
    batch: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
    version: Positive


class Tag(Stored, frozen=True, kw_only=True):
    """A version kept under a name; until: microseconds since the epoch, or for ever. [RD5]"""

    version: Count
    until: int | None = None  # of any size: shown as the last of times


class RunRef(Stored, frozen=True, kw_only=True):
    """Spilled records: a Parquet object sorted by its column from `first` to `last`. [OB11]"""

    path: str
    rows: Positive
    bytes: Positive
    digest: str
    first: str
    last: str


class Totals(Stored, frozen=True, kw_only=True):
    """A number of files, their rows and their bytes: in a snapshot of those that are live. [OB2]"""

    files: Count = 0
    rows: Count = 0
    bytes: Count = 0

    def after(self, gained: Totals, lost: Totals | None = None) -> Totals:
        """What they become by these that come and these that go."""
        gone = lost or Totals()
        return msgspec.structs.replace(
            self,
            files=self.files + gained.files - gone.files,
            rows=self.rows + gained.rows - gone.rows,
            bytes=self.bytes + gained.bytes - gone.bytes,
        )


def totals_of(entries: Sequence[Entry], manifests: Sequence[ManifestRef] = ()) -> Totals:
    """What these files and those in these manifests, as written, come to."""
    return Totals(
        files=len(entries) + sum(ref.files for ref in manifests),
        rows=sum(entry.rows for entry in entries) + sum(ref.rows for ref in manifests),
        bytes=sum(entry.bytes for entry in entries) + sum(ref.data_bytes for ref in manifests),
    )


class DisputedTime(Stored, frozen=True, kw_only=True):
    """Versions whose `committed_at` is not the time of their commit, because clocks were far apart.
    first: what the fast clock committed; last: the last version that inherited its time, `said`;
    clock: the highest time by the own clocks of those after `first`. In microseconds since the
    epoch. [CM27]"""

    first: Count
    last: Count
    said: Time
    clock: Time


class Pending(Stored, frozen=True, kw_only=True):
    """The mark of a member of a joint commit: its fate is decided in the chain of another table.
    home, table_id: that table; job: the job there that decides; attempt: its number, from 1 on;
    base: the version of this table to which the member's change was applied. [MT3]"""

    home: Root
    table_id: TableId
    job: str
    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    base: Count


class JointRecord(Stored, frozen=True, kw_only=True):
    """In a home: the last member of a partner table that committed. version: the member's; attempt:
    the id of its attempt; root: the partner's path. [MT4]"""

    version: Count
    attempt: str
    root: Root


class HomeRecord(Stored, frozen=True, kw_only=True):
    """A member's table's last member under one home: its version, and the home's path. [MT12]"""

    version: Count
    root: Root


class Origin(Stored, frozen=True, kw_only=True):
    """In a clone: the version of the other table that it was last made equal to. digest: of that
    version's object; root: the other table's path. [CN3]"""

    version: Count
    digest: str
    root: Root


def is_standby(snapshot: Snapshot) -> bool:
    """Whether `clone` made this version, and no job of the table itself. [CN6]"""
    return any(each.version == snapshot.version for each in snapshot.cloned.values())


class Constraint(Stored, frozen=True, kw_only=True):
    """A condition that no row of the table violates. id: another one for every constraint that was
    ever added; condition: SQL on one row; columns: each column as the condition spells it -> its
    field id, whatever the column is called now. [CK1]"""

    id: str
    condition: str
    columns: dict[str, Count]


def never_null(constraint: Constraint) -> int | None:
    """The field id of the column that this constraint only keeps free of nulls. [CK8]"""
    (column, id), *others = constraint.columns.items()
    said, *texts = (
        "".join(text.replace("``", "`").lower().replace("(", "").replace(")", "").split())
        for text in (constraint.condition, f"{column} is not null", f"`{column}` is not null")
    )
    return id if said in texts and not others else None


def columns_of(snapshot: Snapshot) -> Schema:
    """The columns of a version; one that a constraint keeps from null is not nullable. [CK8]"""
    never = {never_null(each) for each in snapshot.constraints.values()}
    return map_fields(
        snapshot.schema,
        lambda f: msgspec.structs.replace(f, nullable=f.nullable and f.id not in never),
    )


def check_constraints(constraints: Mapping[str, Constraint | None]) -> None:
    """Check constraints (None: dropped); ValueError says what was expected. [CK1]"""
    if len(constraints) > MOST_CONSTRAINTS:
        raise ValueError(
            f"{len(constraints)} constraints: expected at most {MOST_CONSTRAINTS} on one table"
        )
    if len({name.lower() for name in constraints}) < len(constraints):
        raise ValueError("two constraints have names that differ in case only")
    for name, constraint in constraints.items():
        if not _CONSTRAINT_NAME.fullmatch(name):
            raise ValueError(
                f"{shown(name)}: expected a name of 1 to 100 letters, digits and underscores that "
                "begins with no digit"
            )
        if constraint is None:
            continue
        if not _CONSTRAINT_ID.fullmatch(constraint.id):
            raise ValueError(f"the constraint {name!r} has an id that is not 16 hexadecimal digits")
        try:
            check_condition(constraint)
        except ValueError as error:
            raise ValueError(f"the constraint {name!r}: {error}") from None


def check_condition(constraint: Constraint) -> None:
    """Check the condition of a constraint; ValueError says what was expected. [CK1]"""
    if not 0 < len(constraint.condition) <= MAX_CONDITION or not constraint.columns:
        raise ValueError(
            f"expected a condition of 1 to {MAX_CONDITION:,} characters that names a column"
        )


class Snapshot(Stored, frozen=True, kw_only=True):
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
        schema: the columns; a table has none before its first rows.
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
        data_at: the time of the last commit that added rows or moved a watermark; None: there was
            none.
        advanced_at: source -> the time of the last commit that moved its watermark.
        dated: (version, time of its commit), ascending, of a few versions, expired ones included.
        pending: the joint commit of which this version is a member, which another table decides;
            None: this version is no member.
        joint: id of a table -> its last member that this table's commits decided.
        homes: id of a table -> the last version of this table that was a member under it.
        void: the versions whose joint commit was aborted, ascending; they are no state of the
            table.
        rank: the place of this table in the order in which joint commits choose their home.
        constraints: name -> a condition that no row of the table violates.
        cloned: id of each table that this one was cloned from -> the version that it last had.
        extra: the members that this release does not know, unchanged.

    Spec: OB2.
    """

    format_version: Count
    table_id: TableId
    version: Positive
    parent_digest: str | None = None
    committed_at: Time
    clock: Time | None = None
    writer: str
    commits: tuple[Commit, ...]
    schema: Schema = NO_COLUMNS
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
    data_at: Time | None = None
    advanced_at: dict[str, Time] = {}
    dated: tuple[tuple[Count, Time], ...] = ()
    pending: Pending | None = None
    joint: dict[TableId, JointRecord] = {}
    homes: dict[TableId, HomeRecord] = {}
    void: tuple[Count, ...] = ()
    rank: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0
    constraints: dict[str, Constraint] = {}
    cloned: dict[TableId, Origin] = {}


# Checks what names other tables, in snapshots and prepared jobs: it is read as hostile.

MOST_TABLES = 32  # of one joint commit [MT2]
_LONGEST = 2**63


class TogetherJob(Closed, frozen=True, kw_only=True):
    """A prepared job of one joint commit: its table's path and id, and the job. [MT11]"""

    root: Root
    table_id: str
    job: str


def check_together(together: Sequence[TogetherJob], job: str) -> None:
    """Check jobs prepared together, `job` among them; ValueError says what is wrong. [MT11]"""
    if not 2 <= len(together) <= MOST_TABLES:
        raise ValueError(f"a joint commit has 2 to {MOST_TABLES} tables, not {len(together)}")
    for each in together:
        if parse_job_id(each.job).table_id != each.table_id:
            raise ValueError("it names a job and the id of another table")
    if len({each.table_id for each in together}) < len(together):
        raise ValueError("it names a table of its joint commit twice")
    if job not in {each.job for each in together}:
        raise ValueError("it is not one of the jobs that it is committed together with")


def check_joint(snapshot: Snapshot) -> None:
    """Check what names other tables, and `void`; ValueError says what is wrong. [OB16] [CN3]"""
    if (snapshot.pending is not None) != (snapshot.format_version == PENDING_FORMAT_VERSION):
        raise ValueError("format_version 2 is that of a pending version, and of no other")
    _check_void(snapshot)
    if snapshot.pending is not None:
        _check_pending(snapshot, snapshot.pending)
    _check_partners("joint", snapshot.joint, snapshot.table_id, range(2, _LONGEST))
    _check_partners("homes", snapshot.homes, snapshot.table_id, range(2, snapshot.version + 1))
    _check_partners("cloned", snapshot.cloned, snapshot.table_id, range(1, snapshot.version + 1))
    for table_id, record in snapshot.joint.items():
        if parse_job_id(record.attempt).table_id != snapshot.table_id:
            raise ValueError(f"joint holds an attempt of another home for table {table_id}")


def _check_void(snapshot: Snapshot) -> None:
    void = snapshot.void
    if any(lower >= higher for lower, higher in itertools.pairwise(void)):
        raise ValueError("void is not in ascending order")
    if void and not 1 < void[0] <= void[-1] < snapshot.version:
        raise ValueError("void names a version that cannot be one of an aborted joint commit")


def _check_pending(snapshot: Snapshot, pending: Pending) -> None:
    if pending.table_id == snapshot.table_id:
        raise ValueError("a pending version names no other table as its home")
    if parse_job_id(pending.job).table_id != pending.table_id:
        raise ValueError("a pending version names a job that is not one of its home")
    if not snapshot.expired <= pending.base < snapshot.version:
        raise ValueError("a pending version has a base that is not readable below it")
    between = snapshot.version - 1 - pending.base
    if between and snapshot.void[-between:] != tuple(range(pending.base + 1, snapshot.version)):
        raise ValueError("between a pending version and its base are versions that are not void")
    if pending.base in snapshot.void:
        raise ValueError("a pending version has a base that is void")


def _check_partners(
    member: str, partners: Mapping[str, JointRecord | HomeRecord | Origin], own: str, known: range
) -> None:
    for table_id, record in partners.items():
        if table_id == own:
            raise ValueError(f"{member} holds the id of its own table")
        if record.version not in known:
            raise ValueError(f"{member} holds an impossible version of table {table_id}")


# Detects clocks that are far apart.

# the difference from their own clock that S3 and Azure accept in a request
FAR_US = 15 * 60 * 1_000_000
_KEPT = 16


def is_far(mine_us: int, other_us: int) -> bool:
    """Whether two clocks are so far apart that one of them must be wrong. [CM27]"""
    return abs(mine_us - other_us) > FAR_US


def disputed(head: Snapshot, now_us: int) -> tuple[DisputedTime, ...]:
    """The disputed times of the version after `head`, by its writer's clock. [CM27]"""
    known = tuple(dispute for dispute in head.disputed_times if dispute.last >= head.expired)
    if head.committed_at <= now_us or not is_far(now_us, head.committed_at):
        return known
    version = head.version + 1
    if known and known[-1].last == head.version and known[-1].said == head.committed_at:
        last = msgspec.structs.replace(known[-1], last=version, clock=max(known[-1].clock, now_us))
        return (*known[:-1], last)
    new = DisputedTime(first=head.version, last=version, said=head.committed_at, clock=now_us)
    return (*known, new)[-_KEPT:]
