"""The code of spec/recipes.md does what the page says. [SP7] [KY2] [KY3] [WM2]"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.table import Table
from tests.spark.streams import feed, read_input

PAGE = Path(__file__).resolve().parents[2] / "spec" / "recipes.md"


def blocks(title: str) -> str:
    """The Python of one section."""
    section = PAGE.read_text("utf-8").split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE))
    assert code, title
    return code


def run(title: str, **names: Any) -> None:
    exec(compile(blocks(title), f"{PAGE}: {title}", "exec"), {"mc": mc, **names})  # the page is this repository's own


def numbers(path: str) -> list[int]:
    return sorted(Table(path).dataset().to_table(columns=["n"]).column("n").to_pylist())


@pytest.mark.parametrize("title", ["A streaming query", "foreachBatch"])
def test_a_stream_is_taken_once(spark, root: str, tmp_path: Path, title: str) -> None:
    """A batch that is replayed, more input, and a deleted checkpoint, which is an error rather than rows twice or none."""
    source, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    feed(source, 0, 1)
    names = {"spark": spark, "stream": read_input(spark, str(source)), "path": root, "checkpoint": str(checkpoint)}
    run(title, **names)
    version = Table(root).snapshot().version
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    run(title, **names)
    assert Table(root).snapshot().version == version
    feed(source, 2)
    run(title, **names)
    assert numbers(root) == list(range(30))
    shutil.rmtree(checkpoint)
    with pytest.raises(Exception, match="KeyReusedError"):
        run(title, **names)
    assert numbers(root) == list(range(30))


def test_a_loop_goes_on_where_the_table_stands(root: str) -> None:
    """Killed between two batches, run again, run when all is done; positions have gaps, also where a batch ends."""
    orders = [position for position in range(5_000) if position % 10 < 7 and not 1_400 <= position < 2_000]

    def read_orders(position: int, limit: int) -> pa.Table:
        if position >= killed_at:
            raise KeyboardInterrupt
        rows = [each for each in orders if each >= position][:limit]
        return pa.table({"position": rows, "n": rows})

    killed_at = 1_000
    with pytest.raises(KeyboardInterrupt):
        run("A loop over batches", path=root, read_orders=read_orders)
    assert Table(root).watermarks() == {"orders": 2_026}, "a thousand rows, across the gap"
    killed_at = 10_000
    for _ in range(2):
        run("A loop over batches", path=root, read_orders=read_orders)
        assert numbers(root) == orders
    with pytest.raises(mc.WatermarkOverlapError):
        mc.write(read_orders(1_000, 500), root, watermarks={"orders": (1_000, 1_500)})
