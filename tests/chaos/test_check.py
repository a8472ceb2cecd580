"""The checker finds what it is there for: each kind of damage, planted in a table that is as it should be."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import zstandard
from tests.chaos import check, questions
from tests.chaos.bank import BANKS, ROWS, Moves, check_members, compare_banks, draw_transfer, jobs_in, rows_of
from tests.chaos.changes import SCHEMA, TABLE, Change, Replay, carry_out, check_heard, draw_change
from tests.chaos.check import Link
from tests.chaos.log import Log
from tests.chaos.work import Ranges, batch_of, pieces_of, rows
from tests.chaos.world import AGAIN, BATCH, COUNTER, EVENTS, HANDED, PIECES, STATE

import manifestcommit as mc
from manifestcommit.format import object_names
from manifestcommit.store import open_store

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
        return self.root / object_names.version_name(number)

    def listed(self) -> Path:
        return self.root / str(mc.Table(self.root).files().column("path")[0].as_py())


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    return Fed(tmp_path)


def _too_early(fed: Fed) -> None:
    """At the end everything fits; one version before it does not."""
    fed.feed(fed.rest(), EVENTS.empty_table())
    mc.write(rows(fed.log, fed.rest()), fed.root)


def _file_changed(fed: Fed) -> None:
    body = bytearray(fed.listed().read_bytes())
    body[len(body) // 2] ^= 1
    fed.listed().write_bytes(body)


def _miscounted(fed: Fed) -> None:
    """The newest version says of its own commit that one row more was handed to it."""
    snapshot = json.loads(zstandard.ZstdDecompressor().decompress(fed.version(5).read_bytes()))
    snapshot["commits"][0]["summary"]["rows_read"] += 1
    fed.version(5).write_bytes(zstandard.ZstdCompressor().compress(json.dumps(snapshot).encode()))


def _version_replaced(fed: Fed) -> None:
    """By the same content, in other bytes."""
    document = zstandard.ZstdDecompressor().decompress(fed.version(3).read_bytes())
    fed.version(3).write_bytes(zstandard.ZstdCompressor(level=19).compress(document + b" "))


def _unfinished(fed: Fed) -> None:
    with mc.begin(fed.root) as job:
        job.write(rows(fed.log, {SOURCES[0]: (0, 1)}))
        job.prepare()


def fed_as(change: Callable[[pa.Table], pa.Table]) -> Callable[[Fed], None]:
    """Instead of the rest something else is fed."""
    return lambda fed: fed.feed(fed.rest(), change(rows(fed.log, fed.rest())))


def afterwards(work: Callable[[Fed], object]) -> Callable[[Fed], None]:
    """All is fed, and then this happens."""

    def damage(fed: Fed) -> None:
        fed.feed(fed.rest())
        work(fed)

    return damage


def written(change: Callable[[pa.Table], pa.Table]) -> Callable[[Fed], None]:
    """All is fed, and then a row that was fed before is written once more, changed."""
    return afterwards(lambda fed: mc.write(change(rows(fed.log, {SOURCES[0]: (2, 3)})), fed.root))


SHORT = "1 listed files are missing or have another length"
DAMAGE: dict[str, tuple[Callable[[Fed], None], str]] = {
    "twice": (fed_as(lambda rest: pa.concat_tables([rest, rest.slice(3, 1)])), "1 twice: ["),
    "twice_in_two_versions": (written(lambda row: row), "1 out of the range: [2]"),
    "lost": (fed_as(lambda rest: rest.slice(1)), "1 lost: [15]"),
    "changed": (
        fed_as(lambda rest: rest.set_column(4, "payload", pc.binary_join_element_wise(rest["payload"], "", " "))),
        "5 changed: [15, 16, 17, 18, 19]",
    ),
    "too_far": (
        lambda fed: fed.feed({source: (start, end + 1) for source, (start, end) in fed.rest().items()}),
        "is 21, and its log ends at 20",
    ),
    "too_early": (_too_early, "version 5: 'a b%' from 15 to 20: 5 lost"),
    "too_short": (lambda fed: None, "watermarks that are not the log's ends: {'a b%': (15, 20)"),
    "stranger": (written(lambda row: row.set_column(1, "source", pa.array(["nobody"]))), "'nobody'"),
    "file_gone": (afterwards(lambda fed: fed.listed().unlink()), SHORT),
    "file_cut": (afterwards(lambda fed: fed.listed().write_bytes(fed.listed().read_bytes()[:-1])), SHORT),
    "file_changed": (afterwards(_file_changed), "has other bytes than were listed"),
    "miscounted": (afterwards(_miscounted), "10 rows written, but 11 read"),
    "version_gone": (afterwards(lambda fed: fed.version(3).unlink()), "versions 3 to 3 are missing"),
    "versions_gone": (afterwards(lambda fed: [fed.version(each).unlink() for each in (1, 2)]), "versions 1 to 2 are missing"),
    "version_replaced": (afterwards(_version_replaced), "version 4 was not built on version 3 as it is"),
    "unfinished": (afterwards(_unfinished), "1 jobs that nobody finished"),
}


@pytest.mark.parametrize(("damage", "finding"), DAMAGE.values(), ids=DAMAGE)
def test_planted_damage_is_found(fed: Fed, damage: Callable[[Fed], None], finding: str) -> None:
    """[IV1] [IV2] [IV6]"""
    damage(fed)
    found = fed.findings()
    assert [each for each in found if finding in each], found


def test_what_stands_twice_in_the_chain_is_found(fed: Fed) -> None:
    """[IV1]"""
    links = check.read_chain(mc.Table(fed.root)._ctx.store)
    assert check.check_chain(links) == []
    copied = msgspec.structs.replace(links[-1], snapshot={**links[-1].snapshot, "commits": links[-2].snapshot["commits"]})
    assert ["one job" in each or "one key" in each for each in check.check_chain([*links[:-1], copied])] == [True, True]
    back = msgspec.structs.replace(links[-1], snapshot={**links[-1].snapshot, "watermarks": {SOURCES[0]: 1, SOURCES[1]: 15}})
    assert f"sets back the watermarks of {[SOURCES[0]]}" in check.check_chain([*links[:-1], back])[0]


def test_what_only_gc_and_tags_may_change_is_found(fed: Fed) -> None:
    """[GC1] [GC2] [GC3]"""
    links = check.read_chain(mc.Table(fed.root)._ctx.store)
    tag = {"t": {"version": 1}}
    for older, newer, said in (
        ({"fence": 2}, {}, "fence went back from 2 to 1"),
        ({}, {"fence": 2}, "fence moved, and no gc did it"),
        ({}, {"expired": 2}, "versions below 2 are expired, and jobs born from 1 on may commit"),
        ({}, {"tags": tag}, "the tags were {} and are"),
        ({"expired": 2, "fence": 2}, {"expired": 2, "fence": 2, "tags": tag}, "gives version 1 the name 't', which was expired before"),
    ):
        pairs = zip(links[-2:], (older, newer), strict=True)
        changed = [msgspec.structs.replace(link, snapshot={**link.snapshot, **more}) for link, more in pairs]
        assert any(said in each for each in check.check_chain([*links[:-2], *changed])), said


def test_after_a_rewind_a_watermark_is_lower_and_a_key_may_be_there_again(fed: Fed) -> None:
    """[WM5]"""
    ranges: Ranges = dict.fromkeys(SOURCES, (2 * STEP, 3 * STEP))
    for source in SOURCES:
        mc.Table(fed.root).rewind(source, 2 * STEP, reason="again")
    fed.feed(ranges)
    links = check.read_chain(mc.Table(fed.root)._ctx.store)
    assert check.check_chain(links) == []
    without = [link for link in links if link.snapshot["commits"][0]["operation"] != "rewind"]
    assert any("1 times one key in two versions" in each for each in check.check_chain(without))


@pytest.mark.thorough
def test_a_filter_that_leaves_a_file_out_is_found(fed: Fed) -> None:
    """[RD6] [RD7]"""
    table, version = mc.Table(fed.root), STEPS
    rows = questions.read(table, version)
    dice = random.Random(4)
    drawn = [questions.draw_filter(rows, dice) for _ in range(40)]
    assert [questions.compare_filtered(table, version, rows, each) for each in drawn] == [[]] * 40
    assert len({str(each) for each in drawn}) > 20
    last = pc.field("position") == rows.column("position")[-1].as_py()
    elsewhere = rows.set_column(rows.column_names.index(questions.FILE), questions.FILE, pa.array(["/no such file"] * len(rows)))
    assert "1 files that hold matching rows are left out" in questions.compare_filtered(table, version, elsewhere, last)[0]
    assert "rows are read with it" in questions.compare_filtered(table, version, rows.slice(0, 0), last)[0]


def test_a_wrong_lineage_is_found(fed: Fed) -> None:
    """[RD9] [OB8]"""
    table = mc.Table(fed.root)
    rows = questions.read(table, STEPS)
    for position in range(STEP * (STEPS - 1)):
        assert questions.compare_lineage(table, rows, SOURCES[0], position) == []
    assert "is None, and" in questions.compare_lineage(table, rows, SOURCES[0], STEP * STEPS)[0]
    shifted = rows.set_column(rows.column_names.index("position"), "position", pc.add(rows.column("position"), STEP))
    assert "and it is in ['" in questions.compare_lineage(table, shifted, SOURCES[0], STEP)[0]


def test_a_prepared_job_that_is_there_twice_or_lost_is_found(tmp_path: Path) -> None:
    """[AB3] [CM1]"""
    table = mc.create_table(tmp_path / "handed", STATE)
    for _ in range(3):
        with mc.begin(table.url) as job:
            job.write(pieces_of({job.id: 1}))
    assert check.check_state(table.url, {}, [], HANDED) == ([], 3)
    rows = table.dataset().to_table()
    jobs = table.files().column("job").to_pylist()
    assert check.compare_jobs(rows, jobs) == []
    assert check.compare_jobs(rows, jobs[1:]) != []
    assert check.compare_jobs(pa.concat_tables([rows, rows.slice(0, PIECES)]), jobs) != []
    mc.write(rows.slice(0, PIECES), table.url)
    assert "version 5: its generations are" in check.check_state(table.url, {}, [], HANDED)[0][0]


def test_a_slot_that_is_lost_or_mixed_after_a_rewind_is_found(tmp_path: Path) -> None:
    """[WM5] [CF4]"""
    table = mc.create_table(tmp_path / "again", STATE, partition_by=["slot"])

    def step(number: int, generation: int, mode: Literal["append", "overwrite"] = "overwrite") -> None:
        slot = f"s {number}"
        scope = {"slot": slot} if mode == "overwrite" else None
        mc.write(pieces_of({slot: generation}), table.url, key=slot, watermarks={"s": (number, number + 1)}, mode=mode, overwrite=scope)

    step(0, 10)
    step(1, 11)
    table.rewind("s", 0, reason="again")
    step(0, 12)
    assert check.check_state(table.url, {}, [], AGAIN) == ([], 3)
    step(1, 13, mode="append")
    assert "slot 's 1' is not one whole generation: [(11, 0), " in check.check_state(table.url, {}, [], AGAIN)[0][0]
    assert "1 slots are lost: ['s 2']" in check.compare_again(pieces_of({"s 0": 1, "s 1": 2}), {"s": 3})[0]


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


def test_what_expired_versions_brought_is_held_to_the_keys_that_are_remembered(tmp_path: Path) -> None:
    """gc leaves no history of a batch, but its key: none may be lost with the history, and none be there without. [KY4] [IV2] [IV7]"""
    log, told = Log(tmp_path / "log", SOURCES), list[dict[str, Any]]()
    log.append(SOURCES[0], log.invent(SOURCES[0], 4 * BATCH, random.Random(3)))

    def made(name: str, second: Callable[[pa.Table], pa.Table], key: str | None = None) -> list[str]:
        url = str(tmp_path / name)
        told.clear()
        for number in range(4):
            part = batch_of("keyed", SOURCES[0], number)
            data, used = (second(rows(log, part.ranges)), key or part.key) if number == 1 else (rows(log, part.ranges), part.key)
            outcome = mc.write(data, url, key=used)
            note: dict[str, Any] = {"what": "committed", "job": outcome.job_id, "version": outcome.version, "key": part.key}
            told.append({**note, "already": False, "ranges": {}})
            if number == 2:
                expired = Path(url, object_names.version_name(3)).read_bytes()
                mc.gc(url, grace="0s", keep_for="0s")
        Path(url, object_names.version_name(3)).write_bytes(expired)  # as a gc that was killed, or a stalled writer, leaves one
        assert check.read_chain(open_store(url, {}))[0].version == 4, "the oldest version has brought a batch itself"
        return check.check_fed(url, {}, log, told, keyed=True)[0]

    assert made("as it should be", lambda data: data) == []
    assert made("lost", lambda data: data.slice(1))[0] == f"version 4: {SOURCES[0]!r} from 10 to 20: 1 lost: [10]"
    assert made("twice", lambda data: pa.concat_tables([data, data.slice(4, 1)]))[0].endswith("from 10 to 20: 1 twice: [14]")
    forgotten = made("forgotten", lambda data: data, key="another")
    assert forgotten[0] == f"version 4: {SOURCES[0]!r} from 0 to 0: 10 out of the range: [10, 11, 12, 13, 14]"
    assert f"1 acknowledged keys are forgotten: {told[1]['key']!r} of version 3" in forgotten


def test_a_count_that_was_lost_before_the_history_expired_is_found(tmp_path: Path) -> None:
    """[CF3] [IV2]"""
    table, told = mc.create_table(tmp_path / "counter", STATE), list[dict[str, Any]]()
    for generation in (1, 2, 2, 3):
        outcome = mc.write(pieces_of({COUNTER: generation}), table.url, mode="overwrite")
        told.append({"what": "committed", "job": outcome.job_id, "version": outcome.version, "key": None, "already": False, "ranges": {}})
        if outcome.version == 4:
            mc.gc(table.url, grace="0s", keep_for="0s")
    found = check.check_state(table.url, {}, told, name=COUNTER)[0]
    assert found == ["4 overwrites were acknowledged, and the count is 3"]
    assert check.check_state(table.url, {}, told[1:], name=COUNTER)[0] == []


def test_what_gc_leaves_or_takes_wrongly_is_found(fed: Fed) -> None:
    """What no job has written, and a file that the newest version lists. [GC5] [IV7]"""
    store = open_store(str(fed.root))
    store.put("_manifest/of nobody", b"x")
    (found,) = check.check_swept(store)
    assert found == "1 objects are left that nothing lists: ['_manifest/of nobody']"
    store.delete(["_manifest/of nobody"])
    assert check.check_swept(store) == []
    fed.listed().unlink()
    assert [each.partition(":")[0] for each in check.check_swept(store)] == ["1 objects are missing"]


# --- transfers ----------------------------------------------------------------------------------------------------------
A, B, _ = BANKS


def banks() -> tuple[dict[str, pa.Table], dict[str, Moves]]:
    """All banks after some transfers, which were acknowledged."""
    dice, tables = random.Random(3), dict.fromkeys(BANKS, ROWS.empty_table())
    told = {}
    for number in range(30):
        transfer = draw_transfer(f"teller 0.0/{number}", dice, keyed=True, banks=1 + number % 3)
        told[transfer.name] = transfer.moves
        for bank in transfer.banks:
            tables[bank] = pa.concat_tables([tables[bank], rows_of(transfer, bank, f"v1-{number}")])
    return tables, told


def test_banks_that_are_as_they_should_be_have_no_findings() -> None:
    tables, told = banks()
    assert compare_banks(tables, told) == [] == compare_banks({A: tables[A], B: tables[B]}, told)
    assert sum(sum(table.column("amount").to_pylist()) for table in tables.values()) == 0 < tables[A].num_rows
    assert sum(count for _, count in jobs_in(tables[A])) == tables[A].num_rows


@pytest.mark.parametrize("damage", ["half", "twice", "changed", "lost", "elsewhere"])
def test_each_damage_is_found(damage: str) -> None:
    """[MT1] [MT12]"""
    tables, told = banks()
    name = next(name for name, moves in told.items() if {A, B} == moves.keys())
    own = [each == name for each in tables[A].column("transfer").to_pylist()]
    without, rows = tables[A].filter(pa.array([not each for each in own])), tables[A].filter(pa.array(own))
    if damage == "changed":
        rows = rows.set_column(2, "amount", pa.array([0], pa.int64()))
    changed = {"half": [without], "twice": [without, rows, rows], "changed": [without, rows], "lost": [without], "elsewhere": [tables[A]]}
    tables[A] = pa.concat_tables(changed[damage])
    if damage == "lost":
        tables[B] = tables[B].filter(pa.array([each != name for each in tables[B].column("transfer").to_pylist()]))
    if damage == "elsewhere":
        third = BANKS[2]
        tables[third] = pa.concat_tables([tables[third], rows])
    found = compare_banks(tables, told)
    assert any(name in each for each in found), found
    if damage in ("half", "twice", "changed", "elsewhere"):
        assert any("the total is" in each for each in found) and compare_banks(tables), found


def link(version: int, table: str, **more: Any) -> Link:
    return Link(version=version, digest="", snapshot={"version": version, "table_id": table, "commits": [], **more})


def test_members_are_void_if_and_only_if_no_home_has_decided_them() -> None:
    """[MT4] [MT5] [MT6]"""
    member, home = {"pending": {"table_id": "h"}}, [link(1, "h"), link(2, "h", joint={"m": {"version": 2}})]
    good = [link(1, "m"), link(2, "m", **member), link(3, "m", **member), link(4, "m", void=[3])]
    assert check_members(good, {"m": good, "h": home}) == []
    for void, said in (([], "version 3 is not void"), ([2, 3], "version 2 was committed")):
        wrong = [*good[:-1], link(4, "m", void=void)]
        assert [said in each for each in check_members(wrong, {"m": wrong, "h": home})] == [True]
    undecided = good[:3]
    assert "version 3" in check_members(undecided, {"m": undecided, "h": home})[0], "the last word of a table is an undecided member"


# --- row changes --------------------------------------------------------------------------------------------------------
def notes(*changes: Change) -> list[dict[str, object]]:
    return [{"what": "changing", "change": msgspec.to_builtins(change)} for change in changes]


@pytest.mark.thorough
def test_the_replay_is_what_the_library_does() -> None:
    """One after the other, of every kind. [RC2] [RC3] [RC7] [RC9] [RC10]"""
    url, dice, replay = f"memory://{TABLE}/replay", random.Random(1), Replay()
    table = mc.create_table(url, SCHEMA, partition_by="shelf")
    replay.follow([None])
    kinds = set()
    for number in range(25):
        there = table.to_arrow(columns=["id", "shelf"])
        change = draw_change(f"c {number}", dice, dict(zip(there["id"].to_pylist(), there["shelf"].to_pylist(), strict=True)))
        replay.learn(notes(change))
        version, _ = carry_out(url, {}, change)
        assert carry_out(url, {}, change) == (version, True)
        replay.follow([change.key])
        assert replay.version == version and replay.compare(version, table.to_arrow()) == []
        kinds.add(change.kind)
    assert kinds == {"add", "update", "delete", "merge", "overwrite"} and table.snapshot().totals.rows > 20


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda rows: rows.slice(1), "1 rows lost"),
        (lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), "1 rows there twice"),
        (lambda rows: rows.set_column(3, "n", pa.array([each + 1 for each in rows["n"].to_pylist()])), "3 rows changed too often"),
        (
            lambda rows: rows.set_column(0, "id", pa.array([each + 9 for each in rows["id"].to_pylist()])),
            "3 rows there, which should not be",
        ),
    ],
    ids=["lost", "twice", "updated again", "not known"],
)
def test_damage_is_found(damage: Callable[[pa.Table], pa.Table], said: str) -> None:
    change, replay = Change(name="c", kind="add", shelf="%", ids=(1, 2, 3)), Replay()
    replay.learn(notes(change))
    replay.follow(["c"])
    rows = pa.table([[1, 2, 3], ["%"] * 3, [1, 2, 0], [1] * 3, ["c"] * 3], schema=SCHEMA)
    assert replay.compare(1, rows) == []
    assert any(said in each for each in replay.compare(1, damage(rows)))


def test_a_version_that_was_told_and_is_another_is_found() -> None:
    links = [Link(version=1, digest="", snapshot={"commits": [{"key": "c"}]})]
    asked = notes(Change(name="c", kind="add", shelf=""))
    assert check_heard(links, [*asked, {"what": "changed", "key": "c", "version": 1}]) == []
    assert check_heard(links, [*asked, {"what": "changed", "key": "c", "version": 2}])
    assert check_heard(links, [*asked, {"what": "changed", "key": "d", "version": 1}])
    assert check_heard(links, [])
