"""Compaction beside everything else, and under crashes: the same rows in fewer files, or what was there before. [GC11]

Spark's part of it is done in this process.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit.faults import before_create
from tests.kit.sizes import SetBudgets
from tests.kit.tables import begin, check_table, memory, positions, read, read_ids, rewrite_here, rows, session, write, write_each

from manifestcommit.commits.commit_loop import commit
from manifestcommit.errors import CommitConflictError, ManifestCommitError, UsageError
from manifestcommit.files.writer import plan_for
from manifestcommit.format import object_names
from manifestcommit.format.change import StreamBatch, Write
from manifestcommit.format.evolution import drop_column, rename_column
from manifestcommit.format.snapshot import Snapshot
from manifestcommit.log.version_chain import open_head
from manifestcommit.operations import alter, compaction
from manifestcommit.operations.compaction import Compaction, CompactionOptions, Rewrite, Rewriting, compact, merge_manifests
from manifestcommit.operations.describe import trace
from manifestcommit.operations.gc import run as gc
from manifestcommit.operations.verify import verify
from manifestcommit.protocol.retention import Policy
from manifestcommit.rows.find import ArrowRows, ExecutorChoice
from manifestcommit.rows.row_change import NewFiles
from manifestcommit.runtime.outcome import Outcome, committed_or_raise
from manifestcommit.scan import planning
from manifestcommit.store import Store
from manifestcommit.testing.faults import Died

DAYS = ["a b%2F+=#'é🦆", "__HIVE_DEFAULT_PARTITION__", "", None]
EVERYTHING = 1 << 30


def table(commits: int = 3) -> Store:
    """So many files in each partition, each with a row; a key and a watermark for each commit."""
    store = memory()
    for number in range(commits):
        for at, day in enumerate(DAYS):
            step = number * len(DAYS) + at
            write(store, rows([step], day=day), partition_by=["day"], key=f"k{step}", watermarks={"s": (step, step + 1)})
    return store


@pytest.fixture
def store() -> Store:
    return table()


def run(store: Store, rewrite: Rewrite | None = None, **options: Any) -> Compaction:
    return compact(session(store), CompactionOptions(**{"target": EVERYTHING, **options}), rewrite or rewrite_here(store))


def files(store: Store) -> list[str]:
    each = session(store)
    return planning.entries_table(each, each.open().snapshot).column("path").to_pylist()


def state(store: Store) -> tuple[Any, ...]:
    """What a compaction must not change: rows with their partitions, watermarks, keys, columns, properties."""
    snapshot = open_head(store).snapshot
    found = sorted(read(store).to_pylist(), key=lambda row: (row["id"], str(row)))
    return found, positions(store), snapshot.origins, snapshot.schema, snapshot.properties, snapshot.totals.rows


def acting(store: Store, act: Callable[[], Any]) -> Rewrite:
    """Rewrites, and lets something happen before the commit, once."""
    inner, turns = rewrite_here(store), itertools.count()

    def rewrite(snapshot: Snapshot, groups: Sequence[Rewriting]) -> Iterator[NewFiles]:
        made = list(inner(snapshot, groups))
        if next(turns) == 0:
            act()
        return iter(made)

    return rewrite


def test_each_partition_has_one_file_and_everything_else_is_as_it_was(store: Store) -> None:
    """[GC11] Rows, keys, watermarks, columns; null and the empty string, which share a folder's name, are not mixed."""
    before = state(store)
    done = run(store)
    assert (done.groups, done.files_before, done.files_after, done.rows, done.lost_groups, done.left_groups) == (4, 12, 4, 12, 0, 0)
    assert done.version == open_head(store).version
    assert state(store) == before
    assert len(files(store)) == 4
    assert write(store, rows([99], day=None), key="k3", watermarks={"s": (3, 4)}).already_committed
    check_table(store)
    assert verify(session(store), deep=True).is_sound
    record = open_head(store).snapshot.commits[0]
    assert (record.operation, record.summary.removed_files, record.summary.rows, record.summary.rows_read) == ("replace", 12, 12, 12)


@pytest.mark.parametrize("budgets", ["usual", "tight"])
def test_after_compaction_and_expiry_reruns_and_replayed_batches_are_still_recognised(budgets: str, request: pytest.FixtureRequest) -> None:
    """iceberg#3647: the checkpoint's id was in no snapshot any more, and its work was committed again. [GC11] [KY4] [KY6] [WM4]"""
    if budgets == "tight":
        request.getfixturevalue("tight")
    store = table()
    for number in range(3):
        assert batch(store, number).kind == "committed"
    run(store)
    newest = open_head(store).version
    for _ in range(2):
        gc(session(store), Policy(grace_s=0, keep_for_s=0, prepared_grace_s=0))
    assert open_head(store).snapshot.expired >= newest and not any(store.list(object_names.version_name(newest - 1))), (
        "all that came before is gone"
    )
    assert [batch(store, number).kind for number in range(3)] == ["key_reused", "key_reused", "already_committed"]
    for step in range(12):
        assert write(store, rows([99], day=None), key=f"k{step}", watermarks={"s": (step, step + 1)}).already_committed
    assert positions(store) == {"s": 12}
    assert batch(store, 3).kind == "committed"
    assert read_ids(store) == [*range(12), 100, 101, 102, 103]


def batch(store: Store, number: int) -> Outcome:
    """A batch of a streaming query, of one row."""
    job = begin(store)
    job.take_batch(StreamBatch(name="q %é", query="q1", batch=number))
    job.write(rows([100 + number], day="x"))
    return job.commit_now()


def test_a_group_becomes_one_file_whatever_its_rows_take_anew() -> None:
    """[GC16] Else a run could leave as many files as it found, and the next one would take them again."""
    store = memory()
    for number in range(4):
        write(store, pa.table({"id": pa.array(range(number, 40_000, 4), pa.int64())}))
    size = open_head(store).snapshot.totals.bytes
    assert run(store, target=size).files_after == 1
    assert read_ids(store) == list(range(40_000))


def test_twenty_appends_overtake_it_and_nothing_is_lost(store: Store) -> None:
    """[GC11] [CF2] Writers never wait for maintenance, nor maintenance for them."""

    def appends() -> None:
        for number in range(20):
            write(store, rows([1000 + number], day=DAYS[number % 4]), key=f"a{number}")

    done = run(store, acting(store, appends))
    assert (done.groups, done.lost_groups) == (4, 0)
    assert read_ids(store) == [*range(12), *range(1000, 1020)]
    assert len(files(store)) == 24
    check_table(store)


@pytest.mark.thorough
@pytest.mark.usefixtures("tight")
def test_a_group_whose_files_were_overwritten_or_deleted_is_lost_alone(store: Store) -> None:
    """[CF7] What was removed does not come back, and what others left is compacted all the same."""

    def others() -> None:
        write(store, rows([500], day=DAYS[0]), overwrite={"day": DAYS[0]})
        delete(store, [path for path in files(store) if path.startswith("day=__HIVE_DEFAULT_PARTITION__/")][:1])

    ids = read_ids(store)
    done = run(store, acting(store, others))
    gone = 3 + 1
    assert done.lost_groups == 2
    assert (done.groups, done.files_before) == (2, 6)
    assert len(read_ids(store)) == len(ids) - gone + 1
    check_table(store)
    assert run(store).lost_groups == 0
    check_table(store)


def delete(store: Store, paths: Sequence[str]) -> None:
    """What a delete of rows does to files that lose all of them."""
    each = session(store)
    head = each.open()
    change = Write(job=each.new_job(head), birth=head.version, operation="delete", remove=frozenset(paths))
    committed_or_raise(commit(each, head, change), store.url)


def test_what_was_committed_before_a_crash_stays_done(set_budgets: SetBudgets) -> None:
    """[GC11] A run of days that dies loses a batch, not the days."""
    set_budgets(batch_groups=1)
    store = table()
    before, inner, seen = state(store), rewrite_here(store), itertools.count()

    def dying(snapshot: Snapshot, groups: Sequence[Rewriting]) -> Iterator[NewFiles]:
        if next(seen) == 2:
            raise Died
        return inner(snapshot, groups)

    with pytest.raises(Died):
        run(store, dying)
    assert len(files(store)) == 2 + 2 * 3 and state(store) == before
    assert run(store).groups == 2
    assert len(files(store)) == 4 and state(store) == before


def test_a_commit_that_says_replace_and_loses_or_doubles_rows_is_refused(store: Store) -> None:
    """[CF14] Streams and overwrites pass over such commits: it would be a loss that nobody is told of."""
    each = session(store)
    head = each.open()
    change = Write(job=each.new_job(head), birth=head.version, operation="replace", remove=frozenset(files(store)[:2]))
    with pytest.raises(CommitConflictError, match="replacement_changes_rows"):
        committed_or_raise(commit(each, head, change), store.url)
    assert head.version == open_head(store).version


@pytest.mark.thorough
def test_rows_that_went_missing_while_files_were_rewritten_are_noticed_before_the_commit(store: Store) -> None:
    """[GC11]"""
    version = open_head(store).version

    def losing(snapshot: Snapshot, groups: Sequence[Rewriting]) -> Iterator[NewFiles]:
        return rewrite_here(store)(snapshot, [Rewriting(each.entries.slice(1), each.plan) for each in groups])

    def mixing(snapshot: Snapshot, groups: Sequence[Rewriting]) -> Iterator[NewFiles]:
        return reversed(list(rewrite_here(store)(snapshot, groups)))  # type: ignore[return-value]

    for rewrite, said in ((losing, "3 rows by the first look and 2 by the second"), (mixing, "hold rows of")):
        with pytest.raises(ManifestCommitError, match=said):
            run(store, rewrite)
        assert open_head(store).version == version


@pytest.mark.thorough
def test_columns_may_change_beside_it(store: Store) -> None:
    """[CF8] Renamed and added ones keep their values; with one that was dropped meanwhile the batch gives up and the next run does it."""
    ids = read_ids(store)
    edit = lambda change: lambda: alter.edit_schema(session(store), change)  # noqa: E731
    done = run(store, acting(store, edit(lambda schema, _: rename_column(schema, "day", "d`ay"))))
    assert (done.groups, done.lost_groups) == (4, 0)
    write(store, pa.table({"id": [77], "d`ay": [DAYS[0]], "new": [1.5]}), merge_schema=True)
    write(store, pa.table({"id": [78], "d`ay": [DAYS[0]], "new": [2.5]}))
    done = run(store, acting(store, edit(lambda schema, by: drop_column(schema, "new", partition_by=by))))
    assert (done.groups, done.lost_groups) == (0, 1)
    assert run(store).groups == 1
    assert read_ids(store) == [*ids, 77, 78] and read(store).column_names == ["id", "d`ay"]
    check_table(store)


def test_where_chooses_partitions(store: Store) -> None:
    """[GC16] By a condition on their values, null included; what is no partition column is refused before anything is read."""

    def chosen(condition: pc.Expression, here: Store = store) -> Compaction:
        choice = ExecutorChoice(ArrowRows(session(here)), lambda: pytest.fail("needs Spark"), is_given=False)
        return compact(session(here), CompactionOptions(target=EVERYTHING, where=condition, choice=choice), rewrite_here(here))

    for condition, groups in ((pc.field("day") == DAYS[0], 1), (pc.field("day").is_null(), 1), (pc.field("day").isin(["", "x"]), 1)):
        assert chosen(condition).groups == groups
    with pytest.raises(UsageError, match=r"by the columns day; nothing was done"):
        chosen(pc.field("id") == 3)
    flat = memory()
    write(flat, rows([1]))
    with pytest.raises(UsageError, match="not partitioned"):
        chosen(pc.field("id") == 3, flat)


def test_lineage_still_finds_a_position_and_the_version_that_brought_it() -> None:
    """[OB8] [RD9] New files name the ranges of the old ones, joined where they touch."""
    store = memory()
    for first in (0, 5, 20):
        with begin(store) as job:
            job.advance("s%", first, first + 5) if first < 20 else None
            job.write(rows(range(first, first + 5)), sources={"s%": (first, first + 5)})
    write_each(store, [90, 91])
    before = {at: trace(session(store), "s%", at) for at in (0, 7, 22)}
    assert run(store).groups == 2
    found = {each.path: each.sources for each in open_head(store).snapshot.added}
    assert sorted(len(ranges) for ranges in found.values()) == [0, 2], "files that say nothing are not mixed with those that do"
    ranges = max(found.values(), key=len)
    assert [(each.source, each.start, each.end) for each in ranges] == [("s%", 0, 10), ("s%", 20, 25)]
    for at, was in before.items():
        now = trace(session(store), "s%", at)
        assert now is not None and was is not None
        assert [each.path for each in now.files if each.start is not None] == [path for path, ranges in found.items() if ranges]
        if at < 20:
            assert now.version == was.version, "the version that brought it, not the one that rewrote it"
    gc(session(store), Policy(grace_s=0, keep_for_s=0, keep_versions=1))
    now = trace(session(store), "s%", 7)
    assert now is not None and [each.path for each in now.files if each.start is not None], "also where the history is gone that tells"


@pytest.mark.thorough
def test_manifests_that_commits_have_merged_meanwhile_are_looked_at_again(set_budgets: SetBudgets, tight: None) -> None:
    """[GC11] [CM12]"""
    set_budgets(fan_in=100)  # nothing is merged yet
    store = table(4)
    set_budgets(fan_in=2)
    appends = lambda: [write(store, rows([400 + n], day=DAYS[n % 4])) for n in range(12)]  # noqa: E731
    done = merge_manifests(session(before_create(store, appends)))
    assert done.version and not compaction.manifest_groups(session(store), session(store).open().snapshot)
    write(store, rows([500], day=DAYS[0]), overwrite={"day": DAYS[0]})
    done = merge_manifests(session(before_create(store, lambda: merge_manifests(session(store)))))
    assert done.version is None, "another one has merged them all: no commit without any work"
    gone = {each for each in range(16) if each % 4 == 0} | {400, 404, 408}
    assert read_ids(store) == sorted({*range(16), *range(400, 412), 500} - gone)
    check_table(store)


def test_a_table_without_columns_or_files_is_left_alone() -> None:
    """[GC16]"""
    store = memory()
    with begin(store, "k") as job:
        job.advance("s", 0, 1)
    assert run(store).version is None
    write(store, rows([]))
    assert run(store).version is None
    assert plan_for(open_head(store).snapshot, url=store.url, job="j").job == "j"
