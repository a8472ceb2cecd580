"""Short job ids: the first digits of the random part, accepted where they mean one job.

A job id is `v<base version>-<table id>-<32 hex digits>`: its beginning is the same for many.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UsageError
from ..format.object_names import is_job_id
from ..table import Table

_LEAST = 4  # taken
_SHOWN = 10


def full(table: Table, given: str, *, settled: bool) -> str:
    """The job id that a short one means; a full one, and what is no beginning of one, as it is.

    settled: look for jobs of the history, too, which is a request for each version.
    UsageError where several jobs begin so, or none, and for fewer digits than may mean one.
    """
    if is_job_id(given) or not _is_digits(given):
        return given
    if len(given) < _LEAST:
        raise UsageError(
            f"expected at least {_LEAST} of the digits that "
            "`manifestcommit jobs` shows, or a whole job id",
            argument="JOB",
            given=repr(given),
        )
    known = {each.job for each in table.jobs()}
    if settled:
        known |= {row["job"] for row in table.history()}
    return chosen(known, given)


def chosen(known: Iterable[str], given: str, name: str = "JOB") -> str:
    """The one of these jobs that begins so. name: of the argument."""
    found = sorted(job for job in known if job.rpartition("-")[2].startswith(given.lower()))
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            "no known job begins so; `manifestcommit jobs` and "
            "`manifestcommit history --json` list them",
            argument=name,
            given=repr(given),
        )
    names = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    raise UsageError(f"{len(found)} jobs begin so: {names}", argument=name, given=repr(given))


def _is_digits(text: str) -> bool:
    return 1 <= len(text) <= 32 and all(each in "0123456789abcdefABCDEF" for each in text)
