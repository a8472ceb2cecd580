"""Looks for the serial order of a history: version by version, with what is known there and what may have been there. [IV1] [IV2]

Not here: what a commit does to a table (testing.replay), what two operations say between themselves (testing.checker).
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from .operation import EVERYTHING, Contradiction, Operation, contradiction
from .replay import State
from .united import United

_STEPS = 100_000  # of looking for an order; a history that needs more says so and is not called right


class UndecidedError(Exception):
    """No order was found and none was ruled out within a bounded number of steps: too many operations of unknown outcome."""


class Search:
    """Looks for an order: version by version, with what is known there, and what may have been there."""

    def __init__(self, united: United) -> None:
        operations = united.commits
        commits = [each for each in operations if not each.is_read and each.outcome != "refused"]
        self.commits = commits
        self.told: dict[int, list[Operation]] = defaultdict(list)
        for each in commits:
            if each.outcome == "committed":
                self.told[each.version or 0].append(each)
        self.already: dict[int, list[Operation]] = defaultdict(list)
        for each in united.told:
            if each.outcome == "already":
                self.already[each.version or 0].append(each)
        self.reads: dict[int, Operation] = {}
        self.fences: dict[int, int] = {}
        for each in operations:
            if each.outcome == "read":
                version = each.version or 0
                known = self.reads.get(version)
                self.reads[version] = each if known is None or known.items is None else known
                self.fences[version] = max(self.fences.get(version, 0), each.fence or 0)
        told = [each for each in commits if each.outcome == "committed"]
        self._ends = sorted((each.end, each.version or 0) for each in told if each.end is not None)
        self._highest = list(accumulate((version for _, version in self._ends), max))
        self._begins = sorted((each.begin, each.version or 0) for each in told)
        self._lowest = list(accumulate((version for _, version in reversed(self._begins)), min))[::-1]
        self.last = max([*self.told, *self.reads, *self.already], default=0)
        self.restored = {each.restores for each in commits if each.restores is not None}
        # The last to begin first: requests land late, but mostly they do not.
        self.open = sorted((each for each in commits if each.outcome != "committed" and not each.is_idle), key=lambda each: -each.begin)
        self.shown = sorted(version for version, read in self.reads.items() if read.items is not None)
        self.first_shown: dict[str, int] = {}
        for version in self.shown:
            for item in self.reads[version].items or ():
                self.first_shown.setdefault(item, version)
        self.windows = {each.id: self._window(each) for each in self.open}
        self.homes = {item: (v, part) for v, told in self.told.items() for one in told for item, part in one.adds.items()}
        self.forgetting = [self._room(each) for each in operations if EVERYTHING in each.forgets]
        self.steps = 0

    def run(self) -> list[tuple[int, Operation]] | Contradiction:
        """The commits with their versions in an order that explains everything, or what stood in the way of the best one."""
        state, order, placed = State(self.forgetting), list[tuple[int, Operation]](), set[str]()
        # Each frame: the version, the way back, how long the order was, whom it placed, and the choices that are left.
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
                raise UndecidedError(f"no order found in {_STEPS} steps, with {len(self.open)} operations of unknown outcome")
            wrong = self._step(state, version, choice)
            if wrong is not None:
                if version > furthest[0] or furthest[1] is None:
                    furthest = (version, wrong)
                continue
            order += [(version, each) for each in choice]
            mine += [each.id for each in choice]
            placed.update(mine)
            frames.append((version + 1, state.mark(), len(order), iter(self._choices(version + 1, placed)), []))
        assert furthest[1] is not None
        return furthest[1]

    def told_alone(self) -> Iterator[Contradiction]:
        """What those commits that were told of say by themselves against a read, whatever the unknown ones did."""
        if self.restored:
            return  # what a rollback brings back may be anything that was there: the search decides
        live: dict[str, str] = {}
        for version in sorted(self.told.keys() | self.reads.keys()):
            for each in self.told.get(version, []):
                gone = [i for i, part in live.items() if EVERYTHING in each.empties or part in each.empties] if each.empties else []
                for item in (*gone, *each.removes):
                    live.pop(item, None)
                live |= each.adds
            read = self.reads.get(version)
            if read is None or read.items is None:
                continue
            for item in live.keys() - set(read.items):
                version_, partition = self.homes[item]
                if not any(self._may_remove(each, item, partition, version_, version) for each in self.open):
                    problem = f"a read of version {version} lacks {item!r}, which was committed at version {version_} and never taken out"
                    yield contradiction(problem, *self._writers(item), read)
            for item in set(read.items) - live.keys():
                if item in self.homes:
                    problem = f"a read of version {version} shows {item!r}, which was not committed by then, or had been taken out"
                    yield contradiction(problem, *self._writers(item), *self._removers(item, version), read)

    def _may_remove(self, each: Operation, item: str, partition: str, after: int, until: int) -> bool:
        first, last, _ = self.windows[each.id]
        does = item in each.removes or EVERYTHING in each.empties or partition in each.empties
        return does and max(first, after + 1) <= min(last, until)

    def _removers(self, item: str, until: int) -> list[Operation]:
        version, partition = self.homes[item]
        return [
            each
            for v in range(until, version, -1)
            for each in self.told.get(v, [])
            if item in each.removes or EVERYTHING in each.empties or partition in each.empties
        ][:1]

    def _choices(self, version: int, placed: set[str]) -> Iterator[list[Operation]]:
        """What this version may have carried, the likeliest first: what was told; then with those of unknown outcome that fit."""
        known = self.told.get(version, [])
        orders = [known] if len(known) < 2 or all(each.is_plain for each in known) else [known, known[::-1]]
        may = [each for each in self.open if each.id not in placed and self.windows[each.id][0] <= version <= self.windows[each.id][1]]
        if known and not all(each.is_plain for each in known):
            may = []
        # Those whose last moment this is must be here.
        due = [each for each in may if self._is_due(each, version)]
        others = [each for each in may if not self._is_due(each, version) and not self._is_belied(each, version)]
        plain = [each for each in others if each.is_plain]
        for base in orders:
            yield [*base, *due]
            for each in others:
                if each.is_plain or not (base or due):
                    yield [*base, *due, each]
            for count in range(2, len(plain) + 1):
                yield [*base, *due, *plain[:count]]

    def _is_due(self, each: Operation, version: int) -> bool:
        _, last, is_shown = self.windows[each.id]
        return is_shown and last == version

    def _is_belied(self, each: Operation, version: int) -> bool:
        """Whether the next read still shows something that it would have emptied, if it had been committed just there."""
        if not each.empties or self.restored:
            return False
        following = bisect_left(self.shown, version)
        if following == len(self.shown):
            return False
        return any(
            item in self.homes and self.homes[item][0] < version and (EVERYTHING in each.empties or self.homes[item][1] in each.empties)
            for item in self.reads[self.shown[following]].items or ()
        )

    def _step(self, state: State, version: int, choice: list[Operation]) -> Contradiction | None:
        if len(choice) > 1 and not all(each.is_plain for each in choice):
            return contradiction(f"two winners of version {version}", *choice)
        for each in _in_turn(choice):
            problem = state.apply(each, version)
            if problem is not None:
                return contradiction(f"{each.id}, committed at version {version}, {problem[0]}", each, *problem[1])
        state.fence_off(self.fences.get(version, 0))
        if version in self.restored:
            state.keep(version)
        read = self.reads.get(version)
        wrong = None if read is None else self._compare(state, read)
        return wrong or self._already(state, version)

    def _compare(self, state: State, read: Operation) -> Contradiction | None:
        if read.items is not None and set(read.items) != set(state.items):
            missing = sorted(set(state.items) - set(read.items))
            extra = sorted(set(read.items) - set(state.items))
            name = (missing or extra)[0]
            shown = "lacks" if missing else "shows"
            why = ", which was committed and never taken out" if missing else ", which was not committed by then, or had been taken out"
            involved = [*self._writers(name), *self._touched(name, state)]
            return contradiction(f"a read of version {read.version} {shown} {name!r}{why}", *involved, read)
        if read.watermarks is not None and read.watermarks != state.watermarks:
            sources = read.watermarks.keys() | state.watermarks.keys()
            source = min(source for source in sources if read.watermarks.get(source) != state.watermarks.get(source))
            shows, made = read.watermarks.get(source), state.watermarks.get(source)
            mover = [state.movers[source]] if source in state.movers else []
            return contradiction(
                f"a read of version {read.version} shows {source!r} at {shows!r}; the commits make it {made!r}", *mover, read
            )
        return None

    def _already(self, state: State, version: int) -> Contradiction | None:
        for each in self.already.get(version, ()):
            if each.key is not None and state.keys.get(each.key, (0, each))[0] != version:
                return contradiction(f"{each.id} was told that key {each.key!r} was committed at version {version}; nobody had", each)
        return None

    def _writers(self, item: str) -> list[Operation]:
        return [each for each in self.commits if item in each.adds]

    def _touched(self, item: str, state: State) -> list[Operation]:
        """Who else changed the partition of that item last."""
        writers = self._writers(item)
        partitions = {each.adds[item] for each in writers} & state.touched.keys()
        return [who for who in (state.touched[partition][1] for partition in partitions) if who not in writers]

    def _window(self, each: Operation) -> tuple[int, int, bool]:
        """From which version to which it may have been committed, and whether it was: some read shows it."""
        first, last = self._room(each)
        if each.outcome == "already":  # by itself, when the answer was lost; or by another job with its key, from before it began
            first, last = max(first, each.version or 0), min(last, each.version or 0)
        shows = [self.first_shown[item] for item in each.adds if item in self.first_shown]
        if shows:
            last = min(last, *shows)
            if not self.restored:
                before = bisect_left(self.shown, min(shows))
                first = max(first, self.shown[before - 1] + 1 if before else 1)
        return first, last, bool(shows)

    def _room(self, each: Operation) -> tuple[int, int]:
        """From which version to which it may have had an effect, by who was told of which before it began and after it had ended."""
        before = bisect_left(self._ends, (each.begin, 0))
        first = self._highest[before - 1] + 1 if before else 1
        after = bisect_left(self._begins, (each.until, sys.maxsize))
        last = min(self.last, self._lowest[after] if after < len(self._lowest) else self.last)
        return max(first, 1 if each.birth is None else each.birth + 1), last


def _in_turn(choice: list[Operation]) -> Iterator[Operation]:
    """In one version one may advance a source from where another has left it, whichever began first. [CM24]"""
    waiting = list(choice)
    while waiting:
        ends = {(source, end) for each in waiting for source, (start, end) in each.advances.items() if start != end}
        ready = (each for each in waiting if not any((source, start) in ends for source, (start, _) in each.advances.items()))
        chosen = next(ready, waiting[0])
        waiting.remove(chosen)
        yield chosen
