"""What became of a job, asked from any process at any later time. [CM23]"""

from __future__ import annotations

from collections.abc import Iterable

from ...core.commit.change import Prepared
from ...core.commit.conflict import is_readable
from ...core.joint.fate import share_of
from ...core.table import object_names
from ...core.table.snapshot import Snapshot
from ...errors import CorruptMetadataError, UnsupportedFormatError, UsageError
from ..commit.prepared_job import read_prepared
from ..joint.joint_two_phase import home_says
from ..metadata.job_and_key_lookup import find_job_at
from ..metadata.table_context import TableContext
from ..metadata.version_chain import Head, newest_above, read_object
from .job_list import is_published


class Resolution(str):
    """The answer of `resolve` and `abort`: a text that also has a version.

    Attributes:
        version: the version that holds the job, where the text is "committed"; None: elsewhere.
        together: of a job that is committed or aborted with those of other tables, the paths of
            the tables that are known here, this one among them; none for any other.

    Spec: CM23, MT1.
    """

    version: int | None
    together: tuple[str, ...]

    def __new__(
        cls, status: str, version: int | None = None, together: Iterable[str] = ()
    ) -> Resolution:
        made = super().__new__(cls, status)
        made.version, made.together = version, tuple(together)
        return made


def resolve_job(session: TableContext, job_id: str) -> Resolution:
    """What the table knows of a job as of this call. UsageError where the id is none of a job of
    this table. [CM23]"""
    head = session.open()
    try:
        name = object_names.parse_job_id(job_id)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if name.table_id != head.snapshot.table_id:
        raise UsageError(
            f"job {job_id} belongs to another table than the one at {session.store.url}"
        )
    recorded = _recorded(session, head, job_id)
    if recorded is not None:
        return recorded
    if (undecided := _undecided(session, head, job_id)) is not None:
        return undecided
    prepared = read_prepared(session, job_id)
    if prepared is not None and prepared.change.together:
        roots = _roots(prepared)
        said = home_says(session, prepared)
        if said is None or said.kind == "unknown":
            return Resolution("pending", together=roots)
        return Resolution("committed" if said.committed else "aborted", said.version, roots)
    if prepared is not None or is_published(session, job_id):
        return Resolution("pending")
    # The writer that carried it since the head was read has removed its intent.
    newest = newest_above(session.store, head.version, head) or session.open()
    return (
        _undecided(session, newest, job_id)
        or _recorded(session, newest, job_id)
        or Resolution("not_committed")
    )


def tables_beside(session: TableContext, job_id: str) -> tuple[str, ...]:
    """The tables whose jobs were prepared together with this one, its own among them; none where it
    was prepared alone or not at all, or its object cannot be read: what became of it is known
    without. One request. [MT11]"""
    try:
        prepared = read_prepared(session, job_id)
    except (CorruptMetadataError, UnsupportedFormatError):
        return ()
    return _roots(prepared) if prepared is not None else ()


def _roots(prepared: Prepared) -> tuple[str, ...]:
    return tuple(each.root for each in prepared.change.together)


def _undecided(session: TableContext, head: Head, job_id: str) -> Resolution | None:
    """The answer for a job that has made a member of a joint commit which its home has not decided;
    None: it has not. [MT8]"""
    top = None if head.is_void else head.top
    if top is None or not any(each.job == job_id for each in top.snapshot.commits):
        return None
    return Resolution("pending", together=_tables(session, top.snapshot))


def _together(session: TableContext, head: Head, version: int) -> list[str]:
    """The tables with which a version was committed, as it says itself. No request where the table
    takes part in no joint commit, or the version is the newest. [MT1]"""
    snapshot = head.snapshot
    if version != head.version:
        if not (snapshot.joint or snapshot.homes) or not is_readable(snapshot, version):
            return []
        found = read_object(session.store, version)
        if found is None:
            return []  # gc has passed it
        snapshot = found.snapshot
    return _tables(session, snapshot)


def _tables(session: TableContext, snapshot: Snapshot) -> list[str]:
    share, own = share_of(snapshot), session.store.url
    if share is None:
        return []
    return [own, *share.members] if share.home is None else [share.home, own]


def _recorded(session: TableContext, head: Head, job_id: str) -> Resolution | None:
    head, (state, version) = find_job_at(session, head, job_id)
    if state == "committed":
        assert version is not None
        return Resolution("committed", version, _together(session, head, version))
    if state == "given_up":
        return Resolution("aborted")
    return (
        Resolution("forgotten")
        if object_names.parse_job_id(job_id).birth < head.snapshot.fence
        else None
    )
