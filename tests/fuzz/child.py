"""Work done in child processes, and how that ended: hostile bytes may end a process, or keep it for ever, where no `except` helps."""

import contextlib
import json
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_ADDRESSES = 8 << 30  # of a child's memory: it fails for itself, not for the machine

Work = Callable[[int], Sequence[tuple[str, str, str]]]


@dataclass(frozen=True, slots=True)
class Ended:
    """how: "done", "aborted" or "hung"; said: what the work returned; peak_bytes: of memory that was in use."""

    how: str
    said: tuple[tuple[str, str, str], ...]
    peak_bytes: int


def each_in_child(work: Work, seeds: Sequence[int], seconds: float) -> Iterator[tuple[int, Ended]]:
    """For each seed how its work ended, in a process that does as many of them as it survives. It is killed after so many seconds of its
    own time on the processor for one, or ten times as many on the clock: a machine that has much else to do is no reason."""
    left = list(seeds)
    while left:
        for seed, ended in _one_child(work, left, seconds):
            left = left[1:]
            yield seed, ended


def _one_child(work: Work, seeds: Sequence[int], seconds: float) -> Iterator[tuple[int, Ended]]:
    """The first of these seeds, up to the one that ends or keeps the child."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        _work(work, seeds, writable, seconds)
    os.close(writable)
    done = 0
    status: int | None = None
    try:
        for line in _lines(readable, 10 * seconds):
            said, peak_bytes = json.loads(line)
            yield seeds[done], Ended("done", tuple(tuple(each) for each in said), peak_bytes)
            done += 1
        if done < len(seeds):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL) if _is_running(child) else None
            _, status, usage = os.wait4(child, 0)
            code = os.waitstatus_to_exitcode(status)
            yield seeds[done], Ended("hung" if code in (-signal.SIGKILL, -signal.SIGXCPU) else "aborted", (), usage.ru_maxrss * 1024)
    finally:
        os.close(readable)
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _is_running(child: int) -> bool:
    """Whether it neither has ended nor ends by itself just now, its end of the pipe being closed."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None and not _ends(child)


def _ends(child: int) -> bool:
    until = time.monotonic() + 1
    while time.monotonic() < until:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return True
        select.select([], [], [], 0.01)
    return False


def _lines(readable: int, seconds: float) -> Iterator[bytes]:
    """What the child says, line by line, until it ends or says nothing for so long."""
    said = b""
    while select.select([readable], [], [], seconds)[0]:
        if not (some := os.read(readable, 1 << 20)):
            return
        *whole, said = (said + some).split(b"\n")
        yield from whole


def _work(work: Work, seeds: Sequence[int], writable: int, seconds: float) -> None:
    """In the child, which never comes back."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)  # what a library says as it dies
        for seed in seeds:
            used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
            resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 1, resource.getrlimit(resource.RLIMIT_CPU)[1]))
            _forget_peak()
            data = json.dumps([list(work(seed)), _peak_bytes()]).encode() + b"\n"
            while data:
                data = data[os.write(writable, data) :]
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _forget_peak() -> None:
    """From here on the peak is counted anew, where the system can do that; elsewhere it is that of the whole child."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def _peak_bytes() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
