"""A small model of a table as a serial order of commits makes it, without objects, retries or gc.
[IV2] [IV6] [IV10]

Every step can be undone, so that an order can be searched for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from .operation import EVERYTHING, Operation, Position

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
        self.by_partition: dict[str, set[str]] = {}
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
        self._undo: list[Callable[[], None]] = []
        self._kept: dict[int, tuple[dict[str, Any], ...]] = {}

    def mark(self) -> int:
        """A point to which `back` returns."""
        return len(self._undo)

    def back(self, mark: int) -> None:
        """Return to the mark."""
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
            self._take(item)
        for item, partition in operation.adds.items():
            if item in self.items:
                return f"adds {item!r}, which is there already", ()
            self._put(item, partition)
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
            for item in self.by_partition.get(refused, ()):
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
            return (
                f"goes back over version {newest}, and had seen version {operation.birth}",
                (),
            )
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

    def _emptied(self, partitions: Iterable[str]) -> list[str]:
        if EVERYTHING in partitions:
            return list(self.items)
        return [item for partition in partitions for item in self.by_partition.get(partition, ())]

    def _restore(self, version: int) -> None:
        items, watermarks, origins, keys, constraints = self._kept[version]
        for item in [item for item in self.items if item not in items]:
            self._take(item)
        for item, partition in items.items():
            if item not in self.items:
                self._put(item, partition)
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
        return {source: min(origins, key=_early) for source, origins in found.items() if origins}

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

    def _put(self, item: str, partition: str) -> None:
        self.items[item] = partition
        self.by_partition.setdefault(partition, set()).add(item)
        self._undo.append(lambda: self._out(item, partition))

    def _take(self, item: str) -> None:
        partition = self.items[item]
        self._out(item, partition)
        self._undo.append(lambda: self._in(item, partition))

    def _out(self, item: str, partition: str) -> None:
        del self.items[item]
        self.by_partition[partition].discard(item)

    def _in(self, item: str, partition: str) -> None:
        self.items[item] = partition
        self.by_partition[partition].add(item)

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
            self._undo.append(lambda: _drop(where, name))


def _early(origin: Position) -> tuple[bool, int]:
    return origin is not None, origin if isinstance(origin, int) else 0


def _drop(where: dict[K, V], name: K) -> None:
    where.pop(name, None)
