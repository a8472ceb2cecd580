"""What all actors of a run share: where the tables are, what is noted of all that happens, and which phase the run is in."""

import itertools
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import pyarrow as pa
from tests.chaos.log import Log

import manifestcommit as mc
from manifestcommit.format.object_names import JOBS, parse_version
from manifestcommit.protocol.apply import Budgets
from manifestcommit.runtime.environment import tune, tuning
from manifestcommit.store.local import LocalStore
from manifestcommit.store.object_store import ObjectStore
from manifestcommit.testing.history.operation import Recorder

Phase = Literal["run", "drain", "end"]

EVENTS = pa.schema([("id", pa.int64()), ("source", pa.string()), ("position", pa.int64()), ("kind", pa.string()), ("payload", pa.string())])
STATE = pa.schema([("slot", pa.string()), ("generation", pa.int64()), ("piece", pa.int64())])
PARTITIONED = {"parted": ["kind"], "plain": [], "keyed": [], "counter": [], "state": ["slot"], "handed": [], "again": ["slot"]}
FED = ("parted", "plain")  # the tables that the log goes to: each of them gets all of it, by watermarks
EXPORTED = FED  # each commit of them, and by others at any time
FORMATS = ("iceberg", "delta")
KEYED = "keyed"  # what nothing but keys keeps from getting a batch twice
BATCH = 10  # records
COUNTER = "counter"  # what nothing but the rules of overwrites keeps from losing a count
HANDED = "handed"  # what nothing but the ids of prepared jobs keeps from getting one twice
AGAIN = "again"  # whose sources are rewound now and then, and what they had brought is overwritten anew
AGAIN_SOURCES = ("back %", "back '2'")
AT_ONCE = "at once "  # begins the names of what all committers take at the same moment
SLOT = "slot "  # and its name: the source whose watermark is its generation
SLOTS = ("a b", "", "%", "Ω=1/")
PIECES = 3  # rows of one generation of a slot
EXTRAS = 4  # columns that may be added while everything runs


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What an actor is born into. options: through the proxy, where there is one; direct: past it; faulty: requests may fail."""

    seed: int
    folder: str
    urls: dict[str, str]
    sources: tuple[str, ...]
    options: dict[str, Any] = {}
    direct: dict[str, Any] = {}
    faulty: bool = False
    per_second: float = 60.0  # records that come into the log
    spark: bool = False  # whether a query of Spark plays

    @property
    def log(self) -> Log:
        return Log(Path(self.folder) / "log", self.sources)

    def table(self, name: str, *, direct: bool = False) -> mc.Table:
        """The table, through whatever lies before the store, or past it."""
        return mc.Table(self.urls[name], storage_options=self.direct if direct else self.options)


class Actor:
    """One incarnation of an actor: after each death the next one begins with dice of its own."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        self.world, self.name, self.log = world, name, world.log
        self.incarnation = incarnation
        self.dice = random.Random(f"{world.seed}/{name}/{incarnation}")
        self.folder = Path(world.folder)
        self._recorders: dict[str, Recorder] = {}
        self._joint = itertools.count()
        self._notes = os.open(notes_folder(self.folder) / f"{name}.{incarnation}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def run(self) -> None:
        """Until the phase is "end"."""
        while (phase := self.phase()) != "end":
            self.turn(phase)

    def turn(self, phase: Phase) -> None:
        """One piece of work, or a pause."""
        raise NotImplementedError

    def phase(self) -> Phase:
        """How far the run is."""
        return cast(Phase, get_file(self.folder / "phase") or "run")

    def note(self, what: str, **more: Any) -> None:
        """Written down in one call: it is there whole when the next moment kills this actor."""
        line = json.dumps({"what": what, "by": f"{self.name}.{self.incarnation}", **more})
        os.write(self._notes, line.encode() + b"\n")

    def record(self, table: str) -> Recorder:
        """This actor's part of the history of a table, which the history checker judges."""
        if table not in self._recorders:
            process = f"{self.name}.{self.incarnation}"
            self._recorders[table] = Recorder(histories_folder(self.folder, table) / f"{process}.jsonl", process=process)
        return self._recorders[table]

    def unique(self) -> str:
        """A text that no other operation of several tables has."""
        return f"{self.name}.{self.incarnation}/{next(self._joint)}"

    def violation(self, said: str) -> None:
        """What must never happen was seen."""
        self.note("violation", said=said)

    def failed(self, error: Exception) -> None:
        """A store that fails is no surprise behind a proxy that makes it fail; nor is a half file that is gone where gc takes part."""
        if not self.world.faulty and "temporary file was removed" not in str(error):
            self.violation(f"a store without faults: {type(error).__name__}: {error}")
        self.note("failed", error=type(error).__name__)
        self.pause(0.3)

    def pause(self, longest_s: float) -> None:
        time.sleep(self.dice.uniform(0, longest_s))

    def likely(self, probability: float) -> bool:
        return self.dice.random() < probability

    def maybe_die(self, moment: str, probability: float) -> None:
        """A kill -9 at a moment that random ones rarely meet."""
        if self.likely(probability) and self.phase() == "run":
            self.note("died", moment=moment)
            os.kill(os.getpid(), signal.SIGKILL)

    def table(self, name: str) -> mc.Table:
        return self.world.table(name)


def tighten() -> None:
    """Budgets so small that what takes thousands of commits elsewhere (manifests, runs, merges) happens in a short run."""
    tight = Budgets(inline_entry_bytes=12 * 1024, inline_keys=12, inline_jobs=12, fan_in=4)
    tune(msgspec.structs.replace(tuning(), budgets=tight))


def put_file(path: Path, content: Any) -> None:
    """Whole or not at all, whoever reads it, and whoever is the first in its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content), "utf-8")
    temporary.replace(path)


def get_file(path: Path) -> Any:
    """What `put_file` put; None where it is gone."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None


def notes_folder(folder: Path) -> Path:
    path = folder / "notes"
    path.mkdir(parents=True, exist_ok=True)
    return path


def histories_folder(folder: Path, table: str) -> Path:
    path = folder / "histories" / table
    path.mkdir(parents=True, exist_ok=True)
    return path


class NoteReader:
    """All notes of all actors, each once, in the order of each actor's."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._read = notes_folder(folder), dict[Path, int]()

    def new(self) -> Iterator[dict[str, Any]]:
        """What was noted since the last call."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._read[path] = self._read.get(path, 0) + len(whole) + 1
                yield from (json.loads(line) for line in whole.split(b"\n"))


def die_inside(actor: Actor) -> None:
    """From now on this process is killed at some creates of versions and of prepared jobs: before they are sent, or once they landed."""
    probability = 0.03 if actor.world.faulty else 0.012  # of so many requests fewer, where each takes longer
    for kind in (LocalStore, ObjectStore):
        create = kind.put_if_absent

        def put_if_absent(store: Any, name: str, data: bytes, create: Any = create) -> bool:
            what = "a version" if parse_version(name) is not None else "a prepared job" if name.startswith(JOBS) else None
            if what is not None:
                actor.maybe_die(f"before {what} is created", probability)
            created: bool = create(store, name, data)
            if what is not None:
                actor.maybe_die(f"{what} was created", probability)
            return created

        setattr(kind, "put_if_absent", put_if_absent)  # noqa: B010  # in this process only


class DyingActor(Actor):
    """One of them."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        die_inside(self)
