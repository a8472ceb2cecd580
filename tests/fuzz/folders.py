"""Folders that are no table yet, whose logs others wrote: of Spark's streaming sink, and of other formats. [AF2] [OB4] [LY6]

Allowed are an adoption of exactly the files that a sound log lists, and the library's own errors.
"""

import json
import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pyarrow as pa
from tests.fuzz.mutate import HOSTILE, mutate_bytes, mutate_document
from tests.kit.footers import parquet_bytes

import manifestcommit as mc
from manifestcommit.operations.adopt import SINK_LOG
from manifestcommit.store.local import MemoryStore

FILES = ("day=1/part-0.parquet", "day=1/part-1 %20.parquet", "day=2/pårt.parquet")
_DELTA: list[dict[str, Any]] = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {"metaData": {"id": "x", "format": {"provider": "parquet"}, "schemaString": "{}", "partitionColumns": ["day"]}},
    {"add": {"path": FILES[0], "partitionValues": {"day": "1"}, "size": 1, "modificationTime": 1, "dataChange": True}},
]


class Folder:
    """Three small files in folders, and the log of who wrote them."""

    def __init__(self) -> None:
        self.store = MemoryStore("fuzz-folders")
        self.data = parquet_bytes(pa.table({"id": pa.array([1, 2], pa.int64())}))
        self.log = [self._line(path) for path in FILES]

    def _line(self, path: str) -> dict[str, Any]:
        uri = f"{self.store.url}/{path}".replace("%", "%25").replace(" ", "%20")
        numbers = {"size": len(self.data), "modificationTime": 1, "blockReplication": 1, "blockSize": 1}
        return {"path": uri, "isDir": False, "action": "add", **numbers}

    def restore(self) -> None:
        """As it was, without any log."""
        self.store.delete([info.name for info in self.store.list("")])
        for path in FILES:
            self.store.put(path, self.data)

    def put_log(self, batches: Mapping[str, bytes]) -> None:
        """The log of a streaming query: name -> content of each batch."""
        for name, data in batches.items():
            self.store.put(f"{SINK_LOG}/{name}", data)

    def batch(self, lines: list[Any]) -> bytes:
        """A batch that says this."""
        return "\n".join(["v1", *(json.dumps(line) for line in lines)]).encode()


@cache
def folder() -> Folder:
    return Folder()


def hostile_sink(place: Folder, dice: random.Random) -> None:
    """The log of a streaming query: a member that lies, other lines, other bytes, other names of batches, one that is gone."""
    lines = [place.log[:1], place.log[1:2], place.log[2:]]
    batches = {str(at): place.batch(each) for at, each in enumerate(lines)}
    if dice.random() < 0.3:
        batches = {"1.compact": place.batch(place.log[:2]), "2": place.batch(place.log[2:])}
    name = dice.choice(sorted(batches))
    what = dice.randrange(6)
    if what <= 1:
        batches[name] = place.batch(mutate_document(place.log, dice) if dice.random() < 0.9 else [dice.choice(HOSTILE)])
    elif what == 2:
        batches[name] = mutate_bytes(batches[name], dice)
    elif what == 3:
        batches[name] = b"v1\n" + b"[" * (depth := dice.choice([10, 1_000, 100_000])) + b"]" * depth
    elif what == 4:
        other = dice.choice(["00", "9" * 18, "9" * 40, "7", "9.compact", "-1", "٤", "x", ".compact", "0.compact.tmp", "1" * 240])
        batches[other] = batches.pop(name) if dice.random() < 0.5 else batches[name]
    else:
        paths = [{**place.log[0], "path": path} for path in _paths(place)]
        batches[name] = place.batch([dice.choice(paths), dice.choice(paths)])
    place.put_log(batches)


def _paths(place: Folder) -> list[Any]:
    url = place.store.url
    inside = ["..", "../x", "%2e%2e/x", "a//b", "", "/", "_manifest/hint", "\ud800", "%ff", "\0", "day=1/part-0.parquet/", "x" * 70_000]
    return [*(f"{url}/{each}" for each in inside), *inside, "file:/etc/passwd", "s3://u:p@h/x", "://", {"://": 1}, ["://"], url, 1, None]


def hostile_delta(place: Folder, dice: random.Random) -> None:
    """The log of a table of another format, whole, in part or damaged: whoever has one is told what it is, and nothing is adopted."""
    commit = "\n".join(json.dumps(line) for line in mutate_document(_DELTA, dice) or ()).encode() if dice.random() < 0.7 else b""
    inner = dice.choice(["", "", "day=1/", "a b%/"])
    names = [
        f"_delta_log/{0:020d}.json", "_delta_log/_last_checkpoint", "_delta_log/x", ".hoodie/hoodie.properties",
        "metadata/v1.metadata.json",
    ]  # fmt: skip
    place.store.put(inner + dice.choice(names), dice.choice([commit, mutate_bytes(commit or b"x", dice), dice.randbytes(64)]))


HOSTILE_FOLDERS: Mapping[str, Callable[[Folder, random.Random], None]] = {"sink": hostile_sink, "delta": hostile_delta}


def readers(place: Folder, kind: str) -> dict[str, Callable[[], Any]]:
    """Everything that looks at a folder that is no table. The first that makes one is the last that can."""
    url = place.store.url

    def adopted() -> None:
        found = mc.Table(url).adopt()
        listed = {each["path"] for each in mc.Table(url).files().to_pylist()}
        if kind == "delta" or not listed <= set(FILES) or found.files != len(listed):
            raise AssertionError(f"{sorted(listed)} were adopted")

    return {
        "open": lambda: mc.Table(url).snapshot(),
        "write": lambda: mc.write(pa.table({"id": [1]}), url),
        "adopt by": lambda: mc.Table(url).adopt(partition_by=["id"]),
        "adopt": adopted,
        "again": lambda: mc.Table(url).adopt(),
    }
