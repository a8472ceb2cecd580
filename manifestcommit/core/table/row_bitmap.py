"""Row bitmaps: which rows of a manifest have been removed since it was written. [OB9]

A row of a manifest is an entry, which lists a whole data file. No bitmap removes single rows of
data: that rewrites files (engine.row_changes). A bitmap is a non-negative int (bit n = row n); on
the wire it is base64 of its little-endian bytes.
"""

from __future__ import annotations

import base64
import binascii


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


def to_mask(bitmap: int, length: int) -> list[bool]:
    """One bool per row, True where the bit is set."""
    data = bitmap.to_bytes((length + 7) // 8, "little")
    return [bool(data[row >> 3] >> (row & 7) & 1) for row in range(length)]
