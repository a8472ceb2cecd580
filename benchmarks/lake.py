"""How long it takes to find 1,000 tables by name on S3, and to show their page.

- `cold_s`: `mc.lake(...).tables()` by a lake that knows nothing, one list request for each table, many at once; `warm_s`: again.
- `first_page_s`: the first page of a server that has just been started, for which it opens every table; `page_ms`: the same page again,
  by HTTP, with the age of what it shows.
- `cold_cpu_s`, `warm_cpu_s`, `page_cpu_ms`: what this process computed for it, which no neighbour on the machine makes longer.

There is no peer: others have a registry, which knows what was registered. The server (Ceph RGW) works on the same cores, so that most of
what is seen is its own. The tables are copies of one, of one version with one row, and spread over ten folders.
"""

from __future__ import annotations

import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report, rounds_of
from benchmarks.s3 import S3Server, s3_server, versions
from manifestcommit.catalog import rest
from manifestcommit.store import StorageOptions, open_store

FIGURES = ["cold_s", "cold_cpu_s", "warm_s", "warm_cpu_s", "first_page_s", "page_ms", "page_cpu_ms"]


def main() -> int:
    """One lake, listed and shown in each round."""
    options = parser(__doc__)
    options.add_argument("--tables", type=int, help="default: 1000, quick: 50")
    chosen = options.parse_args()
    tables = chosen.tables or (50 if chosen.quick else 1_000)
    with s3_server() as server:
        url = f"s3://{server.bucket()}/lake"
        make_tables(server, url, tables)
        contestants = [Contestant(name="manifestcommit", run=partial(listed_and_shown, server, url, tables))]
        interleave(contestants, rounds=rounds_of(chosen))
        report("lake", {"tables": tables, "versions": versions()}, contestants, figures=FIGURES)
    return 0


def make_tables(server: S3Server, url: str, tables: int) -> None:
    mc.write(pa.table({"id": [1]}), "memory://lake/one")
    one, store = open_store("memory://lake/one"), open_store(url, server.storage_options)
    objects = {info.name: one.get(info.name) for info in one.list("")}

    def make(number: int) -> None:
        for name, data in objects.items():
            store.put(f"part{number % 10}/table{number:04}/{name}", data)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(tables)))


def listed_and_shown(server: S3Server, url: str, tables: int, _: int) -> Figures:
    lake = mc.lake(url, server.storage_options)
    cold, warm = (taken(lambda: len(lake.tables()), tables) for _ in range(2))
    with served(server, url) as address:
        first_page, page = (taken(lambda: fetched(address).count(b"<tr><td"), tables) for _ in range(2))
    values = [*cold, *warm, first_page[0], *(1e3 * each for each in page)]
    return dict(zip(FIGURES, values, strict=True))


def taken(count: Callable[[], int], tables: int) -> tuple[float, float]:
    """Seconds of a call, which has to find every table, and those of CPU in this process."""
    start, cpu_start = time.perf_counter(), time.process_time()
    found = count()
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    assert found == tables, f"{found} tables of {tables} were found"
    return seconds, cpu_s


def fetched(address: str) -> bytes:
    with urllib.request.urlopen(address) as response:
        data: bytes = response.read()
    assert b"As of " in data
    return data


@contextmanager
def served(server: S3Server, url: str) -> Any:
    """The address of a server that has just been started."""
    options = StorageOptions(server.storage_options)
    catalog = rest.Catalog(open_store(url, options), options, refresh_s=600)  # what is read again beside the page takes its time
    found, listener, address = rest.make_server(catalog, host="127.0.0.1", port=0, token=None)
    thread = threading.Thread(target=found.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"{address}/"
    finally:
        found.should_exit = True
        thread.join()
        listener.close()


if __name__ == "__main__":
    sys.exit(main())
