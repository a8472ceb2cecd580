"""Changes of a table that add no data: creation, columns, properties. [SC6] [CM9] [CM13]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from ..commits.commit_loop import commit, create_table
from ..errors import ManifestCommitError, SchemaMismatchError, UsageError
from ..files.writer import (
    BLOOM_COLUMNS,
    BOUNDS_COLUMNS,
    TARGET_FILE_SIZE,
    bloom_names,
    takes_bloom_filter,
)
from ..format import partitioning, values
from ..format.change import Advance, Position, Write
from ..format.evolution import Editing, SchemaEdit, apply_edits, fit, replaces_files
from ..format.fields import (
    FieldType,
    Schema,
    assign_new_ids,
    check_has_columns,
    is_text,
    is_unicode,
    parse_type,
    shown,
    type_text,
    walk,
)
from ..format.snapshot import AUTHOR_PROPERTY, ROW_TRIES_PROPERTY, Snapshot, parts_of
from ..log.table_context import EXPORT_FORMATS, TableContext, exporter, gate, open_or_free
from ..log.version_chain import Head
from ..protocol.apply import MISSING_COLUMNS
from ..runtime.outcome import Outcome, committed_or_raise
from ..runtime.validation import origins_of
from .upkeep_properties import SORT_BY, UPKEEP, check_unsorted, check_upkeep, property_fields

# the properties that have a meaning in this release
KNOWN = (
    TARGET_FILE_SIZE,
    BOUNDS_COLUMNS,
    BLOOM_COLUMNS,
    MISSING_COLUMNS,
    ROW_TRIES_PROPERTY,
    AUTHOR_PROPERTY,
    EXPORT_FORMATS,
    *UPKEEP,
    SORT_BY,
)


def create(
    ctx: TableContext,
    schema: Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    sources: Mapping[str, Position] | None = None,
    rank: int | None = None,
    *,
    exist_ok: bool = False,
    constraints: Mapping[str, str] | None = None,
) -> Head:
    """Create a table with this schema, or return an existing one with the same columns. exist_ok:
    it may have more columns, and wider ones; sources: where each of them begins, so that no later
    range can be committed first [WM7]; rank: its place among the tables of a joint commit, None: 0,
    or what an existing one has [MT2]; constraints: name -> condition, which an existing one has to
    have, too. [CM13] [CK1]"""
    _check_properties(ctx, properties, schema, None, partition_by)
    origins = origins_of(sources)
    head = open_or_free(ctx)
    if head is None:
        identified = assign_new_ids(schema, ctx.new_field_id)
        chosen = partitioning.check_partition_by(identified, partition_by)
        bound = gate().bind(ctx, constraints, identified) if constraints else {}
        head = create_table(
            ctx,
            schema=identified,
            partition_by=chosen,
            properties=dict(properties),
            sources=origins,
            rank=rank or 0,
            constraints=bound,
        )
    _check_same(ctx, head, schema, partition_by, exist_ok=exist_ok)
    _check_constraints(ctx, head, constraints or {})
    if rank is not None and rank != head.snapshot.rank:
        raise UsageError(
            f"{ctx.store.url}: rank cannot be changed (is {head.snapshot.rank}, got {rank}): "
            "the order of tables keeps joint commits from waiting for each other. Nothing was "
            "changed. Create a new table with that rank, and copy the rows into it."
        )
    return _declare(ctx, head, origins)


def _declare(ctx: TableContext, head: Head, origins: Mapping[str, Position]) -> Head:
    """A version with these sources' origins. A commit if the table lacks one. [WM7]"""
    _check_origins(ctx, head, origins)
    known = head.snapshot.origins
    new = {source: origin for source, origin in origins.items() if source not in known}
    unplaced = next((source for source, origin in new.items() if origin is None), None)
    if unplaced is not None:
        raise UsageError(
            f"{ctx.store.url} is a table already, and does not know source {unplaced!r}; that "
            "a source begins at None can only be declared with a new table. Nothing was changed"
        )
    if not new:
        return head
    advances = tuple(
        Advance(source=source, start=origin, end=origin)
        for source, origin in new.items()
        if origin is not None
    )
    job = ctx.new_job(head)
    change = Write(job=job, birth=head.version, operation="append", advances=advances)
    committed_or_raise(commit(ctx, head, change), ctx.store.url)
    head = ctx.open()
    # another job may have been faster and have reached exactly this position
    _check_origins(ctx, head, origins)
    return head


def _check_origins(ctx: TableContext, head: Head, origins: Mapping[str, Position]) -> None:
    """UsageError if the table records another beginning of one of these sources. [WM7]"""
    known = head.snapshot.origins
    for source, origin in origins.items():
        if source in known and known[source] != origin:
            raise UsageError(
                f"{ctx.store.url} is a table already, in which source {source!r} begins at "
                f"{known[source]!r}, not at {origin!r}; no source was changed"
            )


def _check_same(
    ctx: TableContext, head: Head, schema: Schema, partition_by: Sequence[str], *, exist_ok: bool
) -> None:
    existing = head.snapshot.schema
    columns, there = (
        [(field.name, type_text(field.type)) for field in each.fields]
        for each in (schema, existing)
    )
    if exist_ok:
        try:
            fit(existing, schema, merge=False)
        except SchemaMismatchError as error:
            raise SchemaMismatchError(
                f"{ctx.store.url} is a table already, and rows of the given columns do not fit "
                f"it: {error}"
            ) from None
    elif columns != there:
        other = next((pair for pair in zip_longest(columns, there) if pair[0] != pair[1]), None)
        raise SchemaMismatchError(
            f"{ctx.store.url} is a table already, with other columns (first: {other}); "
            "nothing was changed. If columns were added or widened since, give exist_ok=True"
        )
    if partitioning.check_partition_by(existing, partition_by) != head.snapshot.partition_by:
        raise SchemaMismatchError(
            f"{ctx.store.url} is a table already, with another partitioning; nothing was changed"
        )


def _check_constraints(ctx: TableContext, head: Head, constraints: Mapping[str, str]) -> None:
    there = {name: each.condition for name, each in head.snapshot.constraints.items()}
    for name, text in constraints.items():
        if there.get(name) != text:
            raise UsageError(
                f"{ctx.store.url} is a table already, without the constraint {name!r} ({text}); "
                "nothing was changed. Table.add_constraint adds it, once all rows are found to "
                "keep it."
            )


def type_of(name: str, type: str | pa.DataType) -> FieldType:
    """The type of a column, as a schema holds it."""
    if isinstance(type, str):
        return parse_type(type)
    return values.from_arrow(pa.schema([(name, type)])).fields[0].type


def edit_schema(ctx: TableContext, edit: Editing, default: Any = None) -> Outcome:
    """Change the columns with a commit of its own; it conflicts with concurrent edits that do not
    commute with it. default: of the column that is added, in all rows. [SC6] [CF8] [SC11]"""
    head = ctx.open()
    check_has_columns(head.snapshot.schema, ctx.store.url)
    edits = edit(head.snapshot.schema, head.snapshot.partition_by)
    if not edits:  # the schema is as requested already
        job = head.snapshot.commits[-1].job
        return Outcome(kind="already_committed", job_id=job, version=head.version)
    check_edits(ctx, head.snapshot, edits)
    if default is not None or replaces_files(head.snapshot.schema, edits):
        from ..rows.where import rewrite_all  # late: most changes of columns rewrite nothing

        return rewrite_all(ctx, edit, default)
    job = ctx.new_job(head)
    return commit(ctx, head, Write(job=job, birth=head.version, operation="schema", edits=edits))


def check_edits(ctx: TableContext, snapshot: Snapshot, edits: tuple[SchemaEdit, ...]) -> None:
    """UsageError where the table's order names a column that is to be dropped or renamed, a
    constraint names one that is to be dropped, or could not be evaluated any more, or an export
    could not go on. [GC20] [CK3] [EX9]"""
    check_unsorted(snapshot, {edit.id for edit in edits if edit.kind in ("drop", "rename")})
    edited = apply_edits(snapshot.schema, edits)
    _check_exports(ctx, snapshot, edited)
    if not snapshot.constraints:
        return
    known = {field.id for _, field in walk(edited.fields)}
    lost = {f.id: ".".join(at) for at, f in walk(snapshot.schema.fields) if f.id not in known}
    for name, text in gate().texts_of(snapshot).items():
        named = [lost[id] for id in snapshot.constraints[name].columns.values() if id in lost]
        if named:
            raise UsageError(
                f"{ctx.store.url}: the constraint {name!r} ({text}) names the column "
                f"{named[0]!r}; nothing was changed. Drop the constraint first: "
                f"Table.drop_constraint({name!r})."
            )
    gate().check_schema(snapshot, edited)


def _check_exports(ctx: TableContext, snapshot: Snapshot, edited: Schema) -> None:
    """The error of an export that could express the columns, and could not express the edited ones.
    One that is stopped already stops no edit: that may be what mends it. [EX9]"""
    formats = snapshot.properties.get(EXPORT_FORMATS)
    if formats is None:
        return
    try:
        exporter().check_formats(ctx, None, snapshot.schema, formats)
    except ManifestCommitError:
        return
    exporter().check_formats(ctx, None, edited, formats)


def partitioned(names: Sequence[str], snapshot: Snapshot) -> tuple[int, ...]:
    """What these names partition the table by; UsageError where that cannot be. [SC13] [GC20]"""
    by = partitioning.check_partition_by(snapshot.schema, names)
    check_unsorted(snapshot, by)
    return by


def set_properties(ctx: TableContext, properties: Mapping[str, str | None]) -> Outcome:
    """Set properties, or remove those that are None, in a commit; the last one wins. [CM9]"""
    head = ctx.open()
    schema, by = head.snapshot.schema, head.snapshot.partition_by
    partitions = [field.name for field in schema.fields if field.id in by]
    _check_properties(ctx, properties, schema, head.snapshot, partitions)
    job, new = ctx.new_job(head), dict(properties)
    change = Write(job=job, birth=head.version, operation="properties", properties=new)
    return commit(ctx, head, change)


def _check_properties(
    ctx: TableContext,
    properties: Mapping[Any, Any],
    schema: Schema,
    snapshot: Snapshot | None,
    partition_by: Sequence[str],
) -> None:
    for name, value in properties.items():
        is_one = value is None or (isinstance(value, str) and is_unicode(value))
        if not (is_text(name) and is_one):
            raise UsageError(
                "properties: a property is a text with a text as its value, not "
                f"{shown(name)}: {shown(value)}"
            )
        start = name.partition(".")[0]
        if start not in ("write", "export", "gc", "maintain", "layout"):
            continue
        if name not in KNOWN:
            raise UsageError(
                f"there is no property {name!r}; of those that begin with {start}. there are: "
                f"{', '.join(known for known in KNOWN if known.startswith(start))}"
            )
        if value is None:  # it is removed
            continue
        if name == EXPORT_FORMATS:
            exporter().check_formats(ctx, snapshot, schema, value)
        elif name == BLOOM_COLUMNS:
            _check_bloom_columns(value, schema)
        elif name == AUTHOR_PROPERTY:
            _check_author_parts(value)
        elif name == MISSING_COLUMNS:
            if value not in ("error", "null"):
                raise UsageError(f'property {name!r} is "error" or "null", not {shown(value)}')
        elif name in UPKEEP:
            check_upkeep(name, value)
        elif name == SORT_BY:
            property_fields(value, schema, partition_by)
        elif not (value.isascii() and value.isdecimal() and int(value) > 0):
            raise UsageError(f"property {name!r} is a number above 0, not {shown(value)}")


def _check_author_parts(value: str) -> None:
    try:
        parts_of(value)
    except ValueError as error:
        raise UsageError(f"property {AUTHOR_PROPERTY!r} is {shown(value)}: {error}") from None


def _check_bloom_columns(value: str, schema: Schema) -> None:
    """Check that the value names columns of the table that can have a Bloom filter. [DF11]"""
    fields = {field.name: field for field in schema.fields}
    for column in bloom_names(value):
        if column not in fields:
            raise UsageError(
                f"property {BLOOM_COLUMNS!r} names {column!r}, which is no column of the "
                "table (several are split by commas)"
            )
        if not takes_bloom_filter(fields[column]):
            kind = type_text(fields[column].type)
            raise UsageError(
                f"property {BLOOM_COLUMNS!r} names {column!r}, a {kind}: there are Bloom filters "
                "of whole numbers, texts, bytes, dates and timestamps only, without a collation"
            )
