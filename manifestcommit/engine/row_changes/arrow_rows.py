"""Reads, counts and rewrites the rows of files in this process, with Arrow, in bounded memory.
[RC1] [RC8]

Not here: which files, and what is committed (engine.row_changes.delete).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.schema.fields import Schema
from ...core.table.bin_packing import pack_bins
from ...core.table.entries import Entry
from ...core.table.snapshot import Snapshot
from ...errors import DataFileMissingError
from ..datafile.writer import DataFileWriter, WritePlan
from ..metadata.table_context import TableContext
from ..operations.row_change import Executor, RowChange, ranges_of
from ..runtime.concurrency import map_concurrently
from ..runtime.job_metrics import InputTotals
from ..runtime.tuning import tuning
from ..scan.whole_file import batches_of, table_schemas
from .conditions import Condition, evaluating, is_not_true, mask_of, understand
from .removal import needed_columns

_BATCH_ROWS = 1 << 17
_BATCH_BYTES = 8 << 20  # of a file, which become several times as many in memory
_WHOLE_BYTES = 64 << 20  # of a file that is read at once to be rewritten, and checked
_READ_AHEAD = 4  # batches
_MUCH = 16 << 20  # bytes of files that are worth another thread
_MOST_SHARES = 4
_LEAST_MEMORY = 50 << 20
_MEMORY_OF_ONE = 256 << 20  # of a thread that rewrites
_UNPACKED = 8  # times as many bytes as the file has

Batches = Iterator[pa.RecordBatch]


class ArrowRows:
    """This process, as the executor of row changes."""

    name: Executor = "arrow"

    def __init__(self, session: TableContext) -> None:
        self._session = session
        self._kept: dict[str, pa.Table] = {}  # path -> its rows that do not match

    def understand(self, condition: Any, schema: Schema, argument: str) -> Condition:
        return understand(condition, schema, argument)

    def chosen(self, partitions: pa.Table, schema: Schema, condition: Condition) -> list[bool]:
        with evaluating(condition.given):
            return [each is True for each in mask_of(partitions, condition.form).to_pylist()]

    def count(
        self, change: RowChange, entries: pa.Table, condition: Condition, *, keep: bool = False
    ) -> dict[str, int]:
        """One pass over the condition's columns; of small files that are rewritten next, over all,
        so that nothing is read again."""
        self._kept = {}

        def one(entry: pa.Table) -> int:
            with _naming_missing(self._session, change.snapshot, entry):
                scanner = _scanner(self._session, change.snapshot, entry, [], condition.form)
                return int(scanner.count_rows())

        with evaluating(condition.given):
            assert change.snapshot.schema is not None
            named = needed_columns(change.snapshot.schema, condition.predicate)
            columns = None if keep else named
            files = read_once(self._session, change.snapshot, entries, columns)
            if files is not None:
                return self._divide(files, condition, keep=keep)
            counts = map_concurrently(
                self._session.store, one, each_of(entries), is_much=size_of(entries) > _MUCH
            )
        return dict(zip(entries.column("path").to_pylist(), counts, strict=True))

    def memory(self, entries: pa.Table) -> int:
        """Measured: of each thread what it decodes ahead, and its writer's buffers; both are as
        large as the data at most."""
        return _LEAST_MEMORY + min(
            _UNPACKED * size_of(entries), _MEMORY_OF_ONE * len(_shares(entries))
        )

    def rewrite_without(self, change: RowChange, entries: pa.Table, condition: Condition) -> int:
        stays = is_not_true(condition.form)

        def rows(some: pa.Table) -> Batches:
            paths = some.column("path").to_pylist()
            if all(path in self._kept for path in paths):
                for path in paths:
                    yield from self._kept.pop(path).to_batches()
            else:
                yield from scan(self._session, change.snapshot, some, filter=stays)

        with evaluating(condition.given):
            return rewrite(self._session, change, entries, rows)

    def _divide(
        self, files: Mapping[str, pa.Table], condition: Condition, *, keep: bool
    ) -> dict[str, int]:
        """How many rows of each file match. keep: hold the others of files with both."""
        mask = mask_of(pa.concat_tables(files.values()), condition.form)
        counts: dict[str, int] = {}
        for path, rows, matches in by_file(files, pc.fill_null(mask, False).combine_chunks()):
            counts[path] = matches.true_count
            if keep and 0 < counts[path] < rows.num_rows:
                self._kept[path] = rows.filter(pc.invert(matches))
        return counts


def rewrite(
    session: TableContext,
    change: RowChange,
    entries: pa.Table,
    rows: Callable[[pa.Table], Iterable[pa.RecordBatch]],
) -> int:
    """Write what `rows` makes of some of the entries, for all of them, and register the new files;
    returns how many rows they have. Large files are shared among threads. [RC5]"""
    plan = change.plan(sources=ranges_of(entries))
    parts = _shares(entries)
    attempts = [session.env.randomness(8).hex() for _ in parts]

    def one(number: int) -> tuple[Sequence[Entry], InputTotals]:
        batches, size = rows(parts[number]), size_of(parts[number])
        return write_rows(session, plan, batches, task=number, attempt=attempts[number], size=size)

    done = map_concurrently(session.store, one, range(len(parts)), is_much=True)
    for made, intake in done:
        change.take(made, intake=intake)
    return sum(entry.rows for made, _ in done for entry in made)


def writers(size: int) -> int:
    """How many writers keep this machine busy: of many bytes, each has two threads."""
    cores = os.cpu_count() or 1
    return max(1, cores // 2 if size > _MUCH else cores)


def write_rows(
    session: TableContext,
    plan: WritePlan,
    batches: Iterable[pa.RecordBatch],
    *,
    task: int,
    attempt: str,
    size: int = 0,
) -> tuple[Sequence[Entry], InputTotals]:
    """All rows in new files, which nothing lists yet. size: bytes of the files that they come from,
    if they do: of many, rows are decoded while others are encoded."""
    is_much = size > _MUCH
    with DataFileWriter(session.store, plan, task=task, attempt=attempt, is_much=is_much) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close(), writer.intake


def scan(
    session: TableContext,
    snapshot: Snapshot,
    entries: pa.Table,
    columns: list[str] | None = None,
    filter: pc.Expression | None = None,
) -> Batches:
    """The rows of these files, file by file and in their order, with the table's names. columns:
    with all that the filter names. Small files are opened together: a scan takes time to start."""
    is_whole = columns is None or size_of(entries) <= tuning().read_once_bytes
    sized = enumerate(entries.column("bytes").to_pylist())
    for places in pack_bins(sized, _BATCH_BYTES):
        some = entries.slice(places[0], len(places))
        is_lone = some.num_rows == 1 and size_of(some) <= _WHOLE_BYTES
        files = read_once(session, snapshot, some, columns) if is_whole and not is_lone else None
        with _naming_missing(session, snapshot, some):
            if files is not None:
                for rows in files.values():
                    yield from _chosen(rows, filter)
            elif is_whole and is_lone:
                for batch in _batches_of(session, snapshot, some, columns):
                    yield from _chosen(pa.Table.from_batches([batch]), filter)
            else:
                yield from _scanner(session, snapshot, some, columns, filter).to_batches()


def read_once(
    session: TableContext,
    snapshot: Snapshot,
    entries: pa.Table,
    columns: list[str] | None = None,
) -> dict[str, pa.Table] | None:
    """All rows of these files by path, each file read once; None where the files, or their rows in
    memory, are too large to be held. [RC8]"""
    most = tuning().read_once_bytes
    if not entries.num_rows or size_of(entries) > most:
        return None
    room = _UNPACKED * most

    def one(entry: pa.Table) -> list[pa.RecordBatch]:
        nonlocal room
        held: list[pa.RecordBatch] = []
        with _naming_missing(session, snapshot, entry):
            is_large = size_of(entry) > _BATCH_BYTES
            for batch in _batches_of(session, snapshot, entry, columns, use_threads=is_large):
                room -= batch.nbytes
                if room < 0:
                    break
                held.append(batch)
        return held

    files = map_concurrently(session.store, one, each_of(entries))
    if room < 0:
        return None
    schema, _ = table_schemas(session, snapshot)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
    tables = (pa.Table.from_batches(batches, schema) for batches in files)
    return dict(zip(entries.column("path").to_pylist(), tables, strict=True))


def _chosen(rows: pa.Table, filter: pc.Expression | None) -> list[pa.RecordBatch]:
    """The rows for which the filter is true."""
    if filter is not None:
        rows = rows.filter(mask_of(rows, filter).combine_chunks())
    batches: list[pa.RecordBatch] = rows.to_batches()
    return batches


def by_file(
    files: Mapping[str, pa.Table], mask: pa.BooleanArray
) -> Iterator[tuple[str, pa.Table, pa.BooleanArray]]:
    """Each file, its rows, and their part of a mask of all rows."""
    start = 0
    for path, rows in files.items():
        yield path, rows, mask.slice(start, rows.num_rows)
        start += rows.num_rows


def each_of(entries: pa.Table) -> list[pa.Table]:
    """One table for each entry."""
    return [entries.slice(index, 1) for index in range(entries.num_rows)]


def size_of(entries: pa.Table) -> int:
    """The bytes of the files."""
    return int(pc.sum(entries.column("bytes")).as_py() or 0)


def _batches_of(
    session: TableContext,
    snapshot: Snapshot,
    entry: pa.Table,
    columns: list[str] | None,
    *,
    use_threads: bool = False,
) -> Iterable[pa.RecordBatch]:
    """The rows of one file."""
    size = _batch_rows(entry)
    batches = batches_of(session, snapshot, entry, columns, size, use_threads=use_threads)
    if batches is None:
        batches = _scanner(session, snapshot, entry, columns, None).to_batches()
    return batches


def _batch_rows(entries: pa.Table) -> int:
    rows = int(pc.sum(entries.column("rows")).as_py() or 0)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, size_of(entries))))


def _scanner(
    session: TableContext,
    snapshot: Snapshot,
    entries: pa.Table,
    columns: list[str] | None,
    filter: pc.Expression | None,
) -> Any:
    from ..scan.arrow_dataset import open_dataset  # late: pyarrow.dataset takes long to load

    dataset = open_dataset(session, snapshot, entries)
    return dataset.scanner(
        columns=columns,
        filter=filter,
        batch_size=_batch_rows(entries),
        batch_readahead=_READ_AHEAD,
        fragment_readahead=1,
    )


@contextmanager
def _naming_missing(session: TableContext, snapshot: Snapshot, entries: pa.Table) -> Iterator[None]:
    """Inside this block, the files of the entries are read; DataFileMissingError if one is gone.
    [RD2]"""
    try:
        yield
    except (FileNotFoundError, DataFileMissingError) as error:
        paths = entries.column("path").to_pylist()
        path = next((each for each in paths if each in str(error)), paths[0])
        raise DataFileMissingError(
            f"{session.store.url}: data file {path} of version {snapshot.version}, whose rows are "
            "read, is gone; nothing was committed. If gc expired that version meanwhile, run the "
            "operation again, and gc with a `grace` that is longer than operations take. Otherwise "
            "something else removed the file: `manifestcommit verify` names all files that are "
            "missing.",
            path=path,
        ) from error


def _shares(entries: pa.Table) -> list[pa.Table]:
    """The entries in order, in as many parts of about the same size as threads are worth it."""
    total = size_of(entries)
    count = max(1, min(_MOST_SHARES, writers(total), entries.num_rows, total // _MUCH))
    parts: list[list[pa.Table]] = [[] for _ in range(count)]
    before = 0
    for entry in each_of(entries):
        parts[min(count - 1, before * count // max(1, total))].append(entry)
        before += size_of(entry)
    return [pa.concat_tables(part) for part in parts if part]
