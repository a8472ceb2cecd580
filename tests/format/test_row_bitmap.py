"""Row bitmaps: a row too many is lost, a row too few comes back from the dead. [OB9]"""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.format.entries import decode, encode, from_rows
from manifestcommit.format.manifest_table import is_live

row_sets = st.sets(st.integers(0, 300), max_size=40)


@given(rows=row_sets, more=st.integers(0, 70))
def test_the_rows_set_are_the_rows_read(rows: set[int], more: int) -> None:
    """[OB9]"""
    found = from_rows(sorted(rows))
    length = max(rows, default=0) + 1 + more
    live = is_live(found, length).to_pylist()
    assert [row for row, is_there in enumerate(live) if not is_there] == sorted(rows) and len(live) == length
    assert found.bit_count() == len(rows)
    assert decode(encode(found)) == found


@given(rows=row_sets)
def test_the_wire_form_is_that_of_the_spec(rows: set[int]) -> None:
    """Bit n is bit n mod 8, from the least significant, of byte n div 8; no trailing zero bytes. [OB9]"""
    data = base64.b64decode(encode(from_rows(list(rows))))
    assert {8 * at + bit for at, byte in enumerate(data) for bit in range(8) if byte >> bit & 1} == rows
    assert not data.endswith(b"\0")


@pytest.mark.parametrize("text", ["!", "QQ", "QQ=", "\u00e9", "QQ==\n", " QQ=="])
def test_what_is_no_bitmap_is_refused(text: str) -> None:
    """[OB4]"""
    with pytest.raises(ValueError):
        decode(text)


def test_nothing_removed_is_the_empty_text() -> None:
    assert encode(0) == "" and decode("") == 0
    assert is_live(0, 0).to_pylist() == [] and is_live(0, 100).to_pylist() == [True] * 100
