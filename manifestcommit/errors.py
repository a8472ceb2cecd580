"""Every error that this package raises on purpose, grouped by what a handler would do.

`ManifestCommitError` is the base of all. A message says what happened, to which object, what is
safe, and what to do next. No error text ever carries credentials: callers pass canonical URLs (see
`store.open_store`), never storage options.
"""

from __future__ import annotations

from typing import Any


class ManifestCommitError(Exception):
    """Base of every error of this package. Survives pickling, as errors of worker processes
    must."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.args, self.__dict__)


def _revive(
    kind: type[ManifestCommitError], args: tuple[Any, ...], state: dict[str, Any]
) -> ManifestCommitError:
    error = kind.__new__(kind, *args)
    error.args = args  # which an OSError's `__new__` leaves to its `__init__`
    error.__dict__.update(state)
    return error


# --- The job did not commit; its inputs or the winners decide what to do --------------------------


class CommitConflictError(ManifestCommitError):
    """A commit that won makes this change wrong: nothing of it is visible. Read again, decide, run
    a new job. [CF1]

    rule: the name of the rule that failed, under which the specification explains it; mine: what
    this job declared; winner: what the other commit did, with its version.
    """

    def __init__(self, message: str, *, rule: str, mine: str, winner: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.mine = mine
        self.winner = winner


class WatermarkError(ManifestCommitError):
    """An advance does not start where the table's watermark stands: nothing was committed. [WM2]

    source: the source's name; have: the current watermark; want: where the advance starts;
    all_covered: every advance of this job is already contained in the table, so that a rerun may
    treat it as done.
    """

    def __init__(
        self, message: str, *, source: str, have: Any, want: Any, all_covered: bool = False
    ) -> None:
        super().__init__(message)
        self.source = source
        self.have = have
        self.want = want
        self.all_covered = all_covered


class WatermarkGapError(WatermarkError):
    """The table stands before the advance's start: committing would lose the rows between. [WM2]"""


class WatermarkOverlapError(WatermarkError):
    """The table stands after the advance's start: committing would double rows. [WM2]"""


class WatermarkMismatchError(WatermarkError):
    """An opaque watermark is not the one expected; opaque values are compared for equality only.
    [WM3]"""


class KeyReusedError(ManifestCommitError):
    """The key was committed before with another declaration: the two runs are not the same work.
    [KY2]"""


class JobFencedError(ManifestCommitError):
    """The job began before the table's fence and can never commit; it did not. Run it again as a
    new job. [CM2]"""


class JobAbortedError(ManifestCommitError):
    """The job was aborted, by this process or by another; it did not and cannot commit. [AB1]"""


class SchemaMismatchError(ManifestCommitError):
    """The data does not fit the table's schema; raised before any task starts. [SC3]"""


class UnsupportedTypeError(SchemaMismatchError):
    """A column's type cannot be stored so that every reader gets it back unchanged. [SC2]"""


# --- The outcome is not known yet -----------------------------------------------------------------


class OutcomeUnknownError(ManifestCommitError):
    """The store gave no usable answer: the commit may or may not have happened. Ask `resolve(path,
    job_id)`. [CM6]"""

    def __init__(self, message: str, *, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


# --- What was asked for is not there --------------------------------------------------------------


class TableNotFoundError(ManifestCommitError):
    """There is no table at this path, or the table was removed while the job ran. [RD1] [CM5]"""


class NotATableError(ManifestCommitError):
    """The folder holds files but no table; writing here would mix the two. `adopt` makes a table of
    it. [LY6]"""


class VersionNotFoundError(ManifestCommitError):
    """The version, tag or time does not exist in this table, or clocks dispute which version a time
    means. [RD4] [CM27]"""


class SnapshotExpiredError(VersionNotFoundError):
    """The version was expired: its files may be gone. The message names the oldest readable
    version. [RD3]"""


class DataFileMissingError(ManifestCommitError, FileNotFoundError):
    """A data file that the version being read lists is gone; no rows are left out instead. [RD2]

    path: the file, relative to the table's root.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


# --- Bytes or stores that cannot be trusted -------------------------------------------------------


class CorruptMetadataError(ManifestCommitError):
    """An object of the table is damaged, truncated, oversized or hostile; nothing was read from it.
    [OB4]"""

    def __init__(self, message: str, *, object_name: str) -> None:
        super().__init__(message)
        self.object_name = object_name

    @property
    def object(self) -> str:
        """The damaged object's name, relative to the table's root."""
        return self.object_name


class UnsupportedFormatError(ManifestCommitError):
    """The object was written in a format version that this release does not know; it never guesses.
    [OB3]"""


class UnsafeStoreError(ManifestCommitError):
    """The store cannot promise that one of many racing creators wins; committing there could lose
    data. [ST1]"""


class StoreError(ManifestCommitError):
    """The store failed or refused a request; what was asked may be tried again. [ST5]"""


class StoreDeniedError(StoreError):
    """The store knows the caller and does not let it do this; nothing was done. [ST5]"""


class StoreFullError(StoreError):
    """The store has no room for an object; nothing of it is visible. `gc` frees what the table no
    longer needs. [GC19]"""


class OutputGoneError(StoreError):
    """The temporary file of an output was removed while it was written, so the output never
    appears. Run the job again. [ST15]"""


class StoreUnclearError(StoreError):
    """The store gave no clear answer to a request that may have taken effect. [ST5]"""


# --- The call itself is wrong ---------------------------------------------------------------------


class UsageError(ManifestCommitError, ValueError):
    """An argument is wrong; nothing was done. The message names the argument and what it may be.
    [SE3]

    argument: its name, where the message begins with `invalid NAME`.
    """

    argument: str | None = None
