"""A claim's picture: a small PNG that carries the digest of the figures that it was drawn from, so that a stale one is found out."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.claims import Panel

MOST_BYTES = 60_000
_MAGIC = b"\x89PNG\r\n\x1a\n"
_KEYWORD = "Figures"
_INCHES = (3.6, 2.6)  # of one panel
_ROW = 3  # panels in one row


def digest(panels: Sequence[Panel]) -> str:
    """Of everything that a picture shows."""
    return hashlib.sha256(msgspec.json.encode(panels)).hexdigest()


def digest_in(path: Path) -> str | None:
    """The digest that a picture carries; None where there is none. No library is needed to ask."""
    data = path.read_bytes() if path.exists() else b""
    at = len(_MAGIC)
    while data.startswith(_MAGIC) and at + 12 <= len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if zlib.crc32(kind + body) != int.from_bytes(data[at + 8 + length : at + 12 + length], "big"):
            return None
        if kind == b"tEXt" and body.startswith(f"{_KEYWORD}\0".encode()):
            return body.partition(b"\0")[2].decode("latin-1")
        at += 12 + length
    return None


def draw(path: Path, panels: Sequence[Panel]) -> None:
    """Write the picture, unless the one that is there shows these very figures. Needs matplotlib, of the extra `bench`."""
    if digest_in(path) == digest(panels):
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(_ROW, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(_INCHES[0] * columns, _INCHES[1] * rows), layout="constrained")
    for number, panel in enumerate(panels):
        _draw(figure.add_subplot(rows, columns, number + 1), panel, legend=number == 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Neither the library's name nor a time: the same figures give the same bytes.
    FigureCanvasAgg(figure).print_figure(path, dpi=64, metadata={"Software": None, _KEYWORD: digest(panels)})
    size = path.stat().st_size
    if size > MOST_BYTES:
        path.unlink()
        raise ValueError(f"{path} would have {size:,} bytes, more than the {MOST_BYTES:,} of a picture: plot fewer figures")


def _draw(axes: Any, panel: Panel, *, legend: bool) -> None:
    axes.set_title(panel.y, fontsize=10)
    names = list(panel.series)
    if not panel.x:
        axes.barh(names[::-1], [panel.series[name][0][1] for name in names[::-1]], color="tab:blue", height=0.6)
        axes.tick_params(labelsize=8)
        return
    for name in names:
        points = panel.series[name]
        axes.plot(*zip(*points, strict=True), marker="." if len(points) < 60 else "", label=name, linewidth=1.2)
    axes.set_xlabel(panel.x, fontsize=8)
    axes.tick_params(labelsize=8)
    if panel.log:
        axes.set_xscale("symlog", linthresh=1)
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if legend:
        axes.legend(fontsize=7)
