"""Real Spark clusters on the loopback, and driver processes that tests may kill. What starts here ends here, by its pid."""

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
from tests.servers.servers import free_port
from tests.spark.archive import java_options

REPO = Path(__file__).resolve().parents[2]
HOOKS = Path(__file__).resolve().parent / "hooks"
# In a table's path: what breaks paths that are glued, quoted, globbed or decoded once too often.
HOSTILE = "a b%20c+d=e#f?g*h[i]{j}'\"é漢\\k"
SPARK_HOME = Path(pyspark.__file__).resolve().parent
LOG4J = "\n".join(
    [
        "rootLogger.level = {level}", "rootLogger.appenderRef.stderr.ref = stderr", "appender.stderr.type = Console",
        "appender.stderr.name = stderr", "appender.stderr.target = SYSTEM_ERR", "appender.stderr.layout.type = PatternLayout",
        "appender.stderr.layout.pattern = %p %c{1}: %m%n",
    ]
)  # fmt: skip


def python_path(*, hooks: bool) -> str:
    """What Spark's Python processes find: this repository, and the traps of hooks/sitecustomize.py if they are wanted."""
    return os.pathsep.join([str(HOOKS), str(REPO)] if hooks else [str(REPO)])


def environment(scratch: Path, *, hooks: bool = True, log_level: str = "fatal") -> dict[str, str]:
    """The environment of a driver, worker or master process. `hooks`: the folder whose files set traps is scratch/traps."""
    log4j = scratch / "log4j2.properties"
    log4j.write_text(LOG4J.replace("{level}", log_level), "utf-8")
    (scratch / "traps").mkdir(exist_ok=True)
    (scratch / "tmp").mkdir(exist_ok=True)
    return {
        **os.environ,
        "PYTHONPATH": python_path(hooks=hooks),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONWARNINGS": "ignore,default::UserWarning",  # ours, not those of Spark and pandas about each other
        "MANIFESTCOMMIT_TEST_TRAPS": str(scratch / "traps") if hooks else "",
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_DIRS": str(scratch / "tmp"),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": f"-Dlog4j2.configurationFile=file:{log4j} {java_options()}",
        "TMPDIR": str(scratch / "tmp"),
    }


def set_trap(scratch: Path, name: str, action: str) -> Path:
    """The next Python process of the cluster that passes the point `name` does `action` there, once."""
    trap = scratch / "traps" / name
    trap.with_name(trap.name + ".go").unlink(missing_ok=True)  # of another test in the same cluster
    trap.write_text(action, "utf-8")
    return trap


def sprung(trap: Path) -> dict[str, int]:
    """The pids of the process that stepped into the trap ("worker") and of the JVM above it ("executor")."""
    found: dict[str, int] = json.loads(trap.with_name(trap.name + ".pids").read_text("utf-8"))
    return found


def trapped_attempt(trap: Path) -> str:
    """The attempt of the task that stepped into the trap, as its files' names have it."""
    return trap.with_name(trap.name + ".attempt").read_text("utf-8")


def release(trap: Path) -> None:
    """Let the process go on that waits in the trap."""
    trap.with_name(trap.name + ".go").touch()


def clear_traps(scratch: Path) -> None:
    """Take away every trap and what is left of it; a process that still waits in one goes on."""
    for file in (scratch / "traps").iterdir():
        if not file.name.endswith(".go"):
            file.unlink()


def wait_for(condition: Any, *, seconds: float = 60.0, what: str = "it") -> Any:
    """What `condition()` returns as soon as that is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s for {what}")


@contextlib.contextmanager
def standalone_cluster(scratch: Path, *, log_level: str = "fatal") -> Iterator[str]:
    """A master and two workers of one core each, on two loopback addresses (speculation wants two hosts). Gives its URL."""
    port = free_port()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch / "tmp", ignore_errors=True)
        reached = f"--host 127.0.0.1 --port {port} --webui-port 0".split()
        _start(stack, scratch, log_level, "org.apache.spark.deploy.master.Master", *reached)
        url = f"spark://127.0.0.1:{port}"
        wait_for(lambda: _answers(port), what="the master")
        for number in (1, 2):
            folder = scratch / f"worker{number}"
            arguments = ["--host", f"127.0.0.{number}", "--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder)]
            _start(stack, scratch, log_level, "org.apache.spark.deploy.worker.Worker", *arguments, url, local_ip=f"127.0.0.{number}")
        yield url


def _start(stack: contextlib.ExitStack, scratch: Path, log_level: str, kind: str, *arguments: str, local_ip: str = "127.0.0.1") -> None:
    command = [str(SPARK_HOME / "bin" / "spark-class"), kind, *arguments]
    env = {**environment(scratch, log_level=log_level), "SPARK_LOCAL_IP": local_ip, "SPARK_DAEMON_MEMORY": "256m"}
    env.pop("SPARK_LOCAL_HOSTNAME", None)
    log = stack.enter_context((scratch / f"{kind.rpartition('.')[2]}-{secrets.token_hex(2)}.log").open("wb"))
    started = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    stack.callback(end, started)


def end(started: subprocess.Popen[Any]) -> None:
    """End a process that leads its own session, and all that it started, by their ids; returns when they are gone."""
    descendants = _descendants(started.pid)
    for pid in [started.pid, *descendants]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    started.wait()
    wait_for(lambda: not any(_runs(pid) for pid in descendants), what="processes to end")


def _descendants(pid: int) -> list[int]:
    """All processes below `pid`, and all others of its session (those whose parent died before them)."""
    parents: dict[int, int] = {}
    sessions: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)], sessions[int(folder.name)] = int(fields[1]), int(fields[3])
    found = {one for one, session in sessions.items() if session == pid} - {pid}
    while more := {one for one, parent in parents.items() if parent in found | {pid}} - found - {pid}:
        found |= more
    return sorted(found)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Driver:
    """A Python process with a Spark session of its own that runs the functions of tests/spark/jobs.py, one after another."""

    def __init__(self, scratch: Path, master: str, conf: Mapping[str, str] | None = None, *, log_level: str = "fatal") -> None:
        self.scratch = scratch
        self._own = tempfile.mkdtemp(dir=scratch)  # files of its JVM and its workers
        self.env = {**environment(scratch, log_level=log_level), "SPARK_LOCAL_DIRS": self._own, "TMPDIR": self._own}
        read_end, write_end = os.pipe()
        self._answers = os.fdopen(read_end, "r", encoding="utf-8")
        self._log = open(scratch / f"driver-{secrets.token_hex(2)}.log", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.jobs", str(write_end), master, json.dumps(dict(conf or {}))],
            cwd=REPO, env=self.env, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, pass_fds=[write_end],
            start_new_session=True, text=True,
        )  # fmt: skip
        os.close(write_end)

    def send(self, function: str, **arguments: Any) -> None:
        """Start a function; `answer` waits for what it returns."""
        try:
            self.process.stdin.write(json.dumps({"function": function, "arguments": arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise DriverDiedError(self.log()) from None

    def answer(self, *, seconds: float = 270.0) -> Any:
        """What the function returned; raises RuntimeError with the driver's traceback where it raised.

        Spark itself waits a minute or two for an executor that fell silent, and a slow machine as long again.
        """
        ready, _, _ = select.select([self._answers], [], [], seconds)
        line = self._answers.readline() if ready else ""
        if not line:
            raise DriverDiedError(self.log())
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply["value"]

    def log(self) -> str:
        """Why it died, as far as it said."""
        return "\n".join([f"exit code {self.process.poll()}", *(line for line in self.lines() if not line.startswith("\tat "))][-60:])

    def lines(self) -> list[str]:
        """All that it and its workers have said so far; what a worker says comes through a thread of the JVM, so perhaps later."""
        return Path(self._log.name).read_text("utf-8", errors="replace").splitlines()

    def says(self, text: str) -> list[str]:
        """The lines that hold the text, as soon as there are any."""
        return list(wait_for(lambda: [line for line in self.lines() if text in line], what=f"{text!r} in the driver's log"))

    def reaches(self, trap: Path) -> dict[str, int]:
        """Waits until the running function stepped into the trap; fails at once, and says why, where it ended without."""
        pids = trap.with_name(trap.name + ".pids")

        def there() -> bool:
            if not pids.exists() and select.select([self._answers], [], [], 0)[0]:
                raise AssertionError(f"the function never came to {trap.name}; it gave {self.answer()!r}")
            return pids.exists()

        try:
            wait_for(there, seconds=120.0, what=f"{trap.name} to be reached")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None
        return sprung(trap)

    def run(self, function: str, **arguments: Any) -> Any:
        """Run a function in the driver and give what it returns."""
        self.send(function, **arguments)
        return self.answer()

    def close(self) -> None:
        """End the driver, its JVM and all their children."""
        end(self.process)
        self._answers.close()
        self._log.close()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        shutil.rmtree(self._own, ignore_errors=True)


class DriverDiedError(Exception):
    """The driver's process ended or fell silent before it answered."""
