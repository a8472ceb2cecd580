"""Is there a serial order, true to real time, that explains everything that was told? If not: the shortest contradiction. [IV1]-[IV8]

    found = check(read_history(*folder.glob("*.jsonl")))
    assert found is None, found

All that was told of one job is one commit (testing.united). Commits are ordered by the versions that they told. Those of unknown outcome
are tried wherever a version has room for them, or as never committed. An operation counts from its beginning to its end; what ended before
another began comes first. Versions that nobody tells of are taken as commits that changed nothing (of tags, of gc). Not here: how an order
is looked for (testing.order).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from .operation import Contradiction, Operation, contradiction
from .order import Search
from .refusals import unexplained_refusals
from .united import United, unite


def check(history: Iterable[Operation]) -> Contradiction | None:
    """The shortest contradiction of a history of one table, or None: a serial order explains every outcome and every read. [IV1]-[IV8]

    ValueError: the history itself is none (an id twice, an end before its beginning, an item added by two operations). UndecidedError:
    too much is unknown.
    """
    operations = sorted(history, key=lambda each: each.begin)
    _check_form(operations)
    united = unite(operations)
    commits = united.commits
    # By what two or three operations say between themselves; each of these stands whatever the order of the others is.
    found = [*united.wrong, *_against_real_time(commits), *_unlike_reads(commits), *_never_written(commits), *_twice_seen(commits)]
    search = Search(united)
    found = found or list(search.told_alone())
    if not found:
        order = search.run()
        found = [order] if isinstance(order, Contradiction) else list(_refused(united, order))
    return min(found, key=lambda each: len(each.operations)) if found else None


def _check_form(operations: Sequence[Operation]) -> None:
    ids = Counter(each.id for each in operations)
    items = Counter(item for item, _ in {(item, each.job or each.id) for each in operations for item in each.adds})
    for what, times in (("the id", ids), ("the item", items)):
        repeated = [name for name, count in times.items() if count > 1]
        if repeated:
            raise ValueError(f"{what} {repeated[0]!r} stands with two operations")
    for each in operations:
        if each.end is not None and each.end < each.begin:
            raise ValueError(f"operation {each.id!r} ends before it begins")
        if (each.version is None) == (each.outcome in ("committed", "already", "read")):
            raise ValueError(f"operation {each.id!r}: {each.outcome} {'without a' if each.version is None else 'with a'} version")


def _against_real_time(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    """A version that somebody was told of is there from then on: later reads are not older, later commits come behind it."""
    told = sorted((each for each in operations if each.version is not None and each.end is not None), key=lambda each: each.end or 0)
    ends = [each.end or 0.0 for each in told]
    highest: list[Operation] = []
    for each in told:
        highest.append(max(highest[-1], each, key=lambda one: one.version or 0) if highest else each)
    for each in operations:
        before = bisect_left(ends, each.begin)
        if before == 0 or each.version is None:
            continue
        last = highest[before - 1]
        assert last.version is not None
        if each.outcome == "read" and each.at is None and each.version < last.version:
            problem = f"a stale read: version {each.version}, when version {last.version} was known before it began"
            yield contradiction(problem, last, each)
        if each.outcome == "committed" and each.version <= last.version:
            problem = f"version {each.version} was told to {each.id} as its own, and version {last.version} was known before it began"
            yield contradiction(problem, last, each)


def _unlike_reads(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    """A version has one content for ever."""
    first: dict[int, Operation] = {}
    for each in operations:
        if each.outcome != "read" or each.items is None:
            continue
        other = first.setdefault(each.version or 0, each)
        if Counter(other.items) != Counter(each.items):
            yield contradiction(f"two reads of version {each.version} show different rows", other, each)
        if None not in (other.watermarks, each.watermarks) and other.watermarks != each.watermarks:
            yield contradiction(f"two reads of version {each.version} show different watermarks", other, each)


def _never_written(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    """Nothing is seen that nobody committed, nor before its writer began, nor of one who was told that nothing was committed."""
    writers = {item: each for each in operations for item in each.adds}
    for each in operations:
        for item in dict.fromkeys(each.items or ()):
            writer = writers.get(item)
            if writer is None:
                yield contradiction(f"a read of version {each.version} shows {item!r}, which nobody wrote", each)
            elif writer.outcome == "refused":
                yield contradiction(f"a dirty read: version {each.version} shows {item!r}, whose writer committed nothing", writer, each)
            elif each.end is not None and each.end < writer.begin:
                yield contradiction(f"a read of version {each.version} shows {item!r} before its writer began", writer, each)


def _twice_seen(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    writers = {item: each for each in operations for item in each.adds}
    for each in operations:
        if each.items is not None and len(each.items) != len(set(each.items)):
            item = next(item for item, count in Counter(each.items).items() if count > 1)
            known = [writers[item]] if item in writers else []
            yield contradiction(f"doubled: a read of version {each.version} shows {item!r} more than once", *known, each)


def _refused(united: United, order: list[tuple[int, Operation]]) -> Iterator[Contradiction]:
    for problem, each in unexplained_refusals(united, order):
        yield contradiction(problem, each)
