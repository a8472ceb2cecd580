"""Exports of a table: what users, commits and gc ask for, for each format. [EX1] [EX2] [EX4]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from ..display import ReprMixin
from ..errors import StoreError, UsageError
from ..format import object_names
from ..format.fields import Schema, check_has_columns
from ..format.snapshot import Snapshot
from ..log.table_context import EXPORT_FORMATS, Exporter, ExportLag, TableContext
from ..log.version_chain import Head, next_state, read_object
from ..protocol.conflict import is_readable
from ..runtime.environment import STARTS
from ..scan.planning import entries_table
from ..store import ObjectInfo
from . import delta_export, iceberg_export, spark_catalog

if TYPE_CHECKING:  # this module is one
    from . import exporter as _this

    _EXPORTER: Exporter = _this


class Export(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """What one export has put beside the table.

    Attributes:
        format: "iceberg", "delta" or "spark-catalog".
        version: the newest version that readers of the format see.
        location: what to give them: the folder that holds the format's metadata.

    Spec: EX1.
    """

    format: str
    version: int
    location: str


FORMATS: dict[str, ModuleType] = {
    "iceberg": iceberg_export,
    "delta": delta_export,
    "spark-catalog": spark_catalog,
}


def export_format(ctx: TableContext, head: Head, format: str) -> Export:
    """Export the head in one format, or what is committed meanwhile: two of them have one object
    that says which version is shown, and who is slow would show an older one again. [EX2]"""
    exporter = FORMATS[format]
    for _ in range(STARTS):
        check_has_columns(head.snapshot.schema, ctx.store.url)
        version = exporter.export(ctx, head)
        if exporter is delta_export or (newest := ctx.open()).version <= version:
            break
        head = newest
    return Export(format=format, version=version, location=exporter.location(ctx.store))


def export_formats(ctx: TableContext, head: Head) -> list[Export]:
    """Export the head in every format of its property; one that fails holds up no other."""
    made, failed = [], None
    for format in _known_formats(head.snapshot):
        try:
            made.append(export_format(ctx, head, format))
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return made


def check_formats(ctx: TableContext, snapshot: Snapshot | None, schema: Schema, value: str) -> None:
    """UsageError or UnsupportedTypeError if the value names no formats, or one that cannot express
    the table as it is. snapshot: None: the table is to be created. [EX9]"""
    names = [name.strip() for name in value.split(",")]
    if not {*names} <= {*FORMATS} or len(set(names)) < len(names):
        known = ", ".join(sorted(FORMATS))
        raise UsageError(
            f"property {EXPORT_FORMATS!r} names formats, split by commas, each once: {known}; "
            f"not {value!r}"
        )
    for format in names:
        exporter = FORMATS[format]
        exporter.check(ctx, schema)
        if snapshot is not None:
            exporter.check_owner(ctx, snapshot)
            exporter.check_files(ctx, entries_table(ctx, snapshot, in_order=False), snapshot)


def lags(ctx: TableContext, snapshot: Snapshot) -> dict[str, ExportLag]:
    """Format -> how far its export is behind. [EX2]"""
    return {format: _lag(ctx, snapshot, format) for format in _known_formats(snapshot)}


def _lag(ctx: TableContext, snapshot: Snapshot, format: str) -> ExportLag:
    version = FORMATS[format].exported_version(ctx.store, snapshot.version)
    if version is None:
        return ExportLag()
    behind, age_s = max(0, snapshot.version - version), 0.0
    if behind:
        state = next_state(snapshot, max(version + 1, snapshot.expired))
        lacking = read_object(ctx.store, state)
        since_us = (snapshot if lacking is None else lacking.snapshot).committed_at
        age_s = round(max(0.0, (ctx.env.now_us() - since_us) / 1e6), 3)
    return ExportLag(version=version, behind=behind, age_s=age_s)


def keep_whole(ctx: TableContext, decided: Snapshot) -> None:
    """Export the newest version in the formats of the property. StoreError if an export then shows
    a version that gc may delete files of. [EX4]"""
    failure: Exception | None = None
    for format in _known_formats(decided):
        exporter = FORMATS[format]
        try:
            head = ctx.open()
            export_format(ctx, head, format)
            # the others name files of one version, or of readable ones
            if exporter is delta_export:
                delta_export.before_deletion(ctx, head)
        except Exception as error:
            failure = error
        shown = exporter.exported_version(ctx.store, decided.version)
        if shown is None or shown > decided.version or is_readable(decided, shown):
            continue
        raise StoreError(
            f"{ctx.store.url}: the export to {format} shows version {shown}, which is not "
            f"readable any more, and a newer one could not be exported: {failure}. gc deleted "
            f"nothing. Remove the cause, or the property {EXPORT_FORMATS!r} if nobody reads the "
            "export."
        ) from failure


def unreached(
    ctx: TableContext, decided: Snapshot, cut_s: float
) -> Iterator[tuple[ObjectInfo, str]]:
    """Objects of exports that no exported version needs any more. [EX4]"""
    exported = _known_formats(decided)
    for format, exporter in FORMATS.items():

        def is_dead(shown: int, is_exported: bool = format in exported) -> bool:
            return not is_exported and _was_unreadable(ctx, decided, shown, cut_s)

        yield from exporter.unreached(ctx, decided, cut_s, is_dead)


def _was_unreadable(ctx: TableContext, decided: Snapshot, version: int, cut_s: float) -> bool:
    """Whether a version was not readable at `cut_s` already: no exporter builds on it now. [EX4]"""
    if is_readable(decided, version):
        return False
    name = object_names.version_name(decided.expired)
    there = [info for info in ctx.store.list(name) if info.name == name]
    oldest = read_object(ctx.store, decided.expired)
    is_old = any(0 < info.modified <= cut_s for info in there)
    return oldest is not None and is_old and not is_readable(oldest.snapshot, version)


def _known_formats(snapshot: Snapshot) -> Sequence[str]:
    """The formats of the property, those that this release knows."""
    names = snapshot.properties.get(EXPORT_FORMATS, "").split(",")
    return [name.strip() for name in names if name.strip() in FORMATS]
