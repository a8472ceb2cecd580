"""Followers that are asked to end: by SIGTERM or SIGINT, in the main thread. [LD6]"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from ..errors import SourceError

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_active: set[threading.Event] = set()  # of the `follow`s of the main thread
_handlers: dict[int, Any] = {}  # of signals, from before the first of these
_heeded: ContextVar[threading.Event] = ContextVar("heeded", default=threading.Event())  # noqa: B039  # never set


class EndedError(SourceError):
    """A load ends before its source does: a follower was asked to end while there was nothing to
    read, or other loaders were faster each time."""


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; elsewhere than in the main thread nothing sets it."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    if not _active:
        _handlers.update((each, signal.signal(each, _stop)) for each in _SIGNALS)
    _active.add(stop)
    try:
        yield stop
    finally:
        _active.discard(stop)
        while not _active and _handlers:
            number, handler = _handlers.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _stop(*_: Any) -> None:
    for each in _active:
        each.set()


@contextlib.contextmanager
def heeding(stop: threading.Event) -> Iterator[None]:
    """Within, `pause` ends the load once the event is set."""
    before = _heeded.set(stop)
    try:
        yield
    finally:
        _heeded.reset(before)


def pause(wait_s: float = 0) -> None:
    """Wait so long. EndedError where a follower that loads is asked to end: nothing is lost, since
    nothing of the chunk is committed."""
    if _heeded.get().wait(wait_s):
        raise EndedError("the follower was asked to end; nothing of this chunk was committed")
