"""The modules that decide by a column's type: what a new type has to be added to, or left out of on purpose.

`python -m tests.project.type_tables` prints them with the lines and the types that each names.
"""

import ast
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from manifestcommit.format.fields import EXACT, FLOATS, INTEGERS, MOMENTS, PRIMITIVES

PACKAGE = Path(__file__).resolve().parents[2] / "manifestcommit"
LEAST = 2  # types that a module names; one is no table
_SPARK = {f"{name.title()}Type".replace("Timestamp_NtzType", "TimestampNTZType"): name for name in PRIMITIVES}
_ARROW = {
    "is_binary": "binary", "is_boolean": "boolean", "is_date32": "date", "is_floating": "double", "is_integer": "integer",
    "is_signed_integer": "integer", "is_string": "string", "is_timestamp": "timestamp",
}  # fmt: skip

_GROUPS = {"PRIMITIVES": PRIMITIVES, "EXACT": EXACT, "FLOATS": FLOATS, "INTEGERS": INTEGERS, "MOMENTS": MOMENTS}


def _named(node: ast.expr) -> Iterable[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [_SPARK.get(node.value, node.value)]
    if isinstance(node, ast.Attribute):
        return [_ARROW.get(node.attr, "")]
    return _GROUPS.get(node.id, ()) if isinstance(node, ast.Name) else ()


def types_named(source: str) -> dict[str, list[int]]:
    """Primitive type -> the lines that name it: as this package, as Spark, or as Arrow spells it, or by a group."""
    found: dict[str, list[int]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.expr):
            for name in PRIMITIVES.keys() & _named(node):
                found.setdefault(name, []).append(node.lineno)
    return found


def type_tables() -> Mapping[str, dict[str, list[int]]]:
    """Module, below the package -> the types that it names, and where."""
    named = {path.relative_to(PACKAGE).as_posix(): types_named(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    return {module: types for module, types in named.items() if len(types) >= LEAST}


if __name__ == "__main__":
    for module, types in type_tables().items():
        lines = sorted({line for each in types.values() for line in each})
        starts = [line for before, line in pairwise([0, *lines]) if line > before + 3]  # of what stands together the first
        print(f"manifestcommit/{module}:{','.join(map(str, starts))}: {' '.join(sorted(types))}")
