"""Answers that are lost, late, or about oneself: a commit is told as what it is, once. [CM4] [CM6] [IV4]"""

import secrets
from collections.abc import Callable, Iterator

import pytest
from tests.kit.faults import before_create
from tests.kit.sizes import SetBudgets
from tests.kit.tables import Hasty, all_snapshots, begin, change_of, check_table, key_version, memory, read_ids, rows, session, write

from manifestcommit.commits.commit_loop import commit
from manifestcommit.errors import CorruptMetadataError, OutcomeUnknownError, StoreError, StoreUnclearError, UnsafeStoreError
from manifestcommit.format import codec, object_names
from manifestcommit.log.version_chain import open_head
from manifestcommit.runtime.environment import Limits
from manifestcommit.store import ObjectInfo
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import FaultStore

UNCLEAR = Limits().unclear_tries


def hinted(store: MemoryStore) -> int | None:
    """The version that the hint names."""
    hint = codec.decode_hint(store.get(object_names.HINT))
    return None if hint is None else hint.version


class Scripted(MemoryStore):
    """A store in memory whose creates of versions are answered by a script: one function per create, then as usual."""

    def __init__(self, *script: Callable[[str, bytes], bool], of: str = object_names.VERSIONS) -> None:
        super().__init__(secrets.token_hex(8))
        self._of = of
        self.script = list(script)
        self.sent: list[tuple[str, bytes]] = []
        write(self, rows([1]), key="before")
        self.sent.clear()

    def create(self, name: str, data: bytes) -> bool:
        return super().put_if_absent(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if not name.startswith(self._of):
            return self.create(name, data)
        self.sent.append((name, data))
        step = self.script.pop(0) if self.script else self.create
        return step(name, data)

    def unanswered(self, name: str, data: bytes) -> bool:
        raise StoreUnclearError("no answer")

    def answer_lost(self, name: str, data: bytes) -> bool:
        self.create(name, data)
        raise StoreUnclearError("no answer")

    def retried_below(self, name: str, data: bytes) -> bool:
        """As an SDK does that loses the answer, sends the request again, and is told that the name is taken."""
        self.create(name, data)
        return False


def test_a_retry_below_that_lost_against_itself_is_a_success_told_once() -> None:
    """icechunk#2099: the SDK's second request got 412 against its first, and the commit was reported lost. [CM4] [IV4]"""
    store = Scripted()
    store.script = [store.retried_below]
    outcome = write(store, rows([2]), key="k")
    assert outcome.kind == "committed" and outcome.version == 3
    assert hinted(store) == 3, "it goes on as a create that succeeded"
    assert read_ids(store) == [1, 2] and len(list(all_snapshots(store))) == 3
    check_table(store)


def test_a_lost_answer_of_a_create_that_happened_is_a_success_told_once() -> None:
    """[CM6] [IV4]"""
    store = Scripted()
    store.script = [store.answer_lost]
    assert write(store, rows([2]), key="k").kind == "committed"
    assert read_ids(store) == [1, 2]
    check_table(store)


def test_after_an_unclear_answer_the_same_bytes_go_to_the_same_name() -> None:
    """Other bytes could be a second commit beside the first. [CM6]"""
    store = Scripted()
    store.script = [store.unanswered, store.unanswered]
    assert write(store, rows([2]), key="k").version == 3
    assert len(store.sent) == 3 and len(set(store.sent)) == 1
    assert read_ids(store) == [1, 2]


def test_a_create_that_lands_while_the_next_is_under_way_counts_once() -> None:
    """[CM6] [IV4]"""
    store = Scripted()
    held: list[tuple[str, bytes]] = []

    def hold(name: str, data: bytes) -> bool:
        held.append((name, data))
        raise StoreUnclearError("no answer")

    def late_then_mine(name: str, data: bytes) -> bool:
        store.create(*held.pop())
        return store.create(name, data)

    def mine_then_late(name: str, data: bytes) -> bool:
        created = store.create(name, data)
        assert not store.create(*held.pop())
        return created

    for number, step in enumerate((late_then_mine, mine_then_late)):
        store.script = [hold, step]
        outcome = write(store, rows([10 + number]), key=f"k{number}")
        assert outcome.kind == "committed" and outcome.version == 3 + number
    assert read_ids(store) == [1, 10, 11]
    check_table(store)


def test_a_create_that_no_one_answers_is_unknown_and_stays_so_until_it_lands() -> None:
    """[CM6] [CM10] [AB1]"""
    store = Scripted()
    store.script = [store.unanswered] * UNCLEAR
    with pytest.raises(OutcomeUnknownError) as caught:
        write(store, rows([2]), key="k")
    assert len(set(store.sent)) == 1
    assert len([info for info in store.list("") if info.name.endswith(".parquet")]) == 2, "nothing was deleted"
    job = caught.value.job_id
    assert session(store).manifests.job(open_head(store).snapshot, job) == (None, None)
    assert store.create(*store.sent[0]), "it lands after all"
    assert session(store).manifests.job(open_head(store).snapshot, job) == ("committed", 3)
    again = write(store, rows([2]), key="k")
    assert again.kind == "already_committed" and again.version == 3
    assert read_ids(store) == [1, 2]
    check_table(store)


@pytest.mark.parametrize("unclear", [0, 1])
def test_a_store_that_turns_unsafe_at_the_create_leaves_the_outcome_unknown(unclear: int) -> None:
    """It was proved, then its bucket was changed: the create may stand, or have replaced another. It is not sent again. [CM6] [ST7]"""
    store = Scripted()

    def unsafe(name: str, data: bytes) -> bool:
        store.create(name, data)
        raise UnsafeStoreError("versioning was switched on")

    store.script = [*[store.unanswered] * unclear, unsafe]
    with pytest.raises(OutcomeUnknownError, match="versioning was switched on"):
        write(store, rows([2]), key="k")
    assert len(store.sent) == unclear + 1
    assert write(store, rows([2]), key="k").already_committed and read_ids(store) == [1, 2]


def test_a_winner_that_cannot_be_read_after_an_unclear_create_may_be_this_one() -> None:
    """[CM6] [OB4]"""
    store = Scripted()

    def lands_damaged(name: str, data: bytes) -> bool:
        store.create(name, b"garbage")
        raise StoreUnclearError("no answer")

    store.script = [lands_damaged]
    with pytest.raises(OutcomeUnknownError, match="damaged"):
        write(store, rows([2]), key="k")


def test_a_list_that_shows_nothing_does_not_remove_a_table() -> None:
    """An answer of a page that is no list once advised to remove a live version. [CM5]"""
    store = Scripted()
    head = session(store).open()
    job = begin(store)
    job.write(rows([2]))

    class Blind(FaultStore):
        """Its lists are empty once the version is created."""

        def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
            return iter(()) if store.sent else super().list(prefix, start_from=start_from)

    outcome = commit(session(Blind(store)), head, change_of(job))
    assert outcome.kind == "unknown" and "does not show version 2" in outcome.reason
    assert read_ids(store) == [1, 2]


def test_a_refusal_after_an_unclear_answer_decides_nothing() -> None:
    """The second request was refused; the first may still land. [CM6]"""
    store = Scripted()

    def refused(name: str, data: bytes) -> bool:
        raise StoreError("no")

    store.script = [store.unanswered, *[refused] * (UNCLEAR - 1)]
    with pytest.raises(OutcomeUnknownError):
        write(store, rows([2]), key="k")
    store.script = [refused]
    with pytest.raises(StoreError) as caught:
        write(store, rows([2]), key="k")
    assert not isinstance(caught.value, StoreUnclearError | OutcomeUnknownError), "refused at once: nothing was sent"
    assert read_ids(store) == [1]


@pytest.mark.parametrize("kind", ["list", "get"])
def test_a_create_that_could_not_be_counted_is_unknown_not_failed(kind: str) -> None:
    """[CM5] [CM6]"""
    inner = memory()
    write(inner, rows([1]), key="before")
    created = False

    def blind(call: object) -> None:
        nonlocal created
        if created and call.kind in ("list", "get"):  # type: ignore[attr-defined]
            raise StoreError("the store went away")
        if call.kind == "put_if_absent":  # type: ignore[attr-defined]
            created = True
            if kind == "get":  # something above it makes the look above a get
                write(inner, rows([9]), key="winner")

    with pytest.raises((OutcomeUnknownError, StoreError)) as caught:
        write(FaultStore(inner, on_call=blind), rows([2]), key="k")
    if kind == "list":
        assert isinstance(caught.value, OutcomeUnknownError)
        assert key_version(inner, "k") == 3
    assert write(inner, rows([2]), key="k").committed
    assert read_ids(inner) == ([1, 2] if kind == "list" else [1, 2, 9])


@pytest.mark.parametrize("hint", [None, b"", b"0", b"1", b"2", b"4", b"999", b"-1", b"x" * 100, b"9" * 19, "٣".encode()])
def test_no_hint_changes_what_is_read_or_where_a_commit_lands(hint: bytes | None, store: MemoryStore) -> None:
    """[LY7] [RD1]"""
    for number in range(3):
        write(store, rows([number]))
    if hint is None:
        store.delete([object_names.HINT])
    else:
        store.put(object_names.HINT, hint)
    assert read_ids(store) == [0, 1, 2]
    assert write(store, rows([3])).version == 5
    assert read_ids(store) == [0, 1, 2, 3] and hinted(store) == 5


def test_a_retry_below_of_a_manifest_is_no_damage(set_budgets: SetBudgets) -> None:
    """The SDK wrote the manifest, lost the answer and was told that the name is taken: by these very bytes. [IV4] [LY8]"""
    set_budgets(inline_entry_bytes=0)
    store = Scripted(of=object_names.MANIFESTS)
    store.script = [store.retried_below]
    try:
        outcome = write(store, rows([2]), key="k")
    except CorruptMetadataError as error:
        pytest.fail(f"its own manifest was taken for damage: {error}")
    assert outcome.committed and read_ids(store) == [1, 2]


def test_a_manifest_of_other_bytes_under_ones_own_name_is_damage(set_budgets: SetBudgets) -> None:
    """[OB4] [LY8]"""
    set_budgets(inline_entry_bytes=0)
    store = Scripted(of=object_names.MANIFESTS)

    def stranger(name: str, data: bytes) -> bool:
        store.create(name, b"not these bytes")
        return False

    store.script = [stranger]
    with pytest.raises(CorruptMetadataError):
        write(store, rows([2]), key="k")
    assert read_ids(store) == [1]


def test_a_loser_waits_before_it_looks(store: MemoryStore) -> None:
    """What was read before the pause is old by its end: a writer who waits longer would lose for certain, and starve. [CM8] [IV9]"""
    write(store, rows([0]))
    job = begin(store)
    job.write(rows([1]))

    class Busy(Hasty):
        """Somebody commits in every pause."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            write(store, rows([60]))

    contender = session(before_create(store, lambda: write(store, rows([50]))))
    contender.env = Busy()
    outcome = commit(contender, contender.open(), change_of(job))
    assert outcome.committed and outcome.attempts == 2
    assert read_ids(store) == [0, 1, 50, 60]


def test_losing_over_and_over_ends_with_an_answer(store: MemoryStore) -> None:
    """The loop is bounded, waits between attempts, and a job that gave up, and had asked nobody, left nothing visible. [CM8] [CF1]"""
    write(store, rows([0]))
    job = begin(store)
    job.write(rows([1]))

    def beaten(call: object) -> None:
        if call.kind == "put_if_absent":  # type: ignore[attr-defined]
            write(store, rows([50]))

    contender = session(FaultStore(store, on_call=beaten), Limits(attempts=5, lost_alone=6))
    head = contender.open()
    outcome = commit(contender, head, change_of(job))
    assert outcome.kind == "conflict" and outcome.conflict is not None and outcome.conflict.rule == "contention"
    assert outcome.attempts == 5 and isinstance(contender.env, Hasty) and contender.env.slept == 5
    assert read_ids(store) == [0, *[50] * 5]
