"""The history of a run, for the history checker: what actors do to each table and are told, and what readers see of it.

An item is what one job has brought: its job, its slot where it has one, and how many rows. So a read that shows half of a job, or one
twice, shows an item that nobody wrote; which rows these are, `check` knows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.chaos.questions import FILE
from tests.chaos.work import Part
from tests.chaos.world import AGAIN, PIECES, histories_folder

import manifestcommit as mc
from manifestcommit.testing.history.checker import check, check_joint
from manifestcommit.testing.history.operation import EVERYTHING, Operation, Recorder, read_history
from manifestcommit.testing.history.serial_order import UndecidedError


# --- what jobs do ---------------------------------------------------------------------------------------------------------
def item(job: str, rows: int, slot: str = "") -> str:
    """What a job has brought, in few characters: reads show thousands of them."""
    return f"{job[-12:]} {rows} {slot}".rstrip()


def part_does(job: mc.Job, part: Part) -> dict[str, Any]:
    """What a part's job does, as the record of its operation says it."""
    rows = sum(end - start for start, end in part.ranges.values())
    return {
        "job": job.id,
        "birth": birth_of(job.id),
        "adds": {} if job.already_committed or not rows else {item(job.id, rows): ""},
        "advances": part.ranges if part.advances else {},
    }


def slots_do(table: str, job: mc.Job, slots: Iterable[str], **what: Any) -> dict[str, Any]:
    """The same of a job that writes one generation of these slots. The tables that are overwritten by slots are partitioned by them."""
    by_slot = table in (AGAIN, "state")
    adds = {} if job.already_committed else {item(job.id, PIECES, slot): slot if by_slot else "" for slot in slots}
    return {"job": job.id, "birth": birth_of(job.id), "adds": adds, **what}


def birth_of(job: str) -> int:
    return int(job.partition("-")[0].removeprefix("v"))


# --- what others see ------------------------------------------------------------------------------------------------------
def items_of(table: mc.Table, version: int, rows: pa.Table) -> list[str]:
    """What was read of a version, each row by its file, and each file by the job that it is listed for."""
    listed = table.files(version=version).select(["path", "job"]).to_pydict()
    # No two files of a table have one name, whatever their folders are, and however pyarrow spells the root.
    jobs = {path.rpartition("/")[2]: job for path, job in zip(listed["path"], listed["job"], strict=True)}
    slots = rows.column("slot").to_pylist() if "slot" in rows.column_names else [""] * rows.num_rows
    files = rows.column(FILE).to_pylist()
    count = Counter((jobs.get(path.rpartition("/")[2], path), slot) for path, slot in zip(files, slots, strict=True))
    return [item(job, number, slot) for (job, slot), number in count.items()]


def witness(recorder: Recorder, commits: Iterable[tuple[int, str]], known: set[str]) -> None:
    """Whoever reads the table's own history is told of jobs whose processes were not: committed at any time until now."""
    for version, job in commits:
        if job not in known:
            known.add(job)
            with recorder.commit("history", job=job) as running:
                running.note(begin=0.0)
                running.committed(version)


def in_no_version(history: Sequence[Operation]) -> list[str]:
    """What was acknowledged as the work of a version of which whoever has read that version was told otherwise."""
    chain = {each.job: each.version for each in history if each.name == "history"}
    versions = set(chain.values())
    lost = [each for each in history if each.outcome == "committed" and each.job and each.job not in chain and each.version in versions]
    return [f"{each.id} was acknowledged as version {each.version} ({each.job}), which does not carry it" for each in lost]


# --- the verdict ----------------------------------------------------------------------------------------------------------
def judge(folder: Path, tables: Iterable[str]) -> tuple[list[str], int]:
    """What no serial order explains, table by table and of those together that joint commits have, and of how many operations."""
    findings, count, histories = list[str](), 0, dict[str, list[Operation]]()
    for table in tables:
        files = sorted(histories_folder(folder, table).glob("*.jsonl"))
        history = read_history(*files) if files else []  # a short run may not come to each table
        count += len(history)
        histories[table] = history
        findings += [f"{table}: {each}" for each in in_no_version(history)]
        try:
            wrong = check(history)
        except UndecidedError as error:
            findings.append(f"{table}: the history is not explained: {error}")
        else:
            findings += [f"{table}: {wrong}"] if wrong is not None else []
    if any(each.joint for history in histories.values() for each in history):
        wrong = check_joint(histories)
        findings += [f"together: {wrong}"] if wrong is not None else []
    return findings, count


def commits_of(links: Iterable[Any]) -> Iterator[tuple[int, str]]:
    """(version, job) of every commit of a chain."""
    return ((link.version, each["job"]) for link in links for each in link.snapshot["commits"])


def emptied(scope: Mapping[str, str] | str | None, slots: Iterable[str]) -> tuple[str, ...]:
    """The slots that an overwrite of this scope empties."""
    return (EVERYTHING,) if scope is None else tuple(slots)
