"""Who adds a type is shown every module that decides by type."""

import pytest
from tests.project.type_tables import type_tables, types_named

# A search for one type's name misses each of these, or finds it only by chance.
HIDDEN = (
    "filter/predicate.py", "filter/sql_syntax.py", "format/evolution.py", "format/partitioning.py", "export/delta_export.py",
    "spark/writing.py",
)  # fmt: skip


def test_modules_that_decide_by_type_are_listed() -> None:
    found = type_tables()
    assert {"format/fields.py", "format/values.py", *HIDDEN} <= found.keys() and "protocol/apply.py" not in found


@pytest.mark.parametrize(
    ("code", "types"),
    [
        ('x == "timestamp_ntz"', {"timestamp_ntz"}),
        ('x == "TimestampNTZType"', {"timestamp_ntz"}),
        ('FLAGS = {"timestamp_ntz": 1}', {"timestamp_ntz"}),
        ("kind in MOMENTS", {"timestamp", "timestamp_ntz"}),
        ("pa.types.is_boolean(kind) or t.is_string(kind)", {"boolean", "string"}),
    ],
)
def test_a_type_is_found_however_it_is_spelled(code: str, types: set[str]) -> None:
    assert types_named(code) == {name: [1] for name in types}
