"""What a release would install: built, looked into, installed outside the repository, and tried there. `make release-check`

    python -m tests.project.release_check [--out dist]

Needs the package index, minutes, and for Spark Java 17 or newer. Prints each step that passed; ends at the first
that did not. Exit codes: 0 all passed, 1 one failed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
IN_WHEEL = ["manifestcommit/py.typed", "manifestcommit/__init__.py", "manifestcommit/cli/main.py", "pyspark_manifestcommit/__init__.py"]
IN_SDIST = [
    "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md", "constraints.txt", "Makefile",
    "pyproject.toml", "changelog.d/README.md", "docs/index.md", "docs/zensical.toml", "spec/v1.md", "spec/architecture.md",
    "tests/conftest.py", "benchmarks/README.md", "examples/flights/__main__.py",
]  # fmt: skip


class StepError(Exception):
    """A step that did not pass, and what it said."""


def run(*command: str | Path, cwd: Path) -> str:
    """What the command prints. Nothing of the repository is on its path."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "PYSPARK"))}
    done = subprocess.run([str(each) for each in command], cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise StepError(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def build(out: Path) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it."""
    run(sys.executable, "-m", "build", "--outdir", out, REPO, cwd=out)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def check_contents(sdist: Path, wheel: Path) -> str:
    """Whether both hold what they should, and the wheel exactly the package's files."""
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    missing = [f"sdist: {name}" for name in IN_SDIST + IN_WHEEL if name not in in_sdist] + [
        f"wheel: {name}" for name in IN_WHEEL if name not in in_wheel
    ]
    tracked = set(run("git", "ls-files", "manifestcommit", "pyspark_manifestcommit", cwd=REPO).split())
    packaged = {name for name in in_wheel if ".dist-info/" not in name}
    missing += [f"wheel and repository differ: {name}" for name in sorted(tracked ^ packaged)]
    if missing:
        raise StepError("\n".join(missing))
    return f"{len(in_sdist):,} and {len(in_wheel):,} entries"


def first_example() -> str:
    """The README's first block of Python."""
    return re.findall(r"^```python\n(.*?)^```", (REPO / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)[0]


def main(arguments: Sequence[str]) -> int:
    """Run all steps; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.project.release_check", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=REPO / "dist", help="where the checked files end up (default: dist)")
    out = parser.parse_args(arguments).out
    with tempfile.TemporaryDirectory(prefix="release-check-") as scratch:
        try:
            for passed in steps(Path(scratch), out):
                print(f"passed: {passed}", flush=True)
        except StepError as error:
            print(f"FAILED: {error}", file=sys.stderr)
            return 1
    return 0


def steps(scratch: Path, out: Path) -> Iterator[str]:
    """Each step, told when it has passed."""
    built, outside = scratch / "built", scratch / "outside"
    built.mkdir()
    outside.mkdir()
    sdist, wheel = build(built)
    yield f"built {sdist.name}, and {wheel.name} from it"
    yield f"both hold what they should: {check_contents(sdist, wheel)}"
    venv.create(scratch / "venv", with_pip=True)
    python = scratch / "venv" / "bin" / "python"
    run(python, "-m", "pip", "--disable-pip-version-check", "-q", "install", "-c", REPO / "constraints.txt", wheel, cwd=outside)
    run(python, "-m", "pip", "check", cwd=outside)
    yield "the wheel installs into an empty environment, and its requirements fit each other"
    where = run(python, "-c", "import manifestcommit; print(manifestcommit.__file__)", cwd=outside).strip()
    if not where.startswith(str(scratch)):
        raise StepError(f"the package was imported from {where}")
    version = run(python.with_name("manifestcommit"), "--version", cwd=outside).strip()
    if version != f"manifestcommit {wheel.name.split('-')[1]}":
        raise StepError(f"manifestcommit --version says {version!r}, and the wheel is {wheel.name}")
    yield f"manifestcommit --version: {version}"
    extra = f"{wheel}[spark]"
    run(python, "-m", "pip", "--disable-pip-version-check", "-q", "install", "-c", REPO / "constraints.txt", extra, cwd=outside)
    (outside / "example.py").write_text(first_example() + 'print(mc.read_committed("flights").count(), "rows by Spark")\n', "utf-8")
    said = run(python, "example.py", cwd=outside)
    yield f"the README's first example, and Spark on its table with the extra `spark`: {' / '.join(said.split(chr(10))[:3])}"
    out.mkdir(exist_ok=True)
    for each in (sdist, wheel):
        shutil.copy(each, out / each.name)
    yield f"{sdist.name} and {wheel.name} are in {out}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
