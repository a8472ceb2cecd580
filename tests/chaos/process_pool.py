"""The process that starts, signals and buries all actors of a run. It loads the library once, so that a new actor is there at once.

It ends with everything that it started, stopped or not, as soon as the process that runs it is gone, however that went: they are
one group, and the end of its standard input is the end of the group.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.dataset
from tests.chaos.changer import Changer, Sweeper, Watcher
from tests.chaos.committer import Closer, Collector, Committer
from tests.chaos.foreigner import Exporter, Foreigner
from tests.chaos.gate import Filler, Inspector, Keeper, Loader, Ruler, Streamer
from tests.chaos.reader import Reader
from tests.chaos.transfers import Auditor, Clerk, Janitor, Manager, Teller
from tests.chaos.world import Actor, World, tighten
from tests.chaos.writer import Producer, Writer

assert pyarrow.dataset  # loaded here, once: it is what a reader loads late

_CAST = (Producer, Writer, Committer, Reader, Collector, Closer, Teller, Clerk, Auditor, Janitor, Manager, Changer, Watcher, Sweeper)
_CAST += (Exporter, Foreigner, Filler, Ruler, Loader, Inspector, Keeper, Streamer)
ROLES: dict[str, type[Actor]] = {each.__name__.lower(): each for each in _CAST}
REPO = Path(__file__).resolve().parents[2]
_GRACE_S = 10.0


class ProcessPool:
    """The run's side of it."""

    def __init__(self, world: World) -> None:
        with (Path(world.folder) / "stderr").open("ab") as errors:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.process_pool"], cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._orders, self._answers = self._child.stdin, self._child.stdout
        os.set_blocking(self._answers.fileno(), False)
        self._rest = b""
        self._orders.write(msgspec.json.encode(world) + b"\n")
        self._orders.flush()

    def start(self, name: str, incarnation: int) -> None:
        self._order(start=name, incarnation=incarnation)

    def signal(self, name: str, number: int) -> None:
        """Only a living actor gets it."""
        self._order(signal=name, number=number)

    def events(self) -> list[dict[str, Any]]:
        """What happened since the last call: {"signalled": name, "number"} or {"ended": name, "code"}, negative for a signal."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._answers.fileno(), 65536):
                self._rest += data
        if self._child.poll() is not None:
            raise RuntimeError(f"the pool ended by itself: {self._child.returncode}")
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Ends whoever is left, and waits for it."""
        with contextlib.suppress(OSError):
            self._orders.close()
        try:
            self._child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
        self._answers.close()

    def _order(self, **order: Any) -> None:
        self._orders.write(json.dumps(order).encode() + b"\n")
        self._orders.flush()


# --- in the process itself ----------------------------------------------------------------------------------------------
def serve() -> None:
    """The whole of the process: prepare, then start and signal whom the orders name, until they end."""
    assert os.getpgrp() == os.getpid(), "the group is this process' own"
    try:
        _serve()
    finally:
        os.killpg(0, signal.SIGKILL)  # this process, too, and whatever ended it: nobody may be there to be told of an event


def _serve() -> None:
    rest, world, living = b"", None, dict[str, int]()
    while True:
        if select.select([0], [], [], 0.01)[0]:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if world is None:
                    world = msgspec.json.decode(line, type=World)
                    _prepare(world)
                else:
                    _obey(json.loads(line), world, living)
        for name, pid in list(living.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del living[name]
                _tell(ended=name, code=os.waitstatus_to_exitcode(status))


def _obey(order: dict[str, Any], world: World, living: dict[str, int]) -> None:
    if "start" in order:
        living[order["start"]] = _start(world, order["start"], order["incarnation"])
    elif order["signal"] in living:  # not buried yet, so the number is still its own
        os.kill(living[order["signal"]], order["number"])
        _tell(signalled=order["signal"], number=order["number"])


def _tell(**event: Any) -> None:
    os.write(1, json.dumps(event).encode() + b"\n")


def _start(world: World, name: str, incarnation: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(2, 1)
        actor = ROLES[name.split(" ")[0]](world, name, incarnation)
        try:
            actor.run()
            code = 0
        except Exception:
            actor.note("broken", trace=traceback.format_exc())
    finally:
        os._exit(code)


def _prepare(world: World) -> None:
    """What every actor would do and load first; no client is made here."""
    tighten()
    if world.faulty:
        importlib.import_module("manifestcommit.store.s3")
        importlib.import_module("botocore.session")


if __name__ == "__main__":
    serve()
