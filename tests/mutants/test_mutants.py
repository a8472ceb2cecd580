"""The list of safeguards is of the package as it is, and what takes them out works. [IV1]-[IV10]

All of them are run by `make proof`; here the list is checked whole, and a few are run.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kit.documents import functions_of
from tests.mutants.__main__ import recorded
from tests.mutants.mutant import MUTANTS, REPO, SIMULATED, Edit, Mutant, changed_functions, read_table, taken_out
from tests.mutants.run import SEEDS, judge, scratch_copy
from tests.simulator.simulator import run_theme
from tests.simulator.themes import THEMES
from tests.spec.clauses import defined

from manifestcommit.operations import gc
from manifestcommit.protocol import conflict

HELD = defined((REPO / "spec" / "v1.md").read_text("utf-8")).held
RULES = "manifestcommit/protocol/conflict.py"
INVARIANTS = {clause for clause in HELD if clause.startswith("IV")}


@pytest.mark.thorough
def test_what_is_taken_out_is_there_once_and_leaves_a_program() -> None:
    """Whatever does not: the functions that are changed are compiled, and of several edits the whole modules."""
    wrong = {}
    for each in MUTANTS.values():
        try:
            for path, (before, after) in each.applied(REPO).items():
                start, end = each.edits[0].span(before) if len(each.edits) == 1 else (0, len(before))
                text = after[start : end + len(after) - len(before)]
                compile(f"if True:\n{text}" if text.startswith(" ") else text, path, "exec")
                if after == before or (each.theme and not changed_functions(before, after)):
                    wrong[each.name] = "nothing is changed, or no function, and the simulator can exchange only these"
        except (SyntaxError, ValueError) as error:
            wrong[each.name] = str(error)
    assert not wrong


def test_an_edit_is_of_one_function_however_its_lines_are_broken() -> None:
    module = "def f():\n    if a:\n        g(\n            1,\n            2,\n        )\n\n\ndef h():\n    g(1, 2)\n"
    edit = Edit(file="x.py", where="f", old="g(1, 2)", new="g(2)\ng(1)")
    assert edit.applied(module) == "def f():\n    if a:\n        g(2)\n        g(1)\n\n\ndef h():\n    g(1, 2)\n"
    for wrong in (replace(edit, where=""), replace(edit, where="i"), replace(edit, old="g(3)"), replace(edit, old="g(1")):
        with pytest.raises(ValueError, match=r"x\.py"):
            wrong.applied(module.replace("1,", "12,") if wrong.old == "g(1" else module)


@pytest.mark.parametrize("line", ["no head", "name [CM1] why\n  by a.py::test", "name [CM1] why\n  in a.py f: x\n  by a.py::test"])
def test_a_record_of_another_form_is_told(line: str) -> None:
    with pytest.raises(ValueError, match="not a mutant of three lines"):
        read_table(line)


@pytest.mark.thorough
def test_their_tests_and_clauses_are_there() -> None:
    nodes = {node.partition("[")[0]: name for name, each in MUTANTS.items() for node in each.tests}
    missing = {name: node for node, name in nodes.items() if node.partition("::")[2] not in functions_of(node.partition("::")[0])}
    assert not missing, "these tests are not there"
    assert not [name for name, each in MUTANTS.items() if not each.tests or not each.clauses or set(each.clauses) - HELD]
    assert {each.invariant for each in MUTANTS.values()} <= {*INVARIANTS, ""} and {each.theme for each in MUTANTS.values()} <= {*THEMES, ""}


@pytest.mark.thorough
def test_every_invariant_is_held_up_by_a_safeguard_of_the_list() -> None:
    assert {each.invariant for each in MUTANTS.values()} >= INVARIANTS
    rules = {rule.__name__ for of_kind in conflict.RULES.values() for rule in of_kind}
    texts = [each.applied(REPO)[RULES] for each in MUTANTS.values() if RULES in each.files]
    changed = {name for before, after in texts for name in changed_functions(before, after)}
    assert rules <= changed, f"rules of section 8 that are never taken out: {sorted(rules - changed)}"


def test_all_have_been_killed_by_the_tests_and_the_protocols_by_the_simulator() -> None:
    """What the last run of all of them has found. `python -m tests.mutants --record`, and the same with `--simulator`."""
    figures = recorded()
    assert not {member for each in figures.values() for member in each} - {"test", "seed"}, "no commit: a rebase changes its id"
    assert {name for name, each in figures.items() if "test" in each} == MUTANTS.keys()
    assert {name for name, each in figures.items() if "seed" in each} == SIMULATED.keys()
    assert all(int(str(each["seed"])) < SEEDS for each in figures.values() if "seed" in each)
    unlisted = {
        name: each["test"] for name, each in figures.items() if str(each["test"]).partition("[")[0] not in _functions(MUTANTS[name])
    }
    assert not unlisted, "killed by tests that are not listed for it by now"


def _functions(each: Mutant) -> set[str]:
    return {node.partition("[")[0] for node in each.tests}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("copy")
    with scratch_copy(folder) as root:
        yield root
    assert not list(folder.glob("tree*"))


@pytest.mark.thorough
def test_a_safeguard_that_is_gone_is_killed_and_one_that_nobody_misses_survives(root: Path) -> None:
    (harmless,) = read_table(
        "no safeguard [IV1 CM4] Nothing.\n"
        "  in format/entries.py: Row bitmaps: which → Bitmaps: which\n"
        "  by format/test_row_bitmap.py::test_nothing_removed_is_the_empty_text\n"
    )
    before = (root / "manifestcommit/protocol/conflict.py").read_text("utf-8")
    for name in ("filled", "partitioning"):
        killed = judge(root, MUTANTS[name])
        assert killed.killed_by is not None and killed.killed_by.startswith(MUTANTS[name].tests[0])
        assert (root / "manifestcommit/protocol/conflict.py").read_text("utf-8") == before, "the copy was not restored"
    survived = judge(root, harmless)
    assert not survived.killed and not survived.trouble


@pytest.mark.thorough
def test_tests_that_can_not_be_run_kill_nothing(root: Path) -> None:
    (broken,) = read_table(
        "breaks the import [IV1 CM4] Nothing is tested then.\n"
        "  in format/entries.py: from __future__ import annotations → from __future__ import annotations\\nimport no_such_module\n"
        "  by format/test_row_bitmap.py::test_nothing_removed_is_the_empty_text\n"
    )
    verdict = judge(root, broken)
    assert not verdict.killed and "No module named 'no_such_module'" in verdict.trouble


def test_functions_are_exchanged_for_everyone_who_has_imported_them_and_come_back() -> None:
    mine = vars(gc)["commit"]  # as it was imported there
    before = mine.__code__
    with taken_out(MUTANTS["conflict told"]):
        assert mine.__code__ is not before
        assert run_theme("appends", 1).violation is None
    assert mine.__code__ is before
    with pytest.raises(ValueError, match="not changed inside of a function"), taken_out(MUTANTS["409"]):
        pass
