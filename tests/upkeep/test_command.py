"""`manifestcommit maintain`, and when `gc` asks. [UK1] [UK2] [SE4]"""

import itertools
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.operations.upkeep_properties import RETENTION, STEPS, retention_value
from manifestcommit.protocol.retention import Policy


def fill(path: Path, files: int = 8) -> mc.Table:
    for number in range(files):
        mc.write(pa.table({"id": [number]}), path)
    return mc.Table(path)


def test_a_dry_run_and_a_run_say_each_step_of_each_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[UK2]"""
    table, other = fill(tmp_path / "a"), fill(tmp_path / "b", 1)
    version = table.version
    assert main(["maintain", table.url, other.url, "--dry-run", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["table"], row["step"]) for row in rows] == [(url, step) for url in (table.url, other.url) for step in STEPS]
    assert [row["step"] for row in rows if row["state"] == "due"] == ["compact"] and table.version == version
    assert main(["maintain", table.url, "--max-bytes", "1GB", "--max-time", "1h", "--message", "at night"]) == 0
    assert "8 files became 1" in capsys.readouterr().out and table.history()[0]["message"] == "at night"


def test_damage_is_exit_status_1_and_a_wrong_limit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[UK5]"""
    table = fill(tmp_path / "a")
    assert main(["maintain", table.url, "--max-time", "soon"]) == 2 and "--max-time" in capsys.readouterr().err
    assert main(["maintain", table.url, "--every", "soon"]) == 2 and "--every" in capsys.readouterr().err
    (tmp_path / "a" / table.files().column("path").to_pylist()[0]).unlink()
    assert main(["maintain", table.url]) == 1
    assert "failed" in capsys.readouterr().out


@pytest.mark.thorough
def test_it_goes_on_until_it_is_killed(tmp_path: Path) -> None:
    """What came since the last round is done in the next one. [UK5]"""
    table = fill(tmp_path / "a")
    command = [sys.executable, "-m", "manifestcommit", "maintain", table.url, "--every", "1s", "--format", "jsonl"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        done = 0
        for line in itertools.islice(running.stdout, 200):
            row = json.loads(line)
            if (row["step"], row["state"]) == ("compact", "done"):
                done += 1
                if done == 2:
                    break
                fill(tmp_path / "a")
        assert done == 2
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=30) == -signal.SIGTERM
    finally:
        running.kill()
        running.communicate()
    assert sorted(table.to_arrow().column("id").to_pylist()) == sorted([*range(8), *range(8)]) and table.verify().is_sound


@pytest.mark.parametrize(
    ("kept", "asked", "asks"),
    [
        ({}, ["--keep-for", "1d"], True),
        ({}, ["--keep-for", "8d"], False),
        ({"gc.keep-for": "1d"}, ["--keep-for", "1d"], False),
        ({"gc.keep-for": "30d"}, ["--keep-for", "7d"], True),
        ({"gc.keep-for": "0s", "gc.grace": "0s"}, [], False),
        ({"gc.grace": "48h"}, ["--grace", "24h"], True),
        ({"gc.keep-keys": "5"}, ["--keep-keys", "6"], False),
        ({"gc.keep-keys": "50000"}, ["--keep-keys", "10000"], True),
    ],
)
def test_gc_asks_where_it_is_to_keep_less_than_the_table_says(
    tmp_path: Path, kept: dict[str, str], asked: list[str], asks: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """[SE4] [UK1]"""
    table = fill(tmp_path / "a", 2)
    table.set_properties({"mine": "1", **kept})
    assert main(["gc", table.url, *asked]) == (2 if asks else 0)
    assert not asks or "confirm it with --yes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "file", ["manifestcommit/cli/maintain_table.py", "manifestcommit/cli/erase.py", "manifestcommit/table/functions.py"]
)
def test_what_is_said_of_the_defaults_of_gc_is_so(file: str) -> None:
    """`Policy` has them. [UK1] [GC1]"""
    text = (Path(mc.__file__).parents[1] / file).read_text("utf-8")
    said = re.findall(r"(gc\.[\w-]+)`?,\s+or (?:else )?\"?([\d,]+[a-z]?)", text)
    assert {name for name, _ in said} == ({"gc.grace"} if file.endswith("erase.py") else {*RETENTION})
    for name, value in said:
        assert retention_value(name, value.replace(",", "")) == getattr(Policy(), RETENTION[name]), name


def test_the_page_of_properties_says_the_defaults_of_gc() -> None:
    """[UK1]"""
    page = (Path(mc.__file__).parents[1] / "docs/reference/properties.md").read_text("utf-8")
    rows = re.findall(r"^\| (`gc\..*?) \|.*\| (.*?) \|$", page, re.MULTILINE)
    said = {name.strip("`"): value.strip("`") for each in rows for name, value in zip(*(half.split(", ") for half in each), strict=True)}
    assert {name: retention_value(name, value) for name, value in said.items()} == {
        name: getattr(Policy(), member) for name, member in RETENTION.items()
    }
