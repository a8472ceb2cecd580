"""Each rule alone, as a table of cases. The rules together, against brute force: tests/stateful/test_conflict_matrix.py. [CF1]-[CF10]"""

from typing import Any

import msgspec
import pytest

from manifestcommit.format.change import Advance, Change, Inputs, InterveningCommit, Overwrite, RemovedRows, Rollback, TagEdit, Write
from manifestcommit.format.entries import Entry
from manifestcommit.format.evolution import SchemaEdit, add_column, drop_column, rename_column, widen_column
from manifestcommit.format.fields import NO_COLUMNS, ArrayType, Field, MapType, Schema
from manifestcommit.format.snapshot import Commit, Snapshot, Tag, Totals
from manifestcommit.protocol import conflict
from manifestcommit.protocol.apply import create
from manifestcommit.protocol.conflict import find_conflict, needs_winners

SCHEMA = Schema(fields=(Field(id=1, name="day", type="string"), Field(id=2, name="n", type="short"), Field(id=3, name="x", type="float")))


def head(schema: Schema | None = SCHEMA, partition_by: tuple[int, ...] = (1,), **changes: Any) -> Snapshot:
    made = create(table_id="0" * 16, job="j", commit_id="c", schema=schema, partition_by=partition_by, properties={}, now_us=0, writer="w")
    return msgspec.structs.replace(made, **changes)


def change(**given: Any) -> Write:
    return Write(**({"job": "mine", "birth": 1, "operation": "append", "schema": SCHEMA, "partition_by": (1,)} | given))


def won(*touched: dict[int, Any], version: int = 2) -> InterveningCommit:
    return InterveningCommit(
        snapshot=msgspec.structs.replace(head(), version=version),
        commit=Commit(job="theirs", commit_id="theirs.1", operation="append", touched=touched),
    )


def rule(
    made: Change, winners: list[InterveningCommit] | None = None, *, at: Snapshot | None = None, found: Inputs | None = None
) -> str | None:
    clash = find_conflict(at or head(), made, msgspec.structs.replace(found or Inputs(), winners=tuple(winners or ())))
    return None if clash is None else clash.rule


def overwrite(*scope: dict[int, Any], choice: str = "serializable") -> Change:
    return change(operation="overwrite", overwrite=Overwrite(scope=scope, conflict=choice))  # type: ignore[arg-type]


def test_a_first_write_clashes_with_everything_but_the_trace_of_another_one() -> None:
    """[CF18]"""
    first = change(first=True)
    assert rule(first, at=head(provisional=True)) is None
    assert rule(first, at=head()) == rule(first, at=head(schema=NO_COLUMNS, partition_by=(), provisional=True)) == "table_exists"
    assert rule(change(), at=head()) is None


def test_first_columns_take_the_place_of_those_that_no_commit_has_used() -> None:
    """Whoever made the table is no better than others who write first; after one commit its columns stay. [CM13] [CF8]"""
    other = change(operation="schema", initial=Schema(fields=(Field(id=9, name="other", type="long"),)), partition_by=())
    assert rule(other, at=head(provisional=True)) == rule(other, at=head(schema=NO_COLUMNS, partition_by=())) is None
    assert rule(other, at=head()) == "schema"


@pytest.mark.parametrize(
    ("scope", "touched", "clashes"),
    [
        ({1: "a"}, {1: "a"}, True), ({1: "a"}, {1: "b"}, False), ({1: None}, {1: ""}, False), ({1: None}, {1: None}, True),
        ({}, {1: "a"}, True), ({1: "a"}, {}, True), ({}, {}, True),
    ],
)  # fmt: skip
def test_a_serializable_overwrite_clashes_with_a_touched_partition(scope: dict[int, Any], touched: dict[int, Any], clashes: bool) -> None:
    """[CF3] [CF6]"""
    assert rule(overwrite(scope), [won({1: "zzz"}), won(touched)]) == ("partition_was_touched" if clashes else None)
    assert rule(overwrite(scope, choice="blind"), [won(touched)]) is None
    assert rule(overwrite(scope), [won()]) is None, "a commit without rows touched nothing"


def test_a_conflict_names_the_partition_the_winner_and_its_version() -> None:
    """[CF1]"""
    clash = find_conflict(head(), overwrite({1: "2013-01-01"}), Inputs(winners=(won({1: "x"}), won({1: "2013-01-01"}, version=41))))
    assert "day=2013-01-01" in clash.mine and "41" in clash.winner and "theirs" in clash.winner
    whole = find_conflict(head(), overwrite({}), Inputs(winners=(won({}),)))
    assert whole is not None and "the whole table" in whole.mine


def test_an_append_needs_no_winners_and_meets_none() -> None:
    """[CF2] [CM12]"""
    assert not needs_winners(change()) and rule(change(touched=({1: "a"},)), [won({1: "a"}), won({})]) is None
    assert (
        needs_winners(overwrite({}))
        and not needs_winners(overwrite({}, choice="blind"))
        and not needs_winners(overwrite({}, choice="fail"))
    )


def test_a_failing_overwrite_clashes_with_anything_that_is_there() -> None:
    """[CF5]"""
    filled = head(added=(Entry(path="p", partition=("a",), rows=0, bytes=1, job="j"),))
    for scope, expected in (({1: "a"}, "partition_is_filled"), ({1: "b"}, None), ({}, "partition_is_filled"), ({1: None}, None)):
        assert rule(overwrite(scope, choice="fail"), at=filled) == expected
        assert rule(overwrite(scope), at=filled) is None
    taken = Inputs(taken={"m": RemovedRows(bitmap=1, totals=Totals(files=1, rows=0, bytes=0))})
    assert rule(overwrite({1: "b"}, choice="fail"), found=taken) == "partition_is_filled"


@pytest.mark.parametrize(
    ("reads", "touched", "clashes"),
    [
        ({1: "a"}, {1: "a"}, True), ({1: "a"}, {1: "b"}, False), ({1: None}, {1: ""}, False), ({}, {1: "b"}, True), ({1: "a"}, {}, True),
    ],
)  # fmt: skip
def test_who_has_read_a_partition_clashes_with_who_wrote_there(reads: dict[int, Any], touched: dict[int, Any], clashes: bool) -> None:
    """Rows that came meanwhile were not looked at: the deletion, or the update, would miss them. [CF16]"""
    mine = change(operation="delete", reads=(reads,))
    assert needs_winners(mine)
    for operation in ("append", "overwrite", "delete", "merge", "rollback", "an operation of a later release"):
        winner = InterveningCommit(
            snapshot=msgspec.structs.replace(head(), version=41),
            commit=Commit(job="theirs", commit_id="theirs.1", operation=operation, touched=(touched,)),
        )
        assert rule(mine, [won({1: "zzz"}) if reads else won(), winner]) == ("read_partition_was_touched" if clashes else None)
    clash = find_conflict(head(), mine, Inputs(winners=(winner,)))
    assert clash is None or ("delete" in clash.mine and "version 41" in clash.winner)
    assert rule(mine, [won()]) is None, "a commit without rows touched nothing"


def test_compaction_beside_a_deletion_is_no_conflict_but_for_the_files_of_both() -> None:
    """It changes no row. [CF16] [CF7]"""
    mine = change(operation="delete", reads=({},), remove=frozenset({"p"}))
    compacted = InterveningCommit(snapshot=head(), commit=Commit(job="theirs", commit_id="c", operation="replace", touched=({1: "a"},)))
    assert rule(mine, [compacted]) is None
    assert rule(mine, [compacted], found=Inputs(gone=frozenset({"p"}))) == "replaced_file_is_gone"


def test_live_and_gone_paths_clash() -> None:
    """[CF7] [CF10]"""
    assert rule(change(), found=Inputs(live=frozenset({"p"}))) == "path_is_live"
    assert rule(change(operation="replace"), found=Inputs(gone=frozenset({"p"}))) == "replaced_file_is_gone"


def test_other_partitioning_clashes() -> None:
    """[CF9]"""
    assert rule(change(partition_by=())) == rule(change(partition_by=(2,))) == rule(change(partition_by=(1, 2))) == "partitioning"
    assert rule(change(partition_by=None)) is None
    assert rule(change(partition_by=(2,)), at=head(schema=NO_COLUMNS, partition_by=())) == "schema", "files without any column"


def test_watermarks_come_first() -> None:
    """What a rerun must hear is that its ranges are covered, not that a partition was touched. [WM2]"""
    at = head(watermarks={"s": 5}, origins={"s": 0})
    made = msgspec.structs.replace(overwrite({}), advances=(Advance(source="s", start=0, end=5),))
    clash = find_conflict(at, made, Inputs(winners=(won({}),)))
    assert clash is not None and clash.rule == "watermark_overlap" and clash.mismatch is not None and clash.mismatch.all_covered


def ids(start: int) -> Any:
    return iter(range(start, 10_000)).__next__


def edited(*edits: tuple[SchemaEdit, ...], base: Schema = SCHEMA) -> Schema:
    from manifestcommit.format.evolution import apply_edits

    for each in edits:
        base = apply_edits(base, each)
    return base


ADD_Y = add_column(SCHEMA, "y", "long", new_id=ids(100))
ADD_Y_TOO = add_column(SCHEMA, "y", "long", new_id=ids(200))
ADD_Y_UPPER = add_column(SCHEMA, "Y", "string", new_id=ids(300))
ADD_Z = add_column(SCHEMA, "z", "string", new_id=ids(400))
WIDEN_INT = widen_column(SCHEMA, "n", "integer")
WIDEN_LONG = widen_column(SCHEMA, "n", "long")
WIDEN_X = widen_column(SCHEMA, "x", "double")
DROP_N = drop_column(SCHEMA, "n")
DROP_X = drop_column(SCHEMA, "x")
RENAME_N = rename_column(SCHEMA, "n", "m")
RENAME_N_TO_Y = rename_column(SCHEMA, "n", "y")


@pytest.mark.parametrize(
    ("mine", "theirs", "commutes"),
    [
        (ADD_Y, ADD_Z, True), (ADD_Y, ADD_Y_TOO, False), (ADD_Y, ADD_Y_UPPER, False), (ADD_Y, ADD_Y, True),
        (WIDEN_LONG, WIDEN_LONG, True), (WIDEN_LONG, WIDEN_INT, False), (WIDEN_INT, WIDEN_LONG, False), (WIDEN_LONG, WIDEN_X, True),
        (WIDEN_LONG, DROP_N, False), (DROP_N, DROP_X, True), (DROP_N, DROP_N, False), (DROP_X, WIDEN_LONG, True),
        (RENAME_N, WIDEN_LONG, True), (RENAME_N, DROP_N, False), (RENAME_N_TO_Y, ADD_Y, False), (ADD_Y, RENAME_N_TO_Y, False),
        (RENAME_N, RENAME_N_TO_Y, False), (RENAME_N, RENAME_N, True), (ADD_Y, DROP_N, True),
    ],
)  # fmt: skip
def test_schema_changes_commute_or_clash(mine: tuple[SchemaEdit, ...], theirs: tuple[SchemaEdit, ...], commutes: bool) -> None:
    """[CF8] [SC5] [SC6]"""
    made = change(operation="schema", edits=mine, schema=None)
    assert rule(made, at=head(schema=edited(theirs))) == (None if commutes else "schema")


@pytest.mark.parametrize(("theirs", "fits"), [(ADD_Y, True), (WIDEN_LONG, True), (RENAME_N, True), (DROP_N, False), (DROP_X, False)])
def test_data_written_under_the_schema_at_birth_fits_or_clashes(theirs: tuple[SchemaEdit, ...], fits: bool) -> None:
    """A file with a dropped column's values would show them under its next bearer's name. [CF8] [SC6]"""
    assert rule(change(), at=head(schema=edited(theirs))) == (None if fits else "schema")


def test_a_column_dropped_and_added_again_is_another_column() -> None:
    """[CF8] [SC6]"""
    dropped = edited(DROP_N)
    again = edited(add_column(dropped, "n", "short", new_id=ids(500)), base=dropped)
    assert [field.name for field in again.fields] == ["day", "x", "n"]
    assert rule(change(), at=head(schema=again)) == "schema"


@pytest.mark.parametrize(("there", "clashes"), [("short", False), ("integer", False), ("long", False), ("byte", True), ("string", True)])
def test_files_of_a_type_that_the_column_no_longer_holds_clash(there: str, clashes: bool) -> None:
    """A column only ever widens, but for a rollback; inside arrays and maps as well. [CF8] [CF13]"""

    def schema(kind: Any, nullable: bool = True) -> Schema:
        deep = MapType(key=Field(id=8, name="key", type="string", nullable=False), value=Field(id=9, name="value", type=kind))
        element = ArrayType(element=Field(id=6, name="element", type=deep))
        return Schema(fields=(Field(id=1, name="day", type="string"), Field(id=5, name="deep", type=element, nullable=nullable)))

    written = change(schema=schema("short"))
    assert rule(written, at=head(schema=schema(there))) == ("schema" if clashes else None)
    assert rule(written, at=head(schema=schema("short", nullable=False))) == "schema"
    assert rule(change(schema=schema("short", nullable=False)), at=head(schema=schema("short"))) is None


def test_nothing_fits_a_table_that_has_no_columns_any_more() -> None:
    """[CF8] [CF13]"""
    bare = head(schema=NO_COLUMNS, partition_by=())
    assert rule(change(partition_by=()), at=bare) == rule(change(schema=None, edits=DROP_N), at=bare) == "schema"
    assert rule(change(schema=None, partition_by=None), at=bare) is None


def test_a_version_that_is_no_longer_readable_cannot_be_tagged() -> None:
    """[CF12]"""
    at = head(version=9, expired=5, fence=6, tags={"kept": Tag(version=2)})
    for version, expected in ((4, "tagged_version_is_gone"), (5, None), (9, None), (10, "tagged_version_is_gone"), (2, None), (None, None)):
        assert rule(TagEdit(job="mine", birth=1, operation="tag", name="t", version=version), at=at) == expected


def test_a_rollback_clashes_with_any_winner_and_where_its_target_is_gone() -> None:
    """[CF13]"""
    at = head(version=9, expired=5, fence=6, tags={"kept": Tag(version=2)})
    for birth, target, expected in ((9, 5, None), (9, 2, None), (9, 4, "rolled_back_over"), (8, 5, "rolled_back_over")):
        assert rule(Rollback(job="mine", birth=birth, target=head(version=target)), at=at) == expected


def test_a_second_first_schema_clashes() -> None:
    """[CF8]"""
    assert rule(change(operation="schema", initial=SCHEMA, schema=None)) == "schema"
    assert rule(change(operation="schema", initial=SCHEMA, schema=None), at=head(schema=NO_COLUMNS, partition_by=())) is None


def test_every_rule_of_the_module_is_in_the_list() -> None:
    """A rule that nobody asks protects nobody. [CF1]"""

    def is_rule(function: Any) -> bool:
        return (
            callable(function)
            and getattr(function, "__module__", "") == conflict.__name__
            and "inputs" in getattr(getattr(function, "__code__", None), "co_varnames", ())
        )

    named = {each for each in vars(conflict).values() if is_rule(each)} - {find_conflict}
    assert named == {each for rules in conflict.RULES.values() for each in rules}
