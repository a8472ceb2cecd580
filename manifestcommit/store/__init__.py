"""Object stores: `open_store` gives the backend of a URL, or says why there is none. [ST1]"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..errors import UnsafeStoreError, UsageError
from .base import ObjectInfo, Output, Store
from .local import LocalStore
from .memory import MemoryStore
from .names import split_url

__all__ = ["ObjectInfo", "Output", "Store", "open_store"]


def open_store(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store below `url`; a backend that has not proved an atomic create is refused. [ST7]

    Raises UsageError (a malformed URL, options that the backend does not take), UnsafeStoreError (no proven backend).
    """
    scheme, rest = split_url(url)
    if scheme in ("file", "memory") and storage_options:
        names = ", ".join(sorted(storage_options))
        raise UsageError(f"{scheme}:// takes no storage_options (given: {names})")
    if scheme == "file":
        return LocalStore(rest)
    if scheme == "memory":
        return MemoryStore(rest)
    raise UnsafeStoreError(
        f"{scheme}:// is not supported by this release: commits need a create that exactly one of many racing writers wins, and that has "
        "been proven here for file:// and memory:// only. Nothing was read or written."
    )
