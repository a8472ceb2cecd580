"""Exports on a real S3 server, read from there by other engines. [EX1]"""

from __future__ import annotations

from typing import Any

import pytest
from tests.export.clients import expected
from tests.export.kinds import numbered

import manifestcommit as mc
from manifestcommit.store import StorageOptions, open_store


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
