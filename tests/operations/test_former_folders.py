"""Files that lie in the folders of partition columns which the table no longer has are its own: gc still deletes them. [GC5] [CF13]"""

from __future__ import annotations

import pytest
from tests.kit.tables import begin, check_head, memory, read_ids, rows, session, write

from manifestcommit.errors import CommitConflictError
from manifestcommit.log.version_chain import open_head
from manifestcommit.operations.gc import run as gc_run
from manifestcommit.operations.rollback import rollback
from manifestcommit.protocol.retention import Policy
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import FaultCall, FaultStore

AT_ONCE = Policy(grace_s=0.0, keep_for_s=0.0, prepared_grace_s=0.0)
BY_DAY = (("day é", "string"),)


def data_files(store: MemoryStore) -> list[str]:
    return sorted(info.name for info in store.list("") if not info.name.startswith("_manifest/"))


def without_columns() -> MemoryStore:
    """A table whose version 1 has no columns yet."""
    store = memory()
    with begin(store) as job:
        job.advance("s", 0, 1)
    assert open_head(store).snapshot.schema is None
    return store


def test_gc_deletes_what_lies_in_folders_from_before_a_rollback() -> None:
    """Back to a version without columns, and on with others: twice, and each former partitioning is kept once. [GC5] [CF13] [PT1]"""
    store = without_columns()
    for folders in ((), (BY_DAY,)):
        assert open_head(store).snapshot.former_folders == folders
        empty = open_head(store).version
        write(store, rows([1], **{"day é": "x"}), partition_by=["day é"])
        late = begin(store)
        late.write(rows([2], **{"day é": "y"}))
        rollback(session(store), empty, reason="é")
        assert open_head(store).snapshot.former_folders == (BY_DAY,)
        assert len(data_files(store)) == 2
        gc_run(session(store), AT_ONCE)
        report = gc_run(session(store), AT_ONCE)
        assert data_files(store) == [] and report.foreign.count == 0
    write(store, rows([3], n=5), partition_by=["n"])
    made = open_head(store).snapshot
    assert made.former_folders == (BY_DAY,) and made.partition_by != () and read_ids(store) == [3]
    check_head(store)


def test_a_copy_in_a_former_folder_stays_while_its_original_is_listed() -> None:
    """[GC5]"""
    store = without_columns()
    write(store, rows([1], **{"day é": "x"}), partition_by=["day é"])
    rollback(session(store), 1, reason="é")
    write(store, rows([2]))
    (original,) = [name for name in data_files(store) if "/" not in name]
    copy = f"day é=x/{original}"
    store.put(copy, store.get(original))
    gc_run(session(store), AT_ONCE)
    gc_run(session(store), AT_ONCE)
    assert data_files(store) == [original, copy] or data_files(store) == [copy, original]


def test_versions_that_do_not_change_the_partitioning_say_nothing_of_it() -> None:
    """[OB2]"""
    store = memory()
    write(store, rows([1], day="x"), partition_by=["day"])
    write(store, rows([2], day="y", more=1), merge_schema=True)
    rollback(session(store), 2, reason="é")
    rollback(session(store), 1, reason="é")
    assert open_head(store).snapshot.former_folders == ()


def test_a_first_write_whose_columns_a_rollback_takes_back_at_once_is_told_so() -> None:
    """[CF8] [CF13]"""
    store = without_columns()
    done = False

    def back(call: FaultCall) -> None:
        nonlocal done
        if not done and open_head(store).snapshot.schema is not None:
            done = True
            rollback(session(store), 1, reason="é")

    late = begin(FaultStore(store, on_call=back))
    with pytest.raises(CommitConflictError, match="took them back") as caught:
        late.write(rows([1], day="x"), partition_by=["day"])
    assert done and caught.value.rule == "schema"
    write(store, rows([2], day="x"), partition_by=["day"])
    assert read_ids(store) == [2]
