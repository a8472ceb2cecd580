"""Which clauses spec/v1.md defines, and who cites them.

A clause is defined by a line that begins `**[XX1]**`, or `**[XX1] (planned)**` for what this release does not do yet.
One that reads `**[XX1]** Withdrawn …` keeps its id and is a rule no more: nothing cites it.
It is cited as `[XX1]`, also in a list `[XX1, XX2]`; a range `[XX1]-[XX5]` cites every number between its ends.
"""

import ast
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CLAUSE = r"[A-Z]{2}[1-9][0-9]?[a-z]?"
DEFINITION = re.compile(rf"^\*\*\[({CLAUSE})\](?P<planned> \(planned\))?\*\*(?P<withdrawn> Withdrawn )?", re.MULTILINE)
CITATION = re.compile(rf"\[({CLAUSE}(?:, {CLAUSE})*)\](?:\s?[-–]\s?\[({CLAUSE})\])?")

# These talk about clauses as such, and their examples are not citations.
ABOUT_CLAUSES = ("tests/spec/test_clauses.py", "tests/spec/clauses.py", "tests/conftest.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses:
    """What the specification defines. held: promised today; planned: not yet; withdrawn: no more; twice: ids defined more than once."""

    held: frozenset[str]
    planned: frozenset[str]
    withdrawn: frozenset[str]
    twice: tuple[str, ...]


def defined(spec: str) -> Clauses:
    """The clauses that the text of a specification defines."""
    found = [(m.group(1), m["planned"], m["withdrawn"]) for m in DEFINITION.finditer(spec)]
    ids = [name for name, _, _ in found]
    return Clauses(
        held=frozenset(name for name, planned, withdrawn in found if not planned and not withdrawn),
        planned=frozenset(name for name, planned, _ in found if planned),
        withdrawn=frozenset(name for name, _, withdrawn in found if withdrawn),
        twice=tuple(sorted({name for name in ids if ids.count(name) > 1})),
    )


def cited(text: str) -> frozenset[str]:
    """Every clause id that the text cites."""
    found: set[str] = set()
    for match in CITATION.finditer(text):
        found.update(match.group(1).split(", "))
        if match.group(2):
            found.update(_between(match.group(1).split(", ")[-1], match.group(2)))
    return frozenset(found)


def _between(first: str, last: str) -> Iterator[str]:
    if first[:2] != last[:2]:
        raise ValueError(f"a range of clauses has one prefix, not [{first}]-[{last}]")
    for number in range(int(first[2:]), int(last[2:]) + 1):
        yield f"{first[:2]}{number}"


def docstrings(source: str) -> str:
    """The docstrings of a module and of all that it defines, one after another."""
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return "\n".join(ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, nodes))


def cited_by_tests(repo: Path) -> Mapping[str, frozenset[str]]:
    """Clause id → the test files that cite it, anywhere in their text."""
    return _citations(repo, ["tests"], lambda text: text)


def cited_by_code(repo: Path) -> Mapping[str, frozenset[str]]:
    """Clause id → the modules of the packages that cite it in a docstring."""
    return _citations(repo, ["manifestcommit", "pyspark_manifestcommit"], docstrings)


def _citations(repo: Path, folders: list[str], part: Callable[[str], str]) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for folder in folders:
        for path in sorted((repo / folder).rglob("*.py")):
            name = path.relative_to(repo).as_posix()
            if name not in ABOUT_CLAUSES:
                for clause in cited(part(path.read_text("utf-8"))):
                    found[clause].add(name)
    return {clause: frozenset(names) for clause, names in found.items()}


def report(repo: Path) -> list[str]:
    """What the end of a test run says about the specification."""
    spec = repo / "spec" / "v1.md"
    if not spec.exists():
        return ["spec: spec/v1.md is not there"]
    clauses, tests = defined(spec.read_text("utf-8")), cited_by_tests(repo)
    held = clauses.held & tests.keys()
    line = f"spec: {len(clauses.held | clauses.planned)} clauses, {len(held)} held by tests, {len(clauses.planned)} planned"
    lines = [line + (": " + " ".join(sorted(clauses.planned, key=in_order)) if clauses.planned else "")]
    if missing := clauses.held - held:
        lines.append(f"spec: {len(missing)} held by no test: " + " ".join(sorted(missing, key=in_order)))
    return [part for line in lines for part in textwrap.wrap(line, 120, subsequent_indent="      ")]


def in_order(clause: str) -> tuple[str, int, str]:
    """Sorts XX2 before XX10."""
    digits = re.sub(r"\D", "", clause)
    return clause[:2], int(digits), clause
