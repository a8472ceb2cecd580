"""Requests that need not wait for one another are under way together where a store's answers take their time, and nowhere else. [CM11]"""

import contextlib
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from manifestcommit.files.writer import BackgroundWorker
from manifestcommit.runtime.environment import map_concurrently, map_in_batches, prefetch
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing import CountingStore, FaultStore

REPO = Path(__file__).resolve().parents[2]


class Far(MemoryStore):
    """Memory that says that it is behind a network."""

    is_remote = True


class Together:
    """Work that ends only when so many are at it at the same time; most: that were."""

    def __init__(self, number: int) -> None:
        self._barrier = threading.Barrier(number)
        self._lock = threading.Lock()
        self._at_it = self.most = 0

    def __call__(self, item: int) -> int:
        with self._lock:
            self._at_it += 1
            self.most = max(self.most, self._at_it)
        self._barrier.wait(timeout=60)
        with self._lock:
            self._at_it -= 1
        return -item


@pytest.mark.parametrize("store", [Far("a"), CountingStore(Far("b")), CountingStore(CountingStore(Far("c")))])
def test_answers_that_take_their_time_are_waited_for_together_also_where_they_are_counted(store: Store) -> None:
    """A plan on S3 took the sum of its answers otherwise, and a benchmark of it measured its own counter."""
    assert store.is_remote
    assert map_concurrently(store, Together(8), range(16)) == [-item for item in range(16)]


def test_of_many_items_no_more_results_than_a_few_are_ahead_of_whoever_takes_them() -> None:
    begun: list[int] = []
    results = map_in_batches(Far("d"), lambda item: begun.append(item) or -item, range(10), few=4)
    assert next(results) == 0 and sorted(begun) == [0, 1, 2, 3]
    assert list(results) == [-item for item in range(1, 10)] and sorted(begun) == list(range(10))
    working = Together(4)
    assert list(map_in_batches(Far("e"), working, range(12), few=4)) == [-item for item in range(12)] and working.most == 4


@pytest.mark.parametrize("store", [MemoryStore("f"), FaultStore(Far("g")), CountingStore(MemoryStore("h"))])
def test_at_hand_and_where_calls_are_numbered_they_come_one_after_another(store: Store) -> None:
    """A fault at the n-th call would be another one in each run."""
    assert not store.is_remote
    threads: set[str] = set()
    assert map_concurrently(store, lambda item: threads.add(threading.current_thread().name) or item, range(9)) == list(range(9))
    assert threads == {threading.current_thread().name}


def test_work_ahead_comes_in_order_with_its_errors_and_is_never_far_ahead() -> None:
    """A million files to adopt, or versions to verify, were all in memory otherwise, and an error would come before its turn."""
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(12):
            assert item - len(taken) < 4, "begun, or waiting to be taken"
            yield item

    for item, result in prefetch(lambda item: 12 // (item - 5), items(), threads=3, limit=4):
        if item == 5:
            with pytest.raises(ZeroDivisionError):
                result.result()
        else:
            assert result.result() == 12 // (item - 5)
        taken.append(item)
    assert taken == list(range(12))
    working = Together(3)
    assert [result.result() for _, result in prefetch(working, range(9), threads=3, limit=9)] == [-item for item in range(9)]
    assert working.most == 3


def test_work_behind_is_done_in_order_and_its_caller_is_one_ahead() -> None:
    """Further ahead, it would hold the rows of many row groups."""
    done: list[int] = []
    go = threading.Semaphore(0)

    def work(item: int) -> None:
        assert go.acquire(timeout=60)
        done.append(item)

    worker = BackgroundWorker(1)
    worker.do(work, 0)
    second = threading.Thread(target=worker.do, args=(work, 1))
    second.start()
    second.join(0.05)
    assert second.is_alive() and not done
    go.release()
    second.join(60)
    assert done == [0]
    go.release()
    worker.wait()
    assert done == [0, 1]
    worker.end()


@pytest.mark.parametrize("then", [lambda worker: worker.do(int), lambda worker: worker.wait()])
def test_an_error_behind_is_raised_by_the_next_call_and_once(then: Callable[[BackgroundWorker], None]) -> None:
    worker = BackgroundWorker(1)
    worker.do(int, "no number")
    with pytest.raises(ValueError, match="no number"):
        then(worker)
    worker.wait()
    worker.do(int, "no number")
    worker.end()


def test_an_error_behind_keeps_nothing_of_its_caller() -> None:
    """Rows in memory and open files would stay until the next garbage collection."""

    class Rows:
        pass

    def failing() -> weakref.ref[Rows]:
        rows = Rows()
        worker = BackgroundWorker(1)
        worker.do(int, "no number")
        with contextlib.suppress(ValueError):
            worker.wait()
        worker.end()
        return weakref.ref(rows)

    gc.disable()
    try:
        assert failing()() is None
    finally:
        gc.enable()


def test_the_end_waits_for_what_is_under_way() -> None:
    """A writer that is discarded would go on writing."""
    done: list[int] = []
    worker = BackgroundWorker(1)
    worker.do(lambda: (time.sleep(0.05), done.append(1)))
    worker.end()
    assert done == [1]


INTERRUPTED = """
import os, signal, threading
from manifestcommit.files.writer import BackgroundWorker

done, go, worker = [], threading.Event(), BackgroundWorker(1)
worker.do(lambda: done.append(go.wait(60)))
for call in (worker.wait, worker.end):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        call()
        raise SystemExit("not interrupted")
    except KeyboardInterrupt:
        assert not done
threading.Timer(0.3, go.set).start()
worker.end()
raise SystemExit(0 if done == [True] else "did not wait")
"""


def test_the_end_waits_also_after_it_was_interrupted() -> None:
    """Whoever presses Ctrl-C twice would have a file closed while a thread writes it."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_work_is_done_at_once_where_nothing_is_to_be_behind() -> None:
    threads: list[threading.Thread] = []
    worker = BackgroundWorker(0)
    worker.do(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]
    with pytest.raises(ValueError, match="no number"):
        worker.do(int, "no number")
