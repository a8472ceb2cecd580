"""spec/promises.md names tests and clauses as proof: each of them has to be there. Its incidents are tested."""

import pytest
from tests.kit.documents import REPO, TEST, functions_of, sections
from tests.spec.clauses import cited, defined

PAGE = (REPO / "spec" / "promises.md").read_text("utf-8")
SYSTEMS = (
    "FileOutputCommitter", "v1 and v2", "S3A", "staging", "partitioned", "magic", "direct committer", "Stocator", "EMRFS",
    "CommitStepStore", "RisingWave", "SeaTunnel", "XA", "idempotent", "`_spark_metadata`", "Iceberg",
)  # fmt: skip
ATTRIBUTES = (
    "speculative tasks", "recoverable job", "abortable task", "abortable job", "uncommitted task output observable",
    "committed task output observable", "atomic task commit", "atomic job commit", "partitioned-executor resilience",
)  # fmt: skip


def table(text: str) -> list[list[str]]:
    """The cells of the table in a section, without its head."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_every_test_on_the_page_exists() -> None:
    named = TEST.findall(PAGE)
    assert len(named) > 60
    missing = sorted({f"{path}::{name}" for path, name in named if name not in functions_of(path)})
    assert not missing, "spec/promises.md names tests that are not there:\n" + "\n".join(missing)
    assert PAGE.count("::") == len(named), "a test that is not spelled as `tests/file.py::name`"


def test_every_clause_on_the_page_is_held() -> None:
    clauses = defined((REPO / "spec" / "v1.md").read_text("utf-8"))
    unknown = cited(PAGE) - clauses.held
    assert not unknown, f"spec/promises.md promises clauses that do not exist or are only planned: {sorted(unknown)}"


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_a_section_with_its_answer_and_proof(system: str) -> None:
    found = {heading: text for heading, text in sections(PAGE).items() if system in heading}
    assert found, f"no section on {system}"
    for heading, text in found.items():
        assert TEST.search(text), f"no test in the section {heading!r}"
        assert cited(text), f"no clause in the section {heading!r}"


def test_every_attribute_of_committers_is_shown() -> None:
    rows = table(sections(PAGE)["The attributes of committers"])
    assert [row[0] for row in rows] == list(ATTRIBUTES)
    assert [row[5].partition(":")[0] for row in rows] == ["no" if "observable" in name else "yes" for name in ATTRIBUTES]
    assert all(TEST.search(row[6]) for row in rows)


def test_every_incident_has_its_test() -> None:
    rows = table(sections(PAGE)["What went wrong elsewhere"])
    assert len(rows) >= 24
    for what, _, proof in rows:
        assert TEST.search(proof), what


def test_a_page_that_is_wrong_would_be_found() -> None:
    assert "test_speculative_tasks" in functions_of("tests/spark/test_attributes.py")
    assert functions_of("tests/no_such_file.py") == frozenset()
    assert sections("# a\n## b\nc\n### d\ne\n") == {"b": "\nc\n", "d": "\ne\n"}
    assert table("|a|b|\n|---|---|\n| `x` | y |\n") == [["`x`", "y"]]
