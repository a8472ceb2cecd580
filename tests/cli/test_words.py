"""Finding one's way: help by groups, what was meant, short job ids, exit codes."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit import errors
from manifestcommit.cli import jobs as jobs_module
from manifestcommit.cli.main import main, make_parser
from manifestcommit.cli.options import MEANINGS, exit_code
from manifestcommit.table.history import short_job

REPO = Path(__file__).resolve().parents[2]
COMMANDS = make_parser().commands
VERBS = sorted(COMMANDS.parsers)


def left(*arguments: str) -> int:
    try:
        return main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hsitory", "."], "there is no command 'hsitory'; did you mean history?"),
        (["rolback", "."], "there is no command 'rolback'; did you mean rollback?"),
        (["help", "file"], "there is no command 'file'; did you mean files?"),
        (["xyzzy"], "there is no command 'xyzzy'"),
        (["history", ".", "--limt", "3"], "unrecognized arguments: --limt 3; did you mean --limit?"),
        (["gc", ".", "--keepfor=1d"], "unrecognized arguments: --keepfor=1d; did you mean --keep-for or --keep-keys-for?"),
        (["history", ".", "more"], "unrecognized arguments: more"),
        (["x\x1b[31m"], "there is no command 'x\\x1b[31m'"),
        (["s3://AKIA:hunter2@bucket"], "there is no command 's3://...@bucket'"),
    ],
)
def test_a_word_that_is_not_known_names_the_nearest(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert left(*arguments) == 2
    found = capsys.readouterr()
    assert found.out == "" and re.search(rf"{re.escape(said)}[.?]? See manifestcommit.* --help\.\n$", found.err)


@pytest.mark.parametrize("verb", VERBS)
def test_help_verb_is_the_help_of_the_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With an example that is one of its own."""
    assert left("help", verb) == 0
    shown = capsys.readouterr().out
    assert left(verb, "--help") == 0 and capsys.readouterr().out == shown
    _, description, rest = shown.split("\n\n", 2)
    assert len(description.split()) >= 5 and description.rstrip().endswith(".")
    assert f"\n  manifestcommit {verb}" in rest


def test_help_alone_has_every_verb_in_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert left("help") == 0
    shown = capsys.readouterr().out
    groups = re.findall(r"^(\w+):$", shown, re.MULTILINE)
    expected = "options inspect load jobs change maintain lake help examples"
    assert groups == expected.split()
    for verb in VERBS:
        assert len(re.findall(rf"^  {verb} ", shown, re.MULTILINE)) == 1


@pytest.mark.parametrize("columns", ["70", "80", "120"])
def test_help_is_as_wide_as_the_terminal(columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    left("help")
    groups = capsys.readouterr().out.partition("examples:")[0]
    assert max(map(len, groups.splitlines())) <= int(columns)


# --- exit codes --------------------------------------------------------------------------------------------------------------
EXPECTED = {
    1: "CheckFailedError ConstraintError "
    "CommitConflictError JobAbortedError JobFencedError KeyReusedError UnsafeStoreError WatermarkError WatermarkGapError "
    "WatermarkMismatchError WatermarkOverlapError",
    2: "UsageError UnsupportedTypeError SchemaMismatchError",
}


def test_every_error_has_the_exit_code_of_the_table() -> None:
    """What is neither the answer no nor wrong usage could not be answered."""
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.ManifestCommitError)}
    found: dict[int, set[str]] = {}
    for name, kind in kinds.items():
        found.setdefault(exit_code(kind), set()).add(name)
    assert set(found) == {1, 2, 3} and sum(map(len, found.values())) == len(kinds)
    assert found[1] == {name for name in EXPECTED[1].split() if name in kinds}
    assert "UsageError" in found[2] and {"TableNotFoundError", "OutcomeUnknownError", "CorruptMetadataError"} <= found[3]


def test_the_page_has_the_table_of_exit_codes() -> None:
    page = (REPO / "docs" / "reference" / "command-line.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE))
    assert rows == {str(code): meaning for code, meaning in MEANINGS.items()}


# --- short job ids -----------------------------------------------------------------------------------------------------------
def test_a_short_job_id_is_taken_where_it_means_one_job(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[CM10]"""
    first = mc.write(pa.table({"a": [1]}), path).job_id
    with mc.begin(path) as job:
        job.write(pa.table({"a": [2]}))
        second = job.prepare()
    assert main(["jobs", path]) == 0 and capsys.readouterr().out.splitlines()[-1].startswith(short_job(second))
    assert main(["history", path]) == 0 and short_job(first) in capsys.readouterr().out
    assert main(["resolve", path, short_job(first)]) == 0 and capsys.readouterr().out == "committed at version 2\n"
    assert main(["resolve", path, short_job(second).upper()]) == 1 and capsys.readouterr().out == "pending\n"
    assert main(["commit", path, second[-32:-28]]) == 0 and capsys.readouterr().out == "committed at version 3\n"
    assert main(["abort", path, second[-32:-20]]) == 1 and capsys.readouterr().out == "committed at version 3\n"


@pytest.mark.parametrize("given", ["0000", "abc", "zzzz", "v1", "0" * 33, ""])
def test_what_begins_no_job_is_an_error(tmp_path: Path, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As before: four digits are the least, and a whole id is never searched for."""
    mc.write(pa.table({"a": [1]}), tmp_path / "t")
    assert main(["resolve", str(tmp_path / "t"), given]) == 2
    assert "job" in capsys.readouterr().err.lower()


def test_a_short_job_id_of_several_jobs_is_an_error() -> None:
    jobs = [f"v{number}-{'a' * 16}-beef{number:028x}" for number in range(12)]
    table: Any = SimpleNamespace(jobs=lambda: [SimpleNamespace(job=job) for job in jobs])
    with pytest.raises(mc.errors.UsageError, match=r"invalid JOB 'beef': .*; 12 known jobs begin so$"):
        jobs_module._full(table, "beef", settled=False)
    assert jobs_module._full(table, f"BEEF{5:028x}", settled=False) == jobs[5]
