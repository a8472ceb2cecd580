"""Streaming queries of tests: input files in a folder, one per batch, each row with a number that no other row has."""

import json
import os
from pathlib import Path
from typing import Any

FORMAT = "manifestcommit"
SCHEMA = "n long, day string"


def feed(source: Path, *numbers: int, rows: int = 10, **extra: Any) -> None:
    """One file of the input per number: rows n from number * rows on."""
    source.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        lines = [json.dumps({"n": n, "day": f"2013-01-0{n % 2 + 1}", **extra}) for n in range(number * rows, (number + 1) * rows)]
        arriving = source.with_name(f"{source.name}-arriving-{number}")
        arriving.write_text("\n".join(lines) + "\n", "utf-8")
        os.rename(arriving, source / f"{number:05d}.json")  # whole at once: a query may be looking


def read_input(spark: Any, source: str, *, schema: str = SCHEMA) -> Any:
    """The input as a stream, one file a batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(source)


def start(frame: Any, path: str, checkpoint: str, *, mode: str = "append", trigger: dict[str, Any] | None = None, **options: Any) -> Any:
    """The running query that writes a stream into a table."""
    writer = frame.writeStream.format(FORMAT).outputMode(mode).option("checkpointLocation", checkpoint)
    for name, value in options.items():
        writer = writer.option(name, value)
    return writer.trigger(**(trigger or {"availableNow": True})).start(path)


def drain(spark: Any, source: str, path: str, checkpoint: str, **options: Any) -> str:
    """Run a query until it has taken all of its input; what ended it otherwise, as its user gets to read it."""
    from pyspark.errors import StreamingQueryException

    try:
        start(read_input(spark, source), path, checkpoint, **options).awaitTermination()
    except StreamingQueryException as error:
        return str(error)
    return ""


def pipe(spark: Any, source: str, first: str, second: str, checkpoints: str, **options: Any) -> str:
    """The input into one table, then what was committed there into another, each until it has taken all; what ended one otherwise."""
    from pyspark.errors import StreamingQueryException

    if said := drain(spark, source, first, f"{checkpoints}/first", **options):
        return said
    try:
        table = spark.readStream.format(FORMAT).option("maxFilesPerTrigger", 3).load(first)
        start(table, second, f"{checkpoints}/second").awaitTermination()
    except StreamingQueryException as error:
        return str(error)
    return ""
