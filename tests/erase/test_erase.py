"""Rows that are to be gone for good: what holds them is found, and goes, whatever stops the call. [ER1] [ER2] [ER3] [ER4]"""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from tests.erase.world import ADA, KINDS, base, jobs, people, telling
from tests.kit.sizes import SetBudgets

import manifestcommit as mc

_NUMBERS = itertools.count()


@pytest.fixture(params=["memory", "local"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://erase{next(_NUMBERS)}/table" if request.param == "memory" else str(tmp_path / "table")


def until_done(table: mc.Table, where: str, **options: object) -> mc.Erasure:
    """Call it until it is done, a few times at most."""
    for _ in range(4):
        found = table.erase(where, reason="request 17", grace="0s", drop_tags=True, abort_jobs=True, **options)
        if found.state == "done":
            return found
    raise AssertionError(found.waiting)


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_every_object_that_tells_of_her_is_found_and_goes(url: str, name: str, spilled: bool, set_budgets: SetBudgets) -> None:
    """By a reader that knows nothing of tables; what is found besides is metadata of files with her. [ER1] [ER2]"""
    if spilled:
        set_budgets(inline_entry_bytes=0, inline_keys=1)
    kind = KINDS[name]
    table = base(url, kind)
    left = jobs(url, kind)
    rest = [row for row in people(table) if ADA not in row]

    held = table.holders(kind.where).to_pylist()
    names = {row["name"] for row in held}
    assert telling(table.url) <= names, telling(table.url) - names
    assert {"data file", "version", "tag", "job", "job object", "export"} <= {row["kind"] for row in held}
    assert sum(row["rows"] or 0 for row in held if row["why"] == "the newest version lists it") == 3
    assert ("manifest" in {row["kind"] for row in held}) == spilled

    done = until_done(table, kind.where)
    assert telling(table.url) == set()
    assert done.waiting == () and done.at is not None and done.version is not None
    assert people(table) == rest
    assert list(table.snapshot().tags) == ["before"] and len(table.to_arrow(tag="before")) == 2
    assert table.verify(deep=True).is_sound
    assert table.erasure("request 17") == msgspec.structs.replace(done, rows=None)
    assert set(table.metrics().export_lag.values()) == {0}
    for job in left:
        with pytest.raises(mc.errors.ManifestCommitError):
            job.commit()
    assert people(table) == rest
