"""Several tables committed together: what stands at each point at which the coordinator may die, and what others make of it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.commits.tables import DECIDED, SCHEMA, Lake, aborted_attempt, append, counted, sound, stopped
from tests.kit.tables import objects_of, put_back, rewind, rollback

from manifestcommit.commits.commit_loop import Committers, abort_attempt, commit, create_table
from manifestcommit.commits.joint_commit import TablePart, commit_jointly, read_jointly
from manifestcommit.commits.two_phase import resolve_job
from manifestcommit.errors import CorruptMetadataError, StoreError, UsageError, VersionNotFoundError
from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Abort, Advance, Overwrite, Write
from manifestcommit.format.entries import Entry
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import Head, choose_version, read_version, walk_back
from manifestcommit.operations import gc
from manifestcommit.operations.rollback import plan_joint_rollback, tag, undo_together
from manifestcommit.operations.verify import verify
from manifestcommit.protocol.joint_outcome import attempt_of
from manifestcommit.protocol.retention import Policy
from manifestcommit.rows.read_changes import RowFeed
from manifestcommit.runtime.outcome import Outcome
from manifestcommit.runtime.validation import to_datetime
from manifestcommit.scan.change_feed import Feed
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore, FaultStore

AT_ONCE = Policy(grace_s=0, keep_for_s=0, keep_versions=1, prepared_grace_s=0)


# --- a joint commit ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [2, 3, 5])
def test_n_tables_take_3n_requests(count: int) -> None:
    """A create and a list for each, and the hints once it is decided; opening costs three, as always. [MT1] [MT3] [MT4] [MT7]"""
    lake = Lake(count)
    parts, calls = counted(lake.parts())
    outcomes = commit_jointly(parts)
    assert [outcome.kind for outcome in outcomes] == ["committed"] * count and lake.moved() == [1] * count
    for url in lake.urls:
        assert Counter(kind for at, kind in calls() if at == url) == {"put_if_absent": 1, "list": 1, "put": 1}
    for url in lake.urls:
        store = CountingStore(open_store(url))
        assert TableContext(store).open().version == 2 and Counter(call.kind for call in store.calls) == {"get": 2, "list": 1}
    sound(lake)


def test_the_home_is_the_first_table_whatever_the_order_of_the_parts() -> None:
    """[MT2] [MT3] [MT4]"""
    lake = Lake(3)
    outcomes = commit_jointly(lake.parts([2, 0, 1]))
    home, *members = lake.heads()
    assert home.snapshot.pending is None and home.snapshot.homes == {} and home.snapshot.format_version == 1
    for member in members:
        pending = member.snapshot.pending
        assert pending is not None and pending.home == open_store(lake.urls[0]).url and member.snapshot.format_version == 2
        record = home.snapshot.joint[member.snapshot.table_id]
        assert (record.version, record.attempt) == (2, attempt_of(pending)) and pending.base == 1
        assert member.snapshot.homes[home.snapshot.table_id].version == 2 and member.snapshot.joint == {}
    assert [each.version for each in outcomes] == [2, 2, 2]
    assert [outcome.job_id for outcome in outcomes] == [lake.heads()[at].snapshot.commits[0].job for at in (2, 0, 1)]


def test_the_table_of_the_lowest_rank_decides(lake: Lake) -> None:
    """[MT2]"""
    last = open_store(f"{lake.urls[0]}-ranked")
    create_table(TableContext(last, lake.env), schema=SCHEMA, partition_by=(), properties={}, rank=-1)
    lake.urls.append(last.url)
    commit_jointly(lake.parts())
    assert lake.head(2).snapshot.joint.keys() == {lake.head(at).snapshot.table_id for at in (0, 1)}
    append(lake, 2)
    assert lake.head(2).snapshot.rank == -1


def test_tables_that_take_no_part_have_none_of_its_members_and_cost_nothing(lake: Lake) -> None:
    """[MT15] [CM11]"""
    store = CountingStore(open_store(lake.urls[0]))
    session = TableContext(store)
    head = session.open()
    assert Counter(call.kind for call in store.calls) == {"get": 2, "list": 1}
    store.calls.clear()
    commit(session, head, Write(job=session.new_job(head), birth=1, operation="append"))
    assert Counter(call.kind for call in store.calls) == {"put_if_absent": 1, "list": 1, "put": 1}
    raw = codec.decompress(store.get(object_names.version_name(2)), name="x")
    assert not any(f'"{member}"'.encode() in raw for member in ("pending", "joint", "homes", "void", "rank"))


def test_only_2_to_32_tables_of_one_store_each_once() -> None:
    """[MT2] [MT6]"""
    lake, other = Lake(2), Lake(2)
    with pytest.raises(UsageError, match="2 to 32 tables, not 1"):
        commit_jointly(lake.parts([0]))
    with pytest.raises(UsageError, match="takes part twice"):
        commit_jointly([*lake.parts(), *lake.parts([1])])
    assert [outcome.kind for outcome in commit_jointly([*lake.parts([1]), *other.parts([0])])] == ["committed"] * 2


# --- the coordinator dies -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("after", range(7))
def test_a_coordinator_that_dies_anywhere_leaves_all_or_nothing(after: int, lake: Lake) -> None:
    """Readers see it at once, in both tables; single writers, gc and the next joint commit go on. [MT1] [MT4] [MT5] [MT6] [MT8] [MT9]"""
    assert (stopped(lake.parts(), after) is None) == (after < 6)
    expected = [1, 1] if after >= DECIDED else [0, 0]
    assert lake.moved() == expected
    assert [session.snapshot.watermarks.get("s", 0) for session in read_jointly([lake.at(url) for url in lake.urls])] == expected
    for which in (1, 0):
        append(lake, which)
        assert lake.moved() == expected and lake.head(which).top is None
    for url in lake.urls:
        gc.run(lake.at(url), AT_ONCE)
    assert [outcome.kind for outcome in commit_jointly(lake.parts())] == ["committed"] * 2
    assert lake.moved() == [each + 1 for each in expected]
    sound(lake)


@pytest.mark.parametrize("after", range(1, 10))
def test_two_dead_coordinators_with_opposite_orders_block_nobody(after: int) -> None:
    """[MT2] [MT9]"""
    lake = Lake(3)
    assert stopped(lake.parts([0, 2]), min(after, 2)) is None
    stopped(lake.parts([2, 1]), after)
    for which in (2, 1, 0):
        append(lake, which)
    assert [outcome.kind for outcome in commit_jointly(lake.parts([2, 1, 0]))] == ["committed"] * 3
    sound(lake)


def test_an_undecided_member_is_waited_for_and_then_aborted_in_its_home(lake: Lake) -> None:
    """The writer waits as long as the commit needs, the home's version says so, and the member is void. [MT5] [MT9]"""
    stopped(lake.parts(), 2)
    member = lake.newest(1)
    assert member.pending is not None and lake.head(1).version == 1 and lake.head(1).top is not None and not lake.head(1).is_void
    before = lake.env.waited_us
    assert append(lake, 1) == 3
    assert lake.env.waited_us - before >= 1_000_000
    home, after = lake.head(0).snapshot, lake.head(1).snapshot
    assert home.recent_jobs[attempt_of(member.pending)] is None and home.commits[0].operation == "give_up"
    assert after.void == (2,) and member.commits[0].job not in after.recent_jobs and after.parent_digest is not None


def test_who_aborts_what_is_decided_changes_nothing(lake: Lake) -> None:
    """A late abort conflicts, however it comes. [MT6] [MT9] [AB4]"""
    stopped(lake.parts(), DECIDED)
    pending = lake.newest(1).pending
    assert pending is not None and lake.moved() == [1, 1]
    abort_attempt(lake.at(lake.urls[0]), attempt_of(pending))
    session = lake.at(lake.urls[0])
    head = session.open()
    outcome = commit(session, head, Abort(job=session.new_job(head), birth=head.version, aborted=attempt_of(pending)))
    assert outcome.conflict is not None and outcome.conflict.rule == "job_is_committed"
    assert lake.moved() == [1, 1]


def test_a_home_whose_fence_has_passed_the_job_has_aborted_it(lake: Lake) -> None:
    """Without a record, as long as the fence goes. [MT6] [MT9]"""
    stopped(lake.parts(), 2)
    for _ in range(2):
        append(lake, 0)
    gc.run(lake.at(lake.urls[0]), AT_ONCE)
    assert lake.head(0).snapshot.fence > 1 and lake.head(1).is_void
    before = lake.env.waited_us
    append(lake, 1)
    assert lake.env.waited_us == before and lake.head(1).snapshot.void == (2,)


def test_the_coordinator_begins_its_next_attempt_where_others_aborted_one(lake: Lake) -> None:
    """With the same jobs: each is committed once. [MT4] [MT9]"""
    parts = lake.parts()
    aborted_attempt(lake, parts)
    outcomes = commit_jointly(parts)
    assert [outcome.kind for outcome in outcomes] == ["committed"] * 2 and lake.moved() == [1, 1]
    again = lake.newest(1).pending
    assert again is not None and again.attempt == 2 and lake.head(1).snapshot.void == (2,)
    assert [outcome.version for outcome in commit_jointly(parts)] == [outcome.version for outcome in outcomes]
    assert lake.moved() == [1, 1]
    sound(lake)


def test_the_same_jobs_go_on_with_the_members_that_they_have_placed() -> None:
    """Whoever commits them: nobody waits for itself. [MT3]"""
    lake = Lake(3)
    parts = lake.parts()
    stopped(parts, 2)
    before = lake.env.waited_us
    assert [outcome.version for outcome in commit_jointly(parts)] == [2, 2, 2]
    assert lake.env.waited_us - before < 100_000 and lake.newest(1).version == 2
    sound(lake)


def test_what_is_decided_is_told_whatever_is_decided_on_top_of_it_and_fails_then(lake: Lake) -> None:
    """An error would say that nothing was committed. [CM10] [MT1]"""
    home, member = lake.parts()
    decided: list[str] = []

    def at_home(call: Any) -> None:
        if call.kind == "put_if_absent":
            decided.append(call.name)
        elif decided == [object_names.version_name(2)]:
            decided.append("more")
            assert {each.kind for each in commit_jointly(lake.parts())} == {"committed"}

    def at_member(call: Any) -> None:
        if decided and call.kind in ("get", "list"):
            raise StoreError("no answer")

    def behind(part: TablePart, on_call: Callable[[Any], None]) -> TablePart:
        session = TableContext(FaultStore(part.ctx.store, on_call=on_call), lake.env)
        return TablePart(ctx=session, head=part.head, change=part.change)

    outcomes = commit_jointly([behind(home, at_home), behind(member, at_member)])
    assert [(each.kind, each.version) for each in outcomes] == [("committed", 2)] * 2
    assert lake.moved() == [2, 2] and "more" in decided
    sound(lake)


def test_a_void_version_is_no_evidence_that_its_job_has_committed(lake: Lake) -> None:
    """The job of an aborted member that gc has fenced did not commit. [MT8] [CM2]"""
    parts = lake.parts()
    stopped(parts, 2)
    append(lake, 1)
    gc.run(lake.at(lake.urls[1]), Policy(grace_s=0, keep_for_s=0, keep_versions=9, prepared_grace_s=0))
    session = lake.at(lake.urls[1])
    assert session.open().snapshot.fence > 1
    assert commit(session, session.open(), parts[1].change, committers=Committers.ANY_PROCESS).kind == "fenced"


# --- what others see ------------------------------------------------------------------------------------------------------
def test_nobody_reads_a_void_version(lake: Lake) -> None:
    """Not by its number, not in the history, not in a stream, not as a tag or the target of a rollback, not by time. [MT8] [RD3] [SP8]"""
    stopped(lake.parts(), 2)
    append(lake, 1)
    session, store = lake.at(lake.urls[1]), open_store(lake.urls[1])
    head = session.open()
    with pytest.raises(VersionNotFoundError, match=r"version 2 of .* is void"):
        read_version(store, head, 2)
    with pytest.raises(VersionNotFoundError, match="is void"):
        tag(session, "t é", version=2)
    with pytest.raises(VersionNotFoundError, match="is void"):
        rollback(session, version=2, reason="r")
    assert [each.version for each in walk_back(store, head)] == [3, 1]
    assert resolve_job(session, lake.parts([1])[0].change.job) == "not_committed"
    feed = Feed(session, columns=SCHEMA.fields, pinned=1)
    assert feed.advance(feed.beginning(1)).version == 4
    moment = to_datetime(lake.newest(1).committed_at - 1)
    assert choose_version(store, head, version=None, as_of=moment, tag=None) in (1, None)


def test_a_stream_stops_before_an_undecided_version(lake: Lake) -> None:
    """[MT8] [SP8]"""
    stopped(lake.parts(), 2)
    feed = Feed(lake.at(lake.urls[1]), columns=SCHEMA.fields, pinned=1)
    assert feed.advance(feed.beginning(1)).version == 2
    append(lake, 1)
    assert feed.advance(feed.beginning(1)).version == 4


def test_to_abort_an_attempt_costs_what_a_commit_costs(lake: Lake) -> None:
    """The hint of the home's table is put as after any commit. [MT9] [CM11]"""
    stopped(lake.parts(), 2)
    pending = lake.pending(1)
    store = CountingStore(open_store(lake.urls[0]))
    home = TableContext(store, lake.env)
    home.open()
    store.calls.clear()
    abort_attempt(home, attempt_of(pending))
    assert Counter(call.kind for call in store.calls) == {"put_if_absent": 1, "list": 1, "put": 1}


def test_a_stream_passes_a_void_version_over(lake: Lake) -> None:
    """Also where its object lists files that the version added. [MT8] [SP8] [IV5]"""
    parts = lake.parts([0, 1])
    name = f"00000-{'a' * 16}-0-{parts[1].change.job}.parquet"
    parts[1].ctx.store.put(name, b"x")
    entry = Entry(path=name, rows=1, bytes=1, job=parts[1].change.job)
    added = msgspec.structs.replace(parts[1].change, add=(entry,), schema=SCHEMA, partition_by=(), touched=({},))
    stopped([parts[0], msgspec.structs.replace(parts[1], change=added)], 2)
    append(lake, 1)
    assert [each.path for each in lake.newest(1).added] == [] and lake.head(1).snapshot.void == (2,)
    feed = Feed(lake.at(lake.urls[1]), columns=SCHEMA.fields, pinned=1)
    assert feed.between(feed.beginning(1), feed.advance(feed.beginning(1))) == []
    changes = RowFeed(lake.at(lake.urls[1]), columns=SCHEMA.fields, pinned=1)
    assert changes.between(changes.beginning(2), changes.advance(changes.beginning(2))) == []


def test_a_hint_of_another_version_or_attempt_says_nothing(lake: Lake) -> None:
    """[MT7] [LY7]"""
    stopped(lake.parts(), 2)
    pending = lake.pending(1)
    store = open_store(lake.urls[1])
    for hint in (b"1 " + attempt_of(pending).encode(), b"2 " + object_names.attempt_id(pending.job, 2).encode(), b"\xff"):
        store.put("_manifest/hint", hint)
        assert lake.head(1).version == 1


def test_a_forged_hint_is_believed_of_a_member_and_verify_names_what_was_built_upon_it(lake: Lake) -> None:
    """Who may put it may create the next version, too. It never hides what the home has committed, and asks nobody. [MT7] [LY7] [MT10]"""
    stopped(lake.parts(), 2)
    pending = lake.pending(1)
    store = CountingStore(open_store(lake.urls[1]))
    store.put("_manifest/hint", f"2 {attempt_of(pending)}".encode())
    store.calls.clear()
    assert TableContext(store).open().version == 2 and len(store.calls) == 3 and lake.moved() == [0, 1]
    assert append(lake, 1) == 3 and lake.head(1).snapshot.void == ()
    report = verify(lake.at(lake.urls[1]))
    assert not report.is_sound and any(pending.home in each.problem for each in report.findings)
    committed = Lake(2)
    stopped(committed.parts(), 5)
    pending = committed.pending(1)
    open_store(committed.urls[1]).put("_manifest/hint", f"2 {attempt_of(pending)} no".encode())
    assert committed.moved() == [1, 1]


def test_a_home_that_is_gone_or_another_table_is_an_error_and_no_answer(lake: Lake) -> None:
    """[MT6]"""
    stopped(lake.parts(), DECIDED)
    home = open_store(lake.urls[0])
    kept = objects_of(home)
    put_back(home)
    with pytest.raises(StoreError, match="there is no table there; what became of it is not known"):
        lake.head(1)
    put_back(home, objects_of(open_store(Lake(2).urls[1])))
    with pytest.raises(StoreError, match="another table is there"):
        lake.head(1)
    put_back(home, kept)
    assert lake.moved() == [1, 1]


def test_a_member_that_names_a_home_behind_it_is_refused(lake: Lake) -> None:
    """Followed, two hostile tables that name each other would never end. [MT2] [OB16] [SE2]"""
    stopped(lake.parts(), 2)
    made = lake.newest(1)
    assert made.pending is not None
    name, store = object_names.version_name(2), open_store(lake.urls[0])
    job = f"v1-{made.table_id}-{'a' * 32}"
    forged = msgspec.structs.replace(
        made,
        table_id=lake.head(0).snapshot.table_id,
        parent_digest=lake.head(0).digest,
        pending=msgspec.structs.replace(made.pending, home=open_store(lake.urls[1]).url, table_id=made.table_id, job=job),
        homes={},
    )
    store.put(name, codec.encode_snapshot(forged))
    with pytest.raises(CorruptMetadataError, match="does not come before it in the order of tables"):
        lake.head(0)


# --- conflicts, keys ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("which", [0, 1])
def test_a_conflict_in_one_table_commits_nothing_in_any(which: int, lake: Lake) -> None:
    """And the tables are free at once. [MT1] [MT9]"""
    parts = lake.parts()
    commit_jointly(lake.parts())
    late = parts[which].change
    parts[1 - which] = lake.parts([1 - which])[0]
    outcomes = commit_jointly(parts)
    assert [outcome.kind for outcome in outcomes] == ["conflict" if at == which else "aborted" for at in range(2)]
    assert outcomes[which].conflict is not None and late.advances and lake.moved() == [1, 1]
    before = lake.env.waited_us
    append(lake, 0), append(lake, 1)
    assert lake.env.waited_us == before
    sound(lake)


def test_a_conflict_after_a_member_was_placed_takes_one_abort(lake: Lake) -> None:
    """A create, a list and the hint in the home; before it the home's head is read once more, since the conflict may have gone. [MT9]"""
    parts = lake.parts()
    commit_jointly(lake.parts())
    parts[1] = lake.parts([1])[0]
    parts[0].ctx.open()
    counting, calls = counted(parts)
    counting[0].ctx.known = parts[0].ctx.known
    home = msgspec.structs.replace(counting[0], head=parts[0].ctx.known)
    assert [outcome.kind for outcome in commit_jointly([home, counting[1]])] == ["conflict", "aborted"]
    assert Counter(kind for at, kind in calls() if at == lake.urls[0]) == {"put_if_absent": 1, "list": 2, "put": 1}
    assert Counter(kind for at, kind in calls() if at == lake.urls[1]) == {"put_if_absent": 1, "list": 1}


def test_what_is_decided_later_is_a_winner_since_a_birth_that_did_not_see_it(lake: Lake) -> None:
    """A job that began on the state before an undecided member conflicts with it once it is committed. [MT8] [CF3]"""
    parts = lake.parts(touched=({},))
    stopped(parts, 2)
    session = lake.at(lake.urls[1])
    head = session.open()
    whole = Write(job=session.new_job(head), birth=head.version, operation="overwrite", overwrite=Overwrite(scope=({},)))
    assert head.version == 1
    assert [outcome.kind for outcome in commit_jointly(parts)] == ["committed"] * 2
    outcome = commit(session, head, whole)
    assert outcome.conflict is not None and outcome.conflict.rule == "partition_was_touched"


def test_what_was_aborted_is_no_winner(lake: Lake) -> None:
    """[MT8] [CF3]"""
    session = lake.at(lake.urls[1])
    head = session.open()
    whole = Write(job=session.new_job(head), birth=head.version, operation="overwrite", overwrite=Overwrite(scope=({},)))
    stopped(lake.parts(touched=({},)), 2)
    append(lake, 1)
    assert commit(session, head, whole).version == 4


def test_a_key_is_recorded_in_all_tables_and_a_rerun_does_nothing() -> None:
    """[MT13] [KY3]"""
    lake = Lake(3)
    first = commit_jointly(lake.parts(key="k %é"))
    parts = lake.parts(key="k %é")
    same = (Advance(source="s", start=None, end=1),)
    parts = [msgspec.structs.replace(part, change=msgspec.structs.replace(part.change, advances=same)) for part in parts]
    again = commit_jointly(parts)
    assert [each.kind for each in again] == ["already_committed"] * 3 and [each.version for each in again] == [2, 2, 2]
    assert [each.kind for each in first] == ["committed"] * 3 and lake.moved() == [1, 1, 1]
    two = commit_jointly(lake.parts([0, 1], key="k %é"))
    assert {each.kind for each in two} == {"key_reused"} and lake.moved() == [1, 1, 1]


def test_a_key_that_is_in_some_tables_only_is_refused_by_their_names(lake: Lake) -> None:
    """[MT13]"""
    commit_jointly(lake.parts(key="k"))
    rollback(lake.at(lake.urls[1]), version=1, reason="r é", alone=True)
    outcomes = commit_jointly(lake.parts(key="k"))
    assert [outcome.kind for outcome in outcomes] == ["aborted", "key_reused"] and "undone here alone" in outcomes[1].reason


def test_two_runs_of_one_key_commit_it_once(lake: Lake) -> None:
    """The first has placed its member, and another run comes: one of them commits. [MT13] [KY5]"""
    first, second = lake.parts(key="k"), lake.parts(key="k")
    stopped(first, 2)
    assert [outcome.kind for outcome in commit_jointly(second)] == ["committed"] * 2
    assert [outcome.kind for outcome in commit_jointly(first)] == ["already_committed"] * 2
    assert lake.moved() == [1, 1]


def test_a_rollback_is_possible_once_a_member_was_aborted(lake: Lake) -> None:
    """A void version is nothing that it would roll back over. [MT8] [CF13]"""
    append(lake, 1)
    stopped(lake.parts(), 2)
    assert rollback(lake.at(lake.urls[1]), version=1, reason="r é", alone=True).version == 4
    assert lake.head(1).snapshot.void == (3,)
    sound(lake)


# --- gc -------------------------------------------------------------------------------------------------------------------
def test_gc_settles_what_a_dead_coordinator_left(lake: Lake) -> None:
    """[MT5] [MT9] [GC3]"""
    append(lake, 1)
    stopped(lake.parts(), 2)
    gc.run(lake.at(lake.urls[1]), AT_ONCE)
    head = lake.head(1)
    assert head.top is None and head.snapshot.void in ((3,), ()) and head.snapshot.commits[0].operation == "gc"
    sound(lake)


def test_a_gc_that_has_nothing_to_decide_reports_a_version_that_can_be_read(lake: Lake) -> None:
    """Not the void one above it. [MT8] [GC3]"""
    append(lake, 1)
    stopped(lake.parts(), 2)
    report = gc.run(lake.at(lake.urls[1]), Policy(grace_s=9e9, keep_for_s=9e9, keep_versions=9, prepared_grace_s=9e9))
    assert lake.newest(1).version == 3 and report.version == 2 == lake.head(1).version


def test_gc_keeps_the_last_versions_that_are_states(lake: Lake) -> None:
    """Void ones are none. [MT8] [GC1]"""
    for _ in range(3):
        append(lake, 1)
        stopped(lake.parts(), 2)
    append(lake, 1)
    gc.run(lake.at(lake.urls[1]), Policy(grace_s=0, keep_for_s=0, keep_versions=2, prepared_grace_s=0))
    head = lake.head(1).snapshot
    readable = [version for version in range(head.expired, head.version + 1) if version not in head.void]
    assert readable == [6, 8, 9] and head.void == (7,)
    sound(lake)


# --- reading together -----------------------------------------------------------------------------------------------------
class Overtaken(TableContext):
    """Once it has read the head of its table, a joint commit of all tables follows."""

    def __init__(self, lake: Lake, session: TableContext) -> None:
        super().__init__(session.store, session.env)
        self._lake: Lake | None = lake

    def open(self) -> Head:
        head, lake = super().open(), self._lake
        self._lake = None
        if lake is not None:
            commit_jointly(lake.parts())
        return head


def test_tables_that_are_read_one_after_the_other_are_mended() -> None:
    """The home is read before a joint commit, the members after it: they go back; or the other way round: they go on. [MT12]"""
    lake = Lake(3)
    commit_jointly(lake.parts())
    for order in ([0, 1, 2], [2, 1, 0]):
        sessions = [lake.at(lake.urls[at]) for at in order]
        heads = read_jointly([Overtaken(lake, sessions[0]), *sessions[1:]])
        assert len({head.snapshot.watermarks["s"] for head in heads}) == 1


def test_two_members_are_consistent_without_their_home() -> None:
    """It is read, too, since it alone knows that they belong together. [MT12]"""
    lake = Lake(3)
    commit_jointly(lake.parts())
    sessions = [lake.at(lake.urls[at]) for at in (1, 2)]
    heads = read_jointly([Overtaken(lake, sessions[0]), sessions[1]])
    assert len({head.snapshot.watermarks["s"] for head in heads}) == 1


@pytest.mark.parametrize(("after", "requests"), [(2, 8), (DECIDED, 10), (5, 8), (6, 3)])
def test_what_opening_a_table_costs_whose_newest_version_is_a_member(after: int, requests: int, lake: Lake) -> None:
    """A hint that is a version behind costs two, here and in the home; undecided: the state before is what the hint led to; decided and
    untold: the home is asked; told: nothing more. [MT6] [MT7]"""
    stopped(lake.parts(), after)
    store = CountingStore(open_store(lake.urls[1]))
    TableContext(store).open()
    assert len(store.calls) == requests


# --- rollbacks of one of its tables only, and of all of them ------------------------------------------------------------
RULE = "undoes_a_joint_commit"


def rule_of(outcome: Outcome) -> str:
    return outcome.conflict.rule if outcome.conflict is not None else outcome.kind


def back(lake: Lake, targets: dict[int, Any]) -> tuple[Outcome, ...]:
    return undo_together(plan_joint_rollback([lake.at(lake.urls[each]) for each in targets], list(targets.values()), reason="wrong é"))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_joint_commit_is_not_undone_in_one_table(which: int) -> None:
    """Neither in the home nor in a member, by a rollback or by a rewind, unless that is asked for. [MT14]"""
    lake = Lake(3)
    url = lake.urls[which]
    append(lake, which)
    commit_jointly(lake.parts(key="day"))
    append(lake, which)
    refused = rollback(lake.at(url), 2, reason="r"), rewind(lake.at(url), "s", None, reason="r")
    assert [rule_of(each) for each in refused] == [RULE] * 2 and lake.moved() == [1, 1, 1]
    roots = {lake.at(each).store.url for each in ([lake.urls[0]] if which else lake.urls[1:])}
    assert refused[0].conflict is not None and all(root in refused[0].conflict.winner for root in roots)
    assert refused[1].conflict is not None and "'day'" in refused[1].conflict.winner
    before = lake.head(which).snapshot
    assert rollback(lake.at(url), 3, reason="it keeps the joint commit").committed
    assert rewind(lake.at(url), "s", 0, reason="r", keep_keys=True).committed
    assert rollback(lake.at(url), 2, reason="r", alone=True).committed
    after = lake.head(which).snapshot
    for name in ("joint", "homes", "void", "rank"):
        assert getattr(after, name) == getattr(before, name)
    sound(lake)


def test_a_rewind_drops_the_keys_of_joint_commits_only_where_that_is_asked_for(lake: Lake) -> None:
    """What was committed in this table only is rewound as ever. [MT14] [WM5]"""
    url = lake.urls[1]
    commit_jointly(lake.parts(key="day"))
    (part,) = lake.parts([1], key="alone")
    assert commit(part.ctx, part.head, part.change).committed
    assert rewind(lake.at(url), "s", 1, reason="r").dropped_keys == ("alone",)
    assert rule_of(rewind(lake.at(url), "s", 0, reason="r")) == RULE
    assert rewind(lake.at(url), "s", 0, reason="r", alone=True).dropped_keys == ("day",)


def test_a_table_of_the_joint_commit_that_is_not_rolled_back_is_missed() -> None:
    """In the home, which knows all of them. [MT14]"""
    lake = Lake(3)
    commit_jointly(lake.parts())
    outcomes = back(lake, {0: 1, 1: 1})
    assert [rule_of(outcome) for outcome in outcomes] == [RULE, "aborted"]
    assert outcomes[0].conflict is not None and lake.at(lake.urls[2]).store.url in outcomes[0].conflict.winner
    assert RULE in [rule_of(outcome) for outcome in back(lake, {1: 1, 2: 1})], "their home stays"
    assert lake.moved() == [1, 1, 1]
    sound(lake)


def test_targets_belong_together(lake: Lake) -> None:
    """[MT14] [MT12]"""
    commit_jointly(lake.parts())
    commit_jointly(lake.parts())
    for targets in ({0: 2, 1: 1}, {0: 1, 1: 2}):
        with pytest.raises(UsageError, match="Choose versions that have it in all tables"):
            back(lake, targets)
    assert lake.moved() == [2, 2]
    assert [outcome.kind for outcome in back(lake, {0: 2, 1: 2})] == ["committed"] * 2
    assert lake.moved() == [1, 1]
