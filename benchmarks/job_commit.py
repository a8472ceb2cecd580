"""The end of a job that has written N files in a few tasks, beside FileOutputCommitter's algorithms 1 and 2.

- `after_tasks_s`: from the end of the last task to the return of the call; the same clock for everyone, and the figure to compare.
- `commit_s`: the commit alone. For us from the return of `job.write` to the end of the `with` block (what `job.write` does after its
  tasks is not in it); for Spark its metric "job commit time" (what Spark does around the committer is not in it).
- `task_commits_s`: the sum over tasks of Spark's metric "task commit time". `wall_s`, `cpu_s`: the whole job.

Where FileOutputCommitter's work sits depends on the algorithm and on what is there (read in its source):

- algorithm 1 moves everything at job commit: a partition's folder in one rename if the destination lacks it (`partitions new`),
  else file by file (`partitions existing`);
- algorithm 2 moves file by file at task commit, where a failure leaves half of a job visible, and at job commit only deletes the
  emptied temporary tree. So its job commit is not free, and on new partitions it can take longer than algorithm 1's.

What these figures do not say: on a local disk without its native library, Hadoop starts a process for every change of permissions,
several per file (seen: about 500 for 200 files). That inflates the peers' `wall_s`, `cpu_s` and `task_commits_s`, is no property of
their protocol, and does not happen on an object store, where in turn each rename is a copy. Compare `after_tasks_s` and how it grows.

The floor of a commit is one small file, fsynced and linked into place.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report, rounds_of, spark_session, work_folder

TASKS = 2
ROWS_PER_FILE = 10
ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"


def main() -> int:
    """Rounds for each number of files."""
    options = parser(__doc__)
    options.add_argument("--files", type=int, nargs="+", help="numbers of files (default: 10 1000 10000, quick: 10 100)")
    options.add_argument("--partitions", choices=["new", "existing"], help="only this case (default: both)")
    chosen = options.parse_args()
    with work_folder(chosen) as folder, spark_session(folder / "spark.log") as spark:
        for files in chosen.files or ([10, 100] if chosen.quick else [10, 1_000, 10_000]):
            data = make_rows(spark, files)
            for existing in [case == "existing" for case in ("new", "existing") if chosen.partitions in (None, case)]:
                compare(spark, data, folder, files=files, existing=existing, rounds=rounds_of(chosen))
            data.unpersist()
    return 0


def compare(spark: SparkSession, data: DataFrame, folder: Path, *, files: int, existing: bool, rounds: int) -> None:
    """Rounds for one number of files, into partitions that are new or that hold a file each already."""
    many = files >= 10_000  # each side needs minutes a round: few rounds, and smaller sizes have warmed up the session
    contestants = contestants_for(spark, data, folder, files=files, existing=existing)
    interleave(contestants, rounds=min(3, rounds) if many else rounds, warm_up=0 if many else 1)
    case = {"files": files, "tasks": TASKS, "partitions": "existing" if existing else "new"}
    report("job_commit", case, contestants, figures=["after_tasks_s", "commit_s", "task_commits_s", "wall_s", "cpu_s"])


def make_rows(spark: SparkSession, files: int) -> DataFrame:
    """Each value of `part` in one task, sorted, so that each becomes one file and no task keeps many open."""
    rows = spark.range(files * ROWS_PER_FILE).selectExpr(f"cast(id % {files} as int) as part", "id", "cast(id as string) as name")
    data = rows.repartitionByRange(TASKS, "part").sortWithinPartitions("part").cache()
    data.count()
    return data


def contestants_for(spark: SparkSession, data: DataFrame, folder: Path, *, files: int, existing: bool) -> list[Contestant]:
    """Us, the two algorithms, and the floor."""

    def target(kind: str, number: int) -> Path:
        return folder / f"{kind}-{number}"

    def ours(number: int) -> Figures:
        with mc.begin(str(target("ours", number))) as job:
            job.write(data, partition_by=["part"])
            written = time.perf_counter()
        commit = time.perf_counter() - written
        return {"after_tasks_s": after_tasks_s(spark, ended=time.time()), "commit_s": commit}

    def committer(algorithm: int) -> Callable[[int], Figures]:
        def run(number: int) -> Figures:
            target_folder = str(target(f"v{algorithm}", number))
            options = {ALGORITHM: str(algorithm), "compression": "zstd"}
            data.write.partitionBy("part").options(**options).mode("append").parquet(target_folder)
            ended = time.time()
            return {"after_tasks_s": after_tasks_s(spark, ended=ended), **commit_metrics_s(spark)}

        return run

    def small_file(number: int) -> Figures:
        start = time.perf_counter()
        put_small_file(target("floor", number))
        return {"commit_s": time.perf_counter() - start}

    def checked(kind: str) -> Callable[[int], None]:
        def check(number: int) -> None:
            found = sum(1 for _ in target(kind, number).glob("part=*/*.parquet"))  # manifests are Parquet too, elsewhere
            expected = files * (2 if existing else 1)
            if found != expected:
                raise SystemExit(f"{kind} holds {found:,} files instead of {expected:,}: nothing to compare")
            shutil.rmtree(target(kind, number))

        return check

    def job(name: str, kind: str, run: Callable[[int], Figures]) -> Contestant:
        def fill(number: int) -> None:
            if existing:
                run(number)

        return Contestant(name=name, run=run, before=fill, after=checked(kind))

    return [
        job("manifestcommit", "ours", ours),
        job("FileOutputCommitter v1", "v1", committer(1)),
        job("FileOutputCommitter v2", "v2", committer(2)),
        Contestant(name="fsync and link (floor)", run=small_file, after=lambda number: shutil.rmtree(target("floor", number))),
    ]


def put_small_file(folder: Path) -> None:
    """One kilobyte that is durable under its name."""
    folder.mkdir()
    descriptor = os.open(folder / ".temporary", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.write(descriptor, b"x" * 1024)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.link(folder / ".temporary", folder / "object")
    os.unlink(folder / ".temporary")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def after_tasks_s(spark: SparkSession, *, ended: float) -> float:
    """Seconds from the completion of the newest Spark job's last stage to `ended`, by the wall clock that the JVM uses too."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    newest = tracker.getJobInfo(max(tracker.getJobIdsForGroup(None)))
    if newest is None:
        raise SystemExit("Spark's status tracker knows nothing of the job that has just ended")
    times = [store.lastStageAttempt(stage).completionTime() for stage in newest.stageIds]
    last_ms: int = max(one.get().getTime() for one in times if one.isDefined())
    return ended - last_ms / 1000


def commit_metrics_s(spark: SparkSession) -> Figures:
    """Spark's own metrics of the newest write: the job's commit, and the sum of its tasks' commits, in seconds."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # metrics arrive behind the execution that they are of
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    execution = executions.apply(executions.size() - 1)
    values = store.executionMetrics(execution.executionId())
    found = {}
    for position in range(execution.metrics().size()):
        metric = execution.metrics().apply(position)
        value = values.get(metric.accumulatorId())  # a plan that was made again lists a metric twice, once without a value
        if value.isDefined():
            found[metric.name()] = value.get()
    try:
        return {"commit_s": seconds(found["job commit time"]), "task_commits_s": seconds(found["task commit time"])}
    except KeyError as missing:
        raise SystemExit(f"Spark's newest execution has no metric called {missing}: has its name changed?") from None


def seconds(text: str) -> float:
    """`"12 ms"`, `"1.4 s"` or `"2.0 m"` as Spark formats a time; of a metric over tasks, the total."""
    number, unit = text.splitlines()[-1].split()[:2]
    return float(number.replace(",", "")) * {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}[unit]


if __name__ == "__main__":
    sys.exit(main())
