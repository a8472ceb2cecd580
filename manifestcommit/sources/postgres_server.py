"""A server of PostgreSQL: connections, names of tables and positions, Arrow types. [LD7] [LD8]"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SourceError
from ..store import StorageOptions
from .chunk import Position
from .ending import pause

if TYPE_CHECKING:
    import psycopg

_OLDEST_SERVER = 130000  # the first with xid8
_FLUSH_TIMEOUT_S = 60.0
_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "xid8": pa.int64(),
    **dict.fromkeys(("text", "varchar", "bpchar", "char", "name"), pa.string()),
    **dict.fromkeys(("uuid", "json", "jsonb"), pa.string()),
}
_TEXT_ARRAY = 1009  # its oid
# Values come as texts that mean the same whatever the role's settings are; what is committed is on
# the disk.
_SETTINGS = (
    "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET datestyle = 'ISO';"
    " SET timezone = 'UTC'; SET bytea_output = 'hex'; SET extra_float_digits = 1;"
    " SET synchronous_commit = local"
)


class Refusal(msgspec.Struct, frozen=True):
    """Makes errors about columns that cannot be loaded. given: what was; way_out: what to do."""

    given: str
    way_out: str

    def of(self, column: str, reason: str) -> SourceError:
        return SourceError(
            f"{self.given!r}: the column {column!r} cannot be loaded: {reason}. Nothing of it was "
            f"loaded. {self.way_out.format(column=column)}"
        )


class Column(msgspec.Struct, frozen=True):
    """kind: the server's type, or an array's elements', no domain."""

    name: str
    type: pa.DataType
    kind: str


def place_of(connection: psycopg.Connection[Any], *parts: str) -> str:
    """What the position of these parts of the connection's database is called. [LD8]"""
    if connection.info.server_version < _OLDEST_SERVER:
        raise SourceError("the server is older than PostgreSQL 13, which has xid8 first")
    if one_row(connection, "SELECT pg_is_in_recovery()")[0]:
        raise SourceError(
            "the server is a standby, where no transaction is known to be over: connect "
            "to the primary (target_session_attrs=read-write)"
        )
    cluster, timeline, database = one_row(
        connection,
        "SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()),"
        " 8))::bit(32)::int, current_database() FROM pg_control_system()",
    )
    named = "/".join(quote(each, safe=" ") for each in (database, *parts))
    return f"postgresql:{cluster}/{timeline}/{named}"


def position_at(
    name: str,
    positions: Mapping[str, Position],
    on_failover: Literal["error", "continue"],
    *,
    whole: bool,
) -> int | None:
    """This source's position, or of the timeline before. whole: all rows come again. [LD8]"""
    cluster, now, rest = name.split("/", 2)
    found: dict[int, int] = {}
    for other, position in positions.items():
        before, _, after = other.partition("/")
        timeline, _, after = after.partition("/")
        ours = (before, after) == (cluster, rest) and timeline.isdecimal()
        if ours and isinstance(position, int):
            found[int(timeline)] = position
    latest = max(found, default=int(now))
    if latest > int(now):
        raise SourceError(
            f"{name}: the loaded table has rows of timeline {latest} of this cluster, "
            f"and this server is on {now}: another one has taken its place. "
            "Connect to that one."
        )
    if whole:
        return found.get(int(now))
    if latest < int(now) and on_failover == "error":
        raise SourceError(
            f"{name}: the cluster went from timeline {latest} to "
            f"{now}, by a failover or a restore. Transactions may be lost that "
            "are loaded, and their ids given again, so that rows would be missed. Give "
            "on_failover='continue' if the standby had all of them (synchronous replication), "
            "or restart=True to replace the loaded table by all rows."
        )
    return found.get(latest)


@contextlib.contextmanager
def asking(
    dsn: StorageOptions, held: psycopg.Connection[Any] | None = None, **more: Any
) -> Iterator[psycopg.Connection[Any]]:
    """One connection, in which each statement is a transaction; whatever psycopg says becomes this
    package's error, without the password. held: one that somebody else closes, if it is open.
    more: parameters of libpq. [SE1]"""
    import psycopg

    connection = None if held is None or held.closed else held
    is_own, problem = connection is None, ""
    try:
        if connection is None:
            connection = psycopg.connect(
                dsn["dsn"],
                autocommit=True,
                fallback_application_name="manifestcommit",
                client_encoding="utf8",
                **more,
            )
            connection.execute(_SETTINGS)
    except psycopg.Error as error:
        problem = _told(dsn, error)
    if problem or connection is None:  # here: the frames of the other one hold the dsn
        raise SourceError(f"PostgreSQL: {problem}")
    try:
        yield connection
    except (psycopg.Error, UnicodeError) as error:
        told = _told(dsn, error)
        raise SourceError(f"PostgreSQL: {told}. What was committed before stays.") from None
    finally:
        if is_own:
            connection.close()


def _told(dsn: StorageOptions, error: Exception) -> str:
    from psycopg.conninfo import conninfo_to_dict

    told = " ".join(str(error).split())
    for name, value in conninfo_to_dict(dsn["dsn"]).items():
        if "password" in name and value:
            for each in (str(value), quote(str(value), safe="")):
                told = told.replace(each, "***")
    return told


def one_row(connection: psycopg.Connection[Any], asked: str, *given: Any) -> Any:
    return connection.execute(asked, given or None).fetchone()


def quoted(*names: str) -> str:
    """A name in SQL, of these parts."""
    return ".".join('"{}"'.format(each.replace('"', '""')) for each in names)


def flush_log(connection: psycopg.Connection[Any], name: str, upto: str) -> None:
    """Have the server's log on its disk up to there: an idle server writes the last page after
    seconds. SourceError where it does not. name: of the source."""
    until = time.monotonic() + _FLUSH_TIMEOUT_S
    while not _is_flushed(connection, upto):
        if time.monotonic() > until:
            raise SourceError(
                f"{name}: the server did not write its log up to {upto} within "
                f"{_FLUSH_TIMEOUT_S:.0f} s. Nothing was loaded; run it again."
            )
        connection.execute("SELECT pg_logical_emit_message(true, 'manifestcommit', '')")
        pause(0.02)


def _is_flushed(connection: psycopg.Connection[Any], upto: str) -> bool:
    return bool(one_row(connection, f"SELECT pg_current_wal_flush_lsn() >= '{upto}'::pg_lsn")[0])


def table_of(connection: psycopg.Connection[Any], given: str, kinds: str) -> tuple[str, str, str]:
    """A table's schema, name and id. kinds: of relations that will do, as in pg_class."""
    found = one_row(
        connection,
        "SELECT n.nspname, c.relname, c.oid::text, c.relkind::text FROM pg_class AS c"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
        given,
    )
    if found is None:
        raise SourceError(
            f"the database has no table {given!r} that this role can see: expected a "
            "name, such as 'public.orders', with double quotes where it has capitals"
        )
    if found[3] not in kinds:
        raise SourceError(
            f"{given!r} is neither a table{' nor a view' * ('v' in kinds)}: what it changes cannot "
            "be followed. Load the table that its rows are from."
        )
    return found[0], found[1], found[2]


Described = tuple[str, int, int]  # a column's name, the oid of its type, and the modifier


def described(connection: psycopg.Connection[Any], rows: str) -> list[Described]:
    """The columns of what follows FROM."""
    told = connection.execute(f"SELECT * FROM {rows} LIMIT 0").pgresult
    assert told is not None
    return [
        ((told.fname(index) or b"").decode("utf-8"), told.ftype(index), told.fmod(index))
        for index in range(told.nfields)
    ]


def columns_of(
    connection: psycopg.Connection[Any], columns: Sequence[Described], refusal: Refusal
) -> list[Column]:
    """The columns, with their types in Arrow."""
    wanted = ", ".join({str(oid) for _, oid, _ in columns}) or "0"
    kinds = {
        oid: told
        for oid, *told in connection.execute(
            "WITH RECURSIVE base(oid, made_of, modifier) AS (SELECT oid, oid, -1 FROM pg_type"
            f" WHERE oid IN ({wanted}) UNION ALL SELECT base.oid, t.typbasetype, t.typtypmod"
            " FROM base JOIN pg_type AS t ON t.oid = base.made_of WHERE t.typtype = 'd')"
            " SELECT base.oid::int8, e.typname, e.typtype = 'e', t.typcategory = 'A', base.modifier"
            " FROM base JOIN pg_type AS t ON t.oid = base.made_of AND t.typtype <> 'd' JOIN pg_type"
            " AS e ON e.oid = CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE t.oid END"
        )
    }
    found = []
    for name, oid, given in columns:
        kind, is_enum, is_array, modifier = kinds[oid]
        type = pa.string() if is_enum else _TYPES.get(kind)
        if kind == "numeric":
            type = _decimal(name, given if modifier == -1 else modifier, refusal)
        if type is None:
            raise refusal.of(name, f"the type {kind} has no counterpart in Arrow")
        found.append(Column(name, pa.list_(type) if is_array else type, kind))
    return found


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([(each.name, each.type) for each in columns])


def _decimal(name: str, modifier: int, refusal: Refusal) -> pa.DataType:
    if modifier < 4:
        raise refusal.of(
            name,
            "it is numeric without a precision and a scale, and Arrow's decimals have both "
            f'("{name}"::numeric(18,2) casts too)',
        )
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    scale -= (scale & 0x400) << 1  # signed, of 11 bits
    if precision > 38 or not 0 <= scale <= precision:
        raise refusal.of(
            name,
            f"numeric({precision},{scale}) has more than 38 digits, or a scale outside of them",
        )
    return pa.decimal128(precision, scale)


def selected(
    connection: psycopg.Connection[Any],
    columns: Sequence[Column],
    asked: str,
    most: int,
    refusal: Refusal,
) -> Iterator[pa.RecordBatch]:
    """The rows of a query, so many at a time. asked: what follows the columns of `q`."""
    names = [quoted(each.name) for each in columns]
    chosen = ", ".join(f"q.{name}::text AS {name}" for name in names)
    with connection.transaction(), connection.cursor(name="manifestcommit") as cursor:
        cursor.execute(f"SELECT {chosen} {asked}")
        while found := cursor.fetchmany(most):
            texts = [pa.array(each, pa.string()) for each in zip(*found, strict=True)]
            arrays = [from_texts(*each, refusal) for each in zip(columns, texts, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def from_texts(column: Column, values: pa.Array, refusal: Refusal) -> pa.Array:
    """Values of a column, from the texts that the server has for them."""
    try:
        return _from_texts(column.type, values.cast(pa.string()), column.kind)
    except (pa.ArrowException, OverflowError, UnicodeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise refusal.of(column.name, f"a value does not fit {column.type} ({reason})") from None


def _from_texts(type: pa.DataType, texts: pa.Array, kind: str) -> pa.Array:
    if pa.types.is_list(type):
        from psycopg.adapt import Transformer
        from psycopg.pq import Format

        parse = Transformer().get_loader(_TEXT_ARRAY, Format.TEXT).load
        given = [None if each is None else parse(each.encode()) for each in texts.to_pylist()]
        lists = pa.array(given, pa.list_(pa.string()))
        values = _from_texts(type.value_type, lists.values, kind)
        return pa.ListArray.from_arrays(lists.offsets, values, type, mask=lists.is_null())
    if pa.types.is_boolean(type):
        return pc.equal(pc.utf8_slice_codeunits(texts, 0, 1), "t")
    if pa.types.is_binary(type):
        return pa.array(
            [None if each is None else bytes.fromhex(each[2:]) for each in texts.to_pylist()], type
        )
    if kind == "bpchar":  # spaces fill it up, and mean nothing
        texts = pc.utf8_rtrim(texts, " ")
    return texts.cast(type)
