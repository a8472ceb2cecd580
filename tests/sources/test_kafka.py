"""Records of Kafka are loaded once each, by their offsets. [LD9]

librdkafka's own cluster serves real clients of any process. It has no read_committed and no ids of topics; Tansu's broker has ids.
"""

import datetime as dt
import io
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.kit.sources import broker_of
from tests.servers.servers import free_port
from tests.sources.kafka_front import front

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.errors import SchemaMismatchError, SourceError, UsageError
from manifestcommit.sources import kafka_topic
from manifestcommit.sources.ending import EndedError, heeding
from manifestcommit.sources.json_rows import rows_of
from manifestcommit.store import StorageOptions

kafka = mc.sources.kafka
TOPIC = "orders"


class Cluster:
    """Brokers of this process, and a producer."""

    def __init__(self) -> None:
        # the brokers live as long as this client
        self._brokers = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "these", "log_level": 0})
        found = self._brokers.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{each.host}:{each.port}" for each in found)
        self._producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})

    def send(self, *values: Any, partition: int = 0, topic: str = TOPIC, **more: Any) -> None:
        for value in values:
            body = value if isinstance(value, bytes | None) else json.dumps(value).encode()
            self._producer.produce(topic, value=body, partition=partition, **more)
        assert self._producer.flush(10) == 0

    def in_transaction(self, *values: Any, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": "t", "log_level": 0})
        producer.init_transactions(10)
        producer.begin_transaction()
        for value in values:
            producer.produce(TOPIC, value=json.dumps(value).encode(), partition=partition)
        producer.commit_transaction(10)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def rows(table: Any, *columns: str) -> list[tuple[Any, ...]]:
    found = mc.Table(table).to_arrow(list(columns)).to_pylist()
    return sorted(tuple(row[name] for name in columns) for row in found)


@pytest.mark.thorough
def test_each_record_is_loaded_once_and_a_rerun_finds_nothing(tmp_path: Any, cluster: Cluster) -> None:
    for number in range(20):
        cluster.send({"id": number}, partition=number % 4)
    source = kafka(cluster.servers, TOPIC, record_columns=["partition", "offset"])
    first = mc.load(source, tmp_path / "t")
    assert (first.rows, first.chunks) == (20, 1)
    assert rows(tmp_path / "t", "id", "_partition", "_offset") == [(n, n % 4, n // 4) for n in range(20)]
    assert first.positions == {f"{source.name}/{each}": 5 for each in range(4)}
    assert mc.load(source, tmp_path / "t").chunks == 0
    cluster.send({"id": 20})
    assert mc.load(source, tmp_path / "t").rows == 1
    assert [row for (row,) in rows(tmp_path / "t", "id")] == list(range(21))


@pytest.mark.thorough
def test_a_chunk_has_about_as_many_bytes_as_it_may(tmp_path: Any, cluster: Cluster) -> None:
    cluster.send(*({"id": number} for number in range(50)))
    assert mc.load(kafka(cluster.servers, TOPIC), tmp_path / "t", max_bytes=100_000).chunks in (2, 3, 4, 5)
    assert [row for (row,) in rows(tmp_path / "t", "id")] == list(range(50))


@pytest.mark.thorough
def test_long_records_are_not_held_by_the_thousand(tmp_path: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held at once is bounded in bytes, and what a chunk has is one file all the same."""
    monkeypatch.setattr(kafka_topic, "_BATCH_BYTES", 100_000)
    for partition in range(4):
        cluster.send(*({"id": number, "text": "x" * 10_000} for number in range(100)), partition=partition)
    source = kafka(cluster.servers, TOPIC)
    (chunk,) = source.chunks({}, max_bytes=100_000_000)
    sizes = [table.nbytes for table in source.rows(chunk)]
    assert len(sizes) > 30 and max(sizes) < 150_000
    assert mc.load(kafka(cluster.servers, TOPIC), tmp_path / "t").files == 1


@pytest.mark.parametrize("name", ["a name", 'a "name"'])
def test_objects_without_new_members_are_what_any_others_are(name: str) -> None:
    """Both ways of decoding say the same of the same values."""
    schema = pa.schema([("id", pa.int64()), (name, pa.list_(pa.string())), ("x", pa.float64()), ("when", pa.timestamp("us", "UTC"))])
    good = [
        b'{"id": 1}',
        json.dumps({"x": 2, "id": None, name: ["y", None]}).encode(),
        b' {"when": "2013-01-01T00:00:00Z"} ',
        b'{"id": 2, "id": 3}',
    ]
    ways = [rows_of(good, None, schema), rows_of([*good, b'{"new": null}'], None, schema)]
    assert ways[0][0].equals(ways[1][0].slice(0, 4)) and not ways[0][1] and not ways[1][1]
    assert ways[0][0].column("id").to_pylist() == [1, None, None, 3]
    for bad in (b"[1]", b"null", b'{"id": 1.5}', b'{"id": true}', b'{"x": "1"}', b'{"id": 1} {"id": 2}', b"", b'{"id": 1', None):
        table, broken = rows_of([*good, bad], None, schema)
        assert (table.num_rows, list(broken)) == ((5, []) if bad is None else (4, [4])), bad


@pytest.mark.thorough
def test_offsets_without_a_record_are_part_of_a_range(tmp_path: Any, cluster: Cluster) -> None:
    """The end of a transaction has an offset, and no record: a count would wait for one more. [LD9]"""
    cluster.send({"id": 0})
    cluster.in_transaction({"id": 1}, {"id": 2})
    source = kafka(cluster.servers, TOPIC)
    outcome = mc.load(source, tmp_path / "t")
    assert (outcome.rows, outcome.positions[f"{source.name}/0"]) == (3, 4)
    assert mc.load(source, tmp_path / "t").chunks == 0
    cluster.send({"id": 3})
    assert mc.load(source, tmp_path / "t").rows == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [0, 1, 2, 3]),
        ("latest", [3]),
        ({0: 1}, [1, 2, 3]),
        (dt.datetime(2036, 1, 1, tzinfo=dt.UTC), [3]),  # the cluster knows no other times
    ],
)
def test_the_first_load_begins_where_it_is_told_to(tmp_path: Any, cluster: Cluster, start: Any, expected: list[int]) -> None:
    cluster.send({"id": 0}, timestamp=1_700_000_000_000)
    cluster.send({"id": 1}, {"id": 2})
    source = kafka(cluster.servers, TOPIC, start=start, schema=pa.schema([("id", pa.int64())]))
    mc.load(source, tmp_path / "t")
    cluster.send({"id": 3})
    mc.load(source, tmp_path / "t")
    assert [row for (row,) in rows(tmp_path / "t", "id")] == expected


def test_a_range_is_loaded_and_the_load_goes_on_behind_it(tmp_path: Any, cluster: Cluster) -> None:
    """By offsets; the lineage of files is of what they hold, not of what was passed over. [LD9] [OB8]"""
    for number in range(6):
        cluster.send({"id": number}, partition=number % 2)
    source = kafka(cluster.servers, TOPIC, start={0: 1, 1: 2}, until={0: 2, 1: 3})
    assert mc.load(source, tmp_path / "t").rows == 2 and rows(tmp_path / "t", "id") == [(2,), (5,)]
    assert mc.load(source, tmp_path / "t").chunks == 0
    (entry,) = mc.Table(tmp_path / "t").snapshot().added
    assert [(each.source[-1], each.start, each.end) for each in entry.sources] == [("0", 1, 2), ("1", 2, 3)]
    assert mc.Table(tmp_path / "t").lineage(f"{source.name}/0", 0).files == ()
    assert mc.load(kafka(cluster.servers, TOPIC), tmp_path / "t").rows == 1 and rows(tmp_path / "t", "id") == [(2,), (4,), (5,)]


@pytest.mark.thorough
def test_a_time_is_a_text_or_a_datetime(tmp_path: Any, cluster: Cluster) -> None:
    """The cluster has no time before the end: all of it is loaded by an end in the future, and nothing from there on."""
    cluster.send({"id": 0})
    later, schema = "2036-01-01T00:00:00+02:00", pa.schema([("id", pa.int64())])
    assert mc.load(kafka(cluster.servers, TOPIC, start=later, schema=schema), tmp_path / "t").rows == 0
    assert mc.load(kafka(cluster.servers, TOPIC, until=later), tmp_path / "u").rows == 1


@pytest.mark.thorough
def test_a_follower_of_silent_brokers_ends_promptly(tmp_path: Any, cluster: Cluster) -> None:
    """Where records that were promised do not come, and where the brokers do not answer. [LD6]"""
    cluster.send({"id": 0})
    source, stop = kafka(cluster.servers, TOPIC), threading.Event()
    (chunk,) = source.chunks({}, max_bytes=1000)
    stop.set()
    begun = time.monotonic()
    with heeding(stop), pytest.raises(EndedError, match="asked to end"):
        list(source.rows(msgspec.structs.replace(chunk, plan={0: (0, 9)})))
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, heeding(stop), pytest.raises(EndedError, match="asked to end"):
        list(kafka(f"127.0.0.1:{silent.getsockname()[1]}", TOPIC, settings={"log_level": 0}).chunks({}, max_bytes=1))
    assert time.monotonic() - begun < 20


@pytest.mark.thorough
def test_latest_is_the_end_at_the_first_load_also_of_a_topic_without_records(tmp_path: Any, cluster: Cluster) -> None:
    cluster.send({"id": 0}, partition=1)
    source = kafka(cluster.servers, TOPIC, start="latest", schema=pa.schema([("id", pa.int64())]))
    first = mc.load(source, tmp_path / "t")
    assert (first.rows, first.positions) == (0, {f"{source.name}/{each}": int(each == 1) for each in range(4)})
    for partition in range(4):
        cluster.send({"id": 1 + partition}, partition=partition)
    mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t", "id") == [(1,), (2,), (3,), (4,)]


@pytest.mark.thorough
def test_the_command_loads_a_topic(tmp_path: Any, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.send({"id": 1}, {"id": 2})
    (tmp_path / "settings.json").write_text('{"client.id": "loader"}')
    given = ["--servers", cluster.servers, "--kafka-settings", str(tmp_path / "settings.json"), "--record-columns", "offset"]
    assert main(["load", str(tmp_path / "t"), f"kafka:{TOPIC}", *given, "--dry-run"]) == 0
    assert "2 offsets of 1 partition of orders" in capsys.readouterr().out
    assert main(["load", str(tmp_path / "t"), f"kafka:{TOPIC}", *given]) == 0
    assert "loaded 2 rows in 1 commit" in capsys.readouterr().out and rows(tmp_path / "t", "id", "_offset") == [(1, 0), (2, 1)]


@pytest.mark.thorough
def test_a_record_that_cannot_be_decoded_ends_the_load(tmp_path: Any, cluster: Cluster) -> None:
    cluster.send({"id": 1}, b"{not json", {"id": 3})
    with pytest.raises(SourceError, match=r"orders/0 at 1: .*on_broken='refuse'.*Nothing of this chunk was committed"):
        mc.load(kafka(cluster.servers, TOPIC), tmp_path / "t", max_errors=5)
    assert not (tmp_path / "t").exists() or mc.Table(tmp_path / "t").watermarks() == {}


BROKEN = [
    b"{not json",
    b"[1]",
    b'"text"',
    b'{"id": "x"}',
    b'{"id": 1.5}',
    b'{"id": true}',
    b"\xff\xfe",
    b'{"id": 99999999999999999999}',
    b"",
]


def test_records_that_cannot_be_decoded_are_put_beside_in_the_same_commit(tmp_path: Any, cluster: Cluster) -> None:
    """[LD9] [MT1]"""
    cluster.send({"id": 0}, *BROKEN, {"id": 1}, key=b"k")
    source = kafka(cluster.servers, TOPIC, schema=pa.schema([("id", pa.int64())]), on_broken="refuse", record_columns="offset")
    outcome = mc.load(source, tmp_path / "t")
    assert rows(tmp_path / "t", "id", "_offset") == [(0, 0), (1, len(BROKEN) + 1)] and outcome.rows == 2
    refused = mc.Table(f"{tmp_path / 't'}.refused").to_arrow().sort_by("offset").to_pylist()
    assert [(row["offset"], row["value"]) for row in refused] == list(enumerate(BROKEN, 1))
    assert all(row["error"] and row["key"] == b"k" for row in refused)
    assert mc.load(source, tmp_path / "t").chunks == 0
    with pytest.raises(SourceError):
        mc.load(kafka(cluster.servers, TOPIC, schema=pa.schema([("id", pa.int64())])), tmp_path / "u")


@pytest.mark.thorough
def test_values_are_bytes_or_what_a_callable_makes_of_them(tmp_path: Any, cluster: Cluster) -> None:
    cluster.send(b"1;x", None, b"\x00\xff")
    mc.load(kafka(cluster.servers, TOPIC, value="bytes", record_columns=["key", "timestamp", "headers"]), tmp_path / "t")
    found = mc.Table(tmp_path / "t").to_arrow().to_pylist()
    assert [row["value"] for row in found] == [b"1;x", None, b"\x00\xff"] and found[0]["_headers"] == [] and found[0]["_timestamp"]

    def columns(value: bytes) -> dict[str, Any]:
        first, _, second = value.partition(b";")
        return {"id": int(first), "name": second.decode()}

    cluster.send(b"1;x", topic="other", headers=[("a", b"1"), ("b", None)], key=b"k")
    mc.load(kafka(cluster.servers, "other", value=columns, record_columns=["headers", "key"]), tmp_path / "u")
    assert mc.Table(tmp_path / "u").to_arrow().to_pylist() == [
        {"id": 1, "name": "x", "_headers": [{"name": "a", "value": b"1"}, {"name": "b", "value": None}], "_key": b"k"}
    ]


def avro_of(kind: Any, **more: Any) -> dict[str, Any]:
    """The schema of a record with one column `x`."""
    return {"type": "record", "name": "order", "fields": [{"name": "x", "type": kind, **more}]}


def avro(schema: Any, *values: Any, header: bytes = b"") -> list[bytes]:
    found = []
    for value in values:
        fastavro.schemaless_writer(stream := io.BytesIO(), fastavro.parse_schema(schema), value)
        found.append(header + stream.getvalue())
    return found


AVRO = [
    ("boolean", pa.bool_(), True),
    ("int", pa.int32(), -5),
    ("long", pa.int64(), 2**40),
    ("float", pa.float32(), 1.5),
    ("double", pa.float64(), 0.1),
    ("bytes", pa.binary(), b"\0a"),
    ("string", pa.string(), "é"),
    ({"type": "fixed", "name": "f", "size": 2}, pa.binary(), b"ab"),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, pa.string(), "B"),
    ({"type": "string", "logicalType": "uuid"}, pa.string(), "0b0f7d3e-3c5a-4a39-9d9f-6a4d7a3f4d0e"),
    ({"type": "int", "logicalType": "date"}, pa.date32(), dt.date(2013, 1, 1)),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC"), dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"), dt.datetime(2013, 1, 1, 5, 0, 0, 7, tzinfo=dt.UTC)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us"), dt.datetime(2013, 1, 1, 5)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2), Decimal("9.50")),
    ({"type": "array", "items": "long"}, pa.list_(pa.int64()), [1, 2]),
    ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32()), {"a": 1}),
    ({"type": "record", "name": "r", "fields": [{"name": "y", "type": ["null", "int"]}]}, pa.struct([("y", pa.int32())]), {"y": 3}),
]


@pytest.mark.thorough
def test_values_in_avro_have_the_columns_of_their_schema(tmp_path: Any, cluster: Cluster) -> None:
    names = [f"c{place}" for place in range(len(AVRO))]
    fields = [{"name": name, "type": each[0]} for name, each in zip(names, AVRO, strict=True)]
    schema = {"type": "record", "name": "order", "fields": [*fields, {"name": "none", "type": ["null", "string"]}]}
    row = {name: value for name, (_, _, value) in zip(names, AVRO, strict=True)}
    cluster.send(*avro(schema, row | {"none": None}), None)
    for given in (schema, json.dumps(schema)):
        mc.load(kafka(cluster.servers, TOPIC, value="avro", schema=given, record_columns=["offset"]), tmp_path / type(given).__name__)
        found = mc.Table(tmp_path / type(given).__name__).to_arrow().sort_by("_offset")
        assert [found.schema.field(name).type for name in [*names, "none"]] == [*(kind for _, kind, _ in AVRO), pa.string()]
        first, second = (found.select([*names, "none"]).slice(place, 1).to_pylist(maps_as_pydicts="strict")[0] for place in range(2))
        assert first == row | {"none": None} and not any(value is not None for value in second.values())


def test_a_header_of_a_registry_says_which_schema_wrote_a_value(tmp_path: Any, cluster: Cluster) -> None:
    old, new = avro_of("int"), avro_of("long")
    new["fields"].append({"name": "note", "type": "string", "default": "none"})
    cluster.send(*avro(old, {"x": 1}, header=b"\0\0\0\1\2"), *avro(new, {"x": 2**40, "note": "new"}, header=b"\0\0\0\1\3"))
    broken = [*avro(old, {"x": 3}, header=b"\0\0\0\0\1"), *avro(old, {"x": 3}), *avro(old, {"x": 3}, header=b"\0\0\0\1\2")]
    cluster.send(*broken[:2], broken[2] + b"\0", b"\0\0\0\1\2")
    source = kafka(cluster.servers, TOPIC, value="avro", schema={258: old, 259: new}, on_broken="refuse")
    mc.load(source, tmp_path / "t")
    assert mc.Table(tmp_path / "t").to_arrow().sort_by("x").to_pylist() == [{"x": 1, "note": "none"}, {"x": 2**40, "note": "new"}]
    refused = mc.Table(f"{tmp_path / 't'}.refused").to_arrow().sort_by("offset")["error"].to_pylist()
    expected = ["the id of its schema is 1", "does not begin with the header", "bytes are left behind the record", ""]
    assert all(part in told for part, told in zip(expected, refused, strict=True)), refused


@pytest.mark.thorough
def test_texts_become_moments_and_decimals_where_the_columns_are_such(tmp_path: Any, cluster: Cluster) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("price", pa.decimal128(9, 2)), ("n", pa.int32())])
    cluster.send({"at": "2026-01-02T03:04:05Z", "day": "2026-01-02", "price": "1.50"}, {"n": 7})
    mc.load(kafka(cluster.servers, TOPIC, schema=schema), tmp_path / "t")
    found = mc.Table(tmp_path / "t").to_arrow().sort_by("n").to_pylist()
    assert found[1]["day"] == dt.date(2026, 1, 2) and str(found[1]["price"]) == "1.50" and found[1]["at"].hour == 3


CHANGED: list[tuple[pa.DataType, Any]] = [
    (pa.timestamp("us"), 1_700_000_000),
    (pa.timestamp("s"), "2026-01-01T00:00:00.5"),
    (pa.date32(), 20_000),
    (pa.int8(), 300),
    (pa.int64(), "0x10"),
    (pa.int64(), 1.5),
    (pa.float64(), True),
    (pa.float64(), 2**53 + 1),
    (pa.float64(), "1.5"),
    (pa.bool_(), 1),
    (pa.decimal128(9, 2), "1.555"),
    (pa.string(), 7),
    (pa.list_(pa.int32()), [1, 2.5]),
    (pa.list_(pa.string()), "ab"),
    (pa.map_(pa.string(), pa.int64()), {"eur": 9.99}),
    (pa.map_(pa.string(), pa.struct([("x", pa.int64())])), {"a": {"x": 1, "y": 2}}),
    (pa.struct([("x", pa.int64())]), [1]),
]


@pytest.mark.parametrize(("type", "value"), CHANGED, ids=lambda value: str(value) if isinstance(value, pa.DataType) else "")
def test_values_are_never_changed(tmp_path: Any, type: Any, value: Any) -> None:
    """[LD9]"""
    found, broken = rows_of([json.dumps({"x": value}).encode(), b"{}"], None, pa.schema([("x", type)]))
    assert list(broken) == [0] and broken[0].startswith("'x': ") and found.to_pylist() == [{"x": None}]


def test_values_of_a_callable_are_never_changed() -> None:
    """[LD9]"""
    late = dt.datetime(2026, 1, 1, 23, 30, tzinfo=dt.timezone(dt.timedelta(hours=5)))
    for type, value in ((pa.date32(), late), (pa.timestamp("us"), late), (pa.int64(), Decimal("1.5")), (pa.list_(pa.int64()), (1.5,))):
        assert list(rows_of([b""], lambda _, x=value: {"x": x}, pa.schema([("x", type)]))[1]) == [0], type  # type: ignore[misc]
    found, broken = rows_of([b""], lambda _: {"x": late}, pa.schema([("x", pa.timestamp("us", "UTC"))]))
    assert not broken and found.to_pylist() == [{"x": late}]


def test_columns_that_are_not_known_are_what_most_of_their_values_are() -> None:
    """One record that is none changes no other. [LD9]"""
    values = [b'{"x": null, "y": 1}', b'{"x": 5, "y": 2.5}', b'{"x": 6, "y": "bad"}', b'{"x": 7, "y": 3, "z": 1}', b'{"x": "7"}', b"{"]
    found, broken = rows_of(values, None, None)
    assert sorted(broken) == [2, 4, 5]
    assert found.to_pylist() == [{"x": None, "y": 1, "z": None}, {"x": 5, "y": 2.5, "z": None}, {"x": 7, "y": 3, "z": 1}]
    assert rows_of([b'{"x": null}', None], None, None)[0].num_columns == 0


@pytest.mark.thorough
def test_a_column_whose_type_is_not_known_yet_is_asked_for(tmp_path: Any, cluster: Cluster) -> None:
    cluster.send({"id": 1, "tags": []})
    with pytest.raises(SourceError, match=r"the type of the column 'tags' cannot be inferred.*Give schema="):
        mc.load(kafka(cluster.servers, TOPIC), tmp_path / "t")
    cluster.send(None, topic="empty")
    with pytest.raises(SourceError, match=r"no value in any column.*Give schema="):
        mc.load(kafka(cluster.servers, "empty"), tmp_path / "t")
    assert mc.load(kafka(cluster.servers, "empty", record_columns="offset"), tmp_path / "u").rows == 1


@pytest.mark.thorough
def test_a_topic_may_begin_with_records_that_are_no_rows(tmp_path: Any, cluster: Cluster) -> None:
    cluster.send(b"no", b"rows")
    source = kafka(cluster.servers, TOPIC, on_broken="refuse")
    assert mc.load(source, tmp_path / "t").rows == 0
    cluster.send({"id": 1})
    assert mc.load(source, tmp_path / "t").rows == 1
    assert mc.Table(f"{tmp_path / 't'}.refused").to_arrow().num_rows == 2


@pytest.mark.thorough
def test_members_that_no_column_has_are_never_left_out(tmp_path: Any, cluster: Cluster) -> None:
    cluster.send({"id": 1, "in": {"a": 1}})
    mc.load(kafka(cluster.servers, TOPIC), tmp_path / "t")
    cluster.send({"id": 2, "new": "x"})
    with pytest.raises(SchemaMismatchError, match="new"):
        mc.load(kafka(cluster.servers, TOPIC), tmp_path / "t")
    assert mc.load(kafka(cluster.servers, TOPIC), tmp_path / "t", merge_schema=True).rows == 1
    cluster.send({"id": 3, "in": {"a": 1, "b": 2}}, {"id": 3, "in": {"a": 1.5}})
    with pytest.raises(SourceError, match="the member 'b' is not in struct"):
        mc.load(kafka(cluster.servers, TOPIC), tmp_path / "t")


def test_records_that_the_topic_no_longer_keeps_end_the_load(tmp_path: Any, cluster: Cluster) -> None:
    """[LD9]"""
    cluster.send({"id": 0})
    mc.load(kafka(cluster.servers, TOPIC), tmp_path / "t")
    large = "x" * 500_000
    for number in range(1, 21):  # the cluster keeps 5 MiB
        cluster.send({"id": number, "text": large})
    with pytest.raises(SourceError, match=r"orders/0: [\d]+ offsets from 1 on are lost: the topic keeps none below \d+.*on_lost='skip'"):
        mc.load(kafka(cluster.servers, TOPIC), tmp_path / "t", merge_schema=True)
    outcome = mc.load(kafka(cluster.servers, TOPIC, on_lost="skip"), tmp_path / "t", merge_schema=True)
    kept = [row for (row,) in rows(tmp_path / "t", "id")]
    assert kept[0] == 0 and kept[1:] == list(range(21 - outcome.rows, 21)) and 0 < outcome.rows < 20
    assert any("were lost" in (row["message"] or "") for row in mc.Table(tmp_path / "t").history())


@pytest.fixture
def tansu() -> Iterator[str]:
    port = free_port()
    with broker_of(port, port):
        yield f"127.0.0.1:{port}"


@contextmanager
def secured(folder: Path, users: dict[str, str] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """A topic with one record, on brokers whom one reaches by TLS; their address, and the settings of who may read."""
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*make.split(), "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True, capture_output=True)
    context, port = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), free_port()
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    settings: dict[str, Any] = {"security.protocol": "SSL", "ssl.ca.location": str(folder / "cert.pem"), "log_level": 0}
    for name, password in (users or {}).items():
        login = {"sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": password}
        settings |= {"security.protocol": "SASL_SSL", **login}
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        broker_of(port, listener.getsockname()[1]),
        front(listener, port, context, users),
    ):
        servers = f"127.0.0.1:{listener.getsockname()[1]}"
        producer = Producer({"bootstrap.servers": servers, **settings})
        admin = AdminClient({"bootstrap.servers": servers, **settings})
        for made in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
            made.result(60)
        producer.produce(TOPIC, b'{"id": 1}')
        assert producer.flush(60) == 0
        yield servers, settings


@pytest.mark.thorough
def test_a_topic_is_loaded_through_tls(tmp_path: Path) -> None:
    """A certificate that the settings do not name is refused. [SE1]"""
    with secured(tmp_path, None) as (servers, settings):
        assert mc.load(kafka(servers, TOPIC, settings=settings), tmp_path / "t").rows == 1
        with pytest.raises(SourceError, match=r"kafka 'orders' at 127\.0\.0\.1:\d+: .*certificate.* Look at the protocol, login and"):
            mc.load(kafka(servers, TOPIC, settings={"security.protocol": "SSL", "log_level": 0}), tmp_path / "u")


PASSWORD = "hunter2+/="


@pytest.mark.thorough
def test_who_logs_in_loads_and_a_wrong_password_ends_the_load_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By SASL PLAIN within TLS; the error says where and what to do, and has no secret. [SE1]"""
    users = {"loader": PASSWORD}
    with secured(tmp_path, users) as (servers, settings):
        source = kafka(servers, TOPIC, settings=settings)
        assert mc.load(source, tmp_path / "t").rows == 1
        (chunk,) = source.chunks({}, max_bytes=1000)
        begun = time.monotonic()
        users["loader"] = "another one"  # the brokers forget it between two questions
        with pytest.raises(SourceError, match=r"Authentication failed.*Look at the protocol, login and certificates"):
            list(source.rows(chunk))
        (tmp_path / "settings.json").write_text(json.dumps(settings))
        command = ["load", str(tmp_path / "u"), "kafka:orders", "--servers", servers, "--kafka-settings", str(tmp_path / "settings.json")]
        assert main(command) == 3
        assert time.monotonic() - begun < kafka_topic._ASK_S  # nobody waits for what does not come
        told = capsys.readouterr().err
        assert f"kafka 'orders' at {servers}: " in told and "Look at the protocol, login and" in told and PASSWORD not in told
        users["loader"] = PASSWORD
        assert main(command) == 0 and rows(tmp_path / "u", "id") == [(1,)]


def test_a_topic_that_was_made_anew_is_another_one(tmp_path: Any, tansu: str) -> None:
    """Its offsets are those of other records, also where it has more of them. [LD9]"""
    admin = AdminClient({"bootstrap.servers": tansu, "log_level": 0})
    producer = Producer({"bootstrap.servers": tansu, "log_level": 0})
    for count in (1, 5):
        for made in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
            made.result(20)
        for number in range(count):
            producer.produce(TOPIC, b'{"id": %d}' % number)
        assert producer.flush(20) == 0
        source = kafka(tansu, TOPIC)
        if count == 1:
            mc.load(source, tmp_path / "t")
            assert rows(tmp_path / "t", "id") == [(0,)]
            for gone in admin.delete_topics([TOPIC]).values():
                gone.result(20)
    with pytest.raises(SourceError, match=r"records of the topic with the id .*: the topic was made again"):
        mc.load(source, tmp_path / "t")


def test_a_position_of_brokers_that_told_no_id_is_of_other_brokers(tmp_path: Any) -> None:
    """[LD9]"""
    source = kafka("127.0.0.1:1", TOPIC).open(tmp_path / "t", StorageOptions())
    for now, before in (("kafka:c/orders@X", "kafka:c/orders"), ("kafka:c/orders", "kafka:c/orders@X")):
        source._name = now
        assert source._positions({f"{now}/0": 5, "kafka:c/other/0": 9}) == {0: 5}
        with pytest.raises(SourceError, match=r"its id is \w+ now"):
            source._positions({f"{before}/0": 1})


def test_an_id_that_is_not_told_in_time_ends_the_load(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, tansu: str) -> None:
    """Under a name without it, another loader would load the same records. [LD9]"""
    admin = AdminClient({"bootstrap.servers": tansu, "log_level": 0})
    for made in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
        made.result(20)
    source = kafka(tansu, TOPIC)
    real = kafka_topic.KafkaRecords._id

    def late(self: Any) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(kafka_topic, "_ASK_S", 0.0001)
            return real(self)

    monkeypatch.setattr(kafka_topic.KafkaRecords, "_id", late)
    with pytest.raises(SourceError, match="Nothing more was loaded"):
        mc.load(source, tmp_path / "t")


def test_a_partition_that_lost_records_ends_the_load(tmp_path: Any, cluster: Cluster) -> None:
    """[LD9]"""
    cluster.send({"id": 0})
    source = kafka(cluster.servers, TOPIC)
    mc.write(pa.table({"id": [7, 8, 9]}), tmp_path / "t", watermarks={f"{source.name}/0": (0, 3)})
    with pytest.raises(SourceError, match=r"orders/0 ends at offset 1, and the table has it up to 3"):
        mc.load(source, tmp_path / "t")


@pytest.mark.thorough
def test_brokers_that_do_not_answer_are_named_without_secrets(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SE1]"""
    monkeypatch.setattr(kafka_topic, "_ASK_S", 1.0)
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "hunter2+/="}
    source = kafka(f"127.0.0.1:{free_port()}", TOPIC, settings={**settings, "log_level": 0})
    with pytest.raises(SourceError, match=r"kafka 'orders' at 127\.0\.0\.1:\d+: .*Nothing more was loaded") as caught:
        mc.load(source, tmp_path / "t")
    assert "hunter2" not in f"{caught.value!r} {source!r} {source.__dict__!r}"
    with pytest.raises(UsageError, match="no client for Kafka can be made"):
        mc.load(kafka("127.0.0.1:1", TOPIC, settings={"no.such": "hunter2"}), tmp_path / "t")


def test_a_topic_that_is_not_there_is_named(tmp_path: Any, cluster: Cluster) -> None:
    with pytest.raises(SourceError, match="the topic 'absent' cannot be read"):
        mc.load(kafka(cluster.servers, "absent"), tmp_path / "t")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value": "protobuf"}, "invalid value 'protobuf'"),
        ({"value": "avro"}, "invalid schema None: expected a schema of a record in Avro"),
        ({"value": "avro", "schema": pa.schema([])}, "expected a schema of a record in Avro"),
        ({"value": "avro", "schema": '"long"'}, "expected a schema of a record in Avro"),
        ({"value": "avro", "schema": {}}, "expected a schema of a record in Avro"),
        ({"value": "avro", "schema": avro_of(["int", "string"])}, "a union of more than null and one type"),
        ({"value": "avro", "schema": avro_of({"type": "int", "logicalType": "time-millis"})}, "no column has the type time-millis"),
        ({"value": "avro", "schema": avro_of(["null", "order"])}, "or it holds itself"),
        ({"start": "now"}, "invalid start 'now'"),
        ({"start": dt.datetime(2026, 1, 1)}, "a time with its zone"),
        ({"record_columns": ["offsets"]}, "invalid record_columns"),
        ({"on_broken": "skip"}, "invalid on_broken"),
        ({"settings": {"auto.offset.reset": "latest"}}, r"auto\.offset\.reset is decided here"),
        ({"schema": {"id": "long"}}, "invalid schema"),
        ({"schema": pa.schema([]), "value": "bytes"}, "leave schema out"),
        ({"settings": "abc"}, "invalid settings"),
        ({"settings": {"group.id": None}}, "invalid settings"),
        ({"record_columns": 5}, "invalid record_columns"),
        ({"record_columns": ["offset", "offset"]}, "invalid record_columns"),
        ({"start": {0: True}}, "invalid start"),
    ],
)
def test_wrong_arguments_are_named(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kafka("127.0.0.1:1", TOPIC, **arguments)
