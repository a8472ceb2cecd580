"""The history of a round as the history checker judges it: each process' records, and what the chain of versions says of the unheard.

An item is one row that a job has brought: the job, the row and its partition. What became of tags is not the checker's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from tests.chaos.check import Link
from tests.chaos.history import birth_of
from tests.races.draw import Rows
from tests.races.records import Record

from manifestcommit.testing.history.operation import ANY_FENCE, EVERYTHING, REFUSALS, Operation

_RULES = {kind.__name__: rule for kind, rule in REFUSALS}
_JOBS = ("write", "orphan", "prepare", "add_files", "add_again", "replace")  # what has items
_COMMITS = (*_JOBS, "repeat", "adopt", "tag", "untag", "rollback", "rewind")


def item(job: str, number: int, day: str | None) -> str:
    return f"{job[-12:]} {number} {day!r}"


def items(job: str, rows: Iterable[Sequence[Any]]) -> dict[str, str]:
    """Item -> its partition, of the rows that a job has brought."""
    return {item(job, number, day): repr(day) for number, day in rows}


def history_of(records: Sequence[Record], links: Mapping[int, Link], loose: Mapping[str, Rows]) -> list[Operation]:
    """Every operation of the round. links: the chain, which anybody may read afterwards; loose: rows of files that no job wrote."""
    commits = {each["job"]: (link.version, each) for link in links.values() for each in link.snapshot["commits"]}
    found = [each for record in records for each in _operations(record, commits)]
    return [*found, *(_told_by_chain(link, each, loose) for link in links.values() for each in link.snapshot["commits"])]


def _told_by_chain(link: Link, commit: Mapping[str, Any], loose: Mapping[str, Rows]) -> Operation:
    """Whoever walks the chain is told of it afterwards: it was committed at any time until then. What was adopted is to be seen there."""
    job, adds = commit["job"], dict[str, str]()
    if commit["operation"] == "adopt":
        paths = [entry["path"] for entry in link.snapshot.get("added", ()) if entry["job"] == job]
        adds = items(job, (row for path in paths for row in loose[path]))
    return Operation(
        id=f"chain {job}", process="chain", name="history", begin=0.0, outcome="committed", version=link.version, job=job, adds=adds
    )


def _operations(record: Record, commits: Mapping[str, tuple[int, Mapping[str, Any]]]) -> Iterator[Operation]:
    own = Operation(id=record.id, process=record.process, name=record.operation, begin=record.begin_s, end=record.end_s)
    result = record.result
    if record.operation in _COMMITS and (record.operation not in _JOBS or "job" in result):
        yield msgspec.structs.replace(own, **_told(record), **_does(record, commits))
    elif record.operation == "read":
        yield msgspec.structs.replace(own, **_saw(record))
    elif record.operation == "gc" and not record.arguments.get("dry_run"):
        told = {"outcome": "read", "version": result["version"], "fence": result["fence"]} if "fence" in result else {}
        yield msgspec.structs.replace(own, **{"outcome": "failed", "fence": ANY_FENCE, **told})
    elif record.operation in ("settle", "close"):
        yield msgspec.structs.replace(own, gives_up=EVERYTHING)
        for job, decision, version in result.get("decided", ()):
            settled = {"outcome": "committed", "version": version} if decision == "committed" else {"outcome": "refused", "rule": "aborted"}
            yield msgspec.structs.replace(own, id=f"{record.id} {job}", job=job, shared=True, **settled)


def _told(record: Record) -> dict[str, Any]:
    if record.outcome == "committed":
        return {"outcome": "already" if record.result.get("already") else "committed", "version": record.result["version"]}
    if record.outcome == "refused":
        return {"outcome": "refused", "rule": _rule(record)}
    return {"outcome": "unknown"}


def _rule(record: Record) -> str:
    rule = _RULES.get(record.result.get("error", ""), "abandoned")
    # These may be refused for what had been there before they began.
    is_for_paths = record.operation in ("add_files", "add_again", "replace") or record.arguments.get("conflict") == "fail"
    return "occupied" if rule == "conflict" and is_for_paths else rule


def _does(record: Record, commits: Mapping[str, tuple[int, Mapping[str, Any]]]) -> dict[str, Any]:
    """What it does to the table."""
    given, result = record.arguments, record.result
    because = {each.get("reason"): job for job, (_, each) in commits.items()}
    job = result.get("told") or result.get("job") or because.get(record.id, "")
    does: dict[str, Any] = {"job": job, "shared": record.operation == "prepare"}
    if job and record.operation not in ("add_files", "add_again"):  # which are fenced with whoever wrote their files, too
        does["birth"] = birth_of(job)
    if record.operation in ("write", "repeat"):
        does["key"] = given.get("key")
    if "moved" in result:
        source, start, end = result["moved"]
        does |= {"rewinds": {source: end}} if record.operation == "rewind" else {"advances": {source: (start, end)}}
    if record.operation == "rollback" and job in commits:
        does["restores"] = commits[job][1]["restored"]
    if record.operation not in _JOBS or result.get("already"):
        return does
    adds = items(job, rows_of(record))
    does |= {"adds": adds, "removes": tuple(result.get("removes", ())), "compacts": record.operation == "replace"}
    return does | _replaces(given, adds)


def rows_of(record: Record) -> Rows:
    """What it brings."""
    rows: Rows = record.result.get("rows", record.arguments.get("rows", []))
    return rows


def _replaces(given: Mapping[str, Any], adds: Mapping[str, str]) -> dict[str, Any]:
    scope = given.get("scope")
    if scope is None or given["conflict"] == "fail":  # which is to find nothing there: a reader would miss what it takes away
        return {}
    emptied = {"all": [EVERYTHING], "dynamic": sorted(set(adds.values())), "day": [repr(scope.get("day"))]}[scope["kind"]]
    return {"empties": tuple(emptied), "scope": tuple(emptied) if given["conflict"] == "serializable" else ()}


def _saw(record: Record) -> dict[str, Any]:
    result = record.result
    if record.outcome != "read" or "items" not in result:
        return {"outcome": "failed"}
    at = None if result["version"] == result["head"] else result["version"]
    return {"outcome": "read", "version": result["version"], "at": at, "items": tuple(result["items"]), "watermarks": result["marks"]}


def seen(link: Link, shown: Sequence[str] | None) -> Operation:
    """What whoever reads a version when all is over sees of it. shown: its items; None: readers may not ask for it any more."""
    return Operation(
        id=f"version {link.version}",
        process="last",
        name="read",
        begin=0.0,
        outcome="read",
        version=link.version,
        at=link.version,
        items=None if shown is None else tuple(shown),
        watermarks={**link.watermarks},
    )
