"""A month in the life of many tables: what each day brings, what was acknowledged, and how large and how slow it all is.

    python -m tests.upkeep.life [--tables 100] [--days 31] [--page]

prints the figures of every tenth day; with --page they are written into docs/explanation/a-month-of-upkeep.md.
"""

import argparse
import json
import logging
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.upkeep.month import Month

import manifestcommit as mc
from manifestcommit.store import open_store

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "explanation" / "a-month-of-upkeep.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int64()), ("value", pa.int64())])
# What each kind of table lives through, and where it lies. A follower follows the table of orders with its number.
KINDS = {"events": "disk", "orders": "memory", "loaded": "memory", "follower": "memory", "quiet": "memory"}
# figure of a table -> how often what it was on the eleventh and twelfth day it may be in the last week, but for eight
FLAT = {"objects": 1.25, "files": 1.5, "manifests": 1.0, "kilobytes": 1.5}
AWAY = (12, 13, 14)  # days on which nobody looks after the tables
Row = tuple[int, int, int]


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a day: sums over all tables; requests and seconds of this process of a commit and an open, medians."""

    day: int
    versions: int
    rows: int
    objects: int
    files: int
    manifests: int
    kilobytes: int
    append_requests: float
    append_s: float
    open_requests: float
    open_s: float
    upkeep_requests: int
    upkeep_s: float


def rows(*of: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, each, strict=True)) for each in of], SCHEMA)


def content(path: str) -> Counter[Row]:
    return Counter(counted_rows(mc.Table(path).to_arrow()))


class Life:
    """Tables, what was acknowledged of each, and their figures."""

    def __init__(self, month: Month, seed: int, of_each: int) -> None:
        self._month, self._random, self._number = month, random.Random(seed), 0
        self.paths = {f"{kind}{number}": month.path(f"{kind}{number}", at) for kind, at in KINDS.items() for number in range(of_each)}
        self.known: dict[str, Counter[Row]] = {name: Counter() for name in self.paths}
        self.sizes: dict[str, list[dict[str, int]]] = {name: [] for name in self.paths}
        self.days: list[Day] = []
        self._taken: list[tuple[int, float]] = []  # requests and seconds of each append of a day
        for name, path in self.paths.items():
            if name.startswith("quiet"):
                mc.write(rows((0, 0, 0)), path)
                self.known[name][0, 0, 0] = 1
            if name.startswith("events"):
                properties = {"gc.keep-for": "3d", "export.formats": "iceberg", "layout.sort-by": "value"}
                mc.create_table(path, SCHEMA, partition_by="day", properties=properties)

    def day(self, day: int) -> None:
        """Of each table of its kind: five appends with keys and watermarks and a job that dies; an upsert and sometimes a delete; a file
        that lands, and is loaded; what a follower has not yet."""
        self._taken = []
        for name in self.paths:
            if name.startswith("events"):
                self._append(name, day)
            elif name.startswith("orders"):
                self._change(name, day)
            elif name.startswith("loaded"):
                self._load(name, day)
            elif name.startswith("follower"):
                mc.load(mc.sources.table(self.paths[name.replace("follower", "orders")], on="id"), self.paths[name])

    @contextmanager
    def _timed(self) -> Iterator[list[float]]:
        taken, requests, began = list[float](), self._month.requests, time.process_time()
        yield taken
        taken += [self._month.requests - requests, time.process_time() - began]

    def _append(self, name: str, day: int) -> None:
        for at in range(day * 5, day * 5 + 5):
            new = (at, day // 7, self._random.randrange(100))
            with self._timed() as taken:
                mc.write(rows(new), self.paths[name], key=f"e{at}", watermarks={"source": (at, at + 1)})
            self._taken.append((int(taken[0]), taken[1]))
            self.known[name][new] += 1
        self._month.dead_job(name, rows((-1, 0, 0)))

    def _change(self, name: str, day: int) -> None:
        known, path = self.known[name], self.paths[name]
        upsert = {each: (each, 0, self._random.randrange(100)) for each in self._random.sample(range(40), 4)}
        if day:
            mc.Table(path).merge(rows(*upsert.values()), on="id")
        else:
            mc.write(rows(*upsert.values()), path)
        gone = [each for each in known if each[0] in upsert]
        if day % 5 == 4:
            mc.Table(path).delete("id < 5")
            gone += [each for each in known if each[0] < 5]
            upsert = {each: row for each, row in upsert.items() if each >= 5}
        for each in {*gone}:
            del known[each]
        known.update(upsert.values())

    def _load(self, name: str, day: int) -> None:
        """Twice: the second load finds nothing new."""
        landed = f"memory://landing-{id(self)}/{name}"
        new = [(each, day, self._random.randrange(100)) for each in range(3)]
        lines = "\n".join(json.dumps(dict(zip(SCHEMA.names, row, strict=True))) for row in new)
        open_store(landed).put(f"{day:03}.json", lines.encode())
        source = mc.sources.files(landed, "json", schema=SCHEMA)
        assert [mc.load(source, self.paths[name]).chunks for _ in range(2)] == [1, 0]
        self.known[name].update(new)

    def rerun(self, day: int) -> None:
        """Whoever did not hear of its commits does the day again."""
        for name in (each for each in self.paths if each.startswith("events")):
            for at in range(day * 5, day * 5 + 5):
                again = mc.write(rows((at, day // 7, 0)), self.paths[name], key=f"e{at}", watermarks={"source": (at, at + 1)})
                assert again.already_committed

    def keep(self) -> None:
        """Upkeep of all tables, those beside loaded ones included."""
        beside = [self._month.path(f"{name}.files", "memory") for name in self.paths if name.startswith("loaded")]
        found = mc.maintain([*self.paths.values(), *beside])
        assert not [row for row in found.to_pylist() if row["state"] not in ("done", "not due")]

    def measure(self, day: int, kept: Sequence[float]) -> None:
        opened = []
        for name, path in self.paths.items():
            tries = []
            for _ in range(3):  # the quickest counts: whatever else runs on the machine empties the caches of its cores
                with self._timed() as taken:
                    snapshot = mc.Table(path).snapshot()
                tries.append(taken)
            opened.append(min(tries, key=lambda each: each[1]))
            store = self._month.store(name)
            sizes = [info.size_bytes for info in store.list("")]
            figures = {
                "objects": len(sizes),
                "files": snapshot.totals.files,
                "manifests": len(snapshot.manifests),
                "kilobytes": sum(sizes) // 1000,
            }
            self.sizes[name].append({**figures, "versions": snapshot.version, "rows": snapshot.totals.rows})
        sums = {each: sum(days[-1][each] for days in self.sizes.values()) for each in (*FLAT, "versions", "rows")}
        append, opening = ([statistics.median(each) for each in zip(*taken, strict=True)] for taken in (self._taken, opened))
        self.days.append(
            Day(
                day=day,
                **sums,
                append_requests=append[0],
                append_s=append[1],
                open_requests=opening[0],
                open_s=opening[1],
                upkeep_requests=int(kept[0]),
                upkeep_s=kept[1],
            )
        )

    def check(self) -> None:
        """Every row that was acknowledged is there once. What a follower has makes the rows of what it follows."""
        for name, path in self.paths.items():
            if name.startswith("follower"):
                self._check_follower(name, path)
            else:
                assert content(path) == self.known[name], name

    def _check_follower(self, name: str, path: str) -> None:
        changes, made = mc.Table(path).to_arrow(), Counter[Row]()
        for row, kind in zip(counted_rows(changes), changes.column("_change_type").to_pylist(), strict=True):
            made[row] += {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}[kind]
        assert +made == self.known[name.replace("follower", "orders")] and not -made, name

    def check_flat(self) -> None:
        """No figure of the last week is above those of two days after the first ten, but for a few; nor is what a commit and an open cost.
        Files count by partition: events have one for each week.
        Rows that are only added make bytes, so those count where rows are replaced."""
        for name, sizes in self.sizes.items():
            for figure, most in FLAT.items():
                weeks = [at // 7 + 1 if figure == "files" and name.startswith("events") else 1 for at in range(len(sizes))]
                days = [each[figure] / parts for each, parts in zip(sizes, weeks, strict=True)]  # of a partition
                if figure != "kilobytes" or name.startswith(("orders", "quiet")):
                    assert max(days[-7:]) <= most * max(days[10:12]) + 8, (name, figure, days)
        early, late = self.days[3:10], self.days[-7:]
        for what, most in (("append_s", 2.0), ("open_s", 2.0), ("append_requests", 1.0), ("open_requests", 1.0)):
            first, last = (statistics.median(getattr(each, what) for each in days) for days in (early, late))
            assert last <= most * first + (what == "append_requests"), (what, first, last)


def counted_rows(found: pa.Table) -> list[Row]:
    return list(zip(*(found.column(name).to_pylist() for name in SCHEMA.names), strict=True))


def lived(month: Month, life: Life, days: int) -> None:
    """So many days, three of them without anybody; each sixth one everything is checked."""
    for day in range(days):
        life.day(day)
        kept = [0.0, 0.0]
        if day not in AWAY:
            with life._timed() as kept:
                life.keep()
        if day % 6 == 5:
            life.check()
            life.rerun(day - 1)
        life.measure(day, kept)
        month.days(1)
    life.check()


def table(days: Sequence[Day], tables: int) -> str:
    """The figures of some days as a table of a page."""
    shown = [each for each in days if each.day % 5 == 0 or each.day == days[-1].day]
    lines = {
        "versions": lambda each: f"{each.versions:,}",
        "rows": lambda each: f"{each.rows:,}",
        "objects": lambda each: f"{each.objects:,}",
        "data files": lambda each: f"{each.files:,}",
        "manifests": lambda each: f"{each.manifests:,}",
        "kB in all": lambda each: f"{each.kilobytes:,}",
        "requests of an append": lambda each: f"{each.append_requests:g}",
        "CPU of an append, ms": lambda each: f"{each.append_s * 1000:.0f}",
        "requests of an open": lambda each: f"{each.open_requests:g}",
        "CPU of an open, ms": lambda each: f"{each.open_s * 1000:.1f}",
        "requests of a day's upkeep": lambda each: f"{each.upkeep_requests:,}",
    }
    head = f"| {tables} tables, on day | " + " | ".join(str(each.day + 1) for each in shown) + " |\n"
    head += "|---|" + "--:|" * len(shown) + "\n"
    return head + "".join(f"| {name} | " + " | ".join(map(tell, shown)) + " |\n" for name, tell in lines.items())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upkeep.life", description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--days", type=int, default=31)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args(arguments)
    logging.disable(logging.INFO)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        month = Month(patch, Path(folder))
        life = Life(month, seed=7, of_each=max(1, options.tables // len(KINDS)))
        lived(month, life, options.days)
        figures = table(life.days, len(life.paths))
    print(figures)
    if options.page:
        page = PAGE.read_text("utf-8")
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{figures}\n{END}{rest.partition(END)[2]}", "utf-8")
    life.check_flat()
    return 0


if __name__ == "__main__":
    sys.exit(main())
