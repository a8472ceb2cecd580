"""Every benchmark, one after another, each in a process of its own: a JVM that one has warmed up must not help the next.

At the end the page of claims is written anew from all results.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

ALL = (
    "write_throughput",
    "read_back",
    "read_scan",
    "tpch",
    "read_s3",
    "job_commit",
    "stream_sink",
    "commit",
    "contention",
    "joint_commits",
    "costs",
    "constraints",
    "plan",
    "gc",
    "row_changes",
    "row_shapes",
    "verify_deep",
    "exports",
    "loads",
    "lake",
    "long_life",
    "profile",
)


def main() -> int:
    """Run what was asked for; the number of benchmarks that failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run the benchmarks.")
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds: does it run, roughly how fast")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(ALL)} (default: all)")
    options = parser.parse_args()
    if unknown := set(options.names) - set(ALL):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    failed = 0
    for name in options.names or ALL:
        print(f"\n=== {name}", flush=True)
        words = [sys.executable, "-m", f"benchmarks.{name}", *(["--quick"] if options.quick else [])]
        failed += subprocess.run(words, check=False).returncode != 0
    if not options.quick:  # a first look is no result
        failed += subprocess.run([sys.executable, "-m", "benchmarks.page"], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
