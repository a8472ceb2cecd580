"""Writers, committers, readers and a producer as processes, killed, stopped and lied to all the time: each record once, at each version.

The long runs are `make chaos`.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.chaos.run import Settings, Summary, report, run
from tests.chaos.worker import UNHEARD
from tests.kit.sizes import PROOF
from tests.servers.servers import S3Server

REPO = Path(__file__).resolve().parents[2]


# Each of these happens in every run: it goes on until they have.
CREATED = "a version was created"
WANTED = {"kill": 4, "stop": 2, "died": 1, "rerun": 1, "twin": 1, "prepared": 2, "read": 6, "committed": 20}
WANTED |= {"collected": 2, "filtered": 1, "traced": 1, "stumbled": 1, "filled alike": 2}
UNUSUAL = {UNHEARD: 1, "aborted": 1, "left": 1, "rewound": 1, "rolled back": 1, "undone": 1}


def check(
    summary: Summary, seen: Sequence[str] = ("died", "rerun", "twin", "prepared", "read", "committed"), operations: int = 200
) -> None:
    """It went well, and there was something that could have gone wrong."""
    report(summary, print)
    assert not summary.findings, f"seed {summary.seed} on {summary.store}: see above, or make chaos CHAOS_ARGS='--seed {summary.seed}'"
    assert summary.rows["parted"] == summary.rows["plain"] == summary.counts["records"] > 50
    assert sum(summary.versions.values()) > 15
    assert summary.histories == len(summary.versions) and summary.operations > operations, "the history checker had nothing to judge"
    assert summary.kills > 0
    assert summary.stops > 0
    assert all(summary.told.get(what, 0) > 0 for what in seen), summary.told


def test_exactly_once_on_a_local_disk() -> None:
    """[IV1] [IV2] [IV3] [IV5] [IV6] [IV9] [CM1] [KY3] [KY5] [KY7] [KY8] [WM2] [WM5] [WM6] [CF13] [AB3] [AB4] [AB6]

    [RD2] [RD6] [RD9] [OB10]
    """
    summary = run(Settings(seed=7, seconds=4, per_second=100, wanted=WANTED | UNUSUAL), print)
    check(summary)
    assert summary.deaths.get(UNHEARD), "nobody was killed between a commit and its acknowledgement"


@pytest.mark.thorough
def test_what_is_exported_meanwhile_is_right_at_every_version() -> None:
    """By the commits and by exporters beside them, with gc; read by DuckDB and delta-rs. [EX1] [EX2] [EX4]"""
    wanted = {"kill": 4, "collected": 2, "committed": 20, "exported": 10, "read elsewhere": 10}
    summary = run(Settings(seed=11, seconds=14, wanted=wanted, exports=True), print)
    check(summary, ("exported", "read elsewhere", "committed"), operations=100)


@pytest.mark.thorough
def test_exactly_once_on_a_real_s3_server_that_loses_answers(rgw: S3Server) -> None:
    """[IV1] [IV2] [IV3] [IV4] [IV5] [IV6] [KY3] [WM2] [AB3] [AB4] [RD2] [ST14]"""
    wanted = WANTED if PROOF else {"kill": 2, "stop": 1, "prepared": 1, "read": 2, "committed": 12}
    settings = Settings(seed=1, seconds=12, store="s3", kill_every_s=2.0, timeout_s=0.7, wanted=wanted | {"lost answer": 3})
    summary = run(settings, print, rgw)
    check(summary, ("prepared", "read", "committed"), operations=40)
    assert summary.lost_answers > 0
    assert sum(summary.faults.values()) > summary.lost_answers


JOINT = {"kill": 4, "stop": 1, "died": 2, "rerun": 2, "prepared": 2, "read together": 8, "transferred": 12, "collected": 1, "compacted": 1}
JOINT |= {"restated": 1}


def check_joint(summary: Summary) -> None:
    report(summary, print)
    assert not summary.findings, (
        f"seed {summary.seed} on {summary.store}: see above, or make chaos CHAOS_ARGS='--about joint --seed {summary.seed}'"
    )
    assert summary.histories == 3 and summary.operations > 60 and summary.kills > 0 and summary.counts["members"] > 3
    assert sum(summary.rows.values()) > 20


@pytest.mark.thorough
def test_a_transfer_is_in_all_of_its_tables_or_in_none_on_a_local_disk() -> None:
    """Whoever dies, between its members and its decision, too; whoever reads, of however many tables. [MT1] [MT4] [MT5] [MT6] [MT9]
    [MT11] [MT12] [MT13]"""
    summary = run(Settings(seed=5, seconds=14, about="joint", wanted=JOINT | {"aborted": 1, CREATED: 1}), print)
    check_joint(summary)
    assert summary.deaths.get(CREATED), "nobody was killed between a member and what follows it"


@pytest.mark.thorough
def test_row_changes_are_made_once_and_one_after_the_other_on_a_local_disk() -> None:
    """Updates, partial merges, deletes and overwrites by a condition, in the same partitions, with compaction and gc. [RC2] [RC3] [RC6]
    [RC7] [RC9] [RC10] [CF16]"""
    wanted = {"kill": 4, "died": 3, "rerun": 2, "twin": 1, "conflict": 3, "changed": 40, "read": 10, "compacted": 1, "collected": 1}
    wanted |= {CREATED: 1}
    summary = run(Settings(seed=5, seconds=14, about="rows", wanted=wanted), print)
    report(summary, print)
    assert not summary.findings and summary.deaths.get(CREATED) and summary.rows["changed"] > 20


def test_whoever_kills_a_run_ends_all_of_it(tmp_path: Path) -> None:
    """Stopped actors, too."""
    command = [sys.executable, "-m", "tests.chaos", "--minutes", "2", "--seed", "1", "--store", "local"]
    process = subprocess.Popen(command, cwd=REPO, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while len(living := descendants(process.pid)) < 8:
            assert time.monotonic() < until and process.poll() is None, f"it did not start: {living}"
            time.sleep(0.05)
        os.kill(living[-1], signal.SIGSTOP)
    finally:
        process.kill()
        process.wait()
    until = time.monotonic() + 20
    while left := [pid for pid in living if is_alive(pid)]:
        assert time.monotonic() < until, f"still there: {left}"
        time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    """The processes below this one, the nearest first."""
    parents = {int(path.name): stat for path in Path("/proc").glob("[0-9]*") if (stat := parent_of(path)) is not None}
    found = [child for child, parent in parents.items() if parent == pid]
    return found + [each for child in found for each in descendants(child)]


def parent_of(path: Path) -> int | None:
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_alive(pid: int) -> bool:
    """And not only still to be collected by its parent."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
