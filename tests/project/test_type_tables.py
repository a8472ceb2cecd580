"""Who adds a type is shown every module that decides by type."""

from __future__ import annotations

import pytest
from tests.project.type_tables import type_tables, types_named

# A search for one type's name misses each of these, or finds it only by chance.
HIDDEN = (
    "filter/predicate.py",
    "filter/sql_syntax.py",
    "format/evolution.py",
    "format/partitioning.py",
    "export/delta_export.py",
    "spark/writing.py",
)


@pytest.mark.thorough
@pytest.mark.parametrize("module", ["format/fields.py", "format/values.py", *HIDDEN])
def test_a_module_that_decides_by_type_is_listed(module: str) -> None:
    assert module in type_tables()


@pytest.mark.thorough
def test_a_module_that_names_no_type_is_not_listed() -> None:
    assert "protocol/apply.py" not in type_tables()


@pytest.mark.parametrize("code", ['x == "timestamp_ntz"', 'x == "TimestampNTZType"', 'FLAGS = {"timestamp_ntz": 1}'])
def test_a_type_is_found_however_it_is_spelled(code: str) -> None:
    assert types_named(code) == {"timestamp_ntz"}


def test_the_types_of_a_group_are_found() -> None:
    assert types_named("kind in MOMENTS") == {"timestamp", "timestamp_ntz"}


def test_a_type_that_arrow_names_is_found() -> None:
    assert types_named("pa.types.is_boolean(kind) or t.is_string(kind)") == {"boolean", "string"}
