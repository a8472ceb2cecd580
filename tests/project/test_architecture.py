"""The folders are the architecture: who may import whom, what rules may touch, how long a thing may be.

An import is *late* inside a function and *typing* inside `if TYPE_CHECKING:`; both are arrows, but neither runs on import.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from tests.walks import loaded_by

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
        elif isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
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


REPO = Path(__file__).resolve().parents[2]
PACKAGE = "manifestcommit"

# Room -> the rooms that it may import, and folder -> its floors: what is written in layout.txt.
ARROWS: dict[str, set[str]] = {}
FLOORS: dict[str, list[set[str]]] = {}
for line in re.sub(r"\n {4}", " ", Path(__file__).with_name("layout.txt").read_text("utf-8")).splitlines():
    line = re.sub(r"([\w.]+)\.\{([^}]+)\}", lambda found: " ".join(f"{found[1]}.{each}" for each in found[2].split()), line)
    if found := re.fullmatch(r"(\S*) ?→(.*)", line):
        ARROWS[found[1]] = set(found[2].split())
    elif found := re.fullmatch(r"(\S+): (.+)", line):
        FLOORS[found[1]] = [set(floor.split()) for floor in found[2].split(" < ")]

# What users import. Every other module is internal: its package's docstring, or its own at the top level, says so.
PUBLIC = tuple(f"manifestcommit{each}" for each in ("", ".checks", ".errors", ".sources", ".store", ".testing"))
# Pages whose code users copy.
FOR_USERS = ("README.md", "SECURITY.md", "spec/*.md", "spec/decisions/*.md", "docs/**/*.md", "benchmarks/*.md")

# All that the rules may use: nothing of it reads a clock, draws a number, or opens anything that it was not given.
PURE_MAY_IMPORT = {
    "__future__", "abc", "base64", "binascii", "bisect", "collections", "contextlib", "copy", "dataclasses", "datetime",
    "decimal", "difflib", "enum", "functools", "hashlib", "html", "io.BytesIO", "itertools", "json", "math", "numbers", "operator", "re",
    "reprlib", "string", "struct", "sys", "types", "typing", "unicodedata", "urllib.parse", "zlib", "msgspec",
    "pyarrow", "sqlglot", "zstandard",
}  # fmt: skip
PURE_MAY_NOT_IMPORT_OF_THESE = {"pyarrow.fs", "pyarrow.flight", "pyarrow.csv", "pyarrow.feather"}
PURE_MAY_NOT_CALL = {
    "open", "print", "input", "exec", "eval", "__import__", "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
    "pa.memory_map", "pa.OSFile", "pa.output_stream", "pyarrow.memory_map", "pyarrow.OSFile",
}  # fmt: skip

# Room -> when it may import pyspark. The rooms that hand a DataFrame on know its type, and no more.
PYSPARK_GUESTS = {
    "spark": {"top", "late", "typing"}, "spark.datasource": {"top", "late", "typing"}, "job": {"late", "typing"},
    "transactions": {"typing"}, "catalog": {"typing"}, "sources": {"late", "typing"}, "staging": {"typing"}, "table": {"late", "typing"},
    "spark_sql": {"typing"},
}  # fmt: skip

BANNED_WORDS = {"manager", "utils", "util", "process", "handle", "helper", "helpers"}


@pytest.fixture(scope="module")
def modules():
    return read_modules(REPO, PACKAGE) | read_modules(REPO, "pyspark_manifestcommit")


@pytest.fixture(scope="module")
def ours(modules):
    return {name: module for name, module in modules.items() if name.split(".")[0] == PACKAGE}


def none(sentences: Iterator[str]) -> None:
    found = list(sentences)
    assert not found, "\n".join(["", *found])


# --- this repository ----------------------------------------------------------------------------------------------------
def test_arrows_go_down(ours) -> None:
    none(broken_arrows(ours, PACKAGE, ARROWS))


def imported_by(page: str) -> set[str]:
    """The modules of ours that the code on a page imports, or names with a call or an attribute."""
    code = "\n".join(re.findall(r"^```(?:python|py)?\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL))
    code += "\n".join(re.findall(r"`(?:from|import) [^`\n]*`", page))
    return {name for found in re.findall(r"\b(?:from|import)\s+(manifestcommit[\w.]*)", code) for name in [found.rstrip(".")]}


def test_pages_for_users_import_only_what_is_public() -> None:
    pages = [path for pattern in FOR_USERS for path in sorted(REPO.glob(pattern))]
    wrong = {str(path.relative_to(REPO)): sorted(found) for path in pages if (found := imported_by(path.read_text("utf-8")) - {*PUBLIC})}
    assert len(pages) > 10 and not wrong, wrong


@pytest.mark.parametrize(
    "code", ["from manifestcommit.table import Table", "import manifestcommit.commits.job as j", "from manifestcommit.job import x"]
)
def test_an_internal_import_on_a_page_is_seen(code: str) -> None:
    assert imported_by(f"Text.\n\n```python\nimport manifestcommit as mc\n{code}\n```\n") - {*PUBLIC}
    assert imported_by(f"Or `{code}`.") - {*PUBLIC}


def test_what_is_public_is_said_in_one_way_and_the_rest_is_marked(ours: dict[str, Module]) -> None:
    rule = "Public is what `manifestcommit`, `manifestcommit.checks`, `manifestcommit.errors`, `manifestcommit.sources`, "
    rule += "`manifestcommit.store` and `manifestcommit.testing` export."
    assert rule in " ".join((ast.get_docstring(ours[PACKAGE].tree) or "").split())
    for page in ("spec/architecture.md", "docs/reference/supported.md", "CONTRIBUTING.md"):
        assert rule in " ".join((REPO / page).read_text("utf-8").split()), page
    for name, module in ours.items():
        if name.count(".") == 1 and not name.endswith(".__main__"):
            assert (name in PUBLIC) != ("Internal: " in (ast.get_docstring(module.tree) or "")), (
                f"{name} does not say whether it is internal"
            )


@pytest.mark.parametrize("folder", FLOORS)
def test_a_folder_is_built_in_floors(ours, folder: str) -> None:
    none(broken_order(ours, f"{PACKAGE}.{folder}", FLOORS[folder]))


def test_no_folder_has_more_modules_than_one_can_hold_in_mind(ours) -> None:
    none(crowded(ours, most=20))


def test_no_file_of_tests_is_imported_by_another() -> None:
    """What several of them use is in tests/kit: a test can move without another one's knowing."""
    found = [
        f"{module.name}: {each.target}"
        for module in read_modules(REPO, "tests").values()
        for each in module.imports
        if ".test_" in each.target
    ]
    none(found)


# Counts that can only fall: whoever makes one smaller writes the new one here and into the table of spec/architecture.md.
CEILINGS = {"lines": 51_874, "modules": 135, "loaded": 46, "lines of tests": 75_518}
WALKS = {
    "append": {"modules": 26, "switches": 149, "depth": 13},
    "read": {"modules": 16, "switches": 54, "depth": 12},
    "merge": {"modules": 33, "switches": 317, "depth": 23},
    "gc": {"modules": 25, "switches": 220, "depth": 17},
}


# Doors that came later, each counted apart: its modules, and the most lines of them together.
DOORS: dict[str, tuple[tuple[str, ...], int]] = {
    "gate": (("gate", "checks", "quarantine", "staging"), 2_000),
    "sources": (("sources", "cli.load_table", "testing.source_kit"), 4_966),
    "upkeep": (("upkeep", "cli.upkeep", "operations.upkeep_properties"), 672),
    "catalog": (("catalog", "cli.lake"), 2_000),
    "erase": (("table.erasing", "table.holders", "cli.erase"), 951),
    "transforms": (("format.transforms", "filter.transforms"), 1_500),
}


def door_of(name: str) -> str:
    """The door that a module belongs to; empty: none."""
    inner = name.partition(".")[2]
    return next((door for door, (parts, _) in DOORS.items() if any(f"{inner}.".startswith(f"{part}.") for part in parts)), "")


# Methods of `Table` that only call into a door: their lines count as its.
DOOR_METHODS = {
    "gate": {"constraints", "add_constraint", "drop_constraint", "set_not_null", "drop_not_null"},
    "erase": {"holders", "erase", "erasure"},
}


def lines_by_door(modules: dict[str, Module]) -> Counter[str]:
    """The lines of each door; by the empty name those of all that belongs to none."""
    lines = Counter[str]()
    for name, module in modules.items():
        lines[door_of(name)] += len(module.source.splitlines())
        for door, methods in DOOR_METHODS.items() if name in (f"{PACKAGE}.table.table", f"{PACKAGE}.table.reading") else ():
            for node in module.nodes:
                if isinstance(node, ast.FunctionDef) and node.name in methods:
                    length = node.end_lineno - min([node.lineno, *(each.lineno for each in node.decorator_list)]) + 2
                    lines.update({door: length, "": -length})
    return lines


def test_the_package_and_its_tests_do_not_grow(ours) -> None:
    lines = lines_by_door(ours)
    tests = [
        path
        for path in (REPO / "tests").rglob("*")
        if not any(part.startswith(".") for part in path.parts[len(REPO.parts) :])
        and not {path.relative_to(REPO / "tests").parts[0], path.stem} & {*DOORS}
    ]
    counts = {
        "lines": lines[""],
        "modules": sum(not door_of(name) for name in ours),
        "loaded": len(loaded_by(f"from {PACKAGE} import write")),
        "lines of tests": sum(len(path.read_text("utf-8").splitlines()) for path in tests if path.suffix in (".py", ".toml", ".txt")),
    }
    over = {name: (count, CEILINGS[name]) for name, count in counts.items() if count > CEILINGS[name]}
    over |= {door: (lines[door], most) for door, (_, most) in DOORS.items() if lines[door] > most}
    assert not over, f"{over} (now, ceiling): delete or merge what need not be there; load late what a write does not need"
    assert all(any(door_of(name) == door for name in ours) for door in DOORS)


def test_a_call_enters_no_more_modules() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.walks"], cwd=REPO, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    over = {
        f"{call}: {name}": (found[call][name], most)
        for call, counts in WALKS.items()
        for name, most in counts.items()
        if found[call][name] > most
    }
    assert not over, f"{over} (now, ceiling): `python -m tests.walks --modules` names the modules; put what is used together into one"


def test_no_folder_is_called_as_a_public_function(ours) -> None:
    """Whoever imports a submodule sets the package's attribute of that name: `manifestcommit.commit` would become a folder."""
    public = json.loads(
        subprocess.run(
            [sys.executable, "-c", f"import json, {PACKAGE}; print(json.dumps({PACKAGE}.__all__))"],
            check=True,
            capture_output=True,
            cwd=REPO,
        ).stdout
    )
    assert "commit" in public and not set(public) & {name.split(".")[1] for name in ours if "." in name}


def test_nothing_imports_itself_round_a_corner(ours) -> None:
    """Nor by a string, which no rule here would see."""
    none(circles(ours, PACKAGE))
    none(
        f"{name}:{node.lineno}: imports a module of ours by a string: import it, or register what calls it from above"
        for name, module in ours.items()
        if name != PACKAGE  # whose public names are loaded by its table of their modules
        for node in module.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__"))
        if node.args and ast.unparse(node.args[0]).lstrip("'\"f").startswith((PACKAGE, "."))
    )


# What has no I/O, clock or randomness; the engine above it; and what neither shows anything.
PURE = ("display", "format", "protocol", "filter")
SILENT = (*PURE, "runtime", "log", "commits", "files", "scan", "rows", "operations", "store", "export", "intake", "gate", "spark")


@pytest.mark.parametrize("room", [room for room in ARROWS if room.split(".")[0] in SILENT])
def test_what_shows_nothing_does_not_know_the_terminal(room: str) -> None:
    assert "terminal" not in ARROWS[room]


@pytest.mark.parametrize("room", PURE)
def test_rules_are_pure(ours, room: str) -> None:
    inside = {name: module for name, module in ours.items() if f"{name}.".startswith(f"{PACKAGE}.{room}.")}
    assert inside
    none(outside_imports(ours, f"{PACKAGE}.{room}", PURE_MAY_IMPORT))
    none(impure_calls(ours, f"{PACKAGE}.{room}", PURE_MAY_NOT_CALL))
    for library in PURE_MAY_NOT_IMPORT_OF_THESE:
        none(uninvited(inside, library, {}))


def test_only_spark_knows_pyspark(ours) -> None:
    none(uninvited(ours, "pyspark", PYSPARK_GUESTS))
    none(uninvited(ours, "py4j", PYSPARK_GUESTS))


def test_spark_is_reached_late(ours) -> None:
    """What imports the spark room does so inside functions: `import manifestcommit` needs no Spark."""
    above = {name: module for name, module in ours.items() if not name.startswith(f"{PACKAGE}.spark")}
    guests = {room: {"late", "typing"} for room in ("job", "quarantine", "sources", "table")}
    none(uninvited(above, f"{PACKAGE}.spark", guests))


def test_a_function_fits_a_screen_and_a_module_is_one_room(modules) -> None:
    none(too_long(modules, module_lines=1200, function_lines=50))


def test_names_say_something(modules) -> None:
    none(banned_names(modules, BANNED_WORDS))


def test_every_type_ignore_has_its_reason(modules) -> None:
    none(silent_ignores(modules))


# What PySpark and fsspec keep private is used in these modules only. The standard library has no
# other name for a parser's options, nor for a named tuple with other members.
PRIVATE_TO_OTHERS = {f"{PACKAGE}.{name}" for name in ("filter.arrow_expression", "spark.spark_internals", "store.fsspec")}


def test_private_parts_of_others_are_used_in_one_place(modules) -> None:
    none(found for found in foreign_privates(modules, PRIVATE_TO_OTHERS) if not re.search(r"\._(replace|actions|exit) is", found))
    assert list(foreign_privates({name: modules[name] for name in PRIVATE_TO_OTHERS}, set())), "they are needed no more"


# What transactions, changes of rows, quarantine and Spark do with jobs has plain names.
OF_JOBS = {"Job": f"{PACKAGE}.job", "JointUnit": f"{PACKAGE}.commits.prepared_job"}


def test_private_members_of_jobs_are_used_by_their_own_module_only(ours) -> None:
    none(others_members(ours, OF_JOBS))


def test_a_use_of_anothers_private_member_is_seen(tmp_path: Path) -> None:
    uses = "def f(job):\n    return job._id\n"
    tree = plant(tmp_path, {"p/job.py": "class Job:\n    def __init__(self):\n        self._id = 1\n", "p/table.py": uses})
    assert list(others_members(tree, {"Job": "p.job"})) == ["p.table:2: job._id is private to Job"]


# Come with the package, and are loaded for a terminal, for a text in SQL, and for object stores, only.
LOADED_LATE = {"rich", "sqlglot"}


def test_what_the_package_needs_is_installed_with_it(ours) -> None:
    """Without an extra, `pip install` brings whatever is imported as the package is: else its first line fails at the user's."""
    of_extras = ("spark", "catalog.rest")
    needed = {
        found.target.partition(".")[0]
        for name, module in ours.items()
        if not name.removeprefix(f"{PACKAGE}.").startswith(of_extras)
        for found in module.imports
        if found.when == "top"
    }
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {re.split(r"[^\w-]", each)[0] for each in project["dependencies"]}
    assert needed - sys.stdlib_module_names - {PACKAGE} | LOADED_LATE == declared


def test_the_package_is_marked_as_typed() -> None:
    assert (REPO / PACKAGE / "py.typed").exists()


# --- the checker itself: each rule is shown to bite on a made-up tree ----------------------------------------------------
def plant(root: Path, files: dict[str, str]):
    for name, source in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, "utf-8")
    return read_modules(root, "p")


HEALTHY = {
    "p/__init__.py": "from .table import Table\n",
    "p/errors.py": "class E(Exception): ...\n",
    "p/core/__init__.py": "",
    "p/core/low.py": "import re\nfrom ..errors import E\n",
    "p/core/high.py": "from . import low\nfrom .low import thing\n",
    "p/table.py": "from p.core.high import other\n\ndef f():\n    from .spark import writer\n",
    "p/spark/__init__.py": "",
    "p/spark/writer.py": "import pyspark.sql\nfrom ..core import low\n",
}
SMALL_ARROWS = {"errors": set(), "core": {"errors"}, "spark": {"core", "errors"}, "table": {"core", "errors", "spark"}, "": {"table"}}


def all_rules(tree) -> list[str]:
    return [
        *broken_arrows(tree, "p", SMALL_ARROWS), *broken_order(tree, "p.core", [{"low"}, {"high"}]), *circles(tree, "p"),
        *outside_imports(tree, "p.core", {"re", "datetime"}), *impure_calls(tree, "p.core", PURE_MAY_NOT_CALL),
        *uninvited(tree, "pyspark", {"spark": {"top"}, "table": {"late", "typing"}}),
        *uninvited({n: m for n, m in tree.items() if not n.startswith("p.spark")}, "p.spark", {"table": {"late"}}),
        *too_long(tree, module_lines=20, function_lines=5), *crowded(tree, most=2), *banned_names(tree, BANNED_WORDS),
        *silent_ignores(tree), *foreign_privates(tree, {"p.spark.writer"}),
    ]  # fmt: skip


def test_a_healthy_tree_passes(tmp_path: Path) -> None:
    assert all_rules(plant(tmp_path, HEALTHY)) == []


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("p/core/low.py", "from p.table import Table\n", "core may not import table"),
        ("p/core/low.py", "from .. import table\n", "core may not import table"),
        ("p/core/low.py", "import p.table as t\n", "core may not import table"),
        ("p/core/low.py", "def f():\n    from ..spark.writer import w\n", "core may not import spark"),
        ("p/core/low.py", "from ..errors import E\nimport p\n", "core may not import p (p)"),
        ("p/attic.py", "", "'attic' has no arrows"),
        ("p/core/low.py", "from .high import other\n", "not on a lower floor"),
        ("p/core/stray.py", "", "p.core.stray: is on no floor"),
        ("p/core/stray.py", "", "p.core: 3 modules, more than 2"),
        ("p/core/low.py", "from .high import other\n", "a circle: p.core.high -> p.core.low -> p.core.high"),
        ("p/core/low.py", "import os.path\n", "pure and may not import os.path"),
        ("p/core/low.py", "from time import monotonic\n", "pure and may not import time.monotonic"),
        ("p/core/low.py", "def f():\n    import secrets\n", "pure and may not import secrets"),
        ("p/core/low.py", "import datetime\nx = datetime.datetime.now()\n", "may not call datetime.datetime.now"),
        ("p/core/low.py", "from datetime import datetime\nx = datetime.now()\n", "may not call datetime.now"),
        ("p/core/low.py", "x = open('f').read()\n", "may not call open"),
        ("p/errors.py", "import pyspark\n", "errors may not import pyspark here (top)"),
        ("p/table.py", "from pyspark.sql import DataFrame\n", "table may not import pyspark here (top)"),
        ("p/table.py", "from . import spark\n", "table may not import p.spark here (top)"),
        ("p/table.py", "def long():\n" + "    x = 1\n" * 6, "long has 6 lines, more than 5"),
        ("p/table.py", "x = 1\n" * 21, "p.table: 21 lines, more than 20"),
        ("p/table.py", "class CommitManager: ...\n", "CommitManager: a name that says nothing"),
        ("p/table.py", "def handle_error(): ...\n", "handle_error: a name that says nothing"),
        ("p/table.py", "def f(df):\n    return df._jdf\n", "df._jdf is private to others"),
        ("p/table.py", "x = 1  # type: ignore\n", "without its code and its reason"),
        ("p/table.py", "x = 1  # type: ignore[misc]\n", "without its code and its reason"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, name: str, source: str, said: str) -> None:
    found = all_rules(plant(tmp_path, HEALTHY | {name: source}))
    assert [sentence for sentence in found if said in sentence], found


@pytest.mark.parametrize(
    "source",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pyspark.sql import DataFrame\n",
        "def f():\n    import pyspark\n",
        "class C:\n    def f(self, other):\n        self._x = 1\n        return other._x\n",
        "x = 1  # type: ignore[misc]  # the library has no types\n",
        "class Handler: ...\ndef reprocessed(): ...\n",
    ],
)
def test_what_is_allowed_is_not_found(tmp_path: Path, source: str) -> None:
    assert all_rules(plant(tmp_path, HEALTHY | {"p/table.py": source})) == []


def test_a_module_that_is_gone_leaves_its_floor(tmp_path: Path) -> None:
    tree = plant(tmp_path, {name: source for name, source in HEALTHY.items() if name != "p/core/high.py"})
    assert "p.core.high: has a floor in p.core, but is not there" in all_rules(tree)
