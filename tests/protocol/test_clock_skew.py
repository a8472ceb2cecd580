"""One clock that is far off: no time is given for what nobody knows, and gc goes on. [CM14] [CM27]"""

import logging
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.kit.clocks import HOUR, MINUTE, YEAR, Elsewhere, chain
from tests.kit.tables import memory

from manifestcommit.errors import VersionNotFoundError
from manifestcommit.format.snapshot import DisputedTime, Snapshot, disputed
from manifestcommit.log.version_chain import choose_version, open_head, read_object
from manifestcommit.runtime.validation import to_datetime
from manifestcommit.store import Store, open_store
from manifestcommit.store.local import MemoryStore

NOW = time.time_ns() // 1000 - 20 * HOUR


def snapshots(store: Store) -> list[Snapshot]:
    head = open_head(store)
    found = [read_object(store, version) for version in range(1, head.version + 1)]
    return [each.snapshot for each in found if each is not None]


def version_at(store: Store, moment: int) -> int:
    """The version that was the newest at that moment, as a reader says whose clock is ten hours ahead."""
    there: Any = Elsewhere(store, NOW + 10 * HOUR)
    return choose_version(there, open_head(store), version=None, as_of=to_datetime(moment), tag=None) or open_head(store).version


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return memory() if request.param == "memory" else open_store(tmp_path / "t")


def test_what_one_clock_far_ahead_has_done_is_seen_in_every_later_version(store: Store) -> None:
    """[CM14] [CM27]"""
    chain(store, [NOW, NOW + HOUR, NOW + 10 * YEAR, NOW + 2 * HOUR, NOW + 3 * HOUR])
    found = snapshots(store)  # version 1 made the table
    assert [each.committed_at for each in found] == [NOW, NOW, NOW + HOUR, *[NOW + 10 * YEAR] * 3]
    assert [each.clock for each in found] == [None] * 4 + [NOW + 2 * HOUR, NOW + 3 * HOUR]
    assert [each.disputed_times for each in found[:4]] == [()] * 4
    wild = NOW + 10 * YEAR
    assert found[5].disputed_times == (DisputedTime(first=4, last=6, said=wild, clock=NOW + 3 * HOUR),)


def test_a_moment_that_clocks_dispute_is_an_error_that_names_the_versions(store: Store) -> None:
    """It was one row of four. [RD4] [CM27]"""
    chain(store, [NOW, NOW + HOUR, NOW + 10 * YEAR, NOW + 2 * HOUR, NOW + 3 * HOUR])
    for moment in (NOW + HOUR, NOW + 2 * HOUR, NOW + 11 * HOUR, NOW + 9 * YEAR):
        with pytest.raises(VersionNotFoundError, match=r"Versions 4 to 6 say .*version="):
            version_at(store, moment)
    assert [version_at(store, moment) for moment in (NOW, NOW + HOUR - 1, NOW + 10 * YEAR)] == [2, 2, 6]
    with pytest.raises(VersionNotFoundError, match="as old as"):
        version_at(store, NOW - 1)


def test_a_head_that_says_a_time_to_come_is_not_passed_over(store: Store) -> None:
    """Nobody has committed after it, so that nothing but the reader's clock tells. [CM27]"""
    chain(store, [NOW, NOW + 10 * YEAR])
    with pytest.raises(VersionNotFoundError, match="Versions 3 to 3 say"):
        version_at(store, NOW + HOUR)
    chain(store, [NOW + HOUR])
    with pytest.raises(VersionNotFoundError, match="Versions 3 to 4 say"):
        version_at(store, NOW + HOUR)


def test_a_table_that_a_wild_clock_has_made_is_disputed_from_the_beginning(store: Store) -> None:
    """[CM27]"""
    chain(store, [NOW + YEAR, NOW])
    with pytest.raises(VersionNotFoundError, match="Versions 1 to 3 say"):
        version_at(store, NOW)


def test_where_others_ran_up_to_its_time_that_clock_was_ahead(store: Store) -> None:
    """Hours, as a time zone does; also when that time has passed. [CM27]"""
    chain(store, [NOW, NOW + 3 * HOUR, NOW + HOUR, NOW + 3 * HOUR - 10 * MINUTE, NOW + 4 * HOUR])
    assert open_head(store).snapshot.disputed_times == (DisputedTime(first=3, last=4, said=NOW + 3 * HOUR, clock=NOW + HOUR),)
    chain(store, [])
    more = memory()
    chain(more, [NOW, NOW + 3 * HOUR, NOW + HOUR, NOW + 3 * HOUR - 16 * MINUTE, NOW + 3 * HOUR - 15 * MINUTE, NOW + 4 * HOUR])
    (dispute,) = open_head(more).snapshot.disputed_times
    assert dispute == DisputedTime(first=3, last=5, said=NOW + 3 * HOUR, clock=NOW + 3 * HOUR - 16 * MINUTE)


def test_one_clock_far_behind_spoils_no_time_of_others(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Which of two clocks is right nobody knows from two: a reader is warned. [CM27]"""
    chain(store, [NOW, NOW + HOUR, NOW - 10 * YEAR, NOW + 2 * HOUR])
    assert [each.committed_at for each in snapshots(store)] == [NOW, NOW, NOW + HOUR, NOW + HOUR, NOW + 2 * HOUR]
    with caplog.at_level(logging.WARNING, "manifestcommit"):
        assert [version_at(store, moment) for moment in (NOW + HOUR, NOW + 2 * HOUR, NOW + 9 * HOUR)] == [4, 5, 5]
        assert not [each for each in caplog.records if "is not known" in each.message]
        assert version_at(store, NOW + HOUR - 1) == 2
    assert [each.message.partition("Versions ")[2][:6] for each in caplog.records if "is not known" in each.message] == ["3 to 4"]


def test_clocks_that_are_a_little_apart_are_no_matter(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """[CM14]"""
    with caplog.at_level(logging.WARNING, "manifestcommit"):
        chain(store, [NOW, NOW + 15 * MINUTE, NOW, NOW + 20 * MINUTE])
        assert version_at(store, NOW + 1) == 2
    assert not caplog.records and open_head(store).snapshot.disputed_times == ()
    assert [each.clock for each in snapshots(store)] == [None, None, None, NOW, None]


def test_a_writer_warns_once_of_a_parent_far_ahead(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """[CM27]"""
    chain(store, [NOW, NOW + 10 * YEAR])
    caplog.clear()
    with caplog.at_level(logging.WARNING, "manifestcommit"):
        chain(store, [NOW])
    assert [
        each.message for each in caplog.records if "87,600.0 hours ahead of this one" in each.message and "use version=" in each.message
    ]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("off", [10 * YEAR, -10 * YEAR, 16 * MINUTE])
def test_the_time_that_a_store_tells_takes_the_place_of_a_clock_that_is_far_off(off: int, caplog: pytest.LogCaptureFixture) -> None:
    """[CM14]"""
    store = memory()
    with caplog.at_level(logging.WARNING, "manifestcommit"):
        chain(store, [NOW + off], told_s=NOW / 1e6)
    assert {each.committed_at for each in snapshots(store)} == {NOW} and "the store's, whose time is used" in caplog.text
    near = chain(memory(), [NOW + 14 * MINUTE], told_s=NOW / 1e6)
    assert {each.committed_at for each in snapshots(near)} == {NOW + 14 * MINUTE}


def test_the_last_sixteen_disputes_are_kept_and_none_of_expired_versions() -> None:
    """[CM27]"""
    head = snapshots(chain(memory(), [NOW]))[-1]
    for number in range(40):
        said = NOW + (number + 1) * YEAR
        parent = Snapshot(
            format_version=1, table_id=head.table_id, version=10 + 2 * number, committed_at=said, writer="w", commits=head.commits,
            disputed_times=head.disputed_times, expired=50 if number == 39 else 1,
        )  # fmt: skip
        head = Snapshot(
            format_version=1, table_id=head.table_id, version=11 + 2 * number, committed_at=said, writer="w", commits=head.commits,
            disputed_times=disputed(parent, NOW),
        )  # fmt: skip
        assert len(head.disputed_times) <= 16 and head.disputed_times[-1].first == parent.version
    assert [each.first for each in head.disputed_times] == list(range(58, 90, 2))


def test_disputes_are_kept_as_long_as_one_of_their_versions_is_readable(store: Store) -> None:
    """None whose `last` is below `expired`: one that is `expired` itself stays. [CM27]"""
    head = snapshots(chain(store, [NOW, NOW + 10 * YEAR, NOW, NOW]))[-1]
    (dispute,) = head.disputed_times
    assert (dispute.first, dispute.last) == (3, 5)
    assert [len(disputed(msgspec.structs.replace(head, expired=each), NOW + 10 * YEAR)) for each in (1, 4, 5, 6)] == [1, 1, 1, 0]


def test_a_dispute_goes_on_only_in_versions_that_follow_each_other_and_say_the_same(store: Store) -> None:
    """[CM27]"""
    chain(store, [NOW, NOW + 3 * HOUR, NOW + HOUR, NOW + 3 * HOUR - 10 * MINUTE, NOW + HOUR, NOW + HOUR - 1])
    head = open_head(store).snapshot
    first, second = head.disputed_times
    assert (first.first, first.last, first.clock) == (3, 4, NOW + HOUR)
    assert (second.first, second.last, second.clock) == (5, 7, NOW + HOUR), "the highest of their clocks"
    strange = msgspec.structs.replace(head, committed_at=head.committed_at + 1)  # by a writer that put its own time there
    assert disputed(strange, NOW)[-1] == DisputedTime(first=7, last=8, said=strange.committed_at, clock=NOW)


def test_memory_and_folders_tell_no_time_of_their_own() -> None:
    """Their clock is this machine's. [CM14]"""
    assert MemoryStore("x").now_s is None
