"""Writers that lose on purpose, die with their change published, and carry what others have published. [CM19] [CM20]"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

from tests.faults.tables import begin, change_of, rows, session, write

from manifestcommit.core.commit.change import Prepared, Write
from manifestcommit.core.format import codec
from manifestcommit.core.table import object_names
from manifestcommit.engine.commit.commit_loop import commit
from manifestcommit.engine.commit.group_commit import Committers
from manifestcommit.engine.metadata.version_chain import open_head, read_object
from manifestcommit.engine.runtime.outcome import Outcome
from manifestcommit.store import Store
from manifestcommit.testing.faults import Died, Fault, FaultCall, FaultStore

_numbers = itertools.count(1_000_000)


def is_create(call: FaultCall) -> bool:
    """Whether it contends for a version."""
    return call.kind == "put_if_absent" and object_names.parse_version(call.name) is not None


def is_publishing(call: FaultCall) -> bool:
    return call.kind == "put_if_absent" and object_names.parse_intent(call.name) is not None


def rival(store: Store) -> None:
    """Someone else commits a row that no test looks at, and neither asks for help nor helps."""
    job = begin(store)
    job.write(rows([next(_numbers)]))
    assert commit(session(store), open_head(store), change_of(job), committers=Committers.THIS_PROCESS).committed


def losing(
    store: Store, times: int, faults: dict[int, Fault] | None = None, *, then: Callable[[FaultCall], None] | None = None
) -> FaultStore:
    """The store for a writer that loses its first creates, each to someone else; then: called with each call besides."""
    lost = 0

    def beat(call: FaultCall) -> None:
        nonlocal lost
        if is_create(call) and lost < times:
            lost += 1
            rival(store)
        if then is not None:
            then(call)

    return FaultStore(store, faults, on_call=beat)


def publish(store: Store, *ids: int, **options: Any) -> str:
    """A writer that loses twice, asks others for help, and dies before it does anything else. Returns its job."""
    before = set(intents(store))

    def die(call: FaultCall) -> None:
        if set(intents(store)) - before:
            raise Died("with its change published")

    with contextlib.suppress(Died):
        write(losing(store, 2, then=die), rows(ids), **options)
    (job,) = set(intents(store)) - before
    return job


def intents(store: Store) -> list[str]:
    """The jobs whose intents are there."""
    return [job for info in store.list(object_names.INTENTS) if (job := object_names.parse_intent(info.name)) is not None]


def put_intent(store: Store, change: Write) -> str:
    """Publish a change by hand."""
    data = codec.encode_intent(Prepared(format_version=1, change=change, prepared_at=0, writer="by hand"))
    assert data is not None and store.put_if_absent(object_names.intent_name(change.job), data)
    return change.job


def carry(store: Store, *ids: int, lose: int = 1, **options: Any) -> Outcome:
    """A writer that loses to someone, sees what others have published, and wins."""
    return write(losing(store, lose), rows(ids), **options)


def carried(store: Store, version: int) -> list[str]:
    """The jobs that a version carries, in its order."""
    found = read_object(store, version)
    assert found is not None
    return [each.job for each in found.snapshot.commits]


def state_of(store: Store, job: str) -> int | str | None:
    """What the head says of a job: its version, "given up", or nothing."""
    jobs = open_head(store).snapshot.recent_jobs
    return None if job not in jobs else jobs[job] or "given up"
