"""Exports tables of every kind, has each client read them, and says what became of each. [EX1] [EX3] [EX6] [EX8] [EX9]"""

import contextlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from tests.clients.environments import REPO, clients_in, python_of
from tests.clients.readers import READERS, S3
from tests.export.clients import local, plain
from tests.export.kinds import KINDS
from tests.kit.filter_kinds import table_of_bounds

import manifestcommit as mc

SAME, REFUSED = "same", "refused by the export"
FILES = 10_000
# of SQL that every client understands
CONDITIONS = (
    "f > 2.5", "f >= 0", "f <= 0", "f < 0", "f = 0", "f IS NULL", "t = 'b'", "t > 'zz'", "t = ''", "t IS NULL",
    "d < DATE '1970-01-01'", "d > DATE '9000-01-01'", "d IS NULL", "l < 0", "m > 1", "m < 0", "b = true",
)  # fmt: skip
CONDITIONS_OF_NAMES = ("part IS NULL", "part = 7", "part < 8", "old_part = 10", "old_part <> 10")
_TIMEOUT_S = 600


class Exported(NamedTuple):
    """A table of a kind. wanted: column -> how often each of its values is in the rows; rows: the same of whole rows; refused: format ->
    why it cannot be exported to it; where: the condition for whose rows the client is asked."""

    root: str
    schema: pa.Schema
    wanted: Mapping[str, Counter[str]]
    rows: Counter[tuple[str, ...]]
    refused: Mapping[str, str]
    where: str | None = None


def many_more_files(path: str) -> mc.Table:
    """A table of 10,000 files."""
    with mc.begin(path) as job:
        job.write(pa.table({"n": pa.array(range(FILES), pa.int64()), "part": pa.array(range(FILES), pa.int32())}), partition_by=["part"])
        job.commit()
    return mc.Table(path)


def make(folder: str, *, names: Sequence[str] | None = None, large: bool = True) -> dict[str, Exported]:
    """Kind -> its table below the folder, exported to both formats."""
    kinds = {**KINDS, **({"10,000 files": many_more_files} if large else {})}
    found = {}
    for number, (name, make_kind) in enumerate(kinds.items()):
        if names and name not in names:
            continue
        table, refused = make_kind(f"{folder}/{number:02d}/t"), {}
        for format in ("iceberg", "delta"):
            try:
                table.export(format)
            except mc.errors.UsageError as error:
                refused[format] = str(error)
        schema = table.dataset().schema
        columns = columns_of(table.dataset().to_table(), schema)
        root = table.url if "://" in folder else local(table)
        counted = {column: Counter(values) for column, values in columns.items()}
        found[name] = Exported(root, schema, counted, Counter(zip(*columns.values(), strict=True)), refused)
    if not names:
        local_only = "://" not in folder
        found |= filtered(table_of_bounds(f"{folder}/filtered/t"), CONDITIONS, local_only=local_only)
        found |= filtered(table_of_names(f"{folder}/names/t"), CONDITIONS_OF_NAMES, local_only=local_only)
    return found


def table_of_names(path: str) -> mc.Table:
    """A table with a column that has the name which another column has in the older file."""
    mc.write(pa.table({"n": pa.array([1, 2], pa.int64()), "part": pa.array([10, 20], pa.int64())}), path)
    table = mc.Table(path)
    table.rename_column("part", "old_part")
    table.add_column("part", "long")
    mc.write(pa.table({"n": pa.array([3], pa.int64()), "old_part": pa.array([30], pa.int64()), "part": pa.array([7], pa.int64())}), path)
    for format in ("iceberg", "delta"):
        table.export(format)
    return table


def filtered(table: mc.Table, conditions: Sequence[str], *, local_only: bool) -> dict[str, Exported]:
    """ "where …" -> the rows of a table for which the condition holds, as DuckDB finds them in memory, without statistics."""
    data = table.to_arrow()
    session = duckdb.connect()
    session.register("arrow", data)
    session.execute("CREATE TABLE rows AS FROM arrow")
    found = {}
    for condition in conditions:
        kept = {row[0] for row in session.execute(f"SELECT n FROM rows WHERE {condition}").fetchall()}
        columns = columns_of(data.filter(pc.is_in(data["n"], pa.array(sorted(kept), pa.int64()))), data.schema)
        counted = {column: Counter(values) for column, values in columns.items()}
        rows, root = Counter(zip(*columns.values(), strict=True)), local(table) if local_only else table.url
        found[f"where {condition}"] = Exported(root, data.schema.remove_metadata(), counted, rows, {}, condition)
    return found


def columns_of(table: pa.Table, schema: pa.Schema) -> dict[str, list[str]]:
    """Column -> its values as texts that compare whichever library showed them."""
    found = {}
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            with contextlib.suppress(pa.ArrowException):  # such as a struct of other types: its values are compared as Python has them
                column = column.cast(field.type)
        found[field.name] = [repr(plain(value, field.type)) for value in column.to_pylist()]
    return found


def verdict(table: pa.Table, exported: Exported) -> str:
    """What is wrong with what a client has read."""
    schema = exported.schema
    if sorted(table.column_names) != sorted(schema.names):
        return f"wrong columns: {', '.join(table.column_names)}"
    if table.num_rows != exported.rows.total():
        return f"wrong: {table.num_rows} rows instead of {exported.rows.total()}"
    odd = []
    for field in schema:
        try:
            is_same = Counter(columns_of(table.select([field.name]), pa.schema([field]))[field.name]) == exported.wanted[field.name]
        except (AttributeError, KeyError, TypeError, ValueError):
            is_same = False
        if not is_same:
            odd.append(field.name)
    if odd:
        return f"wrong values: {', '.join(odd)}"
    columns = columns_of(table, schema)
    return SAME if Counter(zip(*columns.values(), strict=True)) == exported.rows else "wrong: the values of several rows are mixed"


def read_all(tables: Mapping[str, Exported], environment: str, folder: Path, s3: S3 | None) -> dict[str, dict[str, str]]:
    """Client -> kind -> the verdict, for the clients of an environment."""
    jobs: list[dict[str, Any]] = []
    found = {client: dict[str, str]() for client in clients_in(environment)}
    for number, client in enumerate(READERS):
        for at, (name, exported) in enumerate(tables.items()):
            if client in found and format_of(client) not in exported.refused:
                out = folder / f"{number}-{at}.arrow"
                jobs.append({"client": client, "kind": name, "root": exported.root, "s3": s3, "where": exported.where, "out": str(out)})
    (folder / "jobs.json").write_text(json.dumps(jobs), "utf-8")
    run_readers(python_of(environment), folder / "jobs.json", len(jobs))
    for client in found:
        found[client] = {name: REFUSED for name, exported in tables.items() if format_of(client) in exported.refused}
    for job in jobs:
        out, error = Path(job["out"]), Path(job["out"]).with_suffix(".error")
        if error.exists():
            said = "error: " + " ".join(error.read_text("utf-8").split())[:300]
        else:
            with pa.memory_map(str(out)) as source:
                said = verdict(pa.ipc.open_file(source).read_all(), tables[job["kind"]])
        found[job["client"]][job["kind"]] = said.replace(job["root"], "…")
    return found


def run_readers(python: str, jobs: Path, most: int) -> None:
    """Run the jobs; where a client ends the process, the next one goes on behind it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPARK_", "PYSPARK_"))}
    for _ in range(most + 1):
        command, env = [python, str(REPO / "tests" / "clients" / "readers.py"), str(jobs)], {**env, "PYTHONPATH": ""}
        ended = subprocess.run(command, cwd=jobs.parent, env=env, timeout=_TIMEOUT_S, capture_output=True, check=False)
        if ended.returncode == 0:
            return
    raise RuntimeError(f"{python}: {ended.stderr.decode(errors='replace')[-2000:]}")


def format_of(client: str) -> str:
    """The format that a client reads."""
    return "iceberg" if "iceberg" in client else "delta"
