"""Commands about jobs: what became of one, and finishing or aborting those that others left."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import msgspec

from ..display import visible
from ..errors import UsageError
from ..format.object_names import is_job_id
from ..format.snapshot import totals_of
from ..terminal import other_tables
from .options import DONE, NO, Options, command, storage_options_of, table_of
from .output import Plan, confirm, show, written

if TYPE_CHECKING:
    from ..table import Resolution, Table

_OPEN = ("prepared", "published", "running")
# A job id is `v<base version>-<table id>-<32 hex digits>`: its beginning is the same for many.
_LEAST = 4  # digits of a short one


def _full(table: Table, given: str, *, settled: bool) -> str:
    """The job id that a short one means; a full one as it is. settled: also of jobs in the
    history."""
    if is_job_id(given):
        return given
    known = {each.job for each in table.jobs()}
    if settled:
        known |= {row["job"] for row in table.history()}
    found = [job for job in known if job.rpartition("-")[2].startswith(given.lower())]
    if len(found) == 1 and len(given) >= _LEAST:
        return found[0]
    expected = f"expected a job id, or at least {_LEAST} of the digits that `manifestcommit jobs`"
    why = f"{expected} shows; {len(found)} known jobs begin so"
    raise UsageError(why, argument="JOB", given=repr(given))


@command(
    """
    resolve: what became of a job; exit status 1 unless it is committed
    JOB  a job id, as an OutcomeUnknownError names it, or a short one
    $ resolve /lake/flights 3f2a90c1
    """
)
def _resolve(options: Options) -> int:
    table = table_of(options)
    job = _full(table, options.job_id, settled=True)
    return _print_status(options, table, job, table.resolve(job), wanted="committed")


@command(
    """
    jobs: what jobs left for others: prepared, published, running, aborted, fenced
    $ jobs /lake/flights
    """
)
def _jobs(options: Options) -> None:
    document = [
        {**msgspec.to_builtins(each), "since": dt.datetime.fromtimestamp(each.since, dt.UTC)}
        for each in table_of(options).jobs()
    ]
    show(options, document, nothing="no job has left anything that others can finish")


@command(
    """
    commit: commit a prepared job, and those of other tables that it was prepared with; exit
      status 1 where it conflicts, was aborted or is fenced
    JOB  a job id, or its last part's first digits, as `manifestcommit jobs` shows it
    $ commit /lake/flights 3f2a90c1
    """
)
def _commit(options: Options) -> None:
    from ..table.functions import commit

    job = _full(table_of(options), options.job_id, settled=False)
    outcome = commit(options.path, job, storage_options=storage_options_of(options.storage_options))
    again = outcome.already_committed
    document = {"job": job, "version": outcome.version, "already_committed": again}
    if not written(options, document):
        print(f"committed at version {outcome.version}")


@command(
    """
    abort: abort a job that others can finish, and those that it was prepared with, for good; exit
      status 1 if it has committed
    JOB  a job id, or its last part's first digits, as `manifestcommit jobs` shows it
    @dry-run
    @yes
    @note
    $ abort /lake/flights 3f2a90c1 --dry-run
    """
)
def _abort(options: Options) -> int:
    table = table_of(options)
    job = _full(table, options.job_id, settled=False)
    confirm(options, lambda: _plan_abort(options, table, job), table)
    return _print_status(options, table, job, table.abort(job), wanted="aborted")


def _plan_abort(options: Options, table: Table, job: str) -> Plan | None:
    from ..commits.prepared_job import read_prepared

    known = next((each for each in table.jobs() if each.job == job and each.state in _OPEN), None)
    if known is None:
        return None
    prepared = read_prepared(table._ctx, job)
    change = None if prepared is None else prepared.change
    written = totals_of(change.add, change.add_manifests) if change else totals_of(())
    document = {"job": job, "age_s": time.time() - known.since, "files": written.files}
    document |= {"rows": written.rows, "bytes": written.bytes}
    document |= {"is_prepared": prepared is not None}
    document["together"] = sorted({*known.together} - {table.url})
    return Plan(table.version, f"abort job {job} for good", document)


def _print_status(
    options: Options, table: Table, job: str, status: Resolution, *, wanted: str
) -> int:
    """What became of a job; 0 if it is what was wanted."""
    document: dict[str, Any] = {"job": job, "status": str(status)}
    document |= {"version": status.version, "together": status.together}
    if not written(options, document):
        said = status.replace("_", " ")
        if status.version is not None:
            said += f" at version {status.version}"
        if others := other_tables(status.together, table.url):
            said += f", together with {visible(others)}"
        print(said)
    return DONE if status == wanted else NO
