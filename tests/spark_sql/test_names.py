"""Where a name leads. No session."""

from __future__ import annotations

from manifestcommit.spark_sql.names import place_of


def test_options_of_a_store_are_shown_nowhere() -> None:
    """[SP46] [SE1]"""
    place = place_of("flights", "s3://lake/flights", {"secret": "hidden-value"})
    assert "hidden-value" not in repr(place) and dict(place.options) == {"secret": "hidden-value"}
