"""Versions and commits in plain values, for people and `--json`. [OB2] [OB10]"""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.conflict import describe_touch
from ..core.schema import type_text
from ..core.snapshot import Snapshot
from .times import parse_moment


def describe(snapshot: Snapshot, url: str) -> dict[str, Any]:
    """A version in plain values, as `Table.describe` and `manifestcommit show` have it. [OB2]"""
    fields = snapshot.schema.fields if snapshot.schema else ()
    names = {field.id: field.name for field in fields}
    return {
        "url": url,
        "version": snapshot.version,
        "committed_at": parse_moment(snapshot.committed_at).isoformat(),
        "table_id": snapshot.table_id,
        "format_version": snapshot.format_version,
        "writer": snapshot.writer,
        "files": snapshot.totals.files,
        "rows": snapshot.totals.rows,
        "bytes": snapshot.totals.bytes,
        "partition_by": [names[each] for each in snapshot.partition_by],
        "sources": len(snapshot.watermarks),
        "streams": {name: {"query": each.query, "batch": each.batch, "version": each.version} for name, each in snapshot.streams.items()},
        "oldest_readable_version": snapshot.expired,
        "fence": snapshot.fence,
        "tags": {
            name: {"version": each.version, "until": None if each.until is None else parse_moment(each.until).isoformat()}
            for name, each in snapshot.tags.items()
        },
        "properties": snapshot.properties,
        "columns": [{"id": f.id, "name": f.name, "type": type_text(f.type), "nullable": f.nullable} for f in fields],
        "commits": [
            {
                "job": commit.job,
                "operation": commit.operation,
                "key": commit.key,
                "touched": [describe_touch(snapshot, touch) for touch in commit.touched],
                "summary": values(commit.summary),
            }
            for commit in snapshot.commits
        ],
    }


def values(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields by name, zeros included, unknown ones left out."""
    return {name: value for name, value in msgspec.structs.asdict(struct).items() if name != "extra"}
