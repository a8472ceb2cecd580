"""Tries a source of one's own with what goes wrong for loaders: repeats, deaths, two at once.

check_source(Numbers, rows=lambda: [{"n": n} for n in range(30)])
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from ..sources.chunk import Chunk, Position, Source, streams
from ..sources.loading import load
from ..store import StorageOptions, Store, open_store, register_scheme
from ..table.table import Table
from .faults import Died, FaultCall, FaultStore

_numbers = itertools.count(1)
_lives: dict[str, _Life] = {}  # of loaders, by the folders of their tables
_MOST = 500  # calls of one load at which a loader dies


class SourceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `check_source` has tried, all of which held.

    Attributes:
        chunks: how many chunks a load had.
        rows: how many rows it had.
        deaths: at how many calls of the store a loader died, and another one went on.
    """

    chunks: int
    rows: int
    deaths: int


class _Life:
    """left: how many calls a loader sends before it dies; None: it lives."""

    def __init__(self, left: int | None) -> None:
        self.left = left

    def __call__(self, call: FaultCall) -> None:
        if self.left == 0:
            raise Died(f"at {call.kind} {call.name}")
        if self.left is not None:
            self.left -= 1


class _MortalStore(FaultStore):
    """One of the stores of a loader, which all end with it."""

    def __init__(self, rest: str) -> None:
        life = next(life for folder, life in _lives.items() if rest.startswith(folder))
        super().__init__(open_store(f"memory://{rest}"), on_call=life)
        self._rest = rest

    @property
    def url(self) -> str:
        return f"mortal://{self._rest}"

    def beside(self, scheme: str, rest: str) -> Store | None:
        return _MortalStore(rest) if scheme == "mortal" else None


register_scheme("mortal", _MortalStore)


@contextlib.contextmanager
def _place(left: int | None) -> Iterator[tuple[str, _Life]]:
    """A path for a table, gone after the block, and the life of its loaders."""
    folder, life = f"source-kit-{next(_numbers)}/", _Life(left)
    _lives[folder] = life
    try:
        yield f"mortal://{folder}table", life
    finally:
        del _lives[folder]
        store = open_store(f"memory://{folder}")
        store.delete([each.name for each in store.list("")])


def check_source(
    source: Callable[[], Source],
    *,
    rows: Callable[[], Iterable[Mapping[str, Any]]],
    max_bytes: int = 1,
) -> SourceReport:
    """Load a source of your own with what goes wrong for loaders, and compare the rows.

    It is asked for its chunks, of which each has to begin where the one before ends, and twice for
    the rows of each, which have to be the same. A loader dies at each call of its store, in turn,
    and another one goes on; and one is overtaken by another one after it has chosen its chunk. Each
    time the table has to have each row once, and a rerun to find nothing. The tables are in memory;
    nothing may be added to the source meanwhile.

    Args:
        source: makes the source anew, as each process does.
        rows: returns the rows that the table has to have, as mappings; other columns than theirs
            are not compared.
        max_bytes: as for `load`; by default 1, so that there are many chunks.

    Returns:
        What was tried.

    Raises:
        AssertionError: something did not hold; it says what.
        SourceError: the source's own errors, and those of `load`.

    Example:
        `check_source(Numbers, rows=lambda: [{"n": n} for n in range(30)])`

    Spec: LD1, LD2.
    """
    with _place(None) as (url, _):
        _check_questions(source, url, max_bytes)
        overtaken = _Overtaken(source(), lambda: load(source(), url, max_bytes=max_bytes))
        outcome = load(overtaken, url, max_bytes=max_bytes)
        _check_rows(url, rows(), "a loader was overtaken by another one")
    with _place(None) as (url, _):
        outcome = load(source(), url, max_bytes=max_bytes)
        _check_rows(url, rows(), "nothing went wrong")
    for calls in range(_MOST):
        with _place(calls) as (url, life):
            try:
                load(source(), url, max_bytes=max_bytes)
                break
            except Died:
                life.left = None
            load(source(), url, max_bytes=max_bytes)
            _check_rows(url, rows(), f"a loader died at call {calls + 1}, and another one went on")
            again = load(source(), url, max_bytes=max_bytes).rows
            assert not again, f"a rerun loaded {again} rows that the table has"
    return SourceReport(chunks=outcome.chunks, rows=outcome.rows, deaths=calls)


def _check_rows(url: str, expected: Iterable[Mapping[str, Any]], when: str) -> None:
    wanted = [*expected]
    names = [*dict.fromkeys(name for row in wanted for name in row)]
    found = Table(url).to_arrow(names).to_pylist()
    lacks = Counter(repr([row.get(name) for name in names]) for row in wanted)
    more = Counter(repr([row[name] for name in names]) for row in found)
    lacks, more = lacks - more, more - lacks
    assert not lacks and not more, (
        f"{when}: the table lacks {lacks.total()} rows, such as {next(iter(lacks), '-')}, and has "
        f"{more.total()} that it should not have, such as {next(iter(more), '-')}"
    )


def _check_questions(make: Callable[[], Source], url: str, max_bytes: int) -> None:
    """The two questions. Where a source makes a commit's rows itself, only loads can ask. [LD1]"""
    first, second = _opened(make(), url), _opened(make(), url)
    if hasattr(first, "loading"):
        return
    at: dict[str, Position] = {}
    for chunk in first.chunks({}, max_bytes=max_bytes):
        for name, (start, end) in chunk.ranges.items():
            assert start == at.get(name), (
                f"a chunk of {name} begins at {start!r}, and the one before ended at "
                f"{at.get(name)!r}"
            )
            at[name] = end
        assert _rows_of(first, chunk) == _rows_of(second, chunk), (
            f"the rows of {chunk.ranges} are others when they are asked for again"
        )
    if not getattr(first, "companions", None):  # by which it knows what is new
        left = [each.ranges for each in second.chunks(at, max_bytes=max_bytes)]
        assert not left, f"behind the last chunk, which ends at {at}, there are more: {left[0]}"


def _opened(source: Source, url: str) -> Source:
    opened: Any = getattr(source, "open", None)
    return source if opened is None else opened(url, StorageOptions(None)) or source


def _rows_of(source: Source, chunk: Chunk) -> Counter[str]:
    found = (pa.table(each).to_pylist() for each in streams(source.rows(chunk)))
    return Counter(repr(row) for rows in found for row in rows)


class _Overtaken:
    """A source of which another loader loads all when its first chunk was chosen."""

    def __init__(self, inner: Any, other: Callable[[], object]) -> None:
        self._inner, self._other = inner, other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, path: Any, options: StorageOptions) -> _Overtaken:
        return _Overtaken(_opened(self._inner, path), self._other)

    @property
    def name(self) -> str:
        return str(self._inner.name)

    def chunks(self, positions: Mapping[str, Position], *, max_bytes: int) -> Iterator[Chunk]:
        for each in self._inner.chunks(positions, max_bytes=max_bytes):
            other, self._other = self._other, bool
            other()
            yield each

    def rows(self, chunk: Chunk) -> Any:
        return self._inner.rows(chunk)
