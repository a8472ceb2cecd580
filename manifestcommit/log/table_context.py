"""One process' view of one table: the store, the environment, and what is known already. [CM11]

This value holds everything that the engine's functions share.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa

from ..format import object_names
from ..format.change import Change, Write
from ..format.fields import Schema
from ..format.snapshot import Author, Constraint, Note, Snapshot, Summary, allowed, is_far
from ..protocol.conflict import Violation
from ..runtime.environment import Env, SystemEnv, Tuning
from ..runtime.environment import tuning as process_tuning
from ..runtime.outcome import Meter, Phase, StoreCounters
from ..store import Store
from ..store.base import now_of
from ..store.doctor import prove
from ..version import WRITER
from . import export_hook
from .manifests import ManifestReader
from .version_chain import Head, open_above

LOG = logging.getLogger("manifestcommit.jobs")
_SLOW_PROOF_S = 2.0
_SLOW_PROOF = (
    "%r: testing whether a create has one winner on this store, once before the first commit. "
    "Servers that keep creators of one name waiting take 10 s and more"
)

_NO_SUMMARY = Summary()
_NO_NOTE = Note()
_Change = TypeVar("_Change", bound=Change)


# table id -> the URL and the version that this process has read last, and has not committed since
LATEST_READ: dict[str, tuple[str, int]] = {}
_MOST_READ = 1000


class RowCheck(Protocol):
    """Checks the rows of one attempt against constraints. [CK2]"""

    def take(self, rows: pa.RecordBatch) -> bool: ...

    def end(self) -> None: ...


class Gate(Protocol):
    """Checks rows against constraints, above the engine. It is loaded only for a table that has
    any. [CK2]"""

    def row_check(self, plan: Any, url: str) -> RowCheck: ...

    def check_change(
        self, ctx: TableContext, head: Snapshot, change: Write, names: Sequence[str]
    ) -> Violation | None: ...

    def violation(self, ctx: TableContext, snapshot: Snapshot, name: str) -> Violation | None: ...

    def text_of(self, constraint: Constraint, schema: Schema) -> str: ...

    def check_schema(self, snapshot: Snapshot, schema: Schema) -> None: ...

    def bind(self, ctx: TableContext, conditions: Any, schema: Schema) -> Any: ...


def gate() -> Gate:
    """What checks rows against constraints."""
    found: Gate = export_hook.registered("gate")()
    return found


class TableContext:
    """A store with its environment, a manifest cache, and the newest version that this process has
    seen. Not shared between threads.

    note: what the caller says of the commits that are made with it; author: who makes them, if not
    this process.
    """

    def __init__(
        self,
        store: Store,
        env: Env | None = None,
        tuning: Tuning | None = None,
        *,
        note: Note = _NO_NOTE,
        author: Author | None = None,
    ) -> None:
        self.store = store
        self._tuning = tuning
        # a simulated store brings its own environment
        self.env: Env = env or getattr(store, "env", None) or SystemEnv()
        self.manifests = ManifestReader(store)
        self.known: Head | None = None
        # the intents in the listing of the last open: job -> bytes
        self.waiting: Mapping[str, int] = {}
        # key -> runs without it; runs never change
        self.absent_keys: dict[str, set[str]] = {}
        self._has_proven = False
        self.tally = StoreCounters(store)
        self.writer = WRITER
        self.note = note
        self.author = author
        self._warned: set[str] = set()

    @property
    def tuning(self) -> Tuning:
        """What commits of this table are tuned by: what was passed in, or the process' values."""
        return self._tuning or process_tuning()

    def new_field_id(self) -> int:
        """A random field id; the caller ensures that no two fields of a schema share one. [SC1]"""
        return (int.from_bytes(self.env.randomness(4), "big") & 0x7FFFFFFF) or 1

    def new_job(self, head: Head) -> str:
        """A new unique id of a job whose base version is this head. [LY4] [CM15]"""
        return object_names.job_id(head.version, head.snapshot.table_id, self.env.randomness(16))

    def noting(self, message: str | None, metadata: Mapping[str, str] | None) -> TableContext:
        """This context for one call, whose commits carry this note. What is cached is shared.
        [OB15]"""
        if message is None and metadata is None:
            return self
        other = copy.copy(self)
        other.note = Note(message=message, metadata=dict(metadata or {}))
        return other

    def at(self, store: Store) -> TableContext:
        """A context of another table, for what this process does there on behalf of this one. Its
        commits carry no note. [MT9]"""
        return TableContext(store, self.env, self._tuning, author=self.author)

    def signed(self, change: _Change, properties: Mapping[str, str]) -> _Change:
        """The change with what the caller says of it, and who makes it, as far as a table with
        these properties records that. [OB15]"""
        return msgspec.structs.replace(
            change,
            message=self.note.message,
            metadata=self.note.metadata,
            author=allowed(self.who(), properties),
        )

    def signing_as(self, change: Change) -> TableContext:
        """This context for what the process that signed this change began. [OB15]"""
        other = copy.copy(self)
        other.note = Note(message=change.message, metadata=change.metadata)
        other.author = change.author or Author()
        return other

    def who(self) -> Author:
        """Who makes the changes that this process commits. [OB15]"""
        return self.env.author() if self.author is None else self.author

    def meter(
        self, job: str, operation: str = "", summary: Summary = _NO_SUMMARY, phase: Phase = "both"
    ) -> Meter:
        """Start to measure a commit of this job."""
        return Meter(
            self.tally,
            self.env.now_us,
            table=self.store.url,
            job=job,
            operation=operation,
            summary=summary,
            phase=phase,
        )

    def prove(self, proven: Sequence[str]) -> None:
        """Check that put-if-absent on this store has one winner; UnsafeStoreError otherwise, before
        anything is written. [ST7] [ST12]

        proven: the stores that the table's latest version records as proven. On any other store (a
        new table, a copy on another store) concurrent put-if-absent probes run once.
        """
        if self.store.identity and self.store.identity not in proven and not self._has_proven:
            slow = threading.Timer(_SLOW_PROOF_S, LOG.warning, (_SLOW_PROOF, self.store.url))
            slow.daemon = True
            slow.start()
            try:
                prove(self.store)
            finally:
                slow.cancel()
            self._has_proven = True

    def commit_time_us(self, parent_us: int) -> int:
        """The time of a commit: this machine's clock, or the store's if the two disagree. [CM14]
        [CM27]"""
        now_us, told_s = self.env.now_us(), now_of(self.store)
        if told_s is not None and is_far(now_us, int(told_s * 1e6)):
            self._warn_once(
                "clock",
                (
                    f"this machine's clock is {_apart(now_us, int(told_s * 1e6))} the "
                    "store's, whose time is used. Synchronize this machine's clock (NTP)"
                ),
            )
            now_us = int(told_s * 1e6)
        if parent_us > now_us and is_far(now_us, parent_us):
            self._warn_once(
                "parent",
                "the newest version says that it was committed later than now, by a clock that is "
                f"{_apart(parent_us, now_us)} this one. One of them is wrong. Versions say the "
                "same time until then, so that as_of cannot choose between them: use version=",
            )
        return now_us

    def note_read(self, snapshot: Snapshot) -> None:
        """The caller gets the latest rows, which an overwrite may be computed from. [CF17]"""
        while len(LATEST_READ) >= _MOST_READ:
            del LATEST_READ[next(iter(LATEST_READ))]
        LATEST_READ[snapshot.table_id] = self.store.url, snapshot.version

    def check_read(self, table_id: str, base_version: int) -> None:
        """Warn where an overwrite, whose rows do not say from which version they are, begins at a
        later one than this process has read last. [CF17]"""
        url, version = LATEST_READ.get(table_id, ("", 0))
        if url == self.store.url and version < base_version:
            self._warn_once(
                "read",
                f"this process has read version {version}, and others have committed since. The "
                "rows of this overwrite do not say which version they were computed from (joins, "
                "group_by, concat_tables and other libraries lose it): if it is that one, what was "
                f"committed since is lost. Pass based_on={version} to be safe",
            )

    def _warn_once(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            LOG.warning("%r: %s", self.store.url, text)

    def open(self) -> Head:
        """The latest version as of this call. Three requests, of which two go side by side; one
        where the last one that this context has seen is still the latest. [RD1]"""
        self.known, self.waiting = open_above(self.store, self.known)
        return self.known


def _apart(mine_us: int, other_us: int) -> str:
    hours = (mine_us - other_us) / 3.6e9
    return f"{abs(hours):,.1f} hours {'ahead of' if hours > 0 else 'behind'}"
