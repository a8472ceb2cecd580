"""What the texts for contributors name is there: links, files, functions, make targets, versions, fragments of the changelog."""

import ast
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from tests.project.architecture_page import PAGE, rendered, replaced
from tests.project.lowest import lowest

REPO = Path(__file__).resolve().parents[2]
TEXTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md", "changelog.d/README.md", "benchmarks/README.md",
         *(path.relative_to(REPO).as_posix() for folder in ("docs", "spec") for path in sorted((REPO / folder).rglob("*.md"))))  # fmt: skip
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([\w/]+\.py)(?:::([\w.]+))?`")
NOT_YET = {"check", "test-all"}  # targets that the texts name and the Makefile is about to get
KINDS = ("breaking", "new", "changed", "fixed")
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))


def text(name: str) -> str:
    return (REPO / name).read_text("utf-8")


def prose(name: str) -> str:
    """Without blocks of code and code in a line, in which brackets are no links."""
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text(name), flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(path: Path) -> frozenset[str]:
    """The fragments under which hosts of Markdown file its headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


def broken(folder: Path, link: str) -> bool:
    """Whether a link within the repository leads nowhere."""
    if "://" in link:
        return False
    name, _, fragment = link.partition("#")
    target = (folder / name).resolve() if name else folder
    if not target.exists():
        return True
    return bool(fragment) and target.suffix == ".md" and fragment not in anchors(target)


@pytest.mark.parametrize("name", TEXTS)
def test_every_link_leads_somewhere(name: str) -> None:
    path = REPO / name
    links = [link if not link.startswith("#") else path.name + link for link in LINK.findall(prose(name))]
    assert [link for link in links if broken(path.parent, link)] == []


def test_a_broken_link_is_seen() -> None:
    assert broken(REPO, "spec/v9.md") and broken(REPO, "README.md#no-such-heading")
    assert not broken(REPO, "README.md#guarantees")


@cache
def names_in(path: Path) -> frozenset[str]:
    """Functions, classes and constants, and those of classes: `name` and `Class.name`."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body if path.suffix == ".py" else ():
        found |= _bound(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for each in node.body for name in _bound(each)}
    return frozenset(found)


def _bound(node: ast.stmt) -> set[str]:
    targets = getattr(node, "targets", [getattr(node, "target", node)])
    return {name for each in targets if (name := getattr(each, "name", getattr(each, "id", "")))}


def test_every_file_and_function_on_the_page_of_the_architecture_exists() -> None:
    cited = CODE.findall(PAGE.read_text("utf-8"))
    assert len(cited) > 25 and sum(bool(name) for _, name in cited) > 25
    missing = []
    for path, name in cited:
        found = next((root / path for root in (REPO / "manifestcommit", REPO) if (root / path).is_file()), None)
        if found is None or (name and name not in names_in(found)):
            missing.append(f"{path}::{name}")
    assert missing == []


def test_the_page_of_the_architecture_counts_the_modules_as_they_are() -> None:
    """The descriptions may be older than the docstrings that they come from; folders and counts may not."""
    row = re.compile(r"^\| (`[\w/]+`|top level) \| (\d+) \| \S", re.MULTILINE)
    page = PAGE.read_text("utf-8")
    table = page[page.index("| folder |") :].partition("\n\n")[0]
    assert row.findall(table) == row.findall(rendered()), "python -m tests.project.architecture_page rewrites the table"
    assert replaced(replaced(page)) == replaced(page)


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "RELEASING.md", "changelog.d/README.md", ".github/PULL_REQUEST_TEMPLATE.md"])
def test_every_make_target_that_a_text_names_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", text("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", text(name), re.MULTILINE))
    assert named and named <= targets | NOT_YET, named - targets


def test_contributors_find_folders_and_modules_where_the_text_says() -> None:
    paths = re.findall(r"`((?:manifestcommit|tests|spec)/[\w./-]+)`", text("CONTRIBUTING.md") + text("RELEASING.md") + text("SECURITY.md"))
    assert paths
    assert [path for path in paths if not (REPO / path).exists()] == []


def test_a_fragment_of_the_changelog_has_a_kind_that_is_collected() -> None:
    assert [each["directory"] for each in PROJECT["tool"]["towncrier"]["type"]] == list(KINDS)
    fragments = [path.name for path in (REPO / "changelog.d").iterdir() if path.name != "README.md"]
    assert [name for name in fragments if not re.fullmatch(rf"\+[a-z0-9-]+\.({'|'.join(KINDS)})\.md", name)] == []
    assert PROJECT["tool"]["towncrier"]["start_string"].strip() in text("CHANGELOG.md")


def required() -> list[str]:
    """All requirements of the package and of `dev`, with the extras that `dev` brings."""
    extras = PROJECT["project"]["optional-dependencies"]
    given = [*PROJECT["project"]["dependencies"]]
    for extra in ("dev", "docs", "spark", "s3", "gcs", "azure", "otel", "demo"):
        given += [each for each in extras[extra] if not each.startswith("manifestcommit[")]
    return given


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_the_constraints_hold_one_version_of_every_requirement_and_allow_it() -> None:
    lines = [line for line in text("constraints.txt").splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    assert lines == sorted(set(lines)) and len(pins) == len(lines)
    for each in required():
        name, low = re.split(r">=", re.sub(r"\[.*?\]", "", each))
        assert name in pins, f"{name}: constraints.txt has no version of it"
        assert numbers(pins[name]) >= numbers(low), f"{name}: constraints.txt has {pins[name]}, and pyproject.toml wants {low}"


def test_the_lowest_versions_are_the_lower_bounds() -> None:
    pins = lowest()
    assert len(pins) >= 10
    assert all(each.replace("==", ">=") in required() for each in pins)


def test_the_package_says_that_it_has_types_and_names_no_host_that_is_not_there() -> None:
    assert (REPO / "manifestcommit" / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]
    assert "example" not in str(PROJECT["project"].get("urls", ""))


def test_the_source_distribution_names_what_is_there() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [path for path in included if not (REPO / path.lstrip("/")).exists()] == []
    texts = set(subprocess.run(["git", "ls-files", "*.md"], cwd=REPO, capture_output=True, text=True, check=True).stdout.split())
    top = {f"/{name}" for name in texts if "/" not in name}
    assert top <= set(included)


def test_the_hooks_run_only_what_is_installed_here() -> None:
    hooks = text(".pre-commit-config.yaml")
    assert re.findall(r"repo: (\S+)", hooks) == ["local"]
    assert set(re.findall(r"entry: (\S+)", hooks)) == {".venv/bin/ruff", ".venv/bin/mypy"}
