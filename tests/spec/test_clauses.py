"""The specification and the tests hold each other: no clause without a test, no citation of what is not there."""

import re
from pathlib import Path

import pytest
from tests.spec.clauses import cited, cited_by_code, cited_by_tests, defined, docstrings, in_order, report

REPO = Path(__file__).resolve().parents[2]
SPEC = REPO / "spec" / "v1.md"

SAMPLE = """
# Part

**[XX1]** A store MUST do this; see [XX2].
**[XX2] (planned)** And later that.

Text that mentions **[XX9]** in the middle of a line defines nothing.

**[XX10]** The tenth.

**[XX11]** Withdrawn in favour of [XX1].
"""


def listed(clauses: dict[str, frozenset[str]]) -> str:
    return "\n".join(f"  [{name}] {', '.join(sorted(clauses[name]))}" for name in sorted(clauses, key=in_order))


# --- the reader of clauses itself ---------------------------------------------------------------------------------------
def test_a_definition_is_a_line_that_begins_with_the_clause() -> None:
    clauses = defined(SAMPLE)
    assert clauses.held == {"XX1", "XX10"}
    assert clauses.planned == {"XX2"}
    assert clauses.withdrawn == {"XX11"}
    assert clauses.twice == ()


def test_a_clause_defined_twice_is_seen() -> None:
    assert defined(SAMPLE + "**[XX1] (planned)** again\n").twice == ("XX1",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("holds [XX1].", {"XX1"}), ("[XX1, XX2]", {"XX1", "XX2"}), ("[XX1] [XX12]", {"XX1", "XX12"}),
        ("calls [XX1]-[XX4]", {"XX1", "XX2", "XX3", "XX4"}), ("calls [XX1]–[XX2]", {"XX1", "XX2"}),
        ("rows[0] list[ABC] dict[XX] [x1] XX1", set()),
    ],
)  # fmt: skip
def test_citations_are_found(text: str, expected: set[str]) -> None:
    assert cited(text) == expected


def test_code_cites_in_docstrings_only() -> None:
    source = '"""Module. [XX1]"""\n\ndef f():\n    """Does. [XX2]"""\n    x = "[XX3]"  # [XX4]\n\nclass C:\n    """Is. [XX5]"""\n'
    assert cited(docstrings(source)) == {"XX1", "XX2", "XX5"}


def test_the_summary_counts_held_untested_and_planned_clauses(tmp_path: Path) -> None:
    (tmp_path / "spec").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "spec" / "v1.md").write_text(SAMPLE, "utf-8")
    (tmp_path / "tests" / "test_x.py").write_text('def test_x():\n    """It does. [XX1]"""\n', "utf-8")
    assert report(tmp_path) == ["spec: 3 clauses, 1 held by tests, 1 planned: XX2", "spec: 1 held by no test: XX10"]


# --- this repository ----------------------------------------------------------------------------------------------------
def test_the_specification_defines_each_clause_once() -> None:
    clauses = defined(SPEC.read_text("utf-8"))
    assert clauses.held, "spec/v1.md defines no clause: is the form of a definition still `**[XX1]**` at a line's beginning?"
    assert not clauses.twice
    bold = set(re.findall(r"\*\*\[([^\]]+)\]", SPEC.read_text("utf-8")))
    every = clauses.held | clauses.planned | clauses.withdrawn
    assert bold <= every, "bold ids that are no definition: not at a line's beginning, or malformed"


def test_every_clause_is_cited_by_a_test() -> None:
    tests = cited_by_tests(REPO)
    missing = sorted(defined(SPEC.read_text("utf-8")).held - tests.keys(), key=in_order)
    assert not missing, "no test cites " + " ".join(f"[{name}]" for name in missing)


def test_only_clauses_that_exist_are_cited_and_by_tests_none_that_is_only_planned() -> None:
    clauses, by_tests = defined(SPEC.read_text("utf-8")), cited_by_tests(REPO)
    unknown = {k: v for k, v in (by_tests | cited_by_code(REPO)).items() if k not in clauses.held | clauses.planned}
    assert not unknown, "spec/v1.md does not define\n" + listed(unknown)
    early = {k: v for k, v in by_tests.items() if k in clauses.planned}
    assert not early, "only planned in spec/v1.md: take the mark away there, or the citation here\n" + listed(early)
