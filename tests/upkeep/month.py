"""Days that pass at once, for this process and for a store: a month of upkeep takes seconds."""

import shutil
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kit.clocks import Clock, StoreClock

import manifestcommit as mc
from manifestcommit.store import Store, open_store, register_scheme
from manifestcommit.store.local import LocalStore
from manifestcommit.testing import FaultStore

SCHEME = "month"


class Month:
    """Tables below `month://NAME`, on disk or in memory, whose store has the moved clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._folder, self._clock = folder, Clock(monkeypatch)
        self._moved: list[tuple[float, float]] = [(0.0, 0.0)]  # (real time, seconds added from then on)
        self._stores: dict[str, Callable[[], Store]] = {}
        self.requests = 0  # to all tables, but for reads of rows
        register_scheme(SCHEME, self._open)

    def path(self, name: str, kind: str = "disk") -> str:
        """The table path of a name. kind: "disk" or "memory"."""
        if name not in self._stores:
            memory = f"memory://{self._folder.name}-{id(self)}/{name}"
            self._stores[name] = (lambda: open_store(memory)) if kind == "memory" else (lambda: LocalStore(str(self._folder / name)))
        return f"{SCHEME}://{name}"

    def _open(self, name: str) -> Store:
        self.path(name, "memory")  # where the name is not known: a table beside another one
        return FaultStore(StoreClock(self._stores[name](), self._tell), on_call=self._count)

    def _count(self, call: object) -> None:
        self.requests += 1

    def days(self, number: int) -> None:
        self._clock.days(number)
        time.sleep(0.01)  # the clock of a file system is a few milliseconds behind
        self._moved.append((time.time() - 0.005, self._clock.on_us / 1e6))

    def _tell(self, modified: float) -> float:
        at = bisect_right(self._moved, (modified, float("inf"))) - 1
        return modified + self._moved[at][1]

    def store(self, name: str) -> Store:
        return self._stores[name]()

    def dead_job(self, name: str, rows: pa.Table) -> None:
        """A job that wrote its files, and ended without a commit."""
        job = mc.begin(self.path(name))
        job.write(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            del job

    def remove(self, name: str, path: str) -> None:
        self.store(name).delete([path])

    def objects(self, name: str, kind: str = "") -> list[str]:
        """The names of all objects, or of data files only."""
        names: Iterable[str] = (info.name for info in self.store(name).list(""))
        return [each for each in names if kind != "data" or not each.startswith("_")]

    def contents(self, name: str) -> dict[str, bytes]:
        store = self.store(name)
        return {each: store.get(each) for each in self.objects(name)}

    def copy(self, name: str, to: Path) -> None:
        shutil.copytree(self._folder / name, to)
