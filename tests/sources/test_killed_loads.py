"""Loaders that are killed at any request, and two at once, load each row once. [LD1] [LD2]"""

from __future__ import annotations

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
from tests.sources.soak import ORIGINS, found_in

import manifestcommit as mc

# A process that dies at the n-th request that changes the store, before or after it.
CODE = """
import os, signal, sys
import manifestcommit as mc
from manifestcommit.store.local import LocalStore

code, table, at, moment = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
count = 0

def dying(name):
    real = getattr(LocalStore, name)
    def call(*given):
        global count
        count += 1
        if count == at and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = real(*given)
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(LocalStore, name, call)

for name in ("put", "put_if_absent", "create_output"):
    dying(name)
mc.load(eval(code), table, max_bytes=1_000_000 if "kafka" in code else 8)  # some chunks of each
"""


def fill(landing: Path, numbers: Sequence[int]) -> None:
    landing.mkdir(exist_ok=True)
    for number in numbers:
        (landing / f"{number}.csv").write_text(f"id\n{number}\n")


def rows(table: Path) -> list[int]:
    return sorted(mc.Table(table).to_arrow().column("id").to_pylist())


def run(*arguments: object) -> int:
    done = subprocess.run([sys.executable, "-c", CODE, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


QUICK, SLOW = ("files", "table"), ("kafka", "postgres", "postgres-slot")


@pytest.mark.parametrize("kind", [*QUICK, *(pytest.param(each, marks=pytest.mark.thorough) for each in SLOW)])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_loader_that_dies_at_any_request_and_is_run_again_loads_each_row_once(tmp_path: Path, kind: str, moment: str) -> None:
    """Each death at a later request than the one before, until one load lives to its end. [LD1] [LD2]"""
    deaths = 0
    with ORIGINS[kind](tmp_path, random.Random(3)) as origin:
        for _ in range(3):
            origin.write()
        expected = origin.expected()
        for at in range(1, 90, 2):
            target = tmp_path / f"t{at}"
            died = run(origin.code, target, at, moment) != 0
            deaths += died
            mc.load(eval(origin.code), target)
            assert found_in(target, origin) == expected, at
            assert mc.Table(target).verify().damages == 0
            if not died:
                break
    assert deaths > 2 and expected.total() > 3


AGAIN = """
import sys
import manifestcommit as mc
for _ in range(3):
    mc.load(mc.sources.files(sys.argv[1], settle="0s"), sys.argv[2], max_bytes=20)
"""


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
