"""Hostile metadata never gets past the library's own errors. [OB4] [SE2]"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz import run
from tests.fuzz.figures import page, recorded
from tests.fuzz.run import EVERY, KINDS, fuzz
from tests.kit.sizes import rest_thorough, rounds

from manifestcommit.format import codec


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", rest_thorough([range(2), range(2, rounds(12, 2_000))], range(2)), ids=["first", "more"])
def test_hostile_objects_are_refused_by_name(kind: str, seeds: range) -> None:
    findings = {finding.place: (seed, finding.text) for seed in seeds for finding in fuzz(seed, [kind])}
    assert not findings, "\n".join(f"seed {seed}: {text}" for seed, text in findings.values())


@pytest.mark.thorough
def test_parquet_that_lies_ends_no_process() -> None:
    """[AF3] [SE2] Footers and pages of data files and manifests: no abort, no hang, no gigabyte. In a process that can be forked."""
    asked = ["--target", "parquet", "--seed", "1", "--rounds", str(rounds(8, 2_000)), "--json"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-m", "tests.fuzz", *asked], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["parquet"]
    assert told["rounds"] == rounds(8, 2_000) and not told["untyped"] + told["aborted"] + told["hung"]
    assert 0 < told["peak_mib"] < 1024


def test_the_page_shows_the_figures_that_were_recorded() -> None:
    """[OB4] [AF3] Of every kind of object, none of which was read with an untyped error, an abort, a hang or a gigabyte."""
    figures = recorded()
    assert page(figures) in (Path(__file__).parents[2] / "spec" / "proof.md").read_text("utf-8")
    assert set(figures) == set(EVERY)
    for each in figures.values():
        assert each["rounds"] and not each["untyped"] + each["aborted"] + each["hung"] and each["peak_mib"] < 1024


_DYING = """
import os
from tests.fuzz.child import each_in_child

def work(seed):
    if seed == 2:
        os.abort()
    while seed == 4:
        pass
    return [("error", "place", str(len(b"x" * 300_000_000)))] if seed == 5 else []

for seed, ended in each_in_child(work, range(1, 7), 1.0):
    print(seed, ended.how, len(ended.said), ended.peak_bytes > 300_000_000)
"""


@pytest.mark.thorough
def test_a_child_that_dies_or_never_ends_is_seen() -> None:
    """The fuzzer sees what it is there for, of each round by itself, and goes on with the next one. [OB4]"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", _DYING], env=env, capture_output=True, text=True)
    seen = ["1 done 0 False", "2 aborted 0 False", "3 done 0 False", "4 hung 0 False", "5 done 1 True", "6 done 0 False"]
    assert done.stdout.splitlines() == seen, done.stderr


@pytest.mark.thorough
def test_a_reader_that_trusts_paths_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer sees what it is there for: without the check of a snapshot's rules hostile members get through."""
    monkeypatch.setattr(codec, "_check", lambda *_: None)
    assert any(True for seed in range(300) for _ in fuzz(seed, ["head"]))
    assert run._table().store.get("_manifest/hint")
