"""Parquet that lies, in its footer or in its pages: data files that something else wrote. [AF3] [OB4]

Run them in child processes (tests.fuzz.child): what is wrong here ends one, or keeps it.
"""

import contextlib
import functools
import io
import operator
import random
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.fuzz.mutate import mutate_bytes
from tests.kit.footers import BINARY, BOOLS, INTEGERS, LIST, STRUCT, Tree, bytes_of, joined, split, tree_of

import manifestcommit as mc
from manifestcommit.files.foreign_file import read_rows
from manifestcommit.log.table_context import TableContext
from manifestcommit.scan import parallel_decode, planning
from manifestcommit.scan.arrow_dataset import constants_in
from manifestcommit.store import open_store
from manifestcommit.store.local import MemoryStore

_THROUGH_PYARROW = frozenset({"rows", "task", "task, by parts"})
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
    """A folder, a table and a table without columns, in memory, that get a file of another program."""

    def __init__(self) -> None:
        self.folder, self.data, self.new = (MemoryStore(f"fuzz-{name}") for name in ("folder", "data", "new"))
        for store in self._stores:
            store.delete([info.name for info in store.list("")])
        self.data.put(_FILE, _files()[0])
        mc.Table(self.data.url).adopt()
        job = mc.begin(self.new.url)
        assert job.id  # which makes a table that has no columns
        job.abort()
        self._objects = [(store, {info.name: store.get(info.name) for info in store.list("")}) for store in self._stores]

    @property
    def _stores(self) -> tuple[MemoryStore, ...]:
        return self.folder, self.data, self.new

    def restore(self) -> None:
        """As it was made: rounds that share a process have nothing of each other."""
        for store, objects in self._objects:
            store.delete([info.name for info in store.list("") if info.name not in objects])
            for name, data in objects.items():
                store.put(name, data)

    def readers(self, data: bytes) -> dict[str, Callable[[], Any]]:
        """Everything that reads a data file of others: first what registers it, then what reads the tables that have taken it."""
        for store in self._stores:
            store.put("g.parquet", data)

        def add(url: str, *, all_anew: bool = False) -> None:
            with mc.begin(url) as job:
                if all_anew:
                    job.overwrite()
                job.add_files(["g.parquet"])

        def taken() -> Iterator[mc.Table]:
            for store in self._stores:
                with contextlib.suppress(mc.errors.ManifestCommitError):
                    if "g.parquet" in (table := mc.Table(store.url)).files()["path"].to_pylist():
                        yield table

        def rows() -> None:
            for table in taken():
                for batch in table.dataset().to_batches(filter=_condition(table), use_threads=False):
                    batch.validate()

        def rewritten() -> None:
            for batch in read_rows(self.folder, _FILE):
                batch.validate()

        def ahead() -> None:
            for table in taken():
                session, snapshot = TableContext(open_store(table.url)), table.snapshot()

                def choose(file: pq.ParquetFile) -> Any:
                    return range(file.num_row_groups), file.schema_arrow.names[:4]

                constants = constants_in(planning.entries_table(session, snapshot), snapshot.schema, (), table.url)
                files = [("g.parquet", len(data))]
                for portion in parallel_decode.read_ahead(session.store, files, choose, all_columns=False, footers=constants.footers):
                    for batch in portion.file.iter_batches(65_536, row_groups=portion.groups, columns=portion.columns, use_threads=False):
                        batch.validate()

        def by_parts() -> None:
            with mock.patch.object(parallel_decode, "TAIL_BYTES", 1_000), mock.patch.object(parallel_decode, "SMALL_FILE_BYTES", 0):
                ahead()

        def load() -> None:
            landing = MemoryStore("fuzz-landing")
            landing.delete([info.name for info in landing.list("")])
            landing.put("in/g.parquet", data)
            mc.load(mc.sources.files(f"{landing.url}/in", settle="0s"), f"{landing.url}/t")

        return {
            "load": load, "adopt": lambda: mc.Table(self.folder.url).adopt(), "rewritten": rewritten, "add": lambda: add(self.data.url),
            "add to none": lambda: add(self.new.url), "add and replace": lambda: add(self.new.url, all_anew=True), "rows": rows,
            "task": ahead, "task, by parts": by_parts, "verify": lambda: [table.verify(deep=True) for table in taken()],
        }  # fmt: skip


def _condition(table: mc.Table) -> pc.Expression:
    """One that asks the statistics of whichever of the columns are still there."""
    asked = {"id": pc.field("id") > 3, "x": pc.field("x") < 0, "s": pc.field("s") == "zz", "b": pc.field("b") == b"zz"}
    kinds = {"id": pa.int64(), "x": pa.float64(), "s": pa.string(), "b": pa.binary()}
    columns = table.dataset().schema
    conditions = [each for name, each in asked.items() if name in columns.names and columns.field(name).type == kinds[name]]
    return functools.reduce(operator.or_, conditions, pc.scalar(False))


@cache
def _place() -> _Place:
    return _Place()


def prepare_parquet() -> None:
    """Make what all rounds need, before they begin in processes of their own."""
    _place()


def fuzz_parquet(dice: random.Random) -> Iterator[tuple[str, str, str]]:
    """What is wrong with whatever reads one hostile file: error, where, and who read it. Run it in a child process."""
    place = _place()
    place.restore()
    yield from _findings(place.readers(mutate_parquet(dice.choice(_files()), dice)))


def _findings(readers: Mapping[str, Callable[[], Any]]) -> Iterator[tuple[str, str, str]]:
    for name, reader in readers.items():
        # What reads rows through pyarrow raises its errors, as it does for files that are gone.
        rows = (pa.ArrowException, OSError) if name in _THROUGH_PYARROW else ()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reader()
        except (mc.errors.ManifestCommitError, *rows):
            pass
        except Exception as error:
            frame = next((f for f in reversed(traceback.extract_tb(error.__traceback__)) if "/manifestcommit/" in f.filename), None)
            where = f"{frame.filename.rpartition('/manifestcommit/')[2]}:{frame.lineno}" if frame else "?"
            yield type(error).__name__, where, f"parquet: {name}: {type(error).__name__}: {str(error)[:200]!r} at {where}"
