"""Object stores: `open_store` gives the backend of a URL, or says why there is none. [ST1]"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UsageError
from .base import KeepsUnfinished, ObjectInfo, Output, Store, Unfinished, is_remote, retries_of
from .local import LocalStore
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
    "is_remote",
    "open_store",
    "register_scheme",
    "retries_of",
    "takes_options",
]


_TAKE_NONE = ("file", "memory")
_OPENERS: dict[str, Callable[[str], Store]] = {}


def register_scheme(scheme: str, opener: Callable[[str], Store]) -> None:
    """URLs of this scheme, which no other backend has, are opened by this from now on, such as a simulator's. [ST7]

    opener: called with the rest of the URL; it answers for the atomic create of what it returns.
    """
    _OPENERS[scheme] = opener


def takes_options(url: str | os.PathLike[str]) -> bool:
    """Whether the store of this URL is reached with storage_options: a folder and this process' own memory are not. [ST4]"""
    return split_url(url)[0] not in _TAKE_NONE


def open_store(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store below `url`; one whose create can not be atomic is refused. [ST7]

    Raises UsageError (a malformed URL, options that the backend does not take, a package that is missing), UnsafeStoreError (refused).
    """
    scheme, rest = split_url(url)
    options = storage_options if isinstance(storage_options, StorageOptions) else StorageOptions(storage_options)
    if options and scheme in _TAKE_NONE:
        raise UsageError(f"{scheme}:// takes no storage_options (given: {', '.join(sorted(options))})")
    if scheme == "file":
        return LocalStore(rest)
    if scheme == "memory":
        return MemoryStore(rest)
    if scheme in _OPENERS:
        return _OPENERS[scheme](rest)
    from .objects import ObjectStore  # late: it brings fsspec's registry

    return ObjectStore(scheme, rest, options)
