"""The site: what is checked of its built pages, how its sources are put together, and that its reference leaves nothing out.

`make docs` builds it, with the extra `docs`, and fails for what is tested here in little.
"""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from tests.docs import generated, links, site
from tests.docs.blocks import REPO

import manifestcommit as mc
from manifestcommit.files import writer
from manifestcommit.format.snapshot import DEFAULT_ROW_TRIES, ROW_TRIES_PROPERTY
from manifestcommit.protocol import conflict

REFERENCE = REPO / "docs" / "reference"
GOOD = {
    "index.html": '<a href="sub/page.html#there">x</a> <img src="a.png"> <a href="https://example.com/far">x</a> <a href="sub/">x</a>',
    "sub/page.html": '<p id="there"></p><a href="../index.html">x</a><a href="#there">x</a>',
    "sub/index.html": "",
    "a.png": "",
}


def built(tmp_path: Path, pages: dict[str, str]) -> Path:
    for name, text in pages.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def test_a_site_that_is_whole_has_no_problems(tmp_path: Path) -> None:
    assert links.problems(built(tmp_path, GOOD)) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<a href="sub/gone.html">x</a>', "index.html: leads nowhere: sub/gone.html"),
        ('<a href="sub/page.html#gone">x</a>', "index.html: no such anchor: sub/page.html#gone"),
        ('<a href="#gone">x</a>', "index.html: no such anchor: #gone"),
        ('<img src="b.png">', "index.html: leads nowhere: b.png"),
        ('<script src="https://example.com/a.js"></script>', "index.html: fetches from another host: https://example.com/a.js"),
        ('<link href="//example.com/a.css">', "index.html: fetches from another host: //example.com/a.css"),
    ],
)
def test_what_leads_nowhere_or_elsewhere_is_found(tmp_path: Path, text: str, problem: str) -> None:
    assert links.problems(built(tmp_path, {**GOOD, "index.html": text})) == [problem]


def test_pages_are_put_together_for_the_site(tmp_path: Path) -> None:
    """Links to the specification and to what is in the repository only; clauses; comments; what is made from the code."""
    page = tmp_path / "page.md"
    names = {REPO / "spec" / "v1.md": "spec/v1.md"}
    page.write_text("<!-- needs: spark -->\n# A\n\n[CM1, CM2]-[CM4] and `[CM3]`, [CM5].\n<!-- invisible-code: python\nx\n-->\n", "utf-8")
    clauses = frozenset({"CM1", "CM2", "CM4"})
    link = r"\[[CM1](../spec/v1.md#CM1), [CM2](../spec/v1.md#CM2)\]-\[[CM4](../spec/v1.md#CM4)\] and `[CM3]`, \[CM5\]."
    assert site.assembled("how-to/page.md", page, names, clauses) == f"# A\n\n{link}\n"
    spec = site.assembled("spec/v1.md", REPO / "spec" / "v1.md", names, clauses)
    assert '<a id="CM1"></a>**\\[CM1\\]**' in spec
    command_line = site.assembled("reference/command-line.md", REFERENCE / "command-line.md", {}, clauses)
    assert "## rollback" in command_line and "--storage-options FILE" in command_line


def test_the_navigation_names_every_page_once_and_no_other() -> None:
    nav = list(site.listed(tomllib.loads(site.CONFIG.read_text("utf-8"))["project"]["nav"]))
    assert len(nav) == len(set(nav)) and set(nav) <= site.sources().keys()
    assert site.missing_from_navigation() == []
    assert set(re.findall(r"<!-- generated: (\w+) -->", "".join(page.read_text("utf-8") for page in site.DOCS.rglob("*.md")))) == set(
        generated.PAGES
    )


def test_the_reference_leaves_no_public_name_out() -> None:
    """Functions, classes and results by their docstrings, errors by cause and remedy."""
    text = "".join(page.read_text("utf-8") for page in REFERENCE.glob("*.md"))
    described = {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)", text, re.MULTILINE)}
    errors = set(re.findall(r"^\| `(\w+)`", (REFERENCE / "errors.md").read_text("utf-8"), re.MULTILINE))
    assert set(mc.__all__) - {"__version__", "ManifestCommitError"} <= described | errors
    raised = {name for name in mc.__all__ if name.endswith("Error") and name != "ManifestCommitError"}
    assert raised <= errors, "reference/errors.md lacks these"


def test_every_rule_of_a_conflict_has_a_remedy() -> None:
    table = (REFERENCE / "errors.md").read_text("utf-8").partition("## Rules of conflicts")[2]
    listed = set(re.findall(r"`([a-z_]+)`", "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))))
    source = Path(str(conflict.__file__)).read_text("utf-8")
    rules = set(re.findall(r'rule="([a-z_]+)"', source)) | set(conflict.FINAL)
    assert rules and rules <= listed, rules - listed


def test_every_option_of_the_data_source_and_every_property_is_described() -> None:
    source = ast.parse((REPO / "manifestcommit" / "spark" / "datasource" / "__init__.py").read_text("utf-8"))
    options = {
        node.targets[0].id: {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
        for node in source.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.endswith("_OPTIONS")
    }
    text = (REFERENCE / "spark-options.md").read_text("utf-8")
    sections = dict(
        zip(("WRITE_OPTIONS", "STREAM_WRITE_OPTIONS", "READ_OPTIONS", "STREAM_READ_OPTIONS"), text.split("\n## ")[1:], strict=True)
    )
    for name, section in sections.items():
        assert options[name] == set(
            re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `")))
        )
    properties = (REFERENCE / "properties.md").read_text("utf-8")
    for name in (writer.TARGET_FILE_SIZE, writer.BOUNDS_COLUMNS, writer.BLOOM_COLUMNS, "write.missing-columns", ROW_TRIES_PROPERTY):
        assert f"| `{name}` |" in properties
    assert f"| {DEFAULT_ROW_TRIES} |" in properties
    assert f"| {writer.DEFAULT_TARGET_FILE_SIZE} " in properties and f"| {writer.DEFAULT_BOUNDS_COLUMNS} |" in properties


def test_the_readme_is_short_and_its_table_names_tests_that_are_there() -> None:
    text = (REPO / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 150
    tests = re.findall(r'^\[([a-z-]+)\]: (tests/\S+\.py) "(test_\w+)"$', text, re.MULTILINE)
    assert len(tests) == 6 and {label for label, _, _ in tests} == set(re.findall(r"\[test\]\[([a-z-]+)\]", text))
    assert [name for _, path, name in tests if f"\ndef {name}(" not in (REPO / path).read_text("utf-8")] == []
