"""A table as the specification describes it, in plain dictionaries: what each call may answer, and what the table holds after it.

Written from spec/v1.md alone; nothing here looks at the code that it judges. Each answer is a set: of one member where the spec decides,
of several where it leaves freedom; the comment beside it tells which clause does.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

Position = int | str | None
Day = str | None
Advance = tuple[str, Position, Position]
ANY = "any error"  # among the answers: the spec says that it is an error, and not which


# What a batch may be told, by what `judge_batch` says of it.
BATCHES = {
    "next": {"committed"},
    "already": {"already"},
    "behind": {"KeyReusedError"},
    "reused": {"KeyReusedError"},
    "gap": {"WatermarkGapError"},
    # Under a name of another query whose batches a rollback has taken: KY6 lets a query begin with batch 0 there, and tells of no other.
    "gap or reused": {"WatermarkGapError", "KeyReusedError"},
    "next or refused": {"committed", "WatermarkGapError", "KeyReusedError"},
}


@dataclass(frozen=True)
class Row:
    """path: the file of it, where something else wrote that and it is still the one that is live."""

    id: int
    day: Day
    values: tuple[tuple[int, str], ...] = ()  # column -> value
    path: str | None = None


@dataclass(frozen=True)
class KeyRecord:
    version: int
    declared: tuple[Any, ...]


@dataclass(frozen=True)
class Batch:
    name: str
    query: str
    number: int


@dataclass(frozen=True)
class Move:
    """An advance, or what rewinds have left of it."""

    version: int
    key: str | None
    source: str
    start: Position
    end: Position


@dataclass
class State:
    """What a rollback restores. [CF13] columns: a number of the model's own -> name; moves: the advances that led to the watermarks;
    loose: commits whose advances a rewind has undone without their keys."""

    columns: dict[int, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    marks: dict[str, Position] = field(default_factory=dict)
    origins: dict[str, Position] = field(default_factory=dict)
    keys: dict[str, KeyRecord] = field(default_factory=dict)
    streams: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # name -> query, batch, version
    moves: list[Move] = field(default_factory=list)
    loose: list[Move] = field(default_factory=list)

    def last_batches(self) -> dict[str, int]:
        """Each query's last batch, under any name. [KY6]"""
        found: dict[str, int] = {}
        for query, number, _ in self.streams.values():
            found[query] = max(number, found.get(query, -1))
        return found

    def committed_at(self, query: str) -> int:
        """The version that holds the last batch of a query; 0: none does."""
        return max((version for each, number, version in self.streams.values() if each == query and number >= 0), default=0)

    @property
    def paths(self) -> set[str]:
        return {row.path for row in self.rows if row.path is not None}


@dataclass
class Touched:
    """The partitions that a version certainly touched, and whether its patterns may cover others; replaced: no row changed. [OB10]"""

    days: frozenset[Day] = frozenset()
    scope: str = "none"  # none, day, all
    day: Day = None
    replaced: bool = False

    def may(self, day: Day) -> bool:
        return self.scope == "all" or (self.scope == "day" and self.day == day) or day in self.days


@dataclass
class Job:
    """One attempt. kind: append, dynamic, static (of `day`), all; done: its key's record when it began; took: its files' columns."""

    id: str
    birth: int
    key: str | None = None
    fingerprint: str | None = None
    kind: str = "append"
    day: Day = None
    mode: str = "serializable"
    advances: list[Advance] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    took: set[int] = field(default_factory=set)
    perhaps_took: set[int] = field(default_factory=set)
    adds: dict[int, str] = field(default_factory=dict)
    batch: Batch | None = None
    done: KeyRecord | None = None
    left: str = ""  # what it has left for others: "", prepared, published, running (a mark)
    tried: bool = False

    @property
    def declared(self) -> tuple[Any, ...]:
        """What KY1 says; the mode's last word, when an overwrite gives up, is not named there."""
        return (self.kind, self.day if self.kind == "static" else None, tuple(sorted(self.advances, key=str)), self.fingerprint)

    def empties(self, day: Day) -> bool:
        if self.kind == "dynamic":
            return any(row.day == day for row in self.rows)
        return self.kind == "all" or (self.kind == "static" and self.day == day)


class Reference:
    """now: the head; states: each version; born of what: `before`, the version that history goes on with below one. [RD9]"""

    def __init__(self) -> None:
        self.now = State()
        self.version = 0
        self.states: dict[int, State] = {}
        self.before: dict[int, int] = {}
        self.touched: dict[int, Touched] = {}
        self.tags: dict[str, int] = {}
        self.fence = self.expired = 1
        self.lost_records_below = 1  # births below it: the job may be in no record any more [GC8]
        self.rollbacks: list[int] = []
        self.sources_set_back: dict[str, int] = {}
        self.forgotten: list[tuple[int, str, Position]] = []  # at which version, which source, its origin then [WM5]
        self.keys_set_back: dict[str, int] = {}
        self.queries_set_back: dict[str, int] = {}
        self.schema_changed: dict[int, set[str]] = {}  # version -> names that it added; "*": something else
        self.condemned: dict[str, int] = {}
        self.jobs: dict[str, Job] = {}
        self.decided: dict[str, int | None] = {}  # job -> its version, or given up

    # --- versions ------------------------------------------------------------------------------------------------------

    @property
    def readable(self) -> list[int]:
        return sorted({*range(self.expired, self.version + 1), *self.tags.values()})

    def seal(self, touched: Touched | None = None, *, restored: int | None = None) -> None:
        """`now` is the next version."""
        self.version += 1
        self.states[self.version] = copy.deepcopy(self.now)
        self.before[self.version] = self.version - 1 if restored is None else restored
        self.touched[self.version] = touched or Touched()

    def resumable(self, key: str) -> list[Job]:
        """Recoverable jobs that a rerun of the key goes on with. [AB6]"""
        back = max([self.fence, self.keys_set_back.get(key, 0), *self.sources_set_back.values()])
        return [
            job
            for job in self.jobs.values()
            if job.key == key and job.left == "running" and job.id not in self.decided and job.birth >= back
        ]

    # --- what a commit may answer ----------------------------------------------------------------------------------------

    def answers(self, job: Job) -> set[str]:
        """What committing this job now may say. [CM10]"""
        if job.id in self.decided:
            return self._decided(job)
        found = self.now.keys.get(job.key) if job.key is not None else None
        if found is not None:
            return self._key_found(job, found)
        if job.done is not None:
            return {"conflict key_is_gone"} | self._fenced(job)
        batch = self._batch(job)
        if batch and "committed" not in batch and batch & {"already", "KeyReusedError"}:
            return batch | self._fenced(job)
        must, may = self._conflicts(job)
        if "committed" in batch:
            may |= batch - {"committed"}
        else:
            must |= batch
        # Which of several reasons is told first is nobody's rule; CM2 only says that no version is created.
        if job.birth < self.fence:
            return self._fenced(job) | must | may
        return (must | may) if must else ({"committed"} | may)

    def _decided(self, job: Job) -> set[str]:
        version = self.decided[job.id]
        said = {"JobAbortedError"} if version is None else {f"committed {version}", f"already {version}"}
        # Nothing records it any more, and versions below `expired` prove nothing. [CM2] [GC8]
        return said | self._fenced(job) if job.birth < self.lost_records_below else said

    def _key_found(self, job: Job, found: KeyRecord) -> set[str]:
        if found.declared != job.declared:
            return {"KeyReusedError"} | self._fenced(job)
        return {f"already {found.version}"} | self._fenced(job)  # of one that holds no work, too: the head decides [KY8]

    def _fenced(self, job: Job) -> set[str]:
        """CM2: fenced where no create was sent and nothing is prepared, or all versions since its birth can be read."""
        if job.birth >= self.fence:
            return set()
        if self.expired <= job.birth + 1:
            return {"JobFencedError"}
        # Whether a create was sent is the writer's choice: it may contend for the version after its birth unseen. [CM3]
        return {"JobFencedError", "OutcomeUnknownError"}

    def judge_batch(self, state: State, batch: Batch) -> str:
        """next, already, behind, gap or reused. [KY6]"""
        record = state.streams.get(batch.name)
        mine = [number for query, number, _ in state.streams.values() if query == batch.query]
        if record is not None and record[0] != batch.query and record[1] >= 0:
            return "reused"
        if not mine:
            return "next" if record is None or batch.number == 0 else "gap or reused"
        last = max(mine)
        if record is not None and record[0] != batch.query and batch.number == last + 1 > 0:
            return "next or refused"  # the name is another query's, whose batches a rollback has taken: for batch 0 only it is told
        return "already" if batch.number == last else "behind" if batch.number < last else "next" if batch.number == last + 1 else "gap"

    def _batch(self, job: Job) -> set[str]:
        if job.batch is None:
            return set()
        # Its rows are written, whatever the head of its birth said: only tasks that wrote nothing for that are held to it. [KY8] [SP7]
        said = BATCHES[self.judge_batch(self.now, job.batch)]
        if self.queries_set_back.get(job.batch.query, 0) > job.birth:
            said = (said - {"committed"}) | {"conflict stream_was_set_back"}
        return said

    def _conflicts(self, job: Job) -> tuple[set[str], set[str]]:
        """What certainly stops it, and what may. [CF1]-[CF16] [WM2]"""
        must: set[str] = set()
        may: set[str] = set()
        if job.key is not None and self.keys_set_back.get(job.key, 0) > job.birth:
            must.add("conflict key_was_set_back")
        must |= self._advances(job)
        if not job.took <= self.now.columns.keys():
            must.add("conflict schema")
        elif not job.perhaps_took <= self.now.columns.keys():
            may.add("conflict schema")  # SC4 leaves it open whether a file holds a column of nothing but nulls
        if job.adds:
            self._schemas(job, must, may)
        self._partitions(job, must, may)
        paths = {row.path for row in job.rows if row.path is not None}
        if paths & self.now.paths:
            must.add("conflict path_is_live")
        if paths & self.condemned.keys():
            must.add("conflict path_is_condemned")
        return must, may

    def _schemas(self, job: Job, must: set[str], may: set[str]) -> None:
        """CF8: new columns of different names commute; what else both sides have changed conflicts, which is about one column or all."""
        mine = {name.lower() for name in job.adds.values()}
        for version in range(job.birth + 1, self.version + 1):
            theirs = self.schema_changed.get(version, set())
            if "*" in theirs or theirs & mine:
                may.add("conflict schema")
        if mine & {name.lower() for name in self.now.columns.values()}:
            must.add("conflict schema")

    def _partitions(self, job: Job, must: set[str], may: set[str]) -> None:
        if job.kind == "append":
            return
        if job.mode == "fail" and any(job.empties(row.day) for row in self.now.rows):
            must.add("conflict partition_is_filled")
        if job.mode != "serializable":
            return
        for version in range(job.birth + 1, self.version + 1):
            touched = self.touched[version]
            if touched.replaced:
                continue
            if any(job.empties(day) for day in touched.days):
                must.add("conflict partition_was_touched")
            elif touched.scope == "all" or (touched.scope == "day" and job.empties(touched.day)):
                may.add("conflict partition_was_touched")  # patterns cover what was touched, and may cover more [OB10]

    def mismatches(self, job: Job) -> dict[str, tuple[Position, Position]]:
        """source -> where it is and where the job would start, for each that does not fit. [WM2]"""
        found: dict[str, tuple[Position, Position]] = {}
        marks = dict(self.now.marks)
        for source, start, end in job.advances:
            if source in marks and marks[source] != start and source not in found:
                found[source] = (marks[source], start)
            marks[source] = end
        return found

    def _advances(self, job: Job) -> set[str]:
        said: set[str] = set()
        for source in {source for source, _, _ in job.advances}:
            if self.sources_set_back.get(source, 0) > job.birth:
                said.add("conflict source_was_set_back")
        for have, want in self.mismatches(job).values():
            if isinstance(have, int) and isinstance(want, int):
                said.add("WatermarkGapError" if have < want else "WatermarkOverlapError")
            elif isinstance(have, str) and isinstance(want, str):
                said.add("WatermarkMismatchError")
            else:  # WM3 does not order null and positions, or the two kinds
                said |= {"WatermarkGapError", "WatermarkOverlapError", "WatermarkMismatchError"}
        return said

    def covered(self, job: Job) -> set[bool]:
        """Whether all that the job advances is in the table. [WM2]"""
        said = {True}
        for source, start, end in job.advances:
            mark, origin = self.now.marks.get(source), self.now.origins.get(source)
            if not (isinstance(start, int) and isinstance(end, int) and isinstance(mark, int)):
                return {False} if isinstance(end, str) or source not in self.now.marks else {True, False}  # a null start: not told
            if end > mark or (isinstance(origin, int) and start < origin):
                return {False}
            if origin is None:
                said = {True, False}  # nothing is before null, or it is not known: not told
        return said

    # --- what a commit does ------------------------------------------------------------------------------------------------

    def apply(self, job: Job, version: int, *, seal: bool = True) -> None:
        """The job's change on top of what is now, as part of this version."""
        now = self.now
        gone = [row for row in now.rows if job.empties(row.day)]
        now.rows = [row for row in now.rows if not job.empties(row.day)] + job.rows
        now.columns |= job.adds
        for source, start, end in job.advances:
            if source not in now.marks:
                now.origins[source] = start
            now.marks[source] = end
            now.moves.append(Move(version, job.key, source, start, end))
        if job.key is not None:
            now.keys[job.key] = KeyRecord(version, job.declared)
        if job.batch is not None:
            held = now.streams.get(job.batch.name)
            now.streams[job.batch.name] = (job.batch.query, job.batch.number, version)
            if held is not None and all(each != held[0] for each, _, _ in now.streams.values()):
                now.streams[f"{job.batch.name} {held[0]}"] = held
        self.decided[job.id] = version
        if job.adds:
            self.schema_changed[version] = {name.lower() for name in job.adds.values()}
        days = frozenset(row.day for row in [*gone, *job.rows])
        scope = {"append": "none", "dynamic": "none", "static": "day", "all": "all"}[job.kind]
        earlier = self.touched.get(version)
        touched = Touched(days | (earlier.days if earlier else frozenset()), scope, job.day)
        if seal:
            self.seal(touched)
        else:
            self.touched[version] = touched

    def alter(self, columns: dict[int, str], added: set[str]) -> None:
        self.now.columns = columns
        self.now.rows = [Row(row.id, row.day, tuple(pair for pair in row.values if pair[0] in columns), row.path) for row in self.now.rows]
        self.schema_changed[self.version + 1] = added
        self.seal()

    # --- set-backs ---------------------------------------------------------------------------------------------------------

    def undone(self, source: str, to: Position) -> tuple[list[Move], list[Move]]:
        """The moves that a rewind undoes, in whole or in part, and what is left of all. [WM5]"""
        mine = [move for move in self.now.moves if move.source == source]
        if to is None:
            return mine, [move for move in self.now.moves if move.source != source]
        if isinstance(to, str):
            stood = [index for index, move in enumerate(mine) if move.end == to]
            cut = stood[-1] + 1 if stood else 0
            gone = mine[cut:]
            return gone, [move for move in self.now.moves if move not in gone]
        gone = [move for move in mine if isinstance(move.end, int) and move.end > to]
        left = []
        for move in self.now.moves:
            if move not in gone:
                left.append(move)
            elif move.start is None or (isinstance(move.start, int) and move.start < to):
                left.append(Move(move.version, move.key, source, move.start, to))
        return gone, left

    def walk(self, source: str, to: Position) -> list[int]:
        """The versions that tell what a rewind undoes: back to the last one at which the source had not passed the position."""
        path, version = [], self.version
        while version >= 1:
            path.append(version)
            marks = self.states[version].marks
            mark = marks.get(source)
            if source not in marks or mark is None or mark == to or (isinstance(mark, int) and isinstance(to, int) and mark < to):
                break
            version = self.before[version]
        return path

    def dropped(self, moves: list[Move]) -> set[str]:
        return {move.key for move in moves if move.key in self.now.keys and self.now.keys[move.key].version == move.version}

    def rewind(self, source: str, to: Position, dropped: set[str], *, kept: bool) -> None:
        gone, left = self.undone(source, to)
        now = self.now
        now.moves = left
        if kept:
            now.loose += gone
        if to is None:
            now.marks.pop(source, None)
            self.forgotten.append((self.version + 1, source, now.origins.pop(source, None)))
        else:
            now.marks[source] = to
            origin = now.origins.get(source)
            if isinstance(origin, int) and isinstance(to, int) and to < origin:
                now.origins[source] = to
        self.sources_set_back[source] = self.version + 1
        for key in dropped:
            del now.keys[key]
            self.keys_set_back[key] = self.version + 1
        self.seal()

    def roll_back(self, target: int) -> set[str]:
        """Returns the keys that it drops. [CF13]"""
        base, version = self.now, self.version + 1
        now = copy.deepcopy(self.states[target])
        lives = [(source, origin) for at, source, origin in self.forgotten if at > target] + list(base.origins.items())
        for source in {source for source, _ in lives} - now.marks.keys():
            # Known from now on, at where it first began since: null if that advance began there.
            began = [origin for each, origin in lives if each == source]
            whole = [each for each in began if isinstance(each, int)]
            now.marks[source] = now.origins[source] = None if None in began else min(whole) if len(whole) == len(began) else began[0]
        for source in now.marks:
            stood = base.marks.get(source)
            moved = source not in base.marks or (stood, base.origins[source]) != (now.marks[source], now.origins[source])
            if moved or isinstance(stood, str):
                self.sources_set_back[source] = version
        dropped = base.keys.keys() - now.keys.keys()
        for key in dropped:
            self.keys_set_back[key] = version
        before, after = base.last_batches(), now.last_batches()
        for query in before.keys() | after.keys():
            if query not in after:
                (name,) = [name for name, each in base.streams.items() if each[:2] == (query, before[query])]
                now.streams[name if name not in now.streams else f"{name} of {query}"] = (query, -1, version)
            if after.get(query, -1) != before.get(query, -1) or base.committed_at(query) != now.committed_at(query):
                self.queries_set_back[query] = version
        if now.columns != base.columns:
            self.schema_changed[version] = {"*"}
        changed = {(row.id, row.day) for row in base.rows} ^ {(row.id, row.day) for row in now.rows}
        self.now = now
        self.rollbacks.append(version)
        self.seal(Touched(frozenset(day for _, day in changed), "all"), restored=target)
        return dropped

    # --- gc ------------------------------------------------------------------------------------------------------------------

    def held_fence(self) -> int:
        """The fence of a gc with no grace: the head, but for jobs that are prepared and undecided. [GC1] [AB5]"""
        held = [
            job.birth for job in self.jobs.values() if job.left == "prepared" and job.id not in self.decided and job.birth >= self.fence
        ]
        return max(self.fence, min([self.version, *held]))

    def may_forget(self, keep: int, fence: int) -> set[str]:
        """Keys that a gc may forget. [KY4]"""
        recent = sorted(self.now.keys, key=lambda key: self.now.keys[key].version)
        old = recent[: len(recent) - keep] if keep else recent
        # Those that one commit recorded are equally old.
        bound = max((self.now.keys[key].version for key in old), default=0)
        # The fence has passed a version once no job that was born below it can commit.
        if any(version > fence for version in self.rollbacks):
            return set()
        return {key for key, record in self.now.keys.items() if record.version <= min(bound, fence)}

    def resolutions(self, job: Job) -> set[str]:
        """What `resolve` may say. [CM23]"""
        unsure = job.birth < self.lost_records_below
        if job.id in self.decided:
            version = self.decided[job.id]
            said = {"aborted"} if version is None else {f"committed {version}"}
            return said | {"forgotten"} if unsure else said
        if job.birth < self.fence:
            return {"forgotten", "not_committed", "pending", "aborted"}  # in no record, and below the fence
        return {"pending"} if job.left in ("prepared", "published") else {"not_committed"}
