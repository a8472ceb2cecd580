"""Names for versions: they read what they name, keep it readable, and hold only where it still is. [GC10] [RD5] [CF12]"""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from tests.kit.tables import check_table, clone, memory, put_version, rows, session, write

import manifestcommit as mc
from manifestcommit.errors import SnapshotExpiredError, UsageError, VersionNotFoundError
from manifestcommit.format.snapshot import Tag
from manifestcommit.log.version_chain import choose_version, open_head, read_version
from manifestcommit.operations.rollback import tag, untag
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore, FaultCall, FaultStore

NAME = 'end of month %=+#\'é🦆 / "2013"'


@pytest.fixture
def store() -> MemoryStore:
    """Ten rows per version, at versions 2 to 4."""
    made = memory()
    for start in (0, 10, 20):
        write(made, rows(range(start, start + 10)), key=f"{start}", watermarks={"s": (start, start + 10)})
    return made


def tags(store: Store) -> dict[str, Tag]:
    return open_head(store).snapshot.tags


def test_a_tag_is_a_commit_that_changes_nothing_else(store: MemoryStore) -> None:
    """[GC10] [WM4] [CM9]"""
    before = open_head(store).snapshot
    outcome = tag(session(store), NAME, 2)
    made = open_head(store).snapshot
    assert (outcome.kind, outcome.version) == ("committed", 5) and made.tags == {NAME: Tag(version=2)}
    assert made.commits[0].operation == "tag" and made.commits[0].touched == ()
    for name in ("schema", "added", "manifests", "totals", "watermarks", "origins", "keys", "fence", "expired", "properties"):
        assert getattr(made, name) == getattr(before, name), name
    assert tag(session(store), "the head").committed and tags(store) == {NAME: Tag(version=2), "the head": Tag(version=5)}
    outcome = untag(session(store), NAME)
    assert tags(store) == {"the head": Tag(version=5)} and open_head(store).snapshot.commits[0].operation == "untag"
    check_table(store)


def test_a_tag_of_that_name_moves(store: MemoryStore) -> None:
    """[GC10]"""
    tag(session(store), NAME, 2, keep_for="7d")
    tag(session(store), NAME, 3)
    assert tags(store) == {NAME: Tag(version=3)}


@pytest.mark.parametrize(("age", "seconds"), [("7d", 604_800), ("90m", 5400), (dt.timedelta(hours=1, microseconds=5), 3600.000005)])
def test_a_tag_can_have_an_end(store: MemoryStore, age: Any, seconds: float) -> None:
    """[GC10]"""
    own = session(store)
    now = own.env.now_us()
    tag(own, NAME, 2, keep_for=age)
    until = tags(store)[NAME].until
    assert until is not None and 0 <= until - now - round(seconds * 1e6) < 60_000_000


def test_every_reader_reads_by_it(tmp_path: Path) -> None:
    """[RD5]"""
    table = mc.Table(tmp_path / "t")
    for number in range(3):
        mc.write(rows([number]), table.url)
    assert table.tag(NAME, 3).version == 5
    assert table.snapshot(tag=NAME).version == 3 and table.files(tag=NAME).num_rows == 2
    assert sorted(table.dataset(tag=NAME).to_table().column("id").to_pylist()) == [0, 1]
    assert table.describe()["tags"] == {NAME: {"version": 3, "until": None}}
    with pytest.raises(VersionNotFoundError, match="no tag 'other'"):
        table.snapshot(tag="other")
    table.untag(NAME)
    with pytest.raises(VersionNotFoundError):
        table.snapshot(tag=NAME)


def test_an_expired_version_reads_as_long_as_a_tag_names_it_also_past_its_end(store: MemoryStore) -> None:
    """Until gc has taken the tag, nothing that it reaches is gone. [RD3] [RD5] [GC10]"""
    put_version(store, open_head(store), fence=4, expired=4, tags={NAME: Tag(version=2, until=1)})
    own = session(store)
    assert read_tag(own, NAME) == 2
    with pytest.raises(SnapshotExpiredError, match="oldest readable version is 4, beside 2 by a tag"):
        tag(own, "another", 3)
    with pytest.raises(VersionNotFoundError, match=r"it has 4 to [0-9]+, beside 2 by a tag"):
        tag(own, "another", 99)
    assert tag(own, "another", 2).committed, "readable by the first"
    assert tag(own, NAME, 2, keep_for="7d").committed, "a longer life"
    untag(own, NAME)
    untag(own, "another")
    with pytest.raises(SnapshotExpiredError):
        tag(own, NAME, 2)


def read_tag(own: Any, name: str) -> int:
    head = own.open()
    chosen = choose_version(own.store, head, version=None, as_of=None, tag=name)
    assert chosen is not None
    return read_version(own.store, head, chosen).version


@pytest.mark.parametrize("name", ["", "a\nb", "\x00", "\x1b[1m", "\x85", "\ud800", None, 5, b"x"])
def test_a_name_that_is_none_is_refused(store: MemoryStore, name: Any) -> None:
    """[GC10] [SE2]"""
    with pytest.raises(UsageError, match="name"):
        tag(session(store), name)
    if not isinstance(name, str):
        with pytest.raises(UsageError, match="name"):
            untag(session(store), name)
    assert open_head(store).version == 4


@pytest.mark.parametrize("age", ["", "7", "7 days", "-1d", "0d", dt.timedelta(0), dt.timedelta(days=-1), 7, "9999999d", "9" * 400 + "d"])
def test_an_end_that_is_none_is_refused(store: MemoryStore, age: Any) -> None:
    """[GC10]"""
    with pytest.raises(UsageError, match="keep_for"):
        tag(session(store), NAME, keep_for=age)
    assert open_head(store).version == 4


@pytest.mark.parametrize("version", [0, -1, 5, True, "2", 2.0])
def test_a_version_that_is_none_is_refused(store: MemoryStore, version: Any) -> None:
    """[RD4]"""
    with pytest.raises((UsageError, VersionNotFoundError)):
        tag(session(store), NAME, version)
    with pytest.raises(VersionNotFoundError, match="no tag"):
        untag(session(store), NAME)
    assert open_head(store).version == 4


def test_a_version_that_expires_before_the_create_is_not_tagged(store: MemoryStore) -> None:
    """gc may have deleted already what it reaches. [CF12] [GC10]"""
    healthy = FaultStore(clone(store))
    tag(session(healthy), NAME, 2)
    create = next(call.number for call in healthy.calls if call.kind == "put_if_absent" and call.name.startswith("_manifest/versions"))
    told = []
    for number in range(1, create + 1):
        inner = clone(store)

        def between(call: FaultCall, number: int = number, inner: Store = inner) -> None:
            if call.number == number:
                put_version(inner, open_head(inner), fence=4, expired=4)

        try:
            outcome = tag(session(FaultStore(inner, on_call=between)), NAME, 2)
        except SnapshotExpiredError:
            told.append("expired")
        else:
            assert outcome.conflict is not None and outcome.conflict.rule == "tagged_version_is_gone"
            told.append("conflict")
        assert tags(inner) == {}
    assert "conflict" in told and "expired" in told


def test_a_tag_costs_a_commit_and_a_look_at_its_version(store: MemoryStore) -> None:
    """[IV10]"""
    calls = CountingStore(store)
    tag(session(calls), NAME)
    assert sum(calls.requests().values()) == 3 + 3
    calls.reset()
    tag(session(calls), NAME, 2)
    assert sum(calls.requests().values()) == 3 + 2 + 3
