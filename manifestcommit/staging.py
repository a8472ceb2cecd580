"""Staged jobs: what a prepared job would make of the table, looked at before it is published. [CK5]
[CK6] [CK9]

A staged job is a prepared job. The view is `apply(latest, change)` in memory: no version, no
object.

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from .checks import Check, as_check
from .commits.commit_loop import load_conflict_inputs
from .commits.prepared_job import JointUnit, read_prepared, settled_outcome
from .commits.two_phase import commit_prepared
from .errors import CheckFailedError, DataFileMissingError, TableNotFoundError, UsageError
from .filter.transforms import partitions_read
from .format.change import Prepared, Write
from .format.evolution import SchemaConflict, apply_edits
from .format.partitioning import PartitionPattern
from .format.snapshot import Snapshot, totals_of
from .gate.rows import check_change, expected, own_state
from .log.table_context import TableContext
from .log.version_chain import Head
from .protocol.apply import apply
from .protocol.conflict import AUDIT_IS_OLD, ROWS_ARE_UNCHECKED, find_conflict, unchecked
from .rows.clauses import Condition as RowsRead
from .rows.where import understood_here
from .runtime.environment import STARTS
from .runtime.outcome import Outcome, committed_or_raise, constraint_error
from .runtime.validation import checked, whole
from .scan.planning import entries_table
from .store import StorageOptions, open_store
from .table.reading import StateReads, TableReads, chosen
from .table.table import Table
from .telemetry import count_checks

if TYPE_CHECKING:
    import duckdb

    from .job import Path
    from .table import Resolution


class Staged(StateReads):
    """A job that was prepared and not published: its rows are written, and nobody reads them.

    Made by `write(…, publish=False)` and `Transaction.prepare`; in any process by this constructor.
    It shows the newest version of the table with the job applied to it, again with each call. To
    write these rows adds the whole table to itself once more: `publish` commits the job.

    Args:
        path: the table path, a local path or a URL.
        job_id: the job's id, as `Staged.job_id` has it and `Table.jobs` lists it.
        storage_options: what reaches the object store; by default the environment.

    Attributes:
        url: the canonical URL of the table path.
        job_id: the job's id.

    Errors of several methods:

    - `UsageError`: an argument is wrong, or the job was published by now.
    - `CommitConflictError`: the job cannot be published on the newest version: others committed
      what it depends on. It stays staged.
    - `ConstraintError`: its rows violate a constraint that was added since.
    - `JobAbortedError`: it was aborted.
    - `JobFencedError`: it was staged too long ago, and has expired: write it again.
    - `OutcomeUnknownError`: the store did not say whether it was committed: call it again; or it
      has expired, and so have the versions that would tell: write it again by its key.

    Raises:
        UsageError: the table holds no prepared job of this id.
        TableNotFoundError: there is no table at the path.

    Example:
        `Staged("/lake/flights", job_id).publish()`

    Spec: CK5, CK6.
    """

    @checked()
    def __init__(
        self, path: Path, job_id: str, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self._options = StorageOptions(storage_options)
        self._ctx = TableContext(open_store(path, self._options))
        self.url, self.job_id = self._ctx.store.url, job_id
        found = read_prepared(self._ctx, job_id)
        if found is None:
            self._ctx.open()  # TableNotFoundError
            raise UsageError(
                f"{self.url} holds no staged job {job_id}; nothing was done. Table.jobs lists "
                "those that wait, and Table.resolve says what became of one."
            )
        self._prepared: Prepared = found
        self._applied = _Applied(self._ctx, found.change, is_done=found.done is not None)
        self._state = _View(self._applied, self._options)
        self._checks: dict[str, Check] = {}
        self._given: dict[str, Any] = {}  # name of a check -> what was given for it
        self._failed: set[tuple[str, str]] = set()  # of this table, and of others beside it
        self._audited: int | None = None  # None: checks of the table have to be made
        self._referred: dict[str, int] = {}  # checks -> the version of the other table
        self._version_beside = 0  # that a check has just read

    def __repr__(self) -> str:
        # in a traceback of its own constructor
        return f"Staged({self.url!r}, {self.job_id!r})" if hasattr(self, "_state") else "Staged(…)"

    @property
    def base_version(self) -> int:
        """Return the version to which the job is applied: the newest, as of this call.

        Returns:
            A number from 1 on.
        """
        return (self._applied.pinned or self._ctx.open()).version

    @property
    def count(self) -> int:
        """Return how many rows the job adds; those of files that it rewrites are among them.

        Returns:
            The number. No request is sent.
        """
        change = self._prepared.change
        if self._prepared.done is not None:
            return 0
        return totals_of(change.add, change.add_manifests).rows

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Open the table as it would be with the job as a relation of DuckDB, as `Table.duckdb`.

        Args:
            connection: as for `Table.duckdb`; by default the one of the module `duckdb`.

        Returns:
            A `duckdb.DuckDBPyRelation`; `create_view` gives it a name in SQL.

        Raises:
            UsageError: DuckDB is not installed.

        Example:
            `staged.duckdb(connection).create_view("orders")`

        Spec: CK5.
        """
        return self._state.duckdb(connection)

    def diff(
        self, *, on: list[str] | str | None = None, columns: list[str] | str | None = None
    ) -> pa.RecordBatchReader:
        """Read the rows that the job inserts, deletes and updates, as `Table.changed_rows` does.

        Args:
            on: as for `Table.changed_rows`; by default there are no updates.
            columns: as for `Table.changed_rows`; by default all.

        Returns:
            A `pyarrow.RecordBatchReader` of the columns, of `_change_type`, and of
            `_commit_version` and `_commit_timestamp`: the base version, and the time of this call.

        Example:
            `staged.diff(on="id").read_all()`

        Spec: CK5, CH3, CH4.
        """
        from .rows import read_changes as changes  # late: rarely used
        from .rows.read_changes import change_between, check_columns

        base = self._ctx.open()
        made = self._applied.on(base).snapshot
        shown, keys = changes.chosen_columns(made.schema, on, columns)
        found = change_between(self._ctx, base.snapshot, made, shown)
        check_columns(self.url, shown, made.version, found)
        versions = tuple(found)
        plan = changes.Plan(start=base.version, end=made, columns=shown, on=keys, versions=versions)
        return changes.read_changes(self._ctx, plan)

    def rows(self, columns: list[str] | str | None = None) -> pa.Table:
        """Read only the rows that the job adds; those of files that it rewrites are among them.

        Columns have the names that the table gives them by now.

        Args:
            columns: as for `Table.to_arrow`.

        Returns:
            A `pyarrow.Table`.

        Raises:
            DataFileMissingError: a file of the job is gone, and the job has not expired.

        Spec: CK5.
        """
        from .scan.arrow_dataset import open_dataset  # late: pyarrow.dataset loads pandas

        own = self._own()
        names = chosen(own, columns)
        try:
            opened = open_dataset(self._ctx, own, entries_table(self._ctx, own))
            return opened.to_table(columns=names)
        except DataFileMissingError:
            self._is_committed()
            raise

    def check(self, *checks: Check | Callable[[pa.Table], Any]) -> None:
        """Check the job; `publish` of this object then commits only where all checks hold.

        Of a job that is committed already, as one with its key may be, nothing is checked.
        It binds this object only: another process, or `manifestcommit commit`, publishes the job
        all the same. Let the task that checks fail, so that the one that publishes does not run.

        Those of the job's own rows hold for good. Those that read the table hold for the version
        that they have seen, and `publish` repeats them where others have changed rows since.

        Args:
            checks: what the functions of `manifestcommit.checks` return, or callables, which get
                the job's own rows.

        Raises:
            CheckFailedError: some failed; all were made, and the job stays staged.
            UsageError: an argument is no check, or answers neither yes nor no.

        Example:
            `staged.check(checks.expect("amount > 0"), checks.expect_unique("id"))`

        Spec: CK6.
        """
        made = [self._named(each) for each in checks]
        self._checks |= {each.name: each for each in made}
        names = {(self.url, each.name) for each in made}
        self._failed |= names  # until they hold
        try:
            self._run(made)
        except (UsageError, TableNotFoundError):  # one that can never be made
            self._checks = {name: each for name, each in self._checks.items() if each not in made}
            self._failed -= names
            raise
        self._failed -= names

    def publish(self, *, base_version: int | None = None) -> Outcome:
        """Publish the job: commit it, once, from whichever process.

        Args:
            base_version: publish only as long as nobody has changed rows since this version, which
                another process has checked; by default only the checks of this object say so.

        Returns:
            The outcome.

        Raises:
            UsageError: there is no such `base_version`.
            CheckFailedError: a check failed, of this job or of one that is published with it, or
                did when it was repeated on a newer version; the job stays staged.
            CommitConflictError: others changed rows all the time while it was checked, too.

        Spec: CK5, CK6.
        """
        whole(1)("base_version", 1 if base_version is None else base_version)
        if base_version is not None and base_version > (newest := self._ctx.open().version):
            raise UsageError(
                f"base_version={base_version} is above the newest version of {self.url}, {newest}; "
                "nothing was published"
            )
        if self._failed:
            self._is_committed()  # what has expired, or was aborted, says so
            names = [name if url == self.url else f"{name} of {url}" for url, name in self._failed]
            raise CheckFailedError(
                f"{self.url}: checks of job {self.job_id} did not hold "
                f"({', '.join(sorted(names))}); nothing was published. Make these again, or "
                "abort() the job.",
                failed=dict.fromkeys(names, "it did not hold before"),
            )
        tried = 0
        while True:
            tried += 1
            self._repeat()
            known = [each for each in (base_version, self._audited) if each is not None]
            audited = min(known, default=None)
            outcome = commit_prepared(
                self._ctx, self.job_id, audited=audited, checks=dict.fromkeys(self._checks, True)
            )
            rule = outcome.conflict.rule if outcome.conflict is not None else ""
            if rule != AUDIT_IS_OLD or base_version is not None or tried >= STARTS:
                return committed_or_raise(outcome, self.url)
            self._audited = None

    def abort(self) -> Resolution:
        """Abort the job for good; nothing is deleted, and gc removes what it wrote.

        Returns:
            "aborted", or "committed" where it was published before.

        Spec: CK5, AB4.
        """
        return Table(self.url, self._options).abort(self.job_id)

    def _repeat(self) -> None:
        """Make the checks again whose version is not the newest one any more. [CK6] [CK9]"""
        again = [each for each in self._checks.values() if self._is_old(each)]
        if again:
            self._run(again)

    def _is_old(self, check: Check) -> bool:
        """Whether a check has to be made before the job is published."""
        if check.refers_to is None:
            return check.reads_table and self._audited is None
        return self._referred.get(check.name) != Table(check.refers_to, self._options).version

    def _column_beside(self, path: str, column: str) -> pa.ChunkedArray:
        """A column of another table, for a check that is then held to its version. [CK9]"""
        table = Table(path, self._options)
        self._version_beside = table.version
        return table.to_arrow([column], version=self._version_beside).column(0)

    def _now_us(self) -> int:
        """The time, for a check."""
        return self._ctx.env.now_us()

    def _named(self, given: Any) -> Check:
        """A check, under a name that no other one has: two lambdas are two checks. [CK6]"""
        made, number = as_check(given), 1
        name = made.name
        while self._given.setdefault(name, given) is not given:
            number += 1
            name = f"{made.name} ({number})"
        return msgspec.structs.replace(made, name=name)

    def _run(self, checks: list[Check]) -> None:
        """Make these checks, the table's on one version; none of a job that is committed."""
        if self._is_committed():
            return
        if any(each.reads_table for each in checks):
            self._applied.pinned = self._applied.open()
        base = self._applied.pinned
        try:
            said = {each.name: self._made(each) for each in checks}
        finally:
            self._applied.pinned = None
        failed = {name: why for name, why in said.items() if why is not None}
        count_checks(self.url, [name not in failed for name in said])
        if failed:
            what = "; ".join(f"{name}: {why}" for name, why in failed.items())
            raise CheckFailedError(
                f"{self.url}: {len(failed)} of {len(said)} checks of job {self.job_id} failed: "
                f"{what}. Nothing was published, and the job stays staged: look at its rows, then "
                "abort() it.",
                failed=failed,
            )
        if base is not None:
            known = base.version if self._audited is None else self._audited
            self._audited = min(base.version, known)

    def _is_committed(self) -> bool:
        """Whether the job's work is; the error of `publish` where it never can be."""
        settled = settled_outcome(self._ctx, self._ctx.open(), self._prepared.change, sent=True)
        if settled is not None:
            committed_or_raise(settled, self.url)
        return settled is not None

    def _made(self, check: Check) -> str | None:
        """Make a check. One that reads another table holds for that version. [CK9]"""
        self._referred.pop(check.name, None)
        why = check.run(self)
        if why is None and check.refers_to is not None:
            self._referred[check.name] = self._version_beside
        return why

    def _own(self) -> Snapshot:
        """A state that has the job's own files only."""
        head, change = self._ctx.open().snapshot, self._prepared.change
        schema = change.schema or head.schema
        if (there := change.initial or head.schema).fields:
            with contextlib.suppress(SchemaConflict):  # it cannot be published
                schema = apply_edits(there, change.edits)  # with the names of now
        own = own_state(head, change, schema)
        if self._prepared.done is None:
            return own
        return msgspec.structs.replace(own, added=(), manifests=())

    def _violation(self, condition: str) -> str | None:
        """Why the condition is no one of every row that the job adds."""
        found = expected(self._ctx, self._own(), condition) if self.count else None
        return None if found is None else f"{found.count} it, such as {'; '.join(found.examples)}"


class _Applied(TableContext):
    """A context whose newest version has a job's change applied to it. is_done: the job holds no
    work, since its key was committed before."""

    def __init__(self, ctx: TableContext, change: Write, *, is_done: bool = False) -> None:
        super().__init__(ctx.store, ctx.env)
        self.manifests = ctx.manifests
        self._own, self._change, self._is_done = ctx, change, is_done
        self.pinned: Head | None = None

    def open(self) -> Head:
        return self.pinned or self.on(self._own.open())

    def on(self, head: Head) -> Head:
        """The version with the job applied to it."""
        ctx, change = self._own, self._change
        url = ctx.store.url
        settled = settled_outcome(ctx, head, change, sent=True)
        if settled is not None and settled.committed and not self._is_done:
            raise UsageError(
                f"{url}: the work of job {change.job} was published"
                f"{f' at version {settled.version}' if settled.version else ''}, by this job or "
                "another one with its key: read the table"
            )
        if settled is not None:
            committed_or_raise(settled, url)
            return head
        inputs = load_conflict_inputs(ctx, head, change, {})
        conflict = find_conflict(head.snapshot, change, inputs)
        if conflict is not None and conflict.rule == ROWS_ARE_UNCHECKED:
            names = unchecked(head.snapshot, change)
            found = check_change(ctx, head.snapshot, change, names)
            if found is not None:
                raise constraint_error(url, found)
            conflict = None
        if conflict is not None:
            committed_or_raise(Outcome(kind="conflict", job_id=change.job, conflict=conflict), url)
        made = apply(
            head.snapshot,
            change,
            inputs,
            parent_digest=head.digest,
            commit_id=f"{change.job}.staged",
            now_us=ctx.env.now_us(),
            writer=ctx.writer,
        )
        # rows that are computed from it were read from the version below
        return Head(
            snapshot=msgspec.structs.replace(made, version=head.version), digest=head.digest
        )


class _View(TableReads):
    """The methods that read a table, of one that nobody has committed."""

    def __init__(self, ctx: _Applied, options: StorageOptions) -> None:
        self._ctx, self._storage_options = ctx, options


def own_view(unit: JointUnit, head: Head, options: StorageOptions) -> tuple[TableReads, Head]:
    """The version that a transaction has read with what it has written so far, in memory. [MT16]"""
    change = unit.change()
    applied = _Applied(unit.ctx, change)
    # a change of rows may have looked at a later version, which is a conflict unless it is alike
    applied.pinned = applied.on(head if head.version == change.birth else unit.base_head())
    return _View(applied, options), applied.pinned


def rows_read(
    filter: Any, snapshot: Snapshot
) -> tuple[RowsRead | None, tuple[PartitionPattern, ...]]:
    """The condition of the rows that a transaction reads, and the partitions that it reads for
    that. UsageError where this process cannot evaluate it, at any time alike. [MT16] [CF16]"""
    if filter is None:
        return None, ({},)
    read = understood_here(filter, snapshot.schema, "filter")
    return read, partitions_read(read.predicate, snapshot.schema, snapshot.partition_by)
