"""Starting is cheap: what a fresh interpreter has loaded after `import manifestcommit`, `manifestcommit --version` and `--help`.

By what is loaded, never by seconds, which depend on the machine.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import manifestcommit
import manifestcommit as mc

REPO = Path(__file__).resolve().parents[2]

OF_EXTRAS = {"pyspark", "py4j", "botocore", "google", "azure", "urllib3", "pandas", "polars", "duckdb", "opentelemetry"}


def loaded(code: str) -> set[str]:
    """The modules that the code has loaded, beyond those that an interpreter here loads by itself."""
    before = "import sys; at_start = set(sys.modules); import json; "
    after = "\nsys.stderr.write(json.dumps(sorted(set(sys.modules) - at_start)))"
    done = subprocess.run([sys.executable, "-c", before + code + after], cwd=REPO, capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr))


def roots(modules: set[str]) -> set[str]:
    """The top-level packages of these modules that do not come with Python."""
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names


def test_importing_the_package_loads_nothing_else() -> None:
    assert roots(loaded("import manifestcommit")) == {"manifestcommit"}


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["gc", "--help"], ["compact", "--help"]], ids=" ".join)
def test_the_command_line_loads_a_table_only_for_a_command(arguments: list[str]) -> None:
    found = loaded(
        f"from manifestcommit.cli.main import main\ntry: main({arguments})\nexcept SystemExit as end: assert end.code in (None, 0)"
    )
    assert "manifestcommit.cli.main" in found
    assert roots(found) <= {"manifestcommit", "msgspec", "typing_extensions"}
    assert not found & {"manifestcommit.table", "manifestcommit.job"}


@pytest.mark.thorough
def test_rich_is_loaded_for_a_terminal_only(tmp_path: Path) -> None:
    """Neither a write nor a command whose output nobody looks at loads it."""
    found = loaded(
        f"import manifestcommit as mc, pyarrow as pa\nmc.write(pa.table({{'a': [1]}}), {str(tmp_path / 't')!r})\n"
        f"from manifestcommit.cli.main import main\nfor verb in ('history', 'describe', 'verify'): main([verb, {str(tmp_path / 't')!r}])"
    )
    assert "manifestcommit.terminal" in found and not roots(found) & {"rich", "IPython"}


@pytest.mark.thorough
def test_the_first_name_loads_no_extra() -> None:
    found = loaded("import manifestcommit\nmanifestcommit.write")
    assert "pyarrow" in found
    assert not roots(found) & OF_EXTRAS


@pytest.mark.thorough
def test_small_row_changes_load_no_module_for_scans(path: str) -> None:
    """Loading pyarrow.dataset takes longer than deleting a row; fsspec is for other stores. [RC8]"""
    for ids in ([1, 2, 3], [4, 5, 6]):
        mc.write(pa.table({"id": ids}), path)
    change = "t.delete('id = 1'); t.update({'id': 'id + 10'}, where='id = 2'); t.compact()"
    found = loaded(f"import manifestcommit as mc\nt = mc.Table({path!r})\n{change}")
    assert sorted(mc.Table(path).to_arrow().column("id").to_pylist()) == [3, 4, 5, 6, 12]
    assert "pyarrow.parquet" in found and not found & {"pyarrow.dataset", "fsspec", "asyncio"}


@pytest.mark.thorough
def test_sqlglot_is_loaded_at_the_first_text_only(path: str) -> None:
    """Its import takes longer than a small commit."""
    code = (
        f"import manifestcommit as mc, pyarrow as pa, pyarrow.compute as pc\nmc.write(pa.table({{'id': [1, 2]}}), {path!r})\n"
        f"t = mc.Table({path!r})\nt.delete(pc.field('id') == 1)\nt.to_arrow(filter=pc.field('id') > 1)"
    )
    assert "sqlglot" not in roots(loaded(code))
    assert "sqlglot" in roots(loaded(code + "\nt.to_arrow(filter='id > 1')"))


@pytest.mark.thorough
@pytest.mark.parametrize("module", ["spark.datasource", "spark.scan", "spark.writing"])
def test_workers_of_spark_load_no_public_names(module: str) -> None:
    """Each of Spark's Python workers imports one of these; the public calls are for drivers."""
    found = loaded(f"import manifestcommit.{module}")
    assert f"manifestcommit.{module}" in found
    assert not found & {"manifestcommit.table", "manifestcommit.cli"}


def test_every_public_name_is_there_and_listed() -> None:
    assert {"write", "Table", "Outcome", "__version__"} <= set(mc.__all__) <= set(dir(mc))
    assert sorted(mc.__all__) == mc.__all__ and len(set(mc.__all__)) == len(mc.__all__)
    scope: dict[str, object] = {}
    exec("from manifestcommit import *", scope)
    assert {name: scope[name] for name in mc.__all__} == {name: getattr(mc, name) for name in mc.__all__}


def test_submodules_are_there_when_they_are_named() -> None:
    assert "manifestcommit.errors" in loaded("import manifestcommit\nmanifestcommit.errors.UsageError")


def test_a_submodule_is_imported_without_the_public_names() -> None:
    found = loaded("import manifestcommit.errors")
    assert "manifestcommit.errors" in found and "manifestcommit.job" not in found


@pytest.mark.thorough
def test_a_name_is_found_while_another_thread_is_about_to_set_the_modules_attribute() -> None:
    """importlib marks a module as loaded a moment before it sets the attribute of its package."""
    moment = "import manifestcommit as mc\nmc.write\ndel mc.job, mc.write\nassert callable(mc.write) and 'gc' in dir(mc)"
    assert "manifestcommit.job" in loaded(moment)


def test_each_public_name_is_where_type_checkers_are_told() -> None:
    tree = ast.parse((REPO / "manifestcommit" / "__init__.py").read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    names = [(name, node.module) for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names]
    assert {name.asname: module for name, module in names if name.asname == name.name} == manifestcommit._HOME_OF


@pytest.mark.parametrize("name", ["wirte", "checked", "__wrapped__", "gc_"])
def test_a_name_that_does_not_exist_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'manifestcommit' has no attribute '{name}'"):
        getattr(mc, name)
    with pytest.raises(ImportError):
        exec(f"from manifestcommit import {name}")


@pytest.mark.thorough
def test_type_checkers_know_the_public_names_and_no_other(tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    user.write_text("import manifestcommit as mc\n\nreveal_type(mc.write)\nreveal_type(mc.__version__)\nmc.wirte\n")
    cache = REPO / ".mypy_cache"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(cache), "--follow-imports=silent", str(user)],
        cwd=REPO,
        capture_output=True,
        text=True,
    )
    assert "def (data: Any, " in done.stdout and 'Revealed type is "str"' in done.stdout, done.stdout
    assert 'Module has no attribute "wirte"' in done.stdout
    assert "Found 1 error" in done.stdout
