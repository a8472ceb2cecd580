"""Runs the command on a real pseudo-terminal, in this process, and answers its questions."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from manifestcommit.cli.main import main

QUESTION = "[y/N] "
Answer = str | Callable[[], str]


class OnTerminal:
    """What one run showed; status: its exit code; asked: how many questions it put."""

    def __init__(self, status: int, shown: str, asked: int) -> None:
        self.status, self.shown, self.asked = status, shown.replace("\r\n", "\n"), asked


def run(*arguments: Any, answers: Sequence[Answer] = (), columns: int = 80) -> OnTerminal:
    """Run the command with all three streams on a terminal of that width. Each answer is typed when a question is there; a function is
    called first, while the question waits. Where the answers are used up, the end of the file is typed."""
    status = 0

    def command() -> None:
        nonlocal status
        try:
            status = main([str(each) for each in arguments])
        except SystemExit as left:  # argparse leaves this way
            status = int(left.code or 0)

    screen = _on_terminal(command, answers, columns)
    return OnTerminal(status, screen.shown.decode(), screen.asked)


def shown(work: Callable[[], object], columns: int = 80) -> str:
    """All that some work shows on a terminal of that width."""
    return _on_terminal(work, (), columns).shown.decode().replace("\r\n", "\n")


def _on_terminal(work: Callable[[], object], answers: Sequence[Answer], columns: int) -> _Screen:
    with _terminal(columns) as (master, streams):
        screen = _Screen(master, answers)
        before = sys.stdin, sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = streams
        try:
            work()
        finally:
            sys.stdin, sys.stdout, sys.stderr = before
            for stream in streams:
                stream.close()
            screen.end()
        return screen


@contextlib.contextmanager
def _terminal(columns: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    modes = termios.tcgetattr(slave)
    modes[3] &= ~termios.ECHO  # what is typed is known
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    streams = tuple(open(os.dup(slave), mode, encoding="utf-8") for mode in "rww")  # noqa: SIM115
    os.close(slave)
    try:
        yield master, streams
    finally:
        for stream in streams:
            stream.close()
        os.close(master)


class _Screen:
    """Collects what is shown, and types. shown: so far; asked: how many questions there were."""

    def __init__(self, master: int, answers: Sequence[Answer]) -> None:
        self._master, self._answers = master, list(answers)
        self.shown, self.asked = b"", 0
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def end(self) -> None:
        """Wait until all is read; the other end is closed."""
        self._thread.join()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(self._master, 65_536):
                self.shown += data
                while self.shown.count(QUESTION.encode()) > self.asked:
                    self.asked += 1
                    self._type()

    def _type(self) -> None:
        answer = self._answers.pop(0) if self._answers else "\x04"
        os.write(self._master, (answer if isinstance(answer, str) else answer()).encode())
