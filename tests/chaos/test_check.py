"""The checker finds what it is there for: each kind of damage, planted in a table that is as it should be. The log and the schedule."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import zstandard

import manifestcommit as mc
from manifestcommit.core import format
from tests.chaos import check
from tests.chaos.log import Log
from tests.chaos.schedule import draw
from tests.chaos.work import Ranges, batch_of, rows
from tests.chaos.world import BATCH, COUNTER, EVENTS, SLOT, STATE

SOURCES = ("a b%", "größe #0")
STEP, STEPS = 5, 4


class Fed:
    """A table, the log that it was fed from, and what its writer was told."""

    def __init__(self, folder: Path) -> None:
        self.log, self.root = Log(folder / "log", SOURCES), folder / "t %20"
        self.told: list[dict[str, Any]] = []
        dice = random.Random(1)
        for source in SOURCES:
            self.log.append(source, self.log.invent(source, STEP * STEPS, dice))
        mc.create_table(self.root, EVENTS, partition_by=["kind"])
        for step in range(STEPS - 1):
            self.feed(dict.fromkeys(SOURCES, (step * STEP, step * STEP + STEP)))

    def rest(self) -> Ranges:
        """What was not fed yet."""
        return dict.fromkeys(SOURCES, (STEP * (STEPS - 1), STEP * STEPS))

    def feed(self, ranges: Ranges, data: pa.Table | None = None, **changes: Any) -> None:
        """One commit, which is told."""
        key = str(ranges)
        outcome = mc.write(rows(self.log, ranges) if data is None else data, self.root, key=key, watermarks=ranges)
        note = {"what": "committed", "job": outcome.job_id, "version": outcome.version, "key": key, "already": False, "ranges": ranges}
        self.told.append(note | changes)

    def findings(self) -> list[str]:
        return check.check_fed(str(self.root), {}, self.log, self.told)[0]

    def version(self, number: int) -> Path:
        return self.root / format.version_name(number)

    def listed(self) -> Path:
        return self.root / str(mc.Table(self.root).files().column("path")[0].as_py())


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    return Fed(tmp_path)


def test_a_table_that_is_as_it_should_be_has_no_findings(fed: Fed) -> None:
    """[IV1] [IV2] [IV6]"""
    fed.feed(fed.rest())
    fed.told.append({"what": "refused", "job": "v1-no-such-job"})
    assert check.check_fed(str(fed.root), {}, fed.log, fed.told) == ([], 0)
    assert check.check_fed(str(fed.root), {}, fed.log, fed.told[1:]) == ([], 1)


def _twice(fed: Fed) -> None:
    data = rows(fed.log, fed.rest())
    fed.feed(fed.rest(), pa.concat_tables([data, data.slice(3, 1)]))


def _twice_in_two_versions(fed: Fed) -> None:
    fed.feed(fed.rest())
    mc.write(rows(fed.log, {SOURCES[0]: (2, 3)}), fed.root)


def _lost(fed: Fed) -> None:
    fed.feed(fed.rest(), rows(fed.log, fed.rest()).slice(1))


def _changed(fed: Fed) -> None:
    data = rows(fed.log, fed.rest())
    fed.feed(fed.rest(), data.set_column(4, "payload", pc.binary_join_element_wise(data.column("payload"), "", " ")))


def _too_far(fed: Fed) -> None:
    fed.feed({source: (start, end + 1) for source, (start, end) in fed.rest().items()})


def _too_early(fed: Fed) -> None:
    """At the end everything fits; one version before it does not."""
    fed.feed(fed.rest(), EVENTS.empty_table())
    mc.write(rows(fed.log, fed.rest()), fed.root)


def _too_short(fed: Fed) -> None:
    """The rest was never fed."""


def _stranger(fed: Fed) -> None:
    fed.feed(fed.rest())
    data = rows(fed.log, {SOURCES[0]: (0, 1)})
    mc.write(data.set_column(1, "source", pa.array(["nobody"])), fed.root)


def _file_gone(fed: Fed) -> None:
    fed.feed(fed.rest())
    fed.listed().unlink()


def _file_cut(fed: Fed) -> None:
    fed.feed(fed.rest())
    fed.listed().write_bytes(fed.listed().read_bytes()[:-1])


def _file_changed(fed: Fed) -> None:
    fed.feed(fed.rest())
    body = bytearray(fed.listed().read_bytes())
    body[len(body) // 2] ^= 1
    fed.listed().write_bytes(body)


def _never_there(fed: Fed) -> None:
    fed.feed(fed.rest())
    fed.feed({}, EVENTS.empty_table(), version=99)


def _elsewhere(fed: Fed) -> None:
    fed.feed(fed.rest(), version=2)


def _another_job(fed: Fed) -> None:
    fed.feed(fed.rest(), job="v1-no-such-job")


def _aborted(fed: Fed) -> None:
    fed.feed(fed.rest())
    fed.told.append({"what": "aborted", "job": fed.told[0]["job"]})


def _refused(fed: Fed) -> None:
    fed.feed(fed.rest())
    fed.told.append({"what": "refused", "job": fed.told[-1]["job"]})


def _version_gone(fed: Fed) -> None:
    fed.feed(fed.rest())
    fed.version(3).unlink()


def _versions_gone(fed: Fed) -> None:
    fed.feed(fed.rest())
    for number in (1, 2):
        fed.version(number).unlink()


def _version_replaced(fed: Fed) -> None:
    """By the same content, in other bytes."""
    fed.feed(fed.rest())
    document = zstandard.ZstdDecompressor().decompress(fed.version(3).read_bytes())
    fed.version(3).write_bytes(zstandard.ZstdCompressor(level=19).compress(document + b" "))


def _unfinished(fed: Fed) -> None:
    fed.feed(fed.rest())
    with mc.begin(fed.root) as job:
        job.write(rows(fed.log, {SOURCES[0]: (0, 1)}))
        job.prepare()


DAMAGE: dict[Callable[[Fed], None], str] = {
    _twice: "1 twice: [",
    _twice_in_two_versions: "1 out of the range: [2]",
    _lost: "1 lost: [15]",
    _changed: "5 changed: [15, 16, 17, 18, 19]",
    _too_far: "is 21, and its log ends at 20",
    _too_early: "version 5: 'a b%' from 15 to 20: 5 lost",
    _too_short: "watermarks that are not the log's ends: {'a b%': (15, 20)",
    _stranger: "'nobody'",
    _file_gone: "1 listed files are missing or have another length",
    _file_cut: "1 listed files are missing or have another length",
    _file_changed: "has other bytes than were listed",
    _never_there: "acknowledged at version 99, which is not there",
    _elsewhere: "acknowledged at version 2, which does not carry it",
    _another_job: "job v1-no-such-job was acknowledged at version 5, which does not carry it",
    _aborted: "was told to be aborted, and is in the history at version 2",
    _refused: "was told to be refused, and is in the history at version 5",
    _version_gone: "versions 3 to 3 are missing",
    _versions_gone: "versions 1 to 2 are missing",
    _version_replaced: "version 4 was not built on version 3 as it is",
    _unfinished: "1 jobs that nobody finished",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__.strip("_"))
def test_planted_damage_is_found(fed: Fed, damage: Callable[[Fed], None]) -> None:
    """[IV1] [IV2] [IV6]"""
    damage(fed)
    found = fed.findings()
    assert [each for each in found if DAMAGE[damage] in each], found


def test_a_reader_finds_damage_in_any_version(fed: Fed) -> None:
    """What a reader compares all the time: one version, by the library's own dataset. [RD2]"""
    _lost(fed)
    table = mc.Table(fed.root)

    def look(version: int) -> list[str]:
        return check.compare(table.dataset(version=version).to_table(), fed.log, table.snapshot(version=version).watermarks)

    assert [look(version) for version in (1, 2, 3, 4)] == [[], [], [], []]
    assert "1 lost: [15]" in look(5)[0]


def test_what_stands_twice_in_the_chain_is_found(fed: Fed) -> None:
    """[IV1]"""
    links = check.read_chain(mc.Table(fed.root)._session.store)
    assert check.check_chain(links) == []
    copied = msgspec.structs.replace(links[-1], snapshot={**links[-1].snapshot, "commits": links[-2].snapshot["commits"]})
    assert ["one job" in each or "one key" in each for each in check.check_chain([*links[:-1], copied])] == [True, True]
    back = msgspec.structs.replace(links[-1], snapshot={**links[-1].snapshot, "watermarks": {SOURCES[0]: 1, SOURCES[1]: 15}})
    assert f"sets back the watermarks of {[SOURCES[0]]}" in check.check_chain([*links[:-1], back])[0]


def test_values_of_added_columns_are_compared(fed: Fed) -> None:
    """[SC4]"""
    data = rows(fed.log, {SOURCES[0]: (0, 3)}, ["extra 1"])
    assert check.compare(data, fed.log, {SOURCES[0]: 3}) == []
    wrong = data.set_column(5, "extra 1", pa.array([None, "extra 1:0", "extra 1:2"]))
    assert check.compare(wrong, fed.log, {SOURCES[0]: 3}) == ["column 'extra 1': wrong values at [1]"]


def test_a_batch_that_only_its_key_guards_is_there_whole_and_once(tmp_path: Path) -> None:
    """[KY3] [KY5]"""
    log, url = Log(tmp_path / "log", SOURCES), str(tmp_path / "keyed")
    log.append(SOURCES[0], log.invent(SOURCES[0], 3 * BATCH, random.Random(3)))
    parts = [batch_of("keyed", SOURCES[0], number) for number in range(3)]
    for part in parts[:2]:
        mc.write(rows(log, part.ranges), url, key=part.key)
    assert check.check_fed(url, {}, log, [], keyed=True) == ([], 2)
    mc.write(rows(log, parts[1].ranges), url, key="another")
    found = check.check_fed(url, {}, log, [], keyed=True)[0]
    assert f"version 4: {SOURCES[0]!r} from 0 to 0: 10 out of the range" in found[0]
    assert "10 twice" in check.compare_batches(mc.Table(url).dataset().to_table(), log)[0]
    mc.write(rows(log, parts[2].ranges).slice(1), url, key=parts[2].key)
    assert "version 5: 'a b%' from 20 to 30: 1 lost: [20]" in check.check_fed(url, {}, log, [], keyed=True)[0]


def test_a_mixture_of_two_overwrites_is_found(tmp_path: Path) -> None:
    """[CF3] [CF4]"""
    table = mc.create_table(tmp_path / "state", STATE, partition_by=["slot"])
    now = pa.table({"slot": ["%"] * 3, "generation": [2] * 3, "piece": [0, 1, 2]})
    mc.write(now, table.url, watermarks={SLOT + "%": (0, 2)})
    assert check.check_state(table.url, {}, []) == ([], 1)
    mc.write(now.slice(1, 1), table.url, mode="overwrite", overwrite={"slot": "%"})
    assert "version 3: its generations are {'slot %': 2}" in check.check_state(table.url, {}, [])[0][0]


def test_a_lost_count_is_found(tmp_path: Path) -> None:
    """[CF3]"""
    table = mc.create_table(tmp_path / "counter", STATE)
    for generation in (1, 2, 2):
        pieces = pa.table({"slot": [COUNTER] * 3, "generation": [generation] * 3, "piece": [0, 1, 2]})
        mc.write(pieces, table.url, mode="overwrite")
    (found,) = check.check_state(table.url, {}, [], counter=True)[0]
    assert f"version 4: its generations are {{'slot counter': 3}}, and its rows [('{COUNTER}', 2, 0)" in found


# --- the log and the schedule -------------------------------------------------------------------------------------------


def test_the_log_gives_back_what_was_appended_whatever_the_producer_died_of(tmp_path: Path) -> None:
    log, dice = Log(tmp_path, SOURCES), random.Random(2)
    first = log.invent(SOURCES[0], 7, dice)
    log.append(SOURCES[0], first)
    (data,) = tmp_path.glob("*.records")
    with data.open("ab") as file:
        file.write(b'[1, "half a rec')  # appended, and not in the index
    second = log.invent(SOURCES[0], 40, dice)
    log.append(SOURCES[0], second)
    found = log.read(SOURCES[0], 0, 1000)
    assert [(record.id, record.kind, record.payload) for record in found] == [*first, *second]
    assert [record.position for record in found] == list(range(47)) and len({record.id for record in found}) == 47
    assert log.read(SOURCES[0], 5, 9) == found[5:9] and log.read(SOURCES[0], 46, 47) == found[46:]
    assert log.read(SOURCES[0], 9, 9) == [] == log.read(SOURCES[1], 0, 9)
    assert log.ends() == {SOURCES[0]: 47}


def test_a_seed_has_one_schedule() -> None:
    actors = ["producer", "writer 0", "writer 1"]
    assert draw(7, 600, actors) == draw(7, 600, actors) != draw(8, 600, actors)
    schedule = draw(7, 600, actors)
    assert {blow.actor for blow in schedule.blows} == set(actors) and {blow.kind for blow in schedule.blows} == {"kill", "stop"}
    assert all(0 <= at_s < 600 for at_s in [*(blow.at_s for blow in schedule.blows), *(window.at_s for window in schedule.windows)])
    assert len({window.mood for window in schedule.windows}) == 8
    longer = draw(7, 1200, actors)
    assert longer.windows[: len(schedule.windows)] == schedule.windows
    assert tuple(blow for blow in longer.blows if blow.at_s < 600) == schedule.blows
    short = draw(7, 0.1, actors)
    assert {blow.kind for blow in short.blows} == {"kill", "stop"} and short.windows, "something goes wrong in every run"
