"""Jobs of several tables, prepared together: any process commits or aborts all. [MT11]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ..errors import CorruptMetadataError, TableNotFoundError, UndecidedError, UsageError
from ..format import object_names
from ..format.change import Prepared
from ..format.snapshot import TogetherJob
from ..log.table_context import TableContext, find_job_at
from ..log.version_chain import Head
from ..runtime.outcome import Outcome, error_of
from ..store.base import store_beside
from .commit_loop import record_abort
from .create_version import fenced_outcome
from .joint_commit import commit_declared, ordered_parts
from .prepared_job import TablePart, read_prepared


def together_of(parts: Sequence[TablePart]) -> tuple[TogetherJob, ...]:
    """What each of these jobs says when they are prepared, the home's first; UsageError where they
    cannot be committed together. [MT2] [MT11]"""
    return tuple(
        TogetherJob(root=part.url, table_id=part.table_id, job=part.change.job)
        for part in ordered_parts(parts)
    )


def check_together(jobs: Sequence[tuple[TableContext, str]]) -> None:
    """UsageError where one of several jobs is prepared alone. A request for each. [MT11]"""
    ids = {job for _, job in jobs}
    if len(ids) < 2:
        return
    for ctx, job in jobs:
        object_names.parse_job_id(job)
        prepared = read_prepared(ctx, job)
        if prepared is not None and not ids <= {each.job for each in prepared.change.together}:
            raise UsageError(
                f"{ctx.store.url}: job {job} was not prepared together with the other jobs "
                "that were given; nothing was done. Commit or abort each on its own: commit(…), "
                "abort(…)."
            )


def commit_prepared_together(ctx: TableContext, head: Head, prepared: Prepared) -> Outcome:
    """Commit a prepared job with all that it was prepared with; its own outcome. [MT11]

    A conflict leaves all of them prepared: where it is that of another table, it is raised as that
    table's error. Where one of them is missing or fenced, all are aborted.
    """
    job = prepared.change.job
    home = _open_home(ctx, prepared, head)
    if home is None:
        at = prepared.change.together[0].root
        raise TableNotFoundError(
            f"{ctx.store.url}: job {job} is committed together with others by the table at "
            f"{at}, which was removed; nothing was committed. Abort the job."
        )
    decided = _decided(ctx, home, prepared)
    if decided is not None:
        return decided
    parts = _gathered(ctx, head, home, prepared)
    outcomes = {} if parts is None else commit_declared(parts)
    if parts is None or any(each.kind == "fenced" for each in outcomes.values()):
        ended = record_abort(home[0], prepared.change.together[0].job)
        mine = outcomes.get(head.snapshot.table_id)
        if mine is not None and mine.kind == "fenced" and not ended.committed:
            return mine
        return _own(ctx, prepared, ended)
    return _own_or_raise(parts, outcomes, head.snapshot.table_id)


def abort_prepared_together(ctx: TableContext, prepared: Prepared) -> Outcome:
    """Commit that a prepared job, and all that it was prepared with, never commit, or learn that
    they have: the home decides. [MT11] [AB4]

    Where the home is gone, it decides no more: this table records that its own job was aborted,
    without which no other commits.
    """
    home = _open_home(ctx, prepared)
    if home is None:
        return record_abort(ctx, prepared.change.job)
    return _decided(ctx, home, prepared) or _own(
        ctx, prepared, record_abort(home[0], prepared.change.together[0].job)
    )


def home_says(ctx: TableContext, prepared: Prepared) -> Outcome | None:
    """The outcome of a job that was prepared with others, as their home has decided; None: it has
    not, or is gone. Three requests. [MT11]"""
    home = _open_home(ctx, prepared)
    return None if home is None else _decided(ctx, home, prepared)


def partners(
    ctx: TableContext, prepared: Prepared
) -> Iterator[tuple[TableContext, Head, Prepared]]:
    """The tables and jobs that a job was prepared with, if there. Four requests each. [MT11]"""
    for each in prepared.change.together:
        if each.job != prepared.change.job and (found := _open(ctx, prepared, each)):
            other = read_prepared(found[0], each.job)
            if other is not None:
                yield *found, other


def _decided(
    ctx: TableContext, home: tuple[TableContext, Head], prepared: Prepared
) -> Outcome | None:
    """The outcome of a job as the home has decided; None: it has not."""
    at, head = home
    job = prepared.change.together[0].job
    head, (state, version) = find_job_at(at, head, job)
    if state is not None:
        return _own(ctx, prepared, Outcome(kind=state, job_id=job, version=version))
    if object_names.parse_job_id(job).birth >= head.snapshot.fence:
        return None
    fenced = fenced_outcome(at, head, job)
    if fenced.kind == "unknown" and at is not ctx:
        return _fenced_here(ctx, prepared.change.job)
    return _own(ctx, prepared, fenced)


def _fenced_here(ctx: TableContext, job: str) -> Outcome:
    """The outcome of a job of which the home can decide nothing any more, and has forgotten what it
    decided: what its own table records, as long as it is not behind the fence there, too. [MT11]"""
    head, (state, version) = find_job_at(ctx, ctx.open(), job)
    if state == "committed":
        return Outcome(kind="committed", job_id=job, version=version)
    if object_names.parse_job_id(job).birth >= head.snapshot.fence:
        return Outcome(kind="fenced", job_id=job)
    return fenced_outcome(ctx, head, job)


def _own(ctx: TableContext, prepared: Prepared, decided: Outcome) -> Outcome:
    """The outcome of this table's job, after what the home says of its own."""
    job = prepared.change.job
    version = None
    if decided.committed:
        head, (_, version) = find_job_at(ctx, ctx.open(), job)
        if version is None:
            version = fenced_outcome(ctx, head, job).version
    return msgspec.structs.replace(decided, job_id=job, version=version, metrics=None)


def _own_or_raise(
    parts: Sequence[TablePart], outcomes: dict[str, Outcome], table_id: str
) -> Outcome:
    """The outcome of one table, where it is not only that another table did not commit."""
    own = outcomes[table_id]
    if own.kind != "aborted":
        return own
    for part in parts:
        if outcomes[part.table_id].kind != "aborted":
            error = error_of(outcomes[part.table_id], part.url)
            assert error is not None
            raise error
    return own


def _open_home(
    ctx: TableContext, prepared: Prepared, head: Head | None = None
) -> tuple[TableContext, Head] | None:
    """The table that decides. head: that of this one, where it was opened just now."""
    home = prepared.change.together[0]
    if head is not None and home.job == prepared.change.job:
        return ctx, head
    return _open(ctx, prepared, home)


def _open(
    ctx: TableContext, prepared: Prepared, table: TogetherJob
) -> tuple[TableContext, Head] | None:
    """One of the tables, as of now; None: it was removed. Three requests. [SE2]"""
    store = store_beside(ctx.store, table.root)
    if store is None:
        raise UndecidedError(
            f"{ctx.store.url}: job {prepared.change.job} is committed together with "
            f"{table.job} of {table.root}, which is not in the same store; nothing was done. Do it "
            "where both are reachable."
        )
    at = ctx.at(store)
    at.note = ctx.note
    try:
        head = at.open()
    except TableNotFoundError:
        return None
    return (at, head) if head.snapshot.table_id == table.table_id else None


def _gathered(
    ctx: TableContext, head: Head, home: tuple[TableContext, Head], prepared: Prepared
) -> list[TablePart] | None:
    """The parts of all tables, the home's first; None: one of them is not prepared, or not any
    more. A get for each, and three requests for each that is not open yet."""
    together = prepared.change.together
    opened = {together[0].job: home, prepared.change.job: (ctx, head)}
    parts = []
    for each in together:
        found = opened.get(each.job) or _open(ctx, prepared, each)
        other = None
        if found is not None:
            own = each.job == prepared.change.job
            other = prepared if own else read_prepared(found[0], each.job)
        if found is None or other is None:
            return None
        if other.change.together != together:
            _refuse(each, prepared)
        parts.append(
            TablePart(
                ctx=found[0],
                head=found[1],
                change=other.change,
                found=other.done is not None,
                is_prepared=True,
            )
        )
    if ordered_parts(parts)[0] is not parts[0]:
        _refuse(together[0], prepared)
    return parts


def _refuse(table: TogetherJob, prepared: Prepared) -> None:
    name = object_names.prepared_name(table.job)
    raise CorruptMetadataError(
        f"{name} at {table.root} and job {prepared.change.job}, which were prepared together, do "
        "not name the same tables, or not the one first that decides; nothing was changed.",
        object_name=name,
    )
