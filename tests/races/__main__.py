"""`python -m tests.races`: rounds of real processes that race with gc for one small table, killed, stopped and lied to by a seed.

    python -m tests.races --rounds 100 --seed 1
    python -m tests.races --rounds 30 --store s3 --json
    python -m tests.races --seed 1 --only 37 --rounds 20        that round again and again: timing decides what meets what

Progress goes to standard error. Exit codes: 0 nothing was wrong, 1 something was (it says what, and where the remains lie), 2 usage, 3 no
server to be had for S3.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
from pathlib import Path

import msgspec
from tests.races.run import Settings, Summary, failed, report, run
from tests.servers import servers
from tests.servers.servers import UnavailableError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.races", description="gc races with everything else, round after round.")
    parser.add_argument("--rounds", type=int, default=100, help="how many on each store (default: 100)")
    parser.add_argument("--seed", type=int, default=None, help="the rounds of an earlier run (default: new ones)")
    parser.add_argument("--store", choices=("local", "s3", "both"), default="local", help="where (default: local)")
    parser.add_argument("--only", type=int, default=None, help="the number of one round, which is played --rounds times")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    given = parser.parse_args(arguments)
    if given.rounds < 1 or (given.only is not None and given.only < 1):
        parser.error("--rounds and --only count from 1 on")
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    summaries, unavailable = [], False
    for store in ("local", "s3") if given.store == "both" else (given.store,):
        _say(f"seed {seed}: {given.rounds} rounds on {store}")
        try:
            summaries.append(_run(Settings(seed=seed, rounds=given.rounds, store=store, only=given.only)))
        except UnavailableError as error:
            _say(f"NOT RUN on {store}: {error}. --store local needs nothing.")
            unavailable = True
    if given.json:
        print(msgspec.json.encode([msgspec.to_builtins(each) for each in summaries]).decode())
    return 1 if failed(summaries) else 3 if unavailable else 0


def _run(settings: Settings) -> Summary:
    if settings.store == "local":
        summary = run(settings, _say)
    else:
        with tempfile.TemporaryDirectory(prefix="manifestcommit-rgw-") as folder:
            try:
                server = servers.developers_rgw() or servers.start_rgw(Path(folder), for_pid=os.getpid())
                summary = run(settings, _say, server)
            finally:
                servers.stop_rgw(Path(folder))
    report(summary, _say)
    return summary


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
