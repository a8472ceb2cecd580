"""Names below a table path, and table URLs in their canonical form. [LY1] [ST4]"""

from __future__ import annotations

import os
import re

from ..errors import UsageError

TAKE_NONE = ("file", "memory")  # schemes whose stores take no storage_options
_ALIASES = {"s3a": "s3", "s3n": "s3", "local": "file", "gcs": "gs", "az": "abfs", "abfss": "abfs"}


def check_name(name: str) -> str:
    """Return the name if it stays below the table path; ValueError otherwise. Every backend checks
    first. [LY1]"""
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
    """The endpoint of a service without possible secrets in its URL: user, password, query,
    fragment. [SE1]"""
    found = _ENDPOINT.match(endpoint)
    assert found is not None  # every part of it may be empty
    return f"{found[1]}{found[2].lower()}{found[3]}".rstrip("/")


def check_root(scheme: str, root: str) -> str:
    """The path in an object store, bucket first, if every part of it is a valid name; UsageError
    otherwise. [ST4]"""
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
    """(scheme, rest) of a table path: one form per place, no trailing slash; a local path becomes
    absolute. [ST4]"""
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
    """Whether the store of this URL takes storage_options: a folder and this process' own memory do
    not. [ST4]"""
    return split_url(url)[0] not in TAKE_NONE
