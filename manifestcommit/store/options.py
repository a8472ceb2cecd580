"""What a caller gives to reach a store: credentials among it, so it is kept out of every text. [SE1]"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

_SHORTEST_SECRET = 4  # shorter values ("us", "1") are found in innocent text


class StorageOptions(Mapping[str, Any]):
    """Storage options as pandas, polars and fsspec know them, whose text shows their names and never a value. [SE1]"""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})

    def __getitem__(self, name: str) -> Any:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return f"<storage options: {', '.join(sorted(self._options)) or 'none'}>"

    def fingerprint(self) -> str:
        """The same for equal options, within one process."""
        return hashlib.sha256(repr(_ordered(self._options)).encode()).hexdigest()

    def scrub(self, text: str) -> str:
        """The text with every value that these options hold blotted out. [SE1]"""
        for value in sorted(set(_texts(self._options)), key=len, reverse=True):
            if len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, "***")
        return text


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted((str(name), _ordered(each)) for name, each in value.items())
    return value


def _texts(value: Any) -> Iterator[str]:
    """Texts that may be secret: those below names that tell a place or a manner are not."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if str(name) not in _PUBLIC:
                yield from _texts(each)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


_PUBLIC = {
    "account_name", "addressing_style", "api_version", "endpoint", "endpoint_url", "profile", "profile_name", "project", "region",
    "region_name", "signature_version",
}  # fmt: skip
