"""spec/proof.md names what stands behind each invariant: all of it has to be there, and nothing may be left out. The command counts it."""

import ast
import json
import re

import pytest
from tests.kit.documents import TEST, functions_of, sections
from tests.model.runs import PROPERTY, invariants, load
from tests.model.text import rules
from tests.mutants.mutant import MUTANTS, REPO
from tests.proof import __main__ as command
from tests.proof import measure
from tests.simulator.__main__ import CASES
from tests.simulator.themes import THEMES
from tests.spec.clauses import defined, in_order

PAGE = (REPO / "spec" / "proof.md").read_text("utf-8")
INVARIANTS = sorted(
    (clause for clause in defined((REPO / "spec" / "v1.md").read_text("utf-8")).held if clause.startswith("IV")), key=in_order
)
SECTIONS = [*INVARIANTS, "Beside the invariants"]
QUOTED = re.compile(r"`([^`]+)`")


def entries(text: str) -> dict[str, str]:
    """Kind -> what a section says of it, on one line."""
    parts = re.split(r"^- \*\*(\w+)\.\*\* ", text, flags=re.MULTILINE)
    return {kind: " ".join(said.split()) for kind, said in zip(parts[1::2], parts[2::2], strict=True)}


def of(section: str) -> dict[str, str]:
    return next((entries(text) for heading, text in sections(PAGE).items() if heading.partition(": ")[0] == section), {})


def functions_of_the_simulator() -> set[str]:
    found = set()
    for path in [*(REPO / "manifestcommit" / "testing").rglob("*.py"), *(REPO / "tests" / "simulator").glob("*.py")]:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found |= {node.name, *(f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))}
            elif isinstance(node, ast.FunctionDef):
                found.add(node.name)
    return found


def test_no_invariant_is_left_out() -> None:
    """Of the specification, nor of the model."""
    assert [heading.partition(": ")[0] for heading in sections(PAGE)] == SECTIONS
    assert not {*invariants()} - {name for section in SECTIONS for name in QUOTED.findall(of(section)["Model"])}


@pytest.mark.parametrize("invariant", SECTIONS)
def test_each_is_modelled_simulated_tested_and_guarded(invariant: str) -> None:
    said = of(invariant)
    assert list(said) == ["Model", "Simulator", "Tests", "Mutants"]
    assert set(QUOTED.findall(said["Model"])) & {*invariants(), PROPERTY} or said["Model"].startswith("Not modelled: ")
    assert set(QUOTED.findall(said["Simulator"])) & {*THEMES, *CASES} or "All themes" in said["Simulator"]
    assert len(TEST.findall(said["Tests"])) >= 3 and set(re.findall("\\*([^*]+)\\*", said["Mutants"]))


@pytest.mark.parametrize("invariant", SECTIONS)
def test_the_model_checks_what_the_page_says_and_misses_each_rule_that_it_names(invariant: str) -> None:
    named = set(QUOTED.findall(of(invariant)["Model"]))
    checked = named & {*invariants(), PROPERTY}
    assert named <= checked | rules(), f"the model has no {sorted(named - checked - rules())}"
    broken = {rule: run.expect for run in load() if run.expect is not None for rule in run.off}
    wrong = {rule: broken[rule] for rule in named & rules() if broken[rule] not in checked}
    assert not wrong, f"without them something else breaks: {wrong}"


@pytest.mark.parametrize("invariant", SECTIONS)
def test_the_simulator_has_what_the_page_names(invariant: str) -> None:
    unknown = set(QUOTED.findall(of(invariant)["Simulator"])) - {*THEMES, *CASES} - functions_of_the_simulator()
    assert not unknown


def test_every_test_on_the_page_exists() -> None:
    named = TEST.findall(PAGE)
    missing = sorted({f"{path}::{name}" for path, name in named if name not in functions_of(path)})
    assert len(named) > 40 and not missing, "\n".join(missing)
    assert PAGE.count("::") == len(named), "a test that is not spelled as `tests/file.py::name`"


def test_every_mutant_stands_with_the_invariant_that_it_is_about() -> None:
    assert command.with_mutants(PAGE) == PAGE, "`python -m tests.proof --page` writes it"
    missing = [name for name in MUTANTS if f"*{name}*" not in " ".join(PAGE.split())]
    assert not missing


@pytest.mark.thorough
def test_one_command_tells_all_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with where it is from; nothing is wrong."""
    assert command.main(["--seconds", "4", "--seed", "0", "--json"]) == 0
    told = {each["what"]: each for each in json.loads(capsys.readouterr().out)}
    assert told["specification"]["clauses"] == told["specification"]["cited by tests"] > 150
    assert told["model, small"]["states"] > 100_000 and told["model, small"]["how"].startswith("read from spec/model/figures.json")
    assert told["model, without a rule"]["rules"] == len(rules())
    assert told["simulator"]["histories checked"] == told["simulator"]["schedules"] >= len(THEMES)
    assert told["simulator"]["operations in them"] > len(THEMES) and told["simulator"]["how"].startswith("run now")
    assert told["every schedule with one switch"]["schedules"] > 500
    assert re.fullmatch(r"read from tests/mutants/figures\.json, (noted in commit [0-9a-f]+|of this release)", told["mutants"]["how"])
    assert told["mutants"]["safeguards taken out"] == told["mutants"]["killed by tests"] == len(MUTANTS)
    assert told["fuzzing"]["hostile objects"] >= 1
    assert all(each["how"] and not each["wrong"] for each in told.values())


def test_what_does_not_hold_is_told_by_the_exit_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(measure, "recorded", lambda: {"fence": {"test": MUTANTS["fence"].tests[0]}})
    counts = [*measure.mutants()]
    assert counts[0].figures["killed by tests"] == 1 and "look above" in counts[0].wrong[0]
    assert counts[1].figures["last seed"] == 0 and "fence" in counts[1].wrong[0]
    monkeypatch.setattr(command, "_counts", lambda *_, **__: iter(counts))
    assert command.main(["--quick"]) == 1
    assert "WRONG: not killed by a test: " in capsys.readouterr().out
