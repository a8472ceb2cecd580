"""The package needs no numpy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "integrations" / "aws_lambda" / "tests" / "everything.py"
BLOCKED = "import runpy, sys; sys.modules.update(numpy=None, pandas=None); runpy.run_path(sys.argv[2])"  # None: there is no such module


@pytest.mark.thorough
def test_everything_runs_without_numpy(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", BLOCKED, str(tmp_path / "t"), str(PROGRAM)], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
