"""Every safeguard of the package that tests have to miss when it is gone: the tables of this folder, one for each subject."""

from collections.abc import Mapping
from pathlib import Path

from tests.mutants.mutant import Mutant, read_table

_LISTED = [each for path in sorted(Path(__file__).parent.glob("*.txt")) for each in read_table(path.read_text("utf-8"))]
MUTANTS: Mapping[str, Mutant] = {each.name: each for each in _LISTED}
SIMULATED: Mapping[str, Mutant] = {name: each for name, each in MUTANTS.items() if each.theme}

assert len(MUTANTS) == len(_LISTED), "two mutants have one name"
