"""A server of PostgreSQL: connections, names of tables and positions, Arrow types. [LD7] [LD8]"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import SourceError
from .chunk import Position

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_OLDEST_SERVER = 130000  # the first with xid8
_TEXT = {"text", "varchar", "bpchar", "char", "name", "uuid", "json", "jsonb"}
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
    **dict.fromkeys(_TEXT, pa.string()),
}
_TEXT_ARRAY = 1009  # its oid


class Hidden:
    """A text that no representation shows. [SE1]"""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "<hidden>"


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
    """cast: what the server turns it into before it is sent; empty: nothing."""

    name: str
    type: pa.DataType
    cast: str = ""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a source's position is called. before, after: all but the timeline. [LD8]"""

    before: str
    timeline: int
    after: str

    @property
    def name(self) -> str:
        return f"{self.before}{self.timeline}{self.after}"


def place_of(connection: psycopg.Connection[Any], *parts: str) -> Place:
    """The place of these parts of the connection's database."""
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
    return Place(before=f"postgresql:{cluster}/", timeline=timeline, after=f"/{named}")


def position_at(
    place: Place,
    positions: Mapping[str, Position],
    on_failover: Literal["error", "continue"],
    *,
    whole: bool = False,
) -> int | None:
    """This source's position, or of the timeline before. whole: all rows come again. [LD8]"""
    found: dict[int, int] = {}
    for name, position in positions.items():
        if name.startswith(place.before) and name.endswith(place.after):
            middle = name[len(place.before) : len(name) - len(place.after)]
            if middle.isdecimal() and isinstance(position, int):
                found[int(middle)] = position
    latest = max(found, default=place.timeline)
    if latest > place.timeline:
        raise SourceError(
            f"{place.name}: the loaded table has rows of timeline {latest} of this cluster, "
            f"and this server is on {place.timeline}: another one has taken its place. "
            "Connect to that one."
        )
    if whole:
        return found.get(place.timeline)
    if found and latest < place.timeline and on_failover == "error":
        raise SourceError(
            f"{place.name}: the cluster went from timeline {latest} to "
            f"{place.timeline}, by a failover or a restore. Transactions may be lost that "
            "are loaded, and their ids given again, so that rows would be missed. Give "
            "on_failover='continue' if the standby had all of them (synchronous replication), "
            "or restart=True to replace the loaded table by all rows."
        )
    return found.get(latest)


class Asking:
    """One connection, in which each statement is a transaction; whatever psycopg says becomes this
    package's error, without the password. held: one that somebody else closes. [SE1]"""

    def __init__(
        self, dsn: Hidden, held: psycopg.Connection[Any] | None = None, **more: str
    ) -> None:
        self._dsn, self._connection, self._is_own, self._more = dsn, held, held is None, more

    def __enter__(self) -> psycopg.Connection[Any]:
        import psycopg

        if self._connection is not None:
            return self._connection
        problem = ""
        try:
            self._connection = psycopg.connect(
                self._dsn.text,
                autocommit=True,
                fallback_application_name="manifestcommit",
                client_encoding="utf8",
                **self._more,  # type: ignore[arg-type]  # other parameters of libpq
            )
            for setting in ("statement_timeout", "idle_in_transaction_session_timeout"):
                self._connection.execute(f"SET {setting} = 0")
        except psycopg.Error as error:
            problem = self._told(error)
        if problem or self._connection is None:  # here: the frames of the other one hold the dsn
            raise SourceError(f"PostgreSQL: {problem}")
        return self._connection

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import psycopg

        if self._connection is not None and self._is_own:
            self._connection.close()
        if isinstance(error, psycopg.Error | UnicodeError):
            raise SourceError(
                f"PostgreSQL: {self._told(error)}. What was committed before stays."
            ) from None

    def _told(self, error: Exception) -> str:
        from psycopg.conninfo import conninfo_to_dict

        told = " ".join(str(error).split())
        for name, value in conninfo_to_dict(self._dsn.text).items():
            if "password" in name and value:
                for each in (str(value), quote(str(value), safe="")):
                    told = told.replace(each, "***")
        return told


def one_row(connection: psycopg.Connection[Any], asked: str, *given: Any) -> Any:
    return connection.execute(asked, given or None).fetchone()


def table_of(connection: psycopg.Connection[Any], given: str, kinds: str) -> tuple[str, str, str]:
    """A table's schema, name and id. kinds: of relations that will do, as in pg_class."""
    from psycopg import sql

    found = connection.execute(
        sql.SQL(
            "SELECT n.nspname, c.relname, c.oid::text, c.relkind::text FROM pg_class AS c"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " WHERE c.oid = to_regclass({table})"
        ).format(table=sql.Literal(given))
    ).fetchone()
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


# --- types ----------------------------------------------------------------------------------------


class Described(msgspec.Struct, frozen=True):
    """A column as the server describes it. kind: its type, or an array's elements', no domain."""

    name: str
    kind: str
    is_enum: bool
    is_array: bool
    modifier: int


def described(connection: psycopg.Connection[Any], rows: sql.Composed) -> list[Described]:
    """The columns of what follows FROM."""
    from psycopg import sql

    asked = sql.SQL("SELECT * FROM {rows} LIMIT 0").format(rows=rows)
    told = connection.execute(asked).pgresult
    assert told is not None
    return described_by_types(
        connection,
        [
            ((told.fname(index) or b"").decode("utf-8"), told.ftype(index), told.fmod(index))
            for index in range(told.nfields)
        ],
    )


def described_by_types(
    connection: psycopg.Connection[Any], columns: Sequence[tuple[str, int, int]]
) -> list[Described]:
    """The columns of which the name, the type's oid and the modifier are known."""
    wanted = ", ".join({str(oid) for _, oid, _ in columns}) or "0"
    kinds = {
        int(oid): (str(kind), bool(is_enum), bool(is_array), int(modifier))
        for oid, kind, is_enum, is_array, modifier in connection.execute(
            "WITH RECURSIVE base(oid, made_of, modifier) AS (SELECT oid, oid, -1 FROM pg_type"
            f" WHERE oid IN ({wanted}) UNION ALL SELECT base.oid, t.typbasetype, t.typtypmod"
            " FROM base JOIN pg_type AS t ON t.oid = base.made_of WHERE t.typtype = 'd')"
            " SELECT base.oid, e.typname, e.typtype = 'e', t.typcategory = 'A', base.modifier"
            " FROM base JOIN pg_type AS t ON t.oid = base.made_of AND t.typtype <> 'd' JOIN pg_type"
            " AS e ON e.oid = CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE t.oid END"
        )
    }
    return [
        Described(name, *kinds[oid][:3], modifier if kinds[oid][3] == -1 else kinds[oid][3])
        for name, oid, modifier in columns
    ]


def columns_of(columns: Iterable[Described], refusal: Refusal) -> list[Column]:
    """The columns, with their types in Arrow."""
    found = []
    for each in columns:
        cast = ""
        if each.kind == "xid8" and not each.is_array:
            type, cast = pa.int64(), "::text::int8"
        elif each.kind == "numeric":
            type = _decimal(each.name, each.modifier, refusal)
        elif each.is_enum or each.kind in _TEXT:
            type, cast = pa.string(), "::text[]" if each.is_array else "::text"
        elif each.kind in _TYPES:
            type = _TYPES[each.kind]
        else:
            raise refusal.of(each.name, f"the type {each.kind} has no counterpart in Arrow")
        found.append(Column(each.name, pa.list_(type) if each.is_array else type, cast))
    return found


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


# --- rows -----------------------------------------------------------------------------------------


def selected(
    connection: psycopg.Connection[Any],
    columns: Sequence[Column],
    asked: sql.Composed,
    most: int,
    refusal: Refusal,
) -> Iterator[pa.RecordBatch]:
    """The rows of a query, so many at a time. asked: what follows the columns of `q`."""
    from psycopg import sql

    schema = pa.schema([(each.name, each.type) for each in columns])
    chosen = sql.SQL(", ").join(
        sql.SQL("q.{c}{cast} AS {c}").format(c=sql.Identifier(each.name), cast=sql.SQL(each.cast))
        for each in columns
    )
    with connection.transaction(), connection.cursor(name="manifestcommit") as cursor:
        dates, timestamps = _loaders()
        cursor.adapters.register_loader("date", dates)
        cursor.adapters.register_loader("timestamp", timestamps)
        cursor.adapters.register_loader("timestamptz", timestamps)
        cursor.execute(
            sql.SQL("SELECT {chosen} {asked}").format(chosen=chosen, asked=asked), binary=True
        )
        while found := cursor.fetchmany(most):
            values = zip(*found, strict=True)
            arrays = [
                _array(each, list(given), refusal)
                for each, given in zip(columns, values, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Column, values: list[Any], refusal: Refusal) -> pa.Array:
    try:
        return pa.array(values, column.type)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, ValueError) as error:
        unfit = _unfit(values)
        reason = f"{unfit} is beyond the years 1 to 9999" if unfit else " ".join(str(error).split())
        raise refusal.of(column.name, f"a value does not fit {column.type} ({reason})") from None


def from_texts(column: Column, values: pa.Array, refusal: Refusal) -> pa.Array:
    """Values of a column, from the texts that the server has for them."""
    try:
        return _from_texts(column.type, values.cast(pa.string()))
    except (pa.ArrowException, OverflowError, UnicodeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise refusal.of(column.name, f"a value does not fit {column.type} ({reason})") from None


def _from_texts(type: pa.DataType, texts: pa.Array) -> pa.Array:
    if pa.types.is_list(type):
        from psycopg.adapt import Transformer
        from psycopg.pq import Format

        parse = Transformer().get_loader(_TEXT_ARRAY, Format.TEXT).load
        given = [None if each is None else parse(each.encode()) for each in texts.to_pylist()]
        lists = pa.array(given, pa.list_(pa.string()))
        values = _from_texts(type.value_type, lists.values)
        return pa.ListArray.from_arrays(lists.offsets, values, type, mask=lists.is_null())
    if pa.types.is_boolean(type):
        return pc.equal(texts, "t")
    if pa.types.is_binary(type):
        return pa.array(
            [None if each is None else bytes.fromhex(each[2:]) for each in texts.to_pylist()], type
        )
    return texts.cast(type)


class _Unfit:
    """A moment that Arrow or its readers have not."""

    def __init__(self, told: str) -> None:
        self.told = told


def _unfit(values: Sequence[Any]) -> str:
    for each in values:
        if isinstance(each, _Unfit):
            return each.told
        if isinstance(each, list) and (told := _unfit(each)):
            return told
    return ""


_SINCE = dt.datetime(2000, 1, 1)  # what the server counts from
_EPOCH = dt.datetime(1970, 1, 1)


@functools.cache
def _loaders() -> tuple[Any, Any]:
    """What decodes dates and timestamps to numbers since 1970: psycopg's cannot be infinite."""
    from psycopg.adapt import Loader
    from psycopg.pq import Format

    def loader(unit: dt.timedelta, what: str) -> type[Loader]:
        shift = (_SINCE - _EPOCH) // unit
        least = (dt.datetime.min - _EPOCH) // unit
        most = (dt.datetime.max - _EPOCH) // unit

        class Count(Loader):
            format = Format.BINARY

            def load(self, data: Any) -> Any:
                count = int.from_bytes(data, "big", signed=True) + shift
                return count if least <= count <= most else _Unfit(what)

        return Count

    return loader(dt.timedelta(days=1), "a date"), loader(
        dt.timedelta(microseconds=1), "a timestamp"
    )
