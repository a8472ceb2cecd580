"""The model of the protocol holds, each rule in it is needed, and it says nothing of the specification or the package that is not so.

TLC checks the invariants of section 13 in every state that the processes of a configuration can come to. [IV1]-[IV4] [IV6]-[IV9]
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.kit.sizes import PROOF, rest_thorough
from tests.model.__main__ import main
from tests.model.pages import readme, recorded
from tests.model.runs import MODULES, PROPERTY, SPEC, Run, invariants, load, uncovered
from tests.model.text import actions, comments, functions, is_there, modules, rules
from tests.model.tlc import Verdict, check
from tests.spec.clauses import cited, defined

REPO = Path(__file__).resolve().parents[2]
RUNS = load()
CLAUSES = defined((REPO / "spec" / "v1.md").read_text("utf-8"))


def named(run: Run) -> str:
    return run.name


def soonest(runs: Sequence[Run], number: int) -> Sequence[Run]:
    """Of each module those that TLC needs the fewest states for."""
    states = {name: int(figure["states"]) for name, figure in recorded()["test"].items()}
    small = sorted(runs, key=lambda run: states[run.name])
    return [run for module in MODULES for run in [each for each in small if each.module == module][:number]]


HOLDING = [run for run in RUNS if run.expect is None and "test" in run.sizes]
BREAKING = [run for run in RUNS if run.expect is not None]


def check_figures(verdict: Verdict) -> None:
    """TLC finds the same states in every run: different ones mean a different model than the page shows.

    Only not where what must come to pass does not: TLC looks for that at intervals of time, so the number of states depends on the machine.
    """
    if verdict.violated == PROPERTY:
        return
    figure = recorded()[verdict.size].get(verdict.run.name, {})
    assert figure.get("states") == verdict.states, "python -m tests.model --record notes what is found now"
    if verdict.violated is None:  # how deep TLC says that it was when it was stopped depends on when it is asked
        assert figure["depth"] == verdict.depth, "python -m tests.model --record notes what is found now"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("run", rest_thorough(HOLDING, *soonest(HOLDING, 1)), ids=named)
def test_nothing_is_lost_doubled_or_made_up_whatever_meets_whatever(run: Run) -> None:
    verdict = check(run, "test")
    assert verdict.violated is None, f"{run.why}\n{verdict.violated} does not hold:\n{verdict.trace}"
    check_figures(verdict)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("run", rest_thorough(BREAKING, *soonest(BREAKING, 2)), ids=named)
def test_without_its_rule_the_damage_is_found(run: Run) -> None:
    verdict = check(run, "test")
    assert verdict.violated == run.expect, f"{run.why}\nwithout {run.off}, {run.expect} was to break, not {verdict.violated}"
    check_figures(verdict)


@pytest.mark.proof
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("run", [run for run in RUNS if run.expect is None], ids=named)
def test_nothing_is_lost_doubled_or_made_up_in_larger_tables(run: Run) -> None:
    verdict = check(run, "large")
    assert verdict.violated is None, f"{run.why}\n{verdict.violated} does not hold:\n{verdict.trace}"


# --- what the model says of itself ---------------------------------------------------------------------------------------
def test_every_pair_of_features_meets_in_a_configuration() -> None:
    assert uncovered(RUNS, "test") == []


def test_every_rule_has_a_configuration_that_does_without_it() -> None:
    off = {rule for run in RUNS for rule in run.off}
    assert off == rules(), "a rule that nothing shows to be needed, or one that the model does not know"
    assert all(run.off for run in RUNS if run.expect is not None)
    assert not any(run.off for run in RUNS if run.expect is None), "what holds is to hold with all rules on"


def test_every_invariant_is_checked_and_names_its_clause() -> None:
    named = {(module, name) for module in {run.module for run in RUNS} for name in invariants(module)}
    comes_to_pass = {(module, PROPERTY) for module in ("Table", "Joint")}
    for module, name in {*named, *comes_to_pass}:
        text = modules()[module]
        above = text[: text.index(f"\n{name} ==")].rsplit("\n\n", 1)[-1]
        assert cited(above), f"the comment above {name} names no clause"
    assert {(run.module, run.expect) for run in RUNS if run.expect} <= {*named, *comes_to_pass}


def test_every_step_names_its_clause_and_the_function_that_takes_it() -> None:
    found = actions()
    assert len(found) >= 15
    silent = {name for name, comment in found.items() if not cited(comment) or not functions(comment)}
    # Steps of nobody's program: a create that arrives late, a commit whose content does not matter, what a wrong program would do, and a
    # person who removes a root.
    assert silent <= {"Create", "Arrive", "Overtake", "Misjudge", "BeginRemoving", "RemoveNext"}


@pytest.mark.parametrize("module", sorted(modules()))
def test_the_model_names_only_clauses_and_functions_that_exist(module: str) -> None:
    """A function may be missing as long as a clause beside it is planned."""
    for comment in comments(modules()[module]):
        clauses = cited(comment)
        assert clauses <= CLAUSES.held | CLAUSES.planned, f"{module}: {comment}"
        missing = [name for name in functions(comment) if not is_there(name)]
        assert not missing or clauses & CLAUSES.planned, f"{module} names {missing}, which the package does not have: {comment}"


def test_the_page_of_the_model_shows_its_configurations() -> None:
    text = (SPEC / "README.md").read_text("utf-8")
    assert readme(text, RUNS) == text, "spec/model/README.md is out of date: python -m tests.model.pages rewrites its tables"


def test_the_command_tells_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "own-job-not-looked-for"]) == 0
    _, told, last = capsys.readouterr().out.splitlines()
    assert told.endswith("  breaks CommittedOnce") and last == "1 configurations, 0 not as expected"


def test_the_command_refuses_a_configuration_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--only", "no such thing"])
    assert caught.value.code == 2 and "no such thing" in capsys.readouterr().err


if PROOF:

    def test_the_larger_tables_have_every_pair_of_features_too() -> None:
        assert uncovered(RUNS, "large") == []
