"""The page of a report: one HTML document without script, its charts in SVG, and a policy that
forbids it any request.

The policy (Content-Security-Policy) allows the page's own style, by its digest, and nothing else.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import html
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ..display import age, counted, cut, size_text
from ..errors import UsageError
from ..terminal import other_tables
from ..version import __version__, install
from .data import SIZE_CLASSES, Bucket, HistoryView, ReportData

Shown: TypeAlias = Callable[[float], str]  # a value of an axis, as a text
Tags: TypeAlias = Sequence[tuple[str, int]]  # a name, and its version
WIDTH = 1000
_LEFT, _RIGHT = 74, 8
_STRIP = 24
_LEAST = 3  # height of a part of a mark: a single rewind among 500 appends is seen
_TAGS = 40  # lines; further ones would be a hatching
_LETTER = 7.2  # width of a letter, approximately

# The operations that exist, by the colour that they have; any other has that of "other".
_KINDS = {
    **{name: name for name in ("append", "overwrite", "replace", "schema", "tag")},
    "properties": "schema",
    "untag": "tag",
    **dict.fromkeys(("rewind", "rollback"), "back"),
    **dict.fromkeys(("delete", "update", "merge"), "rows"),
}
KINDS = ("append", "overwrite", "rows", "replace", "schema", "tag", "back", "other")
KIND_NAMES = {
    "rows": "row changes",
    "replace": "compaction",
    "schema": "schema, properties",
    "back": "rewind, rollback",
    "tag": "tags",
    "other": "create, gc, other",
}


class Shape(NamedTuple):
    """An element of a picture in SVG, with its text; `title` is shown when it is pointed at."""

    tag: str
    attributes: dict[str, Any]
    text: str = ""
    title: str = ""


def kind_of(operation: str) -> str:
    """The colour class of an operation, which may be any text."""
    return _KINDS.get(operation, "other")


def by_kind(operations: Mapping[str, int]) -> dict[str, int]:
    """Commits by colour class, in the order of `KINDS`."""
    sums: Counter[str] = Counter()
    for operation, count in operations.items():
        sums[kind_of(operation)] += count
    return {kind: sums[kind] for kind in KINDS if sums[kind]}


def count_text(count: float) -> str:
    """`9,999`, `12.5 k`, `3 M`: for axes."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= 10 * factor or (unit != "k" and count >= factor):
            return f"{count / factor:,.4g} {unit}"
    return f"{count:,.0f}"


def time_text(micros: int) -> str:
    """A moment in UTC; one that Python's calendar lacks stays a number."""
    try:
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} µs"
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def nice_end(value: float) -> float:
    """The end of an axis that holds the value: a round number."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    ends = (end * power for end in (1, 1.5, 2, 3, 4, 5, 6, 8, 10))
    return next(end for end in ends if end >= value * 0.999999)


def growth(history: HistoryView, tags: Tags) -> list[Shape]:
    """Rows and bytes over versions, below them one mark for each version or, of many, bucket."""
    buckets = history.buckets
    step = _step(len(buckets))
    ends = [(_LEFT, "start", buckets[0].first), (WIDTH - _RIGHT, "end", buckets[-1].last)]
    shapes = [
        *_panel(22, 150, [b.totals.rows for b in buckets], "rows", count_text),
        *_panel(204, 70, [b.totals.bytes for b in buckets], "size", size_text),
        *_tags(history, tags, 22, 274),
        *(each for at, b in enumerate(buckets) for each in _mark(b, _LEFT + at * step, step, 284)),
        *(_label(x, 328, f"version {at:,}", anchor) for x, anchor, at in ends[: len(buckets)]),
    ]
    painted = ("line", "path", "rect", "text")  # what comes later lies above
    return sorted(shapes, key=lambda shape: painted.index(shape.tag))


def _label(x: float, y: float, text: str, anchor: str = "start") -> Shape:
    return Shape("text", {"x": x, "y": y, "text-anchor": anchor}, text)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float, title: str = "") -> Shape:
    ends = {"class": kind, "x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return Shape("line", ends, title=title)


def share(part: float, whole: float) -> float:
    """The length of a bar of at most 100; whatever is not nothing is seen."""
    return 0.0 if part <= 0 or whole <= 0 else round(max(1.0, 100 * part / whole), 1)


def _step(count: int) -> float:
    return (WIDTH - _LEFT - _RIGHT) / max(1, count)


def _thin(step: float) -> float:
    """The width of a mark in its place: with a gap, where there is room for one."""
    return round(min(28.0, step - min(1.0, step / 4)), 2)


def _span(bucket: Bucket) -> str:
    one = bucket.first == bucket.last
    versions = f"version {bucket.last:,}" if one else f"versions {bucket.first:,}–{bucket.last:,}"
    return f"{versions}, {time_text(bucket.committed_at)}"


def _axis(top: float, height: float, end: float, text: Shown) -> Iterator[Shape]:
    for part in (0.0, 0.5, 1.0):
        y = top + height * (1 - part)
        if part == 0.5 and end < 2:
            continue  # half a row or byte
        yield _line("grid", _LEFT, y, WIDTH - _RIGHT, y)
        yield _label(_LEFT - 8, y + 4, text(end * part), "end")


def _panel(
    top: float, height: float, values: Sequence[int], name: str, text: Shown
) -> Iterator[Shape]:
    end = nice_end(max(values, default=0))
    yield from _axis(top, height, end, text)
    step, bottom = _step(len(values)), top + height
    pieces = [f"M{_LEFT},{bottom:.1f}"]
    for at, value in enumerate(values):
        y = bottom - height * max(0, value) / end
        pieces.append(f"V{y:.1f}H{_LEFT + (at + 1) * step:.1f}")
    kind = "rows" if name == "rows" else "bytes"
    yield Shape("path", {"class": f"area {kind}", "d": "".join([*pieces, f"V{bottom:.1f}Z"])})
    yield _label(_LEFT, top - 8, name)


def _tags(history: HistoryView, tags: Tags, top: float, bottom: float) -> Iterator[Shape]:
    """A line for each of the newest tags, and its name where there is room."""
    starts = {bucket.first: at for at, bucket in enumerate(history.buckets)}
    shown = sorted((version, name) for name, version in tags if version >= history.first)
    free = float(_LEFT + 60)
    for version, name in shown[-_TAGS:]:
        at = max((place for first, place in starts.items() if first <= version), default=0)
        x = _LEFT + (at + 0.5) * _step(len(history.buckets))
        text = cut(name, 20)
        yield _line("tagline", x, top - 6, x, bottom, f"{cut(name, 48)}: {version:,}")
        width = _LETTER * len(text)
        start = x + 4 if x + 4 + width < WIDTH else x - 4 - width
        if start > free:
            yield _label(start, top - 8, text)
            free = start + width + 8


def _mark(bucket: Bucket, x: float, step: float, top: float) -> Iterator[Shape]:
    kinds = by_kind(bucket.operations)
    total = sum(kinds.values())
    heights = {kind: max(_LEAST, _STRIP * count / total) for kind, count in kinds.items()}
    scale = _STRIP / sum(heights.values(), 0.0) if heights else 0
    operations = ", ".join(f"{cut(name, 24)} {n:,}" for name, n in bucket.operations.most_common(8))
    y = float(top)
    for kind, height in heights.items():
        box = {"class": kind, "x": round(x, 2), "y": round(y, 2), "width": _thin(step)}
        box["height"] = round(height * scale, 2)
        yield Shape("rect", box, title=f"{_span(bucket)}: {operations}")
        y += height * scale


_FOLDER = Path(__file__).parent


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A report of a table: one HTML page that needs no server, no script and no network.

    Attributes:
        html: the page, a whole HTML document.
        version: the version of the table that it shows.
    """

    html: str
    version: int

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file; a file that is there is replaced.

        Args:
            path: the file's name on this machine.

        Returns:
            The file's path.

        Raises:
            UsageError: the file cannot be written.
        """
        try:
            file = Path(path)
            file.write_bytes(self.html.encode())
        except (OSError, ValueError, TypeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"the report cannot be written to {cut(repr(path), 200)}: {reason}. "
                "Give the name of a file in a folder that exists"
            ) from None
        return file

    def __repr__(self) -> str:
        return f"Report(version={self.version}, {size_text(len(self.html.encode()))})"

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that neither's style reaches the other."""
        page = html.escape(self.html, quote=True)
        size = 'width="100%" height="720"'
        return f'<iframe sandbox {size} title="manifestcommit report" srcdoc="{page}"></iframe>'


def render(data: ReportData) -> str:
    """The page. UsageError if Jinja2 is not installed."""
    css = style()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    page: str = _template().render(
        data=data,
        style=css,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        release=__version__,
        growth=growth(data.history, data.tags),
        kinds=by_kind(data.history.operations),
        shown_kinds=by_kind({each["operation"]: 1 for each in data.history.commits}),
        size_rows=_size_rows(data),
        now_s=data.made_at / 1e6,
        beside=lambda roots: other_tables(roots, data.url),
    )
    # A lone surrogate, which some stores' names have, has no form in UTF-8.
    return page.encode("utf-8", "backslashreplace").decode()


def check_installed() -> None:
    """UsageError if Jinja2 is not installed, before anything is read."""
    _template()


def _size_rows(data: ReportData) -> list[tuple[str, int]]:
    ends = [size_text(end).replace(".0", "") for end in SIZE_CLASSES]
    names = [f"< {ends[0]}", *map("{} – {}".format, ends, ends[1:]), f"≥ {ends[-1]}"]
    return list(zip(names, data.file_view.sizes, strict=True))


@cache
def style() -> str:
    """The style of pages: light or dark as the browser is."""
    return (_FOLDER / "style.css").read_text("utf-8")


@cache
def _template() -> Any:
    return environment(_FOLDER).get_template("page.html.j2")


def environment(folder: Path) -> Any:
    """What renders a folder's templates, with texts escaped. UsageError without Jinja2."""
    try:
        import jinja2  # late: it is an extra
    except ModuleNotFoundError as error:
        needed = "a report needs Jinja2, which is not installed; nothing was read"
        raise UsageError(f"{needed}. {install('report')}") from error
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(size=size_text, age=age, time=time_text, counted=counted, kind=kind_of)
    made.filters["short"] = lambda value, limit=48: cut(value, limit)
    made.globals.update(share=share, kind_names=KIND_NAMES)
    return made
