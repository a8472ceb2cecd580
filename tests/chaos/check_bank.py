"""What must hold of the banks at the end: of each table by itself, and of all of them together.

What became of each member is told here by the objects alone: its home's versions say which members were decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos.bank import BANKS, compare_banks
from tests.chaos.check import (
    Link,
    check_chain,
    check_counts,
    check_files,
    check_remembered,
    check_told,
    count_unheard,
    known_keys,
    read_chain,
    readable,
    waiting,
    without_void,
)
from tests.chaos.world import World

from manifestcommit.store import open_store


def check_banks(world: World, told: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[str]], int]:
    """The findings of each bank, and how many commits went unheard."""
    chains = {bank: readable(read_chain(open_store(world.urls[bank], world.direct))) for bank in BANKS}
    findings, unheard = dict[str, list[str]](), 0
    for bank, links in chains.items():
        store, table = open_store(world.urls[bank], world.direct), world.table(bank, direct=True)
        own, valid = [note for note in told if note.get("table") == bank], without_void(links)
        wrong, files = check_files(store, table.files())
        wrong += check_chain(links)
        wrong += check_told(valid, files, own)
        wrong += check_remembered(known_keys(store, links[-1]), own)
        wrong += check_members(links, chains)
        findings[bank] = [*wrong, *check_counts(table), *waiting(table)]
        unheard += count_unheard(valid, own)
    if not any(findings.values()):  # a table that is damaged may not be readable
        findings["all"] = check_transfers(world, told)
    return findings, unheard


def check_transfers(world: World, told: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was acknowledged is in all of its banks once, what was refused in none, and the rest in all of its banks or in none."""
    rows = {bank: world.table(bank, direct=True).to_arrow() for bank in BANKS}
    findings = compare_banks(rows, {note["transfer"]: note["moves"] for note in told if note["what"] == "transferred"})
    there = {name for table in rows.values() for name in table.column("transfer").unique().to_pylist()}
    refused = sorted(there & {note["transfer"] for note in told if note["what"] == "never"})
    return findings + ([f"{len(refused)} transfers were refused or aborted, and are there: {refused[:5]}"] if refused else [])


def check_members(links: Sequence[Link], chains: Mapping[str, Sequence[Link]]) -> list[str]:
    """A member is void if and only if no version of its home has decided it; nobody builds on an undecided one."""
    void, findings = set(links[-1].snapshot.get("void", ())), list[str]()
    homes = {chain[-1].snapshot["table_id"]: chain for chain in chains.values()}
    own = links[-1].snapshot["table_id"]
    for link in links:
        pending = link.snapshot.get("pending")
        if pending is None:
            continue
        records = [home.snapshot.get("joint", {}).get(own, {}).get("version", 0) for home in homes[pending["table_id"]]]
        decided = link.version in records
        if decided and link.version in void:
            findings.append(f"version {link.version} was committed by its home, and is void")
        elif not decided and link.version not in void and (records[0] < link.version or link is links[-1]):
            findings.append(f"version {link.version} is not void, though no version of its home has committed it")
    return findings


def count_members(world: World) -> dict[str, int]:
    """How many members can still be read about, and how many of all are void, at the end."""
    chains = [readable(read_chain(open_store(world.urls[bank], world.direct))) for bank in BANKS]
    members = sum(link.snapshot.get("pending") is not None for links in chains for link in links)
    return {"members": members, "void": sum(len(links[-1].snapshot.get("void", ())) for links in chains)}
