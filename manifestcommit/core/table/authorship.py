"""Who made a commit, and what its caller says of it: author, message and metadata. [OB15] [SE5]

Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import msgspec

from ..schema.text import is_text, is_unicode, shown

AUTHOR_PROPERTY = "write.author"
PARTS = ("user", "host", "program", "software")
MAX_MESSAGE = 2_000  # characters
MAX_ENTRIES = 32
MAX_NAME = 100  # characters
MAX_VALUE = 1_000
MAX_BYTES = 8_192  # of all names and values in UTF-8: every intent and head carries them
_MAX_PART = 200  # characters

# Unlikely in any text that is no credential: who meets one by chance can write it otherwise, but
# what is committed cannot be taken back.
_SECRET_NAME = re.compile(
    r"secret|passw(?:or)?d|passphrase|credential|authorization|token$|"
    r"(?:private|access|account|api|shared|signing)[-_. ]?key|connection[-_. ]?string",
    re.IGNORECASE,
)
_SECRETS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("an AWS access key", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\"private_key\"\s*:")),
    ("a URL with a password", re.compile(r"://[^/\s:@]*:[^/\s@]+@")),
    ("a signed URL", re.compile(r"[?&](?:sig|x-(?:amz|goog)-signature|token)=", re.IGNORECASE)),
    (
        "a password or key",
        re.compile(
            r"(?:secret|passw(?:or)?d|pwd|(?:account|access|api|sharedaccess)_?key)\s*[=:]\s*\S",
            re.IGNORECASE,
        ),
    ),
    ("a bearer token", re.compile(r"\bbearer\s+[a-z0-9+/_=.~-]{16,}", re.IGNORECASE)),
    ("a JSON web token", re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.")),
    (
        "a service's token",
        re.compile(
            r"\b(?:gh[pousr]_\w{30,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}|"
            r"dapi[0-9a-f]{32}|sk_live_\w{16,}|AIza[\w-]{30,})"
        ),
    ),
)


class Author(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Who made a change, as its process says, for people: no rule reads it. [OB15]

    user: the account; host: the machine; program: the script, module or command; software: this
    library's release. None: not known, or not recorded.
    """

    user: str | None = None
    host: str | None = None
    program: str | None = None
    software: str | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="__unknown__")


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller says of a commit: a message, and names with values. [OB15]"""

    message: str | None = None
    metadata: dict[str, str] = {}


def parts_of(text: str) -> frozenset[str]:
    """The parts of an author that a text such as `user,host` or `none` lets be recorded. ValueError
    where it names anything else."""
    named = {part.strip() for part in text.split(",")}
    if named == {"none"}:
        return frozenset()
    if not named <= set(PARTS):
        raise ValueError(f"expected none, or any of {', '.join(PARTS)}, split by commas")
    return frozenset(named)


def limited(author: Author, parts: frozenset[str]) -> Author:
    """The author with no other parts than these, each short and without control characters."""
    told: dict[str, Any] = {
        part: _plain(text)
        for part in PARTS
        if part in parts and (text := getattr(author, part)) is not None
    }
    return Author(**told)


def known_parts(author: Author | None) -> dict[str, str]:
    """The parts of an author that are known, by name. [OB15]"""
    found = {part: getattr(author, part, None) for part in PARTS}
    return {part: text for part, text in found.items() if text is not None}


def allowed(author: Author | None, properties: Mapping[str, str]) -> Author | None:
    """What a version with these properties records of an author. [OB15]

    A property that cannot be read allows nothing: somebody wanted less than everything.
    """
    if author is None:
        return None
    text = properties.get(AUTHOR_PROPERTY)
    if text is not None:
        try:
            parts = parts_of(text)
        except ValueError:
            return None
        withheld = {part: None for part in PARTS if part not in parts}
        author = msgspec.structs.replace(author, **withheld)
    return author if author != Author() else None


def check_message(message: object) -> str:
    """The message, if it can be recorded; ValueError says what was expected, and repeats no text,
    which may hold a credential. [OB15] [SE5]"""
    expected = f"expected a text of 1 to {MAX_MESSAGE:,} characters without control characters"
    if not isinstance(message, str):
        raise ValueError(f"{shown(message)}: {expected}")
    if not message.strip() or len(message) > MAX_MESSAGE or not _is_clean(message, "\n\t"):
        raise ValueError(f"of {len(message):,} characters: {expected} but line breaks and tabs")
    return message


def check_metadata(metadata: object) -> dict[str, str]:
    """The metadata, if they can be recorded; ValueError says what was expected. [OB15] [SE5]"""
    if not isinstance(metadata, Mapping):
        raise ValueError(f"{shown(metadata)}: expected a mapping of names to texts")
    size = 0
    for name, value in metadata.items():
        if not is_text(name) or len(name) > MAX_NAME or not _is_clean(name):
            raise ValueError(
                f"the name {shown(name)}: expected a text of 1 to {MAX_NAME} characters without "
                "control characters"
            )
        if not isinstance(value, str) or len(value) > MAX_VALUE or not _is_clean(value):
            raise ValueError(
                f"the value of {shown(name)}: expected a text of at most {MAX_VALUE:,} characters "
                "without control characters"
            )
        size += len(name.encode()) + len(value.encode())
    if len(metadata) > MAX_ENTRIES or size > MAX_BYTES:
        raise ValueError(
            f"{len(metadata):,} entries of {size:,} bytes: expected at most {MAX_ENTRIES} of "
            f"{MAX_BYTES:,} bytes together"
        )
    return {str(name): str(value) for name, value in metadata.items()}


def check_author(author: Author | None) -> None:
    """ValueError where a part of an author that was read is none that a writer makes. [OB15]"""
    for part in PARTS if author is not None else ():
        text = getattr(author, part)
        if text is not None and (len(text) > _MAX_PART or not _is_clean(text)):
            raise ValueError(f"the {part} of its author: expected at most {_MAX_PART} characters")


def find_credential(note: Note) -> str | None:
    """Where a note holds what looks like a credential, and of which kind; never the credential
    itself. [SE5]"""
    for name, value in note.metadata.items():
        if kind := _secret_in(name):
            return f"a name in it looks like {kind}"
        if _SECRET_NAME.search(name):
            return f"{shown(name)} is the name of a credential"
        if kind := _secret_in(value):
            return f"the value of {shown(name)} looks like {kind}"
    kind = _secret_in(note.message or "")
    return f"it looks like {kind}" if kind else None


def _secret_in(text: str) -> str | None:
    return next((kind for kind, pattern in _SECRETS if pattern.search(text)), None)


def _is_clean(text: str, also: str = "") -> bool:
    return is_unicode(text) and not any(
        unicodedata.category(each) == "Cc" and each not in also for each in text
    )


def _plain(text: str) -> str:
    """A name of the system's, on one line: it may be anything that a file or a host is called."""
    kept = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text[: _MAX_PART + 1]
    )
    return kept if len(kept) <= _MAX_PART else f"{kept[: _MAX_PART - 1]}…"
