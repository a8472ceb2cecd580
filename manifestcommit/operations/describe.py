"""Describes versions and commits in plain values, for people and `--json`. [OB2] [OB10]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..display import relative_path
from ..format.fields import Field, type_text, walk
from ..format.snapshot import Commit, Snapshot, known_parts
from ..format.spark_json import comment_of
from ..log.time_travel import to_datetime
from ..protocol.conflict import describe_touch
from ..protocol.joint_outcome import share_of


def describe(snapshot: Snapshot, url: str) -> dict[str, Any]:
    """A version in plain values, as `Table.describe` and the `describe` command return it.
    [OB2]"""
    fields = snapshot.schema.fields if snapshot.schema else ()
    names = {field.id: field.name for field in fields}
    return {
        "url": url,
        "version": snapshot.version,
        "committed_at": to_datetime(snapshot.committed_at).isoformat(),
        "table_id": snapshot.table_id,
        "format_version": snapshot.format_version,
        "writer": snapshot.writer,
        "files": snapshot.totals.files,
        "rows": snapshot.totals.rows,
        "bytes": snapshot.totals.bytes,
        "partition_by": [names[field_id] for field_id in snapshot.partition_by],
        "sources": len(snapshot.watermarks),
        "streams": {
            name: {"query": record.query, "batch": record.batch, "version": record.version}
            for name, record in snapshot.streams.items()
        },
        "oldest_readable_version": snapshot.expired,
        "fence": snapshot.fence,
        "tags": {
            name: {
                "version": tag.version,
                "until": None if tag.until is None else to_datetime(tag.until).isoformat(),
            }
            for name, tag in snapshot.tags.items()
        },
        "properties": snapshot.properties,
        "constraints": _constraints(snapshot),
        "joint": joint_of(snapshot, url),
        "rank": snapshot.rank,
        "decided_by": sorted(record.root for record in snapshot.homes.values()),
        "decides_for": sorted(record.root for record in snapshot.joint.values()),
        "columns": [_column(field) for field in fields],
        "commits": [
            {
                "job": commit.job,
                "operation": commit.operation,
                "key": commit.key,
                "reason": commit.reason,
                **said_of(commit),
                "touched": [describe_touch(snapshot, touch) for touch in commit.touched],
                "summary": values(commit.summary),
            }
            for commit in snapshot.commits
        ],
    }


def _constraints(snapshot: Snapshot) -> dict[str, Any]:
    """Name -> the condition, and what the table calls each column of it."""
    fields = snapshot.schema.fields if snapshot.schema else ()
    columns = {field.id: ".".join(path) for path, field in walk(fields)}
    return {
        name: {
            "condition": each.condition,
            "columns": {text: columns.get(id) for text, id in each.columns.items()},
        }
        for name, each in sorted(snapshot.constraints.items())
    }


def _column(field: Field) -> dict[str, Any]:
    return {
        "id": field.id,
        "name": field.name,
        "type": type_text(field.type),
        "nullable": field.nullable,
        "comment": comment_of(field),
    }


def said_of(commit: Commit) -> dict[str, Any]:
    """Who made a commit and what for: `message`, `metadata`, and the parts of `author` that are
    known. [OB15]"""
    return {
        "message": commit.message,
        "metadata": dict(commit.metadata),
        "author": known_parts(commit.author),
    }


def joint_of(snapshot: Snapshot, url: str) -> dict[str, Any] | None:
    """The joint commit that a version is part of, None: of none: `decided_by`, the table that
    decided; `attempt`; `partners`, the other tables that the version names, each with its version,
    None: it does not say. [MT3] [MT4]"""
    share = share_of(snapshot)
    if share is None:
        return None
    return {
        "decided_by": share.home or url,
        "attempt": share.attempt,
        "partners": share.members if share.home is None else {share.home: None},
    }


def partners_text(joint: Mapping[str, Any] | None, url: str = "") -> str:
    """The other tables of a joint commit on one line: `rejects 4, audit 12`, or `orders (decides)`.
    url: of this table."""
    if joint is None:
        return ""
    return ", ".join(
        f"{relative_path(root, url)} {f'{version:,}' if version else '(decides)'}"
        for root, version in joint["partners"].items()
    )


def author_text(author: Mapping[str, str]) -> str:
    """An author on one line: `user@host program`. [OB15]"""
    place = "@".join(author[part] for part in ("user", "host") if part in author)
    return " ".join(text for text in (place, author.get("program")) if text)


def values(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields by name, zeros included, unknown ones omitted."""
    return {
        name: value for name, value in msgspec.structs.asdict(struct).items() if name != "extra"
    }
