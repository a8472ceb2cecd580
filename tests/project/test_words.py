"""Docstrings, README and specification use the field's terms, and name modules that exist.

A reader who knows Delta, Iceberg or Spark searches for those words. Every pattern below once stood for one of them here.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]
PACKAGE = REPO / "manifestcommit"

# Pattern -> what to write instead.
WORDS: Mapping[str, str] = {
    r"merely exist": "files that no snapshot lists are invisible",
    r"no clock to trust|takes? a clock's word": "correctness does not depend on clocks",
    r"whole, once,? or not at all": "atomic, exactly-once",
    r"where the table stands|stands elsewhere": "the current watermark",
    r"double the rows|there twice|lose and double": "duplicate rows",
    r"drops? the keys? of that work": "invalidates idempotency keys",
    r"engines that decide elsewhere": "external coordinators",
    r"every(?:one|body) is told the same": "all callers see one result; the call is idempotent",
    r"once the way is free": "once the conflict is resolved",
    r"without a word": "silently ignores it",
    r"takes? (?:it )?from no session|takes no filters from": "filter pushdown is disabled",
    r"of no task are two": "at most one attempt of each task is committed",
    r"tak(?:e|es|en|ing) (?:in its|its|the) files in\b|take in its files": "register its files",
    r"compaction is (?:no data|none)": "compaction commits are skipped; compaction does not conflict",
    r"written anew": "rewritten (copy-on-write)",
    r"left as (?:it is|they are) and told": "skipped and reported",
    r"creators are raced": "concurrent put-if-absent probes",
    r"what is dead now": "orphan files are removed",
    r"begun anew": "restarted",
    r"whoever wins next": "group commit: the next committer includes it",
    r"who lost reads what won": "optimistic concurrency: rebase and retry",
    r"lost answer is settled": "a lost response is resolved by a re-put and a read",
    r"is partitioned by nothing": "is not partitioned",
}
# The same for messages of errors, logs and the command line, and for docstrings.
OF_MESSAGES: Mapping[str, str] = {
    r"\bg(?:ives?|ave|iven) (?:\w+ ){0,2}up\b": "aborts, aborted",
    r"\bstands?\b(?! alone)|\bstood\b": "is, is at, is listed, belongs",
    r"\bway out\b": "remedy",
    r"\btold\b(?![(:])|\btells? (?:apart|more|its|that|which|what|how)\b|\btell (?:\w+ ){0,2}apart\b": "says, reports, shows; distinguish",
    r"\bwhoever\b": "name who it is",
    r"\b(?:was|is|were|are) born\b": "began",
    r"\banew\b": "again, rewritten",
    r"(?<!one )\bpass(?:ed|es)? (?:\w+ )?over\b": "skipped",
    r"\btaken? away\b": "removed",
    r"\blies? between\b": "the rows between",
    r"(?<!there )\bis none[.;]?$": "say what it is, and what was expected",
    r"\bracing\b": "concurrent",
}
# Of texts in small letters, which is quicker than to ignore their case.
PATTERNS = {re.compile(pattern): better for pattern, better in WORDS.items()}
MESSAGE_PATTERNS = PATTERNS | {re.compile(pattern): better for pattern, better in OF_MESSAGES.items()}


def docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text in one line) of every docstring of a module, its own first."""
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, " ".join(text.split())


def paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text in one line) of every paragraph of a page."""
    line = 1
    for text in re.split(r"(\n\s*\n)", path.read_text("utf-8")):
        yield line, " ".join(text.split())
        line += text.count("\n")


def messages(module: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of every text of a module that is no docstring: messages of errors, logs and the command line, mostly."""
    waiting: list[ast.AST] = [module]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        else:
            documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None
            waiting += [child for child in ast.iter_child_nodes(node) if not (documented and child is node.body[0])]


def of_package() -> Iterator[tuple[str, str]]:
    """(where, text) of the docstrings and messages of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ast.parse(path.read_text("utf-8"))
        for line, text in (*docstrings(module), *messages(module)):
            yield f"{path.relative_to(REPO)}:{line}", text


def of_pages() -> Iterator[tuple[str, str]]:
    """(where, text) of the README, the documentation and the specification."""
    for path in [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md")), *sorted((REPO / "spec").glob("*.md"))]:
        for line, text in paragraphs(path):
            yield f"{path.relative_to(REPO)}:{line}", text


def judged(where: str, text: str, patterns: Mapping[re.Pattern[str], str]) -> Iterator[str]:
    lower = text.lower()
    for pattern, better in patterns.items():
        for match in pattern.finditer(lower):
            yield f"{where}: {match[0]!r}; better: {better}"


@pytest.mark.parametrize(("texts", "patterns"), [(of_pages, PATTERNS), (of_package, MESSAGE_PATTERNS)])
def test_pages_docstrings_and_messages_use_the_fields_terms(texts: Any, patterns: Mapping[re.Pattern[str], str]) -> None:
    problems = [problem for where, text in texts() for problem in judged(where, text, patterns)]
    assert not problems, "\n".join(["", *problems])


@pytest.mark.parametrize("text", ["Everyone is told the same.", "The files are Written Anew.", "It drops it without a word."])
def test_an_old_phrase_is_found(text: str) -> None:
    assert list(judged("here", text, PATTERNS))


@pytest.mark.parametrize(
    "text",
    [
        "the job is given up", "it stands at 5", "the id stands with two operations", "as was told", "Whoever wins", "was born at 3",
        "files are passed over", "5 is none.",
    ],
)  # fmt: skip
def test_an_old_word_of_a_message_is_found(text: str) -> None:
    assert list(judged("here", text, MESSAGE_PATTERNS)) and not list(judged("here", text, PATTERNS))


def test_messages_are_found_and_docstrings_are_not_among_them() -> None:
    module = ast.parse('"""Module."""\ndef f(x):\n    """Docs."""\n    raise ValueError(f"a {x} " "b")\nLOG = "c"\n')
    assert {text for _, text in messages(module)} == {"a {} b", "c"}
