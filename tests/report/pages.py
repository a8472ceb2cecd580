"""Reads a report as a browser would: its elements, texts and policy."""

import base64
import hashlib
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "hr", "img", "link"}
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "ul", "li", "b", "span", "section", "div", "code", "footer"),
    *("table", "thead", "tbody", "tr", "th", "td", "label", "input", "bdi"),
    *("svg", "line", "path", "rect", "text"),
}


class Page(HTMLParser):
    """The elements of a page; an element that is not closed, or that no template has, is an error."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.open: list[str] = []
        self.sections: dict[str, list[str]] = {}
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.style = ""
        self._section = ""
        self.feed(html)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, f"<{tag}>"
        given = {name: value or "" for name, value in attrs}
        assert not [name for name in given if name.startswith("on") or name in ("style", "src", "href", "srcdoc", "xlink:href")], given
        self.elements.append((tag, given))
        if tag == "section":
            self._section = given["id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        elif data.strip():
            self.sections.setdefault(self._section, []).append(data.strip())

    def text(self, section: str) -> str:
        return " ".join(self.sections.get(section, []))

    @property
    def tiles(self) -> dict[str, str]:
        words = self.sections[""]
        start = next(at for at, (tag, given) in enumerate(self.elements) if given.get("class") == "tiles" and tag == "ul")
        count = sum(tag == "b" for tag, _ in self.elements[start:])
        at = words.index("version") - 1
        pairs = words[at : at + 2 * count]
        return {name: value for value, name in zip(pairs[::2], pairs[1::2], strict=True)}

    @property
    def policy(self) -> dict[str, str]:
        (content,) = [given["content"] for _, given in self.elements if given.get("http-equiv") == "Content-Security-Policy"]
        return {name: value for name, _, value in (part.strip().partition(" ") for part in content.split(";"))}

    def check_policy(self) -> None:
        """Nothing may be loaded or run; the one style is the one that the policy names."""
        digest = base64.b64encode(hashlib.sha256(self.style.encode()).digest()).decode()
        assert self.policy == {
            "default-src": "'none'", "style-src": f"'sha256-{digest}'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'",
        }  # fmt: skip
        assert "url(" not in self.style and "@import" not in self.style
        before = [tag for tag, given in self.elements if given.get("charset") or given.get("http-equiv") or tag in ("title", "style")]
        assert before[:2] == ["meta", "meta"]  # the policy holds for all that follows it

    def of_class(self, name: str) -> list[dict[str, str]]:
        return [given for _, given in self.elements if name in given.get("class", "").split()]
