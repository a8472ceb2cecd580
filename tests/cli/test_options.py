"""What commands share: the note that every command that commits takes. [OB15]"""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manifestcommit as mc
from manifestcommit.cli.main import main, make_parser

DAYS = pa.table({"day": ["2013-01-01", "2013-01-02"], "flight": pa.array([1545, 1714], pa.int32())})
NOTE = ["--message", "late & 'é'", "--metadata", "run %+=#=a=b", "--metadata", "empty="]
# Each command that commits something of its own, with its arguments after the path.
COMMITTING = {
    "abort": ["JOB", "--yes"], "add-column": ["gate", "string"], "adopt": [], "comment-column": ["flight", "as sold"], "compact": [],
    "constraints": ["--add", "known=flight > 0"], "delete": ["--where", "flight = 1545", "--yes"], "drop-column": ["flight", "--yes"],
    "load": ["LANDING", "--settle", "0s"], "gc": ["--grace", "0s", "--keep-for", "0s", "--yes"], "properties": ["--set", "owner=me"],
    "rename-column": ["flight", "number"], "rewind": ["faa", "--to", "2", "--reason", "again", "--yes"],
    "rollback": ["2", "--reason", "wrong", "--yes"], "set-partitioning": ["--partition-by", "flight"], "tag": ["newest"],
    "untag": ["first", "--yes"], "widen-column": ["flight", "long"],
}  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small files in one partition, a tag, a watermark, and a prepared job."""
    root = tmp_path_factory.mktemp("options") / "a b%é"
    mc.write(DAYS, root, watermarks={"faa": (0, 2)})
    mc.write(DAYS, root, watermarks={"faa": (2, 4)})
    mc.Table(root).tag("first", 2)
    job = mc.begin(root)
    job.write(DAYS)
    job.prepare()
    return root


@pytest.mark.parametrize("name", COMMITTING)
def test_a_command_that_commits_records_its_note(original: Path, name: str, tmp_path: Path) -> None:
    """[OB15]"""
    root = tmp_path / "a b%é"
    if name == "adopt":
        root.mkdir()
        pq.write_table(DAYS, root / "part.parquet")
    else:
        shutil.copytree(original, root)
    before = 0 if name == "adopt" else mc.Table(root).version
    job = "" if name == "adopt" else mc.Table(root).jobs()[0].job
    landing = tmp_path / "landing"
    landing.mkdir()
    pq.write_table(DAYS, landing / "part.parquet")
    more = [{"JOB": job, "LANDING": str(landing)}.get(each, each) for each in COMMITTING[name]]
    assert main([name, str(root), *more, *NOTE]) == 0
    table = mc.Table(root)
    made = [row for row in table.history() if row["version"] > before]
    assert made and {row["message"] for row in made} == {"late & 'é'"}
    assert all(row["metadata"] == {"run %+": "#=a=b", "empty": ""} for row in made)


def test_the_commands_that_take_a_note_are_those_that_commit() -> None:
    parsers = make_parser().commands.parsers  # type: ignore[union-attr]
    taking = {name for name, parser in parsers.items() if {"message", "metadata"} <= {action.dest for action in parser._actions}}
    assert taking == {*COMMITTING, "follow", "maintain", "erase"}  # until it is ended; what is due; and is called again


def test_a_name_that_is_given_twice_is_refused(original: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = mc.Table(original).version
    assert main(["tag", str(original), "x", "--metadata", "run=1", "--metadata", "run=2"]) == 2
    assert "invalid --metadata" in capsys.readouterr().err and mc.Table(original).version == before


def test_a_note_without_a_change_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be in no commit. [OB15] [SE3]"""
    mc.write(DAYS, tmp_path / "t")
    assert main(["properties", str(tmp_path / "t"), "--message", "why"]) == 2
    assert "--message and --metadata go with --set or --unset" in capsys.readouterr().err and mc.Table(tmp_path / "t").version == 2
