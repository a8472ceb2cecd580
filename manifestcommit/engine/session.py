"""One process' view of one table: the store, the outside, and what is known already. [CM11]

Not here: any rule. Everything that the engine's functions share is in this value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core import format
from ..core.snapshot import Summary
from ..store import Store
from ..store.doctor import prove
from ..version import WRITER
from .env import Env, SystemEnv
from .figures import Meter, Phase, Tally
from .head import Head, open_above
from .manifests import ManifestReader


class Session:
    """A store with an outside, a manifest cache, and the newest head that this process has seen. Not shared between threads."""

    def __init__(self, store: Store, env: Env | None = None) -> None:
        self.store = store
        self.env: Env = env or getattr(store, "env", None) or SystemEnv()  # a simulated store brings its outside along
        self.manifests = ManifestReader(store)
        self.known: Head | None = None
        self.waiting: Mapping[str, int] = {}  # the intents that the list of the last opening showed: job -> bytes
        self.absent_keys: dict[str, set[str]] = {}  # key -> runs, which never change, that do not have it
        self._has_proven = False
        self.tally = Tally(store)
        self.writer = WRITER

    def new_field_id(self) -> int:
        """A field id drawn at random; whoever gives it to a schema sees to it that no two fields share one. [SC1]"""
        return (int.from_bytes(self.env.randomness(4), "big") & 0x7FFFFFFF) or 1

    def new_job(self, head: Head) -> str:
        """The id of a job that is born at this head: like no other's. [LY4] [CM15]"""
        return format.job_id(head.version, head.snapshot.table_id, self.env.randomness(16))

    def meter(self, job: str, operation: str = "", summary: Summary = Summary(), phase: Phase = "both") -> Meter:  # noqa: B008  # frozen
        """Begins to measure a commit of this job."""
        return Meter(self.tally, self.env.now_us, table=self.store.url, job=job, operation=operation, summary=summary, phase=phase)

    def prove(self, proven: Sequence[str]) -> None:
        """The store lets one of many racing creators win, or UnsafeStoreError before anything is written. [ST7] [ST12]

        proven: the stores of which the table's head knows it. Elsewhere (a new table, a copy on another store) creators are raced, once.
        """
        if self.store.identity and self.store.identity not in proven and not self._has_proven:
            prove(self.store)
            self._has_proven = True

    def open(self) -> Head:
        """The head as of this call. Three requests. [RD1]"""
        self.known, self.waiting = open_above(self.store)
        return self.known
