"""Consistent versions of several tables: each joint commit is in all of them or in none. [MT12]"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import SnapshotExpiredError, StoreError, TableNotFoundError, UsageError
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext
from ..log.version_chain import Head, read_version
from ..protocol.joint_outcome import Mismatch, find_mismatch, lowest_allowed
from ..store.base import store_beside

_MOVES = 64  # of versions that do not fit, for each table
_RESTARTS = 5


def read_jointly(contexts: Sequence[TableContext]) -> list[Head]:
    """One version of each table, such that every joint commit is in all of these or in none; what
    was acknowledged before this call is in them. [MT12]

    Three requests for each table; three more for each home that is not among them, and two for each
    table that was overtaken while they were read. StoreError where joint commits of several homes
    overtake each other too often.
    """
    gone: set[str] = set()
    for _ in range(_RESTARTS):
        reading = _Reading(contexts, gone)
        try:
            if reading.run():
                return [reading.chosen[reading.ids[at]] for at in range(len(contexts))]
        except SnapshotExpiredError:
            continue  # gc has passed a version that would have fit
    urls = ", ".join(ctx.store.url for ctx in contexts)
    raise StoreError(
        f"joint commits overtook this read of {urls} {_RESTARTS} times; nothing was read. Try "
        "again."
    )


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
        other = self._sessions.get(table_id, ctx).store.url
        if other != ctx.store.url:
            raise UsageError(
                f"{other} and {ctx.store.url} hold the same table {table_id}: one is a copy of "
                "the other, or a link to it; nothing was read. Read only one of them."
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
                store = store_beside(ctx.store, record.root)
                if store is None:
                    raise StoreError(
                        f"{ctx.store.url}: {record.root} decides joint commits of this table, "
                        "and is not in the same store; name it among the tables to read."
                    )
                self._open_home(ctx.at(store), home)
        return len(self._gone) > before

    def _open_home(self, ctx: TableContext, home: str) -> None:
        try:
            head = ctx.open()
        except TableNotFoundError:
            self._gone.add(home)
            return
        if head.snapshot.table_id == home:
            self._open(ctx, head)
        else:
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
