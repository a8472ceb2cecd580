"""What a run of pytest has found, and what of it the quick set is: all tests but those marked `thorough`. What the quick set holds."""

import dataclasses
import inspect
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.spec.clauses import cited

REPO = Path(__file__).resolve().parents[1]
LISTED_IN = "MC_TESTS_LISTED_IN"  # a file that takes what was collected, as JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """One test as pytest has collected it. clauses: those that its own docstring cites; of_module: those that its module's does."""

    node: str
    quick: bool
    spark: bool
    clauses: frozenset[str]
    of_module: frozenset[str]

    @property
    def function(self) -> str:
        return self.node.partition("[")[0]

    @property
    def folder(self) -> str:
        return self.node.split("/")[1]


COLLECTED = pytest.StashKey[Sequence[Collected]]()


def collected(items: Iterable[pytest.Item]) -> Sequence[Collected]:
    """Of items that bear all of their marks; those of other repositories are nobody's here."""
    found = []
    known: dict[str, frozenset[str]] = {}
    files: dict[Path, str | None] = {}  # file -> its name below the repository
    for item in items:
        if item.path not in files:
            files[item.path] = item.path.relative_to(REPO).as_posix() if item.path.is_relative_to(REPO) else None
        if (file := files[item.path]) is None:
            continue
        texts = [inspect.getdoc(each) or "" for each in (getattr(item, "obj", None), getattr(item, "module", None))]
        own, of_module = (known.setdefault(text, cited(text)) for text in texts)
        marks = {mark.name for mark in item.iter_markers()}
        node = f"{file}::{item.nodeid.partition('::')[2]}"
        found.append(Collected(node=node, quick="thorough" not in marks, spark="spark" in marks, clauses=own, of_module=of_module))
    return found


def is_of_everything(config: pytest.Config) -> bool:
    """Whether the run was asked for all tests, whatever it deselects afterwards."""
    return [config.rootpath / arg for arg in config.args] == [REPO / "tests"]


def collect_all(folder: Path) -> Sequence[Collected]:
    """In a process of its own, for a run that was asked for a few tests only."""
    listed = folder / "collected.json"
    env = {**{name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}, LISTED_IN: str(listed)}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=REPO, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the tests cannot be collected:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return [
        Collected(**{**each, "clauses": frozenset(each["clauses"]), "of_module": frozenset(each["of_module"])})
        for each in json.loads(listed.read_text("utf-8"))
    ]


def write_down(tests: Sequence[Collected]) -> None:
    """For whoever started this process with `collect_all`."""
    if LISTED_IN in os.environ:
        Path(os.environ[LISTED_IN]).write_text(json.dumps([dataclasses.asdict(each) for each in tests], default=sorted), "utf-8")


def not_held(tests: Sequence[Collected], clauses: Iterable[str]) -> set[str]:
    """The clauses that no quick test cites. What a module's docstring cites is held by its tests if all of them have a quick case; where
    one of them is left out whole, it may have been that one."""
    quick = {each.function for each in tests if each.quick}
    left_out = {each.function.partition("::")[0] for each in tests if each.function not in quick}
    held = {clause for each in tests if each.quick for clause in each.clauses}
    held |= {clause for each in tests if each.function.partition("::")[0] not in left_out for clause in each.of_module}
    return set(clauses) - held


def not_killed(tests: Sequence[Collected], killers: Mapping[str, str]) -> Mapping[str, str]:
    """Mutant → the test that is recorded as its killer, where that is not quick. A case that was given another name since counts as
    quick if all cases of its function are."""
    quick = {each.node: each.quick for each in tests}
    functions: dict[str, bool] = {}
    for each in tests:
        functions[each.function] = functions.get(each.function, True) and each.quick
    return {name: node for name, node in killers.items() if not quick.get(node, functions.get(node.partition("[")[0], False))}


def main() -> int:
    """Prints what `make test` leaves out, function by function, and how many tests each folder has and keeps."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        tests = collect_all(Path(folder))
    for function, cases in sorted(Counter(each.function for each in tests if not each.quick).items()):
        print(f"{cases:5} {function}")
    every, quick = Counter(each.folder for each in tests), Counter(each.folder for each in tests if each.quick)
    for name in sorted(every):
        print(f"{quick[name]:5} of {every[name]:5} tests in tests/{name}")
    print(f"{quick.total():5} of {every.total():5} in all; {sum(each.quick and each.spark for each in tests)} with Spark")
    return 0


if __name__ == "__main__":
    sys.exit(main())
