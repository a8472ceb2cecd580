"""The code of the how-to pages holds what they say, also when it is killed, replayed and raced. [SP7] [KY2] [KY3] [WM2]"""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.docs import blocks
from tests.docs.blocks import REPO
from tests.erase.world import telling
from tests.kit.sizes import SetBudgets, rest_thorough
from tests.spark.streams import feed, read_input

import manifestcommit as mc
from manifestcommit.table import Table

HOW_TO = REPO / "docs" / "how-to"


def run(page: str, section: str, **names: Any) -> dict[str, Any]:
    """What the code below a heading defines; it is run with these names."""
    return blocks.run(HOW_TO / page, {"mc": mc, **names}, section, shown=True)


def numbers(path: str) -> list[int]:
    return sorted(Table(path).dataset().to_table(columns=["n"]).column("n").to_pylist())


@pytest.mark.parametrize("title", rest_thorough(["A streaming query", "foreachBatch"], "foreachBatch"))
def test_a_stream_is_taken_once(spark, root: str, tmp_path: Path, title: str) -> None:
    """A batch that is replayed, more input, and a deleted checkpoint, which is an error rather than rows twice or none."""
    source, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    feed(source, 0, 1)
    names = {"spark": spark, "stream": read_input(spark, str(source)), "path": root, "checkpoint": str(checkpoint)}
    run("streaming.md", title, **names)
    version = Table(root).snapshot().version
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    run("streaming.md", title, **names)
    assert Table(root).snapshot().version == version
    feed(source, 2)
    run("streaming.md", title, **names)
    assert numbers(root) == list(range(30))
    shutil.rmtree(checkpoint)
    with pytest.raises(Exception, match="KeyReusedError"):
        run("streaming.md", title, **names)
    assert numbers(root) == list(range(30))


@pytest.mark.thorough
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
        run("retry-safely.md", "A loop over batches", path=root, read_orders=read_orders)
    assert Table(root).watermarks() == {"orders": 2_026}, "a thousand rows, across the gap"
    killed_at = 10_000
    for _ in range(2):
        run("retry-safely.md", "A loop over batches", path=root, read_orders=read_orders)
        assert numbers(root) == orders
    with pytest.raises(mc.errors.WatermarkOverlapError):
        mc.write(read_orders(1_000, 500), root, watermarks={"orders": (1_000, 1_500)})


@pytest.mark.thorough
def test_a_read_modify_write_loses_no_commit_of_others(spark, root: str) -> None:
    """Others append between each read and the write, twice; the third try commits all of it. [CF17]"""
    mc.write(pa.table({"n": [1, 2]}), root)
    seen: list[int] = []

    def change(df: Any) -> Any:
        if len(seen) < 2:
            mc.write(pa.table({"n": [3 + len(seen)]}), root)
        seen.append(df.count())
        return df.selectExpr("n * 10 AS n")

    run("read-modify-write.md", "With Spark", path=root, change=change)
    assert seen == [2, 3, 4] and numbers(root) == [10, 20, 30, 40]


NEEDLE = "needle-4711"


@pytest.mark.thorough
@pytest.mark.parametrize("spilled", rest_thorough([False, True], True))
def test_a_forgotten_row_is_in_no_object_any_more(spark, root: str, set_budgets: SetBudgets, spilled: bool) -> None:
    """In rows, bounds and names of partitions, of data files, snapshots, manifests; in history, tags, what jobs left behind. [GC17]"""
    if spilled:
        set_budgets(inline_entry_bytes=0, inline_removed_bytes=0)
    others = {"text": ["a", "b"], "person": ["x", "y"]}
    mc.write(pa.table({**others, "n": [1, 2]}), root, partition_by="person", key="first")
    mc.write(pa.table({"text": [NEEDLE, "z"], "person": ["x", NEEDLE], "n": [3, 4]}), root)
    table = Table(root)
    table.tag("before")
    abandoned = mc.begin(root)
    abandoned.write(pa.table({"text": [NEEDLE], "person": ["x"], "n": [5]}))
    abandoned.abort()
    table.merge(pa.table({"text": ["a", NEEDLE], "person": ["x", "y"], "n": [1, 6]}), on="n", spark=spark)
    for kind in (f"person={NEEDLE}", "person=x", "versions/", *(["manifests/"] if spilled else [])):
        assert any(kind in each for each in telling(root, NEEDLE)), "the search must see it where it is"
    condition = f"text = '{NEEDLE}' OR person = '{NEEDLE}'"
    assert table.erase(condition, reason="request 17", drop_tags=True).state == "open" and telling(root, NEEDLE)
    assert table.erase(condition, reason="request 17", grace="0s").state == "done"
    assert telling(root, NEEDLE) == set()
    assert numbers(root) == [1, 2] and table.verify(deep=True).is_sound
