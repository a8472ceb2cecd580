from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from .operation import (
    EVERYTHING,
    Contradiction,
    Operation,
    Position,
    United,
    contradiction,
    takes_out,
)

K = TypeVar("K")
V = TypeVar("V")


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
        # source, or key -> the version at which it was set back, and the operation
        self.set_back: dict[str, tuple[int, Operation]] = {}
        self.keys: dict[str, tuple[int, Operation]] = {}  # key -> version, operation
        # partition, or everything -> the last operation that touched it, and the version
        self.touched: dict[str, tuple[int, Operation]] = {}
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

    def apply(self, operation: Operation, version: int) -> tuple[str, tuple[Operation, ...]] | None:
        """Apply it, or return why no table may have, and what contradicts it."""
        problem = self._scope_is_touched(operation) or self._fits(operation, version)
        if problem is not None:
            return problem
        if operation.restores is not None:
            if operation.restores not in self._kept:
                return f"restores version {operation.restores}, which was not there", ()
            places, keys = self._places(), dict(self.keys)
            self._restore(operation.restores)
            self._note_set_back(places, keys, (version, operation))
            for source in self.watermarks:
                self._set(self.movers, source, operation)
        gone = self._emptied(operation.empties) + list(operation.removes)
        # A compaction changes no row, so operations that read the partition need not know of it.
        # [CF15]
        changed = (
            set()
            if operation.compacts
            else {self.items[item] for item in gone}
            | set(operation.adds.values())
            | set(operation.empties)
        )
        for partition in changed:
            self._set(self.touched, partition, (version, operation))
        for item in gone:
            self._unset(self.items, item)
        for item, partition in operation.adds.items():
            if item in self.items:
                return f"adds {item!r}, which is there already", ()
            self._set(self.items, item, partition)
        for source, (start, end) in operation.advances.items():
            if source not in self.origins:
                self._set(self.origins, source, start)
            self._set(self.watermarks, source, end)
            self._set(self.movers, source, operation)
        for source, to in operation.rewinds.items():
            places, keys = self._places(), dict(self.keys)
            self._rewind(source, to, version)
            self._note_set_back(places, keys, (version, operation))
            self._set(self.movers, source, operation)
        if operation.key is not None:
            self._set(self.keys, operation.key, (version, operation))
            self._unset(self.newer, operation.key)
        self._count_keys()
        for key in operation.forgets:
            self._unset(self.keys, key)
        self.fence_off(operation.fence or 0)
        self._set(self.marks, "newest", version)
        return self._hold(operation)

    def _hold(self, operation: Operation) -> tuple[str, tuple[Operation, ...]] | None:
        """Add and drop its constraints; no version holds an item that one refuses. [CK1] [CK3]"""
        for name, refused in operation.constrains.items():
            if refused and name in self.constraints:
                return f"adds the constraint {name!r} over another one", (
                    self.constraints[name][1],
                )
            if refused:
                self._set(self.constraints, name, (refused, operation))
            else:
                self._unset(self.constraints, name)
        for name, (refused, added) in self.constraints.items():
            for item in self._emptied([refused]):
                return f"leaves {item!r} there, which the constraint {name!r} refuses", (added,)
        return None

    def _fits(self, operation: Operation, version: int) -> tuple[str, tuple[Operation, ...]] | None:
        if operation.birth is not None and operation.birth < self.marks["fence"]:
            return (
                f"began at version {operation.birth}, below the fence {self.marks['fence']}",
                (),
            )
        # not the version before: no commit has a void one
        newest = self.marks["newest"]
        if (
            operation.birth is not None
            and operation.restores is not None
            and operation.birth < newest
        ):
            return (f"goes back over version {newest}, and had seen version {operation.birth}", ())
        if operation.key is not None and operation.key in self.keys:
            recorded, by = self.keys[operation.key]
            if not self.may_be_forgotten(operation.key, recorded, version):
                return f"commits key {operation.key!r} again", (by,)
        for name in (*operation.advances, *([operation.key] if operation.key is not None else [])):
            undone, by = self.set_back.get(name, (0, operation))
            if operation.birth is not None and undone > operation.birth:
                return (
                    f"began at version {operation.birth}, and version {undone} has set "
                    f"{name!r} back since"
                ), (by,)
        for source, (start, _) in operation.advances.items():
            if source in self.origins and self.watermarks.get(source) != start:
                movers = [self.movers[source]] if source in self.movers else []
                return (
                    f"advances {source!r} from {start!r} while it is at "
                    f"{self.watermarks.get(source)!r}"
                ), (*movers,)
        missing = [item for item in operation.removes if item not in self.items]
        return (f"takes out {missing[0]!r}, which is not there", ()) if missing else None

    def may_be_forgotten(self, key: str, recorded: int, version: int) -> bool:
        """Whether some gc may have forgotten a key by a version."""
        newer = self.newer.get(key, 0)
        return any(
            first <= version and last > recorded and newer >= keeps
            for first, last, keeps in self._forgetting
        )

    def _count_keys(self) -> None:
        """gc counts the existing keys, not the invalidated ones. [KY4]"""
        if not self._counts:
            return
        versions = sorted(at for at, _ in self.keys.values())
        for key, (at, _) in self.keys.items():
            newer = len(versions) - bisect_right(versions, at)
            if newer > self.newer.get(key, 0):
                self._set(self.newer, key, newer)

    def _scope_is_touched(self, operation: Operation) -> tuple[str, tuple[Operation, ...]] | None:
        if operation.birth is None or not operation.scope:
            return None
        everything = EVERYTHING in operation.scope
        for partition, (version, who) in self.touched.items():
            if version > operation.birth and (
                everything or partition == EVERYTHING or partition in operation.scope
            ):
                return (
                    f"replaces what it saw at version {operation.birth}, and version {version} "
                    "has changed it since: an update is lost"
                ), (who,)
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
        found = {
            source: [origin for at, origin in dropped if at > version]
            for source, dropped in self.forgotten.items()
        }
        for source, origin in self.origins.items():
            found.setdefault(source, []).append(origin)

        def early(origin: Position) -> tuple[bool, int]:
            return origin is not None, origin if isinstance(origin, int) else 0

        return {source: min(origins, key=early) for source, origins in found.items() if origins}

    def _places(self) -> dict[str, Position]:
        return {source: self.watermarks.get(source) for source in self.origins}

    def _note_set_back(
        self,
        places: dict[str, Position],
        keys: dict[str, tuple[int, Operation]],
        by: tuple[int, Operation],
    ) -> None:
        """Changed or lost positions and keys belong to operations that begin later. [WM6] [KY7]"""
        now = self._places()
        moved = [
            operation
            for operation in places.keys() | now.keys()
            if (operation in places, places.get(operation))
            != (operation in now, now.get(operation))
        ]
        # Keys that gc has forgotten cannot be invalidated.
        dropped = [
            key
            for key, (at, _) in keys.items()
            if key not in self.keys and not self.may_be_forgotten(key, at, by[0])
        ]
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

    def __init__(self, united: United) -> None:
        operations = united.commits
        commits = [
            operation
            for operation in operations
            if not operation.is_read and operation.outcome != "refused"
        ]
        self.commits = commits
        self.told: dict[int, list[Operation]] = defaultdict(list)
        for operation in commits:
            if operation.outcome == "committed":
                self.told[operation.version or 0].append(operation)
        self.already: dict[int, list[Operation]] = defaultdict(list)
        for operation in united.told:
            if operation.outcome == "already":
                self.already[operation.version or 0].append(operation)
        self.reads: dict[int, Operation] = {}
        self.fences: dict[int, int] = {}
        self.begun: dict[int, list[Operation]] = defaultdict(list)
        self.looked_up: dict[int, list[Operation]] = defaultdict(list)
        for operation in operations:
            if operation.outcome == "read":
                version = operation.version or 0
                known = self.reads.get(version)
                self.reads[version] = operation if known is None or known.items is None else known
                self.fences[version] = max(self.fences.get(version, 0), operation.fence or 0)
                if operation.keys:
                    self.looked_up[version].append(operation)
                if operation.origins is not None:
                    self.begun[version].append(operation)
        told = [operation for operation in commits if operation.outcome == "committed"]
        self._ends = sorted(
            (operation.end, operation.version or 0)
            for operation in told
            if operation.end is not None
        )
        self._highest = list(accumulate((version for _, version in self._ends), max))
        self._begins = sorted((operation.begin, operation.version or 0) for operation in told)
        self._lowest = list(accumulate((version for _, version in reversed(self._begins)), min))[
            ::-1
        ]
        self.last = max([*self.told, *self.reads, *self.already], default=0)
        self._take_open(operations)
        self.homes = {
            item: (v, part)
            for v, told in self.told.items()
            for one in told
            for item, part in one.adds.items()
        }
        self.steps = 0

    def _take_open(self, operations: Sequence[Operation]) -> None:
        """What is not decided, and what bounds where it may have been committed."""
        commits = self.commits
        self.restored = {
            operation.restores for operation in commits if operation.restores is not None
        }
        # The last to begin first: requests may land late, but mostly they do not.
        self.open = sorted(
            (
                operation
                for operation in commits
                if operation.outcome != "committed" and not operation.is_idle
            ),
            key=lambda operation: -operation.begin,
        )
        self.shown = sorted(
            version for version, read in self.reads.items() if read.items is not None
        )
        self.first_shown: dict[str, int] = {}
        for version in self.shown:
            for item in self.reads[version].items or ():
                self.first_shown.setdefault(item, version)
        self.windows = {operation.id: self._window(operation) for operation in self.open}
        self.forgetting = [
            (*self._room(operation), operation.keeps)
            for operation in operations
            if EVERYTHING in operation.forgets
        ]

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
                raise UndecidedError(
                    f"no order found in {_STEPS} steps, with {len(self.open)} operations of "
                    "unknown outcome"
                )
            wrong = self._step(state, version, choice)
            if wrong is not None:
                if version > furthest[0] or furthest[1] is None:
                    furthest = (version, wrong)
                continue
            order += [(version, operation) for operation in choice]
            mine += [operation.id for operation in choice]
            placed.update(mine)
            choices = iter(self._choices(version + 1, placed))
            frames.append((version + 1, state.mark(), len(order), choices, []))
        assert furthest[1] is not None
        return furthest[1]

    def _has_room(self, operation: Operation, start: int, until: int) -> bool:
        first, last, _ = self.windows[operation.id]
        return max(first, start) <= min(last, until)

    def _choices(self, version: int, placed: set[str]) -> Iterator[list[Operation]]:
        """The commits that this version may carry, the likeliest first: the certain ones; then with
        those of unknown outcome that fit."""
        known = self.told.get(version, [])
        orders = (
            [known]
            if len(known) < 2 or all(operation.is_plain for operation in known)
            else [known, known[::-1]]
        )
        may = [
            operation
            for operation in self.open
            if operation.id not in placed and self._has_room(operation, version, version)
        ]
        if known and not all(operation.is_plain for operation in known):
            may = []
        # Operations that can only have been committed by now must be included.
        due = [operation for operation in may if self._is_due(operation, version)]
        others = [
            operation
            for operation in may
            if not self._is_due(operation, version) and not self._is_belied(operation, version)
        ]
        plain = [operation for operation in others if operation.is_plain]
        for base in orders:
            yield [*base, *due]
            for operation in others:
                if operation.is_plain or not (base or due):
                    yield [*base, *due, operation]
            for count in range(2, len(plain) + 1):
                yield [*base, *due, *plain[:count]]
        if not due and len(known) == 1 and known[0].is_unclaimed:
            yield from ([one] for one in others if not (one.is_plain or one.job))

    def _is_due(self, operation: Operation, version: int) -> bool:
        _, last, is_shown = self.windows[operation.id]
        return is_shown and last == version

    def _is_belied(self, operation: Operation, version: int) -> bool:
        """Whether the next read shows something that it would have removed here."""
        if not operation.empties or self.restored:
            return False
        following = bisect_left(self.shown, version)
        if following == len(self.shown):
            return False
        return any(
            item in self.homes
            and self.homes[item][0] < version
            and takes_out(operation, item, self.homes[item][1])
            for item in self.reads[self.shown[following]].items or ()
        )

    def _step(self, state: State, version: int, choice: list[Operation]) -> Contradiction | None:
        if len(choice) > 1 and not all(operation.is_plain for operation in choice):
            return contradiction(f"two winners of version {version}", *choice)
        for operation in _in_turn(choice):
            problem = state.apply(operation, version)
            if problem is not None:
                return contradiction(
                    f"{operation.id}, committed at version {version}, {problem[0]}",
                    operation,
                    *problem[1],
                )
        state.fence_off(self.fences.get(version, 0))
        if version in self.restored:
            state.keep(version)
        read = self.reads.get(version)
        wrong = None if read is None else self._compare(state, read)
        return (
            wrong
            or self._origins(state, version)
            or self._keys(state, version)
            or self._already(state, version)
        )

    def _compare(self, state: State, read: Operation) -> Contradiction | None:
        if read.items is not None and set(read.items) != set(state.items):
            missing = sorted(set(state.items) - set(read.items))
            extra = sorted(set(read.items) - set(state.items))
            name = (missing or extra)[0]
            shown = "lacks" if missing else "shows"
            why = (
                ", which was committed and never taken out"
                if missing
                else ", which was not committed by then, or had been taken out"
            )
            involved = [*self._writers(name), *self._touched(name, state)]
            return contradiction(
                f"a read of version {read.version} {shown} {name!r}{why}", *involved, read
            )
        made_to_hold = {name: refused for name, (refused, _) in state.constraints.items()}
        if read.constraints is not None and read.constraints != made_to_hold:
            return contradiction(
                f"a read of version {read.version} shows the constraints {read.constraints}; the "
                f"commits make them {made_to_hold}",
                *(by for _, by in state.constraints.values()),
                read,
            )
        if read.watermarks is not None and read.watermarks != state.watermarks:
            sources = read.watermarks.keys() | state.watermarks.keys()
            source = min(
                source
                for source in sources
                if read.watermarks.get(source) != state.watermarks.get(source)
            )
            shows, made = read.watermarks.get(source), state.watermarks.get(source)
            mover = [state.movers[source]] if source in state.movers else []
            return contradiction(
                (
                    f"a read of version {read.version} shows {source!r} at {shows!r}; the "
                    f"commits make it {made!r}"
                ),
                *mover,
                read,
            )
        return None

    def _origins(self, state: State, version: int) -> Contradiction | None:
        """The beginnings of sources, as the operations that declared them reported. [WM7]"""
        for operation in self.begun.get(version, ()):
            shown = operation.origins or {}
            wrong = sorted(
                source
                for source in shown.keys() | state.origins.keys()
                if _begins(shown, source) != _begins(state.origins, source)
            )
            if wrong:
                source = wrong[0]
                told, made = _begins(shown, source), _begins(state.origins, source)
                mover = [state.movers[source]] if source in state.movers else []
                problem = (
                    f"{operation.id} learned that {source!r} {told} at version {version}; by the "
                    f"commits it {made}"
                )
                return contradiction(problem, *mover, operation)
        return None

    def _keys(self, state: State, version: int) -> Contradiction | None:
        """What was recorded of keys that a read saw; gc may forget some. [KY3] [KY4] [WM5]"""
        for operation in self.looked_up.get(version, ()):
            for key, shown in operation.keys.items():
                made, by = state.keys.get(key, (None, operation))
                if shown != made and (
                    made is None
                    or shown is not None
                    or not state.may_be_forgotten(key, made, version)
                ):
                    return contradiction(
                        f"a read of version {version} shows key {key!r} recorded at {shown}; the "
                        f"commits make it {made}",
                        by,
                        operation,
                    )
        return None

    def _already(self, state: State, version: int) -> Contradiction | None:
        for operation in self.already.get(version, ()):
            if (
                operation.key is not None
                and state.keys.get(operation.key, (0, operation))[0] != version
            ):
                return contradiction(
                    (
                        f"{operation.id} learned that key {operation.key!r} was committed at "
                        f"version {version}; nobody had"
                    ),
                    operation,
                )
        return None

    def _writers(self, item: str) -> list[Operation]:
        return [operation for operation in self.commits if item in operation.adds]

    def _touched(self, item: str, state: State) -> list[Operation]:
        """The other operation that last changed the partition of that item."""
        writers = self._writers(item)
        partitions = {operation.adds[item] for operation in writers} & state.touched.keys()
        return [
            who
            for who in (state.touched[partition][1] for partition in partitions)
            if who not in writers
        ]

    def _window(self, operation: Operation) -> tuple[int, int, bool]:
        """The versions between which it may be committed, and whether some read shows it."""
        first, last = self._room(operation)
        # by itself, if the response was lost; or by another job with its key, from before it began;
        # and after a rollback it may hear of that one although it was committed itself
        if operation.outcome == "already" and not self.restored:
            first, last = max(first, operation.version or 0), min(last, operation.version or 0)
        shows = [self.first_shown[item] for item in operation.adds if item in self.first_shown]
        if shows:
            last = min(last, *shows)
            if not self.restored:
                before = bisect_left(self.shown, min(shows))
                first = max(first, self.shown[before - 1] + 1 if before else 1)
        return first, last, bool(shows)

    def _room(self, operation: Operation) -> tuple[int, int]:
        """The versions between which it may have had an effect, by reports around it."""
        before = bisect_left(self._ends, (operation.begin, 0))
        first = self._highest[before - 1] + 1 if before else 1
        after = bisect_left(self._begins, (operation.until, sys.maxsize))
        last = min(self.last, self._lowest[after] if after < len(self._lowest) else self.last)
        return max(first, 1 if operation.birth is None else operation.birth + 1), last


def _begins(origins: Mapping[str, Position], source: str) -> str:
    return f"begins at {origins[source]!r}" if source in origins else "is unknown"


def _in_turn(choice: list[Operation]) -> Iterator[Operation]:
    """In one version, a job may advance a source from where another one left it. [CM24]"""
    waiting = list(choice)
    while waiting:
        ends = {
            (source, end)
            for operation in waiting
            for source, (start, end) in operation.advances.items()
            if start != end
        }
        ready = (
            operation
            for operation in waiting
            if not any((source, start) in ends for source, (start, _) in operation.advances.items())
        )
        chosen = next(ready, waiting[0])
        waiting.remove(chosen)
        yield chosen
