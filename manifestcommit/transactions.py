"""A commit of several tables, of a block or of jobs: `transaction`. [MT1] [RC1]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .arguments import checked
from .commits.job import Act
from .commits.joint_commit import TablePart, check_places
from .commits.joint_two_phase import JointUnit, prepared_together
from .commits.prepared_job import put_prepared, seal
from .errors import UsageError
from .format.snapshot import TogetherJob
from .job import Job, begin
from .joint import (
    JointOutcome,
    PinnedTable,
    PreparedTransaction,
    Tables,
    checked_jobs,
    commit_units,
    named_tables,
    place_of,
    prepare_units,
    refuse_recoverable,
)
from .rows.row_change import Declared, RowChange
from .runtime.outcome import Outcome
from .runtime.validation import Ranges, wrong
from .store import open_store
from .table.row_changes import RowChanges
from .table.table import Table

# A row change as one table's part of a joint commit.


class RowChangePart:
    """A row change that has written its files, and that its transaction commits or prepares."""

    def __init__(self, change: RowChange) -> None:
        self._change = change
        self._sealed = b""
        self._together: tuple[TogetherJob, ...] = ()

    def part(self) -> TablePart:
        """What it takes to commit it together with others. [MT3]"""
        change = self._change
        return TablePart(
            ctx=change.ctx,
            head=change.head,
            change=change.change(),
            found=change.already_committed,
        )

    def as_part(self) -> TablePart:
        """The same: a row change is held once, and is over then."""
        return self.part()

    def pin(self, version: int) -> None:
        """Rest on the whole table at this version, too. [MT16]"""
        self._change.pin(version)

    def repeat(self, *, as_begun: bool) -> None:
        """Of a rerun whose key is committed: whether it declares no more than was said when it
        began. [KY3]"""
        self._change.is_as_begun = as_begun

    def forget_if_final(self, outcome: Outcome) -> None:
        """Nothing: a rerun looks at the rows again."""

    def seal(self, together: tuple[TogetherJob, ...]) -> None:
        """Fix what `prepare` makes durable. together: the jobs that it is committed with. [MT11]"""
        ctx, change = self._change.ctx, self._change
        if not self._sealed:
            sealed = prepared_together(change.change(), together)
            self._sealed = seal(ctx, change.head, sealed, change.record)
            self._together = together
        elif together != self._together:
            url = ctx.store.url
            raise UsageError(f"{url}: this job was prepared in another way; nothing was done")

    def prepare(self) -> str:
        """Make it durable; the same bytes may be put again. [AB3]"""
        put_prepared(self._change.ctx, self._change.id, self._sealed)
        return self._change.id


class Transaction:
    """One commit of several tables, made by `transaction`; leave its block to commit.

    Attributes:
        outcome: what became of it; None until it was committed.

    Spec: MT1.
    """

    def __init__(self, jobs: Mapping[str, Job], fingerprint: str | None = None) -> None:
        self._jobs, self._fingerprint = dict(jobs), fingerprint
        self._rows: dict[Job, RowChangePart] = {}  # instead of what the job would write
        self._pinned: dict[Job, int] = {}  # the versions that were read
        self._ended: Act | None = None  # how it ended, or began to
        self._skips = False  # a rerun that does nothing, whatever it declared
        self._lock = threading.Lock()
        for job in self._jobs.values():
            job._in_transaction = True  # nobody ends it alone: that would be half of the work [MT1]
        self.outcome: JointOutcome | None = None

    def __getitem__(self, table: str) -> Job:
        """Return the job of a table, by its name or path as it was given.

        Args:
            table: the name; of a path also its last part, where no other table has the same.

        Returns:
            The job: write into it and advance its sources, and leave the commit to the transaction.

        Raises:
            UsageError: no table of the transaction has this name, or `rows` has changed its rows.
        """
        job = self._job(table)
        if job in self._rows:
            raise self._changed(job)
        return job

    def rows(self, table: str) -> TransactionRows:
        """Return what changes rows of a table as part of this transaction.

        Its methods are those of `Table`: `delete`, `update`, `merge`, `merge_into` and
        `overwrite_where`. They look at the table's newest version, not at what this transaction
        writes, and commit nothing: the transaction does. Rows and values that come from another
        version need `based_on`, or `read`. A transaction allows one change of each
        table, by one call of these methods or by writes of its job. With `recoverable`, a rerun
        looks at the rows again.

        Args:
            table: the name, as for `tx[table]`.

        Returns:
            An object with these methods.

        Raises:
            UsageError: no table of the transaction has this name. The methods raise it where the
                table is changed already, or the transaction is over.

        Example:
            `tx.rows("orders").delete(where="customer = 17")`

        Spec: MT1, RC1.
        """
        return TransactionRows(self, self._job(table))

    def read(self, table: str) -> PinnedTable:
        """Return a table as it was when this transaction began, for what is computed from its rows.

        What others write into the table from then on is a conflict, and nothing is committed in any
        table, so that what was computed agrees with what it was computed from. The whole table
        counts as read; compaction is no conflict. The table takes part in the commit, also where
        nothing is written into it: that needs the right to write there. Writes of this transaction
        are not in it.

        Args:
            table: the name, as for `tx[table]`.

        Returns:
            The version: its methods are `to_arrow`, `dataset`, `read` and `watermarks`.

        Raises:
            TableNotFoundError: there is no table at the path.
            SnapshotExpiredError: gc has expired the version since, as for a rerun of a recoverable
                job that began long ago.
            UsageError: no table of the transaction has this name, or the transaction is over.

        Example:
            `silver = tx.read("silver").to_arrow(columns=["day", "amount"])`

        Spec: MT16, CF16.
        """
        job = self._job(table)
        job._check_home()
        with self._lock:
            if self._ended is not None:
                raise self._over()
            snapshot = job._job.pin()
            if job in self._rows:
                self._rows[job].pin(snapshot.version)
            self._pinned[job] = snapshot.version
        opened = Table(job._job.url, job._storage_options)
        return PinnedTable(opened, snapshot.version, snapshot.watermarks)

    def _job(self, table: str) -> Job:
        job = self._jobs.get(table) if isinstance(table, str) else None
        if job is None:
            raise UsageError(
                f"this transaction has no table {table!r}; it has {', '.join(map(repr, self))}"
            )
        return job

    def _check_rows(self, job: Job) -> None:
        """UsageError where the rows of this table cannot be changed here any more."""
        job._check_home()
        if self._ended is not None:
            raise self._over()
        if job in self._rows or job._job.has_work:
            raise self._changed(job)

    def _changed(self, job: Job) -> UsageError:
        return UsageError(
            f"{job._job.url}: this transaction has a change of this table already, and allows one "
            "of each; nothing was done. A merge with clauses deletes, updates and inserts at once."
        )

    def _over(self) -> UsageError:
        names = ", ".join(self)
        if self._ended is Act.SEAL:
            return UsageError(
                f"the transaction of {names} was prepared; nothing was done. Commit it or abort it "
                "by what prepare() returned; if prepare() failed, call it again."
            )
        return UsageError(f"the transaction of {names} is over; nothing was done. Begin a new one.")

    def _units(self, act: Act) -> list[JointUnit]:
        """What each table contributes. act: what is done, once, but for preparing."""
        jobs = [self._jobs[name] for name in self]
        for job in jobs:
            job._check_home()
        with self._lock:
            if self._ended is not None and (self._ended, act) != (Act.SEAL, Act.SEAL):
                raise self._over()
            self._ended = act
        if self.already_committed:
            is_silent = not (self._rows or any(job._job.is_declared for job in jobs))
            for job in jobs:
                unit = self._rows.get(job) or job._job
                unit.repeat(as_begun=self._skips or is_silent)
        return [self._rows.get(job) or job._job for job in jobs]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of its tables, each once, as they were given."""
        seen: set[int] = set()
        for name, job in self._jobs.items():
            if id(job) not in seen:
                seen.add(id(job))
                yield name

    @property
    def already_committed(self) -> bool:
        """Return whether an earlier run committed its key in all tables: writes do nothing then."""
        return all(self._jobs[name].already_committed for name in self)

    def skip(self) -> None:
        """Skip the rest of a rerun: whatever its block declares, or leaves out, is not compared.

        For work that is dear to compute: `if tx.already_committed: tx.skip()`, with the work in the
        `else`. A block that declares nothing and writes nothing needs no such call. The key, the
        fingerprint and the tables are compared as ever.

        Raises:
            UsageError: its key is not committed in all tables, or the transaction is over.

        Spec: KY3.
        """
        if self._ended is not None:
            raise self._over()
        if not self.already_committed:
            raise UsageError(
                f"the work of the transaction of {', '.join(self)} is not committed, so that "
                "nothing can be skipped. Call skip() only where already_committed is True, or "
                "abort() to drop what was begun."
            )
        self._skips = True

    def commit(self) -> JointOutcome:
        """Commit now instead of on leaving the block.

        Returns:
            The outcome.

        Raises:
            CommitConflictError: others committed what a table's job depends on; nothing is
                committed in any table.
            KeyReusedError: the key was committed with another declaration, or undone in one of the
                tables only.
            WatermarkGapError: a range starts after the current watermark of its table.
            WatermarkOverlapError: a range starts before the current watermark of its table.
            JobAbortedError: a table's job was aborted by its id; nothing is committed.
            JobFencedError: a table's job took longer than gc's grace period; nothing is committed.
            OutcomeUnknownError: the store did not say whether it was committed: rerun with a key.
            StoreError: the store failed before the decision; nothing is committed.
            UsageError: the transaction is over already, or was prepared.

        Spec: MT1, MT4.
        """
        self.outcome = commit_units(self._units(Act.COMMIT))
        for name, outcome in zip(self, self.outcome.outcomes.values(), strict=True):
            self._jobs[name].outcome = outcome
        return self.outcome

    def prepare(self) -> PreparedTransaction:
        """Prepare the jobs of all tables, for any process to commit or abort together.

        Leaving the block does neither then. If it fails, call it again. From then on `commit` or
        `Table.abort` of any one of the jobs, and `Table.recover` of any of the tables, does it in
        all of them, from any process on any machine. Two requests for each table.

        Returns:
            The prepared transaction: its methods are `commit`, which returns the outcome, and
            `abort`; its `jobs` are URL of a table -> the id of its job.

        Raises:
            JobFencedError: a job took longer than gc's grace period.
            StoreError: the store failed: call it again.
            UsageError: a table's job is recoverable, or the transaction is over.

        Spec: MT11, AB3.
        """
        refuse_recoverable(self._jobs.values())
        prepared = prepare_units(self._units(Act.SEAL))
        return PreparedTransaction(prepared, next(iter(self._jobs.values()))._storage_options)

    def abort(self) -> None:
        """Abort: nothing becomes visible in any table, and nothing is deleted.

        What recoverable jobs have finished is kept for a rerun. Does nothing where the transaction
        was committed, refused or aborted.

        Raises:
            UsageError: it was prepared: abort it by what `prepare` returned.

        Spec: AB1.
        """
        with self._lock:
            if self._ended is Act.SEAL:
                raise self._over()
            self._ended = self._ended or Act.ABORT
        for name in self:
            self._jobs[name]._job.abort()

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if self._ended is not None:
            return
        if kind is not None:
            self.abort()
        else:
            self.commit()


class TransactionRows(RowChanges):
    """Changes rows of one table as part of a transaction; made by `Transaction.rows`.

    The methods are those of `Table`, without `key` and `fingerprint`, which are the transaction's.
    Their outcome has the kind "pending" and the numbers of rows, or "already_committed" where an
    earlier run did the work; the transaction's `outcome` has the version.

    Spec: MT1, RC1.
    """

    def __init__(self, transaction: Transaction, job: Job) -> None:
        self._transaction, self._job = transaction, job
        self._ctx, self._storage_options = job._job._ctx, job._storage_options

    def _declared(
        self,
        key: str | None,
        fingerprint: str | None,
        reason: str | None,
        watermarks: Ranges | None = None,
        based_on: int | None = None,
        *,
        publish: bool = True,
    ) -> Declared:
        if not publish:
            raise UsageError(
                "what changes in a transaction is staged by its prepare(); nothing was done",
                argument="publish",
            )
        for name, given in (("key", key), ("fingerprint", fingerprint)):
            if given is not None:
                raise UsageError(
                    f"in a transaction all tables share the {name} that "
                    "transaction(…) was given; nothing was done",
                    argument=name,
                )
        self._transaction._check_rows(self._job)
        return Declared(
            key=self._job._job.key,
            fingerprint=self._transaction._fingerprint,
            reason=reason,
            watermarks=watermarks,
            based_on=based_on,
            hold=self._held,
            pinned=self._transaction._pinned.get(self._job),
        )

    def _held(self, change: RowChange) -> None:
        transaction = self._transaction
        with transaction._lock:  # others may have changed it, or ended it, since the rows were read
            transaction._check_rows(self._job)
            self._job._job.enter(Act.CHANGE)
            if (pinned := transaction._pinned.get(self._job)) is not None:
                change.pin(pinned)
            transaction._rows[self._job] = RowChangePart(change)


@checked()
def transaction(
    tables: Tables | Iterable[Job],
    key: str | None = None,
    *,
    recoverable: bool = False,
    fingerprint: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Transaction:
    """Begin a commit of several tables: leaving its `with` block commits all of them or none.

    Readers of any of the tables see all of it or nothing of it, from one moment on, also where this
    process dies: no catalog, lock or coordinator is needed. The tables lie in one object store.

    Args:
        tables: 2 to 32 tables: their paths or `Table` objects, or a mapping of a name to each. The
            last part of a path is its name, where no other table has the same. Or jobs that you
            have begun, as `begin` returns them, each of another table: from then on the
            transaction commits them, and no other argument is given.
        key: an idempotency key, recorded in each table: a rerun with the same tables does nothing.
            By default none.
        recoverable: keep each table's finished tasks for a rerun of the key and fingerprint, as for
            `begin`; all tables are committed together then, too. By default False.
        fingerprint: declared with the key, as for `write`; by default nothing.
        message: what the commit is for, as for `write`; by default nothing.
        metadata: name -> text, as for `write`; by default none.
        storage_options: what reaches the object store, for tables that are given by a path; by
            default the environment.

    Returns:
        The transaction; `tx["orders"]` is the job of a table.

    Raises:
        UsageError: an argument is wrong, such as a table that is given twice, or only some of the
            jobs have a key.
        NotATableError: a folder holds plain files.

    Example:
        `with transaction(["/lake/orders", "/lake/rejects"], key="day 1") as tx: …`

    Spec: MT1, MT2, MT13.
    """
    members: Any = tables
    if isinstance(tables, Iterable) and not isinstance(tables, Mapping | str):
        members = list(tables)
        if any(isinstance(each, Job) for each in members):
            given = (key, recoverable or None, fingerprint, message, metadata, storage_options)
            if any(each is not None for each in given):
                raise UsageError(
                    "tables: jobs have a key, a message and so on of their own, from begin(…): "
                    "give the transaction none. Nothing was done."
                )
            return _of_jobs(members)
    named = named_tables(members)
    if len(named) < 2:
        raise wrong("tables", tables, "2 to 32 tables", '["/lake/orders", "/lake/rejects"]')
    places = {name: place_of(table, storage_options) for name, table in named.items()}
    check_places([open_store(path, options) for path, options in places.values()])
    jobs: dict[str, Job] = {}
    for name, (path, options) in places.items():
        jobs[name] = begin(
            path,
            key=key,
            recoverable=recoverable,
            fingerprint=fingerprint,
            message=message,
            metadata=metadata,
            storage_options=options,
        )
    return Transaction(_with_short_names(jobs), fingerprint)


def _of_jobs(jobs: Iterable[Any]) -> Transaction:
    """A transaction of jobs that were begun already. [MT1] [MT13]"""
    given = checked_jobs(jobs)
    if len(given) < 2:
        raise UsageError(
            "tables: expected 2 to 32 jobs, got 1: commit it by its own commit(). Nothing was done."
        )
    check_places([job._job._ctx.store for job in given])
    return Transaction(_with_short_names({job._job.url: job for job in given}))


def _with_short_names(jobs: dict[str, Job]) -> dict[str, Job]:
    """The jobs by their names, and by the last part of each where no other has the same."""
    short = [name.rstrip("/").rpartition("/")[2] for name in jobs]
    last = {
        end: job
        for end, job in zip(short, jobs.values(), strict=True)
        if short.count(end) == 1 and end not in jobs
    }
    return {**jobs, **last}
