"""Changes of PostgreSQL by logical decoding, deletes among them. [LD10]

A position is where a transaction ended in the server's log. A replication slot keeps the log from
there on, and goes on only behind commits; so what is read again is the same, and what a slot gives
again after a crash is dropped by the position.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..display import counted
from ..errors import SourceError, TableNotFoundError
from ..rows.clauses import Delete, Insert, Update
from ..store import StorageOptions
from ..table.table import Table
from .chunk import ChangedInputError, Chunk, Position
from .ending import pause
from .pgoutput import KEPT, Begin, Change, Commit, NewShapeError, Row, Shape, Spool, decoded
from .postgres_server import (
    Column,
    Refusal,
    asking,
    columns_of,
    described,
    flush_log,
    from_texts,
    one_row,
    place_of,
    position_at,
    quoted,
    schema_of,
    selected,
    table_of,
)

if TYPE_CHECKING:
    import psycopg

LOG = logging.getLogger("manifestcommit.sources")
_WAIT_S = 60.0  # for a slot that is read by somebody else, and for open transactions
_IDLE_BYTES = 64_000_000  # of log without a change, after which the position moves anyway
_LAG_BYTES = 1_000_000_000  # of log that a slot keeps, which is worth a warning
_BATCH_ROWS = 2_000
_SINCE_2000_US = 946_684_800_000_000
_HISTORY = pa.schema(
    [
        ("_change_type", pa.string()),
        ("_commit_lsn", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
        ("_change_number", pa.int64()),
    ]
)
_WAY_OUT = (
    "Leave it out by a list of columns: ALTER PUBLICATION … SET TABLE … (…), from PostgreSQL 15 on"
)
_FULL = "ALTER TABLE … REPLICA IDENTITY FULL, and then restart=True"
_RESTART = "Give restart=True to replace the loaded rows by those of now, and to go on from there."


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, from a slot at that position, and where it ends."""

    end: int
    slot: int
    reader: Any


class _Copy(msgspec.Struct, frozen=True):
    """All rows, as of a slot's beginning, which this connection sees."""

    connection: Any


class PostgresChanges:
    """Changes of the tables of a slot; made by `postgres` with a slot.

    Attributes:
        name: what the slot is called.
        held_back: how much log the slot keeps, where that is much, as of the last look.
        tables: path of a loaded table -> the source of its rows.

    Spec: LD8, LD10, LD12.
    """

    def __init__(
        self,
        dsn: StorageOptions,
        tables: Mapping[str, str],
        slot: str,
        on_failover: Literal["error", "continue"],
        *,
        history: bool,
    ) -> None:
        self._dsn, self._slot, self._history = dsn, slot, history
        self._given, self._on_failover = tables, on_failover
        self._warned: set[str] = set()  # shared by those that `open` returns
        self.tables: dict[str, SlotTable] = {}
        self.name, self.held_back = f"postgresql slot {slot}", ""

    def open(self, path: Any, options: StorageOptions) -> PostgresChanges:
        """Return the source for this table; of several tables, for those in this folder."""
        found, root = copy.copy(self), os.fspath(path).rstrip("/")
        found.tables = {}
        for given, place in self._given.items():
            below = "://" in place or os.path.isabs(place)
            url = place if below else f"{root}/{place}" if place else os.fspath(path)
            found.tables[url] = SlotTable(
                self._dsn, self._slot, given, Table(url, options), history=self._history
            )
        return found

    def chunks(self, positions: Mapping[str, Position], *, max_bytes: int) -> Iterator[Chunk]:
        """Yield whole transactions, in their order; all rows where there is no position."""
        with asking(self._dsn) as connection:
            starts = self._look(connection, positions)
            for each in self.tables.values():
                each.check_target(starts[each.name])
            start = next(iter(starts.values()))
            if any(each != start for each in starts.values()):
                raise SourceError(
                    f"{self.name}: its tables are loaded up to different positions "
                    f"({', '.join(f'{name}: {at}' for name, at in starts.items())}), since one was "
                    f"added, or set back alone, and they go on together only. {_RESTART}"
                )
            if start is None:
                yield self._whole(connection, starts)
                return
            self._check_slot(connection)
            upto = _now(connection)
            while (read := self._read(connection, start, upto, max_bytes)) is not None:
                found: _Reader = read.reader
                changes = counted(found.changes, "change")
                what = f"{changes} of {counted(found.transactions, 'transaction')}"
                yield Chunk(
                    ranges=dict.fromkeys(starts, (start, read.end)),
                    what=f"{what} up to {_lsn(read.end)}",
                    bytes=found.bytes,
                    plan=read,
                )
                if (start := read.end) >= upto:
                    return

    def copy(self, positions: Mapping[str, Position]) -> Chunk:
        """Return all rows as of a new beginning of the slot as one chunk."""
        with asking(self._dsn) as connection:
            return self._whole(connection, self._look(connection, positions, whole=True))

    def _whole(
        self, connection: psycopg.Connection[Any], starts: Mapping[str, int | None]
    ) -> Chunk:
        now = _now(connection)
        return Chunk(
            ranges={name: (start, now) for name, start in starts.items()},
            what=f"all rows of {', '.join(self._given)}",
            plan="copy",
        )

    def rows(self, chunk: Chunk) -> Any:
        """Read the rows of the first of its tables, of which there is one mostly."""
        return next(iter(self.tables.values())).rows(chunk)

    @contextlib.contextmanager
    def loading(self, chunk: Chunk, now: Callable[[], Mapping[str, Position]]) -> Iterator[Chunk]:
        """Give a chunk that may be committed meanwhile; the slot goes on behind it afterwards.

        Args:
            chunk: one of `chunks`, or of `copy`.
            now: says what the table's positions are by now.
        """
        if chunk.plan == "copy":
            with self._copying(chunk, now) as ready:
                yield ready
            return
        read: _Read = chunk.plan
        start = int(next(iter(chunk.ranges.values()))[0] or 0)
        if read.slot > start:  # read before the position is: only commits move a slot
            _check_unmoved(chunk, now)
            raise SourceError(
                f"{self.name}: what was loaded is at {_lsn(start)}, and the slot begins at "
                f"{_lsn(read.slot)}: it was made again, moved by somebody else, or the table was "
                f"set back. What is between is gone. {_RESTART}"
            )
        yield chunk
        self._advance(read.end)

    def _advance(self, end: int) -> None:
        """Let the server forget what is committed; the next commit does it where this cannot."""
        import psycopg

        try:
            with asking(self._dsn) as connection, contextlib.suppress(psycopg.errors.ObjectInUse):
                one_row(
                    connection,
                    "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)",
                    self._slot,
                    _lsn(end),
                )
        except SourceError as error:  # another loader was faster, or the server went away
            LOG.info("the slot %r stays where it is for now: %s", self._slot, error)

    # --- the first copy ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def _copying(self, chunk: Chunk, now: Callable[[], Mapping[str, Position]]) -> Iterator[Chunk]:
        """The chunk of all rows as of the slot that is made again. One loader at a time. [LD10]"""
        import psycopg

        with asking(self._dsn) as connection:
            lock = f"manifestcommit {self._slot}"
            one_row(connection, "SELECT pg_advisory_lock(hashtextextended(%s, 0))", lock)
            _check_unmoved(chunk, now)
            self._drop(connection)
            with asking(self._dsn, replication="database") as maker:
                maker.execute(f"SET lock_timeout = '{_WAIT_S:.0f}s'")
                try:
                    made = one_row(
                        maker,
                        f'CREATE_REPLICATION_SLOT "{self._slot}" LOGICAL pgoutput EXPORT_SNAPSHOT',
                    )
                except psycopg.errors.LockNotAvailable:
                    raise SourceError(
                        f"{self.name}: transactions that are open for more than {_WAIT_S:.0f} s "
                        "keep it from being made; nothing was loaded. Look for "
                        "them in pg_stat_activity and pg_prepared_xacts, and run it again."
                    ) from None
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute(f"SET TRANSACTION SNAPSHOT '{made[2]}'")
            connection.execute("SET row_security = off")  # an error, where rows would be hidden
            end = one_row(connection, "SELECT (%s::pg_lsn - '0/0')::int8", made[1])[0]
            yield Chunk(
                ranges={name: (start, end) for name, (start, _) in chunk.ranges.items()},
                what=f"{chunk.what} up to {_lsn(end)}",
                plan=_Copy(connection),
            )

    def _drop(self, connection: psycopg.Connection[Any]) -> None:
        """Drop what a loader that died, or an earlier load, has left of the slot."""
        import psycopg

        until = time.monotonic() + _WAIT_S
        while (found := self._found(connection)) is not None:
            self._check_ours(found)
            try:
                one_row(connection, "SELECT pg_drop_replication_slot(%s)", self._slot)
            except psycopg.errors.ObjectInUse as error:
                self._wait(until, error)
            except psycopg.errors.UndefinedObject:
                return

    def _found(self, connection: psycopg.Connection[Any]) -> Any:
        """The slot's plugin, database, position, whether its log is lost, its bytes; or None."""
        return one_row(
            connection,
            "SELECT plugin::text, database::text, (confirmed_flush_lsn - '0/0')::int8,"
            " wal_status = 'lost' OR restart_lsn IS NULL,"
            " (pg_current_wal_insert_lsn() - restart_lsn)::int8, current_database()::text"
            " FROM pg_replication_slots WHERE slot_name = %s",
            self._slot,
        )

    def _check_ours(self, found: Any) -> None:
        plugin, database, *_, here = found
        if plugin != "pgoutput" or database != here:
            raise SourceError(
                f"the slot {self._slot!r} is of the plugin {plugin} in the database {database}, "
                f"and not of pgoutput in {here}: it is somebody else's. Give another name."
            )

    def _check_slot(self, connection: psycopg.Connection[Any]) -> None:
        found = self._found(connection)
        if found is not None:
            self._check_ours(found)
        if found is None or found[3]:
            what = "is gone" if found is None else "has lost its log (max_slot_wal_keep_size)"
            raise SourceError(
                f"{self.name} {what}, and with it the changes since the loaded table's position. "
                f"{_RESTART}"
            )
        self.held_back = ""
        if found[4] >= _LAG_BYTES:
            self.held_back = (
                f"the slot {self._slot} keeps {found[4] / 1e9:.1f} GB of the server's log, which "
                "grows while nobody loads, or while a transaction is open"
            )
            if not self._warned:
                self._warned.add(self._slot)
                LOG.warning("%s: %s", self.name, self.held_back)

    def _wait(self, until: float, error: Exception) -> None:
        if time.monotonic() > until:
            raise SourceError(
                f"the slot {self._slot!r} was used by somebody else for {_WAIT_S:.0f} s ({error}); "
                "nothing was done. Run one loader a slot."
            )
        pause(0.1)

    def _look(
        self,
        connection: psycopg.Connection[Any],
        positions: Mapping[str, Position],
        *,
        whole: bool = False,
    ) -> dict[str, int | None]:
        """Find the tables, check that their changes are published, and return their positions."""
        if (level := one_row(connection, "SHOW wal_level")[0]) != "logical":
            raise SourceError(
                f"{self.name}: the server's wal_level is {level}, and logical decoding needs "
                "logical: ALTER SYSTEM SET wal_level = logical, and start the server again"
            )
        for each in self.tables.values():
            each.look(connection)
        self._check_published(connection)
        return {
            each.name: position_at(each.name, positions, self._on_failover, whole=whole)
            for each in self.tables.values()
        }

    def _check_published(self, connection: psycopg.Connection[Any]) -> None:
        """SourceError where the publication is not of just these tables."""
        found = one_row(
            connection,
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, (SELECT"
            " array_agg(ARRAY[schemaname::text, tablename::text]) FROM pg_publication_tables AS t"
            " WHERE t.pubname = p.pubname), EXISTS (SELECT FROM pg_publication_tables AS t WHERE"
            " t.pubname = p.pubname AND to_jsonb(t) ->> 'rowfilter' IS NOT NULL)"
            " FROM pg_publication AS p WHERE pubname = %s",
            self._slot,
        )
        make = f"CREATE PUBLICATION {self._slot} FOR TABLE {', '.join(self._given)}"
        if found is None:
            raise SourceError(
                f"the database has no publication {self._slot!r}, which says what the slot of that "
                f"name gives: {make}"
            )
        whole, published, filtered = found
        wanted = {(each.schema, each.table) for each in self.tables.values()}
        there = {(schema, name) for schema, name in published or ()}
        others, missing = sorted(there - wanted), sorted(wanted - there)
        wrong = (
            "lacks inserts, updates, deletes or truncates"
            if not whole
            else f"has other tables, too ({', '.join(map('.'.join, others[:5]))})"
            if others
            else f"has not {', '.join(map('.'.join, missing))}"
            if missing
            else "has only some rows"
            if filtered
            else ""
        )
        if wrong:
            raise SourceError(
                f"the publication {self._slot!r} {wrong}: expected one of what is loaded and of "
                f"nothing else. {make}; for a partitioned table WITH "
                "(publish_via_partition_root = true)"
            )

    def _read(
        self, connection: psycopg.Connection[Any], start: int, upto: int, max_bytes: int
    ) -> _Read | None:
        """The transactions from a position on, up to the log's end as it was; None: none."""
        flush_log(connection, self.name, _lsn(upto))  # only the log on disk is decoded
        members = [*self.tables.values()]
        reader = _Reader(members, start, history=self._history)
        try:
            ended = self._peek(connection, reader, max_bytes, upto)
        except NewShapeError:  # up to there, then
            before, ended = reader.end, False
            reader = _Reader(members, start, history=self._history)
            if before <= start:
                raise SourceError(
                    f"{self.name}: columns changed within a transaction that also changed rows "
                    f"before; nothing of it was loaded. {_RESTART}"
                ) from None
            self._peek(connection, reader, max_bytes, before)
        found, end = self._found(connection), reader.end
        if found is None or found[2] is None:
            raise SourceError(f"the slot {self._slot!r} was dropped meanwhile; run it again")
        if found[2] > start:  # refused by `loading`
            end = max(end, found[2])
        elif not reader.changes:
            if ended:
                end = max(end, upto)
            if end - found[2] < _IDLE_BYTES or end <= start:
                return None
        return _Read(end=end, slot=found[2], reader=reader)

    def _peek(
        self, connection: psycopg.Connection[Any], reader: _Reader, max_bytes: int, upto: int
    ) -> bool:
        """Read whole transactions until they are large enough; whether there are no more."""
        import psycopg

        most = max_bytes // 64 + 1  # of messages; a transaction is whole
        until = time.monotonic() + _WAIT_S
        while True:
            try:
                more = self._peek_at_most(connection, reader, max_bytes, upto, most)
            except psycopg.errors.ObjectInUse as error:
                self._wait(until, error)
                continue
            if reader.transactions or not more:
                return not more
            most *= 8  # the slot went back, and gives what is loaded

    def _peek_at_most(
        self,
        connection: psycopg.Connection[Any],
        reader: _Reader,
        max_bytes: int,
        upto: int,
        most: int,
    ) -> bool:
        """Read about so many messages; whether there may be more."""
        asked = (
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s,"
            " 'proto_version', '1', 'publication_names', %s)"
        )
        given = [self._slot, _lsn(upto), min(most, 2**31 - 1), self._slot]
        messages = 0
        with connection.transaction(), connection.cursor(name="pgoutput", binary=True) as cursor:
            cursor.itersize = _BATCH_ROWS
            for (data,) in cursor.execute(asked, given):
                messages += 1
                reader.take(data)
                if reader.is_between and reader.bytes >= max_bytes:
                    return True
        return messages >= most


class SlotTable:
    """One of a slot's tables, as a source of the rows of one table of ours.

    Attributes:
        name: what its position is called, once it was found.
        updates: whether changes change rows, and are not rows themselves.

    Spec: LD10.
    """

    def __init__(
        self, dsn: StorageOptions, slot: str, given: str, target: Table, *, history: bool
    ) -> None:
        self._dsn, self._slot, self._given, self._target = dsn, slot, given, target
        self._history, self._refusal = history, Refusal(given, _WAY_OUT)
        self.updates = not history
        self.name = self.schema = self.table = ""
        self.key: tuple[str, ...] = ()
        self._columns: list[str] = []  # that are published

    def look(self, connection: psycopg.Connection[Any]) -> None:
        """Find the table at the server, its key, and the columns that are published."""
        self.schema, self.table, oid = table_of(connection, self._given, "rp")
        self.name = place_of(connection, self.schema, self.table, oid, self._slot)
        key = connection.execute(
            "SELECT a.attname FROM pg_class AS c JOIN pg_index AS i ON i.indrelid = c.oid AND"
            " CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END"
            " JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)"
            " WHERE c.oid = %s ORDER BY a.attnum",
            [int(oid)],
        )
        self.key = tuple(each for (each,) in key)
        if not self.key and not self._history:
            raise SourceError(
                f"{self.name}: the table has no primary key, by which rows could be updated and "
                "deleted. Give it one, or REPLICA IDENTITY USING INDEX, or history=True to load "
                "each change as a row."
            )
        columns = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT"
            " attisdropped AND attgenerated = '' AND coalesce((SELECT to_jsonb(t) -> 'attnames'"
            " FROM pg_publication_tables AS t WHERE pubname = %s AND (schemaname, tablename) ="
            " (%s, %s)) ? attname, true) ORDER BY attnum",
            [int(oid), self._slot, self.schema, self.table],
        )
        self._columns = [each for (each,) in columns]

    def check_target(self, start: int | None) -> None:
        """SourceError where this source does not go on with what the loaded table has."""
        try:
            names, rows = {*self._target.schema.names}, self._target.snapshot().totals.rows
        except TableNotFoundError:
            return
        if start is None and rows and not self._history:
            raise SourceError(
                f"{self.name}: the table {self._target.url} has rows, and no "
                "position of this source: it would not be the same as the source. Load into a "
                "new table, or give restart=True to replace its rows."
            )
        is_history = {*_HISTORY.names} <= names - {*self._columns}
        if start is not None and names and is_history is not self._history:
            raise SourceError(
                f"{self.name}: the table {self._target.url} was loaded with history={is_history}, "
                "and it cannot be both. Load into a new table, by a slot of its own."
            )

    def rows(self, chunk: Chunk) -> Any:
        """Read the rows of a chunk: all of the table, its changes, or the last one of each key."""
        if isinstance(chunk.plan, _Copy):
            return self._copied(chunk.plan.connection)
        if not isinstance(chunk.plan, _Read):
            raise SourceError(f"{self.name}: all rows can be read by load only")
        if (spool := chunk.plan.reader.changes_of(self.name)) is None:
            return []
        with asking(self._dsn) as connection:
            columns = columns_of(connection, spool.shape.columns, self._refusal)
            if not self._history:
                self._check_columns(connection, columns)
        return self._changed(spool, columns)

    def _copied(self, connection: psycopg.Connection[Any]) -> pa.RecordBatchReader:
        self.look(connection)
        listed = ", ".join(map(quoted, self._columns))
        rows = f"(SELECT {listed} FROM {quoted(self.schema, self.table)}) AS q"
        columns = columns_of(connection, described(connection, rows), self._refusal)
        schema = self._with_history(schema_of(columns))

        def batches() -> Iterator[pa.RecordBatch]:
            asked = f"FROM {rows}"
            for batch in selected(connection, columns, asked, _BATCH_ROWS, self._refusal):
                more: list[pa.Array] = []
                if self._history:
                    nulls = [pa.nulls(batch.num_rows, field.type) for field in _HISTORY]
                    more = [pa.array(["insert"] * batch.num_rows, pa.string()), *nulls[1:]]
                yield pa.RecordBatch.from_arrays([*batch.columns, *more], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _with_history(self, schema: pa.Schema) -> pa.Schema:
        for field in _HISTORY if self._history else ():
            if field.name in schema.names:
                raise self._refusal.of(field.name, "history=True adds a column of that name")
            schema = schema.append(field)
        return schema

    def _changed(self, spool: Spool, columns: Sequence[Column]) -> pa.RecordBatchReader:
        schema = self._with_history(schema_of(columns))
        if not self._history:
            deleted, kept = _beside(schema.names)
            schema = pa.schema([*schema, (deleted, pa.bool_()), (kept, pa.string())])

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in spool.batches():
                more = [pc.equal(batch.column("kind"), "delete"), batch.column("kept")]
                if self._history:
                    moments = pc.add(batch.column("moment"), _SINCE_2000_US)
                    more = [batch.column(name) for name in ("kind", "lsn", "number")]
                    more.insert(2, moments)
                    more = [each.cast(f.type) for each, f in zip(more, _HISTORY, strict=True)]
                arrays = [
                    from_texts(each, batch.column(f"{place}"), self._refusal)
                    for place, each in enumerate(columns)
                ]
                yield pa.RecordBatch.from_arrays([*arrays, *more], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _check_columns(
        self, connection: psycopg.Connection[Any], columns: Sequence[Column]
    ) -> None:
        """SourceError where rows that do not change any more would differ from the source's: a
        column was dropped or renamed there, or added with a value."""
        ours, theirs = self._target.schema.names, {each.name for each in columns}
        gone = [each for each in ours if each not in theirs]
        filled = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname ="
            " ANY(%s) AND (atthasmissing OR atthasdef OR attidentity <> '')",
            [self._given, [each for each in theirs if each not in ours]],
        ).fetchall()
        if gone or filled:
            name = gone[0] if gone else filled[0][0]
            what = "was dropped or renamed" if gone else "was added with a default"
            raise SourceError(
                f"{self.name}: the column {name!r} {what} at the source, and rows that do not "
                f"change again would keep what they have. Nothing of this chunk was loaded. "
                f"{_RESTART}"
            )

    def change(self, chunk: Chunk) -> tuple[str, Mapping[str, Any]] | None:
        """Say how the chunk's rows are merged; None: they are added."""
        if self._history or not isinstance(chunk.plan, _Read):
            return None
        if (spool := chunk.plan.reader.changes_of(self.name)) is None:
            return None
        assert spool.key is not None
        names = [name for name, _, _ in spool.shape.columns]
        deleted, kept = map(_of_source, _beside(names))
        of_source = {name: _of_source(name) for name in names}
        updates = [
            Update(
                where=f"{kept} = '{','.join(map(str, left))}'",
                set={
                    name: value
                    for place, (name, value) in enumerate(of_source.items())
                    if place not in left and place not in spool.key
                },
            )
            for left in [(), *sorted(spool.kept)]
        ]
        return "merge", {
            "on": [names[place] for place in spool.key],
            "when_matched": [Delete(where=deleted), *(each for each in updates if each.set)],
            "when_not_matched": Insert(values=of_source, where=f"NOT {deleted} AND {kept} = ''"),
            "when_not_matched_by_source": "delete" if spool.emptied else None,
        }


class _Reader:
    """Takes messages of `pgoutput`, and keeps the changes of whole transactions.

    Attributes:
        end: of the last transaction that was read whole.
        is_between: whether the last message was the end of one.
        spools: the name of a table's position -> its changes.
    """

    def __init__(self, tables: Sequence[SlotTable], start: int, *, history: bool) -> None:
        self._tables = {(each.schema, each.table): each for each in tables}
        self._start, self._history = start, history
        self._ids: dict[int, str] = {}  # of the messages -> the name of a table's position
        self._keys: dict[str, tuple[int, ...]] = {}
        self._begun: Begin | None = None
        self._number = 0
        self.spools: dict[str, Spool] = {}
        self.end = start
        self.bytes = self.changes = self.transactions = 0
        self.is_between = False

    def changes_of(self, name: str) -> Spool | None:
        """Those of the table with this position, if there are any."""
        spool = self.spools.get(name)
        return spool if spool is not None and spool.has_changes else None

    def take(self, data: bytes) -> None:
        found = decoded(data)
        self.is_between = False
        if isinstance(found, Begin):  # what is below the position is loaded
            self._begun, self._number = (None if found.lsn < self._start else found), 0
        elif isinstance(found, tuple):
            self._describe(*found)
        elif self._begun is None:
            return
        elif isinstance(found, Commit):
            self.end, self.is_between = found.end, True
            self.transactions += 1
        elif isinstance(found, Change):
            self.bytes += len(data)
            for id in found.tables:
                if (name := self._ids.get(id)) is not None:
                    self.changes += 1
                    self._change(name, found)

    def _describe(self, id: int, shape: Shape) -> None:
        if (table := self._tables.get((shape.schema, shape.name))) is None:
            return
        name = self._ids[id] = table.name
        names = [column for column, _, _ in shape.columns]
        key = shape.key or tuple(names.index(each) for each in table.key if each in names)
        if not self._history and not key:
            raise SourceError(
                f"{name}: changes of {shape.name!r} have no key; nothing was "
                "loaded. Give the table a primary key, and then restart=True."
            )
        if (spool := self.changes_of(name)) is None:
            self.spools[name] = Spool(shape, None if self._history else key)
        elif (spool.shape.columns, self._keys[name]) != (shape.columns, key):
            raise NewShapeError
        self._keys[name] = key

    def _change(self, name: str, change: Change) -> None:
        spool, key = self.spools[name], self._keys[name]
        if change.kind == "truncate":
            if self._history:
                self._add(spool, [None] * len(spool.shape.columns), "truncate")
            else:
                spool.empty()
            return
        if change.kind == "delete":
            self._add(spool, change.old, "delete")
            return
        new, old = change.new, change.old
        if old is not None:
            for place, value in enumerate(new):
                if value is KEPT and (change.whole or place in key):
                    new[place] = old[place]
        why = ""
        if any(new[at] is KEPT for at in key):
            why = "it is of the key"
        elif old is not None and key and [old[at] for at in key] != [new[at] for at in key]:
            why = "the key of its row changed"
            if KEPT not in new:
                self._add(spool, old, "delete")
                self._add(spool, new, "insert")
                return
        elif self._history:
            why = "history=True loads each row as it was"
        if why and KEPT in new:
            column = spool.shape.columns[new.index(KEPT)][0]
            raise SourceError(
                f"{name}: a long value of {column!r} did not change, so that the server does not "
                f"give it, and {why}. Nothing of this chunk was loaded. {_FULL}: the server gives "
                "such values then."
            )
        self._add(spool, new, change.kind)

    def _add(self, spool: Spool, values: list[Any], kind: str) -> None:
        assert self._begun is not None
        spool.add(Row(values, kind, self._begun.lsn, self._begun.moment, self._number))
        self._number += 1


def _check_unmoved(chunk: Chunk, now: Callable[[], Mapping[str, Position]]) -> None:
    """ChangedInputError where a table's position is not what the chunk begins at."""
    at = now()
    for name, (start, _) in chunk.ranges.items():
        if at.get(name, start) != start:
            raise ChangedInputError(f"{name}: another loader has come to {at[name]}")


def _beside(names: Sequence[str]) -> tuple[str, str]:
    """Names for two more columns."""
    mark = "_"
    while {f"{mark}deleted", f"{mark}kept"}.intersection(map(str.lower, names)):
        mark += "_"
    return f"{mark}deleted", f"{mark}kept"


def _of_source(name: str) -> str:
    return "source.`{}`".format(name.replace("`", "``"))


def _lsn(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def _now(connection: psycopg.Connection[Any]) -> int:
    """Where the server's log ends."""
    return int(one_row(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0')::int8")[0])
