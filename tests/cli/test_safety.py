"""What only gc could make final is asked about first: on a real terminal, and refused where nobody can be asked. [SE4]"""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.on_terminal import run

import manifestcommit as mc
from manifestcommit.cli.main import main, make_parser

DAYS = pa.table({"day": ["2013-01-01", "2013-01-02"], "flight": [1545, 1714]})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 1 to 3 with rows, a tag of version 2, a column more, and two prepared jobs."""
    root = tmp_path_factory.mktemp("safety") / "a b%é"
    mc.write(DAYS, root, partition_by="day", key="flights:1", watermarks={"faa": (0, 2)})
    mc.write(DAYS, root, key="flights:2", watermarks={"faa": (2, 4)})
    table = mc.Table(root)
    table.tag("first load", 2)
    table.add_column("gate", "string")
    for number in (1, 2):
        job = mc.begin(root, key=f"prepared {number}")
        job.write(DAYS.append_column("gate", pa.array([None, None], pa.string())))
        job.prepare()
    return root


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "a b%é"))


def prepared(root: Path) -> str:
    return next(each.job for each in mc.Table(root).jobs() if each.state == "prepared")


def commands(root: Path) -> dict[str, tuple[list[str], str]]:
    """Each command that asks, and a number that its question has to name."""
    where = str(root)
    return {
        "rollback": (["rollback", where, "2", "--reason", "x"], "  removed files: 2\n"),
        "rewind": (["rewind", where, "faa", "--to", "2", "--reason", "x"], "positions to read again: 2\n"),
        "abort": (["abort", where, prepared(root)], "  files: 2\n  rows: 2\n"),
        "drop-column": (["drop-column", where, "gate"], "  files: 4\n  rows: 4\n"),
        "untag": (["untag", where, "first load"], "  files: 0\n  rows: 0\n"),
        "gc --foreign": (["gc", where, "--foreign"], "  objects: 0\n"),
        "gc --grace": (["gc", where, "--grace", "1h"], "--grace 1h"),
        "gc --keep-for": (["gc", where, "--keep-for", "0s"], "--keep-for 0s"),
        "gc --keep-keys": (["gc", where, "--keep-keys", "1"], "--keep-keys 1"),
    }


ASKING = ["rollback", "rewind", "abort", "drop-column", "untag", "gc --foreign", "gc --grace", "gc --keep-for", "gc --keep-keys"]


def test_whatever_keeps_less_and_a_staged_job_are_asked_about(root: Path) -> None:
    """[SE4] [CK5]"""
    staged = mc.write(DAYS.append_column("gate", pa.array([None, None], pa.string())), root, publish=False)
    mc.Table(root).set_properties({"gc.keep-versions": "10", "gc.keep-keys-for": "30d"})
    before = content(root)
    for arguments in (["gc", "--keep-versions", "1"], ["gc", "--keep-keys-for", "0s"], ["abort", staged.job_id]):
        assert main([arguments[0], str(root), *arguments[1:]]) == 2
    assert content(root) == before and main(["abort", str(root), staged.job_id, "--yes"]) == 0


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", ASKING)
def test_without_a_terminal_it_refuses_and_yes_confirms(
    root: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """[SE4]"""
    arguments, _ = commands(root)[name]
    before = content(root)
    assert main(arguments) == 2
    found = capsys.readouterr()
    assert found.out == "" and "has to be confirmed" in found.err and content(root) == before
    assert main([*arguments, "--yes"]) == 0


@pytest.mark.parametrize("note", [["--metadata", "api_key=hunter2 %é"], ["--message", "pwd=hunter2 %é"]], ids=lambda note: note[0])
@pytest.mark.parametrize("name", ASKING)
def test_a_credential_in_a_note_is_not_repeated_to_whoever_has_to_confirm(
    root: Path, name: str, note: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor committed. [SE5] [SE4]"""
    arguments, _ = commands(root)[name]
    before = content(root)
    for more in ([], ["--dry-run"], ["--yes"]):
        assert main([*arguments, *note, *more]) == 2
        found = capsys.readouterr()
        assert f"invalid {note[0]}: " in found.err and "hunter2" not in found.out + found.err, more
    assert content(root) == before


@pytest.mark.parametrize("name", ASKING)
def test_a_dry_run_says_what_it_would_do_and_changes_nothing(root: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[SE4]"""
    arguments, number = commands(root)[name]
    before = content(root)
    assert main([*arguments, "--dry-run"]) == 0
    found = capsys.readouterr()
    assert content(root) == before and "nothing was changed" in found.err
    if not name.startswith("gc"):
        assert number in found.out
    assert main([*arguments, "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert name.startswith("gc") or (document["dry_run"] is True and document["version"] == 5)
    assert content(root) == before


@pytest.mark.parametrize("name", ASKING)
def test_a_terminal_is_asked_and_only_yes_is_yes(root: Path, name: str) -> None:
    """[SE4]"""
    arguments, number = commands(root)[name]
    before = content(root)
    for answer in ("\n", "n\n", "what?\n", "\x04"):
        found = run(*arguments, answers=[answer])
        assert (found.status, found.asked) == (1, 1) and content(root) == before
        assert number in found.shown and found.shown.endswith("nothing was changed\n")
    found = run(*arguments, answers=["y\n"])
    assert (found.status, found.asked) == (0, 1)
    assert content(root) != before or name.startswith("gc"), "there is nothing to collect yet"


def test_yes_asks_nothing_on_a_terminal_either(root: Path) -> None:
    found = run("rollback", root, 2, "--reason", "x", "--yes")
    assert (found.status, found.asked) == (0, 0) and mc.Table(root).version == 6


def test_the_question_is_put_again_where_the_table_has_changed(root: Path) -> None:
    """What was agreed to is what is done. [SE4]"""

    def somebody_writes() -> str:
        mc.write(DAYS, root)
        return "yes\n"

    found = run("rollback", root, 2, "--reason", "x", answers=[somebody_writes, "n\n"])
    assert (found.status, found.asked) == (1, 2) and mc.Table(root).version == 6
    assert "  removed rows: 2\n" in found.shown and "  removed rows: 4\n" in found.shown


@pytest.mark.parametrize("arguments", [["gc"], ["gc", "--keep-for", "30d", "--grace", "48h"], ["commit"]], ids=" ".join)
def test_a_daily_run_asks_nothing(root: Path, arguments: list[str]) -> None:
    """gc by a scheduler, and whatever only adds. [SE4]"""
    more = [prepared(root)] if arguments == ["commit"] else []
    found = run(arguments[0], root, *more, *arguments[1:])
    assert (found.status, found.asked) == (0, 0)


def test_what_changes_nothing_is_not_asked_about(root: Path) -> None:
    """A job that has committed cannot be aborted."""
    job = mc.Table(root).history()[-2]["job"]
    found = run("abort", root, job)
    assert (found.status, found.asked) == (1, 0) and "committed at version 2" in found.shown


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["rollback", "ROOT", "99", "--reason", "x"], 3, "no version 99"),
        (["rollback", "ROOT", "5", "--reason", "x"], 2, "the newest already"),
        (["rollback", "ROOT", "2", "--reason", " "], 2, "invalid --reason"),
        (["rewind", "ROOT", "nope", "--to", "1", "--reason", "x"], 2, "knows no source 'nope'"),
        (["drop-column", "ROOT", "day"], 2, "partitions the table"),
        (["drop-column", "ROOT", "nope"], 2, "nope"),
        (["untag", "ROOT", "nope"], 3, "no tag 'nope'"),
        (["gc", "ROOT", "--grace", "soon"], 2, "invalid --grace 'soon'"),
    ],
)
def test_what_cannot_be_done_is_an_error_and_no_question(root: Path, arguments: list[str], status: int, message: str) -> None:
    given = [str(root) if each == "ROOT" else each for each in arguments]
    for more in ([], ["--dry-run"], ["--yes"]):
        found = run(*given, *more)
        assert (found.status, found.asked) == (status, 0) and message in found.shown.replace("\n", ""), more


def test_gc_counts_objects_by_the_kind_of_reason(tmp_path: Path) -> None:
    """Not by job: ids of jobs are no reason. [GC5]"""
    root = tmp_path / "t"
    for number in range(5):
        mc.write(DAYS, root, mode="overwrite", key=f"day {number}")
    found = run("gc", root, "--grace", "0s", "--keep-for", "0s", answers=["n\n"])
    (line,) = [line for line in found.shown.splitlines() if line.startswith("  reasons: ")]
    reasons = line.partition(": ")[2].split("; ")
    assert len(reasons) == 2 and not any(job[:8] in found.shown for job in jobs_of(root))
    assert any(each.endswith(": no readable version lists it") for each in reasons)
    assert any(each.endswith(": version … is below …, the oldest readable one") for each in reasons)


def jobs_of(root: Path) -> list[str]:
    return [row["job"].rpartition("-")[2] for row in mc.Table(root).history()]


def test_a_rollback_over_a_rewind_says_where_the_watermarks_go(root: Path) -> None:
    """Forward, or to be known again. [CF13]"""
    table = mc.Table(root)
    table.rewind("faa", 2, reason="day 2 again")
    before = table.version - 1
    found = run("rollback", root, before, "--reason", "x", answers=["n\n"])
    assert 'watermarks: {"faa": {"from": 2, "to": 4}}' in found.shown
    table.rewind("faa", None, reason="from the start")
    found = run("rollback", root, before, "--reason", "x", "--dry-run")
    assert 'watermarks: {"faa": {"from": null, "to": 4}}' in found.shown
    found = run("rollback", root, 1, "--reason", "x", "--dry-run")
    assert "watermarks: none" in found.shown
    run("rollback", root, before, "--reason", "x", "--yes")
    found = run("rollback", root, 1, "--reason", "x", "--dry-run")
    assert 'watermarks: {"faa": {"from": 4, "to": null}}' in found.shown


def test_every_command_that_changes_something_for_good_can_be_rehearsed() -> None:
    """--dry-run and --yes come together. [SE4]"""
    found = {}
    for name, parser in make_parser().commands.parsers.items():  # type: ignore[union-attr]
        options = {option for action in parser._actions for option in action.option_strings}
        found[name] = options & {"--dry-run", "--yes"}
    both = {name for name, options in found.items() if "--yes" in options}
    assert both == {"rollback", "rewind", "delete", "erase", "abort", "drop-column", "untag", "gc", "load"}
    assert all("--dry-run" in found[name] for name in both)
