"""Changes of PostgreSQL by logical decoding, deletes among them. [LD10]

A position is where a transaction ended in the server's log. A replication slot keeps the log from
there on, and goes on only behind commits; so what is read again is the same, and what a slot gives
again after a crash is dropped by the position.
"""

from __future__ import annotations

import contextlib
import copy
import logging
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
from .pgoutput import KEPT, Begin, Change, Commit, NewShapeError, Row, Shape, Spool, decoded
from .postgres_server import (
    Asking,
    Column,
    Hidden,
    Place,
    Refusal,
    columns_of,
    described,
    described_by_types,
    from_texts,
    one_row,
    place_of,
    position_at,
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


class _Followed(msgspec.Struct, frozen=True, kw_only=True):
    """A table that is followed. key: its columns; rows: what follows FROM."""

    given: str
    schema: str
    table: str
    place: Place
    key: tuple[str, ...]
    rows: Any

    @property
    def refusal(self) -> Refusal:
        return Refusal(self.given, _WAY_OUT)


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    """What was read. end, slot: positions; spools: the table's name -> its changes."""

    end: int
    slot: int
    bytes: int
    changes: int
    transactions: int
    spools: Mapping[str, Spool]


class _Copy(msgspec.Struct, frozen=True):
    """All rows, as of a slot's beginning, which this connection sees."""

    connection: Any


class PostgresChanges:
    """Changes of a table; made by `postgres` with a slot.

    Attributes:
        name: what the slot is called.
        held_back: how much log the slot keeps, where that is much, as of the last look.

    Spec: LD8, LD10.
    """

    def __init__(
        self,
        dsn: Hidden,
        table: str,
        slot: str,
        on_failover: Literal["error", "continue"],
        *,
        history: bool,
    ) -> None:
        self._dsn, self._given, self._slot = dsn, table, slot
        self._on_failover, self._history = on_failover, history
        self._target: Table | None = None
        self._warned: set[str] = set()  # shared by those that `open` returns
        self.name = f"postgresql slot {slot}"
        self.held_back = ""

    def open(self, path: Any, options: StorageOptions) -> PostgresChanges:
        """Return the source for this table."""
        found = copy.copy(self)
        found._target = Table(path, options)
        return found

    # --- what there is ----------------------------------------------------------------------------

    def chunks(self, positions: Mapping[str, Position], *, max_bytes: int) -> Iterator[Chunk]:
        """Yield whole transactions, in their order; all rows where there is no position."""
        with Asking(self._dsn) as connection:
            _speak_plainly(connection)
            followed = self._look(connection)
            first = position_at(followed.place, positions, self._on_failover)
            if first is None:
                self._check_empty(followed)
                yield self._whole(connection, followed, None)
                return
            self._check_slot(connection, followed)
            start, upto = first, _now(connection)
            while (read := self._read(connection, followed, start, upto, max_bytes)) is not None:
                what = (
                    f"{counted(read.changes, 'change')} of "
                    f"{counted(read.transactions, 'transaction')}"
                )
                yield Chunk(
                    ranges={followed.place.name: (start, read.end)},
                    what=f"{what} up to {_lsn(read.end)}",
                    bytes=read.bytes,
                    plan=read,
                )
                if (start := read.end) >= upto:
                    return

    def copy(self, positions: Mapping[str, Position]) -> Chunk:
        """Return all rows as of a new beginning of the slot as one chunk."""
        with Asking(self._dsn) as connection:
            followed = self._look(connection)
            start = position_at(followed.place, positions, self._on_failover, whole=True)
            return self._whole(connection, followed, start)

    def _whole(
        self, connection: psycopg.Connection[Any], followed: _Followed, start: int | None
    ) -> Chunk:
        return Chunk(
            ranges={followed.place.name: (start, _now(connection))},
            what=f"all rows of {followed.given}",
            plan="copy",
        )

    def _check_empty(self, followed: _Followed) -> None:
        """SourceError where a first copy would be added to rows of others."""
        if self._history or self._target is None:
            return
        with contextlib.suppress(TableNotFoundError):
            if self._target.snapshot().totals.rows:
                raise SourceError(
                    f"{followed.place.name}: the table {self._target.url} has rows, and no "
                    "position of this source: it would not be the same as the source. Load into a "
                    "new table, or give restart=True to replace its rows."
                )

    @contextlib.contextmanager
    def loading(self, chunk: Chunk, now: Callable[[], Mapping[str, Position]]) -> Iterator[Chunk]:
        """Give a chunk that may be committed meanwhile; the slot goes on behind it afterwards.

        Args:
            chunk: one of `chunks`, or of `copy`.
            now: says what the table's positions are by now.
        """
        ((name, (start, _)),) = chunk.ranges.items()
        if chunk.plan == "copy":
            with self._copying(chunk, now) as ready:
                yield ready
            return
        read: _Read = chunk.plan
        if read.slot > int(start or 0):  # read before the position is: only commits move a slot
            self._check_unmoved(chunk, now)
            raise SourceError(
                f"{name}: the loaded table is at {_lsn(int(start or 0))}, and the slot "
                f"{self._slot!r} begins at {_lsn(read.slot)}: it was made again, moved by somebody "
                "else, or the table was set back. What is between is gone. Give restart=True to "
                "replace the rows by those of now, and to go on from there."
            )
        yield chunk
        self._advance(read.end)

    def _check_unmoved(self, chunk: Chunk, now: Callable[[], Mapping[str, Position]]) -> None:
        ((name, (start, _)),) = chunk.ranges.items()
        if (at := now().get(name)) is not None and at != start:
            raise ChangedInputError(f"{name}: another loader has come to {at}")

    def _advance(self, end: int) -> None:
        """Let the server forget what is committed; the next commit does it where this cannot."""
        import psycopg

        try:
            with Asking(self._dsn) as connection, contextlib.suppress(psycopg.errors.ObjectInUse):
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

        ((name, (start, _)),) = chunk.ranges.items()
        with Asking(self._dsn) as connection:
            lock = f"manifestcommit {self._slot}"
            one_row(connection, "SELECT pg_advisory_lock(hashtextextended(%s, 0))", lock)
            self._check_unmoved(chunk, now)
            self._drop(connection)
            with Asking(self._dsn, replication="database") as maker:
                maker.execute(f"SET lock_timeout = '{_WAIT_S:.0f}s'")
                try:
                    made = one_row(
                        maker,
                        f'CREATE_REPLICATION_SLOT "{self._slot}" LOGICAL pgoutput EXPORT_SNAPSHOT',
                    )
                except psycopg.errors.LockNotAvailable:
                    raise SourceError(
                        f"{name}: transactions that are open for more than {_WAIT_S:.0f} s keep "
                        f"the slot {self._slot!r} from being made; nothing was loaded. Look for "
                        "them in pg_stat_activity and pg_prepared_xacts, and run it again."
                    ) from None
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute(f"SET TRANSACTION SNAPSHOT '{made[2]}'")
            connection.execute("SET row_security = off")  # an error, where rows would be hidden
            end = _number(made[1])
            yield Chunk(
                ranges={name: (start, end)},
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

    # --- the slot ---------------------------------------------------------------------------------

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

    def _check_slot(self, connection: psycopg.Connection[Any], followed: _Followed) -> None:
        found = self._found(connection)
        if found is not None:
            self._check_ours(found)
        if found is None or found[3]:
            what = "is gone" if found is None else "has lost its log (max_slot_wal_keep_size)"
            raise SourceError(
                f"{followed.place.name}: the slot {self._slot!r} {what}, and with it the changes "
                "since the loaded table's position. Give restart=True to make it again, to replace "
                "the rows by those of now, and to go on from there."
            )
        self.held_back = ""
        if found[4] >= _LAG_BYTES:
            self.held_back = (
                f"the slot {self._slot} keeps {found[4] / 1e9:.1f} GB of the server's log, which "
                "grows while nobody loads, or while a transaction is open"
            )
            if not self._warned:
                self._warned.add(self._slot)
                LOG.warning("%s: %s", followed.place.name, self.held_back)

    def _wait(self, until: float, error: Exception) -> None:
        if time.monotonic() > until:
            raise SourceError(
                f"the slot {self._slot!r} was used by somebody else for {_WAIT_S:.0f} s ({error}); "
                "nothing was done. Run one loader a slot."
            )
        time.sleep(0.1)

    # --- what is followed -------------------------------------------------------------------------

    def _look(self, connection: psycopg.Connection[Any]) -> _Followed:
        """Find the table, and check that its changes are published."""
        from psycopg import sql

        schema, name, oid = table_of(connection, self._given, "rp")
        place = place_of(connection, schema, name, oid, self._slot)
        if (level := one_row(connection, "SHOW wal_level")[0]) != "logical":
            raise SourceError(
                f"{place.name}: the server's wal_level is {level}, and logical decoding needs "
                "logical: ALTER SYSTEM SET wal_level = logical, and start the server again"
            )
        published = self._published(connection, schema, name, oid)
        listed = sql.SQL(", ").join(map(sql.Identifier, published))
        rows = sql.SQL("(SELECT {listed} FROM {table}) AS q").format(
            listed=listed, table=sql.Identifier(schema, name)
        )
        key = connection.execute(
            "SELECT a.attname FROM pg_class AS c JOIN pg_index AS i ON i.indrelid = c.oid AND"
            " CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END"
            " JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)"
            " WHERE c.oid = %s ORDER BY a.attnum",
            [int(oid)],
        ).fetchall()
        if not key and not self._history:
            raise SourceError(
                f"{place.name}: the table has no primary key, by which rows could be updated and "
                "deleted. Give it one, or REPLICA IDENTITY USING INDEX, or history=True to load "
                "each change as a row."
            )
        return _Followed(
            given=self._given,
            schema=schema,
            table=name,
            place=place,
            key=tuple(each for (each,) in key),
            rows=rows,
        )

    def _published(
        self, connection: psycopg.Connection[Any], schema: str, name: str, oid: str
    ) -> list[str]:
        """The columns that are published; SourceError where that is not just the table."""
        found = one_row(
            connection,
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, (SELECT"
            " array_agg(schemaname || '.' || tablename) FROM pg_publication_tables AS t WHERE"
            " t.pubname = p.pubname AND (schemaname, tablename) <> (%s, %s)), EXISTS (SELECT FROM"
            " pg_publication_tables AS t WHERE t.pubname = p.pubname AND (schemaname, tablename) ="
            " (%s, %s)), EXISTS (SELECT FROM pg_publication_tables AS t WHERE t.pubname ="
            " p.pubname AND to_jsonb(t) ->> 'rowfilter' IS NOT NULL)"
            " FROM pg_publication AS p WHERE pubname = %s",
            *(schema, name, schema, name, self._slot),
        )
        make = f"CREATE PUBLICATION {self._slot} FOR TABLE {self._given}"
        if found is None:
            raise SourceError(
                f"the database has no publication {self._slot!r}, which says what the slot of that "
                f"name gives: {make}"
            )
        whole, others, is_there, filtered = found
        wrong = (
            "lacks inserts, updates, deletes or truncates"
            if not whole
            else f"has other tables, too ({', '.join(others[:5])})"
            if others
            else f"has not {self._given!r}"
            if not is_there
            else "has only some rows"
            if filtered
            else ""
        )
        if wrong:
            raise SourceError(
                f"the publication {self._slot!r} {wrong}: expected one of this table and of "
                f"nothing else. {make}; for a partitioned table WITH "
                "(publish_via_partition_root = true)"
            )
        return [
            each
            for (each,) in connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT"
                " attisdropped AND attgenerated = '' AND coalesce((SELECT to_jsonb(t) -> 'attnames'"
                " FROM pg_publication_tables AS t WHERE pubname = %s) ? attname, true)"
                " ORDER BY attnum",
                [int(oid), self._slot],
            )
        ]

    # --- reading ----------------------------------------------------------------------------------

    def _read(
        self,
        connection: psycopg.Connection[Any],
        followed: _Followed,
        start: int,
        upto: int,
        max_bytes: int,
    ) -> _Read | None:
        """The transactions from a position on, up to the log's end as it was; None: none."""
        if _number(one_row(connection, "SELECT pg_current_wal_flush_lsn()::text")[0]) < upto:
            connection.execute("SET synchronous_commit = local")  # only the log on disk is decoded
            connection.execute("SELECT pg_logical_emit_message(true, 'manifestcommit', '')")
        reader = _Reader(followed, start, history=self._history)
        try:
            ended = self._peek(connection, reader, max_bytes, upto)
        except NewShapeError:  # up to there, then
            before, ended = reader.end, False
            reader = _Reader(followed, start, history=self._history)
            if before <= start:
                raise SourceError(
                    f"{followed.place.name}: the columns of {self._given!r} changed within a "
                    "transaction that also changed rows before; nothing of it was loaded. Give "
                    "restart=True to replace the rows by those of now, and to go on from there."
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
        return _Read(
            end=end,
            slot=found[2],
            bytes=reader.bytes,
            changes=reader.changes,
            transactions=reader.transactions,
            spools={followed.place.name: spool} if (spool := reader.spool) is not None else {},
        )

    def _peek(
        self,
        connection: psycopg.Connection[Any],
        reader: _Reader,
        max_bytes: int,
        upto: int,
    ) -> bool:
        """Read whole transactions until they are large enough; whether there are no more."""
        import psycopg

        most = max_bytes // 64 + 1  # of messages; a transaction is whole
        until = time.monotonic() + _WAIT_S
        while True:
            try:
                messages = self._peek_once(connection, reader, max_bytes, upto, most)
            except psycopg.errors.ObjectInUse as error:
                self._wait(until, error)
                continue
            if reader.transactions or messages < most:
                return messages < most
            most *= 8  # the slot went back, and gives what is loaded

    def _peek_once(
        self,
        connection: psycopg.Connection[Any],
        reader: _Reader,
        max_bytes: int,
        upto: int,
        most: int,
    ) -> int:
        """How many messages there were; `most` where there may be more."""
        with (
            connection.transaction(),
            connection.cursor(name="manifestcommit", binary=True) as cursor,
        ):
            cursor.execute(
                "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s,"
                " 'proto_version', '1', 'publication_names', %s)",
                [self._slot, _lsn(upto), min(most, 2**31 - 1), self._slot],
            )
            messages = 0
            while found := cursor.fetchmany(_BATCH_ROWS):
                messages += len(found)
                for (data,) in found:
                    reader.take(data)
                    if reader.is_between and reader.bytes >= max_bytes:
                        return most
        return messages

    # --- rows -------------------------------------------------------------------------------------

    def rows(self, chunk: Chunk) -> Any:
        """Read the rows of a chunk: all of the table, its changes, or the last one of each key."""
        if isinstance(chunk.plan, _Copy):
            return self._copied(chunk.plan.connection)
        if not isinstance(chunk.plan, _Read):
            raise SourceError(f"{self.name}: all rows can be read by load only")
        spool = next(iter(chunk.plan.spools.values()), None)
        if spool is None:
            return []
        with Asking(self._dsn) as connection:
            followed = self._look(connection)
            columns = columns_of(
                described_by_types(connection, spool.shape.columns), followed.refusal
            )
            if not self._history:
                self._check_columns(connection, followed, columns)
        return self._changed(spool, columns, followed.refusal)

    def _copied(self, connection: psycopg.Connection[Any]) -> pa.RecordBatchReader:
        from psycopg import sql

        followed = self._look(connection)
        columns = columns_of(described(connection, followed.rows), followed.refusal)
        schema = pa.schema([(each.name, each.type) for each in columns])
        whole = self._with_history(schema, followed.refusal) if self._history else schema
        asked = sql.SQL("FROM {rows}").format(rows=followed.rows)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in selected(connection, columns, asked, _BATCH_ROWS, followed.refusal):
                more: list[pa.Array] = []
                if self._history:
                    nulls = [pa.nulls(batch.num_rows, field.type) for field in _HISTORY]
                    more = [pa.array(["insert"] * batch.num_rows, pa.string()), *nulls[1:]]
                yield pa.RecordBatch.from_arrays([*batch.columns, *more], schema=whole)

        return pa.RecordBatchReader.from_batches(whole, batches())

    def _with_history(self, schema: pa.Schema, refusal: Refusal) -> pa.Schema:
        for field in _HISTORY:
            if field.name in schema.names:
                raise refusal.of(field.name, "history=True adds a column of that name")
            schema = schema.append(field)
        return schema

    def _changed(
        self, spool: Spool, columns: Sequence[Column], refusal: Refusal
    ) -> pa.RecordBatchReader:
        schema = pa.schema([(each.name, each.type) for each in columns])
        if self._history:
            schema = self._with_history(schema, refusal)
        else:
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
                    from_texts(each, batch.column(f"{place}"), refusal)
                    for place, each in enumerate(columns)
                ]
                yield pa.RecordBatch.from_arrays([*arrays, *more], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _check_columns(
        self,
        connection: psycopg.Connection[Any],
        followed: _Followed,
        columns: Sequence[Column],
    ) -> None:
        """SourceError where rows that do not change any more would differ from the source's: a
        column was dropped or renamed there, or added with a value."""
        if self._target is None:
            return
        ours, theirs = self._target.schema.names, {each.name for each in columns}
        gone = [each for each in ours if each not in theirs]
        filled = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname ="
            " ANY(%s) AND (atthasmissing OR atthasdef OR attidentity <> '')",
            [followed.given, [each for each in theirs if each not in ours]],
        ).fetchall()
        if gone or filled:
            name = gone[0] if gone else filled[0][0]
            what = "was dropped or renamed" if gone else "was added with a default"
            raise SourceError(
                f"{followed.place.name}: the column {name!r} {what} at the source, and rows that "
                "do not change again would keep what they have. Nothing of this chunk was loaded. "
                "Give restart=True to replace the loaded table, also its columns, by all rows of "
                "now, and to go on from there."
            )

    def merge(self, chunk: Chunk) -> Mapping[str, Any] | None:
        """Say how the chunk's rows are merged, as `Table.merge` takes it; None: they are added."""
        if self._history or not isinstance(chunk.plan, _Read):
            return None
        spool = next(iter(chunk.plan.spools.values()), None)
        if spool is None:
            return None
        assert spool.key is not None
        names = [name for name, _, _ in spool.shape.columns]
        deleted, kept = map(_quoted, _beside(names))
        of_source = {name: _quoted(name) for name in names}
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
        return {
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
    """

    def __init__(self, followed: _Followed, start: int, *, history: bool) -> None:
        self._followed, self._start, self._history = followed, start, history
        self._table = -1
        self._key: tuple[int, ...] = ()
        self._begun: Begin | None = None
        self._number = 0
        self.spool: Spool | None = None
        self.end = start
        self.bytes = self.changes = self.transactions = 0
        self.is_between = False

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
        elif isinstance(found, Change) and self._table in found.tables:
            self.bytes += len(data)
            self.changes += 1
            self._change(found)

    def _describe(self, table: int, shape: Shape) -> None:
        followed = self._followed
        if (shape.schema, shape.name) != (followed.schema, followed.table):
            return
        self._table = table
        names = [name for name, _, _ in shape.columns]
        key = shape.key or tuple(names.index(each) for each in followed.key if each in names)
        if not self._history and not key:
            raise SourceError(
                f"{followed.place.name}: changes of {followed.given!r} have no key; nothing was "
                "loaded. Give the table a primary key, and then restart=True."
            )
        if self.spool is None or (not self.spool.count and not self.spool.emptied):
            self.spool = Spool(shape, None if self._history else key)
        elif (self.spool.shape.columns, self._key) != (shape.columns, key):
            raise NewShapeError
        self._key = key

    def _change(self, change: Change) -> None:
        assert self.spool is not None
        if change.kind == "truncate":
            if self._history:
                self._add([None] * len(self.spool.shape.columns), "truncate")
            else:
                self.spool.empty()
            return
        if change.kind == "delete":
            self._add(change.old, "delete")
            return
        new, old, key = change.new, change.old, self._key
        if old is not None:
            for place, value in enumerate(new):
                if value is KEPT and (change.whole or place in key):
                    new[place] = old[place]
        if any(new[at] is KEPT for at in key):
            raise self._unknown(new, "it is of the key")
        if old is not None and key and [old[at] for at in key] != [new[at] for at in key]:
            if KEPT in new:
                raise self._unknown(new, "the key of its row changed")
            self._add(old, "delete")
            self._add(new, "insert")
            return
        if self._history and KEPT in new:
            raise self._unknown(new, "history=True loads each row as it was")
        self._add(new, change.kind)

    def _add(self, values: list[Any], kind: str) -> None:
        assert self.spool is not None and self._begun is not None
        self.spool.add(Row(values, kind, self._begun.lsn, self._begun.moment, self._number))
        self._number += 1

    def _unknown(self, values: list[Any], why: str) -> SourceError:
        assert self.spool is not None
        name = self.spool.shape.columns[values.index(KEPT)][0]
        return SourceError(
            f"{self._followed.place.name}: a long value of {name!r} did not change, so that the "
            f"server does not give it, and {why}. Nothing of this chunk was loaded. {_FULL}: "
            "the server gives such values then."
        )


def _beside(names: Sequence[str]) -> tuple[str, str]:
    """Names for two more columns."""
    mark = "_"
    while {f"{mark}deleted", f"{mark}kept"}.intersection(map(str.lower, names)):
        mark += "_"
    return f"{mark}deleted", f"{mark}kept"


def _quoted(name: str) -> str:
    return "source.`{}`".format(name.replace("`", "``"))


def _lsn(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def _number(lsn: str) -> int:
    high, _, low = lsn.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def _now(connection: psycopg.Connection[Any]) -> int:
    """Where the server's log ends."""
    return _number(one_row(connection, "SELECT pg_current_wal_insert_lsn()::text")[0])


def _speak_plainly(connection: psycopg.Connection[Any]) -> None:
    """Values come as texts that mean the same whatever the role's settings are."""
    connection.execute(
        "SET datestyle = 'ISO'; SET timezone = 'UTC'; SET bytea_output = 'hex';"
        " SET extra_float_digits = 1"
    )
