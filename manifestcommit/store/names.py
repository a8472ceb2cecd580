"""Names below a root, and root URLs in their one canonical spelling. [LY1] [ST4]"""

from __future__ import annotations

import os
import re

from ..errors import UsageError

_ALIASES = {"s3a": "s3", "s3n": "s3", "local": "file", "gcs": "gs", "az": "abfs", "abfss": "abfs"}


def check_name(name: str) -> str:
    """The name, if it stays below the root; ValueError otherwise. Every backend asks before it touches anything. [LY1]"""
    parts = name.split("/")
    if "\0" in name or "" in parts or "." in parts or ".." in parts:
        raise ValueError(f"{name!r} is not a name below a table's root")
    return name


# What XML 1.0, in which services list and bulk-delete, cannot hold; and the carriage return, which its readers turn into a newline.
NOT_IN_XML = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+", re.IGNORECASE)

# A password may hold whatever would end the part of a URL that it stands in: all up to the last "@" may be one.
_ENDPOINT = re.compile(r"((?:[a-z][a-z0-9+.-]*://)?)(?:.*@)?([^/?#]*)([^?#]*)", re.DOTALL | re.IGNORECASE)


def public_endpoint(endpoint: str) -> str:
    """Where a service answers, without what may be secret in its URL: user, password, query, fragment. [SE1]"""
    found = _ENDPOINT.match(endpoint)
    assert found is not None  # every part of it may be empty
    return f"{found[1]}{found[2].lower()}{found[3]}".rstrip("/")


def check_root(scheme: str, root: str) -> str:
    """The root of an object store, bucket first, if every part of it is a name; UsageError otherwise. [ST4]"""
    try:
        return check_name(root)
    except ValueError:
        raise UsageError(
            f"{scheme}://{root} is no root of a table: give the bucket and the folders below it, as in {scheme}://bucket/lake/flights, "
            "without empty parts, `.` and `..`"
        ) from None


def _unlike_a_url(path: str) -> str:
    """The local path; UsageError for a URL that has lost a slash, as `pathlib` takes one. file:/x is Hadoop's spelling of /x. [ST4]"""
    scheme, found, rest = path.partition(":/")
    if not found or not _SCHEME.fullmatch(scheme):
        return path
    if scheme.lower() == "file":
        return f"/{rest}"
    raise UsageError(
        f"{scheme}:/ looks like {scheme}:// without a slash, as a pathlib.Path of a URL does. Give the URL as text, with two slashes; "
        f"or, for a folder of that name here, ./{scheme}:/"
    )


def split_url(path: str | os.PathLike[str]) -> tuple[str, str]:
    """(scheme, rest) of a root: one spelling per place, no trailing slash; a local path becomes absolute. [ST4]"""
    text = os.fspath(path)
    if not text.strip():
        raise UsageError("df_path is the table's root: a local path or a URL such as s3://bucket/table; it is empty")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return "file", os.path.abspath(_unlike_a_url(text))
    scheme = _ALIASES.get(scheme.lower(), scheme.lower())
    if scheme == "file":
        # file:///x, and file://localhost/x as some tools write it
        local = rest.removeprefix("localhost") if rest.startswith("localhost/") else rest
        if not local.startswith("/"):
            raise UsageError("the path of a file:// URL is absolute, as in file:///folder/table; this one is not")
        return scheme, os.path.abspath(local)
    # A secret may contain slashes, so "user:" counts wherever its "@" comes; abfs://container@account is no secret.
    if re.match(r"[^/@]*:[^@]*@", rest) or ("@" in rest.split("/", 1)[0] and scheme != "abfs"):
        raise UsageError(
            f"a {scheme}:// URL must not carry credentials; they would end up in logs. Give them in storage_options or in the environment."
        )
    if "?" in rest:
        raise UsageError(
            f"a {scheme}:// URL of a table has no `?`: what follows one is often a signature or a token, and would end up in logs. Give "
            "credentials in storage_options or in the environment."
        )
    return scheme, rest.rstrip("/")
