"""What a pickled Python function is made of: its bytes, the modules that it may import, the packages that are installed. [AB6]

Two functions with one digest are the same code. Nothing is imported or unpickled to find out. What a function reads when it runs
(files, clocks, services) is not code and not seen.
Not here: where the functions stand in a plan (fingerprint).
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import pickletools
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import msgspec

# Which release of Spark runs is part of the plan's fingerprint; its Python half may lie anywhere.
_COVERED = frozenset(sys.stdlib_module_names) | {"pyspark", "py4j", "__main__"}


class NotUnderstoodError(Exception):
    """It cannot be known that this is the same work in another run; the text says because of what."""


def code_digest(pickled: bytes) -> str:
    """The same only for the same function, imports and installed packages; NotUnderstoodError where one cannot be looked into. [AB6]"""
    sources = _Sources()
    for name in sorted(_texts(pickled)):
        sources.add(name)
        if name in sys.modules and not sources.knows(name):
            raise NotUnderstoodError(f"a Python function refers to the module {name!r}, whose source cannot be found")
    said = [hashlib.sha256(pickled).hexdigest(), sorted(sources.digests.items()), _environment()]
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()


class _Sources:
    """Modules outside of the standard library and of installed packages, with the digests of their files, and of all that they import."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self._found: dict[str, ModuleSpec | None] = {}

    def knows(self, name: str) -> bool:
        """Whether it was found, or needs no search."""
        top = self._found.get(name.partition(".")[0])
        return _is_covered(name) or self._found.get(name) is not None or (top is not None and _is_installed(top))

    def add(self, name: str) -> None:
        """Take in a module by its dotted name, its packages, and what they import; a name that is no module's changes nothing."""
        waiting = [name]
        while waiting:
            for spec in self._along(waiting.pop()):
                if spec.name in self.digests or _is_installed(spec):
                    continue
                waiting += self._read(spec)

    def _along(self, name: str) -> Iterator[ModuleSpec]:
        """The packages above the module, and the module; as far as they are there: what follows may be a name inside of it."""
        parts = name.split(".")
        if _is_covered(name) or not all(part.isidentifier() for part in parts):
            return
        path: Sequence[str] | None = None
        for count in range(1, len(parts) + 1):
            full = ".".join(parts[:count])
            if full not in self._found:
                self._found[full] = _search(full, path)
            spec = self._found[full]
            if spec is None:
                return
            yield spec
            if spec.submodule_search_locations is None or _is_installed(spec):
                return
            path = list(spec.submodule_search_locations)

    def _read(self, spec: ModuleSpec) -> list[str]:
        if spec.origin is None and spec.submodule_search_locations is not None:
            self.digests[spec.name] = ""  # a namespace: no code of its own
            return []
        try:
            data = Path(spec.origin or "").read_bytes()
            self.digests[spec.name] = hashlib.sha256(data).hexdigest()
            return list(_imports(ast.parse(data), spec)) if (spec.origin or "").endswith(".py") else []
        except (OSError, SyntaxError, ValueError) as error:
            raise NotUnderstoodError(f"a Python function refers to the module {spec.name!r}, which cannot be read: {error}") from None


def _texts(pickled: bytes) -> set[str]:
    """Every text in it: names of modules are among them, whether it refers to one as a value, by an attribute, or imports it inside."""
    try:
        found = {argument for _, argument, _ in pickletools.genops(pickled) if isinstance(argument, str)}
    except ValueError as error:
        raise NotUnderstoodError(f"a Python function's pickle cannot be read: {error}") from None
    return found | {word for text in found for word in text.split(" ")}  # the old opcode has module and name in one


def _search(full: str, path: Sequence[str] | None) -> ModuleSpec | None:
    loaded = getattr(sys.modules.get(full), "__spec__", None)
    if isinstance(loaded, ModuleSpec):
        return loaded
    try:
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if find_spec is not None and isinstance(spec := find_spec(full, path), ModuleSpec):
                return spec
    except Exception as error:  # whatever a finder raises, of Python or of others; below a namespace that was never imported Python does
        raise NotUnderstoodError(f"a Python function may refer to the module {full!r}, which cannot be looked for: {error!r}") from None
    return None


def _imports(tree: ast.AST, spec: ModuleSpec) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = spec.name.split(".") if spec.submodule_search_locations is not None else spec.name.split(".")[:-1]
                above = package[: len(package) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _is_covered(name: str) -> bool:
    return name.partition(".")[0] in _COVERED


def _is_installed(spec: ModuleSpec) -> bool:
    """Whether it is of a package whose release stands for its code; one that is installed to be edited is not."""
    if spec.name.partition(".")[0] not in _distributions():
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return all(any(Path(place).is_relative_to(folder) for folder in _installed_folders()) for place in places)


@functools.cache
def _installed_folders() -> frozenset[str]:
    return frozenset(sysconfig.get_paths()[name] for name in ("purelib", "platlib"))


@functools.cache
def _distributions() -> frozenset[str]:
    return frozenset(importlib.metadata.packages_distributions())


@functools.cache
def _environment() -> tuple[str, ...]:
    installed = sorted({f"{each.name} {each.version}" for each in importlib.metadata.distributions()})
    return (sys.version, *installed)
