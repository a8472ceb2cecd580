"""Verifies a table: its chain, and everything that its readable versions list. Changes nothing.
[RD10] [IV1] [IV6]"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..commits.joint_commit import check_partners
from ..display import ReprMixin, age, line
from ..errors import (
    CorruptMetadataError,
    ManifestCommitError,
    StoreError,
    TableNotFoundError,
    UndecidedError,
    UnsupportedFormatError,
)
from ..files.footer_stats import parquet_columns, tracked_leaves
from ..files.foreign_file import STREAMED, noted_footer
from ..format import codec, manifest_table, object_names, values
from ..format.entries import ColumnStats, Entry, ManifestRef
from ..format.fields import MAX_FIELD_ID, FieldType, Leaf, Schema, WireValue, leaves, shown
from ..format.snapshot import RunRef, Snapshot, totals_of
from ..format.transforms import maker, partition_fields, source_ids
from ..format.values import arrow_type, order_key
from ..log.manifests import JOB_RUN, KEY_RUN, REMOVED_RUN, ManifestReader
from ..log.table_context import TableContext, export_lags, gate
from ..log.version_chain import Head, list_above, misplaced, open_head, read_object
from ..protocol.audit import (
    VerifyFinding,
    check_step,
    check_version,
    compare_totals,
    count_inlined,
    finding,
    other_table,
    skipped_version,
)
from ..runtime.environment import STARTS, prefetch
from ..store import Store
from .store_inventory import Hashes, Inventory, hashes, repeated

# files up to this size are fetched once; larger ones are streamed, once for the digest and once for
# the rows
_WHOLE_BYTES = 32 << 20
_CHUNK_BYTES = 8 << 20
_BATCH_ROWS = 65_536
_GONE = "it was there when the root was listed, and is gone"

Progress = Callable[[str], None]


def examine_file(
    store: Store, entry: Entry, schema: Schema, partition_by: Sequence[int]
) -> list[VerifyFinding]:
    """The differences between the entry and the file; StoreError if the store fails. [RD10] [OB7]

    Memory: one file of up to 32 MiB, or one batch of rows of a larger one.
    """
    try:
        with _open(store, entry) as stream:
            if differs := _differs(stream, entry):
                return [finding("file_content_differs", entry.path, differs)]
            stream.seek(0)
            return list(_examine(stream, entry, schema, partition_by))
    except FileNotFoundError:
        return [finding("file_missing", entry.path, _GONE)]
    # Arrow reports a damaged footer as an OSError
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        return [finding("file_unreadable", entry.path, f"it cannot be read as Parquet: {error}")]


def _examined(store: Store, file: tuple[Entry, Schema, Sequence[int]]) -> list[VerifyFinding]:
    return examine_file(store, *file)


def _open(store: Store, entry: Entry) -> Any:
    if entry.bytes > _WHOLE_BYTES:
        return store.open_input(entry.path)
    return pa.BufferReader(store.get(entry.path))


def _differs(stream: Any, entry: Entry) -> str:
    """How the bytes differ from those that were written or added; empty: they do not. [AF3]"""
    if entry.digest is not None:
        actual = _digest(stream)
        is_same = actual == entry.digest
        return "" if is_same else f"its digest is {actual}, that of what was written {entry.digest}"
    if entry.footer is None:
        return "its entry has neither its digest nor that of its footer: add it again"
    try:
        noted_footer(stream, entry.bytes, entry.footer)
    except pa.ArrowInvalid as error:
        return str(error)
    return ""


def _digest(stream: Any) -> str:
    hashed = hashlib.sha256()
    if isinstance(stream, pa.NativeFile):
        hashed.update(stream.read_buffer())  # data in memory is not copied
    else:
        while chunk := stream.read(_CHUNK_BYTES):
            hashed.update(chunk)
    return codec.digest_of(hashed)


def _examine(
    stream: Any, entry: Entry, schema: Schema, partition_by: Sequence[int]
) -> Iterator[VerifyFinding]:
    file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", **STREAMED)
    if file.metadata.num_rows != entry.rows:
        text = f"it has {file.metadata.num_rows:,} rows, its entry says {entry.rows:,}"
        yield finding("file_rows_differ", entry.path, text)
    columns = parquet_columns(file.schema_arrow)
    tracked = {leaf.id: leaf for leaf in tracked_leaves(schema, columns, sys.maxsize)}
    partitions, sources = partition_fields(schema, partition_by), source_ids(partition_by)
    wanted = [leaf for id, leaf in tracked.items() if id in entry.columns or id in sources]
    tallies = {leaf.id: _Tally(leaf) for leaf in wanted}
    for field in partitions:
        if (source := tallies.get(field.id & MAX_FIELD_ID)) is not None:
            source.made[field.id] = field.type, maker(schema, field.id)
    rows, names = 0, sorted({leaf.path[0] for leaf in wanted})
    # Several files are decoded at once already; a large one may be the last of them, and take long.
    is_large = entry.bytes > _WHOLE_BYTES
    batches = file.iter_batches(_BATCH_ROWS, columns=names, use_threads=is_large)
    for batch in batches if names else ():
        rows += batch.num_rows
        for tally in tallies.values():
            tally.add(batch)
    if names and rows != file.metadata.num_rows:
        text = f"its footer says {file.metadata.num_rows:,} rows, and {rows:,} can be read"
        yield finding("file_unreadable", entry.path, text)
    for field, value in zip(partitions, entry.partition, strict=True):
        if (source := tallies.get(field.id & MAX_FIELD_ID)) is not None:
            held = source.partitions.get(field.id, set())
            if others := sorted(shown(other) for other in held - {value}):
                name = ".".join(source.leaf.path) if field.id in tracked else field.name
                text = f"column {name} holds {', '.join(others[:3])}, its entry says {shown(value)}"
                yield finding("file_partition_differs", entry.path, text)
    known = {leaf.id for leaf in leaves(schema)}
    for id, said in entry.columns.items():
        if id not in known:
            continue  # the column was dropped: no reader reads it
        if id in tallies:
            name, problems = ".".join(tracked[id].path), tallies[id].contradictions(said)
        else:  # null in every row [SC4]
            name, problems = f"{id}, by its field id, which the file lacks", _null(said, entry.rows)
        for problem in problems:
            yield finding("statistics_false", entry.path, f"column {name}: {problem}")


class _Tally:
    """The observed statistics of one leaf in a file. made: the partition columns that are made of
    it, with their types and how; partitions: the values of each, two at most, which is enough."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self.made: dict[int, tuple[FieldType, Callable[[Any], Any]]] = {}
        self.partitions: dict[int, set[WireValue]] = {}
        self._nulls = self._nans = 0
        self._low: Any = None
        self._high: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        index = batch.schema.get_field_index(self.leaf.path[0])
        if index < 0:
            raise ValueError(f"it has two columns {self.leaf.path[0]!r}")
        column = batch.column(index)
        if len(self.leaf.path) > 1:
            column = pc.struct_field(column, list(self.leaf.path[1:]))
        self._nulls += column.null_count
        if not self.leaf.bounded:
            return
        wanted = arrow_type(self.leaf.type)
        if column.type != wanted:
            column = column.cast(wanted, safe=not pa.types.is_floating(wanted))
        for id, (kind, make) in self.made.items():
            held = self.partitions.setdefault(id, set())
            if len(held) < 2:
                held |= set(values.from_array(pc.unique(make(column)), kind)[:3])
        if pa.types.is_floating(wanted):  # NaN bounds nothing
            is_nan = pc.is_nan(column)
            self._nans += pc.sum(is_nan).as_py() or 0
            column = column.filter(pc.invert(is_nan))
        self._widen(column)

    def contradictions(self, said: ColumnStats) -> Iterator[str]:
        """What an entry wrongly says of a leaf, whose bounds may be too wide, never too narrow."""
        yield from _null(said, self._nulls)
        if said.nans is not None and said.nans != self._nans:
            yield f"it has {self._nans:,} NaNs, its entry says {said.nans:,}"
        low, high, type = self._low, self._high, self.leaf.type
        try:
            if low is not None and said.min is not None and low < order_key(said.min, type):
                yield f"it holds a value below {shown(said.min)}, its smallest by its entry"
            if high is not None and said.max is not None and high > order_key(said.max, type):
                yield f"it holds a value above {shown(said.max)}, its largest by its entry"
        except (ValueError, TypeError):
            yield (
                f"its bounds {shown(said.min)} and {shown(said.max)} are no values of "
                f"the type {type}"
            )

    def _widen(self, column: pa.Array) -> None:
        if pa.types.is_duration(column.type):
            column = column.cast(pa.int64())
        ends = pc.min_max(column)
        if not ends["min"].is_valid:
            return
        type = "long" if pa.types.is_int64(column.type) else self.leaf.type
        wires = values.from_array(pa.array([ends["min"], ends["max"]], column.type), type)
        low, high = (order_key(wire, type) for wire in wires)
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)


def _null(said: ColumnStats, nulls: int) -> Iterator[str]:
    if said.nulls is not None and said.nulls != nulls:
        yield f"it has {nulls:,} nulls, its entry says {said.nulls:,}"


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
    """Collects what versions list, each checked once. files, bytes: data files that match."""

    def __init__(
        self,
        store: Store,
        head: Snapshot,
        inventory: Inventory,
        findings: Findings,
        *,
        deep: bool,
        progress: Progress,
    ) -> None:
        self._store, self._head, self._inventory = store, head, inventory
        self._findings, self._say = findings, progress
        # By path. A path has several entries only if versions disagree about it: each entry is
        # compared with the object.
        self._runs: dict[str, list[RunRef]] = {}
        self._listed: dict[str, list[_Listed]] = {}
        self._above = frozenset[str]()  # what the version above inlines, already checked
        self._live = array("q")  # the hashes of what the latest version lists
        # of the latest version; None: cannot be counted
        self._sums: dict[str, int] | None = dict.fromkeys(("files", "rows", "bytes"), 0)
        self._is_deep, self._read_files = deep, 0
        self._waiting: list[tuple[Entry, Schema, Sequence[int]]] = []  # at most `_AT_ONCE`, to read
        self._reader = ManifestReader(store)
        self.files = self.bytes = 0

    @property
    def manifests(self) -> int:
        """The number of listed manifests and runs."""
        return len(self._runs) + len(self._listed)

    def walk(self, versions: Sequence[int]) -> None:
        """Check all versions, newest first, with the one above. [OB1]"""
        head, findings = self._head, self._findings
        above: Head | None = None  # the last version without a contradiction
        child: Snapshot | None = None  # the last such version that was a state of the table [MT5]
        table_id = head.table_id  # the last such version's
        skipped = {*head.void} - {*versions}
        ahead = prefetch(partial(_read, self._store), versions, threads=_AHEAD, limit=_AHEAD)
        for count, (version, read) in enumerate(ahead):
            opened = read.result()
            if count % 20 == 0:
                self._say(f"verifying version {version:,} of {head.version:,}")
            name = object_names.version_name(version)
            if not isinstance(opened, Head):
                text = opened or _GONE
                findings.note("version_unreadable" if opened else "version_missing", name, text)
                above = child = None
                continue
            snapshot = opened.snapshot
            is_void = version in head.void
            is_next = above is not None and all(
                each in skipped for each in range(version + 1, above.version)
            )
            is_beneath = above is not None and above.snapshot.parent_digest == opened.digest
            is_other = snapshot.table_id != head.table_id
            if is_void and (is_other or (is_next and not is_beneath)):
                findings.add(skipped_version(snapshot, head))
                skipped.add(version)
                continue
            findings.add(*check_version(snapshot))
            trusted = True
            if above is not None and is_next:
                trusted = is_beneath
                findings.add(*_step(snapshot, above, None if is_void else child, trusted=trusted))
            elif snapshot.table_id != table_id:
                findings.add(other_table(snapshot, table_id, "newer versions"))
            self.add_version(snapshot)
            above = opened if trusted else None
            child = None if not trusted else child if is_void else snapshot
            table_id = snapshot.table_id if trusted else table_id

    def add_version(self, snapshot: Snapshot) -> None:
        """Check what only this version lists; manifests wait until all versions are known."""
        all_runs = (snapshot.key_runs, snapshot.job_runs, snapshot.removed_runs)
        for runs, kind in zip(all_runs, (KEY_RUN, JOB_RUN, REMOVED_RUN), strict=True):
            for run in runs:
                self._check_run(run, kind, snapshot.version)
        is_head = snapshot.version == self._head.version
        try:
            removed = self._reader.removed(snapshot)
        # a run that was reported: which rows are removed is unknown
        except (CorruptMetadataError, ValueError):
            removed = None
        if removed is not None:
            self._findings.add(*count_inlined(snapshot, removed))
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
            self._findings.add(*compare_totals(self._head, self._sums))
        self._findings.add(*self._repeated())
        self._examine()

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
            ends = pc.min_max(self._reader.run(run, kind).column(0))
            if (ends["min"].as_py(), ends["max"].as_py()) != (run.first, run.last):
                text = (
                    f"of {run.path} it says {run.first!r} to {run.last!r}, which are not its bounds"
                )
                self._findings.note("reference_false", version, text)
        except CorruptMetadataError as error:
            self._note_damage(run.path, reason(error), version)

    def _is_there(self, path: str, size: int, version: int) -> bool:
        (looked,) = self._inventory.look(hashes([path]))
        if looked.size is None:
            text = f"it is missing; version {version} lists it"
            self._findings.note("manifest_missing", path, text)
        elif looked.size != size:
            text = f"it has {looked.size:,} bytes, version {version} lists it with {size:,}"
            self._findings.note("manifest_damaged", path, text)
        return looked.size == size

    def _note_damage(self, path: str, why: str, version: int) -> None:
        self._findings.note("manifest_damaged", path, f"{why}; version {version} lists it")

    def _collect(self, snapshot: Snapshot, removed: dict[str, int], is_head: bool) -> None:
        for ref in snapshot.manifests:
            gone = removed.get(ref.path, 0)
            known = self._listed.setdefault(ref.path, [])
            listed = next((reading for reading in known if reading.ref == ref), None)
            if listed is None:
                listed = _Listed(
                    ref=ref,
                    schema=snapshot.schema,
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
        try:
            manifest_table.check_values(snapshot.added, snapshot)
        except ValueError as error:  # no reader can read any file of this version
            self._findings.note("version_unreadable", snapshot.version, str(error))
            self._sums = None if is_head else self._sums
            return
        paths, sizes = [entry.path for entry in fresh], [entry.bytes for entry in fresh]
        good = self._look(hashes(paths), sizes, paths.__getitem__, snapshot.version)
        if self._is_deep:
            self._add([fresh[at] for at in good], snapshot.schema, snapshot.partition_by)
        if is_head:
            self._live.extend(hashes(entry.path for entry in snapshot.added))
            inlined = totals_of(snapshot.added)
            self._count(inlined.files, inlined.rows, inlined.bytes)

    def _check_manifest(self, listed: _Listed) -> None:
        ref = listed.ref
        table = self._read(listed) if self._is_there(ref.path, ref.bytes, listed.version) else None
        if table is None:
            self._sums = None if listed.in_head is not None else self._sums
            return
        described = manifest_table.describe(table, listed)
        wrong = [name for name, value in described.items() if value != getattr(ref, name)]
        if wrong:
            said, found = getattr(ref, wrong[0]), described[wrong[0]]
            text = f"of {ref.path} it says {wrong[0]} = {said!r}, which is {found!r}"
            self._findings.note("reference_false", listed.version, text)
        kept = _live(table, listed.removed)
        paths = kept.column("path")
        wanted = hashes(paths.to_pylist())
        if listed.in_head is not None:
            same = listed.in_head == listed.removed
            live = kept if same else _live(table, listed.in_head)
            self._live.extend(wanted if same else hashes(live.column("path").to_pylist()))
            sums = (pc.sum(live.column(name)).as_py() or 0 for name in ("rows", "bytes"))
            self._count(live.num_rows, *sums)
        sizes = kept.column("bytes").to_pylist()
        good = self._look(wanted, sizes, lambda at: paths[at].as_py(), listed.version)
        for start in range(0, len(good), _AT_ONCE) if self._is_deep else ():
            self._add_files(listed, kept.take(pa.array(good[start : start + _AT_ONCE], pa.int64())))

    def _add_files(self, listed: _Listed, rows: pa.Table) -> None:
        try:
            entries = manifest_table.from_table(rows, listed, inherited=listed.ref.added)
        # for example, source ranges that are not JSON
        except (pa.ArrowException, msgspec.DecodeError, ValueError, TypeError) as error:
            text = f"its entries cannot be read: {error}"
            self._findings.note("manifest_damaged", listed.ref.path, text)
            return
        self._add(entries, listed.schema, listed.partition_by)

    def _add(self, entries: Sequence[Entry], schema: Schema, partition_by: Sequence[int]) -> None:
        for entry in entries:
            self._waiting.append((entry, schema, partition_by))
            if len(self._waiting) >= _AT_ONCE:
                self._examine()

    def _examine(self) -> None:
        """Read the files that wait, a few at the same time. [RD10]"""
        examine = partial(_examined, self._store)
        for _, problems in prefetch(examine, self._waiting, threads=_READERS, limit=2 * _READERS):
            self._findings.add(*problems.result())
            self._read_files += 1
            if self._read_files % 10 == 0:
                self._say(f"reading files: {self._read_files:,} done")
        self._waiting = []

    def _read(self, listed: _Listed) -> pa.Table | None:
        """The manifest as its newest version sees it; None: damaged, which is reported."""
        ref = listed.ref
        try:
            # another cache would keep all of them
            table = ManifestReader(self._store).manifest(ref, listed.partition_by)
            return manifest_table.align(table, listed)
        except CorruptMetadataError as error:
            self._note_damage(ref.path, reason(error), listed.version)
        except (pa.ArrowException, ValueError, KeyError) as error:
            text = f"it does not fit the schema of version {listed.version}: {error}"
            self._findings.note("manifest_damaged", ref.path, text)
        return None

    def _look(
        self, wanted: Hashes, sizes: Sequence[int], path_of: Callable[[int], str], version: int
    ) -> list[int]:
        """The places of files as listed and not checked before; others are reported. [IV6]"""
        good = []
        for at, looked in enumerate(self._inventory.look(wanted)):
            has, listed = looked.size, sizes[at]
            if has is None:
                text = f"it is missing; version {version} lists it, with {listed:,} bytes"
                self._findings.note("file_missing", path_of(at), text)
                self._inventory.note_missing(path_of(at))
            elif has != listed:
                text = f"it has {has:,} bytes, version {version} lists it with {listed:,}"
                self._findings.note("file_size_differs", path_of(at), text)
            elif looked.fresh:
                good.append(at)
        self.files += len(good)
        self.bytes += sum(sizes[at] for at in good)
        return good

    def _count(self, files: int, rows: int, bytes: int) -> None:
        if self._sums is not None:
            for name, more in (("files", files), ("rows", rows), ("bytes", bytes)):
                self._sums[name] += more

    def _repeated(self) -> Iterator[VerifyFinding]:
        """Paths that the latest version lists twice: by hashes first, then by names. [OB5] [IV6]"""
        suspects = repeated(self._live)
        paths = self._live_paths() if suspects else ()
        for path, count in Counter(path for path in paths if hash(path) in suspects).items():
            if count > 1:
                text = f"version {self._head.version} lists it {count} times"
                yield finding("path_listed_twice", path, text)

    def _live_paths(self) -> Iterator[str]:
        yield from (entry.path for entry in self._head.added)
        for listed in self._all_listed():
            if listed.in_head is not None and (table := self._read(listed)) is not None:
                yield from _live(table, listed.in_head).column("path").to_pylist()


def _live(table: pa.Table, removed: int) -> pa.Table:
    """The rows of a manifest that are not removed; some may be marked that it does not have."""
    return manifest_table.live(table, removed & ((1 << table.num_rows) - 1))


def reason(error: Exception) -> str:
    """Why an object is refused, without the advice at the end of the error's text."""
    name = getattr(error, "object_name", "")  # of a CorruptMetadataError
    text = str(error).removeprefix(f"{name} is damaged or was not written by manifestcommit: ")
    return text.partition(". Nothing was read from it")[0]


_AHEAD = 8
_NAMED = 100  # versions of one gap that are reported one by one, at most
_REPORTED = 10_000  # findings that are kept; further ones are only counted


class VerifyReport(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """The result of `Table.verify`.

    Attributes:
        url: the table path.
        first: the oldest readable version; 0: none could be read.
        last: the latest version; 0: none could be read.
        deep: whether data files were read.
        versions: how many versions were checked.
        manifests: how many manifests and runs were checked.
        files: how many data files were checked.
        bytes: the size of these files.
        objects: how many objects are below the table path.
        damages: how many findings are damage, those beyond the first 10,000 included.
        findings: the first 10,000 findings, damage first.

    Spec: RD10.
    """

    url: str
    first: int
    last: int
    deep: bool
    versions: int = 0
    manifests: int = 0
    files: int = 0
    bytes: int = 0
    objects: int = 0
    damages: int = 0
    findings: tuple[VerifyFinding, ...] = ()

    def __repr__(self) -> str:
        ranking = ("first", "last", "damages", "files", "objects", "deep", "findings", "url")
        return line("VerifyReport", [(name, getattr(self, name)) for name in ranking])

    @property
    def is_sound(self) -> bool:
        """Return whether nothing is damaged; notes are harmless."""
        return not self.damages


class Findings:
    """The findings, without duplicates; beyond a limit they are only counted."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], VerifyFinding] = {}
        self.damages = 0

    def note(self, kind: str, of: str | int, problem: str) -> None:
        """Add one of this kind, of an object by its name, or of a version by its number."""
        self.add(finding(kind, of, problem))

    def add(self, *findings: VerifyFinding) -> None:
        for reported in findings:
            # One problem per kind is enough for a file; for a version, every problem counts.
            is_file = reported.object and not reported.object.startswith(object_names.VERSIONS)
            key = reported.kind, reported.object, "" if is_file else reported.problem
            if key in self._found:
                continue
            self.damages += reported.severity == "damage"
            if len(self._found) < _REPORTED:
                self._found[key] = reported

    def ordered(self) -> tuple[VerifyFinding, ...]:
        """Damage first."""
        return tuple(sorted(self._found.values(), key=lambda finding: finding.severity != "damage"))


def verify(
    ctx: TableContext, *, deep: bool = False, progress: Progress | None = None
) -> VerifyReport:
    """Check that everything that readable versions list exists as listed, and that the chain is
    complete; damage is reported, never raised. If gc expires meanwhile what seems to be missing, it
    starts over. [RD10]

    One listing of the table path, one request per readable version, per manifest and per run; deep:
    reads every file, in threads. Memory: 17 bytes per object, a manifest, eight versions.
    """
    say = progress or (lambda step: None)
    for _ in range(STARTS):
        findings = Findings()
        head = _newest_readable(ctx.store, findings)
        report = VerifyReport(url=ctx.store.url, first=0, last=0, deep=deep)
        if head is not None:
            report = _verify(ctx, head, findings, deep, say)
        report = msgspec.structs.replace(
            report, damages=findings.damages, findings=findings.ordered()
        )
        if head is None or report.is_sound or not _has_expired_since(ctx.store, head.snapshot):
            return report
    raise StoreError(
        f"{ctx.store.url}: versions were expired {STARTS} times while they were verified; try "
        "again when gc is done"
    )


def _newest_readable(store: Store, findings: Findings) -> Head | None:
    """The latest version, or where that is damaged or misplaced, the highest that can be read."""
    try:
        return open_head(store)
    except UndecidedError as error:
        newest = open_head(store, is_member_too=True)
        findings.note("home_is_gone", object_names.version_name(newest.version), str(error))
        return newest
    except CorruptMetadataError:
        pass
    above, highest = list_above(store, 0), None
    for version in reversed(above.versions):
        head = _read(store, version)
        if isinstance(head, Head):
            wrong = misplaced(store.url, head.snapshot, above.tables)
            if wrong is None:
                return head
            if highest is None or above.tables:
                is_version = wrong.object_name == object_names.version_name(version)
                kind = "version_misplaced" if is_version else "marker_missing"
                findings.note(kind, wrong.object_name, str(wrong))
            highest = highest or head
        elif head is not None:
            findings.note("version_unreadable", version, head)
    return highest


def _has_expired_since(store: Store, head: Snapshot) -> bool:
    """Whether a version that was readable at this head no longer is."""
    try:
        newest = open_head(store).snapshot
    except (CorruptMetadataError, TableNotFoundError, UndecidedError):
        return False
    tagged, still = ({tag.version for tag in snapshot.tags.values()} for snapshot in (head, newest))
    return newest.expired > head.expired or not tagged <= still


def _verify(
    ctx: TableContext, head: Head, findings: Findings, deep: bool, say: Progress
) -> VerifyReport:
    store = ctx.store
    inventory = Inventory(store, head.snapshot, say)
    existing = _chosen(inventory, head.snapshot, findings)
    contents = Contents(store, head.snapshot, inventory, findings, deep=deep, progress=say)
    contents.walk(existing)
    contents.finish()
    findings.add(*inventory.findings, *inventory.left_over())
    findings.add(*_above(store, head, inventory))
    _check_hint(store, inventory, findings)
    findings.add(*_exports_behind(ctx, head.snapshot), *_unsettled(ctx, head))
    if deep and head.snapshot.constraints:
        say("checking constraints")
        findings.add(*_violations(ctx, head.snapshot))
    youngest, its_name = inventory.youngest
    above = list_above(store, head.version).versions if youngest > head.version else ()
    if youngest > max(above, default=head.version):
        what = "is of a job that began when it was the newest: it was lost, and all versions since"
        findings.note("version_missing", youngest, f"{its_name} {what}")
    return VerifyReport(
        url=store.url,
        first=head.snapshot.expired,
        last=head.version,
        deep=deep,
        versions=len(existing),
        manifests=contents.manifests,
        files=contents.files,
        bytes=contents.bytes,
        objects=inventory.objects,
    )


def _violations(ctx: TableContext, snapshot: Snapshot) -> Iterator[VerifyFinding]:
    """Rows of the newest version that violate a constraint of it. Files are read whose bounds leave
    it open; what cannot be read is damage of its own. [CK2]"""
    for name, constraint in snapshot.constraints.items():
        try:
            found = gate().first_violation(ctx, snapshot, {name: constraint})
        except (ManifestCommitError, OSError):
            continue
        if found is not None:
            text = f"{found.count} the constraint {name!r} ({found.condition})"
            yield finding("constraint_violated", found.files[0], text)


def _chosen(inventory: Inventory, head: Snapshot, findings: Findings) -> list[int]:
    """The readable versions that exist, newest first; missing or unexpected are reported. [IV1]"""
    tagged = sorted((tag.version, name) for name, tag in head.tags.items())
    tags = {version: name for version, name in tagged if 1 <= version < head.expired}
    there = sorted(each for each in inventory.versions if each <= head.version)
    inside = [version for version in there if version >= head.expired]
    below = [version for version in there if version < head.expired]
    before = head.expired - 1
    for version in (*inside, head.version + 1):
        for missing in range(before + 1, min(version, before + 1 + _NAMED)):
            if missing not in head.void:
                text = "it is missing although the version is not expired"
                findings.note("version_missing", missing, text)
        if version - before - 1 > _NAMED:
            text = f"with it all up to version {version - 1} are missing"
            findings.note("version_missing", before + 1 + _NAMED, text)
        before = version
    for version in sorted(tags.keys() - set(below)):
        text = f"it is missing although the tag {tags[version]!r} keeps the version"
        findings.note("version_missing", version, text)
    why = "gc has not come to it, or a writer brought it back"
    for version in below:
        if version not in tags:
            text = f"it is below the oldest readable version, {head.expired}: {why}"
            findings.note("version_leftover", version, text)
    return sorted((*inside, *(version for version in below if version in tags)), reverse=True)


def _step(
    snapshot: Snapshot, above: Head, child: Snapshot | None, *, trusted: bool
) -> Iterator[VerifyFinding]:
    """What contradicts that the version above was built on this one. child: the next state of the
    table, where this is a state; trusted: whether their bytes agree. [OB1]"""
    if not trusted:
        what = "was built on other bytes than these: one of the two was replaced"
        yield finding("version_replaced", snapshot.version, f"version {above.version} {what}")
    elif child is not None:
        yield from check_step(msgspec.structs.replace(snapshot, version=child.version - 1), child)


def _above(store: Store, head: Head, inventory: Inventory) -> Iterator[VerifyFinding]:
    """What jobs of a removed table have left above the newest version. [LY15]"""
    newest = (head.top or head).version
    for version in [each for each in sorted(inventory.versions) if each > newest][:_NAMED]:
        opened = _read(store, version)
        if isinstance(opened, Head) and opened.snapshot.table_id != head.snapshot.table_id:
            yield skipped_version(opened.snapshot, head.snapshot)


def _read(store: Store, version: int) -> Head | str | None:
    """The version, or why it cannot be read; None: it does not exist."""
    try:
        return read_object(store, version)
    except (CorruptMetadataError, UnsupportedFormatError) as error:
        return reason(error)


def _unsettled(ctx: TableContext, head: Head) -> Iterator[VerifyFinding]:
    """What of joint commits depends on other tables, or is in one table only. [MT1] [MT10]"""
    if head.top is not None and not head.is_void and head.top.snapshot.pending is not None:
        name, home = object_names.version_name(head.top.version), head.top.snapshot.pending.home
        text = f"the table at {home} has not decided yet what becomes of it"
        yield finding("member_is_undecided", name, text)
    for root, why, torn in check_partners(ctx.store, head.snapshot):
        if why:
            yield finding("partner_is_unsettled", "", f"{root} asks this table: {why}")
        if torn:
            yield finding("joint_commit_torn", "", torn)


def _exports_behind(ctx: TableContext, head: Snapshot) -> Iterator[VerifyFinding]:
    """The exports that do not show the newest version, although each commit is exported. [EX2]"""
    for format, lag in export_lags(ctx, head).items():
        if lag.behind is None:
            text = f"nothing is exported to {format} yet, or others have removed what was"
            yield finding("export_is_behind", "", text)
        elif lag.behind:
            behind = f"{lag.behind:,} behind the newest, for {age(lag.age_s or 0.0)}"
            text = f"the export to {format} shows version {lag.version}, {behind}"
            yield finding("export_is_behind", "", text)


def _check_hint(store: Store, inventory: Inventory, findings: Findings) -> None:
    try:
        data = store.get(object_names.HINT, 0, codec.MAX_HINT_BYTES + 1)
    except FileNotFoundError:
        return
    hinted = codec.decode_hint(data)
    if hinted is None:
        findings.note("hint_is_off", object_names.HINT, "it is no version")
        return
    version = hinted.version
    if version > max(inventory.versions, default=0) and not list_above(store, version).versions:
        text = f"it says version {version}, which does not exist"
        findings.note("hint_is_off", object_names.HINT, text)
