"""Makes the frozen table of a release: python tests/compat/freeze.py tests/compat/fixtures/v0.1

Run once per release that changes what is written, by the release itself, into a folder of its own. What it made is never edited
or made again: later releases have to read it. Beside the table stands expected.json with what this release read from every version.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.budgets import budgets

import manifestcommit as mc

HOSTILE = ["", None, "a b", "%41", "a/b", "é 日本", "a=b+c#'\""]
MOMENT = dt.datetime(2013, 1, 31, 23, 59, 59, 999_999)
STRUCT = pa.struct([("a", pa.int32()), ("b c", pa.string())])

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("p", pa.string()),
        ("n", pa.int16()),
        ("v", pa.int32()),
        ("f", pa.float32()),
        ("dec", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("st", STRUCT),
    ]
)

# One column of every type, in a table of its own; nulls come last.
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-(2**7), 2**7 - 1]),
    "short": (pa.int16(), [-(2**15), 2**15 - 1]),
    "integer": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "unsigned": (pa.uint64(), [0, 2**64 - 1]),
    "float": (pa.float32(), [math.nan, -0.0]),
    "double": (pa.float64(), [math.inf, 5e-324]),
    "decimal": (pa.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0123456789"), Decimal("1E-10")]),
    "string": (pa.string(), ["'\"%\x1b\n\x00", "\U0010ffff" * 70]),
    "binary": (pa.binary(), [b"", b"\x00\xff" * 40]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 4)]),
    "timestamp": (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=dt.UTC), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)]),
    "timestamp_ntz": (pa.timestamp("us"), [MOMENT, dt.datetime(1582, 10, 4)]),
    "interval": (pa.duration("us"), [dt.timedelta(days=-1, microseconds=1), dt.timedelta(0)]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("k", 1.5), ("", None)], []]),
    "nested": (pa.list_(STRUCT), [[{"a": 1, "b c": None}, None], []]),
}


def rows(first: int, partitions: list[str | None], **columns: Any) -> pa.Table:
    """One row per partition value, every third one null in all that may be null."""
    whole = {
        "v": 2**31 - 1,
        "f": 0.5,
        "dec": Decimal("-1234567.89"),
        "s": ["'\"%\x1b\n", "x" * 100],
        "st": {"a": 1, "b c": None},
    }
    arrays: dict[str, list[Any]] = {"id": [first + at for at in range(len(partitions))], "p": list(partitions)}
    arrays["n"] = [None if at % 4 == 3 else at % 2 for at in range(len(partitions))]
    for name, value in (whole | columns).items():
        choices = value if isinstance(value, list) else [value]
        arrays[name] = [None if at % 3 == 2 else choices[at % len(choices)] for at in range(len(partitions))]
    kinds = {field.name: field.type for field in SCHEMA if field.name not in columns}
    return pa.table({name: pa.array(values, kinds.get(name)) for name, values in arrays.items()})


def make(root: Path) -> None:
    """A table with everything that changes over time, version by version."""
    table = mc.create_table(root, SCHEMA, partition_by=["p", "n"], properties={"owner": "é 'x'", "write.bounds-columns": "4"})
    mc.write(rows(0, HOSTILE), root, key="load:1", watermarks={"MyTopic:0": (0, 50), "MyTopic:1": (7, 7)})
    mc.write(rows(10, ["a b", "a/b"]), root, key="load:2", watermarks={"MyTopic:0": (50, 2**62), "log 'é'": (None, "opaque")})
    wider = rows(20, ["a b", None]).drop_columns(["v", "f"])
    wider = wider.append_column("v", pa.array([2**40, -(2**40)])).append_column("f", pa.array([1e300, math.nan]))
    mc.write(wider.append_column("extra", pa.array(["added", None])), root, merge_schema=True)
    table.rename_column("dec", "amount")
    table.drop_column("s")
    table.drop_column("st")
    mc.write(_without(rows(30, [""]), "s", "st"), root)
    table.add_column("s", pa.int64())
    mc.write(_without(rows(40, ["%41", None], s=[7, 8]), "st"), root, fingerprint="f", key="load:3")
    _spilled(root, table)


def _without(table: pa.Table, *names: str) -> pa.Table:
    """Rows for the table as it is after its renaming and droppings."""
    return table.drop_columns(list(names)).rename_columns({"dec": "amount"})


def _spilled(root: Path, table: mc.Table) -> None:
    """Entries go to manifests, then keys, jobs and removals to runs, then manifests are merged; the last versions are inlined again."""
    with budgets(inline_entry_bytes=1):
        mc.write(_late(50, ["a b", None]), root)
        mc.write(_late(60, ["a/b"]), root, mode="overwrite", overwrite={"p": "a/b"}, key="replace:1")
    with budgets(inline_keys=1, inline_jobs=1, inline_removed_bytes=1):
        mc.write(_late(70, [None]), root, mode="overwrite", overwrite="dynamic", conflict="blind")
    with budgets(inline_entry_bytes=1, fan_in=2):
        mc.write(_late(80, ["x"]), root, key="load:4", watermarks={"MyTopic:1": (7, 9)})
    _add_file(root, table)
    mc.write(_late(90, ["a b"]), root, mode="overwrite", overwrite="dynamic")
    table.rename_column("p", "part of 'it'")
    with mc.begin(root, key="empty batch") as job:
        job.advance("MyTopic:0", 2**62, 2**62 + 1)
    table.set_properties({"owner": None, "note": "last"})


def _add_file(root: Path, table: mc.Table) -> None:
    """A file that something else wrote, without one of the columns."""
    live = next(path for path in table.files()["path"].to_pylist() if path.startswith("p=x"))
    names = pq.read_schema(root / live).names
    given = rows(95, ["z"])
    (root / "from elsewhere").mkdir()
    path = "from elsewhere/é 1.parquet"
    pq.write_table(given.select([name for name in names if name in given.column_names and name != "s"]), root / path)
    with mc.begin(root, key="adopted") as job:
        job.add_files([path])


def _late(first: int, partitions: list[str | None]) -> pa.Table:
    return _without(rows(first, partitions, s=[9]), "st")


def make_types(root: Path) -> None:
    """A row of lows, a row of highs, a row of nulls."""
    columns = {name: pa.array([*values, None], kind) for name, (kind, values) in TYPES.items()}
    mc.write(pa.table({"id": [0, 1, 2], **columns}), root)


# --- what is read back -------------------------------------------------------------------------------------------------


def shown(value: Any) -> Any:
    """A value in JSON, every type told apart: what tests compare."""
    if isinstance(value, float):
        return f"float {value!r}"
    if isinstance(value, bytes):
        return f"hex {value.hex()}"
    if isinstance(value, Decimal):
        return f"decimal {value}"
    if isinstance(value, dt.timedelta):
        return f"micros {value // dt.timedelta(microseconds=1)}"
    if isinstance(value, dt.datetime):
        return f"instant {value.astimezone(dt.UTC).isoformat()}" if value.tzinfo else f"local {value.isoformat()}"
    if isinstance(value, dt.date):
        return f"date {value.isoformat()}"
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [shown(each) for each in value]
    return value


def describe(table: mc.Table, version: int) -> dict[str, Any]:
    """Everything that a version says, in JSON."""
    snapshot = table.snapshot(version=version)
    found = table.dataset(version=version).to_table().sort_by("id")
    files = table.files(version=version).sort_by("path")
    return {
        "committed_at": snapshot.committed_at,
        "operations": [[commit.operation, commit.key, commit.job] for commit in snapshot.commits],
        "columns": [[field.name, str(field.type)] for field in found.schema],
        "rows": shown(found.to_pylist()),
        "files": shown(files.to_pylist()),
        "watermarks": dict(snapshot.watermarks),
        "properties": dict(snapshot.properties),
        "totals": [snapshot.totals.files, snapshot.totals.rows, snapshot.totals.bytes],
        "spilled": [len(snapshot.manifests), len(snapshot.key_runs), len(snapshot.job_runs), len(snapshot.removed_runs)],
        "removed": len(snapshot.removed),
    }


def describe_all(root: Path) -> dict[str, Any]:
    """All versions; rows and files that several of them share are told once, and named by their place in a list."""
    table = mc.Table(root)
    history = table.history()
    shared: dict[str, list[Any]] = {"rows": [], "files": []}
    versions = {}
    for version in range(1, history[0]["version"] + 1):
        described = describe(table, version)
        for name, known in shared.items():
            known += [each for each in described[name] if each not in known]
            described[name] = [known.index(each) for each in described[name]]
        versions[str(version)] = described
    return {
        "objects": digests(root),
        "keys": {row["key"]: row["version"] for row in history if row["key"]},
        "jobs": {row["job"]: row["version"] for row in history},
        "versions": versions,
        **shared,
    }


def digests(root: Path) -> dict[str, str]:
    """Every object of the table and the sha256 of its bytes."""
    found = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def main(folder: Path) -> None:
    """Make the tables and what is expected of them; refuses a folder that is there already."""
    folder.mkdir(parents=True)
    made = {"evolved": make, "types": make_types}
    for name, maker in made.items():
        maker((folder / name).absolute())
    expected = {"release": mc.__version__, "tables": {name: describe_all((folder / name).absolute()) for name in made}}
    text = json.dumps(expected, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size:,} bytes, {len(text):,} of them expectations")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
