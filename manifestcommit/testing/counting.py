"""A store that counts what passes through it: requests and bytes, by kind. For budgets in tests,
ours and the users'. [CM11] [IV10]

    store = CountingStore(open_store("file:///lake/flights"))
    job = Job(TableContext(store), key="day 1")  # of the engine
    …
    assert store.requests() == {"put_if_absent": 1, "list": 1, "put": 1}

Reads of data files through `filesystem()` go past it: they are
the reader's, not the protocol's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import msgspec

from ..store.base import ObjectInfo, Output, Store, is_remote, store_beside
from .faults import PassingOutput, PassingStore


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
    calls. Reads of data files through `filesystem()` are not counted.

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
        """Open another table path in the same store, whose calls count with those of this one.

        Args:
            scheme: the scheme of its URL, without `://`.
            rest: the rest of its URL.

        Returns:
            The store of that path; None: it is in another store.

        Raises:
            UsageError: the path is malformed.

        Spec: MT6.
        """
        found = store_beside(self._inner, f"{scheme}://{rest}")
        if found is None:
            return None
        other = CountingStore(found)
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
        return Counter(call.kind for call in self.calls if call.name.startswith(under))

    def sent_bytes(self, kind: str | None = None, *, under: str = "") -> int:
        """Count the bytes of content that were sent to the store.

        Args:
            kind: only of calls of this kind; by default of all.
            under: only of names that begin with this text; by default of all.

        Returns:
            The number of bytes.
        """
        return sum(
            call.sent
            for call in self.calls
            if kind in (None, call.kind) and call.name.startswith(under)
        )

    def received_bytes(self, kind: str | None = None, *, under: str = "") -> int:
        """Count the bytes of content that were received from the store; of a list, of the names.

        Args:
            kind: as for `sent_bytes`.
            under: as for `sent_bytes`.

        Returns:
            The number of bytes.
        """
        return sum(
            call.received
            for call in self.calls
            if kind in (None, call.kind) and call.name.startswith(under)
        )

    @property
    def is_remote(self) -> bool:
        """Return what the inner store says, so that it gets the same calls as without this one."""
        return is_remote(self._inner)

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        data = b""
        try:
            data = self._inner.get(name, start, end)
        finally:  # a request for a missing object is a request too
            self._record("get", name, received=len(data))
        return data

    def put(self, name: str, data: bytes) -> None:
        self._record("put", name, sent=len(data))
        self._inner.put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._record("put_if_absent", name, sent=len(data))
        return self._inner.put_if_absent(name, data)

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        found = list(self._inner.list(prefix, start_from=start_from))
        self._record(
            "list",
            prefix,
            received=sum(len(info.name.encode("utf-8", "surrogateescape")) for info in found),
        )
        return iter(found)

    def delete(self, names: Iterable[str]) -> None:
        wanted = list(names)
        for name in wanted:
            self._record("delete", name)
        self._inner.delete(wanted)

    def create_output(self, name: str) -> Output:
        return _CountedOutput(self, name, self._inner.create_output(name))

    def open_input(self, name: str) -> BinaryIO:
        self._record("open_input", name)
        return self._inner.open_input(name)

    def _record(self, kind: str, name: str, *, sent: int = 0, received: int = 0) -> None:
        self.calls.append(Call(kind=kind, name=name, sent=sent, received=received))


class _CountedOutput(PassingOutput):
    """An output is one call, recorded when it is closed; a discarded one is not recorded."""

    def __init__(self, store: CountingStore, name: str, inner: Output) -> None:
        super().__init__(inner)
        self._store, self._name, self._sent = store, name, 0

    def write(self, data: Any, /) -> int:
        written = self._inner.write(data)
        self._sent += written
        return written

    def close(self) -> None:
        if not self._inner.closed:
            self._store._record("output", self._name, sent=self._sent)
        self._inner.close()
