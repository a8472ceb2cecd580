"""What a Parquet footer and page headers may say, checked before pyarrow believes it. [AF3] [OB4]"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.footers import bytes_of, changed, joined, split, tree_of

import manifestcommit as mc
from manifestcommit.core.format import thrift
from manifestcommit.core.format.parquet_footer import check_footer, decoded_bytes, footer_length

ROWS = pa.table(
    {
        "id": pa.array([1, None, 3, 4], pa.int64()),
        "s": ["é", None, "", "b"],
        "l": [[1, 2], None, [], [None]],
        "d": pa.array([1, 2, None, 3], pa.decimal128(30, 2)),
        "m": pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int32())),
        "t": [{"a": {"b": True}}, None, {"a": None}, {"a": {"b": None}}],
    }
)


def written(rows: pa.Table = ROWS, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


def check(data: bytes) -> Any:
    length = footer_length(data[-8:], len(data))
    found = check_footer(data[-8 - length : -8], len(data))
    for group in found.groups:
        for chunk, leaf in zip(group, found.leaves, strict=True):
            decoded_bytes(data, chunk, leaf)
    return found


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip", "lz4", "brotli"])
@pytest.mark.parametrize("pages", ["1.0", "2.0"])
@pytest.mark.parametrize("rows", [ROWS, ROWS.slice(0, 0), pa.table({}), pa.table({"n": pa.nulls(3), "u": [[], [], []]})])
def test_what_pyarrow_writes_is_sound(codec: str, pages: str, rows: pa.Table) -> None:
    """[AF3] Of any codec, page version, index, dictionary, and of no rows or columns; the check sees what pyarrow sees."""
    for options in ({}, {"use_dictionary": False}, {"write_page_index": True, "row_group_size": 2, "write_page_checksum": True}):
        data = written(rows, compression=codec, data_page_version=pages, **options)
        known, found = pq.read_metadata(pa.BufferReader(data)), check(data)
        assert (found.rows, len(found.leaves), len(found.groups)) == (known.num_rows, known.num_columns, known.num_row_groups)
        for number, (size, group) in enumerate(zip(found.sizes, found.groups, strict=True)):
            theirs = known.row_group(number)
            assert size == theirs.num_rows
            for at, chunk in enumerate(group):
                assert (chunk.values, chunk.raw_bytes) == (theirs.column(at).num_values, theirs.column(at).total_uncompressed_size)
                assert chunk.end - chunk.start == theirs.column(at).total_compressed_size


GROUP = (4, 0)
CHUNK = (4, 0, 1, 0, 3)  # what is said of the values of `id`
STATISTICS = (*CHUNK, 12)
TEXT = (4, 0, 1, 1, 3)

LIES: dict[str, Callable[[bytes], bytes]] = {
    "rows of the file": lambda data: changed(data, 3, to=5),
    "rows beyond all pages": lambda data: changed(changed(data, 3, to=2**62), *GROUP, 3, to=2**62),
    "negative rows": lambda data: changed(changed(data, 3, to=-4), *GROUP, 3, to=-4),
    "no row groups": lambda data: changed(data, 4, to=None),
    "negative size of a row group": lambda data: changed(data, *GROUP, 2, to=-1),
    "a row group without columns": lambda data: changed(data, *GROUP, 1, to=[12, []]),
    "a column too few": lambda data: changed(data, *GROUP, 1, 0, to=None),
    "a column twice": lambda data: _doubled(data),
    "another type than the schema's": lambda data: changed(data, *CHUNK, 1, to=7),
    "a type that there is not": lambda data: changed(data, 2, 1, 1, to=8),
    "members of a value": lambda data: changed(data, 2, 1, 5, to=1, type=5),
    "fixed length without length": lambda data: changed(data, 2, 6, 2, to=None),
    "more columns than the root": lambda data: changed(data, 2, 0, 5, to=1),
    "fewer columns than the root": lambda data: changed(data, 2, 0, 5, to=60),
    "a negative number of columns": lambda data: changed(data, 2, 0, 5, to=-1),
    "an empty group": lambda data: changed(data, 2, 1, 1, to=None),
    "a repetition that there is not": lambda data: changed(data, 2, 1, 3, to=3),
    "a name that is no text": lambda data: changed(data, 2, 1, 4, to=b"\xff"),
    "a column without a name": lambda data: changed(data, 2, 1, 4, to=None),
    "an offset behind the end": lambda data: changed(data, *CHUNK, 9, to=2**40),
    "a negative offset": lambda data: changed(data, *CHUNK, 9, to=-1),
    "a size beyond the end": lambda data: changed(data, *CHUNK, 7, to=10**6),
    "a negative size": lambda data: changed(data, *CHUNK, 7, to=-1),
    "a negative size once decompressed": lambda data: changed(data, *CHUNK, 6, to=-1),
    "other values than rows": lambda data: changed(data, *CHUNK, 5, to=3),
    "negative values": lambda data: changed(data, *CHUNK, 5, to=-1),
    "no offset": lambda data: changed(data, *CHUNK, 9, to=None),
    "no description of a chunk": lambda data: changed(data, *CHUNK, to=None),
    "a chunk in another file": lambda data: changed(data, *CHUNK[:-1], 1, to=b"other.parquet", type=8),
    "an encrypted chunk": lambda data: changed(data, *CHUNK[:-1], 8, to=[], type=12),
    "an encrypted file": lambda data: changed(data, 8, to=[], type=12),
    "a bound that is too short": lambda data: changed(data, *STATISTICS, 5, to=b"1234567"),
    "a bound of nothing": lambda data: changed(data, *STATISTICS, 6, to=b""),
    "more nulls than values": lambda data: changed(data, *STATISTICS, 3, to=5),
    "negative nulls": lambda data: changed(data, *STATISTICS, 3, to=-1),
    "levels that the column lacks": lambda data: changed(data, *CHUNK, 16, to=[[2, 9, [6, [1, 2, 3]]]], type=12),
    "bytes of texts in numbers": lambda data: changed(data, *CHUNK, 16, to=[[1, 6, 9]], type=12),
    "a list of other values": lambda data: changed(data, *CHUNK, 2, to=[8, [b"a"]]),
    "a number of other width": lambda data: changed(data, *CHUNK, 1, to=2**40),
    "orders of other columns": lambda data: changed(data, 7, to=[12, []]),
    "texts of values with too few rows": lambda data: changed(data, *TEXT, 5, to=0),
}


def _doubled(data: bytes) -> bytes:
    body, footer = split(data)
    tree = tree_of(footer)
    columns = next(each[2] for each in next(each[2] for each in tree if each[0] == 4)[1][0] if each[0] == 1)
    columns[1].append(columns[1][0])
    return joined(body, bytes_of(tree))


@pytest.mark.parametrize("lie", list(LIES))
def test_a_footer_that_lies_is_refused(lie: str) -> None:
    """[AF3] [OB4] Before pyarrow sees it: of several of these its `column(i)` ends the process."""
    sound = written()
    assert check(sound).rows == 4
    data = LIES[lie](sound)
    assert data != sound
    with pytest.raises(ValueError):
        check(data)


def test_groups_within_groups_end_somewhere() -> None:
    """[AF3] Who builds a tree of a thousand levels may run out of stack."""
    body, footer = split(written(pa.table({"a": [1]})))
    tree = tree_of(footer)
    schema = next(each[2] for each in tree if each[0] == 2)
    schema[1][1:1] = [[[3, 5, 1], [4, 8, b"g"], [5, 5, 1]] for _ in range(1_000)]
    with pytest.raises(ValueError, match="deep"):
        check(joined(body, bytes_of(tree)))


def test_statistics_of_one_end_alone_are_no_damage() -> None:
    """[AF3] Other writers leave one out, or all."""
    data = written()
    for member in (5, 6):
        data = changed(data, *STATISTICS, member, to=None)
        assert check(data).rows == 4
    assert check(changed(written(), *STATISTICS, to=None)).rows == 4


def test_members_that_nobody_knows_are_passed_over() -> None:
    """[AF3] Later versions of Parquet add some, of any type."""
    data = written()
    for type, value in ((1, None), (3, 7), (6, -5), (7, 1.5), (8, b"x"), (9, [8, [b"a"]]), (12, [[1, 9, [12, [[[1, 5, 3]]]]]])):
        data = changed(data, *CHUNK, 100 + type, to=value if type != 1 else 0, type=type)
    assert check(data).rows == 4


def test_members_of_another_type_are_passed_over() -> None:
    """[AF3] As pyarrow passes over them: Dremio used the number of the Bloom filter's length before Parquet did. Those that are needed
    are missing then."""
    for member, value, type in ((15, b"x", 8), (15, [[1, 8, b"x"]], 12), (15, 0, 1), (13, 5, 6), (14, [8, [b"a"]], 9)):
        data = changed(changed(written(), *CHUNK, member, to=None), *CHUNK, member, to=value, type=type)
        assert check(data).rows == pq.read_table(pa.BufferReader(data)).num_rows == 4
    assert check(changed(written(), *STATISTICS, 5, to=5, type=6)).rows == 4
    with pytest.raises(ValueError, match="lacks its member 5"):
        check(changed(changed(written(), *CHUNK, 5, to=None), *CHUNK, 5, to=b"4", type=8))


@pytest.mark.parametrize("tail", [b"", b"PAR1", b"\0\0\0\0PAR1", b"\xff\xff\xff\x7fPAR1", b"\x01\0\0\0PARE", b"\x59\0\0\0PAR1"])
def test_an_end_that_is_none_is_refused(tail: bytes) -> None:
    """[AF3] The length of a footer lies within the file."""
    with pytest.raises(ValueError):
        footer_length(tail, 100)
    assert footer_length(b"\x58\0\0\0PAR1", 100) == 88


@given(st.binary(max_size=200))
def test_any_bytes_are_a_footer_or_a_value_error(data: bytes) -> None:
    """[OB4] No other error, and an end."""
    with pytest.raises(ValueError):
        check_footer(data, 1_000)


@pytest.mark.parametrize(
    "data",
    [
        b"\x19" + b"\x19" * 50_000,  # lists of lists
        b"\x1c" * 50_000,  # structs of structs
        b"\x1b\x01\xbb" + b"\x01\xbb" * 50_000,  # maps of maps
        b"\x19\xfc\xff\xff\xff\xff\x7f",  # structs beyond the end
        b"\x1b\xff\xff\xff\xff\x7f",
        b"\x18\xff\xff\xff\xff\x7fabc",
        b"\x16" + b"\xff" * 20,  # a number without an end
        b"\x06\x02\x06\x06\x02\x06\x00",  # a member twice
        b"\x1d\x00",  # no type
    ],
)
def test_depth_and_lengths_are_bounded(data: bytes) -> None:
    """[OB4] Whatever is said to follow must be there before memory is taken for it."""
    with pytest.raises(ValueError):
        thrift.read_struct(data, 0, {})


@pytest.mark.parametrize("use", ["adopt", "add", "verify"])
def test_every_reader_of_other_files_checks_their_footers(tmp_path: Path, use: str) -> None:
    """[AF3] [RD2] A value that pyarrow ignores and no sound file has, so that the process lives to tell which reader does not look."""
    lies = changed(written(), *STATISTICS, 3, to=-1)
    name = tmp_path / "f.parquet"
    name.write_bytes(lies if use == "adopt" else written())
    if use == "adopt":
        with pytest.raises(mc.UsageError, match="footer is damaged"):
            mc.Table(str(tmp_path)).adopt()
        return
    mc.Table(str(tmp_path)).adopt()
    table = mc.Table(str(tmp_path))
    name.write_bytes(lies)
    if use == "add":
        (tmp_path / "g.parquet").write_bytes(lies)
        with mc.begin(str(tmp_path)) as job, pytest.raises(mc.UsageError, match="footer is damaged"):
            job.add_files(["g.parquet"])
    else:
        assert [each.kind for each in table.verify(deep=True).findings] == ["file_unreadable"]
