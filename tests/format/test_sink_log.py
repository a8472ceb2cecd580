"""The log of Spark's streaming file sink, as Spark parses it. [SP4] [EX10]"""

import json
from urllib.parse import quote

import pytest

from manifestcommit.format import sink_log

NAMES = ["plain.parquet", "a b+c=#?%41&é𝄞'\"\\.parquet", "d=1 2/a.parquet", "d=1 2/ü%.parquet", "a/b c/" * 3 + "é"]


@pytest.mark.parametrize("base", ["file:///lake/a b%", "s3a://bucket"])
def test_lines_are_json_with_escaped_paths(base: str) -> None:
    """Whatever a file and its folders are called; each folder is escaped once. [SP4]"""
    files = [(name, number) for number, name in enumerate(NAMES)]
    version, *lines = "".join(sink_log.lines(base, files)).splitlines()
    assert version == "v1"
    found = [json.loads(line) for line in lines]
    scheme, root = base.split("://")
    assert [each["path"] for each in found] == [f"{scheme}://{quote(f'{root}/{name}')}" for name in NAMES]
    assert [each["size"] for each in found] == [size for _, size in files]
    assert all(each["action"] == "add" and each["isDir"] is False and each["blockSize"] == 1 << 27 for each in found)


def test_only_the_first_line_has_what_it_is_given() -> None:
    """[EX10]"""
    lines = "".join(sink_log.lines("s3a://bucket", [("a", 1), ("b", 2)], first='"x":[7],')).splitlines()
    assert [json.loads(line).get("x") for line in lines[1:]] == [[7], None]
    assert list(sink_log.lines("s3a://bucket", [], first='"x":[7],')) == ["v1"]


@pytest.mark.parametrize(
    ("url", "hadoop"),
    [
        ("file:///a b", "file:///a b"), ("/a b", "file:///a b"), ("s3://b/k", "s3a://b/k"), ("gs://b/k", "gs://b/k"),
        ("abfs://c@a/k", "abfs://c@a/k"), ("memory://a", None), ("a", None),
    ],
)  # fmt: skip
def test_urls_of_hadoop(url: str, hadoop: str | None) -> None:
    """[SP4]"""
    assert sink_log.hadoop_url(url) == hadoop


@pytest.mark.parametrize(
    ("name", "is_skipped"), [("_a", True), (".a", True), ("a:b", True), ("_a=1", False), ("a", False), ("_x/a", False)]
)
def test_names_that_spark_passes_over(name: str, is_skipped: bool) -> None:
    """[SP4]"""
    assert sink_log.is_skipped(name) == is_skipped == sink_log.is_skipped(f"folder/{name}")
