"""Object stores: `open_store` returns the backend for a URL, or says why there is none. [ST1]"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UsageError
from .base import (
    NO_OPTIONS,
    TAKE_NONE,
    ObjectInfo,
    Output,
    StorageOptions,
    Store,
    Unfinished,
    split_url,
)
from .local import LocalStore, MemoryStore

__all__ = [
    "ObjectInfo",
    "Output",
    "StorageOptions",
    "Store",
    "Unfinished",
    "open_store",
    "register_scheme",
]


_OPENERS: dict[str, Callable[[str], Store]] = {}


def register_scheme(scheme: str, opener: Callable[[str], Store]) -> None:
    """Register an opener for URLs of a scheme, such as a store of a user's own.

    It has priority over other backends.

    Args:
        scheme: the scheme, without `://`.
        opener: called with the rest of the URL; returns a `Store`, which it guarantees to have an
            atomic `put_if_absent`. What it raises reaches the caller who opens a table.

    Spec: ST7.
    """
    _OPENERS[scheme] = opener


def open_store(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Store:
    """Open the store at a URL; a store without put-if-absent is refused.

    Args:
        url: the table path, a local path or a URL.
        storage_options: what reaches the object store, as for s3fs, adlfs or gcsfs; by default the
            environment.

    Returns:
        The store.

    Raises:
        UsageError: the URL is malformed, the backend does not take these options, or its package is
            not installed.
        UnsafeStoreError: the store has no put-if-absent.

    Spec: ST7.
    """
    refusal: UsageError | None = None
    try:
        scheme, rest = split_url(url)
    except UsageError as error:
        refusal = error.with_traceback(None)  # the frames that hold what was given
    if refusal is not None:
        del url
        raise refusal
    options = NO_OPTIONS if storage_options is None else storage_options
    if not isinstance(options, StorageOptions):
        options = StorageOptions(options)
    if options and scheme in TAKE_NONE:
        given = ", ".join(sorted(map(str, options)))
        raise UsageError(f"{scheme}:// takes no storage_options (given: {given})")
    if scheme == "file":
        return LocalStore(rest)
    if scheme == "memory":
        return MemoryStore(rest)
    if scheme in _OPENERS:
        return _OPENERS[scheme](rest)
    if scheme == "s3":
        from .s3 import S3Store  # late, as the others: each takes time to load

        return S3Store(scheme, rest, options)
    if scheme == "abfs":
        from .azure import AzureStore

        return AzureStore(scheme, rest, options)
    if scheme == "gs":
        from .gcs import GcsStore

        return GcsStore(scheme, rest, options)
    from .fsspec import FsspecStore

    return FsspecStore(scheme, rest, options)
