"""A manifest as an Arrow table: one row per entry, typed partition and bounds columns, sorted by
partition, then path. [OB6] [OB13] Pure: tables in, tables out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from . import values
from .entries import (
    ColumnStats,
    Entry,
    FooterRef,
    Int64,
    ManifestRef,
    Positive,
    SourceRange,
    from_rows,
)
from .fields import MAX_FIELD_ID, FieldType, Schema, Shape, WireValue, leaves, shown
from .partitioning import Matcher, PartitionPattern
from .snapshot import Totals
from .transforms import partition_fields
from .values import arrow_type

_SOURCES = pa.list_(
    pa.struct([("source", pa.string()), ("start", pa.string()), ("end", pa.string())])
)
FIXED = (
    ("path", pa.string()),
    ("rows", pa.int64()),
    ("bytes", pa.int64()),
    ("digest", pa.string()),
    ("added", pa.int64()),
    ("job", pa.string()),
    ("sources", _SOURCES),
    ("extra", pa.string()),
)
SORTED = "sorted"
# of files that other programs wrote; absent where a manifest has none
FOOTER = ("footer", pa.struct([("bytes", pa.int64()), ("digest", pa.string())]))
_COLUMN = re.compile(r"(partition|nulls|nans|min|max|cuts)\.([1-9]\d*)", re.ASCII)
_POSITION = r"^-?(0|[1-9][0-9]{0,17})$"  # the usual form; any other text is decoded as JSON
# A path that leaves the table path, is hidden, or lies in the metadata: the rule of
# format.object_names, for a whole column at once. Each is found by its first character or at the
# beginning; searching for both in one pass takes twice as long.
_UNSAFE = (r"/\.{0,2}(/|$)", r"^(\.{0,2}|(?i:_manifest))(/|$)")
_FORBIDDEN = (b"\0", b"\\")
_NOTHING = ColumnStats()


def partition_types(of: Shape) -> tuple[FieldType, ...]:
    """The partition columns' types, in order; ValueError if one is no column. [PT1]"""
    fields = partition_fields(of.schema, of.partition_by) if of.partition_by else ()
    return tuple(field.type for field in fields)


def _partitioned(of: Shape) -> Iterable[tuple[str, FieldType]]:
    """The partition columns of a manifest, and the types of their values."""
    names = (f"partition.{field_id}" for field_id in of.partition_by)
    return zip(names, partition_types(of), strict=True)


def to_table(entries: Sequence[Entry], of: Shape) -> pa.Table:
    """Build the manifest table of the entries, sorted; null is what one does not know. [OB13]"""
    return pa.table(_columns_of(entries, of)).sort_by([(key, "ascending") for key in _keys(of)])


def check_values(entries: Sequence[Entry], of: Shape) -> None:
    """ValueError if an entry holds a value that no manifest of this schema can. [OB4] [SC7]"""
    try:
        _columns_of(entries, of)
    except (UsageError, OverflowError, TypeError, pa.ArrowException) as error:
        raise ValueError(f"a value does not fit its column: {error}") from None


def _columns_of(entries: Sequence[Entry], of: Shape) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {
        "path": pa.array([entry.path for entry in entries], pa.string()),
        "rows": pa.array([entry.rows for entry in entries], pa.int64()),
        "bytes": pa.array([entry.bytes for entry in entries], pa.int64()),
        "digest": pa.array([entry.digest for entry in entries], pa.string()),
        "added": pa.array([entry.added or None for entry in entries], pa.int64()),
        "job": pa.array([entry.job for entry in entries], pa.string()),
        "sources": pa.array([_sources_out(entry) for entry in entries], _SOURCES),
        "extra": pa.array([_extra_out(entry) for entry in entries], pa.string()),
    }
    if any(entry.footer for entry in entries):
        name, kind = FOOTER
        columns[name] = pa.array([msgspec.to_builtins(each.footer) for each in entries], kind)
    for at, (name, type) in enumerate(_partitioned(of)):
        columns[name] = values.to_array([entry.partition[at] for entry in entries], type)
    known = {field_id for entry in entries for field_id in entry.columns}
    for leaf in leaves(of.schema):
        if leaf.id in known:
            stats = [entry.columns.get(leaf.id, _NOTHING) for entry in entries]
            columns |= _stats_columns(leaf.id, leaf.type, stats)
    return columns


def _extra_out(entry: Entry) -> str | None:
    members = {**entry.extra, **({SORTED: entry.sorted} if entry.sorted else {})}
    return msgspec.json.encode(members).decode() if members else None


def sorted_by(extras: pa.ChunkedArray, by: Sequence[int]) -> pa.ChunkedArray:
    """Which entries, by `extra`, have rows that are sorted by exactly these columns. [GC20]"""
    kinds = pc.unique(extras).drop_null().to_pylist()
    wanted = [text for text in kinds if _json(text, _Extra).sorted == (*by,)]
    return pc.is_in(extras, value_set=pa.array(wanted, pa.string()))


def from_table(table: pa.Table, of: Shape, *, inherited: int) -> list[Entry]:
    """The entries of a manifest's table. `inherited`: the version of those without one. [OB6]"""
    columns = _partition_values(table, of)
    stats = _stats_in(table, of.schema)
    fixed = {name: table.column(name).to_pylist() for name, _ in FIXED}
    footers = footers_in(table)
    extras = [msgspec.json.decode(text) if text else {} for text in fixed["extra"]]
    return [
        Entry(
            path=fixed["path"][row],
            partition=tuple(column[row] for column in columns),
            rows=fixed["rows"][row],
            bytes=fixed["bytes"][row],
            digest=fixed["digest"][row],
            footer=footers[row],
            added=fixed["added"][row] or inherited,
            job=fixed["job"][row],
            columns={
                field_id: column[row]
                for field_id, column in stats.items()
                if column[row] != _NOTHING
            },
            sources=source_ranges(fixed["sources"][row]),
            sorted=tuple(extras[row].pop(SORTED, ())),
            extra=extras[row],
        )
        for row in range(table.num_rows)
    ]


def totals(table: pa.Table) -> Totals:
    """What the entries of a manifest's table come to."""
    rows, size = (pc.sum(table.column(name)).as_py() or 0 for name in ("rows", "bytes"))
    return Totals(files=table.num_rows, rows=rows, bytes=size)


def describe(table: pa.Table, of: Shape) -> dict[str, Any]:
    """The reference's description of this manifest: totals, partition bounds, path bounds. [OB6]"""
    columns = [(table.column(name), kind) for name, kind in _partitioned(of)]
    ends = (pa.array(pc.min_max(column).values(), column.type) for column, _ in columns)
    bounds = [values.from_array(each, kind) for each, (_, kind) in zip(ends, columns, strict=True)]
    paths, all_of = pc.min_max(table.column("path")), totals(table)
    return {
        "files": all_of.files,
        "rows": all_of.rows,
        "data_bytes": all_of.bytes,
        "lower": tuple(low for low, _ in bounds),
        "upper": tuple(high for _, high in bounds),
        "nulls": tuple(column.null_count > 0 for column, _ in columns),
        "first_path": paths["min"].as_py(),
        "last_path": paths["max"].as_py(),
    }


def check_table(table: pa.Table, ref: ManifestRef, partition_by: Sequence[int]) -> None:
    """ValueError unless the table can be the manifest that the reference describes. [OB4] [LY1]"""
    check_columns(table.schema, table.num_rows, ref, partition_by)
    check_rows(table)


def check_columns(
    stored: pa.Schema, entries: int, ref: ManifestRef, partition_by: Sequence[int]
) -> None:
    """ValueError unless a table with these columns and rows can be this manifest. [OB4] [OB13]"""
    kinds = check_kinds(stored)
    missing = {name for name, _ in FIXED} | {f"partition.{field_id}" for field_id in partition_by}
    missing -= set(kinds)
    if missing:
        raise ValueError(f"it lacks the columns {sorted(missing)}")
    if entries != ref.files:
        raise ValueError(f"it has {entries} entries, its reference says {ref.files}")
    _check_stats(kinds)


def check_kinds(stored: pa.Schema) -> dict[str, pa.DataType]:
    """Each column's type; ValueError for another one, or a name that occurs twice. [OB13]"""
    kinds = dict(zip(stored.names, stored.types, strict=True))
    if len(kinds) != len(stored.names):
        raise ValueError("it has two columns of one name")
    for name, kind in (*FIXED, FOOTER):
        if kinds.get(name, kind) != kind:
            raise ValueError(f"its column {name!r} is {kinds[name]}, not {kind}")
    return kinds


def check_rows(table: pa.Table) -> None:
    """ValueError unless the rows can be entries; some columns may be absent. [OB4] [LY1]"""
    present = set(table.column_names)
    for name in {"path", "rows", "bytes", "job"} & present:
        if table.column(name).null_count:
            raise ValueError(f"its column {name!r} has nulls")
    for name in {"rows", "bytes"} & present:
        least = pc.min(table.column(name)).as_py()
        if least is not None and least < 0:
            raise ValueError(f"its column {name!r} has negative counts")
    if "extra" in present:
        for text in pc.unique(table.column("extra")).drop_null().to_pylist():
            _json(text, _Extra)
    if "sources" in present:
        _check_sources(table.column("sources"))
    if FOOTER[0] in present:
        _check_footers(table.column(FOOTER[0]))
    if "path" in present:
        own = [table.column(name) for name in table.column_names if name.startswith("partition.")]
        _check_paths(table.column("path"), own)


def _check_footers(footers: pa.ChunkedArray) -> None:
    """ValueError unless every footer has a length, of a file's, and a digest. [OB5]"""
    known = footers.drop_null()
    lengths, digests = (pc.struct_field(known, name) for name in ("bytes", "digest"))
    least = pc.min(lengths).as_py()
    if lengths.null_count or digests.null_count or (least is not None and least < 0):
        raise ValueError("its column 'footer' has footers without a length or a digest")


def _check_sources(ranges: pa.ChunkedArray) -> None:
    """ValueError unless all ranges name a source and go from one position to another. [OB8]"""
    for chunk in ranges.chunks:
        rows = chunk.flatten()
        if rows.null_count or any(
            rows.field(name).null_count for name in ("source", "start", "end")
        ):
            raise ValueError("its column 'sources' has nulls inside")
        for name, kind in (("start", Int64 | str | None), ("end", Int64 | str)):
            texts = rows.field(name)
            unusual = texts.filter(pc.invert(pc.match_substring_regex(texts, _POSITION)))
            for text in pc.unique(unusual).to_pylist():
                _json(text, kind)


class _Extra(msgspec.Struct):
    """The members of `extra` that this release knows."""

    sorted: tuple[Positive, ...] = ()


def _json(text: str, kind: Any) -> Any:
    """Decode a JSON text of a manifest; ValueError if it is none of its kind, or too deep."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"it holds {shown(text)}, which is not allowed there: {error}") from None


def _check_paths(paths: pa.ChunkedArray, partitions: Sequence[pa.ChunkedArray]) -> None:
    if not _are_unique(paths, partitions):
        raise ValueError("it lists a path twice")
    rules = [*_UNSAFE]
    texts = [bytes(data) for chunk in paths.chunks if (data := chunk.buffers()[2])]
    if any(char in text for text in texts for char in _FORBIDDEN):
        rules.append(r"[\x00\\]")
    for rule in rules:
        for unsafe in paths.filter(pc.match_substring_regex(paths, rule)).slice(0, 1).to_pylist():
            raise ValueError(
                f"it lists {unsafe!r}, which is not a path of a data file below the root"
            )


def _are_unique(paths: pa.ChunkedArray, partitions: Sequence[pa.ChunkedArray]) -> bool:
    """Whether every path occurs once: by their order where that tells, ten times as fast as
    counting. Within ascending paths none occurs twice; two runs share none if the runs ascend, as a
    whole or, where partitions are not in the order of their folders (2 before 10), in each
    partition."""
    if len(paths) < 2:
        return True
    ends = pc.invert(pc.less(paths[:-1], paths[1:]))
    if _runs_rise(paths, ends):
        return True
    for partition in partitions:
        ends = pc.or_(ends, pc.fill_null(pc.not_equal(partition[:-1], partition[1:]), True))
    return _runs_rise(paths, ends) or bool(pc.count_distinct(paths).as_py() == len(paths))


def _runs_rise(paths: pa.ChunkedArray, ends: pa.ChunkedArray) -> bool:
    """Whether runs of ascending paths, ordered by their first paths, ascend as a whole. Also False
    if there are too many runs for the check to pay off."""
    lasts = pc.indices_nonzero(ends).cast(pa.int64())
    if len(lasts) > len(paths) // 8:
        return False
    firsts = paths.take(pa.concat_arrays([pa.array([0], pa.int64()), pc.add(lasts, 1)]))
    order = pc.sort_indices(firsts)
    before = paths.take(pa.concat_arrays([lasts, pa.array([len(paths) - 1], pa.int64())]))
    return pc.all(pc.less(before.take(order)[:-1], firsts.take(order)[1:])).as_py() is not False


def _check_stats(stored: Mapping[str, pa.DataType]) -> None:
    """ValueError unless the statistics of each column are complete and of one shape."""
    kinds = {"nulls": pa.int64(), "nans": pa.int64(), "cuts": pa.int8()}
    for field_id in {
        int(match[2])
        for name in stored
        if (match := _COLUMN.fullmatch(name)) and match[1] != "partition"
    }:
        names = {name: f"{name}.{field_id}" for name in ("nulls", "nans", "min", "max", "cuts")}
        if missing := [name for name in names.values() if name not in stored]:
            raise ValueError(f"it lacks the columns {missing}")
        if stored[names["min"]] != stored[names["max"]] or any(
            stored[names[name]] != kind for name, kind in kinds.items()
        ):
            raise ValueError(f"its statistics of the field {field_id} have the wrong types")


def has_nan_bounds(table: pa.Table) -> bool:
    """Whether a bound is NaN, which bounds nothing; Parquet's statistics omit NaN. [OB14]"""
    named = [
        name
        for name in table.column_names
        if name.startswith(("min.", "max.")) and pa.types.is_floating(table.schema.field(name).type)
    ]
    return any(pc.any(pc.is_nan(table.column(name))).as_py() for name in named)


def known_columns(stored: Iterable[str], schema: Schema) -> list[str]:
    """The columns of a manifest that have a meaning in this schema: none of dropped columns, whose
    ids are never used again, and none that a later release added. [OB13]"""
    known, fixed = {leaf.id for leaf in leaves(schema)}, {name for name, _ in (*FIXED, FOOTER)}

    def is_known(name: str) -> bool:
        match = _COLUMN.fullmatch(name)
        if match is None:
            return name in fixed
        id = int(match[2])  # that of a transform has its column's id in it [PT4]
        return (id & MAX_FIELD_ID if match[1] == "partition" else id) in known

    return [name for name in stored if is_known(name)]


def live(table: pa.Table, removed: int) -> pa.Table:
    """The rows that no bitmap has removed. [OB9]"""
    return table.filter(is_live(removed, table.num_rows)) if removed else table


def is_live(removed: int, rows: int) -> pa.BooleanArray:
    """For each row, whether no bitmap has removed it. [OB9]"""
    packed = pa.py_buffer(removed.to_bytes((rows + 7) // 8, "little"))
    return pc.invert(pa.Array.from_buffers(pa.bool_(), rows, [None, packed]))


def with_versions(table: pa.Table, inherited: int) -> pa.Table:
    """The table with each entry's version, without which it must not leave its reference. [OB6]"""
    if "added" not in table.column_names:
        return table
    index = table.column_names.index("added")
    return table.set_column(index, "added", pc.fill_null(table.column("added"), inherited))


def align(table: pa.Table, of: Shape) -> pa.Table:
    """The columns of this schema, in its types; bounds of dropped columns are removed. [OB13]"""
    return _aligned(table, _kinds(of), of.schema)


def _kinds(of: Shape) -> dict[str, pa.DataType]:
    """The columns of a manifest that have the type of a column of the schema."""
    kinds = {
        f"{name}.{leaf.id}": arrow_type(leaf.type)
        for leaf in leaves(of.schema)
        for name in ("min", "max")
    }
    return kinds | {name: arrow_type(kind) for name, kind in _partitioned(of)}


def _aligned(table: pa.Table, kinds: dict[str, pa.DataType], schema: Schema) -> pa.Table:
    names = known_columns(table.column_names, schema)
    wanted = pa.schema(
        [pa.field(name, kinds.get(name, table.schema.field(name).type)) for name in names]
    )
    known = table.select(names).replace_schema_metadata(None)
    return known if known.schema.equals(wanted) else known.cast(wanted)


def unite(tables: Sequence[pa.Table], of: Shape) -> pa.Table:
    """Merge manifests into one sorted table; bounds that one lacks are null. [OB13]"""
    together, keys = stack(tables, of), _keys(of)
    if is_sorted(together, keys):
        return together
    # a table in one piece is read five times as fast
    return together.combine_chunks().sort_by([(key, "ascending") for key in keys])


def stack(tables: Sequence[pa.Table], of: Shape) -> pa.Table:
    """Concatenate tables in the order of their first rows: sorted if none overlap. [OB13]"""
    kinds = _kinds(of)
    parts = [_aligned(table, kinds, of.schema) for table in tables]
    filled, keys = [part for part in parts if part.num_rows], _keys(of)
    if len(filled) > 1:
        firsts = pa.concat_tables([part.select(keys).slice(0, 1) for part in filled])
        order = pc.sort_indices(firsts, [(key, "ascending") for key in keys])
        filled = [filled[at] for at in order.to_pylist()]
    return pa.concat_tables(
        filled + [part for part in parts if not part.num_rows], promote_options="default"
    )


def _keys(of: Shape) -> list[str]:
    """The sort keys of a manifest."""
    return [*(f"partition.{field_id}" for field_id in of.partition_by), "path"]


def is_sorted(table: pa.Table, keys: Sequence[str]) -> bool:
    """Whether the rows are sorted so, nulls last. False may mean: expensive to decide."""
    if table.num_rows < 2:
        return True
    rises: pa.ChunkedArray | pa.BooleanScalar = pa.scalar(True)  # where all keys are equal
    for key in reversed(keys):
        column = table.column(key)
        before, after = column[:-1], column[1:]
        less, equal = (pc.fill_null(is_so(before, after), False) for is_so in (pc.less, pc.equal))
        if column.null_count:
            less = pc.or_(less, pc.and_(pc.is_valid(before), pc.is_null(after)))
            equal = pc.or_(equal, pc.and_(pc.is_null(before), pc.is_null(after)))
        rises = pc.or_(less, pc.and_(equal, rises))
    return bool(pc.all(rises).as_py())


def rows_matching(
    table: pa.Table, of: Shape, *, scope: Matcher | None, paths: frozenset[str]
) -> int:
    """The bitmap of entries with a partition in `scope` or a path in `paths`. [CF3] [CF7]"""
    rows: list[int] = []
    if paths:
        listed = pc.is_in(table.column("path"), value_set=pa.array(sorted(paths), pa.string()))
        rows += pc.indices_nonzero(listed.combine_chunks()).to_pylist()
    if scope is not None:
        rows += [at for at, each in enumerate(partitions(table, of)) if scope.holds(each)]
    return from_rows(rows)


def partitions(table: pa.Table, of: Shape) -> Iterable[PartitionPattern]:
    """The partition of every entry, as patterns with a value for each field."""
    if not of.partition_by:
        return [{} for _ in range(table.num_rows)]
    rows = zip(*_partition_values(table, of), strict=True)
    return (dict(zip(of.partition_by, row, strict=True)) for row in rows)


def _partition_values(table: pa.Table, of: Shape) -> list[list[WireValue]]:
    """Of each partition column the value in every entry."""
    return [values.from_array(table.column(name), kind) for name, kind in _partitioned(of)]


def _stats_columns(
    field_id: int, kind: FieldType, stats: Sequence[ColumnStats]
) -> dict[str, pa.Array]:
    return {
        f"nulls.{field_id}": pa.array([stat.nulls for stat in stats], pa.int64()),
        f"nans.{field_id}": pa.array([stat.nans for stat in stats], pa.int64()),
        f"min.{field_id}": values.to_array([stat.min for stat in stats], kind),
        f"max.{field_id}": values.to_array([stat.max for stat in stats], kind),
        f"cuts.{field_id}": pa.array(
            [each.min_cut + 2 * each.max_cut for each in stats], pa.int8()
        ),
    }


def _stats_in(table: pa.Table, schema: Schema) -> dict[int, list[ColumnStats]]:
    columns = {}
    for leaf in leaves(schema):
        if f"min.{leaf.id}" not in table.column_names:
            continue
        nulls, nans, cuts = (
            table.column(f"{name}.{leaf.id}").to_pylist() for name in ("nulls", "nans", "cuts")
        )
        low, high = (
            values.from_array(table.column(f"{n}.{leaf.id}"), leaf.type) for n in ("min", "max")
        )
        rows = zip(nulls, nans, low, high, (cut or 0 for cut in cuts), strict=True)
        columns[leaf.id] = [
            ColumnStats(nulls=n, nans=m, min=lo, max=hi, min_cut=bool(c & 1), max_cut=bool(c & 2))
            for n, m, lo, hi, c in rows
        ]
    return columns


def footers_in(table: pa.Table) -> list[FooterRef | None]:
    """The footer of each entry of a manifest's table, as far as entries have one. [OB13]"""
    name, _ = FOOTER
    if name not in table.column_names:
        return [None] * table.num_rows
    return [None if row is None else FooterRef(**row) for row in table.column(name).to_pylist()]


def _sources_out(entry: Entry) -> list[tuple[str, bytes, bytes]] | None:
    if not entry.sources:
        return None
    json = msgspec.json.encode
    return [(r.source, json(r.start), json(r.end)) for r in entry.sources]


def source_ranges(rows: list[dict[str, str]] | None) -> tuple[SourceRange, ...]:
    """The source ranges of one entry, from its row of the column `sources`. [OB8] [OB13]"""
    json = msgspec.json.decode
    return tuple(
        SourceRange(source=row["source"], **{end: json(row[end]) for end in ("start", "end")})
        for row in rows or ()
    )
