"""Changes of rows in one table: what each does, said once for the library and once in plain Python, which tells what must be there.

A row change is serializable: each version holds what all changes up to it do, one after the other. [RC2] [RC3] [RC7] [RC9] [RC10]
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import pyarrow as pa
from tests.chaos.check import Link, check_chain, check_counts, check_files, read_chain, waiting
from tests.chaos.world import World

import manifestcommit as mc
from manifestcommit.store import open_store

TABLE = "changed"
SCHEMA = pa.schema([("id", pa.int64()), ("shelf", pa.string()), ("part", pa.int64()), ("n", pa.int64()), ("tag", pa.string())])
SHELVES = ("a b", "", "%", "Ω=1/", "it's")
PARTS = 3
_SHOWN = 5
_COMPARED = 60  # versions, spread over all of them

# id -> (shelf, part, n, tag)
Rows: TypeAlias = dict[int, tuple[str, int, int, str]]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change. ids: of the rows that it brings, or merges; bound: the `n` from which on rows are deleted."""

    name: str
    kind: Literal["add", "update", "delete", "merge", "overwrite"]
    shelf: str
    part: int = 0
    bound: int = 0
    ids: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        return self.name


def draw_change(name: str, dice: random.Random, there: Mapping[int, str]) -> Change:
    """Some change. there: id -> shelf of rows that can be merged."""
    kind = dice.choice(("add", "add", "update", "update", "delete", "merge", "merge", "overwrite"))
    shelf = dice.choice(SHELVES)
    ids = [dice.randrange(1 << 62) for _ in range({"add": 12, "merge": 4, "overwrite": 6}.get(kind, 0))]
    if kind == "merge":
        known = sorted(each for each, of in there.items() if of == shelf)
        ids += dice.sample(known, min(len(known), 6))
    return Change(name=name, kind=kind, shelf=shelf, part=dice.randrange(PARTS), bound=dice.randint(2, 8), ids=tuple(ids))


def brought(change: Change) -> pa.Table:
    """The rows that it brings, all of them new or, of a merge, those that it compares."""
    parts = [change.part if change.kind == "overwrite" else each % PARTS for each in change.ids]
    count = len(change.ids)
    return pa.table([change.ids, [change.shelf] * count, parts, [1] * count, [change.name] * count], schema=SCHEMA)


def carry_out(url: str, options: Mapping[str, Any], change: Change) -> tuple[int | None, bool]:
    """By the library: (the version, whether it was committed before)."""
    if change.kind == "add":
        done: Any = mc.write(brought(change), url, key=change.key, storage_options=options)
        return done.version, done.already_committed
    table = mc.Table(url, storage_options=options)
    one_part = f"shelf = {_quoted(change.shelf)} AND part = {change.part}"
    if change.kind == "update":
        done = table.update({"n": "n + 1", "tag": _quoted(change.name)}, one_part, key=change.key)
    elif change.kind == "delete":
        done = table.delete(f"{one_part} AND n >= {change.bound}", key=change.key)
    elif change.kind == "overwrite":
        done = table.overwrite_where(brought(change), one_part, key=change.key)
    else:
        clauses = [mc.Delete(where=f"target.n >= {change.bound}"), mc.Update(set={"n": "target.n + source.n"})]
        done = table.merge(brought(change), ["shelf", "id"], when_matched=clauses, when_not_matched="insert", key=change.key)
    return done.version, done.kind == "already_committed"


def apply(change: Change, rows: Rows) -> Rows:
    """The same in plain Python: the rows afterwards."""
    new: Rows = {each["id"]: (each["shelf"], each["part"], each["n"], each["tag"]) for each in brought(change).to_pylist()}
    if change.kind == "add":
        return rows | new
    after = dict(rows)
    if change.kind == "merge":
        for each, row in new.items():
            old = rows.get(each)
            if old is None:
                after[each] = row
            elif old[2] >= change.bound:
                del after[each]
            else:
                after[each] = (*old[:2], old[2] + row[2], old[3])
        return after
    for each, (shelf, part, n, _) in rows.items():
        if (shelf, part) == (change.shelf, change.part):
            if change.kind == "update":
                after[each] = (shelf, part, n + 1, change.name)
            elif change.kind == "overwrite" or n >= change.bound:
                del after[each]
    return after | new


class Replay:
    """The rows of each version, from the changes that its commits name by their keys. Versions are given one after the other."""

    def __init__(self) -> None:
        self.version = 0
        self._changes: dict[str, Change] = {}
        self._rows: dict[int, Rows] = {0: {}}

    def learn(self, notes: Sequence[Mapping[str, Any]]) -> None:
        """What actors were about to do."""
        for note in notes:
            if note["what"] == "changing":
                change = msgspec.convert(note["change"], Change)
                self._changes[change.key] = change

    def follow(self, keys: Sequence[str | None], keep: int | None = None) -> None:
        """The next version, by the keys of its commits; keep: how many versions can be asked for, by default all. KeyError for a key of
        which nobody has said what it does."""
        rows = self._rows[self.version]
        for key in keys:
            rows = apply(self._changes[key], rows) if key is not None else rows  # a compaction, or properties
        self.version += 1
        self._rows[self.version] = rows
        if keep is not None:
            self._rows.pop(self.version - keep, None)

    def compare(self, version: int, table: pa.Table) -> list[str]:
        """What is wrong with the rows of a version."""
        columns = (table.column(name).to_pylist() for name in SCHEMA.names)
        found: Rows = {}
        twice = []
        for each, *row in zip(*columns, strict=True):
            twice += [each] if each in found else []
            found[each] = tuple(row)  # type: ignore[assignment]
        expected = self._rows[version]
        both = found.keys() & expected.keys()
        wrong = {
            "there twice": twice,
            "lost": sorted(expected.keys() - found.keys()),
            "there, which should not be": sorted(found.keys() - expected.keys()),
            "changed too often, too rarely or by another": sorted(each for each in both if found[each] != expected[each]),
        }
        return [
            f"version {version}: {len(ids)} rows {what}: {[(each, expected.get(each), found.get(each)) for each in ids[:_SHOWN]]}"
            for what, ids in wrong.items()
            if ids
        ]


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


# --- the end of a run ---------------------------------------------------------------------------------------------------
def check_changes(world: World, told: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
    """The findings, and how many commits went unheard."""
    store, table = open_store(world.urls[TABLE], world.direct), world.table(TABLE, direct=True)
    links = read_chain(store)
    wrong, _ = check_files(store, table.files())
    findings = [*wrong, *check_chain(links), *check_heard(links, told), *check_counts(table), *waiting(table)]
    if findings:  # a table that is damaged may not be readable
        return findings, 0
    replay = Replay()
    replay.learn(told)
    for link in links:
        replay.follow([commit.get("key") for commit in link.snapshot["commits"]])
    step = max(1, len(links) // _COMPARED)
    for link in [*links[:-1:step], links[-1]]:
        findings += replay.compare(link.version, table.to_arrow(version=link.version))
    heard = {note["key"] for note in told if note["what"] == "changed"}
    return findings, len(keys_in(links).keys() - heard)


def check_heard(links: Sequence[Link], told: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whatever was acknowledged is in the version that was told, and nothing is there that nobody has asked for."""
    there = keys_in(links)
    heard = {note["key"]: note["version"] for note in told if note["what"] == "changed"}
    lost = sorted(key for key, version in heard.items() if there.get(key) != version)
    asked = {note["change"]["name"] for note in told if note["what"] == "changing"}
    findings = [f"{len(lost)} changes were acknowledged for other versions than they are in: {lost[:_SHOWN]}"] if lost else []
    return findings + ([f"changes that nobody has asked for: {sorted(there.keys() - asked)[:_SHOWN]}"] if there.keys() - asked else [])


def keys_in(links: Sequence[Link]) -> dict[str, int]:
    """Key -> its version."""
    return {commit["key"]: link.version for link in links for commit in link.snapshot["commits"] if commit.get("key") is not None}
