"""A state machine as two tests: a few histories in `make test`, many in the thorough half."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine
from tests.kit.sizes import rounds


def in_two_lengths(machine: type[RuleBasedStateMachine], *, steps: int, quick: int, usual: int, proof: int) -> tuple[Any, Any]:
    """The test of `quick` histories of so many steps, and that of `usual` ones, `proof` in `make proof`."""

    class AtLength(machine):  # type: ignore[misc,valid-type]
        pass

    at_length = settings(
        max_examples=rounds(usual, proof),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    short, long = machine.TestCase, AtLength.TestCase
    short.settings, long.settings = settings(at_length, max_examples=quick), at_length
    return short, pytest.mark.timeout(rounds(600, 3 * 3600))(pytest.mark.thorough(long))
