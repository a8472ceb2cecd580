"""What a stream of changes is given: every version once, from any offset on, in parts that tasks read. [CH7]"""

import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.change_tables import OPERATIONS, apply, new_table, overwrite, rows
from tests.kit.sizes import rounds
from tests.kit.tables import session

import manifestcommit as mc
from manifestcommit.errors import SchemaMismatchError, SnapshotExpiredError
from manifestcommit.protocol.change_feed import Offset
from manifestcommit.rows.read_changes import RowFeed, rows_of_change
from manifestcommit.store import open_store


class Stream:
    """A stream as a process has it, and what its tasks read."""

    def __init__(self, table: mc.Table, pinned: int | None = None) -> None:
        own = session(open_store(table.url))
        self.own = own
        pinned = pinned or table.version
        self.columns = table.snapshot(pinned).schema.fields
        self.feed = RowFeed(own, columns=self.columns, pinned=pinned)

    def batch(self, start: Offset, end: Offset, on: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        """The rows between two offsets, from parts that were sent to tasks."""
        parts = pickle.loads(pickle.dumps(self.feed.between(start, end)))
        batches = [batch for part in parts for batch in rows_of_change(self.own, part, self.columns, on)]
        return [row for batch in batches for row in batch.to_pylist()]

    def ends(self, start: Offset, limit: int | None = None) -> Iterator[tuple[Offset, Offset]]:
        while (end := self.feed.advance(start, limit)) != start:
            yield start, end
            start = end


def counted(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(map(repr, found))


@pytest.mark.thorough
@given(st.lists(st.one_of(OPERATIONS), min_size=1, max_size=6), st.booleans(), st.sampled_from([None, 1, 3]), st.data())
@settings(max_examples=rounds(8, 200), deadline=None)
def test_a_stream_gives_what_reading_gives_and_a_repeated_batch_the_same(
    operations: list[tuple[str, Any]], by_day: bool, limit: int | None, data: st.DataObject
) -> None:
    """Whatever is cut into batches, and by another process too. [CH1] [CH7]"""
    with tempfile.TemporaryDirectory() as folder:
        table = new_table(folder, by_day=by_day)
        for kind, value in [("append", rows(0, 1, 2, 2, None)), *operations]:
            apply(table, kind, value)
        first = data.draw(st.integers(1, table.version))
        on = data.draw(st.sampled_from([None, "id"]))
        keys = () if on is None else (on,)
        stream = Stream(table)
        batches = [(start, end, counted(stream.batch(start, end, keys))) for start, end in stream.ends(stream.feed.beginning(first), limit)]
        expected = counted(table.changed_rows(first - 1, on=on).read_all().to_pylist())
        assert sum((rows for _, _, rows in batches), Counter()) == expected
        for start, end, found in batches:
            assert counted(Stream(table).batch(start, end, keys)) == found


def test_a_stream_begins_with_all_rows_and_goes_on_through_rewrites_and_rollbacks(tmp_path: Path) -> None:
    """No commit stops it, not even one that brings back what was there before it began. [CH7]"""
    table = new_table(tmp_path)
    mc.write(rows(1, 2), table.url)
    mc.write(rows(3, 4), table.url)
    overwrite(table, rows(5, 6))
    stream = Stream(table)
    at = stream.feed.beginning()
    (begun,) = stream.ends(at)
    assert [(row["_change_type"], row["id"], row["_commit_version"]) for row in stream.batch(*begun)] == [
        ("insert", 5, 4),
        ("insert", 6, 4),
    ] or {row["id"] for row in stream.batch(*begun)} == {5, 6}
    table.rollback(3, reason="by mistake")
    table.delete("id = 2")
    (later,) = stream.ends(begun[1])
    found = Counter((row["_change_type"], row["id"]) for row in stream.batch(*later))
    inserts = [("insert", each) for each in (1, 2, 3, 4)]
    assert found == Counter([("delete", 5), ("delete", 6), *inserts, ("delete", 2)])
    # the first batch is repeated, by a process that knows only what the checkpoint holds
    assert counted(Stream(table, 4).batch(at, begun[1])) == counted(stream.batch(*begun))


def test_a_version_before_the_next_one_is_needed_and_its_expiry_an_error(tmp_path: Path) -> None:
    """It lists the files that were removed: the error names where a new stream can begin. [CH7] [RD3]"""
    table = new_table(tmp_path)
    for number in range(4):
        mc.write(rows(number), table.url)
    stream = Stream(table)
    at = stream.feed.beginning(3)
    table.gc(keep_versions=2, keep_for="0s", grace="0s")
    expired = table.snapshot().expired
    assert expired > 3
    with pytest.raises(SnapshotExpiredError, match=rf'"startingVersion", {expired + 1}'):
        Stream(table).feed.advance(at)
    with pytest.raises(SnapshotExpiredError):
        Stream(table).feed.beginning(expired)
    assert list(Stream(table).ends(Stream(table).feed.beginning(expired + 1)))


def test_a_column_that_was_dropped_stops_a_stream_until_it_is_loaded_again(tmp_path: Path) -> None:
    """[CH6] [CH7]"""
    table = new_table(tmp_path)
    mc.write(rows(1, 2), table.url)
    stream = Stream(table)
    at = stream.feed.advance(stream.feed.beginning())
    table.drop_column("x")
    mc.write(rows(3).drop_columns(["x"]), table.url)
    with pytest.raises(SchemaMismatchError, match=r"version 3 .* changed files.*'x' was dropped.*Load the stream again"):
        stream.feed.advance(at)
    again = Stream(table)
    ((start, end),) = again.ends(at)
    assert [row["id"] for row in again.batch(start, end)] == [3]
    assert list(again.batch(start, end)[0])[:3] == ["id", "day", "dec"]
