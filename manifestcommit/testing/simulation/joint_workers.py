"""Deeds over all tables of a theme: joint commits and joint reads, each reported to the oracle of
every table, and recorded in its history. [MT1] [MT12]

Not here: deeds in one table (testing.simulation.workers).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import msgspec

from ...engine.joint.joint_commit import commit_jointly
from ...engine.joint.joint_read import read_jointly
from ...engine.metadata.table_context import TableContext
from ...engine.runtime.outcome import Outcome
from ...errors import StoreError
from ..history.recorder import Running
from .oracle import Oracle
from .version_rules import Declared
from .workers import Work, Worker


def publish_together(crew: Sequence[Worker], work: Work) -> None:
    """One job in each of these tables, committed by one commit. crew: this actor in each table."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(worker.attempting("publish together", msgspec.to_builtins(work)))
            for worker in crew
        ]
        written = [worker.written(each, work) for worker, each in zip(crew, running, strict=True)]
        told = [each for _, each in written]
        crew[0].world.joint.append({each.table_id: each.job for each in told})
        for worker in crew:
            worker.asks()
        try:
            outcomes = commit_jointly([job.as_part() for job, _ in written])
        except StoreError as error:  # before anything was decided
            for worker, each, one in zip(crew, told, running, strict=True):
                worker.world.oracle.told_not(each.job, f"not committed ({type(error).__name__})")
                one.refused("store")
            raise
        for worker, each, outcome, one in zip(crew, told, outcomes, running, strict=True):
            _settled(worker, one, outcome, each)
            worker.note(f"publish together: {outcome.kind} {outcome.version}")


def _settled(worker: Worker, running: Running, outcome: Outcome, told: Declared) -> None:
    if outcome.kind == "aborted":  # for a reason that another table has
        running.refused("another table")
        worker.world.oracle.told_not(told.job, outcome.kind)
    else:
        worker.settled(running, outcome, told)


def read_together(crew: Sequence[Worker]) -> None:
    """One version of each table, in which each joint commit is in all of them or in none."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(worker.attempting("read together", {}, outcome="failed"))
            for worker in crew
        ]
        known = [worker.world.oracle.latest for worker in crew]
        heads = read_jointly([TableContext(worker.store, worker.actor) for worker in crew])
        for worker, head, one, at_least in zip(crew, heads, running, known, strict=True):
            worker.world.oracle.read(head, at_least)
            one.saw(head.version, watermarks=head.snapshot.watermarks)
        versions = {head.snapshot.table_id: head.version for head in heads}
        oracles = {
            head.snapshot.table_id: worker.world.oracle
            for head, worker in zip(heads, crew, strict=True)
        }
        for jobs in crew[0].world.joint:
            check_whole(oracles, versions, jobs)
        crew[0].note(f"read together: {[head.version for head in heads]}")


def check_whole(oracles: dict[str, Oracle], versions: dict[str, int], jobs: dict[str, str]) -> None:
    """A joint commit is in all of these versions, or in none. jobs: table id -> its job there.
    [MT1] [MT12]"""
    there = {
        table_id: oracles[table_id].holds(versions[table_id], job) for table_id, job in jobs.items()
    }
    if len(set(there.values())) > 1:
        oracles[min(jobs)].fail(
            f"versions {versions} were read together, and a joint commit is in some of them only: "
            f"{there} [MT1] [MT12]"
        )
