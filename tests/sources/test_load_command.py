"""The commands `load` and `follow` refuse what they would not obey. [LD1]"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.sources.test_landing_files import put

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
    assert said == ("manifestcommit: invalid --csv-options ';;': expected delimiter to be one ASCII character\n")
