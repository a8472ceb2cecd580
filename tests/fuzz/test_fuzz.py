"""Hostile metadata never gets past the library's own errors. [OB4] [SE2]"""

from __future__ import annotations

import pytest

from manifestcommit.core import format
from tests.fuzz import run
from tests.fuzz.run import fuzz
from tests.fuzz.targets import HOSTILE_OBJECTS
from tests.sizes import rounds


@pytest.mark.parametrize("kind", sorted(HOSTILE_OBJECTS))
def test_hostile_objects_are_refused_by_name(kind: str) -> None:
    findings = {finding.place: (seed, finding.text) for seed in range(rounds(12, 2_000)) for finding in fuzz(seed, [kind])}
    assert not findings, "\n".join(f"seed {seed}: {text}" for seed, text in findings.values())


def test_a_reader_that_trusts_paths_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer sees what it is there for: without the check of a snapshot's rules hostile members get through."""
    monkeypatch.setattr(format, "_check", lambda *_: None)
    assert any(True for seed in range(300) for _ in fuzz(seed, ["head"]))
    assert run._table().store.get("_manifest/hint")
