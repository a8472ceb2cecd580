"""One commit of several tables: members are placed in all but one, whose commit decides. [MT1]
[MT3] [MT4] [MT13]
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

import msgspec

from ..errors import ManifestCommitError, StoreError, UsageError
from ..format.change import Rollback, TagEdit, Write, joint_declaration
from ..format.object_names import attempt_id
from ..format.snapshot import MOST_TABLES, JointRecord
from ..log import exports
from ..log.exports import PROPERTY
from ..log.table_context import TableContext
from ..log.time_travel import find_job_at, find_key_at
from ..log.version_chain import Head, put_hint
from ..protocol.conflict import Conflict
from ..protocol.joint_outcome import Participant, in_order
from ..runtime.environment import pause
from ..runtime.outcome import Outcome
from ..store import Store
from ..store.base import store_beside
from .commit_loop import abort_attempt, commit
from .create_version import found_outcome, key_outcome
from .group_commit import Committers
from .prepared_job import Decision, Member

LOG = logging.getLogger("manifestcommit.jobs")
_ATTEMPTS = 16  # of which others aborted all but the last


class TablePart(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a joint commit. head: the version at which its job began, or a later one; found:
    whether the job's key was committed when it began, so that the job holds no rows [KY8];
    is_prepared: any process may commit the job, and the one that began it has said who it is;
    is_recoverable: other runs of the job may commit it, each with what it has written. [MT11]
    [OB15] [AB6]"""

    ctx: TableContext
    head: Head
    change: Write | Rollback | TagEdit
    found: bool = False
    is_prepared: bool = False
    is_recoverable: bool = False

    @property
    def url(self) -> str:
        return self.ctx.store.url

    @property
    def table_id(self) -> str:
        return self.head.snapshot.table_id

    @property
    def key(self) -> str | None:
        return self.change.key if isinstance(self.change, Write) else None


def commit_jointly(parts: Sequence[TablePart]) -> tuple[Outcome, ...]:
    """Commit the changes of several tables, all or none; one outcome for each, in the given order.
    [MT1] [MT3] [MT4]

    All are of one kind, unless one is a conflict, or fenced, or has its key reused: then nothing is
    committed anywhere, the others are "aborted", and that one says why. A crash at any point leaves
    all tables at their old states or all at their new ones. Three requests for each table if nobody
    is in the way.
    """
    ordered = ordered_parts(parts)
    ids = [part.table_id for part in ordered]
    done = commit_declared([_declared(part, ids) for part in ordered])
    return tuple(done[part.table_id] for part in parts)


def commit_declared(ordered: Sequence[TablePart]) -> dict[str, Outcome]:
    """Commit parts that name each other in what is declared with their keys, the home's first; the
    outcomes by table. [MT13]"""
    return _by_key(ordered) or _without_work(ordered) or _JointCommit(ordered).run()


def _declared(part: TablePart, table_ids: Sequence[str]) -> TablePart:
    change = part.change
    if not isinstance(change, Write):
        return part
    declared = joint_declaration(change.declared or "", table_ids)
    return msgspec.structs.replace(part, change=msgspec.structs.replace(change, declared=declared))


def ordered_parts(parts: Sequence[TablePart]) -> list[TablePart]:
    """The parts, the home's first; UsageError where they cannot be committed together. [MT2]"""
    by_id = {part.table_id: part for part in parts}
    tables = [Participant(rank=part.head.snapshot.rank, table_id=part.table_id) for part in parts]
    try:
        ordered = [by_id[each.table_id] for each in in_order(tables)]
    except ValueError as error:
        urls = ", ".join(part.url for part in parts[:MOST_TABLES])
        raise UsageError(f"{error}: {urls}. Nothing was committed.") from None
    check_places([part.ctx.store for part in ordered])
    return ordered


def check_places(stores: Sequence[Store]) -> None:
    """UsageError where tables at these places cannot be committed together, whatever is there: too
    many, one place twice, or not in one object store. [MT2] [MT6]"""
    urls = [store.url for store in stores]
    if len(urls) > MOST_TABLES:
        raise UsageError(
            f"a joint commit has 2 to {MOST_TABLES} tables, not {len(urls)}. Nothing was committed."
        )
    for url in urls:
        if urls.count(url) > 1:
            raise UsageError(f"{url} takes part twice. Nothing was committed.")
        if url != urls[0] and store_beside(stores[0], url) is None:
            raise UsageError(
                f"{url} and {urls[0]} are not in the same object store, so that readers of "
                "one could not ask the other what became of the joint commit. Nothing was "
                "committed. Commit each on its own: commit_all(…)."
            )


def _by_key(parts: Sequence[TablePart]) -> dict[str, Outcome] | None:
    """What the heads say of the key, as of now: committed in all tables, or a reuse; None: it is in
    none of them. [MT13] [KY8]

    The home is read last: a member that is committed by then is seen in its own table only after
    the home.
    """
    if not any(part.key is not None for part in parts):
        return None
    found: dict[str, Outcome] = {}
    for part in parts:
        if (outcome := _key_found(part)) is not None:
            found[part.table_id] = outcome
    if not found:
        return None
    lacking = [part for part in parts if part.table_id not in found]
    if lacking:
        again = {}
        for part in lacking:  # it may have been read before the decision
            if (outcome := _key_found(part)) is None:
                return _undone_alone(parts, part)
            again[part.table_id] = outcome
        found |= again
    return found if all(each.committed for each in found.values()) else _stopped(parts, found)


def _key_found(part: TablePart) -> Outcome | None:
    change = part.change
    if not isinstance(change, Write) or change.key is None:
        return None
    _, record = find_key_at(part.ctx, part.ctx.open(), change.key)
    return None if record is None else key_outcome(change, record)


def _without_work(parts: Sequence[TablePart]) -> dict[str, Outcome] | None:
    """A job that found its key committed holds no rows, and the key is in no table any more.
    [KY8]"""
    gone = {
        part.table_id: found_outcome(part.ctx, part.head, part.change)
        for part in parts
        if part.found and isinstance(part.change, Write)
    }
    return _stopped(parts, gone) if gone else None


def _undone_alone(parts: Sequence[TablePart], lacking: TablePart) -> dict[str, Outcome]:
    reason = (
        f"the key {lacking.key!r} of a joint commit is not recorded in this table, but in "
        "another one of it: the work was undone here alone, by a rollback or a rewind, or the key "
        "was used for one table before; nothing was committed now. Undo it in the others, too, or "
        "use another key."
    )
    outcome = Outcome(kind="key_reused", job_id=lacking.change.job, reason=reason)
    return _stopped(parts, {lacking.table_id: outcome})


def _stopped(parts: Sequence[TablePart], why: dict[str, Outcome]) -> dict[str, Outcome]:
    """No table has committed: the outcomes that are the reason, and "aborted" for the others."""
    said = {table_id: each for table_id, each in why.items() if not each.committed}
    return {
        part.table_id: said.get(part.table_id)
        or Outcome(kind="aborted", job_id=part.change.job, reason="another table did not commit")
        for part in parts
    }


def _is_own(outcome: Outcome) -> bool:
    """Whether this call is known to have created the version that counts. [OB10]"""
    return outcome.metrics is not None and outcome.metrics.kind == "committed"


def _is_over(outcome: Outcome, attempt: str) -> bool:
    """Whether others aborted this attempt; the jobs can be committed by the next. [MT9]"""
    return outcome.kind == "aborted" and outcome.job_id == attempt


class _JointCommit:
    """The attempts at one joint commit. The home comes first in `parts`. [MT3] [MT4] [MT9]"""

    def __init__(self, parts: Sequence[TablePart]) -> None:
        self._parts = parts
        self._home, *self._members = parts
        self._is_recoverable = any(part.is_recoverable for part in parts)
        # other processes may make the same attempts
        self._is_shared = self._home.is_prepared or self._home.is_recoverable

    def run(self) -> dict[str, Outcome]:
        """The outcomes by table, after as many attempts as others abort."""
        ctx, limits = self._home.ctx, self._home.ctx.tuning.limits
        number = self._open_attempt(1) if self._is_shared else 1
        for tried in range(1, _ATTEMPTS + 1):
            decided = self._attempt(number)
            if decided is not None:
                return decided
            pause(ctx.env, tried, limits.first_pause_s, limits.longest_pause_s)
            number = self._open_attempt(number + 1)
        conflict = Conflict(
            rule="contention",
            mine="wants to commit several tables",
            winner=f"others aborted {_ATTEMPTS} attempts, which took too long",
        )
        job = self._home.change.job
        return _stopped(
            self._parts,
            {self._home.table_id: Outcome(kind="conflict", job_id=job, conflict=conflict)},
        )

    def _open_attempt(self, number: int) -> int:
        """The first attempt from this one on that the home does not record as aborted: all who
        commit these jobs make the same. [MT9] [MT11]"""
        ctx, job = self._home.ctx, self._home.change.job
        head = ctx.known or self._home.head
        while True:
            head, (state, _) = find_job_at(ctx, head, attempt_id(job, number))
            if state is None:
                return number
            number += 1

    def _attempt(self, number: int) -> dict[str, Outcome] | None:
        """One attempt; None: others aborted it."""
        attempt = attempt_id(self._home.change.job, number)
        placed: dict[str, Outcome] = {}
        with self._aborting(attempt, placed):
            for part in self._members:
                outcome = self._commit(part, self._member(number))
                if _is_over(outcome, attempt):
                    return None
                if self._is_of_another_run(outcome):
                    return self._of_another_run(part)
                if not outcome.committed or outcome.already_committed:
                    return self._stop(attempt, placed, part, outcome)
                placed[part.table_id] = outcome
            decision = Decision(attempt=attempt, members=self._records(attempt, placed))
            outcome = self._commit(self._home, decision)
        if _is_over(outcome, attempt):
            LOG.info(
                "%r: attempt %s was aborted by others; the next one begins", self._home.url, attempt
            )
            return None
        if outcome.kind == "unknown":
            return self._unknown(outcome)
        if self._is_of_another_run(outcome):
            return self._of_another_run(self._home)
        if not outcome.committed or outcome.already_committed:
            return self._stop(attempt, placed, self._home, outcome)
        if self._has_decided(attempt, placed):
            self._tell(attempt, placed)
        elif self._home.is_prepared:
            placed = self._of_others(placed)
        return {self._home.table_id: outcome, **placed}

    def _is_of_another_run(self, outcome: Outcome) -> bool:
        """Whether another run of a recoverable job has committed it, or its key, here. What that
        run wrote may differ, also for the other tables: nothing of it is part of this attempt.
        [AB6]"""
        return self._is_recoverable and outcome.committed and not _is_own(outcome)

    def _of_another_run(self, part: TablePart) -> dict[str, Outcome]:
        """What the tables record of the key that another run has committed. part: in which it was
        seen. [AB6] [MT13]"""
        found = _by_key(self._parts)
        if found is not None:
            return found
        assert isinstance(part.change, Write)  # with a key: recoverable jobs have one
        undone = found_outcome(part.ctx, part.head, part.change)
        return _stopped(self._parts, {part.table_id: undone})

    def _has_decided(self, attempt: str, placed: dict[str, Outcome]) -> bool:
        """Whether these are the last members that the home has decided: others may have committed
        the same prepared jobs in a later attempt, or more on top of these. [MT11]"""
        known = self._home.ctx.known
        records = {} if known is None else known.snapshot.joint
        return all(records.get(each) == one for each, one in self._records(attempt, placed).items())

    def _of_others(self, placed: dict[str, Outcome]) -> dict[str, Outcome]:
        """The outcomes with the versions at which each table records its job, which only prepared
        jobs need. StoreError where a table cannot be read: call it again. [CM10]"""
        found = {}
        for part in self._members:
            _, (_, version) = find_job_at(part.ctx, part.ctx.open(), part.change.job)
            mine = placed[part.table_id]
            found[part.table_id] = msgspec.structs.replace(mine, version=version or mine.version)
        return found

    def _member(self, number: int) -> Member:
        return Member(
            home=self._home.url,
            job=self._home.change.job,
            attempt=number,
            is_recoverable=self._is_recoverable,
        )

    def _commit(self, part: TablePart, role: Member | Decision) -> Outcome:
        return commit(
            part.ctx,
            part.head,
            part.change,
            committers=Committers.ANY_PROCESS,
            is_signed=part.is_prepared,
            part=role,
        )

    def _records(self, attempt: str, placed: dict[str, Outcome]) -> dict[str, JointRecord]:
        records = {}
        for part in self._members:
            version = placed[part.table_id].version
            assert version is not None
            records[part.table_id] = JointRecord(version=version, attempt=attempt, root=part.url)
        return records

    @contextlib.contextmanager
    def _aborting(self, attempt: str, placed: dict[str, Outcome]) -> Iterator[None]:
        """Within, an error aborts the attempt where others wait for it: nothing is decided yet."""
        try:
            yield
        except Exception:
            self._abort(attempt, placed)
            raise

    def _abort(self, attempt: str, placed: dict[str, Outcome]) -> None:
        """Best effort: the next writer that needs one of its tables aborts it otherwise. [MT9]"""
        if placed:
            with contextlib.suppress(ManifestCommitError):
                abort_attempt(self._home.ctx, attempt)

    def _stop(
        self, attempt: str, placed: dict[str, Outcome], part: TablePart, outcome: Outcome
    ) -> dict[str, Outcome]:
        """The outcomes where one table cannot commit. Its own create may have landed where its
        outcome is unknown, but it will not be decided."""
        self._abort(attempt, placed | {part.table_id: outcome})
        if outcome.kind in ("already_committed", "key_reused"):
            by_key = _by_key(self._parts)
            if by_key is not None:
                return by_key
        if outcome.kind == "unknown" and part is not self._home:
            others = "This call committed nothing" if self._is_shared else "Nothing was committed"
            raise StoreError(
                f"{part.url}: {outcome.reason}. {others} in any table; trying again is safe."
            )
        return _stopped(self._parts, {part.table_id: outcome})

    def _unknown(self, outcome: Outcome) -> dict[str, Outcome]:
        """Nobody knows of any table: the home tells."""
        reason = f"{outcome.reason} (table {self._home.url}, which decides, job {outcome.job_id})"
        return {
            part.table_id: Outcome(kind="unknown", job_id=part.change.job, reason=reason)
            for part in self._parts
        }

    def _tell(self, attempt: str, placed: dict[str, Outcome]) -> None:
        """The decision counts: readers of a member need not ask the home, and exports show it.
        [MT7] [EX2]"""
        for part in self._members:
            version = placed[part.table_id].version
            assert version is not None
            put_hint(part.ctx.store, version, None, attempt)
            if PROPERTY in part.head.snapshot.properties:
                with contextlib.suppress(ManifestCommitError):  # the next export catches up [EX2]
                    part.ctx.open()
                    exports.after_commit(part.ctx)
