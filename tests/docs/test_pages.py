"""Every block of README.md and docs/ runs, and prints what the page shows. Pages that need Spark: tests/spark/test_pages.py."""

import re
import shutil
from pathlib import Path

import pytest
from tests.docs import blocks
from tests.docs.blocks import REPO, needs, pages, run

NAMES = {page.relative_to(REPO).as_posix(): page for page in pages()}
WITH_BLOCKS = [name for name, page in NAMES.items() if re.search(r"^```(?:python|console)$", page.read_text("utf-8"), re.MULTILINE)]
# Languages of blocks that nobody runs, and what may begin a line of `shell`.
SHOWN = {"", "json", "shell", "svg", "toml"}
INSTALLS = ("pip install ", "make ", "export ")
# And of blocks that are a file of an example, which tests of its own run.
EXAMPLES = {"py", "sql", "yaml"}


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in WITH_BLOCKS if not needs(NAMES[name])])
def test_a_page_runs_as_it_stands(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(NAMES[name], {})


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_run_is_no_code(name: str) -> None:
    text = NAMES[name].read_text("utf-8")
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert text.count("```") == 2 * len(fences), "a block is not closed, or indented: it would not be run"
    assert {language for language, _ in fences} <= SHOWN | EXAMPLES | set(blocks.RUN)
    examples = [path.read_text("utf-8") for path in (REPO / "docs" / "examples").rglob("*.*") if path.is_file()]
    for body in [body for language, body in fences if language in EXAMPLES]:
        assert any(body in each for each in examples), f"it is no example that is run: {body}"
    lines = [line for language, body in fences if language == "shell" for line in body.splitlines()]
    assert [line for line in lines if line and not line.startswith(INSTALLS)] == []
    assert needs(NAMES[name]) <= {"spark", "s3", "dlt"}


# --- the runner itself ----------------------------------------------------------------------------------------------------
GOOD = """# A page

## First

```python
print("one", 2)
```

```text
one ...
```

## Second

```console
$ echo a \\
  b && manifestcommit --version
a b
manifestcommit ...
$ true
```

```python
assert 1 + 1 == 2
```
"""


def judged(tmp_path: Path, text: str, section: str | None = None) -> None:
    (tmp_path / "page.md").write_text(text, "utf-8")
    run(tmp_path / "page.md", {}, section)


def test_a_page_that_says_what_is_so_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    judged(tmp_path, GOOD)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('print("one", 2)', 'print("two", 2)'), ('print("one", 2)', "raise ValueError"), ("one ...\n", "one\n"),
        ("```text\none ...\n```\n", ""), ("a b\n", "a c\n"), ("$ true", "$ false"), ("1 + 1 == 2", "1 + 1 == 3"),
    ],
)  # fmt: skip
def test_a_page_that_says_otherwise_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert GOOD.count(old) == 1
    with pytest.raises((AssertionError, ValueError)):
        judged(tmp_path, GOOD.replace(old, new))


def test_a_section_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    broken = GOOD.replace('print("one", 2)', "raise ValueError")
    judged(tmp_path, broken, "Second")
    with pytest.raises(ValueError):
        judged(tmp_path, broken, "First")
    with pytest.raises(AssertionError, match="no blocks"):
        judged(tmp_path, broken, "Third")


def test_no_page_needs_what_only_this_machine_has() -> None:
    assert shutil.which("bash"), "console blocks are bash's"
    assert not any("/work" in page.read_text("utf-8") for page in pages())
