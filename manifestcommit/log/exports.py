"""The hook by which a commit is followed by its exports, and gc spares them. [EX2] [EX4]

What is exported, and how, is decided above the engine, by the registered `Exporter`, which is
loaded only for a table that has the property `export.formats`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Protocol

import msgspec

from ..format.fields import Schema
from ..format.snapshot import Snapshot
from ..store import ObjectInfo
from . import export_hook
from .table_context import TableContext
from .version_chain import Head

LOG = logging.getLogger("manifestcommit.jobs")
PROPERTY = "export.formats"
_FOLDERS = ("_iceberg/", "_delta_log/", "_spark_catalog/")
_OBJECT = re.compile(
    r"_iceberg/metadata/(?:version-hint\.text|v[1-9]\d*\.metadata\.json"
    r"|snap-\d{20}-[0-9a-f]{40}\.avro|m-[0-9a-f]{40}-[0-9a-f]{16}\.avro)"
    r"|_delta_log/(?:_last_checkpoint|\d{20}\.(?:json|checkpoint\.parquet))"
    r"|_spark_catalog/(?:_temporary|not-a-table\.parquet|_spark_metadata/999999999\.compact)",
    re.ASCII,
)


class ExportLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far an export is behind the table. version: the newest one that it shows; behind: how
    many versions that is; age_s: seconds since the first version that it lacks was committed, 0.0
    if it lacks none. None: there is no export."""

    version: int | None = None
    behind: int | None = None
    age_s: float | None = None


class Exporter(Protocol):
    """Exports tables to the formats of other engines. Its calls are those of this module."""

    def export_formats(self, ctx: TableContext, head: Head) -> object: ...

    def check_formats(
        self, ctx: TableContext, snapshot: Snapshot | None, schema: Schema | None, value: str
    ) -> None: ...

    def lags(self, ctx: TableContext, snapshot: Snapshot) -> dict[str, ExportLag]: ...

    def keep_whole(self, ctx: TableContext, decided: Snapshot) -> None: ...

    def unreached(
        self, ctx: TableContext, decided: Snapshot, cut_s: float
    ) -> Iterator[tuple[ObjectInfo, str]]: ...


def is_export(name: str) -> bool:
    """Whether an object has a name that only exports have. [EX4]"""
    return name.startswith(_FOLDERS) and _OBJECT.fullmatch(name) is not None


def after_commit(ctx: TableContext) -> None:
    """Export the newest version that this process knows. A failed export never fails the commit.
    Without the property, nothing is asked or loaded. [EX2]"""
    head = ctx.known
    if head is None or PROPERTY not in head.snapshot.properties:
        return
    export_hook.registered()  # outside `try`: without an exporter no export is ever made
    try:
        _exporter().export_formats(ctx, head)
    except Exception as error:
        LOG.warning(
            "%r: version %d is committed, and its export failed: %s. The next commit, or "
            "`manifestcommit export`, exports it.",
            ctx.store.url,
            head.version,
            error,
        )


def check_property(
    ctx: TableContext, snapshot: Snapshot | None, schema: Schema | None, value: str
) -> None:
    """UsageError or UnsupportedTypeError if the value names no formats, or one that cannot express
    the table. snapshot: None: the table is to be created. [EX9]"""
    _exporter().check_formats(ctx, snapshot, schema, value)


def lags(ctx: TableContext, snapshot: Snapshot) -> dict[str, ExportLag]:
    """Format of the property -> how far its export is behind. At most two requests for each, and
    one more where it is behind. [EX2]"""
    if PROPERTY not in snapshot.properties:
        return {}
    return _exporter().lags(ctx, snapshot)


def before_deletion(ctx: TableContext, decided: Snapshot) -> None:
    """Export the newest version of a table with the property; StoreError, if after that an export
    still shows a version that is no longer readable: then nothing may be deleted. [EX4]"""
    if PROPERTY in decided.properties:
        _exporter().keep_whole(ctx, decided)


def unreached(
    ctx: TableContext, decided: Snapshot, cut_s: float
) -> Iterator[tuple[ObjectInfo, str]]:
    """Objects of exports that no exported version needs, and have been so since before `cut_s`,
    each with the reason. One list request for each format where there is nothing. [EX4]"""
    yield from _exporter().unreached(ctx, decided, cut_s)


def _exporter() -> Exporter:
    exporter: Exporter = export_hook.registered()()
    return exporter
