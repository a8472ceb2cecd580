"""The object of a prepared job: all that its commit needs, so that any process can commit it. [AB3]
"""

from __future__ import annotations

import msgspec

from ...core.commit.change import Prepared, Write
from ...core.format import codec
from ...core.table import object_names
from ...core.table.snapshot import FORMAT_VERSION, KeyRecord
from ..metadata.manifests import create_own
from ..metadata.table_context import TableContext
from ..metadata.version_chain import Head, newest_above
from ..runtime.outcome import fenced_error
from .settled import is_fenced
from .spilling import Spiller


def seal(session: TableContext, head: Head, change: Write, done: KeyRecord | None) -> bytes:
    """All that the change's commit needs, as the one object that `put_prepared` makes durable.
    JobFencedError where it cannot commit any more. [AB3] [CM2]

    head: the version at which the job began, or a later one. A list, and one request for every
    65,536 files of more than some hundred.
    """
    began_us = session.env.now_us()
    newest = newest_above(session.store, head.version, head)
    if newest is not None and is_fenced(newest.snapshot, change):
        raise fenced_error(session.store.url, change.job)
    signed = session.signed(change, head.snapshot.properties)
    staged = Spiller(session, change.job).stage(signed)
    summary = msgspec.structs.replace(
        staged.summary, prepare_s=max(0, session.env.now_us() - began_us) / 1e6
    )
    staged = msgspec.structs.replace(staged, summary=summary)
    prepared = Prepared(
        format_version=FORMAT_VERSION,
        change=staged,
        done=done,
        prepared_at=session.env.now_us(),
        writer=session.writer,
    )
    return codec.encode_prepared(prepared)


def put_prepared(session: TableContext, job: str, sealed: bytes) -> None:
    """The job is durable, and any process can commit it or abort it; the same bytes may be put
    again. One request. [AB3]"""
    create_own(session.store, object_names.prepared_name(job), sealed, session.env)


def read_prepared(session: TableContext, job: str) -> Prepared | None:
    """The prepared job; None where there is none, or it has been collected. One request. [AB3]"""
    name = object_names.prepared_name(job)
    try:
        data = session.store.get(name, 0, codec.MAX_OBJECT_BYTES + 1)
    except FileNotFoundError:
        return None
    return codec.decode_prepared(data, name=name)
