"""What describes files and partitions prints as a table, and is one for whoever takes Arrow's tables. [RD6]"""

import copy
import pickle
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import manifestcommit as mc

HOSTILE = "<b>%é\n'\u202e"


@pytest.fixture
def files(tmp_path: Path) -> mc.Listing:
    days = [*(f"day {n:02}" for n in range(24)), HOSTILE, None]
    mc.write(pa.table({"day": days, "x": range(26)}), tmp_path / "t", partition_by="day")
    return mc.Table(tmp_path / "t").files()


def test_it_prints_the_first_rows_and_how_many_more_there_are(files: mc.Listing) -> None:
    shown = repr(files).splitlines()
    assert shown[0].split() == ["path", "day", "rows", "bytes", "digest", "added_version", "job"]
    assert len(shown) == 2 + 20 + 1 and shown[-1] == "… and 6 more"
    assert max(map(len, shown)) < 160
    few = mc.Listing(files.to_arrow().slice(0, 2))
    assert len(repr(few).splitlines()) == 4
    assert repr(mc.Listing(files.to_arrow().slice(0, 0))).startswith("no rows; columns path, day")


def test_hostile_values_are_shown_and_not_obeyed(files: mc.Listing) -> None:
    alone = mc.Listing(files.to_arrow().filter(pa.compute.equal(files.column("day"), HOSTILE)))
    assert len(alone) == 1
    assert "\u202e" not in repr(alone) and len(repr(alone).splitlines()) == 3
    page = alone._repr_html_()
    assert "<b>" not in page and "&lt;b&gt;" in page and "\u202e" not in page
    tags: list[str] = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    reader.feed(page)
    assert set(tags) == {"table", "thead", "tbody", "tr", "th", "td"}


def test_it_is_taken_as_a_table(files: mc.Listing) -> None:
    assert isinstance(files.to_arrow(), pa.Table)
    assert pa.table(files).equals(files.to_arrow()) and files == files.to_arrow() and files == mc.Listing(files.to_arrow())
    assert files != mc.Listing(files.to_arrow().slice(1)) and files != 1
    assert pl.DataFrame(files).height == files.num_rows == len(files) == 26
    assert files["rows"].to_pylist() == files.column("rows").to_pylist() == [1] * 26
    assert "column" in dir(files) and len(files.to_pandas()) == 26
    assert copy.copy(files) == copy.deepcopy(files) == pickle.loads(pickle.dumps(files)) == files
    with pytest.raises(mc.errors.UsageError, match="table: expected"):
        mc.Listing([])  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = files.nothing_like_this


def test_partitions_and_changes_are_listings_as_well(tmp_path: Path) -> None:
    mc.write(pa.table({"day": ["a", "b"], "x": [1, 2]}), tmp_path / "t", partition_by="day")
    table = mc.Table(tmp_path / "t")
    assert repr(table.partitions()).split()[:4] == ["day", "files", "rows", "bytes"]
    changes = table.changed_files(table.version - 1)
    assert {name: len(each) for name, each in changes.items()} == {"added": 2, "removed": 0}
    assert all(isinstance(each, mc.Listing) for each in changes.values())


@pytest.mark.parametrize("method", ["to_pandas", "to_pylist", "to_pydict"])
@pytest.mark.parametrize("kind", ["partitions", "files"])
def test_days_that_python_has_not_are_refused_with_the_way_out(tmp_path: Path, kind: str, method: str) -> None:
    """Days of Arrow from the year -5877641 to 5881580; as numbers and in pandas' own type they can be had. [RD6]"""
    days = pa.array([2**31 - 1, -(2**31), 0], pa.int32())
    mc.write(pa.table({"d": days.cast(pa.date32())}), tmp_path / "t", partition_by="day(d)")
    listing = getattr(mc.Table(tmp_path / "t"), kind)()
    with pytest.raises(mc.errors.UsageError, match=rf"^{method}: .*date_as_object=False.*cast\('int32'\)"):
        getattr(listing, method)()
    assert len(listing.to_pandas(date_as_object=False)) == 3
    assert sorted(listing.column("d_day").cast("int32").to_pylist()) == sorted(days.to_pylist())
