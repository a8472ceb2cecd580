"""How values print: on one short line, in a notebook as a small HTML table.

Every text is escaped and shortened: names, keys and reasons may come from anyone. Progress and the
tables of the command line are in `terminal`.

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
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
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


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
    for unit, length, smaller, name in (
        ("d", 86_400, 3_600, "h"),
        ("h", 3_600, 60, "m"),
        ("m", 60, 1, "s"),
    ):
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


def struct_line(value: msgspec.Struct) -> str:
    """A struct on one line: members that differ from their defaults, long texts last."""
    members = sorted(changed(value), key=lambda member: len(_short(member[1])) > 20)
    return line(type(value).__name__, members)


def changed(value: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """The members of a struct that differ from their defaults."""
    for field in msgspec.structs.fields(value):
        member = getattr(value, field.name)
        if field.default is msgspec.NODEFAULT or member != field.default:
            yield field.name, member


def html_table(names: Sequence[str], rows: Iterable[Sequence[Any]], more: int = 0) -> str:
    """A small HTML table; more: rows that it leaves out."""
    heads = "".join(f"<th>{_cell(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    rest = f"<p>… and {more:,} more</p>" if more > 0 else ""
    head = f"<thead><tr>{heads}</tr></thead>" if names else ""
    return f"<table>{head}<tbody>{body}</tbody></table>{rest}"


def html_members(members: Iterable[tuple[str, Any]]) -> str:
    """Names and values, one pair in a row."""
    return html_table((), [(name, _plain(value)) for name, value in members])


class ReprMixin:
    """A struct that prints on one line, and as a small table in a notebook."""

    __slots__ = ()

    def __repr__(self) -> str:
        assert isinstance(self, msgspec.Struct)
        return struct_line(self)

    def _repr_html_(self) -> str:
        assert isinstance(self, msgspec.Struct)
        return html_members(changed(self))


def _short(value: Any, limit: int = _TEXT) -> str:
    if isinstance(value, str):
        return repr(cut(value, limit))
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, msgspec.Struct):
        return cut(struct_line(value), 40)
    if isinstance(value, tuple | list | dict | set):
        return f"<{len(value):,}>"
    return cut(value, 24)


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return struct_line(value)
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name}: {cut(_plain(each), 40)}" for name, each in islice(value.items(), 10)
        )
    if isinstance(value, tuple | list):
        return ", ".join(cut(_plain(each), 40) for each in islice(value, 10))
    return value


def _cell(value: Any) -> str:
    import html

    return html.escape(f"{value:,}" if type(value) is int else cut(value), quote=True)
