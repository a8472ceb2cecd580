"""Storage options: how a caller reaches a store. No text shows their credentials. [SE1]"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from ..errors import UsageError

# Names below a table path, and table URLs in their canonical form.

TAKE_NONE = ("file", "memory")  # schemes whose stores take no storage_options
_ALIASES = {"s3a": "s3", "s3n": "s3", "local": "file", "gcs": "gs", "az": "abfs", "abfss": "abfs"}


def check_name(name: str) -> str:
    """Return the name if it stays below the table path; else ValueError. [LY1]"""
    parts = name.split("/")
    if "\0" in name or "" in parts or "." in parts or ".." in parts:
        raise ValueError(f"{name!r} is not a name below a table path")
    return name


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+", re.IGNORECASE)

# A password may contain the delimiters of its part of a URL: everything up to the last "@" may
# belong to it.
_ENDPOINT = re.compile(
    r"((?:[a-z][a-z0-9+.-]*://)?)(?:.*@)?([^/?#]*)([^?#]*)", re.DOTALL | re.IGNORECASE
)


def public_endpoint(endpoint: str) -> str:
    """A service's endpoint without secrets: user, password, query, fragment. [SE1]"""
    found = _ENDPOINT.match(endpoint)
    assert found is not None  # every part of it may be empty
    return f"{found[1]}{found[2].lower()}{found[3]}".rstrip("/")


def check_root(scheme: str, root: str) -> str:
    """The path in an object store, bucket first, of valid names; UsageError otherwise. [ST4]"""
    try:
        return check_name(root)
    except ValueError:
        raise UsageError(
            f"{scheme}://{root} is no root of a table: give the bucket and the folders below it, "
            f"as in {scheme}://bucket/lake/flights, without empty parts, `.` and `..`"
        ) from None


_FOREIGN = re.compile(r"(?P<home>~)|[a-z]:(?:[\\/]|\Z)|(?!\.\.?/)[^/]*\\", re.IGNORECASE)


def _as_this_system_means(path: str) -> str:
    """The local path; UsageError if only a shell or another system would interpret it, as a
    different place. [ST4]"""
    found = _FOREIGN.match(path)
    if found is None:
        return path
    if found["home"]:
        what = (
            "begins with ~, which a shell replaces by the home folder and Python does not: give "
            "os.path.expanduser(...) of it,"
        )
    else:
        what = (
            "is a path of Windows, which this system would take for the name of a folder here: give"
        )
    raise UsageError(
        f"the local path {path!r} {what} an absolute path such as /data/flights, or, for a "
        f"folder of that name here, ./{path}"
    )


def _unlike_a_url(path: str) -> str:
    """The local path; UsageError for a URL that has lost a slash, as with `pathlib`. file:/x is
    Hadoop's form of /x. [ST4]"""
    scheme, found, rest = path.partition(":/")
    if not found or not _SCHEME.fullmatch(scheme):
        return path
    if scheme.lower() == "file":
        return f"/{rest}"
    raise UsageError(
        f"{scheme}:/ looks like {scheme}:// without a slash, as a pathlib.Path of a URL does. Give "
        f"the URL as text, with two slashes; or, for a folder of that name here, ./{scheme}:/"
    )


def split_url(path: str | os.PathLike[str]) -> tuple[str, str]:
    """(scheme, rest) of a table path: one form per place, no last slash, absolute. [ST4]"""
    text = os.fspath(path)
    if not text.strip():
        raise UsageError(
            "path is the table path: a local path or a URL such as s3://bucket/table; it is empty"
        )
    scheme, separator, rest = text.partition("://")
    if not separator:
        return "file", os.path.abspath(_unlike_a_url(_as_this_system_means(text)))
    scheme = _ALIASES.get(scheme.lower(), scheme.lower())
    if scheme == "file":
        # file:///x, and file://localhost/x as some tools write it
        local = rest.removeprefix("localhost") if rest.startswith("localhost/") else rest
        if not local.startswith("/"):
            raise UsageError(
                "the path of a file:// URL is absolute, as in file:///folder/table; this one is not"
            )
        return scheme, os.path.abspath(local)
    # A secret may contain slashes, so "user:" counts wherever its "@" comes;
    # abfs://container@account is not a secret.
    if re.match(r"[^/@]*:[^@]*@", rest) or ("@" in rest.split("/", 1)[0] and scheme != "abfs"):
        raise UsageError(
            f"a {scheme}:// URL must not carry credentials; they would end up in logs. Give "
            "them in storage_options or in the environment."
        )
    if "?" in rest:
        raise UsageError(
            f"a {scheme}:// URL of a table has no `?`: what follows one is often a signature "
            "or a token, and would end up in logs. Give "
            "credentials in storage_options or in the environment."
        )
    return scheme, rest.rstrip("/")


def takes_options(url: str | os.PathLike[str]) -> bool:
    """Whether this URL's store takes storage_options: a folder and `memory:` do not. [ST4]"""
    return split_url(url)[0] not in TAKE_NONE


_SHORTEST_SECRET = 4  # shorter values ("us", "1") occur in innocent texts
_PUBLIC_NAMES = {
    name
    for names in (
        "account_host account_name addressing_style api_version endpoint endpoint_url host profile",
        "profile_name project region region_name signature_version",
    )
    for name in names.split()
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
    """Texts that may be secret: of a place or a mode, the part of an endpoint before its `@`."""
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
