"""Tables for people: aligned whatever stands in them, and nothing in them that a terminal would obey."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.terminal import counted, print_table, render_table

cells = st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.booleans()


def test_numbers_stand_to_the_right_with_their_thousands_marked() -> None:
    found = render_table(("version", "rows", "key"), [(1, 0, "a"), (12, 1_234_567, ""), (3, -5, "longer")])
    assert found == (
        "version       rows  key\n-------  ---------  ------\n      1          0  a\n     12  1,234,567\n      3         -5  longer"
    )


def test_a_column_with_anything_but_numbers_stands_to_the_left() -> None:
    assert render_table(("a", "b"), [("1", "x"), ("null", "y")]) == "a     b\n----  -\n1     x\nnull  y"


@pytest.mark.parametrize("text", ["2013-01-01", "1.5", "", "-", "1-2", "1,,2x", "0x1F"])
def test_what_only_looks_like_a_number_is_text(text: str) -> None:
    assert render_table(("a",), [(text,), ("longer text",)]).splitlines()[2] == text


def test_a_table_without_rows_shows_its_names() -> None:
    assert render_table(("path", "rows"), []) == "path  rows\n----  ----"
    assert render_table(("", ""), [], header=False) == ""


def test_a_printed_table_without_rows_is_a_sentence_beside_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("path", "rows"), [], "no file")
    print_table(("path", "rows"), [])
    assert capsys.readouterr() == ("", "no file\n")
    print_table(("path", "rows"), [("a", 1)], "no file")
    assert capsys.readouterr() == ("path  rows\n----  ----\na        1\n", "")


def test_one_of_a_thing_is_no_plural() -> None:
    assert [counted(count, "row") for count in (0, 1, 2, 1_000)] == ["0 rows", "1 row", "2 rows", "1,000 rows"]


def test_a_table_without_a_head_is_two_columns() -> None:
    assert render_table(("", ""), [("url", "x"), ("version", "3")], header=False) == "url      x\nversion  3"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"), ("a\nb\rc\td", "a\\nb\\rc\\td"), ("\x00\x07\x7f", "\\x00\\x07\\x7f"),
        ("\x9b31m", "\\x9b31m"), ("\u202eevil", "\\u202eevil"), ("\u200b", "\\u200b"), ("\u2028", "\\u2028"),
        ("plain text, é 日本 🦆", "plain text, é 日本 🦆"),
    ],
)  # fmt: skip
def test_control_characters_are_shown_not_sent(text: str, shown: str) -> None:
    """Colours, line breaks, bells, eight-bit escapes, reversed writing: in cells and in names of columns."""
    assert render_table(("a",), [(text,)]).splitlines()[-1] == shown
    assert render_table((text,), [("x",)]).splitlines()[0] == shown


def test_wide_characters_take_two_places_and_combining_ones_none() -> None:
    found = render_table(("name", "x"), [("日本", "|"), ("e\u0301", "|"), ("🦆", "|"), ("abcd", "|")]).splitlines()[2:]
    assert found == ["日本  |", "e\u0301     |", "🦆    |", "abcd  |"]


@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), max_size=5)))
def test_every_row_is_one_line_and_every_column_starts_where_its_name_does(rows: list[list[Any]]) -> None:
    """Whatever the values are; read off a terminal, not off the code points."""
    width = len(rows[0]) if rows else 2
    lines = render_table([f"c{at}" for at in range(width)], [tuple(row) for row in rows]).split("\n")
    assert len(lines) == 2 + len(rows)
    assert all(each.isprintable() for line in lines for each in line)
    borders = [at for at, each in enumerate(lines[1]) if each == " "]
    for line in lines[2:]:
        columns = _screen(line)
        assert all(columns[at] == " " for at in borders if at < len(columns))


def _screen(line: str) -> list[str]:
    """What stands in each place of a terminal's line."""
    places: list[str] = []
    for each in line:
        if unicodedata.combining(each):
            continue
        places += [each, ""] if unicodedata.east_asian_width(each) in "WF" else [each]
    return places


@pytest.mark.parametrize("name", ["job", "key"])
def test_ids_of_digits_only_are_aligned_as_others_are(name: str) -> None:
    """One short job id in some forty has no letter."""
    wide = render_table((f"{name} 2", name), [["a", "7"], ["b", "88888888"]]).splitlines()
    assert wide[-2].split() == ["a", "7"] and wide[-2].rstrip().endswith("7") and wide[-2].index("7") == wide[-1].index("8")
