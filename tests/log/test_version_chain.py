"""Finding the head and older versions. What gc and stalled writers do to them: tests/faults/test_stalled.py. [RD1]-[RD5] [OB3] [OB4]"""

import time

import pytest
from tests.kit.tables import memory, put_version, read_ids, rows, write, write_each

from manifestcommit.errors import CorruptMetadataError, StoreError, UnsupportedFormatError
from manifestcommit.format import codec, object_names
from manifestcommit.log.version_chain import list_above, newest_above, open_head, read_version, walk_back
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import FaultCall, FaultStore


@pytest.fixture
def store() -> MemoryStore:
    """Version n has the ids 2 to n; there are seven."""
    made = memory()
    write_each(made, range(2, 8))
    return made


def test_the_head_is_the_highest_version(store: MemoryStore) -> None:
    """[RD1] [LY9]"""
    head = open_head(store)
    assert head.version == 7
    assert head.digest == codec.digest(store.get(object_names.version_name(7)))
    assert [list_above(store, start).versions for start in (0, 5, 8)] == [[1, 2, 3, 4, 5, 6, 7], [5, 6, 7], []]
    newest = newest_above(store, 3)
    assert newest is not None and newest.version == 7 and newest_above(store, 8) is None


def test_a_version_newer_than_the_head_that_one_holds_is_read(store: MemoryStore) -> None:
    """[RD4]"""
    old = open_head(store)
    write(store, rows([8]))
    assert read_version(store, old, 8).version == 8
    write(store, rows([9]))
    assert read_version(store, old, 8).version == 8


def test_a_hole_in_the_chain_is_told_never_read_as_something_else(store: MemoryStore) -> None:
    """[RD4] [OB4]"""
    store.delete([object_names.version_name(4)])
    head = open_head(store)
    with pytest.raises(CorruptMetadataError):
        read_version(store, head, 4)
    walk = walk_back(store, head)
    assert [next(walk).version for _ in range(3)] == [7, 6, 5]
    with pytest.raises(CorruptMetadataError):
        next(walk)


def test_walking_back_ends_at_the_oldest_readable_version(store: MemoryStore) -> None:
    """[RD3]"""
    put_version(store, open_head(store), fence=4, expired=3)
    assert [head.version for head in walk_back(store, open_head(store))] == [8, 7, 6, 5, 4, 3]


def test_walking_back_into_what_expires_meanwhile_ends_there(store: MemoryStore) -> None:
    """[RD3]"""
    walk = walk_back(store, open_head(store))
    assert [next(walk).version for _ in range(3)] == [7, 6, 5]
    put_version(store, open_head(store), fence=6, expired=6)
    store.delete([object_names.version_name(version) for version in range(1, 6)])
    assert list(walk) == []


@pytest.mark.parametrize("damage", [b"", b"x", b"garbage" * 100, None, "cut", "tail", "swapped"])
def test_a_damaged_head_is_an_error_that_names_it_never_an_older_or_empty_table(store: MemoryStore, damage: bytes | str | None) -> None:
    """[OB4]"""
    name = object_names.version_name(7)
    good = store.get(name)
    bodies = {None: b"\0" * len(good), "cut": good[:-1], "tail": good + b"\0", "swapped": store.get(object_names.version_name(6))}
    store.put(name, damage if isinstance(damage, bytes) else bodies[damage])
    with pytest.raises(CorruptMetadataError, check=lambda error: error.object_name == name and name in str(error)):
        open_head(store)
    with pytest.raises(CorruptMetadataError):
        write(store, rows([9]))
    assert len(list_above(store, 0).versions) == 7


def test_a_newer_format_is_refused_not_guessed(store: MemoryStore) -> None:
    """[OB3]"""
    raw = codec.decompress(store.get(object_names.version_name(7)), name="x").replace(b'"format_version":1', b'"format_version":3')
    store.put(object_names.version_name(7), codec.compress(raw))
    with pytest.raises(UnsupportedFormatError, match="3"):
        open_head(store)
    with pytest.raises(UnsupportedFormatError):
        write(store, rows([9]))


def test_a_newest_version_that_vanishes_for_ever_is_an_error(store: MemoryStore) -> None:
    """[RD1]"""

    def vanish(call: FaultCall) -> None:
        if call.kind == "get" and call.name.startswith(object_names.VERSIONS):
            raise FileNotFoundError(call.name)

    for look in (open_head, lambda wrapped: newest_above(wrapped, 1)):
        with pytest.raises(StoreError, match="vanished"):
            look(FaultStore(store, on_call=vanish))


def test_a_store_that_fails_is_no_missing_table(store: MemoryStore) -> None:
    """A failure taken for absence would start a second table over the first. [ST8] [RD1]"""
    calls = FaultStore(store)
    open_head(calls)
    for number in range(1, calls.count + 1):
        with pytest.raises(StoreError):
            open_head(FaultStore(store, {number: "refused"}))
        with pytest.raises(StoreError):
            write(FaultStore(store, {number: "refused"}), rows([9]))
    assert read_ids(store) == [2, 3, 4, 5, 6, 7]


def test_a_request_beside_one_that_fails_has_ended_when_the_call_does(store: MemoryStore) -> None:
    """[RD1]"""
    ended: list[FaultCall] = []

    def fail(call: FaultCall) -> None:
        if call.kind == "list":
            time.sleep(0.2)
            ended.append(call)
        elif call.name.startswith(object_names.VERSIONS):
            raise StoreError(call.name)

    calls = FaultStore(store, on_call=fail)
    calls.is_remote = True
    with pytest.raises(StoreError):
        open_head(calls)
    assert ended
