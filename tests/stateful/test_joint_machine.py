"""Bank transfers between tables, against a plain dictionary: joint commits that die anywhere or meet others at any request, and
every joint read is a state in which the sums agree. [MT1] [MT4] [MT5] [MT8] [MT9] [MT10] [MT12] [MT14]"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.commits.tables import Lake, sound, stopped
from tests.stateful.lengths import in_two_lengths

from manifestcommit.commits.commit_loop import commit
from manifestcommit.commits.joint_commit import TablePart, commit_jointly, read_jointly
from manifestcommit.errors import ManifestCommitError
from manifestcommit.format.change import Write
from manifestcommit.format.snapshot import Snapshot
from manifestcommit.format.watermark import Advance
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import open_head, walk_back
from manifestcommit.operations import gc
from manifestcommit.operations.rollback import plan_joint_rollback, settle, tag
from manifestcommit.protocol.joint_outcome import is_part, share_of
from manifestcommit.protocol.retention import Policy
from manifestcommit.store import open_store
from manifestcommit.testing import FaultStore

TABLES = 4
POLICY = Policy(grace_s=0, keep_for_s=0, keep_versions=2, prepared_grace_s=0)
SOME = st.lists(st.integers(0, TABLES - 1), min_size=2, max_size=TABLES, unique=True)
ONE = st.integers(0, TABLES - 1)
AMOUNT = st.integers(1, 100)


def balance(snapshot: Snapshot) -> int:
    """What the table has got less what it has given: a source for each transfer, named by its sign."""
    return sum(int(at or 0) * (1 if source[0] == "+" else -1) for source, at in snapshot.watermarks.items())


class Bank(RuleBasedStateMachine):
    """`now`: what each table holds, by what was decided."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()
        self.now = [0] * TABLES
        self.saved: list[tuple[tuple[int, ...], list[int]]] = []  # versions that were read together, and what they held

    @initialize()
    def tables(self) -> None:
        self.lake = Lake(TABLES)

    # --- what is done ---------------------------------------------------------------------------------------------------

    def parts(self, moves: dict[int, int], key: str | None = None) -> list[TablePart]:
        number, found = next(self.numbers), []
        for which, amount in moves.items():
            session = self.lake.at(self.lake.urls[which])
            head = session.open()
            advance = Advance(source=f"{'+' if amount > 0 else '-'}{number} é", start=None, end=abs(amount))
            job = session.new_job(head)
            change = Write(job=job, birth=head.version, operation="append", declared="d", key=key, advances=(advance,))
            found.append(TablePart(ctx=session, head=head, change=change))
        return found

    def moves(self, which: Sequence[int], amount: int) -> dict[int, int]:
        """From the first table to each of the others."""
        return {which[0]: -amount * (len(which) - 1), **dict.fromkeys(which[1:], amount)}

    def take(self, moves: dict[int, int]) -> None:
        for which, amount in moves.items():
            self.now[which] += amount

    def held(self, which: Sequence[int]) -> list[int]:
        return [balance(head.snapshot) for head in read_jointly([self.lake.at(self.lake.urls[each]) for each in which])]

    def deposit(self, which: int, amount: int) -> None:
        (part,) = self.parts({which: amount})
        assert commit(part.ctx, part.head, part.change).committed
        self.take({which: amount})

    # --- the rules ------------------------------------------------------------------------------------------------------

    @rule(which=SOME, amount=AMOUNT)
    def transfer(self, which: list[int], amount: int) -> None:
        moves = self.moves(which, amount)
        assert {outcome.kind for outcome in commit_jointly(self.parts(moves))} == {"committed"}
        self.take(moves)

    @rule(which=SOME, amount=AMOUNT)
    def a_transfer_is_repeated(self, which: list[int], amount: int) -> None:
        moves, key = self.moves(which, amount), f"key {next(self.numbers)} %"
        assert {outcome.kind for outcome in commit_jointly(self.parts(moves, key))} == {"committed"}
        assert {outcome.kind for outcome in commit_jointly(self.parts(moves, key))} == {"already_committed"}
        self.take(moves)

    @rule(which=SOME, amount=AMOUNT, after=st.integers(0, 3 * TABLES))
    def a_coordinator_dies(self, which: list[int], amount: int, after: int) -> None:
        """Before any request: then it is in all of its tables for ever, or in none."""
        moves = self.moves(which, amount)
        before = list(self.now)
        stopped(self.parts(moves), after)
        found = self.held(range(TABLES))
        self.take(moves)
        if found != self.now:
            assert found == before
            self.now = before

    @rule(which=SOME, amount=AMOUNT, at=st.integers(0, 3 * TABLES), other=st.sampled_from(["read", "write", "transfer", "gc", "settle"]))
    def a_transfer_meets_another(self, which: list[int], amount: int, at: int, other: str) -> None:
        """At one of its requests another process does something, whole, over the same tables in another order."""
        moves, total = self.moves(which, amount), sum(self.now)
        count = itertools.count()

        def meet(call: object) -> None:
            if next(count) == at:
                acts[other]()

        def read() -> None:
            assert sum(self.held(range(TABLES))) == total

        def transfer() -> None:
            back = self.moves(which[::-1], amount)
            assert {outcome.kind for outcome in commit_jointly(self.parts(back))} == {"committed"}
            self.take(back)

        acts: dict[str, Callable[[], object]] = {
            "read": read,
            "write": lambda: self.deposit(which[-1], amount),
            "transfer": transfer,
            "gc": lambda: gc.run(self.lake.at(self.lake.urls[which[-1]]), POLICY),
            "settle": lambda: settle(self.lake.at(self.lake.urls[which[-1]]), None),
        }
        parts = [
            msgspec.structs.replace(part, ctx=TableContext(FaultStore(part.ctx.store, on_call=meet), part.ctx.env))
            for part in self.parts(moves)
        ]
        outcomes = {outcome.kind for outcome in commit_jointly(parts)}
        if other == "gc" and outcomes != {"committed"}:
            assert outcomes <= {"fenced", "aborted"}
        else:
            assert outcomes == {"committed"}
            self.take(moves)

    @rule(which=ONE, amount=AMOUNT)
    def one_table_is_written(self, which: int, amount: int) -> None:
        self.deposit(which, amount)

    @rule(which=ONE)
    def one_table_is_collected(self, which: int) -> None:
        gc.run(self.lake.at(self.lake.urls[which]), POLICY)

    @rule(which=ONE)
    def one_table_is_tagged(self, which: int) -> None:
        tag(self.lake.at(self.lake.urls[which]), "é", None)

    @rule(which=ONE)
    def one_table_is_settled(self, which: int) -> None:
        settle(self.lake.at(self.lake.urls[which]), None)
        assert self.lake.newest(which).pending is None

    @rule()
    def versions_are_remembered(self) -> None:
        heads = read_jointly([self.lake.at(url) for url in self.lake.urls])
        self.saved.append((tuple(head.version for head in heads), list(self.now)))

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def all_tables_go_back(self, data: st.DataObject) -> None:
        """To versions that belong together, or nowhere: gc may have expired one, or one is the newest."""
        versions, held = data.draw(st.sampled_from(self.saved))
        sessions = [self.lake.at(url) for url in self.lake.urls]
        try:
            planned = plan_joint_rollback(sessions, versions, reason="r é")
        except ManifestCommitError:
            return
        assert {outcome.kind for outcome in planned.commit()} == {"committed"}
        self.now = list(held)

    # --- what holds -----------------------------------------------------------------------------------------------------

    @rule(which=SOME)
    def some_tables_are_read_together(self, which: list[int]) -> None:
        assert self.held(which) == [self.now[each] for each in which]

    @invariant()
    def every_table_holds_what_was_decided(self) -> None:
        if hasattr(self, "lake"):
            assert [balance(head.snapshot) for head in self.lake.heads()] == self.now

    def versions_say_of_what_they_are_part(self) -> None:
        """By themselves, as they do beside the versions below them."""
        for url in self.lake.urls:
            store = open_store(url)
            chain = [each.snapshot for each in walk_back(store, open_head(store))]
            for version, below in itertools.pairwise(chain):
                assert (share_of(version) is not None) == is_part(version, below)

    def teardown(self) -> None:
        if hasattr(self, "lake"):
            for which in range(TABLES):
                settle(self.lake.at(self.lake.urls[which]), None)
            assert self.held(range(TABLES)) == self.now
            sound(self.lake)
            self.versions_say_of_what_they_are_part()
            for url in self.lake.urls:  # all runs share one memory
                store = open_store(url)
                for info in list(store.list("")):
                    store.delete([info.name])


TestBank, TestBankAtLength = in_two_lengths(Bank, steps=20, quick=6, usual=40, proof=400)
