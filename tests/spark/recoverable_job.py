"""A driver that tests kill, stop and run again: `python -m tests.spark.recoverable_job <root> <folder> <tasks> [<second root>]`.

Its tasks say in the folder that they compute; those from the number in the file `gate` on wait until it is higher. The rows of partition
p are p * 10 to p * 10 + 9. With a second table, whose tasks use the folder `second` inside that folder, both are committed together. What
came of it is printed as JSON, of the first table last.
"""

import json
import logging
import os
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa


def computing(folder: str) -> Any:
    """A function for mapInArrow that passes rows through, in this driver's own code: Spark pickles it by value."""

    def compute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.partitionId()
        with open(os.path.join(folder, "run"), encoding="utf-8") as file:
            run = file.read()
        with open(os.path.join(folder, f"computed-{run}-{number}-{uuid.uuid4().hex}"), "w"):
            pass
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with open(os.path.join(folder, "gate"), encoding="utf-8") as file:
                if number < int(file.read() or 0):
                    break
            time.sleep(0.02)
        yield from batches

    return compute


def run(spark: Any, root: str, folder: str, tasks: int, second: str = "") -> list[dict[str, Any]]:
    """The job; what came of it, of the first table last."""
    import manifestcommit as mc

    def write(job: mc.Job, folder: str) -> None:
        rows = spark.range(0, tasks * 10, 1, tasks).mapInArrow(computing(folder), "id long")
        job.write(rows.withColumnRenamed("id", "a `b`.c"))

    how: dict[str, Any] = {"key": "month", "recoverable": True, "fingerprint": "the script of this test"}
    if second:
        with mc.transaction([root, second], **how) as tx:
            write(tx[root], folder)
            write(tx[second], os.path.join(folder, "second"))
        outcomes = [*tx.outcome.outcomes.values()]
    else:
        with mc.begin(root, **how) as job:
            write(job, folder)
        assert job.outcome is not None
        outcomes = [job.outcome]
    return [{"job": each.job_id, "kind": each.kind, "version": each.version} for each in reversed(outcomes)]


def main() -> None:
    root, folder, tasks, *second = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, filename=Path(folder, "log"))
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from tests.spark.jobs import open_session

    spark = open_session("local[2]", {})
    try:
        for outcome in run(spark, root, folder, int(tasks), *second):
            print(json.dumps(outcome))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
