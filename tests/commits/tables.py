"""Tables of one store in memory, and joint commits over them that stop anywhere; tables on a disk."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

import manifestcommit as mc
from manifestcommit.commits.commit_loop import abort_attempt, commit, create_table
from manifestcommit.commits.joint_commit import TablePart, commit_jointly
from manifestcommit.format import codec
from manifestcommit.format.change import Advance, Write
from manifestcommit.format.fields import Field, Schema
from manifestcommit.format.snapshot import Pending, Snapshot
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import Head, open_head
from manifestcommit.operations.verify import verify
from manifestcommit.protocol.joint_outcome import attempt_of
from manifestcommit.runtime.environment import Env
from manifestcommit.runtime.outcome import Outcome
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore, FaultStore

DAY = pa.table({"id": [1, 2], "note": ["a=b/ %+#é", None]})
SCHEMA = Schema(fields=(Field(id=1, name="id", type="long"),))
_NUMBERS = itertools.count()
# requests of a joint commit of two tables until its decision has been created
DECIDED = 3


class Crash(BaseException):
    """The process died before a request."""


class Hurried(Env):
    """An environment whose clock goes on where something waits, and which waits for nothing."""

    def __init__(self) -> None:
        self.waited_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.waited_us

    def sleep(self, seconds: float) -> None:
        self.waited_us += round(seconds * 1e6)


class Lake:
    """Some tables; the first one is the home of every joint commit over it."""

    def __init__(self, count: int = 2) -> None:
        self.env = Hurried()
        number = next(_NUMBERS)
        urls = [f"memory://lake{number}/table {name} %+=#é" for name in "abcde"[:count]]
        heads = {url: create_table(self.at(url), schema=SCHEMA, partition_by=(), properties={}) for url in urls}
        self.urls = sorted(urls, key=lambda url: heads[url].snapshot.table_id)

    def at(self, url: str) -> TableContext:
        """A process that has just begun."""
        return TableContext(open_store(url), self.env)

    def head(self, which: int) -> Head:
        return open_head(open_store(self.urls[which]))

    def heads(self) -> list[Head]:
        return [self.head(which) for which in range(len(self.urls))]

    def parts(self, which: Sequence[int] | None = None, *, key: str | None = None, **change: Any) -> list[TablePart]:
        """One job for each table, which moves the source `s` by one."""
        found = []
        for each in which if which is not None else range(len(self.urls)):
            session = self.at(self.urls[each])
            head = session.open()
            at = head.snapshot.watermarks.get("s")
            advance = Advance(source="s", start=at, end=int(at or 0) + 1)
            job = session.new_job(head)
            made = Write(job=job, birth=head.version, operation="append", declared="d", key=key, advances=(advance,), **change)
            found.append(TablePart(ctx=session, head=head, change=made))
        return found

    def moved(self) -> list[int]:
        """How often the source has moved in each table, as readers see it."""
        return [int(head.snapshot.watermarks.get("s") or 0) for head in self.heads()]

    def newest(self, which: int) -> Snapshot:
        """The newest object, whatever a reader makes of it."""
        store = open_store(self.urls[which])
        name = max(info.name for info in store.list("_manifest/versions/0"))
        return codec.decode_snapshot(store.get(name), name=name)

    def pending(self, which: int) -> Pending:
        """What the newest object, a member, says of its joint commit."""
        pending = self.newest(which).pending
        assert pending is not None
        return pending


def crashing(after: int, counts: Callable[[Any], bool] = lambda call: True) -> Callable[[Any], None]:
    """The process dies before its next request once it has made so many of those that count, of all tables together."""
    count = itertools.count()

    def on_call(call: Any) -> None:
        if counts(call) and next(count) >= after:
            raise Crash

    return on_call


def watched(parts: Sequence[TablePart], on_call: Callable[[Any], None]) -> list[TablePart]:
    stores = [FaultStore(part.ctx.store, on_call=on_call) for part in parts]
    return [msgspec.structs.replace(part, ctx=TableContext(store, part.ctx.env)) for part, store in zip(parts, stores, strict=True)]


def stopped(parts: Sequence[TablePart], after: int) -> tuple[Outcome, ...] | None:
    """The outcomes; None: the process died before request number `after`."""
    try:
        return commit_jointly(watched(parts, crashing(after)))
    except Crash:
        return None


def aborted_attempt(lake: Lake, parts: Sequence[TablePart]) -> str:
    """The id of an attempt at these parts that died before its decision, and that others have aborted."""
    stopped(parts, 2)
    attempt = attempt_of(lake.pending(1))
    abort_attempt(lake.at(lake.urls[0]), attempt)
    return attempt


def tables_on_disk(folder: Path) -> list[str]:
    """The paths of three empty tables with the columns of DAY."""
    paths = [str(folder / name) for name in ("orders %+=#é", "rejects", "empty ’")]
    for path in paths:
        mc.create_table(path, DAY.schema)
    return paths


def counted(parts: Sequence[TablePart]) -> tuple[list[TablePart], Callable[[], list[tuple[str, str]]]]:
    """The parts in a process whose requests are recorded: table and kind of each."""
    stores = [CountingStore(part.ctx.store) for part in parts]
    made = [
        TablePart(ctx=TableContext(store, part.ctx.env), head=part.head, change=part.change)
        for part, store in zip(parts, stores, strict=True)
    ]
    return made, lambda: [(store.url, call.kind) for store in stores for call in store.calls]


def append(lake: Lake, which: int) -> int:
    """A commit of another process to one table; its version."""
    session = lake.at(lake.urls[which])
    head = session.open()
    outcome = commit(session, head, Write(job=session.new_job(head), birth=head.version, operation="append"))
    assert outcome.committed and outcome.version is not None
    return outcome.version


def sound(lake: Lake) -> None:
    for url in lake.urls:
        report = verify(lake.at(url))
        assert report.is_sound, report.findings
