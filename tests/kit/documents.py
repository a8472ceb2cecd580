"""Docstrings and the promises of the spec, read for tests."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import manifestcommit as mc
import manifestcommit.testing
from manifestcommit import checks, errors, store
from manifestcommit.job import PUBLIC as PUBLIC_OF_JOB

SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example", "Remedy", "Spec")
_SECTION = re.compile(rf"^({'|'.join(SECTIONS)}):(.*)$")
_ENTRY = re.compile(r"^ {4}\*{0,2}([\w.]+): \S")
_SHARED = re.compile(r"^- ((?:`\w+`(?:, )?)+): (.*(?:\n  .*)*)", re.MULTILINE)
_OTHERS = re.compile(r"Other (?:arguments|errors|arguments and errors) are as for (?:the function )?`([\w.]+)`")


class Docstring(msgspec.Struct, frozen=True):
    """The parts of a docstring: its first line, the text of each section, and the sections' entries by name. elsewhere: those that
    another docstring has for it."""

    first: str
    text: str
    sections: dict[str, str]
    elsewhere: dict[str, dict[str, str]] = {}

    @classmethod
    def of(cls, found: Any) -> Docstring:
        text = inspect.getdoc(found) or ""
        sections: dict[str, str] = {}
        name = ""
        for line in text.splitlines():
            if match := _SECTION.match(line):
                name = match[1]
                sections[name] = match[2].strip()
            elif name:
                sections[name] += f"\n{line}"
        return cls(text.partition("\n")[0], text, sections)

    def entries(self, section: str) -> dict[str, str]:
        """Name -> text of each entry of a section."""
        found = dict(self.elsewhere.get(section, {}))
        name = ""
        for line in self.sections.get(section, "").splitlines():
            if match := _ENTRY.match(line):
                name = match[1]
                found[name] = line.partition(": ")[2]
            elif name:
                found[name] += f" {line.strip()}"
        return found


def is_ours(found: Any) -> bool:
    return (getattr(found, "__module__", None) or "").partition(".")[0] == "manifestcommit"


def public() -> dict[str, Any]:
    """Every exported function and class, by a name for people."""
    found = {name: getattr(mc, name) for name in mc.__all__}
    found |= {f"errors.{name}": each for name, each in vars(errors).items() if isinstance(each, type) and is_ours(each)}
    for module in (checks, manifestcommit.testing, store):
        found |= {f"{module.__name__.rpartition('.')[2]}.{name}": getattr(module, name) for name in module.__all__}
    once = {id(each): name for name, each in reversed(found.items())}
    return {name: found[name] for name in found if name in once.values() and isinstance(found[name], type | types.FunctionType)}


PUBLIC = public()
CLASSES = {name: each for name, each in PUBLIC.items() if isinstance(each, type)}
ERRORS = {name: each for name, each in CLASSES.items() if issubclass(each, BaseException)}
RAISED = {*vars(builtins), "msgspec.ValidationError", *(each.__name__ for each in ERRORS.values())}


def members() -> Iterator[tuple[str, Any]]:
    """Every public method and property of the exported classes. What the methods of a store do, `Store` says once."""
    for owner, kind in CLASSES.items():
        for name in sorted(dir(kind)):
            found = inspect.getattr_static(kind, name)
            found = getattr(found, "__func__", found)
            if (
                name.startswith("_")
                or (kind is mc.Job and name not in PUBLIC_OF_JOB)
                or not is_ours(found.fget if isinstance(found, property) else found)
            ):
                continue
            if not isinstance(found, property | types.FunctionType):
                continue
            of_store = vars(store.Store).get(name) if kind is not store.Store and is_store(kind) else None
            if of_store is not None and (found is of_store or not found.__doc__):
                continue
            yield f"{owner}.{name}", found


def is_store(kind: type) -> bool:
    return all(hasattr(kind, name) for name in ("put_if_absent", "list", "get"))


MEMBERS = dict(members())
# Made by the caller; the others are made by this package, and their constructors are not public.
CONSTRUCTORS = {
    name: each.__init__
    for name, each in CLASSES.items()
    if is_ours(each.__init__)
    and not issubclass(each, BaseException)
    and name not in ("Job", "Lake", "PinnedTable", "Transaction", "TransactionRows", "testing.SimulatedStore")
}
CALLABLES = {
    **{name: each for name, each in PUBLIC.items() if not isinstance(each, type)},
    **{name: each for name, each in MEMBERS.items() if not isinstance(each, property)},
    **CONSTRUCTORS,
}


def parameters(found: Any) -> list[inspect.Parameter]:
    return [each for each in inspect.signature(found).parameters.values() if each.name != "self"]


@cache
def docstring(name: str) -> Docstring:
    """Of a function, method or property; a constructor's arguments may be told by its class. What several methods take and raise their
    class may say in a list, and what is as for another call that one says."""
    if name in CONSTRUCTORS and not (CONSTRUCTORS[name].__doc__ and is_ours(CONSTRUCTORS[name])):
        return Docstring.of(CLASSES[name])
    found = CALLABLES.get(name) or MEMBERS[name]
    own, (owner, _, method) = Docstring.of(found), name.rpartition(".")
    shared = {word: text for words, text in _SHARED.findall(told_of(owner)) if method for word in re.findall(r"\w+", words)}
    other = _OTHERS.search(" ".join(own.text.split()))
    base = docstring(next(each for each in (f"{owner}.{other[1]}", other[1]) if each in CALLABLES and each != name)) if other else None
    taken = {each.name for each in parameters(found)} if name in CALLABLES else set()
    elsewhere = {
        "Args": {**shared, **(base.entries("Args") if base else {})},
        "Raises": {word: text for word, text in shared.items() if word in RAISED} | (base.entries("Raises") if base else {}),
    }
    elsewhere["Args"] = {word: text for word, text in elsewhere["Args"].items() if word in taken}
    return msgspec.structs.replace(own, elsewhere=elsewhere)


def told_of(owner: str) -> str:
    """The docstring of a class; `TransactionRows` has methods of `Table`."""
    return inspect.getdoc(CLASSES.get("Table" if owner == "TransactionRows" else owner)) or "" if owner in CLASSES else ""


REPO = Path(__file__).resolve().parents[2]
TEST = re.compile(r"`(tests/[^`\s]+\.py)::([^`\s]+)`")


@cache
def functions_of(path: str) -> frozenset[str]:
    """The test functions of a file, parametrised or not."""
    source = REPO / path
    if not source.is_file():
        return frozenset()
    tree = ast.parse(source.read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def sections(page: str) -> dict[str, str]:
    """Heading → text, of the third level and of the second."""
    parts = re.split(r"^#{2,3} (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
