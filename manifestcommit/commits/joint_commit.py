"""One commit of several tables: members are placed in all but one, whose commit decides. [MT1]
[MT3] [MT4] [MT13]
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

import msgspec

from ..errors import (
    ManifestCommitError,
    SnapshotExpiredError,
    StoreError,
    TableNotFoundError,
    UsageError,
)
from ..format.change import Write, joint_declaration
from ..format.object_names import attempt_id
from ..format.snapshot import MOST_TABLES, JointRecord, Snapshot
from ..log.table_context import (
    EXPORT_FORMATS,
    TableContext,
    export_after_commit,
    find_job_at,
    find_key_at,
)
from ..log.version_chain import Head, open_head, put_hint, read_version
from ..protocol.conflict import Conflict
from ..protocol.joint_outcome import Mismatch, attempt_of, find_mismatch, in_order, lowest_allowed
from ..runtime.environment import pause
from ..runtime.outcome import Outcome
from ..store import Store
from ..store.base import store_beside
from .commit_loop import Committers, abort_attempt, commit
from .prepared_job import Decision, Member, TablePart, found_outcome, key_outcome

# The tables that took part in joint commits with this one: which of them still ask it what became
# of their newest versions, and with which it is at odds. [MT1] [MT10]


def unsettled_partners(store: Store, snapshot: Snapshot) -> dict[str, str]:
    """Root of a table that took part in a joint commit that this one decided -> why it depends on
    this one, or may; without those that are settled or gone. Three requests for each. [MT10]"""
    opened = _members(store, snapshot)
    return {root: why for root, _, newest in opened if (why := _dependence(snapshot, newest))}


def check_partners(store: Store, snapshot: Snapshot) -> Iterator[tuple[str, str, str]]:
    """What the tables of joint commits say of this one and this one of them: the root, why it
    depends on this one, as in `unsettled_partners`, and why a joint commit is in one of the two
    only; empty where there is nothing of the kind. Three requests for each. [MT1] [MT10]"""
    for root, record, newest in _members(store, snapshot):
        torn = "" if isinstance(newest, str) else _contradiction(root, record, newest)
        yield root, _dependence(snapshot, newest), torn
    for table_id, decided in snapshot.homes.items():
        home = _opened(store, decided.root, table_id)
        if isinstance(home, Snapshot):
            known = home.joint.get(snapshot.table_id)
            if known is None or known.version < decided.version:
                torn = f"version {decided.version} counts here as part of a joint commit that "
                yield decided.root, "", f"{torn}{decided.root} decided, which does not list it"


def _members(store: Store, snapshot: Snapshot) -> Iterator[tuple[str, JointRecord, Snapshot | str]]:
    """Root, record and newest version of each table for which this one decided, without those that
    are gone; a text: why it cannot be read."""
    for table_id, record in snapshot.joint.items():
        newest = _opened(store, record.root, table_id)
        if newest is not None:
            yield record.root, record, newest


def _opened(store: Store, root: str, table_id: str) -> Snapshot | str | None:
    """The newest version of a table; a text: why it cannot be read; None: it is gone."""
    at = store_beside(store, root)
    if at is None:
        return "it is in another store"
    try:
        newest = open_head(at, is_member_too=True).snapshot
    except TableNotFoundError:
        return None
    except ManifestCommitError as error:
        return f"it cannot be read: {error}"
    return newest if newest.table_id == table_id else None


def _dependence(snapshot: Snapshot, newest: Snapshot | str) -> str:
    if isinstance(newest, str):
        return newest
    if newest.pending is None or newest.pending.table_id != snapshot.table_id:
        return ""
    return f"its version {newest.version} is what this table decided"


def _contradiction(root: str, record: JointRecord, newest: Snapshot) -> str:
    """Why the member that this table has committed is none there. [MT1]"""
    what = f"this table committed version {record.version} of {root} with its own, and"
    if newest.version < record.version:
        return f"{what} the newest version there is {newest.version}"
    if record.version in newest.void:
        return f"{what} there it is void: its work is here only"
    is_newest = newest.version == record.version
    if is_newest and (newest.pending is None or attempt_of(newest.pending) != record.attempt):
        return f"{what} there is another version of that number"
    return ""


# Consistent versions of several tables: each joint commit is in all of them or in none. [MT12]

_MOVES = 64  # of versions that do not fit, for each table
_RESTARTS = 5


def read_jointly(contexts: Sequence[TableContext]) -> list[Head]:
    """One version of each table, such that every joint commit is in all of these or in none; what
    was acknowledged before this call is in them. [MT12] Three requests for each table; three more
    for each home that is not among them, and two for each table that was overtaken while they were
    read. StoreError where joint commits of several homes overtake each other too often."""
    gone: set[str] = set()
    for _ in range(_RESTARTS):
        reading = _Reading(contexts, gone)
        try:
            if reading.run():
                return [reading.chosen[reading.ids[at]] for at in range(len(contexts))]
        except SnapshotExpiredError:
            continue  # gc has passed a version that would have fit
    urls = ", ".join(ctx.store.url for ctx in contexts)
    text = f"joint commits overtook this read of {urls} {_RESTARTS} times"
    raise StoreError(f"{text}; nothing was read. Try again.")


class _Reading:
    """One try. chosen: id of a table -> the version that is read of it, homes included; ids: of the
    tables that were asked for; gone: homes that are no more: the heads that are read after that was
    seen hold all that these have decided. [MT10]"""

    def __init__(self, contexts: Sequence[TableContext], gone: set[str]) -> None:
        self._gone = gone
        self._sessions: dict[str, TableContext] = {}
        self._heads: dict[str, Head] = {}
        self.chosen: dict[str, Head] = {}
        self.ids = [self._open(ctx) for ctx in contexts]

    def run(self) -> bool:
        """Whether the chosen versions fit in the end."""
        if self._open_homes():
            return False
        for _ in range(_MOVES * len(self._sessions)):
            mismatch = find_mismatch(self._snapshots())
            if mismatch is None:
                return True
            self._mend(mismatch)
        return False

    def _open(self, ctx: TableContext, known: Head | None = None) -> str:
        head = known or ctx.open()
        table_id = head.snapshot.table_id
        other, url = self._sessions.get(table_id, ctx).store.url, ctx.store.url
        if other != url:
            raise UsageError(
                f"{other} and {url} hold the same table {table_id}: one is a copy of the other, or "
                "a link to it; nothing was read. Read only one of them."
            )
        self._sessions[table_id], self._heads[table_id], self.chosen[table_id] = ctx, head, head
        return table_id

    def _open_homes(self) -> bool:
        """Also of the homes that decided for these tables: two members of one joint commit show
        only there that they belong together. Whether one of them turned out to be gone."""
        before = len(self._gone)
        for table_id in list(self.chosen):
            for home, record in self.chosen[table_id].snapshot.homes.items():
                if home in self._sessions or home in self._gone:
                    continue
                ctx = self._sessions[table_id]
                if (store := store_beside(ctx.store, record.root)) is None:
                    raise StoreError(
                        f"{ctx.store.url}: {record.root} decides joint commits of this table, "
                        "and is not in the same store; name it among the tables to read."
                    )
                self._open_home(ctx.at(store), home)
        return len(self._gone) > before

    def _open_home(self, ctx: TableContext, home: str) -> None:
        with contextlib.suppress(TableNotFoundError):
            if (head := ctx.open()).snapshot.table_id == home:
                self._open(ctx, head)
                return
        self._gone.add(home)

    def _snapshots(self) -> dict[str, Snapshot]:
        return {table_id: head.snapshot for table_id, head in self.chosen.items()}

    def _mend(self, mismatch: Mismatch) -> None:
        table_id = mismatch.table_id
        member = self._read(table_id, mismatch.version)
        if mismatch.move == "up":
            self.chosen[table_id] = member
            return
        pending = member.snapshot.pending
        assert pending is not None, "a home is named by members only"
        is_low = pending.base < lowest_allowed(self._snapshots(), table_id)
        if is_low or pending.base < self._heads[table_id].snapshot.expired:
            self._open(self._sessions[mismatch.home])  # what another home decided needs this one
        else:
            self.chosen[table_id] = self._read(table_id, pending.base)

    def _read(self, table_id: str, version: int) -> Head:
        chosen, store = self.chosen[table_id], self._sessions[table_id].store
        if chosen.version == version:
            return chosen
        return read_version(store, self._heads[table_id], version)


LOG = logging.getLogger("manifestcommit.jobs")
_ATTEMPTS = 16  # of which others aborted all but the last


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
    """Commit parts whose keys' declarations name each other; outcomes by table. [MT13]"""
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
    tables = [(part.head.snapshot.rank, part.table_id) for part in parts]
    try:
        return [by_id[table_id] for _, table_id in in_order(tables)]
    except ValueError as error:
        urls = ", ".join(part.url for part in parts[:MOST_TABLES])
        raise UsageError(f"{error}: {urls}. Nothing was committed.") from None


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
                "committed. Commit each on its own: begin(…)."
            )


def _by_key(parts: Sequence[TablePart]) -> dict[str, Outcome] | None:
    """What the heads say of the key, as of now: committed in all tables, or a reuse; None: it is in
    none of them. [MT13] [KY8] The home is read last: a member that is committed by then is seen in
    its own table only after the home."""
    if not any(part.key is not None for part in parts):
        return None
    found: dict[str, Outcome] = {}
    for part in parts:
        if (outcome := _key_found(part)) is not None:
            found[part.table_id] = outcome
    if not found:
        return None
    for part in [part for part in parts if part.table_id not in found]:
        # it may have been read before the decision
        if (outcome := _key_found(part)) is None:
            return _undone_alone(parts, part)
        found[part.table_id] = outcome
    return found if all(each.committed for each in found.values()) else _stopped(parts, found)


def _key_found(part: TablePart) -> Outcome | None:
    change = part.change
    if not isinstance(change, Write) or change.key is None:
        return None
    _, record = find_key_at(part.ctx, part.ctx.open(), change.key)
    return None if record is None else key_outcome(change, record)


def _without_work(parts: Sequence[TablePart]) -> dict[str, Outcome] | None:
    """A job that found its key committed holds no rows; the key is in no table now. [KY8]"""
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
        failed = Outcome(kind="conflict", job_id=self._home.change.job, conflict=conflict)
        return _stopped(self._parts, {self._home.table_id: failed})

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
        job, url, is_recoverable = self._home.change.job, self._home.url, self._is_recoverable
        attempt = attempt_id(job, number)
        placed: dict[str, Outcome] = {}
        member = Member(home=url, job=job, attempt=number, is_recoverable=is_recoverable)
        try:
            for part in self._members:
                outcome = self._commit(part, member)
                if _is_over(outcome, attempt):
                    return None
                if self._is_of_another_run(outcome):
                    return self._of_another_run(part)
                if not outcome.committed or outcome.already_committed:
                    return self._stop(attempt, placed, part, outcome)
                placed[part.table_id] = outcome
            decision = Decision(attempt=attempt, members=self._records(attempt, placed))
            outcome = self._commit(self._home, decision)
        except Exception:  # nothing is decided yet, and others may wait for it
            self._abort(attempt, placed)
            raise
        if _is_over(outcome, attempt):
            text = "%r: attempt %s was aborted by others; the next one begins"
            LOG.info(text, self._home.url, attempt)
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
        # known to have created the version that counts [OB10]
        is_own = outcome.metrics is not None and outcome.metrics.kind == "committed"
        return self._is_recoverable and outcome.committed and not is_own

    def _of_another_run(self, part: TablePart) -> dict[str, Outcome]:
        """What the tables record of a key that another run committed. [AB6] [MT13]"""
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

    def _commit(self, part: TablePart, role: Member | Decision) -> Outcome:
        any_process, signed = Committers.ANY_PROCESS, part.is_prepared
        ctx, head, change = part.ctx, part.head, part.change
        return commit(ctx, head, change, committers=any_process, is_signed=signed, part=role)

    def _records(self, attempt: str, placed: dict[str, Outcome]) -> dict[str, JointRecord]:
        records = {}
        for part in self._members:
            version = placed[part.table_id].version
            assert version is not None
            records[part.table_id] = JointRecord(version=version, attempt=attempt, root=part.url)
        return records

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
            text = f"{outcome.reason}. {others} in any table; trying again is safe."
            raise StoreError(f"{part.url}: {text}")
        return _stopped(self._parts, {part.table_id: outcome})

    def _unknown(self, outcome: Outcome) -> dict[str, Outcome]:
        """Nobody knows of any table: the home tells."""
        reason = f"{outcome.reason} (table {self._home.url}, which decides, job {outcome.job_id})"
        jobs = {part.table_id: part.change.job for part in self._parts}
        return {at: Outcome(kind="unknown", job_id=job, reason=reason) for at, job in jobs.items()}

    def _tell(self, attempt: str, placed: dict[str, Outcome]) -> None:
        """The decision counts: readers need not ask, and exports show it. [MT7] [EX2]"""
        for part in self._members:
            version = placed[part.table_id].version
            assert version is not None
            put_hint(part.ctx.store, version, None, attempt)
            if EXPORT_FORMATS in part.head.snapshot.properties:
                with contextlib.suppress(ManifestCommitError):  # the next export catches up [EX2]
                    part.ctx.open()
                    export_after_commit(part.ctx)
