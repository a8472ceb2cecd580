"""Entries (one data file each), references to manifests (many entries each), and what tasks of
recoverable jobs leave of them. [OB5] [OB6] [AB6] Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Annotated, TypeVar

import msgspec

from .fields import Closed, Stored, WireValue

# Packs neighbours into bins of a given capacity: files of a read into tasks, row groups into
# portions, manifests into one manifest.

_T = TypeVar("_T")


def pack_bins(
    sized: Iterable[tuple[_T, int]], capacity: int, most: int | None = None
) -> Iterator[list[_T]]:
    """Pack neighbours together, as many as fit, at most so many; one too large is alone."""
    group: list[_T] = []
    total = 0
    for item, size in sized:
        if group and (total + size > capacity or len(group) == most):
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group


# Row bitmaps: which rows of a manifest have been removed since it was written.


def encode(bitmap: int) -> str:
    """The wire form, without trailing zero bytes. [OB9]"""
    return base64.b64encode(bitmap.to_bytes((bitmap.bit_length() + 7) // 8, "little")).decode(
        "ascii"
    )


def decode(text: str) -> int:
    """The bitmap of a wire form; ValueError if it is not one. [OB9]"""
    try:
        return int.from_bytes(base64.b64decode(text, validate=True), "little")
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None


def from_rows(rows: list[int]) -> int:
    """The bitmap with exactly these rows set."""
    if not rows:
        return 0
    data = bytearray(max(rows) // 8 + 1)
    for row in rows:
        data[row // 8] |= 1 << (row % 8)
    return int.from_bytes(data, "little")


# Ranges that a job, a row change or a compaction records per file; a caller may name more. [RC5]
# [GC16]
MAX_SOURCES = 256

# Numbers of the format: what is out of these ranges is damage, when it is read and when it would be
# written. [OB4]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
# microseconds since 1970 of the years 1 to 9999, which readers can show
Time = Annotated[int, msgspec.Meta(ge=-62_135_596_800_000_000, le=253_402_300_799_999_999)]


class ColumnStats(Stored, frozen=True, kw_only=True):
    """Statistics of one leaf column in a file; an absent value is unknown, never "none". min, max:
    wire values over rows that are neither null nor NaN; *_cut: the bound is a truncated string: a
    prefix, or one that was rounded up, still a bound. [OB7]"""

    nulls: Count | None = None
    nans: Count | None = None
    min: WireValue = None
    max: WireValue = None
    min_cut: bool = False
    max_cut: bool = False


class SourceRange(Stored, frozen=True, kw_only=True):
    """The half-open range of one source whose rows a file holds. [OB8]"""

    source: str
    start: Int64 | str | None
    end: Int64 | str


class FooterRef(Stored, frozen=True, kw_only=True):
    """The end of a Parquet file, from its footer on: length and digest. [OB5] [OB14]"""

    bytes: Positive
    digest: str


class Entry(Stored, frozen=True, kw_only=True):
    """One data file. [OB5]

    path: relative to the table path; partition: wire values in the order of the table's
    partition_by; rows; bytes; digest: "sha256:<hex>", None: another program wrote it; footer: of
    such a file, as it was when it was added; added: the version that added it (0 until a commit
    sets it); job: the job that wrote or added it; columns: field id -> stats; sources: the source
    ranges of its rows; sorted: the field ids of the columns by which compaction sorted them.
    """

    path: str
    partition: tuple[WireValue, ...] = ()
    rows: Count
    bytes: Count
    digest: str | None = None
    footer: FooterRef | None = None
    added: Count = 0
    job: str
    columns: dict[Count, ColumnStats] = {}
    sources: tuple[SourceRange, ...] = ()
    sorted: tuple[Count, ...] = ()


class ManifestRef(Stored, frozen=True, kw_only=True):
    """A manifest, and what must be known without opening it. [OB6]

    path; files, rows, data_bytes: totals of its entries as written; bytes: its own size; digest;
    added: the version that entries without one of their own inherit; lower, upper: for each
    partition column the smallest and largest non-null wire value, None: unknown; nulls: whether any
    value is null; first_path, last_path: the lowest and highest path by code points; footer: absent
    if the manifest can only be read as a whole.
    """

    path: str
    files: Positive
    rows: Count
    data_bytes: Count
    bytes: Count
    digest: str
    added: Count = 0
    lower: tuple[WireValue, ...] = ()
    upper: tuple[WireValue, ...] = ()
    nulls: tuple[bool, ...] = ()
    first_path: str
    last_path: str
    footer: FooterRef | None = None


class FinishedTask(Closed, frozen=True, kw_only=True):
    """The output of the one attempt of a task that is committed: its object is created with
    put-if-absent. task: the number of its partition; entries, manifests: its files, all durable;
    rows_read, bytes_read: its input, if known. [AB6]"""

    format_version: int
    task: Count
    entries: tuple[Entry, ...] = ()
    manifests: tuple[ManifestRef, ...] = ()
    rows_read: Count | None = None
    bytes_read: Count | None = None
    writer: str
