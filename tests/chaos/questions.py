"""What a reader asks beside reading: for the files that a filter leaves, and where a position came from.

What it has read already is held against the answers. Both return findings, as check does.
"""

import operator
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import manifestcommit as mc

FILE = "__filename"  # pyarrow's column: the file that a row was read from
_OPERATORS: tuple[Callable[[Any, Any], Any], ...] = (operator.eq, operator.eq, operator.lt, operator.le, operator.gt, operator.ge)


def read(table: mc.Table, version: int) -> pa.Table:
    """All rows of a version, each with its file."""
    dataset = table.dataset(version=version)
    return dataset.to_table(columns=[*dataset.schema.names, FILE])


def draw_filter(rows: pa.Table, dice: random.Random) -> Any:
    """A filter on any column that at least one of the rows passes."""
    name = dice.choice([each for each in rows.column_names if each != FILE])
    value = rows.column(name)[dice.randrange(rows.num_rows)].as_py()
    return pc.field(name).is_null() if value is None else dice.choice(_OPERATORS)(pc.field(name), value)


def compare_filtered(table: mc.Table, version: int, rows: pa.Table, filter: Any) -> list[str]:
    """No file that holds a matching row is left out, and a filtered read has the rows that match."""
    matching = rows.filter(filter)
    listed = tuple(f"/{path}" for path in table.files(filter, version=version).column("path").to_pylist())
    left_out = [name for name in matching.column(FILE).unique().to_pylist() if not name.endswith(listed)]
    findings = [f"{filter}: {len(left_out)} files that hold matching rows are left out: {left_out[:5]}"] if left_out else []
    filtered = table.dataset(version=version).to_table(filter=filter)
    if _sorted(filtered) != _sorted(matching.drop_columns([FILE])):
        findings.append(f"{filter}: {filtered.num_rows} rows are read with it, and {matching.num_rows} match")
    return findings


def compare_lineage(table: mc.Table, rows: pa.Table, source: str, position: int) -> list[str]:
    """Of a table that only grows: the file that a record was read from is named, with the version that moved the watermark over it."""
    found = table.lineage(source, position)
    held = rows.filter((pc.field("source") == source) & (pc.field("position") == position)).column(FILE).to_pylist()
    what = f"the lineage of {source!r} {position}"
    own = [each for each in found.files if held and held[0].endswith(f"/{each.path}")] if found is not None else []
    if found is None or [each.version for each in own] != [found.version]:
        return [f"{what} is {found}, and it is in {held}"]
    after, before = (table.snapshot(version=max(1, each)).watermarks.get(source, 0) for each in (found.version, found.version - 1))
    return [] if int(before) <= position < int(after) else [f"{what} is version {found.version}, which moved it from {before} to {after}"]


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))
