"""What `mc.write` of TPC-H lineitem costs through Spark, beside Spark's own Parquet writer with the same codec.

The floor is Spark's `noop` sink: reading the input and throwing it away. Both ratios are given: of the totals, and of what is
left when the floor is taken off both sides.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report, rounds_of, spark_session, work_folder

CODEC = "zstd"


def main() -> int:
    """Generate the table, run the rounds, report."""
    with lineitem(__doc__) as given:
        data = given.spark.read.parquet(str(given.source))
        contestants = contestants_for(data, given.folder, rows=given.rows)
        interleave(contestants, rounds=given.rounds)
        case = {"sf": given.scale, "rows": given.rows, "tasks": data.rdd.getNumPartitions(), "codec": CODEC}
    net = [without_floor(one, contestants[-1]) for one in contestants[:-1]]
    report("write_throughput", case, contestants, figures=["wall_s", "cpu_s", "bytes"])
    report("write_throughput", {**case, "of": "what is above the floor"}, net, figures=["wall_s", "cpu_s"])
    return 0


class Lineitem(NamedTuple):
    """source: the table as one Parquet file."""

    spark: SparkSession
    folder: Path
    source: Path
    scale: float
    rows: int
    rounds: int


@contextmanager
def lineitem(description: str | None) -> Iterator[Lineitem]:
    """TPC-H lineitem at the size that the command line asks for, a session, and a folder to work in."""
    options = parser(description)
    options.add_argument("--sf", type=float, help="TPC-H scale factor (default: 1, quick: 0.1)")
    chosen = options.parse_args()
    scale = chosen.sf or (0.1 if chosen.quick else 1)
    with work_folder(chosen) as folder, spark_session(folder / "spark.log") as spark:
        source = generate(folder / "source", scale)
        rows = pq.read_metadata(source).num_rows
        yield Lineitem(spark=spark, folder=folder, source=source, scale=scale, rows=rows, rounds=rounds_of(chosen))


def generate(folder: Path, scale: float) -> Path:
    """lineitem as one Parquet file."""
    program = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or "tpchgen-cli"
    words = [program, "parquet", "--scale-factor", f"{scale:g}", "--tables", "lineitem", "--output-dir", str(folder)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return folder / "lineitem.parquet"


def contestants_for(data: DataFrame, folder: Path, *, rows: int) -> list[Contestant]:
    """Us, Spark, and the floor; each writes to a folder of its own, which is checked and removed after each round."""

    def target(kind: str, number: int) -> Path:
        return folder / f"{kind}-{number}"

    def ours(number: int) -> Figures | None:
        mc.write(data, str(target("ours", number)), key=f"round {number}")
        return {"bytes": size_bytes(target("ours", number))}

    def spark(number: int) -> Figures | None:
        data.write.option("compression", CODEC).parquet(str(target("spark", number)))
        return {"bytes": size_bytes(target("spark", number))}

    def noop(_: int) -> Figures | None:
        data.write.format("noop").mode("overwrite").save()
        return None

    def checked(kind: str) -> Callable[[int], None]:
        def check(number: int) -> None:
            written = [pq.read_metadata(path) for path in target(kind, number).glob("*.parquet")]
            held = sum(one.num_rows for one in written)
            codecs = {one.row_group(0).column(0).compression.lower() for one in written if one.num_row_groups}
            if held != rows or codecs != {CODEC}:
                raise SystemExit(f"{kind} wrote {held:,} rows instead of {rows:,}, compressed with {codecs}: nothing to compare")
            shutil.rmtree(target(kind, number))

        return check

    return [
        Contestant(name="manifestcommit", run=ours, after=checked("ours")),
        Contestant(name="spark parquet", run=spark, after=checked("spark")),
        Contestant(name="noop (floor)", run=noop),
    ]


def size_bytes(folder: Path) -> float:
    """Bytes of the data files."""
    return float(sum(path.stat().st_size for path in folder.glob("*.parquet")))


def without_floor(one: Contestant, floor: Contestant) -> Contestant:
    """The same rounds with the floor's median taken off."""
    rounds = [{f: round_[f] - floor.median(f) for f in ("wall_s", "cpu_s")} for round_ in one.rounds]
    return Contestant(name=one.name, run=one.run, rounds=rounds)


if __name__ == "__main__":
    sys.exit(main())
