"""What is read from a table that others can write to: each object made hostile, then everything that reads it. [OB4] [SE2]

Allowed are the answers of a sound table and the library's own errors. Anything else (another exception, a crash, minutes, gigabytes)
is a finding.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import manifestcommit as mc
from manifestcommit.core import format, spill
from manifestcommit.store import MemoryStore
from tests.fuzz.mutate import mutate_bytes, mutate_document, mutate_table, nested

DAY = "a b%+=#'é"


class Table:
    """A small table with a bit of everything, in memory: inlined and spilled entries, keys, tags, a prepared job, a recoverable one."""

    def __init__(self) -> None:
        self.store = MemoryStore("fuzz")
        self.store.delete([info.name for info in self.store.list("")])
        self.url = self.store.url
        with _small_budgets():
            for turn in range(6):
                rows = pa.table({"id": [turn, None], "x": [1.5, float("nan")], "s": ["é" * 100, None], "day": [DAY, None]})
                mc.write(rows, self.url, partition_by=["day"], key=f"k{turn}", watermarks={"s:0": (turn * 10 or None, turn * 10 + 10)})
        table = mc.Table(self.url)
        table.tag("kept", 3)
        table.rewind("s:0", 50, reason="fuzz")
        with mc.begin(self.url) as job:
            job.write(pa.table({"id": [9], "x": [0.0], "s": ["p"], "day": ["2"]}))
            self.prepared = job.prepare()
        self.objects = {info.name: self.store.get(info.name) for info in self.store.list("")}
        self.head = max(name for name in self.objects if name.startswith(format.VERSIONS))

    def restore(self) -> None:
        """As it was made."""
        self.store.delete([info.name for info in self.store.list("") if info.name not in self.objects])
        for name, data in self.objects.items():
            self.store.put(name, data)


@contextlib.contextmanager
def _small_budgets() -> Iterator[None]:
    """Entries, keys and jobs leave the snapshot early, so that manifests and runs are there to be read."""
    small = {"INLINE_ENTRY_BYTES": 600, "INLINE_KEYS": 3, "INLINE_JOBS": 3, "INLINE_REMOVED_BYTES": 0}
    before = {name: getattr(spill, name) for name in small}
    try:
        for name, value in small.items():
            setattr(spill, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(spill, name, value)


def hostile_head(table: Table, dice: random.Random) -> None:
    """The newest snapshot, with members that lie."""
    document = msgspec.json.decode(format.decompress(table.objects[table.head], name=""))
    table.store.put(table.head, format.compress(msgspec.json.encode(mutate_document(document, dice))))


def hostile_bytes(table: Table, dice: random.Random) -> None:
    """Any object of metadata, with bytes that lie; of JSON, also inside its compression."""
    name = dice.choice(sorted(name for name in table.objects if name.startswith(f"{format.ROOM}/")))
    data = table.objects[name]
    if name.endswith(".json.zst") and dice.random() < 0.5:
        raw = format.decompress(data, name="")
        raw = nested(dice.choice([1_000, 100_000])) if dice.random() < 0.02 else mutate_bytes(raw, dice)
        data = format.compress(raw)
    else:
        data = mutate_bytes(data, dice)
    table.store.put(name, data)


def hostile_manifest(table: Table, dice: random.Random) -> None:
    """A manifest or a run with other columns or values, whose length and digest the snapshot vouches for."""
    name = dice.choice(sorted(name for name in table.objects if name.startswith(format.MANIFESTS)))
    sound = pq.read_table(pa.BufferReader(table.objects[name]))
    while True:
        sink = pa.BufferOutputStream()
        with contextlib.suppress(pa.ArrowException):  # not everything that can be made can be written
            pq.write_table(mutate_table(sound, dice), sink)
            break
    data = sink.getvalue().to_pybytes()
    table.store.put(name, data)
    document = msgspec.json.decode(format.decompress(table.objects[table.head], name=""))
    for kind in ("manifests", "key_runs", "job_runs", "removed_runs"):
        for ref in document.get(kind, []):
            if ref["path"] == name:
                ref.update(bytes=len(data), digest=format.digest(data))
    table.store.put(table.head, format.compress(msgspec.json.encode(document)))


def hostile_prepared(table: Table, dice: random.Random) -> None:
    """What a job hands to another process, with members that lie."""
    name = dice.choice(sorted(name for name in table.objects if name.startswith(format.JOBS)))
    document = msgspec.json.decode(format.decompress(table.objects[name], name=""))
    table.store.put(name, format.compress(msgspec.json.encode(mutate_document(document, dice))))


HOSTILE_OBJECTS: dict[str, Callable[[Table, random.Random], None]] = {
    "head": hostile_head,
    "bytes": hostile_bytes,
    "manifest": hostile_manifest,
    "prepared": hostile_prepared,
}


def readers(table: Table) -> dict[str, Callable[[], Any]]:
    """Everything that reads what others wrote; the last ones write on top of it."""
    rows = pa.table({"id": [7], "x": [0.5], "s": ["w"], "day": [DAY]})
    url = table.url

    def opened() -> mc.Table:
        return mc.Table(url)

    return {
        "snapshot": lambda: opened().snapshot(),
        "files": lambda: opened().files(),
        "history": lambda: list(opened().history()),
        "watermarks": lambda: opened().watermarks(),
        "lineage": lambda: opened().lineage("s:0", 15),
        "changes": lambda: opened().changes(2),
        "describe": lambda: opened().describe(),
        "tag": lambda: opened().snapshot(tag="kept"),
        "jobs": lambda: opened().jobs(),
        "resolve": lambda: opened().resolve(table.prepared),
        "verify": lambda: opened().verify(),
        "gc": lambda: mc.gc(url, grace="0s", keep_for="0s", dry_run=True),
        "commit": lambda: mc.commit(url, table.prepared),
        "write": lambda: mc.write(rows, url, key="k0", watermarks={"s:0": (None, 10)}),
        "append": lambda: mc.write(rows, url, watermarks={"s:0": (50, 60)}),
        "collect": lambda: mc.gc(url, grace="0s", keep_for="0s"),
    }
