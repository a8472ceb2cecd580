"""A load holds a bounded part of its source, however large that is: 256 MB at most, above an interpreter with what it needs. [LD1]"""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kit.sources import broker_of
from tests.servers.servers import free_port

pytestmark = pytest.mark.thorough  # gigabytes

MOST = 256 << 20
SOURCE_BYTES = 3 * MOST
# One load; it says its rows, and how much its memory has grown at most.
CODE = """
import pathlib, sys
import confluent_kafka, pyarrow.csv, pyarrow.json, pyarrow.parquet
import manifestcommit as mc

def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM:"))

few = pathlib.Path(sys.argv[2] + ".few")
few.mkdir()
(few / "a.csv").write_text("id,text\\n1,x\\n")
mc.load(mc.sources.files(few, settle="0s"), sys.argv[2] + ".warm")  # what is imported late
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
    print(f"{more >> 20} MiB")
    assert rows == count and more < MOST


def test_a_topic_that_is_larger_than_the_memory(tmp_path: Path) -> None:
    """On Tansu, which keeps all of it."""
    with broker_of(port := free_port(), port):
        servers = f"127.0.0.1:{port}"
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        for made in admin.create_topics([NewTopic("orders", 4, 1)]).values():
            made.result(60)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 100, "batch.size": 900_000, "log_level": 0})
        text = " ".join(map(text_of, range(30)))
        count = SOURCE_BYTES // len(text)
        for number in range(count):
            producer.produce("orders", json.dumps({"id": number, "text": text}).encode(), partition=number % 4)
            if number % 10_000 == 0:
                assert producer.flush(60) == 0
        assert producer.flush(60) == 0
        rows, more = grown(f"mc.sources.kafka({servers!r}, 'orders')", tmp_path / "t")
        print(f"{more >> 20} MiB")
        assert 0.99 * count < rows <= count and more < MOST  # Tansu's end of a partition is before its last records
