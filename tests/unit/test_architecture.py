"""The folders are the architecture: who may import whom, what core may touch, how long a thing may be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture import (
    banned_names,
    broken_arrows,
    broken_order,
    circles,
    impure_calls,
    outside_imports,
    read_modules,
    silent_ignores,
    too_long,
    uninvited,
)

REPO = Path(__file__).resolve().parents[2]
PACKAGE = "manifestcommit"

# Room -> the rooms that it may import. "" is the package's own __init__, the face.
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "version": set(),
    "progress": set(),
    "render": set(),
    "core": {"errors"},
    "store": {"errors"},
    "engine": {"errors", "version", "core", "store"},
    "telemetry": {"render", "engine"},
    "spark": {"errors", "version", "core", "store", "engine"},
    "testing": {"errors", "version", "core", "store", "engine"},
    "job": {"errors", "version", "progress", "core", "store", "engine", "spark"},
    "compaction": {"errors", "core", "store", "engine", "spark", "job"},
    "table_rows": {"errors", "progress", "store", "engine", "spark", "job"},
    "table": {"errors", "version", "progress", "core", "store", "engine", "spark", "job", "compaction", "telemetry", "table_rows"},
    "": {"errors", "version", "engine", "spark", "job", "table"},
    "cli": {
        "",
        "errors",
        "version",
        "progress",
        "render",
        "table",
        "cli_figures",
        "cli_adopt",
        "cli_verify",
        "cli_gc",
        "cli_compact",
        "cli_history",
        "cli_rows",
    },
    "cli_figures": {"errors", "render", "engine"},
    "cli_adopt": {"render", "engine"},
    "cli_verify": {"progress", "render", "engine"},
    "cli_history": {"errors", "render", "engine"},
    "cli_rows": {"render", "engine"},
    "cli_gc": {"progress", "render", "engine"},
    "cli_compact": {"progress", "render", "engine"},
    "__main__": {"cli"},
    "demo": {"", "errors", "store", "table", "spark", "demo_month"},
    "demo_month": {"", "errors", "table", "spark"},
}

# Within core: a module imports from floors below its own, so there can be no circle.
CORE_FLOORS: list[set[str]] = [
    {"packing", "text"},
    {"bitmap", "manifest", "paths", "predicate", "schema", "unknown", "watermark"},
    {"snapshot", "spark_types", "expression", "touch"},
    {"arrow", "compaction", "draft", "recovery", "spill"},
    {"conform", "evolution", "values"},
    {"change", "feed", "keys", "manifest_table", "partition", "reads"},
    {"format", "hive", "layout", "stream"},
    {"audit", "conflict", "retention"},
    {"intent"},
]

# All that core may use: nothing of it reads a clock, draws a number, or opens anything that it was not given.
CORE_MAY_IMPORT = {
    "__future__", "abc", "base64", "binascii", "bisect", "collections", "contextlib", "copy", "dataclasses", "datetime",
    "decimal", "difflib", "enum", "functools", "hashlib", "io.BytesIO", "itertools", "json", "math", "numbers", "operator", "re",
    "string", "struct", "sys", "types", "typing", "unicodedata", "urllib.parse", "zlib", "msgspec", "numpy", "pyarrow", "zstandard",
}  # fmt: skip
CORE_MAY_NOT_IMPORT_OF_THESE = {"pyarrow.fs", "pyarrow.flight", "pyarrow.csv", "pyarrow.feather", "numpy.random"}
CORE_MAY_NOT_CALL = {
    "open", "print", "input", "exec", "eval", "__import__", "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
    "pa.memory_map", "pa.OSFile", "pa.output_stream", "pyarrow.memory_map", "pyarrow.OSFile",
}  # fmt: skip

# Room -> when it may import pyspark. The rooms that hand a DataFrame on know its type, and no more.
PYSPARK_GUESTS = {
    "spark": {"top", "late", "typing"},
    "job": {"late", "typing"},
    "compaction": {"late", "typing"},
    "table": {"late", "typing"},
    "table_rows": {"late", "typing"},
    "": {"typing"},
    "demo": {"late", "typing"},
    "demo_month": {"late", "typing"},
}

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


def test_core_is_built_in_floors(ours) -> None:
    none(broken_order(ours, f"{PACKAGE}.core", CORE_FLOORS))


def test_nothing_imports_itself_round_a_corner(ours) -> None:
    none(circles(ours, PACKAGE))


def test_core_is_pure(ours) -> None:
    none(outside_imports(ours, f"{PACKAGE}.core", CORE_MAY_IMPORT))
    none(impure_calls(ours, f"{PACKAGE}.core", CORE_MAY_NOT_CALL))
    for library in CORE_MAY_NOT_IMPORT_OF_THESE:
        none(uninvited({n: m for n, m in ours.items() if n.startswith(f"{PACKAGE}.core")}, library, {}))


def test_only_spark_knows_pyspark(ours) -> None:
    none(uninvited(ours, "pyspark", PYSPARK_GUESTS))
    none(uninvited(ours, "py4j", PYSPARK_GUESTS))


def test_spark_is_reached_late(ours) -> None:
    """What imports the spark room does so inside functions: `import manifestcommit` needs no Spark."""
    above = {name: module for name, module in ours.items() if not name.startswith(f"{PACKAGE}.spark")}
    guests = {room: {"late", "typing"} for room in ("", "job", "compaction", "table", "table_rows", "demo", "demo_month")}
    none(uninvited(above, f"{PACKAGE}.spark", guests))


def test_a_function_fits_a_screen_and_a_module_is_one_room(modules) -> None:
    none(too_long(modules, module_lines=500, function_lines=70))


def test_names_say_something(modules) -> None:
    none(banned_names(modules, BANNED_WORDS))


def test_every_type_ignore_has_its_reason(modules) -> None:
    none(silent_ignores(modules))


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = f"import json, sys; import {PACKAGE}; print(json.dumps(sorted(m.partition('.')[0] for m in sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], cwd=REPO, capture_output=True, text=True, check=True)
    loaded = set(json.loads(result.stdout))
    assert PACKAGE in loaded
    assert not loaded & {"pyspark", "py4j", "s3fs", "gcsfs", "adlfs", "aiobotocore", "pandas", "polars", "duckdb", "opentelemetry"}


def test_what_the_package_needs_is_installed_with_it(ours) -> None:
    """Without an extra, `pip install` brings whatever is imported as the package is: else its first line fails at the user's."""
    of_extras = ("spark", "demo", "demo_month", "store.s3_session")
    needed = {
        found.target.partition(".")[0]
        for name, module in ours.items()
        if not name.removeprefix(f"{PACKAGE}.").startswith(of_extras)
        for found in module.imports
        if found.when == "top"
    }
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {re.split(r"[^\w-]", each)[0] for each in project["dependencies"]}
    assert needed - sys.stdlib_module_names - {PACKAGE} == declared


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
SMALL_ARROWS = {
    "errors": set(),
    "core": {"errors"},
    "spark": {"core", "errors"},
    "table": {"core", "errors", "spark"},
    "": {"table"},
}


def all_rules(tree) -> list[str]:
    return [
        *broken_arrows(tree, "p", SMALL_ARROWS),
        *broken_order(tree, "p.core", [{"low"}, {"high"}]),
        *circles(tree, "p"),
        *outside_imports(tree, "p.core", {"re", "datetime"}),
        *impure_calls(tree, "p.core", CORE_MAY_NOT_CALL),
        *uninvited(tree, "pyspark", {"spark": {"top"}, "table": {"late", "typing"}}),
        *uninvited({n: m for n, m in tree.items() if not n.startswith("p.spark")}, "p.spark", {"table": {"late"}}),
        *too_long(tree, module_lines=20, function_lines=5),
        *banned_names(tree, BANNED_WORDS),
        *silent_ignores(tree),
    ]


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
        ("p/table.py", "def long():\n" + "    x = 1\n" * 6, "long has 7 lines, more than 5"),
        ("p/table.py", "x = 1\n" * 21, "p.table: 21 lines, more than 20"),
        ("p/table.py", "class CommitManager: ...\n", "CommitManager: a name that says nothing"),
        ("p/table.py", "def handle_error(): ...\n", "handle_error: a name that says nothing"),
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
        "x = 1  # type: ignore[misc]  # the library has no types\n",
        "class Handler: ...\ndef reprocessed(): ...\n",
    ],
)
def test_what_is_allowed_is_not_found(tmp_path: Path, source: str) -> None:
    assert all_rules(plant(tmp_path, HEALTHY | {"p/table.py": source})) == []


def test_a_module_that_is_gone_leaves_its_floor(tmp_path: Path) -> None:
    tree = plant(tmp_path, {name: source for name, source in HEALTHY.items() if name != "p/core/high.py"})
    assert "p.core.high: has a floor in p.core, but is not there" in all_rules(tree)
