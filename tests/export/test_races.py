"""One writer, several exporters that are killed at any moment, gc, and readers of all formats. [EX1] [EX2] [EX4] [EX10]"""

from __future__ import annotations

import contextlib
import json
import multiprocessing as mp
import os
import random
import signal
import time
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.export.clients import deltalake_query, duckdb_iceberg
from tests.kit.sizes import rounds

import manifestcommit as mc
from manifestcommit.export.spark_catalog import LOG
from manifestcommit.store import open_store

COMMITS = rounds(40, 400)


FORMATS = ("iceberg", "delta", "spark-catalog")


def catalog_rows(path: str) -> pa.Table:
    """What Spark reads: the files with bytes that the log names."""
    lines = open_store(path).get(LOG).decode().splitlines()
    files = [each for each in map(json.loads, lines[1:]) if each["size"]]
    return pa.concat_tables(pq.read_table(unquote(each["path"]).removeprefix("file://")) for each in files)


def write(path: str) -> None:
    for number in range(1, COMMITS):
        mc.write(pa.table({"n": [number]}), path)
        if number % 10 == 0:
            mc.Table(path).compact(only_manifests=True)
            mc.Table(path).gc(grace="5m", keep_for="0s")


def export(path: str) -> None:
    while True:
        for format in FORMATS:
            with contextlib.suppress(mc.errors.StoreError, mc.errors.VersionNotFoundError):
                mc.Table(path).export(format)


@pytest.mark.thorough
def test_no_read_is_wrong_whoever_exports_and_is_killed(tmp_path: Path) -> None:
    """[EX1] [EX2] [EX4] [EX10]"""
    path, spawn, dice = str(tmp_path / "t"), mp.get_context("spawn"), random.Random(1)
    mc.write(pa.table({"n": [0]}), path)
    mc.Table(path).set_properties({"export.formats": ",".join(FORMATS)})
    writer = spawn.Process(target=write, args=(path,))
    writer.start()
    exporters = [spawn.Process(target=export, args=(path,)) for _ in range(2)]
    for each in exporters:
        each.start()
    reads, newest, kills = 0, 0, 0
    try:
        while writer.is_alive():
            for read in (duckdb_iceberg, deltalake_query, catalog_rows):
                found = sorted(read(path).column("n").to_pylist())
                assert found == list(range(len(found))) and found
                reads += 1
                if read is deltalake_query:
                    assert len(found) >= newest
                    newest = len(found)
            if dice.random() < 0.3:
                at = dice.randrange(len(exporters))
                os.kill(exporters[at].pid or 0, signal.SIGKILL)
                exporters[at].join()
                exporters[at] = spawn.Process(target=export, args=(path,))
                exporters[at].start()
                kills += 1
            time.sleep(dice.random() / 20)
        writer.join()
    finally:
        for each in (writer, *exporters):
            each.kill()
            each.join()
    assert writer.exitcode == 0 and reads > 10 and kills
    for format in FORMATS:
        mc.Table(path).export(format)
    for read in (duckdb_iceberg, deltalake_query, catalog_rows):
        assert sorted(read(path).column("n").to_pylist()) == list(range(COMMITS))
