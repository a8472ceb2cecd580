"""`load` and `follow`: rows of a source become commits that hold its position. [LD1]-[LD6]

A loader keeps no state. It reads the position that the table has, loads a chunk from there on, and
commits the chunk's rows with its range; a range that another loader has taken meanwhile is refused
by the commit, and the loader goes on from the table's position. [WM2]
"""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa

from ..display import ReprMixin
from ..errors import (
    CommitConflictError,
    OutcomeUnknownError,
    SchemaMismatchError,
    SourceError,
    TableNotFoundError,
    UsageError,
    WatermarkError,
)
from ..format.entries import MAX_SOURCES
from ..format.fields import is_text
from ..format.object_names import REFUSED
from ..job import Job, Path, begin
from ..quarantine import refused_beside, split
from ..runtime.environment import STARTS
from ..runtime.outcome import Outcome
from ..runtime.validation import checked, parse_age, size, wrong
from ..store import StorageOptions
from ..table.functions import open_companion
from ..table.row_changes import RowChanges
from ..table.table import Table
from ..terminal import Steps
from ..transactions import read_together, transaction
from .chunk import BrokenInputError, ChangedInputError, Chunk, Position, Source, streams
from .ending import EndedError, heeding, pause, stopping
from .on_spark import check_spark, write_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("manifestcommit.sources")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0


class LoadOutcome(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """What a load has committed.

    Attributes:
        url: the table that was loaded.
        chunks: how many chunks were committed; of a dry run, how many there are.
        rows: how many rows they hold.
        files: how many data files they were written to.
        version: the version that holds the last chunk; None: there was nothing to load.
        positions: source -> its position in the table after the load.
        broken: part -> why it could not be decoded, of the parts that were skipped.
        planned: of a dry run: what each chunk is, and what holds back more.

    Spec: LD1.
    """

    url: str
    chunks: int = 0
    rows: int = 0
    files: int = 0
    version: int | None = None
    positions: Mapping[str, Position] = {}
    broken: Mapping[str, str] = {}
    planned: tuple[str, ...] = ()


def a_source(name: str, value: Any) -> Any:
    """A source: an object with a name and the two questions."""
    asked = all(callable(getattr(value, each, None)) for each in ("chunks", "rows"))
    is_property = hasattr(inspect.getattr_static(value, "name", None), "__get__")
    # a property may ask a server, and is asked where the source is opened
    is_named = is_property or is_text(getattr(value, "name", None))
    if isinstance(value, type) or not (asked and is_named):
        such = "manifestcommit.sources.files('s3://landing/orders', 'csv')"
        raise wrong(name, value, "a source, with `name`, `chunks` and `rows`", such)
    return value


@checked(source=a_source)
def load(
    source: Source,
    path: Path,
    *,
    max_bytes: int | str = "512MB",
    partition_by: list[str] | str | None = None,
    merge_schema: bool = False,
    on_violation: Literal["error", "quarantine"] = "error",
    max_errors: int = 0,
    restart: bool = False,
    dry_run: bool = False,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> LoadOutcome:
    """Load what a source has and the table does not, each row exactly once.

    The table holds the source's position, which moves in the commit of the rows: after a crash, a
    lost response or a second loader beside this one, a rerun goes on where the table is. Returns
    when the source has no more.

    Args:
        source: what to load from: one of `manifestcommit.sources`, or a source of your own.
        path: the table path; the first load makes it a table. A source of files keeps the names of
            those that were loaded in a second table beside it, `<path>.files`. Of a source of
            several tables, the folder that they are in.
        max_bytes: about how many bytes of the source one commit takes, or a text such as "128MB";
            by default "512MB".
        partition_by: as for `write`.
        merge_schema: as for `write`.
        on_violation: "error", the default: a row that violates a constraint of the table ends the
            load; "quarantine": such rows go into `<path>.refused` in the same commit, as for
            `write`. It is for loads that add rows.
        max_errors: how many parts that cannot be decoded, such as broken files, are recorded and
            skipped; one more ends the load. By default 0.
        restart: replace all rows of the table by the whole source, in one commit, and go on from
            there, with the source's columns: for a follower whose source no longer has the changes
            since its position, or has a column of another type. Files and topics cannot be loaded
            so. By default False.
        dry_run: read no row and commit nothing; `planned` of the outcome has the chunks. By default
            False.
        message: what the commits are for, as for `write`; by default what each chunk is.
        metadata: name -> text, as for `write`; by default none.
        spark: a session whose tasks read a chunk's parts and write them to the destination, for
            what one machine takes too long for: of files, Kafka, a table, or a source with `parts`.
            By default this process does.
        storage_options: what reaches the object store of the table; by default the environment.

    Returns:
        The outcome: how many chunks and rows, the version, the positions.

    Raises:
        SourceError: the source no longer has the rows after the table's position, or a part cannot
            be decoded and `max_errors` are skipped already; what was committed before stays.
        UsageError: an argument is wrong.
        SchemaMismatchError: the rows do not fit the table.
        NotATableError: the folder holds plain files.
        CommitConflictError: others changed the table's schema, or what the chunk replaces.

    Example:
        `load(manifestcommit.sources.files("s3://landing/orders", "csv"), "s3://lake/orders")`

    Spec: LD1, LD2, LD4, WM2.
    """
    loader = _Loader(
        source,
        path,
        max_bytes=size("max_bytes", max_bytes),
        max_errors=max_errors,
        on_violation=on_violation,
        spark=spark,
        storage_options=storage_options,
        write={"partition_by": partition_by, "merge_schema": merge_schema},
        note={"message": message, "metadata": metadata},
    )
    if dry_run:
        return loader.plan(restart=restart)
    with Steps() as steps:
        if restart:
            loader.restart(steps)
        while loader.load_next(steps):
            pass
    return loader.outcome()


@checked(source=a_source)
def follow(
    source: Source,
    path: Path,
    *,
    every: str | dt.timedelta = "60s",
    max_bytes: int | str = "512MB",
    partition_by: list[str] | str | None = None,
    merge_schema: bool = False,
    on_violation: Literal["error", "quarantine"] = "error",
    max_errors: int = 0,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[LoadOutcome]:
    """Load what a source has, again and again: a service.

    SIGTERM and SIGINT end it between two commits, where it runs in the main thread, or while its
    source is silent: the iterator ends then, and the next start goes on. Losing the process at any
    other moment is safe as well. Other arguments and errors are as for the function `load`,
    `max_errors` for each round.

    Args:
        every: how long to wait where there is nothing to load, such as "60s" or a timedelta; by
            default one minute.

    Yields:
        An outcome for each round that has loaded something.

    Example:
        `for outcome in follow(source, "/lake/orders", every="10s"): print(outcome)`

    Spec: LD6.
    """
    limit, most, wait_s = size("max_bytes", max_bytes), max_errors, parse_age(every, "every")

    def rounds() -> Iterator[LoadOutcome]:
        with stopping() as stop:
            while not stop.is_set():
                loader = _Loader(
                    source,
                    path,
                    max_bytes=limit,
                    max_errors=most,
                    on_violation=on_violation,
                    spark=spark,
                    storage_options=storage_options,
                    write={"partition_by": partition_by, "merge_schema": merge_schema},
                    note={"message": message, "metadata": metadata},
                )
                with Steps() as steps, contextlib.suppress(EndedError), heeding(stop):
                    while not stop.is_set() and loader.load_next(steps):
                        pass
                if (outcome := loader.outcome()).chunks:
                    yield outcome
                else:
                    stop.wait(wait_s)

    return rounds()


class _Loader:
    """One load: from the position that the tables have to the end of the source."""

    def __init__(
        self,
        source: Source,
        path: Path,
        *,
        max_bytes: int,
        max_errors: int,
        on_violation: str,
        spark: SparkSession | None,
        storage_options: Mapping[str, Any] | None,
        write: Mapping[str, Any],
        note: Mapping[str, Any],
    ) -> None:
        self._options = StorageOptions(storage_options)
        self.url = Table(path, self._options).url
        self._source: Any = source
        self._source = _ask(source, "open", path, self._options) or source
        self._members = dict(getattr(self._source, "tables", {os.fspath(path): self._source}))
        self._tables = {each: Table(each, self._options) for each in self._members}
        self._updates = any(getattr(each, "updates", False) for each in self._members.values())
        self._schemas = dict(getattr(self._source, "companions", {}))  # of tables to be made
        self._companions = {suffix: self.url + suffix for suffix in self._schemas}
        self._quarantines = on_violation == "quarantine"
        if self._quarantines:
            self._check_adds()
        self._spark = spark
        if spark is not None:
            check_spark(self._source, self.url, spark)
        self._max_bytes, self._max_errors = max_bytes, max_errors
        self._write, self._note = dict(write), dict(note)
        self._chunks: Iterator[Chunk] | None = None
        self._at: dict[str, Position] = {}  # the positions that the next chunk begins at
        self._committed: list[list[Outcome]] = []  # a chunk, its tables
        self._rows = 0
        self._broken: dict[str, str] = {}

    def _check_adds(self) -> None:
        """UsageError where rows cannot be refused into a table beside. [LD13]"""
        for is_so, only in (
            (self._updates, "a source adds, not one that changes others, which would differ"),
            (len(self._members) > 1, "go into one table"),
            (REFUSED in self._companions, "no on_broken='refuse' puts into that table, too"),
        ):
            if is_so:
                raise UsageError(
                    f"the quarantine is for rows that {only}; nothing was loaded. Leave it out",
                    argument="on_violation",
                )

    def positions(self) -> dict[str, Position]:
        """The position of each source in the tables, as of one moment."""
        there = tables = [*self._tables.values()]
        for _ in range(STARTS):
            with contextlib.suppress(TableNotFoundError):
                found = read_together(there) if len(there) > 1 else there
                at = {name: to for each in found for name, to in each.watermarks().items()}
                if there == tables or there == list(filter(_is_there, tables)):  # none came since
                    return at
            there = list(filter(_is_there, tables))
        raise SourceError(f"{self.url}: its tables came and went; nothing was loaded")

    def plan(self, *, restart: bool = False) -> LoadOutcome:
        """What there is to load. Asked again where another loader has loaded meanwhile. [LD3]"""
        for left in reversed(range(STARTS)):
            at = self.positions()
            try:
                chunks = [self.whole()] if restart else self._chunks_from(at)
                planned = [each.what for each in chunks]  # a chunk may be large
                break
            except ChangedInputError as error:
                if not left:
                    raise SourceError(f"{error}; nothing was loaded. Run it again.") from error
        held_back = getattr(self._source, "held_back", "")
        texts = (*planned, *([held_back] if held_back else []))
        return LoadOutcome(url=self.url, chunks=len(planned), planned=texts, positions=at)

    def outcome(self) -> LoadOutcome:
        metrics = [one.metrics for each in self._committed for one in each if one.metrics]
        return LoadOutcome(
            url=self.url,
            chunks=len(self._committed),
            rows=self._rows,
            files=sum(each.files_committed for each in metrics),
            version=self._committed[-1][0].version if self._committed else None,
            positions=self.positions(),
            broken=dict(self._broken),
        )

    def whole(self) -> Chunk:
        """The whole source, as one chunk; SourceError where its kind cannot be loaded so."""
        found: Chunk | None = _ask(self._source, "copy", self.positions())
        if found is None:
            raise SourceError(
                f"{self._source.name}: this kind of source cannot be loaded as a whole in one "
                "commit; nothing was done. Load it into a new table."
            )
        return found

    def restart(self, steps: Steps) -> None:
        """Replace the table's rows by the whole source."""
        try:
            self._commit(self.whole(), steps, replace_all=True)
        except ChangedInputError as error:
            raise SourceError(f"{error}; nothing was replaced. Run it again.") from error

    def load_next(self, steps: Steps) -> bool:
        """Commit the next chunk; False where there is none. [LD2]

        A range that others have taken, or a commit whose outcome is unknown, is settled by the
        table's position: what it covers is loaded. [WM2]
        """
        for tried in range(STARTS):
            if tried:
                pause(min(_FIRST_WAIT_S * 2**tried, _LONGEST_WAIT_S))
            if self._chunks is None:
                steps(f"{self._source.name}: looking for what is new")
                self._at = self.positions()
                self._chunks = self._chunks_from(self._at)
            chunk = None
            try:
                chunk = next(self._chunks, None)
                if chunk is None:
                    self._chunks = None
                    return False
                self._check_start(chunk)
                planned, chunk = chunk, self._commit(chunk, steps)
                self._at |= {name: end for name, (_, end) in chunk.ranges.items()}
                if chunk.ranges != planned.ranges and hasattr(self._source, "loading"):
                    self._chunks = None
                return True
            except ChangedInputError as error:
                LOG.info("%s", error)
                self._chunks = None
            except (WatermarkError, OutcomeUnknownError, CommitConflictError) as error:
                if chunk is None or not self._may_go_on(error, chunk):
                    raise
                LOG.info("%s: looking at the table's position again: %s", self.url, error)
                self._chunks = None
        raise EndedError(
            f"{self.url}: other loaders of {self._source.name} were faster {STARTS} times; what "
            "they committed is loaded, and nothing of this one was lost. Run one loader a source."
        )

    def _chunks_from(self, at: Mapping[str, Position]) -> Iterator[Chunk]:
        """What the source yields, if it is that. [LD1]"""
        found: Any = self._source.chunks(at, max_bytes=self._max_bytes)
        for each in found if isinstance(found, Iterable) else [found]:
            if not isinstance(each, Chunk):
                kind = type(self._source)
                raise UsageError(
                    f"{kind.__module__}.{kind.__qualname__}.chunks yields sources.Chunk, not "
                    f"{type(each).__qualname__}"
                )
            yield each

    def _check_start(self, chunk: Chunk) -> None:
        for name, (start, end) in chunk.ranges.items():
            if (at := self._at.get(name)) is not None and start != at:
                raise SourceError(
                    f"{self.url}: {name} is loaded up to {at!r}, and the source gave a chunk from "
                    f"{start!r} to {end!r}, which was not committed. A source's chunks begin at "
                    "the position that it is asked for, each where the one before ends."
                )

    def _may_go_on(self, error: Exception, chunk: Chunk) -> bool:
        """Whether the position that the table has now says more than this chunk knew."""
        if isinstance(error, CommitConflictError):
            return error.rule in ("contention", "table_exists") or self._updates
        now = self.positions()
        return any(now.get(name) != start for name, (start, _) in chunk.ranges.items())

    def _commit(self, chunk: Chunk, steps: Steps, *, replace_all: bool = False) -> Chunk:
        """Commit one chunk, without parts that cannot be decoded; as it was committed. [LD4]"""
        while True:
            steps(f"{self._source.name}: loading {chunk.what}")
            try:
                beside = _ask(self._source, "loading", chunk, self.positions)
                with contextlib.nullcontext(chunk) if beside is None else beside as ready:
                    done: Chunk = ready
                    outcomes, rows = self._committed_once(done, replace_all=replace_all)
                self._committed.append(outcomes)
                self._rows += rows
                return done
            except SchemaMismatchError as error:
                part = getattr(self._source, "reading", "")
                told = f"{part}: {error}" if part else str(error)
                if self._updates and not self._write["merge_schema"] and "merge_schema" not in told:
                    told += " merge_schema=True adds the source's new columns."
                if not replace_all and hasattr(self._source, "copy"):
                    told += (
                        " If the source's column has changed for good: restart=True replaces the "
                        "loaded table, also its columns, by all rows that the source has now."
                    )
                raise type(error)(told) from None
            except BrokenInputError as broken:
                chunk = self._without(chunk, broken)

    def _without(self, chunk: Chunk, broken: BrokenInputError) -> Chunk:
        without = getattr(self._source, "without", None)
        many = len(self._broken.keys() | set(broken.parts))
        if without is None or many > self._max_errors:
            way_out = f" Mend or remove it, or give max_errors={many} to record it and go on."
            raise SourceError(
                f"{self._source.name}: {broken}. Nothing of this chunk was committed."
                f"{way_out * (without is not None)}"
            ) from broken
        for part in broken.parts:
            self._broken[part] = broken.reason
            LOG.warning("%s: skipped %r: %s", self.url, part, broken.reason)
        reduced: Chunk = without(chunk, broken)
        return reduced

    def _committed_once(self, chunk: Chunk, *, replace_all: bool) -> tuple[list[Outcome], int]:
        """The outcome of each table, and how many rows the source had. [LD1] [LD12]"""
        note = {**self._note, "message": self._note["message"] or f"load {chunk.what}"[:200]}
        refused = self._refused_beside() if self._quarantines and not replace_all else []
        places = [*self._members, *self._companions.values(), *refused]
        if len(places) == 1:
            ((place, source),) = self._members.items()
            if (change := self._change(place, chunk, replace_all=replace_all)) is not None:
                table = self._tables[place].noting(**note)
                outcome, rows = self._changed(table, source, chunk, change)
                return [outcome], rows
            with begin(place, storage_options=self._options, **note) as job:
                self._fill(job, None, source, chunk, replace_all=replace_all)
            assert job.outcome is not None
            return [job.outcome], _rows_of(job.outcome)
        rows, added = 0, []
        with transaction(places, storage_options=self._options, **note) as tx:
            for at, (place, source) in enumerate(self._members.items()):
                if (change := self._change(place, chunk, replace_all=replace_all)) is not None:
                    rows += self._changed(tx.rows(place), source, chunk, change)[1]
                    beside = source.beside(chunk) if self._companions else {}
                else:
                    to = tx[refused[0]] if refused else None
                    beside = self._fill(tx[place], to, source, chunk, replace_all=replace_all)
                    added.append(at)
            self._make_companions()  # not before the rows: a load that fails leaves no table
            for suffix, data in beside.items():
                tx[self._companions[suffix]].write(data)
        assert tx.outcome is not None
        outcomes = [*tx.outcome.outcomes.values()]
        rows += sum(_rows_of(outcomes[at]) for at in added)
        return outcomes[: len(self._members)], rows

    def _change(self, place: str, chunk: Chunk, *, replace_all: bool) -> Any:
        """How the chunk's rows change those of the table; None: they are added."""
        change = None if replace_all else _ask(self._members[place], "change", chunk)
        return change if change is not None and _is_there(self._tables[place]) else None

    def _make_companions(self) -> None:
        """Make the tables beside, once."""
        for suffix, schema in self._schemas.items():
            beside = next(iter(self._tables.values()))
            open_companion(self._companions[suffix], schema, beside, self._options)
        self._schemas = {}

    def _refused_beside(self) -> list[str]:
        """The table of refused rows, in a list; none where the table has no constraint yet."""
        ((place, table),) = self._tables.items()
        with contextlib.suppress(TableNotFoundError):
            if table.constraints():
                return [refused_beside(place, None, self._options)]
        return []

    def _fill(
        self, job: Job, refused: Job | None, source: Any, chunk: Chunk, *, replace_all: bool
    ) -> Mapping[str, Any]:
        """Write the rows, and return what belongs beside them. refused: the job of the table of
        rows that violate a constraint, if they go there."""
        how = self._write
        if replace_all:
            job.overwrite()
            how = {**how, "merge_schema": False, "replace_schema": True}
        ranges = self._ranges(source, chunk)
        for name, (start, end) in ranges.items():
            job.advance(name, start, end)
        lineage = {
            name: (begin, end)
            for name, (start, end) in ranges.items()
            if (begin := chunk.begins.get(name, start or 0)) != end
        }
        is_kept = all(isinstance(end, int) for _, end in ranges.values())
        how = {**how, "sources": lineage if is_kept and len(lineage) <= MAX_SOURCES else None}
        if self._spark is not None:
            return write_parts(job, refused, source, chunk, self._spark, self._options, how)
        for data in streams(source.rows(chunk)):
            if refused is None:
                job.write(data, **how)
            else:
                split(data, job, refused, how, self._options)
        found: Mapping[str, Any] = source.beside(chunk) if self._companions else {}
        return found

    def _ranges(self, source: Any, chunk: Chunk) -> Mapping[str, Any]:
        """Of several tables, each has the range of its own source."""
        if len(self._members) == 1:
            return chunk.ranges
        return {source.name: chunk.ranges[source.name]}

    def _changed(
        self, table: RowChanges, source: Any, chunk: Chunk, change: Any
    ) -> tuple[Any, int]:
        """The outcome, and how many rows the source had. change: a method, and its arguments."""
        method, given = change
        data = source.rows(chunk)
        if not hasattr(data, "__arrow_c_stream__"):  # streams that may have different columns
            # read batch by batch, which passes on the source's own errors
            tables = [pa.Table.from_batches(list(each), each.schema) for each in streams(data)]
            data = pa.concat_tables(tables, promote_options="default") if tables else None
        outcome = getattr(table, method)(
            data,
            merge_schema=self._write["merge_schema"],
            watermarks=dict(self._ranges(source, chunk)),
            **given,
        )
        done = (outcome.rows_inserted, outcome.rows_updated, outcome.rows_deleted)
        return outcome, sum(each or 0 for each in done[: None if method == "merge" else 1])


def _ask(source: Any, question: str, *given: Any) -> Any:
    """What one of the methods says that a source may have; None where it has it not."""
    found = getattr(source, question, None)
    return None if found is None else found(*given)


def _is_there(table: Table) -> bool:
    with contextlib.suppress(TableNotFoundError):
        return bool(table._ctx.open())
    return False


def _rows_of(outcome: Outcome) -> int:
    return 0 if outcome.metrics is None else outcome.metrics.rows_committed
