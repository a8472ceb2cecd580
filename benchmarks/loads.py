"""What `load` costs, from files and from Kafka, beside what one would write by hand, and beside dlt.

- `files`: JSON lines that land in a folder. `naive loop`: pyarrow reads each file and writes a Parquet file of the same name; what it
  has done is in no commit. `dlt, filesystem`: dlt's own destination, Parquet, from pyarrow's tables of the same files; `dlt,
  manifestcommit`: the same pipeline into the destination of `integrations/dlt`. Both in an environment of their own, from the moment
  that dlt is imported.
- `kafka`: records in JSON on the cluster that librdkafka brings, in this process, so that the broker's CPU is in every figure. `bare
  consumer`: confluent-kafka's `consume`, decoded by msgspec, written by pyarrow as one Parquet file.

What these figures do not say: the store is a local disk, and the broker is no Kafka.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import msgspec
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
from tests.clients.environments import python_of

import manifestcommit as mc
from benchmarks.measure import REPO, Contestant, Figures, interleave, parser, report, rounds_of, work_folder
from manifestcommit import sources

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64()), ("note", pa.string())])
FIGURES = ["wall_s", "cpu_s", "rows_per_s"]
PARTITIONS, PARTITION_BYTES = 4, 4 << 20  # what the broker makes, and keeps of each, which is 5 MiB
DLT = """
import glob, json, sys, time
import dlt, pyarrow.json as pj
from manifestcommit_dlt import manifestcommit
landing, out, kind = sys.argv[1:]
target = manifestcommit(out) if kind == "manifestcommit" else dlt.destinations.filesystem(out)
start, cpu = time.perf_counter(), time.process_time()
pipe = dlt.pipeline("bench", destination=target, dataset_name="d", pipelines_dir=out + ".work")
@dlt.resource(name="t")
def rows():
    for name in sorted(glob.glob(landing + "/*.jsonl")):
        yield pj.read_json(name)
pipe.run(rows(), loader_file_format="parquet")
print(json.dumps({"wall_s": time.perf_counter() - start, "cpu_s": time.process_time() - cpu}))
"""


def main() -> int:
    """Files, then records, by each side in turns."""
    options = parser(__doc__).parse_args()
    rounds = rounds_of(options)
    with work_folder(options) as folder:
        files, each = (20, 5_000) if options.quick else (100, 20_000)
        compare("files", {"files": files, "rows": files * each}, sides_of_files(folder, files, each), rounds)
        sides, records = sides_of_kafka(folder)
        compare("kafka", {"partitions": PARTITIONS, "rows": records}, sides, rounds)
    return 0


def compare(source: str, case: dict[str, Any], sides: dict[str, Callable[[int], Figures]], rounds: int) -> None:
    """Run the sides in turns, and report them with the rows that each loads in a second."""
    contestants = [Contestant(name=name, run=run) for name, run in sides.items()]
    interleave(contestants, rounds=rounds)
    for one in contestants:
        for figures in one.rounds:
            figures["rows_per_s"] = case["rows"] / figures["wall_s"]
    report("loads", {"source": source, **case}, contestants, figures=FIGURES)


def row(number: int) -> dict[str, Any]:
    """One of many that differ."""
    return {"id": number, "carrier": ("AA", "B6", "UA")[number % 3], "delay": number % 977 / 8, "note": f"flight {number}"}


def check(loaded: int, expected: int) -> None:
    """Refuse to compare sides that do different work."""
    if loaded != expected:
        raise SystemExit(f"{loaded:,} rows were loaded instead of {expected:,}: nothing to compare")


def sides_of_files(folder: Path, files: int, each: int) -> dict[str, Callable[[int], Figures]]:
    """The same files, loaded by each side into a place of its own."""
    landing, total = folder / "landing", files * each
    landing.mkdir()
    for number in range(files):
        lines = b"\n".join(msgspec.json.encode(row(number * each + at)) for at in range(each))
        (landing / f"{number:04}.jsonl").write_bytes(lines + b"\n")

    def ours(number: int) -> Figures:
        source = sources.files(landing, settle="0s")
        check(mc.load(source, folder / f"ours{number}").rows, total)
        return {}

    def naive(number: int) -> Figures:
        (out := folder / f"naive{number}").mkdir()
        for path in sorted(landing.glob("*.jsonl")):
            pq.write_table(pj.read_json(path), out / f"{path.stem}.parquet", compression="zstd")
        check(sum(pq.read_metadata(path).num_rows for path in out.glob("*.parquet")), total)
        return {}

    def dlt(kind: str, number: int) -> Figures:
        out = folder / f"dlt-{kind}{number}"
        paths = os.pathsep.join([str(REPO), str(REPO / "integrations" / "dlt")])
        env = {**os.environ, "PYTHONPATH": paths, "RUNTIME__DLTHUB_TELEMETRY": "false"}
        command = [python_of("dlt"), "-c", DLT, str(landing), str(out), kind]
        told = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
        plain = sum(pq.read_metadata(path).num_rows for path in (out / "d" / "t").glob("*.parquet"))
        check(mc.Table(out / "d" / "t").dataset().count_rows() if kind == "manifestcommit" else plain, total)
        shutil.rmtree(f"{out}.work")
        figures: Figures = json.loads(told.splitlines()[-1])
        return figures

    return {
        "manifestcommit": ours,
        "naive loop": naive,
        "dlt, filesystem": partial(dlt, "filesystem"),
        "dlt, manifestcommit": partial(dlt, "manifestcommit"),
    }


def sides_of_kafka(folder: Path) -> tuple[dict[str, Callable[[int], Figures]], int]:
    """The same records, loaded by each side; and how many they are."""
    settings = {"test.mock.num.brokers": 1, "bootstrap.servers": "these", "log_level": 0}
    brokers = confluent_kafka.Producer(settings)
    servers = ",".join(f"{one.host}:{one.port}" for one in brokers.list_topics(timeout=10).brokers.values())
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "log_level": 0})
    each = PARTITION_BYTES // len(msgspec.json.encode(row(10**6)))
    total = each * PARTITIONS
    for partition in range(PARTITIONS):
        for at in range(each):
            producer.produce("flights", msgspec.json.encode(row(partition * each + at)), partition=partition)
        if producer.flush(60):
            raise SystemExit("the broker did not take the records")

    def ours(number: int) -> Figures:
        assert brokers  # which live as long as it
        source = sources.kafka(servers, "flights", schema=SCHEMA)
        check(mc.load(source, folder / f"kafka{number}").rows, total)
        return {}

    def bare(number: int) -> Figures:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "bare", "enable.auto.commit": False})
        consumer.assign([confluent_kafka.TopicPartition("flights", partition, 0) for partition in range(PARTITIONS)])
        left = total
        with pq.ParquetWriter(folder / f"bare{number}.parquet", SCHEMA, compression="zstd") as writer:
            while left:
                rows = [msgspec.json.decode(message.value() or b"") for message in consumer.consume(10_000, 1.0)]
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
                left -= len(rows)
        consumer.close()
        return {}

    return {"manifestcommit": ours, "bare consumer": bare}, total


if __name__ == "__main__":
    sys.exit(main())
