"""Row changes and compactions without Spark whose process is killed around their commit. [CM1] [KY3] [RC1] [GC11]"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.sizes import rest_thorough

import manifestcommit as mc

# work -> the call, the ids afterwards, and the operation in the history
WORK = {
    "update": ("table.update({'id': 'id + 100'}, where='id < 3', key='k')", [3, 4, 5, 100, 101, 102], "update"),
    "delete": ("table.delete('id = 1 OR id = 4', key='k')", [0, 2, 3, 5], "delete"),
    "merge": ("table.merge(pa.table({'id': [5, 6]}), on='id', key='k')", [0, 1, 2, 3, 4, 5, 6], "merge"),
    "overwrite": ("table.overwrite_where(pa.table({'id': [2]}), 'id < 3', key='k')", [2, 3, 4, 5], "overwrite"),
    "compact": ("table.compact()", [0, 1, 2, 3, 4, 5], "replace"),
}
CODE = """
import os, signal, sys
import pyarrow as pa
import manifestcommit as mc
from manifestcommit.store.local.local import LocalStore

table, moment, put = mc.Table(sys.argv[1]), sys.argv[2], LocalStore.put_if_absent

def killed(*given):
    done = moment == "after" and put(*given)
    os.kill(os.getpid(), signal.SIGKILL)

table.version
LocalStore.put_if_absent = killed
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("work", rest_thorough(list(WORK), "merge"))
def test_a_process_that_is_killed_around_its_commit_has_done_all_or_nothing(tmp_path: Path, work: str, moment: str) -> None:
    """And a rerun with its key completes it, once."""
    call, ids, operation = WORK[work]
    for first in (0, 3):
        mc.write(pa.table({"id": range(first, first + 3)}), tmp_path / "t")
    table = mc.Table(tmp_path / "t")
    before = table.snapshot().version
    done = subprocess.run([sys.executable, "-c", CODE + call, str(tmp_path / "t"), moment], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr

    def found() -> list[int]:
        rows: list[int] = sorted(mc.Table(tmp_path / "t").to_arrow().column("id").to_pylist())
        return rows

    assert found() == ([0, 1, 2, 3, 4, 5] if moment == "before" else ids)
    again = eval(call, {"table": mc.Table(tmp_path / "t"), "pa": pa})
    if work != "compact":
        assert again.already_committed == (moment == "after")
    assert found() == ids and mc.Table(tmp_path / "t").verify(deep=True).is_sound
    operations = [each["operation"] for each in mc.Table(tmp_path / "t").history(10) if each["version"] > before]
    assert operations.count(operation) == 1
