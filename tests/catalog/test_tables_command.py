"""`manifestcommit tables` says where it found none. [LK1]"""

from pathlib import Path

import pytest

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.errors import UsageError


def test_a_place_without_tables_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="/file is a file, and a lake is a folder of tables"):
        mc.lake(tmp_path / "file").tables()
    assert main(["tables", str(tmp_path / "file")]) == 2
    for command in ("tables", "serve"):
        assert main([command, str(tmp_path / "none")]) == 2
        assert capsys.readouterr().err.endswith(f"there is no folder file://{tmp_path}/none\n")
    assert main(["tables", str(tmp_path), "--namespace", "sales.eu"]) == 0
    assert capsys.readouterr().err == f"0 tables in sales.eu of file://{tmp_path}\n"
