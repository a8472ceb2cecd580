"""What a run is about: which tables there are, who plays, when all of the work is done, and what must hold at the end."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.chaos import check
from tests.chaos.bank import BANKS, ROWS, check_banks, count_members
from tests.chaos.changes import SCHEMA, TABLE, check_changes
from tests.chaos.gate import Gate
from tests.chaos.world import EVENTS, EXPORTED, FED, FORMATS, KEYED, PARTITIONED, STATE, World

import manifestcommit as mc


class Crew(Protocol):
    """How many play, as the settings of a run say."""

    @property
    def writers(self) -> int: ...
    @property
    def committers(self) -> int: ...
    @property
    def readers(self) -> int: ...
    @property
    def exports(self) -> bool: ...


class Scene(Protocol):
    """One kind of run. passed: what is known when nothing was wrong; last: who plays when all others are gone."""

    passed: str
    last: str

    def actors(self, crew: Crew) -> list[str]:
        """The names of all that may be killed; the first word is the role."""

    def folders(self, crew: Crew) -> dict[str, str]:
        """Table -> its folder below the place of the run."""

    def create(self, world: World, *, exports: bool) -> None:
        """The tables: through the proxy before it has faults, so that the store is proved under the name that writers use."""

    def is_drained(self, world: World) -> bool:
        """Whether nothing is left to do for those who work."""

    def check(self, world: World, told: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
        """What is wrong at the end, and how many commits nobody was told of."""

    def progress(self, world: World) -> str:
        """How far it is, in words."""

    def counts(self, world: World) -> dict[str, int]:
        """What there is at the end besides versions and rows."""


class Fed:
    """A log that goes to tables, and tables of every other kind; each table by itself."""

    passed = "each record once in each table at each version; a serial order explains all"
    last = "closer"

    def actors(self, crew: Crew) -> list[str]:
        counts = {"writer": crew.writers, "committer": crew.committers, "reader": crew.readers}
        if crew.exports:
            counts |= {"exporter": 2, "foreigner": 1}
        return ["producer", *_numbered(counts), "collector"]

    def folders(self, crew: Crew) -> dict[str, str]:
        # no reader of Iceberg gets along with `%` in a table's path
        return {name: f"{'exported' if crew.exports and name in EXPORTED else 'lake %20+='}/{name}" for name in PARTITIONED}

    def create(self, world: World, *, exports: bool) -> None:
        for name, partition_by in PARTITIONED.items():
            table = mc.create_table(
                world.urls[name], EVENTS if name in (*FED, KEYED) else STATE, partition_by=partition_by, storage_options=world.options
            )
            table.set_properties(_made_by(world))
            if exports and name in EXPORTED:
                table.set_properties({"export.formats": ",".join(FORMATS)})

    def is_drained(self, world: World) -> bool:
        ends = world.log.ends()
        return all(world.table(name, direct=True).watermarks() == ends for name in FED)

    def check(self, world: World, told: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
        findings, unheard = list[str](), 0
        for name, url in world.urls.items():
            own = [note for note in told if note.get("table") == name]
            if name in (*FED, KEYED):
                found, count = check.check_fed(url, world.direct, world.log, own, keyed=name == KEYED)
            else:
                found, count = check.check_state(url, world.direct, own, name)
            unheard += count
            findings += [f"{name}: {each}" for each in found]
        return findings, unheard

    def progress(self, world: World) -> str:
        out = {name: sum(int(mark) for mark in world.table(name, direct=True).watermarks().values()) for name in FED}
        return f"records in {sum(world.log.ends().values())}, out {', '.join(f'{name} {count}' for name, count in out.items())}"

    def counts(self, world: World) -> dict[str, int]:
        return {"records": sum(world.log.ends().values())}


class Banks:
    """Transfers between several tables, by joint commits; the total of all tables never changes."""

    passed = "each transfer once in all of its tables or in none, in every read of several; a serial order explains each table"
    last = "manager"

    def actors(self, crew: Crew) -> list[str]:
        return [*_numbered({"teller": crew.writers, "clerk": crew.committers, "auditor": crew.readers}), "janitor"]

    def folders(self, crew: Crew) -> dict[str, str]:
        return {bank: f"lake %20+=/{bank}" for bank in BANKS}

    def create(self, world: World, *, exports: bool) -> None:
        for bank in BANKS:
            mc.create_table(world.urls[bank], ROWS, storage_options=world.options).set_properties(_made_by(world))

    def is_drained(self, world: World) -> bool:
        return not any(any((Path(world.folder) / name).glob("*.json")) for name in ("units", "queue"))

    def check(self, world: World, told: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
        findings, unheard = check_banks(world, told)
        return [f"{bank}: {each}" for bank, found in findings.items() for each in found], unheard

    def progress(self, world: World) -> str:
        return f"void members that can be read about {sum(len(world.table(bank, direct=True).snapshot().void) for bank in BANKS)}"

    def counts(self, world: World) -> dict[str, int]:
        return count_members(world)


class Changes:
    """Rows of one table that are updated, merged, deleted and overwritten, in the same partitions by all."""

    passed = "each version holds what the changes up to it do, one after the other, each of them once"
    last = "sweeper"

    def actors(self, crew: Crew) -> list[str]:
        return [*_numbered({"changer": crew.writers, "watcher": crew.readers}), "sweeper"]

    def folders(self, crew: Crew) -> dict[str, str]:
        return {TABLE: f"lake %20+=/{TABLE}"}

    def create(self, world: World, *, exports: bool) -> None:
        table = mc.create_table(world.urls[TABLE], SCHEMA, partition_by="shelf", storage_options=world.options)
        table.set_properties(_made_by(world))

    def is_drained(self, world: World) -> bool:
        return not any((Path(world.folder) / "units").glob("*.json"))

    def check(self, world: World, told: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
        findings, unheard = check_changes(world, told)
        return [f"{TABLE}: {each}" for each in findings], unheard

    def progress(self, world: World) -> str:
        return f"rows {world.table(TABLE, direct=True).snapshot().totals.rows}"

    def counts(self, world: World) -> dict[str, int]:
        return {"files": world.table(TABLE, direct=True).snapshot().totals.files}


SCENES: Mapping[str, type[Scene]] = {"tables": Fed, "joint": Banks, "rows": Changes, "gate": Gate}


def _made_by(world: World) -> dict[str, str]:
    return {"seed": str(world.seed), "made by": f"tests/chaos in process {os.getpid()}"}


def _numbered(counts: Mapping[str, int]) -> list[str]:
    return [f"{role} {number}" for role, count in counts.items() for number in range(count)]
