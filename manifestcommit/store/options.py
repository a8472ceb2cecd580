"""What a caller gives to reach a store: credentials among it, so it is kept out of every text. [SE1]"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from ..errors import UsageError

_SHORTEST_SECRET = 4  # shorter values ("us", "1") are found in innocent text
_PUBLIC_NAMES = {
    "account_host", "account_name", "addressing_style", "api_version", "endpoint", "endpoint_url", "host", "profile", "profile_name",
    "project", "region", "region_name", "signature_version",
}  # fmt: skip
_PUBLIC_VALUES = {"anon", "browser", "cache", "cloud", "google_default"}  # gcsfs' names for ways to log in
_USER_OF_A_URL = re.compile(r"(https?://)\S*@")  # also from the environment, which these options do not know


class StorageOptions(Mapping[str, Any]):
    """Storage options as pandas, polars and fsspec know them, whose own text shows their names and never a value. [SE1]"""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        if options is not None and not isinstance(options, Mapping):
            raise UsageError("storage_options is a mapping of names to values, such as {'key': …, 'secret': …, 'endpoint_url': …}")
        self._options = {name: _copied(value) for name, value in (options or {}).items()}
        self._fingerprint = hashlib.sha256(_spelled(self._options).encode("utf-8", "surrogatepass")).hexdigest()

    def __reduce__(self) -> Any:
        return StorageOptions, (self._options,)  # where it arrives, objects are others: so is the fingerprint

    def __getitem__(self, name: str) -> Any:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return f"<storage options: {', '.join(sorted(self._options)) or 'none'}>"

    def fingerprint(self) -> str:
        """The same for equal options within one process; other types (1, "1", True) and other objects are others, whatever they show."""
        return self._fingerprint

    def scrub(self, text: str) -> str:
        """The text with every value that these options hold, and every user and password of an http URL, blotted out. [SE1]

        Except values that tell a place or a manner (`_PUBLIC_NAMES`, `_PUBLIC_VALUES`), texts of less than four characters, numbers,
        and what is inside of objects.
        """
        for value in sorted(set(_secrets(self._options)) - _PUBLIC_VALUES, key=len, reverse=True):
            if len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, "***")
        return _USER_OF_A_URL.sub(r"\1***@", text)


def _spelled(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{name!r}:{_spelled(each)}' for name, each in value.items()))}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({','.join(_spelled(each) for each in value)})"
    if isinstance(value, str):
        return f"{type(value).__name__} {str.__repr__(value)}"  # a class of secrets may hide its text
    if value is None or isinstance(value, bool | int | float | bytes | bytearray):
        return f"{type(value).__name__} {value!r}"
    return f"{type(value).__name__} at {id(value)}"


def _copied(value: Any) -> Any:
    """Plain containers anew: what the caller changes later changes no store that is open."""
    if isinstance(value, Mapping):
        return {name: _copied(each) for name, each in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value


def _secrets(value: Any, *, is_public: bool = False) -> Iterator[str]:
    """Texts that may be secret. Of those below a name that tells a place or a manner: what an endpoint has before its `@`."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _secrets(each, is_public=is_public or str(name) in _PUBLIC_NAMES)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _secrets(each, is_public=is_public)
    elif isinstance(value, bytes | bytearray):
        yield from (bytes(value).decode("utf-8", "replace"), repr(bytes(value))[2:-1], base64.b64encode(value).decode("ascii"))
    elif isinstance(value, str) and not is_public:
        yield value
    elif isinstance(value, str) and "@" in value:
        user = re.sub(r"\A[\w+.-]*://", "", value.rpartition("@")[0])
        for each in (user, *user.split(":", 1)):
            yield from (each, unquote(each))
