"""Avro that is written by columns is read back, by rows and by another library's reader. [EX5]"""

import contextlib
import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.export import avro

INTS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(st.tuples(INTS, st.text(), st.one_of(st.none(), st.binary()), st.booleans()), max_size=40)
SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "number", "type": "long", "field-id": 1},
        {"name": "text", "type": "string", "field-id": 2},
        {"name": "data", "type": ["null", "bytes"], "field-id": 3},
        {"name": "flag", "type": "boolean", "field-id": 4},
    ],
}


def written(rows: list[tuple[Any, ...]]) -> bytes:
    numbers, texts, data, flags = ([row[at] for row in rows] for at in range(4))
    known = pa.array([value is not None for value in data], pa.bool_())
    columns = [
        avro.longs(numbers),
        avro.texts(pa.array(texts, pa.string())),
        avro.optional(known, avro.texts(pa.array([value or b"" for value in data], pa.binary()))),
        avro.fixed(pa.array(flags, pa.bool_()).cast(pa.uint8())),
    ]
    return avro.container(SCHEMA, columns, {"a": "b"})


@given(rows=ROWS)
def test_what_is_written_is_read_back(rows: list[tuple[Any, ...]]) -> None:
    """[EX5]"""
    data = written(rows)
    assert [tuple(row.values()) for row in avro.read_rows(data)] == rows
    assert data == written(rows)


def test_another_reader_reads_it() -> None:
    """[EX5]"""
    from pyiceberg.avro.file import AvroFile

    rows = [(number * 7**20 % 2**62 - 2**61, f"ü{number}", b"x" if number % 3 else None, number % 2 == 0) for number in range(20_000)]
    data = written(rows)

    class Input:
        def open(self, seekable: bool = True) -> Any:
            return io.BytesIO(data)

    with AvroFile(Input()) as file:  # type: ignore[arg-type]
        assert [(row[0], row[1], row[2], row[3]) for row in file] == rows


@given(rows=ROWS.filter(bool), at=st.integers(0), bit=st.integers(0, 7))
def test_damage_is_an_error_or_shows_other_rows_and_nothing_else(rows: list[tuple[Any, ...]], at: int, bit: int) -> None:
    """[EX5]"""
    data = bytearray(written(rows))
    data[at % len(data)] ^= 1 << bit
    for damaged in (bytes(data), bytes(data[: at % len(data)])):
        with contextlib.suppress(ValueError):
            assert all(isinstance(row, dict) for row in avro.read_rows(damaged))


def test_what_is_no_container_is_refused() -> None:
    """[EX5]"""
    blocks = avro.container(SCHEMA, [avro.constant(b"\x00" * 4, 10)], {})
    assert len(avro.read_rows(blocks)) == 10
    with pytest.raises(ValueError, match="no Avro container"):
        avro.read_rows(b"Obj\x01")
    with pytest.raises(ValueError, match="no Avro container"):
        avro.read_rows(b"PAR1")
