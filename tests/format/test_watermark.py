"""Watermarks against a model: rows never lost in a gap, never doubled by an overlap. [WM1]-[WM4]"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifestcommit.format.change import Advance, check_advance, find_mismatch, move, note_origins

sources = st.sampled_from(["a", "b", "topic 0/1", ""])
small = st.integers(-3, 6)


@st.composite
def advances(draw: st.DrawFn) -> list[Advance]:
    found = []
    for source in draw(st.lists(sources, max_size=4)):
        start = draw(small)
        found.append(Advance(source=source, start=start, end=start + draw(st.integers(0, 3))))
    return found


@given(jobs=st.lists(advances(), max_size=6))
def test_each_position_of_a_source_is_consumed_once_and_without_a_hole(jobs: list[list[Advance]]) -> None:
    """The model keeps every consumed position; the library keeps two numbers. [WM1] [WM2]"""
    marks: dict[str, int | str] = {}
    origins: dict[str, int | str | None] = {}
    consumed: dict[str, list[int]] = {}
    for job in jobs:
        tail = {source: (positions, marks[source]) for source, positions in consumed.items()}
        fits = True
        for advance in job:
            positions, at = tail.get(advance.source, ([], advance.start))
            fits = fits and at == advance.start
            tail[advance.source] = ([*positions, *range(int(str(advance.start)), int(str(advance.end)))], advance.end)  # type: ignore[assignment]
        mismatch = find_mismatch(marks, origins, job)
        assert (mismatch is None) == fits
        if mismatch is not None:
            continue
        marks, origins = move(marks, job), note_origins(origins, marks, job)
        consumed = {source: positions for source, (positions, _) in tail.items()}
        for source, positions in consumed.items():
            assert positions == list(range(int(str(origins[source])), int(str(marks[source]))))


@given(have=small, start=small, length=st.integers(0, 3))
def test_below_is_a_gap_above_is_an_overlap(have: int, start: int, length: int) -> None:
    """[WM2]"""
    found = find_mismatch({"s": have}, {"s": -5}, [Advance(source="s", start=start, end=start + length)])
    if have == start:
        assert found is None
        return
    assert found is not None and (found.have, found.want, found.source) == (have, start, "s")
    assert found.kind == ("gap" if have < start else "overlap")


def test_a_new_source_may_start_anywhere_or_nowhere() -> None:
    """[WM1] [WM2]"""
    for start in (None, 0, -7, 10**18, "", "page-1"):
        end = 10**18 if start is None or isinstance(start, int) else "page-2"
        advance = check_advance("s", start, end)
        assert find_mismatch({}, {}, [advance]) is None
        assert move({}, [advance])["s"] == end and note_origins({}, {}, [advance]) == {"s": start}


def test_the_advances_of_one_source_in_one_job_apply_in_order() -> None:
    """[WM2]"""
    forward = [Advance(source="s", start=0, end=5), Advance(source="s", start=5, end=9)]
    assert find_mismatch({}, {}, forward) is None
    assert move({}, forward)["s"] == 9 and note_origins({}, {}, forward) == {"s": 0}
    found = find_mismatch({}, {}, forward[::-1])
    assert found is not None and (found.kind, found.have, found.want) == ("overlap", 9, 0)
    found = find_mismatch({}, {}, [forward[0], forward[0]])
    assert found is not None and found.kind == "overlap", "one job that reads a range twice"


def test_texts_are_compared_for_equality_only() -> None:
    """ "10" is neither before nor after "9". [WM3]"""
    marks = {"s": "9"}
    for want in ("10", "8", "", None):
        found = find_mismatch(marks, {}, [Advance(source="s", start=want, end="x")])
        assert found is not None and found.kind == "mismatch"
    assert find_mismatch(marks, {}, [Advance(source="s", start="9", end="10")]) is None
    assert find_mismatch(marks, {}, [Advance(source="s", start=9, end=10)]) is not None, "the number 9 is not the text"


def test_a_source_that_the_table_knows_is_not_new_because_a_job_thinks_so() -> None:
    """Start none, table at 5: what lies before 5 would be read twice. [WM2]"""
    found = find_mismatch({"s": 5}, {}, [Advance(source="s", start=None, end=9)])
    assert found is not None and found.kind == "overlap"
    assert find_mismatch({"s": 0}, {}, [Advance(source="s", start=None, end=9)]) is not None


def test_a_rerun_is_told_that_all_of_it_is_covered() -> None:
    """[WM2]"""
    marks, origins = {"s": 9, "t": "c"}, {"s": 0, "t": "a"}
    covered = [Advance(source="s", start=2, end=9)]
    found = find_mismatch(marks, origins, covered)
    assert found is not None and found.all_covered
    for other in (
        Advance(source="s", start=0, end=10),
        Advance(source="t", start="b", end="c"),  # whether the table began with "c" or read what lies before it cannot be told
        Advance(source="t", start="b", end="d"),
        Advance(source="new", start=0, end=0),
    ):
        found = find_mismatch(marks, origins, [*covered, other])
        assert found is not None and not found.all_covered


def test_what_was_never_read_is_not_covered() -> None:
    """The table read the source from 100 on: a caller who takes [0, 50) as done would lose it. [WM1] [WM2]"""
    found = find_mismatch({"s": 200}, {"s": 100}, [Advance(source="s", start=0, end=50)])
    assert found is not None and found.kind == "overlap" and not found.all_covered
    found = find_mismatch({"s": 200}, {"s": 100}, [Advance(source="s", start=50, end=150)])
    assert found is not None and not found.all_covered
    found = find_mismatch({"s": 200}, {"s": 100}, [Advance(source="s", start=None, end=150)])
    assert found is not None and not found.all_covered
    found = find_mismatch({"s": 200}, {"s": 100}, [Advance(source="s", start=100, end=200)])
    assert found is not None and found.all_covered


def test_other_sources_stay_where_they_are() -> None:
    """[WM4]"""
    marks: dict[str, int | str] = {"s": 5, "t": "x"}
    assert move(marks, [Advance(source="s", start=5, end=6)]) == {"s": 6, "t": "x"}
    assert marks["s"] == 5
    assert move(marks, []) == marks


@pytest.mark.parametrize(
    ("source", "start", "end"),
    [
        ("", 0, 1), (None, 0, 1), (b"s", 0, 1), ("s", 0, None), ("s", 0, 1.0), ("s", 0.0, 1), ("s", 0, "1"), ("s", "0", 1), ("s", 5, 4),
        ("s", 0, True), ("s", False, 1), ("s", 0, 2**63), ("s", -(2**63) - 1, 0), ("s", None, None),
    ],
)  # fmt: skip
def test_a_malformed_advance_is_refused(source: object, start: object, end: object) -> None:
    """[WM3]"""
    with pytest.raises(ValueError):
        check_advance(source, start, end)


def test_the_ends_of_64_bits_are_positions() -> None:
    """[WM3]"""
    assert check_advance("s", -(2**63), 2**63 - 1) == Advance(source="s", start=-(2**63), end=2**63 - 1)
    assert check_advance("s", 4, 4) == Advance(source="s", start=4, end=4)
