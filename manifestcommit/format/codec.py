"""Encodes and decodes every metadata object except manifests; mirrors spec/v1.md clause by clause.
[LY1]-[LY7] [LY11] [LY12] [LY14] [OB1]-[OB4] Pure."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import zstandard

from ..errors import CorruptMetadataError, SchemaMismatchError, UnsupportedFormatError, UsageError
from .change import Prepared, check_advance
from .entries import Entry, FinishedTask, ManifestRef, decode
from .fields import Partitioned, Shape, check_schema, walk
from .manifest_table import check_values
from .object_names import (
    MANIFESTS,
    check_path,
    intent_name,
    job_of_data_file,
    job_of_manifest,
    parse_job_id,
    parse_version,
    prepared_name,
    version_name,
)
from .partitioning import is_folder_column
from .snapshot import (
    FORMAT_VERSION,
    PENDING_FORMAT_VERSION,
    Snapshot,
    check_constraints,
    check_joint,
    check_message,
    check_metadata,
    check_together,
)
from .transforms import partition_fields

# Preserves unknown members through a read and a rewrite, at every depth.

SPELLING = "__unknown__"
# levels of nested values beside unknown members; below every limit of Python and msgspec
MAX_DEPTH = 400


def _decode_tucked(raw: bytes, kind: Any) -> Any:
    """Decode a struct whose raw form has unknown members beside the known ones. [OB12]"""
    document = msgspec.json.decode(raw)
    level = [document] if isinstance(document, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            value
            for holder in level
            for value in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(value, dict | list)
        ]
    if level:
        raise msgspec.ValidationError(f"its members are nested more than {MAX_DEPTH} deep")
    return msgspec.convert(_walk(document, kind, _tuck_one), type=kind, strict=True, str_keys=True)


def _tuck_one(raw: dict[str, Any], known: typing.AbstractSet[str]) -> dict[str, Any]:
    if SPELLING in raw:
        raise msgspec.ValidationError(f"Object contains the reserved field `{SPELLING}`")
    unknown = {name: value for name, value in raw.items() if name not in known}
    if not unknown:
        return raw
    return {name: value for name, value in raw.items() if name in known} | {SPELLING: unknown}


def _untuck_one(raw: dict[str, Any], known: typing.AbstractSet[str]) -> dict[str, Any]:
    if SPELLING not in raw:
        return raw
    unknown = raw[SPELLING]
    plain = {name: value for name, value in raw.items() if name != SPELLING}
    return {name: value for name, value in unknown.items() if name not in known} | plain


def _walk(raw: Any, kind: Any, one: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if not isinstance(raw, dict):
            return raw
        members, known = _members(kind)
        walked = {
            name: _walk(value, members[name], one) if name in members else value
            for name, value in raw.items()
        }
        return one(walked, known)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and isinstance(raw, list | tuple):
        return [_walk(item, arguments[0], one) for item in raw]
    if origin is dict and isinstance(raw, dict):
        return {name: _walk(value, arguments[1], one) for name, value in raw.items()}
    if origin in (typing.Union, types.UnionType) and isinstance(raw, dict):
        for each in arguments:
            if isinstance(each, type) and issubclass(each, msgspec.Struct):
                config = each.__struct_config__
                if config.tag is None or raw.get(str(config.tag_field)) == config.tag:
                    return _walk(raw, each, one)
    return raw


@functools.cache
def _members(kind: type[msgspec.Struct]) -> tuple[dict[str, Any], frozenset[str]]:
    hints = typing.get_type_hints(kind)
    members = {
        field.encode_name: hints[field.name]
        for field in msgspec.structs.fields(kind)
        if field.encode_name != SPELLING
    }
    tag = kind.__struct_config__.tag_field
    return members, frozenset(members) | {SPELLING} | ({tag} if tag else set())


MAX_OBJECT_BYTES = 64 * 1024 * 1024  # bytes of a metadata object that a reader fetches at most
MAX_RAW_BYTES = 256 * 1024 * 1024  # bytes that a metadata object may decompress to
MAX_INTENT_BYTES = 64 * 1024  # bytes of an intent, which every other writer may have to read
MAX_INTENT_RAW_BYTES = 256 * 1024
# how many times its stored size an object may decompress to, above one MiB; ours come to 5 to 30
MAX_RATIO = 100
# values in a JSON document: an empty one of three bytes takes a hundred in memory
MAX_VALUES = 4 * 1024 * 1024
# level 3 made snapshots at most 0.2 % smaller, for tables whose 440 kB each commit has to read and
# write
_ZSTD_LEVEL = 1

MAX_HINT_BYTES = 256
_HINT = re.compile(
    rb"(\d{1,19})(?: (sha256:[0-9a-f]{64}))?(?: (v[1-9]\d{0,18}-[0-9a-f]{16}-[0-9a-f]{32}))?",
    re.ASCII,
)

_OBJECT = re.compile(re.escape(MANIFESTS) + r"(?!\.{1,2}\Z)[^/\\\0]+")

_REASON = 2_000  # a hostile text may be long
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def digest(data: bytes) -> str:
    """sha256 of the object's bytes as stored. [OB1]"""
    return digest_of(hashlib.sha256(data))


def digest_of(hashed: Any) -> str:
    """The `digest` of all bytes that this hashlib sha256 object was fed. [DF3]"""
    return f"sha256:{hashed.hexdigest()}"


class Hint(msgspec.Struct, frozen=True, kw_only=True):
    """What the hint says. version: one that has existed; digest: of its object; attempt: the joint
    commit that committed that version as a member. None: it says nothing of it. [LY7] [MT7]"""

    version: int
    digest: str | None = None
    attempt: str | None = None


def encode_hint(version: int, digest: str | None = None, attempt: str | None = None) -> bytes:
    """Encode the hint. attempt: of the joint commit that committed it as a member. [LY7] [MT7]"""
    return " ".join(filter(None, (f"{version}", digest, attempt))).encode("ascii")


def decode_hint(data: bytes) -> Hint | None:
    """What the hint says; None if it is damaged. Which object is the newest does not depend on it;
    what became of that one, if it is a member, does. [LY7] [MT7]"""
    match = _HINT.fullmatch(data)
    if match is None:
        return None
    digest, attempt = (
        None if each is None else each.decode("ascii") for each in match.groups()[1:]
    )
    return Hint(version=int(match[1]), digest=digest, attempt=attempt)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Encode a snapshot; UsageError if it would be too large for readers. [OB1] [OB4]"""
    remedy = "Use fewer or shorter keys, sources, text positions and properties."
    what = f"version {snapshot.version}"
    data = _bounded(snapshot, what, remedy)
    with _read_back(what):
        decode_snapshot(data, name=version_name(snapshot.version))
    return data


def decode_snapshot(data: bytes, *, name: str) -> Snapshot:
    """Decode a snapshot and check it against its name and the format's rules. Of a member of a
    joint commit only another table tells whether it is a state of this one. [OB3] [OB4] [OB16]"""
    raw, formats = decompress(data, name=name), (FORMAT_VERSION, PENDING_FORMAT_VERSION)
    snapshot: Snapshot = decode_json(raw, Snapshot, name=name, formats=formats)
    try:
        _check(snapshot, name)
        check_joint(snapshot)
    except (SchemaMismatchError, ValueError) as error:
        raise damaged(name, error) from None
    return snapshot


def encode_prepared(prepared: Prepared) -> bytes:
    """Encode a prepared job, with the form and limits of a snapshot. [AB3] [OB1] [OB4]"""
    job, remedy = prepared.change.job, "Add fewer files, or commit without preparing."
    data = _bounded(prepared, f"prepared job {job}", remedy)
    with _read_back(f"prepared job {job}"):
        decode_prepared(data, name=prepared_name(job))
    return data


def encode_intent(prepared: Prepared) -> bytes | None:
    """Encode an intent as a prepared job; None if too large for others. [CM19] [AB3]"""
    raw = encode_json(prepared)
    data = compress(raw) if len(raw) <= MAX_INTENT_RAW_BYTES else b""
    return data if 0 < len(data) <= MAX_INTENT_BYTES else None


def decode_intent(data: bytes, *, name: str) -> tuple[Prepared, int]:
    """Decode an intent, a prepared job with tighter limits, and its length. [CM20] [OB4]"""
    if len(data) > MAX_INTENT_BYTES:
        raise damaged(name, f"it has more than {MAX_INTENT_BYTES} bytes")
    raw = decompress(data, name=name, limit=MAX_INTENT_RAW_BYTES)
    prepared = _prepared(raw, name, intent_name)
    if prepared.done is not None or prepared.change.together:
        raise damaged(name, "it asks for what was done before, or for several tables")
    return prepared, len(raw)


def decode_prepared(data: bytes, *, name: str) -> Prepared:
    """Decode a prepared job, checked as a snapshot; errors name the object. [AB3] [OB3] [OB4]"""
    return _prepared(decompress(data, name=name), name, prepared_name)


def _prepared(raw: bytes, name: str, name_of: Callable[[str], str]) -> Prepared:
    prepared: Prepared = decode_json(raw, Prepared, name=name)
    change = prepared.change
    try:
        if name_of(change.job) != name or parse_job_id(change.job).birth != change.birth:
            raise ValueError(f"it holds job {change.job!r}")
        if change.based_on is not None and not 1 <= change.based_on <= change.birth:
            raise ValueError(
                f"it is based on version {change.based_on}, and began at {change.birth}"
            )
        alone = (change.stream, change.reason, change.audited)
        if alone != (None, None, None) or change.first or change.constrain:
            raise ValueError("it holds what only a commit of its own can do")
        if change.message is not None:
            check_message(change.message)
        check_metadata(change.metadata)
        if change.together:
            check_together(change.together, change.job)
        if (change.key is not None and not change.declared) or (
            prepared.done is not None and not prepared.done.digest
        ):
            raise ValueError("it has a key without the digest of what was declared with it")
        for advance in change.advances:
            check_advance(advance.source, advance.start, advance.end)
        _check_listed(change.add, change.add_manifests, len(change.partition_by or ()))
        jobs = [entry.job for entry in change.add]
        for job in jobs + [job_of_manifest(ref.path) for ref in change.add_manifests]:
            parse_job_id(job)
        check_path(*change.remove)
        for schema in filter(None, (change.schema, change.initial)):
            check_schema(schema)
        if (change.add or change.add_manifests) and (
            change.schema is None or change.partition_by is None
        ):
            raise ValueError("it adds files, and does not say with which columns they were written")
        if change.schema is not None:
            check_values(change.add, Partitioned(change.schema, change.partition_by or ()))
    except (SchemaMismatchError, ValueError) as error:
        raise damaged(name, error) from None
    return prepared


def encode_task(finished: FinishedTask) -> bytes:
    """Encode a finished task, with the form and limits of a snapshot. [AB6] [OB1] [OB4]"""
    return _bounded(finished, f"finished task {finished.task}", "Write larger files.")


def decode_task(data: bytes, of: Shape, *, name: str, job: str, task: int) -> FinishedTask:
    """Decode the task that `job` finished, and check it as a snapshot is checked. [AB6] [OB4]"""
    finished: FinishedTask = decode_json(decompress(data, name=name), FinishedTask, name=name)
    if finished.task != task:
        raise damaged(name, f"it holds task {finished.task}")
    entries, manifests = finished.entries, finished.manifests
    try:
        _check_listed(entries, manifests, len(of.partition_by))
        check_values(entries, of)
        strangers = [
            entry.path
            for entry in entries
            if (entry.job, job_of_data_file(entry.path)) != (job, job) or entry.digest is None
        ]
        strangers += [ref.path for ref in manifests if job_of_manifest(ref.path) != job]
        if strangers:
            raise ValueError(f"it lists {strangers[0]!r}, which is of another job or has no digest")
    except ValueError as error:
        raise damaged(name, error) from None
    return finished


def encode_json(value: msgspec.Struct) -> bytes:
    """JSON of a struct of the format, with unknown members in their places. [OB12]"""
    encoded = msgspec.json.encode(value)
    if f'"{SPELLING}"'.encode() not in encoded:
        return encoded
    plain = msgspec.to_builtins(value, str_keys=True)
    return msgspec.json.encode(_walk(plain, type(value), _untuck_one))


def decode_json(
    raw: bytes, kind: Any, *, name: str, formats: tuple[int, ...] = (FORMAT_VERSION,)
) -> Any:
    """Decode a struct of the format; errors name the object and the member. [OB3] [OB4]"""
    if not _has_few_values(raw):
        raise damaged(name, f"it holds more than {MAX_VALUES} values")
    # The name occurs neither literally nor in an escape. Most documents have no backslash, and a
    # search for one is much faster than decoding.
    first: Exception | None = None
    if SPELLING.encode() not in raw and (b"\\" not in raw or b"\\u00" not in raw):
        try:
            value = msgspec.json.decode(raw, type=kind)
            if value.format_version in formats:
                return value
        except _UNREADABLE as error:
            first = error
    _check_format_version(raw, name, formats)  # a later format is not damage
    # Only unknown members of a newer writer need the slow path; anything else fails again, and is
    # damage.
    try:
        return _decode_tucked(raw, kind)
    except _UNREADABLE as error:
        raise damaged(name, first or error) from None


def _has_few_values(raw: bytes) -> bool:
    """Whether a document holds few values: each follows one of these characters. [OB4]"""
    return len(raw) <= MAX_VALUES or sum(map(raw.count, (b",", b"[", b"{"))) < MAX_VALUES


def compress(raw: bytes) -> bytes:
    """Compress into one zstd frame that declares its content size. [OB1]"""
    return zstandard.ZstdCompressor(
        level=_ZSTD_LEVEL, write_content_size=True, write_checksum=True
    ).compress(raw)


def _bounded(value: msgspec.Struct, what: str, remedy: str) -> bytes:
    """The object; UsageError if it is too large for those who will read it. [OB4]"""
    raw = encode_json(value)
    data = compress(raw) if len(raw) <= MAX_RAW_BYTES else raw
    if (
        not _has_few_values(raw)
        or len(raw) > min(MAX_RAW_BYTES, _most_raw(data))
        or len(data) > MAX_OBJECT_BYTES
    ):
        raise UsageError(
            f"{what} would take {len(raw)} bytes ({len(data)} stored), more than readers "
            f"accept; nothing was committed. {remedy}"
        )
    return data


@contextlib.contextmanager
def _read_back(what: str) -> Iterator[None]:
    """What a writer acknowledges, every reader takes: UsageError if one would not. [OB4]"""
    try:
        yield
    except CorruptMetadataError as error:
        raise UsageError(
            f"{what} would hold what no reader accepts; nothing was committed. It would be read "
            f"as: {error}"
        ) from None


def _most_raw(data: bytes) -> int:
    """How many bytes an object may decompress to: few must not become a gigabyte. [OB4]"""
    return MAX_RATIO * len(data) + (1 << 20)


def decompress(data: bytes, *, name: str, limit: int = MAX_RAW_BYTES) -> bytes:
    """Decompress the frame; one without a size, or too large a size, takes no memory. [OB4]"""
    try:
        declared = zstandard.get_frame_parameters(data).content_size
        if declared in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR):
            raise damaged(name, "its zstd frame declares no size")
        limit = min(limit, _most_raw(data))
        if declared > limit:
            reason = f"it claims {declared} bytes, more than the {limit} that are allowed"
            raise damaged(name, reason)
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise damaged(name, error) from None


class _Head(msgspec.Struct):
    format_version: int = 0


# msgspec inspects a class on first use without a lock: threads that do so at the same time crash
# the interpreter.
for _kind in (Snapshot, Prepared, FinishedTask, _Head):
    msgspec.json.Decoder(_kind)


def _check_format_version(raw: bytes, name: str, formats: tuple[int, ...]) -> None:
    try:
        version = msgspec.json.decode(raw, type=_Head).format_version
    except _UNREADABLE as error:
        raise damaged(name, error) from None
    if version not in formats:
        reads = " and ".join(map(str, formats))
        raise UnsupportedFormatError(
            f"{name} has format_version {version}; this release reads {reads}. Nothing "
            "was read or changed: use a release of manifestcommit that knows this format."
        )


def _check(snapshot: Snapshot, name: str) -> None:
    version = parse_version(name)
    if version is not None and version != snapshot.version:
        raise ValueError(f"its name says version {version}, its content {snapshot.version}")
    if not 1 <= snapshot.expired <= snapshot.fence <= snapshot.version:
        raise ValueError("expired <= fence <= version does not hold")
    if (snapshot.parent_digest is None) != (snapshot.version == 1):
        raise ValueError("every version but the first has a parent_digest")
    if snapshot.schema.fields:
        check_schema(snapshot.schema)
    if snapshot.partition_by:
        partition_fields(snapshot.schema, snapshot.partition_by)  # or raises
    if not all(is_folder_column(*each) for layout in snapshot.former_folders for each in layout):
        raise ValueError("former_folders holds what makes no folder")
    if snapshot.constraints:
        check_constraints(snapshot.constraints)
        named = {id for each in snapshot.constraints.values() for id in each.columns.values()}
        if not named <= {field.id for _, field in walk(snapshot.schema.fields)}:
            raise ValueError("a constraint names a field that the schema does not have")
    _check_listed(snapshot.added, snapshot.manifests, len(snapshot.partition_by))
    if any(record.version > snapshot.version for record in snapshot.streams.values()):
        raise ValueError("a stream's last batch is of a version that does not exist")
    restored = [each.restored for each in snapshot.commits if each.restored is not None]
    if not all(1 <= version < snapshot.version for version in restored):
        raise ValueError("a rollback restored a version that was none before it")
    for path in snapshot.condemned:
        check_path(path)
    for path, text in snapshot.removed.items():
        _check_object_path(path)
        decode(text)
    for run in (*snapshot.key_runs, *snapshot.job_runs, *snapshot.removed_runs):
        _check_object_path(run.path)


def _check_listed(entries: Sequence[Entry], manifests: Sequence[ManifestRef], width: int) -> None:
    paths = [entry.path for entry in entries]
    check_path(*paths)
    for entry in entries:
        if entry.footer is not None and entry.footer.bytes > entry.bytes:
            raise ValueError(f"file {entry.path!r} has a footer of {entry.footer.bytes} bytes")
        if len(entry.partition) != width:
            raise ValueError(
                f"file {entry.path!r} has {len(entry.partition)} partition values where the "
                f"table has {width}"
            )
    if len({*paths}) != len(paths):
        raise ValueError("a path is listed twice")
    for ref in manifests:
        _check_object_path(ref.path)
        if ref.footer is not None and ref.footer.bytes > ref.bytes:
            raise ValueError(
                f"manifest {ref.path!r} has a footer of {ref.footer.bytes} bytes in {ref.bytes}"
            )
        if not len(ref.lower) == len(ref.upper) == len(ref.nulls) == width:
            raise ValueError(
                f"manifest {ref.path!r} has bounds for other columns than the table's "
                "partition columns"
            )


def _check_object_path(path: str) -> None:
    if not _OBJECT.fullmatch(path):
        raise ValueError(f"{path!r} is not below {MANIFESTS}")


def damaged(name: str, reason: object) -> CorruptMetadataError:
    """The error of a damaged object: its name, the reason cut, the remedy. [OB4]"""
    text = str(reason)
    text = text if len(text) <= _REASON else f"{text[:_REASON]}…"
    return CorruptMetadataError(
        f"{name} is damaged or was not written by manifestcommit: {text}. Nothing was read from "
        "it and nothing was changed. Restore the object from a backup or a bucket version, or read "
        "an earlier version of the table.",
        object_name=name,
    )
