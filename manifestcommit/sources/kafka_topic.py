"""Records of a Kafka topic, by their offsets. [LD9]

No consumer group and no committed offset: the table has the position of each partition, in the
commit of the rows. Offsets have gaps, of control records and of compaction, so that a range counts
positions and never records.
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa

from ..display import counted, visible
from ..errors import SourceError, TableNotFoundError, UsageError
from ..format.object_names import REFUSED
from ..runtime.validation import checked, fits, one_of, optional, text, wrong
from ..store import StorageOptions
from ..table.table import Table
from ..version import install
from .chunk import BrokenInputError, Chunk, Position
from .ending import pause
from .json_rows import arrow_schema, rows_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message


def _headers(message: Message) -> list[dict[str, Any]]:
    given: Any = message.headers() or ()
    return [
        {"name": name, "value": value.encode() if isinstance(value, str) else value}
        for name, value in given
    ]


# What else of a record becomes a column: its type, and its values.
_PARTS: dict[str, tuple[pa.DataType, Callable[[Message], Any]]] = {
    "partition": (pa.int32(), lambda message: message.partition()),
    "offset": (pa.int64(), lambda message: message.offset()),
    "timestamp": (
        pa.timestamp("ms", "UTC"),
        lambda message: message.timestamp()[1] if message.timestamp()[0] else None,
    ),
    "key": (pa.binary(), lambda message: message.key()),
    "headers": (
        pa.list_(
            pa.struct([pa.field("name", pa.string(), nullable=False), ("value", pa.binary())])
        ),
        _headers,
    ),
}
_OF_A_REFUSED = ("partition", "offset", "timestamp", "key")
_REFUSED = pa.schema(
    [
        *((name, _PARTS[name][0]) for name in _OF_A_REFUSED),
        ("value", pa.binary()),
        ("error", pa.string()),
    ]
)
_VALUES = ("avro", "bytes", "json")
_ASK_S, _STEP_S = 30.0, 3.0  # for the answer to a question, and between two looks for an end
_SILENCE_S = 60.0  # without a record or the end of a partition
_RECORDS, _BATCH_BYTES = 10_000, 2 << 20  # of one batch, about
_GUESS_BYTES = 10_000  # of a record, until some were read
_OURS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # the client's own default goes to the end
    "enable.partition.eof": True,  # tells of an end that is a gap
    "allow.auto.create.topics": False,
}
_DEFAULTS: dict[str, Any] = {
    "group.id": "manifestcommit",  # the client wants one; none is joined
    "isolation.level": "read_committed",
    "queued.max.messages.kbytes": 8_192,
    "fetch.max.bytes": 8 << 20,  # of one answer, whatever the number of partitions
}

_REFUSALS = ("_AUTHENTICATION", "_SSL")  # to connect again does not help
_CONSUMERS = _DEFAULTS.keys() | _OURS.keys()  # settings that no other client has

Moment = str | dt.datetime | Mapping[int, int]  # a text: "earliest", "latest", or a time
# Partition -> [start, end) of what is read, a chunk's plan: it begins above the range's start where
# records are lost, or where the first load is to begin.
Spans = Mapping[int, tuple[int, int]]


class KafkaRecords:
    """Records of one topic; made by `kafka`.

    Attributes:
        name: the cluster and the topic; each partition has a position of its own below it.

    Spec: LD9.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        value: Literal["bytes", "json"] | Callable[[bytes], Mapping[str, Any]],
        schema: pa.Schema | None,
        record_columns: Sequence[str],
        start: Moment,
        until: Moment,
        on_broken: Literal["error", "refuse"],
        on_lost: Literal["error", "skip"],
    ) -> None:
        self._settings, self._topic = StorageOptions(settings), topic
        self._value, self._schema = value, schema
        self._record_columns = tuple(record_columns)
        self._start, self._until = start, until
        self._on_broken, self._on_lost = on_broken, on_lost
        self._name = ""
        self._table: Table | None = None
        self._refused: list[dict[str, Any]] = []
        self._record_bytes = float(_GUESS_BYTES)
        self.companions: Mapping[str, pa.Schema] = (
            {REFUSED: _REFUSED} if on_broken == "refuse" else {}
        )

    def open(self, path: Any, options: StorageOptions) -> KafkaRecords:
        """This source, for one table: its columns are those of the rows."""
        own = copy.copy(self)  # one source may be loaded into several tables at once
        own._table = Table(path, options)
        return own

    @property
    def name(self) -> str:
        if not self._name:
            with _asking(self._settings, self._topic) as consumer:
                self._partitions(consumer)
        return self._name

    def chunks(self, positions: Mapping[str, Position], *, max_bytes: int) -> Iterator[Chunk]:
        """Yield ranges of offsets, of all partitions, up to where no open transaction is."""
        from confluent_kafka import TopicPartition

        with _asking(self._settings, self._topic) as consumer:
            found = self._partitions(consumer)
            at = self._positions(positions)
            ends = {  # the first that is kept, and the one behind the last that is stable
                each: _answer(
                    consumer, consumer.get_watermark_offsets, TopicPartition(self._topic, each)
                )
                for each in found
            }
            begins, tops = {}, {}
            for each, (low, high) in ends.items():
                begins[each] = self._begin(consumer, each, at, low, high)
                top = self._offset(self._until, consumer, each, low, high)
                tops[each] = high if top is None else max(begins[each], min(high, top))
        known: dict[int, int | None] = {each: at.get(each) for each in found}
        while True:
            open_ = {
                each: (begins[each], high)
                for each, high in tops.items()
                if begins[each] < high or (known[each] is None and self._start != "earliest")
            }
            if not open_:
                return
            most = max(1, int(max_bytes / self._record_bytes / len(open_)))
            spans = {each: (low, min(high, low + most)) for each, (low, high) in open_.items()}
            yield self._chunk(spans, known)
            reached = {each: end for each, (_, end) in spans.items()}
            begins |= reached
            known |= reached

    def _chunk(self, spans: Spans, known: Mapping[int, int | None]) -> Chunk:
        total = sum(end - begin for begin, end in spans.values())
        lost = sum(
            begin - at for each, (begin, _) in spans.items() if (at := known[each]) is not None
        )
        said = f", {lost:,} were lost" if lost else ""
        ranges = {self._of(each): (known[each], end) for each, (_, end) in spans.items()}
        return Chunk(
            ranges=ranges,
            begins={self._of(each): begin for each, (begin, _) in spans.items()},
            what=visible(
                f"{total:,} offsets of {counted(len(spans), 'partition')} of {self._topic}{said}"
            ),
            bytes=int(total * self._record_bytes),
            plan=spans,
        )

    def _of(self, partition: int) -> str:
        return f"{self._name}/{partition}"

    def _partitions(self, consumer: Consumer) -> list[int]:
        """The topic's partitions; and the name of the source."""
        metadata = _answer(consumer, consumer.list_topics, self._topic)
        found = metadata.topics[self._topic]
        if found.error is not None or not found.partitions:
            why = found.error.str() if found.error is not None else "it has no partitions"
            raise SourceError(f"the topic {self._topic!r} cannot be read: {why}")
        # whoever answers for topics is the controller; a cluster for tests has none
        id = self._id() if metadata.controller_id in metadata.brokers else ""
        self._name = f"kafka:{metadata.cluster_id or 'cluster'}/{self._topic}{id}"
        return sorted(found.partitions)

    def _id(self) -> str:
        """The topic's id; empty: the brokers know no ids. Not to know it for a moment is an error:
        two loaders would load under two names."""
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient

        given = {"error_cb": _heard, **self._settings}
        client = AdminClient({name: each for name, each in given.items() if name not in _CONSUMERS})

        def asked(topic: str, timeout: float) -> str:
            about = client.describe_topics(TopicCollection([topic]), request_timeout=timeout)
            return str(about[topic].result().topic_id)

        try:
            found: str = _answer(client, asked, self._topic)
        except KafkaException as error:
            if error.args[0].name() in ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"):
                return ""
            raise
        return "" if set(found) <= {"A"} else f"@{found}"  # zero is none

    def _positions(self, positions: Mapping[str, Position]) -> dict[int, int]:
        """Partition -> the position of this topic. [LD9]"""
        name, _, id = self._name.partition("@")
        found: dict[int, int] = {}
        for given, position in positions.items():
            before, _, partition = given.rpartition("/")
            topic, _, other = before.partition("@")
            if topic != name or not partition.isdecimal() or not isinstance(position, int):
                continue
            if other != id:
                raise SourceError(
                    f"{name}: the table has records of the topic with the id {other or 'unknown'}, "
                    f"and its id is {id or 'unknown'} now: the topic was made again, or these are "
                    "other brokers. Nothing was loaded. Load it into a new table."
                )
            found[int(partition)] = position
        return found

    def _begin(
        self, consumer: Consumer, partition: int, at: Mapping[int, int], low: int, high: int
    ) -> int:
        """Where reading begins; SourceError where the records after the position are gone."""
        position = at.get(partition)
        if position is None:
            # a partition that was added later is read from its beginning
            first = None if at else self._offset(self._start, consumer, partition, low, high)
            return low if first is None else max(low, min(high, first))
        if position > high:
            raise SourceError(
                f"{self._of(partition)} ends at offset {high}, and the table has it up to "
                f"{position}: the topic was made again, or lost records that were acknowledged. "
                "Nothing was loaded. Load it into a new table."
            )
        if position < low and self._on_lost == "error":
            raise SourceError(
                f"{self._of(partition)}: {low - position:,} offsets from {position} on are lost: "
                f"the topic keeps none below {low}. Nothing was loaded. Give on_lost='skip' to go "
                "on behind them, which the commit's message will say."
            )
        return max(position, low)

    def _offset(
        self, moment: Moment, consumer: Consumer, partition: int, low: int, high: int
    ) -> int | None:
        """Where the first load begins, or each ends; None: it says nothing of this partition."""
        from confluent_kafka import TopicPartition

        if isinstance(moment, dt.datetime):
            since = max(0, int(moment.timestamp() * 1000))  # -1 would be the end
            (found,) = _answer(
                consumer,
                consumer.offsets_for_times,
                [TopicPartition(self._topic, partition, since)],
            )
            return int(found.offset) if found.offset >= 0 else high
        if isinstance(moment, Mapping):
            return moment.get(partition)
        return low if moment == "earliest" else high

    def parts(self, chunk: Chunk, *, count: int) -> Iterator[Chunk]:
        """Yield the chunk's offsets as so many chunks."""
        spans: Spans = chunk.plan
        each = sum(end - begin for begin, end in spans.values()) // count + 1
        part: dict[int, tuple[int, int]] = {}
        left = each
        for partition, (begin, end) in spans.items():
            while begin < end:
                top = min(end, begin + left)
                part[partition] = (begin, top)
                begin, left = top, left - (top - begin)
                if not left:
                    yield msgspec.structs.replace(chunk, plan=part)
                    part, left = {}, each
        if part:
            yield msgspec.structs.replace(chunk, plan=part)

    def rows(self, chunk: Chunk) -> Iterator[pa.Table]:
        """Yield the records of the chunk's offsets as rows, in batches."""
        self._refused = []
        with _asking(self._settings, self._topic) as consumer:
            for batch in self._batches(consumer, chunk.plan):
                if (rows := self._decoded(batch)).num_columns:
                    yield rows

    def beside(self, chunk: Chunk) -> dict[str, pa.Table]:
        """Return the records that cannot be decoded, of the rows that were read last."""
        return {REFUSED: pa.Table.from_pylist(self._refused, schema=_REFUSED)}

    def _batches(self, consumer: Consumer, spans: Spans) -> Iterator[list[Message]]:
        """The messages of these offsets. A partition is over where a record at its end or behind
        arrives, or the end of the partition. [LD9]"""
        from confluent_kafka import TopicPartition

        left = {each: end for each, (begin, end) in spans.items() if begin < end}
        if not left:
            return
        consumer.assign([TopicPartition(self._topic, each, spans[each][0]) for each in left])
        at, heard = {each: spans[each][0] for each in left}, time.monotonic()
        while left:
            # no more than there can be: the client waits for so many
            rest = sum(end - at[each] for each, end in left.items())
            most = max(1, min(_RECORDS, int(_BATCH_BYTES / self._record_bytes), rest))
            found: Any = consumer.consume(most, timeout=1.0)
            batch: list[Message] = []
            for message in found:
                partition, error = message.partition(), message.error()
                if error is not None and error.name() != "_PARTITION_EOF":
                    why = self._settings.scrub(error.str())
                    if error.name() == "_AUTO_OFFSET_RESET":
                        why = "records were removed while they were read"
                    raise SourceError(
                        f"{self._of(partition)}: {why}. Nothing of this chunk was committed; run "
                        "it again."
                    )
                end = left.get(partition)
                if end is None:
                    continue  # behind the end of its range
                offset = message.offset()
                at[partition] = min(end, offset + 1)
                if error is None and offset < end:
                    batch.append(message)
                if offset >= end - (error is None):
                    del left[partition]
                    consumer.incremental_unassign([TopicPartition(self._topic, partition)])
            if batch:
                self._record_bytes = max(1.0, sum(map(len, batch)) / len(batch))
                yield batch
            if found:
                heard = time.monotonic()
                continue
            pause()
            if time.monotonic() - heard > _SILENCE_S:
                raise SourceError(
                    f"{self.name}: no answer for {_SILENCE_S:.0f} s, with "
                    f"{counted(len(left), 'partition')} left to read. Nothing of this chunk was "
                    "committed; run it again."
                )

    def _decoded(self, batch: Sequence[Message]) -> pa.Table:
        if self._value == "bytes":
            values = [message.value() for message in batch]
            rows = pa.table({"value": pa.array(values, pa.binary())})
        else:
            rows, broken = rows_of(
                [message.value() for message in batch],
                None if self._value == "json" else self._value,
                self._columns(),
            )
            if broken:
                self._refuse(batch, broken)
                batch = [each for place, each in enumerate(batch) if place not in broken]
            if not rows.num_columns and batch and not self._record_columns:
                raise SourceError(
                    f"{self.name}: the first records have no value in any column. Nothing of this "
                    "chunk was committed. Give schema= with the columns."
                )
            if rows.num_columns:
                self._schema = rows.schema
        for name in self._record_columns:
            if f"_{name}" in rows.column_names:
                raise SourceError(
                    f"{self.name}: the records have a column '_{name}' of their own: leave "
                    f"{name!r} out of record_columns"
                )
            kind, of = _PARTS[name]
            array = pa.array(map(of, batch), kind)
            columns = dict(zip(rows.column_names, rows.columns, strict=True))
            rows = pa.table({**columns, f"_{name}": array})
        return rows

    def _columns(self) -> pa.Schema | None:
        """The columns that are known: those declared, the table's, or those of the first rows."""
        if self._schema is None and self._table is not None:
            try:
                known = self._table.schema
            except TableNotFoundError:
                return None
            ours = {f"_{name}" for name in self._record_columns}
            kept = [field for field in known if field.name not in ours]
            self._schema = pa.schema(kept) if kept else None
        return self._schema

    def _refuse(self, batch: Sequence[Message], broken: Mapping[int, str]) -> None:
        """Records that cannot be decoded end the load, or go to the table beside. [LD9]"""
        for place, reason in broken.items():
            message = batch[place]
            if self._on_broken == "error":
                raise BrokenInputError(
                    (f"{self._of(_PARTS['partition'][1](message))} at {message.offset()}",),
                    f"{reason}; on_broken='refuse' puts such records into a table beside",
                )
            parts = {name: _PARTS[name][1](message) for name in _OF_A_REFUSED}
            self._refused.append({**parts, "value": message.value(), "error": reason[:300]})


@contextlib.contextmanager
def _asking(given: StorageOptions, topic: str) -> Iterator[Consumer]:
    """A consumer; whatever its client says becomes this package's error, without secrets. [SE1]"""
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError:
        raise UsageError(f"Kafka needs a package that is missing: {install('kafka')}") from None

    def said(error: BaseException) -> str:
        first: Any = error.args[0] if error.args else error
        return given.scrub(first.str() if hasattr(first, "str") else str(first))

    try:
        consumer = Consumer({"error_cb": _heard, **_DEFAULTS, **given, **_OURS})
    except (KafkaException, TypeError, ValueError) as error:
        raise UsageError(
            f"no client for Kafka can be made of these settings: {said(error)}"
        ) from None
    try:
        yield consumer
    except KafkaException as error:
        refused = error.args[0].name() in _REFUSALS
        way_out = " Look at the protocol, login and certificates in settings." * refused
        raise SourceError(
            f"kafka {topic!r} at {given['bootstrap.servers']}: {said(error)}. Nothing more was "
            f"loaded.{way_out}"
        ) from None
    finally:
        with contextlib.suppress(KafkaException):  # a refusal that it tells of only now
            consumer.close()


def _answer(client: Any, ask: Callable[..., Any], about: Any) -> Any:
    """What the brokers say. The client cannot be interrupted, so it is asked a step at a time, as
    long as nobody asks this process to end. [LD6]"""
    from confluent_kafka import KafkaException

    until = time.monotonic() + _ASK_S
    while True:
        try:
            return ask(about, timeout=min(_STEP_S, _ASK_S))
        except KafkaException as error:
            late = error.args[0].name() in ("_TIMED_OUT", "_TRANSPORT")
            if not late or time.monotonic() >= until:
                raise
            client.poll(0)  # tells what it has heard
            pause(0.1)


def _heard(error: Any) -> None:
    """The client connects again by itself, which a refusal ends: it would be one each time."""
    from confluent_kafka import KafkaException

    if error.name() in _REFUSALS:
        raise KafkaException(error)


# Values in Avro, as objects, and their columns.

_AVRO_HEADER = 5  # bytes of a schema registry: a zero, and the id of the schema
_AVRO_KINDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_AVRO_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    **{f"timestamp-{unit}": pa.timestamp("us", "UTC") for unit in ("millis", "micros")},
    **{f"local-timestamp-{unit}": pa.timestamp("us") for unit in ("millis", "micros")},
}


def avro_decoder(given: Any) -> tuple[Callable[[bytes], Mapping[str, Any]], pa.Schema]:
    """What makes an object of a value, and the columns.

    given: a schema of Avro, or several by the ids that a registry's header begins values with; the
    last one has the columns.
    """
    try:
        import fastavro
    except ImportError as error:
        raise UsageError(f"value='avro' needs fastavro: {install('kafka')}") from error
    read: Any = fastavro.schemaless_reader
    has_header = isinstance(given, Mapping) and given and all(type(id) is int for id in given)
    try:
        texts = dict(given) if has_header else {0: given}
        objects = {id: json.loads(x) if isinstance(x, str) else x for id, x in texts.items()}
        parsed = {id: fastavro.parse_schema(_avro_plain(each)) for id, each in objects.items()}
        reader = [*parsed.values()][-1]
        columns = pa.schema(list(_avro_kind(reader, {})))
    except (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        raise wrong(
            "schema",
            given,
            f"a schema of a record in Avro, or id -> schema ({' '.join(str(error).split())})",
            '{"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}',
        ) from None

    def decode(value: bytes) -> Mapping[str, Any]:
        stream, id = io.BytesIO(value), 0
        if has_header:
            header = stream.read(_AVRO_HEADER)
            if len(header) < _AVRO_HEADER or header[0]:
                raise ValueError("the value does not begin with the header of a schema registry")
            id = int.from_bytes(header[1:], "big")
            if id not in parsed:
                raise ValueError(f"the id of its schema is {id}: add that to schema=")
        writer = parsed[id]
        found: dict[str, Any] = read(stream, writer, None if writer is reader else reader)
        if stream.read(1):
            raise ValueError("bytes are left behind the record: its schema is another one")
        return found

    return decode, columns


def _avro_plain(schema: Any) -> Any:
    """Without the annotation of texts as UUIDs, which columns do not have."""
    if isinstance(schema, list):
        return [_avro_plain(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: _avro_plain(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if (name, value) != ("logicalType", "uuid")
    }


def _avro_kind(schema: Any, named: dict[str, pa.DataType]) -> pa.DataType:
    """The type of a column. ValueError for a type that no column has. named: those before it."""
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) == 1:
            return _avro_kind(kinds[0], named)
        raise ValueError("a union of more than null and one type is no column")
    if isinstance(schema, str):
        schema = {"type": schema}
    type, logical = schema["type"], str(schema.get("logicalType", ""))
    if not isinstance(type, str):
        return _avro_kind(type, named)
    if type in named:
        return named[type]
    if logical.startswith("time-") or logical.endswith("-nanos"):
        raise ValueError(f"no column has the type {logical}")
    if logical == "decimal":
        found = pa.decimal128(schema["precision"], schema.get("scale", 0))
    elif type == "record":
        found = pa.struct(
            [(each["name"], _avro_kind(each["type"], named)) for each in schema["fields"]]
        )
    elif type == "array":
        found = pa.list_(_avro_kind(schema["items"], named))
    elif type == "map":
        found = pa.map_(pa.string(), _avro_kind(schema["values"], named))
    elif type in _AVRO_KINDS:
        found = _AVRO_LOGICAL.get(logical, _AVRO_KINDS[type])
    else:
        raise ValueError(f"no column has the type {type}, or it holds itself")
    if "name" in schema:
        named[schema["name"]] = found
    return found


def _moment(name: str, value: Any) -> Any:
    if isinstance(value, str) and value not in ("earliest", "latest"):
        with contextlib.suppress(ValueError):
            value = dt.datetime.fromisoformat(value)
    if isinstance(value, Mapping):
        good = all(type(each) is int and each >= 0 for pair in value.items() for each in pair)
    else:
        is_time = isinstance(value, dt.datetime) and value.tzinfo is not None
        good = is_time or (isinstance(value, str) and value in ("earliest", "latest"))
    if not good:
        which = "'earliest', 'latest', a time with its zone, or partition -> offset"
        raise wrong(name, value, which, "'2026-01-01T00:00:00Z'")
    return value


def _settings(name: str, value: Any) -> Any:
    """Texts and numbers only: the client ends the process over some other values."""
    good = isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(each, str | int | float) for key, each in value.items()
    )
    if not good:
        raise wrong(
            name, type(value).__name__, "librdkafka's settings: name -> text or number", "{}"
        )
    return value


def _parts(name: str, value: Any) -> Any:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, Sequence) or len(set(map(repr, given))) < len(given):
        raise wrong(name, value, "different parts of a record", "['partition', 'offset']")
    for each in given:
        one_of(*_PARTS)(name, each)
    return list(given)


@checked(
    servers=text("addresses of brokers", "'broker1:9092,broker2:9092'"),
    topic=text("the name of a topic", "'orders'"),
    value=fits(
        lambda value: callable(value) or (isinstance(value, str) and value in _VALUES),
        f"{', '.join(map(repr, _VALUES))}, or a function of its bytes",
    ),
    record_columns=_parts,
    start=_moment,
    until=_moment,
    on_broken=one_of("error", "refuse"),
    on_lost=one_of("error", "skip"),
    settings=optional(_settings),
)
def kafka(
    servers: str,
    topic: str,
    *,
    value: Literal["avro", "bytes", "json"] | Callable[[bytes], Mapping[str, Any]] = "json",
    schema: pa.Schema | Mapping[Any, Any] | str | None = None,
    record_columns: Sequence[str] | str = (),
    start: Moment = "earliest",
    until: Moment = "latest",
    on_broken: Literal["error", "refuse"] = "error",
    on_lost: Literal["error", "skip"] = "error",
    settings: Mapping[str, Any] | None = None,
) -> KafkaRecords:
    """Name the records of a Kafka topic, as a source of `load`.

    The table holds the offset of each partition, in the commit of the rows: no consumer group is
    joined, and no offset is committed to Kafka. Records of transactions that were aborted are not
    read, and those behind one that is open wait for its end.

    Args:
        servers: host:port of some brokers, separated by commas.
        topic: the name of the topic.
        value: what the records' values are: "json", the default, an object whose members are the
            columns; "avro", a record in Avro; "bytes", one column `value`; or a callable that
            returns such an object as a mapping for the bytes of a value.
        schema: the columns and their types, a pyarrow schema; by default those of the table, and
            for its first records what pyarrow infers from them. For Avro the schema of Avro, a
            mapping or JSON, with which all were written; or, where values begin with the five bytes
            of a schema registry, id -> schema, the last of which has the columns.
        record_columns: what else becomes a column, of "partition", "offset", "timestamp", "key" and
            "headers": `_offset` and so on; by default nothing.
        start: where the first load begins: "earliest", the default, "latest", a time such as
            "2026-01-01T00:00:00Z" or a datetime, or partition -> offset. A partition that is added
            later is loaded from its first record.
        until: where each load ends, in the same words: by default the latest record, as of its
            beginning. With `start`, a range.
        on_broken: what a record that cannot be decoded does: "error", the default, ends the load;
            "refuse" puts it into the table `<path>.refused` with the reason, in the same commit.
        on_lost: what it means that the topic no longer keeps the records after the position:
            "error", the default, ends the load; "skip" goes on behind them, as the commit's message
            says.
        settings: those of librdkafka, such as {"security.protocol": "SASL_SSL", …}; by default
            none. Their values are in no message.

    Returns:
        The source.

    Raises:
        UsageError: an argument is wrong.

    Example:
        `load(kafka("broker:9092", "orders"), "s3://lake/orders")`

    Spec: LD9.
    """
    given = {"bootstrap.servers": servers, **(settings or {})}
    if value == "bytes" and schema is not None:
        raise UsageError("value='bytes' is one column, `value`: leave schema out")
    if value == "avro":
        value, schema = avro_decoder(schema)
    elif schema is not None:
        schema = arrow_schema("schema", schema)
    if ours := sorted(_OURS.keys() & given):
        raise UsageError(
            f"settings: {ours[0]} is decided here, since the table holds the positions; leave it "
            "out"
        )
    return KafkaRecords(
        given,
        topic,
        value=value,
        schema=schema,
        record_columns=record_columns,
        start=start,
        until=until,
        on_broken=on_broken,
        on_lost=on_lost,
    )
