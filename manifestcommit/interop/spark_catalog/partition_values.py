"""Whether Spark reads the values of partition columns from the names of folders as they are. [EX10]

For a table of its catalog, Spark guesses the columns' types from the names, or takes all of them
for texts, as a session says: only texts are read the same in both, once one of the names is no
number and no date.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from ...core.schema.fields import Schema
from ...core.schema.partitioning import NULL_FOLDER, folder
from ...core.schema.wire import WireValue
from ...engine.scan.partition_folders import folders_of, may_prune

_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")


def are_shown(entries: pa.Table, schema: Schema, partition_by: Sequence[int], url: str) -> bool:
    """Whether the folders of these files show Spark exactly the values that the entries hold.

    entries: of files with rows; url: of the table, in which no folder may look like a partition's.
    """
    above = url.split("/")
    if any("=" in part or part.lower() == "_temporary" for part in above):
        return False
    types = {field.id: field.type for field in schema.fields}
    if not may_prune(schema, partition_by) or {types[id] for id in partition_by} != {"string"}:
        return False
    found = folders_of(entries, schema, partition_by)
    values = {} if found is None else found.values
    return bool(values) and all(
        tuple(map(_value, name.split("/"))) == own for name, own in values.items()
    )


def text_folder(schema: Schema, partition_by: Sequence[int]) -> str:
    """A folder in which each partition column is plainly a text, and which holds nothing."""
    ids = tuple(partition_by)
    return folder(schema, ids, ("text",) * len(ids))


def _value(component: str) -> WireValue:
    """What Spark makes of the name of a folder."""
    text = component.partition("=")[2]
    if text == NULL_FOLDER:
        return None
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
