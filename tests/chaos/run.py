"""One run: starts the actors, carries out the schedule, drains what is left, checks, and sums up."""

import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

import msgspec
from tests.chaos import check
from tests.chaos.history import commits_of, judge, witness
from tests.chaos.process_pool import ProcessPool
from tests.chaos.scene import SCENES, Scene
from tests.chaos.schedule import LOST, Blow, Schedule, Weather, draw
from tests.chaos.world import NoteReader, World, histories_folder, notes_folder, put_file
from tests.kit.proxy import FaultProxy
from tests.servers.servers import S3Server

from manifestcommit.store import open_store
from manifestcommit.testing.history.operation import Recorder

Say = Callable[[str], None]
_SOURCES = ("größe/Δ %20#0", "größe/Δ %20#1", "topic '2'\"-0", "topic '2'\"-1", "=&?+-0", "=&?+-1")
_PROGRESS_S = 10.0
_TICK_S = 0.02
_LONGER = 10


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is.

    wanted: how often each thing has to happen, and an actor to die at each moment, before the run may end, for which it may take ten
    times as long;
    exports: whether two tables are exported, by their commits and by others, and read by other engines;
    about: single tables, transfers between several tables by joint commits, changes of rows, or constraints;
    spark: whether a query of Spark streams into the table of constraints, too; it starts too slowly to be killed at any moment;
    timeout_s: how long a client behind the proxy waits for an answer; drain_s: how long the rest may take when nothing goes wrong any more.
    """

    seed: int
    seconds: float
    store: Literal["local", "s3"] = "local"
    writers: int = 3
    committers: int = 2
    readers: int = 1
    sources: int = 4
    per_second: float = 60.0
    kill_every_s: float = 1.2
    timeout_s: float = 2.0
    wanted: dict[str, int] = {}
    exports: bool = False
    about: Literal["tables", "joint", "rows", "gate"] = "tables"
    drain_s: float = 180.0
    spark: bool = False

    @property
    def scene(self) -> Scene:
        return SCENES[self.about]()


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, and what was wrong: nothing, if findings is empty.

    counts: what else there is at the end, such as the records of the log;
    unheard: commits whose success nobody lived or heard to write down; lost_answers: requests that were carried out, unknown to who
    sent them; told: how often each thing was noted by the actors; rows: of each table, at the end; histories: one of each table, for
    which the checker looked for a serial order of all operations, for judged_s seconds of CPU.
    """

    seed: int
    store: str
    seconds: float
    findings: tuple[str, ...]
    versions: dict[str, int] = {}
    rows: dict[str, int] = {}
    counts: dict[str, int] = {}
    kills: int = 0
    deaths: dict[str, int] = {}
    stops: int = 0
    requests: int = 0
    faults: dict[str, int] = {}
    lost_answers: int = 0
    unheard: int = 0
    told: dict[str, int] = {}
    histories: int = 0
    operations: int = 0
    judged_s: float = 0.0
    refusals: dict[str, int] = {}
    folder: str = ""
    passed: str = ""


def run(settings: Settings, say: Say, server: S3Server | None = None) -> Summary:
    """The whole run; nothing of it is left but, where something was wrong, its folder."""
    say(f"seed {settings.seed}: {settings.seconds:g} s on {settings.store}. The same seed draws the same schedule and choices; timing")
    say("decides what meets what, so a replay is alike and not equal.")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="manifestcommit-chaos-"))
        schedule = draw(settings.seed, settings.seconds * _LONGER, settings.scene.actors(settings), kill_every_s=settings.kill_every_s)
        weather = Weather(settings.seed, schedule)
        proxy = stack.enter_context(FaultProxy(server.endpoint)) if server is not None else None
        world = _world(settings, folder, server, proxy)
        settings.scene.create(world, exports=settings.exports)
        if proxy is not None:
            proxy.faults = weather
        stage = _Stage(settings, world, schedule, weather, proxy, say)
        try:
            with closing(ProcessPool(world)) as pool:
                stage.play(pool)
            summary = stage.sum_up()
        except BaseException:
            say(f"seed {settings.seed}: broken off; what there is lies in {folder}")
            raise
    if not summary.findings:
        shutil.rmtree(folder)
    return summary


def report(summary: Summary, say: Say) -> None:
    """The summary in words."""
    lines = {
        "versions": _listed(summary.versions),
        "rows": f"{_listed(summary.rows)}; {_listed(summary.counts)}",
        "kills": f"{summary.kills} at random moments; at chosen ones: {_listed(summary.deaths)}",
        "stops": str(summary.stops),
        "faults of requests": f"{_listed(summary.faults)} (of {summary.requests} requests; answers lost: {summary.lost_answers})",
        "commits that nobody was told of": str(summary.unheard),
        "histories": f"{summary.histories} with {summary.operations} operations, judged in {summary.judged_s:g} s of CPU",
        "refused": _listed(summary.refusals),
        "noted": _listed(summary.told),
    }
    for name, text in lines.items():
        say(f"  {name}: {text}")
    for each in summary.findings:
        say(f"  WRONG: {each}")
    if summary.findings:
        say(f"seed {summary.seed} on {summary.store}: FAILED with {len(summary.findings)} findings; all of it lies in {summary.folder}")
    else:
        say(f"seed {summary.seed} on {summary.store}: passed, {summary.passed}")


class _Stage:
    """The course of one run."""

    def __init__(self, settings: Settings, world: World, schedule: Schedule, weather: Weather, proxy: FaultProxy | None, say: Say) -> None:
        self.settings, self.scene, self.world, self.schedule = settings, settings.scene, world, schedule
        self.weather, self.proxy, self.say = weather, proxy, say
        self.notes, self.told = NoteReader(Path(world.folder)), list[dict[str, Any]]()
        self.findings: list[str] = []
        self.signals: Counter[int] = Counter()
        self.living: dict[str, int] = {}  # name -> incarnation
        self.back: list[tuple[float, str, int]] = []  # when, who, which incarnation
        self.restarts = True

    def play(self, pool: ProcessPool) -> None:
        for name in [*self.scene.actors(self.settings), *(["streamer 0"] if self.settings.spark else [])]:
            self._start(pool, name, 0)
        self._storm(pool)
        if not self.findings:
            self._drain(pool)

    def sum_up(self) -> Summary:
        """Checks everything, and says what happened."""
        versions, rows, counts, unheard = dict[str, int](), dict[str, int](), dict[str, int](), 0
        if not self.findings:
            self._read_notes()
            found, unheard = self.scene.check(self.world, self.told)
            self.findings += found
            counts = self.scene.counts(self.world)
            for name, url in self.world.urls.items():
                chain = check.without_void(check.read_chain(open_store(url, self.world.direct)))
                with Recorder(histories_folder(Path(self.world.folder), name) / "last.jsonl", process="last") as recorder:
                    witness(recorder, commits_of(chain), set())
                snapshot = self.world.table(name, direct=True).snapshot()
                versions[name], rows[name] = snapshot.version, snapshot.totals.rows
        began = time.process_time()
        found, operations = judge(Path(self.world.folder), self.world.urls)
        self.findings += found
        if not self.findings and not self.settings.exports:  # which show files longer
            for name, url in self.world.urls.items():
                self.findings += [f"{name}: {each}" for each in check.check_swept(open_store(url, self.world.direct))]
        requests = self.proxy.requests if self.proxy is not None else []
        return Summary(
            seed=self.settings.seed, store=self.settings.store, seconds=self.settings.seconds, findings=tuple(self.findings),
            versions=versions, rows=rows, counts=counts, kills=self.signals[signal.SIGKILL],
            deaths=dict(Counter(note["moment"] for note in self.told if note["what"] == "died")), stops=self.signals[signal.SIGSTOP],
            requests=len(requests), faults=dict(self.weather.seen),
            lost_answers=sum(bool(each.statuses) and each.fault is not None and each.fault.kind in LOST for each in requests),
            unheard=unheard, told=dict(Counter(note["what"] for note in self.told)), histories=len(self.world.urls), operations=operations,
            judged_s=round(time.process_time() - began, 2),
            refusals=dict(Counter(note["error"] for note in self.told if note["what"] in ("refused", "prepared refused"))),
            folder=self.world.folder, passed=self.scene.passed,
        )  # fmt: skip

    # --- the three phases -----------------------------------------------------------------------------------------------

    def _storm(self, pool: ProcessPool) -> None:
        """Faults, kills and stops, until the time is over or something was wrong."""
        blows, wakes = list(self.schedule.blows), list[tuple[float, str]]()
        began, said = time.monotonic(), 0.0
        while ((now := time.monotonic() - began) < self.settings.seconds or self._wants(now)) and not self.findings:
            self.weather.now_s = now
            while blows and blows[0].at_s <= now:
                wakes += self._strike(pool, blows.pop(0), now)
            for due in [wake for wake in wakes if wake[0] <= now]:
                wakes.remove(due)
                pool.signal(due[1], signal.SIGCONT)
            self._look_after(pool)
            if now - said >= _PROGRESS_S:
                said = now
                self._progress(now)
            time.sleep(_TICK_S)
        for _, name in wakes:
            pool.signal(name, signal.SIGCONT)
        self.weather.now_s = -1.0

    def _wants(self, now: float) -> bool:
        """Whether something has not happened often enough, and still may."""
        if now > _LONGER * self.settings.seconds:
            return False
        seen = Counter(note["what"] for note in self.told)
        seen["kill"], seen["stop"] = self.signals[signal.SIGKILL], self.signals[signal.SIGSTOP]
        seen.update(note["moment"] for note in self.told if note["what"] == "died")
        seen["lost answer"] = sum(self.weather.seen[kind] for kind in LOST)
        return any(seen[what] < count for what, count in self.settings.wanted.items())

    def _drain(self, pool: ProcessPool) -> None:
        """Nothing goes wrong any more: the rest is written, what is prepared is finished, and everybody goes home."""
        put_file(Path(self.world.folder) / "phase", "drain")
        if self.proxy is not None:
            self.proxy.settle(now=True)
        self._wait(pool, "the producer did not end", lambda: "producer" not in self.living and not self.back)
        self._wait(pool, "not all of the work was done", lambda: self.scene.is_drained(self.world))
        self.restarts = False
        put_file(Path(self.world.folder) / "phase", "end")
        self._wait(pool, "not all ended", lambda: not self.living)
        if not self.findings:
            self._start(pool, self.scene.last, 0)
            self._wait(pool, "the last committer did not end", lambda: not self.living)

    def _wait(self, pool: ProcessPool, otherwise: str, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.settings.drain_s
        while not self.findings and not until():
            if time.monotonic() > deadline:
                self.findings.append(f"{otherwise} within {self.settings.drain_s:g} s; living: {sorted(self.living)}")
            self._look_after(pool)
            time.sleep(_TICK_S)

    # --- one step -------------------------------------------------------------------------------------------------------

    def _strike(self, pool: ProcessPool, blow: Blow, now: float) -> list[tuple[float, str]]:
        pool.signal(blow.actor, signal.SIGKILL if blow.kind == "kill" else signal.SIGSTOP)
        return [(now + blow.for_s, blow.actor)] if blow.kind == "stop" else []

    def _look_after(self, pool: ProcessPool) -> None:
        """Counts what was carried out, brings the dead back, and reads what the living have noted."""
        for event in pool.events():
            if "signalled" in event:
                self.signals[event["number"]] += 1
            elif "ended" in event:
                self._bury(event["ended"], event["code"])
        for each in [each for each in self.back if each[0] <= time.monotonic()]:
            self.back.remove(each)
            self._start(pool, each[1], each[2])
        self._read_notes()

    def _bury(self, name: str, code: int) -> None:
        incarnation = self.living.pop(name)
        if code == -signal.SIGKILL and self.restarts:
            pause_s = random.Random(f"{self.settings.seed}/{name}/{incarnation}/back").uniform(0.0, 0.6)
            self.back.append((time.monotonic() + pause_s, name, incarnation + 1))
        elif code not in (0, -signal.SIGKILL):
            self.findings.append(f"{name}, incarnation {incarnation}, ended with {code}")

    def _read_notes(self) -> None:
        for note in self.notes.new():
            self.told.append(note)
            if note["what"] == "violation":
                self.findings.append(f"{note['by']}: {note['said']}")
            elif note["what"] == "broken":
                self.findings.append(f"{note['by']} broke: {note['trace']}")

    def _start(self, pool: ProcessPool, name: str, incarnation: int) -> None:
        self.living[name] = incarnation
        pool.start(name, incarnation)

    def _progress(self, now: float) -> None:
        versions = {name: self.world.table(name, direct=True).version for name in self.world.urls}
        counts = Counter(note["what"] for note in self.told)
        self.say(
            f"{now:4.0f} s: versions {_listed(versions)}; {self.scene.progress(self.world)}; "
            f"kills {self.signals[signal.SIGKILL] + counts['died']}, stops {self.signals[signal.SIGSTOP]}, "
            f"faults {self.weather.seen.total()}, reads {counts['read'] + counts['read together']}, reruns {counts['rerun']}"
        )


def _world(settings: Settings, folder: Path, server: S3Server | None, proxy: FaultProxy | None) -> World:
    options: dict[str, Any] = {}
    direct: dict[str, Any] = {}
    if server is None or proxy is None:
        place = str(folder)
    else:
        place = f"s3://{server.bucket()}"
        direct = server.storage_options
        options = {**direct, "endpoint_url": proxy.url, "config_kwargs": {"read_timeout": settings.timeout_s}}
    notes_folder(folder)
    return World(
        seed=settings.seed, folder=str(folder), urls={name: f"{place}/{below}" for name, below in settings.scene.folders(settings).items()},
        sources=_SOURCES[: settings.sources], options=options, direct=direct, faulty=proxy is not None, per_second=settings.per_second,
        spark=settings.spark,
    )  # fmt: skip


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
