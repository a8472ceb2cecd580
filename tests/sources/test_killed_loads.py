"""Loaders that are killed at any request, and two at once, load each row once. [LD1] [LD2]"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.kit.faults import execute, lives
from tests.kit.sizes import at_calls
from tests.sources.soak import ORIGINS, found_in

import manifestcommit as mc


def fill(landing: Path, numbers: Sequence[int]) -> None:
    landing.mkdir(exist_ok=True)
    for number in numbers:
        (landing / f"{number}.csv").write_text(f"id\n{number}\n")


def rows(table: Path) -> list[int]:
    return sorted(mc.Table(table).to_arrow().column("id").to_pylist())


QUICK, SLOW = ("files", "table"), ("kafka", "postgres", "postgres-slot")


@pytest.mark.parametrize("kind", [*QUICK, *(pytest.param(each, marks=pytest.mark.thorough) for each in SLOW)])
@pytest.mark.parametrize("moment", ["before", "after"])
@at_calls
def test_a_loader_that_dies_at_any_request_and_is_run_again_loads_each_row_once(tmp_path: Path, kind: str, moment: str, step: int) -> None:
    """Each death at a later request than the one before, until one load lives to its end. [LD1] [LD2]"""
    deaths = 0
    with ORIGINS[kind](tmp_path, random.Random(3)) as origin:
        for _ in range(3):
            origin.write()
        expected = origin.expected()
        chunk = 1_000_000 if kind == "kafka" else 8  # some chunks of each
        for at in range(1, 90, max(step, 2)):
            target = tmp_path / f"t{at}"
            died = not lives(execute, f"mc.load({origin.code}, {str(target)!r}, max_bytes={chunk})", at, moment)
            deaths += died
            mc.load(eval(origin.code), target)
            assert found_in(target, origin) == expected, at
            assert mc.Table(target).verify().damages == 0
            if not died:
                break
    assert deaths * max(step, 2) > 4 and expected.total() > 3


AGAIN = """
import sys
import manifestcommit as mc
for _ in range(3):
    mc.load(mc.sources.files(sys.argv[1], settle="0s"), sys.argv[2], max_bytes=20)
"""


@pytest.mark.thorough
def test_two_loaders_at_once_load_each_file_once_while_more_files_land(tmp_path: Path) -> None:
    landing, table = tmp_path / "landing", tmp_path / "t"
    fill(landing, range(5))
    loaders = [
        subprocess.Popen([sys.executable, "-c", AGAIN, str(landing), str(table)], stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for number in range(5, 25):
        (landing / f".{number}.csv").write_text(f"id\n{number}\n")
        os.rename(landing / f".{number}.csv", landing / f"{number}.csv")
        time.sleep(random.random() * 0.05)
    for loader in loaders:
        assert loader.wait(120) == 0, loader.stderr.read() if loader.stderr else ""
        assert loader.stderr is not None
        loader.stderr.close()
    mc.load(mc.sources.files(landing, settle="0s"), table)
    assert rows(table) == list(range(25))
    loaded = mc.Table(f"{table}.files").to_arrow(["name"]).column("name").to_pylist()
    assert sorted(loaded) == sorted(f"{number}.csv" for number in range(25))


FOLLOW = """
import sys
import manifestcommit as mc
for outcome in mc.follow(mc.sources.files(sys.argv[1], settle="0s"), sys.argv[2], every="1s"):
    print(outcome.rows, flush=True)
print("ended", flush=True)
"""


@pytest.mark.thorough
def test_a_follower_ends_between_commits_when_it_is_told_to(tmp_path: Path) -> None:
    """[LD6]"""
    fill(tmp_path / "landing", range(4))
    follower = subprocess.Popen(
        [sys.executable, "-c", FOLLOW, str(tmp_path / "landing"), str(tmp_path / "t")], stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    assert follower.stdout.readline() == "4\n"
    fill(tmp_path / "landing", range(4, 6))
    assert follower.stdout.readline() == "2\n"
    follower.send_signal(signal.SIGTERM)
    assert follower.stdout.read() == "ended\n" and follower.wait(30) == 0
    follower.stdout.close()
    assert rows(tmp_path / "t") == list(range(6))


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of this signal."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("what", ["settle", "brokers"])
def test_a_follower_ends_while_its_source_is_silent(tmp_path: Path, what: str) -> None:
    """A file that is waited for, and brokers that take connections and say nothing. [LD6]"""
    fill(tmp_path / "landing", range(1))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = {
            "settle": "mc.sources.files(sys.argv[1], settle='1h')",
            "brokers": f"mc.sources.kafka('127.0.0.1:{silent.getsockname()[1]}', 'orders', settings={{'log_level': 0}})",
        }[what]
        code = FOLLOW.replace('mc.sources.files(sys.argv[1], settle="0s")', source)
        follower = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "landing"), str(tmp_path / "t")], stdout=subprocess.PIPE, text=True
        )
        while not catches(follower.pid, signal.SIGTERM):
            time.sleep(0.1)
        time.sleep(1)
        begun = time.monotonic()
        follower.send_signal(signal.SIGTERM)
        assert follower.stdout is not None and follower.stdout.read() == "ended\n" and follower.wait(30) == 0
        assert time.monotonic() - begun < 15
        follower.stdout.close()
