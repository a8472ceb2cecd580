"""Object stores: `open_store` returns the backend for a URL, or says why there is none. [ST1]"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UsageError
from .base import (
    KeepsUnfinished,
    ObjectInfo,
    Output,
    Store,
    Unfinished,
    check_files,
    is_remote,
    missing_file,
    retries_of,
)
from .local.local import LocalStore
from .memory import MemoryStore
from .names import split_url
from .options import StorageOptions

__all__ = [
    "KeepsUnfinished",
    "ObjectInfo",
    "Output",
    "StorageOptions",
    "Store",
    "Unfinished",
    "check_files",
    "is_remote",
    "missing_file",
    "open_store",
    "register_scheme",
    "retries_of",
    "takes_options",
]


_TAKE_NONE = ("file", "memory")
_OPENERS: dict[str, Callable[[str], Store]] = {}


def register_scheme(scheme: str, opener: Callable[[str], Store]) -> None:
    """Register an opener for URLs of this scheme, such as a simulator's; it has priority over other
    backends. [ST7]

    opener: called with the rest of the URL; it guarantees that the store it returns has an atomic
    create.
    """
    _OPENERS[scheme] = opener


def takes_options(url: str | os.PathLike[str]) -> bool:
    """Whether the store of this URL takes storage_options: a folder and this process' own memory do
    not. [ST4]"""
    return split_url(url)[0] not in _TAKE_NONE


def open_store(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Store:
    """Open the store at `url`; a store without an atomic create is refused. [ST7]

    Raises UsageError (a malformed URL, options that the backend does not take, a missing package),
    UnsafeStoreError (refused).
    """
    scheme, rest = split_url(url)
    options = (
        storage_options
        if isinstance(storage_options, StorageOptions)
        else StorageOptions(storage_options)
    )
    if options and scheme in _TAKE_NONE:
        raise UsageError(
            f"{scheme}:// takes no storage_options (given: {', '.join(sorted(map(str, options)))})"
        )
    if scheme == "file":
        return LocalStore(rest)
    if scheme == "memory":
        return MemoryStore(rest)
    if scheme in _OPENERS:
        return _OPENERS[scheme](rest)
    from .backends.object_store import ObjectStore  # late: it brings fsspec's registry

    return ObjectStore(scheme, rest, options)
