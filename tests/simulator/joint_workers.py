"""Deeds over all tables of a theme: joint commits, in one or two phases, and joint reads, each reported to the oracle of every table, and
recorded in its history. [MT1] [MT11] [MT12]
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import pyarrow as pa
from tests.simulator.oracle import Oracle
from tests.simulator.version_rules import birth_of, refusing
from tests.simulator.workers import DAYS, Split, Work, Worker, World, shared_job

from manifestcommit.commits.joint_commit import commit_jointly, read_jointly
from manifestcommit.commits.prepared_job import prepare_jointly
from manifestcommit.commits.two_phase import commit_prepared, give_up, together_of
from manifestcommit.errors import JobFencedError, StoreError
from manifestcommit.format import object_names
from manifestcommit.format.snapshot import TogetherJob
from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.quarantine import split
from manifestcommit.runtime.outcome import Outcome
from manifestcommit.store import StorageOptions
from manifestcommit.testing.history.operation import EVERYTHING, FOR_EVER, REFUSALS, Operation, Running

_REFUSED = tuple(kind for kind, _ in REFUSALS)
# why a table has refused what another one could not take: of which rule, its history cannot know
_ELSEWHERE = "another table"


def publish_together(crew: Sequence[Worker], work: Work) -> None:
    """One job in each of these tables, committed by one commit. crew: this actor in each table."""
    with _attempting(crew, "publish together", msgspec.to_builtins(work)) as running:
        _commit_together(crew, running, [worker.written(each, work) for worker, each in zip(crew, running, strict=True)])


def quarantine(crew: Sequence[Worker], work: Work) -> None:
    """A row of each day for the first of these two tables; what violates a constraint of it goes into the second, by one commit. [CK7]"""
    rows = pa.table({"id": range(len(DAYS)), "day": pa.array(DAYS, pa.string())})
    with _attempting(crew, "quarantine", msgspec.to_builtins(work)) as running:
        jobs = [Job(worker.ctx, key=work.key, fingerprint=work.key) for worker in crew]
        split(rows, jobs[0], jobs[1], {"partition_by": ["day"]}, StorageOptions(None))
        written = [worker.declare_job(one, job) for worker, one, job in zip(crew, running, jobs, strict=True)]
        crew[0].world.splits.append(Split(key=work.key, jobs=tuple(each.job for _, each in written)))
        _commit_together(crew, running, written)


def check_splits(world: World) -> None:
    """Of each write, every row is once in the table or in its quarantine, or none is in either, and a row is refused where a constraint of
    the version at which the write began refuses it; of each key there is one write. [CK7] [KY3]"""
    oracle, done = world.oracle, Counter[str]()
    for each in world.splits:
        kept, refused = (_rows_of(beside.oracle, job) for beside, job in zip(world.beside.values(), each.jobs, strict=True))
        if not kept and not refused:
            continue
        held = {one.condition for one in oracle.chain[birth_of(each.jobs[0]) - 1].snapshot.constraints.values()}
        if sorted(map(repr, kept + refused)) != sorted(map(repr, DAYS)) or any(refusing(day) not in held for day in refused):
            oracle.fail(f"of {each} the rows {kept} are in the table, and {refused} in its quarantine [CK7]")
        done[each.key or each.jobs[0]] += 1
        if done[each.key or each.jobs[0]] > 1:
            oracle.fail(f"the rows of {each.key!r} were written twice [CK7] [KY3]")


def _rows_of(oracle: Oracle, job: str) -> list[Any]:
    """The days of the rows that a job has committed."""
    version = oracle.committed().get(job)
    files = oracle.chain[version - 1].files if version is not None else {}
    return [day for path, (day,) in files.items() if object_names.job_of_data_file(path) == job]


def _commit_together(crew: Sequence[Worker], running: Sequence[Running], written: Sequence[tuple[Job, Operation]]) -> None:
    told = [each for _, each in written]
    crew[0].world.joint.append({each.table: each.job for each in told})
    for worker in crew:
        worker.asks()
    try:
        outcomes = commit_jointly([job.take_part() for job, _ in written])
    except StoreError as error:  # before anything was decided
        for worker, each, one in zip(crew, told, running, strict=True):
            worker.world.oracle.told_not(each.job, f"not committed ({type(error).__name__})")
            one.refused("store")
        raise
    for worker, each, outcome, one in zip(crew, told, outcomes, running, strict=True):
        _settled(worker, one, outcome, each)
        worker.note(f"publish together: {outcome.kind} {outcome.version}")


def _settled(worker: Worker, running: Running, outcome: Outcome, told: Operation) -> None:
    if outcome.kind in ("aborted", "key_reused"):  # for a reason that another table has, or may
        running.refused(_ELSEWHERE)
        worker.world.oracle.told_not(told.job, outcome.kind)
    else:
        worker.settled(running, outcome, told)


def read_together(crew: Sequence[Worker]) -> None:
    """One version of each table, in which each joint commit is in all of them or in none."""
    with ExitStack() as stack:
        running = [stack.enter_context(worker.attempting("read together", {}, outcome="failed")) for worker in crew]
        _join(crew, running)
        known = [worker.world.oracle.latest for worker in crew]
        heads = read_jointly([TableContext(worker.store, worker.actor) for worker in crew])
        for worker, head, one, at_least in zip(crew, heads, running, known, strict=True):
            worker.world.oracle.read(head, at_least)
            one.saw(head.version, watermarks=head.snapshot.watermarks)
        crew[0].note(f"read together: {[head.version for head in heads]}")


# --- Jobs that are prepared together, and that others finish ---------------------------------
def prepare_together(crew: Sequence[Worker], work: Work) -> None:
    """The first phase of one job in each of these tables: from its first request on others may finish all of them."""
    with _attempting(crew, "prepare together", msgspec.to_builtins(work)) as running:
        written = [worker.written(each, work, shared=True) for worker, each in zip(crew, running, strict=True)]
        jobs = {told.table: told.job for _, told in written}
        crew[0].world.joint.append(jobs)
        crew[0].world.together.append(jobs)
        together = together_of([job.part() for job, _ in written])
        try:
            _prepare({job.id: job for job, _ in written}, together, again=crew[0].says("again"))
        except JobFencedError:  # before any of them was prepared
            _deny(crew, jobs, "fenced")
            raise
        crew[0].note("prepare together: done")


def _prepare(jobs: Mapping[str, Job], together: Sequence[TogetherJob], *, again: bool) -> None:
    try:
        prepare_jointly(jobs, together)
    except StoreError:
        if not again:
            raise
        _prepare(jobs, together, again=False)


def finish_together(crew: Sequence[Worker], which: int, *, abort: bool, first: int, alone: bool) -> None:
    """Commit or abort jobs that were prepared together, beginning with the first table; alone: by its job, which is all that is known of
    them."""
    together = crew[0].world.together
    if not together:
        return
    jobs = together[which % len(together)]
    crew = [worker for worker in crew if worker.table_id in jobs]
    order = [*crew[first % len(crew) :], *crew[: first % len(crew)]]
    name = f"{'abort' if abort else 'commit'} {'one of ' if alone else ''}together"
    with _attempting(crew, name, jobs, gives_up=EVERYTHING) as running:
        for worker, one in zip(crew, running, strict=True):
            one.note(**shared_job(jobs[worker.table_id]))
        for worker in order[:1] if alone or abort else order:
            worker.asks()
            act = give_up if abort else commit_prepared
            outcome = act(TableContext(worker.store, worker.actor), jobs[worker.table_id])
            worker.note(f"{name}: {outcome.kind} {outcome.version}")
            _told(crew, running, worker, outcome, jobs)
            if not outcome.committed:
                break


@contextlib.contextmanager
def _attempting(crew: Sequence[Worker], name: str, arguments: dict[str, Any], **what: Any) -> Iterator[list[Running]]:
    """One operation in the history of each table. An error that refuses it is of one of the tables: of which, no history knows."""
    with ExitStack() as stack:
        running = [stack.enter_context(worker.attempting(name, arguments, **what)) for worker in crew]
        _join(crew, running)
        try:
            yield running
        except _REFUSED as error:
            crew[0].note(f"{name}: {type(error).__name__}")
            for one in running:
                one.refused(_ELSEWHERE)


def _join(crew: Sequence[Worker], running: Sequence[Running]) -> None:
    """Record that these, one for each table, are one."""
    for one in running:
        one.note(joint=f"{crew[0].table_id} {running[0].operation.id}")


def _told(crew: Sequence[Worker], running: Sequence[Running], worker: Worker, outcome: Outcome, jobs: dict[str, str]) -> None:
    """A worker got the outcome of its table's job, which is that of all of them. [MT1]"""
    mine = running[crew.index(worker)]
    if outcome.kind in ("fenced", "key_reused"):  # perhaps by another table
        mine.refused(_ELSEWHERE)
    elif outcome.kind != "committed" or outcome.version is not None:
        worker.settled(mine, outcome, worker.declared(jobs[worker.table_id]))
    if outcome.kind == "aborted":
        for one in running:
            one.refused("aborted")
    oracle, job = worker.world.oracle, jobs[worker.table_id]
    is_final = outcome.conflict is not None and outcome.conflict.rule in FOR_EVER
    by_another = outcome.kind == "already_committed" and not oracle.holds(oracle.latest, job)
    if is_final or by_another or outcome.kind in ("aborted", "fenced"):
        _deny(crew, jobs, outcome.kind)


def _deny(crew: Sequence[Worker], jobs: dict[str, str], why: str) -> None:
    """None of these jobs is ever committed."""
    for worker in crew:
        worker.world.oracle.told_not(jobs[worker.table_id], why)
