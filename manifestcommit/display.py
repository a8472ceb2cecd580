"""How values print: on one short line.

Every text is escaped and shortened: names, keys and reasons may come from anyone. Progress and the
tables of the command line are in `terminal`.

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

LINE = 100  # characters of a repr
_CELL = 60
_TEXT, _ID = 32, 52  # characters of a text in a repr; of one for which there is room, such as an id


def counted(count: int, noun: str) -> str:
    """`1 row`, `2 rows`, `1,000 rows`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def visible(text: str) -> str:
    """The text with everything escaped that a terminal would obey instead of showing it."""
    escaped = (each if each.isprintable() else ascii(each)[1:-1] for each in text)
    return "".join(escaped)


def size_text(size_bytes: float) -> str:
    """`999 B`, `1.5 kB`, `12.3 GB`."""
    size, sign = abs(size_bytes), "-" if size_bytes < 0 else ""
    if size < 1000:
        return f"{sign}{size:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1000
        if size < 999.95:
            return f"{sign}{size:.1f} {unit}"
    return f"{sign}{size / 1000:,.1f} PB"


def age(seconds: float) -> str:
    """An age in its two largest units: `3 d 4 h`, `5 m 12 s`, `8 s`."""
    whole = max(0, int(seconds))
    units = ("d", 86_400, 3_600, "h"), ("h", 3_600, 60, "m"), ("m", 60, 1, "s")
    for unit, length, smaller, name in units:
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // smaller} {name}"
    return f"{whole} s"


def relative_path(root: str, url: str) -> str:
    """A table's path, for a reader who has that of another one in mind: its last part, where the
    two are in one folder. No url: the last part in any case."""
    folder, _, name = root.rpartition("/")
    return name if not url or folder == url.rpartition("/")[0] else root


def cut(value: Any, limit: int = _CELL) -> str:
    """A value on one line of at most `limit` characters, without control characters."""
    text = value if isinstance(value, str) else str(value)
    shown = visible(text[: limit + 1])
    return shown if len(text) <= limit and len(shown) <= limit else f"{shown[: limit - 1]}…"


def line(name: str, members: Iterable[tuple[str, Any]]) -> str:
    """`Name(member=value, …)` on one line, without what is None, empty, or too long."""
    parts: list[str] = []
    room, left = LINE - len(name) - 5, False
    for member, value in members:
        if value is None or value == "" or value == () or value == {} or value is False:
            continue
        fitting = (f"{member}={_short(value, limit)}" for limit in (_ID, _TEXT))
        part = next((each for each in fitting if len(each) + 2 <= room), None)
        if part is None:
            left = True
            continue
        parts.append(part)
        room -= len(part) + 2
    return f"{name}({', '.join([*parts, *['…'] * left])})"


class ReprMixin:
    """A struct that prints on one line: what differs from defaults, else all, long texts last."""

    __slots__ = ()

    def __repr__(self) -> str:
        assert isinstance(self, msgspec.Struct)
        fields = msgspec.structs.fields(self)
        known = [(field.name, getattr(self, field.name), field.default) for field in fields]
        members = [(name, value) for name, value, default in known if value != default]
        members = members or [(name, value) for name, value, _ in known]
        members.sort(key=lambda member: len(_short(member[1])) > 20)
        return line(type(self).__name__, members)


def _short(value: Any, limit: int = _TEXT) -> str:
    if isinstance(value, str):
        return repr(cut(value, limit))
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, msgspec.Struct):
        return cut(repr(value), 40)
    if isinstance(value, tuple | list | dict | set):
        return f"<{len(value):,}>"
    return cut(value, 24)
