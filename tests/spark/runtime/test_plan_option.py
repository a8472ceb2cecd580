"""A plan on its way into Spark's tasks is a text of which nothing is executed. [SE2]"""

import base64
import os
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

import manifestcommit as mc
from manifestcommit.format.fields import Field, Schema


class Executed:
    """Makes a folder where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def packed(**members: Any) -> str:
    plan = {"url": "file:///nowhere", "files": [], "schema": Schema(fields=(Field(id=1, name="a", type="long"),)), "columns": None}
    return base64.b64encode(zstandard.ZstdCompressor().compress(msgspec.json.encode(plan | members))).decode()


def test_an_option_of_the_reader_executes_nothing(tmp_path: Path) -> None:
    """Whoever may set an option, such as a user of a notebook server, could run code as the one who reads. [SE2]"""
    from manifestcommit.spark.scan import PlannedRead

    marker = tmp_path / "executed"
    bomb = pickle.dumps(Executed(str(marker)))
    good = PlannedRead({"plan": packed()})
    assert good.reader(good.schema()) is not None, "a plan as this test makes them is one"
    for option in (
        packed(schema=base64.b64encode(bomb).decode()),
        packed(schema=bomb.decode("latin-1")),
        base64.b64encode(bomb).decode(),
        base64.b64encode(zstandard.ZstdCompressor().compress(bomb)).decode(),
        packed(url=5),
        "",
        "\ud800",
    ):
        source = PlannedRead({"plan": option})
        with pytest.raises(mc.errors.UsageError):
            source.reader(source.schema())
    with pytest.raises(mc.errors.UsageError, match="read_committed"):
        PlannedRead({}).schema()
    assert not marker.exists()
