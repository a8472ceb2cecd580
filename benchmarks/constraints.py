"""What a constraint costs a write: `mc.write` of the same rows into a table with one, with several, and without any.

The floor is the table without constraints. Rows are numbers and codes, one row group after another, as a pipeline has them in memory.

What these figures do not say: what a constraint costs that has to be proven on a table that is there (`tests/gate/test_costs.py` counts the
files that are read for that).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report, rounds_of, work_folder

FIGURES = ["wall_s", "cpu_s"]
ONE = {"bounded": "amount >= 0 AND amount < 100000"}
SEVERAL = {**ONE, "known": "id IS NOT NULL", "counted": "quantity BETWEEN 0 AND 1000", "coded": "code <> ''"}


def main() -> int:
    """Every side in turns."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, help="how many (default: 10,000,000, quick: 1,000,000)")
    chosen = options.parse_args()
    count = chosen.rows or (1_000_000 if chosen.quick else 10_000_000)
    rows = made(count)
    with work_folder(chosen) as folder:
        sides = [
            Contestant(name="one constraint", run=lambda _: written(folder / "one", rows, ONE)),
            Contestant(name="four constraints", run=lambda _: written(folder / "several", rows, SEVERAL)),
            Contestant(name="no constraint (floor)", run=lambda _: written(folder / "none", rows, {})),
        ]
        interleave(sides, rounds=rounds_of(chosen))
        report("constraints", {"rows": count}, sides, figures=FIGURES)
    return 0


def made(count: int) -> pa.Table:
    numbers = np.random.default_rng(7)
    codes = pa.array([f"code {at}" for at in range(1000)])
    return pa.table(
        {
            "id": np.arange(count),
            "amount": numbers.random(count) * 1000,
            "quantity": numbers.integers(0, 100, count),
            "code": codes.take(pa.array(numbers.integers(0, 1000, count))),
        }
    )


def written(root: Path, rows: pa.Table, constraints: Mapping[str, str]) -> Figures | None:
    shutil.rmtree(root, ignore_errors=True)
    mc.create_table(root, rows.schema, constraints=dict(constraints))
    assert mc.write(rows, root).version == 2
    return None


if __name__ == "__main__":
    sys.exit(main())
