"""Checks that all counts match: read, written, committed, the running totals of the snapshots, and
what the latest version lists. [OB2] [OB5] [OB10]

Not here: whether the listed files exist and hold what their entries say (engine.inspection.verify).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ...core.table.snapshot import Commit, Snapshot, Totals
from ...terminal.notebook import Shown
from ..metadata.table_context import TableContext
from ..metadata.version_chain import walk_back

_COUNTED = ("files", "rows", "bytes")


class CountMismatch(msgspec.Struct, frozen=True, kw_only=True):
    """Two counts that should be equal.

    Attributes:
        version: the version in which they differ.
        what: the names of both counts, that of `found` first.
        expected: the count with which the other was compared.
        found: the count that differs.
    """

    version: int
    what: str
    expected: int
    found: int


class CountReport(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The result of `Table.counts`.

    Attributes:
        url: the table path.
        first: the oldest readable version.
        last: the latest version.
        commits: how many commits these versions have.
        recorded: how many of these record what was read.
        files: how many files the latest version has.
        rows: how many rows it has.
        bytes: how many bytes its files have.
        mismatches: the counts that differ, those of the latest version first.
    """

    url: str
    first: int
    last: int
    commits: int
    recorded: int
    files: int
    rows: int
    bytes: int
    mismatches: tuple[CountMismatch, ...] = ()

    @property
    def all_match(self) -> bool:
        """Return whether no count differs."""
        return not self.mismatches


def compare(session: TableContext, *, progress: Callable[[str], None] | None = None) -> CountReport:
    """Compare all counts of the readable history. One request per version and per manifest of the
    latest version. [OB2] [OB10]

    Memory: two snapshots, one manifest, and eight bytes per listed file. A damaged or unreadable
    object raises its error.
    """
    head = session.open()
    last = head.version
    mismatches: list[CountMismatch] = []
    commits = recorded = 0
    above: Snapshot | None = None
    first = last
    for version in walk_back(session.store, head):
        snapshot = version.snapshot
        first = snapshot.version
        if progress is not None and (last - first) % 20 == 0:
            progress(f"counting version {first:,} of {last:,}")
        for commit in snapshot.commits:
            commits += 1
            recorded += commit.summary.rows_read is not None
            mismatches += _of_commit(first, commit)
        if above is not None:
            mismatches += _of_totals(above, snapshot.totals)
        above = snapshot
    if above is not None and above.version == 1:
        mismatches += _of_totals(above, Totals())
    if progress is not None:
        progress("counting what the newest version lists")
    mismatches += _of_listing(session, head.snapshot)
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
        mismatches=tuple(sorted(mismatches, key=lambda mismatch: -mismatch.version)),
    )


def _of_commit(version: int, commit: Commit) -> Iterator[CountMismatch]:
    """Compare what the job read, what its files hold, and what the commit added. A count that the
    job did not keep is not compared."""
    said = commit.summary
    for what, expected, count in (
        ("rows written, rows read", said.rows_read, said.rows_written),
        ("rows committed, rows written", said.rows_written, said.rows),
        (
            "rows committed, rows read",
            said.rows_read,
            said.rows if said.rows_written is None else None,
        ),
        ("files committed, files written", said.files_written, said.files),
        ("bytes committed, bytes written", said.bytes_written, said.bytes),
    ):
        if expected is not None and count is not None and expected != count:
            yield CountMismatch(
                version=version, what=f"{what}: job {commit.job}", expected=expected, found=count
            )


def _of_totals(snapshot: Snapshot, before: Totals) -> Iterator[CountMismatch]:
    """Compare the totals with those of the version before, plus and minus what was added and
    removed since."""
    for name in _COUNTED:
        moved = sum(
            getattr(commit.summary, name) - getattr(commit.summary, f"removed_{name}")
            for commit in snapshot.commits
        )
        expected, count = getattr(before, name) + moved, getattr(snapshot.totals, name)
        if expected != count:
            yield CountMismatch(
                version=snapshot.version,
                what=f"total {name}, those before with what came and went",
                expected=expected,
                found=count,
            )


def _of_listing(session: TableContext, snapshot: Snapshot) -> Iterator[CountMismatch]:
    """Compare the totals with the entries themselves, and check that no path occurs twice."""
    sums = dict.fromkeys(_COUNTED, 0)
    hashes = array("Q")
    for table in _tables(session, snapshot):
        sums["files"] += table.num_rows
        for name in ("rows", "bytes"):
            sums[name] += pc.sum(table.column(name)).as_py() or 0
        hashes.extend(_hash(path) for path in table.column("path").to_pylist())
    for name in _COUNTED:
        if sums[name] != (expected := getattr(snapshot.totals, name)):
            yield CountMismatch(
                version=snapshot.version,
                what=f"{name} of the listed files, total {name}",
                expected=expected,
                found=sums[name],
            )
    times = pa.array(memoryview(hashes), pa.uint64()).value_counts()
    suspects = set(times.filter(pc.greater(times.field("counts"), 1)).field("values").to_pylist())
    seen: dict[str, int] = {}
    for table in _tables(session, snapshot) if suspects else ():  # two paths may share a hash
        for path in table.column("path").to_pylist():
            if _hash(path) in suspects:
                seen[path] = seen.get(path, 0) + 1
    for path, count in seen.items():
        if count > 1:
            yield CountMismatch(
                version=snapshot.version, what=f"listed: {path}", expected=1, found=count
            )


def _tables(session: TableContext, snapshot: Snapshot) -> Iterator[pa.Table]:
    if snapshot.schema is None:
        return
    yield session.manifests.inlined(snapshot)
    removed = session.manifests.removed(snapshot) if snapshot.manifests else {}
    for ref in snapshot.manifests:
        yield session.manifests.live(ref, snapshot, removed.get(ref.path, 0))


def _hash(path: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )
