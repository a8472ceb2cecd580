"""`python -m tests.chaos`: real processes on a real store, killed, stopped and lied to by a seeded schedule, for as long as wanted.

    make chaos CHAOS_ARGS="--minutes 10 --seed 7"
    make chaos CHAOS_ARGS="--minutes 5 --store s3"
    make chaos CHAOS_ARGS="--about joint --minutes 10"

Exit codes: 0 nothing was wrong, 1 something was, 2 usage, 3 no server to be had for one of the stores.
"""

import argparse
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tests.chaos.run import Settings, Summary, report, run
from tests.chaos.scene import SCENES
from tests.servers import servers
from tests.servers.servers import S3Server, UnavailableError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="Kills, stops and lies to writers, and checks what they wrote."
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long things go wrong on each store (default: 10)")
    parser.add_argument("--seed", type=int, default=None, help="the schedule of an earlier run (default: a new one)")
    parser.add_argument("--store", choices=("local", "s3", "both"), default="both", help="where (default: both, one after the other)")
    parser.add_argument(
        "--about",
        choices=tuple(SCENES),
        default="tables",
        help="single tables that are written (the default), transfers between several tables by joint commits, changes of rows, "
        "or constraints",
    )
    parser.add_argument("--spark", action="store_true", help="of gate: with a query of Spark that streams beside them")
    given = parser.parse_args(arguments)
    if given.minutes <= 0:
        parser.error("--minutes are more than 0")
    if given.spark and given.about != "gate":
        parser.error("--spark is of --about gate")
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    summaries: list[Summary] = []
    unavailable = False
    for store in ("local", "s3") if given.store == "both" else (given.store,):
        try:
            summaries.append(_run(given, seed, store))
        except UnavailableError as error:
            print(f"NOT RUN on {store}: {error}. --store local needs nothing.", file=sys.stderr)
            unavailable = True
    return 1 if any(each.findings for each in summaries) else 3 if unavailable else 0


def _run(given: argparse.Namespace, seed: int, store: Literal["local", "s3"]) -> Summary:
    say = partial(print, flush=True)
    with _server(store) as server:
        # A server takes longer for a commit than a disk: fewer records and kills, so that writers get somewhere.
        slower: dict[str, Any] = {"per_second": 25.0, "kill_every_s": 2.0} if store == "s3" else {}
        if given.spark:  # its session alone takes longer than a short run
            slower |= {"wanted": {"streamed": 10}, "drain_s": 600.0}
        settings = Settings(
            seed=seed, seconds=given.minutes * 60, store=store, writers=4, sources=6,
            exports=given.about == "tables", about=given.about, spark=given.spark, **slower,
        )  # fmt: skip
        summary = run(settings, say, server)
        report(summary, say)
        return summary


@contextmanager
def _server(store: str) -> Iterator[S3Server | None]:
    """The gateway that somebody runs, or one of this run's own."""
    if store == "local":
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="manifestcommit-rgw-") as folder:
        try:
            yield servers.developers_rgw() or servers.start_rgw(Path(folder), for_pid=os.getpid())
        finally:
            servers.stop_rgw(Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
