"""What row changes, writes and reads do grows with the number of columns, not with its square. [RC8]"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.filter.predicate import merge_keys
from manifestcommit.format.fields import Field, Schema
from manifestcommit.rows import find

PACKAGE = str(Path(mc.__file__).parent)
ACTS: dict[str, Callable[[mc.Table, pa.Table], Any]] = {
    "update": lambda table, data: table.update({"c1": "c1 + 1"}, where="c0 = 1"),
    "delete": lambda table, data: table.delete("c0 = 1"),
    "merge": lambda table, data: table.merge(data, on="c0"),
    "merge by clauses": lambda table, data: table.merge(data, on="c0", when_matched=mc.Update(), when_not_matched=mc.Insert()),
    "overwrite_where": lambda table, data: table.overwrite_where(data, "c0 < 2"),
    "append": lambda table, data: mc.write(data, table.url),
    "change of columns": lambda table, data: mc.write(data.append_column("new", data["c0"]), table.url, merge_schema=True),
    "replaced columns": lambda table, data: mc.write(
        data.rename_columns([f"d{at}" for at in range(data.num_columns)]), table.url, mode="overwrite", replace_schema=True
    ),
    "read": lambda table, data: table.to_arrow(filter="c0 = 1"),
}


def steps(act: Callable[[], Any]) -> int:
    """How many instructions of the package this takes."""
    count = 0

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            if not frame.f_code.co_filename.startswith(PACKAGE):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.thorough
@pytest.mark.parametrize("name", ACTS)
def test_twice_as_many_columns_are_twice_as_much_work(tmp_path: Path, name: str) -> None:
    found = []
    for columns in (10, 60, 120, 240):  # the first loads modules
        path = tmp_path / str(columns)
        data = pa.table({f"c{at}": [0, 1] for at in range(columns)})
        mc.write(data, path)
        table = mc.Table(path)
        found.append(steps(partial(ACTS[name], table, data)))
    _, few, more, many = found
    assert many - more < 2.3 * (more - few), f"{found} instructions: they grow with the square of the columns"


class Counted(int):
    """An id that counts what it is compared with."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    def __hash__(self) -> int:
        return int(self)


def test_columns_are_not_looked_for_one_in_all_others() -> None:
    """Which no count of instructions shows: a list is searched by one."""
    found = []
    for columns in (500, 1000):
        table, data = (
            Schema(fields=tuple(Field(id=Counted(start + at), name=f"c{at}", type="long") for at in range(columns))) for start in (1, 5000)
        )
        Counted.compared = 0
        find._check_columns(table, data, merge_keys(table, "c0"), False, None)
        found.append(Counted.compared)
    assert found[1] <= 3 * found[0] + 3000, found
