"""Rows deleted and merged while others commit, and while processes die at any call: all of it or nothing, and no row twice. [CF16] [RC1]"""

from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pytest
from tests.faults.row_changes import begin_delete, begin_id_update, begin_merge, begin_replacement, begin_update, begin_upsert, commit
from tests.kit.conflicts import BASE, OPS, WINNERS, Partition, State, after, attempt, fill
from tests.kit.conflicts import base as base
from tests.kit.faults import KEY, every_fault, full, small
from tests.kit.sizes import PROOF, SetBudgets, rounds
from tests.kit.tables import begin, check_head, check_table, clone, memory, read_ids, rollback, rows, session, write

import manifestcommit as mc
from manifestcommit.errors import CommitConflictError, ManifestCommitError
from manifestcommit.files.writer import check_rows
from manifestcommit.format import evolution, manifest_table
from manifestcommit.format.entries import MAX_SOURCES
from manifestcommit.log.version_chain import open_head
from manifestcommit.operations.alter import edit_schema
from manifestcommit.operations.compaction import drop_removed
from manifestcommit.rows.clauses import Clauses
from manifestcommit.rows.row_change import RowChange
from manifestcommit.scan import planning
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore

FIELD = pc.field


# --- crashes -------------------------------------------------------------------------------------------------------------
CLAUSES = Clauses(
    (mc.Delete(where="source.id = 1"), mc.Update(set={"id": "target.id + 1000"})), (mc.Insert(),), (mc.Delete(where="id = 2"),)
)


CHANGES: dict[str, Callable[[Store], RowChange]] = {
    "delete": lambda store: begin_delete(store, FIELD("id").isin([1, 5, 6, 100, 103]), KEY),
    "delete_days": lambda store: begin_delete(store, FIELD("day") == "b", KEY),
    "upsert": lambda store: begin_upsert(store, rows([1, 6, 77], day="a"), ["id"], KEY),
    "update": lambda store: begin_update(store, {"id": "id + 1000"}, "id IN (1, 5, 6)", KEY),
    "overwrite": lambda store: begin_replacement(store, rows([5, 5], day="a"), "id IN (1, 5, 6)", KEY),
    "merge": lambda store: begin_merge(store, rows([1, 6, 77], day="a").select(["id", "day"]), "id", CLAUSES, KEY),
}
DYING = [
    (small, "delete", 1), (full, "delete", 5), (full, "delete_days", 5), (small, "upsert", 3), (small, "update", 3), (full, "update", 7),
    (small, "overwrite", 3), (full, "overwrite", 7), (small, "merge", 5), (full, "merge", 11),
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize(("prepare", "publish", "step"), DYING)
def test_a_row_change_that_dies_anywhere_is_done_or_not_and_a_rerun_completes_it(
    prepare: Callable[[Store], Any], publish: str, step: int
) -> None:
    """[IV3] [RC1] [RC6] [RC7] [RC9] [RC10] [KY3]"""
    every_fault(prepare, lambda store: commit(CHANGES[publish](store)), memory, step=rounds(step, 1))


# --- beside others -------------------------------------------------------------------------------------------------------
# A condition, and the partitions that it has read: those in which it can be true.
DELETIONS: dict[str, tuple[Any, Callable[[int, Partition], bool]]] = {
    "day a": (FIELD("day") == "a", lambda _, where: where[0] == "a"),
    "day a, id 0": ((FIELD("day") == "a") & (FIELD("id") == 0), lambda _, where: where[0] == "a"),
    "day null": (FIELD("day").is_null(), lambda _, where: where[0] is None),
    "day empty or hour 2": ((FIELD("day") == "") | (FIELD("hour") == 2), lambda _, where: where[0] == "" or where[1] == 2),
    "day c, where nothing is": (FIELD("day") == "c", lambda _, where: where[0] == "c"),
    "id 2": (FIELD("id") == 2, lambda _, where: True),
}
GONE: dict[str, Callable[[int, Partition], bool]] = {"day a, id 0": lambda each, where: each == 0, "id 2": lambda each, where: each == 2}


# What takes the place of the rows of each condition: a row that matches it, too.
NEW: dict[str, tuple[int, Partition]] = {
    "day a": (500, ("a", 1)), "day a, id 0": (0, ("a", 7)), "day null": (500, (None, 1)), "day empty or hour 2": (500, ("new", 2)),
    "day c, where nothing is": (500, ("c", 1)), "id 2": (2, ("new", 9)),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("mine", DELETIONS)
@pytest.mark.parametrize("kind", ["delete", "update", "overwrite"])
def test_a_row_change_meets_a_winner(base: tuple[MemoryStore, bool], kind: str, mine: str, set_budgets: SetBudgets) -> None:
    """Who wrote into a partition that was read is a conflict, with files inlined and in manifests; all others commute: the table is as
    after the winner alone, or as after both in this order. [CF16] [CF6] [RC7] [RC10]"""
    if base[1]:
        set_budgets(inline_entry_bytes=0, inline_removed_bytes=0)
    wanted, has_read = DELETIONS[mine]
    goes = GONE.get(mine, has_read)
    for name in WINNERS if PROOF or kind == "delete" else WINNERS[base[1] :: 2]:  # usually in one of the two tables
        theirs = OPS[name]
        store = clone(base[0])
        before: State = frozenset(enumerate(BASE))
        raced = after(before, theirs, 200)
        new, (day, hour) = NEW[mine]
        change = {
            "delete": lambda store=store: begin_delete(store, wanted, "k"),
            "update": lambda store=store: begin_id_update(store, wanted, "k"),
            "overwrite": lambda store=store: begin_replacement(store, rows([new], day=day, hour=hour), wanted, "k"),  # noqa: B023
        }[kind]()
        with begin(store) as winner:
            fill(winner, theirs, 200, "blind")
        raised = attempt(lambda change=change: commit(change))  # type: ignore[misc]
        clash = any(has_read(0, where) for where in {*theirs.scope(), *theirs.writes})
        where = f"{kind} {mine} against {name}: {raised}"
        assert (raised is not None) == clash, where
        assert raised is None or raised.rule in ("read_partition_was_touched", "replaced_file_is_gone"), where
        left = sorted(each for each, at in raced if clash or not goes(each, at))
        if not clash and kind == "update":
            left = sorted([*left, *(each + 1000 for each, at in raced if goes(each, at))])
        elif not clash and kind == "overwrite":
            left = sorted([*left, new])
        assert read_ids(store) == left, where
        check_head(store)


@pytest.mark.parametrize("work", ["delete", "merge"])
def test_a_row_change_that_found_its_key_committed_asks_the_newest_head_when_it_commits(work: str) -> None:
    """Its work was undone meanwhile: told as committed, the rows would stay, or be missing, for ever. [KY8] [KY3]"""
    key = "x y%+=#'\"é🦆"
    store = memory()
    write(store, rows([1, 2]))
    before = open_head(store).version

    def make() -> RowChange:
        return begin_delete(store, FIELD("id") == 2, key) if work == "delete" else begin_upsert(store, rows([3]), ["id"], key)

    first = commit(make())
    again, undone = make(), make()
    assert again.already_committed and undone.already_committed
    told = commit(again)
    assert (told.kind, told.version) == ("already_committed", first.version)
    assert rollback(session(store), before, reason="x").dropped_keys == (key,)
    with pytest.raises(CommitConflictError) as refused:
        commit(undone)
    assert refused.value.rule == "key_is_gone" and read_ids(store) == [1, 2]
    assert commit(make()).kind == "committed"
    assert read_ids(store) == ([1] if work == "delete" else [1, 2, 3])


def test_columns_renamed_meanwhile_are_no_conflict_and_dropped_ones_are(store: MemoryStore) -> None:
    """Unless it only removes whole files, whatever their columns. [CF8] [RC1]"""
    for first, day in ((0, "a"), (4, "b"), (8, "c")):
        write(store, rows(range(first, first + 4), day=day, more="x"), partition_by=["day"])
    some, late = begin_delete(store, FIELD("id") == 2), begin_delete(store, (FIELD("day") == "c") & (FIELD("id") == 9))
    whole = begin_delete(store, FIELD("day") == "b")
    edit_schema(session(store), lambda schema, _: evolution.rename_column(schema, "more", "less"))
    assert commit(some).committed and read_ids(store) == [0, 1, 3, *range(4, 12)]
    edit_schema(session(store), lambda schema, by: evolution.drop_column(schema, "less", partition_by=by))
    with pytest.raises(CommitConflictError, check=lambda error: error.rule == "schema"):
        commit(late)
    assert commit(whole).committed and read_ids(store) == [0, 1, 3, *range(8, 12)]


def test_removing_files_out_of_manifests_is_recorded_by_their_partitions(set_budgets: SetBudgets) -> None:
    """As the whole table it would be in the way of everyone. [OB10] [CF6]"""
    set_budgets(inline_entry_bytes=0)
    store = memory()
    for day in "abc":
        write(store, rows([1, 2], day=day), partition_by=["day"])
    commit(begin_delete(store, (FIELD("day") == "a") & (FIELD("id") == 1)))
    snapshot = open_head(store).snapshot
    assert [each for touch in snapshot.commits[0].touched for each in touch.values()] == ["a"]


def test_manifests_from_which_files_were_removed_are_written_anew(set_budgets: SetBudgets) -> None:
    """Their bounds would go on to tell what was deleted; nothing else changes, and who is under way is not disturbed. [GC17] [GC11]"""
    set_budgets(inline_entry_bytes=0)
    store = memory()
    write(store, rows(range(3), day="a"), partition_by=["day"])
    for first in (3, 6):
        with begin(store) as job:
            for day in "abc":
                job.write(rows([first], day=f"{day}{first}"))
    commit(begin_delete(store, FIELD("day").isin(["a3", "b6", "c6"])))
    other = begin_delete(store, FIELD("id") == 1)
    table, each = read_ids(store), session(store)
    assert drop_removed(each) == 2 and drop_removed(each) == 0
    snapshot = each.open().snapshot
    assert read_ids(store) == table and not each.manifests.removed(snapshot)
    tables = [each.manifests.live(ref, snapshot, 0) for ref in snapshot.manifests]
    listed = [entry for table in tables for entry in manifest_table.from_table(table, snapshot, inherited=0)]
    assert len(listed) == 4 and not {"a3", "b6", "c6"} & {entry.partition[0] for entry in listed}
    assert all("a3" not in (*ref.lower, *ref.upper, ref.first_path, ref.last_path) for ref in snapshot.manifests)
    assert commit(other).committed
    check_table(store)


def test_a_file_of_many_ranges_still_names_them_after_a_delete(store: MemoryStore) -> None:
    """As many as compaction gives it. [RC5] [GC16] [OB8]"""
    ranges = {f"topic {number}": (0, 5) for number in range(MAX_SOURCES)}
    with begin(store) as job:
        job.write(rows(range(5)), sources=ranges)
    assert commit(begin_delete(store, FIELD("id") == 3)).committed
    each = session(store)
    (left,) = planning.entries_table(each, each.open().snapshot).to_pylist()
    assert left["rows"] == 4 and {found["source"] for found in left["sources"]} == ranges.keys()


def test_rows_that_went_missing_or_came_twice_are_one_error_for_all_that_write_files_anew(store: MemoryStore) -> None:
    """Who catches it for a deletion catches it for a compaction; only a deletion blames its condition, and none the caller. [RC1] [GC11]"""
    write(store, rows(range(4), day="a"))
    entries = planning.entries_table(session(store), open_head(store).snapshot)
    for what in (None, "the condition"):
        check_rows(entries, 3, 3, what=what)
        for written in (2, 4):
            with pytest.raises(ManifestCommitError, match=f"3 rows by the first look and {written} by the second") as caught:
                check_rows(entries, 3, written, what=what)
            assert type(caught.value) is ManifestCommitError and ("the condition" in str(caught.value)) == (what is not None)
            assert entries.column("path")[0].as_py() in str(caught.value)
