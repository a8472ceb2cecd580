"""A safeguard taken out of the package: which text becomes which, what is lost by that, and which tests are there to notice."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal

REPO = Path(__file__).resolve().parents[2]

Needs = Literal["", "server", "spark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A text of a file that occurs in it exactly once, however its lines are broken, and what takes its place. file: below the package."""

    file: str
    old: str
    new: str


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
            before = (root / path).read_text("utf-8")
            if (count := len(_pattern(edit.old).findall(before))) != 1:
                raise ValueError(f"{self.name}: {path} has {count} times {edit.old!r}")
            first, text = texts.get(path, (before, before))
            texts[path] = first, _pattern(edit.old).sub(lambda _, new=edit.new: new, text)  # type: ignore[misc]  # a lambda's default
        return texts


@cache
def _pattern(old: str) -> re.Pattern[str]:
    """The text however the formatter has broken its lines: blanks within it are any, and before a closing bracket may be a comma."""
    text = old.strip()
    parts: list[str] = []
    for blanks, word in re.findall(r"(\s*)(\w+|\S)", text):
        if word in (")", "]", "}"):
            while parts and parts[-1] in (r"\s*", ","):
                parts.pop()
            parts.append(r"\s*,?\s*")
        elif parts:
            parts.append(r"\s+" if blanks and word[0].isalnum() and parts[-1][-1:].isalnum() else r"\s*")
        parts.append(re.escape(word))
    before, after = old[: len(old) - len(old.lstrip())], old[len(old.rstrip()) :]
    return re.compile(re.escape(before) + "".join(parts) + re.escape(after))


def mutant(
    name: str,
    why: str,
    held: str,
    *edits: tuple[str, str, str],
    tests: str,
    theme: str = "",
    needs: Needs = "",
) -> Mutant:
    """held: clauses, and the invariant if there is one; edits: (file, old, new); tests: node ids below tests/, ` + ` between them."""
    words = held.split()
    return Mutant(
        name=name,
        why=why,
        clauses=tuple(word for word in words if not word.startswith("IV")),
        invariant=next((word for word in words if word.startswith("IV")), ""),
        edits=tuple(Edit(file=file, old=old, new=new) for file, old, new in edits),
        tests=tuple(f"tests/{each}" for each in tests.split(" + ")),
        theme=theme,
        needs=needs,
    )


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
    found = {}
    for node in ast.parse(source).body:
        for owner, each in [("", node)] if not isinstance(node, ast.ClassDef) else [(f"{node.name}.", each) for each in node.body]:
            if isinstance(each, ast.FunctionDef):
                found[owner + each.name] = ast.dump(each)
    return found


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
