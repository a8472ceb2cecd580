"""A run of rounds: draws each, lets its processes race, and checks what they leave behind."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
from tests.chaos.process_pool import ProcessPool
from tests.chaos.schedule import Schedule, Weather
from tests.chaos.world import NoteReader, notes_folder
from tests.kit.proxy import Fault, FaultProxy, Request
from tests.races import check
from tests.races.actor import Ground, Place
from tests.races.draw import Round, StoreKind, draw
from tests.races.operations import parquet
from tests.races.records import Record, merge
from tests.servers.servers import S3Server

from manifestcommit.store import open_store

Say = Callable[[str], None]
_TICK_S = 0.01
_SILENCE_S = 240.0  # where nobody notes anything for longer, somebody hangs
_REQUESTS_PER_S = 150  # of the weather's time: it changes with what is asked, not with the clock, so that a slow machine has as much of it
_ASLEEP_S = 3.0  # at most, where no two gcs go by
_TIMEOUT_S = 1.5  # of a client behind the proxy
_TRIES = 4  # of an actor, all but the last of them killed


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is. only: this round again and again, instead of the first ones."""

    seed: int
    rounds: int
    store: StoreKind = "local"
    only: int | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, and what was wrong: nothing, if findings is empty. rounds: how many were played; folder: where the remains lie;
    woken: stopped processes that were woken after two gcs; told: how often each operation had each outcome, and each error was met."""

    seed: int
    store: str
    rounds: int
    seconds: float
    findings: tuple[str, ...] = ()
    round: int | None = None
    folder: str = ""
    kills: int = 0
    stops: int = 0
    woken: int = 0
    requests: int = 0
    faults: dict[str, int] = {}
    told: dict[str, int] = {}


def run(settings: Settings, say: Say, server: S3Server | None = None) -> Summary:
    """All rounds, up to the first one with a violation, whose remains are kept; nothing is left of the others."""
    folder, began, total = Path(tempfile.mkdtemp(prefix="manifestcommit-races-")), time.monotonic(), Total()
    findings, number = list[str](), settings.only or 1
    try:
        with ExitStack() as stack:
            proxy = stack.enter_context(FaultProxy(server.endpoint)) if server is not None else None
            bucket = server.bucket() if server is not None else ""
            pool = stack.enter_context(closing(pool_of(folder, settings.store)))
            for count in range(1, settings.rounds + 1):
                number = settings.only or count
                place = place_of(folder, draw(settings.seed, number, settings.store), f"{count}", bucket, server, proxy)
                findings = Stage(place, f"{count}", pool, proxy, total).play()
                if findings:
                    _keep_remains(place)
                    break
                _forget(place)
                if count % 10 == 0:
                    say(f"seed {settings.seed} on {settings.store}: {count} of {settings.rounds} rounds, {total.text()}")
    except BaseException:
        say(f"seed {settings.seed}, round {number} on {settings.store}: broken off; what there is lies in {folder}")
        raise
    if not findings:
        shutil.rmtree(folder)
    return Summary(
        seed=settings.seed,
        store=settings.store,
        rounds=count,
        seconds=round(time.monotonic() - began, 1),
        findings=tuple(findings),
        round=number if findings else None,
        folder=str(folder / f"{count}") if findings else "",
        kills=total.kills,
        stops=total.stops,
        woken=total.woken,
        requests=total.requests,
        faults=dict(total.faults),
        told=dict(sorted(total.told.items())),
    )


def report(summary: Summary, say: Say) -> None:
    """The summary in words."""
    where = f"seed {summary.seed} on {summary.store}"
    say(f"{where}: {summary.rounds} rounds in {summary.seconds:g} s; kills {summary.kills}, stops {summary.stops}, woken after two gcs")
    say(f"  {summary.woken}; requests {summary.requests}, faults {sum(summary.faults.values())}")
    say("  " + ", ".join(f"{name} {count}" for name, count in summary.told.items()))
    for each in summary.findings:
        say(f"  VIOLATION: {each}")
    if summary.findings:
        say(f"{where}: FAILED in round {summary.round}; log, archive and table lie in {summary.folder}")
        say(
            f"  again: python -m tests.chaos --about races --store {summary.store} --seed {summary.seed} --only {summary.round} --rounds 20"
        )
    else:
        say(f"{where}: passed, nothing live was deleted, nothing dead is left, a serial order explains each round")


class Total:
    """What is counted over all rounds."""

    def __init__(self) -> None:
        self.kills = self.stops = self.woken = self.requests = 0
        self.faults, self.told = Counter[str](), Counter[str]()

    def text(self) -> str:
        outcomes = Counter[str]()
        for name, count in self.told.items():
            outcomes[name.rpartition(" ")[2]] += count
        return ", ".join(f"{name} {outcomes[name]}" for name in ("committed", "refused", "unknown", "failed", "read", "gone", "killed"))


class Stage:
    """The course of one round. name: that of its folder."""

    def __init__(self, place: Place, name: str, pool: ProcessPool, proxy: FaultProxy | None, total: Total) -> None:
        self.place, self.round, self.name = place, place.round, name
        self.pool, self.proxy, self.total = pool, proxy, total
        self.notes, self.lines = NoteReader(Path(place.folder)), list[dict[str, Any]]()
        self.weather = Weather(self.round.seed * 1000 + self.round.number, Schedule(blows=(), windows=self.round.windows))
        self.asked, self.heard_s = 0, time.monotonic()
        self.findings: list[str] = []
        self.living: dict[str, int] = {}  # name -> incarnation
        self.asleep: dict[str, tuple[float, int]] = {}  # name -> since when, and how many gcs had ended by then

    @property
    def records(self) -> list[Record]:
        return merge(self.lines)

    def play(self) -> list[str]:
        """What was wrong."""
        if self.proxy is not None:
            self.proxy.reset()
        self._let("founder")
        if self.proxy is not None:
            self.proxy.faults = self._fault
        if not self.findings:
            self._race()
        if self.proxy is not None:
            self.proxy.faults = []
            self.proxy.settle(now=True)
        for name, look in (("closer", check.check_live), ("cleaner", check.check_end)):
            if not self.findings:
                self._let(name)
            if not self.findings:
                self.findings += look(self.place, self.records)
        self.total.told += Counter(check.summary_of(self.records))
        if self.proxy is not None:
            self.total.requests += len(self.proxy.requests)
            self.total.faults += self.weather.seen
        return self.findings

    def _let(self, *names: str) -> None:
        """These alone, up to their ends."""
        for name in names:
            self._start(name, 0)
        self._until_ended()

    def _fault(self, request: Request) -> Fault | None:
        self.asked += 1
        self.weather.now_s = self.asked / _REQUESTS_PER_S
        return self.weather(request)

    def _race(self) -> None:
        began, kills = time.monotonic(), list(self.round.kills)
        for actor in self.round.actors:
            self._start(actor.name, 0)
        while self.living and not self.findings:
            while kills and kills[0][0] <= time.monotonic() - began:
                self._signal(kills.pop(0)[1], signal.SIGKILL)
            self._tick()
            self._wake()

    def _until_ended(self) -> None:
        while self.living and not self.findings:
            self._tick()

    def _tick(self) -> None:
        self._look_after()
        if time.monotonic() - self.heard_s > _SILENCE_S:
            self.findings.append(f"nothing was heard for {_SILENCE_S:g} s of these: {sorted(self.living)}")
            for name in self.living:
                self._signal(name, signal.SIGKILL)
        time.sleep(_TICK_S)

    def _wake(self) -> None:
        """Those who have slept through two gcs, and those who would sleep for nothing."""
        ended = self._gcs_ended()
        for name, (since, before) in list(self.asleep.items()):
            has_slept = ended >= before + 2
            if has_slept or time.monotonic() - since > _ASLEEP_S or self.living.keys() <= self.asleep.keys():
                del self.asleep[name]
                self.total.woken += has_slept
                self._signal(name, signal.SIGCONT)

    def _gcs_ended(self) -> int:
        return sum(line.get("operation") == "gc" and line.get("outcome") == "done" for line in self.lines)

    def _look_after(self) -> None:
        """Reads what the living have noted, and brings the dead back."""
        for event in self.pool.events():
            name = (event.get("signalled") or event.get("ended", "")).partition(" ")[2]
            if "ended" in event:
                self._bury(name, event["code"])
        for line in self.notes.new():
            self.lines.append(line)
            self.heard_s = time.monotonic()
            if line.get("what") == "stops":
                self.total.stops += 1
                self.asleep[line["process"]] = (time.monotonic(), self._gcs_ended())
            elif line.get("what") == "broken":
                self.findings.append(f"{line['process']} broke: {line['trace']}")

    def _bury(self, name: str, code: int) -> None:
        incarnation = self.living.pop(name)
        self.asleep.pop(name, None)
        if code == -signal.SIGKILL and incarnation + 1 < _TRIES:
            self.total.kills += 1
            self._start(name, incarnation + 1)
        elif code not in (0, -signal.SIGKILL):
            self.findings.append(f"{name}, incarnation {incarnation}, ended with {code}")

    def _start(self, name: str, incarnation: int) -> None:
        self.heard_s = time.monotonic()
        self.living[name] = incarnation
        self.pool.start(f"{self.name} {name}", incarnation)

    def _signal(self, name: str, number: int) -> None:
        self.pool.signal(f"{self.name} {name}", number)


def pool_of(folder: Path, store: StoreKind) -> ProcessPool:
    return ProcessPool(Ground(folder=str(folder), store=store), "tests.races.actor")


def place_of(folder: Path, drawn: Round, name: str, bucket: str, server: S3Server | None, proxy: FaultProxy | None) -> Place:
    """The round's folder, with its table's root in it or in the bucket, and with the files that lie there before there is a table."""
    own = folder / name
    url, options, calm, direct = str(own / "lake %20+=" / "table é"), dict[str, Any](), dict[str, Any](), dict[str, Any]()
    if server is not None and proxy is not None:
        url, direct = f"s3://{bucket}/races %20+=/{name}/table é", server.storage_options
        calm = {**direct, "endpoint_url": proxy.url}
        options = {**calm, "config_kwargs": {"read_timeout": _TIMEOUT_S}}
    place = Place(folder=str(own), url=url, round=drawn, options=options, calm=calm, direct=direct)
    place.archive.mkdir(parents=True)
    notes_folder(own)
    store = open_store(url, direct)
    for path, rows in drawn.adopted.items():
        store.put(path, parquet(rows))
    (own / "place.json").write_bytes(msgspec.json.encode(place))
    return place


def _forget(place: Place) -> None:
    shutil.rmtree(place.folder)
    if place.round.store == "s3":
        store = open_store(place.url, place.direct)
        store.delete([info.name for info in store.list("")])


def _keep_remains(place: Place) -> None:
    """The objects of a server that is going to end, as files beside the log."""
    if place.round.store != "s3":
        return
    store = open_store(place.url, place.direct)
    for info in store.list(""):
        path = Path(place.folder) / "objects" / info.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(info.name))
