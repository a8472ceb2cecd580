"""`--turn N` runs one of N parts of the selected tests, the part of the day: N days in a row run all of them.

CI runs a tenth of what `make test` leaves out, so that a change is judged within half an hour. Which part it was is said in the last
lines, with what runs the others.
"""

import datetime as dt
import os
import zlib

import pytest

DAY = "MC_TURN_DAY"  # whose turn is asked for, such as 2026-11-27; by default today's


def turn_of(node: str, parts: int) -> int:
    """The part of a test. Cases of one function are spread over all parts, which makes these alike in length."""
    return zlib.crc32(node.encode()) % parts


def turn_on(day: dt.date, parts: int) -> int:
    return day.toordinal() % parts


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", type=int, default=1, metavar="N", help=f"one part in N, another each day; {DAY} chooses the day")


def pytest_configure(config: pytest.Config) -> None:
    """The day is chosen once, for worker processes that start after midnight, too."""
    if config.option.turn > 1:
        os.environ.setdefault(DAY, dt.date.today().isoformat())


@pytest.hookimpl(trylast=True)  # after `-m` has selected by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    parts = config.option.turn
    if parts > 1:
        turn = turn_on(dt.date.fromisoformat(os.environ[DAY]), parts)
        others = [item for item in items if turn_of(item.nodeid, parts) != turn]
        items[:] = [item for item in items if turn_of(item.nodeid, parts) == turn]
        config.hook.pytest_deselected(items=others)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    parts = terminalreporter.config.option.turn
    if parts > 1:
        day = dt.date.fromisoformat(os.environ[DAY])
        others = ", ".join((day + dt.timedelta(days=later)).isoformat() for later in range(1, parts))
        terminalreporter.write_line(f"part {turn_on(day, parts) + 1} of {parts} of the selected tests; the others: {DAY}={others}")
