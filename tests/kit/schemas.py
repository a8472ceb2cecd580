"""Hypothesis strategies for schemas, types and the values of a type: hostile names, every primitive, nesting."""

import datetime as dt
import itertools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from manifestcommit import errors
from manifestcommit.format.fields import INTERVALS, PRIMITIVES, ArrayType, Field, FieldType, MapType, Schema, StructType, decimal_parts
from manifestcommit.format.values import Conformer

HOSTILE_NAMES = [
    "a b", "%41", "a+b", "a=b", "#", "'", '"', "`", "a.b", "été", "日本", "🦆", "..", "_x", ".x", "\\", "/", "{", " ", "\t", "Ω",
]  # fmt: skip
BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}

names = st.sampled_from(HOSTILE_NAMES) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: f"decimal({p},{s})"))
primitives = st.sampled_from(sorted(PRIMITIVES)) | st.sampled_from(sorted(INTERVALS)) | decimals
single_value_types = primitives.filter(lambda name: name not in ("void", "variant"))


def column(type: FieldType, *, nullable: bool = True, name: str = "c") -> Schema:
    return Schema(fields=(Field(id=1, name=name, type=type, nullable=nullable),))


def batch(**arrays: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def struct_of(*fields: Field) -> StructType:
    return StructType(fields=fields)


def counter() -> Callable[[], int]:
    """Ids 1, 2, 3, …"""
    return itertools.count(1).__next__


def _nested(inner: st.SearchStrategy[FieldType], name: st.SearchStrategy[str]) -> st.SearchStrategy[FieldType]:
    def member(name: str, nullable: bool | None = None) -> st.SearchStrategy[Field]:
        flags = st.booleans() if nullable is None else st.just(nullable)
        return st.builds(lambda type, flag: Field(id=1, name=name, type=type, nullable=flag), inner, flags)

    keys = inner.filter(lambda type: type != "void").map(lambda type: Field(id=1, name="key", type=type, nullable=False))
    return st.one_of(
        struct_fields(inner, name).map(lambda fields: StructType(fields=fields)),
        member("element").map(lambda element: ArrayType(element=element)),
        st.builds(lambda key, value: MapType(key=key, value=value), keys, member("value")),
    )


def struct_fields(types: st.SearchStrategy[FieldType], name: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[Field, ...]]:
    """Fields with names that differ in more than case."""
    one = st.builds(lambda name, type, nullable: Field(id=1, name=name, type=type, nullable=nullable), name, types, st.booleans())
    return st.lists(one, min_size=1, max_size=4, unique_by=lambda field: field.name.lower()).map(tuple)


def numbered(fields: tuple[Field, ...]) -> Schema:
    """A schema of these fields with ids 1, 2, 3, …"""
    from manifestcommit.format.fields import assign_new_ids

    return assign_new_ids(Schema(fields=fields), counter())


def schemas(leaf: st.SearchStrategy[str] = primitives, name: st.SearchStrategy[str] = names) -> st.SearchStrategy[Schema]:
    """Valid schemas, with types nested a few levels deep."""
    return struct_fields(st.recursive(leaf, lambda inner: _nested(inner, name), max_leaves=4), name).map(numbered)


def values(type: str) -> st.SearchStrategy[Any]:
    """Python values that a column of a primitive type holds exactly."""
    if type in BITS:
        return st.integers(-(2 ** (BITS[type] - 1)), 2 ** (BITS[type] - 1) - 1)
    if type in INTERVALS:
        return st.timedeltas(dt.timedelta(microseconds=-(2**63)), dt.timedelta(microseconds=2**63 - 1))
    if (parts := decimal_parts(type)) is not None:
        precision, scale = parts
        digits = st.integers(-(10**precision) + 1, 10**precision - 1)
        return digits.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))
    return {
        "boolean": st.booleans(), "float": st.floats(width=32), "double": st.floats(),
        "string": st.text(st.characters(exclude_categories=["Cs"])), "binary": st.binary(),
        "date": st.dates() | st.integers(-(2**31), -800_000),
        "timestamp": st.datetimes(timezones=st.just(dt.UTC)) | st.integers(2**62, 2**63 - 1),
        "timestamp_ntz": st.datetimes() | st.integers(-(2**63), -(2**62)),
    }[type]  # fmt: skip


typed_values = single_value_types.flatmap(lambda type: st.tuples(st.just(type), st.none() | values(type)))


def conform(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """One batch in the form of data files."""
    return Conformer(schema).conform(batch)


def foreign(call: Callable[[], Any]) -> str | None:
    """The error of another library that the call ends in."""
    try:
        call()
    except errors.ManifestCommitError:
        return None
    except Exception as error:
        return f"{type(error).__module__}.{type(error).__name__}: {str(error)[:200]}"
    return None
