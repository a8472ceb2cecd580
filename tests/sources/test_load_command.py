"""The commands `load` and `follow` refuse what they would not obey. [LD1]"""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.kit.sources import put

import manifestcommit as mc
from manifestcommit.cli.main import main


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A landed file, and a table; both by short names."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "landing", "a.csv", "id;note\n1;x\n")
    mc.write(pa.table({"id": [1]}), tmp_path / "orders")
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """What the command says when it ends with this code."""
    assert main(arguments) == code
    said = capsys.readouterr()
    assert not said.out
    return said.err


def test_a_wrong_value_of_a_csv_option_is_a_wrong_use(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "load", "t", "landing", "--csv-options", '{"delimiter": ";;"}')
    assert said.startswith("manifestcommit: invalid --csv-options ';;': expected delimiter as pyarrow.csv takes it (")


@pytest.mark.parametrize(
    ("source", "wrong", "takers"),
    [
        ("landing", ["--xid-column", "tx"], "postgres:"),
        ("landing", ["--servers", "x:1"], "kafka:"),
        ("landing", ["--start", "latest"], "kafka:"),
        ("landing", ["--on", "id"], "table:"),
        ("table:orders", ["--pattern", "*.csv"], "files"),
        ("table:orders", ["--file-column", "f"], "files"),
        ("kafka:topic", ["--source-options", "file"], "files and table:"),
        ("postgres:orders", ["--csv-options", "{}"], "files"),
    ],
)
@pytest.mark.parametrize("command", ["load", "follow"])
def test_an_option_of_another_kind_of_source_is_refused(
    lake: Path, capsys: pytest.CaptureFixture[str], command: str, source: str, wrong: list[str], takers: str
) -> None:
    said = refused(capsys, command, "t", source, *wrong)
    assert said.startswith(f"manifestcommit: invalid {wrong[0]}: it is for {takers}, and the source is of ")
    assert not (lake / "t").exists()


def test_a_key_that_the_followed_table_has_not_is_refused_where_nothing_is_new(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[LD5]"""
    mc.load(mc.sources.table("orders", on="id"), "changes")
    assert "idd" in refused(capsys, "load", "changes", "table:orders", "--on", "idd")
    assert main(["load", "changes", "table:orders", "--on", "id"]) == 0


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("--source-options", ["load", "t", "landing"]),
        ("--kafka-settings", ["load", "t", "kafka:topic"]),
        ("--storage-options", ["load", "t", "landing"]),
        ("--to-options", ["clone", "orders", "copy"]),
    ],
)
def test_a_file_of_options_that_cannot_be_read_is_named_by_its_option(
    lake: Path, capsys: pytest.CaptureFixture[str], option: str, arguments: list[str]
) -> None:
    """[SE1]"""
    said = refused(capsys, *arguments, option, "none.json")
    assert said.startswith(f"manifestcommit: invalid {option}: expected the name of a file with one JSON object")


@pytest.mark.parametrize("wrong", [["--partition-by", "day"], ["--csv-options", '{"column_types": {"id;note": "int64"}}']])
def test_a_first_load_that_fails_leaves_no_table(lake: Path, capsys: pytest.CaptureFixture[str], wrong: list[str]) -> None:
    """[LD3]"""
    refused(capsys, "load", "t", "landing", *wrong, code=2 if "day" in wrong else 3)
    assert mc.lake(lake).tables()["name"].to_pylist() == ["orders"]
    assert not (lake / "t.files").exists()


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_files_cannot_be_loaded_again_as_a_whole(lake: Path, capsys: pytest.CaptureFixture[str], dry: list[str]) -> None:
    """[LD4]"""
    assert "cannot be loaded as a whole" in refused(capsys, "load", "t", "landing", "--restart", *dry, code=3)


def test_a_restart_is_asked_about(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[SE4]"""
    mc.load(mc.sources.table("orders"), "changes")
    mc.write(pa.table({"id": [2]}), "changes", merge_schema=True)
    before = mc.Table("changes").version
    said = refused(capsys, "load", "changes", "table:orders", "--restart")
    assert "changes by all of version 2:" in said and "confirm it with --yes" in said
    assert mc.Table("changes").version == before
    assert main(["load", "changes", "table:orders", "--restart", "--yes"]) == 0
    assert mc.Table("changes").to_arrow().num_rows == 1


@pytest.mark.parametrize(("typed", "meant"), [("postgress:x", "postgres:"), ("kafak:x", "kafka:"), ("tables:x", "table:")])
def test_a_kind_that_does_not_exist_is_told_with_the_one_that_was_meant(
    lake: Path, capsys: pytest.CaptureFixture[str], typed: str, meant: str
) -> None:
    said = refused(capsys, "load", "t", typed)
    assert f"invalid SOURCE '{typed}': no source is of the kind {typed[:-1]}; did you mean {meant}?" in said


def test_a_wrong_option_is_told_in_one_sentence(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, told in (["--slotts", "x"], "did you mean --slot"), (["--input-format", "xml"], "invalid choice: 'xml'"):
        with pytest.raises(SystemExit) as ended:
            main(["load", "t", "landing", *wrong])
        said = capsys.readouterr().err
        assert ended.value.code == 2 and said.startswith("manifestcommit load: error: ") and told in said
        assert said.endswith(" See manifestcommit load --help.\n") and said.count("\n") == 1


def test_tables_of_a_slot_are_pairs(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[LD12]"""
    for wrong in ("a=", "a=x,b", "a=x,b=x"):
        assert "expected tables, and the path" in refused(capsys, "load", "t", f"postgres:{wrong}", "--slot", "lake")


def test_a_dry_restart_says_what_it_would_load(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[LD5]"""
    mc.load(mc.sources.table("orders"), "changes")
    assert main(["load", "changes", "table:orders", "--restart", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("all of version 2\n1 commit would load this")
    assert mc.Table("changes").to_arrow().num_rows == 1
