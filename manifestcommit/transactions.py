"""Commits of several tables, all or none: `transaction`. [MT1] [RC1]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.compute as pc

from .commits.joint_commit import check_places, commit_jointly, ordered_parts, read_jointly
from .commits.prepared_job import Act, JointUnit, Pinned, TablePart, prepare_jointly
from .commits.two_phase import together_of
from .display import ReprMixin
from .errors import UsageError
from .job import Job, Path, begin
from .log.table_context import TableContext
from .operations.rollback import plan_joint_rollback, undo_together
from .rows.clauses import Condition as RowsRead
from .rows.row_change import Declared, RowChange
from .runtime.outcome import Outcome, error_of
from .runtime.validation import checked, flag, wrong
from .store import StorageOptions
from .store.base import split_url
from .table import Resolution
from .table.functions import commit
from .table.reading import StateReads
from .table.row_changes import RowChanges
from .table.table import Table

if TYPE_CHECKING:
    from .log.version_chain import Head
    from .staging import Staged
    from .table.reading import TableReads

# Several tables at once: what a transaction commits and prepares, `read_together`,
# `rollback_together`. [MT1] [MT11] [MT12]

Tables = Iterable[Path | Table] | Mapping[str, Path | Table]
LOG = logging.getLogger("manifestcommit.jobs")
_warned: set[frozenset[str]] = set()  # ids of tables that were warned of


def _warn_of_chance(parts: Sequence[TablePart]) -> None:
    """Say once which table decides for others, where only their ids chose it. [MT2]"""
    home, *others = ordered_parts(parts)
    ids = frozenset(part.table_id for part in parts)
    alike = [part.url for part in others if part.head.snapshot.rank == home.head.snapshot.rank]
    if not alike or ids in _warned:
        return
    _warned.add(ids)
    LOG.warning(
        "%r decides the joint commits with %s: their ranks are equal, and its id is the lowest. "
        "Who reads or writes one of these has to be able to read %r, and who writes, to write "
        "there. To choose the table, create one with create_table(…, rank=-1); the rank of a "
        "table cannot be changed.",
        home.url,
        ", ".join(map(repr, alike)),
        home.url,
    )


class JointOutcome(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """The result of a joint commit: all of its tables are committed.

    Attributes:
        outcomes: URL of a table -> its outcome, in the order in which the jobs were given.
        already_committed: whether an earlier run committed this work, so that this one did nothing.

    Spec: MT1.
    """

    outcomes: dict[str, Outcome]
    already_committed: bool = False

    @property
    def versions(self) -> dict[str, int]:
        """Return URL of a table -> the version that holds its part."""
        return {url: each.version for url, each in self.outcomes.items() if each.version}


def _check_jobs(jobs: Sequence[Job]) -> None:
    """UsageError where they cannot be committed together. [MT13]"""
    if not all(isinstance(job, Job) for job in jobs):
        raise wrong("jobs", jobs, "a list of jobs, as begin returns them")
    for job in jobs:
        job.check_home()
        job.check_alone()
    if len({job.key is None for job in jobs}) > 1:
        bare = next(job.url for job in jobs if job.key is None)
        raise UsageError(
            f"jobs: the job of {bare} has no key, and others have one: give all of them a key, or "
            "none, so that a rerun is recognised in every table. Nothing was committed."
        )
    if len(jobs) < 2:
        raise UsageError("tables: expected 2 to 32 jobs, got 1: commit it by its commit()")
    check_places([job.ctx.store for job in jobs])


class PreparedTransaction:
    """Jobs of several tables that were prepared together: any process commits all, or aborts all.

    Made by `Transaction.prepare`. In another process, `commit` or `Table.abort` of any one of the
    `jobs` does it for all, since each knows the others. Errors are as for these two calls.

    Attributes:
        jobs: path or URL of a table, as it was given -> the id of its job.

    Spec: MT11, AB3.
    """

    def __init__(
        self, jobs: Mapping[str, str], storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self.jobs: dict[str, str] = dict(jobs)
        self._storage_options = StorageOptions(storage_options)
        self._names = {path: path for path in jobs}  # or as the transaction calls its tables

    def __repr__(self) -> str:
        return f"PreparedTransaction({self.jobs!r})"

    @property
    def staged(self) -> dict[str, Staged]:
        """Open the part of each table, to look at it before it is committed.

        To publish any of them commits all.

        Returns:
            Path of a table, as in `jobs` -> its staged job. `staged[table]` also takes what
            `tx[table]` does; the names that a mapping gave are known where it was prepared.

        Raises:
            UsageError: a table holds no prepared job of that id; `staged[table]` raises it for
                what is no table of the transaction.

        Spec: CK5.
        """
        from .staging import Staged  # late: few jobs are staged

        options = self._storage_options
        found = _StagedJobs({url: Staged(url, job, options) for url, job in self.jobs.items()})
        found.names = self._names
        failed: set[tuple[str, str]] = set()  # one that fails keeps all from being published
        for each in found.values():
            each._failed = failed
        return found

    def commit(self) -> JointOutcome:
        """Commit all of the jobs, or none; any number of times, also while others do.

        Returns:
            The outcome, of the tables that are in `jobs`.

        Spec: MT11, MT1.
        """
        given, jobs = self._storage_options, self.jobs.items()
        return _joint({url: commit(url, job, storage_options=given) for url, job in jobs})

    def abort(self) -> Resolution:
        """Abort all of the jobs for good; the call is idempotent, and nothing is deleted.

        Returns:
            "aborted", or "committed" where a commit came first.

        Spec: MT11, AB4.
        """
        url, job = next(iter(self.jobs.items()))
        return Table(url, self._storage_options).abort(job)


@checked()
def rollback_together(
    versions: Mapping[Path | Table, int | str],
    *,
    reason: str,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> JointOutcome:
    """Roll several tables back by one commit: all of them or none.

    `Table.rollback` refuses to undo in one table what was committed in several. This undoes it in
    all of them. Other errors are as for `Table.rollback`.

    Args:
        versions: 2 to 32 tables, as paths or `Table` objects, and the version or the tag that each
            goes back to: versions that belong together, as `read_together` returned them.
        reason: why, for each table's history.
        message: as for `write`, for each table.
        metadata: as for `write`, for each table.
        storage_options: what reaches the object store, for tables that are given by a path; by
            default the environment.

    Returns:
        The outcome: all are rolled back. `dropped_keys` of each are the keys that are dropped.

    Raises:
        CommitConflictError: anything else was committed to one of the tables meanwhile, or a table
            with which one of them has committed since is not among them.
        UsageError: an argument is wrong, or the versions do not belong together.

    Example:
        `rollback_together({"/lake/orders": 4, "/lake/rejects": 7}, reason="wrong rates")`

    Spec: MT14, CF13.
    """
    example = '{"/lake/orders": 4, "/lake/rejects": "2013-q1"}'
    expected = "a mapping of 2 to 32 tables to versions or tags"
    if not isinstance(versions, Mapping) or len(versions) < 2:
        raise wrong("versions", versions, expected, example)
    for target in versions.values():
        if not isinstance(target, int | str) or isinstance(target, bool):
            raise wrong("versions", target, expected, example)
    opened = _opened(list(versions), storage_options)
    contexts = [table._ctx.noting(message, metadata) for table in opened]
    planned = plan_joint_rollback(contexts, list(versions.values()), reason=reason)
    return _committed_or_raise([table.url for table in opened], undo_together(planned))


def _committed_or_raise(urls: Sequence[str], outcomes: Sequence[Outcome]) -> JointOutcome:
    """The outcome of all; the error of the table that is the reason, where none is committed."""
    for url, outcome in zip(urls, outcomes, strict=True):
        if outcome.kind not in ("committed", "already_committed", "aborted"):
            error = error_of(outcome, url)
            assert error is not None
            raise error
    if not all(outcome.committed for outcome in outcomes):  # aborted by its id, in one of them
        at = next((at for at, each in enumerate(outcomes) if not each.reason), 0)
        raise error_of(outcomes[at], urls[at]) or AssertionError("unreachable")
    return _joint(dict(zip(urls, outcomes, strict=True)))


def _joint(outcomes: dict[str, Outcome]) -> JointOutcome:
    again = all(each.already_committed for each in outcomes.values())
    return JointOutcome(outcomes=outcomes, already_committed=again)


class PinnedTable(StateReads):
    """One version of a table, as `read_together` or `Transaction.read` chose it; it never changes.

    Where the latter was given a `filter`, it has the rows for which that is true, and its methods
    take no other one. Each of them raises `SnapshotExpiredError` once gc has expired the version.

    Attributes:
        url: the table's root.
        version: the number of the version.

    Spec: MT12, MT16, RD2.
    """

    def __init__(self, table: TableReads, head: Head, read: RowsRead | None = None) -> None:
        self._state, self._watermarks, self._read = table, head.snapshot.watermarks, read
        self.url, self.version = table.url, head.version
        self._at = head.version

    def __repr__(self) -> str:
        return f"PinnedTable({self.url!r}, version={self.version})"

    def watermarks(self) -> dict[str, int | str]:
        """Return the watermarks of this version; no request is sent.

        Returns:
            Source -> position.
        """
        return dict(self._watermarks)


@checked()
def read_together(
    tables: Iterable[Path | Table], *, storage_options: Mapping[str, Any] | None = None
) -> list[PinnedTable]:
    """Read one version of each table, such that each joint commit is in all of them or in none.

    Nothing is locked: writers go on. What was acknowledged before the call is in the versions.

    Args:
        tables: the tables: paths, or `Table` objects, of stores and options of their own.
        storage_options: what reaches the object store, for tables that are given by a path; by
            default the environment.

    Returns:
        One table for each, in the given order, at a version that never changes.

    Raises:
        TableNotFoundError: there is no table at a path.
        StoreError: joint commits overtook the read too often, or a table that decided for one of
            these is in another store: try again, or name it.
        UsageError: an argument is wrong.

    Example:
        `orders, rejects = read_together(["/lake/orders", "/lake/rejects"])`

    Spec: MT12.
    """
    opened = _opened(list(named_tables(tables).values()), storage_options)
    heads = read_jointly([TableContext(each._ctx.store) for each in opened])
    return [PinnedTable(table, head) for table, head in zip(opened, heads, strict=True)]


def _opened(tables: Iterable[Path | Table], options: Mapping[str, Any] | None) -> list[Table]:
    return [each if isinstance(each, Table) else Table(each, options) for each in tables]


def named_tables(tables: Tables) -> dict[str, Path | Table]:
    """The tables by the names that the caller gave them, or by their paths."""
    items: list[tuple[Any, Any]] = []
    if isinstance(tables, Mapping):
        items = list(tables.items())
    elif isinstance(tables, Iterable) and not isinstance(tables, str | os.PathLike | Table):
        items = [("", table) for table in tables]
    named: dict[str, Path | Table] = {}
    for name, table in items or [(None, None)]:
        if not isinstance(name, str) or not isinstance(table, str | os.PathLike | Table):
            example = '["/lake/orders", "/lake/rejects"]'
            expected = "a list of paths or Table objects, or a mapping of names to them"
            raise wrong("tables", tables, expected, example)
        name = name or (table.url if isinstance(table, Table) else os.fspath(table))
        if name in named:
            raise UsageError(f"{name!r} is given twice", argument="tables")
        named[name] = table
    return named


def _named(table: Any, urls: Mapping[str, str], whose: str) -> str:
    """The name, of name -> URL, that is meant by a name, its last part, a path or a `Table`."""
    if isinstance(table, str | os.PathLike | Table):
        ends = [name for name in urls if name.rstrip("/").rpartition("/")[2] == table]
        if table in urls or len(ends) == 1:
            return str(table) if table in urls else ends[0]
        place = split_url(table.url if isinstance(table, Table) else table)
        for name, url in urls.items():
            if split_url(url) == place:
                return name
    raise UsageError(f"{whose} has no table {table!r}; it has {', '.join(map(repr, urls))}")


class _StagedJobs(dict[str, "Staged"]):
    """The parts of a transaction by their paths, and by what else `tx[table]` takes."""

    names: Mapping[str, str]

    def __missing__(self, table: Any) -> Staged:
        return self[self.names[_named(table, self.names, "the transaction")]]


class Transaction:
    """One commit of several tables, made by `transaction`; leave its block to commit.

    Attributes:
        outcome: what became of it; None until it was committed.

    Spec: MT1.
    """

    def __init__(self, jobs: Mapping[str, Job], fingerprint: str | None = None) -> None:
        self._jobs, self._fingerprint = dict(jobs), fingerprint
        self._rows: dict[Job, RowChange] = {}  # instead of what the job would write
        self._pinned: dict[Job, Pinned] = {}  # what was read
        self._ended: Act | None = None  # how it ended, or began to
        self._skips = False  # a rerun that does nothing, whatever it declared
        self._lock = threading.Lock()
        for job in self._jobs.values():
            job.in_transaction = True  # nobody ends it alone: that would be half of the work [MT1]
        self.outcome: JointOutcome | None = None

    def __getitem__(self, table: Path | Table) -> Job:
        """Return the job of a table.

        Args:
            table: its name, any path of it, or a `Table`; of a path that was given also the last
                part, where no other table has the same.

        Returns:
            The job: write into it and advance its sources, and leave the commit to the transaction.

        Raises:
            UsageError: no table of the transaction has this name, or `rows` has changed its rows.
        """
        job = self._job(table)
        if job in self._rows:
            raise self._changed(job)
        return job

    def rows(self, table: Path | Table) -> TransactionRows:
        """Return what changes rows of a table as part of this transaction.

        Its methods are those of `Table`: `delete`, `update`, `merge` and `overwrite_where`. They
        look at the table's newest version, not at what this transaction writes, and commit nothing:
        the transaction does. Rows and values that come from another version need `based_on`, or
        `read`. A transaction allows one change of each table, by one call of these methods or by
        writes of its job. With `recoverable`, a rerun looks at the rows again.

        Args:
            table: as for `tx[table]`.

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

    @checked(own=flag)
    def read(
        self, table: Path | Table, *, filter: str | pc.Expression | None = None, own: bool = False
    ) -> PinnedTable:
        """Return a table as it was when this transaction began, for what is computed from its rows.

        What others write from then on into what was read is a conflict, and nothing is committed in
        any table, so that what was computed agrees with what it was computed from. Compaction is no
        conflict. The table takes part in the commit, also where nothing is written into it: that
        needs the right to write there.

        Args:
            table: as for `tx[table]`.
            filter: read only the rows for which this is true: SQL that is evaluated without Spark
                and without a clock, or a pyarrow expression. Only writes to partitions in which it
                can be true conflict then. By default, the whole table counts as read.
            own: show what this transaction has written into the table before this call, in memory;
                by default False.

        Returns:
            The version: its methods are `to_arrow`, `dataset`, `read` and `watermarks`.

        Raises:
            TableNotFoundError: there is no table at the path.
            SnapshotExpiredError: gc has expired the version since, as for a rerun of a recoverable
                job that began long ago.
            UsageError: no table of the transaction has this name, the transaction is over, or
                `filter` cannot be evaluated so.
            CommitConflictError: with `own`, what it has written cannot be committed.
            ConstraintError: with `own`, a row that it has written violates a constraint.

        Example:
            `silver = tx.read("silver", filter="day = '2026-01-31'", own=True).to_arrow()`

        Spec: MT16, CF16.
        """
        job = self._job(table)
        job.check_home()
        with self._lock:
            if self._ended is not None:
                raise self._over()
            from .staging import own_view, rows_read  # late: few transactions read

            head, unit = job.read_base(), self._rows.get(job) or job
            opened: TableReads = Table(job.url, job.storage_options)
            condition, partitions = rows_read(filter, head.snapshot)
            if own and not unit.already_committed:
                opened, head = own_view(unit, head, job.storage_options)
            self._pinned[job] = job.pin(partitions)
            if job in self._rows:
                self._rows[job].pin(self._pinned[job])
        return PinnedTable(opened, head, condition)

    def _job(self, table: Path | Table) -> Job:
        urls = {name: job.url for name, job in self._jobs.items()}
        return self._jobs[_named(table, urls, "this transaction")]

    def _check_rows(self, job: Job) -> None:
        """UsageError where the rows of this table cannot be changed here any more."""
        job.check_home()
        if self._ended is not None:
            raise self._over()
        if job in self._rows or job.has_work:
            raise self._changed(job)

    def _changed(self, job: Job) -> UsageError:
        return UsageError(
            f"{job.url}: this transaction has a change of this table already, and allows one "
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
        jobs = [*self._jobs.values()]
        for job in jobs:
            job.check_home()
        with self._lock:
            if self._ended is not None and (self._ended, act) != (Act.SEAL, Act.SEAL):
                raise self._over()
            self._ended = act
        if self.already_committed:
            is_silent = not (self._rows or any(job.is_declared for job in jobs))
            for job in jobs:
                unit = self._rows.get(job) or job
                unit.is_declared = not (self._skips or is_silent)
        return [self._rows.get(job) or job for job in jobs]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of its tables, each once, as they were given."""
        return iter(self._jobs)

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
        """Commit now instead of on leaving the block: in all of the tables or in none.

        Other errors are as for the function `write`.

        Returns:
            The outcome.

        Raises:
            KeyReusedError: the key was committed with another declaration, or undone in one of the
                tables only.
            JobAbortedError: a table's job was aborted by its id.
            StoreError: the store failed before the decision.

        Spec: MT1, MT4.
        """
        units = self._units(Act.COMMIT)
        parts = [unit.take_part() for unit in units]
        _warn_of_chance(parts)
        outcomes = commit_jointly(parts)
        for unit, outcome in zip(units, outcomes, strict=True):
            unit.forget_if_final(outcome)
        self.outcome = _committed_or_raise([part.url for part in parts], outcomes)
        for name, outcome in zip(self, self.outcome.outcomes.values(), strict=True):
            self._jobs[name].outcome = outcome
        return self.outcome

    def prepare(self) -> PreparedTransaction:
        """Prepare the jobs of all tables, for any process to commit or abort together.

        Leaving the block does neither then. If it fails, call it again. From then on `commit` or
        `Table.abort` of any one of the jobs does it in all of them, from any process on any
        machine. Two requests for each table.

        Returns:
            The prepared transaction: its methods are `commit`, which returns the outcome, and
            `abort`; its `jobs` are URL of a table -> the id of its job.

        Raises:
            JobFencedError: a job took longer than gc's grace period.
            StoreError: the store failed: call it again.
            UsageError: a table's job is recoverable, or the transaction is over.

        Spec: MT11, AB3.
        """
        for job in self._jobs.values():
            if job.recovery is not None:  # others may run it, too [AB6]
                raise UsageError(
                    f"{job.url}: recoverable jobs are not prepared together; nothing was done. "
                    "Commit them by commit(), or begin them without recoverable=True."
                )
        units = self._units(Act.SEAL)
        parts = [unit.part() for unit in units]
        _warn_of_chance(parts)
        by_job = {part.change.job: unit for part, unit in zip(parts, units, strict=True)}
        prepare_jointly(by_job, together_of(parts))
        prepared = {part.url: part.change.job for part in parts}
        made = PreparedTransaction(prepared, next(iter(self._jobs.values())).storage_options)
        made._names = dict(zip(self, prepared, strict=True))
        return made

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
            self._jobs[name].stop()

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
        self._ctx, self._storage_options = job.ctx, job.storage_options

    def _declared(self, given: Declared, *, publish: bool) -> Declared:
        if not publish:
            why = "what changes in a transaction is staged by its prepare(); nothing was done"
            raise UsageError(why, argument="publish")
        for name in ("key", "fingerprint"):
            if getattr(given, name) is not None:
                shared = f"the {name} that transaction(…) was given"
                why = f"in a transaction all tables share {shared}; nothing was done"
                raise UsageError(why, argument=name)
        self._transaction._check_rows(self._job)
        own = {"key": self._job.key, "fingerprint": self._transaction._fingerprint}
        pinned = self._transaction._pinned.get(self._job)
        return msgspec.structs.replace(given, **own, hold=self._held, pinned=pinned)

    def _held(self, change: RowChange) -> None:
        transaction = self._transaction
        with transaction._lock:  # others may have changed it, or ended it, since the rows were read
            transaction._check_rows(self._job)
            self._job.enter(Act.CHANGE)
            if (pinned := transaction._pinned.get(self._job)) is not None:
                change.pin(pinned)
            transaction._rows[self._job] = change


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
    Other arguments are as for `write`.

    Args:
        tables: 2 to 32 tables: their paths or `Table` objects, or a mapping of a name to each. The
            last part of a path is its name, where no other table has the same. Or jobs that you
            have begun, as `begin` returns them, each of another table: from then on the
            transaction commits them, and no other argument is given.
        key: an idempotency key, recorded in each table: a rerun with the same tables does nothing.
            By default none.
        recoverable: keep each table's finished tasks for a rerun of the key and fingerprint, as for
            `begin`; all tables are committed together then, too. By default False.
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
            _check_jobs(members)
            return Transaction({job.url: job for job in members})
    named = named_tables(members)
    if len(named) < 2:
        raise wrong("tables", tables, "2 to 32 tables", '["/lake/orders", "/lake/rejects"]')
    opened = _opened(list(named.values()), storage_options)
    check_places([table._ctx.store for table in opened])
    jobs: dict[str, Job] = {}
    for name, table in zip(named, opened, strict=True):
        jobs[name] = begin(
            table.url,
            key=key,
            recoverable=recoverable,
            fingerprint=fingerprint,
            message=message,
            metadata=metadata,
            storage_options=table._storage_options,
        )
    return Transaction(jobs, fingerprint)
