"""What must hold after a round: nothing live was deleted, nothing that was acknowledged is lost, and nothing dead is left.

What each version must hold the history checker says, of what everybody was told and saw; the table is read by the library, as users read
it. The history is the chain of snapshots back from the head, as the archive has it. Everything returns findings, sentences.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import zstandard
from tests.chaos.check import Link, check_chain, is_readable
from tests.chaos.history import birth_of, in_no_version
from tests.races.actor import CALM, Place
from tests.races.draw import STEADY, Round, Rows
from tests.races.history import history_of, rows_of, seen
from tests.races.operations import items_of
from tests.races.records import Record
from tests.races.rig import archived

import manifestcommit as mc
from manifestcommit.format import object_names
from manifestcommit.store import KeepsUnfinished, Store, open_store
from manifestcommit.testing.history.checker import check as judge
from manifestcommit.testing.history.operation import Operation

_SHOWN = 4

# The errors that each operation may be told of, besides those of a store that fails; any other is a finding.
_FENCED = frozenset({"JobFencedError", "OutcomeUnknownError", "TableNotFoundError", "NotATableError"})
_CONFLICT = _FENCED | {"CommitConflictError", "WatermarkGapError", "WatermarkOverlapError"}
_OLDER = _CONFLICT | {"SnapshotExpiredError", "VersionNotFoundError", "UsageError"}
_NONE = frozenset({"TableNotFoundError", "NotATableError"})
EXPECTED: dict[str, frozenset[str]] = {
    "create": frozenset(),
    "write": _CONFLICT,
    "repeat": _NONE,
    "orphan": _FENCED,
    "prepare": _FENCED,
    "settle": _CONFLICT | {"JobAbortedError", "UsageError"},
    "close": _NONE,
    "add_files": _CONFLICT | {"UsageError"},
    "add_again": _OLDER,
    "replace": _CONFLICT | {"SnapshotExpiredError"},
    "adopt": _CONFLICT | {"UsageError"},
    "tag": _OLDER,
    "untag": _OLDER,
    "rollback": _OLDER,
    "rewind": _OLDER,
    "read": _NONE | {"SnapshotExpiredError"},
    "gc": _NONE,
    "verify": _NONE,
}
# What a store without faults says where others are faster again and again: it fails, and loses nothing that it was told of.
_OVERTAKEN = ("other gcs went further", "other gcs decided first", "versions were expired", "vanished")


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The chain, and what everybody did to the table, was told and saw. rows: of files that no job wrote, by path."""

    links: dict[int, Link]
    operations: list[Operation]
    rows: dict[str, Rows]

    @property
    def head(self) -> Link:
        return self.links[max(self.links)]

    @property
    def readable(self) -> list[Link]:
        return [link for link in self.links.values() if is_readable(self.head.snapshot, link.version)]

    def was_expired(self, version: int) -> bool:
        """Whether at some time since then nobody could ask for that version."""
        return any(not is_readable(link.snapshot, version) for link in self.links.values() if link.version >= version)


def check_live(place: Place, records: Sequence[Record]) -> list[str]:
    """After the races: the history, what was told, and every version that can be read."""
    history, findings = read_history(place, records)
    if history is None:
        return findings
    return [
        *check_errors(place, records),
        *check_chain(list(history.links.values())),
        *check_told(history, records),
        *check_gone(history, records),
        *check_fenced(place.round, records),
        *check_table(place, history),
    ]


def check_end(place: Place, records: Sequence[Record]) -> list[str]:
    """After the last two gcs: all of that once more, and nothing is there but what readable versions list."""
    history, _ = read_history(place, records)
    return check_live(place, records) or ([] if history is None else list(check_clean(place, history)))


def read_history(place: Place, records: Sequence[Record]) -> tuple[History | None, list[str]]:
    """None: there is no table, which may be a loss."""
    try:
        head = mc.Table(place.url, place.direct)._ctx.open()
    except mc.errors.TableNotFoundError:
        lost = [each.id for each in records if each.outcome == "committed"]
        return None, [f"there is no table, and {lost} were acknowledged"] if lost else []
    files = {path: rows for each in records for path, rows in each.arguments.get("files", {}).items()}
    links, rows = read_chain(place.archive, head.version, head.digest), {**place.round.adopted, **files}
    return History(links=links, operations=history_of(records, links, rows), rows=rows), []


def read_chain(archive: Path, version: int, digest: str | None) -> dict[int, Link]:
    """Every version back from this one, by the digests of parents, ascending; what the archive lacks raises FileNotFoundError."""
    links: list[Link] = []
    while digest is not None:
        data = archived(archive, version, digest).read_bytes()
        snapshot = json.loads(zstandard.ZstdDecompressor().decompress(data))
        links.append(Link(version=version, digest=digest, snapshot=snapshot))
        version, digest = version - 1, snapshot.get("parent_digest")
    return {link.version: link for link in reversed(links)}


def check_errors(place: Place, records: Sequence[Record]) -> Iterator[str]:
    """Nobody met an error that these races cannot explain."""
    for each in records:
        error = each.result.get("error")
        if error is None or error in EXPECTED[each.operation] or each.outcome == "gone":
            continue
        message = each.result.get("message", "")
        faulty = place.options != place.direct and each.process not in CALM
        if each.operation == "gc" and "adoption of this folder is unfinished" in message:
            continue
        if each.outcome == "failed" and (faulty or any(said in message for said in _OVERTAKEN)):
            continue
        yield f"{each.id}, {each.operation} {each.arguments}: {error}: {message}"
    for each in records:
        if each.result.get("damage"):
            yield f"{each.id}: verify found {each.result['damage'][:_SHOWN]}"


def check_told(history: History, records: Sequence[Record]) -> Iterator[str]:
    """What was acknowledged is in the history, and a tag names what was asked for."""
    yield from in_no_version(history.operations)
    for each in records:
        link = history.links.get(each.result.get("version", 0))
        if each.outcome != "committed" or each.operation not in ("adopt", "tag"):
            continue
        if each.operation == "adopt" and (link is None or "adopt" not in [commit["operation"] for commit in link.snapshot["commits"]]):
            yield f"{each.id}: an adoption was acknowledged as version {each.result['version']}, which is none"
        named = link.snapshot.get("tags", {}).get(each.arguments.get("name"), {}) if link is not None else {}
        if each.operation == "tag" and named.get("version") != each.result["tagged"]:
            yield f"{each.id} tagged version {each.result['tagged']} as {each.arguments['name']!r}, and another one has the name"


def check_gone(history: History, records: Sequence[Record]) -> Iterator[str]:
    """What could not be read was expired."""
    for each in records:
        if each.operation == "read" and each.outcome == "gone" and "version" in each.result:
            version = each.result["version"]
            if version not in history.links or not history.was_expired(version):
                yield f"{each.id}: version {version} could not be read ({each.result['error']}), and was never expired"


def check_fenced(round: Round, records: Sequence[Record]) -> Iterator[str]:
    """Only jobs that ran longer than the shortest grace are fenced, where clocks are only early or late and all the same.

    A second is allowed for: a version is visible a little later than its object's time says.
    """
    if any(actor.clock not in STEADY for actor in round.actors) or not round.gcs:
        return
    shortest_s = min(step.arguments["grace_s"] for step in round.gcs)
    for each in records:
        if each.result.get("error") == "JobFencedError" and each.ended_s - each.begin_s < shortest_s - 1:
            yield f"{each.id} was fenced after {each.ended_s - each.begin_s:.2f} s, and every gc had a grace of at least {shortest_s} s"


def check_table(place: Place, history: History) -> Iterator[str]:
    """Every readable and every tagged version can be read, verify finds nothing, and a serial order that is true to real time explains
    what everybody was told and read, and what each version shows now."""
    table, shown = mc.Table(place.url, place.direct), dict[int, list[str]]()
    for version in (link.version for link in history.readable):
        try:
            shown[version] = items_of(table, version)
        except (mc.errors.ManifestCommitError, OSError) as error:
            yield f"version {version} is readable, and cannot be read: {type(error).__name__}: {error}"
    report = table.verify(deep=True)
    yield from (f"verify: {each.kind} {each.object}: {each.problem}" for each in report.findings if each.severity == "damage")
    wrong = judge([*history.operations, *(seen(link, shown.get(link.version)) for link in history.links.values())])
    if wrong is not None:
        yield str(wrong)


def check_clean(place: Place, history: History) -> Iterator[str]:
    """What is there is what readable versions list; and files that nobody's job wrote, unless gc was to delete them."""
    store = open_store(place.url, place.direct)
    there, listed = set(everything(store, place)), needed(place, history)
    left, lost = there - listed, listed - there
    if not place.round.foreign:
        left -= set(place.round.adopted) | {name for name in left if name.startswith("von woanders %/")}
    if left:
        yield f"{len(left)} objects are left that nothing lists, the jobs of {_births(left)} among them: {sorted(left)[:_SHOWN]}"
    if lost:
        yield f"{len(lost)} objects are missing: {sorted(lost)[:_SHOWN]}"


def everything(store: Store, place: Place) -> Iterator[str]:
    """Every file below the root, hidden ones too, or every object, and every upload that was not finished."""
    if place.round.store == "local":
        for folder, _, names in os.walk(place.url):
            yield from (str((Path(folder) / name).relative_to(place.url)) for name in names)
        return
    yield from (info.name for info in store.list(""))
    assert isinstance(store, KeepsUnfinished)
    yield from (f"upload of {each.name}" for each in store.unfinished())


def needed(place: Place, history: History) -> set[str]:
    """The hint, the marker, the readable versions, and what they list."""
    table = mc.Table(place.url, place.direct)
    names = {object_names.HINT, object_names.marker_name(history.head.snapshot["table_id"])}
    for version in (link.version for link in history.readable):
        snapshot = table.snapshot(version)
        runs = (*snapshot.key_runs, *snapshot.job_runs, *snapshot.removed_runs)
        names |= {object_names.version_name(version), *(ref.path for ref in (*snapshot.manifests, *runs))}
        names |= set(table.files(version=version).column("path").to_pylist())
    return names


def _births(names: set[str]) -> str:
    jobs = [job for name in names if (job := object_names.job_of_data_file(name)) is not None]
    return ", ".join(f"birth {birth_of(job)}" for job in sorted(jobs)[:_SHOWN]) or "no birth"


def summary_of(records: Sequence[Record]) -> Mapping[str, int]:
    """How often each thing happened."""
    told: Counter[str] = Counter()
    for each in records:
        told[f"{each.operation} {each.outcome or 'killed'}"] += 1
        if "error" in each.result:
            told[str(each.result["error"])] += 1
        told["rows"] += len(rows_of(each)) if each.outcome == "committed" else 0
    return told
