"""Whether every link, anchor and file of a built site is there, and whether its pages ask nothing of other hosts."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements whose address the browser fetches by itself; an `a` is followed by a person.
FETCHED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("form", "action")}


@dataclass(slots=True, kw_only=True)
class Page:
    """What a page has: the ids of its elements, where its links lead, what its browser fetches."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self, page: Page) -> None:
        super().__init__()
        self.page = page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.page.ids.update(text for name in ("id", "name") if (text := named.get(name)))
        for name, value in attrs:
            if value and (tag, name) in FETCHED:
                self.page.fetched.append(value)
            elif value and name == "href":
                self.page.links.append(value)


def read(text: str) -> Page:
    """One page of HTML."""
    page = Page()
    _Reader(page).feed(text)
    return page


def problems(site: Path) -> list[str]:
    """What is wrong with a built site, one line each."""
    pages = {path.relative_to(site).as_posix(): read(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    # a page of an error is served at any address: its own links are absolute
    return [each for name, page in pages.items() if name != "404.html" for each in _problems(name, page, pages, files)]


def _problems(name: str, page: Page, pages: dict[str, Page], files: set[str]) -> Iterator[str]:
    for target in page.fetched:
        if urlsplit(target).netloc:
            yield f"{name}: fetches from another host: {target}"
    for target in (*page.links, *page.fetched):
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        path = unquote(parts.path)
        there = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
        if path.endswith("/") or there == ".":
            there = posixpath.normpath(posixpath.join(there, "index.html"))
        if there not in files:
            yield f"{name}: leads nowhere: {target}"
        elif parts.fragment and there in pages and not parts.fragment.startswith("__") and unquote(parts.fragment) not in pages[there].ids:
            yield f"{name}: no such anchor: {target}"
