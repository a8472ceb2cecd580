"""What `make test` leaves out besides the tests that are marked `thorough` where they stand. `make test-rest` runs it.

Of a test function with many cases it keeps one, of a store's two, chosen by their names, and those that kill a mutant: the others
repeat at length what these hold. All cases stay where each looks at another part of the tree or plays in another world, and where they
cost next to nothing.

test_quick_set.py holds that no clause and no mutant is lost by it.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

CASES, OF_STORES = 1, 2  # of a function; those of stores are run on two kinds
EVERY_CASE = (
    "tests/api/test_errors.py", "tests/api/test_surface.py", "tests/cli/test_golden.py", "tests/cli/test_words.py",
    "tests/docs/test_pages.py::test_what_is_not_run_is_no_code", "tests/format/", "tests/project/", "tests/proof/", "tests/protocol/",
    "tests/simulator/test_runs.py::test_no_schedule_and_no_fault_breaks_a_promise", "tests/spark/runtime/test_spark_internals.py",
    "tests/scan/test_partition_folders.py", "tests/spark/test_attributes.py::test_atomic_job_commit", "tests/spec/",
)  # fmt: skip
_FIGURES = Path(__file__).with_name("mutants") / "figures.json"


def left_out(nodes: Iterable[str]) -> set[str]:
    """Those of the tests, by their ids as pytest prints them, that the quick run leaves out. nodes: without what is marked already."""
    killers = {each["test"] for each in json.loads(_FIGURES.read_text("utf-8")).values()}
    cases: dict[str, list[str]] = {}
    for node in nodes:
        cases.setdefault(node.partition("[")[0], []).append(node)
    out = set[str]()
    for function, every in cases.items():
        if not function.startswith(EVERY_CASE):
            most = OF_STORES if function.startswith("tests/store/") else CASES
            out |= set() if function in killers else {*sorted(every, key=_number)[most:]} - killers
    return out


def _number(node: str) -> int:
    return crc32(node.encode("utf-8", "backslashreplace"))
