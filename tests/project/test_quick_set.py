"""`make test` leaves out what is marked `thorough`: by that it loses no clause, no safeguard and no part, and does not get empty."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest
from tests.kit.sizes import PROOF
from tests.left_out import CASES, left_out
from tests.mutants.mutant import MUTANTS
from tests.selection import COLLECTED, Collected, collect_all, is_of_everything, not_held, not_killed
from tests.spec.clauses import defined, in_order
from tests.turns import DAY, turn_of, turn_on

REPO = Path(__file__).resolve().parents[2]
KILLERS: dict[str, str] = {
    name: each["test"] for name, each in json.loads((REPO / "tests" / "mutants" / "figures.json").read_text("utf-8")).items()
}
# How many tests there are at the least, and of how many functions of each folder some are quick; what is in the folders named here costs
# the most.
IN_ALL, WITH_SPARK, SHARE = 6300, 110, 0.8
SHARES = {
    "chaos": 0.7, "clients": 0.6, "docs": 0.55, "e2e": 0.1, "fuzz": 0.14, "integrations": 0.5, "mutants": 0.4, "report": 0.75,
    "simulator": 0.5, "sources": 0.7, "spark": 0.35, "stateful": 0.6, "store": 0.75, "transforms": 0.7,
}  # fmt: skip
# These ways of going wrong, and of running, are in the quick set however it is cut.
ALWAYS = (
    "tests/e2e/test_processes.py::test_a_process_that_is_killed_at_any_moment_and_run_again_writes_exactly_once",
    "tests/faults/test_matrix.py::test_a_fault_at_every_create",
    "tests/simulator/test_runs.py::test_no_schedule_and_no_fault_breaks_a_promise",
    "tests/store/test_store.py::",
    "tests/chaos/test_chaos.py::",
    "tests/model/test_model.py::",
    "tests/project/test_quick_set.py::",
    "tests/project/test_architecture.py::",
    "tests/spark/test_attributes.py::test_atomic_task_commit",
    "tests/spark/test_attributes.py::test_atomic_job_commit",
    "tests/spark/write/test_recoverable.py::test_a_killed_driver_and_its_rerun_computes_the_rest",
    "tests/spark/test_s3.py::test_the_whole_circle_in_one_process",
    "tests/spark/test_connect.py::",
)


@pytest.fixture(scope="module")
def tests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Collected]:
    """All tests that there are, whatever this run was asked for."""
    if is_of_everything(request.config):
        return request.config.stash[COLLECTED]
    return collect_all(tmp_path_factory.mktemp("collected"))


def test_every_clause_is_held_by_a_quick_test(tests: Sequence[Collected]) -> None:
    missing = not_held(tests, defined((REPO / "spec" / "v1.md").read_text("utf-8")).held)
    assert not missing, f"only thorough tests cite, in their docstrings: {' '.join(sorted(missing, key=in_order))}"


def test_every_mutant_is_killed_by_a_quick_test(tests: Sequence[Collected]) -> None:
    assert KILLERS.keys() == MUTANTS.keys()
    assert not not_killed(tests, KILLERS), "these mutants would survive `make test`"


def test_the_quick_set_is_most_of_what_there_is(tests: Sequence[Collected]) -> None:
    every, quick = (
        Counter(function.split("/")[1] for function in {each.function for each in tests if each.quick or not only})
        for only in (False, True)
    )
    small = {name: f"{quick[name]} of {every[name]}" for name in every if quick[name] < SHARES.get(name, SHARE) * every[name]}
    assert not small, f"too few are left: {small}"
    assert sum(each.quick for each in tests) >= IN_ALL and sum(each.quick and each.spark for each in tests) >= WITH_SPARK
    nodes = [each.node for each in tests if each.quick]
    assert not [name for name in ALWAYS if not any(node.startswith(name) for node in nodes)]
    assert PROOF or len(nodes) < len(tests), "nothing is left out: is the mark still read?"


def test_of_many_cases_a_few_are_kept_and_those_that_kill_a_mutant() -> None:
    """The same ones in every run; all of them where each looks at another part of the tree."""
    cases = [f"tests/api/test_x.py::test_one[{number}]" for number in range(20)]
    few = [f"tests/api/test_x.py::test_two[{number}]" for number in range(CASES)]
    many = [case.replace("tests/api", "tests/project") for case in cases]
    out = left_out([*cases, *few, *many])
    assert out == left_out([*reversed(cases), *few, *many]) and out < {*cases} and len(out) == len(cases) - CASES
    killers = sorted(node for node in KILLERS.values() if "[" in node and "/spark/" not in node)[:CASES]
    for killer in killers:
        assert killer not in left_out([killer, *(f"{killer.partition('[')[0]}[{number}]" for number in range(1000))])


def runs(target: str) -> list[tuple[str, int]]:
    """The marks that make would run for it, and how many tests have to pass of each."""
    env = {name: text for name, text in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "-n", "--no-print-directory", target]
    said = subprocess.run(command, cwd=REPO, env=env, capture_output=True, text=True, check=True).stdout
    return [(mark, int(least)) for mark, least in re.findall(r'-m pytest (?:-n 3 )?-m "([^"]+)" --at-least (\d+)', said)]


@pytest.mark.parametrize(("target", "mark"), [("test", "not thorough"), ("test-rest", "thorough"), ("test-rest-turn", "thorough")])
def test_make_runs_the_quick_set_and_what_it_leaves_out(target: str, mark: str) -> None:
    """With Spark and without, and each with a number of tests that have to pass."""
    assert sorted(name for name, _ in runs(target)) == [f"not spark and {mark}", f"spark and {mark}"]
    assert all(least > 0 for _, least in runs(target))


def test_every_change_passes_all_tests() -> None:
    assert runs("test-all") == runs("test") + runs("test-rest")
    steps = re.findall(r"^(?:exec )?make (\S+)", (REPO / ".ci" / "run").read_text("utf-8"), re.MULTILINE)
    assert steps == ["test", "docs", "test-turn", "test-rest-turn"]


def in_one_process(folder: Path, program: str) -> str:
    """What a program prints that runs pytest there, perhaps several times."""
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    return subprocess.run([sys.executable, "-c", program], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


def test_a_turn_is_a_part_and_all_turns_are_all(tmp_path: Path) -> None:
    """Each test has one turn, in CI's runs of a part of them, too; what it leaves to other days is said."""
    cases = {f"test_it.py::test_one[{number}]" for number in range(24)}
    (tmp_path / "test_it.py").write_text("import pytest\n\n@pytest.mark.parametrize('n', range(24))\ndef test_one(n):\n    assert n >= 0\n")
    options = ["-v", "-p", "no:cacheprovider", "-p", "tests.turns", "-c", "/dev/null", "--turn", "3"]
    given = [*options, "--rootdir", str(tmp_path), str(tmp_path)]
    days = ("2026-11-26", "2026-11-27", "2026-11-28")
    program = f"import os, pytest\nfor os.environ['MC_TURN_DAY'] in {days}: assert pytest.main({given}) == 0; print('--- next')"
    run: list[str] = []
    for said in in_one_process(tmp_path, program).split("--- next\n")[:-1]:
        run += (found := re.findall(r"^(\S+) PASSED", said, re.MULTILINE))
        assert 3 < len(found) < 15 and f"{24 - len(found)} deselected" in said
        assert "of 3 of the selected tests; the others: MC_TURN_DAY=2026" in said
    assert sorted(run) == sorted(cases)


# --- the guard itself -----------------------------------------------------------------------------------------------------
def case(node: str, clauses: str = "", of_module: str = "", *, quick: bool = True) -> Collected:
    return Collected(node=node, quick=quick, spark=False, clauses=frozenset(clauses.split()), of_module=frozenset(of_module.split()))


RUNS: list[tuple[int, list[str], int]] = [
    *((1, [], 0), (2, [], 1), (2, ["-k", "small"], 0), (1, ["-k", "nosuch"], 5)),
    *((3, ["--turn", "2"], 0), (4, ["--turn", "2"], 1)),  # their shares are 1 and 2
]


def test_a_run_in_which_too_few_have_passed_fails(tmp_path: Path) -> None:
    """Also one of which nearly everything was skipped."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\ndef test_small():\n    assert True\n\n@pytest.mark.skip\ndef test_skipped():\n    assert True\n", "utf-8"
    )
    given = ["-q", "-p", "no:cacheprovider", "-p", "tests.conftest", "--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path)]
    asked = [[*given, "--at-least", str(least), *more] for least, more, _ in RUNS]
    day = next(day for day in ("2026-11-30", "2026-12-01") if turn_on(date.fromisoformat(day), 2) == turn_of("test_it.py::test_small", 2))
    program = f"import os, pytest\nos.environ['{DAY}'] = '{day}'\nprint([int(pytest.main(each)) for each in {asked}])"
    said = in_one_process(tmp_path, program)
    assert said.splitlines()[-1] == str([status for *_, status in RUNS]), said
    assert said.count("1 tests have passed, and these are at least 2") == 2
