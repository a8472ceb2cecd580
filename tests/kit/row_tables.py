"""Two tables with what is easily lost or matched by mistake, and what deletions and merges are to leave of them."""

import math
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import manifestcommit as mc
from manifestcommit.table import Table

NAN = math.nan
DAYS = ["a b%20", "k=v#x?", "'\"ü漢+", None, ""]


def rows(first: int, *, day: Any = "each") -> pa.Table:
    """Ten rows with what is easily lost or matched by mistake: nulls, NaN, -0.0, quotes, empty texts, close decimals."""
    return pa.table(
        {
            "day": pa.array([DAYS[n % 5] if day == "each" else day for n in range(10)], pa.string()),
            "id": pa.array([None if n == 9 else first + n for n in range(10)], pa.int64()),
            "x": pa.array([NAN, -0.0, None, 1.5, 0.0, -NAN, math.inf, 2.0, None, -1.0], pa.float64()),
            "dec": pa.array([None if n == 3 else Decimal(first + n).scaleb(-2) for n in range(10)], pa.decimal128(9, 2)),
            "text": pa.array(["it's", "é\U0001f600", "", None, "\\", '"', "%", "a_b", "NULL", "null"], pa.string()),
        }
    )


def shown(table: pa.Table) -> list[str]:
    """Every row as text, sorted: repr tells NaN, None and "" apart."""
    return sorted(repr(tuple(each.values())) for each in table.to_pylist())


def content(table: Table) -> list[str]:
    return shown(table.dataset().to_table())


def ids(table: Table) -> list[int]:
    return sorted(table.dataset().to_table(columns=["id"]).column("id").to_pylist())


def make_base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, pa.Table]]:
    """A partitioned and a plain table of 40 rows; the id of the plain one was renamed, and its last file knows a column more."""
    made = {}
    parts = [rows(first) for first in (0, 10, 20, 30)]
    for name, by in (("partitioned", ["day"]), ("plain", [])):
        root = str(tmp_path_factory.mktemp(name) / "t a%20b+=#'é")
        for part in parts:
            mc.write(part if by else part.rename_columns(["day", "old id", "x", "dec", "text"]), root, partition_by=by)
        if not by:
            Table(root).rename_column("old id", "id")
            Table(root).add_column("late", pa.int32())
        made[name] = (root, pa.concat_tables(parts))
    return made


def copy(base: dict[str, tuple[str, pa.Table]], name: str, to: Path, *, emptied: bool = False) -> tuple[Table, pa.Table]:
    """The table and its rows. emptied: the files of one partition have no bytes any more."""
    root, data = base[name]
    shutil.copytree(root, to / "t a%20b+=#'é")
    table = Table(to / "t a%20b+=#'é")
    for path in table.files(pc.field("day") == "k=v#x?").column("path").to_pylist() if emptied else ():
        (to / "t a%20b+=#'é" / path).write_bytes(b"")
    if name == "plain":
        data = data.append_column("late", pa.nulls(len(data), pa.int32()))
    return table, data


def with_repeated_keys(base: dict[str, tuple[str, pa.Table]], name: str, to: Path) -> tuple[Table, pa.Table, pa.Table]:
    """A table that has some keys twice, its rows, and a source to be merged, of which some keys are null."""
    table, data = copy(base, name, to)
    twice, source = rows(10).slice(0, 4), changed([1, 2, 11, 13, 16, 41, 42, None, None])
    if name == "plain":
        twice, source = (each.append_column("late", pa.nulls(len(each), pa.int32())) for each in (twice, source))
    mc.write(twice, table.url)
    return table, pa.concat_tables([data, twice]), source


CONDITIONS = [
    "id = 3 OR id = 13", "NOT (id IN (1, 2, NULL))", "id IN (1, 2, 25, NULL)", "x > 1", "NOT (x <= 0)", "text = 'it''s'", "text LIKE 'é%'",
    "dec >= 0.15 AND text IS NOT NULL", "day IS NULL AND id < 25", "day = 'k=v#x?' OR text = ''", "day IN ('a b%20', '')",
    "length(text) > 3", "day = '''\"ü漢+' AND NOT (x = 3.0)",
]  # fmt: skip


def changed(ids: list[int | None], day: str | None = "k=v#x?") -> pa.Table:
    """A source's rows with these ids."""
    count = len(ids)
    return pa.table(
        {
            "day": pa.array([day] * count, pa.string()), "id": pa.array(ids, pa.int64()), "x": pa.array([NAN] * count, pa.float64()),
            "dec": pa.array([Decimal("9.99")] * count, pa.decimal128(9, 2)), "text": pa.array([f"new {each}" for each in ids], pa.string()),
        }
    )  # fmt: skip


def merged(target: pa.Table, source: pa.Table, on: list[str], matched: str | None, unmatched: str | None) -> list[str]:
    """What a merge is to leave, row by row. [RC3]"""

    def key(row: dict[str, Any]) -> Any:
        values = tuple(row[name] for name in on)
        return None if None in values else values

    new = {key(row): row for row in source.to_pylist() if key(row) is not None}
    there = {key(row) for row in target.to_pylist()}
    kept = []
    for row in target.to_pylist():
        hit = key(row) is not None and key(row) in new
        if not hit or matched is None:
            kept.append(row)
        elif matched == "update":
            kept.append(new[key(row)])
    if unmatched:
        kept += [row for row in source.to_pylist() if key(row) is None or key(row) not in there]
    return sorted(repr(tuple(row.values())) for row in kept)


MERGES: list[tuple[str, list[str], str | None, str | None]] = [
    ("partitioned", ["id"], "update", "insert"), ("partitioned", ["day", "id"], "delete", None), ("plain", ["ID"], None, "insert"),
    ("plain", ["id"], "update", None), ("plain", ["id", "day"], "delete", "insert"), ("partitioned", ["day", "id"], "update", "insert"),
]  # fmt: skip

# What a merge by clauses takes, and for each case the arguments of `Table.merge` and the same in DuckDB's SQL.
SOURCE = pa.table(
    {
        "op": ["u", "d", "u", "u", "i", "i", None, "u"],
        "id": pa.array([1, 2, 13, 24, 41, 42, None, 35], pa.int64()),
        "x": [0.5, None, 2.5, None, 1.0, None, 9.0, 3.5],
        "text": ["one", "two", None, "it's", "new", "neu ü", "no key", "x"],
        "day": ["a b%20", None, "k=v#x?", "", "'\"ü漢+", "2013", "a b%20", "%"],
    }
)
U, D, I = mc.Update, mc.Delete, mc.Insert  # noqa: E741  # as in the table below

CLAUSE_MERGES: dict[str, tuple[dict[str, Any], str]] = {
    "some columns with expressions": (
        {"when_matched": U(set={"x": "target.x + source.x", "text": "source.text || '!'"}), "when_not_matched": None},
        "WHEN MATCHED THEN UPDATE SET x = target.x + source.x, text = source.text || '!'",
    ),
    "several clauses in order": (
        {
            "when_matched": [D(where="op = 'd'"), U(set={"x": "source.x"}, where="source.x > 1"), U(set={"text": "'rest'"})],
            "when_not_matched": [
                I(values={"id": "id", "day": "day", "text": "concat('<', text, '>')"}, where="op = 'i' AND x IS NULL"),
                I(values={"id": "id", "day": None, "x": 7}, where="op = 'i'"),
            ],
        },
        """WHEN MATCHED AND op = 'd' THEN DELETE
        WHEN MATCHED AND source.x > 1 THEN UPDATE SET x = source.x
        WHEN MATCHED THEN UPDATE SET text = 'rest'
        WHEN NOT MATCHED AND op = 'i' AND source.x IS NULL THEN
            INSERT (id, day, text) VALUES (source.id, source.day, '<' || source.text || '>')
        WHEN NOT MATCHED AND op = 'i' THEN INSERT (id, x) VALUES (source.id, 7)""",
    ),
    "a source with some columns": (
        {"when_matched": U(), "when_not_matched": I()},
        """WHEN MATCHED THEN UPDATE SET id = source.id, x = source.x, text = source.text, day = source.day
        WHEN NOT MATCHED THEN INSERT (id, x, text, day) VALUES (source.id, source.x, source.text, source.day)""",
    ),
    "not matched by source": (
        {
            "when_matched": None,
            "when_not_matched": None,
            "when_not_matched_by_source": [U(set={"text": "'gone'", "day": "NULL"}, where="id > 20"), D(where="x > 1")],
        },
        """WHEN NOT MATCHED BY SOURCE AND target.id > 20 THEN UPDATE SET text = 'gone', day = NULL
        WHEN NOT MATCHED BY SOURCE AND target.x > 1 THEN DELETE""",
    ),
    "all of them": (
        {
            "when_matched": [U(set={"day": "'a b%20'", "id": "target.id + 100"}, where="target.day IS NOT NULL"), D()],
            "when_not_matched": "insert",
            "when_not_matched_by_source": "delete",
        },
        """WHEN MATCHED AND target.day IS NOT NULL THEN UPDATE SET day = 'a b%20', id = target.id + 100
        WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED THEN INSERT (id, x, text, day) VALUES (source.id, source.x, source.text, source.day)
        WHEN NOT MATCHED BY SOURCE THEN DELETE""",
    ),
    "a condition beside the key": (
        {
            "where": "target.x > 1 OR source.op = 'd'",
            "when_matched": [D(where="op = 'd'"), U(set={"text": "source.text"})],
            "when_not_matched": I(),
            "when_not_matched_by_source": [U(set={"text": "'gone'"}, where="id > 5")],
        },
        """AND (target.x > 1 OR source.op = 'd') WHEN MATCHED AND op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET text = source.text
        WHEN NOT MATCHED THEN INSERT (id, x, text, day) VALUES (source.id, source.x, source.text, source.day)
        WHEN NOT MATCHED BY SOURCE AND target.id > 5 THEN UPDATE SET text = 'gone'""",
    ),
}


def merged_by_clauses(data: pa.Table, sql: str) -> pa.Table:
    """What DuckDB's MERGE of `SOURCE` leaves of the rows."""
    with duckdb.connect() as model:
        model.register("rows", data)
        model.register("source", SOURCE)
        model.execute("CREATE TABLE target AS SELECT * FROM rows")
        model.execute(f"MERGE INTO target USING source ON target.id = source.id {sql}")
        return model.sql("SELECT * FROM target").to_arrow_table().cast(data.schema)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    base = pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([1, 2], pa.int32()), "s": [{"a": 1}, {"a": 2}]})
    mc.write(base, tmp_path / "t")
    mc.write(base.slice(0, 1).set_column(0, "id", pa.array([9], pa.int32())), tmp_path / "t")
    return tmp_path / "t"
