"""gc while others work: commits, tags, rollbacks, other gcs and stalled writers, before any of its calls. [GC2] [GC4] [GC12] [IV7] [IV8]

Each race is played at every call to the store, one after the other; threads are the exception.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.collected import (
    DAY,
    HARSH,
    add_foreign,
    check_clean,
    check_now_and_then,
    check_readable,
    gc,
    interleaved,
    orphan,
    parquet,
    paused,
    sizes,
    table,
    tag,
)
from tests.kit.sizes import at_calls, budgets, rounds, some
from tests.kit.tables import (
    begin,
    change_of,
    clone,
    key_version,
    memory,
    put_back,
    read_ids,
    rewind,
    rollback,
    rows,
    session,
    write,
    write_each,
)

from manifestcommit import errors
from manifestcommit.commits.task_recovery import Recovery
from manifestcommit.commits.two_phase import commit_prepared, give_up, resolve_job
from manifestcommit.format import codec, object_names
from manifestcommit.format.snapshot import Totals
from manifestcommit.log.version_chain import list_above, open_head, read_object
from manifestcommit.operations.adopt import UNFINISHED, adopt
from manifestcommit.operations.gc import GcReport
from manifestcommit.operations.gc import plan as look
from manifestcommit.protocol.conflict import is_readable
from manifestcommit.rows.row_change import Declared, RowChange
from manifestcommit.scan import planning
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import Died, Fault, FaultCall, FaultStore


# --- one thing in between, at every call ----------------------------------------------------------------------------------
def append(store: Store) -> object:
    return write(store, rows([200], day="x"), key="new")


def append_and_overwrite(store: Store) -> object:
    write(store, rows([201], day=DAY))
    return write(store, rows([200], day=DAY), overwrite="dynamic")


ACTS: dict[str, Callable[[Store], object]] = {
    "append": append,
    "overwrite": lambda store: write(store, rows([200], day="y"), overwrite=None, conflict="blind"),
    "two commits": append_and_overwrite,
    "tag": lambda store: tag(store, "new", open_head(store).snapshot.expired),
    "untag": lambda store: tag(store, "first é", None),
    "rollback": lambda store: rollback(session(store), open_head(store).snapshot.expired, reason="é"),
    "rollback to a tag": lambda store: rollback(session(store), tag="first é", reason="é"),
    "gc": gc,
    "two gcs": lambda store: (gc(store), gc(store)),
    "an orphan": lambda store: orphan(store, 9),
}


@pytest.mark.parametrize("act", ACTS)
@at_calls
def test_whatever_happens_before_any_call_of_a_gc_is_kept(act: str, step: int) -> None:
    """[GC4] [GC12] [IV2] [IV7]"""
    for store, done, acted in interleaved(table(), gc, ACTS[act], step):
        assert isinstance(done, GcReport), done
        assert not isinstance(acted, errors.ManifestCommitError) or (act == "rollback" and isinstance(acted, errors.UsageError)), acted
        check_readable(store)
        if act == "rollback to a tag":
            assert read_ids(store) == [1]
        if act in ("append", "overwrite", "two commits"):
            assert 200 in read_ids(store)
        if act == "tag":
            assert is_readable(open_head(store).snapshot, open_head(store).snapshot.tags["new"].version)
        check_now_and_then(store)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("work", ["append", "overwrite", "two commits"])
def test_gcs_before_any_call_of_a_commit_take_nothing_that_it_lists(work: str, count: int) -> None:
    """It commits, or it is fenced and nothing of it is visible; others lose nothing. [GC2] [CM2] [IV7]"""
    base = table()
    before = read_ids(base)
    fenced = 0
    for store, done, acted in interleaved(base, ACTS[work], lambda store: [gc(store) for _ in range(count)]):
        assert isinstance(acted, list)
        check_readable(store)
        if isinstance(done, errors.ManifestCommitError):
            assert isinstance(done, errors.JobFencedError | errors.OutcomeUnknownError), done
            if isinstance(done, errors.JobFencedError):
                assert 200 not in read_ids(store) and set(before) - {3} <= set(read_ids(store))
            fenced += 1
        else:
            assert 200 in read_ids(store)
        check_now_and_then(store)
    assert (fenced > 0) == (count == 2)


def test_adding_a_file_that_gc_condemns_is_one_or_the_other() -> None:
    """At every call of gc, and at every call of the job: it is listed and there, or refused and gone. [GC6] [CF11]"""
    base = table()
    parquet(base, "day=x/foreign.parquet", 200)
    both: list[tuple[Callable[[Store], object], Callable[[Store], object]]] = [
        (lambda store: gc(store, foreign=True), add_foreign),
        (add_foreign, lambda store: gc(store, foreign=True)),
    ]
    outcomes = set()
    for work, act in both:
        for store, done, acted in interleaved(base, work, act):
            check_readable(store)
            listed = 200 in read_ids(store)
            outcomes.add(listed)
            assert not (listed and "day=x/foreign.parquet" in open_head(store).snapshot.condemned), "live, and condemned"
            added = done if work is add_foreign else acted
            assert listed == ("day=x/foreign.parquet" in sizes(store)) == (not isinstance(added, Exception)), (done, acted)
            check_now_and_then(store)
    assert outcomes == {True, False}


@pytest.mark.thorough
def test_a_file_that_was_removed_and_is_added_again_is_not_taken_by_a_gc_that_runs() -> None:
    """Its name carries an old job: whoever adds it is fenced where gc may be about to delete it. [CM2] [GC5] [IV7]"""
    base = memory()
    write(base, rows([1]))
    path = open_head(base).snapshot.added[0].path
    write(base, rows([2]), overwrite=None)

    def add_again(store: Store) -> object:
        with begin(store) as job:
            job.add_files([path])
        return job.outcome

    for store, done, acted in interleaved(base, gc, add_again):
        check_readable(store)
        assert isinstance(done, GcReport) and (read_ids(store) == [1, 2]) == (not isinstance(acted, Exception)), acted
    for store, done, _ in interleaved(base, add_again, gc):
        check_readable(store)
        assert (read_ids(store) == [1, 2]) == (not isinstance(done, Exception)), done


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("work", ["write", "delete", "merge", "adopt", "prepared", "recoverable", "rewind"])
def test_work_whose_key_runs_two_gcs_take_while_it_begins_is_not_told_of_damage(work: str) -> None:
    """The table is sound: what was read as the head has expired, and the newer one says what became of the key. [KY1] [RD3] [GC2]"""
    base = memory()
    parquet(base, "day=x/adopted.parquet", 200)
    adopt(session(base))
    with begin(base, "key 0") as early:
        early.write(rows([0], day="x"))
    second = begin(base, "key 0").prepare() if work == "prepared" else ""
    for number in range(1, 5):
        write(base, rows([number], day="x"), key=f"key {number}", watermarks={"s": (number, number + 1)})
    runs = {run.path for run in open_head(base).snapshot.key_runs}
    pending = [True]

    def expire(call: FaultCall) -> None:
        if call.name in runs and pending and pending.pop():
            for number in range(20, 40):
                write(base, rows([number], day="x"), key=f"key {number}")
            gc(base, prepared_grace_s=0)
            gc(base, prepared_grace_s=0)

    store = FaultStore(base, on_call=expire)
    if work == "adopt":
        assert adopt(session(store)).already_adopted
    elif work == "write":
        assert begin(store, "key 0").already_committed
    elif work == "prepared":
        outcome = commit_prepared(session(store), second)
        assert (outcome.kind, outcome.version) == ("already_committed", key_version(base, "key 0"))
    elif work == "recoverable":
        known, told = session(store), early.outcome
        assert told is not None and known.open().version > told.version
        assert Recovery(known, "key 0", "f").judged(change_of(early), told) == told
    elif work == "rewind":
        with pytest.raises(errors.SnapshotExpiredError, match="keep_keys=True"):  # the history that names the keys has gone as well
            rewind(session(store), "s", 1, reason="again")
    else:
        begun = RowChange(session(store), work, ["id = 1"], Declared(key="key 0"))  # type: ignore[arg-type]
        assert begun.already_committed and begun.head.version == open_head(base).version
    assert not pending and not runs & sizes(base).keys(), "nothing was taken away"


@pytest.mark.thorough
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("ask", ["resolve", "commit", "abort", "add its file"])
def test_who_asks_for_a_job_whose_runs_two_gcs_take_meanwhile_is_not_told_of_damage(ask: str) -> None:
    """What became of it may be forgotten by then, and is told so: who believes in damage takes the table back to a copy. [CM23] [RD3]"""
    base = memory()
    with begin(base, "key 0") as early:
        early.write(rows([0], day="x"))
    (path,) = (entry.path for entry in change_of(early).add)
    for number in range(1, 9):
        write(base, rows([number], day="x"))
    runs = {run.path for run in open_head(base).snapshot.job_runs}
    pending = [True]

    def expire(call: FaultCall) -> None:
        if call.name in runs and pending and pending.pop():
            for number in range(20, 40):
                write(base, rows([number], day="x"))
            gc(base)
            gc(base)

    store = FaultStore(base, on_call=expire)
    if ask == "resolve":
        assert resolve_job(session(store), early.id) == "forgotten"
    elif ask == "add its file":
        with pytest.raises(errors.UsageError, match="has not committed"):
            begin(store).add_files([path])
    else:
        outcome = (commit_prepared if ask == "commit" else give_up)(session(store), early.id)
        assert outcome.kind == "unknown" and "which may carry it" in str(outcome.reason)
    assert not pending and not runs & sizes(base).keys(), "nothing was taken away"
    assert read_ids(base) == [*range(9), *range(20, 40)]


@pytest.mark.thorough
def test_an_adopted_file_that_was_replaced_is_added_again_or_goes() -> None:
    """No job wrote it, so its name alone protects nothing; nor may it go while an older version that can be read lists it. [GC6] [AF2]"""
    base = memory()
    parquet(base, "day=x/foreign.parquet", 200)
    adopt(session(base))
    write(base, rows([1], day="x"), overwrite=None)
    kept = clone(base)
    gc(kept, foreign=True, keep_versions=3)
    assert read_ids(kept) == [1] and read_ids(kept, 2) == [200]
    outcomes = set()
    for store, done, acted in interleaved(base, lambda store: gc(store, foreign=True), add_foreign):
        check_readable(store)
        assert isinstance(done, GcReport)
        listed = read_ids(store) == [1, 200]
        assert listed == ("day=x/foreign.parquet" in sizes(store)) == (not isinstance(acted, Exception)), acted
        outcomes.add(listed)
        check_now_and_then(store)
    assert outcomes == {True, False}


@pytest.mark.thorough
def test_two_gcs_of_different_policy_at_any_call_of_each_other() -> None:
    """The one that goes further counts, and the other deletes nothing by what it knew. [GC3] [GC4] [GC12]"""
    base = table()
    policies: list[dict[str, Any]] = [{}, {"keep_versions": 4}, {"grace_s": 3600.0}]
    for mine, theirs in some(itertools.permutations(policies, 2), 3):
        work, act = (functools.partial(lambda store, policy: gc(store, **policy), policy=policy) for policy in (mine, theirs))
        for store, done, acted in interleaved(base, work, act):
            assert isinstance(done, GcReport) and isinstance(acted, GcReport), (done, acted)
            check_readable(store)
            assert read_ids(store) == read_ids(base)
            assert open_head(store).snapshot.expired >= (7 if {} in (mine, theirs) else 4)
            check_now_and_then(store)


def test_a_version_that_comes_back_from_the_dead_inside_a_gcs_range_costs_no_live_file() -> None:
    """An old version's files are live again by a rollback; another gc deletes that version, and a stalled writer creates one of that number
    that lists nothing. The gc that is about to read it as a reference starts over. [GC4] [IV7] [IV8]"""
    base = table()
    old = {version: found.snapshot for version in range(1, 8) if (found := read_object(base, version)) is not None}
    bare = {
        version: codec.encode_snapshot(msgspec.structs.replace(each, added=(), manifests=(), removed={}, totals=Totals()))
        for version, each in old.items()
    }

    def bring_back(store: Store) -> None:
        rollback(session(store), 4, reason="é")
        gc(store)
        for version, data in bare.items():
            store.put_if_absent(object_names.version_name(version), data)

    for store, done, acted in interleaved(base, lambda store: gc(store, keep_versions=6), bring_back):
        assert not isinstance(acted, errors.ManifestCommitError), acted
        assert isinstance(done, GcReport), done
        assert read_ids(store) == read_ids(base, 4)
        check_readable(store)
        check_now_and_then(store)


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_whose_answer_was_lost_loses_no_file_to_gc(landed: bool) -> None:
    """Carried out or not: its writer does not know, gives up, and has deleted nothing; nor does gc take what is live. [CM6] [AB1] [IV7]"""
    base = table()
    calls = FaultStore(clone(base))
    append(calls)
    create = next(call.number for call in calls.calls if call.kind == "put_if_absent" and call.name.startswith(object_names.VERSIONS))
    kinds: tuple[Fault, Fault] = ("answer_lost", "request_lost") if landed else ("request_lost", "request_lost")
    faults = {number: kinds[number > create] for number in range(create, create + 500)}
    failing = FaultStore(base, faults)
    with pytest.raises(errors.OutcomeUnknownError):
        append(failing)
    assert not [call for call in failing.calls if call.kind == "delete"]
    for _ in range(3):
        gc(base)
        check_readable(base)
        assert (200 in read_ids(base)) == landed
    append(base)
    assert read_ids(base).count(200) == 1, "the same key again"
    check_clean(base)


# --- any history --------------------------------------------------------------------------------------------------------
STEPS = ("append", "overwrite", "orphan", "begin", "commit", "prepare", "tag", "untag", "rollback", "gc", "gentle gc")


@pytest.mark.thorough
@settings(max_examples=rounds(5, 100))
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), min_size=5, max_size=12), st.booleans())
def test_any_history_keeps_what_is_readable_and_leaves_nothing_else(steps: list[tuple[str, int]], is_tight: bool) -> None:
    """Jobs that wait, commit late or never, tags and rollbacks, with gcs between them. [GC5] [GC7] [IV7]"""
    small = {"inline_entry_bytes": 2, "inline_keys": 2, "inline_jobs": 2, "inline_removed_bytes": 2, "fan_in": 3}
    with budgets(**small if is_tight else {}):
        store, waiting = memory(), []
        write(store, rows([0], day="0"), partition_by=["day"])
        for number, (step, which) in enumerate(steps, start=1):
            data, day = rows([number], day=str(which)), {"day": str(which)}
            with contextlib.suppress(
                errors.JobFencedError,
                errors.OutcomeUnknownError,
                errors.CommitConflictError,
                errors.SnapshotExpiredError,
                errors.UsageError,
            ):
                match step:
                    case "append":
                        write(store, data, key=f"k{number}")
                    case "overwrite":
                        write(store, data, overwrite=day)
                    case "orphan":
                        orphan(store, number)
                    case "begin":
                        waiting.append(begin(store, f"w{number}"))
                        waiting[-1].write(data)
                    case "commit" if waiting:
                        waiting.pop(which % len(waiting)).commit()
                    case "prepare" if waiting:
                        waiting.pop(which % len(waiting)).prepare()
                    case "tag":
                        tag(store, f"t{which}", open_head(store).snapshot.expired)
                    case "untag":
                        tag(store, f"t{which}", None)
                    case "rollback":
                        rollback(session(store), max(1, open_head(store).version - which - 1), reason="x")
                    case "gc" | "gentle gc":
                        gc(store, prepared_grace_s=0, keep_versions=1 if step == "gc" else 4)
            check_readable(store)
        gc(store, prepared_grace_s=0)
        gc(store, prepared_grace_s=0)
        check_clean(store)
        put_back(store)


@pytest.mark.thorough
def test_the_only_copy_of_a_folder_that_is_being_adopted_is_not_condemned() -> None:
    """Crashed between the table and the list of its files, at every call there: they look foreign, and are the data. [GC6] [AF2] [IV7]"""
    base = memory()
    parquet(base, "day=x/only copy é.parquet", 200)
    calls = FaultStore(clone(base))
    adopt(session(calls))
    unfinished = 0
    for number in range(1, calls.count + 1):
        store = clone(base)
        with contextlib.suppress(Died):
            adopt(session(FaultStore(store, {number: "dies_before"})))
        if list_above(store, 0).versions and UNFINISHED in open_head(store).snapshot.properties:
            unfinished += 1
            before = sizes(store)
            for refused in (lambda store=store: gc(store, foreign=True), lambda store=store: look(session(store), HARSH, foreign=True)):
                with pytest.raises(errors.UsageError, match="adoption of this folder is unfinished"):
                    refused()
            assert sizes(store).keys() - {object_names.HINT} == before.keys() - {object_names.HINT}
            gc(store)
        assert adopt(session(store)).version
        assert gc(store, foreign=True).deleted.keys() <= {"version", "manifest"} and read_ids(store) == [200]
        put_back(store)
    assert unfinished > 2


@pytest.mark.thorough
def test_a_gc_that_slept_deletes_no_file_that_is_listed_by_now() -> None:
    """The name that it condemned has left the chain, and was used again. [GC6] [IV7]"""
    store = table()
    parquet(store, "day=x/foreign.parquet", 200)

    def meanwhile() -> None:
        for _ in range(4):
            gc(store)
        parquet(store, "day=x/foreign.parquet", 200)
        add_foreign(store)

    gc(paused(store, meanwhile), foreign=True)
    assert 200 in read_ids(store)
    check_readable(store)
    check_clean(store)


def test_a_gc_that_slept_deletes_nothing_of_a_table_that_was_made_anew() -> None:
    """[GC7]"""
    store = table()
    parquet(store, "day=x/foreign.parquet", 200)

    def meanwhile() -> None:
        put_back(store)
        write_each(store, range(3))

    with pytest.raises(errors.TableNotFoundError):
        gc(paused(store, meanwhile), foreign=True)
    assert read_ids(store) == read_ids(store, 4) == [0, 1, 2]
    assert read_ids(store, 2) == [0]


# --- who knows a head that is gone -----------------------------------------------------------------------------------------
def spilled() -> MemoryStore:
    """A table whose entries, keys, jobs and removals all lie in objects of their own, which every gc replaces."""
    store = memory()
    for number in range(6):
        write(store, rows([number], day=str(number % 2)), key=f"k{number}", partition_by=["day"])
    write(store, rows([50], day="1"), overwrite={"day": "1"})
    tag(store, "t", 6)
    return store


def replace_all(store: Store) -> None:
    """Nothing that the head lists now is listed by a version that can be read afterwards."""
    tag(store, "t", None)
    write(store, rows([100], day="1"), overwrite=None, conflict="blind")
    for _ in range(2):
        gc(store, keep_keys=1)


@pytest.mark.parametrize("work", ["append", "overwrite"])
@pytest.mark.usefixtures("tight")
def test_what_gc_takes_of_an_expired_head_is_no_damage_to_who_still_knows_it(work: str) -> None:
    """A job that slept is fenced, and not told to restore a backup of a table that is whole. [CM2] [RD3] [GC5]"""
    works: dict[str, Callable[[Store], object]] = {
        "append": lambda store: write(store, rows([200], day="0"), key="k1 again"),
        "overwrite": lambda store: write(store, rows([200], day="0"), overwrite={"day": "0"}),
    }
    told_of = set()
    for store, done, acted in interleaved(spilled(), works[work], replace_all):
        assert not isinstance(acted, errors.ManifestCommitError), acted
        assert not isinstance(done, errors.CorruptMetadataError), done
        told_of.add(getattr(done, "kind", type(done).__name__))
        check_readable(store)
    assert len(told_of) > 1, told_of


@pytest.mark.usefixtures("tight")
def test_a_snapshot_that_expired_before_its_files_were_listed_says_so() -> None:
    """[RD3]"""
    store = spilled()
    known = open_head(store)
    replace_all(store)
    with pytest.raises(errors.SnapshotExpiredError):
        planning.entries_table(session(store), known.snapshot)
    with budgets(inline_entry_bytes=1):
        write(store, rows([10], day="1"))
    newest = open_head(store)
    store.delete([newest.snapshot.manifests[0].path])
    with pytest.raises(errors.CorruptMetadataError):
        planning.entries_table(session(store), newest.snapshot)
    write(store, rows([11], day="1"))
    with pytest.raises(errors.CorruptMetadataError):
        planning.entries_table(session(store), newest.snapshot)
