"""Folders qualify for pruning only where their names show what the entries hold. [RD43]"""

from typing import Any

import pytest

from manifestcommit.format.entries import Entry
from manifestcommit.format.fields import CHAR_VARCHAR, Field, Partitioned, Schema
from manifestcommit.format.manifest_table import to_table
from manifestcommit.format.partitioning import folder
from manifestcommit.scan.engine_readers import PartitionFolders, folders_in

PLAIN = {"string": "a b%=/é", "integer": -1, "long": 2**53 + 1, "date": "2013-01-01"}
DOUBTFUL = {"boolean": True, "short": 1, "byte": 1, "decimal(5,2)": "1.20", "timestamp": 0, "timestamp_ntz": 0}


def schema_of(type: str, **changes: Any) -> Schema:
    return Schema(fields=(Field(id=1, name="x", type="long"), Field(id=2, name="p q", type=type, **changes)))


def found(schema: Schema, *values: Any, **changes: Any) -> PartitionFolders | None:
    """Of one file for each value, in the folder of it."""
    known = {"rows": 1, "bytes": 9, "digest": "sha256:" + "0" * 64, "added": 1, "job": "j"}
    entries = [
        Entry(**{"path": f"{folder(schema, (2,), (value,))}{n}.parquet", "partition": (value,), **known, **changes})
        for n, value in enumerate(values)
    ]
    return folders_in(to_table(entries, Partitioned(schema, (2,))), schema, (2,))


@pytest.mark.parametrize("type", PLAIN)
def test_folders_of_plain_values_and_of_null_qualify(type: str) -> None:
    """[RD43] [PT2] Each once, under the column's name in files."""
    schema, value = schema_of(type, physical="old/é"), PLAIN[type]
    folders = found(schema, value, None, value)
    assert folders.columns == (("old/é", type),)
    assert folders.values == {folder(schema, (2,), (each,))[:-1]: (each,) for each in (value, None)}


@pytest.mark.parametrize("value", ["", "null"])
def test_a_text_that_may_be_taken_for_null_does_not_qualify(value: str) -> None:
    """[RD43]"""
    assert found(schema_of("string"), "a", value) is None
    assert found(schema_of("string"), "a", value.upper() or " ") is not None


def test_a_padded_column_does_not_qualify() -> None:
    """[RD43] [RD6] Of a char column two values may be equal that differ."""
    assert found(schema_of("string", metadata={CHAR_VARCHAR: "char(3)"}), "a") is None
    assert found(schema_of("string", metadata={CHAR_VARCHAR: "varchar(3)"}), "a") is not None


ELSEWHERE = ["1.parquet", "p q=b/1.parquet", "P Q=a/1.parquet", "p q=a/x/1.parquet", "x/p q=a/1.parquet"]
NOT_FOUND: list[tuple[str, list[Any], dict[str, Any]]] = [
    *((type, [value], {}) for type, value in DOUBTFUL.items()),  # an engine may read it otherwise
    ("date", ["2013-01-01", "@2932897"], {}),  # of five digits of a year: the folder holds a number of days
    ("string", [None, "__HIVE_DEFAULT_PARTITION__"], {}),  # in one folder: what null's folder is called is a text, too
    ("string", ["a"], {"rows": 0}),  # would be counted by an engine that asks only for partitions
    *(("string", ["a"], {"path": path}) for path in ELSEWHERE),  # values are read from entries, not from paths
]


@pytest.mark.parametrize(("type", "values", "changes"), NOT_FOUND)
def test_folders_that_say_something_else_do_not_qualify(type: str, values: list[Any], changes: dict[str, Any]) -> None:
    """[RD43] [PT2]"""
    assert found(schema_of("string"), "a") is not None
    assert found(schema_of(type), *values, **changes) is None


def test_files_of_others_are_left_out() -> None:
    """[RD43] [DF4] Wherever they are; without other files nothing is left."""
    schema = schema_of("string")
    assert found(schema, "a", digest=None) is None
    own = Entry(path="p q=a/1.parquet", partition=("a",), rows=1, bytes=9, digest="sha256:" + "0" * 64, added=1, job="j")
    other = Entry(path="elsewhere/2.parquet", partition=("b",), rows=1, bytes=9, added=1, job="j")
    folders = folders_in(to_table([own, other], Partitioned(schema, (2,))), schema, (2,))
    assert folders is not None and folders.values == {"p q=a": ("a",)}


def test_a_table_of_partition_columns_alone_or_of_none_does_not_qualify() -> None:
    """[RD43]"""
    only = Schema(fields=(Field(id=2, name="p", type="string"),))
    entry = Entry(path="p=a/1.parquet", partition=("a",), rows=1, bytes=9, digest="sha256:" + "0" * 64, added=1, job="j")
    assert folders_in(to_table([entry], Partitioned(only, (2,))), only, (2,)) is None
    bare = Entry(path="1.parquet", rows=1, bytes=9, digest="sha256:" + "0" * 64, added=1, job="j")
    assert folders_in(to_table([bare], Partitioned(only, ())), only, ()) is None
