"""Storage options: how a caller reaches a store. They include credentials, so they are kept out of
every text. [SE1]"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from ..errors import UsageError

_SHORTEST_SECRET = 4  # shorter values ("us", "1") occur in innocent texts
_PUBLIC_NAMES = {
    "account_host",
    "account_name",
    "addressing_style",
    "api_version",
    "endpoint",
    "endpoint_url",
    "host",
    "profile",
    "profile_name",
    "project",
    "region",
    "region_name",
    "signature_version",
}
# gcsfs' names for ways to log in
_PUBLIC_VALUES = {"anon", "browser", "cache", "cloud", "google_default"}
# also from the environment, which these options do not know
_USER_OF_A_URL = re.compile(r"(https?://)\S*@")


class StorageOptions(Mapping[str, Any]):
    """Storage options, as for s3fs, adlfs or gcsfs; the repr shows names and never a value.

    Args:
        options: name -> value; by default none.

    Raises:
        UsageError: they are no mapping.

    Spec: SE1.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options: dict[str, Any] = {}
        if options is not None and not isinstance(options, Mapping):
            del options  # a text may be the secret itself, and tools print the locals of frames
            raise UsageError(
                "storage_options is a mapping of names to values, such as {'key': …, "
                "'secret': …, 'endpoint_url': …}"
            )
        self._options = {name: _copied(value) for name, value in (options or {}).items()}
        self._fingerprint = hashlib.sha256(
            _spelled(self._options).encode("utf-8", "surrogatepass")
        ).hexdigest()

    def __reduce__(self) -> Any:
        # in the receiving process, objects have other identities, and so the fingerprint differs
        return StorageOptions, (self._options,)

    def __getitem__(self, name: str) -> Any:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return f"<storage options: {', '.join(sorted(map(str, self._options))) or 'none'}>"

    def fingerprint(self) -> str:
        """Return a text that is equal for equal options within one process.

        Other types (1, "1", True) and other objects differ, whatever they print.

        Returns:
            A text of 64 hexadecimal digits, without any value.
        """
        return self._fingerprint

    def scrub(self, text: str) -> str:
        """Remove the values of these options, and every user and password of an http URL.

        Values that name a place or a mode, texts of less than four characters, numbers, and the
        contents of objects are left.

        Args:
            text: the text, such as an error's message.

        Returns:
            The text with `***` in their place.

        Spec: SE1.
        """
        for value in sorted(set(_secrets(self._options)) - _PUBLIC_VALUES, key=len, reverse=True):
            if len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, "***")
        return _USER_OF_A_URL.sub(r"\1***@", text)


def _spelled(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            f"{{{','.join(sorted(f'{name!r}:{_spelled(item)}' for name, item in value.items()))}}}"
        )
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({','.join(_spelled(item) for item in value)})"
    if isinstance(value, str):
        # a class for secrets may hide its text
        return f"{type(value).__name__} {str.__repr__(value)}"
    if isinstance(value, int):
        return f"{type(value).__name__} {value:x}"  # works also for more digits than Python prints
    if value is None or isinstance(value, float | bytes | bytearray):
        return f"{type(value).__name__} {value!r}"
    return f"{type(value).__name__} at {id(value)}"


def _copied(value: Any) -> Any:
    """A copy of plain containers: later changes by the caller do not change an open store."""
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value


def _secrets(value: Any, *, is_public: bool = False) -> Iterator[str]:
    """Texts that may be secret. For names that denote a place or a mode: the part of an endpoint
    before its `@`."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets(item, is_public=is_public or str(name) in _PUBLIC_NAMES)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _secrets(item, is_public=is_public)
    elif isinstance(value, bytes | bytearray):
        yield from (
            bytes(value).decode("utf-8", "replace"),
            repr(bytes(value))[2:-1],
            base64.b64encode(value).decode("ascii"),
        )
    elif isinstance(value, str) and not is_public:
        yield value
    elif isinstance(value, str) and "@" in value:
        user = re.sub(r"\A[\w+.-]*://", "", value.rpartition("@")[0])
        for part in (user, *user.split(":", 1)):
            yield from (part, unquote(part))
