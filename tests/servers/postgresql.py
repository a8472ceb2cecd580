"""A real PostgreSQL, on a socket in a folder of its own: Debian's package, which is not installed for tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


class Server:
    """A cluster in a folder, reached by its socket."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, BINARIES[-1].parent
        self._user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        self.do("initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "me", "-E", "UTF8", "--no-sync")
        self.start()

    @classmethod
    def standby_of(cls, primary: Server, folder: Path) -> Server:
        """A server that follows another one's log."""
        found = object.__new__(cls)
        found.folder, found.bin, found._user = folder, primary.bin, primary._user
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        found.do("pg_basebackup", "-D", f"{folder}/data", "-R", "-X", "stream", "-c", "fast", "-d", f"host={primary.folder} user=me")
        found.start()
        return found

    def promote(self) -> None:
        self.do("pg_ctl", "-D", f"{self.folder}/data", "-w", "promote")

    @property
    def dsn(self) -> str:
        return f"host={self.folder} user=me dbname=postgres"

    def do(self, *command: str) -> None:
        subprocess.run([self.bin / command[0], *command[1:]], user=self._user, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses= -c wal_writer_delay=10s -c max_prepared_transactions=2 -c wal_level=logical"
        self.do("pg_ctl", "-D", f"{self.folder}/data", "-w", "-l", f"{self.folder}/log", "-o", options, "start")

    def stop(self, how: str) -> None:
        """immediate: as after a crash."""
        self.do("pg_ctl", "-D", f"{self.folder}/data", "-w", "-m", how, "stop")

    def kill(self) -> None:
        """SIGKILL for the server and all its processes, each by its id."""
        head = int((self.folder / "data" / "postmaster.pid").read_text("utf-8").splitlines()[0])
        mine = Path(f"/proc/{head}/task/{head}/children").read_text("utf-8").split()
        for each in (head, *map(int, mine)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        while any(is_alive(each) for each in (head, *map(int, mine))):
            time.sleep(0.01)
        for each in ("data/postmaster.pid", ".s.PGSQL.5432.lock"):  # where nothing reaps it, its zombie looks like a running server
            (self.folder / each).unlink()

    def run(self, text: str) -> list[list[str]]:
        command = [self.bin / "psql", "-h", self.folder, "-U", "me", "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        return [line.split("|") for line in done.stdout.splitlines()]


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server that ends with the block."""
    if not BINARIES:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # not pytest's, which other runs close to all but root
    folder.chmod(0o711)
    server = Server(folder / "s")
    try:
        yield server
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            server.stop("immediate")
        shutil.rmtree(folder)
