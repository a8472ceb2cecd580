"""The blocks of the pages that need Spark, and an S3 server, run as they stand. The others: tests/docs/test_pages.py."""

from pathlib import Path

import pytest
from tests.docs.blocks import REPO, needs, pages, run

NAMES = {page.relative_to(REPO).as_posix(): page for page in pages() if needs(page) & {"spark", "s3"}}


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_a_page_runs_as_it_stands(
    spark, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """`lake` is where the page's tables are, a folder or a bucket."""
    monkeypatch.chdir(tmp_path)
    names = {"spark": spark, "lake": str(tmp_path)}
    if "s3" in needs(NAMES[name]):
        server = request.getfixturevalue("rgw")
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        names |= {"bucket": server.bucket(), "endpoint": server.endpoint, "access_key": server.key, "secret_key": server.secret}
    run(NAMES[name], names)
