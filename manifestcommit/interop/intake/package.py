"""Packages that read other formats: imported when they are needed, and their errors. [AF4]"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import ManifestCommitError, UsageError


def deltalake() -> Any:
    """The package that reads Delta; UsageError that says how to install it."""
    with _installed("deltalake", "delta"):
        import deltalake

    return deltalake


def pyiceberg() -> Any:
    """The package that reads Iceberg; UsageError that says how to install it."""
    with _installed("pyiceberg", "iceberg"):
        import pyiceberg.io
        import pyiceberg.manifest
        import pyiceberg.table.metadata
        import pyiceberg.types

    return pyiceberg


@contextmanager
def _installed(name: str, extra: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"the package {name} is missing, which reads the other format: "
            f"install manifestcommit[{extra}]"
        ) from error


@contextmanager
def parsed(what: str) -> Iterator[None]:
    """Within, whatever such a package raises for damaged metadata becomes a UsageError, also a
    panic of its Rust code, which is no Exception."""
    try:
        yield
    except ManifestCommitError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UsageError(
            f"{what} cannot be read: {type(error).__name__}: {error}. Nothing was adopted"
        ) from error
