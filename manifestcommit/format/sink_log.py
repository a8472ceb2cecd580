"""The log of Spark's streaming file sink, through which Spark reads exactly the files that it
names, and lists nothing. [SP4] [EX10] Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

FOLDER = "_spark_metadata"
# Spark's names for file systems that it can read itself, by our scheme.
_HADOOP_SCHEMES = {"file": "file", "s3": "s3a", "gs": "gs", "abfs": "abfs"}
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*", re.ASCII)  # what `quote` leaves unchanged

# A session's own settings must not reduce or change a snapshot. Rebasing: files without Spark's
# mark hold proleptic dates.
SCAN_OPTIONS = {
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
# Footers of other writers bound floats without NaN, which is the greatest value in Spark: pruning
# by them would lose rows.
UNPRUNED = {
    "parquet.filter.stats.enabled": "false",
    "parquet.filter.columnindex.enabled": "false",
    # in those of other writers 0.0 and -0.0 are two values, as below
    "parquet.filter.bloom.enabled": "false",
}
# For a filter 0.0 and -0.0 are equal; in a dictionary, and where Parquet itself compares values,
# they differ, and `x >= 0` misses -0.0.
TWO_ZEROS = {
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.record-level.enabled": "false",
}


def hadoop_url(url: str) -> str | None:
    """A table path in the form of Hadoop, whose file systems Spark reads; None: it has none."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return f"file://{url}" if url.startswith("/") else None
    hadoop = _HADOOP_SCHEMES.get(scheme)
    return None if hadoop is None else f"{hadoop}://{rest}"


def is_skipped(path: str) -> bool:
    """Whether Spark's file sources silently omit such a name, or cannot open it."""
    name = path.rpartition("/")[2]
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or ":" in name


def lines(base: str, files: Iterable[tuple[str, int]], *, first: str = "") -> Iterator[str]:
    """The log that Spark's own sink would have written: its version, then a line of JSON for each
    file, with its path as an escaped URI. base: the table path in Hadoop's form; files: path
    relative to it, and size in bytes; first: members of JSON for the first file's line, each with a
    comma after it, which Spark ignores."""
    yield "v1"
    scheme, root = base.split("://", 1)
    folders: dict[str, str] = {}  # escaped, each once: escaping takes longer than everything else
    for path, size_bytes in files:
        folder, slash, name = path.rpartition("/")
        if folder not in folders:
            folders[folder] = f"{scheme}://{quote(f'{root}/{folder}{slash}')}"
        shown = name if _UNRESERVED.fullmatch(name) else quote(name)
        yield (
            f'\n{{{first}"path":"{folders[folder]}{shown}","size":{size_bytes},"isDir":false,'
            '"modificationTime":0,"blockReplication":1,"blockSize":134217728,"action":"add"}'
        )
        first = ""
