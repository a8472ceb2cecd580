"""A load holds a bounded part of its source, however large that is: 256 MB at most, above an interpreter with what it needs. [LD1]"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

pytestmark = pytest.mark.thorough  # gigabytes

MOST = 256 << 20
SOURCE_BYTES = 3 * MOST
# One load; it says its rows, and how much its memory has grown at most.
CODE = """
import sys
import confluent_kafka, pyarrow.csv, pyarrow.json, pyarrow.parquet
import manifestcommit as mc

def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM:"))

source, before = eval(sys.argv[1]), peak()
rows = mc.load(source, sys.argv[2], max_bytes="10GB").rows
print(rows, peak() - before)
"""


def grown(code: str, table: Path) -> tuple[int, int]:
    """The rows that a load of this source finds, and the bytes that its process grows by."""
    done = subprocess.run([sys.executable, "-c", CODE, code, str(table)], capture_output=True, text=True, check=True)
    rows, more = map(int, done.stdout.split())
    return rows, more


def text_of(number: int) -> str:
    """Of about a hundred letters, as compressible as texts are."""
    return " ".join(f"{number * prime % 99_991:x}" for prime in range(3, 45, 2))


def lines(path: Path, first: str, rows: list[str]) -> int:
    """Write these rows until the file is as large as it should be; how many there are."""
    block = "".join(rows).encode()
    times = SOURCE_BYTES // len(block) + 1
    with path.open("wb") as file:
        file.write(first.encode())
        for _ in range(times):
            file.write(block)
    return times * len(rows)


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet", "one group"])
def test_a_file_that_is_larger_than_the_memory(tmp_path: Path, format: str) -> None:
    (landing := tmp_path / "landing").mkdir()
    texts = [text_of(number) for number in range(10_000)]
    if format == "csv":
        count = lines(landing / "a.csv", "id,text\n", [f"{n},{text}\n" for n, text in enumerate(texts)])
    elif format == "jsonl":
        count = lines(landing / "a.jsonl", "", [json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts)])
    else:
        some = pa.table({"id": range(10_000), "text": texts})
        times = SOURCE_BYTES // some.nbytes + 1
        with pq.ParquetWriter(landing / "a.parquet", some.schema, compression="none", use_dictionary=False) as writer:
            if format == "parquet":
                for _ in range(times):
                    writer.write_table(some)
            else:
                writer.write_table(pa.concat_tables([some] * times), row_group_size=10**9)
        count = times * 10_000
    (file,) = landing.iterdir()
    assert file.stat().st_size > SOURCE_BYTES * 0.9
    rows, more = grown(f"mc.sources.files({str(landing)!r}, settle='0s')", tmp_path / "t")
    assert rows == count and more < MOST, f"{more >> 20} MiB"


def test_a_topic_that_is_larger_than_the_memory(tmp_path: Path) -> None:
    """The cluster keeps 5 MiB of each partition, compressed."""
    brokers = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "these", "log_level": 0})
    servers = ",".join(f"{each.host}:{each.port}" for each in brokers.list_topics(timeout=10).brokers.values())
    producer = Producer({"bootstrap.servers": servers, "compression.type": "zstd", "linger.ms": 200, "batch.size": 900_000, "log_level": 0})
    texts = [" ".join(text_of(number + at) for at in range(30)) for number in range(1_000)]
    sent = count = 0
    while sent < SOURCE_BYTES:
        for partition in range(4):
            value = json.dumps({"id": count, "text": texts[count % 1_000]}).encode()
            producer.produce("orders", value, partition=partition)
            sent, count = sent + len(value), count + 1
        producer.poll(0)
        if count % 4_000 == 0:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0
    rows, more = grown(f"mc.sources.kafka({servers!r}, 'orders')", tmp_path / "t")
    assert rows == count and more < MOST, f"{more >> 20} MiB"
