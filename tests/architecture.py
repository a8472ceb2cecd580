"""Reads a tree of Python files and says what in it breaks the house rules. The rules themselves: tests/project/test_architecture.py.

An import is *late* inside a function and *typing* inside `if TYPE_CHECKING:`; both are arrows, but neither runs on import.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

When: TypeAlias = Literal["top", "late", "typing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import statement's target, as a dotted name from the root, and when it runs."""

    target: str
    line: int
    when: When


@dataclass(frozen=True, kw_only=True)
class Module:
    """One file. name: dotted; a package is called by its folder's name."""

    name: str
    path: Path
    is_package: bool
    source: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of its tree; each rule looks at them."""
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[Import]:
        """Everything that the file imports, wherever in it; each rule asks for it."""
        return list(_imports(self.tree, self, "top"))


def read_modules(root: Path, package: str) -> dict[str, Module]:
    """Every module of the package below `root`, by dotted name."""
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        source = path.read_text("utf-8")
        found[name] = Module(name=name, path=path, is_package=is_package, source=source, tree=ast.parse(source))
    return found


def _imports(node: ast.AST, module: Module, when: When) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(target=alias.name, line=child.lineno, when=when)
        elif isinstance(child, ast.ImportFrom):
            base = _absolute(child, module)
            for alias in child.names:
                yield Import(target=f"{base}.{alias.name}" if base else alias.name, line=child.lineno, when=when)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _imports(child, module, "late" if when == "top" else when)
        elif isinstance(child, ast.If) and _is_type_checking(child.test):
            for statement in child.body:
                yield from _imports(ast.Module([statement], []), module, "typing")
            for statement in child.orelse:
                yield from _imports(ast.Module([statement], []), module, when)
        else:
            yield from _imports(child, module, when)


def _absolute(node: ast.ImportFrom, module: Module) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def within(target: str, package: str) -> bool:
    """Whether a dotted name is the package or something in it."""
    return target == package or target.startswith(package + ".")


def resolve(target: str, modules: Mapping[str, Module]) -> str:
    """The module that an import's target means: `a.b.f` is module `a.b` where `f` is a name in it."""
    while target not in modules and "." in target:
        target = target.rpartition(".")[0]
    return target


def room(name: str, modules: Mapping[str, Module]) -> str:
    """The innermost package that a module is in, without the package's own name; a module beside the packages is a room of its own.

    `manifestcommit.format.fields` is in the room `format`, `manifestcommit.table` in `table`, the package's own
    `__init__` in `""`.
    """
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        if (found := modules.get(".".join(parts[:length]))) is not None and found.is_package:
            return ".".join(parts[1:length])
    return parts[1] if len(parts) > 1 else ""


def wing(name: str) -> str:
    """The first part of a module's name below the package: `core`, `spark`, `table`; of the package's own `__init__` `""`."""
    return ([*name.split("."), ""])[1]


# --- rules: each yields sentences that name the file and the line ---------------------------------------------------------
def broken_arrows(modules: Mapping[str, Module], package: str, arrows: Mapping[str, Set[str]]) -> Iterator[str]:
    """Imports between rooms that no arrow allows, and rooms that have no arrows."""
    for module in modules.values():
        here = room(module.name, modules)
        if here not in arrows:
            yield f"{module.name}: the room {here!r} has no arrows; give it a place"
            continue
        for found in module.imports:
            there = room(resolve(found.target, modules), modules)
            if within(found.target, package) and there != here and there not in arrows[here]:
                yield f"{module.name}:{found.line}: {here or package} may not import {there or package} ({found.target})"


def broken_order(modules: Mapping[str, Module], folder: str, floors: Sequence[Set[str]]) -> Iterator[str]:
    """Imports inside one folder that do not go from a higher floor to a lower one, and modules that are on no floor."""
    level = {f"{folder}.{name}": number for number, floor in enumerate(floors) for name in floor}
    present = {name for name in modules if within(name, folder) and name != folder}
    for name in sorted(present - level.keys()):
        yield f"{name}: is on no floor of {folder}"
    for name in sorted(level.keys() - present):
        yield f"{name}: has a floor in {folder}, but is not there"
    for name in sorted(present & level.keys()):
        for found in modules[name].imports:
            there = resolve(found.target, modules)
            if there == folder or (there in level and there != name and level[there] >= level[name]):
                yield f"{name}:{found.line}: {name} may not import {there}: not on a lower floor"


def circles(modules: Mapping[str, Module], package: str) -> Iterator[str]:
    """Modules that import each other round in a circle; imports for typing alone are no part of one."""
    graph = {
        name: {resolve(found.target, modules) for found in module.imports if within(found.target, package) and found.when != "typing"}
        - {name}
        for name, module in modules.items()
    }
    done: set[str] = set()
    for start in sorted(graph):
        yield from _circles_from(start, graph, [], done)


def _circles_from(name: str, graph: Mapping[str, Set[str]], trail: list[str], done: set[str]) -> Iterator[str]:
    if name in trail:
        yield "a circle: " + " -> ".join([*trail[trail.index(name) :], name])
        return
    if name in done:
        return
    for target in sorted(graph.get(name, ())):
        yield from _circles_from(target, graph, [*trail, name], done)
    done.add(name)


def outside_imports(modules: Mapping[str, Module], folder: str, allowed: Set[str]) -> Iterator[str]:
    """Imports of a folder's modules that are neither in the package nor on the list of what it may use."""
    package = folder.split(".")[0]
    for name, module in modules.items():
        if within(name, folder):
            for found in module.imports:
                if not within(found.target, package) and not any(within(found.target, ok) for ok in allowed):
                    yield f"{name}:{found.line}: {folder} is pure and may not import {found.target}"


def impure_calls(modules: Mapping[str, Module], folder: str, forbidden: Set[str]) -> Iterator[str]:
    """Calls, in a folder's modules, of names that reach for a file, a clock or a screen."""
    for name, module in modules.items():
        if within(name, folder):
            for node in module.nodes:
                if isinstance(node, ast.Call):
                    called = ast.unparse(node.func)
                    if called in forbidden or any(called.endswith(f".{tail}") for tail in forbidden if "." in tail):
                        yield f"{name}:{node.lineno}: {folder} is pure and may not call {called}"


def uninvited(modules: Mapping[str, Module], library: str, guests: Mapping[str, Set[When]]) -> Iterator[str]:
    """Imports of a library by rooms, or at moments, that are not on the list."""
    for name, module in modules.items():
        for found in module.imports:
            if within(found.target, library) and found.when not in guests.get(wing(name), set()):
                yield f"{name}:{found.line}: {wing(name) or name} may not import {library} here ({found.when})"


def too_long(modules: Mapping[str, Module], *, module_lines: int, function_lines: int) -> Iterator[str]:
    """Modules that do not fit, and functions whose statements do not: signature and docstring are not counted."""
    for name, module in modules.items():
        if (lines := len(module.source.splitlines())) > module_lines:
            yield f"{name}: {lines} lines, more than {module_lines}: two rooms"
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None and node.body[1:] else node.body
                size = (node.end_lineno or node.lineno) - body[0].lineno + 1
                if size > function_lines:
                    yield f"{name}:{node.lineno}: {node.name} has {size} lines, more than {function_lines}: two functions"


def crowded(modules: Mapping[str, Module], *, most: int) -> Iterator[str]:
    """Folders with more modules than one can hold in mind; `__init__` is none."""
    counts = Counter(name.rpartition(".")[0] for name, module in modules.items() if not module.is_package)
    for folder, count in counts.items():
        if count > most:
            yield f"{folder}: {count} modules, more than {most}: two folders"


def banned_names(modules: Mapping[str, Module], words: Set[str]) -> Iterator[str]:
    """Modules, classes and functions named with a word that says nothing."""
    for name, module in modules.items():
        named: Iterable[tuple[int, str]] = [
            (node.lineno, node.name) for node in module.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        for line, defined in [(1, name.rpartition(".")[2]), *named]:
            if words & {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", defined)}:
                yield f"{name}:{line}: {defined}: a name that says nothing"


def silent_ignores(modules: Mapping[str, Module]) -> Iterator[str]:
    """`type: ignore` without its error's code and its reason."""
    for name, module in modules.items():
        for number, line in enumerate(module.source.splitlines(), 1):
            if re.search(r"#\s*type:\s*ignore", line) and not re.search(r"#\s*type:\s*ignore\[[\w, -]+\]\s+#\s*\S", line):
                yield f"{name}:{number}: type: ignore without its code and its reason"


def foreign_privates(modules: Mapping[str, Module], allowed: Set[str]) -> Iterator[str]:
    """Private names of others' objects (`x._name`), outside the modules that may use them: a name that nothing in the tree defines."""
    own = {name for module in modules.values() for name in _defined(module.nodes)}
    for name, module in modules.items():
        if name in allowed:
            continue
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and re.fullmatch(r"_[A-Za-z]\w*", node.attr) and node.attr not in own:
                yield f"{name}:{node.lineno}: {ast.unparse(node)} is private to others"


def others_members(modules: Mapping[str, Module], owners: Mapping[str, str]) -> Iterator[str]:
    """Private members of these classes that other modules use. owners: class -> its module. A name that a module defines is its own."""
    defined = {name: {*_defined(module.nodes)} for name, module in modules.items()}
    used = [(name, node) for name, each in modules.items() for node in each.nodes if isinstance(node, ast.Attribute)]
    for owner, home in owners.items():
        body = next(node for node in modules[home].tree.body if isinstance(node, ast.ClassDef) and node.name == owner)
        private = {name for name in _defined(ast.walk(body)) if re.fullmatch(r"_[A-Za-z]\w*", name)}
        for name, node in used:
            if node.attr in private and name != home and node.attr not in defined[name]:
                yield f"{name}:{node.lineno}: {ast.unparse(node)} is private to {owner}"


def _defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
