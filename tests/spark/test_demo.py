"""`make demo` ends well: a year of flights with crashes, reruns and races, every flight once; then three tables that have a
month in all of them or in none; then files that loaders which die load once each. [IV1] [MT1] [LD1]"""

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.thorough
def test_every_check_of_the_demo_holds() -> None:
    command = [sys.executable, "-m", "examples.flights"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "checks failed" not in done.stdout and done.stdout.count("  ok  ") > 20
    assert done.stdout.count(" is killed ") == 5 and "ok  a reader of all tables sees all of it" in done.stdout
    assert done.stdout.count(" dies\n") == 8 and "ok  every flight is there once, 51,954" in done.stdout
