"""The history checker: right histories are explained, wrong ones are not, whatever is wrong with them. [IV1] [IV2] [IV5] [IV8] [WM4]"""

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.histories import append, found, op, read
from tests.kit.sizes import rounds

from manifestcommit.errors import UsageError
from manifestcommit.testing.history.checker import check
from manifestcommit.testing.history.operation import ANY_FENCE, Contradiction, Operation, read_history, write_history
from manifestcommit.testing.history.serial_order import UndecidedError


def ids(wrong: Contradiction) -> list[str]:
    return [each.id for each in wrong.operations]


# --- what is right
def test_commits_beside_each_other_in_either_order() -> None:
    first, second = append(0, 10, 2, "a"), append(1, 9, 3, "b")
    assert check([first, second, read(11, 3, "a", "b")]) is None
    assert check([append(0, 10, 3, "a"), append(1, 9, 2, "b"), read(5, 2, "b"), read(11, 3, "a", "b")]) is None


def test_a_version_that_nobody_claims_may_be_what_a_killed_process_did() -> None:
    """A rollback tells its job when it is done; if its process dies before, the table's own history names a job that nobody knows."""
    commits = [append(0, 1, 1, "a", advances={"s": (0, 5)}), append(2, 3, 2, "b", advances={"s": (5, 9)})]
    killed = op("rollback", 4, None, "unknown", restores=1)
    after = append(6, 7, 4, "c", advances={"s": (5, 7)}, birth=3)
    unclaimed = op("history", 0, 9, "committed", 3, job="v2-who")
    assert check([*commits, killed, unclaimed, after]) is None
    assert "while it is at 9" in found(*commits, unclaimed, after).problem, "nobody has rolled back"
    tag = op("tag", 4, 5, "committed", 3, job="v2-who", birth=2)
    assert "while it is at 9" in found(*commits, killed, tag, after).problem, "somebody else made version 3"
    other = msgspec.structs.replace(killed, job="v2-other")
    assert "while it is at 9" in found(*commits, other, unclaimed, after).problem, "another job made version 3"


def test_who_was_rolled_back_may_hear_of_the_commit_that_came_back() -> None:
    """The key's first commit is undone, a second one lands without an answer, and a rollback over both brings the first one back."""
    start = append(-2, -1, 1, "x")
    first = append(0, 1, 2, "a", key="k")
    away = op("rollback", 4, 5, "committed", 3, restores=1)
    again = append(6, 20, 2, "c", key="k", outcome="already", birth=3)
    heard = append(8, 9, 4, "d", key="k", outcome="already", birth=4)
    back = op("rollback", 10, 11, "committed", 5, restores=2)
    end = read(12, 5, "x", "a")
    assert check([start, first, away, again, heard, back, end]) is None
    assert "nobody had" in found(start, first, away, heard, back, end).problem
    assert "shows 'c'" in found(start, first, again, read(21, 3, "x", "a", "c")).problem, "twice, and nothing was rolled back"


def test_an_unknown_outcome_may_be_either() -> None:
    lost = append(0, 1, None, "x", outcome="unknown")
    assert check([lost, append(2, 3, 2, "b"), read(4, 2, "b")]) is None
    assert check([lost, append(2, 3, 3, "b"), read(4, 3, "b", "x")]) is None
    # A request may land long after its client gave up, and after others have committed.
    assert check([lost, append(2, 3, 2, "b"), read(4, 2, "b"), read(5, 3, "b", "x")]) is None


def test_a_killed_rerun_is_told_of_the_first_commit() -> None:
    killed = append(0, None, None, "x", outcome="unknown", key="k")
    assert check([killed, append(2, 3, 2, "y", outcome="already", key="k"), read(4, 2, "x")]) is None
    assert "nobody had" in found(append(2, 3, 2, "y", outcome="already", key="k"), read(4, 2)).problem


def test_one_version_carries_several_appends() -> None:
    assert check([append(0, 5, 2, "a"), append(1, 5, 2, "b"), read(6, 2, "a", "b")]) is None
    assert "two winners" in found(append(0, 5, 2, "a"), append(1, 5, 2, "b", empties=("day=1",))).problem


def test_overwrites_rollbacks_and_rewinds() -> None:
    history = [
        append(0, 1, 2, "a", key="k1", advances={"s": (0, 10)}),
        append(2, 3, 3, "b", empties=("day=1",), birth=2, scope=("day=1",)),
        read(4, 3, "b", watermarks={"s": 10}),
        op("rollback", 5, 6, "committed", 4, restores=2),
        read(7, 4, "a", watermarks={"s": 10}),
        op("rewind", 8, 9, "committed", 5, rewinds={"s": 5}),
        append(10, 11, 6, "c", key="k1", advances={"s": (5, 10)}),  # its key went with the rewind
        read(12, 6, "a", "c", watermarks={"s": 10}),
        append(13, 14, None, "d", outcome="refused", rule="overlap", advances={"s": (5, 10)}),
    ]
    assert check(history) is None


def forgetting(begin: float, version: int, keeps: int) -> Operation:
    return op("gc", begin, begin + 0.5, "read", version, fence=version, forgets=("*",), keeps=keeps)


def test_gc_forgets_no_more_keys_than_it_may() -> None:
    """Those that a rewind has dropped are not among the last ones that it keeps. [KY4]"""
    first, other = append(0, 1, 2, "a", key="k 1"), append(2, 3, 3, "b", key="k é", advances={"s": (0, 5)})
    again = append(8, 9, 6, "c", key="k 1")
    assert check([first, other, forgetting(6, 5, 1), again]) is None
    assert "commits key 'k 1' again" in found(first, other, forgetting(6, 5, 2), again).problem
    dropped = [first, op("rewind", 2, 3, "committed", 3, rewinds={"s": 0}), forgetting(6, 5, 1), again]
    assert "commits key 'k 1' again" in found(*dropped).problem


def test_keys_that_a_read_looks_up_are_recorded_where_they_were_committed() -> None:
    """Each at its version, none after a rewind or a rollback that dropped it; gc may have forgotten some. [KY3] [KY4] [WM5] [CF13]"""
    commits = [append(0, 1, 1, "a", key="k", advances={"s": (0, 1)}), append(2, 3, 2, "b", key="l")]
    assert check([*commits, read(4, 2, "a", "b", keys={"k": 1, "l": 2, "m": None})]) is None
    for wrong, said in (({"k": 2}, "recorded at 2"), ({"l": None}, "make it 2"), ({"m": 2}, "make it None")):
        assert said in found(*commits, read(4, 2, "a", "b", keys=wrong)).problem
    back = op("rewind", 5, 6, "committed", 3, rewinds={"s": 0})
    assert check([*commits, back, read(7, 3, keys={"k": None, "l": 2}, at=3, items=None)]) is None
    assert "'k' recorded at 1" in found(*commits, back, read(7, 3, keys={"k": 1}, at=3, items=None)).problem
    late = read(7, 3, keys={"k": None}, at=3, items=None)
    assert check([*commits, forgetting(5, 3, keeps=1), late]) is None
    assert "make it 1" in found(*commits, forgetting(5, 3, keeps=2), late).problem


def test_a_table_that_was_made_anew_has_a_history_of_its_own() -> None:
    """What was acknowledged of the removed one is not in it. [LY10] [CM5]"""
    old = append(0, 1, 2, "a", table="1")
    new = append(2, 3, 2, "b", table="2")
    assert check([old, new, read(4, 2, "b", table="2")]) is None
    assert "'a'" in found(old, new, read(4, 2, "a", "b", table="2")).problem
    assert check([old, read(1.5, 2, "a", table="1"), new]) is None


def test_where_a_source_begins_is_known_from_its_declaration() -> None:
    """[WM7]"""
    declared = op("declare", 0, 1, "unknown", advances={"s %é": (5, 5)})
    told = op("declared", 0.5, 1, "read", 2, origins={"s %é": 5})
    assert check([declared, told, append(2, 3, 3, "a", advances={"s %é": (5, 7)})]) is None
    assert "while it is at 5" in found(declared, told, append(2, 3, 3, "a", advances={"s %é": (0, 7)})).problem
    first = append(0, 1, 2, "a", advances={"s %é": (2, 5)})
    wrong = found(declared, first, op("declared", 2, 3, "read", 2, origins={"s %é": 5}))
    assert "learned that 's %é' begins at 5 at version 2; by the commits it begins at 2" in wrong.problem


def test_a_rollback_leads_a_forgotten_source_back_to_where_it_began() -> None:
    """To the lowest of its beginnings since the target. [CF13]"""
    commits = [
        append(0, 1, 1, "x"),
        append(2, 3, 2, "a", advances={"s": (5, 9)}),
        op("rewind", 4, 5, "committed", 3, rewinds={"s": None}),
        append(6, 7, 4, "b", advances={"s": (7, 8)}),
        op("rollback", 8, 9, "committed", 5, restores=1),
    ]
    assert check([*commits, read(10, 5, "x", watermarks={"s": 5})]) is None
    assert "the commits make it 5" in found(*commits, read(10, 5, "x", watermarks={"s": 7})).problem


def test_an_unknown_commit_that_a_rollback_brought_back() -> None:
    history = [
        append(0, None, None, "x", outcome="unknown"),
        append(2, 3, 3, "b", empties=("*",)),
        read(4, 3, "b"),
        op("rollback", 5, 6, "committed", 4, restores=2),
        read(7, 4, "x"),
    ]
    assert check(history) is None


def test_what_was_told_of_one_job_is_one_commit() -> None:
    """Prepared by one process, tried, committed and found by others. [AB3] [AB4]"""
    prepared = append(0, 1, None, "a", outcome="unknown", job="j", shared=True, key="k", advances={"s": (0, 5)}, birth=1)
    finished = op("commit", 4, 5, "committed", 3, job="j", id="finished")
    again = op("commit", 6, 7, "committed", 3, job="j", id="again")
    beside = append(2, 3, 2, "b")
    assert check([prepared, beside, finished, again, read(8, 3, "a", "b", watermarks={"s": 5})]) is None
    # Who was told of a gap leaves it prepared; who was told that it is given up knows of all of them.
    gap = op("commit", 1.5, 1.6, "refused", rule="conflict", job="j", shared=True, id="early")
    assert check([prepared, beside, gap, finished]) is None
    given_up = op("abort", 6, 7, "refused", rule="aborted", job="j", gives_up="j", id="given up")
    wrong = found(prepared, beside, finished, given_up)
    assert ids(wrong) == ["finished", "given up"] and "never to be (aborted)" in wrong.problem
    assert check([prepared, beside, given_up, read(8, 2, "b")]) is None
    assert "dirty" in found(prepared, beside, given_up, read(8, 3, "a", "b")).problem
    # Whoever aborts it may have recorded that as a commit of its own.
    aborting = op("abort", 2.5, 3.5, "committed", 3, gives_up="j", id="aborting")
    wrong = found(prepared, beside, aborting, msgspec.structs.replace(finished, version=4))
    assert ids(wrong) == ["aborting", "finished"] and "at version 4, and never to be (aborted)" in wrong.problem
    assert "dirty" in found(prepared, beside, aborting, read(8, 4, "a", "b")).problem
    assert check([prepared, beside, aborting, read(8, 3, "b")]) is None
    wrong = found(prepared, beside, finished, msgspec.structs.replace(again, version=4))
    assert ids(wrong) == ["finished", "again"] and "and at version 4" in wrong.problem
    # Alone it was refused for good.
    alone = append(0, 1, None, "a", outcome="refused", rule="conflict", job="j")
    assert "never to be (conflict)" in found(alone, beside, finished).problem


def test_a_job_may_be_told_of_its_own_unheard_commit_as_done() -> None:
    """[KY3]"""
    own = append(0, 3, 2, "a", outcome="already", key="k", job="j")
    assert check([own, read(4, 2, "a")]) is None
    assert check([own, append(1, 2, 2, "b", key="k"), read(4, 2, "b")]) is None
    assert "again" in found(own, append(1, 2, 2, "b", key="k"), read(4, 2, "a", "b")).problem


def test_a_key_that_gc_may_have_forgotten_may_be_committed_again() -> None:
    """[KY4]"""
    first, second = append(0, 1, 2, "a", key="k"), append(6, 7, 4, "b", key="k")
    gc = op("gc", 2, 3, "read", 3, fence=3, forgets=("*",))
    assert check([first, gc, second, read(8, 4, "a", "b")]) is None
    killed = op("gc", 2, None, "failed", fence=ANY_FENCE, forgets=("*",))
    assert check([first, killed, second]) is None
    late = msgspec.structs.replace(killed, begin=7.5, id="late")
    for history in ([first, second], [first, msgspec.structs.replace(gc, forgets=()), second], [first, second, late]):
        assert "commits key 'k' again" in found(*history).problem


def test_of_two_in_one_version_one_may_go_on_where_the_other_stopped() -> None:
    """Whichever began first. [CM24]"""
    second, first = append(0, 5, 2, "b", advances={"s": (5, 9)}), append(1, 5, 2, "a", advances={"s": (None, 5)})
    assert check([second, first, read(6, 2, "a", "b", watermarks={"s": 9})]) is None
    gap = append(1, 5, 2, "c", advances={"s": (9, 12)})
    assert (
        "while it is at"
        in found(append(-2, -1, 1, "x", advances={"s": (0, 5)}), second, gap, append(2, 5, 2, "d", advances={"s": (5, 6)})).problem
    )


# --- what is wrong, by name
def test_a_lost_update_is_found() -> None:
    wrong = found(append(0, 1, 2, "a"), append(2, 3, 3, "b"), read(4, 3, "b"))
    assert ids(wrong) == ["append-0", "append-2", "read-4"] and "lacks 'a'" in wrong.problem
    both = (append(0, 3, 3, "b", birth=1, empties=("day=1",), scope=("day=1",)), append(1, 2, 2, "a"))
    assert "an update is lost" in found(*both).problem
    elsewhere = msgspec.structs.replace(both[1], adds={"a": "day=2"})
    assert check([both[0], elsewhere]) is None


def test_a_compaction_is_no_update_that_could_be_lost() -> None:
    """[CF15]"""
    overwrite = append(1, 5, 4, "c", birth=2, empties=("*",), scope=("*",))
    compaction = append(2, 3, 3, "b", removes=("a",), compacts=True)
    history = [append(0, 0.5, 2, "a"), compaction, overwrite, read(6, 4, "c")]
    assert check(history) is None
    other = msgspec.structs.replace(compaction, compacts=False)
    assert "an update is lost" in found(history[0], other, overwrite).problem


def test_a_stale_read_is_found() -> None:
    wrong = found(append(0, 1, 2, "a"), read(2, 1), append(9, 10, 3, "z"))
    assert ids(wrong) == ["append-0", "read-2"] and "stale" in wrong.problem
    assert check([append(0, 3, 2, "a"), read(2, 1)]) is None  # it had not been told of when the read began
    assert check([append(0, 1, 2, "a"), read(2, 1, at=1)]) is None  # it was asked for


def test_a_doubled_commit_is_found() -> None:
    wrong = found(append(0, 1, 2, "a", key="k"), append(2, 3, 3, "b", key="k"))
    assert ids(wrong) == ["append-0", "append-2"] and "again" in wrong.problem
    # The first was never acknowledged; a read shows both all the same.
    wrong = found(append(0, None, None, "a", outcome="unknown", key="k"), append(2, 3, 3, "b", key="k"), read(4, 3, "a", "b"))
    assert "again" in wrong.problem or "lacks" in wrong.problem or "shows" in wrong.problem
    assert "more than once" in found(append(0, 1, 2, "a"), read(2, 2, "a", "a")).problem


def test_a_dirty_read_is_found() -> None:
    refused = append(0, 3, None, "a", outcome="refused", rule="conflict")
    assert ids(found(refused, append(1, 2, 2, "b"), read(4, 2, "a", "b"))) == ["append-0", "read-4"]
    assert "nobody wrote" in found(append(0, 1, 2, "a"), read(2, 2, "a", "ghost")).problem
    half = append(0, None, None, "a", "b", outcome="unknown")
    assert "lacks 'b'" in found(half, read(2, 2, "a")).problem  # half of a commit


def test_a_resurrected_version_is_found() -> None:
    # Version 3 was deleted, a stalled writer created it again and was told so, while the table had long gone on.
    wrong = found(append(0, 9, 3, "stalled"), append(1, 2, 3, "a"), append(3, 4, 4, "b"), read(10, 4, "a", "b"))
    assert "append-0" in ids(wrong)
    late = found(append(0, 1, 2, "a"), append(2, 3, 3, "b"), append(4, 5, 2, "stalled"))
    assert "as its own" in late.problem and ids(late) == ["append-2", "append-4"]


def test_a_commit_of_a_job_that_gc_has_fenced_off_is_found() -> None:
    """[CM2]"""
    gc, stalled = op("gc", 1, 2, "read", 4, fence=3), append(0, 5, 5, "a", birth=2)
    assert "began at version 2, below the fence 3" in found(gc, stalled).problem
    assert check([gc, msgspec.structs.replace(stalled, birth=3)]) is None
    assert check([gc, append(0, 5, 4, "b", birth=2), append(6, 7, 5, "a", birth=4)]) is None  # of the very version in which it was decided


def test_a_rollback_over_what_it_had_not_seen_is_found() -> None:
    """[CF13]"""
    commits = append(0, 1, 2, "a"), append(2, 6, 3, "b")
    back = op("rollback", 3, 7, "committed", 4, restores=1, birth=2)
    assert "goes back over version 3, and had seen version 2" in found(*commits, back).problem
    assert check([*commits, msgspec.structs.replace(back, birth=3)]) is None


def test_a_version_that_changes_is_found() -> None:
    assert "different rows" in found(append(0, 1, 2, "a"), append(0.5, 1.5, 3, "b"), read(2, 3, "a", "b"), read(3, 3, "a")).problem
    assert "different watermarks" in found(read(2, 1, watermarks={}), read(3, 1, watermarks={"s": 3})).problem


def test_a_watermark_that_was_overwritten_is_found() -> None:
    one, two = (append(t, t + 1, 2 + t // 2, f"i{t}", advances={"s": (0, 10 + t)}) for t in (0, 2))
    wrong = found(append(-3, -2, 1, "x"), one, two)
    assert "while it is at 10" in wrong.problem and ids(wrong) == ["append-0", "append-2"]
    wrong = found(append(-3, -2, 1, "x"), one, read(2, 2, "x", "i0", watermarks={"s": 7}))
    assert "commits make it 10" in wrong.problem and ids(wrong) == ["append-0", "read-2"]
    back = op("rollback", 2, 3, "committed", 3, restores=2)
    wrong = found(append(-3, -2, 1, "x"), one, back, append(4, 5, 4, "y", advances={"s": (0, 9)}))
    assert "while it is at 10" in wrong.problem and ids(wrong) == ["rollback-2", "append-4"]


def test_refusals_without_a_reason_are_found() -> None:
    for rule, more in (
        ("conflict", {}),
        ("fenced", {"birth": 1}),
        ("aborted", {"job": "j"}),
        ("key_reused", {"key": "k"}),
        ("gap", {"advances": {"s": (5, 9)}}),
    ):
        refused = append(3, 4, None, "x", outcome="refused", rule=rule, id="refused", **more)
        assert ids(found(append(0, 1, 2, "a", advances={"s": (0, 5)}), refused)) == ["refused"], rule
    reasons = [
        append(3, 3.5, 3, "b", key="k", advances={"s": (5, 6)}),
        op("gc", 3, 3.5, "committed", 4, fence=3),
        op("abort", 3, 3.5, "committed", 5, gives_up="j"),
    ]
    for rule, more in (
        ("conflict", {}),
        ("fenced", {"birth": 2}),
        ("aborted", {"job": "j"}),
        ("key_reused", {"key": "k"}),
        ("overlap", {"advances": {"s": (5, 9)}}),
    ):
        refused = append(3, 4, None, "x", outcome="refused", rule=rule, id="refused", **more)
        assert check([append(0, 1, 2, "a", advances={"s": (0, 5)}), *reasons, refused]) is None, rule


def test_of_two_who_were_told_of_one_version_it_is_the_earlier_ones() -> None:
    """The answer of the first was lost. Nothing that began later explains why another one was refused before it. [KY2] [WM2]"""
    first = append(0, 2, 3, "a", outcome="already", key="k", job="j", birth=1, advances={"s": (1, 2)})
    refused = append(4, 5, None, "b", outcome="refused", rule="overlap", birth=3, advances={"s": (0, 1)})
    later = append(9, 10, 4, "c", birth=3)
    again = append(10.5, 11, 3, "d", outcome="already", key="k", birth=4, advances={"s": (1, 2)})
    assert check([first, refused, later, again]) is None
    assert "does not fit" in found(refused, later, append(6, 7, 3, "d", outcome="already", key="k", advances={"s": (1, 2)})).problem


def test_a_history_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="belongs to two"):
        check([append(0, 1, 2, "a"), append(2, 3, 3, "a")])
    with pytest.raises(ValueError, match="before it begins"):
        check([append(3, 2, 2, "a")])
    with pytest.raises(ValueError, match="without a version"):
        check([append(0, 1, None, "a")])


def test_too_many_unknowns_are_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifestcommit.testing.history.serial_order._STEPS", 50)
    unknown = [op("overwrite", 0, None, "unknown", None, id=f"u{i}", advances={f"s{i}": (0, 1)}, empties=("day=9",)) for i in range(12)]
    wrong = op("read", 60, 61, "read", 13, watermarks={f"s{i}": 1 for i in range(12)} | {"t": 3})
    with pytest.raises(UndecidedError):
        check([*unknown, append(40, 41, 13, "c"), wrong])


# --- many
def lived(seed: int, *, commits: int, told: float = 0.85) -> list[Operation]:
    """A right history: a serial table under concurrent processes, some of whom are never told."""
    dice = random.Random(seed)
    history: list[Operation] = []
    items: dict[str, str] = {}
    watermark = 0
    past: dict[int, tuple[dict[str, str], int]] = {1: ({}, 0)}
    for version in range(2, commits + 2):
        now = version * 10.0
        begin, end = now - dice.uniform(0, 25), now + dice.uniform(0, 25)
        what = dice.choice(["append", "append", "append", "overwrite", "rollback"])
        name, day = f"i{version}+%=#'é", f"day={dice.randint(1, 3)}"
        known = dice.random() < told
        end_ = {"outcome": "committed", "version": version} if known else {"outcome": "unknown", "version": None}
        if what == "append":
            history.append(append(begin, end if known or dice.random() < 0.5 else None, end_["version"], name, outcome=end_["outcome"],  # type: ignore[arg-type]
                                  partition=day, key=f"k{version}", advances={"s": (watermark or None, version)}))  # fmt: skip
            items = {**items, name: day}
            watermark = version
        elif what == "overwrite":
            history.append(append(begin, end, end_["version"], name, outcome=end_["outcome"], partition=day, empties=(day,)))  # type: ignore[arg-type]
            items = {**{item: where for item, where in items.items() if where != day}, name: day}
        else:
            history.append(op("tag", begin, end, **end_))  # type: ignore[arg-type]
        past[version] = items, watermark
        if dice.random() < 0.7:
            started = now + dice.uniform(0, 9)
            shown = {"s": watermark} if watermark else {}
            history.append(op("read", started, started + 0.5, "read", version, items=tuple(items), watermarks=shown))
        if dice.random() < 0.3:
            history.append(append(begin, end, None, f"no{version}", outcome="refused", rule="conflict", id=f"refused-{version}"))
    dice.shuffle(history)
    return history


@given(st.integers(0, 2**32))
@settings(max_examples=rounds(40, 2_000))
def test_whatever_a_serial_table_tells_is_explained(seed: int) -> None:
    history = lived(seed, commits=12)
    wrong = check(history)
    assert wrong is None, wrong


@given(st.integers(0, 2**32), st.data())
@settings(max_examples=rounds(40, 2_000))
def test_one_row_that_a_read_lost_doubled_or_made_up_is_found(seed: int, data: st.DataObject) -> None:
    history = lived(seed, commits=12)
    reads = [each for each in history if each.name == "read" and each.items]
    if not reads:
        return
    read_ = data.draw(st.sampled_from(reads))
    items = read_.items or ()
    kind = data.draw(st.sampled_from(["lost", "doubled", "made up"]))
    item = data.draw(st.sampled_from(items))
    changed = {"lost": tuple(each for each in items if each != item), "doubled": (*items, item), "made up": (*items, "ghost")}[kind]
    wrong = check([msgspec.structs.replace(each, items=changed) if each is read_ else each for each in history])
    writer = next(each for each in history if item in each.adds)
    # What nobody was told of and only this read shows may as well never have been committed.
    if kind != "lost" or writer.outcome == "committed":
        assert wrong is not None and len(wrong.operations) <= 5, wrong


def test_histories_survive_the_disk_and_a_torn_last_line(tmp_path: Path) -> None:
    history = lived(3, commits=20)
    write_history(tmp_path / "a.jsonl", history)
    assert read_history(tmp_path / "a.jsonl") == history
    data = (tmp_path / "a.jsonl").read_bytes()
    (tmp_path / "a.jsonl").write_bytes(data[:-20])
    assert read_history(str(tmp_path / "a.jsonl")) == history[:-1]


def test_a_history_of_no_file_or_with_a_line_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        read_history(*tmp_path.glob("*.jsonl"))  # would be explained by any order
    write_history(tmp_path / "a é.jsonl", lived(3, commits=3))
    (tmp_path / "a é.jsonl").write_bytes(b"{}\n" + (tmp_path / "a é.jsonl").read_bytes())
    with pytest.raises(UsageError, match=r"a é\.jsonl, line 1,"):
        read_history(tmp_path / "a é.jsonl")
