"""What every version must hold, worked out from its history and from what the processes logged: no line of the library takes part.

The history is the chain of snapshots back from the head, as the archive has it; each commit in it is an operation of the log, whose
arguments say what it did to the rows. What a process was not told took place if the chain has it. Everything returns findings, sentences.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import zstandard
from tests.chaos.check import Link
from tests.races.draw import Rows
from tests.races.records import Record
from tests.races.rig import archived

Held = Counter[tuple[int, str | None]]  # (id, day) -> how often; once, but where a rewound or rolled back key was run again
_OF_ROWS = ("append", "overwrite", "replace")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A version as it must be. marks: its watermarks; unsure: keys of which nobody was told whether a rewind dropped them; undone: source
    or key -> the version that last set it back."""

    rows: Held
    marks: Mapping[str, int] = {}
    keys: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()
    undone: Mapping[str, int] = {}


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The chain, and what each version of it must hold."""

    links: dict[int, Link]
    states: dict[int, State]
    operations: dict[str, Record]  # job, or the reason that it gave -> the operation that it was

    @property
    def head(self) -> Link:
        return self.links[max(self.links)]

    def version_of(self, job: str) -> int | None:
        """The version that carries the job."""
        return next((link.version for link in self.links.values() for each in link.snapshot["commits"] if each["job"] == job), None)

    def version_because(self, reason: str) -> int | None:
        """The version that carries a commit with this reason."""
        return next(
            (link.version for link in self.links.values() for each in link.snapshot["commits"] if each.get("reason") == reason), None
        )

    def was_expired(self, version: int) -> bool:
        """Whether at some time since then nobody could ask for that version."""
        later = (link.snapshot for link in self.links.values() if link.version >= version)
        return any(not is_readable(each, version) for each in later)


def is_readable(snapshot: Mapping[str, Any], version: int) -> bool:
    """Whether readers may ask this head for that version."""
    return version >= snapshot.get("expired", 1) or version in {each["version"] for each in snapshot.get("tags", {}).values()}


def read_chain(archive: Path, version: int, digest: str) -> dict[int, Link]:
    """Every version back from this one, by the digests of parents, ascending; what the archive lacks raises FileNotFoundError."""
    links: list[Link] = []
    parent: str | None = digest
    while parent is not None:
        data = archived(archive, version, parent).read_bytes()
        snapshot = json.loads(zstandard.ZstdDecompressor().decompress(data))
        links.append(Link(version=version, digest=parent, snapshot=snapshot))
        version, parent = version - 1, snapshot.get("parent_digest")
    return {link.version: link for link in reversed(links)}


def by_job(records: Sequence[Record]) -> dict[str, Record]:
    """The operation that each job is, and each reason; of jobs that others finished it is the one that prepared them."""
    found = {each.id: each for each in records} | {each.result["told"]: each for each in records if "told" in each.result}
    return found | {each.result["job"]: each for each in records if "job" in each.result}


def replay(links: dict[int, Link], records: Sequence[Record], loose: Mapping[str, Rows]) -> tuple[History, list[str]]:
    """What each version must hold, and what of its history cannot be. loose: the rows of files that no job wrote, by path."""
    history = History(links=links, states={}, operations=by_job(records))
    findings = list[str]()
    before, state = None, State(rows=Counter())
    for link in links.values():
        for each in link.snapshot["commits"]:
            state, wrong = _step(history, link, before, state, each, loose)
            findings += [f"version {link.version} ({each['operation']} by {each['job']}): {said}" for said in wrong]
        history.states[link.version] = state
        if link.watermarks != state.marks:
            findings.append(f"version {link.version}: its watermarks are {link.watermarks}, and must be {state.marks}")
        findings += [f"version {link.version}: {said}" for said in _compare_neighbours(before, link)]
        before = link
    return history, findings


def _step(
    history: History, link: Link, before: Link | None, state: State, commit: Mapping[str, Any], loose: Mapping[str, Rows]
) -> tuple[State, list[str]]:
    """The state after one commit, and what is wrong with it."""
    operation, record = commit["operation"], history.operations.get(commit["job"]) or history.operations.get(commit.get("reason"))
    wrong, rows, marks, keys, unsure = list[str](), state.rows, state.marks, state.keys, state.unsure
    if operation in _OF_ROWS:
        if record is None:
            return state, ["nobody logged that job"]
        wrong += _check_conflict(history, commit, record, rows)
        rows = after(rows, record)
    elif operation == "adopt":
        listed = [entry["path"] for entry in link.snapshot.get("added", ()) if entry["job"] == commit["job"]]
        rows = Counter({(number, day): 1 for path in listed for number, day in loose.get(path, ())}) + rows
    elif operation == "rollback":
        target = history.states[commit["restored"]]
        rows, marks, keys, unsure = target.rows, target.marks, target.keys, target.unsure
        if before is not None and birth_of(commit["job"]) != before.version:
            wrong.append("others committed between its birth and it")
    elif operation == "rewind":
        if record is not None and record.outcome == "committed":
            keys = keys - frozenset(record.result["dropped"])
        else:
            unsure = keys
    if record is not None and "moved" in record.result:
        source, start, end = record.result["moved"]
        if marks.get(source) != start and operation != "rewind":
            wrong.append(f"{source!r} stood at {marks.get(source)}, and was moved from {start}")
        marks = {name: mark for name, mark in {**marks, source: end}.items() if mark is not None}
    key = commit.get("key") if operation != "adopt" else None
    undone = state.undone
    if operation in ("rollback", "rewind"):
        moved = {name for name in state.marks.keys() | marks.keys() if state.marks.get(name) != marks.get(name)}
        undone = {**undone, **dict.fromkeys(moved | (state.keys - keys), link.version)}
    else:
        named = [*(record.result["moved"][:1] if record is not None and "moved" in record.result else ()), key]
        wrong += [
            f"{name!r} was set back at version {undone[name]}, after the job had begun"
            for name in named
            if name in undone and undone[name] > birth_of(commit["job"])
        ]
    if key is not None:
        if key in keys and key not in unsure:
            wrong.append(f"the key {key!r} was committed before, and nothing undid that")
        keys, unsure = keys | {key}, unsure - {key}
    return State(rows=rows, marks=marks, keys=keys, unsure=unsure, undone=undone), wrong


def after(rows: Held, record: Record) -> Held:
    """The rows once this operation was committed."""
    mine = rows_of(record)
    scope = record.arguments.get("scope")
    return Counter({row: count for row, count in rows.items() if not is_inside(row[1], scope, mine)}) + mine


def rows_of(record: Record) -> Held:
    given = record.result.get("rows", record.arguments.get("rows", [])) if record.operation != "read" else []
    return Counter((number, day) for number, day in given)


def is_inside(day: str | None, scope: Mapping[str, Any] | None, mine: Held) -> bool:
    """Whether an overwrite of this scope takes away what lies in that partition."""
    if scope is None:
        return False
    if scope["kind"] == "all":
        return True
    return day in {each for _, each in mine} if scope["kind"] == "dynamic" else day == scope["day"]


def birth_of(job: str) -> int:
    return int(job[1:].partition("-")[0])


def _check_conflict(history: History, commit: Mapping[str, Any], record: Record, rows: Held) -> Iterator[str]:
    """What an overwrite promised of the partitions that it empties."""
    scope, mine = record.arguments.get("scope"), rows_of(record)
    if scope is None:
        return
    held = Counter({row: count for row, count in rows.items() if is_inside(row[1], scope, mine)})
    if record.arguments["conflict"] == "fail" and held:
        yield f"it must find nothing where it writes, and replaces {sorted(held, key=repr)}"
    if record.arguments["conflict"] == "serializable":
        known = history.states[birth_of(commit["job"])].rows
        seen = Counter({row: count for row, count in known.items() if is_inside(row[1], scope, mine)})
        if seen != held:
            yield f"since its birth what it replaces has become {sorted(held, key=repr)}, and was {sorted(seen, key=repr)}"


def _compare_neighbours(before: Link | None, link: Link) -> Iterator[str]:
    """What no version may do to the one before it."""
    old: Mapping[str, Any] = before.snapshot if before is not None else {}
    new, operations = link.snapshot, [each["operation"] for each in link.snapshot["commits"]]
    for name in ("fence", "expired"):
        if new.get(name, 1) < old.get(name, 1):
            yield f"{name} went back from {old[name]} to {new.get(name, 1)}"
        if new.get(name, 1) > old.get(name, 1) and "gc" not in operations:
            yield f"{name} moved, and no gc did it"
    if new.get("expired", 1) > new.get("fence", 1):
        yield f"versions below {new['expired']} are expired, and jobs born from {new.get('fence', 1)} on may commit"
    if old.get("tags", {}) != new.get("tags", {}) and not {"tag", "untag"} & set(operations):
        yield f"the tags were {old.get('tags', {})} and are {new.get('tags', {})}"
    named = {name: each["version"] for name, each in new.get("tags", {}).items() if old.get("tags", {}).get(name) != each}
    for name, version in named.items():
        if not is_readable(old, version):
            yield f"it gives version {version} the name {name!r}, which was expired before"
