"""Hostile texts in every place of a page: they are shown as texts, shortened, and nothing of them is markup."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.report.pages import Page
from tests.report.synthetic import data_of, head, schema_of

import manifestcommit as mc
from manifestcommit.report.page import render

HOSTILE = {
    "script": "</script></style></title><script>alert(1)</script><img src=x onerror=alert(1)>",
    "attribute": '" onmouseover="alert(1)" x=\'',
    "direction": "abc\u202egpj.exe\u2066\u200f",
    "NUL": "a\0b\x1b[31m\x07",
    "template": "{{ 7 * 7 }}{% raw %}{# x #}&lt;&amp;",
    "surrogate": "a\ud800b",
    "newline": "a\n\r\n\u2028<b>",
    "long": '<&">' * 2_500,
    "wide": "日本🦆" * 3_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_is_only_a_text_wherever_it_is(text: str) -> None:
    newest = head(30, schema_of([text, "b"]), watermarks={text: text[:100], "b": 7})
    html = render(data_of(newest, versions=30, text=text))
    page = Page(html)  # it fails on an element or attribute that no template has
    page.check_policy()
    assert not [each for each in html if each != "\n" and not each.isprintable()]
    beginning = text[:2].encode("unicode_escape").decode() if not text[:2].isprintable() else text[:2]
    for section in ("partitions", "watermarks", "schema", "jobs", "gc", "commits"):
        assert beginning in page.text(section), section
    assert len(html.encode()) < 2_000_000
    assert html == html.encode().decode()


@pytest.mark.parametrize("text", [HOSTILE["script"], HOSTILE["attribute"], HOSTILE["direction"], HOSTILE["template"]])
def test_a_table_with_hostile_names_has_a_page(tmp_path: Path, text: str) -> None:
    """Through the store: columns, partition values, keys, sources, tags and reasons."""
    root = tmp_path / "a b" / "<i>'\"&"
    rows = pa.table({text: [text, None], f"v{text}": [1, 2]})
    mc.write(rows, root, partition_by=text, key=text, watermarks={text: (None, text)})
    table = mc.Table(root)
    table.tag(text)
    table.rewind(text, None, reason=text)
    report = table.report(gc=True)
    page = Page(report.html)
    page.check_policy()
    assert len(page.of_class("commit")) == len(table.history()) == 4
    assert text[:3] in page.text("partitions") and text[:3] in page.text("commits")


def test_a_frame_in_a_notebook_holds_the_page_and_no_more(tmp_path: Path) -> None:
    mc.write(pa.table({"a": [1]}), tmp_path / "t", key=HOSTILE["script"])
    report = mc.Table(tmp_path / "t").report()
    frame = report._repr_html_()
    assert frame.startswith("<iframe sandbox ") and frame.count("<") == 2 and frame.endswith("</iframe>")
    assert repr(report).startswith("Report(version=2, ") and len(repr(report)) < 60
