"""Tags over several tables: versions that belong together, in all of the tables or in none. [MT12] [GC10]"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.commits.tables import Lake, sound

import manifestcommit as mc
from manifestcommit.commits.joint_commit import commit_jointly
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import read_version
from manifestcommit.operations.rollback import tag_jointly
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore, FaultStore


def tagged(lake: Lake, name: str) -> list[int]:
    """How often the source has moved in the tagged version of each table."""
    found = []
    for url in lake.urls:
        head = lake.at(url).open()
        version = head.snapshot.tags[name].version
        found.append(int(read_version(open_store(url), head, version).snapshot.watermarks.get("s") or 0))
    return found


def test_all_tables_get_the_tag_by_one_commit() -> None:
    """[MT12] [GC10] [CM11]"""
    lake = Lake(3)
    commit_jointly(lake.parts())
    stores = [CountingStore(open_store(url)) for url in lake.urls]
    sessions = [TableContext(store, lake.env) for store in stores]
    assert [each.version for each in tag_jointly(sessions, "q1 é", keep_for=None)] == [3, 3, 3]
    assert tagged(lake, "q1 é") == [1, 1, 1]
    assert Counter(call.kind for store in stores for call in store.calls) == {"get": 6, "list": 6, "put_if_absent": 3, "put": 3}
    assert len(lake.head(0).snapshot.joint) == 2
    sound(lake)


def test_what_is_tagged_belongs_together_whatever_is_committed_meanwhile() -> None:
    """A joint commit between the two reads is in both tagged versions, or in none. [MT12]"""
    for first in (0, 1):
        lake = Lake(2)
        commit_jointly(lake.parts())
        lists: list[Any] = []

        def overtake(call: Any, lake: Lake = lake, lists: list[Any] = lists) -> None:
            lists.append(call)
            if len(lists) == 1:
                commit_jointly(lake.parts())

        order = [first, 1 - first]
        stores = [open_store(lake.urls[order[0]]), FaultStore(open_store(lake.urls[order[1]]), on_call=overtake)]
        outcomes = tag_jointly([TableContext(store, lake.env) for store in stores], "q1", keep_for="30d")
        assert all(each.committed for each in outcomes) and lists
        assert tagged(lake, "q1") in ([1, 1], [2, 2])


def test_tags_through_the_public_call(tmp_path: Path) -> None:
    """Moved in all of them; wrong arguments write nothing. [MT12] [GC10]"""
    day = pa.table({"id": [1, 2]})
    paths = [str(tmp_path / name) for name in ("orders %+=#é", "rejects")]
    for path in paths:
        mc.write(day, path)
    mc.tag_together(paths, "now", message="m")
    with mc.transaction(paths) as tx:
        for name in tx:
            tx[name].write(day)
    assert [mc.Table(path).to_arrow(tag="now").num_rows for path in paths] == [2, 2]
    outcome = mc.tag_together([mc.Table(path) for path in paths], "now", "1h")
    assert len(outcome.versions) == 2 and [mc.Table(path).to_arrow(tag="now").num_rows for path in paths] == [4, 4]
    before = [mc.Table(path).version for path in paths]
    for wrong in (lambda: mc.tag_together(paths, ""), lambda: mc.tag_together(paths[:1], "x"), lambda: mc.tag_together(paths, "x", "-1d")):
        with pytest.raises(mc.errors.UsageError):
            wrong()
    assert [mc.Table(path).version for path in paths] == before
