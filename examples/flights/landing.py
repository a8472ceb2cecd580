"""A file of flights a day that lands in a folder, and loaders that are killed while they load them.

The story around it is in `examples.flights`. As a program (`python -m examples.flights.landing`) it
is one loader, which SIGTERM ends between two commits.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

import manifestcommit as mc
from manifestcommit import sources

LOADERS = ("A", "B")
KILLS = 8
CORRECTED = "2013-01-15.csv"  # is delivered a second time, with fewer flights


def days_of(month: Path) -> dict[str, pa.Table]:
    """The month's flights, by the name of the file that has those of one day."""
    flights = pq.read_table(month)
    days = sorted(flights.column("day").unique().to_pylist())
    return {f"{month.stem}-{day:02d}.csv": flights.filter(pc.field("day") == day) for day in days}


def land(folder: Path, name: str, flights: pa.Table) -> None:
    """The file is there whole or not at all, as in a bucket."""
    pa.csv.write_csv(flights, folder / f".{name}")
    os.rename(folder / f".{name}", folder / name)


def start(folder: Path, table: str) -> subprocess.Popen[bytes]:
    """A loader, in a process of its own, which says when it begins."""
    words = [sys.executable, "-m", "examples.flights.landing", str(folder), table]
    return subprocess.Popen(words, stdout=subprocess.PIPE)


def end(loader: subprocess.Popen[bytes]) -> None:
    """Kill a loader; nothing of its process is left."""
    loader.kill()
    loader.communicate()


def run(
    folder: Path, table: str, days: dict[str, pa.Table], killed: Callable[[str], None]
) -> list[int]:
    """Let the files land while two loaders load them, and kill one after the other. killed: is told
    of each that died. Returns how the last two ended."""
    chance, waiting = random.Random(2013), list(days)
    loaders = {name: start(folder, table) for name in LOADERS}
    try:
        for kills in range(KILLS):
            dying = chance.choice(LOADERS)
            _wait_for(loaders[dying])
            for name in waiting[kills::KILLS]:
                land(folder, name, days[name])
            time.sleep(chance.uniform(0.0, 0.6))
            end(loaders[dying])
            killed(dying)
            loaders[dying] = start(folder, table)
        _wait_until_loaded(folder, table)
        land(folder, CORRECTED, days[CORRECTED].slice(1))
        _wait_until_loaded(folder, table)
        for loader in loaders.values():
            _wait_for(loader)
            loader.send_signal(signal.SIGTERM)
        return [loader.wait(60) for loader in loaders.values()]
    finally:
        for loader in loaders.values():
            end(loader)


def _wait_until_loaded(folder: Path, table: str) -> None:
    while mc.load(source_of(folder), table, dry_run=True).chunks:
        time.sleep(0.1)


def _wait_for(loader: subprocess.Popen[bytes]) -> None:
    assert loader.stdout is not None
    loader.stdout.readline()


def source_of(folder: Path) -> sources.LandingFiles:
    """The files, of which one that lands again replaces its rows."""
    return sources.files(
        folder,
        file_column="file",
        on_changed="replace",
        settle="0s",
        csv_options={"strings_can_be_null": True},
    )


def held(table: str) -> pa.Table:
    """The rows that a reader sees; none before there is a table."""
    try:
        return mc.Table(table).to_arrow()
    except mc.errors.TableNotFoundError:
        return pa.table({})


def main(arguments: list[str] | None = None) -> int:
    """Load what lands, until SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights.landing", description="A loader."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("table")
    options = parser.parse_args(arguments)
    print("ready", flush=True)
    every = dt.timedelta(seconds=0.1)
    for _ in mc.follow(source_of(options.folder), options.table, every=every, max_bytes="300KB"):
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
