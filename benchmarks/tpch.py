"""The 22 queries of TPC-H over tables of this library, beside each engine's own Parquet reader over the very same files.

Spark reads by `mc.read_committed` and by `format("manifestcommit")`, DuckDB by `Table.duckdb`, Polars by `Table.to_polars`;
opening the tables is part of each round. `layout` says whether lineitem and orders are partitioned (by ship mode and by priority). Each
route's answers are compared with those of the engine's own reader, and with the other engines', before anything is measured.
"""

from __future__ import annotations

import datetime as dt
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import manifestcommit as mc
from benchmarks.measure import Contestant, interleave, parser, report, rounds_of, spark_session, work_folder
from benchmarks.tpch_queries import TABLES, queries

PARTITIONS = {"lineitem": "l_shipmode", "orders": "o_orderpriority"}
Answers = dict[str, list[tuple[Any, ...]]]
# Opens the tables, and returns what answers a query.
Route = Callable[[], Callable[[str], list[tuple[Any, ...]]]]


def main() -> int:
    """Generate the tables, write each in both layouts, and run every route of every engine."""
    options = parser(__doc__)
    options.add_argument("--sf", type=float, help="TPC-H scale factor (default: 1, quick: 0.01)")
    options.add_argument("--engines", nargs="+", choices=("spark", "duckdb", "polars"), default=("spark", "duckdb", "polars"))
    chosen = options.parse_args()
    scale = chosen.sf or (0.01 if chosen.quick else 1)
    with work_folder(chosen) as folder, spark_session(folder / "spark.log") as spark:
        generate(folder / "source", scale)
        for layout in ("plain", "partitioned"):
            root = folder / layout
            write_all(spark, folder / "source", root, partitioned=layout == "partitioned")
            known: Answers = {}
            for engine in chosen.engines:
                run_engine(engine, spark, root, {"engine": engine, "layout": layout, "sf": scale}, known, rounds_of(chosen))
            shutil.rmtree(root)
    return 0


def generate(folder: Path, scale: float) -> None:
    """Each table as one Parquet file."""
    program = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or "tpchgen-cli"
    words = [program, "parquet", "--scale-factor", f"{scale:g}", "--output-dir", str(folder)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def write_all(spark: SparkSession, source: Path, root: Path, *, partitioned: bool) -> None:
    """The tables, by `mc.write`, with all their rows."""
    for name in TABLES:
        by = PARTITIONS.get(name) if partitioned else None
        data = spark.read.parquet(str(source / f"{name}.parquet"))
        data = data.repartition(2, by) if by else data
        mc.write(data, str(root / name), partition_by=by)
        rows = pq.read_metadata(source / f"{name}.parquet").num_rows
        if (held := sum(mc.Table(str(root / name)).files().column("rows").to_pylist())) != rows:
            raise SystemExit(f"{name} holds {held:,} rows instead of {rows:,}: nothing to compare")


def run_engine(engine: str, spark: SparkSession, root: Path, case: Mapping[str, Any], known: Answers, rounds: int) -> None:
    """Compare the answers of all routes of an engine, then time them. known: answers of the engines before, to be compared and added to."""
    routes = {"spark": spark_routes(spark, root), "duckdb": duckdb_routes(root), "polars": polars_routes(root)}[engine]
    *ours, own = routes
    wanted = queries(case["sf"])
    answers = {name: answers_of(routes[name], wanted) for name in routes}
    for name, found in answers.items():
        for query, rows in found.items():
            check_same(rows, answers[own][query], f"{engine}, {name}, {query}")
            check_same(rows, known.setdefault(query, rows), f"{engine}, {name}, {query}, beside another engine")

    def timed(route: Route) -> Callable[[int], None]:
        def run(_: int) -> None:
            answers_of(route, wanted)

        return run

    contestants = [Contestant(name=name, run=timed(routes[name])) for name in (*ours, own)]
    interleave(contestants, rounds=rounds, warm_up=0)  # the comparison of answers has warmed all of them up
    report("tpch", case, contestants, figures=["wall_s", "cpu_s"])


def answers_of(route: Route, wanted: Mapping[str, str]) -> Answers:
    """Open the tables and run the queries."""
    ask = route()
    return {name: ask(text) for name, text in wanted.items()}


def spark_routes(spark: SparkSession, root: Path) -> dict[str, Route]:
    """The library's two ways, and Spark's own scan."""

    def route(read: Callable[[str], Any]) -> Route:
        def opened() -> Callable[[str], list[tuple[Any, ...]]]:
            for name in TABLES:
                read(str(root / name)).createOrReplaceTempView(name)
            return lambda text: [tuple(row) for row in spark.sql(text).collect()]

        return opened

    mc.register(spark)
    return {
        "manifestcommit": route(lambda path: mc.read_committed(path, spark=spark)),
        'format("manifestcommit")': route(lambda path: spark.read.format("manifestcommit").load(path)),
        "spark parquet": route(lambda path: spark.read.parquet(path)),
    }


def duckdb_routes(root: Path) -> dict[str, Route]:
    """The library's relations, those over a data set, and DuckDB's own reader."""

    def route(open_table: Callable[[duckdb.DuckDBPyConnection, str], duckdb.DuckDBPyRelation]) -> Route:
        def opened() -> Callable[[str], list[tuple[Any, ...]]]:
            connection = duckdb.connect()
            for name in TABLES:
                open_table(connection, name).create_view(name)
            return lambda text: connection.sql(text).fetchall()

        return opened

    return {
        "manifestcommit": route(lambda connection, name: mc.Table(str(root / name)).duckdb(connection)),
        "dataset()": route(lambda connection, name: connection.from_arrow(mc.Table(str(root / name)).dataset())),
        "duckdb parquet": route(lambda connection, name: connection.read_parquet(pattern(root, name))),
    }


def polars_routes(root: Path) -> dict[str, Route]:
    """The library's LazyFrames, and Polars' own reader."""

    def route(open_table: Callable[[str], polars.LazyFrame]) -> Route:
        def opened() -> Callable[[str], list[tuple[Any, ...]]]:
            context = polars.SQLContext({name: open_table(name) for name in TABLES})
            return lambda text: context.execute(text, eager=True).rows()

        return opened

    return {
        "manifestcommit": route(lambda name: mc.Table(str(root / name)).to_polars()),
        "polars parquet": route(lambda name: polars.scan_parquet(pattern(root, name), hive_partitioning=False)),
    }


def pattern(root: Path, name: str) -> str:
    """All files of a table that was written once."""
    return str(root / name / ("*/*.parquet" if any((root / name).glob("*=*")) else "*.parquet"))


def check_same(some: list[tuple[Any, ...]], others: list[tuple[Any, ...]], what: str) -> None:
    """Fail unless the rows are the same: in any order, since ties have none, and numbers to nine digits."""

    def key(row: tuple[Any, ...]) -> tuple[str, ...]:
        return tuple(f"{float(v):.4g}" if isinstance(v, float | Decimal) else str(v) for v in row)

    def is_same(one: Any, other: Any) -> bool:
        if isinstance(one, int | float | Decimal) and isinstance(other, int | float | Decimal):
            return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-5)  # Spark's averages of decimals have six digits
        return one == other or (isinstance(one, dt.date) and str(one) == str(other))

    pairs = zip(sorted(some, key=key), sorted(others, key=key), strict=False)
    if len(some) != len(others) or not all(len(one) == len(other) and all(map(is_same, one, other)) for one, other in pairs):
        raise SystemExit(f"{what}: the answers differ: nothing to compare")


if __name__ == "__main__":
    sys.exit(main())
