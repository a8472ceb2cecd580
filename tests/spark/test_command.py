"""A command that needs Spark says so, and Spark itself is quiet unless -v is given. [SP4]"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import manifestcommit as mc

REPO = Path(__file__).resolve().parents[2]
STARTING = "manifestcommit: starting a Spark session, which takes seconds"


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    mc.write(pa.table({"a": [1, 2]}), folder / "t")
    environment = {**os.environ, "PYTHONPATH": str(REPO), "PYSPARK_PYTHON": sys.executable}
    given = [sys.executable, "-m", "manifestcommit", arguments[0], str(folder / "t"), *arguments[1:]]
    return subprocess.run(given, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.thorough
def test_a_command_says_that_it_starts_spark_and_spark_says_nothing(tmp_path: Path) -> None:
    """One line, although the JVM, its logger and pyspark have more to say."""
    done = command(tmp_path, "delete", "--where", "pmod(a, 2) = 0", "--yes")
    assert (done.returncode, done.stderr) == (0, f"{STARTING}\n")
    assert done.stdout == "deleted 1 row: 0 files removed, 1 rewritten with the 1 row that stays; committed at version 3\n"


@pytest.mark.thorough
def test_spark_is_heard_on_demand(tmp_path: Path) -> None:
    done = command(tmp_path, "delete", "--where", "pmod(a, 2) = 0", "--dry-run", "-v")
    assert done.returncode == 0 and done.stderr.startswith(STARTING) and "log4j" in done.stderr


@pytest.mark.thorough
def test_what_the_jvm_said_is_shown_where_it_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--no-such-option pyspark-shell")
    done = command(tmp_path, "delete", "--where", "pmod(a, 2) = 0", "--dry-run")
    assert done.returncode != 0 and "no-such-option" in done.stderr
