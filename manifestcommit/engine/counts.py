"""Whether all counts match: read, written, committed, the running totals of the snapshots, and what the head lists. [OB2] [OB5] [OB10]

Not here: whether the listed files are there and hold what their entries say.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..core.snapshot import Commit, Snapshot, Totals
from .head import walk_back
from .session import Session

_COUNTED = ("files", "rows", "bytes")


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """Two counts that should be equal. what: which, in words, what was found first."""

    version: int
    what: str
    expected: int
    found: int


class CountReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared. first, last: the readable versions; recorded: commits that say what was read and written; rows: of the head."""

    url: str
    first: int
    last: int
    commits: int
    recorded: int
    files: int
    rows: int
    bytes: int
    mismatches: tuple[Mismatch, ...] = ()

    @property
    def all_match(self) -> bool:
        return not self.mismatches


def compare(session: Session, *, progress: Callable[[str], None] | None = None) -> CountReport:
    """All counts of the readable history against each other. One request per version and per manifest of the head. [OB2] [OB10]

    Holds two snapshots, one manifest and eight bytes per listed file at a time. Raises what a damaged or unreadable object raises.
    """
    head = session.open()
    last = head.version
    found: list[Mismatch] = []
    commits = recorded = 0
    above: Snapshot | None = None
    first = last
    for each in walk_back(session.store, head):
        snapshot = each.snapshot
        first = snapshot.version
        if progress is not None and (last - first) % 20 == 0:
            progress(f"counting version {first:,} of {last:,}")
        for commit in snapshot.commits:
            commits += 1
            recorded += commit.summary.rows_read is not None
            found += _of_commit(first, commit)
        if above is not None:
            found += _of_totals(above, snapshot.totals)
        above = snapshot
    if above is not None and above.version == 1:
        found += _of_totals(above, Totals())
    if progress is not None:
        progress("counting what the newest version lists")
    found += _of_listing(session, head.snapshot)
    totals = head.snapshot.totals
    return CountReport(
        url=session.store.url,
        first=first,
        last=last,
        commits=commits,
        recorded=recorded,
        files=totals.files,
        rows=totals.rows,
        bytes=totals.bytes,
        mismatches=tuple(sorted(found, key=lambda each: -each.version)),
    )


def _of_commit(version: int, commit: Commit) -> Iterator[Mismatch]:
    """What the job was handed, what its files hold, and what the commit added. Jobs that kept no count of one say nothing of it."""
    said = commit.summary
    for what, expected, count in (
        ("rows written, rows read", said.rows_read, said.rows_written),
        ("rows committed, rows written", said.rows_written, said.rows),
        ("rows committed, rows read", said.rows_read, said.rows if said.rows_written is None else None),
        ("files committed, files written", said.files_written, said.files),
        ("bytes committed, bytes written", said.bytes_written, said.bytes),
    ):
        if expected is not None and count is not None and expected != count:
            yield Mismatch(version=version, what=f"{what}: job {commit.job}", expected=expected, found=count)


def _of_totals(snapshot: Snapshot, before: Totals) -> Iterator[Mismatch]:
    """What was live before, and what came and went since, is what is live."""
    for name in _COUNTED:
        moved = sum(getattr(each.summary, name) - getattr(each.summary, f"removed_{name}") for each in snapshot.commits)
        expected, count = getattr(before, name) + moved, getattr(snapshot.totals, name)
        if expected != count:
            yield Mismatch(
                version=snapshot.version, what=f"total {name}, those before with what came and went", expected=expected, found=count
            )


def _of_listing(session: Session, snapshot: Snapshot) -> Iterator[Mismatch]:
    """The entries themselves against the totals, and no path twice."""
    sums = dict.fromkeys(_COUNTED, 0)
    hashes = array("Q")
    for table in _tables(session, snapshot):
        sums["files"] += table.num_rows
        for name in ("rows", "bytes"):
            sums[name] += pc.sum(table.column(name)).as_py() or 0
        hashes.extend(_hash(path) for path in table.column("path").to_pylist())
    for name in _COUNTED:
        if sums[name] != (expected := getattr(snapshot.totals, name)):
            yield Mismatch(version=snapshot.version, what=f"{name} of the listed files, total {name}", expected=expected, found=sums[name])
    times = pa.array(memoryview(hashes), pa.uint64()).value_counts()
    suspects = set(times.filter(pc.greater(times.field("counts"), 1)).field("values").to_pylist())
    seen: dict[str, int] = {}
    for table in _tables(session, snapshot) if suspects else ():  # two paths may share a hash
        for path in table.column("path").to_pylist():
            if _hash(path) in suspects:
                seen[path] = seen.get(path, 0) + 1
    for path, count in seen.items():
        if count > 1:
            yield Mismatch(version=snapshot.version, what=f"listed: {path}", expected=1, found=count)


def _tables(session: Session, snapshot: Snapshot) -> Iterator[pa.Table]:
    if snapshot.schema is None:
        return
    yield session.manifests.inlined(snapshot)
    removed = session.manifests.removed(snapshot) if snapshot.manifests else {}
    for ref in snapshot.manifests:
        yield session.manifests.live(ref, snapshot, removed.get(ref.path, 0))


def _hash(path: str) -> int:
    return int.from_bytes(hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
