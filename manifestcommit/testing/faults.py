"""Stores around a store: one that counts what passes through it, and one that fails where a test
says so, before or after the effect of its n-th call, once, or for ever. [CM11] [IV3] [IV4] [IV10]

    calls = FaultStore(inner)                       # first run: learn how many calls there are
    publish(calls)
    for number in range(1, calls.count + 1):        # then die at each of them
        with contextlib.suppress(Died):
            publish(FaultStore(fresh(), {number: "dies_after"}))

Reads of data files through `filesystem()` go past both: they are the reader's, not the protocol's.
"""

from __future__ import annotations

import functools
import io
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal, NoReturn, TypeVar, get_args

import msgspec

from ..errors import StoreError, StoreUnclearError, UsageError
from ..store import ObjectInfo, Output, Store

Fault = Literal["refused", "request_lost", "answer_lost", "dies_before", "dies_after"]
_Result = TypeVar("_Result")


class Died(BaseException):
    """The simulated process ended here.

    It is no Exception: no `except Exception` of the code under test may survive its own death.

    Remedy: catch it in the test, `with contextlib.suppress(Died):`, and run the work again.
    """


class FaultCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a `FaultStore`.

    Attributes:
        number: from 1 on.
        kind: the store's method; "close" for an output that becomes visible.
        name: the object or the prefix.
    """

    number: int
    kind: str
    name: str


class PassingStore(Store):
    """Passes every call to a store, by `_call`. inner: that store."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def identity(self) -> str:
        return self._inner.identity

    def parent(self) -> Store | None:
        return self._inner.parent()

    def beside(self, scheme: str, rest: str) -> Store | None:
        return self._inner.beside(scheme, rest)

    def filesystem(self) -> tuple[Any, str]:
        return self._inner.filesystem()

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        return self._call("get", name, lambda: self._inner.get(name, start, end))

    def put(self, name: str, data: bytes) -> None:
        self._call("put", name, lambda: self._inner.put(name, data), len(data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        create = functools.partial(self._inner.put_if_absent, name, data)
        return self._call("put_if_absent", name, create, len(data))

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        def page() -> Sequence[ObjectInfo]:
            return list(self._inner.list(prefix, start_from=start_from))

        return iter(self._call("list", prefix, page))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._call("delete", name, functools.partial(self._inner.delete, [name]))

    def create_output(self, name: str) -> Output:
        return _PassingOutput(self, name, self._inner.create_output(name))

    def open_input(self, name: str) -> BinaryIO:
        return self._call("open_input", name, lambda: self._inner.open_input(name))

    def _call(self, kind: str, name: str, effect: Callable[[], _Result], sent: int = 0) -> _Result:
        """Have the effect, of a call that sends so many bytes of content."""
        raise NotImplementedError

    def _publish(self, name: str, output: Output, sent: int) -> None:
        """Close an output that is open, to which so many bytes were written."""
        raise NotImplementedError


class _PassingOutput(Output):
    """Passes everything to an output; its store closes that."""

    def __init__(self, store: PassingStore, name: str, inner: Output) -> None:
        self._store, self._name, self._inner, self._sent = store, name, inner, 0

    @property
    def closed(self) -> bool:  # type: ignore[override]  # it is told, and not set
        return self._inner.closed

    def write(self, data: Any, /) -> int:
        written = self._inner.write(data)
        self._sent += written
        return written

    def tell(self) -> int:
        return self._inner.tell()

    def flush(self) -> None:
        self._inner.flush()

    def discard(self) -> None:
        self._inner.discard()

    def close(self) -> None:
        if not self._inner.closed:
            self._store._publish(self._name, self._inner, self._sent)


class FaultStore(PassingStore):
    """A store that passes every call to another one, and fails at the calls that a test names.

    What its other methods do, `manifestcommit.store.Store` says. Calls are numbered from 1 on. It
    reports a local store: code that sends concurrent requests elsewhere sends them one after
    another here, so that a number is the same call in every run.

    Args:
        inner: the store that gets the calls.
        faults: number of a call -> its fault; by default no call fails. "refused": StoreError, and
            nothing happened. "request_lost", "answer_lost": there is no response; the effect did
            not, or did, happen: StoreUnclearError from `put_if_absent`, StoreError from any other
            call. "dies_before", "dies_after": `Died` is raised before or after the effect, and by
            every call from then on; open outputs never become visible.
        on_call: called with each call before it happens, for tests that act in between; by default
            nothing is.

    Attributes:
        calls: each call so far, in order: its `number`, `kind` ("close" for an output that becomes
            visible) and `name`.

    Raises:
        UsageError: there is no such fault.
        StoreError: a call failed by its fault, or in the inner store.
        Died: a call failed by its fault.

    Spec: IV3, IV4.
    """

    def __init__(
        self,
        inner: Store,
        faults: Mapping[int, Fault] | None = None,
        *,
        on_call: Callable[[FaultCall], None] | None = None,
    ) -> None:
        super().__init__(inner)
        self._faults = dict(faults or {})
        if unknown := sorted({*self._faults.values()} - {*get_args(Fault)}):
            raise UsageError(f"{unknown[0]!r} is no fault; there are {', '.join(get_args(Fault))}")
        self._on_call = on_call
        self._dead = False
        self._lock = threading.Lock()
        self.calls: list[FaultCall] = []

    @property
    def count(self) -> int:
        """Return the number of calls so far."""
        return len(self.calls)

    @property
    def is_dead(self) -> bool:
        """Return whether the simulated process has died."""
        return self._dead

    def create_output(self, name: str) -> Output:
        inner = self._call("create_output", name, lambda: self._inner.create_output(name))
        return _PassingOutput(self, name, inner)

    def _publish(self, name: str, output: Output, sent: int) -> None:
        """A call; a dead process's output never becomes visible."""
        try:
            if not self._dead:
                self._call("close", name, output.close)
        finally:
            if not output.closed:
                output.discard()

    def _call(self, kind: str, name: str, effect: Callable[[], _Result], sent: int = 0) -> _Result:
        with self._lock:
            if self._dead:
                raise Died(f"{kind} {name} after the process had died")
            call = FaultCall(number=len(self.calls) + 1, kind=kind, name=name)
            self.calls.append(call)
        if self._on_call is not None:
            self._on_call(call)
        fault = self._faults.get(call.number)
        if fault == "refused":
            raise StoreError(f"call {call.number}, {kind} {name}: refused by the test")
        if fault == "request_lost":
            raise self._unanswered(call)
        if fault == "dies_before":
            self._die(call)
        result = effect()
        if fault is None:
            return result
        if isinstance(result, Output):  # the caller never gets it: nothing stays open
            result.discard()
        elif isinstance(result, io.IOBase):
            result.close()
        if fault == "answer_lost":
            raise self._unanswered(call)
        self._die(call)

    def _unanswered(self, call: FaultCall) -> StoreError:
        kind = StoreUnclearError if call.kind == "put_if_absent" else StoreError
        return kind(f"call {call.number}, {call.kind} {call.name}: no answer, by the test")

    def _die(self, call: FaultCall) -> NoReturn:
        self._dead = True
        raise Died(f"at call {call.number}, {call.kind} {call.name}")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    Attributes:
        kind: the store's method.
        name: the object, or a list's prefix.
        sent: bytes of content that were sent.
        received: bytes of content that were received.
    """

    kind: str
    name: str
    sent: int = 0
    received: int = 0


class CountingStore(PassingStore):
    """A store that passes every call to another one unchanged, and records it.

    What its other methods do, `manifestcommit.store.Store` says. One `delete` of n names is n
    calls; an output is one, once it is closed; and calls of a store that `beside` opens count with
    those of this one. Reads of data files through `filesystem()` are not counted.

    Args:
        inner: the store that gets the calls.

    Attributes:
        calls: each call so far, in order: its `kind`, `name`, and bytes `sent` and `received`.

    Raises:
        StoreError: the inner store failed, as for its other errors.

    Spec: IV10.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: list[Call] = []

    def beside(self, scheme: str, rest: str) -> CountingStore | None:
        found = self._inner.beside(scheme, rest)
        other = None if found is None else CountingStore(found)
        if other is not None:
            other.calls = self.calls
        return other

    def reset(self) -> None:
        """Forget all calls so far."""
        self.calls.clear()

    def requests(self, *, under: str = "") -> Counter[str]:
        """Count the calls of each kind.

        Args:
            under: only of names that begin with this text; by default of all.

        Returns:
            Kind -> number of calls, as a Counter.
        """
        return Counter(call.kind for call in self._chosen(None, under))

    def sent_bytes(self, kind: str | None = None, *, under: str = "") -> int:
        """Count the bytes of content that were sent to the store.

        Args:
            kind: only of calls of this kind; by default of all.
            under: only of names that begin with this text; by default of all.

        Returns:
            The number of bytes.
        """
        return sum(call.sent for call in self._chosen(kind, under))

    def received_bytes(self, kind: str | None = None, *, under: str = "") -> int:
        """Count the bytes of content that were received from the store; of a list, of the names.

        Args:
            kind: as for `sent_bytes`.
            under: as for `sent_bytes`.

        Returns:
            The number of bytes.
        """
        return sum(call.received for call in self._chosen(kind, under))

    def _chosen(self, kind: str | None, under: str) -> Iterator[Call]:
        for call in self.calls:
            if kind in (None, call.kind) and call.name.startswith(under):
                yield call

    @property
    def is_remote(self) -> bool:  # type: ignore[override]  # it is told, and not set
        """Return what the inner store says, so that it gets the same calls as without this one."""
        return self._inner.is_remote

    def delete(self, names: Iterable[str]) -> None:
        wanted = list(names)
        self.calls += [Call(kind="delete", name=name) for name in wanted]
        self._inner.delete(wanted)

    def _publish(self, name: str, output: Output, sent: int) -> None:
        self.calls.append(Call(kind="output", name=name, sent=sent))
        output.close()

    def _call(self, kind: str, name: str, effect: Callable[[], _Result], sent: int = 0) -> _Result:
        received = 0
        try:
            result = effect()
            if isinstance(result, bytes):
                received = len(result)
            elif isinstance(result, list):
                received = sum(len(info.name.encode("utf-8", "surrogateescape")) for info in result)
            return result
        finally:  # a request for a missing object is a request too
            self.calls.append(Call(kind=kind, name=name, sent=sent, received=received))
