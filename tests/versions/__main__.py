"""Runs the tests marked `versions` in environments of their own, and writes what they found into docs/reference/supported.md.

python -m tests.versions                    all environments, one after another
python -m tests.versions 4.0 lowest         these
python -m tests.versions --turn             a third of the tests in one of them: another each day
python -m tests.versions --page             only rewrite the page's tables
"""

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

from tests.turns import DAY, turn_on
from tests.versions import results
from tests.versions.environments import FOLDER, REPO, TOOLS, Environment, environments, installed, interpreter

PARTS = 3  # of the tests in one environment: as long as CI has for them
_VERSIONS = """
import json, platform, importlib.metadata as m
print(json.dumps({"python": platform.python_version(), **{n: m.version(n) for n in ("pyspark", "pyarrow", "pandas")}}))
"""


def run(environment: Environment, arguments: list[str]) -> bool:
    """Runs the tests there; whether all that ran have passed. An interpreter that there is not is reported, not failed."""
    today = dt.date.today().isoformat()
    none = results.Result(date=today, passed=0, failed=0, left_out=0, seconds=0, versions={}, not_run="")
    python = interpreter(environment.python)
    if python is None:
        print(f"--- {environment.what}: there is no Python {environment.python} on this machine")
        results.record(environment.name, {**none, "not_run": f"no Python {environment.python} on the machine of the run"})
        return True
    inside = str(installed(FOLDER / environment.name, python, [*environment.requirements, *TOOLS]))
    versions = json.loads(subprocess.run([inside, "-c", _VERSIONS], capture_output=True, text=True, check=True).stdout)
    print(f"--- {environment.what}: {versions}", flush=True)
    began = time.monotonic()
    env = {**os.environ, "PYSPARK_PYTHON": inside, "PYTHONPATH": str(REPO)}
    subprocess.run([inside, "-m", "tests.spark.archive"], cwd=REPO, env=env, check=False)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        pytest = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "versions", f"--junit-xml={report}"]
        command = [*pytest, *arguments, *files_with_the_mark()]
        status = subprocess.run(command, cwd=REPO, env=env, check=False).returncode
        suite = ElementTree.parse(report).getroot()[0]
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    left_out = int(suite.get("skipped", 0))
    passed = int(suite.get("tests", 0)) - failed - left_out
    seconds = round(time.monotonic() - began)
    print(f"--- {environment.what}: {passed} passed, {failed} failed, {left_out} left out, {seconds} s", flush=True)
    if not arguments:
        found = results.Result(date=today, passed=passed, failed=failed, left_out=left_out, seconds=seconds, versions=versions, not_run="")
        results.record(environment.name, found)
    return status == 0 and passed > 0


def files_with_the_mark() -> list[str]:
    """Other files may need what a version lacks as soon as they are imported."""
    files = sorted((REPO / "tests" / "spark").rglob("test_*.py"))
    return [str(path) for path in files if "pytest.mark.versions" in path.read_text("utf-8")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.versions", description="tests in environments of other versions")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(each.name for each in environments())}")
    parser.add_argument("--turn", action="store_true", help="the part whose turn it is today, in the environment whose turn it is")
    parser.add_argument("--page", action="store_true", help="only rewrite the tables of the page")
    given, arguments = parser.parse_known_args()
    if given.page:
        results.PAGE.write_text(results.replaced(results.PAGE.read_text("utf-8")), "utf-8")
        return 0
    every = {each.name: each for each in environments()}
    if unknown := [name for name in given.names if name not in every]:
        parser.error(f"no environment {', '.join(unknown)}; there are {', '.join(every)}")
    chosen = [every[name] for name in given.names] or list(every.values())
    if given.turn:
        there = [each for each in every.values() if interpreter(each.python)]
        today = dt.date.today()
        part, place = divmod(turn_on(today, PARTS * len(there)), len(there))
        chosen, arguments = [there[place]], [*arguments, "--turn", str(PARTS)]
        os.environ[DAY] = (today + dt.timedelta(days=(part - turn_on(today, PARTS)) % PARTS)).isoformat()
    failed = [each.name for each in chosen if not run(each, arguments)]
    if failed:
        print(f"--- FAILED in the environments: {' '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
