"""Rows of PostgreSQL, by a column with the id of the transaction that wrote each. [LD7] [LD8]

Transactions commit in another order than they take ids, so a chunk ends below the oldest one that
still runs; and a server that crashes gives ids again whose records were not yet on its disk, so the
end is used only once they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ..errors import SourceError, UsageError
from ..runtime.validation import checked, fits, flag, one_of, optional, text, wrong
from ..store.base import StorageOptions
from ..version import install
from .chunk import Chunk, Position
from .postgres_changes import PostgresChanges
from .postgres_server import (
    Column,
    Refusal,
    asking,
    columns_of,
    described,
    flush_log,
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
_LONG_OPEN_S = 60.0  # a transaction that holds the end back for longer is worth a warning
_SAMPLE = 200  # rows, for their size
_BATCH_BYTES, _BATCH_ROWS = 4_000_000, 10_000
_FOLLOWING = "rpv"  # tables, partitioned tables, views
_WAY_OUT = (
    'Give a query that casts or leaves it out, such as SELECT "{column}"::text AS "{column}", …'
)
_A_QUERY = re.compile(r"\s*(\(|(select|with|values)\b)", re.IGNORECASE)


class PostgresRows:
    """Rows of a table or a query; made by `postgres`.

    Attributes:
        held_back: which open transaction holds back what was committed after it began, as of the
            last look; empty: none does.

    Spec: LD7, LD8.
    """

    def __init__(
        self,
        dsn: StorageOptions,
        table_or_query: str,
        xid_column: str,
        query_name: str | None,
        on_failover: Literal["error", "continue"],
    ) -> None:
        self._dsn, self._given, self._column = dsn, table_or_query, xid_column
        self._query_name, self._on_failover = query_name, on_failover
        self._x = f"q.{quoted(xid_column)}"
        self._name = self.held_back = ""
        self._refusal = Refusal(table_or_query, _WAY_OUT)
        self._warned: set[int] = set()

    @property
    def name(self) -> str:
        """What the source's position is called: cluster, timeline, database, table."""
        if not self._name:
            with asking(self._dsn) as connection:
                self._look(connection)
        return self._name

    def chunks(self, positions: Mapping[str, Position], *, max_bytes: int) -> Iterator[Chunk]:
        """Yield ranges of transactions that are over, up to the oldest that is not."""
        with asking(self._dsn) as connection:
            rows, first, end = self._range(connection, positions)
            start = first or 0
            while (upto := self._next_end(connection, rows, start, end, max_bytes)) is not None:
                yield Chunk(
                    ranges={self.name: (first, upto)},
                    what=f"transactions {f'{start} to' if start else 'up to'} {upto - 1}",
                    plan=connection,  # by which its rows are read, as long as that is open
                )
                first = start = upto

    def copy(self, positions: Mapping[str, Position]) -> Chunk:
        """Return all rows of transactions that are over as one chunk."""
        with asking(self._dsn) as connection:
            _, first, end = self._range(connection, positions, whole=True)
        return Chunk(ranges={self.name: (first, end)}, what=f"all transactions before {end}")

    def _range(
        self,
        connection: psycopg.Connection[Any],
        positions: Mapping[str, Position],
        *,
        whole: bool = False,
    ) -> tuple[str, int | None, int]:
        """What follows FROM; the position, None where there is none; up to where all is settled.
        whole: all rows are loaded again, whatever became of the cluster."""
        place, rows = self._look(connection)
        top = self._checked_top(connection, rows)
        first = position_at(place, positions, self._on_failover, whole=whole)
        end = self._settled(connection, place, top)
        if first is not None and first > end:
            raise SourceError(
                f"{place}: the loaded table is at transaction {first}, and the server has "
                f"only come to {end}: it was restored to an earlier state. Its rows since then are "
                "others. Load them into a new table."
            )
        return rows, first, end

    def _settled(self, connection: psycopg.Connection[Any], name: str, top: int | None) -> int:
        """The id below which all transactions are over, for ever. top: of the rows. [LD7]"""
        oldest, following = one_row(
            connection,
            "SELECT pg_snapshot_xmin(s)::text::int8, pg_snapshot_xmax(s)::text::int8"
            " FROM pg_current_snapshot() AS s",
        )
        # Behind the snapshot: the log has the end of each transaction below it up to here.
        inserted = one_row(connection, "SELECT pg_current_wal_insert_lsn()::text")[0]
        if top is not None and top >= following:
            raise SourceError(
                f"{name}: {self._column!r} has the transaction {top}, and this "
                f"cluster has only come to {following}: rows of another cluster were restored with "
                f"its ids. Give them new ones: UPDATE … SET {self._column} = pg_current_xact_id() "
                f"WHERE {self._column} >= '{following}'."
            )
        # Ids are given again after a crash unless the log that tells of them is on the disk.
        flush_log(connection, name, inserted)
        self._note_what_holds_back(connection, name, oldest, following)
        return int(oldest)

    def _note_what_holds_back(
        self, connection: psycopg.Connection[Any], name: str, oldest: int, following: int
    ) -> None:
        self.held_back = ""
        if oldest == following:
            return
        found = connection.execute(
            "SELECT 'pid ' || pid || concat(' of ' || usename, ' in ' || datname, ' with ' ||"
            " nullif(application_name, '')), extract(epoch FROM clock_timestamp() - xact_start)"
            f" FROM pg_stat_activity WHERE backend_xid = '{oldest}'::xid8::xid"
            " UNION ALL SELECT 'the prepared transaction ' || gid,"
            " extract(epoch FROM clock_timestamp() - prepared)"
            f" FROM pg_prepared_xacts WHERE transaction = '{oldest}'::xid8::xid"
        ).fetchone()
        who, age = found or ("one that this role may not see (GRANT pg_read_all_stats)", None)
        since = "" if age is None else f", open for {float(age):.0f} s,"
        self.held_back = (
            f"transaction {oldest} ({who}){since} holds back what was committed after it began"
        )
        if age is not None and age >= _LONG_OPEN_S and oldest not in self._warned:
            self._warned.add(oldest)
            LOG.warning("%s: %s", name, self.held_back)

    def _next_end(
        self, connection: psycopg.Connection[Any], rows: str, start: int, end: int, max_bytes: int
    ) -> int | None:
        """Where the next chunk ends, which is between two transactions; None: it has no rows."""
        x = self._x

        def first(start: int, skipped: int = 0) -> int | None:
            asked = f"{self._between(rows, start, end)} ORDER BY {x} OFFSET {skipped} LIMIT 1"
            found = one_row(connection, f"SELECT {x}::text::int8 {asked}")
            return None if found is None else int(found[0])

        if (begin := first(start)) is None:
            return None
        most = max(1, max_bytes // self._row_bytes(connection, rows, begin, end))
        border = first(begin, most)
        if border == begin:  # one transaction has more: it is not split
            border = first(begin + 1)
        return end if border is None else border

    def _between(self, rows: str, start: int, end: int) -> str:
        """What follows SELECT …, for the rows of these transactions."""
        x = self._x
        return f"FROM {rows} WHERE {x} >= '{start}'::xid8 AND {x} < '{end}'::xid8"

    def _row_bytes(
        self, connection: psycopg.Connection[Any], rows: str, start: int, end: int
    ) -> int:
        """About how many bytes a row has, by the first ones."""
        first = f"{self._between(rows, start, end)} ORDER BY {self._x} LIMIT {_SAMPLE}"
        asked = f"SELECT avg(pg_column_size(s.*))::int8 FROM (SELECT q.* {first}) AS s"
        return max(1, int(one_row(connection, asked)[0] or 1))

    def rows(self, chunk: Chunk) -> pa.RecordBatchReader:
        """Read the rows of the chunk's transactions, as the server has them now.

        One that was updated since has the id of a later transaction, by the trigger, and comes with
        that; one that was deleted is gone.
        """
        with asking(self._dsn, chunk.plan) as connection:
            rows = self._look(connection)[1]
            columns = columns_of(connection, described(connection, rows), self._refusal)
        batches = self._batches(chunk, columns)
        return pa.RecordBatchReader.from_batches(schema_of(columns), batches)

    def _batches(self, chunk: Chunk, columns: list[Column]) -> Iterator[pa.RecordBatch]:
        ((name, (start, end)),) = chunk.ranges.items()
        low, high = 0 if chunk.plan is None else int(start or 0), int(end)
        with asking(self._dsn, chunk.plan) as connection:
            place, rows = self._look(connection)
            if place != name:
                raise SourceError(
                    f"{name}: it is {place} now: the table or the cluster was replaced "
                    "during the load. Nothing of this chunk was committed; run it again."
                )
            size = self._row_bytes(connection, rows, low, high)
            most = min(_BATCH_ROWS, max(1, _BATCH_BYTES // size))
            asked = self._between(rows, low, high)
            yield from selected(connection, columns, asked, most, self._refusal)

    def _look(self, connection: psycopg.Connection[Any]) -> tuple[str, str]:
        """Find the table: what its position is called, and what follows FROM."""
        if self._query_name is not None:
            rows = f"({self._given.strip().rstrip(';')}\n) AS q"
            place = place_of(connection, self._query_name)
        else:
            found = table_of(connection, self._given, _FOLLOWING)
            rows, place = f"{quoted(*found[:2])} AS q", place_of(connection, *found)
        self._name = place
        return place, rows

    def _checked_top(self, connection: psycopg.Connection[Any], rows: str) -> int | None:
        """The highest id; an error where the column cannot order rows."""
        columns = columns_of(connection, described(connection, rows), self._refusal)
        kind = next((each.kind for each in columns if each.name == self._column), None)
        if kind != "xid8":
            was = "no column" if kind is None else f"a column of the type {kind},"
            raise SourceError(
                f"{self._given!r} has {was} {self._column!r}: expected one with the id of each "
                f"row's transaction: ALTER TABLE … ADD COLUMN {self._column} xid8 NOT NULL DEFAULT "
                "pg_current_xact_id(), or its name as xid_column"
            )
        x = self._x
        if one_row(connection, f"SELECT EXISTS (SELECT FROM {rows} WHERE {x} IS NULL)")[0]:
            raise SourceError(
                f"{self._given!r} has rows without a transaction in {self._column!r}, which would "
                f"be missed: UPDATE … SET {self._column} = pg_current_xact_id() WHERE "
                f"{self._column} IS NULL, and set it NOT NULL"
            )
        asked = f"SELECT {x}::text::int8 FROM {rows} ORDER BY {x} DESC LIMIT 1"
        found = one_row(connection, asked)
        return None if found is None else int(found[0])


_slot_name = fits(
    lambda value: isinstance(value, str) and re.fullmatch("[a-z0-9_]{1,63}", value) is not None,
    "a name of letters from a to z, digits and _, up to 63",
    "'lake'",
)


def _hidden(name: str, value: Any) -> StorageOptions:
    """A connection string, which no error shows, nor what libpq says of it."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        missing = f"PostgreSQL needs a package that is missing ({error}): {install('postgres')}"
        raise UsageError(missing) from None
    good = isinstance(value, str) and "\0" not in value
    try:
        conninfo_to_dict(value if good else "")
    except ProgrammingError:
        good = False
    if not good:
        raise UsageError(
            "expected a connection string of libpq, such as 'host=db dbname=shop user=loader' or "
            "'postgresql://loader@db/shop', or '' for its environment variables",
            argument=name,
            given="(not shown)",
        )
    return StorageOptions({"dsn": value})


def _given(name: str, value: Any) -> Any:
    """A table or a query, or tables, each with the path that it is loaded to."""
    if not isinstance(value, Mapping):
        return text("a table or a query", "'public.orders'", blank=False)(name, value)
    texts = [each for pair in value.items() for each in pair]
    good = all(isinstance(each, str) and each.strip() for each in texts)
    if not value or not good or len({*value.values()}) < len(value):
        raise wrong(
            name,
            value,
            "tables, and the path that each is loaded to, below that of load",
            "{'public.orders': 'orders', 'public.items': 'items'}",
        )
    return dict(value)


@checked(
    dsn=_hidden,
    table_or_query=_given,
    xid_column=optional(text("the name of a column", "'xid'")),
    slot=optional(_slot_name),
    history=flag,
    query_name=optional(text("a name for the query", "'orders'", blank=False)),
    on_failover=one_of("error", "continue"),
)
def postgres(
    dsn: str,
    table_or_query: str | Mapping[str, str],
    *,
    xid_column: str | None = None,
    query_name: str | None = None,
    slot: str | None = None,
    history: bool = False,
    on_failover: Literal["error", "continue"] = "error",
) -> PostgresRows | PostgresChanges:
    """Name a table of PostgreSQL, as a source of `load`: each row, or change, is loaded once.

    Without a slot a column holds the id of each row's transaction: `xid8 NOT NULL DEFAULT
    pg_current_xact_id()`, with an index. A row that is updated is loaded again if a trigger sets
    the column again. Deletes are not seen. An open transaction, anywhere in the cluster, holds back
    what was committed after it began.

    With a slot the server's log is decoded (`wal_level = logical`), deletes among it: the loaded
    table becomes what the source is, by its primary key, or gets each change as a row. Each commit
    holds whole transactions, over all of the slot's tables. The first load makes the slot and
    copies the rows that are there; from then on the slot keeps the log until it is loaded, so load
    often, or drop the slot.

    Args:
        dsn: a connection string or URL of libpq, for the primary; "" takes libpq's environment
            variables and files. No error, log or table shows it.
        table_or_query: a table, such as "public.orders", or a query over one, such as "SELECT id,
            price::numeric(18,2) AS price, xid FROM orders", which casts what Arrow has not. With a
            slot also several tables: table -> the path below that of `load` which it is loaded to,
            such as {"public.orders": "orders", "public.items": "items"}; one commit has what a
            transaction changed in all of them.
        xid_column: the column with the transaction's id; by default "xid", where there is no slot.
        slot: the name of a replication slot of this load alone, and of a publication of the tables
            and of nothing else, which is made before: `CREATE PUBLICATION orders_lake FOR TABLE
            orders`. By default none: rows come by `xid_column`.
        history: with a slot, load each change as a row: `_change_type` is insert, update, delete
            (of which the key is known only, unless the table has REPLICA IDENTITY FULL) or
            truncate; by `_commit_lsn` and `_change_number` they are in order. By default False: the
            rows of the loaded table are updated and deleted.
        query_name: what a query is called in the table's position; needed for one, and it must stay
            the same when the query changes.
        on_failover: what a cluster on another timeline does: "error", the default: the load ends,
            since transactions that were loaded may be lost and their ids given again; "continue":
            the standby had them all, by synchronous replication.

    Returns:
        The source.

    Raises:
        UsageError: an argument is wrong, or psycopg is missing.

    Example:
        `load(postgres("service=shop", "public.orders", slot="lake"), "s3://lake/orders")`

    Spec: LD7, LD8, LD10, LD12.
    """
    hidden: StorageOptions = dsn  # type: ignore[assignment]  # by its rule
    if slot is not None:
        for name, value in (("xid_column", xid_column), ("query_name", query_name)):
            if value is not None:
                raise UsageError("a slot gives the changes of a table; leave it out", argument=name)
        tables = {table_or_query: ""} if isinstance(table_or_query, str) else table_or_query
        return PostgresChanges(hidden, tables, slot, on_failover, history=history)
    if not isinstance(table_or_query, str):
        raise UsageError("several tables need a slot", argument="slot")
    if (query_name is not None) != (_A_QUERY.match(table_or_query) is not None):
        raise UsageError(
            "a query needs query_name, a name by which its position is known, such as 'orders'"
            if query_name is None
            else "query_name is for a query, and this is the name of a table, which has its own"
        )
    if history:
        raise UsageError("it is for a slot, whose changes it keeps", argument="history")
    return PostgresRows(hidden, table_or_query, xid_column or "xid", query_name, on_failover)
