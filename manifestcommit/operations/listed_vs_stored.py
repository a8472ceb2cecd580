"""Compares what readable versions list with what is stored below the table path: runs, manifests,
data files. [RD10] [IV6]

Versions are added newest first, one at a time; every object is checked once, however many versions
list it. Damage is reported, never raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import CorruptMetadataError
from ..format import manifest_table, object_names
from ..format.entries import Entry, ManifestRef
from ..format.fields import Schema
from ..format.snapshot import RunRef, Snapshot
from ..log.manifests import JOB_RUN, KEY_RUN, REMOVED_RUN, ManifestReader
from ..protocol.audit import VerifyFinding, compare_totals, count_inlined, finding
from ..runtime.concurrency import prefetch
from ..runtime.name_set import Hashes, Repeats, hashes
from ..store import Store
from .deep_check import examine_file
from .store_inventory import Inventory

# entries held in memory: of a manifest, and of files that wait to be read
_AT_ONCE = 1024
_READERS = 4  # files that are read at the same time; each takes up to 32 MiB, or a batch of rows


class _Listed(msgspec.Struct, kw_only=True):
    """A listed manifest. version: the newest that lists it; removed: rows removed in all versions
    that list it; in_head: rows removed in the latest version."""

    ref: ManifestRef
    schema: Schema
    partition_by: tuple[int, ...]
    version: int
    removed: int
    in_head: int | None = None


class Contents:
    """Collects what versions list, and checks every object once. files, bytes: data files that
    match their entries."""

    def __init__(
        self,
        store: Store,
        head: Snapshot,
        inventory: Inventory,
        report: Callable[..., None],
        *,
        deep: bool,
        progress: Callable[[str], None],
    ) -> None:
        self._store, self._head, self._inventory = store, head, inventory
        self._report, self._say = report, progress
        # By path. A path has several entries only if versions disagree about it: each entry is
        # compared with the object.
        self._runs: dict[str, list[RunRef]] = {}
        self._listed: dict[str, list[_Listed]] = {}
        # what the version above inlines, already checked
        self._above: frozenset[str] = frozenset()
        self._live = Repeats()
        # of the latest version; None: cannot be counted
        self._sums: dict[str, int] | None = dict.fromkeys(("files", "rows", "bytes"), 0)
        self._files = _Files(store, report, progress) if deep else None
        self._reader = ManifestReader(store)
        self.files = self.bytes = 0

    @property
    def manifests(self) -> int:
        """The number of listed manifests and runs."""
        return len(self._runs) + len(self._listed)

    def add_version(self, snapshot: Snapshot) -> None:
        """Check what this version lists and no newer one did; its manifests wait until all versions
        are known."""
        for runs, kind in (
            (snapshot.key_runs, KEY_RUN),
            (snapshot.job_runs, JOB_RUN),
            (snapshot.removed_runs, REMOVED_RUN),
        ):
            for run in runs:
                self._check_run(run, kind, snapshot.version)
        is_head = snapshot.version == self._head.version
        try:
            removed = self._reader.removed(snapshot)
        # a run that was reported: which rows are removed is unknown
        except (CorruptMetadataError, ValueError):
            removed = None
        if removed is not None:
            self._report(*count_inlined(snapshot, removed))
            self._collect(snapshot, removed, is_head)
        elif is_head:
            self._sums = None
        self._check_inlined(snapshot, is_head)

    def finish(self) -> None:
        """Check every manifest, and count what the latest version lists."""
        for count, listed in enumerate(self._all_listed()):
            self._say(f"verifying manifest {count + 1:,} of {len(self._listed):,}")
            self._check_manifest(listed)
        if self._sums is not None:
            self._report(*compare_totals(self._head, self._sums))
        self._report(*self._repeated())
        if self._files is not None:
            self._files.finish()

    def _all_listed(self) -> Iterator[_Listed]:
        return (listed for known in self._listed.values() for listed in known)

    def _check_run(self, run: RunRef, kind: pa.Schema, version: int) -> None:
        known = self._runs.setdefault(run.path, [])
        if run in known:
            return
        known.append(run)
        if not self._is_there(run.path, run.bytes, version):
            return
        try:
            names = self._reader.run(run, kind).column(0)
            ends = pc.min_max(names)
            if (ends["min"].as_py(), ends["max"].as_py()) != (run.first, run.last):
                text = (
                    f"of {run.path} it says {run.first!r} to {run.last!r}, which are not its bounds"
                )
                self._report(finding("reference_false", object_names.version_name(version), text))
        except CorruptMetadataError as error:
            self._report(
                finding(
                    "manifest_damaged", run.path, f"{reason(error)}; version {version} lists it"
                )
            )

    def _is_there(self, path: str, size: int, version: int) -> bool:
        looked = self._inventory.look(hashes([path]), [size])
        if not looked.there[0]:
            self._report(
                finding("manifest_missing", path, f"it is missing; version {version} lists it")
            )
        elif not looked.fits[0]:
            text = (
                f"it has {int(looked.sizes[0]):,} bytes, version {version} lists it with {size:,}"
            )
            self._report(finding("manifest_damaged", path, text))
        return bool(looked.fits[0])

    def _collect(self, snapshot: Snapshot, removed: dict[str, int], is_head: bool) -> None:
        for ref in snapshot.manifests:
            gone = removed.get(ref.path, 0)
            known = self._listed.setdefault(ref.path, [])
            listed = next((reading for reading in known if reading.ref == ref), None)
            if listed is None:
                schema = snapshot.schema or Schema(fields=())
                listed = _Listed(
                    ref=ref,
                    schema=schema,
                    partition_by=snapshot.partition_by,
                    version=snapshot.version,
                    removed=gone,
                )
                known.append(listed)
            listed.removed &= gone
            if is_head:
                listed.in_head = gone

    def _check_inlined(self, snapshot: Snapshot, is_head: bool) -> None:
        fresh = [entry for entry in snapshot.added if entry.path not in self._above]
        self._above = frozenset(entry.path for entry in snapshot.added)
        schema = snapshot.schema or Schema(fields=())
        try:
            manifest_table.check_values(
                snapshot.added, schema=schema, partition_by=snapshot.partition_by
            )
        except ValueError as error:  # no reader can read any file of this version
            self._report(
                finding(
                    "version_unreadable", object_names.version_name(snapshot.version), str(error)
                )
            )
            self._sums = None if is_head else self._sums
            return
        paths = [entry.path for entry in fresh]
        good = self._look(
            hashes(paths),
            np.array([entry.bytes for entry in fresh], np.int64),
            paths.__getitem__,
            snapshot.version,
        )
        if self._files is not None:
            self._files.add([fresh[at] for at in good], schema, snapshot.partition_by)
        if is_head:
            self._live.add(hashes(entry.path for entry in snapshot.added))
            self._count(
                len(snapshot.added),
                sum(e.rows for e in snapshot.added),
                sum(e.bytes for e in snapshot.added),
            )

    def _check_manifest(self, listed: _Listed) -> None:
        ref = listed.ref
        table = self._read(listed) if self._is_there(ref.path, ref.bytes, listed.version) else None
        if table is None:
            self._sums = None if listed.in_head is not None else self._sums
            return
        described = manifest_table.describe(
            table, schema=listed.schema, partition_by=listed.partition_by
        )
        wrong = [name for name, value in described.items() if value != getattr(ref, name)]
        if wrong:
            text = (
                f"of {ref.path} it says {wrong[0]} = {getattr(ref, wrong[0])!r}, which is "
                f"{described[wrong[0]]!r}"
            )
            self._report(
                finding("reference_false", object_names.version_name(listed.version), text)
            )
        kept = manifest_table.live(table, listed.removed & ((1 << table.num_rows) - 1))
        paths = kept.column("path")
        wanted = hashes(paths.to_pylist())
        if listed.in_head is not None:
            same = listed.in_head == listed.removed
            live = (
                kept
                if same
                else manifest_table.live(table, listed.in_head & ((1 << table.num_rows) - 1))
            )
            self._live.add(wanted if same else hashes(live.column("path").to_pylist()))
            self._count(
                live.num_rows,
                *(pc.sum(live.column(name)).as_py() or 0 for name in ("rows", "bytes")),
            )
        good = self._look(
            wanted, kept.column("bytes").to_numpy(), lambda at: paths[at].as_py(), listed.version
        )
        for start in range(0, len(good), _AT_ONCE) if self._files is not None else ():
            self._add_files(listed, kept.take(pa.array(good[start : start + _AT_ONCE], pa.int64())))

    def _add_files(self, listed: _Listed, rows: pa.Table) -> None:
        try:
            entries = manifest_table.from_table(
                rows,
                schema=listed.schema,
                partition_by=listed.partition_by,
                inherited=listed.ref.added,
            )
        # for example, source ranges that are not JSON
        except (pa.ArrowException, msgspec.DecodeError, ValueError, TypeError) as error:
            self._report(
                finding("manifest_damaged", listed.ref.path, f"its entries cannot be read: {error}")
            )
            return
        assert self._files is not None
        self._files.add(entries, listed.schema, listed.partition_by)

    def _read(self, listed: _Listed) -> pa.Table | None:
        """The manifest as the newest version that lists it sees it; None: it is damaged, which is
        reported."""
        ref = listed.ref
        try:
            # another cache would keep all of them
            table = ManifestReader(self._store).manifest(ref, listed.partition_by)
            return manifest_table.align(
                table, schema=listed.schema, partition_by=listed.partition_by
            )
        except CorruptMetadataError as error:
            self._report(
                finding(
                    "manifest_damaged",
                    ref.path,
                    f"{reason(error)}; version {listed.version} lists it",
                )
            )
        except (pa.ArrowException, ValueError, KeyError) as error:
            self._report(
                finding(
                    "manifest_damaged",
                    ref.path,
                    f"it does not fit the schema of version {listed.version}: {error}",
                )
            )
        return None

    def _look(
        self,
        wanted: Hashes,
        sizes: npt.NDArray[np.int64],
        path_of: Callable[[int], str],
        version: int,
    ) -> list[int]:
        """Mask of the files that exist with their listed length and were not checked before; the
        others are reported. [IV6]"""
        looked = self._inventory.look(wanted, sizes)
        for at in np.flatnonzero(~looked.fits).tolist():
            if not looked.there[at]:
                text = f"it is missing; version {version} lists it, with {sizes[at]:,} bytes"
                self._report(finding("file_missing", path_of(at), text))
                self._inventory.note_missing(path_of(at))
            else:
                text = (
                    f"it has {looked.sizes[at]:,} bytes, version {version} lists it with "
                    f"{sizes[at]:,}"
                )
                self._report(finding("file_size_differs", path_of(at), text))
        good = np.flatnonzero(looked.fits & looked.fresh)
        self.files += len(good)
        self.bytes += int(sizes[good].sum())
        rows: list[int] = good.tolist()
        return rows

    def _count(self, files: int, rows: int, bytes: int) -> None:
        if self._sums is not None:
            for name, more in (("files", files), ("rows", rows), ("bytes", bytes)):
                self._sums[name] += more

    def _repeated(self) -> Iterator[VerifyFinding]:
        """Paths that the latest version lists more than once: by hashes first, by names only if
        hashes repeat. [OB5] [IV6]"""
        suspects = set(self._live.repeated().tolist())
        times: dict[str, int] = {}
        for path in self._live_paths() if suspects else ():
            if hash(path) in suspects:
                times[path] = times.get(path, 0) + 1
        for path, count in times.items():
            if count > 1:
                yield finding(
                    "path_listed_twice",
                    path,
                    f"version {self._head.version} lists it {count} times",
                )

    def _live_paths(self) -> Iterator[str]:
        yield from (entry.path for entry in self._head.added)
        for listed in self._all_listed():
            if listed.in_head is not None and (table := self._read(listed)) is not None:
                yield from (
                    manifest_table.live(table, listed.in_head & ((1 << table.num_rows) - 1))
                    .column("path")
                    .to_pylist()
                )


class _Files:
    """Data files on their way through `examine_file`: a few are read at the same time, and at most
    `_AT_ONCE` wait. [RD10]"""

    def __init__(
        self, store: Store, report: Callable[..., None], progress: Callable[[str], None]
    ) -> None:
        self._store, self._report, self._say = store, report, progress
        self._waiting: list[tuple[Entry, Schema, Sequence[int]]] = []
        self._done = 0

    def add(self, entries: Sequence[Entry], schema: Schema, partition_by: Sequence[int]) -> None:
        for entry in entries:
            self._waiting.append((entry, schema, partition_by))
            if len(self._waiting) >= _AT_ONCE:
                self.finish()

    def finish(self) -> None:
        for _, problems in prefetch(
            lambda item: examine_file(self._store, *item),
            self._waiting,
            threads=_READERS,
            limit=2 * _READERS,
        ):
            self._report(*problems.result())
            self._done += 1
            if self._done % 10 == 0:
                self._say(f"reading files: {self._done:,} done")
        self._waiting = []


def reason(error: Exception) -> str:
    """Why an object is refused, without the advice at the end of the error's text."""
    text = str(error)
    if isinstance(error, CorruptMetadataError):
        text = text.removeprefix(
            f"{error.object_name} is damaged or was not written by manifestcommit: "
        )
    return text.partition(". Nothing was read from it")[0]
