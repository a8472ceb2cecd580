"""What clients get wrong by their own fault: others read the same exports right. Anything else that a client gets wrong fails the run.

Each is asserted: a client that reads a table right again has to lose its entry here.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple


class Fault(NamedTuple):
    """said: of what the client says, or of what is wrong with its rows; why: for the page; places: where it happens."""

    said: str
    why: str
    places: tuple[str, ...] = ("disk", "s3")


_NESTED = Fault(r"^wrong values: (struct|items|s\b)", "nulls in structs, lists and maps become empty values: its nested types have no null")
_SPACES = "does not find files whose path has a space or a letter beyond ASCII"
_NAMES = Fault("not found", "does not find files whose path has a space, a colon or a letter beyond ASCII", ("s3",))
_URI = Fault("Bad URI syntax", "refuses a path with spaces", ("s3",))
_MAPPING = Fault("columnMapping", "refuses tables with a renamed column, or one that was added again (`columnMapping`)")
_NO_IDS = Fault("carries no parquet field IDs", "refuses files without field ids, as other programs write them (no name mapping)")
_NAN = Fault("^wrong: [15] rows instead of [48]$", "takes no NaN to be above a number in a filter")
_ZERO = Fault("^wrong: [127] rows instead of [128]$", "takes −0.0 for less than 0.0 in a filter")
_DECIMAL = Fault("Cannot cast to Decimal128", "cannot compare a double with a decimal number in a filter where there are NaN or infinities")
_REUSED = Fault("^wrong: 0 rows instead of", "finds no rows of files in which another column has the name of the one in the filter")
_NO_NULL = Fault("^wrong values: items$", "a null list or map of structs becomes an empty one")
FAULTS: Mapping[str, Mapping[str, Fault]] = {
    "pyiceberg": {
        **dict.fromkeys(("null list of structs", "null map of structs"), _NO_NULL),
        **dict.fromkeys(("where f > 2.5", "where f >= 0"), _NAN),
    },
    "DuckDB delta_scan": {"path with spaces": Fault("Cannot open file|404 Not Found", _SPACES)},
    "Polars scan_delta": {
        **dict.fromkeys(("renamed", "dropped and added again", "compacted", "adopted and renamed"), _MAPPING),
        **{f"where {each}": _MAPPING for each in ("part IS NULL", "part = 7", "part < 8", "old_part = 10", "old_part <> 10")},
        **dict.fromkeys(("partitions of text", "partitions of instants", "partitions of local times", "hostile names", "adopted"), _NAMES),
        "path with spaces": Fault("No such file|not found", _SPACES),
    },
    "ClickHouse iceberg": {
        "where part IS NULL": _REUSED,
        **dict.fromkeys(("nested", "null list of structs", "null map of structs", "columns added"), _NESTED),
        **dict.fromkeys(("where f > 2.5", "where f >= 0"), _NAN),
        "path with spaces": _URI,
    },
    "ClickHouse deltaLake": {
        **dict.fromkeys(("where part IS NULL", "where part = 7", "where part < 8"), _REUSED),
        **dict.fromkeys(("nested", "null list of structs", "null map of structs", "columns added"), _NESTED),
        **dict.fromkeys(("where f > 2.5", "where f >= 0"), _NAN),
        "path with spaces": _URI,
    },
    "Daft read_iceberg": {
        **dict.fromkeys(("adopted", "adopted and renamed", "adopted folders", "adopted old instants"), _NO_IDS),
        **dict.fromkeys(("where f >= 0", "where f = 0"), _ZERO),
    },
    "Daft read_deltalake": {
        **dict.fromkeys(("where f >= 0", "where f < 0", "where f = 0"), _ZERO),
        "adopted and renamed": _NO_IDS,
        "path with spaces": Fault("No such file|not found", _SPACES),
    },
    "Sail iceberg": {
        **dict.fromkeys(("hostile names", "compacted", "adopted"), Fault("Failed to fetch metadata for file", _SPACES)),
        "where f > 2.5": _DECIMAL,
        "path with spaces": Fault("No metadata files found", _SPACES),
    },
    "Sail delta": {"where f > 2.5": _DECIMAL, "path with spaces": Fault("Invalid table location|No commit files", _SPACES)},
}


def objections(place: str, verdicts: Mapping[str, Mapping[str, str]], right: frozenset[str]) -> list[str]:
    """What is unexpected in client -> kind -> verdict: a new fault, another one than is known, or one that is gone. right: verdicts of
    tables that were read right, or that the export refuses."""
    found = []
    for client, kinds in verdicts.items():
        for kind, said in kinds.items():
            fault = FAULTS.get(client, {}).get(kind)
            known = fault is not None and place in fault.places
            if known and fault is not None and not re.search(fault.said, said.removeprefix("error: ")):
                found.append(f"{client} on {place}: {kind!r}: known is {fault.said!r}, and it said: {said}")
            elif not known and said not in right:
                found.append(f"{client} on {place}: {kind!r}: {said}")
    return found
