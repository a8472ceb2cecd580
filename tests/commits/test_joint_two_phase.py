"""Jobs of several tables that are prepared together: any process commits all of them or aborts all, killed anywhere. [MT11]"""

import itertools
import re
from collections import Counter
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.commits.tables import DAY, Crash, Lake, append, crashing, sound
from tests.kit.tables import put_back

import manifestcommit as mc
from manifestcommit.commits.commit_loop import abort_attempt, commit
from manifestcommit.commits.joint_commit import TablePart, commit_declared
from manifestcommit.commits.prepared_job import prepared_together, put_prepared, read_prepared, seal
from manifestcommit.commits.two_phase import commit_prepared, give_up, list_jobs, resolve_job, together_of
from manifestcommit.errors import CorruptMetadataError, ManifestCommitError, TableNotFoundError, UndecidedError
from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Prepared, Write
from manifestcommit.format.snapshot import TogetherJob, check_together
from manifestcommit.log.table_context import TableContext
from manifestcommit.operations import gc
from manifestcommit.protocol.retention import Policy
from manifestcommit.runtime.outcome import committed_or_raise
from manifestcommit.store import Store, open_store
from manifestcommit.testing import CountingStore, FaultStore
from manifestcommit.transactions import PreparedTransaction

AT_ONCE = Policy(grace_s=0, keep_for_s=0, keep_versions=1, prepared_grace_s=0)


def prepare(lake: Lake, which: list[int] | None = None, *, but: int | None = None, **change: Any) -> list[str]:
    """Jobs of these tables, prepared together, the home's first; but: one that is not."""
    parts = lake.parts(which, **change)
    together = together_of(parts)
    for number, part in enumerate(parts):
        assert isinstance(part.change, Write)
        sealed = seal(part.ctx, part.head, prepared_together(part.change, together), None)
        if number != but:
            put_prepared(part.ctx, part.change.job, sealed)
    return [each.job for each in together]


def dying(lake: Lake, which: int, after: int) -> TableContext:
    """A process at this table that makes so many requests, of all tables together."""
    on_call = crashing(after)

    class Dying(FaultStore):
        def beside(self, scheme: str, path: str) -> Any:
            return Dying(open_store(f"{scheme}://{path}"), on_call=on_call)

    return TableContext(Dying(open_store(lake.urls[which]), on_call=on_call), lake.env)


# --- committed or aborted by anyone ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("by", [0, 1, 2])
def test_committing_any_one_commits_all_under_their_own_ids(by: int) -> None:
    """Whoever asks afterwards is told the same, also where the objects are gone. [MT11] [MT1] [AB3] [CM23]"""
    lake = Lake(3)
    jobs = prepare(lake)
    assert lake.moved() == [0, 0, 0]
    assert [resolve_job(lake.at(url), job) for url, job in zip(lake.urls, jobs, strict=True)] == ["pending"] * 3
    assert commit_prepared(lake.at(lake.urls[by]), jobs[by]).version == 2
    assert lake.moved() == [1, 1, 1]
    for which, (url, job) in enumerate(zip(lake.urls, jobs, strict=True)):
        assert lake.head(which).snapshot.commits[0].job == job
        again = commit_prepared(lake.at(url), job)
        assert (again.kind, again.version, again.job_id) == ("committed", 2, job)
        assert (resolve_job(lake.at(url), job), give_up(lake.at(url), job).version) == ("committed", 2)
        assert [(each.state, each.version) for each in list_jobs(lake.at(url))] == [("committed", 2)]
    sound(lake)


@pytest.mark.parametrize("by", [0, 1, 2])
def test_aborting_any_one_aborts_all_in_the_home(by: int) -> None:
    """And gc waits for none of them any more. [MT11] [AB4] [AB5] [CM23]"""
    lake = Lake(3)
    jobs = prepare(lake)
    append(lake, 1)
    held = partial(gc._young_prepared, lake.at(lake.urls[1]), lake.head(1), 0.0, below=2)
    assert held() == [1]
    assert give_up(lake.at(lake.urls[by]), jobs[by]).kind == "aborted"
    assert held() == []
    assert lake.head(0).snapshot.recent_jobs[jobs[0]] is None and lake.head(1).version == 2
    for url, job in zip(lake.urls, jobs, strict=True):
        assert resolve_job(lake.at(url), job) == "aborted"
        assert commit_prepared(lake.at(url), job).kind == give_up(lake.at(url), job).kind == "aborted"
        assert [each.state for each in list_jobs(lake.at(url))] == ["aborted"]
    assert lake.moved() == [0, 0, 0]
    sound(lake)


def test_a_job_whose_home_cannot_be_asked_holds_the_fence(lake: Lake) -> None:
    """[AB5] [MT11]"""

    class Alone(FaultStore):
        beside = Store.beside

    prepare(lake)
    append(lake, 1)
    assert gc._young_prepared(TableContext(Alone(open_store(lake.urls[1])), lake.env), lake.head(1), 0.0, below=2) == [1]


@pytest.mark.parametrize("missing", [0, 1, 2])
@pytest.mark.parametrize("by", [0, 1, 2])
def test_one_that_is_missing_is_aborted_with_all_others(missing: int, by: int) -> None:
    """The coordinator died while it prepared them, or gc has taken one. [MT11]"""
    if missing == by:
        return
    lake = Lake(3)
    jobs = prepare(lake, but=missing)
    assert commit_prepared(lake.at(lake.urls[by]), jobs[by]).kind == "aborted"
    assert lake.moved() == [0, 0, 0] and lake.head(0).snapshot.recent_jobs[jobs[0]] is None
    assert {resolve_job(lake.at(lake.urls[which]), jobs[which]) for which in range(3) if which != missing} == {"aborted"}
    assert [lake.head(which).version for which in (1, 2)] == [1, 1]


def test_a_conflict_leaves_all_prepared_under_the_next_attempt(lake: Lake) -> None:
    """And is raised as that of its table, whichever is committed; once it is resolved, all commit. [MT11] [WM2]"""
    parts = lake.parts()
    advance = msgspec.structs.replace(parts[1].change.advances[0], start=1, end=2)  # type: ignore[union-attr]
    parts[1] = msgspec.structs.replace(parts[1], change=msgspec.structs.replace(parts[1].change, advances=(advance,)))
    session = lake.at(lake.urls[1])
    head = session.open()
    begin = msgspec.structs.replace(advance, start=None, end=0)
    assert commit(session, head, Write(job=session.new_job(head), birth=1, operation="append", advances=(begin,))).committed
    together = together_of(parts)
    for part in parts:
        put_prepared(part.ctx, part.change.job, seal(part.ctx, part.head, prepared_together(part.change, together), None))  # type: ignore[arg-type]
    for which in (0, 1):
        session = lake.at(lake.urls[which])
        with pytest.raises(mc.errors.WatermarkGapError, match=re.escape(open_store(lake.urls[1]).url)):
            committed_or_raise(commit_prepared(session, parts[which].change.job), session.store.url)
        assert [each.state for each in list_jobs(lake.at(lake.urls[which]))] == ["prepared"]
    assert lake.moved() == [0, 0]
    session = lake.at(lake.urls[1])
    head = session.open()
    closing = msgspec.structs.replace(advance, start=0, end=1)
    assert commit(session, head, Write(job=session.new_job(head), birth=2, operation="append", advances=(closing,))).committed
    assert commit_prepared(lake.at(lake.urls[0]), together[0].job).committed
    assert lake.moved() == [1, 2]
    sound(lake)


def test_all_who_commit_make_the_same_attempt(lake: Lake) -> None:
    """Which begins where the home says that the ones before were aborted: nobody makes a void member, or waits. [MT9] [MT11]"""
    jobs = prepare(lake)
    abort_attempt(lake.at(lake.urls[0]), object_names.attempt_id(jobs[0], 1))
    before = lake.env.waited_us
    assert commit_prepared(lake.at(lake.urls[1]), jobs[1]).version == 2
    pending = lake.newest(1).pending
    assert pending is not None and pending.attempt == 2 and lake.env.waited_us - before < 100_000


def test_who_is_an_attempt_behind_joins_the_next_at_once(lake: Lake) -> None:
    """Another process aborted it and goes on: to wait for that one would abort it, too. [MT9] [MT11]"""
    jobs = prepare(lake)
    late = dying(lake, 1, 10**6)
    known: list[int] = []
    store = late.store

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        if not known:
            known.append(1)
            abort_attempt(lake.at(lake.urls[0]), object_names.attempt_id(jobs[0], 1))
            with pytest.raises(Crash):
                _until_placed(lake, jobs)
        return type(store).put_if_absent(store, *args, **kwargs)

    store.put_if_absent = overtaken  # type: ignore[method-assign]
    before = lake.env.waited_us
    assert commit_prepared(late, jobs[1]).committed and lake.moved() == [1, 1]
    pending = lake.newest(1).pending
    assert pending is not None and pending.attempt == 2 and lake.newest(1).void == ()
    assert lake.env.waited_us - before < 1_000_000


def test_who_is_overtaken_by_the_next_attempt_reports_its_versions(lake: Lake) -> None:
    """It has placed its members when others abort that attempt, and commit the same jobs by the next. [MT11] [CM10] [MT7]"""
    jobs = prepare(lake)
    store = open_store(lake.urls[0])
    late: list[Any] = []

    def overtake(call: Any) -> None:
        if not late and call.kind == "put_if_absent" and object_names.parse_version(call.name) is not None:
            late.append(None)
            append(lake, 1)
            late[0] = commit_prepared(lake.at(lake.urls[1]), jobs[1])

    home = TableContext(FaultStore(store, on_call=overtake), lake.env)
    prepared = {job: read_prepared(lake.at(url), job) for url, job in zip(lake.urls, jobs, strict=True)}
    opened = zip(jobs, (home, lake.at(lake.urls[1])), strict=True)
    made = [TablePart(ctx=at, head=at.open(), change=prepared[job].change, is_prepared=True) for job, at in opened]
    found = commit_declared(made)
    member = made[1]
    assert late[0].version == found[member.table_id].version == lake.head(1).snapshot.recent_jobs[jobs[1]]
    assert found[member.table_id].version not in lake.head(1).snapshot.void


def _until_placed(lake: Lake, jobs: list[str]) -> None:
    for after in itertools.count(1):
        try:
            commit_prepared(dying(lake, 0, after), jobs[0])
        except Crash:
            pending = lake.newest(1).pending
            if pending is not None and pending.attempt == 2:
                raise


# --- killed anywhere ------------------------------------------------------------------------------------------------------
# --- refused --------------------------------------------------------------------------------------------------------------
def test_what_other_tables_lost_of_it_is_never_committed_alone(lake: Lake) -> None:
    """The home was removed: nothing decides; its own table aborts the job. [MT11]"""
    jobs = prepare(lake)
    put_back(open_store(lake.urls[0]))
    with pytest.raises(TableNotFoundError, match=r"by the table at .* which was removed"):
        commit_prepared(lake.at(lake.urls[1]), jobs[1])
    assert resolve_job(lake.at(lake.urls[1]), jobs[1]) == "pending" and int(lake.head(1).snapshot.watermarks.get("s") or 0) == 0
    assert give_up(lake.at(lake.urls[1]), jobs[1]).kind == "aborted"
    assert resolve_job(lake.at(lake.urls[1]), jobs[1]) == "aborted"


@pytest.mark.parametrize("fenced", [0, 1])
def test_a_fence_above_one_of_them_aborts_all(fenced: int, lake: Lake) -> None:
    """And whoever commits one of them is told. [MT11] [AB5] [CM2]"""
    jobs = prepare(lake)
    data = open_store(lake.urls[fenced]).get(object_names.prepared_name(jobs[fenced]))
    append(lake, fenced)
    gc.run(lake.at(lake.urls[fenced]), AT_ONCE)
    assert lake.head(fenced).snapshot.fence > 1
    open_store(lake.urls[fenced]).put(object_names.prepared_name(jobs[fenced]), data)
    outcome = commit_prepared(lake.at(lake.urls[1 - fenced]), jobs[1 - fenced])
    assert outcome.kind == ("aborted" if fenced else "fenced") and lake.moved() == [0, 0]
    other = lake.at(lake.urls[1 - fenced])
    said = "aborted" if fenced else "fenced"
    assert resolve_job(other, jobs[1 - fenced]) == said and [each.state for each in list_jobs(other)] == [said]


def test_what_a_home_has_forgotten_the_own_table_tells(lake: Lake) -> None:
    """The home can decide nothing any more, and its versions since then are gone: nobody is left with a job that is prepared for ever.
    [MT11] [CM2] [AB4]"""
    jobs = prepare(lake)
    for _ in range(2):
        append(lake, 0)
        gc.run(lake.at(lake.urls[0]), AT_ONCE)
    assert lake.head(0).snapshot.expired > 2, "the version that may have carried the home's job is gone"
    other = lake.at(lake.urls[1])
    assert [each.state for each in list_jobs(other)] == ["fenced"]
    assert commit_prepared(other, jobs[1]).kind == give_up(other, jobs[1]).kind == "fenced" and lake.moved() == [0, 0]
    assert resolve_job(other, jobs[1]) == "fenced"


def test_what_the_own_table_has_forgotten_the_home_tells(lake: Lake) -> None:
    """That it was committed, and no version: gc has taken what recorded which. [MT11] [GC8] [CM10]"""
    jobs = prepare(lake)
    assert commit_prepared(lake.at(lake.urls[0]), jobs[0]).version == 2
    kept = read_prepared(lake.at(lake.urls[1]), jobs[1])
    assert kept is not None
    for _ in range(3):
        append(lake, 1)
        gc.run(lake.at(lake.urls[1]), AT_ONCE)
    put_prepared(lake.at(lake.urls[1]), jobs[1], codec.encode_prepared(kept))  # as a list by gc that is old, or a put that is late
    assert jobs[1] not in lake.head(1).snapshot.recent_jobs and lake.head(1).snapshot.expired > 2
    said = commit_prepared(lake.at(lake.urls[1]), jobs[1])
    assert (said.kind, said.version) == ("committed", None) and lake.moved() == [1, 1]


def _changed(prepared: Prepared, together: tuple[TogetherJob, ...]) -> bytes:
    return codec.encode_prepared(msgspec.structs.replace(prepared, change=msgspec.structs.replace(prepared.change, together=together)))


def test_jobs_that_name_each_other_differently_are_refused() -> None:
    """[MT11] [SE2]"""
    lake = Lake(3)
    jobs = prepare(lake)
    session = lake.at(lake.urls[1])
    own = read_prepared(session, jobs[1])
    first, second, third = own.change.together
    for others, where in (((first, second), 1), ((second, first, third), 1)):
        session.store.put(object_names.prepared_name(jobs[1]), _changed(own, others))
        with pytest.raises(CorruptMetadataError, match="do not name the same tables"):
            commit_prepared(lake.at(lake.urls[where]), jobs[where])
    elsewhere = (msgspec.structs.replace(first, root="s3://other/table"), second, third)
    session.store.put(object_names.prepared_name(jobs[1]), _changed(own, elsewhere))
    with pytest.raises(UndecidedError, match="not in the same store"):
        commit_prepared(lake.at(lake.urls[1]), jobs[1])
    assert lake.moved() == [0, 0, 0]


def test_another_table_as_the_home_is_refused_where_all_jobs_agree_on_it() -> None:
    """The order of tables chooses it, so that two coordinators that died never wait for each other. [MT2] [MT11] [SE2]"""
    lake = Lake(3)
    jobs = prepare(lake)
    for url, job in zip(lake.urls, jobs, strict=True):
        session = lake.at(url)
        own = read_prepared(session, job)
        first, second, third = own.change.together
        session.store.put(object_names.prepared_name(job), _changed(own, (second, first, third)))
    for url, job in zip(lake.urls, jobs, strict=True):
        with pytest.raises(CorruptMetadataError, match="or not the one first that decides"):
            commit_prepared(lake.at(url), job)
    assert lake.moved() == [0, 0, 0]


def test_what_is_no_set_of_jobs_is_refused() -> None:
    """[MT11] [OB4]"""
    jobs = [TogetherJob(root=f"s3://lake/{at}", table_id=f"{at:016x}", job=f"v1-{at:016x}-{'a' * 32}") for at in range(33)]
    check_together(jobs[:32], jobs[0].job)
    wrong = {
        "2 to 32 tables, not 1": jobs[:1],
        "2 to 32 tables, not 33": jobs,
        "the id of another table": [jobs[0], msgspec.structs.replace(jobs[1], table_id="0" * 16)],
        "a table of its joint commit twice": [jobs[0], jobs[0]],
        "not one of the jobs": jobs[1:3],
    }
    for message, together in wrong.items():
        with pytest.raises(ValueError, match=message):
            check_together(together, jobs[0].job)
    with pytest.raises(msgspec.ValidationError, match="root"):
        msgspec.convert(msgspec.to_builtins(jobs[0]) | {"root": "lake"}, TogetherJob)


def test_an_intent_is_never_part_of_a_joint_commit(lake: Lake) -> None:
    """[MT3] [CM20]"""
    jobs = prepare(lake)
    data = open_store(lake.urls[0]).get(object_names.prepared_name(jobs[0]))
    with pytest.raises(CorruptMetadataError, match="for several tables"):
        codec.decode_intent(data, name=object_names.intent_name(jobs[0]))


# --- through the public calls, on a disk ----------------------------------------------------------------------------------
def rows(paths: list[str]) -> list[int]:
    return [table.to_arrow().num_rows for table in mc.read_together(paths)]


def begun(paths: list[str], key: str | None = None) -> list[mc.Job]:
    jobs = [mc.begin(path, key=key) for path in paths]
    for job in jobs:
        job.write(DAY)
    return jobs


def test_prepared_here_and_committed_there(paths: list[str]) -> None:
    """[MT11] [KY3]"""
    prepared = mc.transaction(begun(paths, key="day 1 é")).prepare()
    assert rows(paths) == [0, 0, 0] and list(prepared.jobs) == [mc.Table(path).url for path in paths]
    elsewhere = PreparedTransaction(prepared.jobs)
    outcome = elsewhere.commit()
    assert list(outcome.versions.values()) == [2, 2, 2] and prepared.commit().versions == outcome.versions
    assert rows(paths) == [2, 2, 2] and prepared.abort() == "committed"
    again = begun(paths, key="day 1 é")
    assert mc.transaction(again).prepare().commit().already_committed and rows(paths) == [2, 2, 2]


def test_a_transaction_that_is_prepared_is_left_by_its_block(paths: list[str]) -> None:
    """[MT11]"""
    with mc.transaction(paths[:2]) as tx:
        for name in tx:
            tx[name].write(DAY)
        prepared = tx.prepare()
    assert tx.outcome is None and rows(paths[:2]) == [0, 0]
    assert prepared.abort() == "aborted" and prepared.abort() == "aborted"
    with pytest.raises(mc.errors.JobAbortedError):
        prepared.commit()
    assert rows(paths[:2]) == [0, 0]


def test_preparing_again_puts_the_same_and_nothing_else(paths: list[str]) -> None:
    """[MT11] [AB3]"""
    jobs = begun(paths)
    tx = mc.transaction(jobs)
    prepared = tx.prepare()
    assert tx.prepare().jobs == prepared.jobs
    for wrong in (lambda: mc.transaction(jobs[:2]), jobs[0].prepare):
        with pytest.raises(mc.errors.UsageError, match="belongs to a transaction"):
            wrong()
    with pytest.raises(mc.errors.UsageError, match="was prepared"):
        tx.commit()
    alone = begun(paths)
    alone[0].prepare()
    with pytest.raises(mc.errors.UsageError, match="prepared in another way"):
        mc.transaction(alone).prepare()
    assert list(prepared.commit().versions.values()) == [2, 2, 2]


def test_a_fenced_job_is_not_prepared(paths: list[str]) -> None:
    """Neither alone nor with others, of which none is prepared then. [AB3] [CM2] [MT11]"""
    jobs, alone = begun(paths[:2]), begun(paths[1:2])[0]
    mc.write(DAY, paths[1])
    mc.gc(paths[1], grace="0s")
    with pytest.raises(mc.errors.JobFencedError):
        mc.transaction(jobs).prepare()
    with pytest.raises(mc.errors.JobFencedError):
        alone.prepare()
    assert [mc.Table(path).jobs() for path in paths[:2]] == [[], []]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_preparing_n_tables_takes_2n_requests(count: int) -> None:
    """A list, which sees a fence, and a create for each. [MT11] [CM11]"""
    lake = Lake(count)
    parts = lake.parts()
    together = together_of(parts)
    calls: list[Any] = []
    for part in parts:
        store = CountingStore(part.ctx.store)
        session = TableContext(store, lake.env)
        put_prepared(session, part.change.job, seal(session, part.head, prepared_together(part.change, together), None))  # type: ignore[arg-type]
        calls += store.calls
    assert Counter(call.kind for call in calls) == {"list": count, "put_if_absent": count}


def test_a_store_that_fails_leaves_the_rest_to_the_next_call(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """[MT11] [AB3]"""
    jobs = begun(paths[:2])
    real = type(jobs[0]).make_durable
    failed: list[Any] = []

    def once(job: Any) -> str:
        if len(failed) == 1:
            failed.append(job)
            raise mc.errors.StoreError("away")
        failed.append(job)
        return real(job)

    monkeypatch.setattr(type(jobs[0]), "make_durable", once)
    tx = mc.transaction(jobs)
    with pytest.raises(ManifestCommitError, match="away"):
        tx.prepare()
    assert tx.prepare().commit().versions and rows(paths[:2]) == [2, 2]
