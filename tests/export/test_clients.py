"""Other engines read exports of tables of every kind, and get the rows that this library gives. [EX1] [EX3] [EX6] [EX8]"""

from pathlib import Path
from typing import Any

import pytest
from tests.export.clients import DELTA, ICEBERG, expected, local, rows
from tests.export.kinds import KINDS, numbered

import manifestcommit as mc
from manifestcommit.store import StorageOptions, open_store

# What a format cannot express: kind -> the reason, in words of the error.
REFUSED = {
    "iceberg": {"adopted with ids": "other field ids than the table"},
    "delta": {"adopted folders": "does not hold its partition column"},
}
# What a client does not read, or reads wrong, by its own fault, in tables of other writers too: (client, kind) -> words of its
# error. Where it reads wrong rows, that is the comparison's. Measured with the versions in constraints.txt.
UNMAPPED = "columnMapping', which polars does not support|reader features .'columnMapping'.*polars does not support"
FAULTS = {
    ("Polars scan_delta", "renamed"): UNMAPPED,
    ("Polars scan_delta", "dropped and added again"): UNMAPPED,
    ("Polars scan_delta", "adopted and renamed"): UNMAPPED,
    ("Polars scan_delta", "compacted"): UNMAPPED,
    ("Polars scan_delta", "path with spaces"): "No such file or directory",
    ("DuckDB delta_scan", "path with spaces"): "Cannot open file .*: No such file or directory",
    ("pyiceberg", "null list of structs"): "assert",
    ("pyiceberg", "null map of structs"): "assert",
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, mc.Table]:
    return request.param, KINDS[request.param](str(tmp_path_factory.mktemp("kind") / "table"))


@pytest.mark.parametrize("format", ["iceberg", "delta"])
def test_clients_get_the_rows_that_readers_get(kind: tuple[str, mc.Table], format: str) -> None:
    """[EX1] [EX3] [EX6] [EX8] [EX9]"""
    name, table = kind
    if name in REFUSED[format]:
        with pytest.raises(mc.errors.UsageError, match=REFUSED[format][name]):
            table.export(format)
        return
    assert table.export(format).version == table.version
    wanted, schema = expected(table)
    for client, read in {"iceberg": ICEBERG, "delta": DELTA}[format].items():
        if (client, name) in FAULTS:
            with pytest.raises(Exception, match=FAULTS[client, name]):  # the client's own, or of the comparison
                assert rows(read(local(table)), schema) == wanted
        else:
            assert rows(read(local(table)), schema) == wanted, client


@pytest.mark.thorough
def test_clients_travel_in_time(tmp_path: Path) -> None:
    """[EX1] [EX4]"""
    table = KINDS["widened"](str(tmp_path / "t"))
    table.tag("first", 2)
    renamed = table.rename_column("a", "renamed").version
    for format in ("iceberg", "delta"):
        table.export(format)
    assert renamed == table.version == 5
    for version in range(2, renamed + 1):
        wanted, schema = expected(table, version)
        for client, read in {**ICEBERG, **DELTA}.items():
            if client == "Polars scan_delta" and version == renamed:
                with pytest.raises(Exception, match=UNMAPPED):
                    read(local(table), version)
            else:
                assert rows(read(local(table), version), schema) == wanted, (client, version)


# --- on a real S3 server ------------------------------------------------------------------------------------------------
@pytest.mark.thorough
def test_tables_of_other_formats_are_adopted_on_s3(rgw: Any) -> None:
    """With the options that reach the table, and no others. [AF4]"""
    options = rgw.storage_options
    for format in ("iceberg", "delta"):
        url = f"s3://{rgw.bucket()}/lake/a b"
        mc.write(numbered(3, part=["a b", "ü", None]), url, partition_by="part", storage_options=options)
        table = mc.Table(url, options)
        table.export(format)
        wanted, schema = expected(table)
        document = f"{url}/_iceberg/metadata/v{table.version}.metadata.json"
        store = open_store(url, StorageOptions(options))
        store.delete([info.name for info in store.list("_manifest/")])
        assert mc.Table(url, storage_options=options).adopt(from_=document if format == "iceberg" else "delta").rows == 3
        assert expected(mc.Table(url, options))[0] == wanted and schema.names == ["n", "part"]
