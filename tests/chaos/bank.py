"""Transfers between tables: what a transfer is, how its rows tell where its other rows must be, and what is wrong with a joint read."""

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from tests.chaos import check
from tests.chaos.world import World

from manifestcommit.store import open_store

BANKS = ("bank a", "bank b%", "bank Ω=")
TILL = "till '1'"  # the source of each bank that some transfers advance: of two at once one is refused, in all of its tables
ROWS = pa.schema([("transfer", pa.string()), ("job", pa.string()), ("amount", pa.int64()), ("moves", pa.string())])
MOST = 1000  # of one amount
_SHOWN = 5

Moves = dict[str, list[int]]


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """What each bank gets, in the order in which the tables are named; the sum is 0. till: what one bank advances."""

    name: str
    moves: Moves
    keyed: bool
    till: dict[str, tuple[int, int]] = {}

    @property
    def key(self) -> str | None:
        return self.name if self.keyed else None

    @property
    def banks(self) -> list[str]:
        return list(self.moves)


def draw_transfer(name: str, dice: random.Random, *, keyed: bool, banks: int) -> Transfer:
    """Between so many banks, in any order; of one bank only: what it gets and gives."""
    chosen = dice.sample(BANKS, banks)
    amounts = [dice.randint(1, MOST) for _ in range(max(1, banks - 1))]
    moves = {bank: [amount] for bank, amount in zip(chosen[1:], amounts, strict=False)}
    return Transfer(name=name, moves={chosen[0]: [-sum(amounts), *(amounts if banks == 1 else [])], **moves}, keyed=keyed)


def rows_of(transfer: Transfer, bank: str, job: str) -> pa.Table:
    """What one bank gets of it; each row tells what all of its banks get."""
    moves, amounts = json.dumps(transfer.moves, sort_keys=True), transfer.moves[bank]
    columns = [[transfer.name] * len(amounts), [job] * len(amounts), amounts, [moves] * len(amounts)]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)], schema=ROWS)


def compare_banks(read: Mapping[str, pa.Table], acknowledged: Mapping[str, Moves] | None = None) -> list[str]:
    """Of each transfer all rows in all of the banks that were read, each once, or none; what was acknowledged before is there.

    So the total of all banks is 0 in every such read.
    """
    found: dict[str, dict[str, list[int]]] = defaultdict(dict)
    told: dict[str, set[str]] = defaultdict(set)
    for bank, rows in read.items():
        for name, amount, moves in zip(*(rows.column(each).to_pylist() for each in ("transfer", "amount", "moves")), strict=True):
            found[name].setdefault(bank, []).append(amount)
            told[name].add(moves)
    findings = []
    for name, there in found.items():
        plans = [json.loads(moves) for moves in told[name]]
        expected = {bank: sorted(amounts) for bank, amounts in plans[0].items() if bank in read}
        if len(plans) > 1 or {bank: sorted(amounts) for bank, amounts in there.items()} != expected:
            findings.append(f"transfer {name!r} is {plans}, and of the banks {sorted(read)} has {there}")
    lost = [name for name, moves in (acknowledged or {}).items() if name not in found and not moves.keys().isdisjoint(read)]
    findings = findings[:_SHOWN] + ([f"{len(lost)} acknowledged transfers are not there: {sorted(lost)[:_SHOWN]}"] if lost else [])
    total = sum(sum(rows.column("amount").to_pylist()) for rows in read.values())
    return [*findings, f"the total is {total}"] if total and read.keys() == set(BANKS) else findings


def jobs_in(rows: pa.Table) -> Iterable[tuple[str, int]]:
    """(job, its rows) of what was read of one bank, whatever compaction has made of its files."""
    counts = rows.column("job").value_counts().to_pylist()
    return ((each["values"], each["counts"]) for each in counts)


# --- the end of a run ---------------------------------------------------------------------------------------------------
def check_banks(world: World, told: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[str]], int]:
    """The findings of each bank, and how many commits went unheard."""
    chains = {bank: check.read_chain(open_store(world.urls[bank], world.direct)) for bank in BANKS}
    findings, unheard = dict[str, list[str]](), 0
    for bank, links in chains.items():
        store, table = open_store(world.urls[bank], world.direct), world.table(bank, direct=True)
        own, valid = [note for note in told if note.get("table") == bank], check.without_void(links)
        wrong, _ = check.check_files(store, table.files())
        wrong += check.check_chain(links)
        wrong += check.check_remembered(check.known_keys(store, links[-1]), own)
        wrong += check_members(links, chains)
        findings[bank] = [*wrong, *check.check_counts(table), *check.waiting(table)]
        unheard += check.count_unheard(valid, own)
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


def check_members(links: Sequence[check.Link], chains: Mapping[str, Sequence[check.Link]]) -> list[str]:
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
    chains = [check.read_chain(open_store(world.urls[bank], world.direct)) for bank in BANKS]
    members = sum(link.snapshot.get("pending") is not None for links in chains for link in links)
    return {"members": members, "void": sum(len(links[-1].snapshot.get("void", ())) for links in chains)}
