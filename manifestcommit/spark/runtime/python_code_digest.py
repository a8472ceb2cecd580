"""A digest of a pickled Python function: its bytes, the modules that it may import, and the
installed packages. [AB6]

Two functions with one digest have the same code. Nothing is imported or run to compute it. It does
not cover what a function reads when it runs: files, clocks, services, code that it builds from
texts. Not here: where the functions occur in a plan (spark.write.plan_fingerprint).
"""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import importlib.metadata
import io
import pickle
import pickletools
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec

# Spark's release is part of the plan's fingerprint; its Python part may be installed anywhere.
_BY_NAME = frozenset({"pyspark", "py4j", "__main__"})
_IMPORTERS = frozenset({"import_module", "__import__"})
_SITES = frozenset({"site-packages", "dist-packages"})
# Operations of a pickle: what pushes a text, and how an object is remembered and recalled.
_TEXTS = dict.fromkeys(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"), "text")
_TEXTS |= dict.fromkeys(("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"), "bytes")
_REMEMBERS = frozenset({"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"})
_RECALLS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_COMPUTED = "imports modules by names that it computes"


class NotUnderstoodError(Exception):
    """It is unknown whether this is the same work in another run; the text gives the reason."""


def code_digest(pickled: bytes) -> str:
    """Equal only for the same function, imports and installed packages; NotUnderstoodError if one
    of them cannot be examined. [AB6]"""
    sources = _Sources()
    texts = _texts(pickled)
    if not texts.isdisjoint(_IMPORTERS):
        raise NotUnderstoodError(f"a Python function {_COMPUTED}")
    for name, needed in sorted({pair for code in _codes(pickled) for pair in _imported(code)}):
        sources.add(name, needed=needed)
    for name in sorted(texts):
        sources.add(name)
        if name in sys.modules and not sources.knows(name):
            raise NotUnderstoodError(
                f"a Python function refers to the module {name!r}, whose source cannot be found"
            )
    said = [_pickle_digest(pickled), sorted(sources.digests.items()), _environment()]
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()


class _Sources:
    """Modules outside of the standard library and of installed packages, with the digests of their
    files, and of all their imports."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self._found: dict[str, ModuleSpec | None] = {}

    def knows(self, name: str) -> bool:
        """Whether it was found already, or needs no search; a module of the standard library may
        exist only on other machines."""
        top = name.partition(".")[0]
        if (found := self._found.get(top)) is None:
            return top in _BY_NAME or top in sys.stdlib_module_names
        return self._found.get(name) is not None or _is_covered(found)

    def add(self, name: str, *, needed: bool = False) -> None:
        """Add a module by its dotted name, its packages, and their imports; a name that is not a
        module's changes nothing.

        needed: it is known to be imported, so one that is missing here may be anything in the
        workers.
        """
        waiting = [(name, needed)]
        while waiting:
            name, needed = waiting.pop()
            for spec in self._along(name):
                if spec.name in self.digests or _is_covered(spec):
                    continue
                waiting += self._read(spec)
            if needed and not self.knows(name):
                raise NotUnderstoodError(
                    f"a Python function imports the module {name!r}, which this process does "
                    "not find"
                )

    def _along(self, name: str) -> Iterator[ModuleSpec]:
        """The packages above the module, and the module, as far as they exist: the rest may be a
        name inside it."""
        parts = name.split(".")
        if parts[0] in _BY_NAME or not all(part.isidentifier() for part in parts):
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
            if spec.submodule_search_locations is None or _is_covered(spec):
                return
            path = list(spec.submodule_search_locations)

    def _read(self, spec: ModuleSpec) -> Sequence[tuple[str, bool]]:
        is_package = spec.submodule_search_locations is not None
        if spec.origin is None and is_package:
            self.digests[spec.name] = ""  # a namespace: it has no code of its own
            return ()
        try:
            data = Path(spec.origin or "").read_bytes()
            self.digests[spec.name] = hashlib.sha256(data).hexdigest()
            return (
                _read_imports(data, spec.name, is_package)
                if (spec.origin or "").endswith(".py")
                else ()
            )
        except (OSError, SyntaxError, ValueError) as error:
            raise NotUnderstoodError(
                f"a Python function refers to the module {spec.name!r}, which cannot be "
                f"read: {error}"
            ) from None


def _pickle_digest(pickled: bytes) -> str:
    """The digest of what the pickle holds, whichever of its equal texts are one object.

    That differs between a module that was compiled and the same module from the bytecode cache: a
    pickle refers back to a text that it has seen, and repeats one that is only equal to it.
    """
    digest = hashlib.sha256()
    last: tuple[str, Any] = ("", None)
    memo: dict[int, tuple[str, Any]] = {}
    objects = 0
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name in ("PROTO", "FRAME"):  # a frame tells how long it is
            continue
        if opcode.name in _REMEMBERS:
            is_text = last[0] in _TEXTS.values()
            memo[len(memo) if argument is None else int(argument)] = (
                last if is_text else ("", objects)
            )
            objects += not is_text
            continue
        last = (
            memo[int(argument or 0)]
            if opcode.name in _RECALLS
            else (_TEXTS.get(opcode.name, opcode.name), argument)
        )
        digest.update(f"{last!r}\n".encode())
    return digest.hexdigest()


def _texts(pickled: bytes) -> set[str]:
    """Every text in the pickle. The names of modules are among them, whether it refers to one as a
    value, by an attribute, or imports it inside."""
    try:
        found = {
            argument for _, argument, _ in pickletools.genops(pickled) if isinstance(argument, str)
        }
    except ValueError as error:
        raise NotUnderstoodError(f"a Python function's pickle cannot be read: {error}") from None
    # the old opcode has module and name in one
    return found | {word for text in found for word in text.split(" ")}


def _search(full: str, path: Sequence[str] | None) -> ModuleSpec | None:
    loaded = getattr(sys.modules.get(full), "__spec__", None)
    if isinstance(loaded, ModuleSpec):
        return loaded
    try:
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if find_spec is not None and isinstance(spec := find_spec(full, path), ModuleSpec):
                return spec
    # any error of a finder, Python's or another; below a namespace that was never imported Python
    # raises one itself
    except Exception as error:
        raise NotUnderstoodError(
            f"a Python function may refer to the module {full!r}, which cannot be looked "
            f"for: {error!r}"
        ) from None
    return None


def _codes(pickled: bytes) -> list[CodeType]:
    """All code in the pickle, including functions inside functions."""
    found: list[CodeType] = []

    class Anything:
        """Replaces everything that a pickle names: it accepts all calls and does nothing, but keeps
        the arguments of code objects."""

        def __new__(cls, *given: Any, **named: Any) -> Anything:
            # the arguments of CodeType: the code, its constants, its names
            if len(given) > 8 and isinstance(given[6], bytes):
                constants = tuple(
                    None if isinstance(constant, Anything) else constant for constant in given[7]
                )
                found.append(CodeType(*given[:7], constants, *given[8:]))  # type: ignore[call-arg, unused-ignore]  # more each release
            return object.__new__(cls)

        def __call__(self, *given: Any) -> Any:
            return Anything(*given)

        def _take(self, *given: Any) -> None:
            pass

        append = extend = add = update = __setitem__ = __setstate__ = _take

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            return Anything

    try:
        Reader(io.BytesIO(pickled)).load()
    except Exception as error:  # whatever the pickle contains
        raise NotUnderstoodError(f"a Python function's pickle cannot be read: {error}") from None
    return found


def _imported(code: CodeType) -> Iterator[tuple[str, bool]]:
    """The names that the code may import, and whether it certainly does: the others may be names
    inside the module."""
    base = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            base = instruction.argval
            yield base, True
        elif instruction.opname == "IMPORT_FROM":
            yield f"{base}.{instruction.argval}", False


@functools.lru_cache(maxsize=2048)  # the functions of one plan often reach the same modules
def _read_imports(source: bytes, module: str, is_package: bool) -> tuple[tuple[str, bool], ...]:
    return tuple(dict.fromkeys(_imports(ast.parse(source), module, is_package)))


def _imports(tree: ast.AST, own: str, is_package: bool) -> Iterator[tuple[str, bool]]:
    """The same for a module's source; and texts that look like a module's name, since they may be
    used to import it. own: the module's name."""
    plain: set[int] = set()
    for node in ast.walk(tree):  # it reaches a call before it reaches what is called
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, True) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = module or ""
                if level:
                    package = own.split(".") if is_package else own.split(".")[:-1]
                    above = package[: len(package) - level + 1]
                    base = ".".join([*above, base] if base else above)
                yield base, True
                yield from ((f"{base}.{alias.name}", False) for alias in names)
            case ast.Call(
                func=ast.Name() | ast.Attribute() as called,
                args=[ast.Constant(value=str() as name)],
                keywords=[],
            ):
                if (
                    called.id if isinstance(called, ast.Name) else called.attr
                ) in _IMPORTERS and not name.startswith("."):
                    plain.add(id(called))
                    yield name, True
            case ast.Constant(value=str() as name) if "." in name:
                yield name, False
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name, asname=str()):
                if name in _IMPORTERS and id(node) not in plain:
                    raise NotUnderstoodError(
                        f"the module {own!r}, which a Python function refers to, {_COMPUTED}"
                    )


def _is_covered(spec: ModuleSpec) -> bool:
    """Whether it belongs to Python itself, or to a package that records its files; an editable
    install does not."""
    if spec.origin in ("built-in", "frozen"):
        return True
    top = spec.name.partition(".")[0]
    # "" is nowhere
    places = [
        Path(place)
        for place in ([spec.origin] if spec.origin else spec.submodule_search_locations or [""])
    ]
    installed = top in _distributions() and all(
        any(path.is_relative_to(folder) for folder in _folders("purelib", "platlib"))
        for path in places
    )
    return installed or all(
        any(path.is_relative_to(folder) for folder in _folders("stdlib", "platstdlib"))
        and _SITES.isdisjoint(path.parts)
        for path in places
    )


@functools.cache
def _folders(*names: str) -> frozenset[str]:
    return frozenset(sysconfig.get_paths()[name] for name in names)


@functools.cache
def _distributions() -> frozenset[str]:
    """The modules of packages that were installed with the hashes of their files."""
    bare = {
        installed.name
        for installed in importlib.metadata.distributions()
        if not installed.read_text("RECORD")
    }
    return frozenset(
        top
        for top, names in importlib.metadata.packages_distributions().items()
        if bare.isdisjoint(names)
    )


def _environment() -> tuple[str, ...]:
    """Python's release, and the installed packages: the hashes of all files except those that name
    their installation folder."""
    records = (
        installed.read_text("RECORD") or f"{installed.name} {installed.version}"
        for installed in importlib.metadata.distributions()
    )
    kept = (
        [
            line
            for line in record.splitlines()
            if not line.startswith("../") and "/direct_url.json," not in line
        ]
        for record in records
    )
    return (
        sys.version,
        *sorted({hashlib.sha256("\n".join(lines).encode()).hexdigest() for lines in kept}),
    )
