"""One version's object: created by this job, or by another. [CM3] [CM4] [CM6] [CM13]

A create has one of three outcomes: this job created the version; it lost the race, because another
job created it first; or the response was lost, which is resolved here by a re-put and a read. Not
here: what the version holds (core.commit.apply), the retry after a lost race
(engine.commit.commit_loop).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Literal

from ...core.commit.apply import create
from ...core.format import codec
from ...core.schema.fields import Schema
from ...core.table import object_names
from ...core.table.snapshot import Snapshot
from ...core.table.watermark import Position
from ...errors import (
    CorruptMetadataError,
    StoreError,
    StoreUnclearError,
    UnsafeStoreError,
    UnsupportedFormatError,
)
from ..metadata import exports
from ..metadata.table_context import TableContext
from ..metadata.table_marker import drop_marker, put_marker
from ..metadata.version_chain import Head, open_head, read_object
from ..runtime.tuning import Limits


def create_table(
    session: TableContext,
    *,
    schema: Schema | None,
    partition_by: tuple[int, ...],
    properties: dict[str, str],
    sources: Mapping[str, Position] | None = None,
    provisional: bool = False,
    rank: int = 0,
) -> Head:
    """Version 1, by this call or by the one that won the race for it: the loser joins. [CM13]"""
    session.prove(())
    table_id = session.env.randomness(8).hex()
    job = object_names.job_id(1, table_id, session.env.randomness(16))
    snapshot = create(
        table_id=table_id,
        job=job,
        commit_id=f"{job}.{session.env.randomness(8).hex()}",
        schema=schema,
        partition_by=partition_by,
        properties=properties,
        sources=sources,
        provisional=provisional,
        now_us=session.commit_time_us(0),
        writer=session.writer,
        store=session.store.identity,
        note=session.note,
        author=session.who(),
        rank=rank,
    )
    data = codec.encode_snapshot(snapshot)
    put_marker(session.store, table_id, session.env)
    verdict, reason, _ = create_version(session, snapshot, data, session.tuning.limits)
    if verdict == "unknown":
        raise StoreUnclearError(
            f"{session.store.url}: it is not known whether the table was created: {reason}. "
            "Trying again is safe."
        )
    if verdict == "mine":
        put_hint(session, 1)
    # Versions never restart at a root: an object of version 1 that could be created says nothing if
    # later ones are above it.
    session.known = open_head(session.store)
    if session.known.snapshot.table_id != table_id:
        drop_marker(session.store, table_id)
    exports.after_commit(session)
    return session.known


def create_version(
    session: TableContext, snapshot: Snapshot, data: bytes, limits: Limits
) -> tuple[Literal["mine", "lost", "unknown"], str, Head | None]:
    """Create the version's object, or learn who did. After an unclear answer only the SAME bytes
    are put again. [CM3] [CM4] [CM6]

    The verdict, why it is not known, and the winner where there was one to read.
    """
    name, commit_id = object_names.version_name(snapshot.version), snapshot.commits[-1].commit_id
    reason = ""
    for tried in range(limits.unclear_tries):
        session.tally.resent += tried > 0
        try:
            if session.store.put_if_absent(name, data):
                return "mine", "", None
        except StoreUnclearError as error:
            session.tally.unknowns += 1
            reason = str(error)
        except UnsafeStoreError as error:
            # It was proved, and is another store by now: what it did with this create no one can
            # say, and once more is too often.
            return "unknown", str(error), None
        except StoreError as error:
            if not reason:
                raise  # refused before anything was sent
            reason = f"{reason}; then {error}"
        else:
            # Taken; perhaps by this very call, if something below retried it by itself.
            try:
                winner = read_object(session.store, snapshot.version)
            except (CorruptMetadataError, UnsupportedFormatError) as error:
                if not reason:
                    raise  # someone else's, and damaged
                reason = f"{reason}; then {error}"
            except StoreError as error:
                reason = str(error)
            else:
                # A winner that is expired already, or that someone else created for this job, is
                # seen in the head.
                is_mine = winner is not None and any(
                    each.commit_id == commit_id for each in winner.snapshot.commits
                )
                return ("mine", "", None) if is_mine else ("lost", "", winner)
        if tried + 1 < limits.unclear_tries:
            session.env.sleep(
                pause(session, tried, limits.first_unclear_pause_s, limits.longest_unclear_pause_s)
            )
    return "unknown", reason, None


def put_hint(session: TableContext, version: int) -> None:
    with contextlib.suppress(StoreError):  # it only shortens a LIST [CM7]
        session.store.put(object_names.HINT, codec.encode_hint(version))


def pause(session: TableContext, tried: int, first_s: float, longest_s: float) -> float:
    return min(longest_s, first_s * 2.0 ** min(tried, 20)) * session.env.jitter()
