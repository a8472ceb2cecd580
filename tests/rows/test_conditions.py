"""What conditions and new values take from private parts of pyarrow is what it exports elsewhere. `make test-newest` runs this with the
newest release. [RC8]"""

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from manifestcommit.rows import clauses


def test_the_private_parts_are_those_that_pyarrow_exports() -> None:
    for name in ("Declaration", "ProjectNodeOptions", "TableSourceNodeOptions"):
        assert getattr(clauses, name) is getattr(acero, name), f"pyarrow {pa.__version__} has moved {name}"


def test_values_are_computed_in_the_order_of_the_rows() -> None:
    rows = pa.table({"id": pa.chunked_array([list(range(70_000)), [-1]])})
    found = clauses.evaluated(rows, {"next": pc.field("id") + 1, "id": pc.field("id")})
    assert found.column_names == ["next", "id"] and found["next"].to_pylist() == [*range(1, 70_001), 0]
