"""Tables whose changes are followed: rows with what is easily mistaken, any operation, and what the changes have to be."""

import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import manifestcommit as mc

KIND = pa.schema(
    [
        ("id", pa.int64()), ("day", pa.string()), ("x", pa.float64()), ("dec", pa.decimal128(9, 2)), ("tags", pa.list_(pa.string())),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float32()))])), ("m", pa.map_(pa.string(), pa.int64())),
    ]
)  # fmt: skip
DAYS = ["a b%20", "k=v#x?", "'\"ü漢+", None, ""]
XS = [math.nan, -0.0, 0.0, None, 1.5, math.inf]
TAGS: list[Any] = [None, [], [None], ["a", ""], ["a"]]
STRUCTS: list[Any] = [None, {"a": None, "b": None}, {"a": 1, "b": []}, {"a": 1, "b": [None, -0.0]}]
MAPS: list[Any] = [None, [], [("é", None)], [("a", 1), ("b", 2)]]


def rows(*numbers: int | None) -> pa.Table:
    """One row with what is easily mistaken for each number, which is its id; the same number is the same row."""
    found = [
        {
            "id": number, "day": DAYS[(number or 0) % 5], "x": XS[(number or 0) % 6],
            "dec": None if number is None else Decimal(number).scaleb(-2), "tags": TAGS[(number or 0) % 5], "s": STRUCTS[(number or 0) % 4],
            "m": MAPS[(number or 0) % 4],
        }
        for number in numbers
    ]  # fmt: skip
    return pa.Table.from_pylist(found, schema=KIND)


def bag(table: pa.Table) -> Counter[str]:
    """repr tells NaN, -0.0, None and "" apart."""
    return Counter(repr(tuple(row.values())) for row in table.to_pylist())


def rows_at(table: mc.Table, version: int, shown_at: int) -> Counter[str]:
    """The rows of a version in the columns of another, by their ids."""
    there, shown = (table.snapshot(each).schema for each in (version, shown_at))
    data = table.to_arrow(version=version) if version else pa.table({})
    names = {field.id: field.name for field in there.fields} if there else {}
    kinds = table.to_arrow(version=shown_at).schema
    columns = [
        data.column(names[field.id]) if field.id in names else pa.nulls(len(data), kinds.field(field.name).type)
        for field in (shown.fields if shown else ())
    ]
    return bag(pa.table(columns, names=[field.name for field in shown.fields] if shown else []))


def check(table: mc.Table, start: int, end: int, on: str | None = None) -> list[dict[str, Any]]:
    """Version by version the changes lead from the rows before to the rows after, and say no more than what differs."""
    found = table.changed_rows(start, end, on=on).read_all()
    changes = found.select(found.schema.names[:-3])
    told = found.select(found.schema.names[-3:]).to_pylist()
    now = rows_at(table, start, end) if start else Counter()
    seen = [row["_commit_version"] for row in told]
    assert seen == sorted(seen), "version by version"
    for version in range(start + 1, end + 1):
        here = [index for index, each in enumerate(seen) if each == version]
        gone, come = (
            bag(changes.take(pa.array([index for index in here if told[index]["_change_type"] in kinds], pa.int64())))
            for kinds in (("delete", "update_preimage"), ("insert", "update_postimage"))
        )
        assert not gone & come, "a row that goes and comes did not change"
        assert gone <= now
        now = now - gone + come
        assert now == rows_at(table, version, end), version
        if here:
            assert {told[index]["_commit_timestamp"].isoformat() for index in here} == {
                next(each["committed_at"] for each in table.history() if each["version"] == version).isoformat()
            }
    return [row | change for row, change in zip(changes.to_pylist(), told, strict=True)]


def new_table(folder: Path | str, *, by_day: bool = True) -> mc.Table:
    root = f"{folder}/t a%20b+=#'é"
    mc.create_table(root, KIND, partition_by=["day"] if by_day else None)
    return mc.Table(root)


NUMBERS = st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=5).map(lambda found: rows(*found))
OPERATIONS: list[Any] = [
    st.tuples(st.just("append"), NUMBERS),
    st.tuples(st.just("overwrite"), NUMBERS),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("update"), st.integers(0, 9)),
    st.tuples(st.just("merge"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("rollback"), st.integers(0, 20)),
    st.tuples(st.just("columns"), st.integers(0, 5)),
]


def overwrite(table: mc.Table, data: pa.Table) -> None:
    job = mc.begin(table.url)
    job.overwrite()
    job.write(data)
    job.commit()


def alter(table: mc.Table, number: int) -> None:
    names = table.schema.names
    if "new" not in names:
        table.add_column("new", pa.int16())
    elif number % 2:
        table.rename_column("new", f"new {number}")
    else:
        table.drop_column("new")
    if number == 5 and "x" in names:
        table.drop_column("x")


def apply(table: mc.Table, kind: str, value: Any) -> None:
    match kind:
        case "append" | "overwrite":
            known = [name for name in value.schema.names if name in table.schema.names]
            data = value.select(known)
            if kind == "append":
                mc.write(data, table.url)
            else:
                for name in table.schema.names:
                    if name not in known:
                        data = data.append_column(name, pa.nulls(len(data), table.schema.field(name).type))
                overwrite(table, data)
        case "delete":
            table.delete(f"id = {value}")
        case "update":
            table.update({"dec": "dec + 1", "day": "'moved'"}, f"id = {value}")
        case "merge":
            source = rows(*value)
            source = source.set_column(3, "dec", pa.array([Decimal("9.99")] * len(source), pa.decimal128(9, 2)))
            for name in set(source.schema.names) - set(table.schema.names):
                source = source.drop_columns([name])
            for name in table.schema.names:
                if name not in source.schema.names:
                    source = source.append_column(name, pa.array([7] * len(source), table.schema.field(name).type))
            table.merge(source.select(table.schema.names), on="id")
        case "compact":
            table.compact()
        case "rollback":
            if target := value % table.version:
                table.rollback(target, reason="any")
        case "columns":
            alter(table, value)


def kinds(changes: list[dict[str, Any]]) -> Counter[tuple[str, int | None]]:
    return Counter((row["_change_type"], row["id"]) for row in changes)
