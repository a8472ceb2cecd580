"""Changes of a table that add no data: creation, columns, properties. [SC6] [CM9] [CM13]"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ..core import partition
from ..core.change import Change
from ..core.evolution import SchemaEdit, assign_new_ids
from ..core.schema import Schema, type_text
from ..errors import SchemaMismatchError, UsageError
from .commit import commit, create_table
from .files import BLOOM_COLUMNS, BOUNDS_COLUMNS, TARGET_FILE_SIZE, bloom_names, takes_bloom_filter
from .head import Head
from .outcome import Outcome
from .roots import open_or_free
from .session import Session

KNOWN = (TARGET_FILE_SIZE, BOUNDS_COLUMNS, BLOOM_COLUMNS)  # the properties that mean something to this release
Editing = Callable[[Schema, tuple[int, ...]], tuple[SchemaEdit, ...]]


def create(session: Session, schema: Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> Head:
    """A table with this schema: made by this call, or there already with columns of the same names. [CM13]"""
    _check_properties(properties, schema)
    head = open_or_free(session)
    if head is None:
        identified = assign_new_ids(schema, session.new_field_id)
        chosen = partition.check_partition_by(identified, partition_by)
        head = create_table(session, schema=identified, partition_by=chosen, properties=dict(properties))
    _check_same(session, head, schema, partition_by)
    return head


def _check_same(session: Session, head: Head, schema: Schema, partition_by: Sequence[str]) -> None:
    found = head.snapshot.schema
    columns = [(field.name, type_text(field.type)) for field in schema.fields]
    there = [(field.name, type_text(field.type)) for field in found.fields] if found else []
    if columns != there:
        other = next((pair for pair in zip_longest(columns, there) if pair[0] != pair[1]), None)
        raise SchemaMismatchError(f"{session.store.url} is a table already, with other columns (first: {other}); nothing was changed")
    assert found is not None
    if partition.check_partition_by(found, partition_by) != head.snapshot.partition_by:
        raise SchemaMismatchError(f"{session.store.url} is a table already, with another partitioning; nothing was changed")


def edit_schema(session: Session, edit: Editing) -> Outcome:
    """Change the columns in a commit of its own; a conflict where a winner's edits do not commute with them. [SC6] [CF8]"""
    head = session.open()
    if head.snapshot.schema is None:
        raise UsageError(f"{session.store.url} has no columns yet")
    edits = edit(head.snapshot.schema, head.snapshot.partition_by)
    if not edits:  # it is as asked for already
        return Outcome(kind="already_committed", job_id=head.snapshot.commits[-1].job, version=head.version)
    return commit(session, head, _change(session, head, "schema", edits=edits))


def set_properties(session: Session, properties: Mapping[str, str | None]) -> Outcome:
    """Set properties, or take away those given as None, in a commit of its own; the last one wins. [CM9]"""
    head = session.open()
    _check_properties(properties, head.snapshot.schema)
    return commit(session, head, _change(session, head, "properties", properties=dict(properties)))


def _change(
    session: Session,
    head: Head,
    operation: str,
    *,
    edits: tuple[SchemaEdit, ...] = (),
    properties: Mapping[str, str | None] | None = None,
) -> Change:
    job = session.new_job(head)
    return Change(job=job, birth=head.version, operation=operation, edits=edits, properties=dict(properties or {}))


def _check_properties(properties: Mapping[Any, Any], schema: Schema | None) -> None:
    for name, value in properties.items():
        if not (isinstance(name, str) and (value is None or isinstance(value, str))):
            raise UsageError(f"a property is a text with a text as its value, not {name!r}: {value!r}")
        if not name.startswith("write."):
            continue
        if name not in KNOWN:
            raise UsageError(f"there is no property {name!r}; of those that begin with write. there are: {', '.join(KNOWN)}")
        if name == BLOOM_COLUMNS:
            _check_bloom_columns(value or "", schema)
        elif value is not None and not (value.isascii() and value.isdecimal() and int(value) > 0):
            raise UsageError(f"property {name!r} is a number above 0, not {value!r}")


def _check_bloom_columns(value: str, schema: Schema | None) -> None:
    """The value names columns of the table that can have a Bloom filter. [DF11]"""
    fields = {field.name: field for field in schema.fields} if schema is not None else {}
    for column in bloom_names(value):
        if column not in fields:
            raise UsageError(f"property {BLOOM_COLUMNS!r} names {column!r}, which is no column of the table (several are split by commas)")
        if not takes_bloom_filter(fields[column]):
            kind = type_text(fields[column].type)
            raise UsageError(
                f"property {BLOOM_COLUMNS!r} names {column!r}, a {kind}: there are Bloom filters of whole numbers, texts, bytes, dates and "
                "timestamps only, without a collation"
            )
