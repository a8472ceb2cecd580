"""The files of one Spark task, read from S3 without a JAR: our data source's reader, beside `pyarrow.dataset` over pyarrow's own S3.

All in one process, as a task is: the reader is pickled and read from as Spark's worker does, and what would go to the JVM is counted and
dropped. Both sides decode the same columns of the same files to Arrow batches, with as many threads as they like; neither has to ask
which files there are, or for their schema.

- `large files`: four of about 32 MB, all columns; `small files`: a hundred of about 1 MB, all columns; `two columns` of eight of the large
  files.
- `mb_per_s`: of the column chunks that are wanted, as they stand in the files; `cpu_s` is the client's.
- `plain GETs (floor)`: pyarrow's S3 client gets the same bytes, eight requests at once, and looks at nothing.

The server (Ceph RGW) works on the same cores, so that half of what is seen is its own.
"""

from __future__ import annotations

import pickle
import secrets
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import S3FileSystem

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report, rounds_of
from benchmarks.s3 import S3Server, far_away, s3_server, versions
from manifestcommit.files.footer_stats import parquet_columns
from manifestcommit.runtime.footer_child import chunk_span
from manifestcommit.spark.datasource import ManifestCommitDataSource
from manifestcommit.spark.tasks import with_options
from manifestcommit.store import StorageOptions

COLUMNS = ("id", "part", "quantity", "price", "discount", "day", "mode", "note")
TWO = ("part", "price")
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "large files": ("large", COLUMNS),
    "small files": ("small", COLUMNS),
    "two columns": ("large", TWO),
}
FIGURES = ["mb_per_s", "wall_s", "cpu_s"]


def main() -> int:
    """One table of each kind, and all sides in turns for each case."""
    options = parser(__doc__)
    options.add_argument("--delay", type=int, default=0, help="milliseconds that each request takes longer to arrive (default: 0)")
    chosen = options.parse_args()
    sizes = {"large": (4, 250_000), "small": (20, 10_000)} if chosen.quick else {"large": (4, 1_200_000), "small": (100, 40_000)}
    with s3_server() as near, far_away(near, chosen.delay) as server:
        bucket = server.bucket()
        tables = {kind: make_table(server, f"s3://{bucket}/{kind}-{secrets.token_hex(4)}", *size) for kind, size in sizes.items()}
        for what, (kind, columns) in CASES.items():
            side = Side(server, tables[kind], columns)
            contestants = [
                Contestant(name="manifestcommit", run=side.timed(side.ours)),
                Contestant(name="pyarrow.dataset", run=side.timed(side.arrow)),
                Contestant(name="plain GETs (floor)", run=side.timed(side.plain)),
            ]
            interleave(contestants, rounds=rounds_of(chosen))
            case = {"what": what, "files": sizes[kind][0], "mb": round(side.bytes / 1e6), "versions": versions()}
            case |= {"delay_ms": chosen.delay} if chosen.delay else {}
            report("read_s3", case, contestants, figures=FIGURES)
    return 0


def make_table(server: S3Server, url: str, files: int, rows: int) -> str:
    """A table of that many files, each written as a task writes it."""
    options = server.storage_options
    for number in range(files):
        mc.write(make_rows(number * rows, rows), url, storage_options=options)
    return url


def make_rows(start: int, rows: int) -> pa.Table:
    """Rows that compress about as business data does: about 26 bytes each."""
    draw = np.random.default_rng(start)
    days = np.datetime64("2013-01-01") + draw.integers(0, 365, rows)
    return pa.table(
        {
            "id": np.arange(start, start + rows, dtype=np.int64),
            "part": draw.integers(0, 200_000, rows),
            "quantity": draw.integers(1, 50, rows, dtype=np.int32),
            "price": np.round(draw.gamma(2.0, 4000.0, rows), 2),
            "discount": np.round(draw.integers(0, 10, rows) / 100, 2),
            "day": pa.array(days.astype("datetime64[D]")),
            "mode": pa.array(draw.choice(["AIR", "RAIL", "SHIP", "TRUCK", "MAIL"], rows)),
            "note": pa.array(np.char.add("note ", draw.integers(0, 1_000_000, rows).astype(str))),
        }
    )


class Side:
    """One table and the columns that are wanted of it, read in each way; every way tells how many rows it saw."""

    def __init__(self, server: S3Server, url: str, columns: tuple[str, ...]) -> None:
        self._options, self._columns = StorageOptions(server.storage_options), columns
        files = mc.Table(url, storage_options=server.storage_options).files()
        self._paths = [f"{url.removeprefix('s3://')}/{path}" for path in files.column("path").to_pylist()]
        self._rows = sum(files.column("rows").to_pylist())
        self._s3 = S3FileSystem(
            access_key=server.key, secret_key=server.secret, endpoint_override=server.endpoint.partition("://")[2], scheme="http",
            region=server.environment["AWS_DEFAULT_REGION"],
        )  # fmt: skip
        self._spans = [(path, spans_of(self._s3.open_input_file(path), columns)) for path in self._paths]
        source = with_options(ManifestCommitDataSource, self._options, "bench")({"path": url, "columns": ",".join(columns)})
        reader = source.reader(source.schema())  # type: ignore[arg-type]  # a data source may give DDL; ours does not
        self._parts, self._task = reader.partitions(), pickle.loads(pickle.dumps(reader))
        self._schema = ds.dataset(self._paths[:1], filesystem=self._s3, format="parquet").schema
        self.bytes = sum(end - start for _, spans in self._spans for start, end in spans)

    def timed(self, read: Callable[[], int]) -> Callable[[int], Figures]:
        def run(_: int) -> Figures:
            start = time.perf_counter()
            rows = read()
            taken = time.perf_counter() - start
            if rows != self._rows:
                raise SystemExit(f"{rows:,} rows were read, not {self._rows:,}: nothing to compare")
            return {"mb_per_s": self.bytes / 1e6 / taken}

        return run

    def ours(self) -> int:
        return sum(batch.num_rows for part in self._parts for batch in self._task.read(part))

    def arrow(self) -> int:
        data = ds.dataset(self._paths, schema=self._schema, filesystem=self._s3, format="parquet")
        return sum(batch.num_rows for batch in data.to_batches(columns=list(self._columns)))

    def plain(self) -> int:
        def get(each: tuple[str, list[tuple[int, int]]]) -> None:
            path, spans = each
            with self._s3.open_input_file(path) as file:
                for start, end in spans:
                    file.read_at(end - start, start)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(get, self._spans))
        return int(self._rows)


def spans_of(source: Any, columns: tuple[str, ...]) -> list[tuple[int, int]]:
    """Where the wanted chunks of a file stand, neighbours together."""
    file = pq.ParquetFile(source)
    at = [column.position for column in parquet_columns(file.schema_arrow) if column.path[0] in columns]
    chunks = (file.metadata.row_group(group).column(index) for group in range(file.num_row_groups) for index in at)
    spans: list[tuple[int, int]] = []
    for start, end in sorted(chunk_span(chunk) for chunk in chunks):
        if spans and spans[-1][1] == start:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


if __name__ == "__main__":
    sys.exit(main())
