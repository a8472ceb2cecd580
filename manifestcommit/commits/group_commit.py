"""Writers that help each other: who lost, or sees others wait, publishes its change; who wins next
carries it. [CM19] [CM20] [CM22]

Costs nothing where nobody is in the way: intents are seen in the lists that opening and committing
make, and read by those only who lost a create or published.
"""

from __future__ import annotations

import contextlib
import enum
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from ..errors import CorruptMetadataError, StoreError, UnsupportedFormatError
from ..format import codec, object_names
from ..format.change import Change, ConflictInputs, Prepared, Write
from ..format.snapshot import FORMAT_VERSION, Snapshot, Summary
from ..log.table_context import TableContext, find_key, find_record
from ..log.version_chain import MAX_INTENTS, Head, list_above
from ..protocol.commit_group import (
    MAX_CARRIED,
    MAX_CARRIED_BYTES,
    CombinedCommit,
    Intent,
    applies,
    carries_others,
    carry,
    crowds,
    in_order,
    is_plain,
    may_wait,
)
from ..protocol.conflict import find_conflict
from ..runtime.environment import map_concurrently
from ..store import Store

_Result = TypeVar("_Result")

LOG = logging.getLogger("manifestcommit.jobs")
# intents that are read for one create: many in front that can not be carried shall hide none behind
# them
_READS = 4 * MAX_CARRIED
_READERS = 16
_TURNS = 8  # that a job waits for at most, once it has asked for help, before it contends by itself
_TURNS_OF_EACH = 2  # who goes before it
_REQUESTS_OF_A_TURN = 4  # a list, intents, a create, a list
# each turn is waited for longer than the one before: where many wait, nothing is as fast as one
# request tells
_LONGER = 1.5


class Committers(enum.Enum):
    """Who may commit a job. [CM19] [CM21] [AB3]"""

    THIS_PROCESS = "this process, which never publishes the change"
    GROUP = "this process, and once it has published the change, any writer"
    ANY_PROCESS = "any process that knows the job's id, now and before"
    ANY_WRITER = "any process that knows the job's id, and any writer: it may have been published"

    @property
    def is_shared(self) -> bool:
        """Whether others may commit the job, or have tried to, before it is published here."""
        return self in (Committers.ANY_PROCESS, Committers.ANY_WRITER)

    def again(self) -> Committers:
        """Who may commit the job once this commit has begun and its outcome is unknown."""
        return Committers.ANY_WRITER if self is Committers.GROUP else Committers.ANY_PROCESS


class GroupCommit:
    """What one commit knows of intents: its own, and those of others.

    is_published: whether others may have seen the job's intent, so that it may be committed by them
    from then on.
    """

    def __init__(self, ctx: TableContext, job: str, committers: Committers) -> None:
        self._ctx = ctx
        self._job = job
        self._may_publish = committers is Committers.GROUP
        self._waiting: Mapping[str, int] = {}
        self._request_s = 0.0
        self._settled: list[str] = []  # jobs that a version of this job carried
        self.is_published = committers is Committers.ANY_WRITER
        self._is_there = self.is_published  # the job's own intent, as far as is known
        # they never change; None: nothing that can be carried
        self._read: dict[str, Intent | None] = {}

    def saw(self, intents: Mapping[str, int]) -> None:
        """What the last list showed: job -> bytes of its intent."""
        # by those in front of it, behind which a list is not looked at
        is_hidden = len(intents) >= MAX_INTENTS
        self._waiting, self._is_there = (
            intents,
            self._job in intents or (self._is_there and is_hidden),
        )

    def is_crowded(self, head: Snapshot) -> bool:
        """Whether others wait for help already, so that this job had better wait, too. [CM19]"""
        return any(
            job != self._job and self._can_wait(head, job) and crowds(head, job)
            for job in self._waiting
        )

    def _ahead(self, head: Snapshot) -> int:
        """How many who may still be carried go before this job, having begun earlier; none where it
        has not asked, or is decided. [CM20]"""
        if not self.is_published or not may_wait(head, self._job):
            return 0
        waiting = {self._job, *(job for job in self._waiting if self._can_wait(head, job))}
        return in_order(waiting).index(self._job)

    def ask_first(self, head: Head, change: Change, summary: Summary) -> bool:
        """Where the list with which the table was opened showed that others wait, ask before any
        create. Whether it asked now. [CM19]

        That list may be old, and is good for nothing else: who wins its first create reads nothing
        of others.
        """
        if self.is_published:
            return False
        self._waiting = head.waiting
        asked = self.is_crowded(head.snapshot) and self.publish(change, summary)
        self._waiting = self._waiting if asked else {}
        return asked

    def publish(self, change: Change, summary: Summary) -> bool:
        """Ask others to carry this change; once, best effort: a job that is not heard goes on
        alone. Whether it asked now. [CM19]

        One request, none where the change is not plain or too large for others.
        """
        if not self._may_publish:
            return False
        self._may_publish = False
        if not is_plain(change):
            return False
        env = self._ctx.env
        own = msgspec.structs.replace(change, summary=summary)
        data = codec.encode_intent(
            Prepared(
                format_version=FORMAT_VERSION,
                change=own,
                prepared_at=env.now_us(),
                writer=self._ctx.writer,
            )
        )
        if data is None:
            return False
        # also where the store says that it failed: the request may land later
        self.is_published = self._is_there = True
        with contextlib.suppress(StoreError):
            self._timed(
                partial(self._ctx.store.put_if_absent, object_names.intent_name(self._job), data)
            )
        return True

    def wait_for_turn(self, head: Head, shortest_s: float, longest_s: float) -> int:
        """A job that has asked for help lets those go first that began earlier: one of them carries
        it along. The newest version seen. [CM20]

        It waits for two turns of each who is ahead, and for a few at most: they may be dead, or in
        conflict with what is there. It waits no longer than its intent is there, which its carrier
        takes away. One list for each turn. 0 where the table is gone.
        """
        env, version = self._ctx.env, head.version
        for waited in range(_TURNS):
            if waited >= _TURNS_OF_EACH * self._ahead(head.snapshot):
                break
            lap_s = max(shortest_s, _REQUESTS_OF_A_TURN * self._request_s) * _LONGER**waited
            env.sleep(min(lap_s, longest_s) * (0.5 + env.jitter()))
            above = self._timed(partial(list_above, self._ctx.store, head.version))
            self.saw(above.intents)
            version = max(above.versions, default=0)
            if not version or not self._is_there:
                break
        return version

    def settled(self, version: Snapshot) -> None:
        """This version, which the job created, counts: those it carried need not ask. [CM22]"""
        self._settled = [each.job for each in version.commits if each.job != self._job]

    def retract(self) -> None:
        """The job is decided, in a head: nobody needs its intent, nor those that its version
        carried. Best effort. [CM22]

        One request, none where there is nothing to remove; gc takes what stays.
        """
        jobs = [*self._settled, *([self._job] if self._is_there else [])]
        self._settled, self._is_there = [], False
        if jobs:
            with contextlib.suppress(StoreError):
                self._ctx.store.delete([object_names.intent_name(job) for job in jobs])

    def carry(self, head: Snapshot, own: Change, found: ConflictInputs) -> CombinedCommit:
        """The head with those changes on top that others have published and that may come before
        this one's own. [CM20]

        One request for each intent that is seen for the first time; more where many are waiting
        that do not apply, up to a bound.
        """
        alone = carried = CombinedCommit(snapshot=head)
        if not self._waiting or not carries_others(own):
            return alone
        room, reads = MAX_CARRIED_BYTES, _READS
        jobs = in_order(
            job for job in self._waiting if job != self._job and self._can_wait(head, job)
        )
        for start in range(0, len(jobs), MAX_CARRIED):
            reads -= self._fetch(jobs[start : start + MAX_CARRIED], reads)
            for job in jobs[start : start + MAX_CARRIED]:
                waiting = self._read.get(job)
                if (
                    waiting is None
                    or waiting.size_bytes > room
                    or not self._applies(carried.snapshot, waiting.change)
                ):
                    continue
                carried = self._with(carried, waiting.change)
                room -= waiting.size_bytes
                if len(carried.commits) == MAX_CARRIED:
                    break
            if len(carried.commits) == MAX_CARRIED or reads <= 0:
                break
        return (
            carried
            if carried.commits and self._still_holds(carried.snapshot, own, found)
            else alone
        )

    def _timed(self, request: Callable[[], _Result]) -> _Result:
        began_us = self._ctx.env.now_us()
        try:
            return request()
        finally:
            self._request_s = (self._ctx.env.now_us() - began_us) / 1e6

    def _can_wait(self, head: Snapshot, job: str) -> bool:
        return (
            0 < self._waiting[job] <= codec.MAX_INTENT_BYTES
            and self._read.get(job, True) is not None
            and may_wait(head, job)
        )

    def _fetch(self, jobs: list[str], most: int) -> int:
        """Read those that were not read yet, up to so many; how many that were."""
        new = [job for job in jobs if job not in self._read][: max(0, most)]
        store = self._ctx.store
        found = map_concurrently(store, partial(_readable_intent, store), new, limit=_READERS)
        self._read.update(zip(new, found, strict=True))
        return len(new)

    def _applies(self, state: Snapshot, change: Write) -> bool:
        record = find_record(self._ctx, state, change.key) if change.key is not None else None
        fits = applies(state, change, record)
        return fits and self._ctx.manifests.job(state, change.job)[0] is None

    def _with(self, carried: CombinedCommit, change: Write) -> CombinedCommit:
        env = self._ctx.env
        commit_id = f"{change.job}.{env.randomness(8).hex()}"
        return carry(
            carried, change, commit_id=commit_id, now_us=env.now_us(), writer=self._ctx.writer
        )

    def _still_holds(self, state: Snapshot, own: Write, found: ConflictInputs) -> bool:
        """Whether what is carried leaves the own change right: nobody who helps loses by it."""
        is_new = own.key is None or find_key(self._ctx, state, own.key) is None
        return is_new and find_conflict(state, own, (), found) is None


def read_intent(store: Store, job: str) -> Intent | None:
    """What a job has published; None only where that is gone; else an error. [CM21]"""
    name = object_names.intent_name(job)
    try:
        prepared, size_bytes = codec.decode_intent(
            store.get(name, 0, codec.MAX_INTENT_BYTES + 1), name=name
        )
    except FileNotFoundError:
        return None
    return Intent(change=prepared.change, size_bytes=size_bytes)


def _readable_intent(store: Store, job: str) -> Intent | None:
    """As `read_intent`, for who helps: what cannot be read holds up nobody. [CM20]"""
    try:
        return read_intent(store, job)
    except (CorruptMetadataError, UnsupportedFormatError, StoreError) as error:
        LOG.debug("%r: an intent is skipped: %s", store.url, error)
        return None
