"""The page of a report: one HTML document without script, and a policy that forbids it any request.

The policy (Content-Security-Policy) allows the page's own style, by its digest, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ..display import counted
from ..errors import UsageError
from ..version import __version__, install
from . import drawing
from .data import SIZE_CLASSES, ReportData

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
                f"the report cannot be written to {drawing.short(repr(path), 200)}: {reason}. "
                "Give the name of a file in a folder that exists"
            ) from None
        return file

    def __repr__(self) -> str:
        return f"Report(version={self.version}, {drawing.size_text(len(self.html.encode()))})"

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
        growth=drawing.growth(data.history, data.tags),
        troubles=drawing.troubles(data.history),
        kinds=drawing.by_kind(data.history.operations),
        shown_kinds=_shown_kinds(data),
        size_rows=_size_rows(data),
        now_s=data.made_at / 1e6,
    )
    # A lone surrogate, which some stores' names have, has no form in UTF-8.
    return page.encode("utf-8", "backslashreplace").decode()


def check_installed() -> None:
    """UsageError if Jinja2 is not installed, before anything is read."""
    _template()


def _shown_kinds(data: ReportData) -> list[str]:
    shown = {drawing.kind_of(commit.operation) for commit in data.history.commits}
    return [kind for kind in drawing.KINDS if kind in shown]


def _size_rows(data: ReportData) -> list[tuple[str, int]]:
    ends = [drawing.size_text(end).replace(".0", "") for end in SIZE_CLASSES]
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
        raise UsageError(
            f"a report needs Jinja2, which is not installed; nothing was read. {install('report')}"
        ) from error
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        short=drawing.short,
        size=drawing.size_text,
        age=drawing.age_text,
        time=drawing.time_text,
        counted=counted,
        kind=drawing.kind_of,
    )
    made.globals.update(share=drawing.share, kind_names=drawing.KIND_NAMES)
    return made
