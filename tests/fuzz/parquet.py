"""Parquet that lies, in its footer or in its pages: data files that something else wrote, and manifests. [AF3] [OB4]

Run them in child processes (tests.fuzz.child): what is wrong here ends one, or keeps it.
"""

from __future__ import annotations

import io
import random
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.footers import BINARY, BOOLS, INTEGERS, LIST, STRUCT, Tree, bytes_of, joined, split, tree_of
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.targets import small_budgets

import manifestcommit as mc
from manifestcommit.core.filter.arrow_expression import parse_expression
from manifestcommit.core.format import codec as format
from manifestcommit.core.schema import arrow_schema
from manifestcommit.core.table import object_names
from manifestcommit.engine.datafile.foreign_file import read_rows
from manifestcommit.engine.metadata import manifests
from manifestcommit.engine.metadata.table_context import TableContext
from manifestcommit.engine.scan import planning, prefetch
from manifestcommit.engine.scan.parallel_decode import batches_of, checked_bytes
from manifestcommit.engine.scan.pruning_stats import matching_groups
from manifestcommit.store import open_store
from manifestcommit.store.memory import MemoryStore

_THROUGH_PYARROW = frozenset({"whole", "dataset", "dataset, filtered", "added", "added, filtered", "task", "task, by parts", "count"})
_NUMBERS = [*(0, -1, 1, 2, 3, 4, 7, 8, 100, 10_000), *(2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))]
_FILE = "f.parquet"


def _rows(turn: int) -> pa.Table:
    size = 40
    return pa.table(
        {
            "id": pa.array([turn, None, 3, 4] * (size // 4), pa.int64()),
            "x": pa.array([1.5, float("nan"), None, 2.0] * (size // 4)),
            "s": ["é" * 40, None, "a", "b"] * (size // 4),
            "dec": pa.array([1, 2, None, 3] * (size // 4), pa.decimal128(20, 2)),
            "ts": pa.array([1, 2, None, 3] * (size // 4), pa.timestamp("us", "UTC")),
            "b": [b"a", b"bb", None, b""] * (size // 4),
            "ok": [True, False, None, True] * (size // 4),
            "l": [[1, 2], None, [], [3]] * (size // 4),
            "st": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 2, "b": None}] * (size // 4),
            "day": ["d"] * size,
        }
    )


@cache
def _files() -> tuple[bytes, ...]:
    made = []
    for turn, codec in enumerate(("snappy", "zstd", "none", "gzip")):
        sink = io.BytesIO()
        encoded: dict[str, Any] = {"use_dictionary": turn % 2 == 0, "version": ("1.0", "2.6")[turn % 2], "write_page_index": turn == 1}
        pq.write_table(_rows(turn), sink, row_group_size=16, compression=codec, data_page_version=("1.0", "2.0")[turn // 2], **encoded)
        made.append(sink.getvalue())
    return tuple(made)


def _nodes(tree: Tree) -> Iterator[tuple[list[Any], int, int]]:
    """Every value in a footer: what holds it, where, and its type."""
    for member in tree:
        yield member, 2, member[1]
        yield from _inner(member[2], member[1])


def _inner(value: Any, type: int) -> Iterator[tuple[list[Any], int, int]]:
    if type == STRUCT:
        yield from _nodes(value)
    elif type == LIST:
        for at, each in enumerate(value[1]):
            yield value[1], at, value[0]
            yield from _inner(each, value[0])


def mutate_footer(footer: bytes, dice: random.Random) -> bytes:
    """The same footer with one to three values that lie, or with members that are gone, come twice or are of another type."""
    tree = tree_of(footer)
    for _ in range(dice.choice([1, 1, 2, 3])):
        holder, at, type = dice.choice(list(_nodes(tree)))
        if type in INTEGERS:
            number = dice.choice(_NUMBERS) if dice.random() < 0.7 else holder[at] + dice.choice([-1, 1])
            holder[at] = max(-(2**63), min(2**63 - 1, number))
        elif type == BINARY:
            holder[at] = dice.choice([b"", b"\0", b"a" * 70, b"\xff" * 8, holder[at] + b"x", holder[at][:-1]])
        elif type == LIST and holder[at][1]:
            holder[at][1] = _other_values(holder[at][1], dice)
        elif type == STRUCT and holder[at]:
            del holder[at][dice.randrange(len(holder[at]))]
        elif type in BOOLS and at == 2:
            holder[1] = dice.choice([*BOOLS])
    return bytes_of(tree)


def _other_values(values: list[Any], dice: random.Random) -> list[Any]:
    return dice.choice([values[:-1], [*values, dice.choice(values)], dice.sample(values, len(values)), []])


def mutate_parquet(data: bytes, dice: random.Random) -> bytes:
    """A file whose footer lies, in its values or its bytes, or whose pages do."""
    body, footer = split(data)
    what = dice.random()
    if what < 0.5:
        return joined(body, mutate_footer(footer, dice))
    if what < 0.75:
        return joined(body, mutate_bytes(footer, dice))
    if what < 0.95:
        pages = bytearray(body)
        for _ in range(dice.choice([1, 1, 2, 8])):
            pages[dice.randrange(4, len(pages))] = dice.choice([0, 1, 127, 128, 255, dice.randrange(256)])
        return joined(bytes(pages), footer)
    return mutate_bytes(data, dice)


class _Place:
    """Tables in memory in which one object is replaced: of data files, and with manifests that are read whole or by parts."""

    def __init__(self) -> None:
        self.folder = MemoryStore("fuzz-folder")
        self.data = MemoryStore("fuzz-data")
        for store in (self.folder, self.data):
            store.delete([info.name for info in store.list("")])
        self.data.put(_FILE, _files()[0])
        mc.Table(self.data.url).adopt()
        self.snapshot = mc.Table(self.data.url).snapshot()
        self.parts = MemoryStore("fuzz-parts")
        self.parts.delete([info.name for info in self.parts.list("")])
        with small_budgets(), mock.patch.object(manifests, "PART_BYTES", 0):
            for turn in range(4):
                mc.write(_rows(turn), self.parts.url, partition_by=["day"])
        self.head = max(info.name for info in self.parts.list(object_names.VERSIONS) if object_names.parse_version(info.name))
        self.new = MemoryStore("fuzz-new")
        self.new.delete([info.name for info in self.new.list("")])
        job = mc.begin(self.new.url)
        assert job.id  # which makes a table that has no columns
        job.abort()
        self._objects = [(store, {info.name: store.get(info.name) for info in store.list("")}) for store in self._stores]

    @property
    def _stores(self) -> tuple[MemoryStore, ...]:
        return self.folder, self.data, self.parts, self.new

    def restore(self) -> None:
        """As it was made: rounds that share a process have nothing of each other."""
        for store, objects in self._objects:
            store.delete([info.name for info in store.list("") if info.name not in objects])
            for name, data in objects.items():
                store.put(name, data)

    def of_data(self, data: bytes) -> dict[str, Callable[[], Any]]:
        """Everything that reads a data file of others."""
        self.folder.put(_FILE, data)
        self.data.put(_FILE, data)
        self.data.put("g.parquet", data)
        self.new.put("g.parquet", data)
        url, schema = self.data.url, self.snapshot.schema
        assert schema is not None
        condition = (pc.field("id") > 3) | (pc.field("x") < 0) | (pc.field("s") == "zz") | (pc.field("b") == b"zz") | ~pc.field("ok")

        def add(url: str) -> None:
            with mc.begin(url) as job:
                job.add_files(["g.parquet"])

        def ahead(predicate: Any, columns: Sequence[str]) -> None:
            def choose(file: pq.ParquetFile) -> tuple[Sequence[int], Sequence[str]]:
                present = [name for name in columns if name in file.schema_arrow.names]
                return matching_groups(file.metadata, file.schema_arrow, schema, predicate), present

            for portion in prefetch.read_ahead(self.data, [(_FILE, len(data))], choose, all_columns=len(columns) > 5):
                for batch in portion.file.iter_batches(65_536, row_groups=portion.groups, columns=portion.columns, use_threads=False):
                    batch.validate()

        chosen = parse_expression(condition, arrow_schema.arrow_schema(schema, physical=False, ids=False))
        names = _rows(0).column_names

        def by_parts() -> None:
            with mock.patch.object(prefetch, "TAIL_BYTES", 1_000), mock.patch.object(prefetch, "SMALL_FILE_BYTES", 0):
                ahead(chosen, names[:4])

        def rows(filter: Any = None) -> None:
            for batch in mc.Table(url).dataset().to_batches(filter=filter, use_threads=False):
                batch.validate()

        def whole() -> None:
            """As rows of a small file are read to be rewritten, where its digest is right."""
            session = TableContext(open_store(url))
            entry = planning.entries_table(session, self.snapshot).slice(0, 1)
            for name, value in (("bytes", len(data)), ("digest", format.digest(data))):
                field = entry.schema.field(name)
                entry = entry.set_column(entry.schema.get_field_index(name), field, pa.array([value], field.type))
            held = checked_bytes(session, entry)
            assert held is not None
            for batch in batches_of(session, self.snapshot, entry, held, None, 65_536):
                batch.validate()

        return {
            "whole": whole,
            "dataset": rows,
            "dataset, filtered": lambda: rows(condition),
            "adopt": lambda: mc.Table(self.folder.url).adopt(),
            "adopt in partitions": lambda: mc.Table(self.folder.url).adopt(partition_by=["day"]),
            "rewritten": lambda: list(read_rows(self.folder, _FILE)),
            "add": lambda: add(url),
            "add to none": lambda: add(self.new.url),
            "task": lambda: ahead(chosen, names),
            "task, by parts": by_parts,
            "count": lambda: ahead(None, []),
            "verify": lambda: mc.Table(url).verify(deep=True),
            "added": rows,
            "added, filtered": lambda: rows(condition & (pc.field("ts") > pa.scalar(1, pa.timestamp("us", "UTC")))),
        }

    def of_manifest(self, change: Callable[[bytes], bytes], which: int) -> dict[str, Callable[[], Any]]:
        """Everything that reads a manifest, changed so, whose length and digests the head vouches for."""
        document = msgspec.json.decode(format.decompress(self.parts.get(self.head), name=""))
        ref = document["manifests"][which % len(document["manifests"])]
        data = change(self.parts.get(ref["path"]))
        self.parts.put(ref["path"], data)
        ref.update(bytes=len(data), digest=format.digest(data))
        if "footer" in ref:
            length = min(len(data), int.from_bytes(data[-8:-4], "little") + 8)
            ref["footer"] = {"bytes": length, "digest": format.digest(data[len(data) - length :])}
        self.parts.put(self.head, format.compress(msgspec.json.encode(document)))
        url = self.parts.url

        def by_parts() -> Any:
            with mock.patch.object(manifests, "PART_BYTES", 0):
                return mc.Table(url).files(filter=(pc.field("id") > 2) & (pc.field("day") == "d") & (pc.field("s") > "a"))

        return {
            "files": lambda: mc.Table(url).files(),
            "by parts": by_parts,
            "verify": lambda: mc.Table(url).verify(),
            "dataset": lambda: mc.Table(url).dataset(),
            "gc": lambda: mc.Table(url).plan_gc(grace="0s", keep_for="0s"),
            "append": lambda: mc.write(_rows(0), url),
        }


@cache
def _place() -> _Place:
    return _Place()


def prepare_parquet() -> None:
    """Make what all rounds need, before they begin in processes of their own."""
    _place()


def fuzz_parquet(dice: random.Random) -> Iterator[tuple[str, str, str]]:
    """What is wrong with whatever reads one hostile file or manifest: error, where, and who read it. Run it in a child process."""
    place = _place()
    place.restore()
    is_data = dice.random() < 0.7
    readers = (
        place.of_data(mutate_parquet(dice.choice(_files()), dice))
        if is_data
        else place.of_manifest(lambda data: mutate_parquet(data, dice), dice.randrange(1_000))
    )
    for name, reader in readers.items():
        # What reads rows through pyarrow raises its errors, as it does for files that are gone.
        rows = (pa.ArrowException, OSError) if is_data and name in _THROUGH_PYARROW else ()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reader()
        except (mc.ManifestCommitError, *rows):
            pass
        except Exception as error:
            frame = next((f for f in reversed(traceback.extract_tb(error.__traceback__)) if "/manifestcommit/" in f.filename), None)
            where = f"{frame.filename.rpartition('/manifestcommit/')[2]}:{frame.lineno}" if frame else "?"
            yield type(error).__name__, where, f"parquet: {name}: {type(error).__name__}: {str(error)[:200]!r} at {where}"
