from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar

from .operation import EVERYTHING, Contradiction, Operation, Position, contradiction, takes_out

K = TypeVar("K")
V = TypeVar("V")
At: TypeAlias = tuple[int, Operation]  # a version, and the operation that made it
Problem: TypeAlias = tuple[str, tuple[Operation, ...]]  # and what contradicts it


class State:
    """What readers see after the commits so far. forgetting: from which version to which some gc
    may have forgotten keys, except for so many of the last."""

    def __init__(self, forgetting: Sequence[tuple[int, int, int]] = ()) -> None:
        self._forgetting = forgetting
        self._counts = any(keeps for _, _, keeps in forgetting)
        # key -> the maximal number of newer keys that existed at the same time
        self.newer: dict[str, int] = {}
        self.marks: dict[str, int] = {"fence": 0, "newest": 0}
        self.items: dict[str, str] = {}
        self.watermarks: dict[str, int | str] = {}
        # source -> the last operation that moved its watermark
        self.movers: dict[str, Operation] = {}
        self.origins: dict[str, Position] = {}
        # source -> each version that forgot it, with where it had begun
        self.forgotten: dict[str, tuple[tuple[int, Position], ...]] = {}
        # constraint -> the partition that it refuses, and the operation that added it
        self.constraints: dict[str, tuple[str, Operation]] = {}
        # source, or key -> what set it back
        self.set_back: dict[str, At] = {}
        self.keys: dict[str, At] = {}
        # partition, or everything -> the last operation that touched it
        self.touched: dict[str, At] = {}
        self._undo: list[Callable[[], object]] = []
        self._kept: dict[int, tuple[dict[str, Any], ...]] = {}

    def mark(self) -> int:
        """A point to which `back` returns."""
        return len(self._undo)

    def back(self, mark: int) -> None:
        while len(self._undo) > mark:
            self._undo.pop()()

    def keep(self, version: int) -> None:
        """Remember this version: a later rollback restores it."""
        kept = self.items, self.watermarks, self.origins, self.keys, self.constraints
        self._kept[version] = tuple(dict[str, Any](each) for each in kept)

    def fence_off(self, fence: int) -> None:
        """From here on no job with a base version below it commits."""
        if fence > self.marks["fence"]:
            self._set(self.marks, "fence", fence)

    def apply(self, op: Operation, version: int) -> Problem | None:
        """Apply it, or return why no table may have, and what contradicts it."""
        problem = self._scope_is_touched(op) or self._fits(op, version)
        if problem is not None:
            return problem
        if op.restores is not None:
            if op.restores not in self._kept:
                return f"restores version {op.restores}, which was not there", ()
            places, keys = self._places(), dict(self.keys)
            self._restore(op.restores)
            self._note_set_back(places, keys, (version, op))
            for source in self.watermarks:
                self._set(self.movers, source, op)
        gone = self._emptied(op.empties) + list(op.removes)
        # A compaction changes no row, so operations that read the partition need not know of it.
        # [CF15]
        changed = {self.items[item] for item in gone} | {*op.adds.values(), *op.empties}
        for partition in changed if not op.compacts else ():
            self._set(self.touched, partition, (version, op))
        for item in gone:
            self._unset(self.items, item)
        for item, partition in op.adds.items():
            if item in self.items:
                return f"adds {item!r}, which is there already", ()
            self._set(self.items, item, partition)
        for source, (start, end) in op.advances.items():
            if source not in self.origins:
                self._set(self.origins, source, start)
            self._set(self.watermarks, source, end)
            self._set(self.movers, source, op)
        for source, to in op.rewinds.items():
            places, keys = self._places(), dict(self.keys)
            self._rewind(source, to, version)
            self._note_set_back(places, keys, (version, op))
            self._set(self.movers, source, op)
        if op.key is not None:
            self._set(self.keys, op.key, (version, op))
            self._unset(self.newer, op.key)
        self._count_keys()
        for key in op.forgets:
            self._unset(self.keys, key)
        self.fence_off(op.fence or 0)
        self._set(self.marks, "newest", version)
        return self._hold(op)

    def _hold(self, op: Operation) -> Problem | None:
        """Add and drop its constraints; no version holds an item that one refuses. [CK1] [CK3]"""
        for name, refused in op.constrains.items():
            if refused and name in self.constraints:
                over = self.constraints[name][1]
                return f"adds the constraint {name!r} over another one", (over,)
            if refused:
                self._set(self.constraints, name, (refused, op))
            else:
                self._unset(self.constraints, name)
        for name, (refused, added) in self.constraints.items():
            for item in self._emptied([refused]):
                return f"leaves {item!r} there, which the constraint {name!r} refuses", (added,)
        return None

    def _fits(self, op: Operation, version: int) -> Problem | None:
        if op.birth is not None and op.birth < self.marks["fence"]:
            return (f"began at version {op.birth}, below the fence {self.marks['fence']}", ())
        # not the version before: no commit has a void one
        newest = self.marks["newest"]
        if op.birth is not None and op.restores is not None and op.birth < newest:
            return (f"goes back over version {newest}, and had seen version {op.birth}", ())
        if op.key is not None and op.key in self.keys:
            recorded, by = self.keys[op.key]
            if not self.may_be_forgotten(op.key, recorded, version):
                return f"commits key {op.key!r} again", (by,)
        for name in (*op.advances, *([op.key] if op.key is not None else [])):
            undone, by = self.set_back.get(name, (0, op))
            if op.birth is not None and undone > op.birth:
                since = f"version {undone} has set {name!r} back since"
                return f"began at version {op.birth}, and {since}", (by,)
        for source, (start, _) in op.advances.items():
            if source in self.origins and (at := self.watermarks.get(source)) != start:
                return f"advances {source!r} from {start!r} while it is at {at!r}", self.mover(
                    source
                )
        missing = [item for item in op.removes if item not in self.items]
        return (f"takes out {missing[0]!r}, which is not there", ()) if missing else None

    def mover(self, source: str) -> tuple[Operation, ...]:
        """The last operation that moved its watermark, if one did."""
        return (self.movers[source],) if source in self.movers else ()

    def may_be_forgotten(self, key: str, recorded: int, version: int) -> bool:
        """Whether some gc may have forgotten a key by a version."""
        newer, spans = self.newer.get(key, 0), self._forgetting
        return any(first <= version and last > recorded and newer >= n for first, last, n in spans)

    def _count_keys(self) -> None:
        """gc counts the existing keys, not the invalidated ones. [KY4]"""
        if not self._counts:
            return
        versions = sorted(at for at, _ in self.keys.values())
        for key, (at, _) in self.keys.items():
            newer = len(versions) - bisect_right(versions, at)
            if newer > self.newer.get(key, 0):
                self._set(self.newer, key, newer)

    def _scope_is_touched(self, op: Operation) -> Problem | None:
        if op.birth is None or not op.scope:
            return None
        everything = EVERYTHING in op.scope
        for partition, (version, who) in self.touched.items():
            is_in = everything or partition == EVERYTHING or partition in op.scope
            if is_in and version > op.birth:
                since = f"version {version} has changed it since: an update is lost"
                return f"replaces what it saw at version {op.birth}, and {since}", (who,)
        return None

    def _emptied(self, partitions: Collection[str]) -> list[str]:
        if not partitions or EVERYTHING in partitions:
            return [*self.items] if partitions else []
        return [item for item, partition in self.items.items() if partition in partitions]

    def _restore(self, version: int) -> None:
        items, watermarks, origins, keys, constraints = self._kept[version]
        self._replace(self.items, items)
        for source, origin in {**self._begun_since(version), **origins}.items():
            self._set(self.origins, source, origin)
            position = watermarks.get(source) if source in origins else origin
            if position is None:  # known, but no position is left
                self._unset(self.watermarks, source)
            else:
                self._set(self.watermarks, source, position)
        self._replace(self.keys, keys)
        self._replace(self.constraints, constraints)

    def _begun_since(self, version: int) -> dict[str, Position]:
        """Where each source began that is known, or was forgotten after the version: integers at
        the lowest, texts at the oldest. [CF13]"""
        found: dict[str, list[Position]] = defaultdict(list)
        for source, dropped in self.forgotten.items():
            found[source] += [origin for at, origin in dropped if at > version]
        for source, origin in self.origins.items():
            found[source].append(origin)

        def early(origin: Position) -> tuple[bool, int]:
            return origin is not None, origin if isinstance(origin, int) else 0

        return {source: min(origins, key=early) for source, origins in found.items() if origins}

    def _places(self) -> dict[str, Position]:
        return {source: self.watermarks.get(source) for source in self.origins}

    def _note_set_back(self, places: dict[str, Position], keys: dict[str, At], by: At) -> None:
        """Changed or lost positions and keys belong to operations that begin later. [WM6] [KY7]"""
        moved = {source for source, _ in places.items() ^ self._places().items()}
        lost = [(key, at) for key, (at, _) in keys.items() if key not in self.keys]
        # Keys that gc has forgotten cannot be invalidated.
        dropped = [key for key, at in lost if not self.may_be_forgotten(key, at, by[0])]
        for name in (*moved, *dropped):
            self._set(self.set_back, name, by)

    def _rewind(self, source: str, to: Position, version: int) -> None:
        for key, (_, record) in list(self.keys.items()):
            end = record.advances.get(source, (None, to))[1]
            if not (end == to or (isinstance(end, int) and isinstance(to, int) and end <= to)):
                self._unset(self.keys, key)
        if to is None:
            dropped = (*self.forgotten.get(source, ()), (version, self.origins.get(source)))
            self._set(self.forgotten, source, dropped)
            self._unset(self.watermarks, source)
            self._unset(self.origins, source)
            return
        self._set(self.watermarks, source, to)
        origin = self.origins.get(source)
        if isinstance(origin, int) and isinstance(to, int) and to < origin:
            self._set(self.origins, source, to)

    def _replace(self, where: dict[K, V], new: dict[K, V]) -> None:
        for name in [name for name in where if name not in new]:
            self._unset(where, name)
        for name, value in new.items():
            self._set(where, name, value)

    def _set(self, where: dict[K, V], name: K, value: V) -> None:
        self._remember(where, name)
        where[name] = value

    def _unset(self, where: dict[K, V], name: K) -> None:
        self._remember(where, name)
        where.pop(name, None)

    def _remember(self, where: dict[K, V], name: K) -> None:
        if name in where:
            before = where[name]
            self._undo.append(lambda: where.__setitem__(name, before))
        else:
            self._undo.append(lambda: where.pop(name, None))


# steps of a search; a history that needs more is undecided, and does not count as correct
_STEPS = 100_000


class UndecidedError(Exception):
    """No serial order was found, and none was ruled out, within a bounded number of steps.

    Remedy: too many operations of the history have an unknown outcome: record shorter histories, or
    give each operation time to end.
    """


class Search:
    """Searches for an order: version by version, with certain commits and possible ones."""

    def __init__(self, operations: Sequence[Operation], told: Sequence[Operation]) -> None:
        self.commits = [op for op in operations if not op.is_read and op.outcome != "refused"]
        certain = [op for op in self.commits if op.outcome == "committed"]
        reads = [op for op in operations if op.outcome == "read"]
        self.told = _by_version(certain)
        self.already = _by_version([op for op in told if op.outcome == "already"])
        self.begun = _by_version([op for op in reads if op.origins is not None])
        self.looked_up = _by_version([op for op in reads if op.keys])
        self.reads: dict[int, Operation] = {}
        self.fences: dict[int, int] = {}
        for version, ops in _by_version(reads).items():
            self.reads[version] = next((op for op in ops if op.items is not None), ops[-1])
            self.fences[version] = max(op.fence or 0 for op in ops)
        self._ends = sorted((op.end, op.version or 0) for op in certain if op.end is not None)
        self._highest = list(accumulate((version for _, version in self._ends), max))
        self._begins = sorted((op.begin, op.version or 0) for op in certain)
        last_first = (version for _, version in reversed(self._begins))
        self._lowest = list(accumulate(last_first, min))[::-1]
        self.last = max([*self.told, *self.reads, *self.already], default=0)
        self._take_open(operations)
        made = [(op.version or 0, *each) for op in certain for each in op.adds.items()]
        self.homes = {item: (version, part) for version, item, part in made}
        self.steps = 0

    def _take_open(self, operations: Sequence[Operation]) -> None:
        """What is not decided, and what bounds where it may have been committed."""
        commits = self.commits
        self.restored = {op.restores for op in commits if op.restores is not None}
        # The last to begin first: requests may land late, but mostly they do not.
        self.open = [op for op in commits if op.outcome != "committed" and not op.is_idle]
        self.open.sort(key=lambda op: -op.begin)
        reads = self.reads.items()
        self.shown = sorted(version for version, read in reads if read.items is not None)
        self.first_shown: dict[str, int] = {}
        for version in self.shown:
            for item in self.reads[version].items or ():
                self.first_shown.setdefault(item, version)
        self.windows = {op.id: self._window(op) for op in self.open}
        forgetting = [op for op in operations if EVERYTHING in op.forgets]
        self.forgetting = [(*self._room(op), op.keeps) for op in forgetting]

    def run(self) -> list[tuple[int, Operation]] | Contradiction:
        """The commits and their versions in an order that explains all, or what ruled it out."""
        state, order, placed = State(self.forgetting), list[tuple[int, Operation]](), set[str]()
        # Each frame: the version, the way back, how long the order was, whom it placed, and the
        # choices that are left.
        frames = [(1, state.mark(), 0, iter(self._choices(1, placed)), list[str]())]
        furthest: tuple[int, Contradiction | None] = (0, None)
        while frames:
            version, mark, length, choices, mine = frames[-1]
            if version > self.last:
                return order
            state.back(mark)
            del order[length:]
            placed.difference_update(mine)
            mine.clear()
            choice = next(choices, None)
            if choice is None:
                frames.pop()
                continue
            self.steps += 1
            if self.steps > _STEPS:
                left = f"{len(self.open)} operations of unknown outcome"
                raise UndecidedError(f"no order found in {_STEPS} steps, with {left}")
            wrong = self._step(state, version, choice)
            if wrong is not None:
                if version > furthest[0] or furthest[1] is None:
                    furthest = (version, wrong)
                continue
            order += [(version, op) for op in choice]
            mine += [op.id for op in choice]
            placed.update(mine)
            choices = iter(self._choices(version + 1, placed))
            frames.append((version + 1, state.mark(), len(order), choices, []))
        assert furthest[1] is not None
        return furthest[1]

    def _choices(self, version: int, placed: set[str]) -> Iterator[list[Operation]]:
        """The commits that this version may carry, the likeliest first: the certain ones; then with
        those of unknown outcome that fit."""
        known, due, others = self.told.get(version, []), list[Operation](), list[Operation]()
        is_plain = all(op.is_plain for op in known)
        orders = [known] if len(known) < 2 or is_plain else [known, known[::-1]]
        for op in self.open if is_plain else ():
            first, last, is_shown = self.windows[op.id]
            if op.id in placed or not first <= version <= last:
                continue
            # Operations that can only have been committed by now must be included.
            if is_shown and last == version:
                due.append(op)
            elif not self._is_belied(op, version):
                others.append(op)
        plain = [op for op in others if op.is_plain]
        for base in orders:
            yield [*base, *due]
            for op in others:
                if op.is_plain or not (base or due):
                    yield [*base, *due, op]
            for count in range(2, len(plain) + 1):
                yield [*base, *due, *plain[:count]]
        if not due and len(known) == 1 and known[0].is_unclaimed:
            yield from ([one] for one in others if not (one.is_plain or one.job))

    def _is_belied(self, op: Operation, version: int) -> bool:
        """Whether the next read shows something that it would have removed here."""
        if not op.empties or self.restored:
            return False
        following = bisect_left(self.shown, version)
        if following == len(self.shown):
            return False
        shown = self.reads[self.shown[following]].items or ()
        there = [(item, *self.homes[item]) for item in shown if item in self.homes]
        return any(at < version and takes_out(op, item, part) for item, at, part in there)

    def _step(self, state: State, version: int, choice: list[Operation]) -> Contradiction | None:
        if len(choice) > 1 and not all(op.is_plain for op in choice):
            return contradiction(f"two winners of version {version}", *choice)
        for op in _in_turn(choice):
            problem = state.apply(op, version)
            if problem is not None:
                why, others = problem
                return contradiction(f"{op.id}, committed at version {version}, {why}", op, *others)
        state.fence_off(self.fences.get(version, 0))
        if version in self.restored:
            state.keep(version)
        read = self.reads.get(version)
        wrong = None if read is None else self._compare(state, read)
        wrong = wrong or self._origins(state, version) or self._keys(state, version)
        return wrong or self._already(state, version)

    def _compare(self, state: State, read: Operation) -> Contradiction | None:
        shows = f"a read of version {read.version} shows"
        if read.items is not None and set(read.items) != set(state.items):
            missing = sorted(set(state.items) - set(read.items))
            extra = sorted(set(read.items) - set(state.items))
            name = (missing or extra)[0]
            why = f"{shows} {name!r}, which was not committed by then, or had been taken out"
            if missing:
                lacks = f"a read of version {read.version} lacks"
                why = f"{lacks} {name!r}, which was committed and never taken out"
            return contradiction(why, *self._writers(name), *self._touched(name, state), read)
        made_to_hold = {name: refused for name, (refused, _) in state.constraints.items()}
        if read.constraints is not None and read.constraints != made_to_hold:
            made = f"the commits make them {made_to_hold}"
            adders = [by for _, by in state.constraints.values()]
            problem = f"{shows} the constraints {read.constraints}; {made}"
            return contradiction(problem, *adders, read)
        if read.watermarks is not None and read.watermarks != state.watermarks:
            marks, is_at = read.watermarks, state.watermarks
            source = min(source for source, _ in marks.items() ^ is_at.items())
            made = f"the commits make it {is_at.get(source)!r}"
            problem = f"{shows} {source!r} at {marks.get(source)!r}; {made}"
            return contradiction(problem, *state.mover(source), read)
        return None

    def _origins(self, state: State, version: int) -> Contradiction | None:
        """The beginnings of sources, as the operations that declared them reported. [WM7]"""
        for op in self.begun.get(version, ()):
            shown = op.origins or {}
            if wrong := {source for source, _ in shown.items() ^ state.origins.items()}:
                source = min(wrong)
                told, made = _begins(shown, source), _begins(state.origins, source)
                learned = f"{op.id} learned that {source!r} {told} at version {version}"
                problem = f"{learned}; by the commits it {made}"
                return contradiction(problem, *state.mover(source), op)
        return None

    def _keys(self, state: State, version: int) -> Contradiction | None:
        """What was recorded of keys that a read saw; gc may forget some. [KY3] [KY4] [WM5]"""
        for op in self.looked_up.get(version, ()):
            for key, shown in op.keys.items():
                made, by = state.keys.get(key, (None, op))
                is_gone = made is not None and shown is None
                if is_gone and state.may_be_forgotten(key, made or 0, version):
                    continue
                if shown != made:
                    shows = f"a read of version {version} shows key {key!r} recorded at {shown}"
                    return contradiction(f"{shows}; the commits make it {made}", by, op)
        return None

    def _already(self, state: State, version: int) -> Contradiction | None:
        for op in self.already.get(version, ()):
            if op.key is not None and state.keys.get(op.key, (0, op))[0] != version:
                learned = f"{op.id} learned that key {op.key!r} was committed at version {version}"
                return contradiction(f"{learned}; nobody had", op)
        return None

    def _writers(self, item: str) -> list[Operation]:
        return [op for op in self.commits if item in op.adds]

    def _touched(self, item: str, state: State) -> list[Operation]:
        """The other operation that last changed the partition of that item."""
        writers = self._writers(item)
        partitions = {op.adds[item] for op in writers} & state.touched.keys()
        found = [state.touched[partition][1] for partition in partitions]
        return [op for op in found if op not in writers]

    def _window(self, op: Operation) -> tuple[int, int, bool]:
        """The versions between which it may be committed, and whether some read shows it."""
        first, last = self._room(op)
        # by itself, if the response was lost; or by another job with its key, from before it began;
        # and after a rollback it may hear of that one although it was committed itself
        if op.outcome == "already" and not self.restored:
            first, last = max(first, op.version or 0), min(last, op.version or 0)
        shows = [self.first_shown[item] for item in op.adds if item in self.first_shown]
        if shows:
            last = min(last, *shows)
            if not self.restored:
                before = bisect_left(self.shown, min(shows))
                first = max(first, self.shown[before - 1] + 1 if before else 1)
        return first, last, bool(shows)

    def _room(self, op: Operation) -> tuple[int, int]:
        """The versions between which it may have had an effect, by reports around it."""
        before = bisect_left(self._ends, (op.begin, 0))
        first = self._highest[before - 1] + 1 if before else 1
        after = bisect_left(self._begins, (op.until, sys.maxsize))
        last = min(self.last, self._lowest[after] if after < len(self._lowest) else self.last)
        return max(first, 1 if op.birth is None else op.birth + 1), last


def _by_version(operations: Iterable[Operation]) -> dict[int, list[Operation]]:
    found: dict[int, list[Operation]] = defaultdict(list)
    for op in operations:
        found[op.version or 0].append(op)
    return found


def _begins(origins: Mapping[str, Position], source: str) -> str:
    return f"begins at {origins[source]!r}" if source in origins else "is unknown"


def _in_turn(choice: list[Operation]) -> Iterator[Operation]:
    """In one version, a job may advance a source from where another one left it. [CM24]"""
    waiting = list(choice)
    while waiting:
        moves = [(source, *each) for op in waiting for source, each in op.advances.items()]
        ends = {(source, end) for source, start, end in moves if start != end}
        begins = ((op, {(source, at) for source, (at, _) in op.advances.items()}) for op in waiting)
        chosen = next((op for op, starts in begins if not starts & ends), waiting[0])
        waiting.remove(chosen)
        yield chosen
