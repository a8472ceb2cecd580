"""One object store in memory, and each actor's view of it: every call takes a turn, and may fail as
requests do. [ST1]-[ST8]

Requests of an actor's own threads while it waits for them, and reads
of data files through `filesystem()`, bypass turns and faults.
"""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeVar

from ..errors import StoreError, StoreUnclearError
from ..store.base import BufferedOutput, ObjectInfo, Output, Store
from .faults import Died
from .scheduler import Actor, Scheduler, Trace

# A fault is drawn among those of its kind; the first, none, is the plain choice. lost: nothing
# happened; unanswered: it happened; late: it happens after the caller has aborted, at a later turn;
# twice: it happens now, and once more then; dies_*: the caller crashes.
READING = ("", "refused", "unanswered", "dies_before", "dies_after")
WRITING = (*("", "refused", "lost", "unanswered", "late", "twice"), *READING[3:], "dies_late")
_PAGES = (1000, 1, 2, 5)
_STEP_US = 1000
_Result = TypeVar("_Result")


class Watcher:
    """Called for every object that appears or disappears, at that moment; ignores it."""

    def appeared(self, name: str, data: bytes, actor: str) -> None:
        """Note that an object was put or created."""

    def gone(self, name: str, actor: str) -> None:
        """Note that it was deleted."""

    def removed(self) -> None:
        """Note that all of them were."""


class _Stored(NamedTuple):
    data: bytes
    modified: float


class Space:
    """What all actors share: the objects, and the network between them and the actors. tells_times:
    whether listings contain creation times, or else ETags, as what is got does; watcher: called for
    each effect when it happens."""

    def __init__(self, scheduler: Scheduler, trace: Trace) -> None:
        self.scheduler, self.trace = scheduler, trace
        self.objects: dict[str, _Stored] = {}
        self.tells_times = True
        self.watcher = Watcher()
        self.faulty = scheduler.choices.weather((0.0, 0.0, 0.01, 0.05, 0.15))
        self.paging = scheduler.choices.weather((0.0, 0.1, 0.5))

    def put(self, name: str, data: bytes, actor: str) -> None:
        self.objects[name] = _Stored(data, self.scheduler.now_us / 1e6 if self.tells_times else 0.0)
        self.watcher.appeared(name, data, actor)

    def create(self, name: str, data: bytes, actor: str) -> bool:
        if name in self.objects:
            return False
        self.put(name, data, actor)
        return True

    def remove(self, name: str, actor: str) -> None:
        if self.objects.pop(name, None) is not None:
            self.watcher.gone(name, actor)

    def clear(self) -> None:
        """Remove everything at once, as a person does; requests in progress still arrive. [LY10]"""
        self.objects.clear()
        self.watcher.removed()

    def listed(self, prefix: str, start_from: str) -> list[ObjectInfo]:
        return [
            ObjectInfo(name=name, size_bytes=len(data), modified=modified, etag=self.etag(data))
            for name, (data, modified) in sorted(self.objects.items())
            if name.startswith(prefix) and name >= start_from
        ]

    def etag(self, data: bytes) -> str:
        return "" if self.tells_times else hashlib.sha256(data).hexdigest()


class _Objects:
    """What a filesystem reads: the objects of one moment, without a call of the store."""

    def __init__(self, url: str, objects: dict[str, bytes]) -> None:
        self.url, self._objects = url, objects

    def open_input(self, name: str) -> BinaryIO:
        if name not in self._objects:
            raise FileNotFoundError(name)
        return io.BytesIO(self._objects[name])


class SimulatedStore(Store):
    """One actor's view of the simulated store: what a table at `sim://…` uses.

    What its other methods do, `manifestcommit.store.Store` says. It needs no probes: one effect
    happens at a time, so that one of all concurrent creators wins.

    Spec: ST1.
    """

    identity = ""

    def __init__(
        self,
        space: Space,
        actor: Actor,
        url: str = "sim://table",
        others: Callable[[str], Store] | None = None,
    ) -> None:
        self._space, self._actor, self._url, self._others = space, actor, url, others

    @property
    def env(self) -> Actor:
        """Return the environment that belongs to it: its clock and its randomness."""
        return self._actor

    @property
    def url(self) -> str:
        return self._url

    def beside(self, scheme: str, rest: str) -> Store | None:
        return self._others(rest) if scheme == "sim" and self._others is not None else None

    def goes_second_first(self) -> bool:
        """Return which of two requests that go side by side takes effect first, as is drawn.

        Returns:
            Whether it is the second one.

        Spec: RD1.
        """
        if self._is_quiet:
            return False
        name = f"order {self._actor.name}.{self._actor.calls}"
        return bool(self._choices.pick(name, 2, self._space.paging))

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        return self._call("get", name, lambda: self._get(name, start, end), READING)

    def get_tagged(self, name: str, end: int) -> tuple[bytes, str]:
        data = self.get(name, None, end)
        return data, self._space.etag(data)

    def put(self, name: str, data: bytes) -> None:
        self._call("put", name, lambda: self._space.put(name, data, self._actor.name))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._call("create", name, lambda: self._space.create(name, data, self._actor.name))

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        first = start_from
        while True:
            look = functools.partial(self._page, prefix, first)
            page, last = self._call("list", prefix, look, READING)
            yield from page
            if last is None:
                return
            first = f"{last}\0"

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            remove = functools.partial(self._space.remove, name, self._actor.name)
            self._call("delete", name, remove)

    def remove_root(self) -> None:
        """Remove every object, in one step.

        Raises:
            StoreError: the schedule makes this request fail.
            Died: the schedule ends the process that sends it.
        """
        self._call("remove", "the root", self._space.clear, READING)

    def create_output(self, name: str) -> Output:
        def put(data: bytes) -> None:
            self._call("close", name, lambda: self._space.put(name, data, self._actor.name))

        return BufferedOutput(put)

    def open_input(self, name: str) -> BinaryIO:
        return io.BytesIO(self._call("open", name, lambda: self._get(name, None, None), READING))

    def filesystem(self) -> tuple[Any, str]:
        from ..store.arrow_filesystem import arrow_filesystem  # late: only readers of rows need it

        objects = {name: stored.data for name, stored in self._space.objects.items()}
        frozen: Any = _Objects(self._url, objects)
        return arrow_filesystem(frozen), ""

    def _get(self, name: str, start: int | None, end: int | None) -> bytes:
        if name not in self._space.objects:
            raise FileNotFoundError(f"{self._url}/{name}")
        return self._space.objects[name].data[slice(start, end)]

    def _page(self, prefix: str, first: str) -> tuple[Sequence[ObjectInfo], str | None]:
        found = self._space.listed(prefix, first)
        size = _PAGES[0]
        if len(found) > 1 and not self._is_quiet:
            point = f"page {self._actor.name}.{self._actor.calls}"
            size = _PAGES[self._choices.pick(point, len(_PAGES), self._space.paging)]
        return found[:size], found[size - 1].name if len(found) > size else None

    @property
    def _choices(self) -> Any:
        return self._space.scheduler.choices

    @property
    def _is_quiet(self) -> bool:
        return self._space.scheduler.alone or not self._actor.is_here

    def _call(
        self, kind: str, name: str, effect: Callable[[], _Result], faults: tuple[str, ...] = WRITING
    ) -> _Result:
        space, actor = self._space, self._actor
        if actor.is_dead:
            raise Died(f"{kind} {name} after {actor.name} had died")
        if self._is_quiet:
            return effect()
        actor.calls += 1
        number = actor.calls
        space.scheduler.pause(actor)
        point = f"fault {actor.name}.{number}"
        fault = faults[self._choices.pick(point, len(faults), space.faulty)]
        line = space.trace.call(actor.name, kind, name, fault)
        if fault == "refused":
            raise StoreError(f"{kind} {name}: refused by the simulator")
        if fault == "dies_before":
            self._die(kind, name)
        if fault in ("late", "twice", "dies_late"):
            space.scheduler.pending.append(functools.partial(self._arrive, kind, name, effect))
        result: _Result | None = None
        missing: FileNotFoundError | None = None
        if fault not in ("lost", "late", "dies_late"):
            space.scheduler.now_us += _STEP_US
            try:
                result = effect()
            except FileNotFoundError as error:
                missing = error
            space.trace.answer(line, _shown(kind, result) if missing is None else "nothing there")
        if fault in ("dies_after", "dies_late"):
            self._die(kind, name)
        if fault in ("lost", "late", "unanswered"):
            unclear = StoreUnclearError if kind == "create" else StoreError
            raise unclear(f"{kind} {name}: no answer, by the simulator")
        space.scheduler.pause(actor, after=True)
        if missing is not None:
            raise missing
        return result  # type: ignore[return-value]  # None only where the effect returns it

    def _die(self, kind: str, name: str) -> None:
        self._actor.is_dead = True
        raise Died(f"{self._actor.name} at {kind} {name}")

    def _arrive(self, kind: str, name: str, effect: Callable[[], object]) -> None:
        self._space.scheduler.now_us += _STEP_US
        line = self._space.trace.call("network", kind, name, f"of {self._actor.name}")
        self._space.trace.answer(line, _shown(kind, effect()))


def _shown(kind: str, result: object) -> str:
    if kind == "create":
        return "created" if result else "taken"
    if kind == "list" and isinstance(result, tuple):
        return f"{len(result[0])} names"
    return f"{len(result)} bytes" if isinstance(result, bytes) else ""
