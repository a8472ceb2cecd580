"""What `make check` runs for a module, a test file, a folder, a clause."""

from pathlib import Path

import pytest
from tests.check import PACKAGES, main, nodes_of, nodes_of_clause
from tests.mutants.mutant import MUTANTS

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("manifestcommit/commits/commit_loop.py", "tests/commits/test_commit_loop.py"),
        ("./manifestcommit/store/s3.py", "tests/store/test_s3.py"),
        ("manifestcommit/commits/", "tests/commits"),
        ("manifestcommit/store", "tests/store"),
        ("manifestcommit/format/fields.py", "tests/format/test_fields.py"),
        ("manifestcommit/errors.py", "tests/api/test_errors.py"),
        ("manifestcommit/table/table.py", "tests/api"),
        ("manifestcommit/testing/scheduler.py", "tests/testing"),
        ("tests/store", "tests/store"),
        ("tests/store/test_s3.py::test_x[a b]", "tests/store/test_s3.py::test_x[a b]"),
    ],
)
def test_what_is_named_has_its_tests(path: str, first: str) -> None:
    assert nodes_of(path)[0] == first


def test_every_module_has_tests_and_all_are_there() -> None:
    """And a test of each of its mutants is among them."""
    for package in PACKAGES:
        for file in (REPO / package).rglob("*.py"):
            module = file.relative_to(REPO).as_posix()
            found = nodes_of(module)
            assert found and all((REPO / node.partition("::")[0]).exists() for node in found), module
            named = {node for each in MUTANTS.values() if module in each.files for node in each.tests[:1]}
            assert all(node in found or any(node.startswith(each) for each in found) for node in named), module


@pytest.mark.parametrize("path", ["no/such.py", "README.md", "manifestcommit/table.py::test_x"])
def test_what_has_none_is_told(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--file", path]) == 2
    assert path.partition("::")[0] in capsys.readouterr().err
    assert main([]) == 2 and "make check FILE=" in capsys.readouterr().err


def test_a_clause_has_the_tests_that_cite_it() -> None:
    """Those of a file that cites it as a whole by the file."""
    found = nodes_of_clause("CM2")
    assert "tests/protocol/test_commit_group.py::test_a_job_at_the_fence_and_a_key_that_was_dropped_are_carried" in found
    assert "tests/faults/test_stalled.py" in found
    with pytest.raises(ValueError, match="ZZ9"):
        nodes_of_clause("ZZ9")
