"""Every safeguard of the package that tests have to miss when it is gone."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutants.exports import EXPORTS
from tests.mutants.feed import FEED
from tests.mutants.gate import GATE
from tests.mutants.guards import GUARDS
from tests.mutants.joint import JOINT
from tests.mutants.mutant import Mutant
from tests.mutants.protocol import PROTOCOL

MUTANTS: Mapping[str, Mutant] = {each.name: each for each in (*PROTOCOL, *GUARDS, *EXPORTS, *FEED, *JOINT, *GATE)}
SIMULATED: Mapping[str, Mutant] = {name: each for name, each in MUTANTS.items() if each.theme}

assert len(MUTANTS) == len(PROTOCOL) + len(GUARDS) + len(EXPORTS) + len(FEED) + len(JOINT) + len(GATE), "two mutants have one name"
