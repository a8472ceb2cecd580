"""What the modules of spec/model say of themselves: clauses, functions of the package, rules that can be switched off."""

import importlib
import re
from collections.abc import Iterator

from tests.model.runs import SPEC

_FOLDERS = "format|protocol|filter|log|runtime|commits|files|scan|rows|operations|store|gate|job|quarantine|staging"
_FUNCTION = re.compile(rf"\b((?:{_FOLDERS})(?:\.[a-zA-Z_]\w*)+)")
_RULE = re.compile(r'\bOn\("([^"]+)"\)')
_ACTION = re.compile(r"^([A-Z]\w*)\(\w+\) ==$", re.MULTILINE)


def modules() -> dict[str, str]:
    """Every module of the model and its text."""
    return {path.stem: path.read_text("utf-8") for path in sorted(SPEC.glob("*.tla"))}


def comments(text: str) -> Iterator[str]:
    """Each comment: lines of `\\*` that follow each other are one; one that stands behind code is one by itself."""
    block: list[str] = []
    for line in text.splitlines():
        if line.startswith("\\*"):
            block.append(line[2:].strip())
            continue
        if block:
            yield " ".join(block)
            block = []
        if "\\*" in line:
            yield line.split("\\*", 1)[1].strip()


def functions(comment: str) -> list[str]:
    """The functions of the package that a comment names, such as commits.commit_loop.create_version."""
    return [name.rstrip(".") for name in _FUNCTION.findall(comment)]


def is_there(function: str) -> bool:
    """Whether the package has it."""
    parts = function.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(["manifestcommit", *parts[:split]]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def rules() -> frozenset[str]:
    """Every rule that the model can do without."""
    return frozenset(rule for text in modules().values() for rule in _RULE.findall(text))


def actions() -> dict[str, str]:
    """Every step of a process, by name, and the comment above it."""
    found = {}
    for text in modules().values():
        for match in _ACTION.finditer(text):
            body = text[match.end() :].split("\n\n")[0]
            if re.search(r"\bs' =", body) or "objects' =" in body:
                above = re.search(r"((?:^\\\*.*\n)*)\Z", text[: match.start()], re.MULTILINE)
                found[match[1]] = above[1] if above else ""
    return found
