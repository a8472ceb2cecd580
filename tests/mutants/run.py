"""A copy of the tree in which one safeguard at a time is taken out, and its tests are run. Nothing is changed in the tree itself."""

import compileall
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

from tests.mutants.mutant import REPO, Mutant, taken_out
from tests.simulator.simulator import Run, run_theme

SEEDS = 10_000  # in how many of them the simulator has to find what it finds alone
TEST_S = 900  # a test that takes longer is stopped, and counts as no answer
CONTROL_S = 7200  # all tests of all mutants
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "artifacts", "results", "build", "dist")
_FAILED = re.compile(r"^(tests/.+?) FAILED\b", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a mutant. killed_by: the first test that failed, None: it survived all; seed: with which the simulator found it;
    trouble: where its tests could not be run."""

    mutant: Mutant
    killed_by: str | None = None
    seed: int | None = None
    seconds: float
    trouble: str = ""

    @property
    def killed(self) -> bool:
        return self.killed_by is not None or self.seed is not None


@contextmanager
def scratch_copy(folder: Path) -> Iterator[Path]:
    """A copy of the tree, gone afterwards. Compiled files in it are told stale by content: texts change within a second."""
    root = folder / "tree"
    shutil.copytree(REPO, root, ignore=_LEFT_OUT)
    compileall.compile_dir(root / "manifestcommit", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def judge(root: Path, mutant: Mutant) -> Verdict:
    """Take the safeguard out of the copy, run its tests up to the first that fails, and put it back."""
    began = time.monotonic()
    texts = mutant.applied(root)
    try:
        for path, (_, after) in texts.items():
            (root / path).write_text(after, "utf-8")
        for node in mutant.tests:
            failed, trouble = run_tests(root, [node])
            if failed or trouble:
                return Verdict(mutant=mutant, killed_by=failed, trouble=trouble, seconds=time.monotonic() - began)
        return Verdict(mutant=mutant, seconds=time.monotonic() - began)
    finally:
        for path, (before, _) in texts.items():
            (root / path).write_text(before, "utf-8")


def run_tests(root: Path, nodes: Sequence[str], limit_s: int = TEST_S) -> tuple[str | None, str]:
    """(the first of these tests that fails, None where all pass; why they could not be run, empty where they could)."""
    how = ["-x", "-v", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={root.parent / 'tmp'}"]
    command = [sys.executable, "-m", "pytest", *how]
    env = {**os.environ, "PYTHONPATH": str(root), "PYSPARK_PYTHON": sys.executable, "CI": "1"}
    for name in ("PYTEST_ADDOPTS", "PROOF"):
        env.pop(name, None)
    try:
        done = subprocess.run([*command, *nodes], cwd=root, env=env, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return None, f"no end after {limit_s} s"
    if done.returncode == 0:
        return None, ""
    if done.returncode == 1 and (failed := _FAILED.search(done.stdout)):
        return failed[1], ""
    return None, "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])


def simulate(mutant: Mutant, seeds: int = SEEDS) -> Verdict:
    """Whether the simulator alone misses the safeguard, and with which seed of its theme first."""
    began = time.monotonic()
    found = first_found(mutant, seeds)
    return Verdict(mutant=mutant, seed=None if found is None else found.seed, seconds=time.monotonic() - began)


def first_found(mutant: Mutant, seeds: int) -> Run | None:
    """The first run of the mutant's theme that breaks a rule; None where so many seeds do not."""
    with taken_out(mutant):
        return next((run for seed in range(seeds) if (run := run_theme(mutant.theme, seed)).violation is not None), None)
