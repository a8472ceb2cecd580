"""Writers that lose on purpose, die with their change published, and carry what others have published; a fault at any call of a change;
processes, and threads in turn. [CM19] [CM20]"""

import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

from tests.kit.sizes import in_turn
from tests.kit.tables import begin, change_of, check_table, clone, key_version, positions, read_ids, rows, session, write

import manifestcommit as mc
from manifestcommit.commits.commit_loop import Committers, commit
from manifestcommit.commits.two_phase import resolve_job
from manifestcommit.errors import ManifestCommitError, OutcomeUnknownError, StoreError, StoreUnclearError
from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Prepared, Write
from manifestcommit.log.version_chain import open_head, read_object
from manifestcommit.runtime.outcome import Outcome
from manifestcommit.store import Store
from manifestcommit.store.local import LocalStore
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


def before_create(store: Store, *acts: Callable[[], object]) -> FaultStore:
    """The store for a writer before whose first create of a version somebody else does the first of `acts`, and so on."""
    waiting = list(acts)

    def meet(call: FaultCall) -> None:
        if is_create(call) and waiting:
            waiting.pop(0)()

    return FaultStore(store, on_call=meet)


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


# --- every fault at every call, and a rerun -------------------------------------------------------------------------------
FAULTS: tuple[Fault, ...] = get_args(Fault)
READS = ("get", "list", "open_input")
KEY = "the same on every rerun"


def small(store: Store) -> None:
    write(store, rows(range(5), day="a"), partition_by=["day"], key="before", watermarks={"s": (0, 5)})
    write(store, rows(range(5, 8), day="b"))


def full(store: Store) -> None:
    """Everything is one step from its budget."""
    small(store)
    for number in range(11):
        write(store, rows([100 + number], day="abc"[number % 3]), key=f"key {number}")


def state(store: Store) -> tuple[list[int], dict[str, Any]]:
    return read_ids(store), positions(store)


def faults_of(healthy: FaultStore, number: int) -> Sequence[Fault]:
    """Before or after its effect is the same for a call that has none. All at each create; other calls have them in turn."""
    kind = healthy.calls[number - 1].kind
    if kind == "put_if_absent":
        return FAULTS
    return in_turn(("refused", "dies_before"), number, 1) if kind in READS else in_turn(FAULTS, number, 2)


def attempt(publish: Callable[[Store], mc.Outcome], store: Store) -> mc.Outcome | BaseException:
    try:
        return publish(store)
    except (ManifestCommitError, Died) as error:
        return error


def every_fault(prepare: Callable[[Store], Any], publish: Callable[[Store], mc.Outcome], fresh: Callable[[], Store], step: int = 1) -> None:
    """Publish once for each (or each step-th) call of a healthy run and each fault at that call, on a copy of the same table."""
    base = fresh()
    prepare(base)
    old = state(base)
    healthy = FaultStore(clone(base, fresh))
    publish(healthy)
    new = state(healthy)
    assert new != old
    for number in range(1, healthy.count + 1, step):
        for fault in faults_of(healthy, number):
            inner = clone(base, fresh)
            store = FaultStore(inner, {number: fault})
            told = attempt(publish, store)
            # Which runs are looked into depends on random ids: the last calls of a scenario are not always reached.
            where = f"{fault} at {store.calls[number - 1 : number]}: {told!r}"
            found = state(inner)
            assert found in (old, new), where
            if isinstance(told, mc.Outcome):
                assert told.committed and found == new, where
                assert key_version(inner, KEY) == told.version, where
            elif not isinstance(told, OutcomeUnknownError | StoreUnclearError | Died):
                assert isinstance(told, StoreError), where
                assert found == old, where
            again = publish(inner)
            assert again.committed and state(inner) == new, where
            assert again.already_committed == (found == new), where
            check_table(inner)


# --- several processes, or threads in turn ----------------------------------------------------------------------------------
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    ["manifestcommit.upkeep", "pyarrow.csv", "pyarrow.dataset", "pyarrow.json", "botocore.session", "tests.kit.faults"]
)


class Turns:
    """Threads that call a store one at a time, whose turn it is drawn by dice: the same seed, the same interleaving."""

    def __init__(self, seed: int, count: int) -> None:
        self._dice = random.Random(seed)
        self._ready = threading.Condition()
        self._running, self._waiting, self._next = count, set[int](), -1

    def wait(self, me: int) -> None:
        with self._ready:
            self._waiting.add(me)
            self._draw()
            assert self._ready.wait_for(lambda: self._next == me, timeout=60)
            self._waiting.discard(me)
            self._next = -1

    def leave(self) -> None:
        with self._ready:
            self._running -= 1
            self._draw()

    def _draw(self) -> None:
        if self._waiting and len(self._waiting) == self._running:
            self._next = self._dice.choice(sorted(self._waiting))
            self._ready.notify_all()


CHANGES = ("put", "put_if_absent", "create_output", "delete")


@contextlib.contextmanager
def dying(at: int, moment: str, calls: Sequence[str] = CHANGES, *, name: str = "", root: str = "") -> Iterator[None]:
    """This process is killed, by kill -9, "before" or "after" its at-th such call of a store on disk, of those for objects whose names
    begin so, of stores whose url ends so. "Before", the end of the block is one more."""
    numbers = itertools.count(1)

    def die(reached: bool) -> None:
        if reached:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def one(store: LocalStore, given: Any = "", *more: Any, **options: Any) -> Any:
            what = given if isinstance(given, str) else [*given]  # names to delete may come one by one
            first = what if isinstance(what, str) else next(iter(what), "")
            number = next(numbers) if store.url.endswith(root) and first.startswith(name) else 0
            die(number == at and moment == "before")
            done = call(store, what, *more, **options)
            die(number == at)
            return done

        return one

    for each in calls:
        setattr(LocalStore, each, counted(getattr(LocalStore, each)))
    yield
    die(next(numbers) == at and moment == "before")


def execute(code: str, at: int, moment: str) -> None:
    """The code, in a process that dies so. Its file is small: a process that is forked for a function imports the module of that."""
    with dying(at, moment):
        exec(code, {"mc": mc})


def lives(work: Callable[..., None], *arguments: Any) -> bool:
    """Whether it comes to its good end in a process of its own, instead of being killed."""
    process = processes.Process(target=work, args=arguments)
    process.start()
    try:
        process.join(120)
        assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
        return process.exitcode == 0
    finally:
        process.kill()
        process.join()


def resolve(store: Store, job: str) -> tuple[str, int | None]:
    """As the public call, over a store of the test's own."""
    found = resolve_job(session(store), job)
    return str(found), found.version
