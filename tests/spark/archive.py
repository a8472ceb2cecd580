"""Spark's classes as the JVM keeps them once it has loaded them: with this archive one of Spark's JVMs starts on half of the CPU.

`python -m tests.spark.archive` makes it beside the interpreter, once per environment; tests that find it use it, others go on without.
A JVM that it does not fit (another Java, another class path) says nothing and goes on without, too.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

# One per version of Spark; the JVM compares itself and the jars.
ARCHIVE = Path(sys.prefix) / f"spark-{pyspark.__version__}-classes.jsa"
# What a JVM of minutes needs is a quick start. Its words about an archive would be read as its launcher's answer.
QUICK_START = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SILENT = "-Xlog:disable -Xlog:all=error:stderr -Xlog:cds=off -Xlog:cds+dynamic=off"


def java_options() -> str:
    """For JDK_JAVA_OPTIONS."""
    return f"{QUICK_START} -XX:SharedArchiveFile={ARCHIVE} -Xshare:auto {_SILENT}" if ARCHIVE.exists() else QUICK_START


def make() -> None:
    """Runs a little of everything in a session whose JVM leaves its classes when it ends."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "classes.jsa")
        env = {
            **os.environ,
            "JDK_JAVA_OPTIONS": f"{QUICK_START} -XX:ArchiveClassesAtExit={made} {_SILENT}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.spark.archive", "--run", folder],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if not made.exists():
            print(f"no archive of Spark's classes; its tests go on without\n{done.stderr[-2000:]}")
            return
        beside = ARCHIVE.with_suffix(f".{os.getpid()}")
        beside.write_bytes(made.read_bytes())
        beside.replace(ARCHIVE)


def run(folder: str) -> None:
    """What most tests do."""
    from examples.flights.java import ensure_java
    from pyspark.sql import SparkSession

    import manifestcommit as mc

    ensure_java()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "n long, day string")
    mc.write(rows, f"{folder}/table", partition_by=["day"], key="k")
    assert mc.read_committed(f"{folder}/table", spark=spark).groupBy("day").count().count() == 2
    rows.write.parquet(f"{folder}/parquet")
    stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/parquet")
    query = stream.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2])
    elif not ARCHIVE.exists():
        make()
