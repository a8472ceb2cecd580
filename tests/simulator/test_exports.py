"""Jobs, gcs and exporters at once, killed and lied to: at every moment both exports show committed versions, whole. [EX1] [EX2] [EX4]"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.kit.sizes import rounds
from tests.simulator.exports import run_exports


@pytest.mark.thorough
@pytest.mark.timeout(3600)  # in `make proof`
def test_no_schedule_and_no_fault_breaks_an_export() -> None:
    """[EX1] [EX2] [EX4] [EX5]"""
    shown = Counter[str]()
    seeds = rounds(2, 2_000)
    for seed in range(seeds):
        run, reader = run_exports(seed)
        assert run.violation is None, f"seed {seed}: {run.violation}\n{run.trace}"
        reader.check_end()
        shown.update(reader.shown)
    assert min(shown["iceberg"], shown["delta"]) > 3 * seeds, shown
