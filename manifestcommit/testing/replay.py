"""The table as a serial order of commits makes it: a model of a few lines, that knows nothing of objects, retries or gc. [IV2] [IV6] [IV10]

Each step can be taken back, so that an order can be looked for. Not here: which order (testing.checker).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from .operation import EVERYTHING, Operation, Position

K = TypeVar("K")
V = TypeVar("V")


class State:
    """What readers see after the commits so far. forgetting: from which version to which some gc may have forgotten keys."""

    def __init__(self, forgetting: Sequence[tuple[int, int]] = ()) -> None:
        self._forgetting = forgetting
        self.marks: dict[str, int] = {"fence": 0}
        self.items: dict[str, str] = {}
        self.by_partition: dict[str, set[str]] = {}
        self.watermarks: dict[str, int | str] = {}
        self.movers: dict[str, Operation] = {}  # source -> who moved its watermark last
        self.origins: dict[str, Position] = {}
        self.keys: dict[str, tuple[int, Operation]] = {}  # key -> at which version, by whom
        self.touched: dict[str, tuple[int, Operation]] = {}  # partition, or everything -> by whom and when last
        self._undo: list[Callable[[], None]] = []
        self._kept: dict[int, tuple[dict[str, str], dict[str, int | str], dict[str, Position], dict[str, tuple[int, Operation]]]] = {}

    def mark(self) -> int:
        """A place to which `back` returns."""
        return len(self._undo)

    def back(self, mark: int) -> None:
        """As it was at the mark."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def keep(self, version: int) -> None:
        """Remember this version: a later rollback restores it."""
        self._kept[version] = (dict(self.items), dict(self.watermarks), dict(self.origins), dict(self.keys))

    def fence_off(self, fence: int) -> None:
        """From here on nobody commits who was born below it."""
        if fence > self.marks["fence"]:
            self._set(self.marks, "fence", fence)

    def apply(self, each: Operation, version: int) -> tuple[str, tuple[Operation, ...]] | None:
        """Carry it out, or say why no table may have, and who stands against it."""
        problem = self._scope_is_touched(each) or self._fits(each, version)
        if problem is not None:
            return problem
        if each.restores is not None:
            if each.restores not in self._kept:
                return f"restores version {each.restores}, which was not there", ()
            self._restore(each.restores)
            for source in self.watermarks:
                self._set(self.movers, source, each)
        gone = self._emptied(each.empties) + list(each.removes)
        # A compaction changes no row, so that nobody who looked at the partition has to know of it. [CF15]
        changed = set() if each.compacts else {self.items[item] for item in gone} | set(each.adds.values()) | set(each.empties)
        for partition in changed:
            self._set(self.touched, partition, (version, each))
        for item in gone:
            self._take(item)
        for item, partition in each.adds.items():
            if item in self.items:
                return f"adds {item!r}, which is there already", ()
            self._put(item, partition)
        for source, (start, end) in each.advances.items():
            if source not in self.watermarks:
                self._set(self.origins, source, start)
            self._set(self.watermarks, source, end)
            self._set(self.movers, source, each)
        for source, to in each.rewinds.items():
            self._rewind(source, to)
            self._set(self.movers, source, each)
        if each.key is not None:
            self._set(self.keys, each.key, (version, each))
        for key in each.forgets:
            self._unset(self.keys, key)
        self.fence_off(each.fence or 0)
        return None

    def _fits(self, each: Operation, version: int) -> tuple[str, tuple[Operation, ...]] | None:
        if each.birth is not None and each.birth < self.marks["fence"]:
            return f"was born at version {each.birth}, below the fence {self.marks['fence']}", ()
        if each.birth is not None and each.restores is not None and each.birth != version - 1:
            return f"goes back over version {version - 1}, and had seen version {each.birth}", ()
        if each.key is not None and each.key in self.keys:
            recorded, by = self.keys[each.key]
            if not any(first <= version and last > recorded for first, last in self._forgetting):
                return f"commits key {each.key!r} again", (by,)
        for source, (start, _) in each.advances.items():
            if source in self.watermarks and self.watermarks[source] != start:
                return f"advances {source!r} from {start!r} while it stands at {self.watermarks[source]!r}", (self.movers[source],)
        missing = [item for item in each.removes if item not in self.items]
        return (f"takes out {missing[0]!r}, which is not there", ()) if missing else None

    def _scope_is_touched(self, each: Operation) -> tuple[str, tuple[Operation, ...]] | None:
        if each.birth is None or not each.scope:
            return None
        everything = EVERYTHING in each.scope
        for partition, (version, who) in self.touched.items():
            if version > each.birth and (everything or partition == EVERYTHING or partition in each.scope):
                return f"replaces what it saw at version {each.birth}, and version {version} has changed it since: an update is lost", (
                    who,
                )
        return None

    def _emptied(self, partitions: Iterable[str]) -> list[str]:
        if EVERYTHING in partitions:
            return list(self.items)
        return [item for partition in partitions for item in self.by_partition.get(partition, ())]

    def _restore(self, version: int) -> None:
        items, watermarks, origins, keys = self._kept[version]
        for item in [item for item in self.items if item not in items]:
            self._take(item)
        for item, partition in items.items():
            if item not in self.items:
                self._put(item, partition)
        for source in [source for source in self.watermarks if source not in watermarks]:
            origin = self.origins.get(source)
            if origin is None:
                self._unset(self.watermarks, source)
                self._unset(self.origins, source)
            else:
                self._set(self.watermarks, source, origin)
        for source, position in watermarks.items():
            self._set(self.watermarks, source, position)
            self._set(self.origins, source, origins.get(source))
        for key in [key for key in self.keys if key not in keys]:
            self._unset(self.keys, key)
        for key, record in keys.items():
            self._set(self.keys, key, record)

    def _rewind(self, source: str, to: Position) -> None:
        for key, (_, record) in list(self.keys.items()):
            end = record.advances.get(source, (None, to))[1]
            if not (end == to or (isinstance(end, int) and isinstance(to, int) and end <= to)):
                self._unset(self.keys, key)
        if to is None:
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


def _drop(where: dict[K, V], name: K) -> None:
    where.pop(name, None)
