"""Tries a source of one's own with what goes wrong for loaders: repeats, deaths, two at once.

check_source(Numbers, rows=lambda: [{"n": n} for n in range(30)])
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..errors import TableNotFoundError
from ..runtime.validation import checked, fits
from ..sources.chunk import Chunk, Position, Source, streams
from ..sources.loading import LoadOutcome, a_source, load
from ..store import StorageOptions, Store, open_store, register_scheme
from ..table.table import Table
from .faults import Died, FaultCall, FaultStore

_numbers = itertools.count(1)
_lives: dict[str, _Life] = {}  # of loaders, by the folders of their tables
_MOST = 500  # calls of one load at which a loader dies


class _Life:
    """What becomes of a loader. left: the calls that it sends before something happens; None:
    nothing will; happens: what, None: it dies."""

    def __init__(self, left: int | None, happens: Callable[[], object] | None = None) -> None:
        self.left, self.happens = left, happens

    def __call__(self, call: FaultCall) -> None:
        if self.left:
            self.left -= 1
        elif self.left == 0:
            if self.happens is None:
                raise Died(f"at {call.kind} {call.name}")
            self.left = None
            self.happens()


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
def _place(life: _Life) -> Iterator[str]:
    """A path for a table, gone after the block. life: of its loaders."""
    folder = f"source-kit-{next(_numbers)}/"
    _lives[folder] = life
    try:
        yield f"mortal://{folder}table"
    finally:
        del _lives[folder]
        store = open_store(f"memory://{folder}")
        store.delete([each.name for each in store.list("")])


_call = fits(callable, "a function without arguments, or a class", "lambda: Numbers()")


@checked(source=_call, rows=_call)
def check_source(
    source: Callable[[], Source],
    *,
    rows: Callable[[], Iterable[Mapping[str, Any]]],
    max_bytes: int = 1,
) -> LoadOutcome:
    """Load a source of your own with what goes wrong for loaders, and compare the rows.

    It is asked for its chunks, of which each has to begin where the one before ends, and twice for
    the rows of each, which have to be the same. At each call of its store, in turn, a loader dies,
    and another one goes on; or it waits until another one has loaded all, and goes on itself, but
    for a source with `loading`, which may wait for its commit. Each time the table has to have each
    row once, and a rerun to find nothing. The tables are in memory; nothing may be added to the
    source meanwhile.

    Args:
        source: makes the source, as each process does for itself.
        rows: returns the rows that the table has to have, as mappings; other columns than theirs
            are not compared.
        max_bytes: as for `load`; by default 1, so that there are many chunks.

    Returns:
        The outcome of a load in which nothing went wrong.

    Raises:
        UsageError: `source` makes no source, or an argument is wrong.
        AssertionError: something did not hold; it says what.
        SourceError: the source's own errors, and those of `load`.

    Example:
        `check_source(Numbers, rows=lambda: [{"n": n} for n in range(30)])`

    Spec: LD1, LD2.
    """
    a_source("source()", source())
    with _place(_Life(None)) as url:
        _check_questions(source, url, max_bytes)
        outcome = load(source(), url, max_bytes=max_bytes)
        _check_rows(url, rows(), "nothing went wrong")
    for calls in range(_MOST):
        life = _Life(calls)
        with _place(life) as url:
            with contextlib.suppress(Died):
                load(source(), url, max_bytes=max_bytes)
            if life.left:
                return outcome
            life.left = None
            load(source(), url, max_bytes=max_bytes)
            _check_rows(url, rows(), f"a loader died at call {calls + 1}, and another one went on")
            again = load(source(), url, max_bytes=max_bytes).rows
            assert not again, f"a rerun loaded {again} rows that the table has"
        if not hasattr(source(), "loading"):
            life = _Life(calls, lambda: load(source(), url, max_bytes=max_bytes))
            with _place(life) as url:
                load(source(), url, max_bytes=max_bytes)
                _check_rows(url, rows(), f"at call {calls + 1} another loader was faster")
    raise AssertionError(f"a load takes more than {_MOST} calls: write less to the source")


def _check_rows(url: str, expected: Iterable[Mapping[str, Any]], when: str) -> None:
    wanted = [*expected]
    names = [*dict.fromkeys(name for row in wanted for name in row)]
    found: list[dict[str, Any]] = []
    with contextlib.suppress(TableNotFoundError):  # none, where there never was a row
        found = Table(url).to_arrow(names or None).to_pylist()
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
    found = (batch.to_pylist() for each in streams(source.rows(chunk)) for batch in each)
    return Counter(repr(row) for rows in found for row in rows)
