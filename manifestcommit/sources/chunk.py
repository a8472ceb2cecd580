"""What a source is: two questions, answered from a position on. [LD1]"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from ..display import ReprMixin
from ..files.writer import record_batches

Position = int | str


class Chunk(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """What one commit loads: a range of each source that takes part in it.

    Attributes:
        ranges: the source's name -> (start, end), half-open; the start is None where the table has
            no position of it yet.
        begins: the source's name -> where its rows begin, for those that begin behind the start.
        what: the chunk for people, such as "3 files".
        bytes: about how many bytes are read; 0: unknown.
        plan: what the source needs to read the rows, its own.

    Spec: LD1.
    """

    ranges: Mapping[str, tuple[Position | None, Position]]
    begins: Mapping[str, Position] = {}
    what: str = ""
    bytes: int = 0
    plan: Any = None


class BrokenInputError(Exception):
    """A part of a chunk cannot be decoded; raised by `Source.rows` while its rows are read.

    `load` takes the part out of the chunk by the source's `without`, if it has one, and records it;
    nothing of the chunk is committed before.

    Attributes:
        parts: the names of the parts, such as files.
        reason: why, in one sentence.

    Spec: LD4.
    """

    def __init__(self, parts: tuple[str, ...], reason: str) -> None:
        super().__init__(parts, reason)  # both, as tasks of Spark pickle it
        self.parts, self.reason = parts, reason

    def __str__(self) -> str:
        return f"{', '.join(self.parts)}: {self.reason}"


class ChangedInputError(Exception):
    """What a chunk is made of was replaced or removed while it was read; `Source.rows` raises it,
    at the latest after the last row. `load` commits nothing of it, and asks for the chunks again.

    Spec: LD3.
    """


class Source(Protocol):
    """Rows with positions. A source holds no state: the table has the position.

    A source may have more: `companions`, suffix -> columns of the tables beside the loaded one that
    its chunks write too, and `beside(chunk)`, suffix -> their rows; `without(chunk, broken)`, the
    chunk without a part that cannot be decoded; `copy(positions)`, the whole source as one chunk;
    `change(chunk)`, how its rows change those of the table: "merge" or "overwrite_where", and its
    arguments, or None: they are added; `updates`, whether `change` ever says so;
    `loading(chunk, now)`, a context manager around a chunk's commit that gives the chunk as it is
    committed, where `now()` says what the table's positions are; `open(path, options)`, which
    returns the source for this table; `tables`, path -> source, of a source whose chunks have rows
    for several tables: each is asked for its `name`, `rows` and `change`; `held_back`, a text for a
    dry run on what keeps more from being loaded; `reading`, the part that rows come from, for
    errors; `parts(chunk, count=…)`, about so many chunks that are the chunk together, for Spark's
    tasks, to which the source is pickled. `files` has examples of them.

    Spec: LD1.
    """

    @property
    def name(self) -> str:
        """Return what the table's watermark of this source is called; no secret is in it."""
        ...

    def chunks(self, positions: Mapping[str, Position], *, max_bytes: int) -> Iterator[Chunk]:
        """Say what there is from these positions on, in order.

        Args:
            positions: the table's watermarks: the name of a source -> its position. A source that
                was never loaded is not in it.
            max_bytes: about how many bytes a chunk may have at most; one indivisible part may have
                more.

        Returns:
            The chunks; each begins where the one before ends.
        """
        ...

    def rows(self, chunk: Chunk) -> Any:
        """Read the rows of a chunk: again and again the same, or an error that they are gone.

        Args:
            chunk: one of `chunks`.

        Returns:
            Arrow data: anything with `__arrow_c_stream__`, or an iterable of such.

        Raises:
            BrokenInputError: a part of it cannot be decoded.
            SourceError: the rows are gone.
        """
        ...


def streams(rows: Any) -> Iterator[pa.RecordBatchReader]:
    """Arrow data, one or several, as `Source.rows` gives it: what follows each other with the same
    columns is one stream, so that it becomes files of the size that they are to have.

    Each stream is read to its end before the next one is asked for.
    """
    given = map(record_batches, [rows] if hasattr(rows, "__arrow_c_stream__") else rows)
    waiting = next(given, None)

    def alike(schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        nonlocal waiting
        while waiting is not None and waiting[0].equals(schema, check_metadata=True):
            yield from waiting[1]
            waiting = next(given, None)

    while waiting is not None:
        schema = waiting[0]
        yield pa.RecordBatchReader.from_batches(schema, alike(schema))
