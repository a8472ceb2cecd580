"""Every error that this package raises on purpose, grouped by what a handler would do.

`ManifestCommitError` is the base of all. A message says what was given or what happened, to which
object, what is safe, and what to do. Each class says its cause and, under `Remedy`, what to do
about it. No error text carries credentials: callers pass canonical URLs (see `store.open_store`),
never storage options, and texts of stores' clients pass `store.base.StorageOptions.scrub`.
"""

from __future__ import annotations

from typing import Any


class ManifestCommitError(Exception):
    """Base of every error of this package.

    It survives pickling, as errors of worker processes must.

    Remedy: handle a subclass where the program can do something about it; the message of any error
    says what is safe and what to do.
    """

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
    """Another commit made this change wrong; nothing of it is visible.

    Attributes:
        rule: the name of the conflict rule, under which the specification explains it.
        mine: what this job declared.
        winner: what the other commit did, with its version.

    Remedy: run the work again as a new job, which reads what the other commit did. `rule`
    "contention" means that others committed all the time: try again later.

    Spec: CF1.
    """

    def __init__(self, message: str, *, rule: str, mine: str, winner: str) -> None:
        super().__init__(message)
        self.rule, self.mine, self.winner = rule, mine, winner


class WatermarkError(ManifestCommitError):
    """An advance does not start at the current watermark of its source; nothing was committed.

    Attributes:
        source: the source's name.
        have: the current watermark; None: the source has none.
        want: where the advance starts.
        all_covered: whether the table certainly contains every advance of this job; False where
            positions are texts.

    Remedy: read again from `have`. Where `all_covered` is True, a rerun may treat the work as done.

    Spec: WM2.
    """

    def __init__(
        self, message: str, *, source: str, have: Any, want: Any, all_covered: bool = False
    ) -> None:
        super().__init__(message)
        self.source, self.have, self.want, self.all_covered = source, have, want, all_covered


class WatermarkGapError(WatermarkError):
    """The advance starts after the current watermark: a commit would skip the rows between.

    Remedy: commit the range from `have` to `want` first, or read again from `have`.

    Spec: WM2.
    """


class WatermarkOverlapError(WatermarkError):
    """The advance starts before the current watermark: a commit would duplicate rows.

    Remedy: start at `have`. Where `all_covered` is True, an earlier run has done this work.

    Spec: WM2.
    """


class WatermarkMismatchError(WatermarkError):
    """The current watermark is a text, and not the one at which the advance starts.

    Texts have no order: they are compared for equality only.

    Remedy: start at `have`. `Table.rewind` sets the watermark to an earlier one.

    Spec: WM3.
    """


class KeyReusedError(ManifestCommitError):
    """The idempotency key was committed before with another declaration: this is other work.

    Remedy: use a new key for other work, and the same arguments for a rerun of the same work.

    Spec: KY2.
    """


class JobFencedError(ManifestCommitError):
    """The job began before the table's fence, so that it can never commit; it did not.

    gc moves the fence: jobs that began longer ago than its grace period are fenced.

    Remedy: run the work again as a new job; where jobs take this long, give gc a longer `grace`.

    Spec: CM2.
    """


class JobAbortedError(ManifestCommitError):
    """The job was aborted, by this process or by another; it did not and cannot commit.

    Remedy: run the work again as a new job, if it is still wanted.

    Spec: AB1.
    """


class ConstraintError(ManifestCommitError):
    """Rows violate a constraint of the table; nothing was committed.

    Attributes:
        constraint: the constraint's name.
        violations: how many rows violate it, of those that were examined.
        examples: the values of a few of these rows, in the columns that the constraint names.

    Remedy: correct these rows or leave them out; if they are right, `Table.drop_constraint`.

    Spec: CK2.
    """

    def __init__(
        self,
        message: str,
        *,
        constraint: str = "",
        violations: int = 0,
        examples: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.constraint, self.violations, self.examples = constraint, violations, examples


class CheckFailedError(ManifestCommitError):
    """A check of a staged job failed: it is not published, and stays staged.

    Attributes:
        failed: the name of each check that failed -> why.

    Remedy: look at the job's rows (`rows` of the staged job), then abort it, or publish it all the
    same by a call without this check.

    Spec: CK6.
    """

    def __init__(self, message: str, *, failed: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.failed = dict(failed or {})


class SchemaMismatchError(ManifestCommitError):
    """The data does not fit the table's schema; raised before any task starts.

    Remedy: give the data the table's columns and types, or change the table: `merge_schema=True`
    adds new columns, and `Table.add_column` and `Table.rename_column` change its schema.

    Spec: SC3.
    """


class UnsupportedTypeError(SchemaMismatchError):
    """A column's type cannot be stored so that every reader gets it back unchanged.

    Remedy: cast the column to a supported type, or drop it from the data.

    Spec: SC2.
    """


# --- The outcome is not known yet -----------------------------------------------------------------


class OutcomeUnknownError(ManifestCommitError):
    """The store gave no usable answer: the job may or may not be committed.

    Attributes:
        job_id: the job's id.

    Remedy: `resolve(path, job_id)` returns what became of it; a rerun with the same key is safe.

    Spec: CM6.
    """

    def __init__(self, message: str, *, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


# --- What was asked for is not there --------------------------------------------------------------


class TableNotFoundError(ManifestCommitError):
    """There is no table at this path, or it was removed while the job ran.

    Remedy: check the path; `create_table`, or a first `write`, makes a table.

    Spec: RD1, CM5.
    """


class NotATableError(ManifestCommitError):
    """The folder holds files but no table; writing into it would mix the two.

    Remedy: choose another path, or make a table of the folder with `adopt`.

    Spec: LY6.
    """


class VersionNotFoundError(ManifestCommitError):
    """The table has no such version or tag, or clocks dispute which version a time means.

    Remedy: choose a version by its number; `Table.history` lists the readable ones.

    Spec: RD4, CM27.
    """


class SnapshotExpiredError(VersionNotFoundError):
    """The version was expired: its files may be gone.

    Remedy: read a newer version; the message names the oldest readable one. A tag, or a longer
    `keep_for` of gc, keeps versions readable.

    Spec: RD3.
    """


class DataFileMissingError(ManifestCommitError, FileNotFoundError):
    """A data file that the version being read lists is gone; no rows are left out instead.

    Attributes:
        path: the file, relative to the table path.

    Remedy: read the newest version, if gc expired this one meanwhile. Otherwise something else
    removed the file: `Table.verify` names all that are missing and what to do.

    Spec: RD2.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


# --- Bytes or stores that cannot be trusted -------------------------------------------------------


class CorruptMetadataError(ManifestCommitError):
    """An object of the table is damaged, truncated, oversized or hostile; nothing was read from it.

    Attributes:
        object_name: the damaged object's name, relative to the table path.

    Remedy: `Table.verify` names everything that is damaged and what to do; restore the object from
    a backup, or roll back to a version without it.

    Spec: OB4.
    """

    def __init__(self, message: str, *, object_name: str) -> None:
        super().__init__(message)
        self.object_name = object_name


class UnsupportedFormatError(ManifestCommitError):
    """The object has a format version that this release does not know; it never guesses.

    Remedy: install a newer release of manifestcommit.

    Spec: OB3.
    """


class UnsafeStoreError(ManifestCommitError):
    """The store does not guarantee put-if-absent: a commit there could lose data.

    Remedy: use another store or bucket; `Table.doctor` reports which guarantee is missing.

    Spec: ST1.
    """


class StoreError(ManifestCommitError):
    """The store failed, or refused a request.

    Remedy: try again; a rerun with the same key is safe.

    Spec: ST5.
    """


class StoreDeniedError(StoreError):
    """The store knows the caller and denies the request; nothing was done.

    Remedy: permit the caller the request that the message names, or pass other `storage_options`.

    Spec: ST5.
    """


class UndecidedError(StoreError):
    """The newest version belongs to a commit of several tables, and the table that decides is gone.

    Or it is in another store, or another table is in its place. Nothing was changed.

    Remedy: restore that table, or read an earlier version; where it is lost for good,
    `Table.settle(outcome=…)`.

    Spec: MT6, MT10.
    """


class StoreFullError(StoreError):
    """The store has no room for an object; nothing of it is visible.

    Remedy: make room; `gc` deletes what the table no longer needs.

    Spec: GC19.
    """


class OutputGoneError(StoreError):
    """The temporary file of an output was removed while it was written: it never becomes visible.

    Remedy: run the job again, and keep other programs from cleaning the table's folder.

    Spec: ST15.
    """


class StoreUnclearError(StoreError):
    """The store gave no clear answer to a request that may have taken effect.

    Remedy: try again: commits resolve it by themselves, and a rerun with the same key is safe.

    Spec: ST5.
    """


# --- The call itself is wrong ---------------------------------------------------------------------


class SourceError(ManifestCommitError):
    """A source cannot give the rows that come next; what was loaded before stays.

    Remedy: what the message says: the rows are gone, a part of them cannot be decoded, or the
    source was made again.

    Spec: LD4.
    """


class UsageError(ManifestCommitError, ValueError):
    """An argument is wrong; nothing was done.

    Attributes:
        argument: its name, where the message is `invalid NAME GIVEN: …`; None: elsewhere.
        given: what was given, as the message shows it; None: it does not.

    Remedy: the message names the argument and what it may be.

    Spec: SE3.
    """

    def __init__(
        self, message: str, *, argument: str | None = None, given: str | None = None
    ) -> None:
        self.argument, self.given, self._expected = argument, given, message
        super().__init__(message if argument is None else invalid(self, argument))


def invalid(error: UsageError, name: str) -> str:
    """The message of an error about an argument, with its name as it was typed."""
    shown = "" if error.given is None else f" {error.given}"
    return f"invalid {name}{shown}: {error._expected}"
