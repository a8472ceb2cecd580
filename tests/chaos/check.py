"""What must hold of the tables: of any version while everything runs (`compare…`), of all of it at the end (`check_fed`, `check_state`).

At the end snapshots are decoded here, as the specification describes them, and data files by pyarrow alone; which files are live the
library says, and its own datasets are held to the same. Everything returns findings, sentences; none is as it should be.
"""

import hashlib
import io
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from tests.chaos.log import Log, Record
from tests.chaos.work import extra
from tests.chaos.world import AGAIN, BATCH, COUNTER, HANDED, PIECES, SLOT
from tests.faults.collected import gc, needed, sizes

import manifestcommit as mc
from manifestcommit.store import Store, open_store

_VERSIONS = "_manifest/versions/"
_NAME = re.compile(r"_manifest/versions/(\d{20})\.json\.zst")
_KEY = re.compile(r"(.*) \[(\d+),(\d+)\)", re.DOTALL)
_SETTING_BACK = ("rewind", "rollback")
_SAMPLES = 10  # versions whose whole list of files is read through the library
_SHOWN = 5  # findings of one kind


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One version as its object says."""

    version: int
    digest: str
    snapshot: dict[str, Any]

    @property
    def watermarks(self) -> dict[str, int]:
        return dict(self.snapshot.get("watermarks", {}))


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A live file and the rows in it."""

    path: str
    added: int
    job: str
    rows: list[tuple[str, Record]]


# --- rows against the log -----------------------------------------------------------------------------------------------
def compare(table: pa.Table, log: Log, watermarks: Mapping[str, Any]) -> list[str]:
    """The rows of one version: of each source exactly the records below its watermark, each once and unchanged."""
    found: dict[str, list[Record]] = defaultdict(list)
    for source, record in records_of(table):
        found[source].append(record)
    findings = [f"rows of {source!r}, which is no source" for source in found.keys() - set(log.sources)]
    for source in log.sources:
        mark = watermarks.get(source, 0)
        findings += _compare_range(source, found.get(source, []), log, 0, mark)
    return [*findings, *_compare_extras(table)]


def records_of(table: pa.Table) -> Iterator[tuple[str, Record]]:
    """The rows as records, each with its source."""
    columns = [table.column(name).to_pylist() for name in ("source", "position", "id", "kind", "payload")]
    for source, *record in zip(*columns, strict=True):
        yield source, Record(*record)


def _compare_range(source: str, found: Iterable[Record], log: Log, start: int, end: int) -> list[str]:
    if end > log.end(source):
        return [f"the watermark of {source!r} is {end}, and its log ends at {log.end(source)}"]
    expected = log.read(source, start, end)
    there = sorted(found, key=lambda record: (record.position, record.id))
    if there == expected:
        return []
    truth, count = {record.position: record for record in expected}, Counter(record.position for record in there)
    kinds = {
        "twice": [position for position, times in count.items() if times > 1],
        "lost": [position for position in truth if not count[position]],
        "out of the range": [position for position in count if position not in truth],
        "changed": [record.position for record in there if truth.get(record.position, record) != record],
    }
    return [f"{source!r} from {start} to {end}: {len(each)} {kind}: {sorted(each)[:_SHOWN]}" for kind, each in kinds.items() if each]


def _compare_extras(table: pa.Table) -> list[str]:
    findings = []
    positions = table.column("position").to_pylist()
    for name in table.column_names:
        if name.startswith("extra"):
            pairs = zip(positions, table.column(name).to_pylist(), strict=True)
            wrong = [position for position, value in pairs if value not in (None, extra(name, position))]
            findings += [f"column {name!r}: wrong values at {wrong[:_SHOWN]}"] if wrong else []
    return findings


def compare_batches(table: pa.Table, log: Log) -> list[str]:
    """The rows of one version of the table that keys alone guard: each batch whole and once, or not at all."""
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for source, record in records_of(table):
        found[source, record.position // BATCH].append(record)
    findings = [f"rows of {source!r}, which is no source" for source in {source for source, _ in found} - set(log.sources)]
    for (source, number), records in found.items():
        if source in log.sources:
            findings += _compare_range(source, records, log, number * BATCH, (number + 1) * BATCH)
    return [*findings, *_compare_extras(table)]


def compare_state(table: pa.Table, watermarks: Mapping[str, Any]) -> list[str]:
    """The rows of the table that is overwritten: of each slot the pieces of the generation that its watermark tells, and no others."""
    found = sorted(zip(*(table.column(name).to_pylist() for name in ("slot", "generation", "piece")), strict=True))
    expected = sorted(
        (source.removeprefix(SLOT), generation, piece) for source, generation in watermarks.items() for piece in range(PIECES)
    )
    return [] if found == expected else [f"its generations are {dict(watermarks)}, and its rows {found}"]


def compare_again(table: pa.Table, watermarks: Mapping[str, Any]) -> list[str]:
    """The rows of the table whose sources are rewound: each slot below a watermark, and any other, whole and of one generation."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for slot, generation, piece in zip(*(table.column(name).to_pylist() for name in ("slot", "generation", "piece")), strict=True):
        found[slot].append((generation, piece))
    lost = sorted({f"{source} {number}" for source, mark in watermarks.items() for number in range(mark)} - found.keys())
    findings = [f"the watermarks are {dict(watermarks)}, and {len(lost)} slots are lost: {lost[:_SHOWN]}"] if lost else []
    wrong = {slot: pieces for slot, pieces in found.items() if sorted(pieces) != [(pieces[0][0], piece) for piece in range(PIECES)]}
    return findings + [f"slot {slot!r} is not one whole generation: {sorted(wrong[slot])}" for slot in sorted(wrong)[:_SHOWN]]


def compare_jobs(table: pa.Table, jobs: Iterable[str]) -> list[str]:
    """The rows of the table that prepared jobs bring: what each of these jobs wrote, once, and nothing else."""
    return compare_state(table, dict.fromkeys((SLOT + job for job in jobs), 1))


def last_of(table: pa.Table) -> int:
    """The highest generation; 0 where there is none."""
    return max(table.column("generation").to_pylist(), default=0)


# --- one table at the end -----------------------------------------------------------------------------------------------
def read_chain(store: Store) -> list[Link]:
    """Every version from the first that readers may ask for on, ascending. A gc that was killed leaves some below, and a stalled writer may
    bring one back; which of those are void, no newer version says."""
    names = {int(match[1]): info.name for info in store.list(_VERSIONS) if (match := _NAME.fullmatch(info.name))}
    links = []
    for version in sorted(names):
        data = store.get(names[version])
        snapshot = json.loads(zstandard.ZstdDecompressor().decompress(data))
        links.append(Link(version=version, digest=f"sha256:{hashlib.sha256(data).hexdigest()}", snapshot=snapshot))
    return [link for link in links if link.version >= links[-1].snapshot.get("expired", 1)]


def is_readable(snapshot: Mapping[str, Any], version: int) -> bool:
    """Whether readers may ask this head for that version."""
    return version >= snapshot.get("expired", 1) or version in {each["version"] for each in snapshot.get("tags", {}).values()}


def without_void(links: Sequence[Link]) -> list[Link]:
    """Without members of joint commits that were aborted, as the newest one tells."""
    void = set(links[-1].snapshot.get("void", ())) if links else set()
    return [link for link in links if link.version not in void]


def known_keys(store: Store, link: Link) -> set[str]:
    """The keys that a version remembers, those in its runs included."""
    runs = [pq.read_table(io.BytesIO(store.get(run["path"]))) for run in link.snapshot.get("key_runs", ())]
    return {*link.snapshot.get("keys", {}), *(key for run in runs for key in run.column("key").to_pylist())}


def check_chain(links: Sequence[Link]) -> list[str]:
    """No version is missing, each holds its parent's digest, each job and each key is in one version, and no watermark goes back.

    Only by a rewind or a rollback a watermark does, and after one a key may be there again. Void versions hold nothing.
    """
    findings = []
    valid = without_void(links)
    for parent, child in itertools.pairwise(links):
        if child.version != parent.version + 1:
            findings.append(f"versions {parent.version + 1} to {child.version - 1} are missing")
        elif child.snapshot["parent_digest"] != parent.digest:
            findings.append(f"version {child.version} was not built on version {parent.version} as it is")
    for parent, child in itertools.pairwise(valid):
        findings += [f"version {child.version}: {said}" for said in _compare_neighbours(parent.snapshot, child.snapshot)]
        back = [source for source, mark in parent.watermarks.items() if child.watermarks.get(source, -1) < mark]
        if back and not any(commit["operation"] in _SETTING_BACK for commit in child.snapshot["commits"]):
            findings.append(f"version {child.version} sets back the watermarks of {back}")
    if links and links[0].version > links[-1].snapshot.get("expired", 1):
        findings.append(f"versions {links[-1].snapshot.get('expired', 1)} to {links[0].version - 1} are missing")
    wrong = [link.version for link in links if link.snapshot["version"] != link.version]
    findings += [f"objects that hold another version: {wrong}"] if wrong else []
    commits = [commit for link in valid for commit in link.snapshot["commits"]]
    undone = itertools.accumulate(commit["operation"] in _SETTING_BACK for commit in commits)
    keys = Counter((commit["key"], before) for commit, before in zip(commits, undone, strict=True) if commit.get("key") is not None)
    for member, names in (("job", Counter((commit["job"], 0) for commit in commits)), ("key", keys)):
        twice = [name for (name, _), times in names.items() if times > 1]
        findings += [f"{len(twice)} times one {member} in two versions: {twice[:_SHOWN]}"] if twice else []
    return findings


def _compare_neighbours(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What no version may do to the one before it."""
    operations = {each["operation"] for each in new["commits"]}
    for name in ("fence", "expired"):
        if new.get(name, 1) < old.get(name, 1):
            yield f"{name} went back from {old[name]} to {new.get(name, 1)}"
        if new.get(name, 1) > old.get(name, 1) and "gc" not in operations:
            yield f"{name} moved, and no gc did it"
    if new.get("expired", 1) > new.get("fence", 1):
        yield f"versions below {new['expired']} are expired, and jobs born from {new.get('fence', 1)} on may commit"
    tags = {name: each for name, each in new.get("tags", {}).items() if old.get("tags", {}).get(name) != each}
    if old.get("tags", {}) != new.get("tags", {}) and not {"tag", "untag"} & operations:
        yield f"the tags were {old.get('tags', {})} and are {new.get('tags', {})}"
    for name, each in tags.items():
        if not is_readable(old, each["version"]):
            yield f"it gives version {each['version']} the name {name!r}, which was expired before"


def check_files(store: Store, files: pa.Table) -> tuple[list[str], list[Listed]]:
    """Every listed file is there once, with its length, its digest and its number of rows; what is in them."""
    listed = files.select(["path", "bytes", "rows", "digest", "added_version", "job"]).to_pylist()
    sizes = {info.name: info.size_bytes for info in store.list("")}
    paths = Counter(each["path"] for each in listed)
    findings = [f"{path!r} is live {times} times" for path, times in paths.items() if times > 1]
    bad = [each["path"] for each in listed if sizes.get(each["path"]) != each["bytes"]]
    findings += [f"{len(bad)} listed files are missing or have another length: {bad[:_SHOWN]}"] if bad else []

    def read(each: dict[str, Any]) -> Listed | str:
        data = store.get(each["path"])
        if each["digest"] not in (None, f"sha256:{hashlib.sha256(data).hexdigest()}"):
            return f"{each['path']!r} has other bytes than were listed"
        table = pq.read_table(io.BytesIO(data))
        if table.num_rows != each["rows"]:
            return f"{each['path']!r} has {table.num_rows} rows, and {each['rows']} are listed"
        rows = list(records_of(table)) if "position" in table.column_names else []
        return Listed(path=each["path"], added=each["added_version"], job=each["job"], rows=rows)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(read, [each for each in listed if each["path"] not in bad]))
    return [*findings, *(each for each in found if isinstance(each, str))], [each for each in found if isinstance(each, Listed)]


def check_every_version(links: Sequence[Link], files: Sequence[Listed], log: Log, keys: Iterable[str]) -> list[str]:
    """What each version added is exactly what its watermarks moved over, or else its key names; its totals are those of all files so far.

    Only of tables from which nothing is removed. Together: every version holds exactly the records below its watermarks. What the oldest
    one holds, the versions before it have added, too: what its watermarks or else all the keys say that it remembers.
    """
    by_version: dict[int, list[Listed]] = defaultdict(list)
    for each in files:
        by_version[max(each.added, links[0].version)].append(each)
    findings, before = list[str](), Link(version=0, digest="", snapshot={})
    count = total = 0
    for link in links:
        found: dict[str, list[Record]] = defaultdict(list)
        for each in by_version[link.version]:
            count, total = count + 1, total + len(each.rows)
            for source, record in each.rows:
                found[source].append(record)
        if link.watermarks:
            wrong = _compare_ranges(found, log, _moved(before, link))
        elif link is links[0]:
            wrong = _compare_named(found, log, keys)
        else:
            wrong = _compare_named(found, log, _keys(link))
        findings += [f"version {link.version}: {each}" for each in wrong]
        totals = link.snapshot.get("totals", {})
        if (totals.get("files", 0), totals.get("rows", 0)) != (count, total):
            findings.append(f"version {link.version}: its totals are {totals}, its files {count} with {total} rows")
        before = link
    stray = sorted(each.path for each in files if each.added > links[-1].version)
    return [*findings, *(f"{path!r} was added by a version that is not there" for path in stray)][: 4 * _SHOWN]


def _compare_ranges(found: Mapping[str, list[Record]], log: Log, ranges: Mapping[str, tuple[int, int]]) -> list[str]:
    sources = found.keys() | ranges.keys()
    return [each for source in sources for each in _compare_range(source, found.get(source, []), log, *ranges.get(source, (0, 0)))]


def _compare_named(found: Mapping[str, list[Record]], log: Log, keys: Iterable[str]) -> list[str]:
    """The batches of all these keys, and nothing else."""
    there: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for source, records in found.items():
        for record in records:
            there[source, record.position // BATCH].append(record)
    ranges = {(match[1], int(match[2]) // BATCH): (int(match[2]), int(match[3])) for key in keys if (match := _KEY.fullmatch(key))}
    batches = sorted(there.keys() | ranges.keys())
    return [each for batch in batches for each in _compare_range(batch[0], there[batch], log, *ranges.get(batch, (0, 0)))]


def _moved(before: Link, after: Link) -> dict[str, tuple[int, int]]:
    """What watermarks moved over."""
    return {source: (before.watermarks.get(source, 0), mark) for source, mark in after.watermarks.items()}


def _keys(link: Link) -> list[str]:
    """Of all jobs that the version carries."""
    return [commit["key"] for commit in link.snapshot["commits"] if commit.get("key") is not None]


def _counted(table: mc.Table, links: Sequence[Link]) -> dict[int, dict[str, int]]:
    """What the counter must be at each version: one more for every overwrite since the oldest that can be read."""
    count, expected = last_of(table.dataset(version=links[0].version).to_table()), dict[int, dict[str, int]]()
    for link in links:
        count += sum(commit["operation"] == "overwrite" for commit in link.snapshot["commits"]) if link is not links[0] else 0
        expected[link.version] = {SLOT + COUNTER: count} if count else {}
    return expected


def check_lists(table: mc.Table, links: Sequence[Link], files: Sequence[Listed]) -> list[str]:
    """Some older versions as the library lists them: the files that were added until then."""
    findings = []
    for link in links[:: max(1, len(links) // _SAMPLES)]:
        there = table.files(version=link.version).column("path").to_pylist()
        if sorted(there) != sorted(each.path for each in files if each.added <= link.version):
            findings.append(f"version {link.version}: the list of its files is not that of what was added until then")
    return findings


# --- what was acknowledged ----------------------------------------------------------------------------------------------
def check_remembered(keys: Container[str], told: Iterable[Mapping[str, Any]]) -> list[str]:
    """Every key that was acknowledged is in the newest version, also where gc has expired the one that recorded it."""
    versions = {each["key"]: each["version"] for each in told if each["what"] == "committed" and each["key"] is not None}
    forgotten = [f"{key!r} of version {version}" for key, version in versions.items() if key not in keys]
    return [f"{len(forgotten)} acknowledged keys are forgotten: {', '.join(forgotten[:_SHOWN])}"] if forgotten else []


def count_unheard(links: Sequence[Link], told: Iterable[Mapping[str, Any]]) -> int:
    """Commits of whose success nobody lived or heard to write it down."""
    heard = {each.get("job") for each in told if each["what"] in ("committed", "aborted")}
    records = [commit for link in links for commit in link.snapshot["commits"]]
    return sum(each["job"] not in heard for each in records if each["operation"] in ("append", "overwrite"))


# --- everything ---------------------------------------------------------------------------------------------------------
def check_fed(
    url: str, options: Mapping[str, Any], log: Log, told: Sequence[Mapping[str, Any]], *, keyed: bool = False
) -> tuple[list[str], int]:
    """All of a table that the log went to, and how many commits went unheard."""
    store, table = open_store(url, options), mc.Table(url, options)
    links = read_chain(store)
    findings, files = check_files(store, table.files())
    findings += check_chain(links)
    findings += check_every_version(links, files, log, known_keys(store, links[0]))
    findings += check_lists(table, links, files)
    findings += check_remembered(known_keys(store, links[-1]), told)
    if not findings:  # a table that is damaged may not be readable
        rows = table.dataset().to_table()
        findings += compare_batches(rows, log) if keyed else compare(rows, log, table.watermarks())
        findings += check_counts(table)
    marks = log.ends() if keyed else table.watermarks()
    behind = {source: (marks.get(source, 0), end) for source, end in log.ends().items() if marks.get(source, 0) != end}
    findings += [f"watermarks that are not the log's ends: {behind}"] if behind else []
    return findings + waiting(table), count_unheard(links, told)


def check_counts(table: mc.Table) -> list[str]:
    """Whether the library finds that its own counts match."""
    wrong = [each for each in table.verify().findings if each.kind in ("counts_differ", "totals_differ", "path_listed_twice")]
    return [f"{each.object}: {each.problem}" for each in wrong[:_SHOWN]]


def check_state(url: str, options: Mapping[str, Any], told: Sequence[Mapping[str, Any]], name: str = "state") -> tuple[list[str], int]:
    """All of a table that the log does not go to, at most versions. name: which of them it is."""
    store, table = open_store(url, options), mc.Table(url, options)
    links = read_chain(store)
    findings, _ = check_files(store, table.files())
    findings += check_chain(links)
    counted = _counted(table, links) if name == COUNTER else {}
    some = [*links[:: max(1, len(links) // _SAMPLES)], links[-1]] if name in (HANDED, AGAIN) else links[:-200:10] + links[-200:]
    for link in some:
        rows = table.dataset(version=link.version).to_table()
        if name == AGAIN:
            wrong = compare_again(rows, link.watermarks)
        elif name == HANDED:
            wrong = compare_jobs(rows, _handed(links, link.version))
        else:
            wrong = compare_state(rows, counted[link.version] if name == COUNTER else link.watermarks)
        findings += [f"version {link.version}: {each}" for each in wrong]
    if name == COUNTER:  # of what has expired only the number is left
        least = len({each["job"] for each in told if each["what"] == "committed" and not each["already"]})
        count = last_of(table.dataset().to_table())
        findings += [f"{least} overwrites were acknowledged, and the count is {count}"] if count < least else []
    return [*findings, *check_counts(table), *waiting(table)], count_unheard(links, told)


def _handed(links: Sequence[Link], version: int) -> list[str]:
    """The jobs that added rows until then, as far as they can be read."""
    commits = [commit for link in links if link.version <= version for commit in link.snapshot["commits"]]
    return [commit["job"] for commit in commits if commit["operation"] == "append"]


def check_swept(store: Store) -> list[str]:
    """Once two gcs have left one version: whatever it does not list and is there, half files too, and what it lists and is not.

    Prepared jobs hold nothing any more: all are decided (`waiting`), some of them in the home of their joint commit alone.
    """
    for _ in range(2):
        gc(store, foreign=True, prepared_grace_s=0)
    unfinished = {each.name for each in store.unfinished()}
    there, listed = {*sizes(store), *unfinished}, needed(store)
    wrong = {"are left that nothing lists": there - listed, "are missing": listed - there}
    return [f"{len(names)} objects {what}: {sorted(names)[:_SHOWN]}" for what, names in wrong.items() if names]


def waiting(table: mc.Table) -> list[str]:
    """Jobs of which nobody has decided what becomes of them."""
    jobs = [info.job for info in table.jobs() if info.state in ("prepared", "running")]
    return [f"{len(jobs)} jobs that nobody finished: {jobs[:_SHOWN]}"] if jobs else []
