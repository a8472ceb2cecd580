"""Recoverable jobs of several tables: of runs that share jobs, the work of one is committed in all tables. [AB6] [MT3] [MT6] [MT9]"""

import itertools
import random
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.commits.tables import DAY, Crash, Hurried, Lake, append, crashing, sound, watched
from tests.kit.faults import Turns
from tests.kit.sizes import rounds
from tests.kit.tables import rollback, unread

import manifestcommit as mc
from manifestcommit.commits.commit_loop import commit
from manifestcommit.commits.joint_commit import TablePart, commit_jointly
from manifestcommit.errors import JobAbortedError, JobFencedError, StoreError, StoreUnclearError, UsageError
from manifestcommit.format import object_names
from manifestcommit.format.change import Write
from manifestcommit.runtime.outcome import Outcome

KEY = "day 1 é"


class Impatient(Hurried):
    """Who waits or asks for ever fails."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = itertools.count()

    def now_us(self) -> int:
        assert next(self._looks) < 5000, "nobody will ever decide this"
        return super().now_us()


@pytest.fixture
def lake() -> Lake:
    made = Lake(3)
    made.env = Impatient()
    return made


def run_of(lake: Lake, which: Sequence[int] = (0, 1, 2), *, end: int = 1, **change: Any) -> list[TablePart]:
    """One run of recoverable jobs, which moves the source `s` of each table to `end`; the next one shares its jobs by `again`."""
    return [msgspec.structs.replace(_ending(part, end), is_recoverable=True) for part in lake.parts(which, key=KEY, **change)]


def _ending(part: TablePart, end: int) -> TablePart:
    assert isinstance(part.change, Write)
    advances = (msgspec.structs.replace(part.change.advances[0], end=end),)
    return msgspec.structs.replace(part, change=msgspec.structs.replace(part.change, advances=advances))


def again(lake: Lake, parts: Sequence[TablePart], *, end: int, other: Sequence[int] = (), **change: Any) -> list[TablePart]:
    """Another run of these jobs, which wrote something else. other: those of which it has found no earlier attempt, so that its job is
    another one."""
    found = []
    for number, part in enumerate(parts):
        session = lake.at(part.url)
        made = _ending(part, end).change
        job = session.new_job(part.head) if number in other else made.job
        assert isinstance(made, Write)
        found.append(msgspec.structs.replace(part, ctx=session, change=msgspec.structs.replace(made, job=job, **change)))
    return found


def meeting(parts: Sequence[TablePart], at: int, meet: Any) -> list[TablePart]:
    """The parts in a process that stands still before request number `at` of all tables together, while `meet` happens."""
    count = itertools.count()

    def on_call(call: Any) -> None:
        if next(count) == at:
            meet()

    return watched(parts, on_call)


def recorded(lake: Lake) -> list[int | None]:
    """The version at which each table records the key."""
    return [record.version if (record := head.snapshot.keys.get(KEY)) else None for head in lake.heads()]


# --- two runs of the same jobs --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("left", [1, 2])
def test_what_a_dead_run_has_placed_is_not_mixed_with_what_its_rerun_wrote(lake: Lake, left: int) -> None:
    """The id of a job says nothing of its input: a rerun with other input has the same. So it aborts the attempt. [AB6] [MT3] [MT9]"""
    parts = run_of(lake, end=1)
    died_with(parts, left)
    assert lake.moved() == [0, 0, 0] and [lake.newest(which).pending is not None for which in (1, 2)] == [True, left == 2]
    outcomes = commit_jointly(again(lake, parts, end=5))
    assert [each.kind for each in outcomes] == ["committed"] * 3 and lake.moved() == [5, 5, 5]
    assert [each.version for each in outcomes] == recorded(lake) == [head.version for head in lake.heads()]
    assert [each.job_id for each in outcomes] == [head.snapshot.commits[0].job for head in lake.heads()]
    assert lake.head(1).snapshot.void == (2,), "one void version, of the dead run"
    sound(lake)


def died_with(parts: Sequence[TablePart], creates: int) -> None:
    """This run dies once it has created so many versions."""
    creating = crashing(creates, lambda call: call.kind == "put_if_absent" and call.name.startswith(object_names.VERSIONS))
    with pytest.raises(Crash):
        commit_jointly(watched(parts, creating))


def test_a_rerun_begins_with_the_attempt_after_those_that_were_aborted(lake: Lake) -> None:
    """As whoever commits prepared jobs. [MT9]"""
    parts = run_of(lake)
    died_with(parts, 1)
    append(lake, 1)
    assert {each.kind for each in commit_jointly(again(lake, parts, end=1))} == {"committed"}
    assert lake.moved() == [1, 1, 1] and lake.head(1).snapshot.void == (2,)
    sound(lake)


OTHERS = {"the same jobs": (), "another home's": (0,), "another first member's": (1,), "another last member's": (2,), "no job": (0, 1, 2)}


@pytest.mark.parametrize("at", range(10))
@pytest.mark.parametrize("shared", OTHERS)
def test_a_run_whose_work_was_committed_by_another_and_undone_is_told_so(lake: Lake, shared: str, at: int) -> None:
    """Wherever it stood still; what it had placed holds up nobody. [AB6] [MT6]"""
    old = run_of(lake, end=1)
    twin = again(lake, old, end=5, other=OTHERS[shared])

    def meet() -> None:
        assert {each.kind for each in commit_jointly(twin)} == {"committed"}
        for which in range(3):
            assert rollback(lake.at(lake.urls[which]), version=1, reason="r", alone=True).committed

    outcomes = commit_jointly(meeting(old, at, meet))
    assert {each.kind for each in outcomes} - {"aborted"} in ({"key_reused"}, {"conflict"}) and lake.moved() == [0, 0, 0]
    assert [append(lake, which) > 1 for which in range(3)] == [True] * 3
    sound(lake)


# --- runs that commit other tables ----------------------------------------------------------------------------------------
def run_in_turns(lake: Lake, runs: Sequence[Sequence[TablePart]], dice: random.Random) -> list[Sequence[Outcome] | None]:
    """All runs at once, whose requests take turns by the dice; up to a third of them die at one. The outcomes of each; None: it died."""
    turns = Turns(dice.randrange(1 << 32), len(runs))
    results: list[Any] = [None] * len(runs)
    last = [dice.choice([None, None, dice.randrange(30)]) for _ in runs]

    def go(number: int) -> None:
        requests = itertools.count()

        def on_call(call: Any) -> None:
            turns.wait(number)
            if last[number] is not None and next(requests) >= last[number]:
                raise Crash

        try:
            results[number] = commit_jointly(watched(runs[number], on_call))
        except Crash:
            pass
        except BaseException as error:
            results[number] = error
        finally:
            turns.leave()

    threads = [threading.Thread(target=go, args=(number,)) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "nobody goes on"
    for each in results:
        if isinstance(each, BaseException):
            raise each
    return results


@pytest.mark.thorough
def test_of_runs_that_meet_and_die_anywhere_the_work_of_one_is_in_all_of_its_tables() -> None:
    """Some find an earlier attempt in some tables only, and some have fewer tables. [AB6] [MT1] [MT3] [MT6] [MT9]"""
    seen: Counter[str] = Counter()
    for seed in range(rounds(25, 1500)):
        dice = random.Random(seed)
        lake = Lake(3)
        lake.env = Impatient()
        first = run_of(lake)
        runs: list[list[TablePart]] = []
        for number in range(dice.choice([2, 3])):
            other = [which for which in range(3) if number and dice.random() < 0.25]
            tables = [0, 1, 2] if dice.random() < 0.85 else dice.choice([[0, 1], [0, 2], [1, 2]])
            parts = again(lake, first, end=number + 1, other=other)
            runs.append([parts[which] for which in tables])
        results = run_in_turns(lake, runs, dice)
        for which in range(3):
            append(lake, which)  # which decides what is pending
        moved = lake.moved()
        ends = {end for end in moved if end}
        assert len(ends) <= 1 and (ends or not any(results)), f"{seed}: {results} leave {moved}"
        for end in ends:
            tables = [lake.urls.index(part.url) for part in runs[end - 1]]
            assert tables == [which for which in range(3) if moved[which]], f"{seed}: {moved}"
        for number, outcomes in enumerate(results):
            kinds = {"dead"} if outcomes is None else {each.kind for each in outcomes}
            seen["/".join(sorted(kinds))] += 1
            assert outcomes is None or (number + 1 in ends) == (kinds == {"committed"}), f"{seed}: {kinds} of run {number}, {moved}"
            if outcomes is not None and kinds <= {"committed", "already_committed"}:
                records = [lake.head(lake.urls.index(part.url)).snapshot.keys[KEY].version for part in runs[number]]
                assert records == [each.version for each in outcomes], f"{seed}: {outcomes}"
        sound(lake)
    assert min(seen[kind] for kind in ("dead", "committed", "already_committed", "aborted/key_reused")) > 0, seen


def test_a_member_of_a_table_that_the_rerun_has_no_more_is_aborted(lake: Lake) -> None:
    """The home's job is that of both; it has committed, and not with this member. [MT6] [AB6]"""
    parts = run_of(lake, end=1)
    died_with(parts, 1)
    assert {each.kind for each in commit_jointly(again(lake, [parts[0], parts[2]], end=5))} == {"committed"}
    assert lake.moved() == [5, 0, 5]
    assert append(lake, 1) == 3 and lake.head(1).snapshot.void == (2,), "nobody waits for it"
    assert "key_reused" in {each.kind for each in commit_jointly(again(lake, parts, end=1))} <= {"key_reused", "aborted"}
    assert lake.moved() == [5, 0, 5]
    sound(lake)


def test_a_job_that_its_table_has_not_committed_yet_says_nothing_of_its_members(lake: Lake) -> None:
    """The home of one run is a member of another: what stands in its undecided version is not committed. [MT6]"""
    first = lake.parts([1, 2], key=KEY)  # whoever commits these goes on with their members
    died_with(first, 1)
    other = [*run_of(lake, [0], end=5), *again(lake, first[:1], end=5)]
    died_with(other, 1)
    assert first[0].change.job in lake.newest(1).recent_jobs
    assert not lake.head(2).is_void, "it is undecided"
    assert {each.kind for each in commit_jointly(first)} == {"committed"}
    assert lake.moved() == [0, 1, 1]
    sound(lake)


@pytest.mark.parametrize("at", range(14))
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_job_that_was_committed_alone_is_no_member(lake: Lake, which: int, at: int) -> None:
    """By a program that writes one of the tables under the same key, at any moment before the decision. [MT4] [KY2]"""
    parts = run_of(lake, end=1)
    alone = again(lake, parts, end=5)[which]

    def meet() -> None:
        assert commit(alone.ctx, alone.head, alone.change).committed

    outcomes = commit_jointly(meeting(parts, at, meet))
    assert "key_reused" in {each.kind for each in outcomes} <= {"key_reused", "aborted"}
    assert lake.moved() == [5 if each == which else 0 for each in range(3)]
    assert not any(head.snapshot.joint for head in lake.heads())
    sound(lake)


# --- a rerun, by the public calls -----------------------------------------------------------------------------------------
def begun(paths: Sequence[str], data: Any = DAY, *, finished: Sequence[str] = ()) -> mc.Transaction:
    """A run that has written the day, of whose tables these are taken over from an earlier run."""
    tx = mc.transaction(paths, key=KEY, recoverable=True, fingerprint="day 1 of input 1")
    for path in paths:
        tx[path].write(unread(DAY) if path in finished else data)
    return tx


def ids(paths: Sequence[str], tx: mc.Transaction) -> list[str]:
    return [tx[path].id for path in paths]


def counts(paths: Sequence[str]) -> list[int]:
    found = [table.to_arrow().num_rows for table in mc.read_together(paths)]
    assert all(mc.Table(path).verify(deep=True).is_sound for path in paths)
    return found


def test_a_rerun_goes_on_with_the_job_of_each_table_and_reads_nothing_that_was_finished(paths: list[str]) -> None:
    """[AB6] [MT1] [MT13]"""
    dead = begun(paths)
    rerun = begun(paths, finished=paths)
    assert ids(paths, rerun) == ids(paths, dead) and counts(paths) == [0, 0, 0]
    outcome = rerun.commit()
    assert [each.job_id for each in outcome.outcomes.values()] == ids(paths, dead) and not outcome.already_committed
    late = dead.commit()
    assert late.already_committed and late.versions == outcome.versions and counts(paths) == [2, 2, 2]
    assert begun(paths, finished=paths).commit().already_committed and counts(paths) == [2, 2, 2]
    for path in paths:
        assert mc.Table(path).metrics().files == 1, "the files of the dead run"


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("fenced", [False, True])
def test_a_job_that_is_over_is_begun_anew_and_the_others_go_on(paths: list[str], which: int, fenced: bool) -> None:
    """Aborted, or fenced by gc; the error names its table. [AB4] [AB6] [CM2]"""
    dead = begun(paths)
    at, old = paths[which], ids(paths, dead)
    if fenced:
        mc.write(DAY, at)
        mc.Table(at).gc(grace="0s", keep_for="0s", keep_versions=1)
    else:
        assert mc.Table(at).abort(old[which]) == "aborted"
    with pytest.raises(JobFencedError if fenced else JobAbortedError, match=old[which]):
        dead.commit()
    assert counts(paths) == [2 if fenced and path == at else 0 for path in paths]
    rerun = begun(paths, finished=[path for path in paths if path != at])
    assert [one == other for one, other in zip(ids(paths, rerun), old, strict=True)] == [path != at for path in paths]
    rerun.commit()
    assert counts(paths) == [4 if fenced and path == at else 2 for path in paths]


def test_recoverable_jobs_are_not_prepared_together(paths: list[str]) -> None:
    """A rerun that goes on with some of them only would prepare these in another way. [MT11]"""
    with mc.transaction(paths, key=KEY, recoverable=True, fingerprint="f") as tx:
        with pytest.raises(UsageError, match=r"not prepared together; nothing was done\. Commit them by commit\(\)"):
            tx.prepare()
        tx[paths[0]].write(DAY)
    assert counts(paths) == [2, 0, 0]
    with pytest.raises(UsageError, match="needs a key"):
        mc.transaction(paths, recoverable=True, fingerprint="f")
    with pytest.raises(UsageError, match="needs a fingerprint"):
        mc.transaction(paths, key="another", recoverable=True)


def test_an_unclear_member_says_only_of_this_run_that_it_committed_nothing(lake: Lake) -> None:
    """Another run may have. [AB6] [CM6]"""

    def on_call(call: Any) -> None:
        if call.kind == "put_if_absent":
            raise StoreUnclearError("no answer")

    with pytest.raises(StoreError, match="This call committed nothing in any table; trying again is safe"):
        commit_jointly(watched(run_of(lake), on_call))
