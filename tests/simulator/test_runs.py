"""Many small worlds, each by its seed: whatever the schedule, the faults and the clocks, the table keeps its promises. [IV1]-[IV8]"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.kit.sizes import PROOF, rounds
from tests.simulator.__main__ import CASES, explore
from tests.simulator.exports import run_exports
from tests.simulator.simulator import run_theme
from tests.simulator.themes import THEMES

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(3600)  # in `make proof`
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, rounds(50, 10_000)), marks=pytest.mark.thorough)], ids=["first", "more"])
@pytest.mark.parametrize("theme", sorted(THEMES))
def test_no_schedule_and_no_fault_breaks_a_promise(theme: str, seeds: range) -> None:
    """[IV1]-[IV8] [RD1]-[RD3] [GC3]-[GC8] [CM1]-[CM6] [AB3]-[AB6] [CF13] [WM2] [WM5]"""
    outcomes = set()
    for seed in seeds:
        run = run_theme(theme, seed)
        assert run.violation is None, f"theme {theme}, seed {seed}: {run.violation}\n{run.trace}"
        outcomes |= {each.outcome for each in run.history}
    assert "committed" in outcomes and outcomes & {"refused", "unknown"}, (
        "nothing was committed, or nothing went wrong: the theme says nothing"
    )


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", sorted(CASES))
def test_no_schedule_of_a_small_world_breaks_a_promise(case: str) -> None:
    """All of them, up to so many switches; the more actors, the more schedules. [IV1]-[IV8]"""
    switches = 2 if case.startswith("two ") and "gc" not in case else 1
    done = explore(case, switches=switches + PROOF)
    assert done.found is None, done.found and f"{done.found.violation}\n{done.found.trace}"
    assert done.schedules > 50, "it was not explored"


@pytest.mark.thorough
def test_the_same_seed_is_the_same_run_in_any_other_interpreter() -> None:
    """A violation that cannot be had again is none. Sets and hashes differ from one interpreter to the next. [IV3]"""
    script = (
        "import hashlib, json, msgspec\n"
        "from tests.simulator.simulator import run_theme\n"
        "from tests.simulator.themes import THEMES\n"
        "runs = [run_theme(theme, seed) for theme in sorted(THEMES) for seed in range(3)]\n"
        "print(json.dumps([hashlib.sha256(msgspec.json.encode(run)).hexdigest() for run in runs]))\n"
    )
    told = []
    for hashes in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(REPO)}
        told.append(json.loads(subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout))
    assert told[0] == told[1] and len(set(told[0])) == len(told[0])


@pytest.mark.thorough
@pytest.mark.parametrize("theme", ["gc", "recoverable", "tight"])
def test_a_run_is_had_again_by_its_choices_alone(theme: str) -> None:
    """[IV3]"""
    for seed in range(5):
        run = run_theme(theme, seed)
        again = run_theme(theme, given=run.choices)
        assert (again.trace, again.choices) == (run.trace, run.choices)


@pytest.mark.thorough
def test_the_history_tells_what_each_actor_was_told_and_in_which_order() -> None:
    """What the checker judges. [IV2] [IV4]"""
    seeds = {"everything": 60, "phases": 5}  # few histories of everything have a job that is aborted after it was prepared
    history = [each for theme, most in seeds.items() for seed in range(most) for each in run_theme(theme, seed).history]
    assert all(each.end is not None for each in history if each.outcome in ("committed", "already", "refused", "read"))
    assert any(each.end is None for each in history), "nobody died"
    assert {"publish", "prepare", "commit", "abort", "gc", "read", "tag", "rollback", "rewind"} <= {each.name for each in history}
    assert {each.outcome for each in history} == {"committed", "already", "refused", "unknown", "read", "failed"}
    assert any(each.process.endswith(".2") for each in history), "nobody began anew after a death"
    alone = [each for each in history if each.process == "setup.1"]
    assert all(one.begin < (one.end or 0) for one in alone) and any(each.items for each in history if each.name == "read")


# --- exporters beside jobs and gcs --------------------------------------------------------------------------------------
@pytest.mark.thorough
@pytest.mark.timeout(3600)  # in `make proof`
def test_no_schedule_and_no_fault_breaks_an_export() -> None:
    """[EX1] [EX2] [EX4] [EX5]"""
    shown = Counter[str]()
    seeds = rounds(2, 2_000)
    for seed in range(seeds):
        run, reader = run_exports(seed)
        assert run.violation is None, f"seed {seed}: {run.violation}\n{run.trace}"
        reader.check_end()
        shown.update(reader.shown)
    assert min(shown["iceberg"], shown["delta"]) > 3 * seeds, shown
