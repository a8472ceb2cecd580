"""How fast `verify(deep=True)` reads a table's files, beside sha256 of the same bytes by as many threads as there are cores.

The files hold numbers that do not compress. Deep verification takes the digest of each file, then counts its rows, nulls and bounds from
the rows themselves; so there are two floors:

- `sha256 (floor)`: each file is read and hashed, nothing else: what `sha256sum` does, on all cores.
- `sha256 and decode (floor)`: and then decoded by pyarrow from the same bytes, one file a thread.

What these figures do not say: the files are in the kernel's cache.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report, rounds_of, work_folder

FIGURES = ["wall_s", "cpu_s"]
COLUMNS = 8
ROWS = 250_000  # of one file: 16 MB


def main() -> int:
    """One table, and every side in turns."""
    options = parser(__doc__)
    options.add_argument("--files", type=int, help="files of 16 MB (default: 32, quick: 8)")
    chosen = options.parse_args()
    files = chosen.files or (8 if chosen.quick else 32)
    with work_folder(chosen) as folder:
        root = folder / "table"
        numbers = np.random.default_rng(7)
        for _ in range(files):
            mc.write(pa.table({f"c{at}": numbers.random(ROWS) for at in range(COLUMNS)}), root)
        paths = sorted(root.glob("*.parquet"))
        assert len(paths) == files
        threads = os.cpu_count() or 1
        sides = [
            Contestant(name="verify --deep", run=lambda _: verified(root, files)),
            Contestant(name="sha256 (floor)", run=lambda _: by_threads(paths, threads, digest)),
            Contestant(name="sha256 and decode (floor)", run=lambda _: by_threads(paths, threads, digest_and_decode)),
        ]
        interleave(sides, rounds=rounds_of(chosen))
        mb = sum(path.stat().st_size for path in paths) // 10**6
        report("verify_deep", {"files": files, "mb": mb, "threads": threads}, sides, figures=FIGURES)
    return 0


def verified(root: Path, files: int) -> Figures | None:
    report = mc.Table(root).verify(deep=True)
    assert report.is_sound and report.files == files
    return None


def by_threads(paths: list[Path], threads: int, look: Callable[[Path], int]) -> Figures | None:
    with ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(look, paths))
    return None


def digest(path: Path) -> int:
    return len(hashlib.sha256(path.read_bytes()).digest())


def digest_and_decode(path: Path) -> int:
    data = path.read_bytes()
    hashlib.sha256(data).digest()
    return int(pq.read_table(pa.BufferReader(data), use_threads=False).num_rows)


if __name__ == "__main__":
    sys.exit(main())
