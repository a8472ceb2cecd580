"""Write, audit, publish: three tasks, each in a process of its own, which is killed at any request and run again. [CK5] [CK6] [IV3]"""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.faults import CHANGES, dying, lives
from tests.kit.sizes import rest_thorough

import manifestcommit as mc
from manifestcommit import checks

KEY = "day 7"
OLD = pa.table({"id": [1, 2], "amount": [1.0, 2.0]})
DAY = pa.table({"id": [7, 8, 9], "amount": [3.0, 4.0, None]})
# What a task asks of the store; between two changes nobody can tell when it died.
CALLS = (*CHANGES, "get", "list", "open_input")


# --- in the processes ---------------------------------------------------------------------------------------------------


def write(path: Path) -> object:
    return mc.write(DAY, path, key=KEY, publish=False).job_id


def audit(path: Path) -> object:
    staged = mc.Staged(path, told(path, "write"))
    version = staged.base_version
    staged.check(checks.expect("amount > 0"), checks.expect_unique("id"))
    return version


def publish(path: Path) -> object:
    return mc.Staged(path, told(path, "write")).publish(base_version=told(path, "audit")).version


TASKS: dict[str, Callable[[Path], object]] = {"write": write, "audit": audit, "publish": publish}


def hand_on(path: Path, name: str) -> Path:
    return path.parent / f"{name}.json"


def told(path: Path, name: str) -> Any:
    """What the task before has handed on."""
    return json.loads(hand_on(path, name).read_text())


def run(name: str, path: Path, at: int, moment: str) -> None:
    """One attempt of a task; killed before or after its `at`-th request, or once it is done and nobody was told."""
    with dying(at, moment, CALLS if name == "audit" else CHANGES):
        result = TASKS[name](path)
    hand_on(path, name).write_text(json.dumps(result))


def again(names: list[str], path: Path) -> None:
    """These tasks, by what the ones before have handed on."""
    for name in names:
        hand_on(path, name).write_text(json.dumps(TASKS[name](path)))


# --- what is checked ----------------------------------------------------------------------------------------------------


def ids(path: Path) -> list[int]:
    return sorted(mc.Table(path).to_arrow().column("id").to_pylist())


WHERE = ["write before", "write after", "audit before", "publish before", "publish after"]


@pytest.mark.parametrize("where", rest_thorough(WHERE, "publish after"))
def test_a_task_that_is_killed_at_any_request_and_run_again_publishes_once(tmp_path: Path, where: str) -> None:
    """Before it is run again the day is there or not, and before anybody publishes it is not. [CK5] [CK6] [IV3] [IV4]"""
    name, moment = where.split()
    base = tmp_path / "base" / "t"
    mc.write(OLD, base)
    names = list(TASKS)
    again(names[: names.index(name)], base)
    for at in itertools.count(1):
        path = tmp_path / str(at) / "t"
        shutil.copytree(base.parent, path.parent)
        if lives(run, name, path, at, moment):
            break
        assert ids(path) in ([1, 2], [1, 2, 7, 8, 9] if name == "publish" else [1, 2])
        again(names[names.index(name) :], path)
        assert ids(path) == [1, 2, 7, 8, 9]
        again(names, path)  # and all three once more, for nothing
        for job in [info.job for info in mc.Table(path).jobs() if info.state == "prepared"]:
            assert mc.Staged(path, job).publish().already_committed
        assert ids(path) == [1, 2, 7, 8, 9] and mc.Table(path).verify(deep=True).damages == 0
        shutil.rmtree(path.parent)
    assert at > 2
