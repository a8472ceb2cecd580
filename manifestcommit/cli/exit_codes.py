"""The exit codes of the `manifestcommit` command: one table for the code, the help and the page."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import (
    CheckFailedError,
    CommitConflictError,
    ConstraintError,
    JobAbortedError,
    JobFencedError,
    KeyReusedError,
    ManifestCommitError,
    UnsafeStoreError,
    UsageError,
    WatermarkError,
)

DONE, NO, USAGE, UNANSWERED, INTERRUPTED = 0, 1, 2, 3, 130

MEANINGS: Mapping[int, str] = {
    DONE: "done",
    NO: "the answer is no: a conflict, damage, a refused confirmation",
    USAGE: "wrong usage, or a change that nobody confirmed; nothing was changed",
    UNANSWERED: "it could not be answered: no such table or version, or the store failed",
    INTERRUPTED: "interrupted",
}
# The first that an error is an instance of.
_OF_ERRORS: tuple[tuple[type[ManifestCommitError], int], ...] = (
    (UsageError, USAGE),
    (CommitConflictError, NO),
    (CheckFailedError, NO),
    (ConstraintError, NO),
    (JobAbortedError, NO),
    (JobFencedError, NO),
    (KeyReusedError, NO),
    (UnsafeStoreError, NO),
    (WatermarkError, NO),
    (ManifestCommitError, UNANSWERED),
)


def exit_code(error: type[ManifestCommitError]) -> int:
    """The exit code of an error."""
    return next(code for kind, code in _OF_ERRORS if issubclass(error, kind))
