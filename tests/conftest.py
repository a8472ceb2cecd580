"""What every test shares: one interpreter for Spark's workers, hypothesis profiles, the spark mark, how many have to pass, the count
of clauses."""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from tests.kit.command import Ran, Run
from tests.kit.row_tables import make_base
from tests.kit.sizes import PROOF, SetBudgets, budgets, rounds
from tests.kit.tables import memory
from tests.left_out import left_out
from tests.selection import COLLECTED, collected, write_down

from manifestcommit.cli.main import main as command
from manifestcommit.store.local import OBJECTS, MemoryStore

pytest_plugins = ["tests.servers.fixtures", "tests.turns"]  # rgw, azurite, rclone, s3rver: real servers; --turn

# Before any session starts: Spark's Python workers are this interpreter, its driver listens on the loopback.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")

# Two cores shared with a Spark session: wall time per example says nothing, so there is no deadline.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples every time: a change is judged by what it changed. New ones are looked for everywhere else.
settings.register_profile("ci", parent=settings.get_profile("default"), print_blob=True, derandomize=True, max_examples=rounds(20, 400))
# As many, and others each time: what `make test` takes where nobody says otherwise.
settings.register_profile("quick", parent=settings.get_profile("default"), print_blob=True, max_examples=rounds(20, 400))
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))

REPO = Path(__file__).resolve().parents[1]


@pytest.fixture
def store() -> MemoryStore:
    """An empty root in memory."""
    return memory()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root on disk that nobody has made yet."""
    return tmp_path / "t"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """As a text; other than `root` where a folder of tests has one of its own."""
    return str(tmp_path / "t")


@pytest.fixture
def set_budgets() -> Iterator[SetBudgets]:
    """set_budgets(inline_keys=1): from here to the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **changes: stack.enter_context(budgets(**changes))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def once(*arguments: Any) -> Ran:
        capsys.readouterr()
        try:
            status = command([str(each) for each in arguments])
        except SystemExit as left:  # argparse leaves this way
            status = int(left.code or 0)
        found = capsys.readouterr()
        return Ran(status, found.out, found.err)

    return once


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, pa.Table]]:
    return make_base(tmp_path_factory)


@pytest.fixture
def tight(set_budgets: SetBudgets) -> None:
    """Budgets so small that everything spills and merges."""
    set_budgets(inline_entry_bytes=1500, inline_keys=3, inline_jobs=2, inline_removed_bytes=0, fan_in=3)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests in tests/spark, where its fixture is, are marked: `make test` runs them in one process. What left_out.py names is marked
    `thorough`. Tests marked `proof` are left to `make proof`. What there is, before anything is deselected, is kept for the guard of
    the quick set."""
    out = left_out(item.nodeid for item in items if not {"thorough", "proof"} & {mark.name for mark in item.iter_markers()})
    for item in items:
        if str(item.path).startswith(f"{REPO}/tests/spark/"):
            item.add_marker(pytest.mark.spark)
        if item.nodeid in out:
            item.add_marker(pytest.mark.thorough)
    items.sort(key=lambda item: item.path.name != "test_month.py")  # the longest file: no worker is left alone with it at the end
    if not PROOF:
        items[:] = [item for item in items if item.get_closest_marker("proof") is None]
    config.stash[COLLECTED] = collected(items)
    write_down(config.stash[COLLECTED])


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Python's garbage collector passes over the hundreds of thousands of objects that the collected tests are: each of its full runs, the
    tests' own among them, then costs what a test has made."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _forget_the_modules_before() -> Iterator[None]:
    """Each list of a table in memory looks at all that the process has there; the garbage collector, at what else modules have left."""
    yield
    OBJECTS.clear()
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--at-least", type=int, default=0, metavar="N", help="fail if fewer tests than N have passed; of a part, its share")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A selection that has become too small, or skips nearly everything, does not pass. `-k` chooses, so nothing is said there."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    option = session.config.option
    least = 0 if option.keyword or hasattr(session.config, "workerinput") else option.at_least // option.turn
    if reporter is not None and exitstatus == pytest.ExitCode.OK and (passed := len(reporter.stats.get("passed", ()))) < least:
        reporter.ensure_newline()
        reporter.write_line(f"FAILED: {passed} tests have passed, and these are at least {least}", red=True, bold=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says aloud what of the specification the tests hold, and what is only planned."""
    from tests.spec.clauses import report

    for line in report(REPO):
        terminalreporter.write_line(line)
