"""When a store is proved, and what the table remembers of it. [ST7] [ST12]"""

import secrets
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kit.tables import Service

from manifestcommit.errors import UnsafeStoreError
from manifestcommit.format.object_names import PROBES, VERSIONS
from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.operations.alter import set_properties
from manifestcommit.store import Store, doctor
from manifestcommit.testing.faults import CountingStore

DATA = pa.table({"a": [1, 2, 3]})
CREATES = 2 * 32 + 7  # of one proof: two races and what is tried beside them; who proves twice sends them twice


class Overwriting(Service):
    """Accepts the condition and ignores it, as a versioned bucket of Ceph does."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.put(name, data)
        return True


def append(store: Store) -> int | None:
    job = Job(TableContext(store))
    job.write(DATA)
    outcome = job.commit()
    assert outcome.committed, outcome
    return outcome.version


def probes(store: CountingStore) -> int:
    return sum(call.kind == "put_if_absent" and call.name.startswith(PROBES) for call in store.calls)


def test_a_new_table_is_proved_once_and_remembers_where() -> None:
    """[ST12] [LY12]"""
    root = secrets.token_hex(8)
    store = CountingStore(Service(root))
    append(store)
    assert probes(store) == CREATES
    snapshot = TableContext(store).open().snapshot
    assert snapshot.version == 2 and snapshot.proven == (Service.name,)
    assert not [info.name for info in store.list(PROBES)], "the probes are gone"
    again = CountingStore(Service(root))
    append(again)
    assert probes(again) == 0


def test_a_table_that_was_moved_is_proved_again_where_it_lies_now() -> None:
    """A copy on another store is read at once; a commit there is a new promise. [ST12]"""
    root, copy = secrets.token_hex(8), secrets.token_hex(8)
    append(Service(root))
    moved = CountingStore(Moved(copy))
    for info in Service(root).list(""):
        moved.put(info.name, Service(root).get(info.name))
    assert TableContext(moved).open().version == 2 and probes(moved) == 0
    append(moved)
    assert probes(moved) == CREATES
    assert TableContext(moved).open().snapshot.proven == (Service.name, Moved.name)


def test_probes_are_no_part_of_the_table() -> None:
    """What a crash left of them is in nobody's way, before the table's first commit and later, and may be deleted at any time. [LY12]"""
    assert doctor.PROBES == PROBES, "the store's constant is the format's"
    store = Service(secrets.token_hex(8))
    left = f"{PROBES}{secrets.token_hex(16)}/race"
    store.put(left, b"x")
    append(store)
    snapshot = TableContext(store).open().snapshot
    assert store.get(left) == b"x", "and is not ours to delete"
    store.delete([info.name for info in store.list(PROBES)])
    append(store)
    assert (snapshot.version, TableContext(store).open().snapshot.version) == (2, 3)


class Moved(Service):
    name = "s3://other"


@pytest.mark.thorough
def test_the_last_eight_stores_are_remembered() -> None:
    """[ST12]"""
    root = secrets.token_hex(8)
    for number in range(12):
        store = Service(root)
        store.__class__ = type("Each", (Service,), {"name": f"s3://bucket-{number}"})
        append(store)
    assert TableContext(Service(root)).open().snapshot.proven == tuple(f"s3://bucket-{number}" for number in range(4, 12))


def written(store: Store) -> Iterable[str]:
    return [info.name for info in store.list("")]


def test_nothing_is_written_through_a_store_that_lets_two_win() -> None:
    """[ST7] [ST12]"""
    store = Overwriting(secrets.token_hex(8))
    with pytest.raises(UnsafeStoreError, match="lake at http"):
        append(store)
    assert written(store) == []


def test_a_table_that_was_moved_to_a_liar_is_read_and_not_written() -> None:
    """[ST7] [ST12]"""
    root = secrets.token_hex(8)
    append(Service(root))
    liar = Overwriting(root)
    liar.__class__ = type("Liar", (Overwriting,), {"name": "s3://elsewhere"})
    before = written(liar)
    assert TableContext(liar).open().version == 2
    job = Job(TableContext(liar))
    with pytest.raises(UnsafeStoreError, match="elsewhere"):
        job.write(DATA)
    session = TableContext(liar)
    session.open()
    with pytest.raises(UnsafeStoreError, match="elsewhere"):
        set_properties(session, {"owner": "me"})
    assert written(liar) == before


def test_a_local_table_needs_no_proof(tmp_path: Path) -> None:
    """[ST12]"""
    from manifestcommit.store.local import LocalStore

    store = CountingStore(LocalStore(str(tmp_path / "t")))
    append(store)
    assert probes(store) == 0 and TableContext(store).open().snapshot.proven == ()
    assert all("doctor" not in name for name in written(store)) and any(name.startswith(VERSIONS) for name in written(store))
