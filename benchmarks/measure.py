"""Rounds of contestants in turns, the CPU of a whole tree of processes, medians, and where results go."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPO = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"
# What benchmarks write themselves: a run that has kept one result would call the next one's code changed.
_MADE = (":(exclude)benchmarks/results", ":(exclude)spec/performance", ":(exclude)spec/performance.md")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

# What a round returns: figures by name, in the unit that the name ends in.
Figures = Mapping[str, float]


@dataclass(slots=True, kw_only=True)
class Contestant:
    """One side of a comparison. run(n): do the work of round n; what it returns is kept beside wall_s and cpu_s.

    before(n): set up round n; after(n): check and clean up after it. Neither is measured.
    """

    name: str
    run: Callable[[int], Figures | None]
    before: Callable[[int], None] | None = None
    after: Callable[[int], None] | None = None
    rounds: list[dict[str, float]] = field(default_factory=list)

    def median(self, figure: str) -> float:
        """The median of one figure over all rounds that count."""
        return statistics.median(one[figure] for one in self.rounds)


def interleave(contestants: Sequence[Contestant], *, rounds: int, warm_up: int = 1) -> None:
    """A B C, A B C, ...: a machine that slows down slows all of them. The first rounds are not counted."""
    for number in range(warm_up + rounds):
        for one in contestants:
            if one.before:
                one.before(number)
            gc.collect()
            with CpuMeter() as cpu:
                start = time.perf_counter()
                figures = one.run(number)
                wall = time.perf_counter() - start
            if number >= warm_up:
                one.rounds.append({"wall_s": wall, "cpu_s": cpu.seconds, **(figures or {})})
            if one.after:
                one.after(number)
        print(
            f"    round {number + 1} of {warm_up + rounds}" + (" (warm-up)" if number < warm_up else ""),
            file=sys.stderr,
            flush=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One process at one moment, in ticks. own: its CPU; reaped: that of its children that it has waited for."""

    parent: int
    own: int
    reaped: int

    @property
    def total(self) -> int:
        """All that would be lost if the process ended and nobody waited for it."""
        return self.own + self.reaped


# A process id may be used again; with the moment of its start it is unique.
ProcessId = tuple[int, int]


class CpuMeter:
    """CPU seconds used, inside a `with` block, by this process and everything below it. Needs Linux.

    The difference of two sums over the tree will not do: Spark's Python daemon does not wait for its workers, so the CPU of a worker
    that ends, a minute after its last task, belongs to nobody, and the sum falls. So each process is followed by itself, by looking
    twice a second. What a process uses between the last look and its end is lost, unless its parent waits for it: then the kernel
    adds its whole life to the parent, and what had been counted already is taken off again.
    """

    EVERY_S = 0.5

    def __enter__(self) -> CpuMeter:
        self._ticks = 0
        self._seen = _processes({})
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look_on, daemon=True)
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._looking.join()
        self._look()

    @property
    def seconds(self) -> float:
        """What was used; whole once the block has been left."""
        return self._ticks / TICKS_PER_SECOND

    def _look_on(self) -> None:
        while not self._ended.wait(self.EVERY_S):
            self._look()

    def _look(self) -> None:
        before, now = self._seen, _processes(self._seen)
        grown = {key: usage.reaped - (before[key].reaped if key in before else 0) for key, usage in now.items()}
        self._ticks += sum(usage.total - (before[key].total if key in before else 0) for key, usage in now.items())
        by_number = {key[0]: key for key in now}
        for key in before.keys() - now.keys():
            parent = by_number.get(before[key].parent)
            if parent is not None and grown[parent] >= before[key].total:  # it was waited for: its whole life is in there now
                grown[parent] -= before[key].total
                self._ticks -= before[key].total
        self._seen = now


def _processes(known: Mapping[ProcessId, Usage]) -> dict[ProcessId, Usage]:
    """This process, all below it, and those that were known: they may have lost their parent."""
    found: dict[ProcessId, Usage] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path("/proc", entry, "stat").read_text("utf-8", "replace")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
            words = text.rpartition(")")[2].split()
            own, reaped = int(words[11]) + int(words[12]), int(words[13]) + int(words[14])
            found[int(entry), int(words[19])] = Usage(parent=int(words[1]), own=own, reaped=reaped)
    children: dict[int, list[ProcessId]] = {}
    for key, usage in found.items():
        children.setdefault(usage.parent, []).append(key)
    todo = [key for key in found if key[0] == os.getpid() or key in known]
    ours: dict[ProcessId, Usage] = {}
    while todo:
        key = todo.pop()
        if key not in ours:
            ours[key] = found[key]
            todo += children.get(key[0], [])
    return ours


# --- reporting -----------------------------------------------------------------------------------------------------------


def report(name: str, case: Mapping[str, Any], contestants: Sequence[Contestant], *, figures: Sequence[str]) -> None:
    """Print medians and their ratios to the first contestant's; append everything to results/<name>.jsonl."""
    first, others = contestants[0], contestants[1:]
    print("\n" + ", ".join(f"{key} {_number(value)}" for key, value in case.items()))
    wide = max(26, *(len(f"{first.name} / {one.name}") for one in contestants)) + 1
    print(f"  {'':<{wide}}" + "".join(f"{figure:>16}" for figure in figures))
    for one in contestants:
        known = [figure for figure in figures if figure in one.rounds[0]]
        print(f"  {one.name:<{wide}}" + "".join(f"{_number(one.median(f)) if f in known else '-':>16}" for f in figures))
    ratios = {}
    for one in others:
        ratios[one.name] = {
            figure: first.median(figure) / one.median(figure)
            for figure in figures
            if figure in one.rounds[0] and figure in first.rounds[0] and one.median(figure)
        }
        row = "".join(f"{'x' + format(ratios[one.name][f], '.2f') if f in ratios[one.name] else '-':>16}" for f in figures)
        print(f"  {first.name + ' / ' + one.name:<{wide}}" + row)
    line = {
        "benchmark": name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "case": dict(case),
        "medians": {one.name: {figure: one.median(figure) for figure in one.rounds[0]} for one in contestants},
        "ratios": ratios,
        "rounds": {one.name: one.rounds for one in contestants},
        "machine": machine(),
        "command": command(),
    }
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.jsonl").open("a", encoding="utf-8") as out:
        out.write(json.dumps(_rounded(line)) + "\n")


def bytes_below(folder: Path | str) -> int:
    """Of all files in it, and in its folders."""
    return sum(os.lstat(os.path.join(place, name)).st_size for place, _, names in os.walk(folder) for name in names)


def memory_mb(what: str) -> float:
    """Resident memory of this process: now (VmRSS) or at most (VmHWM). `ru_maxrss` would be that of the process it was started by."""
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    raise KeyError(what)


def command() -> str:
    """The command that made a result, as one would type it; without the folder that it worked in."""
    words = sys.orig_argv[1:]
    if "--folder" in words:
        at = words.index("--folder")
        del words[at : at + 2]
    return shlex.join(["python", *(word for word in words if not word.startswith("--folder="))])


def is_changed(repo: Path = REPO) -> bool:
    """Whether the code is another than its commit's, whatever results and pages were made meanwhile."""
    found = subprocess.run(["git", "status", "--porcelain", "--", ".", *_MADE], cwd=repo, capture_output=True, text=True, check=False)
    return bool(found.stdout.strip())


def machine() -> dict[str, Any]:
    """What the figures depend on; no name and no path of the machine."""
    java = subprocess.run([_java(), "-version"], capture_output=True, text=True, check=False).stderr
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, capture_output=True, text=True, check=False).stdout.strip()
    found = re.search(r'version "([^"]+)"', java)
    return {
        "cores": os.cpu_count(),
        "load_15m": round(os.getloadavg()[2], 2),  # above what a benchmark itself makes (about its cores), others were at work too
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": found.group(1) if found else None,
        **{name: version(name) for name in ("pyspark", "pyarrow", "msgspec")},
        "commit": commit or None,
        "changed_since_commit": is_changed(),
    }


def _java() -> str:
    return str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


# --- what every benchmark needs -------------------------------------------------------------------------------------------


def parser(what: str | None) -> argparse.ArgumentParser:
    """The options that all of them have."""
    made = argparse.ArgumentParser(description=(what or "").partition("\n")[0])
    made.add_argument("--quick", action="store_true", help="small sizes and few rounds: does it run, roughly how fast")
    made.add_argument("--rounds", type=int, help="rounds that count (default: 5, quick: 2)")
    made.add_argument("--folder", type=Path, help="where to work (default: a temporary folder); what is made there is removed")
    return made


def rounds_of(options: argparse.Namespace) -> int:
    """How many rounds count."""
    return int(options.rounds or (2 if options.quick else 5))


@contextmanager
def work_folder(options: argparse.Namespace) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="manifestcommit-bench-", dir=options.folder) as name:
        yield Path(name)


@contextmanager
def spark_session(log: Path, *, cores: int = 2, memory: str = "4g") -> Iterator[SparkSession]:
    """A local session without UI; what the JVM has to say goes to `log`, and to standard error if the benchmark fails."""
    from examples.flights.month import open_session

    try:
        with open_session(log, cores=cores, config={"spark.driver.memory": memory}) as spark:
            yield spark
    except BaseException:
        print("\n".join(log.read_text("utf-8", "replace").splitlines()[-40:]), file=sys.stderr)
        raise
