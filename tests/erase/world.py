"""A table with a person in everything that a table can hold her in, and a reader of every object that knows nothing of this library."""

import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

import manifestcommit as mc
from manifestcommit.store import open_store

ADA = "Zq-Ada-Lovelace-1815"
_NUMBERS = itertools.count()


def readings(name: str, data: bytes) -> Iterator[str]:
    """What an object says: its name, its bytes, and these unpacked, with what no reader shows."""
    yield name
    yield data.decode("utf-8", "replace")
    if data[:4] == b"\x28\xb5\x2f\xfd":
        yield zstandard.ZstdDecompressor().decompressobj().decompress(data).decode()
    if data[:4] == b"Obj\x01":
        yield str(list(fastavro.reader(io.BytesIO(data))))
    if data[:4] == b"PAR1":
        file = pq.ParquetFile(io.BytesIO(data))
        yield str(file.metadata.to_dict()) + str(file.read().to_pylist())
        for path in (field.name for field in file.schema_arrow if pa.types.is_string(field.type)):
            read = pq.ParquetFile(io.BytesIO(data), read_dictionary=[path]).read(columns=[path])
            yield str(read.column(0).chunks)


def telling(url: str, text: str = ADA) -> set[str]:
    """Every object below a table path that says the text."""
    store = open_store(url)
    objects = [(info.name, store.get(info.name)) for info in store.list("")]
    return {name for name, data in objects if any(text in reading for reading in readings(name, data))}


class Kind:
    """How a table is laid out, and how a person is named in it."""

    def __init__(self, where: str, row: Callable[[str, int], dict[str, Any]], **layout: Any) -> None:
        self.where, self.row, self.layout = where, row, layout

    def rows(self, *people: str) -> pa.Table:
        return pa.Table.from_pylist([self.row(person, next(_NUMBERS)) for person in people])


KINDS = {
    "plain": Kind(f"person = '{ADA}'", lambda person, flight: {"person": person, "flight": flight}),
    "partitioned": Kind(f"person = '{ADA}'", lambda person, flight: {"flight": flight, "person": person}, partition_by="person"),
    "nested": Kind(f"who.name = '{ADA}'", lambda person, flight: {"who": {"name": person, "at": flight}, "flight": flight}),
}


def base(url: str, kind: Kind, *, formats: str = "iceberg,delta") -> mc.Table:
    """A history with her and without her, tags of both, exports, and files that others replaced."""
    mc.write(kind.rows("Bob", "Cem"), url, key="first", **kind.layout)
    table = mc.Table(url)
    formats += ",spark-catalog" * (not url.startswith("memory:"))
    table.set_properties({"export.formats": formats})
    table.tag("before")
    for day in range(3):
        mc.write(kind.rows(ADA, "Bob", f"Dan {day}"), url, key=f"day {day}")
    table.tag("with her")
    table.update({"flight": "flight + 1000"}, where="flight % 2 = 0")
    mc.write(kind.rows("Eve"), url, key="last")
    return table


def jobs(url: str, kind: Kind) -> list[mc.Job]:
    """Jobs with her rows that others can finish: prepared, staged, and recoverable; and one that only its process can."""
    job = mc.begin(url, key="prepared")
    job.write(kind.rows(ADA, "Fay"))
    job.prepare()
    mc.write(kind.rows(ADA, "Gus"), url, key="staged", publish=False)
    open_jobs = [mc.begin(url, key="lost"), mc.begin(url, key="again", recoverable=True, fingerprint="1")]
    for each in open_jobs:
        each.write(kind.rows(ADA))
    return open_jobs


def people(table: mc.Table) -> list[str]:
    """Who is in the table, as its rows say."""
    return sorted(str(row) for row in table.to_arrow().to_pylist())
