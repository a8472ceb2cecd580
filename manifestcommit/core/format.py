"""Name and bytes of every metadata object but manifests; mirrors spec/v1.md clause by clause. [LY1]-[LY7] [LY11] [LY12] [OB1]-[OB4]

Pure. Not here: what the values mean (core.snapshot), manifests and runs, which are Parquet (core.manifest_table).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import zstandard

from ..errors import CorruptMetadataError, SchemaMismatchError, UnsupportedFormatError, UsageError
from . import bitmap
from .change import Prepared
from .manifest import Entry, ManifestRef
from .manifest_table import check_values
from .paths import UnsafePathError, check_path
from .recovery import FinishedTask, KeyMark
from .schema import Schema, check_schema
from .snapshot import FORMAT_VERSION, Snapshot
from .unknown import SPELLING, tuck, untuck
from .watermark import check_advance

ROOM = "_manifest"
VERSIONS = f"{ROOM}/versions/"
INTENTS = f"{VERSIONS}i-"
MANIFESTS = f"{ROOM}/manifests/"
JOBS = f"{ROOM}/jobs/"
MARKS = f"{JOBS}key-"
PROBES = f"{ROOM}/doctor/"  # store.checks makes them, which may not import this: a test sees to it that both agree
HINT = f"{ROOM}/hint"

MAX_OBJECT_BYTES = 64 * 1024 * 1024  # what a reader fetches of a metadata object at most
MAX_RAW_BYTES = 256 * 1024 * 1024  # what a metadata object may decompress to at most
MAX_INTENT_BYTES = 64 * 1024  # likewise of an intent, which every other writer may have to read
MAX_INTENT_RAW_BYTES = 256 * 1024
_ZSTD_LEVEL = 1  # at 3 heads were 0.2 % smaller at most, for tables of 440 kB that each commit had to get and give back
_BEYOND = 2**63  # what no count reaches

_VERSION_NAME = re.compile(re.escape(VERSIONS) + r"(\d{20})\.json\.zst", re.ASCII)
_JOB_ID = re.compile(r"v([1-9]\d{0,18})-([0-9a-f]{16})-[0-9a-f]{32}", re.ASCII)
_OBJECT = re.compile(re.escape(MANIFESTS) + r"(?!\.{1,2}\Z)[^/\\\0]+")
_TABLE_ID = re.compile(r"[0-9a-f]{16}")
_TASK = re.compile(r"(\d{5,18})\.json\.zst", re.ASCII)

_DATA_FILE_ENDS = ".parquet"
_REASON = 2_000  # what is hostile may be long
_JOBS_AT_HAND = 4096


class JobName(msgspec.Struct, frozen=True, kw_only=True):
    """What a job id says of its job. birth: the version that was head when it began. [LY4]"""

    birth: int
    table_id: str


def version_name(version: int) -> str:
    """The only name that the snapshot of `version` can have. [LY2]"""
    return f"{VERSIONS}{version:020d}.json.zst"


def parse_version(name: str) -> int | None:
    """The version of a snapshot's name; None for anything else in that folder (intents, strangers). [LY2]"""
    match = _VERSION_NAME.fullmatch(name)
    return int(match[1]) or None if match else None


def intent_name(job: str) -> str:
    """The name of the object with which a job asks others to carry its change; a list shows it after all versions. [LY11]"""
    return f"{INTENTS}{job}"


def parse_intent(name: str) -> str | None:
    """The job whose intent has this name; None for anything else. [LY11]"""
    job = name.removeprefix(INTENTS)
    return job if job != name and _JOB_ID.fullmatch(job) else None


def job_id(birth: int, table_id: str, randomness: bytes) -> str:
    """A job id no other job can have: birth, table, 128 random bits. [LY4]"""
    if len(randomness) != 16:
        raise ValueError("a job id takes 16 random bytes")
    return f"v{birth}-{table_id}-{randomness.hex()}"


def parse_job_id(job: str) -> JobName:
    """Birth and table of a job id; ValueError for anything else. [LY4]"""
    name = _job_name(job)
    if name is None:
        raise ValueError(f"{job!r} is not a job id (v<birth>-<table id>-<32 hex digits>)")
    return name


def is_job_id(text: str) -> bool:
    """Whether this is the id of a job, of any table. [LY4]"""
    return _job_name(text) is not None


@lru_cache(_JOBS_AT_HAND)  # a table of a million files has few jobs, and whoever looks at each name asks for its job several times
def _job_name(text: str) -> JobName | None:
    match = _JOB_ID.fullmatch(text)
    return JobName(birth=int(match[1]), table_id=match[2]) if match else None


def manifest_name(job: str, randomness: bytes) -> str:
    """The name of a manifest or run that `job` writes. [LY3]"""
    return f"{MANIFESTS}{job}-{randomness.hex()}.parquet"


def data_file_name(task: int, attempt: str, number: int, job: str) -> str:
    """The name of a file that no other attempt at any task can write. attempt: 16 random hex digits; number: of its files, from 0. [DF1]"""
    return f"{task:05d}-{attempt}-{number}-{job}{_DATA_FILE_ENDS}"


def job_of_data_file(path: str) -> str | None:
    """The id of the job that wrote a data file; None where something else did. [DF1]"""
    at = path.rfind("-v")  # there is no further v in an id
    if at < 0 or not path.endswith(_DATA_FILE_ENDS):
        return None
    job = path[at + 1 : -len(_DATA_FILE_ENDS)]
    return job if _job_name(job) is not None else None


def job_of_manifest(name: str) -> str:
    """The id of the job that wrote a manifest or run. [LY3]"""
    return name.removeprefix(MANIFESTS).rpartition("-")[0]


def written_name(job: str, write_id: str) -> str:
    """The name of the list of files that one write of `job` produced, handed from the engine's process to the caller's. [LY5]"""
    return f"{JOBS}{job}/written-{write_id}.json.zst"


def rows_folder(job: str, write_id: str) -> str:
    """Where Spark's own writer leaves the files of one write of `job`, until tasks have taken them in. [LY5] [SP13]"""
    return f"{JOBS}{job}/rows-{write_id}"


def prepared_name(job: str) -> str:
    """The name of the object from which any process can commit a prepared job, or give it up. [AB3]"""
    return f"{JOBS}{job}/prepared.json.zst"


def key_marks_prefix(key: str) -> str:
    """Where the marks of all recoverable attempts at `key` lie. [AB6]"""
    return f"{MARKS}{hashlib.sha256(key.encode('utf-8')).hexdigest()[:32]}/"


def key_mark_name(job: str, key: str) -> str:
    """The name of the object that makes `job` a recoverable attempt at `key`. [AB6]"""
    return f"{key_marks_prefix(key)}{job}.json.zst"


def job_of_handed(name: str) -> str:
    """The job that left this object below `JOBS`, if one did. [LY5]"""
    first, _, rest = name.removeprefix(JOBS).partition("/")
    return rest.removesuffix(".json.zst") if name.startswith(MARKS) else first


def tasks_prefix(job: str, work: str) -> str:
    """Where the finished tasks of one write of `job` lie; work: 32 hex digits that tell this write from any other. [AB6]"""
    return f"{JOBS}{job}/task-{work}-"


def task_name(job: str, work: str, task: int) -> str:
    """The only name that the output of a task of this write can have. [AB6]"""
    return f"{tasks_prefix(job, work)}{task:05d}.json.zst"


def parse_task(name: str, prefix: str) -> int | None:
    """The number of a finished task; None for anything else below that prefix. [AB6]"""
    match = _TASK.fullmatch(name.removeprefix(prefix))
    return int(match[1]) if match and name == f"{prefix}{int(match[1]):05d}.json.zst" else None


def digest(data: bytes) -> str:
    """sha256 of the object's bytes as stored. [OB1]"""
    return digest_of(hashlib.sha256(data))


def digest_of(hashed: Any) -> str:
    """What `digest` says of all that this sha256 of hashlib's has taken in. [DF3]"""
    return f"sha256:{hashed.hexdigest()}"


def encode_hint(version: int) -> bytes:
    """The hint: a version that was head once, in decimal. [LY7]"""
    return str(version).encode("ascii")


def decode_hint(data: bytes) -> int | None:
    """The hinted version, or None where the hint is damaged: it proves nothing, so nothing depends on it. [LY7]"""
    return int(data) if len(data) <= 19 and data.isdigit() else None


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot's object: JSON, one zstd frame that declares its size; UsageError rather than one that no reader accepts. [OB1] [OB4]"""
    _check_none_twice(snapshot.added)
    return _bounded(
        encode_json(snapshot, Snapshot), f"version {snapshot.version}", "Use fewer or shorter keys, sources, text positions and properties."
    )


def decode_snapshot(data: bytes, *, name: str) -> Snapshot:
    """The snapshot in these bytes, checked against its name and the format's rules, or an error that names it. [OB3] [OB4]"""
    raw = decompress(data, name=name)
    snapshot: Snapshot = decode_json(raw, Snapshot, name=name)
    try:
        _check(snapshot, name)
    except (UnsafePathError, SchemaMismatchError, ValueError) as error:
        raise CorruptMetadataError(damaged(name, str(error)), object_name=name) from None
    return snapshot


def encode_prepared(prepared: Prepared) -> bytes:
    """The prepared job's object, made and bounded as a snapshot's is. [AB3] [OB1] [OB4]"""
    return _bounded(encode_json(prepared, Prepared), f"prepared job {prepared.change.job}", "Add fewer files, or commit without preparing.")


def encode_intent(prepared: Prepared) -> bytes | None:
    """An intent's object, in the form of a prepared job's; None where it would be larger than others read. [CM19] [AB3]"""
    raw = encode_json(prepared, Prepared)
    data = compress(raw) if len(raw) <= MAX_INTENT_RAW_BYTES else b""
    return data if 0 < len(data) <= MAX_INTENT_BYTES else None


def decode_intent(data: bytes, *, name: str) -> tuple[Prepared, int]:
    """What an intent asks for, and the length of its document; checked as a prepared job is, and bounded more tightly. [CM20] [OB4]"""
    if len(data) > MAX_INTENT_BYTES:
        raise CorruptMetadataError(damaged(name, f"it has more than {MAX_INTENT_BYTES} bytes"), object_name=name)
    raw = decompress(data, name=name, most=MAX_INTENT_RAW_BYTES)
    prepared = _prepared(raw, name, intent_name)
    if prepared.done is not None:
        raise CorruptMetadataError(damaged(name, "it asks for what was done before"), object_name=name)
    return prepared, len(raw)


def decode_prepared(data: bytes, *, name: str) -> Prepared:
    """The prepared job in these bytes, checked as a snapshot is, or an error that names the object. [AB3] [OB3] [OB4]"""
    return _prepared(decompress(data, name=name), name, prepared_name)


def _prepared(raw: bytes, name: str, name_of: Callable[[str], str]) -> Prepared:
    prepared: Prepared = decode_json(raw, Prepared, name=name)
    change = prepared.change
    try:
        if name_of(change.job) != name or parse_job_id(change.job).birth != change.birth:
            raise ValueError(f"it holds job {change.job!r}")
        alone = (
            change.gives_up, change.rewind, change.stream, change.tag, change.rollback, change.retention, change.reason,
            change.merge_manifests or None,
        )  # fmt: skip
        if any(each is not None for each in alone):
            raise ValueError("it holds what only a commit of its own can do")
        if (change.key is not None and not change.declared) or (prepared.done is not None and not prepared.done.digest):
            raise ValueError("it has a key without the digest of what was declared with it")
        for each in change.advances:
            check_advance(each.source, each.start, each.end)
        _check_listed(change.add, change.add_manifests, len(change.partition_by or ()))
        for job in (*(entry.job for entry in change.add), *(job_of_manifest(ref.path) for ref in change.add_manifests)):
            parse_job_id(job)
        for path in change.remove:
            check_path(path)
        for schema in (change.schema, change.initial):
            if schema is not None:
                check_schema(schema)
        if change.schema is not None:
            check_values(change.add, schema=change.schema, partition_by=change.partition_by or ())
    except (UnsafePathError, SchemaMismatchError, ValueError) as error:
        raise CorruptMetadataError(damaged(name, str(error)), object_name=name) from None
    return prepared


def encode_key_mark(mark: KeyMark) -> bytes:
    """The mark's object. [AB6] [OB1]"""
    return _bounded(encode_json(mark, KeyMark), "the mark of a recoverable job", "Use a shorter key.")


def encode_task(finished: FinishedTask) -> bytes:
    """The finished task's object, made and bounded as a snapshot's is. [AB6] [OB1] [OB4]"""
    return _bounded(encode_json(finished, FinishedTask), f"finished task {finished.task}", "Write larger files.")


def decode_task(data: bytes, *, name: str, job: str, task: int, schema: Schema, partition_by: Sequence[int]) -> FinishedTask:
    """The task that `job` finished, checked as a snapshot is, or an error that names the object. [AB6] [OB4]

    schema, partition_by: of its files.
    """
    finished: FinishedTask = decode_json(decompress(data, name=name), FinishedTask, name=name)
    try:
        if finished.task != task:
            raise ValueError(f"it holds task {finished.task}")
        _check_listed(finished.entries, finished.manifests, len(partition_by))
        check_values(finished.entries, schema=schema, partition_by=partition_by)
        for entry in finished.entries:
            if entry.job != job or job_of_data_file(entry.path) != job:
                raise ValueError(f"it lists {entry.path!r}, which is of another job")
        for ref in finished.manifests:
            if job_of_manifest(ref.path) != job:
                raise ValueError(f"it lists {ref.path!r}, which is of another job")
    except (UnsafePathError, ValueError) as error:
        raise CorruptMetadataError(damaged(name, str(error)), object_name=name) from None
    return finished


def encode_json(value: Any, kind: Any) -> bytes:
    """JSON of a struct of the format, unknown members where they were. [OB12]"""
    encoded = msgspec.json.encode(value)
    if f'"{SPELLING}"'.encode() not in encoded:
        return encoded
    return msgspec.json.encode(untuck(msgspec.to_builtins(value, str_keys=True), kind))


def decode_json(raw: bytes, kind: Any, *, name: str) -> Any:
    """A struct of the format from JSON, or an error that names the object and the member. [OB3] [OB4]"""
    # Neither spelled out nor hidden in an escape. Most documents have no backslash, and that is found out far sooner.
    is_plain = SPELLING.encode() not in raw and (b"\\" not in raw or b"\\u00" not in raw)
    if is_plain:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = msgspec.json.decode(raw, type=kind)
            if value.format_version == FORMAT_VERSION:
                return value
    _check_format_version(raw, name)  # what is of a later format is no damage
    try:
        if not is_plain:
            return msgspec.convert(tuck(msgspec.json.decode(raw), kind), type=kind, strict=True, str_keys=True)
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as first:
        # Only a newer writer's unknown members take the slow way; anything else fails again and is damage.
        try:
            return msgspec.convert(tuck(msgspec.json.decode(raw), kind), type=kind, strict=True, str_keys=True)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise CorruptMetadataError(damaged(name, str(first)), object_name=name) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptMetadataError(damaged(name, str(error)), object_name=name) from None


def compress(raw: bytes) -> bytes:
    """One zstd frame that declares its content size. [OB1]"""
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_content_size=True, write_checksum=True).compress(raw)


def _bounded(raw: bytes, what: str, way_out: str) -> bytes:
    data = compress(raw) if len(raw) <= MAX_RAW_BYTES else raw
    if len(raw) > MAX_RAW_BYTES or len(data) > MAX_OBJECT_BYTES:
        raise UsageError(
            f"{what} would take {len(raw)} bytes ({len(data)} stored), more than readers accept; nothing was committed. {way_out}"
        )
    return data


def decompress(data: bytes, *, name: str, most: int = MAX_RAW_BYTES) -> bytes:
    """The frame's content; refused before any memory is taken where it declares too much or nothing. [OB4]"""
    try:
        declared = zstandard.get_frame_parameters(data).content_size
        if declared in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR):
            raise CorruptMetadataError(damaged(name, "its zstd frame declares no size"), object_name=name)
        if declared > most:
            reason = f"it claims {declared} bytes, more than the {most} that are allowed"
            raise CorruptMetadataError(damaged(name, reason), object_name=name)
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptMetadataError(damaged(name, str(error)), object_name=name) from None


class _Head(msgspec.Struct):
    format_version: int = 0


# msgspec looks into a class when it first meets it, and takes no lock: threads that are first together end the interpreter.
for _kind in (Snapshot, Prepared, FinishedTask, KeyMark, _Head):
    msgspec.json.Decoder(_kind)


def _check_format_version(raw: bytes, name: str) -> None:
    try:
        found = msgspec.json.decode(raw, type=_Head).format_version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptMetadataError(damaged(name, str(error)), object_name=name) from None
    if found != FORMAT_VERSION:
        raise UnsupportedFormatError(
            f"{name} has format_version {found}; this release reads {FORMAT_VERSION}. Nothing was read or changed: "
            "use a release of manifestcommit that knows this format."
        )


def _check(snapshot: Snapshot, name: str) -> None:
    version = parse_version(name)
    if version is not None and version != snapshot.version:
        raise ValueError(f"its name says version {version}, its content {snapshot.version}")
    if snapshot.version < 1 or not _TABLE_ID.fullmatch(snapshot.table_id):
        raise ValueError("version or table_id is malformed")
    if not 1 <= snapshot.expired <= snapshot.fence <= snapshot.version:
        raise ValueError("expired <= fence <= version does not hold")
    if (snapshot.parent_digest is None) != (snapshot.version == 1):
        raise ValueError("every version but the first has a parent_digest")
    if snapshot.schema is not None:
        check_schema(snapshot.schema)
    top = {field.id for field in snapshot.schema.fields} if snapshot.schema else set()
    if not top.issuperset(snapshot.partition_by):
        raise ValueError("partition_by names a field that the schema does not have")
    width = len(snapshot.partition_by)
    _check_listed(snapshot.added, snapshot.manifests, width)
    if any(record.batch < -1 or not 1 <= record.version <= snapshot.version for record in snapshot.streams.values()):
        raise ValueError("a stream's last batch is none, or of a version that is none")
    if any(commit.restored is not None and not 1 <= commit.restored < snapshot.version for commit in snapshot.commits):
        raise ValueError("a rollback restored a version that was none before it")
    for path in snapshot.condemned:
        check_path(path)
    for path, text in snapshot.removed.items():
        _check_object_path(path)
        bitmap.decode(text)
    for run in (*snapshot.key_runs, *snapshot.job_runs, *snapshot.removed_runs):
        _check_object_path(run.path)
        if run.rows < 1 or run.bytes < 1:
            raise ValueError(f"run {run.path!r} has impossible counts")


def _check_listed(entries: Sequence[Entry], manifests: Sequence[ManifestRef], width: int) -> None:
    for entry in entries:
        check_path(entry.path)
        if not 0 <= entry.rows | entry.bytes | entry.added < _BEYOND:  # of several numbers this is out of bounds as soon as one of them is
            raise ValueError(f"file {entry.path!r} has impossible counts")
        if len(entry.partition) != width:
            raise ValueError(f"file {entry.path!r} has {len(entry.partition)} partition values where the table has {width}")
    _check_none_twice(entries)
    for ref in manifests:
        _check_object_path(ref.path)
        if min(ref.files, ref.rows, ref.data_bytes, ref.bytes) < 0 or ref.files == 0:
            raise ValueError(f"manifest {ref.path!r} has impossible counts")
        if ref.footer is not None and not 0 < ref.footer.bytes <= ref.bytes:
            raise ValueError(f"manifest {ref.path!r} has a footer of {ref.footer.bytes} bytes in {ref.bytes}")
        if not len(ref.lower) == len(ref.upper) == len(ref.nulls) == width:
            raise ValueError(f"manifest {ref.path!r} has bounds for other columns than the table's partition columns")


def _check_none_twice(entries: Sequence[Entry]) -> None:
    if len({entry.path for entry in entries}) != len(entries):
        raise ValueError("a path is listed twice")


def _check_object_path(path: str) -> None:
    if not _OBJECT.fullmatch(path):
        raise ValueError(f"{path!r} is not below {MANIFESTS}")


def damaged(name: str, reason: str) -> str:
    """What a `CorruptMetadataError` says: which object, why in at most 2,000 characters of it, and the way out. [OB4]"""
    reason = reason if len(reason) <= _REASON else f"{reason[:_REASON]}…"
    return (
        f"{name} is damaged or was not written by manifestcommit: {reason}. Nothing was read from it and nothing was changed. "
        "Restore the object from a backup or a bucket version, or read an earlier version of the table."
    )
