"""The modules that decide by a column's type: what a new type has to be added to, or left out of on purpose.

`python -m tests.project.type_tables` prints them with the types that each names.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

from manifestcommit.format.fields import EXACT, FLOATS, INTEGERS, MOMENTS, PRIMITIVES

PACKAGE = Path(__file__).resolve().parents[2] / "manifestcommit"
LEAST = 3  # types that a module names; one or two are no table
_SPARK = {f"{name.title()}Type".replace("Timestamp_NtzType", "TimestampNTZType"): name for name in PRIMITIVES}
_ARROW = {
    "is_binary": "binary", "is_boolean": "boolean", "is_date32": "date", "is_floating": "double", "is_integer": "integer",
    "is_signed_integer": "integer", "is_string": "string", "is_timestamp": "timestamp",
}  # fmt: skip

_GROUPS = {"PRIMITIVES": PRIMITIVES, "EXACT": EXACT, "FLOATS": FLOATS, "INTEGERS": INTEGERS, "MOMENTS": MOMENTS}


def types_named(source: str) -> frozenset[str]:
    """The primitive types that a module names: as this package, as Spark, or as Arrow spells them, or by a group of them."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(_SPARK.get(node.value, node.value))
        elif isinstance(node, ast.Attribute):
            found.add(_ARROW.get(node.attr, ""))
        elif isinstance(node, ast.Name):
            found.update(_GROUPS.get(node.id, ()))
    return frozenset(PRIMITIVES.keys() & found)


def type_tables() -> Mapping[str, frozenset[str]]:
    """Module, below the package -> the types that it names."""
    named = {path.relative_to(PACKAGE).as_posix(): types_named(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    return {module: types for module, types in named.items() if len(types) >= LEAST}


if __name__ == "__main__":
    for module, types in type_tables().items():
        print(f"manifestcommit/{module}: {' '.join(sorted(types))}")
