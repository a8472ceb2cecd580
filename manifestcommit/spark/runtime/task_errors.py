"""Translates errors that cross Spark's processes: a task's error reaches the driver as text, and
gets its type back here. [SP6]
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from manifestcommit import errors
from manifestcommit.errors import (
    ConstraintError,
    CorruptMetadataError,
    ManifestCommitError,
    StoreError,
    UsageError,
)

_MISSING = re.compile(
    r"ModuleNotFoundError: No module named '((?:manifestcommit|msgspec|pyarrow|zstandard)\b[\w.]*)'"
)
_VIOLATED = re.compile(r"([\d,]+) rows? violates? the constraint '(\w+)'", re.ASCII)
# A class is looked up by its name, wherever the release that runs in the tasks keeps it.
_RAISED = re.compile(r"\bmanifestcommit\.((?:\w+\.)+)(_?[A-Z]\w*): ([^\n]+)")


def check_reachable(url: str) -> None:
    """Refuse a store that only this process can see: Spark works in other processes."""
    if url.startswith("memory:"):
        raise UsageError(
            f"{url} lives in the memory of one process, which Spark's tasks cannot see; nothing "
            "was done. Use a folder or an object store, or write and read without Spark."
        )


@contextlib.contextmanager
def raising_ours() -> Iterator[None]:
    """Restore the type of our errors from Spark's Python processes, which it wraps as text."""
    try:
        yield
    except Exception as error:
        if (ours := raised_inside(error)) is not None:
            raise ours from error
        raise


def raised_inside(error: BaseException) -> ManifestCommitError | None:
    """The error of this package that Spark reported as text; None: it was another one."""
    text = str(error)
    if missing := _MISSING.search(text):
        return UsageError(
            f"Spark's Python processes cannot import {missing[1]}; nothing was written. They run "
            "$PYSPARK_PYTHON, by default the python3 of their PATH: set it, before the session "
            "starts, to a Python that has manifestcommit installed."
        )
    for module, name, message in _RAISED.findall(text):
        # A store's own error classes become store errors with their text.
        kind = getattr(errors, name, StoreError if module.startswith("store.") else None)
        if kind is CorruptMetadataError:
            return CorruptMetadataError(
                message.strip(), object_name=message.partition(" is damaged")[0]
            )
        if kind is ConstraintError and (said := _VIOLATED.search(message)) is not None:
            rows = int(said[1].replace(",", ""))
            return ConstraintError(message.strip(), constraint=said[2], violations=rows)
        if isinstance(kind, type) and issubclass(kind, ManifestCommitError):
            # A class that needs more than a message: its text stays with Spark's error.
            with contextlib.suppress(TypeError):
                return kind(message.strip())
    return None
