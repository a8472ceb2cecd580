"""Packages that read other formats: imported when they are needed, and their errors. [AF4]"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ...errors import ManifestCommitError, UsageError


def package(name: str, extra: str) -> Any:
    """The module; UsageError that says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"the package {name.partition('.')[0]} is missing, which reads the other format: "
            f"install manifestcommit[{extra}]"
        ) from error


@contextmanager
def parsed(what: str) -> Iterator[None]:
    """Within, whatever such a package raises for metadata that is damaged becomes a UsageError."""
    try:
        yield
    except ManifestCommitError:
        raise
    except Exception as error:
        raise UsageError(
            f"{what} cannot be read: {type(error).__name__}: {error}. Nothing was adopted"
        ) from error
