"""Exports of a table whose objects others have changed, and a file of another program that they describe. [EX2] [EX4] [OB4]

Allowed are an export as if nothing had been there, and the library's own errors.
"""

import contextlib
import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
from tests.fuzz.mutate import HOSTILE, mutate_bytes, mutate_document
from tests.fuzz.parquet import mutate_parquet
from tests.kit.footers import parquet_bytes

import manifestcommit as mc
from manifestcommit.catalog import publishing
from manifestcommit.catalog.lake import marker_at
from manifestcommit.errors import ManifestCommitError
from manifestcommit.export.spark_catalog import LOG
from manifestcommit.intake import delta_table, iceberg_table
from manifestcommit.log.table_context import TableContext, is_export
from manifestcommit.store.local import MemoryStore

FORMATS = ("iceberg", "delta")
FOREIGN = "day=1/foreign.parquet"


def _row(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "day": pa.array([number], pa.int32())})


class Exported:
    """An adopted table with four exported versions."""

    def __init__(self) -> None:
        self.store = MemoryStore("fuzz-exports")
        self.url = self.store.url
        self.store.delete([info.name for info in self.store.list("")])
        data = parquet_bytes(pa.table({"id": pa.array([1, 2], pa.int64()), "day": pa.array([1, 1], pa.int32())}))
        self.store.put(FOREIGN, data)
        mc.Table(self.url).adopt()
        self.store.put("left.parquet", data)  # by another program, which no version lists
        table = mc.Table(self.url)
        table.set_properties({"export.formats": "iceberg,delta"})
        mc.write(_row(3), self.url, key="more", watermarks={"s": (0, 1)})
        table.tag("kept", table.version)
        table_id = TableContext(self.store).open().snapshot.table_id
        self.store.put(LOG, f'v1\n{{"manifestcommit":{{"table":"{table_id}","version":1}},"path":"x"}}'.encode())
        self._objects = {info.name: self.store.get(info.name) for info in self.store.list("")}
        self.exports = sorted(name for name in self._objects if is_export(name))
        self.document = f"_iceberg/metadata/v{table.version}.metadata.json"

    def restore(self) -> None:
        """As it was."""
        self.store.delete([info.name for info in self.store.list("") if info.name not in self._objects])
        for name, data in self._objects.items():
            self.store.put(name, data)


@cache
def exported() -> Exported:
    return Exported()


def hostile_export(place: Exported, dice: random.Random) -> None:
    """One object of an export with other bytes, another document or none at all; or another program's data file."""
    name = dice.choice([*place.exports, *place.exports, FOREIGN])
    data = place.store.get(name)
    what = dice.randrange(5)
    if name.endswith(".checkpoint.parquet"):  # which is read where no commit follows it
        place.store.delete([each for each in place.exports if each.startswith("_delta_log/") and each.endswith(".json")])
    if what == 0:
        place.store.delete([name])
    elif what == 1 and name.endswith(".json"):
        lines = [json.loads(line) for line in data.splitlines()] if name.startswith("_delta_log/") else [json.loads(data)]
        at = dice.randrange(len(lines))
        lines[at] = mutate_document(lines[at], dice) if dice.random() < 0.9 else dice.choice(HOSTILE)
        place.store.put(name, "\n".join(map(json.dumps, lines)).encode())
    elif what == 1 and name.endswith(".parquet") and name != FOREIGN:
        place.store.put(name, mutate_parquet(data, dice))
    elif what == 2 and name.endswith((".json", ".text")):
        depth = dice.choice([10, 1_000, 100_000])
        place.store.put(name, dice.choice([b"[" * depth + b"]" * depth, b"9" * 30, b"0", b"", b"\xff", b"3 x", "٣".encode()]))
    else:
        place.store.put(name, mutate_bytes(data, dice))


def _served(store: MemoryStore) -> None:
    """What the catalog answers; its refusals are answers, too. [LK5]"""
    with contextlib.suppress(ManifestCommitError):
        json.loads(publishing.load(store, marker_at(store), publishing.newest_export(store)))


def readers(place: Exported) -> dict[str, Callable[[], Any]]:
    """Everything that looks at an export, or at what it describes."""
    url = place.url
    return {
        "Iceberg": lambda: iceberg_table(TableContext(place.store), f"{url}/{place.document}", rewrite=False),
        "Iceberg by its hint": lambda: iceberg_table(TableContext(place.store), None, rewrite=True),
        "Delta": lambda: delta_table(TableContext(place.store), None),
        "catalog": lambda: _served(place.store),
        "metrics": lambda: mc.Table(url).metrics(),
        "write": lambda: mc.write(_row(4), url),
        **{each: lambda each=each: mc.Table(url).export(each) for each in FORMATS},
        "plan of gc": lambda: mc.Table(url).plan_gc(grace="0s", keep_for="0s"),
        "gc": lambda: mc.gc(url, grace="0s", keep_for="0s"),
        "verify": lambda: mc.Table(url).verify(),
        "holders": lambda: mc.Table(url).holders("id < 0"),
    }
