"""Where a name leads. No session."""

from pathlib import Path

import pytest

from manifestcommit import Table
from manifestcommit.spark_sql.execution import place_of


def test_options_of_a_store_are_shown_nowhere() -> None:
    """[SP50] [SE1]"""
    place = place_of("flights", "s3://lake/flights", {"secret": "hidden-value"})
    assert "hidden-value" not in repr(place) and dict(place.options) == {"secret": "hidden-value"}


def test_a_path_is_the_same_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP50]"""
    monkeypatch.chdir(tmp_path)
    place = place_of("flights", "a b/é=%20", None)
    monkeypatch.chdir("/")
    assert place.table().url == Table(tmp_path / "a b/é=%20").url
    assert place_of("flights", "s3://lake/flights", None).path == "s3://lake/flights"
