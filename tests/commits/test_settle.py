"""Tables that depend on the one that decided for them: settling them, and what is left where that one is gone. [MT10]"""

import pytest
from tests.commits.tables import DECIDED, SCHEMA, Lake, append, sound, stopped
from tests.kit.tables import put_back

from manifestcommit.commits.commit_loop import create_table
from manifestcommit.commits.joint_commit import commit_jointly, read_jointly
from manifestcommit.errors import UndecidedError, UsageError
from manifestcommit.log.table_context import TableContext
from manifestcommit.operations import gc
from manifestcommit.operations.rollback import settle
from manifestcommit.operations.verify import VerifyReport, verify
from manifestcommit.protocol.retention import Policy
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore

GENTLE = Policy(grace_s=3600, keep_for_s=3600, keep_versions=1, prepared_grace_s=3600)


def remove(lake: Lake, which: int) -> None:
    """The whole table, as by a person."""
    put_back(open_store(lake.urls[which]))


def settled(lake: Lake) -> Lake:
    """Once the home has decided one more commit, and both others know it."""
    commit_jointly(lake.parts())
    for which in (1, 2):
        settle(lake.at(lake.urls[which]), None)
    return lake


def kinds(report: VerifyReport) -> set[str]:
    return {finding.kind for finding in report.findings}


@pytest.mark.parametrize("said", ["committed", "aborted"])
def test_an_operator_says_what_became_of_a_member_whose_home_is_gone(said: str) -> None:
    """The version says which and why, and depends on that home no more. [MT10] [MT5]"""
    lake = Lake(3)
    append(lake, 1)
    assert stopped(lake.parts(), 4 if said == "aborted" else 5) is None
    remove(lake, 0)
    for which in (1, 2):
        with pytest.raises(UndecidedError, match="there is no table there"):
            lake.head(which)
        report = verify(lake.at(lake.urls[which]))
        assert "home_is_gone" in kinds(report) and not report.is_sound
        before = lake.newest(which)
        outcome = settle(lake.at(lake.urls[which]), said, reason="disk é")  # type: ignore[arg-type]
        assert outcome.committed and outcome.version == before.version + 1
        after = lake.head(which).snapshot
        assert after.commits[0].operation == "settle" and after.commits[0].reason == f"as {said}: disk é"
        assert after.homes == {} and (before.version in after.void) == (said == "aborted")
    moved = 1 if said == "committed" else 0
    assert [lake.head(each).snapshot.watermarks.get("s", 0) for each in (1, 2)] == [moved, moved]
    heads = read_jointly([lake.at(url) for url in lake.urls[1:]])
    assert [head.version for head in heads] == [lake.head(1).version, lake.head(2).version]
    lake.urls = lake.urls[1:]
    assert [outcome.kind for outcome in commit_jointly(lake.parts())] == ["committed"] * 2
    sound(lake)


def test_where_the_home_can_be_asked_nobody_else_says() -> None:
    """Also not what it says itself, nor of an undecided member; without an outcome it is asked. [MT10] [MT9]"""
    for after in (DECIDED - 1, DECIDED):
        lake = Lake(2)
        stopped(lake.parts(), after)
        session = lake.at(lake.urls[1])
        for said in ("committed", "aborted"):
            with pytest.raises(UsageError, match="Settle without an outcome"):
                settle(session, said, reason="r")  # type: ignore[arg-type]
        assert settle(session, None).committed
        settled = lake.head(1)
        assert settled.top is None and settled.snapshot.pending is None and settled.snapshot.commits[0].reason is None
        assert lake.moved() == ([1, 1] if after == DECIDED else [0, 0])
        assert settle(session, None).kind == "unchanged" and settle(session, "aborted", reason="r").kind == "unchanged"
        assert lake.head(1).version == settled.version
        sound(lake)


def test_the_partners_of_a_table_that_ask_it_are_named_until_they_are_settled() -> None:
    """By gc and verify of the table that decided, whatever its other partners are. [MT10]"""
    lake = Lake(4)
    commit_jointly(lake.parts([0, 1, 2, 3]))
    append(lake, 3)
    home = lake.at(lake.urls[0])
    roots = tuple(sorted(lake.at(lake.urls[each]).store.url for each in (1, 2)))
    assert gc.run(home, GENTLE).unsettled == roots
    report = verify(lake.at(lake.urls[0]))
    assert report.is_sound and {f.problem.split(" asks ")[0] for f in report.findings if f.kind == "partner_is_unsettled"} == set(roots)
    settle(lake.at(lake.urls[1]), None)
    remove(lake, 2)
    assert gc.run(lake.at(lake.urls[0]), GENTLE).unsettled == ()
    assert "partner_is_unsettled" not in kinds(verify(lake.at(lake.urls[0])))
    create_table(lake.at(lake.urls[2]), schema=SCHEMA, partition_by=(), properties={})
    assert gc.run(lake.at(lake.urls[0]), GENTLE).unsettled == ()


def test_an_undecided_member_is_a_note(lake: Lake) -> None:
    """[MT10] [MT8]"""
    stopped(lake.parts(), 2)
    report = verify(lake.at(lake.urls[1]))
    assert report.is_sound and "member_is_undecided" in kinds(report)


def test_after_a_home_is_removed_by_the_book_its_partners_are_read_together() -> None:
    """Also where another table is at its place by then. [MT10] [MT12]"""
    lake = settled(Lake(3))
    remove(lake, 0)
    sessions = [lake.at(url) for url in lake.urls[1:]]
    assert [head.version for head in read_jointly(sessions)] == [3, 3]
    create_table(lake.at(lake.urls[0]), schema=SCHEMA, partition_by=(), properties={})
    assert [head.version for head in read_jointly([lake.at(url) for url in lake.urls[1:]])] == [3, 3]


def test_a_home_that_goes_while_two_tables_are_read_has_decided_for_both() -> None:
    """Heads from before it was seen to be gone may be one before and one after its last decision. [MT10] [MT12]"""
    lake = settled(Lake(3))
    store = CountingStore(open_store(lake.urls[2]))
    gone: list[int] = []

    class Late(CountingStore):
        """Before the second table is read, the home commits once more, and is removed."""

        def list(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            if not gone:
                gone.append(1)
                remove(settled(lake), 0)
            return super().list(*args, **kwargs)

    first, second = lake.at(lake.urls[1]), TableContext(Late(store), lake.env)
    assert [head.snapshot.watermarks["s"] for head in read_jointly([first, second])] == [2, 2]
