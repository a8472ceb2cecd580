"""Writers that help each other: who lost, or sees others wait, publishes its change; who wins next carries it. [CM19] [CM20] [CM22]

Costs nothing where nobody is in the way: intents are seen in the lists that opening and committing make, and read by those only who lost
a create or published. Not here: which changes these are and what one version makes of them (core.intent), after which step of a commit
to publish, to wait and to retract (engine.commit).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from ..core import format, intent
from ..core.change import Change, Found, Prepared
from ..core.conflict import find_conflict
from ..core.intent import MAX_CARRIED, MAX_CARRIED_BYTES, Carried, Intent
from ..core.snapshot import FORMAT_VERSION, Snapshot, Summary
from ..errors import CorruptMetadataError, StoreError, UnsupportedFormatError
from ..store import Store
from .at_once import at_once
from .head import MAX_INTENTS, Head, list_above
from .lookup import find_job, find_key
from .session import Session

_Result = TypeVar("_Result")

LOG = logging.getLogger("manifestcommit.jobs")
_READS = 4 * MAX_CARRIED  # intents that are read for one create: many in front that can not be carried shall hide none behind them
_READERS = 16
_TURNS = 8  # that a job waits for at most, once it has asked for help, before it contends by itself
_TURNS_OF_EACH = 2  # who goes before it
_REQUESTS_OF_A_TURN = 4  # a list, intents, a create, a list
_LONGER = 1.5  # each turn is waited for longer than the one before: where many wait, nothing is as fast as one request tells


class Helping:
    """What one commit knows of intents: its own, and those of others. may_publish: whether only this process can finish the job.

    is_published: whether others may have seen the job's intent, so that it may be committed by them from then on.
    """

    def __init__(self, session: Session, job: str, *, may_publish: bool, is_published: bool = False) -> None:
        self._session = session
        self._job = job
        self._may_publish = may_publish
        self._waiting: Mapping[str, int] = {}
        self._request_s = 0.0
        self._settled: list[str] = []  # jobs that a version of this job carried
        self._is_there = is_published  # the job's own intent, as far as is known
        self._read: dict[str, Intent | None] = {}  # they never change; None: nothing that can be carried
        self.is_published = is_published

    def saw(self, intents: Mapping[str, int]) -> None:
        """What the last list showed: job -> bytes of its intent."""
        is_hidden = len(intents) >= MAX_INTENTS  # by those in front of it, behind which a list is not looked at
        self._waiting, self._is_there = intents, self._job in intents or (self._is_there and is_hidden)

    def is_crowded(self, head: Snapshot) -> bool:
        """Whether others wait for help already: then it is better to wait with them than to be in their way. [CM19]"""
        return any(job != self._job and self._can_wait(head, job) and intent.crowds(head, job) for job in self._waiting)

    def _ahead(self, head: Snapshot) -> int:
        """How many who may still be carried go before this job, being born earlier; none where it has not asked, or is decided. [CM20]"""
        if not self.is_published or not intent.may_wait(head, self._job):
            return 0
        waiting = {self._job, *(job for job in self._waiting if self._can_wait(head, job))}
        return intent.in_order(waiting).index(self._job)

    def ask_first(self, head: Snapshot, change: Change, summary: Summary) -> bool:
        """Where the list with which the table was opened showed that others wait, ask before any create. Whether it asked now. [CM19]

        That list may be old, and is good for nothing else: who wins its first create reads nothing of others.
        """
        if self.is_published:
            return False
        self._waiting = self._session.waiting
        asked = self.is_crowded(head) and self.publish(change, summary)
        self._waiting = self._waiting if asked else {}
        return asked

    def publish(self, change: Change, summary: Summary) -> bool:
        """Ask others to carry this change; once, best effort: whoever is not heard goes on alone. Whether it asked now. [CM19]

        One request, none where the change is not plain or too large for others.
        """
        if not self._may_publish:
            return False
        self._may_publish = False
        if not intent.is_plain(change):
            return False
        env = self._session.env
        own = msgspec.structs.replace(change, summary=summary)
        data = format.encode_intent(
            Prepared(format_version=FORMAT_VERSION, change=own, prepared_at=env.now_us(), writer=self._session.writer)
        )
        if data is None:
            return False
        self.is_published = self._is_there = True  # also where the store says that it failed: the request may land later
        with contextlib.suppress(StoreError):
            self._timed(partial(self._session.store.put_if_absent, format.intent_name(self._job), data))
        return True

    def wait_for_turn(self, head: Head, shortest_s: float, longest_s: float) -> int:
        """Who has asked for help lets those go first who were born earlier: one of them carries it along. The newest version seen. [CM20]

        It waits for two turns of each who is ahead, and for a few at most: they may be dead, or in conflict with what is there.
        It waits no longer than its intent is there, which its carrier takes away. One list for each turn. 0 where the table is gone.
        """
        env, version = self._session.env, head.version
        for waited in range(_TURNS):
            if waited >= _TURNS_OF_EACH * self._ahead(head.snapshot):
                break
            lap_s = max(shortest_s, _REQUESTS_OF_A_TURN * self._request_s) * _LONGER**waited
            env.sleep(min(lap_s, longest_s) * (0.5 + env.jitter()))
            above = self._timed(partial(list_above, self._session.store, head.version))
            self.saw(above.intents)
            version = max(above.versions, default=0)
            if not version or not self._is_there:
                break
        return version

    def settled(self, version: Snapshot) -> None:
        """This version, which the job created, counts: whom it carried need not ask any more. [CM22]"""
        self._settled = [each.job for each in version.commits if each.job != self._job]

    def retract(self) -> None:
        """The job is decided, in a head: nobody needs its intent, nor those that its version carried. Best effort. [CM22]

        One request, none where there is nothing to take away; gc takes what stays.
        """
        jobs = [*self._settled, *([self._job] if self._is_there else [])]
        self._settled, self._is_there = [], False
        if jobs:
            with contextlib.suppress(StoreError):
                self._session.store.delete([format.intent_name(job) for job in jobs])

    def carry(self, head: Snapshot, own: Change, found: Found) -> Carried:
        """The head with those changes on top that others have published and that may come before this one's own. [CM20]

        One request for each intent that is seen for the first time; more where many are waiting that do not apply, up to a bound.
        """
        alone = carried = Carried(snapshot=head)
        if not self._waiting or not intent.carries_others(own):
            return alone
        room, reads = MAX_CARRIED_BYTES, _READS
        jobs = intent.in_order(job for job in self._waiting if job != self._job and self._can_wait(head, job))
        for start in range(0, len(jobs), MAX_CARRIED):
            reads -= self._fetch(jobs[start : start + MAX_CARRIED], reads)
            for job in jobs[start : start + MAX_CARRIED]:
                waiting = self._read.get(job)
                if waiting is None or waiting.size_bytes > room or not self._applies(carried.snapshot, waiting.change):
                    continue
                carried = self._with(carried, waiting.change)
                room -= waiting.size_bytes
                if len(carried.commits) == MAX_CARRIED:
                    break
            if len(carried.commits) == MAX_CARRIED or reads <= 0:
                break
        return carried if carried.commits and self._still_holds(carried.snapshot, own, found) else alone

    def _timed(self, request: Callable[[], _Result]) -> _Result:
        began_us = self._session.env.now_us()
        try:
            return request()
        finally:
            self._request_s = (self._session.env.now_us() - began_us) / 1e6

    def _can_wait(self, head: Snapshot, job: str) -> bool:
        return 0 < self._waiting[job] <= format.MAX_INTENT_BYTES and self._read.get(job, True) is not None and intent.may_wait(head, job)

    def _fetch(self, jobs: list[str], most: int) -> int:
        """Read those that were not read yet, up to so many; how many that were."""
        new = [job for job in jobs if job not in self._read][: max(0, most)]
        store = self._session.store
        found = at_once(store, partial(_readable_intent, store), new, most=_READERS)
        self._read.update(zip(new, found, strict=True))
        return len(new)

    def _applies(self, state: Snapshot, change: Change) -> bool:
        if not intent.applies(state, change) or find_job(self._session, state, change.job)[0] is not None:
            return False
        return change.key is None or find_key(self._session, state, change.key) is None

    def _with(self, carried: Carried, change: Change) -> Carried:
        env = self._session.env
        commit_id = f"{change.job}.{env.randomness(8).hex()}"
        return intent.carry(carried, change, commit_id=commit_id, now_us=env.now_us(), writer=self._session.writer)

    def _still_holds(self, state: Snapshot, own: Change, found: Found) -> bool:
        """Whether what is carried leaves the own change right: nobody who helps shall lose by it."""
        is_new = own.key is None or find_key(self._session, state, own.key) is None
        return is_new and find_conflict(state, own, (), found) is None


def read_intent(store: Store, job: str) -> Intent | None:
    """What a job has published; None only where that is gone, an error where it cannot be read. [CM21]"""
    name = format.intent_name(job)
    try:
        prepared, size_bytes = format.decode_intent(store.get(name, 0, format.MAX_INTENT_BYTES + 1), name=name)
    except FileNotFoundError:
        return None
    return Intent(change=prepared.change, size_bytes=size_bytes)


def _readable_intent(store: Store, job: str) -> Intent | None:
    """As `read_intent`, for who helps: what is damaged, refused, or of a later release is passed over, and holds up nobody. [CM20]"""
    try:
        return read_intent(store, job)
    except (CorruptMetadataError, UnsupportedFormatError, StoreError) as error:
        LOG.debug("%r: an intent is passed over: %s", store.url, error)
        return None
