"""What must hold after a round: nothing live was deleted, nothing that was acknowledged is lost, and nothing dead is left.

The truth is the model's; the table is read by the library, as users read it. Everything returns findings, sentences.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.races.actor import CALM, Place
from tests.races.draw import STEADY, Round
from tests.races.history import history_of as history_of_round
from tests.races.model import History, State, birth_of, is_readable, read_chain, replay, rows_of
from tests.races.records import Record

import manifestcommit as mc
from manifestcommit.core.table import object_names
from manifestcommit.store import KeepsUnfinished, Store, open_store
from manifestcommit.testing.history.checker import check as judge

_SHOWN = 4

# The errors that each operation may be told of, besides those of a store that fails; any other is a finding.
_FENCED = frozenset({"JobFencedError", "OutcomeUnknownError", "TableNotFoundError", "NotATableError"})
_CONFLICT = _FENCED | {"CommitConflictError", "WatermarkGapError", "WatermarkOverlapError"}
_OLDER = _CONFLICT | {"SnapshotExpiredError", "VersionNotFoundError", "UsageError"}
_NONE = frozenset({"TableNotFoundError", "NotATableError"})
EXPECTED: dict[str, frozenset[str]] = {
    "create": frozenset(),
    "write": _CONFLICT,
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
_OVERTAKEN = (
    "other gcs went further",
    "other gcs decided first",
    "versions were expired",
    "vanished",
)


def check_live(place: Place, records: Sequence[Record]) -> list[str]:
    """After the races: the history, what was told, and every version that can be read."""
    history, findings = history_of(place, records)
    if history is None:
        return findings
    findings += check_errors(place, records)
    findings += check_told(history, records)
    findings += check_reads(history, records)
    findings += check_history(history, records)
    findings += check_fenced(place.round, records)
    return [*findings, *check_table(place, history)]


def check_end(place: Place, records: Sequence[Record]) -> list[str]:
    """After the last two gcs: all of that once more, and nothing is there but what readable versions list."""
    history, findings = history_of(place, records)
    if history is None:
        return findings
    findings += [*check_errors(place, records), *check_told(history, records), *check_table(place, history)]
    return findings or list(check_clean(place, history))


def history_of(place: Place, records: Sequence[Record]) -> tuple[History | None, list[str]]:
    """The history back from the head, and what is wrong with it. None: there is no table."""
    try:
        head = mc.Table(place.url, place.direct)._session.open()
    except mc.TableNotFoundError:
        lost = [each.id for each in records if each.outcome == "committed"]
        return None, [f"there is no table, and {lost} were acknowledged"] if lost else []
    files = {path: rows for each in records for path, rows in each.arguments.get("files", {}).items()}
    return replay(read_chain(place.archive, head.version, head.digest), records, {**place.round.adopted, **files})


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
    """What was acknowledged is in the history at its version; what was refused or given up is nowhere in it."""
    for each in records:
        told, version = each.result.get("told"), each.result.get("version")
        if each.outcome == "committed" and each.result.get("already"):
            key = "adopt" if each.operation == "adopt" else each.arguments["key"]
            if not _has_key(history, version, key):
                yield f"{each.id} was told that its key is in version {version}, which does not have it"
        elif each.outcome == "committed" and each.operation != "adopt":
            if history.version_of(told) != version:
                yield f"{each.id}: {each.operation} was acknowledged as version {version} ({told}), and is in {history.version_of(told)}"
        elif each.outcome == "committed" and not _has_key(history, version, "adopt"):
            yield f"{each.id}: an adoption was acknowledged as version {version}, which is none"
        elif each.outcome == "refused" and each.operation != "prepare" and history.version_of(each.result.get("job", "")) is not None:
            yield f"{each.id} was refused ({each.result.get('error')}), and is in the history ({each.result['job']})"
        elif each.outcome == "refused" and (found := history.version_because(each.id)) is not None:
            yield f"{each.id}, {each.operation}, was refused ({each.result.get('error')}), and is version {found}"
        for job, decision, at in each.result.get("decided", ()):
            found = history.version_of(job)
            if found != (at if decision == "committed" else None):
                yield f"{each.id} was told that {job} is {decision} at {at}, and it is in {found}"
        name = each.arguments.get("name") if each.operation == "tag" and each.outcome == "committed" else None
        if name is not None and _tagged(history, version, name) != each.result["tagged"]:
            yield f"{each.id} tagged version {each.result['tagged']} as {name!r}, and another one has the name"


def _has_key(history: History, version: int, key: str) -> bool:
    """Whether that version carries it; "adopt": whether it is an adoption."""
    commits = history.links[version].snapshot["commits"] if version in history.links else ()
    return any(each.get("key") == key or (key == "adopt" and each["operation"] == "adopt") for each in commits)


def _tagged(history: History, version: int, name: str) -> int | None:
    tags = history.links[version].snapshot.get("tags", {}) if version in history.links else {}
    found: int | None = tags.get(name, {}).get("version")
    return found


def check_history(history: History, records: Sequence[Record]) -> Iterator[str]:
    """A serial order, true to real time, explains what everybody was told and read."""
    wrong = judge(history_of_round(records, history.links))
    if wrong is not None:
        yield str(wrong)


def check_reads(history: History, records: Sequence[Record]) -> Iterator[str]:
    """What readers read is exactly one committed version, and what was gone was expired."""
    for each in records:
        version = each.result.get("version") if each.operation == "read" else None
        if version is None or each.outcome not in ("read", "gone"):
            continue
        if version not in history.links:
            yield f"{each.id} read version {version}, which is not in the history"
        elif each.outcome == "gone" and not history.was_expired(version):
            yield f"{each.id}: version {version} could not be read ({each.result['error']}), and was never expired"
        elif each.outcome == "read":
            found = Counter((number, day) for number, day in each.result["rows"])
            yield from compare(f"{each.id} read version {version}", found, history.states[version])


def compare(what: str, found: Counter[Any], state: State) -> Iterator[str]:
    """The rows that somebody found in a version, against those that it must hold."""
    lost, more = state.rows - found, found - state.rows
    if lost:
        yield f"{what}: {lost.total()} of {state.rows.total()} rows are lost: {sorted(lost, key=repr)[:_SHOWN]}"
    if more:
        yield f"{what}: {more.total()} rows too many: {sorted(more, key=repr)[:_SHOWN]}"


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
    """Every readable and every tagged version can be read and is what it must be; keys are known; verify finds nothing."""
    table, head = mc.Table(place.url, place.direct), history.head.snapshot
    for version in (each for each in history.links if is_readable(head, each)):
        try:
            found = table.dataset(version=version).to_table()
        except (mc.ManifestCommitError, OSError) as error:
            yield f"version {version} is readable, and cannot be read: {type(error).__name__}: {error}"
            continue
        names = found.column_names
        rows = zip(*(found.column(name).to_pylist() for name in ("id", "day")), strict=True) if "id" in names else ()
        yield from compare(f"version {version}", Counter(rows), history.states[version])
    report = table.verify(deep=True)
    yield from (f"verify: {each.kind} {each.object}: {each.problem}" for each in report.findings if each.severity == "damage")
    state = history.states[history.head.version]
    for key in sorted(_all_keys(history) - state.unsure):
        known = mc.begin(place.url, key=key, storage_options=place.direct).already_committed
        if known != (key in state.keys):
            yield f"the key {key!r} is {'known' if known else 'forgotten'}, and its work is {'not ' if known else ''}there"


def _all_keys(history: History) -> set[str]:
    commits = [each for link in history.links.values() for each in link.snapshot["commits"] if each["operation"] != "adopt"]
    return {each["key"] for each in commits if each.get("key") is not None}


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
    table, head = mc.Table(place.url, place.direct), history.head.snapshot
    names = {object_names.HINT, object_names.marker_name(head["table_id"])}
    for version in (each for each in history.links if is_readable(head, each)):
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
        told["rows"] += rows_of(each).total() if each.outcome == "committed" else 0
    return told
