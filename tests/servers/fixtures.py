"""Real servers for tests: `rgw`, `azurite`, `fake_gcs`, `rclone`, `s3rver`, `seaweedfs`. Each starts when a test asks for it.

A server that this machine lacks and cannot install skips its tests, and the run's last lines say so; MC_SERVERS=required makes
that an error. A server that is here and does not start is an error always.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from tests.kit.proxy import FaultProxy
from tests.servers import servers
from tests.servers.servers import S3Server, StartError, UnavailableError

RUN_FOLDER = "MC_TESTS_RUN_FOLDER"  # set for xdist's workers, which all use one gateway
RUN_PID = "MC_TESTS_RUN_PID"
SKIPPED = "NOT RUN on "

Server = TypeVar("Server")


def pytest_configure(config: pytest.Config) -> None:
    """One folder per run, made by the process that the user started."""
    if not _is_worker(config):
        os.environ[RUN_FOLDER] = tempfile.mkdtemp(prefix="manifestcommit-tests-")
        os.environ[RUN_PID] = str(os.getpid())


@pytest.hookimpl(tryfirst=True)  # whatever the others' hooks raise
def pytest_unconfigure(config: pytest.Config) -> None:
    """After all workers: ends the gateway that some worker of this run started."""
    if not _is_worker(config) and RUN_FOLDER in os.environ:
        folder = Path(os.environ.pop(RUN_FOLDER))
        servers.stop_rgw(folder / "rgw")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around pytest's own summary: these are the last lines
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Says aloud which servers were missing, and what that cost."""
    yield
    reasons = (str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ()) if isinstance(report.longrepr, tuple))
    missing = Counter(reason.removeprefix("Skipped: ") for reason in reasons if reason.startswith(f"Skipped: {SKIPPED}"))
    if missing:
        terminalreporter.section("tests that were NOT RUN", red=True, bold=True)
    for reason, count in sorted(missing.items()):
        terminalreporter.write_line(f"NOT RUN: {count} test{'s' * (count > 1)} on {reason.removeprefix(SKIPPED)}", red=True, bold=True)


@pytest.fixture(scope="session")
def rgw() -> S3Server:
    """Real S3: the developer's own gateway where one runs (tests/servers/rgw.sh start), else one for the whole run."""
    with _told("real S3 (Ceph RGW)"):
        own = servers.developers_rgw()
        return own or servers.start_rgw(Path(os.environ[RUN_FOLDER]) / "rgw", for_pid=int(os.environ[RUN_PID]))


def _served(what: str, serve: Callable[[Path], AbstractContextManager[Server]]) -> object:
    """The fixture of a server that is started for the whole session."""

    @pytest.fixture(scope="session", name=serve.__name__)
    def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        with ExitStack() as stack:
            with _told(what):
                server = stack.enter_context(serve(tmp_path_factory.mktemp(serve.__name__)))
            yield server

    return server


azurite = _served("Azure Blob Storage (Azurite)", servers.azurite)
fake_gcs = _served("Google Cloud Storage (fake-gcs-server)", servers.fake_gcs)
seaweedfs = _served("SeaweedFS", servers.seaweedfs)  # S3 from a tree of folders
# Two S3 servers that take If-None-Match and overwrite.
rclone = _served("rclone serve s3", servers.rclone)
s3rver = _served("s3rver", servers.s3rver)


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except UnavailableError as error:
        if os.environ.get("MC_SERVERS") == "required":
            pytest.fail(f"no {what}: {error}", pytrace=False)
        pytest.skip(f"{SKIPPED}{what}: {error}")
    except StartError as error:
        pytest.fail(f"{what} did not start: {error}", pytrace=False)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.fixture
def proxy(rgw: S3Server) -> Iterator[FaultProxy]:
    """Before the real S3 server."""
    with FaultProxy(rgw.endpoint) as proxy:
        yield proxy
