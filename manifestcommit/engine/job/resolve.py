"""What became of a job, asked from any process at any later time. [CM23]

Not here: how a job is aborted (engine.job.two_phase), the outcome of a commit in its own process
(engine.runtime.outcome).
"""

from __future__ import annotations

from ...core.table import object_names
from ...errors import UsageError
from ..commit.prepared_job import read_prepared
from ..joint.joint_two_phase import home_says
from ..metadata.job_and_key_lookup import find_job_at
from ..metadata.table_context import TableContext
from ..metadata.version_chain import Head, newest_above
from .job_list import is_published


class Resolution(str):
    """The answer of `resolve` and `abort`: a text that also has a version.

    Attributes:
        version: the version that holds the job, where the text is "committed"; None: elsewhere.

    Spec: CM23.
    """

    version: int | None

    def __new__(cls, status: str, version: int | None = None) -> Resolution:
        made = super().__new__(cls, status)
        made.version = version
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
    if _is_undecided(head, job_id):
        return Resolution("pending")
    prepared = read_prepared(session, job_id)
    if prepared is not None and prepared.change.together:
        said = home_says(session, prepared)
        if said is None or said.kind == "unknown":
            return Resolution("pending")
        return Resolution("committed" if said.committed else "aborted", said.version)
    if prepared is not None or is_published(session, job_id):
        return Resolution("pending")
    # The writer that carried it since the head was read has removed its intent.
    newest = newest_above(session.store, head.version, head) or session.open()
    if _is_undecided(newest, job_id):
        return Resolution("pending")
    return _recorded(session, newest, job_id) or Resolution("not_committed")


def _is_undecided(head: Head, job_id: str) -> bool:
    """Whether the job has made a member of a joint commit that its home has not decided. [MT8]"""
    top = None if head.is_void else head.top
    return top is not None and any(each.job == job_id for each in top.snapshot.commits)


def _recorded(session: TableContext, head: Head, job_id: str) -> Resolution | None:
    head, (state, version) = find_job_at(session, head, job_id)
    if state == "committed":
        return Resolution("committed", version)
    if state == "given_up":
        return Resolution("aborted")
    return (
        Resolution("forgotten")
        if object_names.parse_job_id(job_id).birth < head.snapshot.fence
        else None
    )
