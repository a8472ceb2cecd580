"""The state after a rollback: the data as it was, the chain of versions as it is. [CF13] [WM6]
[KY7]

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ..table.snapshot import KeyRecord, Snapshot, StreamRecord
from ..table.watermark import Position, first_origin


def rolled_back(
    head: Snapshot, target: Snapshot, keys: Iterable[str], dropped_before: Mapping[str, KeyRecord]
) -> Snapshot:
    """Return `head` with its data, schema, positions and keys as they were at `target`; what
    belongs to the chain stays. [CF13]

    keys: those to invalidate; dropped_before: records of keys that were invalidated after the
    target, and stay so.

    A source or a query that the target does not know cannot begin anywhere, unlike a new one: a job
    that continued after the data that is removed now would lose it. The source is set to where its
    first advance since then, or the query to where its first batch, began.
    """
    version = head.version + 1
    fresh = _begun_since(head, target)
    watermarks = {
        **{source: origin for source, origin in fresh.items() if origin is not None},
        **target.watermarks,
    }
    origins = {**fresh, **target.origins}
    streams = _emptied(head, target)
    dropped = {key: KeyRecord(version=version, digest="") for key in keys}
    return msgspec.structs.replace(
        head,
        schema=target.schema,
        partition_by=target.partition_by,
        manifests=target.manifests,
        added=target.added,
        removed=target.removed,
        removed_runs=target.removed_runs,
        watermarks=watermarks,
        origins=origins,
        # Records that the target's runs hold included: what was invalidated after the target is in
        # the table again, so its work must not be repeated.
        keys={**target.keys, **dropped_before, **dropped},
        key_runs=target.key_runs,
        streams=streams,
        set_back={
            **head.set_back,
            **_moved((head.watermarks, head.origins), (watermarks, origins), version),
            # Texts have no order: a source may have left its position since the target and returned
            # to it.
            **{
                source: version
                for source, position in head.watermarks.items()
                if isinstance(position, str)
            },
        },
        set_back_queries={
            **head.set_back_queries,
            **_moved((_batches(head.streams),), (_batches(streams),), version),
        },
        totals=target.totals,
    )


def _begun_since(head: Snapshot, target: Snapshot) -> dict[str, Position]:
    """The sources that the target does not know, including those forgotten since, and where each
    first began after it. [CF13] [WM5]"""
    began: dict[str, list[Position]] = {}
    for source, lives in head.forgotten.items():
        began[source] = [origin for version, origin in lives if version > target.version]
    for source, origin in head.origins.items():
        began.setdefault(source, []).append(origin)
    return {
        source: first_origin(origins)
        for source, origins in began.items()
        if origins and source not in target.origins
    }


def _moved(
    before: tuple[Mapping[str, object], ...], after: tuple[Mapping[str, object], ...], version: int
) -> dict[str, int]:
    """The names whose value differs between any of these mappings before and after, each with that
    version. [WM6] [KY7]"""
    pairs = [
        (old, new, name)
        for old, new in zip(before, after, strict=True)
        for name in old.keys() | new.keys()
    ]
    return {
        name: version
        for old, new, name in pairs
        if (name in old, old.get(name)) != (name in new, new.get(name))
    }


def _batches(streams: Mapping[str, StreamRecord]) -> dict[str, tuple[int, int]]:
    """Streaming query -> its last batch, under any name, and the version that holds it: one batch
    number may occur in two plans. [KY7]"""
    last: dict[str, tuple[int, int]] = {}
    for record in streams.values():
        batch = (record.batch, record.version if record.batch >= 0 else 0)
        last[record.query] = max(batch, last.get(record.query, batch))
    return last


def _emptied(head: Snapshot, target: Snapshot) -> dict[str, StreamRecord]:
    """The target's streams, and every query that began after it, without any batch."""
    streams = dict(target.streams)
    for name, record in head.streams.items():
        if all(record.query != other.query for other in streams.values()):
            streams[free_name(streams, name, record.query)] = StreamRecord(
                query=record.query, batch=-1, version=head.version + 1
            )
    return streams


def free_name(streams: Mapping[str, StreamRecord], name: str, query: str) -> str:
    """A name for the record of a query: its own, or another if a different query has that name now.
    The record is found by its query."""
    while name in streams:
        name = f"{name} {query}"
    return name
