"""Puts a Delta log of a table beside its data files. [EX1]-[EX4]

One object for each version, by put-if-absent and in their order, so that the log never has a hole.
Where the log ends before the readable versions begin, a checkpoint comes first.
"""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import SnapshotExpiredError, UnsupportedTypeError, UsageError
from ..files.foreign_file import open_foreign
from ..format.fields import (
    DAY_US,
    EXACT,
    FLOATS,
    INTEGERS,
    MOMENTS,
    Field,
    Leaf,
    Schema,
    decimal_parts,
    leaves,
    map_fields,
    to_spark,
    walk,
)
from ..format.snapshot import REPLACE, Snapshot
from ..log.table_context import TableContext, gate
from ..log.version_chain import Head, raise_if_expired, read_version, walk_back
from ..scan.planning import differing_entries
from ..store import ObjectInfo, Store
from . import file_columns
from .file_columns import json_text, not_ours, put_shared

TEXTS = pa.map_(pa.string(), pa.string())
_EXACT_DIGITS = 15  # of a decimal that readers keep who parse JSON numbers as floats
_PLAIN_PATH = r"^[A-Za-z0-9_.~/=-]*$"
_TO_ESCAPE = r'[\x00-\x1f"\\]'
# the days and microseconds of the years that texts have: 1 to 9999
_DAYS = (-719_162, 2_932_896)
_MICROS = (_DAYS[0] * DAY_US, (_DAYS[1] + 1) * DAY_US - 1)


def adds(entries: pa.Table, schema: Schema, committed_ms: int, *, changes: bool) -> pa.StructArray:
    """The actions that add these files. entries: a manifest's table in the schema's types."""
    rows = entries.num_rows
    none = pa.array([], pa.string())
    columns = [
        paths(entries.column("path")),
        pa.MapArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows + 1), none, none),
        entries.column("bytes").combine_chunks(),
        pa.repeat(pa.scalar(committed_ms, pa.int64()), rows),
        pa.repeat(changes, rows),
        _stats(entries, schema),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(ADD))


def paths(names: pa.ChunkedArray) -> pa.Array:
    """The names as Delta has them, percent-encoded."""
    whole = names.combine_chunks()
    if pc.all(pc.match_substring_regex(whole, _PLAIN_PATH)).as_py() is not False:
        return whole
    return pa.array([quote(name, safe="/=") for name in whole.to_pylist()], pa.string())


def _stats(entries: pa.Table, schema: Schema) -> pa.Array:
    """What Delta's readers may know of each file, as JSON: nothing to be misunderstood. [EX8]"""
    entries = _with_partition_bounds(entries)
    known = [leaf for leaf in leaves(schema) if f"min.{leaf.id}" in entries.column_names]
    nulls = {leaf.path: _count(entries, f"nulls.{leaf.id}") for leaf in known}
    least, most = (
        {leaf.path: _bound(entries, leaf, end) for leaf in known} for end in ("min", "max")
    )
    members = [_member("numRecords", _count(entries, "rows"))]
    for name, found in (("minValues", least), ("maxValues", most), ("nullCount", nulls)):
        members.append(_member(name, _object(found)))
    return _braced(members)


def _count(entries: pa.Table, name: str) -> pa.Array:
    return _column(entries, name).cast(pa.string())


def _with_partition_bounds(entries: pa.Table) -> pa.Table:
    """The entries, with the partition value as both bounds of a partition column: each row of the
    file has it, whether or not the column's values were counted."""
    columns = dict(zip(entries.column_names, entries.columns, strict=True))
    for name in [name for name in columns if name.startswith("partition.")]:
        value, id = columns[name], name.partition(".")[2]
        columns |= {f"min.{id}": value, f"max.{id}": value}
        columns[f"nulls.{id}"] = pc.if_else(pc.is_valid(value), 0, columns["rows"])
        columns[f"cuts.{id}"] = pa.repeat(pa.scalar(0, pa.int8()), len(value))
    return pa.table(columns)


def _object(values: Mapping[tuple[str, ...], pa.Array]) -> pa.Array:
    """A JSON object of these members, by their paths; null where it would have none."""
    own: dict[str, pa.Array] = {}
    inner: dict[str, dict[tuple[str, ...], pa.Array]] = {}
    for path, texts in values.items():
        if len(path) == 1:
            own[path[0]] = texts
        else:
            inner.setdefault(path[0], {})[path[1:]] = texts
    own |= {name: _object(members) for name, members in inner.items()}
    if not own:
        return pa.scalar(None, pa.string())
    made = _braced([_member(name, texts) for name, texts in own.items()])
    return pc.if_else(pc.equal(made, "{}"), pa.scalar(None, pa.string()), made)


def _member(name: str, texts: Any) -> pa.Array:
    """The member of an object; null where it has no value."""
    return pc.binary_join_element_wise(json.dumps(name, ensure_ascii=False) + ":", texts, "")


def _braced(members: Sequence[pa.Array]) -> pa.Array:
    # With nulls skipped, pyarrow's join leaves out a row of nulls only: an empty text begins each.
    joined = pc.binary_join_element_wise("", *members, ",", null_handling="skip")
    inner = pc.utf8_slice_codeunits(joined, 1)
    return pc.binary_join_element_wise("{", inner, "}", "")


def _column(entries: pa.Table, name: str) -> pa.Array:
    return entries.column(name).combine_chunks()


def _bound(entries: pa.Table, leaf: Leaf, end: str) -> pa.Array:
    """A bound of each file as JSON, where it is exact: some readers answer `max(…)` from it."""
    kind, bound = leaf.type, _column(entries, f"{end}.{leaf.id}")
    cuts = pc.bit_wise_and(_column(entries, f"cuts.{leaf.id}"), 1 if end == "min" else 2)
    known = pc.fill_null(pc.equal(cuts, 0), True)
    if kind in FLOATS:
        known = pc.and_(known, pc.is_finite(pc.fill_null(bound, 0.0)))
        if end == "max":  # Delta orders NaN above every number
            nans = _column(entries, f"nans.{leaf.id}")
            known = pc.and_(known, pc.fill_null(pc.equal(nans, 0), False))
        texts = bound.cast(pa.float64()).cast(pa.string())
        texts = pc.if_else(pc.equal(bound, 0.0), "-0.0" if end == "min" else "0.0", texts)
    elif kind == "string":
        texts = _quoted(bound)
    elif kind == "date":
        known = pc.and_(known, _between(bound.cast(pa.int32()), _DAYS))
        texts = _in_quotes(pc.if_else(known, bound, pa.scalar(None, bound.type)).cast(pa.string()))
    elif kind in MOMENTS:
        known = pc.and_(known, _between(bound.cast(pa.int64()), _MICROS))
        plain = pc.if_else(known, bound, pa.scalar(None, bound.type)).cast(pa.string())
        texts = _in_quotes(pc.replace_substring(plain, " ", "T", max_replacements=1))
    elif isinstance(kind, str) and _is_number(kind):
        texts = bound.cast(pa.string())
    else:
        return pa.nulls(len(bound), pa.string())
    return pc.if_else(known, texts, pa.scalar(None, pa.string()))


def _is_number(kind: str) -> bool:
    parts = decimal_parts(kind)
    return kind in INTEGERS or (parts is not None and parts[0] <= _EXACT_DIGITS)


def _between(numbers: pa.Array, ends: tuple[int, int]) -> pa.Array:
    inside = pc.and_(pc.greater_equal(numbers, ends[0]), pc.less_equal(numbers, ends[1]))
    return pc.fill_null(inside, False)


def _quoted(texts: pa.Array) -> pa.Array:
    """Texts as JSON."""
    if not pc.any(pc.match_substring_regex(texts, _TO_ESCAPE)).as_py():
        return _in_quotes(texts)
    made = (None if text is None else json_text(text) for text in texts.to_pylist())
    return pa.array(made, pa.string())


def _in_quotes(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


FOLDER = "_delta_log/"
LAST_CHECKPOINT = f"{FOLDER}_last_checkpoint"
# Writers that do not know this feature refuse to write: the log follows the table. [EX3]
WRITER_FEATURE = "manifestcommit"
_NAMESPACE = uuid.UUID("0d4c6c8e-5b4c-4e0b-9a55-6a1fd1f0b1ce")
_TYPES = EXACT.union(FLOATS)
_MAPPED = "columnMapping"
_NTZ = "timestampNtz"
_TABLE_ID = "manifestcommit.table-id"
_TABLE = re.compile(rb'\{"commitInfo":\{"manifestcommit\.table-id":"([0-9A-Za-z-]{1,100})",')
_GROUP_ROWS = 50_000  # of a checkpoint


def commit_name(version: int) -> str:
    return f"{FOLDER}{version:020d}.json"


def checkpoint_name(version: int) -> str:
    return f"{FOLDER}{version:020d}.checkpoint.parquet"


def version_of(name: str) -> int | None:
    """The version of a commit or a checkpoint; None for any other name."""
    digits = name.removeprefix(FOLDER)[:20]
    if not (digits.isascii() and digits.isdecimal()):
        return None
    version = int(digits)
    return version if name in (commit_name(version), checkpoint_name(version)) else None


def metadata_id(table_id: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, table_id))


def table_in(start: bytes) -> str | None:
    """The id of the table whose commit begins with these bytes; None: it is not one of ours."""
    found = _TABLE.match(start)
    return None if found is None else found[1].decode()


def head_actions(snapshot: Snapshot) -> list[dict[str, Any]]:
    """What a version says of the table itself: protocol and metadata."""
    schema = snapshot.schema
    mapped = any(field.physical is not None for field in schema.fields)
    kinds = {field.type for _, field in walk(schema.fields) if isinstance(field.type, str)}
    features = [_MAPPED] * mapped + [_NTZ] * ("timestamp_ntz" in kinds)
    checks = {}
    if snapshot.constraints:
        texts = gate().texts_of(snapshot)
        checks = {f"delta.constraints.{name.lower()}": text for name, text in texts.items()}
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 7}
    if features:
        protocol |= {"minReaderVersion": 3, "readerFeatures": features}
    configuration, written = dict(checks), ["checkConstraints"] if checks else []
    if mapped:
        highest = max(field.id for _, field in walk(schema.fields))
        configuration["delta.columnMapping.mode"] = "name"
        configuration["delta.columnMapping.maxColumnId"] = str(highest)

    def named(field: Field) -> Field:
        mapping = {"id": field.id, "physicalName": field.file_name} if mapped else {}
        metadata = {f"delta.columnMapping.{name}": each for name, each in mapping.items()}
        return msgspec.structs.replace(field, metadata=metadata)

    protocol["writerFeatures"] = [*features, *written, WRITER_FEATURE]
    metadata = {
        "id": metadata_id(snapshot.table_id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json_text(to_spark(map_fields(schema, named), physical=False)),
        "partitionColumns": [],
        "configuration": configuration,
    }
    return [{"protocol": protocol}, {"metaData": metadata}]


def commit_bytes(before: Snapshot, after: Snapshot, removed: pa.Table, added: pa.Table) -> bytes:
    """The actions that lead from one version to the next. removed, added: entries. [EX5]"""
    milliseconds = after.committed_at // 1000
    changes = any(commit.operation != REPLACE for commit in after.commits)
    info: dict[str, Any] = {
        _TABLE_ID: after.table_id,  # first: see `table_in`
        "timestamp": milliseconds,
        "operation": ",".join(commit.operation for commit in after.commits),
        "operationParameters": {},
        "engineInfo": "manifestcommit",
    }
    keys = [commit.key for commit in after.commits if commit.key is not None]
    info |= {"manifestcommit.keys": keys} if keys else {}
    if after.watermarks != before.watermarks:
        info["manifestcommit.watermarks"] = after.watermarks
    actions: list[dict[str, Any]] = [{"commitInfo": info}]
    heads = zip(head_actions(before), head_actions(after), strict=True)
    actions += [new for old, new in heads if new != old]
    actions += [
        {"remove": {"path": path, "deletionTimestamp": milliseconds, "dataChange": changes}}
        for path in paths(removed.column("path")).to_pylist()
    ]
    files = adds(added, after.schema, milliseconds, changes=changes)
    actions += [{"add": action | {"partitionValues": {}}} for action in files.to_pylist()]
    return b"".join(json_text(action).encode() + b"\n" for action in actions)


def checkpoint_bytes(snapshot: Snapshot, tables: Iterable[pa.Table]) -> tuple[bytes, int]:
    """A checkpoint of one version, with these entries, and how many actions it has."""
    heads, sink, committed_ms = head_actions(snapshot), io.BytesIO(), snapshot.committed_at // 1000
    count = len(heads)
    with pq.ParquetWriter(sink, _CHECKPOINT, compression="zstd") as writer:
        writer.write_table(pa.Table.from_pylist(heads, schema=_CHECKPOINT))
        for entries in tables:
            for start in range(0, entries.num_rows, _GROUP_ROWS):
                some = entries.slice(start, _GROUP_ROWS)
                files = adds(some, snapshot.schema, committed_ms, changes=False)
                columns = {kind.name: pa.nulls(len(files), kind.type) for kind in _CHECKPOINT}
                writer.write_table(pa.table(columns | {"add": files}, schema=_CHECKPOINT))
                count += len(files)
    return sink.getvalue(), count


def _struct(text: str, **others: pa.DataType) -> pa.DataType:
    """A struct of members, each by its name and type."""
    members = [(name, _ARROW[kind]) for name, kind in map(str.split, text.split(","))]
    return pa.struct([*members, *others.items()])


_ARROW = {
    "text": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "texts": pa.list_(pa.string()),
    "map": TEXTS,
}
_ADD = "path text, partitionValues map, size long, modificationTime long, dataChange boolean,"
ADD = _struct(f"{_ADD} stats text")
_METADATA = (
    "id text, name text, description text, schemaString text, partitionColumns texts,"
    "configuration map, createdTime long"
)
_FEATURES = "readerFeatures texts, writerFeatures texts"
_CHECKPOINT = pa.schema(
    {
        "txn": _struct("appId text, version long"),
        "add": ADD,
        "remove": _struct("path text, deletionTimestamp long, dataChange boolean"),
        "metaData": _struct(_METADATA, format=_struct("provider text, options map")),
        "protocol": _struct(f"minReaderVersion int, minWriterVersion int, {_FEATURES}"),
    }
)


MOST_COMMITS = 20  # versions that the log gets as commits when it begins, or after a gap
MOST_CAUGHT_UP = 100  # versions that follow the log's newest one as commits
MOST_ACTIONS = 100_000  # of a commit; a version with more of them becomes a checkpoint


def check(ctx: TableContext, schema: Schema) -> None:
    """UnsupportedTypeError if Delta cannot express these columns. [EX9]"""
    file_columns.check_types(schema, _TYPES, "a Delta log cannot hold for every reader")


def check_files(ctx: TableContext, entries: pa.Table, snapshot: Snapshot) -> None:
    """UsageError if one of these files cannot be read through Delta. [EX9]"""
    file_columns.check_partition_columns(ctx, entries, snapshot, "Delta Lake")


def check_owner(ctx: TableContext, snapshot: Snapshot) -> int | None:
    """The newest version in the log, if any; UsageError if that is another table's. [EX9]"""
    newest = exported_version(ctx.store, snapshot.version)
    if newest is not None and not is_of_table(ctx.store, newest, snapshot.table_id):
        raise not_ours(ctx.store, FOLDER)
    return newest


def is_of_table(store: Store, version: int, table_id: str) -> bool:
    """Whether this version of the log is of this table. One request, if it is a commit."""
    try:
        return table_in(store.get(commit_name(version), 0, 256)) == table_id
    except FileNotFoundError:
        pass
    try:
        with store.open_input(checkpoint_name(version)) as stream:
            heads = open_foreign(stream)[0].read_row_group(0, columns=["metaData.id"])
        ids = {row["metaData"]["id"] for row in heads.to_pylist() if row["metaData"] is not None}
    except (pa.ArrowException, OSError, KeyError, TypeError):
        return False
    return ids == {metadata_id(table_id)}


def location(store: Store) -> str:
    """What readers of Delta are given."""
    return store.url


def exported_version(store: Store, head: int = 0) -> int | None:
    """The newest version in the log; None: no log. One list, from `head` on if that is near."""
    for start in (max(head - 1, 0), 0):
        listed = store.list(FOLDER, start_from=f"{FOLDER}{start:020d}")
        versions = [found for info in listed if (found := version_of(info.name)) is not None]
        if versions or not start:
            return max(versions, default=None)
    return None


def export(ctx: TableContext, head: Head) -> int:
    """Export this version and those since the log's newest; returns the newest. [EX1] [EX2]"""
    newest = check_owner(ctx, head.snapshot)
    if newest is not None and newest >= head.version:
        return newest
    check(ctx, head.snapshot.schema)
    exporter = _Log(ctx)
    chain = exporter.checked(_expressible(ctx, head, newest), newest)
    # a log begins with a whole version
    if newest is None or chain[0].version != newest:
        exporter.put_checkpoint(chain[0])
    for before, after in pairwise(chain):
        exporter.put_commit(before, after)
    return head.version


def _expressible(ctx: TableContext, head: Head, newest: int | None) -> list[Snapshot]:
    """The versions from the log's newest one to the head, ascending; or, if one of these cannot be
    read or expressed, or they are too many, the last few that can."""
    found = list[Snapshot]()
    follows = newest is not None and head.version - newest <= MOST_CAUGHT_UP
    most = head.version - newest + 1 if follows and newest is not None else MOST_COMMITS
    for old in walk_back(ctx.store, head):
        try:
            check(ctx, old.snapshot.schema)
        except UnsupportedTypeError:
            break
        is_gap = bool(found) and found[-1].version != old.version + 1  # a void version [MT8]
        if not old.snapshot.schema.fields or is_gap:
            break
        found.append(old.snapshot)
        if len(found) == most:
            break
    return found[::-1]


def before_deletion(ctx: TableContext, head: Head) -> None:
    """Begin the log, by a checkpoint, with the oldest readable version or later. [EX4]"""
    oldest = head.snapshot.expired
    commits, checkpoints, _ = _objects(ctx.store)
    starts = [version for version in (*commits, *checkpoints) if version < oldest]
    if starts and oldest in commits and oldest not in checkpoints:
        _Log(ctx).put_checkpoint(read_version(ctx.store, head, oldest).snapshot)


def unreached(
    ctx: TableContext, decided: Snapshot, cut_s: float, is_dead: Callable[[int], bool]
) -> Iterator[tuple[ObjectInfo, str]]:
    """Commits and checkpoints below the newest checkpoint that is older than `cut_s` (each gc that
    expires a version puts a younger one) and no later than the oldest readable version; all of the
    log, where its newest version is dead; none of another table's. [EX4]"""
    commits, checkpoints, hint = _objects(ctx.store)
    newest = max((*commits, *checkpoints), default=0)
    if not newest or not is_of_table(ctx.store, newest, decided.table_id):
        return
    latest = [objects[newest] for objects in (commits, checkpoints) if newest in objects]
    if max(info.modified for info in latest) <= cut_s and is_dead(newest):
        for info in (*hint, *commits.values(), *checkpoints.values()):
            if 0 < info.modified <= cut_s:
                yield info, f"version {newest}, which the Delta log shows, is expired"
        return
    old = [each for each, info in checkpoints.items() if 0 < info.modified <= cut_s]
    start = max((each for each in old if each <= decided.expired), default=0)
    for objects in (commits, checkpoints):
        for version, info in sorted(objects.items()):
            if version < start and 0 < info.modified <= cut_s:
                yield info, f"the Delta log begins with the checkpoint of version {start}"


def _objects(store: Store) -> tuple[dict[int, ObjectInfo], dict[int, ObjectInfo], list[ObjectInfo]]:
    """Commits and checkpoints in the log, by version, and the object that names a checkpoint."""
    commits, checkpoints = dict[int, ObjectInfo](), dict[int, ObjectInfo]()
    hint = list[ObjectInfo]()
    for info in store.list(FOLDER):
        if (version := version_of(info.name)) is not None:
            (commits if info.name == commit_name(version) else checkpoints)[version] = info
        elif info.name == LAST_CHECKPOINT:
            hint.append(info)
    return commits, checkpoints, hint


class _Log:
    """Puts commits and checkpoints of one table."""

    def __init__(self, ctx: TableContext) -> None:
        self._ctx = ctx

    def checked(self, chain: list[Snapshot], newest: int | None) -> list[Snapshot]:
        """Those last versions of the chain whose files can all be read through Delta; UsageError if
        the last one's cannot. All are looked at before the first object is put: a log that ends
        too early is read as a table with other rows. [EX9]"""
        follows = newest is not None and chain[0].version == newest
        self._check_beyond(chain[0] if follows else None, chain[-1])
        for at in range(len(chain) - 2, 0 if follows else -1, -1):
            try:
                self._check_beyond(chain[at + 1], chain[at])
            except (SnapshotExpiredError, UsageError):
                return chain[at + 1 :]
        return chain

    def _check_beyond(self, known: Snapshot | None, snapshot: Snapshot) -> None:
        """UsageError if a file that a version has beyond the known one cannot be read through
        Delta. Where these are many, all of its files are looked at, manifest by manifest."""
        if known is None or abs(snapshot.totals.files - known.totals.files) > MOST_ACTIONS:
            for table in self._tables(snapshot):
                check_files(self._ctx, table, snapshot)
            return
        with raise_if_expired(self._ctx.store, snapshot.version):
            _, added = differing_entries(self._ctx, known, snapshot)
        check_files(self._ctx, added, snapshot)

    def put_commit(self, before: Snapshot, after: Snapshot) -> None:
        """Put the actions that lead from one version to the next, or a checkpoint where they are
        many; where their number shows that, they are not loaded."""
        if abs(after.totals.files - before.totals.files) > MOST_ACTIONS:
            self.put_checkpoint(after)
            return
        with raise_if_expired(self._ctx.store, after.version):
            removed, added = differing_entries(self._ctx, before, after)
        if removed.num_rows + added.num_rows > MOST_ACTIONS:
            self.put_checkpoint(after)
            return
        data = commit_bytes(before, after, removed, added)
        put_shared(self._ctx, commit_name(after.version), data)

    def put_checkpoint(self, snapshot: Snapshot) -> None:
        data, actions = checkpoint_bytes(snapshot, self._tables(snapshot))
        put_shared(self._ctx, checkpoint_name(snapshot.version), data)
        hint = {"version": snapshot.version, "size": actions}
        self._ctx.store.put(LAST_CHECKPOINT, json_text(hint).encode())

    def _tables(self, snapshot: Snapshot) -> Iterator[pa.Table]:
        """The live entries, manifest by manifest."""
        manifests = self._ctx.manifests
        with raise_if_expired(self._ctx.store, snapshot.version):
            removed = manifests.removed(snapshot) if snapshot.manifests else {}
            for ref in snapshot.manifests:
                # read once: a table's manifests together may be more than memory holds
                yield manifests.live(ref, snapshot, removed.get(ref.path, 0), keep=False)
            yield manifests.inlined(snapshot)
