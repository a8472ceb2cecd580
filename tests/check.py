"""`make check`: the tests of one module, of a test file or folder, or of a clause. `thorough` ones only where a file or a test is named.

Of a module: the test file that is named like it, in the folder that mirrors its own or in one above, and the first test of each of
its mutants; where there is neither, the folder of tests that mirrors its own.
"""

import argparse
import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutant import MUTANTS
from tests.spec.clauses import cited

REPO = Path(__file__).resolve().parents[1]
PACKAGES = ("manifestcommit", "pyspark_manifestcommit")
# Folders of the package -> where their tests are, if not in the folder of tests/ that has their name.
ELSEWHERE = {"": "api", "testing/history": "testing"}


def nodes_of(path: str) -> Sequence[str]:
    """What pytest is given for a path of the repository; ValueError says what may be given."""
    file, _, test = path.removeprefix("./").rstrip("/").partition("::")
    if not (REPO / file).exists():
        raise ValueError(f"{file} is not there: FILE is a module, a test file or a folder, from the repository's root")
    if file.split("/")[0] == "tests":
        return [path]
    if file.split("/")[0] not in PACKAGES:
        raise ValueError(f"{file} is neither in {' nor in '.join(PACKAGES)} nor in tests")
    if test:
        raise ValueError(f"{file} is no test file, so it has no {test}")
    return _of_folder(file) if (REPO / file).is_dir() else _of_module(file)


def _of_folder(folder: str) -> Sequence[str]:
    """The nearest folder of tests that mirrors it."""
    parts = folder.split("/")[1:]
    for depth in range(len(parts), -1, -1):
        inside = "/".join(parts[:depth])
        mirror = Path("tests", ELSEWHERE.get(inside, inside))
        if (REPO / mirror).is_dir() and mirror != Path("tests"):
            return [mirror.as_posix()]
    return []


def _of_module(module: str) -> Sequence[str]:
    path = Path(module)
    inside = Path(*path.parts[1:-1])
    mirrors = [Path("tests", ELSEWHERE.get(each.as_posix().replace(".", ""), each)) for each in (inside, *inside.parents)]
    files = [folder / f"test_{path.stem}.py" for folder in mirrors]
    own = next((file.as_posix() for file in files if (REPO / file).is_file()), None)
    killers = [each.tests[0] for each in MUTANTS.values() if module in each.files]
    beside = [node for node in dict.fromkeys(killers) if own is None or not node.startswith(own)]
    return [*([own] if own else []), *beside] or _of_folder(path.parent.as_posix())


def nodes_of_clause(clause: str) -> Sequence[str]:
    """The tests whose docstrings cite it, and the files whose own does."""
    found = []
    for file in sorted((REPO / "tests").rglob("test_*.py")):
        if clause not in cited(text := file.read_text("utf-8")):
            continue
        tree, name = ast.parse(text), file.relative_to(REPO).as_posix()
        if clause in cited(ast.get_docstring(tree) or ""):
            found.append(name)
            continue
        tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
        found += [f"{name}::{node.name}" for node in tests if clause in cited(ast.get_docstring(node) or "")]
    if not found:
        raise ValueError(f"no test cites [{clause}]: CLAUSE is one of spec/v1.md, such as CM2")
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make check", description="The tests of one module, test file, folder or clause.")
    parser.add_argument("--file", metavar="PATH")
    parser.add_argument("--clause", metavar="XX1")
    parser.add_argument("more", nargs="*", help="for pytest")
    given = parser.parse_args(arguments)
    if not (given.file or given.clause):
        print("what? make check FILE=manifestcommit/protocol/retention.py, a test file or a folder, or CLAUSE=GC5", file=sys.stderr)
        return 2
    try:
        found = [*(nodes_of(given.file) if given.file else ()), *(nodes_of_clause(given.clause) if given.clause else ())]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    named = given.file and ".py" in given.file and found == [given.file]
    marks = [] if named else ["-m", "not thorough"]
    print("\n".join(["--- tests:", *found]), flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *marks, *given.more, *found], cwd=REPO, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
