"""A month of writers, merges, dead jobs and upkeep; upkeep that is killed, and twice at once. [UK1] [UK4] [UK5] [IV7]"""

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.kit.faults import execute, lives
from tests.upkeep.life import Life, content, lived, rows, table
from tests.upkeep.month import Month

import manifestcommit as mc
from manifestcommit import upkeep


@pytest.mark.parametrize(("days", "of_each"), [(24, 1), pytest.param(31, 6, marks=pytest.mark.thorough)])
def test_a_month_of_upkeep_keeps_every_figure_flat_and_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, of_each: int
) -> None:
    """Three days without anybody among them. [UK1] [UK2] [IV7]"""
    month = Month(monkeypatch, tmp_path)
    life = Life(month, seed=7, of_each=of_each)
    lived(month, life, days)
    life.check_flat()
    assert life.days[-1].upkeep_requests > 0 and f"{len(life.paths)} tables" in table(life.days, len(life.paths))
    assert max(len(mc.Table(path).history()) for path in life.paths.values()) < 100
    assert {mc.Table(path).verify(deep=True).damages for path in life.paths.values()} == {0}
    with pytest.raises(mc.errors.SnapshotExpiredError):
        mc.Table(life.paths["events0"]).to_arrow(version=2)


# --- killed ---------------------------------------------------------------------------------------------------------------------


MAINTAIN = """
from manifestcommit import upkeep
upkeep._GC_EVERY_S = 0.0
done = mc.maintain({!r}).to_pylist()
assert {{row["step"] for row in done if row["state"] == "done"}} >= {{"compact", "verify", "gc"}}
"""


def grown(path: Path) -> Counter[tuple[int, int, int]]:
    """A table with small files, versions and a dead job's files that are due for every step."""
    known: Counter[tuple[int, int, int]] = Counter()
    for number in range(10):
        mc.write(rows((number, 0, 0)), path, key=f"k{number}")
        known[number, 0, 0] += 1
    mc.Table(path).set_properties({"gc.grace": "0s", "gc.keep-for": "0s", "export.formats": "delta"})
    return known


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["before", "after"])
def test_upkeep_that_dies_at_any_request_loses_nothing_and_the_next_one_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A real SIGKILL, at each third request that changes the store. [UK5] [GC7] [GC11]"""
    monkeypatch.setattr(upkeep, "_GC_EVERY_S", 0.0)
    deaths = 0
    for at in range(1, 60, 3):
        path = tmp_path / str(at)
        known = grown(path)
        died = not lives(execute, MAINTAIN.format(str(path)), at, moment)
        assert content(str(path)) == known and mc.Table(path).verify().is_sound
        mc.write(rows((99, 0, 0)), path)
        known[99, 0, 0] += 1
        states = {row["step"]: row["state"] for row in mc.maintain(path).to_pylist()}
        assert states["gc"] == "done" and "failed" not in states.values()
        assert content(str(path)) == known and mc.Table(path).snapshot().totals.files <= 3
        assert mc.write(rows((0, 0, 0)), path, key="k0").already_committed
        if not died:
            break
        deaths += 1
    else:
        pytest.fail("no run lived to its end")
    assert deaths >= 3


# --- at once --------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_two_at_once_beside_writers_lose_nothing_and_fail_nowhere(tmp_path: Path) -> None:
    """[UK5] [GC12]"""
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        grown(path)
    code = "import json, sys, manifestcommit as mc, manifestcommit.upkeep as u; u._GC_EVERY_S = 0.0\n"
    code += "print(json.dumps([row for _ in range(2) for row in mc.maintain(sys.argv[1:]).to_pylist()]))"
    started = [subprocess.Popen([sys.executable, "-c", code, *map(str, paths)], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    stop, written = threading.Event(), Counter[int]()

    def write() -> None:
        number = 100
        while not stop.is_set():
            mc.write(rows((number, 0, 0)), paths[number % 3], key=f"k{number}")
            written[number] += 1
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    found: list[dict[str, Any]] = []
    try:
        for each in started:
            out, _ = each.communicate(timeout=120)
            assert each.returncode == 0
            found += json.loads(out)
    finally:
        stop.set()
        thread.join()
    assert {row["state"] for row in found} <= {"done", "not due", "waits"}, [row["result"] for row in found if row["state"] == "failed"]
    assert any(row["state"] == "done" and row["step"] == "compact" for row in found)
    have = Counter(row[0] for path in paths for row in content(str(path)).elements())
    assert have == Counter({**dict.fromkeys(range(10), 3), **written})
    assert all(mc.Table(path).verify(deep=True).is_sound for path in paths)
