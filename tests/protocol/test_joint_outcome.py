"""What became of a member, and the state that follows."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec import golden

from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Inputs, Retention, Rollback, Write
from manifestcommit.format.snapshot import MOST_TABLES, DisputedTime, HomeRecord, JointRecord, Snapshot, Totals
from manifestcommit.protocol.apply import apply
from manifestcommit.protocol.conflict import is_readable
from manifestcommit.protocol.joint_outcome import (
    Mismatch,
    Participant,
    as_decision,
    as_member,
    attempt_of,
    find_mismatch,
    in_order,
    last_state,
    lowest_allowed,
    member_outcome,
    share_of,
    state_before,
)

MEMBER, HOME = golden.pending(), golden.home()
ATTEMPT = golden.home().joint[golden.TABLE_ID].attempt
BASE = msgspec.structs.replace(
    golden.minimal(), version=7, parent_digest="sha256:" + "7" * 64, committed_at=5, totals=Totals(files=3), keys={}
)


def asked(home: Snapshot):
    return lambda job: job in home.recent_jobs


def fate(home: Snapshot) -> str:
    return member_outcome(MEMBER, home, asked(home))


def told(version: int, attempt: str = ATTEMPT) -> Snapshot:
    return msgspec.structs.replace(HOME, joint={golden.TABLE_ID: JointRecord(version=version, attempt=attempt, root=golden.HERE)})


def test_the_home_says_that_a_member_is_committed() -> None:
    assert fate(HOME) == "committed"
    assert (
        attempt_of(MEMBER.pending) == ATTEMPT == object_names.attempt_id(golden.HOME_JOB, 2) != object_names.attempt_id(golden.HOME_JOB, 1)
    )


def test_a_committed_member_stays_so_whatever_is_recorded_later() -> None:
    """A late abort of a decided attempt, and a fence above its job, change nothing, and nobody looks into runs."""
    late = msgspec.structs.replace(HOME, recent_jobs={ATTEMPT: None, golden.HOME_JOB: None}, fence=4)
    assert fate(late) == "committed"
    assert member_outcome(MEMBER, HOME, lambda job: pytest.fail("asked for a run")) == "committed"


def test_a_home_that_knows_a_later_member_says_that_the_table_went_on() -> None:
    assert fate(told(10)) == "newer"


def test_a_home_that_knows_another_attempt_at_this_version_knows_another_table_of_this_id() -> None:
    assert fate(told(9, object_names.attempt_id(golden.HOME_JOB, 1))) == "diverged"


def test_an_aborted_attempt_an_aborted_job_and_a_fenced_one_are_aborted() -> None:
    before = msgspec.structs.replace(told(6), recent_jobs={})
    assert fate(before) == "undecided"
    assert fate(msgspec.structs.replace(before, recent_jobs={ATTEMPT: None})) == "aborted"
    assert fate(msgspec.structs.replace(before, recent_jobs={golden.HOME_JOB: None})) == "aborted"
    assert fate(msgspec.structs.replace(before, recent_jobs={object_names.attempt_id(golden.HOME_JOB, 1): None})) == "undecided"
    assert fate(msgspec.structs.replace(before, fence=4)) == "aborted"
    assert fate(msgspec.structs.replace(before, fence=3)) == "undecided"
    assert fate(msgspec.structs.replace(before, joint={})) == "undecided"


@pytest.mark.parametrize("version", [2, 6])
def test_a_job_that_has_committed_commits_no_other_member(version: int) -> None:
    """Other runs of a recoverable job may have placed one, of this attempt or another. [MT6] [AB6]"""
    assert HOME.recent_jobs[golden.HOME_JOB] is not None
    assert fate(told(version)) == fate(told(version, object_names.attempt_id(golden.HOME_JOB, 1))) == "aborted"
    assert fate(msgspec.structs.replace(HOME, joint={})) == "aborted"


def test_a_version_says_which_joint_commit_it_is_part_of() -> None:
    """The decision with its members, in the second attempt; a member with its home. [MT3] [MT4]"""
    decision, member = share_of(HOME), share_of(MEMBER)
    assert decision is not None and member is not None and MEMBER.pending is not None
    assert (decision.home, decision.attempt, decision.members) == (None, ATTEMPT, {HOME.joint[golden.TABLE_ID].root: 9})
    assert (member.home, member.attempt, member.members) == (MEMBER.pending.home, ATTEMPT, {})


def test_a_later_version_of_the_home_is_no_part_of_what_was_decided_before() -> None:
    """Also where its job began at the same version, or the partner table took part twice. [MT4]"""
    job = golden.HOME_JOB[:-1] + "b"
    (commit,) = HOME.commits
    later = msgspec.structs.replace(HOME, version=5, commits=(msgspec.structs.replace(commit, job=job, commit_id=f"{job}.00"),))
    assert share_of(later) is None and share_of(golden.minimal()) is None
    record = JointRecord(version=12, attempt=object_names.attempt_id(job, 1), root="s3://lake/other")
    share = share_of(msgspec.structs.replace(later, joint={**HOME.joint, "f" * 16: record}))
    assert share is not None and share.members == {"s3://lake/other": 12}


def write(head: Snapshot, *, base: Snapshot | None = None, now: int = 0) -> Snapshot:
    job = f"v{last_state(head)}-{golden.TABLE_ID}-{'e' * 32}"
    change = Write(job=job, birth=last_state(head), operation="append")
    return apply(head, change, Inputs(), parent_digest="sha256:" + "1" * 64, commit_id=f"{job}.00", now_us=now, writer="now")


def test_the_next_version_after_an_aborted_member_has_the_state_of_its_base() -> None:
    late = msgspec.structs.replace(MEMBER, committed_at=99)
    state = state_before(late, BASE)
    assert state.version == 9 and state.void == (8, 9) and state.totals == BASE.totals and state.pending is None and last_state(state) == 7
    after = write(state)
    assert (after.version, after.format_version, after.void, after.totals, after.committed_at) == (10, 1, (8, 9), BASE.totals, 99)
    assert golden.JOB not in after.recent_jobs and MEMBER.commits[0].job not in after.recent_jobs and not after.homes
    assert [version for version in range(1, 11) if is_readable(after, version)] == [1, 2, 3, 4, 5, 6, 7, 10]
    codec.decode_snapshot(codec.encode_snapshot(after), name=object_names.version_name(10))


def test_clocks_that_a_void_member_found_to_disagree_stay_disputed() -> None:
    """Its writer may be the only one with a right clock: else a search by time gives a wrong version without a word. [MT5] [CM27]"""
    found = DisputedTime(first=7, last=9, said=5_000_000_000, clock=1)
    state = state_before(msgspec.structs.replace(MEMBER, disputed_times=(found,)), BASE)
    assert not BASE.disputed_times and state.disputed_times == write(state, now=99).disputed_times == (found,)


def test_the_next_version_after_a_committed_member_has_its_state_and_is_not_pending() -> None:
    after = write(MEMBER)
    assert (after.version, after.format_version, after.pending, after.void) == (10, 1, None, (8,))
    assert after.homes == MEMBER.homes and after.rank == MEMBER.rank and MEMBER.commits[0].job in after.recent_jobs


def test_a_member_above_void_versions_names_the_state_below_them() -> None:
    state = state_before(MEMBER, BASE)
    made = as_member(write(state), home=golden.HOME, job=golden.HOME_JOB, attempt=3, base=last_state(state))
    assert made.version == 10 and made.format_version == 2 and made.pending is not None and made.pending.base == 7
    assert made.homes[golden.HOME_ID].version == 10 and made.homes[golden.HOME_ID].root == golden.HOME
    assert codec.decode_snapshot(codec.encode_snapshot(made), name=object_names.version_name(10)) == made


def test_a_decision_keeps_what_it_decided_for_others() -> None:
    other = "00000000000000b2"
    record = JointRecord(version=2, attempt=ATTEMPT, root="s3://b")
    assert as_decision(HOME, {other: record}).joint == {**HOME.joint, other: record}


def test_gc_and_a_rollback_keep_what_belongs_to_joint_commits() -> None:
    """But for void versions that are expired: nobody reads below `expired`."""
    head = msgspec.structs.replace(HOME, version=20, void=(3, 8, 12), homes=MEMBER.homes, fence=4)
    job = f"v20-{golden.HOME_ID}-{'e' * 32}"

    def made(change):
        return apply(head, change, Inputs(), parent_digest="sha256:" + "1" * 64, commit_id="c", now_us=0, writer="")

    collected = made(Retention(job=job, birth=20, fence=9, expired=8))
    assert collected.void == (8, 12)
    undone = made(Rollback(job=job, birth=20, target=msgspec.structs.replace(HOME, joint={}, rank=7, version=2)))
    assert undone.void == head.void
    for after in (collected, undone):
        assert (after.joint, after.homes, after.rank) == (head.joint, head.homes, head.rank)


@given(st.lists(st.booleans(), max_size=12))
def test_a_chain_of_members_reads_as_its_committed_ones(fates: list[bool]) -> None:
    """Members on top of each other, each committed or aborted: the state is that of the last one committed, times never go back, and
    each version can be written and read again."""
    head, objects = msgspec.structs.replace(BASE, committed_at=0), {7: BASE}
    for number, is_committed in enumerate(fates):
        made = write(head, now=number % 3)
        member = as_member(made, home=golden.HOME, job=golden.HOME_JOB, attempt=number + 1, base=last_state(head))
        name = object_names.version_name(member.version)
        assert codec.decode_snapshot(codec.encode_snapshot(member), name=name) == member
        assert member.committed_at >= head.committed_at
        objects[member.version] = member
        head = member if is_committed else state_before(member, objects[member.pending.base])
    committed = [8 + number for number, is_committed in enumerate(fates) if is_committed]
    assert last_state(head) == (committed or [7])[-1]
    assert head.void == tuple(8 + number for number, is_committed in enumerate(fates) if not is_committed)


# --- which table of a joint commit decides ------------------------------------------------------------------------------
IDS = st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}")
TABLES = st.lists(st.tuples(st.integers(-2, 2), IDS), min_size=2, max_size=MOST_TABLES, unique_by=lambda each: each[1])


@given(TABLES, st.randoms())
def test_the_home_follows_from_the_tables_and_not_from_their_order(tables: list[Participant], random) -> None:
    mixed = list(tables)
    random.shuffle(mixed)
    assert in_order(mixed) == in_order(tables) == sorted(tables)


@given(st.lists(TABLES, min_size=2, max_size=5))
def test_homes_that_wait_for_each_other_are_no_circle(groups: list[list[Participant]]) -> None:
    """Every member waits for a home before it in one order of all tables, so that the lowest home waits for nobody."""
    waits = {(member, home) for home, *members in map(in_order, groups) for member in members}
    assert all(home < member for member, home in waits)
    assert all((home, member) not in waits for member, home in waits)


@pytest.mark.parametrize("count", [0, 1, MOST_TABLES + 1])
def test_a_joint_commit_has_2_to_32_tables(count: int) -> None:
    with pytest.raises(ValueError, match=f"has 2 to 32 tables, not {count}"):
        in_order((0, f"{number:016x}") for number in range(count))


def test_no_table_takes_part_twice() -> None:
    for ranks in itertools.product((0, 1), repeat=2):
        with pytest.raises(ValueError, match="takes part twice"):
            in_order((rank, "0" * 16) for rank in ranks)


# --- consistent versions, compared with a plain history of joint commits ------------------------------------------------
IDS = [f"{number:016x}" for number in range(3)]


def histories(commits: list[list[int]]) -> tuple[list[list[Snapshot]], list[tuple[int, ...]]]:
    """The versions of three tables, and after each commit the number of versions of each: a commit of several tables is decided by the
    first of them."""
    chains = [[msgspec.structs.replace(golden.minimal(), table_id=table_id)] for table_id in IDS]
    moments = [(1, 1, 1)]
    for number, tables in enumerate(commits):
        home, *members = sorted(set(tables))
        attempt = object_names.attempt_id(f"v1-{IDS[home]}-{number:032x}", 1)
        decided = {}
        for table in members:
            above = chains[table][-1]
            version = above.version + 1
            homes = {**above.homes, IDS[home]: HomeRecord(version=version, root="s3://h")}
            chains[table].append(msgspec.structs.replace(above, version=version, homes=homes))
            decided[IDS[table]] = JointRecord(version=version, attempt=attempt, root="s3://m")
        above = chains[home][-1]
        chains[home].append(msgspec.structs.replace(above, version=above.version + 1, joint={**above.joint, **decided}))
        moments.append(tuple(len(chain) for chain in chains))
    return chains, moments


def is_cut(commits: list[list[int]], lengths: tuple[int, ...]) -> bool:
    """Whether each commit is in all of its tables or in none."""
    at, kept = [1, 1, 1], []
    for tables in commits:
        inside = []
        for table in set(tables):
            at[table] += 1
            inside.append(at[table] <= lengths[table])
        kept.append(len(set(inside)) == 1)
    return all(kept)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=10), st.data())
def test_versions_fit_exactly_where_each_joint_commit_is_in_all_or_in_none(commits: list[list[int]], data: st.DataObject) -> None:
    chains, _ = histories(commits)
    lengths = tuple(data.draw(st.integers(1, len(chain))) for chain in chains)
    chosen = {table_id: chain[length - 1] for table_id, chain, length in zip(IDS, chains, lengths, strict=True)}
    if find_mismatch(chosen) is None:
        # a commit of two members under a home is in both or in neither, since the home is among them
        assert is_cut(commits, lengths)
    else:
        assert not is_cut(commits, lengths)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=10))
def test_every_moment_of_the_history_is_consistent(commits: list[list[int]]) -> None:
    chains, moments = histories(commits)
    for lengths in moments:
        chosen = {table_id: chain[length - 1] for table_id, chain, length in zip(IDS, chains, lengths, strict=True)}
        assert find_mismatch(chosen) is None
        for table_id, length in zip(IDS, lengths, strict=True):
            assert lowest_allowed(chosen, table_id) <= length


def test_a_misfit_says_where_to_go() -> None:
    chains, _ = histories([[0, 1], [0, 1, 2], [1]])
    home, member, other = chains
    late = {IDS[0]: home[2], IDS[1]: member[1], IDS[2]: other[1]}
    assert find_mismatch(late) == Mismatch(table_id=IDS[1], home=IDS[0], version=3, move="up") and lowest_allowed(late, IDS[1]) == 3
    early = {IDS[0]: home[1], IDS[1]: member[3], IDS[2]: other[0]}
    assert find_mismatch(early) == Mismatch(table_id=IDS[1], home=IDS[0], version=3, move="down") and lowest_allowed(early, IDS[1]) == 2
    assert find_mismatch({IDS[1]: member[3]}) is None and lowest_allowed({}, IDS[1]) == 0
