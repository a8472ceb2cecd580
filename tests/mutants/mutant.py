"""A safeguard taken out of the package: which text becomes which, what is lost by that, and which tests are there to notice.

The tables of this folder hold them, one in three lines or more:

    name [clauses, and the invariant if there is one; theme THEME; needs server or spark] What comes of it.
      in FILE FUNCTION: old text → new text
      by the tests that are to fail, the likeliest first, ` + ` between them

FILE is below the package, tests below tests/. FUNCTION is that of the file, or `Class.method`, or a class; without it the text stands
outside of both. `\\n` begins a line of the new text, indented like the one in which the old text begins.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal

REPO = Path(__file__).resolve().parents[2]

Needs = Literal["", "server", "spark"]


_HEAD = re.compile(r"(?P<name>[^\[]+) \[(?P<held>[^\]]+)\] (?P<why>.+)")
_EDIT = re.compile(r"  in (?P<file>\S+\.py)(?: (?P<where>[\w.]+))?: (?P<old>.+?) →(?: (?P<new>.*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A text that a function has exactly once, however its lines are broken, and what takes its place. where: the function or class."""

    file: str
    where: str
    old: str
    new: str

    def span(self, text: str) -> tuple[int, int]:
        """Where the function or class begins and ends; ValueError where there is none."""
        if self.where and self.where not in _spans(text):
            raise ValueError(f"{self.file} has no {self.where}")
        return _spans(text)[self.where] if self.where else (0, len(text))

    def applied(self, text: str) -> str:
        """The module's text with it; ValueError where the old text is not there exactly once."""
        start, end = self.span(text)
        found = list(_pattern(self.old).finditer(text, start, end))
        if len(found) != 1:
            raise ValueError(f"{self.file} {self.where} has {len(found)} times {self.old!r}")
        line = text[text.rfind("\n", 0, found[0].start()) + 1 : found[0].start()]
        indent = line[: len(line) - len(line.lstrip())]
        return text[: found[0].start()] + self.new.replace("\n", "\n" + indent) + text[found[0].end() :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """The package without one safeguard. why: what comes of it; invariant: the one that the safeguard holds up, or none of section 13;
    edits: two where a second line would hold the first one's place; tests: those that are to fail, the likeliest first; theme: that of
    the simulator which finds it alone; needs: what its tests need beside this interpreter."""

    name: str
    why: str
    clauses: tuple[str, ...]
    invariant: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    theme: str
    needs: Needs

    @property
    def files(self) -> tuple[str, ...]:
        """Paths in the repository, each once."""
        return tuple(dict.fromkeys(f"manifestcommit/{edit.file}" for edit in self.edits))

    def applied(self, root: Path) -> Mapping[str, tuple[str, str]]:
        """File -> its text before and after; ValueError where an old text is not there exactly once."""
        texts: dict[str, tuple[str, str]] = {}
        for edit in self.edits:
            path = f"manifestcommit/{edit.file}"
            before, text = texts.get(path) or ((root / path).read_text("utf-8"),) * 2
            texts[path] = before, edit.applied(text)
        return texts


def read_table(text: str) -> Sequence[Mutant]:
    """The mutants of a table; ValueError names the line that is none of its forms."""
    found: list[Mutant] = []
    for record in re.split(r"\n(?! |$)", text):
        head, *lines = record.rstrip().split("\n")
        if head.startswith("#"):
            continue
        said, edits = _HEAD.fullmatch(head), [_EDIT.fullmatch(line) for line in lines[:-1]]
        if said is None or not edits or None in edits or not lines[-1].startswith("  by "):
            raise ValueError(f"not a mutant of three lines or more, as tests/mutants/mutant.py says: {record!r}")
        held, *others = said["held"].split("; ")
        words, options = held.split(), dict(each.split(" ", 1) for each in others)
        found.append(
            Mutant(
                name=said["name"],
                why=said["why"],
                clauses=tuple(word for word in words if not word.startswith("IV")),
                invariant=next((word for word in words if word.startswith("IV")), ""),
                edits=tuple(Edit(**{part: _plain(text or "") for part, text in edit.groupdict().items()}) for edit in edits if edit),
                tests=tuple(f"tests/{each}" for each in lines[-1].removeprefix("  by ").split(" + ")),
                theme=options.get("theme", ""),
                needs=options.get("needs", ""),  # type: ignore[arg-type]  # a test compares it
            )
        )
    return found


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


@cache
def _spans(source: str) -> Mapping[str, tuple[int, int]]:
    """Functions, methods and classes of a module -> where their text begins and ends, with what decorates them."""
    starts = [0, *(found.end() for found in re.finditer("\n", source)), len(source)]
    found = {}
    for owner, node in _defined(source):
        first = min(each.lineno for each in (node, *node.decorator_list))
        found[owner + node.name] = starts[first - 1], starts[node.end_lineno or node.lineno]
    return found


def _defined(source: str) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield "", node
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.", each) for each in node.body if isinstance(each, ast.FunctionDef))


@cache
def _pattern(old: str) -> re.Pattern[str]:
    """The text however the formatter has broken its lines: blanks within it are any, and before a closing bracket may be a comma."""
    parts: list[str] = []
    for blanks, word in re.findall(r"(\s*)(\w+|\S)", old):
        if word in (")", "]", "}"):
            while parts and parts[-1] in (r"\s*", ","):
                parts.pop()
            parts.append(r"\s*,?\s*")
        elif parts:
            parts.append(r"\s+" if blanks and word[0].isalnum() and parts[-1][-1:].isalnum() else r"\s*")
        parts.append(re.escape(word))
    before, after = (r"\b" if end.isalnum() or end == "_" else "" for end in (old[0], old[-1]))
    return re.compile(before + "".join(parts) + after)


@contextmanager
def taken_out(each: Mutant) -> Iterator[None]:
    """This very process without the safeguard: the functions whose text differs get the code of their changed text.

    Whoever has imported such a function has it without the safeguard, too. What stands outside of functions can not be exchanged so.
    """
    exchanged: list[tuple[FunctionType, CodeType]] = []
    try:
        for path, (before, after) in each.applied(REPO).items():
            module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
            found, code = changed_functions(before, after), _codes(compile(after, str(REPO / path), "exec"))
            if not found:
                raise ValueError(f"{each.name}: {path} is not changed inside of a function")
            for name in found:
                function = _function(module, name)
                exchanged.append((function, function.__code__))
                function.__code__ = code[name]
        yield
    finally:
        for function, original in reversed(exchanged):
            function.__code__ = original


def changed_functions(before: str, after: str) -> list[str]:
    """The functions and methods of a module whose code differs, by their qualified names."""
    old, new = _functions(before), _functions(after)
    return [name for name, text in new.items() if old.get(name) != text]


@cache
def _functions(source: str) -> dict[str, str]:
    return {owner + node.name: ast.dump(node) for owner, node in _defined(source) if isinstance(node, ast.FunctionDef)}


def _codes(code: CodeType) -> dict[str, CodeType]:
    inside = [each for each in code.co_consts if isinstance(each, CodeType)]
    found = {each.co_qualname: each for each in inside}
    for each in inside:
        found |= _codes(each)
    return found


def _function(module: Any, name: str) -> FunctionType:
    owner: Any = module
    *classes, last = name.split(".")
    for each in classes:
        owner = getattr(owner, each)
    found: Any = inspect.getattr_static(owner, last)
    if isinstance(found, property):
        found = found.fget
    function = inspect.unwrap(found)
    assert isinstance(function, FunctionType)
    return function


# Every safeguard of the package that tests have to miss when it is gone: the tables of this folder, one for each subject.
_LISTED = [each for path in sorted(Path(__file__).parent.glob("*.txt")) for each in read_table(path.read_text("utf-8"))]
MUTANTS: Mapping[str, Mutant] = {each.name: each for each in _LISTED}
SIMULATED: Mapping[str, Mutant] = {name: each for name, each in MUTANTS.items() if each.theme}

assert len(MUTANTS) == len(_LISTED), "two mutants have one name"
