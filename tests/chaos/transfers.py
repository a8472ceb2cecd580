"""Tellers: move money between tables by joint commits, in any order of the tables, also by jobs that others finish; write rows anew.

Clerks finish what tellers have prepared. All of them are killed at random moments, and right before and after versions are created.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, TypeAlias

import msgspec
import pyarrow as pa
from tests.chaos.bank import BANKS, MOST, TILL, Moves, Transfer, compare_banks, draw_transfer, jobs_in, rows_of
from tests.chaos.committer import PLANS, Collector
from tests.chaos.history import birth_of, item
from tests.chaos.work import Board
from tests.chaos.worker import UNHEARD
from tests.chaos.world import Actor, DyingActor, NoteReader, Phase, World, die_inside, get_file, put_file

import manifestcommit as mc
from manifestcommit.testing.history.operation import EVERYTHING, Running
from manifestcommit.transactions import PreparedTransaction


class Auditor(Actor):
    """Whatever happens, banks that are read together hold each transfer in all of them or in none, and what was acknowledged before."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self._heard, self._told = dict[str, Moves](), NoteReader(self.folder)
        self._seen: dict[str, int] = {}
        self._pinned: list[mc.PinnedTable] = []

    def turn(self, phase: Phase) -> None:
        banks = self.dice.sample(BANKS, self.dice.choice((2, 3, 3)))
        direct = not self.world.faulty or self.likely(0.5)
        try:
            self.look(banks, direct)
        except (mc.errors.StoreError, OSError) as error:  # pyarrow's own reading tells what the store said as an OSError
            if direct and not self.has_expired(banks):
                raise
            self.note("unread", banks=banks, error=type(error).__name__)
        self.pause(1.2 if self.world.faulty else 0.4)

    def look(self, banks: list[str], direct: bool) -> None:
        """One version of each, and what is wrong with them together."""
        self.listen()
        self._pinned = []
        joint = self.unique()
        with ExitStack() as stack:
            running = {bank: stack.enter_context(self.record(bank).read("read together")) for bank in banks}
            for each in running.values():
                each.note(joint=joint)
            self._pinned = mc.read_together([self.world.table(bank, direct=direct) for bank in banks])
            versions = {bank: pinned.version for bank, pinned in zip(banks, self._pinned, strict=True)}
            rows = {bank: pinned.to_arrow() for bank, pinned in zip(banks, self._pinned, strict=True)}
            for bank, pinned in zip(banks, self._pinned, strict=True):
                items = [item(job, count) for job, count in jobs_in(rows[bank])]
                running[bank].saw(pinned.version, items=items, watermarks=pinned.watermarks())
        self.judge(versions, rows)

    def listen(self) -> None:
        """What was acknowledged until now."""
        self._heard |= {note["transfer"]: note["moves"] for note in self._told.new() if note["what"] == "transferred"}

    def judge(self, versions: dict[str, int], rows: dict[str, pa.Table]) -> None:
        findings = compare_banks(rows, self._heard)
        behind = {bank: self._seen[bank] for bank, version in versions.items() if version < self._seen.get(bank, 0)}
        findings += [f"read before at {behind}"] if behind else []
        self._seen |= versions
        for each in findings:
            self.violation(f"{versions}: {each}")
        self.note("read together", versions=versions, rows={bank: table.num_rows for bank, table in rows.items()})

    def has_expired(self, banks: list[str]) -> bool:
        """Whether gc has taken a version that this auditor, perhaps stopped for a while, is still reading."""
        expired = (self.world.table(bank, direct=True).snapshot().expired for bank in banks)
        return any(pinned.version < each for pinned, each in zip(self._pinned, expired, strict=False))


class Janitor(Collector):
    """gc, and compaction, without which each read would open a file for every transfer."""

    spared = frozenset[str]()

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        die_inside(self)

    def turn(self, phase: Phase) -> None:
        if self.likely(0.5):
            super().turn(phase)
            return
        bank = self.dice.choice(BANKS)
        try:
            with self.record(bank).commit("compact") as running:
                done = self.table(bank).compact()
                if done.version is not None:
                    running.committed(done.version)
            self.note("compacted", table=bank, groups=done.groups, lost=done.lost_groups)
        except mc.errors.StoreError as error:
            if not self.world.faulty:
                raise
            self.note("failed", error=type(error).__name__)
        except (mc.errors.CommitConflictError, mc.errors.JobFencedError) as error:
            self.note("not compacted", error=type(error).__name__)
        self.pause(1.0)


Ended: TypeAlias = Literal["done", "lost", "again"]
_RERUNS = 4


class BankActor(DyingActor):
    """What tellers and clerks have in common."""

    @contextmanager
    def recorded(self, name: str, jobs: Mapping[str, str | None], **what: Any) -> Iterator[dict[str, Running]]:
        """One operation in the history of each bank, which end together. jobs: bank -> its job, where it is known."""
        what["joint"] = self.unique()
        with ExitStack() as stack:
            yield {
                bank: stack.enter_context(self.record(bank).commit(name, **({"job": job} if job else {}), **what))
                for bank, job in jobs.items()
            }

    def all_committed(self, transfer: Transfer, jobs: Mapping[str, str], outcome: mc.JointOutcome, running: Mapping[str, Running]) -> None:
        """Acknowledged: from here on all of its banks must have it for ever. jobs: bank -> its job."""
        for (bank, job), each in zip(jobs.items(), outcome.outcomes.values(), strict=True):
            assert each.version is not None
            running[bank].committed(each.version, already=each.already_committed)
            self.note("committed", table=bank, job=job, version=each.version, key=transfer.key, already=each.already_committed, ranges={})
        self.note("transferred", transfer=transfer.name, moves=transfer.moves)

    def all_refused(self, transfer: Transfer, jobs: Mapping[str, str], error: Exception, running: Mapping[str, Running]) -> None:
        """Nothing of these jobs may ever be in any of their tables. The reason is that of one table; which, the history cannot know."""
        for bank, job in jobs.items():
            running[bank].refused("another table")
            self.note("refused", table=bank, job=job, error=type(error).__name__, key=None)
        if not transfer.keyed or isinstance(error, mc.errors.WatermarkOverlapError):
            self.note("never", transfer=transfer.name, error=type(error).__name__)


class Teller(BankActor):
    """Several of them, who name the same tables in different orders."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self.board = Board(self.folder, name, Transfer)
        self._count = 0

    def turn(self, phase: Phase) -> None:
        unfinished = self.board.own()
        try:
            if unfinished:
                for transfer in unfinished:
                    self.note("rerun", transfer=transfer.name)
                    self.persist(transfer)
                self.board.clear()
            elif phase == "drain":
                self.pause(0.2)
            else:
                self.dice.choices([*WEIGHTS], [*WEIGHTS.values()])[0](self)
                self.pause(0.6 if self.world.faulty else 0.3)
        except mc.errors.StoreError as error:  # while nothing of it had been sent that counts
            self.failed(error)

    # --- ways to work ---------------------------------------------------------------------------------------------------

    def transfer(self) -> None:
        self.work(self.drawn(self.dice.choice((2, 2, 3))))

    def deposit(self) -> None:
        """One table alone, whose sum stays what it is."""
        self.work(self.drawn(1))

    def join(self) -> None:
        """What somebody else is doing right now, or was doing when it died: the same key, the same tables."""
        others = self.board.others()
        if not others:
            return self.transfer()
        transfer = self.dice.choice(others)
        self.note("twin", transfer=transfer.name)
        return self.work(transfer)

    def prepare(self) -> None:
        """The first phase here, the second elsewhere; now and then it is run again here, beside the prepared jobs."""
        transfer = self.drawn(self.dice.choice((2, 2, 3)))
        self.put(transfer)
        prepared = self.prepared(transfer)
        if prepared is not None:
            self.maybe_die("prepared, and not handed over", 0.04)
            name = transfer.name.replace("/", " ")
            put_file(self.folder / "queue" / f"{name}.json", {"jobs": prepared, "transfer": msgspec.to_builtins(transfer)})
        if self.likely(0.8):
            self.board.clear()

    def restate(self) -> None:
        """Rows of two banks are written anew by one commit, each with the amount that it has: none may be lost, and none come twice."""
        banks = self.dice.sample(BANKS, 2)
        for _ in range(_RERUNS):
            if self.restated(banks):
                return

    def restated(self, banks: list[str]) -> bool:
        """Whether that is over."""
        with self.recorded("restate", dict.fromkeys(banks)) as running:
            try:
                with mc.transaction({bank: self.world.urls[bank] for bank in banks}, storage_options=self.world.options) as tx:
                    for bank in banks:
                        tx.rows(bank).update({"amount": "amount"}, where=f"amount > {self.dice.randint(-MOST, MOST)}")
                    self.maybe_die("before the commit", 0.02)
            except (mc.errors.CommitConflictError, mc.errors.JobFencedError, mc.errors.DataFileMissingError) as error:
                for each in running.values():
                    each.refused("another table")
                self.note("not restated", error=type(error).__name__)
                return False
            except mc.errors.OutcomeUnknownError:
                self.note("unknown", restated=banks)
                return True
            assert tx.outcome is not None
            for bank, outcome in zip(banks, tx.outcome.outcomes.values(), strict=True):
                assert outcome.version is not None
                running[bank].committed(outcome.version)
            self.note("restated", banks=banks)
            return True

    def drawn(self, banks: int) -> Transfer:
        self._count += 1
        transfer = draw_transfer(f"{self.name}.{self.incarnation}/{self._count}", self.dice, keyed=self.likely(0.7), banks=banks)
        if banks == 1 or not self.likely(0.25):
            return transfer
        bank = self.dice.choice(transfer.banks)
        mark = int(self.table(bank).watermarks().get(TILL, 0))
        return Transfer(name=transfer.name, moves=transfer.moves, keyed=transfer.keyed, till={bank: (mark, mark + 1)})

    def work(self, transfer: Transfer) -> None:
        self.put(transfer)
        self.persist(transfer)
        self.board.clear()

    def put(self, transfer: Transfer) -> None:
        if transfer.keyed:
            self.board.put([transfer])

    def persist(self, transfer: Transfer) -> None:
        """The same key again until it is known what became of it; what has no key is tried once."""
        for _ in range(_RERUNS if transfer.keyed else 1):
            if self.attempt(transfer) != "again":
                return

    # --- one transfer ---------------------------------------------------------------------------------------------------

    def attempt(self, transfer: Transfer) -> Ended:
        jobs: dict[str, str] = {}
        with self.recorded("transfer", dict.fromkeys(transfer.banks), key=transfer.key) as running:
            try:
                outcome = self.committed_jobs(transfer, jobs, running)
                if not outcome.already_committed:
                    self.maybe_die(UNHEARD, 0.06)
                self.all_committed(transfer, jobs, outcome, running)
                return "done"
            except mc.errors.ManifestCommitError as error:
                return self.ended(transfer, jobs, error, running)

    def committed_jobs(self, transfer: Transfer, jobs: dict[str, str], running: Mapping[str, Running]) -> mc.JointOutcome:
        """By a transaction; of one bank, by its job alone."""
        urls = {bank: self.world.urls[bank] for bank in transfer.banks}
        if len(urls) > 1:
            with mc.transaction(urls, key=transfer.key, storage_options=self.world.options) as tx:
                self.fill(transfer, {bank: tx[bank] for bank in urls}, jobs, running)
                if transfer.till:
                    self.pause(1.0)  # for others to take it meanwhile: some member is refused when another one is there already
                self.maybe_die("before the commit", 0.02)
            assert tx.outcome is not None
            return tx.outcome
        ((bank, url),) = urls.items()
        with mc.begin(url, key=transfer.key, storage_options=self.world.options) as job:
            self.fill(transfer, {bank: job}, jobs, running)
        assert job.outcome is not None
        return mc.JointOutcome(outcomes={url: job.outcome}, already_committed=job.outcome.already_committed)

    def fill(self, transfer: Transfer, begun: Mapping[str, mc.Job], jobs: dict[str, str], running: Mapping[str, Running]) -> None:
        jobs |= {bank: job.id for bank, job in begun.items()}
        for bank, job in begun.items():
            adds = {} if job.already_committed else {item(job.id, len(transfer.moves[bank])): ""}
            advances = {TILL: transfer.till[bank]} if bank in transfer.till else {}
            running[bank].note(job=job.id, birth=birth_of(job.id), adds=adds, advances=advances)
            for source, (start, end) in advances.items():
                job.advance(source, start, end)
            job.write(rows_of(transfer, bank, job.id))

    def prepared(self, transfer: Transfer) -> dict[str, str] | None:
        """Bank -> the id of its prepared job; None where preparing failed."""
        jobs: dict[str, str] = {}
        with self.recorded("prepare", dict.fromkeys(transfer.banks), key=transfer.key, shared=True) as running:
            try:
                urls = {bank: self.world.urls[bank] for bank in transfer.banks}
                tx = mc.transaction(urls, key=transfer.key, storage_options=self.world.options)
                self.fill(transfer, {bank: tx[bank] for bank in urls}, jobs, running)
                for _ in range(3):
                    try:
                        tx.prepare()
                        self.note("prepared", transfer=transfer.name)
                        return jobs
                    except mc.errors.StoreError as error:
                        self.failed(error)
            except mc.errors.StoreError as error:
                self.failed(error)
            except (mc.errors.WatermarkOverlapError, mc.errors.JobFencedError) as error:  # too late already, before all were prepared
                self.all_refused(transfer, jobs, error, running)
        return None

    def ended(
        self, transfer: Transfer, jobs: dict[str, str], error: mc.errors.ManifestCommitError, running: Mapping[str, Running]
    ) -> Ended:
        """How a transfer that did not commit is to be taken. Raises what should not have happened."""
        if isinstance(error, mc.errors.OutcomeUnknownError):
            self.note("unknown", transfer=transfer.name)
            if not self.world.faulty:
                fenced = [bank for bank, job in jobs.items() if birth_of(job) < self.world.table(bank, direct=True).snapshot().fence]
                if not fenced:
                    self.violation(f"a store without faults gave no answer to transfer {transfer.name}: {error}")
            return "again"
        if isinstance(error, mc.errors.StoreError):
            self.failed(error)
            return "again"
        if not isinstance(error, mc.errors.WatermarkOverlapError | mc.errors.CommitConflictError | mc.errors.JobFencedError) or len(
            jobs
        ) < len(transfer.moves):
            raise error
        self.all_refused(transfer, jobs, error, running)
        return "lost" if isinstance(error, mc.errors.WatermarkOverlapError) else "again"


WEIGHTS = {Teller.transfer: 40, Teller.prepare: 22, Teller.deposit: 15, Teller.join: 12, Teller.restate: 8}


class Clerk(BankActor):
    """Several of them share one queue, and nothing keeps two from taking the same jobs. What is left in the tables they find there."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        self.queue = self.folder / "queue"
        self.queue.mkdir(parents=True, exist_ok=True)

    def turn(self, phase: Phase) -> None:
        try:
            waiting = sorted(self.queue.glob("*.json"))
            path = self.dice.choice(waiting) if waiting else None
            found = get_file(path) if path is not None else None
            if path is None or found is None:
                self.pause(0.1)
                return
            if self.decide(msgspec.convert(found["transfer"], Transfer), found["jobs"]):
                self.maybe_die("decided, and still in the queue", 0.05)
                path.unlink(missing_ok=True)
        except mc.errors.StoreError as error:
            self.failed(error)

    def decide(self, transfer: Transfer, jobs: dict[str, str]) -> bool:
        """Whether it is decided: committed in all banks, or never in any."""
        final = ("committed", "aborted")
        told = [self.ask(transfer, jobs, verb) for verb in self.dice.choice(PLANS)]
        return told[-1] in final or (told[-1] in ("refused", "already") and self.ask(transfer, jobs, "abort") in final)

    def ask(self, transfer: Transfer, jobs: dict[str, str], verb: str) -> str:
        """All of them, or one of them, which stands for all."""
        prepared = PreparedTransaction({self.world.urls[bank]: job for bank, job in jobs.items()}, self.world.options)
        with self.recorded(verb, jobs, shared=True, gives_up=EVERYTHING) as running:  # a commit aborts what one of the tables has fenced
            try:
                if verb == "abort":
                    if prepared.abort() == "aborted":
                        return self.aborted(transfer, jobs, running)
                    self.maybe_die("given up, and nobody was told", 0.03)
                outcome = prepared.commit()
                self.maybe_die("finished, and nobody was told", 0.05)
                self.all_committed(transfer, jobs, outcome, running)
                return "already" if outcome.already_committed else "committed"
            except mc.errors.JobAbortedError:
                return self.aborted(transfer, jobs, running)
            except (mc.errors.WatermarkOverlapError, mc.errors.CommitConflictError, mc.errors.JobFencedError) as error:
                self.note("prepared refused", transfer=transfer.name, error=type(error).__name__)
                return "aborted" if isinstance(error, mc.errors.JobFencedError) else "refused"
            except mc.errors.OutcomeUnknownError:
                self.note("unknown", transfer=transfer.name)
                return "unknown"

    def aborted(self, transfer: Transfer, jobs: Mapping[str, str], running: Mapping[str, Running]) -> str:
        for bank, job in jobs.items():
            running[bank].refused("aborted")
            self.note("aborted", table=bank, job=job)
        if not transfer.keyed:
            self.note("never", transfer=transfer.name, error="aborted")
        return "aborted"


class Manager(Clerk):
    """The last one: when nothing runs any more it finishes all that is still prepared, and writes once to each bank, which settles it."""

    def run(self) -> None:
        for bank in BANKS:
            for info in self.table(bank).jobs():
                if info.state == "prepared":
                    self.finish(bank, info.job)
        for bank in BANKS:
            transfer = draw_transfer(f"{self.name}/{bank}", self.dice, keyed=False, banks=1)
            transfer = Transfer(name=transfer.name, moves={bank: next(iter(transfer.moves.values()))}, keyed=False)
            with self.record(bank).commit("settle") as running, mc.begin(self.world.urls[bank], storage_options=self.world.options) as job:
                running.note(job=job.id, birth=birth_of(job.id), adds={item(job.id, len(transfer.moves[bank])): ""})
                job.write(rows_of(transfer, bank, job.id))
                running.told(job.commit())

    def finish(self, bank: str, job: str) -> None:
        with ExitStack() as stack:
            for each in BANKS:
                stack.enter_context(self.record(each).commit("finish", gives_up=EVERYTHING))
            url, options = self.world.urls[bank], self.world.options
            try:
                is_left = mc.commit(url, job, storage_options=options).already_committed  # by another job of its key
            except (mc.errors.JobAbortedError, mc.errors.JobFencedError):
                is_left = False
            except (mc.errors.WatermarkOverlapError, mc.errors.CommitConflictError):
                is_left = True
            if is_left:
                mc.Table(url, storage_options=options).abort(job)
