"""Several tables at once: what a transaction commits and prepares, `read_together`,
`tag_together`, `rollback_together`. [MT1] [MT11] [MT12]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from .arguments import checked
from .commits.joint_commit import TablePart, commit_jointly, ordered_parts, read_jointly
from .commits.joint_two_phase import JointUnit, check_together, prepare_jointly, together_of
from .display import ReprMixin
from .errors import UsageError
from .job import Job, Path, commit
from .log.table_context import TableContext
from .operations.rollback import plan_joint_rollback, tag_jointly
from .runtime.outcome import Outcome, error_of
from .runtime.validation import wrong
from .store import StorageOptions, open_store
from .table import Resolution
from .table.table import Table

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

    from .staging import Staged
    from .table.conditions import Condition

Tables = Iterable[Path | Table] | Mapping[str, Path | Table]
LOG = logging.getLogger("manifestcommit.jobs")
_told: set[frozenset[str]] = set()  # ids of tables that were warned of


def _warn_of_chance(parts: Sequence[TablePart]) -> None:
    """Say once which table decides for others, where only their ids chose it. [MT2]"""
    home, *others = ordered_parts(parts)
    ids = frozenset(part.table_id for part in parts)
    alike = [part.url for part in others if part.head.snapshot.rank == home.head.snapshot.rank]
    if not alike or ids in _told:
        return
    _told.add(ids)
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


def commit_units(units: Sequence[JointUnit]) -> JointOutcome:
    """Commit what each table contributes, all or none."""
    parts = [unit.as_part() for unit in units]
    _warn_of_chance(parts)
    outcomes = commit_jointly(parts)
    for unit, outcome in zip(units, outcomes, strict=True):
        unit.forget_if_final(outcome)
    return _committed_or_raise([part.url for part in parts], outcomes)


def checked_jobs(jobs: Iterable[Job]) -> list[Job]:
    """The jobs as a list; UsageError where they cannot be committed together. [MT13]"""
    given = list(jobs) if isinstance(jobs, Iterable) else [None]
    if not all(isinstance(job, Job) for job in given):
        raise wrong("jobs", jobs, "a list of jobs, as begin returns them")
    for job in given:
        job._check_home()
        job._check_own()
    if len({job._job.key is None for job in given}) > 1:
        bare = next(job._job.url for job in given if job._job.key is None)
        raise UsageError(
            f"jobs: the job of {bare} has no key, and others have one: give all of them a key, or "
            "none, so that a rerun is recognised in every table. Nothing was committed."
        )
    return given


class PreparedTransaction:
    """Jobs of several tables that were prepared together: any process commits all, or aborts all.

    Made by `Transaction.prepare`. In another process, `commit` or `Table.abort` of any one of the
    `jobs` does it for all, since each knows the others.

    Args:
        jobs: path of a table -> the id of its job, as in the `jobs` of the prepared
            transaction.
        storage_options: what reaches the object store; by default the environment.

    Attributes:
        jobs: path or URL of a table, as it was given -> the id of its job.

    Raises:
        UsageError: `jobs` is no such mapping, or empty.

    Spec: MT11, AB3.
    """

    @checked()
    def __init__(
        self, jobs: Mapping[str, str], storage_options: Mapping[str, Any] | None = None
    ) -> None:
        texts = isinstance(jobs, Mapping) and all(
            isinstance(each, str) for pair in jobs.items() for each in pair
        )
        if not jobs or not texts:
            raise wrong("jobs", jobs, "a mapping of table paths to job ids, as `jobs` of one has")
        self.jobs: dict[str, str] = dict(jobs)
        self._storage_options = StorageOptions(storage_options)

    def __repr__(self) -> str:
        return f"PreparedTransaction({self.jobs!r})"

    @property
    def staged(self) -> dict[str, Staged]:
        """Open the part of each table, to look at it before it is committed.

        To publish any of them commits all.

        Returns:
            Path of a table, as in `jobs` -> its staged job.

        Raises:
            UsageError: a table holds no prepared job of that id.

        Spec: CK5.
        """
        from .staging import Staged  # late: few jobs are staged

        return {url: Staged(url, job, self._storage_options) for url, job in self.jobs.items()}

    def _check(self) -> None:
        """UsageError where the jobs were not prepared together: nothing would decide for all."""
        opened = [
            (TableContext(open_store(url, self._storage_options)), job)
            for url, job in self.jobs.items()
        ]
        check_together(opened)

    def commit(self) -> JointOutcome:
        """Commit all of the jobs, or none; any number of times, also while others do.

        Returns:
            The outcome, of the tables that are in `jobs`.

        Raises:
            JobAbortedError: the jobs were aborted, or one of them is not prepared any more.
            JobFencedError: the jobs were prepared too long ago.
            CommitConflictError: others committed what a table's job depends on; all stay prepared:
                commit them again when the conflict is resolved, or abort them.
            WatermarkGapError: as for a conflict.
            WatermarkOverlapError: as for a conflict.
            KeyReusedError: a key was committed with another declaration, or in one table only.
            TableNotFoundError: there is no table at a path.
            UsageError: an id is not of a job of its table, or the jobs were not prepared together.
            OutcomeUnknownError: the store did not say whether they were committed: call it again.

        Spec: MT11, MT1.
        """
        self._check()
        outcomes = {}
        for url, job in self.jobs.items():
            outcomes[url] = commit(url, job, storage_options=self._storage_options)
        return JointOutcome(
            outcomes=outcomes,
            already_committed=all(each.already_committed for each in outcomes.values()),
        )

    def abort(self) -> Resolution:
        """Abort all of the jobs for good; the call is idempotent, and nothing is deleted.

        Returns:
            "aborted", or "committed" where a commit came first.

        Raises:
            TableNotFoundError: there is no table at a path.
            UsageError: an id is not of a job of its table, or the jobs were not prepared together.
            OutcomeUnknownError: the store did not say what was decided: call it again.

        Spec: MT11, AB4.
        """
        self._check()
        url, job = next(iter(self.jobs.items()))
        return Table(url, self._storage_options).abort(job)


def refuse_recoverable(jobs: Iterable[Job]) -> None:
    """UsageError where one of them is recoverable, so that others may run it, too. [AB6]"""
    for job in jobs:
        if job._job.recovery is not None:
            raise UsageError(
                f"{job._job.url}: recoverable jobs are not prepared together; nothing was done. "
                "Commit them by commit(), or begin them without recoverable=True."
            )


def prepare_units(units: Sequence[JointUnit]) -> dict[str, str]:
    """Make what each table contributes durable; the URL of each table -> the id of its job."""
    parts = [unit.part() for unit in units]
    _warn_of_chance(parts)
    by_job = {part.change.job: unit for part, unit in zip(parts, units, strict=True)}
    prepare_jointly(by_job, together_of(parts))
    return {part.url: part.change.job for part in parts}


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
    all of them. Other arguments and errors are as for `Table.rollback`.

    Args:
        versions: 2 to 32 tables, as paths or `Table` objects, and the version or the tag that each
            goes back to: versions that belong together, as `read_together` returned them.
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
    outcomes = plan_joint_rollback(contexts, list(versions.values()), reason=reason).commit()
    return _committed_or_raise([table.url for table in opened], outcomes)


@checked()
def tag_together(
    tables: Iterable[Path | Table],
    name: str,
    keep_for: str | dt.timedelta | None = None,
    *,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> JointOutcome:
    """Tag versions of several tables that belong together, by one commit: all of them or none.

    The versions are those that `read_together` would return now: each joint commit is in all of
    them or in none. The tag of each is read by itself: `Table.dataset(tag=…)`. Other
    arguments and errors are as for `Table.tag`.

    Args:
        tables: 2 to 32 tables: paths, or `Table` objects.
        name: the tag; one of that name moves, in all of the tables or in none.
        storage_options: what reaches the object store, for tables that are given by a path; by
            default the environment.

    Returns:
        The outcome of the commit that sets the tags.

    Raises:
        CommitConflictError: gc expired a version meanwhile: call it again.
        StoreError: as for `read_together`.

    Example:
        `tag_together(["/lake/orders", "/lake/rejects"], "2013-q1")`

    Spec: MT12, GC10.
    """
    opened = _opened(list(named_tables(tables).values()), storage_options)
    contexts = [table._ctx.noting(message, metadata) for table in opened]
    outcomes = tag_jointly(contexts, name, keep_for=keep_for)
    return _committed_or_raise([table.url for table in opened], outcomes)


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
    return JointOutcome(
        outcomes=dict(zip(urls, outcomes, strict=True)),
        already_committed=all(each.already_committed for each in outcomes),
    )


class PinnedTable:
    """One version of a table, as `read_together` chose it; it never changes.

    Attributes:
        url: the table's root.
        version: the number of the version.

    Spec: MT12, RD2.
    """

    def __init__(self, table: Table, version: int, watermarks: Mapping[str, int | str]) -> None:
        self._table, self._watermarks = table, dict(watermarks)
        self.url, self.version = table.url, version

    def __repr__(self) -> str:
        return f"PinnedTable({self.url!r}, version={self.version})"

    def watermarks(self) -> dict[str, int | str]:
        """Return the watermarks of this version; no request is sent.

        Returns:
            Source -> position.
        """
        return dict(self._watermarks)

    def dataset(self) -> ds.Dataset:
        """Open this version as a pyarrow dataset, as `Table.dataset` does.

        Returns:
            The dataset.

        Raises:
            SnapshotExpiredError: gc has expired the version since.

        Spec: RD2.
        """
        return self._table.dataset(version=self.version)

    @checked()
    def to_arrow(
        self, columns: list[str] | str | None = None, filter: Condition | None = None
    ) -> pa.Table:
        """Read this version into memory. Other arguments and errors are as for `Table.to_arrow`.

        Returns:
            The rows.

        Raises:
            SnapshotExpiredError: gc has expired the version since.

        Spec: RD2.
        """
        return self._table.to_arrow(version=self.version, columns=columns, filter=filter)

    @checked()
    def read(
        self,
        *,
        columns: list[str] | str | None = None,
        filter: Condition | None = None,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Read this version with Spark. Other arguments and errors are as for `Table.read`.

        Returns:
            The DataFrame.

        Raises:
            SnapshotExpiredError: gc has expired the version since.

        Spec: RD2.
        """
        return self._table.read(version=self.version, columns=columns, filter=filter, spark=spark)


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
    contexts = [TableContext(each._ctx.store) for each in opened]
    heads = read_jointly(contexts)
    return [
        PinnedTable(table, head.version, head.snapshot.watermarks)
        for table, head in zip(opened, heads, strict=True)
    ]


def _opened(
    tables: Sequence[Path | Table], storage_options: Mapping[str, Any] | None
) -> list[Table]:
    return [
        table if isinstance(table, Table) else Table(table, storage_options) for table in tables
    ]


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


def place_of(
    table: Path | Table, storage_options: Mapping[str, Any] | None
) -> tuple[Path, Mapping[str, Any] | None]:
    """The path of a table, and what reaches its store."""
    if isinstance(table, Table):
        return table.url, table._storage_options
    return table, storage_options
