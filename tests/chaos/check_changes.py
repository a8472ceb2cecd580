"""What must hold of the table of row changes at the end: every version, by a replay of the changes that its chain names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos.changes import TABLE, Replay
from tests.chaos.check import Link, check_chain, check_counts, check_files, read_chain, waiting
from tests.chaos.world import World

from manifestcommit.store import open_store

_SHOWN = 5
_COMPARED = 60  # versions, spread over all of them


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
