"""Jobs in flight while a rewind or a rollback sets time back: none commits what another job does again, and nothing is lost.

[WM6] [WM7] [KY7] [KY8] [CF13] [KY4].
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.kit.faults import carry, put_intent, resolve
from tests.kit.sizes import SetBudgets
from tests.kit.tables import (
    NAME,
    begin,
    change_of,
    check_table,
    commit_batch,
    job_with,
    key_version,
    memory,
    positions,
    read_ids,
    rewind,
    rollback,
    rows,
    session,
    write,
)

import manifestcommit as mc
from manifestcommit.commits.commit_loop import commit
from manifestcommit.commits.prepared_job import settled_outcome
from manifestcommit.commits.two_phase import commit_prepared
from manifestcommit.format.change import Retention, StreamBatch
from manifestcommit.log.version_chain import open_head
from manifestcommit.operations import alter
from manifestcommit.operations.gc import run as gc_run
from manifestcommit.operations.rollback import untag
from manifestcommit.protocol.retention import Policy
from manifestcommit.runtime.outcome import error_of
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore

SOURCE = "a topic/0 %=+#'é🦆"
Finish = Callable[[Store, mc.Job], None]


@pytest.fixture(params=[512, 1], ids=["inlined", "spilled"])
def store(request: pytest.FixtureRequest, set_budgets: SetBudgets) -> MemoryStore:
    """A table with row 1, whose keys are in the head, or in runs."""
    set_budgets(inline_keys=request.param)
    made = memory()
    write(made, rows([1]), key="first", watermarks={"before": (0, 5)})
    return made


def open_job(store: Store, number: int, key: str | None, start: int | str | None, end: int | str, source: str = SOURCE) -> mc.Job:
    """A job in flight with one row and one advance."""
    job = job_with(store, rows([number]), key=key)
    job.advance(source, start, end)
    return job


def directly(store: Store, job: mc.Job) -> None:
    job.commit()


def prepared(store: Store, job: mc.Job) -> None:
    """The object of an open job is made before time is set back, see `in_flight`; here another process finishes it."""
    outcome = commit_prepared(session(store), job.id)
    if (error := error_of(outcome, "table")) is not None:
        raise error


def carried(store: Store, job: mc.Job) -> None:
    """Another writer carries it if it may."""
    assert carry(store, 99).committed
    if resolve(store, job.id)[0] != "committed":
        raise mc.errors.CommitConflictError("not carried (rule source_was_set_back)", rule="", mine="", winner="")


def in_flight(store: Store, how: str, number: int, key: str | None, start: int | str | None, end: int | str) -> tuple[mc.Job, Finish]:
    job = open_job(store, number, key, start, end)
    if how == "prepared":
        job.prepare()
        return job, prepared
    if how == "carried":
        put_intent(store, change_of(job))
        return job, carried
    return job, directly


def set_back(store: Store, undo: str, version: int, to: int | None) -> None:
    if undo == "rollback":
        assert rollback(session(store), version, reason="x").committed
    else:
        assert rewind(session(store), SOURCE, to, reason="x", keep_keys=undo == "rewind that keeps keys").committed


@pytest.mark.parametrize("how", ["directly", "prepared", "carried"])
@pytest.mark.parametrize("undo", ["rewind", "rewind that keeps keys", "rewind to nothing", "rollback"])
@pytest.mark.parametrize("twin", ["same key", "another key", "no key"])
def test_a_twin_that_began_before_never_commits_what_was_set_back(store: MemoryStore, how: str, undo: str, twin: str) -> None:
    """Its rows are there already, or the rerun's are to come: one of both, once, and the rerun is never in its way. [WM6] [KY7]"""
    before = open_head(store).version
    job, finish = in_flight(store, how, 10, {"same key": "K", "another key": "twin", "no key": None}[twin], 0, 2)
    write(store, rows([11]), key="K", watermarks={SOURCE: (0, 2)})
    set_back(store, undo, before, None if undo == "rewind to nothing" else 0)
    if twin == "same key" and undo == "rewind that keeps keys" and how != "carried":
        finish(store, job)
        assert resolve(store, job.id)[0] == "not_committed" or how == "prepared", "the first run has committed, not this one"
    else:
        with pytest.raises(mc.errors.CommitConflictError, match="source_was_set_back"):
            finish(store, job)
    rerun = "K again" if undo == "rewind that keeps keys" else "K"
    assert write(store, rows([12]), key=rerun, watermarks={SOURCE: (0, 2)}).kind == "committed"
    assert [each for each in read_ids(store) if each < 99] == ([1, 12] if undo == "rollback" else [1, 11, 12])
    assert positions(store)[SOURCE] == 2
    check_table(store)


@pytest.mark.parametrize("how", ["directly", "prepared", "carried"])
def test_a_stale_job_without_advances_does_not_take_the_key_of_the_rerun(store: MemoryStore, how: str) -> None:
    """[KY7]"""
    before = open_head(store).version
    job = job_with(store, rows([10]), key="K")
    finish: Finish = {"directly": directly, "prepared": prepared, "carried": carried}[how]
    if how == "prepared":
        job.prepare()
    elif how == "carried":
        put_intent(store, change_of(job))
    write(store, rows([11]), key="K")
    assert rollback(session(store), before, reason="x").dropped_keys == ("K",)
    with pytest.raises(mc.errors.CommitConflictError, check=lambda error: how == "carried" or error.rule == "key_was_set_back"):
        finish(store, job)
    assert write(store, rows([12]), key="K").kind == "committed"
    assert [each for each in read_ids(store) if each < 99] == [1, 12]


def test_a_key_that_a_rewind_dropped_is_for_jobs_that_begin_afterwards(store: MemoryStore) -> None:
    """Also where the stale job advances nothing. [KY7] [WM5]"""
    job = job_with(store, rows([10]), key="K")
    write(store, rows([11]), key="K", watermarks={SOURCE: (0, 2)})
    set_back(store, "rewind", 0, 0)
    with pytest.raises(mc.errors.CommitConflictError, check=lambda error: error.rule == "key_was_set_back"):
        job.commit()


def test_the_memory_of_a_dropped_key_outlives_a_second_rollback(store: MemoryStore) -> None:
    """The first rollback dropped the key; the second one goes back to before the first. [KY7]"""
    before = open_head(store).version
    job = job_with(store, rows([10]), key="K")
    write(store, rows([11]), key="K")
    assert rollback(session(store), before, reason="x").committed
    write(store, rows([13]), key="other")
    assert rollback(session(store), before, reason="x").dropped_keys == ("other",)
    with pytest.raises(mc.errors.CommitConflictError, check=lambda error: error.rule == "key_was_set_back"):
        job.commit()
    assert write(store, rows([12]), key="K").kind == "committed"
    assert read_ids(store) == [1, 12]


def test_a_second_rollback_refuses_no_job_that_began_after_the_first(store: MemoryStore) -> None:
    """The first rollback dropped the key of the job, and the second one undoes nothing of it. [KY7]"""
    before = open_head(store).version
    write(store, rows([11]), key="K é")
    assert rollback(session(store), before, reason="x").dropped_keys == ("K é",)
    job = job_with(store, rows([12]), key="K é")
    assert rollback(session(store), before, reason="x").dropped_keys == ()
    assert job.commit().kind == "committed"
    assert read_ids(store) == [1, 12]


def test_a_key_that_a_rollback_restores_counts_as_committed(store: MemoryStore) -> None:
    """It was dropped by a rewind after the version that the rollback restores. [CF13] [KY7] [KY3]"""
    write(store, rows([11]), key="K", watermarks={SOURCE: (0, 2)})
    target = open_head(store).version
    job = open_job(store, 12, "K", 0, 2)
    set_back(store, "rewind", 0, 0)
    assert rollback(session(store), target, reason="x").committed
    assert job.commit().kind == "already_committed"
    assert read_ids(store) == [1, 11]


def test_jobs_that_begin_afterwards_are_free_and_other_sources_and_keys_are_not_held(store: MemoryStore) -> None:
    """[WM6] [KY7]"""
    other = open_job(store, 20, "other", 5, 6, source="before")
    write(store, rows([11]), key="K", watermarks={SOURCE: (0, 2)})
    set_back(store, "rewind", 0, 0)
    assert other.commit().kind == "committed"
    assert open_job(store, 12, "K", 0, 1).commit().kind == "committed"
    assert read_ids(store) == [1, 11, 12, 20]


@pytest.mark.parametrize("only", ["the head has its position", "the target has its position", "the target knows it"])
def test_a_rollback_sets_back_each_source_that_only_one_of_the_two_versions_knows(store: MemoryStore, only: str) -> None:
    """Whether it takes away or brings back the position, or no more than the origin. [WM6] [CF13] [WM1]"""
    target = open_head(store).version
    if only == "the target knows it":  # and that it begins with nothing, since all that was read of it was taken
        write(store, rows([9]), watermarks={SOURCE: (None, 5)})
        target = rollback(session(store), target, reason="x").version or 0
    elif only == "the target has its position":
        target = write(store, rows([9]), watermarks={SOURCE: (None, 5)}).version or 0
    job = open_job(store, 10, None, None, 2)
    write(store, rows([11]), watermarks={SOURCE: (5, 8) if SOURCE in positions(store) else (None, 8)})
    if only != "the head has its position":
        set_back(store, "rewind", 0, None)
        job = open_job(store, 10, None, 5 if only == "the target has its position" else None, 9)
    made = rollback(session(store), target, reason="x").version
    head = open_head(store).snapshot
    assert head.set_back[SOURCE] == made and SOURCE in head.origins
    with pytest.raises(mc.errors.CommitConflictError, check=lambda error: error.rule == "source_was_set_back"):
        job.commit()
    assert open_job(store, 12, None, positions(store).get(SOURCE), 9).commit().kind == "committed"
    assert read_ids(store) == ([1, 9, 12] if only == "the target has its position" else [1, 12])
    check_table(store)


def move_fence(store: Store, fence: int) -> None:
    """A gc whose fence is that version."""
    own = session(store)
    head = own.open()
    change = Retention(job=own.new_job(head), birth=head.version, fence=fence, expired=1)
    assert commit(own, head, change).committed and open_head(store).snapshot.fence == fence


@pytest.mark.parametrize("then", ["nothing", "gc", "a rewind of another source", "a rollback to after it", "a rollback to before it"])
def test_a_job_that_began_right_before_a_rewind_is_refused_whatever_comes_then(store: MemoryStore, then: str) -> None:
    """It fits again once the rerun has come as far as the job began. [WM6] [CF13]"""
    write(store, rows([11]), watermarks={SOURCE: (0, 2)})
    job = open_job(store, 12, None, 2, 3)
    birth = open_head(store).version
    set_back(store, "rewind", 0, 0)
    if then == "gc":
        move_fence(store, birth)
    elif then == "a rewind of another source":
        assert rewind(session(store), "before", 0, reason="x").committed
    elif then == "a rollback to after it":
        write(store, rows([13]))
        assert rollback(session(store), birth + 1, reason="x").committed
    write(store, rows([14]), watermarks={SOURCE: (0, 2)})
    if then == "a rollback to before it":
        assert rollback(session(store), birth, reason="x").committed
    assert positions(store)[SOURCE] == 2
    with pytest.raises(mc.errors.CommitConflictError, check=lambda error: error.rule == "source_was_set_back"):
        job.commit()
    assert open_head(store).snapshot.set_back[SOURCE] == birth + 1, "nothing else has moved it"
    assert open_job(store, 15, None, 2, 3).commit().kind == "committed"


def test_gc_keeps_a_dropped_key_while_a_job_from_before_can_commit(store: MemoryStore) -> None:
    """[KY7]"""
    birth = open_head(store).version
    job = job_with(store, rows([10]), key="K")
    write(store, rows([11]), key="K")
    assert rollback(session(store), birth, reason="x").committed
    move_fence(store, birth)
    with pytest.raises(mc.errors.CommitConflictError, check=lambda error: error.rule == "key_was_set_back"):
        job.commit()


@pytest.mark.thorough
def test_gc_drops_what_no_job_can_need_any_more_and_nothing_earlier(store: MemoryStore) -> None:
    """[WM6] [KY7] [KY4]"""
    write(store, rows([11]), key="K", watermarks={SOURCE: (0, 2)})
    job = open_job(store, 10, "twin", 0, 2)
    set_back(store, "rewind", 0, 0)
    at = open_head(store).version
    gc_run(session(store), Policy(grace_s=1e9, keep_versions=1, keep_for_s=0.0))  # its fence does not pass the job
    assert open_head(store).snapshot.set_back == {SOURCE: at}
    with pytest.raises(mc.errors.CommitConflictError):
        job.commit()
    for _ in range(2):
        gc_run(session(store), Policy(grace_s=0.0, keep_versions=1, keep_for_s=0.0))
    head = open_head(store).snapshot
    assert head.fence >= at and head.set_back == {}
    assert head.key_runs or not [key for key, record in head.keys.items() if not record.digest]
    assert write(store, rows([12]), key="K", watermarks={SOURCE: (0, 2)}).kind == "committed"


@pytest.mark.parametrize("then", ["nothing", "gc", "a rollback to after it"])
def test_a_batch_that_was_planned_before_a_rollback_is_refused(then: str) -> None:
    """[KY7] [KY6]"""
    store = memory()
    write(store, rows([1]))
    for batch in range(3):
        assert commit_batch(store, batch).kind == "committed"
    before = open_head(store).version
    stale = job_with(store, rows([33]))
    stale.take_batch(StreamBatch(name=NAME, query="q1", batch=3))
    commit_batch(store, 3)
    assert rollback(session(store), before, reason="x").committed
    if then == "gc":
        move_fence(store, before)
    elif then == "a rollback to after it":
        write(store, rows([2]))
        assert rollback(session(store), before + 2, reason="x").committed
    refused = stale.commit_now()
    assert refused.conflict is not None and refused.conflict.rule == "stream_was_set_back"
    assert open_head(store).snapshot.set_back_queries == {"q1": before + 2}
    assert commit_batch(store, 3).kind == "committed"
    move_fence(store, before + 2)
    assert open_head(store).snapshot.set_back_queries == {}


@pytest.mark.parametrize("back_to", [3, 4])
def test_a_batch_is_refused_whatever_the_names_under_which_its_query_has_committed(back_to: int) -> None:
    """The last of all of them counts. [KY7] [KY6]"""
    store = memory()
    write(store, rows([1]))
    versions = {
        number: commit_batch(store, number, name=name).version for number, name in ((3, "a"), (4, "b"), (5, "a")) if number <= back_to + 1
    }
    job = job_with(store, rows([100 + back_to]))
    job.take_batch(StreamBatch(name="c", query="q1", batch=back_to + 1))
    stale = msgspec.structs.replace(change_of(job), birth=versions[back_to])
    made = rollback(session(store), versions[back_to], reason="x").version
    assert open_head(store).snapshot.set_back_queries == {"q1": made}
    refused = commit(session(store), open_head(store), stale)
    assert refused.conflict is not None and refused.conflict.rule == "stream_was_set_back"
    assert commit_batch(store, back_to + 1, name="d").kind == "committed"


def test_a_batch_of_the_same_number_that_another_plan_made_is_not_what_the_next_one_follows() -> None:
    """A rollback of a rollback brings back the first batch 1; batch 2 was planned behind the second, which may have had more rows. [KY7]"""
    store = memory()
    before, first = (commit_batch(store, batch, id=batch).version for batch in range(2))
    assert rollback(session(store), before, reason="x").committed
    assert commit_batch(store, 1, id=10).committed
    stale = job_with(store, rows([20]))
    stale.take_batch(StreamBatch(name=NAME, query="q1", batch=2))
    assert rollback(session(store), first, reason="x").committed
    refused = stale.commit_now()
    assert refused.conflict is not None and refused.conflict.rule == "stream_was_set_back"
    fresh = begin(store)
    fresh.take_batch(StreamBatch(name=NAME, query="q1", batch=2))
    fresh.write(rows([2]))
    assert rollback(session(store), first, reason="nothing that it takes back is of that query").committed
    assert fresh.commit_now().committed and read_ids(store) == [0, 1, 2]


def test_a_batch_that_was_there_when_it_was_planned_is_not_told_as_committed_once_it_was_taken_back() -> None:
    """[KY6] [KY8]"""
    store = memory()
    write(store, rows([1]))
    before = open_head(store).version
    commit_batch(store, 0)
    again = begin(store)
    again.take_batch(StreamBatch(name=NAME, query="q1", batch=0))
    assert rollback(session(store), before, reason="x").committed
    refused = again.commit_now()
    assert refused.conflict is not None and refused.conflict.rule == "stream_was_set_back"


def test_a_job_whose_record_is_gone_is_not_told_that_its_batch_is_of_another() -> None:
    """It may be its own, after which others went on. [KY6] [CM2]"""
    store = memory()
    write(store, rows([1]))
    first = begin(store)
    first.take_batch(StreamBatch(name=NAME, query="q1", batch=0))
    first.write(rows([10]))
    assert first.commit_now().kind == "committed"
    for batch in (1, 2):
        commit_batch(store, batch)
        gc_run(session(store), Policy(grace_s=0, keep_for_s=0, keep_versions=1, prepared_grace_s=0))
    head = open_head(store)
    assert first.id not in head.snapshot.recent_jobs
    told = settled_outcome(session(store), head, change_of(first), sent=True)
    assert told is not None and told.kind == "unknown"


@pytest.mark.parametrize("how", ["directly", "prepared", "carried"])
def test_a_text_that_came_back_is_set_back_by_a_rollback(store: MemoryStore, how: str) -> None:
    """A to B and back to A since the target: the stale job's rows are the rerun's. [WM6] [CF13]"""
    write(store, rows([11]), key="start", watermarks={SOURCE: (None, "A")})
    before = open_head(store).version
    write(store, rows([12]), key="there", watermarks={SOURCE: ("A", "B")})
    write(store, rows([13]), key="back", watermarks={SOURCE: ("B", "A")})
    job, finish = in_flight(store, how, 14, "twin", "A", "B")
    assert rollback(session(store), before, reason="x").committed
    with pytest.raises(mc.errors.CommitConflictError, match="source_was_set_back"):
        finish(store, job)
    assert write(store, rows([12]), key="there", watermarks={SOURCE: ("A", "B")}).kind == "committed"


# --- a source that a rollback takes back to before its first advance ----------------------------------------------------
@pytest.mark.parametrize("keep_keys", [True, False])
@pytest.mark.parametrize(("first", "anew", "after"), [
    ((0, 5), (100, 200), (200, 300)),
    ((0, 5), None, (5, 8)),
    ((100, 200), (0, 5), (5, 8)),
    ((None, 5), (100, 200), (200, 300)),
    (("a é%", "b"), ("x", "y"), ("y", "z")),
])  # fmt: skip
def test_a_rollback_leads_a_source_that_was_forgotten_back_to_where_it_first_began(
    store: MemoryStore, first: tuple[Any, Any], anew: tuple[Any, Any] | None, after: tuple[Any, Any], keep_keys: bool
) -> None:
    """All that was read of it since the target is gone: who goes on behind any of it gets an error. [CF13] [WM1] [WM5]"""
    before = open_head(store).version
    write(store, rows([11]), key="K1", watermarks={SOURCE: first})
    assert rewind(session(store), SOURCE, None, reason="x", keep_keys=keep_keys).committed
    if anew is not None:
        write(store, rows([12]), key="K2", watermarks={SOURCE: anew})
    assert rollback(session(store), before, reason="x").committed
    for wrong in (anew, after):
        if wrong is not None and wrong[0] != 0:
            with pytest.raises(mc.errors.WatermarkError):
                write(store, rows([13]), key="K2", watermarks={SOURCE: wrong})
    if first[0] != 100:  # else the lower range comes first
        assert write(store, rows([11]), key="K1", watermarks={SOURCE: first}).kind == "committed"
        assert read_ids(store) == [1, 11]
    check_table(store)


def test_a_rollback_leads_a_source_back_to_no_beginning_from_before_its_target(store: MemoryStore) -> None:
    """What was read of it then is in the table. gc drops what no readable version is older than. [CF13] [WM5]"""
    write(store, rows([11]), watermarks={SOURCE: (0, 5)})
    forgotten = rewind(session(store), SOURCE, None, reason="x").version
    target = write(store, rows([12])).version
    assert target is not None and open_head(store).snapshot.forgotten == {SOURCE: ((forgotten, 0),)}
    write(store, rows([13]), watermarks={SOURCE: (100, 200)})
    last = rewind(session(store), SOURCE, None, reason="x").version
    write(store, rows([14]), watermarks={SOURCE: (300, 400)})
    assert rollback(session(store), target, reason="x").committed
    assert positions(store)[SOURCE] == 100 and read_ids(store) == [1, 11, 12]
    mc_tag(store, target)
    gc_run(session(store), Policy(grace_s=0.0, keep_versions=1, keep_for_s=0.0))
    assert open_head(store).snapshot.forgotten == {SOURCE: ((last, 100),)}, "the tagged version is older than that one only"
    assert rollback(session(store), target, reason="x").committed and positions(store)[SOURCE] == 100
    untag(session(store), "before")
    gc_run(session(store), Policy(grace_s=0.0, keep_versions=1, keep_for_s=0.0))
    assert open_head(store).snapshot.forgotten == {}


def test_a_rewind_to_nothing_forgets_a_source_without_a_position(store: MemoryStore) -> None:
    """Afterwards it may begin anywhere. [WM5] [WM1]"""
    before = open_head(store).version
    write(store, rows([11]), watermarks={SOURCE: (None, 5)})
    assert rollback(session(store), before, reason="x").committed
    with pytest.raises(mc.errors.UsageError, match="has no position"):
        rewind(session(store), SOURCE, 3, reason="x")
    assert rewind(session(store), SOURCE, None, reason="x").committed
    assert write(store, rows([12]), watermarks={SOURCE: (7, 8)}).kind == "committed"


def test_a_rewind_to_nothing_forgets_the_source_for_jobs_that_begin_afterwards(store: MemoryStore) -> None:
    """[WM5] [WM6]"""
    write(store, rows([11]), watermarks={SOURCE: (0, 5)})
    job = open_job(store, 12, None, 5, 8)
    set_back(store, "rewind", 0, None)
    with pytest.raises(mc.errors.CommitConflictError) as refused:
        job.commit()
    assert refused.value.rule == "source_was_set_back" and SOURCE not in positions(store)
    assert write(store, rows([13]), watermarks={SOURCE: (100, 200)}).kind == "committed"


# --- a key that was found when the job began ----------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["directly", "prepared"])
@pytest.mark.parametrize("undo", ["rewind", "rollback"])
@pytest.mark.parametrize("collected", [False, True])
def test_work_that_was_undone_is_never_told_as_committed(store: MemoryStore, how: str, undo: str, collected: bool) -> None:
    """Not by what the job saw when it began: gc may have moved the fence past the record since. [KY8] [AB3]"""
    before = open_head(store).version
    session(store)
    if undo == "rollback":
        mc_tag(store, before)
    write(store, rows([11]), key="K", watermarks={SOURCE: (0, 2)})
    job = open_job(store, 12, "K", 0, 2)
    assert job.already_committed
    if how != "directly":
        job.prepare()
    if collected:
        gc_run(session(store), Policy(grace_s=0.0, keep_versions=2, keep_for_s=0.0, prepared_grace_s=0.0))
    set_back(store, undo, before, 0)
    if how == "directly":
        with pytest.raises(mc.errors.CommitConflictError) as refused:
            job.commit()
    else:
        with pytest.raises(mc.errors.CommitConflictError) as refused:
            prepared(store, job)
    assert refused.value.rule == "key_is_gone"
    assert write(store, rows([13]), key="K", watermarks={SOURCE: (0, 2)}).kind == "committed"


def mc_tag(store: Store, version: int) -> None:
    from manifestcommit.operations.rollback import tag

    assert tag(session(store), "before", version).committed


def test_a_key_that_another_job_committed_again_counts(store: MemoryStore) -> None:
    """[KY8] [KY3]"""
    write(store, rows([11]), key="K", watermarks={SOURCE: (0, 2)})
    job = open_job(store, 12, "K", 0, 2)
    set_back(store, "rewind", 0, 0)
    again = write(store, rows([13]), key="K", watermarks={SOURCE: (0, 2)}).version
    outcome = job.commit()
    assert (outcome.kind, outcome.version) == ("already_committed", again)


# --- keys that gc keeps -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("keep", [2, 3])
def test_gc_counts_keys_of_work_that_is_there(store: MemoryStore, keep: int) -> None:
    """Dropped ones are not among those that it keeps: otherwise a live key is forgotten early, and its rerun doubles rows. [KY4]"""
    for number in range(8):
        write(store, rows([10 + number]), key=f"k{number}", watermarks={SOURCE: (number, number + 1)})
    set_back(store, "rewind", 0, 0)
    write(store, rows([30]), key="live")
    for number in range(2):
        gc_run(session(store), Policy(grace_s=0.0, keep_versions=1, keep_for_s=0.0, keep_keys=keep))
        assert key_version(store, "live") is not None
        assert (key_version(store, "first") is not None) == (keep >= 2), number
    assert write(store, rows([30]), key="live").kind == "already_committed"


# --- where sources begin --------------- --------------------------------------------------------------------------------
def test_a_table_may_declare_where_its_sources_begin(tmp_path: Path) -> None:
    """[WM7] [WM1]"""
    root, schema = tmp_path / "t", pa.schema([("id", pa.int64())])
    sources = {"whole numbers": 0, "texts %=+": "é", "nothing": None}
    for _ in range(2):  # again it joins
        mc.create_table(root, schema, sources=sources)
    for source, start, end in (("whole numbers", 5, 8), ("texts %=+", "f", "g"), ("nothing", 5, 8)):
        with pytest.raises((mc.errors.WatermarkGapError, mc.errors.WatermarkMismatchError)):
            mc.write(rows([1]).select(["id"]), root, watermarks={source: (start, end)})  # type: ignore[dict-item]
    for source, start in sources.items():
        end = "z" if isinstance(start, str) else 5
        assert mc.write(rows([1]).select(["id"]), root, watermarks={source: (start, end)}).kind == "committed"
    with pytest.raises(mc.errors.UsageError, match="begins at 0, not at 3"):
        mc.create_table(root, schema, sources={"whole numbers": 3})
    mc.create_table(root, schema, sources={"later": 7})
    assert mc.Table(root).watermarks()["later"] == 7
    with pytest.raises(mc.errors.UsageError, match="None can only be declared with a new table"):
        mc.create_table(root, schema, sources={"unplaced": None})
    with pytest.raises(mc.errors.UsageError, match="non-empty text"):
        mc.create_table(tmp_path / "u", schema, sources={"": 3})


def test_a_source_that_another_job_makes_known_meanwhile_is_not_declared_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has come exactly as far as is declared, so that the advance fits, and begins elsewhere. [WM7]"""
    root, schema = str(tmp_path / "t %+é"), pa.schema({"id": pa.int64()})
    mc.create_table(root, schema)

    def beaten(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        mc.write(pa.table({"id": [1]}), root, watermarks={SOURCE: (2, 3)})
        return commit(*given, **named)

    monkeypatch.setattr(alter, "commit", beaten)
    with pytest.raises(mc.errors.UsageError, match="begins at 2, not at 3"):
        mc.create_table(root, schema, sources={SOURCE: 3})
    assert mc.Table(root).watermarks() == {SOURCE: 3}
    assert mc.create_table(root, schema, sources={SOURCE: 2}).watermarks() == {SOURCE: 3}
