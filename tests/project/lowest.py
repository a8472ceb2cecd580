"""What pyproject.toml allows, for pip: what the package needs, with the extras that the tests below import.

python -m tests.project.lowest              the lowest versions: one requirement a line, such as msgspec==0.19
python -m tests.project.lowest --newest     the newest, which pip chooses: msgspec>=0.19
"""

import re
import sys
import tomllib
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
EXTRAS = ("spark", "s3", "gcs", "azure", "otel")
_REQUIREMENT = re.compile(r"([\w.-]+(?:\[[\w,.-]+\])?)>=([\w.]+)")


def allowed() -> list[str]:
    """Each requirement as it is given."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    return [*project["dependencies"], *(each for extra in EXTRAS for each in project["optional-dependencies"][extra])]


def required() -> tuple[str, ...]:
    """What the package needs without any extra, by name."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    return tuple(each.partition(">=")[0] for each in project["dependencies"])


def lowest() -> list[str]:
    """Each requirement at its lower bound; ValueError for one that has none, or more than that."""
    given = allowed()
    found = [_REQUIREMENT.fullmatch(each) for each in given]
    if None in found:
        raise ValueError(f"no single lower bound: {[each for each, match in zip(given, found, strict=True) if match is None]}")
    return [f"{match[1]}=={match[2]}" for match in found if match is not None]


if __name__ == "__main__":
    print("\n".join(allowed() if "--newest" in sys.argv[1:] else lowest()))
